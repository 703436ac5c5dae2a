//! `windlass plan check`: posts the result of `windlass plan` as one comment on a pull request and as a commit status.
//!
//! For safety, two CI jobs are used. The job that renders a branch has no token, and the job with the token renders nothing.
//! The second job only reads the plan, and treats it as untrusted text (`plan::ChangePlan::from_untrusted_json`). Here: the
//! command, and posting. Below: finding the pull request (`pull_request_commit.rs`). Elsewhere: the comment and the verdict
//! (engine `plan`), the requests to forges (`notify::PullRequestCheckPosting`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use clap::{Args as ClapArgs, ValueEnum};
use http_client::{EgressHostList, EgressRules, HttpClientCache};
use notify::{
    CheckCommentOutcome, Provider, PullRequestCheck, PullRequestCheckPosting, PullRequestError,
    SecretData,
};
use objects::SecretMasking;
use plan::{ChangePlan, MAX_PLAN_BYTES, PlanCheckStatus, PlanFailureRule};
use serde_json::json;

use super::pull_request_commit::{
    CheckForge, PullRequestCommit, PullRequestCommitArgs, read_at_most, variable,
};
use windlass_cli_runtime::connection::{ProgressGlyph, block_on, print, say};
use windlass_cli_runtime::exit_code::ExitCode;
use windlass_cluster::run_permits::RunPermits;
use windlass_runtime::pull_request_proposal::converse;

/// The longest name of a plan, in bytes.
const MAX_NAME_BYTES: usize = 63;

/// How many times the command tries to post a check if the forge does not respond properly.
const MAX_ATTEMPTS: u32 = 3;

/// The delay before the second attempt. The delay before the third attempt is twice as long.
const RETRY_DELAY: Duration = Duration::from_secs(2);

/// If the forge asks for a longer delay than this, the command does not wait.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);

/// The flags of `windlass plan check`.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct PlanCheckArgs {
    /// The plan, as `windlass plan -o json` printed it; `-` is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    target: PullRequestCommitArgs,
    /// The name of the cluster, if a pull request has plans of several: each name has a comment and a status
    #[arg(long, value_name = "NAME", value_parser = plan_name)]
    name: Option<String>,
    /// What makes the status a failure, between commas; errors do unless it is `never`
    #[arg(long, value_enum, value_delimiter = ',', default_value = "error", value_name = "RULES")]
    fail_on: Vec<CheckFailureCause>,
    /// Print the comment and the status, and send nothing
    #[arg(long)]
    dry_run: bool,
}

/// What makes the status of a plan a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CheckFailureCause {
    /// An object is deleted or recreated, or a CustomResourceDefinition loses something
    Destructive,
    /// Something that changes is not known without a cluster, or could not be compared
    Unknown,
    /// Deletions beyond the budget, what the API server rejects, what cannot be rendered
    Error,
    /// Nothing
    Never,
}

/// Examples, and a description of what is sent, at the end of the command's help.
pub(crate) const EXAMPLES: &str = "Examples:
  windlass plan --base \"$BASE\" -o json > plan.json      in a job without a token
  windlass plan check plan.json                         in a job of GitHub Actions or GitLab CI with a token
  windlass plan check plan.json --name prod --fail-on destructive,unknown
  windlass plan check plan.json --forge gitea --url https://git.example.com --repository acme/fleet \\
      --pull-request 7 --commit \"$COMMIT\" --token-file token

The status is called windlass/plan, or windlass/plan/NAME. The comment is found again by a hidden marker and by its author,
who is the user of the token: comments of others are never edited. It is not changed if the pull request has another commit
than the one of this check. Nothing of the plan is taken for more than text.

Exit status: 0 if comment and status are posted, whatever the status is; 2 if they are not.";

/// Parses the name of a plan.
fn plan_name(text: &str) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_name = (1..=MAX_NAME_BYTES).contains(&text.len())
        && text.bytes().all(is_plain)
        // `--` would end an HTML comment.
        && !text.contains("--")
        && !text.starts_with('-')
        && !text.ends_with('-');
    match is_name {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "a name has up to {MAX_NAME_BYTES} letters, digits, `_`, `.` and single `-` between them"
        )),
    }
}

/// Posts a plan.
///
/// # Errors
/// The plan cannot be read, the pull request is unknown, or the forge rejects the request.
pub(crate) fn run(args: &PlanCheckArgs) -> anyhow::Result<ExitCode> {
    // The errors may repeat texts from files and from the forge, so they are cleaned.
    let clean = |error: anyhow::Error| anyhow!(harmless_line(&format!("{error:#}")));
    check(args).map_err(clean)?;
    Ok(ExitCode::Success)
}

fn check(args: &PlanCheckArgs) -> anyhow::Result<()> {
    let rules = failure_rules(&args.fail_on)?;
    let plan = read_plan(&args.file)?;
    let status = plan::check_status(&plan, &rules);
    let name = args.name.as_deref().unwrap_or_default();
    if args.dry_run {
        return print(&dry_run_text(&plan, name, &status));
    }
    let target = PullRequestCommit::of(&args.target, &variable)?;
    let comment = plan::named_markdown_comment(&plan, name, target.forge.max_comment_bytes());
    let check = PullRequestCheck {
        number: target.number,
        commit: target.commit.clone(),
        marker: plan::comment_marker(name),
        comment,
        status: status_name(name),
        is_success: status.is_success,
        description: status.description.clone(),
    };
    let posted = block_on(async { Ok(post(&target, &check).await) })?;
    let masking = SecretMasking::new([target.token.expose().clone().into_bytes()]);
    let change = posted.map_err(|error| anyhow!(masking.mask(&error.message)))?;
    say_result(&target, &status, change);
    Ok(())
}

/// Makes a line harmless for the log of a CI job. GitHub's runner executes `##[…]` anywhere in a line as a command.
fn harmless_line(text: &str) -> String {
    plan::clean_line(text).replace("##[", "## [")
}

/// Reads a plan that may come from an untrusted author.
fn read_plan(path: &Path) -> anyhow::Result<ChangePlan> {
    let text = read_at_most(path, MAX_PLAN_BYTES)?;
    ChangePlan::from_untrusted_json(&text).with_context(|| path.display().to_string())
}

fn failure_rules(causes: &[CheckFailureCause]) -> anyhow::Result<Vec<PlanFailureRule>> {
    let rule = |cause: &CheckFailureCause| match cause {
        CheckFailureCause::Destructive => Some(PlanFailureRule::Destruction),
        CheckFailureCause::Unknown => Some(PlanFailureRule::UnknownValues),
        CheckFailureCause::Error => Some(PlanFailureRule::Errors),
        CheckFailureCause::Never => None,
    };
    let rules: Vec<PlanFailureRule> = causes.iter().filter_map(rule).collect();
    if !rules.is_empty() && causes.contains(&CheckFailureCause::Never) {
        bail!("--fail-on never cannot be combined with others");
    }
    Ok(rules)
}

/// The name of the commit status.
fn status_name(name: &str) -> String {
    match name {
        "" => "windlass/plan".to_owned(),
        name => format!("windlass/plan/{name}"),
    }
}

fn state(status: &PlanCheckStatus) -> &'static str {
    if status.is_success { "success" } else { "failure" }
}

/// The text that would be posted.
fn dry_run_text(plan: &ChangePlan, name: &str, status: &PlanCheckStatus) -> String {
    let most = CheckForge::GitHub.max_comment_bytes();
    let comment = plan::named_markdown_comment(plan, name, most);
    let PlanCheckStatus { description, .. } = status;
    format!("{comment}\n{}: {}: {description}\n", status_name(name), state(status))
}

/// Posts a check, with further attempts if the forge does not respond properly. Each attempt finds what an earlier one has
/// posted.
async fn post(
    target: &PullRequestCommit,
    check: &PullRequestCheck,
) -> Result<CheckCommentOutcome, PullRequestError> {
    let object = json!({
        "metadata": {"name": "check"},
        "spec": {
            "type": target.forge.provider_type(),
            "address": target.address,
            "secretRef": {"name": "token"},
        },
    });
    let provider = Provider::new(object).map_err(|error| PullRequestError {
        message: error.to_string(),
        may_help: false,
        retry_after: None,
    })?;
    let token = target.token.expose().as_bytes();
    let secret = |_: &str, name: &str| {
        let data = BTreeMap::from([("token".to_owned(), token.to_vec())]);
        Some(SecretData { name: name.to_owned(), data })
    };
    // The API of GitHub has its own host name.
    let hosts = [target.host.clone(), format!("api.{}", target.host)];
    let egress = EgressRules::Listed(Arc::new(EgressHostList::new(hosts)));
    let clients = HttpClientCache::within(egress);
    let permits = RunPermits::new(1);
    let mut attempt = 1;
    loop {
        let now = jiff::Timestamp::now().as_second();
        let conversation = PullRequestCheckPosting::new(check.clone(), &provider, now, &secret);
        let error = match converse(&clients, &permits, "", conversation).await {
            Ok(result) => return Ok(result.comment),
            Err(error) => error,
        };
        let delay = error.retry_after.unwrap_or(RETRY_DELAY * attempt);
        if !error.may_help || attempt >= MAX_ATTEMPTS || delay > MAX_RETRY_DELAY {
            return Err(error);
        }
        say(ProgressGlyph::Waiting, &format!("the forge failed; next attempt in {delay:?}"));
        tokio::time::sleep(delay).await;
        attempt += 1;
    }
}

fn say_result(target: &PullRequestCommit, status: &PlanCheckStatus, change: CheckCommentOutcome) {
    let PullRequestCommit { forge, repository, number, commit, .. } = target;
    let subject = format!("{} {number} of {repository}", forge.noun());
    let (glyph, comment) = match change {
        CheckCommentOutcome::Created => (ProgressGlyph::Success, "comment created"),
        CheckCommentOutcome::Updated => (ProgressGlyph::Success, "comment updated"),
        CheckCommentOutcome::Unchanged => (ProgressGlyph::Success, "comment unchanged"),
        CheckCommentOutcome::OtherCommit => (
            ProgressGlyph::Warning,
            "no comment, because the plan is of another commit than the last one",
        ),
    };
    say(glyph, &harmless_line(&format!("{subject}: {comment}")));
    let PlanCheckStatus { description, .. } = status;
    let line = format!("status of commit {commit}: {}: {description}", state(status));
    say(ProgressGlyph::Success, &harmless_line(&line));
}

#[cfg(test)]
mod tests {
    use clap::{Command, FromArgMatches as _};

    use super::*;

    fn args(line: &[&str]) -> Result<PlanCheckArgs, clap::Error> {
        let command = PlanCheckArgs::augment_args(Command::new("check").no_binary_name(true));
        PlanCheckArgs::from_arg_matches(&command.try_get_matches_from(line)?)
    }

    #[test]
    fn errors_fail_a_check_unless_nothing_does() {
        let rules = |more: &[&str]| {
            let args = args(&[&["plan.json"], more].concat()).unwrap();
            failure_rules(&args.fail_on).map_err(|error| error.to_string())
        };
        assert_eq!(rules(&[]), Ok(vec![PlanFailureRule::Errors]));
        assert_eq!(rules(&["--fail-on=never"]), Ok(vec![]));
        let both = Ok(vec![PlanFailureRule::Destruction, PlanFailureRule::UnknownValues]);
        assert_eq!(rules(&["--fail-on=destructive,unknown"]), both);
        let error = rules(&["--fail-on=never,error"]).unwrap_err();
        assert!(error.contains("cannot be combined"), "{error}");
    }

    #[test]
    fn a_name_can_be_part_of_a_comment_of_html() {
        for name in ["prod", "eu-1_a.b", "x"] {
            assert_eq!(plan_name(name).as_deref(), Ok(name));
        }
        let long = "x".repeat(MAX_NAME_BYTES + 1);
        for name in ["", "a--b", "-a", "a-", "a b", "a>", "a/b", "é", long.as_str()] {
            assert!(plan_name(name).is_err(), "{name}");
        }
        assert_eq!(status_name(""), "windlass/plan");
        assert_eq!(status_name("prod"), "windlass/plan/prod");
    }

    #[test]
    fn an_error_has_no_command_of_a_workflow() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.json");
        let summary = "{\"added\": \"##[add-mask]a\\n::add-mask::b\"}";
        let text =
            format!("{{\"baseRevision\": \"a\", \"headRevision\": \"b\", \"summary\": {summary}}}");
        std::fs::write(&path, text).unwrap();
        let args = args(&[&path.display().to_string(), "--dry-run"]).unwrap();
        let error = run(&args).err().unwrap().to_string();
        assert!(error.contains("## [add-mask]a"), "{error}");
        assert!(!error.contains("##[") && !error.contains('\n'), "{error}");
    }

    #[test]
    fn a_file_that_is_no_plan_or_too_large_is_refused_with_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.json");
        let error = |text: &[u8]| {
            std::fs::write(&path, text).unwrap();
            format!("{:#}", read_plan(&path).unwrap_err())
        };
        assert!(error(b"{}").contains("plan.json: this is not a plan"), "{}", error(b"{}"));
        let large = vec![b' '; MAX_PLAN_BYTES + 10];
        assert!(error(&large).contains("plan.json: the plan has more than 32 MiB"));
        let none = read_plan(&folder.path().join("none")).unwrap_err();
        assert!(format!("{none:#}").starts_with("cannot read "), "{none:#}");
    }
}
