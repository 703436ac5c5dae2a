//! The kind HelmRelease: windlass keeps a chart with its values released, as Helm releases it.
//!
//! Here: a run from its gate to its report. Elsewhere: the spec (`validated_spec`, `values`), the chart (`chart_source`,
//! `chart_template`), the Helm release (`release_runner`), the HelmRelease as owner of the release
//! (`release_status_writer`), deletion (`finalize`), quarantined charts and values (`quarantined_release`), releases that
//! are unchanged after a restart (`unchanged_release_after_restart`).

mod chart_source;
pub mod chart_template;
mod finalize;
mod quarantined_release;
mod release_pause;
mod release_status_writer;
pub mod report;
mod required_releases;
pub mod status;
mod unchanged_release_after_restart;
pub mod validated_spec;
pub mod values;

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crds::helm::HelmRelease;
use kube_core::{Resource as _, ResourceExt as _};
use quarantine::on_failure_annotation::ON_FAILURE;
use reconcile::{ObjectKey, ROLLBACK, ReleaseRollback, RunGateFacts, RunOutcome};
use release::{OperationOrigin, ReleaseDesiredState};

use self::quarantined_release::DesiredStateWithFailurePolicy;
pub use self::release_pause::released_parts;
use self::release_status_writer::{DeferredStatusWrite, HelmReleaseOwner};
pub use self::validated_spec::{FORCE_AT, RESET_AT};
use super::release_runner::quarantined_releases::{OwnerQuarantines, ReleaseQuarantineInputs};
use super::release_runner::validated_spec::{ReleaseInputs, ValidatedSpec};
use super::release_runner::{self, DesiredRelease, MANAGER, ReleaseStatusOwner as _, release_run};
use windlass_cluster::ClusterError;
use windlass_cluster::events::ObjectEvent;
use windlass_cluster::object_watcher::OwnershipMarks;
use windlass_cluster::referenced_secrets_and_config_maps::RunReferenceReads;
use windlass_runtime::applier_run::{
    self, ApplierKind, ApplierRunEnd, FinalizeOutcome, PendingChanges, ReconcileIntervals,
    WaitObservation,
};
use windlass_runtime::approval_plan::DELETION_BUDGET;
use windlass_runtime::approval_plan::change_approval::PLAN_MODE;
use windlass_runtime::cluster_target::ClusterTarget;
use windlass_runtime::controller_kind::REQUESTED_AT;
use windlass_runtime::depends_on_annotation::DependableKind;
use windlass_runtime::object_status::status_of;
use windlass_runtime::run_error::RunError;
use windlass_runtime::{hold_conditions, lifecycle};
use windlass_serve::settings::OperatorSettings;

/// The marks on the objects of a release.
pub const OWNERSHIP: OwnershipMarks = OwnershipMarks {
    name: "helm.toolkit.fluxcd.io/name",
    namespace: "helm.toolkit.fluxcd.io/namespace",
    manager: MANAGER,
};

/// The labels that say whose an object is.
fn origin(object: &HelmRelease) -> BTreeMap<String, String> {
    [
        (OWNERSHIP.name.to_owned(), object.name_any()),
        (OWNERSHIP.namespace.to_owned(), object.namespace().unwrap_or_default()),
    ]
    .into()
}

/// The state of a HelmRelease that this process keeps between runs.
#[derive(Default)]
pub struct HelmReleaseState {
    /// The runner's state of its release.
    release: Arc<release_run::ReleaseRunnerState>,
    /// The spec that the last run saw, if that run waits.
    waits_for: Option<HelmReleaseSpecIdentity>,
    /// The identity of the chart that was released last.
    source: Option<String>,
    /// Since when the HelmChart of the HelmRelease has been in progress.
    chart_since: Option<Instant>,
}

/// The spec of a HelmRelease, with the requests in its annotations.
#[derive(Debug, PartialEq, Eq)]
struct HelmReleaseSpecIdentity {
    generation: Option<i64>,
    asked: Vec<Option<String>>,
}

impl HelmReleaseSpecIdentity {
    /// The spec and requests that a run of the object has seen. A request causes one run, and the wait of that run continues
    /// afterwards.
    fn of(object: &HelmRelease) -> Self {
        let annotations = [REQUESTED_AT, validated_spec::FORCE_AT, validated_spec::RESET_AT];
        let asked = annotations.map(|key| object.annotations().get(key).cloned());
        Self { generation: object.meta().generation, asked: asked.into() }
    }
}

impl DependableKind for HelmReleaseController {
    type Object = HelmRelease;

    fn leaves_objects(object: &HelmRelease) -> bool {
        status::read(object).storage_namespace.is_empty()
    }
}

/// The details of a run that the status and events report in addition to its outcome.
#[derive(Default)]
pub struct HelmReleaseRunDetails {
    desired_release: Option<Arc<DesiredRelease>>,
    /// `namespace/name` of the HelmChart that was made for the HelmRelease, if it is known.
    helm_chart: Option<String>,
    /// The status that waits for the next write.
    pending: Option<DeferredStatusWrite>,
    /// The present action of the running operation.
    running: Option<String>,
}

type HelmReleaseRunReport = applier_run::ApplierRunReport<HelmReleaseController>;

/// A run of a HelmRelease.
struct HelmReleaseSession<'r>(&'r applier_run::ApplierSession<HelmReleaseController>);

impl Deref for HelmReleaseSession<'_> {
    type Target = applier_run::ApplierSession<HelmReleaseController>;

    fn deref(&self) -> &Self::Target {
        self.0
    }
}

/// How long the HelmChart of a template may take to be reconciled before the status reports it as pending. A new version
/// takes less, and the status of each of hundreds of releases would be written twice.
const CHART_PATIENCE: Duration = Duration::from_secs(5);

/// Runs HelmReleases.
pub struct HelmReleaseController;

impl ApplierKind for HelmReleaseController {
    type Object = HelmRelease;

    const OWNED: &'static [&'static str] = &status::OWNED;
    const ANNOTATIONS: &'static [&'static str] = &[
        validated_spec::FORCE_AT,
        validated_spec::RESET_AT,
        DELETION_BUDGET,
        PLAN_MODE,
        ROLLBACK,
        ON_FAILURE,
        required_releases::REQUIRES,
    ];
    const STAYS_WITHOUT_KUBECONFIG: bool = true;

    type Own = HelmReleaseState;
    type ValidatedSpec = Arc<ValidatedSpec>;
    type SpecInputs = values::ReleaseValues;
    type RunDetails = HelmReleaseRunDetails;

    fn source(object: &HelmRelease) -> Option<ObjectKey> {
        chart_source::source_node(object)
    }

    fn named_source(object: &HelmRelease) -> Option<ObjectKey> {
        chart_source::named_source(object)
    }

    fn inputs(object: &HelmRelease) -> Vec<(&'static str, String)> {
        let named = object.spec.values_from.iter();
        named.map(|it| (it.kind.as_str(), it.name.clone())).collect()
    }

    fn has_tried(object: &HelmRelease, revision: &str) -> bool {
        let Some(status) = &object.status else { return false };
        // The revision of an OCIRepository ends with its digest, which the version of a chart does not have.
        let is_digest = |it: &String| revision.ends_with(it.as_str());
        status.last_attempted_revision.as_deref() == Some(revision)
            || status.last_attempted_revision_digest.as_ref().is_some_and(is_digest)
    }

    fn announcement(object: &HelmRelease) -> String {
        let status = object.status.as_ref();
        applier_run::announcement(
            object,
            status.and_then(|it| it.last_attempted_revision.as_deref()),
        )
    }

    fn validate(
        object: &HelmRelease,
        settings: &OperatorSettings,
    ) -> Result<Arc<ValidatedSpec>, RunOutcome> {
        status::check(object.status.as_ref())?;
        let target = release_runner::target_of(object);
        validated_spec::validate(&object.spec, target, origin(object), settings).map(Arc::new)
    }

    fn pace(spec: &Arc<ValidatedSpec>) -> ReconcileIntervals {
        spec.pace
    }

    fn observation(
        session: &applier_run::ApplierSession<Self>,
        object: &HelmRelease,
    ) -> Option<WaitObservation> {
        let memory = session.memory();
        let is_seen = memory
            .waits_for
            .as_ref()
            .is_some_and(|seen| *seen == HelmReleaseSpecIdentity::of(object));
        memory.release.observation().filter(|_| is_seen)
    }

    fn continues_wait(own: &HelmReleaseState) -> bool {
        own.waits_for.is_some()
    }

    fn moved(own: &mut HelmReleaseState) {
        (own.waits_for, own.release) = (None, Arc::default());
    }

    async fn is_under_way(
        session: &applier_run::ApplierSession<Self>,
        object: &Arc<HelmRelease>,
    ) -> Result<bool, ClusterError> {
        HelmReleaseSession(session).is_under_way(object).await
    }

    async fn pending(
        session: &applier_run::ApplierSession<Self>,
        object: &Arc<HelmRelease>,
    ) -> PendingChanges {
        HelmReleaseSession(session).pending(object)
    }

    async fn stop(
        session: &applier_run::ApplierSession<Self>,
        object: &Arc<HelmRelease>,
    ) -> Result<Option<Duration>, ClusterError> {
        HelmReleaseSession(session).stop(object).await
    }

    fn rollback(object: &HelmRelease) -> Option<ReleaseRollback> {
        release_pause::rollback(object)
    }

    fn where_stopped(object: &HelmRelease) -> String {
        release_pause::where_stopped(object)
    }

    fn waits_no_more(own: &mut HelmReleaseState) {
        own.release.waits_no_more();
        own.release.end_contests();
    }

    async fn read(
        session: &applier_run::ApplierSession<Self>,
        object: &HelmRelease,
        references: &mut RunReferenceReads,
    ) -> Result<values::ReleaseValues, RunOutcome> {
        values::read(&session.node.namespace, &object.spec, references).await
    }

    fn has_more_to_report(details: &HelmReleaseRunDetails) -> bool {
        details.pending.is_some()
    }

    async fn reconcile(
        session: &applier_run::ApplierSession<Self>,
        object: &Arc<HelmRelease>,
        facts: RunGateFacts,
        spec: Arc<ValidatedSpec>,
    ) -> Result<Option<HelmReleaseRunReport>, ClusterError> {
        let ended = HelmReleaseSession(session).reconcile(object, facts, spec).await?;
        Ok(ended.and_then(release_pause::outside))
    }

    async fn finalize(
        session: &applier_run::ApplierSession<Self>,
        object: &Arc<HelmRelease>,
    ) -> Result<FinalizeOutcome<Self>, ClusterError> {
        HelmReleaseSession(session).finalize(object).await
    }

    fn left_behind(_: &HelmRelease, subject: &str) -> ObjectEvent {
        finalize::left_behind(subject)
    }

    fn report(
        session: &applier_run::ApplierSession<Self>,
        ended: HelmReleaseRunReport,
        end: &ApplierRunEnd,
    ) -> applier_run::ApplierReport<Self> {
        let HelmReleaseRunReport { object, came, .. } = ended;
        let HelmReleaseRunDetails { desired_release, helm_chart, pending, running } = came;
        let run = report::ReleaseRunResult {
            outcome: &end.outcome,
            desired: desired_release.as_ref().map(|desired_release| &desired_release.desired),
            generation: object.meta().generation.unwrap_or_default(),
            marks: &hold_conditions::of(&*object, end.now),
            running: running.as_deref(),
            announcement: session.context.failure_announcement(&session.node),
            now: end.now,
        };
        let before = status_of(&*object);
        let decided = pending.as_ref().map_or(&before, |it| &it.status);
        let report = report::report(&object, decided, helm_chart.as_deref(), &run);
        let release_events =
            pending.iter().flat_map(|it| &it.events).map(report::event::<HelmRelease>);
        let events: Vec<ObjectEvent> = release_events.chain(report.event).collect();
        for event in events.iter().chain(&report.logged) {
            report::log(&object, event);
        }
        applier_run::ApplierReport { object, before, after: report.after, events }
    }
}

impl HelmReleaseSession<'_> {
    /// How long a HelmChart may be in progress before the status reports it.
    fn chart_patience(&self, object: &HelmRelease) -> Option<Duration> {
        if !chart_template::is_on_its_way(&self.context, object) {
            return None;
        }
        let since = *self.memory().chart_since.get_or_insert_with(Instant::now);
        CHART_PATIENCE.checked_sub(since.elapsed()).filter(|left| !left.is_zero())
    }

    /// Whether the releases that the object requires are deployed. Its own records are in `storage`. A running operation
    /// continues without this check.
    async fn required(
        &self,
        object: &Arc<HelmRelease>,
        storage: &str,
        target: &Arc<ClusterTarget>,
    ) -> Result<(), RunError> {
        let annotation = object.annotations().get(required_releases::REQUIRES);
        let own = &self.node.namespace;
        let is_blocked = self.context.settings.no_cross_namespace_refs;
        let required = match required_releases::of(annotation, own, storage, is_blocked) {
            Ok(required) if required.is_empty() => return Ok(()),
            Ok(required) => required,
            Err(outcome) => return Err(outcome.into()),
        };
        let retry_at = self.in_future(self.context.settings.requeue_dependency);
        let checked = required_releases::check(&target.cluster, &required, retry_at).await;
        match checked.is_err() && self.is_under_way(object).await? {
            true => Ok(()),
            false => Ok(checked?),
        }
    }

    /// Reconciles an object, from the gate to its report. `None` if the spec changed meanwhile.
    async fn reconcile(
        &self,
        object: &Arc<HelmRelease>,
        facts: RunGateFacts,
        spec: Arc<ValidatedSpec>,
    ) -> Result<Option<HelmReleaseRunReport>, ClusterError> {
        let helm_chart = match chart_template::keep(&self.context, object).await {
            Ok(helm_chart) => helm_chart.unwrap_or_default(),
            Err(outcome) => return Ok(Some(HelmReleaseRunReport::early(object, outcome))),
        };
        let early = |outcome| {
            let mut ended = HelmReleaseRunReport::early(object, outcome);
            ended.came.helm_chart = Some(helm_chart.clone());
            Ok(Some(ended))
        };
        let requeue = self.in_future(self.context.settings.requeue_dependency);
        if let Some(outcome) = self.gate(object, facts, "").await
            && !self.is_under_way(object).await?
        {
            return early(outcome);
        }
        let source = match chart_source::source(&self.context, object, requeue) {
            Ok(source) => source,
            Err(outcome) => {
                let unsaid_for = self.chart_patience(object);
                return Ok(
                    early(outcome)?.map(|ended| HelmReleaseRunReport { unsaid_for, ..ended })
                );
            }
        };
        self.memory().chart_since = None;
        let (target, values) = match self.named(object).await {
            Ok(named) => named,
            Err(outcome) => return early(outcome),
        };
        let storage = &spec.release.target.storage_namespace;
        if let Err(error) = self.required(object, storage, &target).await {
            return early(error.outcome()?);
        }
        let load = release_runner::chart_cache::load(&self.context, &source);
        // The artifact of another shard comes over the network.
        let loaded = match source.is_elsewhere {
            true => self.preparing.aside(load).await,
            false => load.await,
        };
        let loaded = match loaded {
            Ok(loaded) => loaded,
            Err(outcome) => return early(outcome),
        };
        let metadata = &loaded.chart.metadata;
        let inputs = ReleaseInputs {
            chart_name: metadata.name.clone(),
            chart_version: metadata.version.clone(),
            app_version: metadata.app_version.clone(),
            oci_digest: loaded.oci_digest.clone(),
            config_digest: values.digest.clone(),
            artifact_digest: source.artifact.digest.clone(),
        };
        let desired = self.desired(object, &spec, inputs);
        let judged = match self.judged(object, desired).await {
            Ok(judged) => judged,
            Err(error) => return early(error.outcome()?),
        };
        let DesiredStateWithFailurePolicy { object, quarantines, desired } = judged;
        let origin = OperationOrigin {
            source: source.node.to_string(),
            revision: source.artifact.revision.clone(),
            ..desired.origin.clone().with_values(values.versions)
        };
        // Whether anything is new is known when values and records are compared, so a bypass is spent before.
        let freeze = self.frozen(&object, Some(&source.artifact.revision)).await;
        let gates = self.gates(&object, freeze);
        let desired_release = Arc::new(DesiredRelease {
            desired: ReleaseDesiredState { gates, origin, ..desired },
            spec,
            values: values.map,
            chart: Some(loaded),
            expressions: self.expressions.clone(),
            secrets: values.secrets,
            preparing: self.preparing.clone(),
        });
        self.memory().source = Some(source.key());
        // On the heap, only those runs take the memory of it that read what their specs name.
        let ended =
            Box::pin(self.drive(&object, desired_release, &target, Some(&quarantines))).await;
        Ok(ended.map(|mut ended| {
            ended.came.helm_chart = Some(helm_chart);
            ended
        }))
    }

    /// The desired state of the release, which no window holds.
    fn desired(
        &self,
        object: &HelmRelease,
        spec: &ValidatedSpec,
        inputs: ReleaseInputs,
    ) -> ReleaseDesiredState {
        let failures = object.status.as_ref().map_or(0, |status| status.failures);
        ReleaseDesiredState {
            lifecycles: lifecycle::holding(&self.context, object),
            requests: validated_spec::requests(object),
            ..spec.desired(object, inputs, failures, &self.context.settings)
        }
    }

    /// Performs the steps that the engine plans, until the engine returns an outcome. `None` if the spec changed meanwhile. A
    /// release that has failed as often as it may is added to `quarantines`, if the run knows them.
    async fn drive(
        &self,
        object: &Arc<HelmRelease>,
        desired_release: Arc<DesiredRelease>,
        target: &Arc<ClusterTarget>,
        quarantines: Option<&OwnerQuarantines>,
    ) -> Option<HelmReleaseRunReport> {
        let context = &self.context;
        let node = &self.node;
        let latest = self.latest.clone();
        let owner = HelmReleaseOwner::new(context.clone(), node.clone(), latest, object.clone());
        let owner = Arc::new(owner);
        let memory = self.memory().release.clone();
        if let Some(outcome) = self.confirmed(object, &desired_release, target).await {
            memory.set_under_way(false);
            let desired_release = Some(desired_release);
            let came =
                HelmReleaseRunDetails { desired_release, ..HelmReleaseRunDetails::default() };
            return Some(HelmReleaseRunReport {
                came,
                ..HelmReleaseRunReport::early(object, outcome)
            });
        }
        let driven =
            release_run::drive(context, target, node, &owner, &desired_release, &memory).await?;
        let driven = match quarantines {
            Some(quarantines) => {
                let desired_release = &*desired_release;
                let release = ReleaseQuarantineInputs { context, node, name: "", desired_release };
                let status = owner.status();
                quarantines.conclude(release, &*owner.object(), &status, driven).await
            }
            None => driven,
        };
        self.keep_comparison(object, &desired_release.desired, target, &driven, &owner.status());
        self.memory().waits_for = driven.is_waiting.then(|| HelmReleaseSpecIdentity::of(object));
        let came = HelmReleaseRunDetails {
            desired_release: Some(desired_release),
            pending: owner.take_pending(),
            running: driven.running,
            helm_chart: None,
        };
        Some(HelmReleaseRunReport {
            came,
            ..HelmReleaseRunReport::early(&owner.object(), driven.outcome)
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn release(generation: i64, requested: Option<&str>) -> HelmRelease {
        serde_json::from_value(json!({
            "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
            "metadata": {"name": "app", "namespace": "apps", "generation": generation,
                "annotations": {REQUESTED_AT: requested.unwrap_or("")}},
            "spec": {"interval": "1m", "chartRef": {"kind": "HelmChart", "name": "c"}},
        }))
        .unwrap()
    }

    #[test]
    fn a_request_interrupts_the_pauses_of_a_wait_once() {
        let before = release(1, None);
        let asking = release(1, Some("now"));
        assert_eq!(
            HelmReleaseSpecIdentity::of(&before),
            HelmReleaseSpecIdentity::of(&before.clone())
        );
        assert_ne!(HelmReleaseSpecIdentity::of(&before), HelmReleaseSpecIdentity::of(&asking));
        assert_ne!(
            HelmReleaseSpecIdentity::of(&asking),
            HelmReleaseSpecIdentity::of(&release(2, Some("now")))
        );
        assert_ne!(
            HelmReleaseSpecIdentity::of(&asking),
            HelmReleaseSpecIdentity::of(&release(1, Some("later")))
        );
    }
}
