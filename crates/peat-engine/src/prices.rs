//! What requests cost at list price. An estimate for people: storage and traffic are not in it, and neither are discounts.
//!
//! The figures and where they come from stand in the manual, `cost.md`.

use peat_objects::{Counts, Op, StoreUrl};
use peat_types::Env;

use crate::Datastore;

/// Prices of requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prices {
    /// Dollars for a million of PUT and LIST.
    write: f64,
    /// Dollars for a million of GET.
    read: f64,
}

/// Amazon S3 Standard in us-east-1, and Google Cloud Storage Standard in one region.
const S3_AND_GCS: Prices = Prices { write: 5.0, read: 0.4 };

impl Prices {
    /// Those of a store, when it is one whose prices are known: a cloud's own address, no server of one's own.
    pub fn of(settings: &Datastore, env: &Env) -> Option<Self> {
        let set = |names: &[&str]| names.iter().any(|name| env.var(name).is_some_and(|value| !value.is_empty()));
        let own = |domain: &str| {
            let host = settings.endpoint.as_deref().map(|url| {
                let host = url.split_once("://").map_or(url, |(_, rest)| rest);
                host.split(['/', ':']).next().unwrap_or_default().to_ascii_lowercase()
            });
            host.is_none_or(|host| host == domain || host.ends_with(&format!(".{domain}")))
        };
        match settings.url.parse().ok()? {
            StoreUrl::S3 { .. } => (own("amazonaws.com")
                && (settings.endpoint.is_some() || !set(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"])))
            .then_some(S3_AND_GCS),
            StoreUrl::Gcs { .. } => (own("googleapis.com") && !set(&["STORAGE_EMULATOR_HOST"])).then_some(S3_AND_GCS),
            StoreUrl::Azure { .. } | StoreUrl::File { .. } | StoreUrl::Memory => None,
        }
    }

    /// Dollars for these requests. Deleting is free.
    pub fn of_requests(&self, writes: u64, reads: u64) -> f64 {
        #[allow(clippy::cast_precision_loss)] // an estimate
        let (writes, reads) = (writes as f64, reads as f64);
        (writes * self.write + reads * self.read) / 1e6
    }

    /// Dollars for what was counted.
    pub fn estimate(&self, counts: &Counts) -> f64 {
        let of = |op| counts.of(op).requests;
        self.of_requests(of(Op::Create) + of(Op::Put) + of(Op::List), of(Op::Get))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prices(url: &str, endpoint: Option<&str>, vars: &[(&str, &str)]) -> Option<Prices> {
        let settings = Datastore { url: url.to_owned(), endpoint: endpoint.map(str::to_owned), ..Datastore::default() };
        let vars = vars.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Prices::of(&settings, &Env::system(vars))
    }

    #[test]
    fn only_the_clouds_themselves_have_known_prices() {
        assert_eq!(prices("s3://bucket/a", None, &[]), Some(S3_AND_GCS));
        assert_eq!(prices("s3://bucket/a", Some("https://s3.eu-central-1.amazonaws.com"), &[]), Some(S3_AND_GCS));
        assert_eq!(prices("gs://bucket/a", None, &[]), Some(S3_AND_GCS));
        for endpoint in ["http://127.0.0.1:9000", "https://amazonaws.com.example.org", "https://notamazonaws.com/"] {
            assert_eq!(prices("s3://bucket/a", Some(endpoint), &[]), None, "{endpoint}");
        }
        assert_eq!(prices("s3://bucket/a", None, &[("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9000")]), None);
        assert_eq!(prices("gs://bucket/a", None, &[("STORAGE_EMULATOR_HOST", "127.0.0.1:4443")]), None);
        assert_eq!(prices("az://container", None, &[]), None);
        assert_eq!(prices("file:///srv/x", None, &[]), None);
    }

    #[test]
    fn a_million_commits_a_day_are_seen_in_the_estimate() {
        assert!((S3_AND_GCS.of_requests(1_000_000, 0) - 5.0).abs() < 1e-9);
        assert!((S3_AND_GCS.of_requests(1, 2) - 0.000_005_8).abs() < 1e-12);
    }
}
