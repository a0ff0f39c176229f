//! Where records lie in a unit: the same layout as the local tree, readable with ordinary tools.
//!
//! `data/<type>/<definition id>/<data name>/<version>/{raw,metadata.yaml}` and
//! `outputs/<type>/<method>/<definition id>-<stamp>.{yaml,log}`. Paths are read from their end, so that a definition whose
//! type was changed keeps its data.

use peat_types::{Error, ItemPath, Result, Timestamp};

/// Metadata of a version.
pub(crate) const METADATA: &str = "metadata.yaml";
/// Content of a version.
pub(crate) const RAW: &str = "raw";

/// A file of a data version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DataPath<'a> {
    /// Name of the data item.
    pub name: &'a str,
    /// The version.
    pub version: u64,
    /// `raw` or `metadata.yaml`.
    pub file: &'a str,
}

impl<'a> DataPath<'a> {
    /// Reads a path of a unit; `None` when it is no file of a data version.
    pub fn parse(path: &'a str) -> Option<Self> {
        let mut parts = path.strip_prefix("data/")?.rsplit('/');
        let (file, version, name) = (parts.next()?, parts.next()?, parts.next()?);
        // The definition id and a type come before.
        parts.next().and(parts.next())?;
        Some(Self { name, version: version.parse().ok()?, file })
    }
}

/// Folder of a data version.
pub(crate) fn data(type_name: &str, definition: &str, name: &str, version: u64) -> Result<ItemPath> {
    format!("data/{type_name}/{definition}/{name}/{version}").parse()
}

/// Checks the name of a data item.
pub(crate) fn check_data_name(name: &str) -> Result<()> {
    let bad = |why: &str| Err(Error::invalid(format!("'{name}' is not a name for data: {why}")));
    if name.contains('/') || name.contains('\\') || name.contains("..") || name.contains('\0') {
        return bad("it holds '/', '\\', '..' or NUL");
    }
    if name.eq_ignore_ascii_case("latest") {
        return bad("it is reserved");
    }
    name.parse::<ItemPath>().map(drop).or_else(|e| bad(&e.to_string()))
}

/// A file of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutputPath<'a> {
    /// Normalised type.
    pub type_name: &'a str,
    /// The method.
    pub method: &'a str,
    /// Sorts by time.
    pub stamp: &'a str,
    /// Whether it is the log.
    pub log: bool,
}

impl<'a> OutputPath<'a> {
    /// Reads a path of the unit of `definition`; `None` when it is no file of an output.
    pub fn parse(path: &'a str, definition: &str) -> Option<Self> {
        let (folder, file) = path.strip_prefix("outputs/")?.rsplit_once('/')?;
        let (type_name, method) = folder.rsplit_once('/')?;
        let (stem, extension) = file.rsplit_once('.')?;
        let log = match extension {
            "yaml" => false,
            "log" => true,
            _ => return None,
        };
        let stamp = stem.strip_prefix(definition)?.strip_prefix('-')?;
        Some(Self { type_name, method, stamp, log })
    }
}

/// Start time as part of a file name.
pub(crate) fn stamp(time: Timestamp) -> String {
    time.to_string().replace([':', '.'], "-")
}

/// Path of an output without its extension.
pub(crate) fn output(type_name: &str, method: &str, definition: &str, stamp: &str) -> Result<ItemPath> {
    format!("outputs/{type_name}/{method}/{definition}-{stamp}").parse()
}

/// The path with an extension.
pub(crate) fn with(path: &ItemPath, extension: &str) -> Result<ItemPath> {
    format!("{path}.{extension}").parse()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_from_their_end() {
        let path = data("command/shell", "id-1", "result", 3).unwrap().join(RAW).unwrap();
        assert_eq!(path.as_str(), "data/command/shell/id-1/result/3/raw");
        assert_eq!(DataPath::parse(path.as_str()), Some(DataPath { name: "result", version: 3, file: RAW }));
        for path in ["data/x", "data/t/result/3/raw", "data/t/i/result/latest/raw", "outputs/t/m/i-1.yaml"] {
            assert_eq!(DataPath::parse(path), None, "{path}");
        }
        let stamp = stamp("2026-07-20T09:15:02.100Z".parse().unwrap());
        let path = with(&output("command/shell", "execute", "id-1", &stamp).unwrap(), "yaml").unwrap();
        assert_eq!(path.as_str(), "outputs/command/shell/execute/id-1-2026-07-20T09-15-02-100Z.yaml");
        let parsed = OutputPath::parse(path.as_str(), "id-1").unwrap();
        assert_eq!((parsed.type_name, parsed.method, parsed.log), ("command/shell", "execute", false));
        assert_eq!(OutputPath::parse(path.as_str(), "other"), None);
    }

    #[test]
    fn data_names() {
        for name in ["result", "a.b", "Ünï", "x-v1"] {
            assert!(check_data_name(name).is_ok(), "{name}");
        }
        for name in ["", "a/b", "..", "a\\b", "latest", "LATEST", "nul", "a."] {
            assert!(check_data_name(name).is_err(), "{name}");
        }
    }
}
