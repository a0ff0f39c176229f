//! Many writers at once, on a store 30 ± 15 ms away (lognormal, carried out after 60 % of a request), in virtual time.
//! Every run prints its figures: `cargo test -p peat-ledger --test crowd -- --nocapture`.
#![allow(clippy::expect_used, clippy::large_futures)] // a test

#[path = "crowd/far.rs"]
mod far;
#[path = "protocol/street.rs"]
mod street;
#[path = "crowd/town.rs"]
mod town;

use std::time::Duration;

use peat_types::Mutation;

use self::town::{Crowd, burst, hosts, house, open_loop, unit_of_many};

#[test]
fn ten_writers_at_once() {
    let crowd = (0..20).map(|seed| burst(seed, 10)).fold(Crowd::default(), Crowd::and);
    crowd.show("10 writers at once");
    assert_eq!(crowd.committed(), 200, "each exactly once");
    assert!(crowd.percentile(0.99) < Duration::from_millis(600), "p99 {:?}", crowd.percentile(0.99));
    assert!(crowd.puts() <= 3.0, "{} PUT", crowd.puts());
}

#[test]
fn hundred_writers_at_once() {
    let crowd = (0..2).map(|seed| burst(seed, 100)).fold(Crowd::default(), Crowd::and);
    crowd.show("100 writers at once");
    assert_eq!(crowd.committed(), 200, "each exactly once");
    assert!(crowd.percentile(0.99) < Duration::from_millis(800), "p99 {:?}", crowd.percentile(0.99));
    assert!(crowd.puts() <= 3.0, "{} PUT", crowd.puts());
}

#[test]
fn writers_of_one_process_cost_little_more_than_one() {
    let crowd = (0..10).map(|seed| hosts(seed, 1, 20)).fold(Crowd::default(), Crowd::and);
    crowd.show("20 writers of one process");
    assert_eq!(crowd.committed(), 200, "each exactly once");
    assert!(crowd.percentile(0.99) < Duration::from_millis(250), "p99 {:?}", crowd.percentile(0.99));
    assert!(crowd.puts() <= 0.2, "{} PUT", crowd.puts());
}

#[test]
fn processes_of_one_clone_cost_little_more_than_one() {
    for n in [10, 30] {
        let crowd = (0..10).map(|seed| house(seed, n)).fold(Crowd::default(), Crowd::and);
        crowd.show(&format!("{n} processes of one clone"));
        assert_eq!(crowd.committed(), 10 * n, "each exactly once");
        assert!(crowd.percentile(0.99) < Duration::from_millis(400), "p99 {:?}", crowd.percentile(0.99));
        assert!(crowd.puts() <= 0.5, "{} PUT", crowd.puts());
    }
}

#[test]
fn writers_of_five_processes_cost_little_more_than_five() {
    let crowd = (0..10).map(|seed| hosts(seed, 5, 20)).fold(Crowd::default(), Crowd::and);
    crowd.show("5 processes with 20 writers each");
    assert_eq!(crowd.committed(), 1000, "each exactly once");
    assert!(crowd.percentile(0.99) < Duration::from_millis(600), "p99 {:?}", crowd.percentile(0.99));
    assert!(crowd.puts() <= 0.3, "{} PUT", crowd.puts());
}

/// How long two hundred commits a second are kept up, and under which seeds.
fn strain() -> (Duration, u64) {
    if soaking() { (Duration::from_secs(15), 1) } else { (Duration::from_secs(1), 1) }
}

#[allow(clippy::disallowed_methods, clippy::print_stderr)] // a switch of these tests, not of Peat
fn soaking() -> bool {
    let soaking = std::env::var_os("PEAT_SOAK").is_some();
    if !soaking {
        eprintln!("SKIPPED: 200 commits a second for 15 s, because PEAT_SOAK is not set; 1 s is run instead");
    }
    soaking
}

#[test]
fn study_11_two_hundred_commits_per_second() {
    let (time, seeds) = strain();
    let crowd = (1..=seeds).map(|seed| open_loop(seed, 200, time, None)).fold(Crowd::default(), Crowd::and);
    crowd.show(&format!("200 commits a second for {time:?}, 2,000 stale keys"));
    assert_eq!(crowd.committed(), crowd.asked(), "each exactly once");
    assert!(crowd.percentile(0.99) < Duration::from_secs(1), "p99 {:?}", crowd.percentile(0.99));
}

#[test]
fn less_than_a_crowd_is_served_as_fast() {
    for rate in [2, 10, 30] {
        let crowd = open_loop(7, rate, Duration::from_secs(3), None);
        crowd.show(&format!("{rate} commits a second"));
        assert_eq!(crowd.committed(), crowd.asked(), "each exactly once");
        assert!(crowd.percentile(0.99) < Duration::from_secs(1), "p99 {:?}", crowd.percentile(0.99));
    }
}

#[test]
fn mutation_starve_is_noticed() {
    // Starving grows with time; a few seconds are more than enough.
    let time = strain().0.min(Duration::from_secs(4));
    let crowd = open_loop(1, 200, time, Some(Mutation::Starve));
    crowd.show(&format!("200 commits a second for {time:?}, fresh writers do not help"));
    assert!(crowd.percentile(0.99) > Duration::from_secs(1), "p99 {:?}", crowd.percentile(0.99));
}

#[test]
fn twenty_readers_outputs_and_one_holder_on_one_unit() {
    for seed in 0..8 {
        let (readers, holder) = unit_of_many(seed, 20);
        readers.show("20 outputs of readers on one unit");
        holder.show("the end of the holder's run meanwhile");
        assert_eq!((readers.committed(), holder.committed()), (20, 1), "each exactly once");
        assert!(holder.percentile(1.0) <= Duration::from_secs(2), "{:?}", holder.percentile(1.0));
        assert!(holder.puts() <= 6.0, "{} PUT", holder.puts());
    }
}

#[test]
fn a_town_is_reproduced_exactly() {
    let figures = |seed| burst(seed, 10).latencies();
    assert_eq!(figures(5), figures(5));
}
