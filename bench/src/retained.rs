//! What a bucket has to hold: every byte that a state which is kept refers to, each once. And what it holds.

use std::collections::{BTreeMap, HashSet};
use std::sync::Mutex;

use async_trait::async_trait;
use bytes::Bytes;
use peat_ledger::format::{self, PageSource};
use peat_ledger::{Ref, Segment, State};
use peat_objects::{List, Listed, Pages, Range, Store};
use peat_types::{Error, Result, Seq};

use crate::Failure;

/// Bytes by what they are there for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Held {
    /// Objects and bytes in all.
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
    /// Entries of the log.
    pub(crate) log: u64,
    /// Packs of contents that the newest state refers to, and packs of pages.
    pub(crate) contents: u64,
    pub(crate) pages: u64,
    /// Packs that only older states refer to.
    pub(crate) dropped_contents: u64,
    pub(crate) dropped_pages: u64,
    /// How many packs of contents, and of pages, the newest state refers to.
    pub(crate) live_packs: (u64, u64),
}

/// Bytes that have to be there.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Needed {
    /// Entries above the oldest kept state, whole: they are the history.
    pub(crate) log: u64,
    /// Records below it, and in packs, that any kept state refers to.
    pub(crate) records: u64,
    /// Of these, what the newest state refers to.
    pub(crate) live: u64,
    /// States that are kept.
    pub(crate) states: u64,
}

impl Needed {
    pub(crate) fn bytes(&self) -> u64 {
        self.log + self.records
    }
}

/// Reads what the states of a ledger refer to.
struct Reader<'a> {
    store: &'a dyn Store,
    objects: BTreeMap<Segment, Listed>,
    refs: Mutex<HashSet<Ref>>,
}

#[async_trait]
impl PageSource for Reader<'_> {
    async fn page(&self, at: &Ref) -> Result<Bytes> {
        self.add([*at]);
        self.read(at.segment, Range::Part { offset: at.off, len: u64::from(at.len) }).await
    }
}

impl<'a> Reader<'a> {
    async fn new(store: &'a dyn Store) -> std::result::Result<Self, Failure> {
        let mut objects = BTreeMap::new();
        for listed in listed(store).await? {
            let (folder, name) = listed.key.split_once('/').unwrap_or_default();
            let segment = match (folder, name.split_once('.'), name.split_once('-')) {
                ("log", Some((_, seq)), _) => Segment::Log(Seq(seq.parse()?)),
                ("pack", _, Some((base, id))) => Segment::Pack(Seq(u64::from_str_radix(base, 16)?), id.parse()?),
                _ => continue,
            };
            objects.insert(segment, listed);
        }
        Ok(Self { store, objects, refs: Mutex::default() })
    }

    async fn read(&self, segment: Segment, range: Range) -> Result<Bytes> {
        let missing = || Error::damaged(format!("{segment:?} is not there"));
        let listed = self.objects.get(&segment).ok_or_else(missing)?;
        Ok(self.store.get(&listed.key, range).await?.ok_or_else(missing)?.bytes)
    }

    async fn entry(&self, seq: Seq) -> Result<State> {
        Ok(format::decode_entry(seq, &self.read(Segment::Log(seq), Range::All).await?)?.state)
    }

    fn add(&self, refs: impl IntoIterator<Item = Ref>) {
        if let Ok(mut all) = self.refs.lock() {
            all.extend(refs);
        }
    }

    /// Adds what a state refers to and `before` does not.
    async fn add_state(&self, before: &State, state: &State) -> Result<()> {
        for (_, row) in format::directory_diff(before, state, self).await?.into_values() {
            if let Some(row) = row {
                let files = format::table(&row, self).await?;
                self.add(files.iter().flat_map(|(_, _, row)| row.content.blocks()));
            }
        }
        if before.root.packs != state.root.packs {
            format::packs(state, self).await?;
        }
        Ok(())
    }

    /// Bytes of the records in objects that `count`.
    fn bytes(&self, count: impl Fn(&Segment) -> bool) -> u64 {
        let lens = |refs: &HashSet<Ref>| refs.iter().filter(|at| count(&at.segment)).map(|at| u64::from(at.len)).sum();
        self.refs.lock().map(|refs| lens(&refs)).unwrap_or(0)
    }
}

async fn listed(store: &dyn Store) -> std::result::Result<Vec<Listed>, Failure> {
    let mut pages = Pages::new(store, List::default());
    let mut all = Vec::new();
    while let Some(page) = pages.next().await? {
        all.extend(page.keys);
    }
    Ok(all)
}

/// A state without anything.
fn nothing(like: &State) -> State {
    let mut state = like.clone();
    (state.root.directory, state.root.packs) = (None, None);
    state
}

/// What the states from `floor` to `head` refer to.
pub(crate) async fn needed(store: &dyn Store, floor: Seq, head: &State) -> std::result::Result<Needed, Failure> {
    let reader = Reader::new(store).await?;
    reader.add_state(&nothing(head), head).await?;
    let live = reader.bytes(|_| true);
    let mut before = reader.entry(floor).await?;
    reader.add_state(&nothing(head), &before).await?;
    for seq in floor.0 + 1..=head.seq.0 {
        let state = reader.entry(Seq(seq)).await?;
        reader.add_state(&before, &state).await?;
        before = state;
    }
    let kept = |segment: &Segment| matches!(segment, Segment::Log(seq) if *seq > floor);
    let log = reader.objects.iter().filter(|(segment, _)| kept(segment)).map(|(_, listed)| listed.size).sum();
    Ok(Needed { log, records: reader.bytes(|segment| !kept(segment)), live, states: head.seq.0 - floor.0 + 1 })
}

/// What the bucket holds when `head` is the newest state.
pub(crate) async fn held(store: &dyn Store, head: &State) -> std::result::Result<Held, Failure> {
    let reader = Reader::new(store).await?;
    let mut held = Held::default();
    for listed in listed(store).await? {
        held.objects += 1;
        held.bytes += listed.size;
    }
    for (segment, listed) in &reader.objects {
        held.log += if matches!(segment, Segment::Log(_)) { listed.size } else { 0 };
    }
    for (dropped, _, _, row) in format::packs(head, &reader).await? {
        let of = match (dropped, row.metadata) {
            (false, false) => &mut held.contents,
            (false, true) => &mut held.pages,
            (true, false) => &mut held.dropped_contents,
            (true, true) => &mut held.dropped_pages,
        };
        *of += row.size;
        held.live_packs.0 += u64::from(!dropped && !row.metadata);
        held.live_packs.1 += u64::from(!dropped && row.metadata);
    }
    Ok(held)
}
