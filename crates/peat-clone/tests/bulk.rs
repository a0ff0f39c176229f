//! Large changes and large contents, from files to another machine.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

mod common;

use std::time::Duration;

use common::{Opening, World, change_many, change_put, noise, path, unit};
use peat_clone::{Hydration, NewChange, Params, PendingStatus, Scope, Source};
use peat_objects::{Fault, Op, Range, Store};
use peat_types::{Kind, Unit};

/// Small limits, so that packs and parts are common.
fn world(seed: u64) -> World {
    let mut world = World::new(seed);
    world.params = Params {
        inline_file: 8 << 10,
        inline_tx: 32 << 10,
        part: 64 << 10,
        pack_target: 96 << 10,
        ..Params::default()
    };
    world
}

fn units(count: usize) -> Vec<Unit> {
    (0..count).map(|n| unit(&format!("model/{n:02}"))).collect()
}

/// `count` files of some 1,500 bytes on disk.
fn on_disk(world: &World, count: u64) -> Vec<(String, Source)> {
    let dir = world.dir("source");
    std::fs::create_dir_all(&dir).unwrap();
    let file = |n: u64| {
        let at = dir.join(n.to_string());
        std::fs::write(&at, noise(n, 1000 + usize::try_from(n * 7 % 1000).unwrap())).unwrap();
        (format!("data/{n:04}"), Source::File(at))
    };
    (0..count).map(file).collect()
}

fn expected(n: u64) -> bytes::Bytes {
    noise(n, 1000 + usize::try_from(n * 7 % 1000).unwrap())
}

#[tokio::test(start_paused = true)]
async fn many_files_are_one_entry_and_what_they_were_when_they_were_named() {
    let world = world(1);
    let (a, b) = (world.open("a").await, world.open("b").await);
    let change = change_many(&units(20), on_disk(&world, 600));
    // Killed as soon as it is journalled: from then on nobody asks what the files hold.
    a.killer.arm("journal.added", 1);
    assert!(a.killer.run(a.clone.commit(change)).await.is_none());
    std::fs::remove_dir_all(world.dir("source")).unwrap();
    drop(a);
    let a = world.open("a").await;
    let (settled, requests) = a.counted(a.clone.settle()).await;
    let committed = settled.unwrap().committed;
    assert_eq!((committed.len(), committed[0].items.len()), (1, 600));
    assert_eq!(requests.of(Op::Create), 1, "{requests}");
    let packs = requests.of(Op::Put);
    assert!((7..=9).contains(&packs), "900 KB in packs of 96 KiB: {requests}");
    assert!(requests.count().bytes_in < 1000, "what it brought is shown from the journal: {requests}");
    b.pull().await;
    assert_eq!(a.facts(), b.facts());
    for n in 0..600 {
        let at = format!("model/{:02}/data/{n:04}", n % 20);
        assert_eq!(std::fs::read(a.clone.tree().join(&at)).unwrap(), expected(n), "{at}");
        assert_eq!(std::fs::read(b.clone.tree().join(&at)).unwrap(), expected(n), "{at}");
    }
    assert!(a.clone.verify(true).await.unwrap().findings.is_empty());
    assert_eq!(std::fs::read_dir(world.dir("a").join("journal")).unwrap().count(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_a_killed_process_uploaded_is_not_uploaded_again() {
    for nth in [1, 3] {
        let world = world(2);
        let a = world.open("a").await;
        let change = change_many(&units(5), on_disk(&world, 300));
        a.killer.arm("commit.pack", nth);
        let (done, requests) = a.counted(a.killer.run(a.clone.commit(change))).await;
        assert!(done.is_none());
        let before = requests.of(Op::Put);
        let row = a.clone.pending().unwrap().remove(0);
        assert_eq!((row.contents, row.status), (300, PendingStatus::Pending));
        drop(a);
        // A line that was cut off is a pack that is not known to be there.
        let packs = world.dir("a").join("journal").join(format!("{}.packs", row.change));
        let known = std::fs::read_to_string(&packs).unwrap_or_default().lines().filter(|line| !line.is_empty()).count();
        if known > 0 {
            let mut file = std::fs::OpenOptions::new().append(true).open(&packs).unwrap();
            std::io::Write::write_all(&mut file, b"\n{\"pack\":{\"base\":").unwrap();
        }
        let a = world.open("a").await;
        let (settled, requests) = a.counted(a.clone.settle()).await;
        assert_eq!(settled.unwrap().committed.len(), 1);
        let all = before + requests.of(Op::Put);
        let lost = before - known as u64;
        assert!((3 + lost..=6 + lost).contains(&all), "{before} puts of which {known} noted, then {requests}");
        assert!(a.clone.verify(true).await.unwrap().findings.is_empty());
        let b = world.open("b").await;
        b.pull().await;
        assert_eq!(b.facts().len(), 300);
    }
}

/// R2: what was uploaded long ago may have been collected; it is uploaded again, and nothing refers to what is gone.
#[tokio::test(start_paused = true)]
async fn what_was_uploaded_before_the_horizon_is_uploaded_again() {
    let world = world(3);
    let (a, b) = (world.open("a").await, world.open("b").await);
    let change = change_many(&units(5), on_disk(&world, 300));
    a.killer.arm("commit.planned", 1);
    assert!(a.killer.run(a.clone.commit(change)).await.is_none());
    drop(a);
    let day = Duration::from_secs(24 * 3600);
    for n in 0..4 {
        world.env.sleep(3 * day).await;
        b.put("model/other", "data/other", &n.to_string()).await;
    }
    let plan = b.clone.plan_gc(day).await.unwrap();
    let gone = b.clone.gc(&plan, day).await.unwrap().deleted;
    assert!(gone.iter().filter(|doomed| doomed.key.starts_with("pack/")).count() >= 4, "{gone:?}");
    let a = world.open("a").await;
    let (settled, requests) = a.counted(a.clone.settle()).await;
    assert_eq!(settled.unwrap().committed.len(), 1, "{requests}");
    assert!(requests.of(Op::Put) >= 4, "{requests}");
    b.pull().await;
    assert_eq!(b.facts(), {
        a.pull().await;
        a.facts()
    });
    assert!(b.clone.verify(true).await.unwrap().findings.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_large_content_is_cut_carried_and_put_together() {
    let world = world(4);
    let a = world.open("a").await;
    let large = noise(9, 1_000_003);
    std::fs::create_dir_all(world.dir("source")).unwrap();
    let file = world.dir("source").join("large");
    std::fs::write(&file, &large).unwrap();
    let small = ("small".to_owned(), Source::from(noise(1, 100)));
    let change = change_many(&units(1), vec![("large".into(), Source::File(file)), small]);
    let (done, requests) = a.counted(a.clone.commit(change)).await;
    done.unwrap();
    assert_eq!((requests.of(Op::Create), requests.of(Op::Put)), (1, 8), "16 parts, two to a pack: {requests}");
    assert_eq!(std::fs::read(a.clone.tree().join("model/00/large")).unwrap(), large);

    let b = world.open("b").await;
    b.pull().await;
    assert_eq!(std::fs::read(b.clone.tree().join("model/00/large")).unwrap(), large);
    let item = b.clone.item(&unit("model/00"), &path("model/00/large")).unwrap().unwrap();
    assert_eq!(b.clone.content(&item).await.unwrap(), large);
    // A11: equal bytes are not sent again, and a pull that knows them asks for nothing.
    let again =
        change_many(&units(2), vec![("first".into(), large.clone().into()), ("twin".into(), large.clone().into())]);
    let (done, requests) = b.counted(b.clone.commit(again)).await;
    done.unwrap();
    assert_eq!(requests.of(Op::Put), 0, "{requests}");
    let left = std::fs::read_dir(world.dir("b").join("tmp")).unwrap().count();
    assert_eq!(left, 0, "temporary files are gone");

    // Lazily: nothing until it is wanted, then all of it, in pieces.
    let opening = Opening { hydration: Hydration::Lazy, ..Opening::default() };
    let c = world.open_with("c", opening).await;
    let (pulled, requests) = c.counted(c.clone.pull(&Scope::All)).await;
    pulled.unwrap();
    assert!(requests.count().bytes_in < 50_000, "{requests}");
    let item = c.clone.item(&unit("model/00"), &path("model/00/large")).unwrap().unwrap();
    let (read, requests) = c.counted(streamed(&c.clone, &item)).await;
    assert_eq!(read.unwrap(), (large.clone().into(), 16));
    assert!(requests.of(Op::Get) <= 8, "{requests}");
    let (read, requests) = c.counted(streamed(&c.clone, &item)).await;
    assert_eq!((read.unwrap().0, requests.total()), (large.to_vec(), 0), "kept from then on");

    // An altered part of the file is not given to anybody: the right one is fetched.
    let at = c.clone.tree().join("model/00/large");
    let mut altered = large.to_vec();
    altered[200_000] ^= 1;
    std::fs::write(&at, &altered).unwrap();
    let (read, requests) = c.counted(streamed(&c.clone, &item)).await;
    assert_eq!((read.unwrap().0, requests.of(Op::Get)), (large.to_vec(), 1), "{requests}");
    // Nor is a part that the store cannot give.
    std::fs::remove_file(&at).unwrap();
    c.faults.script_times(Op::Get, |key| key.starts_with("pack/"), 3, 1000, Fault::Status(503));
    let error = streamed(&c.clone, &item).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (Kind::Offline, "not_local"), "{error:?}");
    assert!(!at.exists());
}

async fn streamed(clone: &peat_clone::LocalClone, item: &peat_clone::Item) -> peat_types::Result<(Vec<u8>, usize)> {
    let (mut out, mut pieces) = (Vec::new(), 0);
    let mut take = |bytes: &[u8]| {
        out.extend_from_slice(bytes);
        pieces += 1;
        Ok(())
    };
    clone.stream(item, &mut take).await?;
    Ok((out, pieces))
}

#[tokio::test(start_paused = true)]
async fn what_was_altered_in_the_journal_is_never_committed() {
    let world = world(5);
    let a = world.open("a").await;
    let change = change_many(&units(1), vec![("x".into(), noise(1, 1_100_000).into())]);
    a.killer.arm("journal.added", 1);
    assert!(a.killer.run(a.clone.commit(change)).await.is_none());
    let id = a.clone.pending().unwrap()[0].change;
    drop(a);
    let file = world.dir("a").join("journal").join(format!("{id}.change"));
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[900_000] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let a = world.open("a").await;
    let (settled, requests) = a.counted(a.clone.settle()).await;
    assert_eq!(requests.of(Op::Create), 0, "{requests}");
    assert_eq!(settled.unwrap().unknown.len(), 1);
    let row = a.clone.pending().unwrap().remove(0);
    assert!(row.reason.unwrap().1.contains("cut off or altered"));
    // A source that cannot be read is said so, and leaves nothing behind.
    let missing = Source::File(world.dir("nowhere"));
    let error = a.clone.commit(change_many(&units(1), vec![("y".into(), missing)])).await.unwrap_err();
    assert!(error.has_code(peat_clone::NOT_JOURNALLED), "{error:?}");
    assert_eq!(a.clone.pending().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn names_that_count_as_one_are_refused_within_a_large_change() {
    let world = world(6);
    let a = world.open("a").await;
    let pairs = [("Data/x", "data/X"), ("a/b", "a"), ("a", "a/b/c"), ("ä/b", "A\u{308}/b/c")];
    for (one, other) in pairs {
        let named = |name: &str| (name.to_owned(), Source::from(noise(1, 10)));
        let filler = (0..50).map(|n| named(&format!("filler/{n}")));
        let all: Vec<_> = filler.chain([named(one), named(other)]).collect();
        let change = NewChange { on_refusal: peat_clone::OnRefusal::Drop, ..change_many(&units(1), all) };
        let error = a.clone.commit(change).await.unwrap_err();
        assert_eq!(error.code(), "path_collision", "{one} {other}: {error:?}");
    }
    // Against what is committed, too.
    a.put("model/00", "model/00/Taken", "1").await;
    let change = change_many(&units(1), vec![("taken/x".to_owned(), noise(1, 10).into())]);
    let error = a.clone.commit(NewChange { on_refusal: peat_clone::OnRefusal::Drop, ..change }).await.unwrap_err();
    assert_eq!(error.code(), "path_collision");
    a.clone.commit(change_put("model/00", "model/00/free", "1")).await.unwrap();
}

/// The budgets of a first clone, at a size that a test can have: they do not depend on it but for the contents.
#[tokio::test(start_paused = true)]
async fn a_first_clone_reads_packs_in_few_ranges_and_each_entry_of_the_tail_once() {
    let world = World::new(7);
    let a = world.open("a").await;
    let units = units(80);
    let file = |n: u64| (format!("data/{n:04}"), Source::from(noise(n, 1000)));
    a.clone.commit(change_many(&units, (0..1600).map(file).collect())).await.unwrap();
    assert!(matches!(a.clone.checkpoint(true, true).await.unwrap(), peat_clone::Checkpoint::Done { .. }));
    for unit in units.iter().take(70) {
        let change = change_many(std::slice::from_ref(unit), vec![("later".into(), noise(1, 700).into())]);
        a.clone.commit(change).await.unwrap();
    }
    let b = world.open("b").await;
    let (_, requests) = b.counted(b.pull()).await;
    assert!(requests.total() <= 90, "{requests}");
    let opening = Opening { hydration: Hydration::Lazy, ..Opening::default() };
    let c = world.open_with("c", opening).await;
    let (_, requests) = c.counted(c.pull()).await;
    assert!(requests.total() <= 85, "{requests}");
    assert!(requests.count().bytes_in < 1_000_000, "{requests}");
    a.pull().await;
    assert_eq!((a.facts(), a.facts().len()), (b.facts(), 1670));
    assert_eq!(b.facts(), c.facts());
    assert_eq!(std::fs::read(b.clone.tree().join("model/07/data/0167")).unwrap(), noise(167, 1000));
    // What the tail brought along is here at once, the rest on demand.
    let there = |at: &str| c.clone.tree().join(at).exists();
    assert!(there("model/07/later") && !there("model/07/data/0167"));
}

/// A pull that was killed goes on with what is missing.
#[tokio::test(start_paused = true)]
async fn what_a_killed_pull_brought_is_not_fetched_again() {
    let world = World::new(8);
    let a = world.open("a").await;
    let file = |n: u64| (format!("data/{n:04}"), Source::from(noise(n, 3000)));
    a.clone.commit(change_many(&units(4), (0..1600).map(file).collect())).await.unwrap();
    let b = world.open("b").await;
    b.killer.arm("pull.tree", 3);
    let (killed, first) = b.counted(b.killer.run(b.clone.pull(&Scope::All))).await;
    assert!(killed.is_none());
    drop(b);
    let b = world.open("b").await;
    let (_, second) = b.counted(b.pull()).await;
    assert_eq!(a.facts(), b.facts());
    let all = 1600 * 3000;
    let (first, second) = (first.count().bytes_in, second.count().bytes_in);
    assert!(second < all / 2, "{first} bytes, then {second}");
    assert_eq!(std::fs::read(b.clone.tree().join("model/01/data/1597")).unwrap(), noise(1597, 3000));
}

/// One content of 16 parts, in a file.
fn large_file(world: &World) -> (bytes::Bytes, Source) {
    let large = noise(9, 1_000_003);
    std::fs::create_dir_all(world.dir("source")).unwrap();
    let file = world.dir("source").join("large");
    std::fs::write(&file, &large).unwrap();
    (large, Source::File(file))
}

/// Packs that the journal knows to be in the store.
fn noted(world: &World, name: &str) -> u64 {
    let journal = std::fs::read_dir(world.dir(name).join("journal")).unwrap();
    let packs = journal.map(|entry| entry.unwrap().path()).find(|path| path.extension().is_some_and(|e| e == "packs"));
    let text = packs.map(|path| std::fs::read_to_string(path).unwrap()).unwrap_or_default();
    text.lines().filter(|line| !line.is_empty()).count() as u64
}

/// There are no uploads of many requests that could be left half-done: each object is one PUT, and none is larger than a pack
/// and a part.
#[tokio::test(start_paused = true)]
async fn a_killed_upload_of_a_large_content_leaves_whole_packs_and_goes_on() {
    for nth in [1, 4, 7] {
        let world = world(9);
        let a = world.open("a").await;
        let (large, source) = large_file(&world);
        a.killer.arm("commit.pack", nth);
        let change = change_many(&units(1), vec![("large".into(), source)]);
        let (done, requests) = a.counted(a.killer.run(a.clone.commit(change))).await;
        assert!(done.is_none());
        let (sent, known) = (requests.of(Op::Put), noted(&world, "a"));
        drop(a);
        let packs: Vec<String> = world.memory.keys().into_iter().filter(|key| key.starts_with("pack/")).collect();
        for key in &packs {
            let size = world.memory.get(key, Range::All).await.unwrap().unwrap().size;
            assert!((64 << 10..(96 + 64 + 4) << 10).contains(&size), "{key}: {size}");
        }
        let a = world.open("a").await;
        let (settled, requests) = a.counted(a.clone.settle()).await;
        assert_eq!(settled.unwrap().committed.len(), 1);
        assert_eq!(requests.of(Op::Put), 8 - known, "{sent} puts of which {known} were noted, then {requests}");
        let b = world.open("b").await;
        b.pull().await;
        assert_eq!(std::fs::read(b.clone.tree().join("model/00/large")).unwrap(), large);
        assert!(b.clone.verify(true).await.unwrap().findings.is_empty());
    }
}

/// R3: a large content whose packs were dropped is read and stored again, piece by piece, and what a killed process stored is
/// not stored once more.
#[tokio::test(start_paused = true)]
async fn a_large_content_whose_packs_were_dropped_is_restored_in_pieces() {
    let world = world(10);
    let a = world.open("a").await;
    let (large, source) = large_file(&world);
    let small = ("small".to_owned(), Source::from(noise(1, 1000)));
    a.clone.commit(change_many(&units(1), vec![("large".into(), source), small])).await.unwrap();
    let mut gone = 0;
    for name in ["large", "small"] {
        let delete = NewChange::new("delete", units(1), serde_json::json!({"path": format!("model/00/{name}")}));
        gone = a.clone.commit(delete).await.unwrap().seq.0;
    }
    assert!(matches!(a.clone.checkpoint(true, true).await.unwrap(), peat_clone::Checkpoint::Done { .. }));
    drop(a);
    let b = world.open("b").await;
    let kept = b.clone.kept().await.unwrap();
    let past = b.clone.past(&kept, peat_types::Seq(gone - 2)).await.unwrap();
    let plan = b.clone.plan_restore(&past, &Scope::All).await.unwrap();
    b.killer.arm("commit.pack", 6);
    let (done, requests) = b.counted(b.killer.run(b.clone.rewrite(&plan.rewrite, "restore".into()))).await;
    assert!(done.is_none());
    let (sent, known) = (requests.of(Op::Put), noted(&world, "b"));
    assert!(sent > 0 && known > 0, "{requests}");
    drop(b);
    let b = world.open("b").await;
    let (settled, requests) = b.counted(b.clone.settle()).await;
    assert_eq!(settled.unwrap().committed.len(), 1, "{requests}");
    assert_eq!(requests.of(Op::Put), 8 - known, "{sent} puts of which {known} were noted, then {requests}");
    b.pull().await;
    assert_eq!(std::fs::read(b.clone.tree().join("model/00/large")).unwrap(), large);
    assert_eq!(std::fs::read(b.clone.tree().join("model/00/small")).unwrap(), noise(1, 1000));
    assert!(b.clone.verify(true).await.unwrap().findings.is_empty());
}

/// What the past holds is read from the store, whatever lies at its path now.
#[tokio::test(start_paused = true)]
async fn an_older_large_content_is_given_in_pieces_until_it_is_let_go_of() {
    let world = world(12);
    let a = world.open("a").await;
    let (large, source) = large_file(&world);
    let then = a.clone.commit(change_many(&units(1), vec![("large".into(), source)])).await.unwrap().seq;
    let other = noise(10, 1_000_003);
    a.clone.commit(change_many(&units(1), vec![("large".into(), other.clone().into())])).await.unwrap();
    let kept = a.clone.kept().await.unwrap();
    let past = a.clone.past(&kept, then).await.unwrap();
    let item = a.clone.past_items(&past, &unit("model/00"), "").await.unwrap().remove(0);
    assert_eq!(streamed(&a.clone, &item).await.unwrap(), (large.to_vec(), 16));
    assert_eq!(std::fs::read(a.clone.tree().join("model/00/large")).unwrap(), other, "the present is as it was");
    for key in world.memory.keys().into_iter().filter(|key| key.starts_with("pack/")) {
        world.memory.delete(&key).await.unwrap();
    }
    let error = streamed(&a.clone, &item).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (Kind::NotFound, "state_not_kept"), "{error:?}");
}

/// Somebody's own work at the path of a large content is put aside when the content comes, and not before.
#[tokio::test(start_paused = true)]
async fn a_file_changed_by_hand_gives_way_to_a_large_content_whole() {
    let world = world(13);
    let (a, b) = (world.open("a").await, world.open("b").await);
    let (large, source) = large_file(&world);
    a.put("model/00", "model/00/large", "old").await;
    b.pull().await;
    let at = b.clone.tree().join("model/00/large");
    std::fs::write(&at, "by hand").unwrap();
    a.clone.commit(change_many(&units(1), vec![("large".into(), source)])).await.unwrap();
    b.faults.script_times(Op::Get, |key| key.starts_with("pack/"), 4, 1000, Fault::Status(503));
    b.clone.pull(&Scope::All).await.unwrap_err();
    assert_eq!(std::fs::read(&at).unwrap(), b"by hand", "as long as nothing else is whole");
    b.faults.heal();
    b.pull().await;
    assert_eq!(std::fs::read(&at).unwrap(), large);
    let aside = b.clone.take_aside();
    assert_eq!(aside.len(), 1);
    assert_eq!(std::fs::read(&aside[0].1).unwrap(), b"by hand");
}

#[tokio::test(start_paused = true)]
async fn the_largest_content_fits_an_entry_and_a_larger_one_is_refused_by_name() {
    let mut world = World::new(11);
    world.params = Params { part: 100, ..Params::default() };
    let a = world.open("a").await;
    std::fs::create_dir_all(world.dir("source")).unwrap();
    let (most, more) = (world.dir("source").join("most"), world.dir("source").join("more"));
    let largest = world.params.largest();
    std::fs::write(&most, noise(1, usize::try_from(largest).unwrap())).unwrap();
    std::fs::File::create(&more).unwrap().set_len(largest + 1).unwrap();
    let (refused, requests) =
        a.counted(a.clone.commit(change_many(&units(1), vec![("x".into(), Source::File(more))]))).await;
    let error = refused.unwrap_err();
    assert_eq!((error.kind(), error.code(), requests.total()), (Kind::Invalid, "content_too_large", 0), "{error:?}");
    assert!(error.chain().join(": ").contains("source/more has 6553601 bytes"), "{error:?}");
    assert!(error.hints().iter().any(|hint| hint.contains("cut it")), "{error:?}");
    assert!(a.clone.pending().unwrap().is_empty());
    assert_eq!(std::fs::read_dir(world.dir("a").join("tmp")).unwrap().count(), 0);
    a.clone.commit(change_many(&units(1), vec![("x".into(), Source::File(most))])).await.unwrap();
    assert!(a.clone.verify(true).await.unwrap().findings.is_empty());
}
