//! Finding the repository a command works on.

use std::path::{Path, PathBuf};

use peat_types::{Error, Result};

use super::marker::MARKER;
use crate::{Host, swamp};

/// Folder of everything local in a repository; never tracked by git.
pub const LOCAL: &str = ".peat";

/// How far up the marker is looked for outside a git checkout.
const LEVELS: usize = 32;

/// The root of the repository: the folder the caller names, else the nearest one above the current folder that holds a
/// marker, not leaving a git checkout.
pub(super) fn root(host: &Host) -> Result<PathBuf> {
    if let Some(dir) = &host.repo_dir {
        let dir = host.cwd.join(dir);
        return if dir.join(MARKER).is_file() { Ok(dir) } else { Err(missing(&dir, &dir)) };
    }
    let mut half = None;
    for dir in host.cwd.ancestors().take(LEVELS) {
        if dir.join(MARKER).is_file() {
            return Ok(dir.to_owned());
        }
        if half.is_none() && dir.join(LOCAL).is_dir() {
            half = Some(dir);
        }
        if dir.join(".git").exists() {
            break;
        }
    }
    Err(missing(half.unwrap_or(&host.cwd), &host.cwd))
}

fn missing(dir: &Path, start: &Path) -> Error {
    if dir.join(LOCAL).is_dir() {
        return Error::invalid(format!(
            "the repository in {} is half-initialised: {LOCAL}/ is there, {MARKER} is not",
            dir.display()
        ))
        .with_code("half_initialised")
        .with_hint(format!(
            "restore {MARKER} from git, or write a new one with 'peat init --force'; the data in {LOCAL}/ stays"
        ));
    }
    let missing = Error::not_found(format!("there is no Peat repository in {} or above it", start.display()))
        .with_code("not_a_repo");
    if let Some(theirs) = start.ancestors().take(LEVELS).find(|dir| swamp::is_repo(dir)) {
        return missing
            .with_hint(format!(
                "{} is a repository of swamp: 'peat -C {0} init' makes it one of Peat's, too, and uses its models as they are",
                theirs.display()
            ))
            .with_hint("the data in .swamp/ is not taken over: Peat cannot import it yet, and leaves it as it is");
    }
    missing.with_hint("make one here with 'peat init', or name one with --repo-dir or PEAT_REPO_DIR")
}
