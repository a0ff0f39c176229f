//! Google Cloud Storage and Azure Blob Storage in this process, as far as a ledger uses them: every request is logged,
//! faults are scripted, lies are told. For what the emulators of these services cannot show.
//!
//! It runs on a thread and a runtime of its own, like [`crate::s3::S3Server`].

mod service;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::{Method, Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use peat_objects::{MemoryStore, Store};
use peat_types::Env;
use s3s::Body;
use tokio::net::TcpListener;

use crate::background::{Background, LOCAL};
use crate::liars::{LiarStore, Lie};
use crate::s3::script::{Backend, Dropped, Script};
use crate::s3::{Fault, Logged};
use service::Served;

/// The bucket, or container, that is there from the start.
pub const BUCKET: &str = "bucket";
/// The account of Azure.
pub const ACCOUNT: &str = "testaccount";
/// Its key: any base64 will do, the signature is not checked here but by Azurite.
pub const KEY: &str = "dGVzdGtpdC1zZWNyZXQta2V5";

/// Which service is imitated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// The XML interface of Google Cloud Storage.
    Gcs,
    /// Azure Blob Storage.
    Azure,
}

#[derive(Default)]
struct Control {
    log: Vec<Logged>,
    script: Script,
}

struct Shared {
    served: Served,
    control: Mutex<Control>,
    env: Env,
}

impl Shared {
    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running server. It stops when dropped.
pub struct CloudServer {
    service: Service,
    background: Background,
    memory: MemoryStore,
    shared: Arc<Shared>,
}

impl CloudServer {
    /// Starts a server on a free port of the loopback interface, with the empty bucket [`BUCKET`].
    ///
    /// # Errors
    /// When there is no port or thread to be had.
    pub fn start(service: Service) -> std::io::Result<Self> {
        let env = Env::system([]);
        let memory = MemoryStore::with_clock(&env);
        let served = Served::new(service, Arc::new(memory.clone()));
        let shared = Arc::new(Shared { served, control: Mutex::default(), env });
        let of_thread = shared.clone();
        let background = Background::start("cloud-server", LOCAL, move |listener| serve(listener, of_thread))?;
        Ok(Self { service, background, memory, shared })
    }

    /// `http://127.0.0.1:port`, with the account for Azure.
    pub fn endpoint(&self) -> String {
        match self.service {
            Service::Gcs => format!("http://{}", self.background.address()),
            Service::Azure => format!("http://{}/{ACCOUNT}", self.background.address()),
        }
    }

    /// URL of a store in the bucket.
    pub fn url(&self) -> String {
        match self.service {
            Service::Gcs => format!("gs://{BUCKET}/peat"),
            Service::Azure => format!("az://{BUCKET}/peat"),
        }
    }

    /// The environment variables that lead a client here.
    pub fn vars(&self) -> Vec<(String, String)> {
        let vars = match self.service {
            Service::Gcs => vec![("STORAGE_EMULATOR_HOST", self.endpoint())],
            Service::Azure => vec![(
                "AZURE_STORAGE_CONNECTION_STRING",
                format!("AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={};", self.endpoint()),
            )],
        };
        vars.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Everything that was asked so far, in the order it came.
    pub fn log(&self) -> Vec<Logged> {
        self.shared.control().log.clone()
    }

    /// Forgets what was asked so far.
    pub fn clear_log(&self) {
        self.shared.control().log.clear();
    }

    /// Lets the `nth` request (from now, counting from 1) with `method` to a key that contains `key` fail. Listings have
    /// the empty key.
    pub fn script(&self, method: Method, key: &str, nth: u32, fault: Fault) {
        self.script_times(method, key, nth, 1, fault);
    }

    /// Like [`Self::script`], for `times` requests in a row.
    pub fn script_times(&self, method: Method, key: &str, nth: u32, times: u32, fault: Fault) {
        self.shared.control().script.add(method, key, nth, times, fault);
    }

    /// Tells a lie from now on, or the truth again.
    pub fn set_lie(&self, lie: Option<Lie>) {
        let honest: Arc<dyn Store> = Arc::new(self.memory.clone());
        self.shared.served.set_store(match lie {
            Some(lie) => Arc::new(LiarStore::new(honest, &self.shared.env, lie)),
            None => honest,
        });
    }

    /// The stored keys of the bucket.
    pub fn keys(&self) -> Vec<String> {
        self.memory.keys()
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        let shared = shared.clone();
        tokio::spawn(async move {
            let answer = service_fn(move |request| answer(request, shared.clone()));
            let mut builder = auto::Builder::new(TokioExecutor::new());
            builder.http1().timer(TokioTimer::new());
            // An error here is the dropped connection that was scripted, or a client that went away.
            let _ = builder.serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}

async fn answer(request: Request<Incoming>, shared: Arc<Shared>) -> Result<Response<Body>, Dropped> {
    let (bucket, key) = shared.served.names(request.uri().path());
    let logged = Logged {
        method: request.method().clone(),
        path: format!("/{bucket}/{key}"),
        query: request.uri().query().unwrap_or_default().to_owned(),
        headers: request.headers().clone(),
        status: None,
    };
    let (number, fault) = {
        let mut control = shared.control();
        let fault = control.script.next(&logged.method, logged.key());
        control.log.push(logged);
        (control.log.len() - 1, fault)
    };
    let request = request.map(Body::from);
    let mut reply = match fault {
        None => shared.served.answer(request).await,
        Some(fault) => fault.play(request, &shared.served, &shared.env).await?,
    };
    shared.served.sign(&mut reply, number);
    let status = reply.status();
    if let Some(logged) = shared.control().log.get_mut(number) {
        logged.status = Some(status);
    }
    Ok(reply)
}
