//! `cargo xtask health` compares the rules of the health library with the test data of Argo CD's health library.
//!
//! This module reads the cases from a checkout of Argo CD, judges them and prints the table. The checkout is not part
//! of this repository. `engines/health/src/rules` has the rules, and the differences that are on purpose.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use health_library::HealthLibrary;
use objects::Object;
use serde_json::Value;
use testbed::progress::{bold, dim, green, red};
use testbed::root;

/// The folder in which Argo CD has its rules and their cases.
const CASES_FOLDER: &str = "resource_customizations";

/// The name of the file with the cases of a kind.
const CASES_FILE: &str = "health_test.yaml";

/// The file with the differences that are on purpose: the case and the reason.
const DIFFERENCES_FILE: &str = "engines/health/src/rules/argo-cd-differences.yaml";

/// How many of a hundred cases have to be equal.
const MIN_EQUAL_PERCENT: usize = 95;

/// How many objects are judged to measure the time.
const TIMED_OBJECTS: usize = 5_000;

/// An object, and the verdict of Argo CD about it.
#[derive(Debug)]
struct HealthCase {
    /// Group and kind as the folders name them, and the name of the file.
    name: String,
    object: Object,
    expected: String,
}

/// A case for which the library gives another verdict.
#[derive(Debug)]
struct HealthDifference {
    name: String,
    expected: String,
    actual: String,
    /// The reason that the library gives.
    reason: String,
}

impl HealthDifference {
    /// Whether one verdict is failed and the other one healthy.
    fn is_opposite(&self) -> bool {
        matches!(
            (self.expected.as_str(), self.actual.as_str()),
            ("Healthy", "Degraded") | ("Degraded", "Healthy")
        )
    }
}

/// The results of all cases.
#[derive(Debug, Default)]
struct HealthTally {
    equal: usize,
    differences: Vec<HealthDifference>,
    kinds: BTreeSet<String>,
    kinds_without_rule: BTreeSet<String>,
}

/// Judges the cases of a checkout of Argo CD and prints a table.
///
/// # Errors
/// The checkout has no cases, or a case cannot be read. Fewer than 95 % are equal, or verdicts are opposite. A
/// difference has no reason, or a reason has no difference.
#[expect(clippy::print_stdout, reason = "the table is what the command is for")]
pub fn run(checkout: &Path) -> anyhow::Result<()> {
    let cases = cases(checkout)?;
    let reasons = reasons(&root().join(DIFFERENCES_FILE))?;
    let tally = judge(&cases);
    print!("{}", table(&tally, &reasons, took(&cases)));
    verdict(&tally, &reasons)
}

/// Reads the cases of a checkout, or of its folder with the rules.
fn cases(checkout: &Path) -> anyhow::Result<Vec<HealthCase>> {
    let below = checkout.join(CASES_FOLDER);
    let folder = if below.is_dir() { below } else { checkout.to_owned() };
    let mut all = Vec::new();
    for group in folders(&folder)? {
        for kind in folders(&group)? {
            if kind.join(CASES_FILE).is_file() {
                let name = kind.strip_prefix(&folder)?.display().to_string();
                all.extend(cases_of(&kind, &name)?);
            }
        }
    }
    ensure!(!all.is_empty(), "{} has no `*/*/{CASES_FILE}`", folder.display());
    Ok(all)
}

fn folders(folder: &Path) -> anyhow::Result<BTreeSet<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()));
    let mut all = BTreeSet::new();
    for entry in entries? {
        let path = entry?.path();
        if path.is_dir() {
            all.insert(path);
        }
    }
    Ok(all)
}

fn read_yaml(path: &Path) -> anyhow::Result<Value> {
    let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    goyaml::to_json(&text)
        .map_err(|error| anyhow::anyhow!("{}: {}", path.display(), error.problem()))
}

/// Returns the field with this name, in upper or lower case, as Go decodes it. `None` if there is no such field.
fn field<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    let mut fields = value.as_object()?.iter();
    fields.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

fn cases_of(folder: &Path, kind: &str) -> anyhow::Result<Vec<HealthCase>> {
    let file = read_yaml(&folder.join(CASES_FILE))?;
    let tests = field(&file, "tests").and_then(Value::as_array);
    let mut all = Vec::new();
    for test in tests.into_iter().flatten() {
        let input = field(test, "inputPath").and_then(Value::as_str);
        let status = field(test, "healthStatus").and_then(|it| field(it, "status"));
        let (Some(input), Some(expected)) = (input, status.and_then(Value::as_str)) else {
            bail!("a case of {kind} lacks its input or its status: {test}");
        };
        let stem = Path::new(input).file_stem().unwrap_or_default().to_string_lossy();
        let name = format!("{kind} {stem}");
        let object = named(read_yaml(&folder.join(input))?);
        let object = Object::new(object).with_context(|| name.clone())?;
        all.push(HealthCase { name, object, expected: expected.to_owned() });
    }
    Ok(all)
}

/// Gives an object a name if it has none. Argo CD's cases may lack it, and every real object has one.
fn named(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        let metadata =
            fields.entry("metadata").or_insert_with(|| Value::Object(Default::default()));
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.entry("name").or_insert_with(|| "case".into());
        }
    }
    object
}

/// Reads the reasons of the differences that are on purpose.
fn reasons(file: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    let value = read_yaml(file)?;
    let entries = value.as_object().with_context(|| format!("{} is no mapping", file.display()))?;
    let text = |reason: &Value| reason.as_str().unwrap_or_default().to_owned();
    Ok(entries.iter().map(|(name, reason)| (name.clone(), text(reason))).collect())
}

fn judge(cases: &[HealthCase]) -> HealthTally {
    let library = HealthLibrary::builtin();
    let mut tally = HealthTally::default();
    for case in cases {
        let kind = case.object.gvk();
        let kind = format!("{}/{}", kind.group, kind.kind);
        let Some(health) = library.assess(&case.object) else {
            tally.kinds_without_rule.insert(kind);
            tally.differences.push(HealthDifference {
                name: case.name.clone(),
                expected: case.expected.clone(),
                actual: "no rule".to_owned(),
                reason: String::new(),
            });
            continue;
        };
        tally.kinds.insert(kind);
        if health.state.to_string() == case.expected {
            tally.equal += 1;
        } else {
            tally.differences.push(HealthDifference {
                name: case.name.clone(),
                expected: case.expected.clone(),
                actual: health.state.to_string(),
                reason: health.reason,
            });
        }
    }
    tally
}

/// How long it takes to judge [`TIMED_OBJECTS`] objects.
fn took(cases: &[HealthCase]) -> Duration {
    let library = HealthLibrary::builtin();
    let begun = Instant::now();
    let judged =
        cases.iter().cycle().take(TIMED_OBJECTS).filter_map(|it| library.assess(&it.object));
    std::hint::black_box(judged.count());
    begun.elapsed()
}

fn table(tally: &HealthTally, reasons: &BTreeMap<String, String>, took: Duration) -> String {
    let mut table = String::new();
    // Writing to a String cannot fail.
    let mut line = |text: String| {
        let _ = writeln!(table, "{text}");
    };
    for difference in &tally.differences {
        let HealthDifference { name, expected, actual, reason } = difference;
        let sign = match reasons.get(name) {
            _ if difference.is_opposite() => red("OPPOSITE"),
            Some(_) => dim("on purpose"),
            None => red("DIFFERENT"),
        };
        line(format!("{sign} {name}: {expected} there, {actual} here ({reason})"));
        if let Some(why) = reasons.get(name) {
            line(format!("    {why}"));
        }
    }
    let all = tally.equal + tally.differences.len();
    let percent = 100.0 * f64::from(u32::try_from(tally.equal).unwrap_or(u32::MAX))
        / f64::from(u32::try_from(all.max(1)).unwrap_or(u32::MAX));
    line(bold(&format!("{} of {all} cases equal ({percent:.2} %)", tally.equal)));
    let kinds = HealthLibrary::builtin().kinds().len();
    line(format!("{kinds} kinds and patterns of kinds have rules, {} in cases", tally.kinds.len()));
    if !tally.kinds_without_rule.is_empty() {
        let without: Vec<&str> = tally.kinds_without_rule.iter().map(String::as_str).collect();
        line(format!("without a rule: {}", without.join(", ")));
    }
    let build = if cfg!(debug_assertions) { "without" } else { "with" };
    line(format!(
        "{TIMED_OBJECTS} objects judged in {} ms, {build} optimization",
        took.as_millis()
    ));
    if verdict(tally, reasons).is_ok() {
        line(green("ok"));
    }
    table
}

fn verdict(tally: &HealthTally, reasons: &BTreeMap<String, String>) -> anyhow::Result<()> {
    let all = tally.equal + tally.differences.len();
    let opposite = tally.differences.iter().filter(|it| it.is_opposite()).count();
    ensure!(opposite == 0, "{opposite} cases are healthy for one and failed for the other");
    ensure!(
        tally.equal * 100 >= all * MIN_EQUAL_PERCENT,
        "fewer than {MIN_EQUAL_PERCENT} % of the cases are equal"
    );
    let names: BTreeSet<&str> = tally.differences.iter().map(|it| it.name.as_str()).collect();
    let unexplained = names.iter().filter(|name| !reasons.contains_key(**name)).count();
    ensure!(unexplained == 0, "{unexplained} differences have no reason in {DIFFERENCES_FILE}");
    let stale: Vec<&str> =
        reasons.keys().map(String::as_str).filter(|name| !names.contains(name)).collect();
    ensure!(stale.is_empty(), "{DIFFERENCES_FILE} has reasons of no difference: {stale:?}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A checkout with two cases of a kind. `second` is the expected verdict of the second one.
    fn checkout(second: &str) -> anyhow::Result<tempfile::TempDir> {
        let checkout = tempfile::tempdir()?;
        let folder = checkout.path().join(CASES_FOLDER).join("cert-manager.io/Issuer");
        fs::create_dir_all(&folder)?;
        let object = "apiVersion: cert-manager.io/v1\nkind: Issuer\n";
        let ready = "status: {conditions: [{type: Ready, status: \"True\"}]}\n";
        fs::write(folder.join("new.yaml"), object)?;
        fs::write(folder.join("ready.yaml"), format!("{object}{ready}"))?;
        let cases = format!(
            "tests:\n- {{healthStatus: {{status: Progressing}}, inputPath: new.yaml}}\n\
             - {{healthStatus: {{status: {second}}}, inputpath: ready.yaml}}\n"
        );
        fs::write(folder.join(CASES_FILE), cases)?;
        Ok(checkout)
    }

    fn judged(second: &str) -> anyhow::Result<HealthTally> {
        let checkout = checkout(second)?;
        Ok(judge(&cases(checkout.path())?))
    }

    #[test]
    fn cases_that_are_judged_alike_pass() -> anyhow::Result<()> {
        let tally = judged("Healthy")?;
        assert_eq!((tally.equal, tally.differences.len()), (2, 0));
        verdict(&tally, &BTreeMap::new())
    }

    #[test]
    fn what_one_calls_failed_and_the_other_healthy_fails_with_any_reason() -> anyhow::Result<()> {
        let tally = judged("Degraded")?;
        let reasons = BTreeMap::from([("cert-manager.io/Issuer ready".to_owned(), String::new())]);
        let error = verdict(&tally, &reasons).unwrap_err().to_string();
        assert!(error.contains("healthy for one and failed for the other"), "{error}");
        Ok(())
    }

    #[test]
    fn reasons_and_differences_belong_together() -> anyhow::Result<()> {
        let tally = HealthTally { equal: 99, ..judged("Suspended")? };
        let error = verdict(&tally, &BTreeMap::new()).unwrap_err().to_string();
        assert!(error.contains("1 differences have no reason"), "{error}");
        let name = "cert-manager.io/Issuer ready".to_owned();
        verdict(&tally, &BTreeMap::from([(name.clone(), String::new())]))?;
        let more = BTreeMap::from([(name, String::new()), ("gone".to_owned(), String::new())]);
        let error = verdict(&tally, &more).unwrap_err().to_string();
        assert!(error.contains("gone"), "{error}");
        Ok(())
    }

    #[test]
    fn a_folder_without_cases_is_an_error() -> anyhow::Result<()> {
        let empty = tempfile::tempdir()?;
        assert!(cases(empty.path()).is_err());
        Ok(())
    }

    #[test]
    fn every_reason_says_that_the_difference_is_deliberate() -> anyhow::Result<()> {
        let reasons = reasons(&root().join(DIFFERENCES_FILE))?;
        assert!(reasons.values().all(|it| it.starts_with("Differs(argo-cd): ")), "{reasons:?}");
        Ok(())
    }
}
