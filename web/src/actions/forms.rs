//! The forms on the page of an object. Each form works without a script, and the page shows it only if the user has the right
//! to send it.

use std::time::Duration;

use cause::object_references;
use maud::{Markup, html};
use objects::{Object, clean_line};
use tokio::time::timeout;
use windlass_answers::actions::version;
use windlass_answers::kind_argument::ResourceArgument;

use super::rights::required;
use super::{ActionForm, ObjectAction, digest};
use crate::action_guard::ACTION_PATH;
use crate::page_data_reader::PageDataReader;
use crate::page_elements::{message, text};
use crate::route::{ObjectAddress, ObjectTab};

/// How long a suspension or a silence lasts if the user gives no other end.
const DEFAULT_TIME: &str = "2h";

/// How long an access review may take. After that, the server shows the page without forms.
const REVIEW_TIME_LIMIT: Duration = Duration::from_secs(5);

/// The longest reason, in characters.
const MAX_REASON_CHARACTERS: u16 = 500;

/// The longest name of a branch, in characters.
const MAX_BRANCH_CHARACTERS: u16 = 255;

/// The forms for the actions that the user may do with an object. The result is empty if there is no such action.
pub(crate) async fn panel(
    reader: &PageDataReader,
    place: &ObjectAddress,
    target: &ResourceArgument,
    object: &Object,
) -> Markup {
    let ActionReviews { allowed, unknown, failure } = reviews(reader, target, object).await;
    html! {
        @if !allowed.is_empty() {
            div class="acts" role="group" aria-label="Actions" {
                @for action in allowed { (form(reader, action, place, object)) }
            }
        }
        @if !unknown.is_empty() {
            p class="dim" {
                "Which actions you may ask for is not known; no answer about "
                (unknown.iter().map(|action| action.title()).collect::<Vec<_>>().join(", "))
                ": " (message(&failure))
            }
        }
    }
}

/// What the API server says of the actions of an object. Actions that it denies are left out.
#[derive(Default)]
struct ActionReviews {
    allowed: Vec<ObjectAction>,
    /// Actions whose access reviews failed.
    unknown: Vec<ObjectAction>,
    /// Why the last one failed.
    failure: String,
}

async fn reviews(
    reader: &PageDataReader,
    target: &ResourceArgument,
    object: &Object,
) -> ActionReviews {
    let mut found = ActionReviews::default();
    let mut actions = ObjectAction::of(object).into_iter();
    for action in actions.by_ref() {
        let rights = required(action, target, object);
        let review = reader.actions.rights.has_all(&reader.site.cluster, &rights);
        match timeout(REVIEW_TIME_LIMIT, review).await {
            Ok(Ok(true)) => found.allowed.push(action),
            Ok(Ok(false)) => {}
            Ok(Err(error)) => {
                found.unknown.push(action);
                found.failure = error.to_string();
            }
            Err(_elapsed) => {
                found.unknown.push(action);
                let seconds = REVIEW_TIME_LIMIT.as_secs();
                found.failure = format!("no access review within {seconds} s");
                // The page is useful without forms, too, so it does not wait for further reviews.
                break;
            }
        }
    }
    found.unknown.extend(actions);
    found
}

/// The sealed form of an action, without what the user types.
fn sealed(
    reader: &PageDataReader,
    action: ObjectAction,
    place: &ObjectAddress,
    object: &Object,
) -> ActionForm {
    let mut made = ActionForm {
        action,
        place: place.clone(),
        uid: object.uid().to_owned(),
        version: version(object).to_owned(),
        generation: object.generation(),
        digest: digest(object),
        seal: String::new(),
        reason: String::new(),
        until: String::new(),
        branch: String::new(),
    };
    made.seal = reader.actions.seal.of(&made);
    made
}

/// The form by which a user plans a branch of a source. The caller has checked that the user may do so.
pub(crate) fn branch_form(
    reader: &PageDataReader,
    place: &ObjectAddress,
    source: &Object,
    branch: &str,
) -> Markup {
    let made = sealed(reader, ObjectAction::Plan, place, source);
    html! {
        div class="acts" role="group" aria-label="Actions" {
            div class="act" {
                form action=(ACTION_PATH) method="post" {
                    (hidden(&made))
                    (branch_field(branch))
                    button class="btn" type="submit" { "Plan" }
                }
            }
        }
    }
}

fn branch_field(branch: &str) -> Markup {
    html! {
        label {
            "Branch of this repository"
            input type="text" name="branch" value=(clean_line(branch)) maxlength=(MAX_BRANCH_CHARACTERS) required autocomplete="off";
        }
    }
}

fn form(
    reader: &PageDataReader,
    action: ObjectAction,
    place: &ObjectAddress,
    object: &Object,
) -> Markup {
    let made = sealed(reader, action, place, object);
    html! {
        details class="act" {
            summary class="btn" { (action.title()) "…" }
            form action=(ACTION_PATH) method="post" {
                (hidden(&made))
                @if let Some(said) = consequence(action, object) { p { (said) } }
                @if action == ObjectAction::Plan { (branch_field("")) } @else {
                    label {
                        (reason_label(action))
                        input type="text" name="reason" maxlength=(MAX_REASON_CHARACTERS) required[action.has_end()] autocomplete="off";
                    }
                }
                @if action.has_end() {
                    label {
                        @if action == ObjectAction::Suspend {
                            "Ends after, such as 2h, or at a time in UTC; empty for no end"
                        } @else {
                            "Ends after, such as 2h, or at a time in UTC; at most 168h"
                        }
                        input type="text" name="until" value=(DEFAULT_TIME) maxlength="40" required[action == ObjectAction::Silence] autocomplete="off";
                    }
                }
                button class="btn" type="submit" { (action.title()) " " (text(object.name())) }
            }
        }
    }
}

/// The hidden fields of a form, which the user does not type.
fn hidden(form: &ActionForm) -> Markup {
    let ActionForm { action, place, uid, version, generation, digest, seal, .. } = form;
    let generation = generation.to_string();
    let fields: [(&str, &str); 9] = [
        ("action", action.word()),
        ("kind", &place.kind),
        ("namespace", &place.namespace),
        ("name", &place.name),
        ("uid", uid),
        ("version", version),
        ("generation", &generation),
        ("digest", digest),
        ("seal", seal),
    ];
    html! { @for (name, value) in fields { input type="hidden" name=(name) value=(value); } }
}

fn reason_label(action: ObjectAction) -> &'static str {
    match action {
        ObjectAction::Suspend | ObjectAction::Silence => "Reason, which others see",
        ObjectAction::Approve | ObjectAction::Reject => "Comment, kept in the audit",
        ObjectAction::Reconcile
        | ObjectAction::Resume
        | ObjectAction::RollBack
        | ObjectAction::Plan => "Reason, kept in the audit; may be empty",
    }
}

/// The warning about the consequences of an action, if there is one.
fn consequence(action: ObjectAction, object: &Object) -> Option<Markup> {
    let applier = object_references::applier(object);
    let said = match action {
        ObjectAction::Suspend => {
            let applier = applier?;
            return Some(html! {
                (text(&applier.subject())) " applies it: where its manifest has spec.suspend, that counts again with the next reconciliation."
            });
        }
        ObjectAction::Resume if ObjectTab::Diff.is_of(object.kind()) => {
            "The tab Diff says what the next reconciliation would change. A rollback that was requested ends with the suspension."
        }
        ObjectAction::Resume => "What was missed meanwhile is done with the next reconciliation.",
        ObjectAction::Reject => "A rejection is final: another revision is decided anew.",
        ObjectAction::Approve => "What would be done is in its YAML.",
        ObjectAction::RollBack => {
            "All Kustomizations of the change go back to what they had before, until the source moves on."
        }
        ObjectAction::Silence => {
            "Neither the beginning nor reminders are sent until then, but the end is. Another silence replaces this one."
        }
        ObjectAction::Plan => {
            "The branch is fetched with the credentials of the source, and compared by dry-runs. Nothing is changed."
        }
        ObjectAction::Reconcile => return None,
    };
    Some(html! { (said) })
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use serde_json::{Value, json};
    use windlass_answers::command_scope::CommandScope;
    use windlass_cluster::discovery::ApiResourceLocation;

    use super::*;

    /// The forms of a Kustomization for a user. `answer` is what the API server answers to an access review of a verb.
    async fn shown(answer: fn(&str) -> (u16, Value)) -> String {
        let cluster = fake_cluster::answering(move |(_, body)| {
            let verb = body["spec"]["resourceAttributes"]["verb"].as_str().unwrap_or_default();
            let (code, answer) = answer(verb);
            (code, Body::from(answer.to_string()))
        });
        let site = CommandScope { cluster: cluster.await, namespace: String::new() };
        let reader = PageDataReader::new(site, &[]).await;
        let object = Object::new(
            json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": "web", "namespace": "apps", "uid": "u", "resourceVersion": "7", "generation": 2}}),
        );
        let object = object.unwrap();
        let gvk = object.gvk();
        let plural = "kustomizations".to_owned();
        let resource = ApiResourceLocation { gvk, plural, namespaced: true, watchable: true };
        let target = ResourceArgument { resource, namespace: None, name: None };
        let place = ObjectAddress::of(&object.id());
        panel(&reader, &place, &target, &object).await.into_string()
    }

    #[tokio::test]
    async fn a_form_names_the_version_that_was_seen_and_is_there_only_where_it_is_allowed() {
        let html = shown(|verb| (201, json!({"status": {"allowed": verb == "patch"}}))).await;
        for part in [
            "<form action=\"/_/act\" method=\"post\">",
            "name=\"action\" value=\"reconcile\"",
            "name=\"action\" value=\"suspend\"",
            "name=\"uid\" value=\"u\"",
            "name=\"version\" value=\"7\"",
            "name=\"until\" value=\"2h\"",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
        assert_eq!(html.matches(" required").count(), 1, "{html}");
        let denied = shown(|_| {
            (201, json!({"status": {"allowed": false, "denied": true, "evaluationError": "x"}}))
        });
        assert_eq!(denied.await, "");
    }

    #[tokio::test]
    async fn an_access_review_that_fails_neither_permits_an_action_nor_denies_it() {
        let refused = shown(|_| {
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                "code": 403, "reason": "Forbidden", "message": "no reviews <b>"});
            (403, status)
        });
        let undecided = shown(|_| {
            let error = "webhook is away <b>";
            (201, json!({"status": {"allowed": false, "evaluationError": error}}))
        });
        let unreadable = shown(|_| (201, json!({"status": {}})));
        for (html, error) in [
            (refused.await, "<bdi>no reviews &lt;b&gt;</bdi>"),
            (undecided.await, "webhook is away &lt;b&gt;</bdi>"),
            (unreadable.await, "the access review has no status.allowed</bdi>"),
        ] {
            assert!(!html.contains("<form"), "{html}");
            let said = "is not known; no answer about Reconcile, Suspend: ";
            assert!(html.contains(said) && html.contains(error), "{html}");
        }
    }
}
