//! Reading outputs: the records of past runs.

use std::collections::{HashMap, VecDeque};

use peat_clone::{Item, LocalClone, WHOLE};
use peat_types::{Error, Kind, Result, Unit};
use serde_json::Value;

use crate::data::{Shelf, value_of};
use crate::paths::OutputPath;
use crate::planner::record;
use crate::record::Output;
use crate::report::{OutputData, OutputLogs, OutputRow, OutputSearch, OutputView, Warning};
use crate::{Repo, definition::Definition};

/// `peat model output data`.
#[derive(Clone, Debug, Default)]
pub struct OutputDataGet {
    /// Output (id or beginning of it), or a model for its newest.
    pub output: String,
    /// Name of the data item; needed when the output wrote several, unless one is called `result`.
    pub name: Option<String>,
    /// Another version of it than the one the output wrote.
    pub version: Option<u64>,
    /// Field of the content, `a.b`.
    pub field: Option<String>,
    /// Brings the datastore up to date first.
    pub fresh: bool,
}

/// An output with the place it was found at.
struct Found {
    unit: Unit,
    item: Item,
    type_name: String,
    output: Output,
}

/// Record of an output without reading it.
struct Entry {
    unit: Unit,
    item: Item,
    stamp: String,
    type_name: String,
}

fn entries(clone: &LocalClone, units: &[Unit]) -> Result<Vec<Entry>> {
    let mut out = Vec::new();
    for unit in units {
        let Some(definition) = unit.as_str().strip_prefix("model/") else { continue };
        for item in clone.items(unit, "outputs/")? {
            if let Some(path) = OutputPath::parse(item.path.as_str(), definition)
                && !path.log
            {
                let (stamp, type_name) = (path.stamp.to_owned(), path.type_name.to_owned());
                out.push(Entry { unit: unit.clone(), item, stamp, type_name });
            }
        }
    }
    out.sort_by(|a, b| b.stamp.cmp(&a.stamp));
    Ok(out)
}

async fn read(clone: &LocalClone, entry: Entry) -> Result<Found> {
    let output = record(&clone.content(&entry.item).await?, &entry.item.path)?;
    Ok(Found { unit: entry.unit, item: entry.item, type_name: entry.type_name, output })
}

impl Repo {
    /// Names of models by definition id.
    pub(crate) fn model_names(&self) -> Result<HashMap<String, String>> {
        let models = match self.foreign_models() {
            Some(models) => models.to_vec(),
            None => self.library().all()?.definitions,
        };
        Ok(models.into_iter().map(|d| (d.id, d.name)).collect())
    }

    /// `peat model output search`, `peat model method history search`: newest first, at most `limit`.
    pub async fn output_search(&self, query: &str, limit: usize, fresh: bool) -> Result<OutputSearch> {
        if let Some((there, model)) = self.elsewhere(query).await? {
            return Box::pin(there.output_search(&model, limit, fresh)).await;
        }
        let clone = self.whole(fresh).await?;
        let names = self.model_names()?;
        let units: Vec<Unit> = clone.units()?.into_iter().map(|info| info.unit).collect();
        let word = query.trim().to_lowercase();
        let (mut results, mut warnings) = (Vec::new(), Vec::new());
        for entry in entries(clone, &units)? {
            if results.len() >= limit {
                break;
            }
            let path = entry.item.path.to_string();
            let found = match read(clone, entry).await {
                Ok(found) => found,
                Err(error) => {
                    warnings.push(Warning { name: path, message: error.chain().join(": ") });
                    continue;
                }
            };
            let output = found.output;
            let model_name = names.get(&output.definition_id).cloned();
            let hit = word.is_empty()
                || model_name.as_deref().is_some_and(|name| name.to_lowercase().contains(&word))
                || found.type_name.contains(&word)
                || output.method_name.to_lowercase().contains(&word)
                || output.status.as_str().contains(&word)
                || output.id.starts_with(&word);
            if hit {
                results.push(OutputRow {
                    id: output.id,
                    definition_id: output.definition_id,
                    model_name,
                    type_name: found.type_name,
                    method_name: output.method_name,
                    status: output.status,
                    started_at: output.started_at,
                    duration_ms: output.duration_ms,
                });
            }
        }
        Ok(OutputSearch { query: query.to_owned(), results, warnings })
    }

    /// An output by model (its newest), id, or beginning of an id.
    async fn find_output(&self, wanted: &str, fresh: bool) -> Result<(&LocalClone, Found)> {
        match self.definition(wanted) {
            Ok(definition) => self.newest_output(&definition, fresh).await,
            Err(error) if error.code() == "model_not_found" => self.output_by_id(wanted, fresh).await,
            Err(error) => Err(error),
        }
    }

    async fn newest_output(&self, definition: &Definition, fresh: bool) -> Result<(&LocalClone, Found)> {
        let (clone, unit) = self.scoped(definition, fresh).await?;
        match entries(clone, &[unit])?.into_iter().next() {
            Some(entry) => Ok((clone, read(clone, entry).await?)),
            None => Err(self.miss(Error::not_found(format!(
                "model '{}' has no output here: it has not been run",
                definition.name
            )))),
        }
    }

    async fn output_by_id(&self, wanted: &str, fresh: bool) -> Result<(&LocalClone, Found)> {
        let clone = self.whole(fresh).await?;
        let units: Vec<Unit> = clone.units()?.into_iter().map(|info| info.unit).collect();
        let mut matches = Vec::new();
        for entry in entries(clone, &units)? {
            // One that cannot be read is none that anybody can ask for.
            let Ok(found) = read(clone, entry).await else { continue };
            if found.output.id == wanted {
                return Ok((clone, found));
            }
            if !wanted.is_empty() && found.output.id.starts_with(wanted) {
                matches.push(found);
            }
        }
        if matches.len() > 1 {
            let ids: Vec<&str> = matches.iter().map(|found| found.output.id.as_str()).collect();
            return Err(Error::new(
                Kind::Invalid,
                format!("'{wanted}' begins the ids of {} outputs: {}", ids.len(), ids.join(", ")),
            )
            .with_code("ambiguous"));
        }
        matches.pop().map(|found| (clone, found)).ok_or_else(|| {
            self.miss(Error::not_found(format!("there is neither a model nor an output '{wanted}' here"))).with_hint(
                match self.via() {
                    Some(namespace) => format!("'peat model output search {namespace}:' lists outputs"),
                    None => "'peat model output search' lists outputs".to_owned(),
                },
            )
        })
    }

    /// `peat model output get`, `peat model method history get`.
    pub async fn output_get(&self, wanted: &str, fresh: bool) -> Result<OutputView> {
        if let Some((there, wanted)) = self.elsewhere(wanted).await? {
            return Box::pin(there.output_get(&wanted, fresh)).await;
        }
        let (_, found) = self.find_output(wanted, fresh).await?;
        let output = found.output;
        Ok(OutputView {
            model_name: self.model_names()?.remove(&output.definition_id),
            id: output.id,
            definition_id: output.definition_id,
            type_name: found.type_name,
            method_name: output.method_name,
            status: output.status,
            started_at: output.started_at,
            completed_at: output.completed_at,
            duration_ms: output.duration_ms,
            retry_count: output.retry_count,
            unleased: output.unleased,
            provenance: output.provenance,
            artifacts: output.artifacts,
            error: output.error,
            log_file: output.log_file,
        })
    }

    /// `peat model output logs`, `peat model method history logs`: the last `tail` lines, or all.
    pub async fn output_logs(&self, wanted: &str, tail: Option<usize>, fresh: bool) -> Result<OutputLogs> {
        if let Some((there, wanted)) = self.elsewhere(wanted).await? {
            return Box::pin(there.output_logs(&wanted, tail, fresh)).await;
        }
        let (clone, found) = self.find_output(wanted, fresh).await?;
        let path = found.item.path.as_str().strip_suffix(".yaml").map(|base| format!("{base}.log")).unwrap_or_default();
        let item = match path.parse() {
            Ok(path) => clone.item(&found.unit, &path)?,
            Err(_) => None,
        };
        let mut lines = LastLines { most: tail, ..LastLines::default() };
        if let Some(item) = &item {
            clone.stream(item, &mut |bytes| lines.add(bytes)).await?;
            lines.finish();
        }
        let LastLines { lines, total, .. } = lines;
        Ok(OutputLogs {
            output_id: found.output.id,
            method_name: found.output.method_name,
            log_artifacts: item.iter().map(|_| path.clone()).collect(),
            path: item.map(|_| path),
            total_lines: total,
            showing_lines: lines.len() as u64,
            lines: lines.into(),
        })
    }

    /// `peat model output data`.
    pub async fn output_data(&self, request: &OutputDataGet) -> Result<OutputData> {
        if let Some((there, output)) = self.elsewhere(&request.output).await? {
            return Box::pin(there.output_data(&OutputDataGet { output, ..request.clone() })).await;
        }
        let (clone, found) = self.find_output(&request.output, request.fresh).await?;
        let artifacts = found.output.artifacts.as_ref().map(|a| a.data_artifacts.as_slice()).unwrap_or_default();
        let names = || artifacts.iter().map(|a| a.name.as_str()).collect::<Vec<_>>().join(", ");
        let artifact = match &request.name {
            Some(name) => artifacts.iter().find(|a| a.name == *name),
            None if artifacts.len() == 1 => artifacts.first(),
            None => artifacts.iter().find(|a| a.name == "result"),
        };
        let artifact = artifact.ok_or_else(|| {
            let what = request.name.as_ref().map_or_else(String::new, |name| format!(" '{name}'"));
            let wrote = if artifacts.is_empty() { "nothing".to_owned() } else { names() };
            Error::not_found(format!("output {} has no data{what}; it wrote {wrote}", found.output.id))
        })?;
        let number = request.version.unwrap_or(artifact.version);
        let shelf = Shelf::now(clone, found.unit.clone());
        let all = shelf.versions().await?;
        let version = all.get(&artifact.name).and_then(|versions| versions.get(&number)).ok_or_else(|| {
            if number > artifact.version || number == 0 {
                return self
                    .miss(Error::not_found(format!("version {number} of data '{}' is not here", artifact.name)));
            }
            // Output and data came in one entry: a clone that knows the one knows what became of the other.
            Error::not_found(format!(
                "version {number} of data '{}' is gone: it was deleted, taken back or purged after the run",
                artifact.name
            ))
            .with_hint("'peat log' tells, unless it was a purge, before which no entry can be read")
        })?;
        let metadata = shelf.metadata(version).await?;
        let raw = version
            .raw
            .as_ref()
            .ok_or_else(|| Error::damaged(format!("version {number} of data '{}' has no content", artifact.name)))?;
        let value = value_of(&metadata.content_type, &shelf.content(raw).await?).ok_or_else(|| {
            Error::invalid(format!("version {number} of data '{}' is no text", artifact.name)).with_hint(format!(
                "'peat data get <model> {} --version {}' passes its bytes on to a pipe or file",
                artifact.name, number
            ))
        })?;
        let data = match &request.field {
            None => value,
            Some(field) => pick(&value, field).cloned().ok_or_else(|| {
                Error::not_found(format!("version {number} of data '{}' has no field '{field}'", artifact.name))
            })?,
        };
        Ok(OutputData {
            output_id: found.output.id.clone(),
            method_name: found.output.method_name.clone(),
            data_id: metadata.id,
            data_name: metadata.name,
            version: number,
            content_type: metadata.content_type,
            field: request.field.clone(),
            data,
        })
    }
}

/// The last lines of a text that comes piece by piece.
#[derive(Default)]
struct LastLines {
    /// How many; all unless set.
    most: Option<usize>,
    lines: VecDeque<String>,
    /// Bytes of them.
    held: u64,
    /// Lines that came.
    total: u64,
    open: Vec<u8>,
}

impl LastLines {
    fn add(&mut self, bytes: &[u8]) -> Result<()> {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.open.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                self.end_line();
            }
            if self.held + self.open.len() as u64 > WHOLE {
                return Err(Error::invalid(format!("what was asked for has more than {} MiB", WHOLE >> 20))
                    .with_code("content_too_large")
                    .with_hint("show its end: 'peat model output logs <output> --tail 100'"));
            }
        }
        Ok(())
    }

    fn end_line(&mut self) {
        let line = self.open.strip_suffix(b"\n").map_or(&*self.open, |line| line.strip_suffix(b"\r").unwrap_or(line));
        let line = String::from_utf8_lossy(line).into_owned();
        self.held += line.len() as u64;
        self.lines.push_back(line);
        self.total += 1;
        self.open.clear();
        while self.most.is_some_and(|most| self.lines.len() > most) {
            self.held -= self.lines.pop_front().map_or(0, |line| line.len() as u64);
        }
    }

    /// The last line may have no end.
    fn finish(&mut self) {
        if !self.open.is_empty() {
            self.end_line();
        }
    }
}

fn pick<'a>(value: &'a Value, field: &str) -> Option<&'a Value> {
    field.split('.').try_fold(value, |value, part| match value {
        Value::Object(map) => map.get(part),
        Value::Array(list) => part.parse::<usize>().ok().and_then(|i| list.get(i)),
        _ => None,
    })
}
