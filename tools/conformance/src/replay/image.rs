//! Replays decisions of Flux's image controllers through `engines/image`.
//!
//! This module has tags, policies, the time of a scan, names of images, commit messages, and values set in files. The
//! README of the cases says which answers count as equal. `engines/image` uses this file in its own tests, too.
//! `image_controllers.rs` has whole runs of the controllers, and `image_crd_validation.rs` their definitions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ::image::{
    CheckoutEntryType, CheckoutFiles, CommitMessageData, CommitMessageEnvironment, FilterTags,
    ImageName, ImageRef, ImageSetterValues, ImageValueChange, MarkerRewriteResult, MarkerRewriter,
    ObjectIdentifier, PolicyChoice, PolicyResult, RewriteLimits, RewriteMode, ScanDecision,
    ScanState, TagList, TagPolicy, UpdateResult, check_strategy, commit_message, has_marker,
    read_tags,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use golang::time::{GoTime, GoTimeZone};
use golang::work_meter::{StopSignal, WorkAllowance, WorkMeter};
use goyaml::v3::{YamlNode, YamlNodeKind, YamlNodeStyle};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Topic;
use super::case::{Case, CaseFailure, CaseJudgement, ReferenceAnswer, same, same_value};

pub(super) const TOPICS: [Topic; 6] = [
    Topic { name: "image/tags", path: "image/tags.jsonl", judge: tags, exceptions: &[] },
    Topic { name: "image/policy", path: "image/policy.jsonl", judge: policy, exceptions: &[] },
    Topic {
        name: "image/should-scan",
        path: "image/should-scan.jsonl",
        judge: should_scan,
        exceptions: &[],
    },
    Topic {
        name: "image/reference",
        path: "image/reference.jsonl",
        judge: reference,
        exceptions: &[],
    },
    Topic {
        name: "image/commit-template",
        path: "image/commit-template.jsonl",
        judge: commit_template,
        exceptions: &[],
    },
    Topic { name: "image/setters", path: "image/setters.jsonl", judge: setters, exceptions: &[] },
];

fn meter() -> WorkMeter {
    WorkMeter::new(WorkAllowance { steps: 1_000_000_000, bytes: 64 << 20 }, StopSignal::default())
}

/// The failure of a case whose answer differs from the recorded one.
fn mismatch(wanted: impl ToString, got: impl ToString) -> CaseJudgement {
    Err(CaseFailure::Mismatch { wanted: wanted.to_string(), got: got.to_string() })
}

// ---- tags, policies, scans, names

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ScannedTagsCase {
    exclusion_list: Option<Vec<String>>,
    tags: Vec<String>,
}

fn tags(case: Case) -> CaseJudgement {
    let ScannedTagsCase { exclusion_list, tags } = case.inputs()?;
    let list = TagList::of_scan(tags, &exclusion_list.unwrap_or_default(), &mut meter());
    case.judge(list.map_err(|error| error.to_string()).map(|list| {
        let mut out = json!({
            "latestTags": list.latest(),
            "revisionBadger": list.checksum(),
            "revisionFluxStorage": list.digest(),
            "stored": list.tags(),
            "tagCount": list.tags().len(),
        });
        if let ReferenceAnswer::Out(wanted) = &case.answer {
            if wanted["latestTags"].is_null() && list.latest().is_empty() {
                out["latestTags"] = Value::Null;
            }
            if !wanted["filesystemReadsBack"].is_null() {
                let read = read_tags(&list.stored());
                out["filesystemReadsBack"] =
                    read.map_or_else(|error| json!(error.to_string()), |tags| json!(tags));
            }
        }
        out
    }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SemverPolicyRange {
    range: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SortOrder {
    #[serde(default)]
    order: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ImagePolicyChoiceCase {
    semver: Option<SemverPolicyRange>,
    alphabetical: Option<SortOrder>,
    numerical: Option<SortOrder>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TagFilter {
    #[serde(default)]
    pattern: String,
    #[serde(default)]
    extract: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ImagePolicyCase {
    policy: ImagePolicyChoiceCase,
    filter_tags: Option<TagFilter>,
    tags: Vec<String>,
    #[serde(default)]
    stalled: bool,
}

fn policy(case: Case) -> CaseJudgement {
    let ImagePolicyCase { policy, filter_tags, tags, stalled } = case.inputs()?;
    let choice = PolicyChoice {
        semver: policy.semver.map(|it| it.range),
        alphabetical: policy.alphabetical.map(|it| it.order),
        numerical: policy.numerical.map(|it| it.order),
    };
    let filter = filter_tags.map(|TagFilter { pattern, extract }| FilterTags { pattern, extract });
    let latest = TagPolicy::new(&choice)
        .and_then(|policy| policy.latest(filter.as_ref(), &tags, &mut meter()));
    let is_stalled = latest.as_ref().is_err_and(|error| error.is_terminal());
    if is_stalled != stalled {
        return mismatch(format!("stalled: {stalled}"), format!("stalled: {is_stalled}"));
    }
    case.judge(latest.map(Value::from).map_err(|error| error.to_string()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ImageScanCase {
    object: Value,
    now: String,
    tags_in_database: Option<Vec<String>>,
    database_error: Option<String>,
}

fn should_scan(case: Case) -> CaseJudgement {
    let ImageScanCase { object, now, tags_in_database, database_error } = case.inputs()?;
    let unknown = |what: &str| CaseFailure::NotRun(format!("a form that is not known: {what}"));
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let strings = |pointer: &str| -> Vec<String> {
        let list = object.pointer(pointer).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let interval = text("/spec/interval")
        .and_then(|it| golang::time::GoDuration::parse(it).ok())
        .and_then(|it| u64::try_from(it.nanoseconds()).ok())
        .ok_or_else(|| unknown("spec.interval"))?;
    let last_scan = text("/status/lastScanResult/scanTime").map(str::parse).transpose();
    let exclusion_list = strings("/spec/exclusionList");
    let observed = strings("/status/observedExclusionList");
    let state = ScanState {
        interval: Duration::from_nanos(interval),
        image: text("/spec/image").unwrap_or_default(),
        is_insecure: object.pointer("/spec/insecure").and_then(Value::as_bool).unwrap_or_default(),
        exclusion_list: &exclusion_list,
        requested_at: text("/metadata/annotations/reconcile.fluxcd.io~1requestedAt"),
        last_handled: text("/status/lastHandledReconcileAt").unwrap_or_default(),
        last_scan: last_scan.map_err(|_| unknown("status.lastScanResult.scanTime"))?,
        canonical_name: text("/status/canonicalImageName").unwrap_or_default(),
        observed_exclusion_list: &observed,
        has_tags: match &database_error {
            Some(error) => Err(error),
            None => Ok(tags_in_database.is_some_and(|tags| !tags.is_empty())),
        },
    };
    let decision = state.decide(now.parse().map_err(|_| unknown("now"))?);
    case.judge(decision.map_err(|error| error.to_string()).map(|decision| {
        let (scan, reason, next) = match decision {
            ScanDecision::Scan(reason) => (true, reason.to_string(), state.interval),
            ScanDecision::Wait(next) => (false, String::new(), next),
        };
        let seconds = match next.subsec_nanos() {
            0 => json!(next.as_secs()),
            _ => json!(next.as_secs_f64()),
        };
        json!({"nextSeconds": seconds, "reason": reason, "scan": scan})
    }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ImageNameCase {
    image: String,
    insecure: bool,
}

fn reference(case: Case) -> CaseJudgement {
    let ImageNameCase { image, insecure } = case.inputs()?;
    let name = ImageName::parse(&image, insecure);
    case.judge(name.map_err(|error| error.to_string()).map(|name| {
        json!({
            "canonicalImageName": name.to_string(),
            "registry": name.registry(),
            "repository": name.repository(),
            "scheme": name.scheme(),
        })
    }))
}

// ---- commit messages

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
struct GitIdentity {
    api_version: String,
    kind: String,
    name: String,
    namespace: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AddedChange {
    file: String,
    object: GitIdentity,
    old: String,
    new: String,
    setter: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct CommitMessageCase {
    template: String,
    values: Option<BTreeMap<String, String>>,
    changed: Option<Vec<AddedChange>>,
}

fn commit_template(case: Case) -> CaseJudgement {
    let CommitMessageCase { template, values, changed } = case.inputs()?;
    let mut result = UpdateResult::default();
    for AddedChange { file, object, old, new, setter } in changed.unwrap_or_default() {
        let GitIdentity { api_version, kind, name, namespace } = object;
        let object = ObjectIdentifier { api_version, kind, name, namespace };
        let change = ImageValueChange { old_value: old, new_value: new, setter };
        result.add(&file.into(), &Arc::new(object), change);
    }
    let values = values.as_ref();
    let data =
        CommitMessageData { namespace: "flux-system", name: "apps", changed: &result, values };
    let random = Arc::new(|buffer: &mut [u8]| buffer.fill(0));
    let environment =
        CommitMessageEnvironment { now: GoTime::from_unix(0, 0, GoTimeZone::Utc), random };
    let message = commit_message(&template, &data, &environment);
    case.judge(message.map(Value::from).map_err(|error| error.to_string()))
}

// ---- values set in files

#[derive(Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum FileContent {
    Text(String),
    Base64 {
        base64: String,
    },
    Symlink {
        symlink: String,
    },
    Executable {
        text: String,
        #[serde(rename = "exec")]
        _is_executable: bool,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LatestRef {
    name: String,
    #[serde(default)]
    tag: String,
    #[serde(default)]
    digest: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ImagePolicyObject {
    namespace: String,
    name: String,
    latest_ref: Option<LatestRef>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ImageUpdateSpec {
    #[serde(default)]
    strategy: String,
    path: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct SettersCase {
    files: BTreeMap<String, FileContent>,
    policies: Vec<ImagePolicyObject>,
    path: Option<String>,
    /// If the member is absent, the case is about `ImageSetterValues`. Null means no update.
    #[serde(default, deserialize_with = "present")]
    update: Option<Option<ImageUpdateSpec>>,
    #[serde(default)]
    line_exact: bool,
    /// The files that Flux had written before its run failed. The replay ignores them.
    #[serde(rename = "changedAnyway")]
    _changed_anyway: Option<Value>,
}

/// Reads a member for which null and absence have different meanings.
fn present<'de, D: serde::Deserializer<'de>>(
    from: D,
) -> Result<Option<Option<ImageUpdateSpec>>, D::Error> {
    Option::deserialize(from).map(Some)
}

/// The placeholder for the folder of the repository.
const ROOT: &str = "${ROOT}";

impl SettersCase {
    fn content(&self, path: &str) -> Result<Vec<u8>, CaseFailure> {
        match self.files.get(path) {
            Some(FileContent::Text(text) | FileContent::Executable { text, .. }) => {
                Ok(text.clone().into_bytes())
            }
            Some(FileContent::Base64 { base64 }) => STANDARD
                .decode(base64)
                .map_err(|error| CaseFailure::NotRun(format!("{path}: {error}"))),
            Some(FileContent::Symlink { .. }) | None => {
                Err(CaseFailure::NotRun(format!("{path} is no file")))
            }
        }
    }

    fn checkout(&self) -> CheckoutFiles {
        let entries = self.files.iter().map(|(path, content)| {
            let entry = match content {
                FileContent::Symlink { symlink } => CheckoutEntryType::Link(symlink.clone()),
                FileContent::Text(_)
                | FileContent::Base64 { .. }
                | FileContent::Executable { .. } => CheckoutEntryType::File,
            };
            (path.clone(), entry)
        });
        CheckoutFiles::new(entries.collect())
    }

    /// Runs an update. The results are by the paths of files in the repository.
    fn run(&self, mode: RewriteMode) -> Result<UpdateOutcome, SettersFailure> {
        let failed = |error: &dyn ToString| SettersFailure::Update(error.to_string());
        let (strategy, path) = match &self.update {
            None => (Some("Setters"), self.path.as_deref()),
            Some(None) => (None, None),
            Some(Some(spec)) => {
                (Some(spec.strategy.as_str()), spec.path.as_deref().or(self.path.as_deref()))
            }
        };
        check_strategy(strategy).map_err(|error| failed(&error))?;
        let policies = self.policies.iter().map(|policy| PolicyResult {
            namespace: policy.namespace.clone(),
            name: policy.name.clone(),
            latest: policy.latest_ref.as_ref().map(|latest| ImageRef {
                name: latest.name.clone(),
                tag: latest.tag.clone(),
                digest: latest.digest.clone(),
            }),
        });
        let policies: Vec<PolicyResult> = policies.collect();
        let setters = ImageSetterValues::new(&policies).map_err(|error| failed(&error))?;
        let path = path.unwrap_or_default();
        let selection = self.checkout().select(ROOT, path).map_err(|error| failed(&error))?;
        let mut rewriter = MarkerRewriter::new(&setters, mode, RewriteLimits::default());
        let mut paths = BTreeMap::new();
        for file in selection.files {
            let content = self.content(&file.path)?;
            if has_marker(&content) {
                rewriter.file(&file.name, &content);
            }
            paths.insert(file.name, file.path);
        }
        let rewrite = rewriter.finish(ROOT).map_err(|error| failed(&error))?;
        let files = rewrite.files.iter().map(|(name, text)| {
            let folder = path.trim_matches('/');
            let new = || [folder, name].join("/").trim_start_matches('/').to_owned();
            (paths.get(name).cloned().unwrap_or_else(new), text.clone())
        });
        let files = files.collect();
        Ok(UpdateOutcome { files, rewrite })
    }
}

/// The result of an update.
struct UpdateOutcome {
    /// The new content of files, by their paths in the repository.
    files: BTreeMap<String, String>,
    rewrite: MarkerRewriteResult,
}

enum SettersFailure {
    /// The error of the update.
    Update(String),
    /// The case cannot be read.
    Case(CaseFailure),
}

impl From<CaseFailure> for SettersFailure {
    fn from(failure: CaseFailure) -> Self {
        Self::Case(failure)
    }
}

/// The changes by file and object, in the form of the cases.
fn changes(result: &UpdateResult) -> BTreeMap<String, Value> {
    let files = result.files().into_iter().map(|(file, objects)| {
        let objects = objects.into_iter().map(|(object, changes)| {
            let members = [
                ("apiVersion", &object.api_version),
                ("kind", &object.kind),
                ("name", &object.name),
                ("namespace", &object.namespace),
            ];
            let members = members.into_iter().filter(|(_, text)| !text.is_empty());
            let members: BTreeMap<&str, &String> = members.collect();
            let changes = changes.into_iter().map(|ImageValueChange { old_value, new_value, setter }| {
                json!({"OldValue": old_value, "NewValue": new_value, "Setter": setter})
            });
            json!({"object": members, "changes": changes.collect::<Vec<_>>()})
        });
        (file.to_owned(), sorted(objects.collect()))
    });
    files.collect()
}

/// A sorted list, for lists whose order has no meaning.
fn sorted(mut list: Vec<Value>) -> Value {
    list.sort_by_key(Value::to_string);
    Value::Array(list)
}

/// The text of a file in an answer.
fn file_text(content: &Value) -> &str {
    content.as_str().or_else(|| content["text"].as_str()).unwrap_or_default()
}

fn setters(case: Case) -> CaseJudgement {
    let recorded: SettersCase = case.inputs()?;
    let as_flux = match recorded.run(RewriteMode::AsFlux) {
        Err(SettersFailure::Case(failure)) => return Err(failure),
        Err(SettersFailure::Update(error)) => Err(error),
        Ok(outcome) => Ok(outcome),
    };
    let (wanted_files, wanted_changes) = match (&case.answer, &as_flux) {
        (ReferenceAnswer::Error(wanted), Err(got)) => {
            same(wanted, got)?;
            return recorded.judge_kept(None);
        }
        (ReferenceAnswer::Panic, Err(_)) => return recorded.judge_kept(None),
        (ReferenceAnswer::Out(wanted), Ok(_)) => {
            let files = wanted["files"].as_object().cloned().unwrap_or_default();
            let list = |value: Value| match value {
                Value::Array(list) => sorted(list),
                other => other,
            };
            let changes = wanted["changes"].as_object().cloned().unwrap_or_default();
            let changes: BTreeMap<String, Value> =
                changes.into_iter().map(|(file, value)| (file, list(value))).collect();
            (files, changes)
        }
        (ReferenceAnswer::Error(wanted), Ok(_)) => return mismatch(wanted, "no error"),
        (ReferenceAnswer::Panic, Ok(_)) => return mismatch("an error, as Go panics", "no error"),
        (_, Err(got)) => return mismatch("no error", got),
        _ => return Err(CaseFailure::NotRun("no answer is recorded".to_owned())),
    };
    let Ok(as_flux) = as_flux else { return Ok(()) };
    let wanted_files: BTreeMap<String, String> =
        wanted_files.iter().map(|(path, it)| (path.clone(), file_text(it).to_owned())).collect();
    same_value(&json!(wanted_changes), &json!(changes(&as_flux.rewrite.result)))?;
    same_value(&json!(wanted_files), &json!(as_flux.files))?;
    let kept = KeptAnswer {
        files: &wanted_files,
        changes: &wanted_changes,
        left_out: as_flux.rewrite.problems.iter().map(|it| it.file.clone()).collect(),
    };
    recorded.judge_kept(Some(&kept))
}

/// Flux's answer, with which a run that keeps bytes is compared.
struct KeptAnswer<'a> {
    files: &'a BTreeMap<String, String>,
    changes: &'a BTreeMap<String, Value>,
    left_out: BTreeSet<String>,
}

impl SettersCase {
    /// Compares a run that keeps bytes with Flux's answer. Without an answer, Flux failed.
    fn judge_kept(&self, flux: Option<&KeptAnswer<'_>>) -> CaseJudgement {
        let outcome = match self.run(RewriteMode::KeepBytes) {
            Err(SettersFailure::Case(failure)) => return Err(failure),
            // Both fail if no policy has an image or the path does not exist. In all other cases only Flux may fail.
            Err(SettersFailure::Update(error)) => match flux {
                Some(_) => return mismatch("no error", error),
                None => return Ok(()),
            },
            Ok(outcome) => outcome,
        };
        for (path, new) in &outcome.files {
            let old = self.content(path)?;
            unmarked_lines_stay(&String::from_utf8_lossy(&old), new)?;
        }
        let Some(flux) = flux else { return Ok(()) };
        let got = changes(&outcome.rewrite.result);
        let names: BTreeSet<&String> = got.keys().chain(flux.changes.keys()).collect();
        for name in names.into_iter().filter(|name| !name.is_empty()) {
            let wanted = flux.changes.get(name);
            let is_better =
                wanted.is_none() && (flux.left_out.contains(name.as_str()) || self.is_list(name));
            if !is_better && got.get(name) != wanted {
                let shown = |it: Option<&Value>| it.map(Value::to_string).unwrap_or_default();
                return mismatch(
                    format!("changes of {name}: {}", shown(wanted)),
                    format!("changes of {name}: {}", shown(got.get(name))),
                );
            }
        }
        for (path, wanted) in flux.files.iter().filter(|(path, _)| self.files.contains_key(*path)) {
            let Some(got) = outcome.files.get(path) else {
                return mismatch(format!("{path} changes"), "it stays");
            };
            if self.line_exact {
                same(wanted, got)?;
            } else if !says_the_same(wanted, got) {
                return mismatch(wanted, got);
            }
        }
        Ok(())
    }

    /// Whether a file is a list. Flux moves its items to files of their own.
    fn is_list(&self, name: &str) -> bool {
        let files = self.files.iter().filter(|(path, _)| path.ends_with(name));
        files.into_iter().any(|(_, content)| {
            matches!(content, FileContent::Text(text)
                if text.contains("kind: List") || text.contains("kind: ResourceList")
                    || text.contains("\"kind\""))
        })
    }
}

/// Checks that lines without a marker stay. Lines of a value with a marker nearby may change.
fn unmarked_lines_stay(old: &str, new: &str) -> CaseJudgement {
    let lines: Vec<&str> = old.split('\n').collect();
    let is_marked = |line: &&str| {
        ["$imagepolicy", "u0024imagepolicy", "$ref", "x-k8s-cli"].iter().any(|it| line.contains(it))
    };
    let mut left: Vec<&str> = new.split('\n').collect();
    for (at, line) in lines.iter().enumerate() {
        if let Some(found) = left.iter().position(|it| it == line) {
            left.remove(found);
            continue;
        }
        let near = lines.get(at.saturating_sub(4)..(at + 5).min(lines.len())).unwrap_or_default();
        if !near.iter().any(is_marked) {
            return mismatch(format!("a file with the line {line:?}"), new);
        }
    }
    Ok(())
}

/// Whether two files have documents with the same values, except for values that Flux breaks or removes.
pub(super) fn says_the_same(flux: &str, kept: &str) -> bool {
    let read = |text: &str| -> Option<Vec<YamlNode>> {
        let mut documents =
            goyaml::v3::parse(text.as_bytes(), &goyaml::YamlLimits::default()).ok()?;
        documents.retain(|document| document.content.first().is_some_and(|it| !it.is_null()));
        documents.iter_mut().filter_map(|it| it.content.first_mut()).for_each(without_annotations);
        Some(documents)
    };
    let (Some(flux), Some(kept)) = (read(flux), read(kept)) else { return false };
    let mut pairs: Vec<(&YamlNode, &YamlNode)> = flux.iter().zip(&kept).collect();
    let mut is_same = flux.len() == kept.len();
    while let Some((flux, kept)) = pairs.pop() {
        // Flux makes `!!int v1` of a number, and `''` of a member of a set.
        let is_broken = flux.style.contains(YamlNodeStyle::TAGGED)
            && goyaml::v3::scalar(flux).is_err()
            || flux.tag == "!!null" && !flux.value.is_empty() && kept.value == flux.value
            || flux.value.is_empty() && kept.value.is_empty();
        is_same &= flux.kind == kept.kind
            && flux.value == kept.value
            && flux.content.len() == kept.content.len()
            && (is_broken || flux.short_tag() == kept.short_tag());
        pairs.extend(flux.content.iter().zip(kept.content.iter()));
    }
    is_same
}

/// Removes the parts that Flux removes: annotations of kyaml, and metadata that is empty without them.
fn without_annotations(root: &mut YamlNode) {
    let remove = |map: &mut YamlNode, is_removed: &dyn Fn(&str, &YamlNode) -> bool| {
        if map.kind != YamlNodeKind::Mapping {
            return;
        }
        let places = map.entries().enumerate();
        let removed = places.filter(|(_, (key, value))| is_removed(&key.value, value));
        let removed: Vec<usize> = removed.map(|(at, _)| 2 * at).collect();
        for at in removed.into_iter().rev() {
            map.content.drain(at..at + 2);
        }
    };
    if let Some(metadata) = root.get_mut("metadata") {
        if let Some(annotations) = metadata.get_mut("annotations") {
            remove(annotations, &|key, _| {
                key.contains("config.kubernetes.io/") || key.ends_with("config.k8s.io/id")
            });
        }
        remove(metadata, &|key, value| key == "annotations" && value.content.is_empty());
    }
    remove(root, &|key, value| key == "metadata" && value.content.is_empty());
}
