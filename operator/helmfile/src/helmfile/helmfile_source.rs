//! Loads a helmfile from the artifact of a source object, or from a remote address. Windlass fetches an address again at each
//! interval.
//!
//! Elsewhere: fetching (`sources::go_getter`), the notation of addresses (engine `helmfile`), finding sources (`resolve`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use crds::Artifact;
use crds::helmfile::{Helmfile, HelmfileSpec};
use helmfile::{RemoteAddress, RemoteSource};
use kube_core::{Resource as _, ResourceExt as _};
use reconcile::{NextRunTrigger, ObjectKey, RunOutcome, Time, condition_reason};
use sources::go_getter::{GoGetterLimits, GoGetterRequest, HelmfileGetter};
use sources::source_condition_reasons::URL_INVALID;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tree::MemoryTree;

use super::HelmfileSession;
use super::helmfile_kind_differences::HelmfileCustomResource;
use windlass_rollout::GatedApplier;
use windlass_runtime::cluster_target::ClusterTarget;
use windlass_runtime::run_context::RunContext;
use windlass_runtime::source_catalog::SOURCE_NOT_VERIFIED;
use windlass_runtime::{artifact_files, hold_conditions, source_reference};

/// The origin of a helmfile: the artifact of a source object, or an address that is fetched again at each interval.
#[derive(Clone)]
pub(super) enum HelmfileOrigin {
    /// The artifact of a source.
    Artifact {
        source: ObjectKey,
        artifact: Box<Artifact>,
        /// Whether the artifact is in the store of another process.
        is_elsewhere: bool,
    },
    /// The revision of an address, and its files if this run has fetched them.
    Address(Arc<RemoteSourceRevision>, Option<Arc<MemoryTree>>),
}

/// The revision of an address at its last fetch. The files are not kept, since the plan contains everything that runs need
/// from them.
pub(crate) struct RemoteSourceRevision {
    address: String,
    revision: String,
    at: Instant,
}

/// The error if there are no files although the server reported no error.
pub(super) const NO_CONTENT: &str = "the server returned no content";

impl HelmfileOrigin {
    pub(super) fn revision(&self) -> &str {
        match self {
            Self::Artifact { artifact, .. } => &artifact.revision,
            Self::Address(fetched, _) => &fetched.revision,
        }
    }

    /// A text that changes with the files: their digest, or the revision of an address.
    pub(super) fn digest(&self) -> &str {
        match self {
            Self::Artifact { artifact, .. } => &artifact.digest,
            Self::Address(fetched, _) => &fetched.revision,
        }
    }
}

/// The key of the source object that a Helmfile's spec names. `None` if the spec names no source object.
pub(super) fn source<K: HelmfileCustomResource>(object: &K) -> Option<ObjectKey> {
    let own = object.namespace().unwrap_or_default();
    object.asked().source_ref.as_ref().map(|source| source_reference::source_node(&own, source))
}

/// Checks `source` and `sourceRef`, and reports a part that cannot be used.
pub(super) fn check(spec: &HelmfileSpec) -> Result<(), RunOutcome> {
    let stalled = |text: String| Err(RunOutcome::Stalled(URL_INVALID, text));
    let address = match (&spec.source, &spec.source_ref) {
        (Some(address), None) => address,
        (None, Some(_)) => return Ok(()),
        (Some(_), Some(_)) | (None, None) => {
            return stalled("exactly one of spec.source and spec.sourceRef is needed".to_owned());
        }
    };
    match RemoteAddress::parse(address).map(|it| (it.to_string(), wanted(&it))) {
        None => stalled(
            "spec.source is not an address, such as git::https://HOST/REPOSITORY@PATH?ref=REFERENCE"
                .to_owned(),
        ),
        Some((shown, Err(why))) => stalled(format!("spec.source {shown}: {why}")),
        Some((_, Ok(_))) => Ok(()),
    }
}

/// Converts an address to a request for the getter.
///
/// # Errors
/// The address is not supported. The text says what to write instead.
pub(super) fn wanted(address: &RemoteAddress) -> Result<GoGetterRequest, String> {
    Ok(match address.source()? {
        RemoteSource::Git { host, path, folder, reference } => {
            GoGetterRequest::Git { url: format!("{host}{path}"), folder, reference }
        }
        RemoteSource::File { url } => GoGetterRequest::File { url, name: address.file.clone() },
        RemoteSource::Archive { url, folder } => GoGetterRequest::Archive { url, folder },
        RemoteSource::S3 { region, bucket, key } => GoGetterRequest::Object { region, bucket, key },
    })
}

/// The getter of a Helmfile, which fetches from permitted servers.
pub(super) fn getter(
    context: &RunContext,
    known: &Arc<git::GitServerCache>,
    cancel: CancellationToken,
    time: Duration,
) -> HelmfileGetter {
    let git = git::GitOperationContext {
        runtime: Handle::current(),
        cancel,
        scratch: context.artifacts.scratch(),
        known: known.clone(),
    };
    let limits = GoGetterLimits::default();
    let limits = GoGetterLimits { time: limits.time.min(time), ..limits };
    HelmfileGetter { git, buckets: context.remotes.buckets.clone(), limits }
}

/// The getter for the addresses in a helmfile, or the reason why none is allowed.
///
/// It may ask the same servers that a kustomization may name for its bases.
pub(super) fn getter_for(
    context: &RunContext,
    target: &ClusterTarget,
    cancel: CancellationToken,
) -> Result<HelmfileGetter, &'static str> {
    let settings = &context.settings;
    if settings.no_remote_bases {
        return Err(
            "addresses in a helmfile are disabled by --no-remote-bases: put the files into the source",
        );
    }
    let is_free = target.is_home() || settings.insecure_remote_bases;
    let known = if is_free { &context.remotes.git } else { &context.remotes.public_git };
    Ok(getter(context, known, cancel, GoGetterLimits::default().time))
}

impl<K: HelmfileCustomResource> HelmfileSession<'_, K> {
    /// The revision of the Helmfile's source, as far as it is known without a request. `None` if it is not known.
    pub(super) fn known_revision(&self, spec: &HelmfileSpec) -> Option<String> {
        let Some(source) = &spec.source_ref else {
            let fetched = self.memory().fetched.clone();
            let fetched = fetched.filter(|it| Some(&it.address) == spec.source.as_ref());
            return fetched.map(|it| it.revision.clone());
        };
        let own = &self.node.namespace;
        source_reference::artifact(&self.context, own, source, self.began)
            .ok()
            .map(|it| it.revision)
    }

    /// The present origin of the helmfile.
    pub(super) async fn origin(
        &self,
        object: &K,
        spec: &HelmfileSpec,
        interval: Duration,
        time: Duration,
    ) -> Result<HelmfileOrigin, RunOutcome> {
        let Some(source) = &spec.source_ref else {
            if self.is_verified_only() {
                let text = format!(
                    "namespace {} requires verified sources, and spec.source is not verified: use \
                     spec.sourceRef with a GitRepository that has spec.verify",
                    self.node.namespace
                );
                return Err(RunOutcome::Blocked(
                    SOURCE_NOT_VERIFIED,
                    text,
                    NextRunTrigger::default(),
                ));
            }
            let address = spec.source.as_deref().unwrap_or_default();
            let known = self.memory().fetched.clone().filter(|it| it.address == address);
            let is_fresh = |it: &&Arc<RemoteSourceRevision>| {
                it.at.elapsed() < interval && !hold_conditions::is_asked(object)
            };
            if let Some(known) = known.as_ref().filter(is_fresh) {
                return Ok(HelmfileOrigin::Address(known.clone(), None));
            }
            return self.fetched(address, known, time).await;
        };
        let retry_at = self.in_future(self.context.settings.requeue_dependency);
        let own = &self.node.namespace;
        let artifact = source_reference::artifact(&self.context, own, source, retry_at)?;
        let is_elsewhere = source_reference::is_elsewhere(&self.context, own, source);
        let source = source_reference::source_node(own, source);
        self.check_wave(object, &source, &artifact, retry_at).await?;
        Ok(HelmfileOrigin::Artifact { source, artifact: Box::new(artifact), is_elsewhere })
    }

    /// Checks that the wave of a rollout is open for an artifact. A Helmfile is not pinned to its present revision meanwhile,
    /// because it keeps no facts about applied revisions.
    ///
    /// # Errors
    /// The outcome of a run that changes nothing until the wave is open.
    async fn check_wave(
        &self,
        object: &K,
        source: &ObjectKey,
        artifact: &Artifact,
        retry_at: Time,
    ) -> Result<(), RunOutcome> {
        // Resources of helmfile-operator have no sources that waves are about.
        if self.node.group != Helmfile::group(&()) {
            return Ok(());
        }
        let status = object.status();
        let applier = GatedApplier {
            node: &self.node,
            labels: object.labels(),
            attempted: status.and_then(|it| it.last_attempted_revision.as_deref()),
            applied: status.and_then(|it| it.last_applied_revision.as_deref()),
            good: None,
            attempted_digest: None,
            may_be_pinned: false,
        };
        windlass_rollout::gate(&self.context, &applier, source, artifact, retry_at).await.map(drop)
    }

    /// The files of an origin, and the helmfile among them. If this run has not fetched the address yet, it is fetched now.
    /// The address may have another revision by then, and the origin is updated to it.
    pub(super) async fn files(
        &self,
        origin: &mut HelmfileOrigin,
        spec: &HelmfileSpec,
        time: Duration,
    ) -> Result<(Arc<MemoryTree>, String), RunOutcome> {
        if let HelmfileOrigin::Address(fetched, None) = origin {
            *origin = self.fetched(&fetched.address, None, time).await?;
        }
        match origin {
            HelmfileOrigin::Address(fetched, files) => {
                let path = RemoteAddress::parse(&fetched.address).map(|it| it.file);
                let path = path.filter(|it| it != ".").unwrap_or_default();
                Ok((files.take().unwrap_or_default(), path))
            }
            HelmfileOrigin::Artifact { source, artifact, is_elsewhere } => {
                let files = artifact_files::files(&self.context, artifact, *is_elsewhere).await;
                let files = files.map_err(|error| {
                    let what = format!("artifact of revision {}", artifact.revision);
                    let again = self.in_future(self.context.settings.requeue_dependency);
                    error.ends(source, &what, again)
                })?;
                Ok((files, spec.path.clone().unwrap_or_default()))
            }
        }
    }

    /// Fetches the files of an address. It returns no files if the address still has the known revision.
    async fn fetched(
        &self,
        text: &str,
        known: Option<Arc<RemoteSourceRevision>>,
        time: Duration,
    ) -> Result<HelmfileOrigin, RunOutcome> {
        let address = RemoteAddress::parse(text).ok_or_else(|| {
            RunOutcome::Stalled(URL_INVALID, "spec.source is not an address".to_owned())
        })?;
        let failed = |why: String| {
            let text = format!("failed to fetch {address}: {why}");
            RunOutcome::Failed(condition_reason::ARTIFACT_FAILED, text, NextRunTrigger::default())
        };
        let wanted = wanted(&address).map_err(failed)?;
        // Mostly waiting for a server, so it needs no build permit.
        let permit = self.context.reaching.acquire(&self.node.namespace).await;
        let cancel = CancellationToken::new();
        let _asked_for = cancel.clone().drop_guard();
        let getter = getter(&self.context, &self.context.remotes.git, cancel, time);
        let before = known.as_ref().map(|it| it.revision.clone());
        let work = move || {
            let _permit = permit;
            getter.get(&wanted, before.as_deref())
        };
        let got = tokio::task::spawn_blocking(work).await;
        let got = got.unwrap_or_else(|_| Err("fetching it was interrupted".to_owned()));
        let (revision, files) = match (got.map_err(failed)?, known) {
            (Some(got), _) => (got.revision, Some(Arc::new(got.files))),
            (None, Some(known)) => (known.revision.clone(), None),
            (None, None) => return Err(failed(NO_CONTENT.to_owned())),
        };
        let fetched =
            RemoteSourceRevision { address: text.to_owned(), revision, at: Instant::now() };
        let fetched = Arc::new(fetched);
        self.memory().fetched = Some(fetched.clone());
        Ok(HelmfileOrigin::Address(fetched, files))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_has_one_source_and_an_address_that_can_be_fetched() {
        let text = |source: Option<&str>, names: bool| {
            let source_ref = names.then(Default::default);
            let source = source.map(str::to_owned);
            let spec = HelmfileSpec { source, source_ref, ..HelmfileSpec::default() };
            check(&spec).map_err(|outcome| outcome.text().to_owned())
        };
        assert_eq!(text(None, true), Ok(()));
        for address in ["git::https://h/r@d?ref=v1", "https://h/helmfile.yaml", "s3://b/h.yaml"] {
            assert_eq!(text(Some(address), false), Ok(()), "{address}");
        }
        for (source, names, part) in [
            (None, false, "exactly one"),
            (Some("https://h/f"), true, "exactly one"),
            (Some("./helmfile.yaml"), false, "not an address"),
            (Some("git::https://u:pw@h/r"), false, "needs one `@`"),
            (Some("hg::https://h/r@f"), false, "not supported"),
        ] {
            let error = text(source, names).unwrap_err();
            assert!(error.contains(part) && !error.contains("pw"), "{source:?}: {error}");
        }
    }
}
