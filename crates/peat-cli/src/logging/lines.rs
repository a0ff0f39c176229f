//! One line for each event and for each span that ended.

use std::fmt;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use peat_types::Env;
use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::{LookupSpan, Scope};

use crate::args::LogFormat;
use crate::printer::{Printer, paint, plain};

/// Writes the lines.
pub(super) struct Lines {
    printer: Printer,
    env: Env,
    format: LogFormat,
    colour: bool,
}

/// What is known of a span that has not ended.
struct Open {
    fields: Fields,
    began: Duration,
}

impl Lines {
    pub fn new(printer: Printer, env: Env, format: LogFormat, colour: bool) -> Self {
        Self { printer, env, format, colour }
    }

    /// `what` is a message, or the name of a span that took `took`. `spans` are those around it, outermost first.
    fn write(
        &self,
        of: &Metadata<'_>,
        what: &str,
        fields: Map<String, Value>,
        spans: &[String],
        took: Option<Duration>,
    ) {
        let time = self.env.now().to_string();
        let line = match self.format {
            LogFormat::Text => self.text(&time, of.level(), what, &fields, took),
            LogFormat::Json => {
                let mut line = Map::new();
                line.insert("timestamp".to_owned(), time.into());
                line.insert("level".to_owned(), of.level().as_str().into());
                line.insert("target".to_owned(), of.target().into());
                line.insert(if took.is_some() { "span" } else { "message" }.to_owned(), what.into());
                line.insert("fields".to_owned(), Value::Object(fields));
                line.insert("spans".to_owned(), json!(spans));
                if let Some(took) = took {
                    line.insert("durationMs".to_owned(), json!(millis(took)));
                }
                Value::Object(line).to_string()
            }
        };
        self.printer.log(&line);
    }

    fn text(
        &self,
        time: &str,
        level: &Level,
        what: &str,
        fields: &Map<String, Value>,
        took: Option<Duration>,
    ) -> String {
        let (colour, dim) = (level_colour(level), Style::new().dimmed());
        let level = paint(self.colour, colour.on_default(), &format!("{:>5}", level.as_str()));
        let mut line = format!("{} {level} {}", paint(self.colour, dim, time), plain(what));
        for (name, value) in fields {
            // A text that cannot be mistaken for the next field needs no quotes.
            let value = match value {
                Value::String(text) if !text.is_empty() && !text.contains([' ', '"', '=']) => plain(text),
                other => other.to_string(),
            };
            line.push_str(&format!(" {}{value}", paint(self.colour, dim, &format!("{name}="))));
        }
        if let Some(took) = took {
            line.push_str(&format!(" ({} ms)", millis(took)));
        }
        line
    }
}

fn level_colour(level: &Level) -> AnsiColor {
    match *level {
        Level::ERROR => AnsiColor::Red,
        Level::WARN => AnsiColor::Yellow,
        Level::INFO => AnsiColor::Green,
        Level::DEBUG => AnsiColor::Blue,
        Level::TRACE => AnsiColor::Magenta,
    }
}

/// Milliseconds, to the microsecond.
fn millis(took: Duration) -> f64 {
    (took.as_secs_f64() * 1e6).round() / 1e3
}

/// Names of spans, outermost first.
fn names<'a, S: Subscriber + LookupSpan<'a>>(scope: Option<Scope<'a, S>>) -> Vec<String> {
    let scope = scope.into_iter().flat_map(Scope::from_root);
    scope.filter_map(|span| Some(span.extensions().get::<Open>()?.fields.name.clone())).collect()
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Lines {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = Fields { name: attributes.metadata().name().to_owned(), ..Fields::default() };
        attributes.record(&mut fields);
        span.extensions_mut().insert(Open { fields, began: self.env.monotonic() });
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(open) = span.extensions_mut().get_mut::<Open>() {
            values.record(&mut open.fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.write(event.metadata(), &fields.message, fields.map, &names(context.event_scope(event)), None);
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let Some(Open { fields, began }) = span.extensions_mut().remove::<Open>() else { return };
        let took = self.env.monotonic().saturating_sub(began);
        self.write(span.metadata(), &fields.name, fields.map, &names(Some(span.scope())), Some(took));
    }
}

/// What a span or an event says.
#[derive(Default)]
struct Fields {
    /// Of a span, as a trace shows it.
    name: String,
    message: String,
    map: Map<String, Value>,
}

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::String(text)) => self.message = text,
            ("otel.name", Value::String(text)) => self.name = text,
            // For the exporter.
            (name, _) if name.starts_with("otel.") => {}
            (name, value) => {
                self.map.insert(name.to_owned(), value);
            }
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }
}
