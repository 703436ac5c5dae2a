//! The page "If you merge this": what the cluster would become if a branch of a GitRepository were merged.
//!
//! Reading the page fetches nothing. A form starts the plan, and the page shows how far it is and its result.
//! Elsewhere: starting a plan (`actions/perform.rs`), the plans that were started (`branch_plans.rs`), the plan itself
//! (`windlass_answers::branch_plan`).

use std::time::Duration;

use anyhow::Context as _;
use axum::http::StatusCode;
use jiff::Timestamp;
use maud::{Markup, html};
use objects::{Object, ObjectId};
use plan::{
    ApplierChange, ChangePlan, ChangedObject, FieldChangeList, FindingLevel, PlanFinding,
    PlanObjectReference, UnknownValue, applier_summary, check_status, finding_line,
};
use windlass_answers::branch_plan::{PlannedBranch, source_id};
use windlass_answers::kind_argument;

use super::object::changed_field;
use super::{PageContent, PageRequest};
use crate::actions::{self, BRANCH_PARAMETER};
use crate::branch_plans::{BranchPlanProgress, StartedBranchPlan};
use crate::frame::{PagePart, PageParts};
use crate::page_data_reader::PageDataReader;
use crate::page_elements::{ObjectState, ago, failure, message, object_link, remarks, shape, text};
use crate::route::{ObjectAddress, Route};
use crate::shell_line::shell_line;

/// The maximum numbers of what is shown. The command prints all.
const MAX_SHOWN_APPLIERS: usize = 100;
const MAX_SHOWN_OBJECTS: usize = 200;
const MAX_SHOWN_FIELDS: usize = 50;
const MAX_SHOWN_FINDINGS: usize = 40;

/// How soon the page of a plan in progress is read again.
const RUNNING_RENEWAL: Duration = Duration::from_secs(5);

/// Why a page or its JSON is not shown, although the source was read.
#[derive(Debug, thiserror::Error)]
pub(super) enum BranchPlanRefusal {
    /// The user may not plan branches of the source.
    #[error("{}", actions::lacks_right(.0))]
    Forbidden(String),
    /// The text is not the name of a branch.
    #[error("{0}")]
    NoBranch(String),
    /// A program asks for the plan before it was made.
    #[error("the plan is still being made: {0}")]
    Unfinished(String),
    /// A program asks for a plan that could not be made.
    #[error("the plan could not be made: {0}")]
    Failed(String),
}

impl BranchPlanRefusal {
    /// The HTTP status of the answer.
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::Forbidden(_) => StatusCode::FORBIDDEN,
            Self::NoBranch(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Unfinished(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Failed(_) => StatusCode::BAD_GATEWAY,
        }
    }
}

/// Makes the page.
///
/// # Errors
/// The source cannot be read, the user may not plan it or that is not known, or a program asks for a plan that is not made.
pub(super) async fn page(
    reader: &PageDataReader,
    request: &PageRequest,
    namespace: &str,
    name: &str,
) -> anyhow::Result<PageContent> {
    let read_at = Timestamp::now();
    let place = ObjectAddress::of(&source_id(namespace, name));
    let cluster = &reader.site.cluster;
    let target = kind_argument::one(cluster, &[place.word()]).await?;
    let Some(source) = cluster.get(&target.resource, namespace, name).await? else {
        let absent = kind_argument::absent(&reader.site, &target).await;
        return Ok(PageContent::Absent(absent.to_string()));
    };
    let may_plan = reader.actions.may_plan(cluster, &target, &source).await;
    if !may_plan.context("whether you may plan branches of this source is not known")? {
        return Err(BranchPlanRefusal::Forbidden(source.id().subject()).into());
    }
    let branch = request.query.get(BRANCH_PARAMETER);
    let planned = match branch {
        "" => None,
        branch => {
            let planned = PlannedBranch::new(namespace, name, branch);
            Some(planned.map_err(|error| BranchPlanRefusal::NoBranch(error.to_string()))?)
        }
    };
    let started = planned.as_ref().and_then(|planned| reader.branch_plans.find(planned));
    if request.wants_json {
        return json(started.as_ref());
    }
    let is_running = started
        .as_ref()
        .is_some_and(|it| matches!(it.progress, BranchPlanProgress::Running { .. }));
    let form = match is_running {
        true => html! {},
        false => actions::branch_form(reader, &place, &source, branch),
    };
    let parts = vec![
        PagePart::whole("head", head(&source, branch)),
        PagePart::whole("result", result(branch, started.as_ref(), read_at)),
        PagePart::whole("actions", form),
    ];
    Ok(PageContent::Html(PageParts {
        route: Route::BranchPlan { namespace: namespace.to_owned(), name: name.to_owned() },
        title: "If you merge this".to_owned(),
        command: command(namespace, name, branch),
        read_at,
        parts,
        renew_after: is_running.then_some(RUNNING_RENEWAL),
        version: String::new(),
    }))
}

/// The command that prints the same plan.
fn command(namespace: &str, name: &str, branch: &str) -> String {
    let branch = if branch.is_empty() { "BRANCH" } else { branch };
    let source = format!("{}/{namespace}/{name}", windlass_answers::branch_plan::SOURCE_KIND);
    shell_line(&["windlass", "plan", "--live", "--branch", branch, "--source", &source])
}

/// The same JSON that the command prints with `-o json`.
fn json(started: Option<&StartedBranchPlan>) -> anyhow::Result<PageContent> {
    let Some(StartedBranchPlan { progress, .. }) = started else {
        let text = "this branch was not planned in this session; a form of the page starts that";
        return Ok(PageContent::Absent(text.to_owned()));
    };
    match progress {
        BranchPlanProgress::Running { step } => {
            Err(BranchPlanRefusal::Unfinished((**step).to_owned()).into())
        }
        BranchPlanProgress::Failed(why) => {
            Err(BranchPlanRefusal::Failed((**why).to_owned()).into())
        }
        BranchPlanProgress::Made(plan) => Ok(PageContent::Json(serde_json::to_value(&**plan)?)),
    }
}

fn head(source: &Object, branch: &str) -> Markup {
    html! {
        div class="head" {
            h1 { "If you merge this" }
            p {
                @if !branch.is_empty() { "Branch " span class="mono" { (text(branch)) } " of " }
                (object_link(&source.id()))
                " · compared by dry-runs with your rights, and nothing is changed"
            }
        }
    }
}

fn result(branch: &str, started: Option<&StartedBranchPlan>, now: Timestamp) -> Markup {
    let Some(StartedBranchPlan { started_at, progress }) = started else {
        return html! {
            @if !branch.is_empty() {
                div class="alert" role="status" {
                    (shape(ObjectState::Unknown))
                    div {
                        "This branch was not planned in this session, or its plan is not kept any more. "
                        "Each replica of these pages knows only its own plans."
                    }
                }
            }
        };
    };
    match progress {
        BranchPlanProgress::Running { step } => html! {
            div class="alert" role="status" {
                (shape(ObjectState::Progressing))
                div { strong { "The plan is being made" } br; (message(step)) }
            }
        },
        BranchPlanProgress::Failed(why) => failure("The plan could not be made", why),
        BranchPlanProgress::Made(plan) => html! {
            (verdict(plan, *started_at, now))
            (findings(&plan.findings, plan.omitted_findings))
            (appliers(plan))
        },
    }
}

/// What would happen, in one sentence.
fn verdict(plan: &ChangePlan, started_at: Timestamp, now: Timestamp) -> Markup {
    let has_error = plan.findings.iter().any(|it| it.level == FindingLevel::Error);
    let is_incomplete = plan.base_incomplete.is_some() || plan.head_incomplete.is_some();
    let state = match () {
        () if has_error => ObjectState::Failing,
        () if is_incomplete || plan.summary.not_compared > 0 => ObjectState::Unknown,
        () => ObjectState::Ready,
    };
    let class = if has_error { "alert bad" } else { "alert" };
    html! {
        div class=(class) role="status" {
            (shape(state))
            div {
                strong {
                    @if plan.is_unchanged() { "Nothing would change" }
                    @else { (text(&check_status(plan, &[]).description)) }
                }
                br;
                "Commit " span class="mono" { (text(&plan.head_revision)) }
                ", compared with the cluster " (ago(Some(started_at), now)) " ago"
            }
        }
    }
}

fn findings(all: &[PlanFinding], omitted: usize) -> Markup {
    let more = all.len().saturating_sub(MAX_SHOWN_FINDINGS) + omitted;
    html! {
        @if !all.is_empty() {
            section class="panel" {
                header { h2 { "What deserves attention" } }
                div class="diff" {
                    @for finding in all.iter().take(MAX_SHOWN_FINDINGS) { p { (message(&finding_line(finding))) } }
                    @if more > 0 { p { (more) " more" } }
                }
            }
        }
    }
}

fn appliers(plan: &ChangePlan) -> Markup {
    let more = plan.appliers.len().saturating_sub(MAX_SHOWN_APPLIERS);
    html! {
        @for change in plan.appliers.iter().take(MAX_SHOWN_APPLIERS) { (applier(change)) }
        @if more > 0 { p { (more) " more appliers" } }
    }
}

/// The changes of one applier: first what is deleted, then what changes, what is new, and what is not known.
fn applier(change: &ApplierChange) -> Markup {
    let notes = notes(change);
    html! {
        section class="panel" {
            header {
                h2 { (reference(&change.applier)) }
                span class="more" { (text(&applier_summary(change))) }
            }
            (remarks(&notes))
            div class="diff" {
                @for removed in change.removed.iter().take(MAX_SHOWN_OBJECTS) {
                    @match &removed.left_in_cluster {
                        Some(why) => {
                            h3 { "- removed " (reference(&removed.object)) }
                            p { "left in the cluster: " (text(why)) }
                        }
                        None => h3 { "- deleted " (reference(&removed.object)) },
                    }
                }
                (beyond(change.removed.len()))
                @for changed in change.changed.iter().take(MAX_SHOWN_OBJECTS) {
                    (changed_object(changed))
                }
                (beyond(change.changed.len()))
                @for moved in change.moved.iter().take(MAX_SHOWN_OBJECTS) {
                    h3 { "> moved " (reference(&moved.object)) " from " (reference(&moved.from)) }
                    (fields(&moved.fields))
                }
                (beyond(change.moved.len()))
                @for moved in change.moved_to.iter().take(MAX_SHOWN_OBJECTS) {
                    h3 { "> moves " (reference(&moved.object)) " to " (reference(&moved.to)) }
                }
                (beyond(change.moved_to.len()))
                @for added in change.added.iter().take(MAX_SHOWN_OBJECTS) {
                    h3 { "+ created " (reference(added)) }
                }
                (beyond(change.added.len()))
                @for object in change.not_compared.iter().take(MAX_SHOWN_OBJECTS) {
                    h3 { "? not compared " (reference(object)) }
                }
                (beyond(change.not_compared.len()))
                (unknown(&change.unknown_values))
            }
        }
    }
}

/// What is true of the applier as a whole.
fn notes(change: &ApplierChange) -> Vec<String> {
    let mut notes: Vec<String> = change.message.iter().cloned().collect();
    if change.is_suspended {
        notes.push("it is suspended: nothing of this happens before it is resumed".to_owned());
    }
    if change.is_resumed {
        let text = "it is resumed: what changed while it was suspended happens with this, and is not compared";
        notes.push(text.to_owned());
    }
    notes.extend(change.unknown_removal.as_ref().map(|removal| match &removal.left_in_cluster {
        Some(why) => format!(
            "it is removed, and its objects are left in the cluster ({why}); which they are is not known: {}",
            removal.reason
        ),
        None => format!(
            "it is removed with its objects; which they are is not known: {}",
            removal.reason
        ),
    }));
    let moved = change.moved_sources.iter();
    notes.extend(moved.map(|it| format!("not known: {}: {}", it.what, it.reason)));
    notes
}

fn changed_object(changed: &ChangedObject) -> Markup {
    html! {
        h3 { "~ changed " (reference(&changed.object)) }
        (fields(&changed.fields))
    }
}

fn fields(list: &FieldChangeList) -> Markup {
    let beyond = list.fields.len().saturating_sub(MAX_SHOWN_FIELDS) + list.omitted_fields;
    html! {
        @for field in list.fields.iter().take(MAX_SHOWN_FIELDS) { (changed_field(field)) }
        @if beyond > 0 { p { (beyond) " more fields" } }
    }
}

fn unknown(values: &[UnknownValue]) -> Markup {
    html! {
        @for value in values.iter().take(MAX_SHOWN_OBJECTS) {
            h3 { "? not known " (text(&value.what)) }
            p { (message(&value.reason)) }
        }
        (beyond(values.len()))
    }
}

/// The number of objects of a list that are not shown.
fn beyond(count: usize) -> Markup {
    let more = count.saturating_sub(MAX_SHOWN_OBJECTS);
    html! { @if more > 0 { p { (more) " more objects" } } }
}

/// A link to an object of the plan.
fn reference(object: &PlanObjectReference) -> Markup {
    let PlanObjectReference { group, kind, namespace, name } = object;
    object_link(&ObjectId::new(namespace, name, group, kind))
}

#[cfg(test)]
mod tests;
