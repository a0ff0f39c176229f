//! The grammar as data, for agents and for the manual.

use std::fmt::Write;

use clap::{Arg, Command};
use serde_json::{Map, Value, json};

/// `command` as a JSON document.
pub(crate) fn document(command: &Command) -> Value {
    let mut fields = Map::from_iter([("schema".to_owned(), Value::from("peat.help/1"))]);
    if let Value::Object(own) = of(command) {
        fields.extend(own);
    }
    Value::Object(fields)
}

/// `command` with its arguments, options and subcommands; hidden things are left out.
fn of(command: &Command) -> Value {
    let (options, arguments): (Vec<&Arg>, Vec<&Arg>) =
        command.get_arguments().filter(|arg| !arg.is_hide_set()).partition(|arg| !arg.is_positional());
    json!({
        "name": command.get_name(),
        "description": command.get_about().map(ToString::to_string).unwrap_or_default(),
        "arguments": arguments.into_iter().map(argument).collect::<Vec<_>>(),
        "options": options.into_iter().map(argument).collect::<Vec<_>>(),
        "subcommands": command.get_subcommands().filter(|sub| !sub.is_hide_set()).map(of).collect::<Vec<_>>(),
    })
}

fn argument(arg: &Arg) -> Value {
    let long = arg.get_long().map(|name| format!("--{name}"));
    let short = arg.get_short().map(|name| format!("-{name}"));
    let values: Vec<String> = arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    let takes_value = arg.get_action().takes_values();
    let mut out = json!({
        "name": arg.get_id().as_str(),
        "description": arg.get_help().map(ToString::to_string).unwrap_or_default(),
        "required": arg.is_required_set(),
    });
    let mut set = |key: &str, value: Option<Value>| {
        if let (Some(value), Some(fields)) = (value, out.as_object_mut()) {
            fields.insert(key.to_owned(), value);
        }
    };
    set("long", long.map(Value::from));
    set("short", short.map(Value::from));
    set("takesValue", (!arg.is_positional()).then(|| Value::from(takes_value)));
    set("values", (takes_value && !values.is_empty()).then(|| json!(values)));
    set("repeatable", matches!(arg.get_action(), clap::ArgAction::Append).then(|| Value::from(true)));
    out
}

/// The manual's page of all commands.
pub(crate) fn markdown() -> String {
    let mut root = crate::command().term_width(usize::MAX);
    root.build();
    let mut page = String::from(
        "# Commands\n\n<!-- Written by `peat help --markdown`; a test fails when it is out of date. -->\n\n\
         Every command also takes the options of the last section.\n",
    );
    for command in root.get_subcommands() {
        section(command, 2, &mut page);
    }
    page.push_str("\n## Options of every command\n\n");
    list(root.get_arguments().filter(|arg| arg.is_global_set()), &mut page);
    page
}

fn section(command: &Command, level: usize, page: &mut String) {
    if command.is_hide_set() {
        return;
    }
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    let _ = write!(page, "\n{} `{name}`\n\n{about}\n", "#".repeat(level));
    let own =
        || command.get_arguments().filter(|arg| !arg.is_hide_set() && !arg.is_global_set() && arg.get_id() != "help");
    if command.has_subcommands() {
        command.get_subcommands().for_each(|sub| section(sub, level + 1, page));
        return;
    }
    let usage: Vec<String> = own().filter(|arg| arg.is_positional()).map(ToString::to_string).collect();
    let options = if own().any(|arg| !arg.is_positional()) { " [OPTIONS]" } else { "" };
    let arguments = if usage.is_empty() { String::new() } else { format!(" {}", usage.join(" ")) };
    let _ = write!(page, "\n```\n{name}{options}{arguments}\n```\n\n");
    list(own(), page);
}

fn list<'a>(arguments: impl Iterator<Item = &'a Arg>, page: &mut String) {
    for arg in arguments {
        let names = match (arg.get_short(), arg.is_positional()) {
            (Some(short), false) => format!("-{short}, {arg}"),
            _ => arg.to_string(),
        };
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let defaults = arg.get_default_values().iter().map(|value| value.to_string_lossy());
        let default = match defaults.collect::<Vec<_>>().join(" ") {
            text if text.is_empty() || arg.is_hide_default_value_set() || !arg.get_action().takes_values() => {
                String::new()
            }
            text => format!(" (default: {text})"),
        };
        let _ = writeln!(page, "- `{names}`: {help}{default}");
    }
}
