//! As whom a chart repository is spoken to, and whom it has to be, from the keys that Flux reads in Secrets.

use std::collections::BTreeMap;

use objects::Redacted;

use crate::http::{ClientIdentity, Tls};

/// What Secrets say of a repository.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    /// User and password.
    pub basic: Option<(String, Redacted<String>)>,
    /// Whom we trust besides the system's authorities, and what we show.
    pub tls: Tls,
}

/// A Secret that cannot be used. No text of it is repeated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// One key is there without the other.
    #[error("`{given}` needs `{missing}` beside it")]
    Half {
        /// What is there.
        given: &'static str,
        /// What is not.
        missing: &'static str,
    },
    /// Bytes that are no text.
    #[error("`{0}` is not text")]
    NotText(&'static str),
    /// Nothing of use for TLS.
    #[error("it has neither `ca.crt` nor `tls.crt` with `tls.key`")]
    NoTls,
}

type Data = BTreeMap<String, Vec<u8>>;

impl Credentials {
    /// Reads `secret` (user and password, or in an older way TLS) and `certificates` (TLS), which come first.
    ///
    /// # Errors
    /// [`Error`].
    pub fn from_secrets(secret: Option<&Data>, certificates: Option<&Data>) -> Result<Self, Error> {
        let basic = secret.map(basic).transpose()?.flatten();
        let tls = match (certificates, secret) {
            (Some(data), _) => tls(data)?.ok_or(Error::NoTls)?,
            (None, Some(data)) => tls(data)?.unwrap_or_default(),
            (None, None) => Tls::default(),
        };
        Ok(Self { basic, tls })
    }
}

fn basic(data: &Data) -> Result<Option<(String, Redacted<String>)>, Error> {
    let text = |key: &'static str| {
        let value = data.get(key).cloned().map(String::from_utf8);
        value.transpose().map_err(|_| Error::NotText(key))
    };
    match (text("username")?, text("password")?) {
        (Some(username), Some(password)) => Ok(Some((username, Redacted::new(password)))),
        (None, None) => Ok(None),
        (Some(_), None) => Err(Error::Half { given: "username", missing: "password" }),
        (None, Some(_)) => Err(Error::Half { given: "password", missing: "username" }),
    }
}

fn tls(data: &Data) -> Result<Option<Tls>, Error> {
    let either = |key: &str, old: &str| {
        let given = data.get(key).filter(|value| !value.is_empty());
        given.or_else(|| data.get(old)).filter(|value| !value.is_empty()).cloned()
    };
    let ca = either("ca.crt", "caFile");
    let identity = match (either("tls.crt", "certFile"), either("tls.key", "keyFile")) {
        (Some(certificate), Some(key)) => {
            Some(ClientIdentity { certificate, key: Redacted::new(key) })
        }
        (None, None) => None,
        (Some(_), None) => return Err(Error::Half { given: "tls.crt", missing: "tls.key" }),
        (None, Some(_)) => return Err(Error::Half { given: "tls.key", missing: "tls.crt" }),
    };
    Ok((ca.is_some() || identity.is_some()).then_some(Tls { ca, identity }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(keys: &[(&str, &str)]) -> Data {
        keys.iter().map(|(k, v)| ((*k).to_owned(), v.as_bytes().to_vec())).collect()
    }

    #[test]
    fn user_and_password_and_tls_come_from_their_keys_old_and_new() {
        let secret = data(&[("username", "me"), ("password", "hunter2"), ("caFile", "old")]);
        let found = Credentials::from_secrets(Some(&secret), None).unwrap();
        assert_eq!(found.basic.as_ref().unwrap().0, "me");
        assert_eq!(found.tls.ca.as_deref(), Some(b"old".as_slice()));
        assert!(!format!("{found:?}").contains("hunter2"));
        let certificates = data(&[("ca.crt", "new")]);
        let found = Credentials::from_secrets(Some(&secret), Some(&certificates)).unwrap();
        assert_eq!(found.tls.ca.as_deref(), Some(b"new".as_slice()));
        let nothing = Credentials::from_secrets(Some(&data(&[])), None).unwrap();
        assert!(nothing.basic.is_none() && nothing.tls.ca.is_none());
    }

    #[test]
    fn half_of_a_pair_is_refused() {
        for (keys, certificates, expected) in [
            (vec![("username", "me")], None, "`username` needs `password` beside it"),
            (vec![("password", "p")], None, "`password` needs `username` beside it"),
            (vec![], Some(vec![("tls.crt", "x")]), "`tls.crt` needs `tls.key` beside it"),
            (vec![], Some(vec![]), "it has neither `ca.crt` nor `tls.crt` with `tls.key`"),
        ] {
            let (secret, certificates) = (data(&keys), certificates.map(|keys| data(&keys)));
            let error = Credentials::from_secrets(Some(&secret), certificates.as_ref());
            assert_eq!(error.unwrap_err().to_string(), expected);
        }
    }
}
