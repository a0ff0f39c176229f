//! Deleting, as far as this client may.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use peat_types::{Error, Kind, Result};

use super::enter::pause;
use super::{Collected, Doomed, ObjectKind};
use crate::ledger::Ledger;

/// Deletes in flight at once.
const PARALLEL: usize = 16;

pub(super) async fn delete(
    ledger: &Ledger,
    doomed: &[Doomed],
    may_go: &(dyn Fn(&str) -> bool + Sync),
    give_up: Duration,
    out: &mut Collected,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<()> {
    let mut refused: BTreeSet<ObjectKind> = BTreeSet::new();
    let mut done = 0;
    for batch in doomed.chunks(PARALLEL) {
        let (go, stay): (Vec<&Doomed>, Vec<&Doomed>) =
            batch.iter().partition(|doomed| may_go(&doomed.key) && !refused.contains(&doomed.kind));
        out.left.extend(stay.into_iter().cloned());
        let deleted = join_all(go.iter().map(|doomed| one(ledger, doomed, give_up))).await;
        for (doomed, deleted) in go.into_iter().zip(deleted) {
            match deleted {
                Ok(()) => out.deleted.push(doomed.clone()),
                Err(error) if error.kind() == Kind::Denied => {
                    refused.insert(doomed.kind);
                    out.left.push(doomed.clone());
                    out.denied.get_or_insert_with(|| error.chain().join(": "));
                }
                // What is left goes with the next sweep.
                Err(error) => return Err(error.context(format!("{} objects were deleted", out.deleted.len()))),
            }
        }
        done += batch.len() as u64;
        progress(done);
    }
    Ok(())
}

/// Overwrites a slot that is void, whatever it holds.
pub(super) async fn overwrite(ledger: &Ledger, key: &str, stub: &Bytes, give_up: Duration) -> Result<()> {
    let env = &ledger.env;
    let mut tries = 0;
    loop {
        env.step("purge.overwrite").await;
        match ledger.store.put(key, stub.clone()).await {
            Err(error) if error.kind() == Kind::Offline && env.monotonic() < give_up => {
                env.sleep(env.jitter(pause(tries))).await;
                tries += 1;
            }
            done => return done.map(drop),
        }
    }
}

async fn one(ledger: &Ledger, doomed: &Doomed, give_up: Duration) -> std::result::Result<(), Error> {
    let env = &ledger.env;
    let mut tries = 0;
    loop {
        env.step("gc.delete").await;
        match ledger.store.delete(&doomed.key).await {
            Err(error) if error.kind() == Kind::Offline && env.monotonic() < give_up => {
                env.sleep(env.jitter(pause(tries))).await;
                tries += 1;
            }
            done => return done,
        }
    }
}
