//! What holds for all repositories: comparing with itself, exchanging sides, Secrets, and text that attacks.

use std::collections::BTreeSet;

use objects::SecretMasking;
use proptest::prelude::*;

use super::*;
use crate::{markdown_comment, named_markdown_comment, sarif_log, table_text};

/// A random applier: the names of ConfigMaps with their values, and its switches.
fn random_applier() -> impl Strategy<Value = RenderedApplier> {
    let objects = prop::collection::vec((0..6_u8, 0..3_u8), 0..6);
    let parent = prop::option::of(0..4_u8);
    (objects, parent, any::<[bool; 4]>()).prop_map(|(objects, parent, switches)| {
        let [is_suspended, prunes, deletes_with_itself, is_west] = switches;
        let objects =
            objects.iter().map(|(name, value)| map(&format!("m{name}"), &value.to_string()));
        RenderedApplier {
            objects: objects.collect(),
            parent: parent.map(|it| kustomization(&format!("k{it}"))),
            target_cluster: if is_west { "west".to_owned() } else { String::new() },
            is_suspended,
            prunes,
            deletes_with_itself,
            ..RenderedApplier::default()
        }
    })
}

fn random_rendering() -> impl Strategy<Value = RepositoryRendering> {
    let appliers = prop::collection::btree_map(0..4_u8, random_applier(), 0..4);
    appliers.prop_map(|appliers| RepositoryRendering {
        revision: "r".to_owned(),
        appliers: appliers
            .into_iter()
            .map(|(name, it)| (kustomization(&format!("k{name}")), it))
            .collect(),
        ..RepositoryRendering::default()
    })
}

/// The same without suspended appliers, which take nothing over.
fn resumed(mut side: RepositoryRendering) -> RepositoryRendering {
    side.appliers.values_mut().for_each(|it| it.is_suspended = false);
    side
}

/// Each object that is added, with its applier.
fn added(plan: &ChangePlan) -> BTreeSet<(String, String)> {
    let of = |it: &crate::ApplierChange| -> Vec<(String, String)> {
        it.added.iter().map(|object| (it.applier.subject(), object.subject())).collect()
    };
    plan.appliers.iter().flat_map(of).collect()
}

fn removed(plan: &ChangePlan) -> BTreeSet<(String, String)> {
    let of = |it: &crate::ApplierChange| -> Vec<(String, String)> {
        let removed = it.removed.iter();
        removed.map(|gone| (it.applier.subject(), gone.object.subject())).collect()
    };
    plan.appliers.iter().flat_map(of).collect()
}

/// All formats of a plan.
fn formats(plan: &ChangePlan) -> String {
    let json = serde_json::to_string(plan).unwrap();
    [json, table_text(plan), markdown_comment(plan), sarif_log(plan).to_string()].join("\n")
}

/// The lines of a comment outside of fences, without the tags of the comment itself.
fn outside_of_fences(comment: &str) -> String {
    let mut fence = None;
    let mut outside = String::new();
    for line in comment.lines() {
        let backticks = line.chars().take_while(|it| *it == '`').count();
        match fence {
            None if backticks >= 3 => fence = Some(backticks),
            None => {
                outside.push_str(line);
                outside.push('\n');
            }
            Some(length) if backticks >= length && backticks == line.len() => fence = None,
            Some(_) => {}
        }
    }
    assert_eq!(fence, None, "a fence is open: {comment}");
    for tag in [
        "<!-- windlass plan -->",
        "<details><summary><code>",
        "</code>",
        "</summary>",
        "</details>",
    ] {
        outside = outside.replace(tag, "");
    }
    outside
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_rendering_compared_with_itself_has_no_changes(side in random_rendering()) {
        let plan = compare(&side, &side, &RenderingComparisonOptions::default());
        prop_assert!(plan.is_unchanged(), "{plan:?}");
        prop_assert_eq!(plan.appliers.len(), 0);
    }

    #[test]
    fn a_plan_that_is_read_again_is_the_same(
        base in random_rendering(), head in random_rendering(),
    ) {
        let plan = compare(&base, &head, &RenderingComparisonOptions::default());
        let json = serde_json::to_vec_pretty(&plan).unwrap();
        let read = ChangePlan::from_untrusted_json(&json).unwrap();
        prop_assert_eq!(markdown_comment(&read), markdown_comment(&plan));
        prop_assert_eq!(read, plan);
    }

    #[test]
    fn what_one_direction_adds_the_other_one_removes(
        base in random_rendering(), head in random_rendering(),
    ) {
        let options = RenderingComparisonOptions::default();
        let base = resumed(base);
        let head = resumed(head);
        let forward = compare(&base, &head, &options);
        let backward = compare(&head, &base, &options);
        prop_assert_eq!(added(&forward), removed(&backward));
        prop_assert_eq!(removed(&forward), added(&backward));
    }

    #[test]
    fn a_deletion_is_counted_by_one_applier(base in random_rendering(), head in random_rendering()) {
        let plan = compare(&base, &head, &RenderingComparisonOptions::default());
        let deleted: usize = plan.appliers.iter().filter_map(|it| it.deletion.as_ref()).map(|it| it.deleted).sum();
        prop_assert!(deleted <= plan.summary.deleted);
        prop_assert_eq!(deleted == 0, plan.summary.deleted == 0);
        prop_assert!(plan.summary.deleted <= plan.summary.removed);
    }

    #[test]
    fn nothing_of_a_manifest_leaves_a_fence_of_a_comment(
        name in "[`@<>\\[\\]()!#a\n~&]{1,60}", value in "[`@<>\\[\\]a\n~ ]{0,90}",
    ) {
        let hostile = |value: &str| {
            let mut applier = applier(vec![map(&name, value), map(&format!("{name}{value}"), "")]);
            applier.unknown_values = vec![UnknownValue { what: value.to_owned(), reason: name.clone() }];
            applier
        };
        let base = vec![(name.as_str(), hostile("1")), ("failing", applier(vec![]))];
        let head = vec![(name.as_str(), hostile(&value)), ("failing", failed(&value))];
        let base = rendering(&value, base);
        let head = rendering(&name, head);
        let plan = compare(&base, &head, &RenderingComparisonOptions::default());
        let comment = markdown_comment(&plan);
        let outside = outside_of_fences(&comment);
        prop_assert!(!outside.contains(['<', '@', '[', '!', '&', '~']), "{outside}");
        prop_assert!(table_text(&plan).lines().all(|line| !line.contains(char::is_control)));
    }

    #[test]
    fn a_comment_is_never_longer_than_its_bound(
        counts in prop::collection::vec(0..20_usize, 0..16), ticks in 0..2000_usize,
    ) {
        let side = |value: &str| {
            let of = |(at, count): (usize, &usize)| {
                let names: Vec<Object> = (0..*count).map(|it| map(&format!("m{at}-{it}"), value)).collect();
                (kustomization(&format!("k{at}")), applier(names))
            };
            let appliers = counts.iter().enumerate().map(of).collect();
            RepositoryRendering { appliers, ..RepositoryRendering::default() }
        };
        let plan = compare(&side("1"), &side(&"`".repeat(ticks)), &RenderingComparisonOptions::default());
        for most in [3000, 10_000, 60_000] {
            let comment = named_markdown_comment(&plan, "", most);
            prop_assert!(comment.len() <= most, "{} of {most}", comment.len());
            outside_of_fences(&comment);
        }
    }
}

/// A Secret with a canary in each place that can hold a value.
fn secret(name: &str, canary: &str) -> Object {
    let last = format!("{{\"stringData\":{{\"a\":\"{canary}\"}}}}");
    let metadata = json!({"name": name, "namespace": "shop", "annotations": {
        "kubectl.kubernetes.io/last-applied-configuration": last, "note": canary},
        "managedFields": [{"manager": canary}], "finalizers": [canary]});
    // It does not fit the type of a Secret, so everything stays where it is.
    object(
        "v1",
        "Secret",
        name,
        &json!({"metadata": metadata, "data": {"a": canary, "deep": {"b": {"c": canary}}, "list": [canary]},
            "stringData": {"c": canary, "deep": [{canary: canary}]}, "unknown": {"d": [canary]}, "other": canary}),
    )
}

#[test]
fn no_value_of_a_secret_is_in_any_format() {
    let fitting = |canary: &str| {
        object("v1", "Secret", "fitting", &json!({"stringData": {"a": canary}, "type": "Opaque"}))
    };
    let secrets = |canary: &str| vec![secret("changed", canary), fitting(canary), map("x", "1")];
    let before = secrets("CANARYbefore");
    let after = secrets("CANARYafter");
    let mut unencoded = secret("changed", "CANARYtyped");
    unencoded.fields_mut().insert("data".to_owned(), json!("CANARYtext"));
    let mut newer = secret("changed", "CANARYnewer");
    newer.fields_mut().insert("apiVersion".to_owned(), "v2".into());
    let heads = [
        vec![("a", applier(after.clone()))],
        vec![("a", applier(vec![]))],
        vec![("a", applier(vec![])), ("b", applier(after.clone()))],
        vec![("b", applier(after.clone()))],
        vec![("a", applier(vec![unencoded]))],
        vec![("a", applier(vec![newer]))],
        vec![("a", failed("boom"))],
    ];
    let mut count = 0;
    for head in heads {
        for base in [vec![("a", applier(before.clone()))], vec![], vec![("a", failed("boom"))]] {
            for (from, to) in [(&base, &head), (&head, &base)] {
                let text = formats(&plan(from.clone(), to.clone()));
                // In base64, too.
                assert!(!text.contains("CANARY") && !text.contains("Q0FOQVJZ"), "{text}");
                count += usize::from(text.contains("Secret/shop/changed"));
            }
        }
    }
    assert!(count > 20, "{count}");
    let changed = plan(vec![("a", applier(before))], vec![("a", applier(after))]);
    assert_eq!(lines(&changed), ["a: ~ changed", "a: ~ fitting"]);
}

#[test]
fn what_was_decrypted_is_masked_in_other_objects_images_and_errors() {
    let value = "CANARY-of-a-secret";
    let options = RenderingComparisonOptions {
        secrets: SecretMasking::new([value.as_bytes().to_vec()]),
        ..RenderingComparisonOptions::default()
    };
    let unknown = UnknownValue { what: value.to_owned(), reason: value.to_owned() };
    let web = RenderedApplier {
        unknown_values: vec![unknown],
        ..applier(vec![map("x", value), deployment("a", 1, &format!("registry/{value}:1"))])
    };
    let head = vec![("a", web), ("b", failed(&format!("template: {value}")))];
    let base = vec![("a", applier(vec![map("x", "1"), deployment("a", 1, "registry/a:1")]))];
    let text = formats(&compare(&rendering("aaa", base), &rendering("bbb", head), &options));
    assert!(!text.contains("CANARY"), "{text}");
    assert!(text.contains("template: ****"), "{text}");
}
