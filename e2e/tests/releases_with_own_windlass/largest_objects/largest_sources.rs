//! The largest accepted sources, ImagePolicies and Lifecycles.
//!
//! Elsewhere: the longest delay of a probe's answer, the largest objects of other kinds (`watchdog`).

use anyhow::Result;
use e2e::harness::flux_objects::NEVER;
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject, WindlassProcess};
use e2e::servers::web::FileWebServer;
use serde_json::{Value, json};

use super::{KUSTOMIZE_API, LargestObject, reconcile_each, texts};

const SOURCE_API: &str = "source.toolkit.fluxcd.io/v1";
const GENERATOR_API: &str = "source.extensions.fluxcd.io/v1beta1";
const IMAGE_API: &str = "image.toolkit.fluxcd.io/v1";
const LIFECYCLE_API: &str = "lifecycle.windlass.dev/v1alpha1";

/// The maximum number of ignore patterns.
const IGNORE_PATTERNS: usize = 20_000;

/// The number of files that are compared with each pattern.
const IGNORED_FILES: usize = 1_000;

/// The maximum number of artifacts that a generator may list.
const GENERATED_ARTIFACTS: usize = 1_000;

/// The number of tags of an image.
const IMAGE_TAGS: usize = 100_000;

/// The name of the Lifecycle, which is cluster-scoped.
const LARGEST_LIFECYCLE: &str = "watchdog-largest";

/// A GitRepository with many ignore patterns and many files.
fn git_repository(url: &str) -> LargestObject {
    let ignore: String = (0..IGNORE_PATTERNS).map(|at| format!("none-{at}/*.md\n")).collect();
    let spec = json!({"interval": NEVER, "url": url, "ref": {"branch": "main"}, "ignore": ignore});
    let message = Some("stored artifact for revision");
    LargestObject::new([SOURCE_API, "GitRepository", "ignored"], spec, message)
}

/// An ArtifactGenerator with many artifacts.
fn generator() -> LargestObject {
    let artifact = |at: usize| {
        json!({"name": format!("part-{at}"), "originRevision": "@app",
            "copy": [{"from": "@app/first/**", "to": "@artifact/"}]})
    };
    let artifacts: Vec<Value> = (0..GENERATED_ARTIFACTS).map(artifact).collect();
    let sources = json!([{"alias": "app", "kind": "GitRepository", "name": "app"}]);
    let spec = json!({"sources": sources, "artifacts": artifacts});
    let message = Some("generated 1000 artifact(s)");
    LargestObject::new([GENERATOR_API, "ArtifactGenerator", "split"], spec, message)
}

/// An ImageRepository with many tags, on a server that lists them.
fn image_repository(registry: &FileWebServer) -> LargestObject {
    let tags: Vec<String> = (0..IMAGE_TAGS).map(|at| format!("v1.0.{at}")).collect();
    registry.put("v2/", "{}");
    registry.put("v2/many/tags/list", json!({"name": "many", "tags": tags}).to_string());
    let image = format!("{}/many", registry.address());
    let spec = json!({"interval": NEVER, "image": image});
    LargestObject::new([IMAGE_API, "ImageRepository", "many"], spec, Some("successful scan"))
}

/// An ImagePolicy that compares all of these tags.
fn image_policy() -> LargestObject {
    let filter = json!({"pattern": "^v(?P<version>.*)$", "extract": "$version"});
    let spec = json!({"imageRepositoryRef": {"name": "many"}, "filterTags": filter,
        "policy": {"semver": {"range": ">=1.0.0"}}});
    LargestObject::new([IMAGE_API, "ImagePolicy", "many"], spec, Some("resolved to v1.0.99999"))
}

/// A Lifecycle with an expression of the maximum length.
fn lifecycle() -> LargestObject {
    let clause = "object.metadata.name.matches('^(a|b|first)*$')";
    let expression = vec![clause; 80].join(" && ");
    let wait = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "first",
        "expression": expression, "interval": "1s"});
    let spec =
        json!({"key": LARGEST_LIFECYCLE, "phases": ["PreInstall"], "handler": {"waitFor": wait}});
    LargestObject::new([LIFECYCLE_API, "Lifecycle", LARGEST_LIFECYCLE], spec, None)
}

/// The Kustomization that waits for the Lifecycle.
fn held_kustomization(namespace: &str) -> LargestObject {
    let spec = json!({"interval": NEVER, "prune": true, "path": "./held",
        "sourceRef": {"kind": "GitRepository", "name": "app"}, "targetNamespace": namespace});
    LargestObject::new([KUSTOMIZE_API, "Kustomization", "held"], spec, Some("Applied revision"))
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(
    not(feature = "thorough"),
    ignore = "takes minutes, and makes other stories late: cargo xtask test --thorough"
)]
async fn probes_are_answered_while_the_largest_sources_policies_and_lifecycles_are_reconciled()
-> Result<()> {
    let story = Story::begin("watchdog-sources").await?;
    let windlass = WindlassProcess::start_for(&story, &[]).await?;
    let mut files = vec![
        ("first/a.yaml".to_owned(), config_map("first", "1")),
        ("held/a.yaml".to_owned(), config_map("held", "1")),
    ];
    files.extend((0..IGNORED_FILES).map(|at| (format!("files/{at}.md"), at.to_string())));
    let files: Vec<(&str, String)> = files.iter().map(|(path, it)| (&**path, it.clone())).collect();
    let upstream = story.follow("app", &files).await?;
    story.kustomization("first", "app", json!({"path": "./first"})).await?;
    story.await_ready(&StoryObject::kustomization("first")).await?;
    let registry = FileWebServer::start().await?;
    let binding = json!({"apiVersion": LIFECYCLE_API, "kind": "LifecycleBinding", "metadata": {"name": "held"},
        "spec": {"lifecycle": LARGEST_LIFECYCLE, "subjects": [{"kind": "Kustomization", "name": "held"}],
            "parameters": texts("p", 16)}});
    story.apply_value(binding).await?;
    let all = vec![
        git_repository(&upstream.server.url(&upstream.repository)),
        generator(),
        image_repository(&registry),
        image_policy(),
        lifecycle(),
        held_kustomization(&story.namespace),
    ];
    reconcile_each(&story, &windlass, all).await?;
    story.delete(&StoryObject::new(LIFECYCLE_API, "Lifecycle", LARGEST_LIFECYCLE)).await?;
    story.end().await
}
