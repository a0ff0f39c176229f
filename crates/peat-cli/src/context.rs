//! What a command is given: settings, printer, environment, and the way to its repo.

use std::time::Duration;

use peat_types::{Env, Error, Kind, Result};

use crate::exit::Exit;
use crate::interrupt;
use crate::printer::{Printer, Render};
use crate::settings::Settings;
use crate::stats::Stats;

/// One invocation.
#[derive(Debug)]
pub(crate) struct Context {
    pub settings: Settings,
    pub printer: Printer,
    pub env: Env,
    started: Duration,
}

impl Context {
    pub fn new(settings: Settings, printer: Printer, env: Env) -> Result<Self> {
        let started = env.monotonic();
        Ok(Self { settings, printer, env, started })
    }

    /// Runs an asynchronous command. Only commands that need a runtime pay for one.
    pub fn block_on(&self, command: impl Future<Output = Result<Exit>>) -> Result<Exit> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| Error::internal("cannot start the runtime").with_source(e))?;
        let outcome = runtime.block_on(async {
            tokio::select! {
                biased;
                outcome = command => outcome,
                stop = interrupt::requested() => stop.and(Err(interrupt::interrupted())),
            }
        });
        // Requests that nobody waits for any more must not hold the process back.
        runtime.shutdown_background();
        outcome
    }

    /// Prints the result of the command, with its cost when asked for.
    pub fn report(&self, report: &impl Render) -> Result<()> {
        self.printer.report(report, self.stats().as_ref())
    }

    /// What the command cost so far, when `--stats` asks for it.
    pub fn stats(&self) -> Option<Stats> {
        let elapsed = self.env.monotonic().saturating_sub(self.started);
        let duration_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        self.settings.stats.then(|| Stats { duration_ms, ..Stats::default() })
    }

    /// For the slice in which the engine is not there yet.
    pub fn unwired(&self) -> Result<Exit> {
        Err(Error::new(Kind::Unsupported, "this command is not connected to the engine yet"))
    }
}
