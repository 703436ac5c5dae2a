//! Cluster connections for commands: flags, connecting, and progress messages.
//!
//! As in the `flux` command line, results go to stdout and progress goes to stderr.

use std::io::{BufRead, IsTerminal as _, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;

use windlass_cluster::ClusterConnection;
use windlass_cluster::client::{ClusterAccessOptions, connect};
use windlass_cluster::leadership::Leadership;
use windlass_cluster::metrics::MetricsRegistry;
use windlass_serve::settings::parse_duration;

/// How long the API server may take to answer the first request.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// Which cluster is meant, and in whose name it is asked: the flags of kubectl.
#[derive(Debug, Clone, Args)]
pub struct ClusterAccessFlags {
    /// Path of the kubeconfig; by default `$KUBECONFIG`, then ~/.kube/config
    #[arg(long, value_name = "PATH", help_heading = "Cluster")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; by default the current one
    #[arg(long, value_name = "NAME", help_heading = "Cluster")]
    context: Option<String>,
    /// Cluster of the kubeconfig; by default that of the context
    #[arg(long, value_name = "NAME", help_heading = "Cluster")]
    cluster: Option<String>,
    /// User of the kubeconfig; by default that of the context
    #[arg(long, value_name = "NAME", help_heading = "Cluster")]
    user: Option<String>,
    /// User or ServiceAccount to impersonate
    #[arg(long = "as", value_name = "USER", help_heading = "Cluster")]
    impersonate: Option<String>,
    /// Group to impersonate; may be repeated
    #[arg(
        long = "as-group",
        value_name = "GROUP",
        requires = "impersonate",
        help_heading = "Cluster"
    )]
    groups: Vec<String>,
}

impl ClusterAccessFlags {
    /// Whether at least one of these flags was given.
    #[must_use]
    pub fn is_given(&self) -> bool {
        let Self { kubeconfig, context, cluster, user, impersonate, groups } = self;
        let named = [context, cluster, user, impersonate];
        kubeconfig.is_some() || named.iter().any(|it| it.is_some()) || !groups.is_empty()
    }

    /// The given flags as arguments. Another command with these arguments uses the same cluster and user.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        let Self { kubeconfig, context, cluster, user, impersonate, groups } = self;
        let kubeconfig = kubeconfig.as_ref().map(|path| path.to_string_lossy().into_owned());
        let single = [
            ("--kubeconfig", &kubeconfig),
            ("--context", context),
            ("--cluster", cluster),
            ("--user", user),
            ("--as", impersonate),
        ];
        let single = single.into_iter().filter_map(|(flag, value)| Some((flag, value.as_ref()?)));
        let all = single.chain(groups.iter().map(|group| ("--as-group", group)));
        all.flat_map(|(flag, value)| [flag.to_owned(), value.clone()]).collect()
    }

    /// Connects to the cluster. Also returns the version of its API server.
    ///
    /// # Errors
    /// The kubeconfig or context does not exist, or the API server did not respond ([`ApiServerUnreachable`]).
    pub async fn open(&self) -> anyhow::Result<(ClusterConnection, String)> {
        let Self { kubeconfig, context, cluster, user, impersonate, groups } = self;
        let access = ClusterAccessOptions {
            kubeconfig: kubeconfig.as_deref(),
            context: context.as_deref(),
            cluster: cluster.as_deref(),
            user: user.as_deref(),
            impersonate: impersonate.as_deref(),
            groups,
        };
        connected(access).await
    }
}

/// The error that the API server did not respond.
#[derive(Debug, Clone, Copy)]
pub struct ApiServerUnreachable;

impl std::fmt::Display for ApiServerUnreachable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the cluster cannot be reached")
    }
}

/// Which cluster is meant, and where windlass is in it.
#[derive(Debug, Clone, Args)]
pub struct WindlassConnectionFlags {
    #[command(flatten)]
    reach: ClusterAccessFlags,
    /// Namespace of windlass, not of objects
    #[arg(
        short,
        long,
        env = "FLUX_SYSTEM_NAMESPACE",
        default_value = "flux-system",
        value_name = "NAMESPACE"
    )]
    pub namespace: String,
    /// How long to wait
    #[arg(long, default_value = "5m", value_name = "DURATION", value_parser = parse_duration)]
    pub timeout: Duration,
}

/// Connects to the cluster and waits for its first answer.
///
/// # Errors
/// The kubeconfig or context does not exist, or the API server did not respond.
pub async fn connected(
    access: ClusterAccessOptions<'_>,
) -> anyhow::Result<(ClusterConnection, String)> {
    let cluster = connect(access, "cli", &Leadership::unlimited(), &MetricsRegistry::new()).await?;
    let version = cluster.await_answer(ANSWER_LIMIT).await.context(ApiServerUnreachable)?;
    Ok((cluster, version))
}

impl WindlassConnectionFlags {
    /// Connects to the cluster. Also returns the version of its API server.
    ///
    /// # Errors
    /// The kubeconfig or context does not exist, or the API server did not respond.
    pub async fn open(&self) -> anyhow::Result<(ClusterConnection, String)> {
        self.reach.open().await
    }
}

/// Runs the future of a command on its own runtime.
///
/// # Errors
/// The error of the command, or that no runtime can be built.
pub fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    CommandRuntime::new()?.block_on(work)
}

/// The runtime of a command that accesses a cluster several times with other work in between. The cluster connection belongs to
/// this runtime.
#[derive(Debug)]
pub struct CommandRuntime(tokio::runtime::Runtime);

impl CommandRuntime {
    /// Makes a runtime.
    ///
    /// # Errors
    /// The runtime cannot be built.
    pub fn new() -> anyhow::Result<Self> {
        // This fails only if another crypto provider was installed before, which never happens.
        drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
        Ok(Self(tokio::runtime::Builder::new_current_thread().enable_all().build()?))
    }

    /// Runs a future to its end.
    ///
    /// # Errors
    /// The error of the future.
    pub fn block_on<T>(&self, work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
        self.0.block_on(work)
    }
}

/// The meaning of a progress line, which decides its symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgressGlyph {
    /// An action begins.
    Action,
    /// The command waits.
    Waiting,
    /// The action succeeded.
    Success,
    /// The action failed.
    Failure,
    /// The action succeeded, but the user should check something.
    Warning,
}

impl ProgressGlyph {
    /// The symbol, and its colour on a terminal.
    fn parts(self) -> (char, u8) {
        match self {
            Self::Action => ('►', 36),
            Self::Waiting => ('◎', 33),
            Self::Success => ('✔', 32),
            Self::Failure => ('✗', 31),
            Self::Warning => ('⚠', 33),
        }
    }
}

/// Prints a line of progress.
pub fn say(mark: ProgressGlyph, text: &str) {
    let mut out = std::io::stderr().lock();
    let (glyph, colour) = mark.parts();
    let is_coloured = out.is_terminal() && std::env::var_os("NO_COLOR").is_none();
    // A closed stream must not stop the command in the middle of its work.
    let _gone = match is_coloured {
        true => writeln!(out, "\u{1b}[{colour}m{glyph}\u{1b}[0m {text}"),
        false => writeln!(out, "{glyph} {text}"),
    };
}

/// Asks the user a question on the terminal. Users can avoid the question with `--silent`.
///
/// # Errors
/// There is no answer.
pub fn agrees(question: &str) -> anyhow::Result<bool> {
    let input = std::io::stdin();
    let is_echoed = input.is_terminal();
    answer(question, &mut input.lock(), &mut std::io::stderr().lock(), is_echoed)
}

/// Prints the question and reads the answer. If no terminal echoes the user's line break, one is printed.
fn answer(
    question: &str,
    input: &mut impl BufRead,
    out: &mut impl Write,
    is_echoed: bool,
) -> anyhow::Result<bool> {
    const CANNOT_ASK: &str = "cannot ask: add --silent";
    write!(out, "{question} [y/N] ").and_then(|()| out.flush()).context(CANNOT_ASK)?;
    let mut answer = String::new();
    let read = input.read_line(&mut answer);
    if !is_echoed || !answer.ends_with('\n') {
        writeln!(out).context(CANNOT_ASK)?;
    }
    read.context(CANNOT_ASK)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Prints the result of a command.
///
/// # Errors
/// The reader of the output has closed it.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context(OutputError)
}

/// The error that the reader has closed the output, or that the output cannot be written.
#[derive(Debug, Clone, Copy)]
pub struct OutputError;

impl std::fmt::Display for OutputError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("cannot print")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_written_as_they_were_given() {
        let none = ClusterAccessFlags {
            kubeconfig: None,
            context: None,
            cluster: None,
            user: None,
            impersonate: None,
            groups: Vec::new(),
        };
        assert_eq!(none.words(), Vec::<String>::new());
        let some = ClusterAccessFlags {
            kubeconfig: Some("/a b".into()),
            context: Some("prod".to_owned()),
            impersonate: Some("alice".to_owned()),
            groups: vec!["g1".to_owned(), "g2".to_owned()],
            ..none
        };
        let words = "--kubeconfig;/a b;--context;prod;--as;alice;--as-group;g1;--as-group;g2";
        assert_eq!(some.words(), words.split(';').collect::<Vec<_>>());
    }

    #[test]
    fn what_is_said_after_a_question_has_a_line_of_its_own() {
        for (typed, is_echoed, agrees, ends) in [
            ("y\n", true, true, "Resume? [y/N] "),
            ("y\n", false, true, "Resume? [y/N] \n"),
            ("n\n", false, false, "Resume? [y/N] \n"),
            // The input ends, for example after Ctrl-D.
            ("", true, false, "Resume? [y/N] \n"),
        ] {
            let mut out = Vec::new();
            let is_agreed = answer("Resume?", &mut typed.as_bytes(), &mut out, is_echoed).unwrap();
            assert_eq!(
                (is_agreed, String::from_utf8(out).unwrap().as_str()),
                (agrees, ends),
                "{typed:?}"
            );
        }
    }
}
