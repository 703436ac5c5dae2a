//! A repository that is reconciled when webhooks report a push, and the Kustomization of its only object.
//!
//! Moments are taken in this process: a push begins when its webhook is sent, and ends when a watch delivers the object.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use aws_lc_rs::hmac;
use e2e::git_server::StoryGitRepository;
use futures::future::try_join_all;
use serde_json::json;

use super::super::workload;
use e2e::installation::{ObjectWatch, TestInstallation, WatchSelection, WatchedObject};

/// The name of everything.
const NAME: &str = "pushed";

/// Where the object is.
const NAMESPACE: &str = "bench";

/// Where the Flux objects are.
const FLUX: &str = workload::NAMESPACE;

const INTERVAL: &str = "10m";

/// What sender and Receiver both know.
const TOKEN: &str = "a-token-of-the-benchmark";

/// How long one thing may take.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// What was asked for and is not done yet is given this time.
const QUIET_PERIOD: Duration = Duration::from_secs(5);

/// A GitRepository that is reconciled when a webhook reports a push, and the Kustomization of its only object.
pub(super) struct WebhookBenchmark<'a> {
    installation: &'a TestInstallation,
    repository: StoryGitRepository,
    client: reqwest::Client,
    /// The whole URL of the Receiver.
    url: String,
    /// Counts the commits; the object carries the number.
    round: u32,
    runs: ObjectWatch,
    /// The requests to reconcile that the repository has handled, by their times.
    handled: BTreeSet<String>,
}

impl<'a> WebhookBenchmark<'a> {
    /// Makes all of it, and waits until the first commit is applied and the Receiver has its path.
    ///
    /// # Errors
    /// When that does not happen.
    pub(super) async fn install(installation: &'a TestInstallation) -> anyhow::Result<Self> {
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

    /// Commits another value of the object.
    ///
    /// # Errors
    /// When Git refuses it.
    pub(super) fn commit(&mut self) -> anyhow::Result<String> {
        self.round += 1;
        let object = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {NAME}, namespace: {NAMESPACE}}}\n\
             data: {{round: \"{}\"}}\n",
            self.round
        );
        self.repository.commit(&[("app/map.yaml", &object)], &format!("Round {}", self.round))
    }

    /// A watch that sees the object change.
    ///
    /// # Errors
    /// When it does not open.
    pub(super) async fn watch(&self) -> anyhow::Result<ObjectWatch> {
        Ok(config_map().watch_alone(self.installation.client()).await?.1)
    }

    /// Commits, sends the webhook, and returns how long it took from there until the object had the value.
    ///
    /// # Errors
    /// When it has not in time.
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

    /// When the object has the value of the last commit.
    ///
    /// # Errors
    /// When it has not in time.
    pub(super) async fn applied(&self, watch: &mut ObjectWatch) -> anyhow::Result<Instant> {
        let what = format!("the value of round {}", self.round);
        Ok(watch.until(&what, STEP_TIMEOUT, |seen| self.is_current(seen)).await?.at)
    }

    fn is_current(&self, seen: &WatchedObject) -> bool {
        seen.is("ConfigMap", NAME) && seen.value("/data/round") == self.round.to_string().as_str()
    }

    /// Sends so many webhooks about a commit at once, as GitHub does; returns the statuses of the answers.
    ///
    /// # Errors
    /// One is not answered at all.
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

    /// How often the repository was reconciled on request since this was asked last; each request that is handled is noted in
    /// its status. What is under way is awaited.
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
