//! Commits that remove objects from the manifests: a Kustomization is renamed, a folder is emptied, or a Namespace is removed.
//!
//! Here: the commits, and how windlass reacts. Elsewhere: how Flux reacts (`super::objects_lost_with_flux`).

use anyhow::{Result, ensure};
use e2e::harness::flux_objects::FollowedGitRepository;
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject};
use serde_json::{Value, json};

use super::{
    COUNT, ConfigMapUids, ROOT, await_deletion_held, borrowed, ensure_nothing_is_lost, files, map,
    reconcile, uids, windlass,
};

/// A commit that removes objects from the manifests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommitDisaster {
    /// A Kustomization that another one applies is renamed.
    RenamedKustomization,
    /// The folder still exists but contains no manifests.
    EmptiedFolder,
    /// The manifests of a Namespace and of its objects are removed. A user created one more object in it.
    RemovedNamespace,
}

/// The objects before such a commit, all of them Ready.
pub(super) struct CommitDisasterSetup<'s> {
    story: &'s Story,
    disaster: CommitDisaster,
    upstream: FollowedGitRepository<'s>,
    /// The namespace of the objects.
    pub(super) place: String,
    /// The objects.
    pub(super) before: ConfigMapUids,
}

/// A Kustomization that another one applies.
fn child(name: &str, namespace: &str) -> String {
    json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": {"name": name},
        "spec": {"interval": "1h", "path": "./apps", "prune": true, "targetNamespace": namespace,
            "sourceRef": {"kind": "GitRepository", "name": "app"}}})
    .to_string()
}

fn config_map_in(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace}, "data": {"value": "1"}})
}

/// The files of the objects in a namespace.
fn files_in(namespace: &str) -> Vec<(String, String)> {
    let file = |at: usize| {
        (format!("root/{}.yaml", map(at)), config_map_in(namespace, &map(at)).to_string())
    };
    (0..COUNT).map(file).collect()
}

impl CommitDisaster {
    /// The namespace of the objects, for a story in this namespace.
    fn place(self, namespace: &str) -> String {
        match self {
            Self::RenamedKustomization | Self::EmptiedFolder => namespace.to_owned(),
            Self::RemovedNamespace => format!("{namespace}-inner"),
        }
    }

    /// The files of the repository before the commit.
    fn first(self, namespace: &str) -> Vec<(String, String)> {
        let file = |path: &str, text: String| (path.to_owned(), text);
        match self {
            Self::RenamedKustomization => {
                let mut all = files("apps/");
                all.push(file("root/apps.yaml", child("apps", namespace)));
                all
            }
            Self::EmptiedFolder => {
                let mut all = files("root/");
                all.push(file("root/README.md", "What keeps the folder.\n".to_owned()));
                all
            }
            Self::RemovedNamespace => {
                let place = self.place(namespace);
                let mut all = files_in(&place);
                let object =
                    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place}});
                all.push(file("root/namespace.yaml", object.to_string()));
                all.push(file("root/kept.yaml", config_map_in(namespace, "kept").to_string()));
                all
            }
        }
    }
}

impl<'s> CommitDisasterSetup<'s> {
    /// Lets the operator in the story's namespace apply everything.
    pub(super) async fn set(story: &'s Story, disaster: CommitDisaster) -> Result<Self> {
        let namespace = &story.namespace;
        let upstream = story.follow("app", &borrowed(&disaster.first(namespace))).await?;
        let target = (disaster != CommitDisaster::RemovedNamespace).then_some(namespace);
        let spec = json!({"path": "./root", "targetNamespace": target});
        story.kustomization(ROOT, "app", spec).await?;
        story.await_ready(&StoryObject::kustomization(ROOT)).await?;
        let place = disaster.place(namespace);
        let mut count = COUNT;
        match disaster {
            CommitDisaster::RenamedKustomization => {
                story.await_ready(&StoryObject::kustomization("apps")).await?;
            }
            CommitDisaster::RemovedNamespace => {
                story.apply_value(config_map_in(&place, "by-hand")).await?;
                count += 1;
            }
            CommitDisaster::EmptiedFolder => {}
        }
        let before = uids(story, &place).await?;
        ensure!(before.len() == count, "{before:?}");
        Ok(Self { story, disaster, upstream, place, before })
    }

    /// Pushes the commit. Returns the revision.
    pub(super) async fn happen(&self) -> Result<String> {
        let mut gone: Vec<String> = (0..COUNT).map(|at| format!("root/{}.yaml", map(at))).collect();
        match self.disaster {
            CommitDisaster::RenamedKustomization => {
                let renamed = child("applications", &self.story.namespace);
                return self.upstream.push(&[("root/apps.yaml", renamed)]).await;
            }
            CommitDisaster::RemovedNamespace => gone.push("root/namespace.yaml".to_owned()),
            CommitDisaster::EmptiedFolder => {}
        }
        let gone: Vec<&str> = gone.iter().map(String::as_str).collect();
        self.upstream.remove(&gone).await
    }

    /// Deletes the namespace with the objects of the story, if it is not the story's own namespace.
    pub(super) async fn clear(&self) {
        if self.place != self.story.namespace {
            // With Flux, the namespace is already deleted.
            self.story.delete(&StoryObject::new("v1", "Namespace", &self.place)).await.ok();
        }
    }
}

async fn loses_nothing(name: &str, disaster: CommitDisaster) -> Result<()> {
    let story = Story::begin(name).await?;
    let (proxy, _windlass) = windlass(&story).await?;
    let stage = CommitDisasterSetup::set(&story, disaster).await?;
    let revision = stage.happen().await?;
    story.await_applied(ROOT, &revision).await?;
    await_deletion_held(&story, ROOT).await?;
    if disaster == CommitDisaster::RenamedKustomization {
        // Both Kustomizations exist, and neither takes the objects from the other.
        story.await_ready(&StoryObject::kustomization("applications")).await?;
        let former = story.expect(&StoryObject::kustomization("apps")).await?;
        ensure!(former.metadata.deletion_timestamp.is_none(), "apps is being deleted");
    }
    ensure_nothing_is_lost(&story, &proxy, &stage.place, &stage.before).await?;
    reconcile(&story, &StoryObject::kustomization(ROOT)).await?;
    ensure_nothing_is_lost(&story, &proxy, &stage.place, &stage.before).await?;
    stage.clear().await;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kustomization_that_is_renamed_loses_no_object() -> Result<()> {
    loses_nothing("lost-renamed", CommitDisaster::RenamedKustomization).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_is_emptied_loses_no_object() -> Result<()> {
    loses_nothing("lost-emptied", CommitDisaster::EmptiedFolder).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_leaves_the_manifests_loses_no_object_of_any_user() -> Result<()> {
    loses_nothing("lost-namespace", CommitDisaster::RemovedNamespace).await
}

/// A build without objects is beyond the budget, however few objects there were.
#[tokio::test(flavor = "multi_thread")]
async fn a_folder_of_one_object_that_is_emptied_loses_no_object() -> Result<()> {
    let story = Story::begin("lost-one").await?;
    let (proxy, _windlass) = windlass(&story).await?;
    let first =
        [("app/one.yaml", config_map("one", "1")), ("app/README.md", "the folder\n".to_owned())];
    let upstream = story.follow("app", &first).await?;
    story.kustomization(ROOT, "app", json!({"path": "./app"})).await?;
    let root = StoryObject::kustomization(ROOT);
    story.await_ready(&root).await?;
    let before = uids(&story, &story.namespace).await?;
    ensure!(before.len() == 1, "{before:?}");
    let revision = upstream.remove(&["app/one.yaml"]).await?;
    story.await_applied(ROOT, &revision).await?;
    await_deletion_held(&story, ROOT).await?;
    ensure_nothing_is_lost(&story, &proxy, &story.namespace, &before).await?;
    reconcile(&story, &root).await?;
    ensure_nothing_is_lost(&story, &proxy, &story.namespace, &before).await?;
    story.end().await
}

/// A folder that does not exist is an error, so not even deletions within the budget happen.
#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_is_moved_away_loses_no_object() -> Result<()> {
    let story = Story::begin("lost-moved").await?;
    let (proxy, _windlass) = windlass(&story).await?;
    let first = [("app/one.yaml", config_map("one", "1")), ("kept.txt", "kept\n".to_owned())];
    let upstream = story.follow("app", &first).await?;
    story.kustomization(ROOT, "app", json!({"path": "./app"})).await?;
    let root = StoryObject::kustomization(ROOT);
    story.await_ready(&root).await?;
    let before = uids(&story, &story.namespace).await?;
    ensure!(before.len() == 1, "{before:?}");
    upstream.repository.delete(&["app/one.yaml"], "it moves")?;
    upstream.push(&[("moved/one.yaml", config_map("one", "1"))]).await?;
    story.await_failure(&root, "ArtifactFailed").await?;
    ensure_nothing_is_lost(&story, &proxy, &story.namespace, &before).await?;
    story.end().await
}
