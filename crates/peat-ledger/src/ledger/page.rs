//! Reading forward a page at a time, for those who must see every entry however far behind they are.

use peat_types::{Result, Seq};

use super::read::Stop;
use super::{Ledger, Page};
use crate::model::{Entry, Mark};

/// Entries of a page at most; also the reads in flight at once, so a page takes at most eight times the largest entry.
const ENTRIES: u64 = 8;
/// No further entries are read into a page that has this many bytes.
const BYTES: usize = 8 << 20;

pub(super) async fn page(ledger: &Ledger, from: Mark, known: Seq, list: bool) -> Result<Page> {
    let known = ledger.known(known.max(from.seq));
    let asked = ledger.env.monotonic();
    let head = if list { ledger.listed(known).await? } else { known };
    if list && head.0.saturating_sub(from.seq.0) > ENTRIES {
        // Entries before the head do not tell whether they are still valid (R6); the head does.
        let glance = ledger.glance_head(head).await?;
        if glance.state.root.keep > from.seq.next() {
            return behind(ledger, head).await;
        }
    }
    let read = forward(ledger, from, head, list).await?;
    // R6: slots that were known to be there so long ago may have been cleared away and created again before they were read.
    if matches!(&read, Page::Entries { entries, .. } if !entries.is_empty()) && !ledger.is_fresh(asked) {
        let newest = ledger.head_entry(ledger.known(head)).await?;
        if newest.state.root.keep > from.seq.next() {
            return Ok(Page::Behind(Box::new(newest.state)));
        }
    }
    Ok(read)
}

async fn forward(ledger: &Ledger, from: Mark, head: Seq, list: bool) -> Result<Page> {
    let mut entries: Vec<Entry> = Vec::new();
    loop {
        let at = entries.last().map_or(from.seq, |entry| entry.state.seq);
        let room = ENTRIES - entries.len() as u64;
        if room == 0 || entries.iter().map(|entry| entry.body.len()).sum::<usize>() >= BYTES {
            break;
        }
        if list && at >= head {
            return Ok(ended(entries, from, true));
        }
        // Beyond what is known to exist every slot is a probe: 1, 1, 1, 2, as when following.
        let width = if head > at { room.min(head.0 - at.0) } else { (entries.len() as u64 / 2).clamp(1, room) };
        match ledger.extend(from, &mut entries, width).await? {
            Stop::Full => {}
            Stop::Behind => return behind(ledger, head).await,
            Stop::End => {
                let at = entries.last().map_or(from.seq, |entry| entry.state.seq);
                if at >= head {
                    return Ok(ended(entries, from, true));
                }
                // A slot that must have been there: either it is below the floor by now, or it was lost.
                let newest = ledger.head_entry(head).await?;
                if newest.state.root.keep > at.next() {
                    return Ok(Page::Behind(Box::new(newest.state)));
                }
                return Err(ledger.missing(at.next()));
            }
        }
    }
    Ok(ended(entries, from, false))
}

fn ended(entries: Vec<Entry>, from: Mark, end: bool) -> Page {
    match entries.last() {
        Some(last) if last.state.root.keep > from.seq.next() => Page::Behind(Box::new(last.state.clone())),
        _ => Page::Entries { entries, end },
    }
}

async fn behind(ledger: &Ledger, known: Seq) -> Result<Page> {
    Ok(Page::Behind(Box::new(ledger.head_entry(known).await?.state)))
}
