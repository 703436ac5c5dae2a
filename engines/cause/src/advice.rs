//! Advice for a cause: one sentence, and one command if a command helps.
//!
//! Here: each kind of problem. Below: objects that could not be applied (`advice/apply.rs`), remotes
//! (`advice/fetch.rs`), missing objects (`advice/missing_objects_and_keys.rs`), rights (`advice/rights.rs`), and objects
//! with two owners (`advice/ownership.rs`). Messages of other programs are read for advice only, and no decision depends on
//! them. Elsewhere: the keys that a Secret needs (`required_secret_keys.rs`).

mod apply;
mod fetch;
mod missing_objects_and_keys;
mod ownership;
mod rights;

use jiff::SignedDuration;
use objects::{Object, ObjectId};
use reconcile::{ReleaseRollbackProgress, Time};

pub(crate) use self::apply::lacks_kind;
pub(crate) use self::rights::is_forbidden;
use crate::cause_result::{CauseAdvice, CauseKind, RootCause};
use crate::cause_walk::seconds;
use crate::condition::condition;
use crate::object_references;
use crate::object_suspension::{RequestedRollback, rollback};
use crate::pod::PodTrouble;

/// The sentence of advice, and the command if a command helps.
type AdviceTextAndCommand = (String, Option<String>);

/// The objects that are related to a cause, as far as they are known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CauseRelatedObjects<'o> {
    /// The object of the cause.
    pub(crate) held: Option<&'o Object>,
    /// The object that the user asked about.
    pub(crate) subject: Option<&'o Object>,
    /// The last object on the path before the object of the cause. It names or applies that object.
    pub(crate) namer: Option<&'o Object>,
    /// The object whose condition reports the cause, such as the Kustomization that applies the failing object.
    pub(crate) reporter: Option<&'o Object>,
    /// The object whose address and credentials the object of the cause uses, such as the GitRepository to which it
    /// pushes.
    pub(crate) remote: Option<&'o Object>,
    /// Whether all objects that the reporter applied are healthy although its retries are exhausted.
    pub(crate) is_healthy: bool,
    /// The first object on the path whose retries are exhausted.
    pub(crate) exhausted: Option<&'o Object>,
}

/// What a user can do against the cause of a failure. `None` if there is no advice for this cause.
pub(crate) fn advice(
    cause: &RootCause,
    about: CauseRelatedObjects<'_>,
    now: Time,
) -> Option<CauseAdvice> {
    let held = about.held;
    let id = &cause.object;
    let namespace = &id.namespace;
    let (text, command) = match cause.problem {
        CauseKind::Missing => missing_objects_and_keys::missing(id, about),
        CauseKind::Suspension => suspended(id, held, now),
        CauseKind::ExpiredHold => {
            ("remove spec.suspend where its manifest is kept, such as in Git".to_owned(), None)
        }
        CauseKind::ClosedWindow => {
            let until = now.checked_add(SignedDuration::from_hours(1)).unwrap_or(now);
            let target = kubectl_name(id);
            (
                "wait for the window, or open it until a time".to_owned(),
                Some(format!(
                    "kubectl -n {namespace} annotate --overwrite {target} windlass.dev/break-glass={}",
                    seconds(until)
                )),
            )
        }
        CauseKind::Freeze => (
            "wait for the end of the Freeze, or let this operation begin as the message says"
                .to_owned(),
            Some("windlass get freezes".to_owned()),
        ),
        CauseKind::Wave => (
            "wait for the wave, or see what the rollout waits for".to_owned(),
            Some(format!("windlass get stagedrollouts,clusterstagedrollouts -n {namespace}")),
        ),
        CauseKind::InvalidWindow => ("correct the annotation windlass.dev/window".to_owned(), None),
        CauseKind::NotReconciled => (
            "check that windlass runs and reconciles this namespace".to_owned(),
            Some("windlass check".to_owned()),
        ),
        CauseKind::Deletion => deletion(id, held),
        CauseKind::Fetch => (fetch::fetch(cause, about), None),
        CauseKind::Credentials => (fetch::credentials(cause, about), None),
        CauseKind::Verification => {
            ("compare the key or digest in the spec with the published one".to_owned(), None)
        }
        CauseKind::Cycle => (
            "remove one of the entries of the cycle from its spec, where that is committed"
                .to_owned(),
            None,
        ),
        CauseKind::Dependency => dependency(id, about),
        CauseKind::Build | CauseKind::Artifact => apply::build(cause, held),
        CauseKind::Values => apply::values(cause, held),
        CauseKind::Spec => (spec(id, held), None),
        CauseKind::Access => {
            ("refer to an object of the same namespace, or ask an administrator".to_owned(), None)
        }
        CauseKind::Apply => waiting_plan(&cause.text)
            .or_else(|| ownership::refused(cause, about))
            .unwrap_or_else(|| apply::refused(cause, about)),
        CauseKind::Ownership => ownership::taken(cause, about),
        CauseKind::Lifecycle => lifecycle(namespace),
        CauseKind::Test => apply::test(cause, held),
        CauseKind::Image => (
            "correct the image, or the Secret that its registry requires (imagePullSecrets)"
                .to_owned(),
            Some(format!("kubectl -n {namespace} describe pod {}", id.name)),
        ),
        CauseKind::Container => container(id, held),
        CauseKind::Scheduling => (
            "make room on a node, or correct requests, node selectors and tolerations".to_owned(),
            Some(format!("kubectl -n {namespace} describe pod {}", id.name)),
        ),
        CauseKind::Admission => {
            ("correct the Pod template, or the quota or policy that refuses it".to_owned(), None)
        }
        CauseKind::Volume => (
            "check the StorageClass and its provisioner".to_owned(),
            Some(format!("kubectl -n {namespace} describe {}", kubectl_name(id))),
        ),
        CauseKind::Delivery => (
            fetch::delivery(cause, about),
            Some(format!("windlass alerts test {} -n {namespace}", id.name)),
        ),
        CauseKind::Health | CauseKind::Other => other(id, held),
    };
    let reset = about.exhausted.and_then(apply::reset).filter(|_| is_of_objects(cause.problem));
    let text = match reset {
        Some(reset) => format!("{text}; then reset the failures of the release: `{reset}`"),
        None => text,
    };
    Some(CauseAdvice { text, command: command.filter(|_| is_plain(id)) })
}

/// Whether a problem is about an applied object. Once it is corrected, the applier does not retry by itself.
fn is_of_objects(problem: CauseKind) -> bool {
    matches!(
        problem,
        CauseKind::Image
            | CauseKind::Container
            | CauseKind::Scheduling
            | CauseKind::Admission
            | CauseKind::Volume
            | CauseKind::Health
    )
}

/// Advice for a dependency of which only its state is known: it is not ready. It also covers objects that wait for one
/// of several dependencies.
fn dependency(id: &ObjectId, about: CauseRelatedObjects<'_>) -> AdviceTextAndCommand {
    let why = |id: &ObjectId| format!("windlass why {} -n {}", windlass_name(id), id.namespace);
    let is_waiting = |it: &&Object| it.id() == *id;
    let waiting = about.reporter.filter(is_waiting).map(object_references::dependencies);
    let named: Vec<ObjectId> = waiting.into_iter().flatten().map(|it| it.object).collect();
    match named.as_slice() {
        [] => ("check the dependency".to_owned(), Some(why(id))),
        [first, ..] => {
            let subjects = named.iter().map(ObjectId::subject).collect::<Vec<_>>().join(", ");
            let text = format!("check what it depends on: {subjects}");
            (text, Some(why(first)).filter(|_| is_plain(first)))
        }
    }
}

/// Advice for an object about which only its own condition is known.
fn other(id: &ObjectId, held: Option<&Object>) -> AdviceTextAndCommand {
    let target = kubectl_name(id);
    let ready = held.and_then(|it| condition(it, reconcile::READY));
    match ready.map(|it| it.reason) {
        Some("DowngradeRefused") => (
            "push the tag anew, or allow the lower one and remove the annotation afterwards"
                .to_owned(),
            Some(format!(
                "kubectl{} annotate {target} windlass.dev/allow-downgrade=true",
                in_namespace(id)
            )),
        ),
        Some("Failure") if id.kind == "ImagePolicy" => (
            "correct spec.policy or spec.filterTags by what the message says, or push a tag that they admit"
                .to_owned(),
            None,
        ),
        Some("Quarantined") => (
            "commit a correction; the message has the command that applies the quarantined revision again"
                .to_owned(),
            None,
        ),
        Some("MinAgeNotReached") => {
            ("wait, or set a shorter windlass.dev/min-age".to_owned(), None)
        }
        Some("PlatformsMissing") => (
            "push an image for all platforms, or correct windlass.dev/required-platforms"
                .to_owned(),
            None,
        ),
        Some("MarkerWithoutDigest") => (
            "mark the whole image, or its digest as well, in the file that the message names"
                .to_owned(),
            None,
        ),
        _ => (
            "check the object".to_owned(),
            Some(format!("kubectl{} describe {target}", in_namespace(id))),
        ),
    }
}

/// Whether a text can stand in a shell command without quotes.
fn is_word(text: &str) -> bool {
    let is_of_name = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'-')
    };
    !text.starts_with('-') && text.bytes().all(is_of_name)
}

/// Whether kind, namespace and name of an object can stand in a shell command without quotes.
fn is_plain(id: &ObjectId) -> bool {
    let kind = id.kind.to_lowercase();
    !id.name.is_empty()
        && [&id.name, &id.namespace, &id.group, &kind].into_iter().all(|it| is_word(it))
}

/// Advice for a suspended object, and for the rollback because of which it is suspended.
fn suspended(id: &ObjectId, held: Option<&Object>, now: Time) -> AdviceTextAndCommand {
    let ours = windlass_name(id);
    let namespace = &id.namespace;
    let resumption = format!("windlass resume {ours} -n {namespace}");
    let Some(RequestedRollback { asked, progress, failure }) = held.and_then(rollback) else {
        return (suspension(held, now), Some(resumption));
    };
    match (progress, failure) {
        // If the release is resumed before a commit reverts the change, it is upgraded again to the revision from which
        // it was rolled back.
        (ReleaseRollbackProgress::Succeeded, _) => (
            "it was rolled back: commit what keeps it so, see what resuming changes, then resume it"
                .to_owned(),
            Some(format!("{resumption} --plan")),
        ),
        (ReleaseRollbackProgress::Requested, None) => (
            "check that windlass runs, which carries the rollback out; to withdraw the request, resume it"
                .to_owned(),
            Some("windlass check".to_owned()),
        ),
        (ReleaseRollbackProgress::Requested, Some(_)) => (
            "request a rollback to a revision that there is, or resume it".to_owned(),
            Some(format!("windlass history {ours} -n {namespace}")),
        ),
        (ReleaseRollbackProgress::Overtaken | ReleaseRollbackProgress::Failed, _) => (
            "request the rollback once more, or resume it".to_owned(),
            Some(format!("windlass rollback {ours} -n {namespace} --to {}", asked.to)),
        ),
        (ReleaseRollbackProgress::Unknown, _) => (suspension(held, now), Some(resumption)),
    }
}

/// Advice whom to ask before ending a suspension.
fn suspension(held: Option<&Object>, now: Time) -> String {
    let hold = held.and_then(|it| crate::object_suspension::suspension(it, now)).flatten();
    match hold.as_ref().and_then(reconcile::ObjectHold::owner) {
        Some(owner) => format!("ask {owner} whether the reason is gone, then resume it"),
        None => "resume it when the reason is gone".to_owned(),
    }
}

/// Advice where to correct a spec. If another object applies this one, its next run would undo a change in the cluster.
fn spec(id: &ObjectId, held: Option<&Object>) -> String {
    let subject = id.subject();
    match held.and_then(object_references::applier) {
        Some(owner) if id.kind == "HelmChart" && owner.kind == "HelmRelease" => {
            format!(
                "correct spec.chart of {}, from which windlass makes {subject}",
                owner.subject()
            )
        }
        Some(owner) => {
            format!(
                "correct the spec of {subject} in the source of {}, which applies it",
                owner.subject()
            )
        }
        None => format!("correct the spec of {subject}"),
    }
}

/// Advice which output of a Pod to read when its container does not run.
fn container(id: &ObjectId, held: Option<&Object>) -> AdviceTextAndCommand {
    let namespace = &id.namespace;
    let name = &id.name;
    let describe = Some(format!("kubectl -n {namespace} describe pod {name}"));
    match held.and_then(crate::pod::crashing) {
        Some(container) if container.is_restarted && is_word(container.name) => (
            "read what the container printed before it ended".to_owned(),
            Some(format!("kubectl -n {namespace} logs {name} -c {} --previous", container.name)),
        ),
        Some(_) => (
            "read what the container printed".to_owned(),
            Some(format!("kubectl -n {namespace} logs {name} --all-containers")),
        ),
        // The container has not run, so it has no log.
        None if held.is_some_and(lacks_reference) => {
            ("create what the message names, or correct the Pod template".to_owned(), describe)
        }
        None => ("correct the Pod template by what the message says".to_owned(), describe),
    }
}

/// Whether a container of a Pod names a Secret or ConfigMap, or a key of one, that does not exist.
fn lacks_reference(pod: &Object) -> bool {
    matches!(
        crate::pod::trouble(pod),
        Some(PodTrouble::Waiting { reason, .. }) if reason == "CreateContainerConfigError"
    )
}

fn lifecycle(namespace: &str) -> AdviceTextAndCommand {
    let text = "see what the lifecycle waits for; where users approve, use `windlass approve`";
    (text.to_owned(), Some(format!("windlass get lifecycleevents -n {namespace}")))
}

/// Advice to approve the Plan for which an object waits. The command is the last one in the message, so that names in
/// the message cannot replace it. `None` if the message has no such command or if it has a character that a shell may
/// interpret.
fn waiting_plan(text: &str) -> Option<AdviceTextAndCommand> {
    let is_plain =
        |part: &&str| part.chars().all(|it| it.is_ascii_alphanumeric() || " -./".contains(it));
    let mut parts = text.split('`').rev().filter(|part| part.starts_with("windlass approve plan/"));
    let command = parts.next().filter(is_plain)?;
    let text = "read with `windlass plan show` what it would do, and approve it";
    Some((text.to_owned(), Some(command.to_owned())))
}

fn deletion(id: &ObjectId, held: Option<&Object>) -> AdviceTextAndCommand {
    let shown = format!("kubectl{} get {} -o yaml", in_namespace(id), kubectl_name(id));
    if (id.group.as_str(), id.kind.as_str()) != ("", "Namespace") {
        let text = "wait for its finalizers, or find the controller that removes them";
        return (text.to_owned(), Some(shown));
    }
    let text = format!(
        "wait until {} is gone, after which it can be created again; where the controller of a finalizer is gone, remove \
         the finalizer from the objects that are left",
        id.subject()
    );
    let left = held.and_then(|it| condition(it, "NamespaceContentRemaining"));
    let kinds = left.map(|said| kinds_of_remaining(said.message)).unwrap_or_default();
    let command = match kinds.is_empty() {
        true => shown,
        false => format!(
            "kubectl -n {} get {} -o custom-columns=KIND:.kind,NAME:.metadata.name,FINALIZERS:.metadata.finalizers",
            id.name,
            kinds.join(",")
        ),
    };
    (text, Some(command))
}

/// The kinds of which a Namespace still has objects, as its condition lists them: `configmaps. has 1 resource
/// instances, …`.
fn kinds_of_remaining(message: &str) -> Vec<&str> {
    let (_, list) = message.split_once(": ").unwrap_or(("", message));
    let kinds = list.split(", ").filter_map(|it| it.split_once(" has "));
    let kinds = kinds.map(|(kind, _)| kind.trim_end_matches('.'));
    kinds.filter(|kind| !kind.is_empty() && is_word(kind)).collect()
}

fn windlass_name(id: &ObjectId) -> String {
    format!("{}/{}", id.kind.to_lowercase(), id.name)
}

/// The command that reconciles an object.
fn reconciliation(id: &ObjectId) -> String {
    format!("windlass reconcile {} -n {}", windlass_name(id), id.namespace)
}

fn kubectl_name(id: &ObjectId) -> String {
    let kind = id.kind.to_lowercase();
    match id.group.as_str() {
        "" | "apps" | "batch" => format!("{kind}/{}", id.name),
        group => format!("{kind}.{group}/{}", id.name),
    }
}

fn in_namespace(id: &ObjectId) -> String {
    match id.namespace.as_str() {
        "" => String::new(),
        namespace => format!(" -n {namespace}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_for_its_plan_is_approved_by_the_last_command_of_the_message() {
        let command = |text: &str| waiting_plan(text).and_then(|it| it.1);
        let own = "windlass approve plan/apps-1 -n shop";
        let text = format!("revision main waits for approval: 1 added; to approve it, run `{own}`");
        assert_eq!(command(&text).as_deref(), Some(own));
        let other = text.replace("main", "`windlass approve plan/other -n b`");
        assert_eq!(command(&other).as_deref(), Some(own));
        assert_eq!(command("run `windlass approve plan/a -n b; reboot`"), None);
        assert_eq!(command("the field is immutable"), None);
    }
}
