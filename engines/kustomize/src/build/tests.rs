//! Whole builds in memory. Strings are what kustomize 5.8.1 prints for the same files, unless a test says otherwise.

use expect_test::{Expect, expect};
use tree::MemoryTree;

use super::{KustomizeBuildOptions, KustomizeBuildWarning, ObjectOrder, build};
use crate::budget::BuildBudget;
use crate::build_files::TreeBuildFiles;
use crate::loader::LoadRestriction;

/// The files of a text in which each begins with `//- name`.
fn files(text: &str) -> TreeBuildFiles<MemoryTree> {
    let files = text.split("//- ").skip(1).map(|file| file.split_once('\n').unwrap_or((file, "")));
    TreeBuildFiles(MemoryTree::from_files(files).unwrap())
}

/// What the kustomization in a folder builds, with its warnings and its error.
fn built(text: &str, dir: &str, options: &KustomizeBuildOptions) -> String {
    let mut warnings = Vec::new();
    let result = build(&files(text), dir, options, &BuildBudget::default(), &mut warnings);
    let mut shown = String::new();
    for warning in warnings {
        match warning {
            KustomizeBuildWarning::Advice(text)
            | KustomizeBuildWarning::Log(text)
            | KustomizeBuildWarning::Lost(text) => {
                shown.push_str(&text);
                shown.push('\n');
            }
        }
    }
    match result.and_then(|built| built.yaml()) {
        Ok(yaml) => shown.push_str(&yaml),
        Err(error) => shown.push_str(&format!("Error: {error}")),
    }
    shown
}

fn check(text: &str, wanted: &Expect) {
    wanted.assert_eq(&built(text, "/app", &KustomizeBuildOptions::default()));
}

const SERVICE: &str = "//- app/service.yaml
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {ports: [{port: 80}]}
";

#[test]
fn names_follow_the_objects_that_they_mean() {
    let text = "//- app/kustomization.yaml
namePrefix: dev-
namespace: shop
resources: [base]
configMapGenerator:
- name: settings
  behavior: merge
  literals: [color=blue]
//- app/base/kustomization.yaml
resources: [deployment.yaml]
configMapGenerator:
- name: settings
  literals: [color=red, size=1]
//- app/base/deployment.yaml
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  template:
    spec:
      containers:
      - name: web
        envFrom:
        - configMapRef: {name: settings}
";
    check(
        text,
        &expect![[r#"
            apiVersion: apps/v1
            kind: Deployment
            metadata:
              name: dev-web
              namespace: shop
            spec:
              template:
                spec:
                  containers:
                  - envFrom:
                    - configMapRef:
                        name: dev-settings-6826k9b784
                    name: web
            ---
            apiVersion: v1
            data:
              color: blue
              size: "1"
            kind: ConfigMap
            metadata:
              name: dev-settings-6826k9b784
              namespace: shop
        "#]],
    );
}

#[test]
fn a_json_patch_can_add_the_first_annotation() {
    let text = format!(
        "{SERVICE}//- app/kustomization.yaml
resources: [service.yaml]
patches:
- target: {{kind: Service}}
  patch: '- {{op: add, path: /metadata/annotations/a, value: b}}'
"
    );
    check(
        &text,
        &expect![[r#"
        apiVersion: v1
        kind: Service
        metadata:
          annotations:
            a: b
          name: web
        spec:
          ports:
          - port: 80
    "#]],
    );
}

#[test]
fn a_component_changes_accumulated_objects_before_the_labels_of_its_parent() {
    let text = format!(
        "{SERVICE}//- app/kustomization.yaml
resources: [service.yaml]
components: [../part]
labels: [{{pairs: {{tier: web}}}}]
//- part/kustomization.yaml
apiVersion: kustomize.config.k8s.io/v1alpha1
kind: Component
namePrefix: part-
"
    );
    check(
        &text,
        &expect![[r#"
        apiVersion: v1
        kind: Service
        metadata:
          labels:
            tier: web
          name: part-web
        spec:
          ports:
          - port: 80
    "#]],
    );
}

#[test]
fn errors_are_those_of_kustomize() {
    let cases = [
        ("", "unable to find one of"),
        ("//- app/kustomization.yaml\n", "kustomization.yaml is empty"),
        ("//- app/kustomization.yaml\nresource: []\n", "json: unknown field \"resource\""),
        (
            "//- app/kustomization.yaml\nnamePrefix: y\n",
            "json: cannot unmarshal bool into Go struct field Kustomization.namePrefix of type string",
        ),
        (
            "//- app/kustomization.yaml\nresources: [../other/a.yaml]\n//- other/a.yaml\n",
            "security; file '/other/a.yaml' is not in or below '/app'",
        ),
        (
            "//- app/kustomization.yaml\nresources: [b]\n//- app/b/kustomization.yaml\nresources: [..]\n",
            "cycle detected: candidate root '/app' contains visited root '/app/b'",
        ),
        (
            "//- app/kustomization.yaml\nresources: [https://example.com/a.yaml]\n",
            "`https://example.com/a.yaml` is remote, and remote files are not fetched here",
        ),
        ("//- app/kustomization.yaml\nhelmCharts: [{name: a}]\n", "must specify --enable-helm"),
        (
            "//- app/kustomization.yaml\ntransformers: ['{apiVersion: a/v1, kind: Fn, metadata: {name: a}}']\n",
            "external plugins disabled; unable to load external plugin 'Fn'",
        ),
        (
            "//- app/kustomization.yaml\nimages: [{name: '('}]\n",
            "error parsing regexp: missing closing ): ",
        ),
    ];
    for (text, wanted) in cases {
        let text = format!("{text}//- app/unused\n");
        let shown = built(&text, "/app", &KustomizeBuildOptions::default());
        assert!(shown.contains(wanted), "{wanted}\n{shown}");
    }
}

#[test]
fn functions_are_refused_by_name_where_plugins_are_allowed() {
    let text = "//- app/kustomization.yaml
transformers: ['{apiVersion: a/v1, kind: Fn, metadata: {name: a}}']
";
    let options = KustomizeBuildOptions { plugins: true, ..KustomizeBuildOptions::default() };
    let shown = built(text, "/app", &options);
    assert!(shown.contains("`Fn` (a/v1) is an exec or container function"), "{shown}");
}

#[test]
fn without_a_restriction_files_may_lie_anywhere() {
    let text = "//- app/kustomization.yaml
resources: [../other/a.yaml]
//- other/a.yaml
{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}
";
    let options = KustomizeBuildOptions {
        restriction: LoadRestriction::None,
        ..KustomizeBuildOptions::default()
    };
    assert!(built(text, "/app", &options).starts_with("apiVersion: v1\n"));
}

#[test]
fn the_order_of_kustomizes_command_puts_namespaces_first() {
    let text = "//- app/kustomization.yaml
resources: [a.yaml]
//- app/a.yaml
{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: z}}
";
    let options =
        KustomizeBuildOptions { order: ObjectOrder::Legacy, ..KustomizeBuildOptions::default() };
    assert!(built(text, "/app", &options).contains("kind: Namespace\nmetadata:\n  name: z\n---\n"));
}

#[test]
fn variables_take_values_and_their_types() {
    let text = format!(
        "{SERVICE}//- app/kustomization.yaml
resources: [service.yaml, pod.yaml]
vars:
- name: PORT
  objref: {{apiVersion: v1, kind: Service, name: web}}
  fieldref: {{fieldpath: 'spec.ports[0].port'}}
//- app/pod.yaml
apiVersion: v1
kind: Pod
metadata: {{name: p}}
spec:
  containers:
  - name: c
    args: [$(PORT), --port=$(PORT), $$(PORT), $(OTHER)]
"
    );
    check(
        &text,
        &expect![[r#"
        # Warning: 'vars' is deprecated. Please use 'replacements' instead. [EXPERIMENTAL] Run 'kustomize edit fix' to update your Kustomization automatically.
        apiVersion: v1
        kind: Service
        metadata:
          name: web
        spec:
          ports:
          - port: 80
        ---
        apiVersion: v1
        kind: Pod
        metadata:
          name: p
        spec:
          containers:
          - args:
            - 80
            - --port=80
            - $(PORT)
            - $(OTHER)
            name: c
    "#]],
    );
}

#[test]
fn a_replacement_reaches_into_json_within_a_text() {
    let text = format!(
        "{SERVICE}//- app/kustomization.yaml
resources: [service.yaml, c.yaml]
replacements:
- source: {{kind: Service}}
  targets:
  - select: {{kind: ConfigMap}}
    fieldPaths: [data.config.host]
//- app/c.yaml
apiVersion: v1
kind: ConfigMap
metadata: {{name: c}}
data:
  config: '{{\"host\":\"old\",\"html\":\"<a>\"}}'
"
    );
    check(
        &text,
        &expect![[r#"
        apiVersion: v1
        kind: Service
        metadata:
          name: web
        spec:
          ports:
          - port: 80
        ---
        apiVersion: v1
        data:
          config: '{"host":"web","html":"\u003ca\u003e"}'
        kind: ConfigMap
        metadata:
          name: c
    "#]],
    );
}

#[test]
fn kustomizations_without_end_are_refused() {
    let mut text = String::new();
    for at in 0..30 {
        let next = at + 1;
        text.push_str(&format!(
            "//- k{at}/kustomization.yaml\nresources: [../k{next}, ../k{next}]\n"
        ));
    }
    text.push_str("//- k30/kustomization.yaml\nresources: []\n");
    let shown = built(&text, "/k0", &KustomizeBuildOptions::default());
    assert!(shown.contains("it takes more than 40000000000 steps"), "{shown}");
}

#[test]
fn a_long_chain_of_kustomizations_is_refused_and_does_not_use_up_the_stack() {
    let mut text = String::new();
    for at in 0..400 {
        text.push_str(&format!("//- k{at}/kustomization.yaml\nresources: [../k{}]\n", at + 1));
    }
    text.push_str("//- k400/kustomization.yaml\nresources: []\n");
    let shown = built(&text, "/k0", &KustomizeBuildOptions::default());
    assert!(shown.contains("is more than 50 kustomizations deep"), "{shown}");
}

proptest::proptest! {
    #[test]
    fn no_kustomization_panics(text in "([a-zA-Z]{0,12}: ?[\\[{]?[a-z\"'&*|>!-]{0,9}[\\]}]?\n){0,6}") {
        drop(built(&format!("//- app/kustomization.yaml\n{text}"), "/app", &KustomizeBuildOptions::default()));
    }

    #[test]
    fn no_manifest_panics(text in "(- |  )?([a-z]{1,8}: ?[\\[{]?[a-z0-9\"'&*|>!:-]{0,9}[\\]}]?\n){0,8}") {
        let text = format!(
            "//- app/kustomization.yaml\nnamePrefix: a\nimages: [{{name: a, newTag: b}}]\ncommonLabels: {{a: b}}\n\
             resources: [r.yaml]\n//- app/r.yaml\napiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\n{text}"
        );
        drop(built(&text, "/app", &KustomizeBuildOptions::default()));
    }
}

#[test]
fn a_base_that_is_lost_in_a_path_of_two_lines_is_warned_of() {
    let config =
        |name: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\n");
    let text = |entries: &str| {
        format!(
            "//- app/kustomization.yaml\nresources:\n{entries}\n\
             //- base/kustomization.yaml\nresources: [it.yaml]\n//- base/it.yaml\n{}\
             //- common/prod/kustomization.yaml\nresources: [it.yaml]\n//- common/prod/it.yaml\n{}",
            config("base"),
            config("prod"),
        )
    };
    // kustomize 5.8.1 builds the same, and is silent (kustomize#5979).
    let joined = built(
        &text("- ./../base\n - ../../common/prod"),
        "/app",
        &KustomizeBuildOptions::default(),
    );
    let warning = "/app/kustomization.yaml: `./../base` is not built, because the line `- ../../common/prod` is \
                   indented deeper than the one before it, which makes both one path\n";
    assert_eq!(
        joined,
        format!(
            "{warning}{}",
            built(&text("- ../common/prod"), "/app", &KustomizeBuildOptions::default())
        )
    );
    let both =
        built(&text("- ../base\n- ../common/prod"), "/app", &KustomizeBuildOptions::default());
    assert!(both.contains("name: base") && both.contains("name: prod"), "{both}");
    assert!(!both.contains("not built"), "{both}");
}
