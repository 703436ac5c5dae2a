//! Tests of the page of a plan, with hostile strings in every place, and with users who may not plan.

use std::rc::Rc;

use axum::body::Body;
use serde_json::{Value, json};
use windlass_answers::command_scope::CommandScope;

use super::*;
use crate::hostile_strings::assert_text_only;
use crate::page_query::PageQuery;

/// A plan that changes a ConfigMap and deletes another one. `text` is in every string that a repository may choose.
fn sample_plan(text: &str) -> ChangePlan {
    let object = |name: &str| json!({"kind": "ConfigMap", "namespace": "apps", "name": name});
    let applier = json!({"group": "kustomize.toolkit.fluxcd.io", "kind": "Kustomization",
        "namespace": "apps", "name": "web"});
    let field = json!({"path": format!("/data/{text}"), "old": text, "new": {"k": text}});
    serde_json::from_value(json!({
        "baseRevision": "cluster", "headRevision": text,
        "summary": {"added": 1, "changed": 1, "removed": 1, "deleted": 1, "moved": 0,
            "unchanged": 3, "images": 0, "notCompared": 0},
        "findings": [{"rule": "not-compared", "level": "warning", "message": text}],
        "appliers": [{
            "applier": applier, "comparison": "compared", "message": text,
            "movedAway": 0, "unchanged": 3,
            "added": [object(text)],
            "changed": [{"object": object("changing"), "fields": [field]}],
            "removed": [{"object": object("leaving")},
                {"object": object("staying"), "leftInCluster": text}],
            "unknownValues": [{"what": text, "reason": text}],
        }],
    }))
    .unwrap()
}

fn made(plan: ChangePlan) -> StartedBranchPlan {
    let started_at = "2026-11-30T09:00:00Z".parse().unwrap();
    StartedBranchPlan { started_at, progress: BranchPlanProgress::Made(Rc::new(plan)) }
}

fn shown(started: &StartedBranchPlan) -> String {
    let now = "2026-11-30T09:01:00Z".parse().unwrap();
    result("new", Some(started), now).into_string()
}

#[test]
fn the_verdict_is_first_and_then_what_is_deleted_changed_created_and_not_known() {
    let html = shown(&made(sample_plan("x")));
    let places = [
        "1 added, 1 changed, 1 deleted",
        "What deserves attention",
        "- deleted <a href=\"/o/configmap/apps/leaving\">",
        "- removed <a href=\"/o/configmap/apps/staying\">",
        "~ changed <a href=\"/o/configmap/apps/changing\">",
        "<del>- <bdi>x</bdi></del>",
        "+ created <a href=\"/o/configmap/apps/x\">",
        "? not known <bdi>x</bdi>",
    ]
    .map(|part| html.find(part).unwrap_or_else(|| panic!("{part}: {html}")));
    assert!(places.is_sorted(), "{places:?} {html}");
}

#[test]
fn hostile_strings_are_text_only() {
    assert_text_only(|hostile| shown(&made(sample_plan(hostile))));
    assert_text_only(|hostile| {
        let progress = BranchPlanProgress::Failed(hostile.into());
        shown(&StartedBranchPlan { progress, ..made(sample_plan("x")) })
    });
    assert_text_only(|hostile| {
        let progress = BranchPlanProgress::Running { step: hostile.into() };
        shown(&StartedBranchPlan { progress, ..made(sample_plan("x")) })
    });
    assert_text_only(|hostile| {
        let source = Object::new(source()).unwrap();
        head(&source, hostile).into_string()
    });
}

#[test]
fn what_is_shown_is_bounded() {
    let mut plan = sample_plan("x");
    let added = plan.appliers[0].added[0].clone();
    plan.appliers[0].added = vec![added; MAX_SHOWN_OBJECTS + 7];
    let change = plan.appliers[0].clone();
    plan.appliers = vec![change; MAX_SHOWN_APPLIERS + 3];
    let html = shown(&made(plan));
    assert_eq!(html.matches("+ created ").count(), MAX_SHOWN_OBJECTS * MAX_SHOWN_APPLIERS);
    assert!(html.contains("<p>7 more objects</p>") && html.contains("<p>3 more appliers</p>"));
}

#[test]
fn a_program_gets_the_plan_of_the_command_or_an_error() {
    let plan = sample_plan("x");
    let expected = serde_json::to_value(&plan).unwrap();
    let started = made(plan);
    let PageContent::Json(found) = json(Some(&started)).unwrap() else { panic!("JSON") };
    assert_eq!(found, expected);
    assert!(matches!(json(None).unwrap(), PageContent::Absent(_)));
    let status = |progress: BranchPlanProgress| {
        let started = StartedBranchPlan { progress, ..made(sample_plan("x")) };
        let error = json(Some(&started)).err().unwrap();
        error.downcast_ref::<BranchPlanRefusal>().unwrap().status()
    };
    let running = BranchPlanProgress::Running { step: "fetching".into() };
    assert_eq!(status(running), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(status(BranchPlanProgress::Failed("x".into())), StatusCode::BAD_GATEWAY);
}

#[test]
fn the_command_has_the_branch_as_one_word() {
    assert_eq!(
        command("apps", "web", "a;b"),
        "windlass plan --live --branch 'a;b' --source GitRepository/apps/web"
    );
    assert!(command("apps", "web", "").contains("--branch BRANCH"));
}

fn source() -> Value {
    json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
        "metadata": {"name": "web", "namespace": "apps", "uid": "u", "resourceVersion": "7"},
        "spec": {"url": "https://git.example.com/web", "interval": "1m"}})
}

/// The page for a user. `review` is the answer of the API server to access reviews.
async fn page_of(review: (u16, Value), branch: &str) -> anyhow::Result<PageContent> {
    let cluster = fake_cluster::answering(move |(request, _)| {
        let path = request.split_once(' ').map_or("", |(_, path)| path);
        let (code, answer) = match path {
            "/apis/source.toolkit.fluxcd.io/v1" => {
                let kind = json!({"kind": "GitRepository", "name": "gitrepositories",
                    "singularName": "", "namespaced": true, "verbs": ["list"]});
                (200, json!({"kind": "APIResourceList", "groupVersion": "", "resources": [kind]}))
            }
            "/apis/source.toolkit.fluxcd.io/v1/namespaces/apps/gitrepositories/web" => {
                (200, source())
            }
            path if path.contains("selfsubjectaccessreviews") => review.clone(),
            _ => (200, json!({})),
        };
        (code, Body::from(answer.to_string()))
    });
    let site = CommandScope { cluster: cluster.await, namespace: String::new() };
    let reader = PageDataReader::new(site, &[]).await;
    let route = Route::BranchPlan { namespace: "apps".to_owned(), name: "web".to_owned() };
    let query = PageQuery::parse(&format!("branch={branch}"));
    let request = PageRequest { route, query, wants_json: false };
    page(&reader, &request, "apps", "web").await
}

fn allowed(is_allowed: bool) -> (u16, Value) {
    (201, json!({"status": {"allowed": is_allowed}}))
}

#[tokio::test]
async fn a_user_with_the_verb_has_a_form_and_reading_the_page_starts_nothing() {
    let PageContent::Html(page) = page_of(allowed(true), "new").await.unwrap() else {
        panic!("a page")
    };
    let html: String = page.parts.into_iter().map(|part| part.content.into_string()).collect();
    assert!(html.contains("was not planned in this session"), "{html}");
    assert!(html.contains("name=\"branch\" value=\"new\""), "{html}");
    assert!(html.contains("name=\"action\" value=\"plan\""), "{html}");
}

#[tokio::test]
async fn without_the_verb_or_without_an_answer_there_is_no_page() {
    let status = |error: anyhow::Error| {
        error.downcast_ref::<BranchPlanRefusal>().map(BranchPlanRefusal::status)
    };
    let denied = page_of(allowed(false), "new").await.err().unwrap();
    assert!(denied.to_string().contains("you lack the verb `plan`"), "{denied}");
    assert_eq!(status(denied), Some(StatusCode::FORBIDDEN));
    let away = json!({"status": {"allowed": false, "evaluationError": "webhook is away"}});
    let unknown = page_of((201, away), "new").await.err().unwrap();
    assert!(format!("{unknown:#}").contains("is not known: "), "{unknown:#}");
    let invalid = page_of(allowed(true), "a..b").await.err().unwrap();
    assert_eq!(status(invalid), Some(StatusCode::UNPROCESSABLE_ENTITY));
}
