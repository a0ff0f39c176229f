//! What a run writes into the ledger, and what is reported of it.

use std::collections::BTreeMap;

use bytes::Bytes;
use peat_clone::{Committed, NOT_JOURNALLED, NewChange, Source};
use peat_types::Error;
use serde_json::Value;

use super::{Prepared, RunRequest};
use crate::Host;
use crate::planner::{self, DataWrite, RunAnswer, RunRecord};
use crate::record::Owner;
use crate::report::{Artifact, RunReport};
use crate::types::{DataKind, DataSpec, Outcome, Produced, Write};

fn change(kind: &str, prepared: &Prepared, record: &RunRecord, message: String) -> NewChange {
    let payload = serde_json::to_value(record).unwrap_or_default();
    let mut change = NewChange::new(kind, vec![prepared.unit.clone()], payload);
    change.message = message;
    change.author = Some(prepared.who.clone());
    change
}

/// The change that announces a run.
pub(super) fn start(prepared: &Prepared) -> NewChange {
    let record = RunRecord {
        type_name: prepared.definition.type_name.clone(),
        output: prepared.output.clone(),
        data: Vec::new(),
        log: None,
    };
    let message = format!("run {} {}", prepared.definition.name, prepared.method.name);
    change(planner::START, prepared, &record, message)
}

/// The change that ends it.
pub(super) fn end(
    host: &Host,
    prepared: &Prepared,
    outcome: &Outcome,
    request: &RunRequest,
    log: Vec<u8>,
) -> NewChange {
    let mut contents: Vec<Source> = Vec::new();
    let mut data = Vec::new();
    for write in &outcome.writes {
        // A type that writes what it did not declare is a defect of the type, and its data is kept all the same.
        let spec = prepared.of.spec().data(&write.spec);
        data.push(data_write(host, prepared, request, write, spec, contents.len()));
        contents.push(match &write.content {
            Produced::Bytes(bytes) => Source::Bytes(bytes.clone()),
            Produced::File { path, .. } => Source::File(path.clone()),
        });
    }
    let log = (!log.is_empty()).then(|| {
        contents.push(Bytes::from(log).into());
        contents.len() - 1
    });
    let record =
        RunRecord { type_name: prepared.definition.type_name.clone(), output: prepared.output.clone(), data, log };
    let message = format!("{} {}: {}", prepared.definition.name, prepared.method.name, prepared.output.status.as_str());
    let mut change = change(planner::END, prepared, &record, message);
    change.contents = contents;
    change
}

fn data_write(
    host: &Host,
    prepared: &Prepared,
    request: &RunRequest,
    write: &Write,
    spec: Option<&DataSpec>,
    content: usize,
) -> DataWrite {
    let definition = &prepared.definition;
    let (size, checksum) = write.content.measures();
    let kind = spec.map_or(DataKind::File, |spec| spec.kind);
    let mut tags: BTreeMap<String, String> = BTreeMap::new();
    tags.insert("type".to_owned(), kind.as_str().to_owned());
    tags.insert("specName".to_owned(), write.spec.clone());
    tags.insert("modelName".to_owned(), definition.name.clone());
    tags.extend(definition.tags.clone());
    tags.extend(request.tags.clone());
    let own = definition.doc.get("resources").and_then(|all| all.get(&write.spec));
    let text = |key: &str| own.and_then(|own| own.get(key)).and_then(Value::as_str).map(str::to_owned);
    DataWrite {
        fresh_id: host.uuid(),
        name: write.name.clone(),
        content_type: spec.map_or("application/octet-stream", |s| &s.content_type).to_owned(),
        lifetime: text("lifetime").unwrap_or_else(|| spec.map_or("infinite", |s| &s.lifetime).to_owned()),
        garbage_collection: own
            .and_then(|own| own.get("garbageCollection"))
            .or(spec.map(|s| &s.garbage_collection))
            .cloned()
            .unwrap_or_else(|| 10.into()),
        streaming: spec.is_some_and(|s| s.streaming),
        tags,
        owner: Owner {
            owner_type: "model-method".to_owned(),
            owner_ref: definition.id.clone(),
            definition_hash: Some(prepared.output.provenance.definition_hash.clone()),
            rest: serde_json::Map::new(),
        },
        created_at: prepared.output.completed_at.unwrap_or(prepared.output.started_at),
        size,
        checksum,
        content,
    }
}

fn attributes(write: Option<&Write>) -> Option<Value> {
    let Produced::Bytes(bytes) = &write?.content else { return None };
    serde_json::from_slice(bytes).ok().filter(Value::is_object)
}

/// Adds what a committed end answers.
pub(super) fn fill(report: &mut RunReport, outcome: &Outcome, committed: &Committed) {
    let answer: RunAnswer = serde_json::from_value(committed.answer.clone()).unwrap_or_default();
    report.seq = Some(committed.seq);
    report.change = Some(committed.change);
    report.log_file = answer.log;
    report.data_artifacts = answer
        .data
        .into_iter()
        .map(|written| Artifact {
            attributes: attributes(outcome.writes.iter().find(|write| write.name == written.name)),
            id: Some(written.id),
            name: written.name,
            version: Some(written.version),
            path: Some(written.path),
        })
        .collect();
}

/// Adds what is known although the end is not committed.
pub(super) fn fill_pending(report: &mut RunReport, outcome: &Outcome) {
    report.data_artifacts = outcome
        .writes
        .iter()
        .map(|write| Artifact {
            id: None,
            name: write.name.clone(),
            version: None,
            path: None,
            attributes: attributes(Some(write)),
        })
        .collect();
}

/// Says what an end that is not in the ledger means for the caller.
pub(super) fn explain(error: Error, model: &str, method: &str, took: Option<String>) -> Error {
    let took = took.map_or_else(String::new, |took| format!(" after {took}"));
    let begun = format!("method '{method}' of model '{model}' ended{took}, but its results are not in the datastore");
    match error.code() {
        "lease_lost" => error.context(format!(
            "{begun}: its lease was taken over or released by force while it was at work; they are kept on this machine"
        )),
        "commit_pending" | "outcome_unknown" => error
            .context(format!("{begun} yet; they are kept on this machine"))
            .with_hint("'peat datastore sync --push' commits them; 'peat pending list' shows them"),
        // Hints of the cause speak of commands that can be run again as if nothing had happened.
        code if error.has_code(NOT_JOURNALLED) => Error::new(
            error.kind(),
            format!("{begun}, and this machine could not keep them: only what was shown here is left of them"),
        )
        .with_code(code)
        .with_hint(if code == "disk_full" {
            "free some space before you run it again; what it did outside of Peat has happened"
        } else {
            "see to the cause before you run it again; what it did outside of Peat has happened"
        })
        .with_source(error),
        _ => error.context(begun).with_hint("'peat pending list' shows what is kept on this machine"),
    }
}
