//! Looking for a change: each transaction head names the previous seq of each of its units, so the entries that touched
//! a unit form a chain.

use peat_types::{ChangeId, Error, Kind, Mutation, Result, Seq, TxId, Unit};

use super::pages::Pages;
use super::{Ledger, key};
use crate::model::{PageCache, State};

pub(super) async fn change(
    ledger: &Ledger,
    state: &State,
    unit: &Unit,
    since: Seq,
    change: ChangeId,
    cache: &dyn PageCache,
) -> Result<Option<(Seq, TxId)>> {
    if ledger.env.mutated(Mutation::ReplanNoChangeId) {
        return Ok(None);
    }
    let asked = ledger.env.monotonic();
    let (found, lowest) = walk(ledger, state, unit, since, change, cache).await?;
    // R6: what was read may have been cleared away, and created again by somebody who slept, while this one did.
    if let Some(seq) = lowest.filter(|_| !ledger.is_fresh(asked))
        && ledger.glance_head(ledger.known(state.seq)).await?.state.root.keep > seq
    {
        return Err(untold(seq, change));
    }
    Ok(found)
}

/// Where the change is, and the lowest entry that was read.
async fn walk(
    ledger: &Ledger,
    state: &State,
    unit: &Unit,
    since: Seq,
    change: ChangeId,
    cache: &dyn PageCache,
) -> Result<(Option<(Seq, TxId)>, Option<Seq>)> {
    let row = Pages::new(ledger, cache).unit(state, unit).await;
    let row = ledger.read_from(state.root.directory, row).await?;
    let (mut next, mut lowest) = (row.map(|row| row.last_seq), None);
    while let Some(seq) = next.filter(|seq| *seq > since) {
        let read = if seq < state.root.keep { Ok(None) } else { ledger.glance(seq).await };
        let glance = match read {
            Ok(Some(glance)) => glance,
            Ok(None) => return Err(untold(seq, change)),
            Err(error) => return Err(ledger.unless_void(seq, error).await.unwrap_or_else(|| untold(seq, change))),
        };
        lowest = Some(seq);
        if let Some(tx) = glance.txs.iter().find(|tx| tx.change == change) {
            return Ok((Some((seq, tx.tx)), lowest));
        }
        let Some(changed) = glance.txs.iter().flat_map(|tx| &tx.units).find(|changed| &changed.unit == unit) else {
            let error = Error::damaged(format!("{} should have changed {unit}, but does not", key::log(seq)));
            return Err(ledger.unless_void(seq, error).await.unwrap_or_else(|| untold(seq, change)));
        };
        next = changed.expected;
    }
    Ok((None, lowest))
}

/// Below the floor nothing can be told: neither that it is there nor that it is not (A7).
fn untold(seq: Seq, change: ChangeId) -> Error {
    Error::new(
        Kind::Damaged,
        format!("whether change {change} was committed cannot be told: {} is no longer kept", key::log(seq)),
    )
    .with_code("history_gone")
}
