//! Runs the commands of a documentation page one after the other, as a reader would.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use super::Story;
use crate::operator_process;
use testbed::binaries::TestbedBinaries;

/// The commands in the `sh` blocks of a page, in their order.
pub fn commands(page: &str) -> Vec<String> {
    let mut is_inside = false;
    let mut found = Vec::new();
    for line in page.lines() {
        match line {
            "```sh" => is_inside = true,
            "```" => is_inside = false,
            command if is_inside && !command.is_empty() => found.push(command.to_owned()),
            _ => {}
        }
    }
    found
}

impl Story {
    /// Runs a command of a page in a folder, on the control plane. Returns its output from both streams.
    ///
    /// # Errors
    /// The command is neither `kubectl` nor `windlass`, or the command failed.
    pub fn typed(&self, command: &str, folder: &Path) -> Result<String> {
        let program = match command.split_whitespace().next() {
            Some("kubectl") => TestbedBinaries::ensure()?.path("kubectl")?.to_owned(),
            Some("windlass") => operator_process::binary()?,
            _ => bail!("`{command}` is neither kubectl nor windlass"),
        };
        let (name, rest) = command.split_once(' ').unwrap_or((command, ""));
        // Readers use a shell, so quotes in the command matter.
        let output = Command::new("sh")
            .args(["-c", &format!("\"${{PROGRAM}}\" {rest}")])
            .env("PROGRAM", program)
            .env("KUBECONFIG", self.kubeconfig())
            .current_dir(folder)
            .output()
            .with_context(|| format!("`{name}` cannot be started"))?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        // `windlass why` exits with 1 because it found the problem that the page caused.
        let has_found = command.starts_with("windlass why ") && output.status.code() == Some(1);
        ensure!(output.status.success() || has_found, "`{command}`: {text}");
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_the_lines_of_sh_blocks() {
        let page = "a\n```sh\nkubectl get a\n\nwindlass check\n```\nb\n```yaml\nc\n```\n";
        assert_eq!(commands(page), ["kubectl get a", "windlass check"]);
    }
}
