//! The actions that a user may request on the page of an object.
//!
//! A form names its object and the version of the object that the user saw. The server refuses the form if the object has
//! changed.
//! Below: forms (`actions/forms.rs`), rights (`actions/rights.rs`), carrying out (`actions/perform.rs`), the seal of forms
//! (`actions/form_seal.rs`).
//! Elsewhere: the requests to the API server, which are the same as those of the commands (`windlass_answers::actions`); which
//! HTTP requests may change anything (`action_guard.rs`); how many a user who has logged in may send (`action_limits.rs`); plans
//! of branches, which change nothing (`branch_plans.rs`).

mod form_seal;
mod forms;
mod perform;
mod rights;

use cause::object_references;
use crds::operation_lifecycle::LifecycleEvent;
use crds::windlass_notification::Incident;
use jiff::Timestamp;
use objects::Object;
use serde_json::Value;
use windlass_answers::actions::incident_silence;
use windlass_answers::actions::lifecycle_approval;
use windlass_answers::actions::reconciliation::no_run;
use windlass_answers::actions::suspension::is_suspended;
use windlass_answers::branch_plan::SOURCE_KIND;
use windlass_answers::kind_argument::ResourceArgument;
use windlass_cluster::{ClusterConnection, ClusterError};

pub(crate) use self::form_seal::FormSeal;
pub(crate) use self::forms::{branch_form, panel};
pub(crate) use self::perform::{ActionReply, lacks_right, perform};
use self::rights::AccessReviewCache;
use super::page_query::PageQuery;
use super::route::ObjectAddress;

/// The longest message about a finished action, in bytes. The rest is cut, so that the message fits into an address.
const MAX_DONE_BYTES: usize = 512;

/// The query parameter that carries the message about a finished action, with its seal.
pub(crate) const DONE_PARAMETER: &str = "done";

/// The query parameter that names the branch of a plan.
pub(crate) const BRANCH_PARAMETER: &str = "branch";

/// An action that a user requests for an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ObjectAction {
    Reconcile,
    Suspend,
    Resume,
    Approve,
    Reject,
    RollBack,
    Silence,
    /// Shows what the cluster would become if a branch were merged.
    Plan,
}

impl ObjectAction {
    const ALL: [Self; 8] = [
        Self::Reconcile,
        Self::Suspend,
        Self::Resume,
        Self::Approve,
        Self::Reject,
        Self::RollBack,
        Self::Silence,
        Self::Plan,
    ];

    /// The word for this action in a form.
    fn word(self) -> &'static str {
        match self {
            Self::Reconcile => "reconcile",
            Self::Suspend => "suspend",
            Self::Resume => "resume",
            Self::Approve => "approve",
            Self::Reject => "reject",
            Self::RollBack => "rollback",
            Self::Silence => "silence",
            Self::Plan => "plan",
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
            Self::Silence => "Silence",
            Self::Plan => "Plan a branch",
        }
    }

    /// Whether the user has to give a reason, and may give an end.
    fn has_end(self) -> bool {
        matches!(self, Self::Suspend | Self::Silence)
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
            "Incident" => {
                let incident: Option<Incident> =
                    serde_json::from_value(object.clone().into_value()).ok();
                let is_sent = incident.is_some_and(|it| incident_silence::check(&it).is_ok());
                if is_sent { vec![Self::Silence] } else { Vec::new() }
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
                if kind == SOURCE_KIND {
                    all.push(Self::Plan);
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
    place: ObjectAddress,
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
    /// When the suspension or the silence ends. Empty for a suspension without an end.
    until: String,
    /// The branch that is planned. Empty for other actions.
    branch: String,
}

impl ActionForm {
    /// Reads a form from the fields of a request. Returns `None` if the fields are not a valid form.
    pub(crate) fn parse(fields: &PageQuery) -> Option<Self> {
        let text = |name: &str| fields.get(name).to_owned();
        let action = ObjectAction::ALL.into_iter().find(|it| it.word() == fields.get("action"))?;
        let place =
            ObjectAddress { kind: text("kind"), namespace: text("namespace"), name: text("name") };
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
            branch: text("branch"),
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

/// The state that the forms of one user need.
pub(crate) struct ActionFormState {
    seal: FormSeal,
    rights: AccessReviewCache,
}

impl ActionFormState {
    pub(crate) fn new(seal: FormSeal) -> Self {
        Self { seal, rights: AccessReviewCache::default() }
    }

    /// Whether the user may plan branches of a source. The answer of an access review counts for a while.
    ///
    /// # Errors
    /// The API server does not decide.
    pub(crate) async fn may_plan(
        &self,
        cluster: &ClusterConnection,
        target: &ResourceArgument,
        source: &Object,
    ) -> Result<bool, ClusterError> {
        let rights = rights::required(ObjectAction::Plan, target, source);
        self.rights.has_all(cluster, &rights).await
    }

    /// Returns the message about a finished action that an address carries. Only messages of this user's own actions have the
    /// seal, so a link cannot make the page show an invented text.
    pub(crate) fn done(&self, sealed: &str) -> Option<String> {
        self.seal.message(sealed)
    }

    /// Makes the text by which the address of a page carries the message about a finished action. Any replica may serve that
    /// page. The message has its time, because the browser may keep the address.
    fn sealed_done(&self, message: &str, at: Timestamp) -> String {
        let message = message.trim();
        let cut = message.floor_char_boundary(MAX_DONE_BYTES);
        let message = message.get(..cut).unwrap_or_default();
        let time = at.strftime("%Y-%m-%d %H:%M:%S UTC");
        self.seal.of_message(&format!("{message} ({time})"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::href::Href;
    use crate::route::{ObjectTab, Route};

    fn actions(version: &str, kind: &str, spec: Value, status: Value) -> Vec<ObjectAction> {
        let object = json!({"apiVersion": version, "kind": kind,
            "metadata": {"name": "a", "namespace": "b"}, "spec": spec, "status": status});
        ObjectAction::of(&Object::new(object).unwrap())
    }

    #[test]
    fn an_object_has_the_actions_that_are_of_use_to_it_as_it_is() {
        use ObjectAction::{Approve, Plan, Reconcile, Reject, Resume, RollBack, Silence, Suspend};
        let flux = "kustomize.toolkit.fluxcd.io/v1";
        assert_eq!(actions(flux, "Kustomization", json!({}), json!({})), [Reconcile, Suspend]);
        let source = "source.toolkit.fluxcd.io/v1";
        let found = actions(source, "GitRepository", json!({}), json!({}));
        assert_eq!(found, [Reconcile, Suspend, Plan]);
        assert_eq!(actions(source, "Bucket", json!({}), json!({})), [Reconcile, Suspend]);
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
        let incident = |reason: &str, state: &str| {
            let spec = json!({"reason": reason});
            let version = "notification.windlass.dev/v1alpha1";
            actions(version, "Incident", spec, json!({"state": state}))
        };
        assert_eq!(incident("Build", "Open"), [Silence]);
        assert!(incident("Build", "Resolved").is_empty());
        assert!(incident("Delivery", "Open").is_empty(), "nothing is sent about it");
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
    fn only_a_message_of_the_users_own_action_is_shown_and_it_fits_into_an_address() {
        let actions = ActionFormState::new(FormSeal::new());
        let at = "2026-11-30T09:01:00Z".parse().unwrap();
        let said = |message: &str| actions.done(&actions.sealed_done(message, at)).unwrap();
        let expected = "Kustomization/apps/web is resumed (2026-11-30 09:01:00 UTC)";
        assert_eq!(said("Kustomization/apps/web is resumed"), expected);
        assert_eq!(actions.done("it is all well"), None);
        let of_other = ActionFormState::new(FormSeal::new()).sealed_done("it is all well", at);
        assert_eq!(actions.done(&of_other), None);
        let sealed = actions.sealed_done(&"\u{1f980}".repeat(1000), at);
        let place = ObjectAddress::of_subject("Kustomization/apps/web").unwrap();
        let page = Route::Object { place, tab: ObjectTab::Why };
        let page = Href::with_query(&page, &[(DONE_PARAMETER, sealed.as_str())]);
        // The browser names the page once more to receive its changes.
        let live = Href::live(page.as_str(), "1");
        let (_, query) = live.as_str().split_once('?').unwrap();
        let query = PageQuery::parse(query);
        let (_, query) = query.get("page").split_once('?').unwrap();
        let done = actions.done(PageQuery::parse(query).get(DONE_PARAMETER)).unwrap();
        assert!(done.ends_with("\u{1f980} (2026-11-30 09:01:00 UTC)"), "{done}");
    }
}
