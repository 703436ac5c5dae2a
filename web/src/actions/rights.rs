//! Finds out which rights an action needs, and whether the user has them. A page shows only allowed actions. The API server
//! decides again when the user sends the form.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures::future::join_all;
use objects::Object;
use serde_json::Value;
use windlass_answers::branch_plan::PLAN_VERB;
use windlass_answers::kind_argument::ResourceArgument;
use windlass_cluster::untyped_objects::AccessToObject;
use windlass_cluster::{ClusterConnection, ClusterError};

use super::ObjectAction;

/// How long the answer of an access review is reused, because open pages are rendered often.
const ANSWER_LIFETIME: Duration = Duration::from_secs(30);

/// How many answers of access reviews are kept.
const MAX_ANSWERS: usize = 1_000;

/// The PlanPolicy that the access review names for a Plan without a PlanPolicy.
const DEFAULT_POLICY: &str = "default";

/// The right to use one verb on one object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RequiredRight {
    verb: &'static str,
    group: String,
    resource: String,
    /// Empty for an object without a namespace.
    namespace: String,
    name: String,
}

/// The rights that the user needs for an action on an object.
pub(super) fn required(
    action: ObjectAction,
    target: &ResourceArgument,
    object: &Object,
) -> Vec<RequiredRight> {
    let gvk = &target.resource.gvk;
    let plural = &target.resource.plural;
    let own = |verb: &'static str, resource: String| RequiredRight {
        verb,
        group: gvk.group.clone(),
        resource,
        namespace: object.namespace().to_owned(),
        name: object.name().to_owned(),
    };
    // The verb `approve` applies to a cluster-scoped resource.
    let approve = |resource: &str, name: &str| RequiredRight {
        verb: "approve",
        group: gvk.group.clone(),
        resource: resource.to_owned(),
        namespace: String::new(),
        name: name.to_owned(),
    };
    let status = || own("patch", format!("{plural}/status"));
    let spec = object.get("spec").unwrap_or(&Value::Null);
    match action {
        ObjectAction::Reconcile | ObjectAction::Suspend | ObjectAction::Resume => {
            vec![own("patch", plural.clone())]
        }
        ObjectAction::Silence => vec![status(), own("silence", plural.clone())],
        ObjectAction::Plan => vec![own(PLAN_VERB, plural.clone())],
        // To find out whether the change is the newest one, windlass lists the changes.
        ObjectAction::RollBack => {
            vec![status(), own("list", plural.clone()), own("rollback", plural.clone())]
        }
        ObjectAction::Approve | ObjectAction::Reject if object.kind() == "Plan" => {
            let policies = spec["policies"].as_array().into_iter().flatten();
            let mut names: Vec<&str> = policies.filter_map(Value::as_str).collect();
            if names.is_empty() {
                names.push(DEFAULT_POLICY);
            }
            let policies = names.into_iter().map(|name| approve("planpolicies", name));
            [status()].into_iter().chain(policies).collect()
        }
        ObjectAction::Approve | ObjectAction::Reject => {
            let lifecycle = spec["lifecycle"].as_str().unwrap_or_default();
            vec![status(), approve("lifecycles", lifecycle)]
        }
    }
}

/// The answer of an access review, and when the API server gave it.
struct ReviewedRight {
    is_allowed: bool,
    at: Instant,
}

impl ReviewedRight {
    fn counts(&self) -> bool {
        self.at.elapsed() < ANSWER_LIFETIME
    }
}

/// The recent answers of access reviews for this user.
#[derive(Default)]
pub(super) struct AccessReviewCache {
    known: RefCell<BTreeMap<RequiredRight, ReviewedRight>>,
}

impl AccessReviewCache {
    /// Whether the user has all of the given rights.
    ///
    /// # Errors
    /// This is not known: the API server has denied none of the rights, and did not answer an access review.
    pub(super) async fn has_all(
        &self,
        cluster: &ClusterConnection,
        rights: &[RequiredRight],
    ) -> Result<bool, ClusterError> {
        let answers = join_all(rights.iter().map(|right| self.has(cluster, right))).await;
        if answers.iter().any(|answer| matches!(answer, Ok(false))) {
            return Ok(false);
        }
        answers.into_iter().find_map(Result::err).map_or(Ok(true), Err)
    }

    async fn has(
        &self,
        cluster: &ClusterConnection,
        right: &RequiredRight,
    ) -> Result<bool, ClusterError> {
        let known = self.known.borrow().get(right).filter(|it| it.counts()).map(|it| it.is_allowed);
        if let Some(is_allowed) = known {
            return Ok(is_allowed);
        }
        let RequiredRight { verb, group, resource, namespace, name } = right;
        let access = AccessToObject { verb, group, resource, name };
        let is_allowed = cluster.may_access(namespace, access).await?.is_allowed;
        let mut known = self.known.borrow_mut();
        if known.len() >= MAX_ANSWERS {
            known.clear();
        }
        known.insert(right.clone(), ReviewedRight { is_allowed, at: Instant::now() });
        Ok(is_allowed)
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use serde_json::json;
    use windlass_cluster::discovery::ApiResourceLocation;

    use super::*;

    fn rights(action: ObjectAction, plural: &str, object: Value) -> Vec<String> {
        let object = Object::new(object).unwrap();
        let gvk = object.gvk();
        let plural = plural.to_owned();
        let resource = ApiResourceLocation { gvk, plural, namespaced: true, watchable: true };
        let target = ResourceArgument { resource, namespace: None, name: None };
        let all = required(action, &target, &object);
        let words = all
            .into_iter()
            .map(|it| format!("{} {} {}/{}", it.verb, it.resource, it.namespace, it.name));
        words.collect()
    }

    #[tokio::test]
    async fn a_right_that_is_denied_decides_also_if_another_one_is_not_known() {
        let cluster = fake_cluster::answering(|(_, body)| {
            match body["spec"]["resourceAttributes"]["verb"] == "list" {
                true => (500, Body::from("{}")),
                false => (201, Body::from(json!({"status": {"allowed": false}}).to_string())),
            }
        });
        let cluster = cluster.await;
        let right = |verb: &'static str| RequiredRight {
            verb,
            group: "release.windlass.dev".to_owned(),
            resource: "changesets".to_owned(),
            namespace: "apps".to_owned(),
            name: "a".to_owned(),
        };
        let reviews = AccessReviewCache::default();
        let found = reviews.has_all(&cluster, &[right("list"), right("rollback")]).await;
        assert!(matches!(found, Ok(false)), "{found:?}");
        let found = reviews.has_all(&cluster, &[right("list")]).await;
        assert!(found.is_err(), "{found:?}");
    }

    #[test]
    fn an_action_needs_the_rights_that_its_policy_asks_for() {
        let of = |version: &str, kind: &str, spec: Value| {
            json!({"apiVersion": version, "kind": kind,
                "metadata": {"name": "a", "namespace": "apps"}, "spec": spec})
        };
        let release = "release.windlass.dev/v1alpha1";
        let app = of("kustomize.toolkit.fluxcd.io/v1", "Kustomization", json!({}));
        let found = rights(ObjectAction::Suspend, "kustomizations", app);
        assert_eq!(found, ["patch kustomizations apps/a"]);
        let plan = |policies: Value| of(release, "Plan", json!({"policies": policies}));
        let found = rights(ObjectAction::Approve, "plans", plan(json!(["prod", "shop"])));
        let expected = [
            "patch plans/status apps/a",
            "approve planpolicies /prod",
            "approve planpolicies /shop",
        ];
        assert_eq!(found, expected);
        let found = rights(ObjectAction::Reject, "plans", plan(Value::Null));
        assert_eq!(found, ["patch plans/status apps/a", "approve planpolicies /default"]);
        let incident = of("notification.windlass.dev/v1alpha1", "Incident", json!({}));
        let found = rights(ObjectAction::Silence, "incidents", incident);
        assert_eq!(found, ["patch incidents/status apps/a", "silence incidents apps/a"]);
        let source = of("source.toolkit.fluxcd.io/v1", "GitRepository", json!({}));
        let found = rights(ObjectAction::Plan, "gitrepositories", source);
        assert_eq!(found, ["plan gitrepositories apps/a"]);
        let event =
            of("lifecycle.windlass.dev/v1alpha1", "LifecycleEvent", json!({"lifecycle": "l"}));
        let found = rights(ObjectAction::Approve, "lifecycleevents", event);
        assert_eq!(found, ["patch lifecycleevents/status apps/a", "approve lifecycles /l"]);
        let found =
            rights(ObjectAction::RollBack, "changesets", of(release, "ChangeSet", json!({})));
        let expected = [
            "patch changesets/status apps/a",
            "list changesets apps/a",
            "rollback changesets apps/a",
        ];
        assert_eq!(found, expected);
    }
}
