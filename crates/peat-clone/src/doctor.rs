//! The doctor: cheap looks at everything that is local, and one at the head.

use std::collections::BTreeSet;

use peat_types::{Error, Kind, Result};

use crate::db;
use crate::handle::Inner;
use crate::repair::many;
use crate::sync::{ACCEPT, Look};
use crate::tree::Glance;
use crate::{Finding, Hydration, Item, PendingStatus, Repair};

/// How many names a finding shows.
const SHOWN: usize = 5;

fn finding(check: &'static str, problem: Option<String>, fine: impl Into<String>, hint: &str) -> Finding {
    match problem {
        None => Finding { check, passed: true, message: fine.into(), hint: None, repair: None },
        Some(message) => Finding { check, passed: false, message, hint: Some(hint.to_owned()), repair: None },
    }
}

impl Finding {
    /// With what would help, unless all is well.
    fn with_repair(mut self, repair: Repair) -> Self {
        self.repair = (!self.passed).then_some(repair);
        self
    }
}

fn are(number: usize, what: &str) -> String {
    format!("{} {}", many(number, what), if number == 1 { "is" } else { "are" })
}

fn some(names: &[String]) -> String {
    let more = names.len().saturating_sub(SHOWN);
    let shown = names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}

impl Inner {
    /// `deep` reads and hashes the files of the tree, too.
    pub(crate) async fn doctor(&self, deep: bool) -> Result<Vec<Finding>> {
        let mut out = vec![self.check_identity()];
        let index = self
            .db
            .read(|tx| tx.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0)).map_err(db::sql));
        let problem = match index {
            Ok(text) if text == "ok" => None,
            Ok(text) => Some(format!("state.db is damaged: {text}")),
            Err(error) => Some(error.chain().join(": ")),
        };
        let healthy = problem.is_none();
        let hint = "delete state.db: the next pull builds it again, pending changes are kept";
        out.push(finding("state-db", problem, "state.db is in order", hint));
        out.push(self.check_journal()?);
        if healthy {
            out.push(self.check_head().await);
            out.push(self.check_tree(deep)?);
            out.push(self.check_claims()?);
            out.push(self.check_leases()?);
        }
        Ok(out)
    }

    fn check_identity(&self) -> Finding {
        let found = crate::identity::find(&self.env, &self.options);
        let problem = match found {
            Ok(found) if found.reminted => Some("the folder was copied while it was open".to_owned()),
            Ok(found) if found.identity.clone != self.id => Some("clone.json names another clone".to_owned()),
            Ok(_) => None,
            Err(error) => Some(error.chain().join(": ")),
        };
        let fine = format!("clone {} of {} in {}", self.id, self.options.namespace, self.options.url);
        finding("clone", problem, fine, "run the command again; two folders must not share one clone.json")
    }

    fn check_journal(&self) -> Result<Finding> {
        let rows = self.pending()?;
        let now = self.env.now();
        let describe = |status: PendingStatus| {
            let age = |row: &crate::Pending| now.millis_since(row.time) / 60_000;
            let names: Vec<String> = rows
                .iter()
                .filter(|row| row.status == status)
                .map(|row| format!("{} ({}, {} min old)", row.change, row.kind, age(row)))
                .collect();
            (!names.is_empty()).then(|| some(&names))
        };
        let mut problems = Vec::new();
        for (status, what) in [
            (PendingStatus::Parked, "refused and put aside"),
            (PendingStatus::Unknown, "sent, outcome unknown"),
            (PendingStatus::Pending, "not committed yet"),
            (PendingStatus::Starting, "starts without an outcome"),
        ] {
            problems.extend(describe(status).map(|names| format!("{what}: {names}")));
        }
        let problem = (!problems.is_empty()).then(|| problems.join("; "));
        let undecided = rows.iter().any(|row| row.status != PendingStatus::Parked);
        let hint = if undecided {
            "'peat datastore sync --push' commits what can be; 'peat pending list' shows all"
        } else {
            "'peat pending list' shows why it was refused; 'peat pending adopt CHANGE' commits it on its own, \
             'peat pending drop CHANGE' forgets it"
        };
        let found = finding("journal", problem, "no pending changes", hint);
        // A change that was refused is a person's to decide.
        Ok(if undecided { found.with_repair(Repair::Settle) } else { found })
    }

    /// One request.
    async fn check_head(&self) -> Finding {
        let before = self.db.heads();
        let looked = Box::pin(self.look(Look::List)).await;
        let problem = match (&looked, &before) {
            (Err(error), _) | (_, Err(error)) => Some(error.chain().join(": ")),
            _ => None,
        };
        let fine = match self.db.heads() {
            Ok(heads) => {
                let text =
                    |seq: Option<peat_types::Seq>| seq.map_or("nothing".to_owned(), |seq| format!("entry {seq}"));
                format!("read up to {}, the newest is {}", text(heads.position_seq()), text(heads.head_seq()))
            }
            Err(error) => error.to_string(),
        };
        let hint = match &looked {
            Err(error) if error.has_code("store_missing") => "mount its disk, or restore it from a backup".to_owned(),
            Err(error) if error.kind() == Kind::Offline => "check the network; local reads still work".to_owned(),
            _ if before.is_ok() && self.db.heads().is_ok_and(|heads| heads.suspect) => ACCEPT.to_owned(),
            // It says nothing about the ledger: what is missing is a right, a newer version or the like.
            Err(error) if error.kind() != Kind::Damaged && !error.hints().is_empty() => error.hints().join("; "),
            _ => "do not write until this is understood: 'peat ledger verify' looks at the store".to_owned(),
        };
        finding("head", problem, fine, &hint)
    }

    fn check_tree(&self, deep: bool) -> Result<Finding> {
        let mut known: BTreeSet<String> = BTreeSet::new();
        let (mut missing, mut altered) = (Vec::new(), Vec::new());
        let mut here = 0_usize;
        for unit in self.db.units()? {
            for item in self.db.read(|tx| db::items(tx, &unit.unit, ""))? {
                if db::is_lease(&item.path) {
                    continue;
                }
                known.insert(item.path.to_string());
                let glance = self.tree.glance(&item)?;
                let fine = match glance {
                    Glance::SameSize => !deep || self.tree.matches(&item)?,
                    Glance::Missing => self.options.hydration == Hydration::Lazy,
                    Glance::OtherSize => false,
                };
                here += usize::from(fine && glance == Glance::SameSize);
                if fine || !self.shown(&item)? {
                    continue;
                }
                if glance == Glance::Missing { missing.push(item) } else { altered.push(item) }
            }
        }
        let mut foreign = Vec::new();
        let found = self.tree.walk()?;
        self.db.read(|tx| {
            for path in found.into_iter().filter(|path| !known.contains(path)) {
                // What a pull is still to look at is not known to belong to nobody.
                if !path.parse().is_ok_and(|path| db::is_noted(tx, &path).unwrap_or(true)) {
                    foreign.push(path);
                }
            }
            Ok(())
        })?;
        let names = |items: &[Item]| -> Vec<String> { items.iter().map(|item| item.path.to_string()).collect() };
        let mut problems = Vec::new();
        for (names, what) in [(names(&missing), "missing"), (names(&altered), "altered"), (foreign.clone(), "foreign")]
        {
            if !names.is_empty() {
                problems.push(format!("{what}: {}", some(&names)));
            }
        }
        let problem = (!problems.is_empty()).then(|| problems.join("; "));
        let hint = "work of yours is committed by 'peat add <path>' or 'peat datastore sync --push'; 'peat doctor --repair' \
                    writes missing and altered files again, and puts aside what it finds in their place and what is foreign";
        let how = if deep { "" } else { ", by name and size" };
        let rest = match known.len().saturating_sub(here) {
            0 => String::new(),
            rest => format!("; {} fetched when somebody reads them", are(rest, "more file")),
        };
        Ok(finding("tree", problem, format!("{} in place{how}{rest}", are(here, "file")), hint)
            .with_repair(Repair::Tree { missing, altered, foreign }))
    }

    /// Whether the tree shows this item at its path: where two units claim one, only the first of them.
    fn shown(&self, item: &Item) -> Result<bool> {
        Ok(self.db.read(|tx| db::claimant(tx, &item.path))?.is_some_and(|shown| shown.unit == item.unit))
    }

    fn check_claims(&self) -> Result<Finding> {
        let twice: Vec<String> = self.db.read(db::twice_claimed)?;
        let problem = (!twice.is_empty()).then(|| format!("claimed twice: {}", some(&twice)));
        let hint = "the tree can show one of them only; both are in the ledger";
        Ok(finding("paths", problem, "every path of the tree has one owner", hint))
    }

    fn check_leases(&self) -> Result<Finding> {
        let mut stale = Vec::new();
        let mut held = 0_usize;
        for info in self.leases()? {
            held += usize::from(info.lease.held);
            if info.lease.held && info.lease.clone == self.id && !info.alive_here {
                stale.push(info.unit.to_string());
            }
        }
        let problem =
            (!stale.is_empty()).then(|| format!("held by processes of this clone that are gone: {}", some(&stale)));
        Ok(finding(
            "leases",
            problem,
            format!("{} held", are(held, "lease")),
            "'peat datastore sync --push' releases them",
        )
        .with_repair(Repair::Settle))
    }
}

impl Inner {
    pub(crate) fn head_seq(&self) -> Result<peat_types::Seq> {
        self.db.read(db::head_seq)?.ok_or_else(|| Error::internal("no head is known"))
    }
}
