//! What is no longer kept: raising the floors, and naming what may go.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_trait::async_trait;
use peat_objects::Listed;
use peat_types::{Error, InstanceId, Kind, Mutation, Result, Seq, Timestamp, TxId};

use super::enter::{Build, Entered, Mark, enter};
use super::{Collected, Collecting, Doomed, GcPlan};
use crate::format;
use crate::format::maintain::{Maintenance, section};
use crate::format::page::TreeKind;
use crate::format::row::{pack_key, read_pack_key, read_pack_value};
use crate::format::tree::prefixed;
use crate::format::tree_write::Edit;
use crate::ledger::pages::{NoCache, Pages};
use crate::ledger::{Ledger, key, log};
use crate::model::{Entry, Ref, Root, Segment, State, TxKind};

/// Uploads for a slot older than this are no longer introduced.
const HORIZON: Duration = Duration::from_secs(24 * 3600);
/// A beat, or an object of a probe, that was not written for so long is nobody's.
const SILENT: Duration = Duration::from_secs(24 * 3600);
/// How much longer than `fresh` a state is kept at least.
const SLACK: u32 = 12;

/// The shortest retention: clients rely on slots staying for `fresh` by their own clocks.
pub(super) fn shortest(ledger: &Ledger) -> Duration {
    Duration::from_millis(ledger.info.params.fresh_ms) * SLACK
}

/// Times a plan is made again because another collector was faster.
const PLANS: u32 = 3;

pub(super) async fn plan(ledger: &Ledger, how: &Collecting) -> Result<GcPlan> {
    let mut tries = 1;
    loop {
        match Box::pin(look(ledger, how)).await {
            // What the head said a moment ago may have been cleared away since.
            Err(error) if Ledger::is_gone(&error) && tries < PLANS => tries += 1,
            planned => return planned,
        }
    }
}

async fn look(ledger: &Ledger, how: &Collecting) -> Result<GcPlan> {
    let least = shortest(ledger);
    if how.keep < least {
        let hours = least.as_secs().div_ceil(3600);
        return Err(Error::invalid(format!("states must be kept for at least {hours} hours"))
            .with_hint(format!("give '--keep {hours}h' or more: clones that looked at the store lately rely on it")));
    }
    let (head, meta) = ledger.head_seen(ledger.known(Seq::ZERO)).await?;
    let mut pages = Pages::new(ledger, &NoCache);
    pages.hold(head.state.seq, head.body);
    let (time, state) = (head.time, head.state);
    let times = Times {
        now: meta.date.map_or(ledger.env.now(), |date| date.min(ledger.env.now())),
        listed: log::list_all(ledger, key::LOG).await?,
    };
    let root = &state.root;
    let slots = times.slots(&state);
    let (floor, low) = floor(ledger, &times, &slots, (&state, time), how.keep).await?;
    let horizon = times.newest(&slots, &state, root.horizon, HORIZON).max(floor).max(root.horizon);
    let reach = if ledger.env.mutated(Mutation::NoMinlog) { floor } else { floor.min(low) };
    let keep = reach.max(root.keep);

    ledger.read_from(root.packs, pages.prefetch_trees(root.packs.into_iter().collect()).await).await?;
    let mut kept = BTreeSet::new();
    let mut pruned = 0;
    for (dropped, base, id, row) in format::packs(&state, &pages).await? {
        if dropped && row.seq <= floor {
            pruned += 1;
        } else {
            kept.insert(Segment::Pack(base, id));
        }
    }
    let to = Root { floor, horizon, keep, ..root.clone() };
    let judge = Judge { root: &to, packs: &kept };
    let mut doomed = Vec::new();
    let mut retained = 0;
    for listed in &times.listed {
        match key::log_seq(&listed.key) {
            Some(seq) if judge.slot(seq) && times.rested(listed, least) => doomed.push(Doomed::of(listed)),
            _ => retained += listed.size,
        }
    }
    for prefix in [key::PACK, key::TX, key::BEAT, key::PROBE] {
        for listed in log::list_all(ledger, prefix).await? {
            let silent = ![key::BEAT, key::PROBE].contains(&prefix) || times.silent(&listed);
            if silent && judge.may_go(&listed.key) {
                doomed.push(Doomed::of(&listed));
            } else {
                retained += listed.size;
            }
        }
    }
    let held_by = root.pins.iter().filter(|(_, seq)| *seq <= floor).map(|(name, _)| name.clone()).next();
    Ok(GcPlan {
        head: state.seq,
        floor: (root.floor, floor),
        horizon: (root.horizon, horizon),
        keep: (root.keep, keep),
        pruned,
        held_by,
        doomed,
        retained,
    })
}

/// F', and the lowest slot that it and later states refer to.
async fn floor(
    ledger: &Ledger,
    times: &Times,
    slots: &BTreeMap<Seq, Option<Timestamp>>,
    (state, time): (&State, Timestamp),
    keep: Duration,
) -> Result<(Seq, Seq)> {
    let root = &state.root;
    let mut floor = times.newest(slots, state, root.floor, keep);
    if let Some(pin) = root.pins.iter().map(|(_, seq)| *seq).min() {
        floor = floor.min(pin).max(root.floor);
    }
    let mut step = 1;
    loop {
        let (time, low) = if floor == state.seq {
            (time, root.minlog)
        } else {
            let at = Ref { segment: Segment::Log(floor), off: 0, len: 0 };
            let glance = match ledger.glance(floor).await {
                Ok(glance) => glance.ok_or_else(|| ledger.gone(&at))?,
                Err(error) => return Err(ledger.unless_gone(&at, error).await),
            };
            (glance.time, glance.state.root.minlog)
        };
        // A writer whose clock is ahead of now proves nothing; otherwise the later of both times counts.
        let contradicts = time <= times.now && time > times.before(keep);
        if !contradicts || floor == root.floor {
            return Ok((floor, low));
        }
        floor = Seq(floor.0.saturating_sub(step)).max(root.floor);
        step *= 2;
    }
}

/// What the store says about when things were written.
struct Times {
    /// Not later than it is.
    now: Timestamp,
    listed: Vec<Listed>,
}

impl Times {
    fn before(&self, age: Duration) -> Timestamp {
        let millis = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_millis(self.now.as_millis().saturating_sub(millis))
    }

    /// When each valid slot was written.
    fn slots(&self, state: &State) -> BTreeMap<Seq, Option<Timestamp>> {
        let valid = |seq: &Seq| (state.root.keep..=state.seq).contains(seq);
        let all = self.listed.iter().filter_map(|listed| Some((key::log_seq(&listed.key)?, listed.last_modified)));
        all.filter(|(seq, _)| valid(seq)).collect()
    }

    /// The newest entry, not below `from`, that it and all before it are at least `age` old. What is not known is young.
    fn newest(&self, slots: &BTreeMap<Seq, Option<Timestamp>>, state: &State, from: Seq, age: Duration) -> Seq {
        let limit = self.before(age);
        let mut newest = from;
        let mut next = from;
        for (seq, at) in slots.range(from..=state.seq) {
            if *seq != next || at.is_none_or(|at| at > limit) {
                break;
            }
            newest = *seq;
            next = seq.next();
        }
        newest
    }

    /// Whether a void slot was left alone for so long. A purge makes slots void at once: they stay taken until nobody who
    /// looked before it relies on that.
    fn rested(&self, listed: &Listed, least: Duration) -> bool {
        listed.last_modified.is_some_and(|at| at <= self.before(least))
    }

    fn silent(&self, listed: &Listed) -> bool {
        listed.last_modified.is_some_and(|at| at <= self.before(SILENT))
    }
}

/// R4 and R5: what may go by what an entry of the log says, and stays so for ever.
pub(super) struct Judge<'a> {
    pub(super) root: &'a Root,
    /// Packs in the table, live or dropped.
    pub(super) packs: &'a BTreeSet<Segment>,
}

impl Judge<'_> {
    pub(super) fn slot(&self, seq: Seq) -> bool {
        seq < self.root.keep
    }

    pub(super) fn may_go(&self, name: &str) -> bool {
        if let Some(seq) = key::log_seq(name) {
            return self.slot(seq);
        }
        if let Some(segment) = key::pack_segment(name) {
            let Segment::Pack(base, _) = segment else { return false };
            return base <= self.root.horizon && !self.packs.contains(&segment);
        }
        // By its age alone: no entry knows it.
        if name.starts_with(key::PROBE) {
            return true;
        }
        let base = key::tx_parts(name).map(|(base, _): (Seq, TxId)| base);
        let base = base.or_else(|| key::beat_parts(name).map(|(base, _): (Seq, InstanceId)| base));
        base.is_some_and(|base| base <= self.root.horizon)
    }
}

/// Carries a plan out: the entry, then the sweep.
pub(super) async fn run(
    ledger: &Ledger,
    plan: &GcPlan,
    how: &Collecting,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Collected> {
    let give_up = ledger.env.monotonic() + how.patience;
    let Entry { state: base, body, .. } = ledger.head_entry(ledger.known(plan.head)).await?;
    let mut pages = Pages::new(ledger, &NoCache);
    pages.hold(base.seq, body);
    let unpublished = ledger.env.mutated(Mutation::NoFloorObj);
    let mut floors = Floors { mark: Mark::new(ledger, &how.author), plan, unpublished };
    let (entered, head) = match enter(ledger, base, pages, &mut floors, give_up).await? {
        Entered::Yes(entry, head) => (Some(entry.state.seq), *head),
        // Nothing to raise, or the entry came to nothing: what the head says may go in any case.
        Entered::Void => (None, ledger.head_entry(ledger.known(plan.head)).await?),
        Entered::Late(error) => return Err(error.context("the floors were not raised")),
        Entered::Unknown(error) => return Err(error.context("whether the floors were raised is not known")),
    };
    ledger.env.step("gc.sweep").await;
    let mut judged_by = head;
    if ledger.env.mutated(Mutation::StaleLive)
        && let Ok(Some(old)) = ledger.entry(Seq(judged_by.state.seq.0.saturating_sub(4))).await
    {
        judged_by.state.root.packs = old.state.root.packs;
    }
    if unpublished {
        judged_by.state.root.keep = plan.keep.1;
    }
    sweep(ledger, plan, &judged_by, entered, give_up, progress).await
}

/// Whether no pin keeps a state below `floor`.
///
/// # Errors
/// `Conflict` with code `pinned`.
pub(super) fn not_pinned(root: &Root, floor: Seq) -> Result<()> {
    let Some((name, at)) = root.pins.iter().find(|(_, at)| *at < floor) else { return Ok(()) };
    Err(Error::new(Kind::Conflict, format!("pin '{name}' keeps the state of entry {at}"))
        .with_code("pinned")
        .with_hint(format!("remove it with 'peat pin rm {name}', if nobody needs that state, and run this again")))
}

/// Raises the floors to `floor` at once, with no regard to who relies on what is below (a purge overwrites slots before
/// it lets them go). Gives the head that says so.
pub(super) async fn raise(ledger: &Ledger, floor: Seq, author: &str, give_up: Duration) -> Result<State> {
    for _ in 0..PLANS {
        let Entry { state: base, body, .. } = ledger.head_entry(ledger.known(floor)).await?;
        let old = base.root.clone();
        not_pinned(&old, floor)?;
        let low = if floor == base.seq {
            old.minlog
        } else {
            let at = Ref { segment: Segment::Log(floor), off: 0, len: 0 };
            let glance = ledger.glance(floor).await?.ok_or_else(|| ledger.gone(&at))?;
            glance.state.root.minlog
        };
        let plan = GcPlan {
            head: base.seq,
            floor: (old.floor, floor.max(old.floor)),
            horizon: (old.horizon, floor.max(old.horizon)),
            keep: (old.keep, floor.min(low).max(old.keep)),
            pruned: 0,
            held_by: None,
            doomed: Vec::new(),
            retained: 0,
        };
        let mut pages = Pages::new(ledger, &NoCache);
        pages.hold(base.seq, body);
        let mut floors = Floors { mark: Mark::new(ledger, author), plan: &plan, unpublished: false };
        let head = match enter(ledger, base, pages, &mut floors, give_up).await? {
            Entered::Yes(_, head) => head.state,
            Entered::Void => ledger.head_entry(ledger.known(floor)).await?.state,
            Entered::Late(error) | Entered::Unknown(error) => {
                return Err(error
                    .context("whether the floors were raised is not known")
                    .with_hint("run the command again: it goes on where it stopped"));
            }
        };
        if head.root.floor >= plan.floor.1 && head.root.keep >= plan.keep.1 && head.root.horizon >= plan.horizon.1 {
            return Ok(head);
        }
    }
    Err(Error::new(Kind::Contended, "others moved the ledger on each time").with_hint("run the command again"))
}

/// Deletes what the plan names, as far as the head of the log lets it go.
async fn sweep(
    ledger: &Ledger,
    plan: &GcPlan,
    head: &Entry,
    entry: Option<Seq>,
    give_up: Duration,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Collected> {
    let mut pages = Pages::new(ledger, &NoCache);
    pages.hold(head.state.seq, head.body.clone());
    let head = &head.state;
    pages.prefetch_trees(head.root.packs.into_iter().collect()).await?;
    let rows = format::packs(head, &pages).await?;
    let packs: BTreeSet<Segment> = rows.into_iter().map(|(_, base, id, _)| Segment::Pack(base, id)).collect();
    let judge = Judge { root: &head.root, packs: &packs };
    let mut out = Collected { entry, ..Collected::default() };
    let of = plan.doomed.len() as u64;
    super::sweep::delete(ledger, &plan.doomed, &|name| judge.may_go(name), give_up, &mut out, &|done| {
        progress(done, of);
    })
    .await?;
    Ok(out)
}

/// The entry that raises the floors.
struct Floors<'a> {
    mark: Mark,
    plan: &'a GcPlan,
    /// K is kept to oneself: a rule that a test switched off.
    unpublished: bool,
}

#[async_trait]
impl Build for Floors<'_> {
    fn pass(&mut self, _: &Entry) -> bool {
        // Whatever it says, the floors can be raised on top of it.
        true
    }

    async fn build(&mut self, base: &State, pages: &Pages<'_>) -> Result<Option<Maintenance>> {
        let old = &base.root;
        // Somebody may have pinned a state or raised the floors since the plan was made.
        let pin = old.pins.iter().map(|(_, seq)| *seq).min().unwrap_or(Seq(u64::MAX));
        let mut root = Root {
            floor: self.plan.floor.1.min(pin).max(old.floor),
            horizon: self.plan.horizon.1.max(old.horizon),
            ..old.clone()
        };
        // K was found for the floor of the plan; the state at a lower one may refer to lower slots.
        if root.floor >= self.plan.floor.1 && !self.unpublished {
            root.keep = self.plan.keep.1.max(old.keep);
        }
        let mut packs = Vec::new();
        for (key, value) in prefixed(old.packs.as_ref(), TreeKind::Packs, &[1], pages).await? {
            let (_, base, id) = read_pack_key(&key)?;
            if read_pack_value(&value)?.seq <= root.floor {
                packs.push(Edit { key: pack_key(true, base, id), value: None });
            }
        }
        let same = (root.floor, root.horizon, root.keep) == (old.floor, old.horizon, old.keep);
        if same && packs.is_empty() {
            return Ok(None);
        }
        Ok(Some(Maintenance {
            kind: TxKind::Gc,
            tx: self.mark.tx,
            change: self.mark.change,
            author: self.mark.author.clone(),
            message: format!("garbage collection: states from entry {} on are kept", root.floor),
            root,
            directory: Vec::new(),
            packs,
            introduced: Vec::new(),
            section: section()?,
        }))
    }
}
