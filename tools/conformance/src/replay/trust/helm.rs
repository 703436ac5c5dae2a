//! Charts with provenance, as `helm verify` judges them.

use serde_json::Value;
use signatures::provenance::{VerifiedChart, verify};

use super::TrustCase;
use crate::replay::case::{Case, Judgement, ReferenceAnswer, same};

/// When the cases are judged: they were made for any time from 2026 to 2089.
const VERIFICATION_UNIX_TIME: u64 = 1_800_000_000;

pub(super) fn judge(case: &Case, recorded: &TrustCase) -> Judgement {
    let told = told(recorded)?;
    match (&case.answer, told) {
        (ReferenceAnswer::Error(wanted), Err(got)) => same(wanted, &format!("Error: {got}\n")),
        (_, told) => case.judge(told.map(Value::from)),
    }
}

/// What the command prints.
fn told(recorded: &TrustCase) -> Result<Result<String, String>, super::CaseFailure> {
    let file = recorded.arg("chart");
    let beside = format!("{file}.prov");
    if !recorded.files.contains_key(&beside) {
        // Files that are missing are the matter of who reads them.
        return Ok(Err(format!(
            "could not load provenance file {beside}: stat {beside}: no such file or directory"
        )));
    }
    if !recorded.files.contains_key("keyring") {
        let why = "failed to load keyring: open keyring: no such file or directory";
        return Ok(Err(why.to_owned()));
    }
    let chart = recorded.file(file)?;
    let provenance = recorded.file(&beside)?;
    let verified =
        verify(file, &chart, &provenance, &recorded.file("keyring")?, VERIFICATION_UNIX_TIME);
    Ok(verified.map(|it| shown(&it)).map_err(|refused| refused.to_string()))
}

fn shown(verified: &VerifiedChart) -> String {
    let VerifiedChart { signers, fingerprint, digest } = verified;
    let signers: String = signers.iter().map(|name| format!("Signed by: {name}\n")).collect();
    format!("{signers}Using Key With Fingerprint: {fingerprint}\nChart Hash Verified: {digest}\n")
}
