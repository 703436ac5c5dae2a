//! The page of Incidents: which failures are open and since when, which objects are affected, who was notified, and who silenced
//! them.

use crds::windlass_notification::{Incident, IncidentState, IncidentSubject};
use jiff::Timestamp;
use maud::{Markup, html};
use objects::{Gvk, ObjectId};
use windlass_answers::incidents::{
    ListedIncidents, find, first_line, sent, silence, since, to_list,
};

use super::{PageContent, PageRequest, ROWS_PER_PAGE, complete};
use crate::frame::{PagePart, PageParts};
use crate::href::Href;
use crate::page_data_reader::PageDataReader;
use crate::page_elements::{ObjectState, ago, message, object_link, remarks, shape, subject, text};
use crate::route::Route;

/// How many affected objects are named.
const MAX_NAMED_OBJECTS: usize = 8;

/// Makes the page.
///
/// # Errors
/// The kind is not installed, or the API server did not respond.
pub(super) async fn page(
    reader: &PageDataReader,
    request: &PageRequest,
) -> anyhow::Result<PageContent> {
    let read_at = Timestamp::now();
    let is_all = request.query.get("all") == "true";
    let mut found = find(&reader.site, "", is_all).await?;
    if request.wants_json {
        complete(&found.summary.left_out)?;
        return Ok(PageContent::Json(to_list(&found.incidents)?));
    }
    // Failures without an Incident are found by reading the objects themselves.
    found.summary.read(&reader.site).await?;
    let flag = if is_all { " --all" } else { "" };
    Ok(PageContent::Html(PageParts {
        route: Route::Incidents,
        title: "Incidents".to_owned(),
        command: format!("windlass incidents {}{flag}", reader.scope_flag()),
        read_at,
        parts: vec![PagePart::whole(
            "incidents",
            content(&found, is_all, request.query.page(), read_at),
        )],
        renew_after: reader.record_renewal(),
        version: String::new(),
    }))
}

fn content(found: &ListedIncidents, is_all: bool, page: usize, now: Timestamp) -> Markup {
    let said: Vec<String> =
        found.summary.lines(&found.incidents, is_all).into_iter().map(|line| line.text).collect();
    let first = (page - 1) * ROWS_PER_PAGE;
    let shown = found.incidents.iter().skip(first).take(ROWS_PER_PAGE);
    let all = found.incidents.len();
    html! {
        (remarks(&found.summary.left_out))
        section class="panel" {
            header {
                h2 { (all) @if is_all { " incidents" } @else { " open incidents" } }
                @if is_all { a class="more" href=(Href::inside(&Route::Incidents)) { "only open ones" } }
                @else { a class="more" href=(Href::with_query(&Route::Incidents, &[("all", "true")])) { "also resolved ones" } }
            }
            @for incident in shown { (item(incident, now)) }
            @if all > first + ROWS_PER_PAGE {
                div class="pages" {
                    a rel="next" href=(next(is_all, page)) { "next ›" }
                }
            }
        }
        div class="empty" { @for line in &said { p { (text(line)) } } }
    }
}

fn next(is_all: bool, page: usize) -> Href {
    let page = (page + 1).to_string();
    let all = if is_all { "true" } else { "" };
    Href::with_query(&Route::Incidents, &[("all", all), ("page", page.as_str())])
}

/// The object that fails.
pub(super) fn subject_of(incident: &Incident) -> ObjectId {
    let IncidentSubject { api_version, kind, name, .. } = &incident.spec.subject;
    let namespace = incident.metadata.namespace.as_deref().unwrap_or_default();
    ObjectId::new(namespace, name, &Gvk::new(api_version, kind).group, kind)
}

/// The state of an Incident, as a shape on the page.
pub(super) fn state_of(incident: &Incident) -> ObjectState {
    match windlass_answers::incidents::state(incident) {
        Some(IncidentState::Open) => ObjectState::Failing,
        Some(IncidentState::Resolved) => ObjectState::Ready,
        None => ObjectState::Unknown,
    }
}

fn item(incident: &Incident, now: Timestamp) -> Markup {
    let spec = &incident.spec;
    let status = incident.status.clone().unwrap_or_default();
    let namespace = incident.metadata.namespace.as_deref().unwrap_or_default();
    let state = state_of(incident);
    let about = subject_of(incident);
    let route = Route::Incident {
        namespace: namespace.to_owned(),
        name: incident.metadata.name.clone().unwrap_or_default(),
    };
    let affected = status.affected.unwrap_or_default();
    let named = affected.objects.len().min(MAX_NAMED_OBJECTS);
    let sent = sent(incident);
    html! {
        div class="item" {
            (shape(state))
            strong { (message(&first_line(incident))) }
            (ago(since(incident), now))
            p {
                (object_link(&about)) " · " (text(&spec.cause.reason))
                @if !spec.cause.object.is_empty() && spec.cause.object != about.subject() { " · cause " (subject(&spec.cause.object)) }
                @if !sent.is_empty() { " · sent to " (text(&sent)) }
                " · " a href=(Href::inside(&route)) { "what changed before" }
            }
            @if let Some(said) = silence(incident, now) { p { "It is " (message(&said)) } }
            @if affected.count > 0 {
                p {
                    "affects " (affected.count) ": "
                    @for (at, object) in affected.objects.iter().take(MAX_NAMED_OBJECTS).enumerate() {
                        @if at > 0 { ", " } (subject(object))
                    }
                    @if affected.count > i64::try_from(named).unwrap_or(i64::MAX) { " and more" }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use windlass_answers::incidents::ObjectReadinessSummary;

    use super::*;
    use crate::hostile_strings::assert_text_only;

    fn incident(message: &str) -> Incident {
        serde_json::from_value(json!({
            "metadata": {"name": "gitrepository-shop-1", "namespace": "apps"},
            "spec": {
                "subject": {"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "name": "shop"},
                "reason": "Credentials",
                "cause": {"object": "GitRepository/apps/shop", "reason": "AuthenticationFailed", "message": message},
            },
            "status": {"state": "Open", "openedAt": "2026-11-24T11:00:00Z", "message": message,
                "affected": {"count": 200, "objects": ["Kustomization/apps/shop"]},
                "notifications": [{"namespace": "apps", "alert": "a", "provider": "pager<b>", "state": "Opened"}]},
        }))
        .unwrap()
    }

    #[test]
    fn an_incident_says_what_fails_what_it_affects_and_who_got_it() {
        let now = "2026-11-24T12:00:00Z".parse().unwrap();
        let html = item(&incident("<script>alert(1)</script>\u{202e}"), now).into_string();
        let message = "<strong><bdi>&lt;script&gt;alert(1)&lt;/script&gt;\\u{202e}</bdi></strong>";
        assert!(html.contains(message), "{html}");
        assert!(html.contains("sent to <bdi>pager&lt;b&gt;</bdi>"), "{html}");
        assert!(html.contains("affects 200: <a href=\"/o/kustomization/apps/shop\">"), "{html}");
        assert!(html.contains(" and more"), "{html}");
        assert!(!html.contains("· cause"), "the cause is the subject itself");
    }

    #[test]
    fn hostile_strings_are_text_only() {
        let now = "2026-11-24T12:00:00Z".parse().unwrap();
        assert_text_only(|hostile| {
            let mut incident = serde_json::to_value(incident(hostile)).unwrap();
            incident["spec"]["cause"]["object"] = format!("Pod/apps/{hostile}").into();
            incident["spec"]["cause"]["reason"] = hostile.into();
            incident["status"]["affected"]["objects"] = json!([hostile]);
            incident["status"]["notifications"][0]["provider"] = hostile.into();
            incident["status"]["silence"] = json!({"user": hostile, "reason": hostile,
                "at": "2026-11-24T11:30:00Z", "until": "2026-11-24T13:00:00Z"});
            item(&serde_json::from_value(incident).unwrap(), now).into_string()
        });
    }

    #[test]
    fn the_list_says_who_silenced_an_incident_and_why_until_that_ends() {
        let mut silenced = incident("rejected");
        let silence = json!({"user": "alice<b>", "reason": "known <i>\u{202e}",
            "at": "2026-11-24T11:30:00Z", "until": "2026-11-24T13:00:00Z"});
        silenced.status.as_mut().unwrap().silence = serde_json::from_value(silence).unwrap();
        let incidents = vec![silenced, incident("other")];
        let found = ListedIncidents { incidents, summary: ObjectReadinessSummary::default() };
        let html = |now: &str| content(&found, false, 1, now.parse().unwrap()).into_string();
        let said = "<p>It is <bdi>silenced by alice&lt;b&gt; until 2026-11-24T13:00:00Z, when the silence ends by itself: \
            known &lt;i&gt;\\u{202e}</bdi></p>";
        let during = html("2026-11-24T12:00:00Z");
        assert_eq!(during.matches(said).count(), 1, "{during}");
        assert!(!html("2026-11-24T13:00:00Z").contains("silenced"));
    }

    #[test]
    fn incidents_that_may_not_be_listed_are_not_taken_for_none() {
        let mut summary = ObjectReadinessSummary::default();
        summary.left_out.push("incidents: forbidden <b>".to_owned());
        let found = ListedIncidents { incidents: Vec::new(), summary };
        let html = content(&found, false, 1, "2026-11-24T12:00:00Z".parse().unwrap()).into_string();
        assert!(html.contains("incidents: forbidden &lt;b&gt;"), "{html}");
        assert!(!html.contains("no object is failing"), "{html}");
    }
}
