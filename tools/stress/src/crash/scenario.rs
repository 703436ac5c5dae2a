//! The scenarios in which windlass is killed. Each new operation of windlass gets a scenario here.
//!
//! This module says what a scenario is, and sets up its namespace and repository. The submodules have the scenarios,
//! and `super` lists them.

pub(super) mod change_set;
pub(super) mod crds;
pub(super) mod helm_release;
pub(super) mod helmfile;
pub(super) mod images;
pub(super) mod kustomization;
pub(super) mod lifecycle;
pub(super) mod plan;
pub(super) mod quarantine;
pub(super) mod reverse_delete;
pub(super) mod staged_rollout;

use e2e::git_server::{GitReadAccess, GitServer, StoryGitRepository};
use e2e::harness::{Story, StoryObject};
use kube::core::ApiResource;
use serde_json::json;

use crate::inventory_ownership::OwnerKind;

/// The GitRepository of every scenario.
pub(super) const SOURCE_NAME: &str = "work";

/// Work in acts. A user begins each act, and windlass finishes it however often it is killed.
pub(super) trait CrashScenario: Default {
    /// The name of the scenario for `--scenario`.
    const NAME: &'static str;

    /// The names of its acts, in order. The last act deletes everything.
    const ACTS: &'static [&'static str];

    /// Whether an inventory has an object before the object is applied. It is false for releases, because Helm's
    /// records have their objects.
    const RECORDS_FIRST: bool;

    /// The kinds of the scenario's objects in a namespace.
    fn kinds(&self, namespace: &str) -> Vec<ApiResource>;

    /// The kind that owns the scenario's objects.
    fn owner(&self) -> OwnerKind;

    /// Checks the scenario's own laws at the end, and returns the violations.
    fn judge(&self, _stage: &CrashScenarioSetup) -> anyhow::Result<Vec<String>> {
        Ok(Vec::new())
    }

    /// Further names of this run that differ between runs, besides its namespace and commits.
    fn names(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether windlass may request the deletion of the named object in an act.
    fn may_delete(&self, act: usize, namespace: &str, name: &str) -> bool;

    /// Does the user's part of an act. It does not wait for windlass.
    async fn begin(&self, act: usize, stage: &mut CrashScenarioSetup) -> anyhow::Result<()>;

    /// Whether windlass reports that the act is done.
    async fn is_done(&self, act: usize, stage: &CrashScenarioSetup) -> anyhow::Result<bool>;
}

/// The namespace and the repository of a run.
pub(super) struct CrashScenarioSetup {
    /// The namespace of the run, with its test bed.
    pub(super) story: Story,
    /// The Git server of the repository.
    pub(super) server: GitServer,
    /// The repository of the run.
    pub(super) repository: StoryGitRepository,
    /// The revisions of the user's commits so far.
    pub(super) revisions: Vec<String>,
}

impl CrashScenarioSetup {
    /// Creates a namespace and an empty repository.
    pub(super) async fn set(name: &str) -> anyhow::Result<Self> {
        let story = Story::begin(name).await?;
        let server = GitServer::start(GitReadAccess::Open)?;
        let repository = server.repository("work")?;
        Ok(Self { story, server, repository, revisions: Vec::new() })
    }

    /// Commits files. It does not request a reconciliation of the source.
    pub(super) fn commit(&mut self, files: &[(String, String)]) -> anyhow::Result<()> {
        let files: Vec<(&str, &str)> =
            files.iter().map(|(path, text)| (&**path, &**text)).collect();
        self.revisions.push(self.repository.commit(&files, "a change")?);
        Ok(())
    }

    /// All commits of the branch, the oldest first. They are those of the user and those that windlass pushed.
    pub(super) fn commits(&self) -> anyhow::Result<Vec<String>> {
        let listed = self.repository.git(&["rev-list", "--reverse", "main"])?;
        Ok(listed.lines().map(str::to_owned).collect())
    }

    /// The user's newest commit, as the status of a source names it.
    pub(super) fn revision(&self) -> String {
        e2e::harness::flux_objects::revision(self.revisions.last().map_or("", String::as_str))
    }

    /// Creates the GitRepository of the scenario.
    pub(super) async fn create_source(&self) -> anyhow::Result<()> {
        let url = self.server.url(&self.repository);
        self.story.git_repository(SOURCE_NAME, &url, json!({})).await
    }

    /// Requests a reconciliation of the GitRepository.
    pub(super) async fn request_source(&self) -> anyhow::Result<()> {
        self.story.request(&StoryObject::git_repository(SOURCE_NAME)).await.map(drop)
    }

    /// Deletes the GitRepository of the scenario.
    pub(super) async fn delete_source(&self) -> anyhow::Result<()> {
        self.story.delete(&StoryObject::git_repository(SOURCE_NAME)).await
    }

    /// Whether the GitRepository no longer exists.
    pub(super) async fn source_is_gone(&self) -> anyhow::Result<bool> {
        Ok(self.story.read(&StoryObject::git_repository(SOURCE_NAME)).await?.is_none())
    }

    /// The objects of these resources that were created more than once, as violations.
    pub(super) fn created_again(&self, plurals: &[&str]) -> anyhow::Result<Vec<String>> {
        let counts = self.story.creations(plurals)?;
        let again = counts.into_iter().filter(|(_, count)| *count > 1);
        Ok(again.map(|(name, count)| format!("{name} was created {count} times")).collect())
    }
}
