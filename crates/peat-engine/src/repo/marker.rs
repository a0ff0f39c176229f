//! The file that makes a folder a repository.

use std::path::Path;
use std::time::Duration;

use peat_clone::Hydration;
use peat_types::{Error, Kind, Namespace, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{files, yaml};

/// Name of the marker.
pub const MARKER: &str = ".peat.yaml";

/// The marker, as far as the engine reads it. What it does not know stays in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    /// Version that initialised or upgraded the repository.
    pub version: String,
    /// Identity of the repository.
    pub repo_id: String,
    /// Its datastore; absent for the private one.
    pub datastore: Option<Datastore>,
    /// How its ledger is kept in shape; stands in `datastore`, which may hold nothing else.
    pub upkeep: Upkeep,
    /// The whole document.
    pub doc: Map<String, Value>,
    /// What keeps it from being read whole, in a marker of [`Marker::salvage`].
    pub damage: Option<String>,
}

/// How the ledger is kept in shape: settings of `datastore`, also of the private one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Upkeep {
    /// How long states stay readable, and how much may be stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retention: Option<Retention>,
    /// `on` (default) or `off`: whether maintenance runs by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maintenance: Option<Value>,
}

/// `datastore.retention` in the marker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Retention {
    /// Days of states that stay readable; 30 when it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub days: Option<u32>,
    /// Bytes above which the store is said to be large. Nothing is removed because of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
}

/// Days of states that are kept unless the marker says otherwise.
const DAYS: u32 = 30;

impl Upkeep {
    /// How long states stay readable.
    pub fn keep(&self) -> Duration {
        let days = self.retention.as_ref().and_then(|retention| retention.days).unwrap_or(DAYS);
        Duration::from_secs(u64::from(days) * 24 * 3600)
    }

    /// Bytes above which the store is said to be large.
    pub fn max_bytes(&self) -> Option<u64> {
        self.retention.as_ref()?.max_bytes
    }

    /// Whether maintenance runs by itself, as far as the repository says.
    pub fn by_itself(&self) -> bool {
        !matches!(&self.maintenance, Some(Value::Bool(false))) && self.maintenance.as_ref().is_none_or(|v| v != "off")
    }

    fn check(self) -> Result<Self> {
        if self.retention.as_ref().and_then(|retention| retention.days) == Some(0) {
            return Err(Error::invalid(format!("{MARKER}: datastore.retention.days is 0"))
                .with_hint("states are kept for a day at least: clones that looked at the store lately rely on it"));
        }
        match &self.maintenance {
            None | Some(Value::Bool(_)) => Ok(self),
            Some(Value::String(word)) if word == "on" || word == "off" => Ok(self),
            Some(other) => {
                Err(Error::invalid(format!("{MARKER}: datastore.maintenance is {other}: it is 'on' or 'off'")))
            }
        }
    }
}

/// `datastore` in the marker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Datastore {
    /// URL of the store.
    pub url: String,
    /// Namespace in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Address of an S3 server that is not AWS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Region of the bucket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Whether the bucket stands in the path instead of the host name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_style: Option<bool>,
    /// Named set of credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// `full` (default) or `lazy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hydration: Option<String>,
    /// How much pending changes may delete without being asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delete_limit: Option<DeleteLimit>,
    /// What this version does not know.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// `deleteLimit` of a datastore: more than one of them has to be allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeleteLimit {
    /// Items.
    pub items: u64,
    /// Share of all items.
    pub percent: u64,
}

impl Default for DeleteLimit {
    fn default() -> Self {
        Self { items: 500, percent: 20 }
    }
}

impl Datastore {
    /// Its namespace, checked.
    pub fn namespace(&self) -> Result<Namespace> {
        self.namespace.as_ref().map_or_else(|| Ok(Namespace::default()), |slug| slug.parse())
    }

    /// Its hydration, checked.
    pub fn hydration(&self) -> Result<Hydration> {
        match self.hydration.as_deref() {
            None | Some("full") => Ok(Hydration::Full),
            Some("lazy") => Ok(Hydration::Lazy),
            Some(other) => Err(Error::invalid(format!("'{other}' is not a hydration: it is 'full' or 'lazy'"))),
        }
    }
}

impl Marker {
    /// Reads the marker of the repository in `root`; `None` when there is none.
    pub fn read(root: &Path, running: &str) -> Result<Option<Self>> {
        let path = root.join(MARKER);
        let Some(text) = files::read(&path)? else { return Ok(None) };
        Self::parse(&text, running)
            .map(Some)
            .map_err(|e| e.context(format!("the repository in {} cannot be used", root.display())))
    }

    fn parse(text: &str, running: &str) -> Result<Self> {
        let doc: Map<String, Value> = yaml::from_str(text, MARKER).map_err(|error| {
            error.with_hint("correct the file (a merge may have left its marks), or restore it from git")
        })?;
        let field = |name: &str| -> Result<&str> {
            doc.get(name).and_then(Value::as_str).ok_or_else(|| {
                Error::invalid(format!("{MARKER} holds no text under '{name}'"))
                    .with_hint("restore the file from git: it says where the datastore is, too")
                    .with_hint(
                        "without git, 'peat init --force' writes a new one, and 'peat datastore setup <url> \
                         --skip-migration' leads to a shared datastore; should that have another owner, write its id as repoId",
                    )
            })
        };
        let version = field("peatVersion")?.to_owned();
        let (theirs, ours) = (release(&version), release(running));
        match theirs {
            None => {
                return Err(Error::invalid(format!(
                    "{MARKER}: peatVersion '{version}' is not a version such as 0.1.0"
                )));
            }
            Some(theirs) if ours.is_some_and(|ours| theirs > ours) => {
                return Err(Error::new(
                    Kind::Unsupported,
                    format!("the repository was written by Peat {version}, which is newer than this one ({running})"),
                )
                .with_code("unsupported_version")
                .with_hint("install a newer Peat; 'peat version' shows the one you run"));
            }
            Some(_) => {}
        }
        let repo_id = field("repoId")?.to_owned();
        if uuid::Uuid::try_parse(&repo_id).is_err() {
            return Err(Error::invalid(format!("{MARKER}: repoId '{repo_id}' is not a UUID"))
                .with_hint("restore the file from git: the id says whose data a shared datastore holds"));
        }
        let (datastore, upkeep) = match doc.get("datastore") {
            None | Some(Value::Null) => (None, Upkeep::default()),
            Some(value) => {
                known_keys(value)?;
                (datastore(value)?, upkeep(value)?)
            }
        };
        Ok(Self { version, repo_id, datastore, upkeep, doc, damage: None })
    }
}

/// What may stand in `datastore`.
const KEYS: [&str; 10] = [
    "url",
    "namespace",
    "endpoint",
    "region",
    "pathStyle",
    "profile",
    "hydration",
    "deleteLimit",
    "retention",
    "maintenance",
];

/// A misspelt key would leave a limit out without a word.
fn known_keys(value: &Value) -> Result<()> {
    let unknown = value.as_object().and_then(|fields| fields.keys().find(|key| !KEYS.contains(&key.as_str())));
    let Some(key) = unknown else { return Ok(()) };
    let error = Error::invalid(format!("{MARKER}: datastore has no setting '{key}'"));
    Err(error.with_hint(format!("correct it or remove it; there are: {}", KEYS.join(", "))))
}

/// Names the setting that is of a wrong kind.
fn unreadable<T: DeserializeOwned>(value: &Value, error: &serde_json::Error) -> Error {
    let alone = |key: &String, is: &Value| serde_json::from_value::<T>(serde_json::json!({ key: is })).is_err();
    let wrong = value.as_object().and_then(|fields| fields.iter().find(|(key, is)| alone(key, is)));
    let setting = wrong.map_or_else(|| "datastore".to_owned(), |(key, _)| format!("datastore.{key}"));
    let why = yaml::in_words(&error.to_string());
    Error::invalid(format!("{MARKER}: {setting} cannot be read: {why}"))
        .with_hint("correct it there, or restore the file from git")
}

fn upkeep(value: &Value) -> Result<Upkeep> {
    let upkeep: Upkeep = serde_json::from_value(value.clone()).map_err(|e| unreadable::<Upkeep>(value, &e))?;
    upkeep.check()
}

/// The datastore named; `None` when there are only settings of the private one.
fn datastore(value: &Value) -> Result<Option<Datastore>> {
    let own = |key: &String| key == "retention" || key == "maintenance";
    if value.as_object().is_some_and(|fields| !fields.is_empty() && fields.keys().all(own)) {
        return Ok(None);
    }
    let store: Datastore = serde_json::from_value(value.clone()).map_err(|e| unreadable::<Datastore>(value, &e))?;
    if store.url.is_empty() {
        return Err(Error::invalid(format!("{MARKER}: datastore has no 'url'"))
            .with_hint("write the URL of the store there, or restore the file from git")
            .with_hint(
                "without any: remove 'datastore' from the file, then 'peat datastore setup <url> --skip-migration'",
            ));
    }
    store.namespace()?;
    store.hydration()?;
    if let Some(limit) = store.delete_limit.filter(|limit| limit.percent > 100) {
        return Err(Error::invalid(format!("{MARKER}: datastore.deleteLimit.percent is {}", limit.percent))
            .with_hint("it is a share of all items, from 0 to 100"));
    }
    Ok(Some(store))
}

/// Major and minor number: a patch release writes nothing that an older patch cannot read.
fn release(version: &str) -> Option<(u64, u64)> {
    let mut parts = version.split(['.', '-', '+']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// The marker's text with `datastore` replaced and everything else, comments included, as it was.
pub(crate) fn with_datastore(text: &str, store: &Datastore) -> Result<String> {
    let before: Map<String, Value> = yaml::from_str(text, MARKER)?;
    let mut value =
        serde_json::to_value(store).map_err(|e| Error::internal("a datastore cannot be written").with_source(e))?;
    // How long things are kept is no matter of where.
    for key in ["retention", "maintenance"] {
        let kept = before.get("datastore").and_then(|old| old.get(key));
        if let (Some(kept), Some(fields)) = (kept, value.as_object_mut()) {
            fields.entry(key).or_insert_with(|| kept.clone());
        }
    }
    let block = yaml::to_string(&serde_json::json!({ "datastore": value }))?;
    let mut out = String::new();
    let mut inside = false;
    for line in text.lines() {
        let starts_key = !line.starts_with([' ', '\t', '#', '-']) && !line.trim().is_empty();
        if starts_key {
            inside = line.starts_with("datastore:");
        }
        if !inside {
            out.push_str(line);
            out.push('\n');
        }
    }
    out.push_str(&block);
    let mut expected = before;
    expected.insert("datastore".to_owned(), value);
    let after: Option<Map<String, Value>> = yaml::from_str(&out, MARKER).ok();
    // Unusual YAML (a quoted key, flow style) is rewritten whole rather than edited wrongly.
    if after.as_ref() == Some(&expected) { Ok(out) } else { yaml::to_string(&expected) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# ours\npeatVersion: 0.1.0\ninitializedAt: 2026-07-20T09:12:44.021Z\nrepoId: 5b0c3b1e-2f5a-4a57-8a3f-7f0f0c9c1d11\nowner: me # hello\n";

    #[test]
    fn reads_what_it_knows_and_keeps_the_rest() {
        let marker = Marker::parse(TEXT, "0.1.0").unwrap();
        assert_eq!(marker.repo_id, "5b0c3b1e-2f5a-4a57-8a3f-7f0f0c9c1d11");
        assert_eq!(marker.doc["owner"], "me");
        assert_eq!(marker.datastore, None);
    }

    #[test]
    fn a_newer_release_is_refused_a_newer_patch_is_not() {
        assert!(Marker::parse(TEXT, "0.1.7").is_ok());
        assert!(Marker::parse(&TEXT.replace("0.1.0", "0.1.9"), "0.1.0").is_ok());
        let error = Marker::parse(&TEXT.replace("0.1.0", "0.2.0"), "0.1.0").unwrap_err();
        assert_eq!(error.code(), "unsupported_version");
        assert!(Marker::parse(&TEXT.replace("0.1.0", "soon"), "0.1.0").is_err());
    }

    #[test]
    fn upkeep_is_read_checked_and_kept_when_the_store_is_changed() {
        let private = format!("{TEXT}datastore:\n  retention:\n    days: 90\n    maxBytes: 1000\n  maintenance: off\n");
        let marker = Marker::parse(&private, "0.1.0").unwrap();
        assert_eq!((marker.datastore, marker.upkeep.max_bytes()), (None, Some(1000)));
        assert_eq!(marker.upkeep.keep(), Duration::from_secs(90 * 24 * 3600));
        assert!(!marker.upkeep.by_itself() && Upkeep::default().by_itself());
        assert_eq!(Upkeep::default().keep(), Duration::from_secs(30 * 24 * 3600));
        let store = Datastore { url: "s3://b/p".into(), ..Datastore::default() };
        let shared = Marker::parse(&with_datastore(&private, &store).unwrap(), "0.1.0").unwrap();
        assert_eq!((shared.datastore.unwrap().url.as_str(), shared.upkeep), ("s3://b/p", marker.upkeep));
        for bad in [
            "retention: {days: 0}",
            "retention: {days: x}",
            "retention: {weeks: 1}",
            "maintenance: maybe",
            "maintenence: off",
        ] {
            let text = format!("{TEXT}datastore: {{{bad}}}\n");
            assert!(Marker::parse(&text, "0.1.0").is_err(), "{bad}");
        }
    }

    #[test]
    fn misspelt_settings_and_impossible_limits_are_named() {
        for (bad, named) in [
            ("deletelimit: {items: 1}", "'deletelimit'"),
            ("maintenence: off", "'maintenence'"),
            ("deleteLimit: {item: 1}", "`item`"),
            ("deleteLimit: {percent: 101}", "deleteLimit.percent is 101"),
            (
                "deleteLimit: {items: -1}",
                "datastore.deleteLimit cannot be read: invalid value: integer `-1`, expected a whole",
            ),
            ("region: 5", "datastore.region cannot be read"),
        ] {
            let error = Marker::parse(&format!("{TEXT}datastore: {{url: 'file:///x', {bad}}}\n"), "0.1.0").unwrap_err();
            assert!(error.to_string().contains(named), "{error:?}");
        }
        let all = "deleteLimit: {items: 1, percent: 100}, pathStyle: true, maintenance: on";
        assert!(Marker::parse(&format!("{TEXT}datastore: {{url: 'file:///x', {all}}}\n"), "0.1.0").is_ok());
    }

    #[test]
    fn datastore_is_set_and_replaced_without_touching_the_rest() {
        let store = Datastore { url: "s3://b/p".into(), namespace: Some("pay".into()), ..Datastore::default() };
        let once = with_datastore(TEXT, &store).unwrap();
        assert!(once.starts_with(TEXT), "{once}");
        assert_eq!(Marker::parse(&once, "0.1.0").unwrap().datastore.unwrap(), store);
        let other = Datastore { url: "file:///x".into(), path_style: Some(true), ..Datastore::default() };
        let twice = with_datastore(&once, &other).unwrap();
        assert!(twice.starts_with(TEXT) && !twice.contains("s3://"), "{twice}");
        let middle = "repoId: 5b0c3b1e-2f5a-4a57-8a3f-7f0f0c9c1d11\ndatastore: # here\n  url: a\n\n  region: b\npeatVersion: 0.1.0\n";
        let moved = with_datastore(middle, &other).unwrap();
        assert!(!moved.contains("region"), "{moved}");
        let flow = "{peatVersion: 0.1.0, repoId: 5b0c3b1e-2f5a-4a57-8a3f-7f0f0c9c1d11}";
        assert_eq!(Marker::parse(&with_datastore(flow, &other).unwrap(), "0.1.0").unwrap().datastore.unwrap(), other);
    }
}
