//! A cache of parsed charts. A chart is read once, even if many releases use it.
//!
//! Elsewhere: which source has the chart (each owner), rendering (`prepare_revision`).

use std::collections::VecDeque;
use std::sync::Arc;

use crds::Artifact;
use golang::semver::SemverVersion;
use helm::chart::{Chart, load};
use helm::render::ChartTemplates;
use parking_lot::Mutex;
use reconcile::{NextRunTrigger, ObjectKey, RunOutcome, Time, condition_reason};

use windlass_runtime::artifact_files;
use windlass_runtime::run_context::RunContext;

/// Longest archive of a chart.
const MAX_CHART_ARCHIVE_BYTES: u64 = 64 << 20;

/// The most cached charts, and the most bytes of all of them.
const MAX_CACHED_CHARTS: usize = 16;
const KEPT_BYTES: usize = 128 << 20;

/// A chart that was read.
pub struct LoadedChart {
    /// The chart, with the version under which it is released.
    pub chart: Chart,
    /// The digest of the registry's artifact, where the version contains it.
    pub(crate) oci_digest: String,
    /// The templates of the chart, once a rendering has parsed them.
    pub(super) templates: Mutex<Option<ChartTemplates>>,
}

impl LoadedChart {
    /// A chart that comes from no artifact of its own.
    pub fn of(chart: Chart) -> Self {
        Self { chart, oci_digest: String::new(), templates: Mutex::default() }
    }
}

/// Charts that were read, those that were used last.
#[derive(Default)]
pub(crate) struct ChartCache(Mutex<VecDeque<CachedChart>>);

struct CachedChart {
    key: String,
    chart: Arc<LoadedChart>,
    bytes: usize,
}

/// The bytes of all cached charts.
pub fn cached_bytes(context: &RunContext) -> u64 {
    let bytes: usize = context.shared::<ChartCache>().0.lock().iter().map(|it| it.bytes).sum();
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

impl ChartCache {
    fn find(&self, key: &str) -> Option<Arc<LoadedChart>> {
        let mut kept = self.0.lock();
        let at = kept.iter().position(|kept| kept.key == key)?;
        let found = kept.remove(at)?;
        let chart = found.chart.clone();
        kept.push_front(found);
        Some(chart)
    }

    /// Caches a chart of this size, and drops other charts until there is room. A chart that would take all the room is not
    /// cached.
    fn keep(&self, key: String, chart: &Arc<LoadedChart>, bytes: usize) {
        let mut kept = self.0.lock();
        kept.retain(|kept| kept.key != key);
        if bytes > KEPT_BYTES {
            return;
        }
        kept.push_front(CachedChart { key, chart: chart.clone(), bytes });
        let mut room = KEPT_BYTES;
        let fits = |kept: &&CachedChart| match room.checked_sub(kept.bytes) {
            Some(left) => {
                room = left;
                true
            }
            None => false,
        };
        let fitting = kept.iter().take(MAX_CACHED_CHARTS).take_while(fits).count();
        kept.truncate(fitting);
    }
}

/// The source of a chart.
pub(crate) struct ChartSource {
    pub(crate) node: ObjectKey,
    pub(crate) artifact: Artifact,
    pub(crate) is_elsewhere: bool,
}

impl ChartSource {
    /// Identifies the content of the chart, by its artifact and its revision. The digest in the revision may become part of
    /// the version.
    pub(crate) fn key(&self) -> String {
        format!("{} {} {}", self.artifact.digest, self.node.kind, self.artifact.revision)
    }
}

/// The version of the chart does not fit its artifact.
const CHART_MUTATE_ERROR: reconcile::ConditionReason =
    reconcile::ConditionReason::new("ChartMutateError");

/// Reads the chart of an artifact.
pub(crate) async fn load(
    context: &RunContext,
    source: &ChartSource,
) -> Result<Arc<LoadedChart>, RunOutcome> {
    let key = source.key();
    if let Some(known) = context.shared::<ChartCache>().find(&key) {
        return Ok(known);
    }
    let what = format!("could not load chart of {}", source.node);
    let failed = |text: String| {
        RunOutcome::Failed(
            condition_reason::ARTIFACT_FAILED,
            format!("{what}: {text}"),
            NextRunTrigger::default(),
        )
    };
    let bytes = artifact_files::bytes(
        context,
        &source.artifact,
        source.is_elsewhere,
        MAX_CHART_ARCHIVE_BYTES,
    )
    .await;
    let again = jiff::Timestamp::now().saturating_add(context.settings.requeue_dependency);
    let again = again.unwrap_or(Time::MAX);
    let bytes = bytes.map_err(|error| error.ends(&source.node, &what, again))?;
    let kind = source.node.kind.clone();
    let revision = source.artifact.revision.clone();
    let tracks = context.settings.tracks_chart_digests();
    let read = tokio::task::spawn_blocking(move || of_archive(&bytes, &kind, &revision, tracks));
    let read = read.await.map_err(|_| failed("reading it was interrupted".to_owned()))?;
    let (chart, oci_digest) = read.map_err(|why| match why {
        UnusableChartError::Archive(error) => failed(error.to_string()),
        UnusableChartError::Version(text) => {
            RunOutcome::Failed(CHART_MUTATE_ERROR, text, NextRunTrigger::default())
        }
    })?;
    let bytes = chart.size();
    let loaded = Arc::new(LoadedChart { chart, oci_digest, templates: Mutex::default() });
    context.shared::<ChartCache>().keep(key, &loaded, bytes);
    Ok(loaded)
}

/// Finds a cached chart that comes from no source object, by the digest of its files. `None` if the cache does not contain it.
pub fn known(context: &RunContext, digest: &str) -> Option<Arc<LoadedChart>> {
    context.shared::<ChartCache>().find(digest)
}

/// Caches a chart that comes from no source object, by the digest of its files.
pub fn keep(context: &RunContext, digest: &str, chart: &Arc<LoadedChart>) {
    let bytes = chart.chart.size();
    context.shared::<ChartCache>().keep(digest.to_owned(), chart, bytes);
}

/// The reason why an artifact has no usable chart.
#[derive(Debug, thiserror::Error)]
pub enum UnusableChartError {
    /// The archive has none.
    #[error(transparent)]
    Archive(helm::chart::ChartLoadError),
    /// The version of the chart does not fit the artifact.
    #[error("{0}")]
    Version(String),
}

/// Reads the chart in the archive of a source. It returns the chart with the version under which it is released, and the
/// digest of the registry's artifact. The digest is empty if the revision has none.
///
/// # Errors
/// The archive holds no chart, or the version of the chart does not fit the artifact.
pub fn of_archive(
    bytes: &[u8],
    kind: &str,
    revision: &str,
    tracks_digests: bool,
) -> Result<(Chart, String), UnusableChartError> {
    let mut chart = load::archive(bytes).map_err(UnusableChartError::Archive)?.chart;
    let own_version = chart.metadata.version.clone();
    let oci_digest = match has_digest(kind, revision) {
        true => marked(&mut chart, kind, revision).map_err(UnusableChartError::Version)?,
        false => String::new(),
    };
    if !tracks_digests {
        chart.metadata.version = own_version;
    }
    Ok((chart, oci_digest))
}

/// Whether the revision of a source of this kind names the digest of the chart.
fn has_digest(kind: &str, revision: &str) -> bool {
    match kind {
        "HelmChart" => false,
        // The provider of an ExternalArtifact may name a version only.
        "ExternalArtifact" => revision.contains(':'),
        _ => true,
    }
}

/// Puts the beginning of a digest into the chart's version, so that a tag that was moved is another version.
///
/// Parity(flux): helm-controller 1.6 `mutateChartWithSourceRevision`.
fn marked(chart: &mut Chart, kind: &str, revision: &str) -> Result<String, String> {
    let version = &chart.metadata.version;
    let own = SemverVersion::parse(version)
        .map_err(|error| format!("chart version {version} cannot be parsed: {error}"))?;
    let digest = match revision.split_once('@') {
        None => revision,
        Some((tag, digest)) => {
            let tagged = SemverVersion::parse(&tag.replace('_', "+")).ok();
            let is_same = tagged.is_some_and(|tagged| plain(&tagged) == plain(&own));
            if !is_same && kind == "OCIRepository" {
                return Err(format!(
                    "artifact revision {tag} does not match chart version {version}"
                ));
            }
            digest
        }
    };
    let digits = digest.split_once(':').map_or(digest, |(_, digits)| digits);
    let short = digits.get(..12).ok_or_else(|| format!("no digest in revision {revision}"))?;
    chart.metadata.version = format!("{}+{short}", plain(&own));
    Ok(digest.to_owned())
}

/// A version without the build metadata behind `+`.
fn plain(version: &SemverVersion) -> String {
    let numbers = format!("{}.{}.{}", version.major(), version.minor(), version.patch());
    match version.prerelease() {
        "" => numbers,
        prerelease => format!("{numbers}-{prerelease}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked_as(version: &str, kind: &str, revision: &str) -> Result<(String, String), String> {
        let mut chart = Chart::default();
        chart.metadata.version = version.to_owned();
        let digest = marked(&mut chart, kind, revision)?;
        Ok((chart.metadata.version, digest))
    }

    #[test]
    fn charts_are_kept_as_long_as_there_is_room_for_their_bytes() {
        let charts = ChartCache::default();
        let keep = |key: &str, bytes| {
            let chart = Chart::default();
            let loaded =
                LoadedChart { chart, oci_digest: String::new(), templates: Mutex::default() };
            charts.keep(key.to_owned(), &Arc::new(loaded), bytes);
        };
        keep("a", KEPT_BYTES / 2);
        keep("b", KEPT_BYTES / 2);
        // Who was used last stays.
        assert!(charts.find("a").is_some());
        keep("c", KEPT_BYTES / 4);
        assert!(charts.find("c").is_some() && charts.find("a").is_some());
        assert!(charts.find("b").is_none(), "three quarters and a half are more than there is");
        keep("d", KEPT_BYTES + 1);
        assert!(charts.find("d").is_none() && charts.find("a").is_some());
    }

    #[test]
    fn only_revisions_that_name_a_digest_are_announced() {
        for (kind, revision, wanted) in [
            ("HelmChart", "1.2.3", false),
            ("OCIRepository", "sha256:01", true),
            ("OCIRepository", "1.2.3", true),
            ("ExternalArtifact", "v1.2.3", false),
            ("ExternalArtifact", "latest@sha256:01", true),
        ] {
            assert_eq!(has_digest(kind, revision), wanted, "{kind} {revision}");
        }
    }

    #[test]
    fn a_version_tells_of_the_digest_of_its_artifact() {
        let digest = "sha256:0123456789abcdef0123";
        let expected = Ok(("1.2.3+0123456789ab".to_owned(), digest.to_owned()));
        let tagged = format!("1.2.3@{digest}");
        assert_eq!(marked_as("1.2.3", "OCIRepository", &tagged), expected);
        assert_eq!(marked_as("v1.2.3+old", "OCIRepository", digest), expected);
        let other = format!("latest@{digest}");
        assert!(marked_as("1.2.3", "OCIRepository", &other).unwrap_err().contains("latest"));
        assert_eq!(marked_as("1.2.3", "ExternalArtifact", &other), expected);
    }
}
