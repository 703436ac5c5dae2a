//! Real servers for sources, except Git servers, and a webhook server that the API server calls. Each is a program on loopback
//! with its own module.
//!
//! Elsewhere: Git (`git_server`), the control plane (`control_plane`), building programs (`binaries`).

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};

pub mod admission_webhook;
pub mod alertmanager;
pub mod aws_identity;
pub mod azurite;
pub mod chart_archive;
pub mod charts;
pub mod gcs;
pub mod gitea;
pub mod kms;
pub mod nats;
pub mod registry;
pub mod s3;
mod server_request_log;
pub mod socks;
pub mod web;

/// How long a server may take until it answers, on a machine that also compiles.
const SERVER_START_TIMEOUT: Duration = Duration::from_secs(180);

/// Finds a program on the `PATH` by one of its names.
///
/// # Errors
/// The program is missing. The error names the Debian package that contains it.
fn installed(names: &[&str], package: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path);
    let mut found = places.flat_map(|folder| names.iter().map(move |name| folder.join(name)));
    let found = found.find(|path: &PathBuf| Path::is_file(path));
    found.with_context(|| {
        format!("there is no `{}` on the PATH: apt-get install {package}", names.join("` or `"))
    })
}
