//! The page that shows when objects may change: Freezes, change windows, and suspensions that end by themselves.

use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};
use objects::Object;
use reconcile::Time;
use serde_json::Value;
use windlass_answers::command_scope::shown;
use windlass_answers::object_row::ObjectRow;

use super::{PageContent, PageRequest, ROWS_PER_PAGE, complete, list_of};
use crate::frame::{PagePart, PageParts};
use crate::href::Href;
use crate::page_data_reader::PageDataReader;
use crate::page_elements::{ObjectState, message, remarks, shape, text};
use crate::reconciled_object_rows::{ReconciledObjectRow, ReconciledObjectRows, RowChangeWindow};
use crate::route::{ObjectAddress, ObjectTab, Route};

/// How far ahead the overview shows changes that happen by themselves.
const ONE_DAY: SignedDuration = SignedDuration::from_hours(24);

/// How many Freezes the page reads.
const MAX_FREEZES: usize = 500;

/// Makes the page.
///
/// # Errors
/// The API server did not respond.
pub(super) async fn page(
    reader: &PageDataReader,
    request: &PageRequest,
) -> anyhow::Result<PageContent> {
    let freezes = freezes(reader).await;
    if request.wants_json {
        let ListedFreezes { freezes, left_out } = freezes?;
        complete(&left_out)?;
        let items: Vec<Value> = freezes.into_iter().map(|it| shown(it).into_value()).collect();
        return Ok(PageContent::Json(list_of(items)));
    }
    let board = reader.board().await?;
    Ok(PageContent::Html(PageParts {
        route: Route::Calendar,
        title: "Calendar".to_owned(),
        command: "windlass get freezes".to_owned(),
        read_at: board.read_at,
        parts: parts(&board, &freezes, Timestamp::now()),
        renew_after: [reader.board_renewal(), reader.record_renewal()].into_iter().flatten().min(),
        version: String::new(),
    }))
}

/// The Freezes, and remarks about those that could not be listed.
#[derive(Debug, Default)]
struct ListedFreezes {
    freezes: Vec<Object>,
    left_out: Vec<String>,
}

async fn freezes(reader: &PageDataReader) -> anyhow::Result<ListedFreezes> {
    let mut found = ListedFreezes::default();
    for target in reader.targets(&["freezes"]).await? {
        let all = &mut found.freezes;
        let mut beyond = 0;
        let refused = reader.site.list(&target, "", |objects| {
            let room = MAX_FREEZES.saturating_sub(all.len());
            beyond += objects.len().saturating_sub(room);
            all.extend(objects.into_iter().take(room));
            Ok(())
        });
        let refused = refused.await?;
        found.left_out.extend(refused);
        if beyond > 0 {
            found.left_out.push(format!("{beyond} more Freezes"));
        }
    }
    Ok(found)
}

/// An event at a known time.
struct CalendarEntry<'b> {
    at: Time,
    what: &'static str,
    row: &'b ReconciledObjectRow,
}

/// The next events: change windows that open or close, and suspensions that end.
fn entries(board: &ReconciledObjectRows, now: Time) -> Vec<CalendarEntry<'_>> {
    let mut all = Vec::new();
    for row in board.iter() {
        if let Some(at) = row.hold_ends {
            all.push(CalendarEntry { at, what: "the suspension ends", row });
        }
        let (at, what) = match &row.window {
            Some(RowChangeWindow::Open(until)) => (*until, "the window closes"),
            Some(RowChangeWindow::Closed(next)) => (*next, "the window opens"),
            Some(RowChangeWindow::Invalid(_)) | None => (None, ""),
        };
        all.extend(at.map(|at| CalendarEntry { at, what, row }));
    }
    all.retain(|entry| entry.at >= now);
    all.sort_by_key(|entry| entry.at);
    all
}

fn parts(
    board: &ReconciledObjectRows,
    freezes: &anyhow::Result<ListedFreezes>,
    now: Timestamp,
) -> Vec<PagePart> {
    let among = among(board);
    vec![
        PagePart::whole("remarks", remarks(&board.left_out)),
        PagePart::main("next", next_changes(board, among, now)),
        PagePart::main("invalid", invalid_windows(board)),
        PagePart::side("freezes", frozen(freezes, now)),
        PagePart::side("suspended", suspended(board, among)),
    ]
}

/// Describes which objects the page covers.
fn among(board: &ReconciledObjectRows) -> &'static str {
    match board.left_out.is_empty() {
        true => "",
        false => " among the objects that you may list",
    }
}

fn next_changes(board: &ReconciledObjectRows, among: &str, now: Timestamp) -> Markup {
    let entries = entries(board, now);
    let more = entries.len().saturating_sub(ROWS_PER_PAGE);
    html! {
        section class="panel" {
            header { h2 { "What changes next" } span class="more" { "times are UTC" } }
            @if entries.is_empty() { p { "No window opens or closes, and no suspension ends by itself" (among) "." } }
            @for entry in entries.iter().take(ROWS_PER_PAGE) { (entry_item(entry)) }
            @if more > 0 { p { (more) " more" } }
        }
    }
}

/// The events of the next 24 hours.
pub(super) fn next_day(board: &ReconciledObjectRows, most: usize, now: Timestamp) -> Markup {
    let mut entries = entries(board, now);
    entries.retain(|entry| entry.at.duration_since(now) <= ONE_DAY);
    let more = entries.len().saturating_sub(most);
    html! {
        section class="panel" {
            header { h2 { "Next 24 hours" } a class="more" href=(Href::inside(&Route::Calendar)) { "Calendar" } }
            @if entries.is_empty() {
                p { "No window opens or closes, and no suspension ends by itself" (among(board)) ". Freezes are in the calendar." }
            }
            @for entry in entries.iter().take(most) { (entry_item(entry)) }
            @if more > 0 { p { (more) " more" } }
        }
    }
}

fn suspended(board: &ReconciledObjectRows, among: &str) -> Markup {
    let is_unlimited =
        |row: &&ReconciledObjectRow| !row.suspended.is_empty() && row.hold_ends.is_none();
    let unlimited: Vec<&ReconciledObjectRow> = board.iter().filter(is_unlimited).collect();
    html! {
        section class="panel" {
            header { h2 { "Suspended without an end" } span class="more" { (unlimited.len()) } }
            @if unlimited.is_empty() { p { "None" (among) "." } }
            @for row in unlimited.iter().take(ROWS_PER_PAGE) {
                div class="item" {
                    (shape(ObjectState::Suspended))
                    strong { (object_link(row)) }
                    p { "by " (text(&row.suspended)) }
                }
            }
        }
    }
}

fn entry_item(entry: &CalendarEntry<'_>) -> Markup {
    let CalendarEntry { at, what, row } = entry;
    html! {
        div class="item" {
            (shape(row.state))
            strong { (object_link(row)) }
            time datetime=(format!("{at:.0}")) { (at.strftime("%a %-d %b %H:%M").to_string()) }
            p { (what) @if !row.suspended.is_empty() { " · suspended: " (text(&row.suspended)) } }
        }
    }
}

/// Change windows that cannot be read. windlass applies nothing to their objects.
fn invalid_windows(board: &ReconciledObjectRows) -> Markup {
    let invalid = board.iter().filter_map(|row| match &row.window {
        Some(RowChangeWindow::Invalid(text)) => Some((row, text)),
        _ => None,
    });
    let invalid: Vec<_> = invalid.take(ROWS_PER_PAGE).collect();
    html! {
        @if !invalid.is_empty() {
            section class="panel" {
                header { h2 { "Windows that cannot be read" } }
                @for (row, why) in &invalid {
                    div class="item" {
                        (shape(ObjectState::Failing))
                        strong { (object_link(row)) }
                        div class="note" { (message(why)) }
                    }
                }
            }
        }
    }
}

fn frozen(freezes: &anyhow::Result<ListedFreezes>, now: Timestamp) -> Markup {
    html! {
        section class="panel" {
            header { h2 { "Freezes" } }
            @match freezes {
                Err(error) => div class="empty" { (message(&format!("They are not known: {error:#}"))) },
                Ok(found) => {
                    @if found.freezes.is_empty() && found.left_out.is_empty() { p { "There are none." } }
                    @for freeze in &found.freezes { (freeze_item(freeze, now)) }
                    @for text in &found.left_out { div class="empty" { "Not known: " (message(text)) } }
                }
            }
        }
    }
}

fn freeze_item(freeze: &Object, now: Timestamp) -> Markup {
    let row = ObjectRow::of(freeze, now);
    let route = Route::Object { place: ObjectAddress::of(&freeze.id()), tab: ObjectTab::Yaml };
    html! {
        div class="item" {
            (shape(ObjectState::Waiting))
            strong { a href=(Href::inside(&route)) { (text(freeze.name())) } }
            div class="note" { (message(&row.message)) }
        }
    }
}

fn object_link(row: &ReconciledObjectRow) -> Markup {
    let route = Route::Object { place: row.place.clone(), tab: ObjectTab::Why };
    html! { a href=(Href::inside(&route)) { (text(&row.kind)) " " (text(&row.place.namespace)) "/" (text(&row.place.name)) } }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::reconciled_object_rows::samples::{board, object};

    fn annotated(name: &str, key: &str, value: &str) -> Object {
        let mut it = object(name, "True", "X", false);
        it.set_annotation(key, value);
        it
    }

    fn html(board: &ReconciledObjectRows, now: Timestamp) -> String {
        let parts = parts(board, &Ok(ListedFreezes::default()), now);
        parts.into_iter().map(|part| part.content.into_string()).collect()
    }

    #[test]
    fn what_changes_next_comes_first_and_a_window_that_cannot_be_read_is_named() {
        let mut held = object("held", "True", "X", true);
        held.set_annotation("windlass.dev/suspended-by", "<alice>");
        let board = board(&[
            annotated("late", "windlass.dev/window", "0 23 * * * 1h"),
            annotated("soon", "windlass.dev/window", "0 13 * * * 1h"),
            annotated("broken", "windlass.dev/window", "<often>"),
            held,
        ]);
        let now = "2026-11-24T12:00:00Z".parse().unwrap();
        let names: Vec<&str> =
            entries(&board, now).iter().map(|it| it.row.place.name.as_str()).collect();
        assert_eq!(names, ["soon", "late"]);
        let next = next_day(&board, 1, now).into_string();
        assert!(next.contains("the window opens") && next.contains("<p>1 more</p>"), "{next}");
        assert!(next.contains("<bdi>soon</bdi>") && !next.contains("<bdi>late</bdi>"), "{next}");
        let html = html(&board, now);
        assert!(html.contains("Tue 24 Nov 13:00") && html.contains("the window opens"), "{html}");
        assert!(
            html.contains("Windows that cannot be read") && !html.contains("<often>"),
            "{html}"
        );
        assert!(html.contains("by <bdi>&lt;alice&gt;</bdi>"), "{html}");
    }

    #[test]
    fn what_may_not_be_listed_is_not_taken_for_having_no_windows() {
        let now = "2026-11-24T12:00:00Z".parse().unwrap();
        let mut empty = board(&[]);
        assert!(html(&empty, now).contains("no suspension ends by itself.</p>"));
        empty.left_out.push("kustomizations: forbidden".to_owned());
        assert!(
            html(&empty, now).contains("ends by itself among the objects that you may list.</p>")
        );
        assert!(html(&empty, now).contains("<p>None among the objects that you may list.</p>"));
    }

    #[test]
    fn freezes_that_cannot_be_read_are_not_taken_for_none() {
        let now = "2026-11-24T12:00:00Z".parse().unwrap();
        let unknown = frozen(&Err(anyhow::anyhow!("forbidden <b>")), now).into_string();
        assert!(unknown.contains("They are not known: forbidden &lt;b&gt;"), "{unknown}");
        assert!(!unknown.contains("There are none"), "{unknown}");
        let freeze = json!({"apiVersion": "release.windlass.dev/v1alpha1", "kind": "Freeze",
            "metadata": {"name": "winter"}, "spec": {"reason": "<i>", "namespaceSelector": {}}});
        let found =
            ListedFreezes { freezes: vec![Object::new(freeze).unwrap()], left_out: Vec::new() };
        let html = frozen(&Ok(found), now).into_string();
        assert!(html.contains("denies without a known end: &lt;i&gt;"), "{html}");
    }
}
