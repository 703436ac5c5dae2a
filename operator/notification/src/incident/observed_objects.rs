//! The conditions of objects of all kinds, with their references and suspension. Other parts of the objects are not kept.
//!
//! Elsewhere: the judgement (`cause::incident`), the objects themselves (`windlass_cluster::object_store`).

use std::collections::{BTreeMap, BTreeSet};

use cause::incident::{
    Incident, ObjectFailureVerdict, ReportedObjectState, RootFailureSearchScope,
};
use cause::object_references::REFERENCE_FIELDS;
use cause::{FactAnswer, FactAnswers, FactQuery};
use crds::ReconciledObject;
use futures::FutureExt as _;
use kube_core::ResourceExt as _;
use notify::ObjectReference;
use objects::{Gvk, Object, ObjectId};
use reconcile::{SUSPENDED_UNTIL, Time};
use serde_json::Value;

use super::absent_kinds::AbsentKinds;
use super::incident_shard::shard_labels;
use crate::delivery::CONTROLLER;
use windlass_cluster::windlass_kind::WindlassKind;
use windlass_runtime::run_context::RunContext;
use windlass_serve::settings::OperatorSettings;

/// The fields of a spec that decide whether an object is reconciled, besides the [`REFERENCE_FIELDS`] to objects that it waits
/// for.
const SPEC: [&str; 2] = ["suspend", "type"];

/// The fields of a status that a judgement needs.
const STATUS: [&str; 7] = [
    "artifact",
    "conditions",
    "helmChart",
    "history",
    "lastAttemptedRevision",
    "observedGeneration",
    "releases",
];

/// The fields of an artifact that show whether its consumers have read it.
const ARTIFACT: [&str; 2] = ["lastUpdateTime", "revision"];

/// The fields of a history entry that show since when an object fails.
const RUN: [&str; 3] = ["firstReconciled", "lastReconciled", "lastReconciledStatus"];

/// The fields of the metadata that a judgement needs.
const METADATA: [&str; 7] = [
    "annotations",
    "creationTimestamp",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "name",
    "namespace",
];

/// The longest message that is kept, in bytes.
const MAX_MESSAGE_BYTES: usize = 2 << 10;

/// The most rounds in which the judgement of one object may ask for further objects.
const MAX_REQUEST_ROUNDS: usize = 200;

/// A kind whose objects are observed.
#[derive(Clone, Copy)]
pub struct ObservedKind {
    /// Group, kind and API version.
    name: fn() -> [String; 3],
    /// The name of its CustomResourceDefinition.
    definition: fn() -> String,
    refresh: fn(&mut ObservedObjects, &RunContext),
    is_listed: fn(&RunContext) -> bool,
    /// Whether an object belongs to the shard of this process. `None` if it was not observed.
    is_selected: fn(&RunContext, &ObjectId) -> Option<bool>,
}

impl ObservedKind {
    /// The row of a kind.
    pub const fn of<K: WindlassKind + ReconciledObject>() -> Self {
        Self {
            name: || {
                [K::group(&()), K::kind(&()), K::api_version(&())].map(std::borrow::Cow::into_owned)
            },
            definition: || format!("{}.{}", K::plural(&()), K::group(&())),
            refresh: refresh::<K>,
            is_listed: |context| context.kept.listed::<K>().now_or_never() == Some(true),
            is_selected: |context, id| {
                let object = context.seen::<K>(&id.namespace, &id.name)?;
                Some(context.settings.selects(object.labels()))
            },
        }
    }

    pub(super) fn group_and_kind(&self) -> [String; 2] {
        let [group, kind, _] = (self.name)();
        [group, kind]
    }

    pub(super) fn gvk(&self) -> Gvk {
        let [_, kind, api_version] = (self.name)();
        Gvk::new(&api_version, &kind)
    }

    /// The name of its CustomResourceDefinition.
    pub(super) fn definition(&self) -> String {
        (self.definition)()
    }

    /// Whether its objects were listed.
    pub(super) fn is_listed(&self, context: &RunContext) -> bool {
        (self.is_listed)(context)
    }

    /// Whether an object of this kind belongs to the shard of this process. `None` if it was not observed.
    pub(super) fn is_selected(&self, context: &RunContext, id: &ObjectId) -> Option<bool> {
        (self.is_selected)(context, id)
    }
}

/// The kinds whose objects were listed, or that have no objects because they are not served, and the watched namespace.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct ListedKinds {
    /// Group and kind.
    kinds: BTreeSet<[String; 2]>,
    /// Whether no object of another kind can be read.
    is_complete: bool,
    /// The only namespace that is watched.
    namespace: Option<String>,
}

impl ListedKinds {
    pub(super) fn of(rows: &[ObservedKind], context: &RunContext) -> Self {
        let OperatorSettings { watch_all_namespaces, runtime_namespace, .. } = &context.settings;
        let absent = context.shared::<AbsentKinds>();
        let is_known =
            |row: &&ObservedKind| row.is_listed(context) || absent.has(&row.group_and_kind());
        let kinds: BTreeSet<[String; 2]> =
            rows.iter().filter(is_known).map(ObservedKind::group_and_kind).collect();
        let mut keys = rows.iter().map(ObservedKind::group_and_kind);
        let is_complete = keys.all(|key| kinds.contains(&key) || absent.is_unserved(&key));
        let namespace = (!watch_all_namespaces).then(|| runtime_namespace.clone());
        Self { kinds, is_complete, namespace }
    }

    /// Whether a kind was listed, or has no objects.
    pub(super) fn has_kind(&self, group: &str, kind: &str) -> bool {
        self.kinds.contains(&[group.to_owned(), kind.to_owned()])
    }

    /// Whether no object of another kind can be read, so that there are no more to be judged.
    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Whether an object that is not observed is known not to exist.
    pub(super) fn has(&self, id: &ObjectId) -> bool {
        let is_watched = self.namespace.as_ref().is_none_or(|it| *it == id.namespace);
        is_watched && self.has_kind(&id.group, &id.kind)
    }
}

/// The facts about an object besides its conditions and references.
struct ObservedObjectFacts {
    version: String,
    uid: String,
    controller: &'static str,
    /// Whether the object belongs to the shard of this process.
    is_selected: bool,
    /// The labels that decide that.
    shard_labels: BTreeMap<String, String>,
    pass: u64,
}

/// The references, suspension and conditions of the objects of all kinds, from which incidents are judged.
#[derive(Default)]
pub(super) struct ObservedObjects {
    known: FactAnswers,
    entries: BTreeMap<ObjectId, ObservedObjectFacts>,
    pass: u64,
    has_changed: bool,
}

/// Takes in the objects of a kind.
fn refresh<K: WindlassKind + ReconciledObject>(
    observed: &mut ObservedObjects,
    context: &RunContext,
) {
    let group = K::group(&());
    let kind = K::kind(&());
    for object in context.store::<K>().state() {
        let namespace = object.namespace().unwrap_or_default();
        let id = ObjectId::new(&namespace, &object.name_any(), &group, &kind);
        let version = object.resource_version().unwrap_or_default();
        if let Some(entry) = observed.entries.get_mut(&id)
            && entry.version == version
        {
            entry.pass = observed.pass;
            continue;
        }
        let Some(slim) = serde_json::to_value(&*object).ok().and_then(slim) else { continue };
        let entry = ObservedObjectFacts {
            version,
            uid: object.uid().unwrap_or_default(),
            controller: K::CONTROLLER,
            is_selected: context.settings.selects(object.labels()),
            shard_labels: shard_labels(&context.settings.watch_label_selector, object.labels()),
            pass: observed.pass,
        };
        observed.known.insert(FactQuery::Object(id.clone()), FactAnswer::Objects(vec![slim]));
        observed.entries.insert(id, entry);
        observed.has_changed = true;
    }
}

/// An object with only the fields that a judgement needs. `None` if the value is not an object of Kubernetes.
fn slim(mut object: Value) -> Option<Object> {
    let keep = |part: Option<&mut Value>, keys: &[&str]| {
        if let Some(fields) = part.and_then(Value::as_object_mut) {
            fields.retain(|key, _| keys.contains(&key.as_str()));
        }
    };
    keep(object.get_mut("spec"), &[&SPEC[..], &REFERENCE_FIELDS[..]].concat());
    keep(object.get_mut("status"), &STATUS);
    keep(object.get_mut("metadata"), &METADATA);
    // The field manager that set the end of a suspension decides whether the end counts. Nothing else of the managed fields is
    // read.
    let has_end = object["metadata"]["annotations"].get(SUSPENDED_UNTIL).is_some();
    if !has_end && let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    if let Some(annotations) = object.pointer_mut("/metadata/annotations")
        && let Some(annotations) = annotations.as_object_mut()
    {
        annotations.retain(|key, _| key.starts_with("windlass.dev/"));
    }
    keep(object.pointer_mut("/status/artifact"), &ARTIFACT);
    // Releases have revisions there.
    let is_of_runs = object.pointer("/status/history/0/lastReconciledStatus").is_some();
    if !is_of_runs && let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        status.remove("history");
    }
    let runs = object.pointer_mut("/status/history").and_then(Value::as_array_mut);
    runs.into_iter().flatten().for_each(|run| keep(Some(run), &RUN));
    let conditions = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        if let Some(Value::String(message)) = condition.get_mut("message") {
            message.truncate(message.floor_char_boundary(MAX_MESSAGE_BYTES));
        }
    }
    Object::new(object).ok()
}

impl ObservedObjects {
    /// Takes over changes from the watches. Returns whether there was any.
    pub(super) fn refresh(&mut self, rows: &[ObservedKind], context: &RunContext) -> bool {
        self.pass += 1;
        self.has_changed = false;
        let absent = context.shared::<AbsentKinds>();
        // If a kind is not served any more, its store only has the objects that an interrupted watch saw last.
        for row in rows.iter().filter(|row| !absent.has(&row.group_and_kind())) {
            (row.refresh)(self, context);
        }
        let pass = self.pass;
        let known = &mut self.known;
        let before = self.entries.len();
        self.entries.retain(|id, entry| {
            let is_there = entry.pass == pass;
            if !is_there {
                known.forget(&FactQuery::Object(id.clone()));
            }
            is_there
        });
        self.has_changed || self.entries.len() != before
    }

    /// Judges all observed objects: which of them fail, and why. Returns one verdict for each object.
    pub(super) fn judge(
        &mut self,
        listed: &ListedKinds,
        reach: RootFailureSearchScope,
        now: Time,
    ) -> BTreeMap<ObjectId, ObjectFailureVerdict> {
        let mut lacking = Vec::new();
        let mut verdicts = BTreeMap::new();
        for id in self.entries.keys() {
            let verdict = judged(&mut self.known, &mut lacking, id, listed, reach, now);
            verdicts.insert(id.clone(), verdict);
        }
        // The missing objects may be created later.
        lacking.iter().for_each(|query| self.known.forget(query));
        verdicts
    }

    /// The object whose labels decide which process opens an Incident. It is the subject, or an object that names a missing
    /// subject. `None` if neither is observed.
    fn selected_by(&self, incident: &Incident) -> Option<&ObservedObjectFacts> {
        let first = incident.affected.first();
        let entry = self.entries.get(&incident.failure.subject);
        entry.or_else(|| first.and_then(|id| self.entries.get(id)))
    }

    /// Whether an incident is of this process' part of the cluster.
    pub(super) fn is_selected(&self, incident: &Incident) -> bool {
        self.selected_by(incident).is_some_and(|entry| entry.is_selected)
    }

    /// The labels that decide that.
    pub(super) fn shard_labels(&self, incident: &Incident) -> BTreeMap<String, String> {
        self.selected_by(incident).map(|entry| entry.shard_labels.clone()).unwrap_or_default()
    }

    /// An object, as events name it.
    pub(super) fn reference(&self, id: &ObjectId) -> ObjectReference {
        let names = crds::names().find(|it| it.group == id.group && it.kind == id.kind);
        let version = names.map_or("v1", |it| it.version);
        let entry = self.entries.get(id);
        ObjectReference {
            kind: id.kind.clone(),
            namespace: id.namespace.clone(),
            name: id.name.clone(),
            uid: entry.map(|it| it.uid.clone()).unwrap_or_default(),
            api_version: format!("{}/{version}", id.group),
            resource_version: entry.map(|it| it.version.clone()).unwrap_or_default(),
            field_path: String::new(),
        }
    }

    /// The controller that reports on an object.
    pub(super) fn controller(&self, id: &ObjectId) -> &'static str {
        self.entries.get(id).map_or(CONTROLLER, |entry| entry.controller)
    }
}

/// Judges an object. Objects of listed kinds that are not known do not exist. Objects that were needed but not known are added
/// to `lacking`.
fn judged(
    known: &mut FactAnswers,
    lacking: &mut Vec<FactQuery>,
    id: &ObjectId,
    listed: &ListedKinds,
    reach: RootFailureSearchScope,
    now: Time,
) -> ObjectFailureVerdict {
    for _ in 0..MAX_REQUEST_ROUNDS {
        let queries = match cause::incident::verdict(id, known, now, reach) {
            Ok(verdict) => return verdict,
            Err(queries) => queries,
        };
        for query in queries {
            let answer = match &query {
                FactQuery::Object(id) if listed.has(id) => FactAnswer::Objects(Vec::new()),
                _ => FactAnswer::Refused("not observed".to_owned()),
            };
            known.insert(query.clone(), answer);
            lacking.push(query);
        }
    }
    let own = ReportedObjectState::Unclear;
    ObjectFailureVerdict { own, since: None, failure: None, is_own: false, refers_to: None }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kustomization(source: &str) -> Value {
        json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": "app", "namespace": "apps", "generation": 1,
                "managedFields": [{}], "labels": {"a": "b"},
                "annotations": {"windlass.dev/window": "x", "other": "y"}},
            "spec": {"path": "./", "sourceRef": {"kind": "GitRepository", "name": source}},
            "status": {"observedGeneration": 1, "inventory": {"entries": [{}]},
                "history": [{"lastReconciledStatus": "BuildFailed", "digest": "sha256:1",
                    "firstReconciled": "2026-11-24T11:00:00Z"}],
                "conditions": [{"type": "Ready", "status": "False", "reason": "SourceNotReady",
                    "message": "ä".repeat(3_000), "observedGeneration": 1}]}})
    }

    #[test]
    fn no_more_is_kept_than_a_judgement_needs() {
        let slim = slim(kustomization("app")).unwrap().into_value();
        assert_eq!(slim["spec"], json!({"sourceRef": {"kind": "GitRepository", "name": "app"}}));
        assert_eq!(slim["metadata"]["annotations"], json!({"windlass.dev/window": "x"}));
        assert!(slim["status"].get("inventory").is_none());
        let run = json!({"lastReconciledStatus": "BuildFailed", "firstReconciled": "2026-11-24T11:00:00Z"});
        assert_eq!(slim["status"]["history"], json!([run]));
        let message = slim["status"]["conditions"][0]["message"].as_str().unwrap();
        assert!(message.len() <= MAX_MESSAGE_BYTES && message.ends_with('ä'));
        assert!(slim["metadata"].get("managedFields").is_none());
        let mut held = kustomization("app");
        held["metadata"]["annotations"][SUSPENDED_UNTIL] = json!("2026-11-24T21:00:00Z");
        let slim = self::slim(held).unwrap().into_value();
        assert_eq!(slim["metadata"]["managedFields"], json!([{}]));
    }

    /// A value with all fields of a schema.
    fn filled(schema: &Value) -> Value {
        if let Some(first) = schema.pointer("/enum/0") {
            return first.clone();
        }
        if let Some(fields) = schema["properties"].as_object() {
            return fields.iter().map(|(name, field)| (name.clone(), filled(field))).collect();
        }
        match schema["type"].as_str() {
            Some("array") => json!([filled(&schema["items"])]),
            Some("boolean") => json!(false),
            Some("integer" | "number") => json!(1),
            Some("object") => json!({"a": filled(&schema["additionalProperties"])}),
            _ => json!("it"),
        }
    }

    #[test]
    fn of_each_kind_no_reference_to_a_reconciled_object_is_dropped() {
        use cause::object_references as of;

        let mut leading = BTreeSet::new();
        for (names, (_, crd)) in crds::names().zip(crds::all()) {
            let crd = serde_json::to_value(crd).unwrap();
            let schema = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
            let whole = json!({"apiVersion": format!("{}/{}", names.group, names.version),
                "kind": names.kind, "metadata": {"name": "app", "namespace": "apps"},
                "spec": crd.pointer(schema).map(filled)});
            let kept = slim(whole.clone()).unwrap();
            let whole = Object::new(whole).unwrap();
            let kind = names.kind;
            assert_eq!(of::sources(&kept), of::sources(&whole), "{kind}");
            assert_eq!(of::dependencies(&kept), of::dependencies(&whole), "{kind}");
            assert_eq!(of::made_chart(&kept), of::made_chart(&whole), "{kind}");
            assert_eq!(of::provider(&kept), of::provider(&whole), "{kind}");
            assert_eq!(of::applied(&kept), of::applied(&whole), "{kind}");
            assert_eq!(of::is_elsewhere(&kept), of::is_elsewhere(&whole), "{kind}");
            assert_eq!(of::has_no_runs(&kept), of::has_no_runs(&whole), "{kind}");
            if !of::sources(&whole).is_empty() || of::provider(&whole).is_some() {
                leading.insert(kind);
            }
        }
        // The fields were filled so that they name something.
        for kind in ["Alert", "ArtifactGenerator", "GitRepository", "HelmRelease", "ImagePolicy"] {
            assert!(leading.contains(kind), "{kind}: {leading:?}");
        }
    }

    #[test]
    fn a_policy_and_its_repository_that_fails_are_one_incident() {
        let of = |kind: &str, name: &str, spec: Value| {
            let ready = json!({"type": "Ready", "status": "False", "reason": "ReadOperationFailed",
                "message": "cannot list tags", "observedGeneration": 1});
            let object = json!({"apiVersion": "image.toolkit.fluxcd.io/v1", "kind": kind,
                "metadata": {"name": name, "namespace": "apps", "generation": 1}, "spec": spec,
                "status": {"observedGeneration": 1, "conditions": [ready]}});
            slim(object).unwrap()
        };
        let policy = of("ImagePolicy", "app", json!({"imageRepositoryRef": {"name": "tags"}}));
        let repository = of("ImageRepository", "tags", json!({"image": "registry.io/app"}));
        let mut known = FactAnswers::default();
        for object in [policy.clone(), repository] {
            known.insert(FactQuery::Object(object.id()), FactAnswer::Objects(vec![object]));
        }
        let listed = ListedKinds::default();
        let now = "2026-11-24T12:00:00Z".parse().unwrap();
        let reach = RootFailureSearchScope::All;
        let verdict = judged(&mut known, &mut Vec::new(), &policy.id(), &listed, reach, now);
        assert_eq!(verdict.failure.map(|it| it.subject.name).as_deref(), Some("tags"));
    }

    #[test]
    fn what_is_not_known_is_absent_only_if_its_kind_was_listed() {
        let mut object = kustomization("app");
        object["metadata"]["annotations"] = json!({});
        let object = slim(object).unwrap();
        let id = object.id();
        let verdict = |kinds: &[[&str; 2]], namespace: Option<&str>| {
            let kinds = kinds.iter().map(|it| it.map(str::to_owned)).collect();
            let namespace = namespace.map(str::to_owned);
            let listed = ListedKinds { kinds, is_complete: false, namespace };
            let mut known = FactAnswers::default();
            let answer = FactAnswer::Objects(vec![object.clone()]);
            known.insert(FactQuery::Object(id.clone()), answer);
            let now = "2026-11-24T12:00:00Z".parse().unwrap();
            let lacking = &mut Vec::new();
            let failure =
                judged(&mut known, lacking, &id, &listed, RootFailureSearchScope::All, now).failure;
            failure.map(|it| it.subject.kind)
        };
        let all = [["source.toolkit.fluxcd.io", "GitRepository"]];
        assert_eq!(verdict(&all, None).as_deref(), Some("GitRepository"));
        assert_eq!(verdict(&all, Some("apps")).as_deref(), Some("GitRepository"));
        assert_eq!(verdict(&all, Some("elsewhere")).as_deref(), Some("Kustomization"));
        assert_eq!(verdict(&[], None).as_deref(), Some("Kustomization"));
    }
}
