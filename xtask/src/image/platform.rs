//! The platforms for which an image can be made. They are the platform of this machine, and arm64 on an x86-64
//! machine. For arm64, Debian's cross compiler builds the program and QEMU runs it.
//!
//! `deploy/image/Dockerfile` builds for both platforms by buildx.

use std::env::consts::ARCH;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};
use clap::ValueEnum;

/// A platform, as container images name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ImagePlatform {
    /// x86-64.
    #[value(name = "linux/amd64")]
    Amd64,
    /// 64-bit ARM.
    #[value(name = "linux/arm64")]
    Arm64,
}

/// The Debian packages with which an x86-64 machine builds and runs programs for arm64.
const PACKAGES: &str = "gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static";
/// The folder in which Debian installs the libraries of arm64.
const SYSROOT: &str = "/usr/aarch64-linux-gnu";
const COMPILER: &str = "aarch64-linux-gnu-gcc";
/// QEMU for arm64 without shared libraries, so that it also runs in the root file system of an image.
const EMULATOR: &str = "/usr/bin/qemu-aarch64-static";
/// The dynamic loader of arm64.
const LOADER: &str = "/lib/ld-linux-aarch64.so.1";

impl ImagePlatform {
    /// The platform of this machine.
    pub(crate) fn of_machine() -> Self {
        if ARCH == "aarch64" { Self::Arm64 } else { Self::Amd64 }
    }

    /// The architecture in the notation of container images.
    pub(crate) fn architecture(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// The target triple of the platform, as the Rust compiler names it.
    pub(crate) fn triple(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-unknown-linux-gnu",
            Self::Arm64 => "aarch64-unknown-linux-gnu",
        }
    }

    /// Whether this machine needs QEMU to run programs of the platform.
    pub(crate) fn is_foreign(self) -> bool {
        self != Self::of_machine()
    }

    /// Fails if a package is missing that building or running programs of the platform needs.
    ///
    /// # Errors
    /// The packages to install.
    pub(crate) fn check(self) -> anyhow::Result<()> {
        if !self.is_foreign() {
            return Ok(());
        }
        ensure!(self == Self::Arm64, "an image for {} is made on such a machine", self.triple());
        let has_compiler = Command::new(COMPILER).arg("--version").output().is_ok();
        let is_there = has_compiler && [EMULATOR, SYSROOT].iter().all(|it| Path::new(it).exists());
        ensure!(is_there, "an image for arm64 takes more: apt-get install {PACKAGES}");
        let libraries = Command::new("rustc")
            .args(["--print", "target-libdir", "--target", self.triple()])
            .current_dir(testbed::root())
            .output()
            .context("rustc cannot be started")?;
        let libraries = PathBuf::from(String::from_utf8_lossy(&libraries.stdout).trim());
        if !libraries.is_dir() {
            bail!(
                "Rust's standard library for arm64 is missing: rustup target add {}",
                self.triple()
            );
        }
        Ok(())
    }

    /// The additional arguments and the environment variables of `cargo build` for the platform.
    pub(super) fn of_cargo(self) -> (Vec<&'static str>, Vec<(&'static str, &'static str)>) {
        if !self.is_foreign() {
            return (Vec::new(), Vec::new());
        }
        let variables = vec![
            ("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", COMPILER),
            ("CC_aarch64_unknown_linux_gnu", COMPILER),
        ];
        (vec!["--target", self.triple()], variables)
    }

    /// The command that runs a program of the platform.
    pub(super) fn command(self, program: &Path) -> Command {
        if !self.is_foreign() {
            return Command::new(program);
        }
        let mut command = Command::new(EMULATOR);
        command.args(["-L", SYSROOT]).arg(program);
        command
    }

    /// The command that lists the libraries which a program is linked with, as `ldd` does.
    pub(super) fn ldd(self, program: &Path) -> Command {
        if !self.is_foreign() {
            let mut command = Command::new("ldd");
            command.arg(program);
            return command;
        }
        let mut command = self.command(Path::new(SYSROOT).join(&LOADER[1..]).as_path());
        command.arg("--list").arg(program);
        command
    }

    /// The path of a library on this machine. For a foreign platform it is in Debian's folder for that platform.
    pub(super) fn on_this_machine(self, library: &Path) -> PathBuf {
        match library.strip_prefix("/") {
            Ok(inside) if self.is_foreign() && !library.starts_with(SYSROOT) => {
                Path::new(SYSROOT).join(inside)
            }
            _ => library.to_owned(),
        }
    }

    /// The path in the image for a library that was found on this machine.
    pub(super) fn in_image(self, library: &Path) -> PathBuf {
        match library.strip_prefix(SYSROOT) {
            Ok(inside) if self.is_foreign() => Path::new("/").join(inside),
            _ => library.to_owned(),
        }
    }

    /// The path of QEMU on this machine, and its path in the root file system of an image, for a foreign platform. `None` on
    /// the image's own platform, where a program needs no QEMU.
    pub(super) fn emulator(self) -> Option<(PathBuf, OsString)> {
        self.is_foreign().then(|| (PathBuf::from(EMULATOR), OsString::from("/qemu")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_of_another_platform_are_found_and_keep_their_paths() {
        let own = ImagePlatform::of_machine();
        let libc = Path::new("/lib/libc.so.6");
        assert_eq!((own.on_this_machine(libc), own.in_image(libc)), (libc.into(), libc.into()));
        let foreign =
            [ImagePlatform::Amd64, ImagePlatform::Arm64].into_iter().find(|it| it.is_foreign());
        let foreign = foreign.unwrap();
        let here = foreign.on_this_machine(libc);
        assert_eq!(here, Path::new("/usr/aarch64-linux-gnu/lib/libc.so.6"));
        assert_eq!(foreign.on_this_machine(&here), here);
        assert_eq!(foreign.in_image(&here), libc);
    }
}
