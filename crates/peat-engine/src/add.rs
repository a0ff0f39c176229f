//! `peat add`: what was changed in the tree by hand becomes a transaction, when somebody asks for it.

use std::collections::BTreeMap;
use std::path::Path;

use peat_clone::{ByHand, NewChange, OnRefusal};
use peat_types::{Error, Hash, ItemPath, Result, Unit};

use crate::Repo;
use crate::definition::sha256;
use crate::paths::{DataPath, METADATA, RAW};
use crate::planner::{ADD, AddedFile};
use crate::report::{AddReport, ByHandFile, SkippedFile};

/// Contents of one change, at most.
const BATCH: usize = 1000;

/// A file that can be committed.
pub(crate) struct HandFile {
    pub found: ByHand,
    pub path: ItemPath,
    pub unit: Unit,
}

impl HandFile {
    /// For people and scripts.
    pub fn report(&self) -> ByHandFile {
        ByHandFile {
            path: self.found.path.clone(),
            kind: if self.found.item.is_some() { "modified" } else { "new" }.to_owned(),
            size: self.found.size,
        }
    }
}

impl Repo {
    /// Commits files of the tree that were changed or added by hand: those named, as paths of files or folders, or as paths
    /// of items. Nothing is ever deleted by this.
    ///
    /// # Errors
    /// `NotFound` when a path names nothing that was changed; `Conflict` when the ledger changed meanwhile, too.
    pub async fn add(&self, paths: &[String], dry_run: bool) -> Result<AddReport> {
        let (files, skipped) = self.by_hand_files(paths).await?;
        if files.is_empty() && skipped.is_empty() {
            return Err(Error::not_found(format!("nothing was changed by hand at {}", paths.join(", ")))
                .with_hint("'peat status' shows what was; the tree is in the folder 'tree' of the clone it names"));
        }
        self.add_files(files, skipped, dry_run).await
    }

    /// Commits all of them.
    pub(crate) async fn add_all(&self) -> Result<AddReport> {
        let (files, skipped) = self.by_hand_files(&[]).await?;
        self.add_files(files, skipped, false).await
    }

    /// What can be committed, and what cannot, and why. No request.
    pub(crate) async fn by_hand_files(&self, paths: &[String]) -> Result<(Vec<HandFile>, Vec<SkippedFile>)> {
        let clone = self.clone_of().await?;
        let tree = clone.tree();
        let wanted: Vec<String> = paths.iter().map(|path| self.in_tree(&tree, path)).collect();
        let below = |path: &str, folder: &str| {
            folder.is_empty() || path == folder || path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
        };
        let mut found = clone.by_hand()?;
        found.retain(|file| wanted.is_empty() || wanted.iter().any(|folder| below(&file.path, folder)));
        let names: Vec<String> = found.iter().map(|file| file.path.clone()).collect();
        let (mut files, mut skipped) = (Vec::new(), Vec::new());
        for file in found {
            let place = match &file.item {
                Some(item) => Ok((item.path.clone(), item.unit.clone())),
                None => new_item(&file.path, &names),
            };
            match place {
                Ok((path, unit)) => files.push(HandFile { found: file, path, unit }),
                Err(why) => skipped.push(SkippedFile { path: file.path, why }),
            }
        }
        Ok((files, skipped))
    }

    fn in_tree(&self, tree: &Path, path: &str) -> String {
        let at = self.host().cwd.join(path);
        let relative = at.strip_prefix(tree).ok().and_then(Path::to_str);
        relative.unwrap_or(path).trim_matches('/').to_owned()
    }

    async fn add_files(&self, files: Vec<HandFile>, skipped: Vec<SkippedFile>, dry_run: bool) -> Result<AddReport> {
        let clone = self.clone_of().await?;
        let mut report = AddReport {
            dry_run,
            bytes: files.iter().map(|file| file.found.size).sum(),
            files: files.iter().map(HandFile::report).collect(),
            skipped,
            entries: Vec::new(),
        };
        let mut units: BTreeMap<Unit, Vec<HandFile>> = BTreeMap::new();
        for file in files {
            units.entry(file.unit.clone()).or_default().push(file);
        }
        for (unit, files) in units.iter().filter(|_| !dry_run) {
            for batch in files.chunks(BATCH) {
                let mut payload = Vec::new();
                let mut contents = Vec::new();
                for file in batch {
                    let bytes = clone.by_hand_content(&file.found)?;
                    payload.push(AddedFile {
                        path: file.path.clone(),
                        content: contents.len(),
                        hash: Hash::of(&bytes),
                        base: file.found.item.as_ref().map(peat_clone::Item::hash),
                        size: bytes.len() as u64,
                        checksum: sha256(&bytes),
                    });
                    contents.push(bytes.into());
                }
                let payload = serde_json::to_value(payload).map_err(|e| Error::internal("a change").with_source(e))?;
                let mut change = NewChange::new(ADD, vec![unit.clone()], payload);
                change.message = format!("{} files changed by hand", batch.len());
                change.contents = contents;
                // The files are still there.
                change.on_refusal = OnRefusal::Drop;
                report.entries.push(clone.commit(change).await?.seq);
            }
        }
        Ok(report)
    }
}

/// Where a new file belongs, or why it belongs nowhere.
fn new_item(path: &str, all: &[String]) -> Result<(ItemPath, Unit), String> {
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
