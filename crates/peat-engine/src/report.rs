//! What every operation answers: plain values that a printer shows as text or as JSON.
//!
//! Field names are those of the command-line specification (`camelCase`). [`json`] gives the machine form: the same
//! fields with `schema` in front, so that a script can tell what it is looking at.

mod cost;
mod data;
mod history;
mod keep;
mod model;
mod pending;
mod place;
mod policy;
mod repo;
mod run;
mod store;
mod sync;
mod watch;

use serde::Serialize;
use serde_json::{Map, Value};

pub use cost::{CommandCost, LocalContents, StoreSize};
pub use data::{
    DataGroup, DataItem, DataList, DataVersion, DataVersions, DataView, OutputData, OutputLogs, OutputRow,
    OutputSearch, OutputView,
};
pub use history::{
    ContentDiff, DiffReport, HistoryData, HistoryItem, LogEntry, LogReport, LogTransaction, RestoreReport, ShowReport,
    ShowTransaction, UndoReport, UndoneChange, UnreadEntry,
};
pub use keep::{
    CheckpointMade, DatastoreGc, DatastorePurge, FreedObjects, LedgerMaintain, Maintenance, MaintenanceDone, PinDone,
    PinList, PinRow, PurgeDone,
};
pub use model::{
    DeletedModel, MethodReport, MethodView, ModelCreated, ModelDeleted, ModelEdited, ModelRow, ModelSearch,
    ModelValidated, ModelValidatedAll, ModelView, SpecView, TypeName, TypeSearch, TypeView, Validation, Warning,
};
pub use pending::{PendingChange, PendingDone, PendingList, PendingShow};
pub use place::{
    CatalogNamespace, CatalogPull, DatastoreCleanup, DatastoreSetup, NamespaceList, NamespaceRow, SetupAction,
};
pub use policy::{DatastorePolicy, Role};
pub use repo::{GitignoreAction, InitReport};
pub use run::{Artifact, CancelReport, CancelledRun, RunReport, RunStatus};
pub use store::{
    DatastoreStatus, DoctorFinding, DoctorReport, LedgerCat, LedgerLs, LedgerObject, LedgerOrphan, LedgerVerify,
    LockHolder, LockReleased, LockStatus, StatusReport,
};
pub use sync::{AddReport, AsideFile, ByHandFile, PulledPlan, SkippedFile, SyncPlan, SyncReport};
pub use watch::{WatchChange, WatchData, WatchEvent, WatchItem, WatchOutput, WatchUnit};

/// A value that an operation answers with.
pub trait Report: Serialize {
    /// Name and version of the shape, as `peat.<command>/<version>`.
    const SCHEMA: &'static str;
}

/// The machine form of a report.
pub fn json<R: Report>(report: &R) -> Value {
    let mut out = Map::new();
    out.insert("schema".to_owned(), R::SCHEMA.into());
    match serde_json::to_value(report) {
        Ok(Value::Object(fields)) => out.extend(fields),
        Ok(other) => drop(out.insert("value".to_owned(), other)),
        // A report is made of strings, numbers, lists and maps with string keys: it always has a JSON form.
        Err(error) => drop(out.insert("error".to_owned(), error.to_string().into())),
    }
    Value::Object(out)
}

macro_rules! schema {
    ($($report:ty => $name:literal),* $(,)?) => {
        $(impl crate::report::Report for $report {
            const SCHEMA: &'static str = $name;
        })*
    };
}
use schema;
