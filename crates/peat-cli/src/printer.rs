//! The only place that writes to the terminal. Stdout is data, stderr is talk.

use std::borrow::Cow;
use std::ffi::OsString;
use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use peat_engine::report::Report;
use peat_types::{Env, Error, Kind, Result};
use serde_json::{Value, json};

use crate::args::Global;
use crate::exit::BROKEN_PIPE;
use crate::page::Page;
use crate::settings::Settings;
use crate::stats::Stats;

/// The text form of a report; its JSON form is the value itself.
pub(crate) trait Render: Report {
    /// Writes the text.
    fn render(&self, page: &mut Page);
}

/// Writes results, notes and errors in the form that was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Printer {
    json: bool,
    quiet: bool,
    colour_out: bool,
    colour_err: bool,
}

impl Printer {
    /// The printer for one invocation.
    pub fn new(settings: &Settings) -> Self {
        Self {
            json: settings.json,
            quiet: settings.quiet,
            colour_out: settings.colour_out,
            colour_err: settings.colour_err,
        }
    }

    /// A printer for complaints about a command line that could not be parsed.
    pub fn before_parsing(args: &[OsString], env: &Env) -> Self {
        let own = || args.iter().skip(1).take_while(|arg| *arg != "--");
        let global = Global {
            json: own().any(|arg| arg == "--json"),
            no_color: own().any(|arg| arg == "--no-color"),
            ..Global::default()
        };
        Self::new(&Settings::resolve(global, env))
    }

    /// Whether JSON was asked for.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Prints the result of a command.
    pub fn report<R: Render>(&self, report: &R, stats: Option<&Stats>) -> Result<()> {
        if self.json {
            return self.document(peat_engine::report::json(report), stats);
        }
        let mut page = Page::new(self.colour_out);
        report.render(&mut page);
        self.text(page.as_str())?;
        if let Some(stats) = stats {
            self.talk(&format!("stats: {stats}\n"));
        }
        Ok(())
    }

    /// Prints one of many results as one line.
    pub fn event<R: Render>(&self, report: &R) -> Result<()> {
        if self.json {
            return self.text(&format!("{}\n", json_text(&peat_engine::report::json(report).to_string())));
        }
        let mut page = Page::new(self.colour_out);
        report.render(&mut page);
        self.text(page.as_str())
    }

    /// Says what a command that printed its results one by one cost.
    pub fn stats(&self, stats: Option<&Stats>) {
        match stats {
            Some(stats) if self.json => self.talk(&format!("{}\n", json!({ "stats": stats }))),
            Some(stats) => self.talk(&format!("stats: {stats}\n")),
            None => {}
        }
    }

    /// Passes the output of a program on to stderr, as it is.
    #[allow(clippy::unused_self)]
    pub fn pass(&self, bytes: &[u8]) {
        // Nothing can be said about an stderr that does not take it.
        let _ = io::stderr().lock().write_all(bytes);
    }

    /// Prints a JSON document, whatever form was asked for.
    pub fn document(&self, mut document: Value, stats: Option<&Stats>) -> Result<()> {
        if let (Some(stats), Some(fields)) = (stats, document.as_object_mut()) {
            fields.insert("stats".to_owned(), json!(stats));
        }
        self.text(&format!("{}\n", json_text(&format!("{document:#}"))))
    }

    /// Writes text to stdout.
    pub fn text(&self, text: &str) -> Result<()> {
        self.bytes(text.as_bytes())
    }

    /// Writes bytes to stdout as they are.
    #[allow(clippy::unused_self)] // the printer is the right to write
    pub fn bytes(&self, bytes: &[u8]) -> Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(bytes).and_then(|()| out.flush()).map_err(stdout_error)
    }

    /// Says something to the person watching; dropped when quiet or when a program is reading.
    pub fn note(&self, text: &str) {
        if !self.quiet && !self.json {
            self.talk(&format!("{}\n", visible(text, "\n")));
        }
    }

    /// Says that something needs attention although the command goes on.
    pub fn warning(&self, text: &str) {
        self.warn(text, &[]);
    }

    /// As [`warning`](Self::warning), with what helps.
    pub fn warn(&self, text: &str, hints: &[String]) {
        if self.json {
            let fields = json!({ "warning": text, "hint": hints.join("\n") });
            return self.talk(&format!("{}\n", json_text(&fields.to_string())));
        }
        let label = paint(self.colour_err, AnsiColor::Yellow.on_default().bold(), "warning:");
        self.talk(&format!("{label} {}\n{}", visible(text, "\n    "), hint_lines(hints, self.colour_err)));
    }

    /// Writes a line of the log, in which nothing is left that a terminal would take for a command.
    pub fn log(&self, line: &str) {
        self.talk(&format!("{}\n", json_text(line)));
    }

    /// Asks a question on the terminal, without a line end.
    pub fn ask(&self, question: &str) {
        self.talk(question);
    }

    /// Prints an error: message, numbered causes, hints.
    pub fn error(&self, error: &Error) {
        if error.code() == BROKEN_PIPE {
            return;
        }
        let text = if self.json { error_json(error) } else { error_text(error, self.colour_err) };
        self.talk(&text);
    }

    #[allow(clippy::unused_self)]
    fn talk(&self, text: &str) {
        // Nothing can be said about an stderr that does not take it.
        let _ = io::stderr().lock().write_all(text.as_bytes());
    }
}

/// Colours `text` when `on`.
pub(crate) fn paint(on: bool, style: Style, text: &str) -> String {
    if on { format!("{style}{text}{style:#}") } else { text.to_owned() }
}

/// `text` without what a terminal would take for a command: names and messages come from other people. Colours, which are
/// ours as a rule, are let through; the end of a line becomes `newline`.
pub(crate) fn visible(text: &str, newline: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let colour = rest.strip_prefix("\u{1b}[").and_then(|codes| {
            let end = codes.find('m')?;
            codes[..end].bytes().all(|b| b.is_ascii_digit() || b == b';').then_some(end + 3)
        });
        let len = colour.unwrap_or(c.len_utf8());
        match c {
            _ if colour.is_some() => out.push_str(&rest[..len]),
            '\n' => out.push_str(newline),
            '\t' => out.push(c),
            _ if c.is_control() => out.extend(c.escape_default()),
            _ => out.push(c),
        }
        rest = &rest[len..];
    }
    out
}

/// `text` on one line, with every control character escaped.
pub(crate) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

/// JSON without the control characters that JSON lets through, of which terminals know some. They stand in strings only,
/// so escaping them changes nothing for who reads it.
fn json_text(json: &str) -> Cow<'_, str> {
    let hidden = |c: char| matches!(c, '\u{7f}'..='\u{9f}');
    if !json.contains(hidden) {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len() + 8);
    for c in json.chars() {
        if hidden(c) { out.push_str(&format!("\\u{:04x}", u32::from(c))) } else { out.push(c) }
    }
    Cow::Owned(out)
}

fn stdout_error(error: io::Error) -> Error {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return Error::new(Kind::Cancelled, "the reader of the output went away").with_code(BROKEN_PIPE);
    }
    // Nothing that `Error::io` advises fits: the command has done what it does, and running it again does it again.
    let code = if error.kind() == io::ErrorKind::StorageFull { "disk_full" } else { "stdout" };
    Error::new(Kind::Offline, "the command was carried out, but what it says could not be written to stdout")
        .with_code(code)
        .with_hint("look at what it did before running it again: 'peat log' and 'peat status' show it")
        .with_source(error)
}

fn error_text(error: &Error, colour: bool) -> String {
    let label = paint(colour, AnsiColor::Red.on_default().bold(), "error:");
    let chain = error.chain();
    let mut text = format!("{label} {}\n", visible(&error.to_string(), "\n    "));
    if chain.len() > 1 {
        text.push_str("Caused by:\n");
        for (n, cause) in chain.iter().enumerate().skip(1) {
            text.push_str(&format!("  {n}: {}\n", visible(cause, "\n    ")));
        }
    }
    text + &hint_lines(error.hints(), colour)
}

fn hint_lines(hints: &[String], colour: bool) -> String {
    let label = paint(colour, AnsiColor::Cyan.on_default().bold(), "hint:");
    hints.iter().map(|hint| format!("{label} {}\n", visible(hint, "\n    "))).collect()
}

fn error_json(error: &Error) -> String {
    let causes = error.chain().split_off(1);
    // Every error has every field, so that scripts need not ask whether it is there.
    let fields = json!({
        "error": error.to_string(),
        "code": error.code(),
        "hint": error.hints().join("\n"),
        "causes": causes,
    });
    format!("{}\n", json_text(&fields.to_string()))
}

#[cfg(test)]
mod tests {
    use super::{json_text, plain, visible};

    #[test]
    fn what_others_named_cannot_command_the_terminal() {
        let title = "\u{1b}]0;owned\u{7}web\r\u{9b}2J\u{1b}[2K";
        assert_eq!(visible(title, "\n"), "\\u{1b}]0;owned\\u{7}web\\r\\u{9b}2J\\u{1b}[2K");
        assert_eq!(visible("\u{1b}[32mok\u{1b}[0m", "\n"), "\u{1b}[32mok\u{1b}[0m");
        assert_eq!(visible("a\nhint: rm", "\n    "), "a\n    hint: rm");
        assert_eq!(visible("ünï\tx", "\n"), "ünï\tx");
        assert_eq!(plain("\u{1b}[8mx\r\ny\u{9b}2Jé"), "\\u{1b}[8mx\\r\\ny\\u{9b}2Jé");
        assert_eq!(json_text("{\"a\":\"\u{9b}2J\u{7f}é\"}"), "{\"a\":\"\\u009b2J\\u007fé\"}");
    }
}
