//! The domain: repositories, definitions, model types, method runs, data and outputs, and the state of the datastore.
//!
//! Everything starts at a [`Host`], the machine as the caller resolved it, and a [`Repo`] found from it. Every operation
//! answers with a value of [`report`], which a printer shows as text or JSON. See `docs/design/003-engine.md`.

mod add;
mod arguments;
mod cancel;
mod cost;
mod data;
mod datastore;
mod definition;
pub mod duration;
mod files;
mod foreign;
mod history;
mod host;
pub mod input;
mod locks;
mod models;
mod names;
mod outputs;
mod paths;
mod planner;
mod prices;
mod process;
mod record;
mod repo;
pub mod report;
mod run;
mod schema;
mod status;
mod store;
mod swamp;
mod types;
mod watch;
mod yaml;

pub use add::AddRequest;
pub use cancel::{Cancel, Reason};
pub use data::{DataGet, LargeContent, Reading};
pub use datastore::{Diagnosis, Examination, KeptUp, PurgeRequest, SetupRequest, SyncRequest, Waited};
pub use definition::{CreateModel, Definition};
pub use history::{DiffRequest, LogRequest, RestoreRequest, UndoRequest, When};
pub use host::{Beats, HandOn, Host, Keeper, Patience};
pub use names::normalize_type;
pub use outputs::OutputDataGet;
pub use peat_clone::Params;
pub use prices::Prices;
pub use process::supervise;
pub use record::{Artifacts, DataArtifact, Metadata, Output, Owner, Provenance, RunError};
pub use repo::{Datastore, DeleteLimit, InitRequest, LOCAL, MARKER, Marker, Repo, Retention, Upkeep};
pub use run::{Observer, Quiet, Ran, RunRequest};
pub use store::{Opened, Opener, Real};
pub use types::{
    Call, DataKind, DataSpec, End, MethodKind, MethodSpec, ModelType, Outcome, Produced, Registry, SharedType, Stream,
    TypeSpec, Write,
};
pub use watch::{Exec, ExecNews, Executed, Follow, OnFailure, WatchRequest};
