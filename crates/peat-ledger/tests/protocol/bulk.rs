//! Much at once: transactions that no entry could hold, and contents in parts.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use peat_ledger::{
    Checkpointing, Commit, Content, ContentRef, Dead, Draft, DraftUnit, FileRow, NewContent, Op, Params, Pieces, Rank,
    Segment, Stored, TxKind, format,
};
use peat_objects::{Range, Store};
use peat_types::{ChangeId, Hash, ItemPath, Kind, Result, Seq, TxId, Unit};

use super::bench::{Bench, MapCache, RawPages};
use super::checkpoint::{checkpoint, cut_off, forced, sync};
use super::history::{History, files};

/// Bytes that do not compress.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let blocks = (0_u64..).flat_map(|n| *Hash::of(&[seed.to_le_bytes(), n.to_le_bytes()].concat()).as_bytes());
    blocks.take(len).collect()
}

/// Contents above 2,000 bytes go into packs, those above 3,000 in parts.
fn params() -> Params {
    Params { inline_file: 2000, inline_tx: 4000, part: 3000, pack_target: 10_000, ..Params::default() }
}

fn full() -> Checkpointing {
    Checkpointing { full: true, ..forced() }
}

fn path(text: &str) -> ItemPath {
    text.parse().expect("path")
}

async fn rows(bench: &Bench, unit: &str) -> BTreeMap<String, (Rank, FileRow)> {
    let cache = MapCache::default();
    let unit: Unit = unit.parse().expect("unit");
    let row = bench.ledger.unit(&bench.state, &unit, &cache).await.expect("unit").expect("there");
    let table = bench.ledger.tables(&[&row], &cache).await.expect("table").remove(0);
    table.into_iter().map(|(rank, path, row)| (path.to_string(), (rank, row))).collect()
}

/// Number of parts of each content.
async fn parts(bench: &Bench, unit: &str) -> BTreeMap<String, usize> {
    let count = |row: &FileRow| if let Content::Parts(parts) = &row.content { parts.len() } else { 0 };
    rows(bench, unit).await.iter().map(|(path, (_, row))| (path.clone(), count(row))).collect()
}

fn draft(bench: &Bench, units: Vec<DraftUnit>) -> Draft {
    Draft {
        tx: TxId::random(&bench.env),
        change: ChangeId::random(&bench.env),
        kind: TxKind::Change,
        author: "ann@here".into(),
        message: "much at once".into(),
        time: bench.env.now(),
        guard: None,
        units,
    }
}

/// Commits a change that must go through; gives the size of its entry.
async fn commit(bench: &mut Bench, units: Vec<DraftUnit>) -> usize {
    let draft = draft(bench, units);
    let sent = bench.send(&draft).await;
    let Commit::Committed { entry, .. } = sent else { unreachable!("{sent:?}") };
    let size = entry.body.len();
    bench.pass(&[*entry]);
    size
}

#[tokio::test(start_paused = true)]
async fn a_content_in_parts_is_a_content_like_any_other() {
    let mut bench = Bench::with(params()).await;
    let mut history = History::default();
    let (large, odd) = (noise(1, 30_000), noise(2, 9001));
    // Names that would come between a row and those of its parts, if any could.
    bench.put("model/a", &[("x", &large), ("x!", b"1"), ("x-y", &odd), ("xa/b", b"small"), ("twin", &odd)]).await;
    let counts = |all: &[(&str, usize)]| all.iter().map(|(path, n)| ((*path).to_owned(), *n)).collect();
    let there: BTreeMap<_, _> = counts(&[("twin", 4), ("x", 10), ("x!", 0), ("x-y", 4), ("xa/b", 0)]);
    assert_eq!(parts(&bench, "model/a").await, there);
    assert_eq!((bench.state.root.files, bench.state.root.bytes), (5, 30_000 + 2 * 9001 + 6));
    let before = bench.memory.keys().iter().filter(|key| key.starts_with("pack/")).count();
    assert!((4..=5).contains(&before), "{before} packs: equal contents are stored once");
    history.note(&bench).await;
    let before = bench.state.clone();

    // It moves to history as it is, is known to others, and its parts go with it.
    let (_, known) = rows(&bench, "model/a").await["x"].clone();
    let unit = |name: &str| -> Unit { name.parse().expect("unit") };
    let rank = Op::Rank { path: path("x"), from: Rank::Current, to: Rank::History(7) };
    let gone = Op::Delete { path: path("x-y"), rank: Rank::Current };
    let (old, content) = (Some(Rank::Current), NewContent::Bytes(Bytes::from_static(b"now small")));
    let less = Op::Put { path: path("twin"), rank: Rank::Current, old, executable: true, content };
    let content = NewContent::Known(known);
    let copy = Op::Put { path: path("copy"), rank: Rank::Current, old: None, executable: false, content };
    let at = Some(bench.state.seq);
    let first = DraftUnit { unit: unit("model/a"), expected: at, ops: vec![less, rank, gone] };
    let second = DraftUnit { unit: unit("model/b"), expected: None, ops: vec![copy] };
    commit(&mut bench, vec![first, second]).await;
    assert_eq!(parts(&bench, "model/a").await, counts(&[("twin", 0), ("x", 10), ("x!", 0), ("xa/b", 0)]));
    assert_eq!(rows(&bench, "model/a").await["x"].0, Rank::History(7));
    assert_eq!(parts(&bench, "model/b").await, counts(&[("copy", 10)]));
    // What differs names contents with all their parts.
    let row = async |state| bench.ledger.unit(state, &unit("model/a"), &bench.cache).await.expect("unit");
    let (was, is) = (row(&before).await, row(&bench.state).await);
    let diff = format::table_diff(was.as_ref(), is.as_ref(), &RawPages(bench.memory.clone())).await.expect("diff");
    assert_eq!(diff.keys().map(ItemPath::as_str).collect::<Vec<_>>(), ["twin", "x", "x-y"]);
    let (Some((Rank::Current, was)), Some((Rank::History(7), is))) = &diff[&path("x")] else {
        unreachable!("{diff:?}")
    };
    assert_eq!((was.content.blocks().len(), was), (10, is));
    history.note(&bench).await;
    history.holds(&bench.memory).await;

    // Checkpoint and compaction take the parts for rows.
    for how in [forced(), full()] {
        bench.put("model/c", &[("z", &noise(3, 5000))]).await;
        history.note(&bench).await;
        let seq = checkpoint(&bench.ledger, &how).await;
        sync(&mut bench).await;
        history.holds(&bench.memory).await;
        let all = files(&bench.ledger, &bench.state).await.expect("files");
        assert_eq!(all[&("model/b".into(), "copy".into())], large);
        assert_eq!(bench.state.root.minlog, seq);
    }
    cut_off(&bench.memory, bench.state.root.minlog).await;
    assert_eq!(files(&bench.ledger, &bench.state).await.expect("files").len(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_damaged_part_is_asked_for_again_and_then_named() {
    let mut bench = Bench::with(params()).await;
    bench.put("model/a", &[("x", &noise(1, 12_000))]).await;
    let (_, row) = rows(&bench, "model/a").await["x"].clone();
    let Content::Parts(parts) = &row.content else { unreachable!("in parts") };
    let bad = parts[2].block;
    let times = Mutex::new(1);
    bench.hooks.on_get(move |key, object| {
        let mut times = times.lock().expect("times");
        Ok(object.map(|mut object| {
            if key.starts_with("pack/") && *times > 0 {
                *times -= 1;
                let mut bytes = object.bytes.to_vec();
                let at = bytes.len() / 2;
                bytes[at] ^= 1;
                object.bytes = bytes.into();
            }
            object
        }))
    });
    assert_eq!(bench.ledger.contents(&[&row], &[]).await.expect("asked again"), [noise(1, 12_000)]);
    bench.hooks.calm();
    let Segment::Pack(base, id) = bad.segment else { unreachable!("in a pack") };
    let key = format!("pack/{:016x}-{id}", base.0);
    let mut body = bench.memory.get(&key, Range::All).await.expect("get").expect("there").bytes.to_vec();
    body[usize::try_from(bad.off).expect("small") + 100] ^= 1;
    bench.memory.put(&key, body.into()).await.expect("put");
    let rows = [&row];
    let read: Vec<Result<u64>> = bench.ledger.pieces(&rows, &[]).map(|piece| Ok(piece?.offset)).collect().await;
    let error = read.into_iter().find_map(Result::err).expect("damaged");
    assert_eq!(error.kind(), Kind::Damaged);
    assert!(error.to_string().contains(&format!("{key} in")), "{error}");
    let found = bench.ledger.verify(true).await.expect("verified").findings;
    assert!(found.iter().any(|flaw| flaw.object == key && flaw.path.is_some()), "{found:?}");
}

/// 9,000 files in 60 units, all new or in one transaction on top of what is there.
fn many(from: &str, expected: impl Fn(&Unit) -> Option<Seq>) -> Vec<DraftUnit> {
    let unit = |n: u64| -> Unit { format!("model/{n:03}").parse().expect("unit") };
    let op = |unit: u64, n: u64| Op::Put {
        path: path(&format!("data/{from}/{n}")),
        rank: if n.is_multiple_of(3) { Rank::Current } else { Rank::History(n) },
        old: None,
        executable: false,
        content: NewContent::Bytes(noise(unit * 1000 + n, 80).into()),
    };
    let ops = |n| (0..150).map(move |file| op(n, file)).collect();
    (0..60).map(|n| DraftUnit { unit: unit(n), expected: expected(&unit(n)), ops: ops(n) }).collect()
}

/// The entry of a bulk commit holds operations only: tables and contents lie in packs. What is built on it, moved by
/// checkpoints and cut off from the log is what it was.
#[tokio::test(start_paused = true)]
async fn tables_of_a_very_large_transaction_lie_in_packs() {
    let mut bench = Bench::with(Params { pack_target: 200_000, ..Params::default() }).await;
    let mut history = History::default();
    let units = many("first", |_| None);
    let size = commit(&mut bench, units).await;
    let entry = bench.ledger.head().await.expect("head");
    let packs = &entry.txs[0].packs;
    assert!(packs.iter().filter(|pack| pack.pages).count() > 1, "{packs:?}");
    assert!(packs.iter().filter(|pack| !pack.pages).count() > 1, "{packs:?}");
    let tables: u64 = packs.iter().filter(|pack| pack.pages).map(|pack| pack.size).sum();
    assert!(tables > 300_000 && (size as u64) < tables, "{tables} bytes of tables, an entry of {size}");
    let root = |unit: usize| entry.txs[0].units[unit].row.table.expect("a table").segment;
    assert!((0..60).all(|unit| matches!(root(unit), Segment::Pack(..))));
    history.note(&bench).await;

    // A small change to some of them, whose tables lie in the log from then on.
    for n in 0..5 {
        bench.put(&format!("model/{n:03}"), &[("data/later", &noise(n, 100)), ("data/first/3", b"changed")]).await;
    }
    history.note(&bench).await;
    // Much on top: where something of a table lies in the log, all that is new stays there, for a checkpoint does not
    // look for it below packs.
    let seen = bench.state.clone();
    let directory = bench.ledger.directory(&seen, &bench.cache).await.expect("directory");
    let seqs: BTreeMap<Unit, Seq> = directory.into_iter().map(|(unit, row)| (unit, row.last_seq)).collect();
    let units = many("second", |unit| seqs.get(unit).copied());
    commit(&mut bench, units).await;
    let entry = bench.ledger.head().await.expect("head");
    let root = |unit: usize| entry.txs[0].units[unit].row.table.expect("a table").segment;
    for unit in 0..60 {
        assert_eq!(matches!(root(unit), Segment::Pack(..)), unit >= 5, "unit {unit}");
    }
    history.note(&bench).await;

    for how in [forced(), forced(), full()] {
        bench.put("model/007", &[("data/more", &noise(7, 100))]).await;
        history.note(&bench).await;
        checkpoint(&bench.ledger, &how).await;
        sync(&mut bench).await;
        cut_off(&bench.memory, bench.state.root.minlog).await;
        let last = bench.state.seq;
        let verified = bench.ledger.verify(false).await.expect("verified");
        // (The slots that were cut off are missed, the state is whole.)
        let wrong: Vec<_> = verified.findings.iter().filter(|flaw| !flaw.object.starts_with("log/")).collect();
        assert!(wrong.is_empty(), "{last}: {wrong:?}");
    }
    let all = files(&bench.ledger, &bench.state).await.expect("files");
    assert_eq!(all.len(), 2 * 9000 + 5 + 1);
    assert_eq!(all[&("model/004".into(), "data/first/4".into())], noise(4004, 80));
    assert_eq!(all[&("model/059".into(), "data/second/149".into())], noise(59_149, 80));
}

/// Contents in memory, as a journal would give them.
struct Journalled(Vec<Vec<u8>>, usize);

impl Pieces for Journalled {
    fn piece(&self, content: usize, piece: u32) -> Result<(Bytes, Hash, bool)> {
        let part = self.0[content].chunks(self.1).nth(piece as usize).unwrap_or_default();
        Ok((Bytes::copy_from_slice(part), Hash::of(part), part.len() < self.0[content].len()))
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_uploaded_before_is_introduced_unless_the_horizon_passed_it() {
    let mut bench = Bench::with(Params { part: 100_000, ..params() }).await;
    let contents = Journalled((0..20).map(|n| noise(n, 8_000)).collect(), 100_000);
    let mut stored: Vec<Stored> = Vec::new();
    let base = bench.state.seq.next();
    let mark = bench.mark();
    let wanted = (0..20).map(|content| (content, 0));
    let mut note = |pack: &Stored| {
        stored.push(pack.clone());
        Ok(())
    };
    bench.ledger.upload(base, wanted, &contents, Duration::from_secs(9), &mut note).await.expect("uploaded");
    assert_eq!(bench.used(&mark).0, stored.len() as u64, "one request for each pack");
    assert_eq!(stored.len(), 3, "blocks of 8 contents, each larger than a pack should be");
    assert_eq!(stored.iter().map(|pack| pack.pieces.len()).sum::<usize>(), 20);

    let uploaded: Vec<Op> = stored
        .iter()
        .flat_map(|pack| pack.pieces.iter().map(move |piece| (pack, piece)))
        .map(|(pack, piece)| {
            let bytes = &contents.0[piece.content];
            let at: ContentRef = pack.place(piece);
            let content = Content::At(at);
            let row = FileRow { executable: false, size: bytes.len() as u64, hash: Hash::of(bytes), content };
            let content = NewContent::Uploaded(row, [pack.pack].into());
            let path = path(&format!("data/{}", piece.content));
            Op::Put { path, rank: Rank::Current, old: None, executable: false, content }
        })
        .collect();
    let planned =
        |name: &str| vec![DraftUnit { unit: name.parse().expect("unit"), expected: None, ops: uploaded.clone() }];
    let late = draft(&bench, planned("model/late"));
    let size = commit(&mut bench, planned("model/a")).await;
    assert!(size < 4000, "an entry of {size} bytes");
    let all = files(&bench.ledger, &bench.state).await.expect("files");
    assert_eq!(all[&("model/a".into(), "data/17".into())], contents.0[17]);
    assert!(bench.ledger.verify(true).await.expect("verified").findings.is_empty());

    // R2: another ledger, where collection passed the base before the packs were introduced.
    let mut other = Bench::with(params()).await;
    other.put("model/x", &[("x", b"1")]).await;
    let keep = other.put("model/x", &[("x", b"2")]).await;
    other.collect(keep).await;
    assert!(other.state.root.horizon >= base);
    let sent = other.send(&late).await;
    assert!(matches!(sent, Commit::Lost { why: Dead::Horizon, .. }), "{sent:?}");
}

/// A checkpoint that moves a content larger than memory reads it and writes it some at a time.
#[tokio::test(start_paused = true)]
async fn a_checkpoint_copies_a_large_content_some_at_a_time() {
    // Each part in a pack of its own, and small enough for a full checkpoint to join them.
    let params = Params { part: 900_000, pack_target: 500_000, ..Params::default() };
    let mut bench = Bench::with(params).await;
    let large = noise(1, 26 << 20);
    bench.put("model/a", &[("x", &large)]).await;
    let (memory, seen) = (bench.memory.clone(), std::sync::Arc::new(Mutex::new((0, 0, 0))));
    let noted = seen.clone();
    bench.hooks.on_get(move |key, object| {
        if key.starts_with("pack/") {
            let packs = memory.keys().iter().filter(|key| key.starts_with("pack/")).count();
            let mut seen = noted.lock().expect("seen");
            let (before, bytes, most) = *seen;
            let bytes =
                object.as_ref().map_or(0, |object| object.bytes.len()) + if packs == before { bytes } else { 0 };
            *seen = (packs, bytes, most.max(bytes));
        }
        Ok(object)
    });
    checkpoint(&bench.ledger, &full()).await;
    let (_, _, most) = *seen.lock().expect("seen");
    assert!((16 << 20..20 << 20).contains(&most), "{most} bytes were read before the next were written");
    bench.hooks.calm();
    sync(&mut bench).await;
    let (_, row) = rows(&bench, "model/a").await["x"].clone();
    assert!(bench.ledger.contents(&[&row], &[]).await.expect("read") == [large]);
}
