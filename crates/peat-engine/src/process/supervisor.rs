//! The supervisor's side.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use peat_types::Env;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

use super::wire::{CANCEL, Ended, Frame, Job};

/// How often the cancel file and a dying process group are looked at.
const TICK: Duration = Duration::from_millis(50);
/// Bytes of output passed on at once.
const CHUNK: usize = 32 << 10;
/// How long a program may take to end when the `peat` that started it is gone.
const ALONE_GRACE: Duration = Duration::from_millis(500);
/// First argument of the second stage.
const EXEC: &str = "exec";

/// Body of the hidden subcommand that supervises the program of a method. `args` are the words after the subcommand; the
/// result is the exit status of the process.
///
/// Without arguments it reads a job from standard input and reports on standard output. With `exec …` it becomes the
/// program, after asking the system to kill it should the supervisor die.
pub fn supervise(env: &Env, args: &[OsString]) -> u8 {
    if args.first().is_some_and(|arg| arg == EXEC) {
        return become_program(&args[1..]);
    }
    serve(env, Box::new(io::stdin()), &mut io::stdout())
}

enum Event {
    Control(Option<u8>),
    Chunk(Frame),
    Closed,
    Exited(io::Result<ExitStatus>),
}

enum Why {
    TimedOut,
    Cancelled(Option<String>),
    /// Nobody is left to report to.
    Alone,
}

/// Runs one job.
pub(super) fn serve(env: &Env, mut control: Box<dyn Read + Send>, out: &mut dyn Write) -> u8 {
    let Ok(job) = Job::read(&mut *control) else { return 1 };
    let token = u128::from_le_bytes(env.random_bytes());
    let token = format!("{token:032x}");
    let mut child = match command(&job, &token).spawn() {
        Ok(child) => child,
        Err(error) => {
            let _ = Frame::Ended(Ended::NotStarted(not_started(&job, &error))).write(out);
            return 1;
        }
    };
    let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else { return 1 };
    let alive = Frame::Started(group.as_raw_pid()).write(out).is_ok();
    if let Some((mut stdin, text)) = child.stdin.take().zip(job.stdin.clone()) {
        // A program that does not read it all is none of our business.
        std::thread::spawn(move || stdin.write_all(text.as_bytes()));
    }
    let events = listen(control, &mut child);
    wait_for(child, &events.1);
    let mut watch = Watch {
        env,
        job: &job,
        group,
        out,
        token,
        began: env.monotonic(),
        why: None,
        kill_at: None,
        not_started: None,
    };
    if !alive {
        watch.end(Why::Alone);
    }
    watch.follow(&events.0)
}

fn command(job: &Job, token: &str) -> Command {
    let mut words = job.argv.iter();
    let mut command = match job.supervisor.split_first() {
        Some((exe, before)) => {
            let mut command = Command::new(exe);
            command.args(before).arg(EXEC).arg(std::process::id().to_string()).arg(token).args(words);
            command
        }
        None => {
            let mut command = Command::new(words.next().map_or("", String::as_str));
            command.args(words);
            command
        }
    };
    // A group of its own, so that all of it can be ended and the terminal's signals do not reach it.
    command
        .current_dir(&job.cwd)
        .envs(&job.variables)
        .stdin(if job.stdin.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    command
}

fn not_started(job: &Job, error: &io::Error) -> String {
    if !Path::new(&job.cwd).is_dir() {
        return format!("its working folder {} is not there", job.cwd);
    }
    match error.raw_os_error() {
        // Shown by the system as "Argument list too long", which nobody connects with a long script.
        Some(7) => "the command and its environment are too long for this system".to_owned(),
        _ => format!("cannot start {}: {error}", job.argv.first().map_or("", String::as_str)),
    }
}

/// The second stage: dies with the supervisor, and is the program.
fn become_program(args: &[OsString]) -> u8 {
    let [parent, token, program, rest @ ..] = args else { return 2 };
    #[cfg(target_os = "linux")]
    {
        // Best effort: the pipe is what is relied on, this covers both processes being killed at once.
        let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
        let now = rustix::process::getppid().map(Pid::as_raw_pid);
        if now.map(|pid| pid.to_string().into()) != Some(parent.clone()) {
            return 1;
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = parent;
    let error = Command::new(program).args(rest).exec();
    // The supervisor recognises its token; the program cannot know it, as it never began.
    // In one piece, for it is recognised by its beginning and taken whole.
    let why = format!("{}cannot start {}: {error}", token.to_string_lossy(), program.to_string_lossy());
    let _ = io::stderr().write_all(why.as_bytes());
    127
}

fn listen(control: Box<dyn Read + Send>, child: &mut Child) -> (Receiver<Event>, SyncSender<Event>) {
    // Bounded: a program that writes faster than peat reads has to wait.
    let (tx, rx) = sync_channel(16);
    let to = tx.clone();
    std::thread::spawn(move || {
        let mut control = control;
        let mut byte = [0];
        loop {
            let got = match control.read(&mut byte) {
                Ok(0) => None,
                Ok(_) => Some(byte[0]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => None,
            };
            if to.send(Event::Control(got)).is_err() || got.is_none() {
                return;
            }
        }
    });
    if let Some(stream) = child.stdout.take() {
        pump(Box::new(stream), tx.clone(), Frame::Stdout);
    }
    if let Some(stream) = child.stderr.take() {
        pump(Box::new(stream), tx.clone(), Frame::Stderr);
    }
    (rx, tx)
}

fn pump(mut from: Box<dyn Read + Send>, to: SyncSender<Event>, frame: fn(Vec<u8>) -> Frame) {
    std::thread::spawn(move || {
        let mut buffer = vec![0; CHUNK];
        loop {
            match from.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => {
                    if to.send(Event::Chunk(frame(buffer[..n].to_vec()))).is_err() {
                        return;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        let _ = to.send(Event::Closed);
    });
}

fn wait_for(mut child: Child, to: &SyncSender<Event>) {
    let to = to.clone();
    std::thread::spawn(move || {
        let _ = to.send(Event::Exited(child.wait()));
    });
}

struct Watch<'a> {
    env: &'a Env,
    job: &'a Job,
    group: Pid,
    out: &'a mut dyn Write,
    token: String,
    began: Duration,
    why: Option<Why>,
    kill_at: Option<Duration>,
    not_started: Option<String>,
}

impl Watch<'_> {
    fn follow(&mut self, events: &Receiver<Event>) -> u8 {
        let mut exited: Option<ExitStatus> = None;
        let mut open = 2;
        let mut drain_until = None;
        loop {
            let now = self.env.monotonic();
            if self.why.is_none() && exited.is_none() {
                self.look(now);
            }
            if let Some(status) = exited {
                let group_over = self.why.is_none() || self.group_over(now);
                let until = *drain_until.get_or_insert(now + Duration::from_millis(self.job.drain_ms));
                if group_over && (open == 0 || now >= until) {
                    return self.report(status);
                }
            } else if self.kill_at.is_some_and(|at| now >= at) {
                let _ = kill_process_group(self.group, Signal::KILL);
            }
            match events.recv_timeout(TICK) {
                Ok(Event::Chunk(frame)) => self.pass(&frame),
                Ok(Event::Closed) => open -= 1,
                Ok(Event::Exited(Ok(status))) => exited = Some(status),
                Ok(Event::Exited(Err(_))) => return 1,
                Ok(Event::Control(Some(CANCEL))) => self.end(Why::Cancelled(None)),
                Ok(Event::Control(Some(_))) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Event::Control(None)) => self.end(Why::Alone),
                Err(RecvTimeoutError::Disconnected) => return 1,
            }
        }
    }

    /// Time-out and cancel file.
    fn look(&mut self, now: Duration) {
        if self.job.timeout_ms.is_some_and(|ms| now.saturating_sub(self.began) >= Duration::from_millis(ms)) {
            self.end(Why::TimedOut);
        } else if let Some(file) = &self.job.cancel_file
            && Path::new(file).exists()
        {
            let reason = std::fs::read_to_string(file).unwrap_or_default();
            self.end(Why::Cancelled(Some(reason.trim().to_owned())));
        }
    }

    fn end(&mut self, why: Why) {
        let alone = matches!(why, Why::Alone);
        if self.why.is_some() && !alone {
            return;
        }
        self.why = Some(why);
        let grace = Duration::from_millis(self.job.grace_ms);
        // Once nobody waits for the end the lease is free to be taken, so the program must not linger.
        let at = self.env.monotonic() + if alone { grace.min(ALONE_GRACE) } else { grace };
        self.kill_at = Some(self.kill_at.map_or(at, |before| before.min(at)));
        let _ = kill_process_group(self.group, Signal::TERM);
        // A stopped program would not notice.
        let _ = kill_process_group(self.group, Signal::CONT);
    }

    /// Whether nobody of an ended program's group is left; kills the rest when the grace is over.
    fn group_over(&self, now: Duration) -> bool {
        if test_kill_process_group(self.group).is_err() {
            return true;
        }
        if self.kill_at.is_none_or(|at| now >= at) {
            let _ = kill_process_group(self.group, Signal::KILL);
            return true;
        }
        false
    }

    fn pass(&mut self, frame: &Frame) {
        if let Frame::Stderr(bytes) = frame
            && bytes.starts_with(self.token.as_bytes())
        {
            self.not_started = Some(String::from_utf8_lossy(&bytes[self.token.len()..]).into_owned());
            return;
        }
        if frame.write(self.out).is_err() {
            self.end(Why::Alone);
        }
    }

    fn report(&mut self, status: ExitStatus) -> u8 {
        let ended = match (&self.why, self.not_started.take()) {
            (_, Some(why)) => Ended::NotStarted(why),
            (Some(Why::TimedOut), _) => Ended::TimedOut,
            (Some(Why::Cancelled(reason)), _) => Ended::Cancelled(reason.clone()),
            (Some(Why::Alone), _) => return 1,
            (None, _) => match (status.code(), status.signal()) {
                (Some(code), _) => Ended::Exited(code),
                (None, Some(signal)) => Ended::Signalled(signal),
                (None, None) => Ended::Exited(-1),
            },
        };
        u8::from(Frame::Ended(ended).write(self.out).is_err())
    }
}
