//! The flags that set the scope of a command about objects: cluster, namespace and time limit.
//!
//! Elsewhere: listing objects in the scope (`windlass_answers::command_scope`).

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{anyhow, bail, ensure};
use clap::Args;

use super::complete;
use super::kind_argument::ResourceArgument;
pub(super) use windlass_answers::command_scope::{CommandScope, shown};
use windlass_cli_runtime::connection::{
    ApiServerUnreachable, ClusterAccessFlags, ProgressGlyph, block_on, say,
};
use windlass_cli_runtime::exit_code::ExitCode;
use windlass_cli_runtime::table::clean;
use windlass_serve::settings::parse_duration;

/// The cluster and the namespace.
#[derive(Debug, Clone, Args)]
pub(super) struct ClusterScope {
    #[command(flatten)]
    reach: ClusterAccessFlags,
    /// Namespace; by default that of the kubeconfig's context
    #[arg(
        short,
        long,
        value_name = "NAMESPACE",
        help_heading = "Cluster",
        add = complete::namespaces()
    )]
    namespace: Option<String>,
    /// How long the command may take; by default 5m, and without an end where changes are followed
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, help_heading = "Cluster")]
    pub(super) timeout: Option<Duration>,
}

/// The default time limit of a command that does not follow changes.
const DEFAULT_COMMAND_TIMEOUT: Duration = Duration::from_secs(300);

/// The cluster, and one namespace of it or all.
#[derive(Debug, Clone, Args)]
pub(super) struct NamespaceScope {
    #[command(flatten)]
    pub(super) place: ClusterScope,
    /// In all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub(super) all_namespaces: bool,
    /// Only objects whose labels match, such as `team=web,tier!=db`
    #[arg(
        short = 'l',
        long = "selector",
        alias = "label-selector",
        default_value = "",
        hide_default_value = true,
        value_name = "LABELS"
    )]
    pub(super) labels: String,
}

impl NamespaceScope {
    /// Refuses labels together with a name, as kubectl does.
    ///
    /// # Errors
    /// A target names one object, and the user also gave labels.
    pub(super) fn check(&self, targets: &[ResourceArgument]) -> anyhow::Result<()> {
        let is_named = targets.iter().any(|target| target.name.is_some());
        ensure!(
            !is_named || self.labels.is_empty(),
            "-l selects among objects that are not named: leave out the name or -l"
        );
        Ok(())
    }

    /// The message if no object was found.
    pub(super) fn nothing(&self) -> String {
        let labels = if self.labels.is_empty() { "" } else { " with these labels" };
        match (self.all_namespaces, &self.place.namespace) {
            (true, _) => format!("no such objects{labels} in any namespace"),
            (false, Some(namespace)) => {
                format!("no such objects{labels} in namespace {namespace}; -A shows all namespaces")
            }
            (false, None) => format!(
                "no such objects{labels} in the namespace of the context; -n names another, -A shows all"
            ),
        }
    }
}

impl ClusterScope {
    /// Runs a command for a namespace, within its time limit.
    ///
    /// # Errors
    /// The error of the command, an unreachable cluster, or the end of the time limit.
    pub(super) fn run<T>(
        &self,
        work: impl AsyncFnOnce(CommandScope) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        block_on(async {
            let limit = self.timeout.unwrap_or(DEFAULT_COMMAND_TIMEOUT);
            let begun = tokio::time::Instant::now();
            let site = opened_within(limit, self.open()).await?;
            let left = limit.saturating_sub(begun.elapsed());
            match tokio::time::timeout(left, work(site)).await {
                Ok(ended) => ended,
                Err(_elapsed) => {
                    bail!("the command took longer than {} s (--timeout)", limit.as_secs())
                }
            }
        })
    }

    /// Runs a command that follows changes. The time limit applies only if the user gave one.
    ///
    /// # Errors
    /// The error of the command, or an unreachable cluster.
    pub(super) fn follow(
        &self,
        work: impl AsyncFnOnce(CommandScope) -> anyhow::Result<ExitCode>,
    ) -> anyhow::Result<ExitCode> {
        block_on(async {
            let opening = self.timeout.unwrap_or(DEFAULT_COMMAND_TIMEOUT);
            let site = opened_within(opening, self.open()).await?;
            match self.timeout {
                Some(limit) => {
                    tokio::time::timeout(limit, work(site)).await.unwrap_or(Ok(ExitCode::Success))
                }
                None => work(site).await,
            }
        })
    }

    /// The namespace that the user gave with the flag `-n`. `None` without this flag.
    pub(super) fn given_namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// The flags for the cluster and the user, as arguments of a command.
    pub(super) fn access_words(&self) -> Vec<String> {
        self.reach.words()
    }

    /// Whether the user gave `-n`.
    pub(super) fn has_namespace(&self) -> bool {
        self.namespace.is_some()
    }

    async fn open(&self) -> anyhow::Result<CommandScope> {
        let (cluster, _) = self.reach.open().await?;
        let namespace = self.namespace.clone();
        let namespace = namespace.unwrap_or_else(|| cluster.default_namespace().to_owned());
        Ok(CommandScope { cluster, namespace })
    }
}

/// Opens a cluster connection within the time limit of a command. If the API server did not respond in time, the cluster counts
/// as unreachable.
///
/// # Errors
/// The error of opening the connection, or the end of the time limit.
async fn opened_within<T>(
    limit: Duration,
    opening: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    match tokio::time::timeout(limit, opening).await {
        Ok(opened) => opened,
        Err(_elapsed) => {
            let text = format!("the API server did not respond within {limit:?} (--timeout)");
            Err(anyhow!(text).context(ApiServerUnreachable))
        }
    }
}

/// Prints what was left out because of missing rights, one line each. The exit status then also says so.
pub(super) fn say_left_out(left_out: &[String]) {
    // Several parts of a command may report the same message.
    let mut said = BTreeSet::new();
    let left_out: Vec<&String> = left_out.iter().filter(|text| said.insert(*text)).collect();
    for text in left_out.iter().take(20) {
        say(ProgressGlyph::Warning, &format!("left out: {}", clean(text)));
    }
    if let Some(more) = left_out.len().checked_sub(20).filter(|more| *more > 0) {
        say(ProgressGlyph::Warning, &format!("left out: {more} more"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_followed_ends_at_the_limit_that_was_given() {
        use clap::{Command, FromArgMatches as _};
        let place = |line: &[&str]| {
            let command = ClusterScope::augment_args(Command::new("get").no_binary_name(true));
            ClusterScope::from_arg_matches(&command.get_matches_from(line)).unwrap()
        };
        assert_eq!(place(&[]).timeout, None);
        assert_eq!(place(&["--timeout", "3s"]).timeout, Some(Duration::from_secs(3)));
    }

    #[tokio::test]
    async fn an_api_server_that_does_not_answer_in_time_cannot_be_reached() {
        let within = Duration::from_millis(10);
        let silent = opened_within(within, std::future::pending::<anyhow::Result<()>>());
        let error = silent.await.unwrap_err();
        assert_eq!(ExitCode::of_failure(&error), ExitCode::ClusterUnreachable);
        let text = format!("{error:#}");
        assert!(text.ends_with("the API server did not respond within 10ms (--timeout)"), "{text}");
        let refused = opened_within(within, async { Err::<(), _>(anyhow!("no such context")) });
        assert_eq!(ExitCode::of_failure(&refused.await.unwrap_err()), ExitCode::Failed);
    }
}
