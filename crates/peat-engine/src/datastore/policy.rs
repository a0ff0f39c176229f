//! The rights that each role needs. The policies for S3 are files of the manual, with names to fill in.

use peat_objects::StoreUrl;
use peat_types::{Error, Namespace, Result};
use serde_json::Value;

use crate::report::{DatastorePolicy, Role};
use crate::{Datastore, Repo};

const READER: &str = include_str!("../../../../docs/manual/src/policies/reader.json");
const WRITER: &str = include_str!("../../../../docs/manual/src/policies/writer.json");
const GC: &str = include_str!("../../../../docs/manual/src/policies/gc.json");

impl Repo {
    /// `peat datastore policy`, for the store of this repository. Nothing is opened or asked.
    ///
    /// # Errors
    /// `Invalid` when the datastore is a folder, which has no policies.
    pub fn datastore_policy(&self, role: Role) -> Result<DatastorePolicy> {
        let Some(datastore) = &self.marker().datastore else {
            return Err(no_policies("the private datastore of this repository is a folder"));
        };
        datastore.policy(role)
    }
}

impl Datastore {
    /// The rights that `role` needs in this store.
    ///
    /// # Errors
    /// `Invalid` when the store is a folder; those of a wrong URL or namespace.
    pub fn policy(&self, role: Role) -> Result<DatastorePolicy> {
        let namespace = self.namespace()?;
        match self.url.parse()? {
            StoreUrl::S3 { bucket, prefix } => s3(role, bucket, &prefix, &namespace, self.region.as_deref()),
            StoreUrl::Gcs { bucket, prefix } => {
                let rights: &[&str] = match role {
                    Role::Reader => &["storage.objects.get", "storage.objects.list"],
                    // Replacing a heartbeat takes the right to delete it.
                    Role::Writer | Role::Gc => &[
                        "storage.objects.get",
                        "storage.objects.list",
                        "storage.objects.create",
                        "storage.objects.delete",
                    ],
                };
                let of_service =
                    if role == Role::Reader { "roles/storage.objectViewer" } else { "roles/storage.objectUser" };
                Ok(named("gs", role, bucket, &prefix, &namespace, rights, of_service))
            }
            StoreUrl::Azure { container, prefix } => {
                const BLOBS: &str = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs";
                let mut rights = vec![format!("{BLOBS}/read")];
                if role != Role::Reader {
                    rights.extend([format!("{BLOBS}/write"), format!("{BLOBS}/add/action")]);
                }
                if role == Role::Gc {
                    rights.push(format!("{BLOBS}/delete"));
                }
                let rights: Vec<&str> = rights.iter().map(String::as_str).collect();
                let of_service =
                    if role == Role::Reader { "Storage Blob Data Reader" } else { "Storage Blob Data Contributor" };
                Ok(named("az", role, container, &prefix, &namespace, &rights, of_service))
            }
            StoreUrl::File { .. } | StoreUrl::Memory => Err(no_policies("the store is a folder")),
        }
    }
}

fn no_policies(why: &str) -> Error {
    Error::invalid(format!("{why}: who may read or write it is said by its owner and mode"))
        .with_hint("for a bucket, name it: 'peat datastore policy s3://bucket/prefix --role writer'")
}

fn folder_of(prefix: &str, namespace: &Namespace) -> String {
    if prefix.is_empty() { namespace.to_string() } else { format!("{prefix}/{namespace}") }
}

fn named(
    kind: &str,
    role: Role,
    bucket: String,
    prefix: &str,
    namespace: &Namespace,
    rights: &[&str],
    of_service: &str,
) -> DatastorePolicy {
    DatastorePolicy {
        role,
        kind: kind.to_owned(),
        bucket,
        folder: folder_of(prefix, namespace),
        rights: rights.iter().map(|right| (*right).to_owned()).collect(),
        service_role: Some(of_service.to_owned()),
        policy: None,
    }
}

/// The parts of AWS that are not reached from the others have names of their own in front of every resource.
fn partition(region: Option<&str>) -> &'static str {
    match region {
        Some(region) if region.starts_with("cn-") => "arn:aws-cn:",
        Some(region) if region.starts_with("us-gov-") => "arn:aws-us-gov:",
        _ => "arn:aws:",
    }
}

fn s3(
    role: Role,
    bucket: String,
    prefix: &str,
    namespace: &Namespace,
    region: Option<&str>,
) -> Result<DatastorePolicy> {
    let folder = folder_of(prefix, namespace);
    let template = match role {
        Role::Reader => READER,
        Role::Writer => WRITER,
        Role::Gc => GC,
    };
    // Bucket, prefix and namespace were checked: none of them can end a string of JSON.
    let text = template.replace("arn:aws:", partition(region)).replace("BUCKET", &bucket).replace("FOLDER", &folder);
    let policy: Value =
        serde_json::from_str(&text).map_err(|e| Error::internal("a policy of the manual is no JSON").with_source(e))?;
    let mut rights = Vec::new();
    for action in policy["Statement"].as_array().into_iter().flatten().filter_map(|one| one["Action"].as_str()) {
        if !rights.iter().any(|known| known == action) {
            rights.push(action.to_owned());
        }
    }
    Ok(DatastorePolicy {
        role,
        kind: "s3".to_owned(),
        bucket,
        folder,
        rights,
        service_role: None,
        policy: Some(policy),
    })
}
