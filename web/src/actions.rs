//! The actions that a user may request on the page of an object.
//!
//! A form names its object and the version of the object that the user saw. The server refuses the form if the object has
//! changed.
//! Below: forms (`actions/forms.rs`), rights (`actions/rights.rs`), carrying out (`actions/perform.rs`), the seal of forms
//! (`actions/form_seal.rs`).
//! Elsewhere: the requests to the API server, which are the same as those of the commands (`windlass_answers::actions`); which
//! HTTP requests may change anything (`action_guard.rs`).

mod form_seal;
mod forms;
mod perform;
mod rights;

use std::cell::RefCell;
use std::collections::VecDeque;

use cause::object_references;
use crds::lifecycle::LifecycleEvent;
use objects::Object;
use serde_json::Value;
use windlass_answers::actions::lifecycle_approval;
use windlass_answers::actions::reconciliation::no_run;
use windlass_answers::actions::suspension::is_suspended;
use windlass_runtime::random_bytes;

use self::form_seal::FormSeal;
pub(crate) use self::forms::panel;
pub(crate) use self::perform::{ActionReply, perform};
use self::rights::KnownRights;
use super::page_query::PageQuery;
use super::route::ObjectPlace;

/// How many messages about finished actions the server keeps for its pages.
const MAX_DONE_LINES: usize = 64;

/// The length of the random name of a message, in bytes.
const DONE_NAME_BYTES: usize = 12;

/// The query parameter that carries the name of a message.
pub(crate) const DONE_PARAMETER: &str = "done";

/// An action that a user requests for an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ObjectAction {
    Reconcile,
    Suspend,
    Resume,
    Approve,
    Reject,
    RollBack,
}

impl ObjectAction {
    const ALL: [Self; 6] =
        [Self::Reconcile, Self::Suspend, Self::Resume, Self::Approve, Self::Reject, Self::RollBack];

    /// The word for this action in a form.
    fn word(self) -> &'static str {
        match self {
            Self::Reconcile => "reconcile",
            Self::Suspend => "suspend",
            Self::Resume => "resume",
            Self::Approve => "approve",
            Self::Reject => "reject",
            Self::RollBack => "rollback",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Reconcile => "Reconcile",
            Self::Suspend => "Suspend",
            Self::Resume => "Resume",
            Self::Approve => "Approve",
            Self::Reject => "Reject",
            Self::RollBack => "Roll back",
        }
    }

    /// The actions that an object offers in its current state.
    fn of(object: &Object) -> Vec<Self> {
        let id = object.id();
        let names = crds::names().find(|it| it.group == id.group && it.kind == id.kind);
        let Some(names) = names.filter(|_| object_references::is_reconciled(&id)) else {
            return Vec::new();
        };
        let status = object.get("status").unwrap_or(&Value::Null);
        match names.kind {
            "Plan" if status["rejection"].is_null() => vec![Self::Approve, Self::Reject],
            "LifecycleEvent" => {
                let event: Option<LifecycleEvent> =
                    serde_json::from_value(object.clone().into_value()).ok();
                let waits = event.is_some_and(|event| lifecycle_approval::check(&event).is_ok());
                if waits { vec![Self::Approve, Self::Reject] } else { Vec::new() }
            }
            "ChangeSet" if status.is_object() && status["rollback"].is_null() => {
                vec![Self::RollBack]
            }
            kind if names.is_record() || names.is_gate() || kind == "ExternalArtifact" => {
                Vec::new()
            }
            kind => {
                let mut all = Vec::new();
                if no_run(object).is_none() {
                    all.push(Self::Reconcile);
                }
                if is_suspended(object) {
                    all.push(Self::Resume);
                } else if kind != "ArtifactGenerator" {
                    all.push(Self::Suspend);
                }
                all
            }
        }
    }
}

/// A form, as a page contains it and as the browser sends it back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ActionForm {
    action: ObjectAction,
    place: ObjectPlace,
    /// The UID of the object that the user saw.
    uid: String,
    /// The resourceVersion of the object that the user saw.
    version: String,
    /// The generation of the object's spec that the user saw.
    generation: i64,
    /// For a Plan, the digests of the changes that the user approves. Empty for other objects.
    digest: String,
    seal: String,
    /// The user's reason, which other users can read.
    reason: String,
    /// When the suspension ends. Empty for a suspension without an end.
    until: String,
}

impl ActionForm {
    /// Reads a form from the fields of a request. Returns `None` if the fields are not a valid form.
    pub(crate) fn parse(fields: &PageQuery) -> Option<Self> {
        let text = |name: &str| fields.get(name).to_owned();
        let action = ObjectAction::ALL.into_iter().find(|it| it.word() == fields.get("action"))?;
        let place =
            ObjectPlace { kind: text("kind"), namespace: text("namespace"), name: text("name") };
        let is_named = !place.kind.is_empty() && !place.name.is_empty();
        is_named.then(|| Self {
            action,
            place,
            uid: text("uid"),
            version: text("version"),
            generation: fields.get("generation").parse().unwrap_or_default(),
            digest: text("digest"),
            seal: text("seal"),
            reason: text("reason"),
            until: text("until"),
        })
    }
}

/// The digests of a Plan, which identify the changes that a user approves. Empty for other objects.
fn digest(object: &Object) -> String {
    let spec = object.get("spec").filter(|_| object.kind() == "Plan");
    let text = |at: &str| spec.and_then(|spec| spec.pointer(at)).and_then(Value::as_str);
    let digests = ["/digest", "/changes/digest"].map(|at| text(at).unwrap_or_default());
    if spec.is_some() { digests.join(" ") } else { String::new() }
}

/// A message about a finished action, with the random name by which a page finds the message.
struct DoneLine {
    name: String,
    text: String,
}

/// The state that forms need while a server runs.
pub(crate) struct PageActions {
    seal: FormSeal,
    rights: KnownRights,
    done: RefCell<VecDeque<DoneLine>>,
}

impl PageActions {
    pub(crate) fn new() -> Self {
        let done = RefCell::new(VecDeque::new());
        Self { seal: FormSeal::new(), rights: KnownRights::default(), done }
    }

    /// Returns the message that is stored under a name for a finished action. Only this process stores these messages, so a
    /// link cannot make the page show an invented text.
    pub(crate) fn done(&self, name: &str) -> Option<String> {
        let done = self.done.borrow();
        done.iter().find(|line| line.name == name).map(|line| line.text.clone())
    }

    /// Stores the message about a finished action, and returns the name by which a page finds it.
    fn keep_done(&self, text: String) -> String {
        let mut bytes = [0; DONE_NAME_BYTES];
        random_bytes::fill(&mut bytes);
        let name = hex::encode(bytes);
        let mut done = self.done.borrow_mut();
        if done.len() >= MAX_DONE_LINES {
            done.pop_front();
        }
        done.push_back(DoneLine { name: name.clone(), text });
        name
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn actions(version: &str, kind: &str, spec: Value, status: Value) -> Vec<ObjectAction> {
        let object = json!({"apiVersion": version, "kind": kind,
            "metadata": {"name": "a", "namespace": "b"}, "spec": spec, "status": status});
        ObjectAction::of(&Object::new(object).unwrap())
    }

    #[test]
    fn an_object_has_the_actions_that_are_of_use_to_it_as_it_is() {
        use ObjectAction::{Approve, Reconcile, Reject, Resume, RollBack, Suspend};
        let flux = "kustomize.toolkit.fluxcd.io/v1";
        assert_eq!(actions(flux, "Kustomization", json!({}), json!({})), [Reconcile, Suspend]);
        let suspended = json!({"suspend": true});
        assert_eq!(actions(flux, "Kustomization", suspended, json!({})), [Resume]);
        let ours = "release.windlass.dev/v1alpha1";
        assert_eq!(actions(ours, "Plan", json!({}), json!({})), [Approve, Reject]);
        let rejected = json!({"rejection": {"user": "bob"}});
        assert!(actions(ours, "Plan", json!({}), rejected).is_empty());
        assert_eq!(actions(ours, "ChangeSet", json!({}), json!({"verdict": "Failed"})), [RollBack]);
        let asked = json!({"rollback": {"user": "bob"}});
        assert!(actions(ours, "ChangeSet", json!({}), asked).is_empty());
        assert!(actions(ours, "Freeze", json!({}), json!({})).is_empty());
        let event = |phase: &str| {
            let spec = json!({"approvals": 1, "lifecycle": "l"});
            actions(
                "lifecycle.windlass.dev/v1alpha1",
                "LifecycleEvent",
                spec,
                json!({"phase": phase}),
            )
        };
        assert_eq!(event("Pending"), [Approve, Reject]);
        assert!(event("Failed").is_empty());
        assert!(actions("v1", "Secret", json!({}), json!({})).is_empty());
        assert!(actions("apps/v1", "Deployment", json!({}), json!({})).is_empty());
    }

    #[test]
    fn a_form_names_an_action_and_an_object() {
        let sent = "action=suspend&kind=ks&namespace=apps&name=web&uid=u&version=7&generation=2&seal=s&reason=why&until=2h";
        let form = ActionForm::parse(&PageQuery::parse(sent)).unwrap();
        assert_eq!(
            (form.action, form.place.word().as_str()),
            (ObjectAction::Suspend, "ks/apps/web")
        );
        assert_eq!((form.uid.as_str(), form.version.as_str(), form.generation), ("u", "7", 2));
        assert_eq!((form.reason.as_str(), form.until.as_str()), ("why", "2h"));
        for other in [
            "",
            "action=delete&kind=ks&name=web",
            "action=suspend&kind=ks",
            "action=suspend&name=web",
        ] {
            assert_eq!(ActionForm::parse(&PageQuery::parse(other)), None, "{other}");
        }
    }

    #[test]
    fn only_what_this_process_did_is_said_and_the_oldest_is_forgotten() {
        let actions = PageActions::new();
        let first = actions.keep_done("Kustomization/apps/web is resumed".to_owned());
        assert_eq!(actions.done(&first).unwrap(), "Kustomization/apps/web is resumed");
        assert_eq!(actions.done("it is all well"), None);
        for _ in 0..MAX_DONE_LINES {
            actions.keep_done(String::new());
        }
        assert_eq!(actions.done(&first), None);
    }
}
