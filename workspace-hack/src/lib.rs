//! No code. `Cargo.toml` unifies the features of third-party crates, so that each is compiled once for all programs.
