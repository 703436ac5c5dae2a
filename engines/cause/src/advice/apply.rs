//! Advice about what could not be built or applied: what to correct, and where.

use objects::{Object, ObjectId};

use super::{CauseSubjects, is_plain, windlass_name};
use crate::cause_result::RootCause;
use crate::condition::{condition, exhausted, text};
use crate::object_references;

/// What helps, and the command if there is one.
type AdviceTextAndCommand = (String, Option<String>);

/// A build that fails.
pub(super) fn build(cause: &RootCause, held: Option<&Object>) -> AdviceTextAndCommand {
    let decryption = held.and_then(|it| it.get("spec")?.get("decryption")?.get("secretRef"));
    let is_encrypted = ["decrypt", "SOPS", "sops"].iter().any(|word| cause.text.contains(word));
    if let Some(name) = decryption.map(|it| text(it, "name")).filter(|_| is_encrypted) {
        let secret = ObjectId::new(&cause.object.namespace, name, "", "Secret");
        let help = format!(
            "add the private key of one of the recipients to {} (spec.decryption.secretRef)",
            secret.subject()
        );
        let command = format!(
            "kubectl -n {} create secret generic {name} --from-file=age.agekey=PATH --dry-run=client -o yaml | kubectl \
             apply -f -",
            secret.namespace
        );
        return (help, Some(command).filter(|_| is_plain(&secret)));
    }
    if let Some(object) = held.filter(|it| is_encrypted && it.kind() == "Kustomization") {
        let subject = object.id().subject();
        let help = format!(
            "name a Secret with the private key of one of the recipients in spec.decryption.secretRef of {subject}, with \
             spec.decryption.provider: sops"
        );
        return (help, None);
    }
    if cause.text.contains("path not found") {
        return ("correct spec.path, or commit the directory".to_owned(), None);
    }
    let help = match held.and_then(place) {
        Some(place) => format!("correct the file that the message names in {place}, or the spec"),
        None => "correct the spec, or the file that the message names, and push".to_owned(),
    };
    (help, None)
}

/// Values that fail.
pub(super) fn values(cause: &RootCause, held: Option<&Object>) -> AdviceTextAndCommand {
    // Nothing else can read them, either.
    if cause.text.contains("values reference") {
        return ("correct the values that the message names".to_owned(), None);
    }
    let command = held
        .filter(|it| it.kind() == "HelmRelease")
        .map(|it| format!("windlass values {} -n {}", windlass_name(&it.id()), it.namespace()));
    (
        "correct the values that the message names; each has one source that sets it".to_owned(),
        command,
    )
}

/// A test of a release that fails.
pub(super) fn test(cause: &RootCause, held: Option<&Object>) -> AdviceTextAndCommand {
    let help = "correct what the test found, or the test".to_owned();
    let command = logs(&cause.text).or_else(|| held.and_then(reset));
    (help, command)
}

/// The beginning of Helm's message about values that do not match the chart's schema.
const SCHEMA: &str = "values don't meet the specifications of the schema";

/// What the API server refused, values that a schema refuses, or a hook that failed.
pub(super) fn refused(cause: &RootCause, about: CauseSubjects<'_>) -> AdviceTextAndCommand {
    let id = &cause.object;
    // What is refused may be an object that is reconciled, too: it is corrected where it comes from.
    let owner = about.reporter.or(about.held);
    let is_own = owner.is_some_and(|it| it.id() == *id);
    if cause.text.contains(SCHEMA) {
        return values(cause, owner);
    }
    let reset = owner.filter(|it| exhausted(it).is_some()).and_then(reset);
    let then = if reset.is_some() { ", then reset the failures of the release" } else { "" };
    if cause.text.contains("because it is being terminated") {
        let help =
            "the namespace is being deleted: wait until it is gone, or delete what applies to it";
        return (help.to_owned(), None);
    }
    let what = match is_own {
        true => "the object that the message names".to_owned(),
        false => id.subject(),
    };
    let files = owner.and_then(place).map(|place| format!(" in {place}")).unwrap_or_default();
    if let Some(owner) = owner.filter(|it| is_contested(it)) {
        return (contested(id, owner, is_own, &files), None);
    }
    if apply::dry_run_refusal::says_immutable(&cause.text) {
        let is_release = owner.is_some_and(|it| it.kind() != "Kustomization");
        let help = match is_release {
            true => format!(
                "revert the change of that field{files}, or delete {what}, which the next attempt creates again{then}"
            ),
            false => format!(
                "revert the change of that field{files}, or have {what} deleted and created again: annotate it there with \
                 kustomize.toolkit.fluxcd.io/force: enabled"
            ),
        };
        let commands = [delete_job(&cause.text), reset].into_iter().flatten();
        return (help, commands.reduce(|first, second| format!("{first} && {second}")));
    }
    if let Some(logs) = logs(&cause.text) {
        let help = format!("read the log of what failed (`{logs}`), correct it{then}");
        return (help, reset.or(Some(logs)));
    }
    let help = if cause.text.contains("no matches for kind") {
        let owner = owner.map_or_else(|| "it".to_owned(), |it| it.id().subject());
        format!(
            "install the CustomResourceDefinition of that kind: by {owner} itself, or by what its spec.dependsOn names{then}"
        )
    } else if let Some(account) = owner.and_then(account).filter(|_| is_forbidden(&cause.text)) {
        format!("grant {account} the right that the message names{then}")
    } else {
        format!("correct {what}{files}{then}")
    };
    (help, reset)
}

/// Whether another client keeps changing what an object applies.
fn is_contested(owner: &Object) -> bool {
    let ready = condition(owner, reconcile::READY);
    ready.is_some_and(|said| said.reason == reconcile::reason::CONTESTED.as_str())
}

/// What helps where another client keeps changing what is applied: the manifest is right. The message names the fields, and
/// has the rule that leaves them to that client.
fn contested(id: &ObjectId, owner: &Object, is_own: bool, files: &str) -> String {
    let what = match is_own {
        true => "what the message names".to_owned(),
        false => id.subject(),
    };
    let field = match owner.kind() {
        "Kustomization" => "spec.ignore",
        _ => "spec.driftDetection.ignore",
    };
    format!(
        "stop the client that keeps changing or deleting {what}, remove that from the manifests{files}, or leave its fields to \
         the client: add the rule that the message has to {field} of {}",
        owner.id().subject()
    )
}

/// Whether a refusal is about rights, and not about a quota or a policy.
fn is_forbidden(text: &str) -> bool {
    text.contains("cannot ") && (text.contains("forbidden") || text.contains("Forbidden"))
}

/// The ServiceAccount as which an object is applied.
fn account(owner: &Object) -> Option<String> {
    let name = owner.get("spec").map(|spec| text(spec, "serviceAccountName"))?;
    let id = ObjectId::new(owner.namespace(), name, "", "ServiceAccount");
    (!name.is_empty()).then(|| id.subject())
}

/// The command that forgets the failures of a release, so that it is tried again.
fn reset(object: &Object) -> Option<String> {
    let id = object.id();
    (id.kind == "HelmRelease" && is_plain(&id))
        .then(|| format!("windlass reconcile {} -n {} --reset", windlass_name(&id), id.namespace))
}

/// Where what an object applies comes from.
fn place(owner: &Object) -> Option<String> {
    if owner.kind() == "HelmRelease" {
        return Some(format!("the chart or the values of {}", owner.id().subject()));
    }
    let source = object_references::sources(owner).into_iter().next()?.subject();
    let path = owner.get("spec").map(|spec| text(spec, "path")).unwrap_or_default();
    Some(match path.trim_start_matches("./").trim_matches('/') {
        "" => source,
        path => format!("folder {path} of {source}"),
    })
}

/// The command that prints the log of the Job or Pod that a text names.
fn logs(message: &str) -> Option<String> {
    named_in(message).find_map(|id| {
        let kind = id.kind.to_lowercase();
        is_plain(&id).then(|| format!("kubectl -n {} logs {kind}/{}", id.namespace, id.name))
    })
}

/// The command that deletes the Job that a text names, so that it is created again.
fn delete_job(message: &str) -> Option<String> {
    let job = named_in(message).find(|id| id.kind == "Job" && is_plain(id))?;
    Some(format!("kubectl -n {} delete job {}", job.namespace, job.name))
}

/// The Jobs and Pods that a text names.
fn named_in(message: &str) -> impl Iterator<Item = ObjectId> {
    let words =
        message.split(|letter: char| letter.is_whitespace() || "[](),:;'\"".contains(letter));
    words.filter_map(named)
}

/// A Job or Pod that is named as `Kind/namespace/name`.
fn named(word: &str) -> Option<ObjectId> {
    let mut parts = word.split('/');
    let kind = parts.next()?;
    let namespace = parts.next()?;
    let name = parts.next()?;
    let group = match kind {
        "Job" => "batch",
        "Pod" => "",
        _ => return None,
    };
    parts.next().is_none().then(|| ObjectId::new(namespace, name, group, kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_of_a_job_that_a_message_names_is_printed_by_a_command() {
        let failed = "failed pre-install: failed early due to stalled resources: [Job/apps/migrate status: 'Failed']";
        assert_eq!(logs(failed).as_deref(), Some("kubectl -n apps logs job/migrate"));
        let first = "pre-install hook Job/apps/migrate failed: exit code 3";
        assert_eq!(logs(first).as_deref(), Some("kubectl -n apps logs job/migrate"));
        assert_eq!(logs("Job/apps/$(id) failed, so did Deployment/apps/web and Job/x"), None);
    }
}
