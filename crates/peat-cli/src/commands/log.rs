mod graph;

use peat_types::{Error, Result};

use crate::context::Context;
use crate::exit::Exit;
use crate::page::Page;
use crate::page::{count, names};
use crate::printer::{Render, plain};
use peat_engine::report::LogReport;
use peat_engine::{LogRequest, When};

/// Numbers that an error names.
const SHOWN: usize = 10;

/// Show the newest entries of the ledger: who changed what, and when
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// At most so many entries (default: 20; with --since, all)
    #[arg(short = 'n', long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u16).range(1..))]
    limit: Option<u16>,
    /// Only entries that changed this model: name, id, or the unique start of an id
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Only entries since then: 2d, 2026-11-30T10:00:00Z, or the number of an entry
    #[arg(long, value_name = "WHEN")]
    since: Option<When>,
    /// Draw a lane for each model, with runs as bars from their start to their end
    #[arg(long)]
    graph: bool,
    /// Only what this machine has seen, without asking the store
    #[arg(long)]
    local: bool,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    let request =
        LogRequest { model: args.model, limit: args.limit.map(usize::from), since: args.since, local: args.local };
    let report = cx.repo()?.log(&request).await?;
    let unread: Vec<String> = report.unread.iter().map(|entry| entry.seq.to_string()).collect();
    if args.graph {
        cx.report(&graph::Graph(report))?;
    } else {
        cx.report(&report)?;
    }
    if unread.is_empty() {
        return Ok(Exit::Success);
    }
    let (first, more) = (unread.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", "), unread.len() > SHOWN);
    let what = count(unread.len() as u64, "entry");
    Err(Error::damaged(format!("{what} of the log cannot be read: {first}{}", if more { ", …" } else { "" }))
        .with_hint("'peat doctor' says what is lost by that, and what helps"))
}

impl Render for LogReport {
    fn render(&self, page: &mut Page) {
        let rows = self.entries.iter().flat_map(|entry| {
            entry.transactions.iter().map(move |tx| {
                let what = if tx.message.is_empty() { &tx.kind } else { &tx.message };
                let units = if tx.models.is_empty() { &tx.units } else { &tx.models };
                vec![entry.seq.to_string(), entry.written.to_string(), tx.author.clone(), names(units), what.clone()]
            })
        });
        page.table(&["entry", "time", "who", "what of", "change"], rows.collect(), "No entries.");
        end(self, page);
    }
}

/// Says where the log goes on, or that it does not.
fn end(report: &LogReport, page: &mut Page) {
    for entry in &report.unread {
        page.line(plain(&format!("entry {} cannot be read: {}", entry.seq, entry.reason)));
    }
    if report.unseen > 0 {
        page.line(format_args!("{} in between or after were not read by this machine", count(report.unseen, "entry")));
    }
    if report.more {
        page.line("… older ones with -n or --since");
    } else if report.first.0 > 0 && report.source == "store" {
        page.line(format_args!("entries below {} are no longer kept", report.first));
    } else if report.first.0 > 0 {
        page.line(format_args!("entries below {} were not read by this machine", report.first));
    }
}
