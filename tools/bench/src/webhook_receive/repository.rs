//! A GitRepository that windlass reconciles when a webhook reports a push, and the Kustomization of its only object.
//!
//! All times are taken in this process. A push begins when its webhook is sent, and ends when a watch delivers the
//! object.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use aws_lc_rs::hmac;
use e2e::git_server::StoryGitRepository;
use futures::future::try_join_all;
use serde_json::json;

use super::super::workload;
use e2e::cluster_with_operator::{ClusterWithOperator, ObjectWatch, WatchSelection, WatchedObject};

/// The name of all objects.
const NAME: &str = "pushed";

/// The namespace of the applied object.
const NAMESPACE: &str = "bench";

/// The namespace of the Flux objects.
const FLUX: &str = workload::NAMESPACE;

const INTERVAL: &str = "10m";

/// The token that the sender and the Receiver share.
const TOKEN: &str = "a-token-of-the-benchmark";

/// The time limit of each step.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a run that was requested may take to be seen.
const QUIET_PERIOD: Duration = Duration::from_secs(5);

/// The repository, its Receiver, and the Kustomization of its only object.
pub(super) struct WebhookBenchmark<'a> {
    installation: &'a ClusterWithOperator,
    repository: StoryGitRepository,
    client: reqwest::Client,
    /// The complete URL of the Receiver.
    url: String,
    /// The number of the last commit. The object has it as a value.
    round: u32,
    runs: ObjectWatch,
    /// The requests to reconcile that the repository has handled, by the times in its status.
    handled: BTreeSet<String>,
}

impl<'a> WebhookBenchmark<'a> {
    /// Creates all objects. It waits until the first commit is applied and the Receiver has its path.
    ///
    /// # Errors
    /// When that does not happen in time.
    pub(super) async fn install(installation: &'a ClusterWithOperator) -> anyhow::Result<Self> {
        let repository = installation.git().repository(NAME)?;
        let selections = [receiver(), config_map()];
        let mut watch = ObjectWatch::begin(installation.client(), &selections).await?;
        let source = WatchSelection::of("source.toolkit.fluxcd.io/v1", "GitRepository");
        let source = source.within(FLUX).named(NAME);
        let runs = ObjectWatch::begin(installation.client(), &[source]).await?;
        let client = reqwest::Client::new();
        let url = String::new();
        let handled = BTreeSet::new();
        let mut pushed = Self { installation, repository, client, url, round: 0, runs, handled };
        pushed.commit()?;
        let url = installation.git().url(&pushed.repository);
        let file = installation.git().folder().join("pushed.yaml");
        std::fs::write(&file, manifests(&url)).with_context(|| file.display().to_string())?;
        let file = file.display().to_string();
        installation.kubectl(&["apply", "--server-side", "-f", &file])?;
        let mut path = None;
        let mut is_applied = false;
        let deadline = Instant::now() + STEP_TIMEOUT;
        while path.is_none() || !is_applied {
            let seen = watch.next("the Receiver and the first commit", deadline).await?;
            is_applied |= pushed.is_current(&seen);
            let webhook_path = seen.value("/status/webhookPath").as_str();
            path = webhook_path.map(str::to_owned).filter(|_| seen.is_ready()).or(path);
        }
        let path = path.context("the Receiver has no path")?;
        pushed.url = format!("http://{}{path}", installation.address("webhooks")?);
        Ok(pushed)
    }

    /// Commits a new value of the object.
    ///
    /// # Errors
    /// When Git fails.
    pub(super) fn commit(&mut self) -> anyhow::Result<String> {
        self.round += 1;
        let object = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {NAME}, namespace: {NAMESPACE}}}\n\
             data: {{round: \"{}\"}}\n",
            self.round
        );
        self.repository.commit(&[("app/map.yaml", &object)], &format!("Round {}", self.round))
    }

    /// Opens a watch of the object.
    ///
    /// # Errors
    /// When the watch does not open.
    pub(super) async fn watch(&self) -> anyhow::Result<ObjectWatch> {
        Ok(config_map().watch_alone(self.installation.client()).await?.1)
    }

    /// Commits a new value and sends the webhook. It returns the time from the webhook until the object has the
    /// value.
    ///
    /// # Errors
    /// When the object does not get the value in time.
    pub(super) async fn push(&mut self) -> anyhow::Result<Duration> {
        let commit = self.commit()?;
        let mut watch = self.watch().await?;
        let begun = Instant::now();
        let announced = async {
            let answers = self.announce(&commit, 1).await?;
            ensure!(answers == [200], "the webhook was answered with {answers:?}");
            Ok(())
        };
        let ((), applied) = tokio::try_join!(announced, self.applied(&mut watch))?;
        Ok(applied.saturating_duration_since(begun))
    }

    /// Waits until the object has the value of the last commit, and returns when that was.
    ///
    /// # Errors
    /// When the object does not get the value in time.
    pub(super) async fn applied(&self, watch: &mut ObjectWatch) -> anyhow::Result<Instant> {
        let what = format!("the value of round {}", self.round);
        Ok(watch.until(&what, STEP_TIMEOUT, |seen| self.is_current(seen)).await?.at)
    }

    fn is_current(&self, seen: &WatchedObject) -> bool {
        seen.is("ConfigMap", NAME) && seen.value("/data/round") == self.round.to_string().as_str()
    }

    /// Sends so many webhooks about a commit at once, in the format of GitHub. It returns the HTTP statuses of the
    /// responses.
    ///
    /// # Errors
    /// A webhook gets no response.
    pub(super) async fn announce(&self, commit: &str, times: u16) -> anyhow::Result<Vec<u16>> {
        let body = json!({"ref": "refs/heads/main", "after": commit, "repository": {"name": NAME}});
        let body = body.to_string();
        let key = hmac::Key::new(hmac::HMAC_SHA256, TOKEN.as_bytes());
        let signature = hex::encode(hmac::sign(&key, body.as_bytes()));
        let send = |_| async {
            let request = self.client.post(&self.url).body(body.clone());
            let request = request.header("Content-Type", "application/json");
            let request = request.header("X-GitHub-Event", "push");
            let request = request.header("X-Hub-Signature-256", format!("sha256={signature}"));
            anyhow::Ok(request.send().await?.status().as_u16())
        };
        try_join_all((0..times).map(send)).await
    }

    /// How many requests the Git server got.
    pub(super) fn asked(&self) -> usize {
        self.installation.git().requests().len()
    }

    /// How often the repository was reconciled on request since the last call, by the handled requests in its status.
    /// It waits for runs that are under way.
    ///
    /// # Errors
    /// When the watch ends.
    pub(super) async fn fetches(&mut self) -> anyhow::Result<usize> {
        let before = self.handled.len();
        let deadline = Instant::now() + QUIET_PERIOD;
        while let Ok(seen) = self.runs.next("reconciliations", deadline).await {
            let at = seen.value("/status/lastHandledReconcileAt").as_str();
            self.handled.extend(at.map(str::to_owned));
        }
        ensure!(Instant::now() >= deadline, "the watch of the repository ended");
        Ok(self.handled.len() - before)
    }
}

fn receiver() -> WatchSelection {
    let all = WatchSelection::of("notification.toolkit.fluxcd.io/v1", "Receiver");
    all.within(FLUX).named(NAME)
}

fn config_map() -> WatchSelection {
    WatchSelection::of("v1", "ConfigMap").within(NAMESPACE).named(NAME)
}

fn manifests(url: &str) -> String {
    let receiver = format!(
        "\
apiVersion: v1
kind: Secret
metadata: {{name: {NAME}, namespace: {FLUX}}}
stringData: {{token: {TOKEN}}}
---
apiVersion: notification.toolkit.fluxcd.io/v1
kind: Receiver
metadata: {{name: {NAME}, namespace: {FLUX}}}
spec:
  type: github
  events: [ping, push]
  secretRef: {{name: {NAME}}}
  resources: [{{kind: GitRepository, name: {NAME}}}]
"
    );
    let documents = [
        workload::namespace(NAMESPACE),
        workload::source(NAME, url, INTERVAL),
        workload::kustomization(NAME, NAME, "app", INTERVAL, false),
        receiver,
    ];
    documents.join("---\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_receiver_names_the_repository_and_its_secret() {
        let text = manifests("http://127.0.0.1:1/pushed.git");
        let documents = goyaml::documents(text.as_bytes(), &goyaml::YamlLimits::default()).unwrap();
        let receiver = documents.iter().find(|it| it.value["kind"] == "Receiver").unwrap();
        assert_eq!(receiver.value["spec"]["resources"][0]["name"], NAME);
        let secret = documents.iter().find(|it| it.value["kind"] == "Secret").unwrap();
        assert_eq!(secret.value["metadata"]["name"], receiver.value["spec"]["secretRef"]["name"]);
    }
}
