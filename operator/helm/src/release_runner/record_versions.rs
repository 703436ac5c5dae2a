//! The versions of the Secrets with the records of Helm releases. They show after a restart that no client has changed a release,
//! so that its records need not be read.
//!
//! Elsewhere: reading and writing records ([`super::storage`]), what follows from unchanged ones
//! (`crate::helm_release::unchanged_release_after_restart`).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use objects::Gvk;
use sha2::{Digest as _, Sha256};
use tokio::sync::Mutex;

use windlass_cluster::ClusterError;
use windlass_cluster::object_decode::DepthPrunedObject;
use windlass_runtime::run_context::RunContext;

/// Selects the Secrets of all releases.
const ALL_RECORDS: &str = "owner=helm";

/// How long a list counts. Runs that begin later list the records again, or read them.
const COUNTS_FOR: Duration = Duration::from_secs(60);

/// The resourceVersions of Secrets, by their names.
pub(super) type SecretVersions = BTreeMap<String, String>;

/// The digest of the names and versions of a release's Secrets.
pub(super) fn digest(versions: &SecretVersions) -> String {
    let mut hash = Sha256::new();
    for (name, version) in versions {
        hash.update(format!("{name} {version}\n"));
    }
    hex::encode(hash.finalize())
}

/// The versions of the records of all releases, which the first runs after a start share. One list of metadata takes the place
/// of a list of records for each release.
#[derive(Default)]
pub(crate) struct RecordVersions(Mutex<Option<ListedRecords>>);

struct ListedRecords {
    at: Instant,
    /// The digests of the releases, by namespace and name.
    releases: BTreeMap<[String; 2], String>,
}

impl RecordVersions {
    /// The digest of the records of a release. `None` if the release has none, or the records cannot be listed.
    pub(crate) async fn of(
        &self,
        context: &RunContext,
        namespace: &str,
        name: &str,
    ) -> Option<String> {
        let mut listed = self.0.lock().await;
        if listed.as_ref().is_none_or(|it| it.at.elapsed() > COUNTS_FOR) {
            // A list that failed counts as well. Otherwise each of thousands of runs would repeat it.
            let releases = list(context).await.unwrap_or_default();
            *listed = Some(ListedRecords { at: Instant::now(), releases });
        }
        listed.as_ref()?.releases.get(&[namespace.to_owned(), name.to_owned()]).cloned()
    }
}

async fn list(context: &RunContext) -> Result<BTreeMap<[String; 2], String>, ClusterError> {
    let secrets = context.cluster.resource(&Gvk::new("v1", "Secret")).await?;
    let settings = &context.settings;
    let namespace =
        if settings.watch_all_namespaces { "" } else { settings.runtime_namespace.as_str() };
    let mut pages = context.cluster.metadata_pages(&secrets, namespace, ALL_RECORDS)?;
    let mut releases: BTreeMap<[String; 2], SecretVersions> = BTreeMap::new();
    while let Some(page) = pages.next().await? {
        for DepthPrunedObject(secret) in &page {
            let metadata = &secret["metadata"];
            let text = |key: &str| metadata[key].as_str().unwrap_or_default().to_owned();
            let release = metadata["labels"]["name"].as_str().unwrap_or_default().to_owned();
            let versions = releases.entry([text("namespace"), release]).or_default();
            versions.insert(text("name"), text("resourceVersion"));
        }
    }
    Ok(releases.into_iter().map(|(release, versions)| (release, digest(&versions))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_has_every_name_and_every_version() {
        let of = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter().map(|(name, version)| ((*name).into(), (*version).into()));
            digest(&pairs.collect())
        };
        let one = of(&[("web.v1", "5")]);
        assert_eq!(one, of(&[("web.v1", "5")]));
        let others: [&[(&str, &str)]; 4] =
            [&[], &[("web.v1", "6")], &[("web.v2", "5")], &[("web.v1", "5"), ("web.v2", "7")]];
        for other in others {
            assert_ne!(one, of(other), "{other:?}");
        }
    }
}
