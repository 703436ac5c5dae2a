//! Moves a cluster from another repository or branch. The Kustomization is suspended until the new repository is fetched.
//!
//! Without the suspension, windlass would restore the old source from the old commit while it already fetches the new one.
//! Then the old and the new commit would replace each other's source forever.
//! Differs(flux): Flux corrects drift only at its interval.

use anyhow::{Context as _, bail};
use objects::{Gvk, Object};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::layout::NAME;
use crate::install::{MANAGER, POLL_INTERVAL, crd_replacement};
use windlass_cli_runtime::connection::{ProgressGlyph, say};
use windlass_cluster::discovery::ApiResourceLocation;
use windlass_cluster::untyped_objects::DryRunMode;
use windlass_cluster::{ClusterConnection, ClusterError};

const SOURCE: (&str, &str) = ("source.toolkit.fluxcd.io/v1", "GitRepository");

/// The Kustomization that was suspended.
pub(super) struct RepositoryMove<'c> {
    cluster: &'c ClusterConnection,
    namespace: String,
    /// The source in its new form.
    source: Object,
    sources: ApiResourceLocation,
    kustomizations: ApiResourceLocation,
}

/// The source that a cluster follows. `None` if it follows none yet, or if the CRD is missing.
///
/// # Errors
/// The API server refuses to show the source.
pub(super) async fn read_source(
    cluster: &ClusterConnection,
    namespace: &str,
) -> Result<Option<Object>, ClusterError> {
    let resource = match cluster.resource(&Gvk::new(SOURCE.0, SOURCE.1)).await {
        Err(ClusterError::NoSuchKind { .. }) => return Ok(None),
        found => found?,
    };
    cluster.get(&resource, namespace, NAME).await
}

/// The fields `url` and `ref` of a source, which select its repository and branch. `None` if the source has no spec.
fn followed(source: &Object) -> Option<(&Value, &Value)> {
    let spec = source.get("spec")?;
    Some((&spec["url"], &spec["ref"]))
}

impl<'c> RepositoryMove<'c> {
    /// Suspends the Kustomization if the new objects make its source follow another repository or branch.
    ///
    /// # Errors
    /// The cluster cannot be read or written.
    pub(super) async fn begin(
        cluster: &'c ClusterConnection,
        namespace: &str,
        sync: &[Object],
    ) -> anyhow::Result<Option<Self>> {
        let Some(source) = sync.iter().find(|it| it.kind() == "GitRepository") else {
            return Ok(None);
        };
        // Without the CRD, the cluster follows no source yet.
        let Some(before) = read_source(cluster, namespace).await? else { return Ok(None) };
        if followed(&before) == followed(source) {
            return Ok(None);
        }
        let Some(kustomization) = sync.iter().find(|it| it.kind() == "Kustomization") else {
            return Ok(None);
        };
        let found = crd_replacement::read(cluster, kustomization).await?;
        // A Kustomization that the user suspended stays suspended.
        let is_active =
            found.is_some_and(|it| it.get("spec").is_some_and(|it| it["suspend"] != true));
        if !is_active {
            return Ok(None);
        }
        let sources = cluster.resource(&source.gvk()).await?;
        let kustomizations = cluster.resource(&kustomization.gvk()).await?;
        let namespace = namespace.to_owned();
        let source = source.clone();
        let moving = Self { cluster, namespace, source, sources, kustomizations };
        moving.suspend(&json!(true)).await?;
        say(ProgressGlyph::Action, &format!("Kustomization/{}/{NAME} suspended", moving.namespace));
        Ok(Some(moving))
    }

    /// Makes the source follow the new repository after all else was written. Resumes the Kustomization when a commit of that
    /// repository is fetched. After an error, the Kustomization restores the old source.
    ///
    /// # Errors
    /// The error of the previous steps, a commit that was not fetched in time, or a cluster that cannot be written.
    pub(super) async fn end(
        self,
        written: anyhow::Result<()>,
        commit: &str,
        deadline: Instant,
    ) -> anyhow::Result<()> {
        let fetched = match written {
            Ok(()) => self.fetch(commit, deadline).await,
            failed => failed,
        };
        self.suspend(&Value::Null).await?;
        fetched?;
        say(ProgressGlyph::Success, &format!("Kustomization/{}/{NAME} resumed", self.namespace));
        Ok(())
    }

    async fn fetch(&self, commit: &str, deadline: Instant) -> anyhow::Result<()> {
        say(
            ProgressGlyph::Waiting,
            &format!("GitRepository/{}/{NAME} fetches {commit}", self.namespace),
        );
        loop {
            let found = self.cluster.get(&self.sources, &self.namespace, NAME).await?;
            let found = found.context("the GitRepository was deleted meanwhile")?;
            if followed(&found) != followed(&self.source) {
                // This is either the first write, or a running reconciliation has restored the old source.
                let resource = &self.sources;
                let mode = DryRunMode::Write;
                self.cluster.apply_checked(resource, &self.source, MANAGER, mode, true).await?;
            } else if is_fetched(&found, commit) {
                return Ok(());
            } else if Instant::now() >= deadline {
                bail!("GitRepository/{}/{NAME} has not fetched {commit} in time", self.namespace);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    async fn suspend(&self, value: &Value) -> anyhow::Result<()> {
        let patch = json!({"spec": {"suspend": value}});
        let resource = &self.kustomizations;
        self.cluster.merge_patch(resource, &self.namespace, NAME, &patch, MANAGER).await?;
        Ok(())
    }
}

/// Whether the artifact of a source is from a commit.
fn is_fetched(source: &Object, commit: &str) -> bool {
    let revision = source.get("status").and_then(|it| it["artifact"]["revision"].as_str());
    revision.and_then(|it| it.rsplit_once(':')).is_some_and(|(_, hash)| hash == commit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fake_cluster::with_objects;

    fn source(url: &str) -> Value {
        json!({
            "apiVersion": SOURCE.0, "kind": SOURCE.1,
            "metadata": {"name": NAME, "namespace": "flux-system"},
            "spec": {"url": url, "ref": {"branch": "main"}},
        })
    }

    fn kustomization() -> Value {
        json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": NAME, "namespace": "flux-system"}, "spec": {},
        })
    }

    /// Whether bootstrapping moves a cluster with these objects to another repository.
    async fn moves(objects: Vec<Value>) -> bool {
        let (cluster, _) = with_objects(objects).await;
        let sync = [source("https://example.com/new"), kustomization()];
        let sync = sync.map(|it| Object::new(it).unwrap());
        RepositoryMove::begin(&cluster, "flux-system", &sync).await.unwrap().is_some()
    }

    #[tokio::test]
    async fn a_cluster_without_the_crds_follows_nothing_yet() {
        assert!(!moves(Vec::new()).await);
        // An interrupted installation may have only one of the two objects.
        assert!(!moves(vec![source("https://example.com/old")]).await);
        assert!(!moves(vec![kustomization()]).await);
        assert!(moves(vec![source("https://example.com/old"), kustomization()]).await);
        assert!(!moves(vec![source("https://example.com/new"), kustomization()]).await);
    }
}
