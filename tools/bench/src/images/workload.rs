//! The image and the repository. Tags of a new version are published, and the files with them are counted.
//!
//! `super::objects` has the objects of the cluster, and `super` the rounds.

use std::time::{Duration, Instant};

use anyhow::ensure;
use e2e::git_server::{GitServerRequest, StoryGitRepository};
use e2e::servers::registry::RegistryServer;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::Options;
use super::objects::{ImageObjects, NAME, ObjectsOfKind, tag};
use crate::test_bed::BenchTestbed;

/// The name of the image in the registry.
const IMAGE: &str = "team/app";

/// How long it may take until all files have a version.
const UPDATE_TIMEOUT: Duration = Duration::from_secs(600);

/// How often the branch is read.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The Git server is quiet when it got no request for this time. Flux repeats a push that lost a race earlier than
/// that.
const QUIET_PERIOD: Duration = Duration::from_secs(5);

/// An image and a repository for one operator.
pub(super) struct ImageWorkload<'b> {
    bed: &'b BenchTestbed,
    objects: ImageObjects,
    registry: RegistryServer,
    /// The manifest of all tags.
    manifest: Value,
    repository: StoryGitRepository,
}

/// How many requests the servers of the workload got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ServerRequests {
    /// Pushes to the Git server, also the rejected ones.
    pub(super) pushes: usize,
    /// All requests to the Git server.
    pub(super) git: usize,
    /// All requests to the registry.
    pub(super) registry: usize,
}

impl<'b> ImageWorkload<'b> {
    /// Creates the image, the repository and the objects. Then it waits until the files have the first version.
    ///
    /// # Errors
    /// A server does not start, or the operator does not update the files.
    pub(super) async fn install(
        bed: &'b BenchTestbed,
        namespace: &str,
        options: &Options,
    ) -> anyhow::Result<Self> {
        let registry = RegistryServer::start().await?;
        registry.push_files(IMAGE, "latest", &[("a.yaml", "a")], json!({})).await?;
        let manifest = registry.manifest(IMAGE, "latest").await?;
        let git = bed.git()?;
        let repository = git.repository(namespace)?;
        let objects = ImageObjects {
            namespace: namespace.to_owned(),
            image: format!("{}/{IMAGE}", registry.host()),
            url: git.url(&repository),
            policies: options.policies.into(),
            automations: options.automations.into(),
        };
        let workload = Self { bed, objects, registry, manifest, repository };
        workload.release(1).await?;
        let files = workload.objects.files(0);
        let files: Vec<(&str, &str)> = files.iter().map(|(path, it)| (&**path, &**it)).collect();
        workload.repository.commit(&files, "the first files")?;
        bed.create_namespaces(&[namespace.to_owned()]).await?;
        // Objects are created before the objects that refer to them.
        for ObjectsOfKind { manifests, .. } in workload.objects.by_kind().into_iter().rev() {
            bed.apply(&manifests).await?;
        }
        workload.await_version(1, Instant::now()).await?;
        workload.await_quiet().await?;
        Ok(workload)
    }

    /// Publishes a tag of a version for each policy.
    ///
    /// # Errors
    /// The registry rejects a tag.
    pub(super) async fn release(&self, version: u32) -> anyhow::Result<()> {
        for policy in 0..self.objects.policies {
            let tag = tag(policy, version);
            self.registry.push_manifest(IMAGE, &tag, &self.manifest).await?;
        }
        Ok(())
    }

    /// Requests a scan of the registry now.
    ///
    /// # Errors
    /// The API server rejects the request.
    pub(super) async fn request_scan(&self, version: u32) -> anyhow::Result<()> {
        let annotations = json!({"reconcile.fluxcd.io/requestedAt": format!("version {version}")});
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        let api = self.objects.image_repositories().api(self.bed.client());
        api.patch(NAME, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// How long after `begun` each file had the version on the Git server.
    ///
    /// # Errors
    /// Not all files have the version in time.
    pub(super) async fn await_version(
        &self,
        version: u32,
        begun: Instant,
    ) -> anyhow::Result<Vec<Duration>> {
        let count = self.objects.policies;
        let mut times = Vec::new();
        let mut known = String::new();
        while times.len() < count {
            let updated = times.len();
            ensure!(
                begun.elapsed() < UPDATE_TIMEOUT,
                "{updated} of {count} files have version {version} after {} s",
                UPDATE_TIMEOUT.as_secs()
            );
            let head = self.head()?;
            if head == known {
                tokio::time::sleep(POLL_INTERVAL).await;
                continue;
            }
            known = head;
            let time = begun.elapsed();
            times.resize(self.updated(version)?.max(updated), time);
        }
        Ok(times)
    }

    /// Waits until the Git server gets no more requests.
    ///
    /// # Errors
    /// The requests do not stop in time.
    pub(super) async fn await_quiet(&self) -> anyhow::Result<()> {
        let begun = Instant::now();
        let mut since = begun;
        let mut known = self.git_requests()?.len();
        while since.elapsed() < QUIET_PERIOD {
            ensure!(begun.elapsed() < UPDATE_TIMEOUT, "the Git server does not come to rest");
            tokio::time::sleep(QUIET_PERIOD / 50).await;
            let count = self.git_requests()?.len();
            if count != known {
                known = count;
                since = Instant::now();
            }
        }
        Ok(())
    }

    /// Reads the commit of the branch from its file. Starting `git` each time would be a load that the measurement
    /// counts.
    fn head(&self) -> anyhow::Result<String> {
        match std::fs::read_to_string(self.repository.path().join("refs/heads/main")) {
            Ok(text) => Ok(text.trim().to_owned()),
            // Git has moved the branch into its file of packed references.
            Err(_) => self.repository.hash("main"),
        }
    }

    /// How many files have the version.
    fn updated(&self, version: u32) -> anyhow::Result<usize> {
        let lines = self.repository.git(&["grep", "-h", "image:", "main"])?;
        let wanted = format!("-{version} #");
        Ok(lines.lines().filter(|line| line.contains(&wanted)).count())
    }

    /// How many commits the branch has.
    ///
    /// # Errors
    /// The branch cannot be read.
    pub(super) fn commits(&self) -> anyhow::Result<usize> {
        Ok(self.repository.git(&["rev-list", "--count", "main"])?.parse()?)
    }

    fn git_requests(&self) -> anyhow::Result<Vec<GitServerRequest>> {
        let root = format!("/{}.git/", self.repository.name());
        let mut all = self.bed.git()?.requests();
        all.retain(|request| request.path.starts_with(&root));
        Ok(all)
    }

    /// How many requests both servers got until now, without those of the workload itself.
    ///
    /// # Errors
    /// Never while the bed exists.
    pub(super) fn requests(&self) -> anyhow::Result<ServerRequests> {
        let git = self.git_requests()?;
        let is_push = |request: &&GitServerRequest| {
            request.method == "POST" && request.path.ends_with("/git-receive-pack")
        };
        Ok(ServerRequests {
            pushes: git.iter().filter(is_push).count(),
            git: git.len(),
            registry: reads(&self.registry.log()),
        })
    }

    /// Deletes the objects and waits until they are gone. Otherwise the next operator would take them over.
    ///
    /// # Errors
    /// The objects are not deleted in time.
    pub(super) async fn remove(&self) -> anyhow::Result<()> {
        for ObjectsOfKind { selection, manifests } in self.objects.by_kind() {
            self.bed.remove_all(&manifests, &[], &selection).await?;
        }
        Ok(())
    }
}

impl ServerRequests {
    /// The difference from an earlier count.
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            pushes: self.pushes - before.pushes,
            git: self.git - before.git,
            registry: self.registry - before.registry,
        }
    }
}

/// How many requests in a registry's log read something. Other requests publish tags.
fn reads(log: &str) -> usize {
    let answered = log.lines().filter(|line| line.contains("HTTP/1.1\" "));
    answered.filter(|line| line.contains("\"GET /") || line.contains("\"HEAD /")).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_read_are_counted_once_and_those_that_write_are_not() {
        let log = "time=\"2026-11-29\" level=info msg=\"response completed\" http.request.method=GET\n\
            127.0.0.1 - - [29/Nov/2026:08:00:00 +0000] \"GET /v2/team/app/tags/list HTTP/1.1\" 200 50 \"\" \"x\"\n\
            127.0.0.1 - - [29/Nov/2026:08:00:00 +0000] \"HEAD /v2/team/app/manifests/a HTTP/1.1\" 200 5 \"\" \"x\"\n\
            127.0.0.1 - - [29/Nov/2026:08:00:00 +0000] \"PUT /v2/team/app/manifests/a HTTP/1.1\" 201 0 \"\" \"x\"\n";
        assert_eq!(reads(log), 2);
    }

    #[test]
    fn what_was_asked_before_does_not_count() {
        let requests = |pushes, git, registry| ServerRequests { pushes, git, registry };
        assert_eq!(requests(3, 9, 5).since(requests(1, 4, 5)), requests(2, 5, 0));
    }
}
