//! Replays what the source-watcher makes of ArtifactGenerators, with `engines/artifactgen` and with windlass's
//! controller.
//!
//! This module has the topics, the pattern of paths and the digest of sources. Submodules have single artifacts
//! (`build.rs`), whole runs (`reconcile.rs`) and recorded trees (`trees.rs`). The README of the cases says which
//! answers count as equal.

use std::collections::BTreeMap;

use artifactgen::{
    ArtifactRequest, BUILD_ALLOWANCE, GeneratorSpec, ObservedSource, OutputArtifact, SourceTrees,
    artifact_requests,
};
use golang::work_meter::{StopSignal, WorkMeter};
use serde::Deserialize;
use serde_json::{Map, Value};
use tree::{FileTree, MemoryTree};

use super::Topic;
use super::case::{Case, CaseFailure, CaseJudgement, ReferenceAnswer, nil, same};
use trees::LinkHandling;

mod build;
mod digest_labels;
mod generator_cluster;
mod reconcile;
mod reconcile_differences;
mod served_archives;
mod trees;

pub(super) const TOPICS: [Topic; 4] = [
    Topic {
        name: "artifactgen/build",
        path: "artifactgen/build.jsonl",
        judge: build::judge,
        exceptions: &[],
    },
    Topic {
        name: "artifactgen/pathpattern",
        path: "artifactgen/pathpattern.jsonl",
        judge: path_pattern,
        exceptions: &[],
    },
    Topic {
        name: "artifactgen/reconcile",
        path: "artifactgen/reconcile.jsonl",
        judge: reconcile::judge,
        exceptions: &[],
    },
    Topic {
        name: "artifactgen/sources-digest",
        path: "artifactgen/sources-digest.jsonl",
        judge: sources_digest,
        exceptions: &[],
    },
];

/// A case with an unknown form fails here. In other topics it is only not run.
fn strict(judged: CaseJudgement) -> CaseJudgement {
    judged.map_err(|fault| match fault {
        CaseFailure::NotRun(reason) => mismatch("a form that is known", &reason),
        fault => fault,
    })
}

fn mismatch(wanted: &str, got: &str) -> CaseFailure {
    CaseFailure::Mismatch { wanted: wanted.to_owned(), got: got.to_owned() }
}

fn meter() -> WorkMeter {
    WorkMeter::new(BUILD_ALLOWANCE, StopSignal::default())
}

/// The trees of the sources in the form of the engine.
fn by_alias(trees: &BTreeMap<String, MemoryTree>) -> SourceTrees<'_> {
    trees.iter().map(|(alias, tree)| (alias.as_str(), tree as &dyn FileTree)).collect()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ArtifactRequestInputs {
    #[serde(deserialize_with = "nil")]
    sources: BTreeMap<String, Map<String, Value>>,
    spec: GeneratorSpec,
    /// Whether only a change of the object can end the error.
    #[serde(default)]
    terminal: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedRequest {
    artifact: OutputArtifact,
    #[serde(default, deserialize_with = "nil")]
    labels: BTreeMap<String, String>,
}

fn path_pattern(case: Case) -> CaseJudgement {
    strict(requests(&case))
}

fn requests(case: &Case) -> CaseJudgement {
    let ArtifactRequestInputs { sources, spec, terminal } = case.inputs()?;
    let trees = trees::trees(&sources, LinkHandling::Left)?;
    match (&case.answer, artifact_requests(&spec, &by_alias(&trees), &mut meter())) {
        (ReferenceAnswer::Error(wanted), Err(error)) => {
            same(&format!("{terminal} {wanted}"), &format!("{} {error}", error.is_terminal()))
        }
        (ReferenceAnswer::Out(_), Ok(got)) => {
            let wanted: Vec<RecordedRequest> = case.list()?;
            let request =
                |RecordedRequest { artifact, labels }| ArtifactRequest { artifact, labels };
            let wanted: Vec<ArtifactRequest> = wanted.into_iter().map(request).collect();
            same(&format!("{wanted:?}"), &format!("{got:?}"))
        }
        (wanted, got) => same(&format!("{wanted:?}"), &format!("{got:?}")),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DigestInputs {
    #[serde(deserialize_with = "nil")]
    sources: BTreeMap<String, ObservedSource>,
}

fn sources_digest(case: Case) -> CaseJudgement {
    let judge = || {
        let DigestInputs { sources } = case.inputs()?;
        case.judge(Ok(artifactgen::sources_digest(&sources).into()))
    };
    strict(judge())
}
