//! The program itself, for topics whose cases are command lines.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use super::case::CaseFailure;
use e2e::installation::{BuildProfile, make};

/// The program as the source is now: what was built last may be older.
static PROGRAM: LazyLock<Result<PathBuf, String>> = LazyLock::new(|| {
    let program = make(BuildProfile::Debug).and_then(|()| e2e::operator_process::binary());
    program.map_err(|error| format!("{error:#}"))
});

/// Where the program is.
///
/// # Errors
/// No case is run if it cannot be built.
pub(super) fn program() -> Result<&'static Path, CaseFailure> {
    PROGRAM.as_deref().map_err(|error| CaseFailure::NotRun(error.clone()))
}
