//! The tab that explains the state of an object: the cause in a sentence, the path to the cause, and advice.

use cause::{
    CauseAdvice, CauseStep, ExaminedObjectState, RootCause, StateExplanation, object_references,
};
use jiff::Timestamp;
use maud::{Markup, html};
use objects::{Object, ObjectId, clean_line};
use reconcile::condition_reason;
use serde_json::Value;
use windlass_answers::trace;
use windlass_answers::why::{ImageTagReport, ObjectExplanation};

use crate::frame::PagePart;
use crate::href::Href;
use crate::page_elements::{
    ObjectState, ago, lines, message, object_link, remarks, shape, subject, text,
};

/// How many tags of an image are listed.
const MAX_LISTED_TAGS: usize = 50;

/// How many unread objects are named.
const MAX_UNREAD_OBJECTS: usize = 20;

/// How many dependencies are named for which the object waits.
const MAX_AWAITED_DEPENDENCIES: usize = 8;

/// How many conditions are listed.
const MAX_CONDITIONS: usize = 30;

/// The parts of the tab.
pub(super) fn parts(found: &ObjectExplanation, object: &Object, now: Timestamp) -> Vec<PagePart> {
    let ObjectExplanation { why, tags } = found;
    let tags = tags.as_ref().map(image_tags);
    vec![
        PagePart::main("cause", html! { section class="panel" { (cause(why, object, now)) } }),
        PagePart::main("remarks", remarks(&why.remarks)),
        PagePart::main("tags", html! { @if let Some(tags) = tags { (tags) } }),
        PagePart::main("conditions", conditions(object, &why.line(), now)),
        PagePart::side(
            "facts",
            html! { section class="panel" { header { h2 { "Facts" } } (facts(object, now)) } },
        ),
    ]
}

/// The state of the explanation, as a shape on the page.
fn state(why: &StateExplanation) -> ObjectState {
    match why.state {
        ExaminedObjectState::Ready if why.cause.is_none() => ObjectState::Ready,
        ExaminedObjectState::Suspended => ObjectState::Suspended,
        ExaminedObjectState::Ready | ExaminedObjectState::Progressing => ObjectState::Progressing,
        ExaminedObjectState::Stale | ExaminedObjectState::Hidden => ObjectState::Unknown,
        ExaminedObjectState::Degraded
        | ExaminedObjectState::NotReady
        | ExaminedObjectState::Missing => ObjectState::Failing,
    }
}

/// The dependencies for which the object waits: those that lead to the cause, or all if none does.
fn awaited_dependencies(why: &StateExplanation, object: &Object) -> Vec<ObjectId> {
    let is_of_state =
        matches!(why.state, ExaminedObjectState::NotReady | ExaminedObjectState::Progressing);
    let waits = cause::condition(object, "Ready")
        .is_some_and(|said| said.reason == condition_reason::DEPENDENCY_NOT_READY.as_str());
    if !is_of_state || !waits {
        return Vec::new();
    }
    let dependencies = object_references::dependencies(object);
    let leads_to_cause = |id: &ObjectId| {
        why.path.iter().any(|step| step.object == *id)
            || why.cause.as_ref().is_some_and(|cause| cause.object == *id)
    };
    let named = dependencies.iter().flat_map(|it| [Some(&it.object), it.otherwise.as_ref()]);
    let leading: Vec<ObjectId> = named.flatten().filter(|id| leads_to_cause(id)).cloned().collect();
    if leading.is_empty() {
        return dependencies.into_iter().map(|it| it.object).collect();
    }
    leading
}

/// Says that the object waits, and for which of its dependencies. Empty if it does not wait.
fn waiting(awaited: &[ObjectId]) -> Markup {
    let more = awaited.len().saturating_sub(MAX_AWAITED_DEPENDENCIES);
    html! {
        @if !awaited.is_empty() {
            p { "It waits for what it depends on: "
                @for (at, id) in awaited.iter().take(MAX_AWAITED_DEPENDENCIES).enumerate() {
                    @if at > 0 { ", " } (object_link(id))
                }
                @if more > 0 { " and " (more) " more" }
            }
        }
    }
}

fn cause(why: &StateExplanation, object: &Object, now: Timestamp) -> Markup {
    let awaited = awaited_dependencies(why, object);
    let state = if awaited.is_empty() { state(why) } else { ObjectState::Waiting };
    html! {
        div class="cause" {
            h2 { (shape(state)) " " (message(&why.line())) }
            (waiting(&awaited))
            // A path with one step would only repeat the first line.
            @if why.path.len() > 1 {
                ol class="chain" { @for step in &why.path { (chain_step(step, now)) } }
            }
            @if let Some(cause) = &why.cause { (details(cause, now)) }
            @if let Some(next) = &why.next { p { span class="dim" { "Next: " } (text(next)) } }
            // On a phone, the style sheet puts this before the path.
            @if let Some(advice) = why.advice.as_ref().filter(|_| why.is_finding()) { div class="first" { (advised(advice)) } }
            @if let Some(second) = &why.second {
                h2 { "Besides: " (message(&second.cause.line(&why.object))) }
                (details(&second.cause, now))
                @if let Some(advice) = &second.advice { (advised(advice)) }
            }
            @if !why.unread.is_empty() {
                p { "Not read, so that it may be otherwise: "
                    @for (at, named) in why.unread.iter().take(MAX_UNREAD_OBJECTS).enumerate() {
                        @if at > 0 { ", " } (subject(named))
                    }
                    @if why.unread.len() > MAX_UNREAD_OBJECTS { " and " (why.unread.len() - MAX_UNREAD_OBJECTS) " more" }
                }
            }
        }
    }
}

fn chain_step(step: &CauseStep, now: Timestamp) -> Markup {
    html! {
        li {
            (shape(ObjectState::Failing))
            div { b { (object_link(&step.object)) } " " (message(&step.text)) }
            (ago(step.since, now))
        }
    }
}

/// Details of the cause: since when it exists, what a container printed, and the newest event.
fn details(cause: &RootCause, now: Timestamp) -> Markup {
    let event = cause.event.as_ref().filter(|event| !event.contains(&cause.text));
    html! {
        @if cause.since.is_some() { p { span class="dim" { "Since " } (ago(cause.since, now)) } }
        @if !cause.lines.is_empty() { p class="dim" { "Last lines of the container's log:" } pre class="log" { bdi { (lines(&cause.lines.join("\n"))) } } }
        @if let Some(event) = event { div { span class="dim" { "Event: " } (message(event)) } }
    }
}

fn advised(advice: &CauseAdvice) -> Markup {
    html! {
        div class="advice" {
            (message(&advice.text))
            @if let Some(command) = &advice.command { code { bdi { (lines(command)) } } }
        }
    }
}

fn image_tags(tags: &ImageTagReport) -> Markup {
    let more = tags.tags.len().saturating_sub(MAX_LISTED_TAGS);
    html! {
        section class="panel" {
            header {
                h2 { "Tags that are not chosen" }
                @if let Some(chosen) = &tags.chosen { span class="more" { "chosen: " (text(chosen)) } }
            }
            table { tbody { @for tag in tags.tags.iter().take(MAX_LISTED_TAGS) {
                tr { td class="mono" { (text(&tag.tag)) } td class="grow" { (message(&tag.message)) } }
            } } }
            @if more > 0 { p { (more) " more" } }
            @if tags.unlisted > 0 { p { (tags.unlisted) " more are not in the status of " (subject(&tags.image_repository)) } }
            @for remark in &tags.remarks { div class="empty" { (message(remark)) } }
        }
    }
}

/// The conditions of an object. A message that the headline contains is not printed again.
fn conditions(object: &Object, headline: &str, now: Timestamp) -> Markup {
    let all = object.get("status").and_then(|it| it["conditions"].as_array());
    let of = |condition: &Value, key: &str| condition[key].as_str().unwrap_or_default().to_owned();
    let headline = on_one_line(headline);
    let is_repeated = |said: &str| !said.trim().is_empty() && headline.contains(&on_one_line(said));
    html! {
        @if let Some(all) = all.filter(|all| !all.is_empty()) {
            section class="panel" {
                header { h2 { "Conditions" } }
                div class="wide" { table class="list" { tbody {
                    @for condition in all.iter().take(MAX_CONDITIONS) {
                        tr {
                            td { (text(&of(condition, "type"))) "=" (text(&of(condition, "status"))) }
                            td { (text(&of(condition, "reason"))) }
                            td class="grow" {
                                @if is_repeated(&of(condition, "message")) { span class="dim" { "as said above" } }
                                @else { (message(&of(condition, "message"))) }
                            }
                            td class="r" { (ago(of(condition, "lastTransitionTime").parse().ok(), now)) }
                        }
                    }
                } } }
            }
        }
    }
}

/// A text with single spaces, as headlines have it.
fn on_one_line(text: &str) -> String {
    clean_line(&text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// The revision that an object applied: that of a source, or the version of the deployed chart. Empty if it applied none.
fn applied_revision(status: &Value) -> &str {
    let history = status["history"].as_array();
    let deployed = history.into_iter().flatten().find(|release| release["status"] == "deployed");
    let revision = status["lastAppliedRevision"].as_str();
    let version = || deployed.and_then(|release| release["chartVersion"].as_str());
    revision.or_else(version).unwrap_or_default()
}

/// Facts about an object, such as its suspension and its source.
fn facts(object: &Object, now: Timestamp) -> Markup {
    let dependencies = object_references::dependencies(object).into_iter().map(|it| it.object);
    let dependencies: Vec<ObjectId> = dependencies.collect();
    let sources = object_references::sources(object);
    let applier: Vec<ObjectId> = object_references::applier(object).into_iter().collect();
    let applied = object_references::applied(object).len();
    let spec = |key: &str| {
        let value = object.get("spec").and_then(|spec| spec[key].as_str());
        value.unwrap_or_default().to_owned()
    };
    let status = object.get("status").unwrap_or(&Value::Null);
    let fetched = status["artifact"]["revision"].as_str().unwrap_or_default();
    // After the object is resumed, the annotations with the owner and the reason of the suspension remain.
    let hold = cause::suspension(object, now).flatten();
    let hold = hold.map(|hold| hold.to_string()).unwrap_or_default();
    html! {
        dl class="facts" {
            (linked("Source", &sources))
            (linked("Applied by", &applier))
            (linked("Depends on", &dependencies))
            (fact("Applied revision", applied_revision(status)))
            (fact("Revision", fetched))
            (fact("Interval", &spec("interval")))
            (fact("Path", &spec("path")))
            (address(&spec("url")))
            (fact("Hold", &hold))
            @if applied > 0 { div { dt { "Applied" } dd { (applied) @if applied == 1 { " object" } @else { " objects" } } } }
        }
    }
}

fn fact(title: &str, value: &str) -> Markup {
    html! { @if !value.is_empty() { div { dt { (title) } dd { (message(value)) } } } }
}

/// The address of a source without secret parts. It is a link if it is a web address.
fn address(url: &str) -> Markup {
    let link = Href::outside(url);
    let shown = trace::address(url, "");
    html! {
        @if !url.is_empty() {
            div { dt { "Address" } dd {
                @match link {
                    Some(link) => a href=(link) rel="noreferrer noopener" { (text(&shown)) },
                    None => (text(&shown)),
                }
            } }
        }
    }
}

fn linked(title: &str, ids: &[ObjectId]) -> Markup {
    html! {
        @if !ids.is_empty() {
            div { dt { (title) } dd { @for id in ids { div { (object_link(id)) } } } }
        }
    }
}

#[cfg(test)]
mod tests {
    use cause::CauseKind;
    use serde_json::json;
    use windlass_answers::why::UnchosenTag;

    use super::*;
    use crate::hostile_strings::assert_text_only;

    fn html(spec: &Value, printed: &str) -> String {
        let id = |kind: &str, name: &str| ObjectId::new("apps", name, "", kind);
        let since = Some("2026-11-24T11:55:00Z".parse().unwrap());
        let step =
            |object: ObjectId, text: &str| CauseStep { object, since, text: text.to_owned() };
        let why = StateExplanation {
            object: id("Kustomization", "shop"),
            state: ExaminedObjectState::NotReady,
            message: "timeout".to_owned(),
            cause: Some(RootCause {
                object: id("Pod", "web-1"),
                problem: CauseKind::Container,
                text: "container 'app' <b>ends</b>".to_owned(),
                since,
                lines: vec![printed.to_owned()],
                event: None,
            }),
            path: vec![
                step(id("Kustomization", "shop"), "HealthCheckFailed"),
                step(id("Pod", "web-1"), "ends"),
            ],
            next: None,
            advice: Some(CauseAdvice {
                text: "read <it>".to_owned(),
                command: Some("kubectl -n apps logs web-1 && <x>".to_owned()),
            }),
            second: None,
            unread: Vec::new(),
            remarks: vec!["Secret/apps/db cannot be read: <forbidden>".to_owned()],
        };
        let object = json!({"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": {"name": "shop", "namespace": "apps"}, "spec": spec});
        let object = Object::new(object).unwrap();
        let found = ObjectExplanation { why, tags: None };
        let parts = parts(&found, &object, "2026-11-24T12:00:00Z".parse().unwrap());
        parts.into_iter().map(|part| part.content.into_string()).collect()
    }

    #[test]
    fn hostile_strings_are_text_only() {
        let now = "2026-11-24T12:00:00Z".parse().unwrap();
        assert_text_only(|hostile| {
            let why = html(&json!({"url": hostile, "path": hostile}), hostile);
            let spec = json!({"dependsOn": [{"name": hostile}], "sourceRef": {"kind": "GitRepository", "name": hostile}});
            let conditions_of = ready_condition(hostile, hostile);
            let status = json!({"conditions": conditions_of, "lastAppliedRevision": hostile});
            let object = kustomization(&spec, &status);
            let conditions = conditions(&object, "", now).into_string();
            let facts = facts(&object, now).into_string();
            let tag = UnchosenTag {
                tag: hostile.to_owned(),
                reason: "Filtered",
                message: hostile.to_owned(),
            };
            let tags = image_tags(&ImageTagReport {
                image_repository: format!("ImageRepository/apps/{hostile}"),
                chosen: Some(hostile.to_owned()),
                tags: vec![tag],
                unlisted: 1,
                remarks: vec![hostile.to_owned()],
            });
            format!("{why}{conditions}{facts}{}", tags.into_string())
        });
    }

    #[test]
    fn the_hold_of_an_object_that_was_resumed_is_no_fact() {
        let is_shown = |suspend: bool| {
            let annotations = json!({"windlass.dev/suspended-by": "alice"});
            let object = json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
                "metadata": {"name": "web", "namespace": "apps", "annotations": annotations},
                "spec": {"suspend": suspend}});
            let now = "2026-11-24T12:00:00Z".parse().unwrap();
            facts(&Object::new(object).unwrap(), now).into_string().contains("alice")
        };
        assert!(is_shown(true));
        assert!(!is_shown(false));
    }

    fn kustomization(spec: &Value, status: &Value) -> Object {
        let object = json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": "smoke", "namespace": "apps"}, "spec": spec, "status": status});
        Object::new(object).unwrap()
    }

    fn ready_condition(reason: &str, message: &str) -> Value {
        json!([{"type": "Ready", "status": "False", "reason": reason, "message": message}])
    }

    #[test]
    fn an_object_that_waits_names_the_dependencies_that_lead_to_the_cause() {
        let group = "kustomize.toolkit.fluxcd.io";
        let id = |name: &str| ObjectId::new("apps", name, group, "Kustomization");
        let step = |name: &str| CauseStep { object: id(name), since: None, text: String::new() };
        let why = |steps: &[&str], state: ExaminedObjectState| StateExplanation {
            object: id("smoke"),
            state,
            message: String::new(),
            cause: None,
            path: steps.iter().map(|name| step(name)).collect(),
            next: None,
            advice: None,
            second: None,
            unread: Vec::new(),
            remarks: Vec::new(),
        };
        let spec = json!({"dependsOn": [{"name": "web"}, {"name": "<db>"}]});
        let awaited = |reason: &str, steps: &[&str], state: ExaminedObjectState| {
            let status = json!({"conditions": ready_condition(reason, "waits")});
            let object = kustomization(&spec, &status);
            waiting(&awaited_dependencies(&why(steps, state), &object)).into_string()
        };
        let state = ExaminedObjectState::NotReady;
        let said = "<p>It waits for what it depends on: \
            <a href=\"/o/ks/apps/web\"><bdi>Kustomization/apps/web</bdi></a></p>";
        assert_eq!(awaited("DependencyNotReady", &["smoke", "web"], state), said);
        let all = awaited("DependencyNotReady", &[], ExaminedObjectState::Progressing);
        assert!(all.contains("apps/web</bdi></a>, <a href=\"/o/ks/apps/%3Cdb%3E\">"), "{all}");
        assert!(all.contains("&lt;db&gt;") && !all.contains("<db>"), "{all}");
        assert_eq!(awaited("BuildFailed", &["smoke", "web"], state), "");
        assert_eq!(awaited("DependencyNotReady", &[], ExaminedObjectState::Suspended), "");
    }

    #[test]
    fn a_condition_does_not_repeat_the_headline() {
        let now = "2026-11-24T12:00:00Z".parse().unwrap();
        let status = json!({"conditions": ready_condition("BuildFailed", "no such\n file <b>")});
        let object = kustomization(&json!({}), &status);
        let headline = "Kustomization/apps/smoke is not ready: no such file <b>";
        let html = conditions(&object, headline, now).into_string();
        assert!(html.contains("as said above") && !html.contains("no such"), "{html}");
        let html = conditions(&object, "Kustomization/apps/smoke is suspended", now).into_string();
        assert!(html.contains("no such  file &lt;b&gt;") && !html.contains("as said"), "{html}");
    }

    #[test]
    fn the_revision_that_was_applied_is_a_fact() {
        let now = "2026-11-24T12:00:00Z".parse().unwrap();
        let html = |status: Value| facts(&kustomization(&json!({}), &status), now).into_string();
        let fact = |of: &str| format!("<dt>Applied revision</dt><dd><bdi>{of}</bdi></dd>");
        let applied =
            json!({"lastAppliedRevision": "main@sha1:1<b>", "lastAttemptedRevision": "2"});
        assert!(html(applied).contains(&fact("main@sha1:1&lt;b&gt;")));
        let release =
            |status: &str, version: &str| json!({"status": status, "chartVersion": version});
        let history =
            json!({"history": [release("failed", "2.0.0"), release("deployed", "1.0.0")]});
        assert!(html(history).contains(&fact("1.0.0")));
        assert!(!html(json!({"history": [release("failed", "2.0.0")]})).contains("revision"));
    }

    #[test]
    fn the_first_heading_is_the_line_of_the_command() {
        let html = html(&json!({}), "no such table: \u{1b}[31m<users>");
        let line = "Kustomization/apps/shop is not ready: Pod/apps/web-1: container 'app' &lt;b&gt;ends&lt;/b&gt;";
        let heading = html.split("<h2>").nth(1).unwrap_or_default();
        let heading = heading.split("</h2>").next().unwrap_or_default();
        assert!(heading.ends_with(&format!("<bdi>{line}</bdi>")), "{heading}");
        assert!(
            html.contains(
                "<p class=\"dim\">Last lines of the container's log:</p><pre class=\"log\"><bdi>no such table: \\u{1b}[31m&lt;users&gt;</bdi></pre>"
            ),
            "{html}"
        );
        assert!(
            html.contains(
                "<code><bdi>kubectl -n apps logs web-1 &amp;&amp; &lt;x&gt;</bdi></code>"
            ),
            "{html}"
        );
        assert!(html.contains("cannot be read: &lt;forbidden&gt;"), "{html}");
        assert!(
            html.contains("<a href=\"/o/pod/apps/web-1\"><bdi>Pod/apps/web-1</bdi></a>"),
            "{html}"
        );
    }

    #[test]
    fn an_address_is_a_link_only_if_it_is_one_of_the_web_and_has_no_password() {
        let link = html(&json!({"url": "https://git.example.com/shop.git"}), "");
        assert!(
            link.contains(
                "<a href=\"https://git.example.com/shop.git\" rel=\"noreferrer noopener\">"
            ),
            "{link}"
        );
        for url in
            ["javascript:alert(1)", "https://bob:hunter2@git.example.com/a", "data:text/html,x"]
        {
            let html = html(&json!({"url": url}), "");
            assert!(!html.contains("rel=\"noreferrer") && !html.contains("hunter2"), "{html}");
        }
    }
}
