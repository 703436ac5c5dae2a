//! A chart of a registry: which version of it there is, and fetching that.
//!
//! Elsewhere: speaking to registries (`sources::oci`), what a HelmRepository of type `oci` says of one (`helm_repository`).

use std::io::{self, Read as _};
use std::sync::Arc;

use crds::source::HelmChart;
use reconcile::{Reason, Rest, Wake};
use sources::oci::{Error, Known, Layer, Remote, chart};
use sources::reason::{AUTHENTICATION_FAILED, CHART_PULL_ERROR, INVALID_CHART_REFERENCE};

use super::world::{Found, failed};
use crate::cluster::error::chain;
use crate::controllers::source::busy;
use crate::controllers::source::world::{Run, blocking};

/// What went wrong with a registry, in Flux's words.
fn refused(what: &str, error: &Error) -> Rest {
    let text = || format!("{what}: {}", chain(error));
    match error {
        Error::Busy(said) => busy(CHART_PULL_ERROR, said),
        Error::Unauthorized { .. } | Error::Login { .. } => Rest::Failed(
            AUTHENTICATION_FAILED,
            format!("failed to authenticate with the registry: {}", chain(error)),
            Wake::default(),
        ),
        // A version may be pushed later, and nobody tells of that: the registry is asked again.
        Error::NoMatch { .. } | Error::NotFound { .. } => {
            again(INVALID_CHART_REFERENCE, &format!("invalid chart reference: {}", text()))
        }
        Error::InvalidReference { .. } => failed(INVALID_CHART_REFERENCE, text()),
        _ => failed(CHART_PULL_ERROR, text()),
    }
}

fn again(why: Reason, text: &str) -> Rest {
    Rest::Failed(why, text.to_owned(), Wake::default())
}

/// The name of a chart that may be in a folder of the repository.
fn name_of(chart: &str) -> &str {
    chart.rsplit('/').next().unwrap_or(chart)
}

/// The version that there is.
pub(super) async fn choose(
    remote: &Remote,
    known: &Known,
    name: &str,
    range: &str,
) -> Result<(Found, String, String), Rest> {
    let refused =
        |error: Error| refused("failed to get chart version for remote reference", &error);
    let version = chart::choose(remote, known, range).await.map_err(refused)?;
    Ok((Found::Tag(version.clone()), name_of(name).to_owned(), version))
}

/// Fetches the archive of a version.
pub(super) async fn pull(
    run: &Arc<Run<HelmChart>>,
    remote: &Remote,
    version: &str,
) -> Result<Vec<u8>, Rest> {
    let refused = |error: Error| refused("failed to download chart for remote reference", &error);
    let layer = chart::fetch(remote, &run.context.remotes.oci, version).await.map_err(refused)?;
    let read = move || read(layer).map_err(|error| failed(CHART_PULL_ERROR, error.to_string()));
    blocking(CHART_PULL_ERROR, "reading the chart", read).await
}

/// The bytes of a layer. Blocks.
pub(super) fn read(mut layer: Layer) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    layer.file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use sources::oci::Selection;

    use super::*;

    #[test]
    fn a_version_that_is_not_there_is_looked_for_again_and_a_range_that_is_none_is_not() {
        let none = refused("failed", &Error::NoMatch { range: "9.x".to_owned() });
        assert!(matches!(none, Rest::Failed(INVALID_CHART_REFERENCE, ..)), "{none:?}");
        assert_eq!(none.text(), "invalid chart reference: failed: no match found for semver: 9.x");
        let range = Selection::parse("nonsense", None, true).unwrap_err();
        let range = refused("failed", &range);
        assert!(matches!(range, Rest::Stalled(INVALID_CHART_REFERENCE, _)), "{range:?}");
    }

    #[test]
    fn the_folder_of_a_chart_is_not_its_name() {
        assert_eq!(name_of("team/app"), "app");
        assert_eq!(name_of("app"), "app");
    }
}
