//! Telling the datastores and repositories of swamp from others, by the names they have. Nothing of theirs is changed.

use std::path::Path;

use peat_objects::{List, Pages};
use peat_types::{Error, Kind, Namespace, Result};

use crate::store::Opened;

/// Names at the root of its datastore, or of a namespace in one.
const NAMES: [&str; 7] = [
    ".datastore-index.json",
    "_index/",
    ".namespace.json",
    ".catalog-export.json",
    ".datastore.lock",
    "definitions-evaluated/",
    "workflows-evaluated/",
];
/// Its marker in a repository.
const MARKER: &str = ".swamp.yaml";
/// Folders at the root of a store that are looked into.
const FOLDERS: usize = 16;
/// Names looked at in each place, at most.
const MOST: usize = 5000;

/// Whether one of the names, of which those of folders end in `/`, is its own.
pub(crate) fn among(names: &[String]) -> bool {
    names.iter().any(|name| NAMES.contains(&name.as_str()))
}

/// Names directly below a folder of a store, or its root; those of folders end in `/`.
pub(crate) async fn names(opened: &Opened, prefix: &str) -> Result<Vec<String>> {
    let mut pages = Pages::new(&*opened.store, List { prefix: prefix.to_owned(), delimiter: true, ..List::default() });
    let mut names = Vec::new();
    while names.len() < MOST
        && let Some(page) = pages.next().await?
    {
        names.extend(page.keys.into_iter().map(|listed| listed.key).chain(page.prefixes));
    }
    for name in &mut names {
        *name = name.strip_prefix(prefix).unwrap_or(name).to_owned();
    }
    if let Some(folder) = &opened.folder {
        // A store in a folder shows only what could be its own.
        let folder = folder.join(prefix);
        names.extend(NAMES.iter().filter(|name| folder.join(name).exists()).map(|name| (*name).to_owned()));
    }
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// Refuses a store that holds its data in the folder of the namespace; where it costs no right to another place (in a
/// folder), or where one may `look_around`, also in the root and in other folders of it.
///
/// # Errors
/// `Invalid` with code `swamp_data`; what the store says.
pub(crate) async fn refuse(opened: &Opened, namespace: &Namespace, look_around: bool) -> Result<()> {
    // First, and always: a folder of which nothing could be Peat's is not in the listing.
    let mut places = vec![format!("{namespace}/")];
    if look_around || opened.folder.is_some() {
        match names(opened, "").await {
            Err(error) if error.kind() == Kind::Denied => {}
            listed => places.extend(listed?),
        }
    }
    refuse_at(opened, &places).await
}

/// The same, with the names at the root known.
pub(crate) async fn refuse_at(opened: &Opened, root: &[String]) -> Result<()> {
    if among(root) {
        return Err(found(opened, ""));
    }
    // Its namespaces have names as those of Peat.
    let slug = |name: &&String| name.strip_suffix('/').is_some_and(|slug| slug.parse::<Namespace>().is_ok());
    for folder in root.iter().filter(slug).take(FOLDERS) {
        match names(opened, folder).await {
            Ok(names) if among(&names) => return Err(found(opened, folder)),
            Err(error) if error.kind() != Kind::Denied => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// What is said of a datastore in `folder` of a store.
fn found(opened: &Opened, folder: &str) -> Error {
    let url = opened.url.trim_end_matches('/');
    let (place, whose) = match folder.trim_end_matches('/') {
        "" => (url.to_owned(), String::new()),
        namespace => (format!("{url}/{namespace}"), format!(" for its namespace '{namespace}'")),
    };
    Error::invalid(format!("{place} was written by swamp's datastore{whose}; Peat neither reads nor changes it"))
        .with_code("swamp_data")
        .with_hint("Peat cannot import it yet: what it holds stays usable with swamp")
        .with_hint(format!("begin with a prefix of its own: '{}'", opened.setup_at("/peat")))
}

/// Whether a folder is one of its repositories.
pub(crate) fn is_repo(dir: &Path) -> bool {
    dir.join(MARKER).is_file()
}
