//! Reading data. Everything comes from the clone; a miss says how old that is.

use std::collections::BTreeMap;

use bytes::Bytes;
use peat_clone::{Item, LocalClone, Scope};
use peat_types::{Error, Kind, Result, Unit};
use serde_json::Value;

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
}

/// Files of one version.
#[derive(Clone, Debug, Default)]
pub(crate) struct Version {
    pub metadata: Option<Item>,
    pub raw: Option<Item>,
}

/// Versions by data name.
pub(crate) type Versions = BTreeMap<String, BTreeMap<u64, Version>>;

/// The data of a unit as this clone knows it.
pub(crate) fn versions(clone: &LocalClone, unit: &Unit) -> Result<Versions> {
    let mut all = Versions::new();
    for item in clone.items(unit, "data/")? {
        let Some(path) = DataPath::parse(item.path.as_str()) else { continue };
        let (name, number, file) = (path.name.to_owned(), path.version, path.file.to_owned());
        let version = all.entry(name).or_default().entry(number).or_default();
        match file.as_str() {
            METADATA => version.metadata = Some(item),
            RAW => version.raw = Some(item),
            _ => {}
        }
    }
    Ok(all)
}

/// Reads the metadata of a version.
pub(crate) async fn metadata(clone: &LocalClone, version: &Version) -> Result<Metadata> {
    let Some(item) = &version.metadata else { return Err(Error::damaged("a data version has no metadata")) };
    record(&clone.content(item).await?, &item.path)
}

/// The metadata of a version if it is on this machine: no request.
fn metadata_here(clone: &LocalClone, version: &Version) -> Result<Option<Metadata>> {
    let Some(item) = &version.metadata else { return Ok(None) };
    clone.content_here(item)?.map(|bytes| record(&bytes, &item.path)).transpose()
}

/// A content as a value: JSON as it is, text as text, anything else as nothing.
pub(crate) fn value_of(content_type: &str, bytes: &Bytes) -> Value {
    if content_type.contains("json")
        && let Ok(value) = serde_json::from_slice(bytes)
    {
        return value;
    }
    String::from_utf8_lossy(bytes).into_owned().into()
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
        let definition = self.definition(&request.model)?;
        let (clone, unit) = self.scoped(&definition, request.fresh).await?;
        let all = versions(clone, &unit)?;
        let mut name = request.name.clone();
        for _ in 0..FORWARDS {
            let of_name = all.get(&name).ok_or_else(|| self.no_data(&definition, &name, &all))?;
            let newest = of_name.last_key_value().map(|(number, _)| *number).unwrap_or_default();
            let number = request.version.unwrap_or(newest);
            let version = of_name.get(&number).ok_or_else(|| {
                self.miss(Error::not_found(format!(
                    "data '{name}' of model '{}' has no version {number}; the newest here is {newest}",
                    definition.name
                )))
                .with_hint(format!("'peat data versions {} {name}' lists them", definition.name))
            })?;
            let metadata = metadata(clone, version).await?;
            match &metadata.renamed_to {
                Some(to) if request.version.is_none() => name.clone_from(to),
                _ => return self.data_view(&definition, clone, metadata, version, request.no_content).await,
            }
        }
        Err(Error::damaged(format!("data '{}' of model '{}' was renamed in a circle", request.name, definition.name)))
    }

    async fn data_view(
        &self,
        definition: &Definition,
        clone: &LocalClone,
        metadata: Metadata,
        version: &Version,
        no_content: bool,
    ) -> Result<DataView> {
        let raw = version.raw.as_ref().ok_or_else(|| {
            Error::damaged(format!("version {} of data '{}' has no content", metadata.version, metadata.name))
        })?;
        let bytes = if no_content { None } else { Some(clone.content(raw).await?) };
        Ok(DataView {
            content: bytes.as_ref().map(|bytes| value_of(&metadata.content_type, bytes)),
            bytes,
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
            content_path: clone.tree().join(raw.path.as_str()),
        })
    }

    /// `peat data list <model>`, of one type of data or all.
    pub async fn data_list(&self, model: &str, data_type: Option<&str>, fresh: bool) -> Result<DataList> {
        let definition = self.definition(model)?;
        let (clone, unit) = self.scoped(&definition, fresh).await?;
        let mut groups: BTreeMap<String, Vec<DataItem>> = BTreeMap::new();
        let mut warnings = Vec::new();
        for (name, of_name) in versions(clone, &unit)? {
            let Some((number, newest)) = of_name.last_key_value() else { continue };
            let metadata = match metadata(clone, newest).await {
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
            groups,
            total,
            warnings,
        })
    }

    /// `peat data versions`.
    pub async fn data_versions(&self, model: &str, name: &str, fresh: bool) -> Result<DataVersions> {
        let definition = self.definition(model)?;
        let (clone, unit) = self.scoped(&definition, fresh).await?;
        let all = versions(clone, &unit)?;
        let of_name = all.get(name).ok_or_else(|| self.no_data(&definition, name, &all))?;
        let mut out = Vec::new();
        let mut offline = false;
        for (number, version) in of_name.iter().rev() {
            // Which versions there are is known here; the rest is told as far as it can be read.
            let metadata = match metadata_here(clone, version)? {
                None if !offline => match metadata(clone, version).await {
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
            total: out.len() as u64,
            versions: out,
        })
    }

    fn no_data(&self, definition: &Definition, name: &str, all: &Versions) -> Error {
        let close = did_you_mean(name, all.keys().map(String::as_str));
        let error = Error::not_found(format!("model '{}' has no data '{name}' here{close}", definition.name));
        self.miss(error).with_hint(format!("'peat data list {}' lists its data", definition.name))
    }
}
