//! What every [`Store`] must do, as named cases that run against any of them.

use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::{BoxFuture, join_all};
use peat_objects::{Created, List, Object, Page, PrefixStore, Range, Store};
use peat_types::{Env, Result};

/// Why a case failed.
pub type Outcome = std::result::Result<(), String>;

type Shared = Arc<dyn Store>;
type Case = (&'static str, fn(Shared) -> BoxFuture<'static, Outcome>);

macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        &[$((stringify!($name), |store| Box::pin($name(store)))),*]
    };
}

/// All cases by name.
pub const CASES: &[Case] = cases![
    missing_object_is_none,
    created_object_reads_back,
    second_create_changes_nothing,
    empty_body,
    put_overwrites,
    delete_is_idempotent,
    create_after_delete,
    ranges,
    large_body,
    list_is_sorted_and_relative,
    list_of_numbers_is_sorted,
    list_first_key,
    list_pages,
    list_with_delimiter,
    list_pages_with_delimiter,
    list_of_nothing_is_empty,
    list_does_not_leave_its_folder,
    concurrent_creates_have_one_winner,
    concurrent_puts_are_never_torn,
    last_modified_is_reported,
];

/// Runs every case in a fresh folder of its own and returns the failures, each with the name of its case.
pub async fn run(store: &Shared, env: &Env) -> Vec<String> {
    let run = u64::from_le_bytes(env.random_bytes());
    let mut failures = Vec::new();
    for (name, case) in CASES {
        let folder = format!("conformance-{run:016x}/{}", name.replace('_', "-"));
        let outcome = match PrefixStore::new(store.clone(), &folder) {
            Ok(store) => case(Arc::new(store)).await,
            Err(e) => Err(format!("{e:?}")),
        };
        if let Err(why) = outcome {
            failures.push(format!("{name}: {why}"));
        }
        clean(store, &format!("{folder}/")).await;
    }
    failures
}

async fn clean(store: &Shared, prefix: &str) {
    let mut list = List { prefix: prefix.to_owned(), ..List::default() };
    while let Ok(page) = store.list(&list).await {
        join_all(page.keys.iter().map(|listed| store.delete(&listed.key))).await;
        list.token = page.token;
        if list.token.is_none() {
            break;
        }
    }
}

fn said<T>(result: Result<T>) -> std::result::Result<T, String> {
    result.map_err(|e| format!("{e:?}"))
}

fn same<T: PartialEq + Debug>(what: &str, got: &T, want: &T) -> Outcome {
    if got == want { Ok(()) } else { Err(format!("{what}: got {got:?}, want {want:?}")) }
}

async fn read(store: &Shared, key: &str, range: Range) -> std::result::Result<Object, String> {
    said(store.get(key, range).await)?.ok_or_else(|| format!("{key} is missing"))
}

async fn create(store: &Shared, key: &str, body: impl Into<Bytes>) -> std::result::Result<bool, String> {
    said(store.create(key, body.into()).await).map(|created| created != Created::Exists)
}

async fn fill(store: &Shared, keys: &[&str]) -> Outcome {
    for key in keys {
        said(store.put(key, Bytes::from((*key).to_owned())).await)?;
    }
    Ok(())
}

/// All pages of a listing: the keys and the prefixes in the order they came.
async fn pages(store: &Shared, list: List) -> std::result::Result<(Vec<String>, Vec<String>), String> {
    let (mut list, mut keys, mut prefixes) = (list, Vec::new(), Vec::new());
    for _ in 0..100 {
        let Page { keys: k, prefixes: p, token } = said(store.list(&list).await)?;
        if let Some(max) = list.max_keys {
            same("page within max_keys", &(k.len() + p.len() <= usize::from(max)), &true)?;
        }
        keys.extend(k.into_iter().map(|listed| listed.key));
        prefixes.extend(p);
        list.token = token;
        if list.token.is_none() {
            return Ok((keys, prefixes));
        }
    }
    Err("the listing does not end".to_owned())
}

/// Prefixes come in any order: some servers sort them by the folder's name, some with its slash.
fn sorted(mut prefixes: Vec<String>) -> Vec<String> {
    prefixes.sort();
    prefixes
}

fn owned(keys: &[&str]) -> Vec<String> {
    keys.iter().map(|key| (*key).to_owned()).collect()
}

fn folder(prefix: &str) -> List {
    List { prefix: prefix.to_owned(), ..List::default() }
}

async fn missing_object_is_none(store: Shared) -> Outcome {
    for range in [Range::All, Range::Part { offset: 0, len: 10 }, Range::Last { len: 10 }] {
        same("get", &said(store.get("log/none", range).await)?.is_none(), &true)?;
    }
    Ok(())
}

async fn created_object_reads_back(store: Shared) -> Outcome {
    same("created", &create(&store, "ns.json", "hello").await?, &true)?;
    let object = read(&store, "ns.json", Range::All).await?;
    same("bytes", &object.bytes, &Bytes::from("hello"))?;
    same("size", &object.size, &5)
}

async fn second_create_changes_nothing(store: Shared) -> Outcome {
    let key = "log/ffffffffffffffff.0";
    same("first create", &create(&store, key, "one").await?, &true)?;
    same("second create", &create(&store, key, "two").await?, &false)?;
    same("create of the same bytes", &create(&store, key, "one").await?, &false)?;
    same("bytes", &read(&store, key, Range::All).await?.bytes, &Bytes::from("one"))
}

async fn empty_body(store: Shared) -> Outcome {
    same("created", &create(&store, "empty", "").await?, &true)?;
    same("again", &create(&store, "empty", "x").await?, &false)?;
    for range in [Range::All, Range::Part { offset: 0, len: 1 }, Range::Last { len: 1 }] {
        let object = read(&store, "empty", range).await?;
        same("empty", &(object.bytes.len(), object.size), &(0, 0))?;
    }
    Ok(())
}

async fn put_overwrites(store: Shared) -> Outcome {
    for body in ["first", "second, longer", "3"] {
        said(store.put("beat/0000000000000000-a", Bytes::from(body)).await)?;
        let object = read(&store, "beat/0000000000000000-a", Range::All).await?;
        same("bytes", &object.bytes, &Bytes::from(body))?;
    }
    Ok(())
}

async fn delete_is_idempotent(store: Shared) -> Outcome {
    said(store.delete("tx/none").await)?;
    fill(&store, &["tx/one"]).await?;
    said(store.delete("tx/one").await)?;
    said(store.delete("tx/one").await)?;
    same("get", &said(store.get("tx/one", Range::All).await)?.is_none(), &true)
}

async fn create_after_delete(store: Shared) -> Outcome {
    same("create", &create(&store, "probe/x", "1").await?, &true)?;
    said(store.delete("probe/x").await)?;
    same("create", &create(&store, "probe/x", "2").await?, &true)?;
    same("bytes", &read(&store, "probe/x", Range::All).await?.bytes, &Bytes::from("2"))
}

async fn ranges(store: Shared) -> Outcome {
    said(store.put("pack/0000000000000001-a", Bytes::from("0123456789")).await)?;
    let part = |offset, len| Range::Part { offset, len };
    let last = |len| Range::Last { len };
    let wanted = [
        (part(0, 4), "0123"),
        (part(3, 4), "3456"),
        (part(8, 4), "89"),
        (part(9, 1), "9"),
        (part(10, 4), ""),
        (part(99, 4), ""),
        (last(3), "789"),
        (last(10), "0123456789"),
        (last(99), "0123456789"),
        (Range::All, "0123456789"),
    ];
    for (range, want) in wanted {
        let object = read(&store, "pack/0000000000000001-a", range).await?;
        same(&format!("{range:?}"), &object.bytes, &Bytes::from(want))?;
        same(&format!("size of {range:?}"), &object.size, &10)?;
    }
    Ok(())
}

async fn large_body(store: Shared) -> Outcome {
    let body: Bytes = (0..9_000_001_u32).flat_map(|i| (i % 251).to_le_bytes().into_iter().take(1)).collect();
    same("created", &create(&store, "pack/0000000000000001-b", body.clone()).await?, &true)?;
    same("equal", &(read(&store, "pack/0000000000000001-b", Range::All).await?.bytes == body), &true)?;
    let range = Range::Part { offset: 8_000_000, len: 70_000 };
    let part = read(&store, "pack/0000000000000001-b", range).await?;
    same("part", &(part.bytes == body.slice(8_000_000..8_070_000)), &true)
}

async fn list_is_sorted_and_relative(store: Shared) -> Outcome {
    fill(&store, &["tx/b", "tx/a", "tx/a-1", "tx/a.1", "tx/0", "tx/zz", "ns.json"]).await?;
    let (keys, prefixes) = pages(&store, folder("tx/")).await?;
    same("keys", &keys, &owned(&["tx/0", "tx/a", "tx/a-1", "tx/a.1", "tx/b", "tx/zz"]))?;
    same("prefixes", &prefixes, &Vec::new())?;
    let page = said(store.list(&folder("tx/")).await)?;
    same("sizes", &page.keys.iter().map(|k| k.size).collect::<Vec<_>>(), &vec![4, 4, 6, 6, 4, 5])
}

const NUMBERS: [&str; 9] = [
    "log/ffffffffffffe000.8191",
    "log/ffffffffffffefff.4096",
    "log/fffffffffffff000.4095",
    "log/fffffffffffff000.4095-x",
    "log/fffffffffffffe3a.453",
    "log/fffffffffffffe3b.452",
    "log/ffffffffffffffff.0",
    "log/x",
    "log/zzzzzzzzzzzzzzzz.1",
];

async fn list_of_numbers_is_sorted(store: Shared) -> Outcome {
    let mut shuffled = NUMBERS;
    shuffled.reverse();
    shuffled.swap(1, 6);
    fill(&store, &shuffled).await?;
    // Both look like a folder of the fan-out that file stores use.
    fill(&store, &["log/fffffffffffff.x", "log/ffffffffffffff"]).await?;
    let mut want = owned(&NUMBERS);
    want.extend(owned(&["log/fffffffffffff.x", "log/ffffffffffffff"]));
    want.sort();
    same("keys", &pages(&store, folder("log/")).await?.0, &want)?;
    let one = List { max_keys: Some(1), ..folder("log/") };
    same("keys, one by one", &pages(&store, one).await?.0, &want)?;
    same("below a fan-out", &pages(&store, folder("log/fffffffffffff/")).await?.0, &Vec::new())
}

async fn list_first_key(store: Shared) -> Outcome {
    fill(&store, &NUMBERS).await?;
    let page = said(store.list(&List { max_keys: Some(1), ..folder("log/") }).await)?;
    same("first", &page.keys.first().map(|k| k.key.as_str()), &Some(NUMBERS[0]))?;
    same("there is more", &page.token.is_some(), &true)
}

async fn list_pages(store: Shared) -> Outcome {
    let keys: Vec<String> = (0..23).map(|i| format!("tx/{i:016x}-{i}")).collect();
    fill(&store, &keys.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    for max in [1, 2, 5, 22, 23, 24, 1000] {
        let (got, _) = pages(&store, List { max_keys: Some(max), ..folder("tx/") }).await?;
        same(&format!("pages of {max}"), &got, &keys)?;
    }
    Ok(())
}

const TREE: [&str; 7] = ["a/ns.json", "a/log/1", "b-1/x", "b/x/y/z", "b/x/y/zz", "top", "c/1"];

async fn list_with_delimiter(store: Shared) -> Outcome {
    fill(&store, &TREE).await?;
    let list = |prefix: &str| List { delimiter: true, ..folder(prefix) };
    let (keys, prefixes) = pages(&store, list("")).await?;
    same("keys", &keys, &owned(&["top"]))?;
    same("prefixes", &sorted(prefixes), &owned(&["a/", "b-1/", "b/", "c/"]))?;
    let (keys, prefixes) = pages(&store, list("a/")).await?;
    same("keys in a/", &keys, &owned(&["a/ns.json"]))?;
    same("prefixes in a/", &prefixes, &owned(&["a/log/"]))?;
    let (keys, prefixes) = pages(&store, list("b/")).await?;
    same("b/", &(keys, prefixes), &(Vec::new(), owned(&["b/x/"])))
}

async fn list_pages_with_delimiter(store: Shared) -> Outcome {
    fill(&store, &TREE).await?;
    for max in 1..5 {
        let (keys, prefixes) = pages(&store, List { delimiter: true, max_keys: Some(max), ..List::default() }).await?;
        same(&format!("keys by {max}"), &keys, &owned(&["top"]))?;
        same(&format!("prefixes by {max}"), &sorted(prefixes), &owned(&["a/", "b-1/", "b/", "c/"]))?;
    }
    Ok(())
}

async fn list_of_nothing_is_empty(store: Shared) -> Outcome {
    same("root", &said(store.list(&List::default()).await)?, &Page::default())?;
    fill(&store, &["log/1"]).await?;
    same("folder", &said(store.list(&folder("tx/")).await)?, &Page::default())?;
    said(store.delete("log/1").await)?;
    same("after delete", &said(store.list(&folder("log/")).await)?, &Page::default())
}

async fn list_does_not_leave_its_folder(store: Shared) -> Outcome {
    fill(&store, &["tx/a", "tx-1", "tx.1", "tx1/a", "tw/a", "ty/a"]).await?;
    same("keys", &pages(&store, folder("tx/")).await?.0, &owned(&["tx/a"]))
}

async fn concurrent_creates_have_one_winner(store: Shared) -> Outcome {
    for round in 0..5 {
        let key = format!("log/{round:016x}.{round}");
        let creates = (0..16_u8).map(|who| {
            let (store, key) = (store.clone(), key.clone());
            tokio::spawn(async move { (who, store.create(&key, Bytes::from(vec![who; 100])).await) })
        });
        let mut winners = Vec::new();
        for reply in join_all(creates).await {
            let (who, reply) = reply.map_err(|e| e.to_string())?;
            // An error is no answer to the question, as under load on a real server.
            if matches!(reply, Ok(Created::Created(_))) {
                winners.push(who);
            }
        }
        let body = read(&store, &key, Range::All).await?.bytes;
        same("winners", &winners.len(), &1)?;
        same("the winner's body", &body, &Bytes::from(vec![winners[0]; 100]))?;
    }
    Ok(())
}

async fn concurrent_puts_are_never_torn(store: Shared) -> Outcome {
    let body = |who: u8| Bytes::from(vec![who; 100_000 + usize::from(who)]);
    said(store.put("beat/0000000000000000-b", body(0)).await)?;
    let writer = {
        let store = store.clone();
        tokio::spawn(async move {
            for who in 1..20 {
                said(store.put("beat/0000000000000000-b", body(who)).await)?;
            }
            Ok::<_, String>(())
        })
    };
    while !writer.is_finished() {
        let object = read(&store, "beat/0000000000000000-b", Range::All).await?;
        let who = object.bytes.first().copied().unwrap_or_default();
        same("whole", &(object.bytes == body(who)), &true)?;
        tokio::task::yield_now().await;
    }
    writer.await.map_err(|e| e.to_string())?
}

async fn last_modified_is_reported(store: Shared) -> Outcome {
    if store.to_string().starts_with("memory:") {
        return Ok(());
    }
    fill(&store, &["beat/0000000000000000-c"]).await?;
    let object = read(&store, "beat/0000000000000000-c", Range::All).await?;
    same("get", &object.meta.last_modified.is_some(), &true)?;
    let page = said(store.list(&folder("beat/")).await)?;
    same("list", &page.keys.iter().all(|listed| listed.last_modified.is_some()), &true)
}
