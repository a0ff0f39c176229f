//! Checking a ledger. Nothing is ever repaired or deleted here: `maintain/mend.rs` does that, by what is found here.

mod flaw;
mod log;
mod names;
mod packs;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use futures::future::join;
use peat_types::{Error, Kind, Result, Seq, Unit};

use super::Ledger;
use super::log as listing;
use super::moving::Prints;
use super::pages::{NoCache, Pages};
use crate::model::{Segment, UnitRow};

pub(crate) use flaw::Sums;
pub use flaw::{Broken, Flaw, Lost, Orphan};

/// Result of a verification.
#[derive(Clone, Debug, Default)]
pub struct Verified {
    /// Entries looked at.
    pub entries: u64,
    /// Packs that are there and needed.
    pub packs: u64,
    /// Contents hashed (contents only).
    pub contents: u64,
    /// What is wrong.
    pub findings: Vec<Flaw>,
    /// Contents of the newest state that cannot be read from where they lie. Each is among the findings, too.
    pub broken: Vec<Broken>,
    /// Pages of the newest state that cannot be read, if there are any.
    pub lost: Option<Lost>,
    /// Packs that are missing, or are not as long as the pack table says.
    pub spoilt: Vec<Segment>,
    /// Objects that nothing needs: nothing is wrong with that, they go by themselves.
    pub orphans: Vec<Orphan>,
}

/// Bytes that are kept of objects which were read whole, for the pages in them that are needed later. What is due for a
/// checkpoint is less.
const HELD: usize = 48 << 20;

/// How hard to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Depth {
    /// Objects by name and size: a few listings and reads, however large the ledger is.
    Names,
    /// Every entry and every page of the newest state, and that all they refer to is there.
    References,
    /// Every content, too, and what older states that are kept under a name, or are the oldest, refer to.
    Contents,
}

/// What an entry says of a unit that no later one changed.
struct Changed {
    seq: Seq,
    row: UnitRow,
}

struct Check<'a> {
    ledger: &'a Ledger,
    depth: Depth,
    /// Of a copy, all of which is read: what was copied.
    prints: Option<&'a Prints>,
    /// Sound objects that may hold pages of the newest state, and how many more bytes of such may be kept.
    held: Arc<BTreeMap<Segment, Bytes>>,
    room: usize,
    out: Verified,
    /// Sizes of all objects that others may point into.
    sizes: BTreeMap<Segment, u64>,
    /// Units that the entries from K on changed.
    changed: BTreeMap<Unit, Changed>,
    /// Whether every entry from K on was read.
    whole: bool,
    /// Objects that the newest state refers to, for pages and for contents.
    pages: BTreeSet<Segment>,
    blocks: BTreeSet<Segment>,
    /// Objects that hold pages of it which cannot be read.
    torn: BTreeSet<Segment>,
}

/// `prints` are those of a copy that was just made.
pub(super) async fn verify(ledger: &Ledger, depth: Depth, prints: Option<&Prints>) -> Result<Verified> {
    let mut check = Check {
        ledger,
        depth,
        prints,
        held: Arc::default(),
        room: HELD,
        out: Verified::default(),
        sizes: BTreeMap::new(),
        changed: BTreeMap::new(),
        whole: true,
        pages: BTreeSet::new(),
        blocks: BTreeSet::new(),
        torn: BTreeSet::new(),
    };
    check.info().await?;
    let Some(head) = check.log().await? else { return Ok(check.out) };
    let Some(packs) = check.packs(&head).await? else { return Ok(check.out) };
    check.leftovers(&head, &packs).await?;
    if depth == Depth::Names {
        return Ok(check.out);
    }
    let others = check.whole(&packs).await?;
    let (others, whole) = join(others, check.head(&head, &packs)).await;
    for (at, read) in others {
        check.is_sound(at, read)?;
    }
    if whole?.is_some() {
        check.spoilt(&packs.rows);
    }
    if depth == Depth::Contents {
        check.ends(&packs.rows).await?;
        let pinned = head.root.pins.iter().map(|(_, seq)| *seq);
        for seq in pinned.chain([head.root.floor]).filter(|seq| *seq != head.seq).collect::<BTreeSet<_>>() {
            check.older(seq).await?;
        }
    }
    Ok(check.out)
}

impl<'a> Check<'a> {
    /// Where pages are looked for: first in what is held.
    fn source(&self) -> Pages<'a> {
        Pages::holding(self.ledger, &NoCache, self.held.clone())
    }

    /// Keeps a sound object for its pages, while there is room.
    fn hold(&mut self, at: Segment, bytes: &Bytes) {
        if let Some(room) = self.room.checked_sub(bytes.len()) {
            self.room = room;
            Arc::make_mut(&mut self.held).insert(at, bytes.clone());
        }
    }

    fn find(&mut self, object: impl Into<String>, what: impl Into<String>, remedy: impl Into<String>) {
        self.out.findings.push(Flaw::new(object, what, remedy));
    }

    /// What is unreadable is a finding; a store that does not answer is an error.
    fn note(&mut self, flaw: Flaw, error: Error) -> Result<()> {
        if !matches!(error.kind(), Kind::Damaged | Kind::NotFound | Kind::Unsupported) {
            return Err(error);
        }
        let update = (error.kind() == Kind::Unsupported).then(|| error.hints().first().cloned()).flatten();
        let remedy = update.unwrap_or(flaw.remedy);
        self.out.findings.push(Flaw { what: error.chain().join(": "), remedy, ..flaw });
        Ok(())
    }
}
