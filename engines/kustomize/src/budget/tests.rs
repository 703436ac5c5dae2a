//! Builds that exceed their limits end with an error that names the place; kustomize goes on until memory is full.
//!
//! Each of these inputs is a few kilobytes, and would take gigabytes or hours.

use std::fmt::Write as _;

use golang::work_meter::{StopSignal, WorkAllowance, WorkMeter};
use tree::MemoryTree;

use super::{ALLOWED, BuildBudget};
use crate::{KustomizeBuildOptions, TreeBuildFiles, build};

/// A part of what is allowed, so that the tests are done soon; inputs have no end in this either.
const PART: WorkAllowance = WorkAllowance { steps: ALLOWED.steps / 100, bytes: ALLOWED.bytes / 20 };

const APP: &str = "{apiVersion: v1, kind: ConfigMap, metadata: {name: app}, data: {a: x, b: y}}\n";

fn run(files: &[(String, String)], meter: WorkMeter) -> Result<String, String> {
    let files = MemoryTree::from_files(files.iter().map(|(path, text)| (path, text))).unwrap();
    let options = KustomizeBuildOptions::default();
    let built =
        build(&TreeBuildFiles(files), "/", &options, &BuildBudget::new(meter), &mut Vec::new());
    built.and_then(|built| built.yaml()).map_err(|error| error.to_string())
}

/// The error that a build ends with, which names all of `places`.
fn check(files: &[(String, String)], places: &[&str]) {
    let error = run(files, WorkMeter::new(PART, StopSignal::default())).unwrap_err();
    assert!(
        error.contains("it takes more than") || error.contains("excessive aliasing"),
        "{error}"
    );
    for place in places {
        assert!(error.contains(place), "{place}: {error}");
    }
    assert!(error.len() < 70_000);
}

fn file(path: &str, text: impl Into<String>) -> (String, String) {
    (path.to_owned(), text.into())
}

/// A kustomization with one object, and with this text.
fn around_app(text: &str) -> Vec<(String, String)> {
    vec![
        file("kustomization.yaml", format!("resources: [app.yaml]\n{text}")),
        file("app.yaml", APP),
    ]
}

/// Objects with different names.
fn apps(count: usize) -> String {
    (0..count).map(|at| format!("---\n{}", APP.replace("app", &format!("app{at}")))).collect()
}

#[test]
fn bases_that_double() {
    let mut files = vec![file("kustomization.yaml", "resources: [l0]\n")];
    for level in 0..24 {
        let next = format!("../l{}", level + 1);
        for (side, folder) in [("a", "a"), ("b", "b")] {
            let text = format!("namePrefix: {side}\nresources: [../{next}]\n");
            files.push(file(&format!("l{level}/{folder}/kustomization.yaml"), text));
        }
        files.push(file(&format!("l{level}/kustomization.yaml"), "resources: [a, b]\n"));
    }
    files.push(file("l24/kustomization.yaml", "resources: [app.yaml]\n"));
    files.push(file("l24/app.yaml", APP));
    check(&files, &["recursed accumulation of path '/l0'", "/l23"]);
}

#[test]
fn replacements_that_double_a_text() {
    let mut text = "replacements:\n".to_owned();
    for step in 0..80 {
        let (from, to) = if step % 2 == 0 { ("a", "b") } else { ("b", "a") };
        let _ = write!(
            text,
            "- source: {{kind: ConfigMap, fieldPath: data.{from}}}\n  targets:\n  - select: {{kind: ConfigMap}}\n    \
             fieldPaths: [data.{to}]\n    options: {{delimiter: '/', index: 999999999}}\n"
        );
    }
    let places = ["ReplacementTransformer of /kustomization.yaml"];
    check(&around_app(&text), &places);
}

#[test]
fn replacements_that_double_a_map() {
    let mut text = "replacements:\n".to_owned();
    for step in 0..60 {
        let _ = write!(
            text,
            "- source: {{kind: ConfigMap, fieldPath: data}}\n  targets:\n  - select: {{kind: ConfigMap}}\n    \
             fieldPaths: [data.k{step}]\n    options: {{create: true}}\n"
        );
    }
    check(&around_app(&text), &["ReplacementTransformer of /kustomization.yaml"]);
}

#[test]
fn copies_of_a_json_patch() {
    let mut operations = String::new();
    for step in 0..60 {
        let _ = writeln!(operations, "    - {{op: copy, from: /data, path: /data/k{step}}}");
    }
    let text = format!("patches:\n- target: {{kind: ConfigMap}}\n  patch: |\n{operations}");
    check(&around_app(&text), &["PatchTransformer of /kustomization.yaml", "ConfigMap", "app"]);
}

#[test]
fn aliases_of_long_strings() {
    let long = "x".repeat(100_000);
    let aliases = "*l, ".repeat(10_000);
    let text =
        format!("apiVersion: v1\nkind: A\nmetadata: {{name: a}}\nl: &l {long}\nm: [{aliases}]\n");
    let files = [file("kustomization.yaml", "resources: [a.yaml]\n"), file("a.yaml", text)];
    check(&files, &["a.yaml"]);
}

#[test]
fn anchors_within_anchors() {
    let open = (0..900).fold(String::new(), |mut text, level| {
        let _ = write!(text, "&a{level} [");
        text
    });
    let close = "]".repeat(900);
    let long = "x".repeat(1_000_000);
    let text = format!("apiVersion: v1\nkind: A\nmetadata: {{name: a}}\nl: {open}{long}{close}\n");
    let files = [file("kustomization.yaml", "resources: [a.yaml]\n"), file("a.yaml", text)];
    check(&files, &["a.yaml"]);
}

#[test]
fn variables_in_a_text() {
    let long = "x".repeat(100_000);
    let many = "$(V)".repeat(100_000);
    let app = format!(
        "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: app, annotations: {{l: {long}}}}}, spec: {{template: \
         {{spec: {{containers: [{{name: c, args: ['{many}']}}]}}}}}}}}\n"
    );
    let text = "resources: [app.yaml]\nvars:\n- {name: V, objref: {apiVersion: apps/v1, kind: Deployment, name: app}, \
                fieldref: {fieldpath: metadata.annotations.l}}\n";
    check(&[file("kustomization.yaml", text), file("app.yaml", app)], &["Deployment", "args"]);
}

#[test]
fn references_without_an_end() {
    // Each `$(` looked for its end in all that follows.
    let many = "$(".repeat(500_000);
    let app = format!(
        "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: app}}, spec: {{template: \
         {{spec: {{containers: [{{name: c, args: ['{many}']}}]}}}}}}}}\n"
    );
    let text = "resources: [app.yaml]\nvars:\n- {name: V, objref: {apiVersion: apps/v1, kind: Deployment, name: app}}\n";
    let files = [file("kustomization.yaml", text), file("app.yaml", app)];
    let built = run(&files, WorkMeter::new(PART, StopSignal::default())).unwrap();
    assert!(built.len() > 1_000_000);
}

#[test]
fn files_of_generators() {
    let mut text = "configMapGenerator:\n- name: a\n  files:\n".to_owned();
    text.extend((0..100).map(|key| format!("  - k{key}=long\n")));
    let files = [file("kustomization.yaml", text), file("long", "x".repeat(1 << 20))];
    check(&files, &["ConfigMapGenerator of /kustomization.yaml", "file sources"]);
}

#[test]
fn patches_of_many_objects() {
    let app = apps(3_000);
    let mut text = "resources: [app.yaml]\npatches:\n".to_owned();
    for step in 1..1_000 {
        let _ = writeln!(
            text,
            "- {{target: {{kind: ConfigMap, name: 'app[0-9]{{1,{step}}}'}}, patch: '[{{\"op\": \"add\", \"path\": \
             \"/data/k{step}\", \"value\": \"x\"}}]'}}"
        );
    }
    let files = [file("kustomization.yaml", text), file("app.yaml", app)];
    check(&files, &["PatchTransformer of /kustomization.yaml"]);
}

#[test]
fn prefixes_that_are_long() {
    let long = "x".repeat(20_000);
    let mut transformers = String::new();
    for step in 0..300 {
        let _ = write!(
            transformers,
            "---\n{{apiVersion: builtin, kind: PrefixTransformer, metadata: {{name: t{step}}}, prefix: {long}, fieldSpecs: \
             [{{path: metadata/name}}]}}\n"
        );
    }
    let mut files = around_app("transformers: [t.yaml]\n");
    files.push(file("t.yaml", transformers));
    check(&files, &["PrefixTransformer of /kustomization.yaml"]);
}

#[test]
fn an_error_does_not_grow_with_the_components_that_it_comes_through() {
    let mut files = vec![file("kustomization.yaml", "components: [c0]\n")];
    for level in 0..40 {
        let text = format!("kind: Component\ncomponents: [../c{}]\n", level + 1);
        files.push(file(&format!("c{level}/kustomization.yaml"), text));
    }
    let error = run(&files, WorkMeter::new(PART, StopSignal::default())).unwrap_err();
    assert!(error.starts_with("accumulating components: accumulateDirectory: "), "{error:.200}");
    assert!(error.len() < 70_000, "{}", error.len());
}

#[test]
fn lists_of_field_specifications() {
    let mut specs = "labels:\n".to_owned();
    specs.extend((0..10_000).map(|at| format!("- {{path: spec/f{at}}}\n")));
    let mut text = "configurations: [c.yaml]\nimages:\n".to_owned();
    text.extend((0..2_000).map(|at| format!("- {{name: i{at}, newTag: x}}\n")));
    let mut files = around_app(&text);
    files.push(file("c.yaml", specs.replace("labels:", "images:")));
    check(&files, &[]);
}

#[test]
fn a_build_ends_when_the_caller_wants_it_and_says_where() {
    let stop = StopSignal::default();
    stop.set();
    let error = run(&around_app("namePrefix: a-\n"), WorkMeter::new(ALLOWED, stop)).unwrap_err();
    assert!(error.ends_with("it takes too long"), "{error}");
}

#[test]
fn an_ordinary_build_takes_little() {
    let mut budget = Vec::new();
    for count in [1, 500] {
        let text = "namePrefix: a-\nresources: [app.yaml]\n";
        let files = [file("kustomization.yaml", text), file("app.yaml", apps(count))];
        let files = MemoryTree::from_files(files.iter().map(|(path, text)| (path, text))).unwrap();
        let account = BuildBudget::default();
        build(
            &TreeBuildFiles(files),
            "/",
            &KustomizeBuildOptions::default(),
            &account,
            &mut Vec::new(),
        )
        .unwrap();
        let left = account.0.borrow().left();
        budget.push((ALLOWED.steps - left.steps, ALLOWED.bytes - left.bytes));
    }
    assert!(budget[0].0 < ALLOWED.steps / 1_000, "{budget:?}");
    assert!(budget[1].0 < ALLOWED.steps / 200 && budget[1].1 < ALLOWED.bytes / 100, "{budget:?}");
}
