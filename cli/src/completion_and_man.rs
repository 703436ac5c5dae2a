//! `windlass completion` and `windlass man`: generate shell completion scripts and man pages from the commands.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args as ClapArgs, Command};
use clap_complete::Shell;
use clap_complete::env::Shells;

use windlass_cli_runtime::connection::OutputError;

/// The flags of `windlass completion`.
#[derive(Debug, Clone, Copy, ClapArgs)]
#[command(after_help = "For example, in ~/.bashrc:\n  source <(windlass completion bash)")]
pub(super) struct CompletionArgs {
    /// The shell that reads the script
    shell: Shell,
}

/// The flags of `windlass man`.
#[derive(Debug, Clone, ClapArgs)]
#[command(
    after_help = "For example:\n  windlass man ~/.local/share/man/man1 && man windlass-install"
)]
pub(super) struct ManPageArgs {
    /// Directory for the pages; it is created if it does not exist
    directory: PathBuf,
}

/// The environment variable with which a completion script asks the program for suggestions.
pub(super) const VARIABLE: &str = "WINDLASS_COMPLETE";

/// Prints a completion script.
///
/// # Errors
/// Standard output is closed.
pub(super) fn complete(args: CompletionArgs) -> anyhow::Result<()> {
    let script = script(args.shell)?;
    std::io::stdout().lock().write_all(&script).context(OutputError)
}

/// A script that calls the program for suggestions, because only the program can ask the cluster.
fn script(shell: Shell) -> anyhow::Result<Vec<u8>> {
    let shells = Shells::builtins();
    let mut script = Vec::new();
    let completer = shells.completer(&shell.to_string()).context("no script for this shell")?;
    let name = "windlass";
    completer.write_registration(VARIABLE, name, name, name, &mut script)?;
    Ok(script)
}

/// Writes a man page for each command.
///
/// # Errors
/// A file cannot be written.
pub(super) fn man(args: &ManPageArgs, command: Command) -> anyhow::Result<()> {
    write_pages(&args.directory, command)
        .with_context(|| format!("pages cannot be written to {}", args.directory.display()))
}

fn write_pages(directory: &Path, command: Command) -> std::io::Result<()> {
    std::fs::create_dir_all(directory)?;
    clap_mangen::generate_to(command.disable_help_subcommand(true), directory)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    /// The suggestions for the last of some words.
    fn offered(words: &[&str]) -> Vec<String> {
        let mut command = crate::command();
        let last = words.len() - 1;
        let words = words.iter().map(OsString::from).collect();
        let found = clap_complete::engine::complete(&mut command, words, last, None).unwrap();
        found.iter().map(|it| it.get_value().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn shells_complete_commands_and_their_flags() {
        for (words, expected) in [
            (["windlass", "boot"].as_slice(), "bootstrap"),
            (&["windlass", "serve", "--concurrent-k"], "--concurrent-kustomize"),
            (&["windlass", "uninstall", "--delete"], "--delete-crds"),
            (&["windlass", "get", "--output", "wi"], "wide"),
            (&["windlass", "get", "kust"], "kustomization"),
        ] {
            assert_eq!(offered(words), [expected], "{words:?}");
        }
    }

    #[test]
    fn every_shell_has_a_script_that_asks_the_program() {
        for shell in [Shell::Bash, Shell::Elvish, Shell::Fish, Shell::PowerShell, Shell::Zsh] {
            let script = String::from_utf8(script(shell).unwrap()).unwrap();
            assert!(script.contains(VARIABLE) && script.contains("windlass"), "{shell}: {script}");
        }
    }

    #[test]
    fn every_command_has_a_page_with_its_flags() {
        let directory = tempfile::tempdir().unwrap();
        write_pages(directory.path(), crate::command()).unwrap();
        for command in crate::command().get_subcommands() {
            let page = directory.path().join(format!("windlass-{}.1", command.get_name()));
            assert!(page.is_file(), "{}", page.display());
        }
        let page = std::fs::read_to_string(directory.path().join("windlass-install.1")).unwrap();
        assert!(page.contains("dry\\-run"), "{page}");
    }
}
