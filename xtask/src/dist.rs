//! `cargo xtask dist` makes the files of a release of windlass for the platform of this machine.
//!
//! The files are an archive with the program, its completions and its manual pages, the manifests of each profile,
//! the Helm chart, the list of components, the part of the changelog and the checksums. The same program gives the
//! same bytes.
//!
//! This module has the steps. `image` builds the program and lists its components. The program itself prints
//! completions and manual pages.

mod pack;
mod release_notes;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use clap::Args;
use sha2::{Digest as _, Sha256};

use crate::image::{self, ImagePlatform};
use testbed::progress::{dim, step};

/// Shells whose completions are in the archive.
const SHELLS: [&str; 3] = ["bash", "fish", "zsh"];

/// The profiles of an installation. Each has its own manifest, and that of the first one is `install.yaml`.
const PROFILES: [&str; 3] = ["single", "high-availability", "lockdown"];

/// Which files of a release are made, and where.
#[derive(Debug, Args)]
pub(crate) struct DistOptions {
    /// Directory of the files, which is emptied
    #[arg(long, default_value = "target/dist")]
    out: PathBuf,
    /// A program that is built already, such as that of a test; it has to say its commit
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
}

/// Makes the files of a release.
///
/// # Errors
/// When the program does not build, or a file cannot be written.
pub(crate) fn run(options: &DistOptions) -> anyhow::Result<()> {
    let commit = image::commit()?;
    let program = match &options.program {
        Some(program) => program.clone(),
        None => step("windlass, optimised", || image::build(&commit, ImagePlatform::of_machine()))?,
    };
    let out = testbed::root().join(&options.out);
    let names = step("files of the release", || make(&program, &out))?;
    eprintln!("{} {}", dim("release:"), out.display());
    for name in names {
        eprintln!("  {name}");
    }
    Ok(())
}

/// Makes all files in a directory, and returns their names. Files that were in the directory before are deleted.
fn make(program: &Path, out: &Path) -> anyhow::Result<Vec<String>> {
    let said = image::said_by(program, ImagePlatform::of_machine())?;
    if out.exists() {
        fs::remove_dir_all(out).with_context(|| out.display().to_string())?;
    }
    fs::create_dir_all(out)?;
    let version = said.version.trim_start_matches('v');
    let (system, architecture) =
        said.platform.split_once('/').context("the program says no platform")?;

    let top = tempfile::tempdir()?;
    let top = top.path();
    fs::copy(program, top.join("windlass"))?;
    for file in ["LICENSE", "README.md"] {
        fs::copy(testbed::root().join(file), top.join(file))?;
    }
    fs::create_dir(top.join("completions"))?;
    for shell in SHELLS {
        let script = output(program, &["completion", shell])?;
        fs::write(top.join(format!("completions/windlass.{shell}")), script)?;
    }
    let pages = top.join("man");
    output(program, &["man", &pages.to_string_lossy()])?;
    let archive = pack::archive(top, &format!("windlass-{version}"))?;
    fs::write(out.join(format!("windlass_{version}_{system}_{architecture}.tar.gz")), archive)?;

    for profile in PROFILES {
        let manifests = output(program, &["install", "--export", "--profile", profile])?;
        let name = match profile {
            "single" => "install.yaml".to_owned(),
            other => format!("install-{other}.yaml"),
        };
        fs::write(out.join(name), manifests)?;
    }
    let chart = pack::archive(&testbed::root().join("deploy/chart"), "windlass")?;
    fs::write(out.join(format!("windlass-{version}.tgz")), chart)?;
    let list = image::sbom::list(&said.version, ImagePlatform::of_machine())?;
    fs::write(out.join("windlass.cdx.json"), serde_json::to_vec_pretty(&list)?)?;
    let changelog = fs::read_to_string(testbed::root().join("CHANGELOG.md"))?;
    fs::write(out.join("notes.md"), release_notes::of(&changelog, version)?)?;
    checksums(out)
}

/// Writes `checksums.txt`, in the format of `sha256sum --check`, and returns the names of all files.
fn checksums(out: &Path) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(out)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    let mut text = String::new();
    for name in &names {
        let digest = hex::encode(Sha256::digest(fs::read(out.join(name))?));
        text.push_str(&format!("{digest}  {name}\n"));
    }
    fs::write(out.join("checksums.txt"), text)?;
    names.push("checksums.txt".to_owned());
    Ok(names)
}

/// The output of the program on stdout.
fn output(program: &Path, arguments: &[&str]) -> anyhow::Result<Vec<u8>> {
    let output = Command::new(program).args(arguments).output();
    let output = output.with_context(|| program.display().to_string())?;
    ensure!(
        output.status.success(),
        "{} {}: {}",
        program.display(),
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A script that answers like windlass, in place of the program.
    const SCRIPT: &str = r#"#!/bin/sh
case "$1" in
  version) echo '{"windlass": "v0.1.0", "platform": "linux/amd64"}' ;;
  man) mkdir "$2" && echo page > "$2/windlass.1" ;;
  *) echo "$@" ;;
esac
"#;

    #[test]
    fn a_release_has_its_files_with_checksums_and_the_same_bytes_again() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("windlass");
        testbed::script::write_executable(&program, SCRIPT).unwrap();
        let out = folder.path().join("dist");
        let names = make(&program, &out).unwrap();
        assert_eq!(
            names,
            [
                "install-high-availability.yaml",
                "install-lockdown.yaml",
                "install.yaml",
                "notes.md",
                "windlass-0.1.0.tgz",
                "windlass.cdx.json",
                "windlass_0.1.0_linux_amd64.tar.gz",
                "checksums.txt",
            ]
        );
        let sums = fs::read_to_string(out.join("checksums.txt")).unwrap();
        let checked = Command::new("sha256sum")
            .args(["--check", "--strict", "checksums.txt"])
            .current_dir(&out)
            .output()
            .unwrap();
        assert!(checked.status.success(), "{sums}");
        assert_eq!(
            fs::read_to_string(out.join("install-lockdown.yaml")).unwrap(),
            "install --export --profile lockdown\n"
        );
        make(&program, &out).unwrap();
        assert_eq!(fs::read_to_string(out.join("checksums.txt")).unwrap(), sums);
    }
}
