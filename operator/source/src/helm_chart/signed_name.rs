//! Checks the name and the version under which a repository offers a signed chart. No signature covers them.
//!
//! Elsewhere: signatures themselves (`provenance.rs`, `oci_registry.rs`).

use helm::chart::ChartMetadata;
use reconcile::RunOutcome;
use sources::oci::chart::is_same_version;

use super::provenance::refused;

/// The name and version under which a repository offers a chart that has to be signed.
pub(super) struct SignedChartName {
    /// The origin of the name, as the subject of a message.
    pub(super) place: &'static str,
    pub(super) name: String,
    pub(super) version: String,
}

impl SignedChartName {
    /// Checks that the chart in an archive, of which the signature counts, is the one that was asked for.
    ///
    /// Differs(helm): there a user names the file; here the author of the index could name an old version, or another
    /// chart by the same keys. Differs(flux): a user who may push to a registry can put the tag of a new version on the
    /// signed manifest of an old one, or of another chart in a registry of many.
    pub(super) fn check(&self, metadata: &ChartMetadata) -> Result<(), RunOutcome> {
        let Self { place, name, version } = self;
        let ChartMetadata { name: own, version: its, .. } = metadata;
        if own == name && is_same_version(its, version) {
            return Ok(());
        }
        Err(refused(&format!(
            "what is signed is chart '{own}' with version '{its}', and {place} has it as '{name}' with version '{version}'"
        )))
    }
}

#[cfg(test)]
mod tests {
    use sources::source_condition_reasons::is_refused_signature;

    use super::*;

    #[test]
    fn a_signed_chart_counts_as_what_it_is_and_not_as_what_a_repository_calls_it() {
        let metadata = ChartMetadata {
            name: "app".to_owned(),
            version: "1.0.0".to_owned(),
            ..ChartMetadata::default()
        };
        let check = |place, name: &str, version: &str| {
            let name = name.to_owned();
            let version = version.to_owned();
            SignedChartName { place, name, version }.check(&metadata)
        };
        for place in ["the index of the repository", "the registry"] {
            assert_eq!(check(place, "app", "1.0.0"), Ok(()));
            assert_eq!(check(place, "app", "v1.0.0"), Ok(()));
            for (name, version) in [("app", "2.0.1"), ("other", "1.0.0"), ("app", "1.0.0+2")] {
                let outcome = check(place, name, version).unwrap_err();
                assert!(is_refused_signature(outcome.reason()), "{outcome:?}");
                let text = outcome.text();
                assert!(
                    text.contains("what is signed is chart 'app' with version '1.0.0'"),
                    "{text}"
                );
                assert!(text.contains(&format!("{place} has it as '{name}'")), "{text}");
            }
        }
    }
}
