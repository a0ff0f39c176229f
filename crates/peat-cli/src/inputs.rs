//! Values given on the command line: `--input`, `--input-file`, `--stdin`, `--tag`, `--global-arg`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use peat_types::{Error, Result};
use serde_json::{Map, Value};

use crate::error::usage_error;

/// Values of one run or definition, before coercion to declared types (that is the engine's).
pub(crate) type Values = Map<String, Value>;

/// Where a run takes its inputs from.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct InputArgs {
    /// A value for this run: key=text, key.sub=text, key:json=[1,2], key=@file (\@ for a literal @), or a JSON object
    #[arg(long = "input", alias = "arg", value_name = "KEY=VALUE")]
    pub inputs: Vec<String>,
    /// Values from a YAML or JSON file; --input wins over them
    #[arg(long, value_name = "FILE", conflicts_with = "stdin")]
    pub input_file: Option<PathBuf>,
    /// Values from stdin as JSON, NDJSON or YAML; several items are several runs, up to the first failure
    #[arg(long)]
    pub stdin: bool,
}

impl InputArgs {
    /// The inputs of each run, in order. There is at least one run unless stdin held an empty list.
    pub fn resolve(&self) -> Result<Vec<Values>> {
        let flags = pairs(&self.inputs)?;
        let items = if let Some(file) = &self.input_file {
            let text = read(file)?;
            vec![object(yaml(&text, &file.display().to_string())?, &file.display().to_string())?]
        } else if self.stdin {
            let text =
                std::io::read_to_string(std::io::stdin()).map_err(|e| Error::io("read", Path::new("stdin"), e))?;
            documents(&text)?
        } else {
            vec![Values::new()]
        };
        Ok(items.into_iter().map(|item| merged(item, flags.clone())).collect())
    }
}

/// Parses `key=value` arguments into nested values.
pub(crate) fn pairs(arguments: &[String]) -> Result<Values> {
    let mut all = Values::new();
    for argument in arguments {
        if argument.trim_start().starts_with('{') {
            let value = serde_json::from_str(argument)
                .map_err(|e| usage_error(format!("'{argument}' is not a JSON object")).with_source(e))?;
            all = merged(all, object(value, "the argument")?);
            continue;
        }
        let Some((key, text)) = argument.split_once('=') else {
            return Err(usage_error(format!("'{argument}' is not of the form key=value")));
        };
        let (key, value) = match key.strip_suffix(":json") {
            Some(key) => {
                let parsed = serde_json::from_str(text);
                (key, parsed.map_err(|e| usage_error(format!("the value of '{key}' is not JSON")).with_source(e))?)
            }
            None => (key, Value::String(plain(text)?)),
        };
        if key.split('.').any(str::is_empty) {
            return Err(usage_error(format!("'{argument}' has an empty name before the '='")));
        }
        let nested =
            key.rsplit('.').fold(value, |inner, name| Value::Object(Values::from_iter([(name.to_owned(), inner)])));
        all = merged(all, object(nested, "the argument")?);
    }
    Ok(all)
}

/// Parses `key=value` arguments that are labels: no nesting, no files.
pub(crate) fn tags(arguments: &[String]) -> Result<BTreeMap<String, String>> {
    arguments
        .iter()
        .map(|argument| match argument.split_once('=') {
            Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
            _ => Err(usage_error(format!("tag '{argument}' is not of the form key=value"))),
        })
        .collect()
}

/// The text meant by a value: a file's content for `@file`, the rest for `\@…`, otherwise itself.
fn plain(text: &str) -> Result<String> {
    if let Some(rest) = text.strip_prefix('\\').filter(|rest| rest.starts_with('@')) {
        return Ok(rest.to_owned());
    }
    match text.strip_prefix('@') {
        Some(file) if !file.is_empty() && !scoped(file) => read(Path::new(file)),
        _ => Ok(text.to_owned()),
    }
}

/// Whether `@text` looks like a scoped name such as `@acme/dns`, which stays a name.
fn scoped(text: &str) -> bool {
    let segment = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
            && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_')
    };
    text.contains('/') && text.split('/').all(segment)
}

fn read(file: &Path) -> Result<String> {
    std::fs::read_to_string(file).map_err(|e| Error::io("read", file, e))
}

fn yaml(text: &str, name: &str) -> Result<Value> {
    serde_saphyr::from_str(text).map_err(|e| Error::invalid(format!("{name} is not YAML or JSON")).with_source(e))
}

fn object(value: Value, name: &str) -> Result<Values> {
    match value {
        Value::Object(values) => Ok(values),
        Value::Null => Ok(Values::new()),
        _ => Err(Error::invalid(format!("{name} does not hold named values (a map)"))),
    }
}

/// One set of values per item: a JSON object, a JSON list, lines of JSON, or YAML.
fn documents(text: &str) -> Result<Vec<Values>> {
    let whole = serde_json::from_str::<Value>(text);
    let lines = || text.lines().filter(|line| !line.trim().is_empty()).map(serde_json::from_str).collect();
    let value = match whole {
        Ok(value) => value,
        Err(_) => match lines() {
            Ok(items) => Value::Array(items),
            Err(_) => yaml(text, "stdin")?,
        },
    };
    match value {
        Value::Array(items) => items.into_iter().map(|item| object(item, "an item of stdin")).collect(),
        other => Ok(vec![object(other, "stdin")?]),
    }
}

/// `over` laid on `base`: maps merge, everything else replaces.
fn merged(mut base: Values, over: Values) -> Values {
    for (key, value) in over {
        let value = match (base.remove(&key), value) {
            (Some(Value::Object(old)), Value::Object(new)) => Value::Object(merged(old, new)),
            (_, value) => value,
        };
        base.insert(key, value);
    }
    base
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn values(arguments: &[&str]) -> Value {
        Value::Object(pairs(&arguments.iter().map(|a| (*a).to_owned()).collect::<Vec<_>>()).unwrap())
    }

    #[test]
    fn dots_nest_and_later_wins() {
        assert_eq!(values(&["a.b=1", "a.c=x=y", "a.b=2"]), json!({"a": {"b": "2", "c": "x=y"}}));
        assert_eq!(values(&[r#"{"a": {"d": 1}}"#, "a.e=2"]), json!({"a": {"d": 1, "e": "2"}}));
    }

    #[test]
    fn json_files_and_escapes() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x.txt");
        std::fs::write(&file, "from file").unwrap();
        let from_file = format!("k=@{}", file.display());
        assert_eq!(
            values(&[&from_file, "l:json=[1,2]", r"m=\@x", "n=@acme/web", "o=@"]),
            json!({"k": "from file", "l": [1, 2], "m": "@x", "n": "@acme/web", "o": "@"})
        );
    }

    #[test]
    fn refusals_are_usage_errors() {
        for bad in ["novalue", "=x", "a..b=1", "a:json={", "{", "[1]"] {
            let error = pairs(&[bad.to_owned()]).unwrap_err();
            assert_eq!(error.code(), crate::exit::USAGE, "{bad}: {error}");
        }
        assert!(tags(&["=x".to_owned()]).is_err());
    }

    #[test]
    fn stdin_forms() {
        let one = |text: &str| serde_json::to_value(documents(text).unwrap()).unwrap();
        assert_eq!(one(r#"{"a":1}"#), json!([{"a": 1}]));
        assert_eq!(one(r#"[{"a":1},{"a":2}]"#), json!([{"a": 1}, {"a": 2}]));
        assert_eq!(one("{\"a\":1}\n{\"a\":2}\n\n"), json!([{"a": 1}, {"a": 2}]));
        assert_eq!(one("a: 1\nb: x\n"), json!([{"a": 1, "b": "x"}]));
        assert!(documents("just text").is_err());
    }
}
