//! Plans that one job prints as JSON, and another one reads and posts.

use super::formats::sample_plan;
use super::*;
use crate::{
    PlanFailureRule, RemovedObject, check_status, comment_marker, markdown_comment,
    named_markdown_comment, sarif_log, table_text,
};

fn read_again(plan: &ChangePlan) -> ChangePlan {
    let text = serde_json::to_string_pretty(plan).unwrap();
    ChangePlan::from_untrusted_json(text.as_bytes()).unwrap()
}

/// A plan with everything that a plan can have.
fn full_plan() -> ChangePlan {
    let definition = |versions: &[&str], scope: &str| {
        let versions: Vec<Value> = versions
            .iter()
            .map(|name| json!({"name": name, "served": true, "storage": *name == "v1"}))
            .collect();
        let names = json!({"kind": "Widget", "plural": "widgets"});
        let spec = json!({"group": "example.com", "scope": scope, "versions": versions,
            "names": names});
        let kind = "CustomResourceDefinition";
        object("apiextensions.k8s.io/v1", kind, "widgets.example.com", &json!({"spec": spec}))
    };
    let names: Vec<String> = (0..12).map(|at| format!("m{at:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let numbers = |value: Value| object("example.com/v1", "Widget", "w", &json!({"spec": value}));
    let mut kept = map("kept", "1");
    kept.set_annotation("kustomize.toolkit.fluxcd.io/prune", "disabled");
    let mut base = maps(&names);
    base.extend([kept, map("moved", "1"), definition(&["v1", "v2"], "Cluster")]);
    base.extend([deployment("x", 1, "nginx:1"), numbers(json!([1, -2, 0.1, 1e300, null]))]);
    let head = vec![
        definition(&["v1"], "Namespaced"),
        deployment("y", 1, "nginx:2"),
        numbers(json!([18_446_744_073_709_551_615_u64, 2.5, {"a": {"b": [true, null]}}])),
        declaration("new"),
    ];
    let suspended = RenderedApplier {
        is_suspended: true,
        target_cluster: "west".to_owned(),
        file: Some("a.yaml".to_owned()),
        source_revision: "1.0.0".to_owned(),
        ..applier(maps(&["west"]))
    };
    let base = vec![
        ("apps", applier(base)),
        ("other", applier(vec![])),
        ("broken", failed("boom")),
        ("gone", child(maps(&["x"]), "apps")),
        ("suspended", suspended.clone()),
    ];
    let unknown = UnknownValue { what: "Secret/a/b".to_owned(), reason: "why".to_owned() };
    let head = vec![
        ("apps", applier(head)),
        ("other", RenderedApplier { unknown_values: vec![unknown], ..applier(maps(&["moved"])) }),
        ("broken", applier(maps(&["z"]))),
        ("suspended", RenderedApplier { source_revision: "2.0.0".to_owned(), ..suspended }),
    ];
    let mut head = rendering("bbb", head);
    head.incomplete = Some("too many appliers".to_owned());
    compare(&rendering("aaa", base), &head, &RenderingComparisonOptions::default())
}

#[test]
fn values_that_are_drawn_anew_are_not_known_although_nothing_else_changes() {
    let unknown = UnknownValue { what: "Secret/a/b".to_owned(), reason: "why".to_owned() };
    let with_unknown = |has_drawn_values: bool| {
        let unknown_values = vec![unknown.clone()];
        RenderedApplier { unknown_values, has_drawn_values, ..applier(maps(&["a"])) }
    };
    for has_drawn_values in [false, true] {
        let side = || vec![("apps", with_unknown(has_drawn_values))];
        let plan = plan(side(), side());
        let status = check_status(&plan, &[PlanFailureRule::UnknownValues]);
        assert_eq!(status.is_success, !has_drawn_values);
        assert_eq!(plan.is_unchanged(), !has_drawn_values);
    }
}

#[test]
fn a_plan_is_the_same_in_all_formats_after_it_was_printed_and_read() {
    for plan in [sample_plan(), full_plan()] {
        let read = read_again(&plan);
        assert_eq!(read, plan);
        assert_eq!(markdown_comment(&read), markdown_comment(&plan));
        assert_eq!(table_text(&read), table_text(&plan));
        assert_eq!(sarif_log(&read), sarif_log(&plan));
    }
    let full = full_plan();
    let change = full.appliers.iter().find(|it| it.applier.name == "apps").unwrap();
    assert!(change.deletion.as_ref().is_some_and(|it| it.exceeded.len() == 2), "{change:#?}");
    assert!(change.removed.iter().any(|it| it.left_in_cluster.is_some()));
    assert!(!change.definitions.is_empty() && !change.immutable_fields.is_empty());
}

#[test]
fn numbers_and_reasons_that_another_program_wrote_are_text_in_the_comment() {
    let mut value = serde_json::to_value(full_plan()).unwrap();
    value["summary"]["deleted"] = json!(usize::MAX);
    value["omittedFindings"] = json!(usize::MAX);
    value["findings"] = json!([]);
    value["headRevision"] = json!("`</details> @all");
    let change = &mut value["appliers"][0];
    change["movedAway"] = json!(usize::MAX);
    change["removed"] = json!([{"object": {"kind": "<b>", "name": "@all"},
        "leftInCluster": "```\n</details>\u{202e}@all"}]);
    change["deletion"] = json!({"deleted": 1, "of": 1, "first": [], "exceeded": [
        {"rule": "heldKind", "object": {"kind": "a", "name": "b"}, "count": 0}]});
    let plan = ChangePlan::from_untrusted_json(value.to_string().as_bytes()).unwrap();
    assert!(!plan.findings.is_empty(), "findings follow from the appliers");
    let comment = named_markdown_comment(&plan, "prod", 3000);
    assert!(comment.len() <= 3000, "{comment}");
    assert!(comment.contains("to `??/details???all`."), "{comment}");
    assert!(!comment.contains("\n</details>\\u{202e}") && !comment.contains('\u{202e}'));
    let all = named_markdown_comment(&plan, "prod", 60_000);
    assert!(all.contains("left in the cluster: ``` </details>\\u{202e}@all"), "{all}");
    let status = check_status(&plan, &[PlanFailureRule::Errors]);
    assert!(status.description.chars().count() <= 140, "{status:?}");
}

#[test]
fn a_comment_begins_with_the_marker_of_its_name_and_says_what_is_left_out() {
    let plan = full_plan();
    for (name, marker, title) in [
        ("", "<!-- windlass plan -->", "\n### Plan: "),
        ("prod", "<!-- windlass plan: prod -->", "\n### Plan `prod`: "),
        ("--> <b>", "<!-- windlass plan: --???b? -->", "\n### Plan `--???b?`: "),
    ] {
        assert_eq!(comment_marker(name), marker);
        let comment = named_markdown_comment(&plan, name, 60_000);
        assert!(comment.starts_with(&format!("{marker}{title}")), "{comment}");
        assert!(!comment.contains("This comment is cut"), "{comment}");
        let cut = named_markdown_comment(&plan, name, 2000);
        let last = cut.lines().last().unwrap();
        assert!(cut.len() <= 2000 && cut.starts_with(marker), "{cut}");
        assert!(last.starts_with("This comment is cut (appliers left out: "), "{cut}");
    }
}

#[test]
fn what_deletes_something_is_not_left_out_for_what_does_not() {
    let names: Vec<String> = (0..200).map(|at| format!("a{at:03}")).collect();
    let side = |is_head: bool| {
        let objects = |name: &str| if is_head { maps(&[name]) } else { Vec::new() };
        let all = names.iter().map(|name| (name.as_str(), applier(objects(name))));
        all.chain([("z", applier(if is_head { Vec::new() } else { maps(&["gone"]) }))]).collect()
    };
    let comment = named_markdown_comment(&plan(side(false), side(true)), "", 20_000);
    assert!(comment.contains("This comment is cut"), "{comment}");
    assert!(comment.contains("\n- deleted ConfigMap/shop/gone\n"), "{comment}");
    assert!(comment.len() <= 20_000);
}

#[test]
fn no_line_of_a_comment_is_a_command() {
    for plan in [sample_plan(), full_plan()] {
        let comment = markdown_comment(&plan);
        assert!(comment.contains("· /spec/"), "{comment}");
        assert!(comment.lines().all(|line| !line.trim_start().starts_with('/')), "{comment}");
    }
}

#[test]
fn a_status_fails_by_its_rules_and_describes_the_plan() {
    let rules =
        [PlanFailureRule::Errors, PlanFailureRule::UnknownValues, PlanFailureRule::Destruction];
    let check = |plan: &ChangePlan, expected: [bool; 3]| {
        assert!(check_status(plan, &[]).is_success);
        let found = rules.map(|rule| check_status(plan, &[rule]).is_success);
        assert_eq!(found, expected, "{plan:#?}");
        check_status(plan, &rules).description
    };
    let one = |names: &[&str]| vec![("a", applier(maps(names)))];
    assert_eq!(check(&plan(one(&["x"]), one(&["x"])), [true; 3]), "1 unchanged");
    let added = check(&plan(one(&["x"]), one(&["x", "y"])), [true; 3]);
    assert_eq!(added, "1 added, 1 unchanged");
    let deleted = check(&plan(one(&["x", "y"]), one(&["x"])), [true, true, false]);
    assert_eq!(deleted, "1 deleted, 1 unchanged");
    let mut left = plan(one(&["x", "y"]), one(&["x"]));
    left.appliers[0].removed = vec![RemovedObject {
        left_in_cluster: Some("the applier does not prune".into()),
        ..left.appliers[0].removed[0].clone()
    }];
    check(&left, [true; 3]);
    let failing = plan(one(&["x"]), vec![("a", failed("boom"))]);
    let described = check(&failing, [false; 3]);
    assert_eq!(described, "1 error: 1 applier not compared; not everything is known");
    let unknown = UnknownValue { what: "a".to_owned(), reason: "b".to_owned() };
    let with_unknown = |names: &[&str]| {
        let unknown_values = vec![unknown.clone()];
        vec![("a", RenderedApplier { unknown_values, ..applier(maps(names)) })]
    };
    check(&plan(with_unknown(&["x"]), with_unknown(&["x"])), [true; 3]);
    check(&plan(with_unknown(&["x"]), with_unknown(&["x", "y"])), [true, false, true]);
    check(&full_plan(), [false; 3]);
}
