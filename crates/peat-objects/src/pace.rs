//! How many requests run at once.
//!
//! The limit grows by one for every round of answers while it is used up, and halves when the store is busy or silent:
//! additive increase, multiplicative decrease, as TCP does. Requests that were under way together halve it once.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{Semaphore, SemaphorePermit};

/// Requests at once, before the store has said anything.
pub(crate) const START: usize = 16;
/// Requests at once, at most: each is a connection.
pub(crate) const MOST: usize = 64;

/// What an answer says about how much the store can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It answered.
    Fine,
    /// It said that it is busy, or said nothing.
    Busy,
    /// Neither: for example, nobody is there.
    Other,
}

/// The limit of one store. Whoever waits is served in the order of coming, so callers share it fairly; a request never
/// waits for another one, so they cannot block each other.
#[derive(Debug)]
pub(crate) struct Pace {
    semaphore: Semaphore,
    window: Mutex<Window>,
}

#[derive(Debug)]
struct Window {
    limit: f64,
    /// Permits there are, in use or not. More than the limit until enough were given back.
    permits: usize,
    /// How often the limit was cut.
    cuts: u64,
}

/// The right to make one request.
pub(crate) struct Turn<'a> {
    pace: &'a Pace,
    /// None for a request that does not count.
    permit: Option<SemaphorePermit<'a>>,
    cuts: u64,
}

impl Pace {
    pub fn new() -> Self {
        #[allow(clippy::cast_precision_loss)] // a small number
        let limit = START as f64;
        let window = Window { limit, permits: START, cuts: 0 };
        Self { semaphore: Semaphore::new(START), window: Mutex::new(window) }
    }

    /// Waits for a turn.
    pub async fn turn(&self) -> Turn<'_> {
        // It is never closed, and without a permit a request is merely not counted.
        let permit = self.semaphore.acquire().await.ok();
        Turn { pace: self, permit, cuts: self.window().cuts }
    }

    /// A turn at once, beyond the limit.
    pub fn at_once(&self) -> Turn<'_> {
        Turn { pace: self, permit: None, cuts: self.window().cuts }
    }

    fn window(&self) -> MutexGuard<'_, Window> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn<'_> {
    /// Gives the turn back, with what was learned.
    pub fn end(self, answer: Answer) {
        let mut window = self.pace.window();
        let semaphore = &self.pace.semaphore;
        match answer {
            Answer::Fine if self.permit.is_some() && semaphore.available_permits() == 0 => window.grow(),
            Answer::Busy if self.cuts == window.cuts => window.cut(),
            Answer::Fine | Answer::Busy | Answer::Other => {}
        }
        let wanted = window.wanted();
        if window.permits < wanted {
            semaphore.add_permits(wanted - window.permits);
            window.permits = wanted;
        }
        if window.permits > wanted {
            window.permits -= semaphore.forget_permits(window.permits - wanted);
        }
        if window.permits > wanted
            && let Some(permit) = self.permit
        {
            permit.forget();
            window.permits -= 1;
        }
    }
}

#[allow(clippy::cast_precision_loss)] // small numbers
impl Window {
    fn grow(&mut self) {
        self.limit = (self.limit + 1.0 / self.limit).min(MOST as f64);
    }

    fn cut(&mut self) {
        self.limit = (self.limit / 2.0).max(1.0);
        self.cuts += 1;
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // between 1 and MOST
    fn wanted(&self) -> usize {
        self.limit as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(pace: &Pace) -> usize {
        pace.window().wanted()
    }

    async fn turns(pace: &Pace, count: usize) -> Vec<Turn<'_>> {
        let mut turns = Vec::new();
        for _ in 0..count {
            turns.push(pace.turn().await);
        }
        turns
    }

    #[tokio::test]
    async fn requests_under_way_together_halve_the_limit_once() {
        let pace = Pace::new();
        for turn in turns(&pace, START).await {
            turn.end(Answer::Busy);
        }
        assert_eq!((limit(&pace), pace.semaphore.available_permits()), (8, 8));
        for cut in [4, 2, 1, 1] {
            pace.turn().await.end(Answer::Busy);
            assert_eq!((limit(&pace), pace.semaphore.available_permits()), (cut, cut));
        }
    }

    #[tokio::test]
    async fn a_full_round_of_answers_makes_room_for_one_more() {
        let pace = Pace::new();
        for turn in turns(&pace, START).await {
            turn.end(Answer::Fine);
        }
        // Only the first found the limit used up; the others say nothing about more.
        assert_eq!(limit(&pace), START);
        for _ in 0..10_000 {
            let turns = turns(&pace, limit(&pace)).await;
            turns.into_iter().next().into_iter().for_each(|turn| turn.end(Answer::Fine));
        }
        assert_eq!((limit(&pace), pace.semaphore.available_permits()), (MOST, MOST));
    }

    #[tokio::test]
    async fn turns_that_are_given_up_come_back() {
        let pace = Pace::new();
        let held = turns(&pace, START).await;
        let mut waits = Box::pin(pace.turn());
        assert!(futures::poll!(&mut waits).is_pending());
        drop(waits);
        drop(held);
        assert_eq!(pace.semaphore.available_permits(), START);
        // Nobody counts a request that goes at once, but its answer is heard.
        let _all = turns(&pace, START).await;
        pace.at_once().end(Answer::Busy);
        assert_eq!(limit(&pace), START / 2);
    }
}
