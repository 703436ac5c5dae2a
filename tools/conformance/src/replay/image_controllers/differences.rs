//! The runs of ImageRepositories and ImagePolicies whose results differ from Flux on purpose.
//!
//! A rule looks only for properties of a case, so it applies to every case with them. It gives the exact expected
//! result. `automation_differences` has the runs of automations.

use ::image::{ImageName, TagList, exclusion_list};
use golang::work_meter::{StopSignal, WorkAllowance, WorkMeter};
use serde_json::{Map, Value, json};
use sources::oci::OciDigest;
use windlass_runtime::unsupported_fields::unsupported_text;

use super::{ImageReconcileCase, REGISTRY_ADDRESS};

/// Flux's message about a manifest for which the registry sends no digest.
const WITHOUT_DIGEST: &str = "response did not include Docker-Content-Digest header";

/// Flux's message before the reason why a policy may not use its ImageRepository.
const ACCESS_DENIED: &str = "failed to get the referred ImageRepository: access denied: ";

/// The message about an image without tags.
const WITHOUT_TAGS: &str = "retrying in 30s error: no tags in database";

/// The seconds after which a policy checks again for tags.
const DEPENDENCY_DELAY_SECONDS: u32 = 30;

/// The expected result of a run.
pub(super) enum ExpectedImageRun {
    /// This answer.
    Answer(Value),
    /// The same result as that of the run with these objects.
    SameAs(Vec<Value>),
}

/// The expected result of a recorded run.
pub(super) fn expected(case: &ImageReconcileCase, recorded: &Value) -> ExpectedImageRun {
    let Some(object) = case.objects.first() else {
        return ExpectedImageRun::Answer(recorded.clone());
    };
    let run = RecordedImageRun { case, object, recorded };
    if let Some(objects) = run.with_default_provider() {
        return ExpectedImageRun::SameAs(objects);
    }
    let answer = run
        .with_unsupported_provider()
        .or_else(|| run.of_unscanned_image())
        .or_else(|| run.of_manifest_without_digest())
        .or_else(|| run.of_repeated_scan())
        .or_else(|| run.with_invalid_label());
    ExpectedImageRun::Answer(answer.unwrap_or_else(|| recorded.clone()))
}

struct RecordedImageRun<'c> {
    case: &'c ImageReconcileCase,
    object: &'c Value,
    recorded: &'c Value,
}

/// The condition `Ready` of a status.
fn ready(status: &Value) -> &Value {
    let conditions = status["conditions"].as_array();
    let found = conditions.into_iter().flatten().find(|it| it["type"] == "Ready");
    found.unwrap_or(&Value::Null)
}

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value[field].as_str().unwrap_or_default()
}

impl<'c> RecordedImageRun<'c> {
    fn is_policy(&self) -> bool {
        self.object["kind"] == "ImagePolicy"
    }

    /// Whether the controller did more than find that the object needs no work.
    fn is_attempted(&self) -> bool {
        let metadata = &self.object["metadata"];
        self.recorded["requeue"] != true
            && self.object["spec"]["suspend"] != true
            && metadata["deletionTimestamp"].is_null()
    }

    /// The condition `Ready` in the recorded status.
    fn said(&self) -> &'c Value {
        ready(&self.recorded["object"]["status"])
    }

    /// Whether the recorded run of a policy ended before the controller examined the image.
    fn is_refused_before_image(&self) -> bool {
        let said = self.said();
        let reason = text(said, "reason");
        ["AccessDenied", "IntervalNotConfigured"].contains(&reason)
            || text(said, "message").starts_with("failed to get the referred ImageRepository")
    }

    /// The ImageRepository that is run, or that the policy names. `None` if the case does not contain it.
    fn repository(&self) -> Option<&'c Value> {
        if !self.is_policy() {
            return Some(self.object);
        }
        let reference = &self.object["spec"]["imageRepositoryRef"];
        let own = &self.object["metadata"]["namespace"];
        let namespace =
            if reference["namespace"].is_string() { &reference["namespace"] } else { own };
        self.case.objects.iter().find(|it| {
            let metadata = &it["metadata"];
            it["kind"] == "ImageRepository"
                && metadata["name"] == reference["name"]
                && metadata["namespace"] == *namespace
        })
    }

    /// An answer whose status has these members, the other members of the status before, and this condition `Ready`.
    fn answer(&self, changed: Value, conditions: Value, event: Value) -> Value {
        let mut status: Map<String, Value> =
            self.object["status"].as_object().cloned().unwrap_or_default();
        if let Value::Object(changed) = changed {
            status.extend(changed);
        }
        let handled = &self.recorded["object"]["status"]["lastHandledReconcileAt"];
        if !handled.is_null() {
            status.insert("lastHandledReconcileAt".to_owned(), handled.clone());
        }
        status.insert("conditions".to_owned(), conditions);
        json!({
            "object": {"finalizers": self.recorded["object"]["finalizers"], "status": status},
            "events": [event],
            "requeueAfterSeconds": 0,
        })
    }

    fn condition(&self, kind: &str, status: &str, reason: &str, message: &str) -> Value {
        let generation = &self.object["metadata"]["generation"];
        json!({"type": kind, "status": status, "reason": reason, "message": message,
            "observedGeneration": generation})
    }

    /// An answer of a successful run with this message.
    fn success(&self, mut changed: Value, message: &str) -> Value {
        changed["observedGeneration"] = self.object["metadata"]["generation"].clone();
        let conditions = json!([self.condition("Ready", "True", "Succeeded", message)]);
        let event = json!({"type": "Normal", "reason": "Succeeded", "message": message});
        self.answer(changed, conditions, event)
    }

    /// The field `spec.interval` of the object in seconds. `None` if it is missing or invalid.
    fn interval(&self) -> Option<f64> {
        let interval = self.object["spec"]["interval"].as_str()?;
        Some(reconcile::parse_duration(interval).ok()?.as_secs_f64())
    }

    /// The objects of the case with `spec.provider`, which the API server fills in. Without that field, Flux takes a
    /// ServiceAccount for a cloud login, which needs a feature gate. `None` for other cases.
    fn with_default_provider(&self) -> Option<Vec<Value>> {
        let repository = self.repository()?;
        let spec = &repository["spec"];
        let is_meant = self.said()["reason"] == "FeatureGateDisabled"
            && spec["provider"].is_null()
            && spec["serviceAccountName"].is_string();
        let filled = self.case.objects.iter().map(|object| {
            let mut object = object.clone();
            if object == *repository {
                object["spec"]["provider"] = json!("generic");
            }
            object
        });
        is_meant.then(|| filled.collect())
    }

    /// The expected result for logins of Azure and Google Cloud, and of AWS with a ServiceAccount. windlass does not support
    /// them, and the status says so. `None` for other cases.
    fn with_unsupported_provider(&self) -> Option<Value> {
        let repository = self.repository()?;
        let spec = &repository["spec"];
        let fields = match text(spec, "provider") {
            "azure" => ["spec.provider `azure`"],
            "gcp" => ["spec.provider `gcp`"],
            "aws" if spec["serviceAccountName"].is_string() => {
                ["spec.serviceAccountName with spec.provider `aws`"]
            }
            _ => return None,
        };
        if !self.is_attempted() || (self.is_policy() && self.is_refused_before_image()) {
            return None;
        }
        let mut message = unsupported_text(&fields);
        if self.is_policy() {
            let metadata = &repository["metadata"];
            let place = format!("{}/{}", text(metadata, "namespace"), text(metadata, "name"));
            message = format!("ImageRepository/{place}: {message}");
        }
        let conditions = json!([
            self.condition("Stalled", "True", "UnsupportedField", &message),
            self.condition("Ready", "False", "UnsupportedField", &message),
        ]);
        let event = json!({"type": "Warning", "reason": "UnsupportedField", "message": message});
        let generation = &self.object["metadata"]["generation"];
        Some(self.answer(json!({"observedGeneration": generation}), conditions, event))
    }

    /// The expected result for an image that its ImageRepository has not scanned. Its policy has no tags until then. In the
    /// recordings, every image has tags. `None` for other cases.
    fn of_unscanned_image(&self) -> Option<Value> {
        if !self.is_policy() || !self.is_attempted() || self.is_refused_before_image() {
            return None;
        }
        let is_of_tags =
            ["Succeeded", "Failed", "DependencyNotReady"].contains(&text(self.said(), "reason"));
        if !is_of_tags || is_scanned(self.repository()?) {
            return None;
        }
        let conditions = json!([
            self.condition("Reconciling", "True", "ProgressingWithRetry", WITHOUT_TAGS),
            self.condition("Ready", "False", "DependencyNotReady", WITHOUT_TAGS),
        ]);
        let event =
            json!({"type": "Warning", "reason": "DependencyNotReady", "message": WITHOUT_TAGS});
        let mut answer = self.answer(json!({}), conditions, event);
        answer["requeueAfterSeconds"] = json!(DEPENDENCY_DELAY_SECONDS);
        Some(answer)
    }

    /// The expected result for a manifest whose digest the registry does not send. windlass fetches the manifest and computes
    /// its digest. `None` for other cases.
    fn of_manifest_without_digest(&self) -> Option<Value> {
        let error = text(self.recorded, "error");
        let rest = error.strip_prefix("failed fetching digest of ")?;
        if !error.ends_with(WITHOUT_DIGEST) {
            return None;
        }
        let (image, _) = rest.split_once(": ")?;
        let (name, tag) = image.rsplit_once(':')?;
        let digest = OciDigest::of(format!("manifest of {tag}").as_bytes()).to_string();
        let latest = json!({"name": name, "tag": tag, "digest": digest});
        let status = &self.object["status"];
        let is_same = status["latestRef"] == latest;
        let before = if is_same { &status["observedPreviousRef"] } else { &status["latestRef"] };
        let mut message =
            format!("Latest image tag for {name} resolved to {tag} with digest {digest}");
        let mut changed = json!({"latestRef": latest});
        if !before.is_null() {
            let at = before["digest"].as_str().map(|digest| format!("@{digest}"));
            let at = at.unwrap_or_default();
            let shown = format!("{}:{}{at}", text(before, "name"), text(before, "tag"));
            message.push_str(&format!(" (previously {shown})"));
            changed["observedPreviousRef"] = before.clone();
        }
        let mut answer = self.success(changed, &message);
        answer["requests"] = self.recorded["requests"].clone();
        if self.object["spec"]["digestReflectionPolicy"] == "Always" {
            answer["requeueAfterSeconds"] = json!(self.interval()?);
        }
        Some(answer)
    }

    /// The expected result for a failed scan, which windlass repeats before its interval is over. `None` for other cases.
    fn of_repeated_scan(&self) -> Option<Value> {
        let before = &self.object["status"];
        let is_skipped =
            self.said()["reason"] == "Succeeded" && self.recorded["requests"].is_null();
        let has_failed = ready(before)["status"] != "True" && before["lastScanResult"].is_object();
        if self.is_policy() || !self.is_attempted() || !is_skipped || !has_failed {
            return None;
        }
        let image = self.recorded["object"]["status"]["canonicalImageName"].as_str()?;
        let path = image.strip_prefix(REGISTRY_ADDRESS)?;
        let exclusions: Vec<String> =
            serde_json::from_value(self.object["spec"]["exclusionList"].clone())
                .unwrap_or_default();
        let allowance = WorkAllowance { steps: 1_000_000_000, bytes: 64 << 20 };
        let mut meter = WorkMeter::new(allowance, StopSignal::default());
        let listed = self.case.registry.listed()?.to_vec();
        let tags = TagList::of_scan(listed, &exclusions, &mut meter).ok()?;
        let count = tags.tags().len();
        let revision = tags.checksum();
        let changed = json!({
            "canonicalImageName": image,
            "observedExclusionList": exclusion_list(&exclusions),
            "lastScanResult": {"revision": revision, "tagCount": count,
                "latestTags": tags.latest(), "scanTime": "<now>"},
        });
        let message = format!("successful scan: found {count} tags with checksum {revision}");
        let mut answer = self.success(changed, &message);
        answer["requests"] = json!([format!("GET /v2{path}/tags/list?n=1000")]);
        answer["requeueAfterSeconds"] = json!(self.interval()?);
        Some(answer)
    }

    /// The expected result for a selector with an invalid label, which matches no namespace. Flux's message says why the label
    /// is invalid. `None` for other cases.
    fn with_invalid_label(&self) -> Option<Value> {
        let repository = self.repository()?;
        let selectors = repository["spec"]["accessFrom"]["namespaceSelectors"].as_array()?;
        let mut labels = selectors.iter().filter_map(|it| it["matchLabels"].as_object()).flatten();
        let is_valid = labels.all(|(key, value)| is_label_key(key) && is_label_value(value));
        if is_valid || !text(self.recorded, "error").starts_with(ACCESS_DENIED) {
            return None;
        }
        let metadata = &repository["metadata"];
        let place = format!("{}/{}", text(metadata, "namespace"), text(metadata, "name"));
        let own = text(&self.object["metadata"], "namespace");
        let why =
            format!("'{place}' can't be accessed due to ACL labels mismatch on namespace '{own}'");
        let message = format!("{ACCESS_DENIED}{why}");
        let conditions = json!([
            self.condition("Reconciling", "True", "ProgressingWithRetry", &message),
            self.condition("Ready", "False", "AccessDenied", &message),
        ]);
        let event = json!({"type": "Warning", "reason": "AccessDenied", "message": message});
        let mut answer = self.answer(json!({}), conditions, event);
        answer["error"] = json!(message);
        Some(answer)
    }
}

/// Whether the last scan of an ImageRepository was of its present image. An ImageRepository without an image reports
/// that itself.
fn is_scanned(repository: &Value) -> bool {
    let address = "127.0.0.1:5000";
    let image = text(&repository["spec"], "image").replace(REGISTRY_ADDRESS, address);
    let scanned = text(&repository["status"], "canonicalImageName");
    let scanned = scanned.replace(REGISTRY_ADDRESS, address);
    match ImageName::parse(&image, repository["spec"]["insecure"] == true) {
        Ok(name) => name.to_string() == scanned,
        Err(_) => true,
    }
}

/// Whether a text is a valid label name, without a domain before it.
fn is_label_name(name: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    bytes.len() <= 63
        && bytes.iter().copied().all(is_inner)
        && is_end(bytes.first())
        && is_end(bytes.last())
}

fn is_label_key(key: &str) -> bool {
    match key.split_once('/') {
        Some((domain, name)) => !domain.is_empty() && is_label_name(name),
        None => is_label_name(key),
    }
}

fn is_label_value(value: &Value) -> bool {
    value.as_str().is_some_and(|value| value.is_empty() || is_label_name(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_has_the_form_of_kubernetes() {
        for key in ["env", "team.io/env", "a_b.c-d"] {
            assert!(is_label_key(key), "{key}");
        }
        for key in ["bad key!", "", "-a", "a-", "/env", "team.io/"] {
            assert!(!is_label_key(key), "{key}");
        }
        assert!(is_label_value(&json!("")));
        assert!(!is_label_value(&json!("a b")));
        assert!(!is_label_value(&json!(1)));
    }

    #[test]
    fn an_image_is_scanned_by_its_canonical_name() {
        let repository = |image: &str| {
            json!({"spec": {"image": image},
                "status": {"canonicalImageName": "${REGISTRY}/acme/app"}})
        };
        assert!(is_scanned(&repository("${REGISTRY}/acme/app")));
        assert!(!is_scanned(&repository("${REGISTRY}/acme/other")));
        assert!(is_scanned(&repository("https://x/y")), "it names no image");
    }
}
