//! What a command is given: settings, printer, environment, and the way to its repo.

use std::cell::{Cell, OnceCell, RefCell};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use peat_engine::{Cancel, HandOn, Host, Real, Reason, Repo, duration};
use peat_objects::{Meter, OpenOptions, Warn};
use peat_types::{Env, Error, Kind, Result, Timestamp};

use crate::exit::Exit;
use crate::interrupt;
use crate::keeper::Child;
use crate::printer::{Printer, Render};
use crate::progress::Progress;
use crate::settings::Settings;
use crate::stats::Stats;
use crate::stores::{PricedStores, PricesSeen};

/// Name of the hidden subcommand under which this executable supervises the program of a method.
pub(crate) const SUPERVISE: &str = "supervise";

/// One invocation.
pub(crate) struct Context {
    pub settings: Settings,
    pub printer: Printer,
    pub env: Env,
    cancel: Cancel,
    /// Whether what is running ends itself when asked to.
    graceful: Cell<bool>,
    meter: Meter,
    prices: PricesSeen,
    trace: HandOn,
    started: Duration,
    /// The same by the clock on the wall, which changes are dated by.
    began: Timestamp,
    /// The repo the command works on, once it asked for it.
    repo: OnceCell<Repo>,
    /// What to say when the command is interrupted from now on.
    unfinished: RefCell<Option<String>>,
}

impl Context {
    pub fn new(settings: Settings, printer: Printer, env: Env) -> Self {
        let (started, began) = (env.monotonic(), env.now());
        Self {
            settings,
            printer,
            env,
            cancel: Cancel::default(),
            graceful: Cell::new(false),
            meter: Meter::default(),
            prices: PricesSeen::default(),
            trace: Arc::new(Vec::new),
            started,
            began,
            repo: OnceCell::new(),
            unfinished: RefCell::new(None),
        }
    }

    /// With variables that make programs part of a trace.
    #[must_use]
    pub fn handing_on(self, trace: HandOn) -> Self {
        Self { trace, ..self }
    }

    /// The machine as the engine is to see it.
    pub fn host(&self) -> Result<Host> {
        let cwd = std::env::current_dir().map_err(|e| Error::io("find", Path::new("the current folder"), e))?;
        // Each working directory would get a clone of its own.
        if let Some(home) = self.settings.home.as_ref().filter(|home| home.is_relative()) {
            return Err(Error::invalid(format!("PEAT_HOME is '{}', which is no absolute path", home.display()))
                .with_hint("set it to a folder that begins with '/'"));
        }
        let mut host = Host::new(self.env.clone(), env!("CARGO_PKG_VERSION"), cwd, self.settings.home.clone());
        host.repo_dir.clone_from(&self.settings.repo_dir);
        let exe = std::env::current_exe().map_err(|e| Error::io("find", Path::new("this executable"), e))?;
        if self.settings.maintenance {
            host.keeper = Some(Arc::new(Child { exe: exe.clone(), trace: self.trace.clone() }));
        }
        host.supervisor = vec![exe.into_os_string(), SUPERVISE.into()];
        host.trace = self.trace.clone();
        host.user.clone_from(&self.settings.user);
        host.hostname = rustix::system::uname().nodename().to_string_lossy().into_owned();
        host.reporter = Arc::new(Progress::new(self.env.clone(), self.printer.clone(), self.settings.draw()));
        let printer = self.printer.clone();
        let warn = Some(Warn::new(move |line| printer.warning(line)));
        let options = OpenOptions { meter: Some(self.meter.clone()), warn, ..OpenOptions::default() };
        host.stores = Arc::new(PricedStores { inner: Arc::new(Real { options }), prices: self.prices.clone() });
        Ok(host)
    }

    /// The repo this command works on.
    pub fn repo(&self) -> Result<Repo> {
        let repo = Repo::find(self.host()?)?;
        Ok(self.repo.get_or_init(|| repo).clone())
    }

    /// The repo, for a command that must work when its marker is damaged.
    pub async fn damaged_repo(&self) -> Result<Repo> {
        Repo::find_damaged(self.host()?).await
    }

    /// Runs an asynchronous command. Only commands that need a runtime pay for one.
    ///
    /// The first signal asks the command to stop, which gives a run the time to end its method and to give its lease
    /// back. A command that does not run anything stops at once, and so does everything at the second signal; what is
    /// then left undone is settled by the next command.
    pub fn block_on(&self, command: impl Future<Output = Result<Exit>>) -> Result<Exit> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| Error::internal("cannot start the runtime").with_source(e))?;
        let outcome = runtime.block_on(async {
            let mut signals = interrupt::Signals::watch()?;
            tokio::pin!(command);
            tokio::select! {
                biased;
                outcome = &mut command => {
                    // A store that did not answer is not asked again.
                    if outcome.as_ref().err().is_none_or(|error| error.kind() != Kind::Offline) {
                        self.send_waiting(&mut signals).await;
                    }
                    self.keep_up(&mut signals).await;
                    return outcome;
                }
                () = signals.next() => self.cancel.cancel(Reason::Interrupt),
            }
            if !self.graceful.get() {
                return Err(self.interrupted());
            }
            tokio::select! {
                biased;
                outcome = &mut command => Ok(self.after_interrupt(outcome)),
                () = signals.next() => Err(self.interrupted()),
            }
        });
        // Requests that nobody waits for any more must not hold the process back.
        runtime.shutdown_background();
        outcome
    }

    /// The error of a command that a signal stopped, with what it leaves in the journal.
    fn interrupted(&self) -> Error {
        let hint = self.unfinished.borrow().clone();
        self.with_left_open(hint.into_iter().fold(interrupt::interrupted(), Error::with_hint))
    }

    /// From now on an interruption leaves something that must be finished: `hint` says so, and by which command.
    pub fn if_interrupted(&self, hint: String) {
        *self.unfinished.borrow_mut() = Some(hint);
    }

    fn with_left_open(&self, error: Error) -> Error {
        let left = self.repo.get().map(|repo| repo.left_open(self.began)).unwrap_or_default();
        left.into_iter().fold(error, Error::with_hint)
    }

    /// Does something for so long at most. Then it is stopped, as by a signal: what was done stays done.
    ///
    /// # Errors
    /// `Offline` with code `timeout`, with what is left in the journal.
    pub async fn within<T>(&self, limit: Option<Duration>, work: impl Future<Output = Result<T>>) -> Result<T> {
        let Some(limit) = limit else { return work.await };
        self.env.timeout(limit, work).await.unwrap_or_else(|| {
            let error = Error::new(Kind::Offline, format!("stopped after {}", duration::human(limit)))
                .with_code("timeout")
                .with_hint(
                    "what was done stays done: the same command goes on where it stopped; --timeout says how long",
                );
            Err(self.with_left_open(error))
        })
    }

    /// After a command: changes that wait in the journal, when it has committed something. It does not fail because of them.
    async fn send_waiting(&self, signals: &mut interrupt::Signals) {
        let Some(repo) = self.repo.get() else { return };
        let waited = tokio::select! {
            biased;
            waited = repo.send_waiting() => waited,
            () = signals.next() => return,
        };
        match waited {
            Ok(waited) => {
                waited.committed.iter().for_each(|line| self.printer.note(line));
                waited.left.iter().for_each(|line| self.printer.warning(line));
            }
            Err(error) => {
                let why = error.chain().join(": ");
                self.printer.warning(&format!("changes wait in the journal, and were not sent this time: {why}"));
            }
        }
    }

    /// After a command: maintenance, when it is due. What the command printed or cost does not change by it.
    async fn keep_up(&self, signals: &mut interrupt::Signals) {
        let Some(repo) = self.repo.get() else { return };
        let kept = tokio::select! {
            biased;
            kept = repo.keep_up() => kept,
            () = signals.next() => return,
        };
        if let Err(error) = kept {
            let why = error.chain().join(": ");
            self.printer.warning(&format!("maintenance of the ledger is due, and did not work this time: {why}"));
        }
    }

    /// The handle by which Ctrl-C reaches a run. Who takes it promises to come to an end soon after.
    pub fn cancel(&self) -> Cancel {
        self.graceful.set(true);
        self.cancel.clone()
    }

    /// A run that was asked to end has ended: its report or error says how.
    fn after_interrupt(&self, outcome: Result<Exit>) -> Exit {
        match outcome {
            // It was over before the signal could matter.
            Ok(Exit::Success) => Exit::Success,
            Ok(_) => Exit::Interrupted,
            Err(error) => {
                self.printer.error(&error);
                Exit::Interrupted
            }
        }
    }

    /// Whether something that cannot be undone is wanted.
    ///
    /// # Errors
    /// `confirmation_needed` when there is nobody to ask: no terminal, or a program that reads JSON.
    pub fn confirmed(&self, yes: bool, question: &str) -> Result<bool> {
        if yes {
            return Ok(true);
        }
        if self.settings.json || !self.settings.terminal_in {
            let why = if self.settings.json { "--json never asks" } else { "there is no terminal to ask on" };
            return Err(Error::invalid(format!("not confirmed, and {why}: {question}"))
                .with_code("confirmation_needed")
                .with_hint("say --yes if that is what you want"));
        }
        self.printer.ask(&format!("{question} [y/N] "));
        let mut answer = String::new();
        std::io::stdin().read_line(&mut answer).map_err(|e| Error::io("read", Path::new("stdin"), e))?;
        Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
    }

    /// The end of a command whose question was answered with no.
    pub fn declined(&self) -> Result<Exit> {
        self.printer.note("Nothing was changed.");
        Ok(Exit::Success)
    }

    /// Prints the result of the command, with its cost when asked for.
    pub fn report(&self, report: &impl Render) -> Result<()> {
        self.printer.report(report, self.stats().as_ref())
    }

    /// What the command cost so far, when `--stats` asks for it.
    pub fn stats(&self) -> Option<Stats> {
        self.settings.stats.then(|| Stats::new(&self.meter.snapshot(), self.elapsed(), self.prices.get()))
    }

    /// Remembers what the command cost, for `status`. A database that is busy or gone is no reason to complain.
    pub fn remember_cost(&self, command: &str) {
        if let Some(repo) = self.repo.get()
            && let Err(error) = repo.note_spent(command, &self.meter.snapshot(), self.elapsed())
        {
            tracing::debug!(%error, "the cost of this command is not remembered");
        }
    }

    /// Says that the ledger in use moved, once that is known here: nothing else would tell who only reads.
    pub fn tell_moved(&self, ended: Option<&Error>) {
        if ended.is_some_and(|error| error.has_code("moved")) {
            return;
        }
        match self.repo.get().map(Repo::moved) {
            Some(Ok(Some(moved))) => {
                self.printer.warn(&format!("{moved}; nothing new comes here any more"), moved.hints());
            }
            Some(Err(error)) => tracing::debug!(%error, "whether the ledger moved is not known"),
            _ => {}
        }
    }

    fn elapsed(&self) -> Duration {
        self.env.monotonic().saturating_sub(self.started)
    }
}
