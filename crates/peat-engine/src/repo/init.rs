//! Making a repository.

use std::path::{Path, PathBuf};

use peat_types::{Error, Kind, Result};
use serde_json::{Map, Value};

use super::find::LOCAL;
use super::marker::{MARKER, Marker};
use crate::report::{GitignoreAction, InitReport};
use crate::{Host, files, yaml};

const BEGIN: &str = "# BEGIN peat (managed, do not edit)";
/// Where a marker is kept that could not be read whole.
const DAMAGED: &str = ".peat.yaml.damaged";
const END: &str = "# END peat";

/// What to initialise.
#[derive(Clone, Debug, Default)]
pub struct InitRequest {
    /// The folder; the current one, or `--repo-dir`, when absent.
    pub path: Option<PathBuf>,
    /// Whether an existing repository is initialised again. Its id stays.
    pub force: bool,
}

/// The folder to initialise.
pub(super) fn root_of(host: &Host, request: &InitRequest) -> PathBuf {
    request.path.as_ref().or(host.repo_dir.as_ref()).map_or_else(|| host.cwd.clone(), |p| host.cwd.join(p))
}

/// Folder, marker and ignore section. The private ledger is made by the caller.
///
/// `owner` is the owner of a private ledger that is there already: its id is the repository's when the marker is lost.
pub(super) fn files_of(host: &Host, request: &InitRequest, owner: Option<String>) -> Result<InitReport> {
    let root = root_of(host, request);
    std::fs::create_dir_all(&root).map_err(|e| Error::io("make the folder", &root, e))?;
    let marker = root.join(MARKER);
    let before = files::read(&marker)?;
    if before.is_some() && !request.force {
        return Err(exists(&root));
    }
    let read = before.as_deref().map_or_else(|| Ok(Map::new()), |text| yaml::from_str(text, MARKER));
    let (mut doc, damage) = match read {
        Ok(doc) => (doc, None),
        Err(error) => (salvaged(&root, &error, owner.as_deref())?, Some(error)),
    };
    if before.is_some() {
        // Refuses a newer one: going back to an older version is never what was meant.
        if let Err(error) = Marker::read(&root, &host.version)
            && error.code() == "unsupported_version"
        {
            return Err(error);
        }
    } else if root.join(LOCAL).is_dir() && !request.force {
        return Err(Error::invalid(format!(
            "the repository in {} is half-initialised: {LOCAL}/ is there, {MARKER} is not",
            root.display()
        ))
        .with_code("half_initialised")
        .with_hint(format!(
            "restore {MARKER} from git, or write a new one with 'peat init --force'; the data in {LOCAL}/ stays"
        )));
    }
    let now = host.env.now();
    let known = doc.get("repoId").and_then(Value::as_str).filter(|id| uuid::Uuid::try_parse(id).is_ok());
    let repo_id = known.map(str::to_owned).or(owner).unwrap_or_else(|| host.uuid());
    doc.insert("peatVersion".to_owned(), host.version.clone().into());
    let initialized = doc.get("initializedAt").and_then(Value::as_str).and_then(|t| t.parse().ok()).unwrap_or(now);
    doc.insert("initializedAt".to_owned(), initialized.to_string().into());
    doc.insert("repoId".to_owned(), repo_id.clone().into());

    let mut created = Vec::new();
    let models = root.join("models");
    if !models.is_dir() {
        std::fs::create_dir_all(&models).map_err(|e| Error::io("make the folder", &models, e))?;
        created.push("models/".to_owned());
    }
    let gitignore_action = gitignore(host, &root)?;
    if let (Some(_), Some(text)) = (&damage, &before) {
        // Comments and whatever else only a person can read.
        files::write(&host.env, &root.join(DAMAGED), text.as_bytes())?;
        created.push(DAMAGED.to_owned());
    }
    // The marker comes last: a folder with a marker is a whole repository.
    let text = yaml::to_string(&doc)?;
    if before.is_some() {
        files::write(&host.env, &marker, text.as_bytes())?;
    } else if files::create(&host.env, &marker, text.as_bytes())? {
        created.push(MARKER.to_owned());
    } else {
        // Of two at once one makes the repository, with one id.
        return Err(exists(&root));
    }
    Ok(InitReport {
        path: root,
        version: host.version.clone(),
        initialized_at: initialized,
        repo_id,
        reinitialized: before.is_some(),
        created,
        gitignore_action,
        tools: Vec::new(),
        next_steps: vec![
            "peat model create command/shell hello".to_owned(),
            "peat model method run hello execute --input 'run=echo hello'".to_owned(),
            "peat data get hello result".to_owned(),
        ],
    })
}

/// What a marker that is no YAML says all the same: whose data it is, and where. `owner` is the repository that the private
/// ledger belongs to.
///
/// # Errors
/// `why`, when that cannot be told: another id or a datastore of its own would part the repository from its data.
fn salvaged(root: &Path, why: &Error, owner: Option<&str>) -> Result<Map<String, Value>> {
    let found = Marker::salvage(root, why).filter(|found| !found.repo_id.is_empty() || owner.is_some());
    let Some(Marker { repo_id, datastore, mut doc, .. }) = found else {
        let what = format!("{MARKER} cannot be read, nor whose data it is about and where that is");
        return Err(Error::invalid(what)
            .with_hint(format!("restore {MARKER} from git; 'peat init --force' writes only what it can be sure of"))
            .with_source(Error::invalid(why.chain().join(": "))));
    };
    if !repo_id.is_empty() {
        doc.insert("repoId".to_owned(), repo_id.into());
    }
    if let Some(datastore) = datastore {
        let value = serde_json::to_value(datastore).map_err(|e| Error::internal("write a datastore").with_source(e))?;
        doc.insert("datastore".to_owned(), value);
    }
    Ok(doc)
}

fn exists(root: &Path) -> Error {
    Error::new(Kind::AlreadyExists, format!("{} is already a Peat repository", root.display()))
        .with_hint("run 'peat init --force' to write its marker again; the repository keeps its id and data")
}

/// Adds or refreshes the managed section; every other line stays as it is.
fn gitignore(host: &Host, root: &Path) -> Result<GitignoreAction> {
    let path = root.join(".gitignore");
    let before = files::read(&path)?;
    let after = with_section(before.as_deref().unwrap_or_default());
    if before.as_deref() == Some(after.as_str()) {
        return Ok(GitignoreAction::Unchanged);
    }
    files::write(&host.env, &path, after.as_bytes())?;
    Ok(if before.is_some() { GitignoreAction::Updated } else { GitignoreAction::Created })
}

fn with_section(text: &str) -> String {
    let section = format!("{BEGIN}\n{LOCAL}/\n{END}\n");
    if let Some(start) = text.find(BEGIN)
        && let Some(len) = text[start..].find(END)
    {
        let rest = text[start + len + END.len()..].trim_start_matches('\r');
        let rest = rest.strip_prefix('\n').unwrap_or(rest);
        return format!("{}{section}{rest}", &text[..start]);
    }
    let gap = match text {
        "" => "",
        _ if text.ends_with("\n\n") => "",
        _ if text.ends_with('\n') => "\n",
        _ => "\n\n",
    };
    format!("{text}{gap}{section}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_section_is_added_once_and_user_lines_stay() {
        let once = with_section("target/\n*.log");
        assert!(once.starts_with("target/\n*.log\n\n# BEGIN peat"), "{once}");
        assert_eq!(with_section(&once), once);
        let around = format!("a\n{BEGIN}\nold\n{END}\nb\n");
        assert_eq!(with_section(&around), format!("a\n{BEGIN}\n.peat/\n{END}\nb\n"));
        assert!(with_section("").starts_with(BEGIN));
    }
}
