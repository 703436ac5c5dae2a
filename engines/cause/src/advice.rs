//! What would help: one sentence, and the one command if a command helps.

use jiff::SignedDuration;
use objects::{Object, ObjectId};
use reconcile::Time;

use crate::condition::text;
use crate::related;
use crate::result::{Advice, Cause, Problem};
use crate::walk::seconds;

/// Advice for a cause. `held` is the object of the cause, `subject` the one that was asked about.
pub(crate) fn advice(
    cause: &Cause,
    held: Option<&Object>,
    subject: Option<&Object>,
    now: Time,
) -> Option<Advice> {
    let id = &cause.object;
    let ours = windlass_name(id);
    let namespace = &id.namespace;
    let (text, command) = match cause.problem {
        Problem::Missing => match subject.filter(|it| related::inventory(it).contains(id)) {
            Some(owner) => deleted(owner),
            None => missing(id),
        },
        Problem::Suspension => {
            (suspension(held, now), Some(format!("windlass resume {ours} -n {namespace}")))
        }
        Problem::ExpiredHold => {
            ("remove spec.suspend where its manifest is kept, such as in Git".to_owned(), None)
        }
        Problem::ClosedWindow => {
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
        Problem::InvalidWindow => ("correct the annotation windlass.dev/window".to_owned(), None),
        Problem::NotReconciled => (
            "check that windlass runs and reconciles this namespace".to_owned(),
            Some("windlass check".to_owned()),
        ),
        Problem::Deletion => deletion(id),
        Problem::Fetch => (fetch(held), None),
        Problem::Credentials => (credentials(held), None),
        Problem::Verification => {
            ("compare the key or digest in the spec with the published one".to_owned(), None)
        }
        Problem::Cycle => ("remove one of the entries of the cycle from its spec".to_owned(), None),
        Problem::Dependency => {
            ("check the dependency".to_owned(), Some(format!("windlass why {ours} -n {namespace}")))
        }
        Problem::Build => {
            let text = "correct the spec, or the file that the message names, and push";
            (text.to_owned(), None)
        }
        Problem::Values => ("correct the values that the message names".to_owned(), None),
        Problem::Spec => (spec(id, held), None),
        Problem::Access => {
            ("refer to an object of the same namespace, or ask an administrator".to_owned(), None)
        }
        Problem::Apply => (refused(subject), None),
        Problem::Lifecycle => lifecycle(namespace),
        Problem::Test => ("correct what the test found, or the test".to_owned(), None),
        Problem::Image => (
            "correct the image, or the Secret that its registry requires (imagePullSecrets)"
                .to_owned(),
            Some(format!("kubectl -n {namespace} describe pod {}", id.name)),
        ),
        Problem::Container => (
            "read what the container printed".to_owned(),
            Some(format!("kubectl -n {namespace} logs {} --all-containers --previous", id.name)),
        ),
        Problem::Scheduling => (
            "make room on a node, or correct requests, node selectors and tolerations".to_owned(),
            Some(format!("kubectl -n {namespace} describe pod {}", id.name)),
        ),
        Problem::Admission => {
            ("correct the Pod template, or the quota or policy that refuses it".to_owned(), None)
        }
        Problem::Volume => (
            "check the StorageClass and its provisioner".to_owned(),
            Some(format!("kubectl -n {namespace} describe {}", kubectl_name(id))),
        ),
        Problem::Health | Problem::Other => (
            "check the object".to_owned(),
            Some(format!("kubectl{} describe {}", in_namespace(id), kubectl_name(id))),
        ),
    };
    Some(Advice { text, command: command.filter(|_| is_plain(id)) })
}

/// Whether kind, namespace and name of an object can stand in a shell command without quotes.
fn is_plain(id: &ObjectId) -> bool {
    let is_of_name = |byte: u8| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'-')
    };
    let is_word = |text: &str| !text.starts_with('-') && text.bytes().all(is_of_name);
    let kind = id.kind.to_lowercase();
    !id.name.is_empty()
        && [&id.name, &id.namespace, &id.group, &kind].into_iter().all(|it| is_word(it))
}

/// Whom to ask before a suspension is ended.
fn suspension(held: Option<&Object>, now: Time) -> String {
    let hold = held.and_then(|it| crate::hold::suspension(it, now)).flatten();
    match hold.as_ref().and_then(reconcile::Hold::owner) {
        Some(owner) => format!("ask {owner} whether the reason is gone, then resume it"),
        None => "resume it when the reason is gone".to_owned(),
    }
}

/// Where a spec has to be corrected: what is edited by hand in the cluster is put back where something else applied it.
fn spec(id: &ObjectId, held: Option<&Object>) -> String {
    let subject = id.subject();
    match held.and_then(related::applier) {
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

fn missing(id: &ObjectId) -> (String, Option<String>) {
    if related::is_reconciled(id) {
        return (format!("create {}, or correct the reference to it", id.subject()), None);
    }
    let text = format!("create {}, or remove the reference to it", id.subject());
    let command = match id.kind.as_str() {
        "Secret" => Some(format!(
            "kubectl -n {} create secret generic {} --from-literal=KEY=VALUE",
            id.namespace, id.name
        )),
        "ConfigMap" => Some(format!("kubectl -n {} create configmap {}", id.namespace, id.name)),
        _ => return (format!("{} was deleted: reconcile what applied it", id.subject()), None),
    };
    (text, command)
}

fn lifecycle(namespace: &str) -> (String, Option<String>) {
    let text = "see what the lifecycle waits for; where users approve, use `windlass approve`";
    (text.to_owned(), Some(format!("windlass get lifecycleevents -n {namespace}")))
}

fn deletion(id: &ObjectId) -> (String, Option<String>) {
    let text = "wait for its finalizers, or find the controller that removes them".to_owned();
    (text, Some(format!("kubectl{} get {} -o yaml", in_namespace(id), kubectl_name(id))))
}

fn secret(held: Option<&Object>) -> Option<String> {
    let object = held?;
    let name = object.get("spec")?.get("secretRef").map(|it| text(it, "name"))?;
    Some(ObjectId::new(object.namespace(), name, "", "Secret").subject())
}

fn fetch(held: Option<&Object>) -> String {
    let url = held
        .and_then(|it| it.get("spec"))
        .map(|spec| text(spec, "url"))
        .filter(|it| !it.is_empty());
    match url {
        // The URL itself may hold credentials.
        Some(_) => {
            "check spec.url, spec.ref, and whether the cluster reaches that server".to_owned()
        }
        None => "check what the spec names, and whether the cluster reaches it".to_owned(),
    }
}

fn credentials(held: Option<&Object>) -> String {
    match secret(held) {
        Some(secret) => format!("correct the credentials in {secret}"),
        None => "the server requires credentials: name a Secret in spec.secretRef".to_owned(),
    }
}

fn refused(subject: Option<&Object>) -> String {
    let account =
        subject.and_then(|it| it.get("spec")).map(|spec| text(spec, "serviceAccountName"));
    match account.filter(|it| !it.is_empty()) {
        Some(account) => format!(
            "correct the object in its source, or the rights of ServiceAccount {account}, as which it is applied"
        ),
        None => "correct the object in its source".to_owned(),
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
