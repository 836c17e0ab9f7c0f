//! The key that tokens are signed with: ECDSA on P-256, as ES256 of JSON Web Tokens.

use std::io;
use std::path::{Path, PathBuf};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, UnparsedPublicKey,
};
use aws_lc_rs::{digest, error::Unspecified};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use serde_json::{Value, json};

use super::claims::Claims;
use crate::serve::files;

/// What stands before the point in the DER of a public key on P-256 (RFC 5480).
const SPKI_HEAD: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
/// A coordinate of a point on P-256.
const COORDINATE: usize = 32;

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file can't be read or written.
    #[error("{path}", path = .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: io::Error,
    },
    /// The file holds something else, or no key can be made.
    #[error("{path}: {why}", path = .path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

/// A key pair.
pub struct Key {
    pair: EcdsaKeyPair,
    /// upstream: the hash of the public key.
    id: String,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Key").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Key {
    /// The key of a file, which is made with mode 0600 when it is not there.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let file_error = |source| Error::File { path: path.to_owned(), source };
        let key_error = |why: rcgen::Error| Error::Key { path: path.to_owned(), why: why.to_string() };
        let pair = match files::read_private(path).map_err(file_error)? {
            Some(text) => KeyPair::from_pem(&text).map_err(key_error)?,
            None => {
                let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(key_error)?;
                files::write_private(path, pair.serialize_pem().as_bytes()).map_err(file_error)?;
                pair
            }
        };
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &pair.serialize_der());
        let key = key.map_err(|why| Error::Key { path: path.to_owned(), why: why.to_string() })?;
        Ok(Self::new(key))
    }

    /// A key that is gone with the process.
    pub(crate) fn generate() -> Self {
        Self::new(
            EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING)
                .expect("there are random numbers to be had"),
        )
    }

    fn new(pair: EcdsaKeyPair) -> Self {
        let mut spki = SPKI_HEAD.to_vec();
        spki.extend_from_slice(pair.public_key().as_ref());
        let id = URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, &spki));
        Self { pair, id }
    }

    /// A token with these claims.
    pub(super) fn sign(&self, claims: &Claims) -> Result<String, Unspecified> {
        let head = json!({"alg": "ES256", "kid": self.id});
        let claims = serde_json::to_value(claims).map_err(|_| Unspecified)?;
        let text = format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(head.to_string()),
            URL_SAFE_NO_PAD.encode(claims.to_string())
        );
        let signature = self.pair.sign(&SystemRandom::new(), text.as_bytes())?;
        Ok(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    /// The claims of a token that this key has signed.
    pub(super) fn verify(&self, token: &str) -> Option<Claims> {
        let (text, signature) = token.rsplit_once('.')?;
        let (head, claims) = text.split_once('.')?;
        let head: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(head).ok()?).ok()?;
        // Nobody but us chooses the algorithm; a key that is named must be this one.
        let is_ours = head["alg"] == "ES256" && (head["kid"].is_null() || head["kid"] == self.id.as_str());
        let signature = URL_SAFE_NO_PAD.decode(signature).ok().filter(|_| is_ours)?;
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.pair.public_key().as_ref());
        public.verify(text.as_bytes(), &signature).ok()?;
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()
    }

    /// The public part, as a JSON Web Key.
    pub(super) fn public(&self) -> Value {
        // 4, then both coordinates.
        let point = &self.pair.public_key().as_ref()[1..];
        let (x, y) = point.split_at(COORDINATE);
        json!({
            "use": "sig", "kty": "EC", "kid": self.id, "crv": "P-256", "alg": "ES256",
            "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn claims() -> Claims {
        serde_json::from_value(json!({"iss": "i", "exp": 1, "kubernetes.io": {"namespace": "n"}}))
            .expect("claims")
    }

    #[test]
    fn a_token_counts_with_the_key_that_signed_it_and_unchanged() {
        let (ours, other) = (Key::generate(), Key::generate());
        let token = ours.sign(&claims()).expect("signed");
        assert_eq!(ours.verify(&token), Some(claims()));
        assert_eq!(other.verify(&token), None, "another key");
        let parts: Vec<&str> = token.split('.').collect();
        let [head, body, signature] = parts[..] else { panic!("three parts") };
        let encode = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let none = encode(json!({"alg": "none"}));
        let longer = encode(json!({"iss": "i", "exp": 2}));
        let stranger = encode(json!({"alg": "ES256", "kid": other.id}));
        for forged in [
            format!("{none}.{body}."),
            format!("{none}.{body}.{signature}"),
            format!("{head}.{longer}.{signature}"),
            format!("{stranger}.{body}.{signature}"),
            format!("{head}.{body}"),
            format!("{head}.{body}.!"),
            String::new(),
        ] {
            assert_eq!(ours.verify(&forged), None, "{forged}");
        }
    }

    #[test]
    fn a_key_is_kept_for_its_owner_alone_and_found_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("sa.key");
        let token = Key::open(&path).expect("made").sign(&claims()).expect("signed");
        assert_eq!(std::fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
        assert_eq!(Key::open(&path).expect("found").verify(&token), Some(claims()));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("chmod");
        assert!(matches!(Key::open(&path), Err(Error::File { .. })));
        files::write_private(&path, b"something else").expect("written");
        assert!(matches!(Key::open(&path), Err(Error::Key { .. })));
    }
}
