//! Ends the leader while a standby watches, and measures how soon the standby acts.
//!
//! An object is edited by hand after the leader has ended, and another one once the standby leads. The time until one is put
//! back is counted from its edit, but not before the standby holds the Lease.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use e2e::cluster_with_operator::{OperatorStopSignal, WatchSelection, WatchedObject};
use e2e::process_usage;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::{OBJECT_TIMEOUT, ScaleSession, StepOutcome};
use crate::metrics_page::MetricsEndpoint;
use crate::scale::operator_activity::OperatorActivity;
use crate::scale::tenant_workload::object_name;

/// The namespace of the Lease, which exists in every cluster.
const LEASE_NAMESPACE: &str = "default";

/// The Lease of windlass.
const LEASE: &str = "windlass-leader-election";

/// The result of a fail-over.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FailOverTimes {
    /// From the signal to the old leader until the standby holds the Lease.
    pub(crate) lead: Duration,
    /// Until the object is put back that was edited before or while the standby took over.
    pub(crate) drift: Duration,
    /// Until the object is put back that was edited afterwards, while the new leader compares all others.
    pub(crate) later_drift: Duration,
}

fn identity(process: usize) -> String {
    format!("bench-{process}")
}

/// The flags with which processes elect a leader. Each process has a number.
pub(crate) fn election_flags(process: usize) -> Vec<String> {
    vec![
        "--enable-leader-election".to_owned(),
        format!("--leader-election-namespace={LEASE_NAMESPACE}"),
        format!("--leader-election-identity={}", identity(process)),
    ]
}

impl ScaleSession<'_> {
    /// Starts a standby with these flags, which have the number of the process. It waits until the standby is ready and watches.
    ///
    /// # Errors
    /// When the standby does not start.
    pub(crate) fn join(&mut self, flags: &[String], process: usize) -> anyhow::Result<()> {
        let flags: Vec<String> = flags.iter().cloned().chain(election_flags(process)).collect();
        self.bed.join(&flags)?;
        // The standby lists what was applied after it is ready. It has no metric for the end of that.
        std::thread::sleep(self.standby_time());
        Ok(())
    }

    /// How long a standby may take to list all objects.
    fn standby_time(&self) -> Duration {
        Duration::from_secs(5 + (self.workload.objects / 5_000) as u64)
    }

    /// Ends the leader, and waits until the standby leads, has put two edited objects back, and has compared everything. The
    /// standby has the number `process`.
    ///
    /// # Errors
    /// When the standby does not act in time.
    pub(crate) fn fail_over(
        &mut self,
        end: OperatorStopSignal,
        process: usize,
        times: &mut FailOverTimes,
    ) -> anyhow::Result<StepOutcome> {
        let number = self.workload.kustomizations / 3 + 1;
        let object = self.object(number, 1);
        let name = object_name(number, 1);
        let edited_later = (number * 2).min(self.workload.kustomizations);
        let lease = WatchSelection::of("coordination.k8s.io/v1", "Lease").within(LEASE_NAMESPACE);
        let lease = lease.named(LEASE);
        let client = self.bed.client().clone();
        let (api, mut objects) = self.runtime.block_on(object.watch_alone(&client))?;
        let (_, mut leases) = self.runtime.block_on(lease.watch_alone(&client))?;
        let before = self.runtime.block_on(api.get(&name))?.data["data"]["round"].clone();
        let begun = Instant::now();
        self.bed.end_leader(end)?;
        let ended = begun.elapsed();
        let id = *self.bed.operators().first().context("the standby does not run")?;
        self.memory.follow(id);
        self.memory.forget_peak();
        self.metrics = MetricsEndpoint::at(&self.bed.installation()?.address("metrics")?)?;
        let workload = self.workload;
        let all = move |now: &OperatorActivity| now.has_run_all(&workload);
        let leader = identity(process);
        let quiet = self.runtime.block_on(async {
            let patch = Patch::Merge(json!({"data": {"round": "edited"}}));
            api.patch(&name, &PatchParams::default(), &patch).await?;
            let has = |seen: &WatchedObject, value: &Value| {
                seen.exists && seen.value("/data/round") == value
            };
            let edited = json!("edited");
            let edit = objects.until("the edit", OBJECT_TIMEOUT, |seen| has(seen, &edited)).await?;
            let is_leader =
                |seen: &WatchedObject| seen.value("/spec/holderIdentity") == leader.as_str();
            let leads = leases.until("the standby to lead", OBJECT_TIMEOUT, is_leader).await?;
            let what = format!("{name} to be put back");
            let back = objects.until(&what, OBJECT_TIMEOUT, |seen| has(seen, &before)).await?;
            times.lead = leads.at.saturating_duration_since(begun);
            // The old process may end some time after it released the Lease, and the edit comes after its end.
            times.drift = back.at.saturating_duration_since(leads.at.max(edit.at));
            times.later_drift = self.edit(edited_later).await?;
            self.until_quiet(begun, all).await
        })?;
        let peak = process_usage::peak_mebibytes(&[id])?;
        let note = format!(
            "the leader ended after {:.1} s; the standby put an edit back {:.1} s after it led, and a later one after {:.1} s; \
             peak of VmRSS {peak:.0} MiB",
            ended.as_secs_f64(),
            times.drift.as_secs_f64(),
            times.later_drift.as_secs_f64()
        );
        Ok(StepOutcome { done: times.lead, quiet: Some(quiet), note })
    }
}
