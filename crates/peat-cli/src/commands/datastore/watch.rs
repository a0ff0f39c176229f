use clap::ValueEnum;
use peat_engine::report::WatchEvent;
use peat_engine::{Exec, ExecNews, Executed, Follow, OnFailure, WatchRequest, duration};
use peat_types::Result;

use crate::context::Context;
use crate::exit::{Exit, USAGE};
use crate::page::{Page, names};
use crate::printer::{Render, plain};

/// Follow the namespace: one line for each change, from where it was left the last time
///
/// With --json each line is a JSON document. The place is remembered under a name, in the clone; a new name begins now.
/// A command given with --exec gets the JSON on stdin and PEAT_SEQ, PEAT_CHANGE, PEAT_KIND, PEAT_MODEL, PEAT_STATUS and
/// PEAT_ATTEMPT in its environment. It may see a change twice if it is interrupted: PEAT_CHANGE tells.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run this command line for each change, one after the other; only then is the change done
    #[arg(long, value_name = "COMMAND")]
    exec: Option<String>,
    /// How often a command that fails is run again
    #[arg(long, value_name = "N", default_value_t = 5, requires = "exec", allow_negative_numbers = true)]
    retries: u32,
    /// What happens when the last try fails too
    #[arg(long, value_name = "WHAT", value_enum, default_value = "stop", requires = "exec")]
    on_failure: Failing,
    /// Only changes of this model
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Deliver what is new, then end
    #[arg(long)]
    once: bool,
    /// Where a new name begins: after this entry; 0 for the beginning
    #[arg(long, value_name = "SEQ", allow_negative_numbers = true)]
    since: Option<u64>,
    /// Longest pause between two looks at the store: seconds, or 500ms, 30s, 5m
    #[arg(long, value_name = "TIME", default_value = "2s")]
    interval: String,
    /// Name under which the place is remembered
    #[arg(long, value_name = "NAME", default_value = "default")]
    name: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Failing {
    /// End; the change comes again the next time
    Stop,
    /// Leave the change out
    Skip,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    let request = WatchRequest {
        name: args.name.clone(),
        since: args.since,
        interval: duration::parse(&args.interval).map_err(|error| error.with_code(USAGE))?,
        model: args.model.clone(),
    };
    let mut follow = cx.repo()?.watch(&request).await?;
    if follow.is_new() {
        cx.printer.note(&format!("following as '{}' after entry {}", args.name, follow.seq()));
    } else if args.since.is_some() {
        let at = follow.seq();
        cx.printer.warning(&format!("'{}' goes on after entry {at}; --since counts for a new name only", args.name));
    }
    let exec = args.exec.map(|command| Exec {
        command,
        retries: args.retries,
        on_failure: match args.on_failure {
            Failing::Stop => OnFailure::Stop,
            Failing::Skip => OnFailure::Skip,
        },
    });
    let ended = deliver(&mut follow, exec.as_ref(), args.once, cx).await;
    cx.printer.stats(cx.stats().as_ref());
    ended
}

async fn deliver(follow: &mut Follow, exec: Option<&Exec>, once: bool, cx: &Context) -> Result<Exit> {
    let (cancel, printer) = (cx.cancel(), &cx.printer);
    loop {
        let next = async { if once { follow.poll().await } else { follow.next().await.map(Some) } };
        let event = tokio::select! {
            biased;
            _ = cancel.cancelled() => return Ok(Exit::Interrupted),
            event = next => event?,
        };
        let Some(event) = event else { return Ok(Exit::Success) };
        printer.event(&event)?;
        if let Some(exec) = exec {
            let mut told = |news: ExecNews<'_>| match news {
                ExecNews::Output(bytes) => printer.pass(bytes),
                ExecNews::Again { why, pause } => printer.warning(&format!(
                    "the command for entry {} {why}; running it again in {}",
                    event.seq,
                    duration::human(pause)
                )),
                ExecNews::Skipped { why } => {
                    printer.warning(&format!("the command for entry {} {why}; the change is left out", event.seq));
                }
            };
            if follow.exec(&event, exec, &cancel, &mut told).await? == Executed::Cancelled {
                return Ok(Exit::Interrupted);
            }
        }
        follow.done().await?;
    }
}

impl Render for WatchEvent {
    fn render(&self, page: &mut Page) {
        let units: Vec<&str> = self.units.iter().map(|unit| unit.model_name.as_deref().unwrap_or(&unit.unit)).collect();
        let line = match &self.change {
            Some(change) => {
                let what = if change.message.is_empty() { &change.kind } else { &change.message };
                let data = self.units.iter().flat_map(|unit| &unit.data);
                let data: String = data.map(|data| format!("  {}@{}", data.name, data.version)).collect();
                format!("{}  {}  {}  {}  {what}{data}", self.seq, change.time, change.author, names(&units))
            }
            None => {
                let from = self.from.map_or(0, |from| from.0 + 1);
                let to = self.seq.0;
                format!("{to}  entries {from} to {to} are not all kept any more; they changed {}", names(&units))
            }
        };
        // Written by others, and one line whatever they wrote.
        page.line(plain(&line));
    }
}
