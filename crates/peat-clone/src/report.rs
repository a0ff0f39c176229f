//! Answers about the state of things.

use peat_ledger::Lease;
use peat_types::Unit;

/// A lease as this clone knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseInfo {
    /// What it is for.
    pub unit: Unit,
    /// The record.
    pub lease: Lease,
    /// Whether a process of this clone holds it and lives.
    pub alive_here: bool,
}

/// One thing the doctor looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Slug of the check.
    pub check: &'static str,
    /// Whether all was well.
    pub passed: bool,
    /// What was found.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}
