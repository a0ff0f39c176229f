//! What the caller gives to a run: `--input`, `--input-file`, `--stdin`. A pure function of the flags and of what files
//! hold, so that every caller reads them alike.

use std::io::Read;
use std::path::Path;

use peat_types::{Error, Result};
use serde_json::{Map, Value};

use crate::yaml;

/// The most that one file or stream gives a run.
const MOST: u64 = 64 << 20;

/// Text of `from`, which is called `path`. Stops at a size that no input has, whatever a device has to give.
///
/// # Errors
/// `Invalid` for what is too large or not UTF-8, else those of [`Error::io`].
pub fn read_text(from: impl Read, path: &Path) -> Result<String> {
    let mut bytes = Vec::new();
    from.take(MOST + 1).read_to_end(&mut bytes).map_err(|e| Error::io("read", path, e))?;
    if bytes.len() as u64 > MOST {
        return Err(Error::invalid(format!("{} holds more than {} MiB", path.display(), MOST >> 20))
            .with_hint("give the method the name of the file instead of its content"));
    }
    String::from_utf8(bytes).map_err(|_| Error::invalid(format!("{} is not text in UTF-8", path.display())))
}

/// Reads a file that a flag names.
pub type ReadFile<'a> = dyn Fn(&Path) -> Result<String> + 'a;

/// The flags, as given.
#[derive(Clone, Debug, Default)]
pub struct InputFlags {
    /// `--input`, in order.
    pub inputs: Vec<String>,
    /// `--input-file`.
    pub file: Option<String>,
    /// What `--stdin` read.
    pub stdin: Option<String>,
}

/// The inputs of each run: one map per run, at least one.
///
/// `--input` wins over the file and over every item of standard input; maps are merged key by key.
pub fn parse(flags: &InputFlags, read: &ReadFile<'_>) -> Result<Vec<Map<String, Value>>> {
    if flags.file.is_some() && flags.stdin.is_some() {
        return Err(Error::invalid("--stdin and --input-file exclude each other").with_code("usage"));
    }
    let bases = if let Some(text) = &flags.stdin {
        items(text)?
    } else if let Some(file) = &flags.file {
        let text = read(Path::new(file))?;
        vec![as_map(yaml::from_str(&text, file)?, file)?]
    } else {
        vec![Map::new()]
    };
    let mut over = Map::new();
    for flag in &flags.inputs {
        apply_flag(&mut over, flag, "--input", read)?;
    }
    Ok(bases
        .into_iter()
        .map(|mut base| {
            merge(&mut base, over.clone());
            base
        })
        .collect())
}

fn as_map(value: Value, what: &str) -> Result<Map<String, Value>> {
    match value {
        Value::Object(map) => Ok(map),
        Value::Null => Ok(Map::new()),
        _ => Err(Error::invalid(format!("{what} is not a map of inputs"))),
    }
}

/// JSON object, JSON array, NDJSON or YAML.
fn items(text: &str) -> Result<Vec<Map<String, Value>>> {
    const WHAT: &str = "standard input";
    if text.trim().is_empty() {
        return Err(Error::invalid("standard input is empty").with_hint("leave --stdin out to run without inputs"));
    }
    // JSON first, one value after another: that covers an object, an array and NDJSON.
    let values: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(text).into_iter::<Value>().collect();
    let values = match values {
        Ok(values) => values,
        Err(json) => {
            let looks_like_json = text.trim_start().starts_with(['{', '[']);
            match yaml::documents::<Value>(text, WHAT) {
                Ok(values) => values,
                Err(_) if looks_like_json => {
                    return Err(Error::invalid(format!("{WHAT} is not valid JSON: {json}")));
                }
                Err(yaml) => return Err(yaml),
            }
        }
    };
    let mut out = Vec::new();
    for value in values {
        match value {
            Value::Array(list) => {
                for (i, item) in list.into_iter().enumerate() {
                    out.push(as_map(item, &format!("item {} of {WHAT}", i + 1))?);
                }
            }
            other => out.push(as_map(other, &format!("item {} of {WHAT}", out.len() + 1))?),
        }
    }
    if out.is_empty() {
        return Err(Error::invalid(format!("{WHAT} holds no items")));
    }
    Ok(out)
}

/// Applies one `k=v` to `to`: dots nest, `k:json=` parses, `k=@file` reads, `\@` is a plain `@`, a lone JSON object is
/// merged. `flag` names the flag in errors.
pub(crate) fn apply_flag(to: &mut Map<String, Value>, text: &str, flag: &str, read: &ReadFile<'_>) -> Result<()> {
    let bad = |why: &str| {
        Error::invalid(format!("{flag} '{text}' {why}"))
            .with_code("usage")
            .with_hint(format!("write {flag} key=value, {flag} a.b=value, {flag} 'key:json=[1,2]' or {flag} key=@file"))
    };
    if text.trim_start().starts_with('{') {
        let map: Map<String, Value> =
            serde_json::from_str(text).map_err(|e| bad(&format!("is not a JSON object: {e}")))?;
        merge(to, map);
        return Ok(());
    }
    let (key, value) = text.split_once('=').ok_or_else(|| bad("has no '='"))?;
    let (key, json) = key.strip_suffix(":json").map_or((key, false), |key| (key, true));
    let content = if let Some(file) = value.strip_prefix('@').filter(|name| !scoped(name)) {
        read(Path::new(file)).map_err(|e| e.context(format!("{flag} {key}=@{file} cannot be read")))?
    } else if let Some(rest) = value.strip_prefix("\\@") {
        format!("@{rest}")
    } else {
        value.to_owned()
    };
    let value = if json {
        serde_json::from_str(&content).map_err(|e| bad(&format!("does not hold JSON: {e}")))?
    } else {
        Value::String(content)
    };
    let parts: Vec<&str> = key.split('.').collect();
    if parts.iter().any(|part| part.is_empty()) {
        return Err(bad("has an empty key"));
    }
    let nested = parts
        .iter()
        .rev()
        .fold(value, |inner, part| Value::Object(std::iter::once(((*part).to_owned(), inner)).collect()));
    if let Value::Object(map) = nested {
        merge(to, map);
    }
    Ok(())
}

/// `acme/web` after the `@`: a scoped id rather than a file, as in `model=@acme/web`. A file in a folder is given as
/// `@./folder/file`.
fn scoped(name: &str) -> bool {
    let slug = |s: &str| {
        !s.is_empty() && s.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_')
    };
    name.contains('/') && name.split('/').all(slug)
}

/// Puts `over` on `base`: maps key by key, everything else whole.
pub(crate) fn merge(base: &mut Map<String, Value>, over: Map<String, Value>) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(Value::Object(old)), Value::Object(new)) => merge(old, new),
            (_, value) => drop(base.insert(key, value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn files(path: &Path) -> Result<String> {
        match path.to_str() {
            Some("f.yaml") => Ok("a: 0\nn: {x: 1, y: 2}\n".to_owned()),
            Some("f.txt") => Ok("content\n".to_owned()),
            _ => Err(Error::not_found("no such file")),
        }
    }

    fn one(inputs: &[&str]) -> Result<Value> {
        let flags = InputFlags { inputs: inputs.iter().map(|s| (*s).to_owned()).collect(), ..InputFlags::default() };
        Ok(Value::Object(parse(&flags, &files)?.remove(0)))
    }

    #[test]
    fn flags() {
        for (given, expected) in [
            (&["a=1"][..], json!({"a": "1"})),
            (&["a.b=1", "a.c=x"], json!({"a": {"b": "1", "c": "x"}})),
            (&["k:json=[1,2]"], json!({"k": [1, 2]})),
            (&["k=@f.txt"], json!({"k": "content\n"})),
            (&["k=\\@x"], json!({"k": "@x"})),
            (&["k=@acme/web"], json!({"k": "@acme/web"})),
            (&["k=a=b"], json!({"k": "a=b"})),
            (&["k="], json!({"k": ""})),
            (&["{\"a\":{\"b\":1}}", "a.c=2"], json!({"a": {"b": 1, "c": "2"}})),
            (&["a=1", "a.b=2"], json!({"a": {"b": "2"}})),
        ] {
            assert_eq!(one(given).unwrap(), expected, "{given:?}");
        }
        for given in ["a", "=1", "a..b=1", ".a=1", "{not json", "k:json=oops", "k=@nope.txt"] {
            assert!(one(&[given]).is_err(), "{given}");
        }
    }

    #[test]
    fn a_flag_beats_the_file_and_maps_merge() {
        let flags = InputFlags { inputs: vec!["a=1".into(), "n.x=9".into()], file: Some("f.yaml".into()), stdin: None };
        assert_eq!(
            parse(&flags, &files).unwrap(),
            vec![json!({"a": "1", "n": {"x": "9", "y": 2}}).as_object().unwrap().clone()]
        );
    }

    fn stdin(text: &str) -> Result<Vec<Value>> {
        let flags = InputFlags { stdin: Some(text.to_owned()), inputs: vec!["z=1".into()], file: None };
        Ok(parse(&flags, &files)?.into_iter().map(Value::Object).collect())
    }

    #[test]
    fn standard_input() {
        assert_eq!(stdin("{\"a\":1}").unwrap(), [json!({"a": 1, "z": "1"})]);
        assert_eq!(stdin("[{\"a\":1},{\"a\":2}]").unwrap().len(), 2);
        assert_eq!(stdin("{\"a\":1}\n{\"a\":2}\n{\"a\":3}\n").unwrap().len(), 3);
        assert_eq!(stdin("a: 1\nb: [x]\n").unwrap(), [json!({"a": 1, "b": ["x"], "z": "1"})]);
        assert_eq!(stdin("- a: 1\n- a: 2\n").unwrap().len(), 2);
        assert_eq!(stdin("a: 1\n---\na: 2\n").unwrap().len(), 2);
        assert_eq!(stdin("{a: 1, b: 2}").unwrap()[0]["b"], 2);
        for text in ["", "  \n", "[]", "[1]", "3", "{\"a\":", "a: [\n"] {
            assert!(stdin(text).is_err(), "{text:?}");
        }
        let both = InputFlags { stdin: Some("{}".into()), file: Some("f.yaml".into()), inputs: vec![] };
        assert!(parse(&both, &files).is_err());
    }
}
