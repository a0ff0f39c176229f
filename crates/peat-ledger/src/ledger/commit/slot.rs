//! One slot: creating it, and finding out what it holds.

use std::time::Duration;

use bytes::Bytes;
use peat_objects::{Created, Meta, time_to_send};
use peat_types::{Error, Kind, Mutation, Result, Seq};

use super::{Attempt, STORE_MISSING, holds};
use crate::ledger::key;
use crate::model::Entry;

/// What became of a slot.
pub(super) enum Slot {
    /// It holds the transaction; this is the *stored* entry.
    Mine(Box<Entry>),
    /// It holds something else; with the times of the reply.
    Other(Box<Entry>, Meta),
    /// Nothing is known.
    Unknown(Error),
    /// It lies behind the floor, and whatever it holds means nothing.
    Void,
    /// The store refused, and the slot is empty.
    Refused(Error),
}

impl Attempt<'_> {
    /// Creates the slot after the base, with the same bytes until it is taken by somebody.
    pub(super) async fn slot(&self, own: &Entry, body: &Bytes) -> Result<Slot> {
        let ledger = self.ledger;
        let env = &ledger.env;
        let seq = own.state.seq;
        let key = key::log(seq);
        let limit = Duration::from_millis(ledger.info.params.create_timeout_ms) + time_to_send(body.len());
        let mut tries = 0;
        let mut only_refusals = true;
        loop {
            env.step("commit.create").await;
            let error = match env.timeout(limit, ledger.store.create(&key, body.clone())).await {
                Some(Ok(Created::Created(_))) => return Ok(Slot::Mine(Box::new(own.clone()))),
                Some(Ok(Created::Exists)) => Error::new(Kind::Offline, format!("{key} exists, yet cannot be read")),
                // Said before anything was written, and there is no slot to be read.
                Some(Err(error)) if only_refusals && error.code() == STORE_MISSING => return Ok(Slot::Refused(error)),
                Some(Err(error)) => error,
                None => Error::new(Kind::Offline, format!("no answer while creating {key} in {}", ledger.store)),
            };
            // Any other reply proves nothing: the slot tells (A3).
            env.step("commit.unknown").await;
            match self.read_slot(seq).await {
                Ok(Some((stored, meta))) if !holds(ledger, &stored, self.draft) => {
                    return Ok(Slot::Other(Box::new(stored), meta));
                }
                Ok(Some(_)) if env.mutated(Mutation::AdoptOwn) => return Ok(Slot::Mine(Box::new(own.clone()))),
                Ok(Some((stored, _))) => return Ok(Slot::Mine(Box::new(stored))),
                Ok(None) => {}
                Err(error) if error.kind() == Kind::Damaged => {
                    return match ledger.unless_void(seq, error).await {
                        None => Ok(Slot::Void),
                        Some(error) if error.kind() == Kind::Damaged => Err(error),
                        Some(error) => Ok(Slot::Unknown(error)),
                    };
                }
                Err(error) => return Ok(Slot::Unknown(error)),
            }
            only_refusals &= error.kind() == Kind::Denied;
            if only_refusals {
                return Ok(Slot::Refused(error));
            }
            let Some(pause) = self.pause(&error, tries) else { return Ok(Slot::Unknown(error)) };
            env.sleep(pause).await;
            tries += 1;
        }
    }

    async fn read_slot(&self, seq: Seq) -> Result<Option<(Entry, Meta)>> {
        let env = &self.ledger.env;
        let mut tries = 0;
        loop {
            let error = match self.ledger.entry_seen(seq).await {
                Err(error) => error,
                read => return read,
            };
            let Some(pause) = self.pause(&error, tries) else { return Err(error) };
            env.sleep(pause).await;
            tries += 1;
        }
    }
}
