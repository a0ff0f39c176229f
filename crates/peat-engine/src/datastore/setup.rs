//! `peat datastore setup`: from a private ledger, or none, to a shared one.
//!
//! Nothing is ever moved or dropped: the private ledger stays where it is. What it holds is committed to the shared one as
//! ordinary changes, item by item as it is, so versions, ids and times are kept; its log entries are not. That is safe to
//! repeat: what is there already with the same content is left alone, and another content is refused. The marker is
//! switched last, so that a failure at any point leaves the repository as it was.

use std::sync::Arc;

use bytes::Bytes;
use peat_clone::{Item, LocalClone, NewChange, NewNamespace, OnRefusal, Scope};
use peat_objects::Range;
use peat_types::{Error, Kind, Namespace, Result, Unit};
use serde_json::Value;

use crate::planner::{self, DomainPlanner, ImportItem};
use crate::repo::{Datastore, MARKER, Place, options, place, with_datastore};
use crate::report::DatastoreSetup;
use crate::{Repo, files};

/// Bytes and items of one change of a copy.
const BATCH: (u64, usize) = (4 << 20, 256);

/// `peat datastore setup`.
#[derive(Clone, Debug, Default)]
pub struct SetupRequest {
    /// The datastore to use from now on.
    pub datastore: Datastore,
    /// `--skip-migration`: the private ledger is not copied.
    pub skip_migration: bool,
}

#[derive(Default)]
struct Copied {
    units: u64,
    items: u64,
    bytes: u64,
}

impl Repo {
    /// Makes or joins the namespace of a shared store, copies what the private ledger holds, and switches the marker.
    ///
    /// # Errors
    /// `Invalid` for settings, `AlreadyExists` when the namespace belongs to another repository, `Unsupported` when the
    /// store cannot keep a ledger, `Conflict` when pending changes or running methods forbid a copy.
    pub async fn datastore_setup(&self, request: &SetupRequest) -> Result<DatastoreSetup> {
        let host = self.host();
        let repo_id = &self.marker().repo_id;
        request.datastore.hydration()?;
        let namespace: Namespace = request.datastore.namespace()?;
        let target = place(host, self.root(), repo_id, Some(&request.datastore))?;
        let own = self.root().join(crate::LOCAL).join("store");
        if target.opened.folder.as_ref() == Some(&own) {
            return Err(Error::invalid("that is the private datastore of this repository")
                .with_hint("choose a folder outside .peat/, or a bucket: 'peat datastore setup s3://bucket/prefix'"));
        }
        let known = own.is_dir() || LocalClone::has_seen_a_ledger(&self.root().join(crate::LOCAL));
        let copy = self.marker().datastore.is_none() && !request.skip_migration && known;
        if copy {
            self.copyable().await?;
        }
        target.make_folder()?;
        let store = target.opened.within(namespace.as_str())?;
        let created = store.get("ns.json", Range::All).await?.is_none();
        // Who joins may only be allowed to read, and whoever created the namespace has asked already.
        let probe = if created { host.stores.probe(&store, &host.env).await? } else { Value::Null };
        let new = NewNamespace { params: host.params.clone(), probe };
        let planner = Arc::new(DomainPlanner::of(self.root()));
        let shared = LocalClone::create(options(host, &target, repo_id)?, host.env.clone(), planner, new)
            .await
            .map_err(|e| taken(e, &target))?;
        let mut warnings = Vec::new();
        let mut copied = Copied::default();
        let mut kept = None;
        match &self.marker().datastore {
            Some(before) if before.url != request.datastore.url || before.namespace()? != namespace => {
                warnings.push(format!("what is in {} stays there and is not copied", before.url));
            }
            Some(_) => {}
            None if copy => {
                copied = self.copy_private(&shared).await?;
                kept = Some(own);
            }
            None => {
                if own.is_dir() {
                    warnings.push("the private datastore was not copied".to_owned());
                    kept = Some(own);
                }
            }
        }
        // The canonical spelling, so that every checkout means the same clone.
        self.switch(&Datastore { url: target.opened.url.clone(), ..request.datastore.clone() })?;
        Ok(DatastoreSetup {
            kind: target.opened.kind.to_owned(),
            url: target.opened.url,
            namespace,
            ledger: shared.info().ledger,
            created,
            clone_path: target.dir,
            items_copied: copied.items,
            bytes_copied: copied.bytes,
            units_copied: copied.units,
            kept_private_store: kept,
            probe: shared.info().probe.clone(),
            warnings,
        })
    }

    fn switch(&self, datastore: &Datastore) -> Result<()> {
        let path = self.root().join(MARKER);
        let text = files::read(&path)?
            .ok_or_else(|| Error::not_found(format!("{MARKER} went away")).with_code("not_a_repo"))?;
        files::write(&self.host().env, &path, with_datastore(&text, datastore)?.as_bytes())
    }

    /// Whether the private ledger is at rest, so that a copy of it is whole.
    async fn copyable(&self) -> Result<()> {
        let private = self.clone_of().await?;
        // What is copied is what this clone knows, and its index may have just been built anew.
        private.pull(&Scope::All).await?;
        let pending = private.pending()?;
        if !pending.is_empty() {
            return Err(Error::new(
                Kind::Conflict,
                format!(
                    "{} changes of this machine are not in the private datastore yet, so it cannot be copied whole",
                    pending.len()
                ),
            )
            .with_hint("settle them with 'peat datastore sync --push', or decide about them: 'peat pending list'"));
        }
        if let Some(info) = private.leases()?.into_iter().find(|info| info.lease.held) {
            return Err(Error::new(
                Kind::Contended,
                format!("a run by {}@{} is in progress since {}", info.lease.user, info.lease.host, info.lease.since),
            )
            .with_hint("wait for its end, or end it with 'peat model cancel --all', then run the command again"));
        }
        Ok(())
    }

    async fn copy_private(&self, shared: &LocalClone) -> Result<Copied> {
        let private = self.clone_of().await?;
        let mut copied = Copied::default();
        for info in private.units()? {
            let mut items = private.items(&info.unit, "")?;
            items.retain(|item| !item.path.as_str().starts_with("leases/"));
            if items.is_empty() {
                continue;
            }
            copied.units += 1;
            copy_unit(private, shared, &info.unit, &items, &mut copied).await?;
            // Believed only when seen.
            for item in &items {
                let there = shared.item(&info.unit, &item.path)?;
                if there.is_none_or(|there| there.hash() != item.hash()) {
                    return Err(Error::damaged(format!("{} did not arrive in the shared datastore", item.path)));
                }
            }
        }
        Ok(copied)
    }
}

async fn copy_unit(from: &LocalClone, to: &LocalClone, unit: &Unit, items: &[Item], copied: &mut Copied) -> Result<()> {
    let (mut batch, mut contents, mut bytes): (Vec<ImportItem>, Vec<Bytes>, u64) = (Vec::new(), Vec::new(), 0);
    for (i, item) in items.iter().enumerate() {
        let content = from.content(item).await?;
        bytes += content.len() as u64;
        batch.push(ImportItem {
            path: item.path.clone(),
            rank: item.rank,
            executable: item.row.executable,
            content: contents.len(),
            hash: item.hash(),
        });
        contents.push(content);
        if bytes >= BATCH.0 || batch.len() >= BATCH.1 || i + 1 == items.len() {
            copied.items += batch.len() as u64;
            copied.bytes += bytes;
            let payload = serde_json::to_value(std::mem::take(&mut batch))
                .map_err(|e| Error::internal("a copy cannot be described").with_source(e))?;
            let mut change = NewChange::new(planner::IMPORT, vec![unit.clone()], payload);
            change.contents = std::mem::take(&mut contents);
            change.message = format!("copy {unit} from the private datastore");
            change.on_refusal = OnRefusal::Drop;
            to.commit(change).await.map_err(|e| {
                e.context("the private datastore was not copied; the repository was left as it was")
                    .with_hint("'peat datastore setup <url>' can be run again: what arrived is not copied twice")
            })?;
            bytes = 0;
        }
    }
    Ok(())
}

fn taken(error: Error, target: &Place) -> Error {
    if error.kind() != Kind::AlreadyExists {
        return error;
    }
    error
        .context(format!("namespace '{}' of {} belongs to another repository", target.namespace, target.opened.url))
        .with_hint(format!("choose another one: 'peat datastore setup {} --namespace NAME'", target.opened.url))
}
