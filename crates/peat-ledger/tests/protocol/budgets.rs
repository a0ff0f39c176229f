//! Requests and bytes of everyday operations.

use peat_ledger::{Follow, Ledger, State};
use peat_types::{Seq, Unit};

use super::bench::Bench;

fn unit(name: &str) -> Unit {
    name.parse().expect("unit")
}

async fn follow(bench: &mut Bench) -> usize {
    match bench.ledger.follow(&bench.state, false).await.expect("follow") {
        Follow::Unchanged => 0,
        Follow::Entries(entries) => {
            bench.pass(&entries);
            entries.len()
        }
        Follow::Jump(_) => unreachable!("not that far behind"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_poll_without_news_is_one_request() {
    let mut bench = Bench::new().await;
    let mark = bench.mark();
    assert_eq!(follow(&mut bench).await, 0);
    let (requests, bytes) = bench.used(&mark);
    assert!(requests == 1 && bytes < 1024, "{requests} requests, {bytes} bytes");

    // So is the one that also notices a bucket that was set back.
    let mark = bench.mark();
    assert!(matches!(bench.ledger.follow(&bench.state, true).await.expect("follow"), Follow::Unchanged));
    let (requests, bytes) = bench.used(&mark);
    assert!(requests == 1 && bytes < 1024, "{requests} requests, {bytes} bytes");
}

#[tokio::test(start_paused = true)]
async fn a_poll_after_one_commit_is_two_requests_and_after_a_run_three() {
    let mut bench = Bench::new().await;
    let mut peer = bench.peer(2).await;
    for commits in 1..=2 {
        let sizes = peer.mark();
        for n in 0..commits {
            peer.put("model/a", &[("data/1", format!("{commits} {n}").as_bytes())]).await;
        }
        let written = peer.metered.meter().since(&sizes).total().bytes_out;
        let mark = bench.mark();
        assert_eq!(follow(&mut bench).await, commits);
        let (requests, bytes) = bench.used(&mark);
        assert_eq!(requests, commits as u64 + 1);
        assert_eq!(bytes, written, "bytes in proportion to the entries");
    }
}

/// The seq of each of `units`, as seen in `state`.
async fn seen(ledger: &Ledger, state: &State, units: &[&str], bench: &Bench) -> Vec<(Unit, Option<Seq>)> {
    let mut out = Vec::new();
    for name in units {
        let row = ledger.unit(state, &unit(name), &bench.cache).await.expect("unit");
        out.push((unit(name), row.map(|row| row.last_seq)));
    }
    out
}

#[tokio::test(start_paused = true)]
async fn a_scoped_pull_after_one_run_is_three_requests() {
    let mut bench = Bench::new().await;
    bench.put("model/a", &[("definition", b"a"), ("data/1", &[1; 3000])]).await;
    let asked = seen(&bench.ledger, &bench.state, &["model/a"], &bench).await;
    let mut peer = bench.peer(2).await;
    peer.put("model/a", &[("leases/a", b"held")]).await;
    peer.put("model/a", &[("leases/a", b"free"), ("data/2", &[2; 3000])]).await;

    let mark = bench.mark();
    let scoped = bench.ledger.scoped(&bench.state, false, &asked, &bench.cache).await.expect("scoped");
    let [(_, Some(row))] = &scoped.units[..] else { unreachable!("one unit changed") };
    let table = bench.ledger.tables(&[row], &bench.cache).await.expect("table").remove(0);
    assert_eq!(table.len(), 4);
    let fresh: Vec<_> = table.iter().filter(|(_, path, _)| path.as_str() == "data/2").map(|(_, _, row)| row).collect();
    let contents = bench.ledger.contents(&fresh, &scoped.entries).await.expect("contents");
    assert_eq!(&contents[0][..], &[2; 3000]);
    let (requests, _) = bench.used(&mark);
    assert!(requests <= 3, "{requests} requests with table and new content");
    assert!(scoped.complete, "and the next commit can build on it");
}

async fn others(peer: &mut Bench, entries: usize) {
    for n in 0..entries {
        let name = format!("model/other-{}", n % 40);
        peer.put(&name, &[("data/1", format!("{n} {}", "x".repeat(400)).as_bytes())]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_scoped_pull_with_500_entries_of_others_is_three_requests_and_64_kb() {
    let mut bench = Bench::new().await;
    bench.put("model/a", &[("data/1", b"a")]).await;
    bench.put("model/b", &[("data/1", b"b")]).await;
    let asked = seen(&bench.ledger, &bench.state, &["model/a", "model/b"], &bench).await;
    let mut peer = bench.peer(2).await;
    others(&mut peer, 250).await;
    peer.put("model/b", &[("data/2", b"b")]).await;
    others(&mut peer, 249).await;

    for list in [false, true] {
        let mark = bench.mark();
        let scoped = bench.ledger.scoped(&bench.state, list, &asked[..1], &bench.cache).await.expect("scoped");
        assert_eq!(scoped.state.seq, peer.state.seq);
        assert!(scoped.units.is_empty(), "nothing of it changed");
        let (requests, bytes) = bench.used(&mark);
        assert!(requests <= 3 && bytes < 64 << 10, "{requests} requests, {bytes} bytes");
    }

    // The ring leads to the one entry that changed the other.
    let mark = bench.mark();
    let scoped = bench.ledger.scoped(&bench.state, false, &asked, &bench.cache).await.expect("scoped");
    let [(changed, Some(row))] = &scoped.units[..] else { unreachable!("one unit changed") };
    assert_eq!((changed.as_str(), row.last_seq), ("model/b", Seq(2 + 251)));
    assert_eq!(bench.ledger.tables(&[row], &bench.cache).await.expect("table")[0].len(), 2);
    let (requests, _) = bench.used(&mark);
    assert!(requests <= 4, "{requests} requests with the table");
}

#[tokio::test(start_paused = true)]
async fn a_scoped_pull_out_of_the_ring_is_six_requests() {
    let mut bench = Bench::new().await;
    bench.put("model/a", &[("data/1", b"a")]).await;
    bench.put("model/b", &[("data/1", b"b")]).await;
    let asked = seen(&bench.ledger, &bench.state, &["model/a", "model/b"], &bench).await;
    let mut peer = bench.peer(2).await;
    peer.put("model/b", &[("data/2", b"b")]).await;
    others(&mut peer, 520).await;

    let stale = super::bench::MapCache::default();
    let mark = bench.mark();
    let scoped = bench.ledger.scoped(&bench.state, false, &asked, &stale).await.expect("scoped");
    let [(changed, Some(row))] = &scoped.units[..] else { unreachable!("one unit changed") };
    assert_eq!((changed.as_str(), row.last_seq), ("model/b", Seq(3)));
    assert_eq!(bench.ledger.tables(&[row], &stale).await.expect("table")[0].len(), 2);
    let (requests, _) = bench.used(&mark);
    assert!(requests <= 6, "{requests} requests with the table");
}

#[tokio::test(start_paused = true)]
async fn a_quiet_commit_is_one_put() {
    let mut bench = Bench::new().await;
    bench.put("model/a", &[("data/1", b"a")]).await;
    for n in 0..40 {
        bench.put(&format!("model/{n}"), &[("data/1", b"x")]).await;
    }
    let draft = bench.draft("model/a", &[("data/2", &[2; 5000])]).await;
    let mark = bench.mark();
    assert!(matches!(bench.send(&draft).await, peat_ledger::Commit::Committed { .. }));
    let (requests, bytes) = bench.used(&mark);
    assert_eq!((requests, bytes), (1, 0), "{}", bench.metered.meter().since(&mark));
}

#[tokio::test(start_paused = true)]
async fn another_entry_in_between_costs_two_more_requests() {
    let mut bench = Bench::new().await;
    bench.put("model/a", &[("data/1", b"a")]).await;
    let mut peer = bench.peer(2).await;
    let draft = bench.draft("model/a", &[("data/2", b"a")]).await;
    peer.put("model/b", &[("data/1", b"b")]).await;
    let mark = bench.mark();
    let peat_ledger::Commit::Committed { passed, entry } = bench.send(&draft).await else {
        unreachable!("committed in the end")
    };
    assert_eq!((passed.len(), entry.state.seq), (1, Seq(3)));
    let (requests, _) = bench.used(&mark);
    assert_eq!(requests, 3, "{}", bench.metered.meter().since(&mark));
}

#[tokio::test(start_paused = true)]
async fn a_follower_far_behind_reads_in_windows_or_jumps() {
    let mut bench = Bench::new().await;
    let mut peer = bench.peer(2).await;
    others(&mut peer, 30).await;
    let mark = bench.mark();
    assert_eq!(follow(&mut bench).await, 30);
    let (requests, _) = bench.used(&mark);
    assert_eq!(requests, 31, "17 in windows, one LIST, 13 exactly");

    others(&mut peer, 513).await;
    let mark = bench.mark();
    let followed = bench.ledger.follow(&bench.state, true).await.expect("follow");
    assert!(matches!(&followed, Follow::Jump(state) if **state == peer.state), "{followed:?}");
    assert!(bench.used(&mark).0 <= 3);
}
