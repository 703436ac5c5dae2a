//! The page of operations that wait for an approval: operations that a Lifecycle holds, and Plans.

use jiff::Timestamp;
use maud::{Markup, html};
use objects::{Object, ObjectId};
use reconcile::Time;
use serde_json::Value;
use windlass_answers::command_scope::shown;
use windlass_answers::object_row::ObjectRow;
use windlass_cli_runtime::table::cut;

use super::{PageContent, PageRequest, ROWS_PER_PAGE, complete, list_of};
use crate::frame::{PagePart, PageParts};
use crate::href::Href;
use crate::page_data_reader::PageDataReader;
use crate::page_elements::{ObjectState, ago, message, shape, text};
use crate::route::{ObjectAddress, ObjectTab, Route};
use crate::shell_line::shell_line;

/// The kinds that hold an operation until a user approves it.
const KINDS: [&str; 2] = ["lifecycleevents", "plans"];

/// How many objects of a kind the page reads.
const MAX_OBJECTS: usize = 2_000;

/// How many characters of an operation's message are kept. The page of the object shows the whole message.
const MAX_MESSAGE_CHARACTERS: usize = 1_000;

/// An operation that needs or needed an approval. The object itself is not kept, because a Plan may list thousands of changes.
#[derive(Debug, Clone)]
pub(crate) struct HeldOperation {
    id: ObjectId,
    message: String,
    created: Option<Time>,
    /// Whether the operation still waits for a user's answer.
    is_waiting: bool,
}

impl HeldOperation {
    fn of(object: &Object, now: Time) -> Self {
        let row = ObjectRow::of(object, now);
        Self {
            id: object.id(),
            message: cut(&row.message, MAX_MESSAGE_CHARACTERS),
            created: row.created,
            is_waiting: is_waiting(object),
        }
    }
}

/// Operations of both kinds. Those that wait come first.
#[derive(Debug, Default)]
pub(crate) struct WaitingOperations {
    pub(crate) all: Vec<HeldOperation>,
    /// Why a kind is missing from the list.
    pub(crate) left_out: Vec<String>,
    /// The flags that a command needs to reach the same cluster.
    pub(crate) flags: String,
}

/// Makes the page.
///
/// # Errors
/// None of the kinds can be read.
pub(super) async fn page(
    reader: &PageDataReader,
    request: &PageRequest,
) -> anyhow::Result<PageContent> {
    if request.wants_json {
        return Ok(PageContent::Json(list(reader).await?));
    }
    let read_at = Timestamp::now();
    let found = waiting(reader).await;
    let is_unknown = found.all.is_empty() && found.left_out.len() == KINDS.len();
    anyhow::ensure!(!is_unknown, "{}", found.left_out.join("; "));
    Ok(PageContent::Html(PageParts {
        route: Route::Approvals,
        title: "Approvals".to_owned(),
        command: format!("windlass get {} {}", KINDS.join(","), reader.scope_flag()),
        read_at,
        parts: vec![PagePart::whole(
            "waiting",
            panel("What waits for an approval", &found, ROWS_PER_PAGE, read_at),
        )],
        renew_after: reader.record_renewal(),
        version: String::new(),
    }))
}

/// The objects of both kinds, as the command prints them.
async fn list(reader: &PageDataReader) -> anyhow::Result<Value> {
    let mut items: Vec<Value> = Vec::new();
    for target in reader.targets(&[KINDS.join(",").as_str()]).await? {
        let refused = reader.site.list(&target, "", |objects| {
            items.extend(objects.into_iter().map(|it| shown(it).into_value()));
            anyhow::ensure!(items.len() <= MAX_OBJECTS, "there are more than {MAX_OBJECTS}");
            Ok(())
        });
        let refused = refused.await?;
        complete(&refused)?;
    }
    Ok(list_of(items))
}

/// Reads both kinds. If a kind is not installed or cannot be read, the result says so.
pub(super) async fn waiting(reader: &PageDataReader) -> WaitingOperations {
    let mut found =
        WaitingOperations { flags: reader.facts.flags.clone(), ..WaitingOperations::default() };
    for kind in KINDS {
        if let Err(error) = read(reader, kind, &mut found).await {
            found.left_out.push(format!("{kind}: {error:#}"));
        }
    }
    found.all.sort_by_key(|it| !it.is_waiting);
    found
}

async fn read(
    reader: &PageDataReader,
    kind: &str,
    found: &mut WaitingOperations,
) -> anyhow::Result<()> {
    let now = Timestamp::now();
    for target in reader.targets(&[kind]).await? {
        let mut beyond = 0;
        let all = &mut found.all;
        let begin = all.len();
        let refused = reader.site.list(&target, "", |objects| {
            for object in &objects {
                match all.len() - begin < MAX_OBJECTS {
                    true => all.push(HeldOperation::of(object, now)),
                    false => beyond += 1,
                }
            }
            Ok(())
        });
        let refused = refused.await?;
        found.left_out.extend(refused);
        if beyond > 0 {
            found.left_out.push(format!("{kind}: {beyond} more"));
        }
    }
    Ok(())
}

/// Whether the operation still waits for a user. It does if there is no rejection and fewer approvals than it needs.
fn is_waiting(object: &Object) -> bool {
    let status = object.get("status").unwrap_or(&Value::Null);
    let approvals = status["approvals"].as_array().map_or(0, Vec::len);
    let approvals = u64::try_from(approvals).unwrap_or(u64::MAX);
    let spec = object.get("spec").unwrap_or(&Value::Null);
    let needed = spec["approvals"].as_u64();
    match object.kind() {
        "LifecycleEvent" => {
            let is_open =
                matches!(status["phase"].as_str(), None | Some("" | "Pending" | "Running"));
            is_open && needed.is_some_and(|needed| needed > approvals)
        }
        _ => {
            let is_merged = !status["pullRequest"]["number"].is_null();
            let is_rejected = !status["rejection"].is_null();
            !is_rejected && !is_merged && approvals < needed.unwrap_or(1).max(1)
        }
    }
}

/// Renders the operations, one line each, and the remarks about missing kinds.
pub(super) fn panel(title: &str, found: &WaitingOperations, most: usize, now: Timestamp) -> Markup {
    let waiting = found.all.iter().filter(|it| it.is_waiting).count();
    let more = found.all.len().saturating_sub(most);
    html! {
        section class="panel" {
            header {
                h2 { (title) }
                span class="more" { (waiting) " waiting" }
            }
            @if found.all.is_empty() && found.left_out.is_empty() {
                p { "Nothing waits: no Lifecycle and no Plan holds an operation." }
            }
            @for operation in found.all.iter().take(most) { (item(operation, &found.flags, now)) }
            @if more > 0 { p { a href=(Href::inside(&Route::Approvals)) { (more) " more" } } }
            @for text in &found.left_out { div class="empty" { "Not known: " (message(text)) } }
        }
    }
}

fn item(operation: &HeldOperation, flags: &str, now: Timestamp) -> Markup {
    let HeldOperation { id, message: said, created, is_waiting } = operation;
    let state = if *is_waiting { ObjectState::Waiting } else { ObjectState::Ready };
    let route = Route::Object { place: ObjectAddress::of(id), tab: ObjectTab::Yaml };
    html! {
        div class="item" {
            (shape(state))
            strong { (message(said)) }
            (ago(*created, now))
            p {
                a href=(Href::inside(&route)) { (text(&id.subject())) }
                @if *is_waiting {
                    " · " code { (approving(id)) @if !flags.is_empty() { " " (flags) } }
                } @else { " · answered" }
            }
        }
    }
}

/// The command with which a user approves an operation.
fn approving(id: &ObjectId) -> String {
    let word = match id.kind.as_str() {
        "Plan" => format!("plan/{}", id.name),
        _ => id.name.clone(),
    };
    shell_line(&["windlass", "approve", &word, "-n", &id.namespace])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(approvals: u64, status: &Value) -> Object {
        Object::new(json!({"apiVersion": "lifecycle.windlass.dev/v1alpha1", "kind": "LifecycleEvent",
            "metadata": {"name": "web-1", "namespace": "apps"}, "spec": {"phase": "PreUpgrade",
            "lifecycle": "<script>", "approvals": approvals, "subject": {"kind": "HelmRelease", "name": "web"}},
            "status": status}))
        .unwrap()
    }

    #[test]
    fn an_operation_waits_until_enough_users_approve() {
        let alice = json!({"user": "alice"});
        assert!(is_waiting(&event(2, &json!({"approvals": [alice]}))));
        assert!(!is_waiting(&event(1, &json!({"approvals": [alice]}))));
        assert!(!is_waiting(&event(1, &json!({"phase": "Rejected"}))));
        assert!(!is_waiting(&event(0, &json!({}))), "no user is asked");
        let plan = |status: Value| {
            let plan = json!({"apiVersion": "release.windlass.dev/v1alpha1", "kind": "Plan",
                "metadata": {"name": "a"}, "spec": {}, "status": status});
            is_waiting(&Object::new(plan).unwrap())
        };
        assert!(plan(json!({})) && !plan(json!({"approvals": [alice]})));
        assert!(!plan(json!({"pullRequest": {"number": 7}})));
        assert!(!plan(json!({"rejection": {"user": "bob"}})), "a rejection is an answer");
    }

    #[test]
    fn a_plan_waits_for_as_many_users_as_it_needs_or_for_a_pull_request() {
        let plan = |status: Value| {
            let plan = json!({"apiVersion": "release.windlass.dev/v1alpha1", "kind": "Plan",
                "metadata": {"name": "a"}, "spec": {"approvals": 2, "changes": {}}, "status": status});
            is_waiting(&Object::new(plan).unwrap())
        };
        assert!(plan(json!({"approvals": [{"user": "alice"}]})));
        assert!(!plan(json!({"approvals": [{"user": "alice"}, {"user": "bob"}]})));
        assert!(!plan(json!({"pullRequest": {"number": 7}})));
    }

    #[test]
    fn what_waits_has_its_command_and_what_is_not_known_is_no_all_clear() {
        let now = "2026-11-24T12:00:00Z".parse().unwrap();
        let object = event(1, &json!({}));
        let all = vec![HeldOperation::of(&object, now)];
        let left_out = vec!["plans: forbidden <b>".to_owned()];
        let found = WaitingOperations { all, left_out, flags: "--context prod".to_owned() };
        let html = panel("Waiting for approval", &found, 5, now).into_string();
        assert!(html.contains("PreUpgrade of HelmRelease/web, lifecycle &lt;script&gt;"), "{html}");
        assert!(
            html.contains("<code>windlass approve web-1 -n apps --context prod</code>"),
            "{html}"
        );
        assert!(html.contains("Not known: <bdi>plans: forbidden &lt;b&gt;</bdi>"), "{html}");
        assert!(!html.contains("Nothing waits"), "{html}");
        let none = panel("x", &WaitingOperations::default(), 5, now).into_string();
        assert!(none.contains("Nothing waits"), "{none}");
    }
}
