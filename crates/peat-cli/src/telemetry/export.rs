//! What stands between spans and the exporter.

use std::time::Duration;

use opentelemetry::trace::{SpanId, Status, TraceId};
use opentelemetry_otlp::SpanExporter as Otlp;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{IdGenerator, SpanData, SpanExporter};
use peat_types::{ERROR_TYPE, Env};

/// The exporter, which learns from `error.type` that a span failed.
#[derive(Debug)]
pub(super) struct Exporter(pub Otlp);

impl SpanExporter for Exporter {
    async fn export(&self, mut batch: Vec<SpanData>) -> OTelSdkResult {
        for span in &mut batch {
            if span.attributes.iter().any(|attribute| attribute.key.as_str() == ERROR_TYPE) {
                span.status = Status::error("");
            }
        }
        self.0.export(batch).await
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.0.set_resource(resource);
    }
}

/// Ids from the randomness of `Env`.
#[derive(Debug)]
pub(super) struct Ids(pub Env);

impl IdGenerator for Ids {
    fn new_trace_id(&self) -> TraceId {
        TraceId::from_bytes(self.0.random_bytes())
    }

    fn new_span_id(&self) -> SpanId {
        SpanId::from_bytes(self.0.random_bytes())
    }
}
