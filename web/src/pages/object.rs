//! The pages of one object: explanation, applied objects, predicted changes, history, values, and the object itself.
//!
//! Each tab is read when the user opens it, with the rights of the user. Below: the tabs (`object/…`).

mod drawn_graph;
mod explanation;
mod graph_nodes;
mod logs;
mod past_operations_and_events;
mod predicted_changes_and_values;
mod tree_list;

pub(super) use self::predicted_changes_and_values::changed_field;

use cause::object_references;
use jiff::Timestamp;
use maud::{Markup, html};
use objects::Object;
use serde_json::Value;
use windlass_answers::command_scope::shown;
use windlass_answers::kind_argument::{self, ResourceArgument};
use windlass_answers::object_row::ObjectRow;
use windlass_answers::{events, helm_release_values, history, tree, why};
use windlass_cluster::ClusterError;

use super::{PageContent, PageRequest, complete};
use crate::actions;
use crate::frame::{PagePart, PageParts};
use crate::href::Href;
use crate::page_data_reader::{PageDataReader, UNSETTLED_RENEWAL};
use crate::page_elements::{ObjectState, ago, lines, message, pill, shape, text};
use crate::reconciled_object_rows::state_of;
use crate::route::{ObjectAddress, ObjectTab, Route};

/// The inputs of a tab.
struct ObjectTabInputs<'r> {
    reader: &'r PageDataReader,
    place: &'r ObjectAddress,
    target: ResourceArgument,
    object: Object,
    /// The release that the user selected, if the object is a Helmfile.
    release: Option<&'r str>,
    /// Whether the request needs only the JSON and not the HTML.
    wants_json: bool,
    now: Timestamp,
}

/// The content of a tab, as HTML and as JSON.
struct TabContent {
    parts: Vec<PagePart>,
    json: Value,
}

impl TabContent {
    /// Makes a tab with a single part.
    fn of(content: Markup, json: Value) -> Self {
        Self { parts: vec![PagePart::whole("tab", content)], json }
    }
}

/// Makes the page.
///
/// # Errors
/// There is no such kind, the object has no such tab, or the API server refused or did not respond.
pub(super) async fn page(
    reader: &PageDataReader,
    request: &PageRequest,
    place: &ObjectAddress,
    tab: ObjectTab,
) -> anyhow::Result<PageContent> {
    let target = kind_argument::one(&reader.site.cluster, &[place.word()]).await?;
    of_target(reader, request, place, tab, target).await
}

/// Makes the page of the object that the path names.
async fn of_target(
    reader: &PageDataReader,
    request: &PageRequest,
    place: &ObjectAddress,
    tab: ObjectTab,
    target: ResourceArgument,
) -> anyhow::Result<PageContent> {
    let now = Timestamp::now();
    let Some(object) = read(reader, &target).await? else {
        let absent = kind_argument::absent(&reader.site, &target).await.to_string();
        // windlass may carry out an approved Plan and delete it before the browser loads this page.
        let done = reader.actions.done(request.query.get(actions::DONE_PARAMETER));
        let text = done.map_or_else(|| absent.clone(), |done| format!("{done}. By now, {absent}"));
        return Ok(PageContent::Absent(text));
    };
    let kind = object.kind().to_owned();
    if !tab.is_of(&kind) {
        let text = format!("objects of kind {kind} have no page {}", tab.title());
        return Ok(PageContent::Absent(text));
    }
    let head = head(&object, place, tab, now);
    let version = object.meta("resourceVersion").and_then(Value::as_str).unwrap_or_default();
    let version = version.to_owned();
    let state = state_of(&ObjectRow::of_any(&object, now));
    // Pods decide when an object becomes ready, but they are not watched. Containers also print logs without any change of the
    // object.
    let is_settled =
        !matches!(state, ObjectState::Failing | ObjectState::Waiting | ObjectState::Progressing);
    let is_renewed = tab == ObjectTab::Logs || (!is_settled && tab != ObjectTab::Diff);
    let mut heads = vec![PagePart::whole("head", head)];
    if !request.wants_json {
        heads.extend(asked(reader, request, &target, &object, place).await);
    }
    let release = Some(request.query.get("release")).filter(|name| !name.is_empty());
    let wants_json = request.wants_json;
    let read = ObjectTabInputs { reader, place, target, object, release, wants_json, now };
    let command = command(place, tab);
    let TabContent { parts, json } = match tab {
        ObjectTab::Why => explained(read).await?,
        ObjectTab::Graph => drawn(read).await?,
        ObjectTab::Logs => printed(read).await?,
        ObjectTab::Tree => applied(read).await?,
        ObjectTab::Diff => {
            let _permit = read.reader.predictions.acquire().await?;
            predicted_changes_and_values::predicted(&read.reader.site, read.object, wants_json)
                .await?
        }
        ObjectTab::History => done(read).await?,
        ObjectTab::Events => happened(read).await?,
        ObjectTab::Values => valued(read).await?,
        ObjectTab::Yaml => itself(read)?,
    };
    if request.wants_json {
        return Ok(PageContent::Json(json));
    }
    Ok(PageContent::Html(PageParts {
        route: Route::Object { place: place.clone(), tab },
        title: format!("{kind} {}", place.name),
        command,
        read_at: now,
        parts: heads.into_iter().chain(parts).collect(),
        renew_after: is_renewed.then_some(UNSETTLED_RENEWAL),
        version,
    }))
}

/// The message about the user's last action, and the forms for further actions.
pub(super) async fn asked(
    reader: &PageDataReader,
    request: &PageRequest,
    target: &ResourceArgument,
    object: &Object,
    place: &ObjectAddress,
) -> [PagePart; 2] {
    let done = reader.actions.done(request.query.get(actions::DONE_PARAMETER));
    let said = html! {
        @if let Some(done) = done {
            div class="alert done" role="status" { (shape(ObjectState::Ready)) div { (message(&done)) } }
        }
    };
    let forms = actions::panel(reader, place, target, object).await;
    [PagePart::whole("done", said), PagePart::whole("actions", forms)]
}

/// Reads the object. Returns `None` if it does not exist.
async fn read(
    reader: &PageDataReader,
    target: &ResourceArgument,
) -> Result<Option<Object>, ClusterError> {
    let namespace = reader.site.namespace_of(target);
    let name = target.name.as_deref().unwrap_or_default();
    reader.site.cluster.get(&target.resource, namespace, name).await
}

/// The command that prints the content of a tab.
fn command(place: &ObjectAddress, tab: ObjectTab) -> String {
    let named = place.command_words();
    match tab {
        ObjectTab::Why => format!("windlass why {named}"),
        // The graph is a picture of the tree.
        ObjectTab::Graph | ObjectTab::Tree => format!("windlass tree {named}"),
        ObjectTab::Diff => format!("windlass diff {named}"),
        ObjectTab::History => format!("windlass history {named}"),
        ObjectTab::Events => format!("windlass events {named}"),
        ObjectTab::Logs => format!("windlass logs --workload {named} --tail {}", logs::LAST_LINES),
        ObjectTab::Values => format!("windlass values {named}"),
        ObjectTab::Yaml => format!("windlass get {named} -o yaml"),
    }
}

/// The head of the page: the name of the object, its state, and the tabs.
fn head(object: &Object, place: &ObjectAddress, tab: ObjectTab, now: Timestamp) -> Markup {
    let row = ObjectRow::of_any(object, now);
    let kind = object.kind();
    let tabs = ObjectTab::ALL.into_iter().filter(|it| it.is_of(kind));
    let current = |it: ObjectTab| (it == tab).then_some("page");
    html! {
        div class="head" {
            h1 { (text(object.name())) (pill(state_of(&row))) }
            p {
                (text(kind))
                @if !object.namespace().is_empty() { " in " (text(object.namespace())) }
                @if row.since.is_some() { " · " (state_of(&row).word()) " for " (ago(row.since, now)) }
                @if !row.revision.is_empty() { " · " span class="mono" { (text(&row.revision)) } }
                @if row.is_suspended() { " · suspended: " (text(&row.suspended)) }
            }
        }
        nav class="tabs" aria-label="Of this object" {
            @for it in tabs {
                a href=(Href::inside(&Route::Object { place: place.clone(), tab: it })) aria-current=[current(it)] { (it.title()) }
            }
        }
    }
}

async fn explained(read: ObjectTabInputs<'_>) -> anyhow::Result<TabContent> {
    let ObjectTabInputs { reader, target, object, now, .. } = read;
    let found = why::explain(&reader.site, &target, None).await?;
    let json = serde_json::to_value(why::WhyReport::of(&found))?;
    Ok(TabContent { parts: explanation::parts(&found, &object, now), json })
}

async fn applied(read: ObjectTabInputs<'_>) -> anyhow::Result<TabContent> {
    let found = tree::read(&read.reader.site, read.object, false).await?;
    let json = serde_json::to_value(&found)?;
    Ok(TabContent::of(tree_list::content(&found), json))
}

async fn drawn(read: ObjectTabInputs<'_>) -> anyhow::Result<TabContent> {
    let id = read.object.id();
    let applier = object_references::applier(&read.object);
    let found = tree::read(&read.reader.site, read.object, false).await?;
    let json = serde_json::to_value(&found)?;
    let nodes = graph_nodes::of_tree(&found, &id, applier.as_ref());
    Ok(TabContent::of(drawn_graph::content(&nodes, read.place), json))
}

async fn printed(read: ObjectTabInputs<'_>) -> anyhow::Result<TabContent> {
    let ObjectTabInputs { reader, object, wants_json, .. } = read;
    let found = logs::read(&reader.site, object).await?;
    if wants_json {
        complete(&found.left_out)?;
    }
    Ok(TabContent::of(logs::content(&found), logs::json(&found)))
}

async fn done(read: ObjectTabInputs<'_>) -> anyhow::Result<TabContent> {
    let ObjectTabInputs { reader, object, release, now, .. } = read;
    let found = history::read(&reader.site, &object, release).await?;
    let content = past_operations_and_events::history(&found, now);
    Ok(TabContent::of(content, found.entries.into()))
}

async fn happened(read: ObjectTabInputs<'_>) -> anyhow::Result<TabContent> {
    let ObjectTabInputs { reader, place, wants_json, now, .. } = read;
    let words = [place.word()];
    let query = events::EventQuery { words: &words, labels: "", types: &[] };
    let found = events::listed(&reader.site, &query).await?;
    if wants_json {
        complete(&found.left_out)?;
    }
    let content = past_operations_and_events::events(&found, now);
    let all = found.events.into_iter().map(|it| shown(it).into_value()).collect();
    Ok(TabContent::of(content, Value::Array(all)))
}

async fn valued(read: ObjectTabInputs<'_>) -> anyhow::Result<TabContent> {
    let found = helm_release_values::read(&read.reader.site, read.object, None).await?;
    let json = serde_json::to_value(&found.origins)?;
    Ok(TabContent::of(predicted_changes_and_values::values(&found), json))
}

fn itself(read: ObjectTabInputs<'_>) -> anyhow::Result<TabContent> {
    let json = shown(read.object).into_value();
    let yaml = goyaml::emit_with_escapes(&json)?;
    let content = html! { div class="panel" { pre class="yaml" { bdi { (lines(&yaml)) } } } };
    Ok(TabContent::of(content, json))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::hostile_strings::{assert_markup, hostile_strings};
    use crate::page_query::PageQuery;
    use windlass_answers::command_scope::CommandScope;
    use windlass_cluster::discovery::ApiResourceLocation;

    async fn answered(objects: Vec<Value>, tab: ObjectTab, wants_json: bool) -> PageContent {
        let (cluster, _) = fake_cluster::with_objects(objects).await;
        let site = CommandScope { cluster, namespace: String::new() };
        let reader = PageDataReader::new(site, &[]).await;
        let words = ["secret", "apps", "db"].map(str::to_owned);
        let [kind, namespace, name] = words;
        let place = ObjectAddress { kind, namespace, name };
        let route = Route::Object { place: place.clone(), tab };
        let request = PageRequest { route, query: PageQuery::default(), wants_json };
        let gvk = objects::Gvk::new("v1", "Secret");
        let plural = "secrets".to_owned();
        let resource = ApiResourceLocation { gvk, plural, namespaced: true, watchable: true };
        let name = Some(place.name.clone());
        let target = ResourceArgument { resource, namespace: Some("apps".to_owned()), name };
        of_target(&reader, &request, &place, tab, target).await.unwrap()
    }

    fn shown_text(page: PageParts) -> String {
        page.parts.into_iter().map(|part| part.content.into_string()).collect()
    }

    fn secret() -> Value {
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db", "namespace": "apps",
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "hunter2", "note": "<script>"}},
            "data": {"password": "aHVudGVyMg=="}})
    }

    #[tokio::test]
    async fn no_value_of_a_secret_is_on_its_page_or_in_its_json() {
        for tab in [ObjectTab::Yaml, ObjectTab::Why, ObjectTab::Graph, ObjectTab::Tree] {
            let PageContent::Html(page) = answered(vec![secret()], tab, false).await else {
                panic!("a page")
            };
            let html = shown_text(page);
            assert!(!html.contains("hunter2") && !html.contains("aHVudGVyMg"), "{html}");
            let PageContent::Json(json) = answered(vec![secret()], tab, true).await else {
                panic!("JSON")
            };
            let json = json.to_string();
            assert!(!json.contains("hunter2") && !json.contains("aHVudGVyMg"), "{json}");
        }
        let PageContent::Html(page) = answered(vec![secret()], ObjectTab::Yaml, false).await else {
            panic!("a page")
        };
        let command = page.command.clone();
        let html = shown_text(page);
        assert!(
            html.contains("note: &lt;script&gt;") || html.contains("note: '&lt;script&gt;'"),
            "{html}"
        );
        assert_eq!(command, "windlass get secret/db -n apps -o yaml");
    }

    #[tokio::test]
    async fn hostile_strings_in_annotations_are_text_only() {
        let mut object = secret();
        let mut all = hostile_strings();
        // A page shows the first 64 Ki characters of a text.
        all.retain(|it| it.len() < 300);
        for (at, hostile) in all.iter().enumerate() {
            object["metadata"]["annotations"][format!("note-{at}")] = hostile.as_str().into();
        }
        let PageContent::Html(page) = answered(vec![object], ObjectTab::Yaml, false).await else {
            panic!("a page")
        };
        let html = shown_text(page);
        assert!(html.contains("note-0: ") && html.contains("note-9: "), "{html}");
        assert_markup(&html, &all);
    }

    #[tokio::test]
    async fn an_object_that_is_not_there_is_absent_and_no_error() {
        let other = json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "dc", "namespace": "apps"}});
        let found = answered(vec![other], ObjectTab::Why, false).await;
        assert!(
            matches!(found, PageContent::Absent(text) if text.starts_with("Secret/apps/db does not exist"))
        );
    }
}
