//! Builds windlass for topics whose cases are command lines.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use super::case::CaseFailure;
use e2e::cluster_with_operator::{BuildProfile, make};

/// The program, built from the present source. An earlier build may be outdated.
static PROGRAM: LazyLock<Result<PathBuf, String>> = LazyLock::new(|| {
    let program = make(BuildProfile::Debug).and_then(|()| e2e::operator_process::binary());
    program.map_err(|error| format!("{error:#}"))
});

/// The path of the program.
///
/// # Errors
/// If the program cannot be built, no case is run.
pub(super) fn program() -> Result<&'static Path, CaseFailure> {
    PROGRAM.as_deref().map_err(|error| CaseFailure::NotRun(error.clone()))
}
