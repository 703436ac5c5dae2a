//! `cargo xtask conformance` replays recorded answers of the reference implementations through the engines.
//!
//! This module finds the cases of a folder and runs them. Each engine has a module that knows what its cases mean.
//! `case.rs` has the common form of a case, and `table.rs` the table. The READMEs of `e2e/conformance` describe the
//! layout and the line formats.

mod apply;
mod artifact_contents;
mod artifactgen;
mod case;
mod controller_environment;
mod controller_run_comparison;
mod crds;
mod decryption_and_verification;
mod envsubst;
mod go_strings;
mod golang;
mod gotemplate;
mod helm;
pub mod helmfile;
mod image;
mod image_controllers;
mod image_crd_validation;
mod inventory_ids;
mod kustomize;
mod notify;
mod release;
mod spec_durations;
mod table;
#[cfg(test)]
mod tests;
mod windlass_build;
mod yaml;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};

use case::{Case, CaseFailure, CaseJudgement};
use testbed::root;

/// One recorded file or folder, and the engine that has to give the same answers.
struct Topic {
    /// The name in the table.
    name: &'static str,
    /// The path below the folder. A file has a case on each line, as JSON, or as a name, a tab and an answer in a
    /// `.tsv`. A folder has JSON files, each of which is a case.
    path: &'static str,
    /// The function that runs a case.
    judge: fn(Case) -> CaseJudgement,
    /// The cases whose answers differ from the recorded ones on purpose, each with the reason.
    exceptions: &'static [(&'static str, &'static str)],
}

fn topics() -> Vec<Topic> {
    let mut topics = Vec::new();
    topics.extend(apply::TOPICS);
    topics.extend(artifactgen::TOPICS);
    topics.extend(crds::TOPICS);
    topics.extend(go_strings::TOPICS);
    topics.extend(envsubst::TOPICS);
    topics.extend(golang::TOPICS);
    topics.extend(gotemplate::TOPICS);
    topics.extend(helm::TOPICS);
    topics.extend(helmfile::TOPICS);
    topics.extend(image::TOPICS);
    topics.extend(image_controllers::TOPICS);
    topics.extend(image_crd_validation::TOPICS);
    topics.extend(kustomize::TOPICS);
    topics.extend(notify::topics());
    topics.extend(inventory_ids::TOPICS);
    topics.extend(spec_durations::TOPICS);
    topics.extend(release::TOPICS);
    topics.extend(artifact_contents::TOPICS);
    topics.extend(decryption_and_verification::TOPICS);
    topics.extend(yaml::TOPICS);
    topics
}

/// The stack of the replay. Values nested ten thousand deep are compared, printed and dropped on it.
const STACK_BYTES: usize = 256 << 20;

/// The results of a topic.
#[derive(Debug, Default)]
struct ReplayTally {
    passed: usize,
    /// The cases that differ on purpose, each with the reason.
    excepted: Vec<(String, &'static str)>,
    failures: Vec<(String, CaseFailure)>,
    /// How many cases were not run, by reason.
    not_run: BTreeMap<String, usize>,
}

impl ReplayTally {
    /// How many cases ran.
    fn run(&self) -> usize {
        self.passed + self.excepted.len() + self.failures.len()
    }

    fn count(&mut self, topic: &Topic, name: String, judgement: CaseJudgement) {
        let exception = topic.exceptions.iter().find(|(known, _)| *known == name);
        match (judgement, exception) {
            (Ok(()), _) => self.passed += 1,
            (Err(CaseFailure::OtherTopic), _) => {}
            (Err(CaseFailure::NotRun(reason)), _) => *self.not_run.entry(reason).or_default() += 1,
            (Err(CaseFailure::Mismatch { .. }), Some((_, reason))) => {
                self.excepted.push((name, reason));
            }
            (Err(mismatch), None) => self.failures.push((name, mismatch)),
        }
    }
}

type ReplayTallies = BTreeMap<&'static str, ReplayTally>;

/// Replays the cases of some folders and prints a table.
///
/// # Errors
/// When a case fails or no case ran. Also when a folder is empty or cannot be read, or a recorded file belongs to no
/// topic.
#[expect(clippy::print_stdout, reason = "the table is what the command is for")]
pub fn run(folders: &[PathBuf]) -> anyhow::Result<()> {
    let own = [root().join("e2e/conformance")];
    let folders = if folders.is_empty() { &own } else { folders };
    let mut unknown = Vec::new();
    for folder in folders {
        unknown.extend(unknown_files(folder)?);
    }
    unknown.sort();
    unknown.dedup();
    if !unknown.is_empty() {
        bail!("not a known topic: {}", unknown.join(", "));
    }
    let tallies = replay(&topics(), folders)?;
    print!("{}", table::table(&tallies));
    if tallies.values().all(|tally| tally.run() == 0) {
        bail!("no recorded case of a known topic was run");
    }
    let failed: usize = tallies.values().map(|tally| tally.failures.len()).sum();
    if failed > 0 {
        bail!("{failed} cases are not as recorded");
    }
    Ok(())
}

/// The recorded files of a folder that belong to no topic.
///
/// # Errors
/// When the folder cannot be read or nothing is recorded in it.
fn unknown_files(folder: &Path) -> anyhow::Result<Vec<String>> {
    let topics = topics();
    let mut unknown = Vec::new();
    let known = |file: &str| topics.iter().any(|topic| topic.path == file);
    let read = |place: &Path| {
        std::fs::read_dir(place)
            .and_then(Iterator::collect::<std::io::Result<Vec<_>>>)
            .with_context(|| place.display().to_string())
    };
    for room in read(folder)?.into_iter().filter(|entry| entry.path().is_dir()) {
        for entry in read(&room.path())? {
            let file = format!("{}/{}", room.file_name().display(), entry.file_name().display());
            if file.ends_with(".jsonl") && !known(&file) {
                unknown.push(file);
            }
        }
    }
    if unknown.is_empty() && !topics.iter().any(|topic| folder.join(topic.path).exists()) {
        bail!("nothing is recorded in {}", folder.display());
    }
    Ok(unknown)
}

/// Runs topics over folders.
///
/// # Errors
/// When no thread can be started.
fn replay(topics: &[Topic], folders: &[PathBuf]) -> anyhow::Result<ReplayTallies> {
    let all = || {
        let mut tallies = ReplayTallies::new();
        for topic in topics {
            for path in folders.iter().map(|folder| folder.join(topic.path)) {
                if path.exists() {
                    replay_path(topic, &path, tallies.entry(topic.name).or_default());
                }
            }
        }
        tallies
    };
    std::thread::scope(|scope| {
        let replay =
            std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, all)?;
        replay.join().map_err(|_| anyhow!("the replay ended with a panic"))
    })
}

fn replay_path(topic: &Topic, path: &Path, tally: &mut ReplayTally) {
    let strings = match strings(path) {
        Ok(strings) => strings,
        Err(error) => {
            let fault =
                CaseFailure::Mismatch { wanted: "cases".to_owned(), got: error.to_string() };
            tally.failures.push((path.display().to_string(), fault));
            return;
        }
    };
    for (place, text) in strings {
        match Case::parse(&place, &text) {
            Ok(mut case) => {
                case.folder = path.parent().map(Path::to_owned).unwrap_or_default();
                let name = case.name.clone();
                let judge = AssertUnwindSafe(|| case.judge_each_answer(topic.judge));
                let judgement = catch_unwind(judge).unwrap_or_else(|_| {
                    Err(CaseFailure::Mismatch {
                        wanted: "an answer".to_owned(),
                        got: "a panic".to_owned(),
                    })
                });
                tally.count(topic, name, judgement);
            }
            Err(error) => {
                let got = error.to_string();
                let fault = CaseFailure::Mismatch { wanted: "a JSON object".to_owned(), got };
                tally.failures.push((format!("{}: {place}", path.display()), fault));
            }
        }
    }
}

/// Makes a JSON case of a line with a name and an answer.
fn row(line: &[u8]) -> Vec<u8> {
    let line = String::from_utf8_lossy(line);
    let (name, out) = line.split_once('\t').unwrap_or((&line, ""));
    serde_json::json!({"name": name, "out": out}).to_string().into_bytes()
}

/// The texts of all cases at a path. Each has a name for the case, in case the text has none.
fn strings(path: &Path) -> std::io::Result<Vec<(String, Vec<u8>)>> {
    let mut strings = Vec::new();
    if path.is_dir() {
        for entry in std::fs::read_dir(path)? {
            let file = entry?.path();
            if file.extension().is_some_and(|extension| extension == "json") {
                let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                strings.push((stem, std::fs::read(&file)?));
            }
        }
        strings.sort();
        return Ok(strings);
    }
    let is_table = path.extension().is_some_and(|extension| extension == "tsv");
    for (index, line) in std::fs::read(path)?.split(|byte| *byte == b'\n').enumerate() {
        if !line.trim_ascii().is_empty() {
            let case = if is_table { row(line) } else { line.to_owned() };
            strings.push((format!("line {}", index + 1), case));
        }
    }
    Ok(strings)
}
