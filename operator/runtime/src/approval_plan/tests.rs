//! Tests of the budget that PlanPolicies give to a namespace, the content of a Plan, and counted approvals.

use apply::deletion_budget::{DeletedObject, DeletionToJudge};
use fake_cluster::spec_field_check;
use objects::Object;
use serde_json::json;

use super::*;

fn policy(name: &str, budget: serde_json::Value) -> Arc<PlanPolicy> {
    let spec = json!({"namespaceSelector": {}, "deletionBudget": budget});
    Arc::new(serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap())
}

fn now() -> Time {
    Time::from_second(1_800_000_000).unwrap()
}

fn node() -> ObjectKey {
    ObjectKey::new("kustomize.toolkit.fluxcd.io", "Kustomization", "shop", "apps")
}

fn deletion(names: &[&str], policies: &[&str]) -> BudgetedDeletion {
    let object = |name: &&str| {
        let metadata = json!({"name": name, "namespace": "shop"});
        Object::new(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})).unwrap()
    };
    let objects: Vec<Object> = names.iter().map(object).collect();
    let budget = DeletionBudget::default().tightened(Some("0"));
    let pending = DeletionToJudge {
        objects: objects.iter().map(|it| DeletedObject::new(it, false)).collect(),
        of: objects.len(),
        recent: Some(0),
        ..DeletionToJudge::default()
    };
    BudgetedDeletion {
        ids: objects.iter().map(Object::id).collect(),
        verdict: budget.verdict(&pending),
        budget,
        terms: ApprovalRequirements {
            policies: policies.iter().map(|&it| it.to_owned()).collect(),
            approvals: 0,
        },
        newest: None,
    }
}

fn planned(deletion: &BudgetedDeletion) -> Plan {
    let node = node();
    let subject = DeletionSubject::of(&node, "uid");
    let revision = "main@sha1:1";
    plan(&ApprovalPlanRequest { subject, owner: None, revision, deletion, changes: None }, now())
}

fn approved_by(mut plan: Plan, user: &str) -> Plan {
    plan.status = Some(serde_json::from_value(json!({"approvals": [{"user": user}]})).unwrap());
    plan
}

#[test]
fn every_field_of_the_schemas_is_used() {
    let of_policy =
        ["approvals", "deletionBudget", "mode", "namespaceSelector", "pullRequestApproval"];
    spec_field_check::knows_every_field("PlanPolicy", of_policy);
    let of_plan = [
        "approvals",
        "budget",
        "changes",
        "count",
        "digest",
        "expires",
        "following",
        "objects",
        "operation",
        "policies",
        "revision",
        "rules",
        "subject",
    ];
    spec_field_check::knows_every_field("Plan", of_plan);
}

#[test]
fn the_strictest_policy_counts_and_without_one_the_default() {
    let default = strictest(&[]);
    assert_eq!(default.budget, Some(DeletionBudget::default()));
    assert!(default.policies.is_empty());
    let off = policy("off", json!({"enabled": false}));
    assert_eq!(strictest(std::slice::from_ref(&off)).budget, None);
    let wide = policy("wide", json!({"maxObjects": 100, "maxPercent": 90, "protectedKinds": []}));
    let tight = policy("tight", json!({"maxObjects": 20}));
    let both = strictest(&[wide.clone(), off, tight]);
    assert_eq!(both.policies, ["tight", "wide"], "what is off has no say where another one is on");
    let budget = both.budget.unwrap();
    assert_eq!((budget.max_objects, budget.max_percent), (20, 30));
    assert_eq!(budget.protected_kinds, DeletionBudget::default().protected_kinds);
    let wide = strictest(&[wide]).budget.unwrap();
    assert!(wide.protected_kinds.is_empty() && wide.max_percent == 90);
    let exempting = policy("exempting", json!({"exempt": [{"kind": "ConfigMap"}]}));
    let exempt = strictest(std::slice::from_ref(&exempting)).budget.unwrap();
    assert_eq!(
        (exempt.exempt.len(), plan_budget(&exempt).exempt[0].kind.as_str()),
        (1, "ConfigMap")
    );
    let other = policy("other", json!({}));
    assert!(strictest(&[exempting, other]).budget.unwrap().exempt.is_empty());
    let labels = json!({"k".repeat(MAX_LABEL_KEY_LENGTH + 1): "a"});
    let endless = json!({"exempt": [{"kind": "ConfigMap", "matchLabels": labels}]});
    assert!(strictest(&[policy("endless", endless)]).budget.unwrap().exempt.is_empty());
    let strange = policy("strange", json!({"maxObjects": -1, "maxPercent": 300}));
    let strange = strictest(&[strange]).budget.unwrap();
    assert_eq!((strange.max_objects, strange.max_percent), (0, 0));
}

#[test]
fn what_is_kept_is_of_the_deletion_and_named_by_a_user() {
    let deletion = deletion(&["a", "b"], &[]);
    let keeping = |user: &str, keep: &[&str]| {
        let approvals = json!([{"user": user, "keep": keep}]);
        let mut plan = planned(&deletion);
        plan.status = Some(serde_json::from_value(json!({"approvals": approvals})).unwrap());
        kept_of(&plan, &deletion).iter().map(ObjectId::subject).collect::<Vec<_>>()
    };
    let all = ["shop_a__ConfigMap", "shop_other__ConfigMap", "nonsense"];
    assert_eq!(keeping("alice", &all), ["ConfigMap/shop/a"]);
    assert!(keeping("alice", &[]).is_empty());
    assert!(keeping("system:serviceaccount:shop:deployer", &all).is_empty());
}

#[test]
fn what_one_of_several_users_keeps_is_kept_before_the_others_or_a_pull_request_approve() {
    let mut deletion = deletion(&["a", "b"], &["production"]);
    deletion.terms.approvals = 2;
    let mut plan = planned(&deletion);
    let approvals = json!([{"user": "alice", "keep": ["shop_a__ConfigMap"]}]);
    plan.status = Some(serde_json::from_value(json!({"approvals": approvals})).unwrap());
    let node = node();
    let subject = DeletionSubject::of(&node, "uid");
    let at = |days: i64| Time::from_second(1_800_000_000 + days * 86_400).unwrap();
    assert!(!is_approved(&plan));
    assert_eq!(kept_by(&plan, &subject, &deletion, at(13)).len(), 1);
    assert!(kept_by(&plan, &subject, &deletion, at(14)).is_empty(), "it is expired");
    let other = BudgetedDeletion { terms: ApprovalRequirements::default(), ..deletion };
    assert!(kept_by(&plan, &subject, &other, at(13)).is_empty(), "it is another Plan's");
}

#[test]
fn the_namespace_of_what_is_kept_stays_with_it() {
    let mut deletion = deletion(&["a", "b"], &[]);
    deletion.ids.insert(ObjectId::new("", "shop", "", "Namespace"));
    let mut plan = planned(&deletion);
    let approvals = json!([{"user": "alice", "keep": ["shop_a__ConfigMap"]}]);
    plan.status = Some(serde_json::from_value(json!({"approvals": approvals})).unwrap());
    let kept: Vec<String> = kept_of(&plan, &deletion).iter().map(ObjectId::subject).collect();
    assert_eq!(kept, ["Namespace/shop", "ConfigMap/shop/a"]);
}

#[test]
fn the_strictest_mode_counts_and_a_policy_without_a_budget_has_no_say_in_it() {
    let of = |name: &str, spec: serde_json::Value| {
        let mut policy = json!({"metadata": {"name": name}, "spec": {"namespaceSelector": {}}});
        for (key, value) in spec.as_object().unwrap() {
            policy["spec"][key] = value.clone();
        }
        Arc::new(serde_json::from_value::<PlanPolicy>(policy).unwrap())
    };
    assert_eq!(strictest(&[]).mode, PlanMode::Automatic);
    let approve = of("approve", json!({"mode": "Approve"}));
    let destructive = of("destructive", json!({"mode": "ApproveDestructive"}));
    let off = of("off", json!({"deletionBudget": {"enabled": false}, "mode": "Automatic"}));
    let limits = of("limits", json!({"deletionBudget": {"maxObjects": 2}}));
    let rules = strictest(&[destructive.clone(), off.clone(), approve.clone()]);
    assert_eq!((rules.mode, rules.budget), (PlanMode::Approve, None));
    assert_eq!(rules.mode_policies, ["approve", "destructive"]);
    let rules = strictest(&[destructive, off, limits]);
    assert_eq!(rules.mode, PlanMode::ApproveDestructive);
    assert_eq!(rules.terms_of_changes().policies, ["destructive", "limits"]);
    assert_eq!(rules.terms_of_deletions().policies, ["limits"]);
    assert_eq!(strictest(&[approve]).budget, Some(DeletionBudget::default()));
    let unknown =
        json!({"metadata": {"name": "a"}, "spec": {"namespaceSelector": {}, "mode": "Never"}});
    assert!(serde_json::from_value::<PlanPolicy>(unknown).is_err(), "nothing begins under it");
}

#[test]
fn an_approval_of_a_result_is_for_no_other_deletion_of_its_objects() {
    let deleted = deletion(&["a", "b"], &[]);
    let node = node();
    let subject = DeletionSubject::of(&node, "uid");
    let changes = PlanChanges { digest: "hmac-sha256:1".to_owned(), ..PlanChanges::default() };
    let of = |changes: Option<PlanChanges>| {
        let (owner, revision) = (None, "main@sha1:1");
        let deletion = &deleted;
        plan(&ApprovalPlanRequest { subject, owner, revision, deletion, changes }, now())
    };
    let one = of(Some(changes.clone()));
    let other = PlanChanges { digest: "hmac-sha256:2".to_owned(), ..changes };
    assert_ne!(one.name_any(), of(None).name_any());
    assert_ne!(one.name_any(), of(Some(other)).name_any());
    assert_eq!(one.spec.objects, ["shop_a__ConfigMap", "shop_b__ConfigMap"], "they are part of it");
}

#[test]
fn a_plan_names_what_is_to_be_approved() {
    let plan = planned(&deletion(&["b", "a"], &["production"]));
    let spec = &plan.spec;
    assert_eq!(spec.objects, ["shop_a__ConfigMap", "shop_b__ConfigMap"]);
    assert_eq!((spec.count, spec.following), (2, 0));
    assert_eq!(spec.rules, ["more than 0 objects"]);
    assert_eq!(spec.expires.as_ref().unwrap().0.as_second(), 1_800_000_000 + 14 * 86_400);
    assert_eq!(plan.name_any(), planned(&deletion(&["a", "b"], &["production"])).name_any());
    assert!(plan.name_any().starts_with("apps-") && plan.name_any().len() == "apps-".len() + 16);
    for other in [deletion(&["a"], &["production"]), deletion(&["a", "b"], &[])] {
        assert_ne!(plan.name_any(), planned(&other).name_any());
    }
}

#[test]
fn an_approval_counts_for_its_objects_and_policies_and_not_from_service_accounts() {
    let deleted = deletion(&["a", "b"], &["production"]);
    let node = node();
    let subject = DeletionSubject::of(&node, "uid");
    let plan = planned(&deleted);
    assert!(!approves(&plan, &subject, &deleted), "nothing is approved yet");
    let by_alice = approved_by(plan.clone(), "alice");
    assert!(approves(&by_alice, &subject, &deleted));
    assert!(approves(&by_alice, &subject, &deletion(&["b"], &["production"])));
    assert!(!approves(&by_alice, &subject, &deletion(&["a", "c"], &["production"])));
    assert!(!approves(&by_alice, &subject, &deletion(&["a", "b"], &["production", "stricter"])));
    let other = DeletionSubject::of(&node, "another");
    assert!(!approves(&by_alice, &other, &deleted));
    for user in ["system:serviceaccount:flux-system:windlass-controller", ""] {
        assert!(!is_approved(&approved_by(plan.clone(), user)), "{user}");
    }
}

#[test]
fn the_highest_number_of_approvals_counts_and_another_one_is_another_plan() {
    let of = |name: &str, approvals: i64| {
        let spec = json!({"namespaceSelector": {}, "approvals": approvals});
        let policy = json!({"metadata": {"name": name}, "spec": spec});
        Arc::new(serde_json::from_value::<PlanPolicy>(policy).unwrap())
    };
    assert_eq!(strictest(&[]).approvals, 0);
    assert_eq!(strictest(&[of("one", 1)]).approvals, 0, "one is what there is without it");
    assert_eq!(strictest(&[of("one", 1), of("two", 2), of("three", 3)]).approvals, 3);
    assert_eq!(strictest(&[of("many", 99)]).approvals, 16, "a Plan has no room for more");
    assert_eq!(strictest(&[of("none", -1)]).approvals, 0);
    let one = deletion(&["a"], &["production"]);
    let mut two = one.clone();
    two.terms.approvals = 2;
    assert_ne!(planned(&one).name_any(), planned(&two).name_any());
    let node = node();
    let subject = DeletionSubject::of(&node, "uid");
    assert!(!approves(&approved_by(planned(&one), "alice"), &subject, &two));
    assert!(!approves(&approved_by(planned(&two), "alice"), &subject, &two), "one is missing");
    let mut both = planned(&two);
    let approvals = json!({"approvals": [{"user": "alice"}, {"user": "bob"}]});
    both.status = Some(serde_json::from_value(approvals).unwrap());
    assert!(approves(&both, &subject, &two));
}

#[test]
fn an_approval_of_a_plan_that_lists_other_objects_than_it_is_for_does_not_count() {
    let deleted = deletion(&["a", "b"], &[]);
    let node = node();
    let subject = DeletionSubject::of(&node, "uid");
    let plan = approved_by(planned(&deleted), "alice");
    assert!(approves(&plan, &subject, &deleted));
    let with = |objects: &[&str], count: i64| {
        let mut forged = plan.clone();
        forged.spec.objects = objects.iter().map(|&it| it.to_owned()).collect();
        forged.spec.count = count;
        forged
    };
    for forged in [
        with(&["shop_harmless__ConfigMap"], 1),
        with(&["shop_a__ConfigMap"], 1),
        with(&["shop_harmless__ConfigMap"], 2),
        with(&["nonsense"], 2),
        with(&[], -1),
    ] {
        assert!(!approves(&forged, &subject, &deleted), "{:?}", forged.spec);
    }
}

#[test]
fn a_plan_expires_and_a_long_list_is_for_exactly_its_objects() {
    let plan = planned(&deletion(&["a"], &[]));
    let at = |days: i64| Time::from_second(1_800_000_000 + days * 86_400).unwrap();
    assert!(!is_expired(&plan, at(13)) && is_expired(&plan, at(14)));
    let budget = plan.spec.budget.clone();
    let waits_at = |is_confirmed: bool, days: i64| waits(&plan, &budget, is_confirmed, at(days));
    assert!(waits_at(false, 13) && waits_at(false, 14), "it is replaced");
    assert!(!waits_at(true, 13) && waits_at(true, 14));
    let other = plan_budget(&DeletionBudget::default());
    assert!(!waits(&plan, &other, false, at(13)), "another budget");
    let names: Vec<String> = (0..1001).map(|at| format!("c{at:04}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let many = planned(&deletion(&names, &[]));
    assert_eq!((many.spec.objects.len(), many.spec.count), (1000, 1001));
    let approval = approval(&many).unwrap();
    assert_eq!((approval.listed.len(), approval.count), (1000, 1001));
    assert!(approval.covers("uid", &deletion(&names, &[]).ids));
    assert!(!approval.covers("uid", &deletion(&names[1..], &[]).ids));
}

#[test]
fn a_pull_request_that_a_status_names_is_no_approval_of_a_user() {
    let deleted = deletion(&["a"], &["production"]);
    let node = node();
    let subject = DeletionSubject::of(&node, "uid");
    let mut plan = planned(&deleted);
    let pull_request =
        json!({"number": 7, "headCommit": "1", "mergeCommit": "2", "reviewers": ["alice"]});
    plan.status = Some(serde_json::from_value(json!({"pullRequest": pull_request})).unwrap());
    assert!(is_for(&plan, &subject, &deleted));
    assert!(!is_approved(&plan) && !approves(&plan, &subject, &deleted), "it is verified first");
}

#[test]
fn an_approval_of_a_release_is_for_one_operation_of_one_release() {
    let deleted = deletion(&["a", "b"], &[]);
    let node = node();
    let web = DeletionSubject {
        release: "shop/web",
        operation: "upgrade sha256:1",
        ..DeletionSubject::of(&node, "uid")
    };
    let planned = |subject| {
        let revision = "web@1.0.0";
        let deletion = &deleted;
        let request =
            ApprovalPlanRequest { subject, owner: None, revision, deletion, changes: None };
        plan(&request, now())
    };
    let plan = planned(web);
    assert_eq!(plan.spec.subject.release, "shop/web");
    let approved = approved_by(plan.clone(), "alice");
    assert!(approves(&approved, &web, &deleted));
    let newer = DeletionSubject { operation: "upgrade sha256:2", ..web };
    assert!(!approves(&approved, &newer, &deleted), "a newer chart, other values");
    for other in [newer, DeletionSubject { release: "shop/db", ..web }] {
        assert_ne!(plan.name_any(), planned(other).name_any());
    }
}

#[test]
fn a_deletion_names_its_first_objects_and_what_is_exceeded() {
    let names: Vec<String> = (0..12).map(|at| format!("c{at:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let many = deletion(&names, &[]);
    assert!(many.named_objects().ends_with("ConfigMap/shop/c09, 2 more"), "{many:?}");
    assert_eq!(many.exceeded_rules(), "more than 0 objects; more than 30 % of the objects");
    let said = many.waits_for_approval("shop", Some("all-1"));
    assert!(said.starts_with("waits, because it would delete 12 objects: ConfigMap/"), "{said}");
    assert!(said.ends_with("; to approve it, run `windlass approve plan/all-1 -n shop`"), "{said}");
    assert!(many.waits_for_approval("shop", None).ends_with(" plans.release.windlass.dev"));
    let within = BudgetedDeletion {
        verdict: BudgetVerdict { exceeded: Vec::new(), ..many.verdict.clone() },
        ..many
    };
    assert_eq!(within.exceeded_rules(), "an earlier deletion still waits for approval");
}
