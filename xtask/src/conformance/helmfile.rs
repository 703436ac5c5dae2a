//! `windlass helmfile`: the program itself, run for each command line of a case in a folder of its own.
//!
//! Elsewhere: the files of a case, whose form is that of kustomize's (`kustomize.rs`).

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use golang::regexp::Regexp;
use serde::Deserialize;

use super::Topic;
use super::case::{Case, Fault, Judgement, same};
use super::kustomize::{Content, ROOT, write};
use super::program::program;

pub(super) const TOPICS: [Topic; 2] = [
    Topic { name: "helmfile/own", path: "helmfile/own.jsonl", judge: run, exceptions: EXCEPTIONS },
    Topic {
        name: "helmfile/cases",
        path: "helmfile/cases.jsonl",
        judge: run,
        exceptions: EXCEPTIONS,
    },
];

/// What is as it is on purpose.
const EXCEPTIONS: &[(&str, &str)] = &[
    (
        "own/inherit/inherit-pointer-leak",
        "releases do not change the templates that later releases inherit",
    ),
    ("own/roundtrip/go-yaml-v2", "HELMFILE_GO_YAML_V3 has no effect: YAML is that of go-yaml v3"),
    ("own/roundtrip/yaml-emit-scalars-no-nan", "values that JSON does not have are refused"),
    ("own/state-values/number-kinds", "values that JSON does not have are refused"),
    ("app/app_test.TestHelmBinaryPreservedInMultiDocumentYAML/1", "no helm program is looked for"),
    (
        "app/inherits_e2e_test.TestSubhelmfileInherits_Repositories/1",
        "the groups do not depend on charts",
    ),
    (
        "app/inherits_e2e_test.TestSubhelmfile_NoWarnWhenRepoInherited/1",
        "the groups do not depend on charts",
    ),
];

/// Marks of cases whose answer is another one on purpose.
const MARKS: [&str; 5] = ["exec", "vals", "secrets", "absolute", "escape"];

#[derive(Deserialize)]
struct Recorded {
    files: BTreeMap<String, Content>,
    #[serde(default)]
    dir: String,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    stdin: String,
    #[serde(default)]
    mark: Vec<String>,
    runs: Vec<Run>,
}

#[derive(Deserialize)]
struct Run {
    args: Vec<String>,
    exit: i32,
    #[serde(default)]
    expected: String,
}

fn run(case: Case) -> Judgement {
    let recorded: Recorded = case.inputs()?;
    if let Some(mark) = recorded.mark.iter().find(|mark| MARKS.contains(&mark.as_str())) {
        return Err(Fault::NotRun(format!("marked `{mark}`")));
    }
    recorded.runs.iter().try_for_each(|run| run_once(&recorded, run))
}

fn run_once(recorded: &Recorded, run: &Run) -> Judgement {
    let not_run = |error: &dyn std::fmt::Display| Fault::NotRun(error.to_string());
    let temporary = tempfile::tempdir().map_err(|error| not_run(&error))?;
    let base = fs::canonicalize(temporary.path()).map_err(|error| not_run(&error))?;
    for folder in ["root", "tmp", "home"] {
        fs::create_dir(base.join(folder)).map_err(|error| not_run(&error))?;
    }
    let root = base.join("root").to_string_lossy().into_owned();
    for (path, content) in &recorded.files {
        write(&Path::new(&root).join(path), content, &root).map_err(|error| not_run(&error))?;
    }
    let mut child = Command::new(program()?)
        .arg("helmfile")
        .args(run.args.iter().map(|argument| argument.replace(ROOT, &root)))
        .current_dir(Path::new(&root).join(&recorded.dir))
        .env_clear()
        .env("HOME", base.join("home"))
        .env("TMPDIR", base.join("tmp"))
        .env("KUBECONFIG", base.join("home/no-kubeconfig"))
        .env("LC_ALL", "C.UTF-8")
        .envs(recorded.env.iter().map(|(name, value)| (name, value.replace(ROOT, &root))))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| not_run(&error))?;
    if let Some(mut stdin) = child.stdin.take() {
        // Most commands end without reading it.
        drop(stdin.write_all(recorded.stdin.as_bytes()));
    }
    let output = child.wait_with_output().map_err(|error| not_run(&error))?;
    let name = run.args.join(" ");
    let error = String::from_utf8_lossy(&output.stderr);
    match (run.exit == 0, output.status.success()) {
        (true, true) => {
            let got = normal(&String::from_utf8_lossy(&output.stdout), &base)?;
            same(&format!("{name}\n{}", run.expected), &format!("{name}\n{got}"))
        }
        (true, false) => same(&format!("{name}: success"), &format!("{name}: {error}")),
        (false, true) => {
            same(&format!("{name}: exit status {}", run.exit), &format!("{name}: success"))
        }
        // Which error it is differs: nothing is run, and the words are our own.
        (false, false) if output.status.code().is_some() => Ok(()),
        (false, false) => {
            same(&format!("{name}: exit status {}", run.exit), &format!("{name}: a crash"))
        }
    }
}

/// A text with names for folders and for numbers that are drawn.
fn normal(text: &str, base: &Path) -> Result<String, Fault> {
    let mut text = text.to_owned();
    for (folder, name) in [("root", ROOT), ("tmp", "${TMP}"), ("home", "${HOME}")] {
        text = text.replace(&*base.join(folder).to_string_lossy(), name);
    }
    let drawn =
        Regexp::new(r"\$\{TMP\}/chartify\d+").map_err(|error| Fault::NotRun(error.to_string()))?;
    let found: Vec<String> = drawn.find_all(&text, None).into_iter().map(str::to_owned).collect();
    for directory in found {
        text = text.replace(&directory, "${TMP}/chartifyN");
    }
    Ok(text)
}
