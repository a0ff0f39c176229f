//! Putting contents back that cannot be read from where they should lie. See `docs/design/016-repair.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use peat_types::{Error, Hash, ItemPath, Kind, Result, Seq, Unit};

use super::checkpoint::checkpoint_without;
use super::enter::{Build, Entered, Mark, enter};
use super::rebuild::{self, Built, Rebuild};
use super::search::{Candidates, elsewhere, readable, search};
use super::{Checkpoint, Checkpointing};
use crate::format::entry::introduction;
use crate::format::maintain::{Maintenance, section};
use crate::format::page::{PageSink, TreeKind};
use crate::format::repoint::{Places, repoint};
use crate::format::row::{pack_key, read_unit_value};
use crate::format::tree::lookup;
use crate::format::tree_write::Edit;
use crate::ledger::again::Batch;
use crate::ledger::pages::{NoCache, Pages};
use crate::ledger::{Broken, Ledger, Verified, contents};
use crate::model::{ContentRef, Entry, FileRow, NewPack, Rank, Root, Segment, State, TxKind};

/// Bytes of contents in memory at once.
const BATCH: u64 = 32 << 20;
/// Objects looked into at once.
pub(super) const PARALLEL: usize = 8;
/// Times an entry is built again because what it was built on lies behind the floor.
const PLANS: u32 = 3;

/// A unit as a machine knows it.
#[derive(Clone, Debug)]
pub struct KnownUnit {
    /// The unit.
    pub unit: Unit,
    /// The entry that changed it last.
    pub seq: Seq,
    /// Up to which entry that is known.
    pub as_of: Seq,
    /// Its files.
    pub files: Vec<(Rank, ItemPath, FileRow)>,
}

/// What a machine may have that the store lost.
pub trait Copies: Send + Sync {
    /// Shows every unit that is known here, one after the other, and gives the newest state up to which all are.
    ///
    /// # Errors
    /// Whatever reading them runs into, or `see` says.
    fn each(&self, see: &mut dyn FnMut(KnownUnit) -> Result<()>) -> Result<Option<State>>;

    /// The bytes of a content, or of the part of it that is broken, if they are at hand. What comes is verified.
    ///
    /// # Errors
    /// Whatever reading them runs into.
    fn copy(&self, wanted: &Broken) -> Result<Option<Bytes>>;
}

/// How to go about a repair.
#[derive(Clone, Debug)]
pub struct Mending {
    /// Who, for people: `user@host`.
    pub author: String,
    /// How long to try.
    pub patience: Duration,
}

/// What a repair will do.
#[derive(Clone, Debug, Default)]
pub struct MendPlan {
    /// Pages of the newest state that are built again, and which cannot be. First, for they say where contents lie.
    pub rebuild: Option<Arc<Rebuild>>,

    /// Contents that are at hand here.
    pub here: Vec<Broken>,
    /// Contents that lie elsewhere in the ledger, and where.
    pub elsewhere: Vec<(Broken, ContentRef)>,
    /// Contents that no copy was found of. They stay listed, and reading them says so.
    pub lost: Vec<Broken>,
    /// Packs that are not what the table says, and that nothing of the newest state needs once this is done.
    pub drops: BTreeSet<Segment>,
}

impl MendPlan {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        let builds = self.rebuild.as_ref().is_some_and(|rebuild| !rebuild.is_empty());
        !builds && self.here.is_empty() && self.elsewhere.is_empty() && self.drops.is_empty()
    }
}

/// What a repair did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mended {
    /// What was built again of the trees.
    pub built: Built,
    /// Rows of the newest state whose contents can be read again.
    pub contents: u64,
    /// Bytes that were stored again.
    pub stored: u64,
    /// The entries that say so.
    pub entries: Vec<Seq>,
    /// Packs that were dropped from the table.
    pub dropped: u64,
    /// Why packs that should have been dropped were not.
    pub kept: Option<String>,
}

pub(super) fn is(bytes: &[u8], wanted: &Broken) -> bool {
    bytes.len() as u64 == wanted.size && Hash::of(bytes) == wanted.hash
}

fn copy(copies: &dyn Copies, wanted: &Broken) -> Result<Option<Bytes>> {
    Ok(copies.copy(wanted)?.filter(|bytes| is(bytes, wanted)))
}

pub(super) async fn plan(ledger: &Ledger, found: &Verified, copies: &dyn Copies) -> Result<MendPlan> {
    let Sorted { here, elsewhere, lost } = sort(ledger, &found.broken, copies).await?;
    let mut plan = MendPlan { here, elsewhere, lost, ..MendPlan::default() };
    let Some(pages) = &found.lost else {
        let needed: BTreeSet<Segment> = plan.lost.iter().map(|lost| lost.at.block.segment).collect();
        plan.drops = found.spoilt.iter().filter(|pack| !needed.contains(pack)).copied().collect();
        return Ok(plan);
    };
    // What can be dropped shows when the trees can be read again.
    plan.rebuild = Some(Arc::new(rebuild::plan(ledger, pages, copies).await?));
    Ok(plan)
}

/// Contents by where copies of them are.
#[derive(Debug, Default)]
pub(super) struct Sorted {
    pub(super) here: Vec<Broken>,
    pub(super) elsewhere: Vec<(Broken, ContentRef)>,
    pub(super) lost: Vec<Broken>,
}

pub(super) async fn sort(ledger: &Ledger, broken: &[Broken], copies: &dyn Copies) -> Result<Sorted> {
    let (mut out, mut wanted) = (Sorted::default(), Vec::new());
    for broken in broken {
        match copy(copies, broken)? {
            Some(_) => out.here.push(broken.clone()),
            None => wanted.push(broken.clone()),
        }
    }
    let candidates = if wanted.is_empty() { Candidates::new() } else { search(ledger, &wanted).await? };
    for broken in wanted {
        match readable(ledger, &broken, candidates.get(&broken.hash)).await? {
            Some(at) => out.elsewhere.push((broken, at)),
            None => out.lost.push(broken),
        }
    }
    Ok(out)
}

pub(super) async fn run(ledger: &Ledger, plan: &MendPlan, copies: &dyn Copies, how: &Mending) -> Result<Mended> {
    let give_up = ledger.env.monotonic() + how.patience;
    let mut out = Mended::default();
    if let Some(rebuild) = plan.rebuild.as_ref().filter(|rebuild| !rebuild.is_empty()) {
        rebuild::run(ledger, rebuild, copies, how, &mut out).await?;
    }
    let users = plan.here.iter().chain(plan.elsewhere.iter().map(|(broken, _)| broken));
    let mut repair = Repair {
        mark: Mark::new(ledger, &how.author),
        limit: usize::try_from(ledger.info.params.entry_max / 2).unwrap_or(usize::MAX),
        places: Places::new(),
        packs: BTreeSet::new(),
        introduced: BTreeSet::new(),
        left: users.map(|broken| broken.unit.clone()).collect(),
        built: Vec::new(),
        changed: 0,
        in_order: false,
    };
    if !repair.left.is_empty() {
        let base = ledger.head_entry(ledger.known(Seq::ZERO)).await?.state.seq.next();
        let stored = store(ledger, &plan.here, &plan.elsewhere, copies, base, how.patience).await?;
        (repair.places, repair.packs) = (stored.places, stored.packs);
        out.stored += stored.bytes;
        point(ledger, &mut repair, give_up, &mut out).await?;
    }
    if !plan.drops.is_empty() {
        drop_packs(ledger, plan, how, &mut out).await?;
    }
    Ok(out)
}

/// Contents that were stored again, in packs that no entry names yet.
#[derive(Default)]
pub(super) struct StoredAnew {
    /// Where they lay, and where they lie now.
    pub(super) places: Places,
    pub(super) packs: BTreeSet<NewPack>,
    pub(super) bytes: u64,
}

pub(super) async fn store(
    ledger: &Ledger,
    here: &[Broken],
    elsewhere_at: &[(Broken, ContentRef)],
    copies: &dyn Copies,
    base: Seq,
    patience: Duration,
) -> Result<StoredAnew> {
    let mut out = StoredAnew::default();
    let here = here.iter().map(|broken| (broken, None));
    let mut all = here.chain(elsewhere_at.iter().map(|(broken, at)| (broken, Some(*at)))).peekable();
    // Equal contents are stored once.
    let mut known: BTreeMap<(Hash, bool), ContentRef> = BTreeMap::new();
    while all.peek().is_some() {
        let (mut batch, mut users, mut bytes) = (Batch(Vec::new()), Vec::new(), 0);
        let mut first: BTreeMap<(Hash, bool), usize> = BTreeMap::new();
        while bytes < BATCH
            && let Some((broken, from)) = all.next()
        {
            let part = broken.part.is_some();
            if !known.contains_key(&(broken.hash, part)) && !first.contains_key(&(broken.hash, part)) {
                let content = match from {
                    None => copy(copies, broken)?,
                    Some(at) => elsewhere(ledger, broken, at).await?,
                };
                // Gone since the plan was made: it stays as it is, and the next look tells.
                let Some(content) = content else { continue };
                bytes += broken.size;
                first.insert((broken.hash, part), batch.0.len());
                batch.0.push((content, broken.hash, part));
            }
            users.push(broken);
        }
        out.bytes += bytes;
        let wanted = (0..batch.0.len()).map(|content| (content, 0));
        let mut places: BTreeMap<usize, ContentRef> = BTreeMap::new();
        ledger
            .upload(base, wanted, &batch, patience, &mut |stored| {
                out.packs.insert(stored.pack);
                places.extend(stored.pieces.iter().map(|piece| (piece.content, stored.place(piece))));
                Ok(())
            })
            .await?;
        known.extend(first.into_iter().filter_map(|(key, content)| Some((key, *places.get(&content)?))));
        for broken in users {
            if let Some(at) = known.get(&(broken.hash, broken.part.is_some())) {
                out.places.insert((broken.at.block, broken.at.sub, broken.hash), *at);
            }
        }
    }
    Ok(out)
}

/// Lets the rows point to what was stored: as many units in an entry as fit.
async fn point(ledger: &Ledger, repair: &mut Repair, give_up: Duration, out: &mut Mended) -> Result<()> {
    let mut voids = 0;
    while !repair.left.is_empty() {
        let Entry { state: base, body, .. } = ledger.head_entry(ledger.known(Seq::ZERO)).await?;
        let mut pages = Pages::new(ledger, &NoCache);
        pages.hold(base.seq, body);
        ledger.env.step("mend.point").await;
        match enter(ledger, base, pages, repair, give_up).await? {
            Entered::Yes(entry, _) => {
                out.entries.push(entry.state.seq);
                out.contents += repair.changed;
                repair.settle();
            }
            // Everything that was looked at is in order by now.
            Entered::Void if repair.in_order => repair.settle(),
            Entered::Void if voids < PLANS => voids += 1,
            Entered::Void => {
                return Err(Error::new(Kind::Contended, "others moved the ledger on while contents were put back")
                    .with_hint("nothing is lost: run 'peat doctor --repair' again"));
            }
            Entered::Late(error) => return Err(error.context("not all contents were put back")),
            Entered::Unknown(error) => {
                return Err(error
                    .context("whether all contents were put back is not known")
                    .with_hint("run 'peat doctor --repair' again: it does what is left to be done"));
            }
        }
        repair.mark = Mark::new(ledger, &repair.mark.author);
    }
    Ok(())
}

async fn drop_packs(ledger: &Ledger, plan: &MendPlan, how: &Mending, out: &mut Mended) -> Result<()> {
    ledger.env.step("mend.drop").await;
    let how = Checkpointing { author: how.author.clone(), force: true, full: true, patience: how.patience };
    match Box::pin(checkpoint_without(ledger, &how, plan.drops.clone())).await {
        Ok(Checkpoint::Done { seq, .. }) => {
            out.entries.push(seq);
            let kept = still_there(ledger, &plan.drops).await?;
            out.dropped = (plan.drops.len() as u64).saturating_sub(kept);
            out.kept = (kept > 0).then(|| format!("{kept} of them hold something that is needed and cannot be read"));
        }
        Ok(Checkpoint::NotDue(_)) => {}
        Ok(Checkpoint::Later(why)) => out.kept = Some(why),
        // Something in them, or elsewhere, is damaged and needed.
        Err(error) if contents::is_lost(&error) || error.kind() == Kind::Damaged => {
            out.kept = Some(error.chain().join(": "));
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// How many of these packs are in the table.
async fn still_there(ledger: &Ledger, packs: &BTreeSet<Segment>) -> Result<u64> {
    let Entry { state, body, .. } = ledger.head_entry(ledger.known(Seq::ZERO)).await?;
    let mut pages = Pages::new(ledger, &NoCache);
    pages.hold(state.seq, body);
    let rows = crate::format::packs(&state, &pages).await?;
    let live = rows.iter().filter(|(dropped, base, id, _)| !dropped && packs.contains(&Segment::Pack(*base, *id)));
    Ok(live.count() as u64)
}

/// The entry that lets rows point elsewhere. It is built from nothing but the state before it, so whatever others did
/// first, it changes only rows that still point to what is broken.
struct Repair {
    mark: Mark,
    /// Bytes of tables in one entry.
    limit: usize,
    places: Places,
    /// To be introduced by the next entry.
    packs: BTreeSet<NewPack>,
    /// Were introduced by entries before it.
    introduced: BTreeSet<NewPack>,
    /// Units that are still to be looked at.
    left: BTreeSet<Unit>,
    /// Those of them that the entry is about.
    built: Vec<Unit>,
    /// Rows it changes.
    changed: u64,
    /// Nothing of what was looked at has to be changed any more.
    in_order: bool,
}

impl Repair {
    /// The entry is in the log.
    fn settle(&mut self) {
        if self.changed > 0 {
            self.introduced.append(&mut self.packs);
        }
        for unit in self.built.drain(..) {
            self.left.remove(&unit);
        }
        self.changed = 0;
    }
}

#[async_trait]
impl Build for Repair {
    fn pass(&mut self, _: &Entry) -> bool {
        true
    }

    async fn build(&mut self, base: &State, pages: &Pages<'_>) -> Result<Option<Maintenance>> {
        self.built.clear();
        (self.changed, self.in_order) = (0, false);
        // R2
        if self.packs.iter().any(|pack| pack.base <= base.root.horizon) {
            return Ok(None);
        }
        // R3: a compaction may have dropped what an earlier entry of this repair introduced, with what no row pointed to yet.
        let packs: Vec<Vec<u8>> = self.introduced.iter().map(|pack| pack_key(false, pack.base, pack.id)).collect();
        let sorted: Vec<&[u8]> = packs.iter().map(Vec::as_slice).collect();
        let live = lookup(base.root.packs.as_ref(), TreeKind::Packs, &sorted, pages).await?;
        let gone = self.introduced.iter().zip(live).filter(|(_, row)| row.is_none());
        let gone: BTreeSet<Segment> = gone.map(|(pack, _)| pack.segment()).collect();
        self.places.retain(|_, at| !gone.contains(&at.block.segment));
        let keys: Vec<&[u8]> = self.left.iter().map(|unit| unit.as_str().as_bytes()).collect();
        let rows = lookup(base.root.directory.as_ref(), TreeKind::Directory, &keys, pages).await?;
        let mut sink = PageSink::append(section()?);
        let mut directory = Vec::new();
        for (unit, value) in self.left.iter().zip(rows) {
            self.built.push(unit.clone());
            let Some(mut value) = value else { continue };
            let Some(table) = read_unit_value(&value)?.table else { continue };
            let (new, changed) = repoint(table, &self.places, pages, &mut sink).await?;
            if changed > 0 {
                value.at = Some(new);
                directory.push(Edit { key: unit.as_str().as_bytes().to_vec(), value: Some(value) });
                self.changed += changed;
            }
            if matches!(&sink, PageSink::Append { out, .. } if out.len() > self.limit) {
                break;
            }
        }
        self.in_order = self.changed == 0;
        if self.in_order {
            return Ok(None);
        }
        let PageSink::Append { out: section, .. } = sink else { return Err(Error::internal("page sink")) };
        let edits: BTreeMap<_, _> = self.packs.iter().map(|pack| introduction(pack, base.seq.next())).collect();
        Ok(Some(Maintenance {
            kind: TxKind::Checkpoint,
            tx: self.mark.tx,
            change: self.mark.change,
            author: self.mark.author.clone(),
            message: match self.changed {
                1 => "repair: 1 content was put back".to_owned(),
                many => format!("repair: {many} contents were put back"),
            },
            root: Root { tail: base.root.tail.saturating_add(section.len() as u64), ..base.root.clone() },
            directory,
            packs: edits.into_iter().map(|(key, value)| Edit { key, value: Some(value) }).collect(),
            introduced: self.packs.iter().copied().collect(),
            section,
        }))
    }
}
