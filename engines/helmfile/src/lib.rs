//! Reads helmfiles and makes a plan of their releases. The plan can be printed or rendered as by helmfile.
//!
//! A plan depends only on a [`HelmfileHostEnvironment`] (files, variables, time, randomness) and on [`HelmfilePlanSettings`].
//! The engine writes no files. It runs programs, fetches and decrypts only by means that the caller adds to that environment
//! ([`ProgramRunner`], [`RemoteFetcher`], [`SopsFileDecryptor`]). Without them it returns an error that names an alternative.
//!
//! # A tour
//! The reference is helmfile 1.8; where this differs, a comment says so.
//! 1. `helmfile_visit.rs` finds helmfiles, `load.rs` reads one: its parts, bases and environments (`named_environment.rs`,
//!    `environment_values.rs`, `hcl.rs`); `inheritance.rs` has the settings that sub-helmfiles inherit.
//! 2. `spec.rs` has the fields of a helmfile; `go_struct_field.rs` reads, merges and writes it, `yaml.rs` plain values;
//!    `key_order.rs` checks the order of keys.
//! 3. `release.rs` resolves inherited settings of releases and the templates in their fields; `template.rs` renders.
//! 4. `plan.rs` has all helmfiles, `release_selector.rs` chooses releases, `release_graph.rs` orders them, `lock.rs` fixes
//!    versions, `deps.rs` resolves them.
//! 5. `print.rs` prints the output of commands; `release_render_preparation.rs` renders releases, `chartify.rs` builds charts for them.
//!    `release_operation_flags.rs` has the options of operations on releases, `hooks.rs` the manifests of their hooks, and
//!    `plan_digest.rs` compares two plans.
//! 6. `working_directory.rs` and `helmfile_paths.rs` resolve paths, `state_values_merge.rs` merges state values, `remote_address.rs` reads
//!    remote addresses, `secret_references.rs` and `secrets.rs` resolve encrypted values.
//! 7. For callers that install releases: [`helmfile_files`] has the files of a source and the fetched files, [`release_values`]
//!    merges the values of a release.

pub mod bundle_lock_file;
mod chart_reference_resolution;
mod chartify;
mod deps;
mod environment_values;
mod error;
mod error_trace;
mod go_struct_field;
mod hcl;
pub mod helmfile_files;
mod helmfile_host_environment;
mod helmfile_paths;
mod helmfile_visit;
mod hooks;
mod inheritance;
mod key_order;
mod load;
mod lock;
mod named_environment;
mod plan;
mod plan_digest;
mod plan_settings;
mod pre_v1_helmfile;
mod print;
mod release_graph;
mod release_inheritance;
mod release_operation_flags;
mod release_render_preparation;
mod release_selector;
pub mod release_values;
mod remote_address;
mod secret_references;
mod secrets;
mod spec;
mod state_values_merge;
mod template;
#[cfg(test)]
mod tests;
mod working_directory;
mod yaml;
pub use chartify::{ChartRenderRequest, HelmChartRenderer};
pub use deps::{ChartVersionRequest, HelmfileChartsToLock, HelmfileDepsPlan};
pub use error::{Error, PartialOutput, Result};
pub use error_trace::HelmfileErrorTrace;
pub use helmfile_host_environment::{
    HelmfileHostEnvironment, ProgramCall, ProgramRunner, RandomFill,
};
pub use hooks::{ManifestHook, ManifestHookTime};
pub use plan::{HelmfileProcessingPlan, ReleaseIdentity};
pub use plan_settings::HelmfilePlanSettings;
pub use pre_v1_helmfile::HelmfileDialect;
pub use print::{PrintEnvFormat, PrintOutput, ReleaseListFormat};
pub use release_operation_flags::ReleaseOperationSettings;
pub use release_render_preparation::{
    HelmfileReleaseToRender, HelmfileReleaseToUninstall, HelmfileReleasesToRender,
    ReleaseChartLocation, RenderCommandFlags, RenderPurpose,
};
pub use remote_address::{ChartFetchError, RemoteAddress, RemoteFetcher, RemoteSource};
pub use secrets::SopsFileDecryptor;
