//! Generates charts and overlays that are too large to be in the checkout. The same size always gives the same files.
//!
//! This module has the sizes, and `chart` and `overlay` have the texts.

mod chart;
mod overlay;

use std::collections::BTreeMap;

use serde::Deserialize;

/// The sort and the size of a generated case.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub(super) enum GeneratedSize {
    /// A chart, below `chart/`.
    Chart {
        /// The number of templates.
        templates: u16,
        /// The number of objects of each template.
        objects: u16,
    },
    /// An overlay in `overlay/`, and its base.
    Overlay {
        /// The number of objects.
        objects: u16,
        /// Whether the overlay only lists its objects as resources.
        #[serde(default)]
        plain: bool,
    },
}

/// The files of the case by path.
pub(super) fn files(size: GeneratedSize) -> BTreeMap<String, Vec<u8>> {
    match size {
        GeneratedSize::Chart { templates, objects } => chart::chart(templates, objects),
        GeneratedSize::Overlay { objects, plain } => overlay::overlay(objects, plain),
    }
}
