//! `command/shell`: one command line, given to the system's shell.

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Map, Value, json};

use super::capture::{self, Captured, KEEP};
use super::{
    Call, DataKind, DataSpec, End, MethodKind, MethodSpec, ModelType, Outcome, Produced, Stream, TypeSpec, Write,
};
use crate::cancel::Reason;
use crate::process::{self, Ended, Job};

/// The type.
pub(crate) struct Shell {
    spec: TypeSpec,
}

impl Shell {
    pub fn new() -> Self {
        Self { spec: spec() }
    }
}

fn spec() -> TypeSpec {
    let file = |name: &str, kind, description: &str, content_type: &str, schema| DataSpec {
        name: name.to_owned(),
        kind,
        description: description.to_owned(),
        schema,
        content_type: content_type.to_owned(),
        lifetime: "infinite".to_owned(),
        garbage_collection: json!(10),
        streaming: false,
    };
    TypeSpec {
        name: "command/shell".to_owned(),
        version: "2026.02.09.1".to_owned(),
        description: "Runs a command line in the system's shell".to_owned(),
        global_arguments: None,
        methods: vec![MethodSpec {
            name: "execute".to_owned(),
            description: "Runs the command and keeps its output".to_owned(),
            kind: MethodKind::Action,
            arguments: json!({
                "type": "object",
                "properties": {
                    "run": {"type": "string", "minLength": 1, "description": "command text given to 'sh -c'"},
                    "workingDir": {"type": "string", "description": "folder it starts in; the current folder when absent"},
                    "timeout": {"type": "integer", "exclusiveMinimum": 0, "description": "milliseconds after which it is ended"},
                    "env": {
                        "type": "object",
                        "additionalProperties": {"type": "string"},
                        "description": "variables added to its environment"
                    },
                    "ignoreExitCode": {"type": "boolean", "description": "whether an exit code other than 0 is a success"}
                },
                "required": ["run"],
                "additionalProperties": false
            }),
        }],
        data: vec![
            file(
                "result",
                DataKind::Resource,
                "Exit code and output of the command",
                "application/json",
                Some(json!({
                    "type": "object",
                    "properties": {
                        "exitCode": {"type": "integer"},
                        "executedAt": {"type": "string"},
                        "command": {"type": "string"},
                        "durationMs": {"type": "integer"},
                        "stdout": {"type": "string"},
                        "stderr": {"type": "string"}
                    },
                    "required": ["exitCode", "executedAt", "command"]
                })),
            ),
            file("log", DataKind::File, "Output of the command as it came", "text/plain", None),
        ],
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

struct Arguments<'a> {
    run: &'a str,
    cwd: std::path::PathBuf,
    timeout: Option<u64>,
    variables: std::collections::BTreeMap<String, String>,
    ignore: bool,
}

impl<'a> Arguments<'a> {
    fn of(call: &'a Call<'_>) -> Self {
        let get = |name: &str| call.arguments.get(name);
        let mut variables = call.variables.clone();
        for (name, value) in get("env").and_then(Value::as_object).into_iter().flatten() {
            variables.insert(name.clone(), value.as_str().unwrap_or_default().to_owned());
        }
        Self {
            run: get("run").and_then(Value::as_str).unwrap_or_default(),
            cwd: call.host.cwd.join(get("workingDir").and_then(Value::as_str).map_or(Path::new("."), Path::new)),
            timeout: get("timeout").and_then(Value::as_u64),
            variables,
            ignore: get("ignoreExitCode").and_then(Value::as_bool).unwrap_or(false),
        }
    }
}

#[async_trait]
impl ModelType for Shell {
    fn spec(&self) -> &TypeSpec {
        &self.spec
    }

    async fn execute(&self, call: &Call<'_>) -> Outcome {
        let arguments = Arguments::of(call);
        let cwd: std::path::PathBuf = arguments.cwd.components().collect();
        let job = Job {
            argv: vec!["sh".to_owned(), "-c".to_owned(), arguments.run.to_owned()],
            cwd: cwd.to_string_lossy().into_owned(),
            variables: arguments.variables.clone(),
            stdin: None,
            timeout_ms: arguments.timeout,
            grace_ms: millis(call.host.patience.grace),
            drain_ms: millis(call.host.patience.drain),
            cancel_file: call.cancel_file.as_ref().map(|path| path.to_string_lossy().into_owned()),
            supervisor: Vec::new(),
        };
        let (executed_at, began) = (call.host.env.now(), call.host.env.monotonic());
        let mut out = Captured::new(call.scratch.with_extension("stdout"), b"[stdout]\n");
        let mut err = Captured::new(call.scratch.with_extension("stderr"), b"");
        let ended = process::run(call.host, job, call.cancel, &mut |stream, bytes| {
            let captured = if stream == Stream::Stdout { &mut out } else { &mut err };
            captured.add(bytes, &mut |line| (call.lines)(stream, line));
        })
        .await;
        out.flush(&mut |line| (call.lines)(Stream::Stdout, line));
        err.flush(&mut |line| (call.lines)(Stream::Stderr, line));
        let duration = call.host.env.monotonic().saturating_sub(began);
        let (code, end, note) = judge(call, &arguments, ended, &err);
        let mut result = Map::new();
        result.insert("exitCode".to_owned(), code.into());
        result.insert("executedAt".to_owned(), executed_at.to_string().into());
        result.insert("command".to_owned(), arguments.run.into());
        result.insert("durationMs".to_owned(), millis(duration).into());
        result.insert("stdout".to_owned(), String::from_utf8_lossy(out.content()).into());
        let mut stderr = String::from_utf8_lossy(err.content()).into_owned();
        if let Some(note) = note {
            if !stderr.is_empty() {
                stderr.push('\n');
            }
            stderr.push_str(&note);
            (call.lines)(Stream::Stderr, &note);
        }
        result.insert("stderr".to_owned(), stderr.as_str().into());
        for (name, captured) in [("stdoutDropped", &out), ("stderrDropped", &err)] {
            if captured.beyond() > 0 {
                let line =
                    format!("{} bytes beyond the first {} MiB are in the log only", captured.beyond(), KEEP >> 20);
                (call.lines)(Stream::Stderr, &line);
                result.insert(name.to_owned(), captured.beyond().into());
            }
            if let Some((bytes, why)) = captured.lost() {
                (call.lines)(Stream::Stderr, &format!("{bytes} bytes of the output were not kept: {why}"));
            }
        }
        let write = |spec: &str, content: Produced| Write { spec: spec.to_owned(), name: spec.to_owned(), content };
        let result = Value::Object(result).to_string().into_bytes();
        let mut writes = vec![write("result", Produced::Bytes(result.into()))];
        match capture::log(&mut out, &mut err, &stderr) {
            Ok(log) => writes.push(write("log", log)),
            Err(error) => (call.lines)(Stream::Stderr, &format!("the output was not kept: {error}")),
        }
        Outcome { end, writes }
    }
}

/// Exit code, end of the call, and a line for stderr when the command did not say itself what went wrong.
fn judge(
    call: &Call<'_>,
    arguments: &Arguments<'_>,
    ended: peat_types::Result<Ended>,
    err: &Captured,
) -> (i64, End, Option<String>) {
    let last = String::from_utf8_lossy(err.content());
    let last = last.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let with_last = |text: String| if last.is_empty() { text } else { format!("{text}: {last}") };
    match ended {
        Ok(Ended::Exited(0)) => (0, End::Succeeded, None),
        Ok(Ended::Exited(code)) if arguments.ignore => (code.into(), End::Succeeded, None),
        Ok(Ended::Exited(code)) => {
            (code.into(), End::Failed(with_last(format!("the command exited with code {code}"))), None)
        }
        // What a shell reports for a child that a signal ended.
        Ok(Ended::Signalled(signal)) if arguments.ignore => (128 + i64::from(signal), End::Succeeded, None),
        Ok(Ended::Signalled(signal)) => {
            (128 + i64::from(signal), End::Failed(with_last(format!("the command was ended by signal {signal}"))), None)
        }
        Ok(Ended::NotStarted(why)) => {
            let text = format!("the command did not start: {why}");
            (-1, End::Failed(text.clone()), Some(text))
        }
        Ok(Ended::TimedOut) => {
            let text = format!(
                "the command was ended because it was not finished after {} ms",
                arguments.timeout.unwrap_or(0)
            );
            (-1, End::Failed(text.clone()), Some(text))
        }
        Ok(Ended::Cancelled(by_file)) => {
            let reason = call.cancel.reason().unwrap_or_else(|| Reason::Request(by_file.unwrap_or_default()));
            let text = format!("the command was ended: {}", reason.text());
            let end = match reason {
                Reason::Interrupt | Reason::Request(_) | Reason::Timeout(_) => End::Cancelled(reason.text()),
                Reason::LeaseLost(_) | Reason::Silence(_) => End::Failed(text.clone()),
            };
            (-1, end, Some(text))
        }
        Err(error) => {
            let text = error.chain().join(": ");
            (-1, End::Failed(text.clone()), Some(text))
        }
    }
}
