//! What the machine must have before tests and the demo can run; on Debian as root it is installed.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

/// A program that is needed, and Debian's package that has it.
struct RequiredProgram {
    what: &'static str,
    present: fn() -> bool,
    package: &'static str,
}

const NEEDS: [RequiredProgram; 4] = [
    RequiredProgram { what: "git", present: || runs("git"), package: "git" },
    RequiredProgram { what: "git http-backend", present: has_http_backend, package: "git" },
    RequiredProgram {
        what: "sshd",
        present: || Path::new("/usr/sbin/sshd").exists(),
        package: "openssh-server",
    },
    RequiredProgram {
        what: "docker-registry",
        present: || runs("docker-registry"),
        package: "docker-registry",
    },
];

/// What the stories need beside that: one of their servers and the rules of accessibility are packages of npm,
/// two services that are notified and a browser are packages of Debian, and commits are signed with GnuPG.
const FOR_STORIES: [RequiredProgram; 7] = [
    RequiredProgram {
        what: "nats-server",
        present: || runs("nats-server"),
        package: "nats-server",
    },
    RequiredProgram {
        what: "prometheus-alertmanager",
        present: || runs("prometheus-alertmanager"),
        package: "prometheus-alertmanager",
    },
    RequiredProgram { what: "npm", present: || runs("npm"), package: "npm" },
    RequiredProgram { what: "gpg", present: || runs("gpg"), package: "gnupg" },
    RequiredProgram {
        what: "chromium",
        present: || Path::new("/usr/bin/chromium").exists(),
        package: "chromium",
    },
    RequiredProgram {
        what: "chromedriver",
        present: || runs("chromedriver"),
        package: "chromium-driver",
    },
    // Recorded sizes of pages are those of this font.
    RequiredProgram {
        what: "the font DejaVu Sans",
        present: || Path::new("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf").exists(),
        package: "fonts-dejavu-core",
    },
];

/// Sees to it that the programs are there.
///
/// # Errors
/// Names what is missing and how to install it.
pub fn ensure() -> anyhow::Result<()> {
    install(&NEEDS)
}

/// Sees to it that what the stories need is there as well.
///
/// # Errors
/// Names what is missing and how to install it.
pub fn ensure_for_stories() -> anyhow::Result<()> {
    install(&FOR_STORIES)
}

fn install(needs: &[RequiredProgram]) -> anyhow::Result<()> {
    let missing: Vec<&RequiredProgram> = needs.iter().filter(|need| !(need.present)()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = missing.iter().map(|need| need.what).collect();
    let packages: Vec<&str> = missing.iter().map(|need| need.package).collect();
    let is_root = Command::new("id").arg("-u").output().is_ok_and(|o| o.stdout == b"0\n");
    if !is_root || !runs("apt-get") {
        bail!("missing: {}. Install the packages: {}", names.join(", "), packages.join(" "));
    }
    crate::progress::step(&format!("installing {}", packages.join(" ")), || {
        apt(&["update", "-q"])?;
        let mut install = vec!["install", "-q", "-y", "--no-install-recommends"];
        install.extend(&packages);
        apt(&install)
    })
}

fn apt(arguments: &[&str]) -> anyhow::Result<()> {
    let status = Command::new("apt-get")
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdout(Stdio::null())
        .status()
        .context("apt-get cannot be started")?;
    if !status.success() {
        bail!("apt-get {} failed", arguments.join(" "));
    }
    Ok(())
}

fn runs(program: &str) -> bool {
    let version = if program == "go" { "version" } else { "--version" };
    Command::new(program)
        .arg(version)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn has_http_backend() -> bool {
    let Ok(output) = Command::new("git").arg("--exec-path").output() else { return false };
    let folder = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    Path::new(&folder).join("git-http-backend").exists()
}
