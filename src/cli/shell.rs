//! `windlass completion` and `windlass man`: what a shell and `man` know of the commands, made from the commands.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args as ClapArgs, Command};
use clap_complete::Shell;

/// The flags of `windlass completion`.
#[derive(Debug, Clone, Copy, ClapArgs)]
#[command(after_help = "For example, in ~/.bashrc:\n  source <(windlass completion bash)")]
pub(super) struct Completion {
    /// The shell that reads the script
    shell: Shell,
}

/// The flags of `windlass man`.
#[derive(Debug, Clone, ClapArgs)]
#[command(
    after_help = "For example:\n  windlass man ~/.local/share/man/man1 && man windlass-install"
)]
pub(super) struct Man {
    /// Directory for the pages; it is created if it does not exist
    directory: PathBuf,
}

/// Prints a completion script.
///
/// # Errors
/// When nobody reads it.
pub(super) fn complete(args: Completion, mut command: Command) -> anyhow::Result<()> {
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, name, &mut script);
    std::io::stdout().lock().write_all(&script)?;
    Ok(())
}

/// Writes a page for each command.
///
/// # Errors
/// When a file cannot be written.
pub(super) fn man(args: &Man, command: Command) -> anyhow::Result<()> {
    write_pages(&args.directory, command)
        .with_context(|| format!("pages cannot be written to {}", args.directory.display()))
}

fn write_pages(directory: &Path, command: Command) -> std::io::Result<()> {
    std::fs::create_dir_all(directory)?;
    clap_mangen::generate_to(command.disable_help_subcommand(true), directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(shell: Shell) -> String {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut crate::cli::command(), "windlass", &mut script);
        String::from_utf8(script).unwrap()
    }

    #[test]
    fn shells_complete_commands_and_their_flags() {
        for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
            let script = script(shell);
            for word in ["bootstrap", "uninstall", "concurrent-kustomize", "delete-crds"] {
                assert!(script.contains(word), "{shell} does not complete {word}");
            }
        }
    }

    #[test]
    fn every_command_has_a_page_with_its_flags() {
        let directory = tempfile::tempdir().unwrap();
        write_pages(directory.path(), crate::cli::command()).unwrap();
        for command in crate::cli::command().get_subcommands() {
            let page = directory.path().join(format!("windlass-{}.1", command.get_name()));
            assert!(page.is_file(), "{}", page.display());
        }
        let page = std::fs::read_to_string(directory.path().join("windlass-install.1")).unwrap();
        assert!(page.contains("dry\\-run"), "{page}");
    }
}
