//! Home folders of GnuPG, each with a newly made key.
//!
//! Elsewhere: signing commits, tags and texts with such a key ([`crate::signing_key`]).

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// The mail address of every key.
pub const ADDRESS: &str = "story@testbed.example";

/// When the expired key is made, as `gpg --faked-system-time` reads it.
const CREATION_TIME: &str = "20250101T000000";

/// When the expired key signs. It is an hour after [`CREATION_TIME`], because the faked clock of each process begins at its
/// given time. With an equal time, a fast process could find a key from the future.
const SIGNING_TIME: &str = "20250101T010000";

/// A home folder with one key that has no passphrase. The agent that GnuPG starts ends with this value.
pub struct GnuPgHome {
    home: tempfile::TempDir,
    /// The arguments of every call: the home folder, and the faked time.
    options: Vec<String>,
}

impl GnuPgHome {
    /// Makes a home folder with a key. The algorithm and the usage are those of `gpg --quick-generate-key`.
    ///
    /// # Errors
    /// The program is missing, or fails.
    pub fn with_key(algorithm: &str, usage: &str) -> Result<Self> {
        Self::generate(&[], [algorithm, usage, "never"])
    }

    /// Makes a home folder with a key that has expired by now. The faked clock lies in the past, so its signatures were made
    /// before the key expired.
    ///
    /// # Errors
    /// The same errors as those of [`GnuPgHome::with_key`].
    pub fn with_expired_key() -> Result<Self> {
        let mut made =
            Self::generate(&["--faked-system-time", CREATION_TIME], ["ed25519", "sign", "1d"])?;
        for option in made.options.iter_mut().filter(|it| *it == CREATION_TIME) {
            SIGNING_TIME.clone_into(option);
        }
        Ok(made)
    }

    fn generate(more: &[&str], [algorithm, usage, expiry]: [&str; 3]) -> Result<Self> {
        let home = tempfile::tempdir()?;
        let place = home.path().to_str().context("a path that is no text")?;
        let options = [&["--homedir", place, "--batch", "--quiet"], more].concat();
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let made = Self { home, options };
        let name = format!("Story <{ADDRESS}>");
        made.run(&["--passphrase", "", "--quick-generate-key", &name, algorithm, usage, expiry])?;
        Ok(made)
    }

    /// The path of the home folder.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Runs `gpg` and returns its output.
    ///
    /// # Errors
    /// The command fails. The error contains its output.
    pub fn run(&self, arguments: &[&str]) -> Result<String> {
        let output = Command::new("gpg").args(&self.options).args(arguments).output();
        let output = output.context("cannot start `gpg`")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "`gpg {}` failed: {said}", arguments.join(" "));
        Ok(String::from_utf8(output.stdout)?)
    }

    /// A shell script that runs `gpg` with this home folder.
    pub fn script(&self) -> String {
        format!("#!/bin/sh\nexec gpg '{}' \"$@\"\n", self.options.join("' '"))
    }

    /// The fingerprint of the key.
    ///
    /// # Errors
    /// GnuPG fails.
    pub fn fingerprint(&self) -> Result<String> {
        let listed = self.run(&["--with-colons", "--fingerprint"])?;
        let line = listed.lines().find_map(|line| line.strip_prefix("fpr:"));
        let fingerprint = line.map(|line| line.trim_matches(':').to_owned());
        fingerprint.context("the key has no fingerprint")
    }

    /// The public key in ASCII armor.
    ///
    /// # Errors
    /// GnuPG fails.
    pub fn public(&self) -> Result<String> {
        self.run(&["--armor", "--export"])
    }

    /// The private key in ASCII armor.
    ///
    /// # Errors
    /// GnuPG fails.
    pub fn private(&self) -> Result<String> {
        self.run(&["--armor", "--export-secret-keys"])
    }

    /// Revokes the key with the revocation certificate that GnuPG made together with the key.
    ///
    /// # Errors
    /// There is none, or GnuPG fails.
    pub fn revoke(&self) -> Result<()> {
        let folder = self.home().join("openpgp-revocs.d");
        let file = folder.join(format!("{}.rev", self.fingerprint()?));
        let text = std::fs::read_to_string(&file)
            .with_context(|| format!("cannot read {}", file.display()))?;
        // GnuPG puts a colon before the certificate, so that no user imports it by mistake.
        let text = text.replace(":-----BEGIN", "-----BEGIN");
        let certificate = self.home().join("revocation.asc");
        std::fs::write(&certificate, text)?;
        let certificate = certificate.to_str().context("a path that is no text")?;
        self.run(&["--import", certificate]).map(drop)
    }
}

impl Drop for GnuPgHome {
    fn drop(&mut self) {
        let kill = ["--kill", "gpg-agent"];
        drop(Command::new("gpgconf").arg("--homedir").arg(self.home()).args(kill).status());
    }
}
