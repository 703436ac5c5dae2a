//! The page of audits: what windlass did to releases and Kustomizations, and why. The newest audits come first.

use crds::windlass_release::{AuditOutcome, AuditRevision, ReleaseAudit};
use jiff::Timestamp;
use maud::{Markup, html};
use windlass_answers::audit::{
    self, AuditedObjectName, ListedAudits, ended, parse_subject, to_list,
};
use windlass_answers::object_row::short;

use super::{PageContent, PageRequest, ROWS_PER_PAGE, complete};
use crate::frame::{PagePart, PageParts};
use crate::href::Href;
use crate::page_data_reader::PageDataReader;
use crate::page_elements::{ObjectState, ago, message, remarks, shape, subject, text};
use crate::page_query::PageQuery;
use crate::route::Route;
use crate::shell_line::shell_line;

/// Makes the page.
///
/// # Errors
/// The kind is not installed, or the API server did not respond.
pub(super) async fn page(
    reader: &PageDataReader,
    request: &PageRequest,
) -> anyhow::Result<PageContent> {
    let read_at = Timestamp::now();
    let of = match about(&request.query) {
        Ok(of) => of,
        // The address names an object that cannot exist. windlass did not ask the API server.
        Err(text) => return Ok(PageContent::Absent(text)),
    };
    let found = audit::find(&reader.site, "", of.as_ref(), None).await?;
    if request.wants_json {
        complete(&found.left_out)?;
        return Ok(PageContent::Json(to_list(&found.audits)?));
    }
    let named = of.map(|it| format!("{}/{}", it.kind.to_lowercase(), it.name));
    let named = named.map(|it| format!(" {}", shell_line(&[&it]))).unwrap_or_default();
    Ok(PageContent::Html(PageParts {
        route: Route::Audits,
        title: "Audits".to_owned(),
        command: format!("windlass audit{named} {}", reader.scope_flag()),
        read_at,
        parts: vec![PagePart::whole("audits", content(&found, &request.query, read_at))],
        renew_after: reader.record_renewal(),
        version: String::new(),
    }))
}

/// The object whose audits the user wants to see.
fn about(query: &PageQuery) -> Result<Option<AuditedObjectName>, String> {
    match query.get("for") {
        "" => Ok(None),
        named => parse_subject(named).map(Some),
    }
}

fn content(found: &ListedAudits, query: &PageQuery, now: Timestamp) -> Markup {
    let first = (query.page() - 1) * ROWS_PER_PAGE;
    let all = found.audits.len();
    let shown = found.audits.iter().rev().skip(first).take(ROWS_PER_PAGE);
    html! {
        (remarks(&found.left_out))
        form class="filters" action="/audits" method="get" {
            label { "Of one object" input name="for" maxlength="300" placeholder="hr/web" value=(query.get("for")); }
            button class="btn" type="submit" { "Show" }
        }
        section class="panel" {
            header { h2 { (all) " operations" } }
            @if found.audits.is_empty() && found.left_out.is_empty() { p { "Nothing was done that has an audit." } }
            @for audit in shown { (item(audit, now)) }
            @if all > first + ROWS_PER_PAGE {
                div class="pages" { a rel="next" href=(next(query)) { "older ›" } }
            }
        }
    }
}

fn next(query: &PageQuery) -> Href {
    let page = (query.page() + 1).to_string();
    Href::with_query(&Route::Audits, &[("for", query.get("for")), ("page", page.as_str())])
}

fn item(audit: &ReleaseAudit, now: Timestamp) -> Markup {
    let spec = &audit.spec;
    let state = match spec.outcome {
        AuditOutcome::Succeeded => ObjectState::Ready,
        AuditOutcome::Failed => ObjectState::Failing,
        _ => ObjectState::Progressing,
    };
    let namespace = audit.metadata.namespace.as_deref().unwrap_or_default();
    let about = format!("{}/{namespace}/{}", spec.subject.kind, spec.subject.name);
    let changes = &spec.changes;
    let states = [spec.from.as_ref(), spec.to.as_ref()].map(revision);
    let [from, to] = states;
    html! {
        div class="item" {
            (shape(state))
            strong { (spec.operation.as_str()) " of " (subject(&about)) " " (spec.outcome.as_str()) }
            (ago(ended(audit), now))
            // The audit of a suspension has no revisions.
            @if spec.from.is_some() || spec.to.is_some() {
                p class="mono" { (text(&from)) " → " (text(&to)) }
            }
            p {
                "+" (changes.added) " ~" (changes.changed) " -" (changes.removed)
                @if changes.partial { " (not all counted)" }
                @if let Some(duration) = &spec.duration { " · took " (text(duration)) }
                @for cause in &spec.causes {
                    " · " (cause.type_.as_str())
                    @if let Some(object) = &cause.object { " " (text(object)) }
                    // The user's name comes from an annotation. Everyone who may write the annotation can put any name there.
                    @if let Some(user) = &cause.claimed_user { " by " (text(user)) " (claimed)" }
                    @if let Some(reason) = &cause.reason { ": " (text(reason)) }
                }
            }
            @if let Some(said) = &spec.message { div class="note" { (message(said)) } }
        }
    }
}

fn revision(of: Option<&AuditRevision>) -> String {
    let Some(of) = of else { return "nothing".to_owned() };
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    match (text(&of.revision), text(&of.chart), text(&of.chart_version)) {
        (revision, chart, _) if chart.is_empty() => short(&revision),
        (revision, chart, version) => format!("{revision}:{chart}@{version}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn audit(reason: &str) -> ReleaseAudit {
        serde_json::from_value(json!({
            "metadata": {"name": "web-1", "namespace": "apps"},
            "spec": {
                "subject": {"kind": "HelmRelease", "name": "web"},
                "operation": "Upgrade", "outcome": "Failed", "ended": "2026-11-24T11:00:00Z", "duration": "1.5s",
                "from": {"revision": "1", "chart": "web", "chartVersion": "1.0.0"},
                "causes": [{"type": "Request", "claimedUser": "<alice>", "reason": reason}],
                "changes": {"added": 1, "changed": 2, "removed": 0},
            },
        }))
        .unwrap()
    }

    #[test]
    fn an_audit_of_a_suspension_names_no_revisions() {
        let mut suspension = audit("overloaded");
        suspension.spec.from = None;
        let html = item(&suspension, "2026-11-24T12:00:00Z".parse().unwrap()).into_string();
        assert!(!html.contains("nothing"), "{html}");
    }

    #[test]
    fn an_audit_says_what_was_done_why_and_that_a_name_is_only_claimed() {
        let now = "2026-11-24T12:00:00Z".parse().unwrap();
        let html = item(&audit("<script>alert(1)</script>\u{202e}"), now).into_string();
        assert!(html.contains("<strong>Upgrade of <a href=\"/o/helmrelease/apps/web\">"), "{html}");
        assert!(html.contains("<bdi>1:web@1.0.0</bdi> → <bdi>nothing</bdi>"), "{html}");
        let cause = " · Request by <bdi>&lt;alice&gt;</bdi> (claimed): <bdi>&lt;script&gt;alert(1)&lt;/script&gt;\\u{202e}</bdi>";
        assert!(html.contains(cause), "{html}");
    }

    #[test]
    fn pages_are_the_newest_first_and_bounded() {
        let audits = (0..150).map(|at| audit(&format!("reason-{at}-"))).collect();
        let found = ListedAudits { audits, left_out: Vec::new() };
        let now = "2026-11-24T12:00:00Z".parse().unwrap();
        let html = |query: &str| content(&found, &PageQuery::parse(query), now).into_string();
        let first = html("");
        assert!(first.contains("reason-149-") && !first.contains("reason-49-"), "{}", first.len());
        assert!(first.contains("<a rel=\"next\" href=\"/audits?page=2\">"), "{}", first.len());
        let second = html("page=2");
        assert!(second.contains("reason-49-") && !second.contains("rel=\"next\""));
        assert!(about(&PageQuery::parse("for=pod/web")).is_err());
    }
}
