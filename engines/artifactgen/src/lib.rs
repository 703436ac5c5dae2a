//! ArtifactGenerator: artifacts that are made of the files of others.
//!
//! Here: the patterns and paths of copies. Builds follow.
//!
//! Source of the semantics: source-watcher 2.2.3, which Flux 2.9.4 ships.
#![allow(dead_code, reason = "builds use it")]

mod copy_path;
mod doublestar;
mod exclude;
mod glob;
