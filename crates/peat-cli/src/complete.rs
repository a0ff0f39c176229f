//! Completion answers for shells. The script printed by `peat completions` asks the binary itself, so names are live.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::Command;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use clap_complete::env::CompleteEnv;

use crate::context::Context;
use crate::exit::Exit;

/// The variable by which a shell's script says that it wants candidates.
pub(crate) const VARIABLE: &str = "PEAT_COMPLETE";

/// Answers a shell that asks for candidates. Says nothing when anything is wrong: a prompt is no place for errors.
pub(crate) fn answer(args: &[OsString], context: &Context) -> Exit {
    let root = context.repo().ok().map(|repo| repo.root().to_owned());
    let grammar = move || with_names(crate::command(), root.as_deref());
    match CompleteEnv::with_factory(grammar).var(VARIABLE).try_complete(args.to_vec(), None) {
        Ok(_) => Exit::Success,
        Err(_) => Exit::Failure,
    }
}

/// Gives every argument called `model` the names of the definitions in the repo.
fn with_names(command: Command, root: Option<&Path>) -> Command {
    let Some(root) = root else { return command };
    let models = root.join("models");
    command
        .mut_args(|arg| {
            if arg.get_id() != "model" {
                return arg;
            }
            let models = models.clone();
            arg.add(ArgValueCompleter::new(move |typed: &OsStr| names(&models, typed)))
        })
        .mut_subcommands(|sub| with_names(sub, Some(root)))
}

/// Names of definitions that start with what was typed. Asks no network, and reads only files named by an id.
fn names(models: &Path, typed: &OsStr) -> Vec<CompletionCandidate> {
    let Some(typed) = typed.to_str() else { return Vec::new() };
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = vec![models.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(path);
            } else if path.extension() == Some(OsStr::new("yaml")) {
                found.extend(name_of(&path));
            }
        }
    }
    found.retain(|name| name.starts_with(typed));
    found.sort_unstable();
    found.into_iter().map(CompletionCandidate::new).collect()
}

/// The name of the definition in a file: the file's, or the one written in it when the file is named by its id.
fn name_of(path: &Path) -> Option<String> {
    let stem = path.file_stem()?.to_str()?;
    let is_id = stem.len() == 36 && stem.split('-').map(str::len).eq([8, 4, 4, 4, 12]);
    if !is_id {
        return Some(stem.to_owned());
    }
    let text = std::fs::read_to_string(path).ok()?;
    let name = text.lines().find_map(|line| line.strip_prefix("name:"))?;
    Some(name.trim().trim_matches(['"', '\'']).to_owned())
}
