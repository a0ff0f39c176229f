//! What is said while something takes long. Bars are drawn on terminals only, and not before 250 ms.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use peat_clone::{Aside, Event, Holder, Reporter};
use peat_types::Env;

use crate::page::millis;
use crate::printer::Printer;

/// How long something may take before anything is drawn.
const PATIENCE: Duration = Duration::from_millis(250);

/// Tells a person at a terminal what takes long.
pub(crate) struct Progress {
    env: Env,
    printer: Printer,
    /// Whether bars may be drawn.
    draw: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Whom a wait was announced for, so that it is said once.
    waiting_for: Option<Holder>,
    /// When what is being counted began, and its bar once there is one.
    counted: Option<(Duration, Option<ProgressBar>)>,
}

impl Progress {
    /// Progress for one invocation.
    pub fn new(env: Env, printer: Printer, draw: bool) -> Self {
        Self { env, printer, draw, state: Mutex::default() }
    }

    fn waiting(&self, state: &mut State, holder: &Holder, limit: Duration) {
        if state.waiting_for.as_ref() == Some(holder) {
            return;
        }
        state.waiting_for = Some(holder.clone());
        let limit = millis(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
        self.printer.note(&format!(
            "waiting: {}@{} holds the lease since {}; giving up after {limit}",
            holder.user, holder.host, holder.since
        ));
    }

    fn counting(&self, state: &mut State, style: &str, what: &'static str, done: u64, of: u64) {
        let now = self.env.monotonic();
        let (since, bar) = state.counted.get_or_insert((now, None));
        if done >= of {
            if let Some(bar) = bar {
                bar.finish_and_clear();
            }
            state.counted = None;
        } else if self.draw && now.saturating_sub(*since) >= PATIENCE {
            bar.get_or_insert_with(|| new_bar(style, what, of)).set_position(done);
        }
    }
}

/// Bars of things and of bytes.
const ITEMS: &str = "{msg} {bar:30} {pos}/{len}";
const BYTES: &str = "{msg} {bar:30} {bytes}/{total_bytes} {bytes_per_sec}";

/// Bytes and how many of them there were in a second.
fn rate(bytes: u64, took: Duration) -> String {
    let second = u64::try_from(u128::from(bytes) * 1000 / took.as_millis().max(1)).unwrap_or(u64::MAX);
    format!("{}, {}/s", crate::page::bytes(bytes), crate::page::bytes(second))
}

fn new_bar(style: &str, what: &'static str, of: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(of), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template(style);
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())).with_message(what)
}

impl Reporter for Progress {
    fn report(&self, event: Event<'_>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Waiting { holder, limit, .. } => self.waiting(&mut state, holder, limit),
            Event::TakingOver { holder } => self
                .printer
                .note(&format!("the lease is held by {}@{}, which is dead: taking over", holder.user, holder.host)),
            Event::BeatLate { silence } => {
                let silence = millis(u64::try_from(silence.as_millis()).unwrap_or(u64::MAX));
                self.printer.warning(&format!("no heartbeat reached the store for {silence}: the lease may be lost"));
            }
            Event::Parked { change, why } => self.printer.warning(&format!(
                "change {change} was refused and put aside: {why}; see 'peat pending show {change}'"
            )),
            Event::StoreAway { error } => {
                let why = error.chain().join(": ");
                self.printer.warn(&format!("cannot go on for now, trying again until it works: {why}"), error.hints());
            }
            Event::StoreBack { away } => {
                let away = millis(u64::try_from(away.as_millis()).unwrap_or(u64::MAX));
                self.printer.warning(&format!("going on after {away}"));
            }
            Event::Hydrating { done, of, bytes } => {
                self.counting(&mut state, ITEMS, "downloading", done, of);
                if let Some((since, Some(bar))) = &state.counted {
                    let took = self.env.monotonic().saturating_sub(*since);
                    bar.set_message(format!("downloading {}", rate(bytes, took)));
                }
            }
            Event::Uploading { done, of } => self.counting(&mut state, BYTES, "uploading", done, of),
            Event::Copying { done, of } => self.counting(&mut state, ITEMS, "copying", done, of),
            Event::Collecting { done, of } => self.counting(&mut state, ITEMS, "removing", done, of),
            Event::PutAside { why, path, to } => {
                let what = match why {
                    Aside::Changed => "was changed by hand and in the datastore",
                    Aside::Wanted => "was changed by hand, and is what the datastore holds again",
                    _ => "was not what the datastore holds",
                };
                self.printer.warning(&format!(
                    "{path} {what}; 'peat add {path}' commits it once it is copied back; what it held is in {}",
                    to.display()
                ));
            }
            // Healed by itself: for the log, not for the person.
            Event::Rebuilt { why } => tracing::info!(why, "state.db was rebuilt"),
            Event::Repaired { path } => tracing::info!(path, "a file of the tree was written again"),
            _ => {}
        }
    }
}
