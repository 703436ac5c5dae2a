//! What the status of a Plan reports of a verification.

use serde_json::json;

use super::*;

fn approves() -> Result<PlanApprovingPullRequest, ApprovalRefusal> {
    Ok(PlanApprovingPullRequest {
        number: 7,
        head_commit: "1".to_owned(),
        merge_commit: "2".to_owned(),
        reviewers: vec!["alice".to_owned()],
        at: Some(seconds_now()),
        ..PlanApprovingPullRequest::default()
    })
}

#[test]
fn the_status_records_what_was_found_and_users_keep_their_approvals() {
    let approvals = json!({"approvals": [{"user": "alice"}]});
    let before: PlanStatus = serde_json::from_value(approvals).unwrap();
    let approved = changed_status(&before, &approves()).unwrap();
    assert_eq!(approved.approvals, before.approvals);
    assert_eq!(approved.pull_request.as_ref().unwrap().number, 7);
    assert_eq!(approved.conditions[0].status, "True");
    // The same once more changes nothing, although it is later.
    assert_eq!(changed_status(&approved, &approves()), None);

    let missing = Err(ApprovalRefusal::certain("ReviewMissing", "it was dismissed"));
    let refused = changed_status(&approved, &missing).unwrap();
    assert_eq!(refused.pull_request, None, "what was dismissed approves no more");
    let [condition] = &refused.conditions[..] else { panic!("{:?}", refused.conditions) };
    assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("False", "ReviewMissing"));
    let unknown = Err(ApprovalRefusal::unknown("the forge does not respond".repeat(100)));
    let unknown = changed_status(&approved, &unknown).unwrap();
    assert_eq!(unknown.pull_request, None, "what cannot be verified approves nothing");
    assert_eq!(unknown.conditions[0].status, "Unknown");
    assert_eq!(unknown.conditions[0].message.len(), MAX_MESSAGE_LENGTH);
}

#[test]
fn files_that_differ_are_named_without_what_a_terminal_would_execute() {
    let pull = ReviewedPullRequest { number: 7, ..ReviewedPullRequest::default() };
    let mut paths = vec!["app/\u{1b}[2J.yaml".to_owned(), String::new()];
    paths.extend((0..9).map(|at| format!("{at}.yaml")));
    let refused = not_shown(&pull, RemovalReviewCheckFailure::Different(paths));
    assert_eq!(refused.reason, "AnotherResult");
    let named = "app/\\u{1b}[2J.yaml, ., 0.yaml, 1.yaml, 2.yaml, 6 more differ";
    assert!(refused.message.contains(named), "{}", refused.message);
}

#[test]
fn only_a_branch_is_followed() {
    let branch = |reference: serde_json::Value| {
        let spec = json!({"url": "https://a/b/c", "interval": "1m", "ref": reference});
        let object = json!({"metadata": {"name": "a"}, "spec": spec});
        followed_branch(&serde_json::from_value(object).unwrap())
    };
    assert_eq!(branch(json!({"branch": "main"})).as_deref(), Some("main"));
    assert_eq!(branch(json!({"name": "refs/heads/main"})).as_deref(), Some("main"));
    assert_eq!(branch(json!({})).as_deref(), Some("master"));
    for other in [
        json!({"tag": "v1"}),
        json!({"semver": "1.x"}),
        json!({"name": "refs/pull/7/head"}),
        json!({"branch": "main", "commit": "a".repeat(40)}),
    ] {
        assert_eq!(branch(other.clone()), None, "{other}");
    }
}

#[test]
fn changes_are_looked_for_with_the_removals_and_only_if_all_are_listed() {
    let id = |name: &str| ObjectId::new("shop", name, "", "ConfigMap");
    let plan = |spec: serde_json::Value| -> Plan {
        let plan = json!({"apiVersion": "release.windlass.dev/v1alpha1", "kind": "Plan",
            "metadata": {"name": "a", "namespace": "shop"}, "spec": spec});
        serde_json::from_value(plan).unwrap()
    };
    let removed = BTreeSet::from([id("gone")]);
    let changes = |objects: serde_json::Value, omitted: i64| {
        let of = plan(json!({"changes": {"objects": objects, "omitted": omitted}}));
        listed_changes(&of, &removed)
    };
    assert_eq!(listed_changes(&plan(json!({})), &removed), Ok(None), "it is of a deletion");
    let changed = json!([{"id": "shop_a__ConfigMap", "action": "Changed"}]);
    let both = [(id("a"), PlanAction::Changed), (id("gone"), PlanAction::Removed)];
    assert_eq!(changes(changed.clone(), 0), Ok(Some(BTreeMap::from(both))));
    let hidden = json!([{"id": "shop_gone__ConfigMap", "action": "Changed"}]);
    let only = BTreeMap::from([(id("gone"), PlanAction::Removed)]);
    assert_eq!(changes(hidden, 0), Ok(Some(only)), "what is removed is looked for as removed");
    for refused in [changes(changed, 1), changes(json!([{"id": "nonsense"}]), 0)] {
        assert_eq!(refused.unwrap_err().reason, "NotSupported");
    }
}

#[test]
fn a_run_that_makes_another_result_or_replaces_a_newer_one_is_refused_for_certain() {
    let result =
        |merged: &str| ReviewedResult { merged: merged.to_owned(), applied: "a".to_owned() };
    let run = |newest: i64, merged: &str| ReviewedRunFacts {
        newest: Some(jiff::Timestamp::from_second(newest).unwrap()),
        result: Some(result(merged)),
    };
    assert_eq!(check_result(None, Some(&result("b"))), Ok(()));
    assert_eq!(check_result(Some(&run(1, "b")), Some(&result("b"))), Ok(()));
    assert_eq!(check_result(Some(&run(1, "b")), None), Ok(()));
    let refused = check_result(Some(&run(1, "c")), Some(&result("b"))).unwrap_err();
    assert_eq!((refused.is_certain, refused.reason), (true, "AnotherResult"));

    let pull = ReviewedPullRequest { number: 7, merged_at: 5, ..ReviewedPullRequest::default() };
    let mut plan = Plan::default();
    for (newest, is_older) in [(5, true), (6, false)] {
        assert_eq!(check_ages(Some(&run(newest, "b")), &plan, &pull).is_ok(), is_older);
    }
    plan.spec.changes = Some(crds::windlass_release::PlanChanges::default());
    let refused = check_ages(Some(&run(6, "b")), &plan, &pull).unwrap_err();
    assert!(refused.message.starts_with("what is applied was applied, or"), "{}", refused.message);
    assert_eq!(check_ages(None, &plan, &pull), Ok(()), "the run compares it");
}
