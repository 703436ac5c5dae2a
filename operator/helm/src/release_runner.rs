//! Reconciles Helm releases for the objects that own them, which are HelmReleases and Helmfiles.
//!
//! Here: the desired state of a run ([`DesiredRelease`]), and the trait that each owner implements ([`ReleaseStatusOwner`]).
//! In the folder: the specification of a release (`validated_spec`), observing and performing steps (`executor` and the files
//! that it names), charts, post-renderers, rendering for commands (`manifest_rendering`), releases that are quarantined
//! (`quarantined_releases`), the versions of records (`record_versions`).
//! Elsewhere: what to do next (engine `release`), the owners (`helm_release`, and the crate `helmfile-controller`).

pub mod action_options;
pub mod audit;
pub mod change_judgement;
pub mod chart_cache;
pub mod crd_definitions;
mod deletion_judgement;
mod drift;
pub(crate) mod executor;
mod failure_cause;
pub(crate) mod hook_watch;
mod hooks;
pub mod manifest_objects;
pub mod manifest_rendering;
mod object_writes;
mod observe;
pub mod postrender;
pub mod prepare_revision;
pub mod quarantined_releases;
pub(crate) mod record_versions;
pub mod release_conflict;
pub mod release_run;
mod step_error;
pub mod storage;
pub mod validated_spec;

use std::sync::Arc;
use std::time::Duration;

use apply::ObjectInventory;
use crds::helm::HelmRelease;
use crds::{ReconciledObject, ResourceInventory};
use golang::value::GoMap;
use helm::chart::Chart;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube_core::ResourceExt as _;
use objects::SecretMasking;
use reconcile::{NextRunTrigger, ObjectKey, RunOutcome};
use release::operation::{ObservedHealth, ObservedHookObject, ObservedLiveObjects};
use release::release_spec::DriftMode;
use release::release_target::ReleaseTarget;
use release::status::{HelmReleaseStatusFields, RECONCILE_ERROR, ReleaseReport};
use release::{OperationJournal, ReleaseDesiredState, ReleaseRecord};

use self::change_judgement::OwnerHooks;
use self::chart_cache::LoadedChart;
use self::manifest_objects::ManifestObject;
use self::validated_spec::ValidatedSpec;
use windlass_cluster::events::ObjectEvent;
use windlass_cluster::object_watcher::OwnershipMarks;
use windlass_cluster::preparing_permit::PreparingPermit;
use windlass_cluster::run_permits::RunPermit;
use windlass_cluster::windlass_kind::WindlassKind;
use windlass_expressions::RunExpressions;
use windlass_runtime::cluster_target::ClusterTarget;
use windlass_runtime::object_status::{LatestWrittenObject, recorded};
use windlass_runtime::run_context::RunContext;

/// The field manager of the objects of releases. It is the name of Flux's controller, so that windlass stays the manager of
/// the fields that Flux applied.
pub const MANAGER: &str = "helm-controller";

/// The delay before a failed write of a status is repeated.
const STATUS_RETRY_DELAY: Duration = Duration::from_secs(2);

/// The owner of a release: the object that keeps its status and announces its events.
///
/// An owner may have several releases, each with its own records, journal and wait.
pub trait ReleaseStatusOwner: Send + Sync + 'static {
    /// The kind, for the log.
    const KIND: &'static str;
    /// The marks on the objects of its releases.
    const OWNERSHIP: OwnershipMarks;

    /// The labels that objects get when they are applied, besides the labels of their manifests.
    fn labels(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// The status of the release, as the engine reads it.
    fn status(&self) -> HelmReleaseStatusFields;

    /// Writes a report to the status, and announces its events. `inventory` is given if objects changed. The write may
    /// be delayed until the next step or [`ReleaseStatusOwner::settle`].
    fn tell(
        &self,
        report: &ReleaseReport,
        inventory: Option<ResourceInventory>,
        desired: &ReleaseDesiredState,
    ) -> impl Future<Output = Result<(), RunOutcome>> + Send;

    /// Writes the status and events that [`ReleaseStatusOwner::tell`] delayed.
    fn settle(&self) -> impl Future<Output = Result<(), RunOutcome>> + Send;

    /// Whether the owner was changed, suspended or deleted since the run began. Then another run has to decide.
    fn is_overtaken(&self, desired: &ReleaseDesiredState) -> bool;

    /// Whether a user asked for everything to be compared.
    fn is_asked(&self) -> bool;

    /// Another owner of the release with this newest record and journal. Returns its key, unless it is the same object, and the
    /// message that says what to do. `None` if no other owner has the release.
    fn rival(
        &self,
        journal: Option<&OperationJournal>,
        last: &ReleaseRecord,
    ) -> Option<(Option<ObjectKey>, String)>;

    /// Prepares an operation that makes a new revision. Returns why the operation fails, if it does. It may be called
    /// several times for one operation, so it has to be repeatable.
    fn before(
        &self,
        _: &ClusterTarget,
        _: &RunPermit,
        _: &ReleaseDesiredState,
    ) -> impl Future<Output = Result<Option<String>, RunOutcome>> + Send {
        std::future::ready(Ok(None))
    }

    /// Whether the owner has work to do in [`ReleaseStatusOwner::before`].
    fn prepares(&self) -> bool {
        false
    }

    /// The deletion limit in the owner's annotation: how many objects may be deleted without approval. `None` without the
    /// annotation.
    fn deletion_limit(&self) -> Option<String>;

    /// The plan mode in the owner's annotation: which changes wait for approval. `None` without the annotation.
    fn plan_mode(&self) -> Option<String>;

    /// The objects that the owner itself applies with operations that make a new revision.
    fn own_hooks(&self) -> OwnerHooks {
        OwnerHooks::default()
    }

    /// The owner reference that objects in the owner's namespace get, so that Kubernetes deletes them with the owner. `None` if
    /// they are not deleted with the owner.
    fn reference(&self) -> Option<OwnerReference> {
        None
    }

    /// Whether the objects of the release are to have that reference.
    fn is_to_own(&self) -> bool {
        false
    }

    /// Announces an event that belongs to no status.
    fn announce(&self, event: ObjectEvent);
}

/// The desired state of a release, and the inputs for reaching it.
pub struct DesiredRelease {
    /// The part of the desired state that decisions read.
    pub desired: ReleaseDesiredState,
    /// The parsed spec of the owner.
    pub spec: Arc<ValidatedSpec>,
    /// The values that override the values of the chart. Empty without a chart.
    pub values: GoMap,
    /// The chart. `None` if the release is being uninstalled.
    pub chart: Option<Arc<LoadedChart>>,
    /// Expressions that judge objects in place of the usual rules.
    pub expressions: Arc<RunExpressions>,
    /// The values from Secrets, which no status, event or log may show.
    pub secrets: SecretMasking,
    /// The permit under which this was made. It ends when the release has its permit for applying.
    pub preparing: PreparingPermit,
}

impl DesiredRelease {
    /// Whether objects are watched for drift.
    pub(crate) fn is_observed(&self) -> bool {
        self.desired.spec.drift != DriftMode::Disabled && !self.desired.deleted
    }

    /// A text without the values of Secrets.
    pub fn masked(&self, text: &str) -> String {
        self.secrets.mask(text)
    }

    /// The state of live objects without the values of Secrets, which statuses and events of objects may quote.
    pub(crate) fn masked_live(&self, mut live: ObservedLiveObjects) -> ObservedLiveObjects {
        let hook = match &mut live.hook {
            Some(ObservedHookObject::Ours { health, .. }) => Some(health),
            _ => None,
        };
        for health in hook.into_iter().chain(&mut live.objects) {
            match health {
                ObservedHealth::Done => {}
                ObservedHealth::Failed(text) => *text = self.masked(text),
                ObservedHealth::Pending(strings) => {
                    strings.iter_mut().for_each(|text| *text = self.masked(text));
                }
            }
        }
        live
    }
}

/// Writes the status of an owner, and returns the owner as it is now.
///
/// # Errors
/// The API server refuses to write the status, or does not respond; or the owner is gone.
pub async fn write_status<K: WindlassKind + ReconciledObject>(
    context: &RunContext,
    latest: &LatestWrittenObject<K>,
    object: &Arc<K>,
    before: &K::Status,
    after: &K::Status,
) -> Result<Arc<K>, RunOutcome> {
    let written = latest.write_status(context, object, before, after).await.map_err(|error| {
        let soon = jiff::Timestamp::now().saturating_add(STATUS_RETRY_DELAY);
        let wake = NextRunTrigger::at(soon.unwrap_or(reconcile::Time::MAX));
        RunOutcome::Failed(RECONCILE_ERROR, error.to_string(), wake)
    })?;
    // The owner is gone for good, so windlass may do nothing in its name any more.
    written.ok_or_else(|| {
        RunOutcome::Stalled(RECONCILE_ERROR, format!("the {} was deleted", K::kind(&())))
    })
}

/// The namespace, name and storage of the release of a HelmRelease, from its spec.
pub(crate) fn target_of(object: &HelmRelease) -> ReleaseTarget {
    let spec = &object.spec;
    let name = object.name_any();
    let namespace = object.namespace().unwrap_or_default();
    let text = |given: &Option<String>| given.clone().unwrap_or_default();
    ReleaseTarget::of(
        &name,
        &namespace,
        &text(&spec.release_name),
        &text(&spec.target_namespace),
        &text(&spec.storage_namespace),
    )
}

/// The inventory of a revision: its objects except hooks, and the CRDs of its chart.
fn inventory<'m>(
    members: impl Iterator<Item = &'m ManifestObject>,
    chart: Option<&Chart>,
) -> ResourceInventory {
    let mut inventory = ObjectInventory::default();
    for member in members {
        inventory.insert(&member.object);
    }
    for file in chart.map(helm::chart::crds).unwrap_or_default() {
        let text = String::from_utf8_lossy(&file.file.data).into_owned();
        for object in manifest_objects::read(&text).unwrap_or_default() {
            if object.kind() == "CustomResourceDefinition" {
                inventory.insert(&object);
            }
        }
    }
    recorded(&inventory)
}
