//! Reports about the repository.

use std::path::PathBuf;

use peat_types::Timestamp;
use serde::Serialize;

use super::schema;

/// What happened to the managed section of `.gitignore`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum GitignoreAction {
    /// The file was made.
    Created,
    /// The section was added or brought up to date.
    Updated,
    /// Nothing had to change.
    Unchanged,
}

/// `peat init`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InitReport {
    /// Root of the repository.
    pub path: PathBuf,
    /// Version of Peat that initialised it.
    pub version: String,
    /// When.
    pub initialized_at: Timestamp,
    /// Identity of the repository.
    pub repo_id: String,
    /// Whether there was a repository before (`--force`).
    pub reinitialized: bool,
    /// Folders and files that were made, relative to `path`.
    pub created: Vec<String>,
    /// What happened to `.gitignore`.
    pub gitignore_action: GitignoreAction,
    /// AI tools enrolled; none in this version.
    pub tools: Vec<String>,
    /// What to do next.
    pub next_steps: Vec<String>,
}

schema! { InitReport => "peat.init/1" }
