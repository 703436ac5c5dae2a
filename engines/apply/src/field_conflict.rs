//! Field managers that took over fields which windlass applies, according to `managedFields`.
//!
//! Here: finding these managers in a live object and the answer to a dry-run, and the message about them. The message
//! proposes the ignore rule that leaves the fields to the other manager. Elsewhere: when the conflict is over
//! ([`crate::object_contest`]), how often a field is corrected (`reconcile::CorrectionBudget`), taking fields over for
//! good ([`crate::field_takeover`]), and the effect of rules ([`crate::drift_ignore_rules`]).

use std::ops::ControlFlow;
use std::time::Duration;

use objects::{Object, ObjectId};
use reconcile::format_duration;
use serde_json::{Map, Value, json, map};

use crate::diff_paths;
use crate::managed_fields_path::ManagedFieldsPathElement;

/// How many fields of each conflicting manager a message names.
const MAX_SHOWN_FIELDS: usize = 3;

/// For how many fields of a manager the JSON pointer is computed. Several fields may have the same pointer.
const MAX_RESOLVED_FIELDS: usize = 10;

/// How many fields are kept while an object is contested. More count as not known.
const MAX_KEPT_FIELDS: usize = 256;

/// How much memory the paths of these fields may need. A path may have more than a hundred parts.
const MAX_KEPT_BYTES: usize = 32 << 10;

/// Characters that separate the parts of a message, and how a field name is written that has them. A field name must
/// not read like another part of the message.
const ESCAPES: [(&str, &str); 4] = [("%", "%25"), (" ", "%20"), (",", "%2C"), (";", "%3B")];

/// A field manager that owns fields which windlass applies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConflictingFieldManager {
    /// The name of the manager.
    pub manager: String,
    /// Some of the fields that the manager took, as JSON pointers (RFC 6901) into the live object, such as
    /// `/spec/replicas`. An ignore rule can use them unchanged. They never contain values.
    pub fields: Vec<String>,
}

/// The managers that own fields which an apply by `manager` would take back.
///
/// `dry_run` is the API server's answer to that apply, including `managedFields`.
pub fn rivals(live: &Object, dry_run: &Object, manager: &str) -> Vec<ConflictingFieldManager> {
    let value = Value::Object(live.fields().clone());
    let shown = |taken: &TakenFields<'_>| {
        let fields = shown_fields(&value, taken);
        let manager = taken.manager.to_owned();
        (!fields.is_empty()).then_some(ConflictingFieldManager { manager, fields })
    };
    taken_fields(live, dry_run, manager).iter().filter_map(shown).collect()
}

/// The fields of the manifest that only other field managers own. Each is a path in the notation of `managedFields`.
/// `None` if they are more than [`MAX_KEPT_FIELDS`], or need more memory than [`MAX_KEPT_BYTES`].
pub(crate) fn taken_paths(
    live: &Object,
    dry_run: &Object,
    manager: &str,
) -> Option<Vec<Vec<String>>> {
    let mut paths: Vec<Vec<String>> = Vec::new();
    let mut bytes = 0;
    for taken in taken_fields(live, dry_run, manager) {
        let visited = taken.visit(|parts| {
            if paths.iter().any(|path| path == parts) {
                return ControlFlow::Continue(());
            }
            bytes += parts.iter().map(|part| size_of::<String>() + part.len()).sum::<usize>();
            if paths.len() == MAX_KEPT_FIELDS || bytes > MAX_KEPT_BYTES {
                return ControlFlow::Break(());
            }
            paths.push(parts.iter().map(|part| (*part).to_owned()).collect());
            ControlFlow::Continue(())
        });
        if visited.is_break() {
            return None;
        }
    }
    Some(paths)
}

/// The fields of the manifest that one other field manager owns and windlass does not. They are not collected, since an
/// object may have very many at a great depth.
struct TakenFields<'a> {
    manager: &'a str,
    /// The fields that the manifest sets.
    wanted: &'a Map<String, Value>,
    /// The fields that windlass owns.
    held: Option<&'a Value>,
    /// The fields that the other manager owns.
    theirs: &'a Map<String, Value>,
}

/// Sets of fields below one path of [`TakenFields`].
struct TakenFieldsLevel<'a> {
    /// The fields that the manifest sets and that were not visited yet.
    wanted: map::Iter<'a>,
    held: Option<&'a Value>,
    theirs: &'a Map<String, Value>,
}

impl<'a> TakenFields<'a> {
    /// Visits the fields in document order until `visit` breaks. Their paths are in the notation of `managedFields`.
    fn visit(&self, mut visit: impl FnMut(&[&'a str]) -> ControlFlow<()>) -> ControlFlow<()> {
        let Self { wanted, held, theirs, .. } = *self;
        let mut parts: Vec<&'a str> = Vec::new();
        let mut levels = vec![TakenFieldsLevel { wanted: wanted.iter(), held, theirs }];
        while let Some(level) = levels.last_mut() {
            let Some((key, wanted)) = level.wanted.next() else {
                levels.pop();
                parts.pop();
                continue;
            };
            let theirs = level.theirs.get(key).and_then(Value::as_object);
            let (Some(wanted), Some(theirs)) = (wanted.as_object(), theirs) else { continue };
            if key == "." {
                continue;
            }
            let held = level.held.and_then(|held| held.get(key));
            parts.push(key);
            if !wanted.is_empty() && !theirs.is_empty() {
                levels.push(TakenFieldsLevel { wanted: wanted.iter(), held, theirs });
                continue;
            }
            // The one holds the whole of what the other holds, or a part of it.
            if held.is_none() {
                visit(&parts)?;
            }
            parts.pop();
        }
        ControlFlow::Continue(())
    }
}

fn taken_fields<'a>(live: &'a Object, dry_run: &'a Object, manager: &str) -> Vec<TakenFields<'a>> {
    let Some(wanted) = ours(dry_run, manager).and_then(Value::as_object) else { return Vec::new() };
    let held = ours(live, manager);
    let others = entries(live).filter(|entry| !is_ours(entry, manager));
    let taken = others.filter_map(|entry| {
        let theirs = entry.get("fieldsV1")?.as_object()?;
        let manager = entry.get("manager").and_then(Value::as_str).unwrap_or_default();
        Some(TakenFields { manager, wanted, held, theirs })
    });
    taken.collect()
}

fn entries(object: &Object) -> impl Iterator<Item = &Value> {
    object.meta("managedFields").and_then(Value::as_array).into_iter().flatten()
}

fn is_ours(entry: &Value, manager: &str) -> bool {
    let is = |key: &str, value: &str| entry.get(key).and_then(Value::as_str) == Some(value);
    is("manager", manager) && is("operation", "Apply") && entry.get("subresource").is_none()
}

fn ours<'a>(object: &'a Object, manager: &str) -> Option<&'a Value> {
    entries(object).find(|entry| is_ours(entry, manager))?.get("fieldsV1")
}

/// The JSON pointers of the first of these fields, at most [`MAX_SHOWN_FIELDS`].
fn shown_fields(live: &Value, taken: &TakenFields<'_>) -> Vec<String> {
    let mut fields = Vec::new();
    let mut resolved = 0;
    // Either outcome is a result: what comes after a break is not shown.
    let _ = taken.visit(|parts| {
        let path = pointer(live, parts);
        if !path.is_empty() && !fields.contains(&path) {
            fields.push(path);
        }
        resolved += 1;
        match fields.len() == MAX_SHOWN_FIELDS || resolved == MAX_RESOLVED_FIELDS {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    fields
}

/// The JSON pointer to a field of an object. For a missing item of a list, it is the pointer to the list.
fn pointer(live: &Value, parts: &[&str]) -> String {
    let mut path = String::new();
    let mut value = live;
    for key in parts {
        let Some(part) = ManagedFieldsPathElement::of(value, key) else { break };
        path = part.pointer(&path);
        value = part.child(value).unwrap_or(&Value::Null);
    }
    path
}

/// The message about a field manager that undoes the applied changes, with advice. The message stays the same while the
/// same fields are contested.
///
/// `ignore` is the field of the spec that lists fields which others may set. `found` has the live object and the answer
/// to the dry-run. It is `None` if the other client deletes the object each time.
pub(crate) fn contested_text(
    id: &ObjectId,
    found: Option<(&Object, &Object)>,
    manager: &str,
    ignore: &str,
    pause: Duration,
) -> String {
    let subject = id.subject();
    let (what, advice) = match found {
        None => (
            "it is repeatedly deleted".to_owned(),
            "find the client that deletes it, or remove it from the manifests".to_owned(),
        ),
        Some((live, dry_run)) => {
            let rivals = rivals(live, dry_run, manager);
            let descriptions: Vec<String> = rivals.iter().map(describe).collect();
            let fields: Vec<String> = match rivals.is_empty() {
                false => rivals.into_iter().flat_map(|rival| rival.fields).collect(),
                true => diff_paths(live, dry_run, MAX_SHOWN_FIELDS),
            };
            let what = match (descriptions.is_empty(), fields.is_empty()) {
                (false, _) => descriptions.join("; "),
                (true, false) => format!("another client repeatedly sets {}", listed(&fields)),
                // Only the managers of the fields differ.
                (true, true) => "another client repeatedly takes over its fields".to_owned(),
            };
            let how = match fields.is_empty() {
                false => format!("add the rule {} to {ignore}", ignore_rule(id, &fields)),
                true => format!("list them in {ignore}"),
            };
            let advice = format!(
                "stop that client, or leave the fields to it: remove them from the manifest or {how}"
            );
            (what, advice)
        }
    };
    let pause = format_duration(pause);
    format!("{subject} is contested: {what}; corrected only every {pause}; {advice}")
}

/// Describes a conflicting manager and its fields. A client chooses the name of its field manager, so the name is
/// escaped and cannot read like another part of the message.
fn describe(rival: &ConflictingFieldManager) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "-._/:@+".contains(letter);
    let letters = rival.manager.chars().map(|letter| if is_plain(letter) { letter } else { '_' });
    let manager: String = letters.collect();
    format!("field manager '{manager}' repeatedly sets {}", listed(&rival.fields))
}

fn listed(fields: &[String]) -> String {
    let escaped = |field: &String| {
        let escapes = ESCAPES.iter();
        escapes.fold(field.clone(), |text, (plain, escape)| text.replace(*plain, escape))
    };
    let fields: Vec<String> = fields.iter().map(escaped).collect();
    fields.join(", ")
}

/// The ignore rule, as a spec has it, that leaves fields of one object to other clients. `fields` are JSON pointers.
fn ignore_rule(id: &ObjectId, fields: &[String]) -> Value {
    let mut paths: Vec<&String> = Vec::new();
    for field in fields {
        if !paths.contains(&field) {
            paths.push(field);
        }
    }
    json!({"paths": paths, "target": target(id)})
}

/// The target of an ignore rule for exactly one object. Its fields are regular expressions, and an empty field would
/// match every object.
fn target(id: &ObjectId) -> Value {
    let fields = [
        ("group", &id.group),
        ("kind", &id.kind),
        ("namespace", &id.namespace),
        ("name", &id.name),
    ];
    let given = fields.into_iter().filter(|(_, text)| !text.is_empty());
    let patterns: Map<String, Value> =
        given.map(|(field, text)| (field.to_owned(), quoted(text).into())).collect();
    Value::Object(patterns)
}

/// A regular expression that matches exactly this text.
fn quoted(text: &str) -> String {
    let mut expression = String::with_capacity(text.len());
    for letter in text.chars() {
        if r"\.+*?()|[]{}^$".contains(letter) {
            expression.push('\\');
        }
        expression.push(letter);
    }
    expression
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const OURS: &str = "kustomize-controller";

    fn entry(manager: &str, operation: &str, fields: Value) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsV1": fields})
    }

    fn object(spec: Value, managed: Value) -> Object {
        Object::new(json!({"apiVersion": "v1", "kind": "Thing", "spec": spec,
            "metadata": {"name": "a", "namespace": "shop", "resourceVersion": "1", "managedFields": managed}}))
        .unwrap()
    }

    fn container(fields: Value) -> Value {
        json!({"f:spec": {"f:replicas": {}, "f:containers": {"k:{\"name\":\"main\"}": fields}}})
    }

    #[test]
    fn a_rival_is_named_with_the_fields_that_it_took() {
        let wanted = container(json!({".": {}, "f:name": {}, "f:image": {}}));
        let containers = json!([{"name": "log"}, {"name": "main"}]);
        let spec = |v: u8| json!({"v": v, "containers": containers});
        let dry = object(spec(1), json!([entry(OURS, "Apply", wanted)]));
        let held =
            json!({"f:spec": {"f:containers": {"k:{\"name\":\"main\"}": {".": {}, "f:name": {}}}}});
        let theirs = container(json!({"f:image": {}, "f:name": {}, "f:ports": {}}));
        let idle = json!({"f:spec": {"f:other": {}}});
        let live = object(
            spec(2),
            json!([
                entry(OURS, "Apply", held),
                entry("scaler", "Update", theirs),
                entry("idle", "Update", idle)
            ]),
        );
        let fields = vec!["/spec/containers/1/image".to_owned(), "/spec/replicas".to_owned()];
        assert_eq!(
            rivals(&live, &dry, OURS),
            [ConflictingFieldManager { manager: "scaler".to_owned(), fields }]
        );
        let text = contested_text(
            &live.id(),
            Some((&live, &dry)),
            OURS,
            "spec.ignore",
            Duration::from_secs(600),
        );
        assert_eq!(
            text,
            "Thing/shop/a is contested: field manager 'scaler' repeatedly sets /spec/containers/1/image, \
             /spec/replicas; corrected only every 10m0s; stop that client, or leave the fields to it: remove them \
             from the manifest or add the rule {\"paths\":[\"/spec/containers/1/image\",\"/spec/replicas\"],\"target\":\
             {\"kind\":\"Thing\",\"name\":\"a\",\"namespace\":\"shop\"}} to spec.ignore"
        );
    }

    #[test]
    fn the_rule_of_a_message_leaves_the_fields_of_all_rivals_to_them_and_no_other_object() {
        let id = ObjectId::new("apps", "web.v1", "example.com", "Widget");
        let fields = ["/spec/a, ~1b; c%2C", "/spec/b", "/spec/b"].map(str::to_owned);
        let rule = ignore_rule(&id, &fields);
        assert_eq!(rule["paths"], json!(["/spec/a, ~1b; c%2C", "/spec/b"]));
        let wanted = json!({"group": r"example\.com", "kind": "Widget", "namespace": "apps", "name": r"web\.v1"});
        assert_eq!(rule["target"], wanted);
        let id = ObjectId::new("", "system:a+b", "rbac.authorization.k8s.io", "ClusterRole");
        let group = r"rbac\.authorization\.k8s\.io";
        let wanted = json!({"group": group, "kind": "ClusterRole", "name": r"system:a\+b"});
        assert_eq!(target(&id), wanted);
    }

    #[test]
    fn names_of_field_managers_and_fields_read_like_no_other_part_of_a_message() {
        let set = json!({"f:spec": {"f:a, /b; c%2C": {}}});
        let dry = object(json!({}), json!([entry(OURS, "Apply", set.clone())]));
        let name = "x' repeatedly sets /spec; y";
        let live = object(json!({}), json!([entry(name, "Update", set)]));
        let found = Some((&live, &dry));
        let pause = Duration::from_secs(2);
        let text = contested_text(&live.id(), found, OURS, "spec.ignore", pause);
        let says = "field manager 'x__repeatedly_sets_/spec__y' repeatedly sets /spec/a%2C%20~1b%3B%20c%252C; corrected";
        assert!(text.contains(says), "{text}");
        assert!(text.contains(r#"add the rule {"paths":["/spec/a, ~1b; c%2C"],"#), "{text}");
        let live = object(json!({"a;b, /c": 1}), json!([]));
        let dry = object(json!({"a;b, /c": 2}), json!([]));
        let found = Some((&live, &dry));
        let text = contested_text(&live.id(), found, OURS, "spec.ignore", pause);
        assert!(
            text.contains("another client repeatedly sets /spec/a%3Bb%2C%20~1c; corrected"),
            "{text}"
        );
        assert!(text.contains(r#"add the rule {"paths":["/spec/a;b, ~1c"],"#), "{text}");
    }

    #[test]
    fn where_only_the_managers_of_fields_differ_no_rule_is_named() {
        let live = object(json!({"v": 1}), json!([]));
        let found = Some((&live, &live));
        let text = contested_text(&live.id(), found, OURS, "spec.ignore", Duration::from_secs(2));
        assert!(text.contains("another client repeatedly takes over its fields"), "{text}");
        assert!(text.ends_with("or list them in spec.ignore"), "{text}");
    }

    #[test]
    fn fields_of_an_item_that_is_gone_are_those_of_its_list() {
        let fields = container(json!({".": {}, "f:name": {}, "f:image": {}}));
        let dry = object(json!({}), json!([entry(OURS, "Apply", fields.clone())]));
        let spec = json!({"replicas": 1, "containers": [{"name": "log"}]});
        let live = object(spec, json!([entry("x", "Update", fields)]));
        assert_eq!(rivals(&live, &dry, OURS)[0].fields, ["/spec/containers", "/spec/replicas"]);
    }

    #[test]
    fn more_fields_than_are_kept_count_as_not_known() {
        let taken = |set: Value| {
            let dry = object(json!({}), json!([entry(OURS, "Apply", set.clone())]));
            let others = json!([entry("x", "Update", set.clone()), entry("y", "Update", set)]);
            let live = object(json!({}), others);
            assert_eq!(rivals(&live, &dry, OURS).len(), 2);
            taken_paths(&live, &dry, OURS).map(|paths| paths.len())
        };
        let wide = |count: usize| {
            let fields = (0..count).map(|at| (format!("f:{at}"), json!({})));
            let fields: Map<String, Value> = fields.collect();
            json!({"f:data": fields})
        };
        assert_eq!(taken(wide(MAX_KEPT_FIELDS)), Some(MAX_KEPT_FIELDS));
        assert_eq!(taken(wide(MAX_KEPT_FIELDS + 1)), None);
        let deep = |count: usize| (0..110).fold(wide(count), |set, _| json!({"f:a": set}));
        assert_eq!(taken(deep(2)), Some(2));
        assert_eq!(taken(deep(50)), None);
    }

    #[test]
    fn who_holds_a_map_as_a_whole_holds_our_part_of_it() {
        let dry =
            object(json!({}), json!([entry(OURS, "Apply", json!({"f:data": {"f:a.b/c": {}}}))]));
        let live = object(json!({}), json!([entry("x", "Apply", json!({"f:data": {}}))]));
        assert_eq!(rivals(&live, &dry, OURS)[0].fields, ["/data"]);
        let live =
            object(json!({}), json!([entry("x", "Apply", json!({"f:data": {"f:a.b/c": {}}}))]));
        assert_eq!(rivals(&live, &dry, OURS)[0].fields, ["/data/a.b~1c"]);
    }

    #[test]
    fn where_no_manager_is_on_record_the_fields_are_named() {
        let live = object(json!({"v": 2}), json!([]));
        let dry = object(json!({"v": 1}), json!([]));
        let text = contested_text(
            &live.id(),
            Some((&live, &dry)),
            OURS,
            "spec.ignore",
            Duration::from_secs(2),
        );
        assert!(text.contains("another client repeatedly sets /spec/v"), "{text}");
        let text = contested_text(&live.id(), None, OURS, "spec.ignore", Duration::from_secs(2));
        assert!(text.contains("it is repeatedly deleted"), "{text}");
    }

    #[test]
    fn no_value_is_shown() {
        let set = json!({"f:spec": {"f:set": {"v:\"hunter2\"": {}}}});
        let dry = object(json!({"p": "hunter2"}), json!([entry(OURS, "Apply", set.clone())]));
        let live = object(json!({"p": "hunter3"}), json!([entry("x", "Update", set)]));
        let text = contested_text(
            &live.id(),
            Some((&live, &dry)),
            OURS,
            "spec.ignore",
            Duration::from_secs(2),
        );
        assert!(!text.contains("hunter"), "{text}");
    }
}
