//! An automation commits new tags of an image to the repository, and a Kustomization applies the commits.
//!
//! A first and a second tag come out. A third one comes while the automation is suspended, so it waits until the
//! automation is resumed. The last act removes everything. This module has the objects, the user's part and end of
//! each act, and the law about commits. `e2e/tests/images/automation.rs` and `sources/git/tests/git_loopback` test
//! pushes that lose against another writer or whose answer is lost.
//!
//! Cuts are made at writes to the API server (`e2e::api_server_fault_proxy`), and a push is none of these. A kill between a push
//! and the status is covered all the same, because a run writes the status right after its push. The cut before that
//! write kills windlass when the Git server has the commit and no status names it. The cut after the previous write
//! kills windlass at some moment of the fetch or the push.

use std::cell::RefCell;
use std::sync::OnceLock;

use anyhow::{Context as _, bail};
use e2e::harness::flux_objects::{NEVER, REQUESTED_AT, condition, revision};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject};
use e2e::servers::registry::RegistryServer;
use kube::api::DynamicObject;
use kube::core::ApiResource;
use serde_json::{Value, json};

use super::{CrashScenario, CrashScenarioSetup, SOURCE_NAME};
use crate::inventory_ownership::{OwnerKind, kind};

/// A scenario of an image whose new tags reach the cluster. An ImagePolicy chooses a tag, an ImageUpdateAutomation
/// pushes it to the GitRepository, and a Kustomization applies the commit.
#[derive(Default)]
pub(in crate::crash) struct Images {
    registry: OnceLock<RegistryServer>,
    /// The last commit of windlass for which the scenario notified the GitRepository, as a webhook of the Git server
    /// would.
    announced: RefCell<String>,
}

const API: &str = "image.toolkit.fluxcd.io/v1";

/// The name of the image in the registry.
const IMAGE: &str = "team/app";

/// The name of every object except the GitRepository.
const NAME: &str = "app";

/// A file with a marker for the policy, and a file without one.
const FILES: [&str; 2] = ["app/settings.yaml", "app/note.yaml"];

/// The file's tag before windlass changes it, and the tags that come out, in order.
const TAGS: [&str; 4] = ["0.9.0", "1.0.0", "1.1.0", "1.2.0"];

/// The latest tag at the end of each act.
const LATEST_TAGS: [&str; 5] = ["1.0.0", "1.0.0", "1.1.0", "1.2.0", "1.2.0"];

/// The tag that the file has at the end of each act.
const COMMITTED_TAGS: [&str; 5] = ["0.9.0", "1.0.0", "1.1.0", "1.1.0", "1.2.0"];

/// The act in which everything is removed.
const REMOVAL_ACT: usize = 5;

fn image_repository() -> StoryObject {
    StoryObject::new(API, "ImageRepository", NAME)
}

fn image_policy() -> StoryObject {
    StoryObject::new(API, "ImagePolicy", NAME)
}

fn automation() -> StoryObject {
    StoryObject::new(API, "ImageUpdateAutomation", NAME)
}

impl CrashScenario for Images {
    const NAME: &'static str = "images";
    const ACTS: &'static [&'static str] =
        &["install", "automate", "new tag", "new tag while suspended", "resume", "delete"];
    const RECORDS_FIRST: bool = true;

    fn kinds(&self, _: &str) -> Vec<ApiResource> {
        vec![kind("v1", "ConfigMap")]
    }

    fn owner(&self) -> OwnerKind {
        OwnerKind::kustomization()
    }

    fn names(&self) -> Vec<String> {
        self.registry.get().map(|registry| registry.host().to_owned()).into_iter().collect()
    }

    /// Checks that each tag has exactly one commit, and that the commit changes only the tag.
    fn judge(&self, stage: &CrashScenarioSetup) -> anyhow::Result<Vec<String>> {
        let mut problems = Vec::new();
        let mut tags = Vec::new();
        for commit in stage.commits()? {
            let text = stage.repository.git(&["show", &format!("{commit}:{}", FILES[0])])?;
            let is_of = |tag: &&str| self.settings(stage, tag).is_ok_and(|it| it.trim() == text);
            match TAGS.iter().copied().find(is_of) {
                Some(tag) => tags.push(tag),
                None => problems.push(format!("commit {commit} made {} to be:\n{text}", FILES[0])),
            }
        }
        if tags != TAGS {
            problems.push(format!("the commits have the tags {tags:?} instead of {TAGS:?}"));
        }
        let first = stage.revisions.first().context("nothing was committed")?;
        let changed = stage.repository.git(&["diff", "--name-only", first, "main"])?;
        if changed != FILES[0] {
            problems.push(format!("the commits change {changed:?} instead of {}", FILES[0]));
        }
        Ok(problems)
    }

    fn may_delete(&self, act: usize, _: &str, _: &str) -> bool {
        act == REMOVAL_ACT
    }

    async fn begin(&self, act: usize, stage: &mut CrashScenarioSetup) -> anyhow::Result<()> {
        match act {
            0 => {
                let registry = RegistryServer::start().await?;
                self.registry.set(registry).ok().context("there is a registry already")?;
                self.push(TAGS[1]).await?;
                let settings = (FILES[0].to_owned(), self.settings(stage, TAGS[0])?);
                let note = (FILES[1].to_owned(), config_map("note", "1"));
                stage.commit(&[settings, note])?;
                stage.create_source().await?;
                stage.story.kustomization(NAME, SOURCE_NAME, json!({"path": "./app"})).await?;
                let image = json!({"interval": NEVER, "image": self.image()?});
                apply(&stage.story, "ImageRepository", image).await?;
                let policy = json!({"imageRepositoryRef": {"name": NAME},
                    "policy": {"semver": {"range": "*"}}});
                apply(&stage.story, "ImagePolicy", policy).await
            }
            1 => {
                let author = json!({"name": "Bot", "email": "bot@example.com"});
                let spec = json!({"interval": NEVER,
                    "sourceRef": {"kind": "GitRepository", "name": SOURCE_NAME},
                    "update": {"path": "./app", "strategy": "Setters"},
                    "git": {"commit": {"author": author}}});
                apply(&stage.story, "ImageUpdateAutomation", spec).await
            }
            2 => self.release(&stage.story, TAGS[2]).await,
            3 => {
                suspend(&stage.story, true).await?;
                self.release(&stage.story, TAGS[3]).await
            }
            4 => suspend(&stage.story, false).await,
            REMOVAL_ACT => {
                for target in [
                    automation(),
                    image_policy(),
                    image_repository(),
                    StoryObject::kustomization(NAME),
                ] {
                    stage.story.delete(&target).await?;
                }
                stage.delete_source().await
            }
            _ => bail!("there is no act {act}"),
        }
    }

    async fn is_done(&self, act: usize, stage: &CrashScenarioSetup) -> anyhow::Result<bool> {
        let story = &stage.story;
        let images = [story.read(&image_repository()).await?, story.read(&image_policy()).await?];
        let automation = story.read(&automation()).await?;
        let app = story.read(&StoryObject::kustomization(NAME)).await?;
        if act == REMOVAL_ACT {
            let mut objects = images.iter().chain([&automation, &app]);
            return Ok(objects.all(Option::is_none) && stage.source_is_gone().await?);
        }
        let latest = *LATEST_TAGS.get(act).context("there is no such act")?;
        let committed = *COMMITTED_TAGS.get(act).context("there is no such act")?;
        let [Some(repository), Some(policy)] = images else { return Ok(false) };
        let is_chosen = policy.data["status"]["latestRef"]["tag"] == latest;
        if !(is_chosen && is_ready(&policy) && is_ready(&repository) && is_handled(&repository)) {
            return Ok(false);
        }
        let file = stage.repository.git(&["show", &format!("main:{}", FILES[0])])?;
        if file != self.settings(stage, committed)?.trim() {
            return Ok(false);
        }
        let commit = stage.repository.hash("main")?;
        let is_suspended = latest != committed;
        if !is_suspended && automation.is_none_or(|it| !is_committed(&it, latest, &commit)) {
            return Ok(false);
        }
        self.announce(stage, &commit).await?;
        let revision = revision(&commit);
        let is_applied = app.is_some_and(|it| {
            is_ready(&it) && it.data["status"]["lastAppliedRevision"] == revision
        });
        let settings = story.read(&StoryObject::config_map("settings")).await?;
        let value = format!("{}:{committed}", self.image()?);
        Ok(is_applied && settings.is_some_and(|it| it.data["data"]["value"] == value))
    }
}

impl Images {
    fn registry(&self) -> anyhow::Result<&RegistryServer> {
        self.registry.get().context("the registry was not started")
    }

    /// The image's name in objects and files.
    fn image(&self) -> anyhow::Result<String> {
        Ok(format!("{}/{IMAGE}", self.registry()?.host()))
    }

    /// The file with a tag. It has formatting that a program would lose if it wrote the whole file anew.
    fn settings(&self, stage: &CrashScenarioSetup, tag: &str) -> anyhow::Result<String> {
        let policy = json!({"$imagepolicy": format!("{}:{NAME}", stage.story.namespace)});
        let image = self.image()?;
        Ok(format!(
            "# Settings of the application.\napiVersion: v1\nkind: ConfigMap\nmetadata:   {{name: settings}}\n\n\
             data:\n    value:   {image}:{tag} # {policy}\n"
        ))
    }

    async fn push(&self, tag: &str) -> anyhow::Result<()> {
        let registry = self.registry()?;
        registry.push_files(IMAGE, tag, &[("a.yaml", tag)], json!({})).await.map(drop)
    }

    /// Pushes a new tag to the registry, and requests a scan.
    async fn release(&self, story: &Story, tag: &str) -> anyhow::Result<()> {
        self.push(tag).await?;
        story.request(&image_repository()).await.map(drop)
    }

    /// Requests a reconciliation of the GitRepository, once for each commit that windlass pushed.
    async fn announce(&self, stage: &CrashScenarioSetup, commit: &str) -> anyhow::Result<()> {
        let is_of_user = stage.revisions.iter().any(|it| it == commit);
        if is_of_user || *self.announced.borrow() == commit {
            return Ok(());
        }
        self.announced.replace(commit.to_owned());
        stage.request_source().await
    }
}

async fn apply(story: &Story, kind: &str, spec: Value) -> anyhow::Result<()> {
    let metadata = json!({"name": NAME});
    let object = json!({"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec});
    story.apply_value(object).await.map(drop)
}

async fn suspend(story: &Story, is_suspended: bool) -> anyhow::Result<()> {
    story.merge(&automation(), json!({"spec": {"suspend": is_suspended}})).await.map(drop)
}

fn is_ready(object: &DynamicObject) -> bool {
    let ready = condition(object, "Ready");
    ready["status"] == "True" && ready["observedGeneration"].as_i64() == object.metadata.generation
}

/// Whether the last request to reconcile the object was handled. It is true without a request.
fn is_handled(object: &DynamicObject) -> bool {
    let annotations = object.metadata.annotations.as_ref();
    let requested = annotations.and_then(|annotations| annotations.get(REQUESTED_AT));
    let handled = &object.data["status"]["lastHandledReconcileAt"];
    requested.is_none_or(|requested| handled == requested)
}

/// Whether the status of the automation says that this commit has the latest tag.
fn is_committed(automation: &DynamicObject, latest: &str, commit: &str) -> bool {
    let status = &automation.data["status"];
    is_ready(automation)
        && status["observedPolicies"][NAME]["tag"] == latest
        && status["observedSourceRevision"] == revision(commit)
}
