use bytes::Bytes;
use peat_objects::{List, Range, Store};
use peat_types::Clock;

use super::*;

fn played(script: &Script) -> Ran {
    Sim::run(script, false, Faults { kill: 0.05, ..Faults::bad_day() }, |sim| async move {
        let machine = sim.machine("m");
        let mut actors = Vec::new();
        for n in 0..4_u64 {
            let (sim, machine) = (sim.clone(), machine.clone());
            actors.push(tokio::spawn(async move {
                for life in 0..4 {
                    let process = machine.process(format_args!("{n}.{life}"), None);
                    let store = process.store();
                    let env = process.env().clone();
                    process
                        .run(async {
                            for k in 0..5_u64 {
                                if !process.part(format_args!("writes {k}")) {
                                    continue;
                                }
                                env.step("between").await;
                                env.sleep(env.jitter(Duration::from_millis(50))).await;
                                let body = Bytes::from(process.below(1000).to_string());
                                let _ = store.create(&format!("log/{k}"), body).await;
                                let _ = store.get(&format!("log/{}", (k + n) % 5), Range::All).await;
                            }
                        })
                        .await;
                    sim.event(format_args!("{} ended, killed: {}", process.name(), process.is_dead()));
                }
            }));
        }
        for actor in actors {
            actor.await.expect("actor");
        }
    })
}

#[test]
fn a_seed_reproduces_a_schedule_exactly() {
    let mut kills = 0;
    let mut traces = std::collections::BTreeSet::new();
    for seed in 0..20 {
        let (first, second) = (played(&Script::seed(seed)), played(&Script::seed(seed)));
        assert_eq!((first.trace, first.events), (second.trace, second.events), "seed {seed}");
        assert!(first.ok().is_ok());
        kills += first.kills;
        traces.insert(first.trace);
    }
    assert!(kills > 20, "processes are killed: {kills}");
    assert_eq!(traces.len(), 20, "seeds differ");
}

#[test]
fn all_that_happened_as_a_script_is_the_same_schedule_again() {
    for seed in 0..20 {
        let first = played(&Script::seed(seed));
        let mut cut = Cut::default();
        for step in &first.told {
            match step.fault {
                None => drop(cut.parts.insert(step.id.clone())),
                Some(fault) => drop(cut.faults.insert(step.id.clone(), fault)),
            }
        }
        let script = Script { seed, only: Some(cut) };
        let text = script.to_string();
        assert_eq!(text.parse::<Script>().as_ref(), Ok(&script), "{text}");
        let second = played(&script);
        assert_eq!((first.trace, first.events), (second.trace, second.events), "{text}");
    }
}

#[test]
fn a_script_that_says_nothing_is_refused() {
    for text in ["", "x", "7 none", "7 only a with b", "7 only a with b=nothing", "7 only a with b=kill:x"] {
        assert!(text.parse::<Script>().is_err(), "'{text}'");
    }
}

#[test]
fn a_write_under_way_lands_although_its_process_is_killed() {
    let ran = Sim::run(&Script::seed(1), false, Faults::none(), |sim| async move {
        let process = sim.machine("m").process("p", None);
        let store = process.store();
        let doomed = process.clone();
        let killer = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            doomed.kill();
        });
        let reply = process.run(async { store.create("log/1", Bytes::from_static(b"x")).await }).await;
        assert!(reply.is_none(), "killed before the reply");
        killer.await.expect("killer");
        assert!(sim.store().keys().is_empty(), "still under way");
        sim.sleep(Duration::from_secs(1)).await;
        assert_eq!(sim.store().keys(), ["log/1"]);
    });
    assert_eq!((ran.kills, ran.violations.len()), (1, 0));
}

#[test]
fn a_stalled_process_does_nothing_while_its_clock_and_its_requests_go_on() {
    let ran = Sim::run(&Script::seed(1), false, Faults::none(), |sim| async move {
        let process = sim.machine("m").process("p", None);
        let (store, env) = (process.store(), process.env().clone());
        let stopped = process.clone();
        let hour = Duration::from_secs(3600);
        let stopper = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            stopped.stall(hour);
        });
        let began = env.monotonic();
        let reply = process.run(async { store.create("log/1", Bytes::from_static(b"x")).await }).await;
        stopper.await.expect("stopper");
        assert!(reply.expect("alive").is_ok(), "the reply has waited");
        assert_eq!((env.monotonic() - began).as_secs(), 3600);
        let listed = sim.store().list(&List { prefix: "log/".to_owned(), ..List::default() }).await.expect("listed");
        let landed = listed.keys[0].last_modified.expect("a time");
        assert!(sim.server().now().millis_since(landed) > 3_590_000, "it landed long ago");
    });
    assert!(ran.ok().is_ok(), "{:?}", ran.violations);
}

#[test]
fn a_wall_clock_that_jumps_leaves_the_monotonic_one_alone_and_a_boot_sets_that_back() {
    let ran = Sim::run(&Script::seed(1), false, Faults::none(), |sim| async move {
        let clock = SimClock::new(Duration::from_secs(50), 0);
        let (wall, mono) = (clock.now(), clock.monotonic());
        clock.jump(-5000);
        assert_eq!((clock.now().millis_since(wall), clock.monotonic()), (-5000, mono));
        sim.sleep(Duration::from_secs(2)).await;
        clock.boot();
        assert_eq!((clock.now().millis_since(wall), clock.monotonic()), (-3000, Duration::ZERO));
        sim.sleep(Duration::from_secs(2)).await;
        assert_eq!(clock.monotonic(), Duration::from_secs(2));
    });
    assert!(ran.ok().is_ok());
}

#[test]
fn a_listing_that_lags_misses_only_what_is_new() {
    let ran = Sim::run(&Script::seed(1), false, Faults::none(), |sim| async move {
        let (store, list) = (sim.store(), List { prefix: "log/".to_owned(), max_keys: Some(1), ..List::default() });
        let seen = |lag| {
            let (list, now) = (list.clone(), sim.server().now());
            async move {
                let page = net::lagging(store, &list, now, Duration::from_millis(lag)).await.expect("listed");
                (page.keys[0].key.clone(), page.token.is_some())
            }
        };
        store.put("log/2", Bytes::new()).await.expect("put");
        assert_eq!(seen(500).await, ("log/2".to_owned(), false), "never empty");
        sim.sleep(Duration::from_secs(1)).await;
        store.put("log/1", Bytes::new()).await.expect("put");
        assert_eq!(seen(500).await, ("log/2".to_owned(), false));
        sim.sleep(Duration::from_secs(1)).await;
        assert_eq!(seen(500).await, ("log/1".to_owned(), true));
    });
    assert!(ran.ok().is_ok());
}

#[test]
fn who_only_reads_must_not_write() {
    let ran = Sim::run(&Script::seed(1), false, Faults::none(), |sim| async move {
        let process = sim.machine("m").process("p", None);
        process.reads(true);
        let _ = process.store().delete("log/1").await;
    });
    assert!(ran.ok().is_err_and(|what| what.starts_with("A6: ")));
}

#[test]
fn a_stuck_schedule_is_a_violation() {
    let ran = Sim::run(&Script::seed(1), false, Faults::none(), |_| std::future::pending());
    assert!(ran.ok().is_err());
}
