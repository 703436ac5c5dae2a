//! The program: the start and the exit status.
//!
//! Elsewhere: commands (crate `windlass-cli`), the list of kinds (crate `windlass-kinds`).

use std::process::ExitCode;

fn main() -> ExitCode {
    windlass_cli::run()
}
