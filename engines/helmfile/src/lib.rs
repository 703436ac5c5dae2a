//! Helmfiles: what is read becomes a plan of releases, which is printed or rendered as helmfile does it.
//!
//! A plan depends only on a [`HelmfileEnvironment`] (files, variables, time, randomness) and on [`Settings`]. The
//! engine writes no files; it runs programs, fetches and decrypts only through what the caller puts into that
//! environment ([`ProgramRunner`], [`Fetch`], [`Decrypt`]). Without those it returns an error that names what to use
//! instead.
//!
//! # A tour
//! The reference is helmfile 1.8; where this differs, a comment says so.
//! 1. `visit.rs` finds helmfiles, `load.rs` reads one: its parts, bases and environments (`environment.rs`, `values.rs`,
//!    `hcl.rs`); `inheritance.rs` is what a helmfile hands down.
//! 2. `spec.rs` has the fields of a helmfile; `field.rs` reads, merges and writes it, `yaml.rs` plain values;
//!    `policy.rs` checks the order of keys.
//! 3. `release.rs` is what releases inherit, and the templates in their fields; `template.rs` renders.
//! 4. `plan.rs` has all helmfiles, `select.rs` chooses releases, `graph.rs` orders them, `lock.rs` fixes versions,
//!    `deps.rs` writes them down.
//! 5. `print.rs` is what commands print; `render.rs` is what is rendered, `chartify.rs` makes charts for it.
//!    `operation.rs` has the options of operations on releases, `hooks.rs` what their hooks apply, and `digest.rs`
//!    compares two plans.
//! 6. `working_directory.rs` and `storage.rs` are paths, `maps.rs` state values, `remote.rs` addresses of what is
//!    elsewhere, `references.rs` and `secrets.rs` what is encrypted.

pub mod bundle;
mod chartify;
mod charts;
mod deps;
mod dialect;
mod digest;
mod environment;
mod error;
mod error_trace;
mod field;
mod graph;
mod hcl;
mod helmfile_environment;
mod hooks;
mod inheritance;
mod load;
mod lock;
mod maps;
mod operation;
mod plan;
mod policy;
mod print;
mod references;
mod release;
mod remote;
mod render;
mod secrets;
mod select;
mod settings;
mod spec;
mod storage;
mod template;
#[cfg(test)]
mod tests;
mod values;
mod visit;
mod working_directory;
mod yaml;
pub use chartify::{Helm, Template};
pub use deps::{ChartVersionRequest, Dependencies, UnlockedHelmfile};
pub use dialect::Dialect;
pub use error::{Error, Result, UntilError};
pub use error_trace::Trail;
pub use helmfile_environment::{Fill, HelmfileEnvironment, Program, ProgramRunner};
pub use hooks::{ManifestHook, When};
pub use operation::Operation;
pub use plan::{Plan, ReleaseIdentity};
pub use print::{List, PrintEnvFormat, PrintOutput};
pub use remote::{Address, ChartError, Fetch, RemoteSource};
pub use render::{Chart, Options, Purpose, Rendering, Renderings, UnwantedRelease};
pub use secrets::Decrypt;
pub use settings::Settings;
