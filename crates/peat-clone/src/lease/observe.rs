//! Whether a holder lives. Being wrong about it costs the holder's work, never the ledger's integrity (the guard sees to
//! that), so death must be proven.

use std::time::Duration;

use peat_ledger::Lease;
use peat_objects::{Meta, Verdict};
use peat_types::{Hash, Result, Unit};
use serde::Deserialize;

use crate::handle::Inner;

impl Inner {
    /// Polls the beat of a holder. True when the polls made so far prove that its run is gone.
    pub(super) async fn holder_is_dead(&self, unit: &Unit, lease: &Lease) -> Result<bool> {
        let ttl = Duration::from_millis(lease.ttl_ms);
        let digest = match self.ledger.beat_seen(lease.base, lease.instance).await {
            Ok(Some((bytes, beat, meta))) if beat.nonces.contains(&lease.nonce) => {
                if self.server_time_is_sane() && age(&meta).is_some_and(|age| age > ttl * 2) {
                    return Ok(true);
                }
                Hash::of(&bytes)
            }
            // The process lives, or lived, without this run.
            Ok(Some(_)) => Hash::of(b"not listed"),
            Ok(None) => Hash::of(b"absent"),
            // Any failure but a definite 404 proves nothing (A7).
            Err(error) => {
                tracing::debug!(%error, %unit, "the holder's beat could not be read");
                return Ok(false);
            }
        };
        Ok(self.db.observe(&self.env, unit, lease.nonce, digest, ttl)?.proves_death(ttl))
    }

    /// What the probe of the store found out about its clock.
    fn server_time_is_sane(&self) -> bool {
        Verdict::deserialize(&self.ledger.info().probe).is_ok_and(|verdict| verdict.server_time)
    }
}

/// How old an object is by the server's own clock alone. Only a beat that lists the run is judged by it: one that does
/// not may be from before the run, which has not had time to beat.
fn age(meta: &Meta) -> Option<Duration> {
    let age = meta.date?.millis_since(meta.last_modified?);
    u64::try_from(age).ok().map(Duration::from_millis)
}
