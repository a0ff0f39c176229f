//! Complaints about the command line, in the same form as every other error.

use clap::error::ErrorKind;
use peat_types::{Error, Kind};

use crate::exit::{Exit, USAGE};
use crate::printer::Printer;

/// An error about what was typed.
pub(crate) fn usage_error(message: impl Into<String>) -> Error {
    Error::new(Kind::Invalid, message).with_code(USAGE)
}

/// Answers what clap did not accept, and its `--help` and `--version`, which it reports the same way.
pub(crate) fn usage(refusal: &clap::Error, printer: &Printer) -> Exit {
    if matches!(refusal.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // Through clap, which knows whether its stdout takes colours; a reader that went away is no error.
        let _ = refusal.print();
        return Exit::Success;
    }
    printer.error(&translate(&refusal.render().to_string()));
    Exit::Usage
}

/// Turns clap's paragraphs (message, `tip:` lines, usage) into message and hints.
fn translate(rendered: &str) -> Error {
    let (mut message, mut hints, mut usage) = (Vec::new(), Vec::new(), None);
    for line in rendered.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(tip) = line.strip_prefix("tip: ") {
            hints.push(tip.to_owned());
        } else if let Some(line) = line.strip_prefix("Usage: ") {
            usage = Some(format!("usage: {line}"));
        } else if line.starts_with("For more information") {
            break;
        } else {
            message.push(line.strip_prefix("error: ").unwrap_or(line));
        }
    }
    // The words of the library that reads numbers.
    let message = message.join(" ").replace("invalid digit found in string", "it is no whole number from 0");
    let error = usage_error(message);
    hints.into_iter().chain(usage).fold(error, Error::with_hint)
}
