//! Finds the objects that Freezes currently hold.
//!
//! Elsewhere: whether a Freeze denies changes, and for which objects (`windlass_runtime::freeze`), the table of objects
//! (`object_row.rs`).

use std::collections::BTreeMap;

use cause::{condition, object_references};
use crds::windlass_release::{FreezeKind, FreezeSpec, FreezeStatus};
use objects::{Gvk, Object, ObjectId};
use reconcile::{FREEZE, Time, condition_reason};
use serde_json::Value;

use super::command_scope::CommandScope;
use super::kind_argument::ResourceArgument;
use windlass_cluster::ClusterError;
use windlass_runtime::freeze::{calendar, selects};

/// The maximum number of objects that a table row names.
const MAX_NAMED_OBJECTS: usize = 3;

/// The kinds whose objects Freezes can hold.
const HELD_KINDS: [FreezeKind; 4] = [
    FreezeKind::Kustomization,
    FreezeKind::HelmRelease,
    FreezeKind::Helmfile,
    FreezeKind::ImageUpdateAutomation,
];

/// Whether Freezes can hold objects of this kind.
pub fn is_held_by_freezes(id: &ObjectId) -> bool {
    object_references::is_reconciled(id) && HELD_KINDS.iter().any(|it| it.as_str() == id.kind)
}

/// Whether an object is a Freeze.
pub fn is_freeze(gvk: &Gvk) -> bool {
    gvk.kind == "Freeze" && gvk.group == "release.windlass.dev"
}

/// The objects of a cluster that Freezes currently hold.
#[derive(Debug, Default)]
pub struct FrozenObjects {
    objects: Vec<Object>,
    /// The labels of the namespaces.
    labels: BTreeMap<String, BTreeMap<String, String>>,
    /// Messages about objects that could not be listed.
    pub(crate) left_out: Vec<String>,
}

impl FrozenObjects {
    /// Reads the objects in all namespaces that wait for the end of a Freeze. If no Freeze denies changes now, nothing is read.
    ///
    /// # Errors
    /// The API server did not respond.
    pub async fn read(site: &CommandScope) -> anyhow::Result<Self> {
        let mut found = Self::default();
        let now = jiff::Timestamp::now();
        let mut denies_any = false;
        let freezes = Gvk::new("release.windlass.dev/v1alpha1", "Freeze");
        let refused = list(site, &freezes, |page| {
            denies_any |= page.iter().any(|it| denying(it, now).is_some());
            Ok(())
        });
        let may_deny = !refused.await?.is_empty();
        if !denies_any && !may_deny {
            return Ok(found);
        }
        for names in
            crds::names().filter(|it| HELD_KINDS.iter().any(|kind| kind.as_str() == it.kind))
        {
            let gvk = Gvk {
                group: names.group.to_owned(),
                version: names.version.to_owned(),
                kind: names.kind.to_owned(),
            };
            let objects = &mut found.objects;
            let left_out = list(site, &gvk, |mut page| {
                page.retain(is_frozen);
                objects.extend(page);
                Ok(())
            });
            found.left_out.extend(left_out.await?);
        }
        if !found.objects.is_empty() {
            let labels = &mut found.labels;
            let namespaces = Gvk::new("v1", "Namespace");
            let left_out = list(site, &namespaces, |page| {
                labels.extend(page.iter().map(|it| (it.name().to_owned(), labels_of(it))));
                Ok(())
            });
            found.left_out.extend(left_out.await?);
        }
        found.objects.sort_by_key(Object::id);
        Ok(found)
    }

    /// The objects that a Freeze holds. Empty if the Freeze does not deny changes now.
    pub(crate) fn held_by(&self, freeze: &Object, now: Time) -> Vec<&Object> {
        let Some(spec) = denying(freeze, now) else { return Vec::new() };
        let is_held = |object: &&Object| {
            let labels = self.labels.get(object.namespace());
            labels.is_some_and(|labels| selects(&spec, object.kind(), labels))
        };
        self.objects.iter().filter(is_held).collect()
    }

    /// The table text about the objects that a Freeze holds. `None` if there are none, or if the Freeze does not deny changes
    /// now.
    pub fn row_message(&self, freeze: &Object, now: Time) -> Option<String> {
        denying(freeze, now)?;
        let held = self.held_by(freeze, now);
        let named = held.iter().take(MAX_NAMED_OBJECTS).map(|it| it.id().subject());
        let mut names: Vec<String> = named.collect();
        let more = held.len().saturating_sub(names.len());
        if more > 0 {
            names.push(format!("{more} more"));
        }
        let mut parts = Vec::new();
        if !names.is_empty() {
            parts.push(format!("holds {}", names.join(", ")));
        }
        if !self.left_out.is_empty() {
            parts.push("may hold objects that this user may not list".to_owned());
        }
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

/// The spec of a Freeze that denies changes now. `None` for other objects.
fn denying(freeze: &Object, now: Time) -> Option<FreezeSpec> {
    if !is_freeze(&freeze.gvk()) {
        return None;
    }
    let spec: FreezeSpec = serde_json::from_value(freeze.get("spec")?.clone()).ok()?;
    let status = freeze.get("status").cloned().unwrap_or_default();
    let status: Option<FreezeStatus> = serde_json::from_value(status).ok()?;
    // A Freeze whose times cannot be read denies changes.
    let is_denying = calendar(&spec, status.as_ref(), now).map(|it| it.denies(now).is_some());
    is_denying.unwrap_or(true).then_some(spec)
}

/// Whether an operation of the object, or a correction of drift, waits for the end of a Freeze.
fn is_frozen(object: &Object) -> bool {
    let mut said = ["Ready", FREEZE].into_iter().filter_map(|kind| condition(object, kind));
    said.any(|it| it.reason == condition_reason::FROZEN.as_str())
}

fn labels_of(namespace: &Object) -> BTreeMap<String, String> {
    let labels = namespace.meta("labels").and_then(Value::as_object);
    let labels = labels.into_iter().flatten();
    labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

/// Lists the objects of a kind in all namespaces and passes them to `each`. A kind that is not installed has no objects.
async fn list(
    site: &CommandScope,
    gvk: &Gvk,
    each: impl FnMut(Vec<Object>) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<String>> {
    let resource = match site.cluster.resource(gvk).await {
        Ok(resource) => resource,
        Err(ClusterError::NoSuchKind { .. }) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let target = ResourceArgument { resource, namespace: Some(String::new()), name: None };
    site.list(&target, "", each).await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn freeze(spec: Value) -> Object {
        let mut freeze = json!({"apiVersion": "release.windlass.dev/v1alpha1", "kind": "Freeze",
            "metadata": {"name": "sale"}, "spec": {"reason": "the sales week",
                "namespaceSelector": {"matchLabels": {"environment": "production"}}}});
        for (key, value) in spec.as_object().unwrap() {
            freeze["spec"][key] = value.clone();
        }
        Object::new(freeze).unwrap()
    }

    #[tokio::test]
    async fn a_freeze_holds_what_waits_in_its_namespaces_while_it_denies() {
        let applier = |namespace: &str, name: &str, reason: &str| {
            let ready = json!({"type": "Ready", "status": "False", "reason": reason});
            json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
                "metadata": {"name": name, "namespace": namespace}, "status": {"conditions": [ready]}})
        };
        let drifted = json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
            "metadata": {"name": "web", "namespace": "shop"}, "status": {"conditions": [
                {"type": "Ready", "status": "True", "reason": "UpgradeSucceeded"},
                {"type": "windlass.dev/Freeze", "status": "True", "reason": "Frozen"}]}});
        let namespace = |name: &str, environment: &str| {
            json!({"apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": name, "labels": {"environment": environment}}})
        };
        let objects = vec![
            freeze(json!({})).into_value(),
            namespace("shop", "production"),
            namespace("lab", "test"),
            applier("shop", "app", "Frozen"),
            applier("shop", "broken", "BuildFailed"),
            applier("shop", "ending", "FreezeOverrun"),
            applier("lab", "app", "Frozen"),
            drifted,
        ];
        let (cluster, _) = fake_cluster::with_objects(objects).await;
        let site = CommandScope { cluster, namespace: "shop".to_owned() };
        let frozen = FrozenObjects::read(&site).await.unwrap();
        let now: Time = "2026-11-25T00:00:00Z".parse().unwrap();
        let held = |spec: Value| -> Vec<String> {
            let freeze = freeze(spec);
            frozen.held_by(&freeze, now).into_iter().map(|it| it.id().subject()).collect()
        };
        assert_eq!(frozen.left_out, Vec::<String>::new());
        assert_eq!(held(json!({})), ["Kustomization/shop/app", "HelmRelease/shop/web"]);
        assert_eq!(held(json!({"kinds": ["HelmRelease"]})), ["HelmRelease/shop/web"]);
        let all = held(json!({"namespaceSelector": {}}));
        assert_eq!(all.len(), 3, "{all:?}");
        let over = json!({"periods": [{"from": "2026-11-01", "to": "2026-11-02"}]});
        assert_eq!(held(over), Vec::<String>::new());
        let broken = json!({"periods": [{"from": "soon", "to": "later"}]});
        assert_eq!(held(broken).len(), 2, "what cannot be read denies");
        let other = Object::new(applier("shop", "app", "Frozen")).unwrap();
        assert_eq!(frozen.row_message(&other, now), None);
        let message = frozen.row_message(&freeze(json!({})), now);
        assert_eq!(message.as_deref(), Some("holds Kustomization/shop/app, HelmRelease/shop/web"));
        let left_out = vec!["helmfiles: forbidden".to_owned()];
        let unlisted = FrozenObjects { left_out, ..FrozenObjects::default() };
        let message = unlisted.row_message(&freeze(json!({})), now);
        assert_eq!(message.as_deref(), Some("may hold objects that this user may not list"));
    }
}
