//! Settings of the datastore extensions of swamp, as the settings of a store.

use peat_objects::StoreUrl;
use peat_types::{Error, Result};
use serde_json::{Map, Value};

use crate::Datastore;

/// Keys of theirs that have no meaning here: Peat finds its own pace, and the project follows from the credentials.
const S3_MOOT: [&str; 3] = ["pullConcurrency", "pushConcurrency", "requestTimeoutMs"];
const GCS_MOOT: [&str; 4] = ["projectId", "pullConcurrency", "pushConcurrency", "requestTimeoutMs"];

impl Datastore {
    /// The settings that `setup extension <kind> --config <json>` means, and the keys that are not needed.
    ///
    /// # Errors
    /// `Invalid` for another extension, and naming every key that is missing, unknown or not of its type.
    pub fn of_extension(kind: &str, config: &str) -> Result<(Self, Vec<String>)> {
        let (scheme, moot): (_, &[&str]) = match kind {
            "@swamp/s3-datastore" => ("s3", &S3_MOOT),
            "@swamp/gcs-datastore" => ("gs", &GCS_MOOT),
            _ => {
                return Err(Error::invalid(format!("'{kind}' is not a datastore that Peat can stand in for"))
                    .with_hint("it knows @swamp/s3-datastore and @swamp/gcs-datastore")
                    .with_hint("or give the URL of the store: 'peat datastore setup s3://bucket/prefix'"));
            }
        };
        let config: Map<String, Value> = serde_json::from_str(config).map_err(|e| {
            Error::invalid("--config is not a JSON object").with_hint(r#"for example '{"bucket":"b"}'"#).with_source(e)
        })?;
        let mut problems = Vec::new();
        let mut unneeded = Vec::new();
        let (mut bucket, mut prefix) = (String::new(), String::new());
        let mut out = Self::default();
        for (key, value) in &config {
            let mut text = || {
                let text = value.as_str().map(str::to_owned);
                if text.is_none() {
                    problems.push(format!("{key} must be text"));
                }
                text
            };
            match (scheme, key.as_str()) {
                (_, "bucket") => bucket = text().unwrap_or_default(),
                (_, "prefix") => prefix = text().unwrap_or_default(),
                ("s3", "region") => out.region = text(),
                ("s3", "endpoint") | ("gs", "apiEndpoint") => out.endpoint = text(),
                ("s3", "forcePathStyle") => match value.as_bool() {
                    Some(path_style) => out.path_style = Some(path_style),
                    None => problems.push("forcePathStyle must be true or false".to_owned()),
                },
                (_, key) if moot.contains(&key) => unneeded.push(key.to_owned()),
                _ => problems.push(format!("{key} is not a setting of {kind}")),
            }
        }
        if !config.contains_key("bucket") {
            problems.push("bucket is missing".to_owned());
        }
        if !problems.is_empty() {
            return Err(Error::invalid(format!("--config cannot be used: {}", problems.join("; "))));
        }
        let prefix = prefix.trim_matches('/');
        let slash = if prefix.is_empty() { "" } else { "/" };
        out.url = format!("{scheme}://{bucket}{slash}{prefix}").parse::<StoreUrl>()?.to_string();
        Ok((out, unneeded))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_mapped_unneeded_or_named() {
        let (s3, unneeded) = Datastore::of_extension(
            "@swamp/s3-datastore",
            r#"{"bucket":"b-1","prefix":"/p/q/","region":"eu-north-1","endpoint":"http://127.0.0.1:9000",
                "forcePathStyle":true,"pullConcurrency":50}"#,
        )
        .unwrap();
        assert_eq!((s3.url.as_str(), s3.region.as_deref()), ("s3://b-1/p/q", Some("eu-north-1")));
        assert_eq!((s3.endpoint.as_deref(), s3.path_style), (Some("http://127.0.0.1:9000"), Some(true)));
        assert_eq!(unneeded, ["pullConcurrency"]);
        let (gcs, unneeded) = Datastore::of_extension(
            "@swamp/gcs-datastore",
            r#"{"bucket":"b_1","projectId":"x","apiEndpoint":"http://127.0.0.1:4443"}"#,
        )
        .unwrap();
        assert_eq!((gcs.url.as_str(), gcs.endpoint.as_deref()), ("gs://b_1", Some("http://127.0.0.1:4443")));
        assert_eq!(unneeded, ["projectId"]);
        let error = Datastore::of_extension("@swamp/s3-datastore", r#"{"Bucket":"b","region":3,"apiEndpoint":"x"}"#)
            .unwrap_err();
        for named in ["Bucket is not", "region must be", "apiEndpoint is not", "bucket is missing"] {
            assert!(error.to_string().contains(named), "{error}");
        }
        assert!(Datastore::of_extension("@swamp/s3-datastore", r#"{"bucket":"a b"}"#).is_err());
        assert!(Datastore::of_extension("@me/other", "{}").is_err());
        assert!(Datastore::of_extension("@swamp/s3-datastore", "[]").is_err());
    }
}
