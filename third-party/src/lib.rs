//! Nothing but features of crates that are not ours: see `Cargo.toml`.
