//! The AWS tools' own way to credentials and region: profiles, SSO, web identity, containers, instances.
//!
//! This is the only place where a library may read environment variables, files of the home folder and metadata services
//! by itself. It is entered only when the variables given do not hold the keys.

use std::time::{Duration, SystemTime};

use aws_config::default_provider::credentials::DefaultCredentialsChain;
use aws_config::default_provider::region::DefaultRegionChain;
use aws_config::imds;
use aws_credential_types::provider::ProvideCredentials;
use aws_credential_types::provider::error::CredentialsError;
use object_store::aws::AwsCredential;
use peat_types::Timestamp;

/// An instance answers at once; elsewhere nobody does, and the user should not wait for that.
const METADATA_LIMIT: Duration = Duration::from_secs(1);

/// Loads credentials and the time when they end. Files are read again each time, so that a login elsewhere is noticed.
pub(super) async fn credentials(profile: Option<&str>) -> Result<(AwsCredential, Option<Timestamp>), CredentialsError> {
    let metadata =
        imds::Client::builder().max_attempts(1).connect_timeout(METADATA_LIMIT).read_timeout(METADATA_LIMIT).build();
    let mut chain = DefaultCredentialsChain::builder().imds_client(metadata);
    if let Some(profile) = profile {
        chain = chain.profile_name(profile);
    }
    let credentials = chain.build().await.provide_credentials().await?;
    let credential = AwsCredential {
        key_id: credentials.access_key_id().to_owned(),
        secret_key: credentials.secret_access_key().to_owned(),
        token: credentials.session_token().map(str::to_owned),
    };
    Ok((credential, credentials.expiry().and_then(timestamp)))
}

/// The region of the profile.
pub(super) async fn region(profile: Option<&str>) -> Option<String> {
    let mut chain = DefaultRegionChain::builder();
    if let Some(profile) = profile {
        chain = chain.profile_name(profile);
    }
    Some(chain.build().region().await?.to_string())
}

fn timestamp(time: SystemTime) -> Option<Timestamp> {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some(Timestamp::from_millis(i64::try_from(since.as_millis()).ok()?))
}
