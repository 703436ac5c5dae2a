//! Every field of the spec is used; names of charts; what is added to versions.

use serde_json::{Value, json};

use super::super::chart_source::SourceArtifact;
use super::*;
use fake_cluster::spec_field_check;

fn object(more: &Value) -> HelmChart {
    let mut spec = json!({
        "chart": "app", "interval": "10m", "sourceRef": {"kind": "HelmRepository", "name": "charts"},
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    serde_json::from_value(json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "HelmChart",
        "metadata": {"name": "app", "namespace": "shop", "generation": 3}, "spec": spec,
    }))
    .unwrap()
}

/// Fields of the schema that are used.
const USED: [&str; 9] = [
    "chart",
    "version",
    "sourceRef",
    "interval",
    "reconcileStrategy",
    "valuesFiles",
    "ignoreMissingValuesFiles",
    "suspend",
    "verify",
];

#[test]
fn every_field_of_the_schema_is_used() {
    spec_field_check::knows_every_field("HelmChart", USED);
}

#[test]
fn names_that_could_be_paths_elsewhere_are_refused() {
    let git = json!({"kind": "GitRepository", "name": "x"});
    for (chart, in_tree, is_fine) in [
        ("app-1", false, true),
        ("org/app.x", false, true),
        ("", false, false),
        ("App", false, false),
        ("../app", false, false),
        ("a//b", false, false),
        ("a..b", false, false),
        (".", false, false),
        ("./charts/App", true, true),
        ("../charts", true, false),
        ("", true, false),
    ] {
        let source = if in_tree { json!({"sourceRef": git}) } else { json!({}) };
        let mut object = object(&source);
        chart.clone_into(&mut object.spec.chart);
        match check(&object) {
            Ok(()) => assert!(is_fine, "{chart}"),
            Err(outcome) => {
                assert!(!is_fine, "{chart}: {}", outcome.text());
                assert_eq!(outcome.reason().as_str(), "InvalidChartReference");
            }
        }
    }
}

#[test]
fn revision_and_values_files_are_added_to_the_version_as_in_flux() {
    let metadata = |more: &Value, revision: &str| {
        let artifact = serde_json::from_value(json!({
            "digest": "sha256:1", "lastUpdateTime": "2026-09-21T14:13:20Z", "path": "a/b/c/d",
            "revision": revision, "url": "http://a/b/c/d",
        }));
        let from =
            ChartOrigin::Tree(SourceArtifact { artifact: artifact.unwrap(), is_elsewhere: false });
        desired(&object(more), from, None).ok().unwrap().work.metadata
    };
    let git = "main@sha1:0123456789abcdef0123456789abcdef01234567";
    let by_revision = json!({"reconcileStrategy": "Revision"});
    assert_eq!(metadata(&json!({}), git), None);
    assert_eq!(metadata(&by_revision, git).as_deref(), Some("0123456789ab"));
    assert_eq!(metadata(&by_revision, "sha256:fedcba9876543210").as_deref(), Some("fedcba987654"));
    assert_eq!(metadata(&json!({"valuesFiles": ["a.yaml"]}), git).as_deref(), Some("3"));
    let both = json!({"reconcileStrategy": "Revision", "valuesFiles": ["a", "b"]});
    assert_eq!(metadata(&both, git).as_deref(), Some("0123456789ab.3"));
    assert_eq!(metadata(&json!({"valuesFiles": ["./values.yaml"]}), git), None);
}
