//! What is wrong in the store, said in words of models and data, and what a repair would do about it.

use peat_clone::{Broken, Built, Flaw, LocalClone, MendPlan, Mended, Rebuild, Verified};
use peat_types::{ItemPath, Result, Unit};

use super::doctor::{Examination, NS};
use crate::Repo;
use crate::history::model_of;
use crate::paths::DataPath;
use crate::report::{DoctorFinding, LedgerOrphan, LedgerVerify, Warning};
use crate::status::Names;

/// How many items a sentence names.
const NAMED: usize = 5;

/// What the doctor thinks of the store.
#[derive(Debug, Default)]
pub(super) struct StoreHealth {
    pub(super) findings: Vec<DoctorFinding>,
    pub(super) warnings: Vec<Warning>,
    pub(super) plan: MendPlan,
}

/// An item as people know it: model, data, version.
fn item(names: &Names, unit: &Unit, path: Option<&ItemPath>) -> String {
    let model = model_of(names, unit).unwrap_or_else(|| unit.to_string());
    let Some(path) = path else { return model };
    match DataPath::parse(path.as_str()) {
        Some(data) => format!("{model}/{}/{} ({})", data.name, data.version, data.file),
        None => format!("{model} {path}"),
    }
}

fn some(names: &Names, all: &[&Broken]) -> String {
    let mut shown: Vec<String> = all.iter().map(|one| item(names, &one.unit, Some(&one.path))).collect();
    shown.dedup();
    let more = shown.len().saturating_sub(NAMED);
    shown.truncate(NAMED);
    let shown = shown.join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}

fn contents(many: usize) -> String {
    if many == 1 { "1 content".to_owned() } else { format!("{many} contents") }
}

fn tables(many: usize) -> String {
    if many == 1 { "the table of 1 model".to_owned() } else { format!("the tables of {many} models") }
}

/// Trees in words.
fn trees(units: usize, directory: bool, packs: bool) -> String {
    let units = (units > 0).then(|| tables(units));
    let rest = [(directory, "the list of all models"), (packs, "the table of all packs")];
    let rest = rest.into_iter().filter(|(is, _)| *is).map(|(_, what)| what.to_owned());
    units.into_iter().chain(rest).collect::<Vec<_>>().join(", ")
}

/// Models by name, the first of them.
fn some_models<'a>(names: &Names, units: impl Iterator<Item = &'a Unit>) -> String {
    let mut shown: Vec<String> = units.map(|unit| item(names, unit, None)).collect();
    let more = shown.len().saturating_sub(NAMED);
    shown.truncate(NAMED);
    let shown = shown.join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}

fn packs(many: usize) -> String {
    if many == 1 { "1 pack".to_owned() } else { format!("{many} packs") }
}

/// A flaw of the ledger as a finding.
pub(super) fn shown(names: &Names, flaw: Flaw) -> DoctorFinding {
    let item = flaw.unit.as_ref().map(|unit| item(names, unit, flaw.path.as_ref()));
    DoctorFinding {
        check: flaw.object,
        passed: false,
        item,
        message: flaw.what,
        hint: Some(flaw.remedy).filter(|remedy| !remedy.is_empty()),
        repair: None,
    }
}

impl Repo {
    /// `peat ledger verify`; `deep` hashes every content.
    pub async fn ledger_verify(&self, deep: bool) -> Result<LedgerVerify> {
        let (clone, place) = self.opened().await?;
        let verified = clone.verify(deep).await?;
        let names = self.model_names()?;
        let findings: Vec<DoctorFinding> = verified.findings.into_iter().map(|flaw| shown(&names, flaw)).collect();
        let orphans = verified.orphans.into_iter();
        Ok(LedgerVerify {
            store: place.opened.url.clone(),
            namespace: place.namespace.clone(),
            entries: verified.entries,
            contents: verified.contents,
            passed: findings.is_empty(),
            findings,
            orphans: orphans.map(|o| LedgerOrphan { key: o.key, size: o.size, message: o.what.to_owned() }).collect(),
        })
    }

    /// Looks at the objects of the ledger: by name, or at all that they refer to when a repair is wanted, or into every
    /// content.
    pub(super) async fn check_ledger(&self, clone: &LocalClone, how: Examination) -> Result<StoreHealth> {
        let found = if how.contents {
            clone.verify(true).await
        } else if how.references {
            clone.verify(false).await
        } else {
            clone.inventory().await
        };
        let found = match found {
            // (The look at the store has said what is wrong with that.)
            Ok(mut found) => {
                found.findings.retain(|flaw| flaw.object != NS);
                found
            }
            Err(error) => {
                let hint = error.hints().first().cloned();
                let finding = DoctorFinding { hint, ..ledger(false, error.chain().join(": ")) };
                return Ok(StoreHealth { findings: vec![finding], ..StoreHealth::default() });
            }
        };
        let names = self.model_names()?;
        let plan = if how.references || how.contents { clone.plan_mend(&found).await? } else { MendPlan::default() };
        let mut health = StoreHealth { findings: mending(&names, &plan), ..StoreHealth::default() };
        health.plan = plan;
        let fine = fine(&found, how);
        for flaw in found.findings {
            if flaw.past {
                let message = format!("{} {}; {}", flaw.object, flaw.what, flaw.remedy);
                // Several states may need one object.
                if health.warnings.iter().all(|told| told.message != message) {
                    health.warnings.push(Warning { name: "past".to_owned(), message });
                }
            } else {
                health.findings.push(shown(&names, flaw));
            }
        }
        if health.findings.is_empty() {
            health.findings.push(ledger(true, fine));
        }
        Ok(health)
    }
}

fn ledger(passed: bool, message: String) -> DoctorFinding {
    DoctorFinding { check: "ledger".to_owned(), passed, item: None, message, hint: None, repair: None }
}

fn fine(found: &Verified, how: Examination) -> String {
    let looked = if how.contents {
        format!("{} entries and {} contents are sound", found.entries, found.contents)
    } else if how.references {
        format!("{} entries are sound, and all that they refer to is there", found.entries)
    } else {
        "entries and packs are there, by name and size".to_owned()
    };
    match found.orphans.len() {
        0 => looked,
        1 => format!("{looked}; 1 object is needed by nobody ('peat ledger verify' says which)"),
        many => format!("{looked}; {many} objects are needed by nobody ('peat ledger verify' lists them)"),
    }
}

/// What can be built again, and what cannot.
fn rebuilding(names: &Names, plan: &Rebuild) -> Vec<DoctorFinding> {
    let mut out = Vec::new();
    let finding = |check: &str, message: String| DoctorFinding { check: check.to_owned(), ..ledger(false, message) };
    if !plan.is_empty() {
        let what = trees(plan.units.len(), plan.directory, plan.packs);
        let here = plan.units.values().filter(|here| **here).count();
        let mut message = format!("{what} cannot be read whole, and what they held is known");
        if !plan.units.is_empty() {
            let by = format!("{here} from this machine, {} from the ledger", plan.units.len() - here);
            message.push_str(&format!(": {by} ({})", some_models(names, plan.units.keys())));
        }
        let repair = format!("write {what} again, then put back the contents that turn out to be missing");
        out.push(DoctorFinding { repair: Some(repair), ..finding("pages", message) });
    }
    if let Some(why) = plan.why {
        let mut message = format!("parts of the trees cannot be built again: {why}");
        if !plan.untold.is_empty() {
            message.push_str(&format!(" ({})", some_models(names, plan.untold.iter())));
        }
        let hint = "run 'peat doctor --repair' on a machine that was in step with the ledger, or restore the objects named \
                    below; until then nothing about these is changed";
        out.push(DoctorFinding { hint: Some(hint.to_owned()), ..finding("untold", message) });
    }
    out
}

/// What can be put back, and what cannot.
fn mending(names: &Names, plan: &MendPlan) -> Vec<DoctorFinding> {
    let mut out = plan.rebuild.as_ref().map(|pages| rebuilding(names, pages)).unwrap_or_default();
    let finding = |check: &str, message: String| DoctorFinding { check: check.to_owned(), ..ledger(false, message) };
    let (here, elsewhere) = (plan.here.len(), plan.elsewhere.len());
    let found: Vec<&Broken> = plan.here.iter().chain(plan.elsewhere.iter().map(|(broken, _)| broken)).collect();
    let mut does = Vec::new();
    if !found.is_empty() {
        does.push(format!("store {} again", contents(found.len())));
    }
    if !plan.drops.is_empty() {
        does.push(format!("drop {} from the table that nothing needs then", packs(plan.drops.len())));
    }
    if !does.is_empty() {
        let mut message = format!(
            "{} cannot be read, and copies are at hand: {here} here, {elsewhere} in the ledger",
            contents(found.len())
        );
        match found.as_slice() {
            [] => message = format!("{} of the table cannot be used", packs(plan.drops.len())),
            some_found => message.push_str(&format!(" ({})", some(names, some_found))),
        }
        out.push(DoctorFinding { repair: Some(does.join(", ")), ..finding("contents", message) });
    }
    if !plan.lost.is_empty() {
        let lost: Vec<&Broken> = plan.lost.iter().collect();
        let message = format!("no copy was found of {}: {}", contents(lost.len()), some(names, &lost));
        let hint = "run 'peat doctor --repair' on other machines that may have the files, or restore the objects named below; \
                    until then the items stay listed, and reading them fails with content_lost";
        out.push(DoctorFinding { hint: Some(hint.to_owned()), ..finding("lost", message) });
    }
    out
}

/// What was done, for people.
pub(super) fn told(done: &Mended) -> Vec<String> {
    let mut out = Vec::new();
    let Built { tables, directory, packs: pack_table, left } = &done.built;
    if *tables > 0 || *directory || *pack_table {
        out.push(format!("wrote {} again", trees(usize(*tables), *directory, *pack_table)));
    }
    out.extend(left.iter().map(|why| format!("not everything was written again: {why}")));
    if done.contents > 0 {
        let entries: Vec<String> = done.entries.iter().map(ToString::to_string).collect();
        let entries = entries.join(", ");
        out.push(format!("put {} back, {} bytes (entry {entries})", contents(usize(done.contents)), done.stored));
    }
    if done.dropped > 0 {
        out.push(format!("dropped {} from the table", packs(usize(done.dropped))));
    }
    out.extend(done.kept.iter().map(|why| format!("no pack was dropped from the table: {why}")));
    out
}

fn usize(many: u64) -> usize {
    usize::try_from(many).unwrap_or(usize::MAX)
}
