//! Several processes on one folder.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::path::PathBuf;
use std::time::Duration;

use common::{Machine, World, change_append, change_put, changes_in_log, new_run};
use futures::future::{join, join_all};
use peat_objects::{Fault, Op};

/// So many processes of one folder that know the head, at some distance from the store.
async fn house(world: &World, count: usize) -> Vec<Machine> {
    let mut house = Vec::new();
    for _ in 0..count {
        house.push(world.open("a").await);
    }
    house[0].put("model/first", "data/first", "1").await;
    world.env.sleep(Duration::from_secs(60)).await;
    for process in &house {
        for op in [Op::Create, Op::Get, Op::Put, Op::List] {
            process.faults.script_times(op, |_| true, 1, 10_000, Fault::Slow(Duration::from_millis(30)));
        }
    }
    house
}

fn queue(world: &World) -> PathBuf {
    world.dir("a").join("queue")
}

fn waiting(world: &World) -> Vec<PathBuf> {
    let names = std::fs::read_dir(queue(world)).unwrap().map(|entry| entry.unwrap().path());
    names.filter(|path| path.extension().is_some_and(|end| end == "tx")).collect()
}

#[tokio::test(start_paused = true)]
async fn processes_of_one_folder_go_to_the_store_together() {
    let world = World::new(1);
    let house = house(&world, 10).await;
    let before: Vec<_> = house.iter().map(|process| process.meter.snapshot()).collect();
    let sends = house
        .iter()
        .enumerate()
        .map(|(n, process)| async move { process.put(&format!("model/{n}"), &format!("data/{n}"), "1").await });
    let sent = join_all(sends).await;
    let of = |op| -> u64 { house.iter().zip(&before).map(|(one, mark)| one.meter.since(mark).of(op).requests).sum() };
    assert_eq!((of(Op::Create), of(Op::Put), of(Op::List), of(Op::Delete)), (2, 0, 0, 0));
    assert!(of(Op::Get) <= 20, "{} GET", of(Op::Get));
    let log = changes_in_log(&house[0]).await;
    for committed in &sent {
        let there: Vec<_> = log.iter().filter(|(_, change, _)| *change == committed.change.to_string()).collect();
        assert_eq!(there.iter().map(|(seq, ..)| *seq).collect::<Vec<_>>(), [committed.seq.0]);
    }
    assert!(waiting(&world).is_empty());
    house[3].pull().await;
    assert_eq!(house[3].clone.units().unwrap().len(), 11);
}

/// What a killed process left is no reason to commit it: its journal tells what becomes of it.
#[tokio::test(start_paused = true)]
async fn what_a_killed_process_left_is_removed_and_settled_once() {
    for start in [false, true] {
        let world = World::new(2);
        let house = house(&world, 3).await;
        let (first, dying, next) = (&house[0], &house[1], &house[2]);
        dying.killer.arm("commit.line", 2);
        let dies = async {
            match start {
                true => dying.killer.run(dying.clone.begin(new_run("model/y", Duration::ZERO))).await.map(drop),
                false => dying.killer.run(dying.clone.commit(change_append("model/y", "1"))).await.map(drop),
            }
        };
        let kept = async {
            world.env.sleep(Duration::from_millis(3)).await;
            let left = waiting(&world).pop().expect("it waits");
            (left.clone(), std::fs::read(left).unwrap())
        };
        let (_, (died, (path, body))) = join(first.put("model/x", "data/x", "1"), join(dies, kept)).await;
        assert!(died.is_none());
        // A kill takes the lock, and leaves the file.
        std::fs::write(&path, body).unwrap();
        next.put("model/z", "data/z", "1").await;
        assert!(!path.exists(), "whoever has the turn clears up");
        let log = changes_in_log(next).await;
        assert_eq!(log.iter().filter(|(_, _, kind)| kind == "Start").count(), 0);
        let settled = next.clone.settle().await.unwrap();
        assert_eq!((settled.committed.len(), settled.aborted.len()), if start { (0, 1) } else { (1, 0) });
        next.pull().await;
        assert_eq!(next.paths("model/y").len(), usize::from(!start));
        assert!(next.clone.pending().unwrap().is_empty());
    }
}

/// Without the folder, or without the right to write it, each goes by itself as it always did.
#[tokio::test(start_paused = true)]
async fn without_a_queue_everybody_goes() {
    let world = World::new(3);
    let house = house(&world, 4).await;
    std::fs::remove_dir_all(queue(&world)).unwrap();
    std::fs::write(queue(&world), b"in the way").unwrap();
    let sends = house
        .iter()
        .enumerate()
        .map(|(n, process)| async move { process.put(&format!("model/{n}"), &format!("data/{n}"), "1").await });
    join_all(sends).await;
    house[0].pull().await;
    assert_eq!(house[0].clone.units().unwrap().len(), 5);
    // What somebody else put there is no harm either.
    std::fs::remove_file(queue(&world)).unwrap();
    std::fs::create_dir_all(queue(&world).join("00.tx")).unwrap();
    std::fs::write(queue(&world).join("news"), b"\xff 18446744073709551615 -1").unwrap();
    std::fs::write(queue(&world).join("11.tx"), b"nobody reads this").unwrap();
    house[1].clone.commit(change_put("model/n", "data/n", "1")).await.unwrap();
    std::fs::write(queue(&world).join("news"), b"18446744073709551615 18446744073709551615").unwrap();
    house[2].clone.commit(change_put("model/m", "data/m", "1")).await.unwrap();
    assert!(!queue(&world).join("11.tx").exists());
    assert!(house[0].clone.verify(true).await.unwrap().findings.is_empty());
}
