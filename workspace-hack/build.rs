//! Does nothing. Cargo reads `[build-dependencies]` only of packages with a build script, and there `Cargo.toml` unifies the
//! features that build scripts and macros get.

fn main() {}
