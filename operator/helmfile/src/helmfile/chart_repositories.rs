//! Which chart repositories the files of a helmfile may name, and how windlass reaches a repository that has a HelmRepository
//! in the namespace.
//!
//! A user who may push to the source can write a file. A user who may write objects into the namespace can write a spec. So a
//! file may not always name what a spec may name. Elsewhere: the repositories that a helmfile names (engine `helmfile`),
//! requests to them (`chart_fetch.rs`).

use std::error::Error as StdError;
use std::sync::Arc;

use crds::source::HelmRepository;
use helmfile::{ChartFetchError, ChartVersionRequest};
use http_client::refusal;
use kube_core::ResourceExt as _;
use reconcile::RunOutcome;

use super::chart_fetch::{ChartRepositoryCache, HelmfileChartRemote};
use windlass_cluster::referenced_secrets_and_config_maps::RunReferenceReads;
use windlass_runtime::chart_repository_access::{
    self, HelmRepositorySecrets, is_registry, with_address,
};
use windlass_runtime::cluster_target::ClusterTarget;
use windlass_runtime::run_context::RunContext;

/// The repositories that a file may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RemoteChartPolicy {
    /// All repositories that a spec may name.
    Free,
    /// Servers with public addresses, and those that a HelmRepository of the namespace names.
    Public,
    /// Only repositories that a HelmRepository of the namespace names.
    Listed,
}

impl RemoteChartPolicy {
    /// The policy, by the same rules as for the bases of a Kustomization (`windlass_runtime::shared_build_parts::bases`).
    fn new(no_remote_bases: bool, insecure_remote_bases: bool, is_home: bool) -> Self {
        if no_remote_bases {
            Self::Listed
        } else if is_home || insecure_remote_bases {
            Self::Free
        } else {
            Self::Public
        }
    }
}

/// The route by which a chart of a file's repository may be fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChartFetchRoute {
    /// The connection settings of the file, and the servers of the scope.
    OfFile,
    /// The connection settings of the HelmRepository with the same address.
    OfHelmRepository,
    /// Not at all.
    Refused,
}

impl RemoteChartPolicy {
    /// The route to a repository. `is_listed` says whether the namespace has a HelmRepository for it.
    fn way(self, is_listed: bool) -> ChartFetchRoute {
        match (self, is_listed) {
            (Self::Free, _) | (Self::Public, false) => ChartFetchRoute::OfFile,
            (Self::Public | Self::Listed, true) => ChartFetchRoute::OfHelmRepository,
            (Self::Listed, false) => ChartFetchRoute::Refused,
        }
    }
}

/// Fetches charts of the repositories and registries that a file may name.
pub(super) struct HelmfileRepositories {
    charts: ChartRepositoryCache,
    scope: RemoteChartPolicy,
    context: Arc<RunContext>,
    namespace: String,
}

impl HelmfileRepositories {
    /// The repositories for a Helmfile in a namespace, which is applied at a target.
    pub(super) fn new(context: &Arc<RunContext>, namespace: &str, target: &ClusterTarget) -> Self {
        let settings = &context.settings;
        let is_home = target.is_home();
        let scope = RemoteChartPolicy::new(
            settings.no_remote_bases,
            settings.insecure_remote_bases,
            is_home,
        );
        let remotes = &context.remotes;
        let charts = match scope {
            RemoteChartPolicy::Free | RemoteChartPolicy::Listed => ChartRepositoryCache::new(
                chart_repository_access::access(context),
                remotes.oci.clone(),
                None,
            ),
            RemoteChartPolicy::Public => ChartRepositoryCache::new(
                remotes.public_charts.clone(),
                remotes.public_oci.clone(),
                None,
            ),
        };
        // A Helmfile without windlass's own rights must not read buckets as windlass.
        let charts = if is_home { charts } else { charts.anonymous() };
        Self { charts, scope, context: context.clone(), namespace: namespace.to_owned() }
    }

    /// The archive of a chart. If a file may not name every server, the repository needs a HelmRepository with its address in
    /// the namespace. That HelmRepository gives the connection settings and the credentials.
    ///
    /// # Errors
    /// The chart cannot be fetched, or a file may not name its repository.
    pub(super) async fn archive(
        &mut self,
        chart: &ChartVersionRequest,
    ) -> Result<Vec<u8>, ChartFetchError> {
        let failed = |error: anyhow::Error| ChartFetchError::Failed(format!("{error:#}"));
        let listed = (self.scope != RemoteChartPolicy::Free)
            .then(|| with_address(&self.context, &self.namespace, &chart.url))
            .flatten();
        let way = self.scope.way(listed.is_some());
        if let Some(object) = listed.filter(|_| way == ChartFetchRoute::OfHelmRepository) {
            let place = self.place(&object, chart).await.map_err(|outcome| {
                let namespace = &self.namespace;
                let name = object.name_any();
                ChartFetchError::Failed(format!(
                    "HelmRepository {namespace}/{name}: {}",
                    outcome.text()
                ))
            })?;
            return self.charts.archive_at(&place, chart).await.map_err(failed);
        }
        let url = &chart.url;
        let namespace = &self.namespace;
        let remedy = format!("create a HelmRepository with this URL in namespace {namespace}");
        if way == ChartFetchRoute::Refused {
            return Err(ChartFetchError::Refused(format!(
                "--no-remote-bases allows a file to name chart repositories of HelmRepositories only, and none has {url}: \
                 {remedy}"
            )));
        }
        self.charts.archive(chart).await.map_err(|error| {
            match refusal(AsRef::<dyn StdError + Send + Sync>::as_ref(&error)) {
                Some(_) => ChartFetchError::Refused(format!("{error:#}; {remedy}")),
                None => failed(error),
            }
        })
    }

    /// The connection settings of a HelmRepository.
    async fn place(
        &self,
        object: &HelmRepository,
        chart: &ChartVersionRequest,
    ) -> Result<HelmfileChartRemote, RunOutcome> {
        let context = &self.context;
        // These objects are not watched. A failed plan is repeated, and a kept plan is made again at the interval.
        let mut references = RunReferenceReads::new(&context.watcher);
        let secrets = HelmRepositorySecrets::read(object, &mut references).await?;
        if is_registry(object) {
            let remote =
                chart_repository_access::registry(context, object, &secrets, &chart.name).await?;
            return Ok(HelmfileChartRemote::Registry(
                Box::new(remote),
                context.remotes.oci.clone(),
            ));
        }
        chart_repository_access::repository(
            &chart_repository_access::access(context),
            object,
            &secrets,
        )
        .map(|repository| HelmfileChartRemote::Index(Box::new(repository)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_may_name_what_a_spec_may_only_without_lockdown() {
        for (no_remote_bases, insecure_remote_bases, is_home, scope) in [
            (false, false, true, RemoteChartPolicy::Free),
            (false, true, false, RemoteChartPolicy::Free),
            (false, false, false, RemoteChartPolicy::Public),
            (true, false, true, RemoteChartPolicy::Listed),
            (true, true, false, RemoteChartPolicy::Listed),
        ] {
            assert_eq!(
                RemoteChartPolicy::new(no_remote_bases, insecure_remote_bases, is_home),
                scope
            );
        }
    }

    #[test]
    fn a_helm_repository_opens_what_lockdown_closes_and_changes_nothing_else() {
        for (scope, is_listed, way) in [
            (RemoteChartPolicy::Free, false, ChartFetchRoute::OfFile),
            (RemoteChartPolicy::Free, true, ChartFetchRoute::OfFile),
            (RemoteChartPolicy::Public, false, ChartFetchRoute::OfFile),
            (RemoteChartPolicy::Public, true, ChartFetchRoute::OfHelmRepository),
            (RemoteChartPolicy::Listed, false, ChartFetchRoute::Refused),
            (RemoteChartPolicy::Listed, true, ChartFetchRoute::OfHelmRepository),
        ] {
            assert_eq!(scope.way(is_listed), way, "{scope:?} {is_listed}");
        }
    }
}
