//! Honest stores pass the probe; every liar is refused with the right reason.
#![allow(clippy::panic, clippy::expect_used)] // the lints know tests, but not their helpers

use std::sync::Arc;
use std::time::Duration;

use peat_objects::{
    Durability, Fault, FaultStore, FileStore, LatencyStore, MemoryStore, Op, OpenOptions, PrefixStore, Verdict, open,
    probe,
};
use peat_testkit::clock::tokio_env;
use peat_testkit::cloud::{CloudServer, Service};
use peat_testkit::liars::{LiarStore, Lie};
use peat_testkit::s3::S3Server;
use peat_types::{Env, Error, Kind};

/// Each unforgivable lie, and what the refusal must say.
const UNFIT: [(Lie, &str); 10] = [
    (Lie::IgnoresCondition, "a second create of the same key succeeded"),
    (Lie::ChecksThenActs, "creates of one key were confirmed"),
    (Lie::ConfirmsLosers, "creates of one key were confirmed"),
    (Lie::Refuses501, "create-if-absent: the store says that it cannot"),
    (Lie::Refuses400, "create-if-absent: the store says that it cannot"),
    (Lie::Inverted, "a create of a fresh key was refused"),
    (Lie::UnsortedList, "do not come in byte order"),
    (Lie::LateList, "an object just created is not listed"),
    (Lie::IgnoresMaxKeys, "more keys than were asked for"),
    (Lie::RemembersDeleted, "create after delete: the create was refused"),
];

const FORGIVABLE: [Lie; 4] = [Lie::ShortPages, Lie::EmptyPages, Lie::NoDeleteRight, Lie::BadDate(1200)];

#[track_caller]
fn assert_refused(lie: Lie, outcome: Result<Verdict, Error>, why: &str) {
    let error = outcome.expect_err(&format!("{lie:?} passed"));
    assert_eq!((error.kind(), error.code()), (Kind::Unsupported, "store_refused"), "{lie:?}: {error:?}");
    assert!(error.to_string().contains(why), "{lie:?}: {error:?}");
    assert!(error.hints().len() >= 2, "{error:?}");
}

fn liar(env: &Env, lie: Lie) -> LiarStore {
    LiarStore::new(Arc::new(MemoryStore::with_clock(env)), env, lie)
}

#[tokio::test(start_paused = true)]
async fn honest_stores_pass_and_are_left_clean() {
    let env = tokio_env(1);
    let memory = MemoryStore::with_clock(&env);
    let verdict = probe(&memory, &env).await.unwrap();
    assert!(verdict.server_time && verdict.may_delete, "{verdict:?}");
    assert_eq!((verdict.rival_creates, verdict.unanswered, verdict.clock_ahead_ms), (320, 0, Some(0)));
    assert!(memory.keys().is_empty(), "{:?}", memory.keys());

    let json = serde_json::to_string(&verdict).unwrap();
    assert_eq!(serde_json::from_str::<Verdict>(&json).unwrap(), verdict);
    assert!(json.contains("\"serverTime\":true"), "{json}");

    let folder = tempfile::tempdir().unwrap();
    let verdict = probe(&FileStore::new(folder.path(), Durability::Process, &env), &env).await.unwrap();
    assert!(!verdict.server_time && verdict.may_delete, "{verdict:?}");
}

#[tokio::test(start_paused = true)]
async fn a_store_far_away_is_waited_for_a_few_times_only() {
    const THERE_AND_BACK: Duration = Duration::from_millis(100);
    let env = tokio_env(1);
    let far = LatencyStore::new(Arc::new(MemoryStore::with_clock(&env)), &env, THERE_AND_BACK, Duration::ZERO);
    let begin = env.monotonic();
    probe(&far, &env).await.unwrap();
    // Five for creates, five for the rest, two for each of five times four races, one to clean up.
    assert_eq!(env.monotonic() - begin, THERE_AND_BACK * (5 + 5 + 10 + 1));
}

#[tokio::test(start_paused = true)]
async fn study_12_liars_are_refused() {
    for (lie, why) in UNFIT.into_iter().chain([(Lie::IgnoresRange, "reading parts")]) {
        let env = tokio_env(1);
        assert_refused(lie, probe(&liar(&env, lie), &env).await, why);
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_protocol_forgives_passes() {
    for lie in FORGIVABLE {
        let env = tokio_env(1);
        let verdict = probe(&liar(&env, lie), &env).await.unwrap_or_else(|e| panic!("{lie:?}: {e:?}"));
        assert_eq!(verdict.may_delete, lie != Lie::NoDeleteRight, "{lie:?}");
        assert_eq!(verdict.server_time, !matches!(lie, Lie::BadDate(_)), "{lie:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn trouble_is_not_a_verdict() {
    for fault in
        [Fault::LostReply, Fault::LostRequest, Fault::Status(503), Fault::Status(409), Fault::AppliedStatus(500)]
    {
        let env = tokio_env(1);
        let store = FaultStore::new(Arc::new(MemoryStore::with_clock(&env)), &env);
        for nth in [1, 2, 5, 20, 21, 22] {
            store.script(Op::Create, |_| true, nth, fault);
        }
        probe(&store, &env).await.unwrap_or_else(|e| panic!("{fault:?}: {e:?}"));
        store.script_times(Op::Get, |_| true, 1, 99, Fault::LostRequest);
        assert_eq!(probe(&store, &env).await.unwrap_err().kind(), Kind::Offline);
    }
}

#[tokio::test]
async fn on_the_wire() {
    let server = S3Server::start().unwrap();
    let env = Env::system(server.vars());
    let store = open(&server.url().parse().unwrap(), &OpenOptions::default(), &env).unwrap();
    let namespace = PrefixStore::new(store, "default").unwrap();
    let verdict = probe(&namespace, &env).await.unwrap();
    assert!(verdict.server_time && verdict.may_delete, "{verdict:?}");
    assert!(server.keys().is_empty(), "{:?}", server.keys());
    for lie in FORGIVABLE {
        let server = S3Server::start().unwrap();
        server.set_lie(Some(lie));
        let env = Env::system(server.vars());
        let store = open(&server.url().parse().unwrap(), &OpenOptions::default(), &env).unwrap();
        let verdict = probe(store.as_ref(), &env).await.unwrap_or_else(|e| panic!("{lie:?}: {e:?}"));
        assert_eq!(verdict.server_time, !matches!(lie, Lie::BadDate(_)), "{lie:?}");
        if lie == Lie::BadDate(1200) {
            assert!(verdict.clock_ahead_ms.is_some_and(|ahead| ahead < -1_100_000), "{verdict:?}");
        }
    }
    for (lie, why) in UNFIT {
        server.set_lie(Some(lie));
        assert_refused(lie, probe(&namespace, &env).await, why);
    }
}

#[tokio::test]
async fn on_the_wire_of_other_services() {
    for service in [Service::Gcs, Service::Azure] {
        let server = CloudServer::start(service).unwrap();
        let env = Env::system(server.vars());
        let store = open(&server.url().parse().unwrap(), &OpenOptions::default(), &env).unwrap();
        let verdict = probe(store.as_ref(), &env).await.unwrap();
        assert!(verdict.server_time && verdict.may_delete, "{service:?}: {verdict:?}");
        assert!(server.keys().is_empty(), "{:?}", server.keys());
        for lie in [Lie::ShortPages, Lie::EmptyPages, Lie::NoDeleteRight] {
            server.set_lie(Some(lie));
            let verdict = probe(store.as_ref(), &env).await.unwrap_or_else(|e| panic!("{service:?} {lie:?}: {e:?}"));
            assert_eq!(verdict.may_delete, lie != Lie::NoDeleteRight, "{service:?} {lie:?}");
        }
        for (lie, why) in UNFIT {
            server.set_lie(Some(lie));
            // How a refused condition is worded is a matter of S3.
            if !matches!(lie, Lie::Refuses400) {
                assert_refused(lie, probe(store.as_ref(), &env).await, why);
            }
        }
    }
}

/// A server that somebody started: `PEAT_TEST_STORE` is its URL, the rest is in the variables of the service's tools.
#[tokio::test]
#[allow(clippy::disallowed_methods)] // the variables of this process are the way to say which server
async fn real_server() {
    let env = Env::system(std::env::vars());
    let Some(url) = env.var("PEAT_TEST_STORE") else {
        eprintln!("SKIPPED: probe of a real server, because PEAT_TEST_STORE is not set");
        return;
    };
    let store = open(&url.parse().unwrap(), &OpenOptions::default(), &env).unwrap();
    // A race is not lost every time.
    let tries: u32 = env.var("PEAT_TEST_TRIES").map_or(1, |tries| tries.parse().unwrap());
    for last in (0..tries).map(|n| n + 1 == tries) {
        match (probe(store.as_ref(), &env).await, env.var("PEAT_TEST_REFUSED")) {
            (Ok(verdict), None) => println!("PROBE {url}: {}", serde_json::to_string(&verdict).unwrap()),
            (Err(error), Some(why)) => {
                println!("PROBE {url}: {error:?}");
                // Either it is caught lying, or it does not even answer as its service would.
                assert!(matches!(error.code(), "store_refused" | "unsupported" | "not_gcs"), "{error:?}");
                assert!(error.to_string().contains(why), "{error:?}");
                return;
            }
            (Err(error), None) => panic!("{error:?}"),
            (Ok(verdict), Some(why)) => assert!(!last, "it should have been refused ({why}), but: {verdict:?}"),
        }
    }
}
