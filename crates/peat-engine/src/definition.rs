//! Definitions: named, configured instances of model types, kept as YAML files in the repository.

mod files;
mod store;
mod validate;

use std::collections::BTreeMap;
use std::path::PathBuf;

use peat_types::{Error, Result, Unit};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::names::{check_old_name, normalize_type};
use crate::yaml;

pub(crate) use files::Library;
pub use store::CreateModel;
pub(crate) use store::{create, edit, search, view};
pub(crate) use validate::{expressions, find as find_expressions, validate, validate_all};

/// A definition as read from its file.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// Identity of its data; never reused.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Normalised type.
    pub type_name: String,
    /// Version of the type at the last write.
    pub type_version: Option<String>,
    /// Edit counter.
    pub version: u64,
    /// Copied to produced data.
    pub tags: BTreeMap<String, String>,
    /// Arguments visible to every method.
    pub global_arguments: Map<String, Value>,
    /// Stored arguments per method.
    pub methods: BTreeMap<String, Map<String, Value>>,
    /// Declared inputs: property name to schema.
    pub inputs: Map<String, Value>,
    /// Names of inputs that must be given.
    pub required_inputs: Vec<String>,
    /// Whether undeclared inputs are let in.
    pub additional_inputs: bool,
    /// The whole document.
    pub doc: Map<String, Value>,
    /// The file.
    pub path: PathBuf,
    /// The file relative to the repository, with `/`.
    pub rel: String,
    /// The file's text.
    pub source: String,
}

impl Definition {
    /// Reads a definition from the text of its file. `folder_type` is the type its folder names, for files without one.
    pub(crate) fn parse(source: &str, rel: &str, path: PathBuf, folder_type: &str) -> Result<Self> {
        let doc: Map<String, Value> = yaml::from_str(source, rel)?;
        let mut wrong = Vec::new();
        let mut text = |key: &str| match doc.get(key) {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(text.clone()),
            Some(_) => {
                wrong.push(format!("{key}: is not text"));
                None
            }
        };
        let (id, name, raw_type) = (text("id"), text("name"), text("type"));
        let type_version = match doc.get("typeVersion") {
            // Numbers are what older versions wrote by mistake; they say nothing.
            Some(Value::String(text)) => Some(text.clone()),
            _ => None,
        };
        let id = id.unwrap_or_default();
        if id.is_empty() {
            wrong.push("id: is missing".to_owned());
        } else if id.contains('/') || Unit::model(&id).is_err() {
            wrong.push(format!("id: '{id}' cannot name data"));
        }
        let name = name.unwrap_or_default();
        if let Err(why) = check_old_name(&name) {
            wrong.push(if name.is_empty() { "name: is missing".to_owned() } else { format!("name: {why}") });
        }
        let raw_type = raw_type.unwrap_or_else(|| folder_type.to_owned());
        let type_name = normalize_type(&raw_type).unwrap_or_else(|e| {
            wrong.push(format!("type: {e}"));
            String::new()
        });
        let version = match doc.get("version") {
            None | Some(Value::Null) => 1,
            Some(value) => value.as_u64().filter(|v| *v >= 1).unwrap_or_else(|| {
                wrong.push("version: is not a number from 1".to_owned());
                1
            }),
        };
        let tags = tags(&doc, &mut wrong);
        let global_arguments = map(doc.get("globalArguments"), "globalArguments", &mut wrong);
        let methods = methods(&doc, &mut wrong);
        let (inputs, required_inputs, additional_inputs) = inputs(&doc, &mut wrong);
        if !wrong.is_empty() {
            return Err(Error::invalid(format!("{rel} is not a definition: {}", wrong.join("; "))));
        }
        Ok(Self {
            id,
            name,
            type_name,
            type_version,
            version,
            tags,
            global_arguments,
            methods,
            inputs,
            required_inputs,
            additional_inputs,
            doc,
            path,
            rel: rel.to_owned(),
            source: source.to_owned(),
        })
    }

    /// Its unit in the ledger.
    pub fn unit(&self) -> Result<Unit> {
        Unit::model(&self.id)
    }

    /// SHA-256 of what it says, not of how the file spells it.
    pub fn hash(&self) -> String {
        sha256(Value::Object(self.doc.clone()).to_string().as_bytes())
    }
}

/// SHA-256 as hex.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(64), |mut out, byte| {
        use std::fmt::Write;
        // Writing to a string cannot fail.
        let _ = write!(out, "{byte:02x}");
        out
    })
}

fn map(value: Option<&Value>, path: &str, wrong: &mut Vec<String>) -> Map<String, Value> {
    match value {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(map)) => map.clone(),
        Some(_) => {
            wrong.push(format!("{path}: is not a map"));
            Map::new()
        }
    }
}

fn tags(doc: &Map<String, Value>, wrong: &mut Vec<String>) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    for (key, value) in map(doc.get("tags"), "tags", wrong) {
        match value {
            Value::String(text) => drop(out.insert(key, text)),
            // `team: 7` is a slip everybody makes; a tag is text.
            Value::Bool(_) | Value::Number(_) => drop(out.insert(key, value.to_string())),
            _ => wrong.push(format!("tags.{key}: is not text")),
        }
    }
    out
}

fn methods(doc: &Map<String, Value>, wrong: &mut Vec<String>) -> BTreeMap<String, Map<String, Value>> {
    let mut out = BTreeMap::new();
    for (name, value) in map(doc.get("methods"), "methods", wrong) {
        let method = map(Some(&value), &format!("methods.{name}"), wrong);
        let arguments = map(method.get("arguments"), &format!("methods.{name}.arguments"), wrong);
        out.insert(name, arguments);
    }
    out
}

fn inputs(doc: &Map<String, Value>, wrong: &mut Vec<String>) -> (Map<String, Value>, Vec<String>, bool) {
    let block = map(doc.get("inputs"), "inputs", wrong);
    let Some(properties) = block.get("properties") else { return (block, Vec::new(), false) };
    let properties = map(Some(properties), "inputs.properties", wrong);
    let required = match block.get("required") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        Some(_) => {
            wrong.push("inputs.required: is not a list".to_owned());
            Vec::new()
        }
    };
    let additional = block.get("additionalProperties").and_then(Value::as_bool).unwrap_or(false);
    (properties, required, additional)
}
