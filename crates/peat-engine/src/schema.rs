//! The subset of JSON Schema that types and inputs are described with: validation and coercion of values.

use serde_json::{Map, Number, Value};

use crate::names::did_you_mean;

/// What is wrong with a value, beginning with its path.
pub(crate) type Problems = Vec<String>;

/// Checks `value` against `schema` and returns it with text coerced to the declared types and defaults filled in.
///
/// Text is coerced because that is all a command line can give; nothing else is.
pub(crate) fn conform(schema: &Value, value: Value, path: &str, problems: &mut Problems) -> Value {
    let Some(schema) = schema.as_object() else { return value };
    let declared = schema.get("type").and_then(Value::as_str);
    let value = match declared {
        Some(kind) => match coerce(kind, value) {
            Ok(value) => value,
            Err((value, found)) => {
                problems.push(format!("{path}: is {found}, not {}", article(kind)));
                return value;
            }
        },
        None => value,
    };
    if let Some(Value::Array(allowed)) = schema.get("enum")
        && !allowed.contains(&value)
    {
        let list: Vec<String> = allowed.iter().map(short).collect();
        problems.push(format!("{path}: {} is not one of {}", short(&value), list.join(", ")));
    }
    match value {
        Value::String(text) => {
            let min = schema.get("minLength").and_then(Value::as_u64).unwrap_or(0);
            if (text.chars().count() as u64) < min {
                problems.push(if min == 1 {
                    format!("{path}: is empty")
                } else {
                    format!("{path}: is shorter than {min} characters")
                });
            }
            Value::String(text)
        }
        Value::Number(number) => {
            limits(schema, &number, path, problems);
            Value::Number(number)
        }
        Value::Array(items) => match schema.get("items") {
            Some(of) => {
                items.into_iter().enumerate().map(|(i, v)| conform(of, v, &format!("{path}[{i}]"), problems)).collect()
            }
            None => Value::Array(items),
        },
        Value::Object(map) => Value::Object(object(schema, map, path, problems)),
        other => other,
    }
}

/// Checks a map: declared properties, required ones, unknown ones.
pub(crate) fn object(
    schema: &Map<String, Value>,
    mut map: Map<String, Value>,
    path: &str,
    problems: &mut Problems,
) -> Map<String, Value> {
    let empty = Map::new();
    let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&empty);
    let others = schema.get("additionalProperties");
    let mut out = Map::new();
    for (name, of) in properties {
        let value = map.remove(name).or_else(|| of.get("default").cloned());
        if let Some(value) = value {
            out.insert(name.clone(), conform(of, value, &join(path, name), problems));
        }
    }
    for (name, value) in map {
        let at = join(path, &name);
        match others {
            Some(Value::Bool(false)) => {
                let hint = did_you_mean(&name, properties.keys().map(String::as_str));
                problems.push(format!("{at}: is not known{hint}"));
            }
            Some(of @ Value::Object(_)) => drop(out.insert(name, conform(of, value, &at, problems))),
            _ => drop(out.insert(name, value)),
        }
    }
    for name in schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
        if out.get(name).is_none_or(Value::is_null) {
            problems.push(format!("{}: is missing", join(path, name)));
        }
    }
    out
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn limits(schema: &Map<String, Value>, number: &Number, path: &str, problems: &mut Problems) {
    let Some(value) = number.as_f64() else { return };
    let limit = |key: &str| schema.get(key).and_then(Value::as_f64);
    if let Some(min) = limit("minimum").filter(|min| value < *min) {
        problems.push(format!("{path}: {number} is below {min}"));
    }
    if let Some(min) = limit("exclusiveMinimum").filter(|min| value <= *min) {
        problems.push(format!("{path}: {number} is not above {min}"));
    }
    if let Some(max) = limit("maximum").filter(|max| value > *max) {
        problems.push(format!("{path}: {number} is above {max}"));
    }
}

fn coerce(kind: &str, value: Value) -> Result<Value, (Value, String)> {
    let fits = match (kind, &value) {
        ("string", Value::String(_))
        | ("boolean", Value::Bool(_))
        | ("array", Value::Array(_))
        | ("object", Value::Object(_))
        | ("number", Value::Number(_)) => true,
        ("integer", Value::Number(n)) => n.is_i64() || n.is_u64(),
        ("string" | "boolean" | "array" | "object" | "number" | "integer", _) => false,
        // A word of a newer schema: let it in rather than refuse what cannot be judged.
        _ => true,
    };
    if fits {
        return Ok(value);
    }
    let coerced = match (kind, &value) {
        ("integer", Value::String(text)) => text.trim().parse::<i64>().ok().map(Value::from),
        // `5.0` is what some programs make of 5.
        ("integer", Value::Number(n)) => whole(n),
        ("number", Value::String(text)) => {
            text.trim().parse::<f64>().ok().and_then(Number::from_f64).map(Value::Number)
        }
        ("boolean", Value::String(text)) => match text.trim() {
            "true" => Some(Value::Bool(true)),
            "false" => Some(Value::Bool(false)),
            _ => None,
        },
        // A port or a version that YAML read as a number.
        ("string", Value::Number(_) | Value::Bool(_)) => Some(Value::String(value.to_string())),
        ("array" | "object", Value::String(text)) => serde_json::from_str::<Value>(text)
            .ok()
            .filter(|v| if kind == "array" { v.is_array() } else { v.is_object() }),
        _ => None,
    };
    coerced.ok_or_else(|| {
        let found = match &value {
            Value::String(text) => format!("'{}'", clip(text)),
            other => describe(other),
        };
        (value, found)
    })
}

fn whole(number: &Number) -> Option<Value> {
    let value = number.as_f64()?;
    (value.fract() == 0.0 && value.abs() < 9e15).then(|| format!("{value:.0}").parse::<i64>().ok().map(Value::from))?
}

fn article(kind: &str) -> String {
    match kind {
        "array" => "a list".to_owned(),
        "object" => "a map".to_owned(),
        "integer" => "an integer".to_owned(),
        "string" => "text".to_owned(),
        "boolean" => "true or false".to_owned(),
        other => format!("a {other}"),
    }
}

fn describe(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Bool(b) => b.to_string(),
        Value::Number(n) => n.to_string(),
        Value::String(_) => "text".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a map".to_owned(),
    }
}

fn short(value: &Value) -> String {
    match value {
        Value::String(text) => format!("'{}'", clip(text)),
        other => clip(&other.to_string()),
    }
}

fn clip(text: &str) -> String {
    if text.chars().count() <= 40 {
        text.to_owned()
    } else {
        format!("{}…", text.chars().take(40).collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(schema: &Value, value: Value) -> (Value, Problems) {
        let mut problems = Vec::new();
        let value = conform(schema, value, "x", &mut problems);
        (value, problems)
    }

    #[test]
    fn text_becomes_the_declared_type() {
        for (kind, text, expected) in [
            ("integer", "5", json!(5)),
            ("integer", " -7 ", json!(-7)),
            ("number", "1.5", json!(1.5)),
            ("boolean", "true", json!(true)),
            ("array", "[1,2]", json!([1, 2])),
            ("object", "{\"a\":1}", json!({"a": 1})),
            ("string", "5", json!("5")),
        ] {
            assert_eq!(check(&json!({"type": kind}), json!(text)), (expected, vec![]), "{kind} {text}");
        }
        assert_eq!(check(&json!({"type": "string"}), json!(5)).0, json!("5"));
        assert_eq!(check(&json!({"type": "integer"}), json!(5.0)).0, json!(5));
    }

    #[test]
    fn what_does_not_fit_is_named() {
        for (schema, value, said) in [
            (json!({"type": "integer"}), json!("five"), "x: is 'five', not an integer"),
            (json!({"type": "integer"}), json!(1.5), "x: is 1.5, not an integer"),
            (json!({"type": "boolean"}), json!("yes"), "x: is 'yes', not true or false"),
            (json!({"type": "object"}), json!([1]), "x: is a list, not a map"),
            (json!({"type": "string", "minLength": 1}), json!(""), "x: is empty"),
            (json!({"type": "integer", "exclusiveMinimum": 0}), json!(0), "x: 0 is not above 0"),
            (json!({"enum": ["a", "b"]}), json!("c"), "x: 'c' is not one of 'a', 'b'"),
            (json!({"type": "array", "items": {"type": "integer"}}), json!([1, "b"]), "x[1]: is 'b', not an integer"),
        ] {
            assert_eq!(check(&schema, value).1, vec![said.to_owned()]);
        }
    }

    #[test]
    fn maps_know_their_properties() {
        let schema = json!({
            "type": "object",
            "properties": {"run": {"type": "string"}, "n": {"type": "integer", "default": 3}},
            "required": ["run"],
            "additionalProperties": false,
        });
        assert_eq!(check(&schema, json!({"run": "a"})), (json!({"run": "a", "n": 3}), vec![]));
        let (_, problems) = check(&schema, json!({"rnu": "a"}));
        assert_eq!(problems, ["x.rnu: is not known; did you mean 'run'?", "x.run: is missing"]);
        let env = json!({"type": "object", "additionalProperties": {"type": "string"}});
        assert_eq!(check(&env, json!({"A": 1})).0, json!({"A": "1"}));
    }
}
