//! What an object refers to: sources, dependencies, Secrets and the like, what it applied.

use apply::ObjectInventory;
use objects::{Object, ObjectId};
use reconcile::depends_on;
use serde_json::Value;

use crate::condition::text;

/// The API group of Flux's sources.
const SOURCES: &str = "source.toolkit.fluxcd.io";

/// The API group of images.
const IMAGES: &str = "image.toolkit.fluxcd.io";

/// How the API groups of windlass end.
const WINDLASS_GROUPS: &str = ".windlass.dev";

/// The API group of helmfile-operator, whose kind windlass reconciles, too.
const HELMFILE_OPERATOR: &str = "apps.mumoshu.github.io";

/// The kinds that apply objects, each with what the names of its labels have before `name` and `namespace`.
const APPLIERS: [(&str, &str, &str); 4] = [
    ("kustomize.toolkit.fluxcd.io", "Kustomization", ""),
    ("helm.toolkit.fluxcd.io", "HelmRelease", ""),
    ("helmfile.windlass.dev", "Helmfile", ""),
    (HELMFILE_OPERATOR, "Helmfile", "helmfile-"),
];

/// The labels of what a kind applies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerLabels {
    /// The group of the kind.
    pub group: &'static str,
    /// The kind.
    pub kind: &'static str,
    /// The label with the owner's name.
    pub name: String,
    /// The label with the owner's namespace.
    pub namespace: String,
}

/// The labels of all kinds that apply objects.
pub fn owner_labels() -> impl Iterator<Item = OwnerLabels> {
    APPLIERS.into_iter().map(|(group, kind, prefix)| OwnerLabels {
        group,
        kind,
        name: format!("{group}/{prefix}name"),
        namespace: format!("{group}/{prefix}namespace"),
    })
}

/// Whether an object is of a kind that windlass or Flux reconciles.
pub fn is_reconciled(id: &ObjectId) -> bool {
    let of = |domain: &str| id.group.ends_with(domain);
    of(".fluxcd.io") || of(WINDLASS_GROUPS) || id.group == HELMFILE_OPERATOR
}

/// Whether an object has no condition `Ready` by its nature: a HelmRepository of type `oci`, a kind without a status, a
/// record or a gate.
pub fn has_no_runs(object: &Object) -> bool {
    let is_oci = object.get("spec").is_some_and(|spec| text(spec, "type") == "oci");
    match object.kind() {
        "HelmRepository" => is_oci,
        "Alert" | "Provider" | "ExternalArtifact" => true,
        "Incident" | "Lifecycle" | "LifecycleBinding" | "LifecycleEvent" | "ReleaseAudit" => {
            object.gvk().group.ends_with(WINDLASS_GROUPS)
        }
        _ => false,
    }
}

/// The objects that an object gets its files from, such as the source of a Kustomization, or its tags.
pub fn sources(object: &Object) -> Vec<ObjectId> {
    let Some(spec) = object.get("spec") else { return Vec::new() };
    let mut found = Vec::new();
    for reference in ["sourceRef", "chartRef"].iter().filter_map(|key| spec.get(*key)) {
        found.extend(reference_of(reference, object, SOURCES));
    }
    let images = spec.get("imageRepositoryRef").filter(|it| !text(it, "name").is_empty());
    found.extend(images.map(|reference| {
        let namespace = namespace_of(reference, object);
        ObjectId::new(&namespace, text(reference, "name"), IMAGES, "ImageRepository")
    }));
    found.extend(made_chart(object));
    if object.kind() == "ArtifactGenerator" {
        let listed = spec.get("sources").and_then(Value::as_array).into_iter().flatten();
        found.extend(listed.filter_map(|it| reference_of(it, object, SOURCES)));
    }
    let includes = spec.get("include").and_then(Value::as_array).into_iter().flatten();
    for name in includes.filter_map(|it| it.get("repository")?.get("name")?.as_str()) {
        found.push(ObjectId::new(object.namespace(), name, SOURCES, "GitRepository"));
    }
    found
}

/// The HelmChart that is made for a HelmRelease, from the template in its spec.
pub fn made_chart(object: &Object) -> Option<ObjectId> {
    let template = object.get("spec")?.get("chart").filter(|it| it.is_object())?;
    Some(chart_of(object, template))
}

fn chart_of(release: &Object, template: &Value) -> ObjectId {
    let known = release.get("status").map(|it| text(it, "helmChart")).unwrap_or_default();
    let (namespace, name) = match known.split_once('/') {
        Some((namespace, name)) => (namespace.to_owned(), name.to_owned()),
        None => {
            let source = template.get("spec").and_then(|it| it.get("sourceRef"));
            let namespace = source.map(|it| text(it, "namespace")).filter(|it| !it.is_empty());
            let namespace = namespace.unwrap_or(release.namespace()).to_owned();
            (namespace, format!("{}-{}", release.namespace(), release.name()))
        }
    };
    ObjectId::new(&namespace, &name, SOURCES, "HelmChart")
}

/// What has to be ready before an object is reconciled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequiredDependency {
    /// The object.
    pub object: ObjectId,
    /// The object of another group that is meant if the first does not exist.
    pub otherwise: Option<ObjectId>,
    /// The release of the object that has to be ready, as `reconcile::depends_on::releases` reads it.
    pub release: Option<String>,
}

/// What has to be ready before an object is reconciled, in the order of its spec; then what its annotation names.
pub fn dependencies(object: &Object) -> Vec<RequiredDependency> {
    let of = |object| RequiredDependency { object, otherwise: None, release: None };
    listed(object).into_iter().map(of).chain(annotated(object)).collect()
}

/// What the annotation `windlass.dev/depends-on` names; empty if it cannot be read, which the status reports.
fn annotated(object: &Object) -> Vec<RequiredDependency> {
    let text = object.annotation(depends_on::ANNOTATION).unwrap_or_default();
    let all = depends_on::parse(text, object.namespace()).unwrap_or_default();
    let found = all.into_iter().filter_map(|needed| {
        let kinds = APPLIERS.iter().filter(|(group, kind, _)| needed.may_be(group, kind));
        let mut ids = kinds
            .map(|(group, kind, _)| ObjectId::new(&needed.namespace, &needed.name, group, kind));
        Some(RequiredDependency {
            object: ids.next()?,
            otherwise: ids.next(),
            release: needed.part.clone(),
        })
    });
    found.collect()
}

/// What `spec.dependsOn` lists.
fn listed(object: &Object) -> Vec<ObjectId> {
    let listed = object.get("spec").and_then(|it| it.get("dependsOn")).and_then(Value::as_array);
    let group = object.gvk().group;
    let all = listed.into_iter().flatten();
    all.filter_map(|entry| {
        let kind = match text(entry, "kind") {
            "" => object.kind(),
            kind => kind,
        };
        let group = group_of(entry).unwrap_or_else(|| group.clone());
        let namespace = namespace_of(entry, object);
        let name = text(entry, "name");
        (!name.is_empty()).then(|| ObjectId::new(&namespace, name, &group, kind))
    })
    .collect()
}

/// The Provider to which an Alert sends: it has to work, although an Alert gets no files from it.
pub fn provider(object: &Object) -> Option<ObjectId> {
    let name = object.get("spec")?.get("providerRef").map(|it| text(it, "name"))?;
    let id = ObjectId::new(object.namespace(), name, &object.gvk().group, "Provider");
    (object.kind() == "Alert" && !name.is_empty()).then_some(id)
}

/// Secrets, ConfigMaps and ServiceAccounts that a spec names and that have to be there, each with the field that names it.
pub fn references(object: &Object) -> Vec<(ObjectId, String)> {
    let mut found: Vec<_> = account(object).into_iter().collect();
    let mut pending: Vec<(String, &Value)> =
        object.get("spec").map(|spec| ("spec".to_owned(), spec)).into_iter().collect();
    // Values, patches and the like hold references of other objects.
    let is_foreign =
        |key: &str| matches!(key, "values" | "patches" | "postRenderers" | "substitute");
    while let Some((path, value)) = pending.pop() {
        match value {
            Value::Object(fields) => {
                found.extend(named(object, &path, value));
                for (key, value) in fields.iter().filter(|(key, _)| !is_foreign(key)) {
                    pending.push((format!("{path}.{key}"), value));
                }
            }
            Value::Array(items) => {
                pending
                    .extend(items.iter().enumerate().map(|(at, it)| (format!("{path}[{at}]"), it)));
            }
            _ => {}
        }
        if found.len() >= MOST_REFERENCES {
            break;
        }
    }
    found.sort();
    found.dedup_by(|one, other| one.0 == other.0);
    found
}

/// The ServiceAccount as which an object is applied or logs in, unless that is one of another cluster.
fn account(object: &Object) -> Option<(ObjectId, String)> {
    let name = object.get("spec").map(|spec| text(spec, "serviceAccountName"))?;
    let id = ObjectId::new(object.namespace(), name, "", "ServiceAccount");
    (!name.is_empty() && !is_elsewhere(object)).then(|| (id, "spec.serviceAccountName".to_owned()))
}

/// How many references of one object are followed.
const MOST_REFERENCES: usize = 64;

/// What a field names: `secretRef`, `valuesFrom` and their like.
fn named(object: &Object, path: &str, value: &Value) -> Option<(ObjectId, String)> {
    let field = path.rsplit('.').next().unwrap_or(path);
    let field = field.split('[').next().unwrap_or(field);
    let name = text(value, "name");
    let is_optional = value.get("optional") == Some(&Value::Bool(true));
    let kind = match field {
        _ if name.is_empty() || is_optional => return None,
        "secretRef" => "Secret",
        "configMapRef" => "ConfigMap",
        field if field.ends_with("SecretRef") => "Secret",
        "valuesFrom" | "substituteFrom" | "envFrom" => match text(value, "kind") {
            kind @ ("Secret" | "ConfigMap") => kind,
            _ => return None,
        },
        _ => return None,
    };
    Some((ObjectId::new(object.namespace(), name, "", kind), path.to_owned()))
}

/// What an object applied, as its status has it, with the objects whose health its spec asks for.
pub fn applied(object: &Object) -> Vec<ObjectId> {
    let mut ids = inventory(object);
    let checks = object.get("spec").and_then(|it| it.get("healthChecks")).and_then(Value::as_array);
    for check in checks.into_iter().flatten() {
        let group = group_of(check).unwrap_or_default();
        let namespace = namespace_of(check, object);
        let id = ObjectId::new(&namespace, text(check, "name"), &group, text(check, "kind"));
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    ids
}

/// What an object applied, as its status has it.
pub fn inventory(object: &Object) -> Vec<ObjectId> {
    in_order(&versioned_inventory(object))
}

/// The same with the version in which each object was applied.
pub fn versioned_inventory(object: &Object) -> ObjectInventory {
    let own = object.get("status").into_iter();
    let releases = releases(object).filter(|row| text(row, "kubeContext").is_empty());
    inventoried(own.chain(releases.filter_map(|row| row.get("status"))))
}

/// What the releases of a Helmfile are made of that are in the clusters of `spec.kubeContexts`.
pub fn in_contexts(object: &Object) -> Vec<ObjectId> {
    let releases = releases(object).filter(|row| !text(row, "kubeContext").is_empty());
    in_order(&inventoried(releases.filter_map(|row| row.get("status"))))
}

/// The rows of a Helmfile's releases.
fn releases(object: &Object) -> impl Iterator<Item = &Value> {
    let rows = object.get("status").and_then(|it| it.get("releases")).and_then(Value::as_array);
    rows.into_iter().flatten()
}

/// What inventories list.
fn inventoried<'v>(parts: impl Iterator<Item = &'v Value>) -> ObjectInventory {
    let entries = parts.filter_map(|it| it.get("inventory")?.get("entries")?.as_array());
    let entries: Vec<(String, String)> =
        entries.flatten().map(|it| (text(it, "id").to_owned(), text(it, "v").to_owned())).collect();
    ObjectInventory::from_entries(&entries).0
}

/// The objects of an inventory in the order in which they are applied.
fn in_order(inventory: &ObjectInventory) -> Vec<ObjectId> {
    inventory.entries().iter().filter_map(|(id, _)| id.parse().ok()).collect()
}

/// Whether what an object applies is in another cluster.
pub fn is_elsewhere(object: &Object) -> bool {
    object.get("spec").is_some_and(|spec| spec.get("kubeConfig").is_some())
}

/// The object that applied an object, by its owner labels.
pub fn applier(object: &Object) -> Option<ObjectId> {
    owner_labels().find_map(|labels| {
        let name = object.label(&labels.name)?;
        let namespace = object.label(&labels.namespace)?;
        let id = ObjectId::new(namespace, name, labels.group, labels.kind);
        // A Kustomization that applies itself does not have a parent.
        (id != object.id()).then_some(id)
    })
}

/// The controller of an object, by its `ownerReferences`.
pub fn controller(object: &Object) -> Option<ObjectId> {
    let owners = object.meta("ownerReferences")?.as_array()?;
    let owner = owners.iter().find(|it| it.get("controller") == Some(&Value::Bool(true)))?;
    let group = group_of(owner).unwrap_or_default();
    Some(ObjectId::new(object.namespace(), text(owner, "name"), &group, text(owner, "kind")))
}

fn reference_of(reference: &Value, object: &Object, group: &str) -> Option<ObjectId> {
    let kind = text(reference, "kind");
    let name = text(reference, "name");
    let group = match (group_of(reference), kind) {
        (Some(group), _) => group,
        (None, "HTTPArchive") => "source.windlass.dev".to_owned(),
        (None, _) => group.to_owned(),
    };
    let namespace = namespace_of(reference, object);
    (!name.is_empty()).then(|| ObjectId::new(&namespace, name, &group, kind))
}

fn group_of(reference: &Value) -> Option<String> {
    match text(reference, "apiVersion") {
        "" => None,
        version => Some(version.split_once('/').map_or("", |(group, _)| group).to_owned()),
    }
}

fn namespace_of(reference: &Value, object: &Object) -> String {
    match text(reference, "namespace") {
        "" => object.namespace().to_owned(),
        namespace => namespace.to_owned(),
    }
}
