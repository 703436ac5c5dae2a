//! Replays whole runs of Flux's image controllers with those of windlass. It compares statuses, events, requests to
//! registries, and the time of the next run.
//!
//! This module has ImageRepositories and ImagePolicies.
//! - `automation` has ImageUpdateAutomations, with their repository (`git_repository`) and keys (`signing_keys`).
//! - `registry` is the registry of a case.
//! - `differences`, `automation_differences` and `update_model` have the results that differ on purpose.
//! - `controller_environment.rs` has the environment of a controller, `controller_run_comparison.rs` compares runs, and `image.rs` has
//!   decisions without a registry.
//!
//! Some differences apply to every case, and are not compared:
//! - `Reconciling` repeats the failure. In Flux it says what was in progress.
//! - A lasting state has one event. It is not repeated if `Ready` had the same reason and message before the run.
//!   Events for Kubernetes alone (`Trace`) are not sent either.
//! - Flux runs an object again at once after it added the finalizer.
//! - windlass sends credentials to a registry that requested them in its first response. Flux requests `/v2/` before.

mod automation;
mod automation_differences;
mod differences;
mod git_repository;
mod registry;
mod signing_keys;
mod update_model;

use std::time::Duration;

use anyhow::Context as _;
use artifacts::store::ObjectFolder;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use image_controller::image_policy::ImagePolicyController;
use image_controller::image_repository::ImageRepositoryController;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};
use sources::oci::OciDigest;
use windlass_runtime::controller_kind::ControllerKind;

use self::differences::{ExpectedImageRun, expected};
use self::registry::{FakeRegistry, RegistryAnswers};
use super::Topic;
use super::case::{Case, CaseFailure, CaseJudgement, ReferenceAnswer, nil};
use super::controller_environment::{ControllerEnvironment, on_runtime};
use super::controller_run_comparison::{ControllerAnswer, ReplayTime, same_answer};

pub(super) const TOPICS: [Topic; 3] = [
    Topic { name: "image/scan", path: "image/scan.jsonl", judge: scan, exceptions: &[] },
    Topic {
        name: "image/policy-reconcile",
        path: "image/policy-reconcile.jsonl",
        judge: choose,
        exceptions: &[],
    },
    Topic {
        name: "image/automation",
        path: "image/automation.jsonl",
        judge: automation::judge,
        exceptions: &[],
    },
];

/// How long a policy waits for tags until its status says that there are none.
const MAX_WAIT_FOR_TAGS: Duration = Duration::from_millis(2250);

/// How many runs this wait takes.
const MAX_RUNS_WITHOUT_TAGS: usize = 4;

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ImageReconcileCase {
    /// The first object is run. The others are also on the API server.
    objects: Vec<Value>,
    #[serde(default)]
    registry: RegistryAnswers,
    /// The tags of the last scan.
    #[serde(default, deserialize_with = "nil")]
    tags_in_database: Vec<String>,
    /// The image with these tags. By default it is the image of the object.
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
    let recorded: ImageReconcileCase = case.inputs()?;
    let compared = match expected(&recorded, wanted) {
        ExpectedImageRun::Answer(wanted) => on_runtime(run::<K>(recorded, &wanted, whole_second())),
        ExpectedImageRun::SameAs(objects) => on_runtime(run_with_both::<K>(recorded, objects)),
    };
    let ImageRunComparison { wanted, before, got, .. } = compared?;
    same_answer(&wanted, &before, &got)
}

/// The placeholder for the host and port of the registry.
const REGISTRY_ADDRESS: &str = "${REGISTRY}";

/// The expected result of a case, and the result of windlass.
struct ImageRunComparison {
    /// The host and port of the registry.
    registry: String,
    wanted: Value,
    /// The object before the run.
    before: Value,
    got: ControllerAnswer,
}

/// Runs a case, and the same case with other objects. The result with the other objects is the expected one.
async fn run_with_both<K: ControllerKind>(
    case: ImageReconcileCase,
    objects: Vec<Value>,
) -> anyhow::Result<ImageRunComparison> {
    let other = ImageReconcileCase { objects, ..case.clone() };
    let now = whole_second();
    let other = run::<K>(other, &Value::Null, now).await?;
    let own = run::<K>(case, &Value::Null, now).await?;
    let wanted = other.got.as_recorded().to_string().replace(&other.registry, &own.registry);
    Ok(ImageRunComparison { wanted: serde_json::from_str(&wanted)?, ..own })
}

/// The time from which the ages in a case count. It is a whole second, because times in statuses are.
fn whole_second() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

/// Runs a case. `now` is the time from which the ages in its objects count.
async fn run<K: ControllerKind>(
    case: ImageReconcileCase,
    wanted: &Value,
    now: Timestamp,
) -> anyhow::Result<ImageRunComparison> {
    let registry = FakeRegistry::start(case.registry).await?;
    let fill = |value: &Value| filled(value, &registry.address, now);
    let objects = case.objects.iter().map(|it| fill(it).map(with_data));
    let objects = objects.collect::<anyhow::Result<Vec<Value>>>()?;
    let before = objects.first().cloned().context("the case has no object")?;
    let flags: &[&str] =
        if case.no_cross_namespace_refs { &["--no-cross-namespace-refs"] } else { &[] };
    let operator = ControllerEnvironment::start(flags, objects.clone()).await?;
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
    let time = ReplayTime::until_now(now, now);
    let events = operator.events().await?;
    let object = operator.object(&before);
    let got = ControllerAnswer { time, object, events, again, requests: registry.requests() };
    let wanted = fill(wanted)?;
    Ok(ImageRunComparison { registry: registry.address, wanted, before, got })
}

/// Replaces the placeholder of the registry, and times such as `<now-90s>`, in a value.
fn filled(value: &Value, address: &str, now: Timestamp) -> anyhow::Result<Value> {
    let text = value.to_string().replace(REGISTRY_ADDRESS, address);
    let mut parts = text.split("<now-");
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (age, rest) = part.split_once('>').context("a time has no end")?;
        let age = reconcile::parse_duration(age).with_context(|| format!("no time: {age}"))?;
        let seconds = i64::try_from(age.as_secs())?;
        let then = Timestamp::from_second(now.as_second() - seconds)?;
        filled.push_str(&then.to_string());
        filled.push_str(rest);
    }
    Ok(serde_json::from_str(&filled)?)
}

/// A Secret as the API server stores it, with `data` in place of `stringData`.
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

/// Stores the tags of each ImageRepository's last scan, like `tag_store` of the controllers. Their revision is that
/// of the status, even if the tags do not match it, because recorded cases invent both.
fn keep_tags(
    operator: &ControllerEnvironment,
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
