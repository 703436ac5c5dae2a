//! Members that never began the revision of a change, because a dependency of them was rolled back in it. They have the earlier
//! result, so the change is over for them, too. Otherwise it would have no end, and a requested rollback would not complete.
//!
//! A member that waits for something else may still begin. Elsewhere: states from statuses (`observed_members`), and the way
//! back of members that did begin (`kustomize_controller`).

use std::collections::{BTreeMap, BTreeSet};

use changes::member_state::MemberState;
use crds::kustomize::Kustomization;
use reconcile::{ObjectKey, Time};

use windlass_runtime::dependency_gate::{has_expression, node_of_entry};
use windlass_runtime::run_context::RunContext;

use super::followed_change::FollowedChange;
use super::observed_members::{never_began, quarantines_in_force};
use super::observed_sources::SourceConsumer;

/// The Kustomizations that have to be ready before a Kustomization begins, except those that an expression judges.
fn required(object: &Kustomization, namespace: &str) -> Vec<ObjectKey> {
    let entries = object.spec.depends_on.iter();
    let required = entries.filter(|it| it.ready != Some(false) && !has_expression(it));
    required.filter_map(|it| node_of_entry::<Kustomization>(it, namespace)).collect()
}

/// Ends the members of a change that never began, and that need a member which was rolled back. It may be needed through other
/// members that never began.
pub(crate) fn end_members(
    context: &RunContext,
    change: &mut FollowedChange,
    consumers: &[SourceConsumer],
    now: Time,
) {
    let mut rolled_back = BTreeSet::new();
    let mut unbegun = BTreeMap::new();
    for consumer in consumers {
        let SourceConsumer::Kustomization(object) = consumer else { continue };
        let key = consumer.key();
        let state = change.state_of(&key);
        let is_rolled_back = state == Some(MemberState::RolledBack);
        if !is_rolled_back && state != Some(MemberState::Waiting) {
            continue;
        }
        if never_began(object, &change.spec.revision) {
            // A run that has passed its gate may not have written anything yet.
            if context.work_queue.is_due(&key) {
                continue;
            }
            let required = required(object, &key.namespace);
            unbegun.insert(key, required);
        } else if is_rolled_back
            && windlass_quarantine::has_gone_back(object, &quarantines_in_force(context, object))
        {
            rolled_back.insert(key);
        }
    }
    for key in without_dependency(&rolled_back, &unbegun) {
        change.end_without_attempt(key, now);
    }
}

/// The members among `unbegun` that need one of `rolled_back`. `unbegun` has what each of its members needs.
fn without_dependency(
    rolled_back: &BTreeSet<ObjectKey>,
    unbegun: &BTreeMap<ObjectKey, Vec<ObjectKey>>,
) -> BTreeSet<ObjectKey> {
    let mut dependents: BTreeMap<&ObjectKey, Vec<&ObjectKey>> = BTreeMap::new();
    for (key, required) in unbegun {
        for dependency in required {
            dependents.entry(dependency).or_default().push(key);
        }
    }
    let mut found = BTreeSet::new();
    let mut pending: Vec<&ObjectKey> = rolled_back.iter().collect();
    while let Some(key) = pending.pop() {
        for &dependent in dependents.get(key).into_iter().flatten() {
            if found.insert(dependent.clone()) {
                pending.push(dependent);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new("kustomize.toolkit.fluxcd.io", "Kustomization", "shop", name)
    }

    #[test]
    fn members_that_need_a_rolled_back_one_end_also_through_others_that_never_began() {
        let rolled_back = BTreeSet::from([key("base")]);
        let unbegun = BTreeMap::from([
            (key("mid"), vec![key("base"), key("ready")]),
            (key("web"), vec![key("mid")]),
            (key("other"), vec![key("failed")]),
            (key("cycle"), vec![key("cycle")]),
        ]);
        let ended = without_dependency(&rolled_back, &unbegun);
        assert_eq!(ended, BTreeSet::from([key("mid"), key("web")]));
        assert!(without_dependency(&BTreeSet::new(), &unbegun).is_empty());
    }

    #[test]
    fn only_kustomizations_that_have_to_be_ready_are_required() {
        let of = |entry: Value| {
            let source = json!({"kind": "GitRepository", "name": "g"});
            let object: Kustomization = serde_json::from_value(json!({"metadata": {"name": "web"},
                "spec": {"interval": "1m", "prune": true, "sourceRef": source, "dependsOn": [entry]}}))
            .unwrap();
            required(&object, "shop")
        };
        assert_eq!(of(json!({"name": "base"})), [key("base")]);
        let elsewhere = of(json!({"name": "base", "namespace": "infra"}));
        assert_eq!(elsewhere[0].namespace, "infra");
        assert!(of(json!({"name": "base", "ready": false})).is_empty());
        assert!(of(json!({"name": "base", "readyExpr": "true"})).is_empty());
        let release = json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "name": "base"});
        assert_ne!(of(release), [key("base")]);
    }
}
