//! The way to a collector of traces, which is no store, but is reached like one.

use std::time::Duration;

use peat_types::{Env, Result};

use super::client::Settings;
use super::dialect::Words;
use crate::{OpenOptions, Timeouts};

const WORDS: Words = Words {
    protocol: "an OTLP",
    service: "a collector",
    bucket: "signal",
    foreign: "not_otlp",
    example: "https://collector.example.com:4318",
    ca_variables: &["OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE", "SSL_CERT_FILE"],
};

/// The HTTP client for a collector at `address`: with the proxies and certificates of the environment, without redirects
/// and repetitions. A connection may take `connect`.
///
/// # Errors
/// `Invalid` for an address, a proxy or certificates that cannot be right.
pub fn collector_client(address: &str, connect: Duration, env: &Env) -> Result<reqwest::Client> {
    let timeouts = Timeouts { connect, ..Timeouts::default() };
    let options = OpenOptions { timeouts, ..OpenOptions::default() };
    Settings::new(&WORDS, Some(address), &options, env)?.http(&options)
}
