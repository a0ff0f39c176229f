//! Models without a definition in `models/`: those of other namespaces of the same store, `namespace:model`, which are read
//! through clones of their own, lazily; and those whose definition was removed, or did not come by git yet. Such views are
//! for reading; nothing is ever written through them.

use std::collections::BTreeSet;
use std::path::PathBuf;

use futures::stream::{self, StreamExt, TryStreamExt};
use peat_clone::{LocalClone, Scope};
use peat_types::{Error, Kind, Namespace, Result, Unit};

use crate::data::Shelf;
use crate::report::{CatalogNamespace, CatalogPull};
use crate::{Datastore, Definition, Repo};

/// Records read at once.
const PARALLEL: usize = 16;

impl Repo {
    /// `peat datastore catalog pull`: brings what is known here of other namespaces up to date; contents follow on demand.
    ///
    /// # Errors
    /// `Invalid` for names and for a private datastore, `NotFound` with code `namespace_missing`.
    pub async fn catalog_pull(&self, namespaces: &[String]) -> Result<CatalogPull> {
        // All names before any request.
        let names: Vec<Namespace> = namespaces.iter().map(|name| name.parse()).collect::<Result<_>>()?;
        let mut out = CatalogPull { namespaces: Vec::new() };
        for namespace in names {
            let repo = self.namespace(&namespace)?;
            let clone = repo.clone_of().await?;
            let pulled = clone.pull(&Scope::All).await?;
            let units = clone.units()?;
            out.namespaces.push(CatalogNamespace {
                namespace,
                repo_id: clone.info().owner.clone(),
                models: models(clone, &BTreeSet::new()).await?.into_iter().map(|model| model.name).collect(),
                units: units.len() as u64,
                items: units.iter().map(|unit| unit.items).sum(),
                changed: pulled.items,
                position: pulled.to,
            });
        }
        Ok(out)
    }

    /// Where a reference such as `pay:web` is to be read, and what the model is called there; `None` for one of this
    /// repository.
    pub(crate) async fn elsewhere(&self, reference: &str) -> Result<Option<(Self, String)>> {
        let Some((slug, model)) = reference.split_once(':') else { return Ok(None) };
        // Older definitions may have such names.
        if self.is_foreign() || self.definition(reference).is_ok() {
            return Ok(None);
        }
        let namespace: Namespace = slug
            .parse()
            .map_err(|e: Error| e.context(format!("'{reference}' is neither a model nor namespace:model")))?;
        let repo = self.namespace(&namespace)?;
        let clone = repo.clone_of().await?;
        if clone.position()?.is_none() {
            clone.pull(&Scope::All).await?;
        }
        let known = models(clone, &BTreeSet::new()).await?;
        Ok(Some((repo.with_models(known), model.to_owned())))
    }

    /// Where the data of a model is to be read when it has no definition of this repository; `None` when it has one, or
    /// when nothing is known of it here.
    pub(crate) async fn view_for(&self, reference: &str) -> Result<Option<(Self, String)>> {
        if reference.contains(':') {
            return self.elsewhere(reference).await;
        }
        let missing = |error: &Error| error.code() == "model_not_found";
        if self.is_foreign() || !self.definition(reference).is_err_and(|error| missing(&error)) {
            return Ok(None);
        }
        let defined: BTreeSet<String> = self.library().all()?.definitions.into_iter().map(|model| model.id).collect();
        let clone = self.clone_of().await?;
        let known = models(clone, &defined).await?;
        Ok(find(&known, reference, None).is_ok().then(|| (self.clone().with_models(known), reference.to_owned())))
    }

    /// The model whose history is asked for: one with a definition, or one that is deleted and whose data or full id is
    /// known.
    ///
    /// # Errors
    /// Those of [`Repo::definition`].
    pub(crate) async fn model_of_history(&self, reference: Option<&str>) -> Result<Option<Definition>> {
        let Some(reference) = reference else { return Ok(None) };
        let missing = match self.definition(reference) {
            Err(error) if error.code() == "model_not_found" => error,
            found => return found.map(Some),
        };
        if reference.contains(':') {
            return Err(missing);
        }
        if let Some((view, model)) = self.view_for(reference).await? {
            return view.definition(&model).map(Some);
        }
        // Its data may be gone, too; entries know it by its id.
        if uuid::Uuid::try_parse(reference).is_ok() {
            return Ok(Some(stub(reference, reference.to_owned(), String::new(), reference.to_owned())));
        }
        Err(missing.with_hint("one that was deleted with its data is found by its full id, which 'peat log' shows"))
    }

    /// This repository as seen from another namespace of its store.
    fn namespace(&self, namespace: &Namespace) -> Result<Self> {
        let Some(own) = &self.marker().datastore else {
            return Err(Error::invalid("a private datastore has no other namespaces")
                .with_code("not_shared")
                .with_hint("share it first: 'peat datastore setup s3://bucket/prefix'"));
        };
        let datastore =
            Datastore { namespace: Some(namespace.to_string()), hydration: Some("lazy".to_owned()), ..own.clone() };
        Ok(self.seen_from(namespace, datastore))
    }
}

/// The models that a namespace has data of, by what the newest data of each says. Reads one record each, once.
/// Those with an id in `but` are left out.
async fn models(clone: &LocalClone, but: &BTreeSet<String>) -> Result<Vec<Definition>> {
    let units: Vec<Unit> = clone.units()?.into_iter().map(|info| info.unit).collect();
    let id = |unit: &Unit| unit.as_str().strip_prefix("model/").map(str::to_owned);
    let ids: Vec<_> = units.iter().filter_map(|unit| Some((unit, id(unit)?))).collect();
    let reads: Vec<_> =
        ids.iter().filter(|(_, id)| !but.contains(id)).map(|(unit, id)| model(clone, unit, id)).collect();
    stream::iter(reads).buffered(PARALLEL).try_collect().await
}

async fn model(clone: &LocalClone, unit: &Unit, id: &str) -> Result<Definition> {
    let shelf = Shelf::now(clone, unit.clone());
    let all = shelf.versions().await?;
    let newest = all.values().filter_map(|versions| versions.last_key_value()).map(|(_, version)| version);
    let mut name = None;
    for version in newest {
        match shelf.metadata(version).await {
            Ok(metadata) => name = metadata.tags.get("modelName").cloned(),
            // It is found by its id all the same.
            Err(error) if matches!(error.kind(), Kind::Damaged | Kind::Offline) => {}
            Err(error) => return Err(error),
        }
        if name.is_some() {
            break;
        }
    }
    let items = clone.items(unit, "data/")?;
    let type_name =
        items.first().and_then(|item| item.path.as_str().strip_prefix("data/")?.split_once(&format!("/{id}/")));
    let name = name.unwrap_or_else(|| id.to_owned());
    let rel = format!("{name} in namespace {}", clone.info().namespace);
    let type_name = type_name.map(|(name, _)| name.to_owned()).unwrap_or_default();
    Ok(stub(id, name, type_name, rel))
}

/// What stands for a definition that is not here.
fn stub(id: &str, name: String, type_name: String, rel: String) -> Definition {
    Definition {
        id: id.to_owned(),
        type_name,
        name,
        type_version: None,
        version: 0,
        tags: Default::default(),
        global_arguments: Default::default(),
        methods: Default::default(),
        inputs: Default::default(),
        required_inputs: Vec::new(),
        additional_inputs: false,
        doc: Default::default(),
        path: PathBuf::new(),
        rel,
        source: String::new(),
    }
}

/// How to learn what is new in another namespace.
pub(crate) fn news(namespace: &Namespace) -> String {
    format!("what is new there comes with 'peat datastore catalog pull --namespaces {namespace}'")
}

/// Finds a model among those of another namespace: by name, id or beginning of an id.
pub(crate) fn find(models: &[Definition], wanted: &str, via: Option<&Namespace>) -> Result<Definition> {
    let exact = models.iter().filter(|model| model.name == wanted || model.id == wanted).collect::<Vec<_>>();
    let by_id = || models.iter().filter(|model| !wanted.is_empty() && model.id.starts_with(wanted)).collect();
    let found = if exact.is_empty() { by_id() } else { exact };
    match found.as_slice() {
        [one] => Ok((*one).clone()),
        [] => {
            let names: Vec<&str> = models.iter().map(|model| model.name.as_str()).collect();
            let place = via.map_or_else(|| "the datastore".to_owned(), |namespace| format!("namespace {namespace}"));
            let has = if names.is_empty() { "it has none".to_owned() } else { format!("it has: {}", names.join(", ")) };
            let error = Error::not_found(format!("{place} has no data of a model '{wanted}'; {has}"))
                .with_code("model_not_found");
            Err(match via {
                Some(namespace) => error.with_hint(news(namespace)),
                None => error,
            })
        }
        many => {
            let ids: Vec<&str> = many.iter().map(|model| model.id.as_str()).collect();
            Err(Error::invalid(format!("'{wanted}' is the name of {} models there: {}", ids.len(), ids.join(", ")))
                .with_code("ambiguous"))
        }
    }
}
