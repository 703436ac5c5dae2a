//! Converts when and how an Application is synchronized: its destination, its policy, ignored fields, and annotations.

use objects::Object;
use serde_json::{Value, json};

use super::super::{ConversionResult, UnconvertedFields, is_empty, put};

/// The names of the cluster in which Argo CD itself runs.
const HERE: [&str; 2] = ["https://kubernetes.default.svc", "in-cluster"];
/// The prefix of Argo CD's annotations.
const PREFIX: &str = "argocd.argoproj.io/";
/// The finalizer that deletes the applied objects together with the Application.
const CASCADES: &str = "resources-finalizer.argocd.argoproj.io";

/// What the user should check in the manifests of sources.
pub(super) const IN_MANIFESTS: [&str; 5] = [
    "manifests are not read. Where they have argocd.argoproj.io/hook, the object is applied with all others, at every change: \
     make a Job of PreSync or PostSync one of a Kustomization of its own with spec.wait, and name that in spec.dependsOn of \
     what comes after it (PostSync: the other way round), or a lifecycle (docs/lifecycles.md); delete those of SyncFail and \
     PostDelete",
    "argocd.argoproj.io/sync-wave has no effect: namespaces, CRDs and cluster-scoped objects come first by themselves; divide \
     what has to be in another order into Kustomizations with spec.dependsOn",
    "argocd.argoproj.io/sync-options: write Prune=false and Delete=false as kustomize.toolkit.fluxcd.io/prune: disabled, \
     Replace=true and Force=true as kustomize.toolkit.fluxcd.io/force: enabled; ServerSideApply and PruneLast are always so; \
     Validate=false and SkipDryRunOnMissingResource=true have no counterpart",
    "argocd.argoproj.io/compare-options: IgnoreExtraneous is not needed: only what is in an inventory is deleted",
    "argocd.argoproj.io/ignore-healthcheck has no effect: leave such objects out of spec.healthChecks and do not set spec.wait",
];

/// The synchronization options of an Application.
#[derive(Debug, Default)]
pub(super) struct ArgocdSyncPolicy {
    /// Whether objects that are removed from the source are deleted.
    prunes: bool,
    /// Whether the Application is synchronized only on request.
    is_manual: bool,
    /// Whether changes by others are corrected.
    heals: bool,
    allows_empty: bool,
    /// Whether the applied objects stay when the Application is deleted.
    orphans: bool,
    /// Whether objects are recreated if they cannot be changed.
    forces: bool,
    /// How the dependents of deleted objects are deleted.
    propagation: Option<String>,
    /// The fields that others may change, as rules of `spec.ignore`.
    ignored: Vec<Value>,
    history: Value,
}

/// The namespace of objects that name none.
pub(super) fn destination(spec: &mut UnconvertedFields, done: &mut ConversionResult) -> String {
    let mut destination = spec.fields("destination");
    for key in ["server", "name"] {
        let cluster = destination.text(key);
        if !cluster.is_empty() && !HERE.contains(&cluster.as_str()) {
            done.obstacles.push(format!(
                "spec.destination.{key} is {cluster}: put its kubeconfig into a Secret and name it in spec.kubeConfig"
            ));
        }
    }
    let namespace = destination.text("namespace");
    destination.refuse(&mut done.obstacles);
    namespace
}

impl ArgocdSyncPolicy {
    /// Reads the options from an Application.
    pub(super) fn of(
        found: &Object,
        spec: &mut UnconvertedFields,
        done: &mut ConversionResult,
    ) -> Self {
        let mut policy = Self { history: spec.take("revisionHistoryLimit"), ..Self::default() };
        let project = spec.text("project");
        if !["", "default"].contains(&project.as_str()) {
            done.notes.push(format!(
                "spec.project {project}: what it permits are the rights of the ServiceAccount that spec.serviceAccountName names"
            ));
        }
        if !is_empty(&spec.take("info")) {
            done.notes.push("spec.info has no counterpart".to_owned());
        }
        let mut fields = spec.fields("syncPolicy");
        policy.automate(&mut fields, done);
        let respects = policy.options(&mut fields, done);
        if !is_empty(&fields.take("retry")) {
            done.notes.push(
                "spec.syncPolicy.retry: failures are retried after spec.retryInterval, without a limit".to_owned(),
            );
        }
        if !is_empty(&fields.take("managedNamespaceMetadata")) {
            done.notes.push(
                "spec.syncPolicy.managedNamespaceMetadata: put labels and annotations into the Namespace in the source"
                    .to_owned(),
            );
        }
        fields.refuse(&mut done.obstacles);
        policy.ignored = ignored(spec, done);
        if !policy.ignored.is_empty() && !respects {
            done.notes.push(
                "spec.ignoreDifferences: these fields are not written either, as with RespectIgnoreDifferences=true"
                    .to_owned(),
            );
        }
        let finalizers = found.meta("finalizers").and_then(Value::as_array);
        let mut finalizers = finalizers.into_iter().flatten().filter_map(Value::as_str);
        policy.orphans |= !finalizers.any(|it| it.starts_with(CASCADES));
        policy.annotations(found, done);
        policy
    }

    /// Reads whether the Application is synchronized automatically, and with which options.
    fn automate(&mut self, fields: &mut UnconvertedFields, done: &mut ConversionResult) {
        let automated = fields.take("automated");
        self.is_manual = automated.is_null() || automated["enabled"] == false;
        let mut automated = UnconvertedFields::of("spec.syncPolicy.automated", automated);
        automated.take("enabled");
        self.heals = automated.is_true("selfHeal");
        self.allows_empty = automated.is_true("allowEmpty");
        self.prunes = automated.is_true("prune");
        automated.refuse(&mut done.obstacles);
        if self.is_manual {
            done.notes.push(
                "it was not synced automatically, so it is suspended: `windlass resume --plan` shows what it would change"
                    .to_owned(),
            );
        }
    }

    /// Reads the sync options. Returns whether ignored fields are left out of writes.
    fn options(&mut self, fields: &mut UnconvertedFields, done: &mut ConversionResult) -> bool {
        let mut respects = false;
        for option in fields.list("syncOptions").iter().filter_map(Value::as_str) {
            let (key, value) = option.split_once('=').unwrap_or((option, ""));
            let advice = match (key, value) {
                ("Prune", "false" | "confirm") => {
                    self.prunes = false;
                    continue;
                }
                ("Delete", "false" | "confirm") => {
                    self.orphans = true;
                    continue;
                }
                ("Replace" | "Force", "true") => {
                    self.forces = true;
                    "with spec.force objects are recreated only where a field cannot be changed (of a HelmRelease: spec.upgrade.force)"
                }
                ("PrunePropagationPolicy", policy) => {
                    self.propagation = Some(policy.to_owned());
                    continue;
                }
                ("RespectIgnoreDifferences", "true") => {
                    respects = true;
                    continue;
                }
                ("CreateNamespace", "true") => {
                    "add the Namespace to the source; a HelmRelease makes it by itself"
                }
                ("ServerSideApply", "false") => "objects are always applied server-side",
                ("Validate", "false") => {
                    "objects are always validated: correct those that the API server rejects"
                }
                ("SkipDryRunOnMissingResource", "true") => {
                    "name in spec.dependsOn what installs the CRDs of these objects"
                }
                ("FailOnSharedResource", "true") => {
                    "an object of two Kustomizations is reported by both, and written by one"
                }
                ("ServerSideApply" | "Validate" | "Prune" | "Delete", "true")
                | ("CreateNamespace" | "Replace" | "Force" | "FailOnSharedResource", "false")
                | ("SkipDryRunOnMissingResource" | "RespectIgnoreDifferences", "false")
                | ("PruneLast" | "ApplyOutOfSyncOnly" | "ClientSideApplyMigration", _) => continue,
                _ => {
                    done.obstacles
                        .push(format!("spec.syncPolicy.syncOptions: {option} has no counterpart"));
                    continue;
                }
            };
            done.notes.push(format!("spec.syncPolicy.syncOptions: {option}: {advice}"));
        }
        respects
    }

    /// Converts the annotations and labels of the Application itself.
    fn annotations(&mut self, found: &Object, done: &mut ConversionResult) {
        let of = |field: &str| found.meta(field).and_then(Value::as_object).into_iter().flatten();
        for (key, value) in of("annotations") {
            let value = value.as_str().unwrap_or_default();
            let advice = match key.strip_prefix(PREFIX) {
                Some("skip-reconcile") if value == "true" => {
                    self.is_manual = true;
                    "it is suspended"
                }
                // Argo CD writes these annotations itself.
                Some("refresh" | "hydrate" | "tracking-id" | "installation-id") => continue,
                None if key == "kubectl.kubernetes.io/last-applied-configuration" => continue,
                Some("sync-wave") => "name in spec.dependsOn what has a lower wave",
                Some("hook" | "hook-delete-policy") => {
                    "it was a hook of another Application: name in spec.dependsOn what comes before it, and in that of \
                     others what comes after"
                }
                Some("sync-options") => {
                    "it was for the Application as an object of another one: write Prune=false as \
                     kustomize.toolkit.fluxcd.io/prune: disabled on the objects above"
                }
                Some("compare-options") => {
                    "objects are always compared by a dry-run of the API server, and what is in no inventory is not deleted"
                }
                Some("manifest-generate-paths") => {
                    "nothing to do: a revision without changes of the files of a build needs none"
                }
                None if key.starts_with("notifications.argoproj.io/") => {
                    "create a Provider and an Alert"
                }
                None if key.starts_with("argocd-image-updater.argoproj.io/") => {
                    "create an ImageRepository, ImagePolicy and ImageUpdateAutomation of Flux"
                }
                _ => "it is not kept",
            };
            done.notes.push(format!("annotation {key}: {value}: {advice}"));
        }
        for (key, _) in of("labels") {
            done.notes.push(format!("label {key}: it is not kept"));
        }
    }

    /// Whether a source without objects must not lead to the deletion of all objects.
    pub(super) fn protects_from_empty(&self) -> bool {
        self.prunes && !self.allows_empty
    }

    /// Writes the options into the spec of a HelmRelease or a Kustomization.
    pub(super) fn put(&self, spec: &mut Value, is_release: bool, done: &mut ConversionResult) {
        put(spec, &["suspend"], json!(self.is_manual));
        if is_release {
            put(spec, &["maxHistory"], self.history.clone());
            put(spec, &["driftDetection", "mode"], json!(if self.heals { "enabled" } else { "" }));
            put(spec, &["driftDetection", "ignore"], json!(self.ignored));
            put(spec, &["upgrade", "force"], json!(self.forces));
            put(spec, &["uninstall", "deletionPropagation"], json!(self.propagation));
            if self.orphans {
                done.notes.push(
                    "its deletion did not delete what runs, and that of a HelmRelease uninstalls the release: suspend it before"
                        .to_owned(),
                );
            }
            return;
        }
        spec["prune"] = json!(self.prunes);
        put(spec, &["force"], json!(self.forces));
        put(spec, &["ignore"], json!(self.ignored));
        put(spec, &["deletionPolicy"], json!(if self.orphans { "Orphan" } else { "" }));
        if !self.is_manual && !self.heals {
            done.notes.push(
                "selfHeal is not set, and a Kustomization corrects what others change: list such fields in spec.ignore".to_owned(),
            );
        }
        if !is_empty(&self.history) {
            done.notes
                .push("spec.revisionHistoryLimit: a Kustomization keeps no revisions".to_owned());
        }
        if let Some(policy) = self.propagation.as_ref().filter(|it| *it != "background") {
            done.notes.push(format!(
                "spec.syncPolicy.syncOptions: PrunePropagationPolicy={policy}: dependents are deleted in the background"
            ));
        }
    }
}

/// The fields that others may change, as rules of `spec.ignore`.
fn ignored(spec: &mut UnconvertedFields, done: &mut ConversionResult) -> Vec<Value> {
    let mut rules = Vec::new();
    for (at, rule) in spec.list("ignoreDifferences").into_iter().enumerate() {
        let mut rule = UnconvertedFields::of(&format!("spec.ignoreDifferences[{at}]"), rule);
        let mut target = json!({});
        for key in ["group", "kind", "name", "namespace"] {
            put(&mut target, &[key], json!(pattern(&rule.text(key))));
        }
        let mut paths = rule.list("jsonPointers");
        for expression in rule.list("jqPathExpressions") {
            let text = expression.as_str().unwrap_or_default();
            match pointer(text) {
                Some(path) => paths.push(json!(path)),
                None => done.obstacles.push(format!(
                    "spec.ignoreDifferences[{at}].jqPathExpressions: {text} is no path of fields: write it as jsonPointers"
                )),
            }
        }
        rule.refuse_as("write the fields as jsonPointers", &mut done.obstacles);
        let mut converted = json!({"paths": paths});
        put(&mut converted, &["target"], target);
        if converted["paths"] != json!([]) {
            rules.push(converted);
        }
    }
    rules
}

/// Converts a pattern of Argo CD with `*` and `?` to a regular expression. The pattern for everything becomes an empty one.
fn pattern(glob: &str) -> String {
    if glob == "*" {
        return String::new();
    }
    let mut pattern = String::new();
    for letter in glob.chars() {
        match letter {
            '*' => pattern.push_str(".*"),
            '?' => pattern.push('.'),
            '.' => pattern.push_str("\\."),
            other => pattern.push(other),
        }
    }
    pattern
}

/// Converts a jq path that only names fields to a JSON pointer. `None` for every other jq expression.
fn pointer(expression: &str) -> Option<String> {
    let fields: Vec<&str> = expression.strip_prefix('.')?.split('.').collect();
    let is_name = |field: &&str| {
        !field.is_empty() && field.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'_')
    };
    fields.iter().all(is_name).then(|| format!("/{}", fields.join("/")))
}
