//! The definitions in `models/`: walking the folder, looking one up.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use peat_types::{Error, Kind, Result};

use super::Definition;
use crate::files;
use crate::names::{check_new_name, closest};
use crate::report::Warning;

/// Folders below which nothing is looked for: deeper ones are a mistake or a trap.
const DEPTH: usize = 16;

/// The definitions of a repository.
#[derive(Debug)]
pub(crate) struct Library<'a> {
    root: &'a Path,
}

/// What a walk found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// By name.
    pub definitions: Vec<Definition>,
    /// Files that could not be read.
    pub warnings: Vec<Warning>,
}

struct Candidate {
    path: PathBuf,
    /// Relative to the repository.
    rel: String,
    /// Relative to `models/`, without the file name.
    folder: String,
}

impl<'a> Library<'a> {
    /// Of the repository in `root`.
    pub fn new(root: &'a Path) -> Self {
        Self { root }
    }

    /// The folder.
    pub fn folder(&self) -> PathBuf {
        self.root.join("models")
    }

    /// All definitions, by name.
    pub fn all(&self) -> Result<Found> {
        let mut found = Found::default();
        for candidate in self.candidates(&mut found.warnings)? {
            self.load(&candidate, &mut found);
        }
        found.definitions.sort_by(|a, b| (&a.name, &a.rel).cmp(&(&b.name, &b.rel)));
        Ok(found)
    }

    fn load(&self, candidate: &Candidate, found: &mut Found) {
        let parsed = match files::read(&candidate.path) {
            Ok(Some(text)) => Definition::parse(&text, &candidate.rel, candidate.path.clone(), &candidate.folder),
            // It went away while we looked.
            Ok(None) => return,
            Err(error) => Err(error),
        };
        match parsed {
            Ok(definition) => found.definitions.push(definition),
            Err(error) => found.warnings.push(Warning {
                name: candidate.rel.clone(),
                message: format!("skipped: {}", error.chain().join(": ")),
            }),
        }
    }

    /// One definition: by name, then by full id, then by the beginning of an id.
    pub fn find(&self, wanted: &str) -> Result<Definition> {
        let mut found = Found::default();
        let candidates = self.candidates(&mut found.warnings)?;
        // A definition is nearly always in the file that bears its name or id: look there before reading all.
        let (likely, others): (Vec<_>, Vec<_>) = candidates
            .into_iter()
            .partition(|c| c.path.file_stem().and_then(|s| s.to_str()).is_some_and(|stem| stem == wanted));
        for candidate in &likely {
            self.load(candidate, &mut found);
        }
        let by_name = |found: &Found| -> Vec<Definition> {
            found.definitions.iter().filter(|d| d.name == wanted).cloned().collect()
        };
        if !by_name(&found).is_empty() {
            // Another file may say the same name; only one that holds it can.
            for candidate in others.iter().filter(|other| holds(&other.path, wanted)) {
                self.load(candidate, &mut found);
            }
        }
        if let Some(definition) = one(wanted, "name", by_name(&found))? {
            return Ok(definition);
        }
        for candidate in &others {
            self.load(candidate, &mut found);
        }
        if let Some(definition) = one(wanted, "name", by_name(&found))? {
            return Ok(definition);
        }
        let matching = |test: &dyn Fn(&str) -> bool| -> Vec<Definition> {
            found.definitions.iter().filter(|d| test(&d.id)).cloned().collect()
        };
        if let Some(definition) = one(wanted, "id", matching(&|id| id == wanted))? {
            return Ok(definition);
        }
        if !wanted.is_empty()
            && let Some(definition) = one(wanted, "beginning of the id", matching(&|id| id.starts_with(wanted)))?
        {
            return Ok(definition);
        }
        Err(missing(wanted, &found))
    }

    /// Refuses a definition whose id another file has, too: the two would share their data.
    ///
    /// # Errors
    /// `Invalid` with code `ambiguous`, naming both files.
    pub fn check_unique(&self, definition: &Definition) -> Result<()> {
        let mut found = Found::default();
        let candidates = self.candidates(&mut found.warnings)?;
        for candidate in candidates.iter().filter(|other| other.rel != definition.rel) {
            if holds(&candidate.path, &definition.id) {
                self.load(candidate, &mut found);
            }
        }
        match found.definitions.iter().find(|other| other.id == definition.id) {
            None => Ok(()),
            Some(twin) => Err(Error::new(
                Kind::Invalid,
                format!("{} and {} have one id, {}", definition.rel, twin.rel, definition.id),
            )
            .with_code("ambiguous")
            .with_hint("give one of them an id of its own: data and outputs belong to the id")),
        }
    }

    /// Id and name of each definition that cannot be used, as far as a look at its lines tells them. Best effort: what
    /// cannot be listed or read is not there.
    pub fn broken(&self) -> Vec<(String, String)> {
        let mut found = Found::default();
        let candidates = self.candidates(&mut found.warnings).unwrap_or_default();
        let mut broken = Vec::new();
        for candidate in candidates {
            let Ok(bytes) = fs::read(&candidate.path) else { continue };
            let text = String::from_utf8_lossy(&bytes);
            if Definition::parse(&text, &candidate.rel, candidate.path.clone(), &candidate.folder).is_ok() {
                continue;
            }
            let field = |name: &str| {
                let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
                Some(value.trim().trim_matches(['"', '\'']).to_owned())
            };
            let id = field("id").filter(|id| uuid::Uuid::try_parse(id).is_ok());
            let stem = candidate.path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
            broken.extend(id.map(|id| (id, field("name").unwrap_or_else(|| stem.to_owned()))));
        }
        broken
    }

    fn candidates(&self, warnings: &mut Vec<Warning>) -> Result<Vec<Candidate>> {
        let mut out = Vec::new();
        let folder = self.folder();
        if !folder.is_dir() {
            return Ok(out);
        }
        let inside = fs::canonicalize(self.root).map_err(|e| Error::io("find", self.root, e))?;
        let models = fs::canonicalize(&folder).map_err(|e| Error::io("find", &folder, e))?;
        let mut walk = Walk { inside, models, seen: HashSet::new(), out: &mut out, warnings };
        walk.folder(&folder, "", 0)?;
        out.sort_by(|a, b| a.rel.cmp(&b.rel));
        Ok(out)
    }
}

struct Walk<'a> {
    inside: PathBuf,
    models: PathBuf,
    seen: HashSet<PathBuf>,
    out: &'a mut Vec<Candidate>,
    warnings: &'a mut Vec<Warning>,
}

impl Walk<'_> {
    fn folder(&mut self, dir: &Path, below: &str, depth: usize) -> Result<()> {
        let real = fs::canonicalize(dir).map_err(|e| Error::io("find", dir, e))?;
        // A link to a folder above would never end.
        if depth > DEPTH || !self.seen.insert(real) {
            return Ok(());
        }
        for entry in fs::read_dir(dir).map_err(|e| Error::io("list", dir, e))? {
            let entry = entry.map_err(|e| Error::io("list", dir, e))?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else {
                self.warn(below, &name.to_string_lossy(), "skipped: its name is not UTF-8");
                continue;
            };
            if name.starts_with('.') {
                continue;
            }
            let path = entry.path();
            let mut kind = entry.file_type().map_err(|e| Error::io("look at", &path, e))?;
            if kind.is_symlink() {
                match fs::canonicalize(&path) {
                    // Everything would be found twice, or for ever.
                    Ok(target) if self.models.starts_with(&target) => {
                        self.warn(below, name, "skipped: it is a link to a folder above");
                        continue;
                    }
                    Ok(target) if target.starts_with(&self.inside) => {
                        kind = fs::metadata(&target).map_err(|e| Error::io("look at", &target, e))?.file_type();
                    }
                    Ok(_) => {
                        self.warn(below, name, "skipped: it is a link that leaves the repository");
                        continue;
                    }
                    Err(_) => {
                        self.warn(below, name, "skipped: it is a link that leads nowhere");
                        continue;
                    }
                }
            }
            let joined = if below.is_empty() { name.to_owned() } else { format!("{below}/{name}") };
            if kind.is_dir() {
                self.folder(&path, &joined, depth + 1)?;
            } else if kind.is_file() && name.ends_with(".yaml") {
                self.out.push(Candidate { path, rel: format!("models/{joined}"), folder: below.to_owned() });
            }
        }
        Ok(())
    }

    fn warn(&mut self, below: &str, name: &str, message: &str) {
        let sep = if below.is_empty() { "" } else { "/" };
        self.warnings.push(Warning { name: format!("models/{below}{sep}{name}"), message: message.to_owned() });
    }
}

/// Whether the text occurs in a file. One that cannot be read is the business of those who list definitions.
fn holds(path: &Path, text: &str) -> bool {
    files::read(path).is_ok_and(|read| read.is_some_and(|read| read.contains(text)))
}

fn one(wanted: &str, by: &str, mut matches: Vec<Definition>) -> Result<Option<Definition>> {
    if matches.len() < 2 {
        return Ok(matches.pop());
    }
    let list: Vec<String> =
        matches.iter().map(|d| format!("{} ({}, id {}, {})", d.name, d.type_name, d.id, d.rel)).collect();
    let hint = if matches.windows(2).all(|pair| pair[0].id == pair[1].id) {
        "keep one of these files: a copy needs a name and an id of its own"
    } else if by == "name" {
        "give the id, or keep one of these files"
    } else {
        "give the whole name or id; 'peat model search' lists them"
    };
    Err(Error::new(
        Kind::Invalid,
        format!("'{wanted}' is the {by} of {} definitions: {}", matches.len(), list.join(", ")),
    )
    .with_code("ambiguous")
    .with_hint(hint))
}

fn missing(wanted: &str, found: &Found) -> Error {
    let close = closest(wanted, found.definitions.iter().map(|d| d.name.as_str()));
    let close = close.map_or_else(String::new, |name| format!("; did you mean '{name}'?"));
    let error =
        Error::not_found(format!("there is no model '{wanted}' in models/{close}")).with_code("model_not_found");
    let error = match found.warnings.first() {
        Some(first) => error.with_hint(format!(
            "{} could not be read, such as {}: {}; 'peat model validate' shows them all",
            if found.warnings.len() == 1 { "1 file".to_owned() } else { format!("{} files", found.warnings.len()) },
            first.name,
            first.message
        )),
        None => error,
    };
    let error =
        error.with_hint("'peat model search' lists the models of this repository; what others defined comes with git");
    // A second definition under a name that somebody meant otherwise would split its data.
    if close.is_empty() && check_new_name(wanted).is_ok() && uuid::Uuid::try_parse(wanted).is_err() {
        return error.with_hint(format!("if nobody did, make it with 'peat model create command/shell {wanted}'"));
    }
    error
}
