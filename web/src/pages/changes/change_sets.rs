//! The ChangeSets that windlass recorded: one verdict for each change, and the progress of each member.
//!
//! For members in other namespaces, a ChangeSet contains only counts, and so does the page.
//! Elsewhere: reading a ChangeSet (`windlass_answers::change_sets`), the waves in which members take it (`rollout_waves.rs`),
//! requesting its rollback (the page of the ChangeSet).

use std::collections::BTreeMap;

use crds::windlass_release::{AuditStep, ChangeSet, ChangeSetVerdict, ReleaseAudit};
use jiff::Timestamp;
use maud::{Markup, html};
use objects::{ObjectId, clean_line};
use windlass_answers::audited_revisions::started;
use windlass_answers::change_sets::{self, ChangeSetMemberLine, ListedChangeSets};
use windlass_answers::command_scope::is_absent_kind;

use super::{
    CommitFacts, MAX_LISTED_OBJECTS, MAX_LISTED_SOURCES, commit_heading, revision_link,
    rollout_waves,
};
use crate::href::Href;
use crate::page_data_reader::PageDataReader;
use crate::page_elements::{ObjectState, ago, message, object_link, remarks, shape, subject, text};
use crate::page_query::PageQuery;
use crate::pages::ROWS_PER_PAGE;
use crate::reconciled_object_rows::{ReconciledObjectRow, ReconciledObjectRows};
use crate::route::{ObjectAddress, ObjectTab, Route};
use crate::shell_line::shell_line;

/// The ChangeSets that the user may list. Empty if the kind is not installed.
///
/// # Errors
/// A ChangeSet cannot be read, or the API server did not respond.
pub(super) async fn recorded(reader: &PageDataReader) -> anyhow::Result<ListedChangeSets> {
    match change_sets::find(&reader.site, "").await {
        Err(error) if is_absent_kind(&error) => Ok(ListedChangeSets::default()),
        found => found,
    }
}

/// All ChangeSets, the newest first.
pub(super) fn list(found: &ListedChangeSets, query: &PageQuery, now: Timestamp) -> Markup {
    let first = (query.page() - 1) * ROWS_PER_PAGE;
    let shown = found.changes.iter().skip(first).take(ROWS_PER_PAGE);
    let next = (query.page() + 1).to_string();
    html! {
        (remarks(&found.left_out))
        section class="panel" {
            header { h2 { (found.changes.len()) " changes" } span class="more" { "the last ten of each source" } }
            @for change in shown { (item(change, now)) }
            @if found.changes.len() > first + ROWS_PER_PAGE {
                div class="pages" { a rel="next" href=(Href::with_query(&Route::Changes, &[("page", next.as_str())])) { "older ›" } }
            }
        }
    }
}

fn item(change: &ChangeSet, now: Timestamp) -> Markup {
    let spec = &change.spec;
    let verdict = change_sets::verdict(change);
    let said = change.status.as_ref().and_then(|status| status.message.as_deref());
    html! {
        div class="item" {
            (shape(state(verdict)))
            strong {
                (revision_link(&spec.revision))
                @if let Some(commit) = &spec.commit { " " (message(&commit.subject)) }
            }
            (ago(created(change), now))
            p {
                (subject(&source(change))) " · " (verdict.as_str()) " · " (change_sets::progress(change)) " ended · "
                a href=(page_of(change)) { "all of it" }
            }
            @if let Some(said) = said { div class="note" { (message(said)) } }
        }
    }
}

/// Says in a sentence what happened to a commit. The verdict is that of the commit's newest ChangeSet.
pub(super) fn sum(change: &ChangeSet, count: usize, wanted: &str) -> Markup {
    let said = change.status.as_ref().and_then(|status| status.message.as_deref());
    html! {
        div class="lede" {
            h1 {
                (shape(state(change_sets::verdict(change)))) " " (commit_heading(wanted)) " " (in_words(change_sets::verdict(change)))
                @if let Some(said) = said { ": " (message(said)) }
            }
            @if count > 1 { p { "It arrived as " (count) " changes, the newest first." } }
        }
    }
}

/// The ChangeSets of a commit, each with its members. Empty if windlass recorded none.
pub(super) fn panels(
    facts: &CommitFacts<'_>,
    board: Result<&ReconciledObjectRows, &anyhow::Error>,
) -> Markup {
    let steps = last_steps(&facts.found.audits);
    let shown = board.ok().filter(|_| !facts.changes.is_empty());
    let rows = shown.map(rows_by_line).unwrap_or_default();
    let more = facts.changes.len().saturating_sub(MAX_LISTED_SOURCES);
    html! {
        @for (at, change) in facts.changes.iter().take(MAX_LISTED_SOURCES).enumerate() {
            (panel(change, facts, &ChangeSetMemberFacts { rows: &rows, steps: &steps }, at))
        }
        @if more > 0 { p { (more) " more changes are of it; the command prints them." } }
    }
}

/// Data about members that is not in the ChangeSet.
struct ChangeSetMemberFacts<'a> {
    /// The rows of objects. The keys use object names in the same form as the lines of the ChangeSet.
    rows: &'a BTreeMap<ObjectAddress, &'a ReconciledObjectRow>,
    /// The steps of the last operation on each object. The keys use object names in the same form as the lines of the
    /// ChangeSet.
    steps: &'a BTreeMap<ObjectId, &'a [AuditStep]>,
}

fn panel(
    change: &ChangeSet,
    of_commit: &CommitFacts<'_>,
    facts: &ChangeSetMemberFacts<'_>,
    at: usize,
) -> Markup {
    let warning = of_commit.warnings.get(at).and_then(Option::as_deref);
    let name = change.metadata.name.as_deref().unwrap_or_default();
    let members = change_sets::members(change);
    let more = members.len().saturating_sub(MAX_LISTED_OBJECTS);
    let left = change.status.iter().flat_map(|status| &status.not_rolled_back);
    html! {
        section class="panel" {
            header {
                h2 { (shape(state(change_sets::verdict(change)))) " " (change_sets::verdict(change).as_str()) ": " (subject(&source(change))) }
                span class="more" { (change_sets::progress(change)) " ended · " (ago(created(change), of_commit.now)) }
            }
            (commit_facts(change))
            (rollout_waves::items(of_commit.rollouts, change))
            @for member in members.iter().take(MAX_LISTED_OBJECTS) { (member_item(member, facts)) }
            @if more > 0 { p { (more) " more members; the command prints them." } }
            @for said in change_sets::unnamed(change) { p { (text(&said)) } }
            @for said in left { p { "Not rolled back: " (message(said)) } }
            @if change_sets::is_bad(change) && change_sets::verdict(change) != ChangeSetVerdict::RolledBack {
                div class="note advice" {
                    "To take it back, if it is the newest of its source: " a href=(page_of(change)) { (text(name)) }
                    code { (rollback_command(change)) }
                }
            }
            @if let Some(warning) = warning {
                div class="note advice" { (text(warning)) }
            }
        }
    }
}

/// The commit of a ChangeSet, as the source read it, and its full revision.
fn commit_facts(change: &ChangeSet) -> Markup {
    let spec = &change.spec;
    html! {
        dl class="facts" {
            @if let Some(commit) = &spec.commit {
                div { dt { "Subject" } dd { (message(&commit.subject)) } }
                @if !commit.author.is_empty() { div { dt { "Author" } dd { (text(&commit.author)) } } }
                @if !commit.time.is_empty() { div { dt { "Written" } dd { (text(&commit.time)) " by the author's clock" } } }
            }
            div { dt { "Revision" } dd class="mono" { (text(&spec.revision)) } }
        }
    }
}

fn member_item(member: &ChangeSetMemberLine, facts: &ChangeSetMemberFacts<'_>) -> Markup {
    let place = member.object.as_ref().map(ObjectAddress::of);
    let row = place.and_then(|place| facts.rows.get(&place).copied());
    let state = member_state(&member.state);
    let steps = member.object.as_ref().and_then(|id| facts.steps.get(id).copied());
    // A ready member needs no message. Its current message may also be about a newer revision.
    let said = row.filter(|_| state != ObjectState::Ready).map(|row| row.message.as_str());
    html! {
        div class="item" {
            (shape(state))
            strong {
                @match (row, &member.object) {
                    (Some(row), _) => a href=(place_link(&row.place)) { (text(&member.subject)) },
                    (None, Some(id)) if !member.is_cut() => (object_link(id)),
                    (None, _) => (text(&member.subject)),
                }
                " " (text(&member.state))
            }
            @if let Some(steps) = steps { p { (steps_in_words(steps)) } }
            @if let Some(said) = said { div class="note" { (message(said)) } }
        }
    }
}

/// The rows of the board by object. The map makes lookups fast, because ChangeSets may have thousands of members.
fn rows_by_line(board: &ReconciledObjectRows) -> BTreeMap<ObjectAddress, &ReconciledObjectRow> {
    let rows = board.iter().map(|row| {
        let name = change_sets::name_in_lines(&row.place.name);
        (ObjectAddress { name, ..row.place.clone() }, row)
    });
    rows.collect()
}

/// The steps of an operation, each with its duration, such as `Apply 2 s, Wait 14 s`.
fn steps_in_words(steps: &[AuditStep]) -> String {
    let words = steps.iter().map(|step| {
        let ends = step.started.as_ref().zip(step.ended.as_ref());
        let took = ends.map(|(from, to)| format!(" {} s", to.0.duration_since(from.0).as_secs()));
        let failed = if step.failed { " (failed)" } else { "" };
        format!("{}{}{failed}", clean_line(&step.name), took.unwrap_or_default())
    });
    words.collect::<Vec<_>>().join(", ")
}

/// The steps of the last operation on each object.
fn last_steps(audits: &[ReleaseAudit]) -> BTreeMap<ObjectId, &[AuditStep]> {
    let mut ordered: Vec<&ReleaseAudit> = audits.iter().collect();
    ordered.sort_by_key(|audit| started(audit));
    let by_object = ordered.into_iter().filter(|audit| !audit.spec.steps.is_empty()).map(|audit| {
        let namespace = audit.metadata.namespace.as_deref().unwrap_or_default();
        let of = &audit.spec.subject;
        let name = change_sets::name_in_lines(&of.name);
        let id = ObjectId::new(namespace, &name, &of.group, &of.kind);
        (id, audit.spec.steps.as_slice())
    });
    by_object.collect()
}

fn source(change: &ChangeSet) -> String {
    let namespace = change.metadata.namespace.as_deref().unwrap_or_default();
    format!("{}/{namespace}/{}", change.spec.source.kind, change.spec.source.name)
}

fn created(change: &ChangeSet) -> Option<Timestamp> {
    change.metadata.creation_timestamp.as_ref().map(|at| at.0)
}

/// The link to the page of the ChangeSet.
fn page_of(change: &ChangeSet) -> Href {
    let names = &change.metadata;
    place_link(&ObjectAddress {
        kind: "change".to_owned(),
        namespace: names.namespace.clone().unwrap_or_default(),
        name: names.name.clone().unwrap_or_default(),
    })
}

fn place_link(place: &ObjectAddress) -> Href {
    Href::inside(&Route::Object { place: place.clone(), tab: ObjectTab::Why })
}

fn rollback_command(change: &ChangeSet) -> String {
    let named = format!("change/{}", change.metadata.name.as_deref().unwrap_or_default());
    let namespace = change.metadata.namespace.as_deref().unwrap_or_default();
    shell_line(&["windlass", "rollback", &named, "-n", namespace])
}

fn state(verdict: ChangeSetVerdict) -> ObjectState {
    match verdict {
        ChangeSetVerdict::Succeeded => ObjectState::Ready,
        ChangeSetVerdict::Progressing => ObjectState::Progressing,
        ChangeSetVerdict::Superseded => ObjectState::Suspended,
        ChangeSetVerdict::Failed | ChangeSetVerdict::RolledBack | ChangeSetVerdict::Stalled => {
            ObjectState::Failing
        }
    }
}

fn in_words(verdict: ChangeSetVerdict) -> &'static str {
    match verdict {
        ChangeSetVerdict::Progressing => "is being applied",
        ChangeSetVerdict::Succeeded => "has arrived",
        ChangeSetVerdict::Failed => "has failed",
        ChangeSetVerdict::Superseded => "was superseded by a newer one",
        ChangeSetVerdict::RolledBack => "was rolled back",
        ChangeSetVerdict::Stalled => "is stuck",
    }
}

/// The state of a member, derived from the first word of its line.
fn member_state(word: &str) -> ObjectState {
    match word {
        "Failed" | "RolledBack" => ObjectState::Failing,
        "Progressing" => ObjectState::Progressing,
        "Waiting" => ObjectState::Waiting,
        "Skipped" => ObjectState::Suspended,
        "Succeeded" => ObjectState::Ready,
        _ => ObjectState::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use windlass_answers::audit::ListedAudits;

    use super::*;
    use crate::hostile_strings::assert_text_only;
    use crate::reconciled_object_rows::samples::{board, object};

    const COMMIT_DIGITS: &str = "5f0c9d0c2f6a3f1f8a110d9f6f4e3f434f0c9d0c";

    fn now() -> Timestamp {
        "2026-11-30T09:10:00Z".parse().unwrap()
    }

    fn change() -> ChangeSet {
        serde_json::from_value(json!({
            "metadata": {"name": "fleet-17-1a2b3c4d", "namespace": "apps",
                "creationTimestamp": "2026-11-30T09:00:00Z"},
            "spec": {"source": {"kind": "GitRepository", "name": "fleet", "uid": "u"},
                "revision": format!("main@sha1:{COMMIT_DIGITS}"), "digest": "sha256:1", "sequence": 17,
                "commit": {"subject": "<b>Scale\u{202e} the shop", "author": "Alice <a>",
                    "time": "2026-11-30T08:59:00Z"}},
            "status": {"verdict": "Failed", "message": "2 members: 1 failed",
                "members": ["Failed ks/shop", "Waiting > hr/web", "Future x/y"],
                "counts": {"members": 2, "failed": 1, "waiting": 1},
                "otherNamespaces": {"members": 3, "succeeded": 3},
                "notRolledBack": ["hf/db: <i>"]},
        }))
        .unwrap()
    }

    fn audits() -> ListedAudits {
        let step = |name: &str, from: u32, to: u32, failed: bool| {
            let at = |second: u32| format!("2026-11-30T09:00:{second:02}Z");
            json!({"name": name, "started": at(from), "ended": at(to), "failed": failed})
        };
        let audit = json!({"metadata": {"name": "a", "namespace": "apps"},
            "spec": {"subject": {"group": "kustomize.toolkit.fluxcd.io", "kind": "Kustomization", "name": "shop"},
                "operation": "Apply", "outcome": "Failed",
                "steps": [step("Apply", 0, 2, false), step("Wait", 2, 16, true)]}});
        ListedAudits { audits: vec![serde_json::from_value(audit).unwrap()], left_out: Vec::new() }
    }

    fn html(board: &ReconciledObjectRows) -> String {
        html_of(change(), None, board)
    }

    /// The page of a commit with one change and its warning.
    fn html_of(change: ChangeSet, warning: Option<&str>, board: &ReconciledObjectRows) -> String {
        let found = audits();
        let changes = [change];
        let facts = CommitFacts {
            wanted: COMMIT_DIGITS,
            changes: &changes,
            warnings: &[warning.map(str::to_owned)],
            rollouts: &[],
            found: &found,
            now: now(),
        };
        let panels = panels(&facts, Ok(board)).into_string();
        format!("{}{panels}", sum(&changes[0], 1, COMMIT_DIGITS).into_string())
    }

    #[test]
    fn hostile_strings_are_text_only() {
        assert_text_only(|hostile| {
            let mut change = serde_json::to_value(change()).unwrap();
            change["spec"]["commit"] =
                json!({"subject": hostile, "author": hostile, "time": hostile});
            change["status"]["message"] = hostile.into();
            change["status"]["members"] = json!([format!("Failed ks/{hostile}")]);
            change["status"]["notRolledBack"] = json!([hostile]);
            let change: ChangeSet = serde_json::from_value(change).unwrap();
            let changes = vec![change.clone()];
            let found = ListedChangeSets { changes, left_out: vec![hostile.to_owned()] };
            let list = list(&found, &PageQuery::default(), now()).into_string();
            format!("{list}{}", html_of(change, None, &board(&[])))
        });
    }

    #[test]
    fn a_change_has_one_verdict_and_each_member_its_state_and_steps() {
        let html = html(&board(&[object("shop", "False", "BuildFailed", false)]));
        let verdict = format!(
            "Commit <span class=\"mono\" title=\"{COMMIT_DIGITS}\"><bdi>5f0c9d0c2f6a</bdi></span> has failed: <bdi>2 members: 1 failed"
        );
        assert!(html.contains(&verdict), "{html}");
        let member = "<a href=\"/o/ks/apps/shop\"><bdi>ks/shop</bdi></a> <bdi>Failed</bdi></strong>\
            <p>Apply 2 s, Wait 14 s (failed)</p><div class=\"note\"><bdi>message of shop</bdi></div>";
        assert!(html.contains(member), "{html}");
        // A member without a row gets a link from its name. A member of an unknown kind gets no link.
        assert!(html.contains("<a href=\"/o/hr/apps/web\">"), "{html}");
        assert!(html.contains("<strong><bdi>Future x/y</bdi>"), "{html}");
        assert!(html.contains("<bdi>&lt;b&gt;Scale\\u{202e} the shop</bdi>"), "{html}");
        assert!(html.contains("<bdi>Alice &lt;a&gt;</bdi>"), "{html}");
        assert!(!html.contains("<b>") && !html.contains("<i>"), "{html}");
    }

    #[test]
    fn members_of_other_namespaces_are_counts_and_the_way_back_is_named() {
        let html = html(&board(&[]));
        assert!(html.contains("3 members of other namespaces: 3 succeeded"), "{html}");
        assert!(html.contains("Not rolled back: <bdi>hf/db: &lt;i&gt;</bdi>"), "{html}");
        let command = "<code>windlass rollback change/fleet-17-1a2b3c4d -n apps</code>";
        assert!(html.contains(command), "{html}");
        assert!(html.contains("href=\"/o/change/apps/fleet-17-1a2b3c4d\""), "{html}");
    }

    #[test]
    fn the_warning_about_a_change_that_comes_back_is_escaped() {
        let html = html_of(change(), Some("it is <b>part\u{202e}"), &board(&[]));
        let warning = "<div class=\"note advice\"><bdi>it is &lt;b&gt;part\\u{202e}</bdi></div>";
        assert!(html.contains(warning), "{html}");
    }

    #[test]
    fn the_list_has_a_line_for_each_change() {
        let found = ListedChangeSets { changes: vec![change()], left_out: vec!["<u>".to_owned()] };
        let html = list(&found, &PageQuery::default(), now()).into_string();
        assert!(html.contains(&format!("href=\"/c/{COMMIT_DIGITS}\"")), "{html}");
        assert!(html.contains("· Failed · 4/5 ended ·"), "{html}");
        assert!(html.contains("&lt;u&gt;") && !html.contains("<u>"), "{html}");
    }
}
