//! Finds out where to post the check of a plan: from flags, and otherwise from the environment variables of the CI.
//!
//! The CI variables describe the running job and not the job that made the plan. Nothing is read from the plan, because the
//! plan is untrusted.
//! Elsewhere: posting (`pull_request_check.rs`).

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use clap::{Args as ClapArgs, ValueEnum};
use objects::RedactedValue;
use serde_json::Value;
use url::Url;

/// The largest event file that is read, in bytes. GitHub allows 25 MiB, and pull request events are small.
const MAX_EVENT_BYTES: usize = 25 << 20;

/// The largest token file, in bytes.
const MAX_TOKEN_BYTES: usize = 64 << 10;

/// The longest path of a repository, in bytes.
const MAX_REPOSITORY_BYTES: usize = 1024;

/// Where a check is posted.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct PullRequestCommitArgs {
    /// The forge [default: that of the CI]
    #[arg(long, value_enum, value_name = "FORGE")]
    forge: Option<CheckForge>,
    /// Its address [default: that of the CI, else https://github.com or https://gitlab.com]
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// The repository of the pull request, such as OWNER/NAME [default: that of the CI]
    #[arg(long, value_name = "PATH")]
    repository: Option<String>,
    /// The number of the pull or merge request [default: that of the CI]
    #[arg(long, alias = "merge-request", value_name = "NUMBER")]
    pull_request: Option<u64>,
    /// The commit with the change, which is the last one of the pull request [default: that of the CI]
    #[arg(long, value_name = "SHA")]
    commit: Option<String>,
    /// File with the token [default: the variable GITHUB_TOKEN, GITLAB_TOKEN, GITEA_TOKEN or FORGEJO_TOKEN, by the forge]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// A forge that has pull requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CheckForge {
    #[value(name = "github")]
    GitHub,
    #[value(name = "gitlab")]
    GitLab,
    Gitea,
    Forgejo,
}

impl CheckForge {
    /// The Provider type for this forge.
    pub(crate) fn provider_type(self) -> &'static str {
        match self {
            Self::GitHub => "github",
            Self::GitLab => "gitlab",
            Self::Gitea | Self::Forgejo => "gitea",
        }
    }

    /// The forge's word for a pull request.
    pub(crate) fn noun(self) -> &'static str {
        if self == Self::GitLab { "merge request" } else { "pull request" }
    }

    /// The maximum size of a comment, in bytes. GitHub accepts 65536 characters, and GitLab a million.
    pub(crate) fn max_comment_bytes(self) -> usize {
        if self == Self::GitLab { 250_000 } else { 60_000 }
    }

    fn token_variable(self) -> &'static str {
        match self {
            Self::GitHub => "GITHUB_TOKEN",
            Self::GitLab => "GITLAB_TOKEN",
            Self::Gitea => "GITEA_TOKEN",
            Self::Forgejo => "FORGEJO_TOKEN",
        }
    }

    fn default_url(self) -> Option<&'static str> {
        match self {
            Self::GitHub => Some("https://github.com"),
            Self::GitLab => Some("https://gitlab.com"),
            Self::Gitea | Self::Forgejo => None,
        }
    }
}

/// A pull request on a forge, and a commit of it.
pub(crate) struct PullRequestCommit {
    pub(crate) forge: CheckForge,
    /// The URL of the repository.
    pub(crate) address: String,
    /// The host of the forge.
    pub(crate) host: String,
    /// The path of the repository.
    pub(crate) repository: String,
    pub(crate) number: u64,
    pub(crate) commit: String,
    pub(crate) token: RedactedValue<String>,
}

/// Reads an environment variable. Returns `None` if it is empty.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Reads a file up to a size of `most` bytes. If the file is larger, one further byte is read. `-` is standard input.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn read_at_most(path: &Path, most: usize) -> anyhow::Result<Vec<u8>> {
    let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    let mut text = Vec::new();
    let read = match path.as_os_str() == "-" {
        true => std::io::stdin().lock().take(limit).read_to_end(&mut text),
        false => File::open(path).and_then(|file| file.take(limit).read_to_end(&mut text)),
    };
    read.with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text)
}

/// The event that started the workflow.
fn event(path: &str) -> Option<Value> {
    let text = read_at_most(Path::new(path), MAX_EVENT_BYTES).ok()?;
    serde_json::from_slice(&text).ok()
}

impl PullRequestCommit {
    /// Takes the target from the flags, and otherwise from the CI variables.
    ///
    /// # Errors
    /// A value is missing in both, or has the wrong format.
    pub(crate) fn of(
        args: &PullRequestCommitArgs,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> anyhow::Result<Self> {
        let ci = CiPullRequest::of(variable, &event);
        let forge = args.forge.or(ci.forge);
        let forge = forge.context("which forge is not known: add --forge")?;
        // CI variables about another forge do not count.
        let is_its_job = ci.forge.is_some_and(|it| it.provider_type() == forge.provider_type());
        let ci = if is_its_job { ci } else { CiPullRequest::default() };
        let url = args.url.clone().or(ci.url);
        let url = url.or_else(|| forge.default_url().map(str::to_owned));
        let url = url.context("the address of the forge is not known: add --url")?;
        let repository = args.repository.clone().or(ci.repository);
        let repository = repository.context("the repository is not known: add --repository")?;
        check_repository(&repository, forge)
            .with_context(|| format!("--repository {repository}"))?;
        let number = args.pull_request.or(ci.number).with_context(|| {
            format!("the {} is not known: add --pull-request with its number", forge.noun())
        })?;
        let commit = args.commit.clone().or(ci.commit);
        let commit = commit.context("the commit is not known: add --commit")?;
        let server = server_url(&url, forge).context("--url")?;
        // Removes the brackets of an IPv6 address.
        let host = server.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let address = format!("{}/{repository}", server.as_str().trim_end_matches('/'));
        let token = token(args.token_file.as_deref(), forge, variable)?;
        Ok(Self { forge, address, host, repository, number, commit, token })
    }
}

/// The token from a file, or otherwise from the environment variable for the forge.
fn token(
    file: Option<&Path>,
    forge: CheckForge,
    variable: &dyn Fn(&str) -> Option<String>,
) -> anyhow::Result<RedactedValue<String>> {
    let name = forge.token_variable();
    let token = match file {
        Some(file) => {
            let text = read_at_most(file, MAX_TOKEN_BYTES)?;
            ensure!(
                text.len() <= MAX_TOKEN_BYTES,
                "{} is no token: it is too long",
                file.display()
            );
            String::from_utf8(text)
                .ok()
                .with_context(|| format!("{} is no token", file.display()))?
        }
        None => variable(name)
            .with_context(|| format!("there is no token: set ${name}, or add --token-file"))?,
    };
    let token = token.trim();
    ensure!(!token.is_empty(), "the token is empty");
    Ok(RedactedValue::new(token.to_owned()))
}

/// Checks the path of a repository, because it becomes part of URLs.
fn check_repository(path: &str, forge: CheckForge) -> anyhow::Result<()> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let is_name = |name: &str| !matches!(name, "" | "." | "..") && name.bytes().all(is_plain);
    let parts = path.split('/').count();
    let is_path = path.len() <= MAX_REPOSITORY_BYTES && path.split('/').all(is_name);
    match forge {
        _ if !is_path || parts < 2 => bail!("this is not the path of a repository, as OWNER/NAME"),
        CheckForge::GitHub | CheckForge::Gitea | CheckForge::Forgejo if parts > 2 => {
            bail!("a repository has an owner and a name there, as OWNER/NAME")
        }
        _ => Ok(()),
    }
}

/// Parses the address of a forge.
fn server_url(text: &str, forge: CheckForge) -> anyhow::Result<Url> {
    let url = Url::parse(text)?;
    let is_web = matches!(url.scheme(), "https" | "http") && url.host_str().is_some();
    ensure!(is_web, "this is not an address as https://HOST");
    let has_more = !url.username().is_empty()
        || url.password().is_some()
        || url.query().is_some()
        || url.fragment().is_some();
    ensure!(!has_more, "the address of a forge has neither a user nor a query");
    let may_have_path = matches!(forge, CheckForge::Gitea | CheckForge::Forgejo);
    ensure!(
        may_have_path || url.path() == "/",
        "only Gitea and Forgejo may be served below a path; --repository names the repository"
    );
    Ok(url)
}

/// The pull request of the running job, according to the CI.
#[derive(Debug, Default, PartialEq, Eq)]
struct CiPullRequest {
    forge: Option<CheckForge>,
    url: Option<String>,
    repository: Option<String>,
    number: Option<u64>,
    commit: Option<String>,
}

impl CiPullRequest {
    /// Reads the CI variables, and the event file that one of them names.
    fn of(
        variable: &dyn Fn(&str) -> Option<String>,
        event: &dyn Fn(&str) -> Option<Value>,
    ) -> Self {
        let is_set = |name: &str| variable(name).is_some_and(|value| value == "true");
        if is_set("GITLAB_CI") {
            return Self::of_gitlab(variable);
        }
        if !is_set("GITHUB_ACTIONS") {
            return Self::default();
        }
        // Gitea and Forgejo also set the variables of GitHub.
        let forge = match () {
            () if is_set("FORGEJO_ACTIONS") => CheckForge::Forgejo,
            () if is_set("GITEA_ACTIONS") => CheckForge::Gitea,
            () => CheckForge::GitHub,
        };
        let event = variable("GITHUB_EVENT_PATH").and_then(|path| event(&path)).unwrap_or_default();
        let number = |pointer: &str| event.pointer(pointer).and_then(Value::as_u64);
        let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str);
        // `$GITHUB_SHA` may be a merge commit, or a commit of the default branch.
        let commit = text("/pull_request/head/sha").or_else(|| text("/workflow_run/head_sha"));
        Self {
            forge: Some(forge),
            url: variable("GITHUB_SERVER_URL"),
            repository: variable("GITHUB_REPOSITORY"),
            number: number("/pull_request/number")
                .or_else(|| number("/workflow_run/pull_requests/0/number")),
            commit: commit.map(str::to_owned),
        }
    }

    fn of_gitlab(variable: &dyn Fn(&str) -> Option<String>) -> Self {
        let number = variable("CI_MERGE_REQUEST_IID").and_then(|text| text.parse().ok());
        // In a pipeline for merged results, `$CI_COMMIT_SHA` is a merge commit.
        let head = variable("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA");
        let project = variable("CI_MERGE_REQUEST_PROJECT_PATH");
        Self {
            forge: Some(CheckForge::GitLab),
            url: variable("CI_SERVER_URL"),
            repository: project.or_else(|| variable("CI_PROJECT_PATH")),
            number,
            commit: head.or_else(|| variable("CI_COMMIT_SHA")),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::{Command, FromArgMatches as _};
    use serde_json::json;

    use super::*;

    fn target(line: &[&str], variables: &[(&str, &str)]) -> anyhow::Result<PullRequestCommit> {
        let command =
            PullRequestCommitArgs::augment_args(Command::new("check").no_binary_name(true));
        let args =
            PullRequestCommitArgs::from_arg_matches(&command.get_matches_from(line)).unwrap();
        let variable = |name: &str| {
            let found = variables.iter().find(|(it, value)| *it == name && !value.is_empty());
            found.map(|(_, value)| (*value).to_owned())
        };
        PullRequestCommit::of(&args, &variable)
    }

    fn error(line: &[&str], variables: &[(&str, &str)]) -> String {
        format!("{:#}", target(line, variables).err().unwrap())
    }

    const FLAGS: [&str; 4] =
        ["--forge=github", "--repository=acme/fleet", "--pull-request=7", "--commit=abc"];

    #[test]
    fn a_workflow_of_github_says_which_pull_request_it_is_about() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("event.json");
        let name = path.display().to_string();
        let variables = [
            ("GITHUB_ACTIONS", "true"),
            ("GITHUB_SERVER_URL", "https://github.com"),
            ("GITHUB_REPOSITORY", "acme/fleet"),
            ("GITHUB_EVENT_PATH", name.as_str()),
            ("GITHUB_SHA", "merge"),
            ("GITHUB_TOKEN", "t0ken\n"),
        ];
        for event in [
            json!({"pull_request": {"number": 7, "head": {"sha": "abc"}}}),
            json!({"workflow_run": {"head_sha": "abc", "pull_requests": [{"number": 7}]}}),
        ] {
            std::fs::write(&path, event.to_string()).unwrap();
            let found = target(&[], &variables).unwrap();
            assert_eq!((found.forge, found.number), (CheckForge::GitHub, 7));
            assert_eq!((found.commit.as_str(), found.host.as_str()), ("abc", "github.com"));
            assert_eq!(found.address, "https://github.com/acme/fleet");
            assert_eq!(found.token.expose(), "t0ken");
        }
        let found = target(&["--pull-request=8", "--commit=def"], &variables).unwrap();
        assert_eq!((found.number, found.commit.as_str()), (8, "def"));
        // A workflow run for a fork names no pull request.
        let event = json!({"workflow_run": {"head_sha": "abc", "pull_requests": []}});
        std::fs::write(&path, event.to_string()).unwrap();
        assert!(error(&[], &variables).contains("add --pull-request"));
        for (name, token, forge) in [
            ("GITEA_ACTIONS", "GITEA_TOKEN", CheckForge::Gitea),
            ("FORGEJO_ACTIONS", "FORGEJO_TOKEN", CheckForge::Forgejo),
        ] {
            let variables = [&variables[..], &[(name, "true"), (token, "t")]].concat();
            let found = target(&["--pull-request=8"], &variables).unwrap();
            assert_eq!((found.forge, found.token.expose().as_str()), (forge, "t"));
        }
    }

    #[test]
    fn a_pipeline_of_gitlab_says_which_merge_request_it_is_about() {
        let variables = |head| {
            [
                ("GITLAB_CI", "true"),
                ("CI_SERVER_URL", "https://gitlab.example.com:8443"),
                ("CI_PROJECT_PATH", "jane/fork"),
                ("CI_MERGE_REQUEST_PROJECT_PATH", "acme/web/fleet"),
                ("CI_MERGE_REQUEST_IID", "7"),
                ("CI_COMMIT_SHA", "merged"),
                ("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA", head),
                ("GITLAB_TOKEN", "t0ken"),
            ]
        };
        let found = target(&[], &variables("abc")).unwrap();
        assert_eq!((found.number, found.commit.as_str()), (7, "abc"));
        assert_eq!(found.address, "https://gitlab.example.com:8443/acme/web/fleet");
        assert_eq!(target(&[], &variables("")).unwrap().commit, "merged");
        // The variables describe a job on another forge, so they do not count.
        let other = [&variables("abc")[..], &[("GITHUB_TOKEN", "t")]].concat();
        let found = target(&FLAGS, &other).unwrap();
        assert_eq!(found.address, "https://github.com/acme/fleet");
        assert!(error(&["--forge=github"], &other).contains("add --repository"));
    }

    #[test]
    fn a_token_comes_from_a_file_or_the_variable_of_the_forge() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, " s3cret \n").unwrap();
        let flag = format!("--token-file={}", path.display());
        let line = [&FLAGS[..], &[flag.as_str()]].concat();
        let found = target(&line, &[("GITHUB_TOKEN", "other")]).unwrap();
        assert_eq!(found.token.expose(), "s3cret");
        assert!(error(&FLAGS, &[]).contains("set $GITHUB_TOKEN, or add --token-file"));
        std::fs::write(&path, "\n").unwrap();
        assert_eq!(error(&line, &[]), "the token is empty");
        std::fs::write(&path, "x".repeat(MAX_TOKEN_BYTES + 1)).unwrap();
        assert!(error(&line, &[]).contains("too long"));
    }

    #[test]
    fn what_becomes_part_of_urls_has_the_form_of_a_path_and_of_an_address() {
        let token = [("GITHUB_TOKEN", "t"), ("GITLAB_TOKEN", "t"), ("GITEA_TOKEN", "t")];
        let of = |forge: &str, repository: &str, url: &str| {
            let flags = [
                format!("--forge={forge}"),
                format!("--repository={repository}"),
                format!("--url={url}"),
            ];
            let mut line: Vec<&str> = flags.iter().map(String::as_str).collect();
            line.extend(["--pull-request=7", "--commit=abc"]);
            target(&line, &token).map(|it| it.address).map_err(|error| format!("{error:#}"))
        };
        let gitea = of("gitea", "acme/fleet", "http://git.example.com:3000/git/").unwrap();
        assert_eq!(gitea, "http://git.example.com:3000/git/acme/fleet");
        assert!(of("gitlab", "acme/web/fleet", "https://gitlab.com").is_ok());
        for repository in ["", "fleet", "a/b/c", "../x", "a/b?c", "a/b#c", "a//b", "a/b c", "/a/b"]
        {
            let error = of("github", repository, "https://github.com").unwrap_err();
            assert!(error.starts_with("--repository "), "{error}");
        }
        for url in ["github.com", "ftp://a", "https://u:p@a", "https://a/?b", "https://a/b"] {
            let error = of("github", "a/b", url).unwrap_err();
            assert!(error.starts_with("--url: "), "{error}");
        }
        assert!(
            error(&["--forge=gitea", "--repository=a/b", "--pull-request=1", "--commit=a"], &token)
                .contains("add --url")
        );
        assert!(error(&[], &token).contains("add --forge"));
    }
}
