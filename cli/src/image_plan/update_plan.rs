//! Predicts what an ImageUpdateAutomation would commit to a work tree. Nothing is written.
//!
//! Here: computing the changes, the commit message and the findings from the automation, its policies and the files. Below: the
//! output for people (`format.rs`). Elsewhere: markers, values and templates (engine `image`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crds::image::{ImagePolicy, ImageUpdateAutomation};
use golang::time::{GoTime, GoTimeZone};
use image::{
    CommitMessageData, CommitMessageEnvironment, FileUpdate, FileUpdateRequest, ImageRef,
    ImageSetterValues, ObjectIdentifier, PolicyResult, REQUIRED_STACK_BYTES, UpdateResult,
    check_strategy, commit_message,
};
use jiff::Timestamp;
use serde::Serialize;
use similar::TextDiff;

use super::work_tree::WorkTree;
use windlass_cluster::label_selectors::compiled;

/// An automation, and the ImagePolicies of its namespace.
#[derive(Debug, Clone)]
pub(super) struct AutomationInputs {
    pub(super) automation: ImageUpdateAutomation,
    pub(super) policies: Vec<ImagePolicy>,
}

/// The predicted commit of an automation.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ImageUpdatePlan {
    /// The automation, as text.
    pub(super) automation: String,
    pub(super) suspended: bool,
    /// Why the commit is unknown, or unknown for some policies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    pub(super) changes: Vec<PlannedImageChange>,
    /// The message of the commit, if there would be one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) message: Option<String>,
    /// The changes of files as a unified diff, if the user requested it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) diff: Option<String>,
    /// Findings: files that are left out, and markers that set nothing.
    pub(super) findings: Vec<String>,
}

/// A value that would change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct PlannedImageChange {
    /// The path, relative to the root of the repository.
    pub(super) file: String,
    /// The object as `Kind/namespace/name`. Empty if the document is not an object.
    pub(super) object: String,
    /// The policy, and the part of its image.
    pub(super) setter: String,
    pub(super) from: String,
    pub(super) to: String,
}

impl AutomationInputs {
    /// The name of the automation for messages: `ImageUpdateAutomation/namespace/name`.
    fn subject(&self) -> String {
        format!("ImageUpdateAutomation/{}/{}", self.namespace(), self.name())
    }

    fn namespace(&self) -> &str {
        self.automation.metadata.namespace.as_deref().unwrap_or_default()
    }

    fn name(&self) -> &str {
        self.automation.metadata.name.as_deref().unwrap_or_default()
    }

    /// Predicts the commit, as if the branch of the automation contained the files of the work tree.
    pub(super) fn plan(&self, tree: &WorkTree, with_diff: bool) -> ImageUpdatePlan {
        let begun = ImageUpdatePlan {
            automation: self.subject(),
            suspended: self.automation.spec.suspend,
            ..ImageUpdatePlan::default()
        };
        let PlannedAutomationUpdate { update, mut error } = match self.update(tree) {
            Ok(planned) => planned,
            Err(error) => return ImageUpdatePlan { error: Some(error), ..begun },
        };
        let changes = changes(&update);
        let mut noted = |result: Result<String, String>| match result {
            Ok(text) => Some(text),
            Err(why) => {
                error = Some(why);
                None
            }
        };
        let message =
            (!changes.is_empty()).then(|| self.message(&update.result)).and_then(&mut noted);
        let diff = with_diff.then(|| diff(&update, tree)).and_then(&mut noted);
        ImageUpdatePlan { error, changes, message, diff, findings: update.findings, ..begun }
    }

    /// Computes the update of the files.
    ///
    /// # Errors
    /// The automation would update nothing. The error says why.
    fn update(&self, tree: &WorkTree) -> Result<PlannedAutomationUpdate, String> {
        let spec = &self.automation.spec;
        let strategy = spec.update.as_ref().map(|it| it.strategy.as_deref().unwrap_or_default());
        check_strategy(strategy).map_err(|error| error.to_string())?;
        let path = spec.update.as_ref().and_then(|it| it.path.as_deref()).unwrap_or_default();
        let AutomationImagePolicies { results, others, verified, unverified, error } =
            self.selected()?;
        let setters = ImageSetterValues::new(&results).map_err(|error| error.to_string())?;
        let setters = setters.requiring_digests(verified);
        let request =
            FileUpdateRequest { path, setters: &setters, others: &others, unverified: &unverified };
        let update = request.run(&tree.files, |path| tree.read(path))?;
        match update.without_digest.is_empty() {
            true => Ok(PlannedAutomationUpdate { update, error }),
            false => Err(format!(
                "the tag of a verified image has to stand beside its digest: {}",
                update.without_digest.join(", ")
            )),
        }
    }

    /// The results of the policies that the automation selects, and the names of the other policies.
    ///
    /// # Errors
    /// The selector is not valid.
    fn selected(&self) -> Result<AutomationImagePolicies, String> {
        let selector = self.automation.spec.policy_selector.as_ref().map(compiled).transpose();
        let selector = selector.map_err(|why| format!("spec.policySelector: {why}"))?;
        let selector = selector.unwrap_or_default();
        let mut selected = AutomationImagePolicies::default();
        for policy in &self.policies {
            let metadata = &policy.metadata;
            let namespace = metadata.namespace.as_deref().unwrap_or_default();
            if namespace != self.namespace() {
                continue;
            }
            let name = metadata.name.clone().unwrap_or_default();
            let label = |key: &str| metadata.labels.as_ref()?.get(key).map(String::as_str);
            if !selector.selects(label) {
                selected.others.insert(format!("{namespace}:{name}"));
                continue;
            }
            match ImageVerification::of(policy) {
                ImageVerification::NotRequired => {}
                ImageVerification::Verified => {
                    selected.verified.insert(format!("{namespace}:{name}"));
                }
                ImageVerification::Unverified => {
                    let why = format!("the conditions of ImagePolicy {name} say more");
                    selected.unverified.insert(format!("{namespace}:{name}"), why);
                    continue;
                }
                ImageVerification::Unknown => {
                    let why = format!(
                        "it is not known whether images of ImagePolicy {namespace}/{name} have to be \
                         signed: its condition {IMAGE_VERIFIED} is not True, and its annotations do \
                         not ask for signatures; reconcile the policy, and plan again"
                    );
                    selected.unverified.insert(format!("{namespace}:{name}"), why.clone());
                    selected.error.get_or_insert(why);
                    continue;
                }
            }
            let latest = policy.status.as_ref().and_then(|status| status.latest_ref.clone());
            let latest = latest.map(|latest| ImageRef {
                name: latest.name,
                tag: latest.tag,
                digest: latest.digest.unwrap_or_default(),
            });
            selected.results.push(PolicyResult { namespace: namespace.to_owned(), name, latest });
        }
        Ok(selected)
    }

    /// The message of the commit.
    ///
    /// # Errors
    /// The template is not valid, or it fails.
    fn message(&self, changed: &UpdateResult) -> Result<String, String> {
        let commit = self.automation.spec.git.as_ref().map(|git| git.commit.clone());
        let commit = commit.unwrap_or_default();
        let now = Timestamp::now();
        let nanoseconds = i64::from(now.subsec_nanosecond());
        let environment = CommitMessageEnvironment {
            now: GoTime::from_unix(now.as_second(), nanoseconds, GoTimeZone::Utc),
            random: Arc::new(windlass_runtime::random_bytes::fill),
        };
        let template = commit.message_template.unwrap_or_default();
        let values = Some(&commit.message_template_values).filter(|values| !values.is_empty());
        let data =
            CommitMessageData { namespace: self.namespace(), name: self.name(), changed, values };
        // Nested templates need a large stack.
        let made = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().stack_size(REQUIRED_STACK_BYTES);
            let work = || commit_message(&template, &data, &environment);
            thread.spawn_scoped(scope, work).ok()?.join().ok()
        });
        match made {
            Some(message) => message.map_err(|error| error.to_string()),
            None => Err("the commit message could not be made".to_owned()),
        }
    }
}

/// The annotation of a policy that requires signed images.
const VERIFY_IMAGES: &str = "windlass.dev/verify-images";

/// The condition of a policy whose images have to be signed. The policy itself or its whole namespace may require it.
const IMAGE_VERIFIED: &str = "ImageVerified";

/// Whether the latest version of a policy may be committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ImageVerification {
    NotRequired,
    Verified,
    Unverified,
    /// Unknown, because flags of the operator may require signatures, or may have required them earlier.
    Unknown,
}

impl ImageVerification {
    /// Reads the state from the policy's annotation and condition.
    fn of(policy: &ImagePolicy) -> Self {
        let annotations = policy.metadata.annotations.as_ref();
        let is_asked = annotations.is_some_and(|all| all.contains_key(VERIFY_IMAGES));
        let status = policy.status.as_ref();
        let latest = status.and_then(|status| status.latest_ref.as_ref());
        let has_digest = latest.is_some_and(|latest| latest.digest.is_some());
        let mut conditions = status.into_iter().flat_map(|status| &status.conditions);
        match conditions.find(|condition| condition.type_ == IMAGE_VERIFIED) {
            Some(condition) if condition.status == "True" && has_digest => Self::Verified,
            _ if is_asked => Self::Unverified,
            Some(_) => Self::Unknown,
            None => Self::NotRequired,
        }
    }
}

/// The policies of a namespace, as an automation sees them.
#[derive(Debug, Default)]
struct AutomationImagePolicies {
    results: Vec<PolicyResult>,
    /// The policies that the automation does not select, as `namespace:name`.
    others: BTreeSet<String>,
    /// The policies whose images are verified, as `namespace:name`. For them, a marker may not set the tag alone.
    verified: BTreeSet<String>,
    /// The policies whose images have to be verified but whose latest version is not, as `namespace:name`, with the reason.
    unverified: BTreeMap<String, String>,
    /// Why it is unknown whether a policy gives a result.
    error: Option<String>,
}

/// The update of an automation.
#[derive(Debug)]
struct PlannedAutomationUpdate {
    update: FileUpdate,
    /// Why a part of the update is unknown.
    error: Option<String>,
}

/// The values that change, by file and object.
fn changes(update: &FileUpdate) -> Vec<PlannedImageChange> {
    let mut changes = Vec::new();
    for (name, objects) in update.result.files() {
        let file = update.paths.get(name).map_or(name, String::as_str);
        for (object, values) in objects {
            changes.extend(values.into_iter().map(|value| PlannedImageChange {
                file: file.to_owned(),
                object: subject(object),
                setter: value.setter.clone(),
                from: value.old_value.clone(),
                to: value.new_value.clone(),
            }));
        }
    }
    changes
}

/// The object as `Kind/namespace/name`, as far as the manifest contains these fields.
fn subject(object: &ObjectIdentifier) -> String {
    let parts = [&object.kind, &object.namespace, &object.name];
    let parts = parts.into_iter().filter(|part| !part.is_empty());
    parts.map(String::as_str).collect::<Vec<_>>().join("/")
}

/// The changes of files in the format of `diff -u`.
///
/// # Errors
/// A file can no longer be read.
fn diff(update: &FileUpdate, tree: &WorkTree) -> Result<String, String> {
    let mut out = String::new();
    for (path, text) in &update.files {
        let before = tree.read(path)?;
        let before = String::from_utf8_lossy(&before);
        let diff = TextDiff::from_lines(&*before, text.as_str());
        let before = format!("a/{path}");
        let after = format!("b/{path}");
        out.push_str(&diff.unified_diff().header(&before, &after).to_string());
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::{Value, json};
    use tempfile::TempDir;

    use super::*;

    const MARKED: &str = "kind: Deployment\nmetadata:\n  name: web\n  namespace: apps\n\
                          image: r.io/web:1 # {\"$imagepolicy\": \"apps:web\"}\n";

    fn tree(files: &[(&str, &str)]) -> (TempDir, WorkTree) {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir(top.path().join(".git")).unwrap();
        for (path, text) in files {
            let place = top.path().join(path);
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            fs::write(place, text).unwrap();
        }
        let tree = WorkTree::around(top.path()).unwrap();
        (top, tree)
    }

    fn policy(name: &str, labels: &Value, tag: Option<&str>) -> ImagePolicy {
        let latest = tag.map(|tag| json!({"name": format!("r.io/{name}"), "tag": tag}));
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "apps", "labels": labels},
            "status": {"latestRef": latest},
        }))
        .unwrap()
    }

    fn inputs(spec: &Value) -> AutomationInputs {
        let policies = vec![
            policy("web", &json!({"tier": "front"}), Some("2")),
            policy("db", &json!({"tier": "back"}), Some("3")),
            policy("new", &json!({}), None),
        ];
        let automation = json!({"metadata": {"name": "all", "namespace": "apps"}, "spec": spec});
        AutomationInputs { automation: serde_json::from_value(automation).unwrap(), policies }
    }

    #[test]
    fn a_version_that_has_to_be_verified_and_is_not_is_not_planned() {
        let policy = |annotation: &str, status: &Value| -> ImagePolicy {
            serde_json::from_value(json!({
                "metadata": {"name": "web", "annotations": {annotation: "keys"}},
                "spec": {"imageRepositoryRef": {"name": "web"}, "policy": {}},
                "status": {"latestRef": {"name": "r.io/web", "tag": "2", "digest": "sha256:1"},
                    "conditions": [{"type": "ImageVerified", "status": status, "reason": "Succeeded",
                        "message": "", "lastTransitionTime": "2026-11-24T10:00:00Z"}]},
            }))
            .unwrap()
        };
        let of = |annotation: &str, status: &str| {
            ImageVerification::of(&policy(annotation, &json!(status)))
        };
        assert_eq!(of(VERIFY_IMAGES, "True"), ImageVerification::Verified);
        assert_eq!(of("other", "True"), ImageVerification::Verified, "for the whole namespace");
        assert_eq!(of(VERIFY_IMAGES, "False"), ImageVerification::Unverified);
        for status in ["False", "Unknown"] {
            assert_eq!(of("other", status), ImageVerification::Unknown, "the flags may ask for it");
        }
        let mut unseen = policy(VERIFY_IMAGES, &json!("True"));
        unseen.status.as_mut().unwrap().conditions.clear();
        assert_eq!(ImageVerification::of(&unseen), ImageVerification::Unverified);
        unseen.metadata.annotations = None;
        assert_eq!(ImageVerification::of(&unseen), ImageVerification::NotRequired);
    }

    #[test]
    fn a_plan_of_which_it_is_not_known_whether_a_version_counts_has_an_error() {
        let (_top, tree) = tree(&[("a.yaml", MARKED)]);
        let mut inputs = inputs(&json!({"update": {"strategy": "Setters"}}));
        inputs.policies[0] = serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "apps"},
            "status": {"latestRef": {"name": "r.io/web", "tag": "2", "digest": "sha256:1"},
                "conditions": [{"type": "ImageVerified", "status": "False", "message": "",
                    "reason": "VerificationError", "lastTransitionTime": "2026-11-24T10:00:00Z"}]},
        }))
        .unwrap();
        let plan = inputs.plan(&tree, false);
        assert!(plan.changes.is_empty(), "{:?}", plan.changes);
        let error = plan.error.unwrap_or_default();
        let text = "it is not known whether images of ImagePolicy apps/web have to be signed: ";
        assert!(error.starts_with(text), "{error}");
    }

    #[test]
    fn what_would_be_committed_is_named_with_its_message_and_nothing_is_written() {
        let (top, tree) = tree(&[("deploy/web.yaml", MARKED), ("other/web.yaml", MARKED)]);
        let template = "{{ range .Changed.Changes }}{{ .NewValue }} by {{ .Setter }}{{ end }}";
        let plan = inputs(&json!({"update": {"path": "./deploy", "strategy": "Setters"},
            "git": {"commit": {"messageTemplate": template}}}))
        .plan(&tree, true);
        let [file, object, setter, from, to] =
            ["deploy/web.yaml", "Deployment/apps/web", "apps:web", "r.io/web:1", "r.io/web:2"]
                .map(str::to_owned);
        assert_eq!(plan.changes, [PlannedImageChange { file, object, setter, from, to }]);
        assert_eq!(plan.message.as_deref(), Some("r.io/web:2 by apps:web"));
        let diff = plan.diff.unwrap();
        assert!(diff.starts_with("--- a/deploy/web.yaml\n+++ b/deploy/web.yaml\n@@ "), "{diff}");
        let marker = "# {\"$imagepolicy\": \"apps:web\"}";
        let lines = format!("-image: r.io/web:1 {marker}\n+image: r.io/web:2 {marker}\n");
        assert!(diff.contains(&lines), "{diff}");
        assert_eq!((plan.error, plan.findings), (None, Vec::new()));
        assert_eq!(fs::read_to_string(top.path().join("deploy/web.yaml")).unwrap(), MARKED);
    }

    #[test]
    fn markers_and_files_without_effect_are_named_unless_another_automation_has_them() {
        let marker = |key: &str, policy: &str| {
            format!("{key}: x:1 # {{\"$imagepolicy\": \"apps:{policy}\"}}\n")
        };
        let text = [marker("a", "db"), marker("b", "new"), marker("c", "none")].concat();
        let broken = format!("a: [\n{}", marker("b", "web"));
        let (_top, tree) = tree(&[("a.yaml", text.as_str()), ("broken.yaml", broken.as_str())]);
        let spec = json!({"update": {"strategy": "Setters"},
            "policySelector": {"matchExpressions": [
                {"key": "tier", "operator": "NotIn", "values": ["back"]}]}});
        let plan = inputs(&spec).plan(&tree, false);
        assert_eq!((plan.changes, plan.message, plan.diff), (Vec::new(), None, None));
        let findings = plan.findings.join("\n");
        assert!(findings.starts_with("broken.yaml"), "{findings}");
        for text in [
            "the policy of `apps:new` has no result yet",
            "no policy of the automation sets `apps:none`",
        ] {
            assert!(findings.contains(text), "{findings}");
        }
        assert!(!findings.contains("apps:db"), "{findings}");
    }

    #[test]
    fn a_plan_that_cannot_be_made_says_why() {
        let (_top, tree) = tree(&[("a.yaml", MARKED)]);
        let error = |spec: Value| inputs(&spec).plan(&tree, false).error.unwrap_or_default();
        assert_eq!(error(json!({})), "no update strategy");
        let none = error(json!({"update": {"path": "none", "strategy": "Setters"}}));
        assert_eq!(none, "walking path for files: lstat /none: no such file or directory");
        let spec = json!({"update": {"strategy": "Setters"},
            "policySelector": {"matchLabels": {"a": "b)"}}});
        assert!(error(spec).starts_with("spec.policySelector: Invalid value: \"b)\""));
        let broken = json!({"update": {"strategy": "Setters"},
            "git": {"commit": {"messageTemplate": "{{ .Nope }}"}}});
        let plan = inputs(&broken).plan(&tree, false);
        assert_eq!((plan.changes.len(), plan.message), (1, None));
        assert!(plan.error.unwrap_or_default().starts_with("failed to run template from spec"));
    }
}
