//! Whether a holder lives. Being wrong about it costs the holder's work, never the ledger's integrity (the guard sees to
//! that), so death must be proven.

use std::time::Duration;

use peat_ledger::Lease;
use peat_types::{Hash, Result, Unit};

use crate::handle::Inner;

impl Inner {
    /// Polls the beat of a holder. True when the polls made so far prove that its run is gone.
    pub(super) async fn holder_is_dead(&self, unit: &Unit, lease: &Lease) -> Result<bool> {
        let ttl = Duration::from_millis(lease.ttl_ms);
        let digest = match self.ledger.beat_get(lease.base, lease.instance).await {
            Ok(Some((bytes, beat))) if beat.nonces.contains(&lease.nonce) => Hash::of(&bytes),
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
}
