//! Converts Applications of Argo CD to a source with a Kustomization or a HelmRelease.
//!
//! Here: sources, and what is built or rendered from them. Below: when and how an Application is synchronized
//! (`argocd/sync_policy.rs`).
//! Source of the fields: Argo CD 3.1, `ApplicationSpec`.

mod sync_policy;

use golang::value::GoMap as Values;
use helm::chart::read_values;
use helm::strvals::{SetValueMode, set};
use objects::Object;
use serde_json::{Value, json};

use self::sync_policy::ArgocdSyncPolicy;
use super::{
    ConversionResult, ConvertibleOperator, HELM, KUSTOMIZE, SOURCE, UnconvertedFields,
    chart_repository, is_empty, object, put,
};

const API: &str = "argoproj.io/v1alpha1";
/// The advice for fields of kustomize that a Kustomization does not have.
const IN_OVERLAY: &str = "put it into the kustomization.yaml of the repository";

pub(in crate::migrate) const OPERATOR: ConvertibleOperator = ConvertibleOperator {
    gvk: (API, "Application"),
    others: &[(
        API,
        "ApplicationSet",
        "write one Kustomization for each of its Applications, or generate them in the repository; its Applications \
         are converted, but would come back as long as it is there",
    )],
    convert,
    remarks: &sync_policy::IN_MANIFESTS,
    next: "remove the finalizers of the Applications (`resources-finalizer.argocd.argoproj.io`) and their \
           spec.syncPolicy.automated, delete them, then apply these objects: what runs stays, and is adopted",
};

fn convert(found: &Object, namespace: &str) -> ConversionResult {
    let mut done = ConversionResult::default();
    let name = found.name().to_owned();
    let mut spec = UnconvertedFields::of("spec", found.get("spec").cloned().unwrap_or_default());
    let target = sync_policy::destination(&mut spec, &mut done);
    let policy = ArgocdSyncPolicy::of(found, &mut spec, &mut done);
    let sources = spec.list("sources");
    let source = match sources.as_slice() {
        [] => spec.take("source"),
        [only] => only.clone(),
        _ => {
            done.obstacles.push("spec.sources has several: make an object of each".to_owned());
            return done;
        }
    };
    let mut source = UnconvertedFields::of("spec.source", source);
    let url = source.text("repoURL");
    let revision = source.text("targetRevision");
    let path = source.text("path");
    let chart = source.text("chart");
    let is_helm = !chart.is_empty() || !source.left_is_empty("helm");
    let source_ref = match (chart.is_empty(), url.starts_with("oci://")) {
        (false, _) => {
            let passes = source.helm_flag("passCredentials");
            done.objects.push(chart_repository(namespace, &name, &chart_url(&url), passes));
            "HelmRepository"
        }
        (true, true) => {
            let mut spec = json!({"interval": "5m", "url": url});
            let key = if revision.starts_with("sha256:") { "digest" } else { "tag" };
            put(&mut spec, &["ref", key], json!(revision));
            done.objects.push(object(SOURCE, "OCIRepository", namespace, &name, &spec));
            "OCIRepository"
        }
        (true, false) => {
            let spec = json!({"interval": "5m", "url": git_url(&url), "ref": reference(&revision, &mut done)});
            done.objects.push(object(SOURCE, "GitRepository", namespace, &name, &spec));
            "GitRepository"
        }
    };
    done.notes.push(format!(
        "{source_ref} {name}: name a Secret in spec.secretRef if {url} needs credentials"
    ));
    let source_ref = json!({"kind": source_ref, "name": name});
    let converted = if is_helm {
        let at =
            ArgocdChartLocation { name: name.clone(), chart, version: revision, path, source_ref };
        release(&mut source, at, &target, &mut done)
    } else {
        kustomization(&mut source, &path, source_ref, &target, &mut done)
    };
    let mut converted = converted;
    policy.put(&mut converted, is_helm, &mut done);
    // This field names one of several sources.
    source.take("name");
    let plugin = source.take("plugin");
    if !plugin.is_null() {
        done.obstacles.push(
            "spec.source.plugin: commit what the plugin renders, or push it as an artifact that an OCIRepository names"
                .to_owned(),
        );
    }
    source.refuse(&mut done.obstacles);
    spec.refuse(&mut done.obstacles);
    let (api, kind) = if is_helm { (HELM, "HelmRelease") } else { (KUSTOMIZE, "Kustomization") };
    let mut converted = object(api, kind, namespace, &name, &converted);
    if !is_helm && policy.protects_from_empty() {
        converted["metadata"]["annotations"] = json!({"windlass.dev/allow-empty": "false"});
    }
    done.objects.push(converted);
    done
}

/// The Git reference to check out.
fn reference(revision: &str, done: &mut ConversionResult) -> Value {
    let is_version = |text: &str| {
        text.strip_prefix('v').unwrap_or(text).starts_with(|it: char| it.is_ascii_digit())
            && text.contains('.')
    };
    match revision {
        "" | "HEAD" => {
            done.notes.push(
                "targetRevision is the default branch of the repository: `main` was assumed"
                    .to_owned(),
            );
            json!({"branch": "main"})
        }
        hash if hash.len() == 40 && hash.bytes().all(|it| it.is_ascii_hexdigit()) => {
            json!({"commit": hash})
        }
        name if name.starts_with("refs/") => json!({"name": name}),
        range if range.contains(['*', '^', '~', '<', '>', ' ']) => json!({"semver": range}),
        tag if is_version(tag) => json!({"tag": tag}),
        branch => json!({"branch": branch}),
    }
}

fn git_url(url: &str) -> String {
    match (url.contains("://"), url.split_once(':')) {
        (false, Some((host, path))) => format!("ssh://{host}/{path}"),
        _ => url.to_owned(),
    }
}

/// Argo CD writes the addresses of OCI registries without a scheme.
fn chart_url(url: &str) -> String {
    if url.contains("://") { url.to_owned() } else { format!("oci://{url}") }
}

/// Converts a directory or a kustomization.
fn kustomization(
    source: &mut UnconvertedFields,
    path: &str,
    source_ref: Value,
    target: &str,
    done: &mut ConversionResult,
) -> Value {
    let path = format!("./{}", path.trim_start_matches("./"));
    let mut spec = json!({"interval": "10m", "path": path, "sourceRef": source_ref});
    let mut directory = source.fields("directory");
    if !directory.is_true("recurse") {
        done.notes.push(
            "directories below are applied, too, unless there is a kustomization.yaml: Argo CD reads them with recurse only"
                .to_owned(),
        );
    }
    directory
        .refuse_as("list the files in a kustomization.yaml of the repository", &mut done.obstacles);
    let mut overlay = source.fields("kustomize");
    let namespace = overlay.text("namespace");
    if namespace.is_empty() && !target.is_empty() {
        done.notes.push(format!(
            "spec.destination.namespace {target}: Argo CD gives it to objects that have no namespace. Write it into these, or \
             set spec.targetNamespace, which moves all objects to it, also those of other namespaces"
        ));
    }
    put(&mut spec, &["targetNamespace"], json!(namespace));
    for key in ["namePrefix", "nameSuffix", "components", "ignoreMissingComponents"] {
        put(&mut spec, &[key], overlay.take(key));
    }
    put(&mut spec, &["patches"], patches(&mut overlay, done));
    common_metadata(&mut overlay, &mut spec, done);
    let images: Vec<Value> =
        overlay.list("images").iter().filter_map(Value::as_str).map(image).collect();
    put(&mut spec, &["images"], json!(images));
    if !overlay.text("version").is_empty() {
        done.notes.push("spec.source.kustomize.version: windlass builds by itself".to_owned());
    }
    overlay.refuse_as(IN_OVERLAY, &mut done.obstacles);
    spec
}

/// Converts patches, except those that name a file. A Kustomization has no patches from files.
fn patches(overlay: &mut UnconvertedFields, done: &mut ConversionResult) -> Value {
    let mut patches = Vec::new();
    for (at, patch) in overlay.list("patches").into_iter().enumerate() {
        let mut patch =
            UnconvertedFields::of(&format!("spec.source.kustomize.patches[{at}]"), patch);
        let mut converted = json!({"patch": patch.text("patch")});
        put(&mut converted, &["target"], patch.take("target"));
        patch.refuse_as(IN_OVERLAY, &mut done.obstacles);
        patches.push(converted);
    }
    json!(patches)
}

/// Converts the common labels and annotations, if they mean the same in Argo CD.
fn common_metadata(overlay: &mut UnconvertedFields, spec: &mut Value, done: &mut ConversionResult) {
    let labels = overlay.take("commonLabels");
    let is_of_objects =
        overlay.is_true("labelWithoutSelector") && !overlay.is_true("labelIncludeTemplates");
    let has_labels = labels.as_object().is_some_and(|labels| !labels.is_empty());
    if has_labels && !is_of_objects {
        done.obstacles.push(format!(
            "spec.source.kustomize.commonLabels are in selectors and templates, too, which spec.commonMetadata does not \
             change: {IN_OVERLAY}"
        ));
    }
    put(spec, &["commonMetadata", "labels"], labels);
    put(spec, &["commonMetadata", "annotations"], overlay.take("commonAnnotations"));
    // windlass replaces existing values in any case.
    for field in ["forceCommonLabels", "forceCommonAnnotations"] {
        overlay.take(field);
    }
}

/// An image in the format of Argo CD: `[NAME=]NEW[:TAG|@DIGEST]`.
fn image(text: &str) -> Value {
    let (name, new) = text.split_once('=').unwrap_or(("", text));
    let (new, digest) = new.split_once('@').unwrap_or((new, ""));
    let (new, tag) = match new.rsplit_once(':') {
        // A colon before a slash belongs to a port.
        Some((new, tag)) if !tag.contains('/') => (new, tag),
        _ => (new, ""),
    };
    let mut image = json!({"name": if name.is_empty() { new } else { name }});
    put(&mut image, &["newName"], json!(if name.is_empty() { "" } else { new }));
    put(&mut image, &["newTag"], json!(tag));
    put(&mut image, &["digest"], json!(digest));
    image
}

/// The place of a chart.
struct ArgocdChartLocation {
    /// The name of the Application.
    name: String,
    /// The name of the chart in a repository. Empty if the chart is in a directory.
    chart: String,
    version: String,
    path: String,
    source_ref: Value,
}

fn release(
    source: &mut UnconvertedFields,
    at: ArgocdChartLocation,
    target: &str,
    done: &mut ConversionResult,
) -> Value {
    let mut helm = source.fields("helm");
    let folder = at.path.trim_start_matches("./").trim_end_matches('/').to_owned();
    let is_in_repository = !at.chart.is_empty();
    let mut chart = match is_in_repository {
        true => json!({"chart": at.chart, "sourceRef": at.source_ref, "version": at.version}),
        false => json!({"chart": format!("./{folder}"), "sourceRef": at.source_ref}),
    };
    let mut files = Vec::new();
    for file in helm.list("valueFiles").iter().filter_map(Value::as_str) {
        if file.contains("://") || file.starts_with('$') || file.split('/').any(|part| part == "..")
        {
            done.obstacles.push(format!("spec.source.helm.valueFiles: {file} is not in the chart"));
        }
        match file.strip_prefix('/') {
            Some(of_root) => files.push(of_root.to_owned()),
            None if is_in_repository || folder.is_empty() => files.push(file.to_owned()),
            None => files.push(format!("{folder}/{file}")),
        }
    }
    if !files.is_empty() {
        let own = if is_in_repository || folder.is_empty() {
            String::new()
        } else {
            format!("{folder}/")
        };
        files.insert(0, format!("{own}values.yaml"));
    }
    put(&mut chart, &["valuesFiles"], json!(files));
    put(&mut chart, &["ignoreMissingValuesFiles"], helm.take("ignoreMissingValueFiles"));
    // Argo CD uses the name of the Application as the release name.
    let name = match helm.text("releaseName") {
        given if given.is_empty() => at.name,
        given => given,
    };
    let mut spec = json!({"interval": "10m", "chart": {"spec": chart}, "releaseName": name});
    let namespace = match helm.text("namespace") {
        given if given.is_empty() => target.to_owned(),
        given => given,
    };
    for key in ["targetNamespace", "storageNamespace"] {
        put(&mut spec, &[key], json!(namespace));
    }
    match values(&mut helm) {
        Ok(values) => put(&mut spec, &["values"], values),
        Err(error) => done.obstacles.push(error),
    }
    rendering(&mut helm, &mut spec, done);
    helm.refuse(&mut done.obstacles);
    done.notes.push(
        "Helm makes a release of what Argo CD had applied from the chart: its first revision takes the objects over, \
         and runs the hooks of an install"
            .to_owned(),
    );
    spec
}

/// Converts the options of rendering, except the values.
fn rendering(helm: &mut UnconvertedFields, spec: &mut Value, done: &mut ConversionResult) {
    // Argo CD applies CRDs with each synchronization.
    let crds = if helm.is_true("skipCrds") { "Skip" } else { "CreateReplace" };
    spec["install"] = json!({"crds": crds, "createNamespace": true});
    spec["upgrade"] = json!({"crds": crds});
    let skips = helm.take("skipSchemaValidation");
    for action in ["install", "upgrade"] {
        put(spec, &[action, "disableSchemaValidation"], skips.clone());
    }
    helm.take("passCredentials");
    // windlass does not run tests unless `spec.test.enable` is set.
    helm.take("skipTests");
    if let version @ ("v1" | "v2") = helm.text("version").as_str() {
        done.notes
            .push(format!("spec.source.helm.version {version}: charts are rendered as by Helm 3"));
    }
    let parameters = helm.take("fileParameters");
    if parameters.as_array().is_some_and(|it| !it.is_empty()) {
        done.obstacles.push(
            "spec.source.helm.fileParameters: put the contents into a ConfigMap or Secret that spec.valuesFrom names, with \
             targetPath"
                .to_owned(),
        );
    }
    for field in ["kubeVersion", "apiVersions"] {
        if !is_empty(&helm.take(field)) {
            done.notes.push(format!(
                "spec.source.helm.{field}: charts are rendered with what the cluster of the release serves"
            ));
        }
    }
}

/// Converts values and parameters. Parameters have the higher precedence.
fn values(helm: &mut UnconvertedFields) -> Result<Value, String> {
    let object = helm.take("valuesObject");
    let text = helm.text("values");
    let text = if object.is_object() { object.to_string() } else { text };
    let wrong = |error: &dyn std::fmt::Display| format!("spec.source.helm.values: {error}");
    let all: Values = read_values(text.as_bytes()).map_err(|error| wrong(&error))?;
    for parameter in helm.list("parameters") {
        let mut parameter = UnconvertedFields::of("spec.source.helm.parameters", parameter);
        let name = parameter.text("name");
        let value = parameter.text("value");
        let mode = if parameter.is_true("forceString") {
            SetValueMode::Strings
        } else {
            SetValueMode::Typed
        };
        // Argo CD escapes commas, because they separate values for Helm.
        let pair = format!("{name}={}", value.replace(',', "\\,"));
        set(&all, &pair, mode)
            .map_err(|error| format!("spec.source.helm.parameters: {name}: {error}"))?;
    }
    helm::values::to_json(&all).map_err(|error| wrong(&error))
}

impl UnconvertedFields {
    /// Whether a field is missing or empty.
    fn left_is_empty(&self, key: &str) -> bool {
        self.left.get(key).is_none_or(|value| !value.is_object())
    }

    fn helm_flag(&self, key: &str) -> bool {
        self.left.get("helm").is_some_and(|helm| helm[key] == true)
    }
}
