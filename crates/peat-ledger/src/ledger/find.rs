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
    let mut next = Pages::new(ledger, cache).unit(state, unit).await?.map(|row| row.last_seq);
    while let Some(seq) = next.filter(|seq| *seq > since) {
        let Some(glance) = (if seq < state.root.keep { None } else { ledger.glance(seq).await? }) else {
            // Below the floor nothing can be told: neither that it is there nor that it is not (A7).
            return Err(Error::new(
                Kind::Damaged,
                format!("whether change {change} was committed cannot be told: {} is no longer kept", key::log(seq)),
            )
            .with_code("history_gone"));
        };
        if let Some(tx) = glance.txs.iter().find(|tx| tx.change == change) {
            return Ok(Some((seq, tx.tx)));
        }
        let Some(changed) = glance.txs.iter().flat_map(|tx| &tx.units).find(|changed| &changed.unit == unit) else {
            return Err(Error::damaged(format!("{} should have changed {unit}, but does not", key::log(seq))));
        };
        next = changed.expected;
    }
    Ok(None)
}
