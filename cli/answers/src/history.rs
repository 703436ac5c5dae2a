//! The history of an object: what windlass applied or released, when, how long it took, and how it ended.
//!
//! Below: Helm revisions that are missing in the status (`history/unlisted_revisions.rs`).

mod unlisted_revisions;

use anyhow::bail;
use objects::Object;
use serde_json::Value;

use self::unlisted_revisions::ReleaseRecordLocation;
use super::command_scope::CommandScope;
use super::helmfile_release;

/// The history of an object.
#[derive(Debug, Default)]
pub struct ObjectHistory {
    /// The entries, the newest first. They come from the status, and from revisions that only the storage of Helm contains.
    pub entries: Vec<Value>,
    /// Why revisions are left out that the status does not contain.
    pub left_out: Option<String>,
}

/// Reads the history of an object. For a Helmfile, reads the history of one of its releases.
///
/// # Errors
/// The object has no history, or the release cannot be found.
pub async fn read(
    site: &CommandScope,
    object: &Object,
    release: Option<&str>,
) -> anyhow::Result<ObjectHistory> {
    let row = release_row(object, release)?;
    let ended = entries(object, row.as_ref())?;
    let Some(place) = ReleaseRecordLocation::of(object, row.as_ref()) else {
        return Ok(ObjectHistory { entries: ended, left_out: None });
    };
    let unlisted = match place.unlisted(site, &ended).await {
        Ok(unlisted) => unlisted,
        Err(error) => {
            let text = format!("revisions that the status does not have are left out: {error:#}");
            return Ok(ObjectHistory { entries: ended, left_out: Some(text) });
        }
    };
    let mut all = [unlisted, ended].concat();
    all.sort_by_key(|it| std::cmp::Reverse(it["version"].as_i64()));
    Ok(ObjectHistory { entries: all, left_out: None })
}

/// The status row of the selected release. `None` for objects other than Helmfiles, and for Helmfiles without releases.
fn release_row(object: &Object, name: Option<&str>) -> anyhow::Result<Option<Value>> {
    if object.kind() != "Helmfile" {
        return Ok(None);
    }
    let rows = object.get("status").and_then(|it| it["releases"].as_array()).cloned();
    Ok(helmfile_release::row(object, &rows.unwrap_or_default(), name)?.cloned())
}

/// The history entries in the status. For a Helmfile, those of the selected release.
fn entries(object: &Object, row: Option<&Value>) -> anyhow::Result<Vec<Value>> {
    let history = match object.kind() {
        "Helmfile" => row.map(|it| it["status"]["history"].clone()).unwrap_or_default(),
        "Kustomization" | "HelmRelease" => {
            object.get("status").map(|it| it["history"].clone()).unwrap_or_default()
        }
        kind => bail!(
            "objects of kind {kind} have no history: name a Kustomization, HelmRelease or Helmfile"
        ),
    };
    Ok(history.as_array().cloned().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_release_of_a_helmfile_has_to_be_named_among_several() {
        let row = |name: &str| json!({"name": name, "status": {"history": [{"version": 1}]}});
        let object = |releases: Vec<Value>| {
            Object::new(json!({"apiVersion": "helmfile.windlass.dev/v1alpha1", "kind": "Helmfile",
                "metadata": {"name": "all"}, "status": {"releases": releases}}))
            .unwrap()
        };
        let of = |object: &Object, name: Option<&str>| {
            entries(object, release_row(object, name)?.as_ref())
        };
        assert_eq!(of(&object(vec![row("a")]), None).unwrap().len(), 1);
        let both = object(vec![row("a"), row("b")]);
        assert_eq!(of(&both, Some("b")).unwrap().len(), 1);
        assert!(of(&both, None).unwrap_err().to_string().contains("--release: a, b"));
        assert!(of(&both, Some("c")).unwrap_err().to_string().contains("no release c"));
        // Two releases have the same name in different clusters.
        let row = |context: &str, version: u8| {
            json!({"name": "a", "namespace": "n", "kubeContext": context,
                "status": {"history": [{"version": version}]}})
        };
        let all = object(vec![row("", 1), row("east", 2), row("arn:x/y", 3)]);
        let error_of = |release| of(&all, release).unwrap_err().to_string();
        for text in [error_of(Some("a")), error_of(None)] {
            assert!(text.contains("n/a, east/n/a, arn:x/y/n/a"), "{text}");
        }
        for (release, version) in [("n/a", 1), ("east/n/a", 2), ("arn:x/y/n/a", 3)] {
            assert_eq!(of(&all, Some(release)).unwrap()[0]["version"], version, "{release}");
        }
    }
}
