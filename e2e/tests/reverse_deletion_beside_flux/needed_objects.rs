//! Appliers that are removed together with what they need for their deletion.

use anyhow::Result;
use e2e::harness::StoryObject;
use serde_json::{Value, json};

use super::deletion_scenario::{
    DeletionOrderRow, DeletionPair, DeletionScenarioSettings, RemovedObject, Scene, held_config_map,
};
use crate::stories::decryption::recorded;

/// An applier and what it needs, as a row. `workload` is the object that the applier creates.
fn needing_row(
    title: &'static str,
    workload: RemovedObject,
    applier: &[RemovedObject],
    needed: &[RemovedObject],
) -> DeletionOrderRow {
    let pair = |needed: &RemovedObject| DeletionPair {
        dependent: workload.clone(),
        needed: needed.clone(),
    };
    let pairs = needed.iter().map(pair).collect();
    let objects = [std::slice::from_ref(&workload), applier, needed].concat();
    DeletionOrderRow { title, pairs, objects }
}

/// The row of the Kustomization `name`, which creates the ConfigMap `name`.
fn kustomization_row(
    title: &'static str,
    name: &str,
    needed: &[RemovedObject],
) -> DeletionOrderRow {
    let workload = RemovedObject::config_map(name).slow();
    needing_row(title, workload, &[RemovedObject::kustomization(name)], needed)
}

/// A Secret in a repository.
fn secret(name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data})
}

/// Four Kustomizations and a HelmRelease, each with something else that it needs.
pub(super) fn needed_objects(settings: &DeletionScenarioSettings) -> Result<Scene> {
    let mut scene = Scene::default();
    let own = |name: &str| json!({"secretRef": {"name": name}});

    let rbac = "rbac.authorization.k8s.io";
    let place = &settings.namespace;
    scene.administered.push(json!({"apiVersion": format!("{rbac}/v1"), "kind": "Role",
        "metadata": {"name": "tenant", "namespace": place},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"],
            "verbs": ["get", "create", "update", "patch", "delete"]}]}));
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "tenant"}});
    let binding = json!({"apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding",
        "metadata": {"name": "tenant", "namespace": place},
        "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "tenant"},
        "subjects": [{"kind": "ServiceAccount", "name": "tenant", "namespace": place}]});
    scene.remove("account", &account);
    scene.remove("binding", &binding);
    scene.remove_kustomization(settings, "as-tenant", json!({"serviceAccountName": "tenant"}));
    let target = StoryObject::new("v1", "ServiceAccount", "tenant");
    let account = RemovedObject::new(target, "serviceaccounts/tenant");
    let target = StoryObject::new(&format!("{rbac}/v1"), "RoleBinding", "tenant");
    let binding = RemovedObject::new(target, "rolebindings/tenant");
    let title = "A commit removes a Kustomization with its ServiceAccount and the RoleBinding";
    scene.rows.push(kustomization_row(title, "as-tenant", &[account, binding]));

    scene.remove("cluster", &secret("cluster", &json!({"value": settings.kubeconfig})));
    scene.remove_kustomization(settings, "in-cluster", json!({"kubeConfig": own("cluster")}));
    let title = "A commit removes a Kustomization with the Secret of its `kubeConfig`";
    scene.rows.push(kustomization_row(title, "in-cluster", &[RemovedObject::secret("cluster")]));

    let encrypted = recorded("build-resource-secret", "parts/encrypted")?;
    let keys: Value = encrypted.keys.into_iter().collect();
    scene.remove("keys", &secret("keys", &keys));
    // The kustomization of the recorded case does not list the ConfigMap.
    for (path, text) in
        encrypted.files.iter().filter(|(path, _)| !path.ends_with("/kustomization.yaml"))
    {
        scene.keep(path, text.clone());
    }
    let decryption = json!({"provider": "sops", "secretRef": {"name": "keys"}});
    scene.remove_kustomization(settings, "encrypted", json!({"decryption": decryption}));
    let title = "A commit removes a Kustomization with the Secret of its `decryption`";
    let mut row = kustomization_row(title, "encrypted", &[RemovedObject::secret("keys")]);
    row.objects.push(RemovedObject::secret("db"));
    scene.rows.push(row);

    scene.remove("own-files", &settings.git_repository("own-files"));
    let source = json!({"kind": "GitRepository", "name": "own-files"});
    scene.remove_kustomization(settings, "of-source", json!({"sourceRef": source}));
    let title = "A commit removes a Kustomization with its GitRepository";
    let source = RemovedObject::git_repository("own-files");
    scene.rows.push(kustomization_row(title, "of-source", &[source]));

    let values = json!({"values.yaml": "value: one\n"});
    scene.remove("values", &secret("values", &values));
    let values_from = json!([{"kind": "Secret", "name": "values"}]);
    let release = settings.helm_release("with-values", json!({"valuesFrom": values_from}));
    scene.remove("with-values", &release);
    scene.appliers.push(StoryObject::helm_release("with-values"));
    scene.keep_chart();
    let title = "A commit removes a HelmRelease with the Secret of its `valuesFrom`";
    let workload = RemovedObject::release_workload("with-values");
    let applier = RemovedObject::helm_release(place, "with-values");
    let needed = [RemovedObject::secret("values")];
    scene.rows.push(needing_row(title, workload, &applier, &needed));

    for name in ["as-tenant", "in-cluster", "encrypted", "of-source"] {
        scene.keep(&format!("parts/{name}/map.yaml"), held_config_map(name));
    }
    Ok(scene)
}
