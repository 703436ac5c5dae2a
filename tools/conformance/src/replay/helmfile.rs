//! Replays cases of `windlass helmfile`. The program runs once for each command line of a case, in a folder of its
//! own.
//!
//! The files of a case have the form of kustomize's cases (`kustomize.rs`). `crate::compare` runs the same cases with
//! the original helmfile.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::anyhow;
use golang::regexp::GoRegexp;
use serde::Deserialize;

use super::Topic;
use super::case::{Case, CaseFailure, CaseJudgement, same};
use super::kustomize::{KustomizeFileContent, ROOT, write};
use super::windlass_build::program;
use crate::corpus::ProgramOutput;

/// The file with the cases that were made for this project.
const OWN: &str = "helmfile/own.jsonl";

pub(super) const TOPICS: [Topic; 2] = [
    Topic { name: "helmfile/own", path: OWN, judge: run, exceptions: EXCEPTIONS },
    Topic {
        name: "helmfile/cases",
        path: "helmfile/cases.jsonl",
        judge: run,
        exceptions: EXCEPTIONS,
    },
];

/// The cases whose answers differ on purpose, each with the reason.
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

/// The marks of cases whose answers differ on purpose.
const MARKS: [&str; 5] = ["exec", "vals", "secrets", "absolute", "escape"];

/// A helmfile with its files, and the command lines of the case.
#[derive(Deserialize)]
pub struct HelmfileCase {
    files: BTreeMap<String, KustomizeFileContent>,
    #[serde(default)]
    dir: String,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    stdin: String,
    #[serde(default)]
    mark: Vec<String>,
    /// The programs that helmfile ran besides Helm and Kustomize.
    #[serde(default)]
    needs: Vec<String>,
    runs: Vec<HelmfileInvocation>,
}

/// A command line, and helmfile's answer.
#[derive(Deserialize)]
pub struct HelmfileInvocation {
    /// The arguments of helmfile.
    pub args: Vec<String>,
    exit: i32,
    #[serde(default)]
    expected: String,
    #[serde(default)]
    stderr: String,
}

/// A command that runs helmfile: the program, arguments before helmfile's own, and folders of further programs.
#[derive(Clone, Copy)]
pub struct HelmfileCommandLine<'p> {
    /// The program.
    pub path: &'p Path,
    /// Arguments before helmfile's own.
    pub command: &'p [&'p str],
    /// Folders of the programs that helmfile runs.
    pub tools: &'p [PathBuf],
}

/// The project's own cases by name, whose answers are equal on all machines. Cases that differ on purpose or need
/// further programs are left out.
///
/// # Errors
/// When the file cannot be read.
pub fn own() -> anyhow::Result<Vec<(String, HelmfileCase)>> {
    let mut cases = Vec::new();
    for (place, text) in super::strings(&testbed::root().join("e2e/conformance").join(OWN))? {
        let case = Case::parse(&place, &text)?;
        let recorded: HelmfileCase =
            case.inputs().map_err(|_| anyhow!("{place} has another form"))?;
        let is_exception = EXCEPTIONS.iter().any(|(name, _)| *name == case.name);
        if recorded.mark().is_none() && !is_exception && recorded.needs.is_empty() {
            cases.push((case.name, recorded));
        }
    }
    Ok(cases)
}

fn run(case: Case) -> CaseJudgement {
    let recorded: HelmfileCase = case.inputs()?;
    if let Some(mark) = recorded.mark() {
        return Err(CaseFailure::NotRun(format!("marked `{mark}`")));
    }
    let program = HelmfileCommandLine { path: program()?, command: &["helmfile"], tools: &[] };
    recorded.runs.iter().try_for_each(|run| {
        let got = recorded
            .ask(program, run)
            .map_err(|error| CaseFailure::NotRun(format!("{error:#}")))?;
        judge(run, &got)
    })
}

fn judge(run: &HelmfileInvocation, got: &ProgramOutput) -> CaseJudgement {
    let name = run.args.join(" ");
    match (run.exit == 0, got.status) {
        (true, Some(0)) => {
            let got = String::from_utf8_lossy(&got.stdout);
            same(&format!("{name}\n{}", run.expected), &format!("{name}\n{got}"))
        }
        (true, _) => {
            let error = String::from_utf8_lossy(&got.stderr);
            same(&format!("{name}: success"), &format!("{name}: {error}"))
        }
        (false, Some(0)) => {
            same(&format!("{name}: exit status {}", run.exit), &format!("{name}: success"))
        }
        // The text of the error differs, because windlass runs no program and has its own words.
        (false, Some(_)) => {
            let error = String::from_utf8_lossy(&got.stderr);
            let trail = trail(&run.stderr);
            if !error.contains(trail) {
                return same(
                    &format!("{name}: an error with `{trail}`"),
                    &format!("{name}: {error}"),
                );
            }
            let got = String::from_utf8_lossy(&got.stdout);
            same(&format!("{name}\n{}", run.expected), &format!("{name}\n{got}"))
        }
        (false, None) => {
            same(&format!("{name}: exit status {}", run.exit), &format!("{name}: a crash"))
        }
    }
}

/// The files that led to an error. helmfile's error begins with them, such as `in ./helmfile.yaml: in .helmfiles[0]:
/// in a.yaml: `.
fn trail(stderr: &str) -> &str {
    let Some(line) = stderr.lines().find(|line| line.starts_with("in ./")) else { return "" };
    let mut len = 0;
    while let Some((place, _)) = line[len..].split_once(": ")
        && place.strip_prefix("in ").is_some_and(|place| !place.contains(' '))
    {
        len += place.len() + ": ".len();
    }
    &line[..len]
}

impl HelmfileCase {
    /// The command lines of the case.
    pub fn runs(&self) -> &[HelmfileInvocation] {
        &self.runs
    }

    /// The remark of the case that allows windlass another answer. `None` if the answer has to be equal.
    fn mark(&self) -> Option<&str> {
        self.mark.iter().map(String::as_str).find(|mark| MARKS.contains(mark))
    }

    /// Runs a program in a folder of its own.
    ///
    /// # Errors
    /// When the program cannot be run.
    pub fn ask(
        &self,
        program: HelmfileCommandLine<'_>,
        run: &HelmfileInvocation,
    ) -> anyhow::Result<ProgramOutput> {
        let temporary = tempfile::tempdir()?;
        let base = fs::canonicalize(temporary.path())?;
        for folder in ["root", "tmp", "home"] {
            fs::create_dir(base.join(folder))?;
        }
        let root = base.join("root").to_string_lossy().into_owned();
        for (path, content) in &self.files {
            write(&Path::new(&root).join(path), content, &root)?;
        }
        let known = std::env::var_os("PATH").unwrap_or_default();
        let folders = program.tools.iter().cloned().chain(std::env::split_paths(&known));
        let home = base.join("home");
        let mut child = Command::new(program.path)
            .args(program.command)
            .args(run.args.iter().map(|argument| argument.replace(ROOT, &root)))
            .current_dir(Path::new(&root).join(&self.dir))
            .env_clear()
            .env("PATH", std::env::join_paths(folders)?)
            .env("HOME", &home)
            .env("TMPDIR", base.join("tmp"))
            .env("KUBECONFIG", home.join("no-kubeconfig"))
            .env("HELMFILE_CACHE_HOME", home.join("helmfile"))
            .env("HELMFILE_UPGRADE_NOTICE_DISABLED", "1")
            .envs(
                ["cache", "config", "data"]
                    .map(|name| (format!("HELM_{}_HOME", name.to_uppercase()), home.join(name))),
            )
            // Nothing listens at this address, so every fetch fails at once.
            .envs(["http_proxy", "https_proxy"].map(|name| (name, "http://127.0.0.1:9")))
            .env("LC_ALL", "C.UTF-8")
            .envs(self.env.iter().map(|(name, value)| (name, value.replace(ROOT, &root))))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            // Most commands end without reading their input.
            drop(stdin.write_all(self.stdin.as_bytes()));
        }
        let output = child.wait_with_output()?;
        let stdout = normal(&String::from_utf8_lossy(&output.stdout), &base)?.into_bytes();
        let status = output.status.code();
        Ok(ProgramOutput { status, stdout, stderr: output.stderr, written: BTreeMap::new() })
    }
}

/// A text in which folders and random numbers are replaced by names.
fn normal(text: &str, base: &Path) -> anyhow::Result<String> {
    let mut text = text.to_owned();
    for (folder, name) in [("root", ROOT), ("tmp", "${TMP}"), ("home", "${HOME}")] {
        text = text.replace(&*base.join(folder).to_string_lossy(), name);
    }
    let drawn = GoRegexp::new(r"\$\{TMP\}/chartify\d+").map_err(|error| anyhow!("{error}"))?;
    let found: Vec<String> = drawn.find_all(&text, None).into_iter().map(str::to_owned).collect();
    for directory in found {
        text = text.replace(&directory, "${TMP}/chartifyN");
    }
    Ok(text)
}
