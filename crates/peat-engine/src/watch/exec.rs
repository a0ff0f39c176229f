//! A command for each change: at least once, in order, tried again when it fails.

use std::collections::BTreeMap;
use std::time::Duration;

use peat_types::{Error, Kind, Result, in_span, number, operation};
use tracing::field::Empty;

use super::Follow;
use crate::cancel::Cancel;
use crate::process::{self, Ended, Job};
use crate::report::{self, WatchEvent};

/// Pause after the first failure; doubles up to [`LONGEST`].
const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(60);

/// What is run for each change.
#[derive(Clone, Debug)]
pub struct Exec {
    /// A command line for the system's shell.
    pub command: String,
    /// How often a command that failed is run again.
    pub retries: u32,
    /// What happens when it failed to the last.
    pub on_failure: OnFailure,
}

/// What happens with a change whose command failed to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// Following ends; the change is given again the next time.
    Stop,
    /// The change counts as done.
    Skip,
}

/// What is told while a command runs.
#[derive(Debug)]
pub enum ExecNews<'a> {
    /// Its output, of both streams.
    Output(&'a [u8]),
    /// It failed and is run again after the pause.
    Again {
        /// How it ended.
        why: &'a str,
        /// How long until then.
        pause: Duration,
    },
    /// It failed to the last, and the change is skipped.
    Skipped {
        /// How it ended.
        why: &'a str,
    },
}

/// How it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Executed {
    /// It succeeded, or the change is skipped.
    Done,
    /// It was stopped with the follower; the change is not done.
    Cancelled,
}

impl Follow {
    /// Runs the command for a change. Cancelling ends the command with its process group and comes back.
    ///
    /// # Errors
    /// Code `exec_failed` when it failed to the last.
    pub async fn exec(
        &self,
        event: &WatchEvent,
        exec: &Exec,
        cancel: &Cancel,
        told: &mut (dyn FnMut(ExecNews<'_>) + Send),
    ) -> Result<Executed> {
        let env = self.repo.host().env.clone();
        let mut pause = FIRST;
        for attempt in 1.. {
            let job = self.job(event, exec, attempt);
            let mut output = |_, bytes: &[u8]| told(ExecNews::Output(bytes));
            let span = operation!(
                "exec",
                peat.seq = number(event.seq.0),
                peat.attempts = number(attempt),
                process.exit.code = Empty
            );
            let ended = in_span(span, process::run(self.repo.host(), job, cancel, &mut output)).await?;
            let why = match ended {
                Ended::Exited(0) => return Ok(Executed::Done),
                Ended::Cancelled(_) => return Ok(Executed::Cancelled),
                Ended::Exited(code) => format!("ended with status {code}"),
                Ended::Signalled(signal) => format!("was ended by signal {signal}"),
                Ended::NotStarted(why) => why,
                Ended::TimedOut => "was not finished in time".to_owned(),
            };
            // The command may have heard of the signal before we did.
            if cancel.reason().is_some() {
                return Ok(Executed::Cancelled);
            }
            if attempt > exec.retries {
                if exec.on_failure == OnFailure::Skip {
                    told(ExecNews::Skipped { why: &why });
                    break;
                }
                let tries = if attempt == 1 { String::new() } else { format!(" {attempt} times; the last one") };
                return Err(Error::new(
                    Kind::Conflict,
                    format!("the command for entry {} failed{tries}: it {why}", event.seq),
                )
                .with_code("exec_failed")
                .with_hint("correct the cause and start the same command again: it goes on with this change")
                .with_hint("with '--on-failure skip' a change whose command fails is left out"));
            }
            let wait = pause / 2 + env.jitter(pause / 2);
            told(ExecNews::Again { why: &why, pause: wait });
            tokio::select! {
                biased;
                _ = cancel.cancelled() => return Ok(Executed::Cancelled),
                () = env.sleep(wait) => {}
            }
            pause = (pause * 2).min(LONGEST);
        }
        Ok(Executed::Done)
    }

    fn job(&self, event: &WatchEvent, exec: &Exec, attempt: u32) -> Job {
        let host = self.repo.host();
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let mut variables = BTreeMap::from([
            ("PEAT_SEQ".to_owned(), event.seq.to_string()),
            ("PEAT_KIND".to_owned(), event.change.as_ref().map_or(event.event, |change| &change.kind).to_owned()),
            ("PEAT_MODEL".to_owned(), models(event).join(" ")),
            ("PEAT_CHANGE".to_owned(), event.change.as_ref().map(|c| c.change.to_string()).unwrap_or_default()),
            ("PEAT_ATTEMPT".to_owned(), attempt.to_string()),
            ("PEAT_REPO_DIR".to_owned(), self.repo.root().to_string_lossy().into_owned()),
        ]);
        if let Some(status) = event.units.iter().flat_map(|unit| &unit.outputs).find_map(|output| output.status.clone())
        {
            variables.insert("PEAT_STATUS".to_owned(), status);
        }
        Job {
            argv: vec!["sh".to_owned(), "-c".to_owned(), exec.command.clone()],
            cwd: host.cwd.to_string_lossy().into_owned(),
            variables,
            stdin: Some(format!("{}\n", report::json(event))),
            timeout_ms: None,
            grace_ms: millis(host.patience.grace),
            drain_ms: millis(host.patience.drain),
            cancel_file: None,
            supervisor: Vec::new(),
        }
    }
}

/// Names of the models of an event; the unit where there is none.
fn models(event: &WatchEvent) -> Vec<&str> {
    event.units.iter().map(|unit| unit.model_name.as_deref().unwrap_or(&unit.unit)).collect()
}
