//! Changes that wait in the journal go out with the next command that commits anything.

use std::time::Duration;

use peat_clone::LocalClone;
use peat_types::{Result, in_span, operation};

use super::sync::Open;
use crate::Repo;

/// How long a command is held up by them.
const TIME: Duration = Duration::from_secs(20);

/// What became of changes that waited, one line each.
#[derive(Debug, Default)]
pub struct Waited {
    /// Those that are in the ledger now.
    pub committed: Vec<String>,
    /// Those that still wait, or were refused, and what to do about it.
    pub left: Vec<String>,
}

impl Repo {
    /// After a command: sends what earlier ones left in the journal, if this one has committed something, for at most
    /// 20 seconds. No request when nothing waits. A process that a run started leaves it to the run.
    ///
    /// # Errors
    /// Those of this machine. The command was carried out all the same, and the next one tries again.
    pub async fn send_waiting(&self) -> Result<Waited> {
        let Some((clone, _)) = self.opened_now() else { return Ok(Waited::default()) };
        if !clone.has_committed() || self.capability(clone)?.is_some() {
            return Ok(Waited::default());
        }
        let open = self.open_changes(clone)?;
        if open.changes.is_empty() {
            return Ok(Waited::default());
        }
        in_span(operation!("send_waiting"), Box::pin(self.send_open(clone, &open))).await
    }

    async fn send_open(&self, clone: &LocalClone, open: &Open) -> Result<Waited> {
        let mut waited = Waited::default();
        let named = |id| open.changes.get(&id).map_or_else(String::new, |change| format!(" ({})", change.message));
        let still = "'peat datastore sync' commits it";
        // What was meant to go then may be wanted by now, and it would go with all that came since.
        if let Some(id) = open.deletes.iter().find_map(|(id, deletes)| (*deletes > 0).then_some(id)) {
            waited.left.push(format!(
                "change {id}{} waits, and what deletes is not sent by itself: {still}, and 'peat pending drop {id}' forgets it",
                named(*id)
            ));
            return Ok(waited);
        }
        let Some(settled) = self.host().env.timeout(TIME, clone.settle()).await else {
            let waits = |id| format!("change {id}{} takes longer to be sent, and still waits: {still}", named(id));
            let left = clone.pending()?.into_iter().map(|change| change.change);
            waited.left.extend(left.filter(|id| open.changes.contains_key(id)).map(waits));
            return Ok(waited);
        };
        let settled = settled?;
        for done in settled.committed {
            waited.committed.push(format!(
                "change {}{}, which waited, is committed in entry {}",
                done.change,
                named(done.change),
                done.seq
            ));
        }
        for change in settled.parked {
            let (id, why) = (change.change, change.reason.map(|(_, why)| why).unwrap_or_default());
            let then = format!("'peat pending show {id}' shows it");
            waited.left.push(format!("change {id}{}, which waited, was refused ({why}): {then}", named(id)));
        }
        for change in settled.unknown {
            let (id, why) = (change.change, change.reason.map(|(_, why)| why).unwrap_or_default());
            waited.left.push(format!("change {id}{} still waits ({why}): {still}", named(id)));
        }
        Ok(waited)
    }
}
