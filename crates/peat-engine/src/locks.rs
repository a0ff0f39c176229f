//! Leases as people handle them. These commands help when something is broken, so they need as little as possible: no
//! definition that can be read, no whole marker, no local database, and they wait for nobody.

use peat_clone::{LocalClone, Scope};
use peat_types::{Error, Kind, Result, Unit};

use crate::Repo;
use crate::report::{LockReleased, LockStatus};
use crate::status::{Names, held, holder};

impl Repo {
    /// `peat datastore lock status`. Asks the store first; when that is not possible the notes say how old it is.
    pub async fn lock_status(&self) -> Result<LockStatus> {
        let (clone, place) = self.opened().await?;
        let mut notes: Vec<String> = self.marker().damage.clone().into_iter().collect();
        if let Err(error) = clone.pull(&Scope::All).await {
            notes.push(still_known(clone, error)?);
        }
        if let Err(error) = clone.all_leases().await {
            let note = still_known(clone, error)?;
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
        let leases = held(clone, &self.names_of_all())?;
        Ok(LockStatus {
            held: !leases.is_empty(),
            info: leases.first().cloned(),
            leases,
            datastore_type: place.opened.kind.to_owned(),
            notes,
        })
    }

    /// `peat datastore lock release --force`, of one model or of everything that is held.
    ///
    /// # Errors
    /// `Invalid` without `force`.
    pub async fn lock_release(&self, model: Option<&str>, force: bool) -> Result<LockReleased> {
        if !force {
            return Err(Error::invalid("a lease is only taken away with --force").with_hint(
                "'peat datastore lock status' shows the holder; 'peat datastore lock release --force' ends its claim, and \
                 its results will be refused",
            ));
        }
        let wanted = model.map(|model| self.leased_unit(model)).transpose()?;
        let clone = self.clone_of().await?;
        let names = self.names_of_all();
        let scope = wanted.clone().map_or(Scope::All, |unit| Scope::Units(vec![unit]));
        // Contents that cannot be fetched do not matter here; the release asks for the head itself.
        let behind = clone.pull(&scope).await.err().map(|error| still_known(clone, error)).transpose()?;
        let mut held = clone.all_leases().await.or_else(|error| match error.kind() {
            Kind::Offline => clone.leases(),
            _ => Err(error),
        })?;
        held.retain(|info| info.lease.held && wanted.as_ref().is_none_or(|unit| *unit == info.unit));
        let mut previous = None;
        for info in held {
            if clone.force_release(&info.unit).await?.is_some() && previous.is_none() {
                previous = Some(holder(&names, info));
            }
        }
        let nothing = || behind.unwrap_or_else(|| "nothing was held".to_owned());
        Ok(LockReleased {
            released: previous.is_some(),
            reason: previous.is_none().then(nothing),
            previous_holder: previous,
        })
    }

    /// The unit whose lease is meant: a model by name or id, read from a broken definition if need be, or the unit itself
    /// as `lock status` shows it.
    fn leased_unit(&self, wanted: &str) -> Result<Unit> {
        let error = match self.definition(wanted) {
            Ok(definition) => return definition.unit(),
            Err(error) => error,
        };
        if error.has_code("ambiguous") {
            return Err(error);
        }
        let broken = self.library().broken();
        if let Some((id, _)) = broken.iter().find(|(id, name)| id == wanted || name == wanted) {
            return Unit::model(id);
        }
        // `model/<id>`, `<type>/<id>`, or the id alone: its definition may be gone.
        let last = wanted.rsplit('/').next().unwrap_or_default();
        if uuid::Uuid::try_parse(last).is_ok() {
            return Unit::model(last);
        }
        Err(error.with_hint("'peat datastore lock status' shows what is held; --model takes the unit from there, too"))
    }

    /// Names of models by id, also of those whose definitions cannot be used.
    fn names_of_all(&self) -> Names {
        let mut names: Names = self.library().broken().into_iter().collect();
        names.extend(self.model_names().unwrap_or_default());
        names
    }
}

/// Goes on with what the clone knows when the store does not tell all, unless it knows nothing, or the store is not what
/// it was.
fn still_known(clone: &LocalClone, error: Error) -> Result<String> {
    if clone.head()?.is_none() || ["rollback", "fork", "history_gone"].iter().any(|code| error.has_code(code)) {
        return Err(error);
    }
    Ok(match error.kind() {
        Kind::Offline => format!("the store cannot be reached, this is what the clone knew: {error}"),
        _ => format!("not everything could be fetched: {}", error.chain().join(": ")),
    })
}
