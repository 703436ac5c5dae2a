//! The pages of changes: which revisions arrived at which objects, and how long that took.
//!
//! If windlass recorded ChangeSets, a change has one verdict (`changes/change_sets.rs`).
//! Otherwise the page uses audits, which also cover the time before a restart. Audits always provide the steps of each
//! operation.

mod change_sets;
mod rollout_waves;

use crds::windlass_release::{AuditOutcome, ChangeSet, ReleaseAudit};
use jiff::Timestamp;
use maud::{Markup, html};
use objects::{ObjectId, clean_line};
use windlass_answers::audit::{self, ListedAudits, ended, to_list};
use windlass_answers::audited_revisions::{
    RevisionOperations, commit, is_of_commit, revision, revisions, started,
};
use windlass_answers::change_sets::{self as listed_change_sets, ListedChangeSets};
use windlass_answers::object_row::short;
use windlass_answers::rolled_back_commit_warning;
use windlass_answers::rollout_waves::{self as listed_rollouts, ListedRollout};

use super::{PageContent, PageRequest, ROWS_PER_PAGE, complete};
use crate::frame::{PagePart, PageParts};
use crate::href::Href;
use crate::page_data_reader::PageDataReader;
use crate::page_elements::{ObjectState, ago, message, object_link, remarks, shape, subject, text};
use crate::page_query::PageQuery;
use crate::reconciled_object_rows::{ReconciledObjectRow, ReconciledObjectRows};
use crate::route::{ObjectTab, Route};

/// How many objects of a change are listed.
const MAX_LISTED_OBJECTS: usize = 300;

/// How many sources of a commit are listed, each with its operations.
const MAX_LISTED_SOURCES: usize = 20;

/// How many objects with a revision are named.
const MAX_NAMED_OBJECTS: usize = 20;

/// How many digits of a commit or a digest a heading shows.
const MAX_HEADING_DIGITS: usize = 12;

/// The width of a bar, in SVG units.
const BAR_WIDTH: i64 = 1000;

/// Makes the page of all revisions.
///
/// # Errors
/// The kind of audits is not installed, or the API server did not respond.
pub(super) async fn page(
    reader: &PageDataReader,
    request: &PageRequest,
) -> anyhow::Result<PageContent> {
    let read_at = Timestamp::now();
    let recorded = change_sets::recorded(reader).await?;
    if request.wants_json {
        complete(&recorded.left_out)?;
    }
    let of_page = |command: &str, content: Markup| PageParts {
        route: Route::Changes,
        title: "Changes".to_owned(),
        command: format!("windlass {command} {}", reader.scope_flag()),
        read_at,
        parts: vec![PagePart::whole("changes", content)],
        renew_after: reader.record_renewal(),
        version: String::new(),
    };
    if !recorded.changes.is_empty() {
        if request.wants_json {
            return Ok(PageContent::Json(listed_change_sets::to_list(&recorded.changes)?));
        }
        let content = change_sets::list(&recorded, &request.query, read_at);
        return Ok(PageContent::Html(of_page("changes", content)));
    }
    let mut found = audit::find(&reader.site, "", None, None).await?;
    found.left_out.extend(recorded.left_out);
    if request.wants_json {
        complete(&found.left_out)?;
        return Ok(PageContent::Json(to_list(&found.audits)?));
    }
    let content = content(&found, &request.query, read_at);
    Ok(PageContent::Html(of_page("audit", content)))
}

/// Makes the page of a commit.
///
/// # Errors
/// The kind of audits is not installed, or the API server did not respond.
pub(super) async fn of_commit(
    reader: &PageDataReader,
    request: &PageRequest,
    wanted: &str,
) -> anyhow::Result<PageContent> {
    let read_at = Timestamp::now();
    let ListedChangeSets { changes: known, left_out } = change_sets::recorded(reader).await?;
    let named: Vec<ChangeSet> = known
        .iter()
        .filter(|change| listed_change_sets::is_named(change, wanted))
        .cloned()
        .collect();
    if request.wants_json {
        complete(&left_out)?;
        if !named.is_empty() {
            return Ok(PageContent::Json(listed_change_sets::to_list(&named)?));
        }
    }
    let mut found = match audit::find(&reader.site, "", None, None).await {
        // The verdict comes from the ChangeSet. The audits only add the steps.
        Err(error) if !named.is_empty() => {
            let left_out = vec![format!("audits, with the steps of operations: {error:#}")];
            ListedAudits { audits: Vec::new(), left_out }
        }
        found => found?,
    };
    found.left_out.extend(left_out);
    found.audits.retain(|audit| revision(audit).is_some_and(|it| is_of_commit(it, wanted)));
    if request.wants_json {
        complete(&found.left_out)?;
        return Ok(PageContent::Json(to_list(&found.audits)?));
    }
    let rollouts = match listed_rollouts::list(&reader.site, &named).await {
        Ok(rollouts) => rollouts,
        Err(error) => {
            found
                .left_out
                .push(format!("staged rollouts, with the waves of the commit: {error:#}"));
            Vec::new()
        }
    };
    let mut warnings = Vec::new();
    for change in named.iter().take(MAX_LISTED_SOURCES) {
        warnings.push(rolled_back_commit_warning::of_change(&reader.site, change, &known).await);
    }
    let board = reader.board().await;
    let facts = CommitFacts {
        wanted,
        changes: &named,
        warnings: &warnings,
        rollouts: &rollouts,
        found: &found,
        now: read_at,
    };
    let command = match named.is_empty() {
        true => format!("windlass audit {}", reader.scope_flag()),
        false => format!("windlass changes {wanted} {}", reader.scope_flag()),
    };
    Ok(PageContent::Html(PageParts {
        route: Route::Commit(wanted.to_owned()),
        title: format!("Commit {}", short_digits(wanted)),
        command,
        read_at,
        parts: commit_parts(&facts, board.as_ref()),
        renew_after: [reader.record_renewal(), reader.board_renewal()].into_iter().flatten().min(),
        version: String::new(),
    }))
}

fn content(found: &ListedAudits, query: &PageQuery, now: Timestamp) -> Markup {
    let all = revisions(&found.audits);
    let first = (query.page() - 1) * ROWS_PER_PAGE;
    let shown = all.iter().skip(first).take(ROWS_PER_PAGE);
    let next = (query.page() + 1).to_string();
    html! {
        (remarks(&found.left_out))
        section class="panel" {
            header { h2 { (all.len()) " revisions" } span class="more" { "as far as audits are kept" } }
            @if all.is_empty() && found.left_out.is_empty() {
                p { "No revision has an audit: none was applied since audits are written, or they are too old." }
            }
            @for change in shown { (item(change, now)) }
            @if all.len() > first + ROWS_PER_PAGE {
                div class="pages" { a rel="next" href=(Href::with_query(&Route::Changes, &[("page", next.as_str())])) { "older ›" } }
            }
        }
    }
}

/// The state of a change. Failures count unless they were repaired later.
fn state(change: &RevisionOperations<'_>) -> ObjectState {
    let last = change.last_of_each();
    match change.failures() {
        0 if last.iter().all(|it| it.spec.outcome == AuditOutcome::Succeeded) => ObjectState::Ready,
        0 => ObjectState::Progressing,
        _ => ObjectState::Failing,
    }
}

fn item(change: &RevisionOperations<'_>, now: Timestamp) -> Markup {
    let objects = change.last_of_each().len();
    let failures = change.failures();
    html! {
        div class="item" {
            (shape(state(change)))
            strong { (revision_link(&change.revision)) }
            (ago(change.began(), now))
            p {
                @if !change.source.is_empty() { (subject(&change.source)) " · " }
                (objects) @if objects == 1 { " object" } @else { " objects" }
                @if failures > 0 { ", of which " (failures) " failed" }
                @if let Some(took) = took(change) { " · took " (took) }
            }
        }
    }
}

/// A revision, as a link to the page of its commit if it names one. A digest is shortened, but a tooltip and a screen reader
/// give the whole digest.
fn revision_link(of: &str) -> Markup {
    let route = commit(of).map(|digits| Route::Commit(digits.to_ascii_lowercase()));
    html! {
        @match route {
            Some(route) => a class="mono" title=(clean_line(of)) href=(Href::inside(&route)) { (text(&short(of))) },
            None => span class="mono" title=(clean_line(of)) { (text(&short(of))) },
        }
    }
}

/// The first digits of a commit or a digest, short enough for a heading.
fn short_digits(digits: &str) -> &str {
    digits.get(..MAX_HEADING_DIGITS).unwrap_or(digits)
}

fn took(change: &RevisionOperations<'_>) -> Option<String> {
    let seconds = change.ended()?.duration_since(change.began()?).as_secs();
    Some(format!("{seconds} s"))
}

/// The data about a commit.
struct CommitFacts<'a> {
    /// The first digits of the commit.
    wanted: &'a str,
    /// The ChangeSets of the commit.
    changes: &'a [ChangeSet],
    /// For each of the first ChangeSets, the warning that a later revision applies it again.
    warnings: &'a [Option<String>],
    /// The staged rollouts that the user may list.
    rollouts: &'a [ListedRollout],
    /// The audits of operations that the commit caused.
    found: &'a ListedAudits,
    now: Timestamp,
}

fn commit_parts(
    facts: &CommitFacts<'_>,
    board: Result<&ReconciledObjectRows, &anyhow::Error>,
) -> Vec<PagePart> {
    let CommitFacts { wanted, changes, found, now, .. } = *facts;
    let audited = revisions(&found.audits);
    let sum = match changes.first() {
        Some(change) => change_sets::sum(change, changes.len(), wanted),
        None => sum(&audited, board, wanted),
    };
    vec![
        PagePart::whole("remarks", remarks(&found.left_out)),
        PagePart::whole("sum", sum),
        PagePart::main("changes", change_sets::panels(facts, board)),
        PagePart::main("journeys", journeys(&audited, now)),
        PagePart::side("now", having(board, wanted)),
    ]
}

/// Says in a sentence whether a commit was applied. If no object that the user may list has the commit, the sentence says that
/// this is unknown.
fn sum(
    changes: &[RevisionOperations<'_>],
    board: Result<&ReconciledObjectRows, &anyhow::Error>,
    wanted: &str,
) -> Markup {
    let objects: usize = changes.iter().map(|it| it.last_of_each().len()).sum();
    let failures: usize = changes.iter().map(RevisionOperations::failures).sum();
    let is_fetched = board.is_ok_and(|board| rows_with(board, wanted).next().is_some());
    let said = match (objects, failures, is_fetched) {
        (0, _, true) => {
            "is fetched, and nothing was applied because of it that has an audit".to_owned()
        }
        (0, _, false) => {
            "is not known: no object that you may list has it, and no audit names it. \
            It may not be fetched yet, or be older than the audits"
                .to_owned()
        }
        (objects, 0, _) => format!("was applied by {objects} of the objects that have audits"),
        (objects, failures, _) => {
            format!("was applied by {objects} objects, and failed at {failures}")
        }
    };
    html! { div class="lede" { h1 { (commit_heading(wanted)) " " (said) } } }
}

/// A heading with the first digits of a commit, and a tooltip with all digits that are known.
fn commit_heading(wanted: &str) -> Markup {
    html! { "Commit " span class="mono" title=(wanted) { (text(short_digits(wanted))) } }
}

fn rows_with<'b>(
    board: &'b ReconciledObjectRows,
    wanted: &'b str,
) -> impl Iterator<Item = &'b ReconciledObjectRow> {
    board.iter().filter(move |row| is_of_commit(&row.revision, wanted))
}

/// The objects that currently have a commit.
fn having(board: Result<&ReconciledObjectRows, &anyhow::Error>, wanted: &str) -> Markup {
    html! {
        section class="panel" {
            header { h2 { "Have it now" } }
            @match board {
                Ok(board) => {
                    @for row in rows_with(board, wanted).take(MAX_NAMED_OBJECTS) {
                        div class="item" {
                            (shape(row.state))
                            a href=(Href::inside(&Route::Object { place: row.place.clone(), tab: ObjectTab::Why })) {
                                (text(&row.kind)) " " (text(&row.place.namespace)) "/" (text(&row.place.name))
                            }
                        }
                    }
                    @if rows_with(board, wanted).next().is_none() { p { "No object that you may list." } }
                    @if rows_with(board, wanted).count() > MAX_NAMED_OBJECTS { p { (rows_with(board, wanted).count() - MAX_NAMED_OBJECTS) " more" } }
                },
                Err(error) => p { "Not known: " (message(&format!("{error:#}"))) },
            }
        }
    }
}

/// What happened to a commit, one section for each source.
fn journeys(changes: &[RevisionOperations<'_>], now: Timestamp) -> Markup {
    let more = changes.len().saturating_sub(MAX_LISTED_SOURCES);
    html! {
        @for change in changes.iter().take(MAX_LISTED_SOURCES) { (journey(change, now)) }
        @if more > 0 { p { (more) " more sources have it; the command prints their audits." } }
    }
}

/// What happened to a revision, one row for each object. All rows use the same time scale.
fn journey(change: &RevisionOperations<'_>, now: Timestamp) -> Markup {
    let scale = TimeScale::of(change);
    let more = change.audits.len().saturating_sub(MAX_LISTED_OBJECTS);
    html! {
        section class="panel" {
            header {
                h2 title=(clean_line(&change.revision)) { (text(&short(&change.revision))) }
                span class="more" {
                    @if !change.source.is_empty() { (subject(&change.source)) }
                    @if let Some(took) = took(change) { " · " (took) }
                }
            }
            @for audit in change.audits.iter().take(MAX_LISTED_OBJECTS) { (operation(audit, &scale, now)) }
            @if more > 0 { p { (more) " more operations" } }
        }
    }
}

/// The time scale of the bars.
struct TimeScale {
    begin: Option<Timestamp>,
    milliseconds: i64,
}

impl TimeScale {
    fn of(change: &RevisionOperations<'_>) -> Self {
        let begin = change.began();
        let length = begin.zip(change.ended()).map(|(begin, end)| end.duration_since(begin));
        let milliseconds = length.map_or(1, |it| i64::try_from(it.as_millis()).unwrap_or(i64::MAX));
        Self { begin, milliseconds: milliseconds.max(1) }
    }

    fn place(&self, at: Timestamp) -> i64 {
        let since =
            self.begin.map(|begin| at.duration_since(begin).as_millis()).unwrap_or_default();
        let since = i64::try_from(since).unwrap_or_default().clamp(0, self.milliseconds);
        i64::try_from(i128::from(since) * i128::from(BAR_WIDTH) / i128::from(self.milliseconds))
            .unwrap_or_default()
    }
}

fn operation(audit: &ReleaseAudit, scale: &TimeScale, now: Timestamp) -> Markup {
    let spec = &audit.spec;
    let state = match spec.outcome {
        AuditOutcome::Succeeded => ObjectState::Ready,
        AuditOutcome::Failed => ObjectState::Failing,
        _ => ObjectState::Progressing,
    };
    let namespace = audit.metadata.namespace.as_deref().unwrap_or_default();
    let id = ObjectId::new(namespace, &spec.subject.name, &spec.subject.group, &spec.subject.kind);
    html! {
        div class="item" {
            (shape(state))
            strong { (object_link(&id)) " " (spec.operation.as_str()) " " (spec.outcome.as_str()) }
            (ago(ended(audit), now))
            p {
                @if let Some(duration) = &spec.duration { "took " (text(duration)) " · " }
                "+" (spec.changes.added) " ~" (spec.changes.changed) " -" (spec.changes.removed)
                @for step in spec.steps.iter().filter(|step| step.failed) { " · failed at " (text(&step.name)) }
            }
            (bar(audit, state, scale))
            @if let Some(said) = &spec.message { div class="note" { (message(said)) } }
        }
    }
}

/// A bar that shows when an operation ran and when it waited. The text beside it says the same.
fn bar(audit: &ReleaseAudit, state: ObjectState, scale: &TimeScale) -> Markup {
    let begin = started(audit).map(|at| scale.place(at)).unwrap_or_default();
    let end = ended(audit).map(|at| scale.place(at)).unwrap_or(begin);
    // A minimum width keeps short operations visible, also at the end of the bar.
    let begin = begin.min(BAR_WIDTH - 4);
    let waits = audit.spec.steps.iter().filter(|step| step.name.starts_with("Wait"));
    html! {
        svg class="journey" viewBox={ "0 0 " (BAR_WIDTH) " 10" } preserveAspectRatio="none" aria-hidden="true" {
            rect class=(state.class()) x=(begin) y="0" width=((end - begin).max(4)) height="10" {}
            @for step in waits {
                @if let (Some(from), Some(to)) = (step.started.as_ref(), step.ended.as_ref()) {
                    rect class="wait" x=(scale.place(from.0)) y="3" width=((scale.place(to.0) - scale.place(from.0)).max(2)) height="4" {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::hostile_strings::assert_text_only;
    use crate::reconciled_object_rows::samples::{board, object};

    fn now() -> Timestamp {
        "2026-01-01T00:01:00Z".parse().unwrap()
    }

    fn audit(name: &str, second: u32, outcome: &str) -> ReleaseAudit {
        let at = |second: u32| format!("2026-01-01T00:00:{second:02}Z");
        let revision = "main@sha1:0123456789abcdef0123456789abcdef01234567";
        serde_json::from_value(json!({
            "metadata": {"name": "a", "namespace": "apps"},
            "spec": {"subject": {"group": "kustomize.toolkit.fluxcd.io", "kind": "Kustomization", "name": name},
                "operation": "Apply", "outcome": outcome, "message": "<script>\u{202e}",
                "started": at(second), "ended": at(second + 10),
                "steps": [{"name": "Wait", "started": at(second + 5), "ended": at(second + 10)}],
                "causes": [{"type": "Source", "object": "GitRepository/apps/<b>", "version": revision}]},
        }))
        .unwrap()
    }

    fn found() -> ListedAudits {
        let audits = vec![audit("\"><img>", 0, "Succeeded"), audit("web", 10, "Failed")];
        ListedAudits { audits, left_out: vec!["audits in b: forbidden <i>".to_owned()] }
    }

    fn html(found: &ListedAudits, board: &ReconciledObjectRows) -> String {
        let facts = CommitFacts {
            wanted: "0123456",
            changes: &[],
            warnings: &[],
            rollouts: &[],
            found,
            now: now(),
        };
        let parts = commit_parts(&facts, Ok(board));
        parts.into_iter().map(|part| part.content.into_string()).collect()
    }

    #[test]
    fn a_revision_leads_to_its_commit_and_everything_is_escaped() {
        let html = content(&found(), &PageQuery::default(), now()).into_string();
        let link = "<strong><a class=\"mono\" title=\"main@sha1:0123456789abcdef0123456789abcdef01234567\" \
            href=\"/c/0123456789abcdef0123456789abcdef01234567\"><bdi>main@sha1:01234567</bdi></a></strong>";
        assert!(html.contains(link), "{html}");
        assert!(html.contains("2 objects, of which 1 failed · took 20 s"), "{html}");
        assert!(html.contains("GitRepository/apps/&lt;b&gt;"), "{html}");
        assert!(html.contains("audits in b: forbidden &lt;i&gt;"), "{html}");
    }

    #[test]
    fn hostile_strings_are_text_only() {
        assert_text_only(|hostile| {
            let mut audit = serde_json::to_value(audit(hostile, 0, "Failed")).unwrap();
            audit["spec"]["message"] = hostile.into();
            audit["spec"]["steps"][0]["name"] = hostile.into();
            audit["spec"]["causes"][0]["object"] = hostile.into();
            let of_commit = serde_json::from_value(audit.clone()).unwrap();
            audit["spec"]["causes"][0]["version"] = format!("{hostile}:0123456").into();
            let audits = vec![of_commit, serde_json::from_value(audit).unwrap()];
            let found = ListedAudits { audits, left_out: vec![hostile.to_owned()] };
            let list = content(&found, &PageQuery::default(), now()).into_string();
            format!("{list}{}", html(&found, &board(&[])))
        });
    }

    #[test]
    fn a_journey_has_a_row_for_each_object_on_one_scale() {
        let html = html(&found(), &board(&[]));
        assert!(html.contains("was applied by 2 objects, and failed at 1"), "{html}");
        let first = "<rect class=\"ok\" x=\"0\" y=\"0\" width=\"500\" height=\"10\"></rect>\
            <rect class=\"wait\" x=\"250\" y=\"3\" width=\"250\" height=\"4\"></rect>";
        let second = "<rect class=\"bad\" x=\"500\" y=\"0\" width=\"500\" height=\"10\"></rect>";
        assert!(html.contains(first) && html.contains(second), "{html}");
        assert!(html.contains("<a href=\"/o/ks/apps/%22%3E%3Cimg%3E\">"), "{html}");
        assert!(html.contains("<bdi>&lt;script&gt;\\u{202e}</bdi>"), "{html}");
        assert!(!html.contains("<script") && !html.contains("<img"), "{html}");
    }

    #[test]
    fn an_unknown_commit_is_another_thing_than_one_that_is_only_fetched() {
        let none = ListedAudits::default();
        assert!(html(&none, &board(&[])).contains("is not known: no object that you may list"));
        let mut fetched = object("git", "True", "X", false);
        fetched.fields_mut()["status"]["lastAppliedRevision"] =
            "main@sha1:0123456789abcdef0123456789abcdef01234567".into();
        let html = html(&none, &board(&[fetched]));
        assert!(html.contains("is fetched, and nothing was applied"), "{html}");
        assert!(html.contains("<bdi>git</bdi></a>"), "{html}");
    }

    #[test]
    fn a_digest_of_64_digits_is_cut_in_the_heading_and_whole_behind_it() {
        let digest = "ab".repeat(32);
        let heading = commit_heading(&digest).into_string();
        let expected = format!(
            "Commit <span class=\"mono\" title=\"{digest}\"><bdi>abababababab</bdi></span>"
        );
        assert_eq!(heading, expected);
        let row = revision_link(&format!("latest@sha256:{digest}")).into_string();
        assert!(row.ends_with("<bdi>latest@sha256:abababab</bdi></a>"), "{row}");
    }
}
