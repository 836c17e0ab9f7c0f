//! The authority and keys that the real API server is started with.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};

/// Writes `ca.pem`, `server.pem`, `server.key`, `accounts.key` and `accounts.pub` and gives the authority's certificate.
pub fn write(directory: &Path) -> Result<String> {
    let key = KeyPair::generate().context("make the authority's key")?;
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "reference");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let authority = params.self_signed(&key).context("make the authority")?;
    let issuer = Issuer::new(params, key);

    let server_key = KeyPair::generate().context("make the server's key")?;
    let names = ["127.0.0.1".to_owned(), "localhost".to_owned(), "kubernetes.default.svc".to_owned()];
    let mut params = CertificateParams::new(names).context("name the server")?;
    params.use_authority_key_identifier_extension = true;
    let server = params.signed_by(&server_key, &issuer).context("sign the server's certificate")?;
    let accounts = KeyPair::generate().context("make the key of service accounts")?;

    let files = [
        ("ca.pem", authority.pem()),
        ("server.pem", server.pem()),
        ("server.key", server_key.serialize_pem()),
        ("accounts.key", accounts.serialize_pem()),
        ("accounts.pub", accounts.public_key_pem()),
    ];
    for (name, text) in files {
        fs::write(directory.join(name), text).with_context(|| format!("write {name}"))?;
    }
    Ok(authority.pem())
}
