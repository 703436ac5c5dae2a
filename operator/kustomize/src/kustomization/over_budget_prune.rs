//! Deletions that are beyond the budget: what users read of them, and the Plan that they approve.
//!
//! Differs(flux): kustomize-controller deletes whatever left the manifests at once.
//!
//! Here: what a run found out, the condition, the Plan after a run. Elsewhere: judging what is to be deleted
//! (`executor/deletion_judgement.rs`), what a budget allows (`apply::deletion_budget`), Plans and PlanPolicies
//! (`windlass_runtime::approval_plan`).

use std::sync::Arc;

use apply::ApplyDesiredState;
use crds::ReconciledObject as _;
use crds::kustomize::Kustomization;
use kube_core::{Resource as _, ResourceExt as _};
use reconcile::{DELETION_HELD, NextRunTrigger, RunOutcome};

use super::executor::ApplySettings;
use super::lifecycle_holds::LifecycleClearance;
use super::{KustomizationRunReport, KustomizationRunResults, KustomizationSession};
use windlass_runtime::approval_plan::{
    self, ApprovalPlanRequest, BudgetedDeletion, DeletionSubject, PLAN_FAILED,
};
use windlass_runtime::cluster_target::ClusterTarget;

/// The advice if users cannot approve, because Plans do not exist.
const NO_PLANS: &str = "add them to the manifests again, or set the annotation kustomize.toolkit.fluxcd.io/prune: disabled on \
                        those that are to stay; to approve deletions, install the CustomResourceDefinitions \
                        planpolicies.release.windlass.dev and plans.release.windlass.dev";

/// The judgement about the objects that left the manifests.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum DeletionJudgement {
    /// The run did not get that far.
    #[default]
    NotJudged,
    /// There is nothing to delete, or the deletion is within the budget.
    Free,
    /// A user approved the deletion, which has not come to its end.
    Approved,
    /// The deletion exceeds the budget.
    Held(Box<BudgetedDeletion>),
}

/// The report of a run about held deletions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum DeletionReport {
    /// The former report stays.
    #[default]
    AsBefore,
    /// None is held.
    Free,
    /// Some deletions are held, with the message about them.
    Held {
        /// The message.
        text: String,
        /// Whether these are held for the first time, so that an event announces it.
        is_new: bool,
    },
}

/// Whether the status reports deletions that are held.
fn is_held(object: &Kustomization) -> bool {
    object.condition(DELETION_HELD).is_some_and(|it| it.status == "True")
}

impl KustomizationSession<'_> {
    /// Whether deletions of a Kustomization are held, by its status or by a Plan that its status does not report yet.
    pub(super) fn holds_deletions(&self, object: &Kustomization) -> bool {
        let uid = object.uid().unwrap_or_default();
        let subject = DeletionSubject::of(&self.node, &uid);
        is_held(object) || approval_plan::has_plans(&self.context, &subject)
    }

    /// Applies a build, and has users asked about deletions that are beyond the budget.
    pub(super) async fn drive_within_budget(
        &self,
        passed: &LifecycleClearance,
        object: &Arc<Kustomization>,
        desired: Arc<ApplyDesiredState>,
        apply_settings: ApplySettings,
        target: &Arc<ClusterTarget>,
    ) -> (KustomizationRunReport, KustomizationRunResults) {
        let (mut ended, done) = self.drive(passed, object, desired, apply_settings, target).await;
        match &done.deletion {
            DeletionJudgement::NotJudged | DeletionJudgement::Approved => {}
            DeletionJudgement::Free => {
                ended.came.deletion = DeletionReport::Free;
                // The approval keeps the objects approved until they are out of the inventory, also if a run fails for another
                // reason. It must not last longer, since it would count for another deletion of the same objects.
                if !done.has_unrecorded_deletions {
                    // The approval of a result is for the whole attempt at it, with the wait for its health.
                    let is_settled = ended.outcome.is_settled();
                    let kept = done.approved_plan.as_deref().filter(|_| !is_settled);
                    self.dismiss_plans(object, kept, &mut ended).await;
                }
            }
            DeletionJudgement::Held(deletion) => {
                self.request_approval(object, deletion, &mut ended).await;
            }
        }
        (ended, done)
    }

    /// Deletes the Plans of a Kustomization that holds no deletion, except one. The approved deletions are done.
    async fn dismiss_plans(
        &self,
        object: &Kustomization,
        kept: Option<&str>,
        ended: &mut KustomizationRunReport,
    ) {
        let uid = object.uid().unwrap_or_default();
        let subject = DeletionSubject::of(&self.node, &uid);
        if let Err(error) = approval_plan::dismiss(&self.context, &subject, kept).await
            && ended.outcome.is_settled()
        {
            // The approval of the Plan would count for another deletion of the same objects.
            let text = format!("a Plan that is carried out cannot be deleted: {error}");
            ended.outcome = RunOutcome::Failed(PLAN_FAILED, text, NextRunTrigger::default());
        }
    }

    /// Creates the Plan of a held deletion, and reports it.
    async fn request_approval(
        &self,
        object: &Kustomization,
        deletion: &BudgetedDeletion,
        ended: &mut KustomizationRunReport,
    ) {
        let uid = object.uid().unwrap_or_default();
        let request = ApprovalPlanRequest {
            subject: DeletionSubject::of(&self.node, &uid),
            owner: object.owner_ref(&()),
            revision: &ended.came.revision,
            deletion,
            changes: None,
        };
        let now = jiff::Timestamp::now();
        let plan = approval_plan::request(&self.context, &request, now).await;
        let namespace = &self.node.namespace;
        let plan = match plan {
            Ok(plan) => plan,
            Err(error) => {
                // The deletion stays held. The run's other outcome is more important.
                if ended.outcome.is_settled() {
                    let text = format!("a Plan cannot be created or deleted: {error}");
                    ended.outcome =
                        RunOutcome::Failed(PLAN_FAILED, text, NextRunTrigger::default());
                }
                return;
            }
        };
        if let RunOutcome::Settled(_, text) = &mut ended.outcome {
            *text = format!("{text}; {}", summary(deletion));
        }
        // A Plan may exist that was not announced, if windlass was stopped in between. Without Plans, only the condition shows
        // it.
        let is_new = !is_held(object) || plan.as_ref().is_some_and(|plan| plan.is_new);
        let name = plan.as_ref().map(|plan| plan.name.as_str());
        let note = plan.as_ref().map(|plan| plan.note.as_str()).unwrap_or_default();
        let text = match plan.as_ref().and_then(|plan| plan.rejection.as_deref()) {
            Some(rejection) => format!("{}; their deletion {rejection}", withheld(deletion)),
            None => format!("{}{note}", message(deletion, namespace, name)),
        };
        ended.came.deletion = DeletionReport::Held { text, is_new };
    }
}

/// The text of `Ready` about a held deletion.
fn summary(deletion: &BudgetedDeletion) -> String {
    match deletion.ids.len() {
        1 => "the deletion of 1 object is held".to_owned(),
        count => format!("the deletion of {count} objects is held"),
    }
}

/// The number of held objects, and the first of them.
fn withheld(deletion: &BudgetedDeletion) -> String {
    let what = match deletion.ids.len() {
        1 => "1 object that left the manifests is not deleted".to_owned(),
        count => format!("{count} objects that left the manifests are not deleted"),
    };
    format!("{what}: {}", deletion.named_objects())
}

/// The message about a held deletion: the number of objects, the first of them, the reason, and the advice.
fn message(deletion: &BudgetedDeletion, namespace: &str, plan: Option<&str>) -> String {
    let advice = match plan {
        Some(plan) => format!(
            "to delete them, run `windlass approve plan/{plan} -n {namespace}`; to keep them, add them to the manifests again"
        ),
        None => NO_PLANS.to_owned(),
    };
    let rules = deletion.exceeded_rules();
    format!("{}; the deletion budget: {rules}; {advice}", withheld(deletion))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use apply::deletion_budget::{DeletedObject, DeletionBudget, DeletionToJudge};
    use objects::{Object, ObjectId};
    use serde_json::json;
    use windlass_runtime::approval_plan::approvals::ApprovalRequirements;

    use super::*;

    fn deletion(count: usize, kind: &str, budget: DeletionBudget) -> BudgetedDeletion {
        let object = |at: usize| {
            let metadata = json!({"name": format!("o{at:02}"), "namespace": "shop"});
            Object::new(json!({"apiVersion": "v1", "kind": kind, "metadata": metadata})).unwrap()
        };
        let objects: Vec<Object> = (0..count).map(object).collect();
        let pending = DeletionToJudge {
            objects: objects.iter().map(|it| DeletedObject::new(it, false)).collect(),
            of: 100,
            recent: Some(0),
            ..DeletionToJudge::default()
        };
        let ids: BTreeSet<ObjectId> = objects.iter().map(Object::id).collect();
        let verdict = budget.verdict(&pending);
        let terms = ApprovalRequirements::default();
        BudgetedDeletion { ids, verdict, budget, terms, newest: None }
    }

    #[test]
    fn the_message_names_objects_rules_and_the_command() {
        let many = deletion(12, "ConfigMap", DeletionBudget::default());
        let text = message(&many, "shop", Some("apps-0123456789abcdef"));
        assert!(text.starts_with("12 objects that left the manifests are not deleted: "), "{text}");
        assert!(
            text.contains(
                "ConfigMap/shop/o09, 2 more; the deletion budget: more than 10 objects; "
            ),
            "{text}"
        );
        assert!(text.contains("`windlass approve plan/apps-0123456789abcdef -n shop`"), "{text}");
        assert_eq!(summary(&many), "the deletion of 12 objects is held");
        let one = deletion(1, "PersistentVolumeClaim", DeletionBudget::default());
        let text = message(&one, "shop", None);
        assert!(text.starts_with("1 object that left the manifests is not deleted: "), "{text}");
        assert!(text.contains("install the CustomResourceDefinitions"), "{text}");
        assert!(!text.contains("windlass approve"), "{text}");
    }

    #[test]
    fn a_deletion_within_the_budget_may_wait_for_an_earlier_one() {
        let text = message(&deletion(2, "ConfigMap", DeletionBudget::default()), "shop", Some("p"));
        assert!(text.contains("an earlier deletion still waits for approval"), "{text}");
    }
}
