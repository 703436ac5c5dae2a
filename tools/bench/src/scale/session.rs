//! Measures a large cluster step by step: windlass, its objects, and the samplers of its costs.
//!
//! This module prepares the cluster and performs the steps. `fail_over` ends the leader. `super::tenant_workload` makes the
//! objects, `super::operator_activity` decides when windlass is idle, and `super::step_costs` has the costs of a step.
//! `crate::test_bed` starts everything.
//!
//! No message or reason of an object is read. An object has a version if its status or its data say so.

pub(crate) mod fail_over;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use e2e::cluster_with_operator::{
    BuildProfile, ObjectWatch, OperatorsToStart, WatchSelection, WatchedObject,
};
use e2e::control_plane::OPERATOR;
use e2e::git_server::StoryGitRepository;
use e2e::process_usage;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::runtime::Runtime;

use super::operator_activity::{self, OperatorActivity, REPORT_INTERVAL};
use super::step_costs::StepCost;
use super::tenant_workload::{
    self, SHARED_VARIABLES, SOURCE, TenantWorkload, WorkloadObjectVersions, chart_version,
    object_name,
};
use crate::audit_log::AuditLog;
use crate::audit_log::audit_log_tail::{AuditLogTail, CountedObject};
use crate::helm_releases::has_released;
use crate::memory_samples::MemorySampler;
use crate::metrics_page::MetricsEndpoint;
use crate::test_bed::{self, BenchTestbed};
use crate::time_samples::TimeSamples;
use crate::workload;
use testbed::progress::{note, spell, step};

/// After how long without progress a step fails.
const STALL_LIMIT: Duration = Duration::from_secs(300);

/// The time limit for one object.
const OBJECT_TIMEOUT: Duration = Duration::from_secs(300);

/// The pause after a step, in which the allocator and the caches settle.
const REST_PERIOD: Duration = Duration::from_secs(5);

/// How many names an error lists.
const MAX_SHOWN_NAMES: usize = 5;

/// When the awaited result of a step was reached, and when windlass was idle.
#[derive(Debug, Clone, Default)]
pub(crate) struct StepOutcome {
    done: Duration,
    quiet: Option<Duration>,
    note: String,
}

impl StepOutcome {
    /// The outcome of a step that only waits.
    pub(crate) fn idle(time: Duration) -> Self {
        std::thread::sleep(time);
        Self { done: time, quiet: None, note: String::new() }
    }
}

/// The measured cluster. All started programs end when it is dropped or this process ends.
pub(crate) struct ScaleSession<'a> {
    // The samplers are dropped first, because they read from processes that the test bed ends.
    memory: MemorySampler,
    audit: AuditLogTail,
    watch: ObjectWatch,
    metrics: MetricsEndpoint,
    runtime: &'a Runtime,
    workload: TenantWorkload,
    repository: StoryGitRepository,
    /// The version of all objects. Each commit increases it.
    round: u32,
    bed: BenchTestbed,
}

impl<'a> ScaleSession<'a> {
    /// Starts everything. It creates what the Kustomizations and HelmReleases need: namespaces, the source with its
    /// artifact, and the chart. `flags` are those of `windlass serve`.
    ///
    /// # Errors
    /// The step that failed.
    pub(crate) fn begin(
        runtime: &'a Runtime,
        workload: TenantWorkload,
        flags: &[String],
    ) -> anyhow::Result<Self> {
        let serving = OperatorsToStart::Windlass(BuildProfile::Release, flags);
        let bed = BenchTestbed::in_memory(runtime, serving)?;
        note(&format!(
            "control plane in {}",
            bed.installation()?.plane()?.state().folder().display()
        ));
        let kinds = [
            WatchSelection::of("kustomize.toolkit.fluxcd.io/v1", "Kustomization"),
            WatchSelection::of("helm.toolkit.fluxcd.io/v2", "HelmRelease"),
            WatchSelection::of("source.toolkit.fluxcd.io/v1", "GitRepository"),
            WatchSelection::of("source.toolkit.fluxcd.io/v1", "HelmChart"),
        ];
        let watch = runtime.block_on(ObjectWatch::begin(bed.client(), &kinds))?;
        let log = bed.installation()?.plane()?.state().audit_log();
        let log = AuditLog::at(log).context("the control plane has no audit log")?;
        let namespace = workload::NAMESPACE;
        let shared = format!("/api/v1/namespaces/{namespace}/configmaps/{SHARED_VARIABLES}");
        let audit = AuditLogTail::begin(&log, OPERATOR, Some(CountedObject::at(&shared)))?;
        let id = *bed.operators().first().context("windlass does not run")?;
        let repository = bed.git()?.repository(SOURCE)?;
        // Git would otherwise pack objects in the background during the measurement.
        repository.git(&["config", "gc.auto", "0"])?;
        repository.git(&["config", "maintenance.auto", "false"])?;
        let mut session = Self {
            memory: MemorySampler::begin(id)?,
            audit,
            watch,
            metrics: MetricsEndpoint::at(&bed.installation()?.address("metrics")?)?,
            runtime,
            workload,
            repository,
            round: 0,
            bed,
        };
        let prepared = runtime.block_on(session.prepare());
        prepared.map_err(|error| session.explain(error))?;
        Ok(session)
    }

    /// Adds the state of windlass to an error, so that a developer can find the cause.
    pub(crate) fn explain(&mut self, error: anyhow::Error) -> anyhow::Error {
        self.bed.explain(error)
    }

    async fn prepare(&mut self) -> anyhow::Result<()> {
        let names = self.workload.namespace_names();
        note(&format!("{} namespaces", names.len()));
        self.bed.create_namespaces(&names).await?;
        note("the repository");
        let commit = self.commit_all()?;
        let url = self.bed.git()?.url(&self.repository);
        let mut first = vec![self.workload.source(&url), self.workload.helm_chart()];
        first.extend(self.workload.shares_variables.then(tenant_workload::shared_variables));
        self.bed.apply(&first).await?;
        let limit = self.workload.limit();
        let has_chart = |seen: &WatchedObject| seen.is("HelmChart", SOURCE) && seen.is_ready();
        self.watch.until(&format!("the chart of commit {commit}"), limit, has_chart).await?;
        Ok(())
    }

    /// Measures a step.
    ///
    /// # Errors
    /// When the step fails, or windlass has ended.
    pub(crate) fn measure(
        &mut self,
        what: &str,
        work: impl FnOnce(&mut Self) -> anyhow::Result<StepOutcome>,
    ) -> anyhow::Result<StepCost> {
        step(what, || {
            let operators = self.bed.operators().to_vec();
            let cpu = process_usage::cpu_seconds(&operators)?;
            let server_cpu = process_usage::cpu_seconds(&[self.api_server()?])?;
            let wakes = self.wakes()?;
            let before = self.memory.now()?;
            self.audit.take()?;
            self.memory.forget_peak();
            let outcome = work(self)?;
            std::thread::sleep(REST_PERIOD);
            let is_same = self.bed.operators() == operators;
            // The counters of a process that was started in this step began at zero.
            let since = |before: f64| if is_same { before } else { 0.0 };
            let requests = self.audit.take()?;
            Ok(StepCost {
                what: what.to_owned(),
                done: outcome.done.as_secs_f64(),
                quiet: outcome.quiet.map(|it| it.as_secs_f64()),
                cpu: process_usage::cpu_seconds(self.bed.operators())? - since(cpu),
                server_cpu: process_usage::cpu_seconds(&[self.api_server()?])? - server_cpu,
                before,
                peak: self.memory.peak(),
                after: self.memory.now()?,
                stores: self.stores()?,
                wakes: self.wakes()? - since(wakes),
                requests: requests.counts,
                reads: requests.reads,
                note: outcome.note,
            })
        })
    }

    /// Creates all Kustomizations and HelmReleases, and waits until all are Ready.
    ///
    /// # Errors
    /// When one of them is not Ready in time.
    pub(crate) fn install(&mut self) -> anyhow::Result<StepOutcome> {
        let manifests = test_bed::prepare(&self.workload.manifests())?;
        let commit = self.repository.hash("HEAD")?;
        self.runtime.block_on(async {
            let begun = Instant::now();
            self.bed.raw().apply(&manifests).await?;
            note(&format!("all are created after {}", spell(begun.elapsed())));
            let done = self.arrive(&commit, begun).await?;
            let quiet = self.until_quiet(begun, |_| true).await?;
            Ok(StepOutcome { done, quiet: Some(quiet), note: String::new() })
        })
    }

    /// Pushes a change of every object and of the chart, and waits until all have it.
    ///
    /// # Errors
    /// When an object does not get the change in time.
    pub(crate) fn push_all(&mut self) -> anyhow::Result<StepOutcome> {
        let commit = self.commit_all()?;
        // The watch has tens of thousands of events of earlier steps. Reading them would fall into the measurement.
        self.watch.forget();
        self.runtime.block_on(async {
            let begun = Instant::now();
            self.bed.announce(SOURCE, &commit).await?;
            let done = self.arrive(&commit, begun).await?;
            let quiet = self.until_quiet(begun, |_| true).await?;
            Ok(StepOutcome { done, quiet: Some(quiet), note: String::new() })
        })
    }

    /// Pushes a change of one object, and waits until it is changed.
    ///
    /// # Errors
    /// When the object is not changed in time.
    pub(crate) fn push_one(&mut self) -> anyhow::Result<StepOutcome> {
        let number = self.workload.kustomizations.div_ceil(2);
        let others = self.round;
        // The next push of all objects must have another version than this one.
        self.round += 1;
        let rounds = WorkloadObjectVersions { first: self.round, others };
        let (path, text) = self.workload.file(number, rounds);
        let commit = self.repository.commit(&[(path.as_str(), text.as_str())], "One object")?;
        let wanted = rounds.first.to_string();
        self.runtime.block_on(async {
            let object = self.object(number, 1);
            let (_, mut watch) = object.watch_alone(self.bed.client()).await?;
            let begun = Instant::now();
            self.bed.announce(SOURCE, &commit).await?;
            let is_new =
                |seen: &WatchedObject| seen.exists && seen.value("/data/round") == wanted.as_str();
            let seen = watch.until("the object of the push", OBJECT_TIMEOUT, is_new).await?;
            let quiet = self.until_quiet(begun, |_| true).await?;
            let done = seen.at.saturating_duration_since(begun);
            Ok(StepOutcome { done, quiet: Some(quiet), note: String::new() })
        })
    }

    /// Edits objects by hand, one after the other, and waits until windlass has corrected each. It adds the times to
    /// `times`.
    ///
    /// # Errors
    /// When an object is not corrected in time.
    pub(crate) fn drift(
        &mut self,
        count: usize,
        times: &mut TimeSamples,
    ) -> anyhow::Result<StepOutcome> {
        // windlass delays the correction of an object that is edited more than ten times. So each Kustomization's
        // object is edited at most once.
        let count = count.min(self.workload.kustomizations);
        let begun = Instant::now();
        self.runtime.block_on(async {
            for edit in 0..count {
                // The edits are spread over all Kustomizations.
                let number = edit.wrapping_mul(7919) % self.workload.kustomizations + 1;
                times.add(self.edit(number).await?);
            }
            let done = begun.elapsed();
            let quiet = self.until_quiet(begun, |_| true).await?;
            let [p50, p99] = [50, 99].map(|percent| times.percentile(percent).as_secs_f64());
            let note = format!("of {count} objects; p50 {p50:.3} s, p99 {p99:.3} s for each");
            Ok(StepOutcome { done, quiet: Some(quiet), note })
        })
    }

    async fn edit(&self, number: usize) -> anyhow::Result<Duration> {
        let object = self.object(number, 1);
        let (api, mut watch) = object.watch_alone(self.bed.client()).await?;
        let name = object_name(number, 1);
        let before = api.get(&name).await?.data["data"]["round"].clone();
        let patch = Patch::Merge(json!({"data": {"round": "edited"}}));
        let begun = Instant::now();
        api.patch(&name, &PatchParams::default(), &patch).await?;
        let has = |seen: &WatchedObject, value: &serde_json::Value| {
            seen.exists && seen.value("/data/round") == value
        };
        let edited = json!("edited");
        watch.until("the edit", OBJECT_TIMEOUT, |seen| has(seen, &edited)).await?;
        let what = format!("{name} to be put back");
        let back = watch.until(&what, OBJECT_TIMEOUT, |seen| has(seen, &before)).await?;
        Ok(back.at.saturating_duration_since(begun))
    }

    /// Kills windlass and starts it again. It waits until every Kustomization and HelmRelease has had a run.
    ///
    /// # Errors
    /// When windlass does not start, or does not become idle in time.
    pub(crate) fn crash(&mut self) -> anyhow::Result<StepOutcome> {
        let begun = Instant::now();
        self.bed.crash()?;
        let ready = begun.elapsed();
        let id = *self.bed.operators().first().context("windlass does not run")?;
        self.memory.follow(id);
        // The peak until here is that of the killed process.
        self.memory.forget_peak();
        self.metrics = MetricsEndpoint::at(&self.bed.installation()?.address("metrics")?)?;
        let workload = self.workload;
        let all = move |now: &OperatorActivity| now.has_run_all(&workload);
        let quiet = self.runtime.block_on(self.until_quiet(begun, all))?;
        let peak = process_usage::peak_mebibytes(&[id])?;
        let note = format!("/readyz after {}; peak of VmRSS {peak:.0} MiB", spell(ready));
        Ok(StepOutcome { done: quiet, quiet: Some(quiet), note })
    }

    /// Commits the next version of all objects and of the chart.
    fn commit_all(&mut self) -> anyhow::Result<String> {
        self.round += 1;
        let files = self.workload.files(self.round);
        let files: Vec<(&str, &str)> = files.iter().map(|(path, it)| (&**path, &**it)).collect();
        let commit = self.repository.commit(&files, &format!("Round {}", self.round))?;
        // Services that host repositories pack them, too. Reading each Git object from its own file would be the
        // slowest part.
        self.repository.git(&["repack", "-q", "-a", "-d"])?;
        Ok(commit)
    }

    fn object(&self, number: usize, object: usize) -> WatchSelection {
        WatchSelection::of("v1", "ConfigMap")
            .within(&self.workload.namespace(number))
            .named(&object_name(number, object))
    }

    fn api_server(&self) -> anyhow::Result<u32> {
        let plane = self.bed.installation()?.plane()?;
        plane.process("kube-apiserver").context("the API server has ended")
    }

    /// The memory that stores count on the metrics page, in MiB.
    fn stores(&self) -> anyhow::Result<f64> {
        let page = self.runtime.block_on(self.metrics.page())?;
        Ok(page.sum("windlass_store_bytes") / f64::from(1 << 20))
    }

    fn wakes(&self) -> anyhow::Result<f64> {
        Ok(self.runtime.block_on(self.metrics.page())?.sum("windlass_wakes_total"))
    }

    /// Waits until every Kustomization has applied a commit, and every HelmRelease has the chart of this round. It
    /// returns the time until the last one.
    async fn arrive(&mut self, commit: &str, begun: Instant) -> anyhow::Result<Duration> {
        let version = chart_version(self.round);
        let mut missing: BTreeSet<String> = self.workload.kustomization_names().collect();
        missing.extend(self.workload.release_names());
        let deadline = begun + self.workload.limit();
        let mut last = begun;
        let mut changed = Instant::now();
        let mut reported = Instant::now();
        while !missing.is_empty() {
            let until = deadline.min(Instant::now() + REPORT_INTERVAL);
            match self.watch.next("a change of an object", until).await {
                Ok(seen) => {
                    let has_it = match seen.kind.as_str() {
                        "Kustomization" => seen.has_applied(commit),
                        "HelmRelease" => seen.is_ready() && has_released(&seen, &version),
                        _ => false,
                    };
                    if has_it && missing.remove(&seen.name) {
                        last = seen.at;
                        changed = Instant::now();
                    }
                }
                // Before the time limit, the error is not a lack of changes. The watch has ended.
                Err(error) if Instant::now() < until => return Err(error),
                Err(_) => {}
            }
            let is_late = Instant::now() >= deadline || changed.elapsed() >= STALL_LIMIT;
            if is_late && !missing.is_empty() {
                let all = self.workload.appliers();
                let some: Vec<&str> =
                    missing.iter().take(MAX_SHOWN_NAMES).map(String::as_str).collect();
                bail!(
                    "{} of {all} objects have no commit {commit} after {}, among them {}",
                    missing.len(),
                    spell(begun.elapsed()),
                    some.join(", ")
                );
            }
            if reported.elapsed() >= REPORT_INTERVAL {
                reported = Instant::now();
                self.report(self.workload.appliers() - missing.len(), begun)?;
            }
        }
        Ok(last.saturating_duration_since(begun))
    }

    /// Prints the progress of a step. It fails if windlass has ended, because nothing would change then.
    fn report(&self, there: usize, begun: Instant) -> anyhow::Result<()> {
        let all = self.workload.appliers();
        let memory = self.memory.now()?;
        note(&format!("{there} of {all} after {}, {memory:.0} MiB", spell(begun.elapsed())));
        Ok(())
    }

    /// Waits until windlass has been idle for a while and `is_enough` holds. It returns the time from `begun` to the
    /// beginning of the idle time.
    async fn until_quiet(
        &self,
        begun: Instant,
        is_enough: impl Fn(&OperatorActivity) -> bool,
    ) -> anyhow::Result<Duration> {
        let deadline = Instant::now() + self.workload.limit();
        operator_activity::until_quiet(&self.metrics, begun, deadline, is_enough).await
    }
}
