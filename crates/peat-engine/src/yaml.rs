//! The one place where YAML becomes values and values become YAML.

use peat_types::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// YAML 1.2, and nothing that turns a text into something else behind one's back: `n`, `off`, `007` and `1_000` are text.
fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        with_snippet: false,
        strict_booleans: true,
        leading_zero_numbers_as_strings: true,
        underscored_numbers_as_strings: true,
    }
}

/// Reads a YAML document. `what` names it in the error, which ends with line and column.
pub(crate) fn from_str<T: DeserializeOwned>(text: &str, what: &str) -> Result<T> {
    serde_saphyr::from_str_with_options(text, options()).map_err(|error| invalid(what, &error.to_string()))
}

/// Reads every document of a YAML stream.
pub(crate) fn documents<T: DeserializeOwned>(text: &str, what: &str) -> Result<Vec<T>> {
    serde_saphyr::from_multiple_with_options(text, options()).map_err(|error| invalid(what, &error.to_string()))
}

fn invalid(what: &str, reason: &str) -> Error {
    Error::invalid(format!("{what} is not valid YAML: {}", in_words(reason.lines().next().unwrap_or_default())))
}

/// What a library says of a value, without its names of types.
pub(crate) fn in_words(reason: &str) -> String {
    const WORDS: [(&str, &str); 6] = [
        ("cannot deserialize null into string; use Option<String>", "a text is missing"),
        ("expected u64", "expected a whole number from 0"),
        ("expected u32", "expected a whole number from 0"),
        ("expected u8", "expected a whole number from 0 to 255"),
        ("expected a string", "expected a text"),
        ("expected struct ", "expected the settings of "),
    ];
    WORDS.iter().fold(reason.to_owned(), |said, (theirs, ours)| said.replace(theirs, ours))
}

/// Writes a value as YAML.
pub(crate) fn to_string<T: Serialize>(value: &T) -> Result<String> {
    serde_saphyr::to_string(value).map_err(|e| Error::internal("a record cannot be written as YAML").with_source(e))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn texts_stay_texts() {
        for text in [
            "n",
            "y",
            "yes",
            "No",
            "on",
            "off",
            "007",
            "012345678901",
            "1_000",
            "2026.02.09.1",
            "1:30",
            "2026-07-20",
            "~x",
        ] {
            assert_eq!(from_str::<Value>(&format!("a: {text}"), "x").unwrap(), json!({ "a": text }), "{text}");
        }
        assert_eq!(
            from_str::<Value>("a: [true, null, ~, 7, -1.5, 0x10, 1e3]", "x").unwrap(),
            json!({"a": [true, null, null, 7, -1.5, 16, 1000.0]})
        );
    }

    #[test]
    fn what_is_written_reads_the_same() {
        let texts = [
            "",
            " ",
            "n",
            "yes",
            "null",
            "~",
            "true",
            "007",
            "0x10",
            "1e3",
            "1_000",
            ".5",
            "-",
            "- a",
            "a: b",
            "a #b",
            "#",
            "'",
            "\"",
            "a\nb",
            "a\nb\n",
            "\n",
            " a",
            "a ",
            "\t",
            "{a",
            "[a",
            "*a",
            "&a",
            "!a",
            "%a",
            "@a",
            "`a",
            "|",
            ">",
            "---",
            "...",
            "2026-07-20T09:15:02.100Z",
            "é\u{1F600}",
            "a\0b",
            "\u{7f}",
            "\u{85}",
            "\u{2028}",
            "=",
            "<<",
            "inf",
            ".nan",
            "1:30",
            "\r\n",
            "line one\n  indented\n\nlast",
            "?",
            "a\\b",
        ];
        for text in texts {
            let value = json!({"k": text, "list": [text], text: {"nested": text}});
            let yaml = to_string(&value).unwrap();
            assert_eq!(from_str::<Value>(&yaml, "x").unwrap(), value, "{text:?} became {yaml}");
        }
    }

    #[test]
    fn errors_speak_of_no_types_of_rust() {
        #[derive(serde::Deserialize)]
        struct Wanted {
            #[serde(rename = "name")]
            _name: String,
        }
        let error = from_str::<Wanted>("name: null", "x").err().unwrap().to_string();
        assert!(error.contains("a text is missing") && !error.contains("String"), "{error}");
        assert_eq!(in_words("integer `-1`, expected u64"), "integer `-1`, expected a whole number from 0");
    }

    #[test]
    fn errors_name_file_and_place() {
        let error = from_str::<Value>("a: 1\nb: [\n", "models/x.yaml").unwrap_err().to_string();
        assert!(error.starts_with("models/x.yaml is not valid YAML:") && error.contains("line"), "{error}");
        assert!(!error.contains('\n'));
        assert!(from_str::<Value>("a: 1\na: 2", "x").is_err());
    }
}
