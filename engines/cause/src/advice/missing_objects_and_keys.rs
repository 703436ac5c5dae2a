//! Advice about objects that do not exist, and about keys that a Secret or ConfigMap does not have.
//!
//! Elsewhere: the keys that are needed (`required_secret_keys.rs`), and the fields that name an object
//! (`object_references.rs`).

use objects::{Object, ObjectId};

use super::apply::place;
use super::{AdviceTextAndCommand, CauseRelatedObjects, reconciliation};
use crate::object_references;
use crate::required_secret_keys::RequiredSecretKeys;

/// Advice how to create a missing object, or which field to correct instead.
pub(super) fn missing(id: &ObjectId, about: CauseRelatedObjects<'_>) -> AdviceTextAndCommand {
    let owners = [about.subject, about.namer].into_iter().flatten();
    let mut owners = owners.filter(|it| object_references::is_reconciled(&it.id()));
    let is_applied = |it: &&Object| object_references::inventory(it).contains(id);
    if let Some(owner) = owners.find(is_applied).filter(|_| about.held.is_none()) {
        return deleted(owner);
    }
    let subject = id.subject();
    let field = field(id, about);
    let named = match &field {
        Some((namer, field)) => format!("correct {field} of {}", namer.subject()),
        None => "correct the reference to it".to_owned(),
    };
    let needs = || {
        let namer = about.namer.or(about.subject)?;
        let (_, field) =
            object_references::references(namer).into_iter().find(|(named, _)| named == id)?;
        Some(RequiredSecretKeys::of(namer, &field))
    };
    match id.kind.as_str() {
        "Secret" | "ConfigMap" if about.held.is_some() => {
            let command = needs().and_then(|needs| needs.addition(id));
            (format!("add the key to {subject}, or {named}"), command)
        }
        "Secret" | "ConfigMap" if field.is_some() => {
            let command = needs().and_then(|needs| needs.creation(id));
            (format!("create {subject}, or {named}"), command)
        }
        "ServiceAccount" if field.is_some() => service_account(id, &named),
        "HelmChart" if about.namer.is_some_and(|it| makes(it, id)) => {
            let owner = about.namer.map_or_else(|| id.clone(), Object::id);
            let text = format!("{} makes it when it is reconciled", owner.subject());
            (text, Some(reconciliation(&owner)))
        }
        _ if object_references::is_reconciled(id) => {
            (format!("create {subject}, or {named}"), None)
        }
        _ => awaited(id, about, &named),
    }
}

/// Advice for an awaited object that the applier did not apply, such as one in `spec.healthChecks`.
fn awaited(id: &ObjectId, about: CauseRelatedObjects<'_>, named: &str) -> AdviceTextAndCommand {
    let subject = id.subject();
    match about.namer.filter(|it| object_references::applied(it).contains(id)) {
        Some(owner) => {
            let place = place(owner).map(|place| format!(" to {place}")).unwrap_or_default();
            let owner = owner.id().subject();
            let text = format!(
                "{named}: nothing that {owner} applied is {subject}; or add its manifest{place}, or create it"
            );
            (text, None)
        }
        None => (format!("create {subject}, or reconcile what applies it"), None),
    }
}

fn service_account(id: &ObjectId, named: &str) -> AdviceTextAndCommand {
    let subject = id.subject();
    let name = &id.name;
    let namespace = &id.namespace;
    let text = format!(
        "create {subject} with the rights to apply these objects (here those of ClusterRole/edit, which has none for most \
         custom resources and for objects without a namespace), or {named}"
    );
    let command = format!(
        "kubectl -n {namespace} create serviceaccount {name} && kubectl -n {namespace} create rolebinding \
         {name} --clusterrole=edit --serviceaccount={namespace}:{name}"
    );
    (text, Some(command))
}

/// Advice how to restore an applied object that was deleted.
fn deleted(owner: &Object) -> AdviceTextAndCommand {
    // A release is only upgraded again with `--force`.
    let force = if owner.kind() == "HelmRelease" { " --force" } else { "" };
    let command = format!("{}{force}", reconciliation(&owner.id()));
    ("it was deleted; reconcile what applied it".to_owned(), Some(command))
}

/// Whether windlass makes a HelmChart for a HelmRelease.
fn makes(release: &Object, chart: &ObjectId) -> bool {
    object_references::made_chart(release).as_ref() == Some(chart)
}

/// The object whose spec names the missing object `id`, and the path of the field that does so. For a HelmChart that is
/// made for a HelmRelease, the result is the HelmRelease and its field. `None` if no field names `id`.
fn field(id: &ObjectId, about: CauseRelatedObjects<'_>) -> Option<(ObjectId, String)> {
    let namer = about.namer.or(about.subject)?;
    let fields = object_references::naming_fields(namer);
    let (_, field) = fields.into_iter().find(|(named, _)| named == id)?;
    let release = object_references::applier(namer)
        .filter(|owner| namer.kind() == "HelmChart" && owner.kind == "HelmRelease");
    Some(match release {
        Some(release) => (release, field.replacen("spec.", "spec.chart.spec.", 1)),
        None => (namer.id(), field),
    })
}
