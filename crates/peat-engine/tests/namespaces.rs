//! Namespaces of one store: listing, changing, renaming, and reading others.
#![allow(clippy::unwrap_used, clippy::panic, clippy::large_futures, clippy::needless_pass_by_value)]

mod support;

use peat_engine::DataGet;
use peat_engine::report::SetupAction;
use peat_types::Kind;
use serde_json::json;
use support::{World, get, go, hints, setup};

#[tokio::test]
async fn namespaces_are_listed_set_and_renamed() {
    let world = World::new();
    let (ann, repo) = world.on("ann", "ops").await;
    go(&repo, json!({"n": 1})).await;
    world.on("eve", "pay").await;
    let list = repo.namespace_list().await.unwrap();
    let rows: Vec<_> = list.namespaces.iter().map(|row| (row.namespace.as_str(), row.is_current, row.is_own)).collect();
    assert_eq!(rows, [("ops", true, true), ("pay", false, false)]);

    let plan = repo.namespace_set("other", true).await.unwrap();
    assert_eq!((plan.action, plan.dry_run), (SetupAction::Create, true));
    assert!(!world.cloud.has("other/").await);
    let set = repo.namespace_set("other", false).await.unwrap();
    assert!(set.warnings[0].contains("'peat datastore namespace set ops' leads back"), "{set:?}");
    let repo = ann.repo();
    assert_eq!(repo.data_get(&get("result")).await.unwrap_err().kind(), Kind::NotFound);
    assert_eq!(repo.namespace_set("ops", false).await.unwrap().action, SetupAction::Join);
    let repo = ann.repo();
    assert_eq!(repo.data_get(&get("result")).await.unwrap().version, 1);

    let taken = repo.namespace_rename("pay", false).await.unwrap_err();
    assert_eq!(taken.code(), "namespace_taken", "{taken:?}");
    let preview = repo.namespace_rename("infra", true).await.unwrap();
    assert_eq!(preview.action, SetupAction::Move);
    assert!(preview.objects_copied > 0 && !world.cloud.has("infra/").await);
    let renamed = repo.namespace_rename("infra", false).await.unwrap();
    assert_eq!((renamed.objects_copied, renamed.items_copied), (preview.objects_copied, preview.items_copied));
    let repo = ann.repo();
    assert_eq!(repo.marker().datastore.as_ref().unwrap().namespace.as_deref(), Some("infra"));
    assert_eq!(go(&repo, json!({"n": 2})).await.report.data_artifacts[0].version, Some(2));
    assert!(repo.namespace_rename("infra", false).await.is_err());
    // One that exists is never moved onto, whatever is in it.
    let error = repo.namespace_rename("other", false).await.unwrap_err();
    assert!(["two_histories", "already_exists"].contains(&error.code()), "{error:?}");
    repo.namespace_rename("default", false).await.unwrap();
    assert_eq!(ann.repo().data_versions("m", "result", false).await.unwrap().total, 2);
}

#[tokio::test]
async fn names_are_checked_before_any_request() {
    let world = World::new();
    let (_ann, repo) = world.on("ann", "ops").await;
    let asked = world.cloud.requests();
    for name in ["a/b", "-a", "A", "", "_control", "log", "pack", "tx", "beat", "a..b", &"x".repeat(64)] {
        for error in [
            repo.namespace_set(name, false).await.unwrap_err(),
            repo.namespace_rename(name, false).await.unwrap_err(),
            repo.catalog_pull(&["pay".to_owned(), name.to_owned()]).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), Kind::Invalid, "{name}: {error:?}");
            assert!(!error.hints().is_empty(), "{name}: {error:?}");
        }
    }
    assert_eq!(world.cloud.requests(), asked);
    let alone = world.machine("bob", &[]);
    alone.init().await;
    for error in [
        alone.repo().namespace_set("x", false).await.unwrap_err(),
        alone.repo().catalog_pull(&["x".to_owned()]).await.unwrap_err(),
    ] {
        assert_eq!(error.code(), "not_shared");
        assert!(hints(&error).contains("peat datastore setup"), "{error:?}");
    }
}

#[tokio::test]
async fn other_namespaces_are_read_on_demand_and_never_written() {
    let world = World::new();
    let (ann, repo) = world.on("ann", "ops").await;
    let (_eve, other) = world.on("eve", "pay").await;
    for n in 0..3 {
        go(&other, json!({ "n": n })).await;
    }
    let id = other.definition("m").unwrap().id;
    go(&repo, json!({"n": 9})).await;
    let before = world.cloud.keys("pay/").await;
    let catalog = repo.catalog_pull(&["pay".to_owned()]).await.unwrap().namespaces;
    assert_eq!((catalog[0].models.as_slice(), catalog[0].units), (["m".to_owned()].as_slice(), 1));
    let view = repo.data_get(&of("pay:m")).await.unwrap();
    assert_eq!((view.version, view.content.unwrap(), &view.model_id), (3, json!({"n": 2}), &id));
    let first = repo.data_get(&DataGet { version: Some(1), ..of(&format!("pay:{}", &id[..8])) }).await.unwrap();
    assert_eq!(first.content.unwrap(), json!({"n": 0}));
    assert_eq!(repo.data_versions("pay:m", "result", false).await.unwrap().total, 3);
    assert_eq!(repo.data_list("pay:m", None, false).await.unwrap().total, 1);
    assert_eq!(repo.output_get("pay:m", false).await.unwrap().model_name.as_deref(), Some("m"));
    // What is new there is seen when it is asked for.
    go(&other, json!({"n": 3})).await;
    assert_eq!(repo.data_get(&of("pay:m")).await.unwrap().version, 3);
    assert_eq!(repo.data_get(&DataGet { fresh: true, ..of("pay:m") }).await.unwrap().version, 4);
    // The own one is another.
    assert_eq!(repo.data_get(&of("m")).await.unwrap().content.unwrap(), json!({"n": 9}));
    let added: Vec<String> = world.cloud.keys("pay/").await.into_iter().filter(|key| !before.contains(key)).collect();
    assert!(added.iter().all(|key| key.starts_with("pay/log/")) && added.len() == 2, "only Eve wrote: {added:?}");

    let error = repo.data_get(&of("nowhere:m")).await.unwrap_err();
    assert_eq!(error.code(), "namespace_missing", "{error:?}");
    // A command that is offered must not lead the repository there.
    assert!(!hints(&error).contains("setup") && hints(&error).contains("namespace list"), "{error:?}");
    let error = repo.catalog_pull(&["nowhere".to_owned()]).await.unwrap_err();
    assert!(!hints(&error).contains("setup") && hints(&error).contains("namespace list"), "{error:?}");
    let error = repo.data_get(&of("pay:nope")).await.unwrap_err();
    assert_eq!(error.code(), "model_not_found");
    assert!(hints(&error).contains("'peat datastore catalog pull --namespaces pay'"), "{error:?}");
    // What helps is said in the words of who asked.
    let miss = DataGet { name: "nope".to_owned(), ..of("pay:m") };
    let version = DataGet { version: Some(99), ..of("pay:m") };
    for (error, command) in [
        (repo.data_get(&miss).await.unwrap_err(), "'peat data list pay:m'"),
        (repo.data_get(&version).await.unwrap_err(), "'peat data versions pay:m result'"),
        (repo.output_get("pay:nope", false).await.unwrap_err(), "'peat model output search pay:'"),
    ] {
        let hints = hints(&error);
        assert!(hints.contains(command) && !hints.contains("sync"), "{hints}");
        assert!(hints.contains("'peat datastore catalog pull --namespaces pay'"), "{hints}");
    }
    for query in ["pay:m", "pay:"] {
        let found = repo.output_search(query, 9, false).await.unwrap().results;
        assert!(found.len() == 4 && found.iter().all(|row| row.definition_id == id), "{query}: {found:?}");
    }
    assert_eq!(repo.output_search("nowhere:m", 9, false).await.unwrap_err().code(), "namespace_missing");
    assert!(repo.data_get(&of("No Slug:m")).await.is_err());
    // Nobody runs or deletes anything there.
    let run =
        repo.run(&support::request("pay:m", json!({})), &peat_engine::Cancel::default(), &peat_engine::Quiet).await;
    assert_eq!(run.unwrap_err().code(), "model_not_found");
    assert!(repo.model_delete("pay:m", true).await.is_err());
    drop(ann);
}

#[tokio::test]
async fn a_repo_on_a_prefix_with_old_data_reads_and_pushes_only_its_own() {
    let world = World::new();
    let (_eve, other) = world.on("eve", "default").await;
    go(&other, json!({"n": 1})).await;
    let (ann, _) = {
        let machine = world.machine("ann", &[]);
        machine.init().await;
        let repo = machine.repo();
        let made = repo.datastore_setup(&setup("memory:", "b")).await.unwrap();
        assert_eq!((made.action, made.files_pulled), (SetupAction::Create, Some(0)));
        (machine, repo)
    };
    let repo = ann.repo();
    ann.model(&repo, "m");
    let before = world.cloud.keys("default/").await;
    go(&repo, json!({"n": 2})).await;
    assert_eq!(world.cloud.keys("default/").await, before);
    assert_eq!(repo.data_versions("m", "result", true).await.unwrap().total, 1);
}

#[tokio::test]
async fn a_namespace_of_another_repository_is_never_used_as_ones_own() {
    let world = World::new();
    let (_eve, other) = world.on("eve", "pay").await;
    go(&other, json!({"n": 1})).await;
    let (ann, repo) = world.on("ann", "ops").await;
    go(&repo, json!({"n": 2})).await;
    let marker = ann.dir.path().join(".peat.yaml");
    let own = std::fs::read_to_string(&marker).unwrap();
    let before = world.cloud.keys("pay/").await;
    // Pasted by hand, with and without a clone of it, and with an id that is not the repository's any more.
    std::fs::write(&marker, own.replace("namespace: ops", "namespace: pay")).unwrap();
    for _ in 0..2 {
        let repo = ann.repo();
        let (asked, cancel) = (support::request("m", json!({})), peat_engine::Cancel::default());
        let moved = setup("memory:", "mine");
        for error in [
            repo.run(&asked, &cancel, &peat_engine::Quiet).await.unwrap_err(),
            repo.data_get(&get("result")).await.unwrap_err(),
            repo.doctor(Default::default()).await.unwrap_err(),
            repo.datastore_setup(&moved).await.unwrap_err(),
            repo.datastore_gc(None, true).await.map(drop).unwrap_err(),
        ] {
            assert_eq!((error.kind(), error.code()), (Kind::Conflict, "owned_by_another"), "{error:?}");
            assert!(hints(&error).contains("--namespace NAME --skip-migration"), "{error:?}");
        }
    }
    assert_eq!(world.cloud.keys("pay/").await, before);
    assert!(!world.cloud.has("mine/").await);
    // The way out that is named.
    let out = peat_engine::SetupRequest { skip_migration: true, ..setup("memory:", "mine") };
    assert_eq!(ann.repo().datastore_setup(&out).await.unwrap().action, SetupAction::Create);
    assert_eq!(ann.repo().data_get(&of("pay:m")).await.unwrap().version, 1);

    let id = own.lines().find(|line| line.starts_with("repoId:")).unwrap();
    std::fs::write(&marker, own.replace(id, "repoId: 5b0c3b1e-2f5a-4a57-8a3f-7f0f0c9c1d11")).unwrap();
    assert_eq!(ann.repo().data_get(&get("result")).await.unwrap_err().code(), "owned_by_another");
    std::fs::write(&marker, own).unwrap();
    assert_eq!(ann.repo().data_get(&get("result")).await.unwrap().version, 1);
}

#[tokio::test]
async fn an_empty_namespace_is_renamed_and_the_old_one_is_closed() {
    let world = World::new();
    let (ann, repo) = world.on("ann", "ops").await;
    let (_bob, repo_b) = world.checkout(&ann, "bob");
    repo_b.sync(true, false).await.unwrap();
    let plan = repo.namespace_rename("infra", true).await.unwrap();
    let done = repo.namespace_rename("infra", false).await.unwrap();
    assert_eq!((plan.action, done.action, done.items_copied), (SetupAction::Move, SetupAction::Move, 0));
    // Nobody writes to what is left.
    let cancel = peat_engine::Cancel::default();
    let run = repo_b.run(&support::request("m", json!({})), &cancel, &peat_engine::Quiet).await;
    assert_eq!(run.unwrap_err().code(), "moved");
    assert_eq!(go(&ann.repo(), json!({"n": 1})).await.report.data_artifacts[0].version, Some(1));
}

fn of(model: &str) -> DataGet {
    DataGet { model: model.to_owned(), ..get("result") }
}
