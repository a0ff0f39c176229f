//! What commands cost is kept with the clone, for `status`.

use std::time::Duration;

use peat_clone::{LocalClone, Spent};
use peat_objects::{Counts, List, Op, Pages};
use peat_types::Result;

use crate::repo::Place;
use crate::report::{CommandCost, StoreSize};
use crate::{Prices, Repo};

/// How many of the last commands `status` shows.
const SHOWN: usize = 5;

impl Repo {
    /// Remembers what a command cost that opened the clone and asked something of its store.
    pub fn note_spent(&self, command: &str, counts: &Counts, took: Duration) -> Result<()> {
        let total = counts.total();
        let (Some((clone, _)), true) = (self.opened_now(), total.requests > 0) else { return Ok(()) };
        let writes = counts.sum(|op, _| matches!(op, Op::Create | Op::Put | Op::List)).requests;
        clone.note_spent(&Spent {
            at: self.host().env.now(),
            command: command.to_owned(),
            requests: total.requests,
            writes,
            reads: counts.of(Op::Get).requests,
            bytes_out: total.bytes_out,
            bytes_in: total.bytes_in,
            ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        })
    }

    /// What the last commands of this clone cost, newest first.
    pub(crate) fn recent_costs(&self, clone: &LocalClone) -> Result<Vec<CommandCost>> {
        let datastore = self.marker().datastore.as_ref();
        let prices = datastore.and_then(|datastore| Prices::of(datastore, &self.host().env));
        let cost = |spent: Spent| CommandCost {
            at: spent.at,
            command: spent.command,
            requests: spent.requests,
            bytes_sent: spent.bytes_out,
            bytes_received: spent.bytes_in,
            duration_ms: spent.ms,
            estimated_usd: prices.map(|prices| prices.of_requests(spent.writes, spent.reads)),
        };
        Ok(clone.spent()?.into_iter().take(SHOWN).map(cost).collect())
    }

    /// Objects of the namespace: one LIST for each thousand.
    pub(crate) async fn store_size(&self, place: &Place) -> Result<StoreSize> {
        let store = place.opened.within(place.namespace.as_str())?;
        let mut pages = Pages::new(&*store, List::default());
        let mut size = StoreSize { objects: 0, bytes: 0 };
        while let Some(page) = pages.next().await? {
            size.objects += page.keys.len() as u64;
            size.bytes += page.keys.iter().map(|listed| listed.size).sum::<u64>();
        }
        Ok(size)
    }
}
