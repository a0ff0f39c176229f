//! Reading data. Everything comes from the clone; a miss says how old that is.

use std::collections::BTreeMap;

use bytes::Bytes;
use peat_clone::{Item, LocalClone, Past, Scope};
use peat_types::{Error, Kind, Result, Seq, Unit};
use serde_json::Value;

use crate::history::When;
use crate::names::did_you_mean;
use crate::paths::{DataPath, METADATA, RAW};
use crate::planner::record;
use crate::record::Metadata;
use crate::report::{DataGroup, DataItem, DataList, DataVersion, DataVersions, DataView, Warning};
use crate::{Definition, Repo};

/// How many forwards a read follows.
const FORWARDS: usize = 8;

/// `peat data get`.
#[derive(Clone, Debug, Default)]
pub struct DataGet {
    /// Definition: name, id or beginning of an id.
    pub model: String,
    /// Name of the data item.
    pub name: String,
    /// The version; the newest when absent.
    pub version: Option<u64>,
    /// `--no-content`.
    pub no_content: bool,
    /// `--fresh`: brings the model up to date first.
    pub fresh: bool,
    /// As it was then.
    pub at: Option<When>,
}

/// Largest content that is read into memory to be shown.
const SHOWN: u64 = 8 << 20;

/// A content that is given piece by piece.
#[derive(Clone, Debug)]
pub struct LargeContent {
    clone: LocalClone,
    item: Item,
}

impl LargeContent {
    /// Gives all of it to `take`, piece by piece, each verified.
    ///
    /// # Errors
    /// What `take` says; `Offline` with code `not_local` when it is not here and the store cannot be asked.
    pub async fn stream(&self, take: &mut (dyn FnMut(&[u8]) -> Result<()> + Send)) -> Result<()> {
        self.clone.stream(&self.item, take).await
    }

    /// Makes sure that its file in the tree is complete.
    ///
    /// # Errors
    /// As [`stream`](Self::stream).
    pub async fn make_local(&self) -> Result<()> {
        self.clone.file(&self.item).await.map(drop)
    }
}

/// What a read is to show.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reading {
    /// Brings what is read up to date first.
    pub fresh: bool,
    /// A state of the past instead, read from the store.
    pub at: Option<When>,
}

impl From<bool> for Reading {
    fn from(fresh: bool) -> Self {
        Self { fresh, at: None }
    }
}

/// Where the data of a unit is read: as this clone knows it, or in a state of the past.
pub(crate) struct Shelf<'a> {
    clone: &'a LocalClone,
    unit: Unit,
    past: Option<Past>,
}

impl<'a> Shelf<'a> {
    /// What the clone knows.
    pub fn now(clone: &'a LocalClone, unit: Unit) -> Self {
        Self { clone, unit, past: None }
    }

    /// The data there.
    pub async fn versions(&self) -> Result<Versions> {
        let items = match &self.past {
            None => self.clone.items(&self.unit, "data/")?,
            Some(past) => self.clone.past_items(past, &self.unit, "data/").await?,
        };
        Ok(by_name(items))
    }

    /// The content of an item.
    pub async fn content(&self, item: &Item) -> Result<Bytes> {
        if self.past.is_none() {
            return self.clone.content(item).await;
        }
        let mut contents = self.clone.past_contents(&[item], &[]).await?;
        contents.pop().ok_or_else(|| Error::internal("no content for one item"))
    }

    /// Reads the metadata of a version.
    pub async fn metadata(&self, version: &Version) -> Result<Metadata> {
        let Some(item) = &version.metadata else { return Err(Error::damaged("a data version has no metadata")) };
        record(&self.content(item).await?, &item.path)
    }

    /// The metadata of a version if it is on this machine: no request.
    fn metadata_here(&self, version: &Version) -> Result<Option<Metadata>> {
        let Some(item) = &version.metadata else { return Ok(None) };
        self.clone.content_here(item)?.map(|bytes| record(&bytes, &item.path)).transpose()
    }

    fn entry(&self) -> Option<Seq> {
        self.past.as_ref().map(|past| past.state.seq)
    }
}

/// Files of one version.
#[derive(Clone, Debug, Default)]
pub(crate) struct Version {
    pub metadata: Option<Item>,
    pub raw: Option<Item>,
}

/// Versions by data name.
pub(crate) type Versions = BTreeMap<String, BTreeMap<u64, Version>>;

fn by_name(items: Vec<Item>) -> Versions {
    let mut all = Versions::new();
    for item in items {
        let Some(path) = DataPath::parse(item.path.as_str()) else { continue };
        let (name, number, file) = (path.name.to_owned(), path.version, path.file.to_owned());
        let version = all.entry(name).or_default().entry(number).or_default();
        match file.as_str() {
            METADATA => version.metadata = Some(item),
            RAW => version.raw = Some(item),
            _ => {}
        }
    }
    all
}

/// A content as a value: JSON as it is, text as text, anything else as nothing.
pub(crate) fn value_of(content_type: &str, bytes: &Bytes) -> Option<Value> {
    if content_type.contains("json")
        && let Ok(value) = serde_json::from_slice(bytes)
    {
        return Some(value);
    }
    std::str::from_utf8(bytes).ok().map(Value::from)
}

impl Repo {
    /// The unit of a definition, brought up to date when `fresh` asks for it or when this clone does not know it yet.
    pub(crate) async fn scoped(&self, definition: &Definition, fresh: bool) -> Result<(&LocalClone, Unit)> {
        let clone = self.clone_of().await?;
        let unit = definition.unit()?;
        let known = || clone.units().map(|units| units.iter().any(|info| info.unit == unit));
        let blank = clone.position()?.is_none() && !known()?;
        self.look(clone, &Scope::Units(vec![unit.clone()]), fresh, blank).await?;
        Ok((clone, unit))
    }

    /// Where the data of a definition is to be read.
    async fn shelf(&self, definition: &Definition, reading: Reading) -> Result<Shelf<'_>> {
        let Some(at) = reading.at else {
            let (clone, unit) = self.scoped(definition, reading.fresh).await?;
            return Ok(Shelf::now(clone, unit));
        };
        let clone = self.clone_of().await?;
        let kept = clone.kept().await?;
        let past = self.past(clone, &kept, at).await?;
        Ok(Shelf { clone, unit: definition.unit()?, past: Some(past) })
    }

    /// Everything, brought up to date when `fresh` asks for it or when this clone never saw everything.
    pub(crate) async fn whole(&self, fresh: bool) -> Result<&LocalClone> {
        let clone = self.clone_of().await?;
        self.look(clone, &Scope::All, fresh, clone.position()?.is_none()).await?;
        Ok(clone)
    }

    /// Pulls what is to be read. A `blank` clone (a new one, or one whose database was rebuilt) cannot tell "not there"
    /// from "not seen yet", so it looks once; without the store the answer is what is here.
    async fn look(&self, clone: &LocalClone, scope: &Scope, fresh: bool, blank: bool) -> Result<()> {
        if !fresh && !blank {
            return Ok(());
        }
        match clone.pull(scope).await {
            Err(error) if !fresh && error.kind() == Kind::Offline => Ok(()),
            pulled => pulled.map(drop),
        }
    }

    /// `peat data get`.
    pub async fn data_get(&self, request: &DataGet) -> Result<DataView> {
        if let Some((there, model)) = self.view_for(&request.model).await? {
            return Box::pin(there.data_get(&DataGet { model, ..request.clone() })).await;
        }
        let definition = self.definition(&request.model)?;
        let shelf = self.shelf(&definition, Reading { fresh: request.fresh, at: request.at }).await?;
        let all = shelf.versions().await?;
        let mut name = request.name.clone();
        for _ in 0..FORWARDS {
            let of_name = all.get(&name).ok_or_else(|| self.no_data(&definition, &name, &all, &shelf))?;
            let newest = of_name.last_key_value().map(|(number, _)| *number).unwrap_or_default();
            let number = request.version.unwrap_or(newest);
            let version = of_name.get(&number).ok_or_else(|| {
                let place = shelf.entry().map_or_else(|| "here".to_owned(), |seq| format!("at entry {seq}"));
                let error = Error::not_found(format!(
                    "data '{name}' of model '{}' has no version {number}; the newest {place} is {newest}",
                    definition.name
                ));
                let error = if shelf.past.is_none() { self.miss(error) } else { error };
                let at = shelf.entry().map_or_else(String::new, |seq| format!(" --at {seq}"));
                let model = self.reference(&definition.name);
                error.with_hint(format!("'peat data versions {model} {name}{at}' lists them"))
            })?;
            let metadata = shelf.metadata(version).await?;
            match &metadata.renamed_to {
                Some(to) if request.version.is_none() => name.clone_from(to),
                _ => return data_view(&definition, &shelf, metadata, version, request.no_content).await,
            }
        }
        Err(Error::damaged(format!("data '{}' of model '{}' was renamed in a circle", request.name, definition.name)))
    }

    /// `peat data list <model>`, of one type of data or all.
    pub async fn data_list(
        &self,
        model: &str,
        data_type: Option<&str>,
        reading: impl Into<Reading>,
    ) -> Result<DataList> {
        let reading = reading.into();
        if let Some((there, model)) = self.view_for(model).await? {
            return Box::pin(there.data_list(&model, data_type, reading)).await;
        }
        let definition = self.definition(model)?;
        let shelf = self.shelf(&definition, reading).await?;
        let mut groups: BTreeMap<String, Vec<DataItem>> = BTreeMap::new();
        let mut warnings = Vec::new();
        for (name, of_name) in shelf.versions().await? {
            let Some((number, newest)) = of_name.last_key_value() else { continue };
            let metadata = match shelf.metadata(newest).await {
                Ok(metadata) => metadata,
                Err(error) => {
                    warnings.push(Warning { name, message: format!("version {number}: {}", error.chain().join(": ")) });
                    continue;
                }
            };
            if metadata.lifecycle.is_some() {
                continue;
            }
            let kind = metadata.tags.get("type").cloned().unwrap_or_else(|| "file".to_owned());
            if data_type.is_some_and(|wanted| wanted != kind) {
                continue;
            }
            groups.entry(kind.clone()).or_default().push(DataItem {
                id: metadata.id,
                name: metadata.name,
                version: metadata.version,
                content_type: metadata.content_type,
                data_type: kind,
                streaming: metadata.streaming,
                size: metadata.size,
                created_at: metadata.created_at,
            });
        }
        let total = groups.values().map(|items| items.len() as u64).sum();
        let groups = groups.into_iter().map(|(data_type, items)| DataGroup { data_type, items }).collect();
        Ok(DataList {
            model_id: definition.id,
            model_name: definition.name,
            model_type: definition.type_name,
            entry: shelf.entry(),
            groups,
            total,
            warnings,
        })
    }

    /// `peat data versions`.
    pub async fn data_versions(&self, model: &str, name: &str, reading: impl Into<Reading>) -> Result<DataVersions> {
        let reading = reading.into();
        if let Some((there, model)) = self.view_for(model).await? {
            return Box::pin(there.data_versions(&model, name, reading)).await;
        }
        let definition = self.definition(model)?;
        let shelf = self.shelf(&definition, reading).await?;
        let all = shelf.versions().await?;
        let of_name = all.get(name).ok_or_else(|| self.no_data(&definition, name, &all, &shelf))?;
        let mut out = Vec::new();
        let mut offline = false;
        for (number, version) in of_name.iter().rev() {
            // Which versions there are is known here; the rest is told as far as it can be read.
            let metadata = match shelf.metadata_here(version)? {
                None if !offline => match shelf.metadata(version).await {
                    Err(error) if error.kind() == Kind::Offline => {
                        offline = true;
                        None
                    }
                    read => Some(read?),
                },
                here => here,
            };
            out.push(DataVersion {
                version: *number,
                created_at: metadata.as_ref().map(|metadata| metadata.created_at),
                size: version.raw.as_ref().map(Item::size),
                checksum: metadata.and_then(|metadata| metadata.checksum),
                is_latest: out.is_empty(),
            });
        }
        Ok(DataVersions {
            data_name: name.to_owned(),
            model_id: definition.id,
            model_name: definition.name,
            model_type: definition.type_name,
            entry: shelf.entry(),
            total: out.len() as u64,
            versions: out,
        })
    }

    fn no_data(&self, definition: &Definition, name: &str, all: &Versions, shelf: &Shelf<'_>) -> Error {
        let close = did_you_mean(name, all.keys().map(String::as_str));
        let (model, reference) = (&definition.name, self.reference(&definition.name));
        if let Some(seq) = shelf.entry() {
            return Error::not_found(format!("model '{model}' had no data '{name}' at entry {seq}{close}"))
                .with_hint(format!("'peat data list {0} --at {1}' lists what it had", reference, seq));
        }
        let error = Error::not_found(format!("model '{model}' has no data '{name}' here{close}"));
        self.miss(error).with_hint(format!("'peat data list {reference}' lists its data"))
    }
}

async fn data_view(
    definition: &Definition,
    shelf: &Shelf<'_>,
    metadata: Metadata,
    version: &Version,
    no_content: bool,
) -> Result<DataView> {
    let raw = version.raw.as_ref().ok_or_else(|| {
        Error::damaged(format!("version {} of data '{}' has no content", metadata.version, metadata.name))
    })?;
    let large = raw.size() > SHOWN && !no_content;
    let bytes = if no_content || large { None } else { Some(shelf.content(raw).await?) };
    Ok(DataView {
        content: bytes.as_ref().and_then(|bytes| value_of(&metadata.content_type, bytes)),
        bytes,
        large: large.then(|| LargeContent { clone: shelf.clone.clone(), item: raw.clone() }),
        id: metadata.id,
        name: metadata.name,
        model_id: definition.id.clone(),
        model_name: definition.name.clone(),
        model_type: definition.type_name.clone(),
        version: metadata.version,
        content_type: metadata.content_type,
        lifetime: metadata.lifetime,
        garbage_collection: metadata.garbage_collection,
        streaming: metadata.streaming,
        tags: metadata.tags,
        owner_definition: metadata.owner_definition,
        created_at: metadata.created_at,
        size: metadata.size,
        checksum: metadata.checksum,
        entry: shelf.entry(),
        content_path: shelf.past.is_none().then(|| shelf.clone.tree().join(raw.path.as_str())),
    })
}
