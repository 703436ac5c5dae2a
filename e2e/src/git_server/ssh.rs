//! Serves the same repositories over SSH, with the standard OpenSSH server.
//!
//! Here: keys, configuration, and starting `sshd` as the current user. Elsewhere: the repositories (`super::repository`).

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::repository::StoryGitRepository;
use crate::control_plane::{free_ports, tail, write_private};
use crate::process_reaper::ProcessReaper;

const INSTALL: &str = "install the OpenSSH server (Debian: `apt-get install openssh-server`)";

/// An SSH server on loopback that accepts one key.
pub struct SshServer {
    port: u16,
    user: String,
    folder: PathBuf,
    root: PathBuf,
    child: Child,
}

impl SshServer {
    /// Starts `sshd` with keys and settings in `folder`. `reaper` ends it at the latest.
    pub(super) fn start(folder: &Path, root: &Path, reaper: &ProcessReaper) -> Result<Self> {
        let sshd = ["/usr/sbin/sshd", "/usr/local/sbin/sshd", "/usr/bin/sshd"];
        let sshd = sshd.into_iter().find(|path| Path::new(path).is_file());
        let sshd = sshd.with_context(|| format!("`sshd` is not installed: {INSTALL}"))?;
        std::fs::create_dir_all(folder)?;
        for key in ["host", "identity"] {
            generate_key(&folder.join(key))?;
        }
        let output = Command::new("id").arg("-un").output().context("cannot start `id`")?;
        let user = String::from_utf8(output.stdout)?.trim().to_owned();
        if user == "root" {
            // `sshd` uses this folder when it drops its privileges. Service managers usually create it at boot.
            std::fs::create_dir_all("/run/sshd").context("`sshd` needs the folder /run/sshd")?;
        }
        for attempt in 1.. {
            let [port] = free_ports()?;
            let config = folder.join("sshd_config");
            write_private(&config, &settings(folder, port))?;
            let log = folder.join("sshd.log");
            let mut command = Command::new(sshd);
            command.arg("-D").arg("-e").arg("-f").arg(&config);
            let child = reaper.spawn(&mut command, &log)?;
            let mut server =
                Self { port, user: user.clone(), folder: folder.into(), root: root.into(), child };
            match server.await_ready() {
                Ok(()) => return Ok(server),
                Err(error) if attempt == 3 => {
                    bail!("{error:#}; its log ends:\n{}", tail(&log, 10))
                }
                // Another program most likely took the port, so the start is repeated.
                Err(_) => {}
            }
        }
        bail!("sshd does not start")
    }

    fn await_ready(&mut self) -> Result<()> {
        let known_hosts = self.folder.join("known_hosts");
        let host = std::fs::read_to_string(self.folder.join("host.pub"))?;
        write_private(&known_hosts, &format!("[127.0.0.1]:{} {host}", self.port))?;
        let deadline = Instant::now() + Duration::from_secs(120);
        while std::net::TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            if let Some(status) = self.child.try_wait()? {
                bail!("`sshd` ended during the start ({status})");
            }
            ensure!(Instant::now() < deadline, "`sshd` does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// The URL of a repository, `ssh://user@127.0.0.1:PORT/…`.
    pub fn url(&self, repository: &StoryGitRepository) -> String {
        let path = self.root.join(format!("{}.git", repository.name()));
        format!("ssh://{}@127.0.0.1:{}{}", self.user, self.port, path.display())
    }

    /// The private key that the server accepts, in OpenSSH's format.
    pub fn identity(&self) -> Result<String> {
        self.read("identity")
    }

    /// The public key of [`SshServer::identity`].
    pub fn identity_public(&self) -> Result<String> {
        self.read("identity.pub")
    }

    /// The host key of the server, as a line for `known_hosts`.
    pub fn known_hosts(&self) -> Result<String> {
        self.read("known_hosts")
    }

    /// A value for `GIT_SSH_COMMAND` with which the standard `git` can log in.
    pub fn git_ssh_command(&self) -> String {
        let file = |name: &str| self.folder.join(name).display().to_string();
        format!(
            "ssh -F none -i '{}' -o IdentitiesOnly=yes -o UserKnownHostsFile='{}' \
             -o StrictHostKeyChecking=yes",
            file("identity"),
            file("known_hosts"),
        )
    }

    fn read(&self, name: &str) -> Result<String> {
        let path = self.folder.join(name);
        std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }
}

impl Drop for SshServer {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The permission checks are off, because the parent of the temporary folder belongs to another user.
fn settings(folder: &Path, port: u16) -> String {
    let file = |name: &str| folder.join(name).display().to_string();
    format!(
        "ListenAddress 127.0.0.1:{port}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\n\
         StrictModes no\nUsePAM no\nPasswordAuthentication no\n\
         KbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n",
        file("host"),
        file("identity.pub"),
    )
}

fn generate_key(path: &Path) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    let output = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-C", "testbed", "-f"])
        .arg(path)
        .output()
        .with_context(|| format!("`ssh-keygen` is not installed: {INSTALL}"))?;
    ensure!(
        output.status.success(),
        "`ssh-keygen` failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}
