//! Those of the fifteen nasty scenarios that no other file has a test of. `docs/design/008-simulation.md` lists them all.

use bytes::Bytes;
use peat_ledger::{Checkpointing, Commit, Dead, DraftUnit, NewContent, Op, Rank};

use super::bench::Bench;
use super::checkpoint::{checkpoint, forced, params};
use super::help::{self, commits, newcomer, stage};
use super::history::files;

#[tokio::test(start_paused = true)]
async fn study_02_a_peer_helped_while_the_reply_was_lost() {
    let mut bench = help::bench().await;
    let draft = bench.draft("model/a", &[("data/2", b"mine")]).await;
    // Staged by a process that never heard more of it; a peer takes it along.
    stage(&bench, &draft, None).await;
    let mut peer = newcomer(&bench, 3).await;
    let carried = commits(&mut peer, "model/p").await;
    assert!(carried.contains(&draft.tx), "the peer helped");
    let Commit::Committed { passed, entry } = bench.send(&draft).await else { unreachable!("it is there") };
    let head = bench.ledger.head().await.expect("head");
    assert_eq!(entry.state, head.state, "the stored entry is adopted, the peer's transaction with it");
    assert_eq!(entry.txs.iter().map(|tx| tx.tx).collect::<Vec<_>>(), carried);
    bench.pass(&passed);
    bench.pass(&[*entry]);
    bench.put("model/a", &[("data/3", b"next")]).await;
    let all = files(&bench.ledger, &bench.state).await.expect("files");
    let text = |unit: &str, path: &str| all.get(&(unit.to_owned(), path.to_owned())).cloned();
    assert_eq!(text("model/p", "data/n"), Some(Bytes::from("n")), "what the peer did is built upon");
    assert_eq!(text("model/a", "data/2"), Some(Bytes::from("mine")));
}

#[tokio::test(start_paused = true)]
async fn study_08_r3_a_reference_to_a_pack_that_was_dropped_is_refused() {
    let mut bench = Bench::with(params()).await;
    let large = bench.env.random_bytes::<9000>();
    bench.put("model/1", &[("large", &large)]).await;
    bench.put("model/1", &[("other", &bench.env.random_bytes::<9000>())]).await;
    let row = bench.ledger.unit(&bench.state, &"model/1".parse().expect("unit"), &bench.cache).await.expect("unit");
    let table = bench.ledger.tables(&[&row.expect("there")], &bench.cache).await.expect("table").remove(0);
    let known = table.into_iter().find(|(_, path, _)| path.as_str() == "large").expect("there").2;
    // Compaction drops both small packs; then somebody who knows them of before points into one (A11).
    checkpoint(&bench.peer(2).await.ledger, &Checkpointing { full: true, ..forced() }).await;
    let put = |content| Op::Put {
        path: "copy".parse().expect("path"),
        rank: Rank::Current,
        old: None,
        executable: false,
        content,
    };
    let mut draft = bench.draft("model/2", &[]).await;
    let unit = draft.units[0].clone();
    draft.units = vec![DraftUnit { ops: vec![put(NewContent::Known(known))], ..unit.clone() }];
    let Commit::Lost { passed, why: Dead::Gone } = bench.send(&draft).await else { unreachable!("dropped") };
    bench.pass(&passed);
    let mut again = bench.draft("model/2", &[]).await;
    again.units = vec![DraftUnit { ops: vec![put(NewContent::Bytes(Bytes::copy_from_slice(&large)))], ..unit }];
    assert!(matches!(bench.send(&again).await, Commit::Committed { .. }));
}
