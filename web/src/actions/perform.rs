//! Carries out the action of a form, if the object is still in the version that the user saw.

use anyhow::{Context as _, bail, ensure};
use axum::http::StatusCode;
use crds::operation_lifecycle::LifecycleEvent;
use crds::windlass_notification::Incident;
use crds::windlass_release::{ChangeSet, Plan};
use jiff::Timestamp;
use maud::html;
use objects::{Object, clean_line};
use tokio::time::timeout;
use windlass_answers::actions::change_rollback::ChangeRollbackRequest;
use windlass_answers::actions::incident_silence::IncidentSilenceRequest;
use windlass_answers::actions::reconciliation::{ReconciliationRequest, no_run};
use windlass_answers::actions::suspension::{self, ObjectSuspension, end_of};
use windlass_answers::actions::{
    ApprovalAnswer, ObjectToChange, lifecycle_approval, plan_approval, version,
};
use windlass_answers::branch_plan::{self, PLAN_VERB, PlannedBranch};
use windlass_answers::kind_argument;
use windlass_cluster::ClusterError;

use super::{ActionForm, BRANCH_PARAMETER, DONE_PARAMETER, ObjectAction, digest};
use crate::frame::{self, PagePart, PageParts};
use crate::href::Href;
use crate::local_server::PAGE_TIME_LIMIT;
use crate::page_data_reader::PageDataReader;
use crate::page_elements;
use crate::response::{HTML, JSON, PageAnswer};
use crate::route::{ObjectAddress, ObjectTab, Route};

/// The result of a form.
pub(crate) enum ActionReply {
    /// The action is done. The page at this link says so.
    Done(Href),
    /// Nothing was changed, or it is unknown whether something was changed.
    Refused(PageAnswer),
}

/// Why the server did not carry out an action.
struct ActionRefusal {
    status: StatusCode,
    text: String,
}

impl ActionRefusal {
    fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }

    /// Explains an error that happened before any change was sent to the API server.
    fn of_reading(error: &anyhow::Error) -> Self {
        let found = Self::of(error);
        match found.status {
            StatusCode::BAD_GATEWAY => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                format!("nothing was done, since the object cannot be read: {error:#}"),
            ),
            _ => found,
        }
    }

    /// Explains that an action took too long. The API server may have received its request.
    fn of_time() -> Self {
        let text = format!(
            "the API server has not responded within {} s; whether this was done is not known, which the page of the object tells",
            PAGE_TIME_LIMIT.as_secs()
        );
        Self::new(StatusCode::GATEWAY_TIMEOUT, text)
    }

    /// Explains the error of a request that should have changed an object.
    fn of(error: &anyhow::Error) -> Self {
        let text = format!("{error:#}");
        let Some(error) = error.downcast_ref::<ClusterError>() else {
            return Self::new(StatusCode::UNPROCESSABLE_ENTITY, text);
        };
        match error.code() {
            _ if error.is_conflict() => Self::new(
                StatusCode::CONFLICT,
                format!("it changed at the same moment, and nothing was done: {text}"),
            ),
            Some(401) => Self::new(StatusCode::UNAUTHORIZED, text),
            Some(403) => Self::new(StatusCode::FORBIDDEN, text),
            Some(404) => Self::new(StatusCode::NOT_FOUND, text),
            Some(400 | 422) => Self::new(StatusCode::UNPROCESSABLE_ENTITY, text),
            // The request may have reached the API server although its answer was lost.
            _ => Self::new(
                StatusCode::BAD_GATEWAY,
                format!(
                    "whether it was done is not known, which the page of the object tells: {text}"
                ),
            ),
        }
    }
}

/// Carries out the action of a form.
pub(crate) async fn perform(
    reader: &PageDataReader,
    form: &ActionForm,
    wants_json: bool,
) -> ActionReply {
    let performed = timeout(PAGE_TIME_LIMIT, performed(reader, form)).await;
    // An action without an answer is logged, too.
    let performed = performed.unwrap_or_else(|_elapsed| Err(ActionRefusal::of_time()));
    if reader.facts.has_login {
        log(reader, form, &performed);
    }
    match performed {
        Ok(_) if form.action == ObjectAction::Plan => ActionReply::Done(Href::with_query(
            &route(form),
            &[(BRANCH_PARAMETER, form.branch.as_str())],
        )),
        Ok(said) => {
            let done = reader.actions.sealed_done(&said, Timestamp::now());
            ActionReply::Done(Href::with_query(&route(form), &[(DONE_PARAMETER, done.as_str())]))
        }
        Err(refusal) => ActionReply::Refused(answer(reader, form, &refusal, wants_json)),
    }
}

/// Logs the action of a user who has logged in. The audit log of the API server has the requests themselves.
fn log(reader: &PageDataReader, form: &ActionForm, performed: &Result<String, ActionRefusal>) {
    let refusal = performed.as_ref().err();
    tracing::info!(
        user = clean_line(&reader.facts.user),
        action = form.action.word(),
        object = clean_line(&form.place.word()),
        reason = clean_line(&form.reason),
        branch = Some(clean_line(&form.branch)).filter(|branch| !branch.is_empty()),
        status = refusal.map(|refusal| refusal.status.as_u16()),
        error = refusal.map(|refusal| clean_line(&refusal.text)),
        "a user sent the form of an action"
    );
}

/// The page that has the form, and shows the result.
fn route(form: &ActionForm) -> Route {
    let ObjectAddress { namespace, name, .. } = &form.place;
    match form.action {
        ObjectAction::Silence => {
            Route::Incident { namespace: namespace.clone(), name: name.clone() }
        }
        ObjectAction::Plan => {
            Route::BranchPlan { namespace: namespace.clone(), name: name.clone() }
        }
        _ => Route::Object { place: form.place.clone(), tab: ObjectTab::Why },
    }
}

async fn performed(reader: &PageDataReader, form: &ActionForm) -> Result<String, ActionRefusal> {
    if !reader.actions.seal.is_on(form) {
        let of = match reader.facts.has_login {
            true => "this session; you may have logged in again since",
            false => "this `windlass ui`, which may have been started again since",
        };
        let text = format!(
            "this form is not of a page of {of}: open the page of the object, and decide again"
        );
        return Err(ActionRefusal::new(StatusCode::FORBIDDEN, text));
    }
    let cluster = &reader.site.cluster;
    let target = kind_argument::one(cluster, &[form.place.word()]).await;
    let target = target.map_err(|error| ActionRefusal::of_reading(&error))?;
    let namespace = reader.site.namespace_of(&target);
    let read = cluster.get(&target.resource, namespace, &form.place.name).await;
    let object = read.map_err(|error| ActionRefusal::of_reading(&anyhow::Error::from(error)))?;
    let Some(object) = object else {
        return Err(ActionRefusal::new(
            StatusCode::CONFLICT,
            "it was deleted since the page was read",
        ));
    };
    if form.action == ObjectAction::Plan {
        return start_plan(reader, form, &object).await;
    }
    if let Some(text) = change_since(form, &object) {
        return Err(ActionRefusal::new(StatusCode::CONFLICT, text));
    }
    let of = ObjectToChange {
        site: &reader.site,
        target: &target,
        object: &object,
        is_of_version: true,
    };
    carry_out(&of, form).await.map_err(|error| ActionRefusal::of(&error))
}

/// Starts the plan of a branch. It goes on after this request. The version of the source does not count, because the plan is
/// about the branch.
async fn start_plan(
    reader: &PageDataReader,
    form: &ActionForm,
    source: &Object,
) -> Result<String, ActionRefusal> {
    let namespace = source.namespace();
    let name = source.name();
    let planned = PlannedBranch::new(namespace, name, &form.branch)
        .map_err(|error| ActionRefusal::new(StatusCode::UNPROCESSABLE_ENTITY, error.to_string()))?;
    let cluster = &reader.site.cluster;
    match branch_plan::may_plan(cluster, namespace, name).await {
        Ok(true) => {}
        Ok(false) => {
            let text = lacks_right(&source.id().subject());
            return Err(ActionRefusal::new(StatusCode::FORBIDDEN, text));
        }
        Err(error) => {
            let text = format!("nothing was done, since it is not known whether you may: {error}");
            return Err(ActionRefusal::new(StatusCode::SERVICE_UNAVAILABLE, text));
        }
    }
    let begun = reader.branch_plans.start(cluster, planned);
    begun.map_err(|text| ActionRefusal::new(StatusCode::TOO_MANY_REQUESTS, text))?;
    Ok(String::new())
}

/// The text for a user who may not plan branches of a source.
pub(crate) fn lacks_right(source: &str) -> String {
    format!(
        "you lack the verb `{PLAN_VERB}` on {source}, which a plan needs because the fetch uses the credentials of the source"
    )
}

/// Describes how the object differs from the version that the user saw. Returns `None` if the object is unchanged.
fn change_since(form: &ActionForm, object: &Object) -> Option<String> {
    if object.uid() != form.uid {
        return Some(
            "another object of its name took its place since the page was read".to_owned(),
        );
    }
    let what = if digest(object) != form.digest {
        "what the Plan would do is something else".to_owned()
    } else if object.generation() != form.generation {
        format!(
            "its spec was changed: it has generation {}, and had {}",
            object.generation(),
            form.generation
        )
    } else if version(object) != form.version {
        "its status or its metadata was changed".to_owned()
    } else {
        return None;
    };
    let by = last_writer(object).unwrap_or_default();
    Some(format!("it changed since the page was read, and nothing was done: {what}{by}"))
}

/// The program that last wrote an object, and the time.
fn last_writer(object: &Object) -> Option<String> {
    let entries = object.meta("managedFields")?.as_array()?;
    let last = entries.iter().max_by_key(|entry| entry["time"].as_str().unwrap_or_default())?;
    let manager = last["manager"].as_str()?;
    let at = last["time"].as_str()?;
    Some(format!("; written last by {manager} at {at}"))
}

/// Sends the same requests as the command for this action. Returns a message that says what was done.
async fn carry_out(of: &ObjectToChange<'_>, form: &ActionForm) -> anyhow::Result<String> {
    let ObjectToChange { site, object, .. } = *of;
    let subject = object.id().subject();
    let reason = Some(form.reason.as_str()).filter(|reason| !reason.is_empty());
    match form.action {
        ObjectAction::Reconcile => {
            let why = no_run(object).unwrap_or_default();
            ensure!(why.is_empty(), "{why}");
            ReconciliationRequest { reason, ..ReconciliationRequest::default() }.make(of).await?;
            Ok(format!("a reconciliation of {subject} is asked for"))
        }
        ObjectAction::Suspend => {
            ensure!(reason.is_some(), "give a reason for the suspension, which others see");
            let until = Some(form.until.as_str()).filter(|text| !text.is_empty());
            let until = until.map(|text| end_of(text, Timestamp::now())).transpose()?;
            let owner = site.cluster.own_name().await.context("cannot tell who suspends")?;
            let suspension = ObjectSuspension { owner: &owner, reason, until };
            suspension.check(object)?;
            Ok(suspension.carry_out(of).await?)
        }
        ObjectAction::Resume => {
            suspension::resume(of, reason).await?;
            Ok(format!("{subject} is resumed"))
        }
        ObjectAction::Approve | ObjectAction::Reject => answered(of, form).await,
        ObjectAction::Plan => bail!("a plan of a branch changes no object"),
        ObjectAction::Silence => {
            let incident: Incident = serde_json::from_value(object.clone().into_value())?;
            let ActionForm { reason, until, .. } = form;
            let request =
                IncidentSilenceRequest { incident: &incident, reason, until, is_of_version: true };
            request.make(site).await
        }
        ObjectAction::RollBack => {
            let change: ChangeSet = serde_json::from_value(object.clone().into_value())?;
            ChangeRollbackRequest { change: &change, reason, is_of_version: true }
                .make(site)
                .await?;
            Ok(format!("the rollback of {subject} is requested"))
        }
    }
}

/// Approves or rejects a Plan or a LifecycleEvent.
async fn answered(of: &ObjectToChange<'_>, form: &ActionForm) -> anyhow::Result<String> {
    let ObjectToChange { site, object, .. } = *of;
    let user = site.cluster.own_user().await.context("cannot tell who approves")?;
    ensure!(!user.name.is_empty(), "the API server does not name this user");
    let is_rejection = form.action == ObjectAction::Reject;
    let answer = ApprovalAnswer { comment: &form.reason, keep: &[], is_rejection };
    if object.kind() == "Plan" {
        let plan: Plan = serde_json::from_value(object.clone().into_value())?;
        return plan_approval::answer(site, &plan, &user, &answer).await;
    }
    let event: LifecycleEvent = serde_json::from_value(object.clone().into_value())?;
    lifecycle_approval::check(&event)?;
    Ok(lifecycle_approval::answer(site, &event, &user.name, &answer).await?)
}

/// The page that explains why the server did not carry out the action.
fn answer(
    reader: &PageDataReader,
    form: &ActionForm,
    refusal: &ActionRefusal,
    wants_json: bool,
) -> PageAnswer {
    let ActionRefusal { status, text } = refusal;
    if wants_json {
        let text = format!("{}\n", serde_json::json!({"error": text}));
        return PageAnswer { status: *status, content_type: JSON, text };
    }
    let what = match *status {
        StatusCode::CONFLICT => "Not done: it is not as you saw it",
        StatusCode::FORBIDDEN => "Not done: you may not do this",
        StatusCode::UNAUTHORIZED if reader.facts.has_login => {
            "Not done: the API server does not accept your login any more; log out and in again"
        }
        StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT => {
            "It is not known whether this was done"
        }
        _ => "Not done",
    };
    let back = Href::inside(&route(form));
    let content = html! {
        (page_elements::failure(what, text))
        p { a class="btn" href=(back) { "See it as it is now, and decide again" } }
    };
    let page = PageParts {
        route: route(form),
        title: format!("{} {}", form.action.title(), form.place.name),
        command: format!("windlass why {}", form.place.command_words()),
        read_at: Timestamp::now(),
        parts: vec![PagePart::whole("failure", content)],
        renew_after: None,
        version: String::new(),
    };
    let text = frame::framed(&page, &reader.facts, None);
    PageAnswer { status: *status, content_type: HTML, text }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use fake_cluster::RecordedWrites;
    use serde_json::{Value, json};
    use windlass_answers::command_scope::CommandScope;

    use super::*;
    use crate::page_query::PageQuery;

    const OBJECT_PATH: &str =
        "/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/apps/kustomizations/web";

    fn web() -> Value {
        let written = json!([{"manager": "windlass", "time": "2026-11-30T09:00:00Z"},
            {"manager": "alice's <editor>", "time": "2026-11-30T09:01:00Z"}]);
        json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": "web", "namespace": "apps", "uid": "u", "resourceVersion": "7",
                "generation": 2, "managedFields": written}})
    }

    async fn reader(objects: Vec<Value>) -> (PageDataReader, RecordedWrites) {
        let (cluster, writes) = fake_cluster::with_objects(objects).await;
        let site = CommandScope { cluster, namespace: String::new() };
        (PageDataReader::new(site, &[]).await, writes)
    }

    /// A form as the page shows it for an object in version 7.
    fn form(reader: &PageDataReader, action: ObjectAction) -> ActionForm {
        let [kind, namespace, name] = ["ks", "apps", "web"].map(str::to_owned);
        let mut form = ActionForm {
            action,
            place: ObjectAddress { kind, namespace, name },
            uid: "u".to_owned(),
            version: "7".to_owned(),
            generation: 2,
            digest: String::new(),
            seal: String::new(),
            reason: "incident-1".to_owned(),
            until: String::new(),
            branch: String::new(),
        };
        form.seal = reader.actions.seal.of(&form);
        form
    }

    fn patches(writes: &RecordedWrites) -> Vec<String> {
        writes.lock().iter().filter(|it| it.starts_with("PATCH ")).cloned().collect()
    }

    async fn refused(reader: &PageDataReader, form: &ActionForm) -> PageAnswer {
        match perform(reader, form, false).await {
            ActionReply::Refused(page) => page,
            ActionReply::Done(page) => panic!("done: {}", page.as_str()),
        }
    }

    #[tokio::test]
    async fn what_was_done_is_said_on_the_page_of_the_object() {
        let (reader, writes) = reader(vec![web()]).await;
        let form = form(&reader, ObjectAction::Reconcile);
        let ActionReply::Done(page) = perform(&reader, &form, false).await else {
            panic!("it is refused")
        };
        let (path, query) = page.as_str().split_once('?').unwrap();
        assert_eq!(path, "/o/ks/apps/web");
        let query = PageQuery::parse(query);
        let done = reader.actions.done(query.get(DONE_PARAMETER)).unwrap();
        let expected = "a reconciliation of Kustomization/apps/web is asked for (20";
        assert!(done.starts_with(expected), "{done}");
        let patches = patches(&writes);
        assert_eq!(patches.len(), 1);
        assert!(patches[0].starts_with(&format!("PATCH {OBJECT_PATH}?fieldManager=windlass-cli")));
    }

    #[tokio::test]
    async fn a_form_without_the_seal_of_this_process_changes_nothing() {
        let (reader, writes) = reader(vec![web()]).await;
        let other = PageDataReader::new(reader.site.within(true), &[]).await;
        let of_other = form(&other, ObjectAction::Resume);
        let without = ActionForm { seal: String::new(), ..form(&reader, ObjectAction::Resume) };
        let of_another_action =
            ActionForm { action: ObjectAction::Suspend, ..form(&reader, ObjectAction::Resume) };
        for form in [of_other, without, of_another_action] {
            let page = refused(&reader, &form).await;
            assert_eq!(page.status, StatusCode::FORBIDDEN);
            assert!(page.text.contains("this form is not of a page of this"), "{}", page.text);
        }
        assert!(patches(&writes).is_empty());
    }

    #[tokio::test]
    async fn another_version_than_the_one_that_was_seen_is_refused_with_what_changed() {
        let changed = |field: &str, value: Value| {
            let mut object = web();
            object["metadata"][field] = value;
            object
        };
        let mut spec = changed("resourceVersion", json!("8"));
        spec["metadata"]["generation"] = json!(3);
        for (object, expected) in [
            (spec, "its spec was changed: it has generation 3, and had 2"),
            (changed("resourceVersion", json!("8")), "its status or its metadata was changed"),
            (changed("uid", json!("v")), "another object of its name took its place"),
        ] {
            let (reader, writes) = reader(vec![object]).await;
            let page = refused(&reader, &form(&reader, ObjectAction::Suspend)).await;
            assert_eq!(page.status, StatusCode::CONFLICT);
            assert!(page.text.contains(expected), "{}", page.text);
            let by = "written last by alice's &lt;editor&gt; at 2026-11-30T09:01:00Z";
            let is_said = page.text.contains(by) || expected.starts_with("another object");
            assert!(is_said, "{}", page.text);
            assert!(patches(&writes).is_empty());
        }
        let (reader, _) = reader(Vec::new()).await;
        let form = form(&reader, ObjectAction::Suspend);
        let page = refused(&reader, &form).await;
        assert!(!page.status.is_success(), "{}", page.text);
    }

    #[test]
    fn a_plan_that_would_do_something_else_is_refused() {
        let plan = |digest: &str| {
            Object::new(json!({"apiVersion": "release.windlass.dev/v1alpha1", "kind": "Plan",
                "metadata": {"name": "a", "namespace": "apps", "uid": "u", "resourceVersion": "7"},
                "spec": {"digest": "d", "changes": {"digest": digest}}}))
            .unwrap()
        };
        let [kind, namespace, name] = ["plan", "apps", "a"].map(str::to_owned);
        let form = ActionForm {
            action: ObjectAction::Approve,
            place: ObjectAddress { kind, namespace, name },
            uid: "u".to_owned(),
            version: "7".to_owned(),
            generation: 0,
            digest: digest(&plan("one")),
            seal: String::new(),
            reason: String::new(),
            until: String::new(),
            branch: String::new(),
        };
        assert_eq!(form.digest, "d one");
        assert_eq!(change_since(&form, &plan("one")), None);
        let said = change_since(&form, &plan("two")).unwrap();
        assert!(said.contains("what the Plan would do is something else"), "{said}");
    }

    #[tokio::test]
    async fn what_the_api_server_refuses_is_said_with_the_right_that_lacks() {
        let lacks = "kustomizations.kustomize.toolkit.fluxcd.io \"web\" is forbidden: User \"bob\" cannot patch resource \
            \"kustomizations\" in API group \"kustomize.toolkit.fluxcd.io\" in the namespace \"apps\"";
        let cluster = fake_cluster::answering(move |(request, _)| {
            let (method, path) = request.split_once(' ').unwrap();
            let (code, answer) = match (method, path) {
                ("PATCH", _) => {
                    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                        "code": 403, "reason": "Forbidden", "message": lacks});
                    (403, status)
                }
                ("GET", OBJECT_PATH) => (200, web()),
                ("GET", "/apis/kustomize.toolkit.fluxcd.io/v1") => {
                    let kind = json!({"kind": "Kustomization", "name": "kustomizations",
                        "singularName": "", "namespaced": true, "verbs": ["list"]});
                    (
                        200,
                        json!({"kind": "APIResourceList", "groupVersion": "", "resources": [kind]}),
                    )
                }
                _ => (200, json!({})),
            };
            (code, Body::from(answer.to_string()))
        });
        let site = CommandScope { cluster: cluster.await, namespace: String::new() };
        let reader = PageDataReader::new(site, &[]).await;
        let page = refused(&reader, &form(&reader, ObjectAction::Reconcile)).await;
        assert_eq!(page.status, StatusCode::FORBIDDEN);
        let said = "cannot patch resource &quot;kustomizations&quot; in API group";
        assert!(
            page.text.contains(said) && page.text.contains("you may not do this"),
            "{}",
            page.text
        );
    }

    #[tokio::test]
    async fn a_suspension_has_a_reason_and_an_end_that_can_be_read() {
        let (reader, writes) = reader(vec![web()]).await;
        let without = ActionForm { reason: String::new(), ..form(&reader, ObjectAction::Suspend) };
        let page = refused(&reader, &without).await;
        assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY);
        assert!(page.text.contains("give a reason for the suspension"), "{}", page.text);
        let until = "next <week>".to_owned();
        let unread = ActionForm { until, ..form(&reader, ObjectAction::Suspend) };
        let page = refused(&reader, &unread).await;
        assert!(page.text.contains("next &lt;week&gt; is neither a time"), "{}", page.text);
        assert!(patches(&writes).is_empty());
    }

    #[tokio::test]
    async fn a_silence_has_a_reason_and_an_end_within_seven_days() {
        let (reader, writes) = reader(vec![json!({
            "apiVersion": "notification.windlass.dev/v1alpha1", "kind": "Incident",
            "metadata": {"name": "web-1", "namespace": "apps", "uid": "u", "resourceVersion": "7",
                "generation": 2},
            "spec": {"reason": "Build"}, "status": {"state": "Open"},
        })])
        .await;
        for (reason, until, expected) in [
            (" ", "2h", "give a reason for the silence"),
            ("known", "169h", "169h is more than 7 days from now"),
            ("known", "", "is neither a time"),
        ] {
            let mut sent = form(&reader, ObjectAction::Silence);
            sent.place.kind = "incident".to_owned();
            sent.place.name = "web-1".to_owned();
            sent.reason = reason.to_owned();
            sent.until = until.to_owned();
            sent.seal = reader.actions.seal.of(&sent);
            let page = refused(&reader, &sent).await;
            assert_eq!(page.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", page.text);
            assert!(page.text.contains(expected), "{}", page.text);
            assert!(page.text.contains("href=\"/incidents/apps/web-1\""), "{}", page.text);
        }
        assert!(patches(&writes).is_empty());
    }

    /// A reader for a cluster in which access reviews have this answer, and the form of a plan in it.
    async fn planner(review: Value) -> (PageDataReader, ActionForm) {
        let cluster = fake_cluster::answering(move |(request, _)| {
            let path = request.split_once(' ').map_or("", |(_, path)| path);
            let (code, answer) = match path {
                OBJECT_PATH => (200, web()),
                "/apis/kustomize.toolkit.fluxcd.io/v1" => {
                    let kind = json!({"kind": "Kustomization", "name": "kustomizations",
                        "singularName": "", "namespaced": true, "verbs": ["list"]});
                    (
                        200,
                        json!({"kind": "APIResourceList", "groupVersion": "", "resources": [kind]}),
                    )
                }
                path if path.contains("selfsubjectaccessreviews") => (201, review.clone()),
                _ => (200, json!({})),
            };
            (code, Body::from(answer.to_string()))
        });
        let site = CommandScope { cluster: cluster.await, namespace: String::new() };
        let reader = PageDataReader::new(site, &[]).await;
        let form = ActionForm { branch: "new".to_owned(), ..form(&reader, ObjectAction::Plan) };
        (reader, form)
    }

    #[tokio::test]
    async fn a_plan_begins_only_after_a_clear_answer_about_the_verb() {
        let (reader, form) = planner(json!({"status": {"allowed": false}})).await;
        let page = refused(&reader, &form).await;
        assert_eq!(page.status, StatusCode::FORBIDDEN);
        assert!(page.text.contains("you lack the verb `plan` on "), "{}", page.text);
        let away = json!({"status": {"allowed": false, "evaluationError": "webhook is <b>away"}});
        let (reader, form) = planner(away).await;
        let page = refused(&reader, &form).await;
        assert_eq!(page.status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(page.text.contains("webhook is &lt;b&gt;away"), "{}", page.text);
        let invalid = ActionForm { branch: "a..b".to_owned(), ..form };
        assert_eq!(refused(&reader, &invalid).await.status, StatusCode::UNPROCESSABLE_ENTITY);
    }

    #[tokio::test]
    async fn a_plan_that_begins_has_a_page_and_the_next_one_is_refused() {
        tokio::task::LocalSet::new()
            .run_until(async {
                let (reader, form) = planner(json!({"status": {"allowed": true}})).await;
                let ActionReply::Done(page) = perform(&reader, &form, false).await else {
                    panic!("it is refused")
                };
                assert_eq!(page.as_str(), "/plan/GitRepository/apps/web?branch=new");
                let page = refused(&reader, &form).await;
                assert_eq!(page.status, StatusCode::TOO_MANY_REQUESTS, "{}", page.text);
                let without = ActionForm { seal: String::new(), ..form };
                assert_eq!(refused(&reader, &without).await.status, StatusCode::FORBIDDEN);
            })
            .await;
    }
}
