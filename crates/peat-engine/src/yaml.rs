//! The one place where YAML becomes values and values become YAML.

use peat_types::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Reads a YAML document. `what` names it in the error, which ends with line and column.
pub(crate) fn from_str<T: DeserializeOwned>(text: &str, what: &str) -> Result<T> {
    let options = serde_saphyr::options! { with_snippet: false };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let reason = error.to_string();
        let reason = reason.lines().next().unwrap_or_default().to_owned();
        Error::invalid(format!("{what} is not valid YAML: {reason}"))
    })
}

/// Reads every document of a YAML stream.
pub(crate) fn documents<T: DeserializeOwned>(text: &str, what: &str) -> Result<Vec<T>> {
    let options = serde_saphyr::options! { with_snippet: false };
    serde_saphyr::from_multiple_with_options(text, options).map_err(|error| {
        let reason = error.to_string();
        let reason = reason.lines().next().unwrap_or_default().to_owned();
        Error::invalid(format!("{what} is not valid YAML: {reason}"))
    })
}

/// Writes a value as YAML.
pub(crate) fn to_string<T: Serialize>(value: &T) -> Result<String> {
    serde_saphyr::to_string(value).map_err(|e| Error::internal("a record cannot be written as YAML").with_source(e))
}
