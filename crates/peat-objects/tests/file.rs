//! What only a store of files has to do.

use std::fs;
use std::sync::Arc;

use bytes::Bytes;
use peat_objects::{Created, Durability, FileStore, List, Range, Store};
use peat_testkit::clock::tokio_env;
use peat_types::Kind;

fn store(root: &std::path::Path) -> FileStore {
    FileStore::new(root, Durability::Process, &tokio_env(1))
}

#[tokio::test]
async fn numbered_keys_are_fanned_out() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    store.create("default/log/fffffffffffffe3b.452", Bytes::from("x")).await.unwrap();
    store.put("default/ns.json", Bytes::from("x")).await.unwrap();
    assert!(folder.path().join("default/log/fffffffffffff/fffffffffffffe3b.452").is_file());
    assert!(folder.path().join("default/ns.json").is_file());
}

#[tokio::test]
async fn first_key_of_a_long_log_is_the_newest() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    for number in [0_u64, 4096, 2 * 4096, 3 * 4096] {
        let key = format!("log/{:016x}.{number}", u64::MAX - number);
        store.create(&key, Bytes::from("x")).await.unwrap();
    }
    let page = store.list(&List { prefix: "log/".to_owned(), max_keys: Some(1), ..List::default() }).await.unwrap();
    assert_eq!(page.keys[0].key, format!("log/{:016x}.12288", u64::MAX - 12288));
}

#[tokio::test]
async fn a_missing_folder_is_an_error_and_never_made() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("not-mounted");
    let store = store(&root);
    let errors = [
        store.get("ns.json", Range::All).await.unwrap_err(),
        store.create("ns.json", Bytes::new()).await.unwrap_err(),
        store.put("ns.json", Bytes::new()).await.unwrap_err(),
        store.list(&List::default()).await.unwrap_err(),
        store.delete("ns.json").await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!((error.kind(), error.code()), (Kind::Offline, "store_missing"), "{error:?}");
    }
    assert!(!root.exists());
    store.init().unwrap();
    assert!(store.get("ns.json", Range::All).await.unwrap().is_none());
}

#[tokio::test]
async fn stray_files_are_not_objects() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    store.put("log/a", Bytes::from("x")).await.unwrap();
    fs::write(folder.path().join(".tmp/deadbeef"), "half").unwrap();
    fs::write(folder.path().join("log/.DS_Store"), "x").unwrap();
    fs::write(folder.path().join("log/README.TXT"), "x").unwrap();
    let keys: Vec<_> = store.list(&List::default()).await.unwrap().keys.into_iter().map(|k| k.key).collect();
    assert_eq!(keys, ["log/a"]);
}

#[tokio::test]
async fn no_temporary_file_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    store.create("a", Bytes::from("1")).await.unwrap();
    assert_eq!(store.create("a", Bytes::from("2")).await.unwrap(), Created::Exists);
    store.put("b", Bytes::from("3")).await.unwrap();
    assert_eq!(fs::read_dir(folder.path().join(".tmp")).unwrap().count(), 0);
}

#[tokio::test]
async fn full_durability_works_too() {
    let folder = tempfile::tempdir().unwrap();
    let store = FileStore::new(folder.path(), Durability::Full, &tokio_env(1));
    assert!(matches!(store.create("x/y/0000000000000000-z", Bytes::from("1")).await.unwrap(), Created::Created(_)));
    store.put("x/y/0000000000000000-z", Bytes::from("2")).await.unwrap();
    store.delete("x/y/0000000000000000-z").await.unwrap();
}

/// They wait for the disk on threads of their own.
#[tokio::test]
async fn with_full_durability_of_many_creates_of_one_key_at_once_one_wins() {
    let folder = tempfile::tempdir().unwrap();
    let store = FileStore::new(folder.path(), Durability::Full, &tokio_env(1));
    for slot in 0..4_u64 {
        let key = format!("log/{:016x}.{slot}", u64::MAX - slot);
        let bodies: Vec<Bytes> = (0..16_u8).map(|who| Bytes::from(vec![who; 200_000])).collect();
        let all = bodies.iter().map(|body| store.create(&key, body.clone()));
        let answers: Vec<Created> = futures::future::try_join_all(all).await.unwrap();
        let won: Vec<usize> = (0..16).filter(|who| answers[*who] != Created::Exists).collect();
        assert_eq!(won.len(), 1);
        assert_eq!(store.get(&key, Range::All).await.unwrap().unwrap().bytes, bodies[won[0]]);
    }
    assert_eq!(fs::read_dir(folder.path().join(".tmp")).unwrap().count(), 0);
}

#[tokio::test]
async fn keys_cannot_leave_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    for key in ["../x", "/etc/x", "a//b", "", "a/", ".tmp/x", "a/./b", "A", "a b", "a\0b"] {
        assert!(store.put(key, Bytes::new()).await.is_err(), "{key:?}");
        assert!(store.get(key, Range::All).await.is_err(), "{key:?}");
    }
}

#[tokio::test]
async fn a_file_where_a_folder_should_be() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    store.put("a", Bytes::from("1")).await.unwrap();
    assert!(store.get("a/b", Range::All).await.unwrap().is_none());
    assert!(store.get("log", Range::All).await.unwrap().is_none());
    let not_a_folder = FileStore::new(folder.path().join("a"), Durability::Process, &tokio_env(1));
    assert_eq!(not_a_folder.get("b", Range::All).await.unwrap_err().kind(), Kind::Invalid);
}

/// Sixteen threads, each with a store of its own as processes have, race for numbers.
#[test]
fn separate_openers_share_one_truth() {
    let folder = tempfile::tempdir().unwrap();
    let root = Arc::new(folder.path().to_owned());
    let threads: Vec<_> = (0..16_u64)
        .map(|who| {
            let root = root.clone();
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let store = FileStore::new(root.as_path(), Durability::Process, &tokio_env(who));
                    let mut won = Vec::new();
                    for slot in 0..50_u64 {
                        let key = format!("log/{:016x}.{slot}", u64::MAX - slot);
                        let created = store.create(&key, Bytes::from(who.to_string())).await.unwrap();
                        if created != Created::Exists {
                            won.push((key, who.to_string()));
                        }
                    }
                    won
                })
            })
        })
        .collect();
    let won: Vec<_> = threads.into_iter().flat_map(|t| t.join().unwrap()).collect();
    assert_eq!(won.len(), 50);
    for (key, who) in won {
        let number = key.strip_prefix("log/").unwrap();
        let path = folder.path().join("log").join(&number[..13]).join(number);
        assert_eq!(fs::read_to_string(path).unwrap(), who);
    }
}

#[tokio::test]
async fn temporary_files_of_killed_writers_are_swept() {
    let folder = tempfile::tempdir().unwrap();
    let temps = folder.path().join(".tmp");
    fs::create_dir(&temps).unwrap();
    let (old, young) = (temps.join("old"), temps.join("young"));
    fs::write(&young, "a writer somewhere else").unwrap();
    let file = fs::File::create(&old).unwrap();
    let day = file.metadata().unwrap().modified().unwrap() - std::time::Duration::from_secs(25 * 3600);
    file.set_modified(day).unwrap();
    store(folder.path()).put("a", Bytes::from("x")).await.unwrap();
    let left: Vec<_> = fs::read_dir(&temps).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(left, [young]);
}

#[tokio::test]
async fn who_comes_late_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    store.create("log/a", Bytes::from("first")).await.unwrap();
    // Where temporary files are made none can be any more.
    fs::remove_dir(folder.path().join(".tmp")).unwrap();
    fs::write(folder.path().join(".tmp"), "").unwrap();
    assert!(matches!(store.create("log/a", Bytes::from("second")).await.unwrap(), Created::Exists));
    store.create("log/b", Bytes::from("second")).await.unwrap_err();
    assert_eq!(fs::read(folder.path().join("log/a")).unwrap(), b"first");
}
