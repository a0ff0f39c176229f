//! What people and machines do with a clone.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use peat_clone::{
    Adopt, Checkpoint, Committed, LeaseMode, LocalClone, NewChange, NewRun, OnRefusal, Pending, PendingStatus, Run,
    Scope,
};
use peat_testkit::sim::Process;
use peat_types::{Error, Hash, Kind, Result, Unit};

use super::host::Host;
use super::world;

/// One thing that a process does with its clone. To add one: name it here and in [`Act::ALL`], and say in [`Actor::play`]
/// what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Append,
    /// A run under a lease, perhaps with others below it.
    Run,
    /// A run that does not wait for the lease.
    Hasty,
    /// A run without a lease.
    Unleased,
    /// A start that is given up halfway (Ctrl-C).
    Leave,
    Pull,
    /// Pulls again and again.
    Poll,
    /// Several tasks of one process at once.
    Together,
    Settle,
    /// Adopts or drops what was parked.
    Pending,
    /// Takes a lease away.
    Force,
    /// Reads contents.
    Read,
    Doctor,
    Verify,
    /// Makes a checkpoint, due or not.
    Checkpoint,
    /// Collects garbage. Only where [`World::collects`](super::world::World::collects).
    Collect,
}

impl Act {
    /// All, with how often each is chosen.
    pub const ALL: [(Self, usize); 15] = [
        (Self::Append, 6),
        (Self::Run, 8),
        (Self::Hasty, 1),
        (Self::Unleased, 1),
        (Self::Leave, 2),
        (Self::Pull, 2),
        (Self::Poll, 1),
        (Self::Together, 2),
        (Self::Settle, 2),
        (Self::Pending, 3),
        (Self::Force, 1),
        (Self::Read, 1),
        (Self::Doctor, 1),
        (Self::Verify, 1),
        (Self::Checkpoint, 1),
    ];
}

/// Units, for people.
struct Named<'a>(&'a [Unit]);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.iter().map(Unit::as_str).collect();
        f.write_str(&names.join(" and "))
    }
}

/// One process that has opened the clone.
pub struct Actor<'a> {
    pub host: &'a Host,
    pub process: &'a Process,
    pub clone: LocalClone,
}

/// A begin that somebody waits for.
struct Waiting<'a>(&'a Actor<'a>, String);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.host.world.judge().waits_no_more(&self.1);
    }
}

fn change(kind: &str, units: Vec<Unit>, token: &str, size: usize) -> NewChange {
    let mut content = token.as_bytes().to_vec();
    content.resize(size.max(content.len()), b'.');
    NewChange {
        contents: vec![Bytes::from(content).into()],
        message: token.to_owned(),
        patience: Duration::from_secs(5),
        ..NewChange::new(kind, units, serde_json::Value::Null)
    }
}

impl Actor<'_> {
    fn explain(&self, error: &Error) {
        self.host.world.explain(self.process.name(), error);
    }

    fn count(&self, what: &'static str) {
        self.host.world.sim.count(what);
    }

    fn size(&self) -> usize {
        self.process.pick(&[16, 200, 3000])
    }

    /// What a change of the part that is played is known by, the `n`th of its process.
    fn token(&self) -> String {
        self.host.world.judge().token(&self.process.playing())
    }

    fn append(&self, units: Vec<Unit>) -> NewChange {
        NewChange {
            author: Some(self.process.name().to_owned()),
            ..change("append", units, &self.token(), self.size())
        }
    }

    /// A client was told what became of its change: if it was not committed it is in the journal, or was parked.
    fn told(&self, committed: Result<Committed>) -> bool {
        let world = &self.host.world;
        match committed {
            Ok(committed) => world.hold(world.judge().acked(&committed, self.clone.instance())),
            Err(error) => {
                self.explain(&error);
                return false;
            }
        }
        true
    }

    /// One thing after the other.
    pub async fn step(&self) -> Result<()> {
        let (process, env) = (self.process, self.process.env());
        process.next();
        let act = process.pick(&self.host.world.acts);
        let units = self.host.world.units(process);
        if !process.plays(format_args!("{act:?} {}", Named(&units))) {
            return Ok(());
        }
        env.sleep(env.jitter(Duration::from_millis(300))).await;
        self.play(act, units).await
    }

    async fn play(&self, act: Act, units: Vec<Unit>) -> Result<()> {
        match act {
            Act::Append => drop(self.told(self.clone.commit(self.append(units)).await)),
            Act::Run => {
                let wait = Duration::from_millis(1000 + self.process.below(9000));
                self.run(units, wait, None, 0).await?;
            }
            Act::Hasty => self.run(units, Duration::ZERO, None, 0).await?,
            Act::Unleased => self.unleased(units).await?,
            Act::Leave => self.begin_and_leave(units).await,
            Act::Pull => {
                let scope = if self.process.chance(0.5) { Scope::All } else { Scope::Units(units) };
                self.pull(&scope).await;
            }
            Act::Poll => {
                let env = self.process.env();
                for _ in 0..2 + self.process.below(4) {
                    self.pull(&Scope::All).await;
                    env.sleep(env.jitter(Duration::from_secs(2))).await;
                }
            }
            Act::Together => {
                let pull = async {
                    if let Err(error) = self.clone.pull(&Scope::All).await {
                        self.explain(&error);
                    }
                };
                let more = (0..3).filter(|n| self.process.maybe(1.0 / f64::from(n + 1), "one of them"));
                let units = more.map(|n| if n == 0 { units.clone() } else { self.host.world.units(self.process) });
                let commits = units.map(|units| self.clone.commit(self.append(units)));
                let ((), committed) = tokio::join!(pull, join_all(commits));
                for committed in committed {
                    self.told(committed);
                }
            }
            Act::Settle => match self.clone.settle().await {
                Ok(settled) => {
                    for committed in settled.committed {
                        self.told(Ok(committed));
                    }
                    settled.interrupted.iter().for_each(|_| self.count("interrupted run released"));
                }
                Err(error) => self.explain(&error),
            },
            Act::Pending => self.pending().await?,
            Act::Force => {
                for unit in &units {
                    match self.clone.force_release(unit).await {
                        Ok(Some(committed)) => {
                            self.count("lease taken away");
                            self.told(Ok(committed));
                        }
                        Ok(None) => {}
                        Err(error) => self.explain(&error),
                    }
                }
            }
            Act::Checkpoint => {
                let full = self.process.maybe(0.3, "of everything");
                match self.clone.checkpoint(true, full).await {
                    Ok(Checkpoint::Done { .. }) => self.count("checkpoint"),
                    Ok(_) => {}
                    Err(error) => self.explain(&error),
                }
            }
            Act::Collect => {
                if let Err(error) = self.collect().await {
                    self.explain(&error);
                }
                self.host.world.audit();
            }
            // They must not write anything to the store (A6).
            Act::Read | Act::Doctor | Act::Verify => {
                self.process.reads(true);
                let done = match act {
                    Act::Doctor => self.clone.doctor().await.map(drop),
                    Act::Verify => self.clone.verify(false).await.map(drop),
                    _ => self.read(&units).await,
                };
                self.process.reads(false);
                if let Err(error) = done {
                    self.explain(&error);
                }
            }
        }
        Ok(())
    }

    async fn pull(&self, scope: &Scope) {
        self.process.reads(true);
        let pulled = self.clone.pull(scope).await;
        self.process.reads(false);
        match pulled {
            Ok(_) => self.host.check_view(self.process, &self.clone),
            Err(error) => self.explain(&error),
        }
    }

    async fn collect(&self) -> Result<()> {
        let (keep, env) = (world::keep(), self.process.env());
        // What there is has to come of age.
        env.sleep(env.jitter(keep * 2)).await;
        let plan = self.clone.plan_gc(keep).await?;
        if self.process.maybe(0.3, "sleeps before it does as planned") {
            env.sleep(env.jitter(keep * 2)).await;
        }
        if !self.clone.gc(&plan, keep).await?.deleted.is_empty() {
            self.count("garbage deleted");
        }
        Ok(())
    }

    async fn read(&self, units: &[Unit]) -> Result<()> {
        for unit in units {
            for item in self.clone.items(unit, "")? {
                let bytes = self.clone.content(&item).await?;
                if Hash::of(&bytes) != item.hash() {
                    let who = self.process.name();
                    self.host.world.sim.violation(format_args!("A5: {who} reads other bytes in {}", item.path));
                }
            }
        }
        Ok(())
    }

    async fn begin(&self, new: NewRun, token: &str) -> Option<Run> {
        let world = &self.host.world;
        world.judge().begins(token, self.clone.instance(), self.process);
        let waiting = Waiting(self, token.to_owned());
        let begun = self.clone.begin(new).await;
        drop(waiting);
        match begun {
            Ok(run) => {
                if let Some(started) = run.started() {
                    self.told(Ok(started.clone()));
                }
                Some(run)
            }
            Err(error) => {
                self.explain(&error);
                let left = self.clone.pending().is_ok_and(|rows| rows.iter().any(|row| row.message == token));
                if !left {
                    self.count("start given up");
                    world.judge().gave_up(token);
                }
                None
            }
        }
    }

    fn start(&self, units: &[Unit], token: &str) -> NewChange {
        NewChange { contents: Vec::new(), on_refusal: OnRefusal::Drop, ..change("start", units.to_vec(), token, 0) }
    }

    /// A run, perhaps one with runs below it.
    async fn run(&self, units: Vec<Unit>, wait: Duration, parent: Option<&Run>, depth: u32) -> Result<()> {
        let process = self.process;
        let token = self.token();
        let start = NewChange { capability: parent.and_then(Run::capability), ..self.start(&units, &token) };
        let Some(run) = self.begin(NewRun { wait, ..NewRun::new(start) }, &token).await else { return Ok(()) };
        process.holds(true);
        let work = self.work(&units, wait, &run, depth);
        if process.maybe(0.3, "does not beat") {
            work.await?;
        } else {
            tokio::select! {
                biased;
                done = work => done?,
                () = run.beat() => {}
                // The method is cancelled, and what it has is committed or parked all the same.
                error = run.lost() => {
                    self.count("lease seen lost");
                    self.host.world.sim.event(format_args!("{} lost its lease: {error}", process.name()));
                }
            }
        }
        process.env().step("test.worked").await;
        if process.maybe(0.1, "ends without a result") {
            process.holds(false);
            return Ok(());
        }
        let kind = if process.maybe(0.1, "fails") { "fail" } else { "end" };
        let change = change(kind, units, &self.token(), self.size());
        let ended = run.end(change).await;
        process.holds(false);
        if ended.as_ref().is_err_and(|error| error.code() == "lease_lost") {
            self.count("end parked");
        }
        self.told(ended);
        Ok(())
    }

    /// What the method does.
    async fn work(&self, units: &[Unit], wait: Duration, run: &Run, depth: u32) -> Result<()> {
        let (process, env) = (self.process, self.process.env());
        env.sleep(env.jitter(Duration::from_millis(600))).await;
        if process.maybe(0.3, "commits meanwhile") {
            self.told(run.commit(self.append(units.to_vec())).await);
        }
        if depth < 2 && process.maybe(0.25, "begins another run below") {
            let below = self.host.world.units(process);
            Box::pin(self.run(below, wait, Some(run), depth + 1)).await?;
        }
        if process.maybe(0.3, "takes long") {
            let long = Duration::from_millis(process.below(8000));
            if process.maybe(0.5, "is cut off meanwhile") {
                self.host.machine.cut_off(long.mul_f64(0.8));
            }
            env.sleep(long).await;
        }
        Ok(())
    }

    async fn unleased(&self, units: Vec<Unit>) -> Result<()> {
        let token = self.token();
        let new = NewRun { lease: LeaseMode::Unleased, ..NewRun::new(self.start(&units, &token)) };
        let run = match self.clone.begin(new).await {
            Ok(run) => run,
            Err(error) => {
                self.explain(&error);
                return Ok(());
            }
        };
        self.process.env().sleep(Duration::from_millis(300)).await;
        let change = change("end", units, &self.token(), self.size());
        self.told(run.end(change).await);
        Ok(())
    }

    /// A start that is given up halfway, its future dropped.
    async fn begin_and_leave(&self, units: Vec<Unit>) {
        let env = self.process.env();
        let token = self.token();
        let limit = env.jitter(Duration::from_millis(300));
        let start = NewRun::new(self.start(&units, &token));
        if env.timeout(limit, self.begin(start, &token)).await.is_none() {
            self.count("start left halfway");
        }
    }

    async fn pending(&self) -> Result<()> {
        let rows = self.clone.pending()?;
        let parked = |row: &Pending| row.status == PendingStatus::Parked;
        let Some(row) = rows.into_iter().find(parked) else { return Ok(()) };
        self.host.look_at_journal();
        // Nobody knows whether it is in the log, and this person does not look.
        let untold = row.reason.is_some_and(|(code, _)| code == world::UNTOLD);
        if untold || self.process.maybe(0.4, "drops it") {
            self.host.world.dropped(row.change);
            match self.clone.drop_change(row.change).await {
                Err(error) if error.kind() == Kind::NotFound || error.kind() == Kind::AlreadyExists => {}
                Err(error) => self.explain(&error),
                Ok(()) => self.count("parked change dropped"),
            }
            return Ok(());
        }
        match self.clone.adopt(row.change, Adopt::Unleased).await {
            Err(error) if error.kind() == Kind::NotFound => {}
            adopted => {
                if self.told(adopted) {
                    self.count("parked change adopted");
                }
            }
        }
        Ok(())
    }
}
