//! Helm charts: requests to chart repositories, and packing the files of a chart.
//!
//! Here: the index of a repository ([`index`]) and indexes in memory ([`index_cache`]), asking a repository ([`repository`]),
//! downloads that are kept after a command ([`download_cache`]), the files of a chart ([`chart_files`]), its values files
//! ([`values_merge`]), where its dependencies are ([`dependency`]).
//! Elsewhere: the meaning of charts (`helm`), Git and other sources of charts ([`git`], …), which object asks for which chart
//! (the program's `controllers` room).

pub mod chart_files;
pub mod credentials;
pub mod dependency;
pub mod download_cache;
pub mod index;
pub mod index_cache;
pub mod repository;
pub mod values_merge;

pub use chart_files::{LoadedChartFiles, with_metadata};
pub use credentials::{ChartBucketServer, ChartRepositoryCredentials};
pub use dependency::ChartDependencyLocation;
pub use download_cache::{CachedDownload, DownloadCache, DownloadCacheKey};
pub use index::ChartIndex;
pub use index_cache::{ChartIndexCache, ChartIndexEtagCache};
pub use repository::{
    ChartFetchResult, ChartIndexFetchResult, ChartRepository, HttpEtagAndLastModified,
};

/// Largest index that is read, in bytes. Parity(flux).
pub const MAX_INDEX: u64 = 50 << 20;

/// The largest archive of a chart that is fetched, in bytes. Flux has no limit here.
pub const MAX_CHART: u64 = 32 << 20;
