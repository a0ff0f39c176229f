//! `peat datastore namespace`: the namespaces of the store in use.

use peat_clone::{Moved, NsInfo};
use peat_types::{Error, Kind, Namespace, Result};

use super::setup::{SetupRequest, namespaces_of, went};
use crate::report::{DatastoreSetup, NamespaceList, NamespaceRow, SetupAction};
use crate::{Datastore, Repo};

impl Repo {
    /// All namespaces that this client may see. Where it may not list the store, the one in use.
    pub async fn namespace_list(&self) -> Result<NamespaceList> {
        let (clone, place) = self.opened().await?;
        let ((infos, unreadable), limited) = match namespaces_of(&place.opened).await {
            Ok(found) => (found, false),
            Err(error) if error.kind() == Kind::Denied => ((vec![clone.info().clone()], Vec::new()), true),
            Err(error) => return Err(error),
        };
        let mut rows = Vec::new();
        for info in infos {
            // Those of others are theirs to ask about, and of the one in use it is known.
            let moved = match (info.namespace == place.namespace, info.owner == self.marker().repo_id) {
                (true, _) => clone.moved()?,
                (false, true) => went(&place.opened, &info, &self.host().env).await,
                (false, false) => None,
            };
            rows.push((info, moved));
        }
        let row = |(info, moved): (NsInfo, Option<Moved>)| NamespaceRow {
            is_current: info.namespace == place.namespace,
            is_own: info.owner == self.marker().repo_id,
            namespace: info.namespace,
            repo_id: info.owner,
            registered_at: info.created,
            moved_to: moved.map(|to| format!("namespace {} of {}", to.namespace, to.url)),
            ledger: info.ledger,
        };
        Ok(NamespaceList {
            store: place.opened.url.clone(),
            current_namespace: place.namespace.clone(),
            namespaces: rows.into_iter().map(row).collect(),
            unreadable,
            limited,
        })
    }

    /// Uses another namespace of the store from now on: joined when it is this repository's, made when there is none. What
    /// is in the present one stays there.
    pub async fn namespace_set(&self, namespace: &str, dry_run: bool) -> Result<DatastoreSetup> {
        let request = SetupRequest { skip_migration: true, ..self.in_namespace(namespace, dry_run)? };
        Box::pin(self.datastore_setup(&request)).await
    }

    /// Moves the present namespace to another name in the same store, history included.
    ///
    /// # Errors
    /// `AlreadyExists` when there is one of that name.
    pub async fn namespace_rename(&self, namespace: &str, dry_run: bool) -> Result<DatastoreSetup> {
        let request = self.in_namespace(namespace, dry_run)?;
        let plan = Box::pin(self.datastore_setup(&SetupRequest { dry_run: true, ..request.clone() })).await?;
        match plan.action {
            SetupAction::Join => {
                Err(Error::new(Kind::AlreadyExists, format!("there is a namespace '{namespace}' already"))
                    .with_hint(format!("to use it: 'peat datastore namespace set {namespace}'")))
            }
            _ if dry_run => Ok(plan),
            SetupAction::Create | SetupAction::Move | SetupAction::Follow => {
                Box::pin(self.datastore_setup(&request)).await
            }
        }
    }

    fn in_namespace(&self, namespace: &str, dry_run: bool) -> Result<SetupRequest> {
        let slug: Namespace = namespace.parse()?;
        let Some(own) = &self.marker().datastore else {
            return Err(Error::invalid("a private datastore has one namespace").with_code("not_shared").with_hint(
                format!("share it under that name: 'peat datastore setup s3://bucket/prefix --namespace {slug}'"),
            ));
        };
        if own.namespace()? == slug {
            return Err(Error::invalid(format!("namespace '{slug}' is in use already"))
                .with_hint("'peat datastore namespace list' shows all"));
        }
        let datastore = Datastore { namespace: Some(slug.to_string()), ..own.clone() };
        Ok(SetupRequest { datastore, dry_run, ..SetupRequest::default() })
    }
}
