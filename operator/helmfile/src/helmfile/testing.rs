//! Releases of plans for tests.

use std::sync::Arc;

use golang::value::{GoMap, GoType};
use helm::chart::Chart;

use super::plan::{HelmfilePlan, PlannedChart, PlannedRelease, ReleaseKey};

/// The key of a release in the cluster of the spec.
pub(super) fn key(name: &str) -> ReleaseKey {
    ReleaseKey { context: String::new(), namespace: "n".to_owned(), name: name.to_owned() }
}

/// A release of a helmfile with a number.
pub(super) fn release(name: &str, helmfile: usize, needs: &[&str]) -> PlannedRelease {
    PlannedRelease {
        key: key(name),
        needs: needs.iter().map(|need| key(need)).collect(),
        chart: Ok(PlannedChart::in_memory(Chart::default(), "")),
        chart_changes: String::new(),
        values: GoMap::new(GoType::Any, []),
        values_digest: String::new(),
        operation: helmfile::ReleaseOperationSettings::default(),
        hooks: Arc::default(),
        skips_schema: false,
        helmfile,
        file: String::new(),
    }
}

/// A plan that contains only releases.
pub(super) fn planned(releases: Vec<PlannedRelease>) -> HelmfilePlan {
    HelmfilePlan { releases, ..HelmfilePlan::default() }
}
