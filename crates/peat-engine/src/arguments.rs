//! From stored arguments and the caller's inputs to what a method is given.

use peat_types::{Error, Kind, Result};
use serde_json::{Map, Value};

use crate::Definition;
use crate::definition::{expressions, find_expressions};
use crate::input::merge;
use crate::names::did_you_mean;
use crate::schema;
use crate::types::{MethodSpec, TypeSpec};

/// The arguments of one call.
#[derive(Debug)]
pub(crate) struct Resolved {
    /// Visible to every method.
    pub global: Map<String, Value>,
    /// Of the method.
    pub method: Map<String, Value>,
}

/// Routes every input to a declared input or to an argument of the method, merges, coerces and checks.
///
/// # Errors
/// `Invalid` naming every value that is wrong; `Unsupported` when a value holds an expression.
pub(crate) fn resolve(
    definition: &Definition,
    spec: &TypeSpec,
    method: &MethodSpec,
    inputs: Map<String, Value>,
) -> Result<Resolved> {
    let mut with_expressions = expressions(definition, Some(&method.name));
    for (key, value) in &inputs {
        find_expressions(value, key, &mut with_expressions);
    }
    if let Some(first) = with_expressions.first() {
        return Err(Error::new(
            Kind::Unsupported,
            format!(
                "{first} of model '{}' holds an expression '${{{{ … }}}}', which is not supported yet in this version",
                definition.name
            ),
        )
        .with_hint(format!(
            "write the value itself, or give it with 'peat model method run {} {} --input key=value'",
            definition.name, method.name
        )));
    }
    let mut problems = Vec::new();
    let (declared, arguments) = route(definition, method, inputs, &mut problems);
    check_inputs(definition, declared, &mut problems);
    let mut merged = definition.methods.get(&method.name).cloned().unwrap_or_default();
    merge(&mut merged, arguments);
    let method_arguments = match method.arguments.as_object() {
        Some(of) => schema::object(of, merged, "", &mut problems),
        None => merged,
    };
    let global = match spec.global_arguments.as_ref().and_then(Value::as_object) {
        Some(of) => schema::object(of, definition.global_arguments.clone(), "globalArguments", &mut problems),
        None => definition.global_arguments.clone(),
    };
    if problems.is_empty() {
        return Ok(Resolved { global, method: method_arguments });
    }
    Err(Error::invalid(format!(
        "method '{}' of model '{}' cannot run with these arguments: {}",
        method.name,
        definition.name,
        problems.join("; ")
    ))
    .with_hint(format!("'peat model method describe {} {}' shows what it takes", definition.name, method.name)))
}

fn route(
    definition: &Definition,
    method: &MethodSpec,
    inputs: Map<String, Value>,
    problems: &mut Vec<String>,
) -> (Map<String, Value>, Map<String, Value>) {
    let known = method.arguments.get("properties").and_then(Value::as_object);
    let open = method.arguments.get("additionalProperties") != Some(&Value::Bool(false));
    let (mut declared, mut arguments) = (Map::new(), Map::new());
    for (key, value) in inputs {
        if definition.inputs.contains_key(&key) {
            declared.insert(key, value);
        } else if known.is_some_and(|known| known.contains_key(&key)) || open {
            arguments.insert(key, value);
        } else if definition.additional_inputs {
            declared.insert(key, value);
        } else {
            let names = known
                .into_iter()
                .flatten()
                .map(|(name, _)| name.as_str())
                .chain(definition.inputs.keys().map(String::as_str));
            problems.push(format!(
                "{key}: is neither an argument of the method nor an input of the model{}",
                did_you_mean(&key, names)
            ));
        }
    }
    (declared, arguments)
}

/// Inputs are only checked: nothing can read them before there are expressions.
fn check_inputs(definition: &Definition, given: Map<String, Value>, problems: &mut Vec<String>) {
    let mut of = Map::new();
    of.insert("properties".to_owned(), Value::Object(definition.inputs.clone()));
    of.insert("required".to_owned(), definition.required_inputs.clone().into());
    schema::object(&of, given, "inputs", problems);
}
