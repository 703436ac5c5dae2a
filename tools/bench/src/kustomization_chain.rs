//! A chain of Kustomizations of one GitRepository, each of which depends on the previous one.
//!
//! This module creates the chain, commits changes, and edits and deletes objects by hand. `super::change_reaction_time` and
//! `super::flux_comparison` measure with it, and `super::commit_arrivals` watches commits arrive.
//!
//! All times are taken in this process when a watch delivers an object. An edit begins just before its request is
//! sent. So the times include the API server's share, and are an upper limit of the operator's own times.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use e2e::git_server::StoryGitRepository;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use super::commit_arrivals::CommitArrivals;
use super::workload;
use e2e::cluster_with_operator::{ClusterWithOperator, ObjectWatch, WatchSelection, WatchedObject};

/// How many Kustomizations the chain has by default.
pub(super) const CHAIN_KUSTOMIZATION_COUNT: usize = 10;

const NAMESPACE: &str = "bench";

/// The chain on an installation.
pub(super) struct KustomizationChain<'a> {
    installation: &'a ClusterWithOperator,
    repository: StoryGitRepository,
    /// The number of the last commit, which the objects have as a value.
    round: u32,
    /// The number of Kustomizations.
    length: usize,
    /// The interval of the Kustomizations and of their source.
    interval: &'static str,
    /// The time limit of each step.
    limit: Duration,
}

impl<'a> KustomizationChain<'a> {
    /// A chain that is not on the cluster yet. `name` is the name of its new Git repository.
    ///
    /// # Errors
    /// When the repository cannot be created.
    pub(super) fn new(
        installation: &'a ClusterWithOperator,
        name: &str,
        interval: &'static str,
        limit: Duration,
    ) -> anyhow::Result<Self> {
        let repository = installation.git().repository(name)?;
        let length = CHAIN_KUSTOMIZATION_COUNT;
        Ok(Self { installation, repository, round: 0, length, interval, limit })
    }

    /// The same chain with so many Kustomizations.
    pub(super) fn of_length(self, length: usize) -> Self {
        Self { length, ..self }
    }

    /// Creates the chain, and then the source that it waits for.
    ///
    /// # Errors
    /// When not all Kustomizations are Ready in time.
    pub(super) async fn install(&mut self) -> anyhow::Result<CommitArrivals> {
        let commit = self.commit()?;
        self.apply("namespace.yaml", &workload::namespace(NAMESPACE))?;
        self.apply("chain.yaml", &chain(self.length, self.interval))?;
        let mut watch = self.watch_chain().await?;
        // Each Kustomization has reported that its source is missing. From here on only a wake-up makes it run in
        // time.
        let mut ready_names = BTreeSet::new();
        while ready_names.len() < self.length {
            let seen =
                watch.next("the chain to wait for its source", Instant::now() + self.limit).await?;
            if !seen.message().is_empty() {
                ready_names.insert(seen.name);
            }
        }
        let url = self.installation.git().url(&self.repository);
        self.apply("source.yaml", &workload::source("chain", &url, self.interval))?;
        CommitArrivals::of(&commit, self.length, &mut watch, self.limit).await
    }

    /// Deletes the chain and its source, and waits until they are gone.
    ///
    /// # Errors
    /// When an object is not deleted.
    pub(super) fn remove(&self) -> anyhow::Result<()> {
        for file in ["chain.yaml", "source.yaml"] {
            let file = self.installation.git().folder().join(file).display().to_string();
            self.installation.kubectl(&["delete", "--wait", "-f", &file])?;
        }
        Ok(())
    }

    /// Commits a change of every object, and requests a reconciliation of the source.
    ///
    /// # Errors
    /// When the change is not applied in time.
    pub(super) async fn push(&mut self) -> anyhow::Result<(Instant, CommitArrivals)> {
        let mut watch = self.watch_chain().await?;
        watch.forget();
        let commit = self.commit()?;
        let annotations = json!({"reconcile.fluxcd.io/requestedAt": commit});
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        let api = source().api(self.installation.client());
        let begun = Instant::now();
        api.patch("chain", &PatchParams::default(), &patch).await?;
        Ok((begun, CommitArrivals::of(&commit, self.length, &mut watch, self.limit).await?))
    }

    /// Edits the object of one Kustomization, and waits until windlass has corrected it.
    ///
    /// # Errors
    /// When the object is not corrected in time.
    pub(super) async fn edit(&self, number: usize) -> anyhow::Result<Duration> {
        let name = hop(number % self.length + 1);
        let (api, mut watch) = config_map(&name).watch_alone(self.installation.client()).await?;
        let patch = Patch::Merge(json!({"data": {"round": "edited"}}));
        let begun = Instant::now();
        api.patch(&name, &PatchParams::default(), &patch).await?;
        let is_edited = |seen: &WatchedObject| seen.exists && seen.value("/data/round") == "edited";
        watch.until(&format!("the edit of {name}"), self.limit, is_edited).await?;
        let round = self.round.to_string();
        let is_back =
            |seen: &WatchedObject| seen.exists && seen.value("/data/round") == round.as_str();
        let back = watch.until(&format!("{name} to be put back"), self.limit, is_back).await?;
        Ok(back.at.saturating_duration_since(begun))
    }

    /// Deletes the object of one Kustomization, and waits until it exists again.
    ///
    /// # Errors
    /// When the object is not created in time.
    pub(super) async fn delete(&self, number: usize) -> anyhow::Result<Duration> {
        let name = hop(number % self.length + 1);
        let (api, mut watch) = config_map(&name).watch_alone(self.installation.client()).await?;
        let begun = Instant::now();
        api.delete(&name, &DeleteParams::default()).await?;
        let gone =
            watch.until(&format!("the end of {name}"), self.limit, |seen| !seen.exists).await?;
        let is_back = |seen: &WatchedObject| seen.exists && seen.uid() != gone.uid();
        let back = watch.until(&format!("{name} to be created again"), self.limit, is_back).await?;
        Ok(back.at.saturating_duration_since(begun))
    }

    async fn watch_chain(&self) -> anyhow::Result<ObjectWatch> {
        let chain = WatchSelection::of("kustomize.toolkit.fluxcd.io/v1", "Kustomization");
        let selections = [source(), chain.within("flux-system")];
        ObjectWatch::begin(self.installation.client(), &selections).await
    }

    fn commit(&mut self) -> anyhow::Result<String> {
        self.round += 1;
        let files: Vec<(String, String)> = (1..=self.length)
            .map(|number| (format!("{0}/{0}.yaml", hop(number)), self.object(number)))
            .collect();
        let files: Vec<(&str, &str)> =
            files.iter().map(|(path, text)| (&**path, &**text)).collect();
        self.repository.commit(&files, &format!("Round {}", self.round))
    }

    fn object(&self, number: usize) -> String {
        let name = hop(number);
        let round = self.round;
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: {NAMESPACE}}}\n\
             data: {{round: \"{round}\"}}\n"
        )
    }

    fn apply(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let file = self.installation.git().folder().join(name);
        std::fs::write(&file, text).with_context(|| file.display().to_string())?;
        let file = file.display().to_string();
        self.installation.kubectl(&["apply", "--server-side", "-f", &file]).map(drop)
    }
}

fn source() -> WatchSelection {
    WatchSelection::of("source.toolkit.fluxcd.io/v1", "GitRepository").within("flux-system")
}

fn config_map(name: &str) -> WatchSelection {
    WatchSelection::of("v1", "ConfigMap").within(NAMESPACE).named(name)
}

fn hop(number: usize) -> String {
    format!("hop-{number:03}")
}

/// The manifests of the Kustomizations.
fn chain(length: usize, interval: &str) -> String {
    let mut text = String::new();
    for number in 1..=length {
        let name = hop(number);
        let depends =
            if number == 1 { String::new() } else { format!("{{name: {}}}", hop(number - 1)) };
        text.push_str(&format!(
            "---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {{name: {name}, namespace: flux-system}}
spec:
  dependsOn: [{depends}]
  sourceRef: {{kind: GitRepository, name: chain}}
  path: ./{name}
  prune: true
  interval: {interval}
  retryInterval: {interval}
"
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_is_a_chain() {
        let text = chain(12, "10m");
        let documents = goyaml::documents(text.as_bytes(), &goyaml::YamlLimits::default()).unwrap();
        assert_eq!(documents.len(), 12);
        assert!(text.contains("dependsOn: [{name: hop-011}]"));
        assert!(!text.contains("dependsOn: [{name: hop-012}]"));
    }
}
