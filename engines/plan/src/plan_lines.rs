//! The changes of an applier as single lines for plain text and Markdown. Each line has a sign and a text.
//!
//! Elsewhere: where the lines are printed (`table.rs`, `markdown.rs`).

use serde_json::Value;

use crate::change_plan::{
    ApplierChange, ApplierComparisonStatus, ChangePlan, PlanObjectReference, UnknownRemoval,
};
use crate::field_change::FieldChangeList;
use crate::plan_finding::PlanFinding;
use crate::untrusted_text::clean_line;

/// The indentation of a field below its object.
pub(crate) const FIELD_INDENT: &str = "    ";

/// Joins counts with their words, and leaves out counts of 0: `2 added, 1 removed`.
fn counted(counts: &[(usize, &str)]) -> String {
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts.map(|(count, word)| format!("{count} {word}")).collect();
    match counts.is_empty() {
        true => "no changes".to_owned(),
        false => counts.join(", "),
    }
}

/// The total number of changes in a plan: `2 added, 1 removed`.
pub(crate) fn summary_text(plan: &ChangePlan) -> String {
    let summary = &plan.summary;
    let images = if summary.images == 1 { "image" } else { "images" };
    let appliers = if summary.not_compared == 1 { "applier" } else { "appliers" };
    let not_compared = format!("{appliers} not compared");
    let appliers = if summary.unknown_removals == 1 { "applier" } else { "appliers" };
    let unknown_removals = format!("{appliers} removed with objects that are not known");
    counted(&[
        (summary.added, "added"),
        (summary.changed, "changed"),
        (summary.moved, "moved"),
        (summary.removed.saturating_sub(summary.deleted), "left in the cluster"),
        (summary.deleted, "deleted"),
        (summary.images, images),
        (summary.unchanged, "unchanged"),
        (summary.not_compared, not_compared.as_str()),
        (summary.unknown_removals, unknown_removals.as_str()),
    ])
}

/// The number of changes in one applier: `new: 2 added`.
pub fn applier_summary(change: &ApplierChange) -> String {
    let left = change.removed.iter().filter(|it| it.left_in_cluster.is_some()).count();
    let comparison = match change.comparison {
        ApplierComparisonStatus::Compared => "",
        ApplierComparisonStatus::New => "new: ",
        ApplierComparisonStatus::Removed if change.unknown_removal.is_some() => {
            return "removed: its objects are not known".to_owned();
        }
        ApplierComparisonStatus::Removed => "removed: ",
        ApplierComparisonStatus::HeadFailed => return "cannot be rendered".to_owned(),
        ApplierComparisonStatus::HeadNotFetched => return "not known in the head".to_owned(),
        ApplierComparisonStatus::HeadUnknown => {
            return "not found, not taken for removed".to_owned();
        }
        ApplierComparisonStatus::BaseFailed
        | ApplierComparisonStatus::BaseNotFetched
        | ApplierComparisonStatus::BaseUnknown => {
            return format!("{} not compared", change.not_compared.len());
        }
        ApplierComparisonStatus::TooLarge => return "too large to be compared".to_owned(),
    };
    let counts = counted(&[
        (change.added.len(), "added"),
        (change.changed.len(), "changed"),
        (change.moved.len(), "moved here"),
        (change.moved_away, "moved away"),
        (left, "left in the cluster"),
        (change.removed.len() - left, "deleted"),
        (change.unknown_values.len(), "not known"),
    ]);
    format!("{comparison}{counts}")
}

/// The line of a finding: `error: Kustomization/flux-system/apps: deletes …`.
pub fn finding_line(finding: &PlanFinding) -> String {
    let subjects = [&finding.applier, &finding.object].into_iter().flatten();
    let subjects: String = subjects.map(|it| format!("{}: ", it.subject())).collect();
    clean_line(&format!("{}: {subjects}{}", finding.level.name(), finding.message))
}

/// The changes of an applier, one line each. The first character is a sign: `-` removed, `!` attention, `~` changed, `>` moved,
/// `+` added, `=` an image, `?` unknown. A blank marks a field of the object above it.
pub(crate) fn applier_lines(change: &ApplierChange) -> Vec<String> {
    let mut lines = Vec::new();
    let mut add = |line: String| lines.push(clean_line(&line));
    if let Some(message) = &change.message {
        add(format!("! {message}"));
    }
    if change.is_suspended {
        add("! it is suspended: nothing of this happens before it is resumed".to_owned());
    }
    if change.is_resumed {
        add("! it is resumed: what changed while it was suspended happens with this, and is not compared".to_owned());
    }
    // A release may name a range of chart versions, so the resolved version is shown even if it does not change.
    let is_release = matches!(change.applier.kind.as_str(), "HelmRelease" | "Helmfile");
    match (&change.base_source_revision, &change.head_source_revision) {
        (Some(old), Some(new)) if old != new => add(format!("  source: {old} -> {new}")),
        (_, Some(new)) if is_release => add(format!("  source: {new}")),
        (Some(old), None) if is_release && change.unknown_removal.is_some() => {
            add(format!("  source: {old}"));
        }
        _ => {}
    }
    if let Some(UnknownRemoval { reason, left_in_cluster }) = &change.unknown_removal {
        let what = match left_in_cluster {
            Some(left) => format!("- removed, and its objects are left in the cluster: {left}"),
            None => format!("- {} with its objects", change.applier.removal_verb()),
        };
        add(format!("{what}; which they are is not known: {reason}"));
    }
    for moved in &change.moved_sources {
        add(format!("! not known: {}: {}", moved.what, moved.reason));
    }
    for missing in &change.missing_references {
        add(format!("! missing {}: {}", missing.object.subject(), missing.text()));
    }
    for removed in &change.removed {
        let subject = removed.object.subject();
        match &removed.left_in_cluster {
            Some(reason) => add(format!("- removed {subject}, left in the cluster: {reason}")),
            None => add(format!("- deleted {subject}")),
        }
    }
    for field in &change.immutable_fields {
        let subject = field.object.subject();
        add(format!("! immutable {subject}: {}; {}", field.rule, field.consequence.text()));
    }
    for definition in &change.definitions {
        for loss in &definition.losses {
            add(format!("! definition {}: {}", definition.object.name, loss.text()));
        }
    }
    for changed in &change.changed {
        add(format!("~ changed {}", changed.object.subject()));
        field_lines(&changed.fields).into_iter().for_each(&mut add);
    }
    for moved in &change.moved_to {
        add(format!("> moves {} to {}", moved.object.subject(), moved.to.subject()));
    }
    for moved in &change.moved {
        let stays = if moved.is_shared { ", which still has it" } else { "" };
        add(format!("> moved {} from {}{stays}", moved.object.subject(), moved.from.subject()));
        field_lines(&moved.fields).into_iter().for_each(&mut add);
    }
    for image in &change.images {
        let shown = |image: &Option<String>| image.clone().unwrap_or_else(|| "(none)".to_owned());
        let subject = format!("{} {}", image.object.subject(), image.container);
        add(format!("= image {subject}: {} -> {}", shown(&image.old), shown(&image.new)));
    }
    let objects = |sign: &str, objects: &[PlanObjectReference]| -> Vec<String> {
        objects.iter().map(|it| format!("{sign} {}", it.subject())).collect()
    };
    objects("+ added", &change.added).into_iter().for_each(&mut add);
    objects("? not compared", &change.not_compared).into_iter().for_each(&mut add);
    for unknown in &change.unknown_values {
        add(format!("? not known: {}: {}", unknown.what, unknown.reason));
    }
    lines
}

fn field_lines(fields: &FieldChangeList) -> Vec<String> {
    let shown = |value: &Option<Value>| value.as_ref().map_or("(none)".into(), Value::to_string);
    let listed = fields.fields.iter();
    let mut lines: Vec<String> = listed
        .map(|it| format!("{FIELD_INDENT}{}: {} -> {}", it.path, shown(&it.old), shown(&it.new)))
        .collect();
    if fields.omitted_fields > 0 {
        lines.push(format!("{FIELD_INDENT}… {} more", fields.omitted_fields));
    }
    lines
}
