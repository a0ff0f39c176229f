//! The types this process knows.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use peat_types::{Error, Result};

use super::{ModelType, SharedType, shell};
use crate::names::{did_you_mean, normalize_type};
use crate::report::{TypeName, TypeSearch, TypeView};

/// Types by normalised name. Cheap to clone.
#[derive(Clone)]
pub struct Registry(Arc<BTreeMap<String, SharedType>>);

impl Registry {
    /// The types that come with Peat.
    pub fn builtin() -> Self {
        Self::new([Arc::new(shell::Shell::new()) as SharedType])
    }

    /// Exactly these types.
    pub fn new(types: impl IntoIterator<Item = SharedType>) -> Self {
        Self(Arc::new(types.into_iter().map(|t| (t.spec().name.clone(), t)).collect()))
    }

    /// A type, however it is spelled.
    ///
    /// # Errors
    /// `NotFound` with code `unknown_model_type`.
    pub fn get(&self, raw: &str) -> Result<&SharedType> {
        let name = normalize_type(raw).map_err(|e| e.with_code("unknown_model_type"))?;
        self.0.get(&name).ok_or_else(|| {
            let close = did_you_mean(&name, self.0.keys().map(String::as_str));
            Error::not_found(format!("there is no model type '{name}'{close}"))
                .with_code("unknown_model_type")
                .with_hint("'peat model type search' lists the types")
        })
    }

    pub(crate) fn search(&self, query: &str) -> TypeSearch {
        let word = query.trim().to_lowercase();
        let path = normalize_type(query).unwrap_or_default();
        let hit = |t: &&SharedType| {
            word.is_empty()
                || t.spec().name.contains(&word)
                || (!path.is_empty() && t.spec().name.contains(&path))
                || t.spec().description.to_lowercase().contains(&word)
        };
        let results: Vec<_> = self
            .0
            .values()
            .filter(hit)
            .map(|t| TypeName { raw: t.spec().name.clone(), normalized: t.spec().name.clone() })
            .collect();
        let hint = results.is_empty().then(|| "'peat model type search' without a word lists all types".to_owned());
        TypeSearch { query: query.to_owned(), results, hint }
    }

    pub(crate) fn describe(&self, raw: &str) -> Result<TypeView> {
        let spec = self.get(raw)?.spec();
        Ok(TypeView {
            type_name: TypeName { raw: raw.to_owned(), normalized: spec.name.clone() },
            version: spec.version.clone(),
            description: spec.description.clone(),
            global_arguments: spec.global_arguments.clone(),
            data_output_specs: spec.data.iter().map(super::DataSpec::view).collect(),
            methods: spec.methods.iter().map(super::MethodSpec::view).collect(),
        })
    }
}

/// A method of a type.
///
/// # Errors
/// `NotFound` with code `unknown_method`.
pub(crate) fn method<'a>(of: &'a dyn ModelType, name: &str) -> Result<&'a super::MethodSpec> {
    let spec = of.spec();
    spec.method(name).ok_or_else(|| {
        let close = did_you_mean(name, spec.methods.iter().map(|m| m.name.as_str()));
        Error::not_found(format!("type {} has no method '{name}'{close}", spec.name))
            .with_code("unknown_method")
            .with_hint(format!("'peat model type describe {}' lists its methods", spec.name))
    })
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}
