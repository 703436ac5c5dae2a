//! Suspends and resumes one release of a Helmfile, through its entry in `spec.suspendedReleases`.
//!
//! Elsewhere: finding the release that the user named (`windlass_answers::helmfile_release`).

use anyhow::{bail, ensure};
use objects::Object;
use reconcile::ROLLBACK;
use serde_json::{Value, json};

use super::command_scope::CommandScope;
use super::kind_argument::ResourceArgument;
use super::suspend::change;
pub(super) use windlass_answers::helmfile_release::row;

/// The full name of a release: `NAMESPACE/NAME`, or `KUBECONTEXT/NAMESPACE/NAME`.
pub(super) fn full_name(row: &Value) -> String {
    let [context, namespace, name] = ["kubeContext", "namespace", "name"].map(|it| text(row, it));
    match context {
        "" => format!("{namespace}/{name}"),
        context => format!("{context}/{namespace}/{name}"),
    }
}

/// The status row of the release that the user named.
///
/// # Errors
/// The object is not a Helmfile, or it does not have that release.
pub(super) fn named(object: &Object, release: &str) -> anyhow::Result<Value> {
    ensure!(object.kind() == "Helmfile", "--release names a release of a Helmfile");
    let rows = object.get("status").and_then(|it| it["releases"].as_array()).cloned();
    let rows = rows.unwrap_or_default();
    match row(object, &rows, Some(release))? {
        Some(row) => Ok(row.clone()),
        None => bail!("{} has no release yet", object.id().subject()),
    }
}

/// The suspension of one release of a Helmfile.
pub(super) struct HelmfileReleaseSuspension<'s> {
    pub(super) reason: &'s str,
    /// When the suspension ends.
    pub(super) until: Option<&'s str>,
    /// The annotation that requests a rollback of the suspended release.
    pub(super) rollback: Option<&'s str>,
}

/// Suspends one release of a Helmfile, or changes its existing entry.
///
/// # Errors
/// The API server refuses, for example because the Helmfile was changed meanwhile.
pub(super) async fn suspend(
    site: &CommandScope,
    target: &ResourceArgument,
    object: &Object,
    row: &Value,
    suspension: &HelmfileReleaseSuspension<'_>,
) -> anyhow::Result<Object> {
    let HelmfileReleaseSuspension { reason, until, rollback } = suspension;
    let (_, mut others) = entries(object, row);
    others.push(json!({
        "name": row["name"],
        "namespace": row["namespace"],
        "kubeContext": text(row, "kubeContext"),
        "reason": reason,
        "until": until,
    }));
    let annotations = rollback.map_or_else(|| json!({}), |asked| json!({ROLLBACK: asked}));
    write(site, target, object, &others, annotations).await
}

/// Resumes one release of a Helmfile. Returns `None` if `spec.suspendedReleases` does not list it.
///
/// # Errors
/// An entry of `spec.suspendedReleases` also suspends other releases, or the API server refuses.
pub(super) async fn resume(
    site: &CommandScope,
    target: &ResourceArgument,
    object: &Object,
    row: &Value,
) -> anyhow::Result<Option<Object>> {
    let (own, others) = entries(object, row);
    if let Some(entry) = others.iter().find(|entry| is_for(entry, row)) {
        bail!(
            "it is suspended by the entry {entry} of spec.suspendedReleases, as others are: edit that entry"
        );
    }
    match own.is_empty() {
        true => Ok(None),
        // This also cancels a requested rollback.
        false => write(site, target, object, &others, json!({ROLLBACK: null})).await.map(Some),
    }
}

/// The entries that suspend only this release, and all other entries.
fn entries(object: &Object, row: &Value) -> (Vec<Value>, Vec<Value>) {
    let all = object.get("spec").and_then(|it| it["suspendedReleases"].as_array()).cloned();
    let is_whole = |entry: &Value| {
        is_for(entry, row) && entry["namespace"].is_string() && entry["kubeContext"].is_string()
    };
    all.unwrap_or_default().into_iter().partition(is_whole)
}

/// Whether an entry suspends a release.
fn is_for(entry: &Value, row: &Value) -> bool {
    let is = |key: &str| entry[key].as_str().is_none_or(|it| it == text(row, key));
    is("name") && is("namespace") && is("kubeContext")
}

async fn write(
    site: &CommandScope,
    target: &ResourceArgument,
    object: &Object,
    entries: &[Value],
    annotations: Value,
) -> anyhow::Result<Object> {
    // The patch replaces the whole list, so it requires the resourceVersion. Otherwise a simultaneous change by another user
    // would be lost.
    let version = object.meta("resourceVersion");
    let list = if entries.is_empty() { Value::Null } else { entries.into() };
    let patch = json!({
        "metadata": {"resourceVersion": version, "annotations": annotations},
        "spec": {"suspendedReleases": list},
    });
    change(site, target, object, &patch).await
}

fn text<'v>(entry: &'v Value, key: &str) -> &'v str {
    entry[key].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn helmfile(suspended: &Value) -> Object {
        Object::new(json!({"apiVersion": "helmfile.windlass.dev/v1alpha1", "kind": "Helmfile",
            "metadata": {"name": "all"}, "spec": {"suspendedReleases": suspended}}))
        .unwrap()
    }

    #[test]
    fn an_entry_that_suspends_just_this_release_differs_from_those_that_suspend_others_too() {
        let row = json!({"name": "db", "namespace": "a"});
        let own = json!({"name": "db", "namespace": "a", "kubeContext": "", "reason": "x"});
        let wide = json!({"name": "db"});
        let elsewhere = json!({"name": "db", "namespace": "a", "kubeContext": "east"});
        let object = helmfile(&json!([own, wide, elsewhere]));
        let (found, others) = entries(&object, &row);
        assert_eq!((found, others), (vec![own], vec![wide.clone(), elsewhere.clone()]));
        assert!(is_for(&wide, &row) && !is_for(&elsewhere, &row));
        assert_eq!(entries(&helmfile(&Value::Null), &row), (vec![], vec![]));
        assert_eq!(full_name(&row), "a/db");
    }
}
