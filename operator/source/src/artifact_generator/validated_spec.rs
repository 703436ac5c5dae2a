//! The spec of an ArtifactGenerator, checked and converted for its engine.

use artifactgen::{
    CommonMetadata, CopyOperation, CopyStrategy, GeneratorSpec, OutputArtifact, SourceReference,
    validate,
};
use crds::source_extensions::{self, ArtifactGenerator, ArtifactGeneratorSpec};
use reconcile::RunOutcome;

/// The spec as the engine takes it.
pub(super) fn spec(object: &ArtifactGenerator) -> GeneratorSpec {
    // No `..`: a new field must be thought about here.
    let ArtifactGeneratorSpec { common_metadata, sources, path_pattern, artifacts } = &object.spec;
    GeneratorSpec {
        sources: sources.iter().map(source).collect(),
        artifacts: artifacts.iter().map(artifact).collect(),
        path_pattern: path_pattern.clone().unwrap_or_default(),
        common_metadata: common_metadata.as_ref().map(|common| CommonMetadata {
            labels: common.labels.clone(),
            annotations: common.annotations.clone(),
        }),
    }
}

fn source(reference: &source_extensions::ArtifactGeneratorSourceReference) -> SourceReference {
    let source_extensions::ArtifactGeneratorSourceReference { alias, kind, name, namespace } =
        reference;
    SourceReference {
        alias: alias.clone(),
        kind: kind.as_str().to_owned(),
        name: name.clone(),
        namespace: namespace.clone().unwrap_or_default(),
    }
}

fn artifact(artifact: &source_extensions::OutputArtifact) -> OutputArtifact {
    let source_extensions::OutputArtifact { name, revision, origin_revision, copy } = artifact;
    OutputArtifact {
        name: name.clone(),
        revision: revision.clone().unwrap_or_default(),
        origin_revision: origin_revision.clone().unwrap_or_default(),
        copy: copy.iter().map(copy_operation).collect(),
    }
}

fn copy_operation(operation: &source_extensions::CopyOperation) -> CopyOperation {
    let source_extensions::CopyOperation { from, to, exclude, strategy } = operation;
    let strategy = match strategy {
        None | Some(source_extensions::CopyStrategy::Overwrite) => CopyStrategy::Overwrite,
        Some(source_extensions::CopyStrategy::Merge) => CopyStrategy::Merge,
        Some(source_extensions::CopyStrategy::Extract) => CopyStrategy::Extract,
    };
    CopyOperation { from: from.clone(), to: to.clone(), exclude: exclude.clone(), strategy }
}

/// Refuses a spec that can never be built, or names sources of other namespaces where `is_confined` forbids that.
pub(super) fn check(
    spec: &GeneratorSpec,
    namespace: &str,
    is_confined: bool,
) -> Result<(), RunOutcome> {
    validate(spec, namespace, is_confined)
        .map_err(|error| RunOutcome::Stalled(error.reason(), error.to_string()))
}

#[cfg(test)]
mod tests {
    use fake_cluster::spec_field_check;
    use reconcile::condition_reason::ACCESS_DENIED;
    use serde_json::{Value, json};

    use super::*;

    fn object(spec: &Value) -> ArtifactGenerator {
        serde_json::from_value(json!({
            "apiVersion": "source.extensions.fluxcd.io/v1beta1", "kind": "ArtifactGenerator",
            "metadata": {"name": "gen", "namespace": "apps"}, "spec": spec,
        }))
        .unwrap()
    }

    #[test]
    fn every_field_of_the_schema_is_used() {
        let used = ["artifacts", "commonMetadata", "pathPattern", "sources"];
        spec_field_check::knows_every_field("ArtifactGenerator", used);
    }

    #[test]
    fn the_engine_gets_the_spec_as_it_is_written() {
        let written = json!({
            "commonMetadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
            "pathPattern": "@src/apps/{app}",
            "sources": [
                {"alias": "src", "kind": "GitRepository", "name": "repo"},
                {"alias": "chart", "kind": "HelmChart", "name": "web", "namespace": "charts"},
            ],
            "artifacts": [{
                "name": "{app}", "revision": "@src", "originRevision": "@chart",
                "copy": [
                    {"from": "@src/apps/{app}/**", "to": "@artifact/"},
                    {"from": "@chart/**", "to": "@artifact/x", "exclude": ["*.md"], "strategy": "Merge"},
                    {"from": "@src/a.tgz", "to": "@artifact/y", "strategy": "Extract"},
                ],
            }],
        });
        let wanted: GeneratorSpec = serde_json::from_value(written.clone()).unwrap();
        assert_eq!(spec(&object(&written)), wanted);
    }

    #[test]
    fn a_spec_that_can_never_be_built_is_stalled_with_its_reason() {
        let with = |sources: Value, artifact: &str| {
            let copy = json!([{"from": "@src/**", "to": "@artifact/"}]);
            let artifacts = json!([{"name": artifact, "copy": copy}]);
            spec(&object(&json!({"sources": sources, "artifacts": artifacts})))
        };
        let own = json!({"alias": "src", "kind": "GitRepository", "name": "repo"});
        let other = json!({"alias": "src", "kind": "Bucket", "name": "b", "namespace": "other"});
        assert_eq!(check(&with(json!([own]), "one"), "apps", true), Ok(()));
        assert_eq!(check(&with(json!([other]), "one"), "apps", false), Ok(()));
        let refused = |sources: Value, artifact: &str| {
            let outcome = check(&with(sources, artifact), "apps", true).unwrap_err();
            assert!(matches!(outcome, RunOutcome::Stalled(..)), "{outcome:?}");
            outcome
        };
        let denied = refused(json!([other]), "one");
        let text = "cross-namespace reference to source Bucket/other/b is not allowed";
        assert_eq!(denied, RunOutcome::Stalled(ACCESS_DENIED, text.to_owned()));
        let twice = refused(json!([own, own]), "one");
        assert_eq!(twice.reason().as_str(), "ValidationFailed");
        assert_eq!(twice.text(), "duplicate source alias 'src' found");
        assert!(refused(json!([own]), "One").text().starts_with("artifact name \"One\""));
    }
}
