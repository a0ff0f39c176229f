//! A folder of its own for each test, an empty environment, and the binary.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::typed::all_can_be_typed;

pub(crate) struct Sandbox {
    dir: tempfile::TempDir,
    vars: Vec<(String, String)>,
}

/// What a command left behind.
#[derive(Debug)]
pub(crate) struct Ran {
    pub status: i32,
    pub out: String,
    pub err: String,
}

impl Sandbox {
    /// An empty folder that is no repo.
    pub fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("peat-cli-").tempdir().unwrap();
        std::fs::create_dir(dir.path().join("repo")).unwrap();
        Self { dir, vars: Vec::new() }
    }

    /// A folder with a fresh repo.
    pub fn repo_made() -> Self {
        let sandbox = Self::new();
        sandbox.peat("init").ok();
        sandbox
    }

    /// A fresh repo with a model `m` of type `command/shell` that runs `run`.
    pub fn with_model(run: &str) -> Self {
        let sandbox = Self::repo_made();
        sandbox.model("m", run);
        sandbox
    }

    /// Makes a model that runs `run`; gives its id.
    pub fn model(&self, name: &str, run: &str) -> String {
        let made = self.run(["model", "create", "command/shell", name, "--json"]).ok().json();
        let id = made["id"].as_str().unwrap().to_owned();
        let run = serde_json::to_string(run).unwrap();
        let arguments = format!("methods:\n  execute:\n    arguments:\n      run: {run}\n");
        self.write(
            &format!("repo/models/command/shell/{name}.yaml"),
            &format!("type: command/shell\nid: {id}\nname: {name}\nversion: 1\ntags: {{}}\nglobalArguments: {{}}\n{arguments}"),
        );
        id
    }

    /// The folder commands run in.
    pub fn repo(&self) -> PathBuf {
        self.path("repo")
    }

    pub fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(relative)
    }

    pub fn write(&self, relative: &str, text: &str) -> PathBuf {
        let path = self.path(relative);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    /// The binary with an environment that holds nothing of this machine but PATH.
    pub fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_peat"));
        command
            .args(args)
            .current_dir(self.repo())
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.path("home"))
            .env("PEAT_HOME", self.path("peat-home"))
            .env("USER", "ann")
            .envs(self.vars.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Ran {
        Ran::of(&self.command(args).output().unwrap())
    }

    /// Runs words split at spaces.
    pub fn peat(&self, words: &str) -> Ran {
        self.run(words.split_whitespace())
    }

    pub fn run_with_stdin<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>, input: &str) -> Ran {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().unwrap();
        // A command that fails before it reads closes the pipe; that is not what is tested.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        Ran::of(&child.wait_with_output().unwrap())
    }

    pub fn set(&mut self, name: &str, value: impl AsRef<OsStr>) {
        self.vars.push((name.to_owned(), value.as_ref().to_str().unwrap().to_owned()));
    }
}

impl Ran {
    /// What a process said. The commands it names can be typed as they stand there; those of help are prose.
    #[track_caller]
    pub fn of(output: &std::process::Output) -> Self {
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        all_can_be_typed(&err);
        if !["Usage:", "peat.help/", "# Commands"].iter().any(|help| out.contains(help)) {
            all_can_be_typed(&out);
        }
        Self { status: output.status.code().unwrap_or(-1), out, err }
    }

    #[track_caller]
    pub fn ok(self) -> Self {
        self.status(0)
    }

    #[track_caller]
    pub fn status(self, status: i32) -> Self {
        assert_eq!(self.status, status, "stdout: {}\nstderr: {}", self.out, self.err);
        self
    }

    /// The JSON document on stdout.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// The JSON error on stderr: its last line.
    #[track_caller]
    pub fn error(&self) -> Value {
        let line = self.err.lines().last().unwrap_or_default();
        serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}

/// Says on the real stderr, past the test harness, that something could not be tested here. `.ci/run` counts these lines.
pub(crate) fn skip(what: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what}");
}
