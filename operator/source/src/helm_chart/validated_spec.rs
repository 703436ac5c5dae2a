//! The spec of a HelmChart, checked.

use parking_lot::Mutex;

use crds::source::{ChartSourceKind, HelmChart, HelmChartSpec, ReconcileStrategy};
use reconcile::{RunOutcome, condition_reason};
use sources::source_condition_reasons::{INVALID_CHART_REFERENCE, INVALID_DURATION};
use tree::RelPath;

use super::chart_source::ChartOrigin;
use super::executor::ChartFetchSpec;
use super::provenance::{ANNOTATION, ProvenanceKeyring};
use super::{generation, shape};
use crate::image_trust::ImageVerificationPolicy;
use crate::source::ValidatedSourceSpec;
use crate::source::artifact_verification_record::VERIFY;

/// How much of a revision goes into a version. Parity(flux).
const REVISION_DIGITS: usize = 12;

/// Most values files of one chart.
const MOST_VALUES_FILES: usize = 256;

/// Checks the parts of the spec that do not need the source.
pub(super) fn check(object: &HelmChart) -> Result<(), RunOutcome> {
    let spec = &object.spec;
    if let Err(error) = reconcile::parse_duration(spec.interval.as_str()) {
        return Err(RunOutcome::Stalled(INVALID_DURATION, format!("spec.interval: {error}")));
    }
    let refused = |why: String| {
        RunOutcome::Stalled(INVALID_CHART_REFERENCE, format!("invalid chart reference: {why}"))
    };
    let is_repository = spec.source_ref.kind == ChartSourceKind::HelmRepository;
    match spec.chart.as_str() {
        "" => return Err(refused("spec.chart is empty".to_owned())),
        name if is_repository && !is_name(name) => {
            return Err(refused(format!(
                "invalid chart name '{name}': a valid name must be lower case letters and numbers and MAY be \
                 separated with dashes (-), slashes (/) or periods (.)"
            )));
        }
        path if !is_repository => {
            // Differs(flux): there a path that climbs out is cut off at the root; here it is refused.
            RelPath::parse(path).map_err(|error| refused(format!("spec.chart: {error}")))?;
        }
        _ => {}
    }
    if spec.values_files.len() > MOST_VALUES_FILES {
        let text = format!("spec.valuesFiles has more than {MOST_VALUES_FILES} entries");
        return Err(refused(text));
    }
    Ok(())
}

/// Whether a chart name consists of allowed characters.
/// Parity(flux): `^([-a-z0-9]+/?\.?)+$`.
fn is_name(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let mut before = None;
    let is_allowed = |byte: u8, before: Option<u8>| match byte {
        b'/' => before.is_some_and(is_letter),
        b'.' => before.is_some_and(|it| is_letter(it) || it == b'/'),
        byte => is_letter(byte),
    };
    !name.is_empty() && name.bytes().all(|byte| is_allowed(byte, before.replace(byte)))
}

/// Combines the spec with its source.
pub(super) fn desired(
    object: &HelmChart,
    origin: ChartOrigin,
    keyring: Option<ProvenanceKeyring>,
) -> Result<ValidatedSourceSpec<ChartFetchSpec>, RunOutcome> {
    if keyring.is_some() && !matches!(origin, ChartOrigin::Index(..)) {
        let text = format!(
            "annotation {ANNOTATION} is for charts of HelmRepositories that have an index: remove it, or set \
             spec.verify of the source"
        );
        return Err(RunOutcome::Stalled(condition_reason::UNSUPPORTED_FIELD, text));
    }
    let spec = &object.spec;
    let values_files = values_files(spec);
    let generation = generation(object);
    let revision = match &origin {
        ChartOrigin::Tree(held) => Some(digits(&held.artifact.revision)),
        ChartOrigin::Index(..) | ChartOrigin::Registry(_) => None,
    };
    let is_revision = spec.reconcile_strategy == Some(ReconcileStrategy::Revision);
    let of_revision = revision.filter(|_| is_revision).map(str::to_owned);
    let of_values = (!values_files.is_empty()).then(|| generation.unwrap_or_default().to_string());
    let metadata: Vec<String> = of_revision.into_iter().chain(of_values).collect();
    let work = ChartFetchSpec {
        origin,
        metadata: (!metadata.is_empty()).then(|| metadata.join(".")),
        values_files,
        keyring,
        built: Mutex::default(),
    };
    let shape = shape(generation);
    let shape = match (&work.keyring, &work.origin) {
        (Some(keyring), _) => shape.with(VERIFY, keyring.shape()),
        (None, ChartOrigin::Registry(registry)) => {
            shape.with(VERIFY, registry.signed.as_ref().map(ImageVerificationPolicy::how))
        }
        (None, ChartOrigin::Tree(_) | ChartOrigin::Index(..)) => shape,
    };
    Ok(ValidatedSourceSpec { work, shape })
}

/// Parity(flux): `values.yaml` alone is what every chart has anyway.
fn values_files(spec: &HelmChartSpec) -> Vec<String> {
    match spec.values_files.as_slice() {
        [only] if RelPath::parse(only).is_ok_and(|path| path.as_str() == "values.yaml") => {
            Vec::new()
        }
        files => files.to_vec(),
    }
}

/// The beginning of the hash that a revision ends with.
fn digits(revision: &str) -> &str {
    let hash = revision.rsplit(':').next().unwrap_or_default();
    hash.get(..REVISION_DIGITS).unwrap_or(hash)
}

#[cfg(test)]
mod tests;
