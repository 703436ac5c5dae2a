//! A model of an update, for runs that windlass finishes and Flux does not. It gives the expected commits, pushes and
//! status.
//!
//! It knows only what these cases use: branches and tags, one marker on a line, and policies with a result. It shares
//! no code with the controllers. `automation_differences` says which runs these are.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::git_repository::{CaseGitRepository, References};

/// The text before the policy in a marker.
const MARKER: &str = " # {\"$imagepolicy\": \"";

/// The message of a commit without a template.
const DEFAULT_MESSAGE: &str = "Update from image update automation";

/// The message of `Ready` if the repository is up to date.
const UP_TO_DATE: &str = "repository up-to-date";

/// The inputs of an update.
pub(super) struct ImageUpdateModel<'m> {
    pub(super) repository: &'m CaseGitRepository,
    /// The references at the time when the server accepts the push.
    pub(super) references: References,
    /// The automation before the run.
    pub(super) automation: &'m Value,
    /// The GitRepository of the automation.
    pub(super) source: &'m Value,
    /// All objects on the API server.
    pub(super) objects: &'m [Value],
    /// The recorded result of Flux.
    pub(super) recorded: &'m Value,
    /// Whether an existing push branch is continued.
    pub(super) is_continued: bool,
    /// The number in the label of the next commit.
    pub(super) label: usize,
}

/// The fetched branch or tag.
struct Checkout<'m> {
    /// The name of the branch or tag.
    name: &'m str,
    commit: &'m str,
    is_branch: bool,
}

/// The commit of an update.
pub(super) struct ImageUpdateCommit {
    pub(super) parent: String,
    /// The changed files.
    pub(super) files: BTreeMap<String, String>,
}

fn text<'v>(value: &'v Value, place: &str) -> Option<&'v str> {
    value.pointer(place).and_then(Value::as_str).filter(|text| !text.is_empty())
}

impl<'m> ImageUpdateModel<'m> {
    /// The reference in the spec that is fetched.
    fn reference(&self) -> &'m Value {
        let own = self.automation.pointer("/spec/git/checkout/ref");
        let of_source = self.source.pointer("/spec/ref");
        own.or(of_source).unwrap_or(&Value::Null)
    }

    /// The branch to which the automation pushes. `None` if neither the automation nor its source names a branch.
    pub(super) fn branch(&self) -> Option<&'m str> {
        text(self.automation, "/spec/git/push/branch").or_else(|| text(self.reference(), "/branch"))
    }

    /// The refspec that the automation pushes in addition. `None` if the spec has none.
    pub(super) fn refspec(&self) -> Option<&'m str> {
        text(self.automation, "/spec/git/push/refspec")
    }

    fn checkout(&self) -> Option<Checkout<'_>> {
        let reference = self.reference();
        let is_simple = ["/commit", "/name", "/semver"]
            .into_iter()
            .all(|place| text(reference, place).is_none());
        let tag = text(reference, "/tag");
        let name = tag.or_else(|| text(reference, "/branch")).filter(|_| is_simple)?;
        let kind = if tag.is_some() { "tags" } else { "heads" };
        let commit = self.references.get(&format!("refs/{kind}/{name}"))?;
        Some(Checkout { name, commit, is_branch: tag.is_none() })
    }

    /// The results of the policies by `namespace:name`.
    fn results(&self) -> Map<String, Value> {
        let selector = self.automation.pointer("/spec/policySelector/matchLabels");
        let wanted: Vec<(&String, &Value)> =
            selector.and_then(Value::as_object).into_iter().flatten().collect();
        let namespace = &self.automation["metadata"]["namespace"];
        let selected = self.objects.iter().filter(|it| {
            let metadata = &it["metadata"];
            it["kind"] == "ImagePolicy"
                && metadata["namespace"] == *namespace
                && it["status"]["latestRef"].is_object()
                && wanted.iter().all(|(key, value)| metadata["labels"][key.as_str()] == **value)
        });
        let named = selected.filter_map(|it| {
            let name = text(it, "/metadata/name")?.to_owned();
            Some((name, it["status"]["latestRef"].clone()))
        });
        named.collect()
    }

    /// The files of a commit whose values the update changes.
    fn changed(&self, commit: &str) -> anyhow::Result<BTreeMap<String, String>> {
        let results = self.results();
        let namespace = text(self.automation, "/metadata/namespace").unwrap_or_default();
        let folder = text(self.automation, "/spec/update/path").unwrap_or_default();
        let folder = folder.trim_start_matches("./").trim_matches('/');
        let folder =
            if folder.is_empty() || folder == "." { String::new() } else { format!("{folder}/") };
        let mut changed = BTreeMap::new();
        for (path, before) in self.repository.files(commit)? {
            let is_yaml = path.ends_with(".yaml") || path.ends_with(".yml");
            if !is_yaml || !path.starts_with(&folder) {
                continue;
            }
            let lines = before.split_inclusive('\n');
            let after: String = lines.map(|line| with_value(line, namespace, &results)).collect();
            if after != before {
                changed.insert(path, after);
            }
        }
        Ok(changed)
    }

    /// The commit of the update. It is `None` if the files are up to date, or if the model does not know the case.
    ///
    /// # Errors
    /// The repository cannot be read.
    pub(super) fn commit(&self) -> anyhow::Result<Option<ImageUpdateCommit>> {
        let Some(checkout) = self.checkout() else { return Ok(None) };
        let Some(branch) = self.branch() else { return Ok(None) };
        let is_checkout = checkout.is_branch && checkout.name == branch;
        let head = self.references.get(&format!("refs/heads/{branch}"));
        let continued = head.filter(|head| {
            let is_other = head.as_str() != checkout.commit;
            !is_checkout && is_other && self.is_continued
        });
        let mut parent = continued.map_or(checkout.commit, String::as_str);
        let mut files = self.changed(parent)?;
        // A push branch that was already merged begins anew.
        if !files.is_empty() && self.repository.leads_to(checkout.commit, parent) {
            parent = checkout.commit;
            files = self.changed(parent)?;
        }
        let parent = parent.to_owned();
        Ok((!files.is_empty()).then_some(ImageUpdateCommit { parent, files }))
    }

    /// The expected answer of a run that updates the repository. It is `None` if the model does not know the case.
    ///
    /// # Errors
    /// The repository cannot be read.
    pub(super) fn answer(&self) -> anyhow::Result<Option<Value>> {
        let commit = self.commit()?;
        let Some(checkout) = self.checkout() else { return Ok(None) };
        let Some(branch) = self.branch() else { return Ok(None) };
        let label = format!("<c{}>", self.label);
        let is_checkout = checkout.is_branch && checkout.name == branch;
        let revision = match &commit {
            Some(_) if is_checkout => label.as_str(),
            _ => checkout.commit,
        };
        let revision = format!("{}@sha1:{revision}", checkout.name);
        let mut status = self.status(&revision);
        let mut answer = json!({
            "events": [{"type": "Normal", "reason": "Succeeded", "message": UP_TO_DATE}],
            "requeueAfterSeconds": self.interval(),
        });
        if let Some(commit) = commit {
            let Some(message) = self.message() else { return Ok(None) };
            status["lastPushCommit"] = json!(label);
            status["lastPushTime"] = json!("<now>");
            let refspec = self.refspec().map(|refspec| format!(" and refspecs '{refspec}'"));
            let refspec = refspec.unwrap_or_default();
            let short = format!("<c{}:7>", self.label);
            let text = format!("pushed commit '{short}' to branch '{branch}'{refspec}\n{message}");
            answer["events"][0]["message"] = json!(text);
            answer["refs"] = json!({format!("refs/heads/{branch}"): label});
            answer["commits"] = json!([{
                "commit": label, "parents": [commit.parent], "files": commit.files,
                "author": self.author(), "committer": self.author(), "message": message,
                "signature": self.signature(),
            }]);
        }
        let finalizers = &self.recorded["object"]["finalizers"];
        answer["object"] = json!({"finalizers": finalizers, "status": status});
        Ok(Some(answer))
    }

    /// The status of an automation whose repository is up to date at a revision.
    fn status(&self, revision: &str) -> Value {
        let generation = &self.automation["metadata"]["generation"];
        let status = &self.automation["status"];
        let mut status = if status.is_object() { status.clone() } else { json!({}) };
        let handled = &self.recorded["object"]["status"]["lastHandledReconcileAt"];
        if !handled.is_null() {
            status["lastHandledReconcileAt"] = handled.clone();
        }
        status["lastAutomationRunTime"] = json!("<now>");
        status["observedGeneration"] = generation.clone();
        status["observedPolicies"] = Value::Object(self.results());
        status["observedSourceRevision"] = json!(revision);
        status["conditions"] = json!([{"type": "Ready", "status": "True", "reason": "Succeeded",
            "message": UP_TO_DATE, "observedGeneration": generation}]);
        status
    }

    fn interval(&self) -> f64 {
        let interval = text(self.automation, "/spec/interval").and_then(reconcile_interval);
        interval.unwrap_or_default()
    }

    /// The message of the commit. It is the recorded one, or the default message. `None` if a template makes a message that is
    /// not recorded.
    fn message(&self) -> Option<&'m str> {
        let recorded = self.recorded.pointer("/commits/0/message").and_then(Value::as_str);
        let template = text(self.automation, "/spec/git/commit/messageTemplate");
        recorded.or_else(|| template.is_none().then_some(DEFAULT_MESSAGE))
    }

    fn author(&self) -> String {
        let author = |field: &str| {
            text(self.automation, &format!("/spec/git/commit/author/{field}")).unwrap_or_default()
        };
        format!("{} <{}>", author("name"), author("email"))
    }

    /// The kind of the commit's signature. `None` if the commit is not signed.
    fn signature(&self) -> Option<&'m str> {
        let key = self.automation.pointer("/spec/git/commit/signingKey")?;
        Some(text(key, "/type").unwrap_or("gpg"))
    }
}

fn reconcile_interval(text: &str) -> Option<f64> {
    Some(reconcile::parse_duration(text).ok()?.as_secs_f64())
}

/// The line with the policy's result in place of the old value. The policy of the marker is in this namespace.
fn with_value(line: &str, namespace: &str, results: &Map<String, Value>) -> String {
    valued(line, namespace, results).unwrap_or_else(|| line.to_owned())
}

fn valued(line: &str, namespace: &str, results: &Map<String, Value>) -> Option<String> {
    let (code, marker) = line.split_once(MARKER)?;
    let (setter, _) = marker.split_once('"')?;
    let policy = setter.strip_prefix(namespace)?.strip_prefix(':')?;
    let (policy, part) = match policy.split_once(':') {
        Some((policy, part)) => (policy, Some(part)),
        None => (policy, None),
    };
    let result = results.get(policy)?;
    let [name, tag, digest] =
        ["name", "tag", "digest"].map(|field| result[field].as_str().unwrap_or_default());
    let value = match part {
        None if digest.is_empty() => format!("{name}:{tag}"),
        None => format!("{name}:{tag}@{digest}"),
        Some("name") => name.to_owned(),
        Some("tag") => tag.to_owned(),
        Some("digest") => digest.to_owned(),
        Some(_) => return None,
    };
    let at = code.rfind(": ")? + 2;
    Some(format!("{}{value}{MARKER}{marker}", code.get(..at)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_gets_the_part_of_the_result_that_its_marker_names() {
        let results = json!({"web": {"name": "ghcr.io/acme/web", "tag": "v2"}});
        let results = results.as_object().cloned().unwrap_or_default();
        let line = |value: &str, setter: &str| format!("  image: {value}{MARKER}{setter}\"}}\n");
        let changed = |setter: &str| with_value(&line("old", setter), "apps", &results);
        assert_eq!(changed("apps:web"), line("ghcr.io/acme/web:v2", "apps:web"));
        assert_eq!(changed("apps:web:tag"), line("v2", "apps:web:tag"));
        assert_eq!(changed("apps:web:name"), line("ghcr.io/acme/web", "apps:web:name"));
        for setter in ["apps:other", "other:web", "apps:web:size"] {
            assert_eq!(changed(setter), line("old", setter));
        }
        assert_eq!(with_value("image: x # web\n", "apps", &results), "image: x # web\n");
    }
}
