//! Overlays of Kubernetes objects: what `kustomize build` prints.
//!
//! ```
//! use kustomize::{BuildBudget, InTree, Options, build};
//!
//! let tree = tree::MemoryTree::from_files([
//!     ("kustomization.yaml", "namePrefix: dev-\nresources: [service.yaml]\n"),
//!     ("service.yaml", "{apiVersion: v1, kind: Service, metadata: {name: web}}\n"),
//! ])?;
//! let mut warnings = Vec::new();
//! let built = build(&InTree(tree), "/", &Options::default(), &BuildBudget::default(), &mut warnings)?;
//! assert_eq!(built.yaml()?, "apiVersion: v1\nkind: Service\nmetadata:\n  name: dev-web\n");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A tour
//! The reference is kustomize 5.8.1; where this differs, a comment says so.
//! 1. `build.rs` is what happens once; `target.rs` is one kustomization with all that it names, in kustomize's order.
//! 2. `kustomization.rs` reads its file (`decode.rs` decides as Go does), `loader.rs` decides what it may read.
//! 3. `manifest.rs` makes objects of files; `resource.rs` is one of them, `resources.rs` all.
//! 4. `transform/`, `generate.rs`, `inflate.rs` and `plugin.rs` change and make objects.
//! 5. `merge`, `json6902`, `fieldspec`, `path`, `pattern`, `selector` and `schema` are what these do to nodes.
//! 6. `hash.rs`, `reference.rs`, `variable.rs`, `sort.rs` and `output.rs` finish the build.
//! 7. `common_metadata.rs` uses some of these parts without a build.
//! 8. `budget.rs` counts what all of them use up.
//!
//! Reading from disks, the network and Helm are questions to [`BuildFiles`].

mod budget;
mod build;
mod common_metadata;
mod config;
mod decode;
mod edit;
mod error;
pub mod field;
pub mod fieldspec;
mod files;
mod generate;
mod hash;
pub mod id;
mod inflate;
pub mod json6902;
mod kustomization;
mod loader;
mod manifest;
pub mod merge;
mod origin;
mod output;
pub mod path;
mod path_text;
mod pattern;
mod plugin;
mod reference;
mod repository;
mod resource;
mod resources;
pub mod schema;
pub mod selector;
mod sort;
mod target;
mod transform;
mod variable;

pub use budget::{ALLOWED, BuildBudget, weight_of_value};
pub use build::{KustomizeBuildOutput, Object, Options, Order, Warning, build};
pub use common_metadata::{MetadataField, add_common_metadata};
pub use error::Error;
pub use files::{BuildFiles, InTree, Inflation, ResolvedPath};
pub use inflate::HelmOptions;
pub use kustomization::{FILE_NAMES, HelmChart, HelmGlobals};
pub use loader::Restriction;
pub use repository::RepositoryAddress;
