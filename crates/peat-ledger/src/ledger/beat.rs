//! Heartbeats: one object per process instance, overwritten by that instance only.

use bytes::Bytes;
use peat_objects::{Meta, Range};
use peat_types::{Error, InstanceId, Result, RunNonce, Seq};

use super::{Ledger, key};
use crate::model::Beat;

pub(super) async fn put(ledger: &Ledger, base: Seq, beat: &Beat) -> Result<()> {
    let body = serde_json::to_vec(beat).map_err(|e| Error::internal("cannot write a beat").with_source(e))?;
    ledger.store.put(&key::beat(base, ledger.instance), body.into()).await?;
    Ok(())
}

pub(super) async fn get(ledger: &Ledger, base: Seq, instance: InstanceId) -> Result<Option<(Bytes, Beat, Meta)>> {
    let key = key::beat(base, instance);
    let Some(object) = ledger.store.get(&key, Range::All).await? else { return Ok(None) };
    let beat = serde_json::from_slice(&object.bytes)
        .map_err(|e| Error::damaged(format!("{key} in {} is not a beat", ledger.store)).with_source(e))?;
    Ok(Some((object.bytes, beat, object.meta)))
}

pub(super) async fn end(ledger: &Ledger, base: Seq, alive: &[RunNonce]) {
    // Nobody depends on it: a beat that stays is one that no longer changes, which says the same.
    if alive.is_empty() {
        let _ = ledger.store.delete(&key::beat(base, ledger.instance)).await;
    }
}
