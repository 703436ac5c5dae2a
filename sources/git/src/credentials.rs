//! The credentials for a remote, from the keys that Flux reads in a Secret.

use std::collections::BTreeMap;

use http_client::{ClientCertificateAndKey, TlsConfig};
use objects::RedactedValue;

use super::Error;
use super::remote_url::{RemoteScheme, RemoteUrl};

/// The user of an SSH URL that names none.
const USUAL_SSH_USER: &str = "git";

/// The credentials for a remote.
#[derive(Debug, Clone, Default)]
pub enum GitAuth {
    /// Anonymous access, only for HTTP.
    #[default]
    None,
    /// HTTP basic authentication, sent with the first request.
    Basic {
        /// User.
        username: String,
        /// Password or token.
        password: RedactedValue<String>,
    },
    /// HTTP bearer token, sent with the first request.
    Bearer(RedactedValue<String>),
    /// An SSH key.
    Ssh {
        /// The private key in PEM or OpenSSH's format: Ed25519, ECDSA or RSA.
        identity: RedactedValue<String>,
        /// The passphrase of the encrypted key.
        passphrase: Option<RedactedValue<String>>,
        /// The hosts that may answer, in the format of `known_hosts`.
        known_hosts: String,
    },
}

/// The credentials for a remote in a Secret.
#[derive(Debug, Clone, Default)]
pub struct GitCredentials {
    /// The credentials.
    pub auth: GitAuth,
    /// The trusted certificate authorities, and the client certificate. Only for HTTP.
    pub tls: TlsConfig,
}

impl GitCredentials {
    /// Reads the keys that Flux reads; keys of the other transport are not examined.
    ///
    /// | transport | keys |
    /// |---|---|
    /// | HTTP(S) | `bearerToken`, or `username` and `password`; `ca.crt` (or `caFile`), `tls.crt` (or `certFile`), `tls.key` (or `keyFile`) |
    /// | SSH | `identity`, `known_hosts`, `password` (of the key) |
    ///
    /// User and password in an HTTP URL stand in for those that the Secret lacks. Without a Secret, give an empty map.
    ///
    /// # Errors
    /// [`Error::BadSecret`] naming the key that is missing or unusable.
    pub fn from_secret(data: &BTreeMap<String, Vec<u8>>, url: &RemoteUrl) -> Result<Self, Error> {
        match url.scheme() {
            RemoteScheme::Ssh => Ok(Self { auth: ssh(data)?, tls: TlsConfig::default() }),
            RemoteScheme::Http | RemoteScheme::Https => {
                Ok(Self { auth: http(data, url)?, tls: tls(data)? })
            }
        }
    }
}

impl GitAuth {
    /// Every text that must not be repeated, however a server tries to have it repeated.
    pub(super) fn secrets(&self) -> Vec<RedactedValue<String>> {
        match self {
            Self::None => Vec::new(),
            Self::Basic { username, password } => {
                // Some users put a token in place of the user name. A short text is a name, and may be part of any other text.
                let token = (username.len() >= 16).then(|| RedactedValue::new(username.clone()));
                std::iter::once(password.clone()).chain(token).collect()
            }
            Self::Bearer(token) => vec![token.clone()],
            Self::Ssh { identity, passphrase, .. } => {
                std::iter::once(identity.clone()).chain(passphrase.clone()).collect()
            }
        }
    }
}

/// The user that a key is offered for.
pub(super) fn ssh_user(url: &RemoteUrl) -> String {
    url.user().unwrap_or_else(|| USUAL_SSH_USER.to_owned())
}

fn bad(text: &str) -> Error {
    Error::BadSecret(text.to_owned())
}

/// The bytes of a key in a Secret's data. `None` if the key is missing or empty.
fn bytes<'a>(data: &'a BTreeMap<String, Vec<u8>>, key: &str) -> Option<&'a Vec<u8>> {
    data.get(key).filter(|value| !value.is_empty())
}

fn text(data: &BTreeMap<String, Vec<u8>>, key: &str) -> Result<Option<String>, Error> {
    bytes(data, key)
        .map(|value| String::from_utf8(value.clone()))
        .transpose()
        .map_err(|_not_utf8| Error::BadSecret(format!("`{key}` is not valid UTF-8")))
}

fn ssh(data: &BTreeMap<String, Vec<u8>>) -> Result<GitAuth, Error> {
    let identity = text(data, "identity")?
        .ok_or_else(|| bad("an ssh URL requires `identity`, the private key, in the Secret"))?;
    let known_hosts = text(data, "known_hosts")?
        .ok_or_else(|| bad("an ssh URL requires `known_hosts`, the host keys, in the Secret"))?;
    let passphrase = text(data, "password")?.map(RedactedValue::new);
    Ok(GitAuth::Ssh { identity: RedactedValue::new(identity), passphrase, known_hosts })
}

fn http(data: &BTreeMap<String, Vec<u8>>, url: &RemoteUrl) -> Result<GitAuth, Error> {
    let bearer = text(data, "bearerToken")?;
    // Parity(flux): a bearer token hides user and password of the Secret, even when it is empty.
    let (username, password) = if data.contains_key("bearerToken") {
        (None, None)
    } else {
        (text(data, "username")?, text(data, "password")?)
    };
    let username = username.or_else(|| url.user());
    let password = password.or_else(|| url.password());
    match (bearer, username, password) {
        (Some(_), Some(_), _) | (Some(_), _, Some(_)) => {
            Err(bad("`bearerToken` cannot be combined with a user or password in the URL"))
        }
        (Some(token), None, None) => {
            header_safe("bearerToken", &token).map(|()| GitAuth::Bearer(RedactedValue::new(token)))
        }
        (None, None, Some(_)) => Err(bad("`password` requires `username`")),
        (None, Some(username), password) => Ok(GitAuth::Basic {
            username,
            password: RedactedValue::new(password.unwrap_or_default()),
        }),
        (None, None, None) => Ok(GitAuth::None),
    }
}

/// A token goes into a header as it is, so it must be able to.
fn header_safe(key: &str, token: &str) -> Result<(), Error> {
    if token.bytes().all(|byte| (0x21..0x7f).contains(&byte)) {
        Ok(())
    } else {
        Err(Error::BadSecret(format!("`{key}` contains white space or unprintable characters")))
    }
}

/// Differs(flux): Flux's Git sources do not read the older names `certFile` and `keyFile` any more, its other sources
/// do.
fn tls(data: &BTreeMap<String, Vec<u8>>) -> Result<TlsConfig, Error> {
    let either = |key: &'static str, older: &'static str| {
        [key, older].into_iter().find_map(|key| bytes(data, key).map(|value| (key, value)))
    };
    let ca = either("ca.crt", "caFile").map(|(_, pem)| pem.clone());
    let identity = match (either("tls.crt", "certFile"), either("tls.key", "keyFile")) {
        (Some((_, certificate)), Some((_, key))) => Some(ClientCertificateAndKey {
            certificate: certificate.clone(),
            key: RedactedValue::new(key.clone()),
        }),
        (None, None) => None,
        (Some((given, _)), None) => return Err(alone(given, "tls.key")),
        (None, Some((given, _))) => return Err(alone(given, "tls.crt")),
    };
    Ok(TlsConfig { ca, identity })
}

fn alone(given: &str, missing: &str) -> Error {
    Error::BadSecret(format!("`{given}` requires `{missing}`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn check(url: &str, secret: &[(&str, &str)], expected: &Expect) {
        let data = secret.iter().map(|(k, v)| ((*k).to_owned(), v.as_bytes().to_vec())).collect();
        let text = match GitCredentials::from_secret(&data, &RemoteUrl::parse(url).unwrap()) {
            Ok(credentials) => format!("{:?}", credentials.auth),
            Err(error) => error.to_string(),
        };
        assert!(!text.contains("hunter2"), "{text}");
        expected.assert_eq(&text);
    }

    #[test]
    fn http_takes_a_user_or_a_token() {
        let url = "https://h/a.git";
        check(url, &[], &expect!["None"]);
        check(
            url,
            &[("username", "me"), ("password", "hunter2")],
            &expect![[r#"Basic { username: "me", password: **** }"#]],
        );
        check(url, &[("bearerToken", "hunter2")], &expect!["Bearer(****)"]);
        check(url, &[("bearerToken", "hunter2"), ("username", "me")], &expect!["Bearer(****)"]);
        check(
            url,
            &[("password", "hunter2")],
            &expect!["the Secret is invalid: `password` requires `username`"],
        );
        check(
            url,
            &[("bearerToken", "hunter2\n")],
            &expect![
                "the Secret is invalid: `bearerToken` contains white space or unprintable characters"
            ],
        );
        check(
            url,
            &[("tls.crt", "x")],
            &expect!["the Secret is invalid: `tls.crt` requires `tls.key`"],
        );
        check(
            url,
            &[("keyFile", "hunter2")],
            &expect!["the Secret is invalid: `keyFile` requires `tls.crt`"],
        );
        check(url, &[("certFile", "x"), ("tls.key", "hunter2")], &expect!["None"]);
    }

    #[test]
    fn user_and_password_of_the_url_stand_in_for_the_secret() {
        check(
            "https://me:hunter2@h/a.git",
            &[],
            &expect![[r#"Basic { username: "me", password: **** }"#]],
        );
        check(
            "https://me:hunter2@h/a.git",
            &[("bearerToken", "hunter2")],
            &expect![
                "the Secret is invalid: `bearerToken` cannot be combined with a user or password in the URL"
            ],
        );
    }

    #[test]
    fn ssh_needs_a_key_and_known_hosts() {
        let url = "ssh://h/a.git";
        check(
            url,
            &[("known_hosts", "h ssh-ed25519 AAAA")],
            &expect![
                "the Secret is invalid: an ssh URL requires `identity`, the private key, in the Secret"
            ],
        );
        check(
            url,
            &[("identity", "hunter2")],
            &expect![
                "the Secret is invalid: an ssh URL requires `known_hosts`, the host keys, in the Secret"
            ],
        );
        check(
            url,
            &[("identity", "hunter2"), ("known_hosts", "k"), ("password", "hunter2")],
            &expect![[r#"Ssh { identity: ****, passphrase: Some(****), known_hosts: "k" }"#]],
        );
    }
}
