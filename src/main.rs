//! The program `windlass`: it starts the command line, and returns its exit status.
//!
//! The crate `windlass-cli` has the commands, and the crate `windlass-kinds` the list of kinds.

use std::process::ExitCode;

fn main() -> ExitCode {
    windlass_cli::run()
}
