//! Replays cases about charts with provenance, as `helm verify` judges them.

use serde_json::Value;
use signatures::chart_provenance::{VerifiedChart, verify};

use super::TrustCase;
use crate::replay::case::{Case, CaseJudgement, ReferenceAnswer, same};

/// The time at which the cases are judged. They are made for any time from 2026 to 2089.
const VERIFICATION_UNIX_TIME: u64 = 1_800_000_000;

pub(super) fn judge(case: &Case, recorded: &TrustCase) -> CaseJudgement {
    let file = recorded.arg("chart");
    let beside = format!("{file}.prov");
    // The text that the command prints.
    let printed = if let Some(error) = missing_file(recorded, &beside) {
        Err(error)
    } else {
        let chart = recorded.file(file)?;
        let provenance = recorded.file(&beside)?;
        let keyring = recorded.file("keyring")?;
        let verified = verify(file, &chart, &provenance, &keyring, VERIFICATION_UNIX_TIME);
        verified.map(|it| shown(&it)).map_err(|refused| refused.to_string())
    };
    match (&case.answer, printed) {
        (ReferenceAnswer::Error(wanted), Err(got)) => same(wanted, &format!("Error: {got}\n")),
        (_, printed) => case.judge(printed.map(Value::from)),
    }
}

/// The error about a missing file. The program that reads the chart's files reports it, not the verifier. `None` if no file is
/// missing.
fn missing_file(recorded: &TrustCase, provenance: &str) -> Option<String> {
    if !recorded.files.contains_key(provenance) {
        return Some(format!(
            "could not load provenance file {provenance}: stat {provenance}: no such file or directory"
        ));
    }
    if !recorded.files.contains_key("keyring") {
        let why = "failed to load keyring: open keyring: no such file or directory";
        return Some(why.to_owned());
    }
    None
}

fn shown(verified: &VerifiedChart) -> String {
    let VerifiedChart { signers, fingerprint, digest } = verified;
    let signers: String = signers.iter().map(|name| format!("Signed by: {name}\n")).collect();
    format!("{signers}Using Key With Fingerprint: {fingerprint}\nChart Hash Verified: {digest}\n")
}
