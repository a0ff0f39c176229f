//! The other processes of this clone: whose turn it is among them, and who waits beside this one.

use std::time::Duration;

use peat_types::{Kind, Result, Seq};

use super::help::HELP_MAX;
use super::{Attempt, void};
use crate::format::{self, Section};
use crate::ledger::Commit;
use crate::ledger::neighbours::{Neighbours, News, Turn};
use crate::ledger::read::Stop;

/// Shortest pause between two looks at whose turn it is; the longest is four times that.
const POLL: Duration = Duration::from_millis(5);
/// Entries read at most because a neighbour told of them.
const TOLD: u64 = 8;

impl Attempt<'_> {
    /// Waits while another process of this clone is at the store, which may take this one along. `Some` when that ends
    /// the attempt; else it is this one's turn, or it goes without.
    pub(super) async fn line_up(&mut self, own: &Section, patience: Duration) -> Result<Option<Commit>> {
        let Some(neighbours) = self.ledger.neighbours.clone() else { return self.hear(own).await };
        let env = self.ledger.env.clone();
        // Not all at the same moment.
        let patience = patience + env.jitter(patience / 4);
        let (mut since, mut base) = (env.monotonic(), self.base.seq);
        let (mut place, mut asked) = (None, false);
        let mut told = Seq::ZERO;
        loop {
            if let Some(over) = self.hear_beside(&*neighbours, own, &mut told).await? {
                return Ok(Some(over));
            }
            if std::mem::replace(&mut base, self.base.seq) != self.base.seq {
                since = env.monotonic();
            }
            let patient = env.monotonic() < self.give_up.min(since + patience);
            if !patient {
                neighbours.depose();
            }
            match neighbours.turn() {
                Turn::Mine(turn) => {
                    self.turn = Some(turn);
                    break;
                }
                Turn::Taken if patient => {}
                Turn::Taken | Turn::Unknown => break,
            }
            if !std::mem::replace(&mut asked, true)
                && let Some((group, aboard)) = self.group(own)
            {
                place = neighbours.leave(own.head.tx, &group);
                match place {
                    Some(_) => self.left = true,
                    None => aboard.ashore(),
                }
            }
            env.step("commit.line").await;
            env.sleep(POLL + env.jitter(POLL * 3)).await;
        }
        drop(place);
        env.step("commit.turn").await;
        // What was told just before the turn was given back.
        self.hear_beside(&*neighbours, own, &mut told).await
    }

    /// Moves the base over what became known in this process or beside it. `Some` when that ends the attempt.
    async fn hear_beside(
        &mut self,
        neighbours: &dyn Neighbours,
        own: &Section,
        told: &mut Seq,
    ) -> Result<Option<Commit>> {
        if let Some(over) = self.hear(own).await? {
            return Ok(Some(over));
        }
        let head = neighbours.news().head;
        if head <= self.base.seq || std::mem::replace(told, head) == head {
            return Ok(None);
        }
        let mut entries = Vec::new();
        match self.ledger.extend(&self.base, &mut entries, (head.0 - self.base.seq.0).min(TOLD)).await {
            Ok(Stop::Behind) => return Ok(Some(void())),
            Ok(Stop::Full | Stop::End) => {}
            Err(error) if matches!(error.kind(), Kind::Offline | Kind::Denied) => {}
            Err(error) => return Err(error),
        }
        if let Some(over) = self.absorb(entries).await? {
            return Ok(Some(over));
        }
        self.dead(own, 1).await
    }

    /// What other processes of this clone left to whoever has the turn, and the slots it was planned for.
    pub(super) fn beside(&self) -> Vec<(Seq, Section)> {
        let (Some(neighbours), Some(_)) = (&self.ledger.neighbours, &self.turn) else { return Vec::new() };
        let groups = neighbours.waiting(HELP_MAX, self.room());
        let staged = groups.iter().flat_map(|group| format::decode_group(group).unwrap_or_default());
        let near = staged.filter(|staged| self.is_valid(staged) && staged.base <= self.base.seq.next());
        near.filter(|staged| staged.section.head.tx != self.draft.tx)
            .map(|staged| (staged.base, staged.section))
            .collect()
    }

    /// Gives the turn to another process, and tells it what became known.
    pub(super) fn pass_on(&mut self, outcome: &Result<Commit>) {
        let (Some(neighbours), Some(turn)) = (&self.ledger.neighbours, self.turn.take()) else { return };
        let head = match outcome {
            Ok(Commit::Committed { entry, .. }) => entry.state.seq,
            _ => self.base.seq,
        };
        let before = neighbours.news();
        let news = News { head, crowd: if self.crowded { head } else { before.crowd } };
        if news != before {
            neighbours.tell(news);
        }
        drop(turn);
    }
}
