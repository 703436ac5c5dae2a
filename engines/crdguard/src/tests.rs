//! What changes of definitions do to objects: a table of disasters, and laws.

use expect_test::{Expect, expect};
use golang::work_meter::StopSignal;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{CrdChangeJudge, CrdGuardFacts, CrdVersionSchema, WebhookServicePresence};

/// A definition with versions: name, whether it is served, and the schema of `spec`. The first is that of storage.
fn definition(versions: &[(&str, bool, Value)]) -> Value {
    let versions = versions.iter().enumerate().map(|(at, (name, served, spec))| {
        json!({"name": name, "served": served, "storage": at == 0, "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {"spec": spec}}}})
    });
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.acme.io"},
        "spec": {"group": "acme.io", "scope": "Namespaced", "versions": versions.collect::<Vec<_>>(),
            "names": {"kind": "Widget", "plural": "widgets"}},
        "status": {"storedVersions": ["v1"]}})
}

fn widget(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "acme.io/v1", "kind": "Widget", "spec": spec,
        "metadata": {"name": name, "namespace": "shop"}})
}

fn lines(old: &Value, new: &Value, objects: &[Value]) -> Vec<String> {
    let mut judge = CrdChangeJudge::new(old, new, &StopSignal::default()).unwrap();
    for version in judge.versions() {
        for object in objects {
            judge.object(&version, object);
        }
    }
    let total = objects.len() as u64;
    judge
        .finish(CrdGuardFacts { total, service: WebhookServicePresence::Absent, is_complete: true })
        .lines(true)
}

fn assert_spec(old: Value, new: Value, specs: &[Value], expected: &Expect) {
    let name = |at: usize| char::from(b'a' + u8::try_from(at).unwrap()).to_string();
    let objects: Vec<Value> =
        specs.iter().enumerate().map(|(at, spec)| widget(&name(at), spec)).collect();
    let old = definition(&[("v1", true, old)]);
    let new = definition(&[("v1", true, new)]);
    expected.assert_eq(&lines(&old, &new, &objects).join("\n"));
}

fn object(properties: &Value) -> Value {
    json!({"type": "object", "properties": properties})
}

#[test]
fn a_narrowed_schema_names_the_objects_that_do_not_fit() {
    let old = object(&json!({"size": {"type": "integer"}, "name": {"type": "string"}}));
    let new =
        object(&json!({"size": {"type": "integer", "maximum": 5}, "name": {"type": "string"}}));
    let specs = [json!({"size": 6}), json!({"size": 5}), json!({"size": 7}), json!({"name": "x"})];
    assert_spec(
        old,
        new,
        &specs,
        &expect!["v1 spec.size is greater than the maximum (2 objects: shop/a, shop/c)"],
    );
}

#[test]
fn what_was_wrong_before_is_no_reason() {
    let old = object(&json!({"size": {"type": "integer", "maximum": 5}}));
    let new = object(&json!({"size": {"type": "integer", "maximum": 4}}));
    assert_spec(old, new, &[json!({"size": 6})], &expect![""]);
}

#[test]
fn a_field_that_is_dropped_is_named_and_a_key_of_a_map_is_not() {
    let of_text = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let old = object(&json!({"old": {"type": "string"}, "labels": of_text}));
    let new = object(&json!({"labels": {"type": "object"}}));
    let specs = [json!({"old": "x"}), json!({"labels": {"secret": "x"}}), json!({"old": null})];
    assert_spec(
        old,
        new,
        &specs,
        &expect![[r#"
        v1 spec.labels.* is no field of the new schema, and would be dropped (1 object: shop/b)
        v1 spec.old is no field of the new schema, and would be dropped (1 object: shop/a)"#]],
    );
}

#[test]
fn alternatives_that_did_not_change_are_about_values_that_did() {
    let alternatives = json!([{"required": ["a"]}, {"required": ["b"]}]);
    let of = |b: Value, not: Value| {
        let mut spec = object(&json!({"a": {"type": "string"}, "b": b}));
        (spec["oneOf"], spec["not"]) = (alternatives.clone(), not);
        spec
    };
    let not = json!({"required": ["a", "b"]});
    let old = of(json!({"type": "string"}), not.clone());
    let specs = [json!({"a": "x"})];
    assert_spec(old.clone(), of(json!({"type": "integer"}), not.clone()), &specs, &expect![""]);
    assert_spec(
        old,
        of(json!({"type": "string", "default": "x"}), not),
        &specs,
        &expect![[r"
            v1 spec fits 2 of `oneOf` (1 object: shop/a)
            v1 spec fits `not` (1 object: shop/a)"]],
    );
}

#[test]
fn null_is_not_asked_whether_it_fits_alternatives() {
    let of = |more: Value| {
        let mut field =
            json!({"type": "object", "nullable": true, "properties": {"a": {"type": "string"}}});
        field.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        object(&json!({"f": field}))
    };
    let changed = json!({"not": {"required": ["a"]}, "anyOf": [{"required": ["a"]}]});
    let old = of(json!({}));
    assert_spec(old.clone(), of(changed.clone()), &[json!({"f": null})], &expect![""]);
    let expected = expect!["v1 spec.f fits none of `anyOf` (1 object: shop/a)"];
    assert_spec(old, of(changed), &[json!({"f": {}})], &expected);
}

#[test]
fn the_type_of_a_list_is_not_checked_where_a_format_is() {
    let with = |of: Value| object(&json!({"a": of}));
    let old = with(json!({"type": "array", "items": {"type": "string"}}));
    let list = json!({"a": []});
    let email = json!({"type": "string", "format": "email"});
    assert_spec(old.clone(), with(email), std::slice::from_ref(&list), &expect![""]);
    let odd = json!({"type": "string", "format": "odd"});
    let expected = expect!["v1 spec.a must be a string (1 object: shop/a)"];
    assert_spec(old, with(odd), &[list], &expected);
}

#[test]
fn what_a_controller_reports_is_no_reason_where_it_is_a_subresource() {
    let with = |status: Value, is_subresource: bool| {
        let mut definition = definition(&[("v1", true, json!({"type": "object"}))]);
        let version = &mut definition["spec"]["versions"][0];
        version["schema"]["openAPIV3Schema"]["properties"]["status"] = status;
        if is_subresource {
            version["subresources"] = json!({"status": {}});
        }
        definition
    };
    let mut reported = widget("a", &json!({}));
    reported["status"] = json!({"size": 6, "text": "x"});
    let all = object(&json!({"size": {"type": "integer"}, "text": {"type": "string"}}));
    let narrow = object(&json!({"size": {"type": "integer", "maximum": 5}}));
    let judged = |before: bool, after: bool| {
        let old = with(all.clone(), before);
        let new = with(narrow.clone(), after);
        lines(&old, &new, std::slice::from_ref(&reported)).join("\n")
    };
    expect![""].assert_eq(&judged(true, true));
    expect!["v1 status.size is greater than the maximum (1 object: shop/a)"]
        .assert_eq(&judged(true, false));
    expect![[r"
        v1 status.size is greater than the maximum (1 object: shop/a)
        v1 status.text is no field of the new schema, and would be dropped (1 object: shop/a)"]]
    .assert_eq(&judged(false, false));
}

#[test]
fn a_field_that_becomes_required_breaks_objects_unless_it_has_a_default() {
    let old = object(&json!({"mode": {"type": "string"}}));
    let with =
        |mode: Value| json!({"type": "object", "required": ["mode"], "properties": {"mode": mode}});
    let specs = [json!({}), json!({"mode": "x"})];
    assert_spec(
        old.clone(),
        with(json!({"type": "string"})),
        &specs,
        &expect!["v1 spec.mode is required (1 object: shop/a)"],
    );
    assert_spec(old, with(json!({"type": "string", "default": "y"})), &specs, &expect![""]);
}

#[test]
fn a_default_that_objects_seem_to_have_does_not_change_unsaid() {
    let with = |default: &str| object(&json!({"mode": {"type": "string", "default": default}}));
    assert_spec(
        with("a"),
        with("b"),
        &[json!({"mode": "a"}), json!({"mode": "c"})],
        &expect![
            "v1 spec.mode has the value of the former default; the new default is another (1 object: shop/a)"
        ],
    );
}

#[test]
fn rules_are_asked_and_what_is_not_understood_says_so() {
    let with = |rule: &str| {
        let mut spec = object(&json!({"min": {"type": "integer"}, "max": {"type": "integer"},
            "namespace": {"type": "string"}, "at": {"type": "string", "format": "date-time"}}));
        spec["x-kubernetes-validations"] = json!([{"rule": rule}]);
        spec
    };
    let old = || with("true");
    let specs = [json!({"min": 3, "max": 2, "namespace": "x"}), json!({"min": 1, "max": 2})];
    assert_spec(
        old(),
        with("self.min <= self.max"),
        &specs,
        &expect!["v1 spec violates the rule `self.min <= self.max` (1 object: shop/a)"],
    );
    assert_spec(
        old(),
        with("!has(self.__namespace__) || self.__namespace__ == 'x'"),
        &specs,
        &expect![""],
    );
    assert_spec(old(), with("self.min == oldSelf.min"), &specs, &expect![""]);
    assert_spec(
        old(),
        with("isQuantity(self.min)"),
        &specs[..1],
        &expect![
            "v1 spec cannot be judged: the rule `isQuantity(self.min)`: it has no value here (1 object: shop/a)"
        ],
    );
    let moment = [json!({"at": "2026-01-01T00:00:00Z"})];
    assert_spec(
        old(),
        with("self.at > timestamp('2025-01-01T00:00:00Z')"),
        &moment,
        &expect![
            "v1 spec cannot be judged: the rule `self.at > timestamp('2025-01-01T00:00:00Z')`: `at` has a type that is not supported here (1 object: shop/a)"
        ],
    );
    let unknown = || with("isQuantity(self.min)");
    let mut wider = unknown();
    wider["properties"]["new"] = json!({"type": "string"});
    assert_spec(unknown(), wider, &specs, &expect![""]);
}

#[test]
fn a_version_that_may_be_stored_is_not_dropped() {
    let open = || json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let old = definition(&[("v1", true, open()), ("v1alpha1", true, open())]);
    let new = definition(&[("v2", true, open())]);
    expect!["v1 is dropped, and objects may be stored in it (`status.storedVersions`); no version that is served now and then could take them"]
        .assert_eq(&lines(&old, &new, &[]).join("\n"));
}

#[test]
fn a_version_that_a_manager_writes_is_not_served_no_more_unsaid() {
    let open = || json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let old = definition(&[("v1", true, open()), ("v1alpha1", true, open())]);
    let new = definition(&[("v1", true, open()), ("v1alpha1", false, open())]);
    let mut object = widget("a", &json!({}));
    let entry = |manager: &str, version: &str| json!({"manager": manager, "apiVersion": format!("acme.io/{version}")});
    object["metadata"]["managedFields"] =
        json!([entry("moved", "v1alpha1"), entry("moved", "v1"), entry("stays", "v1alpha1")]);
    expect!["v1alpha1 is no longer served, and is in use (1 field manager: stays)"]
        .assert_eq(&lines(&old, &new, &[object]).join("\n"));
    assert!(lines(&old, &new, &[]).is_empty());
}

#[test]
fn objects_that_are_stored_in_another_version_lose_what_it_does_not_have() {
    let one = object(&json!({"size": {"type": "integer"}, "old": {"type": "string"}}));
    let two = object(&json!({"size": {"type": "integer"}}));
    let old = definition(&[("v1", true, one.clone()), ("v2", true, two.clone())]);
    let new = definition(&[("v2", true, two), ("v1", true, one)]);
    expect!["v2 spec.old is no field of the new schema, and would be dropped (1 object: shop/a)"]
        .assert_eq(&lines(&old, &new, &[widget("a", &json!({"old": "x"}))]).join("\n"));
}

#[test]
fn a_version_that_is_dropped_takes_no_field_with_it_unsaid() {
    let both = json!({"a": {}, "b": {}});
    let less = json!({"a": {}});
    let both = object(&both);
    let less = object(&less);
    let mut old = definition(&[("v1", true, less.clone()), ("v1beta1", true, both)]);
    old["status"]["storedVersions"] = json!(["v1beta1", "v1"]);
    let new = definition(&[("v1", true, less)]);
    let lost = widget("a", &json!({"a": 1, "b": 2}));
    expect!["v1 spec.b is no field of the new schema, and would be dropped (1 object: shop/a)"]
        .assert_eq(&lines(&old, &new, &[lost]).join("\n"));
    expect![""].assert_eq(&lines(&old, &new, &[widget("a", &json!({"a": 1}))]).join("\n"));
}

#[test]
fn objects_are_moved_under_the_schema_that_is_there_meanwhile() {
    let both = object(&json!({"a": {}, "b": {}}));
    let less = object(&json!({"a": {}}));
    let mut old = definition(&[("v1", true, less), ("v1beta1", true, both.clone())]);
    old["status"]["storedVersions"] = json!(["v1beta1", "v1"]);
    // What is new in `v1` is there only after the objects were written back.
    let new = definition(&[("v1", true, both)]);
    expect!["v1 spec.b is no field of the new schema, and would be dropped (1 object: shop/a)"]
        .assert_eq(&lines(&old, &new, &[widget("a", &json!({"b": 2}))]).join("\n"));
}

#[test]
fn a_stored_version_that_is_not_served_does_not_change_unsaid() {
    let both = object(&json!({"a": {}, "b": {}}));
    let less = object(&json!({"a": {}}));
    let hidden = |spec: Value| {
        let mut all = definition(&[("v2", false, spec), ("v1", true, both.clone())]);
        all["status"]["storedVersions"] = json!(["v2"]);
        all
    };
    let old = hidden(both.clone());
    let new = hidden(less.clone());
    let object = widget("a", &json!({"a": 1, "b": 2}));
    expect!["v2 cannot be judged: its schema changes, and objects may be stored in it, which cannot be read in it because it is not served"]
        .assert_eq(&lines(&old, &new, std::slice::from_ref(&object)).join("\n"));
    expect![""].assert_eq(&lines(&old, &new, &[]).join("\n"));
    // One that is served until then is read.
    let served = definition(&[("v1", true, both.clone()), ("v2", true, both.clone())]);
    let mut unserved = definition(&[("v1", false, less), ("v2", true, both)]);
    unserved["status"]["storedVersions"] = json!(["v1"]);
    expect!["v1 spec.b is no field of the new schema, and would be dropped (1 object: shop/a)"]
        .assert_eq(&lines(&served, &unserved, &[object]).join("\n"));
}

#[test]
fn objects_that_were_not_read_are_no_reason_to_believe_in_them() {
    let of = |kind: &str| definition(&[("v1", true, object(&json!({"a": {"type": kind}})))]);
    let judge = CrdChangeJudge::new(&of("integer"), &of("number"), &StopSignal::default()).unwrap();
    let facts =
        CrdGuardFacts { total: 3, service: WebhookServicePresence::Present, is_complete: false };
    expect!["cannot be judged: only 0 of 3 objects were read"]
        .assert_eq(&judge.finish(facts).lines(true).join("\n"));
}

#[test]
fn a_schema_of_many_parts_is_not_read() {
    let many = json!({"allOf": vec![json!({}); 200_000]});
    assert!(CrdVersionSchema::read(&many, false).is_none());
}

#[test]
fn scope_and_names_do_not_change_and_an_absent_webhook_is_reported() {
    let open = || json!({"type": "object"});
    let old = definition(&[("v1", true, open())]);
    let mut new = old.clone();
    new["spec"]["scope"] = "Cluster".into();
    new["spec"]["names"]["kind"] = "Gadget".into();
    new["spec"]["names"]["listKind"] = "WidgetList".into();
    new["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {"clientConfig":
        {"service": {"namespace": "ops", "name": "hook"}}}});
    expect![[r#"
        `spec.names.kind` changes from Widget to Gadget, which needs a new definition
        `spec.scope` changes from Namespaced to Cluster, which needs a new definition
        the Service ops/hook of the conversion webhook is not there"#]]
    .assert_eq(&lines(&old, &new, &[widget("a", &json!({}))]).join("\n"));
}

#[test]
fn objects_are_not_needed_where_no_schema_changes() {
    let mut spec = object(&json!({"size": {"type": "integer"}}));
    let old = definition(&[("v1", true, spec.clone())]);
    spec["description"] = "in other words".into();
    let judge =
        CrdChangeJudge::new(&old, &definition(&[("v1", true, spec)]), &StopSignal::default())
            .unwrap();
    assert!(judge.versions().is_empty() && judge.counted().is_none());
}

#[test]
fn judging_ends_when_the_time_is_over_and_says_so() {
    let old = definition(&[("v1", true, object(&json!({"a": {"type": "integer"}})))]);
    let new = definition(&[("v1", true, object(&json!({"a": {"type": "string"}})))]);
    let stop = StopSignal::default();
    let mut judge = CrdChangeJudge::new(&old, &new, &stop).unwrap();
    stop.set();
    judge.object("v1", &widget("a", &json!({"a": 1})));
    let verdict = judge.finish(CrdGuardFacts {
        total: 1,
        service: WebhookServicePresence::Present,
        is_complete: true,
    });
    expect!["v1 cannot be judged: judging it takes too long (1 object: shop/a)"]
        .assert_eq(&verdict.lines(true).join("\n"));
}

#[test]
fn objects_become_what_the_api_server_makes_of_them() {
    let schema = |value: Value| CrdVersionSchema::read(&value, false).unwrap();
    let nested = schema(json!({"type": "object", "properties": {
        "a": {"type": "object", "default": {}, "properties": {"b": {"type": "integer", "default": 3}}},
        "n": {"type": "string"}, "m": {"type": "string", "nullable": true},
        "d": {"type": "string", "default": "x"},
        "k": {"x-kubernetes-int-or-string": true},
        "e": {"type": "object", "x-kubernetes-embedded-resource": true},
        "l": {"type": "array", "items": {"type": "object"}}}}));
    let given = json!({"n": null, "m": null, "d": null, "k": 1, "x": 1,
        "e": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {}},
        "l": [{"x": 1}]});
    let made = nested.create(&given).unwrap().unwrap();
    assert_eq!(
        made,
        json!({"a": {"b": 3}, "m": null, "d": "x", "k": 1,
        "e": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}, "l": [{}]})
    );
    let set = schema(json!({"type": "object", "properties": {"s": {"type": "array",
        "x-kubernetes-list-type": "set", "items": {"type": "string"}}}}));
    let errors = set.create(&json!({"s": ["a", "a"]})).unwrap().unwrap_err();
    assert_eq!(errors, ["s has duplicate items"]);
    let one_of = schema(
        json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}),
    );
    assert!(one_of.create(&json!({"a": 1})).unwrap().is_ok());
    let errors = one_of.create(&json!({"a": 1, "b": 1})).unwrap().unwrap_err();
    assert_eq!(errors, [". fits 2 of `oneOf`"]);
}

fn arbitrary_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3_i64..10).prop_map(Value::from),
        "[a-d]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-d]", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn arbitrary_schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({"type": "string", "maxLength": 2})),
        Just(json!({"type": "integer", "minimum": 0})),
        Just(json!({"type": "integer", "default": 4, "nullable": true})),
        Just(json!({"x-kubernetes-int-or-string": true})),
        Just(json!({"x-kubernetes-preserve-unknown-fields": true})),
        Just(json!({"type": "boolean"})),
    ];
    leaf.prop_recursive(3, 16, 3, |inner| {
        prop_oneof![
            prop::collection::btree_map("[a-d]", inner.clone(), 0..4).prop_map(|map| {
                let map: serde_json::Map<String, Value> = map.into_iter().collect();
                json!({"type": "object", "properties": map})
            }),
            inner.clone().prop_map(|of| json!({"type": "object", "additionalProperties": of})),
            inner.prop_map(|of| json!({"type": "array", "items": of})),
        ]
    })
}

proptest! {
    #[test]
    fn what_was_made_once_stays_as_it_is(schema in arbitrary_schema(), value in arbitrary_json()) {
        let schema = CrdVersionSchema::read(&schema, false).unwrap();
        if let Some(Ok(made)) = schema.create(&value) {
            prop_assert_eq!(schema.create(&made), Some(Ok(made)));
        }
    }

    #[test]
    fn a_definition_that_stays_breaks_nothing(schema in arbitrary_schema(), value in arbitrary_json()) {
        let both = definition(&[("v1", true, schema)]);
        prop_assert!(lines(&both, &both, &[widget("a", &value)]).is_empty());
    }

    #[test]
    fn an_object_that_fits_before_and_after_and_keeps_its_fields_is_no_finding(
        old in arbitrary_schema(), new in arbitrary_schema(), value in arbitrary_json(),
    ) {
        let whole = |spec: &Value| CrdVersionSchema::read(&object(&json!({"spec": spec})), false).unwrap();
        let given = widget("a", &value);
        let was = whole(&old).create(&given);
        let Some(Ok(live)) = was else { return Ok(()) };
        let lines = lines(&definition(&[("v1", true, old)]), &definition(&[("v1", true, new.clone())]),
            std::slice::from_ref(&live));
        let is = whole(&new).create(&live);
        let is_invalid = matches!(is, Some(Err(_)));
        prop_assert_eq!(lines.iter().any(|it| !it.contains("dropped") && !it.contains("former default")), is_invalid);
    }
}
