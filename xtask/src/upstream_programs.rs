//! `cargo xtask oracle` builds the original Helm, Kustomize or helmfile, so that a developer can run it by hand.
//!
//! This module has the command line. `testbed::upstream_programs` has the versions and builds the programs. `tools/conformance`
//! compares windlass with them.

use clap::Subcommand;
use testbed::progress::step;
use testbed::upstream_programs::UpstreamProgram;

/// Which upstream program is selected.
#[derive(Debug, Clone, Copy, Subcommand)]
pub(crate) enum UpstreamProgramChoice {
    /// Helm, which charts are compared with
    Helm,
    /// Kustomize, which overlays are compared with
    Kustomize,
    /// helmfile, which helmfiles are compared with
    Helmfile,
}

/// Builds the program if it is missing, and prints its path and version.
///
/// # Errors
/// When the program cannot be built.
#[expect(clippy::print_stdout, reason = "the path is what the command is for")]
pub(crate) fn run(which: UpstreamProgramChoice) -> anyhow::Result<()> {
    let oracle = match which {
        UpstreamProgramChoice::Helm => UpstreamProgram::Helm,
        UpstreamProgramChoice::Kustomize => UpstreamProgram::Kustomize,
        UpstreamProgramChoice::Helmfile => UpstreamProgram::Helmfile,
    };
    let path = step(oracle.version(), || oracle.ensure())?;
    println!("{}", path.display());
    println!("{}", oracle.version());
    Ok(())
}
