//! What would help: one sentence, and the one command if a command helps.
//!
//! Here: each kind of problem. Below: what could not be applied (`advice/apply.rs`). Texts of others are read for advice only;
//! no decision depends on them. Elsewhere: what Secrets have to hold (`required_keys.rs`).

mod apply;

use jiff::SignedDuration;
use objects::{Object, ObjectId};
use reconcile::{ReleaseRollbackProgress, Time};
use serde_json::Value;

use crate::cause_result::{CauseAdvice, CauseKind, RootCause};
use crate::cause_walk::seconds;
use crate::condition::{condition, text};
use crate::object_references;
use crate::object_suspension::{RequestedRollback, rollback};
use crate::pod::PodTrouble;
use crate::required_keys::RequiredKeys;

/// The objects that a cause has to do with, as far as they are known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CauseSubjects<'o> {
    /// That of the cause.
    pub(crate) held: Option<&'o Object>,
    /// The object that the user asked about.
    pub(crate) subject: Option<&'o Object>,
    /// The last one on the way to the cause, which names or applies its object.
    pub(crate) namer: Option<&'o Object>,
    /// The object whose condition reports the cause, such as the Kustomization that applies the object in trouble.
    pub(crate) reporter: Option<&'o Object>,
}

/// Advice for a cause.
pub(crate) fn advice(
    cause: &RootCause,
    about: CauseSubjects<'_>,
    now: Time,
) -> Option<CauseAdvice> {
    let CauseSubjects { held, subject, .. } = about;
    let id = &cause.object;
    let ours = windlass_name(id);
    let namespace = &id.namespace;
    let (text, command) = match cause.problem {
        CauseKind::Missing => {
            match subject.filter(|it| object_references::inventory(it).contains(id)) {
                Some(owner) => deleted(owner),
                None => missing(id, about),
            }
        }
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
        CauseKind::InvalidWindow => ("correct the annotation windlass.dev/window".to_owned(), None),
        CauseKind::NotReconciled => (
            "check that windlass runs and reconciles this namespace".to_owned(),
            Some("windlass check".to_owned()),
        ),
        CauseKind::Deletion => deletion(id, held),
        CauseKind::Fetch => (fetch(cause, held), None),
        CauseKind::Credentials => (credentials(held), None),
        CauseKind::Verification => {
            ("compare the key or digest in the spec with the published one".to_owned(), None)
        }
        CauseKind::Cycle => (
            "remove one of the entries of the cycle from its spec, where that is committed"
                .to_owned(),
            None,
        ),
        CauseKind::Dependency => {
            ("check the dependency".to_owned(), Some(format!("windlass why {ours} -n {namespace}")))
        }
        CauseKind::Build | CauseKind::Artifact => apply::build(cause, held),
        CauseKind::Values => apply::values(cause, held),
        CauseKind::Spec => (spec(id, held), None),
        CauseKind::Access => {
            ("refer to an object of the same namespace, or ask an administrator".to_owned(), None)
        }
        CauseKind::Apply => apply::refused(cause, about),
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
            format!(
                "correct {} or its Secret by what the service says; what was discarded is not sent again",
                id.subject()
            ),
            Some(format!("windlass events {ours} -n {namespace}")),
        ),
        CauseKind::Health | CauseKind::Other => other(id, held),
    };
    Some(CauseAdvice { text, command: command.filter(|_| is_plain(id)) })
}

/// What to do about an object of which not more is known than what it reports.
fn other(id: &ObjectId, held: Option<&Object>) -> (String, Option<String>) {
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

/// Whether kind, namespace and name of an object can.
fn is_plain(id: &ObjectId) -> bool {
    let kind = id.kind.to_lowercase();
    !id.name.is_empty()
        && [&id.name, &id.namespace, &id.group, &kind].into_iter().all(|it| is_word(it))
}

/// What to do about a suspended object, and about the rollback for which it is suspended.
fn suspended(id: &ObjectId, held: Option<&Object>, now: Time) -> (String, Option<String>) {
    let ours = windlass_name(id);
    let namespace = &id.namespace;
    let resumption = format!("windlass resume {ours} -n {namespace}");
    let Some(RequestedRollback { asked, progress, failure }) = held.and_then(rollback) else {
        return (suspension(held, now), Some(resumption));
    };
    match (progress, failure) {
        // If it is resumed before a commit reverts the change, it goes on to the revision that it was rolled back from.
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

/// Whom to ask before a suspension is ended.
fn suspension(held: Option<&Object>, now: Time) -> String {
    let hold = held.and_then(|it| crate::object_suspension::suspension(it, now)).flatten();
    match hold.as_ref().and_then(reconcile::ObjectHold::owner) {
        Some(owner) => format!("ask {owner} whether the reason is gone, then resume it"),
        None => "resume it when the reason is gone".to_owned(),
    }
}

/// Where a spec has to be corrected: an edit in the cluster is undone if the object is applied by another one.
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

/// What brings back an object that was applied.
fn deleted(owner: &Object) -> (String, Option<String>) {
    let force = if owner.kind() == "HelmRelease" { " --force" } else { "" };
    let name = windlass_name(&owner.id());
    (
        "it was deleted; reconcile what applied it".to_owned(),
        Some(format!("windlass reconcile {name} -n {}{force}", owner.namespace())),
    )
}

fn missing(id: &ObjectId, about: CauseSubjects<'_>) -> (String, Option<String>) {
    let subject = id.subject();
    let needs = || field(id, about).map(|(namer, field)| RequiredKeys::of(namer, &field));
    let named = match field(id, about) {
        Some((namer, field)) => format!("correct {field} of {}", namer.id().subject()),
        None => "correct the reference to it".to_owned(),
    };
    match id.kind.as_str() {
        "Secret" | "ConfigMap" if about.held.is_some() => {
            let command = needs().and_then(|needs| needs.addition(id));
            (format!("add the key to {subject}, or {named}"), command)
        }
        "Secret" | "ConfigMap" => {
            let command = needs().and_then(|needs| needs.creation(id));
            (format!("create {subject}, or {named}"), command)
        }
        "ServiceAccount" => {
            let name = &id.name;
            let namespace = &id.namespace;
            let text = format!(
                "create {subject} with the rights to apply these objects (here those of ClusterRole/edit), or {named}"
            );
            let command = format!(
                "kubectl -n {namespace} create serviceaccount {name} && kubectl -n {namespace} create rolebinding \
                 {name} --clusterrole=edit --serviceaccount={namespace}:{name}"
            );
            (text, Some(command))
        }
        _ if object_references::is_reconciled(id) => {
            (format!("create {subject}, or {named}"), None)
        }
        _ => match about.namer.filter(|it| object_references::is_reconciled(&it.id())) {
            Some(owner) => deleted(owner),
            None => (format!("{subject} was deleted: reconcile what applied it"), None),
        },
    }
}

/// The object that names another one, and by which field, if it is on the way.
fn field<'o>(id: &ObjectId, about: CauseSubjects<'o>) -> Option<(&'o Object, String)> {
    let namer = about.namer.or(about.subject)?;
    let named = object_references::references(namer).into_iter().find(|(named, _)| named == id);
    named.map(|(_, field)| (namer, field))
}

/// What to read of a Pod whose container does not run.
fn container(id: &ObjectId, held: Option<&Object>) -> (String, Option<String>) {
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
        // It has not run, so that it printed nothing.
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

fn lifecycle(namespace: &str) -> (String, Option<String>) {
    let text = "see what the lifecycle waits for; where users approve, use `windlass approve`";
    (text.to_owned(), Some(format!("windlass get lifecycleevents -n {namespace}")))
}

fn deletion(id: &ObjectId, held: Option<&Object>) -> (String, Option<String>) {
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

/// The kinds that a Namespace still has, as its condition lists them: `configmaps. has 1 resource instances, …`.
fn kinds_of_remaining(message: &str) -> Vec<&str> {
    let (_, list) = message.split_once(": ").unwrap_or(("", message));
    let kinds = list.split(", ").filter_map(|it| it.split_once(" has "));
    let kinds = kinds.map(|(kind, _)| kind.trim_end_matches('.'));
    kinds.filter(|kind| !kind.is_empty() && is_word(kind)).collect()
}

fn secret(held: Option<&Object>) -> Option<String> {
    let object = held?;
    let name = object.get("spec")?.get("secretRef").map(|it| text(it, "name"))?;
    Some(ObjectId::new(object.namespace(), name, "", "Secret").subject())
}

/// What to check if a source cannot be fetched, by the fields that determine what is fetched.
fn fetch(cause: &RootCause, held: Option<&Object>) -> String {
    if cause.text.contains(OWN_ADDRESS) {
        return "name another server; where windlass shall fetch from its own node, such as in tests, start it with \
                --allow-loopback-sources"
            .to_owned();
    }
    let spec = held.and_then(|it| it.get("spec")).unwrap_or(&Value::Null);
    // A URL may hold credentials.
    let place = ["url", "endpoint"].into_iter().find(|key| !text(spec, key).is_empty());
    if let Some(place) = place.filter(|_| is_unreachable(&cause.text)) {
        return format!(
            "check the host in spec.{place}: whether its name is resolved where windlass runs, and whether it is reached \
             from there"
        );
    }
    let of = |path: &str| {
        let mut value = spec;
        for part in path.split('.') {
            value = value.get(part)?;
        }
        let value = value.as_str().filter(|it| !it.is_empty() && it.len() < 256)?;
        Some(format!("spec.{path} `{value}`"))
    };
    let which = [
        "ref.commit",
        "ref.name",
        "ref.semver",
        "ref.tag",
        "ref.digest",
        "ref.branch",
        "bucketName",
    ];
    let which = which.into_iter().find_map(of);
    let chart = of("chart").map(|chart| match of("version") {
        Some(version) => format!("{chart} in {version}"),
        None => chart,
    });
    match (which.or(chart), place) {
        (Some(which), Some(place)) => format!(
            "check whether {which} exists, whether spec.{place} is right, and whether the cluster reaches that server"
        ),
        (Some(which), None) => format!("check whether {which} exists there"),
        (None, Some(place)) => {
            format!("check spec.{place}, and whether the cluster reaches that server")
        }
        (None, None) => "check what the spec names, and whether the cluster reaches it".to_owned(),
    }
}

/// Whether the connection to a server failed, so that the content of the server does not matter.
fn is_unreachable(text: &str) -> bool {
    ["failed to lookup address", "Connection refused", "cannot connect to"]
        .iter()
        .any(|it| text.contains(it))
}

/// How a refusal reads of a server that is windlass' own address (`http_client`).
const OWN_ADDRESS: &str = "resolves to windlass itself or to its node";

fn credentials(held: Option<&Object>) -> String {
    match secret(held) {
        Some(secret) => format!("correct the credentials in {secret}"),
        None => "the server requires credentials: name a Secret in spec.secretRef".to_owned(),
    }
}

fn windlass_name(id: &ObjectId) -> String {
    format!("{}/{}", id.kind.to_lowercase(), id.name)
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
