//! What contenders of this clone saw of a holder's beats. Kept over invocations, so that someone who tries again and
//! again, a few seconds each time, also gets a dead holder's lease in the end.

use std::time::Duration;

use peat_types::{Env, Hash, Result, RunNonce, Unit};
use rusqlite::{OptionalExtension, params};

use super::{Db, int, sql, uint};

/// Fewest polls before an unchanged beat proves anything.
const MIN_POLLS: i64 = 4;

/// How long a beat was seen unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Observation {
    /// Polls in a row.
    pub(crate) polls: i64,
    /// Time between the first and the last of them.
    pub(crate) unchanged: Duration,
}

impl Observation {
    /// Whether the holder must be dead: its beats stood still for its whole time-to-live.
    pub(crate) fn proves_death(self, ttl: Duration) -> bool {
        self.polls >= MIN_POLLS && self.unchanged >= ttl
    }
}

impl Db {
    /// Adds one poll of the beat of `unit`'s holder; `digest` stands for its bytes or its definite absence.
    pub(crate) fn observe(
        &self,
        env: &Env,
        unit: &Unit,
        nonce: RunNonce,
        digest: Hash,
        ttl: Duration,
    ) -> Result<Observation> {
        let mono = i64::try_from(env.monotonic().as_millis()).unwrap_or(i64::MAX);
        let wall = env.now().as_millis();
        self.write(|tx| {
            let known = tx
                .query_row(
                    "SELECT polls, first_mono, last_mono, last_wall FROM observed
                     WHERE unit = ?1 AND nonce = ?2 AND digest = ?3",
                    params![unit.as_str(), nonce.as_bytes(), digest.as_bytes()],
                    |row| Ok::<(i64, i64, i64, i64), _>((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)),
                )
                .optional()
                .map_err(sql)?;
            // A pause longer than half the time-to-live could hide a beat that came and stood still again, and a
            // clock that went backwards (a reboot) measures nothing: both begin anew. The wall clock can only make a
            // pause look longer.
            let limit = int(u64::try_from(ttl.as_millis() / 2).unwrap_or(u64::MAX));
            let (polls, first) = match known {
                Some((polls, first, last, last_wall))
                    if (0..=limit).contains(&(mono - last)) && wall - last_wall <= limit =>
                {
                    (polls + 1, first)
                }
                _ => (1, mono),
            };
            tx.execute(
                "INSERT OR REPLACE INTO observed(unit, nonce, digest, polls, first_mono, last_mono, last_wall)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                params![unit.as_str(), nonce.as_bytes(), digest.as_bytes(), polls, first, mono, wall],
            )
            .map_err(sql)?;
            Ok(Observation { polls, unchanged: Duration::from_millis(uint(mono - first)) })
        })
    }
}
