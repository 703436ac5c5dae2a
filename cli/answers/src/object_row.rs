//! The fields of an object in tables: readiness, revision, suspension and message.

use apply::health::{self, HealthStatus};
use cause::object_references::is_reconciled;
use cause::{ConditionView, condition};
use crds::windlass_release::{FreezeSpec, FreezeStatus};
use objects::Object;
use reconcile::{ObjectHold, Time, WindowEnd};
use serde_json::Value;

use super::change_sets;
use windlass_cli_runtime::quarantine_lift;
use windlass_runtime::freeze::calendar;

/// The fields of an object in a table row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectRow {
    /// `True`, `False` or `Unknown`. Empty if the object does not report it.
    pub ready: String,
    /// The reason of the `Ready` condition.
    pub reason: String,
    /// The message for the user.
    pub message: String,
    /// The revision that the object has or applied. Digests are shortened.
    pub revision: String,
    /// Since when the `Ready` condition has its status. Without the condition, since when the object has its revision.
    pub since: Option<Time>,
    /// Who suspended the object, and until when. Empty if it is not suspended.
    pub suspended: String,
    /// When the object was created.
    pub created: Option<Time>,
}

impl ObjectRow {
    /// Makes the row of an object of windlass or Flux, whose status reports its state.
    pub fn of(object: &Object, now: Time) -> Self {
        let said = condition(object, "Ready");
        let text = |of: fn(ConditionView<'_>) -> &str| said.map(of).unwrap_or_default().to_owned();
        let (revision, since) = revision(object);
        let suspended = suspension(object, now);
        // A condition about an older spec does not describe the current spec.
        let is_old = suspended.is_empty() && said.is_some_and(|it| is_of_older_spec(object, it));
        let message = match is_old {
            true => format!(
                "generation {} of its spec has not been reconciled yet",
                object.generation()
            ),
            false => {
                let of_gate = asked(object).or_else(|| withheld(object));
                let of_gate = of_gate.or_else(|| denied(object, now)).or_else(|| let_begin(object));
                let of_gate = of_gate.or_else(|| quarantine_lift::row_message(object));
                let of_gate = of_gate.or_else(|| change_sets::row_message(object));
                of_gate.unwrap_or_else(|| text(|it| it.message))
            }
        };
        let ready = text(|it| it.status);
        let is_unknown = is_old && ready == "True";
        Self {
            ready: if is_unknown { "Unknown".to_owned() } else { ready },
            reason: text(|it| it.reason),
            message,
            revision: short(&revision),
            since: match is_unknown {
                true => cause::spec_changed(object),
                false => said.and_then(|it| cause::since(object, it)).or(since),
            },
            suspended,
            created: time(object.meta("creationTimestamp")),
        }
    }

    /// Makes the row of an object of any kind. If neither windlass nor Flux reconciles the object, the row derives its
    /// readiness from the health in its status.
    pub fn of_any(object: &Object, now: Time) -> Self {
        let row = Self::of(object, now);
        if is_reconciled(&object.id()) || condition(object, "Ready").is_some() {
            return row;
        }
        match health::third_party_kind_rules::compute_refined(object, now) {
            Ok(report) => {
                let ready = match report.status {
                    HealthStatus::Current => "True",
                    HealthStatus::Unknown(_) => "Unknown",
                    HealthStatus::InProgress
                    | HealthStatus::Failed
                    | HealthStatus::Terminating
                    | HealthStatus::NotFound => "False",
                };
                let message =
                    if report.is_current() { String::new() } else { report.words().to_owned() };
                let reason = report.status.to_string();
                Self { ready: ready.to_owned(), reason, message, ..row }
            }
            Err(error) => Self { ready: "Unknown".to_owned(), message: error.to_string(), ..row },
        }
    }

    /// Whether the object is suspended.
    pub fn is_suspended(&self) -> bool {
        !self.suspended.is_empty()
    }
}

/// Whether a condition is about an older generation than the newest.
fn is_of_older_spec(object: &Object, said: ConditionView<'_>) -> bool {
    let observed = object.get("status").and_then(|it| it["observedGeneration"].as_i64());
    said.generation.or(observed).is_some_and(|seen| seen < object.generation())
}

/// The text about a LifecycleEvent in its table row: its phase, its subject, and how far its answer is. `None` for objects of
/// other kinds.
fn asked(object: &Object) -> Option<String> {
    let is_event = object.kind() == "LifecycleEvent"
        && object.api_version().starts_with("lifecycle.windlass.dev/");
    let spec = object.get("spec").filter(|_| is_event)?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let status = object.get("status").unwrap_or(&Value::Null);
    let phase = text(&spec["phase"]);
    let lifecycle = text(&spec["lifecycle"]);
    let subject = &spec["subject"];
    let release = match text(&subject["release"]) {
        release if release.is_empty() => release,
        release => format!(", release {release}"),
    };
    let subject = format!("{}/{}{release}", text(&subject["kind"]), text(&subject["name"]));
    let state = match status["phase"].as_str() {
        None | Some("") => "Pending",
        Some(state) => state,
    };
    let mut said = format!("{phase} of {subject}, lifecycle {lifecycle}: {state}");
    if let Some(needed) = spec["approvals"].as_i64().filter(|needed| *needed > 0) {
        let count = status["approvals"].as_array().map_or(0, Vec::len);
        said.push_str(&format!(", {count} of {needed} approvals"));
    }
    if let Some(message) = status["message"].as_str() {
        said.push_str(&format!(", {message}"));
    }
    Some(said)
}

/// The text about a Plan in its table row: what the Plan holds back, and who approved or rejected it. `None` for objects of
/// other kinds.
fn withheld(object: &Object) -> Option<String> {
    let spec = object.get("spec").filter(|_| is_of_releases(object, "Plan"))?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let release = match text(&spec["subject"]["release"]) {
        release if release.is_empty() => release,
        release => format!(", release {release}"),
    };
    let subject = &spec["subject"];
    let subject = format!("{}/{}{release}", text(&subject["kind"]), text(&subject["name"]));
    let what = match &spec["changes"] {
        Value::Null => counted(&spec["count"], "deletion"),
        changes => {
            let kinds = ["removed", "recreated", "changed", "added"].into_iter();
            let parts = kinds
                .map(|kind| (changes[kind].as_i64().unwrap_or_default(), kind))
                .filter(|(count, _)| *count > 0)
                .map(|(count, kind)| format!("{count} {kind}"));
            let parts: Vec<String> = parts.collect();
            match parts.is_empty() {
                true => "no object changes".to_owned(),
                false => parts.join(", "),
            }
        }
    };
    let status = object.get("status").unwrap_or(&Value::Null);
    let approvals = status["approvals"].as_array().into_iter().flatten();
    let users: Vec<&str> = approvals.filter_map(|it| it["user"].as_str()).collect();
    let is_of_deletions = spec["changes"].is_null();
    if let Some(user) = status["rejection"]["user"].as_str() {
        return Some(match is_of_deletions {
            true => format!("{what} of {subject}, rejected by {user}"),
            false => format!("{subject}: {what}; rejected by {user}"),
        });
    }
    let approved_by = match (users.is_empty(), status["pullRequest"]["number"].as_i64()) {
        (false, _) => {
            let needed = spec["approvals"].as_i64().filter(|needed| *needed > 1);
            let count = needed.map(|needed| format!(", {} of {needed} approvals", users.len()));
            Some(format!("{}{}", users.join(", "), count.unwrap_or_default()))
        }
        (true, Some(number)) => Some(format!("pull request {number}")),
        (true, None) => None,
    };
    if let Some(approved_by) = approved_by {
        return Some(match is_of_deletions {
            true => format!("{what} of {subject}, approved by {approved_by}"),
            false => format!("{subject}: {what}; approved by {approved_by}"),
        });
    }
    let waiting = match is_of_deletions {
        true => format!("{what} of {subject} wait for approval"),
        false => format!("{subject}: {what}; waits for approval"),
    };
    Some(match pull_request_message(status) {
        Some(why) => format!("{waiting}; by pull request: {why}"),
        None => waiting,
    })
}

/// Why no reviewed pull request approves a Plan. `None` if the PlanPolicies of the Plan do not allow approval by pull request.
fn pull_request_message(status: &Value) -> Option<&str> {
    let conditions = status["conditions"].as_array()?;
    let condition = conditions.iter().find(|it| it["type"] == "PullRequestApproved")?;
    condition["message"].as_str().filter(|it| !it.is_empty())
}

/// A number with its noun.
fn counted(count: &Value, thing: &str) -> String {
    match count.as_i64().unwrap_or_default() {
        1 => format!("1 {thing}"),
        count => format!("{count} {thing}s"),
    }
}

/// The text about a Freeze in its table row: whether it denies changes, until when, and why. `None` for objects of other kinds,
/// and for a Freeze that cannot be parsed.
fn denied(object: &Object, now: Time) -> Option<String> {
    if !is_of_releases(object, "Freeze") {
        return None;
    }
    let spec: FreezeSpec = serde_json::from_value(object.get("spec")?.clone()).ok()?;
    let status = object.get("status").cloned().unwrap_or_default();
    let status: Option<FreezeStatus> = serde_json::from_value(status).ok()?;
    let spelled = |at: Time| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let times = calendar(&spec, status.as_ref(), now);
    // While the current calendar is damaged or missing, the last calendar that was read stays in force.
    let conditions = status.as_ref().map(|it| it.conditions.as_slice()).unwrap_or_default();
    let failure = conditions.iter().find(|it| it.type_ == "Ready" && it.status == "False");
    let failure = failure.filter(|_| times.is_ok()).map(|it| format!("; {}", it.message));
    let state = match times {
        Err(error) => format!("denies, because it cannot be read: {error}"),
        Ok(calendar) => match (calendar.denies(now), calendar.next_begin(now)) {
            (Some(WindowEnd::Time(at)), _) => format!("denies until {}", spelled(at)),
            (Some(WindowEnd::Further), _) => "denies without a known end".to_owned(),
            (None, Some(at)) => format!("denies next from {} on", spelled(at)),
            (None, None) if spec.calendar.is_some() => {
                "does not deny in the next 400 days".to_owned()
            }
            (None, None) => "does not deny any more".to_owned(),
        },
    };
    Some(format!("{state}: {}{}", spec.reason, failure.unwrap_or_default()))
}

/// The text about a FreezeBypass in its table row: the operation that it allows, and whether it was used. `None` for objects of
/// other kinds.
fn let_begin(object: &Object) -> Option<String> {
    let spec = object.get("spec").filter(|_| is_of_releases(object, "FreezeBypass"))?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let subject = format!("{}/{}", text(&spec["subject"]["kind"]), text(&spec["subject"]["name"]));
    let used = object.get("status").and_then(|status| status["usedAt"].as_str());
    let used = used.map_or_else(|| "not used".to_owned(), |at| format!("used at {at}"));
    Some(format!(
        "{} lets {} of {subject} begin, {used}: {}",
        text(&spec["user"]),
        text(&spec["revision"]),
        text(&spec["reason"])
    ))
}

/// Whether an object is of this kind in the group `release.windlass.dev`.
fn is_of_releases(object: &Object, kind: &str) -> bool {
    object.kind() == kind && object.api_version().starts_with("release.windlass.dev/")
}

/// The revision that an object has or applied, and since when.
fn revision(object: &Object) -> (String, Option<Time>) {
    let Some(status) = object.get("status") else { return (String::new(), None) };
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let artifact = &status["artifact"];
    if artifact.is_object() {
        return (text(artifact, "revision"), time(artifact.get("lastUpdateTime")));
    }
    let newest = &status["history"][0];
    if newest["chartVersion"].is_string() {
        let number = &newest["version"];
        return (
            format!("{} (v{number})", text(newest, "chartVersion")),
            time(newest.get("lastDeployed")),
        );
    }
    let since = time(newest.get("firstReconciled")).or_else(|| condition(object, "Ready")?.since);
    (text(status, "lastAppliedRevision"), since)
}

/// Shortens digests in a revision to eight characters, as `flux` does.
pub fn short(revision: &str) -> String {
    let Some((before, digest)) = revision.rsplit_once(':') else { return revision.to_owned() };
    let is_hex = digest.len() > 8 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
    match digest.get(..8).filter(|_| is_hex) {
        Some(digest) => format!("{before}:{digest}"),
        None => revision.to_owned(),
    }
}

fn suspension(object: &Object, now: Time) -> String {
    let Some(hold) = cause::suspension(object, now) else { return String::new() };
    let owner = hold.as_ref().and_then(ObjectHold::owner).unwrap_or("yes").to_owned();
    match hold.and_then(|hold| hold.expires_at()) {
        Some(at) => format!("{owner} until {}", at.strftime("%Y-%m-%dT%H:%MZ")),
        None => owner,
    }
}

/// Whether windlass reconciles an object that does not report whether it is ready.
pub fn is_silent(object: &Object) -> bool {
    let has_runs = is_reconciled(&object.id()) && !cause::object_references::has_no_runs(object);
    has_runs && condition(object, "Ready").is_none()
}

/// The message about the number of objects without a condition `Ready`, which count neither as ready nor as not ready. `None`
/// if the number is zero.
pub fn unsaid(count: usize) -> Option<String> {
    (count > 0).then(|| {
        let noun = if count == 1 { "object reports" } else { "objects report" };
        format!("{count} {noun} no condition Ready: `windlass why -A` says why")
    })
}

/// Parses a field of an object as a time. `None` if the field is missing or is not a time.
pub fn time(value: Option<&Value>) -> Option<Time> {
    value?.as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(object: Value) -> ObjectRow {
        ObjectRow::of(&Object::new(object).unwrap(), "2026-11-24T12:00:00Z".parse().unwrap())
    }

    #[test]
    fn a_source_shows_its_artifact() {
        let digest = "0123456789abcdef0123456789abcdef01234567";
        let row = row(json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": {"name": "app"}, "status": {"artifact": {"revision": format!("main@sha1:{digest}"),
            "lastUpdateTime": "2026-11-24T11:00:00Z"}}}));
        assert_eq!(row.revision, "main@sha1:01234567");
        assert_eq!(row.since.unwrap().to_string(), "2026-11-24T11:00:00Z");
        assert!(!row.is_suspended() && row.ready.is_empty());
    }

    #[test]
    fn what_is_said_of_an_older_spec_is_not_taken_for_the_newest() {
        let of = |generation: i64, suspend: bool| {
            let ready = json!({"type": "Ready", "status": "True", "reason": "X", "message": "applied",
                "observedGeneration": 1, "lastTransitionTime": "2026-11-24T11:00:00Z"});
            let managed = json!([
                {"manager": "kubectl", "operation": "Update", "time": "2026-11-24T11:58:00Z",
                    "fieldsV1": {"f:spec": {"f:path": {}}}},
                {"manager": "windlass", "operation": "Update", "time": "2026-11-24T11:59:00Z",
                    "subresource": "status", "fieldsV1": {"f:status": {}}},
            ]);
            row(json!({"apiVersion": "v1", "kind": "X",
                    "metadata": {"name": "a", "generation": generation, "managedFields": managed},
                "spec": {"suspend": suspend}, "status": {"observedGeneration": 1, "conditions": [ready]}}))
        };
        let current = of(1, false);
        assert_eq!((current.ready.as_str(), current.message.as_str()), ("True", "applied"));
        assert_eq!(current.since.unwrap().to_string(), "2026-11-24T11:00:00Z");
        let old = of(2, false);
        assert_eq!(old.ready, "Unknown");
        assert_eq!(old.message, "generation 2 of its spec has not been reconciled yet");
        assert_eq!(
            old.since.unwrap().to_string(),
            "2026-11-24T11:58:00Z",
            "not since the condition"
        );
        assert_eq!(of(2, true).ready, "True", "it is suspended, and says so");
    }

    #[test]
    fn a_failure_is_as_old_as_its_first_attempt() {
        let run = |status: &str, first: &str, last: &str| json!({"lastReconciledStatus": status, "firstReconciled": first, "lastReconciled": last});
        let since = |history: &[Value]| {
            let ready = json!({"type": "Ready", "status": "False", "reason": "BuildFailed",
                "lastTransitionTime": "2026-11-24T11:59:00Z"});
            let row = row(
                json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
                "metadata": {"name": "a"}, "status": {"conditions": [ready], "history": history}}),
            );
            row.since.unwrap().to_string()
        };
        let failed = || run("BuildFailed", "2026-11-24T09:00:00Z", "2026-11-24T11:59:00Z");
        let well = |last: &str| run("ReconciliationSucceeded", "2026-11-20T09:00:00Z", last);
        assert_eq!(since(&[failed(), well("2026-11-24T08:00:00Z")]), "2026-11-24T09:00:00Z");
        // The object succeeded in between. It may have failed long after that, but no later than at the last attempt.
        assert_eq!(since(&[failed(), well("2026-11-24T10:00:00Z")]), "2026-11-24T11:59:00Z");
        // The history has no entry for this failure.
        assert_eq!(since(&[well("2026-11-24T08:00:00Z")]), "2026-11-24T11:59:00Z");
    }

    #[test]
    fn a_release_shows_its_chart_and_number() {
        let row = row(json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
            "metadata": {"name": "app"}, "status": {"history": [{"chartVersion": "1.2.3", "version": 7,
            "lastDeployed": "2026-11-24T11:00:00Z"}]}}));
        assert_eq!(row.revision, "1.2.3 (v7)");
    }

    #[test]
    fn an_object_of_another_kind_is_ready_if_it_is_healthy() {
        let of = |object: Value| {
            let object = Object::new(object).unwrap();
            let row = ObjectRow::of_any(&object, "2026-11-24T12:00:00Z".parse().unwrap());
            [row.ready, row.reason, row.message]
        };
        let deployment = |available: i64| {
            json!({"apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": "web", "namespace": "apps", "generation": 1},
                "spec": {"replicas": 2},
                "status": {"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "readyReplicas": available,
                    "availableReplicas": available, "conditions": [{"type": "Available", "status": "True"},
                        {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}]}})
        };
        assert_eq!(of(deployment(2)), ["True", "Current", ""]);
        let [ready, reason, message] = of(deployment(1));
        assert_eq!((ready.as_str(), reason.as_str()), ("False", "InProgress"));
        assert!(message.contains("1/2"), "{message}");
        // The condition of the Pod says more. A kind of Flux either reports its readiness or nothing.
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-1"}, "status": {"phase": "Running",
            "conditions": [{"type": "Ready", "status": "False", "reason": "ContainersNotReady", "message": "app"}]}});
        assert_eq!(of(pod), ["False", "ContainersNotReady", "app"]);
        let source = json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": {"name": "app"}});
        assert_eq!(of(source), ["", "", ""]);
    }

    #[test]
    fn an_event_of_a_lifecycle_shows_what_waits_and_how_far_the_answer_is() {
        let mut event = json!({"apiVersion": "lifecycle.windlass.dev/v1alpha1", "kind": "LifecycleEvent",
            "metadata": {"name": "a"}, "spec": {"phase": "PreUpgrade", "lifecycle": "check", "approvals": 2,
            "subject": {"kind": "HelmRelease", "name": "web"}}});
        let asked = "PreUpgrade of HelmRelease/web, lifecycle check: ";
        assert_eq!(row(event.clone()).message, format!("{asked}Pending, 0 of 2 approvals"));
        event["spec"]["approvals"] = json!(0);
        event["status"] = json!({"phase": "Running", "message": "half way"});
        assert_eq!(row(event).message, format!("{asked}Running, half way"));
    }

    #[test]
    fn a_freeze_shows_until_when_it_denies_and_a_bypass_what_it_lets_begin() {
        let freeze = |spec: Value| {
            let mut spec = spec;
            spec["reason"] = json!("Christmas");
            spec["namespaceSelector"] = json!({});
            row(json!({"apiVersion": "release.windlass.dev/v1alpha1", "kind": "Freeze",
                "metadata": {"name": "christmas"}, "spec": spec}))
            .message
        };
        assert_eq!(freeze(json!({})), "denies without a known end: Christmas");
        let over = json!({"periods": [{"from": "2000-12-24", "to": "2000-12-26"}]});
        assert_eq!(freeze(over), "does not deny any more: Christmas");
        let next = json!({"periods": [{"from": "2099-12-24", "to": "2099-12-26"}]});
        assert_eq!(freeze(next), "denies next from 2099-12-24T00:00:00Z on: Christmas");
        let broken = json!({"periods": [{"from": "soon", "to": "2099-12-26"}]});
        assert!(
            freeze(broken).starts_with("denies, because it cannot be read: periods[0]: `soon`")
        );
        let source = json!({"configMapRef": {"name": "a", "namespace": "b", "key": "c"}});
        let unread = freeze(json!({"calendar": source}));
        assert!(unread.contains("cannot be read: its calendar in ConfigMap b/a"), "{unread}");
        let read = row(json!({"apiVersion": "release.windlass.dev/v1alpha1", "kind": "Freeze",
        "metadata": {"name": "christmas"},
        "spec": {"reason": "Christmas", "namespaceSelector": {}, "calendar": source},
        "status": {
            "conditions": [{"type": "Ready", "status": "False", "reason": "CalendarFailed",
                "message": "the last one counts", "lastTransitionTime": "2026-12-24T00:00:00Z"}],
            "calendar": {"source": source, "text": "BEGIN:VCALENDAR\nEND:VCALENDAR\n"},
        }}));
        let said = "does not deny in the next 400 days: Christmas; the last one counts";
        assert_eq!(read.message, said);
        let bypass = json!({"apiVersion": "release.windlass.dev/v1alpha1", "kind": "FreezeBypass",
            "metadata": {"name": "a"}, "spec": {"user": "alice", "revision": "main@sha1:1", "reason": "a fix",
            "subject": {"kind": "Kustomization", "name": "shop"}}});
        let said = "alice lets main@sha1:1 of Kustomization/shop begin, not used: a fix";
        assert_eq!(row(bypass).message, said);
    }

    #[test]
    fn a_quarantine_shows_what_is_applied_in_place_of_which_result() {
        let mut object = json!({"apiVersion": "release.windlass.dev/v1alpha1", "kind": "Quarantine",
            "metadata": {"name": "a"},
            "spec": {"subject": {"kind": "Kustomization", "name": "shop"}, "result": {"revision": "main@sha1:2"}}});
        let held = "main@sha1:2 of Kustomization/shop failed, and nothing is rolled back";
        assert_eq!(row(object.clone()).message, held);
        object["spec"]["lastGood"] = json!({"revision": "main@sha1:1"});
        let back = "main@sha1:2 of Kustomization/shop failed, main@sha1:1 is applied in its place";
        assert_eq!(row(object.clone()).message, back);
        object["status"] = json!({"lift": {"user": "alice"}});
        let lifted = "main@sha1:2 of Kustomization/shop may be applied again, lifted by alice";
        assert_eq!(row(object.clone()).message, lifted);
        object["status"] = json!({"lift": {"user": "system:serviceaccount:shop:robot"}});
        assert_eq!(row(object).message, back, "a ServiceAccount lifts nothing");
    }

    #[test]
    fn a_plan_shows_what_it_withholds_and_who_approved_it() {
        let mut plan = json!({"apiVersion": "release.windlass.dev/v1alpha1", "kind": "Plan", "metadata": {"name": "a"},
            "spec": {"count": 12, "subject": {"kind": "Kustomization", "name": "apps"}}});
        let message = "12 deletions of Kustomization/apps wait for approval";
        assert_eq!(row(plan.clone()).message, message);
        plan["status"] = json!({"approvals": [{"user": "alice"}]});
        assert_eq!(
            row(plan.clone()).message,
            "12 deletions of Kustomization/apps, approved by alice"
        );
        let condition =
            json!({"type": "PullRequestApproved", "status": "False", "message": "no review"});
        plan["status"] = json!({"conditions": [condition]});
        assert_eq!(row(plan.clone()).message, format!("{message}; by pull request: no review"));
        plan["status"]["pullRequest"] = json!({"number": 7});
        assert_eq!(
            row(plan.clone()).message,
            "12 deletions of Kustomization/apps, approved by pull request 7"
        );
        plan["spec"]["subject"] = json!({"kind": "Helmfile", "name": "all", "release": "shop/web"});
        plan["status"] = json!({});
        assert_eq!(
            row(plan).message,
            "12 deletions of Helmfile/all, release shop/web wait for approval"
        );
    }

    #[test]
    fn a_plan_of_a_result_shows_how_many_objects_become_what() {
        let mut plan = json!({"apiVersion": "release.windlass.dev/v1alpha1", "kind": "Plan", "metadata": {"name": "a"},
            "spec": {"count": 1, "subject": {"kind": "Kustomization", "name": "apps"},
                "changes": {"added": 0, "changed": 2, "removed": 1, "recreated": 0}}});
        let what = "Kustomization/apps: 1 removed, 2 changed;";
        assert_eq!(row(plan.clone()).message, format!("{what} waits for approval"));
        plan["status"] = json!({"pullRequest": {"number": 7}});
        assert_eq!(row(plan.clone()).message, format!("{what} approved by pull request 7"));
        plan["status"] = json!({"approvals": [{"user": "alice"}]});
        assert_eq!(row(plan.clone()).message, format!("{what} approved by alice"));
        plan["spec"]["approvals"] = json!(2);
        assert_eq!(
            row(plan.clone()).message,
            format!("{what} approved by alice, 1 of 2 approvals")
        );
        plan["status"]["rejection"] = json!({"user": "bob"});
        assert_eq!(row(plan).message, format!("{what} rejected by bob"));
    }

    #[test]
    fn an_object_that_reports_nothing_differs_from_one_that_has_nothing_to_report() {
        let silent = |kind: &str, spec: Value, status: Value| {
            let value = json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": kind,
                "metadata": {"name": "a"}, "spec": spec, "status": status});
            is_silent(&Object::new(value).unwrap())
        };
        let ready = json!({"conditions": [{"type": "Ready", "status": "False"}]});
        assert!(silent("GitRepository", json!({}), json!({})));
        assert!(!silent("GitRepository", json!({}), ready));
        assert!(!silent("HelmRepository", json!({"type": "oci"}), json!({})));
        let text = "2 objects report no condition Ready: `windlass why -A` says why";
        assert_eq!(unsaid(2).as_deref(), Some(text));
        assert_eq!(unsaid(0), None);
    }

    #[test]
    fn a_suspension_shows_its_owner_and_its_end() {
        let suspended = |annotations: Value, manager: &str| {
            let until = json!({"f:annotations": {"f:windlass.dev/suspended-until": {}}});
            let managed = json!([
                {"manager": "windlass-cli", "operation": "Update", "fieldsV1": {"f:metadata": until}},
                {"manager": manager, "operation": "Update", "fieldsV1": {"f:spec": {"f:suspend": {}}}},
            ]);
            let metadata =
                json!({"name": "app", "annotations": annotations, "managedFields": managed});
            row(json!({"apiVersion": "v1", "kind": "X", "metadata": metadata, "spec": {"suspend": true}}))
                .suspended
        };
        let held = |annotations: Value| suspended(annotations, "windlass-cli");
        assert_eq!(held(json!({})), "yes");
        let until = |at: &str| json!({"windlass.dev/suspended-by": "alice", "windlass.dev/suspended-until": at});
        assert_eq!(held(until("2026-11-24T21:00:00Z")), "alice until 2026-11-24T21:00Z");
        assert_eq!(held(until("2026-11-24T11:00:00Z")), "");
        // A program that does not know the annotation resumed the object and suspended it again.
        for at in ["2026-11-24T21:00:00Z", "2026-11-24T11:00:00Z"] {
            assert_eq!(suspended(until(at), "flux"), "alice");
        }
    }
}
