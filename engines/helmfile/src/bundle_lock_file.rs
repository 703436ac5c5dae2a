//! Bundles: a directory with a helmfile and all charts and files that the helmfile needs from other servers. A lock file has
//! their digests.
//!
//! Here: the lock file. Elsewhere: making a bundle (`windlass bundle`), reading from a bundle
//! (`helmfile_controller::helmfile`).

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::deps::ChartVersionRequest;
use crate::remote_address::{RemoteAddress, RemoteSource};
use crate::yaml;

/// The directory for charts and files from other servers.
pub const FOLDER: &str = "windlass-bundle";

/// The name of the lock file in that directory.
pub const LOCK: &str = "lock.yaml";

/// The most entries of a lock file.
const MAX_LOCK_ENTRIES: usize = 4_096;

/// The lock file of a bundle: the charts and files from other servers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HelmfileBundleLock {
    /// Charts and addresses, in the order of their ids.
    pub entries: Vec<HelmfileBundleLockEntry>,
}

/// A chart, or the content of a remote address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HelmfileBundleLockEntry {
    /// The key by which the entry is found: [`chart_id`] or [`address_id`].
    pub id: String,
    /// The name of the chart or address in messages.
    pub of: String,
    /// The archive in the directory of the bundle.
    pub file: String,
    /// `sha256:…` of the archive.
    pub digest: String,
}

/// The key that identifies a chart.
#[must_use]
pub fn chart_id(chart: &ChartVersionRequest) -> String {
    let ChartVersionRequest { url, name, range, .. } = chart;
    id(&[url, name, range])
}

/// The key for the content of a remote address. It leaves out the user name, so that a bundle works for every user.
#[must_use]
pub fn address_id(address: &RemoteAddress) -> String {
    let RemoteAddress { getter, scheme, host, dir, file, query, .. } = address;
    // Each file of a web server and each object of S3 is another one.
    let is_file =
        matches!(address.source(), Ok(RemoteSource::File { .. } | RemoteSource::S3 { .. }));
    id(&[getter, scheme, host, dir, if is_file { file } else { "" }, query])
}

fn id(parts: &[&str]) -> String {
    hex::encode(Sha256::digest(parts.join("\n")))
}

/// The digest of an archive as text, in the form `sha256:…`.
#[must_use]
pub fn digest(archive: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(archive)))
}

impl HelmfileBundleLock {
    /// Reads a lock.
    ///
    /// # Errors
    /// The text is not a bundle.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let failed = |why: String| format!("{FOLDER}/{LOCK}: {why}");
        let value = yaml::read(text).map_err(|error| failed(error.to_string()))?;
        let read: Self =
            serde_json::from_value(value).map_err(|error| failed(error.to_string()))?;
        if read.entries.len() > MAX_LOCK_ENTRIES {
            return Err(failed(format!("it has more than {MAX_LOCK_ENTRIES} entries")));
        }
        let is_name =
            |file: &str| !file.is_empty() && !file.contains('/') && !file.starts_with('.');
        match read.entries.iter().find(|entry| !is_name(&entry.file)) {
            Some(entry) => Err(failed(format!("`{}` is not the name of a file", entry.file))),
            None => Ok(read),
        }
    }

    /// The text of the lock.
    ///
    /// # Errors
    /// It cannot be written as YAML.
    pub fn text(&self) -> Result<String, String> {
        let value = serde_json::to_value(self).map_err(|error| error.to_string())?;
        goyaml::emit(&value).map_err(|error| error.to_string())
    }

    /// The entry of the lock file with this id. `None` if there is no such entry.
    #[must_use]
    pub fn find(&self, id: &str) -> Option<&HelmfileBundleLockEntry> {
        self.entries.iter().find(|entry| entry.id == id)
    }
}

impl HelmfileBundleLockEntry {
    /// Checks that an archive is the one in the lock file.
    ///
    /// # Errors
    /// The archive has another digest.
    pub fn check(&self, archive: &[u8]) -> Result<(), String> {
        let found = digest(archive);
        if found == self.digest {
            return Ok(());
        }
        Err(format!(
            "{FOLDER}/{}: digest mismatch: expected {}, got {found}; rebuild the bundle",
            self.file, self.digest
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_read_as_it_was_written_and_leads_nowhere_else() {
        let entry = HelmfileBundleLockEntry {
            id: "a".to_owned(),
            of: "chart web 1.x of https://charts.example".to_owned(),
            file: "a.tgz".to_owned(),
            digest: digest(b"text"),
        };
        let bundle = HelmfileBundleLock { entries: vec![entry.clone()] };
        let text = bundle.text().unwrap();
        assert_eq!(HelmfileBundleLock::parse(text.as_bytes()), Ok(bundle.clone()));
        assert_eq!(bundle.find("a"), Some(&entry));
        assert!(entry.check(b"text").is_ok());
        assert!(entry.check(b"other").unwrap_err().contains("rebuild the bundle"));
        for file in ["../a.tgz", "", ".", "/a"] {
            let other = text.replace("a.tgz", file);
            assert!(HelmfileBundleLock::parse(other.as_bytes()).is_err(), "{file}");
        }
        assert!(HelmfileBundleLock::parse(b"entries: 1").is_err());
    }

    #[test]
    fn addresses_of_one_repository_are_one_entry_for_every_caller() {
        let id = |text: &str| address_id(&RemoteAddress::parse(text).unwrap());
        assert_eq!(id("git::https://h/r@a?ref=1"), id("git::https://u:p@h/r@b?ref=1"));
        assert_ne!(id("git::https://h/r@a?ref=1"), id("git::https://h/r@a?ref=2"));
        assert_ne!(id("https://h/a.yaml"), id("https://h/b.yaml"));
        assert_ne!(id("s3://b/a.yaml"), id("s3://b/b.yaml"));
        let of_host =
            |file: &str| id(&format!("s3::https://b.s3.eu-west-1.amazonaws.com/d/{file}"));
        assert_ne!(of_host("a.yaml"), of_host("b.yaml"));
    }
}
