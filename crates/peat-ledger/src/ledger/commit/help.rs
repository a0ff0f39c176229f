//! Staging and helping: who lost a slot leaves its transaction under `tx/`, and whoever writes next carries it along.
//!
//! Helping is never allowed to fail the helper: what cannot be listed, read, decoded or checked is left where it is.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::{join, join_all};
use peat_objects::{List, Listed, Range};
use peat_types::{Mutation, Result, Seq, TxId, Unit};

use super::Attempt;
use crate::format::{self, Section, Staged};
use crate::ledger::local::Aboard;
use crate::ledger::{Commit, Together, busy, key};
use crate::model::TxKind;

/// Most transactions of others in one entry.
pub(super) const HELP_MAX: usize = 64;
/// Share of the largest entry that they may take up.
const HELP_SHARE: u64 = 4;
/// With more waiting than this, only as many of them as this go on, on the average.
const CROWD: usize = 4;
/// After so many waits a writer goes on in any case.
const WAITS: u32 = 6;
/// First wait, with full jitter; it grows by half with every lost slot.
const WAIT: Duration = Duration::from_millis(60);
const WAIT_MAX: Duration = Duration::from_millis(150);
/// A start that nobody committed for so long may have been given up; whoever wants it commits it alone.
const START_MAX: Duration = Duration::from_secs(10);
/// What was staged longer ago is left to its writer, who has probably gone: dead keys stay where nobody may delete.
const WAITING: Duration = Duration::from_secs(30);
/// So are bases further back than this, whatever the server's times say.
const BACK: u64 = 256;
/// What is asked for others' sake must be answered within this.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// Pages of a listing; the first holds a thousand keys, the newest bases first.
const PAGES: u32 = 3;

/// What a look around came to.
pub(super) enum Look {
    /// The attempt is over.
    Over(Commit),
    /// Keys of others who wait, newest base first.
    Peers(Vec<Listed>),
}

/// What an entry is to carry, the own section first.
pub(super) struct Load {
    pub sections: Vec<Section>,
    /// Those of this process who are taken along.
    pub aboard: Aboard,
    /// Whether others than these are carried.
    pub helps: bool,
    units: BTreeSet<Unit>,
    ids: BTreeSet<TxId>,
    /// Bytes that may still be added.
    left: u64,
}

impl Load {
    /// Whether a section fits in: no two on one unit or with one id, and not too much.
    pub(super) fn fits(&self, section: &Section) -> bool {
        let head = &section.head;
        let free = head.units.iter().all(|unit| !self.units.contains(&unit.unit)) && !self.ids.contains(&head.tx);
        free && self.sections.len() <= HELP_MAX && section.bytes.len() as u64 <= self.left
    }

    pub(super) fn add(&mut self, section: Section) {
        self.left = self.left.saturating_sub(section.bytes.len() as u64);
        self.ids.insert(section.head.tx);
        self.units.extend(section.head.units.iter().map(|unit| unit.unit.clone()));
        self.sections.push(section);
    }
}

impl Attempt<'_> {
    /// An entry's load, the own section so far.
    pub(super) fn load(&self, own: &Section) -> Load {
        let left = self.room();
        let (aboard, units, ids) = (Aboard::default(), BTreeSet::new(), BTreeSet::new());
        let mut load = Load { sections: Vec::new(), aboard, helps: false, units, ids, left };
        load.add(own.clone());
        load
    }

    /// Whether others are writing: then whoever comes must carry those who wait, or it would keep beating them.
    pub(super) fn comes_into_a_crowd(&self) -> bool {
        let env = &self.ledger.env;
        // Whoever ends a run that others get in the way of has looked already, and is in a hurry.
        if self.pressing && self.draft.kind == TxKind::End {
            return false;
        }
        let helps = self.ledger.together != Together::Alone && !env.mutated(Mutation::Starve);
        helps && self.ledger.busy.is_busy(env)
    }

    /// Whether this writer is among the few that go on when `waiting` others wait.
    pub(super) fn goes_on(&self, waiting: usize) -> bool {
        let all = waiting.saturating_add(1);
        #[allow(clippy::cast_precision_loss)] // a probability
        let chance = CROWD as f64 / all as f64;
        self.pressing || all <= CROWD || self.ledger.env.random_unit() < chance
    }

    /// Leaves the section for others, together with those that wait with it. Whatever the reply, from here on
    /// anybody may commit them.
    pub(super) async fn stage(&mut self, own: &Section) {
        let params = &self.ledger.info.params;
        if self.staged.is_some() {
            return;
        }
        let Some((body, _)) = self.group(own) else { return };
        let key = key::tx(self.planned_for, own.head.tx);
        self.staged = Some(key.clone());
        let env = &self.ledger.env;
        env.step("commit.stage").await;
        let limit = Duration::from_millis(params.create_timeout_ms);
        if let Some(Err(error)) = env.timeout(limit, self.ledger.store.put(&key, body.into())).await {
            tracing::debug!(%error, "nobody can help with this change");
        }
    }

    /// The section as others find it, together with all that wait with it.
    pub(super) fn group(&self, own: &Section) -> Option<(Vec<u8>, Aboard)> {
        if own.head.units.is_empty() {
            return None;
        }
        let encode = |base: Seq, section: &Section| format::encode_staged(self.ledger.info.ledger, base, section);
        let mut body = encode(self.planned_for, own).ok()?.to_vec();
        let room = usize::try_from(self.room()).unwrap_or(usize::MAX);
        if body.len() > room {
            return None;
        }
        let mut aboard = Aboard::default();
        let mut add = |base: Seq, section: &Section| {
            let more = encode(base, section).ok().filter(|more| body.len() + more.len() <= room);
            more.map(|more| body.extend_from_slice(&more))
        };
        for (passenger, ticket) in self.ledger.local.waiting(HELP_MAX) {
            if add(passenger.planned_for, &passenger.section).is_some() {
                aboard.take(ticket);
            }
        }
        for (base, section) in self.beside() {
            add(base, &section);
        }
        Some((body, aboard))
    }

    /// Bytes of others in one entry.
    pub(super) fn room(&self) -> u64 {
        self.ledger.info.params.entry_max / HELP_SHARE
    }

    /// Takes the staged transaction away, when it is settled. Best effort: a right to delete is not needed.
    pub(super) async fn unstage(&mut self) {
        if let Some(key) = self.staged.take() {
            self.ledger.env.step("commit.unstage").await;
            let _ = self.ledger.env.timeout(PATIENCE, self.ledger.store.delete(&key)).await;
        }
    }

    /// Waits until it is this writer's turn to try again; the base is then the head as far as is known.
    pub(super) async fn wait(&mut self, losses: u32) -> Result<Look> {
        let env = self.ledger.env.clone();
        let mut limit = WAIT.mul_f64(1.5_f64.powi(i32::try_from(losses.min(8)).unwrap_or(8) - 1)).min(WAIT_MAX);
        let mut waits = 0;
        loop {
            env.sleep(env.jitter(limit)).await;
            waits += 1;
            let look = self.look().await?;
            match &look {
                Look::Peers(peers) if waits < WAITS && !self.goes_on(peers.len()) && env.monotonic() < self.give_up => {
                }
                _ => return Ok(look),
            }
            limit = WAIT;
        }
    }

    /// One look around: who waits, and what was committed meanwhile.
    pub(super) async fn look(&mut self) -> Result<Look> {
        self.ledger.env.step("commit.look").await;
        let (listed, entries) = join(self.listed(), self.ahead()).await;
        let Some(entries) = entries? else { return Ok(Look::Over(super::void())) };
        if let Some(over) = self.absorb(entries).await? {
            return Ok(Look::Over(over));
        }
        Ok(Look::Peers(self.waiting(listed)))
    }

    /// Those of the keys whose transactions are probably still waited for.
    fn waiting(&self, listed: Vec<Listed>) -> Vec<Listed> {
        let server = self.ledger.busy.server_now(&self.ledger.env);
        let now = listed.iter().filter_map(|peer| peer.last_modified).chain(server).max();
        let longest = i64::try_from(WAITING.as_millis()).unwrap_or(i64::MAX);
        // Who does not know counts everybody.
        let recent = |peer: &Listed| now.zip(peer.last_modified).is_none_or(|(now, at)| now.millis_since(at) < longest);
        listed.into_iter().filter(|peer| recent(peer) && self.may_matter(peer)).collect()
    }

    /// The newest keys under `tx/`: as a rule one page.
    async fn listed(&self) -> Vec<Listed> {
        let read = async {
            let mut list = List { prefix: key::TX.to_owned(), ..List::default() };
            let mut all = Vec::new();
            for _ in 0..PAGES {
                let Ok(page) = self.ledger.store.list(&list).await else { break };
                let old = page.keys.iter().any(|listed| {
                    key::tx_parts(&listed.key).is_some_and(|(base, _)| base.0.saturating_add(BACK) < self.base.seq.0)
                });
                all.extend(page.keys);
                match page.token {
                    // The order is newest first: what follows is older still.
                    Some(token) if !old && all.len() < HELP_MAX => list.token = Some(token),
                    _ => break,
                }
            }
            // Correct without the order, too.
            all.sort_unstable_by(|a, b| a.key.cmp(&b.key));
            all
        };
        self.ledger.env.timeout(PATIENCE, read).await.unwrap_or_default()
    }

    fn may_matter(&self, listed: &Listed) -> bool {
        let next = self.base.seq.next();
        key::tx_parts(&listed.key).is_some_and(|(base, tx)| {
            // What was planned on a newer entry cannot be judged here, and the slot it wants is not the next one.
            let near = base <= next && base.0.saturating_add(BACK) >= next.0;
            near && base > self.base.root.horizon && tx != self.draft.tx && !self.ledger.busy.is_settled(tx)
        })
    }

    /// Adds what may be committed on the base together with the load (R1, R2, R3) of what strangers staged.
    pub(super) async fn carry(&self, load: &mut Load, peers: &[Listed]) {
        // Where everything is added up in the end the limits hold for all together.
        let room = self.room();
        let wanted = peers.iter().filter(|peer| peer.size <= room).take(HELP_MAX);
        let read = join_all(wanted.map(|peer| self.eligible(peer))).await;
        for section in read.into_iter().flatten() {
            if load.fits(&section) {
                load.helps = true;
                load.add(section);
            }
        }
    }

    /// The transactions under a key that may be committed on the base.
    async fn eligible(&self, peer: &Listed) -> Vec<Section> {
        let ledger = self.ledger;
        let read = ledger.store.get(&peer.key, Range::All);
        let read = ledger.env.timeout(PATIENCE, read).await;
        let (Some(Ok(Some(object))), Some((base, tx))) = (read, key::tx_parts(&peer.key)) else { return Vec::new() };
        let group = format::decode_group(&object.bytes).unwrap_or_default();
        let named = group.first().is_some_and(|first| (first.base, first.section.head.tx) == (base, tx));
        let (mut out, mut matters) = (Vec::new(), false);
        for staged in group.into_iter().filter(|staged| named && self.is_valid(staged)) {
            match staged.section.head.kind {
                _ if staged.base > self.base.seq.next() => {
                    matters = true;
                    continue;
                }
                TxKind::Change | TxKind::End | TxKind::Abort => {}
                TxKind::Start if busy::age(&object.meta).is_some_and(|age| age < START_MAX) => {}
                TxKind::Start | TxKind::Genesis | TxKind::Moved | TxKind::Checkpoint | TxKind::Gc | TxKind::Pin => {
                    matters = true;
                    continue;
                }
            }
            match self.check(&staged.section).await {
                Ok(None) => out.push(staged.section),
                // Final for its id (R7).
                Ok(Some(_)) => {}
                Err(_) => matters = true,
            }
        }
        if out.is_empty() && !matters {
            ledger.busy.settled([tx]);
        }
        out
    }

    pub(super) fn is_valid(&self, staged: &Staged) -> bool {
        staged.ledger == self.ledger.info.ledger && staged.base > self.base.root.horizon
    }
}
