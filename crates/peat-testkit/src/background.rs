//! The frame of a server in this process: a port, a thread, and a runtime of its own, so that tests may pause their clock,
//! block, or start other processes.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::thread::JoinHandle;

use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// The address of the loopback interface that servers listen on unless told otherwise.
pub(crate) const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A running server. It stops when dropped, and has stopped when that returns.
pub(crate) struct Background {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Runs `serve` on a free port of `ip`, on a thread of this name.
    ///
    /// # Errors
    /// When there is no such address, port or thread to be had.
    pub(crate) fn start<F>(
        name: &str,
        ip: IpAddr,
        serve: impl FnOnce(TcpListener) -> F + Send + 'static,
    ) -> std::io::Result<Self>
    where
        F: Future<Output = ()>,
    {
        let listener = std::net::TcpListener::bind((ip, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            runtime.block_on(async move {
                let Ok(listener) = TcpListener::from_std(listener) else { return };
                tokio::select! {
                    () = serve(listener) => {}
                    _ = stopped => {}
                }
            });
        })?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
