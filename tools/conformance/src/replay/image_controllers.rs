//! Whole runs of Flux's image controllers, beside those of ours: statuses, events, requests to registries, and when the next run
//! is due.
//!
//! Here: ImageRepositories and ImagePolicies. In the folder: ImageUpdateAutomations (`automation`) and their repository
//! (`git_repository`), the registry of a case (`registry`), what a controller runs with (`operator`), what counts as the same
//! (`comparison`). Elsewhere: what they decide without a registry (`image.rs`).
//!
//! Differences that hold for every case are not compared:
//! - `Reconciling` repeats the failure, where Flux's says what was in progress.
//! - What lasts has one event: one whose reason and message `Ready` has before the run does not come. Nor do events for
//!   Kubernetes alone (`Trace`).
//! - An object without a finalizer is run at once after it got one.
//! - Credentials are sent to a registry that asked for them in its first answer, where Flux asks `/v2/` before.
//!
//! Runs that differ on purpose are not run, with the reason (`difference`).

mod automation;
mod comparison;
mod git_repository;
mod operator;
mod registry;

use std::time::Duration;

use ::image::ImageName;
use anyhow::Context as _;
use artifacts::store::ObjectFolder;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use image_controller::image_policy::ImagePolicyController;
use image_controller::image_repository::ImageRepositoryController;
use serde::Deserialize;
use serde_json::{Map, Value};
use sources::oci::OciDigest;
use windlass_runtime::controller_kind::ControllerKind;

use self::comparison::{ControllerAnswer, same_answer};
use self::operator::FakeOperator;
use self::registry::{FakeRegistry, RegistryAnswers};
use super::Topic;
use super::case::{Case, CaseFailure, CaseJudgement, ReferenceAnswer, nil};

pub(super) const TOPICS: [Topic; 3] = [
    Topic { name: "image/scan", path: "image/scan.jsonl", judge: scan, exceptions: &[] },
    Topic {
        name: "image/policy-reconcile",
        path: "image/policy-reconcile.jsonl",
        judge: choose,
        exceptions: POLICY_EXCEPTIONS,
    },
    Topic {
        name: "image/automation",
        path: "image/automation.jsonl",
        judge: automation::judge,
        exceptions: automation::EXCEPTIONS,
    },
];

/// What is as it is on purpose.
const POLICY_EXCEPTIONS: &[(&str, &str)] = &[(
    "access/11",
    "a label whose key Kubernetes does not allow is that of no namespace; Flux says what is wrong with the key",
)];

/// The stack of the threads on which controllers block.
const STACK_BYTES: usize = 16 << 20;

/// The longest time that a policy waits for tags before its status says that there are none.
const MAX_WAIT_FOR_TAGS: Duration = Duration::from_millis(2250);

/// How many runs that takes.
const MAX_RUNS_WITHOUT_TAGS: usize = 4;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ReconcileCase {
    /// The object that is run, and what else the API server has.
    objects: Vec<Value>,
    #[serde(default)]
    registry: RegistryAnswers,
    /// What the last scan found.
    #[serde(default, deserialize_with = "nil")]
    tags_in_database: Vec<String>,
    /// The image of these tags, by default that of the object.
    database_name: Option<String>,
    #[serde(default)]
    no_cross_namespace_refs: bool,
}

fn scan(case: Case) -> CaseJudgement {
    judge::<ImageRepositoryController>(&case)
}

fn choose(case: Case) -> CaseJudgement {
    judge::<ImagePolicyController>(&case)
}

fn judge<K: ControllerKind>(case: &Case) -> CaseJudgement {
    let ReferenceAnswer::Out(wanted) = &case.answer else {
        return Err(CaseFailure::NotRun("no answer is recorded".to_owned()));
    };
    let recorded: ReconcileCase = case.inputs()?;
    if let Some(why) = difference(&recorded, wanted) {
        return Err(CaseFailure::NotRun(why));
    }
    let RunComparison { wanted, before, got } = on_runtime(run::<K>(recorded, wanted))?;
    same_answer(&wanted, &before, &got)
}

/// Does the work of a case on a runtime of its own.
fn on_runtime<T>(work: impl Future<Output = anyhow::Result<T>>) -> Result<T, CaseFailure> {
    let unusable = |error: anyhow::Error| CaseFailure::Mismatch {
        wanted: "a run".to_owned(),
        got: format!("{error:#}"),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_stack_size(STACK_BYTES)
        .enable_all()
        .build()
        .map_err(|error| unusable(error.into()))?;
    let outcome = runtime.block_on(work);
    // A request that is not answered has a thread until its time is up.
    runtime.shutdown_background();
    outcome.map_err(unusable)
}

/// Why the run of a case is another one on purpose.
fn difference(case: &ReconcileCase, wanted: &Value) -> Option<String> {
    let object = case.objects.first()?;
    let says = |reason: &str| {
        let conditions = wanted.pointer("/object/status/conditions").and_then(Value::as_array);
        conditions.into_iter().flatten().any(|condition| condition["reason"] == reason)
    };
    let repositories = case.objects.iter().filter(|it| it["kind"] == "ImageRepository");
    let is_deleted = object["metadata"]["deletionTimestamp"].is_string();
    let why = if is_deleted && object["spec"]["suspend"] == true {
        "an object that is suspended and deleted is finalized"
    } else if says("FeatureGateDisabled") {
        "a ServiceAccount without spec.provider, or with that of a cloud, is no feature gate"
    } else if repositories.clone().any(has_unsupported_provider) {
        "spec.provider is not supported, which the status says"
    } else if repositories.clone().any(|it| !is_scanned(it)) && object["kind"] == "ImagePolicy" {
        "a policy has no tags of an image that its ImageRepository has not scanned"
    } else if case.registry.has_no_digests() {
        "a registry that answers without a digest is asked for the manifest"
    } else if is_failed_scan(object) && wanted["requests"].is_null() && says("Succeeded") {
        "a scan that failed is repeated before its interval is over"
    } else {
        return None;
    };
    Some(why.to_owned())
}

/// The providers that windlass does not support.
fn has_unsupported_provider(repository: &Value) -> bool {
    let spec = &repository["spec"];
    let is_of_account = spec["provider"] == "aws" && spec["serviceAccountName"].is_string();
    spec["provider"] == "azure" || spec["provider"] == "gcp" || is_of_account
}

/// Whether the last scan of an ImageRepository was of the image that it names now. One that names none says so itself.
fn is_scanned(repository: &Value) -> bool {
    let image = repository["spec"]["image"].as_str().unwrap_or_default();
    let is_insecure = repository["spec"]["insecure"] == true;
    let image = image.replace(REGISTRY_ADDRESS, "127.0.0.1:5000");
    let scanned = repository["status"]["canonicalImageName"].as_str().unwrap_or_default();
    let scanned = scanned.replace(REGISTRY_ADDRESS, "127.0.0.1:5000");
    match ImageName::parse(&image, is_insecure) {
        Ok(name) => name.to_string() == scanned,
        Err(_) => true,
    }
}

/// Whether the last scan of an ImageRepository failed.
fn is_failed_scan(object: &Value) -> bool {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    object["kind"] == "ImageRepository"
        && conditions.any(|it| it["type"] == "Ready" && it["status"] == "False")
}

/// Host and port of the registry in a case.
const REGISTRY_ADDRESS: &str = "${REGISTRY}";

/// What a case wants, and what ours came to.
struct RunComparison {
    wanted: Value,
    /// The object before the run.
    before: Value,
    got: ControllerAnswer,
}

async fn run<K: ControllerKind>(
    case: ReconcileCase,
    wanted: &Value,
) -> anyhow::Result<RunComparison> {
    let registry = FakeRegistry::start(case.registry).await?;
    let now = jiff::Timestamp::now();
    let fill = |value: &Value| filled(value, &registry.address, now);
    let objects = case.objects.iter().map(|it| fill(it).map(with_data));
    let objects = objects.collect::<anyhow::Result<Vec<Value>>>()?;
    let before = objects.first().cloned().context("the case has no object")?;
    let flags: &[&str] =
        if case.no_cross_namespace_refs { &["--no-cross-namespace-refs"] } else { &[] };
    let operator = FakeOperator::start(flags, objects.clone()).await?;
    if !case.tags_in_database.is_empty() {
        let image =
            case.database_name.map(|name| name.replace(REGISTRY_ADDRESS, &registry.address));
        keep_tags(&operator, &objects, image.as_deref(), &case.tags_in_database)?;
    }
    let mut again = operator.run::<K>(&before).await?;
    let is_policy = before["kind"] == "ImagePolicy";
    for _ in 1..MAX_RUNS_WITHOUT_TAGS {
        let is_waiting = again.is_some_and(|it| it <= MAX_WAIT_FOR_TAGS) && is_policy;
        if !is_waiting || operator.object(&before)["status"] != before["status"] {
            break;
        }
        again = operator.run::<K>(&before).await?;
    }
    let events = operator.events().await?;
    let object = operator.object(&before);
    let got = ControllerAnswer { object, events, again, requests: registry.requests() };
    Ok(RunComparison { wanted: fill(wanted)?, before, got })
}

/// A value with the address of the registry, and times instead of `<now-90s>`.
fn filled(value: &Value, address: &str, now: jiff::Timestamp) -> anyhow::Result<Value> {
    let text = value.to_string().replace(REGISTRY_ADDRESS, address);
    let mut parts = text.split("<now-");
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (age, rest) = part.split_once('>').context("a time has no end")?;
        let age = reconcile::parse_duration(age).with_context(|| format!("no time: {age}"))?;
        let seconds = i64::try_from(age.as_secs())?;
        let then = jiff::Timestamp::from_second(now.as_second() - seconds)?;
        filled.push_str(&then.to_string());
        filled.push_str(rest);
    }
    Ok(serde_json::from_str(&filled)?)
}

/// A Secret with `stringData` as the API server has it.
fn with_data(mut object: Value) -> Value {
    if let Value::Object(strings) = object["stringData"].take() {
        let encoded = strings.into_iter().map(|(key, value)| {
            let value = STANDARD.encode(value.as_str().unwrap_or_default());
            (key, Value::String(value))
        });
        let encoded: Map<String, Value> = encoded.collect();
        match object["data"].as_object_mut() {
            Some(data) => data.extend(encoded),
            None => object["data"] = Value::Object(encoded),
        }
    }
    if let Some(fields) = object.as_object_mut() {
        fields.remove("stringData");
    }
    object
}

/// Stores the tags that the last scan of each ImageRepository found, as `tag_store` of the controllers does. Their revision is that
/// of the status, whatever the tags are: in recorded cases the two are made up.
fn keep_tags(
    operator: &FakeOperator,
    objects: &[Value],
    image: Option<&str>,
    tags: &[String],
) -> anyhow::Result<()> {
    for repository in objects.iter().filter(|it| it["kind"] == "ImageRepository") {
        let text = |place: &str| {
            repository.pointer(place).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let image = image.map_or_else(|| text("/status/canonicalImageName"), str::to_owned);
        let revision = text("/status/lastScanResult/revision");
        let stored: String = tags.iter().flat_map(|tag| [tag.as_str(), "\n"]).collect();
        let digest = OciDigest::of(stored.as_bytes());
        let slot = ObjectFolder::new(
            "imagerepository",
            &text("/metadata/namespace"),
            &text("/metadata/name"),
        )?;
        let note = format!("{image} {revision} {digest}\n{stored}");
        operator.context.artifacts.keep_note(&slot, note.as_bytes())?;
    }
    Ok(())
}
