//! The folder with the files of one control plane. Through it, later commands find and end a detached control plane.
//!
//! Here: the place of each file, the credentials, and the record of processes.
//! Elsewhere: starting (`crate::control_plane`), the command line (`crate::control_plane_command`).

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use super::OPERATOR;
use super::kubeconfig::{KubeconfigCredential, render};
use crate::certificate_authority::TestCertificateAuthority;

/// The folder of the in-memory file system on most machines.
const MEMORY_FILE_SYSTEM: &str = "/dev/shm";

/// The free space that a control plane needs there, in bytes. It covers the writes of etcd and the logs.
const MIN_MEMORY_BYTES: u64 = 6 << 30;

/// The state folder of one control plane. Only its owner can read it.
#[derive(Debug, Clone)]
pub struct ControlPlaneStateFolder {
    folder: PathBuf,
}

/// The record that a detached control plane writes about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlPlaneRecord {
    /// The API server's URL.
    pub server: String,
    /// Process ids by name. `keeper` is the leader of the process group.
    pub processes: BTreeMap<String, u32>,
}

impl ControlPlaneStateFolder {
    /// Makes an empty folder among the temporary files.
    pub fn temporary() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("windlass-testbed-").tempdir()?.keep();
        Self::with_folders(folder)
    }

    /// Makes an empty folder in memory if the machine has an in-memory file system with enough room. Otherwise makes it among
    /// the temporary files.
    pub(crate) fn in_memory() -> Result<Self> {
        let memory = Path::new(MEMORY_FILE_SYSTEM);
        let free = nix::sys::statvfs::statvfs(memory)
            .map_or(0, |it| it.blocks_available() * it.fragment_size());
        if free < MIN_MEMORY_BYTES {
            return Self::temporary();
        }
        let folder = tempfile::Builder::new().prefix("windlass-testbed-").tempdir_in(memory);
        match folder {
            Ok(folder) => Self::with_folders(folder.keep()),
            // The folder may belong to another user.
            Err(_) => Self::temporary(),
        }
    }

    /// Makes a new folder for the control plane `name` of this user. Fails if the folder exists, so two commands cannot start
    /// the same control plane at once.
    pub fn create(name: &str) -> Result<Self> {
        let state = Self::open(name)?;
        let parent = state.folder.parent().context("the cache folder has no parent")?;
        std::fs::create_dir_all(parent)
            .with_context(|| format!("cannot create {}", parent.display()))?;
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&state.folder)
            .with_context(|| format!("cannot create {}", state.folder.display()))?;
        Self::with_folders(state.folder)
    }

    /// The folder of the control plane `name`, which may not exist.
    pub fn open(name: &str) -> Result<Self> {
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        ensure!(
            !name.is_empty() && name.len() <= 40 && name.chars().all(is_name),
            "`{name}` cannot name a cluster: use lower-case letters, digits and `-`"
        );
        Ok(Self { folder: clusters()?.join(name) })
    }

    /// The folder of a kubeconfig. Another program may have written it.
    pub fn beside(kubeconfig: &Path) -> Self {
        Self { folder: kubeconfig.parent().unwrap_or_else(|| Path::new(".")).to_owned() }
    }

    /// The names of all control planes that have a folder.
    pub fn names() -> Result<Vec<String>> {
        let mut names = Vec::new();
        let Ok(entries) = std::fs::read_dir(clusters()?) else { return Ok(names) };
        for entry in entries {
            names.extend(entry?.file_name().into_string().ok());
        }
        names.sort();
        Ok(names)
    }

    fn with_folders(folder: PathBuf) -> Result<Self> {
        for part in ["pki", "log"] {
            std::fs::create_dir(folder.join(part))
                .with_context(|| format!("cannot create a folder in {}", folder.display()))?;
        }
        Ok(Self { folder })
    }

    /// The path of the folder with the state of the control plane.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The kubeconfig of the administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// The path of the kubeconfig with which the operator connects, as user [`OPERATOR`].
    pub fn operator_kubeconfig(&self) -> PathBuf {
        self.folder.join("operator.kubeconfig")
    }

    /// The audit log of the API server. Each line is a JSON event, mostly at the level Metadata.
    pub fn audit_log(&self) -> PathBuf {
        self.folder.join("log/audit.log")
    }

    /// The file with the output of one program.
    pub fn log(&self, program: &str) -> PathBuf {
        self.folder.join("log").join(format!("{program}.log"))
    }

    pub(super) fn pki(&self) -> PathBuf {
        self.folder.join("pki")
    }

    /// Writes keys, certificates, tokens, and the kubeconfigs that contain them.
    pub(super) fn write_credentials(
        &self,
        authority: &TestCertificateAuthority,
        server: &str,
    ) -> Result<()> {
        let pki = self.pki();
        authority.save(&pki)?;
        let serving = authority.issue_server(&[
            "127.0.0.1",
            "10.96.0.1",
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
        ])?;
        write_private(&pki.join("api-server.crt"), &serving.certificate)?;
        write_private(&pki.join("api-server.key"), &serving.key)?;
        let signing = rcgen::KeyPair::generate().context("cannot generate a key")?;
        write_private(&pki.join("service-account.key"), &signing.serialize_pem())?;
        // If the private key is in PKCS #8, the API server reads the public key only from a separate file.
        write_private(&pki.join("service-account.pub"), &signing.public_key_pem())?;
        let accounts = "system:serviceaccounts,system:serviceaccounts:flux-system";
        let users = [
            ("admin", "system:masters", self.kubeconfig()),
            (OPERATOR, accounts, self.operator_kubeconfig()),
            (
                "system:kube-controller-manager",
                "system:masters",
                pki.join("controller-manager.kubeconfig"),
            ),
            ("system:kube-scheduler", "", pki.join("scheduler.kubeconfig")),
            ("kwok", "system:masters", pki.join("kwok.kubeconfig")),
        ];
        let mut tokens = String::new();
        for (user, groups, path) in users {
            let token = random_token()?;
            tokens.push_str(&format!("{token},{user},{user},\"{groups}\"\n"));
            let who = KubeconfigCredential::Token(&token);
            write_private(&path, &render(server, authority.certificate(), user, &who))?;
        }
        write_private(&pki.join("tokens.csv"), &tokens)
    }

    pub(super) fn write_processes(&self, server: &str, processes: &[(&str, u32)]) -> Result<()> {
        let lines: String = processes.iter().map(|(name, id)| format!("{name} {id}\n")).collect();
        write_private(&self.folder.join("processes"), &format!("{server}\n{lines}"))
    }

    /// The record of processes. `None` if no control plane was detached in this folder.
    pub fn record(&self) -> Option<ControlPlaneRecord> {
        let text = std::fs::read_to_string(self.folder.join("processes")).ok()?;
        let (server, lines) = text.split_once('\n')?;
        let process = |line: &str| {
            let (name, id) = line.split_once(' ')?;
            Some((name.to_owned(), id.parse().ok()?))
        };
        let processes = lines.lines().filter_map(process).collect();
        Some(ControlPlaneRecord { server: server.to_owned(), processes })
    }

    /// Whether a process belongs to this folder. The id may have passed to an unrelated process.
    pub fn owns(&self, id: u32) -> bool {
        let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        let folder = self.folder.as_os_str().as_bytes();
        // The whole path has to match. Otherwise `dev` would claim the processes of `dev-2`.
        line.windows(folder.len() + 1).any(|part| {
            part.starts_with(folder) && part.last().is_some_and(|&end| end == b'/' || end == 0)
        })
    }

    /// Ends a detached control plane and removes its folder. Succeeds if there is none.
    pub fn stop(&self) -> Result<()> {
        let record = self.record();
        let mut ours: Vec<(String, u32)> =
            record.into_iter().flat_map(|record| record.processes).collect();
        ours.retain(|(_, id)| self.owns(*id));
        for (name, id) in &ours {
            let id = Pid::from_raw(i32::try_from(*id).context("not a process id")?);
            // A process that has already ended is no error.
            if name == "keeper" {
                killpg(id, Signal::SIGKILL).ok();
            } else {
                kill(id, Signal::SIGKILL).ok();
            }
        }
        let deadline = Instant::now() + Duration::from_secs(60);
        while let Some((name, id)) = ours.iter().find(|(_, id)| self.owns(*id)) {
            if Instant::now() > deadline {
                bail!("{name} (process {id}) does not end");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        match std::fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {}", self.folder.display()))
            }
            _ => Ok(()),
        }
    }
}

fn clusters() -> Result<PathBuf> {
    Ok(testbed::binaries::cache()?.join("clusters"))
}

/// Writes a file that only its owner can read.
pub(crate) fn write_private(path: &Path, content: &str) -> Result<()> {
    let write = || {
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.create(true).write(true).truncate(true).mode(0o600).open(path)?;
        file.write_all(content.as_bytes())
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// A random bearer token. It is the hash of a new private key, so it cannot be guessed.
fn random_token() -> Result<String> {
    use sha2::Digest;
    let key = rcgen::KeyPair::generate().context("cannot generate a token")?;
    let hash = sha2::Sha256::digest(key.serialized_der());
    Ok(hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_name_cannot_leave_its_folder() {
        for name in ["", "..", "a/b", "Dev", "a b"] {
            assert!(ControlPlaneStateFolder::open(name).is_err(), "{name:?} was accepted");
        }
        assert!(ControlPlaneStateFolder::open("dev-2").is_ok());
    }

    #[test]
    fn a_record_reads_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = ControlPlaneStateFolder { folder: folder.path().to_owned() };
        assert_eq!(state.record(), None);
        state.write_processes("https://x", &[("keeper", 7), ("etcd", 8)]).expect("written");
        let record = state.record().expect("a record");
        assert_eq!(record.server, "https://x");
        assert_eq!(record.processes["etcd"], 8);
    }

    #[test]
    fn a_stranger_with_a_recorded_id_is_left_alone() {
        let state = ControlPlaneStateFolder::temporary().expect("a folder");
        let mut stranger =
            std::process::Command::new("sleep").arg("600").spawn().expect("a process");
        state.write_processes("", &[("etcd", stranger.id())]).expect("written");
        state.stop().expect("stopped");
        assert!(stranger.try_wait().expect("a state").is_none(), "the stranger was killed");
        assert!(!state.folder().exists());
        stranger.kill().expect("ours");
        stranger.wait().expect("an end");
    }

    #[test]
    fn a_folder_owns_processes_by_whole_path_only() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = ControlPlaneStateFolder { folder: folder.path().join("dev") };
        // A shell that waits by itself, so killing it leaves no child process behind.
        let start = |name: &str| {
            std::process::Command::new("sh")
                .args(["-c", "read -r _", "sh"])
                .arg(folder.path().join(name))
                .stdin(std::process::Stdio::piped())
                .spawn()
                .expect("a process")
        };
        let mut other = start("dev-2");
        let mut own = start("dev");
        // A process has no command line for a moment after its start.
        let line = |id: u32| std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        while line(other.id()).is_empty() || line(own.id()).is_empty() {
            std::thread::yield_now();
        }
        let owned = (state.owns(other.id()), state.owns(own.id()));
        for child in [&mut other, &mut own] {
            child.kill().expect("ours");
            child.wait().expect("an end");
        }
        assert_eq!(owned, (false, true));
    }
}
