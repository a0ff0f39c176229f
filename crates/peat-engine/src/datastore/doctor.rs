//! The doctor: repo, clone and store, looked at from here. Evidence first; what is changed is what was shown.

use peat_clone::{Built, Finding, LocalClone, MendPlan, Mended, NsInfo, Repair};
use peat_objects::{List, Range};
use peat_types::{Result, Timestamp};

use super::mend::{StoreHealth, told};
use crate::Repo;
use crate::repo::Place;
use crate::report::{DoctorFinding, DoctorReport, Warning};

/// Stores refuse requests whose time is further off than this.
const SKEW_MS: i64 = 15 * 60 * 1000;

/// How hard to look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Examination {
    /// Read the definitions in `models/`, too.
    pub definitions: bool,
    /// Try again what the store can do, as setup does.
    pub probe: bool,
    /// Read and hash every file of the tree.
    pub deep: bool,
    /// Read all entries and tables of the ledger in the store, and see whether what they refer to is there.
    pub references: bool,
    /// Read and hash every content in the store, too.
    pub contents: bool,
}

/// What the doctor found.
#[derive(Clone, Debug)]
pub struct Diagnosis {
    /// For people and scripts.
    pub report: DoctorReport,
    findings: Vec<Finding>,
    plan: MendPlan,
}

impl Repo {
    /// `peat doctor`.
    pub async fn doctor(&self, how: Examination) -> Result<Diagnosis> {
        let (clone, place) = self.opened().await?;
        let mut findings = if how.deep { clone.examine().await? } else { clone.doctor().await? };
        // Nothing is sent to a store that is not what it was.
        let suspect = clone.is_suspect()?;
        for found in findings.iter_mut().filter(|_| suspect) {
            found.repair.take_if(|repair| *repair == Repair::Settle);
        }
        let mut health_findings: Vec<DoctorFinding> = findings.iter().map(shown).collect();
        if how.definitions {
            health_findings.push(self.check_definitions()?);
        }
        let store = self.check_store(clone, place).await;
        let answers = store.iter().all(|finding| finding.check != "rights" || finding.passed);
        health_findings.extend(store);
        let mut ledger = if answers { self.check_ledger(clone, how).await? } else { StoreHealth::default() };
        if suspect {
            ledger.plan = MendPlan::default();
            let described = health_findings.iter_mut().filter(|found| found.check == NS);
            ledger.findings.iter_mut().chain(described).for_each(|found| found.repair = None);
        }
        health_findings.extend(ledger.findings);
        health_findings.extend(self.upkeep_finding()?);
        if how.probe {
            health_findings.push(self.probed(place).await?);
        }
        if let Some(message) = self.private_note().await? {
            ledger.warnings.push(Warning { name: "private".to_owned(), message });
        }
        let passed = health_findings.iter().all(|f| f.passed);
        let report = DoctorReport {
            overall_status: if passed { "pass" } else { "fail" }.to_owned(),
            datastore_type: place.opened.kind.to_owned(),
            health_findings,
            repaired: Vec::new(),
            warnings: ledger.warnings,
        };
        Ok(Diagnosis { report, findings, plan: ledger.plan })
    }

    /// `peat doctor --repair`: puts right what a diagnosis showed, then looks again.
    pub async fn doctor_repair(&self, diagnosis: &Diagnosis, how: Examination) -> Result<DoctorReport> {
        let clone = self.clone_of().await?;
        let mut repaired = Vec::new();
        // Without it nothing else is done in a store that is a folder.
        if diagnosis.report.health_findings.iter().any(|found| found.check == NS && found.repair.is_some()) {
            clone.write_info().await?;
            repaired.push(format!("wrote {NS} again"));
        }
        // First what is here is needed there, then what is wrong here is fetched from there.
        let mended = if diagnosis.plan.is_empty() { Mended::default() } else { clone.mend(&diagnosis.plan).await? };
        repaired.extend(told(&mended));
        if mended.built != Built::default() {
            // Only now it shows where contents should lie, and which packs nothing needs any more.
            let next = self.doctor(how).await?.plan;
            if !next.is_empty() {
                repaired.extend(told(&clone.mend(&next).await?));
            }
        }
        repaired.extend(clone.repair(&diagnosis.findings).await?);
        let mut report = DoctorReport { repaired, ..self.doctor(how).await?.report };
        for found in &mut report.health_findings {
            // What was tried and is as before is not offered again.
            let before = diagnosis.report.health_findings.iter().find(|before| before.check == found.check);
            if found.repair.is_some() && before.is_some_and(|before| before.message == found.message) {
                found.repair = None;
                found.hint = Some("this was tried just now and did not help: see what else is found".to_owned());
            }
        }
        Ok(report)
    }

    fn check_definitions(&self) -> Result<DoctorFinding> {
        let found = self.library().all()?;
        let broken: Vec<String> = found.warnings.iter().map(|w| format!("{}: {}", w.name, w.message)).collect();
        let fine = match found.definitions.len() {
            1 => "1 definition can be read".to_owned(),
            many => format!("{many} definitions can be read"),
        };
        Ok(finding("definitions", &broken, fine, "'peat model validate' says more of each"))
    }

    /// Rights, clock and version, by one read and one listing.
    async fn check_store(&self, clone: &LocalClone, place: &Place) -> Vec<DoctorFinding> {
        let name = &place.opened.url;
        let look = async {
            let store = place.opened.within(place.namespace.as_str())?;
            store.list(&List { prefix: "log/".to_owned(), max_keys: Some(1), ..List::default() }).await?;
            store.get("ns.json", Range::All).await
        };
        let object = match look.await {
            Ok(object) => object,
            Err(error) => {
                let hint = error.hints().join("; ");
                return vec![finding("rights", &[error.chain().join(": ")], String::new(), &hint)];
            }
        };
        let fine = format!("{name} can be read and listed; --probe tries writing");
        let mut findings = vec![finding("rights", &[], fine, "")];
        findings.push(described(clone, name, object.as_ref().map(|object| &object.bytes[..])));
        let now = self.host().env.now();
        findings.push(clock(now, object.and_then(|object| object.meta.date)));
        findings.push(finding(
            "version",
            &[],
            format!("format {} of the ledger, peat {}", clone.info().format, self.host().version),
            "",
        ));
        findings
    }

    /// What the store can do now. It may have been replaced or reconfigured since it was set up.
    async fn probed(&self, place: &Place) -> Result<DoctorFinding> {
        let store = place.opened.within(place.namespace.as_str())?;
        Ok(match self.host().stores.probe(&store, &self.host().env).await {
            Ok(_) => finding("probe", &[], format!("{} does what a ledger needs", place.opened.url), ""),
            Err(error) => {
                let hint = error.hints().join("; ");
                finding("probe", &[error.chain().join(": ")], String::new(), &hint)
            }
        })
    }
}

/// Name of the check, and of what it looks at.
pub(super) const NS: &str = "ns.json";

/// Whether the namespace says what it is. A clone knows and never asks; whoever comes anew does.
fn described(clone: &LocalClone, store: &str, there: Option<&[u8]>) -> DoctorFinding {
    const HINT: &str = "restore it from a backup";
    let ledger = clone.info().ledger;
    let found = there.map(serde_json::from_slice::<NsInfo>);
    let problem = match found {
        Some(Ok(info)) if info.ledger == ledger => {
            return finding(NS, &[], format!("the namespace holds ledger {ledger}"), HINT);
        }
        Some(Ok(info)) => {
            let what = format!("{store} holds ledger {}, and this clone knows it as {ledger}", info.ledger);
            return finding(NS, &[what], String::new(), HINT);
        }
        Some(Err(error)) => format!("{NS} of {store} cannot be read: {error}"),
        None => format!("{store} has no {NS} any more"),
    };
    let repair = Some(format!("write {NS} again, if the log is what it was"));
    DoctorFinding { repair, ..finding(NS, &[problem], String::new(), HINT) }
}

fn clock(now: Timestamp, store: Option<Timestamp>) -> DoctorFinding {
    const HINT: &str = "set this machine's clock, for example by NTP";
    let Some(store) = store else {
        return finding("clock", &[], "the store has no clock of its own".to_owned(), HINT);
    };
    let ahead = now.millis_since(store);
    let way = if ahead < 0 { "behind" } else { "ahead of" };
    let off = format!("this machine's clock is {} s {way} the store's", ahead.abs() / 1000);
    let problem = if ahead.abs() > SKEW_MS { vec![off.clone()] } else { Vec::new() };
    finding("clock", &problem, off, HINT)
}

fn finding(check: &str, problems: &[String], fine: String, hint: &str) -> DoctorFinding {
    let passed = problems.is_empty();
    DoctorFinding {
        check: check.to_owned(),
        passed,
        item: None,
        message: if passed { fine } else { problems.join("; ") },
        hint: (!passed && !hint.is_empty()).then(|| hint.to_owned()),
        repair: None,
    }
}

fn shown(found: &Finding) -> DoctorFinding {
    DoctorFinding {
        check: found.check.to_owned(),
        passed: found.passed,
        item: None,
        message: found.message.clone(),
        hint: found.hint.clone(),
        repair: found.repair.as_ref().map(ToString::to_string),
    }
}
