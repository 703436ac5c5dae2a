//! Uninstalls releases: releases that are no longer in the helmfile, and all releases of a Helmfile that is deleted. It also
//! stops operations because the Helmfile is suspended.
//!
//! Elsewhere: releases that stay (`release_reconciler.rs`), the end of a Helmfile (`finalize.rs`).

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use crds::helmfile::{HelmfileReleaseStatus, ReleaseState};
use kube_core::ResourceExt as _;
use objects::Gvk;
use parking_lot::Mutex;
use reconcile::{
    NextRunTrigger, ObjectKey, RemovalCause, RemovalRefusal, RunOutcome, condition_reason,
};
use release::storage::secret_name;

use super::helmfile_kind_differences::HelmfileCustomResource;
use super::plan::{HelmfilePlan, ReleaseKey, UnplannedReleases};
use super::release_clusters::ReleaseClusterId;
use super::release_order::{
    OrderedOperationOutcome, OrderedReleaseOperations, ReleaseOrder, in_turn,
};
use super::release_reconciler::{HelmfileRun, ReleaseGoal, ReleaseOutcomes, ReleaseProgress};
use super::suspended_releases::PermittedUninstall;
use super::{HELMFILE_ERROR, HelmfileSession, finalize, release_specification, report};
use windlass_cluster::ClusterError;
use windlass_runtime::approval_plan::{self, DeletionSubject};
use windlass_runtime::cluster_target::ClusterTarget;
use windlass_runtime::lifecycle;

/// The treatment of a release that is not in a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnplannedReleaseAction<'p> {
    /// The release is uninstalled.
    Goes,
    /// The release is no longer in the helmfile, and is given up.
    GivenUp,
    /// The helmfile has the release, but selectors or its condition leave it out. Windlass gives it up.
    LeftOut,
    /// It is not known whether the helmfile has the release, for this reason. The release is left unchanged.
    Unknown(&'p str),
}

impl<'p> UnplannedReleaseAction<'p> {
    fn of(row: &HelmfileReleaseStatus, planned: &'p HelmfilePlan, prunes: bool) -> Self {
        let key = &ReleaseKey::of(row);
        let UnplannedReleases { left_out, unread, skipped } = &planned.others;
        let hidden = || skipped.as_ref().and_then(|it| it.hides(row.helmfile.as_deref()));
        match unread.as_deref().or_else(hidden) {
            _ if planned.unwanted.contains(key) => Self::Goes,
            _ if left_out.contains(key) => Self::LeftOut,
            _ if !prunes => Self::GivenUp,
            Some(why) => Self::Unknown(why),
            None => Self::Goes,
        }
    }
}

/// The progress of a release that is not in a plan.
enum PruneProgress {
    /// The release may be uninstalled.
    Permitted(PermittedUninstall),
    /// The release has an outcome.
    Unfinished(ReleaseProgress),
    /// There is nothing to do for the release, or not yet.
    Nothing,
}

impl<K: HelmfileCustomResource> HelmfileSession<'_, K> {
    /// Uninstalls releases that are no longer in the helmfile, or gives them up. Those of a cluster wait until `kept` reports
    /// that all other releases in that cluster are as the helmfile says. `None` if the Helmfile changed meanwhile.
    pub(super) async fn prune(
        &self,
        planned: &HelmfilePlan,
        kept: &ReleaseOutcomes,
        run: &HelmfileRun<'_, K>,
    ) -> Option<ReleaseOutcomes> {
        let is_planned: BTreeSet<&ReleaseKey> = planned.releases.iter().map(|it| &it.key).collect();
        let rows = run.book.rows();
        let left = rows.iter().filter(|row| !is_planned.contains(&ReleaseKey::of(row)));
        let unsettled: BTreeSet<ReleaseClusterId<'_>> = kept
            .iter()
            .filter(|(_, it)| !it.is_kept())
            .map(|(key, _)| run.places.id(key))
            .collect();
        let mut leaving = Vec::new();
        let mut outcomes = ReleaseOutcomes::new();
        for row in left {
            // Others on this thread have their turn, however many releases there are.
            tokio::task::yield_now().await;
            match self.leave(row, planned, &unsettled, run).await? {
                PruneProgress::Permitted(removal) => leaving.push(removal),
                PruneProgress::Unfinished(progress) => {
                    drop(outcomes.insert(ReleaseKey::of(row), progress));
                }
                PruneProgress::Nothing => {}
            }
        }
        if !leaving.is_empty() {
            outcomes.extend(self.uninstall(&leaving, run).await?);
        }
        Some(outcomes)
    }

    /// Handles a release that is not in a plan. Its handling ends here, or the release may be uninstalled. `None` if the
    /// Helmfile changed meanwhile.
    async fn leave(
        &self,
        row: &HelmfileReleaseStatus,
        planned: &HelmfilePlan,
        unsettled: &BTreeSet<ReleaseClusterId<'_>>,
        run: &HelmfileRun<'_, K>,
    ) -> Option<PruneProgress> {
        let key = ReleaseKey::of(row);
        let unfinished =
            |outcome| Some(PruneProgress::Unfinished(self.unfinished(run, &key, outcome)));
        let fate = UnplannedReleaseAction::of(row, planned, run.spec.prune);
        if row.state == ReleaseState::LeftOut {
            // The release was given up before.
            if matches!(fate, UnplannedReleaseAction::Goes | UnplannedReleaseAction::GivenUp) {
                run.book.remove(&key);
            }
            return Some(PruneProgress::Nothing);
        }
        let target = match run.places.of(&key) {
            Ok(target) => Some(target),
            Err(outcome) if run.places.names(&key) => return unfinished(outcome),
            Err(_) => None,
        };
        let waits = match target {
            Some(_) => unsettled.contains(&run.places.id(&key)),
            None => !unsettled.is_empty(),
        };
        match (fate, target) {
            (UnplannedReleaseAction::Unknown(why), _) => {
                let text = format!(
                    "it is not uninstalled, because it is not known whether the helmfile still has it: {why}"
                );
                unfinished(RunOutcome::Failed(HELMFILE_ERROR, text, NextRunTrigger::default()))
            }
            (UnplannedReleaseAction::LeftOut, target) => {
                self.give_up(row, target, &NoUninstallReason::LeftOut, run).await
            }
            (UnplannedReleaseAction::Goes, Some(target)) => {
                self.remove(row, target, planned, waits, run).await
            }
            _ if waits => Some(PruneProgress::Nothing),
            (UnplannedReleaseAction::GivenUp, Some(target)) => {
                self.give_up(row, Some(target), &NoUninstallReason::NotPruned, run).await
            }
            (UnplannedReleaseAction::Goes | UnplannedReleaseAction::GivenUp, None) => {
                self.give_up(row, None, &NoUninstallReason::OutOfReach, run).await
            }
        }
    }

    /// Decides whether a release that is not in the plan may be uninstalled now. `None` if the Helmfile changed meanwhile.
    async fn remove(
        &self,
        row: &HelmfileReleaseStatus,
        target: &Arc<ClusterTarget>,
        planned: &HelmfilePlan,
        waits: bool,
        run: &HelmfileRun<'_, K>,
    ) -> Option<PruneProgress> {
        let key = ReleaseKey::of(row);
        let unfinished =
            |outcome| Some(PruneProgress::Unfinished(self.unfinished(run, &key, outcome)));
        if let Some(entry) = run.suspensions.of(&key) {
            let operation = &release_specification::unplanned();
            let remembered = self.remembered(&key, target);
            let progress = self.suspend_one(&key, operation, entry, &remembered, run).await?;
            return Some(PruneProgress::Unfinished(progress));
        }
        if waits {
            return Some(PruneProgress::Nothing);
        }
        match self.kept_elsewhere(&key, target, planned, run).await {
            Err(outcome) => return unfinished(outcome),
            Ok(Some(other)) => {
                return self.give_up(row, Some(target), &NoUninstallReason::Is(other), run).await;
            }
            Ok(None) => {}
        }
        match self.permit_removal(run, row, RemovalCause::Pruned) {
            Ok(removal) => Some(PruneProgress::Permitted(removal)),
            Err(RemovalRefusal::WindowClosed) => {
                let again = NextRunTrigger::at(self.in_future(run.timeouts.interval));
                let text = "the uninstall waits until a window opens".to_owned();
                unfinished(RunOutcome::Blocked(condition_reason::WINDOW_CLOSED, text, again))
            }
            Err(RemovalRefusal::Frozen) => unfinished(match &run.freeze {
                Some(freeze) => freeze.outcome("the uninstall"),
                None => {
                    let again = NextRunTrigger::at(self.in_future(run.timeouts.interval));
                    let text = "the uninstall waits for the end of a Freeze".to_owned();
                    RunOutcome::Blocked(condition_reason::FROZEN, text, again)
                }
            }),
            Err(RemovalRefusal::Suspended) => {
                let again = NextRunTrigger::at(self.in_future(run.timeouts.interval));
                let text = "the uninstall waits for the end of a suspension".to_owned();
                unfinished(RunOutcome::Blocked(condition_reason::SUSPENDED, text, again))
            }
        }
    }

    /// Gives a release up: it stays unchanged, and no longer belongs to this Helmfile. A running operation on it ends first.
    /// `None` if the Helmfile changed meanwhile.
    async fn give_up(
        &self,
        row: &HelmfileReleaseStatus,
        target: Option<&Arc<ClusterTarget>>,
        why: &NoUninstallReason,
        run: &HelmfileRun<'_, K>,
    ) -> Option<PruneProgress> {
        let key = ReleaseKey::of(row);
        if let Some(target) = target
            && let Some(outcome) = self.stop_unplanned(row, target, run).await?
        {
            return Some(PruneProgress::Unfinished(ReleaseProgress::Unfinished(outcome)));
        }
        match why {
            // Without its history in this row, a new owner that selects the release takes it over.
            NoUninstallReason::LeftOut => run.book.update(&key, |row| {
                *row = HelmfileReleaseStatus {
                    kube_context: key.context.clone(),
                    name: key.name.clone(),
                    namespace: key.namespace.clone(),
                    state: ReleaseState::LeftOut,
                    message: Some(NoUninstallReason::LeftOut.to_string()),
                    ..HelmfileReleaseStatus::default()
                };
            }),
            _ => run.book.remove(&key),
        }
        self.forget(&key);
        self.dismiss_all(&key, run).await;
        run.book.tell(finalize::given_up(&key, why));
        Some(PruneProgress::Nothing)
    }

    /// Deletes the lifecycle events and Plans of a release, since nothing waits for them any more.
    async fn dismiss_all(&self, key: &ReleaseKey, run: &HelmfileRun<'_, K>) {
        let uid = run.object.uid().unwrap_or_default();
        let release = (&*key.name, &*key.namespace, &*key.context);
        lifecycle::dismiss_all(&self.context, &self.node.namespace, &uid, release).await;
        let release = &key.to_string();
        let subject = DeletionSubject { release, ..DeletionSubject::of(&self.node, &uid) };
        let dismissed = approval_plan::dismiss(&self.context, &subject, None).await;
        let dismissed = match dismissed {
            Ok(()) => self.dismiss_hook_plans(key, run).await,
            error => error,
        };
        if let Err(error) = dismissed {
            let ObjectKey { namespace, name, .. } = &self.node;
            tracing::warn!(namespace, name, release, "its Plan cannot be deleted: {error}");
        }
    }

    /// The release of a plan that is the same as a release that left the plan, because two contexts name one cluster.
    ///
    /// # Errors
    /// A cluster could not be asked.
    async fn kept_elsewhere(
        &self,
        key: &ReleaseKey,
        target: &ClusterTarget,
        planned: &HelmfilePlan,
        run: &HelmfileRun<'_, K>,
    ) -> Result<Option<ReleaseKey>, RunOutcome> {
        for other in planned.namesakes(key) {
            // A cluster that cannot be used may be the same one, so windlass waits for it.
            let place = run.places.of(other)?;
            if place.place() == target.place() {
                return Ok(Some(other.clone()));
            }
            let revisions = [other, key].map(|key| run.book.row(key).and_then(|row| row.revision));
            for revision in revisions.into_iter().flatten() {
                let record = secret_name(&other.name, revision);
                let failed = |error: ClusterError| {
                    let text = format!("release {key}: unable to compare it with {other}: {error}");
                    let again = NextRunTrigger::at(self.in_future(run.timeouts.retry));
                    RunOutcome::Failed(report::RELEASE_FAILED, run.secrets.mask(&text), again)
                };
                let here = uid_of(place, &other.namespace, &record).await;
                let there = uid_of(target, &other.namespace, &record).await;
                let here = here.map_err(failed)?;
                let there = there.map_err(failed)?;
                if here.is_some() && here == there {
                    return Ok(Some(other.clone()));
                }
            }
        }
        Ok(None)
    }

    /// Runs operations that are under way to the next place at which nothing is half done. Returns the releases that are not
    /// there yet. `None` if the Helmfile changed meanwhile.
    pub(super) async fn stop_all(&self, run: &HelmfileRun<'_, K>) -> Option<ReleaseOutcomes> {
        let mut outcomes = ReleaseOutcomes::new();
        for row in run.book.rows() {
            tokio::task::yield_now().await;
            let key = ReleaseKey::of(&row);
            // An unreachable cluster has no operation that could go on.
            let Ok(target) = run.places.of(&key) else { continue };
            if let Some(outcome) = self.stop_unplanned(&row, target, run).await? {
                outcomes.insert(key, ReleaseProgress::Unfinished(outcome));
            }
        }
        Some(outcomes)
    }

    /// Uninstalls releases, each before the releases that it needs. Returns the outcomes of releases that are not gone yet.
    /// `None` if the Helmfile changed meanwhile.
    pub(super) async fn uninstall(
        &self,
        leaving: &[PermittedUninstall],
        run: &HelmfileRun<'_, K>,
    ) -> Option<ReleaseOutcomes> {
        for PermittedUninstall { key, .. } in leaving {
            // The state of the row does not hold any more, also if the helmfile has the release again.
            run.book.update(key, |row| {
                (row.state, row.digest) = (ReleaseState::Uninstalling, None);
            });
        }
        let keys: Vec<ReleaseKey> = leaving.iter().map(|it| it.key.clone()).collect();
        let uninstalling =
            UninstallingReleases { session: self, leaving, run, outcomes: Mutex::default() };
        let order = ReleaseOrder::of_removal(&keys, &run.book.rows());
        let left = in_turn(order, &uninstalling).await?;
        let outcomes = uninstalling.outcomes.into_inner();
        let mut outcomes = outcomes;
        outcomes.extend(left.into_iter().map(|at| (keys[at].clone(), ReleaseProgress::Waits)));
        Some(outcomes)
    }

    async fn uninstall_one(
        &self,
        removal: &PermittedUninstall,
        run: &HelmfileRun<'_, K>,
    ) -> Option<RunOutcome> {
        let PermittedUninstall { key, permit } = removal;
        let found = run.places.of(key);
        let unreachable =
            found.as_ref().ok().and_then(|target| run.unreachable_clusters.at(target));
        let target = match (found, unreachable) {
            (Ok(target), None) => target,
            (Err(outcome), _) | (_, Some(outcome)) => {
                self.unfinished(run, key, outcome.clone());
                return Some(outcome);
            }
        };
        let operation = &release_specification::unplanned();
        let row = run.book.row(key);
        let goal = ReleaseGoal::Removed(*permit);
        let desired_release = match self.desired_release(run, key, operation, goal, row.as_ref()) {
            Ok(desired_release) => desired_release,
            Err(outcome) => {
                self.unfinished(run, key, outcome.clone());
                return Some(outcome);
            }
        };
        let remembered = self.remembered(key, target);
        remembered.changes();
        let owner = Arc::new(self.owner(run, key));
        self.drive(run, &owner, &desired_release, &remembered).await
    }
}

/// The releases that are uninstalled, in their turns.
struct UninstallingReleases<'k, K: HelmfileCustomResource> {
    session: &'k HelmfileSession<'k, K>,
    leaving: &'k [PermittedUninstall],
    run: &'k HelmfileRun<'k, K>,
    outcomes: Mutex<ReleaseOutcomes>,
}

impl<K: HelmfileCustomResource> OrderedReleaseOperations for UninstallingReleases<'_, K> {
    fn place(&self, release: usize) -> ReleaseClusterId<'_> {
        self.run.places.id(&self.leaving[release].key)
    }

    fn is_due(&self, _: usize) -> bool {
        true
    }

    async fn turn(&self, release: usize) -> OrderedOperationOutcome {
        let removal = &self.leaving[release];
        let Some(outcome) = self.session.uninstall_one(removal, self.run).await else {
            return OrderedOperationOutcome::Overtaken;
        };
        if outcome.is_settled() {
            self.run.book.remove(&removal.key);
            self.session.forget(&removal.key);
            self.session.dismiss_all(&removal.key, self.run).await;
            return OrderedOperationOutcome::On;
        }
        let mut outcomes = self.outcomes.lock();
        outcomes.insert(removal.key.clone(), ReleaseProgress::Unfinished(outcome));
        OrderedOperationOutcome::Stays
    }
}

/// The reason why a release that is given up stays in the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NoUninstallReason {
    /// `prune` is not set.
    NotPruned,
    /// The spec does not name the cluster of the release any more.
    OutOfReach,
    /// Selectors or its condition leave it out.
    LeftOut,
    /// The release is suspended, and the Helmfile is deleted.
    Suspended,
    /// The release is the same as this release of the plan, under another name.
    Is(ReleaseKey),
}

impl fmt::Display for NoUninstallReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPruned => f.write_str(
                "it is not in the helmfile any more and stays in the cluster, because spec.prune is not set",
            ),
            Self::OutOfReach => f.write_str(
                "it is not in the helmfile any more and stays in the cluster, because spec.kubeContexts no longer names its \
                 cluster",
            ),
            Self::LeftOut => f.write_str(
                "selectors or its condition leave it out: it stays in the cluster as it is, until this or another Helmfile \
                 selects it",
            ),
            Self::Suspended => f.write_str(
                "it is suspended by spec.suspendedReleases and stays in the cluster, although the Helmfile is deleted",
            ),
            Self::Is(other) => write!(
                f,
                "it is not in the helmfile any more and stays in the cluster, because it is {other}: both contexts name one \
                 cluster"
            ),
        }
    }
}

/// The uid of the Secret with the record of a revision. `None` if there is no such Secret.
async fn uid_of(
    target: &ClusterTarget,
    namespace: &str,
    record: &str,
) -> Result<Option<String>, ClusterError> {
    let secrets = target.cluster.resource(&Gvk::new("v1", "Secret")).await?;
    let found = target.cluster.get(&secrets, namespace, record).await?;
    Ok(found.map(|it| it.uid().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::super::plan::SkippedHelmfiles;
    use super::super::testing::key;
    use super::*;

    fn row(name: &str, helmfile: Option<&str>) -> HelmfileReleaseStatus {
        let ReleaseKey { namespace, name, .. } = key(name);
        let helmfile = helmfile.map(str::to_owned);
        HelmfileReleaseStatus { name, namespace, helmfile, ..HelmfileReleaseStatus::default() }
    }

    #[test]
    fn what_a_skipped_helmfile_may_have_is_not_uninstalled() {
        let read = BTreeSet::from(["a.yaml".to_owned()]);
        let skipped = Some(SkippedHelmfiles { why: "b.yaml".to_owned(), read });
        let others = UnplannedReleases { skipped, ..UnplannedReleases::default() };
        let planned = HelmfilePlan { others, ..HelmfilePlan::default() };
        for (helmfile, expected) in [
            (Some("a.yaml"), UnplannedReleaseAction::Goes),
            (Some("b.yaml"), UnplannedReleaseAction::Unknown("b.yaml")),
            (Some("below/c.yaml"), UnplannedReleaseAction::Unknown("b.yaml")),
            (None, UnplannedReleaseAction::Unknown("b.yaml")),
        ] {
            assert_eq!(
                UnplannedReleaseAction::of(&row("web", helmfile), &planned, true),
                expected,
                "{helmfile:?}"
            );
        }
    }

    #[test]
    fn only_what_is_known_to_have_left_the_helmfile_is_uninstalled() {
        let planned = |unread: Option<&str>| {
            let left_out = [key("narrowed")].into();
            let unread = unread.map(str::to_owned);
            let others = UnplannedReleases { left_out, unread, skipped: None };
            HelmfilePlan { unwanted: [key("off")].into(), others, ..HelmfilePlan::default() }
        };
        let read = planned(None);
        let unread = planned(Some("no values"));
        for (planned, prunes, expected) in [
            (
                &read,
                true,
                [
                    UnplannedReleaseAction::Goes,
                    UnplannedReleaseAction::LeftOut,
                    UnplannedReleaseAction::Goes,
                ],
            ),
            (
                &read,
                false,
                [
                    UnplannedReleaseAction::Goes,
                    UnplannedReleaseAction::LeftOut,
                    UnplannedReleaseAction::GivenUp,
                ],
            ),
            (
                &unread,
                true,
                [
                    UnplannedReleaseAction::Goes,
                    UnplannedReleaseAction::LeftOut,
                    UnplannedReleaseAction::Unknown("no values"),
                ],
            ),
            (
                &unread,
                false,
                [
                    UnplannedReleaseAction::Goes,
                    UnplannedReleaseAction::LeftOut,
                    UnplannedReleaseAction::GivenUp,
                ],
            ),
        ] {
            let fates = ["off", "narrowed", "gone"]
                .map(|name| UnplannedReleaseAction::of(&row(name, None), planned, prunes));
            assert_eq!(fates, expected, "{prunes}");
        }
    }
}
