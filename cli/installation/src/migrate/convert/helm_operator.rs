//! Converts HelmReleases of the Helm operator (`helm.fluxcd.io/v1`) to HelmReleases that adopt the existing Helm releases.
//!
//! Here: the release. Below: the annotations with which Flux v1 updated images (`image_annotations`, `images_in_values`,
//! `tag_pattern`), and Flux v1 itself (`flux_v1_image_automation`).

pub(super) mod flux_v1_image_automation;
mod image_annotations;
mod images_in_values;
mod tag_pattern;

use objects::Object;
use serde_json::{Value, json};

use self::image_annotations::FluxV1SyncPolicy;
use super::{
    ConversionResult, ConvertibleOperator, HELM, SOURCE, UnconvertedFields, chart_repository,
    object, put,
};

pub(in crate::migrate) const OPERATOR: ConvertibleOperator = ConvertibleOperator {
    gvk: ("helm.fluxcd.io/v1", "HelmRelease"),
    others: &[],
    convert,
    remarks: &[],
    next: "scale the Deployment of the Helm operator to zero, since it uninstalls releases whose object is deleted; apply \
           these objects, wait until they are Ready, then delete the old ones",
};

fn convert(found: &Object, _: &str) -> ConversionResult {
    let mut done = ConversionResult::default();
    let namespace = found.namespace().to_owned();
    let name = found.name().to_owned();
    if namespace.is_empty() {
        done.obstacles
            .push("metadata.namespace is not set, and the name of the release has it".to_owned());
        return done;
    }
    let mut spec = UnconvertedFields::of("spec", found.get("spec").cloned().unwrap_or_default());
    let target = spec.text("targetNamespace");
    let release = match spec.text("releaseName") {
        given if !given.is_empty() => given,
        _ if target.is_empty() => format!("{namespace}-{name}"),
        _ => format!("{namespace}-{target}-{name}"),
    };
    let mut release_spec = json!({"interval": "5m", "releaseName": release});
    let chart = chart(&mut spec, &namespace, &name, &mut done);
    put(&mut release_spec, &["chart", "spec"], chart);
    put(&mut release_spec, &["targetNamespace"], json!(target));
    // Helm 3 stores its records in the namespace of the objects.
    put(&mut release_spec, &["storageNamespace"], json!(target));
    let values = spec.take("values");
    put(&mut release_spec, &["values"], values.clone());
    values_from(&mut spec, &namespace, &mut release_spec, &mut done);
    actions(&mut spec, &mut release_spec, &mut done);
    if !spec.is_true("resetValues") {
        done.notes.push(
            "resetValues is not set: values that were changed by `helm upgrade --set` do not survive any more".to_owned(),
        );
    }
    match spec.text("helmVersion").as_str() {
        "" | "v3" => {}
        other => done
            .obstacles
            .push(format!("spec.helmVersion is {other}: migrate the release to Helm 3 first")),
    }
    spec.refuse(&mut done.obstacles);
    let mut release = object(HELM, "HelmRelease", &namespace, &name, &release_spec);
    if image_annotations::convert(found, &values, &mut done) == FluxV1SyncPolicy::LeaveOut {
        release["metadata"]["annotations"] =
            json!({"kustomize.toolkit.fluxcd.io/reconcile": "disabled"});
    }
    done.objects.push(release);
    done
}

/// Converts the source, and the chart in it.
fn chart(
    spec: &mut UnconvertedFields,
    namespace: &str,
    name: &str,
    done: &mut ConversionResult,
) -> Value {
    let mut chart = spec.fields("chart");
    let repository = chart.text("repository");
    let git = chart.text("git");
    let chart_name = chart.text("name");
    let version = chart.text("version");
    let reference = chart.text("ref");
    let path = chart.text("path");
    chart.take("skipDepUpdate");
    let secret = chart.take("secretRef");
    let pull = chart.take("chartPullSecret");
    let (source, found) = if !git.is_empty() {
        let branch = if reference.is_empty() { "master" } else { &reference };
        let mut source = json!({"interval": "5m", "url": git_url(&git), "ref": {"branch": branch}});
        put(&mut source, &["secretRef"], secret);
        let url = source["url"].as_str().unwrap_or_default();
        if url.starts_with("ssh://") {
            done.notes.push(format!(
                "{url}: GitRepository {name} needs a Secret with identity and known_hosts (spec.secretRef)"
            ));
        }
        let source_ref = json!({"kind": "GitRepository", "name": name});
        let path = format!("./{}", path.trim_start_matches("./"));
        (
            object(SOURCE, "GitRepository", namespace, name, &source),
            json!({"chart": path, "sourceRef": source_ref}),
        )
    } else if !repository.is_empty() && !chart_name.is_empty() {
        let mut source = chart_repository(namespace, name, &repository, false);
        put(&mut source, &["spec", "secretRef"], pull);
        let source_ref = json!({"kind": "HelmRepository", "name": name});
        let mut found = json!({"chart": chart_name, "sourceRef": source_ref});
        put(&mut found, &["version"], json!(version));
        (source, found)
    } else {
        done.obstacles.push("spec.chart has neither git nor repository and name".to_owned());
        return Value::Null;
    };
    done.objects.push(source);
    chart.refuse(&mut done.obstacles);
    found
}

/// The URL for a GitRepository. A GitRepository does not support the short form of SSH URLs.
fn git_url(url: &str) -> String {
    match (url.contains("://"), url.split_once(':')) {
        (false, Some((host, path))) => format!("ssh://{host}/{}", path.trim_start_matches('/')),
        _ => url.to_owned(),
    }
}

fn values_from(
    spec: &mut UnconvertedFields,
    namespace: &str,
    release: &mut Value,
    done: &mut ConversionResult,
) {
    let mut from = Vec::new();
    let mut files = Vec::new();
    for (at, item) in spec.list("valuesFrom").into_iter().enumerate() {
        let mut item = UnconvertedFields::of(&format!("spec.valuesFrom[{at}]"), item);
        for (key, kind) in [("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")] {
            let mut reference = item.fields(key);
            let object = reference.text("name");
            if object.is_empty() {
                continue;
            }
            let other = reference.text("namespace");
            if !other.is_empty() && other != namespace {
                done.obstacles.push(format!(
                    "spec.valuesFrom[{at}] is of namespace {other}: copy {kind} {object}"
                ));
            }
            let mut value = json!({"kind": kind, "name": object});
            put(&mut value, &["valuesKey"], json!(reference.text("key")));
            put(&mut value, &["optional"], reference.take("optional"));
            reference.refuse(&mut done.obstacles);
            from.push(value);
        }
        let mut file = item.fields("chartFileRef");
        let path = file.text("path");
        if !path.is_empty() {
            put(
                &mut release["chart"]["spec"],
                &["ignoreMissingValuesFiles"],
                file.take("optional"),
            );
            files.push(json!(path));
            if !from.is_empty() {
                done.notes.push(format!(
                    "spec.valuesFrom[{at}]: files of the chart come before ConfigMaps and Secrets now"
                ));
            }
        }
        file.refuse(&mut done.obstacles);
        item.refuse(&mut done.obstacles);
    }
    if !files.is_empty() {
        // The default values file of a chart comes first only if it is named.
        files.insert(0, json!("values.yaml"));
    }
    put(release, &["chart", "spec", "valuesFiles"], json!(files));
    put(release, &["valuesFrom"], json!(from));
}

/// Converts how the release is installed, upgraded, tested and rolled back.
fn actions(spec: &mut UnconvertedFields, release: &mut Value, done: &mut ConversionResult) {
    let mut rollback = spec.fields("rollback");
    let mut test = spec.fields("test");
    let rolls_back = rollback.is_true("enable");
    let tests = test.is_true("enable");
    let waits = match spec.take("wait") {
        Value::Bool(given) => given,
        _ => rolls_back || tests,
    };
    let seconds = |value: Value| value.as_i64().map_or(Value::Null, |it| json!(format!("{it}s")));
    put(release, &["timeout"], seconds(spec.take("timeout")));
    put(release, &["maxHistory"], spec.take("maxHistory"));
    for action in ["install", "upgrade"] {
        put(release, &[action, "disableWait"], json!(!waits));
    }
    if spec.is_true("disableOpenAPIValidation") {
        for action in ["install", "upgrade"] {
            put(release, &[action, "disableOpenAPIValidation"], json!(true));
        }
    }
    if spec.is_true("skipCRDs") {
        put(release, &["install", "crds"], json!("Skip"));
    }
    put(release, &["upgrade", "force"], spec.take("forceUpgrade"));
    let retry = rollback.is_true("retry");
    let most = rollback.take("maxRetries");
    if rolls_back {
        let retries = match (retry, most.as_i64()) {
            (false, _) => 0,
            (true, None) => 5,
            // The number of retries is unlimited.
            (true, Some(0)) => -1,
            (true, Some(most)) => most,
        };
        let remediation =
            json!({"strategy": "rollback", "retries": retries, "remediateLastFailure": true});
        release["upgrade"]["remediation"] = remediation;
        put(release, &["rollback", "disableWait"], json!(rollback.take("wait") == false));
        put(release, &["rollback", "timeout"], seconds(rollback.take("timeout")));
        for (key, to) in
            [("force", "force"), ("recreate", "recreate"), ("disableHooks", "disableHooks")]
        {
            put(release, &["rollback", to], rollback.take(key));
        }
        rollback.refuse(&mut done.obstacles);
    }
    if tests {
        put(release, &["test", "enable"], json!(true));
        put(release, &["test", "ignoreFailures"], test.take("ignoreFailures"));
        put(release, &["test", "timeout"], seconds(test.take("timeout")));
        test.note(&mut done.notes);
    }
}

#[cfg(test)]
mod tests;
