//! The objects to which an object refers: its sources and dependencies, the Secrets that it names, and the objects that
//! it applied.

use apply::ObjectInventory;
use objects::{Object, ObjectId};
use reconcile::object_dependency;
use serde_json::Value;

use crate::condition::text;

/// The API group of Flux's sources.
const SOURCES: &str = "source.toolkit.fluxcd.io";

/// The API group of images.
const IMAGES: &str = "image.toolkit.fluxcd.io";

/// The suffix of windlass' API groups.
const WINDLASS_GROUPS: &str = ".windlass.dev";

/// The API group of helmfile-operator, whose kind windlass reconciles, too.
const HELMFILE_OPERATOR: &str = "apps.mumoshu.github.io";

/// The fields of a spec that name objects which windlass or Flux reconciles, or that place them in another cluster.
///
/// To find such objects, the functions here read only these fields. An object that is stored with only these fields
/// therefore leads to the same objects. It does not lead to the Secrets, ConfigMaps and ServiceAccounts of
/// [`references`], which any field may name.
pub const REFERENCE_FIELDS: [&str; 10] = [
    "chart",
    "chartRef",
    "dependsOn",
    "healthChecks",
    "imageRepositoryRef",
    "include",
    "kubeConfig",
    "providerRef",
    "sourceRef",
    "sources",
];

/// The kinds that apply objects, each with the prefix of its label names, which end in `name` and `namespace`.
const APPLIERS: [(&str, &str, &str); 4] = [
    ("kustomize.toolkit.fluxcd.io", "Kustomization", ""),
    ("helm.toolkit.fluxcd.io", "HelmRelease", ""),
    ("helmfile.windlass.dev", "Helmfile", ""),
    (HELMFILE_OPERATOR, "Helmfile", "helmfile-"),
];

/// The owner labels of the objects that a kind applies.
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

/// Whether an object is of a kind that applies objects.
pub(crate) fn is_applier(id: &ObjectId) -> bool {
    APPLIERS.iter().any(|(group, kind, _)| id.group == *group && id.kind == *kind)
}

/// Whether an object by its nature has no condition `Ready`: a HelmRepository of type `oci`, a kind without a status, a
/// record or a gate.
pub fn has_no_runs(object: &Object) -> bool {
    let is_oci = object.get("spec").is_some_and(|spec| text(spec, "type") == "oci");
    match object.kind() {
        "HelmRepository" => is_oci,
        "Alert" | "Provider" | "ExternalArtifact" => true,
        "ChangeSet"
        | "ClusterStagedRollout"
        | "Freeze"
        | "FreezeBypass"
        | "Incident"
        | "Lifecycle"
        | "LifecycleBinding"
        | "LifecycleEvent"
        | "Plan"
        | "PlanPolicy"
        | "Quarantine"
        | "ReleaseAudit"
        | "StagedRollout" => object.gvk().group.ends_with(WINDLASS_GROUPS),
        _ => false,
    }
}

/// The objects from which an object gets its files or tags, such as the source of a Kustomization.
pub fn sources(object: &Object) -> Vec<ObjectId> {
    let Some(spec) = object.get("spec") else { return Vec::new() };
    let mut found = Vec::new();
    for reference in ["sourceRef", "chartRef"].iter().filter_map(|key| spec.get(*key)) {
        found.extend(reference_of(reference, object, SOURCES));
    }
    found.extend(image_repository(object));
    found.extend(made_chart(object));
    if object.kind() == "ArtifactGenerator" {
        let listed = entries(object, "sources");
        found.extend(listed.filter_map(|it| reference_of(it, object, SOURCES)));
    }
    found.extend(included(object).into_iter().map(|(_, id)| id));
    found
}

/// The ImageRepository whose tags an ImagePolicy chooses from. `None` if the spec names none.
fn image_repository(object: &Object) -> Option<ObjectId> {
    let reference = object.get("spec")?.get("imageRepositoryRef")?;
    let name = Some(text(reference, "name")).filter(|name| !name.is_empty())?;
    Some(ObjectId::new(&namespace_of(reference, object), name, IMAGES, "ImageRepository"))
}

/// The repositories that a GitRepository includes, each with its index in the list.
fn included(object: &Object) -> Vec<(usize, ObjectId)> {
    let repositories = entries(object, "include").enumerate();
    repositories
        .filter_map(|(at, entry)| {
            let name = entry.get("repository")?.get("name")?.as_str()?;
            Some((at, ObjectId::new(object.namespace(), name, SOURCES, "GitRepository")))
        })
        .collect()
}

/// The HelmChart that is made for a HelmRelease from the template in its spec. `None` if the spec has no template.
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

/// A dependency that has to be ready before an object is reconciled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequiredDependency {
    /// The object that has to be ready.
    pub object: ObjectId,
    /// The object of another API group that is meant if `object` does not exist.
    pub otherwise: Option<ObjectId>,
    /// The release of the object that has to be ready, as `reconcile::object_dependency::releases` reads it.
    pub release: Option<String>,
    /// Whether it is enough that the object exists.
    pub may_be_unready: bool,
}

/// The dependencies that have to be ready before an object is reconciled. Those of its spec come first, in their order,
/// and then those of its annotation.
pub fn dependencies(object: &Object) -> Vec<RequiredDependency> {
    let listed = listed_entries(object).into_iter().map(|(id, _, entry)| RequiredDependency {
        may_be_unready: may_be_unready(object, &id, entry),
        object: id,
        otherwise: None,
        release: None,
    });
    listed.chain(annotated(object)).collect()
}

/// Whether it is enough for an entry of `dependsOn` that the object exists. That is so if the entry says it. It is also
/// so if the entry has no expression and its kind applies nothing.
fn may_be_unready(object: &Object, id: &ObjectId, entry: &Value) -> bool {
    let is_of_same_kind = id.kind == object.kind() && id.group == object.gvk().group;
    let has_expression = !text(entry, "readyExpr").is_empty();
    let ready = entry.get("ready").and_then(Value::as_bool);
    !has_expression && !ready.unwrap_or(is_of_same_kind || is_applier(id))
}

/// The dependencies that the annotation `windlass.dev/depends-on` names. Empty if it cannot be read; the status reports
/// that.
fn annotated(object: &Object) -> Vec<RequiredDependency> {
    let text = object.annotation(object_dependency::ANNOTATION).unwrap_or_default();
    let all = object_dependency::parse(text, object.namespace()).unwrap_or_default();
    let found = all.into_iter().filter_map(|needed| {
        let kinds = APPLIERS.iter().filter(|(group, kind, _)| needed.may_be(group, kind));
        let mut ids = kinds
            .map(|(group, kind, _)| ObjectId::new(&needed.namespace, &needed.name, group, kind));
        Some(RequiredDependency {
            object: ids.next()?,
            otherwise: ids.next(),
            release: needed.part.clone(),
            may_be_unready: false,
        })
    });
    found.collect()
}

/// The objects in `spec.dependsOn`, each with the field that names it.
fn listed(object: &Object) -> Vec<(ObjectId, String)> {
    listed_entries(object).into_iter().map(|(id, field, _)| (id, field)).collect()
}

/// The objects in `spec.dependsOn`, each with the field that names it and with its entry.
fn listed_entries(object: &Object) -> Vec<(ObjectId, String, &Value)> {
    let group = object.gvk().group;
    let all = entries(object, "dependsOn").enumerate();
    all.filter_map(|(at, entry)| {
        let kind = match text(entry, "kind") {
            "" => object.kind(),
            kind => kind,
        };
        let group = group_of(entry).unwrap_or_else(|| group.clone());
        let namespace = namespace_of(entry, object);
        let name = text(entry, "name");
        let field = format!("spec.dependsOn[{at}]");
        (!name.is_empty()).then(|| (ObjectId::new(&namespace, name, &group, kind), field, entry))
    })
    .collect()
}

/// The entries of a list in the spec.
fn entries<'o>(object: &'o Object, field: &str) -> impl Iterator<Item = &'o Value> {
    let listed = object.get("spec").and_then(|it| it.get(field)).and_then(Value::as_array);
    listed.into_iter().flatten()
}

/// The Provider to which an Alert sends. It has to work, although the Alert gets no files from it. `None` if the object
/// is no Alert or names no Provider.
pub fn provider(object: &Object) -> Option<ObjectId> {
    let name = object.get("spec")?.get("providerRef").map(|it| text(it, "name"))?;
    let id = ObjectId::new(object.namespace(), name, &object.gvk().group, "Provider");
    (object.kind() == "Alert" && !name.is_empty()).then_some(id)
}

/// The Secrets, ConfigMaps and ServiceAccounts that a spec names and that have to exist, each with the field that names
/// it.
pub fn references(object: &Object) -> Vec<(ObjectId, String)> {
    let required = named_in_spec(object).into_iter().filter(|it| !it.is_optional);
    let mut found: Vec<(ObjectId, String)> = required.map(|it| (it.object, it.field)).collect();
    found.extend(account(object));
    found.sort();
    found.dedup_by(|one, other| one.0 == other.0);
    found
}

/// The Secrets and ConfigMaps that a run of an object reads. Creating or changing one of them causes another run,
/// whether the run needs it or not. Keys of a signature are not among them, because only a run that has fetched the
/// signed content reads them.
pub(crate) fn watched(object: &Object) -> Vec<ObjectId> {
    let read = named_in_spec(object).into_iter().filter(|it| !it.field.contains(".verify."));
    let mut by_field: Vec<(String, ObjectId)> = read.map(|it| (it.field, it.object)).collect();
    by_field.sort();
    let mut watched: Vec<ObjectId> = Vec::new();
    for (_, id) in by_field {
        if !watched.contains(&id) {
            watched.push(id);
        }
    }
    watched
}

/// The object whose address and credentials an object uses. `None` if its own spec has them.
pub(crate) fn remote(object: &Object) -> Option<ObjectId> {
    let group = object.gvk().group;
    let kind = match (group.as_str(), object.kind()) {
        (SOURCES, "HelmChart") => "HelmRepository",
        (IMAGES, "ImageUpdateAutomation") => "GitRepository",
        (IMAGES, "ImagePolicy") => "ImageRepository",
        _ => return None,
    };
    sources(object).into_iter().find(|id| id.kind == kind)
}

/// All objects that a spec names, each with the field that names it: those of [`references`], sources, dependencies, a
/// Provider, and the objects for whose health it waits.
pub(crate) fn naming_fields(object: &Object) -> Vec<(ObjectId, String)> {
    let mut found = references(object);
    found.extend(listed(object));
    let spec = object.get("spec").unwrap_or(&Value::Null);
    for key in ["sourceRef", "chartRef"] {
        let id = spec.get(key).and_then(|it| reference_of(it, object, SOURCES));
        found.extend(id.map(|id| (id, format!("spec.{key}"))));
    }
    found.extend(image_repository(object).map(|id| (id, "spec.imageRepositoryRef".to_owned())));
    for (at, id) in included(object) {
        found.push((id, format!("spec.include[{at}].repository")));
    }
    if object.kind() == "ArtifactGenerator" {
        for (at, entry) in entries(object, "sources").enumerate() {
            let id = reference_of(entry, object, SOURCES);
            found.extend(id.map(|id| (id, format!("spec.sources[{at}]"))));
        }
    }
    found.extend(provider(object).map(|id| (id, "spec.providerRef".to_owned())));
    for (at, id) in health_checks(object).enumerate() {
        found.push((id, format!("spec.healthChecks[{at}]")));
    }
    for it in annotated(object) {
        let field = format!("the annotation {}", object_dependency::ANNOTATION);
        found.extend(it.otherwise.map(|id| (id, field.clone())));
        found.push((it.object, field));
    }
    found
}

/// A Secret or ConfigMap that a field of a spec names.
struct SecretOrConfigMapReference {
    object: ObjectId,
    field: String,
    /// Whether a run works without the object.
    is_optional: bool,
}

fn named_in_spec(object: &Object) -> Vec<SecretOrConfigMapReference> {
    let mut found = Vec::new();
    let mut pending: Vec<(String, &Value)> =
        object.get("spec").map(|spec| ("spec".to_owned(), spec)).into_iter().collect();
    // Values, patches and similar fields contain references of other objects.
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
    found
}

/// The ServiceAccount that an object uses to apply or to log in. `None` if that account is in another cluster.
fn account(object: &Object) -> Option<(ObjectId, String)> {
    let name = object.get("spec").map(|spec| text(spec, "serviceAccountName"))?;
    let id = ObjectId::new(object.namespace(), name, "", "ServiceAccount");
    (!name.is_empty() && !is_elsewhere(object)).then(|| (id, "spec.serviceAccountName".to_owned()))
}

/// How many references of one object are followed.
const MOST_REFERENCES: usize = 64;

/// The Secret or ConfigMap that a field such as `secretRef` or `valuesFrom` names. `None` if the field names neither.
fn named(object: &Object, path: &str, value: &Value) -> Option<SecretOrConfigMapReference> {
    let field = path.rsplit('.').next().unwrap_or(path);
    let field = field.split('[').next().unwrap_or(field);
    let name = text(value, "name");
    let is_optional = value.get("optional") == Some(&Value::Bool(true));
    let kind = match field {
        _ if name.is_empty() => return None,
        "secretRef" => "Secret",
        "configMapRef" => "ConfigMap",
        field if field.ends_with("SecretRef") => "Secret",
        "valuesFrom" | "substituteFrom" | "envFrom" => match text(value, "kind") {
            kind @ ("Secret" | "ConfigMap") => kind,
            _ => return None,
        },
        _ => return None,
    };
    let object = ObjectId::new(object.namespace(), name, "", kind);
    Some(SecretOrConfigMapReference { object, field: path.to_owned(), is_optional })
}

/// The objects that an object applied, according to its status, and the objects for whose health it waits, according to
/// its spec.
pub fn applied(object: &Object) -> Vec<ObjectId> {
    let mut ids = inventory(object);
    for id in health_checks(object) {
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    ids
}

/// The objects for whose health a spec waits, in the order of the spec.
fn health_checks(object: &Object) -> impl Iterator<Item = ObjectId> {
    entries(object, "healthChecks").map(|check| {
        let group = group_of(check).unwrap_or_default();
        let namespace = namespace_of(check, object);
        ObjectId::new(&namespace, text(check, "name"), &group, text(check, "kind"))
    })
}

/// The objects that an object applied, according to its status.
pub fn inventory(object: &Object) -> Vec<ObjectId> {
    in_order(&versioned_inventory(object))
}

/// The objects of [`inventory`], each with the API version in which it was applied.
pub fn versioned_inventory(object: &Object) -> ObjectInventory {
    let own = object.get("status").into_iter();
    let releases = releases(object).filter(|row| text(row, "kubeContext").is_empty());
    inventoried(own.chain(releases.filter_map(|row| row.get("status"))))
}

/// The applied objects of a Helmfile's releases that are in the clusters of `spec.kubeContexts`.
pub fn in_contexts(object: &Object) -> Vec<ObjectId> {
    let releases = releases(object).filter(|row| !text(row, "kubeContext").is_empty());
    in_order(&inventoried(releases.filter_map(|row| row.get("status"))))
}

/// The entries of a Helmfile's status about its releases.
fn releases(object: &Object) -> impl Iterator<Item = &Value> {
    let rows = object.get("status").and_then(|it| it.get("releases")).and_then(Value::as_array);
    rows.into_iter().flatten()
}

/// The objects in the inventories of these parts of a status.
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

/// Whether an object applies its objects in another cluster.
pub fn is_elsewhere(object: &Object) -> bool {
    object.get("spec").is_some_and(|spec| spec.get("kubeConfig").is_some())
}

/// The applier of an object, according to its owner labels. `None` if it has no such labels.
pub fn applier(object: &Object) -> Option<ObjectId> {
    // A Kustomization that applies itself has no other applier.
    owner_labels().find_map(|labels| labeled(object, &labels).filter(|id| *id != object.id()))
}

/// The owner of an object, as far as the owner's kind writes its name and namespace into `labels`. `None` if the object
/// lacks one of them.
pub(crate) fn labeled(object: &Object, labels: &OwnerLabels) -> Option<ObjectId> {
    let name = object.label(&labels.name)?;
    let namespace = object.label(&labels.namespace)?;
    Some(ObjectId::new(namespace, name, labels.group, labels.kind))
}

/// The controller of an object, according to its `ownerReferences`. `None` if they name none.
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
