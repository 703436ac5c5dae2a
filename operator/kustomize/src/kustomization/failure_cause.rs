//! Why objects did not become healthy in time: what their Pods say, as releases show it, too.
//!
//! It is asked for once, when a wait has failed. Elsewhere: what a Pod says (engine `cause`), the message of the wait (engine
//! `apply`).
//!
//! Differs(flux): there a failed wait names the object and its state alone.

use apply::FailedHealthWait;
use cause::pod::PodTrouble;
use objects::SecretMasking;
use reconcile::{ObjectKey, RunOutcome, condition_reason};

use windlass_cluster::ClusterConnection;
use windlass_cluster::discovery::ApiResourceLocation;
use windlass_cluster::workload_pods::{WorkloadPods, resource};

/// The most objects that are read.
const MAX_OBJECTS: usize = 8;

/// The longest cause, in characters.
const MAX_CAUSE_CHARACTERS: usize = 500;

/// The kinds that may have Pods: API version, kind and plural.
const WORKLOADS: [(&str, &str, &str); 6] = [
    ("apps/v1", "Deployment", "deployments"),
    ("apps/v1", "StatefulSet", "statefulsets"),
    ("apps/v1", "DaemonSet", "daemonsets"),
    ("apps/v1", "ReplicaSet", "replicasets"),
    ("batch/v1", "Job", "jobs"),
    ("v1", "Pod", "pods"),
];

/// Adds the cause to the message of a health wait that has just failed. The failure in `known` has its cause already.
pub(super) async fn complete(
    outcome: &mut RunOutcome,
    cluster: &ClusterConnection,
    secrets: &SecretMasking,
    known: Option<FailedHealthWait>,
) {
    let RunOutcome::Failed(why, text, wake) = outcome else { return };
    let is_known = known.is_some_and(|known| known.text == *text);
    if *why != condition_reason::HEALTH_CHECK_FAILED || is_known {
        return;
    }
    let is_alone = wake.on.len() == 1;
    let workloads = wake.on.iter().filter_map(|node| Some((node, workload(node)?)));
    for (node, resource) in workloads.take(MAX_OBJECTS) {
        if let Some(trouble) = trouble(cluster, node, &resource).await {
            // The message names the only Pod that was waited for already.
            let cause = match is_alone && node.kind == "Pod" {
                true => trouble.within_pod(),
                false => trouble.to_string(),
            };
            *text = with_cause(text, &secrets.mask(&cause));
            return;
        }
    }
}

/// The API resource of a workload, by the kind of an object. `None` if objects of this kind have no Pods.
fn workload(node: &ObjectKey) -> Option<ApiResourceLocation> {
    let all = WORKLOADS.iter().map(|(version, kind, plural)| resource(version, kind, plural));
    let mut all = all.filter(|it| it.gvk.group == node.group);
    all.find(|it| it.gvk.kind == node.kind)
}

/// The message of an object's first Pod that is in trouble. `None` if the cluster does not answer.
async fn trouble(
    cluster: &ClusterConnection,
    node: &ObjectKey,
    kind: &ApiResourceLocation,
) -> Option<PodTrouble> {
    let object = cluster.get(kind, &node.namespace, &node.name).await.ok()??;
    if kind.gvk.kind == "Pod" {
        return cause::pod::trouble(&object);
    }
    let mut pods = WorkloadPods::of(cluster, &object).await;
    pods.find(cause::pod::trouble).await
}

fn with_cause(text: &str, cause: &str) -> String {
    let line = cause.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MAX_CAUSE_CHARACTERS) {
        Some((at, _)) => format!("{text}: {}…", &line[..at]),
        None => format!("{text}: {line}"),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use reconcile::NextRunTrigger;
    use serde_json::{Value, json};

    use super::*;
    use fake_cluster::answering;

    const TEXT: &str = "health check failed after 5m0s: timeout waiting for: [Deployment/shop/web status: 'InProgress']";

    fn answer(path: &str) -> Value {
        let waiting = json!({"state": {"waiting": {"reason": "ImagePullBackOff",
            "message": "Back-off pulling image \"web:1.O\""}}, "name": "app"});
        if path.contains("/deployments/web") {
            return json!({"apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": "web", "namespace": "shop"},
                "spec": {"selector": {"matchLabels": {"app": "web"}}}});
        }
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "web-1", "namespace": "shop"},
            "status": {"containerStatuses": [waiting]}});
        if path.contains("/pods/web-1") {
            return pod;
        }
        json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": [pod]})
    }

    #[tokio::test]
    async fn the_only_pod_that_was_waited_for_is_named_once() {
        let answers =
            |(request, _): (String, Value)| (200, Body::from(answer(&request).to_string()));
        let cluster = answering(answers).await;
        let pod = ObjectKey::new("", "Pod", "shop", "web-1");
        let text = "timeout waiting for: [Pod/shop/web-1 status: 'InProgress']".to_owned();
        for (others, expected) in [
            (None, "container 'app' ImagePullBackOff"),
            // With several objects the text names the Pod.
            (
                Some(ObjectKey::new("", "Service", "shop", "web")),
                "container 'app' of Pod web-1 ImagePullBackOff",
            ),
        ] {
            let on = NextRunTrigger::on([pod.clone()].into_iter().chain(others));
            let mut outcome =
                RunOutcome::Failed(condition_reason::HEALTH_CHECK_FAILED, text.clone(), on);
            complete(&mut outcome, &cluster, &SecretMasking::default(), None).await;
            let RunOutcome::Failed(_, message, _) = &outcome else { panic!("{outcome:?}") };
            assert_eq!(*message, format!("{text}: {expected}: Back-off pulling image \"web:1.O\""));
        }
    }

    #[tokio::test]
    async fn a_pod_in_trouble_is_found_on_a_later_page() {
        let answers = |(request, _): (String, Value)| {
            let mut answer = answer(&request);
            if request.contains("/pods?") && !request.contains("continue=") {
                let well = json!({"metadata": {"name": "web-0"}, "status": {"phase": "Running"}});
                answer = json!({"metadata": {"continue": "x"}, "items": vec![well; 64]});
            }
            (200, Body::from(answer.to_string()))
        };
        let cluster = answering(answers).await;
        let node = ObjectKey::new("apps", "Deployment", "shop", "web");
        let found = trouble(&cluster, &node, &workload(&node).unwrap()).await.unwrap();
        assert!(found.to_string().contains("Pod web-1 ImagePullBackOff"), "{found}");
    }

    #[tokio::test]
    async fn a_wait_that_failed_says_what_its_pods_say() {
        let answers =
            |(request, _): (String, Value)| (200, Body::from(answer(&request).to_string()));
        let cluster = answering(answers).await;
        let on = NextRunTrigger::on([
            ObjectKey::new("", "Service", "shop", "web"),
            ObjectKey::new("apps", "Deployment", "shop", "web"),
        ]);
        let mut outcome =
            RunOutcome::Failed(condition_reason::HEALTH_CHECK_FAILED, TEXT.to_owned(), on);
        let secrets = SecretMasking::default();
        complete(&mut outcome, &cluster, &secrets, None).await;
        let RunOutcome::Failed(_, text, wake) = &outcome else { panic!("{outcome:?}") };
        let cause =
            "container 'app' of Pod web-1 ImagePullBackOff: Back-off pulling image \"web:1.O\"";
        assert_eq!(*text, format!("{TEXT}: {cause}"));
        // The next run finds the wait failed, and says the same.
        let known = FailedHealthWait {
            text: text.clone(),
            on: wake.on.clone(),
            until: "2026-11-24T12:00:00Z".parse().unwrap(),
        };
        let before = text.clone();
        complete(&mut outcome, &cluster, &secrets, Some(known)).await;
        assert!(matches!(&outcome, RunOutcome::Failed(_, text, _) if *text == before));
    }
}
