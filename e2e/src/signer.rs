//! Who signs commits, tags and texts: keys of `ssh-keygen` and of GnuPG, which are made for it.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::git_server::Repository;

/// Who signs. The agent that GnuPG starts ends with it.
pub struct Signer {
    folder: tempfile::TempDir,
    public: (&'static str, String),
    settings: Vec<(&'static str, String)>,
    is_gpg: bool,
}

fn run(program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.with_context(|| format!("cannot start `{program}`"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`{program} {}` failed: {said}", arguments.join(" "));
    Ok(String::from_utf8(output.stdout)?)
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is no text")
}

impl Signer {
    /// Signs with a key of `ssh-keygen`.
    ///
    /// # Errors
    /// The program is missing, or fails.
    pub fn ssh() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let key = folder.path().join("key");
        run("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-C", "story", "-f", text(&key)?])?;
        let public = std::fs::read_to_string(folder.path().join("key.pub"))?;
        let settings =
            vec![("gpg.format", "ssh".to_owned()), ("user.signingkey", text(&key)?.to_owned())];
        Ok(Self { folder, public: ("story.sshpub", public), settings, is_gpg: false })
    }

    /// Signs with an elliptic key of GnuPG.
    ///
    /// # Errors
    /// The program is missing, or fails.
    pub fn gpg() -> Result<Self> {
        Self::gpg_with("ed25519")
    }

    /// Signs with a key of GnuPG of an algorithm, such as `rsa4096`.
    ///
    /// # Errors
    /// The program is missing, or fails.
    pub fn gpg_with(algorithm: &str) -> Result<Self> {
        use std::os::unix::fs::PermissionsExt as _;

        let folder = tempfile::tempdir()?;
        let home = text(folder.path())?.to_owned();
        let gpg = |arguments: &[&str]| {
            let first = ["--homedir", home.as_str(), "--batch", "--quiet"];
            run("gpg", &[&first[..], arguments].concat())
        };
        let name = "Story <story@testbed.example>";
        let made = ["--passphrase", "", "--quick-generate-key", name, algorithm, "sign", "never"];
        gpg(&made)?;
        let public = gpg(&["--armor", "--export"])?;
        let program = folder.path().join("program");
        std::fs::write(
            &program,
            format!("#!/bin/sh\nexec gpg --homedir '{home}' --batch \"$@\"\n"),
        )?;
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700))?;
        let settings = vec![
            ("gpg.format", "openpgp".to_owned()),
            ("gpg.program", text(&program)?.to_owned()),
            ("user.signingkey", "story@testbed.example".to_owned()),
        ];
        Ok(Self { folder, public: ("story.asc", public), settings, is_gpg: true })
    }

    /// The public key as an entry of a Secret: its name and its content.
    pub fn public(&self) -> (&'static str, &str) {
        (self.public.0, &self.public.1)
    }

    /// A text with its signature below it; of GnuPG only.
    ///
    /// # Errors
    /// GnuPG fails.
    pub fn clearsign(&self, plain: &str) -> Result<String> {
        let file = self.folder.path().join("plain");
        std::fs::write(&file, plain)?;
        let home = text(self.folder.path())?;
        let sign = ["--homedir", home, "--batch", "--quiet", "--output", "-", "--clearsign"];
        run("gpg", &[&sign[..], &[text(&file)?]].concat())
    }

    /// Signs what is committed and tagged from here on.
    ///
    /// # Errors
    /// Git fails.
    pub fn sign(&self, repository: &Repository) -> Result<()> {
        for (name, value) in &self.settings {
            repository.git(&["config", name, value])?;
        }
        signing(repository, true)
    }
}

/// Has what is committed and tagged from here on signed, or not.
///
/// # Errors
/// Git fails.
pub fn signing(repository: &Repository, is_on: bool) -> Result<()> {
    for name in ["commit.gpgsign", "tag.gpgsign"] {
        repository.git(&["config", name, if is_on { "true" } else { "false" }])?;
    }
    Ok(())
}

impl Drop for Signer {
    fn drop(&mut self) {
        if self.is_gpg {
            let home = self.folder.path().as_os_str();
            let kill = ["--kill", "gpg-agent"];
            drop(Command::new("gpgconf").arg("--homedir").arg(home).args(kill).status());
        }
    }
}
