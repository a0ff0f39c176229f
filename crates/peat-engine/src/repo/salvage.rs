//! What can be read of a marker that is refused: enough to take away a lock.

use std::path::Path;

use peat_types::Error;
use serde_json::{Map, Value};

use super::marker::{Datastore, MARKER, Marker, Upkeep};
use crate::{files, yaml};

/// Fields of a datastore that say where it is.
const WHERE: [&str; 6] = ["url", "namespace", "endpoint", "region", "pathStyle", "profile"];

impl Marker {
    /// What can be read of a marker that [`Self::read`] refuses with `why`; its id is empty when it is not there. `None`
    /// when it does not say where the datastore is.
    pub(super) fn salvage(root: &Path, why: &Error) -> Option<Self> {
        let text = files::read(&root.join(MARKER)).ok()??;
        let doc: Map<String, Value> = yaml::from_str(&text, MARKER).ok().or_else(|| lines(&text))?;
        let text = |name: &str| doc.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let repo_id = Some(text("repoId")).filter(|id| uuid::Uuid::try_parse(id).is_ok()).unwrap_or_default();
        let datastore = match doc.get("datastore") {
            None | Some(Value::Null) => None,
            Some(value) => Some(salvaged(value)?),
        };
        let (version, damage) = (text("peatVersion"), Some(why.chain().join(": ")));
        Some(Self { version, repo_id, datastore, upkeep: Upkeep::default(), damage, doc })
    }
}

/// The fields that stand in lines of their own, of a text that is no YAML as a whole: a merge left its marks in it, or a
/// bracket is open. `None` when it says two things of where the datastore is.
fn lines(text: &str) -> Option<Map<String, Value>> {
    let mut doc = Map::new();
    let mut inside = false;
    for line in text.lines() {
        let Ok(fields) = yaml::from_str::<Map<String, Value>>(line.trim(), MARKER) else {
            if line.trim_start().starts_with("datastore") {
                return None;
            }
            continue;
        };
        for (key, value) in fields {
            if line.starts_with([' ', '\t']) {
                let store = doc.get_mut("datastore").and_then(Value::as_object_mut).filter(|_| inside);
                let Some(store) = store else { continue };
                if WHERE.contains(&key.as_str()) && store.get(&key).is_some_and(|known| *known != value) {
                    return None;
                }
                store.entry(key).or_insert(value);
                continue;
            }
            inside = key == "datastore";
            let value = if inside && value.is_null() { Value::Object(Map::new()) } else { value };
            match doc.get(&key) {
                // Which of them is meant is read in the ledger.
                Some(known) if key == "repoId" && *known != value => drop(doc.insert(key, Value::Null)),
                // Two sections of lines become one.
                Some(known) if inside && value != Value::Object(Map::new()) && *known != value => return None,
                Some(_) => {}
                None => drop(doc.insert(key, value)),
            }
        }
    }
    // Where half of a text is missing, the datastore may be: without one it is private, and that must be sure.
    let whole = ["peatVersion", "repoId"].iter().all(|key| doc.contains_key(*key));
    (whole || doc.contains_key("datastore")).then_some(doc)
}

/// A datastore without the settings that cannot be what they must be. Where it is must be known, and in which namespace.
fn salvaged(value: &Value) -> Option<Datastore> {
    let fields = value.as_object()?;
    let text = |name: &str| fields.get(name).and_then(Value::as_str).map(str::to_owned);
    let store = Datastore {
        url: text("url")?,
        namespace: match fields.get("namespace") {
            None | Some(Value::Null) => None,
            Some(slug) => Some(slug.as_str()?.to_owned()),
        },
        endpoint: text("endpoint"),
        region: text("region"),
        path_style: fields.get("pathStyle").and_then(Value::as_bool),
        profile: text("profile"),
        delete_limit: None,
        hydration: text("hydration").filter(|hydration| hydration == "lazy"),
        rest: Map::new(),
    };
    store.namespace().is_ok().then_some(store)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const WHOLE: &str = "peatVersion: 0.1.0\nrepoId: 5b0c3b1e-2f5a-4a57-8a3f-7f0f0c9c1d11\ndatastore:\n  url: s3://b/p # here\n  namespace: 'ops'\n";

    #[test]
    fn what_stands_in_lines_of_its_own_is_found_whatever_is_around_it() {
        let store = json!({"url": "s3://b/p", "namespace": "ops"});
        let conflict = |ours: &str, theirs: &str| format!("<<<<<<< HEAD\n{ours}\n=======\n{theirs}\n>>>>>>> theirs\n");
        for text in [
            WHOLE.to_owned(),
            format!("{WHOLE}tags: [a\n"),
            format!("{WHOLE}  deleteLimit: {{items: 3\n"),
            format!("{}{WHOLE}", conflict("peatVersion: 0.1.0", "peatVersion: 0.1.1")),
            format!("{WHOLE}{}", conflict("  region: a", "")),
            conflict(WHOLE.trim_end(), WHOLE.trim_end()),
        ] {
            assert_eq!(lines(&text).unwrap()["datastore"].get("url"), store.get("url"), "{text}");
            assert_eq!(lines(&text).unwrap()["datastore"].get("namespace"), store.get("namespace"), "{text}");
        }
        // Two answers are none; an id that is not sure is read elsewhere.
        for (ours, theirs) in
            [("  url: s3://c/p", "  url: s3://d/p"), ("  namespace: x", ""), ("  region: a", "  region: b")]
        {
            assert_eq!(lines(&format!("{WHOLE}{}", conflict(ours, theirs))), None, "{ours} {theirs}");
        }
        let ids = conflict("repoId: a", "repoId: b");
        assert!(lines(&format!("{WHOLE}{ids}")).unwrap()["repoId"].is_null());
        // What may have lost its datastore is not taken for private.
        for text in
            ["nothing [ of it", "<<<<<<< ours", "repoId: a\ntags: [", "repoId: a\npeatVersion: b\ndatastore: {url: ["]
        {
            assert_eq!(lines(text), None, "{text}");
        }
        assert!(lines("repoId: a\npeatVersion: b\ntags: [").is_some());
    }
}
