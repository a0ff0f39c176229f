//! Names for states that are to stay readable.

use std::time::Duration;

use async_trait::async_trait;
use futures::future::try_join_all;
use peat_types::{Error, Kind, Result, Seq, Timestamp};

use super::enter::{Build, Entered, Mark, enter};
use crate::format::maintain::{Maintenance, section};
use crate::ledger::Ledger;
use crate::ledger::pages::{NoCache, Pages};
use crate::model::{Entry, Ref, Root, Segment, State, TxKind};

/// Longest name.
const NAME_MAX: usize = 64;
/// Most pins of a ledger: every entry carries them all.
const PINS_MAX: usize = 64;
/// Times the head is looked at again because what was built on lies behind the floor.
const TRIES: u32 = 3;

/// A state that is kept under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    /// Its name.
    pub name: String,
    /// The entry after which the state was current.
    pub seq: Seq,
    /// When that was written, by its writer's clock.
    pub time: Timestamp,
}

/// What is to become of a name.
#[derive(Clone, Debug)]
pub(super) enum Wish {
    /// It names the state after this entry; the newest one when none is given.
    Add(Option<Seq>),
    Remove,
}

/// Checks the name of a pin.
fn check(name: &str) -> Result<()> {
    let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let all = name.bytes().all(|byte| letter(byte) || b"._-".contains(&byte));
    if all && name.bytes().next().is_some_and(letter) && name.len() <= NAME_MAX {
        return Ok(());
    }
    Err(Error::invalid(format!("'{name}' cannot be the name of a pin"))
        .with_hint("use up to 64 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit"))
}

/// The pins of the head.
pub(super) async fn list(ledger: &Ledger) -> Result<Vec<Pin>> {
    let head = ledger.glance_head(ledger.known(Seq::ZERO)).await?;
    let pins = head.state.root.pins.iter();
    try_join_all(pins.map(|(name, seq)| async {
        let time = if *seq == head.state.seq {
            head.time
        } else {
            // Gone only when the pin was removed meanwhile.
            ledger
                .glance(*seq)
                .await?
                .ok_or_else(|| ledger.gone(&Ref { segment: Segment::Log(*seq), off: 0, len: 0 }))?
                .time
        };
        Ok(Pin { name: name.clone(), seq: *seq, time })
    }))
    .await
}

/// Enters what is wished; gives the entry, and the state that the name stands (or stood) for.
pub(super) async fn set(
    ledger: &Ledger,
    name: &str,
    wish: Wish,
    author: &str,
    patience: Duration,
) -> Result<(Seq, Seq)> {
    check(name)?;
    let give_up = ledger.env.monotonic() + patience;
    let mut naming = Naming { mark: Mark::new(ledger, author), name, wish, at: Seq::ZERO };
    for _ in 0..TRIES {
        let Entry { state: base, body, .. } = ledger.head_entry(ledger.known(Seq::ZERO)).await?;
        if let Wish::Add(at) = &mut naming.wish {
            at.get_or_insert(base.seq);
        }
        let mut pages = Pages::new(ledger, &NoCache);
        pages.hold(base.seq, body);
        match enter(ledger, base, pages, &mut naming, give_up).await? {
            Entered::Yes(entry, _) => return Ok((entry.state.seq, naming.at)),
            Entered::Void => naming.mark = Mark::new(ledger, author),
            Entered::Late(error) => return Err(error.context("the pins were not changed")),
            Entered::Unknown(error) => {
                return Err(error
                    .context(format!("whether pin '{name}' was changed is not known"))
                    .with_hint("'peat pin list' tells; then run the command again if need be"));
            }
        }
    }
    Err(Error::new(Kind::Contended, "others moved the ledger on while the pins were to be changed")
        .with_hint("run the command again"))
}

struct Naming<'a> {
    mark: Mark,
    name: &'a str,
    wish: Wish,
    /// The state that the name stands or stood for.
    at: Seq,
}

#[async_trait]
impl Build for Naming<'_> {
    fn pass(&mut self, _: &Entry) -> bool {
        true
    }

    async fn build(&mut self, base: &State, _: &Pages<'_>) -> Result<Option<Maintenance>> {
        let name = self.name;
        let mut pins = base.root.pins.clone();
        let known = pins.iter().position(|(other, _)| other == name);
        let message = match (self.wish.clone(), known) {
            (Wish::Add(_), Some(known)) => {
                let seq = pins[known].1;
                return Err(Error::new(
                    Kind::AlreadyExists,
                    format!("there is a pin '{name}' already, at entry {seq}"),
                )
                .with_code("pin_exists")
                .with_hint(format!("choose another name, or remove it first with 'peat pin rm {name}'")));
            }
            (Wish::Add(at), None) => {
                self.at = at.unwrap_or(base.seq);
                may_be_kept(self.at, base)?;
                if pins.len() >= PINS_MAX {
                    return Err(Error::invalid(format!("there are {PINS_MAX} pins already, and no more are possible"))
                        .with_hint("'peat pin list' shows them, 'peat pin rm <name>' removes one"));
                }
                pins.push((name.to_owned(), self.at));
                pins.sort();
                format!("pin '{name}' on entry {}", self.at)
            }
            (Wish::Remove, Some(known)) => {
                self.at = pins.remove(known).1;
                format!("pin '{name}' on entry {} removed", self.at)
            }
            (Wish::Remove, None) => {
                return Err(Error::not_found(format!("there is no pin '{name}'"))
                    .with_code("pin_not_found")
                    .with_hint("'peat pin list' shows those there are"));
            }
        };
        Ok(Some(Maintenance {
            kind: TxKind::Pin,
            tx: self.mark.tx,
            change: self.mark.change,
            author: self.mark.author.clone(),
            message,
            root: Root { pins, ..base.root.clone() },
            directory: Vec::new(),
            packs: Vec::new(),
            introduced: Vec::new(),
            section: section()?,
        }))
    }
}

/// Whether a state is kept as far as the one it is to be pinned on says. Where that entry wins its slot, it stays so.
fn may_be_kept(at: Seq, base: &State) -> Result<()> {
    if at > base.seq {
        return Err(Error::invalid(format!("there is no entry {at} yet: the newest is {}", base.seq)));
    }
    if at < base.root.floor {
        return Err(Error::invalid(format!(
            "the state of entry {at} is no longer kept: the oldest that can be read is that of {}",
            base.root.floor
        ))
        .with_code("state_not_kept"));
    }
    Ok(())
}
