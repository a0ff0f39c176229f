//! An HTTP proxy in this process: tunnels by CONNECT, forwards requests in absolute form, and may want a password.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use crate::background::{Background, LOCAL};

/// The first request of a connection to the proxy.
#[derive(Clone, Debug)]
pub struct Proxied {
    /// `CONNECT host:port HTTP/1.1` or `GET http://host:port/path HTTP/1.1`.
    pub line: String,
    /// Whether the name and password were right, when some are wanted.
    pub allowed: bool,
}

struct Shared {
    /// The value that `Proxy-Authorization` must have.
    wanted: Option<String>,
    /// Where requests go whatever host they name.
    upstream: SocketAddr,
    log: Mutex<Vec<Proxied>>,
}

/// A running proxy. It stops when dropped.
pub struct Proxy {
    background: Background,
    shared: Arc<Shared>,
}

impl Proxy {
    /// Starts a proxy on a free port of the loopback interface that leads every request to `upstream`, for those who
    /// know `login` (`name:password`).
    ///
    /// # Errors
    /// When there is no port or thread to be had.
    pub fn start(upstream: SocketAddr, login: Option<&str>) -> std::io::Result<Self> {
        let wanted = login.map(|login| format!("Basic {}", BASE64_STANDARD.encode(login)));
        let shared = Arc::new(Shared { wanted, upstream, log: Mutex::default() });
        let of_thread = shared.clone();
        let background = Background::start("proxy", LOCAL, move |listener| serve(listener, of_thread))?;
        Ok(Self { background, shared })
    }

    /// `127.0.0.1:port`
    pub fn address(&self) -> SocketAddr {
        self.background.address()
    }

    /// The first request of each connection so far.
    pub fn log(&self) -> Vec<Proxied> {
        self.shared.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let shared = shared.clone();
        tokio::spawn(async move {
            // An error here is a client or server that went away.
            let _ = pass(stream, &shared).await;
        });
    }
}

async fn pass(mut client: TcpStream, shared: &Shared) -> std::io::Result<()> {
    let head = head(&mut client).await?;
    let text = String::from_utf8_lossy(&head).into_owned();
    let line = text.lines().next().unwrap_or_default().to_owned();
    let sent = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("proxy-authorization").then(|| value.trim().to_owned())
    });
    let allowed = shared.wanted.is_none() || shared.wanted == sent;
    let tunnel = line.starts_with("CONNECT ");
    shared.log.lock().unwrap_or_else(PoisonError::into_inner).push(Proxied { line, allowed });
    if !allowed {
        let refusal = "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=\"proxy\"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        return client.write_all(refusal.as_bytes()).await;
    }
    let mut server = TcpStream::connect(shared.upstream).await?;
    if tunnel {
        client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
    } else {
        // Origin servers understand the absolute form too.
        server.write_all(&head).await?;
    }
    copy_bidirectional(&mut client, &mut server).await.map(|_| ())
}

/// Everything up to the empty line, and whatever came with it.
async fn head(client: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if client.read_buf(&mut head).await? == 0 || head.len() > 64 * 1024 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(head)
}
