//! Asking the forge of a PlanPolicy for the pull request of a commit, and for its reviews.
//!
//! The policy says which forge windlass asks and which repositories count. The source only chooses one of these repositories.
//! Otherwise the owner of a source could name a forge that answers as the owner wants, or a repository with imported pull
//! requests. Here also: one answer for all Plans of a commit, and the delay that a forge requests, for all Plans of a policy
//! (`forge_answer_cache`). Elsewhere: the requests (`notify`), which servers may be asked (`windlass_runtime::egress_policy`).

mod forge_answer_cache;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use crds::windlass_release::{ForgeProvider, PlanPolicy, PullRequestApprovalSpec};
use kube_core::ResourceExt as _;
use notify::{
    Provider, PullRequestReviewLookup, PullRequestReviewQuery, PullRequestReviewResult, SecretData,
};
use serde_json::json;
use url::Url;

use self::forge_answer_cache::ForgeAnswerCache;
pub(super) use self::forge_answer_cache::{ForgeAnswer, MAX_ANSWER_AGE};
use super::ApprovalRefusal;
use windlass_expressions::on_thread;
use windlass_runtime::provider_secret_masking::{NOT_MASKED, masked_text};
use windlass_runtime::pull_request_proposal::converse;
use windlass_runtime::run_context::RunContext;

/// The longest path of a repository.
const MAX_REPOSITORY_BYTES: usize = 1024;

/// The key of a Secret that would replace the address of the policy.
const ADDRESS_KEY: &str = "address";

/// The pull request and reviews of a commit at the forge of a policy, from now or some seconds ago. Each request takes a
/// permit of the namespace.
///
/// # Errors
/// The forge could not be asked, or its answer cannot be used. The message contains no value of the Secret.
pub(super) async fn reviewed_pull_request(
    context: &RunContext,
    namespace: &str,
    policy: &PlanPolicy,
    spec: &PullRequestApprovalSpec,
    source: &str,
    query: PullRequestReviewQuery,
) -> Result<ForgeAnswer, ApprovalRefusal> {
    let unsupported = |why: String| ApprovalRefusal::certain("NotSupported", why);
    let forge = forge_address(spec).map_err(unsupported)?;
    let repository = repository_path(source, &forge).map_err(unsupported)?;
    if !names_repository(&spec.repositories, &repository) {
        return Err(unsupported(format!(
            "repository {repository} is not among spec.pullRequestApproval.repositories of PlanPolicy {}; approve it as a user",
            policy.name_any()
        )));
    }
    let uid = policy.uid().unwrap_or_default();
    let generation = policy.metadata.generation.unwrap_or_default();
    let PullRequestReviewQuery { merge_commit, branch } = &query;
    let question = format!("{uid} {generation} {repository} {merge_commit} {branch}");
    let answers = context.shared::<ForgeAnswerCache>();
    let ask = async move {
        let asked = Instant::now();
        let there = PolicyForgeRepository { policy, spec, forge: &forge, repository: &repository };
        let result = ask_forge(context, namespace, &there, query).await;
        result.map(|result| ForgeAnswer { result, asked })
    };
    answers.get(&uid, question, ask).await
}

/// Whether a list of repositories names one. An entry is `acme/fleet`, or `acme/*` for everything below an owner or group.
/// Forges do not distinguish upper and lower case.
fn names_repository(list: &[String], repository: &str) -> bool {
    let repository = repository.to_ascii_lowercase();
    list.iter().map(|it| it.to_ascii_lowercase()).any(|it| match it.strip_suffix("/*") {
        Some(owner) => repository.strip_prefix(owner).is_some_and(|rest| rest.starts_with('/')),
        None => it == repository,
    })
}

/// A repository at the forge of a policy.
struct PolicyForgeRepository<'r> {
    policy: &'r PlanPolicy,
    spec: &'r PullRequestApprovalSpec,
    forge: &'r Url,
    repository: &'r str,
}

/// Asks the forge of a PlanPolicy for the reviews of a pull request. The error is the reason why there is no approval.
async fn ask_forge(
    context: &RunContext,
    namespace: &str,
    asked: &PolicyForgeRepository<'_>,
    query: PullRequestReviewQuery,
) -> Result<PullRequestReviewResult, ApprovalRefusal> {
    let PolicyForgeRepository { policy, spec, forge, repository } = asked;
    let name = policy.name_any();
    let unknown = |why: String| ApprovalRefusal::unknown(format!("PlanPolicy {name}: {why}"));
    let secrets = Arc::new(read_secret(context, spec).await.map_err(unknown)?);
    let address = format!("{}/{repository}", forge.as_str().trim_end_matches('/'));
    let provider = json!({
        "metadata": {"name": name, "namespace": context.settings.runtime_namespace},
        "spec": {"type": provider_type(spec.provider), "address": address,
            "secretRef": {"name": spec.secret_ref.name}},
    });
    let provider = Provider::new(provider).map_err(|error| unknown(error.to_string()))?;
    let held = secrets.clone();
    let begun = on_thread(namespace, move || {
        let secret = |_: &str, name: &str| held.get(name).cloned();
        let now = jiff::Timestamp::now().as_second();
        PullRequestReviewLookup::new(query, &provider, now, &secret)
    });
    let conversation = begun.await.map_err(|broken| unknown(broken.to_string()))?;
    let clients = &context.remotes.http;
    let failure = match converse(clients, &context.asking, namespace, conversation).await {
        Ok(result) => return Ok(result),
        Err(failure) => failure,
    };
    let retry_after = failure.retry_after;
    let masked = on_thread(namespace, move || masked_text(&secrets, &failure.message)).await;
    let why = match masked {
        Ok(Some(message)) => message,
        Ok(None) => NOT_MASKED.to_owned(),
        Err(broken) => broken.to_string(),
    };
    Err(ApprovalRefusal { retry_after, ..unknown(why) })
}

/// The type of the Provider for the same forge.
const fn provider_type(provider: ForgeProvider) -> &'static str {
    match provider {
        ForgeProvider::GitHub => "github",
        ForgeProvider::GitLab => "gitlab",
        ForgeProvider::Gitea | ForgeProvider::Forgejo => "gitea",
    }
}

/// Reads the Secret that `pullRequestApproval.secretRef` of a PlanPolicy names.
async fn read_secret(
    context: &RunContext,
    spec: &PullRequestApprovalSpec,
) -> Result<BTreeMap<String, SecretData>, String> {
    let namespace = &context.settings.runtime_namespace;
    let name = &spec.secret_ref.name;
    let read = context.cluster.secret(namespace, name).await;
    let found = read.map_err(|error| format!("cannot read Secret {namespace}/{name}: {error}"))?;
    let Some((mut data, _)) = found else {
        return Err(format!(
            "Secret {namespace}/{name} not found; create it in the namespace of windlass, or correct \
             spec.pullRequestApproval.secretRef"
        ));
    };
    // The policy decides which forge gets the token.
    data.remove(ADDRESS_KEY);
    let secret = SecretData { name: format!("{namespace}/{name}"), data };
    Ok(BTreeMap::from([(name.clone(), secret)]))
}

/// The address of the forge of a policy.
fn forge_address(spec: &PullRequestApprovalSpec) -> Result<Url, String> {
    let default = match spec.provider {
        ForgeProvider::GitHub => Some("https://github.com"),
        ForgeProvider::GitLab => Some("https://gitlab.com"),
        ForgeProvider::Gitea | ForgeProvider::Forgejo => None,
    };
    let field = "spec.pullRequestApproval.address of the PlanPolicy";
    let given = spec.address.as_deref().or(default);
    let given = given.ok_or_else(|| format!("{field} is missing"))?;
    let url = Url::parse(given).map_err(|error| format!("{field}: {error}"))?;
    let is_web = matches!(url.scheme(), "https" | "http") && url.host_str().is_some();
    let has_more = !url.username().is_empty()
        || url.password().is_some()
        || url.query().is_some()
        || url.fragment().is_some();
    let may_have_path = matches!(spec.provider, ForgeProvider::Gitea | ForgeProvider::Forgejo);
    if !is_web || has_more || !may_have_path && url.path() != "/" {
        return Err(format!("{field} is not the address of a forge, as https://HOST"));
    }
    Ok(url)
}

/// The path of a source's repository at a forge, such as `acme/fleet`.
///
/// # Errors
/// The source is at another host, or its URL has no such path.
fn repository_path(source: &str, forge: &Url) -> Result<String, String> {
    let host = forge.host_str().unwrap_or_default();
    let elsewhere =
        || format!("its source is not at {host}, which the PlanPolicy names; approve it as a user");
    let Ok(url) = Url::parse(source) else { return Err(elsewhere()) };
    let is_ssh = url.scheme() == "ssh";
    let is_at_host = url.host_str().is_some_and(|it| it.eq_ignore_ascii_case(host));
    let is_same_server = is_ssh
        || url.scheme() == forge.scheme()
            && url.port_or_known_default() == forge.port_or_known_default();
    if !is_at_host || !is_same_server {
        return Err(elsewhere());
    }
    let below = if is_ssh { "" } else { forge.path().trim_end_matches('/') };
    let path = url.path().strip_prefix(below).and_then(|path| path.strip_prefix('/'));
    let path = path.ok_or_else(elsewhere)?.trim_end_matches('/');
    let path = path.strip_suffix(".git").unwrap_or(path);
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let is_name = |name: &str| !matches!(name, "" | "." | "..") && name.bytes().all(is_plain);
    let is_path =
        path.len() <= MAX_REPOSITORY_BYTES && path.contains('/') && path.split('/').all(is_name);
    match is_path {
        true => Ok(path.to_owned()),
        false => Err("the URL of its source is not that of a repository at the forge".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(source: &str, forge: &str) -> Result<String, String> {
        repository_path(source, &Url::parse(forge).unwrap())
    }

    #[test]
    fn a_repository_is_at_the_host_of_the_policy() {
        for (source, forge) in [
            ("https://github.com/acme/fleet", "https://github.com"),
            ("https://GitHub.com/acme/fleet.git", "https://github.com"),
            ("ssh://git@github.com/acme/fleet.git", "https://github.com"),
            ("ssh://git@git.example.com:2222/acme/fleet.git", "https://git.example.com:8443/git"),
            ("http://git.example.com:3000/git/acme/fleet/", "http://git.example.com:3000/git/"),
        ] {
            assert_eq!(path(source, forge).as_deref(), Ok("acme/fleet"), "{source}");
        }
        let nested = path("https://gitlab.com/acme/web/fleet", "https://gitlab.com");
        assert_eq!(nested.as_deref(), Ok("acme/web/fleet"));
        for source in [
            "https://evil.example.com/acme/fleet",
            "https://github.com.evil.example.com/acme/fleet",
            "https://github.com@evil.example.com/acme/fleet",
            "https://github.com:8443/acme/fleet",
            "http://github.com/acme/fleet",
            "ssh://git@evil.example.com/acme/fleet",
            "not a URL",
        ] {
            let refused = path(source, "https://github.com").unwrap_err();
            assert!(refused.contains("is not at github.com"), "{source}: {refused}");
        }
        for source in
            ["https://github.com/fleet", "https://github.com/a/b%2Fc", "https://github.com/"]
        {
            assert!(path(source, "https://github.com").is_err(), "{source}");
        }
        assert!(path("https://a.example.com/gitx/a/b", "https://a.example.com/git").is_err());
    }

    #[test]
    fn only_repositories_that_the_policy_names_count() {
        let list = ["acme/fleet", "acme/web/*", "Platform/*"].map(str::to_owned);
        for named in ["acme/fleet", "Acme/Fleet", "acme/web/a", "acme/web/a/b", "platform/x"] {
            assert!(names_repository(&list, named), "{named}");
        }
        for other in ["acme/fleet2", "acme/other", "acme/web", "acme/webx/a", "mallory/fleet"] {
            assert!(!names_repository(&list, other), "{other}");
        }
        let all = ["*", "/*", ""].map(str::to_owned);
        assert!(!names_repository(&all, "acme/fleet") && !names_repository(&[], "acme/fleet"));
    }

    #[test]
    fn a_forge_of_ones_own_needs_an_address() {
        let spec = |provider, address: Option<&str>| PullRequestApprovalSpec {
            provider,
            address: address.map(str::to_owned),
            ..PullRequestApprovalSpec::default()
        };
        let of = |provider, address| forge_address(&spec(provider, address));
        assert_eq!(of(ForgeProvider::GitHub, None).unwrap().as_str(), "https://github.com/");
        assert_eq!(of(ForgeProvider::GitLab, None).unwrap().as_str(), "https://gitlab.com/");
        assert!(of(ForgeProvider::Gitea, None).unwrap_err().ends_with("is missing"));
        assert!(of(ForgeProvider::Forgejo, Some("https://git.example.com/git")).is_ok());
        for address in ["https://u:p@git.example.com", "ftp://a", "https://a/?b", "a"] {
            assert!(of(ForgeProvider::Gitea, Some(address)).is_err(), "{address}");
        }
        assert!(of(ForgeProvider::GitHub, Some("https://github.com/acme")).is_err());
    }
}
