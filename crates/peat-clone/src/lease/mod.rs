//! Leases: a run holds its units from its start to its end, both of which are transactions.

mod beat;
mod begin;
mod holder;
mod observe;
mod run;
mod runs;

pub use run::{Capability, Grant, LeaseMode, NewRun, Run};
pub(crate) use runs::Runs;
