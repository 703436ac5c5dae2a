//! The GitRepository of an automation. It decides whether the automation may use it, how windlass connects to it, which
//! reference is fetched, and which key signs commits.
//!
//! Elsewhere: the branch that is pushed (`push_target`), the remote of any GitRepository (`windlass_runtime::git_remote_access`),
//! fetching and pushing (`push_round`).

use std::sync::Arc;

use crds::image::{
    CommitSigningKey, ImageUpdateAutomation, ImageUpdateAutomationSpec, ImageUpdateGitSpec,
};
use crds::source::{GitProvider, GitRepository};
use git::push::{CommitSigner, SigningKeyError};
use git::{GitReference, GitRemote};
use kube_core::{Resource as _, ResourceExt as _};
use reconcile::{ConditionReason, NextRunTrigger, ObjectKey, RunOutcome, condition_reason};
use sources::source_condition_reasons::GIT_OPERATION_FAILED;
use windlass_cluster::referenced_secrets_and_config_maps::RunReferenceReads;
use windlass_runtime::controller_kind::node_named;
use windlass_runtime::git_remote_access::{self, GitRemoteSecrets, GitSecretData};
use windlass_runtime::run_context::RunContext;
use windlass_runtime::run_error::RunError;

use super::push_target::PushTarget;

/// The repository cannot be used as the spec says. Parity(flux).
pub(super) const SOURCE_MANAGER_FAILED: ConditionReason =
    ConditionReason::new("SourceManagerFailed");

/// The spec says something of the repository that means nothing. Parity(flux).
pub(super) const INVALID_SOURCE_CONFIGURATION: ConditionReason =
    ConditionReason::new("InvalidSourceConfiguration");

/// The key by which the Secret of a GitHub App is known. Parity(flux).
const GITHUB_APP_KEY: &str = "githubAppID";

/// The Git repository of an automation, with its credentials and signing key.
pub(super) struct AutomationGitRepository {
    pub(super) remote: GitRemote,
    /// The reference that is fetched.
    pub(super) reference: GitReference,
    pub(super) push: PushTarget,
    pub(super) signing_key: Option<SigningKey>,
}

/// The node of the GitRepository that an automation names.
pub(super) fn node_of_reference(object: &ImageUpdateAutomation) -> ObjectKey {
    let reference = &object.spec.source_ref;
    let own = object.namespace().unwrap_or_default();
    let namespace = reference.namespace.as_deref().unwrap_or(&own);
    node_named::<GitRepository>(namespace, &reference.name)
}

/// What may change without the spec of the automation. Parity(flux): these words are before every cause.
pub(super) fn unconfigured(why: &str) -> RunOutcome {
    let text = format!("failed configuring source manager: {why}");
    RunOutcome::Failed(SOURCE_MANAGER_FAILED, text, NextRunTrigger::default())
}

/// Only a change of the spec helps. Parity(flux): these words are behind every cause.
pub(super) fn invalid(why: &str) -> RunOutcome {
    let text = format!("{why}: invalid source configuration");
    RunOutcome::Stalled(INVALID_SOURCE_CONFIGURATION, text)
}

/// The outcome of an automation whose GitRepository has this outcome.
fn blamed(source: &ObjectKey, outcome: &RunOutcome) -> RunOutcome {
    match outcome {
        RunOutcome::Stalled(condition_reason::UNSUPPORTED_FIELD, text) => {
            RunOutcome::Stalled(condition_reason::UNSUPPORTED_FIELD, format!("{source}: {text}"))
        }
        outcome => unconfigured(outcome.text()),
    }
}

/// The field `spec.git`, which is required for every kind of source.
fn git_spec(spec: &ImageUpdateAutomationSpec) -> Result<&ImageUpdateGitSpec, RunOutcome> {
    let kind = spec.source_ref.kind.as_str();
    if kind != "GitRepository" {
        return Err(invalid(&format!("source kind '{kind}' not supported")));
    }
    let missing = || invalid(&format!("source kind '{kind}' necessitates field .spec.git"));
    spec.git.as_ref().ok_or_else(missing)
}

/// Finds the GitRepository `source`, which the automation `node` names, and reads what both name. All of that is among the
/// references then.
///
/// The credentials are those of the GitRepository's namespace, the key that signs is of the automation's. Parity(flux).
///
/// # Errors
/// Something is missing or means nothing, the automation may not use it, or the API server did not say.
pub(super) async fn resolve(
    context: &RunContext,
    node: &ObjectKey,
    object: &ImageUpdateAutomation,
    source: &ObjectKey,
    references: &mut RunReferenceReads,
) -> Result<AutomationGitRepository, RunError> {
    let git = git_spec(&object.spec)?;
    let is_foreign = source.namespace != node.namespace;
    if is_foreign && context.settings.no_cross_namespace_refs {
        let text = format!("can't access '{source}', cross-namespace references have been blocked");
        return Err(RunOutcome::Stalled(condition_reason::ACCESS_DENIED, text).into());
    }
    let repository = referred(context, source).await?;
    // Parity(flux): the reference of the automation replaces that of the GitRepository as a whole.
    let own = git.checkout.as_ref().map(|checkout| &checkout.reference);
    let checkout = own.or(repository.spec.reference.as_ref());
    let reference = git_remote_access::reference(checkout).map_err(|it| unconfigured(it.text()))?;
    let push = PushTarget::new(git.push.as_ref(), checkout, &reference)?;
    let secrets = GitRemoteSecrets::read(&repository, references).await;
    let key = git.commit.signing_key.as_ref();
    let signing_key = SigningKey::read(key, &node.namespace, references).await;
    let secrets = secrets.map_err(|outcome| unconfigured(outcome.text()))?;
    check_provider(&repository, &secrets)?;
    let remote = secrets.remote(&repository.spec).map_err(|it| blamed(source, &it))?;
    Ok(AutomationGitRepository { remote, reference, push, signing_key: signing_key? })
}

async fn referred(
    context: &RunContext,
    source: &ObjectKey,
) -> Result<Arc<GitRepository>, RunError> {
    let ObjectKey { namespace, name, .. } = source;
    let found = match context.seen::<GitRepository>(namespace, name) {
        Some(found) => Some(found),
        // The list of GitRepositories may not be complete yet.
        None => context.cluster.read::<GitRepository>(namespace, name).await?.map(Arc::new),
    };
    found.ok_or_else(|| {
        let plural = GitRepository::plural(&());
        let group = GitRepository::group(&());
        let why = format!(
            "referenced git repository does not exist: {plural}.{group} \"{name}\" not found"
        );
        unconfigured(&why).into()
    })
}

/// Checks what the provider needs. The Secret of a GitHub App has nothing that other providers use. Parity(flux): these are its
/// words.
fn check_provider(
    repository: &GitRepository,
    secrets: &GitRemoteSecrets,
) -> Result<(), RunOutcome> {
    let spec = &repository.spec;
    let has_app = secrets.secret.contains_key(GITHUB_APP_KEY);
    let is_app = spec.provider == Some(GitProvider::GitHub);
    if is_app && !has_app {
        let why = "secretRef with github app data must be specified when provider is set to github";
        return Err(invalid(why));
    }
    let Some(reference) = spec.secret_ref.as_ref().filter(|_| has_app && !is_app) else {
        return Ok(());
    };
    let namespace = repository.namespace().unwrap_or_default();
    let why = format!(
        "secretRef '{namespace}/{}' has github app data but provider is not set to github",
        reference.name
    );
    Err(invalid(&why))
}

/// The key with which commits are signed, as its Secret contains it.
#[derive(PartialEq, Eq)]
pub(super) struct SigningKey {
    is_ssh: bool,
    /// The name of the Secret.
    secret: String,
    data: GitSecretData,
}

impl SigningKey {
    /// Reads the Secret that the spec names, in the namespace of the automation. `None` if the spec names none.
    async fn read(
        key: Option<&CommitSigningKey>,
        namespace: &str,
        references: &mut RunReferenceReads,
    ) -> Result<Option<Self>, RunOutcome> {
        let Some(key) = key else { return Ok(None) };
        let is_ssh = match key.type_.as_deref() {
            None | Some("gpg") => false,
            Some("ssh") => true,
            Some(other) => {
                return Err(unconfigured(&format!("unknown signing key type {other:?}")));
            }
        };
        let secret = key.secret_ref.name.clone();
        let data = references.secret(namespace, &secret).await;
        let data = data.map_err(|error| {
            unconfigured(&format!("failed to get signing key secret '{secret}': {error}"))
        })?;
        let data = data.ok_or_else(|| {
            let advice = "create it or correct spec.git.commit.signingKey.secretRef";
            unconfigured(&format!("signing key secret '{namespace}/{secret}' not found; {advice}"))
        })?;
        Ok(Some(Self { is_ssh, secret, data }))
    }

    /// The key, ready to sign. It takes a processor.
    ///
    /// # Errors
    /// It is missing or cannot be used.
    pub(super) fn signer(&self) -> Result<CommitSigner, RunOutcome> {
        let Self { is_ssh, secret, data } = self;
        let name = if *is_ssh { "identity" } else { "git.asc" };
        if !data.contains_key(name) {
            let article = if *is_ssh { "an" } else { "a" };
            let why =
                format!("signing key secret '{secret}' does not contain {article} '{name}' key");
            return Err(unconfigured(&why));
        }
        let now = u64::try_from(jiff::Timestamp::now().as_second()).unwrap_or_default();
        let signer =
            if *is_ssh { CommitSigner::ssh(data) } else { CommitSigner::open_pgp(data, now) };
        signer.map_err(|error| self.unusable(&error))
    }

    /// Parity(flux): these are its words, up to what its libraries say.
    fn unusable(&self, error: &SigningKeyError) -> RunOutcome {
        let Self { is_ssh, secret, .. } = self;
        let why = match error {
            SigningKeyError::Locked => {
                let field = if *is_ssh { "password" } else { "passphrase" };
                format!(
                    "can not use passphrase protected signing key without '{field}' field present in secret {secret}"
                )
            }
            SigningKeyError::WrongPassphrase => format!(
                "could not decrypt private key of the signing key present in secret {secret}: {error}"
            ),
            SigningKeyError::SeveralKeys => format!(
                "multiple entities read from secret '{secret}', could not determine which signing key to use"
            ),
            SigningKeyError::PublicKeyOnly => {
                let text = format!("failed to update source: {error}");
                return RunOutcome::Failed(GIT_OPERATION_FAILED, text, NextRunTrigger::default());
            }
            SigningKeyError::Unusable(error) if *is_ssh => format!(
                "could not parse SSH signing key from secret '{secret}': could not parse SSH signing key: {error}"
            ),
            SigningKeyError::UnusableOpenPgp(_) | SigningKeyError::Unusable(_) => {
                format!("could not read signing key from secret '{secret}': {error}")
            }
        };
        unconfigured(&why)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn only_git_is_a_source_and_it_needs_its_part_of_the_spec() {
        let text = |spec: Value| {
            let spec: ImageUpdateAutomationSpec = serde_json::from_value(spec).unwrap();
            git_spec(&spec).unwrap_err().text().to_owned()
        };
        assert_eq!(
            text(json!({"sourceRef": {"kind": "OCIRepository", "name": "a"}})),
            "source kind 'OCIRepository' not supported: invalid source configuration"
        );
        assert_eq!(
            text(json!({"sourceRef": {"kind": "GitRepository", "name": "a"}})),
            "source kind 'GitRepository' necessitates field .spec.git: invalid source configuration"
        );
    }

    #[test]
    fn what_is_wrong_with_the_repository_is_said_of_the_repository() {
        let source = ObjectKey::new("source.toolkit.fluxcd.io", "GitRepository", "apps", "app");
        let unsupported = RunOutcome::Stalled(
            condition_reason::UNSUPPORTED_FIELD,
            "spec.provider is not supported".to_owned(),
        );
        let outcome = blamed(&source, &unsupported);
        assert_eq!(outcome.text(), "GitRepository/apps/app: spec.provider is not supported");
        let invalid = RunOutcome::Stalled(condition_reason::INVALID_URL, "invalid URL".to_owned());
        let outcome = blamed(&source, &invalid);
        assert_eq!(outcome.text(), "failed configuring source manager: invalid URL");
        assert!(matches!(outcome, RunOutcome::Failed(SOURCE_MANAGER_FAILED, ..)), "{outcome:?}");
    }

    #[test]
    fn a_signing_key_that_is_missing_is_named() {
        for (is_ssh, text) in [
            (false, "signing key secret 'key' does not contain a 'git.asc' key"),
            (true, "signing key secret 'key' does not contain an 'identity' key"),
        ] {
            let key = SigningKey { is_ssh, secret: "key".to_owned(), data: GitSecretData::new() };
            let outcome = key.signer().unwrap_err();
            assert_eq!(outcome.text(), format!("failed configuring source manager: {text}"));
        }
        let data = GitSecretData::from([("git.asc".to_owned(), b"hunter2".to_vec())]);
        let key = SigningKey { is_ssh: false, secret: "key".to_owned(), data };
        let outcome = key.signer().unwrap_err();
        assert!(!outcome.text().contains("hunter2"), "{outcome:?}");
    }
}
