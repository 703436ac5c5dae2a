//! The pages, with one file for each. Each file reads the data of its page and renders it.
//!
//! Elsewhere: finding the data (`windlass-answers`), building blocks of all pages (`page_elements.rs`).

mod approvals;
mod audits;
mod branch_plan;
mod change_calendar;
mod changes;
mod current_user;
mod incident;
mod incidents;
mod object;
mod objects;
mod overview;

use axum::http::StatusCode;
use serde_json::Value;
use windlass_answers::kind_argument::UnknownKind;
use windlass_cluster::ClusterError;

use self::branch_plan::BranchPlanRefusal;
use super::frame::{self, PagePart, PageParts, SiteFacts};
use super::href::Href;
use super::live_updates;
use super::page_data_reader::PageDataReader;
use super::page_elements;
use super::page_query::PageQuery;
use super::response::{HTML, JSON, PageAnswer};
use super::route::Route;

/// A request for a page.
#[derive(Debug, Clone)]
pub(crate) struct PageRequest {
    pub(crate) route: Route,
    pub(crate) query: PageQuery,
    pub(crate) wants_json: bool,
}

/// The result of making a page.
pub(crate) enum PageContent {
    Html(PageParts),
    /// The same JSON that the command prints with `-o json`.
    Json(Value),
    /// The object or the tab does not exist. Contains a text that says so.
    Absent(String),
}

/// How many rows a page shows.
pub(crate) const ROWS_PER_PAGE: usize = 100;

/// Makes a page. After an error, the answer is a page with the error of the API server.
pub(crate) async fn answer(reader: &PageDataReader, request: &PageRequest) -> PageAnswer {
    // The version is read first. So a change during the rendering belongs to the next version.
    let version = live_updates::version(reader, &request.route);
    of_content(make(reader, request).await, &reader.facts, request, &version)
}

/// Reads the data of a page and renders it.
///
/// # Errors
/// The errors of the individual page.
pub(crate) async fn make(
    reader: &PageDataReader,
    request: &PageRequest,
) -> anyhow::Result<PageContent> {
    match &request.route {
        Route::Overview => overview::page(reader, request).await,
        Route::Objects => objects::page(reader, request).await,
        Route::Object { place, tab } => object::page(reader, request, place, *tab).await,
        Route::Incidents => incidents::page(reader, request).await,
        Route::Incident { namespace, name } => {
            incident::page(reader, request, namespace, name).await
        }
        Route::Changes => changes::page(reader, request).await,
        Route::Commit(commit) => changes::of_commit(reader, request, commit).await,
        Route::Approvals => approvals::page(reader, request).await,
        Route::Calendar => change_calendar::page(reader, request).await,
        Route::Audits => audits::page(reader, request).await,
        Route::Me => current_user::page(reader, request).await,
        Route::BranchPlan { namespace, name } => {
            branch_plan::page(reader, request, namespace, name).await
        }
    }
}

fn of_content(
    made: anyhow::Result<PageContent>,
    site: &SiteFacts,
    request: &PageRequest,
    version: &str,
) -> PageAnswer {
    match made {
        Ok(PageContent::Html(page)) => {
            let version = if page.version.is_empty() { version } else { &page.version };
            let address = Href::with_query(&page.route, &request.query.pairs());
            let is_live = live_updates::is_live(&page.route);
            let live = is_live.then(|| Href::live(address.as_str(), version));
            let text = frame::framed(&page, site, live.as_ref());
            PageAnswer { status: StatusCode::OK, content_type: HTML, text }
        }
        Ok(PageContent::Json(value)) => json(StatusCode::OK, &value),
        Ok(PageContent::Absent(text)) => failed(StatusCode::NOT_FOUND, &text, site, request),
        Err(error) => failed(status_of(&error), &format!("{error:#}"), site, request),
    }
}

/// The HTTP status of a page that could not be made. The API server or the connection to it has failed, unless the API server
/// refused the request.
fn status_of(error: &anyhow::Error) -> StatusCode {
    if error.downcast_ref::<UnknownKind>().is_some() {
        return StatusCode::NOT_FOUND;
    }
    if let Some(refusal) = error.downcast_ref::<BranchPlanRefusal>() {
        return refusal.status();
    }
    match error.downcast_ref::<ClusterError>() {
        Some(error) if error.code() == Some(401) => StatusCode::UNAUTHORIZED,
        Some(error) if error.code() == Some(403) => StatusCode::FORBIDDEN,
        // A path that the API server does not serve says nothing about objects.
        Some(error) if error.is_not_found() => StatusCode::NOT_FOUND,
        _ => StatusCode::BAD_GATEWAY,
    }
}

fn failed(status: StatusCode, text: &str, site: &SiteFacts, request: &PageRequest) -> PageAnswer {
    if request.wants_json {
        return json(status, &serde_json::json!({"error": text}));
    }
    let what = match status {
        StatusCode::NOT_FOUND => "Not found",
        StatusCode::FORBIDDEN => "You may not read what this page shows",
        StatusCode::UNAUTHORIZED if site.has_login => {
            "The API server does not accept your login: log out and in again; if that does not help, it does not trust the issuer"
        }
        StatusCode::UNAUTHORIZED => {
            "The API server does not accept your credentials any more; log in again, and start `windlass ui` again"
        }
        _ => "This page could not be read; nothing is known of what it shows",
    };
    let page = PageParts {
        route: request.route.clone(),
        title: "Not shown".to_owned(),
        command: "windlass check".to_owned(),
        read_at: jiff::Timestamp::now(),
        parts: vec![PagePart::whole("failure", page_elements::failure(what, text))],
        renew_after: None,
        version: String::new(),
    };
    PageAnswer { status, content_type: HTML, text: frame::framed(&page, site, None) }
}

fn json(status: StatusCode, value: &Value) -> PageAnswer {
    // Every JSON value can be serialized.
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    PageAnswer { status, content_type: JSON, text: format!("{text}\n") }
}

/// Fails if a result is incomplete. A program would take an incomplete list for the whole list.
pub(crate) fn complete(left_out: &[String]) -> anyhow::Result<()> {
    anyhow::ensure!(left_out.is_empty(), "left out: {}", left_out.join("; "));
    Ok(())
}

/// Makes the parts of a page with one command. Its watches report all changes, so the page needs no other renewal.
pub(crate) fn plain_page(
    route: Route,
    title: &str,
    command: String,
    read_at: jiff::Timestamp,
    parts: Vec<PagePart>,
) -> PageParts {
    let title = title.to_owned();
    let version = String::new();
    PageParts { route, title, command, read_at, parts, renew_after: None, version }
}

/// Wraps objects in a Kubernetes `List`, as `windlass get -o json` prints it.
pub(crate) fn list_of(items: Vec<Value>) -> Value {
    serde_json::json!({"apiVersion": "v1", "kind": "List", "items": items})
}

#[cfg(test)]
mod tests {
    use windlass_answers::kind_argument;

    use super::*;

    fn request(wants_json: bool) -> PageRequest {
        PageRequest { route: Route::Objects, query: PageQuery::default(), wants_json }
    }

    fn site() -> SiteFacts {
        SiteFacts {
            place: "in all namespaces".to_owned(),
            cluster: "prod".to_owned(),
            server: "https://cluster.example".to_owned(),
            user: "alice".to_owned(),
            flags: String::new(),
            has_login: false,
        }
    }

    #[test]
    fn an_error_of_the_api_server_is_shown_and_is_not_taken_for_nothing() {
        let error = || anyhow::anyhow!("connection refused <script>alert(1)</script>\u{202e}");
        let page = of_content(Err(error()), &site(), &request(false), "");
        assert_eq!(page.status, StatusCode::BAD_GATEWAY);
        assert!(page.text.contains("nothing is known of what it shows"), "{}", page.text);
        let escaped = "connection refused &lt;script&gt;alert(1)&lt;/script&gt;\\u{202e}";
        assert!(page.text.contains(escaped), "{}", page.text);
        assert!(!page.text.contains("<script>"), "{}", page.text);
        let json = of_content(Err(error()), &site(), &request(true), "");
        assert_eq!((json.status, json.content_type), (StatusCode::BAD_GATEWAY, JSON));
        assert!(json.text.contains("\"error\": \"connection refused"), "{}", json.text);
    }

    #[test]
    fn a_program_gets_no_list_that_lacks_something() {
        assert!(complete(&[]).is_ok());
        let lacks = complete(&["events: forbidden".to_owned(), "plans: 429".to_owned()]);
        let answer = of_content(
            lacks.map(|()| PageContent::Json(serde_json::json!([]))),
            &site(),
            &request(true),
            "",
        );
        assert_eq!(answer.status, StatusCode::BAD_GATEWAY);
        assert!(answer.text.contains("left out: events: forbidden; plans: 429"), "{}", answer.text);
    }

    #[test]
    fn a_path_that_is_not_served_is_no_object_that_does_not_exist() {
        let status = |code: u16| {
            let status = serde_json::json!({"status": "Failure", "code": code, "reason": "NotFound", "message": "x"});
            let refused = ClusterError::Refused(serde_json::from_value(status).unwrap());
            status_of(&anyhow::Error::new(refused).context("cannot list plans"))
        };
        assert_eq!(status(404), StatusCode::BAD_GATEWAY);
        assert_eq!(status(403), StatusCode::FORBIDDEN);
        assert_eq!(status(401), StatusCode::UNAUTHORIZED);
        assert_eq!(status(429), StatusCode::BAD_GATEWAY);
    }

    #[tokio::test]
    async fn a_kind_that_there_is_not_is_not_found() {
        let (cluster, _) = fake_cluster::with_objects(Vec::new()).await;
        let words = ["kustomisation".to_owned()];
        let error = kind_argument::targets(&cluster, &words).await.unwrap_err();
        let page = of_content(Err(error), &site(), &request(false), "");
        assert_eq!(page.status, StatusCode::NOT_FOUND);
        assert!(page.text.contains("did you mean `kustomization`?"), "{}", page.text);
    }

    #[test]
    fn an_object_that_does_not_exist_is_said_to_be_absent() {
        let absent = PageContent::Absent("Kustomization/apps/web does not exist".to_owned());
        let page = of_content(Ok(absent), &site(), &request(false), "");
        assert_eq!(page.status, StatusCode::NOT_FOUND);
        assert!(page.text.contains("Kustomization/apps/web does not exist"), "{}", page.text);
    }
}
