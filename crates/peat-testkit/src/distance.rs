//! Distance to a real server: everything passes unchanged, each HTTP request waits before it goes on, and requests and bytes
//! are counted, whoever sends them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use peat_types::Env;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use crate::background::{Background, LOCAL};

/// What went by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Requests, by method.
    pub requests: BTreeMap<String, u64>,
    /// Connections that were opened.
    pub connections: u64,
    /// Bytes to the server, heads included.
    pub sent: u64,
    /// Bytes from the server, heads included.
    pub received: u64,
}

impl Traffic {
    /// Requests of all methods.
    pub fn all(&self) -> u64 {
        self.requests.values().sum()
    }
}

struct Shared {
    env: Env,
    delay_ms: AtomicU64,
    seen: Mutex<Traffic>,
}

impl Shared {
    fn note(&self, what: impl FnOnce(&mut Traffic)) {
        what(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// A way to a server on this machine. It ends when dropped.
pub struct Distance {
    background: Background,
    shared: Arc<Shared>,
}

impl Distance {
    /// Leads every connection to `server`, over plain HTTP/1.1.
    ///
    /// # Errors
    /// When there is no port or thread to be had.
    pub fn start(server: SocketAddr) -> std::io::Result<Self> {
        let (env, delay_ms, seen) = (Env::system([]), AtomicU64::new(0), Mutex::default());
        let shared = Arc::new(Shared { env, delay_ms, seen });
        let of_thread = shared.clone();
        let background = Background::start("distance", LOCAL, move |listener| serve(listener, server, of_thread))?;
        Ok(Self { background, shared })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.background.address()
    }

    /// How long each request waits from now on, in whole milliseconds.
    pub fn delay(&self, delay: Duration) {
        self.shared.delay_ms.store(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// What went by since this was asked last.
    pub fn take(&self) -> Traffic {
        let mut seen = Traffic::default();
        self.shared.note(|traffic| seen = std::mem::take(traffic));
        seen
    }
}

async fn serve(listener: TcpListener, server: SocketAddr, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        let shared = shared.clone();
        tokio::spawn(async move {
            shared.note(|seen| seen.connections += 1);
            // An error here is a client or server that went away; the other one hears of it by its end of the connection.
            let Ok(server) = TcpStream::connect(server).await else { return };
            if client.set_nodelay(true).and_then(|()| server.set_nodelay(true)).is_err() {
                return;
            }
            let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
            let back = tokio::spawn(responses(from_server, to_client, shared.clone()));
            let _ = requests(from_client, to_server, &shared).await;
            let _ = back.await;
        });
    }
}

async fn responses(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, shared: Arc<Shared>) -> std::io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let len = from.read(&mut buffer).await?;
        let Some(bytes) = buffer.get(..len).filter(|bytes| !bytes.is_empty()) else { return to.shutdown().await };
        shared.note(|seen| seen.received += len as u64);
        to.write_all(bytes).await?;
    }
}

async fn requests(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, shared: &Shared) -> std::io::Result<()> {
    let (mut framing, mut buffer) = (Framing::default(), vec![0; 64 << 10]);
    loop {
        let len = from.read(&mut buffer).await?;
        let Some(mut bytes) = buffer.get(..len).filter(|bytes| !bytes.is_empty()) else { return to.shutdown().await };
        shared.note(|seen| seen.sent += len as u64);
        while !bytes.is_empty() {
            let (taken, begun) = framing.next(bytes);
            let (now, rest) = bytes.split_at(taken);
            // A server does nothing before the end of a head.
            if let Some(method) = begun {
                shared.note(|seen| *seen.requests.entry(method).or_default() += 1);
                shared.env.sleep(Duration::from_millis(shared.delay_ms.load(Ordering::Relaxed))).await;
            }
            to.write_all(now).await?;
            bytes = rest;
        }
    }
}

/// Where in the requests of a connection its bytes are.
#[derive(Debug)]
enum Framing {
    /// In a head, of which this much was seen.
    Head(Vec<u8>),
    /// In a body, of which this much is to come.
    Body(u64),
    /// In the line with the size of a chunk, of which this much was seen.
    Size(Vec<u8>),
    /// In a chunk, of which this much is to come, its end of line included.
    Chunk(u64),
    /// In the lines after the last chunk; in one of this length.
    Trailer(u64),
}

impl Default for Framing {
    fn default() -> Self {
        Self::Head(Vec::new())
    }
}

impl Framing {
    /// How many of these bytes belong together, and the method of the request whose head ends with them.
    fn next(&mut self, bytes: &[u8]) -> (usize, Option<String>) {
        let mut method = None;
        let line = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
        let whole = bytes.get(line.saturating_sub(1)) == Some(&b'\n');
        let part = bytes.get(..line).unwrap_or_default();
        let (taken, next) = match self {
            Self::Head(seen) => {
                seen.extend_from_slice(part);
                let head = seen.ends_with(b"\r\n\r\n").then(|| String::from_utf8_lossy(seen));
                method = head.as_ref().and_then(|head| Some(head.split(' ').next()?.to_owned()));
                (line, head.map(|head| body(&head)))
            }
            Self::Body(left) | Self::Chunk(left) => {
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= taken as u64;
                let done = *left == 0;
                let next = if matches!(self, Self::Chunk(_)) { Self::Size(Vec::new()) } else { Self::default() };
                (taken, done.then_some(next))
            }
            Self::Size(seen) => {
                seen.extend_from_slice(part);
                let text = String::from_utf8_lossy(seen);
                let size = u64::from_str_radix(text.split(';').next().unwrap_or_default().trim(), 16).unwrap_or(0);
                (line, whole.then_some(if size == 0 { Self::Trailer(0) } else { Self::Chunk(size + 2) }))
            }
            Self::Trailer(length) => {
                *length += line as u64;
                let next = if *length == 2 { Self::default() } else { Self::Trailer(0) };
                (line, whole.then_some(next))
            }
        };
        if let Some(next) = next {
            *self = next;
        }
        (taken, method)
    }
}

/// What follows a head.
fn body(head: &str) -> Framing {
    let value = |wanted: &str| {
        let mut fields = head.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value.trim().to_ascii_lowercase())
    };
    if value("transfer-encoding").is_some_and(|value| value.ends_with("chunked")) {
        return Framing::Size(Vec::new());
    }
    match value("content-length").and_then(|value| value.parse().ok()).unwrap_or(0) {
        0 => Framing::default(),
        left => Framing::Body(left),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The methods found when the bytes come in pieces of this size.
    fn methods(bytes: &[u8], size: usize) -> Vec<String> {
        let (mut framing, mut found) = (Framing::default(), Vec::new());
        for mut piece in bytes.chunks(size) {
            while !piece.is_empty() {
                let (taken, method) = framing.next(piece);
                found.extend(method);
                piece = &piece[taken..];
            }
        }
        assert!(matches!(framing, Framing::Head(seen) if seen.is_empty()), "all of it was understood");
        found
    }

    #[test]
    fn requests_of_one_connection_are_told_apart_whatever_their_bodies_look_like() {
        let bytes = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n\
            PUT /b HTTP/1.1\r\nHost: x\r\ncontent-length: 21\r\n\r\nGET / HTTP/1.1\r\n\r\nabc\
            POST /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\nA\r\nDELETE / H\r\n0\r\nx-sum: 1\r\n\r\n\
            PUT /d HTTP/1.1\r\nContent-Length: 0\r\n\r\n\
            DELETE /e HTTP/1.1\r\n\r\n";
        for size in 1..=bytes.len() {
            assert_eq!(methods(bytes, size), ["GET", "PUT", "POST", "PUT", "DELETE"], "in pieces of {size}");
        }
    }

    #[tokio::test]
    async fn a_request_waits_and_is_counted_and_nothing_else_changes() {
        let server = crate::s3::S3Server::start().unwrap();
        let address: SocketAddr = server.endpoint().trim_start_matches("http://").parse().unwrap();
        let way = Distance::start(address).unwrap();
        let ask = async || {
            let mut stream = TcpStream::connect(way.address()).await.unwrap();
            let once = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
            let last = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
            stream.write_all(format!("{once}{last}").as_bytes()).await.unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.unwrap();
            (answer, once.len() + last.len())
        };
        let (answer, sent) = ask().await;
        assert_eq!(String::from_utf8_lossy(&answer).matches("HTTP/1.1 ").count(), 2);
        let seen = way.take();
        assert_eq!((seen.all(), seen.requests["GET"], seen.connections), (2, 2, 1));
        assert_eq!((seen.sent, seen.received), (sent as u64, answer.len() as u64));
        assert_eq!(way.take(), Traffic::default());
        way.delay(Duration::from_millis(40));
        let env = Env::system([]);
        let begun = env.monotonic();
        ask().await;
        assert!(env.monotonic() - begun >= Duration::from_millis(80));
    }
}
