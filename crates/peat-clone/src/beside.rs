//! Processes that share the folder of a clone: whose turn it is at the store, who waits for it, and how far the log is
//! known to go. All of it may be lost, and what cannot be read or written is simply not there.

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use peat_ledger::{Held, Neighbours, News, Turn};
use peat_types::{Env, Seq, TxId};

use crate::files::{self, Lock};

/// Ending of the groups of transactions that wait.
const WAITING: &str = ".tx";

/// `queue/` of a clone.
#[derive(Debug)]
pub(crate) struct Beside {
    env: Env,
    dir: PathBuf,
    temps: PathBuf,
}

/// A place in the queue: a file that is locked as long as its process lives.
struct Place {
    path: PathBuf,
    _lock: Lock,
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = files::remove(&self.path);
    }
}

impl Beside {
    /// The queue in the folder `clone`.
    pub(crate) fn new(env: &Env, clone: &Path) -> Self {
        let dir = clone.join("queue");
        if let Err(error) = fs::create_dir_all(&dir) {
            tracing::debug!(%error, "processes of this clone do not wait for one another");
        }
        Self { env: env.clone(), dir, temps: clone.join(files::TEMP) }
    }

    fn turn_lock(&self) -> PathBuf {
        self.dir.join("turn.lock")
    }

    fn news_file(&self) -> PathBuf {
        self.dir.join("news")
    }
}

impl Neighbours for Beside {
    fn turn(&self) -> Turn {
        match Lock::try_new(&self.turn_lock()) {
            Ok(Some(lock)) => Turn::Mine(Box::new(lock)),
            Ok(None) => Turn::Taken,
            Err(error) => {
                tracing::debug!(%error, "whose turn it is cannot be told");
                Turn::Unknown
            }
        }
    }

    fn depose(&self) {
        // Whoever has it keeps a file that nobody else looks at.
        let _ = files::remove(&self.turn_lock());
    }

    fn leave(&self, tx: TxId, group: &[u8]) -> Option<Held> {
        let path = self.dir.join(format!("{tx}{WAITING}"));
        match files::write_locked(&self.env, &self.temps, &path, group) {
            Ok(lock) => Some(Box::new(Place { path, _lock: lock })),
            Err(error) => {
                tracing::debug!(%error, "no other process of this clone can help with this change");
                None
            }
        }
    }

    fn waiting(&self, most: usize, room: u64) -> Vec<Bytes> {
        let names = files::names(&self.dir, WAITING).unwrap_or_default();
        let mut groups = Vec::new();
        for path in names.iter().map(|name| self.dir.join(format!("{name}{WAITING}"))) {
            if groups.len() == most {
                break;
            }
            match Lock::try_existing(&path) {
                // Whoever left it is gone; what becomes of it is told by the journal.
                Ok(Some(_)) => drop(files::remove(&path)),
                Ok(None) if fs::metadata(&path).is_ok_and(|meta| meta.is_file() && meta.len() <= room) => {
                    groups.extend(files::read(&path).ok().flatten().map(Bytes::from));
                }
                _ => {}
            }
        }
        groups
    }

    fn news(&self) -> News {
        let text = files::read(&self.news_file()).ok().flatten().unwrap_or_default();
        let text = String::from_utf8(text).unwrap_or_default();
        let mut numbers = text.split_whitespace().map_while(|word| word.parse().ok().map(Seq));
        News { head: numbers.next().unwrap_or_default(), crowd: numbers.next().unwrap_or_default() }
    }

    fn tell(&self, news: News) {
        let text = format!("{} {}\n", news.head.0, news.crowd.0);
        let chunks: &[&[u8]] = &[text.as_bytes()];
        if let Err(error) = files::write_atomic(&self.env, &self.temps, &self.news_file(), chunks, false, false) {
            tracing::debug!(%error, "other processes of this clone are not told");
        }
    }
}
