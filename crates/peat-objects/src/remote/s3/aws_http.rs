//! HTTP for the sources of credentials, on the client that the store uses too: one set of certificates and proxies.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use bytes::Bytes;
use peat_types::Env;

/// When the caller sets none.
const LIMIT: Duration = Duration::from_secs(10);

/// Two clients: metadata services of this machine are never asked through a proxy.
#[derive(Clone)]
pub(in crate::remote) struct AwsHttp {
    direct: reqwest::Client,
    outside: reqwest::Client,
    env: Env,
}

impl AwsHttp {
    pub fn new(direct: reqwest::Client, outside: reqwest::Client, env: &Env) -> Self {
        Self { direct, outside, env: env.clone() }
    }
}

impl fmt::Debug for AwsHttp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AwsHttp").finish_non_exhaustive()
    }
}

impl HttpClient for AwsHttp {
    fn http_connector(&self, settings: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        let limit = settings.read_timeout().map(|read| read + settings.connect_timeout().unwrap_or_default());
        SharedHttpConnector::new(Limited { http: Arc::new(self.clone()), limit: limit.unwrap_or(LIMIT) })
    }
}

#[derive(Clone, Debug)]
struct Limited {
    http: Arc<AwsHttp>,
    /// For the whole of a request and its small reply.
    limit: Duration,
}

impl HttpConnector for Limited {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let this = self.clone();
        HttpConnectorFuture::new(async move {
            let exchange = exchange(&this.http, request);
            match Box::pin(this.http.env.timeout(this.limit, exchange)).await {
                Some(reply) => reply,
                None => Err(ConnectorError::timeout(format!("no answer within {} s", this.limit.as_secs_f32()).into())),
            }
        })
    }
}

async fn exchange(http: &AwsHttp, request: HttpRequest) -> Result<HttpResponse, ConnectorError> {
    let request = request.try_into_http1x().map_err(|e| ConnectorError::user(e.into()))?;
    let request = request.map(|body| Bytes::copy_from_slice(body.bytes().unwrap_or_default()));
    let request = reqwest::Request::try_from(request).map_err(|e| ConnectorError::user(e.into()))?;
    let client = if of_this_machine(request.url()) { &http.direct } else { &http.outside };
    let host = request.url().host_str().unwrap_or_default().to_owned();
    let failed = |error: reqwest::Error| {
        // The path may hold what nobody else should see.
        let error = std::io::Error::other(format!("{host}: {}", crate::remote::wire::causes(&error.without_url())));
        ConnectorError::io(error.into())
    };
    let mut reply = client.execute(request).await.map_err(failed)?;
    let mut out = http::Response::new(SdkBody::empty());
    *out.status_mut() = reply.status();
    *out.headers_mut() = std::mem::take(reply.headers_mut());
    *out.body_mut() = reply.bytes().await.map_err(failed)?.into();
    HttpResponse::try_from(out).map_err(|e| ConnectorError::io(e.into()))
}

/// Loopback and link-local addresses, among them those of the metadata services.
fn of_this_machine(url: &reqwest::Url) -> bool {
    let Some(host) = url.host_str() else { return false };
    match host.trim_matches(['[', ']']).parse() {
        Ok(std::net::IpAddr::V4(ip)) => ip.is_loopback() || ip.is_link_local(),
        // fd00:ec2::/32 is where AWS puts the services of an instance.
        Ok(std::net::IpAddr::V6(ip)) => {
            ip.is_loopback() || ip.is_unicast_link_local() || ip.segments()[..2] == [0xfd00, 0xec2]
        }
        Err(_) => host == "localhost",
    }
}
