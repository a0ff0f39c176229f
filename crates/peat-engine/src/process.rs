//! Programs that methods run: under a supervisor, so that none outlives the `peat` that started it.
//!
//! The supervisor is a process of its own (this executable, started again), so it is there to end the program's process
//! group when `peat` dies, however it dies: the pipe between the two closes. The two talk over that pipe and its
//! counterpart in frames; see [`wire`].

mod client;
mod supervisor;
mod wire;

pub(crate) use client::run;
pub use supervisor::supervise;
pub(crate) use wire::{Ended, Job};
