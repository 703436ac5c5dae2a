//! Tests of decoding lists and watch events object by object.

use crds::helm::HelmRelease;
use serde_json::json;

use super::*;

fn nested(depth: usize) -> String {
    format!("{}{}", "{\"a\":".repeat(depth), "1") + &"}".repeat(depth)
}

/// A HelmRelease whose values are nested to a given depth.
fn release(name: &str, values: &str, more: &str) -> String {
    format!(
        r#"{{"apiVersion":"helm.toolkit.fluxcd.io/v2","kind":"HelmRelease","metadata":{{"name":"{name}",
        "namespace":"shop","uid":"u-{name}","resourceVersion":"7","generation":3{more}}},
        "spec":{{"interval":"1m","values":{values}}},"status":{{"conditions":[{{"type":"Ready","status":"True","reason":"Succeeded","message":"",
        "lastTransitionTime":"2026-01-02T03:04:05Z"}}]}}}}"#
    )
}

fn page(items: &[String]) -> String {
    let items = items.join(" , ");
    format!(
        r#"{{"kind":"List","metadata":{{"resourceVersion":"9","continue":""}},"items":[{items}]}}"#
    )
}

#[test]
fn an_item_nested_as_deeply_as_an_api_server_stores_spoils_no_other() {
    for depth in [300, 9_990] {
        let text = page(&[
            release("deep", &nested(depth), ""),
            release("well", "{\"brace\":\"}]\\\"\"}", ""),
        ]);
        let page = ObjectListPage::<DecodedObject<HelmRelease>>::read(text.as_bytes()).unwrap();
        assert_eq!(page.version.as_deref(), Some("9"));
        let [DecodedObject::Unreadable(deep), DecodedObject::Read(well)] = &page.items[..] else {
            panic!("{:?}", page.items)
        };
        assert_eq!(
            (&*deep.meta.name, &*deep.meta.uid, deep.meta.generation),
            ("deep", "u-deep", 3)
        );
        assert_eq!(deep.conditions[0]["type"], json!("Ready"));
        let levels = format!("it is nested {} levels deep", depth + 2);
        assert!(deep.why.contains(&levels), "{}", deep.why);
        assert_eq!(well.metadata.name.as_deref(), Some("well"));
    }
}

#[test]
fn a_list_of_any_kind_has_nulls_for_what_is_nested_too_deeply() {
    let text = page(&[release("deep", &nested(9_990), ""), release("well", "{\"a\":1}", "")]);
    let page = ObjectListPage::<DepthPrunedObject>::read(text.as_bytes()).unwrap();
    let [DepthPrunedObject(deep), DepthPrunedObject(well)] = &page.items[..] else {
        panic!("{:?}", page.items)
    };
    assert_eq!(deep["metadata"]["uid"], json!("u-deep"));
    assert_eq!(deep.pointer(&format!("/spec/values{}", "/a".repeat(98))), Some(&json!(null)));
    assert_eq!(well["spec"]["values"], json!({"a": 1}));
}

#[test]
fn the_deepest_that_is_read_is_the_deepest_that_serde_json_takes() {
    let read = |depth| object::<HelmRelease>(release("a", &nested(depth), "").as_bytes());
    assert!(read(MAX_NESTING_DEPTH - 2).is_ok());
    assert!(read(MAX_NESTING_DEPTH - 1).is_err());
    assert_eq!(
        depth(release("a", &nested(MAX_NESTING_DEPTH - 1), "").as_bytes()),
        MAX_NESTING_DEPTH + 1
    );
}

#[test]
fn an_item_of_another_shape_spoils_no_other_and_says_what_is_wrong() {
    let text = page(&[release("odd", "1", "").replace("\"1m\"", "[]"), release("well", "{}", "")]);
    let page = ObjectListPage::<DecodedObject<HelmRelease>>::read(text.as_bytes()).unwrap();
    let [DecodedObject::Unreadable(odd), DecodedObject::Read(_)] = &page.items[..] else {
        panic!("{:?}", page.items)
    };
    assert!(odd.why.contains("invalid type"), "{}", odd.why);
}

#[test]
fn one_that_is_being_deleted_is_read_without_what_is_nested_too_deeply() {
    let gone = ",\"deletionTimestamp\":\"2026-01-02T03:04:05Z\"";
    let read = DecodedObject::<HelmRelease>::read(release("deep", &nested(9_990), gone).as_bytes())
        .unwrap();
    let DecodedObject::Read(read) = read else { panic!("{read:?}") };
    assert!(read.metadata.deletion_timestamp.is_some());
}

#[test]
fn what_is_pruned_is_json_and_the_same_where_it_is_shallow() {
    let text = format!(r#"{{"a":"}}\\\"{{","b":{},"c":[[1],2]}}"#, nested(400));
    let value: Value = serde_json::from_slice(&pruned(text.as_bytes())).unwrap();
    assert_eq!((&value["a"], &value["c"]), (&json!("}\\\"{"), &json!([[1], 2])));
    let mut deep = &value["b"];
    for _ in 1..MAX_RETAINED_DEPTH {
        deep = &deep["a"];
    }
    assert!(deep.is_null(), "{deep}");
    assert_eq!(pruned(page(&[]).as_bytes()), page(&[]).into_bytes());
}

#[test]
fn deletions_and_bookmarks_are_noticed_whatever_the_object_is_like() {
    let event = |kind: &str, object: &str| format!(r#"{{"type":"{kind}","object":{object}}}"#);
    let line = event("DELETED", &release("deep", &nested(300), ""));
    let line = WatchLine::<DecodedObject<HelmRelease>>::read(line.as_bytes()).unwrap();
    assert!(matches!(&line, WatchLine::Deleted(item) if item.version() == "7"), "{line:?}");
    let line = event("BOOKMARK", r#"{"kind":"HelmRelease","metadata":{"resourceVersion":"12"}}"#);
    let line = WatchLine::<DecodedObject<HelmRelease>>::read(line.as_bytes()).unwrap();
    assert!(matches!(&line, WatchLine::Bookmark(version) if version == "12"), "{line:?}");
    let end = r#"{"kind":"PartialObjectMetadata","metadata":{"resourceVersion":"13","creationTimestamp":null,
        "annotations":{"k8s.io/initial-events-end":"true"}}}"#;
    let line = event("BOOKMARK", end);
    let line = WatchLine::<MetadataOnly>::read(line.as_bytes()).unwrap();
    assert!(matches!(&line, WatchLine::InitialEventsEnd(version) if version == "13"), "{line:?}");
    let line = event("BOOKMARK", &end.replace("\"true\"", "\"false\""));
    let line = WatchLine::<MetadataOnly>::read(line.as_bytes()).unwrap();
    assert!(matches!(&line, WatchLine::Bookmark(version) if version == "13"), "{line:?}");
    let line = event("ERROR", r#"{"kind":"Status","code":410,"message":"too old"}"#);
    let line = WatchLine::<DecodedObject<HelmRelease>>::read(line.as_bytes()).unwrap();
    assert!(matches!(&line, WatchLine::Error(status) if status.code == 410), "{line:?}");
    let line =
        WatchLine::<MetadataOnly>::read(br#"{"kind":"Status","code":500,"message":"x"}"#).unwrap();
    assert!(matches!(&line, WatchLine::Error(status) if status.code == 500), "{line:?}");
    for broken in ["", "[]", "{", "{\"type\":\"ADDED\"}", "{\"type\":1}", "{\"type\" \"ADDED\"}"] {
        assert!(WatchLine::<MetadataOnly>::read(broken.as_bytes()).is_err(), "{broken}");
    }
}

#[test]
fn metadata_is_seen_where_managed_fields_are_nested_too_deeply() {
    let fields =
        format!(r#","labels":{{"x":"y"}},"managedFields":[{{"fieldsV1":{}}}]"#, nested(300));
    let seen = MetadataOnly::read(release("deep", "{}", &fields).as_bytes()).unwrap();
    assert_eq!((&*seen.namespace, &*seen.name, seen.version()), ("shop", "deep", "7"));
    assert_eq!(seen.metadata["labels"], json!({"x": "y"}));
    assert_eq!(seen.metadata.get("managedFields"), None);
    let whole =
        MetadataOnly::read(release("well", "{}", ",\"managedFields\":[]").as_bytes()).unwrap();
    assert_eq!(whole.metadata["managedFields"], json!([]));
}
