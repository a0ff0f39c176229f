//! `peat add`: what was done to the tree by hand becomes a transaction, when somebody asks for it.

mod batches;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use peat_clone::{ByHand, Item, LocalClone, NOTHING_LEFT, NewChange, OnRefusal, Scope, Source};
use peat_types::{Error, Hasher, ItemPath, Kind, Result, Unit};
use sha2::{Digest, Sha256};

use crate::Repo;
use crate::definition::hex;
use crate::paths::{DataPath, METADATA, RAW};
use crate::planner::{ADD, AddedFile, HandChange, RemovedFile};
use crate::report::{AddReport, ByHandFile, SkippedFile};

/// A file up to this size is read at once, as long as less than this is in memory of such.
const SMALL: u64 = 64 << 10;
const HELD: u64 = 32 << 20;

/// `peat add`.
#[derive(Clone, Copy, Debug, Default)]
pub struct AddRequest {
    /// Only say what would be committed.
    pub dry_run: bool,
    /// Items whose file was put here and was removed by hand are deleted.
    pub deletes: bool,
    /// However many those are.
    pub allow_deletes: bool,
}

/// A file of the tree, and the item it is or becomes.
pub(crate) struct HandFile {
    /// Its path in the tree.
    pub path: ItemPath,
    pub unit: Unit,
    /// The item it was, unless it is new.
    pub item: Option<Item>,
    /// Its size in bytes, or the one it had.
    pub size: u64,
    /// Whether it is not there any more.
    pub missing: bool,
}

impl HandFile {
    fn missing(item: Item) -> Self {
        let (path, unit, size) = (item.path.clone(), item.unit.clone(), item.row.size);
        Self { path, unit, item: Some(item), size, missing: true }
    }

    /// For people and scripts.
    pub fn report(&self) -> ByHandFile {
        let kind = match &self.item {
            Some(_) if self.missing => "missing",
            Some(_) => "modified",
            None => "new",
        };
        ByHandFile { path: self.path.to_string(), kind: kind.to_owned(), size: self.size }
    }
}

/// What was done to the tree by hand.
#[derive(Default)]
pub(crate) struct Hand {
    /// Files that can be committed.
    pub files: Vec<HandFile>,
    /// Files that were put here and are gone.
    pub missing: Vec<HandFile>,
    /// What cannot be committed, and why.
    pub skipped: Vec<SkippedFile>,
}

impl Hand {
    /// Moves what is missing and can be deleted to the files, when that was asked for; else forgets it.
    pub fn deleting(mut self, clone: &LocalClone, deletes: bool) -> Result<Self> {
        let missing = std::mem::take(&mut self.missing);
        if !deletes {
            return Ok(self);
        }
        if clone.is_lost()? {
            let tree = clone.tree();
            let message = format!("the folder {} was not there, so what is missing in it says nothing", tree.display());
            return Err(Error::new(Kind::Conflict, message)
                .with_code("tree_missing")
                .with_hint("nothing was sent; 'peat datastore sync --pull' puts its files back"));
        }
        let gone: BTreeSet<ItemPath> = missing.iter().map(|file| file.path.clone()).collect();
        for file in missing {
            let other = beside(&file.path).filter(|other| !gone.contains(other));
            match other.map(|other| clone.item(&file.unit, &other)).transpose()?.flatten() {
                // All that was ever here of the version is gone.
                Some(other) if clone.was_never_here(&other)? => self.files.extend([file, HandFile::missing(other)]),
                Some(other) => self.skipped.push(SkippedFile {
                    why: format!("{} was not removed from here, and a version of data is deleted whole", other.path),
                    path: file.path.to_string(),
                }),
                None => self.files.push(file),
            }
        }
        Ok(self)
    }

    /// Without what a change of the journal is about already.
    pub fn without(mut self, open: &BTreeSet<ItemPath>) -> Self {
        self.files.retain(|file| !open.contains(&file.path));
        self.missing.retain(|file| !open.contains(&file.path));
        self
    }

    /// Items that would be deleted.
    pub fn deletes(&self) -> u64 {
        self.files.iter().filter(|file| file.missing).count() as u64
    }

    /// Bytes that would be sent.
    pub fn bytes(&self) -> u64 {
        self.files.iter().filter(|file| !file.missing).map(|file| file.size).sum()
    }
}

impl Repo {
    /// Commits files of the tree that were changed or added by hand: those named, as paths of files or folders, or as paths
    /// of items. All of them become one change, which is visible whole or not at all (`batches` has the limits). Nothing is
    /// deleted unless the request says so.
    ///
    /// # Errors
    /// `NotFound` when a path names nothing that was changed; `Conflict` when the ledger changed meanwhile, too, or, with code
    /// `many_deletes`, when more would be deleted than the limit allows.
    pub async fn add(&self, paths: &[String], request: AddRequest) -> Result<AddReport> {
        let clone = self.clone_of().await?;
        if !request.dry_run {
            compare(clone).await?;
        }
        let found = self.hand(clone, clone.by_hand()?, paths);
        let missing = found.missing.len();
        let hand = found.deleting(clone, request.deletes)?;
        if hand.files.is_empty() && hand.skipped.is_empty() {
            let error = Error::not_found(format!("nothing was changed by hand at {}", paths.join(", ")))
                .with_hint("'peat status' shows what was; the tree is in the folder 'tree' of the clone it names");
            return Err(if missing == 0 {
                error
            } else {
                error.with_hint("files are missing there: 'peat add --deletes <path>' deletes them in the datastore")
            });
        }
        if !request.allow_deletes
            && !request.dry_run
            && let Some(error) = self.too_many(hand.deletes(), clone)?
        {
            return Err(error.with_hint("if that is meant: 'peat add --deletes --allow-deletes <path>'"));
        }
        self.commit_by_hand(hand, request.dry_run).await
    }

    /// What of it was done to the tree at these paths (all of it, when there is none), and what cannot be committed.
    pub(crate) fn hand(&self, clone: &LocalClone, mut found: ByHand, paths: &[String]) -> Hand {
        let tree = clone.tree();
        let wanted: Vec<String> = paths.iter().map(|path| self.in_tree(&tree, path)).collect();
        let below = |path: &str, folder: &str| {
            folder.is_empty() || path == folder || path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
        };
        let is_wanted = |path: &str| wanted.is_empty() || wanted.iter().any(|folder| below(path, folder));
        found.changed.retain(|file| is_wanted(&file.path));
        found.missing.retain(|item| is_wanted(item.path.as_str()));
        let names: BTreeSet<String> = found.changed.iter().map(|file| file.path.clone()).collect();
        let mut hand = Hand { missing: found.missing.into_iter().map(HandFile::missing).collect(), ..Hand::default() };
        for file in found.changed {
            let place = match &file.item {
                Some(item) => Ok((item.path.clone(), item.unit.clone())),
                None => new_item(&file.path, &names),
            };
            match place {
                Ok((path, unit)) => {
                    let (item, size) = (file.item, file.size);
                    hand.files.push(HandFile { path, unit, item, size, missing: false });
                }
                Err(why) => hand.skipped.push(SkippedFile { path: file.path, why }),
            }
        }
        hand
    }

    fn in_tree(&self, tree: &Path, path: &str) -> String {
        let at = self.host().cwd.join(path);
        let relative = at.strip_prefix(tree).ok().and_then(Path::to_str);
        relative.unwrap_or(path).trim_matches('/').to_owned()
    }

    /// Commits all of it.
    pub(crate) async fn commit_by_hand(&self, hand: Hand, dry_run: bool) -> Result<AddReport> {
        let clone = self.clone_of().await?;
        let mut report = AddReport {
            dry_run,
            bytes: hand.bytes(),
            deletes: hand.deletes(),
            files: hand.files.iter().map(HandFile::report).collect(),
            skipped: hand.skipped,
            entries: Vec::new(),
        };
        if dry_run {
            return Ok(report);
        }
        for batch in batches::batches(hand.files, clone.info().params.part) {
            let change = change(clone, &batch)?;
            match Box::pin(clone.commit(change)).await {
                // Another process was at it, too, and has done it.
                Err(error) if error.code() == NOTHING_LEFT => {
                    let done: BTreeSet<&str> = batch.iter().map(|file| file.path.as_str()).collect();
                    report.files.retain(|file| !done.contains(file.path.as_str()));
                    report.deletes -= batch.iter().filter(|file| file.missing).count() as u64;
                    report.bytes -= batch.iter().filter(|file| !file.missing).map(|file| file.size).sum::<u64>();
                }
                committed => report.entries.push(committed?.seq),
            }
        }
        Ok(report)
    }
}

/// Pulls, when the index was built anew and files lie in the tree that were there before: only the ledger tells which of
/// them are old, and which were made by somebody.
pub(crate) async fn compare(clone: &LocalClone) -> Result<()> {
    if clone.is_unread()? {
        clone.pull(&Scope::All).await?;
    }
    Ok(())
}

/// What a batch of files means.
fn change(clone: &LocalClone, batch: &[HandFile]) -> Result<NewChange> {
    let tree = clone.tree();
    let (mut contents, mut held) = (Vec::new(), 0);
    let mut hand = HandChange::default();
    for file in batch {
        let (unit, path) = (file.unit.clone(), file.path.clone());
        let base = file.item.as_ref().map(Item::hash);
        if file.missing {
            hand.deletes.push(RemovedFile { unit, path, base });
            continue;
        }
        let at = path.segments().fold(tree.clone(), |at, segment| at.join(segment));
        clone.check_size(&at, file.size)?;
        // Its metadata says what the content is; a new one brings its own.
        let told = base.is_some() && DataPath::parse(path.as_str()).is_some_and(|data| data.file == RAW);
        // Small ones are read once; others are read again, piece by piece, into the journal.
        let (digest, source) = if file.size <= SMALL && held < HELD {
            let bytes = std::fs::read(&at).map_err(|e| Error::io("read", &at, e))?;
            held += bytes.len() as u64;
            (digest(&at, &mut &bytes[..], told)?, Source::Bytes(bytes.into()))
        } else {
            let mut file = File::open(&at).map_err(|e| Error::io("read", &at, e))?;
            (digest(&at, &mut file, told)?, Source::File(at))
        };
        let (hash, size, checksum) = digest;
        hand.files.push(AddedFile { unit, path, content: contents.len(), hash, base, size, checksum });
        contents.push(source);
    }
    let mut units: Vec<Unit> = batch.iter().map(|file| file.unit.clone()).collect();
    units.dedup();
    let (changed, removed) = (hand.files.len(), hand.deletes.len());
    let payload = serde_json::to_value(hand).map_err(|e| Error::internal("a change").with_source(e))?;
    let mut change = NewChange::new(ADD, units, payload);
    change.message = match (changed, removed) {
        (1, 0) => "1 file changed by hand".to_owned(),
        (0, 1) => "1 file removed by hand".to_owned(),
        (changed, 0) => format!("{changed} files changed by hand"),
        (0, removed) => format!("{removed} files removed by hand"),
        _ => format!("{changed} files changed and {removed} removed by hand"),
    };
    change.contents = contents;
    // The files are still there.
    change.on_refusal = OnRefusal::Drop;
    Ok(change)
}

/// BLAKE3, size and, when wanted, SHA-256 of a file, which may be large.
fn digest(at: &Path, from: &mut dyn Read, sha: bool) -> Result<(peat_types::Hash, u64, Option<String>)> {
    let (mut hasher, mut sha256, mut size, mut buffer) = (Hasher::default(), Sha256::new(), 0, vec![0; 16 << 10]);
    loop {
        let len = from.read(&mut buffer).map_err(|e| Error::io("read", at, e))?;
        let Some(bytes) = buffer.get(..len).filter(|bytes| !bytes.is_empty()) else { break };
        hasher.update(bytes);
        if sha {
            sha256.update(bytes);
        }
        size += len as u64;
    }
    Ok((hasher.finish(), size, sha.then(|| hex(&sha256.finalize()))))
}

/// The other file of a version of data.
fn beside(path: &ItemPath) -> Option<ItemPath> {
    let data = DataPath::parse(path.as_str())?;
    let other = match data.file {
        RAW => METADATA,
        METADATA => RAW,
        _ => return None,
    };
    format!("{}{other}", path.as_str().strip_suffix(data.file)?).parse().ok()
}

/// Where a new file belongs, or why it belongs nowhere.
fn new_item(path: &str, all: &BTreeSet<String>) -> Result<(ItemPath, Unit), String> {
    let item: ItemPath = path.parse().map_err(|e: Error| e.to_string())?;
    let shape = "only data/TYPE/ID/NAME/VERSION/raw and metadata.yaml beside it can be added";
    let parsed = DataPath::parse(path).filter(|data| data.file == RAW || data.file == METADATA);
    let parsed = parsed.ok_or_else(|| shape.to_owned())?;
    let folder = path.strip_suffix(parsed.file).unwrap_or_default();
    if let Some(missing) = [RAW, METADATA].iter().find(|file| !all.contains(&format!("{folder}{file}"))) {
        return Err(format!("a version of data needs {missing}, too"));
    }
    let id = folder.trim_end_matches('/').rsplit('/').nth(2).unwrap_or_default();
    Ok((item, Unit::model(id).map_err(|e| e.to_string())?))
}
