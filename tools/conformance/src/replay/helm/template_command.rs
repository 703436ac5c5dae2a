//! Replays cases of `windlass template`. The program runs once for each case, in the folder of the chart.
//!
//! `render.rs` has single templates.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use super::super::case::{Case, CaseFailure, CaseJudgement, ReferenceAnswer, same};
use super::super::windlass_build::program;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HelmCommandInputs {
    files: BTreeMap<String, String>,
    args: Vec<String>,
    #[serde(default)]
    stderr: String,
    #[serde(default)]
    out_before_err: String,
}

/// The placeholder for the folder of the chart.
const FOLDER: &str = "${DIR}";

pub(super) fn template(case: Case) -> CaseJudgement {
    let program = program()?;
    let HelmCommandInputs { files, args, stderr, out_before_err } = case.inputs()?;
    let not_run = |error: std::io::Error| CaseFailure::NotRun(error.to_string());
    let folder = tempfile::tempdir().map_err(not_run)?;
    for (path, text) in &files {
        write(&folder.path().join(path), text).map_err(not_run)?;
    }
    let place = folder.path().to_string_lossy();
    let args = args.iter().map(|argument| argument.replace(FOLDER, &place));
    let output = Command::new(program)
        .args(["template", "rel", "."])
        .args(args)
        .current_dir(folder.path())
        .env_clear()
        .env("TZ", "UTC")
        .output()
        .map_err(not_run)?;
    let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(&*place, FOLDER);
    let got = (output.status.code(), shown(&output.stdout), shown(&output.stderr));
    let wanted = match &case.answer {
        ReferenceAnswer::Out(out) => (Some(0), out.as_str().unwrap_or_default().to_owned(), stderr),
        ReferenceAnswer::Error(error) => (Some(1), out_before_err, error.clone()),
        ReferenceAnswer::Panic | ReferenceAnswer::Elsewhere => {
            return Err(CaseFailure::NotRun("no answer is recorded".to_owned()));
        }
    };
    let whole = |(status, out, error): &(Option<i32>, String, String)| {
        format!("status {status:?}\n{error}\n{out}")
    };
    same(&whole(&wanted), &whole(&got))
}

fn write(path: &Path, text: &str) -> std::io::Result<()> {
    path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
    std::fs::write(path, text)
}
