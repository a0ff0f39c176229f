//! Model types: what they declare and how their methods run.

mod capture;
mod registry;
pub(crate) mod shell;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::{Map, Value};

use crate::cancel::Cancel;
use crate::report::{MethodView, SpecView};
use crate::{Definition, Host};

pub use registry::Registry;
pub(crate) use registry::method;

/// What a type declares.
#[derive(Clone, Debug)]
pub struct TypeSpec {
    /// Normalised name.
    pub name: String,
    /// Its version (`YYYY.MM.DD.N`).
    pub version: String,
    /// One line about it.
    pub description: String,
    /// JSON Schema of the global arguments; absent when it has none.
    pub global_arguments: Option<Value>,
    /// Its methods.
    pub methods: Vec<MethodSpec>,
    /// What its methods produce.
    pub data: Vec<DataSpec>,
}

impl TypeSpec {
    /// A method by name.
    pub fn method(&self, name: &str) -> Option<&MethodSpec> {
        self.methods.iter().find(|method| method.name == name)
    }

    /// A data spec by name.
    pub fn data(&self, name: &str) -> Option<&DataSpec> {
        self.data.iter().find(|spec| spec.name == name)
    }
}

/// A method as its type declares it.
#[derive(Clone, Debug)]
pub struct MethodSpec {
    /// Its name.
    pub name: String,
    /// One line about it.
    pub description: String,
    /// What it does to the world.
    pub kind: MethodKind,
    /// JSON Schema of its arguments.
    pub arguments: Value,
}

impl MethodSpec {
    pub(crate) fn view(&self) -> MethodView {
        MethodView {
            name: self.name.clone(),
            description: self.description.clone(),
            kind: self.kind.as_str().to_owned(),
            arguments: self.arguments.clone(),
        }
    }
}

/// What a method does to the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MethodKind {
    /// Makes something.
    Create,
    /// Looks at something.
    Read,
    /// Changes something.
    Update,
    /// Removes something.
    Delete,
    /// Looks at many things.
    List,
    /// Anything else.
    Action,
}

impl MethodKind {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Read => "read",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::List => "list",
            Self::Action => "action",
        }
    }

    /// Whether runs of it need the lease of their model.
    pub const fn mutates(self) -> bool {
        !matches!(self, Self::Read | Self::List)
    }
}

/// What methods produce under one name.
#[derive(Clone, Debug)]
pub struct DataSpec {
    /// Its name.
    pub name: String,
    /// Whether it is structured JSON or bytes.
    pub kind: DataKind,
    /// One line about it.
    pub description: String,
    /// JSON Schema of a resource.
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

impl DataSpec {
    pub(crate) fn view(&self) -> SpecView {
        SpecView {
            spec_name: self.name.clone(),
            kind: self.kind.as_str().to_owned(),
            description: self.description.clone(),
            schema: self.schema.clone(),
            content_type: self.content_type.clone(),
            lifetime: self.lifetime.clone(),
            garbage_collection: self.garbage_collection.clone(),
            streaming: self.streaming,
        }
    }
}

/// Whether data is structured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataKind {
    /// JSON of a declared shape.
    Resource,
    /// Bytes or lines.
    File,
}

impl DataKind {
    /// The word for it; also the tag `type`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Resource => "resource",
            Self::File => "file",
        }
    }
}

/// A type of models.
#[async_trait]
pub trait ModelType: Send + Sync {
    /// What it declares.
    fn spec(&self) -> &TypeSpec;

    /// Runs a method. Whatever happens is in the outcome: what a failed method wrote stays written.
    async fn execute(&self, call: &Call<'_>) -> Outcome;
}

/// One call of a method.
pub struct Call<'a> {
    /// The machine.
    pub host: &'a Host,
    /// The definition.
    pub definition: &'a Definition,
    /// The method.
    pub method: &'a MethodSpec,
    /// Its arguments, checked.
    pub arguments: &'a Map<String, Value>,
    /// Variables that a program started by the method finds in addition to those of this process.
    pub variables: &'a BTreeMap<String, String>,
    /// Ends it early.
    pub cancel: &'a Cancel,
    /// A file whose existence ends it early; holds the reason.
    pub cancel_file: Option<PathBuf>,
    /// Beginning of the names of files that the call may make for what does not fit into memory. They go with the run.
    pub scratch: &'a std::path::Path,
    /// Hears every line of output.
    pub lines: &'a (dyn Fn(Stream, &str) + Send + Sync),
}

/// Where a line came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// How a call ended.
#[derive(Clone, Debug)]
pub enum End {
    /// Well.
    Succeeded,
    /// Badly: one line.
    Failed(String),
    /// Because somebody wanted that: the reason.
    Cancelled(String),
}

/// What a call came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// What it wrote.
    pub writes: Vec<Write>,
}

/// One item of data that a call wrote.
#[derive(Clone, Debug)]
pub struct Write {
    /// Name of the spec.
    pub spec: String,
    /// Name of the data item.
    pub name: String,
    /// The content.
    pub content: Produced,
}

/// A content that a call produced.
#[derive(Clone, Debug)]
pub enum Produced {
    /// In memory.
    Bytes(Bytes),
    /// In a file that goes with the run (see [`Call::scratch`]).
    File {
        /// The file.
        path: PathBuf,
        /// Bytes it has.
        size: u64,
        /// SHA-256 of them, in lower-case hexadecimal digits.
        sha256: String,
    },
}

impl Produced {
    /// Size and SHA-256.
    pub(crate) fn measures(&self) -> (u64, String) {
        match self {
            Self::Bytes(bytes) => (bytes.len() as u64, crate::definition::sha256(bytes)),
            Self::File { size, sha256, .. } => (*size, sha256.clone()),
        }
    }
}

/// A shared type.
pub type SharedType = Arc<dyn ModelType>;
