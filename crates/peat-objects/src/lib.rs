//! The store seam and what stands behind it. See [`Store`].

mod fault;
mod file;
mod key;
mod latency;
mod memory;
mod metered;
mod open;
mod pace;
mod pages;
mod prefix;
mod probe;
mod remote;
mod steady;
mod store;
mod traced;
mod url;

pub use fault::{Fault, FaultStore, Rates};
pub use file::{Durability, FileStore};
pub use latency::LatencyStore;
pub use memory::MemoryStore;
pub use metered::{Count, Counts, Meter, Metered, Op};
pub use open::{OpenOptions, SLOWEST, Timeouts, Warn, open, time_to_send};
pub use pages::Pages;
pub use prefix::PrefixStore;
pub use probe::{Verdict, probe};
pub use remote::collector_client;
pub use steady::{Patience, SteadyStore};
pub use store::{Created, List, Listed, Meta, Object, Page, Range, Store};
pub use url::StoreUrl;
