//! The HelmChart of a template, and when one that is there is the same.

use serde_json::json;

use super::*;

fn object(more: &Value) -> HelmRelease {
    let chart =
        json!({"spec": {"chart": "podinfo", "sourceRef": {"kind": "HelmRepository", "name": "r"}}});
    let mut spec = json!({"interval": "10m", "chart": chart});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    let mut object = HelmRelease::new("web", serde_json::from_value(spec).unwrap());
    object.metadata.namespace = Some("apps".to_owned());
    object
}

fn chart_of(more: &Value) -> (ObjectKey, HelmChart) {
    wanted(&object(more)).unwrap()
}

/// A template with these fields.
fn with(metadata: &Value, spec: &Value) -> Value {
    let mut chart =
        json!({"chart": "podinfo", "sourceRef": {"kind": "HelmRepository", "name": "r"}});
    for (key, value) in spec.as_object().into_iter().flatten() {
        chart[key] = value.clone();
    }
    json!({"chart": {"metadata": metadata, "spec": chart}})
}

/// A HelmChart as the API server has it after it was applied.
fn live(chart: &HelmChart) -> HelmChart {
    let keys = |strings: &BTreeMap<String, String>| -> Value {
        strings.keys().map(|key| (format!("f:{key}"), json!({}))).collect()
    };
    let mut live = serde_json::to_value(chart).unwrap();
    live["metadata"]["managedFields"] = json!([{
        "manager": "helm-controller",
        "operation": "Apply",
        "fieldsV1": {"f:metadata": {
            "f:labels": keys(chart.labels()), "f:annotations": keys(chart.annotations()),
        }},
    }]);
    for (field, default) in [("version", "*"), ("reconcileStrategy", "ChartVersion")] {
        if live["spec"].get(field).is_none() {
            live["spec"][field] = default.into();
        }
    }
    serde_json::from_value(live).unwrap()
}

#[test]
fn the_least_template_gives_the_least_chart() {
    let (node, chart) = chart_of(&json!({}));
    assert_eq!((node.kind.as_str(), place(&node).as_str()), ("HelmChart", "apps/apps-web"));
    assert_eq!(
        serde_json::to_value(&chart).unwrap(),
        json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1",
            "kind": "HelmChart",
            "metadata": {
                "name": "apps-web",
                "namespace": "apps",
                "labels": {
                    "helm.toolkit.fluxcd.io/name": "web",
                    "helm.toolkit.fluxcd.io/namespace": "apps",
                },
            },
            "spec": {
                "chart": "podinfo",
                "interval": "10m0s",
                "sourceRef": {"kind": "HelmRepository", "name": "r"},
            },
        })
    );
}

#[test]
fn all_fields_of_a_template_are_those_of_the_chart() {
    let metadata = json!({
        "labels": {"sharding.fluxcd.io/key": "shard1", "helm.toolkit.fluxcd.io/name": "stolen"},
        "annotations": {"a": "b"},
    });
    let spec = json!({
        "version": "1.x",
        "sourceRef": {"apiVersion": "x/v1", "kind": "GitRepository", "name": "g", "namespace": "git"},
        "interval": "90s",
        "reconcileStrategy": "Revision",
        "valuesFiles": ["a.yaml", "b.yaml"],
        "ignoreMissingValuesFiles": true,
    });
    let (node, chart) = chart_of(&with(&metadata, &spec));
    assert_eq!(place(&node), "git/apps-web");
    let chart = serde_json::to_value(&chart).unwrap();
    assert_eq!(
        chart["metadata"],
        json!({
            "name": "apps-web",
            "namespace": "git",
            "labels": {
                "sharding.fluxcd.io/key": "shard1",
                "helm.toolkit.fluxcd.io/name": "web",
                "helm.toolkit.fluxcd.io/namespace": "apps",
            },
            "annotations": {"a": "b"},
        })
    );
    assert_eq!(
        chart["spec"],
        json!({
            "chart": "podinfo",
            "version": "1.x",
            "sourceRef": {"kind": "GitRepository", "name": "g"},
            "interval": "1m30s",
            "reconcileStrategy": "Revision",
            "valuesFiles": ["a.yaml", "b.yaml"],
            "ignoreMissingValuesFiles": true,
        })
    );
}

#[test]
fn a_source_that_holds_the_chart_needs_none() {
    let mut object = object(&json!({}));
    object.spec.chart = None;
    assert!(wanted(&object).is_none());
}

#[test]
fn what_was_applied_is_not_applied_again() {
    let metadata = json!({"labels": {"a": "b"}, "annotations": {"c": "d"}});
    for more in [json!({}), with(&metadata, &json!({"version": "1.x"}))] {
        let (_, chart) = chart_of(&more);
        let mut live = live(&chart);
        assert!(is_as_wanted(&live, &chart), "{more}");
        // What others add is theirs.
        live.spec.suspend = true;
        live.metadata.labels.as_mut().unwrap().insert("theirs".to_owned(), String::new());
        assert!(is_as_wanted(&live, &chart), "{more}");
    }
}

#[test]
fn every_field_that_differs_is_applied() {
    let metadata = json!({"labels": {"a": "b"}, "annotations": {"c": "d"}});
    let (_, chart) = chart_of(&with(&metadata, &json!({"valuesFiles": ["a.yaml"]})));
    let differs = |metadata: &Value, spec: &Value| {
        let (_, other) = chart_of(&with(metadata, spec));
        assert!(!is_as_wanted(&live(&other), &chart), "{metadata} {spec}");
        assert!(!is_as_wanted(&live(&chart), &other), "{metadata} {spec}");
    };
    let files = |more: &Value| {
        let mut spec = json!({"valuesFiles": ["a.yaml"]});
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        spec
    };
    for more in [
        json!({"chart": "other"}),
        json!({"version": "1.x"}),
        json!({"sourceRef": {"kind": "GitRepository", "name": "r"}}),
        json!({"sourceRef": {"kind": "HelmRepository", "name": "other"}}),
        json!({"interval": "1m"}),
        json!({"reconcileStrategy": "Revision"}),
        json!({"valuesFiles": ["b.yaml"]}),
        json!({"valuesFiles": []}),
        json!({"ignoreMissingValuesFiles": true}),
        json!({"verify": {"provider": "cosign"}}),
    ] {
        differs(&metadata, &files(&more));
    }
    for metadata in [
        json!({}),
        json!({"labels": {"a": "x"}, "annotations": {"c": "d"}}),
        json!({"labels": {"a": "b"}}),
        json!({"labels": {"a": "b", "e": "f"}, "annotations": {"c": "d"}}),
    ] {
        differs(&metadata, &files(&json!({})));
    }
    // The labels are there, but another field manager owns them.
    let mut theirs = live(&chart);
    theirs.metadata.managed_fields = None;
    assert!(!is_as_wanted(&theirs, &chart));
}

#[test]
fn another_place_leaves_the_chart_of_before() {
    let mut object = object(&json!({}));
    let (wanted, _) = wanted(&object).unwrap();
    let mut left_of = |known: Option<&str>, wanted: Option<&ObjectKey>| {
        let status = json!({ "helmChart": known });
        object.status = Some(serde_json::from_value(status).unwrap());
        left(&object, wanted).map(|node| place(&node))
    };
    assert_eq!(left_of(None, Some(&wanted)), None);
    assert_eq!(left_of(Some("apps/apps-web"), Some(&wanted)), None);
    assert_eq!(left_of(Some("git/apps-web"), Some(&wanted)).as_deref(), Some("git/apps-web"));
    assert_eq!(left_of(Some("apps/apps-web"), None).as_deref(), Some("apps/apps-web"));
    assert_eq!(left_of(Some("nonsense"), None), None);
}

#[test]
fn only_a_chart_with_both_labels_is_ones_own() {
    let object = object(&json!({}));
    let (_, mut chart) = wanted(&object).unwrap();
    assert!(is_of(&chart, &object));
    chart.metadata.labels.as_mut().unwrap().remove("helm.toolkit.fluxcd.io/namespace");
    assert!(!is_of(&chart, &object));
}

#[test]
fn other_namespaces_are_refused_where_that_is_forbidden() {
    let far = with(
        &json!({}),
        &json!({"sourceRef": {"kind": "HelmRepository", "name": "r", "namespace": "git"}}),
    );
    let check = |more: &Value, is_forbidden| {
        let (node, _) = chart_of(more);
        check_access(&object(more), &node, is_forbidden)
    };
    assert_eq!(check(&far, false), Ok(()));
    assert_eq!(check(&json!({}), true), Ok(()));
    let Err(RunOutcome::Stalled(reason, text)) = check(&far, true) else { panic!("it may") };
    assert_eq!(reason.as_str(), "AccessDenied");
    assert_eq!(
        text,
        "cross-namespace references are not allowed: cannot access HelmChart git/apps-web; name a source in namespace \
         apps in spec.chart.spec.sourceRef"
    );
}

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A cluster without HelmCharts, which has these CustomResourceDefinitions.
async fn without_charts(definitions: &'static [&'static str]) -> ClusterConnection {
    fake_cluster::answering(move |(request, _)| {
        let path = request.strip_prefix("GET ").unwrap();
        let path = path.split_once('?').map_or(path, |(path, _)| path);
        let listed = |name: &&str| json!({"metadata": {"name": name}});
        let (code, body) = match path {
            "/apis" => (200, json!({"kind": "APIGroupDiscoveryList", "items": []}).to_string()),
            CRDS => {
                let items: Vec<Value> = definitions.iter().map(listed).collect();
                (200, json!({"kind": "PartialObjectMetadataList", "items": items}).to_string())
            }
            path if path.starts_with(CRDS) => {
                (200, json!({"spec": {"names": {"kind": "HelmChart"}}}).to_string())
            }
            _ => (404, "404 page not found\n".to_owned()),
        };
        (code, axum::body::Body::from(body))
    })
    .await
}

#[tokio::test]
async fn a_chart_whose_kind_is_gone_is_gone() {
    let (node, _) = chart_of(&json!({}));
    assert!(there(&without_charts(&[]).await, &node).await.unwrap().is_none());
    // One that is only not served lives on.
    let cluster = without_charts(&["helmcharts.source.toolkit.fluxcd.io"]).await;
    let error = there(&cluster, &node).await.unwrap_err().to_string();
    assert!(error.contains("serves none of its versions"), "{error}");
}
