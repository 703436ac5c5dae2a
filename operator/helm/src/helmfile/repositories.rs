//! Which chart repositories the files of a helmfile may name, and how those are spoken to of which the namespace has a
//! HelmRepository.
//!
//! Everyone who may push to the source can write a file, everyone who may write objects into the namespace can write a
//! spec: what a spec may name, a file may not always. Elsewhere: the repositories that a helmfile names (engine
//! `helmfile`), asking them (`charts.rs`).

use std::error::Error as StdError;
use std::sync::Arc;

use crds::source::HelmRepository;
use helmfile::{ChartError, ChartVersionRequest};
use kube_core::ResourceExt as _;
use reconcile::Outcome;
use sources::http::refusal;

use super::charts::{ChartRemote, Charts};
use source_controller::helm_repository::{self, is_registry, with_address};
use windlass_runtime::context::Context;
use windlass_runtime::reference::References;
use windlass_runtime::target::ClusterTarget;

/// What a file may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RemoteBases {
    /// What a spec may name.
    Free,
    /// Servers with public addresses, and those that a HelmRepository of the namespace names.
    Public,
    /// What a HelmRepository of the namespace names.
    Listed,
}

impl RemoteBases {
    /// As for the bases of a Kustomization (`windlass_runtime::build::bases`).
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

/// How a chart of a repository that a file names may be fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// As the file says, from the servers of the scope.
    OfFile,
    /// As the HelmRepository says that has the address.
    OfHelmRepository,
    /// Not at all.
    Refused,
}

impl RemoteBases {
    /// The way to a repository, of which the namespace has a HelmRepository or not.
    fn way(self, is_listed: bool) -> Way {
        match (self, is_listed) {
            (Self::Free, _) | (Self::Public, false) => Way::OfFile,
            (Self::Public | Self::Listed, true) => Way::OfHelmRepository,
            (Self::Listed, false) => Way::Refused,
        }
    }
}

/// Fetches charts of the repositories and registries that a file may name.
pub(super) struct Repositories {
    charts: Charts,
    scope: RemoteBases,
    context: Arc<Context>,
    namespace: String,
}

impl Repositories {
    /// For a Helmfile of a namespace, which is applied at a target.
    pub(super) fn new(context: &Arc<Context>, namespace: &str, target: &ClusterTarget) -> Self {
        let settings = &context.settings;
        let is_home = target.is_home();
        let scope =
            RemoteBases::new(settings.no_remote_bases, settings.insecure_remote_bases, is_home);
        let remotes = &context.remotes;
        let charts = match scope {
            RemoteBases::Free | RemoteBases::Listed => {
                Charts::new(helm_repository::reach(context), remotes.oci.clone(), None)
            }
            RemoteBases::Public => {
                Charts::new(remotes.public_charts.clone(), remotes.public_oci.clone(), None)
            }
        };
        // A Helmfile without windlass's own rights must not read buckets as windlass.
        let charts = if is_home { charts } else { charts.anonymous() };
        Self { charts, scope, context: context.clone(), namespace: namespace.to_owned() }
    }

    /// The archive of a chart. Where a file may not name every server, the HelmRepository of the namespace that has its
    /// address says how it is spoken to, and as whom.
    ///
    /// # Errors
    /// The chart cannot be fetched, or a file may not name where it is.
    pub(super) async fn archive(
        &mut self,
        chart: &ChartVersionRequest,
    ) -> Result<Vec<u8>, ChartError> {
        let failed = |error: anyhow::Error| ChartError::Failed(format!("{error:#}"));
        let listed = (self.scope != RemoteBases::Free)
            .then(|| with_address(&self.context, &self.namespace, &chart.url))
            .flatten();
        let way = self.scope.way(listed.is_some());
        if let Some(object) = listed.filter(|_| way == Way::OfHelmRepository) {
            let place = self.place(&object, chart).await.map_err(|outcome| {
                let namespace = &self.namespace;
                let name = object.name_any();
                ChartError::Failed(format!("HelmRepository {namespace}/{name}: {}", outcome.text()))
            })?;
            return self.charts.archive_at(&place, chart).await.map_err(failed);
        }
        let url = &chart.url;
        let namespace = &self.namespace;
        let remedy = format!("create a HelmRepository with this URL in namespace {namespace}");
        if way == Way::Refused {
            return Err(ChartError::Refused(format!(
                "--no-remote-bases allows a file to name chart repositories of HelmRepositories only, and none has {url}: \
                 {remedy}"
            )));
        }
        self.charts.archive(chart).await.map_err(|error| {
            match refusal(AsRef::<dyn StdError + Send + Sync>::as_ref(&error)) {
                Some(_) => ChartError::Refused(format!("{error:#}; {remedy}")),
                None => failed(error),
            }
        })
    }

    /// How a HelmRepository says that it is spoken to.
    async fn place(
        &self,
        object: &HelmRepository,
        chart: &ChartVersionRequest,
    ) -> Result<ChartRemote, Outcome> {
        let context = &self.context;
        // Not watched: a failed plan is repeated, and one that is kept is made anew at the interval.
        let mut references = References::new(&context.watcher);
        let secrets = helm_repository::secrets(object, &mut references).await?;
        if is_registry(object) {
            let remote = helm_repository::registry(context, object, &secrets, &chart.name).await?;
            return Ok(ChartRemote::Registry(Box::new(remote), context.remotes.oci.clone()));
        }
        helm_repository::repository(context, object, &secrets)
            .map(|repository| ChartRemote::Index(Box::new(repository)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_may_name_what_a_spec_may_only_without_lockdown() {
        for (no_remote_bases, insecure_remote_bases, is_home, scope) in [
            (false, false, true, RemoteBases::Free),
            (false, true, false, RemoteBases::Free),
            (false, false, false, RemoteBases::Public),
            (true, false, true, RemoteBases::Listed),
            (true, true, false, RemoteBases::Listed),
        ] {
            assert_eq!(RemoteBases::new(no_remote_bases, insecure_remote_bases, is_home), scope);
        }
    }

    #[test]
    fn a_helm_repository_opens_what_lockdown_closes_and_changes_nothing_else() {
        for (scope, is_listed, way) in [
            (RemoteBases::Free, false, Way::OfFile),
            (RemoteBases::Free, true, Way::OfFile),
            (RemoteBases::Public, false, Way::OfFile),
            (RemoteBases::Public, true, Way::OfHelmRepository),
            (RemoteBases::Listed, false, Way::Refused),
            (RemoteBases::Listed, true, Way::OfHelmRepository),
        ] {
            assert_eq!(scope.way(is_listed), way, "{scope:?} {is_listed}");
        }
    }
}
