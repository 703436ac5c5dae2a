//! Which rights an action needs, and whether the user has them. A page shows what is allowed; the API server decides again.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use objects::Object;
use serde_json::Value;
use windlass_answers::kind_argument::ResourceArgument;
use windlass_cluster::objects::AccessToObject;
use windlass_cluster::{ClusterConnection, ClusterError};

use super::ObjectAction;

/// How long an answer counts: pages that are open are made often.
const ANSWER_LIFETIME: Duration = Duration::from_secs(30);

/// How many answers are kept.
const MAX_ANSWERS: usize = 1_000;

/// The PlanPolicy that is asked about for a Plan without any.
const DEFAULT_POLICY: &str = "default";

/// A right to do something with one object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RequiredRight {
    verb: &'static str,
    group: String,
    resource: String,
    /// Empty for an object that has none.
    namespace: String,
    name: String,
}

/// The rights that an action on an object needs.
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
    // What users approve by is not in a namespace.
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
        // Whether the change is the newest is found in the list.
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

/// An answer of the API server, and when it was given.
struct ReviewedRight {
    is_allowed: bool,
    at: Instant,
}

impl ReviewedRight {
    fn counts(&self) -> bool {
        self.at.elapsed() < ANSWER_LIFETIME
    }
}

/// The rights of the user that were asked for lately.
#[derive(Default)]
pub(super) struct KnownRights {
    known: RefCell<BTreeMap<RequiredRight, ReviewedRight>>,
}

impl KnownRights {
    /// Whether the user has all of some rights.
    ///
    /// # Errors
    /// The API server does not say so, which is no right.
    pub(super) async fn has_all(
        &self,
        cluster: &ClusterConnection,
        rights: &[RequiredRight],
    ) -> Result<bool, ClusterError> {
        let answers = try_join_all(rights.iter().map(|right| self.has(cluster, right))).await?;
        Ok(answers.into_iter().all(|is_allowed| is_allowed))
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
