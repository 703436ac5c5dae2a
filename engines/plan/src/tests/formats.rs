//! One plan in each of its formats.

use expect_test::{Expect, expect};

use super::*;
use crate::{markdown_comment, sarif_log, table_text};

pub(super) fn sample_plan() -> ChangePlan {
    let secret = |value: &str| object("v1", "Secret", "token", &json!({"data": {"key": value}}));
    let base = vec![
        deployment("x", 1, "nginx:1"),
        map("gone", "1"),
        map("moved", "1"),
        secret("b25l"),
        map("same", "1"),
    ];
    let head =
        vec![deployment("y", 1, "nginx:2"), map("new", "1"), secret("dHdv"), map("same", "1")];
    let file = Some("clusters/my apps.yaml".to_owned());
    let apps = |objects| RenderedApplier { file: file.clone(), ..applier(objects) };
    let unknown = UnknownValue {
        what: "Secret/shop/database".to_owned(),
        reason: "it is not in the repository".to_owned(),
    };
    let other = RenderedApplier { unknown_values: vec![unknown], ..applier(maps(&["moved"])) };
    plan(
        vec![("apps", apps(base)), ("other", applier(vec![]))],
        vec![("apps", apps(head)), ("broken", failed("``` @all <b>")), ("other", other)],
    )
}

fn check(text: &str, expected: &Expect) {
    expected.assert_eq(text);
}

#[test]
fn a_table_says_by_signs_what_happens() {
    check(
        &table_text(&sample_plan()),
        &expect![[r#"
            error: Kustomization/flux-system/apps: Deployment/shop/web: `spec.selector` of a Deployment is immutable; the API server rejects it, unless the applier has `force`
            error: Kustomization/flux-system/broken: cannot be rendered: ``` @all <b>
            Kustomization/flux-system/apps (clusters/my apps.yaml): 1 added, 2 changed, 1 moved away, 1 deleted
              - deleted ConfigMap/shop/gone
              ! immutable Deployment/shop/web: `spec.selector` of a Deployment is immutable; the API server rejects it, unless the applier has `force`
              ~ changed Secret/shop/token
                  /data/key: "****" -> "****"
              ~ changed Deployment/shop/web
                  /spec/selector/matchLabels/app: "x" -> "y"
                  /spec/template/metadata/labels/app: "x" -> "y"
                  /spec/template/spec/containers/0/image: "nginx:1" -> "nginx:2"
              > moves ConfigMap/shop/moved to Kustomization/flux-system/other
              = image Deployment/shop/web web: nginx:1 -> nginx:2
              + added ConfigMap/shop/new
            Kustomization/flux-system/broken: cannot be rendered
              ! ``` @all <b>
            Kustomization/flux-system/other: 1 moved here, 1 not known
              > moved ConfigMap/shop/moved from Kustomization/flux-system/apps
              ? not known: Secret/shop/database: it is not in the repository
            aaa -> bbb: 1 added, 2 changed, 1 moved, 1 deleted, 1 image, 1 unchanged, 1 applier not compared
        "#]],
    );
}

#[test]
fn a_comment_has_a_part_for_each_applier_and_fences_around_manifests() {
    check(
        &markdown_comment(&sample_plan()),
        &expect![[r#"
            <!-- windlass plan -->
            ### Plan: 1 added, 2 changed, 1 moved, 1 deleted, 1 image, 1 unchanged, 1 applier not compared

            From `aaa` to `bbb`.

            ````
            error: Kustomization/flux-system/apps: Deployment/shop/web: `spec.selector` of a Deployment is immutable; the API server rejects it, unless the applier has `force`
            error: Kustomization/flux-system/broken: cannot be rendered: ``` @all <b>
            ````

            <details><summary><code>Kustomization/flux-system/apps</code>: 1 added, 2 changed, 1 moved away, 1 deleted</summary>

            ```diff
            - deleted ConfigMap/shop/gone
            ! immutable Deployment/shop/web: `spec.selector` of a Deployment is immutable; the API server rejects it, unless the applier has `force`
            ~ changed Secret/shop/token
                · /data/key: "****" -> "****"
            ~ changed Deployment/shop/web
                · /spec/selector/matchLabels/app: "x" -> "y"
                · /spec/template/metadata/labels/app: "x" -> "y"
                · /spec/template/spec/containers/0/image: "nginx:1" -> "nginx:2"
            > moves ConfigMap/shop/moved to Kustomization/flux-system/other
            = image Deployment/shop/web web: nginx:1 -> nginx:2
            + added ConfigMap/shop/new
            ```

            </details>

            <details><summary><code>Kustomization/flux-system/broken</code>: cannot be rendered</summary>

            ````diff
            ! ``` @all <b>
            ````

            </details>

            <details><summary><code>Kustomization/flux-system/other</code>: 1 moved here, 1 not known</summary>

            ```diff
            > moved ConfigMap/shop/moved from Kustomization/flux-system/apps
            ? not known: Secret/shop/database: it is not in the repository
            ```

            </details>

        "#]],
    );
}

#[test]
fn a_plan_as_json_has_the_names_that_pages_promise() {
    let base = vec![("a", applier(vec![map("gone", "1"), map("x", "1")]))];
    let head = vec![("a", applier(vec![map("x", "2")]))];
    let json = serde_json::to_string_pretty(&plan(base, head)).unwrap();
    check(
        &json,
        &expect![[r#"
            {
              "baseRevision": "aaa",
              "headRevision": "bbb",
              "summary": {
                "added": 0,
                "changed": 1,
                "removed": 1,
                "deleted": 1,
                "moved": 0,
                "unchanged": 0,
                "images": 0,
                "notCompared": 0
              },
              "findings": [],
              "appliers": [
                {
                  "applier": {
                    "group": "kustomize.toolkit.fluxcd.io",
                    "kind": "Kustomization",
                    "namespace": "flux-system",
                    "name": "a"
                  },
                  "comparison": "compared",
                  "changed": [
                    {
                      "object": {
                        "kind": "ConfigMap",
                        "namespace": "shop",
                        "name": "x"
                      },
                      "fields": [
                        {
                          "path": "/data/a",
                          "old": "1",
                          "new": "2"
                        }
                      ]
                    }
                  ],
                  "removed": [
                    {
                      "object": {
                        "kind": "ConfigMap",
                        "namespace": "shop",
                        "name": "gone"
                      }
                    }
                  ],
                  "movedAway": 0,
                  "unchanged": 0,
                  "deletion": {
                    "deleted": 1,
                    "of": 2,
                    "first": [
                      {
                        "kind": "ConfigMap",
                        "namespace": "shop",
                        "name": "gone"
                      }
                    ],
                    "exceeded": []
                  }
                }
              ]
            }"#]],
    );
}

#[test]
fn a_log_of_sarif_has_a_result_for_each_finding() {
    let log = sarif_log(&sample_plan());
    assert_eq!(log["version"], "2.1.0");
    let run = &log["runs"][0];
    let rules: Vec<&Value> =
        run["tool"]["driver"]["rules"].as_array().unwrap().iter().map(|it| &it["id"]).collect();
    for result in run["results"].as_array().unwrap() {
        let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
        assert_eq!(*rules[index], result["ruleId"]);
    }
    let mut results = run["results"].clone();
    for result in results.as_array_mut().unwrap() {
        let fingerprint = result["partialFingerprints"]["planFinding/v1"].take();
        assert_eq!(fingerprint.as_str().unwrap().len(), 64);
    }
    check(
        &serde_json::to_string_pretty(&results).unwrap(),
        &expect![[r#"
            [
              {
                "level": "error",
                "locations": [
                  {
                    "logicalLocations": [
                      {
                        "fullyQualifiedName": "Kustomization/flux-system/apps",
                        "kind": "resource"
                      },
                      {
                        "fullyQualifiedName": "Deployment/shop/web",
                        "kind": "resource"
                      }
                    ],
                    "physicalLocation": {
                      "artifactLocation": {
                        "uri": "clusters/my%20apps.yaml"
                      },
                      "region": {
                        "startLine": 1
                      }
                    }
                  }
                ],
                "message": {
                  "text": "Kustomization/flux-system/apps: Deployment/shop/web: 'spec.selector' of a Deployment is immutable; the API server rejects it, unless the applier has 'force'"
                },
                "partialFingerprints": {
                  "planFinding/v1": null
                },
                "ruleId": "immutable-field",
                "ruleIndex": 1
              },
              {
                "level": "error",
                "locations": [
                  {
                    "logicalLocations": [
                      {
                        "fullyQualifiedName": "Kustomization/flux-system/broken",
                        "kind": "resource"
                      }
                    ]
                  }
                ],
                "message": {
                  "text": "Kustomization/flux-system/broken: cannot be rendered: '''  at all 'b'"
                },
                "partialFingerprints": {
                  "planFinding/v1": null
                },
                "ruleId": "not-compared",
                "ruleIndex": 3
              }
            ]"#]],
    );
}
