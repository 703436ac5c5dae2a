//! One run of a scenario, with or without a cut.
//!
//! A run plays the acts of the scenario, kills windlass at the cut and starts it again. It checks the laws at each
//! step. `super::scenario` has the acts, and `super::snapshot` compares the results.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use e2e::api_server_fault_proxy::{ApiServerFaultProxy, ConnectionCutHandle};
use e2e::harness::WindlassProcess;
use kube::api::DynamicObject;

use super::crash_points::CrashPoint;
use super::scenario::{CrashScenario, CrashScenarioSetup};
use super::snapshot::{ClusterSnapshot, ReplacedNames};
use crate::inventory_ownership::{absent, live, recorded, unrecorded};

/// How long an act may take, from its beginning and again from a restart of windlass.
const ACT_TIMEOUT: Duration = Duration::from_secs(30);

/// How often the state of the cluster is read.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// For how long nothing may change after the end of an act.
const QUIET_PERIOD: Duration = Duration::from_secs(1);

/// The result of a run.
pub(super) struct CrashRunReport {
    /// The state of the cluster at the end of each act.
    pub(super) snapshots: Vec<ClusterSnapshot>,
    /// All writes to the API server.
    pub(super) writes: Vec<String>,
    /// The request at which the connection was cut. It is none if nothing was cut.
    pub(super) request: Option<String>,
    /// The laws that were broken.
    pub(super) violations: Vec<String>,
    /// The state of the objects, their events and the end of windlass's log. It is filled when a law was broken.
    pub(super) log: String,
    /// How long the whole run took.
    pub(super) took: Duration,
    /// How long windlass needed after the restart to finish the act that was cut.
    pub(super) recovery: Duration,
}

struct CrashRun<S> {
    scenario: S,
    stage: CrashScenarioSetup,
    proxy: ApiServerFaultProxy,
    windlass: WindlassProcess,
    cut: Option<ConnectionCutHandle>,
    request: Option<String>,
    /// When windlass was started last.
    restarted: Option<Instant>,
    recovery: Duration,
    /// The uid of every object that was ever seen.
    uids: BTreeMap<String, String>,
    /// How many writes were already checked.
    judged: usize,
    violations: Vec<String>,
}

/// Plays a scenario to its end, or to the first act that does not end or breaks a law. `usual` has the state after
/// each act in the run without a cut.
///
/// # Errors
/// When the test bed fails. Faults of windlass are in the report instead.
pub(super) async fn attempt<S: CrashScenario>(
    point: Option<CrashPoint>,
    usual: Option<&Vec<ClusterSnapshot>>,
) -> anyhow::Result<CrashRunReport> {
    let begun = Instant::now();
    let stage = CrashScenarioSetup::set("crash").await?;
    let proxy = ApiServerFaultProxy::start(stage.story.bed.operator_kubeconfig())?;
    let windlass = WindlassProcess::start_for(&stage.story, &[&proxy.flag()]).await?;
    let cut = point.map(|point| proxy.cut_at(point.number, point.moment));
    let mut run = CrashRun {
        scenario: S::default(),
        stage,
        proxy,
        windlass,
        cut,
        request: None,
        restarted: None,
        recovery: Duration::ZERO,
        uids: BTreeMap::new(),
        judged: 0,
        violations: Vec::new(),
    };
    let mut snapshots = Vec::new();
    let mut log = String::new();
    for (act, name) in S::ACTS.iter().enumerate() {
        let expected = usual.and_then(|usual| usual.get(act));
        let played = run.play(act, expected).await.with_context(|| format!("act `{name}`"))?;
        snapshots.extend(played);
        if !run.violations.is_empty() {
            let place = format!("in act `{name}` ");
            run.violations.iter_mut().for_each(|it| it.insert_str(0, &place));
            log = run.stage.story.diagnosis().await?;
            break;
        }
    }
    run.violations.extend(run.scenario.judge(&run.stage)?);
    let outcome = CrashRunReport {
        snapshots,
        writes: run.proxy.writes(),
        request: run.request,
        violations: run.violations,
        log,
        took: begun.elapsed(),
        recovery: run.recovery,
    };
    drop(run.windlass);
    run.stage.story.end().await?;
    Ok(outcome)
}

impl<S: CrashScenario> CrashRun<S> {
    /// Begins an act and waits for its end. It gives none if the act does not end in time.
    async fn play(
        &mut self,
        act: usize,
        expected: Option<&ClusterSnapshot>,
    ) -> anyhow::Result<Option<ClusterSnapshot>> {
        self.scenario.begin(act, &mut self.stage).await?;
        let mut since = Instant::now();
        let mut was_cut = false;
        let mut before = None;
        loop {
            if self.die_if_cut(act).await? {
                since = Instant::now();
                was_cut = true;
            }
            let (snapshot, wrong) = self.observe(act, expected).await?;
            // In the run without a cut, the act has ended once the state stays the same. Other runs are compared with
            // that state.
            let is_steady = expected.is_some() || snapshot == before;
            if wrong.is_empty() && !is_steady {
                before = snapshot;
                tokio::time::sleep(QUIET_PERIOD).await;
                continue;
            }
            if wrong.is_empty() {
                if was_cut {
                    self.recovery = self.restarted.map_or(Duration::ZERO, |at| at.elapsed());
                }
                self.judge_deletions(act);
                return Ok(snapshot);
            }
            if since.elapsed() > ACT_TIMEOUT {
                self.violations.extend(wrong);
                return Ok(None);
            }
        }
    }

    /// The present state of an act, and the reason why the act has not ended yet.
    async fn observe(
        &mut self,
        act: usize,
        expected: Option<&ClusterSnapshot>,
    ) -> anyhow::Result<(Option<ClusterSnapshot>, Vec<String>)> {
        if !self.windlass.operator.is_running()? {
            return Ok((None, vec!["windlass has ended by itself".to_owned()]));
        }
        if !self.scenario.is_done(act, &self.stage).await? {
            return Ok((None, vec![format!("not done after {ACT_TIMEOUT:?}")]));
        }
        let story = &self.stage.story;
        let kinds = self.scenario.kinds(&story.namespace);
        let owner = self.scenario.owner();
        let recorded = recorded(&story.client, &owner, &story.namespace).await?;
        let live = live(&story.client, &kinds, &owner, &story.namespace).await?;
        let commits = self.stage.commits()?;
        let others = self.scenario.names();
        let names =
            ReplacedNames { namespace: &story.namespace, revisions: &commits, others: &others };
        let snapshot = ClusterSnapshot::take(&story.client, &live, &names).await?;
        let mut wrong = unrecorded(&live, &recorded, &owner);
        wrong.extend(absent(&live, &recorded));
        if let Some(expected) = expected {
            wrong.extend(snapshot.differences(expected));
        }
        if wrong.is_empty() {
            self.judge_uids(&live);
        }
        Ok((Some(snapshot), wrong))
    }

    /// Waits a moment for the cut. After the cut it kills windlass, checks the laws and starts windlass again.
    async fn die_if_cut(&mut self, act: usize) -> anyhow::Result<bool> {
        let Some(cut) = &mut self.cut else {
            tokio::time::sleep(POLL_INTERVAL).await;
            return Ok(false);
        };
        let Ok(request) = tokio::time::timeout(POLL_INTERVAL, cut.wait()).await else {
            return Ok(false);
        };
        self.cut = None;
        self.request = request;
        self.windlass.operator.kill()?;
        let story = &self.stage.story;
        let kinds = self.scenario.kinds(&story.namespace);
        let owner = self.scenario.owner();
        let live = live(&story.client, &kinds, &owner, &story.namespace).await?;
        if S::RECORDS_FIRST {
            let recorded = recorded(&story.client, &owner, &story.namespace).await?;
            let lost = unrecorded(&live, &recorded, &owner);
            self.violations.extend(lost.iter().map(|it| format!("at the cut {it}")));
        }
        self.judge_uids(&live);
        self.judge_deletions(act);
        self.proxy.heal();
        self.restarted = Some(Instant::now());
        self.windlass.resume().await?;
        Ok(true)
    }

    /// Checks that no object was created again. An object with the same id must have the same uid.
    fn judge_uids(&mut self, live: &BTreeMap<String, DynamicObject>) {
        for (id, object) in live {
            let uid = object.metadata.uid.clone().unwrap_or_default();
            let known = self.uids.entry(id.clone()).or_insert_with(|| uid.clone());
            if *known != uid {
                self.violations.push(format!("{id} was deleted and created again"));
                *known = uid;
            }
        }
    }

    /// Checks that windlass requested no deletion of an object that should stay.
    fn judge_deletions(&mut self, act: usize) {
        let writes = self.proxy.writes();
        for write in writes.iter().skip(self.judged) {
            let Some(path) = write.strip_prefix("DELETE ") else { continue };
            let name = path.rsplit('/').next().unwrap_or_default();
            if !self.scenario.may_delete(act, &self.stage.story.namespace, name) {
                self.violations.push(format!("{write} was sent, and it should live"));
            }
        }
        self.judged = writes.len();
    }
}
