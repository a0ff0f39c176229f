//! Certificates of a private authority, made when they are needed.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::{ServerConfig, SupportedProtocolVersion, crypto, version};

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// An authority that no system trusts.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// When a certificate holds.
#[derive(Clone, Copy, Debug)]
pub enum Validity {
    /// Now.
    Now,
    /// It ended years ago.
    Ended,
}

/// The versions of TLS that a server speaks.
#[derive(Clone, Copy, Debug)]
pub enum Versions {
    /// 1.2 only.
    Old,
    /// 1.3 only.
    New,
}

/// What a server needs to speak TLS.
#[derive(Clone)]
pub struct ServerTls(pub(crate) TlsAcceptor);

impl Authority {
    /// A fresh authority of this name.
    ///
    /// # Errors
    /// When there is no randomness to be had.
    pub fn new(name: &str) -> Result<Self, Failed> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        Ok(Self(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?))
    }

    /// The authority's certificate, for a bundle.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate of this authority for a server with these names or addresses.
    ///
    /// # Errors
    /// For a name that cannot stand in a certificate.
    pub fn server(&self, names: &[&str], validity: Validity, versions: Versions) -> Result<ServerTls, Failed> {
        let mut params = CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())?;
        (params.not_before, params.not_after) = match validity {
            Validity::Now => (date_time_ymd(2020, 1, 1), date_time_ymd(2120, 1, 1)),
            Validity::Ended => (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1)),
        };
        let key = KeyPair::generate()?;
        let certificate: CertificateDer<'static> = params.signed_by(&key, &self.0)?.der().clone();
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        let versions: &[&SupportedProtocolVersion] = match versions {
            Versions::Old => &[&version::TLS12],
            Versions::New => &[&version::TLS13],
        };
        let config = ServerConfig::builder_with_provider(Arc::new(crypto::aws_lc_rs::default_provider()))
            .with_protocol_versions(versions)?
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key.into())?;
        Ok(ServerTls(TlsAcceptor::from(Arc::new(config))))
    }
}
