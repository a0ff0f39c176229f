//! The journal: what this machine wants to happen and cannot prove to have happened yet. The only local thing that is
//! not derived from the log.
//!
//! Per change: `<id>.change`, written once and complete or not there; `<id>.state`, how its attempts stand; `<id>.packs`,
//! what was uploaded for it; `<id>.lock`, held by whoever works on it. The change is there as long as its first file is.

mod brought;
mod frame;
mod sent;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use peat_ledger::{Params, Stored};
use peat_types::{ChangeId, CloneId, Env, Error, Kind, Result, RunNonce, Seq, Timestamp, TxId, Unit};
use serde::{Deserialize, Serialize};

use crate::files::{self, Lock};
use crate::{Change, Durability, Grant, Pending, PendingStatus, Source};

pub use brought::Brought;
use frame::Sizes;
pub(crate) use frame::too_large;

/// What a row is about, apart from what its planner makes of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "is")]
pub(crate) enum Role {
    /// A change, on its own or under a lease that somebody else will free.
    Change,
    /// Takes leases. Belongs to the process that wrote it: nobody ever sends it again.
    Start { nonce: RunNonce, leases: Vec<Unit>, ttl_ms: u64 },
    /// Frees the leases of these units, all of which guard it.
    End { free: Vec<Unit> },
    /// Frees the lease of a run whose process is gone, and marks what it left as interrupted.
    Release,
}

/// Everything about a row that never changes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Header {
    /// Raised when an older version must not touch the row.
    pub(crate) version: u32,
    pub(crate) id: ChangeId,
    /// Who made it: a copy of a clone must not resolve the starts of the original.
    pub(crate) clone: CloneId,
    pub(crate) role: Role,
    pub(crate) kind: String,
    pub(crate) payload: serde_json::Value,
    pub(crate) units: Vec<Unit>,
    pub(crate) message: String,
    pub(crate) author: String,
    pub(crate) time: Timestamp,
    pub(crate) unleased: bool,
    /// The leases it is made under.
    pub(crate) grants: Vec<Grant>,
}

/// A row as read.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) header: Header,
    pub(crate) contents: Arc<[Brought]>,
}

/// How a row's attempts stand.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct State {
    /// The attempt that may be in the log, or may still get there.
    pub(crate) tx: Option<TxId>,
    /// The unit seqs it was planned on: once one of them has moved, the attempt is dead for ever (R7).
    pub(crate) expected: BTreeMap<Unit, Option<Seq>>,
    /// What its planner answered.
    pub(crate) answer: serde_json::Value,
    pub(crate) attempts: u32,
    /// Head at the first attempt: none can be in an entry at or before it.
    pub(crate) since: Seq,
    /// Refused, and waiting for somebody's decision.
    pub(crate) parked: bool,
    /// Adopted without the leases it was made under.
    pub(crate) adopted: bool,
    /// Slug and message of what went wrong last.
    pub(crate) reason: Option<(String, String)>,
}

/// Slug among the causes of an error after which a change is nowhere: its contents are lost unless the caller still has
/// them. See [`Error::has_code`]; the slug of the error itself says what prevented it.
pub const NOT_JOURNALLED: &str = "not_journalled";

pub(crate) const ROW_VERSION: u32 = 2;
/// Contents of a row that are read whenever it is.
const SMALL: u64 = 1 << 20;
/// Extensions of what lies beside a change; the lock goes last.
const REST: [&str; 3] = ["state", "packs", "lock"];

/// The folder.
pub(crate) struct Journal {
    dir: PathBuf,
    durability: Durability,
    sizes: Sizes,
}

/// A row that this process works on; others keep away until it is dropped.
pub(crate) struct Locked {
    pub(crate) row: Row,
    state: State,
    /// Packs with its contents that are in the store.
    stored: Vec<Stored>,
    base: PathBuf,
    temps: PathBuf,
    synced: bool,
    #[allow(dead_code)] // held
    lock: Lock,
}

/// Who gets a row.
pub(crate) enum Claim {
    Mine(Box<Locked>),
    /// Another process works on it.
    Busy,
    /// It is not there (any more).
    Gone,
}

impl Journal {
    pub(crate) fn new(dir: PathBuf, durability: Durability, params: &Params) -> Self {
        Self { dir, durability, sizes: Sizes { part: params.part.max(1), largest: params.largest() } }
    }

    fn temps(&self) -> PathBuf {
        self.dir.with_file_name(files::TEMP)
    }

    fn base(&self, id: ChangeId) -> PathBuf {
        self.dir.join(id.to_string())
    }

    /// Adds a row and locks it. On return it is durable, but for a start: a start is never sent again, so after a power
    /// cut its row would only say sooner what the missing beats say anyway, and the file alone survives a kill.
    pub(crate) fn add(&self, env: &Env, header: &Header, contents: &[Source]) -> Result<Locked> {
        let base = self.base(header.id);
        let synced = self.durability == Durability::Synced && !matches!(header.role, Role::Start { .. });
        let lock = Lock::try_new(&base.with_extension("lock"))?
            .ok_or_else(|| Error::internal("a new change is locked by another process"))?;
        let path = base.with_extension("change");
        let mut fill = |file: &mut std::fs::File| frame::write(file, &path, header, contents, self.sizes);
        let added = files::fill_atomic(env, &self.temps(), &path, &mut fill, synced, false);
        let row = added.and_then(|()| {
            frame::open(&path)?.ok_or_else(|| Error::internal("a change that was just journalled is not there"))
        });
        match row {
            Ok(row) => {
                let (state, stored) = (State::default(), Vec::new());
                Ok(Locked { row, state, stored, base, temps: self.temps(), synced, lock })
            }
            Err(error) => {
                let _ = files::remove(&base.with_extension("lock"));
                let code = error.code();
                let error = error.context("the change was not journalled").with_code(NOT_JOURNALLED);
                Err(error.context("nothing was sent").with_code(code))
            }
        }
    }

    /// When a row was written, by its file, for one that cannot be read.
    pub(crate) fn written(&self, id: ChangeId) -> Timestamp {
        let file = self.base(id).with_extension("change");
        files::written(&file).ok().flatten().unwrap_or(Timestamp::from_millis(0))
    }

    /// Ids of all rows. Half-removed leftovers are cleared away.
    pub(crate) fn ids(&self) -> Result<Vec<ChangeId>> {
        let rows = files::names(&self.dir, ".change")?;
        Ok(rows.iter().filter_map(|name| name.parse().ok()).collect())
    }

    /// Removes what is left of rows that are gone.
    pub(crate) fn sweep(&self) -> Result<()> {
        for name in files::names(&self.dir, ".lock")? {
            let base = self.dir.join(&name);
            if base.with_extension("change").exists() {
                continue;
            }
            // Locked: somebody is just adding this row.
            if let Some(_lock) = Lock::try_existing(&base.with_extension("lock"))?
                && !base.with_extension("change").exists()
            {
                for extension in REST {
                    files::remove(&base.with_extension(extension))?;
                }
            }
        }
        Ok(())
    }

    /// Reads a row without locking it.
    pub(crate) fn read(&self, id: ChangeId) -> Result<Option<(Row, State)>> {
        let base = self.base(id);
        let row = frame::open(&base.with_extension("change"))
            .map_err(|e| e.context(format!("cannot read the journalled change {}", base.display())))?;
        let Some(row) = row else { return Ok(None) };
        // What is large is checked when it is read.
        if row.contents.iter().map(Brought::size).sum::<u64>() <= SMALL {
            row.contents.iter().try_for_each(|kept| kept.read().map(drop))?;
        }
        if row.header.version > ROW_VERSION {
            return Err(Error::new(Kind::Unsupported, format!("the change {id} was journalled by a newer version"))
                .with_code("unsupported_version")
                .with_hint("upgrade peat; the change is kept"));
        }
        let state = match files::read(&base.with_extension("state"))? {
            None => State::default(),
            Some(bytes) => serde_json::from_slice(&bytes).map_err(|e| {
                Error::damaged(format!("{} cannot be read", base.with_extension("state").display())).with_source(e)
            })?,
        };
        Ok(Some((row, state)))
    }

    /// Locks a row if nobody works on it.
    pub(crate) fn claim(&self, id: ChangeId) -> Result<Claim> {
        let base = self.base(id);
        if !base.with_extension("change").exists() {
            return Ok(Claim::Gone);
        }
        let Some(lock) = Lock::try_new(&base.with_extension("lock"))? else { return Ok(Claim::Busy) };
        // Read under the lock: whoever held it before may have finished or removed the row.
        let Some((row, state)) = self.read(id)? else { return Ok(Claim::Gone) };
        let synced = self.durability == Durability::Synced;
        let stored = sent::read(&base.with_extension("packs"))?;
        Ok(Claim::Mine(Box::new(Locked { row, state, stored, base, temps: self.temps(), synced, lock })))
    }

    /// As [`claim`](Self::claim), waiting for another process to let go.
    pub(crate) async fn claim_within(&self, env: &Env, id: ChangeId, limit: Duration) -> Result<Claim> {
        let start = env.monotonic();
        loop {
            match self.claim(id)? {
                Claim::Busy if env.monotonic().saturating_sub(start) < limit => {
                    env.sleep(Duration::from_millis(5) + env.jitter(Duration::from_millis(20))).await;
                }
                claim => return Ok(claim),
            }
        }
    }
}

impl Locked {
    pub(crate) fn id(&self) -> ChangeId {
        self.row.header.id
    }

    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// Replaces the state, provided that the file still says what this process last saw there: should a lock ever fail
    /// to lock (some network file systems), two processes still cannot give one change two living transactions.
    pub(crate) fn update(&mut self, env: &Env, state: State) -> Result<()> {
        let path = self.base.with_extension("state");
        let stored = match files::read(&path)? {
            None => State::default(),
            Some(bytes) => serde_json::from_slice(&bytes)
                .map_err(|e| Error::damaged(format!("{} cannot be read", path.display())).with_source(e))?,
        };
        if stored != self.state {
            return Err(Error::new(Kind::Contended, format!("another process works on the change {}", self.id())));
        }
        let text = serde_json::to_vec(&state).map_err(|e| Error::internal("cannot write JSON").with_source(e))?;
        files::write_atomic(env, &self.temps, &path, &[&text], self.synced, false)?;
        self.state = state;
        Ok(())
    }

    /// Removes the row: its change is in the log, or will never be. The change goes first and durably, for a change
    /// without its state would look as if it had never been tried.
    pub(crate) fn remove(&mut self) -> Result<()> {
        files::remove(&self.base.with_extension("change"))?;
        if self.synced
            && let Some(dir) = self.base.parent()
        {
            files::sync_dir(dir)?;
        }
        REST.iter().try_for_each(|extension| files::remove(&self.base.with_extension(extension)))
    }

    /// Packs with its contents that are in the store.
    pub(crate) fn stored(&self) -> &[Stored] {
        &self.stored
    }

    /// Notes a pack that is in the store now, so that nobody sends it again.
    pub(crate) fn uploaded(&mut self, pack: Stored) -> Result<()> {
        sent::add(&self.base.with_extension("packs"), &pack, self.synced)?;
        self.stored.push(pack);
        Ok(())
    }

    /// Forgets packs that can no longer be introduced.
    pub(crate) fn forget(&mut self, env: &Env, gone: impl Fn(&Stored) -> bool) -> Result<()> {
        let before = self.stored.len();
        self.stored.retain(|pack| !gone(pack));
        if self.stored.len() == before {
            return Ok(());
        }
        let lines = sent::lines(&self.stored)?;
        files::write_atomic(env, &self.temps, &self.base.with_extension("packs"), &[&lines], self.synced, false)
    }

    pub(crate) fn change(&self) -> Change {
        change(&self.row, &self.state)
    }

    pub(crate) fn pending(&self) -> Pending {
        pending(&self.row, &self.state)
    }
}

/// The row as a planner sees it.
pub(crate) fn change(row: &Row, state: &State) -> Change {
    let header = &row.header;
    Change {
        id: header.id,
        kind: header.kind.clone(),
        payload: header.payload.clone(),
        units: header.units.clone(),
        contents: row.contents.to_vec(),
        message: header.message.clone(),
        author: header.author.clone(),
        time: header.time,
        unleased: header.unleased || state.adopted,
    }
}

/// The row as people see it.
pub(crate) fn pending(row: &Row, state: &State) -> Pending {
    let header = &row.header;
    Pending {
        change: header.id,
        kind: header.kind.clone(),
        message: header.message.clone(),
        author: header.author.clone(),
        time: header.time,
        units: header.units.clone(),
        contents: row.contents.len(),
        bytes: row.contents.iter().map(Brought::size).sum(),
        status: match (&header.role, state) {
            (_, state) if state.parked => PendingStatus::Parked,
            (Role::Start { .. }, _) => PendingStatus::Starting,
            (_, state) if state.tx.is_some() => PendingStatus::Unknown,
            _ => PendingStatus::Pending,
        },
        attempts: state.attempts,
        reason: state.reason.clone(),
    }
}
