//! Listing folders in the byte order of keys, reading no more of them than the page needs.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use peat_types::{Error, Result};

use super::{layout, meta_of};
use crate::key::MAX_PAGE;
use crate::{List, Listed, Page};

/// What waits to be listed, by key; a folder by its key with the slash, which sorts before everything in it.
type Queue = BTreeMap<String, Node>;

enum Node {
    File(PathBuf),
    Folder(PathBuf),
}

/// One page of the store in `root`. The token is the last key or prefix of the page before.
pub(super) fn page(root: &Path, list: &List) -> Result<Page> {
    // A prefix that looks like a fan-out may hold files of the folder above, which are not below it.
    let mut queue = expand(&root.join(&list.prefix), &list.prefix, None, &mut Queue::new())?;
    let max = usize::from(list.max_keys.unwrap_or(MAX_PAGE));
    let after = list.token.as_deref();
    let mut page = Page::default();
    let mut last = None;
    while let Some((key, node)) = queue.pop_first() {
        let full = page.keys.len() + page.prefixes.len() == max;
        let done = after.is_some_and(|after| key.as_str() <= after);
        match node {
            Node::File(_) if done => {}
            Node::File(_) if full => {
                page.token = last;
                break;
            }
            Node::File(path) => {
                let Some(meta) = stat(&path)? else { continue };
                last = Some(key.clone());
                page.keys.push(Listed { key, size: meta.len(), last_modified: meta_of(&meta).last_modified });
            }
            Node::Folder(path) => {
                let below = expand(&path, &key, after, &mut queue)?;
                if !list.delimiter {
                    queue.extend(below);
                } else if !done && !below.is_empty() && holds_files(below)? {
                    if full {
                        page.token = last;
                        break;
                    }
                    last = Some(key.clone());
                    page.prefixes.push(key);
                }
            }
        }
    }
    Ok(page)
}

/// Reads the folder `key` (ending in `/`) and returns what lies below it. Members of a fan-out are not below it but
/// beside it, so they go to `siblings`.
fn expand(path: &Path, key: &str, after: Option<&str>, siblings: &mut Queue) -> Result<Queue> {
    let mut below = Queue::new();
    let bare = key.trim_end_matches('/');
    let cut = bare.rfind('/').map_or(0, |at| at + 1);
    let (parent, name) = bare.split_at(cut);
    // Everything in it sorts before the token: a deep page must not read the folders of the pages before.
    let passed = after.is_some_and(|after| after >= format!("{bare}~").as_str());
    if passed {
        return Ok(below);
    }
    read_folder(path, key, &mut below)?;
    if layout::is_fan_out(name) {
        let members =
            below.extract_if(.., |k, node| matches!(node, Node::File(_)) && layout::is_member(name, &k[key.len()..]));
        siblings.extend(members.map(|(k, node)| (format!("{parent}{}", &k[key.len()..]), node)));
    }
    Ok(below)
}

/// Adds the entries of one folder to `queue`. A missing folder has none.
fn read_folder(path: &Path, key: &str, queue: &mut Queue) -> Result<()> {
    let failed = |e| Error::io("list", path, e);
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(failed(e)),
    };
    for entry in entries {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| crate::key::check_key(name).is_ok()) else { continue };
        let kind = entry.file_type().map_err(|e| Error::io("list", &entry.path(), e))?;
        if kind.is_dir() || (kind.is_symlink() && entry.path().is_dir()) {
            queue.insert(format!("{key}{name}/"), Node::Folder(entry.path()));
        } else {
            queue.insert(format!("{key}{name}"), Node::File(entry.path()));
        }
    }
    Ok(())
}

/// Whether there is any object below; a folder without one is not a prefix.
fn holds_files(mut queue: Queue) -> Result<bool> {
    while let Some((key, node)) = queue.pop_first() {
        match node {
            Node::File(_) => return Ok(true),
            Node::Folder(path) => read_folder(&path, &key, &mut queue)?,
        }
    }
    Ok(false)
}

fn stat(path: &Path) -> Result<Option<fs::Metadata>> {
    match fs::metadata(path) {
        Ok(meta) => Ok(Some(meta)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::io("list", path, e)),
    }
}
