//! Tests that only objects of the installation are deleted, and that CRDs are deleted only if no operator reconciles their
//! objects.

use std::sync::Arc;

use clap::Parser;
use parking_lot::Mutex;

use super::*;
use fake_cluster::{RecordedWrites, with_objects, with_shared_objects};

#[derive(Debug, Parser)]
struct UninstallTestCommand {
    #[command(flatten)]
    args: UninstallArgs,
}

const RBAC: &str = "rbac.authorization.k8s.io/v1";

fn object(place: (&str, &str), name: &str, labels: &[(&str, &str)]) -> Value {
    let (api_version, kind) = place;
    let labels: serde_json::Map<String, Value> =
        labels.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
    json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": {"name": name, "uid": format!("{kind}-{name}"), "labels": labels},
    })
}

const NAME: (&str, &str) = ("app.kubernetes.io/name", "windlass");

fn of_namespace(namespace: &str, mut object: Value) -> Value {
    object["metadata"]["namespace"] = json!(namespace);
    object
}

/// An installation. Its ClusterRole may have a label that names the installation.
fn installation(namespace: &str, label: Option<&str>) -> Vec<Value> {
    let mut labels = vec![NAME];
    labels.extend(label.map(|it| (INSTALLATION, it)));
    vec![
        of_namespace(namespace, object(("apps/v1", "Deployment"), "windlass-controller", &[NAME])),
        of_namespace(namespace, object(("v1", "ServiceAccount"), "windlass-controller", &[NAME])),
        object((RBAC, "ClusterRole"), "windlass-controller", &labels),
    ]
}

fn flux(name: &str) -> Value {
    let labels = [("app.kubernetes.io/part-of", "flux")];
    of_namespace("flux-system", object(("apps/v1", "Deployment"), name, &labels))
}

fn crd() -> Value {
    let name = "kustomizations.kustomize.toolkit.fluxcd.io";
    object(("apiextensions.k8s.io/v1", "CustomResourceDefinition"), name, &[])
}

fn kustomization() -> Value {
    let kind = ("kustomize.toolkit.fluxcd.io/v1", "Kustomization");
    let mut found = of_namespace("team", object(kind, "app", &[]));
    found["metadata"]["finalizers"] = json!(["finalizers.fluxcd.io"]);
    found
}

/// Uninstalls from a cluster with these objects. Returns the result, and the objects that were written.
async fn uninstalled(objects: Vec<Value>, flags: &[&str]) -> (Result<(), String>, Vec<String>) {
    let fixed = ["uninstall", "--silent", "--timeout=1s"];
    let args = UninstallTestCommand::try_parse_from([&fixed, flags].concat()).unwrap().args;
    let (cluster, writes): (ClusterConnection, RecordedWrites) = with_objects(objects).await;
    let ended = uninstall(&cluster, &args).await.map_err(|error| format!("{error:#}"));
    let writes = writes.lock().clone();
    (ended, writes)
}

fn deletes(writes: &[String], path: &str) -> bool {
    writes.iter().any(|it| it.split('?').next() == Some(&format!("DELETE {path}")))
}

const CLUSTER_ROLE: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles/windlass-controller";

#[tokio::test]
async fn an_installation_goes_with_the_objects_of_the_cluster_that_name_it() {
    let mut objects = installation("gitops", Some("gitops"));
    let of_replica = [("app", "windlass-controller")];
    let claim = object(("v1", "PersistentVolumeClaim"), "data-windlass-controller-0", &of_replica);
    objects.push(of_namespace("gitops", claim));
    let (ended, writes) = uninstalled(objects, &["-n", "gitops"]).await;
    assert_eq!(ended, Ok(()));
    assert!(deletes(&writes, CLUSTER_ROLE), "{writes:?}");
    assert!(deletes(&writes, "/apis/apps/v1/namespaces/gitops/deployments/windlass-controller"));
    let claim = "/api/v1/namespaces/gitops/persistentvolumeclaims/data-windlass-controller-0";
    assert!(deletes(&writes, claim), "{writes:?}");
    assert_eq!(writes.len(), 4, "{writes:?}");
}

#[tokio::test]
async fn a_wrong_namespace_deletes_nothing_and_the_error_names_the_right_one() {
    for label in [Some("gitops"), None] {
        let (ended, writes) = uninstalled(installation("gitops", label), &["-n", "wrong"]).await;
        let text = ended.unwrap_err();
        assert!(text.contains("windlass is not in namespace wrong but in gitops"), "{text}");
        assert!(text.contains("`windlass uninstall -n gitops`"), "{text}");
        assert_eq!(writes, [""; 0]);
    }
}

#[tokio::test]
async fn what_names_no_installation_is_foreign_and_the_command_that_labels_it_is_named() {
    let (ended, writes) = uninstalled(installation("gitops", None), &["-n", "gitops"]).await;
    let text = ended.unwrap_err();
    assert!(
        text.contains("ClusterRole/windlass-controller has no label windlass.dev/installation")
    );
    assert!(text.contains("`windlass install -n gitops`"), "{text}");
    assert_eq!(writes, [""; 0]);
}

#[tokio::test]
async fn what_names_another_installation_stays() {
    let (ended, writes) = uninstalled(installation("old", Some("gitops")), &["-n", "old"]).await;
    assert_eq!(ended, Ok(()));
    assert!(!deletes(&writes, CLUSTER_ROLE), "{writes:?}");
    assert_eq!(writes.len(), 2, "{writes:?}");
}

#[tokio::test]
async fn crds_stay_where_another_operator_acts_on_their_objects() {
    let here = installation("gitops", Some("gitops"));
    let flags = ["-n", "gitops", "--delete-crds"];
    let other = ("apps/v1", "StatefulSet");
    for (operator, expected) in [
        (flux("kustomize-controller"), "Deployment/flux-system/kustomize-controller"),
        (flux("kustomize-controller-shard1"), "Deployment/flux-system/kustomize-controller-shard1"),
        (
            of_namespace("other", object(other, "windlass-controller", &[NAME])),
            "StatefulSet/other/windlass-controller",
        ),
    ] {
        let objects = [&here[..], &[operator, crd(), kustomization()]].concat();
        let (ended, writes) = uninstalled(objects, &flags).await;
        let text = ended.unwrap_err();
        assert!(text.contains(expected) && text.contains("nothing was deleted"), "{text}");
        assert_eq!(writes, [""; 0]);
    }
}

#[tokio::test]
async fn crds_go_after_the_finalizers_of_their_objects() {
    let objects = [&installation("gitops", Some("gitops"))[..], &[crd(), kustomization()]].concat();
    let (ended, writes) = uninstalled(objects, &["-n", "gitops", "--delete-crds"]).await;
    assert_eq!(ended, Ok(()));
    let at = |part: &str| writes.iter().position(|it| it.contains(part)).unwrap();
    assert!(at("DELETE /apis/apps/v1/") < at("PATCH "), "{writes:?}");
    assert!(at("PATCH ") < at("DELETE /apis/apiextensions.k8s.io"), "{writes:?}");
}

#[tokio::test]
async fn a_crd_that_is_still_being_deleted_is_not_said_to_be_gone() {
    let args = ["uninstall", "--silent", "--timeout=1s", "--delete-crds"];
    let args = UninstallTestCommand::try_parse_from(args).unwrap().args;
    let definitions = [(Object::new(crd()).unwrap(), Vec::new())];
    let (cluster, _) = with_objects(vec![crd()]).await;
    let error = await_definitions(&cluster, &definitions, &args).await.unwrap_err().to_string();
    let begin = "CustomResourceDefinition/kustomizations.kustomize.toolkit.fluxcd.io is still being deleted";
    assert!(error.starts_with(begin), "{error}");
    let (cluster, _) = with_objects(Vec::new()).await;
    await_definitions(&cluster, &definitions, &args).await.unwrap();
}

#[tokio::test]
async fn what_is_created_until_the_last_process_has_ended_loses_its_finalizers_too() {
    let label = [OURS.split_once('=').unwrap()];
    let pod = of_namespace("gitops", object(("v1", "Pod"), "windlass-controller-0", &label));
    let objects = [&installation("gitops", Some("gitops"))[..], &[crd(), pod]].concat();
    let objects = Arc::new(Mutex::new(objects));
    let (cluster, writes) = with_shared_objects(objects.clone()).await;
    let fixed = ["uninstall", "--silent", "--timeout=30s", "-n", "gitops", "--delete-crds"];
    let args = UninstallTestCommand::try_parse_from(fixed).unwrap().args;
    let deployment = "/apis/apps/v1/namespaces/gitops/deployments/windlass-controller";
    let is_deleted = || deletes(&writes.lock(), deployment);
    let others = async {
        while !is_deleted() {
            tokio::task::yield_now().await;
        }
        let mut objects = objects.lock();
        objects.push(kustomization());
        objects.retain(|it| it["kind"] != "Pod");
    };
    let (ended, ()) = tokio::join!(uninstall(&cluster, &args), others);
    ended.unwrap();
    let writes = writes.lock();
    assert!(writes.iter().any(|it| it.starts_with("PATCH ") && it.contains("/app")), "{writes:?}");
}
