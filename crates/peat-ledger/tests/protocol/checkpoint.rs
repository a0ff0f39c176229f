//! Checkpoints: what they change, and what they must not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use peat_ledger::{Checkpoint, Checkpointing, Commit, Dead, Ledger, Params, State, Tail, format};
use peat_objects::{MemoryStore, Range, Store};
use peat_types::{Result, Seq};

use super::bench::{Bench, MapCache, log_key};
use super::history::{Dying, History, files, handle, state_at};

pub fn forced() -> Checkpointing {
    Checkpointing { author: "ann@here".into(), force: true, full: false, patience: Duration::from_secs(30) }
}

/// Small limits, so that packs, several pages and several blocks are common.
pub fn params() -> Params {
    Params { inline_file: 2000, inline_tx: 4000, ..Params::default() }
}

/// Some units with contents of every kind: in rows, in blocks, in packs.
pub async fn busy(bench: &mut Bench, rounds: u64) {
    for n in 0..rounds {
        let unit = format!("model/{}", n % 5);
        let (small, large) = (bench.env.random_bytes::<700>(), bench.env.random_bytes::<5000>());
        let version = format!("data/{n:04}");
        let mut files = vec![("latest", &small[..40]), (version.as_str(), &small[..])];
        if n % 4 == 1 {
            files.push(("large", &large));
        }
        bench.put(&unit, &files).await;
    }
}

pub async fn checkpoint(ledger: &Ledger, how: &Checkpointing) -> Seq {
    match ledger.checkpoint(how).await.expect("checkpoint") {
        Checkpoint::Done { seq, .. } => seq,
        other => unreachable!("{other:?}"),
    }
}

/// Takes over what others entered.
pub async fn sync(bench: &mut Bench) {
    bench.state = bench.ledger.head().await.expect("head").state;
    bench.read_at = bench.env.monotonic();
}

/// Removes every slot below the one given, whatever still needs it.
pub async fn cut_off(memory: &MemoryStore, below: Seq) {
    for seq in 0..below.0 {
        memory.delete(&log_key(Seq(seq))).await.expect("delete");
    }
}

fn packs_of(memory: &MemoryStore) -> usize {
    memory.keys().iter().filter(|key| key.starts_with("pack/")).count()
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_changes_where_things_are_and_nothing_else() {
    let mut bench = Bench::with(params()).await;
    busy(&mut bench, 30).await;
    let mut history = History::default();
    history.note(&bench).await;
    let before = bench.state.clone();
    let all = files(&bench.ledger, &before).await.expect("files");

    let seq = checkpoint(&bench.ledger, &forced()).await;
    assert_eq!(seq, before.seq.next());
    history.holds(&bench.memory).await;
    sync(&mut bench).await;
    let after = bench.state.clone();
    let counts = |state: &State| (state.root.units, state.root.files, state.root.bytes, state.root.setsum);
    assert_eq!(counts(&after), counts(&before));
    assert_eq!((after.root.minlog, after.root.tail), (seq, 0));
    let seqs = |rows: Vec<(peat_types::Unit, peat_ledger::UnitRow)>| -> Vec<_> {
        rows.into_iter().map(|(unit, row)| (unit, row.last_seq)).collect()
    };
    let (old, new) = (MapCache::default(), MapCache::default());
    assert_eq!(
        seqs(bench.ledger.directory(&before, &old).await.expect("directory")),
        seqs(bench.ledger.directory(&after, &new).await.expect("directory"))
    );

    // The state needs nothing below it, and life goes on.
    cut_off(&bench.memory, after.root.minlog).await;
    assert_eq!(files(&bench.ledger, &after).await.expect("files"), all);
    busy(&mut bench, 7).await;
    let again = checkpoint(&bench.ledger, &forced()).await;
    sync(&mut bench).await;
    cut_off(&bench.memory, again).await;
    let now = files(&bench.ledger, &bench.state).await.expect("files");
    assert_eq!(now.len(), usize::try_from(bench.state.root.files).expect("small"));
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_is_due_by_entries_or_bytes_and_idempotent() {
    let mut bench = Bench::with(params()).await;
    bench.put("model/a", &[("data/1", b"a")]).await;
    let how = Checkpointing { force: false, ..forced() };
    assert!(matches!(bench.ledger.checkpoint(&how).await.expect("looked"), Checkpoint::NotDue(_)));
    checkpoint(&bench.ledger, &forced()).await;
    let objects = bench.memory.keys();
    let again = bench.ledger.checkpoint(&forced()).await.expect("looked");
    assert!(matches!(again, Checkpoint::NotDue(Tail { bytes: 0, .. })), "{again:?}");
    assert_eq!(bench.memory.keys(), objects, "nothing was uploaded");

    sync(&mut bench).await;
    for n in 0..127_u64 {
        assert!(!Tail::of(&bench.state).is_due(), "{n}");
        bench.put("model/a", &[("data/1", format!("{n}").as_bytes())]).await;
    }
    assert!(Tail::of(&bench.state).is_due());
    let mark = bench.mark();
    checkpoint(&bench.ledger, &how).await;
    let used = bench.metered.meter().since(&mark);
    let (requests, bytes) = (used.total().requests, used.total().bytes_out);
    assert!(requests <= 128 + 8, "{requests} requests: {used}");
    assert!(bytes < 20_000, "{bytes} bytes sent");

    let mut large = Bench::with(Params { inline_file: 8 << 20, inline_tx: 8 << 20, ..Params::default() }).await;
    for n in 0..9 {
        assert!(!Tail::of(&large.state).is_due(), "{n}");
        let mut content = vec![0; 1 << 20];
        content.iter_mut().enumerate().for_each(|(i, byte)| *byte = blake3_byte(i as u64 * 7 + n));
        large.put("model/a", &[("data/1", &content)]).await;
        if n == 7 {
            break;
        }
    }
    assert!(Tail::of(&large.state).is_due(), "{:?}", Tail::of(&large.state));
}

/// Bytes that do not compress.
fn blake3_byte(n: u64) -> u8 {
    peat_types::Hash::of(&n.to_le_bytes()).as_bytes()[0]
}

#[tokio::test(start_paused = true)]
async fn metadata_stays_in_few_packs_and_each_page_is_rewritten_seldom() {
    let mut bench = Bench::with(params()).await;
    for n in 0..400 {
        bench.put(&format!("model/{n:03}"), &[("definition", format!("{n}").as_bytes())]).await;
    }
    let mut written = 0;
    let mut rounds = 0;
    let first = match bench.ledger.checkpoint(&forced()).await.expect("checkpoint") {
        Checkpoint::Done { pages, full, .. } => {
            assert!(full, "there is nothing older");
            pages
        }
        other => unreachable!("{other:?}"),
    };
    sync(&mut bench).await;
    let mut fulls = 0;
    for round in 0..24_u64 {
        for n in 0..12 {
            let unit = (round * 12 + n) * 7 % 400;
            bench.put(&format!("model/{unit:03}"), &[("data/1", format!("{round}").as_bytes())]).await;
        }
        let Checkpoint::Done { pages, full, .. } = bench.ledger.checkpoint(&forced()).await.expect("checkpoint") else {
            unreachable!("something to do")
        };
        (written, rounds, fulls) = (written + pages, rounds + 1, fulls + u32::from(full));
        sync(&mut bench).await;
        let rows = format::packs(&bench.state, &super::bench::RawPages(bench.memory.clone())).await.expect("packs");
        let generations = rows.iter().filter(|(dropped, _, _, row)| !dropped && row.metadata).count();
        assert!(generations <= 5, "{generations} metadata packs after round {round}");
        cut_off(&bench.memory, bench.state.root.minlog).await;
    }
    assert!((1..=8).contains(&fulls), "{fulls} full rewrites of {rounds}");
    assert!(written * 2 < rounds * first, "{written} bytes of pages in {rounds} rounds, the whole is {first}");
    let head = bench.ledger.head().await.expect("head").state;
    assert_eq!(files(&bench.ledger, &head).await.expect("files").len(), 400 + 288);
}

#[tokio::test(start_paused = true)]
async fn study_08_r3_a_transaction_planned_before_a_checkpoint_is_planned_again() {
    let mut bench = Bench::with(params()).await;
    busy(&mut bench, 12).await;
    let seq = checkpoint(&bench.peer(2).await.ledger, &forced()).await;
    let draft = bench.draft("model/1", &[("latest", b"new")]).await;
    let sent = bench.send(&draft).await;
    let Commit::Lost { passed, why: Dead::Gone } = sent else { unreachable!("{sent:?}") };
    assert_eq!(passed.iter().map(|entry| entry.state.seq).collect::<Vec<_>>(), [seq]);
    bench.pass(&passed);
    let entered = bench.put("model/1", &[("latest", b"new")]).await;
    assert_eq!(entered, seq.next());
    cut_off(&bench.memory, seq).await;
    assert_eq!(files(&bench.ledger, &bench.state).await.expect("files")[&("model/1".into(), "latest".into())], "new");
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_does_not_hold_up_units_that_nothing_was_moved_of() {
    let mut bench = Bench::with(params()).await;
    for n in 0..60 {
        bench.put(&format!("model/{n:02}"), &[("definition", &[n; 60]), ("latest", b"x")]).await;
    }
    checkpoint(&bench.ledger, &forced()).await;
    sync(&mut bench).await;
    bench.put("model/02", &[("latest", b"y")]).await;
    let drafts =
        [bench.draft("model/03", &[("latest", b"y")]).await, bench.draft("model/02", &[("latest", b"z")]).await];
    checkpoint(&bench.peer(3).await.ledger, &forced()).await;
    let sent = bench.send(&drafts[0]).await;
    assert!(matches!(sent, Commit::Committed { .. }), "{sent:?}");
    let sent = bench.send(&drafts[1]).await;
    assert!(matches!(sent, Commit::Lost { why: Dead::Gone, .. }), "{sent:?}");
}

/// The objects that a copy of a store has and the store itself has not.
async fn difference(copy: &MemoryStore, memory: &MemoryStore) -> Vec<(String, Bytes)> {
    let known = memory.keys();
    let mut out = Vec::new();
    for key in copy.keys().into_iter().filter(|key| !known.contains(key)) {
        out.push((key.clone(), copy.get(&key, Range::All).await.expect("get").expect("there").bytes));
    }
    out
}

/// Lets `others` happen just before the first entry of this bench is created.
fn before_create(bench: &Bench, others: Vec<(String, Bytes)>) {
    let memory = bench.memory.clone();
    let done = AtomicBool::new(false);
    bench.hooks.on_create(move |_| {
        if !done.swap(true, Ordering::Relaxed) {
            for (key, body) in &others {
                memory.create(key, body.clone()).now_or_never().expect("at once").expect("created");
            }
        }
        None
    });
}

#[tokio::test(start_paused = true)]
async fn c2_units_that_changed_meanwhile_keep_their_change() {
    for full in [false, true] {
        let mut bench = Bench::with(params()).await;
        busy(&mut bench, 20).await;
        checkpoint(&bench.ledger, &forced()).await;
        sync(&mut bench).await;
        busy(&mut bench, 6).await;
        let copy = bench.memory.fork();
        let mut peer = Bench::on(copy.clone(), params(), 5).await;
        // In a unit with much that moves, in one with nothing, in a new one; with rows kept, replaced and in packs.
        peer.put("model/1", &[("latest", b"meanwhile"), ("large", &[7; 9000])]).await;
        peer.put("model/9", &[("definition", b"new")]).await;
        let others = difference(&copy, &bench.memory).await;
        let expected = files(&peer.ledger, &peer.state).await.expect("files");

        before_create(&bench, others);
        let how = Checkpointing { full, ..forced() };
        let seq = checkpoint(&bench.ledger, &how).await;
        assert_eq!(seq, peer.state.seq.next());
        let head = bench.ledger.head().await.expect("head").state;
        assert!(head.root.minlog < seq && head.root.tail > 0);
        cut_off(&bench.memory, head.root.minlog).await;
        assert_eq!(files(&bench.ledger, &head).await.expect("files"), expected);
        assert_eq!(head.root.setsum, peer.state.root.setsum);
        sync(&mut bench).await;
        bench.hooks.calm();
        bench.put("model/9", &[("definition", b"newer")]).await;
        busy(&mut bench, 5).await;
        let next = checkpoint(&bench.ledger, &forced()).await;
        sync(&mut bench).await;
        cut_off(&bench.memory, next).await;
        files(&bench.ledger, &bench.state).await.expect("files");
        assert!(
            bench
                .ledger
                .verify(true)
                .await
                .expect("verified")
                .findings
                .iter()
                .all(|flaw| flaw.what.contains("missing although"))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn c3_of_two_checkpoints_at_once_one_is_void() {
    let mut bench = Bench::with(params()).await;
    busy(&mut bench, 20).await;
    let mut history = History::default();
    history.note(&bench).await;
    let copy = bench.memory.fork();
    let other = Bench::on(copy.clone(), params(), 5).await;
    checkpoint(&other.ledger, &forced()).await;
    before_create(&bench, difference(&copy, &bench.memory).await);
    let done = bench.ledger.checkpoint(&forced()).await.expect("looked");
    assert!(matches!(done, Checkpoint::NotDue(_)), "{done:?}");
    assert_eq!(bench.ledger.head().await.expect("head").state.seq, Seq(21));
    assert_eq!(packs_of(&bench.memory), packs_of(&copy) + 2, "what was uploaded in vain is in no table");
    history.holds(&bench.memory).await;
}

#[tokio::test(start_paused = true)]
async fn study_10_a_checkpoint_killed_at_any_request_costs_nothing() {
    let mut bench = Bench::with(params()).await;
    busy(&mut bench, 9).await;
    checkpoint(&bench.ledger, &forced()).await;
    sync(&mut bench).await;
    busy(&mut bench, 4).await;
    let mut history = History::default();
    history.note(&bench).await;
    let how = Checkpointing { patience: Duration::ZERO, ..forced() };
    let mut requests = 0;
    'all: for n in 1.. {
        for applied in [false, true] {
            let memory = bench.memory.fork();
            let dying = Dying::at(Arc::new(memory.clone()), n, applied);
            let killed: Result<Checkpoint> = handle(&bench, dying.clone()).checkpoint(&how).await;
            if dying.lives() {
                assert!(matches!(killed, Ok(Checkpoint::Done { .. })), "{killed:?}");
                break 'all;
            }
            assert!(!matches!(killed, Ok(Checkpoint::Done { .. })), "died at request {n}");
            history.holds(&memory).await;
            let next = handle(&bench, Arc::new(memory.clone()));
            match next.checkpoint(&forced()).await.expect("the next one") {
                // The entry had been made.
                Checkpoint::NotDue(_) => {}
                Checkpoint::Done { seq, .. } => assert_eq!(seq, bench.state.seq.next()),
                Checkpoint::Later(why) => unreachable!("{why}"),
            }
            history.holds(&memory).await;
            let head = state_at(&memory, bench.state.seq.next()).await.expect("one entry");
            assert_eq!(head.root.minlog, head.seq);
        }
        requests = n;
    }
    assert!(requests > 8, "{requests} requests: nothing was tried");
}
