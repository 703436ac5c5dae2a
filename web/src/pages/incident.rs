//! The page of one Incident: what fails and why, which changes came before, which objects are affected, and who was notified.

use crds::windlass_notification::{Incident, IncidentNotification};
use jiff::Timestamp;
use maud::{Markup, html};
use objects::ObjectId;
use windlass_answers::audit::{self, ListedAudits, ended};
use windlass_answers::command_scope::shown;
use windlass_answers::incident_suspects::{IncidentSuspect, SUSPECT_PERIOD, suspects};
use windlass_answers::incidents::{first_line, silence, since};
use windlass_answers::kind_argument;

use super::incidents::{state_of, subject_of};
use super::{PageContent, PageRequest};
use crate::frame::{PagePart, PageParts};
use crate::page_data_reader::PageDataReader;
use crate::page_elements::{
    ObjectState, ago, message, object_link, pill, remarks, shape, subject, text,
};
use crate::route::{ObjectAddress, Route};
use crate::shell_line::shell_line;

/// How many operations that may have caused the Incident are listed.
const MAX_LISTED_SUSPECTS: usize = 20;

/// How many fields of an operation are named.
const MAX_NAMED_FIELDS: usize = 6;

/// Makes the page.
///
/// # Errors
/// The kind is not installed, the incident cannot be read, or the API server did not respond.
pub(super) async fn page(
    reader: &PageDataReader,
    request: &PageRequest,
    namespace: &str,
    name: &str,
) -> anyhow::Result<PageContent> {
    let read_at = Timestamp::now();
    let word = format!("incident/{namespace}/{name}");
    let target = kind_argument::one(&reader.site.cluster, &[word]).await?;
    let Some(object) = reader.site.cluster.get(&target.resource, namespace, name).await? else {
        let absent = kind_argument::absent(&reader.site, &target).await;
        return Ok(PageContent::Absent(absent.to_string()));
    };
    if request.wants_json {
        return Ok(PageContent::Json(shown(object).into_value()));
    }
    let place = ObjectAddress::of(&object.id());
    let asked = super::object::asked(reader, request, &target, &object, &place).await;
    let incident: Incident = serde_json::from_value(object.into_value())?;
    // Audits know only what windlass did, so changes by others are missing here.
    let audits = audit::find(&reader.site, "", None, None).await;
    let named = shell_line(&[&format!("incident/{name}"), "-n", namespace]);
    Ok(PageContent::Html(PageParts {
        route: Route::Incident { namespace: namespace.to_owned(), name: name.to_owned() },
        title: format!("Incident {name}"),
        command: format!("windlass get {named} -o json"),
        read_at,
        parts: parts(&incident, &audits, asked, read_at),
        renew_after: reader.record_renewal(),
        version: String::new(),
    }))
}

/// The parts of the page. `asked` are the message about the user's last action, and the forms.
fn parts(
    incident: &Incident,
    audits: &anyhow::Result<ListedAudits>,
    asked: [PagePart; 2],
    now: Timestamp,
) -> Vec<PagePart> {
    let left_out = match audits {
        Ok(found) => found.left_out.clone(),
        Err(_) => Vec::new(),
    };
    let [done, forms] = asked;
    vec![
        PagePart::whole("head", head(incident, now)),
        done,
        forms,
        PagePart::whole("remarks", remarks(&left_out)),
        PagePart::main("cause", cause(incident)),
        PagePart::main("suspects", suspect_list(incident, audits, now)),
        PagePart::side("affected", affected(incident)),
        PagePart::side("sent", notifications(incident, now)),
    ]
}

fn head(incident: &Incident, now: Timestamp) -> Markup {
    let status = incident.status.clone().unwrap_or_default();
    html! {
        div class="head" {
            h1 { (message(&first_line(incident))) (pill(state_of(incident))) }
            p {
                (object_link(&subject_of(incident)))
                " · fails for " (ago(since(incident), now))
                @if let Some(at) = &status.resolved_at { " · resolved " (ago(Some(at.0), now)) " ago" }
            }
            @if let Some(said) = silence(incident, now) { p { "It is " (message(&said)) } }
        }
    }
}

fn cause(incident: &Incident) -> Markup {
    let spec = &incident.spec;
    let now_said = incident.status.as_ref().and_then(|status| status.message.as_deref());
    html! {
        section class="panel" {
            header { h2 { "Cause" } span class="more" { (text(&spec.reason)) } }
            div class="cause" {
                h2 { (shape(state_of(incident))) " "
                    @if !spec.cause.object.is_empty() { (subject(&spec.cause.object)) ": " }
                    (message(&spec.cause.message))
                }
                @if !spec.cause.reason.is_empty() { p { span class="dim" { "Reason: " } (text(&spec.cause.reason)) } }
                @if let Some(said) = now_said.filter(|said| *said != spec.cause.message) {
                    div { span class="dim" { "It says now: " } (message(said)) }
                }
            }
        }
    }
}

fn suspect_list(
    incident: &Incident,
    audits: &anyhow::Result<ListedAudits>,
    now: Timestamp,
) -> Markup {
    html! {
        section class="panel" {
            header {
                h2 { "What changed before" }
                span class="more" { "in the " (SUSPECT_PERIOD.as_hours()) " hours before it began; nearest to the cause first" }
            }
            @match audits {
                Ok(found) => {
                    @let all = suspects(incident, &found.audits);
                    @if all.is_empty() && found.left_out.is_empty() {
                        p { "No operation that has an audit changed the cause, or an object that fails." }
                    }
                    @if all.is_empty() && !found.left_out.is_empty() { p { "Not known: audits may not be listed." } }
                    @for it in all.iter().take(MAX_LISTED_SUSPECTS) { (suspect(it, now)) }
                    @if all.len() > MAX_LISTED_SUSPECTS { p { (all.len() - MAX_LISTED_SUSPECTS) " more" } }
                },
                Err(error) => p { "Not known: " (message(&format!("{error:#}"))) },
            }
        }
    }
}

fn suspect(it: &IncidentSuspect<'_>, now: Timestamp) -> Markup {
    let spec = &it.audit.spec;
    let namespace = it.audit.metadata.namespace.as_deref().unwrap_or_default();
    let of = ObjectId::new(namespace, &spec.subject.name, &spec.subject.group, &spec.subject.kind);
    let versions = spec.causes.iter().filter_map(|it| it.version.as_deref());
    let versions: Vec<&str> = versions.collect();
    let fields = spec.changes.objects.iter().flat_map(|it| &it.fields);
    let fields: Vec<&String> = fields.take(MAX_NAMED_FIELDS).collect();
    html! {
        div class="item" {
            (shape(ObjectState::Unknown))
            strong { (spec.operation.as_str()) " of " (object_link(&of)) }
            (ago(ended(it.audit), now))
            p { (it.reason.words()) @if !versions.is_empty() { " · " (text(&versions.join(", "))) } }
            @if !fields.is_empty() {
                p class="mono" { @for (at, field) in fields.iter().enumerate() { @if at > 0 { ", " } (text(field)) } }
            }
        }
    }
}

fn affected(incident: &Incident) -> Markup {
    let affected = incident.status.clone().unwrap_or_default().affected.unwrap_or_default();
    let named = i64::try_from(affected.objects.len()).unwrap_or(i64::MAX);
    html! {
        section class="panel" {
            header { h2 { "Affects" } span class="more" { (affected.count) @if affected.count == 1 { " object" } @else { " objects" } } }
            @if affected.count == 0 { p { "No other object, as far as is known." } }
            @for object in &affected.objects { div class="item" { (shape(ObjectState::Waiting)) div { (subject(object)) } } }
            @if affected.count > named { p { (affected.count - named) " more" } }
        }
    }
}

fn notifications(incident: &Incident, now: Timestamp) -> Markup {
    let all = incident.status.clone().unwrap_or_default().notifications;
    html! {
        section class="panel" {
            header { h2 { "Sent to" } }
            @if all.is_empty() { p { "It was sent to no service." } }
            @for it in &all { (notification(it, now)) }
        }
    }
}

fn notification(it: &IncidentNotification, now: Timestamp) -> Markup {
    html! {
        div class="item" {
            (shape(ObjectState::Unknown))
            strong { (text(&it.provider)) }
            (ago(it.at.as_ref().map(|at| at.0), now))
            p { (it.state.as_str()) " · Alert " (text(&it.namespace)) "/" (text(&it.alert)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use crds::windlass_release::ReleaseAudit;
    use serde_json::json;

    use super::*;
    use crate::hostile_strings::assert_text_only;

    fn incident() -> Incident {
        serde_json::from_value(json!({
            "metadata": {"name": "a", "namespace": "apps"},
            "spec": {"subject": {"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "name": "web"},
                "reason": "Health", "cause": {"object": "Deployment/apps/<b>", "reason": "X", "message": "<script>\u{202e}"}},
            "status": {"state": "Open", "since": "2026-01-01T00:00:30Z", "message": "now <i>",
                "affected": {"count": 3, "objects": ["Kustomization/apps/\"><img>"]},
                "notifications": [{"namespace": "apps", "alert": "al<u>", "provider": "pager", "state": "Opened"}]},
        }))
        .unwrap()
    }

    fn audit() -> ReleaseAudit {
        serde_json::from_value(json!({
            "metadata": {"name": "x", "namespace": "apps"},
            "spec": {"subject": {"kind": "Kustomization", "name": "web", "group": "kustomize.toolkit.fluxcd.io"},
                "operation": "Apply", "outcome": "Failed", "started": "2026-01-01T00:00:00Z", "ended": "2026-01-01T00:00:10Z",
                "changes": {"objects": [{"change": "Changed", "kind": "Deployment", "namespace": "apps", "name": "<b>",
                    "fields": ["/spec/<image>"]}]}},
        }))
        .unwrap()
    }

    fn html(audits: anyhow::Result<ListedAudits>) -> String {
        let asked = ["done", "actions"].map(|id| PagePart::whole(id, html! {}));
        let parts = parts(&incident(), &audits, asked, "2026-01-01T00:01:00Z".parse().unwrap());
        parts.into_iter().map(|part| part.content.into_string()).collect()
    }

    #[test]
    fn an_incident_says_what_changed_before_and_everything_is_escaped() {
        let html = html(Ok(ListedAudits { audits: vec![audit()], left_out: Vec::new() }));
        assert!(html.contains("changed the object that is the cause"), "{html}");
        assert!(html.contains("<p class=\"mono\"><bdi>/spec/&lt;image&gt;</bdi></p>"), "{html}");
        assert!(html.contains("<a href=\"/o/ks/apps/web\">"), "{html}");
        assert!(html.contains("<bdi>&lt;script&gt;\\u{202e}</bdi>"), "{html}");
        assert!(html.contains("It says now: </span><bdi>now &lt;i&gt;</bdi>"), "{html}");
        assert!(html.contains("<p>2 more</p>") && html.contains("al&lt;u&gt;"), "{html}");
        for hostile in ["<script", "<img", "<i>", "<b>"] {
            assert!(!html.contains(hostile), "{hostile}: {html}");
        }
    }

    #[test]
    fn hostile_strings_are_text_only() {
        let now = "2026-01-01T00:01:00Z".parse().unwrap();
        assert_text_only(|hostile| {
            let incident = json!({
                "metadata": {"name": "a", "namespace": "apps"},
                "spec": {"subject": {"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "name": hostile},
                    "reason": "Health",
                    "cause": {"object": format!("Deployment/apps/{hostile}"), "reason": hostile, "message": hostile}},
                "status": {"state": "Open", "since": "2026-01-01T00:00:30Z", "message": hostile,
                    "affected": {"count": 3, "objects": [format!("Kustomization/apps/{hostile}")]},
                    "notifications": [{"namespace": "apps", "alert": hostile, "provider": hostile, "state": "Opened"}],
                    "silence": {"user": hostile, "reason": hostile, "at": "2026-01-01T00:00:40Z", "until": "2026-01-01T02:00:00Z"}},
            });
            let incident: Incident = serde_json::from_value(incident).unwrap();
            let mut audit = serde_json::to_value(audit()).unwrap();
            audit["spec"]["subject"]["name"] = hostile.into();
            audit["spec"]["changes"]["objects"][0]["fields"] = json!([hostile]);
            let audits = vec![serde_json::from_value(audit).unwrap()];
            let found = Ok(ListedAudits { audits, left_out: vec![hostile.to_owned()] });
            let asked = ["done", "actions"].map(|id| PagePart::whole(id, html! {}));
            let parts = parts(&incident, &found, asked, now);
            parts.into_iter().map(|part| part.content.into_string()).collect()
        });
    }

    #[test]
    fn an_incident_says_who_silenced_it_and_why_until_that_ends() {
        let mut silenced = incident();
        let silence = json!({"user": "alice<b>", "reason": "known <i>",
            "at": "2026-01-01T00:00:40Z", "until": "2026-01-01T02:00:00Z"});
        silenced.status.as_mut().unwrap().silence = serde_json::from_value(silence).unwrap();
        let html = |now: &str| head(&silenced, now.parse().unwrap()).into_string();
        let said = "silenced by alice&lt;b&gt; until 2026-01-01T02:00:00Z, when the silence ends by itself: known \
            &lt;i&gt;</bdi></p>";
        assert!(html("2026-01-01T00:01:00Z").contains(said), "{}", html("2026-01-01T00:01:00Z"));
        assert!(!html("2026-01-01T02:00:00Z").contains("silenced"));
    }

    #[test]
    fn that_nothing_changed_is_said_only_where_all_audits_were_read() {
        let none = "No operation that has an audit";
        assert!(html(Ok(ListedAudits::default())).contains(none));
        let left_out = vec!["audits: forbidden".to_owned()];
        let hidden = html(Ok(ListedAudits { audits: Vec::new(), left_out }));
        assert!(!hidden.contains(none) && hidden.contains("audits may not be listed"), "{hidden}");
        let failed = html(Err(anyhow::anyhow!("timed out <b>")));
        assert!(!failed.contains(none) && failed.contains("timed out &lt;b&gt;"), "{failed}");
    }
}
