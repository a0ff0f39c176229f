//! Text in the making: lines, fields and tables of a report.

use std::fmt::Display;

use anstyle::{AnsiColor, Style};
use comfy_table::{ContentArrangement, Table, presets};
use peat_engine::report::Warning;

use crate::printer::{paint, visible};

/// The text form of one report.
#[derive(Debug)]
pub(crate) struct Page {
    text: String,
    colour: bool,
}

impl Page {
    /// An empty page.
    pub fn new(colour: bool) -> Self {
        Self { text: String::new(), colour }
    }

    /// What was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// One line.
    pub fn line(&mut self, line: impl Display) {
        self.text.push_str(&visible(&line.to_string(), "\n"));
        self.text.push('\n');
    }

    /// A line that names what follows.
    pub fn heading(&mut self, text: &str) {
        let text = paint(self.colour, Style::new().bold(), text);
        self.line(text);
    }

    /// A name and its value.
    pub fn field(&mut self, name: &str, value: impl Display) {
        let name = paint(self.colour, AnsiColor::BrightBlack.on_default(), &format!("{name}:"));
        // The padding counts what is seen, not the colour codes.
        let seen = seen_len(&name);
        let padding = " ".repeat(14_usize.saturating_sub(seen).max(1));
        let value = visible(&value.to_string(), &format!("\n{}", " ".repeat(14)));
        self.text.push_str(&format!("{name}{padding}{value}\n"));
    }

    /// A field that is left out when there is no value.
    pub fn optional(&mut self, name: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.field(name, value);
        }
    }

    /// Text of several lines, as it is, with an end of line.
    pub fn block(&mut self, text: &str) {
        self.text.push_str(text);
        if !text.is_empty() && !text.ends_with('\n') {
            self.text.push('\n');
        }
    }

    /// Rows under a header. `empty` is said when there are none.
    pub fn table(&mut self, header: &[&str], rows: Vec<Vec<String>>, empty: &str) {
        if rows.is_empty() {
            self.line(empty);
            return;
        }
        let mut table = Table::new();
        // Never wrapped: a line is a record, whatever the width, so that grep and awk work.
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(header.iter().map(|name| name.to_uppercase()));
        table.add_rows(rows.into_iter().map(|row| row.into_iter().map(|cell| visible(&cell, "\\n"))));
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        for line in table.to_string().lines() {
            self.line(line.trim_end());
        }
    }

    /// What deserves attention.
    pub fn warnings(&mut self, warnings: &[Warning]) {
        for warning in warnings {
            let label = paint(self.colour, AnsiColor::Yellow.on_default(), "warning:");
            self.line(format_args!("{label} {}: {}", warning.name, warning.message));
        }
    }

    /// A word in the colour of its meaning.
    pub fn word(&self, word: &str) -> String {
        let style = match word {
            "succeeded" | "ok" | "healthy" | "free" | "passed" => AnsiColor::Green.on_default(),
            "failed" | "damaged" | "interrupted" | "parked" => AnsiColor::Red.on_default(),
            "running" | "pending" | "held" | "cancelled" | "warning" | "skipped" => AnsiColor::Yellow.on_default(),
            _ => Style::new(),
        };
        paint(self.colour && style != Style::new(), style, word)
    }
}

/// Length of `text` without escape sequences.
fn seen_len(text: &str) -> usize {
    let mut inside = false;
    text.chars()
        .filter(|c| match (inside, c) {
            (false, '\u{1b}') => {
                inside = true;
                false
            }
            (true, 'm') => {
                inside = false;
                false
            }
            (inside, _) => !inside,
        })
        .count()
}

/// A number of bytes for people.
pub(crate) fn bytes(count: u64) -> String {
    #[allow(clippy::cast_precision_loss)] // a rounded figure
    let exact = count as f64;
    match count {
        0..1_000 => format!("{count} B"),
        1_000..1_000_000 => format!("{:.1} kB", exact / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", exact / 1e6),
        _ => format!("{:.1} GB", exact / 1e9),
    }
}

/// "1 item", "2 items".
pub(crate) fn count(n: impl Into<u64>, noun: &str) -> String {
    let n = n.into();
    match noun.strip_suffix('y') {
        _ if n == 1 => format!("{n} {noun}"),
        Some(stem) => format!("{n} {stem}ies"),
        None => format!("{n} {noun}s"),
    }
}

/// A number of milliseconds for people.
pub(crate) fn millis(ms: u64) -> String {
    #[allow(clippy::cast_precision_loss)] // a rounded figure
    let exact = ms as f64;
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{:.1} s", exact / 1e3),
        60_000..3_600_000 => format!("{} min {} s", ms / 60_000, ms / 1_000 % 60),
        3_600_000..86_400_000 => format!("{} h {} min", ms / 3_600_000, ms / 60_000 % 60),
        _ => format!("{} d {} h", ms / 86_400_000, ms / 3_600_000 % 24),
    }
}

/// An amount of money for people.
pub(crate) fn dollars(usd: f64) -> String {
    if usd < 0.01 { format!("${usd:.6}") } else { format!("${usd:.2}") }
}

/// A list of names, or a dash.
pub(crate) fn names<S: AsRef<str>>(list: &[S]) -> String {
    if list.is_empty() {
        return "-".to_owned();
    }
    list.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", ")
}

/// A value, or a dash.
pub(crate) fn or_dash(value: Option<impl Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// JSON for people: text as it is, the rest indented.
pub(crate) fn value(value: &serde_json::Value) -> String {
    value.as_str().map_or_else(|| format!("{value:#}"), str::to_owned)
}
