//! The datastore as a whole: setting it up, synchronising, looking into its ledger.

mod doctor;
mod extension;
mod maintain;
mod mend;
mod namespaces;
mod pins;
mod policy;
mod purge;
mod setup;
mod sync;
mod waiting;

use peat_clone::{LogPage, LogQuery, TxKind};
use peat_objects::{List, Pages};
use peat_types::{Error, Result, Seq, Timestamp};

use crate::Repo;
use crate::repo::Marker;
use crate::report::{DatastoreStatus, LedgerCat, LedgerLs, LedgerObject, LocalContents};

pub use doctor::{Diagnosis, Examination};
pub use maintain::KeptUp;
pub use purge::PurgeRequest;
pub use setup::SetupRequest;
pub use sync::SyncRequest;
pub use waiting::Waited;

impl Repo {
    /// `peat datastore status`; with `size` the objects of the namespace are counted, which takes one LIST for each
    /// thousand.
    pub async fn datastore_status(&self, size: bool) -> Result<DatastoreStatus> {
        let (clone, place) = self.opened().await?;
        let began = self.host().env.monotonic();
        let newest = clone.log(&LogQuery::newest(1)).await.and_then(|mut page| match page.unread.pop() {
            Some((_, error)) => Err(error),
            None => reaches(page, clone.head()?),
        });
        let latency = self.host().env.monotonic().saturating_sub(began);
        let (healthy, message, head) = match newest {
            Ok(page) => {
                let newest = page.lines.first();
                let left = newest.is_some_and(|line| line.txs.iter().any(|tx| tx.kind == TxKind::Moved));
                let message = match clone.moved()? {
                    Some(moved) => format!("the store answers, but {}", clone.gone_to(&moved)),
                    None if left => {
                        "the store answers, but the ledger moved: 'peat datastore sync --pull' says where".to_owned()
                    }
                    None if clone.is_suspect()? => {
                        "the store answers, but was seen to be set back or replaced: 'peat doctor' says more".to_owned()
                    }
                    None => "the store answers".to_owned(),
                };
                (true, message, newest.map(|line| line.seq))
            }
            Err(error) => (false, error.chain().join(": "), clone.head()?),
        };
        let size = if size && healthy { Some(self.store_size(place).await?) } else { None };
        let message = match self.private_note().await? {
            Some(note) if healthy => format!("{message}; {note}"),
            _ => message,
        };
        let local = clone.local()?;
        Ok(DatastoreStatus {
            kind: place.opened.kind.to_owned(),
            url: place.opened.url.clone(),
            path: place.opened.folder.clone(),
            namespace: place.namespace.clone(),
            private: place.private,
            healthy,
            message,
            latency_ms: healthy.then(|| u64::try_from(latency.as_millis()).unwrap_or(u64::MAX)),
            head,
            position: clone.position()?,
            pending: clone.pending()?.len() as u64,
            leases: clone.leases()?.iter().filter(|info| info.lease.held).count() as u64,
            hydration: place.hydration_name().to_owned(),
            contents: LocalContents {
                items: local.items,
                bytes: local.bytes,
                local_items: local.local_items,
                local_bytes: local.local_bytes,
            },
            size,
            recent: self.recent_costs(clone)?,
            maintenance: self.maintenance()?,
        })
    }

    /// What whoever uses a ledger that moved is to know, as far as this clone has heard: nothing new comes there. No request.
    ///
    /// # Errors
    /// Those of reading the index and the marker.
    pub fn moved(&self) -> Result<Option<Error>> {
        let Some((clone, _)) = self.opened_now().filter(|_| !self.is_foreign()) else { return Ok(None) };
        let Some(moved) = clone.moved()? else { return Ok(None) };
        // This very command may have followed it.
        let now = Marker::read(self.root(), &self.host().version)?;
        let uses = now.is_none_or(|now| now.datastore == self.marker().datastore);
        Ok(uses.then(|| clone.gone_to(&moved)))
    }

    /// `peat ledger ls`: objects below a folder of the namespace.
    pub async fn ledger_ls(&self, prefix: &str, limit: usize) -> Result<LedgerLs> {
        let (_, place) = self.opened().await?;
        let store = place.opened.within(place.namespace.as_str())?;
        let mut pages = Pages::new(&*store, List { prefix: folder(prefix), ..List::default() });
        let (mut objects, mut limited) = (Vec::new(), false);
        while !limited && let Some(page) = pages.next().await? {
            let room = limit.saturating_sub(objects.len());
            limited = page.keys.len() > room || (page.token.is_some() && page.keys.len() == room);
            objects.extend(page.keys.into_iter().take(room).map(|listed| LedgerObject {
                key: listed.key,
                size: listed.size,
                last_modified: listed.last_modified,
            }));
        }
        let (store, namespace) = (place.opened.url.clone(), place.namespace.clone());
        Ok(LedgerLs { store, namespace, objects, limited })
    }

    /// `peat ledger cat`: any object as JSON, by its key; an entry by its number too.
    pub async fn ledger_cat(&self, wanted: &str) -> Result<LedgerCat> {
        let entry = wanted.parse::<u64>().map(|seq| format!("log/{}.{seq}", Seq(seq).inverted()));
        let key = entry.as_deref().unwrap_or(wanted);
        Ok(LedgerCat { key: key.to_owned(), object: self.clone_of().await?.cat(key).await? })
    }

    /// When the clone was last brought up to date.
    pub async fn synced_at(&self) -> Result<Option<Timestamp>> {
        self.clone_of().await?.synced_at()
    }
}

/// The newest entries, unless they end before one that is known.
fn reaches(page: LogPage, known: Option<Seq>) -> Result<LogPage> {
    let (newest, known) = (page.lines.first().map(|line| line.seq), known.unwrap_or_default());
    match newest {
        Some(newest) if newest < known => {
            Err(Error::damaged(format!("the log ends with entry {newest}, and this clone has seen entry {known}"))
                .with_code("rollback"))
        }
        _ => Ok(page),
    }
}

/// A prefix as a folder, as a listing wants it.
fn folder(prefix: &str) -> String {
    let trimmed = prefix.trim_matches('/');
    if trimmed.is_empty() { String::new() } else { format!("{trimmed}/") }
}
