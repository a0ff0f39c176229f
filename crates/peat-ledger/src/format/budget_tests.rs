//! What an entry weighs. `cargo test -p peat-ledger budget -- --nocapture` prints the figures that stand in
//! `docs/design/001-ledger.md`.

use bytes::Bytes;
use peat_types::{Hash, PackId, Seq, Unit};

use super::testing::*;
use super::*;
use crate::model::{Content, ContentRef, FileRow, NewContent, Op, Params, Rank, Ring, Segment, TxKind, UnitRow};

/// Current outputs of a unit; older ones are history.
const OUTPUTS: u64 = 20;

/// A row whose content was stored some time ago.
fn stored(n: u64) -> NewContent {
    let at = id(n);
    let segment = match at[0] {
        0..200 => Segment::Log(Seq(20_000 + u64::from(at[1]) * 78)),
        _ => Segment::Pack(Seq(u64::from(at[1] % 4) * 5000), PackId::from_bytes(id(u64::from(at[1] % 4)))),
    };
    let off = 3000 + u64::from(at[3]) * if at[0] < 200 { 9 } else { 60_000 };
    let block = Ref { segment, off, len: 700 + u32::from(at[4]) * 3 };
    let row = FileRow {
        executable: false,
        size: 300 + u64::from(at[5]) * 11,
        hash: Hash::of(&at),
        content: Content::At(ContentRef { block, sub: u32::from(at[6]) * 8 }),
    };
    NewContent::Known(row)
}

fn known(text: &str, rank: Rank, n: u64) -> Op {
    Op::Put { path: path(text), rank, old: None, executable: false, content: stored(n) }
}

fn unit(n: u64) -> Unit {
    Unit::model(&uuid(n)).unwrap()
}

fn stamp(n: u64, run: u64) -> String {
    format!(
        "2026-07-{:02}T{:02}-{:02}-{:02}-{:03}Z",
        1 + (n + run) % 28,
        run % 24,
        n % 60,
        (n * 7) % 60,
        (n * 13) % 1000
    )
}

fn output(n: u64, run: u64) -> String {
    format!("outputs/command/shell/execute/{}-{}.yaml", uuid(n), stamp(n, run))
}

fn data(n: u64, version: u64, file: &str) -> String {
    format!("data/command/shell/{}/result/{version}/{file}", uuid(n))
}

/// A model that ran `runs` times: 3 + 3 × runs files.
fn model(n: u64, runs: u64) -> Vec<Op> {
    let mut ops = vec![
        known(&format!("models/command/shell/{}.yaml", uuid(n)), Rank::Current, n * 1000),
        known(&format!("leases/{}", unit(n)), Rank::Current, n * 1000 + 1),
        known(&format!("data/command/shell/{}/result/latest", uuid(n)), Rank::Current, n * 1000 + 2),
    ];
    for run in 1..=runs {
        let rank = if run == runs { Rank::Current } else { Rank::History(run) };
        let key = n * 1000 + run * 10;
        ops.push(known(&data(n, run, "raw"), rank, key));
        ops.push(known(&data(n, run, "metadata.yaml"), rank, key + 1));
        let rank = if run + OUTPUTS > runs { Rank::Current } else { Rank::History(run) };
        ops.push(known(&output(n, run), rank, key + 2));
    }
    ops
}

/// Runs of model `n`: 1 to 8, and now and then one that ran often; 4.56 on average.
fn runs(n: u64) -> u64 {
    if n.is_multiple_of(250) { 30 } else { n % 8 + 1 }
}

/// A ledger that grew over many entries, with the largest ring there can be. Models `full` have their files, the others
/// none (what a commit weighs does not depend on the tables of other units).
async fn grown(units: u64, entries: usize, full: impl Fn(u64) -> bool) -> Log {
    let mut log = Log::new();
    log.info.params.entry_max = 1 << 30;
    let all: Vec<u64> = (0..units).collect();
    for (i, some) in all.chunks(all.len() / entries).enumerate() {
        log.state.seq = Seq(40_000 + i as u64 * 233);
        let changes =
            some.iter().map(|n| (unit(*n), if full(*n) { model(*n, runs(*n)) } else { Vec::new() })).collect();
        let draft = log.draft(TxKind::Change, changes).await;
        let section = log.plan(&draft).await.unwrap();
        log.build(&[section]).await.unwrap();
    }
    log.state.seq = Seq(50_000);
    log.state.ring = full_ring();
    log
}

/// 512 entries of two units each, all different.
fn full_ring() -> Ring {
    let mut ring = Ring::default();
    for n in 0..512 {
        ring = ring.push([&unit(1_000_000 + n), &unit(2_000_000 + n)], 512);
    }
    assert_eq!(ring.entries.len(), 512);
    assert!(ring.entries.iter().flatten().count() >= 1020, "some tags collide");
    ring
}

/// Bytes of an entry by part.
#[derive(Debug, Default)]
struct Weight {
    /// The object.
    all: usize,
    header: usize,
    ring: usize,
    pages: usize,
    ops: usize,
    table: usize,
    /// Everything but contents.
    lean: usize,
}

fn size(n: u64) -> usize {
    usize::try_from(n).unwrap()
}

fn weigh(seq: Seq, body: &Bytes) -> Weight {
    let entry = decode_entry(seq, body).unwrap();
    let opened = decode::open(seq, body, body.len() as u64).unwrap().unwrap();
    let mut w = Weight { all: body.len(), ring: size(opened.header.ring_len), ..Weight::default() };
    w.pages = size(opened.header.pages_len);
    w.header = opened.sections - w.pages - w.ring;
    for tx in &entry.txs {
        let section = &body[size(tx.off)..][..size(tx.len)];
        let blocks = u32::from_le_bytes(section[..4].try_into().unwrap()) as usize;
        let ops = record::length(&section[4 + blocks..], record::OPS).unwrap();
        w.ops += ops;
        w.table += section.len() - 4 - blocks - ops;
        w.lean += section.len() - blocks;
    }
    w.lean += opened.sections;
    w
}

/// The two entries of one run of model `n`.
async fn run(log: &mut Log, n: u64) -> (Weight, Weight) {
    let run = runs(n) + 1;
    let text = |what: &str| format!("{what} {}\n", uuid(n * 77 + run)).repeat(10);
    let lease = format!("leases/{}", unit(n));
    let mut ops = vec![
        put(&output(n, run), Rank::Current, None, text("status: running")),
        put(&lease, Rank::Current, Some(Rank::Current), text("held")),
    ];
    if run > OUTPUTS {
        let old = run - OUTPUTS;
        ops.push(Op::Rank { path: path(&output(n, old)), from: Rank::Current, to: Rank::History(old) });
    }
    let draft = log.draft(TxKind::Start, vec![(unit(n), ops)]).await;
    let section = log.plan(&draft).await.unwrap();
    let start = log.build(&[section]).await.unwrap();
    let start = weigh(log.state.seq, &start);
    let old = run - 1;
    let rank = |file: &str| Op::Rank { path: path(&data(n, old, file)), from: Rank::Current, to: Rank::History(old) };
    let latest = format!("data/command/shell/{}/result/latest", uuid(n));
    let ops = vec![
        put(&data(n, run, "raw"), Rank::Current, None, text("data")),
        put(&data(n, run, "metadata.yaml"), Rank::Current, None, text("metadata")),
        put(&latest, Rank::Current, Some(Rank::Current), run.to_string()),
        put(&output(n, run), Rank::Current, Some(Rank::Current), text("status: done")),
        put(&lease, Rank::Current, Some(Rank::Current), text("free")),
        rank("raw"),
        rank("metadata.yaml"),
    ];
    let draft = log.draft(TxKind::End, vec![(unit(n), ops)]).await;
    let section = log.plan(&draft).await.unwrap();
    let end = log.build(&[section]).await.unwrap();
    (start, weigh(log.state.seq, &end))
}

/// Heaviest pair of entries over some models, one of which ran thirty times.
async fn heaviest(log: &mut Log, models: impl Iterator<Item = u64>) -> usize {
    let mut worst = 0;
    let mut all = Vec::new();
    for n in models {
        let (start, end) = run(log, n).await;
        let pair = start.lean + end.lean;
        all.push(pair);
        worst = worst.max(pair);
        println!("model {n} ({} runs): {pair} bytes, {} with contents", runs(n), start.all + end.all);
        println!("  start {start:?}\n  end   {end:?}");
        // Every model meets a full ring.
        log.state.ring = full_ring();
    }
    all.sort_unstable();
    println!("pairs of entries without contents: {} to {worst}, median {}", all[0], all[all.len() / 2]);
    worst
}

#[tokio::test]
async fn budget_two_entries_of_a_run_at_6000_units() {
    let mut log = grown(6000, 20, |_| true).await;
    println!("{} units, {} files", log.state.root.units, log.state.root.files);
    assert_eq!(log.state.root.units, 6000);
    assert!(log.state.root.files >= 99_000);
    let worst = heaviest(&mut log, (0..6000).step_by(121).chain([250, 500, 1250, 3000])).await;
    assert!(worst <= 16 << 10, "two entries take {worst} bytes");
}

#[tokio::test]
async fn commit_at_40000_units_is_at_most_5_kb_larger() {
    let some = |n: u64| n.is_multiple_of(1000);
    let mut small = grown(6000, 6, some).await;
    let mut large = grown(40_000, 6, some).await;
    assert_eq!(large.state.root.units, 40_000);
    for n in (0..6000).step_by(1000) {
        let (a, b) = (run(&mut small, n).await, run(&mut large, n).await);
        println!("model {n}: start {} -> {}, end {} -> {} bytes", a.0.lean, b.0.lean, a.1.lean, b.1.lean);
        println!("  directory pages {} -> {}", a.1.pages, b.1.pages);
        assert!(b.0.lean <= a.0.lean + (5 << 10) && b.1.lean <= a.1.lean + (5 << 10));
    }
    // A cold reader walks the directory in three reads.
    let mut level = vec![large.state.root.directory.unwrap()];
    let mut depth = 0;
    while !level.is_empty() {
        depth += 1;
        level = level.iter().flat_map(|at| page_children(&large.objects.bytes(at).unwrap(), at).unwrap()).collect();
    }
    println!("depth of the directory at 40,000 units: {depth}");
    assert!(depth <= 3);
}

/// A repair that has lost the directory writes all of it into one entry.
#[tokio::test]
async fn a_directory_of_100_000_models_fits_an_entry() {
    let pack = Segment::Pack(Seq(500_000), PackId::from_bytes(id(1)));
    let mut rows = std::collections::BTreeMap::new();
    for n in 0..100_000_u64 {
        let (files, bytes) = (3 + 3 * runs(n), 3000 + n * 17 % 100_000);
        let table = Some(Ref { segment: pack, off: n * 1500 + n % 700, len: 1100 + u32::from(id(n)[0]) });
        let row = UnitRow { last_seq: Seq(400_000 + n * 7919 % 100_000), table, files, bytes };
        rows.insert(unit(n).as_str().as_bytes().to_vec(), row::unit_value(&row, None));
    }
    let edits: Vec<_> = rows.into_iter().map(|(key, value)| tree_write::Edit { key, value: Some(value) }).collect();
    let mut sink = page::PageSink::prepend();
    tree_write::apply(None, page::TreeKind::Directory, &edits, &Objects::default(), &mut sink).await.unwrap();
    let page::PageSink::Prepend { total, .. } = sink else { unreachable!("as it was made") };
    println!("a directory of 100,000 models: {total} bytes");
    assert!(total < Params::default().entry_max, "{total} bytes");
}
