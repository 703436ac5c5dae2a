//! Every field with a reference, in every kind: same namespace, other namespace allowed or refused, missing object, object
//! deleted meanwhile, forged status.
//!
//! The fields are read from the CRD schemas, so a new field without a row fails the first test.
//! Elsewhere: impersonation when applying objects (`tenancy.rs`), nonsense in every field (`nonsense_in_all_fields.rs`).

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject, WindlassProcess};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::DynamicObject;
use serde_json::{Value, json};

/// The meaning of a field in a spec.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReferenceFieldKind {
    /// The field names a Secret in the same namespace. It cannot name another namespace.
    Secret,
    /// The field names a ServiceAccount in the same namespace, which windlass reads.
    ReadAccount,
    /// The field names a source. The schema says whether it may be in another namespace.
    Source(&'static str),
    /// The field names an object of the same kind in any namespace. That object has to be ready.
    Dependency,
    /// The field names an object of another kind that has to exist, here a ConfigMap. References to other namespaces may be
    /// blocked.
    OtherKind,
    /// The field names a ServiceAccount in the same namespace, which windlass impersonates.
    Account,
    /// windlass reads these objects as the impersonated user. `tenancy.rs` and `releases/helmfile_operator.rs` test this.
    AsAccount,
    /// windlass does not support the field, and the condition names it.
    Unsupported,
    /// The field names no object. It selects manifests, or it is part of a manifest.
    NoObject,
    /// The controllers do not read the field.
    Unread,
    /// windlass reads the field when it sends an event or receives a webhook. `notifications.rs` tests this.
    Later,
    /// Cluster administrators write this kind and may name any object, and no tenant writes it.
    /// `releases/lifecycle_checks.rs`, `notification_services/pull_request_approval.rs` and `stories/freeze_calendars.rs`
    /// test this.
    OfPlatform,
    /// The field names an ImageRepository, which decides who may use its tags. `images.rs` tests this.
    OfImages,
}

use ReferenceFieldKind::{
    Account, AsAccount, Dependency, Later, NoObject, OfImages, OfPlatform, OtherKind, ReadAccount,
    Secret, Source, Unread, Unsupported,
};

/// All fields that look like references. The text is a value that makes the field a reference, with `NAME` for the name.
const FIELDS: &[(&str, &str, ReferenceFieldKind, &str)] = &[
    ("Alert", "eventSources[]", Later, ""),
    ("Alert", "providerRef", Later, ""),
    ("ArtifactGenerator", "artifacts[]", NoObject, ""),
    (
        "ArtifactGenerator",
        "sources[]",
        Source("GitRepository"),
        r#"{"sources": [{"alias": "src", "kind": "GitRepository", "name": "NAME"}]}"#,
    ),
    (
        "Bucket",
        "certSecretRef",
        Secret,
        r#"{"certSecretRef": {"name": "NAME"}, "insecure": false}"#,
    ),
    ("Bucket", "proxySecretRef", Secret, r#"{"proxySecretRef": {"name": "NAME"}}"#),
    ("Bucket", "secretRef", Secret, r#"{"secretRef": {"name": "NAME"}}"#),
    (
        "Bucket",
        "serviceAccountName",
        Unsupported,
        r#"{"serviceAccountName": "NAME", "provider": "aws"}"#,
    ),
    (
        "Bucket",
        "sts.certSecretRef",
        Secret,
        r#"{"sts": {"provider": "ldap", "endpoint": "https://127.0.0.1:1", "certSecretRef": {"name": "NAME"}}}"#,
    ),
    (
        "Bucket",
        "sts.secretRef",
        Secret,
        r#"{"sts": {"provider": "ldap", "endpoint": "https://127.0.0.1:1", "secretRef": {"name": "NAME"}}}"#,
    ),
    ("ClusterStagedRollout", "waves[]", NoObject, ""),
    ("ExternalArtifact", "sourceRef", Unread, ""),
    ("Freeze", "calendar.configMapRef", OfPlatform, ""),
    // windlass compares these fields with the UID of the denying Freeze and of the reconciled object. It reads no object
    // through them.
    ("FreezeBypass", "freeze", Unread, ""),
    ("FreezeBypass", "subject", Unread, ""),
    (
        "GitRepository",
        "include[].repository",
        Source("GitRepository"),
        r#"{"include": [{"repository": {"name": "NAME"}}]}"#,
    ),
    ("GitRepository", "proxySecretRef", Secret, r#"{"proxySecretRef": {"name": "NAME"}}"#),
    ("GitRepository", "ref", NoObject, ""),
    ("GitRepository", "secretRef", Secret, r#"{"secretRef": {"name": "NAME"}}"#),
    (
        "GitRepository",
        "serviceAccountName",
        Unsupported,
        r#"{"serviceAccountName": "NAME", "provider": "azure"}"#,
    ),
    (
        "GitRepository",
        "verify.secretRef",
        Secret,
        r#"{"verify": {"mode": "HEAD", "secretRef": {"name": "NAME"}}}"#,
    ),
    ("HTTPArchive", "certSecretRef", Secret, r#"{"certSecretRef": {"name": "NAME"}}"#),
    ("HTTPArchive", "proxySecretRef", Secret, r#"{"proxySecretRef": {"name": "NAME"}}"#),
    ("HTTPArchive", "secretRef", Secret, r#"{"secretRef": {"name": "NAME"}}"#),
    (
        "HelmChart",
        "sourceRef",
        Source("Bucket"),
        r#"{"sourceRef": {"kind": "Bucket", "name": "NAME"}}"#,
    ),
    (
        "HelmChart",
        "verify.secretRef",
        Secret,
        r#"{"sourceRef": {"kind": "HelmRepository", "name": "app"}, "verify": {"provider": "cosign", "secretRef": {"name": "NAME"}}}"#,
    ),
    (
        "HelmRelease",
        "chart.spec.sourceRef",
        Source("HelmRepository"),
        r#"{"chart": {"spec": {"chart": "a", "sourceRef": {"kind": "HelmRepository", "name": "NAME"}}}}"#,
    ),
    (
        "HelmRelease",
        "chart.spec.verify.secretRef",
        Secret,
        r#"{"chart": {"spec": {"chart": "a", "sourceRef": {"kind": "HelmRepository", "name": "a"}, "verify": {"provider": "cosign", "secretRef": {"name": "NAME"}}}}}"#,
    ),
    (
        "HelmRelease",
        "chartRef",
        Source("OCIRepository"),
        r#"{"chart": null, "chartRef": {"kind": "OCIRepository", "name": "NAME"}}"#,
    ),
    ("HelmRelease", "dependsOn", Dependency, r#"{"dependsOn": [{"name": "NAME"}]}"#),
    (
        "HelmRelease",
        "dependsOn[]",
        Dependency,
        r#"{"dependsOn": [{"name": "NAME", "readyExpr": "true"}]}"#,
    ),
    ("HelmRelease", "driftDetection.ignore[].target", NoObject, ""),
    ("HelmRelease", "install.strategy", NoObject, ""),
    ("HelmRelease", "kubeConfig", Secret, r#"{"kubeConfig": {"secretRef": {"name": "NAME"}}}"#),
    (
        "HelmRelease",
        "kubeConfig.configMapRef",
        Unsupported,
        r#"{"kubeConfig": {"configMapRef": {"name": "NAME"}}}"#,
    ),
    (
        "HelmRelease",
        "kubeConfig.secretRef",
        Secret,
        r#"{"kubeConfig": {"secretRef": {"name": "NAME", "key": "a"}}}"#,
    ),
    ("HelmRelease", "postRenderers[].kustomize.images[]", NoObject, ""),
    ("HelmRelease", "postRenderers[].kustomize.patches[].target", NoObject, ""),
    ("HelmRelease", "serviceAccountName", Account, r#"{"serviceAccountName": "NAME"}"#),
    ("HelmRelease", "test.filters[]", NoObject, ""),
    ("HelmRelease", "upgrade.strategy", NoObject, ""),
    (
        "HelmRelease",
        "valuesFrom",
        Secret,
        r#"{"valuesFrom": [{"kind": "Secret", "name": "NAME"}]}"#,
    ),
    (
        "HelmRelease",
        "valuesFrom[]",
        Secret,
        r#"{"valuesFrom": [{"kind": "Secret", "name": "NAME", "valuesKey": "a"}]}"#,
    ),
    ("HelmRelease", "waitStrategy", NoObject, ""),
    ("HelmRepository", "certSecretRef", Secret, r#"{"certSecretRef": {"name": "NAME"}}"#),
    ("HelmRepository", "secretRef", Secret, r#"{"secretRef": {"name": "NAME"}}"#),
    (
        "Helmfile",
        "decryption.secretRef",
        Secret,
        r#"{"decryption": {"provider": "sops", "secretRef": {"name": "NAME"}}}"#,
    ),
    (
        "Helmfile",
        "decryption.serviceAccountName",
        Unsupported,
        r#"{"decryption": {"provider": "sops", "serviceAccountName": "NAME"}}"#,
    ),
    ("Helmfile", "dependsOn", Dependency, r#"{"dependsOn": [{"name": "NAME"}]}"#),
    (
        "Helmfile",
        "dependsOn[]",
        Dependency,
        r#"{"dependsOn": [{"name": "NAME", "readyExpr": "true"}]}"#,
    ),
    ("Helmfile", "driftDetection.ignore[].target", NoObject, ""),
    ("Helmfile", "env[]", NoObject, ""),
    ("Helmfile", "envFrom[]", Secret, r#"{"envFrom": [{"kind": "Secret", "name": "NAME"}]}"#),
    ("Helmfile", "kubeConfig", Secret, r#"{"kubeConfig": {"secretRef": {"name": "NAME"}}}"#),
    (
        "Helmfile",
        "kubeConfig.configMapRef",
        Unsupported,
        r#"{"kubeConfig": {"configMapRef": {"name": "NAME"}}}"#,
    ),
    (
        "Helmfile",
        "kubeConfig.secretRef",
        Secret,
        r#"{"kubeConfig": {"secretRef": {"name": "NAME", "key": "a"}}}"#,
    ),
    (
        "Helmfile",
        "kubeContexts{}.configMapRef",
        Unsupported,
        r#"{"kubeContexts": {"east": {"configMapRef": {"name": "NAME"}}}}"#,
    ),
    (
        "Helmfile",
        "kubeContexts{}.secretRef",
        Secret,
        r#"{"path": "east", "kubeContexts": {"east": {"secretRef": {"name": "NAME", "key": "a"}}}}"#,
    ),
    ("Helmfile", "serviceAccountName", Account, r#"{"serviceAccountName": "NAME"}"#),
    (
        "Helmfile",
        "sourceRef",
        Source("GitRepository"),
        r#"{"sourceRef": {"kind": "GitRepository", "name": "NAME"}}"#,
    ),
    ("Helmfile", "suspendedReleases[]", NoObject, ""),
    ("Helmfile.apps.mumoshu.github.io", "image.repository", Unread, ""),
    ("Helmfile.apps.mumoshu.github.io", "serviceAccountName", AsAccount, ""),
    ("Helmfile", "valuesFrom", Secret, r#"{"valuesFrom": [{"kind": "Secret", "name": "NAME"}]}"#),
    (
        "Helmfile",
        "valuesFrom[]",
        Secret,
        r#"{"valuesFrom": [{"kind": "Secret", "name": "NAME", "valuesKey": "a"}]}"#,
    ),
    ("ImagePolicy", "imageRepositoryRef", OfImages, ""),
    ("ImageRepository", "certSecretRef", Secret, r#"{"certSecretRef": {"name": "NAME"}}"#),
    ("ImageRepository", "proxySecretRef", Secret, r#"{"proxySecretRef": {"name": "NAME"}}"#),
    ("ImageRepository", "secretRef", Secret, r#"{"secretRef": {"name": "NAME"}}"#),
    ("ImageRepository", "serviceAccountName", ReadAccount, r#"{"serviceAccountName": "NAME"}"#),
    ("ImageUpdateAutomation", "git.checkout.ref", NoObject, ""),
    ("ImageUpdateAutomation", "git.commit.author", NoObject, ""),
    (
        "ImageUpdateAutomation",
        "git.commit.signingKey.secretRef",
        Secret,
        r#"{"git": {"commit": {"author": {"email": "a@example.com"}, "signingKey": {"secretRef": {"name": "NAME"}}}}}"#,
    ),
    (
        "ImageUpdateAutomation",
        "sourceRef",
        Source("GitRepository"),
        r#"{"sourceRef": {"kind": "GitRepository", "name": "NAME"}}"#,
    ),
    (
        "Kustomization",
        "decryption.secretRef",
        Secret,
        r#"{"decryption": {"provider": "sops", "secretRef": {"name": "NAME"}}}"#,
    ),
    (
        "Kustomization",
        "decryption.serviceAccountName",
        Unsupported,
        r#"{"decryption": {"provider": "sops", "serviceAccountName": "NAME"}}"#,
    ),
    ("Kustomization", "dependsOn", Dependency, r#"{"dependsOn": [{"name": "NAME"}]}"#),
    (
        "Kustomization",
        "dependsOn[]",
        Dependency,
        r#"{"dependsOn": [{"name": "NAME", "readyExpr": "true"}]}"#,
    ),
    ("Kustomization", "healthChecks", AsAccount, ""),
    ("Kustomization", "healthChecks[]", AsAccount, ""),
    ("Kustomization", "ignore[].target", NoObject, ""),
    ("Kustomization", "images[]", NoObject, ""),
    ("Kustomization", "kubeConfig", Secret, r#"{"kubeConfig": {"secretRef": {"name": "NAME"}}}"#),
    (
        "Kustomization",
        "kubeConfig.configMapRef",
        Unsupported,
        r#"{"kubeConfig": {"configMapRef": {"name": "NAME"}}}"#,
    ),
    (
        "Kustomization",
        "kubeConfig.secretRef",
        Secret,
        r#"{"kubeConfig": {"secretRef": {"name": "NAME", "key": "a"}}}"#,
    ),
    ("Kustomization", "patches[].target", NoObject, ""),
    (
        "Kustomization",
        "postBuild.substituteFrom",
        Secret,
        r#"{"postBuild": {"substituteFrom": [{"kind": "Secret", "name": "NAME"}]}}"#,
    ),
    (
        "Kustomization",
        "postBuild.substituteFrom[]",
        Secret,
        r#"{"postBuild": {"substituteFrom": [{"kind": "Secret", "name": "NAME"}]}}"#,
    ),
    ("Kustomization", "serviceAccountName", Account, r#"{"serviceAccountName": "NAME"}"#),
    (
        "Kustomization",
        "sourceRef",
        Source("GitRepository"),
        r#"{"sourceRef": {"kind": "GitRepository", "name": "NAME"}}"#,
    ),
    ("Lifecycle", "handler.waitFor", OfPlatform, ""),
    ("LifecycleBinding", "subjects[]", NoObject, ""),
    ("LifecycleEvent", "subject", Unread, ""),
    ("LifecycleEvent", "subject.release", Unread, ""),
    ("OCIRepository", "certSecretRef", Secret, r#"{"certSecretRef": {"name": "NAME"}}"#),
    ("OCIRepository", "proxySecretRef", Secret, r#"{"proxySecretRef": {"name": "NAME"}}"#),
    ("OCIRepository", "secretRef", Secret, r#"{"secretRef": {"name": "NAME"}}"#),
    ("OCIRepository", "serviceAccountName", ReadAccount, r#"{"serviceAccountName": "NAME"}"#),
    (
        "OCIRepository",
        "verify.secretRef",
        Secret,
        r#"{"verify": {"provider": "cosign", "secretRef": {"name": "NAME"}}}"#,
    ),
    (
        "OCIRepository",
        "verify.trustedRootSecretRef",
        Secret,
        r#"{"verify": {"provider": "cosign", "trustedRootSecretRef": {"name": "NAME"}}}"#,
    ),
    ("Plan", "subject", Unread, ""),
    ("PlanPolicy", "pullRequestApproval.secretRef", OfPlatform, ""),
    ("Provider", "certSecretRef", Later, ""),
    ("Provider", "proxySecretRef", Later, ""),
    ("Provider", "secretRef", Later, ""),
    ("Provider", "serviceAccountName", Later, ""),
    // windlass compares the field with the UID of the reconciled applier.
    ("Quarantine", "subject", Unread, ""),
    ("Receiver", "oidcProviders[].variables[]", NoObject, ""),
    ("Receiver", "resources[]", Later, ""),
    ("Receiver", "secretRef", Secret, r#"{"secretRef": {"name": "NAME"}}"#),
    ("StagedRollout", "waves[]", NoObject, ""),
];

/// Further values of fields that have a row.
const ADDITIONAL_FIELD_VALUES: &[(&str, &str, ReferenceFieldKind, &str)] = &[
    ("HelmRelease", "dependsOn[]", OtherKind, OTHER_KIND),
    ("HelmRelease", "dependsOn[]", OtherKind, OTHER_KIND_WITH_EXPRESSION),
    ("Helmfile", "dependsOn[]", OtherKind, OTHER_KIND),
    ("Helmfile", "dependsOn[]", OtherKind, OTHER_KIND_WITH_EXPRESSION),
    ("Kustomization", "dependsOn[]", OtherKind, OTHER_KIND),
    ("Kustomization", "dependsOn[]", OtherKind, OTHER_KIND_WITH_EXPRESSION),
];

const OTHER_KIND: &str =
    r#"{"dependsOn": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "NAME", "ready": true}]}"#;

const OTHER_KIND_WITH_EXPRESSION: &str = r#"{"dependsOn": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "NAME", "readyExpr": "dep.data.a == 'b'"}]}"#;

/// Names of fields that are references, in addition to those that end with `Ref`.
const NAMES: [&str; 7] = [
    "dependsOn",
    "healthChecks",
    "kubeConfig",
    "repository",
    "serviceAccountName",
    "substituteFrom",
    "valuesFrom",
];

/// The kind of a CRD. It includes the group if a kind of another group has the same name.
fn called(crd: &CustomResourceDefinition) -> String {
    let kind = &crd.spec.names.kind;
    let group = &crd.spec.group;
    if group.ends_with(".fluxcd.io") || group.ends_with(".windlass.dev") {
        return kind.clone();
    }
    format!("{kind}.{group}")
}

/// The schemas of all specs, by kind, and the API versions of the kinds.
fn schemas() -> Result<BTreeMap<String, (String, Value)>> {
    let crds = crds::all();
    // windlass never reads its own records.
    let is_record = |plural: &str| crds::names().any(|it| it.is_record() && it.plural == plural);
    let read = crds.iter().filter(|(_, crd)| !is_record(&crd.spec.names.plural));
    let schemas = read.map(|(_, crd)| {
        let value = serde_json::to_value(crd)?;
        let version = value["spec"]["versions"][0]["name"].as_str().context("no version")?;
        let api_version = format!("{}/{version}", crd.spec.group);
        let spec = value.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/spec");
        let spec = spec.cloned().unwrap_or_default();
        Ok((called(crd), (api_version, spec)))
    });
    schemas.collect()
}

/// The paths in a schema that look like references, and whether each may name a namespace.
fn references(schema: &Value) -> BTreeMap<String, bool> {
    let mut found = BTreeMap::new();
    let mut pending = vec![(String::new(), schema.clone())];
    while let Some((path, schema)) = pending.pop() {
        let leaf = path.rsplit('.').next().unwrap_or_default().trim_end_matches("[]");
        let fields = schema["properties"].as_object();
        let names_one = fields.is_some_and(|fields| fields.contains_key("name"));
        if leaf.ends_with("Ref") || leaf.ends_with("Refs") || NAMES.contains(&leaf) || names_one {
            let has_namespace = fields.is_some_and(|fields| fields.contains_key("namespace"));
            found.insert(path.clone(), has_namespace);
        }
        for (name, field) in fields.into_iter().flatten() {
            let dot = if path.is_empty() { "" } else { "." };
            pending.push((format!("{path}{dot}{name}"), field.clone()));
        }
        if schema["items"].is_object() {
            pending.push((format!("{path}[]"), schema["items"].clone()));
        }
        if schema["additionalProperties"].is_object() {
            pending.push((format!("{path}{{}}"), schema["additionalProperties"].clone()));
        }
    }
    found
}

#[test]
fn every_field_that_looks_like_a_reference_has_a_row_and_its_namespace_is_thought_of() -> Result<()>
{
    let mut in_schemas = BTreeMap::new();
    for (kind, (_, schema)) in schemas()? {
        let found = references(&schema).into_iter();
        in_schemas.extend(found.map(|(path, has_namespace)| ((kind.clone(), path), has_namespace)));
    }
    let rows = FIELDS.iter().map(|(kind, path, _, _)| ((*kind).to_owned(), (*path).to_owned()));
    let rows: BTreeSet<_> = rows.collect();
    ensure!(rows.len() == FIELDS.len(), "a field has two rows");
    let known: BTreeSet<_> = in_schemas.keys().cloned().collect();
    let without_row: Vec<_> = known.difference(&rows).collect();
    ensure!(without_row.is_empty(), "fields without a row: {without_row:?}");
    let gone: Vec<_> = rows.difference(&known).collect();
    ensure!(gone.is_empty(), "rows without a field: {gone:?}");
    for (kind, path, field, value) in FIELDS {
        let has_namespace = in_schemas[&((*kind).to_owned(), (*path).to_owned())];
        let is_tested_elsewhere =
            matches!(field, NoObject | AsAccount | Unread | Later | OfPlatform | OfImages);
        let may_leave = is_tested_elsewhere || matches!(field, Source(_) | Dependency);
        ensure!(!has_namespace || may_leave, "{kind} {path} may name a namespace");
        ensure!(value.is_empty() == is_tested_elsewhere, "{kind} {path}");
    }
    Ok(())
}

/// A spec that would work if its server answered.
fn base(kind: &str) -> Value {
    match kind {
        "ArtifactGenerator" => {
            json!({"artifacts": [{"name": "made", "copy": [{"from": "@src/**", "to": "@artifact/"}]}]})
        }
        "Bucket" => {
            json!({"interval": "1h", "endpoint": "127.0.0.1:1", "bucketName": "a", "insecure": true})
        }
        "GitRepository" => {
            json!({"interval": "1h", "url": "http://127.0.0.1:1/a", "ref": {"branch": "main"}})
        }
        "HTTPArchive" => json!({"interval": "1h", "url": "https://127.0.0.1:1/a.tar.gz"}),
        "HelmChart" => {
            json!({"interval": "1h", "chart": "chart", "sourceRef": {"kind": "GitRepository", "name": "app"}})
        }
        "HelmRelease" => {
            json!({"interval": "1h", "chart": {"spec": {"chart": "chart", "sourceRef": {"kind": "GitRepository", "name": "app"}}}})
        }
        "HelmRepository" => json!({"interval": "1h", "url": "https://127.0.0.1:1/a"}),
        "Helmfile" => json!({"interval": "1h", "path": "shop", "targetNamespace": "nowhere",
            "sourceRef": {"kind": "GitRepository", "name": "app"}}),
        "ImageRepository" => json!({"interval": "1h", "image": "127.0.0.1:1/app"}),
        "ImageUpdateAutomation" => json!({"interval": "1h", "update": {"strategy": "Setters"},
            "git": {"commit": {"author": {"email": "a@example.com"}}},
            "sourceRef": {"kind": "GitRepository", "name": "app"}}),
        "OCIRepository" => {
            json!({"interval": "1h", "url": "oci://127.0.0.1:1/a", "ref": {"tag": "latest"}})
        }
        "Receiver" => {
            json!({"type": "generic", "resources": [{"kind": "GitRepository", "name": "app"}]})
        }
        _ => {
            json!({"interval": "1h", "retryInterval": "1h", "prune": true, "path": "deploy", "targetNamespace": "nowhere",
            "sourceRef": {"kind": "GitRepository", "name": "app"}})
        }
    }
}

/// A row as an object. The referenced object has the same name as this object.
struct ReferenceCase {
    field: ReferenceFieldKind,
    /// The path of the field, for failure messages.
    path: &'static str,
    target: StoryObject,
    name: String,
    object: Value,
    has_namespace: bool,
}

/// The objects of all rows with a reference. `tag` makes their names unique.
fn cases(tag: &str) -> Result<Vec<ReferenceCase>> {
    let schemas = schemas()?;
    let mut cases = Vec::new();
    for (at, (kind, path, field, value)) in FIELDS.iter().chain(ADDITIONAL_FIELD_VALUES).enumerate()
    {
        if value.is_empty() {
            continue;
        }
        let (api_version, schema) = &schemas[*kind];
        let name = format!("{tag}-{at}");
        let mut spec = base(kind);
        let value: Value = serde_json::from_str(&value.replace("NAME", &name))?;
        for (key, value) in value.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        spec.as_object_mut().context("a spec")?.retain(|_, value| !value.is_null());
        let object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": format!("row-{name}")}, "spec": spec});
        let target = StoryObject::new(api_version, kind, &format!("row-{name}"));
        let found = references(schema);
        let item = format!("{path}[]");
        let has_namespace = found.get(*path) == Some(&true) || found.get(&item) == Some(&true);
        cases.push(ReferenceCase { field: *field, path, target, name, object, has_namespace });
    }
    Ok(cases)
}

impl ReferenceCase {
    /// The object that the reference of this row names. `None` if the reference names no object that a test has to create.
    fn referent(&self) -> Option<Value> {
        let kind = self.object["kind"].as_str().unwrap_or_default();
        let metadata = json!({"name": self.name});
        Some(match self.field {
            Secret => {
                json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"a": "b", "values.yaml": "a: b", "trusted_root.json": "{}"}})
            }
            ReadAccount => {
                json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
            }
            OtherKind => {
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "b"}})
            }
            Source(kind) => {
                json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": kind, "metadata": metadata, "spec": base(kind)})
            }
            Dependency => {
                json!({"apiVersion": self.object["apiVersion"], "kind": kind, "metadata": metadata,
                "spec": base(kind)})
            }
            _ => return None,
        })
    }

    /// The object, with a namespace in the reference.
    fn elsewhere(&self, namespace: &str) -> Result<Value> {
        let text = self.object.to_string();
        let name = format!(r#""name":"{}""#, self.name);
        ensure!(text.contains(&name), "{text}");
        let more = format!(r#"{name},"namespace":"{namespace}""#);
        Ok(serde_json::from_str(&text.replace(&name, &more))?)
    }

    /// Waits until the status of the object contains a condition, and returns it.
    async fn await_status(
        &self,
        story: &Story,
        what: &str,
        holds: impl Fn(&str) -> bool,
    ) -> Result<String> {
        let found = story
            .await_object(&self.target, DEFAULT_WAIT_TIMEOUT, |object| holds(&said(object)))
            .await;
        match found {
            Ok(found) => Ok(said(&found)),
            Err(_) => {
                let now = said(&story.expect(&self.target).await?);
                anyhow::bail!("{} {} is not {what}: {now}", self.target, self.path)
            }
        }
    }

    fn is_missing(&self, text: &str) -> bool {
        const WORDS: [&str; 4] = ["not found", "does not exist", "there is no ", "no such"];
        text.contains(&self.name) && WORDS.iter().any(|word| text.contains(word))
    }
}

/// The reason and message of `Ready`, if they are about the newest generation of an object.
fn said(object: &DynamicObject) -> String {
    let ready = condition(object, "Ready");
    if ready["observedGeneration"].as_i64() != object.metadata.generation {
        return String::new();
    }
    let word = |key: &str| ready[key].as_str().unwrap_or_default();
    format!("{} {}: {}", word("status"), word("reason"), word("message"))
}

async fn delete(story: &Story, object: &Value) -> Result<()> {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let target = StoryObject::new(
        &word(&object["apiVersion"]),
        &word(&object["kind"]),
        &word(&object["metadata"]["name"]),
    );
    story.delete(&target).await
}

/// The files of a repository with a folder of manifests and a chart.
const FILES: [(&str, &str); 2] = [
    ("chart/Chart.yaml", "apiVersion: v2\nname: chart\nversion: 1.0.0\n"),
    ("chart/templates/map.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: of-chart}\n"),
];

fn files() -> Vec<(&'static str, String)> {
    let files = FILES.map(|(path, text)| (path, text.to_owned()));
    let helmfile = "releases:\n- {name: app, chart: ../chart}\n";
    let more = [
        ("deploy/map.yaml", config_map("of-deploy", "1")),
        ("shop/helmfile.yaml", helmfile.to_owned()),
        ("east/helmfile.yaml", helmfile.replace("{name", "{kubeContext: east, name")),
    ];
    files.into_iter().chain(more).collect()
}

/// Runs all cases, and reports all failures together.
async fn all<'c, F: Future<Output = Result<()>>>(
    cases: impl IntoIterator<Item = &'c ReferenceCase>,
    of: impl Fn(&'c ReferenceCase) -> F,
) -> Result<()> {
    let ends = futures::future::join_all(cases.into_iter().map(of)).await;
    let wrong: Vec<String> =
        ends.into_iter().filter_map(Result::err).map(|error| format!("{error:#}")).collect();
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// Creates the referenced object in the other namespace, where it must not count. Then creates it in the own namespace, and
/// deletes it again.
async fn come_and_go(story: &Story, other: &Story) -> Result<()> {
    let mut cases = cases("own")?;
    for case in cases.iter_mut().filter(|case| case.path.starts_with("chart.spec.")) {
        // The HelmChart of a HelmRelease reports the state of its source and its signature.
        let name = format!("{}-row-{}", story.namespace, case.name);
        case.target = StoryObject::new("source.toolkit.fluxcd.io/v1", "HelmChart", &name);
    }
    for case in &cases {
        if let Some(referent) = case.referent() {
            other.apply_value(referent).await?;
        }
        story.apply_value(case.object.clone()).await.with_context(|| case.path)?;
    }
    let first = async |case: &ReferenceCase| match case.field {
        Unsupported => {
            let field =
                format!("spec.{}", case.path.split(['.', '[', '{']).next().unwrap_or_default());
            let holds = |text: &str| text.contains("not supported") && text.contains(&field);
            case.await_status(story, "reported as unsupported", holds).await.map(drop)
        }
        Account => {
            let user = format!("system:serviceaccount:{}:{}", story.namespace, case.name);
            let holds = |text: &str| text.contains(&user);
            case.await_status(story, "refused as that account", holds).await.map(drop)
        }
        _ => case.await_status(story, "missing", |text| case.is_missing(text)).await.map(drop),
    };
    all(&cases, first).await?;
    let named: Vec<&ReferenceCase> =
        cases.iter().filter(|case| case.referent().is_some()).collect();
    for case in &named {
        story.apply_value(case.referent().context("nothing to name")?).await?;
    }
    let found = async |case: &ReferenceCase| {
        let holds = |text: &str| !text.is_empty() && !case.is_missing(text);
        case.await_status(story, "found", holds).await.map(drop)
    };
    all(named.iter().copied(), found).await?;
    for case in &named {
        delete(story, &case.referent().context("nothing to name")?).await?;
    }
    let gone = async |case: &ReferenceCase| {
        case.await_status(story, "missing again", |text| case.is_missing(text)).await.map(drop)
    };
    all(named.iter().copied(), gone).await
}

/// Tests references to another namespace, where they are allowed and where they are not.
async fn elsewhere(story: &Story, other: &Story, is_refused: bool) -> Result<()> {
    let cases = cases(if is_refused { "refused" } else { "allowed" })?;
    for case in cases.iter().filter(|case| case.has_namespace) {
        let referent = case.referent().context("nothing to name")?;
        other.apply_value(referent).await?;
        story.apply_value(case.elsewhere(&other.namespace)?).await?;
    }
    let end = async |case: &ReferenceCase| {
        let is_asked = case.object["spec"].to_string().contains("readyExpr");
        // A dependency may be in another namespace, but its `readyExpr` must not read it there.
        let is_denied = is_refused && (case.field != Dependency || is_asked);
        let holds = |text: &str| {
            !text.is_empty()
                && !case.is_missing(text)
                && is_denied
                    == ["AccessDenied", "cross-namespace-refs"].iter().any(|it| text.contains(it))
        };
        let what = if is_refused { "refused" } else { "allowed" };
        case.await_status(story, what, holds).await.map(drop)
    };
    all(cases.iter().filter(|case| case.has_namespace), end).await
}

/// Objects that read from a source with a forged status: the kind of the source, the kind of the reader, and its spec.
fn readers() -> [(&'static str, &'static str, Value); 8] {
    [
        ("Bucket", "Kustomization", json!({"sourceRef": {"kind": "Bucket", "name": "forged"}})),
        (
            "ExternalArtifact",
            "Kustomization",
            json!({"sourceRef": {"kind": "ExternalArtifact", "name": "forged"}}),
        ),
        (
            "GitRepository",
            "Kustomization",
            json!({"sourceRef": {"kind": "GitRepository", "name": "forged"}}),
        ),
        (
            "GitRepository",
            "GitRepository",
            json!({"include": [{"repository": {"name": "forged"}}]}),
        ),
        (
            "OCIRepository",
            "Kustomization",
            json!({"sourceRef": {"kind": "OCIRepository", "name": "forged"}}),
        ),
        (
            "OCIRepository",
            "HelmRelease",
            json!({"chart": null, "chartRef": {"kind": "OCIRepository", "name": "forged"}}),
        ),
        (
            "HelmChart",
            "HelmRelease",
            json!({"chart": null, "chartRef": {"kind": "HelmChart", "name": "forged"}}),
        ),
        (
            "HelmRepository",
            "HelmChart",
            json!({"sourceRef": {"kind": "HelmRepository", "name": "forged"}}),
        ),
    ]
}

/// Creates sources of every kind whose status claims the artifact of another tenant, and objects that read from them.
async fn forged(story: &Story, other: &Story) -> Result<()> {
    let victim = other.await_ready(&StoryObject::git_repository("app")).await?;
    let artifact = victim.data["status"]["artifact"].clone();
    let text = |field: &str| artifact[field].as_str().unwrap_or_default().to_owned();
    let digest = text("digest");
    let path = text("path");
    ensure!(path.contains(&other.namespace), "{artifact}");
    let own = |kind: &str| format!("{}/{}/forged/a.tar.gz", kind.to_lowercase(), story.namespace);
    let readers = readers();
    let schemas = schemas()?;
    let sources: BTreeSet<&str> = readers.iter().map(|(source, _, _)| *source).collect();
    for kind in &sources {
        // A suspended object is not reconciled, so its forged status stays.
        let mut spec = base(kind);
        spec["suspend"] = true.into();
        if *kind == "ExternalArtifact" {
            spec = json!({"sourceRef": {"apiVersion": "a.example/v1", "kind": "A", "name": "a"}});
        }
        let (api_version, _) = &schemas[*kind];
        story.apply_value(json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "forged"}, "spec": spec})).await?;
        story
            .merge_status(
                &StoryObject::new(api_version, kind, "forged"),
                json!({"status": {"artifact": artifact}}),
            )
            .await?;
    }
    let mut made = Vec::new();
    for (source, kind, over) in &readers {
        let (api_version, _) = &schemas[*kind];
        let mut spec = base(kind);
        for (key, value) in over.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        spec.as_object_mut().context("a spec")?.retain(|_, value| !value.is_null());
        let name = format!("reads-{}", source.to_lowercase());
        story.apply_value(json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec})).await?;
        made.push((*source, StoryObject::new(api_version, kind, &name)));
    }
    let refused = "which is not an artifact of this object";
    for (source, target) in &made {
        let found = story
            .await_object(target, DEFAULT_WAIT_TIMEOUT, |object| said(object).contains(refused))
            .await;
        let found = found.with_context(|| format!("{target} read what {source} has forged"))?;
        ensure!(!said(&found).contains(&digest), "{}", said(&found));
    }
    // A forged path of the own object with a guessed digest reveals nothing either.
    let guess = format!("sha256:{}", "0".repeat(64));
    let guessed = json!({"status": {"artifact": {"path": own("GitRepository"), "digest": guess}}});
    story.merge_status(&StoryObject::git_repository("forged"), guessed).await?;
    for (_, target) in made.iter().filter(|(source, _)| *source == "GitRepository") {
        let found = story
            .await_object(target, DEFAULT_WAIT_TIMEOUT, |object| !said(object).contains(refused))
            .await?;
        ensure!(!said(&found).contains(&digest), "{}", said(&found));
    }
    ensure!(story.read(&StoryObject::config_map("of-deploy")).await?.is_none());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_field_names_counts_where_it_may_be_and_as_long_as_it_is_there() -> Result<()> {
    let story = Story::begin("references").await?;
    let other = Story::begin("others").await?;
    let refusing = WindlassProcess::start(
        story.bed,
        &["--no-cross-namespace-refs", "--requeue-dependency=10m"],
    )
    .await?;
    let _upstream = story.follow("app", &files()).await?;
    let _victim = other.follow("app", &files()).await?;
    come_and_go(&story, &other).await?;
    elsewhere(&story, &other, true).await?;
    forged(&story, &other).await?;
    drop(refusing);
    let _allowing = WindlassProcess::start(story.bed, &["--requeue-dependency=10m"]).await?;
    elsewhere(&story, &other, false).await?;
    other.end().await?;
    story.end().await
}
