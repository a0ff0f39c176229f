//! The side of `peat`.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use peat_types::{Error, Kind, Result, number};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::sync::mpsc;
use tracing::Span;

use super::supervisor;
use super::wire::{CANCEL, Ended, Frame, Job};
use crate::Host;
use crate::cancel::Cancel;
use crate::types::Stream;

/// Runs a program to its end. `chunk` gets its output as it comes. Dropping the future ends the program: the supervisor
/// sees the pipe close.
pub(crate) async fn run(
    host: &Host,
    mut job: Job,
    cancel: &Cancel,
    chunk: &mut (dyn FnMut(Stream, &[u8]) + Send),
) -> Result<Ended> {
    job.supervisor =
        host.supervisor.iter().map(|word| word.to_str().map(str::to_owned)).collect::<Option<_>>().unwrap_or_default();
    // What the program calls joins the trace of its caller, unless it was told otherwise.
    for (name, value) in (host.trace)() {
        job.variables.entry(name.to_owned()).or_insert(value);
    }
    let (mut control, frames) = start(host)?;
    // A supervisor that is gone already shows below, as the end of its frames.
    let _ = job.write(&mut *control);
    let mut frames = listen(frames);
    let mut group = None;
    let mut asked = false;
    loop {
        tokio::select! {
            frame = frames.recv() => match frame {
                Some(Frame::Started(pid)) => group = Pid::from_raw(pid),
                Some(Frame::Stdout(bytes)) => chunk(Stream::Stdout, &bytes),
                Some(Frame::Stderr(bytes)) => chunk(Stream::Stderr, &bytes),
                Some(Frame::Ended(ended)) => {
                    if let Ended::Exited(code) = ended {
                        Span::current().record("process.exit.code", number(code));
                    }
                    return Ok(ended);
                }
                None => {
                    // Its supervisor was killed: nobody else is left to end the program.
                    if let Some(group) = group {
                        let _ = kill_process_group(group, Signal::KILL);
                    }
                    return Err(Error::new(Kind::Internal, "the supervisor of the command ended unexpectedly; the command was killed"));
                }
            },
            _ = cancel.cancelled(), if !asked => {
                asked = true;
                let _ = control.write_all(&[CANCEL]).and_then(|()| control.flush());
            }
        }
    }
}

type Pipe = (Box<dyn Write + Send>, Box<dyn Read + Send>);

fn start(host: &Host) -> Result<Pipe> {
    let failed =
        |e: io::Error| Error::new(Kind::Internal, "the supervisor of the command cannot be started").with_source(e);
    let Some((exe, args)) = host.supervisor.split_first() else {
        // No executable to start again: the same code on a thread. It does not survive this process.
        let (control_read, control) = io::pipe().map_err(failed)?;
        let (frames, mut out) = io::pipe().map_err(failed)?;
        let env = host.env.clone();
        std::thread::spawn(move || supervisor::serve(&env, Box::new(control_read), &mut out));
        return Ok((Box::new(control), Box::new(frames)));
    };
    // In a group of its own: Ctrl-C is for peat, which asks it to end the program.
    let mut child = Command::new(exe)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(failed)?;
    let pipes = child.stdin.take().zip(child.stdout.take());
    std::thread::spawn(move || child.wait());
    let (control, frames) = pipes.ok_or_else(|| Error::internal("a pipe to the supervisor is missing"))?;
    Ok((Box::new(control), Box::new(frames)))
}

fn listen(mut frames: Box<dyn Read + Send>) -> mpsc::Receiver<Frame> {
    let (tx, rx) = mpsc::channel(16);
    std::thread::spawn(move || {
        while let Ok(Some(frame)) = Frame::read(&mut *frames) {
            if tx.blocking_send(frame).is_err() {
                return;
            }
        }
    });
    rx
}
