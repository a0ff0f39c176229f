//! Checking definitions.

use std::path::Path;

use peat_types::Result;
use serde_json::{Map, Value};

use super::{Definition, Library};
use crate::names::did_you_mean;
use crate::report::{ModelValidated, ModelValidatedAll, Validation, Warning};
use crate::schema;
use crate::types::{Registry, TypeSpec};

/// Keys of a definition that this version knows.
const KEYS: &[&str] = &[
    "type",
    "typeVersion",
    "id",
    "name",
    "version",
    "tags",
    "globalArguments",
    "methods",
    "inputs",
    "checks",
    "reports",
    "resources",
];

/// Said about every expression.
const NO_EXPRESSIONS: &str = "expressions '${{ … }}' are not supported yet in this version: write the value itself";

/// Checks one definition, or only what concerns one method.
pub(crate) fn validate(definition: &Definition, types: &Registry, method: Option<&str>) -> ModelValidated {
    let mut validations = vec![check("definition", &[])];
    let mut warnings = Vec::new();
    let mut id = Vec::new();
    if uuid::Uuid::try_parse(&definition.id).is_err() {
        id.push(format!("id: '{}' is not a UUID", definition.id));
    }
    validations.push(check("id", &id));
    validations.push(check("keys", &removed_keys(&definition.doc)));
    match types.get(&definition.type_name) {
        Err(error) => validations.push(check("type", &[format!("type: {error}")])),
        Ok(of) => {
            let spec = of.spec();
            validations.push(check("type", &[]));
            validations.push(check("globalArguments", &globals(definition, spec)));
            validations.push(check("methods", &methods(definition, spec, method)));
            if definition.type_version.as_deref().is_some_and(|v| v > spec.version.as_str()) {
                warnings.push(Warning {
                    name: "typeVersion".to_owned(),
                    message: format!(
                        "typeVersion: written for version {} of the type, this is {}",
                        definition.type_version.as_deref().unwrap_or_default(),
                        spec.version
                    ),
                });
            }
        }
    }
    let expressions: Vec<String> =
        expressions(definition, method).into_iter().map(|path| format!("{path}: {NO_EXPRESSIONS}")).collect();
    validations.push(check("expressions", &expressions));
    for key in definition.doc.keys().filter(|key| !KEYS.contains(&key.as_str()) && !is_removed(key)) {
        let close = did_you_mean(key, KEYS.iter().copied());
        warnings.push(Warning {
            name: key.clone(),
            message: format!("{key}: is not known to this version and is kept as it is{close}"),
        });
    }
    let passed = validations.iter().all(|v| v.passed);
    ModelValidated {
        model_id: definition.id.clone(),
        model_name: definition.name.clone(),
        type_name: definition.type_name.clone(),
        validations,
        warnings,
        passed,
    }
}

/// Everything that makes a definition invalid, one line each.
pub(super) fn problems(definition: &Definition, types: &Registry) -> Vec<String> {
    let report = validate(definition, types, None);
    // An expression may stand in a file: only running it is refused.
    report.validations.into_iter().filter(|v| v.name != "expressions").filter_map(|v| v.error).collect()
}

/// Checks every definition of the repository; files that cannot be read fail.
pub(crate) fn validate_all(root: &Path, types: &Registry) -> Result<ModelValidatedAll> {
    let found = Library::new(root).all()?;
    let mut models: Vec<ModelValidated> = found.definitions.iter().map(|d| validate(d, types, None)).collect();
    for (i, definition) in found.definitions.iter().enumerate() {
        let twin = |same: &dyn Fn(&Definition) -> bool| {
            found.definitions.iter().enumerate().find(|(j, d)| *j != i && same(d)).map(|(_, d)| d.rel.clone())
        };
        let mut twins = Vec::new();
        if let Some(other) = twin(&|d| d.name == definition.name) {
            twins.push(format!("name: '{}' is also the name in {other}", definition.name));
        }
        if let Some(other) = twin(&|d| d.id == definition.id) {
            twins.push(format!("id: {} is also the id in {other}", definition.id));
        }
        if let Some(model) = models.get_mut(i) {
            model.passed &= twins.is_empty();
            model.validations.push(check("unique", &twins));
        }
    }
    for warning in found.warnings {
        models.push(ModelValidated {
            model_id: warning.name.clone(),
            model_name: warning.name.clone(),
            type_name: String::new(),
            validations: vec![Validation {
                name: "definition".to_owned(),
                passed: false,
                error: Some(warning.message),
            }],
            warnings: Vec::new(),
            passed: false,
        });
    }
    let total_passed = models.iter().filter(|m| m.passed).count() as u64;
    let total_warnings = models.iter().map(|m| m.warnings.len() as u64).sum();
    let total_failed = models.len() as u64 - total_passed;
    Ok(ModelValidatedAll { models, total_passed, total_failed, total_warnings, passed: total_failed == 0 })
}

fn check(name: &str, problems: &[String]) -> Validation {
    let passed = problems.is_empty();
    Validation { name: name.to_owned(), passed, error: (!passed).then(|| problems.join("\n")) }
}

/// Keys of execution drivers, which do not exist any more.
fn is_removed(key: &str) -> bool {
    key == "driver" || key == "driverConfig" || key.starts_with("defaultDriver")
}

fn removed_keys(doc: &Map<String, Value>) -> Vec<String> {
    doc.keys()
        .filter(|key| is_removed(key))
        .map(|key| {
            format!("{key}: execution drivers do not exist; start docker or ssh in the command, or place the step on a worker")
        })
        .collect()
}

fn globals(definition: &Definition, spec: &TypeSpec) -> Vec<String> {
    let mut problems = Vec::new();
    let none = serde_json::json!({"additionalProperties": false});
    if let Some(of) = spec.global_arguments.as_ref().unwrap_or(&none).as_object() {
        schema::object(of, definition.global_arguments.clone(), "globalArguments", &mut problems);
    }
    problems
}

fn methods(definition: &Definition, spec: &TypeSpec, only: Option<&str>) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, arguments) in definition.methods.iter().filter(|(name, _)| only.is_none_or(|only| only == *name)) {
        let Some(method) = spec.method(name) else {
            let close = did_you_mean(name, spec.methods.iter().map(|m| m.name.as_str()));
            problems.push(format!("methods.{name}: type {} has no such method{close}", spec.name));
            continue;
        };
        if let Some(of) = method.arguments.as_object() {
            // What is required may come with the call.
            let mut of = of.clone();
            of.remove("required");
            schema::object(&of, arguments.clone(), &format!("methods.{name}.arguments"), &mut problems);
        }
    }
    problems
}

/// Paths of the values that hold an expression, in the global arguments and in the arguments of one or all methods.
pub(crate) fn expressions(definition: &Definition, method: Option<&str>) -> Vec<String> {
    let mut paths = Vec::new();
    for (key, value) in &definition.global_arguments {
        find(value, &format!("globalArguments.{key}"), &mut paths);
    }
    for (name, arguments) in definition.methods.iter().filter(|(name, _)| method.is_none_or(|only| only == *name)) {
        for (key, value) in arguments {
            find(value, &format!("methods.{name}.arguments.{key}"), &mut paths);
        }
    }
    paths
}

/// Adds the paths below `path` of texts that hold an expression.
pub(crate) fn find(value: &Value, path: &str, paths: &mut Vec<String>) {
    match value {
        Value::String(text) if text.contains("${{") => paths.push(path.to_owned()),
        Value::Array(items) => items.iter().enumerate().for_each(|(i, v)| find(v, &format!("{path}[{i}]"), paths)),
        Value::Object(map) => map.iter().for_each(|(k, v)| find(v, &format!("{path}.{k}"), paths)),
        _ => {}
    }
}
