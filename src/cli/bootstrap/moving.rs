//! A cluster that followed another repository or branch before: its Kustomization is suspended until the new one is fetched.
//!
//! Without that, windlass would restore the source that the old commit has, while the new one is fetched already; then each
//! commit would have the other one's repository followed, for ever. Differs(flux): that corrects drift at its interval only.

use anyhow::{Context as _, bail};
use objects::{Gvk, Object};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::layout::NAME;
use crate::cli::connection::{Mark, say};
use crate::cli::install::{MANAGER, POLL};
use crate::cluster::Cluster;
use crate::cluster::discovery::Resource;
use crate::cluster::objects::Mode;

/// What was suspended.
pub(super) struct Moving<'c> {
    cluster: &'c Cluster,
    namespace: String,
    /// The source as it is to be.
    source: Object,
    sources: Resource,
    kustomizations: Resource,
}

/// What a source follows.
fn followed(source: &Object) -> Option<(&Value, &Value)> {
    let spec = source.get("spec")?;
    Some((&spec["url"], &spec["ref"]))
}

impl<'c> Moving<'c> {
    /// Suspends the Kustomization if objects to be applied have its source follow something else.
    ///
    /// # Errors
    /// The cluster cannot be read or written.
    pub(super) async fn begin(
        cluster: &'c Cluster,
        namespace: &str,
        sync: &[Object],
    ) -> anyhow::Result<Option<Self>> {
        let Some(source) = sync.iter().find(|it| it.kind() == "GitRepository") else {
            return Ok(None);
        };
        let sources = cluster.resource(&source.gvk()).await?;
        let Some(before) = cluster.get(&sources, namespace, NAME).await? else { return Ok(None) };
        if followed(&before) == followed(source) {
            return Ok(None);
        }
        let kind = Gvk::new("kustomize.toolkit.fluxcd.io/v1", "Kustomization");
        let kustomizations = cluster.resource(&kind).await?;
        let found = cluster.get(&kustomizations, namespace, NAME).await?;
        // One that a user suspended stays so.
        let is_active =
            found.is_some_and(|it| it.get("spec").is_some_and(|it| it["suspend"] != true));
        if !is_active {
            return Ok(None);
        }
        let (namespace, source) = (namespace.to_owned(), source.clone());
        let moving = Self { cluster, namespace, source, sources, kustomizations };
        moving.suspend(&json!(true)).await?;
        say(Mark::Action, &format!("Kustomization/{}/{NAME} suspended", moving.namespace));
        Ok(Some(moving))
    }

    /// Has the source follow the new repository if all else was written, and resumes the Kustomization when a commit of it is
    /// fetched. After an error the Kustomization restores what was followed before.
    ///
    /// # Errors
    /// What failed before, or the commit was not fetched in time, or the cluster cannot be written.
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
        say(Mark::Success, &format!("Kustomization/{}/{NAME} resumed", self.namespace));
        Ok(())
    }

    async fn fetch(&self, commit: &str, deadline: Instant) -> anyhow::Result<()> {
        say(Mark::Waiting, &format!("GitRepository/{}/{NAME} fetches {commit}", self.namespace));
        loop {
            let found = self.cluster.get(&self.sources, &self.namespace, NAME).await?;
            let found = found.context("the GitRepository was deleted meanwhile")?;
            if followed(&found) != followed(&self.source) {
                // For the first time, or because a run that was under way restored the former one.
                let (resource, mode) = (&self.sources, Mode::Write);
                self.cluster.apply_checked(resource, &self.source, MANAGER, mode, true).await?;
            } else if is_fetched(&found, commit) {
                return Ok(());
            } else if Instant::now() >= deadline {
                bail!("GitRepository/{}/{NAME} has not fetched {commit} in time", self.namespace);
            }
            tokio::time::sleep(POLL).await;
        }
    }

    async fn suspend(&self, value: &Value) -> anyhow::Result<()> {
        let patch = json!({"spec": {"suspend": value}});
        let place = (self.namespace.as_str(), NAME);
        self.cluster.merge_patch(&self.kustomizations, place, &patch, MANAGER).await?;
        Ok(())
    }
}

/// Whether the artifact of a source is a commit.
fn is_fetched(source: &Object, commit: &str) -> bool {
    let revision = source.get("status").and_then(|it| it["artifact"]["revision"].as_str());
    revision.and_then(|it| it.rsplit_once(':')).is_some_and(|(_, hash)| hash == commit)
}
