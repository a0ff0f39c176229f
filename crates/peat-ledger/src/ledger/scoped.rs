//! Looking at some units only: the ring of the head leads to the newest entry that changed each of them.

use std::collections::BTreeMap;

use futures::future::join_all;
use peat_types::{Kind, Result, Seq, Unit};

use super::pages::Pages;
use super::read::Glance;
use super::{Ledger, Scoped};
use crate::format;
use crate::model::{PageCache, Ref, Segment, State, UnitRow};

/// Reading more entries than this one by one costs more than reading directory pages.
const ENTRIES: usize = 8;

/// Where the row of a unit is to be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Not changed since the caller saw it.
    Same,
    /// As a rule in the head of this entry; a tag may collide.
    Entry(Seq),
    /// In the directory of the head.
    Directory,
}

fn place(head: &State, unit: &Unit, have: Option<Seq>) -> Place {
    let Some(have) = have else { return Place::Directory };
    let Some(behind) = head.seq.0.checked_sub(have.0).filter(|behind| *behind > 0) else { return Place::Same };
    let remembered = &head.ring.entries;
    if usize::try_from(behind).map_or(true, |behind| behind > remembered.len()) {
        return Place::Directory;
    }
    let tag = format::ring_tag(unit);
    let newest = remembered.iter().rev().zip(0..behind).find(|(tags, _)| tags.contains(&tag));
    match newest.map(|(_, back)| Seq(head.seq.0 - back)) {
        None => Place::Same,
        // A checkpoint may have moved its table since, but what an entry says can be read while its state is kept.
        Some(seq) if seq < head.root.floor => Place::Directory,
        Some(seq) => Place::Entry(seq),
    }
}

fn row_in(glance: &Glance, unit: &Unit) -> Option<UnitRow> {
    glance.txs.iter().rev().flat_map(|tx| &tx.units).find(|changed| &changed.unit == unit).map(|u| u.row.clone())
}

pub(super) async fn scoped(
    ledger: &Ledger,
    state: &State,
    list: bool,
    units: &[(Unit, Option<Seq>)],
    cache: &dyn PageCache,
) -> Result<Scoped> {
    let mut read: BTreeMap<Seq, Glance> = BTreeMap::new();
    let known = ledger.known(state.seq);
    let (mut first, mut list) = (None, list);
    if !list {
        let next = state.seq.next();
        match ledger.glance(next).await {
            Ok(glance) => first = glance,
            Err(error) => match ledger.unless_void(next, error).await {
                None => list = true,
                Some(error) => return Err(error),
            },
        }
    }
    let asked = ledger.env.monotonic();
    let mut head = state.clone();
    // An absent slot needs an explanation when somebody else in this process has seen more.
    if list || first.is_some() || known > state.seq {
        let seq = ledger.listed(ledger.known(known)).await?;
        read.extend(first.map(|glance| (glance.state.seq, glance)));
        if seq > state.seq {
            if !read.contains_key(&seq) {
                let glance = match ledger.glance(seq).await {
                    Ok(Some(glance)) if ledger.is_fresh(asked) => glance,
                    Err(error) if error.kind() != Kind::Damaged => return Err(error),
                    _ => ledger.glance_head(seq).await?,
                };
                read.insert(glance.state.seq, glance);
            }
            if let Some((_, newest)) = read.last_key_value() {
                head = newest.state.clone();
            }
        }
        read.retain(|seq, _| *seq >= head.root.keep);
        if let Some(entry) = read.get(&state.seq.next()).and_then(|glance| glance.entry.as_ref()) {
            ledger.follows(state, entry).await?;
        }
    }

    let mut places = BTreeMap::new();
    for (unit, have) in units {
        let in_head = read.get(&head.seq).is_some_and(|glance| row_in(glance, unit).is_some());
        let place = if in_head { Place::Entry(head.seq) } else { place(&head, unit, *have) };
        places.insert(unit, (place, *have));
    }
    let mut wanted: Vec<Seq> = places
        .values()
        .filter_map(|(place, _)| if let Place::Entry(seq) = place { Some(*seq) } else { None })
        .filter(|seq| !read.contains_key(seq))
        .collect();
    wanted.sort_unstable();
    wanted.dedup();
    if wanted.len() <= ENTRIES {
        let reads = wanted.iter().map(|seq| async { (*seq, ledger.glance(*seq).await) });
        for (seq, glance) in join_all(reads).await {
            let at = Ref { segment: Segment::Log(seq), off: 0, len: 0 };
            match glance {
                Ok(glance) => read.extend(glance.map(|glance| (seq, glance))),
                Err(error) => return Err(ledger.unless_gone(&at, error).await),
            }
        }
        // R6: since the head was listed they may have been cleared away, and created again, before they were read.
        if let Some(seq) = wanted.first().filter(|_| !ledger.is_fresh(asked))
            && ledger.glance_head(ledger.known(head.seq)).await?.state.root.keep > *seq
        {
            return Err(ledger.gone(&Ref { segment: Segment::Log(*seq), off: 0, len: 0 }));
        }
    }

    let mut pages = Pages::new(ledger, cache);
    for glance in read.values() {
        pages.hold(glance.state.seq, glance.prefix.clone());
        if let Some(entry) = &glance.entry {
            entry.keep_pages(cache);
        }
    }
    let mut rows = Vec::new();
    let mut open = Vec::new();
    for (unit, (place, have)) in places {
        let row = match place {
            Place::Same => continue,
            Place::Entry(seq) => read.get(&seq).and_then(|glance| row_in(glance, unit)),
            Place::Directory => None,
        };
        match row {
            Some(row) => rows.push((unit.clone(), Some(row))),
            None => open.push((unit, have)),
        }
    }
    for (unit, have) in open {
        let row = ledger.read_from(head.root.directory, pages.unit(&head, unit).await).await?;
        // A tag collided, or the ring was too short to tell.
        if have.is_none() || row.as_ref().map(|row| row.last_seq) != have {
            rows.push((unit.clone(), row));
        }
    }
    rows.sort_by(|(a, _), (b, _)| a.cmp(b));
    let entries = read.into_values().filter_map(|glance| glance.entry).collect();
    Ok(Scoped { complete: head.is_whole(), state: head, units: rows, entries })
}
