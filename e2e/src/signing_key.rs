//! Signs commits, tags and texts with newly made keys of `ssh-keygen` and GnuPG.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::git_server::StoryGitRepository;
use crate::gnupg::{ADDRESS, GnuPgHome};

/// A key with which a test signs, and its public key.
pub struct SigningKey {
    folder: tempfile::TempDir,
    public: (&'static str, String),
    settings: Vec<(&'static str, String)>,
    gnupg: Option<GnuPgHome>,
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is no text")
}

impl SigningKey {
    /// Makes a key with `ssh-keygen`.
    ///
    /// # Errors
    /// The program is missing, or fails.
    pub fn ssh() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let key = folder.path().join("key");
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-C", "story", "-f"])
            .arg(&key)
            .output()
            .context("cannot start `ssh-keygen`")?;
        let said = String::from_utf8_lossy(&made.stderr);
        ensure!(made.status.success(), "`ssh-keygen` failed: {said}");
        let public = std::fs::read_to_string(folder.path().join("key.pub"))?;
        let settings =
            vec![("gpg.format", "ssh".to_owned()), ("user.signingkey", text(&key)?.to_owned())];
        Ok(Self { folder, public: ("story.sshpub", public), settings, gnupg: None })
    }

    /// Makes an elliptic-curve key with GnuPG.
    ///
    /// # Errors
    /// The program is missing, or fails.
    pub fn gpg() -> Result<Self> {
        Self::gpg_with("ed25519")
    }

    /// Makes a key with GnuPG. `algorithm` is for example `rsa4096`.
    ///
    /// # Errors
    /// The program is missing, or fails.
    pub fn gpg_with(algorithm: &str) -> Result<Self> {
        Self::of(GnuPgHome::with_key(algorithm, "sign")?)
    }

    /// Uses the key of a GnuPG home folder.
    ///
    /// # Errors
    /// The program fails.
    pub fn of(gnupg: GnuPgHome) -> Result<Self> {
        use std::os::unix::fs::PermissionsExt as _;

        let folder = tempfile::tempdir()?;
        let program = folder.path().join("program");
        std::fs::write(&program, gnupg.script())?;
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700))?;
        let settings = vec![
            ("gpg.format", "openpgp".to_owned()),
            ("gpg.program", text(&program)?.to_owned()),
            ("user.signingkey", ADDRESS.to_owned()),
        ];
        let public = ("story.asc", gnupg.public()?);
        Ok(Self { folder, public, settings, gnupg: Some(gnupg) })
    }

    /// The GnuPG home folder of the key.
    ///
    /// # Errors
    /// The key was made by `ssh-keygen`.
    pub fn gnupg(&self) -> Result<&GnuPgHome> {
        self.gnupg.as_ref().context("not a key of GnuPG")
    }

    /// The public key as an entry of a Secret, with its name and its content.
    pub fn public(&self) -> (&'static str, &str) {
        (self.public.0, &self.public.1)
    }

    /// A text with its signature below. Only GnuPG keys support this.
    ///
    /// # Errors
    /// GnuPG fails.
    pub fn clearsign(&self, plain: &str) -> Result<String> {
        let file = self.folder.path().join("plain");
        std::fs::write(&file, plain)?;
        self.gnupg()?.run(&["--output", "-", "--clearsign", text(&file)?])
    }

    /// Signs all later commits and tags of a repository with this key.
    ///
    /// # Errors
    /// Git fails.
    pub fn sign(&self, repository: &StoryGitRepository) -> Result<()> {
        for (name, value) in &self.settings {
            repository.git(&["config", name, value])?;
        }
        signing(repository, true)
    }
}

/// Turns signing of later commits and tags on or off.
///
/// # Errors
/// Git fails.
pub fn signing(repository: &StoryGitRepository, is_on: bool) -> Result<()> {
    for name in ["commit.gpgsign", "tag.gpgsign"] {
        repository.git(&["config", name, if is_on { "true" } else { "false" }])?;
    }
    Ok(())
}
