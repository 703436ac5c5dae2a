//! For which machines an image is: such as this one, or arm64 by Debian's cross compiler, whose programs QEMU runs here.
//!
//! Elsewhere: building for both by buildx (`deploy/image/Dockerfile`).

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

/// Debian's packages by which an x86-64 machine builds and runs programs for arm64.
const PACKAGES: &str = "gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static";
/// Where Debian has the libraries of arm64.
const SYSROOT: &str = "/usr/aarch64-linux-gnu";
const COMPILER: &str = "aarch64-linux-gnu-gcc";
/// Linked with nothing, so that it runs in the root of an image.
const EMULATOR: &str = "/usr/bin/qemu-aarch64-static";
/// The loader of arm64.
const LOADER: &str = "/lib/ld-linux-aarch64.so.1";

impl ImagePlatform {
    /// That of this machine.
    pub(crate) fn of_machine() -> Self {
        if ARCH == "aarch64" { Self::Arm64 } else { Self::Amd64 }
    }

    /// The architecture, as container images name it.
    pub(crate) fn architecture(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// As compilers name it.
    pub(crate) fn triple(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-unknown-linux-gnu",
            Self::Arm64 => "aarch64-unknown-linux-gnu",
        }
    }

    /// Whether this machine runs its programs only in QEMU.
    pub(crate) fn is_foreign(self) -> bool {
        self != Self::of_machine()
    }

    /// Fails where what building and running takes is missing.
    ///
    /// # Errors
    /// Names what to install.
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

    /// What `cargo build` is given beside its arguments, and in its environment.
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

    /// Where a library of the platform is on this machine.
    pub(super) fn on_this_machine(self, library: &Path) -> PathBuf {
        match library.strip_prefix("/") {
            Ok(inside) if self.is_foreign() && !library.starts_with(SYSROOT) => {
                Path::new(SYSROOT).join(inside)
            }
            _ => library.to_owned(),
        }
    }

    /// Where the platform has a library that was found on this machine.
    pub(super) fn in_image(self, library: &Path) -> PathBuf {
        match library.strip_prefix(SYSROOT) {
            Ok(inside) if self.is_foreign() => Path::new("/").join(inside),
            _ => library.to_owned(),
        }
    }

    /// What runs a program in the root of an image, with the file that has to be there for it: none on its own platform.
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
