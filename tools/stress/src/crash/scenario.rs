//! The work that is cut into. An operation that windlass learns gets a scenario here.
//!
//! Here: what a scenario is, and what it is played on. Elsewhere: the scenarios themselves, their list (`super`).

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

use crate::ownership::OwnerKind;

/// The GitRepository of every scenario.
pub(super) const SOURCE_NAME: &str = "work";

/// Work in acts. Each act is begun by a user, and done by windlass however often it dies.
pub(super) trait CrashScenario: Default {
    /// What `--scenario` calls it.
    const NAME: &'static str;

    /// Its acts, in order. After the last one nothing of it is left.
    const ACTS: &'static [&'static str];

    /// Whether inventories have objects before these are applied; otherwise the records of releases do.
    const RECORDS_FIRST: bool;

    /// The kinds that its objects have, in a namespace.
    fn kinds(&self, namespace: &str) -> Vec<ApiResource>;

    /// Whose its objects are.
    fn owner(&self) -> OwnerKind;

    /// Further violations of the scenario's own laws, judged at the end.
    fn judge(&self, _stage: &ScenarioStage) -> anyhow::Result<Vec<String>> {
        Ok(Vec::new())
    }

    /// Further names of this run, besides its namespace and its commits, that differ in other runs.
    fn names(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether windlass may ask for the deletion of the object of this name in an act.
    fn may_delete(&self, act: usize, namespace: &str, name: &str) -> bool;

    /// Does what the user does; it does not wait for windlass.
    async fn begin(&self, act: usize, stage: &mut ScenarioStage) -> anyhow::Result<()>;

    /// Whether windlass says that the act is done.
    async fn is_done(&self, act: usize, stage: &ScenarioStage) -> anyhow::Result<bool>;
}

/// A namespace and a repository.
pub(super) struct ScenarioStage {
    /// The namespace.
    pub(super) story: Story,
    /// Serves the repository.
    pub(super) server: GitServer,
    /// The only one.
    pub(super) repository: StoryGitRepository,
    /// The commits of the user so far.
    pub(super) revisions: Vec<String>,
}

impl ScenarioStage {
    /// An empty stage.
    pub(super) async fn set(name: &str) -> anyhow::Result<Self> {
        let story = Story::begin(name).await?;
        let server = GitServer::start(GitReadAccess::Open)?;
        let repository = server.repository("work")?;
        Ok(Self { story, server, repository, revisions: Vec::new() })
    }

    /// Commits files, without a request to reconcile the source.
    pub(super) fn commit(&mut self, files: &[(String, String)]) -> anyhow::Result<()> {
        let files: Vec<(&str, &str)> =
            files.iter().map(|(path, text)| (&**path, &**text)).collect();
        self.revisions.push(self.repository.commit(&files, "a change")?);
        Ok(())
    }

    /// All commits of the branch, the oldest first: those of the user, and those that windlass pushed.
    pub(super) fn commits(&self) -> anyhow::Result<Vec<String>> {
        let listed = self.repository.git(&["rev-list", "--reverse", "main"])?;
        Ok(listed.lines().map(str::to_owned).collect())
    }

    /// The user's newest commit as a status has it.
    pub(super) fn revision(&self) -> String {
        e2e::harness::flux::revision(self.revisions.last().map_or("", String::as_str))
    }

    /// Creates the GitRepository.
    pub(super) async fn create_source(&self) -> anyhow::Result<()> {
        let url = self.server.url(&self.repository);
        self.story.git_repository(SOURCE_NAME, &url, json!({})).await
    }

    /// Has the GitRepository reconciled.
    pub(super) async fn request_source(&self) -> anyhow::Result<()> {
        self.story.request(&StoryObject::git_repository(SOURCE_NAME)).await.map(drop)
    }

    /// Deletes the GitRepository.
    pub(super) async fn delete_source(&self) -> anyhow::Result<()> {
        self.story.delete(&StoryObject::git_repository(SOURCE_NAME)).await
    }

    /// Whether the GitRepository is gone.
    pub(super) async fn source_is_gone(&self) -> anyhow::Result<bool> {
        Ok(self.story.read(&StoryObject::git_repository(SOURCE_NAME)).await?.is_none())
    }

    /// Objects of these plurals that were created more than once, as problems.
    pub(super) fn created_again(&self, plurals: &[&str]) -> anyhow::Result<Vec<String>> {
        let counts = self.story.creations(plurals)?;
        let again = counts.into_iter().filter(|(_, count)| *count > 1);
        Ok(again.map(|(name, count)| format!("{name} was created {count} times")).collect())
    }
}
