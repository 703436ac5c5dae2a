//! What the status of a Plan reports of a verification.

use serde_json::json;

use super::*;

fn approves() -> Result<PlanPullRequest, ApprovalRefusal> {
    Ok(PlanPullRequest {
        number: 7,
        head_commit: "1".to_owned(),
        merge_commit: "2".to_owned(),
        reviewers: vec!["alice".to_owned()],
        at: Some(seconds_now()),
        ..PlanPullRequest::default()
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
    let refused = not_shown(&pull, RemovalRefusal::Different(paths));
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
