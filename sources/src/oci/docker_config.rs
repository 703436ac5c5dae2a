//! Credentials of registries in the format of Docker's configuration, which Kubernetes keeps in Secrets.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use golang::glob::path_match;
use objects::RedactedValue;
use serde::Deserialize;

use super::{Error, OciRepositoryName, RegistryAuth};

/// The key of Secrets of type `kubernetes.io/dockerconfigjson`.
const CONFIG: &str = ".dockerconfigjson";
/// The key for credentials of the older type `kubernetes.io/dockercfg`.
const OLDER: &str = ".dockercfg";

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Credentials by the registries and repositories for which they are valid.
#[derive(Debug, Clone, Default)]
pub struct RegistryKeyring(Vec<(String, RegistryAuth)>);

#[derive(Deserialize)]
struct DockerConfig {
    #[serde(default)]
    auths: Option<BTreeMap<String, DockerAuthEntry>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct DockerAuthEntry {
    username: Option<String>,
    password: Option<String>,
    auth: Option<String>,
    identitytoken: Option<String>,
    registrytoken: Option<String>,
}

impl RegistryKeyring {
    /// Adds the credentials of a Secret. Returns false if the Secret has none in Docker's format.
    ///
    /// # Errors
    /// [`Error::BadSecret`] with the name of the key. It repeats no text of the Secret.
    pub fn add(&mut self, data: &BTreeMap<String, Vec<u8>>) -> Result<bool, Error> {
        let bad = |key: &str, why: &str| Error::BadSecret(format!("`{key}` of the Secret {why}"));
        let unread = |key: &str| bad(key, "is not a docker config in JSON");
        let (key, entries) = if let Some(text) = data.get(CONFIG) {
            let config: DockerConfig = serde_json::from_slice(text).map_err(|_| unread(CONFIG))?;
            (CONFIG, config.auths.unwrap_or_default())
        } else if let Some(text) = data.get(OLDER) {
            (OLDER, serde_json::from_slice(text).map_err(|_| unread(OLDER))?)
        } else {
            return Ok(false);
        };
        for (place, entry) in entries {
            let auth = auth(entry)
                .ok_or_else(|| bad(key, "has an `auth` that is not base64 of `user:password`"))?;
            self.0.push((normal(&place), auth));
        }
        // Parity(flux): the most specific place wins, which is the last in the order of strings; of two the same, the first.
        self.0.sort_by(|(a, _), (b, _)| b.cmp(a));
        Ok(true)
    }

    /// Whether there are no credentials.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The credentials for a repository.
    pub fn auth(&self, repository: &OciRepositoryName) -> RegistryAuth {
        let fits = |place: &str| is_for(place, repository);
        let found = self.0.iter().find(|(place, _)| fits(place));
        found.map(|(_, auth)| auth.clone()).unwrap_or_default()
    }
}

/// Decodes an entry. `None` if its `auth` cannot be read.
fn auth(entry: DockerAuthEntry) -> Option<RegistryAuth> {
    let some = |text: Option<String>| text.filter(|text| !text.is_empty());
    if let Some(token) = some(entry.registrytoken) {
        return Some(RegistryAuth::Bearer(RedactedValue::new(token)));
    }
    if let Some(token) = some(entry.identitytoken) {
        return Some(RegistryAuth::Identity(RedactedValue::new(token)));
    }
    let mut username = some(entry.username);
    let mut password = some(entry.password);
    // Parity(docker): `auth` wins over the other two.
    if let Some(both) = some(entry.auth) {
        let both = String::from_utf8(BASE64.decode(both.trim()).ok()?).ok()?;
        let (user, pass) = both.split_once(':')?;
        // Docker pads passwords with zeros in places.
        let pass = pass.trim_matches('\0').to_owned();
        (username, password) = (Some(user.to_owned()), Some(pass));
    }
    Some(match (username, password) {
        (None, None) => RegistryAuth::Anonymous,
        (username, password) => RegistryAuth::Basic {
            username: username.unwrap_or_default(),
            password: RedactedValue::new(password.unwrap_or_default()),
        },
    })
}

/// A place without scheme, and without the version that Docker writes behind the host.
fn normal(place: &str) -> String {
    let place =
        place.strip_prefix("https://").or_else(|| place.strip_prefix("http://")).unwrap_or(place);
    let (host, path) = place.split_once('/').map_or((place, ""), |(host, path)| (host, path));
    let path = path.strip_prefix("v1/").or_else(|| path.strip_prefix("v2/")).unwrap_or(path);
    if path.is_empty() { host.to_owned() } else { format!("{host}/{path}") }
}

/// Parity(kubernetes): each part of the host may have wildcards, the port is the same, the path is a beginning.
fn is_for(place: &str, repository: &OciRepositoryName) -> bool {
    let (host, path) = place.split_once('/').unwrap_or((place, ""));
    let (wanted, wanted_port) = split(host);
    let (found, port) = split(repository.registry());
    let (wanted, found): (Vec<&str>, Vec<&str>) =
        (wanted.split('.').collect(), found.split('.').collect());
    wanted_port == port
        && wanted.len() == found.len()
        && repository.path().starts_with(path)
        && wanted
            .iter()
            .zip(&found)
            .all(|(pattern, part)| path_match(pattern, part).unwrap_or(false))
}

/// Splits a host into its name and its port, which is empty if there is none.
fn split(host: &str) -> (&str, &str) {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, port),
        _ => (host, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keyring(configs: &[&str]) -> RegistryKeyring {
        let mut keyring = RegistryKeyring::default();
        for config in configs {
            let data = BTreeMap::from([(CONFIG.to_owned(), config.as_bytes().to_vec())]);
            assert!(keyring.add(&data).unwrap());
        }
        keyring
    }

    fn login_of(keyring: &RegistryKeyring, url: &str) -> String {
        match keyring.auth(&OciRepositoryName::parse(url).unwrap()) {
            RegistryAuth::Anonymous => "anonymous".to_owned(),
            RegistryAuth::Basic { username, password }
            | RegistryAuth::Login { username, password } => {
                format!("{username}:{}", password.expose())
            }
            RegistryAuth::Identity(token) => format!("identity {}", token.expose()),
            RegistryAuth::Bearer(token) => format!("bearer {}", token.expose()),
        }
    }

    #[test]
    fn the_most_specific_place_wins() {
        let keys = keyring(&[r#"{"auths":{"https://index.docker.io/v1/":{"auth":"aHViOnB3"},
                "r.io":{"username":"whole","password":"a:b"},"r.io/team":{"username":"team","password":"p"},
                "*.cloud.io":{"identitytoken":"i"},"r.io:5000":{"registrytoken":"t"}}}"#]);
        for (url, expected) in [
            ("oci://org/app", "hub:pw"),
            ("oci://r.io/app", "whole:a:b"),
            ("oci://r.io/team/app", "team:p"),
            ("oci://eu.cloud.io/app", "identity i"),
            ("oci://a.eu.cloud.io/app", "anonymous"),
            ("oci://r.io:5000/team/app", "bearer t"),
            ("oci://r.io:5001/app", "anonymous"),
            ("oci://other.io/app", "anonymous"),
        ] {
            assert_eq!(login_of(&keys, url), expected, "{url}");
        }
    }

    #[test]
    fn of_several_secrets_the_first_wins_and_their_order_holds() {
        let keys = keyring(&[
            r#"{"auths":{"r.io":{"username":"first","password":"p"}}}"#,
            r#"{"auths":{"r.io":{"username":"second","password":"p"}}}"#,
        ]);
        assert_eq!(login_of(&keys, "oci://r.io/app"), "first:p");
    }

    #[test]
    fn what_is_no_docker_config_is_refused_and_not_shown() {
        for text in
            ["hunter2", r#"{"auths":{"r.io":{"auth":"hunter2"}}}"#, r#"{"auths":["hunter2"]}"#]
        {
            let data = BTreeMap::from([(CONFIG.to_owned(), text.as_bytes().to_vec())]);
            let error = RegistryKeyring::default().add(&data).unwrap_err().to_string();
            assert!(error.starts_with("`.dockerconfigjson` of the Secret"), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
        let older = BTreeMap::from([(OLDER.to_owned(), br#"{"r.io":{"auth":"YTpi"}}"#.to_vec())]);
        let mut keys = RegistryKeyring::default();
        assert!(keys.add(&older).unwrap() && !keys.is_empty());
        assert_eq!(login_of(&keys, "oci://r.io/app"), "a:b");
        assert!(!keys.add(&BTreeMap::new()).unwrap());
        assert!(!format!("{keys:?}").contains("Yjpi"));
    }
}
