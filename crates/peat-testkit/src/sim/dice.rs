use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

/// Randomness that belongs to one place of a schedule: it depends on the seed and the place alone, so that leaving out
/// what happens elsewhere does not change it.
#[derive(Debug)]
pub struct Dice(ChaCha12Rng);

impl Dice {
    /// The dice of `place` under `seed`.
    pub fn of(seed: u64, place: impl Hash) -> Self {
        let mut hasher = DefaultHasher::new();
        (seed, place).hash(&mut hasher);
        Self(ChaCha12Rng::seed_from_u64(hasher.finish()))
    }

    /// A number in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        self.0.random()
    }

    /// A number below `limit`, which must not be zero.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0.random_range(0..limit)
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// One of `choices`, which must not be empty.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::try_from(self.below(choices.len() as u64)).unwrap_or(0)]
    }

    /// A duration from `least` to `most` milliseconds, every order of magnitude as likely as any other.
    pub fn long(&mut self, least: u64, most: u64) -> Duration {
        #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let millis = {
            let (least, most) = ((least.max(1) as f64).ln(), (most.max(1) as f64).ln());
            (least + (most - least) * self.unit()).exp() as u64
        };
        Duration::from_millis(millis)
    }
}
