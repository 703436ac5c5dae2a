//! The exit codes of commands, their meanings, and the exit code of each error.
//!
//! Elsewhere: the documentation for users (the table in `docs/cli.md`, which `cli/src/reference_page.rs` generates with these
//! numbers), and the help of each command.

use super::connection::{ApiServerUnreachable, OutputError};

/// How a command of windlass ended, as its exit code reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExitCode {
    /// All commands. The command succeeded or printed its help, or the reader of its output closed it.
    Success,
    /// The command found something. `why` found a cause, an object that is not ready, or that no operator is active. `changes`
    /// found a change that failed, and `check` found a failure. `diff`, `image plan`, `plan --detailed-exitcode`,
    /// `plan facts --check` and `resume --plan` found a change. `crd diff` found an object that does not fit the definition.
    /// `crd restore` found an object that cannot be created.
    ProblemsFound,
    /// All commands, except for errors that are [`Self::UpstreamError`]. The command was used wrongly or failed. Or it could
    /// not read or change everything that the user requested.
    Failed,
    /// All commands that read a cluster. The API server did not respond at the start of the command, or within `--timeout`.
    /// `serve` uses [`Self::Failed`] instead, and `helmfile` uses [`Self::UpstreamError`].
    ClusterUnreachable,
    /// The command failed, and its code is that of the original program. `build` of a directory has the code of
    /// `kustomize build`. `template` has the code of `helm template`, also if the user used `template` wrongly. `helmfile` has
    /// the code of helmfile.
    UpstreamError,
    /// `helmfile diff --detailed-exitcode` found changes, as with helmfile.
    HelmfileDiffChanged,
    /// `helmfile` without `--allow-no-matching-release` found no release, as with helmfile.
    HelmfileNothingMatched,
    /// A second signal ended `serve` before its reconciliations were done.
    Interrupted,
}

impl ExitCode {
    /// The exit status of the process.
    pub const fn number(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::ProblemsFound | Self::UpstreamError => 1,
            Self::Failed | Self::HelmfileDiffChanged => 2,
            Self::ClusterUnreachable | Self::HelmfileNothingMatched => 3,
            // Shells use this number for a process that SIGINT killed.
            Self::Interrupted => 130,
        }
    }

    /// The exit code of a failed command.
    pub fn of_failure(error: &anyhow::Error) -> Self {
        match () {
            // A reader such as `head` needs no further output, so this is no failure.
            () if is_of_reader(error) => Self::Success,
            () if error.is::<ApiServerUnreachable>() => Self::ClusterUnreachable,
            () => Self::Failed,
        }
    }

    /// The exit code if clap does not run the command line. The line is wrong, or it asks for the help or the version.
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

/// Why a command did not run to its end.
#[derive(Debug)]
pub enum CommandError {
    /// The command line is wrong, or it asks for the help or the version. Nothing was done.
    Usage(clap::Error),
    /// The command failed.
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

/// Whether the reader of the output has closed it.
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
        // This pipe leads to another program and not to the reader of the output.
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
