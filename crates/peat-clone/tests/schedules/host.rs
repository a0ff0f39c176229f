//! Machines: a folder each, and processes that work on it, several at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use peat_clone::{Durability, Hydration, LocalClone, NewNamespace, Options, PendingStatus, Scope, Silent, Together};
use peat_testkit::sim::{Machine, Process};
use peat_types::{ChangeId, Error, Namespace, Result, Seq, Unit};

use super::acts::Actor;
use super::planner::Appender;
use super::view::{File, files_digest};
use super::world::{World, lock};

/// One machine and its folder.
#[derive(Clone)]
pub struct Host {
    pub world: World,
    pub machine: Machine,
    dir: PathBuf,
    hydration: Hydration,
    seen: Arc<Mutex<Seen>>,
}

/// What the clone of a machine knew when somebody last looked.
#[derive(Default)]
struct Seen {
    position: Option<Seq>,
    units: BTreeMap<Unit, (Option<Seq>, Option<Seq>)>,
}

impl Host {
    pub fn new(world: &World, name: &str, dir: PathBuf, hydration: Hydration) -> Self {
        let machine = world.sim.machine(name);
        Self { world: world.clone(), machine, dir, hydration, seen: Arc::default() }
    }

    pub async fn open(&self, process: &Process) -> Result<LocalClone> {
        let options = Options {
            folder: None,
            store: process.store(),
            url: "sim:".to_owned(),
            namespace: Namespace::default(),
            dir: self.dir.clone(),
            repo_id: "repo".to_owned(),
            hydration: self.hydration,
            durability: Durability::Process,
            together: Together::default(),
            user: "somebody".to_owned(),
            host: self.machine.name().to_owned(),
            reporter: Arc::new(Silent),
        };
        let new = NewNamespace { params: self.world.params(), ..NewNamespace::default() };
        LocalClone::create(options, process.env().clone(), Arc::new(Appender), new).await
    }

    /// Processes one after the other.
    pub async fn live(self, seat: u64, lives: u64) {
        for life in 0..lives {
            let process = self.machine.process(format_args!("{seat}.{life}"), self.world.mutation);
            if !process.part("opens the clone") {
                continue;
            }
            let steps = 1 + process.below(4);
            let pause = process.below(1500);
            if let Some(Err(error)) = process.run(self.session(&process, steps)).await {
                self.world.explain(process.name(), &error);
            }
            self.look_at_journal();
            let pause = if process.is_dead() { pause / 8 } else { pause };
            self.world.sim.sleep(Duration::from_millis(pause)).await;
        }
    }

    /// Notes every row in the journal: from now on it must not be lost.
    pub fn look_at_journal(&self) {
        let Ok(files) = std::fs::read_dir(self.dir.join("journal")) else { return };
        for file in files.flatten() {
            let name = file.file_name();
            let Some(id) = name.to_str().and_then(|name| name.strip_suffix(".change")) else { continue };
            let (Ok(id), Ok(bytes)) = (id.parse(), std::fs::read(file.path())) else { continue };
            let text = String::from_utf8_lossy(&bytes);
            let disposable = text.contains("\"is\":\"start\"") || text.contains("\"is\":\"release\"");
            self.world.judge().journalled(id, disposable);
        }
    }

    async fn session(&self, process: &Process, steps: u64) -> Result<()> {
        let clone = self.open(process).await?;
        let actor = Actor { host: self, process, clone };
        for _ in 0..steps {
            actor.step().await?;
        }
        Ok(())
    }

    /// Settles whatever is left, with nothing failing any more. Gives the rows that stay.
    pub async fn settle(&self) -> BTreeSet<ChangeId> {
        let mut open = String::new();
        for n in 0..20 {
            let process = self.machine.process(format_args!("settles{n}"), self.world.mutation);
            let work = async {
                let clone = self.open(&process).await?;
                clone.settle().await?;
                clone.pull(&Scope::All).await?;
                self.check_view(&process, &clone);
                let pending = clone.pending()?;
                let held = clone.leases()?.into_iter().any(|info| info.lease.held && info.lease.clone == clone.id());
                Ok::<_, Error>((pending, held))
            };
            match process.run(work).await {
                Some(Ok((pending, held))) => {
                    open = format!("{pending:?}, a lease held: {held}");
                    if !held && pending.iter().all(|row| row.status == PendingStatus::Parked) {
                        return pending.iter().map(|row| row.change).collect();
                    }
                }
                Some(Err(error)) => self.world.explain(process.name(), &error),
                None => {}
            }
            self.world.sim.sleep(Duration::from_secs(1)).await;
        }
        self.world.sim.violation(format_args!("A9: {} cannot settle: {open}", self.machine.name()));
        BTreeSet::new()
    }

    /// Looks at everything once more when all is over: it must be whole, and say so.
    pub async fn inspect(&self) {
        let process = self.machine.process("inspects", self.world.mutation);
        process.reads(true);
        let sim = &self.world.sim;
        let work = async {
            let clone = self.open(&process).await?;
            clone.pull(&Scope::All).await?;
            self.check_view(&process, &clone);
            for info in clone.units()? {
                for item in clone.items(&info.unit, "")? {
                    clone.content(&item).await?;
                }
            }
            if let Some(failed) = clone.doctor().await?.into_iter().find(|f| !f.passed && f.check != "journal") {
                sim.violation(format_args!("A1: the doctor of {} finds {failed:?}", process.name()));
            }
            if let Some(finding) = clone.verify(true).await?.findings.first() {
                sim.violation(format_args!("A10: verify finds {finding:?}"));
            }
            Ok::<_, Error>(())
        };
        if let Some(Err(error)) = process.run(work).await {
            sim.violation(format_args!("A5: {} was told {error:?} although nothing fails", process.name()));
        }
    }

    /// What this clone knows is what the log says, as of where it says it stands, and never less than before.
    pub fn check_view(&self, process: &Process, clone: &LocalClone) {
        let who = process.name();
        if let Err(error) = self.compare(who, clone) {
            self.world.explain(who, &error);
        }
    }

    fn compare(&self, who: &str, clone: &LocalClone) -> Result<()> {
        let sim = &self.world.sim;
        let judge = self.world.judge();
        let mut seen = lock(&self.seen);
        let position = clone.position()?;
        if position < seen.position {
            sim.violation(format_args!("A8: {who} went back from {:?} to {position:?}", seen.position));
        }
        seen.position = position;
        for info in clone.units()? {
            let now = (Some(info.seq), Some(info.as_of));
            let before = seen.units.insert(info.unit.clone(), now).unwrap_or_default();
            if now.0 < before.0 || now.1 < before.1 {
                sim.violation(format_args!("A8: {who} went back from {before:?} to {now:?} in {}", info.unit));
            }
            let items = clone.items(&info.unit, "")?;
            let files = items.iter().map(|item| (item.path.clone(), File::of(item.rank, &item.row))).collect();
            let truth = judge.replay.unit_at(&info.unit, info.as_of);
            if truth != Some((info.seq, files_digest(&files))) {
                sim.violation(format_args!(
                    "A1: {who} knows something else of {} as of {}: seq {}, not {:?}",
                    info.unit,
                    info.as_of,
                    info.seq,
                    truth.map(|(seq, _)| seq)
                ));
            }
        }
        Ok(())
    }
}
