//! The work that is cut into. An operation that windlass learns gets a scenario here.
//!
//! Here: the list, and what a scenario is played on. Elsewhere: the scenarios themselves.

mod crds;
mod helm_release;
mod helmfile;
mod kustomization;
mod lifecycle;

use e2e::git_server::{Access, GitServer, Repository};
use e2e::harness::{Story, Target};
use futures::future::LocalBoxFuture;
use kube::core::ApiResource;

use crate::ownership::Owner;

/// Every scenario.
pub(super) fn all() -> Vec<fn() -> Box<dyn Scenario>> {
    vec![
        || Box::new(kustomization::Kustomizations),
        || Box::new(helm_release::HelmReleases),
        || Box::new(helmfile::Helmfiles),
        || Box::new(lifecycle::Lifecycles),
        || Box::new(crds::Definitions::default()),
    ]
}

/// Work in acts. Each act is begun by a user, and done by windlass however often it dies.
pub(super) trait Scenario {
    /// What `--scenario` calls it.
    fn name(&self) -> &'static str;

    /// Its acts, in order. After the last one nothing of it is left.
    fn acts(&self) -> &'static [&'static str];

    /// The kinds that its objects have, in a namespace.
    fn kinds(&self, namespace: &str) -> Vec<ApiResource>;

    /// Whose its objects are.
    fn owner(&self) -> Owner {
        Owner::kustomization()
    }

    /// Whether inventories have objects before these are applied; otherwise the records of releases do.
    fn records_first(&self) -> bool {
        true
    }

    /// What went wrong besides, asked at the end.
    fn judge(&self, _stage: &Stage) -> anyhow::Result<Vec<String>> {
        Ok(Vec::new())
    }

    /// Whether windlass may ask for the deletion of the object of this name in an act.
    fn may_delete(&self, act: usize, namespace: &str, name: &str) -> bool;

    /// Does what the user does; it does not wait for windlass.
    fn begin<'a>(
        &'a self,
        act: usize,
        stage: &'a mut Stage,
    ) -> LocalBoxFuture<'a, anyhow::Result<()>>;

    /// Whether windlass says that the act is done.
    fn is_done<'a>(
        &'a self,
        act: usize,
        stage: &'a Stage,
    ) -> LocalBoxFuture<'a, anyhow::Result<bool>>;
}

/// A namespace and a repository.
pub(super) struct Stage {
    /// The namespace.
    pub(super) story: Story,
    /// Serves the repository.
    pub(super) server: GitServer,
    /// The only one.
    pub(super) repository: Repository,
    /// The commits so far.
    pub(super) revisions: Vec<String>,
}

impl Stage {
    /// An empty stage.
    pub(super) async fn set(name: &str) -> anyhow::Result<Self> {
        let story = Story::begin(name).await?;
        let server = GitServer::start(Access::Open)?;
        let repository = server.repository("work")?;
        Ok(Self { story, server, repository, revisions: Vec::new() })
    }

    /// Commits files; whoever follows the repository is not told.
    pub(super) fn commit(&mut self, files: &[(String, String)]) -> anyhow::Result<()> {
        let files: Vec<(&str, &str)> =
            files.iter().map(|(path, text)| (&**path, &**text)).collect();
        self.revisions.push(self.repository.commit(&files, "a change")?);
        Ok(())
    }

    /// The newest commit as a status has it.
    pub(super) fn revision(&self) -> String {
        e2e::harness::flux::revision(self.revisions.last().map_or("", String::as_str))
    }

    /// Has the GitRepository reconciled.
    pub(super) async fn request(&self, source: &str) -> anyhow::Result<()> {
        self.story.request(&Target::git_repository(source)).await.map(drop)
    }
}
