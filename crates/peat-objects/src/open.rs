//! From a URL to a store.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use peat_types::{Env, Error, Result};

use crate::remote::Remote;
use crate::traced::TracedStore;
use crate::{Durability, FileStore, MemoryStore, Meter, Metered, Patience, SteadyStore, Store, StoreUrl};

/// How long to wait for a store on a network. Bodies that keep moving have no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For a connection with TLS.
    pub connect: Duration,
    /// From the last byte sent to the first byte of the reply.
    pub first_byte: Duration,
    /// Between two pieces of the reply.
    pub idle: Duration,
    /// For the whole of a create, whose callers would rather look than wait.
    pub create: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { connect: seconds(5), first_byte: seconds(20), idle: seconds(20), create: seconds(10) }
    }
}

/// The slowest line on which everything still works, in bytes per second.
pub const SLOWEST: u32 = 16 << 10;

/// How long a body of `len` bytes is on its way on the slowest line.
pub fn time_to_send(len: usize) -> Duration {
    at_speed(SLOWEST, len)
}

fn at_speed(bytes_per_second: u32, len: usize) -> Duration {
    Duration::from_millis(len as u64 * 1000 / u64::from(bytes_per_second.max(1)))
}

/// Hears what somebody should know although the work goes on, such as a clock that is wrong.
#[derive(Clone)]
pub struct Warn(Arc<dyn Fn(&str) + Send + Sync>);

impl Warn {
    /// Calls `hear` with one line each time.
    pub fn new(hear: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(hear))
    }

    pub(crate) fn say(&self, line: &str) {
        (self.0)(line);
    }
}

impl fmt::Debug for Warn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Warn").finish_non_exhaustive()
    }
}

/// Settings of a store beside its URL. What is not set comes from the environment variables that the service's own tools
/// use.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Buckets: address of the server, `https://host[:port]`. Else `AWS_ENDPOINT_URL_S3` or `AWS_ENDPOINT_URL`,
    /// `STORAGE_EMULATOR_HOST`, `AZURE_STORAGE_SERVICE_ENDPOINT`, then the service itself. On Azure it names the account.
    pub endpoint: Option<String>,
    /// S3: region. Else `AWS_REGION`, `AWS_DEFAULT_REGION`, the profile, `us-east-1`.
    pub region: Option<String>,
    /// S3: profile of the AWS configuration files. Else `AWS_PROFILE`.
    pub profile: Option<String>,
    /// S3: the bucket in the path rather than in the host name. Else yes for an endpoint of one's own and for a bucket
    /// with a dot.
    pub path_style: Option<bool>,
    /// Buckets: PEM file of certificates to trust besides the system's. Else `AWS_CA_BUNDLE` for S3, `SSL_CERT_FILE`.
    pub ca_bundle: Option<PathBuf>,
    /// Buckets: time-outs.
    pub timeouts: Timeouts,
    /// Buckets: the slowest line that is waited for, in bytes per second.
    pub slowest: u32,
    /// Buckets: how often a request other than a create is repeated when the server is busy or lost.
    pub retries: u32,
    /// Buckets: no repetition begins later than this after the request began.
    pub patience: Duration,
    /// Files: how sure a write is when it returns.
    pub durability: Durability,
    /// Counts requests: those on the wire for buckets, those at the seam for other stores.
    pub meter: Option<Meter>,
    /// Hears warnings.
    pub warn: Option<Warn>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            endpoint: None,
            region: None,
            profile: None,
            path_style: None,
            ca_bundle: None,
            timeouts: Timeouts::default(),
            slowest: SLOWEST,
            retries: Patience::default().retries,
            patience: Patience::default().total,
            durability: Durability::Full,
            meter: None,
            warn: None,
        }
    }
}

impl OpenOptions {
    /// Refuses settings that mean nothing for this kind of store: whoever gave them expects them to do something.
    fn fit(&self, url: &StoreUrl) -> Result<()> {
        let (scheme, bucket) = match url {
            StoreUrl::S3 { .. } => return Ok(()),
            StoreUrl::Gcs { .. } => ("gs://", true),
            StoreUrl::Azure { .. } => ("az://", true),
            StoreUrl::File { .. } => ("file://", false),
            StoreUrl::Memory => return Ok(()),
        };
        let settings = [
            ("region", "--region", self.region.is_some()),
            ("profile", "--profile", self.profile.is_some()),
            ("path style", "--path-style", self.path_style.is_some()),
            ("endpoint", "--endpoint", self.endpoint.is_some() && !bucket),
        ];
        match settings.iter().find(|(_, _, given)| *given) {
            Some((name, option, _)) => {
                Err(Error::invalid(format!("open {url}: stores of kind {scheme} have no {name}"))
                    .with_hint(format!("leave out {option}, or correct the URL of the store")))
            }
            None => Ok(()),
        }
    }

    /// How long a body of `len` bytes is on its way on the slowest line.
    pub(crate) fn time_to_send(&self, len: usize) -> Duration {
        at_speed(self.slowest, len)
    }
}

/// Opens the store at `url`. Nothing is contacted or loaded before the first request.
///
/// # Errors
/// `Invalid` for settings that cannot be right.
pub fn open(url: &StoreUrl, options: &OpenOptions, env: &Env) -> Result<Arc<dyn Store>> {
    options.fit(url)?;
    let seam: Arc<dyn Store> = match url {
        StoreUrl::S3 { bucket, prefix } => return remote(Remote::s3(bucket, prefix, options, env)?, options, env),
        StoreUrl::Gcs { bucket, prefix } => return remote(Remote::gcs(bucket, prefix, options, env)?, options, env),
        StoreUrl::Azure { container, prefix } => {
            return remote(Remote::azure(container, prefix, options, env)?, options, env);
        }
        StoreUrl::File { root } => Arc::new(FileStore::new(root, options.durability, env)),
        StoreUrl::Memory => Arc::new(MemoryStore::with_clock(env)),
    };
    let seam: Arc<dyn Store> = Arc::new(TracedStore::new(seam, url));
    Ok(match &options.meter {
        Some(meter) => Arc::new(Metered::with_meter(seam, meter.clone())),
        None => seam,
    })
}

#[allow(clippy::unnecessary_wraps)] // the result of `open`
fn remote(bucket: Remote, options: &OpenOptions, env: &Env) -> Result<Arc<dyn Store>> {
    let patience = Patience { retries: options.retries, total: options.patience };
    Ok(Arc::new(SteadyStore::new(Arc::new(bucket), env, patience)))
}
