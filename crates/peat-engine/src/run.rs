//! Running methods.

mod beats;
mod change;
mod local;
mod log;

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use peat_clone::{Capability, Committed, LeaseMode, LocalClone, NOT_JOURNALLED, NewRun, Scope};
use peat_types::{Error, Kind, Namespace, Result, Unit, failed, in_span, number, operation};
use serde_json::{Map, Value};
use tracing::Span;
use tracing::field::Empty;

use crate::arguments::{self, Resolved};
use crate::cancel::{Cancel, Reason};
use crate::record::{Output, Provenance};
use crate::report::{RunReport, RunStatus};
use crate::types::{Call, End, MethodSpec, Outcome, SharedType, Stream};
use crate::{Definition, Repo, duration, types};

pub(crate) use local::{LocalRun, LocalRuns};

/// How long a run waits for somebody else's lease unless told otherwise.
const WAIT: Duration = Duration::from_secs(60);
/// How long a run that does not count on the store tries to commit its end before it leaves it for later.
const OFFLINE_PATIENCE: Duration = Duration::from_secs(1);
const OFFLINE_HINT: &str = "to run without the protection of a lease and commit later, run it again with --offline";
/// How long a run that is given up before it began tries to take its start back.
const TAKE_BACK: Duration = Duration::from_secs(10);
/// Leases handed to the programs of a method.
const LEASE_VAR: &str = "PEAT_LEASE";
/// Output id handed to the programs of a method.
const OUTPUT_VAR: &str = "PEAT_OUTPUT_ID";

/// What to run.
#[derive(Clone, Debug, Default)]
pub struct RunRequest {
    /// Definition: name, id or beginning of an id.
    pub model: String,
    /// The method.
    pub method: String,
    /// Inputs, as [`input::parse`](crate::input::parse) gives them.
    pub inputs: Map<String, Value>,
    /// `--tag`.
    pub tags: BTreeMap<String, String>,
    /// `--timeout`.
    pub timeout: Option<Duration>,
    /// `--lock-timeout`; else `PEAT_LOCK_TIMEOUT_MS`, else a minute.
    pub lock_timeout: Option<Duration>,
    /// `--offline`: without a lease, committed later if it must be.
    pub offline: bool,
    /// How long the end is tried to be committed before it is left pending; a minute, or a second with `offline`.
    pub patience: Option<Duration>,
}

/// Hears what a run does while it does it. Must not block.
pub trait Observer: Send + Sync {
    /// The method begins: id of the output.
    fn started(&self, output: &str) {
        let _ = output;
    }

    /// A line of output.
    fn line(&self, stream: Stream, line: &str);
}

/// An observer that keeps it to itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet;

impl Observer for Quiet {
    fn line(&self, _: Stream, _: &str) {}
}

/// A run that took place.
#[derive(Debug)]
pub struct Ran {
    /// What it came to.
    pub report: RunReport,
    /// Why the command is not a success: the method failed (`method_execution_failed`), was cancelled (`cancelled`, or `interrupted` by a signal, kind
    /// `Cancelled`), or its results are not in the ledger (`commit_pending`, `outcome_unknown`, `lease_lost`).
    pub error: Option<Error>,
    /// Of a run that was asked for without the store: that its results wait for it, and what commits them. No failure.
    pub pending: Option<Error>,
}

/// Everything known before the method begins.
struct Prepared {
    definition: Definition,
    of: SharedType,
    method: MethodSpec,
    arguments: Resolved,
    unit: Unit,
    output: Output,
    who: String,
}

impl Prepared {
    /// What a trace may tell of it: names, never what it is given.
    fn describe(&self, span: &Span, namespace: &Namespace) {
        span.record("peat.model.name", self.definition.name.as_str());
        span.record("peat.model.type", self.definition.type_name.as_str());
        span.record("peat.method.name", self.method.name.as_str());
        span.record("peat.output.id", self.output.id.as_str());
        span.record("peat.namespace", namespace.as_str());
    }
}

impl Repo {
    /// Runs one method once. Errors mean that the method did not begin; whatever happened after that is in [`Ran`].
    ///
    /// # Errors
    /// `model_not_found`, `unknown_model_type`, `unknown_method`, `validation_failed` for the request; `offline` when the
    /// store cannot be asked; `lock_timeout` (kind `Contended`) naming the holder; `cancelled`.
    pub async fn run(&self, request: &RunRequest, cancel: &Cancel, observer: &dyn Observer) -> Result<Ran> {
        let span = operation!(
            "run",
            peat.model.name = Empty,
            peat.model.type = Empty,
            peat.method.name = Empty,
            peat.namespace = Empty,
            peat.output.id = Empty,
            peat.run.status = Empty,
            peat.seq = Empty,
            process.exit.code = Empty,
        );
        let ran = in_span(span.clone(), Box::pin(self.run_once(request, cancel, observer))).await?;
        span.record("peat.run.status", ran.report.status.as_str());
        span.record("peat.seq", ran.report.seq.map(|seq| number(seq.0)));
        if let Some(error) = &ran.error {
            failed(&span, error);
        }
        Ok(ran)
    }

    async fn run_once(&self, request: &RunRequest, cancel: &Cancel, observer: &dyn Observer) -> Result<Ran> {
        let mut prepared = self.prepare(request)?;
        let patience = self.lock_timeout(request)?;
        let (clone, place) = self.opened().await?;
        prepared.describe(&Span::current(), &place.namespace);
        let capability = self.capability(clone)?;
        if capability.is_some() {
            prepared.output.provenance.triggered_by = "model".to_owned();
            if let Some(parent) = self.host().env.var(OUTPUT_VAR) {
                prepared.output.provenance.rest.insert("parentOutputId".to_owned(), parent.into());
            }
        }
        let leased = prepared.method.kind.mutates() && !request.offline;
        let local = LocalRuns::new(&place.dir).enter(&self.host().env, &prepared.definition, &prepared.output)?;
        let run = tokio::select! {
            biased;
            run = self.begin(clone, &prepared, patience, leased, capability) => Ok(run?),
            reason = cancel.cancelled() => Err(reason),
            reason = local.cancelled(&self.host().env) => Err(reason),
        };
        let run = match run {
            Ok(run) => run,
            Err(reason) => {
                self.take_back(clone).await;
                return Err(given_up(&prepared, &reason));
            }
        };
        observer.started(&prepared.output.id);
        let began = self.host().env.monotonic();
        let log = log::RunLog::new(&self.host().env);
        let heart = beats::Heart::start(self.host().beats, run.as_ref());
        let outcome = self.execute(&prepared, request, cancel, observer, run.as_deref(), &heart, &log, &local).await;
        let took = self.host().env.monotonic().saturating_sub(began);
        // A signal has a code of its own.
        let code = if cancel.reason() == Some(Reason::Interrupt) { "interrupted" } else { "cancelled" };
        finish(&mut prepared.output, &outcome, code, self.host().env.now(), took);
        let mut change = change::end(self.host(), &prepared, &outcome, request, log.into_bytes());
        if let Some(patience) = request.patience.or(request.offline.then_some(OFFLINE_PATIENCE)) {
            change.patience = patience;
        }
        let unleased = request.offline && prepared.method.kind.mutates();
        let ended = match &run {
            Some(run) => {
                let ended = heart.beside(run, run.end(change)).await;
                if ended.as_ref().is_err_and(|error| error.has_code(NOT_JOURNALLED)) {
                    // Nobody will end it any more; others should not have to wait for it to be found dead.
                    run.give_up().await;
                }
                ended
            }
            None => clone.commit(change).await,
        };
        heart.stop().await;
        drop(local);
        Ok(report(prepared, &outcome, code, ended, request.offline, unleased))
    }

    /// After a begin that was given up half-way: a start that is in the log is released, one that is not is kept out of
    /// it, so that nobody has to wait for this run to be found dead. What cannot be done now the next command does.
    async fn take_back(&self, clone: &LocalClone) {
        tokio::select! {
            _ = clone.settle() => {}
            () = self.host().env.sleep(TAKE_BACK) => {}
        }
    }

    /// How long to wait for somebody else's lease.
    fn lock_timeout(&self, request: &RunRequest) -> Result<Duration> {
        let Some(text) = self.host().env.var("PEAT_LOCK_TIMEOUT_MS") else {
            return Ok(request.lock_timeout.unwrap_or(WAIT));
        };
        let ms = text.parse().map_err(|_| {
            Error::invalid(format!("PEAT_LOCK_TIMEOUT_MS is '{text}', which is no number"))
                .with_hint("write milliseconds, such as 60000, or unset it and say --lock-timeout")
        })?;
        Ok(request.lock_timeout.unwrap_or(Duration::from_millis(ms)))
    }

    fn prepare(&self, request: &RunRequest) -> Result<Prepared> {
        let host = self.host();
        let definition = self.definition(&request.model)?;
        self.library().check_unique(&definition)?;
        let of = host.types.get(&definition.type_name)?.clone();
        let method = types::method(&*of, &request.method)?.clone();
        let arguments = arguments::resolve(&definition, of.spec(), &method, request.inputs.clone())?;
        let who = host.who();
        let output = Output {
            id: host.uuid(),
            definition_id: definition.id.clone(),
            method_name: method.name.clone(),
            status: RunStatus::Running,
            started_at: host.env.now(),
            completed_at: None,
            duration_ms: None,
            retry_count: 0,
            unleased: false,
            error: None,
            provenance: Provenance {
                definition_hash: definition.hash(),
                model_version: of.spec().version.clone(),
                triggered_by: "manual".to_owned(),
                initiated_by: Some(who.clone()),
                rest: Map::new(),
            },
            artifacts: None,
            log_file: None,
            rest: Map::new(),
        };
        let unit = definition.unit()?;
        Ok(Prepared { definition, of, method, arguments, unit, output, who })
    }

    /// The leases a parent process handed down, when they are of this ledger.
    pub(crate) fn capability(&self, clone: &LocalClone) -> Result<Option<Capability>> {
        let Some(text) = self.host().env.var(LEASE_VAR) else { return Ok(None) };
        let Some((ledger, grants)) = text.split_once(';') else { return Ok(None) };
        if ledger == clone.info().ledger.to_string() { grants.parse().map(Some) } else { Ok(None) }
    }

    async fn begin(
        &self,
        clone: &LocalClone,
        prepared: &Prepared,
        wait: Duration,
        leased: bool,
        capability: Option<Capability>,
    ) -> Result<Option<Arc<peat_clone::Run>>> {
        if !prepared.method.kind.mutates() {
            return Ok(None);
        }
        if leased {
            let scope = Scope::Units(vec![prepared.unit.clone()]);
            clone.pull(&scope).await.map_err(|e| not_begun(e, prepared))?;
        }
        let mut start = change::start(prepared);
        start.capability = capability;
        let new = NewRun { start, lease: if leased { LeaseMode::Leased } else { LeaseMode::Unleased }, wait };
        let run = clone.begin(new).await.map_err(|e| not_begun(e, prepared))?;
        Ok(Some(Arc::new(run)))
    }

    /// The method, with everything that may end it and everything that must go on beside it.
    #[allow(clippy::too_many_arguments)] // one call site; a struct would only give the list a second name
    async fn execute(
        &self,
        prepared: &Prepared,
        request: &RunRequest,
        cancel: &Cancel,
        observer: &dyn Observer,
        run: Option<&peat_clone::Run>,
        heart: &beats::Heart,
        log: &log::RunLog,
        local: &local::Entered,
    ) -> Outcome {
        let host = self.host();
        let inner = Cancel::default();
        let variables = self.variables(prepared, run);
        let lines = |stream: Stream, line: &str| {
            log.add(stream, line);
            observer.line(stream, line);
        };
        let call = Call {
            host,
            definition: &prepared.definition,
            method: &prepared.method,
            arguments: &prepared.arguments.method,
            variables: &variables,
            cancel: &inner,
            cancel_file: Some(local.cancel_file()),
            scratch: &local.scratch(),
            lines: &lines,
        };
        let watch = watch(host, request.timeout, cancel, &inner, run, heart.inline());
        let asked = async { inner.cancel(local.cancelled(&host.env).await) };
        let watch = async { futures::join!(watch, asked).0 };
        let mut watch = pin!(watch);
        tokio::select! {
            outcome = prepared.of.execute(&call) => outcome,
            never = &mut watch => match never {},
        }
    }

    fn variables(&self, prepared: &Prepared, run: Option<&peat_clone::Run>) -> BTreeMap<String, String> {
        let mut variables = BTreeMap::new();
        variables.insert("PEAT_REPO_DIR".to_owned(), self.root().to_string_lossy().into_owned());
        variables.insert(OUTPUT_VAR.to_owned(), prepared.output.id.clone());
        if let Some(capability) = run.and_then(peat_clone::Run::capability)
            && let Some((clone, _)) = self.opened_now()
        {
            variables.insert(LEASE_VAR.to_owned(), format!("{};{capability}", clone.info().ledger));
        }
        variables
    }
}

enum Never {}

/// Passes on every reason to end the run; never resolves.
async fn watch(
    host: &crate::Host,
    timeout: Option<Duration>,
    outer: &Cancel,
    inner: &Cancel,
    run: Option<&peat_clone::Run>,
    beat: bool,
) -> Never {
    let forward = async { inner.cancel(outer.cancelled().await) };
    let over = async {
        if let Some(limit) = timeout {
            host.env.sleep(limit).await;
            inner.cancel(Reason::Timeout(limit));
        }
    };
    let lost = async {
        if let Some(run) = run {
            let why = run.lost().await;
            inner.cancel(Reason::LeaseLost(format!("the lease was lost: {why}")));
        }
    };
    let silent = async {
        if let Some(run) = run {
            run.silent().await;
            inner.cancel(Reason::Silence(
                "no heartbeat reached the store for so long that somebody else may take over".to_owned(),
            ));
        }
    };
    let beating = async {
        if let Some(run) = run.filter(|_| beat) {
            run.beat().await;
        }
    };
    futures::join!(forward, over, lost, silent, beating);
    std::future::pending().await
}

fn given_up(prepared: &Prepared, reason: &Reason) -> Error {
    let name = &prepared.definition.name;
    Error::new(Kind::Cancelled, format!("the run of '{name}' was given up before it began: {}", reason.text()))
}

fn not_begun(error: Error, prepared: &Prepared) -> Error {
    let name = &prepared.definition.name;
    let nested = prepared.output.provenance.triggered_by == "model";
    match error.kind() {
        Kind::Conflict if nested && error.code() == "lease_lost" => error
            .context(format!("'{name}' did not run, because the run that started this process is over"))
            .with_hint(format!(
                "a process that outlives the method it came from takes leases of its own once {LEASE_VAR} is unset"
            )),
        // The cause says that waiting is not what a process under a lease does.
        Kind::Contended if nested => {
            error.context(format!("'{name}' did not run, because another run of it is in progress"))
        }
        Kind::Offline if error.code() == "store_missing" => {
            error.context(format!("'{name}' did not run, because the datastore is not there")).with_hint(OFFLINE_HINT)
        }
        Kind::Offline => error
            .context(format!("'{name}' did not run, because the datastore cannot be reached"))
            .with_code("offline")
            .with_hint(OFFLINE_HINT),
        Kind::Contended if error.code() != "lock_timeout" => error
            .context(format!("'{name}' did not run, because others were faster"))
            .with_hint(format!("run it again: 'peat model method run {name} {}'", prepared.method.name)),
        Kind::Contended => error
            .context(format!("'{name}' did not run, because another run of it is in progress"))
            .with_hint("'peat datastore lock status' shows who holds it; a longer --lock-timeout waits longer"),
        _ => error.context(format!("'{name}' did not run")),
    }
}

fn finish(output: &mut Output, outcome: &Outcome, cancelled: &str, now: peat_types::Timestamp, took: Duration) {
    let (status, error) = match &outcome.end {
        End::Succeeded => (RunStatus::Succeeded, None),
        End::Failed(why) => (RunStatus::Failed, Some((why, "method_execution_failed"))),
        End::Cancelled(why) => (RunStatus::Cancelled, Some((why, cancelled))),
    };
    output.status = status;
    output.error = error.map(|(message, code)| crate::RunError {
        message: message.clone(),
        code: Some(code.to_owned()),
        stack: None,
    });
    output.completed_at = Some(now);
    output.duration_ms = Some(u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
}

fn report(
    prepared: Prepared,
    outcome: &Outcome,
    cancelled: &'static str,
    ended: Result<Committed>,
    offline: bool,
    unleased: bool,
) -> Ran {
    let Prepared { definition, arguments, output, who, .. } = prepared;
    let (name, method) = (definition.name.clone(), output.method_name.clone());
    let error = match &outcome.end {
        End::Succeeded => None,
        End::Failed(why) => Some(
            Error::new(Kind::Invalid, format!("method '{method}' of model '{name}' failed: {why}"))
                .with_code("method_execution_failed")
                .with_hint(format!("'peat model output logs {name}' shows what it printed")),
        ),
        End::Cancelled(why) => Some(
            Error::new(Kind::Cancelled, format!("method '{method}' of model '{name}': {why}")).with_code(cancelled),
        ),
    };
    let mut report = RunReport {
        model_id: definition.id,
        model_name: definition.name,
        model_type: definition.type_name,
        method_name: output.method_name,
        status: output.status,
        duration: output.duration_ms,
        output_id: output.id,
        log_file: None,
        data_artifacts: Vec::new(),
        global_arguments: arguments.global,
        method_arguments: arguments.method,
        error: error.as_ref().map(ToString::to_string),
        code: error.as_ref().map(|e| e.code().to_owned()),
        unleased,
        seq: None,
        change: None,
        initiated_by: who,
        warnings: Vec::new(),
    };
    match ended {
        Ok(committed) => {
            change::fill(&mut report, outcome, &committed);
            Ran { report, error, pending: None }
        }
        Err(failed) => {
            change::fill_pending(&mut report, outcome);
            let failed = change::explain(
                failed,
                &name,
                &method,
                report.duration.map(Duration::from_millis).map(duration::human),
            );
            // Without the store is what was asked for; that it is not there is then no failure of the run.
            let later = matches!(failed.code(), "commit_pending" | "outcome_unknown");
            if offline && later && failed.kind() == Kind::Offline {
                return Ran { report, error, pending: Some(failed) };
            }
            report.error = Some(failed.chain().join(": "));
            report.code = Some(failed.code().to_owned());
            Ran { report, error: Some(failed), pending: None }
        }
    }
}
