//! Each applier kind depends on each applier kind and on a source. An object is applied after its dependency and deleted before
//! it. The audit log of the API server shows the order.
//!
//! One commit applies all pairs, and another one removes them. Elsewhere: the messages of waiting objects
//! (`stories/dependencies.rs`), deletions by users, and which dependents delay a deletion (`stories/reverse_deletion.rs`).

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::harness::audited_writes::AuditedWriteRequest;
use e2e::harness::charts_and_helm_releases::CONFIG;
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, NEVER, condition};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject, WindlassProcess};
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::lifecycle_matrix::{CHART, HELMFILE, MatrixApplierKind};

/// How long a step of a pair may take while all others run beside it.
const PATIENCE: Duration = DEFAULT_WAIT_TIMEOUT.saturating_mul(2);

const SOURCE_API: &str = "source.toolkit.fluxcd.io/v1";

const KINDS: [MatrixApplierKind; 3] =
    [MatrixApplierKind::Kustomization, MatrixApplierKind::HelmRelease, MatrixApplierKind::Helmfile];

/// The kind of the dependency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NeededKind {
    Applier(MatrixApplierKind),
    GitRepository,
}

/// An object that depends on another one.
#[derive(Debug, Clone, Copy)]
struct DependencyKindPair {
    dependent: MatrixApplierKind,
    needed: NeededKind,
}

fn pairs() -> Vec<DependencyKindPair> {
    let needed = KINDS.map(NeededKind::Applier).into_iter().chain([NeededKind::GitRepository]);
    let needed: Vec<NeededKind> = needed.collect();
    let of = |dependent| needed.iter().map(move |&needed| DependencyKindPair { dependent, needed });
    KINDS.into_iter().flat_map(of).collect()
}

fn short(kind: MatrixApplierKind) -> &'static str {
    match kind {
        MatrixApplierKind::Kustomization => "ks",
        MatrixApplierKind::HelmRelease => "hr",
        MatrixApplierKind::Helmfile => "hf",
    }
}

impl DependencyKindPair {
    /// The name of the dependent.
    fn name(&self) -> String {
        let needed = match self.needed {
            NeededKind::Applier(kind) => short(kind),
            NeededKind::GitRepository => "git",
        };
        format!("{}-on-{needed}", short(self.dependent))
    }

    fn needed_name(&self) -> String {
        format!("{}-base", self.name())
    }

    fn dependent_target(&self) -> StoryObject {
        self.dependent.target(&self.name())
    }

    fn needed_target(&self) -> StoryObject {
        let name = self.needed_name();
        match self.needed {
            NeededKind::Applier(kind) => kind.target(&name),
            NeededKind::GitRepository => StoryObject::git_repository(&name),
        }
    }

    /// Both objects of the pair.
    fn objects(&self, namespace: &str, url: &str) -> [Value; 2] {
        let name = self.needed_name();
        let needed = match self.needed {
            NeededKind::Applier(kind) => kind.object(namespace, &name, "one"),
            NeededKind::GitRepository => json!({"apiVersion": SOURCE_API, "kind": "GitRepository",
                "metadata": {"name": name},
                "spec": {"interval": NEVER, "url": url, "ref": {"branch": "main"}}}),
        };
        let mut dependent = self.dependent.object(namespace, &self.name(), "one");
        let entry = json!({"apiVersion": needed["apiVersion"], "kind": needed["kind"], "name": name,
            "ready": true});
        dependent["spec"]["dependsOn"] = json!([entry]);
        [dependent, needed]
    }

    /// The files of both objects, below the folder of the Kustomization that applies them.
    fn files(&self, namespace: &str, url: &str) -> [(String, String); 2] {
        self.objects(namespace, url).map(|object| {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            (format!("root/{name}.yaml"), format!("{object}\n"))
        })
    }

    /// Checks that the dependency was created before the dependent and removed after it.
    fn ensure_order(&self, log: &AuditedOrder) -> Result<()> {
        let config = format!("{}-config", self.name());
        let needed = format!("{}-config", self.needed_name());
        let removed = log.first_change(&format!("removed configmaps/{config}"))?;
        let is_in_order = match self.needed {
            NeededKind::Applier(_) => {
                let created = |name: &str| log.first_change(&format!("created configmaps/{name}"));
                ensure!(created(&needed)? < created(&config)?, "it was applied too early");
                removed < log.first_change(&format!("removed configmaps/{needed}"))?
            }
            // The finalizer of the object itself may wait for the dependent.
            NeededKind::GitRepository => {
                removed < log.last_request(&format!("gitrepositories/{}", self.needed_name()))?
            }
        };
        ensure!(is_in_order, "what it depends on was deleted before it");
        Ok(())
    }
}

/// What windlass did, with the times of the requests.
struct AuditedOrder {
    changes: Vec<(String, String)>,
    requests: Vec<AuditedWriteRequest>,
}

impl AuditedOrder {
    async fn read(story: &Story) -> Result<Self> {
        story.await_log().await?;
        let mut changes = story.timed_changes()?;
        changes.sort();
        Ok(Self { changes, requests: story.writes()? })
    }

    fn first_change(&self, wanted: &str) -> Result<&str> {
        let found = self.changes.iter().find(|(_, change)| change == wanted);
        found.map(|(at, _)| at.as_str()).with_context(|| format!("windlass never `{wanted}`"))
    }

    /// The last request about an object or its status. If the object was deleted, this request completed the deletion.
    fn last_request(&self, object: &str) -> Result<&str> {
        let found = self.requests.iter().rfind(|it| it.what.contains(object));
        found.map(|it| it.at.as_str()).with_context(|| format!("windlass never wrote {object}"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_is_applied_after_and_deleted_before_each_kind_that_it_depends_on() -> Result<()>
{
    let story = Story::begin("kind-pairs").await?;
    let _windlass = WindlassProcess::start_for(&story, &[]).await?;
    let policy = story.without_deletion_budget().await?;
    let first = [
        ("app/Chart.yaml", CHART.to_owned()),
        ("app/templates/config.yaml", CONFIG.to_owned()),
        ("helmfile.yaml.gotmpl", HELMFILE.to_owned()),
        ("one/config.yaml", config_map("config", "one")),
        ("root/kept.yaml", config_map("kept", "1")),
    ];
    let upstream = story.follow("shop", &first).await?;
    story.kustomization("root", "shop", json!({"path": "./root"})).await?;
    let root = StoryObject::kustomization("root");
    story.await_ready(&root).await?;

    let pairs = pairs();
    let source = story.expect(&StoryObject::git_repository("shop")).await?;
    let url = source.data["spec"]["url"].as_str().context("the source has a URL")?;
    let files: Vec<(String, String)> =
        pairs.iter().flat_map(|pair| pair.files(&story.namespace, url)).collect();
    let files: Vec<(&str, String)> =
        files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    upstream.push(&files).await?;
    let is_ready = |object: &DynamicObject| condition(object, "Ready")["status"] == "True";
    for pair in &pairs {
        for target in [pair.needed_target(), pair.dependent_target()] {
            story.await_object(&target, PATIENCE, is_ready).await?;
        }
    }

    let paths: Vec<&str> = files.iter().map(|(path, _)| *path).collect();
    upstream.remove(&paths).await?;
    for pair in &pairs {
        for target in [pair.dependent_target(), pair.needed_target()] {
            story.await_gone(&target, PATIENCE).await?;
        }
    }
    story.await_value("kept", "1").await?;
    let log = AuditedOrder::read(&story).await?;
    for pair in &pairs {
        pair.ensure_order(&log).with_context(|| pair.name())?;
    }
    story.delete(&policy).await?;
    story.end().await
}
