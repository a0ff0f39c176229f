//! Reports about definitions, types and methods.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};

use super::schema;

/// Something that deserves attention but stopped nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// What it is about: a file relative to the repository, or a name.
    pub name: String,
    /// What is wrong.
    pub message: String,
}

/// A method as a type declares it.
#[derive(Clone, Debug, Serialize)]
pub struct MethodView {
    /// Its name.
    pub name: String,
    /// One line about it.
    pub description: String,
    /// `create`, `read`, `update`, `delete`, `list` or `action`.
    pub kind: String,
    /// JSON Schema of its arguments.
    pub arguments: Value,
}

/// `peat model create`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelCreated {
    /// Id of the definition.
    pub id: String,
    /// Normalised type.
    #[serde(rename = "type")]
    pub type_name: String,
    /// Its name.
    pub name: String,
    /// The file, relative to the repository.
    pub path: String,
    /// Edit counter.
    pub version: u64,
    /// Arguments visible to every method.
    pub global_arguments: Map<String, Value>,
    /// Methods of its type.
    pub methods: Vec<MethodView>,
}

/// `peat model get`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelView {
    /// Id of the definition.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Normalised type.
    #[serde(rename = "type")]
    pub type_name: String,
    /// Edit counter.
    pub version: u64,
    /// Tags, copied to produced data.
    pub tags: BTreeMap<String, String>,
    /// Arguments visible to every method.
    pub global_arguments: Map<String, Value>,
    /// Stored arguments per method.
    pub method_arguments: BTreeMap<String, Map<String, Value>>,
    /// Whether a direct run made it; absent for definitions in the repository.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_created: Option<bool>,
    /// Version of the type at the last write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub type_version: Option<String>,
    /// JSON Schema of the global arguments; absent when the type has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub global_arguments_schema: Option<Value>,
    /// Methods of its type; absent when the type is unknown here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub methods: Option<Vec<MethodView>>,
    /// The file, relative to the repository.
    pub path: String,
    /// The file as it stands, for text output.
    #[serde(skip)]
    pub source: String,
}

/// A line of `peat model search`.
#[derive(Clone, Debug, Serialize)]
pub struct ModelRow {
    /// Id of the definition.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Normalised type.
    #[serde(rename = "type")]
    pub type_name: String,
}

/// `peat model search`.
#[derive(Clone, Debug, Serialize)]
pub struct ModelSearch {
    /// What was searched for.
    pub query: String,
    /// Matches by name.
    pub results: Vec<ModelRow>,
    /// Files that could not be read; absent when there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
}

/// `peat model edit` with a replacement on standard input.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelEdited {
    /// The file, relative to the repository.
    pub path: String,
    /// `updated`; the caller says `opened` when it started an editor.
    pub status: String,
    /// Name of the definition.
    pub name: String,
    /// Normalised type.
    #[serde(rename = "type")]
    pub type_name: String,
    /// `stdin` or `editor`.
    pub edit_type: String,
}

/// What `peat model delete` removed.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeletedModel {
    /// Id of the definition.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Normalised type.
    #[serde(rename = "type")]
    pub type_name: String,
    /// The file, relative to the repository.
    pub input_path: String,
}

/// `peat model delete`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelDeleted {
    /// What was removed.
    pub deleted: DeletedModel,
    /// Output records removed from the ledger.
    pub outputs_deleted: u64,
    /// Data versions removed from the ledger.
    pub data_deleted: u64,
    /// Evaluated copies removed; always false in this version.
    pub evaluated_input_deleted: bool,
    /// Expired items removed on the way; always 0 in this version.
    pub expired_data_auto_collected: u64,
}

/// One check of `peat model validate`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Validation {
    /// Name of the check.
    pub name: String,
    /// Whether it passed.
    pub passed: bool,
    /// What is wrong, one line per finding, each beginning with the path of the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// `peat model validate <name>`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelValidated {
    /// Id of the definition; the file when it could not be read.
    pub model_id: String,
    /// Its name; the file when it could not be read.
    pub model_name: String,
    /// Normalised type.
    #[serde(rename = "type")]
    pub type_name: String,
    /// The checks.
    pub validations: Vec<Validation>,
    /// What deserves attention.
    pub warnings: Vec<Warning>,
    /// Whether every check passed.
    pub passed: bool,
}

/// `peat model validate`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelValidatedAll {
    /// One report per definition.
    pub models: Vec<ModelValidated>,
    /// Definitions that passed.
    pub total_passed: u64,
    /// Definitions that failed.
    pub total_failed: u64,
    /// Warnings.
    pub total_warnings: u64,
    /// Whether all passed.
    pub passed: bool,
}

/// A type as written and as stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TypeName {
    /// As written.
    pub raw: String,
    /// As stored and compared.
    pub normalized: String,
}

/// `peat model type search`.
#[derive(Clone, Debug, Serialize)]
pub struct TypeSearch {
    /// What was searched for.
    pub query: String,
    /// Matches.
    pub results: Vec<TypeName>,
    /// Said when nothing matches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// What a type's methods produce under one spec.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SpecView {
    /// Name of the spec.
    pub spec_name: String,
    /// `resource` or `file`.
    pub kind: String,
    /// One line about it.
    pub description: String,
    /// JSON Schema of a resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// MIME type.
    pub content_type: String,
    /// How long it should exist.
    pub lifetime: String,
    /// How many versions are kept.
    pub garbage_collection: Value,
    /// Whether it grows while the method runs.
    pub streaming: bool,
}

/// `peat model type describe`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TypeView {
    /// Its name.
    #[serde(rename = "type")]
    pub type_name: TypeName,
    /// Its version.
    pub version: String,
    /// One line about it.
    pub description: String,
    /// JSON Schema of the global arguments; absent when it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub global_arguments: Option<Value>,
    /// What its methods produce.
    pub data_output_specs: Vec<SpecView>,
    /// Its methods.
    pub methods: Vec<MethodView>,
}

/// `peat model method describe`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MethodReport {
    /// Name of the definition.
    pub model_name: String,
    /// Normalised type.
    pub model_type: String,
    /// Version of the type.
    pub version: String,
    /// The method.
    pub method: MethodView,
    /// What it produces.
    pub data_output_specs: Vec<SpecView>,
}

schema! {
    ModelCreated => "peat.model.create/1",
    ModelView => "peat.model.get/1",
    ModelSearch => "peat.model.search/1",
    ModelEdited => "peat.model.edit/1",
    ModelDeleted => "peat.model.delete/1",
    ModelValidated => "peat.model.validate/1",
    ModelValidatedAll => "peat.model.validate-all/1",
    TypeSearch => "peat.model.type.search/1",
    TypeView => "peat.model.type.describe/1",
    MethodReport => "peat.model.method.describe/1",
}
