//! What lies where a ledger is wanted. Reads only.

use std::path::Path;

use futures::stream::{self, StreamExt, TryStreamExt};
use peat_clone::{Moved, NsInfo, Standing};
use peat_objects::{Range, StoreUrl};
use peat_types::{Env, Error, Kind, Namespace, Result};

use crate::store::Opened;
use crate::swamp::{self, names};
use crate::{Datastore, Host};

/// Folders of a ledger, and that of a probe that was killed or may not delete.
const LEDGER: [&str; 5] = ["log/", "pack/", "tx/", "beat/", "probe/"];
const PARALLEL: usize = 16;
/// Folders above a store that are looked at.
const LEVELS: usize = 12;
/// Things in such a folder that are looked at, and folders of a bucket that are looked into. One with more is taken for no
/// store: nobody has so many namespaces.
const ENTRIES: usize = 4096;

/// Refuses a folder that is, or lies in, a namespace of another store, or that lies in such a store.
pub(super) fn not_nested(folder: &Path) -> Result<()> {
    in_no_namespace(folder)?;
    let Some((store, namespace)) =
        folder.ancestors().skip(1).take(LEVELS).find_map(|above| Some((above, holds(above)?)))
    else {
        return Ok(());
    };
    let message = format!(
        "{} lies inside another store, {}, beside its namespace '{namespace}'",
        folder.display(),
        store.display()
    );
    Err(Error::invalid(message)
        .with_code("inside_a_store")
        .with_hint("choose a folder that is not part of a store")
        .with_hint(format!(
            "to use another namespace of that store: 'peat datastore setup file://{} --namespace NAME'",
            store.display()
        )))
}

/// A namespace of the store in this folder, if it is one. A folder with very many things in it is taken for none.
fn holds(folder: &Path) -> Option<Namespace> {
    let names = std::fs::read_dir(folder).ok()?.take(ENTRIES).flatten().map(|entry| entry.file_name());
    names.filter_map(|name| name.to_str()?.parse().ok()).find(|slug: &Namespace| {
        let text = std::fs::read(folder.join(slug.as_str()).join("ns.json")).ok();
        let info = text.and_then(|text| serde_json::from_slice::<NsInfo>(&text).ok());
        info.is_some_and(|info| info.namespace == *slug)
    })
}

fn in_no_namespace(folder: &Path) -> Result<()> {
    let Some(namespace) = folder.ancestors().take(LEVELS).find(|above| above.join("ns.json").is_file()) else {
        return Ok(());
    };
    Err(Error::invalid(format!(
        "{} lies inside a namespace of another store: {}",
        folder.display(),
        namespace.display()
    ))
    .with_code("inside_a_store")
    .with_hint("choose a folder that is not part of a store")
    .with_hint(match (namespace.parent(), namespace.file_name()) {
        (Some(store), Some(name)) => format!(
            "to use that namespace: 'peat datastore setup file://{} --namespace {}'",
            store.display(),
            name.display()
        ),
        _ => "a store is the folder above its namespaces".to_owned(),
    }))
}

/// Refuses a folder of a bucket that is, or lies in, a namespace of another store, or that lies in such a store. What one may
/// not read is passed over: rights to the folder of the namespace are enough.
pub(super) async fn not_nested_in_bucket(host: &Host, settings: &Datastore) -> Result<()> {
    let open = |url: &StoreUrl| host.stores.open(&Datastore { url: url.to_string(), ..settings.clone() }, &host.env);
    let target: StoreUrl = settings.url.parse()?;
    let mut at = target.clone();
    for _ in 0..LEVELS {
        let Some((above, name)) = at.above() else { return Ok(()) };
        if allowed(open(&at)?.store.get("ns.json", Range::All).await)?.flatten().is_some() {
            return Err(Error::invalid(format!("{target} lies inside a namespace of another store: {at}"))
                .with_code("inside_a_store")
                .with_hint("choose a folder that is not part of a store")
                .with_hint(format!("to use that namespace: '{}'", open(&above)?.setup(name))));
        }
        let store = open(&above)?;
        let names = allowed(names(&store, "").await)?.unwrap_or_default();
        let slugs: Vec<String> = names.into_iter().filter(|name| name.ends_with('/')).take(ENTRIES).collect();
        if let Some(beside) = namespaces(&store, &slugs).await?.first() {
            let message =
                format!("{target} lies inside another store, {above}, beside its namespace '{}'", beside.namespace);
            return Err(Error::invalid(message)
                .with_code("inside_a_store")
                .with_hint("choose a folder that is not part of a store")
                .with_hint(format!("to use another namespace of that store: '{}'", store.setup("NAME"))));
        }
        at = above;
    }
    Ok(())
}

/// What was read; `None` when that is not allowed.
fn allowed<T>(read: Result<T>) -> Result<Option<T>> {
    match read {
        Err(error) if error.kind() == Kind::Denied => Ok(None),
        read => read.map(Some),
    }
}

/// Looks around at the root of a store when no namespace was named: the default one is meant only where there is none, or
/// where it is this repository's.
pub(super) async fn root(opened: &Opened, default: &Namespace, owner: &str, env: &Env) -> Result<()> {
    let names = names(opened, "").await?;
    if names.iter().any(|name| name == "ns.json") {
        return Err(Error::invalid(format!("{} is a namespace of another store, not a store", opened.url))
            .with_code("inside_a_store")
            .with_hint("leave the last part of the URL out, and give it as --namespace"));
    }
    let namespaces = namespaces(opened, &names).await?;
    if namespaces.iter().any(|info| info.namespace == *default && info.owner == owner) {
        return Ok(());
    }
    if !namespaces.is_empty() {
        let list: Vec<String> =
            namespaces.iter().map(|info| format!("{} (repository {})", info.namespace, info.owner)).collect();
        let error = Error::invalid(format!("{} has namespaces, and none was named: {}", opened.url, list.join(", ")))
            .with_code("namespace_needed");
        let mut own = None;
        for info in namespaces.iter().filter(|info| info.owner == owner) {
            // One that was left is not used again.
            if own.is_none() && went(opened, info, env).await.is_none() {
                own = Some(info);
            }
        }
        return Err(match own {
            Some(info) => error.with_hint(format!("that of this repository: '{}'", opened.setup(&info.namespace))),
            None => error.with_hint(format!("name a new one: '{}'", opened.setup("NAME"))),
        });
    }
    Box::pin(swamp::refuse_at(opened, &names)).await?;
    let foreign = names.iter().filter(|name| **name != format!("{default}/")).collect::<Vec<_>>();
    if foreign.is_empty() { Ok(()) } else { Err(not_peat(opened, &opened.url, &foreign)) }
}

/// Refuses a namespace that holds something else than a ledger, and a folder that is swamp's.
pub(super) async fn namespace(opened: &Opened, namespace: &Namespace) -> Result<()> {
    Box::pin(swamp::refuse(opened, namespace, false)).await?;
    let names = names(opened, &format!("{namespace}/")).await?;
    let foreign: Vec<&String> = names.iter().filter(|name| !LEDGER.contains(&name.as_str())).collect();
    if foreign.is_empty() {
        return Ok(());
    }
    Err(not_peat(opened, &format!("{}/{namespace}", opened.url.trim_end_matches('/')), &foreign))
}

fn not_peat(opened: &Opened, place: &str, foreign: &[&String]) -> Error {
    let some: Vec<&str> = foreign.iter().take(3).map(|name| name.as_str()).collect();
    Error::invalid(format!("{place} holds something else than Peat's data: {}", some.join(", ")))
        .with_code("not_peat_data")
        .with_hint(format!("use a prefix of its own: '{}'", opened.setup_at("/peat")))
}

/// Where the ledger of a namespace went, if it did and that can be told. Two requests.
pub(in crate::datastore) async fn went(opened: &Opened, info: &NsInfo, env: &Env) -> Option<Moved> {
    let store = opened.within(info.namespace.as_str()).ok()?;
    Standing::of(store, env, info.clone()).await.ok()?.0.moved
}

/// Reads an `ns.json`.
pub(super) fn info(opened: &Opened, namespace: &Namespace, bytes: &[u8]) -> Result<NsInfo> {
    let bad = || format!("{namespace}/ns.json in {} cannot be read", opened.url);
    let value: serde_json::Value = serde_json::from_slice(bytes).map_err(|e| {
        Error::damaged(bad())
            .with_code("not_peat_data")
            .with_hint("if it was Peat's: on a machine that has a clone 'peat doctor --repair' writes it again")
            .with_source(e)
    })?;
    serde_json::from_value(value).map_err(|e| {
        Error::new(Kind::Unsupported, bad())
            .with_code("unsupported_version")
            .with_hint("a newer version of peat may have written it: install that")
            .with_source(e)
    })
}

/// All namespaces of a store by name, and those whose `ns.json` cannot be read.
pub(in crate::datastore) async fn all(opened: &Opened) -> Result<(Vec<NsInfo>, Vec<Namespace>)> {
    read(opened, &names(opened, "").await?).await
}

/// The namespaces among names at the root of a store, by name.
async fn namespaces(opened: &Opened, names: &[String]) -> Result<Vec<NsInfo>> {
    Ok(read(opened, names).await?.0)
}

async fn read(opened: &Opened, names: &[String]) -> Result<(Vec<NsInfo>, Vec<Namespace>)> {
    let slugs = names.iter().filter_map(|name| name.strip_suffix('/')?.parse::<Namespace>().ok());
    let reads: Vec<_> = slugs.map(|slug| info_of(opened, slug)).collect();
    let read: Vec<Option<Result<NsInfo, Namespace>>> = stream::iter(reads).buffered(PARALLEL).try_collect().await?;
    let (mut infos, mut unreadable) = (Vec::new(), Vec::new());
    for one in read.into_iter().flatten() {
        match one {
            Ok(info) => infos.push(info),
            Err(slug) => unreadable.push(slug),
        }
    }
    Ok((infos, unreadable))
}

async fn info_of(opened: &Opened, slug: Namespace) -> Result<Option<Result<NsInfo, Namespace>>> {
    let store = opened.within(slug.as_str())?;
    let object = match store.get("ns.json", Range::All).await {
        Ok(object) => object,
        // Rights to some of them only.
        Err(error) if error.kind() == Kind::Denied => None,
        Err(error) => return Err(error),
    };
    Ok(object.map(|object| info(opened, &slug, &object.bytes).map_err(|_| slug)))
}
