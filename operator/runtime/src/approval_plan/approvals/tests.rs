//! Tests of counted approvals, with a fake API server that answers access reviews.

use axum::body::Body;
use fake_cluster::{RecordedRequest, answering};
use serde_json::{Value, json};

use super::*;

/// A Plan that needs this many approvals, with a status.
fn plan(approvals: i64, policies: &[&str], status: &Value) -> Plan {
    let subject = json!({"kind": "Kustomization", "name": "apps", "uid": "uid"});
    let spec = json!({"subject": subject, "approvals": approvals, "policies": policies});
    let metadata = json!({"name": "apps-1", "namespace": "shop", "uid": "plan"});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap()
}

/// A fake API server whose reviews allow these users or groups to approve under these PlanPolicies.
async fn allowing(allowed: &'static [(&'static str, &'static str)]) -> ClusterConnection {
    answering(move |(request, body): RecordedRequest| {
        let path = "POST /apis/authorization.k8s.io/v1/subjectaccessreviews";
        if request != path {
            return (404, Body::from("{}"));
        }
        let spec = &body["spec"];
        let attributes = &spec["resourceAttributes"];
        let is_asked = attributes["verb"] == "approve"
            && attributes["group"] == "release.windlass.dev"
            && attributes["resource"] == "planpolicies";
        let groups = spec["groups"].as_array().cloned().unwrap_or_default();
        let is_allowed = allowed.iter().any(|(subject, policy)| {
            attributes["name"] == *policy
                && (spec["user"] == *subject || groups.iter().any(|group| group == subject))
        });
        let status = json!({"status": {"allowed": is_asked && is_allowed}});
        (201, Body::from(status.to_string()))
    })
    .await
}

/// Whether the approvals of a Plan count after a review, and the message about those that do not.
async fn judged(cluster: &ClusterConnection, plan: &Plan) -> (bool, String) {
    let reviews = ApprovalReviewCache::default();
    reviews.insert("plan".to_owned(), reviewed(cluster, plan).await.unwrap());
    (reviews.confirm(plan), reviews.refusals(plan))
}

#[tokio::test]
async fn only_users_who_have_the_right_on_all_policies_now_count() {
    let cluster = allowing(&[("alice", "a"), ("alice", "b"), ("bob", "a"), ("ops", "b")]).await;
    let by = |approvals: Value| plan(0, &["a", "b"], &json!({"approvals": approvals}));
    let alice = by(json!([{"user": "alice"}]));
    assert_eq!(judged(&cluster, &alice).await, (true, String::new()));
    let bob = by(json!([{"user": "bob", "groups": ["system:authenticated"]}]));
    let (counts, refusals) = judged(&cluster, &bob).await;
    assert!(!counts);
    assert_eq!(
        refusals,
        "; the approval of bob does not count, because bob has no right to `approve` PlanPolicy b"
    );
    let without_groups = by(json!([{"user": "bob"}]));
    let (_, refusals) = judged(&cluster, &without_groups).await;
    assert!(
        refusals.ends_with("PlanPolicy b; it names no groups: approve once more"),
        "{refusals}"
    );
    let both = by(json!([{"user": "alice"}, {"user": "bob"}]));
    assert_eq!(judged(&cluster, &both).await, (true, String::new()), "one is enough");
    let with_group = by(json!([{"user": "bob", "groups": ["system:authenticated", "ops"]}]));
    assert!(judged(&cluster, &with_group).await.0, "a group may have it");
    assert!(!judged(&cluster, &by(json!([{"user": "system:serviceaccount:a:alice"}]))).await.0);
}

#[tokio::test]
async fn a_plan_without_policies_asks_for_the_default_one() {
    let cluster = allowing(&[("alice", "default")]).await;
    let by = |user: &str| plan(0, &[], &json!({"approvals": [{"user": user}]}));
    assert!(judged(&cluster, &by("alice")).await.0);
    assert!(!judged(&cluster, &by("bob")).await.0);
}

#[tokio::test]
async fn as_many_users_with_the_right_as_the_policies_say_have_to_approve() {
    let cluster = allowing(&[("alice", "a"), ("carol", "a")]).await;
    let by = |users: &[&str]| {
        let approvals: Vec<Value> = users.iter().map(|user| json!({"user": user})).collect();
        plan(2, &["a"], &json!({"approvals": approvals}))
    };
    assert!(!is_approved(&by(&["alice"])) && is_approved(&by(&["alice", "bob"])));
    assert!(!judged(&cluster, &by(&["alice"])).await.0);
    assert!(!judged(&cluster, &by(&["alice", "bob"])).await.0, "one of them lost the right");
    assert!(judged(&cluster, &by(&["alice", "bob", "carol"])).await.0);
}

#[tokio::test]
async fn a_pull_request_may_approve_what_a_user_without_the_right_approved() {
    let cluster = allowing(&[("alice", "a")]).await;
    for (user, is_refused) in [("alice", false), ("bob", true)] {
        let plan = plan(0, &["a"], &json!({"approvals": [{"user": user}]}));
        let reviews = ApprovalReviewCache::default();
        assert!(!reviews.refuse(&plan), "it was not reviewed");
        reviews.insert("plan".to_owned(), reviewed(&cluster, &plan).await.unwrap());
        assert_eq!(reviews.refuse(&plan), is_refused, "{user}");
    }
}

#[tokio::test]
async fn what_was_not_reviewed_or_long_ago_or_with_other_groups_does_not_count() {
    let reviews = ApprovalReviewCache::default();
    let approved = |groups: &[&str]| {
        plan(0, &["a"], &json!({"approvals": [{"user": "alice", "groups": groups}]}))
    };
    assert!(!reviews.confirm(&approved(&[])), "it was not reviewed");
    let cluster = allowing(&[("alice", "a")]).await;
    let review = reviewed(&cluster, &approved(&["ops"])).await.unwrap();
    let at = review.at;
    reviews.insert("plan".to_owned(), review);
    assert!(reviews.confirm_at(&approved(&["ops"]), at));
    assert!(!reviews.confirm_at(&approved(&["others"]), at));
    assert!(!reviews.confirm_at(&approved(&["ops"]), at + COUNTS_FOR));
    reviews.forget("plan");
    assert!(!reviews.confirm_at(&approved(&["ops"]), at));
    let refusing = answering(|_: RecordedRequest| (403, Body::from("{}"))).await;
    assert!(reviewed(&refusing, &approved(&["ops"])).await.is_err(), "an error is no answer");
}

#[test]
fn a_rejection_is_stronger_than_all_approvals() {
    let status = json!({"approvals": [{"user": "alice"}],
        "rejection": {"user": "b`ob", "comment": "run `reboot`"}});
    let rejected = plan(0, &[], &status);
    assert!(is_rejected(&rejected) && !is_approved(&rejected));
    let text = rejection(&rejected).unwrap();
    assert!(text.starts_with("is rejected by b'ob (run 'reboot'), with Plan apps-1; "), "{text}");
    assert_eq!(rejection(&plan(0, &[], &json!({}))), None);
    let reviews = ApprovalReviewCache::default();
    let review = PlanApproverReview {
        at: Instant::now(),
        confirmed: counted_approvals(&rejected).map(user_of).collect(),
        refused: Vec::new(),
    };
    reviews.insert("plan".to_owned(), review);
    assert!(!reviews.confirm(&rejected));
}
