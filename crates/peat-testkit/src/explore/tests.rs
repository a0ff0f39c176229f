use std::time::Duration;

use bytes::Bytes;
use peat_types::Kind;

use super::*;
use crate::sim::{Fault, Faults, Sim};

/// Six processes that each do five things. What must not happen: the second thing of the fourth process gets no reply,
/// and the sixth one does its last.
fn played(script: &Script) -> Ran {
    let faults = Faults { lost_reply: 0.3, jump: 0.1, ..Faults::none() };
    Sim::run(script, false, faults, |sim| async move {
        let mut lost = false;
        for n in 0..6 {
            let process = sim.machine(&format!("m{}", n / 2)).process(n, None);
            let store = process.store();
            let work = async {
                for k in 0..5 {
                    if !process.part(format_args!("does {k}")) {
                        continue;
                    }
                    let reply = store.put(&format!("beat/{n}-{k}"), Bytes::new()).await;
                    let nothing = reply.is_err_and(|error| error.kind() == Kind::Offline);
                    lost |= nothing && (n, k) == (3, 1);
                    if lost && (n, k) == (5, 4) {
                        sim.violation("A9: both");
                    }
                }
            };
            process.run(work).await;
        }
    })
}

#[test]
fn a_failing_schedule_is_cut_down_to_what_it_takes() {
    let failed = one_fails(100, |n| n, |script, _| played(script));
    let story = shrink(&failed.script, &failed.ran, (Duration::from_secs(10), 200), &|script, _| played(script));
    assert!(story.of > 30, "there was much to cut: {}", story.of);
    let ids: Vec<_> = story.told.iter().map(|step| step.id.as_str()).collect();
    assert_eq!(ids, ["m1.3/1", "m1.3/1@1", "m2.5/4"], "{story}");
    assert_eq!(story.told[1].fault, Some(Fault::LostReply));
    let text = story.to_string();
    assert!(text.contains("A9: both") && text.contains("2.") && text.contains(&story.script.to_string()), "{text}");
    // As it is printed, so it is run again.
    let again: Script = story.script.to_string().parse().expect("a script");
    assert_eq!(played(&again).ok(), Err("A9: both".to_owned()));
}

#[test]
fn cutting_down_ends_when_its_budget_is_used_up() {
    let failed = one_fails(100, |n| n, |script, _| played(script));
    let story = shrink(&failed.script, &failed.ran, (Duration::from_secs(10), 3), &|script, _| played(script));
    assert!(story.replays <= 3 && story.len() >= 3, "{story}");
    assert!(played(&story.script).ok().is_err(), "it still fails");
}

#[test]
fn the_lowest_seed_is_found_whoever_is_faster() {
    let run = |script: &Script, _| {
        Sim::run(script, false, Faults::none(), |sim| async move {
            if sim.seed() >= 7 {
                sim.violation("A1: seven");
            }
        })
    };
    let (failed, counts) = search(0..100, run);
    assert_eq!(failed.expect("one fails").script, Script::seed(7));
    assert!(counts.is_empty());
    assert!(search(0..7, run).0.is_none());
}
