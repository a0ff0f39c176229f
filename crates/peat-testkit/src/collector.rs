//! A collector of OpenTelemetry in this process: OTLP over HTTP, for traces, as protobuf and as JSON.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::{Span as Proto, span::SpanKind, status::StatusCode as Code};
use prost::Message;
use tokio::net::TcpListener;

use crate::background::{Background, LOCAL};

/// How the collector behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mood {
    /// It takes what comes.
    #[default]
    Willing,
    /// It answers with this status.
    Refusing(u16),
    /// It takes connections and never answers.
    Silent,
}

/// A span as it arrived.
#[derive(Clone, Debug)]
pub struct Span {
    /// Its name.
    pub name: String,
    /// Hexadecimal id of its trace.
    pub trace: String,
    /// Hexadecimal id.
    pub id: String,
    /// Hexadecimal id of the span around it; empty without one.
    pub parent: String,
    /// Whether it is a request to somebody else.
    pub client: bool,
    /// Whether it failed.
    pub failed: bool,
    /// Nanoseconds between its beginning and its end.
    pub nanos: u64,
    /// Attributes as text.
    pub attributes: BTreeMap<String, String>,
    /// Names of the attributes that are whole numbers.
    pub numbers: Vec<String>,
    /// Attributes of whoever sent it, as text.
    pub resource: BTreeMap<String, String>,
    /// Everything there is of it, as text, for those who look for what must not be there.
    pub whole: String,
}

/// One request.
#[derive(Clone, Debug)]
pub struct Received {
    /// Its path.
    pub path: String,
    /// Its headers.
    pub headers: HeaderMap,
}

#[derive(Default)]
struct Control {
    mood: Mood,
    requests: Vec<Received>,
    spans: Vec<Span>,
    connections: usize,
}

/// A running collector; it ends when dropped.
pub struct Collector {
    background: Background,
    control: Arc<Mutex<Control>>,
}

impl Collector {
    /// Starts one that is willing.
    ///
    /// # Errors
    /// When there is no port or thread to be had.
    pub fn start() -> std::io::Result<Self> {
        let control = Arc::<Mutex<Control>>::default();
        let shared = control.clone();
        let background = Background::start("collector", LOCAL, |listener| serve(listener, shared))?;
        Ok(Self { background, control })
    }

    /// Its address, for `OTEL_EXPORTER_OTLP_ENDPOINT`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.background.address())
    }

    /// Sets how it behaves from now on.
    pub fn set_mood(&self, mood: Mood) {
        lock(&self.control).mood = mood;
    }

    /// The spans that arrived so far, in the order in which they came.
    pub fn spans(&self) -> Vec<Span> {
        lock(&self.control).spans.clone()
    }

    /// The spans that arrived since this was asked last.
    pub fn take(&self) -> Vec<Span> {
        std::mem::take(&mut lock(&self.control).spans)
    }

    /// The requests that came so far.
    pub fn requests(&self) -> Vec<Received> {
        lock(&self.control).requests.clone()
    }

    /// Connections that were made so far.
    pub fn connections(&self) -> usize {
        lock(&self.control).connections
    }
}

fn lock(control: &Mutex<Control>) -> MutexGuard<'_, Control> {
    control.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve(listener: TcpListener, control: Arc<Mutex<Control>>) {
    let mut open = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        lock(&control).connections += 1;
        let control = control.clone();
        open.spawn(async move {
            let answer = service_fn(|request| answer(request, control.clone()));
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    control: Arc<Mutex<Control>>,
) -> Result<Response<Full<Bytes>>, std::convert::Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let mood = {
        let mut control = lock(&control);
        control.requests.push(Received { path: head.uri.path().to_owned(), headers: head.headers.clone() });
        control.mood
    };
    let status = match mood {
        Mood::Silent => return std::future::pending().await,
        Mood::Refusing(status) => StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        Mood::Willing if head.method != Method::POST || head.uri.path() != "/v1/traces" => StatusCode::NOT_FOUND,
        Mood::Willing => match decode(&head.headers, &body) {
            Some(sent) => {
                lock(&control).spans.extend(spans(&sent));
                StatusCode::OK
            }
            None => StatusCode::BAD_REQUEST,
        },
    };
    let body = if status == StatusCode::OK && !is_json(&head.headers) {
        ExportTraceServiceResponse::default().encode_to_vec()
    } else {
        b"{}".to_vec()
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    Ok(response)
}

fn is_json(headers: &HeaderMap) -> bool {
    headers.get(http::header::CONTENT_TYPE).is_some_and(|kind| kind == "application/json")
}

fn decode(headers: &HeaderMap, body: &[u8]) -> Option<ExportTraceServiceRequest> {
    if is_json(headers) {
        return serde_json::from_slice(body).ok();
    }
    let kind = headers.get(http::header::CONTENT_TYPE)?;
    if kind != "application/x-protobuf" {
        return None;
    }
    ExportTraceServiceRequest::decode(body).ok()
}

fn spans(sent: &ExportTraceServiceRequest) -> Vec<Span> {
    let mut all = Vec::new();
    for of in &sent.resource_spans {
        let resource = of.resource.iter().flat_map(|resource| &resource.attributes);
        let resource: BTreeMap<_, _> = resource.map(pair).collect();
        for span in of.scope_spans.iter().flat_map(|scope| &scope.spans) {
            all.push(Span { resource: resource.clone(), ..Span::of(span) });
        }
    }
    all
}

impl Span {
    fn of(span: &Proto) -> Self {
        let number = |attribute: &&KeyValue| {
            let value = attribute.value.as_ref().and_then(|value| value.value.as_ref());
            matches!(value, Some(Value::IntValue(_)))
        };
        Self {
            name: span.name.clone(),
            trace: hex::encode(&span.trace_id),
            id: hex::encode(&span.span_id),
            parent: hex::encode(&span.parent_span_id),
            client: span.kind() == SpanKind::Client,
            failed: span.status.as_ref().is_some_and(|status| status.code() == Code::Error),
            nanos: span.end_time_unix_nano.saturating_sub(span.start_time_unix_nano),
            attributes: span.attributes.iter().map(pair).collect(),
            numbers: span.attributes.iter().filter(number).map(|attribute| attribute.key.clone()).collect(),
            resource: BTreeMap::new(),
            whole: format!("{span:?}"),
        }
    }

    /// An attribute as text; empty when it is not there.
    pub fn get(&self, name: &str) -> &str {
        self.attributes.get(name).map(String::as_str).unwrap_or_default()
    }
}

fn pair(attribute: &KeyValue) -> (String, String) {
    let value = match attribute.value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::BoolValue(yes)) => yes.to_string(),
        other => format!("{other:?}"),
    };
    (attribute.key.clone(), value)
}
