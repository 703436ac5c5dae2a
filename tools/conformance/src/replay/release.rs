//! Replays cases about stored releases and names. `release/release_operations.rs` has the operations.

mod release_operations;

use std::collections::BTreeMap;

use ::helm::releasename;
use ::release::record::ReleaseRecord;
use ::release::release_snapshot::{ReleaseSnapshot, observation};
use ::release::storage::{self, RecordWriteMode};
use serde::Deserialize;
use serde_json::Value as Json;

use super::Topic;
use super::case::{Case, CaseFailure, CaseJudgement, same, same_value};

pub(super) const TOPICS: [Topic; 3] = [
    Topic {
        name: "recorded/lifecycle",
        path: "recorded/lifecycle.jsonl",
        judge: release_operations::judge,
        exceptions: &[],
    },
    Topic {
        name: "recorded/releasename",
        path: "recorded/releasename.jsonl",
        judge: name,
        exceptions: &[],
    },
    Topic {
        name: "recorded/releaserecord",
        path: "recorded/releaserecord.jsonl",
        judge: stored,
        exceptions: &[],
    },
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NameShorteningCase {
    #[serde(rename = "in")]
    name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReleaseSnapshotInputs {
    release: Json,
    observation: String,
}

fn name(case: Case) -> CaseJudgement {
    match case.op.as_str() {
        "shorten" => {
            let NameShorteningCase { name } = case.inputs()?;
            case.judge(Ok(releasename::shorten(&name).into()))
        }
        "snapshot" => {
            let ReleaseSnapshotInputs { release, observation: wanted } = case.inputs()?;
            let record = ReleaseRecord::from_json(release.to_string().as_bytes());
            let record = record.map_err(|error| mismatch("a release", &error))?;
            let text = observation(&record, "").map_err(|error| mismatch(&wanted, &error))?;
            same(&wanted, &text)?;
            let snapshot = ReleaseSnapshot::of(&record, None, "");
            let snapshot = snapshot.map_err(|error| mismatch("a snapshot", &error))?;
            case.judge(serde_json::to_value(snapshot).map_err(|error| error.to_string()))
        }
        _ => Err(case.unsupported(&[])),
    }
}

fn mismatch(wanted: &str, got: &dyn ToString) -> CaseFailure {
    CaseFailure::Mismatch { wanted: wanted.to_owned(), got: got.to_string() }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReleaseStorageInputs {
    secret: String,
    #[serde(rename = "type")]
    kind: String,
    labels: BTreeMap<String, String>,
    release: String,
}

/// Decodes the Secret of a release, and encodes it again.
fn stored(case: Case) -> CaseJudgement {
    let ReleaseStorageInputs { secret, kind, labels, release } = case.inputs()?;
    let none = BTreeMap::new();
    let unpack = |parts: &[&[u8]]| {
        let record = storage::unpack(parts, &labels, &none);
        record.map_err(|error| mismatch("a release", &error))
    };
    let record = unpack(&[release.as_bytes()])?;
    same(&secret, &storage::secret_name(&record.name, record.version))?;
    same(&kind, storage::SECRET_TYPE)?;
    let seconds = labels.get("modifiedAt").and_then(|text| text.parse().ok()).unwrap_or_default();
    let now = jiff::Timestamp::from_second(seconds).unwrap_or_default();
    let again = storage::labels(&record, RecordWriteMode::Again, now);
    same_value(&serde_json::json!(labels), &serde_json::json!(again))?;
    let packed = storage::pack(&record).map_err(|error| mismatch("a Secret", &error))?;
    let parts: Vec<&[u8]> = packed.parts.iter().map(Vec::as_slice).collect();
    case.judge(unpack(&parts)?.to_json().map(Json::from).map_err(|error| error.to_string()))
}
