//! The decorator around the wire that signs.
//!
//! `object_store` signs with the clock of this machine and cannot be told another, so it makes the requests unsigned and
//! the signature is added here, by the signer of the AWS SDK: [Signature Version 4](https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv.html)
//! with the payload's hash.

use std::sync::Arc;

use async_trait::async_trait;
use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SigningSettings, UriPathNormalizationMode,
    sign,
};
use aws_sigv4::sign::v4;
use http_body_util::BodyExt;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use peat_types::{Error, Result};

use super::clock::{ServerClock, system_time};
use super::credentials::Credentials;
use crate::remote::wire::{Context, Wire, causes};

/// Signs, then sends.
#[derive(Clone, Debug)]
pub(in crate::remote) struct Signing {
    pub wire: Wire,
    pub credentials: Arc<Credentials>,
    pub clock: ServerClock,
    pub region: String,
}

impl HttpConnector for Signing {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for Signing {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        match self.signed(request).await {
            Ok(request) => self.wire.call(request).await,
            Err(error) => {
                let text = error.to_string();
                if let Some(context) = Context::current() {
                    context.exchange().refused = Some(error);
                }
                Err(HttpError::new(HttpErrorKind::Unknown, std::io::Error::other(text)))
            }
        }
    }
}

impl Signing {
    async fn signed(&self, request: HttpRequest) -> Result<HttpRequest> {
        let failed = |why: String| Error::internal("the request could not be signed").with_source(why);
        let keys = Box::pin(self.credentials.load()).await?;
        if let Some(context) = Context::current() {
            context.exchange().signed_by = Some(keys.load);
        }
        let (mut head, body) = request.into_parts();
        let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();

        let mut settings = SigningSettings::default();
        settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
        settings.percent_encoding_mode = PercentEncodingMode::Single;
        settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
        let params = v4::SigningParams::builder()
            .identity(&keys.identity)
            .region(&self.region)
            .name("s3")
            .time(system_time(self.clock.now()))
            .settings(settings)
            .build()
            .map_err(|e| failed(e.to_string()))?
            .into();
        let instructions = {
            let headers = head.headers.iter().filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
            let uri = head.uri.to_string();
            let signable = SignableRequest::new(head.method.as_str(), uri, headers, SignableBody::Bytes(&body))
                .map_err(|e| failed(causes(&e)))?;
            sign(signable, &params).map_err(|e| failed(causes(&e)))?.into_parts().0
        };
        let (headers, _) = instructions.into_parts();
        for header in headers {
            let mut value =
                http::HeaderValue::from_str(header.value()).map_err(|_| failed(format!("{} is odd", header.name())))?;
            value.set_sensitive(header.sensitive());
            head.headers.insert(header.name(), value);
        }
        Ok(HttpRequest::from_parts(head, body.into()))
    }
}
