//! `windlass export`: prints objects as manifests that the user can commit.

use clap::Args as ClapArgs;
use objects::Object;
use reconcile::{REQUESTED_BY, REQUESTED_REASON, ROLLBACK};
use serde_json::{Map, Value};

use super::command_scope::{NamespaceScope, say_left_out, shown};
use super::complete;
use super::kind_argument;
use helm_controller::helm_release::{FORCE_AT, RESET_AT};
use windlass_cli_runtime::connection::{ProgressGlyph, print, say};
use windlass_cli_runtime::exit_code::ExitCode;
use windlass_runtime::controller_kind::REQUESTED_AT;

/// The flags of `windlass export`.
#[derive(Debug, Clone, ClapArgs)]
pub(super) struct ExportArgs {
    /// KIND, KIND/NAME, KIND NAME, several KINDs with commas, or all, sources, appliers
    #[arg(required = true, value_name = "KIND[/NAME]", add = complete::objects())]
    what: Vec<String>,
    #[command(flatten)]
    scope: NamespaceScope,
    /// The default without a name
    #[arg(long, hide = true)]
    all: bool,
}

pub(super) const EXAMPLES: &str = "Examples:
  windlass export ks/app -n apps > app.yaml
  windlass export all -A > everything.yaml

What the cluster adds is left out: status, uid, versions, managed fields, requests. HelmCharts of HelmReleases are left out,
too.

Exit status: 0; 2 if something could not be read; 3 if the cluster cannot be reached.";

/// The fields of `metadata` that a manifest keeps.
const KEPT: [&str; 4] = ["name", "namespace", "labels", "annotations"];

/// Annotations that are requests or remarks, not configuration. Differs(flux): it prints them.
const PASSING: [&str; 7] = [
    REQUESTED_AT,
    FORCE_AT,
    RESET_AT,
    REQUESTED_BY,
    REQUESTED_REASON,
    ROLLBACK,
    "kubectl.kubernetes.io/last-applied-configuration",
];

/// Prints manifests.
///
/// # Errors
/// Something cannot be read.
pub(super) fn run(args: &ExportArgs) -> anyhow::Result<ExitCode> {
    let mut printed = 0_usize;
    let left_out = args.scope.place.run(async |site| {
        let site = site.everywhere(args.scope.all_namespaces);
        let mut left_out = Vec::new();
        let targets = kind_argument::targets(&site.cluster, &args.what).await?;
        args.scope.check(&targets)?;
        for target in targets {
            if target.name.is_some() {
                document(kind_argument::read(&site, &target).await?)?;
                printed += 1;
                continue;
            }
            let refused = site.list(&target, &args.scope.labels, |objects| {
                let objects = objects.into_iter().filter(|it| !is_generated(it));
                objects.inspect(|_| printed += 1).try_for_each(document)
            });
            left_out.extend(refused.await?);
        }
        anyhow::Ok(left_out)
    })?;
    say_left_out(&left_out);
    if printed == 0 && left_out.is_empty() {
        say(ProgressGlyph::Action, &args.scope.nothing());
    }
    Ok(if left_out.is_empty() { ExitCode::Success } else { ExitCode::Failed })
}

/// Whether a HelmRelease generated this object, so that it would generate it again.
fn is_generated(object: &Object) -> bool {
    object.kind() == "HelmChart" && object.label("helm.toolkit.fluxcd.io/name").is_some()
}

fn document(object: Object) -> anyhow::Result<()> {
    print(&format!("---\n{}", goyaml::emit_with_escapes(&manifest(object).into_value())?))
}

/// Converts an object to its manifest.
pub(super) fn manifest(object: Object) -> Object {
    let mut object = shown(object);
    object.fields_mut().remove("status");
    let metadata = object.metadata_mut();
    metadata.retain(|field, _| KEPT.contains(&field.as_str()));
    if let Some(annotations) = metadata.get_mut("annotations").and_then(|it| it.as_object_mut()) {
        annotations.retain(|key, _| !PASSING.contains(&key.as_str()));
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    let is_kustomization = object.kind() == "Kustomization";
    if let Some(spec) = object.fields_mut().get_mut("spec").and_then(Value::as_object_mut) {
        remove_defaults(spec, is_kustomization);
    }
    object
}

/// Removes fields with default values that a CRD or `windlass resume` adds to a spec. Parity(flux): the same fields.
fn remove_defaults(spec: &mut Map<String, Value>, is_kustomization: bool) {
    remove_if_false(spec, "suspend");
    if !is_kustomization {
        return;
    }
    remove_if_false(spec, "force");
    let references = spec.get_mut("postBuild").and_then(|it| it.get_mut("substituteFrom"));
    let references = references.and_then(Value::as_array_mut).into_iter().flatten();
    for reference in references.filter_map(Value::as_object_mut) {
        remove_if_false(reference, "optional");
    }
}

fn remove_if_false(fields: &mut Map<String, Value>, key: &str) {
    if fields.get(key) == Some(&Value::Bool(false)) {
        fields.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_manifest_has_nothing_that_the_cluster_added() {
        let object = Object::new(
            json!({"apiVersion": "v1", "kind": "X", "spec": {"a": 1}, "status": {"b": 2},
            "metadata": {"name": "app", "namespace": "apps", "uid": "1", "resourceVersion": "2", "generation": 3,
                "labels": {"l": "1"}, "managedFields": [], "finalizers": ["f"],
                "annotations": {"reconcile.fluxcd.io/requestedAt": "now"}}}),
        );
        let expected = json!({"apiVersion": "v1", "kind": "X", "spec": {"a": 1},
            "metadata": {"name": "app", "namespace": "apps", "labels": {"l": "1"}}});
        assert_eq!(manifest(object.unwrap()).into_value(), expected);
    }

    #[test]
    fn a_manifest_has_neither_requests_nor_what_is_so_without_it() {
        let references = |more: Value| json!({"substituteFrom": [more]});
        let spec = json!({"suspend": false, "force": false, "prune": false,
            "postBuild": references(json!({"kind": "ConfigMap", "name": "vars", "optional": false}))});
        let object = Object::new(
            json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": "app", "annotations": {"windlass.dev/requested-by": "alice", "team": "web",
                "windlass.dev/requested-reason": "now", "windlass.dev/rollback": "v1"}}, "spec": spec}),
        );
        let expected = json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": "app", "annotations": {"team": "web"}},
            "spec": {"prune": false, "postBuild": references(json!({"kind": "ConfigMap", "name": "vars"}))}});
        assert_eq!(manifest(object.unwrap()).into_value(), expected);
        // The values of a release come from people, so they stay.
        let release = json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
            "metadata": {"name": "web"}, "spec": {"values": {"force": false, "suspend": false}}});
        let object = Object::new(release.clone());
        assert_eq!(manifest(object.unwrap()).into_value(), release);
    }

    #[test]
    fn secrets_are_masked() {
        let object =
            Object::new(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"},
            "data": {"password": "aHVudGVyMg=="}, "stringData": {"x": "hunter2"}}));
        let text = serde_json::to_string(manifest(object.unwrap()).fields()).unwrap();
        assert!(!text.contains("hunter2") && !text.contains("aHVudGVyMg"), "{text}");
    }
}
