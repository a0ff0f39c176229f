//! Making, showing and changing definition files.

use std::path::Path;

use peat_types::{Error, ItemPath, Kind, Result};
use serde_json::{Map, Value, json};

use super::{Definition, Library, validate};
use crate::input;
use crate::names::{check_new_name, normalize_type};
use crate::report::{ModelCreated, ModelEdited, ModelRow, ModelSearch, ModelView};
use crate::types::{MethodSpec, Registry};
use crate::{Host, files, schema, yaml};

/// What to create.
#[derive(Clone, Debug, Default)]
pub struct CreateModel {
    /// Type, however it is spelled.
    pub type_name: String,
    /// Name of the definition.
    pub name: String,
    /// `--global-arg k=v`, with the rules of `--input`.
    pub global_args: Vec<String>,
}

fn views(methods: &[MethodSpec]) -> Vec<crate::report::MethodView> {
    methods.iter().map(MethodSpec::view).collect()
}

/// Writes a new definition.
pub(crate) fn create(
    host: &Host,
    root: &Path,
    request: &CreateModel,
    read: &input::ReadFile<'_>,
) -> Result<ModelCreated> {
    let of = host.types.get(&request.type_name)?;
    let spec = of.spec();
    check_new_name(&request.name)?;
    let library = Library::new(root);
    if let Some(taken) = library.all()?.definitions.into_iter().find(|d| d.name == request.name) {
        return Err(taken_by(&taken));
    }
    let mut globals = Map::new();
    for flag in &request.global_args {
        input::apply_flag(&mut globals, flag, "--global-arg", read)?;
    }
    let globals = check_globals(spec.global_arguments.as_ref(), &spec.name, globals)?;
    let id = host.uuid();
    let methods: Map<String, Value> = if spec.name == "command/shell" {
        // A starter that can be run at once and shows where the command goes.
        [(
            "execute".to_owned(),
            json!({"arguments": {"run": format!("echo 'edit models/{}'", rel_below(&spec.name, &request.name, &id))}}),
        )]
        .into_iter()
        .collect()
    } else {
        Map::new()
    };
    let mut doc = Map::new();
    doc.insert("type".to_owned(), spec.name.clone().into());
    doc.insert("typeVersion".to_owned(), spec.version.clone().into());
    doc.insert("id".to_owned(), id.clone().into());
    doc.insert("name".to_owned(), request.name.clone().into());
    doc.insert("version".to_owned(), 1.into());
    doc.insert("tags".to_owned(), json!({}));
    doc.insert("globalArguments".to_owned(), globals.clone().into());
    doc.insert("methods".to_owned(), methods.into());
    let below = rel_below(&spec.name, &request.name, &id);
    let path = library.folder().join(&below);
    inside(root, &path)?;
    if !files::create(&host.env, &path, yaml::to_string(&doc)?.as_bytes())? {
        return Err(Error::new(Kind::AlreadyExists, format!("the file models/{below} exists already"))
            .with_hint("look at it with 'peat model validate': it could not be read as a definition of that name"));
    }
    Ok(ModelCreated {
        id,
        type_name: spec.name.clone(),
        name: request.name.clone(),
        path: format!("models/{below}"),
        version: 1,
        global_arguments: globals,
        methods: views(&spec.methods),
    })
}

fn taken_by(taken: &Definition) -> Error {
    Error::new(Kind::AlreadyExists, format!("there is a model '{}' already: {}", taken.name, taken.rel))
        .with_hint(format!("choose another name, or change that one with 'peat model edit {}'", taken.name))
}

fn check_globals(of: Option<&Value>, type_name: &str, globals: Map<String, Value>) -> Result<Map<String, Value>> {
    let mut problems = Vec::new();
    let none = json!({"type": "object", "properties": {}, "additionalProperties": false});
    let out = match of.unwrap_or(&none).as_object() {
        Some(of) => {
            // What is required may be added to the file later; what is wrong is wrong now.
            let mut of = of.clone();
            of.remove("required");
            schema::object(&of, globals, "globalArguments", &mut problems)
        }
        None => globals,
    };
    if problems.is_empty() {
        return Ok(out);
    }
    Err(Error::invalid(format!("type {type_name} does not take these global arguments: {}", problems.join("; ")))
        .with_hint(format!("'peat model type describe {type_name}' shows what it takes")))
}

/// `<type>/<file>`: the name when it can be a file name everywhere, else the id.
fn rel_below(type_name: &str, name: &str, id: &str) -> String {
    let by_name = format!("{type_name}/{name}.yaml");
    if !name.contains('/') && !name.starts_with('@') && by_name.parse::<ItemPath>().is_ok() {
        by_name
    } else {
        format!("{type_name}/{id}.yaml")
    }
}

/// Refuses to write through a link that leads out of the repository.
fn inside(root: &Path, path: &Path) -> Result<()> {
    let root = std::fs::canonicalize(root).map_err(|e| Error::io("find", root, e))?;
    let existing = path.ancestors().find(|dir| dir.exists()).unwrap_or(path);
    let real = std::fs::canonicalize(existing).map_err(|e| Error::io("find", existing, e))?;
    if real.starts_with(&root) {
        return Ok(());
    }
    Err(Error::new(Kind::Denied, format!("{} leads out of the repository, to {}", existing.display(), real.display()))
        .with_hint("replace that link by a folder"))
}

/// Shows a definition.
pub(crate) fn view(definition: &Definition, types: &Registry) -> ModelView {
    let spec = types.get(&definition.type_name).ok().map(|t| t.spec());
    ModelView {
        id: definition.id.clone(),
        name: definition.name.clone(),
        type_name: definition.type_name.clone(),
        version: definition.version,
        tags: definition.tags.clone(),
        global_arguments: definition.global_arguments.clone(),
        method_arguments: definition.methods.clone(),
        auto_created: None,
        type_version: definition.type_version.clone(),
        global_arguments_schema: spec.and_then(|s| s.global_arguments.clone()),
        methods: spec.map(|s| views(&s.methods)),
        path: definition.rel.clone(),
        source: definition.source.clone(),
    }
}

/// Lists definitions whose name, type or id matches.
pub(crate) fn search(root: &Path, query: &str) -> Result<ModelSearch> {
    let found = Library::new(root).all()?;
    let word = query.trim().to_lowercase();
    let path = normalize_type(query).unwrap_or_default();
    let results = found
        .definitions
        .iter()
        .filter(|d| {
            word.is_empty()
                || d.name.to_lowercase().contains(&word)
                || d.type_name.contains(&word)
                || (!path.is_empty() && d.type_name.contains(&path))
                || d.id.starts_with(&word)
        })
        .map(|d| ModelRow { id: d.id.clone(), name: d.name.clone(), type_name: d.type_name.clone() })
        .collect();
    Ok(ModelSearch { query: query.to_owned(), results, warnings: found.warnings })
}

/// Replaces the text of a definition's file. A text that is no definition changes nothing.
pub(crate) fn edit(host: &Host, root: &Path, wanted: &str, text: &str) -> Result<ModelEdited> {
    let library = Library::new(root);
    let before = library.find(wanted)?;
    let unchanged = |e: Error| e.context(format!("{} was left as it is", before.rel));
    let after =
        Definition::parse(text, "the replacement", before.path.clone(), &before.type_name).map_err(unchanged)?;
    if after.id != before.id {
        return Err(Error::invalid(format!(
            "the replacement has the id {} instead of {}, so '{}' would lose its data",
            after.id, before.id, before.name
        ))
        .with_hint(
            "keep the line 'id:' of the file; a new definition is made with 'peat model create <type> <name>'",
        ));
    }
    if after.name != before.name {
        check_new_name(&after.name).map_err(unchanged)?;
        if let Some(taken) = library.all()?.definitions.into_iter().find(|d| d.name == after.name && d.id != before.id)
        {
            return Err(taken_by(&taken));
        }
    }
    let failed: Vec<String> = validate::problems(&after, &host.types);
    if !failed.is_empty() {
        return Err(Error::invalid(format!("the replacement is not valid: {}", failed.join("; "))).with_hint(format!(
            "{} was left as it is; 'peat model type describe {}' shows what the type takes",
            before.rel, after.type_name
        )));
    }
    files::write(&host.env, &before.path, text.as_bytes())?;
    Ok(ModelEdited {
        path: before.rel,
        status: "updated".to_owned(),
        name: after.name,
        type_name: after.type_name,
        edit_type: "stdin".to_owned(),
    })
}
