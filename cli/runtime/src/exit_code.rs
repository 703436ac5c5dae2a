//! Exit codes of commands: which there are, what each means, and which one an error has.
//!
//! Elsewhere: the same for users (the table of `docs/cli.md`, which `cli/src/reference_page.rs` writes with these numbers),
//! and in the help of each command.

use super::connection::{ApiServerUnreachable, OutputError};

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExitCode {
    /// The command did what it is for, or printed its help, or the reader of its output needed no more. All commands.
    Success,
    /// The command found something: `why` a cause, an object that is not ready, or that no operator is active; `changes` a change
    /// that failed; `check` a failure; `diff`, `image plan`, `plan --detailed-exitcode`, `plan facts --check` and `resume --plan` a
    /// change; `crd diff` an object that does not fit; `crd restore` an
    /// object that cannot be created.
    ProblemsFound,
    /// The command was used wrongly, failed, or could not read or change everything that it was asked for. All commands, but
    /// for errors that are [`Self::UpstreamError`].
    Failed,
    /// The API server did not respond when the command began, within `--timeout` or at all. All commands that read a cluster
    /// but `serve`, where that is [`Self::Failed`], and `helmfile`, where it is [`Self::UpstreamError`].
    ClusterUnreachable,
    /// The command failed, and has the code of the program that it follows: `build` of a directory that of `kustomize build`;
    /// `template`, also if it was used wrongly, that of `helm template`; `helmfile` that of helmfile.
    UpstreamError,
    /// Something would change: `helmfile diff --detailed-exitcode`, as helmfile.
    HelmfileDiffChanged,
    /// No release was found: `helmfile` without `--allow-no-matching-release`, as helmfile.
    HelmfileNothingMatched,
    /// A second signal ended `serve` before its runs were done.
    Interrupted,
}

impl ExitCode {
    /// The number that the process exits with.
    pub const fn number(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::ProblemsFound | Self::UpstreamError => 1,
            Self::Failed | Self::HelmfileDiffChanged => 2,
            Self::ClusterUnreachable | Self::HelmfileNothingMatched => 3,
            // As shells have it of a process that SIGINT killed.
            Self::Interrupted => 130,
        }
    }

    /// The exit code of a command that failed.
    pub fn of_failure(error: &anyhow::Error) -> Self {
        match () {
            // The reader of the output, such as `head`, needs no more of it.
            () if is_of_reader(error) => Self::Success,
            () if error.is::<ApiServerUnreachable>() => Self::ClusterUnreachable,
            () => Self::Failed,
        }
    }

    /// The exit code of a command line that clap does not run: because it is wrong, or asks for help or the version.
    pub fn of_usage(error: &clap::Error) -> Self {
        if error.use_stderr() { Self::Failed } else { Self::Success }
    }
}

/// A command that returns nothing has succeeded.
impl From<()> for ExitCode {
    fn from((): ()) -> Self {
        Self::Success
    }
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        Self::from(code.number())
    }
}

/// Why a command did not end by itself.
#[derive(Debug)]
pub enum CommandError {
    /// Its command line is wrong, or asks for help or the version: nothing was done.
    Usage(clap::Error),
    /// It failed.
    Failure(anyhow::Error),
}

impl From<clap::Error> for CommandError {
    fn from(error: clap::Error) -> Self {
        Self::Usage(error)
    }
}

impl From<anyhow::Error> for CommandError {
    fn from(error: anyhow::Error) -> Self {
        Self::Failure(error)
    }
}

/// Whether the reader of the output is gone.
fn is_of_reader(error: &anyhow::Error) -> bool {
    let is_pipe = |it: &std::io::Error| it.kind() == std::io::ErrorKind::BrokenPipe;
    error.is::<OutputError>() && error.chain().filter_map(|it| it.downcast_ref()).any(is_pipe)
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;

    use super::*;

    #[test]
    fn a_reader_that_is_gone_is_no_failure() {
        let broken = || std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        let code = |error: anyhow::Error| ExitCode::of_failure(&error);
        let gone = anyhow::Error::from(broken()).context(OutputError);
        assert_eq!(code(gone), ExitCode::Success);
        // A pipe to something else, such as a program that is called.
        assert_eq!(code(anyhow::Error::from(broken())), ExitCode::Failed);
        let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
        let full = anyhow::Error::from(full).context(OutputError);
        assert_eq!(code(full), ExitCode::Failed);
    }

    #[test]
    fn a_cluster_that_cannot_be_reached_has_a_code_of_its_own() {
        let unreachable = anyhow::anyhow!("timed out").context(ApiServerUnreachable);
        assert_eq!(ExitCode::of_failure(&unreachable), ExitCode::ClusterUnreachable);
        let unreachable = unreachable.context("the objects cannot be read");
        assert_eq!(ExitCode::of_failure(&unreachable), ExitCode::ClusterUnreachable);
    }

    #[test]
    fn a_command_line_that_clap_does_not_run_has_the_code_that_clap_exits_with() {
        for kind in [
            ErrorKind::DisplayHelp,
            ErrorKind::DisplayVersion,
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
            ErrorKind::UnknownArgument,
        ] {
            let error = clap::Error::new(kind);
            let code = ExitCode::of_usage(&error).number();
            assert_eq!(i32::from(code), error.exit_code(), "{kind:?}");
        }
    }
}
