//! The log as lanes: one for each unit, newest entry on top.
//!
//! `●` a change, `┬` the end of a run, `┴` its start, `┃` while it is at work, `│` the unit between two of its entries.

use std::collections::BTreeMap;

use peat_engine::report::{LogReport, LogTransaction, Report};
use serde::Serialize;

use super::end;
use crate::page::{Page, names};
use crate::printer::{Render, plain};

/// Lanes that are drawn; what does not fit has none.
const LANES: usize = 12;

/// A log to be drawn; its JSON form is that of the log.
#[derive(Serialize)]
#[serde(transparent)]
pub(super) struct Graph(pub LogReport);

impl Report for Graph {
    const SCHEMA: &'static str = LogReport::SCHEMA;
}

impl Render for Graph {
    fn render(&self, page: &mut Page) {
        draw(&self.0, page);
    }
}

/// A transaction with the entry it is in.
struct Row<'a> {
    entry: String,
    time: String,
    tx: &'a LogTransaction,
}

/// Where a unit is drawn: lane, first and last row.
struct Lane {
    at: usize,
    first: usize,
    last: usize,
}

fn draw(report: &LogReport, page: &mut Page) {
    let rows: Vec<Row<'_>> = report
        .entries
        .iter()
        .flat_map(|entry| {
            entry.transactions.iter().enumerate().map(|(n, tx)| Row {
                // Several changes that one entry carries stand below its number.
                entry: if n == 0 { entry.seq.to_string() } else { "+".to_owned() },
                time: entry.written.to_string(),
                tx,
            })
        })
        .collect();
    if rows.is_empty() {
        page.line("No entries.");
        return end(report, page);
    }
    let bars = bars(&rows);
    let lanes = lanes(&rows, &bars);
    let width = lanes.values().map(|lane| lane.at + 1).max().unwrap_or(0);
    let (seqs, authors) =
        (widest(rows.iter().map(|row| row.entry.as_str())), widest(rows.iter().map(|row| row.tx.author.as_str())));
    for (n, row) in rows.iter().enumerate() {
        let mut cells = vec![' '; width];
        for (unit, lane) in lanes.iter().filter(|(_, lane)| (lane.first..=lane.last).contains(&n)) {
            if let Some(cell) = cells.get_mut(lane.at) {
                *cell = cell_of(n, unit, row.tx, &bars);
            }
        }
        let drawn: String = cells.into_iter().flat_map(|cell| [cell, ' ']).collect();
        let units = if row.tx.models.is_empty() { &row.tx.units } else { &row.tx.models };
        let what = if row.tx.message.is_empty() { &row.tx.kind } else { &row.tx.message };
        // Written by others, and one line whatever they wrote.
        let (author, text) = (plain(&row.tx.author), plain(&format!("{}  {what}", names(units))));
        page.line(format_args!("{drawn} {:>seqs$}  {}  {author:<authors$}  {text}", row.entry, row.time));
    }
    end(report, page);
}

fn widest<'a>(texts: impl Iterator<Item = &'a str>) -> usize {
    texts.map(|text| plain(text).chars().count()).max().unwrap_or(0)
}

/// A run on one unit: the rows between its end and its start, both included.
#[derive(Debug, PartialEq, Eq)]
struct Bar<'a> {
    unit: &'a str,
    first: usize,
    last: usize,
}

fn bars<'a>(rows: &[Row<'a>]) -> Vec<Bar<'a>> {
    let mut bars = Vec::new();
    for (n, row) in rows.iter().enumerate() {
        let Some(run) = row.tx.run.as_deref() else { continue };
        let same = |other: &&Row<'_>| other.tx.run.as_deref() == Some(run);
        for unit in &row.tx.units {
            let of_unit = |other: &&Row<'_>| other.tx.units.contains(unit);
            match row.tx.kind.as_str() {
                "start" => {
                    // The next above that is about a run: its own end, or that of who took over. None: it is at work.
                    let above = rows.iter().take(n).rposition(|other| of_unit(&other) && other.tx.run.is_some());
                    bars.push(Bar { unit, first: above.unwrap_or(0), last: n });
                }
                // Begun before what is shown.
                "end" if !rows.iter().skip(n).any(|other| other.tx.kind == "start" && same(&other)) => {
                    bars.push(Bar { unit, first: n, last: rows.len() - 1 });
                }
                _ => {}
            }
        }
    }
    bars
}

/// Gives each unit the first lane that is free from its newest row to its oldest.
fn lanes<'a>(rows: &[Row<'a>], bars: &[Bar<'a>]) -> BTreeMap<&'a str, Lane> {
    let mut spans: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    let touched =
        rows.iter().enumerate().flat_map(|(n, row)| row.tx.units.iter().map(move |unit| (unit.as_str(), n, n)));
    for (unit, first, last) in touched.chain(bars.iter().map(|bar| (bar.unit, bar.first, bar.last))) {
        let span = spans.entry(unit).or_insert((first, last));
        *span = (span.0.min(first), span.1.max(last));
    }
    let mut order: Vec<(&str, (usize, usize))> = spans.into_iter().collect();
    order.sort_by_key(|(unit, (first, last))| (*first, *last, *unit));
    let mut taken_to: Vec<usize> = Vec::new();
    let mut out = BTreeMap::new();
    for (unit, (first, last)) in order {
        let at = match taken_to.iter().position(|end| *end < first) {
            Some(at) => at,
            None if taken_to.len() < LANES => {
                taken_to.push(0);
                taken_to.len() - 1
            }
            None => continue,
        };
        if let Some(end) = taken_to.get_mut(at) {
            *end = last;
        }
        out.insert(unit, Lane { at, first, last });
    }
    out
}

fn cell_of(n: usize, unit: &str, tx: &LogTransaction, bars: &[Bar<'_>]) -> char {
    if tx.units.iter().any(|touched| touched == unit) {
        return match tx.kind.as_str() {
            "end" => '┬',
            "start" => '┴',
            "abort" => '×',
            _ => '●',
        };
    }
    let at_work = bars.iter().any(|bar| bar.unit == unit && (bar.first..=bar.last).contains(&n));
    if at_work { '┃' } else { '│' }
}

#[cfg(test)]
mod tests {
    use peat_types::{ChangeId, Seq, Timestamp, TxId};

    use super::*;
    use peat_engine::report::LogEntry;

    fn tx(kind: &str, unit: &str, run: Option<&str>) -> LogTransaction {
        LogTransaction {
            tx: TxId::from_bytes([0; 16]),
            change: ChangeId::from_bytes([0; 16]),
            kind: kind.to_owned(),
            author: "ann@here".to_owned(),
            message: format!("{kind} of {unit}"),
            time: Timestamp::from_millis(0),
            run: run.map(str::to_owned),
            units: vec![unit.to_owned()],
            models: Vec::new(),
        }
    }

    /// The lanes of entries given newest first.
    fn drawn(entries: Vec<Vec<LogTransaction>>) -> Vec<String> {
        let newest = entries.len() as u64;
        let entries = entries.into_iter().zip(0..).map(|(transactions, n)| LogEntry {
            seq: Seq(newest - n),
            time: Timestamp::from_millis(0),
            written: Timestamp::from_millis(0),
            size: 1,
            transactions,
        });
        let report = LogReport {
            namespace: "main".parse().unwrap(),
            source: "store".to_owned(),
            unseen: 0,
            model: None,
            first: Seq::ZERO,
            more: false,
            unread: Vec::new(),
            entries: entries.collect(),
        };
        let mut page = Page::new(false);
        draw(&report, &mut page);
        let lanes = |line: &str| line.split("1970").next().unwrap_or_default().trim_end().to_owned();
        page.as_str().lines().map(lanes).collect()
    }

    #[test]
    fn runs_are_bars_and_units_are_lanes() {
        let lines = drawn(vec![
            vec![tx("end", "a", Some("1"))],
            vec![tx("change", "b", None), tx("change", "c", None)],
            vec![tx("start", "a", Some("1"))],
            vec![tx("change", "b", None)],
        ]);
        assert_eq!(lines, ["┬      4", "┃ ●    3", "┃ │ ●  +", "┴ │    2", "  ●    1"]);
    }

    #[test]
    fn a_run_at_work_reaches_the_top_and_one_that_was_taken_over_does_not() {
        let lines = drawn(vec![
            vec![tx("change", "b", None)],
            vec![tx("start", "a", Some("2"))],
            vec![tx("change", "b", None)],
            vec![tx("start", "a", Some("1"))],
            vec![tx("end", "b", Some("0"))],
            vec![tx("change", "c", None)],
        ]);
        assert_eq!(lines, ["┃ ●  6", "┴ │  5", "┃ ●  4", "┴ │  3", "  ┬  2", "● ┃  1"]);
    }

    #[test]
    fn what_others_wrote_stays_on_its_line() {
        let mut hostile = tx("change", "a", None);
        hostile.author = "eve\n\u{1b}[2J".to_owned();
        hostile.message = "x\nhint: rm".to_owned();
        assert_eq!(drawn(vec![vec![hostile]]).len(), 1);
    }
}
