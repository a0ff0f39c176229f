//! Processes of one clone, without a folder: what `peat-clone` keeps in files.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use peat_ledger::{Held, Neighbours, News, Turn};
use peat_types::TxId;

/// Shared by the processes of a clone.
#[derive(Clone, Debug, Default)]
pub struct Street(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
pub struct Inner {
    holders: u64,
    holder: Option<u64>,
    /// What waits.
    pub places: BTreeMap<TxId, Bytes>,
    pub news: News,
    /// Whether what processes left stays there when they are gone.
    pub litters: bool,
}

struct Given(Street, u64);

impl Drop for Given {
    fn drop(&mut self) {
        let mut inner = self.0.lock();
        if inner.holder == Some(self.1) {
            inner.holder = None;
        }
    }
}

struct Place(Street, TxId);

impl Drop for Place {
    fn drop(&mut self) {
        let mut inner = self.0.lock();
        if !inner.litters {
            inner.places.remove(&self.1);
        }
    }
}

impl Street {
    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nobody waits and nobody has the turn.
    #[allow(dead_code)] // `crowd` uses this file, too
    pub fn is_empty(&self) -> bool {
        let inner = self.lock();
        inner.places.is_empty() && inner.holder.is_none()
    }
}

impl Neighbours for Street {
    fn turn(&self) -> Turn {
        let mut inner = self.lock();
        if inner.holder.is_some() {
            return Turn::Taken;
        }
        inner.holders += 1;
        let own = inner.holders;
        inner.holder = Some(own);
        drop(inner);
        Turn::Mine(Box::new(Given(self.clone(), own)))
    }

    fn depose(&self) {
        self.lock().holder = None;
    }

    fn leave(&self, tx: TxId, group: &[u8]) -> Option<Held> {
        self.lock().places.insert(tx, Bytes::copy_from_slice(group));
        Some(Box::new(Place(self.clone(), tx)))
    }

    fn waiting(&self, most: usize, room: u64) -> Vec<Bytes> {
        let inner = self.lock();
        inner.places.values().filter(|group| group.len() as u64 <= room).take(most).cloned().collect()
    }

    fn news(&self) -> News {
        self.lock().news
    }

    fn tell(&self, news: News) {
        self.lock().news = news;
    }
}
