//! The files that every tool is given: valid data items of Peat, from a seed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::{Failure, generate};

/// How many files, and how large.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Files in all: half of them contents, half their metadata.
    pub files: u64,
    /// Models that they are spread over.
    pub models: u64,
    /// Bytes of all contents.
    pub bytes: u64,
    /// What everything is derived from.
    pub seed: u64,
}

impl Shape {
    /// Versions of data of all models.
    pub fn versions(self) -> u64 {
        self.files / 2
    }

    /// The folder of a version, in a tree.
    pub fn folder(self, n: u64) -> PathBuf {
        let model = n % self.models.max(1);
        let id = generate::id(self.seed, model);
        PathBuf::from(format!("data/command/shell/{id}/result/{}", n / self.models.max(1) + 1))
    }

    /// Lays the files into a tree.
    pub fn lay(self, tree: &Path) -> Result<(), Failure> {
        let mean = self.bytes / self.versions().max(1);
        for n in 0..self.versions() {
            let (folder, model) = (tree.join(self.folder(n)), n % self.models.max(1));
            let id = generate::id(self.seed, model);
            let content = generate::content(self.seed, model, n, mean);
            let version = n / self.models.max(1) + 1;
            let metadata = format!(
                "id: {}\nname: result\nversion: {version}\ncontentType: text/plain\nlifetime: infinite\ngarbageCollection: 10\n\
                 streaming: false\ntags:\n  type: resource\nownerDefinition:\n  ownerType: model-method\n  ownerRef: {id}\n\
                 createdAt: 2026-07-20T09:15:02.100Z\nsize: {}\n",
                generate::id(self.seed, model + self.models),
                content.len(),
            );
            fs::create_dir_all(&folder)?;
            fs::write(folder.join("raw"), content)?;
            fs::write(folder.join("metadata.yaml"), metadata)?;
        }
        Ok(())
    }

    /// Changes one content; another one in each round.
    pub fn change(self, tree: &Path, round: u64) -> Result<(), Failure> {
        let file = tree.join(self.folder(round * 7 + 3)).join("raw");
        let mut content = fs::read(&file)?;
        content.extend_from_slice(format!("changed in round {round}\n").as_bytes());
        Ok(fs::write(file, content)?)
    }

    /// Removes this many files: the last versions.
    pub fn remove(self, tree: &Path, files: u64) -> Result<(), Failure> {
        let all = self.versions();
        for n in all.saturating_sub(files / 2)..all {
            fs::remove_dir_all(tree.join(self.folder(n)))?;
        }
        Ok(())
    }
}

/// What a tree holds, by path.
fn contents(tree: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>, Failure> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![tree.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(path.strip_prefix(tree)?.to_owned(), fs::read(&path)?);
            }
        }
    }
    Ok(found)
}

/// Fails unless both trees hold the same files.
pub(super) fn same(one: &Path, other: &Path) -> Result<(), Failure> {
    let (here, there) = (contents(one)?, contents(other)?);
    if here == there {
        return Ok(());
    }
    let differs = here.keys().chain(there.keys()).find(|path| here.get(*path) != there.get(*path));
    Err(format!("{} files became {}; the first that differs is {differs:?}", here.len(), there.len()).into())
}
