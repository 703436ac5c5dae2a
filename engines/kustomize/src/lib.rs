//! Builds overlays of Kubernetes objects, with the same output as `kustomize build`.
//!
//! ```
//! use kustomize::{BuildBudget, TreeBuildFiles, KustomizeBuildOptions, build};
//!
//! let tree = tree::MemoryTree::from_files([
//!     ("kustomization.yaml", "namePrefix: dev-\nresources: [service.yaml]\n"),
//!     ("service.yaml", "{apiVersion: v1, kind: Service, metadata: {name: web}}\n"),
//! ])?;
//! let mut warnings = Vec::new();
//! let built = build(&TreeBuildFiles(tree), "/", &KustomizeBuildOptions::default(), &BuildBudget::default(), &mut warnings)?;
//! assert_eq!(built.yaml()?, "apiVersion: v1\nkind: Service\nmetadata:\n  name: dev-web\n");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A tour
//! The reference is kustomize 5.8.1; where this differs, a comment says so.
//! 1. `build.rs` has the steps that happen once; `kustomization_target.rs` accumulates one kustomization in kustomize's order.
//! 2. `kustomization.rs` reads its file (`json_struct_decode.rs` decodes as Go does), `loader.rs` decides which files it may read.
//! 3. `manifest.rs` reads objects from files; `resource.rs` is one object, `resources.rs` all of them.
//! 4. `transform/`, `config_map_secret_generator.rs`, `chart_inflation.rs` and `builtin_plugin.rs` change and generate objects.
//! 5. `strategic_merge`, `json6902`, `fieldspec`, `yaml_path`, `simple_regex_matcher`, `selector` and `openapi_schema` have
//!    the operations on nodes.
//! 6. `name_hash.rs`, `name_reference_update.rs`, `variable.rs`, `sort.rs` and `yaml_output.rs` finish the build.
//! 7. `common_metadata.rs` uses some of these parts without a build.
//! 8. `budget.rs` limits the time and memory of all steps.
//!
//! Disks, the network and Helm are accessed only through [`BuildFiles`].

mod budget;
mod build;
mod build_files;
mod builtin_plugin;
mod chart_inflation;
mod common_metadata;
mod config_map_secret_generator;
mod error;
pub mod field;
mod field_edit;
pub mod fieldspec;
mod file_path;
pub mod json6902;
mod json_struct_decode;
mod kustomization;
mod kustomization_target;
mod loader;
mod manifest;
mod name_hash;
mod name_reference_update;
pub mod openapi_schema;
mod origin;
mod repository_address;
mod resource;
pub mod resource_id;
mod resources;
pub mod selector;
mod simple_regex_matcher;
mod sort;
pub mod strategic_merge;
mod transform;
mod transformer_config;
mod variable;
mod yaml_output;
pub mod yaml_path;

pub use budget::{ALLOWED, BuildBudget, weight_of_value};
pub use build::{
    BuiltObject, KustomizeBuildOptions, KustomizeBuildOutput, KustomizeBuildWarning, ObjectOrder,
    build,
};
pub use build_files::{BuildFiles, ChartInflation, ResolvedPath, TreeBuildFiles};
pub use chart_inflation::HelmOptions;
pub use common_metadata::{MetadataField, add_common_metadata};
pub use error::Error;
pub use kustomization::{FILE_NAMES, HelmChart, HelmGlobals};
pub use loader::LoadRestriction;
pub use repository_address::RepositoryAddress;
