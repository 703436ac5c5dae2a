//! Converts Helmfiles of helmfile-operator (`apps.mumoshu.github.io/v1alpha1`) to Helmfiles of windlass that adopt the existing
//! releases.

use objects::Object;
use serde_json::{Value, json};

use super::{ConversionResult, ConvertibleOperator, HELMFILE, UnconvertedFields, object, put};

pub(in crate::migrate) const OPERATOR: ConvertibleOperator = ConvertibleOperator {
    gvk: ("apps.mumoshu.github.io/v1alpha1", "Helmfile"),
    others: &[],
    convert,
    remarks: &[],
    next: "scale the Deployment of helmfile-operator to zero; `windlass install` replaces the CRD \
           helmfiles.apps.mumoshu.github.io, and windlass keeps the objects as they are: once they are Ready, delete \
           the Deployments of their appliers in namespace default. To have the objects above instead, delete the old \
           ones then, which leaves their releases, and apply these: they adopt the releases without a new revision",
};

fn convert(found: &Object, _: &str) -> ConversionResult {
    let mut done = ConversionResult::default();
    let name = found.name().to_owned();
    let namespace = match found.namespace() {
        "" => "default",
        namespace => namespace,
    };
    let mut spec = UnconvertedFields::of("spec", found.get("spec").cloned().unwrap_or_default());
    let source = source(&mut spec, &mut done);
    let mut converted =
        json!({"source": source, "dialect": "v0", "interval": "1m", "deletionPolicy": "Orphan"});
    for field in ["environment", "values", "valuesFiles"] {
        put(&mut converted, &[field], spec.take(field));
    }
    if let Value::Object(variables) = spec.take("envvars") {
        let env = variables.into_iter().map(|(name, value)| match value {
            Value::String(text) => json!({"name": name, "value": text}),
            other => json!({"name": name, "value": other.to_string()}),
        });
        put(&mut converted, &["env"], env.collect());
    }
    // The fields that windlass adds to the kind.
    for field in ["interval", "suspend", "prune", "deletionPolicy", "serviceAccountName"] {
        put(&mut converted, &[field], spec.take(field));
    }
    for field in ["image", "command"] {
        if !spec.take(field).is_null() {
            done.notes.push(format!("spec.{field} has no effect any more: no Pod is run"));
        }
    }
    if namespace != "default" {
        done.notes.push(format!(
            "releases without a namespace are in {namespace} now, where helmfile-operator had them in default: set \
             spec.targetNamespace to adopt those"
        ));
    }
    done.notes.push(format!(
        "once it is Ready, delete its applier: kubectl --namespace default delete deployment --selector \
         app=helmfile-operator-{name}"
    ));
    let finalizers = found.meta("finalizers").and_then(Value::as_array);
    if finalizers.is_some_and(|it| !it.is_empty()) {
        done.notes.push(
            "remove the finalizers of helmfile-operator from the old object before it is deleted"
                .to_owned(),
        );
    }
    spec.refuse(&mut done.obstacles);
    done.objects.push(object(HELMFILE, "Helmfile", namespace, &name, &converted));
    done
}

/// The address of the source, with the reference in `version`.
fn source(spec: &mut UnconvertedFields, done: &mut ConversionResult) -> String {
    let source = spec.text("source");
    let version = spec.text("version");
    let Some(address) = helmfile::RemoteAddress::parse(&source) else {
        done.obstacles.push(format!(
            "spec.source `{source}` is a path in the image of an applier: put the helmfile into a repository"
        ));
        return source;
    };
    match (address.parameter("ref"), version.as_str()) {
        (_, "") => source,
        (Some(named), version) if named == version => source,
        (Some(named), version) => {
            done.notes.push(format!(
                "spec.version {version} had no effect, and spec.source names ref={named}: that is kept"
            ));
            source
        }
        (None, version) => {
            done.notes.push(format!(
                "spec.version {version} had no effect in helmfile-operator: now it is the reference"
            ));
            let mark = if source.contains('?') { '&' } else { '?' };
            format!("{source}{mark}ref={version}")
        }
    }
}
