//! The real OpenSSH server, one process for each connection.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use tempfile::TempDir;

use crate::test_repository::{run, ssh_key};

const SSHD: &str = "/usr/sbin/sshd";

/// An RSA key takes long to find, so all servers have the same, kept between runs.
fn rsa_key() -> PathBuf {
    static PATH: LazyLock<PathBuf> = LazyLock::new(|| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("host_rsa");
        if !path.with_extension("pub").exists() {
            let _partial: std::io::Result<()> = std::fs::remove_file(&path);
            ssh_key(&path, "rsa", "");
        }
        path
    });
    PATH.clone()
}

pub(crate) struct GitSshServer {
    pub(crate) address: SocketAddr,
    folder: TempDir,
}

impl GitSshServer {
    /// A server that lets in the keys given as files, and gives `GIT_PROTOCOL` on if `is_modern`.
    pub(crate) fn start(authorized: &[&Path], is_modern: bool) -> Self {
        assert!(
            Path::new(SSHD).exists(),
            "{SSHD} is missing; these tests need a real server: apt-get install openssh-server"
        );
        // As root the server wants an empty folder, which Debian makes when it starts the service.
        let _exists: std::io::Result<()> = std::fs::create_dir_all("/run/sshd");
        let folder = tempfile::tempdir().unwrap();
        let mut config = "UsePAM no\nStrictModes no\nPasswordAuthentication no\nPermitRootLogin yes\nPubkeyAuthentication yes\nLogLevel ERROR\nPidFile none\n".to_owned();
        let own = folder.path().join("host_ed25519");
        ssh_key(&own, "ed25519", "");
        config += &format!("HostKey {}\nHostKey {}\n", own.display(), rsa_key().display());
        let keys: String = authorized
            .iter()
            .map(|path| std::fs::read_to_string(path.with_extension("pub")).unwrap())
            .collect();
        std::fs::write(folder.path().join("authorized_keys"), keys).unwrap();
        config += &format!("AuthorizedKeysFile {}/authorized_keys\n", folder.path().display());
        config +=
            "SetEnv GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0=*\n";
        if is_modern {
            config += "AcceptEnv GIT_PROTOCOL\n";
        }
        let path = folder.path().join("sshd_config");
        std::fs::write(&path, config).unwrap();

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let output = OwnedFd::from(stream.try_clone().unwrap());
                let child = Command::new(SSHD)
                    .args(["-i", "-e", "-f"])
                    .arg(&path)
                    .stdin(Stdio::from(OwnedFd::from(stream)))
                    .stdout(Stdio::from(output))
                    .stderr(Stdio::null())
                    .spawn();
                std::thread::spawn(move || child.unwrap().wait());
            }
        });
        Self { address, folder }
    }

    /// A line of `known_hosts` for one of the host's keys.
    pub(crate) fn known_hosts(&self, kind: &str) -> String {
        let private = match kind {
            "rsa" => rsa_key(),
            _ => self.folder.path().join("host_ed25519"),
        };
        let public = std::fs::read_to_string(private.with_extension("pub")).unwrap();
        format!("[127.0.0.1]:{} {public}", self.address.port())
    }

    /// The same, its name hashed by OpenSSH.
    pub(crate) fn hashed_known_hosts(&self) -> String {
        let path = self.folder.path().join("known_hosts");
        std::fs::write(&path, self.known_hosts("ed25519")).unwrap();
        run(Command::new("ssh-keygen").args(["-H", "-f"]).arg(&path), b"");
        std::fs::read_to_string(path).unwrap()
    }

    /// The URL of a repository, for the user that the server runs as.
    pub(crate) fn url(&self, repository: &Path) -> String {
        let user = run(Command::new("id").arg("-un"), b"");
        format!("ssh://{user}@{}{}", self.address, repository.display())
    }
}
