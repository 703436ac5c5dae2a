//! Charts and overlays too large to be files, the same whenever they are made.
//!
//! Here: how large. Below: the strings (`chart`, `overlay`).

mod chart;
mod overlay;

use std::collections::BTreeMap;

use serde::Deserialize;

/// What is made, and how large.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub(super) enum GeneratedSize {
    /// A chart, below `chart/`.
    Chart {
        /// How many templates.
        templates: u16,
        /// How many objects each of them makes.
        objects: u16,
    },
    /// An overlay, in `overlay/`, and what it is over.
    Overlay {
        /// How many objects.
        objects: u16,
        /// They are listed and printed, nothing else.
        #[serde(default)]
        plain: bool,
    },
}

/// The files, by path.
pub(super) fn files(size: GeneratedSize) -> BTreeMap<String, Vec<u8>> {
    match size {
        GeneratedSize::Chart { templates, objects } => chart::chart(templates, objects),
        GeneratedSize::Overlay { objects, plain } => overlay::overlay(objects, plain),
    }
}
