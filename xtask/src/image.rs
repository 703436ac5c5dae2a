//! `cargo xtask image` makes the container image of windlass without a container engine.
//!
//! The root file system has the program, its shared libraries, the certificate authorities of this machine and a
//! user, but no shell. It becomes one layer of an OCI image layout. A list of the program's components (CycloneDX) is
//! written beside the layout. The same inputs give the same bytes.
//!
//! This module has the steps. Other modules have the root file system (`root_filesystem`), the layout (`layout`) and
//! the list (`components`). A workflow makes the same image on another base, by `deploy/image/Dockerfile`.

mod layout;
mod platform;
mod root_filesystem;
pub(crate) mod sbom;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use clap::Args;

use crate::developer_tool::E2E;
use layout::ImageLabels;
pub(crate) use platform::ImagePlatform;
use testbed::progress::{dim, green, step};
use testbed::released;

/// The environment variable that gives a build its commit, which `windlass version` prints.
const COMMIT: &str = "WINDLASS_COMMIT";

/// The size limit of the image in MiB.
const MAX_IMAGE_MEBIBYTES: f64 = 60.0;

/// Which container image is made, and where.
#[derive(Debug, Args)]
pub(crate) struct ImageOptions {
    /// Folder for the layout (`oci/`), the root file system (`root/`) and the list of components
    #[arg(long, default_value = "target/image")]
    out: PathBuf,
    /// A program that is built already, such as that of a test; it has to say its commit
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
    /// Platform of the image [default: that of this machine]
    #[arg(long, value_enum)]
    platform: Option<ImagePlatform>,
    /// Start the image in its own root as its own user, on a control plane; needs root
    #[arg(long = "try")]
    is_tried: bool,
}

/// Makes the image.
///
/// # Errors
/// When the program does not build, or something that it needs is not on this machine.
pub(crate) fn run(options: &ImageOptions) -> anyhow::Result<()> {
    let commit = commit()?;
    let platform = options.platform.unwrap_or_else(ImagePlatform::of_machine);
    platform.check()?;
    let program = match &options.program {
        Some(program) => program.clone(),
        None => step("windlass, optimised", || build(&commit, platform))?,
    };
    let said = said_by(&program, platform)?;
    let wanted = format!("linux/{}", platform.architecture());
    ensure!(
        said.platform == wanted,
        "{} is for {}, not {wanted}",
        program.display(),
        said.platform
    );
    let version = said.version;
    let out = testbed::root().join(&options.out);
    let top = out.join("root");
    step("root file system", || root_filesystem::make(&top, &program, platform))?;
    let list = step("list of components", || sbom::list(&version, platform))?;
    std::fs::create_dir_all(&out)?;
    std::fs::write(out.join("windlass.cdx.json"), serde_json::to_vec_pretty(&list)?)?;
    let config =
        ImageLabels { version: &version, commit: &commit, architecture: platform.architecture() };
    let size = step("image layout", || layout::make(&top, &out.join("oci"), config))?;
    #[expect(clippy::cast_precision_loss, reason = "an image is smaller than 2^52 bytes")]
    let mib = size as f64 / f64::from(1 << 20);
    eprintln!("{} {}", dim("image layout:"), out.join("oci").display());
    eprintln!("{mib:.1} MiB packed, windlass {version}, commit {commit}");
    ensure!(
        mib <= MAX_IMAGE_MEBIBYTES,
        "the image has {mib:.1} MiB, more than {MAX_IMAGE_MEBIBYTES}"
    );
    if options.is_tried {
        step("the layout, unpacked and started", || start(&out.join("oci"), platform))?;
        eprintln!("{}", green("✔ it serves as its own user in its own root"));
    }
    Ok(())
}

/// The commit of the checkout; it ends in `-dirty` if files of the checkout differ from that commit.
///
/// # Errors
/// When the checkout has none.
pub(crate) fn commit() -> anyhow::Result<String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).current_dir(testbed::root()).output();
        let output = output.context("git cannot be started")?;
        ensure!(output.status.success(), "git {}: no commit", arguments.join(" "));
        Ok::<_, anyhow::Error>(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let mut commit = git(&["rev-parse", "HEAD"])?;
    if !git(&["status", "--porcelain"])?.is_empty() {
        commit.push_str("-dirty");
    }
    Ok(commit)
}

/// Builds the program with its commit.
///
/// # Errors
/// When it does not build.
pub(crate) fn build(commit: &str, platform: ImagePlatform) -> anyhow::Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let (arguments, variables) = platform.of_cargo();
    let status = Command::new(cargo)
        .args(["build", "--release", "--package", "windlass"])
        .args(arguments)
        .envs(variables)
        .env(COMMIT, commit)
        .current_dir(testbed::root())
        .status()
        .context("cargo cannot be started")?;
    ensure!(status.success(), "windlass does not build");
    let own = released("windlass")?;
    if !platform.is_foreign() {
        return Ok(own);
    }
    let target = own.ancestors().nth(2).context("the program is not in a target folder")?;
    Ok(target.join(platform.triple()).join("release/windlass"))
}

/// What `windlass version` prints about a program.
#[derive(Debug, serde::Deserialize)]
pub(crate) struct ProgramVersion {
    /// The version, which begins with `v`.
    #[serde(rename = "windlass")]
    pub(crate) version: String,
    /// The platform in the notation of container images, such as `linux/amd64`.
    pub(crate) platform: String,
}

/// Runs `windlass version` of a program and reads its version and platform.
///
/// # Errors
/// When the program does not print them.
pub(crate) fn said_by(program: &Path, platform: ImagePlatform) -> anyhow::Result<ProgramVersion> {
    let output = platform.command(program).args(["version", "--output", "json"]).output();
    let output = output.with_context(|| program.display().to_string())?;
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("{} says no version", program.display()))
}

/// Unpacks the layer of a layout and starts the program in it as a kubelet would, against a test control plane.
fn start(layout: &Path, platform: ImagePlatform) -> anyhow::Result<()> {
    ensure!(nix::unistd::geteuid().is_root(), "only root may change the root of a process");
    let folder = tempfile::tempdir()?;
    let top = folder.path().join("root");
    layout::unpack(layout, &top)?;
    // A kernel where QEMU is registered for foreign programs needs no QEMU file in the image. Kernels of clusters
    // with nodes of both platforms are like that.
    let emulator = match platform.emulator() {
        None => String::new(),
        Some((program, place)) => {
            let place = place.to_string_lossy().into_owned();
            std::fs::copy(&program, top.join(place.trim_start_matches('/')))?;
            format!("{place} ")
        }
    };
    let user = root_filesystem::NONROOT_USER_ID;
    let top = top.display();
    // A Pod gets its ServiceAccount token from files. This test gives the program a kubeconfig instead, which is not
    // part of the image.
    let line = format!(
        "sh -c 'cp $KUBECONFIG {top}/kubeconfig && chown {user}:{user} {top}/kubeconfig && \
         exec chroot --userspec={user}:{user} {top} {emulator}{} serve --kubeconfig=/kubeconfig --storage-path={} \
         --storage-addr=127.0.0.1:0 --metrics-addr=127.0.0.1:0 --health-addr=127.0.0.1:0 \
         --receiverAddr=127.0.0.1:0'",
        root_filesystem::PROGRAM,
        root_filesystem::STORAGE,
    );
    E2E.run(&["try".into(), line.into()])
}
