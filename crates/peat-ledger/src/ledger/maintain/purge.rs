//! Removing an item from the present and from history, for good. See `docs/design/014-purge.md`.
//!
//! Every step can be done again by anybody, and each run looks at what is left to be done.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use peat_types::{ChangeId, Error, Hash, ItemPath, Kind, Result, Seq, TxId, Unit};

use super::checkpoint::checkpoint_clean;
use super::collect::{Judge, not_pinned, raise};
use super::{Checkpoint, Checkpointing, Collected, Doomed};
use crate::format;
use crate::ledger::pages::{NoCache, Pages, fetch};
use crate::ledger::{Again, Commit, Ledger, Tables, contents, key, log};
use crate::model::{Content, Draft, DraftUnit, FileRow, NewContent, Op, OpRecord, Rank, Ref, Segment, State, TxKind};

/// Units whose tables are read together.
const UNITS: usize = 256;
/// Bytes of blocks that are read together.
const BATCH: u64 = 16 << 20;
/// Bytes and rows of one transaction.
const TX: (u64, usize) = (4 << 20, 256);
/// Times the present is looked at again because others changed it.
const ROUNDS: u32 = 50;
/// Slots overwritten at once.
const PARALLEL: usize = 16;

/// What is to be purged, and by whom.
#[derive(Clone, Debug)]
pub struct Purging {
    /// The unit.
    pub unit: Unit,
    /// The items, or folders of items.
    pub paths: Vec<ItemPath>,
    /// Who, for people: `user@host`.
    pub author: String,
    /// How long to try.
    pub patience: Duration,
}

impl Purging {
    fn meets(&self, path: &ItemPath) -> bool {
        let within = |rest: &str| rest.is_empty() || rest.starts_with('/');
        self.paths.iter().any(|wanted| path.as_str().strip_prefix(wanted.as_str()).is_some_and(within))
    }
}

/// What a purge will do. Nothing is changed by making one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PurgePlan {
    /// The state it was made on.
    pub head: Seq,
    /// Items that are there now, and their sizes.
    pub items: Vec<(ItemPath, u64)>,
    /// Whether entries that are kept tell of such items.
    pub in_history: bool,
    /// Items that share a block with what must go, and so are stored again as new bytes; with their sizes.
    pub again: Vec<(Unit, ItemPath, u64)>,
    /// Items elsewhere with the same bytes. They are not touched, and hold what is to be removed.
    pub twins: Vec<(Unit, ItemPath)>,
    /// The oldest state that can be read now; all from it up to the end of the purge go.
    pub floor: Seq,
    /// Pins that keep such states.
    pub pins: Vec<(String, Seq)>,
    /// Entries that are overwritten or go.
    pub entries: u64,
    /// Entries among them that are void already: an earlier purge was interrupted, or somebody may not delete.
    pub unfinished: u64,
    /// Bytes of packs, as far as they may have to be rewritten.
    pub pack_bytes: u64,
}

/// What a purge did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    /// Items that were removed from the present.
    pub items: u64,
    /// Items that were stored again.
    pub again: u64,
    /// The state that is the oldest one now.
    pub floor: Seq,
    /// Entries that were overwritten.
    pub overwritten: u64,
    /// Objects that are gone, that could not be removed, and why.
    pub collected: Collected,
}

/// A row of the present.
struct Row {
    unit: usize,
    path: ItemPath,
    rank: Rank,
    row: FileRow,
}

/// The present, as far as a purge is concerned.
struct Present {
    state: State,
    /// When that was known to be the newest.
    read_at: Duration,
    units: Vec<(Unit, Seq)>,
    /// What is to be removed.
    targets: Vec<Row>,
    /// What shares a block with it, or with something that nothing refers to any more.
    again: Vec<Row>,
    twins: Vec<(Unit, ItemPath)>,
}

impl Present {
    fn is_clean(&self) -> bool {
        self.targets.is_empty() && self.again.is_empty()
    }
}

pub(super) async fn plan(ledger: &Ledger, what: &Purging) -> Result<PurgePlan> {
    check(what)?;
    let present = look(ledger, what).await?;
    let root = &present.state.root;
    let entries = log::list_all(ledger, key::LOG).await?;
    let stub = format::void_slot().len() as u64;
    let slots = entries.iter().filter_map(|listed| Some((key::log_seq(&listed.key)?, listed.size)));
    let (void, valid): (Vec<_>, Vec<_>) = slots.partition(|(seq, _)| *seq < root.keep);
    let unfinished = void.iter().filter(|(_, size)| *size != stub).count() as u64;
    let entries = valid.len() as u64 + unfinished;
    let in_history = !present.targets.is_empty() || in_history(ledger, what, &present.state).await?;
    let packs = log::list_all(ledger, key::PACK).await?;
    Ok(PurgePlan {
        head: present.state.seq,
        items: present.targets.iter().map(|row| (row.path.clone(), row.row.size)).collect(),
        in_history,
        again: present
            .again
            .iter()
            .map(|row| (present.units[row.unit].0.clone(), row.path.clone(), row.row.size))
            .collect(),
        twins: present.twins,
        floor: root.floor,
        pins: root.pins.clone(),
        entries,
        unfinished,
        pack_bytes: packs.iter().map(|listed| listed.size).sum(),
    })
}

fn check(what: &Purging) -> Result<()> {
    if what.paths.iter().any(|path| path.as_str().split('/').next() == Some("leases")) {
        return Err(Error::invalid("a lease cannot be purged: it says who may change the model"));
    }
    Ok(())
}

/// Whether an entry that is kept tells of such an item.
async fn in_history(ledger: &Ledger, what: &Purging, state: &State) -> Result<bool> {
    let mut next = Pages::new(ledger, &NoCache).unit(state, &what.unit).await?.map(|row| row.last_seq);
    while let Some(seq) = next.filter(|seq| *seq >= state.root.keep) {
        let Some(entry) = ledger.entry(seq).await? else { break };
        let named = |op: &OpRecord| match op {
            OpRecord::Put(path, ..) | OpRecord::Delete(path) | OpRecord::Rank(path, _) => what.meets(path),
        };
        let ops = entry.ops.iter().flatten().filter(|unit| unit.unit == what.unit);
        if ops.flat_map(|unit| &unit.ops).any(named) {
            return Ok(true);
        }
        let changed = entry.txs.iter().flat_map(|tx| &tx.units).find(|changed| changed.unit == what.unit);
        next = changed.and_then(|changed| changed.expected);
    }
    Ok(false)
}

/// Reads all tables, and those blocks that may hold more than one content.
async fn look(ledger: &Ledger, what: &Purging) -> Result<Present> {
    let read_at = ledger.env.monotonic();
    let entry = ledger.head_entry(ledger.known(Seq::ZERO)).await?;
    let state = entry.state;
    let mut pages = Pages::new(ledger, &NoCache);
    pages.hold(state.seq, entry.body);
    let directory = ledger.read_from(state.root.directory, pages.directory(&state).await).await?;
    let units: Vec<(Unit, Seq)> = directory.iter().map(|(unit, row)| (unit.clone(), row.last_seq)).collect();
    let (mut targets, mut others) = (Vec::new(), Vec::new());
    for (n, batch) in directory.chunks(UNITS).enumerate() {
        let rows: Vec<_> = batch.iter().map(|(_, row)| row).collect();
        let tables = Tables::ahead(ledger, &rows, &NoCache).await?;
        for (m, row) in rows.into_iter().enumerate() {
            let unit = n * UNITS + m;
            for (rank, path, row) in tables.files(row).await? {
                let target = units[unit].0 == what.unit && what.meets(&path);
                let rows = if target { &mut targets } else { &mut others };
                rows.push(Row { unit, path, rank, row });
            }
        }
    }
    let hashes: BTreeSet<Hash> = targets.iter().map(|row| row.row.hash).collect();
    let empty = |row: &Row| row.row.size == 0;
    let twins = others.iter().filter(|row| !empty(row) && hashes.contains(&row.row.hash));
    let twins = twins.map(|row| (units[row.unit].0.clone(), row.path.clone())).collect();
    let dirty = dirty(ledger, &targets, &others).await?;
    others.retain(|row| row.row.content.blocks().iter().any(|at| dirty.contains(at)));
    Ok(Present { state, read_at, units, targets, again: others, twins })
}

/// Blocks that hold a target, or bytes that nothing refers to: those may be of an item that was deleted before.
async fn dirty(ledger: &Ledger, targets: &[Row], others: &[Row]) -> Result<BTreeSet<Ref>> {
    let mut dirty: BTreeSet<Ref> = targets.iter().flat_map(|row| row.row.content.blocks()).collect();
    let mut parts: BTreeMap<Ref, BTreeSet<(u32, u64)>> = BTreeMap::new();
    for row in others {
        if let Content::At(at) = &row.row.content
            && !dirty.contains(&at.block)
        {
            parts.entry(at.block).or_default().insert((at.sub, row.row.size));
        }
    }
    // What is larger than a block of several contents has one of its own.
    let limit = ledger.info.params.inline_file;
    parts.retain(|_, parts| parts.iter().all(|(_, size)| *size <= limit));
    let mut wanted = BTreeSet::new();
    let mut bytes = 0;
    let mut left = parts.len();
    for at in parts.keys() {
        wanted.insert(*at);
        bytes += u64::from(at.len);
        left -= 1;
        if bytes >= BATCH || left == 0 {
            for (at, record) in fetch(ledger, std::mem::take(&mut wanted)).await? {
                let live: u64 = parts.get(&at).into_iter().flatten().map(|(_, size)| size).sum();
                if format::open_block(&record)?.len() as u64 != live {
                    dirty.insert(at);
                }
            }
            bytes = 0;
        }
    }
    Ok(dirty)
}

/// Carries a purge out, as far as is left to be done.
pub(super) async fn run(ledger: &Ledger, what: &Purging, progress: &(dyn Fn(u64, u64) + Sync)) -> Result<Purged> {
    check(what)?;
    let give_up = ledger.env.monotonic() + what.patience;
    let mut out = Purged::default();
    let mut rounds = 0;
    let floor = loop {
        rounds += 1;
        if rounds > ROUNDS || ledger.env.monotonic() >= give_up {
            return Err(Error::new(Kind::Contended, "others changed the same models each time")
                .with_hint("nothing is lost: run the command again, it goes on where it stopped"));
        }
        match Box::pin(look(ledger, what)).await {
            Ok(present) if present.is_clean() => not_pinned(&present.state.root, present.state.seq)?,
            Ok(present) => {
                // What is refused at the end must not have removed the present by then.
                not_pinned(&present.state.root, present.state.seq.next())?;
                Box::pin(rewrite(ledger, what, present, give_up, &mut out)).await?;
                continue;
            }
            Err(error) if Ledger::is_gone(&error) => continue,
            Err(error) => return Err(error),
        }
        // From here on nothing of the present is where it was, nor next to it.
        ledger.env.step("purge.checkpoint").await;
        let how = Checkpointing { author: what.author.clone(), force: true, full: true, patience: what.patience };
        match Box::pin(checkpoint_clean(ledger, &how)).await? {
            Checkpoint::Done { seq, .. } => {
                // Somebody may have pointed at what is to go until just now.
                if Box::pin(look(ledger, what)).await?.is_clean() {
                    break seq;
                }
            }
            Checkpoint::NotDue(_) => break ledger.head_entry(ledger.known(Seq::ZERO)).await?.state.seq,
            Checkpoint::Later(why) => return Err(Error::new(Kind::Contended, why).context("no checkpoint was made")),
        }
    };
    ledger.env.step("purge.raise").await;
    let head = Box::pin(raise(ledger, floor, &what.author, give_up)).await?;
    out.floor = head.root.floor;
    ledger.env.step("purge.sweep").await;
    Box::pin(sweep(ledger, &head, give_up, &mut out, progress)).await?;
    Ok(out)
}

/// Removes the targets from the present, and stores again what shares a block with what must go.
async fn rewrite(ledger: &Ledger, what: &Purging, present: Present, give_up: Duration, out: &mut Purged) -> Result<()> {
    let Present { mut state, read_at, units, targets, again, .. } = present;
    let mut by_unit: BTreeMap<usize, (Vec<Row>, Vec<Row>)> = BTreeMap::new();
    for row in targets {
        by_unit.entry(row.unit).or_default().0.push(row);
    }
    for row in again {
        by_unit.entry(row.unit).or_default().1.push(row);
    }
    for (unit, (targets, again)) in by_unit {
        let (unit, mut expected) = units[unit].clone();
        let mut ops: Vec<Op> =
            targets.iter().map(|row| Op::Delete { path: row.path.clone(), rank: row.rank }).collect();
        let (mut left, mut bytes, mut stored) = (again.len(), 0, 0);
        if again.is_empty() {
            let sent = commit(ledger, what, (&state, read_at), (&unit, expected), ops, give_up).await?;
            let Some(next) = sent else { return Ok(()) };
            state = next;
            out.items += targets.len() as u64;
            continue;
        }
        for row in again {
            let content = fresh(ledger, state.seq.next(), &row.row, give_up).await?;
            bytes += row.row.size;
            left -= 1;
            stored += 1;
            ops.push(Op::Put {
                path: row.path,
                rank: row.rank,
                old: Some(row.rank),
                executable: row.row.executable,
                content,
            });
            if bytes >= TX.0 || ops.len() >= TX.1 || left == 0 {
                let sent =
                    commit(ledger, what, (&state, read_at), (&unit, expected), std::mem::take(&mut ops), give_up)
                        .await?;
                // Others were faster: the present is looked at again.
                let Some(next) = sent else { return Ok(()) };
                expected = next.seq;
                state = next;
                out.again += std::mem::take(&mut stored);
                bytes = 0;
            }
        }
        out.items += targets.len() as u64;
    }
    Ok(())
}

/// The content of a row, to be stored where nothing else is: a large one is there already, in packs for the slot `base`.
async fn fresh(ledger: &Ledger, base: Seq, row: &FileRow, give_up: Duration) -> Result<NewContent> {
    if !matches!(row.content, Content::Parts(_)) {
        let content = contents::contents(ledger, &[row], &[]).await?.pop().unwrap_or_else(Bytes::new);
        return Ok(NewContent::Bytes(content));
    }
    let (mut again, patience) = (Again::default(), give_up.saturating_sub(ledger.env.monotonic()));
    ledger.store_again(base, &[row], &mut again, &|_, _, _| Ok(None), patience, &mut |_| Ok(())).await?;
    again.content(row).ok_or_else(|| Error::internal("a content was not stored again"))
}

/// One transaction; `None` when others were faster, or nobody knows.
async fn commit(
    ledger: &Ledger,
    what: &Purging,
    (state, read_at): (&State, Duration),
    (unit, expected): (&Unit, Seq),
    ops: Vec<Op>,
    give_up: Duration,
) -> Result<Option<State>> {
    let env = &ledger.env;
    let draft = Draft {
        tx: TxId::random(env),
        change: ChangeId::random(env),
        kind: TxKind::Change,
        author: what.author.clone(),
        message: format!("purge of {}", what.paths.first().map_or("nothing", |path| path.as_str())),
        time: env.now(),
        guard: None,
        units: vec![DraftUnit { unit: unit.clone(), expected: Some(expected), ops }],
    };
    env.step("purge.rewrite").await;
    let patience = give_up.saturating_sub(env.monotonic());
    let patience = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
    match ledger.commit(state, read_at, &draft, &NoCache, patience).await? {
        Commit::Committed { entry, .. } => Ok(Some(entry.state)),
        Commit::Lost { .. } => Ok(None),
        Commit::Unknown { error, .. } | Commit::Refused { error, .. } => Err(error
            .context("the purge was interrupted")
            .with_hint("run the command again: it goes on where it stopped")),
    }
}

/// Removes all that H lets go, and overwrites what lies in slots below K.
async fn sweep(
    ledger: &Ledger,
    head: &State,
    give_up: Duration,
    out: &mut Purged,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<()> {
    let pages = Pages::new(ledger, &NoCache);
    ledger.read_from(head.root.packs, pages.prefetch_trees(head.root.packs.into_iter().collect()).await).await?;
    let rows = format::packs(head, &pages).await?;
    let packs: BTreeSet<Segment> = rows.into_iter().map(|(_, base, id, _)| Segment::Pack(base, id)).collect();
    let judge = Judge { root: &head.root, packs: &packs };
    let stub = Bytes::from(format::void_slot());
    let mut slots = Vec::new();
    for listed in log::list_all(ledger, key::LOG).await? {
        let void = key::log_seq(&listed.key).is_some_and(|seq| judge.slot(seq));
        if void && listed.size != stub.len() as u64 {
            slots.push(listed);
        }
    }
    let mut doomed = Vec::new();
    for prefix in [key::PACK, key::TX] {
        let listed = log::list_all(ledger, prefix).await?;
        doomed.extend(listed.iter().filter(|listed| judge.may_go(&listed.key)).map(Doomed::of));
    }
    let of = (slots.len() + doomed.len()) as u64;
    let judged = |name: &str| judge.may_go(name);
    // Slots last: as long as one is not overwritten it can be seen that something is left to be done.
    super::sweep::delete(ledger, &doomed, &judged, give_up, &mut out.collected, &|done| progress(done, of)).await?;
    let mut done = doomed.len() as u64;
    for batch in slots.chunks(PARALLEL) {
        let puts = batch.iter().map(|listed| super::sweep::overwrite(ledger, &listed.key, &stub, give_up));
        for (listed, put) in batch.iter().zip(futures::future::join_all(puts).await) {
            match put {
                Ok(()) => out.overwritten += 1,
                Err(error) if error.kind() == Kind::Denied => {
                    out.collected.left.push(Doomed::of(listed));
                    out.collected.denied.get_or_insert_with(|| error.chain().join(": "));
                }
                Err(error) => return Err(error),
            }
        }
        done += batch.len() as u64;
        progress(done, of);
    }
    Ok(())
}
