//! The certificates of a server: a CA of its own, one for serving, one for the administrator. Made once, kept in files,
//! and used again by the next server in the same directory.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use time::{Duration, OffsetDateTime};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use super::files;
use crate::auth::identity::MASTERS;

/// Clocks differ.
const BEFORE: Duration = Duration::hours(1);
const CA_LIFE: Duration = Duration::days(3650);
const LEAF_LIFE: Duration = Duration::days(365);
/// A certificate with less than this left is made anew.
const LEFT_MIN: Duration = Duration::days(90);

/// The names by which a server on this machine is reached.
const NAMES: [&str; 5] = [
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];

/// The user of the administrator's certificate.
pub const ADMIN: &str = "windlass-admin";

/// Why there are no certificates.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file can't be read or written.
    #[error("{path}", path = .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: io::Error,
    },
    /// A certificate can't be made.
    #[error("make the certificate of {name}")]
    Make {
        /// Whose.
        name: String,
        /// What is wrong.
        #[source]
        source: rcgen::Error,
    },
    /// A file holds something else.
    #[error("{path} holds no key or certificate that can be used: {why}", path = .path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

/// A certificate and its key, as PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Pair {
    /// The certificate.
    pub certificate: String,
    /// Its key, PKCS 8.
    pub key: String,
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pair").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

/// The certificates of a server.
#[derive(Debug)]
pub struct Pki {
    ca: Pair,
    /// For the server.
    pub serving: Pair,
    /// For the administrator, who may do everything.
    pub admin: Pair,
}

impl Pki {
    /// Reads the certificates in a directory, and makes those that are missing, too old or for other addresses.
    pub fn open(directory: &Path, addresses: &[IpAddr], now: OffsetDateTime) -> Result<Self, Error> {
        files::private_directory(directory)
            .map_err(|source| Error::File { path: directory.to_owned(), source })?;
        let store = Directory { path: directory, now };
        let held = store.read("ca", |_| true)?;
        let is_new_ca = held.is_none();
        let ca = held.map_or_else(|| authority(now), Ok)?;
        let names = serving_names(addresses);
        let held = store.read("serving", |held| covers(held, &names))?.filter(|pair| is_issued_by(pair, &ca));
        let is_new_serving = held.is_none();
        let serving = held.map_or_else(|| serving(&ca, &names, now), Ok)?;
        let held = store.read("admin", |_| true)?.filter(|pair| is_issued_by(pair, &ca));
        let is_new_admin = held.is_none();
        let admin = held.map_or_else(|| client(&ca, ADMIN, MASTERS, now), Ok)?;
        let all =
            [(is_new_ca, "ca", &ca), (is_new_serving, "serving", &serving), (is_new_admin, "admin", &admin)];
        store.write(all.into_iter().filter(|(is_new, ..)| *is_new).map(|(_, name, pair)| (name, pair)))?;
        Ok(Self { ca, serving, admin })
    }

    /// The certificate of the CA, as PEM.
    pub fn ca_certificate(&self) -> &str {
        &self.ca.certificate
    }

    /// A client certificate for a user of one group.
    pub fn client(&self, user: &str, group: &str, now: OffsetDateTime) -> Result<Pair, Error> {
        client(&self.ca, user, group, now)
    }
}

/// The files of a server.
struct Directory<'a> {
    path: &'a Path,
    now: OffsetDateTime,
}

impl Directory<'_> {
    fn file(&self, name: &str, end: &str) -> PathBuf {
        self.path.join(format!("{name}.{end}"))
    }

    /// A pair that will count for a while, and is as wanted.
    fn read(
        &self,
        name: &str,
        is_wanted: impl Fn(&X509Certificate<'_>) -> bool,
    ) -> Result<Option<Pair>, Error> {
        let read = |path: PathBuf| {
            files::read_private(&path).map_err(|source| Error::File { path: path.clone(), source })
        };
        let (key, certificate) = (read(self.file(name, "key"))?, read(self.file(name, "crt"))?);
        let (Some(key), Some(certificate)) = (key, certificate) else {
            return Ok(None);
        };
        let wrong = |why: String| Error::Content { path: self.file(name, "crt"), why };
        let der = CertificateDer::from_pem_slice(certificate.as_bytes()).map_err(|e| wrong(e.to_string()))?;
        let (_, parsed) = X509Certificate::from_der(&der).map_err(|error| wrong(error.to_string()))?;
        let is_fresh = parsed.validity().not_after.timestamp() > (self.now + LEFT_MIN).unix_timestamp();
        Ok((is_fresh && is_wanted(&parsed)).then_some(Pair { certificate, key }))
    }

    /// Writes pairs at the same time: each file waits for the disk, and a new server writes six.
    fn write<'a>(&self, pairs: impl Iterator<Item = (&'a str, &'a Pair)>) -> Result<(), Error> {
        let write = |path: PathBuf, text: &str| {
            files::write_private(&path, text.as_bytes()).map_err(|source| Error::File { path, source })
        };
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for (name, pair) in pairs {
                let (key, certificate) = (self.file(name, "key"), self.file(name, "crt"));
                threads.push(scope.spawn(move || write(key, &pair.key)));
                threads.push(scope.spawn(move || write(certificate, &pair.certificate)));
            }
            threads.into_iter().try_for_each(|thread| thread.join().expect("writing a file does not panic"))
        })
    }
}

fn serving_names(addresses: &[IpAddr]) -> Vec<String> {
    let mut names: Vec<String> = NAMES.iter().map(|name| (*name).to_owned()).collect();
    let own = ["127.0.0.1", "::1"].into_iter().map(str::to_owned);
    for address in own.chain(addresses.iter().filter(|a| !a.is_unspecified()).map(IpAddr::to_string)) {
        if !names.contains(&address) {
            names.push(address);
        }
    }
    names
}

/// Whether a certificate is for all of these names.
fn covers(certificate: &X509Certificate<'_>, names: &[String]) -> bool {
    let Ok(Some(held)) = certificate.subject_alternative_name() else {
        return false;
    };
    let held: Vec<String> = held.value.general_names.iter().filter_map(name_text).collect();
    names.iter().all(|name| held.contains(name))
}

fn name_text(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => Some(IpAddr::from(<[u8; 4]>::try_from(*bytes).ok()?).to_string()),
            _ => Some(IpAddr::from(<[u8; 16]>::try_from(*bytes).ok()?).to_string()),
        },
        _ => None,
    }
}

/// Somebody may have taken the CA away, and left what it had signed.
fn is_issued_by(pair: &Pair, ca: &Pair) -> bool {
    let der = |pair: &Pair| CertificateDer::from_pem_slice(pair.certificate.as_bytes()).ok();
    let (Some(leaf), Some(ca)) = (der(pair), der(ca)) else {
        return false;
    };
    let (Ok((_, leaf)), Ok((_, ca))) = (X509Certificate::from_der(&leaf), X509Certificate::from_der(&ca))
    else {
        return false;
    };
    authority_id(&leaf).is_some_and(|id| Some(id) == subject_id(&ca))
}

fn authority_id(certificate: &X509Certificate<'_>) -> Option<Vec<u8>> {
    use x509_parser::extensions::ParsedExtension;
    certificate.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::AuthorityKeyIdentifier(id) => Some(id.key_identifier.as_ref()?.0.to_vec()),
        _ => None,
    })
}

fn subject_id(certificate: &X509Certificate<'_>) -> Option<Vec<u8>> {
    use x509_parser::extensions::ParsedExtension;
    certificate.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
        _ => None,
    })
}

fn made<T>(name: &str, result: Result<T, rcgen::Error>) -> Result<T, Error> {
    result.map_err(|source| Error::Make { name: name.to_owned(), source })
}

fn params(name: &str, group: Option<&str>, now: OffsetDateTime, life: Duration) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    if let Some(group) = group {
        params.distinguished_name.push(DnType::OrganizationName, group);
    }
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = now - BEFORE;
    params.not_after = now + life;
    // Strict checkers want to find the issuer by its key.
    params.use_authority_key_identifier_extension = true;
    params
}

fn authority(now: OffsetDateTime) -> Result<Pair, Error> {
    // Two servers have two CAs: the names differ, so that no client takes one for the other.
    let name = format!("windlass-ca-{}", uuid::Uuid::new_v4().simple());
    let key = made(&name, KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256))?;
    let mut params = params(&name, None, now, CA_LIFE);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let certificate = made(&name, params.self_signed(&key))?.pem();
    Ok(Pair { certificate, key: key.serialize_pem() })
}

fn serving(ca: &Pair, names: &[String], now: OffsetDateTime) -> Result<Pair, Error> {
    let name = "windlass-server";
    let mut params = params(name, None, now, LEAF_LIFE);
    params.subject_alt_names = made(name, CertificateParams::new(names.to_vec()))?.subject_alt_names;
    // Only for servers: it opens no door as a client.
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    leaf(ca, name, params)
}

fn client(ca: &Pair, user: &str, group: &str, now: OffsetDateTime) -> Result<Pair, Error> {
    let mut params = params(user, Some(group), now, LEAF_LIFE);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    leaf(ca, user, params)
}

fn leaf(ca: &Pair, name: &str, mut params: CertificateParams) -> Result<Pair, Error> {
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    let issuer = made(name, KeyPair::from_pem(&ca.key))?;
    let issuer = made(name, Issuer::from_ca_cert_pem(&ca.certificate, issuer))?;
    let key = made(name, KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256))?;
    let certificate = made(name, params.signed_by(&key, &issuer))?.pem();
    Ok(Pair { certificate, key: key.serialize_pem() })
}

impl Pair {
    /// As rustls takes them.
    pub(super) fn der(&self) -> Result<(CertificateDer<'static>, PrivateKeyDer<'static>), String> {
        let certificate =
            CertificateDer::from_pem_slice(self.certificate.as_bytes()).map_err(|error| error.to_string())?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).map_err(|error| error.to_string())?;
        Ok((certificate, key))
    }
}
