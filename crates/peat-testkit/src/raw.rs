//! A server that says exactly what a test wants, byte for byte: for what no framework would send.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use peat_types::Env;
use tokio::net::{TcpListener, TcpStream};

use crate::background::{Background, LOCAL};

/// Part of an answer.
#[derive(Clone, Debug)]
pub enum Say {
    /// These bytes.
    Bytes(Vec<u8>),
    /// Nothing for a while.
    Pause(Duration),
    /// Nothing more on this connection, which stays open.
    Silence,
    /// The end of this connection.
    Close,
}

impl Say {
    /// A reply with status 200, these further header lines, a length of the body, and the body.
    pub fn ok(headers: &str, body: &str) -> Self {
        let length = body.len();
        Self::Bytes(format!("HTTP/1.1 200 OK\r\n{headers}Content-Length: {length}\r\n\r\n{body}").into_bytes())
    }
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct RawRequest {
    /// Number of the connection, from 0.
    pub connection: usize,
    /// Number of the request on this connection, from 0.
    pub nth: usize,
    /// Request line and headers.
    pub head: String,
    /// Bytes of the body.
    pub body: usize,
}

type Answer = Box<dyn Fn(&RawRequest) -> Vec<Say> + Send + Sync>;

struct Shared {
    answer: Answer,
    /// Bodies are read in pieces of so many bytes with a pause after each.
    pace: Option<(usize, Duration)>,
    log: Mutex<Vec<RawRequest>>,
    env: Env,
}

/// A running server. It stops when dropped.
pub struct RawServer {
    background: Background,
    shared: Arc<Shared>,
}

impl RawServer {
    /// Starts a server on a free port of the loopback interface. Requests of one connection are answered one by one.
    ///
    /// # Errors
    /// When there is no port or thread to be had.
    pub fn start(answer: impl Fn(&RawRequest) -> Vec<Say> + Send + Sync + 'static) -> std::io::Result<Self> {
        Self::start_with(answer, None)
    }

    /// As [`start`](Self::start), reading bodies in pieces of so many bytes with a pause after each.
    ///
    /// # Errors
    /// When there is no port or thread to be had.
    pub fn start_with(
        answer: impl Fn(&RawRequest) -> Vec<Say> + Send + Sync + 'static,
        pace: Option<(usize, Duration)>,
    ) -> std::io::Result<Self> {
        let env = Env::system([]);
        let shared = Arc::new(Shared { answer: Box::new(answer), pace, log: Mutex::default(), env });
        let of_thread = shared.clone();
        let background = Background::start("raw-server", LOCAL, move |listener| serve(listener, of_thread))?;
        Ok(Self { background, shared })
    }

    /// `http://127.0.0.1:port`
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.background.address())
    }

    /// The environment variables that lead an S3 client here.
    pub fn vars(&self) -> [(String, String); 4] {
        [
            ("AWS_ACCESS_KEY_ID", "any".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "any".to_owned()),
            ("AWS_ENDPOINT_URL_S3", self.endpoint()),
            ("AWS_REGION", "us-east-1".to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
    }

    /// What was asked so far, in the order it came.
    pub fn log(&self) -> Vec<RawRequest> {
        self.shared.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let mut connection = 0;
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        let shared = shared.clone();
        // An error is a client that went away.
        tokio::spawn(async move { talk(&stream, connection, &shared).await });
        connection += 1;
    }
}

/// Up to `most` bytes; an error at the end of the stream.
async fn read(stream: &TcpStream, most: usize) -> std::io::Result<Vec<u8>> {
    let mut buffer = vec![0; most];
    loop {
        stream.readable().await?;
        match stream.try_read(&mut buffer) {
            Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                buffer.truncate(count);
                return Ok(buffer);
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

async fn write(stream: &TcpStream, mut bytes: &[u8]) -> std::io::Result<()> {
    while !bytes.is_empty() {
        stream.writable().await?;
        match stream.try_write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

async fn talk(stream: &TcpStream, connection: usize, shared: &Shared) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    for nth in 0.. {
        let end = loop {
            match bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                Some(end) => break end + 4,
                None => bytes.extend(read(stream, 4096).await?),
            }
        };
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            if name.eq_ignore_ascii_case("content-length") { value.trim().parse::<usize>().ok() } else { None }
        });
        let body = length.unwrap_or_default();
        let mut left = body.saturating_sub(bytes.len() - end);
        bytes.drain(..(end + body).min(bytes.len()));
        while left > 0 {
            let piece = shared.pace.map_or(64 << 10, |(piece, _)| piece);
            left -= read(stream, piece.min(left)).await?.len();
            if let Some((_, pause)) = shared.pace {
                shared.env.sleep(pause).await;
            }
        }
        let request = RawRequest { connection, nth, head, body };
        shared.log.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
        for say in (shared.answer)(&request) {
            match say {
                Say::Bytes(bytes) => write(stream, &bytes).await?,
                Say::Pause(pause) => shared.env.sleep(pause).await,
                Say::Silence => std::future::pending::<()>().await,
                Say::Close => return Ok(()),
            }
        }
    }
    Ok(())
}
