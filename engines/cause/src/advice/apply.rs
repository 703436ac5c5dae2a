//! Advice about objects that could not be built or applied: what to correct, and where.
//!
//! Elsewhere: missing rights (`rights.rs`).

use apply::dry_run_refusal;
use objects::{Object, ObjectId};
use serde_json::Value;

use super::rights::{is_forbidden, rights};
use super::{
    AdviceTextAndCommand, CauseRelatedObjects, is_plain, is_word, reconciliation, windlass_name,
};
use crate::cause_result::RootCause;
use crate::cause_walk::named_first;
use crate::condition::{condition, exhausted, text};
use crate::object_references;

/// The words after advice to grant rights.
const AFTER_GRANT: &str = ", after which it is retried";

/// How many refusals of one run get advice.
const MOST_ADVISED: usize = 3;

/// Advice for a failed build.
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

/// Advice for values that cannot be used.
pub(super) fn values(cause: &RootCause, held: Option<&Object>) -> AdviceTextAndCommand {
    // The reference cannot be read, so no command can read the values either.
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

/// Advice for a failed test of a release.
pub(super) fn test(cause: &RootCause, held: Option<&Object>) -> AdviceTextAndCommand {
    let help = "correct what the test found, or the test".to_owned();
    let command = logs(&cause.text).or_else(|| held.and_then(reset));
    (help, command)
}

/// The beginning of Helm's message about values that do not match the chart's schema.
const SCHEMA: &str = "values don't meet the specifications of the schema";

/// Advice for an object that the API server refused, for values that a schema refuses, and for a failed hook.
pub(super) fn refused(cause: &RootCause, about: CauseRelatedObjects<'_>) -> AdviceTextAndCommand {
    // The refused object may itself be one that windlass reconciles. It has to be corrected in the files or the chart
    // of its applier.
    let owner = about.reporter.or(about.held);
    if let Some(reset) =
        owner.filter(|_| about.is_healthy).and_then(|it| reset_after_wait(cause, it))
    {
        let help = "everything that the release waited for is healthy by now: reset its failures";
        return (help.to_owned(), Some(reset));
    }
    let said = owner.and_then(|it| condition(it, reconcile::READY));
    let refusals = said.map(|said| dry_run_refusal::split(said.message)).unwrap_or_default();
    match owner {
        Some(owner) if refusals.len() > 1 => several(cause, owner, &refusals),
        _ => refusal(cause, owner),
    }
}

/// Advice for several refusals of one run. Each needs its own correction, except missing rights, which are granted
/// together.
fn several(cause: &RootCause, owner: &Object, refusals: &[&str]) -> AdviceTextAndCommand {
    let mut helps: Vec<String> = Vec::new();
    let mut commands: Vec<String> = Vec::new();
    let (forbidden, others): (Vec<&str>, Vec<&str>) =
        refusals.iter().copied().partition(|said| is_forbidden(said));
    let granted = rights(&forbidden, Some(owner)).filter(|_| !forbidden.is_empty());
    let others = if granted.is_some() { others } else { refusals.to_vec() };
    if let Some((help, command)) = granted {
        helps.push(format!("{help}{AFTER_GRANT}"));
        commands.extend(command);
    }
    for said in others {
        let object = named_first(owner, said).unwrap_or_else(|| owner.id());
        let one = RootCause { object, text: said.to_owned(), ..cause.clone() };
        let (help, command) = refusal(&one, Some(owner));
        if helps.contains(&help) {
            continue;
        }
        if helps.len() >= MOST_ADVISED {
            helps.push("correct what else the message names".to_owned());
            break;
        }
        helps.push(help);
        let new = command.filter(|it| !commands.contains(it));
        commands.extend(new);
    }
    let command = commands.into_iter().reduce(|first, second| format!("{first} && {second}"));
    (helps.join("; "), command)
}

/// Advice for one refusal of a run.
fn refusal(cause: &RootCause, owner: Option<&Object>) -> AdviceTextAndCommand {
    let id = &cause.object;
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
        true => refused_object(&cause.text),
        false => id.subject(),
    };
    let files = owner.and_then(place).map(|place| format!(" in {place}")).unwrap_or_default();
    if let Some(owner) = owner.filter(|it| is_contested(it)) {
        return (contested(id, owner, is_own, &files), None);
    }
    if let Some((owner, name)) = owner.zip(absent_namespace(&cause.text)) {
        return namespace(name, owner, &what, &files);
    }
    if dry_run_refusal::says_immutable(&cause.text) {
        let commands = [delete_job(&cause.text), reset].into_iter().flatten();
        let command = commands.reduce(|first, second| format!("{first} && {second}"));
        return (immutable(owner, &what, &files, then), command);
    }
    if let Some(logs) = logs(&cause.text).filter(|_| !is_refused(&cause.text)) {
        let help = format!("read the log of what failed (`{logs}`), correct it{then}");
        return (help, reset.or(Some(logs)));
    }
    if is_forbidden(&cause.text)
        && let Some((help, command)) = rights(&[&cause.text], owner)
    {
        let again = if reset.is_some() { then } else { AFTER_GRANT };
        let commands = [command, reset].into_iter().flatten();
        let command = commands.reduce(|first, second| format!("{first} && {second}"));
        return (format!("{help}{again}"), command);
    }
    if let Some((_, rest)) = cause.text.split_once("failed calling webhook \"") {
        let webhook = rest.split('"').next().unwrap_or_default();
        let help = format!(
            "make the service of the admission webhook {webhook} respond, or correct the configuration that names it{then}"
        );
        let all = "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations";
        return (help, reset.or_else(|| Some(all.to_owned())));
    }
    let help = match missing_kind(&cause.text) {
        Some(kind) => {
            let owner = owner.map_or_else(|| "it".to_owned(), |it| it.id().subject());
            format!(
                "install the CustomResourceDefinition of kind {kind}: by {owner} itself, or by what its spec.dependsOn \
                 names{then}"
            )
        }
        None => format!("correct {what}{files}{then}"),
    };
    (help, reset)
}

/// Whether a message is about an object that was refused before it was created. Such an object has no log.
fn is_refused(said: &str) -> bool {
    dry_run_refusal::subject(said).is_some() || dry_run_refusal::is_of_several(said)
}

/// Names the object to correct, as the refusal names it.
fn refused_object(refusal: &str) -> String {
    match dry_run_refusal::subject(refusal) {
        Some(subject) => subject.to_owned(),
        None if dry_run_refusal::is_of_several(refusal) => {
            "the objects that the message names".to_owned()
        }
        None => "the object that the message names".to_owned(),
    }
}

fn immutable(owner: Option<&Object>, what: &str, files: &str, then: &str) -> String {
    match owner.is_some_and(|it| it.kind() != "Kustomization") {
        true => format!(
            "revert the change of that field{files}; or delete {what}, unless another release or Kustomization applies it, too, \
             and the next attempt creates it again{then}"
        ),
        false => format!(
            "revert the change of that field{files}, or have {what} deleted and created again: annotate it there with \
             kustomize.toolkit.fluxcd.io/force: enabled"
        ),
    }
}

/// The beginning of the API server's message about a kind that it does not serve.
const NO_SUCH_KIND: &str = "no matches for kind";

/// Whether a run failed because the API server does not serve a kind.
pub(crate) fn lacks_kind(said: &str) -> bool {
    said.contains(NO_SUCH_KIND)
}

/// The kind that the API server does not serve, according to its message. `None` if the message is about another
/// failure.
fn missing_kind(said: &str) -> Option<&str> {
    let (_, rest) = said.split_once(NO_SUCH_KIND)?;
    rest.split('"').nth(1)
}

/// The Namespace that does not exist, according to the API server's message. `None` if the message is about another
/// failure.
fn absent_namespace(said: &str) -> Option<&str> {
    let (_, rest) = said.split_once("namespaces \"")?;
    let (name, rest) = rest.split_once('"')?;
    rest.starts_with(" not found").then_some(name)
}

/// Advice for objects in a Namespace that does not exist. Creating the Namespace does not cause a run.
fn namespace(name: &str, owner: &Object, what: &str, files: &str) -> AdviceTextAndCommand {
    let spec = owner.get("spec").unwrap_or(&Value::Null);
    let id = owner.id();
    let subject = id.subject();
    let is_release = owner.kind() == "HelmRelease";
    let help = match text(spec, "targetNamespace") == name {
        true if is_release => format!(
            "create Namespace/{name}, set spec.install.createNamespace of {subject}, or correct its spec.targetNamespace"
        ),
        true => format!("create Namespace/{name}, or correct spec.targetNamespace of {subject}"),
        false => {
            format!("create Namespace/{name}, or correct metadata.namespace of {what}{files}")
        }
    };
    let reset = if exhausted(owner).is_some() && is_release { " --reset" } else { "" };
    let command = format!("kubectl create namespace {name} && {}{reset}", reconciliation(&id));
    let is_command = is_word(name) && !name.is_empty() && is_plain(&id);
    // No command is given if the Namespace belongs to another cluster.
    (help, Some(command).filter(|_| is_command && !object_references::is_elsewhere(owner)))
}

/// Parts of messages about a failed wait.
const WAITED: [&str; 2] = ["timeout waiting for: [", "failed early due to stalled resources"];

/// The command for a release whose retries are exhausted because a wait for its applied objects failed. `None` if the
/// newest revision is not the failed one.
fn reset_after_wait(cause: &RootCause, release: &Object) -> Option<String> {
    exhausted(release)?;
    let newest = release.get("status")?.get("history")?.as_array()?.first()?;
    let applied = object_references::inventory(release);
    let is_wait = WAITED.iter().any(|it| cause.text.contains(it));
    // The inventory does not list hooks.
    let is_of_applied = named_in(&cause.text).all(|id| applied.contains(&id));
    let is_in_place = text(newest, "status") == "failed";
    reset(release).filter(|_| is_wait && is_of_applied && is_in_place)
}

/// Whether another client keeps changing the objects that `owner` applies.
fn is_contested(owner: &Object) -> bool {
    let ready = condition(owner, reconcile::READY);
    ready.is_some_and(|said| said.reason == reconcile::condition_reason::CONTESTED.as_str())
}

/// Advice for an applied object that another client keeps changing, although its manifest is right. The message names
/// the fields, and has the rule that leaves them to that client.
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

/// The command that resets the failures of a release, so that it is retried. `None` if the object is no HelmRelease or
/// its name is not plain.
pub(super) fn reset(object: &Object) -> Option<String> {
    let id = object.id();
    (id.kind == "HelmRelease" && is_plain(&id))
        .then(|| format!("windlass reconcile {} -n {} --reset", windlass_name(&id), id.namespace))
}

/// Where the manifests of an applier's objects are to be corrected, as text: the chart or values of a HelmRelease, or a
/// folder of the source. `None` if the owner has no source.
pub(super) fn place(owner: &Object) -> Option<String> {
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

/// The command that prints the log of the first Job or Pod in a message. `None` if the message names none.
fn logs(message: &str) -> Option<String> {
    named_in(message).find_map(|id| {
        let kind = id.kind.to_lowercase();
        is_plain(&id).then(|| format!("kubectl -n {} logs {kind}/{}", id.namespace, id.name))
    })
}

/// The command that deletes the first Job in a message, so that it is created again. `None` if the message names none.
fn delete_job(message: &str) -> Option<String> {
    let job = named_in(message).find(|id| id.kind == "Job" && is_plain(id))?;
    Some(format!("kubectl -n {} delete job {}", job.namespace, job.name))
}

/// The Jobs and Pods that a message names.
fn named_in(message: &str) -> impl Iterator<Item = ObjectId> {
    let words =
        message.split(|letter: char| letter.is_whitespace() || "[](),:;'\"".contains(letter));
    words.filter_map(named)
}

/// Reads a word such as `Job/namespace/name` as the id of a Job or Pod. `None` if the word does not have this form.
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
