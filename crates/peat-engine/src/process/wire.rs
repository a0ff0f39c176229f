//! What `peat` and its supervisor say to each other.
//!
//! To the supervisor: the job as JSON after its length, then [`CANCEL`] or the end of the pipe. From it: frames of a kind,
//! a length and a body.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};

/// Asks the supervisor to end the program.
pub(super) const CANCEL: u8 = b'C';

/// Largest job: more than a system can pass to a program.
const JOB_MAX: u32 = 64 << 20;
/// Largest frame.
const FRAME_MAX: u32 = 1 << 20;

/// A program to run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Job {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Folder it starts in.
    pub cwd: String,
    /// Variables set in addition to the inherited ones.
    pub variables: BTreeMap<String, String>,
    /// What it reads from its standard input; nothing when absent.
    #[serde(default)]
    pub stdin: Option<String>,
    /// When to end it.
    pub timeout_ms: Option<u64>,
    /// How long it may take to end.
    pub grace_ms: u64,
    /// How long pipes held by others are read after its end.
    pub drain_ms: u64,
    /// A file whose existence ends it.
    pub cancel_file: Option<String>,
    /// Command line of the supervisor, for starting the program under a parent-death signal.
    #[serde(default)]
    pub supervisor: Vec<String>,
}

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Ended {
    /// By itself, with a code.
    Exited(i32),
    /// By a signal that was not ours.
    Signalled(i32),
    /// Never began: why.
    NotStarted(String),
    /// It was over time.
    TimedOut,
    /// It was asked to; with the content of the cancel file when that was the reason.
    Cancelled(Option<String>),
}

/// A message from the supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// The program runs; id of its process group.
    Started(i32),
    /// Bytes of standard output.
    Stdout(Vec<u8>),
    /// Bytes of standard error.
    Stderr(Vec<u8>),
    /// The last one.
    Ended(Ended),
}

impl Frame {
    pub fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        let (kind, body): (u8, &[u8]) = match self {
            Self::Started(pid) => return frame(to, b'S', &pid.to_le_bytes()),
            Self::Stdout(bytes) => (b'O', bytes),
            Self::Stderr(bytes) => (b'E', bytes),
            Self::Ended(ended) => return frame(to, b'X', &serde_json::to_vec(ended)?),
        };
        frame(to, kind, body)
    }

    /// The next frame; `None` at the end of the pipe.
    pub fn read(from: &mut dyn Read) -> io::Result<Option<Self>> {
        let mut kind = [0];
        if from.read(&mut kind)? == 0 {
            return Ok(None);
        }
        let body = sized(from, FRAME_MAX)?;
        Ok(Some(match kind[0] {
            b'S' => Self::Started(i32::from_le_bytes(body.try_into().map_err(|_| bad("a pid of a wrong size"))?)),
            b'O' => Self::Stdout(body),
            b'E' => Self::Stderr(body),
            b'X' => Self::Ended(serde_json::from_slice(&body)?),
            _ => return Err(bad("an unknown frame")),
        }))
    }
}

impl Job {
    pub fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        let body = serde_json::to_vec(self)?;
        let len =
            u32::try_from(body.len()).ok().filter(|len| *len <= JOB_MAX).ok_or_else(|| bad("the job is too big"))?;
        to.write_all(&len.to_le_bytes())?;
        to.write_all(&body)?;
        to.flush()
    }

    pub fn read(from: &mut dyn Read) -> io::Result<Self> {
        Ok(serde_json::from_slice(&sized(from, JOB_MAX)?)?)
    }
}

fn frame(to: &mut dyn Write, kind: u8, body: &[u8]) -> io::Result<()> {
    let len = u32::try_from(body.len()).map_err(|_| bad("the frame is too big"))?;
    let mut out = Vec::with_capacity(body.len() + 5);
    out.push(kind);
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(body);
    to.write_all(&out)?;
    to.flush()
}

fn sized(from: &mut dyn Read, max: u32) -> io::Result<Vec<u8>> {
    let mut len = [0; 4];
    from.read_exact(&mut len)?;
    let len = u32::from_le_bytes(len);
    if len > max {
        return Err(bad("a length out of bounds"));
    }
    let mut body = Vec::new();
    from.take(u64::from(len)).read_to_end(&mut body)?;
    if body.len() as u64 == u64::from(len) { Ok(body) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the supervisor and peat do not understand each other: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_and_jobs_survive_the_pipe() {
        let frames = [
            Frame::Started(77),
            Frame::Stdout(vec![0, 255]),
            Frame::Stderr(vec![]),
            Frame::Ended(Ended::Cancelled(Some("x".into()))),
        ];
        let mut bytes = Vec::new();
        for frame in &frames {
            frame.write(&mut bytes).unwrap();
        }
        let mut from = bytes.as_slice();
        for frame in &frames {
            assert_eq!(Frame::read(&mut from).unwrap().as_ref(), Some(frame));
        }
        assert_eq!(Frame::read(&mut from).unwrap(), None);
        assert!(Frame::read(&mut &bytes[..3]).is_err());
        assert!(Frame::read(&mut &[b'O', 255, 255, 255, 255][..]).is_err());
        let job = Job { argv: vec!["a".into()], ..Job::default() };
        let mut bytes = Vec::new();
        job.write(&mut bytes).unwrap();
        assert_eq!(Job::read(&mut bytes.as_slice()).unwrap().argv, job.argv);
    }
}
