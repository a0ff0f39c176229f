//! Asking a run to end.

use std::sync::Arc;

use tokio::sync::watch;

/// Why a run is to end early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The person at the terminal (Ctrl-C) or the service manager.
    Interrupt,
    /// `peat model cancel`, with what was said.
    Request(String),
    /// `--timeout` is over.
    Timeout(std::time::Duration),
    /// Somebody else holds the lease now.
    LeaseLost(String),
    /// No heartbeat gets through, so that somebody else may take the lease any moment.
    Silence(String),
}

impl Reason {
    /// One line.
    pub fn text(&self) -> String {
        match self {
            Self::Interrupt => "interrupted".to_owned(),
            Self::Request(reason) if reason.is_empty() => "cancelled on request".to_owned(),
            Self::Request(reason) => format!("cancelled on request: {reason}"),
            Self::Timeout(limit) => format!("not finished after {}", crate::duration::human(*limit)),
            Self::LeaseLost(why) | Self::Silence(why) => why.clone(),
        }
    }
}

/// A handle that ends a run early. All clones are one; the first reason given is the one that counts.
#[derive(Clone, Debug)]
pub struct Cancel(Arc<watch::Sender<Option<Reason>>>);

impl Default for Cancel {
    fn default() -> Self {
        Self(Arc::new(watch::channel(None).0))
    }
}

impl Cancel {
    /// Asks the run to end. May be called from any thread.
    pub fn cancel(&self, reason: Reason) {
        self.0.send_if_modified(|now| {
            let first = now.is_none();
            if first {
                *now = Some(reason);
            }
            first
        });
    }

    /// The reason, once there is one.
    pub fn reason(&self) -> Option<Reason> {
        self.0.borrow().clone()
    }

    /// Resolves once there is a reason.
    pub async fn cancelled(&self) -> Reason {
        let mut seen = self.0.subscribe();
        let found = seen.wait_for(Option::is_some).await.map(|reason| reason.clone());
        match found {
            Ok(Some(reason)) => reason,
            // The sender lives as long as `self`, so this is never reached; waiting for ever is what it would mean.
            _ => std::future::pending().await,
        }
    }
}
