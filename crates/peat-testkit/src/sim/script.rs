use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use super::Fault;

/// What a schedule is made from: a seed and, once it was cut down, the parts that are played and the faults that strike.
///
/// As text: `7`, or `7 only m0.0.0/0 m0.0.0/1 with m0.0.0/1@5=lost-reply`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// Everything that is random comes from it.
    pub seed: u64,
    /// Nothing but this happens.
    pub only: Option<Cut>,
}

/// What is left of a schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Parts that are played.
    pub parts: BTreeSet<String>,
    /// Faults, by the places where they strike.
    pub faults: BTreeMap<String, Fault>,
}

impl Script {
    /// Everything that `seed` brings.
    pub fn seed(seed: u64) -> Self {
        Self { seed, only: None }
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.seed.fmt(f)?;
        let Some(cut) = &self.only else { return Ok(()) };
        f.write_str(" only")?;
        cut.parts.iter().try_for_each(|part| write!(f, " {part}"))?;
        if !cut.faults.is_empty() {
            f.write_str(" with")?;
        }
        cut.faults.iter().try_for_each(|(place, fault)| write!(f, " {place}={fault}"))
    }
}

impl FromStr for Script {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let seed = words.next().unwrap_or_default();
        let seed = seed.parse().map_err(|e| format!("'{seed}' is not a seed: {e}"))?;
        match words.next() {
            None => return Ok(Self::seed(seed)),
            Some("only") => {}
            Some(word) => return Err(format!("'{word}' is not 'only'")),
        }
        let parts = words.by_ref().take_while(|word| *word != "with").map(str::to_owned).collect();
        let mut cut = Cut { parts, faults: BTreeMap::new() };
        for word in words {
            let (place, fault) = word.split_once('=').ok_or_else(|| format!("'{word}' is not place=fault"))?;
            cut.faults.insert(place.to_owned(), fault.parse()?);
        }
        Ok(Self { seed, only: Some(cut) })
    }
}
