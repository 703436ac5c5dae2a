//! Credentials and certificates that a Secret has.
//!
//! Source of the semantics: fluxcd/pkg/runtime `secrets`.

use std::fmt;
use std::sync::Arc;

use golang::url::{Url, User};
use x509_parser::pem::Pem;

use crate::objects::Secret;

/// Longest address of a proxy, in bytes.
const MAX_PROXY: usize = 2048;

/// What to trust and what to show when a connection is made. Its `Debug` shows no keys.
#[derive(Clone, PartialEq, Eq)]
pub struct Tls {
    /// Certificates to trust instead of those of the system.
    pub authorities: Option<Vec<u8>>,
    /// Certificate and private key of the client.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("has_authorities", &self.authorities.is_some())
            .field("has_identity", &self.identity.is_some())
            .finish()
    }
}

/// What a Secret authenticates with.
#[derive(Default)]
pub(crate) struct Methods {
    /// Name and password.
    pub(crate) basic: Option<(String, String)>,
    /// The token.
    pub(crate) token: Option<String>,
    /// Certificates.
    pub(crate) tls: Option<Arc<Tls>>,
}

/// Why the certificates of a Secret cannot be used.
enum TlsFault {
    /// It has none, or only one of a pair: callers that know other credentials try those.
    Incomplete(String),
    /// They cannot be read.
    Malformed(String),
}

/// Everything that a Secret authenticates with.
///
/// # Errors
/// Go's message when a part is malformed; then nothing of it counts.
pub(crate) fn methods(secret: &Secret) -> Result<Methods, String> {
    let has = |key: &str| secret.data.contains_key(key);
    let name = &secret.name;
    let basic = match (secret.text("username"), secret.text("password")) {
        (Some(username), Some(password)) => Some((username, password)),
        (None, None) => None,
        (username, _) => {
            let both = ["username", "password"];
            let [present, missing] = if username.is_some() { both } else { [both[1], both[0]] };
            return Err(format!(
                "secret '{name}': malformed basic auth - has '{present}' but missing '{missing}'"
            ));
        }
    };
    let is_owner_known = has("githubAppInstallationOwner");
    if has("githubAppID")
        && has("githubAppPrivateKey")
        && is_owner_known == has("githubAppInstallationID")
    {
        return Err(format!(
            "secret '{name}' must contain exactly one of 'githubAppInstallationOwner' or \
             'githubAppInstallationID'"
        ));
    }
    let tls = match read_tls(secret) {
        Ok(tls) => Some(Arc::new(tls)),
        Err(TlsFault::Incomplete(_)) => None,
        Err(TlsFault::Malformed(reason)) => return Err(reason),
    };
    Ok(Methods { basic, token: secret.text("token"), tls })
}

/// The certificates of a Secret.
///
/// # Errors
/// Go's message when it has none that can be used.
pub(crate) fn tls(secret: &Secret) -> Result<Arc<Tls>, String> {
    match read_tls(secret) {
        Ok(tls) => Ok(Arc::new(tls)),
        Err(TlsFault::Incomplete(reason) | TlsFault::Malformed(reason)) => Err(reason),
    }
}

fn read_tls(secret: &Secret) -> Result<Tls, TlsFault> {
    // The second name of each is deprecated.
    let value = |key: &str, old: &str| {
        let found = secret.bytes(key).or_else(|| secret.bytes(old));
        found.filter(|value| !value.is_empty()).map(<[u8]>::to_vec)
    };
    let authorities = value("ca.crt", "caFile");
    let name = &secret.name;
    let identity = match (value("tls.crt", "certFile"), value("tls.key", "keyFile")) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        (certificate, _) => {
            let pair = ["tls.crt", "tls.key"];
            let [present, missing] = if certificate.is_some() { pair } else { [pair[1], pair[0]] };
            return Err(TlsFault::Incomplete(format!(
                "secret '{name}' contains '{present}' but missing '{missing}'"
            )));
        }
    };
    if authorities.is_none() && identity.is_none() {
        return Err(TlsFault::Incomplete(format!(
            "secret '{name}' must contain either 'ca.crt' or both 'tls.crt' and 'tls.key'"
        )));
    }
    if let Some((certificate, _)) = &identity
        && !has_certificate(certificate)
    {
        return Err(TlsFault::Malformed(
            "failed to parse TLS certificate and key: tls: failed to find any PEM data in \
             certificate input"
                .to_owned(),
        ));
    }
    if authorities.as_deref().is_some_and(|text| !has_certificate(text)) {
        return Err(TlsFault::Malformed("failed to parse CA certificate".to_owned()));
    }
    Ok(Tls { authorities, identity })
}

/// Whether there is a certificate among the blocks of a PEM text.
fn has_certificate(text: &[u8]) -> bool {
    Pem::iter_from_buffer(text)
        .flatten()
        .any(|block| block.label == "CERTIFICATE" && block.parse_x509().is_ok())
}

/// The address of a proxy with its credentials.
///
/// # Errors
/// Go's message when the Secret has no address that can be used.
pub(crate) fn proxy(secret: &Secret) -> Result<String, String> {
    let name = &secret.name;
    let address = secret
        .text("address")
        .ok_or_else(|| format!("secret '{name}': key 'address' not found"))?;
    if address.is_empty() {
        return Err(format!("secret '{name}': proxy address is empty"));
    }
    if address.len() > MAX_PROXY {
        let limit = format!("proxy URL exceeds maximum length of {MAX_PROXY} characters");
        return Err(format!("secret '{name}': {limit}"));
    }
    let mut url = Url::parse(address.as_bytes()).map_err(|error| {
        format!("secret '{name}': failed to parse proxy address '{address}': {error}")
    })?;
    if !matches!(&*url.scheme, b"http" | b"https" | b"socks5") {
        let scheme = String::from_utf8_lossy(&url.scheme);
        return Err(format!(
            "secret '{name}': proxy URL must use one of the supported schemes (http, https), got \
             '{scheme}'"
        ));
    }
    if let Some(username) = secret.bytes("username") {
        let password = secret.bytes("password").map(<[u8]>::to_vec);
        url.user = Some(User { name: username.to_vec(), password });
    }
    Ok(String::from_utf8_lossy(&url.to_bytes()).into_owned())
}
