//! windlass replaces the real controllers of Flux, and Flux is restored. The managed objects are not written, and both apply
//! new commits.
//!
//! Pods are simulated by kwok here, so a [`DeploymentProcessRunner`] runs the processes of Deployments like a kubelet. The story has its
//! own process, because CRDs and ClusterRoles are cluster-scoped.
//! Elsewhere: obstacles and undoing a migration (`migration.rs`).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository, newest};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::installed_windlass::deployment;
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject, WindlassProcess, create_crds};
use e2e::operator_process::{self, OperatorProcess};
use serde_json::json;
use testbed::upstream_programs::UpstreamProgram;
use tokio::process::Command;

const KUSTOMIZATIONS: usize = 50;
const RELEASES: usize = 20;

const CONTROLLERS: [(&str, UpstreamProgram); 3] = [
    ("source-controller", UpstreamProgram::SourceController),
    ("kustomize-controller", UpstreamProgram::KustomizeController),
    ("helm-controller", UpstreamProgram::HelmController),
];

/// How often a node reads which processes it has to run.
const POLL: Duration = Duration::from_millis(200);
/// How long each step may take on a busy machine.
const LONG: Duration = Duration::from_secs(240);

/// Runs a process for each Deployment with replicas.
struct DeploymentProcessRunner<'s> {
    story: &'s Story,
    flux: BTreeMap<&'static str, OperatorProcess>,
    windlass: Option<WindlassProcess>,
    artifacts: String,
}

impl<'s> DeploymentProcessRunner<'s> {
    fn new(story: &'s Story) -> Result<Self> {
        let free = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        Ok(Self { story, flux: BTreeMap::new(), windlass: None, artifacts: free })
    }

    /// Starts missing processes, and stops processes that are no longer needed.
    async fn sync(&mut self) -> Result<()> {
        for (name, oracle) in CONTROLLERS {
            let is_wanted = self.wants(&StoryObject::new("apps/v1", "Deployment", name)).await?;
            match (is_wanted, self.flux.remove(name)) {
                (true, None) => {
                    let controller = self.controller(name, oracle).await?;
                    self.flux.insert(name, controller);
                }
                (true, Some(running)) => {
                    self.flux.insert(name, running);
                }
                (false, Some(mut running)) => drop(running.stop(DEFAULT_WAIT_TIMEOUT)?),
                (false, None) => {}
            }
        }
        let is_wanted = self.wants(&deployment(&self.story.namespace)).await?;
        match (is_wanted, self.windlass.take()) {
            (true, None) => {
                self.windlass = Some(self.story.installed(&self.story.namespace).await?);
            }
            (true, running) => self.windlass = running,
            (false, Some(mut running)) => drop(running.operator.stop(DEFAULT_WAIT_TIMEOUT)?),
            (false, None) => {}
        }
        Ok(())
    }

    async fn wants(&self, target: &StoryObject) -> Result<bool> {
        let found = self.story.read(target).await?;
        Ok(found.is_some_and(|it| it.data["spec"]["replicas"].as_i64().unwrap_or(1) > 0))
    }

    async fn controller(&self, name: &str, oracle: UpstreamProgram) -> Result<OperatorProcess> {
        let listen = format!("--storage-addr={}", self.artifacts);
        let announce = format!("--storage-adv-addr={}", self.artifacts);
        let storage = ["--storage-path={folder}", listen.as_str(), announce.as_str()];
        let is_of_sources = name == "source-controller";
        self.story.flux_controller(oracle, if is_of_sources { &storage[..] } else { &[] }).await
    }

    /// Runs `windlass migrate` while the node keeps working.
    async fn migrate(&mut self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(operator_process::binary()?);
        command.arg("migrate").args(arguments).args(["-n", &self.story.namespace]);
        command.arg(format!("--kubeconfig={}", self.story.kubeconfig().display()));
        let mut output = std::pin::pin!(command.output());
        let output = loop {
            tokio::select! {
                output = &mut output => break output?,
                () = tokio::time::sleep(POLL) => self.sync().await?,
            }
        };
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        ensure!(output.status.success(), "windlass migrate {arguments:?}: {text}");
        Ok(text)
    }

    /// Waits for a state while the node keeps working.
    async fn until(&mut self, what: &str, is_so: impl AsyncFn() -> Result<bool>) -> Result<()> {
        let deadline = Instant::now() + LONG;
        loop {
            self.sync().await?;
            if is_so().await? {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let logs: Vec<String> = self.flux.values().map(|it| it.tail(5)).collect();
                let pending = pending(self.story).await?;
                bail!("{what} took longer than {LONG:?}: {pending}\n{}", logs.join("\n"));
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

/// The messages of the first objects that are not ready.
async fn pending(story: &Story) -> Result<String> {
    let all = (0..KUSTOMIZATIONS).map(|number| StoryObject::kustomization(&map(number)));
    let all = all.chain((0..RELEASES).map(|number| StoryObject::helm_release(&web(number))));
    let mut said = Vec::new();
    for target in
        all.chain([StoryObject::git_repository("app"), StoryObject::kustomization("flux-system")])
    {
        let ready = condition(&story.expect(&target).await?, "Ready").clone();
        if ready["status"] != "True" {
            said.push(format!("{target}: {}", ready["message"]));
        }
    }
    Ok(format!("{} of them, such as {:?}", said.len(), said.iter().take(5).collect::<Vec<_>>()))
}

fn map(number: usize) -> String {
    format!("map-{number}")
}

fn web(number: usize) -> String {
    format!("web-{number}")
}

/// The manifests of Flux in a repository, as `flux bootstrap` writes them.
fn components(namespace: &str) -> String {
    let mut text = String::new();
    for (name, _) in CONTROLLERS {
        let _ = write!(
            text,
            "
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}, namespace: {namespace}, labels: {{app.kubernetes.io/part-of: flux}}}}
spec:
  replicas: 1
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec: {{containers: [{{name: manager, image: '{name}:v1'}}]}}
"
        );
    }
    text.push_str(&format!(
        "---
apiVersion: v1
kind: Service
metadata: {{name: source-controller, namespace: {namespace}, labels: {{app.kubernetes.io/part-of: flux}}}}
spec: {{selector: {{app: source-controller}}, ports: [{{name: http, port: 80}}]}}
"
    ));
    text
}

/// The UIDs and resourceVersions of all managed objects, and the revisions of all releases.
async fn stand(story: &Story) -> Result<Vec<(String, Option<String>, Option<String>)>> {
    let maps = (0..KUSTOMIZATIONS).map(map);
    let of_releases = (0..RELEASES).map(|number| format!("{}-config", web(number)));
    let mut all = Vec::new();
    for name in maps.chain(of_releases) {
        let meta = story.expect(&StoryObject::config_map(&name)).await?.metadata;
        all.push((name, meta.uid, meta.resource_version));
    }
    for number in 0..RELEASES {
        let release = story.expect(&StoryObject::helm_release(&web(number))).await?;
        all.push((web(number), Some(newest(&release)["version"].to_string()), None));
    }
    Ok(all)
}

/// Whether all Kustomizations and releases are ready and have a value.
async fn have(story: &Story, value: &str, chart: &str) -> Result<bool> {
    for number in 0..KUSTOMIZATIONS {
        let found = story.read(&StoryObject::config_map(&map(number))).await?;
        let owner = story.expect(&StoryObject::kustomization(&map(number))).await?;
        let is_ready = condition(&owner, "Ready")["status"] == "True";
        if !is_ready || found.is_none_or(|it| it.data["data"]["value"] != value) {
            return Ok(false);
        }
    }
    for number in 0..RELEASES {
        let name = format!("{}-config", web(number));
        let found = story.read(&StoryObject::config_map(&name)).await?;
        let owner = story.expect(&StoryObject::helm_release(&web(number))).await?;
        let is_ready = condition(&owner, "Ready")["status"] == "True";
        if !is_ready || found.is_none_or(|it| it.data["data"]["chart"] != chart) {
            return Ok(false);
        }
    }
    Ok(true)
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(
    not(feature = "thorough"),
    ignore = "builds three controllers of Flux: cargo xtask test --thorough"
)]
async fn the_real_flux_hands_over_and_takes_back_without_a_write() -> Result<()> {
    let story = Story::begin("migration-real").await?;
    create_crds(&story.bed.client().await?).await?;
    let mut node = DeploymentProcessRunner::new(&story)?;
    let files = |value: &str| -> Vec<(String, String)> {
        let maps = (0..KUSTOMIZATIONS)
            .map(|number| (format!("k{number}/map.yaml"), config_map(&map(number), value)));
        let path = "clusters/one/flux-system/gotk-components.yaml".to_owned();
        maps.chain([(path, components(&story.namespace))]).collect()
    };
    let first = files("1");
    let second = files("2");
    let third = files("3");
    let named = |files: &'static [(String, String)]| -> Vec<(&'static str, String)> {
        files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect()
    };
    let [first, second, third] = [first, second, third].map(|it| named(it.leak()));
    story.apply(&components(&story.namespace)).await?;
    node.sync().await?;
    let upstream = story.follow("app", &first).await?;
    story.kustomization("flux-system", "app", json!({"path": "./clusters/one"})).await?;
    for number in 0..KUSTOMIZATIONS {
        // In a real cluster, both use the same Service for artifacts. Here they have different addresses, so some fetches of
        // Flux ask windlass, which has stopped.
        let spec = json!({"path": format!("./k{number}"), "retryInterval": "5s"});
        story.kustomization(&map(number), "app", spec).await?;
    }
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    for number in 0..RELEASES {
        charts.release(&web(number), json!({})).await?;
    }
    node.until("Flux applying all", async || have(&story, "1", "1.0.0").await).await?;

    let before = stand(&story).await?;
    let output = node.migrate(&["from-flux", "--observe=20s"]).await?;
    ensure!(output.contains("nothing was written to what is managed"), "{output}");
    ensure!(output.contains("gotk-components.yaml"), "{output}");
    ensure!(node.flux.is_empty() && node.windlass.is_some(), "Flux runs still: {output}");
    node.until("windlass reconciling all", async || have(&story, "1", "1.0.0").await).await?;
    ensure!(stand(&story).await? == before, "windlass wrote to what Flux managed");
    upstream.push(&second).await?;
    charts.publish("1.1.0", &[("templates/a.yaml", CONFIG)]).await?;
    node.until("windlass applying a commit", async || have(&story, "2", "1.1.0").await).await?;

    let before = stand(&story).await?;
    let output = node.migrate(&["to-flux"]).await?;
    ensure!(output.contains("Flux has taken over"), "{output}");
    node.until("Flux running", async || Ok(true)).await?;
    ensure!(node.flux.len() == 3 && node.windlass.is_none(), "windlass runs still: {output}");
    // Flux reconciles every object once when it starts.
    tokio::time::sleep(Duration::from_secs(30)).await;
    node.until("Flux reconciling all", async || have(&story, "2", "1.1.0").await).await?;
    ensure!(stand(&story).await? == before, "Flux wrote to what windlass managed");
    upstream.push(&third).await?;
    charts.publish("1.2.0", &[("templates/a.yaml", CONFIG)]).await?;
    node.until("Flux applying a commit", async || have(&story, "3", "1.2.0").await).await
}
