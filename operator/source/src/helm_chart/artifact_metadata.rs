//! The facts about a fetched chart that conditions and events report.

use reconcile::ConditionReason;
use sources::source_condition_reasons::{CHART_PACKAGE_SUCCEEDED, CHART_PULL_SUCCEEDED};

/// The facts about a chart in the store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ChartArtifactMetadata {
    /// The name in the chart's `Chart.yaml`.
    pub(super) name: String,
    /// The version of the chart, with the added metadata.
    pub(super) version: String,
    /// Whether windlass packed the chart, instead of storing the fetched archive unchanged.
    pub(super) is_packaged: bool,
    /// The values files that it was made with.
    pub(super) values_files: Vec<String>,
}

impl ChartArtifactMetadata {
    /// The reason that the condition `Ready` gives for this artifact: the chart was packaged, or it was pulled.
    pub(super) fn reason(&self) -> ConditionReason {
        if self.is_packaged { CHART_PACKAGE_SUCCEEDED } else { CHART_PULL_SUCCEEDED }
    }

    /// One sentence, in Flux's words.
    pub(super) fn summary(&self) -> String {
        let Self { name, version, is_packaged, values_files } = self;
        let action = if *is_packaged { "packaged" } else { "pulled" };
        let text = format!("{action} '{name}' chart with version '{version}'");
        match values_files.as_slice() {
            [] => text,
            files => format!("{text} and merged values files [{}]", files.join(" ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_chart_is_reported_as_flux_reports_it() {
        let pulled = ChartArtifactMetadata {
            name: "app".into(),
            version: "1.0.0".into(),
            ..ChartArtifactMetadata::default()
        };
        assert_eq!(pulled.summary(), "pulled 'app' chart with version '1.0.0'");
        assert_eq!(pulled.reason().as_str(), "ChartPullSucceeded");
        let values_files = vec!["a.yaml".to_owned(), "b.yaml".to_owned()];
        let packaged = ChartArtifactMetadata { is_packaged: true, values_files, ..pulled };
        assert_eq!(
            packaged.summary(),
            "packaged 'app' chart with version '1.0.0' and merged values files [a.yaml b.yaml]"
        );
        assert_eq!(packaged.reason().as_str(), "ChartPackageSucceeded");
    }
}
