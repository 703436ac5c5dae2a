//! Checks that the artifact in a status belongs to the object.
//!
//! A user who may write a status could otherwise name another tenant's artifact there, and have it applied or shown.

use artifacts::store::ObjectFolder;
use crds::Artifact;
use percent_encoding::percent_decode_str;
use reconcile::ObjectKey;
use url::Url;

/// The kinds that the path of an artifact may name, in lower case.
const KINDS: [&str; 7] = [
    "bucket",
    "externalartifact",
    "gitrepository",
    "helmchart",
    "helmrepository",
    "httparchive",
    "ocirepository",
];

/// The kind whose artifacts any controller may provide.
const EXTERNAL: &str = "ExternalArtifact";

/// Checks that an artifact belongs to the source whose status names it. The path in windlass's store decides. If the artifact
/// is `elsewhere`, the path in its URL decides.
///
/// Differs(flux): Flux fetches any artifact that a status names.
///
/// # Errors
/// Says which field of the status names another object's artifact.
pub fn check(node: &ObjectKey, artifact: &Artifact, elsewhere: bool) -> Result<(), String> {
    let is_own = match (elsewhere, node.kind.as_str()) {
        // The artifact of an HTTPArchive is stored under the HTTPArchive. The artifact of an ArtifactGenerator is stored under
        // the ExternalArtifact.
        (false, EXTERNAL) => {
            is_in(node, "HTTPArchive", &artifact.path) || is_in(node, EXTERNAL, &artifact.path)
        }
        (false, kind) => is_in(node, kind, &artifact.path),
        (true, EXTERNAL) => is_not_of_another_namespace(node, &artifact.url),
        (true, kind) => of_url(&artifact.url).is_some_and(|[of, namespace, name]| {
            of == kind.to_ascii_lowercase() && namespace == node.namespace && name == node.name
        }),
    };
    if is_own {
        return Ok(());
    }
    let (field, value) = if elsewhere { ("url", &artifact.url) } else { ("path", &artifact.path) };
    Err(format!(
        "status.artifact.{field} of {node} is `{value}`, which is not an artifact of this object; reconcile the \
         object with the controller that provides it"
    ))
}

fn is_in(node: &ObjectKey, kind: &str, path: &str) -> bool {
    let Ok(slot) = ObjectFolder::new(kind, &node.namespace, &node.name) else { return false };
    path.strip_prefix(&slot.path())
        .and_then(|rest| rest.strip_prefix('/'))
        .is_some_and(|file| !file.is_empty() && !file.contains('/'))
}

/// Whether the URL of an ExternalArtifact does not lead to another namespace's artifact. Its provider may use any other URL.
fn is_not_of_another_namespace(node: &ObjectKey, url: &str) -> bool {
    of_url(url).is_none_or(|[kind, namespace, _]| {
        !KINDS.contains(&kind.as_str()) || namespace == node.namespace
    })
}

/// The kind, namespace and name in the path of an artifact's URL, in the layout of Flux and windlass. `None` if the URL has
/// another layout.
fn of_url(url: &str) -> Option<[String; 3]> {
    let url = Url::parse(url).ok()?;
    let path = percent_decode_str(url.path()).decode_utf8().ok()?.to_ascii_lowercase();
    // The path is decoded as a file server does: `//` is `/`, and `..` goes up.
    let mut parts = Vec::new();
    for part in path.split(['/', '\\']) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part.to_owned()),
        }
    }
    let _file = parts.pop()?;
    let name = parts.pop()?;
    let namespace = parts.pop()?;
    let kind = parts.pop()?;
    Some([kind, namespace, name])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn refusal(kind: &str, elsewhere: bool, path: &str, url: &str) -> String {
        let node = ObjectKey::new("source.toolkit.fluxcd.io", kind, "team", "app");
        let artifact: Artifact = serde_json::from_value(json!({
            "path": path, "url": url, "digest": "sha256:0", "revision": "1",
            "lastUpdateTime": "2026-01-01T00:00:00Z",
        }))
        .unwrap();
        check(&node, &artifact, elsewhere).err().unwrap_or_default()
    }

    #[test]
    fn a_path_in_the_store_is_of_the_object_whose_status_names_it() {
        let here = |kind: &str, path: &str| refusal(kind, false, path, "http://h/x");
        assert_eq!(here("Bucket", "bucket/team/app/1.tar.gz"), "");
        assert_eq!(here("ExternalArtifact", "httparchive/team/app/1.tar.gz"), "");
        assert_eq!(here("ExternalArtifact", "externalartifact/team/app/1.tar.gz"), "");
        assert_ne!(here("ExternalArtifact", "externalartifact/other/app/1.tar.gz"), "");
        for path in [
            "bucket/other/app/1.tar.gz",
            "bucket/team/app2/1.tar.gz",
            "bucket/team/app/../../other/app/1.tar.gz",
            "bucket/team/app/",
            "gitrepository/team/app/1.tar.gz",
            "/bucket/team/app/1.tar.gz",
            "",
        ] {
            assert!(here("Bucket", path).contains("status.artifact.path of"), "{path}");
        }
        assert_ne!(here("ExternalArtifact", "bucket/team/app/1.tar.gz"), "");
    }

    #[test]
    fn a_url_is_of_the_object_whose_status_names_it() {
        let there = |url: &str| refusal("Bucket", true, "bucket/team/app/1.tar.gz", url);
        assert_eq!(there("http://shard2.flux-system.svc:9090/bucket/team/app/1.tar.gz"), "");
        assert_eq!(there("http://h/behind/a/proxy/bucket/team/app/1.tar.gz"), "");
        for url in [
            "http://h/bucket/other/app/1.tar.gz",
            "http://h/bucket/other/app/latest.tar.gz?/bucket/team/app/1.tar.gz",
            "http://h/bucket/team/app/../../other/app/1.tar.gz",
            "http://h/bucket/team/app/%2e%2e/%2E%2E/other/app/1.tar.gz",
            "http://h/1.tar.gz",
            "nonsense",
        ] {
            assert!(there(url).contains("status.artifact.url of"), "{url}");
        }
    }

    #[test]
    fn what_others_provide_is_anywhere_but_where_other_tenants_artifacts_are() {
        let there = |url: &str| refusal("ExternalArtifact", true, "", url);
        for url in [
            "http://source-watcher.flux-system.svc/externalartifact/team/app/1.tar.gz",
            "http://source-controller.flux-system.svc/gitrepository/team/repo/1.tar.gz",
            "https://cdn.example.com/releases/v1/app.tar.gz",
            "https://cdn.example.com/a.tar.gz",
        ] {
            assert_eq!(there(url), "", "{url}");
        }
        for url in [
            "http://source-controller.flux-system.svc/gitrepository/other/repo/1.tar.gz",
            "http://source-controller.flux-system.svc//gitrepository//other/repo/1.tar.gz",
            "http://source-controller.flux-system.svc/gitrepository/o%74her/repo/1.tar.gz",
            "http://source-controller.flux-system.svc/x%2f..%2fGitRepository/other/repo/1.tar.gz",
            "http://h/bucket/other/x%2f..%2fapp/latest.tar.gz",
            "http://h/bucket/other/app/latest.tar.gz",
        ] {
            assert!(there(url).contains("status.artifact.url of"), "{url}");
        }
    }
}
