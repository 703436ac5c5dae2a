//! Folders of manifests, as a spec sees them.

use serde_json::{Value, json};
use tree::MemoryTree;

use super::*;
use crate::kustomization::validated_spec;
use windlass_runtime::time_limit::TIME_LIMIT;

fn config_map(name: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: shop}}\n")
}

fn spec(more: &Value) -> KustomizationSpec {
    let mut spec = json!({"interval": "10m", "prune": true, "sourceRef": {"kind": "GitRepository", "name": "r"}});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    serde_json::from_value(spec).unwrap()
}

fn loaded(files: &[(&str, &str)], more: &Value) -> Result<Vec<String>, String> {
    let tree = MemoryTree::from_files(files.iter().copied()).unwrap();
    load(
        &tree,
        &spec(more),
        None,
        RemoteBaseAccess::Refused("there are none"),
        &BuildWorkLimits::new(TIME_LIMIT),
        &mut SecretMasking::default(),
    )
    .map(|all| all.objects.iter().map(|object| object.id().subject()).collect())
    .map_err(|error| error.to_string())
}

#[test]
fn a_folder_is_searched_through_and_other_files_are_left_alone() {
    let a = config_map("a");
    let b = config_map("b");
    let files = [
        ("app/a.yaml", a.as_str()),
        ("app/deep/b.yml", &b),
        ("app/README.md", "# no"),
        ("x.yaml", "["),
    ];
    let found = loaded(&files, &json!({"path": "./app"})).unwrap();
    assert_eq!(found, ["ConfigMap/shop/a", "ConfigMap/shop/b"]);
}

#[test]
fn an_overlay_gets_what_the_spec_adds() {
    let base = config_map("a");
    let files = [
        ("app/kustomization.yaml", "resources: [../base]\nnameSuffix: -x\n"),
        ("base/kustomization.yaml", "resources: [a.yaml]\nnamePrefix: base-\n"),
        ("base/a.yaml", base.as_str()),
    ];
    let more = json!({"path": "app", "targetNamespace": "other", "namePrefix": "spec-"});
    assert_eq!(loaded(&files, &more).unwrap(), ["ConfigMap/other/spec-base-a-x"]);
}

#[test]
fn an_empty_folder_is_no_objects_and_no_error() {
    assert_eq!(loaded(&[("app/README.md", "")], &json!({"path": "app"})).unwrap(), [""; 0]);
}

#[test]
fn nothing_is_read_from_outside_of_the_artifact() {
    let files = [("app/kustomization.yaml", "resources: [../../b.yaml]\n")];
    let error = loaded(&files, &json!({"path": "app"})).unwrap_err();
    assert!(error.starts_with("kustomize build failed: "), "{error}");
    let files = [("app/kustomization.yaml", "resources: ['https://example.com/b.yaml']\n")];
    let error = loaded(&files, &json!({"path": "app"})).unwrap_err();
    assert!(error.contains("https://example.com/b.yaml"), "{error}");
}

#[test]
fn a_build_reads_each_file_of_the_artifact_through_its_recorder() {
    let a = config_map("a");
    let b = config_map("b");
    let files = [
        ("app/kustomization.yaml", "resources: [a.yaml]\n"),
        ("app/a.yaml", a.as_str()),
        ("app/b.yaml", &b),
    ];
    let tree = MemoryTree::from_files(files).unwrap();
    let recorder = tree::TreeRecorder::new(&tree);
    load(
        &recorder,
        &spec(&json!({"path": "app"})),
        None,
        RemoteBaseAccess::Refused("there are none"),
        &BuildWorkLimits::new(TIME_LIMIT),
        &mut SecretMasking::default(),
    )
    .unwrap();
    let trace = recorder.seen();
    let with = |path: &str, text: &str| {
        let changed =
            files.iter().map(|(name, old)| (*name, if *name == path { text } else { old }));
        trace.is_same_in(&MemoryTree::from_files(changed.collect::<Vec<_>>()).unwrap())
    };
    assert!(with("app/b.yaml", "changed"), "b.yaml is not part of the build");
    assert!(!with("app/a.yaml", "changed"), "a.yaml is");
    assert!(!with("app/kustomization.yaml", "changed"), "so is the kustomization");
}

#[test]
fn the_condition_names_a_base_that_is_lost_in_a_path_of_two_lines() {
    let base = config_map("base");
    let prod = config_map("prod");
    let warned = |entries: &str| {
        let kustomization = format!("resources:\n{entries}\n");
        let files = [
            ("apps/one/kustomization.yaml", kustomization.as_str()),
            ("base/kustomization.yaml", "resources: [it.yaml]\n"),
            ("base/it.yaml", &base),
            ("common/prod/kustomization.yaml", "resources: [it.yaml]\n"),
            ("common/prod/it.yaml", &prod),
        ];
        let tree = MemoryTree::from_files(files).unwrap();
        let all = load(
            &tree,
            &spec(&json!({"path": "apps/one"})),
            None,
            RemoteBaseAccess::Refused("there are none"),
            &BuildWorkLimits::new(TIME_LIMIT),
            &mut SecretMasking::default(),
        )
        .unwrap();
        let text = validated_spec::with_warnings("Applied revision: r1".to_owned(), &all.warnings);
        (all.objects.len(), text)
    };
    let (count, text) = warned("- ../../base\n - ../../common/prod");
    assert_eq!(count, 1);
    assert_eq!(
        text,
        "Applied revision: r1; warning: /apps/one/kustomization.yaml: `../../base` is not built, because the line \
         `- ../../common/prod` is indented deeper than the one before it, which makes both one path"
    );
    let (count, text) = warned("- ../../base\n- ../../common/prod");
    assert_eq!((count, text.as_str()), (2, "Applied revision: r1"));
}
