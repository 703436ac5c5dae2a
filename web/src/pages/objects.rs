//! The page that lists objects. The address contains the filters, and each page shows a hundred rows.

use jiff::Timestamp;
use maud::{Markup, html};
use objects::Object;
use serde_json::Value;
use windlass_answers::command_scope::shown;

use super::{PageContent, PageRequest, ROWS_PER_PAGE, complete, list_of};
use crate::frame::{PagePart, PageParts};
use crate::href::Href;
use crate::page_data_reader::PageDataReader;
use crate::page_elements::{ObjectState, ago, remarks, shape, text};
use crate::page_query::PageQuery;
use crate::reconciled_object_rows::{ObjectFilters, ReconciledObjectRow, ReconciledObjectRows};
use crate::route::{ObjectTab, Route};
use crate::shell_line::shell_line;

/// The names of the query parameters that select objects.
const FILTERS: [&str; 5] = ["kind", "ns", "state", "q", "sort"];

/// The maximum number of choices in a selection list, because each page contains all of them.
const MAX_CHOICES: usize = 300;

/// Makes the page.
///
/// # Errors
/// The API server did not respond.
pub(super) async fn page(
    reader: &PageDataReader,
    request: &PageRequest,
) -> anyhow::Result<PageContent> {
    let query = &request.query;
    if request.wants_json {
        return Ok(PageContent::Json(list(reader, query).await?));
    }
    let board = reader.board().await?;
    Ok(PageContent::Html(PageParts {
        route: Route::Objects,
        title: "Objects".to_owned(),
        command: command(&reader.scope_flag(), query),
        read_at: board.read_at,
        parts: parts(&board, query, Timestamp::now()),
        renew_after: reader.board_renewal(),
        version: String::new(),
    }))
}

/// The objects of a page as `windlass get -o json` prints them. Their order differs from the order of the rows.
async fn list(reader: &PageDataReader, query: &PageQuery) -> anyhow::Result<Value> {
    let filters = ObjectFilters::of(query);
    let now = Timestamp::now();
    let mut skipped = (query.page() - 1) * ROWS_PER_PAGE;
    let mut items: Vec<Value> = Vec::new();
    for target in reader.targets(&["all"]).await? {
        let kind = query.get("kind");
        if items.len() >= ROWS_PER_PAGE || !(kind.is_empty() || kind == target.resource.gvk.kind) {
            continue;
        }
        let left_out = reader.site.list(&target, "", |objects| {
            let mut taken: Vec<Object> = objects;
            taken.retain(|object| filters.admits(&ReconciledObjectRow::of(object, now)));
            let ahead = skipped.min(taken.len());
            skipped -= ahead;
            let room = ROWS_PER_PAGE - items.len();
            items.extend(taken.into_iter().skip(ahead).take(room).map(|it| shown(it).into_value()));
            Ok(())
        });
        complete(&left_out.await?)?;
    }
    Ok(list_of(items))
}

/// The command that lists the same objects, as far as the command supports these filters.
fn command(scope: &str, query: &PageQuery) -> String {
    let kind = match query.get("kind") {
        "" => "all".to_owned(),
        kind => shell_line(&[&kind.to_lowercase()]),
    };
    let scope = match query.get("ns") {
        "" => scope.to_owned(),
        namespace => shell_line(&["-n", namespace]),
    };
    let state = match query.get("state") {
        "failing" => " --status-selector ready=false",
        "ready" => " --status-selector ready=true",
        _ => "",
    };
    format!("windlass get {kind} {scope}{state}")
}

/// The parts of the page. The filters are a separate part, so a change of the rows does not erase a text that the user is
/// typing.
fn parts(board: &ReconciledObjectRows, query: &PageQuery, now: Timestamp) -> Vec<PagePart> {
    vec![
        PagePart::whole("remarks", remarks(&board.left_out)),
        PagePart::whole("filters", filters(board, query)),
        PagePart::whole("rows", listed(board, query, now)),
    ]
}

fn listed(board: &ReconciledObjectRows, query: &PageQuery, now: Timestamp) -> Markup {
    let rows = board.selected(query);
    let first = (query.page() - 1) * ROWS_PER_PAGE;
    let shown: Vec<&ReconciledObjectRow> =
        rows.iter().skip(first).take(ROWS_PER_PAGE).copied().collect();
    html! {
        div class="panel" {
            header {
                h2 { (rows.len()) " of " (board.rows.len()) " objects" }
                @if !board.left_out.is_empty() { span class="more" { "of those that could be read" } }
            }
            @if shown.is_empty() {
                p { (nothing(board, query)) }
            } @else {
                div class="wide" { table class="list" {
                    thead { tr {
                        th { "State" } th { "Object" } th { "Namespace" } th { "Revision" } th { "Message" }
                        th class="r" { "Since" }
                    } }
                    tbody { @for row in &shown { (table_row(row, now)) } }
                } }
            }
            (pages(query, first, shown.len(), rows.len()))
        }
    }
}

/// Explains why there is no row. There may be no objects, no matching objects, or none that could be read. The remarks of the
/// page say whether the user may not list them, or the API server failed.
fn nothing(board: &ReconciledObjectRows, query: &PageQuery) -> &'static str {
    let is_filtered = FILTERS.iter().any(|name| *name != "sort" && !query.get(name).is_empty());
    match (board.rows.is_empty(), is_filtered) {
        (true, _) if !board.left_out.is_empty() => {
            "Nothing is known of the objects, for the reasons above."
        }
        (true, _) => "There are no objects of windlass or Flux here.",
        (false, true) => "No object has all of these.",
        (false, false) => "There is no such page; the first one has objects.",
    }
}

fn table_row(row: &ReconciledObjectRow, now: Timestamp) -> Markup {
    let route = Route::Object { place: row.place.clone(), tab: ObjectTab::Why };
    html! {
        tr {
            td { (shape(row.state)) " " (row.state.word()) }
            td { span class="dim" { (text(&row.kind)) " " } a href=(Href::inside(&route)) { (text(&row.place.name)) } }
            td { (text(&row.place.namespace)) }
            td class="mono" { (text(&row.revision)) }
            td class="grow" {
                @if !row.suspended.is_empty() { span class="susp" { "suspended: " (text(&row.suspended)) " " } }
                (text(&row.message))
            }
            td class="r" { (ago(row.since, now)) }
        }
    }
}

fn filters(board: &ReconciledObjectRows, query: &PageQuery) -> Markup {
    let states: Vec<&str> = ObjectState::ALL.iter().map(|state| state.word()).collect();
    html! {
        form class="filters" action="/objects" method="get" {
            label { "Kind" (choice("kind", "every kind", &board.kinds(), query)) }
            label { "Namespace" (choice("ns", "every namespace", &board.namespaces(), query)) }
            label { "State" (choice("state", "every state", &states, query)) }
            label { "Order" (choice("sort", "what needs a person first", &["name", "since"], query)) }
            label { "Name, revision or message" input type="search" name="q" maxlength="200" value=(query.get("q")); }
            button class="btn" type="submit" { "Show" }
            a class="btn" href=(Href::inside(&Route::Objects)) { "Clear" }
        }
    }
}

/// A selection list, or a text field if there are very many values. The first entry selects all values, so an empty namespace
/// needs no entry of its own.
fn choice(name: &str, every: &str, values: &[&str], query: &PageQuery) -> Markup {
    let chosen = query.get(name);
    html! {
        @if values.len() > MAX_CHOICES {
            input name=(name) maxlength="253" placeholder=(every) value=(chosen);
        } @else {
            select name=(name) {
                option value="" { (every) }
                @for value in values.iter().filter(|value| !value.is_empty()) {
                    option value=(value) selected[*value == chosen] { (text(value)) }
                }
            }
        }
    }
}

/// Links to the other pages of rows.
fn pages(query: &PageQuery, first: usize, shown: usize, all: usize) -> Markup {
    let at = |page: usize| {
        let page = page.to_string();
        let mut pairs = FILTERS.map(|name| (name, query.get(name))).to_vec();
        pairs.push(("page", page.as_str()));
        Href::with_query(&Route::Objects, &pairs)
    };
    html! {
        @if all > ROWS_PER_PAGE {
            div class="pages" {
                @if first > 0 { a rel="prev" href=(at(query.page() - 1)) { "‹ before" } }
                span { (first + usize::from(shown > 0)) "–" (first + shown) " of " (all) }
                @if first + shown < all { a rel="next" href=(at(query.page() + 1)) { "next ›" } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile_strings::assert_text_only;
    use crate::reconciled_object_rows::samples::{board, object};

    fn html(board: &ReconciledObjectRows, query: &str) -> String {
        let now = "2026-11-24T12:00:00Z".parse().unwrap();
        let parts = parts(board, &PageQuery::parse(query), now);
        parts.into_iter().map(|part| part.content.into_string()).collect()
    }

    #[test]
    fn names_and_messages_of_objects_are_escaped_wherever_they_stand() {
        let hostile = "\"><img src=x onerror=alert(1)>\u{202e}";
        let board = board(&[object(hostile, "False", "BuildFailed", false)]);
        let html = html(&board, &format!("q={}", "%22%3E%3Cscript%3E"));
        assert!(html.contains("value=\"&quot;&gt;&lt;script&gt;\""), "{html}");
        let row = table_row(&board.rows[0], board.read_at).into_string();
        let expected = "<tr><td><svg class=\"i bad\" aria-hidden=\"true\"><use href=\"#s-bad\"></use></svg> failing</td>\
            <td><span class=\"dim\"><bdi>Kustomization</bdi> </span>\
            <a href=\"/o/ks/apps/%22%3E%3Cimg%20src%3Dx%20onerror%3Dalert%281%29%3E%E2%80%AE\">\
            <bdi>&quot;&gt;&lt;img src=x onerror=alert(1)&gt;\\u{202e}</bdi></a></td>\
            <td><bdi>apps</bdi></td><td class=\"mono\"><bdi></bdi></td>\
            <td class=\"grow\"><bdi>message of &quot;&gt;&lt;img src=x onerror=alert(1)&gt;\\u{202e}</bdi></td>\
            <td class=\"r\"><time datetime=\"2026-11-24T11:00:00Z\" title=\"2026-11-24T11:00:00Z\">60m</time></td></tr>";
        assert_eq!(row, expected);
    }

    #[test]
    fn hostile_strings_are_text_only() {
        assert_text_only(|hostile| {
            let mut it = object(hostile, "False", hostile, true);
            it.set_annotation("windlass.dev/suspended-by", hostile);
            it.set_annotation("windlass.dev/suspended-reason", hostile);
            let status = &mut it.fields_mut()["status"];
            status["lastAppliedRevision"] = hostile.into();
            status["conditions"][0]["message"] = hostile.into();
            let mut board = board(&[it]);
            board.left_out.push(hostile.to_owned());
            html(&board, "")
        });
    }

    #[test]
    fn a_page_has_a_hundred_rows_and_links_to_the_others_with_the_filters() {
        let objects: Vec<Object> =
            (0..250).map(|at| object(&format!("k{at:03}"), "True", "X", false)).collect();
        let board = board(&objects);
        let first = html(&board, "state=ready");
        assert_eq!(first.matches("<tr><td>").count(), ROWS_PER_PAGE);
        assert!(first.contains("<h2>250 of 250 objects</h2>"), "{first}");
        assert!(
            first.contains("<a rel=\"next\" href=\"/objects?state=ready&amp;page=2\">"),
            "{first}"
        );
        let last = html(&board, "state=ready&page=3");
        assert_eq!(last.matches("<tr><td>").count(), 50);
        assert!(last.contains("<span>201–250 of 250</span>") && !last.contains("rel=\"next\""));
        let beyond = html(&board, "page=99");
        assert!(beyond.contains("There is no such page"), "{beyond}");
    }

    #[test]
    fn of_ten_thousand_namespaces_not_all_are_on_each_page() {
        let objects = (0..MAX_CHOICES + 1).map(|at| {
            let mut it = object("a", "True", "X", false);
            it.fields_mut()["metadata"]["namespace"] = format!("n{at}").into();
            it
        });
        let board = board(&objects.collect::<Vec<_>>());
        let html = html(&board, "ns=n3&page=2");
        assert!(!html.contains("<option value=\"n3\""), "{}", html.len());
        assert!(html.contains("<input name=\"ns\" maxlength=\"253\""), "{}", html.len());
        assert!(html.contains("value=\"n3\">"), "{}", html.len());
    }

    #[test]
    fn that_there_is_no_row_says_why() {
        let mut empty = board(&[]);
        assert!(html(&empty, "").contains("There are no objects of windlass or Flux here."));
        empty.left_out.push("alerts: forbidden <b>".to_owned());
        let hidden = html(&empty, "state=failing");
        assert!(hidden.contains("Nothing is known of the objects"), "{hidden}");
        assert!(hidden.contains("alerts: forbidden &lt;b&gt;"), "{hidden}");
        empty.left_out = vec!["alerts are not known: timed out".to_owned()];
        let failed = html(&empty, "");
        assert!(!failed.contains("you may"), "an error denies no right: {failed}");
        let some = board(&[object("a", "True", "X", false)]);
        assert!(html(&some, "q=none").contains("No object has all of these."));
    }

    #[test]
    fn the_command_has_the_filters_that_it_knows() {
        let of = |query: &str| command("-A", &PageQuery::parse(query));
        assert_eq!(of(""), "windlass get all -A");
        let filtered = of("kind=HelmRelease&ns=apps&state=failing&q=x");
        assert_eq!(filtered, "windlass get helmrelease -n apps --status-selector ready=false");
        assert_eq!(of("kind=A;b&ns=$(id)"), "windlass get 'a;b' -n '$(id)'");
    }
}
