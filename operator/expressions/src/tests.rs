//! Tests of the results, errors and costs of expressions in specs.

use super::*;
use serde_json::json;

fn check(current: &str) -> CustomHealthCheck {
    let check = json!({"apiVersion": "acme.io/v1", "kind": "Widget", "current": current});
    serde_json::from_value(check).unwrap()
}

fn dependency(expr: &str) -> DependencyReference {
    serde_json::from_value(json!({"name": "dep", "readyExpr": expr})).unwrap()
}

fn meta(generation: i64) -> kube_core::ObjectMeta {
    let uid = Some("u".to_owned());
    kube_core::ObjectMeta { uid, generation: Some(generation), ..Default::default() }
}

#[tokio::test]
async fn an_expression_that_is_none_stalls_and_is_named() {
    let expressions = RunExpressions::new("ns", ExpressionCache::default());
    let refusal = expressions.read(&meta(1), &[check("status.")], &[]).await;
    let Err(RunOutcome::Stalled(reason, text)) = refusal else {
        panic!("it is taken for one");
    };
    assert_eq!(reason.as_str(), "InvalidCELExpression");
    assert!(text.starts_with("Reconciliation failed terminally due to configuration error: failed to create custom status evaluator for healthchecks[0]: failed to parse the expression Current"), "{text}");
}

#[tokio::test]
async fn a_dependency_whose_expression_is_none_is_named() {
    let expressions = RunExpressions::new("ns", ExpressionCache::default());
    let refusal = expressions.read(&meta(1), &[], &[dependency("dep.x")]).await.unwrap_err();
    assert_eq!(refusal.reason().as_str(), "InvalidCELExpression");
    assert_eq!(
        refusal.text(),
        "Reconciliation failed terminally due to configuration error: terminal error: failed to evaluate dependency dep: CEL expression output type mismatch: expected bool, got dyn"
    );
}

#[tokio::test]
async fn the_expressions_of_a_kind_judge_its_objects_and_no_others() {
    let expressions = RunExpressions::new("ns", ExpressionCache::default());
    expressions.read(&meta(1), &[check("status.phase == 'Ready'")], &[]).await.unwrap();
    let judged = async |kind: &str, status: Value| {
        let object = json!({"apiVersion": "acme.io/v1", "kind": kind, "metadata": {"name": "x"}, "status": status});
        expressions.report(&Object::new(object).unwrap()).await.map(|it| it.status)
    };
    assert_eq!(judged("Widget", json!({"phase": "Ready"})).await, Some(HealthStatus::Current));
    assert_eq!(judged("Widget", json!({"phase": "New"})).await, Some(HealthStatus::InProgress));
    assert!(matches!(judged("Widget", json!({})).await, Some(HealthStatus::Unknown(_))));
    assert_eq!(judged("Gadget", json!({})).await, None);
}

#[tokio::test]
async fn bombs_are_refused_on_the_stack_of_an_async_worker() {
    let sum = " + 1".repeat(24_000);
    for bomb in [format!("// \"\n1{sum} == 1"), format!("r\"\\\" == '' || 1{sum} == 1")] {
        let expressions = RunExpressions::new("ns", ExpressionCache::default());
        for (exprs, depends_on) in [(vec![check(&bomb)], vec![]), (vec![], vec![dependency(&bomb)])]
        {
            let refusal = expressions.read(&meta(1), &exprs, &depends_on).await;
            assert!(matches!(refusal, Err(RunOutcome::Stalled(..))), "{refusal:?}");
        }
    }
}

#[tokio::test]
async fn a_spec_is_read_once_for_a_generation() {
    let kept = ExpressionCache::default();
    let read = async |generation: i64, expr: &str| {
        let expressions = RunExpressions::new("ns", kept.clone());
        expressions.read(&meta(generation), &[check(expr)], &[]).await.is_ok()
    };
    assert!(read(1, "true").await && read(1, "what was read before counts").await);
    assert!(!read(2, "no expression").await && !read(2, "true").await);
    assert!(read(3, "true").await);
}

#[tokio::test]
async fn a_thousand_expensive_dependencies_are_ended_and_the_others_are_reported() {
    let list: Vec<u32> = (0..1000).collect();
    let object = Arc::new(json!({"spec": {"l": list}}));
    let dear = dependency("self.spec.l.all(a, self.spec.l.all(b, a + b >= 0))");
    let cheap = dependency("dep.spec.l.size() == 1000");
    let mut depends_on = vec![dear; 1000];
    depends_on.insert(0, cheap);
    let expressions = RunExpressions::new("ns", ExpressionCache::default());
    expressions.read(&meta(1), &[], &depends_on).await.unwrap();
    let said = expressions.readiness(&object, &vec![Some(object.clone()); 1001]).await;
    assert_eq!((said.len(), said[0].clone()), (1001, Some(Ok(true))));
    let Some(Some(Err(first))) = said.get(1) else { panic!("{:?}", said.get(1)) };
    assert!(first.contains("the expression needs too many steps"), "{first}");
    let Some(Some(Err(last))) = said.last() else { panic!("{:?}", said.last()) };
    assert!(last.contains("too large in total"), "{last}");
    // The work for dependencies is no longer available for health checks of the same run.
    assert!(expressions.used().left().steps < 1_000_000);
}
