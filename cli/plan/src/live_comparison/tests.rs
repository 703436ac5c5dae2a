//! Tests of the two sides of an object, and of objects in the cluster that are easy to miss.

use axum::body::Body;
use fake_cluster::answering;
use serde_json::{Value, json};
use windlass_cli_runtime::trailing_serve_flags::settings;

use super::*;

fn status(code: u16, reason: &str, message: &str) -> (u16, Value) {
    let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
        "reason": reason, "message": message, "details": {"name": "it"}});
    (code, body)
}

/// A cluster that answers requests by their path, without the query.
async fn cluster(answer: fn(&str) -> (u16, Value)) -> ClusterConnection {
    answering(move |(request, _)| {
        let (code, body) = answer(request.split('?').next().unwrap_or_default());
        (code, Body::from(body.to_string()))
    })
    .await
}

/// The inputs of a comparison with a cluster.
struct ComparisonParts {
    cluster: ClusterConnection,
    settings: OperatorSettings,
    secrets: SecretMasking,
    planned: PlannedCrdsAndNamespaces,
    writers: BTreeMap<ObjectId, ApplierWriteMethod>,
    unrendered: BTreeSet<ObjectId>,
}

impl ComparisonParts {
    async fn of(answer: fn(&str) -> (u16, Value)) -> Self {
        Self {
            cluster: cluster(answer).await,
            settings: settings(&[]).unwrap(),
            secrets: SecretMasking::default(),
            planned: PlannedCrdsAndNamespaces::default(),
            writers: BTreeMap::new(),
            unrendered: BTreeSet::new(),
        }
    }

    fn comparison(&self) -> LiveComparison<'_> {
        LiveComparison {
            cluster: &self.cluster,
            settings: &self.settings,
            secrets: &self.secrets,
            planned: &self.planned,
            writers: &self.writers,
            unrendered: &self.unrendered,
        }
    }
}

fn applier(name: &str) -> ObjectId {
    ObjectId::new("flux-system", name, "kustomize.toolkit.fluxcd.io", "Kustomization")
}

fn live_applier(rendered: RenderedApplier) -> LiveApplier {
    LiveApplier {
        rendered,
        entries: ObjectInventory::default(),
        owner: LiveInventoryOwner::Nothing,
        deletion_budget: None,
        secrets: Vec::new(),
    }
}

/// A cluster that serves one version of a kind, and has one object of it.
fn of_disruption_budgets(request: &str) -> (u16, Value) {
    let kind = "PodDisruptionBudget";
    let plural = "poddisruptionbudgets";
    let resource = json!({"resource": plural, "scope": "Namespaced",
        "responseKind": {"kind": kind}, "verbs": []});
    let version = json!({"version": "v1", "freshness": "Current", "resources": [resource]});
    match request {
        "GET /apis" => (
            200,
            json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2",
                "items": [{"metadata": {"name": "policy"}, "versions": [version]}]}),
        ),
        "GET /apis/policy/v1" => (
            200,
            json!({"kind": "APIResourceList", "groupVersion": "policy/v1", "resources": [{
                "name": plural, "singularName": "", "kind": kind, "namespaced": true,
                "verbs": ["get"]}]}),
        ),
        "GET /apis/policy/v1/namespaces/shop/poddisruptionbudgets/web" => (
            200,
            json!({"kind": kind, "apiVersion": "policy/v1",
                "metadata": {"name": "web", "namespace": "shop"}}),
        ),
        _ => status(404, "NotFound", "not found"),
    }
}

#[tokio::test]
async fn an_object_of_a_version_that_is_not_served_exists_if_another_version_has_it() {
    let parts = ComparisonParts::of(of_disruption_budgets).await;
    let comparison = parts.comparison();
    let predicted = async |name: &str| {
        let object = Object::new(json!({"kind": "PodDisruptionBudget",
            "apiVersion": "policy/v1beta1", "metadata": {"name": name}}))
        .unwrap();
        let prediction =
            Ok(ObjectPrediction::Created { object: Box::new(object.clone()), note: None });
        let member = PredictedReleaseObject { id: object.id(), object, prediction };
        comparison.found_in_other_version(member, "shop").await
    };
    let found = predicted("web").await;
    assert_eq!(found.id.subject(), "PodDisruptionBudget/shop/web");
    let Err(PredictionFailure::Refused(refused)) = found.prediction else { panic!("absent") };
    assert!(refused.live.is_some() && refused.text.contains("not served"), "{refused:?}");
    let gone = predicted("gone").await.prediction;
    assert!(matches!(gone, Ok(ObjectPrediction::Created { .. })), "{gone:?}");
}

/// A cluster whose errors quote the rejected object.
fn quoting(request: &str) -> (u16, Value) {
    match request {
        "GET /api/v1" => (
            200,
            json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": [{
                "name": "secrets", "singularName": "", "kind": "Secret", "namespaced": true,
                "verbs": ["get"]}]}),
        ),
        "PATCH /api/v1/namespaces/shop/secrets/db" => status(
            500,
            "InternalError",
            "failed to create typed patch object: .stringData.pin: expected string, got 12345678",
        ),
        _ => status(404, "NotFound", "not found"),
    }
}

#[tokio::test]
async fn a_refusal_does_not_quote_what_a_secret_of_the_head_holds() {
    let parts = ComparisonParts::of(quoting).await;
    let secret = Object::new(json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "db", "namespace": "shop"}, "stringData": {"pin": 12_345_678}}));
    let own = Object::new(json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1",
        "kind": "Kustomization", "metadata": {"name": "apps", "namespace": "flux-system"},
        "spec": {"interval": "10m", "prune": true,
            "sourceRef": {"kind": "GitRepository", "name": "flux-system"}}}));
    let writer = ApplierWriteMethod::Kustomization {
        object: Box::new(typed(&own.unwrap()).unwrap()),
        rules: Box::new(DriftIgnoreRules::default()),
    };
    let objects = vec![secret.unwrap()];
    let predicted = parts.comparison().predicted(&writer, None, objects).await;
    let predicted: Vec<Result<ObjectPrediction, PredictionFailure>> =
        predicted.into_iter().map(|it| it.prediction).collect();
    let [Err(failure)] = predicted.as_slice() else { panic!("{predicted:?}") };
    let text = failure.clone().into_text();
    assert!(text.contains(".stringData.pin: expected string, got ****"), "{text}");
}

#[tokio::test]
async fn what_an_applier_leaves_in_another_cluster_is_named() {
    let parts = ComparisonParts::of(|_| status(404, "NotFound", "not found")).await;
    let elsewhere = RenderedApplier {
        target_cluster: "that of Secret/flux-system/west".to_owned(),
        ..RenderedApplier::default()
    };
    let elsewhere = live_applier(elsewhere);
    let base = parts.comparison().base_applier(&applier("west"), &elsewhere, None).await;
    let unread = base.unread_objects;
    let unread: Vec<(&str, &str)> =
        unread.iter().map(|it| (it.what.as_str(), it.reason.as_str())).collect();
    assert_eq!(unread, [("all objects", OTHER_CLUSTER)]);
}

#[test]
fn an_applier_stays_suspended_unless_its_manifest_resumes_it() {
    let object = |name: &str, is_suspended: bool| {
        Object::new(json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1",
            "kind": "Kustomization", "metadata": {"name": name, "namespace": "flux-system"},
            "spec": {"suspend": is_suspended}}))
        .unwrap()
    };
    let suspended = RenderedApplier { is_suspended: true, ..RenderedApplier::default() };
    let live =
        ["entry", "kept", "resumed"].map(|name| (applier(name), live_applier(suspended.clone())));
    let entry = RenderedApplier {
        objects: vec![object("kept", true), object("resumed", false)],
        ..RenderedApplier::default()
    };
    let other = RenderedApplier::default();
    let all =
        [("entry", entry), ("kept", other.clone()), ("resumed", other.clone()), ("new", other)];
    let mut head = RepositoryRendering {
        appliers: all.map(|(name, rendered)| (applier(name), rendered)).into(),
        ..RepositoryRendering::default()
    };
    keep_suspensions(&live.into(), &mut head);
    let suspended = head.appliers.iter().filter(|(_, it)| it.is_suspended);
    let suspended: Vec<&str> = suspended.map(|(id, _)| id.name.as_str()).collect();
    assert_eq!(suspended, ["entry", "kept"]);
}

fn map(name: &str, value: &str) -> Object {
    let metadata = json!({"name": name, "namespace": "shop"});
    Object::new(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata,
        "data": {"a": value}}))
    .unwrap()
}

fn live(name: &str, value: &str) -> Object {
    let mut object = map(name, value);
    object.metadata_mut().insert("managedFields".to_owned(), json!([{"manager": "a"}]));
    object.fields_mut().insert("status".to_owned(), json!({"phase": "Active"}));
    object
}

fn added(
    object: Object,
    prediction: Result<ObjectPrediction, PredictionFailure>,
    is_its: bool,
) -> ApplierComparisonSides {
    let mut sides = ApplierComparisonSides::default();
    sides.add(PredictedReleaseObject { id: object.id(), object, prediction }, None, is_its);
    sides.name_untried();
    sides
}

fn whats(sides: &ApplierComparisonSides) -> Vec<&str> {
    sides.unread.iter().map(|it| it.what.as_str()).collect()
}

fn update() -> ObjectPrediction {
    let update = ObjectUpdate { live: live("a", "1"), after: live("a", "2"), note: None };
    ObjectPrediction::Changed(Box::new(update))
}

#[test]
fn a_change_is_on_both_sides_and_what_exists_is_only_on_that_of_its_applier() {
    let sides = added(map("a", "2"), Ok(update()), true);
    assert_eq!((sides.base, sides.head), (vec![map("a", "1")], vec![map("a", "2")]));
    let moved = added(map("a", "2"), Ok(update()), false);
    assert_eq!((moved.base, moved.head), (Vec::new(), vec![map("a", "2")]));
}

#[test]
fn what_cannot_be_read_is_on_neither_side_and_is_named() {
    let failure = PredictionFailure::Unread("forbidden".to_owned());
    let sides = added(map("a", "2"), Err(failure), true);
    assert!(sides.base.is_empty() && sides.head.is_empty(), "{sides:?}");
    assert_eq!(whats(&sides), ["ConfigMap/shop/a"]);
    assert!(sides.unread[0].reason.ends_with("forbidden"), "{sides:?}");
}

#[test]
fn what_may_not_be_tried_is_compared_by_the_fields_of_the_manifest() {
    let refused = |lacks_rights: bool| {
        let mut found = live("a", "1");
        found.fields_mut().insert("immutable".to_owned(), true.into());
        let text = "ConfigMap/shop/a dry-run failed (Forbidden)".to_owned();
        let refused = RefusedApply { live: Some(found), lacks_rights, text };
        Err(PredictionFailure::Refused(Box::new(refused)))
    };
    let untried = added(map("a", "2"), refused(true), true);
    let after: Vec<Option<&Value>> =
        untried.head.iter().flat_map(|it| [it.get("immutable"), it.get("data")]).collect();
    assert_eq!(after, [Some(&json!(true)), Some(&json!({"a": "2"}))]);
    assert_eq!(untried.base[0].get("data"), Some(&json!({"a": "1"})));
    assert_eq!(whats(&untried), ["what the API server makes of 1 objects"]);
    let rejected = added(map("a", "2"), refused(false), true);
    assert_eq!(whats(&rejected), ["what becomes of ConfigMap/shop/a"]);
}

#[test]
fn an_applier_that_is_not_rendered_stays_with_what_it_applied() {
    let id = |name: &str| {
        ObjectId::new("flux-system", name, "kustomize.toolkit.fluxcd.io", "Kustomization")
    };
    let child = RenderedApplier {
        objects: vec![map("b", "1")],
        parent: Some(id("apps")),
        ..RenderedApplier::default()
    };
    let apps = RenderedApplier { objects: vec![map("a", "1")], ..RenderedApplier::default() };
    let base = RepositoryRendering {
        appliers: BTreeMap::from([(id("apps"), apps), (id("child"), child)]),
        ..RepositoryRendering::default()
    };
    let mut head = RepositoryRendering {
        appliers: BTreeMap::from([(id("apps"), RenderedApplier::default())]),
        ..RepositoryRendering::default()
    };
    keep_unrendered(&BTreeSet::from([id("apps")]), &base, &mut head);
    let plan = plan::compare(&base, &head, &plan::RenderingComparisonOptions::default());
    assert!(plan.is_unchanged() && plan.summary.unchanged == 2, "{plan:#?}");
}
