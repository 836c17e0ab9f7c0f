//! Client certificates: the common name is the user, each organisation a group.
//!
//! The handshake only asks for a certificate and has the client prove that it holds the key. Whether the certificate
//! counts is decided here, so that a stranger's certificate gets a `Status` with 401 and not a broken connection.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::identity::Identity;

/// What a client certificate says, once it is known to be ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certified {
    /// The user.
    pub identity: Identity,
    /// The last second in which the certificate counts.
    pub not_after: i64,
}

/// Checks client certificates against one CA.
#[derive(Clone, Debug)]
pub struct ClientCertificates(Arc<dyn ClientCertVerifier>);

impl ClientCertificates {
    /// Takes certificates of this CA, and no others.
    pub fn new(ca: CertificateDer<'static>, provider: Arc<CryptoProvider>) -> Result<Self, Error> {
        let mut roots = RootCertStore::empty();
        roots.add(ca)?;
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|error| Error::General(error.to_string()))?;
        Ok(Self(verifier))
    }

    /// The user of a certificate; nothing when it is of another CA, not for clients, out of its time or nameless.
    pub fn check(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Option<Certified> {
        let (leaf, others) = chain.split_first()?;
        self.0.verify_client_cert(leaf, others, now).ok()?;
        let (_, certificate) = X509Certificate::from_der(leaf).ok()?;
        let subject = certificate.subject();
        let name = subject.iter_common_name().next()?.as_str().ok()?;
        if name.is_empty() {
            return None;
        }
        let groups = subject.iter_organization().map(|group| group.as_str().map(str::to_owned));
        let groups = groups.collect::<Result<Vec<_>, _>>().ok()?;
        let not_after = certificate.validity().not_after.timestamp();
        Some(Certified { identity: Identity::new(name, groups), not_after })
    }

    /// For the handshake: any certificate, as long as the client holds its key.
    pub(crate) fn asking(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::new(Asking(Arc::clone(&self.0)))
    }
}

#[derive(Debug)]
struct Asking(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for Asking {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
