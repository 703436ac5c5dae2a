//! Charts: repositories of them, and how files become the archive of one.
//!
//! Here: the index of a repository ([`index`]) and the indexes that are in memory ([`cache`]), asking a repository
//! ([`repository`]), the files of a chart ([`files`]), its values files ([`values`]), where its dependencies are
//! ([`dependency`]).
//! Elsewhere: what charts mean (`helm`), Git and other sources that they come from ([`crate::git`], …), which object asks
//! for which chart (the program's `controllers` room).

pub mod cache;
pub mod credentials;
pub mod dependency;
pub mod files;
pub mod index;
pub mod repository;
pub mod values;

pub use cache::{Indexes, RepositoryIndexCache};
pub use credentials::{BucketServer, Credentials};
pub use dependency::DependencyLocation;
pub use files::{LoadedChartFiles, with_metadata};
pub use index::Index;
pub use repository::{ChartRepository, IndexFetchResult, Validators};

/// Largest index that is read, in bytes. Parity(flux).
pub const MAX_INDEX: u64 = 50 << 20;

/// Largest archive of a chart that is fetched, in bytes; Flux has no limit here.
pub const MAX_CHART: u64 = 32 << 20;
