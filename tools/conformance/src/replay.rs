//! `cargo xtask conformance`: recorded answers of the reference implementations, replayed through the engines.
//!
//! Here: finding the cases of a folder and running them. Elsewhere: what a case of a topic means (one file an
//! engine, below this one), the form of a case (`case.rs`), the table (`table.rs`).
//! The layout and line formats are those of `e2e/conformance` and its READMEs.

mod apply;
mod artifactgen;
mod case;
mod controller_answer;
mod crds;
mod envsubst;
mod fake_operator;
mod go_strings;
mod golang;
mod gotemplate;
mod helm;
pub mod helmfile;
mod image;
mod image_controllers;
mod image_definitions;
mod kustomize;
mod notify;
mod objects;
mod program;
mod reconcile;
mod release;
mod sources;
mod table;
#[cfg(test)]
mod tests;
mod trust;
mod yaml;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};

use case::{Case, CaseFailure, CaseJudgement};
use testbed::root;

/// One recorded file, or folder of files, and the engine that has to give the same answers.
struct Topic {
    /// As the table calls it.
    name: &'static str,
    /// Below the folder: a file with a case on each line (in JSON, or a name and an answer with a tab between them in
    /// a `.tsv`), or a folder of JSON files that are a case each.
    path: &'static str,
    /// Runs a case.
    judge: fn(Case) -> CaseJudgement,
    /// Names of cases that cannot be as recorded, each with the reason.
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
    topics.extend(image_definitions::TOPICS);
    topics.extend(kustomize::TOPICS);
    topics.extend(notify::topics());
    topics.extend(objects::TOPICS);
    topics.extend(reconcile::TOPICS);
    topics.extend(release::TOPICS);
    topics.extend(sources::TOPICS);
    topics.extend(trust::TOPICS);
    topics.extend(yaml::TOPICS);
    topics
}

/// Stack of the replay: values nested ten thousand deep are compared, shown and dropped on it.
const STACK_BYTES: usize = 256 << 20;

/// What a topic came to.
#[derive(Debug, Default)]
struct ReplayTally {
    passed: usize,
    /// Case and reason.
    excepted: Vec<(String, &'static str)>,
    failures: Vec<(String, CaseFailure)>,
    /// How many cases were not run, by reason.
    not_run: BTreeMap<String, usize>,
}

impl ReplayTally {
    /// How many cases were run.
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
/// When a case fails, a folder cannot be read or holds nothing, a recorded file belongs to no topic, or no case was run.
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

/// Recorded files of a folder that belong to no topic.
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

/// The case of a line with a name and an answer.
fn row(line: &[u8]) -> Vec<u8> {
    let line = String::from_utf8_lossy(line);
    let (name, out) = line.split_once('\t').unwrap_or((&line, ""));
    serde_json::json!({"name": name, "out": out}).to_string().into_bytes()
}

/// The strings of all cases at a path, each with what to call a case that has no name.
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
