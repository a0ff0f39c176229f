//! The B+tree against a `BTreeMap`, reopened from bytes after every batch.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use peat_types::Seq;
use proptest::prelude::*;

use super::page::{Page, PageSink, TreeKind, shared};
use super::refs::Value;
use super::testing::Objects;
use super::tree::{diff, lookup, prefixed, range, scan};
use super::tree_write::{Edit, apply};
use super::*;
use crate::model::Segment;

const KIND: TreeKind = TreeKind::Table;

/// A tree whose every batch lands in an object of its own.
struct Tree {
    objects: Objects,
    root: Option<Ref>,
    next: u64,
    /// Whether pages are laid down backwards, as in an entry, or forwards, as in a section.
    prepend: bool,
}

impl Tree {
    fn new(prepend: bool) -> Self {
        Self { objects: Objects::default(), root: None, next: 1, prepend }
    }

    /// Applies a batch; the answer is how many pages it wrote.
    async fn apply(&mut self, batch: &BTreeMap<Vec<u8>, Option<Value>>) -> usize {
        let edits: Vec<Edit> =
            batch.iter().map(|(key, value)| Edit { key: key.clone(), value: value.clone() }).collect();
        let mut sink = if self.prepend {
            PageSink::prepend()
        } else {
            PageSink::Append { out: vec![9; 5], outside: BTreeSet::new() }
        };
        let root = apply(self.root, KIND, &edits, &self.objects, &mut sink).await.unwrap();
        let segment = Segment::Log(Seq(self.next));
        let (body, origin, pages) = match sink {
            PageSink::Append { out, .. } => {
                let pages = count(&out[5..]);
                (out, 0, pages)
            }
            PageSink::Prepend { pages, .. } => {
                let body: Vec<u8> = std::iter::once(vec![9; 7]).chain(pages.iter().rev().cloned()).flatten().collect();
                (body.clone(), body.len() as u64, pages.len())
            }
        };
        self.objects.all.insert(segment, Bytes::from(body));
        self.root = root.map(|at| refs::Origin { segment, off: origin }.resolve(at).unwrap());
        self.next += 1;
        pages
    }

    async fn all(&self) -> BTreeMap<Vec<u8>, Value> {
        scan(self.root.as_ref(), KIND, &self.objects).await.unwrap().into_iter().collect()
    }

    /// Depth, with the invariants of every page checked on the way: order, levels, separators below all keys.
    async fn check(&self) -> usize {
        let mut open: Vec<(Ref, Vec<u8>, Option<Vec<u8>>)> =
            self.root.iter().map(|at| (*at, Vec::new(), None)).collect();
        let mut depth = 0;
        while !open.is_empty() {
            depth += 1;
            let mut below = Vec::new();
            let mut levels = BTreeSet::new();
            for (at, low, high) in open {
                let page = Page::decode(&self.objects.page(&at).await.unwrap(), &at).unwrap();
                levels.insert(page.level);
                for (i, (key, value)) in page.rows.iter().enumerate() {
                    // The key of a first child may lie anywhere: all below the next one goes there.
                    assert!(page.level > 0 && i == 0 || *key >= low, "a key below the bound of its page");
                    assert!(high.as_ref().is_none_or(|high| key < high));
                    if page.level > 0 {
                        let low = if i == 0 { low.clone() } else { key.clone() };
                        let high = page.rows.get(i + 1).map(|row| row.0.clone()).or_else(|| high.clone());
                        below.push((value.at.unwrap(), low, high));
                    }
                }
            }
            assert_eq!(levels.len(), 1, "all leaves are equally deep");
            open = below;
        }
        depth
    }
}

fn count(mut bytes: &[u8]) -> usize {
    let mut n = 0;
    while !bytes.is_empty() {
        bytes = &bytes[record::length(bytes, record::PAGE).unwrap()..];
        n += 1;
    }
    n
}

fn value(n: u8) -> Value {
    let at = n.is_multiple_of(3).then_some(Ref { segment: Segment::Log(Seq(0)), off: u64::from(n), len: 9 });
    Value { flags: u32::from(n % 2) * 2, at, rest: vec![n; usize::from(n % 50)] }
}

/// Keys that share a lot, so that pages, separators and merges are all exercised.
fn key(n: u16) -> Vec<u8> {
    let rank = u8::from(n.is_multiple_of(3));
    format!("{}data/{}/{}", char::from(rank), n % 7, n / 7 * 13 % 1000).into_bytes()
}

fn batches() -> impl Strategy<Value = Vec<BTreeMap<Vec<u8>, Option<Value>>>> {
    let edit = (0..600u16, prop_oneof![3 => any::<u8>().prop_map(Some), 2 => Just(None)]);
    let small = prop::collection::vec(edit.clone(), 1..20);
    let large = prop::collection::vec(edit, 200..500);
    let wipe = Just((0..600u16).filter(|n| n % 11 != 0).map(|n| (n, None)).collect::<Vec<_>>());
    let batch = prop_oneof![4 => small, 2 => large, 1 => wipe];
    let map = |edits: Vec<(u16, Option<u8>)>| edits.into_iter().map(|(n, v)| (key(n), v.map(value))).collect();
    prop::collection::vec(batch.prop_map(map), 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn a_tree_is_a_map(batches in batches(), prepend: bool) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut tree = Tree::new(prepend);
            let mut model: BTreeMap<Vec<u8>, Value> = BTreeMap::new();
            for batch in &batches {
                let before = (tree.root, model.clone());
                tree.apply(batch).await;
                for (key, value) in batch {
                    match value {
                        Some(value) => drop(model.insert(key.clone(), value.clone())),
                        None => drop(model.remove(key)),
                    }
                }
                assert_eq!(tree.all().await, model);
                assert_eq!(tree.root.is_none(), model.is_empty());
                tree.check().await;
                // The state before is still there, whole.
                let old: BTreeMap<_, _> = scan(before.0.as_ref(), KIND, &tree.objects).await.unwrap().into_iter().collect();
                assert_eq!(old, before.1);
                let changes = diff(before.0.as_ref(), tree.root.as_ref(), KIND, &tree.objects).await.unwrap();
                let keys: BTreeSet<_> = before.1.keys().chain(model.keys()).collect();
                let want: BTreeMap<_, _> = keys.into_iter().map(|k| (k.clone(), (before.1.get(k).cloned(), model.get(k).cloned())))
                    .filter(|(_, (was, is))| was != is).collect();
                assert_eq!(changes, want);
            }
            let keys: BTreeSet<Vec<u8>> = (0..600).map(key).collect();
            let sorted: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            let found = lookup(tree.root.as_ref(), KIND, &sorted, &tree.objects).await.unwrap();
            for (key, found) in keys.iter().zip(found) {
                assert_eq!(found.as_ref(), model.get(key));
            }
            let (from, to) = (key(100), key(101));
            let (from, to) = if from < to { (from, to) } else { (to, from) };
            let some: BTreeMap<_, _> = range(tree.root.as_ref(), KIND, &from, Some(&to), &tree.objects).await.unwrap().into_iter().collect();
            assert_eq!(some, model.range(from..to).map(|(k, v)| (k.clone(), v.clone())).collect());
            let prefix = b"\x01data/3/";
            let some: BTreeMap<_, _> = prefixed(tree.root.as_ref(), KIND, prefix, &tree.objects).await.unwrap().into_iter().collect();
            assert_eq!(some, model.into_iter().filter(|(k, _)| k.starts_with(prefix)).collect());
        });
    }
}

#[tokio::test]
async fn a_small_change_rewrites_only_its_path() {
    let mut tree = Tree::new(false);
    let all: BTreeMap<_, _> = (0..40_000u32).map(|n| (format!("model/{n:08}").into_bytes(), Some(value(7)))).collect();
    tree.apply(&all).await;
    let depth = tree.check().await;
    assert!(depth <= 4, "depth {depth}");
    let one = BTreeMap::from([(b"model/00020000".to_vec(), Some(value(8)))]);
    assert!(tree.apply(&one).await <= depth + 1);
    let nothing = BTreeMap::from([(b"model/00020000".to_vec(), Some(value(8))), (b"model/none".to_vec(), None)]);
    let root = tree.root;
    assert_eq!(tree.apply(&nothing).await, 0, "what changes nothing writes nothing");
    assert_eq!(tree.root, root);
}

#[tokio::test]
async fn pages_merge_again_when_rows_go() {
    let mut tree = Tree::new(true);
    let all: BTreeMap<_, _> = (0..5000u32).map(|n| (format!("{n:08}").into_bytes(), Some(value(30)))).collect();
    tree.apply(&all).await;
    let deep = tree.check().await;
    for start in 0..5 {
        let gone =
            all.keys().enumerate().filter(|(n, _)| n % 5 == start && n % 500 != 0).map(|(_, k)| (k.clone(), None));
        tree.apply(&gone.collect()).await;
        tree.check().await;
    }
    assert_eq!(tree.all().await.len(), 10);
    assert_eq!(tree.check().await, 1, "ten rows fit a page, from {deep} levels");
}

#[tokio::test]
async fn a_unit_that_grows_keeps_what_is_current_in_its_first_page() {
    let mut tree = Tree::new(false);
    let hash = [3u8; 32];
    let row = |n: u64| Value { flags: 0, at: None, rest: [&hash[..], &testing::id(n)[..]].concat() };
    let current: BTreeMap<_, _> = (0..12).map(|n| (format!("\0data/{n}").into_bytes(), Some(row(n)))).collect();
    tree.apply(&current).await;
    for n in 0..60u64 {
        let old = [&[1][..], &(!n).to_be_bytes(), b"data/old"].concat();
        tree.apply(&BTreeMap::from([(old, Some(row(n))), (b"\0data/0".to_vec(), Some(row(n + 100)))])).await;
    }
    let leaf = first_leaf(&tree).await;
    assert!(leaf.rows.iter().all(|(key, _)| key[0] == 0));
    assert_eq!(leaf.rows.len(), 12);
}

async fn first_leaf(tree: &Tree) -> Page {
    let mut at = tree.root.unwrap();
    loop {
        let page = Page::decode(&tree.objects.page(&at).await.unwrap(), &at).unwrap();
        if page.level == 0 {
            return page;
        }
        at = page.rows[0].1.at.unwrap();
    }
}

#[tokio::test]
async fn a_page_that_is_not_the_expected_one_is_damage() {
    let mut tree = Tree::new(false);
    let all: BTreeMap<_, _> = (0..500u32).map(|n| (format!("{n:08}").into_bytes(), Some(value(30)))).collect();
    tree.apply(&all).await;
    let root = tree.root.unwrap();
    let error = scan(Some(&root), TreeKind::Directory, &tree.objects).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Damaged);
    // A root in the place of its own child: levels must fall. One child in the place of all: ranges do not overlap, so
    // that a walk over pages made to blow up ends at once.
    let record = tree.objects.bytes(&root).unwrap();
    let page = Page::decode(&record, &root).unwrap();
    for target in [root, page.rows[0].1.at.unwrap(), page.rows[1].1.at.unwrap()] {
        let mut page = page.clone();
        for row in &mut page.rows {
            row.1.at = Some(target);
        }
        let mut sink = PageSink::Append { out: Vec::new(), outside: BTreeSet::new() };
        let at = sink.write(&page).unwrap();
        let PageSink::Append { out, .. } = sink else { panic!() };
        tree.objects.all.insert(Segment::Log(Seq(99)), out.into());
        let at = refs::Origin { segment: Segment::Log(Seq(99)), off: 0 }.resolve(at).unwrap();
        assert_eq!(scan(Some(&at), KIND, &tree.objects).await.unwrap_err().kind(), Kind::Damaged);
        let keys: Vec<&[u8]> = all.keys().map(Vec::as_slice).collect();
        assert_eq!(lookup(Some(&at), KIND, &keys, &tree.objects).await.unwrap_err().kind(), Kind::Damaged);
    }
}

#[test]
fn shared_prefixes() {
    assert_eq!(shared(b"abc", b"abd"), 2);
    assert_eq!(shared(b"", b"abd"), 0);
}
