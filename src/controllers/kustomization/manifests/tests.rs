//! Folders of manifests.

use tree::Memory;

use super::*;

fn config_map(name: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: shop}}\n")
}

fn loaded(files: &[(&str, &str)], path: &str) -> Result<Vec<String>, String> {
    let tree = Memory::from_files(files.iter().copied()).unwrap();
    load(&tree, path)
        .map(|all| all.iter().map(|l| format!("{} {}", l.object.name(), l.file)).collect())
        .map_err(|error| error.to_string())
}

#[test]
fn a_folder_is_searched_through_and_other_files_are_left_alone() {
    let (a, b) = (config_map("a"), config_map("b"));
    let files = [
        ("app/a.yaml", a.as_str()),
        ("app/deep/b.yml", &b),
        ("app/README.md", "# no"),
        ("x.yaml", "["),
    ];
    assert_eq!(loaded(&files, "./app").unwrap(), ["a app/a.yaml", "b app/deep/b.yml"]);
}

#[test]
fn a_kustomization_reads_what_it_lists_and_no_more() {
    let (a, b, c) = (config_map("a"), config_map("b"), config_map("c"));
    let files = [
        ("app/kustomization.yaml", "resources: [b.yaml, ../base]\n"),
        ("app/a.yaml", &a),
        ("app/b.yaml", &b),
        ("base/kustomization.yaml", "resources:\n- c.yaml\n"),
        ("base/c.yaml", &c),
    ];
    assert_eq!(loaded(&files, "app").unwrap(), ["b app/b.yaml", "c base/c.yaml"]);
}

#[test]
fn every_other_entry_of_a_kustomization_is_refused_by_name() {
    let files = [("kustomization.yaml", "namePrefix: x-\nimages: []\nresources: []\n")];
    assert_eq!(
        loaded(&files, "").unwrap_err(),
        "kustomization.yaml: `images`, `namePrefix` is not supported by this version of windlass; only `resources` is"
    );
}

#[test]
fn a_path_outside_the_artifact_is_refused() {
    let outside = loaded(&[("a.yaml", "")], "../../etc").unwrap_err();
    assert!(outside.starts_with("spec.path: "), "{outside}");
    let outside =
        loaded(&[("app/kustomization.yaml", "resources: [../../b.yaml]\n")], "app").unwrap_err();
    assert!(outside.starts_with("app/kustomization.yaml: `resources`: "), "{outside}");
}

#[test]
fn what_is_missing_is_named() {
    assert!(
        loaded(&[("a.yaml", "")], "nope").unwrap_err().contains("`nope` is not in the artifact")
    );
    assert!(loaded(&[("a.yaml", "")], "a.yaml").unwrap_err().contains("is a file"));
    let missing = loaded(&[("kustomization.yaml", "resources: [x.yaml]\n")], "").unwrap_err();
    assert_eq!(
        missing,
        "kustomization.yaml: `resources` names `x.yaml`, which is not in the artifact"
    );
}

#[test]
fn a_kustomization_that_contains_itself_ends() {
    let files = [
        ("a/kustomization.yaml", "resources: [../b]\n"),
        ("b/kustomization.yaml", "resources: [../a]\n"),
    ];
    assert!(loaded(&files, "a").unwrap_err().contains("is listed twice, or contains itself"));
}
