//! Post-rendering as Flux does it: the spec's kustomize post-renderers, its common metadata, and the labels with the owner of
//! the objects.
//!
//! Source: helm-controller 1.6 `internal/postrender`. Elsewhere: which documents are post-rendered (`helm::manifests_and_helmignore`), overlays
//! (`kustomize`).

use std::collections::BTreeMap;

use crds::CommonMetadata;
use crds::helm::{Kustomize, PostRenderer};
use golang::work_meter::{StopSignal, WorkMeter};
use helm::template::{PostRenderStep, PostRendererStrategy};
use kustomize::{
    BuildBudget, KustomizeBuildOptions, LoadRestriction, MetadataField, TreeBuildFiles,
};
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tree::MemoryTree;

use windlass_runtime::time_limit::{TIME_LIMIT, TimeLimit};

/// The file with the manifests that Helm rendered. Errors name it, as in Flux.
const INPUT: &str = "helm-output.yaml";

/// The post-renderers of a release. They change its documents before these become manifests and hooks.
#[derive(Debug, Clone)]
pub struct PostRenderers {
    strategy: PostRendererStrategy,
    /// Kustomizations of the spec, each with its place there.
    user: Vec<(usize, Vec<u8>)>,
    common: CommonMetadata,
    origin: BTreeMap<String, String>,
}

impl PostRenderers {
    /// The post-renderers of a spec. `origin` are the labels with the owner of the objects, and `strategy` is the one of
    /// [`super::action_options::ActionOptions`].
    pub(crate) fn of(
        renderers: &[PostRenderer],
        common: Option<&CommonMetadata>,
        origin: BTreeMap<String, String>,
        strategy: PostRendererStrategy,
    ) -> Self {
        let renderers = renderers.iter().enumerate();
        let user = renderers.filter_map(|(at, PostRenderer { kustomize })| {
            kustomize.as_ref().map(|kustomize| (at, kustomization(kustomize)))
        });
        Self { strategy, user: user.collect(), common: common.cloned().unwrap_or_default(), origin }
    }

    /// Calls `work` with these post-renderers in the form of a [`helm::template::Request`]. `work` gets `None` if they change
    /// nothing. Then Helm's rendering is stored unchanged.
    pub fn with<T>(&self, work: impl FnOnce(Option<PostRenderStep<'_>>) -> T) -> T {
        if self.user.is_empty()
            && self.common == CommonMetadata::default()
            && self.origin.is_empty()
        {
            return work(None);
        }
        let run = |stream: &[u8]| self.run(stream);
        work(Some(PostRenderStep { strategy: self.strategy, run: &run, plugin: None }))
    }

    /// One stream of documents to another.
    ///
    /// Parity(flux): the labels of origin come last, so that common metadata cannot say that an object is another's.
    ///
    /// # Errors
    /// Names the renderer by its place in the spec, and says what kustomize says.
    fn run(&self, stream: &[u8]) -> Result<Vec<u8>, String> {
        let stop = StopSignal::default();
        let _limit = TimeLimit::start(TIME_LIMIT, &stop);
        let budget = BuildBudget::new(WorkMeter::new(kustomize::ALLOWED, stop));
        let mut text = None;
        for (at, kustomization) in &self.user {
            let input = text.as_deref().unwrap_or(stream);
            let done = build(input, kustomization, &budget);
            text = Some(done.map_err(|error| format!("spec.postRenderers[{at}]: {error}"))?);
        }
        let input = text.as_deref().unwrap_or(stream);
        let common_metadata = [
            (MetadataField::Labels, &self.common.labels),
            (MetadataField::Annotations, &self.common.annotations),
            (MetadataField::Labels, &self.origin),
        ];
        let with_metadata = kustomize::add_common_metadata(input, common_metadata, &budget);
        with_metadata
            .map(String::into_bytes)
            .map_err(|error| format!("labels and annotations: {error}"))
    }
}

/// Builds a kustomization whose only resource is a stream.
fn build(stream: &[u8], kustomization: &[u8], budget: &BuildBudget) -> Result<Vec<u8>, String> {
    let files = [("kustomization.yaml", kustomization), (INPUT, stream)];
    let files = MemoryTree::from_files(files).map_err(|error| error.to_string())?;
    let options = KustomizeBuildOptions {
        restriction: LoadRestriction::None,
        ..KustomizeBuildOptions::default()
    };
    let built = kustomize::build(&TreeBuildFiles(files), "/", &options, budget, &mut Vec::new());
    let text = built.and_then(|built| built.yaml()).map_err(|error| error.to_string())?;
    Ok(text.into_bytes())
}

/// A kustomization file that changes the manifests that Helm rendered.
fn kustomization(wanted: &Kustomize) -> Vec<u8> {
    let mut fields = json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [INPUT],
    });
    // As they stand in the spec, since Flux named its fields after kustomize's.
    let lists = [("patches", json(&wanted.patches)), ("images", json(&wanted.images))];
    for (key, list) in lists {
        if list.as_array().is_some_and(|list| !list.is_empty()) {
            fields[key] = list;
        }
    }
    json_of_go(&fields).into_bytes()
}

fn json<T: Serialize>(value: &T) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

/// `status.observedPostRenderersDigest`; empty where there are none.
///
/// Differs(flux): an empty list counts as none; there it has a digest of its own.
pub(crate) fn digest(renderers: &[PostRenderer]) -> String {
    if renderers.is_empty() { String::new() } else { digest_of_json(&renderers) }
}

/// The value of `status.observedCommonMetadataDigest`. Empty if the spec has no common metadata.
pub(crate) fn metadata_digest(metadata: Option<&CommonMetadata>) -> String {
    metadata.map(digest_of_json).unwrap_or_default()
}

/// The digest of the output of Go's `json.Encoder`, which ends with a line break.
fn digest_of_json<T: Serialize>(value: &T) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(json_of_go(value) + "\n")))
}

/// The output of Go's `encoding/json` for messages, and for lists and maps of messages. Fields are in the order of their
/// declaration.
fn json_of_go<T: Serialize>(value: &T) -> String {
    // Strings always have a JSON.
    let mut text = serde_json::to_string(value).unwrap_or_default();
    // Go escapes these characters everywhere, and they only occur in strings.
    for (plain, escaped) in [
        ("<", "\\u003c"),
        (">", "\\u003e"),
        ("&", "\\u0026"),
        ("\u{2028}", "\\u2028"),
        ("\u{2029}", "\\u2029"),
    ] {
        text = text.replace(plain, escaped);
    }
    text
}

#[cfg(test)]
mod tests;
