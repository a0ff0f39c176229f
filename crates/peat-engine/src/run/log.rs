//! The text log of a run.

use std::fmt::Write;
use std::sync::{Mutex, PoisonError};

use peat_types::Env;

use crate::types::Stream;

/// Bytes of a log that are kept.
const KEEP: usize = 32 << 20;

/// Lines with time and level, as they come.
pub(super) struct RunLog {
    env: Env,
    text: Mutex<String>,
}

impl RunLog {
    pub fn new(env: &Env) -> Self {
        Self { env: env.clone(), text: Mutex::new(String::new()) }
    }

    pub fn add(&self, stream: Stream, line: &str) {
        let level = match stream {
            Stream::Stdout => "info",
            Stream::Stderr => "warning",
        };
        let mut text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        if text.len() + line.len() <= KEEP {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{} {level:<7} {line}", self.env.now());
        }
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.text.into_inner().unwrap_or_else(PoisonError::into_inner).into_bytes()
    }
}
