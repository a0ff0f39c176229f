//! The protocol against stores that count, lose, lie and refuse. Names in capitals are the invariants of the design.
#![allow(clippy::expect_used, clippy::large_futures)] // a test

#[path = "protocol/bench.rs"]
mod bench;
#[path = "protocol/budgets.rs"]
mod budgets;
#[path = "protocol/bulk.rs"]
mod bulk;
#[path = "protocol/checkpoint.rs"]
mod checkpoint;
#[path = "protocol/claim.rs"]
mod claim;
#[path = "protocol/commit.rs"]
mod commit;
#[path = "protocol/create.rs"]
mod create;
#[path = "protocol/failing.rs"]
mod failing;
#[path = "protocol/gc.rs"]
mod gc;
#[path = "protocol/help.rs"]
mod help;
#[path = "protocol/history.rs"]
mod history;
#[path = "protocol/local.rs"]
mod local;
#[path = "protocol/mend.rs"]
mod mend;
#[path = "protocol/moving.rs"]
mod moving;
#[path = "protocol/neighbours.rs"]
mod neighbours;
#[path = "protocol/past.rs"]
mod past;
#[path = "protocol/pin.rs"]
mod pin;
#[path = "protocol/purge.rs"]
mod purge;
#[path = "protocol/read.rs"]
mod read;
#[path = "protocol/rebuild.rs"]
mod rebuild;
#[path = "protocol/street.rs"]
mod street;
#[path = "protocol/study.rs"]
mod study;
#[path = "protocol/verify.rs"]
mod verify;
#[path = "protocol/void.rs"]
mod void;
