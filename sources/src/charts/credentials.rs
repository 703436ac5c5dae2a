//! The credentials of chart repositories, and the authorities that are trusted, from the keys that Flux reads in
//! Secrets.
//!
//! Differs(flux): those of a repository in a bucket are our own, as Flux knows none: the keys of a Bucket's Secret, and
//! `endpoint` and `region`, for which a HelmRepository has no fields.

use std::collections::BTreeMap;

use http_client::{ClientCertificateAndKey, TlsConfig};
use objects::RedactedValue;

use crate::bucket::{BucketCredentialSource, BucketEndpoint};

/// The credentials of a repository in Secrets.
#[derive(Debug, Clone, Default)]
pub struct ChartRepositoryCredentials {
    /// User and password.
    pub basic: Option<(String, RedactedValue<String>)>,
    /// Authorities that are trusted besides the system's, and the client certificate.
    pub tls: TlsConfig,
    /// The server of a bucket. It has no effect for a web server.
    pub bucket: ChartBucketServer,
}

/// The server of a bucket with charts, and the credentials for it.
#[derive(Debug, Clone)]
pub struct ChartBucketServer {
    /// The server. `None` for AWS over HTTPS.
    pub endpoint: Option<BucketEndpoint>,
    /// The region that requests are signed for.
    pub region: Option<String>,
    /// The credentials.
    pub identity: BucketCredentialSource,
}

impl Default for ChartBucketServer {
    /// AWS, with the credentials of the environment.
    fn default() -> Self {
        let identity = BucketCredentialSource::Environment { sts: None };
        Self { endpoint: None, region: None, identity }
    }
}

/// The reason why a Secret cannot be used. It repeats no text of the Secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// One key is there without the other.
    #[error("`{given}` requires `{missing}`")]
    Half {
        /// The key that is set.
        given: &'static str,
        /// The key that is missing.
        missing: &'static str,
    },
    /// Bytes that are not text.
    #[error("`{0}` is not valid UTF-8")]
    NotText(&'static str),
    /// Keys of a bucket that are not there.
    #[error("it requires `accesskey` and `secretkey`, both empty for a public bucket")]
    NoKeys,
    /// The address is not valid.
    #[error("`endpoint` is not a host with an optional port, such as `s3.eu-west-1.amazonaws.com`")]
    Endpoint,
    /// The Secret has no usable entry for TLS.
    #[error("it has neither `ca.crt` nor `tls.crt` with `tls.key`")]
    NoTls,
}

type ChartSecretData = BTreeMap<String, Vec<u8>>;

impl ChartRepositoryCredentials {
    /// Reads `secret` (user and password, or in an older way TLS) and `certificates` (TLS), which come first.
    ///
    /// # Errors
    /// [`Error`].
    pub fn from_secrets(
        secret: Option<&ChartSecretData>,
        certificates: Option<&ChartSecretData>,
    ) -> Result<Self, Error> {
        let basic = secret.map(basic).transpose()?.flatten();
        let tls = match (certificates, secret) {
            (Some(data), _) => tls(data)?.ok_or(Error::NoTls)?,
            (None, Some(data)) => tls(data)?.unwrap_or_default(),
            (None, None) => TlsConfig::default(),
        };
        Ok(Self { basic, tls, bucket: ChartBucketServer::default() })
    }

    /// Reads `secret` (keys of a bucket, and its server) and `certificates` (TLS). Without a Secret, the credentials come from
    /// the environment, and the server is AWS. `insecure` allows plain HTTP to an endpoint of the Secret.
    ///
    /// # Errors
    /// [`Error`].
    pub fn for_bucket(
        secret: Option<&ChartSecretData>,
        certificates: Option<&ChartSecretData>,
        insecure: bool,
    ) -> Result<Self, Error> {
        let tls = match certificates {
            Some(data) => tls(data)?.ok_or(Error::NoTls)?,
            None => TlsConfig::default(),
        };
        let bucket = secret.map(|data| bucket(data, insecure)).transpose()?;
        let bucket = bucket.unwrap_or_default();
        Ok(Self { basic: None, tls, bucket })
    }
}

/// A key of a Secret as text.
fn text(data: &ChartSecretData, key: &'static str) -> Result<Option<String>, Error> {
    let value = data.get(key).cloned().map(String::from_utf8);
    value.transpose().map_err(|_| Error::NotText(key))
}

fn bucket(data: &ChartSecretData, insecure: bool) -> Result<ChartBucketServer, Error> {
    let some = |key| Ok::<_, Error>(text(data, key)?.filter(|value| !value.is_empty()));
    let endpoint = some("endpoint")?;
    let endpoint = endpoint.map(|text| BucketEndpoint::parse(&text, insecure)).transpose();
    let identity = match (text(data, "accesskey")?, text(data, "secretkey")?) {
        (Some(access), Some(secret)) => match (access.is_empty(), secret.is_empty()) {
            (true, true) => BucketCredentialSource::Anonymous,
            (false, false) => BucketCredentialSource::Keys {
                access,
                secret: RedactedValue::new(secret),
                session: some("sessiontoken")?.map(RedactedValue::new),
            },
            _ => return Err(Error::NoKeys),
        },
        _ => return Err(Error::NoKeys),
    };
    let endpoint = endpoint.map_err(|_refused| Error::Endpoint)?;
    Ok(ChartBucketServer { endpoint, region: some("region")?, identity })
}

fn basic(data: &ChartSecretData) -> Result<Option<(String, RedactedValue<String>)>, Error> {
    match (text(data, "username")?, text(data, "password")?) {
        (Some(username), Some(password)) => Ok(Some((username, RedactedValue::new(password)))),
        (None, None) => Ok(None),
        (Some(_), None) => Err(Error::Half { given: "username", missing: "password" }),
        (None, Some(_)) => Err(Error::Half { given: "password", missing: "username" }),
    }
}

fn tls(data: &ChartSecretData) -> Result<Option<TlsConfig>, Error> {
    let either = |key: &str, old: &str| {
        let given = data.get(key).filter(|value| !value.is_empty());
        given.or_else(|| data.get(old)).filter(|value| !value.is_empty()).cloned()
    };
    let ca = either("ca.crt", "caFile");
    let identity = match (either("tls.crt", "certFile"), either("tls.key", "keyFile")) {
        (Some(certificate), Some(key)) => {
            Some(ClientCertificateAndKey { certificate, key: RedactedValue::new(key) })
        }
        (None, None) => None,
        (Some(_), None) => return Err(Error::Half { given: "tls.crt", missing: "tls.key" }),
        (None, Some(_)) => return Err(Error::Half { given: "tls.key", missing: "tls.crt" }),
    };
    Ok((ca.is_some() || identity.is_some()).then_some(TlsConfig { ca, identity }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(keys: &[(&str, &str)]) -> ChartSecretData {
        keys.iter().map(|(k, v)| ((*k).to_owned(), v.as_bytes().to_vec())).collect()
    }

    #[test]
    fn user_and_password_and_tls_come_from_their_keys_old_and_new() {
        let secret = data(&[("username", "me"), ("password", "hunter2"), ("caFile", "old")]);
        let found = ChartRepositoryCredentials::from_secrets(Some(&secret), None).unwrap();
        assert_eq!(found.basic.as_ref().unwrap().0, "me");
        assert_eq!(found.tls.ca.as_deref(), Some(b"old".as_slice()));
        assert!(!format!("{found:?}").contains("hunter2"));
        let certificates = data(&[("ca.crt", "new")]);
        let found =
            ChartRepositoryCredentials::from_secrets(Some(&secret), Some(&certificates)).unwrap();
        assert_eq!(found.tls.ca.as_deref(), Some(b"new".as_slice()));
        let nothing = ChartRepositoryCredentials::from_secrets(Some(&data(&[])), None).unwrap();
        assert!(nothing.basic.is_none() && nothing.tls.ca.is_none());
    }

    #[test]
    fn half_of_a_pair_is_refused() {
        for (keys, certificates, expected) in [
            (vec![("username", "me")], None, "`username` requires `password`"),
            (vec![("password", "p")], None, "`password` requires `username`"),
            (vec![], Some(vec![("tls.crt", "x")]), "`tls.crt` requires `tls.key`"),
            (vec![], Some(vec![]), "it has neither `ca.crt` nor `tls.crt` with `tls.key`"),
        ] {
            let secret = data(&keys);
            let certificates = certificates.map(|keys| data(&keys));
            let error =
                ChartRepositoryCredentials::from_secrets(Some(&secret), certificates.as_ref());
            assert_eq!(error.unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn the_secret_of_a_bucket_says_who_asks_and_where() {
        let read = |keys: &[(&str, &str)]| {
            ChartRepositoryCredentials::for_bucket(Some(&data(keys)), None, false)
                .map(|it| it.bucket)
        };
        let anonymous = ChartRepositoryCredentials::for_bucket(None, None, false).unwrap().bucket;
        assert!(matches!(anonymous.identity, BucketCredentialSource::Environment { sts: None }));
        let keys = [("accesskey", "me"), ("secretkey", "hunter2")];
        let found = read(&keys).unwrap();
        assert!(
            matches!(&found.identity, BucketCredentialSource::Keys { access, .. } if access == "me")
        );
        assert!(!format!("{found:?}").contains("hunter2"));
        let place = [("endpoint", "minio:9000"), ("region", "eu")];
        let found = read(&[&keys[..], &place].concat()).unwrap();
        assert_eq!(found.endpoint.unwrap().to_string(), "minio:9000");
        assert_eq!(found.region.as_deref(), Some("eu"));
        let open = read(&[("accesskey", ""), ("secretkey", "")]).unwrap();
        assert!(matches!(open.identity, BucketCredentialSource::Anonymous));
        let wrong = [("endpoint", "https://me:hunter2@minio")];
        for (keys, expected) in [
            (vec![], Error::NoKeys),
            (vec![("accesskey", "me")], Error::NoKeys),
            (vec![("accesskey", "me"), ("secretkey", "")], Error::NoKeys),
            ([&keys[..], &wrong].concat(), Error::Endpoint),
        ] {
            let error = read(&keys).unwrap_err();
            assert_eq!(error, expected);
            assert!(!error.to_string().contains("hunter2"));
        }
    }
}
