//! Replays what Flux's own packages decrypt and verify.
//!
//! This module has the topics, and the files of a case. The judges are in `decryption_and_verification/sops.rs`,
//! `decryption_and_verification/git.rs`, `decryption_and_verification/helm.rs` and `decryption_and_verification/oci.rs`. The
//! README of the cases describes their format.

mod git;
mod helm;
mod oci;
mod sops;

use std::collections::BTreeMap;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::Topic;
use super::case::{Case, CaseFailure, CaseJudgement};

pub(super) const TOPICS: [Topic; 8] = [
    Topic {
        name: "trust/sops files and keys",
        path: "trust/cases.jsonl",
        judge: |case| judge("sops files and keys", case),
        exceptions: &sops::EXCEPTIONS,
    },
    Topic {
        name: "trust/sops resources",
        path: "trust/cases.jsonl",
        judge: |case| judge("sops resources", case),
        exceptions: &[],
    },
    Topic {
        name: "trust/sops sources and builds",
        path: "trust/cases.jsonl",
        judge: |case| judge("sops sources and builds", case),
        exceptions: &sops::EXCEPTIONS_OF_BUILDS,
    },
    Topic {
        name: "trust/git",
        path: "trust/cases.jsonl",
        judge: |case| judge("git", case),
        exceptions: &git::EXCEPTIONS,
    },
    Topic {
        name: "trust/helm",
        path: "trust/cases.jsonl",
        judge: |case| judge("helm", case),
        exceptions: &[],
    },
    Topic {
        name: "trust/cosign",
        path: "trust/cases.jsonl",
        judge: |case| judge("cosign", case),
        exceptions: &oci::EXCEPTIONS,
    },
    Topic {
        name: "trust/keyless",
        path: "trust/cases.jsonl",
        judge: |case| judge("keyless", case),
        exceptions: &[],
    },
    Topic {
        name: "trust/notation",
        path: "trust/cases.jsonl",
        judge: |case| judge("notation", case),
        exceptions: &[],
    },
];

/// Judges a case of one operation.
type CaseJudgeFunction = fn(&Case, &TrustCase) -> CaseJudgement;

/// The judge of each operation.
const JUDGES: [(&str, CaseJudgeFunction); 8] = [
    ("git_verify", git::judge),
    ("helm_verify", helm::judge),
    ("sops_decrypt", sops::decrypt),
    ("sops_import", sops::import),
    ("sops_resource", sops::resource),
    ("sops_sources", sops::sources),
    ("sops_build", sops::build),
    ("oci_verify", oci::verify),
];

/// The members of a case that all operations share.
#[derive(Deserialize)]
struct TrustCase {
    topic: String,
    #[serde(default)]
    files: BTreeMap<String, String>,
    #[serde(default)]
    args: Map<String, Value>,
    #[serde(default)]
    text: String,
    #[serde(default)]
    variants: Vec<Value>,
    /// The folder with `blobs/`.
    #[serde(skip)]
    folder: PathBuf,
}

fn judge(topic: &str, case: Case) -> CaseJudgement {
    let mut recorded: TrustCase = case.inputs()?;
    recorded.folder.clone_from(&case.folder);
    if recorded.topic != topic {
        return Err(CaseFailure::OtherTopic);
    }
    let known = JUDGES.iter().find(|(op, _)| *op == case.op);
    known.map_or_else(|| Err(case.unsupported(&[])), |(_, judge)| judge(&case, &recorded))
}

impl TrustCase {
    /// The content of a file.
    fn file(&self, name: &str) -> Result<Vec<u8>, CaseFailure> {
        let content = self.files.get(name).map_or("", String::as_str);
        let blob;
        let encoded = match content.strip_prefix('@') {
            Some(digest) => {
                let path = self.folder.join(format!("blobs/{digest}.b64"));
                blob = std::fs::read_to_string(path)
                    .map_err(|error| CaseFailure::NotRun(error.to_string()))?;
                blob.trim_ascii()
            }
            None => content,
        };
        STANDARD.decode(encoded).map_err(|error| CaseFailure::NotRun(format!("{name}: {error}")))
    }

    /// The files of a folder, with paths relative to it.
    fn folder(&self, folder: &str) -> Result<BTreeMap<String, Vec<u8>>, CaseFailure> {
        let names = self.files.keys().filter_map(|name| Some((name, name.strip_prefix(folder)?)));
        names.map(|(name, short)| Ok((short.to_owned(), self.file(name)?))).collect()
    }

    /// A text among the arguments. It is empty if there is none.
    fn arg(&self, name: &str) -> &str {
        self.args.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    fn flag(&self, name: &str) -> bool {
        self.args.get(name).and_then(Value::as_bool).unwrap_or_default()
    }
}
