//! Names for states that are to stay readable.

use peat_types::Result;

use crate::report::{PinDone, PinList, PinRow};
use crate::{Repo, When};

impl Repo {
    /// `peat pin list`.
    pub async fn pin_list(&self) -> Result<PinList> {
        let (clone, place) = self.opened().await?;
        let pins = clone.pins().await?.into_iter().map(|pin| PinRow { name: pin.name, seq: pin.seq, time: pin.time });
        let oldest_state = clone.upkeep()?.map(|upkeep| upkeep.floor);
        Ok(PinList { namespace: place.namespace.clone(), pins: pins.collect(), oldest_state })
    }

    /// `peat pin add`: the newest state, when none is given.
    ///
    /// # Errors
    /// `AlreadyExists` with code `pin_exists`; `Invalid` for a bad name and for states that are not there (code `state_not_kept`
    /// when they are no longer); a time before the oldest state that is kept is `NotFound` with that code.
    pub async fn pin_add(&self, name: &str, at: Option<When>) -> Result<PinDone> {
        let (clone, place) = self.opened().await?;
        let at = match at {
            None => None,
            // Whether it is kept is judged by the entry that is built upon.
            Some(When::Entry(seq)) => Some(seq),
            Some(time) => Some(self.past(clone, &clone.kept().await?, time).await?.state.seq),
        };
        let (entry, seq) = clone.pin(name, at).await?;
        Ok(PinDone { namespace: place.namespace.clone(), name: name.to_owned(), seq, pinned: true, entry })
    }

    /// `peat pin rm`.
    ///
    /// # Errors
    /// `NotFound` with code `pin_not_found`.
    pub async fn pin_remove(&self, name: &str) -> Result<PinDone> {
        let (clone, place) = self.opened().await?;
        let (entry, seq) = clone.unpin(name).await?;
        Ok(PinDone { namespace: place.namespace.clone(), name: name.to_owned(), seq, pinned: false, entry })
    }
}
