//! Rows of figures as Markdown: the median of the rounds, and the worst time.

use std::fmt::Write;

use serde_json::Value;

use crate::commit::Committed;
use crate::measure::Took;

/// One measured command.
#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    requests: Option<u64>,
    sent: Option<u64>,
    received: Option<u64>,
    ms: f64,
    rss_kib: i64,
}

impl Row {
    pub fn of(took: &Took, stats: Option<&Value>) -> Self {
        let figure = |name: &str| stats.and_then(|stats| stats.get(name)).and_then(Value::as_u64);
        Self {
            requests: figure("requests"),
            sent: figure("bytesSent"),
            received: figure("bytesReceived"),
            ms: took.ms,
            rss_kib: took.rss_kib,
        }
    }

    pub fn of_commit(took: Committed) -> Self {
        let Committed { requests, sent, received, ms, rss_kib } = took;
        Self { requests: Some(requests), sent: Some(sent), received: Some(received), ms, rss_kib }
    }
}

/// A table under a heading.
#[derive(Debug)]
pub(crate) struct Table {
    title: String,
    rows: Vec<(String, Vec<Row>)>,
}

impl Table {
    pub fn new(title: &str) -> Self {
        Self { title: title.to_owned(), rows: Vec::new() }
    }

    pub fn push(&mut self, name: &str, rows: Vec<Row>) {
        self.rows.push((name.to_owned(), rows));
    }

    pub fn markdown(&self) -> String {
        let mut out = format!(
            "\n## {}\n\n| command | requests | sent | received | time, median (worst) | peak memory |\n\
             | --- | ---: | ---: | ---: | ---: | ---: |\n",
            self.title
        );
        for (name, rows) in &self.rows {
            let mut times: Vec<f64> = rows.iter().map(|row| row.ms).collect();
            times.sort_by(f64::total_cmp);
            let median = times.get(times.len() / 2).copied().unwrap_or_default();
            let worst = times.last().copied().unwrap_or_default();
            let rss = rows.iter().map(|row| row.rss_kib).max().unwrap_or_default();
            let figure = |pick: fn(&Row) -> Option<u64>, show: fn(u64) -> String| {
                let mut all: Vec<u64> = rows.iter().filter_map(pick).collect();
                all.sort_unstable();
                all.get(all.len() / 2).map_or_else(|| "–".to_owned(), |value| show(*value))
            };
            // Writing to a String cannot fail.
            let _ = writeln!(
                out,
                "| {name} | {} | {} | {} | {median:.1} ms ({worst:.1}) | {:.1} MiB |",
                figure(|row| row.requests, |n| n.to_string()),
                figure(|row| row.sent, bytes),
                figure(|row| row.received, bytes),
                rss as f64 / 1024.0,
            );
        }
        out
    }
}

fn bytes(n: u64) -> String {
    if n < 10_000 { format!("{n} B") } else { format!("{:.1} KB", n as f64 / 1000.0) }
}
