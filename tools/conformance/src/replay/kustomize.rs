//! Replays builds of kustomizations. Each is built in its own folder on disk, like the command does it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use golang::regexp::GoRegexp;
use kustomize::{
    BuildBudget, KustomizeBuildOptions, KustomizeBuildWarning, LoadRestriction, ObjectOrder,
};
use serde::Deserialize;
use serde_json::Value;
use sources::workstation_build_files::WorkstationBuildFiles;

use super::Topic;
use super::case::{Case, CaseFailure, CaseJudgement, same};

pub(super) const TOPICS: [Topic; 1] = [Topic {
    name: "kustomize/cases",
    path: "kustomize/cases.jsonl",
    judge: build,
    exceptions: &[],
}];

#[derive(Deserialize)]
struct BuildInputs {
    #[serde(default)]
    files: BTreeMap<String, KustomizeFileContent>,
    dir: String,
    args: Option<Vec<String>>,
    setup: Option<String>,
    expected: Option<String>,
    warnings: Option<String>,
    error: Option<Value>,
    stderr: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum KustomizeFileContent {
    Text(String),
    Link { symlink: String },
    Bytes { base64: String },
}

/// The placeholder for the folder of a case in recorded texts.
pub(super) const ROOT: &str = "${ROOT}";

fn build(case: Case) -> CaseJudgement {
    let recorded: BuildInputs = case.inputs()?;
    let not_run = |error: &dyn std::fmt::Display| CaseFailure::NotRun(error.to_string());
    let temporary = tempfile::tempdir().map_err(|error| not_run(&error))?;
    let root = fs::canonicalize(temporary.path()).map_err(|error| not_run(&error))?;
    let root = root.to_string_lossy().into_owned();
    for (path, content) in &recorded.files {
        write(&Path::new(&root).join(path), content, &root).map_err(|error| not_run(&error))?;
    }
    if let Some(setup) = &recorded.setup {
        set_up(setup, &root)?;
    }
    let options = options(recorded.args.as_deref().unwrap_or_default())?;
    let mut warnings = Vec::new();
    let dir = format!("{root}/{}", recorded.dir);
    let built = kustomize::build(
        &WorkstationBuildFiles::default(),
        &dir,
        &options,
        &BuildBudget::default(),
        &mut warnings,
    );
    let built = built.and_then(|built| built.yaml());
    let mut said: String = warnings.iter().map(line).collect();
    match (built, recorded.expected) {
        (Ok(text), Some(wanted)) => {
            same(&wanted, &text)?;
            same(&untimed(recorded.warnings.as_deref().unwrap_or_default()), &said)
        }
        (Ok(text), None) => same("an error", &text),
        (Err(error), Some(wanted)) => same(&wanted, &format!("error: {error}")),
        (Err(error), None) => {
            said.push_str(&format!("Error: {error}\n"));
            let said = said.replace(&root, ROOT);
            let wanted = untimed(recorded.stderr.as_deref().unwrap_or_default());
            let is_as_recorded = match recorded.error {
                Some(error) if is_checkable(&error) => holds(&error, &said),
                _ => is_same_but_for_memory(&wanted, &said),
            };
            if said == wanted || is_as_recorded {
                return Ok(());
            }
            same(&wanted, &said)
        }
    }
}

/// Writes a file of a case.
pub(super) fn write(path: &Path, content: &KustomizeFileContent, root: &str) -> anyhow::Result<()> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    match content {
        KustomizeFileContent::Text(text) => fs::write(path, text.replace(ROOT, root))?,
        KustomizeFileContent::Link { symlink } => {
            std::os::unix::fs::symlink(symlink.replace(ROOT, root), path)?;
        }
        KustomizeFileContent::Bytes { base64 } => fs::write(path, STANDARD.decode(base64)?)?,
    }
    Ok(())
}

/// Runs the script that prepares a case. If it fails, the build will differ.
fn set_up(script: &str, root: &str) -> Result<(), CaseFailure> {
    let mut shell = std::process::Command::new("sh");
    let output = shell.arg("-c").arg(script.replace(ROOT, root)).current_dir(root).output();
    output.map(drop).map_err(|error| CaseFailure::NotRun(format!("setup: {error}")))
}

fn options(args: &[String]) -> Result<KustomizeBuildOptions, CaseFailure> {
    let mut options =
        KustomizeBuildOptions { order: ObjectOrder::Legacy, ..KustomizeBuildOptions::default() };
    let mut args = args.iter().map(String::as_str);
    while let Some(flag) = args.next() {
        match (flag, args.next()) {
            ("--reorder", Some(order)) => {
                options.is_order_explicit = true;
                options.order =
                    if order == "none" { ObjectOrder::AsRead } else { ObjectOrder::Legacy };
            }
            ("--load-restrictor", Some("LoadRestrictionsNone")) => {
                options.restriction = LoadRestriction::None;
            }
            _ => return Err(CaseFailure::NotRun(format!("unknown flag `{flag}`"))),
        }
    }
    Ok(options)
}

fn line(warning: &KustomizeBuildWarning) -> String {
    match warning {
        KustomizeBuildWarning::Advice(text) | KustomizeBuildWarning::Log(text) => {
            format!("{text}\n")
        }
        // Differs(kustomize 5.8): it is silent.
        KustomizeBuildWarning::Lost(_) => String::new(),
    }
}

/// A text without the times before its log lines.
fn untimed(text: &str) -> String {
    let is_time = |line: &str| {
        let shape =
            line.bytes().take(20).map(|byte| if byte.is_ascii_digit() { b'0' } else { byte });
        shape.eq(b"0000/00/00 00:00:00 ".iter().copied())
    };
    let lines = text.split_inclusive('\n');
    lines.map(|line| if is_time(line) { &line[20..] } else { line }).collect()
}

/// Whether the recording has parts of the error's text, which then have to match.
fn is_checkable(error: &Value) -> bool {
    ["contains", "equals", "regex", "any"].iter().any(|name| error.get(*name).is_some())
}

/// Whether two texts are equal, apart from Go's memory addresses and the address of the DNS server.
fn is_same_but_for_memory(wanted: &str, said: &str) -> bool {
    let memory = [
        r"&\{0x[0-9a-f]+ <nil>\}",
        r"map\[string\]interface \{\}\{.*\}: json",
        r"0x[0-9a-f]{6,}",
        r" on [0-9.]+:53",
    ];
    let Ok(memory) = GoRegexp::new(&memory.join("|")) else { return false };
    let mut rest = said;
    let mut from = 0;
    let mut parts = Vec::new();
    while let Some(found) = memory.find(&wanted[from..]) {
        let at = from + wanted[from..].find(found).unwrap_or_default();
        parts.push(&wanted[from..at]);
        from = at + found.len();
    }
    if parts.is_empty() {
        return false;
    }
    parts.push(&wanted[from..]);
    parts.into_iter().all(|part| match rest.split_once(part) {
        Some((_, after)) => {
            rest = after;
            true
        }
        None => false,
    })
}

/// Whether all recorded parts of an error match.
fn holds(error: &Value, said: &str) -> bool {
    let strings = |name: &str| {
        let list = error.get(name).and_then(Value::as_array);
        let strings = list.into_iter().flatten().filter_map(Value::as_str);
        strings.map(str::to_owned).collect::<Vec<_>>()
    };
    let matches = |pattern: &String| {
        let pattern = pattern.replace(ROOT, "\\$\\{ROOT\\}");
        GoRegexp::new(&pattern).is_ok_and(|pattern| pattern.is_match(said))
    };
    let equal = error.get("equals").and_then(Value::as_str);
    let any = error.get("any").and_then(Value::as_array);
    let all_of = |strings: &Value| {
        strings
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .all(|text| said.contains(text))
    };
    strings("contains").iter().all(|text| said.contains(text))
        && strings("regex").iter().all(matches)
        && equal.is_none_or(|text| said.contains(text))
        && any.is_none_or(|any| any.iter().any(all_of))
}
