//! What is on this machine: folder, index, journal, doctor.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::path::Path;
use std::time::Duration;

use common::{
    Opening, TestPlanner, World, change_append, change_bytes, change_end, change_put, noise, options, path, unit,
};
use peat_clone::{
    Aside, Durability, Event, Hydration, LocalClone, LogPage, LogQuery, NewChange, NewNamespace, PendingStatus,
    Reporter, Scope,
};
use peat_objects::{Fault, FileStore, Op};
use peat_types::{Kind, Seq};
use serde_json::json;
use std::sync::Arc;

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_index_is_disposable_and_the_journal_is_not() {
    let world = World::new(1);
    let a = world.open("a").await;
    a.clone.commit(change_bytes("model/x", "data/1", noise(1, 3000))).await.unwrap();
    a.pull().await;
    a.faults.script_times(Op::Create, |_| true, 1, 100_000, Fault::Status(503));
    let mut change = change_append("model/x", "kept");
    change.patience = Duration::from_secs(1);
    a.clone.commit(change).await.unwrap_err();
    let facts = a.facts();
    drop(a);
    let db = world.dir("a").join("state.db");
    let spoil: [fn(&Path); 5] = [
        |db| std::fs::remove_file(db).unwrap(),
        |db| std::fs::write(db, noise(3, 9000)).unwrap(),
        |db| std::fs::write(db, b"").unwrap(),
        // Another version wrote it.
        |db| {
            let bytes = std::fs::read(db).unwrap();
            let mut other = bytes.clone();
            other[60..64].copy_from_slice(&77_u32.to_be_bytes());
            std::fs::write(db, other).unwrap();
        },
        |db| std::fs::write(db.with_extension("bad"), b"").unwrap(),
    ];
    for (n, spoil) in spoil.into_iter().enumerate() {
        // A log of another file lies beside, too.
        spoil(&db);
        let a = world.open("a").await;
        assert_eq!(a.clone.position().unwrap(), None, "{n}");
        assert_eq!(a.clone.pending().unwrap().len(), 1);
        a.pull().await;
        assert_eq!(a.facts(), facts, "{n}");
        assert_eq!(std::fs::read(a.clone.tree().join("data/1")).unwrap(), noise(1, 3000));
        drop(a);
    }
    let a = world.open("a").await;
    assert_eq!(a.clone.settle().await.unwrap().committed.len(), 1);
    let left: Vec<_> = std::fs::read_dir(world.dir("a")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().contains("new-")), "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn first_openings_at_once_wait_for_one_another() {
    let world = World::new(2);
    world.open("seed").await.put("model/x", "data/1", "1").await;
    let machines = futures::future::join_all((0..8).map(|_| world.try_open("shared", Opening::default()))).await;
    let ids: std::collections::BTreeSet<_> = machines.iter().map(|m| m.as_ref().unwrap().clone.id()).collect();
    assert_eq!(ids.len(), 1);
    let pulls = machines.iter().map(|m| m.as_ref().unwrap().clone.pull(&Scope::All));
    for pulled in futures::future::join_all(pulls).await {
        pulled.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_copied_folder_is_another_clone() {
    let world = World::new(3);
    let a = world.open("a").await;
    a.pull().await;
    let run = a.begin("model/x").await.unwrap();
    a.killer.arm("commit.planned", 1);
    assert!(a.killer.run(a.begin("model/y")).await.is_none());
    copy(&world.dir("a"), &world.dir("copy"));
    let b = world.open("copy").await;
    assert_ne!(a.clone.id(), b.clone.id());
    // The original's run lives, and its start is the original's to resolve.
    b.clone.settle().await.unwrap();
    assert!(b.clone.pending().unwrap().is_empty());
    b.pull().await;
    assert!(b.clone.leases().unwrap()[0].lease.held);
    run.end(change_end("model/x")).await.unwrap();
    let id = b.clone.id();
    drop(b);
    assert_eq!(world.open("copy").await.clone.id(), id);
    // Moved within a file system, it stays the same.
    let id = a.clone.id();
    drop((run, a));
    std::fs::rename(world.dir("a"), world.dir("moved")).unwrap();
    assert_eq!(world.open("moved").await.clone.id(), id);
}

/// Both copies of a folder have the same pending change: it still comes once.
#[tokio::test(start_paused = true)]
async fn a3_copies_of_a_pending_change_are_one_change() {
    let world = World::new(4);
    let a = world.open("a").await;
    a.pull().await;
    a.killer.arm("commit.planned", 1);
    assert!(a.killer.run(a.clone.commit(change_append("model/x", "1"))).await.is_none());
    drop(a);
    copy(&world.dir("a"), &world.dir("copy"));
    let (a, b) = (world.open("a").await, world.open("copy").await);
    let (one, two) = tokio::join!(a.clone.settle(), b.clone.settle());
    assert_eq!((one.unwrap().committed.len(), two.unwrap().committed.len()), (1, 1));
    a.pull().await;
    assert_eq!(a.paths("model/x").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn another_store_or_namespace_needs_another_folder() {
    let world = World::new(5);
    let a = world.open("a").await;
    drop(a);
    let open = |url: &str, namespace: &str| {
        let mut options =
            options(Arc::new(world.memory.clone()), &world.dir("a"), "a", Hydration::Full, Durability::Process);
        options.url = url.to_owned();
        options.namespace = namespace.parse().unwrap();
        LocalClone::open(options, world.env.clone(), Arc::new(TestPlanner))
    };
    for (url, namespace) in [("memory:other", "default"), ("memory:test", "other")] {
        assert_eq!(open(url, namespace).await.unwrap_err().kind(), Kind::Invalid);
    }
    open("memory:test", "default").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn opening_what_is_not_there_says_so() {
    let world = World::new(6);
    let options = options(Arc::new(world.memory.clone()), &world.dir("a"), "a", Hydration::Full, Durability::Process);
    let error = LocalClone::open(options, world.env.clone(), Arc::new(TestPlanner)).await.unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound);
    assert!(world.memory.keys().is_empty());
}

/// Nothing that is only here goes; what was done stays done.
#[tokio::test(start_paused = true)]
async fn a_repair_does_what_the_doctor_showed_and_nothing_the_second_time() {
    let world = World::new(12);
    let a = world.open("a").await;
    for n in 1..=3 {
        a.clone.commit(change_bytes("model/x", &format!("data/{n}"), noise(n, 3000))).await.unwrap();
    }
    a.pull().await;
    let tree = a.clone.tree();
    std::fs::remove_file(tree.join("data/1")).unwrap();
    std::fs::write(tree.join("data/2"), noise(9, 3000)).unwrap();
    // A folder of somebody's own where an item belongs, and a file beside.
    std::fs::remove_file(tree.join("data/3")).unwrap();
    std::fs::create_dir(tree.join("data/3")).unwrap();
    std::fs::write(tree.join("data/3/mine"), "mine").unwrap();
    std::fs::write(tree.join("data/foreign"), "mine too").unwrap();
    drop(a.begin("model/z").await.unwrap());
    let of = |findings: &[peat_clone::Finding], check: &str| {
        findings.iter().find(|finding| finding.check == check).unwrap().clone()
    };
    let quick = of(&a.clone.doctor().await.unwrap(), "tree");
    assert!(!quick.message.contains("data/2"), "same size: {quick:?}");
    let findings = a.clone.examine().await.unwrap();
    let shown = of(&findings, "tree");
    assert!(shown.message.contains("data/2"), "{shown:?}");
    assert_eq!(
        shown.repair.unwrap().to_string(),
        "write 1 file again, put 2 files aside and write again what the datastore holds, move 2 files out of the tree"
    );
    // Put right by somebody else meanwhile: left alone.
    std::fs::write(tree.join("data/1"), noise(1, 3000)).unwrap();
    let done = a.clone.repair(&findings).await.unwrap();
    assert_eq!(done.len(), 3, "{done:?}");
    assert!(done[1].starts_with("wrote 2 files again"), "{done:?}");
    for n in 1..=3 {
        assert_eq!(std::fs::read(tree.join(format!("data/{n}"))).unwrap(), noise(n, 3000), "{n}");
    }
    let aside = world.dir("a").join("aside");
    let kept = |path: &str| {
        let folders = std::fs::read_dir(&aside).unwrap().map(|folder| folder.unwrap().path().join(path));
        folders.filter_map(|file| std::fs::read(file).ok()).collect::<Vec<_>>()
    };
    assert_eq!(kept("data/3/mine"), [b"mine"]);
    assert_eq!(kept("data/foreign"), [b"mine too"]);
    assert_eq!(kept("data/2"), [noise(9, 3000)], "what was altered by hand is put aside, too");
    let again = a.clone.examine().await.unwrap();
    assert!(again.iter().all(|finding| finding.passed), "{again:?}");
    assert!(a.clone.repair(&again).await.unwrap().is_empty());
    assert!(a.clone.repair(&findings).await.unwrap().is_empty(), "old evidence moves nothing");
}

/// No request from the second opening on.
#[tokio::test(start_paused = true)]
async fn opening_makes_no_request() {
    let world = World::new(7);
    world.open("seed").await;
    world.open("a").await;
    let a = world.open("a").await;
    assert_eq!(a.meter.snapshot().total().requests, 0);
}

#[tokio::test(start_paused = true)]
async fn the_doctor_finds_what_is_wrong() {
    let world = World::new(8);
    let a = world.open("a").await;
    a.clone.commit(change_bytes("model/x", "data/1", noise(1, 3000))).await.unwrap();
    a.clone.commit(change_bytes("model/x", "data/2", noise(2, 3000))).await.unwrap();
    a.pull().await;
    let (findings, requests) = a.counted(a.clone.doctor()).await;
    let findings = findings.unwrap();
    assert!(findings.iter().all(|finding| finding.passed && finding.hint.is_none()), "{findings:?}");
    assert!(requests.total() <= 1, "{requests}");
    std::fs::remove_file(a.clone.tree().join("data/1")).unwrap();
    std::fs::write(a.clone.tree().join("data/2"), "short").unwrap();
    std::fs::write(a.clone.tree().join("data/foreign"), "mine").unwrap();
    a.clone.commit(change_put("model/y", "data/2", "also mine")).await.unwrap();
    a.clone.commit(NewChange::new("refuse", vec![unit("model/x")], json!({}))).await.unwrap_err();
    std::fs::write(world.dir("a").join("journal/00112233445566778899aabbccddeeff.change"), "half").unwrap();
    drop(a.begin("model/z").await.unwrap());
    let findings = a.clone.doctor().await.unwrap();
    let failed: Vec<_> = findings.iter().filter(|finding| !finding.passed).map(|finding| finding.check).collect();
    assert_eq!(failed, ["journal", "tree", "paths", "leases"], "{findings:?}");
    let tree = findings.iter().find(|finding| finding.check == "tree").unwrap();
    for part in ["missing: data/1", "foreign: data/foreign"] {
        assert!(tree.message.contains(part), "{tree:?}");
    }
    // Reading repairs.
    for at in ["data/1", "data/2"] {
        let item = a.clone.item(&unit("model/x"), &path(at)).unwrap().unwrap();
        assert_eq!(a.clone.content(&item).await.unwrap().len(), 3000);
    }
    assert!(a.clone.tree().join("data/1").exists());
}

#[tokio::test(start_paused = true)]
async fn a_damaged_row_is_shown_and_never_sent() {
    let world = World::new(9);
    let a = world.open("a").await;
    a.pull().await;
    a.killer.arm("journal.added", 1);
    let mut change = change_append("model/x", "1");
    change.contents = vec![noise(1, 100).into()];
    assert!(a.killer.run(a.clone.commit(change)).await.is_none());
    let row = std::fs::read_dir(world.dir("a").join("journal"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|extension| extension == "change"))
        .unwrap();
    let whole = std::fs::read(&row).unwrap();
    for at in (0..whole.len()).step_by(7) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        std::fs::write(&row, &bytes).unwrap();
        let rows = a.clone.pending().unwrap();
        assert_eq!((rows[0].status, rows[0].kind.as_str()), (PendingStatus::Parked, "unreadable"), "byte {at}");
        std::fs::write(&row, &bytes[..at]).unwrap();
        assert_eq!(a.clone.pending().unwrap()[0].status, PendingStatus::Parked);
    }
    assert!(a.clone.settle().await.unwrap().committed.is_empty());
    assert!(row.exists());
    std::fs::write(&row, &whole).unwrap();
    assert_eq!(a.clone.settle().await.unwrap().committed.len(), 1);
}

/// With everything synced, on a store of files, by two machines.
#[tokio::test]
async fn on_files_with_every_sync() {
    let world = World::new(10);
    let bucket = tempfile::tempdir().unwrap();
    let open = async |name: &str| {
        let store = FileStore::new(bucket.path(), peat_objects::Durability::Full, &world.env);
        let options = options(Arc::new(store), &world.dir(name), name, Hydration::Full, Durability::Synced);
        LocalClone::create(options, world.env.clone(), Arc::new(TestPlanner), NewNamespace::default()).await.unwrap()
    };
    let (a, b) = (open("a").await, open("b").await);
    a.commit(change_bytes("model/x", "data/big", noise(1, 300_000))).await.unwrap();
    let run = b.begin(common::new_run("model/x", Duration::ZERO)).await.unwrap();
    run.end(change_end("model/x")).await.unwrap();
    a.pull(&Scope::All).await.unwrap();
    b.pull(&Scope::All).await.unwrap();
    let names = |clone: &LocalClone| clone.items(&unit("model/x"), "").unwrap();
    assert_eq!(names(&a), names(&b));
    assert_eq!(names(&a).len(), 4);
    assert!(a.verify(true).await.unwrap().findings.is_empty());
    let other = open("c").await;
    assert_eq!(other.info().owner, "repo");
}

#[tokio::test(start_paused = true)]
async fn the_log_of_this_machine_needs_no_store() {
    let world = World::new(17);
    let (a, b) = (world.open("a").await, world.open("b").await);
    for n in 0..4 {
        a.put(&format!("model/{n}"), "one", "1").await;
    }
    b.pull().await;
    for n in 0..4 {
        a.put(&format!("model/{n}"), "one", "2").await;
    }
    b.pull().await;
    b.begin("model/1").await.unwrap().end(change_end("model/1")).await.unwrap();
    let query = LogQuery::default();
    let seqs = |page: &LogPage| page.lines.iter().map(|line| line.seq.0).collect::<Vec<_>>();
    let (here, requests) = b.counted(async { b.clone.log_here(&query).unwrap() }).await;
    assert_eq!(requests.total(), 0);
    // The first pull took a state over; what it read entry by entry is here, as in the store.
    assert_eq!((seqs(&here), here.first), (vec![10, 9, 8, 7, 6, 5], Seq(5)));
    let store = b.clone.log(&query).await.unwrap();
    for (mine, its) in here.lines.iter().zip(&store.lines) {
        assert_eq!((&mine.txs, mine.time, mine.size), (&its.txs, its.time, its.size));
    }
    let of_unit = LogQuery { unit: Some(unit("model/1")), count: Some(2), ..LogQuery::default() };
    let page = b.clone.log_here(&of_unit).unwrap();
    assert_eq!((seqs(&page), page.more), (vec![10, 9], true));
    assert_eq!(seqs(&b.clone.log_here(&LogQuery { from: Some(Seq(8)), ..LogQuery::default() }).unwrap()), [10, 9, 8]);
    // A clone that looks at one unit only has holes.
    a.clone.pull(&Scope::Units(vec![unit("model/1")])).await.unwrap();
    assert!(seqs(&a.clone.log_here(&query).unwrap()).len() >= 8);
}

/// Hears what gave way in the tree, and to what.
#[derive(Default)]
struct Heard(std::sync::Mutex<Vec<Aside>>);

impl Reporter for Heard {
    fn report(&self, event: Event<'_>) {
        if let Event::PutAside { why, .. } = event {
            self.0.lock().unwrap().push(why);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_had_to_give_way_is_told_with_the_reason_and_kept() {
    let world = World::new(62);
    let heard = Arc::new(Heard::default());
    let (a, b) = (world.open("a").await, world.open_heard("b", heard.clone()).await);
    a.clone.commit(change_bytes("model/x", "data/1", noise(1, 500))).await.unwrap();
    b.pull().await;
    assert_eq!(b.clone.kept_aside(), None);
    let file = |name: &str| b.clone.tree().join(name);
    std::fs::write(file("data/1"), "mine").unwrap();
    let item = b.clone.item(&unit("model/x"), &path("data/1")).unwrap().unwrap();
    b.clone.content(&item).await.unwrap();
    std::fs::write(file("data/1"), "mine again").unwrap();
    std::fs::write(file("data/2"), "mine, too").unwrap();
    a.clone.commit(change_bytes("model/x", "data/1", noise(2, 500))).await.unwrap();
    a.clone.commit(change_bytes("model/x", "data/2", noise(3, 500))).await.unwrap();
    b.pull().await;
    let mut why = std::mem::take(&mut *heard.0.lock().unwrap());
    why.sort_by_key(|why| format!("{why:?}"));
    assert_eq!(why, [Aside::Changed, Aside::Unknown, Aside::Wanted]);
    let kept: Vec<_> =
        b.clone.take_aside().into_iter().map(|(_, kept)| std::fs::read_to_string(kept).unwrap()).collect();
    assert_eq!(kept.len(), 3);
    assert!(kept.iter().all(|text| text.starts_with("mine")));
    assert!(b.clone.kept_aside().unwrap().is_dir());
}

/// What stands where a folder of an item has to be, be it a file or a link, gives way; a link is never followed out of the tree,
/// neither to write nor to remove.
#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn what_stands_in_the_place_of_a_folder_gives_way_and_links_are_not_followed() {
    use std::os::unix::fs::symlink;
    for hydration in [Hydration::Full, Hydration::Lazy] {
        let world = World::new(31);
        let a = world.open("a").await;
        for at in ["data/kept/raw", "data/gone/raw"] {
            a.put("model/x", at, at).await;
        }
        let b = world.open_with("b", Opening { hydration, ..Opening::default() }).await;
        b.pull().await;
        for at in ["data/kept/raw", "data/gone/raw"] {
            assert_eq!(b.text("model/x", at).await.as_deref(), Some(at));
        }
        let (tree, outside) = (b.clone.tree(), world.dir("outside"));
        for name in ["linked", "gone"] {
            std::fs::create_dir_all(outside.join(name)).unwrap();
            std::fs::write(outside.join(name).join("raw"), "data/gone/raw").unwrap();
        }
        std::fs::create_dir_all(tree.join("data")).unwrap();
        std::fs::write(tree.join("data/notes"), "mine").unwrap();
        symlink(outside.join("linked"), tree.join("data/linked")).unwrap();
        std::fs::remove_dir_all(tree.join("data/gone")).unwrap();
        symlink(outside.join("gone"), tree.join("data/gone")).unwrap();
        std::fs::remove_file(tree.join("data/kept/raw")).unwrap();
        symlink(outside.join("linked/raw"), tree.join("data/kept/raw")).unwrap();
        for at in ["data/notes/raw", "data/linked/raw"] {
            a.put("model/x", at, at).await;
        }
        a.clone
            .commit(NewChange::new("delete", vec![unit("model/x")], json!({ "path": "data/gone/raw" })))
            .await
            .unwrap();
        b.pull().await;
        for at in ["data/notes/raw", "data/linked/raw", "data/kept/raw"] {
            assert_eq!(b.text("model/x", at).await.as_deref(), Some(at), "{hydration:?}");
            let file = b.clone.file(&b.clone.item(&unit("model/x"), &path(at)).unwrap().unwrap()).await.unwrap();
            assert!(std::fs::symlink_metadata(&file).unwrap().is_file(), "{hydration:?} {at}");
            assert_eq!(b.file(at).as_deref(), Some(at));
        }
        for name in ["linked", "gone"] {
            assert_eq!(std::fs::read(outside.join(name).join("raw")).unwrap(), b"data/gone/raw", "{hydration:?}");
        }
        let mut aside: Vec<String> = b.clone.take_aside().into_iter().map(|(name, _)| name).collect();
        aside.sort();
        assert_eq!(aside, ["data/kept/raw", "data/linked", "data/notes"], "{hydration:?}");
    }
}

/// A repair that takes a link away brings what was seen behind it: nobody removed that.
#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn a_repair_that_takes_a_link_away_brings_what_was_behind_it() {
    let world = World::new(32);
    let a = world.open("a").await;
    a.put("model/x", "data/log/1/raw", "one").await;
    let (tree, outside) = (a.clone.tree(), world.dir("outside"));
    std::fs::rename(tree.join("data/log"), &outside).unwrap();
    std::os::unix::fs::symlink(&outside, tree.join("data/log")).unwrap();
    let findings = a.clone.examine().await.unwrap();
    a.clone.repair(&findings).await.unwrap();
    let by_hand = a.clone.by_hand().unwrap();
    assert!(by_hand.missing.is_empty() && by_hand.changed.is_empty(), "{by_hand:?}");
    assert!(std::fs::symlink_metadata(tree.join("data/log")).unwrap().is_dir());
    assert_eq!(a.file("data/log/1/raw").as_deref(), Some("one"));
    assert_eq!(std::fs::read(outside.join("1/raw")).unwrap(), b"one");
}

#[tokio::test(start_paused = true)]
async fn the_doctor_of_a_lazy_clone_says_how_much_of_the_tree_is_here() {
    let world = World::new(33);
    let a = world.open("a").await;
    for at in ["data/1", "data/2", "data/3"] {
        a.clone.commit(change_bytes("model/x", at, noise(1, 3000))).await.unwrap();
    }
    let b = world.open_with("b", Opening { hydration: Hydration::Lazy, ..Opening::default() }).await;
    b.pull().await;
    let tree = async || {
        let findings = b.clone.examine().await.unwrap();
        findings.into_iter().find(|finding| finding.check == "tree").unwrap()
    };
    std::fs::remove_dir_all(b.clone.tree().join("data")).ok();
    let said = tree().await;
    assert!(said.passed, "{said:?}");
    assert_eq!(said.message, "0 files are in place; 3 more files are fetched when somebody reads them");
    b.clone.content(&b.clone.item(&unit("model/x"), &path("data/2")).unwrap().unwrap()).await.unwrap();
    let said = tree().await;
    assert_eq!(said.message, "1 file is in place; 2 more files are fetched when somebody reads them");
}
