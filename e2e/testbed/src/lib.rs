//! What a machine needs before tests, the demo and measurements can run, without anything that takes long to compile.
//!
//! Here: programs of the test bed ([`binaries`]) and those whose answers are right by definition ([`upstream_programs`]), both
//! built from the Go modules beside this crate; packages of Debian ([`machine_requirements`]); how long work is shown
//! ([`progress`]); programs that a test writes itself ([`script`]). Elsewhere: running them (`e2e`), the command line (`cargo xtask`).

pub mod binaries;
pub mod machine_requirements;
pub mod progress;
pub mod script;
pub mod upstream_programs;

use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// What the image sets in the environment of the program, besides paths.
///
/// glibc would keep memory for each of the threads that wait for a disk or build; two arenas are as many as threads that work.
pub const ENVIRONMENT: [(&str, &str); 1] = [("MALLOC_ARENA_MAX", "2")];

/// The root of the checkout.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap_or_else(|| Path::new("."))
}

/// Where a program of the workspace is, compiled as it is shipped.
///
/// # Errors
/// When this program itself is not where cargo puts it.
pub fn released(name: &str) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("cannot tell which program this is")?;
    let target = own.ancestors().nth(2).context("this program is not in a target folder")?;
    Ok(target.join("release").join(name))
}
