//! The heartbeat of a run.

use std::sync::Arc;

use peat_clone::Run;
use tokio::sync::oneshot;
use tracing::{Instrument, Span};

use crate::Beats;

/// A heart that beats until it is stopped or dropped.
pub(super) enum Heart {
    /// Nothing to keep alive.
    None,
    /// The caller polls [`Run::beat`].
    Inline,
    /// On a thread: tell it to stop, hear that it has.
    Thread(oneshot::Sender<()>, oneshot::Receiver<()>),
}

impl Heart {
    pub fn start(how: Beats, run: Option<&Arc<Run>>) -> Self {
        let Some(run) = run else { return Self::None };
        if how == Beats::Inline {
            return Self::Inline;
        }
        let (stop, stopped) = oneshot::channel::<()>();
        let (done, over) = oneshot::channel();
        let run = run.clone();
        let span = Span::current();
        let beat = move || {
            // A runtime of its own: a method that keeps the other thread busy cannot hold back the beat.
            if let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() {
                let beats = run.beat().instrument(span);
                runtime.block_on(async {
                    tokio::select! {
                        () = beats => {}
                        // Told, or the heart was dropped.
                        _ = stopped => {}
                    }
                });
            }
            drop(run);
            let _ = done.send(());
        };
        match std::thread::Builder::new().name("peat-beat".to_owned()).spawn(beat) {
            Ok(_) => Self::Thread(stop, over),
            // No thread to be had: a beat beside the method is better than none.
            Err(_) => Self::Inline,
        }
    }

    /// Whether the caller must poll the beat.
    pub const fn inline(&self) -> bool {
        matches!(self, Self::Inline)
    }

    /// `work` of a run whose method is over: it lives until its results are in the ledger, however long they take.
    pub async fn beside<T>(&self, run: &Run, work: impl Future<Output = T>) -> T {
        if !self.inline() {
            return work.await;
        }
        let beats = async {
            run.beat().await;
            std::future::pending().await
        };
        tokio::select! {
            biased;
            done = work => done,
            never = beats => never,
        }
    }

    /// Returns once nothing holds the run any more.
    pub async fn stop(self) {
        if let Self::Thread(stop, over) = self {
            let _ = stop.send(());
            let _ = over.await;
        }
    }
}
