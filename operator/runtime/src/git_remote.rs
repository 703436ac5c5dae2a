//! The remote of a GitRepository as its spec says it is reached: URL, credentials, proxy, time, and the wanted reference.
//!
//! Elsewhere: fetching it into an artifact (crate `source-controller`), pushing to it (crate `image-controller`), Git itself
//! (`sources::git`).

use std::collections::BTreeMap;
use std::time::Duration;

use crds::LocalObjectReference;
use crds::source::{GitProvider, GitRepository, GitRepositoryRef, GitRepositorySpec};
use kube_core::ResourceExt as _;
use reconcile::{Outcome, Wake, reason};
use sources::git::{Credentials, Error, GitLimits, Reference, Remote, RemoteUrl, Scheme};
use sources::http::Proxy;
use sources::reason::{AUTHENTICATION_FAILED, GIT_OPERATION_FAILED, INVALID_DURATION, URL_INVALID};
use tokio_util::sync::CancellationToken;
use windlass_cluster::error::chain;

use super::context::Context;
use super::reference::References;
use super::time_limit::LONGEST_TIMEOUT;
use super::unsupported::unsupported_text;

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// The data of a Secret.
pub type GitSecretData = BTreeMap<String, Vec<u8>>;

/// Fields that a spec has and that have no support, in the spec's order.
pub fn unsupported(spec: &GitRepositorySpec) -> Vec<&'static str> {
    // No `..`: a new field must be thought about here.
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

/// What a GitRepository names to be reached: the data of Secrets of its namespace.
#[derive(Default)]
pub struct GitRemoteSecrets {
    /// The credentials; empty without a Secret.
    pub secret: GitSecretData,
    /// The description of a proxy.
    pub proxy: Option<GitSecretData>,
}

impl GitRemoteSecrets {
    /// Reads the Secrets that the spec names, in the namespace of the object; all of them are among the references then.
    ///
    /// # Errors
    /// One is missing or cannot be read.
    pub async fn read(
        object: &GitRepository,
        references: &mut References,
    ) -> Result<Self, Outcome> {
        let spec = &object.spec;
        let credentials =
            SecretField { field: "spec.secretRef", what: "", reference: &spec.secret_ref };
        let what = "failed to configure proxy options: ";
        let proxy =
            SecretField { field: "spec.proxySecretRef", what, reference: &spec.proxy_secret_ref };
        // All references are read before a missing one ends the run.
        let secret = credentials.read(object, references).await;
        let proxy = proxy.read(object, references).await?;
        Ok(Self { secret: secret?.unwrap_or_default(), proxy })
    }

    /// The remote of a spec, reached with these Secrets.
    ///
    /// # Errors
    /// The spec has a field without support, or something in it or in a Secret cannot be used.
    pub fn remote(&self, spec: &GitRepositorySpec) -> Result<Remote, Outcome> {
        let fields = unsupported(spec);
        if !fields.is_empty() {
            return Err(Outcome::Stalled(reason::UNSUPPORTED_FIELD, unsupported_text(&fields)));
        }
        let url = RemoteUrl::parse(&spec.url)
            .map_err(|error| Outcome::Stalled(URL_INVALID, error.to_string()))?;
        let proxy = self.proxy(&url)?;
        let credentials = Credentials::from_secret(&self.secret, &url).map_err(|error| {
            Outcome::Failed(AUTHENTICATION_FAILED, error.to_string(), Wake::default())
        })?;
        let timeout = spec.timeout.as_ref().map(|it| reconcile::parse_duration(it.as_str()));
        let timeout = timeout
            .transpose()
            .map_err(|error| Outcome::Stalled(INVALID_DURATION, format!("spec.timeout: {error}")))?
            .unwrap_or(DEFAULT_TIMEOUT)
            .min(LONGEST_TIMEOUT);
        Ok(Remote { url, credentials, proxy, timeout, limits: GitLimits::default() })
    }

    /// The proxy that the spec asks for.
    fn proxy(&self, url: &RemoteUrl) -> Result<Option<Proxy>, Outcome> {
        let Some(data) = &self.proxy else { return Ok(None) };
        if url.scheme() == Scheme::Ssh {
            let text = "spec.proxySecretRef is not supported for ssh URLs, only for http and https; remove it or \
                        change spec.url";
            return Err(Outcome::Stalled(reason::UNSUPPORTED_FIELD, text.to_owned()));
        }
        Proxy::from_secret(data).map(Some).map_err(|error| {
            let text = format!("failed to configure proxy options: {error}");
            Outcome::Failed(AUTHENTICATION_FAILED, text, Wake::default())
        })
    }
}

/// A Secret that the spec may name.
struct SecretField<'a> {
    field: &'static str,
    what: &'static str,
    reference: &'a Option<LocalObjectReference>,
}

impl SecretField<'_> {
    /// The data of the Secret; `None` if the spec names none.
    async fn read(
        &self,
        object: &GitRepository,
        references: &mut References,
    ) -> Result<Option<GitSecretData>, Outcome> {
        let Some(reference) = self.reference else { return Ok(None) };
        let namespace = object.namespace().unwrap_or_default();
        let name = &reference.name;
        let failed = |why: String| {
            let text = format!("{}failed to get secret '{namespace}/{name}': {why}", self.what);
            Outcome::Failed(AUTHENTICATION_FAILED, text, Wake::default())
        };
        let secret = references.secret(&namespace, name).await;
        let secret = secret.map_err(|error| failed(error.to_string()))?;
        let missing = || failed(format!("not found; create it or correct {}", self.field));
        secret.map(Some).ok_or_else(missing)
    }
}

/// The reference that a spec asks for.
///
/// Parity(flux): commit wins over name, name over tag, tag over semver, semver over branch; without any it is `master`.
///
/// # Errors
/// The range of versions is none.
pub fn reference(given: Option<&GitRepositoryRef>) -> Result<Reference, Outcome> {
    Ok(match given.cloned().unwrap_or_default() {
        GitRepositoryRef { commit: Some(sha), branch, name, .. } => {
            Reference::Commit { sha, branch, name }
        }
        GitRepositoryRef { name: Some(name), .. } => Reference::Name(name),
        GitRepositoryRef { tag: Some(tag), .. } => Reference::Tag(tag),
        GitRepositoryRef { semver: Some(range), .. } => {
            Reference::semver(&range).map_err(|error| classify(&error))?
        }
        GitRepositoryRef { branch: Some(branch), .. } => Reference::Branch(branch),
        GitRepositoryRef { branch: None, .. } => Reference::default(),
    })
}

/// What a failed request to a Git remote means for an object.
pub fn classify(error: &Error) -> Outcome {
    let text = chain(error);
    match error {
        Error::InvalidUrl { .. } => Outcome::Stalled(URL_INVALID, text),
        Error::Busy { busy, .. } => {
            Outcome::Failed(GIT_OPERATION_FAILED, text, Wake::at(busy.until))
        }
        Error::InvalidReference { .. } => Outcome::Stalled(GIT_OPERATION_FAILED, text),
        Error::InvalidSparse { .. } => {
            Outcome::Stalled(reason::INVALID_PATH, format!("spec.sparseCheckout: {text}"))
        }
        Error::BadSecret(_) | Error::AuthenticationFailed { .. } | Error::ProxyRefused { .. } => {
            Outcome::Failed(AUTHENTICATION_FAILED, text, Wake::default())
        }
        // A branch or a server may change without the spec, so the rest is tried once more.
        _ => Outcome::Failed(GIT_OPERATION_FAILED, text, Wake::default()),
    }
}

/// The context of Git operations; their own time limit ends them, so no token cancels them. Call it from within the runtime.
pub fn operation_context(context: &Context) -> sources::git::Context {
    sources::git::Context {
        runtime: tokio::runtime::Handle::current(),
        cancel: CancellationToken::new(),
        scratch: context.artifacts.scratch(),
        known: context.remotes.git.clone(),
    }
}
