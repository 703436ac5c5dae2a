//! The overview: what is broken, why and since when, and what waits for a user.
//!
//! Each part is read on its own. If one part cannot be read, it says so, and the page still shows the others.

use std::rc::Rc;

use jiff::Timestamp;
use maud::{Markup, html};
use windlass_answers::incidents::{self, ListedIncidents, first_line, groups, since};
use windlass_answers::why::unready_objects::{CauseGroup, in_words};

use super::approvals::{self, WaitingOperations};
use super::{PageContent, PageRequest, change_calendar};
use crate::frame::{PagePart, PageParts};
use crate::href::Href;
use crate::page_data_reader::{PageDataReader, UnreadyObjectsSnapshot};
use crate::page_elements::{
    ObjectState, ago, failure, lines, message, remarks, shape, subject, text,
};
use crate::reconciled_object_rows::{KindCounts, ReconciledObjectRows};
use crate::route::Route;

/// How many causes are listed.
const MAX_CAUSES: usize = 12;

/// How many objects of a cause are named.
const MAX_NAMED_OBJECTS: usize = 4;

/// How many Incidents and operations are listed. Their own pages list all of them.
const MAX_ENTRIES: usize = 5;

/// The width of the bar of states, in SVG units.
const BAR_WIDTH: usize = 1000;

/// Makes the page.
///
/// # Errors
/// The API server did not respond to the first request.
pub(super) async fn page(
    reader: &PageDataReader,
    request: &PageRequest,
) -> anyhow::Result<PageContent> {
    let unready = reader.unready().await?;
    if request.wants_json {
        return Ok(PageContent::Json(serde_json::to_value(&unready.overview)?));
    }
    // The parts are read in parallel, so a slow part does not delay the others.
    let (board, incidents, waiting) = tokio::join!(
        reader.board(),
        incidents::find(&reader.site, "", false),
        approvals::waiting(reader),
    );
    let parts = OverviewParts { unready, board, incidents, waiting };
    Ok(PageContent::Html(PageParts {
        route: Route::Overview,
        title: "Overview".to_owned(),
        command: format!("windlass why {}", reader.scope_flag()),
        read_at: parts.unready.read_at,
        parts: page_parts(&parts, &reader.site.namespace, Timestamp::now()),
        renew_after: reader.overview_renewal().await,
        version: String::new(),
    }))
}

/// The data of the page.
struct OverviewParts {
    unready: Rc<UnreadyObjectsSnapshot>,
    board: anyhow::Result<ReconciledObjectRows>,
    incidents: anyhow::Result<ListedIncidents>,
    waiting: WaitingOperations,
}

fn page_parts(parts: &OverviewParts, namespace: &str, now: Timestamp) -> Vec<PagePart> {
    let overview = &parts.unready.overview;
    // The page shows a shape instead of the symbol that the command prints on a terminal.
    let sum = overview.sum(&in_words(namespace));
    let sum = sum.trim_start_matches(|letter: char| !letter.is_alphanumeric());
    // The last remark says whether an operator is running. It matters most, so it comes first.
    let said = overview.remarks.iter().rev().chain(&overview.left_out).cloned();
    let of_board = parts.board.iter().flat_map(|board| &board.left_out).cloned();
    let mut said: Vec<String> = said.collect();
    // Both lists contain the kinds that the user may not list.
    said.extend(of_board.filter(|text| !overview.left_out.contains(text)));
    let counted = match &parts.board {
        Ok(board) => states(board),
        Err(error) => failure("The objects cannot be counted", &format!("{error:#}")),
    };
    let kinds = match &parts.board {
        Ok(board) => by_kind(&board.by_kind()),
        Err(_) => html! {},
    };
    let next = match &parts.board {
        Ok(board) => change_calendar::next_day(board, MAX_ENTRIES, now),
        Err(_) => html! {},
    };
    vec![
        PagePart::whole("sum", html! { div class="lede" { h1 { (text(sum)) } } }),
        PagePart::whole("states", counted),
        PagePart::whole("remarks", remarks(&said)),
        PagePart::main("causes", causes(&overview.causes, overview.unexplained, now)),
        PagePart::main("kinds", kinds),
        PagePart::side("incidents", open_incidents(&parts.incidents, now)),
        PagePart::side(
            "approvals",
            approvals::panel("Waiting for approval", &parts.waiting, MAX_ENTRIES, now),
        ),
        PagePart::side("next", next),
    ]
}

/// How many objects are in each state, as a bar and as text.
fn states(board: &ReconciledObjectRows) -> Markup {
    let counts = board.counts();
    let all = board.rows.len();
    let mut bars = Vec::new();
    let mut begin = 0;
    for (state, count) in ObjectState::ALL.into_iter().zip(counts) {
        // A minimum width keeps every state visible, even with very few objects.
        let width = count.saturating_mul(BAR_WIDTH) / all.max(1);
        let width = if count > 0 { width.max(4) } else { 0 };
        bars.push((state, begin, width));
        begin += width;
    }
    html! {
        svg class="share" viewBox={ "0 0 " (begin.max(1)) " 8" } preserveAspectRatio="none" aria-hidden="true" {
            @for (state, x, width) in &bars {
                @if *width > 0 { rect class=(state.class()) x=(x) y="0" width=(width) height="8" {} }
            }
        }
        div class="states" {
            @for (state, count) in ObjectState::ALL.into_iter().zip(counts) {
                @if count > 0 {
                    a href=(Href::with_query(&Route::Objects, &[("state", state.word())])) {
                        (shape(state)) b class="num" { (count) } (state.word())
                    }
                }
            }
        }
    }
}

fn causes(causes: &[CauseGroup], unexplained: usize, now: Timestamp) -> Markup {
    html! {
        section class="panel" {
            header { h2 { "What is not ready, by its cause" } span class="more" { "most objects first" } }
            @if causes.is_empty() { p { "No object that was read reports that it is not ready." } }
            @for cause in causes.iter().take(MAX_CAUSES) { (cause_item(cause, now)) }
            @if causes.len() > MAX_CAUSES { p { (causes.len() - MAX_CAUSES) " more causes" } }
            @if unexplained > 0 { p { (unexplained) " more objects are not ready and were not examined." } }
        }
    }
}

fn cause_item(group: &CauseGroup, now: Timestamp) -> Markup {
    let CauseGroup { cause, since, objects, advice } = group;
    let more = objects.len().saturating_sub(MAX_NAMED_OBJECTS);
    html! {
        div class="item" {
            (shape(ObjectState::Failing))
            strong {
                @match cause.split_once(": ") {
                    Some((about, said)) => { (subject(about)) ": " (message(said)) }
                    None => (message(cause)),
                }
            }
            (ago(*since, now))
            p {
                (objects.len()) @if objects.len() == 1 { " object: " } @else { " objects: " }
                @for (at, object) in objects.iter().take(MAX_NAMED_OBJECTS).enumerate() {
                    @if at > 0 { ", " } (subject(object))
                }
                @if more > 0 { " and " (more) " more" }
            }
            @if let Some(advice) = advice {
                div class="note advice" {
                    (message(&advice.text))
                    @if let Some(command) = &advice.command { code { (lines(command)) } }
                }
            }
        }
    }
}

fn by_kind(kinds: &[KindCounts]) -> Markup {
    html! {
        section class="panel" {
            header { h2 { "By kind" } a class="more" href=(Href::inside(&Route::Objects)) { "All objects" } }
            div class="wide" { table {
                thead { tr { th { "Kind" } @for state in ObjectState::ALL { th class="r" { (state.word()) } } } }
                tbody {
                    @for KindCounts { kind, counts } in kinds {
                        tr {
                            td { a href=(Href::with_query(&Route::Objects, &[("kind", kind)])) { (text(kind)) } }
                            @for (state, count) in ObjectState::ALL.into_iter().zip(counts) {
                                td class="r" {
                                    @if *count > 0 { span class=(state.class()) { (count) } } @else { span class="dim" { "–" } }
                                }
                            }
                        }
                    }
                }
            } }
        }
    }
}

fn open_incidents(found: &anyhow::Result<ListedIncidents>, now: Timestamp) -> Markup {
    html! {
        section class="panel" {
            header { h2 { "Open incidents" } a class="more" href=(Href::inside(&Route::Incidents)) { "All incidents" } }
            @match found {
                Err(error) => div class="empty" { (message(&format!("They are not known: {error:#}"))) },
                Ok(found) => {
                    @if found.incidents.is_empty() {
                        @if found.summary.left_out.is_empty() { p { "None is open." } }
                        @else { p { "Whether one is open is not known: you may not list them." } }
                    }
                    @for text in &found.summary.left_out { div class="empty" { "Not known: " (message(text)) } }
                    @for group in groups(&found.incidents).iter().take(MAX_ENTRIES) {
                        div class="item" {
                            (shape(ObjectState::Failing))
                            strong { (message(&first_line(group.first))) }
                            (ago(since(group.first), now))
                            p { (text(&group.first.spec.subject.kind)) " " (text(&group.first.spec.subject.name)) " · affects " (group.affected) }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use cause::CauseAdvice;
    use windlass_answers::why::unready_objects::UnreadyObjectsOverview;

    use super::*;
    use crate::reconciled_object_rows::samples::{board, object};

    fn parts(board: anyhow::Result<ReconciledObjectRows>) -> OverviewParts {
        let cause = CauseGroup {
            cause: "GitRepository/apps/shop: <script>alert(1)</script>".to_owned(),
            since: Some("2026-11-24T11:55:00Z".parse().unwrap()),
            objects: (0..6).map(|at| format!("Kustomization/apps/k{at}")).collect(),
            advice: Some(CauseAdvice {
                text: "check spec.url".to_owned(),
                command: Some("kubectl <get>".to_owned()),
            }),
        };
        let overview = UnreadyObjectsOverview {
            objects: 10,
            not_ready: 6,
            causes: vec![cause],
            left_out: vec!["alerts: forbidden <b>".to_owned()],
            ..UnreadyObjectsOverview::default()
        };
        let read_at = "2026-11-24T12:00:00Z".parse().unwrap();
        OverviewParts {
            unready: Rc::new(UnreadyObjectsSnapshot { overview, read_at }),
            board,
            incidents: Err(anyhow::anyhow!("no such kind <i>")),
            waiting: WaitingOperations::default(),
        }
    }

    fn html(parts: &OverviewParts) -> String {
        let parts = page_parts(parts, "", "2026-11-24T12:00:00Z".parse().unwrap());
        parts.into_iter().map(|part| part.content.into_string()).collect()
    }

    #[test]
    fn the_first_line_is_that_of_the_command_and_each_cause_has_its_objects_and_advice() {
        let board = board(&[object("k0", "False", "X", false), object("a", "True", "X", false)]);
        let html = html(&parts(Ok(board)));
        let sum = "<h1><bdi>6 of 10 objects in all namespaces that may be listed are not ready (causes: 1)</bdi></h1>";
        assert!(html.contains(sum), "{html}");
        let cause = "<strong><a href=\"/o/gitrepository/apps/shop\"><bdi>GitRepository/apps/shop</bdi></a>: <bdi>&lt;script&gt;";
        assert!(html.contains(cause), "{html}");
        let named = "<a href=\"/o/kustomization/apps/k0\"><bdi>Kustomization/apps/k0</bdi></a>, ";
        assert!(html.contains(named) && html.contains(" and 2 more"), "{html}");
        assert!(html.contains("<code>kubectl &lt;get&gt;</code>"), "{html}");
        assert!(html.contains("alerts: forbidden &lt;b&gt;"), "{html}");
        assert!(!html.contains("<script"), "{html}");
    }

    #[test]
    fn incidents_that_may_not_be_listed_are_named_beside_those_that_may() {
        let mut found = ListedIncidents::default();
        found.summary.left_out.push("incidents in namespace b: forbidden <b>".to_owned());
        let html = open_incidents(&Ok(found), Timestamp::UNIX_EPOCH).into_string();
        assert!(html.contains("Not known: <bdi>incidents in namespace b: forbidden &lt;b&gt;"));
        assert!(!html.contains("None is open"), "{html}");
    }

    #[test]
    fn a_part_that_cannot_be_read_says_so_and_the_others_are_shown() {
        let html = html(&parts(Err(anyhow::anyhow!("timed out <u>"))));
        assert!(html.contains("The objects cannot be counted"), "{html}");
        assert!(html.contains("timed out &lt;u&gt;"), "{html}");
        assert!(html.contains("They are not known: no such kind &lt;i&gt;"), "{html}");
        assert!(!html.contains("None is open."), "{html}");
        assert!(html.contains("What is not ready, by its cause"), "{html}");
    }
}
