//! The writers of this process: who goes to the store, and who waits to be taken along.

use std::time::Duration;

use peat_types::Result;

use super::help::{HELP_MAX, Load, PATIENCE};
use super::{Attempt, pause};
use crate::format::Section;
use crate::ledger::local::Passenger;
use crate::ledger::{Commit, Together};

impl Attempt<'_> {
    /// Waits while another writer of this process is at the store, which may take this one along. `Some` when that ends
    /// the attempt; else it is this one's turn.
    pub(super) async fn turn(&mut self, own: &Section) -> Result<Option<Commit>> {
        // Who waits for a unit that others want only loses it.
        if self.ledger.together != Together::Batched || self.pressing {
            return Ok(None);
        }
        let env = self.ledger.env.clone();
        let passenger = Passenger { planned_for: self.planned_for, section: own.clone() };
        self.seat = Some(self.ledger.local.sit(passenger));
        loop {
            if let Some(over) = self.hear(own).await? {
                return Ok(Some(over));
            }
            let Some(seat) = &mut self.seat else { return Ok(None) };
            if seat.leads() {
                return self.line_up(own, PATIENCE).await;
            }
            env.step("commit.queue").await;
            let patience = PATIENCE.min(self.give_up.saturating_sub(env.monotonic()));
            if env.timeout(patience, seat.news()).await.is_none() {
                seat.depose();
                return self.line_up(own, Duration::ZERO).await;
            }
        }
    }

    /// Moves the base over what became known in this process. `Some` when that ends the attempt.
    pub(super) async fn hear(&mut self, own: &Section) -> Result<Option<Commit>> {
        let entries = match self.ledger.local.after(self.base.seq) {
            Some(entries) => entries,
            None => match self.ahead().await? {
                Some(entries) => entries,
                None => return Ok(Some(super::void())),
            },
        };
        if entries.is_empty() {
            return Ok(None);
        }
        if let Some(over) = self.absorb(entries).await? {
            return Ok(Some(over));
        }
        self.dead(own, 1).await
    }

    /// Adds those who wait in this process or beside it and may be committed on the base together with the load. The
    /// others find out for themselves why not.
    pub(super) async fn take_along(&self, load: &mut Load) {
        for (passenger, ticket) in self.ledger.local.waiting(HELP_MAX) {
            let section = passenger.section;
            if load.fits(&section) && matches!(self.check(&section).await, Ok(None)) {
                load.aboard.take(ticket);
                load.add(section);
            }
        }
        for (_, section) in self.beside() {
            if load.fits(&section) && matches!(self.check(&section).await, Ok(None)) {
                load.add(section);
            }
        }
    }

    /// What a writer does that neither helps nor is helped: wait, read what came first, and try again.
    pub(super) async fn retry(&mut self, losses: u32) -> Result<Option<Commit>> {
        let env = self.ledger.env.clone();
        env.sleep(env.jitter(pause(losses.saturating_sub(1)))).await;
        match self.ahead().await? {
            Some(entries) => self.absorb(entries).await,
            None => Ok(Some(super::void())),
        }
    }
}
