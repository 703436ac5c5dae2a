//! The stages of an apply: which objects must exist before other objects can even be tried.
//!
//! Here: sorting manifests into stages. Elsewhere: the order inside a stage ([`crate::apply_order`]), and applying one
//! stage after the other ([`crate::plan`]).

use std::collections::BTreeSet;

use objects::{Object, ObjectId};

use crate::{apply_order, drift_comparison};

/// The kind of a stage, which decides whether the next one waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ApplyStageKind {
    /// CustomResourceDefinitions, Namespaces and ClusterRoles. The run applies them and waits until they are healthy.
    Crds,
    /// Kinds whose name ends in `Class`. The run applies them and waits until they are healthy.
    Classes,
    /// Kinds that the administrator named. They are applied before the rest, and the run does not wait for them.
    Custom,
    /// All other kinds.
    Rest,
}

impl ApplyStageKind {
    /// Whether the objects of this stage must be healthy before the next stage is observed.
    pub fn is_waited_for(self) -> bool {
        matches!(self, Self::Crds | Self::Classes)
    }
}

/// An object to apply, with its id and digest, so that these are computed only once.
#[derive(Debug, Clone, PartialEq)]
pub struct ManifestToApply {
    /// The object to apply.
    pub object: Object,
    /// The id of the object.
    pub id: ObjectId,
    /// The digest of the manifest. Equal digests mean equal manifests.
    pub digest: String,
}

/// Manifests that are tried together before any of them is written.
#[derive(Debug, Clone, PartialEq)]
pub struct ApplyStage {
    /// Which stage this is.
    pub kind: ApplyStageKind,
    /// The objects, in the order in which they are applied.
    pub objects: Vec<ManifestToApply>,
}

/// Two manifests are for the same object. If both were applied, each run would undo its own changes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} is declared more than once (ids are compared without the API version); keep one of them", id.subject())]
pub struct DuplicateObjectError {
    /// The object declared twice.
    pub id: ObjectId,
}

/// The apply stage of an object. `custom` has group and kind of the kinds that the administrator put into the custom
/// stage.
pub fn stage_of(object: &Object, custom: &[(String, String)]) -> ApplyStageKind {
    let api = object.api_version();
    let kind = object.kind();
    let is = |wanted: &str| kind.eq_ignore_ascii_case(wanted);
    let defines = (is("CustomResourceDefinition") && api.starts_with("apiextensions.k8s.io/"))
        || (is("Namespace") && api == "v1")
        || (is("ClusterRole") && api.starts_with("rbac.authorization.k8s.io/"));
    if defines {
        return ApplyStageKind::Crds;
    }
    if kind.ends_with("Class") {
        return ApplyStageKind::Classes;
    }
    let group = object.gvk().group;
    if custom.iter().any(|(g, k)| *g == group && k == kind) {
        return ApplyStageKind::Custom;
    }
    ApplyStageKind::Rest
}

/// Sorts manifests into stages, in the order in which they are applied. Empty stages are left out.
///
/// # Errors
/// The error names an object that has two manifests.
pub fn stages(
    objects: Vec<Object>,
    custom: &[(String, String)],
) -> Result<Vec<ApplyStage>, DuplicateObjectError> {
    let mut sorted: Vec<(ApplyStageKind, ManifestToApply)> = Vec::with_capacity(objects.len());
    let mut seen = BTreeSet::new();
    for object in objects {
        let id = object.id();
        if !seen.insert(id.clone()) {
            return Err(DuplicateObjectError { id });
        }
        let kind = stage_of(&object, custom);
        let digest = drift_comparison::digest(&object);
        sorted.push((kind, ManifestToApply { object, id, digest }));
    }
    sorted.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| apply_order::compare(&a.1.id, &b.1.id)));
    let mut stages: Vec<ApplyStage> = Vec::new();
    for (kind, manifest) in sorted {
        match stages.last_mut() {
            Some(stage) if stage.kind == kind => stage.objects.push(manifest),
            _ => stages.push(ApplyStage { kind, objects: vec![manifest] }),
        }
    }
    Ok(stages)
}

/// Reads the flag `--custom-apply-stage-kinds`, which has `group/Kind` separated by commas. A word without a group is a
/// kind of the core group.
pub fn parse_group_kinds(text: &str) -> Vec<(String, String)> {
    if text.is_empty() {
        return Vec::new();
    }
    let pairs: BTreeSet<_> = text
        .split(',')
        .map(str::trim)
        .map(|item| item.split_once('/').unwrap_or(("", item)))
        .map(|(group, kind)| (group.to_owned(), kind.to_owned()))
        .collect();
    pairs.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use serde_json::json;

    fn object(api: &str, kind: &str, name: &str) -> Object {
        Object::new(json!({"apiVersion": api, "kind": kind, "metadata": {"name": name}})).unwrap()
    }

    #[test]
    fn a_namespace_comes_before_what_lives_in_it_and_empty_stages_are_left_out() {
        let objects = vec![
            object("apps/v1", "Deployment", "web"),
            object("cert-manager.io/v1", "ClusterIssuer", "le"),
            object("v1", "ConfigMap", "web"),
            object("v1", "Namespace", "shop"),
        ];
        let custom = parse_group_kinds("cert-manager.io/ClusterIssuer");
        let text: Vec<_> = stages(objects, &custom)
            .unwrap()
            .iter()
            .map(|s| {
                let ids: Vec<_> = s.objects.iter().map(|m| m.id.subject()).collect();
                format!("{:?}: {}", s.kind, ids.join(" "))
            })
            .collect();
        expect![[r#"
            Crds: Namespace/shop
            Custom: ClusterIssuer/le
            Rest: ConfigMap/web Deployment/web"#]]
        .assert_eq(&text.join("\n"));
    }

    #[test]
    fn one_object_in_two_versions_is_a_duplicate() {
        let objects =
            vec![object("batch/v1", "CronJob", "x"), object("batch/v1beta1", "CronJob", "x")];
        let error = stages(objects, &[]).unwrap_err();
        expect!["CronJob/x is declared more than once (ids are compared without the API version); keep one of them"]
            .assert_eq(&error.to_string());
    }
}
