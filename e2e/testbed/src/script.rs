//! Programs that a test writes and runs.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};

/// Writes a script that can be run at once.
///
/// Another process writes it: a file that this one had open for writing could be inherited by a program that another test
/// starts at the same time, and a file that a process has open for writing cannot be run (`ETXTBSY`).
///
/// # Errors
/// When it cannot be written.
pub fn write_executable(path: &Path, text: &str) -> anyhow::Result<()> {
    let mut writer = Command::new("sh")
        .args(["-c", "cat >\"$0\" && chmod 755 \"$0\""])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .context("sh cannot be started")?;
    // It is closed here, so that the writer comes to the end.
    writer.stdin.take().context("sh has no standard input")?.write_all(text.as_bytes())?;
    let status = writer.wait()?;
    ensure!(status.success(), "{} cannot be written: {status}", path.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_can_be_run_while_other_programs_are_started() {
        let folder = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for of_thread in 0..4 {
                let folder = folder.path();
                scope.spawn(move || {
                    for round in 0..20 {
                        let path = folder.join(format!("{of_thread}-{round}"));
                        write_executable(&path, "#!/bin/sh\nexit 7\n").unwrap();
                        assert_eq!(Command::new(&path).status().unwrap().code(), Some(7));
                    }
                });
            }
        });
    }
}
