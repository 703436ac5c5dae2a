//! Runs windlass for stories, with its own storage and loopback addresses.
//!
//! Here: flags, waiting until windlass is ready, the one operator that stories share.
//! Elsewhere: the process (`crate::operator_process`), the objects that it reconciles (`super::flux`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions;
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

use super::{Story, TestBed, await_until};
use crate::control_plane::free_ports;
use crate::operator_process::{self, OperatorProcess};
use crate::process_usage::cpu_seconds;

/// How long windlass may take to become ready on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(120);

/// A running windlass and the addresses at which it listens.
#[derive(Debug)]
pub struct WindlassProcess {
    /// The process. Stories kill it, stop it, start it again, and read its log.
    pub operator: OperatorProcess,
    health: String,
    artifacts: String,
    metrics: String,
    webhooks: String,
}

impl WindlassProcess {
    /// Starts windlass on a bed with additional flags, and waits until it is ready. Its addresses stay the same after a
    /// restart.
    pub async fn start(bed: &TestBed, more: &[&str]) -> Result<Self> {
        Self::start_with(bed, more, &[]).await
    }

    /// Starts windlass like [`WindlassProcess::start`], with additional environment variables.
    pub async fn start_with(
        bed: &TestBed,
        more: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<Self> {
        create_crds(&bed.client().await?).await?;
        for _ in 0..3 {
            let [storage, health, metrics, webhooks] = free_ports()?;
            let mut arguments = vec![
                "serve".to_owned(),
                format!("--storage-addr=127.0.0.1:{storage}"),
                format!("--health-addr=127.0.0.1:{health}"),
                format!("--metrics-addr=127.0.0.1:{metrics}"),
                format!("--receiverAddr=127.0.0.1:{webhooks}"),
                "--log-level=debug".to_owned(),
            ];
            arguments.extend(more.iter().map(|&flag| flag.to_owned()));
            // The servers of stories are on this machine.
            if !more.iter().any(|flag| flag.starts_with("--allow-loopback-sources")) {
                arguments.push("--allow-loopback-sources".to_owned());
            }
            // A story that uses a proxy passes its own kubeconfig.
            if !more.iter().any(|flag| flag.starts_with("--kubeconfig")) {
                arguments.push(format!("--kubeconfig={}", bed.operator_kubeconfig().display()));
            }
            if !more.iter().any(|flag| flag.starts_with("--storage-path")) {
                arguments.push("--storage-path={folder}/storage".to_owned());
            }
            let operator =
                OperatorProcess::start_with(operator_process::binary()?, arguments, environment)?;
            let health = format!("http://127.0.0.1:{health}/readyz");
            let artifacts = format!("http://127.0.0.1:{storage}/");
            let metrics = format!("http://127.0.0.1:{metrics}/metrics");
            let webhooks = format!("http://127.0.0.1:{webhooks}");
            let mut windlass = Self { operator, health, artifacts, metrics, webhooks };
            match windlass.await_ready().await {
                Ok(()) => return Ok(windlass),
                // Another program took a port between the search for a free one and the start.
                Err(_) if windlass.operator.tail(20).contains("cannot listen") => {}
                Err(error) => return Err(error),
            }
        }
        anyhow::bail!("windlass found no free port three times")
    }

    /// Starts a windlass that watches only the namespace of one story.
    pub async fn start_for(story: &Story, more: &[&str]) -> Result<Self> {
        Self::start_for_with(story, more, &[]).await
    }

    /// Starts windlass like [`WindlassProcess::start_for`], with additional environment variables.
    pub async fn start_for_with(
        story: &Story,
        more: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<Self> {
        HAS_OWN.store(true, Ordering::Relaxed);
        ensure!(!SHARED.initialized(), TWO);
        let own = format!("--runtime-namespace={}", story.namespace);
        let mut flags = vec!["--watch-all-namespaces=false", &own];
        flags.extend(more);
        Self::start_with(story.bed, &flags, environment).await
    }

    /// Starts windlass again after it ended, and waits until it is ready.
    pub async fn resume(&mut self) -> Result<()> {
        self.operator.resume()?;
        self.await_ready().await
    }

    /// The folder of windlass's artifacts.
    pub fn storage(&self) -> PathBuf {
        self.operator.folder().join("storage")
    }

    /// The address at which windlass serves artifacts and receives events.
    pub fn artifacts(&self) -> &str {
        &self.artifacts
    }

    /// The address at which windlass receives webhooks, without a path.
    pub fn webhooks(&self) -> &str {
        &self.webhooks
    }

    /// The current metrics of windlass.
    pub async fn metrics(&self) -> Result<String> {
        Ok(reqwest::get(&self.metrics).await?.error_for_status()?.text().await?)
    }

    /// The answer of windlass to a readiness probe: status and text.
    pub async fn readiness(&self) -> Result<(u16, String)> {
        let answer = reqwest::get(&self.health).await?;
        Ok((answer.status().as_u16(), answer.text().await?))
    }

    /// How long windlass delays the answer to a liveness probe. It is the time until the answer, or the processor time that
    /// windlass used meanwhile if that is less. So other processes of the machine do not count.
    pub async fn liveness_delay(&self) -> Result<Duration> {
        let address = self.health.replace("/readyz", "/healthz");
        let id = self.operator.id().context("windlass has ended")?;
        let asked = Instant::now();
        let before = cpu_seconds(&[id])?;
        reqwest::get(address).await?.error_for_status()?;
        let used = Duration::from_secs_f64((cpu_seconds(&[id])? - before).max(0.0));
        Ok(asked.elapsed().min(used))
    }

    async fn await_ready(&mut self) -> Result<()> {
        let health = &self.health;
        let operator = &mut self.operator;
        let outcome = await_until("windlass to be ready", START_LIMIT, async || {
            if !operator.is_running()? {
                return Ok(Some(false));
            }
            let answer = reqwest::get(health).await?;
            Ok(answer.status().is_success().then_some(true))
        })
        .await;
        let log = || format!("the operator's log ends:\n{}", self.operator.tail(30));
        ensure!(outcome.with_context(log)?, "windlass ended during the start; {}", log());
        Ok(())
    }
}

/// The names and generations of the CRDs after this process created them. Stories start windlass often, and each CRD causes
/// much work for the API server.
static CREATED: Mutex<Option<BTreeMap<String, i64>>> = Mutex::const_new(None);

/// Creates the CustomResourceDefinitions unless they are still as this process created them. Waits until the API server serves
/// them.
///
/// # Errors
/// The API server refuses them, or does not serve them in time.
pub async fn create_crds(client: &Client) -> Result<()> {
    let mut created = CREATED.lock().await;
    let definitions = crds::all();
    let api = Api::<apiextensions::CustomResourceDefinition>::all(client.clone());
    let names = definitions.iter().filter_map(|(_, crd)| crd.metadata.name.as_deref());
    if let Some(known) = &*created
        && generations(&api, &names.collect()).await? == *known
    {
        return Ok(());
    }
    let creations = definitions.iter().map(|(_, crd)| create_crd(client, &api, crd));
    let generations = try_join_all(creations).await;
    let generations = generations.context("cannot create the CustomResourceDefinitions")?;
    *created = Some(generations.into_iter().collect());
    Ok(())
}

/// The generations of the CRDs that exist and are not being deleted.
async fn generations(
    api: &Api<apiextensions::CustomResourceDefinition>,
    names: &BTreeSet<&str>,
) -> Result<BTreeMap<String, i64>> {
    let listed = api.list_metadata(&ListParams::default()).await?;
    let staying = listed.items.into_iter().filter(|it| it.metadata.deletion_timestamp.is_none());
    let known = staying.filter_map(|it| Some((it.metadata.name?, it.metadata.generation?)));
    Ok(known.filter(|(name, _)| names.contains(name.as_str())).collect())
}

/// Creates a CRD, and waits until the API server serves all its versions. Returns its name and generation.
async fn create_crd(
    client: &Client,
    api: &Api<apiextensions::CustomResourceDefinition>,
    crd: &apiextensions::CustomResourceDefinition,
) -> Result<(String, i64)> {
    let name = crd.metadata.name.clone().unwrap_or_default();
    let params = PatchParams::apply("story").force();
    let patched = api.patch(&name, &params, &Patch::Apply(crd)).await?;
    for version in crd.spec.versions.iter().filter(|it| it.served) {
        let version = format!("{}/{}", crd.spec.group, version.name);
        await_until(&format!("{name} to be served in {version}"), START_LIMIT, async || {
            // The status of the CRD also says this, but the CRD itself is large.
            let served = client.list_api_group_resources(&version).await?.resources;
            Ok(served.iter().any(|it| it.name == crd.spec.names.plural).then_some(()))
        })
        .await?;
    }
    Ok((name, patched.metadata.generation.unwrap_or_default()))
}

static SHARED: OnceCell<Mutex<WindlassProcess>> = OnceCell::const_new();

/// Whether a story of this test run has its own windlass.
static HAS_OWN: AtomicBool = AtomicBool::new(false);

const TWO: &str = "a story with a windlass of its own is in a process whose stories share one, which would reconcile the \
    same objects; run each module of stories in a process of its own";

/// The windlass that the stories of a test run share. It watches every namespace.
///
/// Intervals and retries are ten minutes long, in windlass's dependency checks and in the objects of stories. So nothing in a
/// story happens because of an interval.
async fn shared() -> Result<&'static Mutex<WindlassProcess>> {
    ensure!(!HAS_OWN.load(Ordering::Relaxed), TWO);
    SHARED
        .get_or_try_init(async || {
            let flags = ["--requeue-dependency=10m", "--concurrent-source=4"];
            WindlassProcess::start(TestBed::shared().await?, &flags).await.map(Mutex::new)
        })
        .await
}

impl Story {
    /// Begins a story like [`Story::begin`], with the shared windlass running in every namespace.
    pub async fn with_windlass(name: &str) -> Result<Self> {
        shared().await?;
        Self::begin(name).await
    }

    /// The operator that all stories of [`Story::with_windlass`] share. A story may read its state, but must not change it.
    pub async fn windlass(&self) -> Result<MutexGuard<'static, WindlassProcess>> {
        Ok(shared().await?.lock().await)
    }
}
