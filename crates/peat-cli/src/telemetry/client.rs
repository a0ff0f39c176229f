//! How what is exported goes over the wire.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use http::{Request, Response};
use opentelemetry_http::{HttpClient, HttpError};
use peat_types::{Env, Error, Kind, Result};
use tokio::runtime::Runtime;
use tracing::subscriber::{NoSubscriber, with_default};

/// A collector says little; the rest of a longer answer is not read.
const ANSWER: usize = 64 << 10;

/// The first thing that went wrong, in one line.
#[derive(Clone, Debug, Default)]
pub(super) struct Trouble(Arc<Mutex<Option<String>>>);

impl Trouble {
    fn note(&self, what: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(what);
    }

    pub fn get(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// An HTTP client for the thread of the exporter, which waits for each request. It has a runtime of its own, so it does
/// not depend on that of the command; both, and the reading of certificates, wait for the first request.
pub(super) struct Client {
    address: String,
    env: Env,
    limit: Duration,
    parts: OnceLock<Result<(Runtime, reqwest::Client)>>,
    trouble: Trouble,
}

impl Client {
    /// A client for a collector at `address`, each of whose requests may take `limit`.
    pub fn new(address: &str, env: &Env, limit: Duration, trouble: Trouble) -> Self {
        Self { address: address.to_owned(), env: env.clone(), limit, parts: OnceLock::new(), trouble }
    }

    fn parts(&self) -> Result<&(Runtime, reqwest::Client)> {
        let make = || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(|e| Error::internal("cannot start the runtime").with_source(e))?;
            Ok((runtime, peat_objects::collector_client(&self.address, self.limit, &self.env)?))
        };
        self.parts.get_or_init(make).as_ref().map_err(|error| Error::invalid(error.chain().join(": ")))
    }

    fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>> {
        let (runtime, client) = self.parts()?;
        let failed = |e: reqwest::Error| {
            Error::new(Kind::Offline, "the collector cannot be reached").with_source(e.without_url())
        };
        let request = reqwest::Request::try_from(request).map_err(failed)?;
        let exchange = async {
            let mut reply = client.execute(request).await.map_err(failed)?;
            let mut response = Response::new(());
            *response.status_mut() = reply.status();
            *response.headers_mut() = std::mem::take(reply.headers_mut());
            let mut body = BytesMut::new();
            while body.len() < ANSWER
                && let Some(piece) = reply.chunk().await.map_err(failed)?
            {
                body.extend_from_slice(&piece);
            }
            Ok(response.map(|()| body.freeze()))
        };
        let slow = || Error::new(Kind::Offline, format!("no answer within {} s", self.limit.as_secs_f32()));
        runtime.block_on(self.env.timeout(self.limit, exchange)).unwrap_or_else(|| Err(slow()))
    }
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> std::result::Result<Response<Bytes>, HttpError> {
        // What the client says of its own requests would be exported by further requests.
        let outcome = with_default(NoSubscriber::default(), || self.send(request));
        match &outcome {
            Ok(response) if response.status().is_success() => {}
            Ok(response) => self.trouble.note(format!("it answered with status {}", response.status().as_u16())),
            Err(error) => self.trouble.note(error.chain().join(": ")),
        }
        Ok(outcome?)
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}
