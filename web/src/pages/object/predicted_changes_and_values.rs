//! Two tabs: what the next reconciliation would change, and which source sets which Helm value of a release. Values of Secrets
//! are masked.

use anyhow::Context as _;
use maud::{Markup, html};
use objects::Object;
use plan::FieldChange;
use serde_json::Value;
use windlass_answers::command_scope::CommandScope;
use windlass_answers::diff::{self, DiffAction, DiffChange, DiffReport};
use windlass_answers::helm_release_values::{HelmReleaseValues, HelmValueOrigin};
use windlass_cli_runtime::trailing_serve_flags;

use super::TabContent;
use crate::page_elements::{lines_within, message, object_link, remarks, text};
use crate::pages::complete;

/// The maximum number of objects that are shown. The command prints all.
const MAX_SHOWN_OBJECTS: usize = 200;
const MAX_SHOWN_FIELDS: usize = 50;

/// How many characters of a changed value are shown. A field may contain a file of a megabyte.
const MAX_VALUE_CHARACTERS: usize = 4_000;

/// How many values are shown.
const MAX_SHOWN_VALUES: usize = 2_000;

/// The tab with the predicted changes. windlass asks the API server by dry-runs, which write nothing.
///
/// # Errors
/// The objects cannot be built or compared. For a JSON request, one object that cannot be compared is enough.
pub(super) async fn predicted(
    site: &CommandScope,
    object: Object,
    wants_json: bool,
) -> anyhow::Result<TabContent> {
    let settings = trailing_serve_flags::settings(&[])?;
    let mut warnings = circumstances(&object);
    let mut warn = |text: &str| warnings.push(text.to_owned());
    let found = diff::predict(site, object, None, settings, &mut warn)
        .await
        .context("what the next reconciliation would change is not known")?;
    if wants_json {
        complete(&found.problems)?;
    }
    let json = serde_json::to_value(&found.changes)?;
    Ok(TabContent::of(difference(&found, &warnings), json))
}

/// Reasons why the predicted changes are blocked or delayed. The command prints the same reasons.
fn circumstances(object: &Object) -> Vec<String> {
    let is_suspended = object.get("spec").is_some_and(|spec| spec["suspend"] == true);
    let suspended = "it is suspended: nothing changes before it is resumed";
    // If a source fails, windlass compares its last artifact.
    let said = cause::condition(object, "Ready").filter(|it| it.status == "False");
    let failed = said.map(|said| format!("it is not ready: {}", said.message));
    is_suspended.then(|| suspended.to_owned()).into_iter().chain(failed).collect()
}

fn difference(found: &DiffReport, warnings: &[String]) -> Markup {
    let DiffReport { changes, unchanged, skipped, problems } = found;
    let problems: Vec<String> = problems.iter().map(|it| format!("not compared: {it}")).collect();
    let more = changes.len().saturating_sub(MAX_SHOWN_OBJECTS);
    html! {
        (remarks(warnings))
        (remarks(&problems))
        section class="panel" {
            header {
                h2 { "What the next reconciliation would change" }
                span class="more" { (changes.len()) " changed · " (unchanged) " not · " (skipped) " excluded" }
            }
            @if changes.is_empty() && problems.is_empty() { p { "Nothing would change." } }
            div class="diff" { @for change in changes.iter().take(MAX_SHOWN_OBJECTS) { (changed(change)) } }
            @if more > 0 { p { (more) " more objects" } }
        }
    }
}

fn changed(change: &DiffChange) -> Markup {
    let DiffChange { action, object, fields, note } = change;
    let word = match action {
        DiffAction::Created => "+ created ",
        DiffAction::Changed => "~ changed ",
        DiffAction::Recreated => "± deleted and created again ",
        DiffAction::Removed => "- removed ",
    };
    let beyond = fields.fields.len().saturating_sub(MAX_SHOWN_FIELDS) + fields.omitted_fields;
    html! {
        h3 { (word) (object_link(&object.id())) }
        @if let Some(note) = note { p { (note) } }
        @for field in fields.fields.iter().take(MAX_SHOWN_FIELDS) { (changed_field(field)) }
        @if beyond > 0 { p { (beyond) " more fields" } }
    }
}

/// A changed field, before and after.
pub(in crate::pages) fn changed_field(field: &FieldChange) -> Markup {
    let FieldChange { path, old, new } = field;
    html! {
        p class="mono" { (text(path)) }
        @if let Some(old) = old { del { "- " bdi { (changed_value(old)) } } }
        @if let Some(new) = new { ins { "+ " bdi { (changed_value(new)) } } }
    }
}

/// Formats a value for a person. A string is shown unquoted, and all other values as JSON.
fn value(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn changed_value(of: &Value) -> String {
    lines_within(&value(of), MAX_VALUE_CHARACTERS)
}

/// The tab with the Helm values.
pub(super) fn values(found: &HelmReleaseValues) -> Markup {
    let more = found.origins.len().saturating_sub(MAX_SHOWN_VALUES);
    html! {
        section class="panel" {
            header { h2 { "Values" } span class="more" { (found.origins.len()) " set; those of Secrets are masked" } }
            @if found.origins.is_empty() { p { "Neither spec.values nor spec.valuesFrom sets a value." } }
            @else {
                div class="wide" { table class="list" {
                    thead { tr { th { "Value" } th { "Is" } th { "Set by" } th { "Overrides" } } }
                    tbody { @for origin in found.origins.iter().take(MAX_SHOWN_VALUES) { (origin_row(origin)) } }
                } }
            }
            @if more > 0 { p { (more) " more" } }
        }
    }
}

fn origin_row(origin: &HelmValueOrigin) -> Markup {
    html! {
        tr {
            td class="mono" { (text(&origin.path)) }
            td class="grow mono" { (message(&value(&origin.value))) }
            td { (text(&origin.source)) }
            td { (text(&origin.overrode.join(", "))) }
        }
    }
}

#[cfg(test)]
mod tests {
    use objects::SecretMasking;
    use serde_json::json;

    use super::*;
    use crate::hostile_strings::assert_text_only;

    fn object(name: &str, data: &Value) -> Object {
        Object::new(json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data,
            "metadata": {"name": name, "namespace": "apps"}}))
        .unwrap()
    }

    #[test]
    fn fields_are_shown_before_and_after_and_escaped() {
        let secrets = SecretMasking::default();
        let before = object("a", &json!({"k": "<old>"}));
        let after = object("a", &json!({"k": "</ins><script>\u{202e}"}));
        let changes = vec![
            DiffChange::between(&before, &after, &secrets),
            DiffChange::of(DiffAction::Removed, &object("gone", &json!({}))),
        ];
        let problems = vec!["Deployment/apps/web: forbidden <b>".to_owned()];
        let found = DiffReport { changes, unchanged: 3, skipped: 0, problems };
        let html = difference(&found, &["deprecated <i>".to_owned()]).into_string();
        assert!(html.contains("<del>- <bdi>&lt;old&gt;</bdi></del>"), "{html}");
        let new = "<ins>+ <bdi>&lt;/ins&gt;&lt;script&gt;\\u{202e}</bdi></ins>";
        assert!(html.contains(new), "{html}");
        assert!(html.contains("- removed <a href=\"/o/configmap/apps/gone\">"), "{html}");
        assert!(html.contains("not compared: Deployment/apps/web: forbidden &lt;b&gt;"), "{html}");
        assert!(html.contains("deprecated &lt;i&gt;") && !html.contains("Nothing would change"));
    }

    #[test]
    fn hostile_strings_are_text_only() {
        let secrets = SecretMasking::default();
        assert_text_only(|hostile| {
            let before = object("a", &json!({"k": "old"}));
            let after = object("a", &json!({"k": hostile}));
            let changes = vec![DiffChange::between(&before, &after, &secrets)];
            let problems = vec![hostile.to_owned()];
            let found = DiffReport { changes, unchanged: 0, skipped: 0, problems };
            let changed = difference(&found, &[hostile.to_owned()]).into_string();
            let origin = HelmValueOrigin {
                path: hostile.to_owned(),
                value: json!({"k": hostile}),
                source: hostile.to_owned(),
                overrode: vec![hostile.to_owned()],
            };
            format!("{changed}{}", origin_row(&origin).into_string())
        });
    }

    #[test]
    fn a_file_of_a_megabyte_is_cut() {
        let after = object("a", &json!({"k": "x".repeat(1 << 20)}));
        let secrets = SecretMasking::default();
        let changes = vec![DiffChange::between(&object("a", &json!({})), &after, &secrets)];
        let found = DiffReport { changes, unchanged: 0, skipped: 0, problems: Vec::new() };
        let html = difference(&found, &[]).into_string();
        assert!(html.len() < 2 * MAX_VALUE_CHARACTERS, "{}", html.len());
        assert!(html.contains(" more characters"), "{}", html.len());
    }

    #[test]
    fn that_an_object_is_suspended_or_fails_is_said_beside_what_would_change() {
        let of = |suspend: bool, ready: &str| {
            circumstances(&crate::reconciled_object_rows::samples::object("a", ready, "X", suspend))
        };
        assert_eq!(of(false, "True"), Vec::<String>::new());
        let both = of(true, "False");
        assert!(both[0].starts_with("it is suspended: nothing changes"), "{both:?}");
        assert_eq!(both[1], "it is not ready: message of a");
    }

    #[test]
    fn a_value_is_shown_with_what_sets_it() {
        let origin = HelmValueOrigin {
            path: "image.tag".to_owned(),
            value: json!("<1.0>"),
            source: "spec.values".to_owned(),
            overrode: vec!["ConfigMap/a:b".to_owned(), "chart".to_owned()],
        };
        let row = origin_row(&origin).into_string();
        let expected = "<tr><td class=\"mono\"><bdi>image.tag</bdi></td><td class=\"grow mono\"><bdi>&lt;1.0&gt;</bdi></td>\
            <td><bdi>spec.values</bdi></td><td><bdi>ConfigMap/a:b, chart</bdi></td></tr>";
        assert_eq!(row, expected);
    }
}
