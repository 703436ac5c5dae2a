//! Advice about objects that two appliers apply. The advice never deletes an object of the other applier.
//!
//! Elsewhere: the owners that an object names (`object_owners.rs`).

use std::collections::BTreeSet;

use objects::{Object, ObjectId};

use super::{AdviceTextAndCommand, CauseRelatedObjects, is_plain, reconciliation};
use crate::cause_result::RootCause;
use crate::object_owners::{ExpectedOwnerMetadata, OtherOwner};

/// Advice for an applier whose object belongs to another owner.
pub(super) fn taken(cause: &RootCause, about: CauseRelatedObjects<'_>) -> AdviceTextAndCommand {
    let others = others(about);
    // The walk has chosen one of the owners, and the text of the cause names that one.
    let is_owner = |it: &&OtherOwner| cause.text.contains(&it.words());
    let Some(other) = others.iter().find(is_owner) else { return unknown() };
    let Some(applier) = about.reporter.map(Object::id) else { return unknown() };
    let subject = applier.subject();
    if other.is_beside {
        let kinds = [Some(&applier), other.applier()].into_iter().flatten();
        let keep: BTreeSet<&str> = kinds.map(|it| annotation_to_keep(&it.kind)).collect();
        let keep: Vec<&str> = keep.into_iter().collect();
        let help = format!(
            "let only one of {subject} and {} apply it: where it shall leave, annotate it with {} first, so that it is not \
             deleted, and remove it then",
            other.owner,
            keep.join(" or ")
        );
        return (help, None);
    }
    (decision(&applier, other), None)
}

/// The choices for two owners of an object. They are the same for both owners. A command alone would not help, because
/// the other owner's next run would undo it.
fn decision(applier: &ObjectId, other: &OtherOwner) -> String {
    let subject = applier.subject();
    let owner = &other.owner;
    let keep = annotation_to_keep(other.applier().map_or("", |it| it.kind.as_str()));
    let leaving = match other.applier() {
        Some(other) => separation(other),
        None => format!("let {owner} no longer have it"),
    };
    let command = match applied_again(applier) {
        Some(command) => format!("take it back with `{command}`"),
        None => format!("reconcile {subject}"),
    };
    format!(
        "both {subject} and {owner} apply it: decide which of them keeps it. If {owner} does, {}; it is not deleted by that. \
         If {subject} does, annotate it with {keep}, so that it is not deleted, and {leaving}; once {owner} does not apply it \
         any more, {command}",
        separation(applier)
    )
}

/// Advice for an applier that was not allowed to change an object of another owner. `None` if the object has no other
/// owner.
pub(super) fn refused(
    cause: &RootCause,
    about: CauseRelatedObjects<'_>,
) -> Option<AdviceTextAndCommand> {
    let applier = about.reporter?.id();
    let others = others(about);
    // The walk adds the owner to the text of the cause only if it confirmed that owner.
    let is_owner = |it: &&OtherOwner| cause.text.ends_with(&format!(" belongs to {}", it.owner));
    let other = others.iter().find(is_owner)?;
    let id = about.held?.id().subject();
    let owner = &other.owner;
    let help = format!(
        "leave {id} to {owner}, and do not delete it: {}. Before that, have {owner} take back what {} took over, or it is \
         deleted with the old names",
        separation(&applier),
        applier.subject()
    );
    Some((help, other.applier().and_then(applied_again)))
}

/// Advice if the object was not read.
fn unknown() -> AdviceTextAndCommand {
    ("let only one owner apply the object that the message names".to_owned(), None)
}

/// The annotation that keeps an object when it leaves the files or the chart of an owner of this kind.
fn annotation_to_keep(kind: &str) -> &'static str {
    match kind {
        "Kustomization" => "kustomize.toolkit.fluxcd.io/prune: disabled",
        _ => "helm.sh/resource-policy: keep",
    }
}

/// The other owners of the object of a cause. Empty if that object itself reports the cause.
fn others(about: CauseRelatedObjects<'_>) -> Vec<OtherOwner> {
    let Some(applier) = about.reporter else { return Vec::new() };
    let Some(held) = about.held else { return Vec::new() };
    let marks = ExpectedOwnerMetadata::of(applier).filter(|_| applier.id() != held.id());
    marks.map(|marks| marks.others(held)).unwrap_or_default()
}

/// Advice how to give the objects of an applier names of their own.
fn separation(applier: &ObjectId) -> String {
    let subject = applier.subject();
    match applier.kind.as_str() {
        "HelmRelease" => format!(
            "choose other names for the objects of {subject}, by a value such as fullnameOverride or by spec.releaseName"
        ),
        "Kustomization" => {
            format!("remove it from the files of {subject}, or choose another name there")
        }
        _ => format!("choose other names for the objects of {subject}"),
    }
}

/// The command that makes an applier apply all of its objects again. `None` if its name is not plain.
fn applied_again(applier: &ObjectId) -> Option<String> {
    // A release is only upgraded again with `--force`.
    let force = if applier.kind == "HelmRelease" { " --force" } else { "" };
    is_plain(applier).then(|| format!("{}{force}", reconciliation(applier)))
}
