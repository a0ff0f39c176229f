//! Moving a ledger to another store: its objects are copied, then it is closed, then the copy is opened. See
//! `docs/design/011-moving.md`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::try_join;
use futures::stream::{self, StreamExt, TryStreamExt};
use peat_objects::{List, Listed, Pages, Range, Store};
use peat_types::{Error, Kind, Result, Seq, in_span, step};

use super::create::{create_or_read, parse, read};
use super::verify::{Depth, verify};
use super::whole::{Print, Room};
use super::{Ledger, Verified, key};
use crate::format;
use crate::model::{Ancestor, Claim, Moved, NsInfo, Root, Segment, State};

/// Objects in flight at once, and how many MiB of them.
const PARALLEL: usize = 32;
const BUDGET: u32 = 96;
/// Objects of which the next are begun only when all are done.
const BATCH: usize = 1024;
/// How long closing a ledger is tried.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is still to be copied.
#[derive(Clone, Debug)]
pub struct CopyPlan {
    /// The entry up to which the ledger is copied.
    pub upto: Seq,
    /// What the state after that entry counts.
    pub root: Root,
    /// Objects to be copied, in this order: packs, then entries, the newest last.
    pub objects: Vec<Listed>,
    /// Objects that are there already, and their bytes.
    pub there: (u64, u64),
}

impl CopyPlan {
    /// Bytes to be copied.
    pub fn bytes(&self) -> u64 {
        self.objects.iter().map(|object| object.size).sum()
    }
}

/// What was copied: objects and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Objects.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What a copy is known by again: hashes of the objects that were copied just now. Each of them was decoded.
#[derive(Clone, Debug, Default)]
pub struct Prints(BTreeMap<Segment, Print>);

impl Prints {
    pub(super) fn get(&self, at: &Segment) -> Option<Print> {
        self.0.get(at).copied()
    }
}

/// A copy while it is made.
struct UnderWay<'a> {
    room: Room,
    objects: AtomicU64,
    bytes: AtomicU64,
    progress: &'a (dyn Fn(Copied) + Sync),
}

impl UnderWay<'_> {
    fn so_far(&self) -> Copied {
        Copied { objects: self.objects.load(Ordering::Relaxed), bytes: self.bytes.load(Ordering::Relaxed) }
    }
}

impl Ledger {
    /// Whether something may be written after `base`.
    ///
    /// # Errors
    /// `Unsupported` when only newer versions may; `Conflict` with code `moved` when the ledger went elsewhere.
    pub(super) fn may_write(&self, base: &State) -> Result<()> {
        if let Some(moved) = &base.root.moved {
            return Err(self.gone_to(moved));
        }
        if base.min_writer > format::VERSION {
            return Err(Error::new(
                Kind::Unsupported,
                format!("{} may only be written by format {} or newer", self.store, base.min_writer),
            )
            .with_code("unsupported_version")
            .with_hint("install a newer version of peat; reading still works"));
        }
        Ok(())
    }

    /// What whoever wants to write to a ledger that moved is told.
    pub fn gone_to(&self, moved: &Moved) -> Error {
        let Moved { url, namespace, endpoint, .. } = moved;
        let at = endpoint.as_ref().map(|endpoint| format!(" --endpoint {endpoint}")).unwrap_or_default();
        Error::new(Kind::Conflict, format!("the ledger in {} moved to namespace '{namespace}' of {url}", self.store))
            .with_code("moved")
            .with_hint(format!("follow it with 'peat datastore setup {url}{at} --namespace {namespace}'"))
            .with_hint("if a team-mate committed the new address to git, 'git pull' brings it")
    }

    /// What of this ledger is missing in `target`, a store narrowed to the namespace to be, which has no `ns.json` yet;
    /// `None` for one that is not there yet.
    ///
    /// # Errors
    /// `Conflict` with code `not_this_ledger` when entries of another one lie there.
    pub async fn plan_copy(&self, target: Option<&dyn Store>) -> Result<CopyPlan> {
        let head = Box::pin(self.head_entry(self.known(Seq::ZERO))).await?.state;
        let upto = head.root.moved.as_ref().map_or(head.seq, |moved| moved.upto);
        let there = async {
            match target {
                Some(target) => listed(target).await,
                None => Ok(Vec::new()),
            }
        };
        let (there, here) = try_join(there, listed(&*self.store)).await?;
        let there: BTreeMap<String, u64> = there.into_iter().map(|object| (object.key, object.size)).collect();
        let (mut packs, mut entries) = (Vec::new(), BTreeMap::new());
        for object in here {
            match (key::log_seq(&object.key), key::pack_segment(&object.key)) {
                (Some(seq), _) if (head.root.keep..=upto).contains(&seq) => drop(entries.insert(seq, object)),
                (_, Some(_)) => packs.push(object),
                _ => {}
            }
        }
        if let Some(target) = target {
            self.same_history(target, &there, &entries).await?;
        }
        let mut plan = CopyPlan { upto, root: head.root, objects: Vec::new(), there: (0, 0) };
        for object in packs.into_iter().chain(entries.into_values()) {
            if there.get(&object.key) == Some(&object.size) {
                plan.there = (plan.there.0 + 1, plan.there.1 + object.size);
            } else {
                plan.objects.push(object);
            }
        }
        Ok(plan)
    }

    /// Whether the entries in `target` are copies of this ledger's: all of them are among them, and the newest is equal.
    async fn same_history(
        &self,
        target: &dyn Store,
        there: &BTreeMap<String, u64>,
        entries: &BTreeMap<Seq, Listed>,
    ) -> Result<()> {
        let foreign = |name: &str| {
            Error::new(Kind::Conflict, format!("{target}{name} is not part of the ledger in {}", self.store))
                .with_code("not_this_ledger")
                .with_hint(
                    "something else was begun there: choose another namespace with --namespace, or another prefix",
                )
        };
        let first = entries.keys().next().copied().unwrap_or_default();
        let seqs = there.keys().filter_map(|name| Some((name, key::log_seq(name)?)));
        let mut newest: Option<&Listed> = None;
        for (name, seq) in seqs.filter(|(_, seq)| *seq >= first) {
            let ours = entries.get(&seq).filter(|ours| there.get(name) == Some(&ours.size));
            let ours = ours.ok_or_else(|| foreign(name))?;
            if newest.is_none_or(|newest| ours.key < newest.key) {
                newest = Some(ours);
            }
        }
        let Some(Listed { key, .. }) = newest else { return Ok(()) };
        let (ours, theirs) = (self.store.get(key, Range::All).await?, target.get(key, Range::All).await?);
        match (ours, theirs) {
            (Some(ours), Some(theirs)) if ours.bytes != theirs.bytes => Err(foreign(key)),
            _ => Ok(()),
        }
    }

    /// Copies what a plan names, once `ns.json` says whose copy it is: of two ledgers that are copied to one place at once, or
    /// made there, the second leaves nothing there. `progress` is told how many objects and bytes are done. Killed anywhere,
    /// it is planned and run again: what arrived is not copied twice.
    ///
    /// # Errors
    /// `Conflict` with code `not_this_ledger` when the place is another one's; `Damaged` when an object cannot be read here; what either store says.
    pub async fn copy(
        &self,
        target: &Arc<dyn Store>,
        plan: &CopyPlan,
        progress: &(dyn Fn(Copied) + Sync),
    ) -> Result<(Copied, Prints)> {
        let mut prints = Prints::default();
        let under_way =
            UnderWay { room: Room::of(BUDGET), objects: AtomicU64::new(0), bytes: AtomicU64::new(0), progress };
        self.claim(&**target).await?;
        // One kind after the other: no entry is there before what it refers to.
        let packs = plan.objects.partition_point(|object| key::pack_segment(&object.key).is_some());
        let (packs, entries) = plan.objects.split_at(packs);
        for batch in packs.chunks(BATCH).chain(entries.chunks(BATCH)) {
            let copies: Vec<_> = batch.iter().map(|object| self.copy_one(target, object, &under_way)).collect();
            let copied: Vec<Option<Print>> = stream::iter(copies).buffered(PARALLEL).try_collect().await?;
            let known = batch.iter().zip(copied);
            prints.0.extend(known.filter_map(|(object, print)| Some((key::named(&object.key)?, print?))));
        }
        Ok((under_way.so_far(), prints))
    }

    /// Takes a place for the copy of this ledger: who creates `ns.json` has it, whether it is a new ledger or the claim of one
    /// that arrives.
    async fn claim(&self, target: &dyn Store) -> Result<()> {
        let claim = Claim { format: format::VERSION, arriving: self.info.ledger };
        self.env.step("move.claim").await;
        let there = create_or_read(target, &self.env, key::NS, json(&claim)?, &self.info.params).await?;
        match Claim::of(&there) {
            Some(claim) if claim.arriving == self.info.ledger => Ok(()),
            Some(_) => Err(taken(target)),
            // Or somebody else has just finished what this is about.
            None if self.went_to(&parse(target, &there)?).await? => Ok(()),
            None => Err(taken(target)),
        }
    }

    /// Whether this ledger has been closed in favour of that one.
    async fn went_to(&self, other: &NsInfo) -> Result<bool> {
        if !other.comes_from(self.info.ledger) {
            return Ok(false);
        }
        let head = Box::pin(self.head_entry(self.known(Seq::ZERO))).await?.state;
        Ok(head.root.moved.is_some_and(|moved| moved.ledger == other.ledger))
    }

    /// One object; `None` when it was collected since it was listed.
    async fn copy_one(
        &self,
        target: &Arc<dyn Store>,
        object: &Listed,
        under_way: &UnderWay<'_>,
    ) -> Result<Option<Print>> {
        let _room = under_way.room.take(object.size).await;
        let name = &object.key;
        self.env.step("move.read").await;
        let Some((bytes, print)) = self.read_whole(name, None).await? else { return Ok(None) };
        let size = bytes.len() as u64;
        self.env.step("move.write").await;
        if key::log_seq(name).is_some() {
            // Whoever makes a ledger there at this moment must not lose an entry.
            let stored = create_or_read(&**target, &self.env, name, bytes.clone(), &self.info.params).await?;
            if stored != bytes {
                return Err(taken(&**target));
            }
        } else {
            target.put(name, bytes).await?;
        }
        under_way.objects.fetch_add(1, Ordering::Relaxed);
        under_way.bytes.fetch_add(size, Ordering::Relaxed);
        (under_way.progress)(under_way.so_far());
        Ok(Some(print))
    }

    /// Checks a copy as `peat ledger verify` does: chain, counts, sums, and that everything it refers to is there. Besides,
    /// all of it is read, once, and compared with what was copied; what was there before is decoded.
    ///
    /// # Errors
    /// `Damaged` when it is not whole; what the store says.
    pub async fn check_copy(&self, target: &Arc<dyn Store>, plan: &CopyPlan, prints: &Prints) -> Result<Verified> {
        let info = self.info().clone();
        let copy = Self::with_info(target.clone(), &self.env, info, self.clone, self.instance);
        let partial = |what: String| {
            Error::damaged(format!("the copy in {target} is not whole: {what}"))
                .with_hint("see whether the ledger itself is whole: 'peat ledger verify'")
                .with_hint("nothing was changed here; the setup can be run again")
        };
        if copy.list_head().await?.is_none_or(|head| head < plan.upto) {
            return Err(partial(format!("{} is missing", key::log(plan.upto))));
        }
        let span = step!("ledger.verify", peat.namespace = %copy.info.namespace);
        let mut checked = in_span(span, Box::pin(verify(&copy, Depth::References, Some(prints)))).await?;
        // It comes last.
        checked.findings.retain(|flaw| flaw.object != key::NS);
        match checked.findings.first() {
            None => Ok(checked),
            Some(flaw) => Err(partial(format!("{} {}", flaw.object, flaw.what))),
        }
    }

    /// Closes the ledger with an entry that says where it goes, copies what was written since the copy was made, and opens
    /// the copy. Killed anywhere, it may be run again, by anybody: the entry says how it goes on.
    ///
    /// # Errors
    /// `Conflict` with code `moved` when it went elsewhere before; what either store says.
    pub async fn move_to(
        &self,
        target: &Arc<dyn Store>,
        to: &Moved,
        author: &str,
        probe: &serde_json::Value,
    ) -> Result<NsInfo> {
        self.env.step("move.leave").await;
        let moved = Box::pin(self.leave(to, author, PATIENCE)).await?;
        if (&moved.url, &moved.namespace) != (&to.url, &to.namespace) {
            return Err(self.gone_to(&moved));
        }
        self.env.step("move.tail").await;
        let plan = self.plan_copy(Some(&**target)).await?;
        let left = if plan.objects.is_empty() {
            plan.objects
        } else {
            self.copy(target, &plan, &|_| {}).await?;
            self.plan_copy(Some(&**target)).await?.objects
        };
        if let Some(Listed { key, .. }) = left.first() {
            return Err(Error::damaged(format!("{key} did not arrive in {target}"))
                .with_hint("run the same 'peat datastore setup <url>' again: it goes on where it stopped"));
        }
        self.env.step("move.arrive").await;
        let mut origin = self.info.origin.clone();
        origin.push(Ancestor { ledger: self.info.ledger, upto: moved.upto });
        let info = NsInfo {
            format: format::VERSION,
            ledger: moved.ledger,
            namespace: moved.namespace.clone(),
            owner: self.info.owner.clone(),
            origin,
            created: self.env.now(),
            params: self.info.params.clone(),
            probe: probe.clone(),
            rest: self.info.rest.clone(),
        };
        let stored = self.open_copy(&**target, info).await?;
        if stored.ledger != moved.ledger {
            return Err(Error::new(Kind::AlreadyExists, format!("somebody else made a ledger in {target} meanwhile"))
                .with_code("namespace_taken")
                .with_hint("choose another namespace with --namespace"));
        }
        self.env.step("move.arrived").await;
        Ok(stored)
    }

    /// Puts `ns.json` into the place of the claim. Whoever else does says the same, or has done it.
    async fn open_copy(&self, target: &dyn Store, info: NsInfo) -> Result<NsInfo> {
        let there = target.get(key::NS, Range::All).await?.and_then(|object| Claim::of(&object.bytes));
        if there.is_some_and(|claim| claim.arriving == self.info.ledger) {
            target.put(key::NS, json(&info)?).await?;
            return Ok(info);
        }
        let stored = create_or_read(target, &self.env, key::NS, json(&info)?, &self.info.params).await?;
        parse(target, &stored)
    }

    /// Whether a state that was seen in an ancestor of this ledger is the state after the same entry here. One request.
    pub async fn holds(&self, state: &State) -> Result<bool> {
        let here = self.entry(state.seq).await?.map(|entry| entry.state);
        Ok(here.is_some_and(|here| here.entry == state.entry && (!state.is_whole() || here.hash == state.hash)))
    }

    /// Reads the `ns.json` of a store narrowed to a namespace.
    pub async fn peek(store: &dyn Store) -> Result<Option<NsInfo>> {
        read(store).await
    }
}

fn json(ns: &impl serde::Serialize) -> Result<Bytes> {
    let text = serde_json::to_vec_pretty(ns).map_err(|e| Error::internal("cannot write ns.json").with_source(e))?;
    Ok(text.into())
}

fn taken(target: &dyn Store) -> Error {
    Error::new(Kind::Conflict, format!("somebody else makes a ledger in {target}, or moves one there"))
        .with_code("not_this_ledger")
        .with_hint("nothing was changed here: choose another namespace with --namespace, or another prefix")
}

/// Everything that is copied.
async fn listed(store: &dyn Store) -> Result<Vec<Listed>> {
    let mut all = Vec::new();
    for prefix in [key::PACK, key::LOG] {
        let mut pages = Pages::new(store, List { prefix: prefix.to_owned(), ..List::default() });
        while let Some(page) = pages.next().await? {
            all.extend(page.keys);
        }
    }
    Ok(all)
}
