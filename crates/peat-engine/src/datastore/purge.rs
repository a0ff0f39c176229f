//! Removing something from the present and from history for good.

use std::collections::BTreeSet;

use peat_clone::{PurgePlan, Scope};
use peat_types::{Error, ItemPath, Result, Unit, in_span, operation};

use super::maintain::by_kind;
use crate::Repo;
use crate::paths::DataPath;
use crate::report::{DatastorePurge, PurgeDone};

/// Bytes that one request moves.
const REQUEST: u64 = 8 << 20;

/// `peat datastore purge`.
#[derive(Clone, Debug, Default)]
pub struct PurgeRequest {
    /// A model, by name, id or the beginning of an id; or a path as `peat ledger cat` shows it.
    pub item: String,
    /// Name of the data; absent when `item` is a path.
    pub name: Option<String>,
}

impl Repo {
    /// What `peat datastore purge` would do. Nothing is changed.
    ///
    /// # Errors
    /// `NotFound` when there is no such thing now, in the entries that are kept, or left of an earlier purge.
    pub async fn purge_plan(&self, request: &PurgeRequest) -> Result<DatastorePurge> {
        let (clone, place) = self.opened().await?;
        clone.pull(&Scope::All).await?;
        let (unit, paths) = self.purged_by(request).await?;
        let plan = clone.plan_purge(&unit, &paths).await?;
        let nothing = plan.items.is_empty() && !plan.in_history && plan.unfinished == 0;
        if nothing {
            let wanted = paths.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            return Err(Error::not_found(format!("nothing in {unit} is or was called {wanted}"))
                .with_hint(
                    "'peat data list <model>' shows the data of a model; entries that are gone tell nothing, and a purge of it \
                     that was interrupted is finished",
                ));
        }
        let text = |item: &ItemPath| item.to_string();
        let PurgePlan { head: _, items, in_history, again, twins, floor, pins, entries, unfinished: _, pack_bytes } =
            plan;
        Ok(DatastorePurge {
            store: place.opened.url.clone(),
            namespace: place.namespace.clone(),
            unit: unit.to_string(),
            paths: paths.iter().map(text).collect(),
            items: items.iter().map(|(path, _)| text(path)).collect(),
            in_history,
            again: again.len() as u64,
            again_bytes: again.iter().map(|(.., size)| size).sum(),
            elsewhere: twins.iter().map(|(unit, path)| format!("{unit} {path}")).collect(),
            pins: pins.into_iter().map(|(name, _)| name).collect(),
            oldest_state: floor,
            entries,
            pack_bytes,
            requests_about: 20 + 3 * entries + 2 * (pack_bytes / REQUEST) + again.len() as u64,
            out_of_reach: out_of_reach(),
            done: None,
        })
    }

    /// `peat datastore purge`: carries it out.
    ///
    /// # Errors
    /// `Conflict` with code `pinned`; `Contended` when others were faster each time. Run again, it goes on.
    pub async fn purge(&self, request: &PurgeRequest, plan: DatastorePurge) -> Result<DatastorePurge> {
        let clone = self.clone_of().await?;
        let (unit, paths) = self.purged_by(request).await?;
        let done = in_span(operation!("purge"), clone.purge(&unit, &paths)).await?;
        let done = PurgeDone {
            items: done.items,
            again: done.again,
            oldest_state: done.floor,
            overwritten: done.overwritten,
            freed: by_kind(&done.collected.deleted),
            left: by_kind(&done.collected.left),
            denied: done.collected.denied,
        };
        Ok(DatastorePurge { done: Some(done), ..plan })
    }

    /// The unit and the paths that are meant.
    async fn purged_by(&self, request: &PurgeRequest) -> Result<(Unit, Vec<ItemPath>)> {
        let Some(name) = &request.name else {
            let path: ItemPath = request.item.parse()?;
            let id = path.as_str().split('/').find_map(uuid_in).ok_or_else(|| {
                Error::invalid(format!("'{path}' does not say of which model it is: no part of it is an id"))
                    .with_hint("name model and data instead: 'peat datastore purge <model> <data>'")
            })?;
            return Ok((Unit::model(id)?, vec![path]));
        };
        let definition = self.definition(&request.item)?;
        let unit = Unit::model(&definition.id)?;
        let folder = format!("data/{}/{}/{name}", definition.type_name, definition.id);
        let mut paths = BTreeSet::from([folder.parse::<ItemPath>()?]);
        // A definition whose type was changed keeps its data where it was.
        for item in self.clone_of().await?.items(&unit, "data/")? {
            let path = item.path.as_str();
            if DataPath::parse(path).is_some_and(|data| data.name == name) {
                let folder = path.rsplitn(3, '/').nth(2).unwrap_or(path);
                paths.insert(folder.parse()?);
            }
        }
        Ok((unit, paths.into_iter().collect()))
    }
}

/// An id in a part of a path: all of it, or before the stamp of an output.
fn uuid_in(part: &str) -> Option<&str> {
    let id = part.get(..36)?;
    uuid::Uuid::try_parse(id).is_ok().then_some(id)
}

fn out_of_reach() -> Vec<String> {
    [
        "logs of runs and other data that hold the same text in other words: purge each of them",
        "old versions that a bucket with versioning or a lock on objects keeps: remove them there",
        "clones: their files go with their next pull, but state.db and the journal may hold bytes of it until they are removed",
        "backups of the bucket, of machines, and git",
        "whoever has read it: change the secret",
    ]
    .map(str::to_owned)
    .to_vec()
}
