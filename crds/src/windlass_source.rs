//! The group `source.windlass.dev/v1alpha1`: sources that Flux does not have.
//!
//! Here: one file per kind. Elsewhere: fetching (`sources`), running (`operator/source`).

mod http_archive;

pub use http_archive::{HTTPArchive, HTTPArchiveSpec, HTTPArchiveStatus};
