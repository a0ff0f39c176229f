//! Traces for a collector of OpenTelemetry, by the standard variables. Without them there is no thread, no connection, and
//! nothing to wait for. See `docs/design/015-observability.md`.

mod client;
mod export;
mod settings;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use opentelemetry::InstrumentationScope;
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{RetryPolicy, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{BatchSpanProcessor, SdkTracerProvider};
use peat_engine::HandOn;
use peat_types::Env;
use tokio::sync::oneshot;
use tracing::Span;
use tracing::level_filters::LevelFilter;
use tracing_opentelemetry::{OpenTelemetryLayer, OpenTelemetrySpanExt};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::FilterFn;

use crate::exit::Exit;
use crate::interrupt::Signals;
use crate::logging::Part;
use crate::printer::Printer;
use client::{Client, Trouble};
use export::{Exporter, Ids};
use settings::Exporting;

/// How long the end of a command waits for the collector.
const FLUSH: Duration = Duration::from_secs(2);

/// The trace of one invocation, if one is exported.
pub(crate) struct Telemetry {
    env: Env,
    running: Option<Running>,
    /// What of the variables was not understood.
    complaints: Vec<String>,
}

struct Running {
    provider: SdkTracerProvider,
    /// The collector, for people: nothing of its address in which a secret could stand.
    collector: String,
    trouble: Trouble,
}

impl Telemetry {
    /// Starts what the environment asks for. Never fails: what does not work is told at the end.
    pub fn start(env: &Env) -> Self {
        let mut complaints = Vec::new();
        let wanted = Exporting::wanted(env, &mut |line| complaints.push(line));
        let running = wanted.and_then(|wanted| Running::new(wanted, env).map_err(|why| complaints.push(why)).ok());
        Self { env: env.clone(), running, complaints }
    }

    /// What hears of spans.
    pub fn part(&self) -> Option<Part> {
        let scope = InstrumentationScope::builder("peat").with_version(env!("CARGO_PKG_VERSION")).build();
        let tracer = self.running.as_ref()?.provider.tracer_with_scope(scope);
        // Our own spans and no events: what libraries tell, and all texts, stay on this machine.
        let ours = FilterFn::new(|of| of.is_span() && of.target().starts_with("peat_"))
            .with_max_level_hint(LevelFilter::DEBUG);
        let layer = OpenTelemetryLayer::new(tracer)
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_level(false)
            .with_tracked_inactivity(false)
            .with_context_activation(false);
        Some(layer.with_filter(ours).boxed())
    }

    /// Makes `span`, which has not begun, a part of the trace that `TRACEPARENT` names.
    pub fn join(&self, span: &Span) {
        if self.running.is_some() {
            // A span that nobody hears of has no parent either.
            let _ = span.set_parent(TraceContextPropagator::new().extract(&Variables(&self.env)));
        }
    }

    /// What programs are told, so that their spans join the trace. Without one they inherit what this process was told.
    pub fn hand_on(&self) -> HandOn {
        if self.running.is_none() {
            return Arc::new(Vec::new);
        }
        Arc::new(|| {
            let mut carrier = HashMap::new();
            TraceContextPropagator::new().inject_context(&Span::current().context(), &mut carrier);
            let named = [("TRACEPARENT", "traceparent"), ("TRACESTATE", "tracestate")];
            named.into_iter().filter_map(|(variable, name)| Some((variable, carrier.remove(name)?))).collect()
        })
    }

    /// Sends what is left, and says in one line if something did not work. Whoever interrupts does not wait.
    pub fn end(self, exit: Exit, printer: &Printer) {
        let mut said = self.complaints;
        if let Some(running) = &self.running
            && exit != Exit::Interrupted
            && let Err(why) = running.flush(&self.env)
        {
            said.push(why);
        }
        if !said.is_empty() {
            printer.warning(&format!("traces: {}", said.join("; ")));
        }
    }
}

impl Running {
    fn new(wanted: Exporting, env: &Env) -> Result<Self, String> {
        let collector = server(&wanted.endpoint)
            .ok_or("OTEL_EXPORTER_OTLP_ENDPOINT is not the address of a server: write it as http://localhost:4318")?;
        let trouble = Trouble::default();
        let client = Client::new(&wanted.endpoint, env, wanted.timeout, trouble.clone());
        let otlp = SpanExporter::builder()
            .with_http()
            .with_endpoint(wanted.endpoint)
            .with_protocol(wanted.protocol)
            .with_timeout(wanted.timeout)
            .with_headers(wanted.headers)
            // Nobody waits at the end of a command for a collector to come back.
            .with_retry_policy(RetryPolicy::disabled())
            .with_http_client(client)
            .build()
            .map_err(|error| error.to_string())?;
        let provider = SdkTracerProvider::builder()
            .with_span_processor(BatchSpanProcessor::builder(Exporter(otlp)).build())
            .with_sampler(wanted.sampler)
            .with_id_generator(Ids(env.clone()))
            .with_resource(wanted.resource)
            .build();
        Ok(Self { provider, collector, trouble })
    }

    /// Sends what is left, unless that takes too long or a signal says that nobody wants to wait.
    fn flush(&self, env: &Env) -> Result<(), String> {
        let (done, over) = oneshot::channel();
        let provider = self.provider.clone();
        let flush = move || {
            // An error means that it took too long: what else went wrong the client has noted.
            let _ = done.send(provider.shutdown_with_timeout(FLUSH).is_ok());
        };
        let not_sent = |why: String| format!("not all were taken by the collector at {}: {why}", self.collector);
        let started = std::thread::Builder::new().name("peat-flush".to_owned()).spawn(flush);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = started.and(runtime).map_err(|error| not_sent(error.to_string()))?;
        let over = runtime.block_on(async {
            let Ok(mut signals) = Signals::watch() else { return false };
            tokio::select! {
                biased;
                over = over => over.unwrap_or(false),
                // Nobody wants to wait, or to hear of it.
                () = signals.next() => true,
                () = env.sleep(FLUSH) => false,
            }
        });
        let why = self.trouble.get().or_else(|| (!over).then(|| format!("no answer within {} s", FLUSH.as_secs())));
        why.map_or(Ok(()), |why| Err(not_sent(why)))
    }
}

/// Scheme, host and port of an address.
fn server(address: &str) -> Option<String> {
    let uri: Uri = address.parse().ok()?;
    let scheme = uri.scheme_str().filter(|scheme| matches!(*scheme, "http" | "https"))?;
    let port = uri.port_u16().map(|port| format!(":{port}")).unwrap_or_default();
    Some(format!("{scheme}://{}{port}", uri.host().filter(|host| !host.is_empty())?))
}

/// The variables that carry a trace.
struct Variables<'a>(&'a Env);

impl Extractor for Variables<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.var(&key.to_ascii_uppercase())
    }

    fn keys(&self) -> Vec<&str> {
        vec!["traceparent", "tracestate"]
    }
}
