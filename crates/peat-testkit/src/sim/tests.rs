use bytes::Bytes;
use peat_objects::Range;

use super::*;

fn ran(seed: u64) -> Ran {
    Sim::run(seed, false, Faults { kill: 0.05, ..Faults::bad_day() }, |sim| async move {
        let machine = sim.machine("m");
        let mut actors = Vec::new();
        for n in 0..4_u64 {
            let (sim, machine) = (sim.clone(), machine.clone());
            actors.push(tokio::spawn(async move {
                for _ in 0..4 {
                    let process = machine.process(None);
                    let store = process.store();
                    let env = process.env().clone();
                    process
                        .run(async {
                            for k in 0..5_u64 {
                                env.step("between").await;
                                env.sleep(env.jitter(Duration::from_millis(50))).await;
                                let body = Bytes::from(env.random_bytes::<8>().to_vec());
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
        let (first, second) = (ran(seed), ran(seed));
        assert_eq!((first.trace, first.events), (second.trace, second.events), "seed {seed}");
        assert!(first.ok().is_ok());
        kills += first.kills;
        traces.insert(first.trace);
    }
    assert!(kills > 20, "processes are killed: {kills}");
    assert_eq!(traces.len(), 20, "seeds differ");
}

#[test]
fn a_write_under_way_lands_although_its_process_is_killed() {
    let ran = Sim::run(1, false, Faults::none(), |sim| async move {
        let process = sim.machine("m").process(None);
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
fn a_stuck_schedule_is_a_violation() {
    let ran = Sim::run(1, false, Faults::none(), |_| std::future::pending());
    assert!(ran.ok().is_err());
}
