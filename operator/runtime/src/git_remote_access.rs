//! How windlass reaches the remote of a GitRepository: URL, credentials, proxy, timeout and reference.
//!
//! Elsewhere: fetching an artifact (crate `source-controller`), pushing (crate `image-controller`), and the Git protocol
//! (`git`).

use std::collections::BTreeMap;
use std::time::Duration;

use crds::LocalObjectReference;
use crds::source::{GitProvider, GitRepository, GitRepositoryRef, GitRepositorySpec};
use git::{Error, GitCredentials, GitLimits, GitReference, GitRemote, RemoteScheme, RemoteUrl};
use http_client::HttpProxy;
use kube_core::ResourceExt as _;
use reconcile::{NextRunTrigger, RunOutcome, condition_reason};
use sources::source_condition_reasons::{
    AUTHENTICATION_FAILED, GIT_OPERATION_FAILED, INVALID_DURATION, URL_INVALID,
};
use tokio_util::sync::CancellationToken;
use windlass_cluster::error::chain;

use super::run_context::RunContext;
use super::time_limit::LONGEST_TIMEOUT;
use super::unsupported_fields::unsupported_text;
use windlass_cluster::referenced_secrets_and_config_maps::RunReferenceReads;

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// The data of a Secret.
pub type GitSecretData = BTreeMap<String, Vec<u8>>;

/// The fields of the spec that have a value and are not supported, in the order of the spec.
pub fn unsupported(spec: &GitRepositorySpec) -> Vec<&'static str> {
    // There is no `..` here, so that the compiler asks about each new field.
    let GitRepositorySpec {
        url: _,
        secret_ref: _,
        provider,
        service_account_name,
        interval: _,
        timeout: _,
        reference: _,
        verify: _,
        proxy_secret_ref: _,
        ignore: _,
        suspend: _,
        recurse_submodules: _,
        include: _,
        sparse_checkout: _,
    } = spec;
    let given = [
        ("spec.provider", provider.is_some_and(|p| p != GitProvider::Generic)),
        ("spec.serviceAccountName", service_account_name.is_some()),
    ];
    given.into_iter().filter(|(_, given)| *given).map(|(field, _)| field).collect()
}

/// The data of the Secrets that a GitRepository names, all in its namespace.
#[derive(Default)]
pub struct GitRemoteSecrets {
    /// The credentials. Empty without a Secret.
    pub secret: GitSecretData,
    /// The data of the proxy Secret.
    pub proxy: Option<GitSecretData>,
}

impl GitRemoteSecrets {
    /// Reads the Secrets that the spec names, in the namespace of the object, and adds them to the references.
    ///
    /// # Errors
    /// A Secret is missing or cannot be read.
    pub async fn read(
        object: &GitRepository,
        references: &mut RunReferenceReads,
    ) -> Result<Self, RunOutcome> {
        let spec = &object.spec;
        let credentials =
            GitSecretField { field: "spec.secretRef", what: "", reference: &spec.secret_ref };
        let what = "failed to configure proxy options: ";
        let proxy = GitSecretField {
            field: "spec.proxySecretRef",
            what,
            reference: &spec.proxy_secret_ref,
        };
        // Both Secrets are read before a missing one ends the run.
        let secret = credentials.read(object, references).await;
        let proxy = proxy.read(object, references).await?;
        Ok(Self { secret: secret?.unwrap_or_default(), proxy })
    }

    /// The remote of a spec, with these Secrets.
    ///
    /// # Errors
    /// The spec has a field that is not supported, or a value in it or in a Secret cannot be used.
    pub fn remote(&self, spec: &GitRepositorySpec) -> Result<GitRemote, RunOutcome> {
        let fields = unsupported(spec);
        if !fields.is_empty() {
            return Err(RunOutcome::Stalled(
                condition_reason::UNSUPPORTED_FIELD,
                unsupported_text(&fields),
            ));
        }
        let url = RemoteUrl::parse(&spec.url)
            .map_err(|error| RunOutcome::Stalled(URL_INVALID, error.to_string()))?;
        let proxy = self.proxy(&url)?;
        let credentials = GitCredentials::from_secret(&self.secret, &url).map_err(|error| {
            RunOutcome::Failed(AUTHENTICATION_FAILED, error.to_string(), NextRunTrigger::default())
        })?;
        let timeout = spec.timeout.as_ref().map(|it| reconcile::parse_duration(it.as_str()));
        let timeout = timeout
            .transpose()
            .map_err(|error| {
                RunOutcome::Stalled(INVALID_DURATION, format!("spec.timeout: {error}"))
            })?
            .unwrap_or(DEFAULT_TIMEOUT)
            .min(LONGEST_TIMEOUT);
        Ok(GitRemote { url, credentials, proxy, timeout, limits: GitLimits::default() })
    }

    /// The proxy that the spec names.
    fn proxy(&self, url: &RemoteUrl) -> Result<Option<HttpProxy>, RunOutcome> {
        let Some(data) = &self.proxy else { return Ok(None) };
        if url.scheme() == RemoteScheme::Ssh {
            let text = "spec.proxySecretRef is not supported for ssh URLs, only for http and https; remove it or \
                        change spec.url";
            return Err(RunOutcome::Stalled(condition_reason::UNSUPPORTED_FIELD, text.to_owned()));
        }
        HttpProxy::from_secret(data).map(Some).map_err(|error| {
            let text = format!("failed to configure proxy options: {error}");
            RunOutcome::Failed(AUTHENTICATION_FAILED, text, NextRunTrigger::default())
        })
    }
}

/// A field of the spec that may name a Secret.
struct GitSecretField<'a> {
    field: &'static str,
    what: &'static str,
    reference: &'a Option<LocalObjectReference>,
}

impl GitSecretField<'_> {
    /// The data of the Secret. `None` if the spec names none.
    async fn read(
        &self,
        object: &GitRepository,
        references: &mut RunReferenceReads,
    ) -> Result<Option<GitSecretData>, RunOutcome> {
        let Some(reference) = self.reference else { return Ok(None) };
        let namespace = object.namespace().unwrap_or_default();
        let name = &reference.name;
        let failed = |why: String| {
            let text = format!("{}failed to get secret '{namespace}/{name}': {why}", self.what);
            RunOutcome::Failed(AUTHENTICATION_FAILED, text, NextRunTrigger::default())
        };
        let secret = references.secret(&namespace, name).await;
        let secret = secret.map_err(|error| failed(error.to_string()))?;
        let missing = || failed(format!("not found; create it or correct {}", self.field));
        secret.map(Some).ok_or_else(missing)
    }
}

/// The Git reference that a spec asks for.
///
/// Parity(flux): commit wins over name, name over tag, tag over semver, semver over branch; without any it is `master`.
/// # Errors
/// The `semver` is not a valid range of versions.
/// The `semver` is not a range of versions.
pub fn reference(given: Option<&GitRepositoryRef>) -> Result<GitReference, RunOutcome> {
    Ok(match given.cloned().unwrap_or_default() {
        GitRepositoryRef { commit: Some(sha), branch, name, .. } => {
            GitReference::Commit { sha, branch, name }
        }
        GitRepositoryRef { name: Some(name), .. } => GitReference::Name(name),
        GitRepositoryRef { tag: Some(tag), .. } => GitReference::Tag(tag),
        GitRepositoryRef { semver: Some(range), .. } => {
            GitReference::semver(&range).map_err(|error| classify(&error))?
        }
        GitRepositoryRef { branch: Some(branch), .. } => GitReference::Branch(branch),
        GitRepositoryRef { branch: None, .. } => GitReference::default(),
    })
}

/// The outcome of a run after a failed request to a Git remote.
pub fn classify(error: &Error) -> RunOutcome {
    let text = chain(error);
    match error {
        Error::InvalidUrl { .. } => RunOutcome::Stalled(URL_INVALID, text),
        Error::Busy { busy, .. } => {
            RunOutcome::Failed(GIT_OPERATION_FAILED, text, NextRunTrigger::at(busy.until))
        }
        Error::InvalidReference { .. } => RunOutcome::Stalled(GIT_OPERATION_FAILED, text),
        Error::InvalidSparse { .. } => RunOutcome::Stalled(
            condition_reason::INVALID_PATH,
            format!("spec.sparseCheckout: {text}"),
        ),
        Error::BadSecret(_) | Error::AuthenticationFailed { .. } | Error::ProxyRefused { .. } => {
            RunOutcome::Failed(AUTHENTICATION_FAILED, text, NextRunTrigger::default())
        }
        // A branch or a server may change without a new spec, so other errors are retried.
        _ => RunOutcome::Failed(GIT_OPERATION_FAILED, text, NextRunTrigger::default()),
    }
}

/// The context of Git operations. Their own time limit ends them, so no token cancels them. Must be called within the async
/// runtime.
pub fn operation_context(context: &RunContext) -> git::GitOperationContext {
    git::GitOperationContext {
        runtime: tokio::runtime::Handle::current(),
        cancel: CancellationToken::new(),
        scratch: context.artifacts.scratch(),
        known: context.remotes.git.clone(),
    }
}
