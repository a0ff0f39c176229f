//! Operations on definitions, types and methods.

use std::path::Path;

use peat_clone::{NewChange, OnRefusal, Scope};
use peat_types::{Error, Kind, Result};
use serde_json::json;

use crate::definition::{self, CreateModel};
use crate::report::{
    DeletedModel, MethodReport, ModelCreated, ModelDeleted, ModelEdited, ModelSearch, ModelValidated,
    ModelValidatedAll, ModelView, TypeSearch, TypeView,
};
use crate::types::{DataSpec, MethodSpec};
use crate::{Repo, planner, types};

impl Repo {
    /// `peat model create`. `read` reads files named by `--global-arg k=@file`.
    pub fn model_create(&self, request: &CreateModel, read: &crate::input::ReadFile<'_>) -> Result<ModelCreated> {
        definition::create(self.host(), self.root(), request, read)
    }

    /// `peat model get`.
    pub fn model_get(&self, wanted: &str) -> Result<ModelView> {
        Ok(definition::view(&self.definition(wanted)?, &self.host().types))
    }

    /// `peat model search`.
    pub fn model_search(&self, query: &str) -> Result<ModelSearch> {
        definition::search(self.root(), query)
    }

    /// `peat model edit` with the whole new text.
    pub fn model_edit(&self, wanted: &str, text: &str) -> Result<ModelEdited> {
        definition::edit(self.host(), self.root(), wanted, text)
    }

    /// `peat model validate <name>`, or what concerns one method of it.
    pub fn model_validate(&self, wanted: &str, method: Option<&str>) -> Result<ModelValidated> {
        let definition = self.definition(wanted)?;
        if let Some(method) = method {
            types::method(&**self.host().types.get(&definition.type_name)?, method)?;
        }
        Ok(definition::validate(&definition, &self.host().types, method))
    }

    /// `peat model validate`.
    pub fn model_validate_all(&self) -> Result<ModelValidatedAll> {
        definition::validate_all(self.root(), &self.host().types)
    }

    /// `peat model delete`. With `force` also what it produced is removed from the datastore, in one commit.
    ///
    /// # Errors
    /// `Conflict` with code `has_data` when it has data or outputs and `force` is not set.
    pub async fn model_delete(&self, wanted: &str, force: bool) -> Result<ModelDeleted> {
        let definition = self.definition(wanted)?;
        let unit = definition.unit()?;
        let clone = self.clone_of().await?;
        // What is removed must be what is there, not what this clone remembers.
        clone.pull(&Scope::Units(vec![unit.clone()])).await?;
        let items = clone.items(&unit, "")?;
        let count = planner::Count::of(items.iter().map(|item| item.path.as_str()));
        if count.any() && !force {
            return Err(Error::new(
                Kind::Conflict,
                format!(
                    "model '{}' has {} data versions and {} outputs",
                    definition.name, count.versions, count.outputs
                ),
            )
            .with_code("has_data")
            .with_hint(format!("'peat model delete {} --force' removes them too", definition.name)));
        }
        if count.any() {
            let mut change = NewChange::new(planner::DELETE, vec![unit], json!({}));
            change.message = format!("delete model {}", definition.name);
            change.on_refusal = OnRefusal::Drop;
            clone.commit(change).await?;
        }
        // The file goes last: as long as it is there the command can be repeated.
        std::fs::remove_file(&definition.path).map_err(|e| Error::io("remove", &definition.path, e))?;
        remove_empty(&definition.path, &self.library().folder());
        Ok(ModelDeleted {
            deleted: DeletedModel {
                id: definition.id,
                name: definition.name,
                type_name: definition.type_name,
                input_path: definition.rel,
            },
            outputs_deleted: count.outputs,
            data_deleted: count.versions,
            evaluated_input_deleted: false,
            expired_data_auto_collected: 0,
        })
    }

    /// `peat model type search`.
    pub fn type_search(&self, query: &str) -> TypeSearch {
        self.host().types.search(query)
    }

    /// `peat model type describe`.
    pub fn type_describe(&self, raw: &str) -> Result<TypeView> {
        self.host().types.describe(raw)
    }

    /// `peat model method describe`.
    pub fn method_describe(&self, wanted: &str, method: &str) -> Result<MethodReport> {
        let definition = self.definition(wanted)?;
        let of = self.host().types.get(&definition.type_name)?;
        let spec = of.spec();
        Ok(MethodReport {
            model_name: definition.name,
            model_type: definition.type_name,
            version: spec.version.clone(),
            method: types::method(&**of, method).map(MethodSpec::view)?,
            data_output_specs: spec.data.iter().map(DataSpec::view).collect(),
        })
    }

    /// Reads a file for `@file` inputs, relative to the current folder.
    pub fn read_input(&self, path: &Path) -> Result<String> {
        let path = self.host().cwd.join(path);
        match std::fs::File::open(&path) {
            Ok(file) => crate::input::read_text(file, &path),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                Err(Error::not_found(format!("there is no file {}", path.display())))
            }
            Err(e) => Err(Error::io("read", &path, e)),
        }
    }
}

/// Removes the folders of a type that has no definition left.
fn remove_empty(file: &Path, stop: &Path) {
    for dir in file.ancestors().skip(1).take_while(|dir| *dir != stop && dir.starts_with(stop)) {
        // Not empty is the usual case, and no reason to complain.
        if std::fs::remove_dir(dir).is_err() {
            return;
        }
    }
}
