//! The inputs of a release's objects: its spec, its chart, and the ConfigMaps and Secrets with its values.
//!
//! Elsewhere: the chart (`release_chart.rs`), rendering (`release_rendering.rs`).

use crds::helm::HelmRelease;
use helm_controller::helm_release::values::ValuesFromObjects;
use objects::ObjectId;
use plan::UnknownValue;
use sha2::{Digest as _, Sha256};

use super::applier_discovery::{RepositoryDeclarations, Revision};
use super::release_chart::{ReleaseChart, chart_sources};
use super::render_failure::RenderFailure;
use super::source_artifact::APPLIER_GROUPS;

/// The inputs for rendering a release.
pub(crate) struct ReleaseInputs {
    /// The HelmRelease, without references in `spec.valuesFrom` whose values are unknown.
    pub(crate) release: HelmRelease,
    /// The spec with all references, because a reference to an unknown value may also change.
    spec: String,
    /// The chart, or the reason why it is unknown.
    pub(crate) chart: Result<ReleaseChart, RenderFailure>,
    /// The sources of the chart.
    pub(crate) sources: Vec<ObjectId>,
    /// The specs of the sources of an unknown chart. Otherwise empty.
    source_specs: String,
    /// The objects in `spec.valuesFrom`.
    pub(crate) references: ValuesFromObjects,
    /// The values that are not declared.
    pub(crate) unknown_values: Vec<UnknownValue>,
    /// The kinds that CRDs of the repository add. They matter only for a chart in the repository.
    api_versions: Vec<String>,
}

impl ReleaseInputs {
    /// Collects the inputs of a HelmRelease, as far as the revision declares them.
    pub(crate) fn new(
        mut release: HelmRelease,
        declarations: &RepositoryDeclarations,
        revision: &Revision<'_>,
    ) -> Self {
        let namespace = release.metadata.namespace.clone().unwrap_or_default();
        let chart = ReleaseChart::of(&release, declarations, revision);
        let spec = serde_json::to_value(&release.spec).unwrap_or_default();
        let sources = chart_sources(&spec, &namespace, &declarations.sources);
        let source_specs = match &chart {
            Ok(_) => String::new(),
            Err(_) => declarations.source_specs(&sources).to_string(),
        };
        let mut references = ValuesFromObjects::new();
        let mut unknown_values = Vec::new();
        release.spec.values_from.retain(|named| {
            let kind = named.kind.as_str();
            let id = ObjectId::new(&namespace, &named.name, "", kind);
            let is_declared = declarations.references.declares(kind, &namespace, &named.name);
            let is_absent = revision.facts.reference(&id).is_some_and(|fact| !fact.exists);
            if is_absent && !is_declared {
                // The object gives no values. Unless it is optional, it is recorded as missing.
                return false;
            }
            let data = declarations.references.data(kind, &namespace, &named.name);
            match data {
                Some(data) => {
                    let place = (named.kind, named.name.clone());
                    references.insert(place, Ok(Some(data.clone())));
                }
                None => unknown_values.push(UnknownValue {
                    what: id.subject(),
                    reason: revision.facts.unknown_reason(&id, "spec.valuesFrom"),
                }),
            }
            data.is_some()
        });
        let is_here = chart.as_ref().is_ok_and(ReleaseChart::is_in_repository);
        let api_versions = declarations.kinds.api_versions.iter().filter(|_| is_here).cloned();
        let api_versions = api_versions.collect();
        Self {
            release,
            spec: spec.to_string(),
            chart,
            sources,
            source_specs,
            references,
            unknown_values,
            api_versions,
        }
    }

    /// A digest of all inputs. Equal digests mean equal objects.
    pub(crate) fn digest(&self) -> String {
        let mut hash = Sha256::new();
        let mut add = |part: &[u8]| {
            hash.update(part.len().to_le_bytes());
            hash.update(part);
        };
        let metadata = &self.release.metadata;
        add(self.spec.as_bytes());
        add(metadata.name.as_deref().unwrap_or_default().as_bytes());
        add(metadata.namespace.as_deref().unwrap_or_default().as_bytes());
        match &self.chart {
            Ok(chart) => add(chart.digest().as_bytes()),
            Err(failure) => add(failure.text().as_bytes()),
        }
        add(self.source_specs.as_bytes());
        for ((kind, name), data) in &self.references {
            add(kind.as_str().as_bytes());
            add(name.as_bytes());
            let data = data.as_ref().ok().and_then(Option::as_ref);
            for (key, value) in data.into_iter().flatten() {
                add(key.as_bytes());
                add(value);
            }
        }
        self.unknown_values.iter().for_each(|unknown| add(unknown.what.as_bytes()));
        self.api_versions.iter().for_each(|version| add(version.as_bytes()));
        hex::encode(hash.finalize())
    }

    /// Whether the rendered objects may contain objects of Flux.
    pub(crate) fn may_declare_appliers(&self) -> bool {
        let has_mark = |text: &str| text.contains(APPLIER_GROUPS);
        let values = self.release.spec.values.as_ref().map(ToString::to_string);
        let referenced = self.references.values().filter_map(|it| it.as_ref().ok()?.as_ref());
        let mut referenced = referenced.flat_map(|data| data.values());
        self.chart.as_ref().is_ok_and(ReleaseChart::may_declare_appliers)
            || values.is_some_and(|values| has_mark(&values))
            || referenced.any(|value| has_mark(&String::from_utf8_lossy(value)))
    }

    /// The name and version of the chart, for people.
    pub(crate) fn chart_text(&self) -> String {
        self.chart.as_ref().map(ReleaseChart::text).unwrap_or_default()
    }
}
