//! The kubeconfig of a server: a file of its own, never a change to somebody else's.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use windlass_apiserver::serve::files;
use windlass_apiserver::serve::pki::{ADMIN, Pki};

/// The name of the cluster and of the context.
const NAME: &str = "windlass";

/// Why the file was not written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It tells of other clusters.
    #[error("it holds the cluster {0:?}, which is not of windlass")]
    Foreign(String),
    /// It is something else altogether.
    #[error("it is there already, and no kubeconfig")]
    Unreadable,
    /// The operating system refused something.
    #[error(transparent)]
    Io(#[from] io::Error),
}

#[derive(Deserialize)]
struct Existing {
    #[serde(default)]
    clusters: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

/// Writes the file with mode 0600. One that a server has written before is replaced, any other is left alone.
pub fn write(path: &Path, address: SocketAddr, pki: &Pki) -> Result<(), Error> {
    check(path)?;
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent)?;
    }
    Ok(files::write_private(path, text(address, pki).as_bytes())?)
}

/// Refuses a file that tells of other clusters.
pub fn check(path: &Path) -> Result<(), Error> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(Error::Unreadable),
        Err(error) => return Err(error.into()),
    };
    if text.trim().is_empty() {
        return Ok(());
    }
    let existing: Existing = serde_saphyr::from_str(&text).map_err(|_| Error::Unreadable)?;
    if existing.clusters.is_empty() {
        return Err(Error::Unreadable);
    }
    match existing.clusters.into_iter().find(|cluster| cluster.name != NAME) {
        Some(foreign) => Err(Error::Foreign(foreign.name)),
        None => Ok(()),
    }
}

fn text(address: SocketAddr, pki: &Pki) -> String {
    let ca = STANDARD.encode(pki.ca_certificate());
    let certificate = STANDARD.encode(&pki.admin.certificate);
    let key = STANDARD.encode(&pki.admin.key);
    let server = reachable(address);
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: {NAME}
  cluster:
    server: https://{server}
    certificate-authority-data: {ca}
users:
- name: {ADMIN}
  user:
    client-certificate-data: {certificate}
    client-key-data: {key}
contexts:
- name: {NAME}
  context:
    cluster: {NAME}
    user: {ADMIN}
current-context: {NAME}
"
    )
}

/// Where this machine reaches a server: one that listens everywhere also listens on loopback.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::from([127, 0, 0, 1]),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_file_of_windlass_is_replaced() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("config");
        check(&path).expect("no file");
        let cases = [
            ("", Ok(())),
            ("clusters:\n- name: windlass\n", Ok(())),
            (
                "clusters:\n- name: windlass\n- name: prod\n",
                Err("it holds the cluster \"prod\", which is not of windlass"),
            ),
            ("clusters:\n- name: kind\n", Err("it holds the cluster \"kind\", which is not of windlass")),
            ("a: 1\n", Err("it is there already, and no kubeconfig")),
            ("[1, 2", Err("it is there already, and no kubeconfig")),
        ];
        for (text, expected) in cases {
            std::fs::write(&path, text).expect("written");
            let result = check(&path).map_err(|error| error.to_string());
            assert_eq!(result, expected.map_err(str::to_owned), "{text}");
        }
    }

    #[test]
    fn a_server_that_listens_everywhere_is_reached_on_loopback() {
        let cases =
            [("0.0.0.0:6443", "127.0.0.1:6443"), ("[::]:6443", "[::1]:6443"), ("10.0.0.1:1", "10.0.0.1:1")];
        for (address, expected) in cases {
            let address = address.parse().expect("an address");
            assert_eq!(reachable(address).to_string(), expected);
        }
    }
}
