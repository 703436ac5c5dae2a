//! Compares how the API server and the engine `crdguard` judge objects: random schemas, changes of schemas, and objects
//! (`random_schemas`).
//!
//! Each CRD contains several schemas, one for each field of `spec`. So a few CRDs test many schemas.

mod random_schemas;

use anyhow::{Context as _, Result, bail, ensure};
use crdguard::{
    CrdChangeJudge, CrdChangeProblem, CrdDefinition, CrdGuardFacts, WebhookServicePresence,
};
use e2e::harness::flux_objects::DEFAULT_WAIT_TIMEOUT;
use e2e::harness::stored_object_comparison::contains;
use e2e::harness::{Story, StoryObject};
use e2e::random_sequence::RandomSequence;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use golang::work_meter::StopSignal;
use kube::Api;
use kube::api::{DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Map, Value, json};

use random_schemas::{changed, schema, value};

/// The number of schemas in a CRD, and of objects for each.
const FIELDS: usize = 10;
const OBJECTS: usize = 6;

/// The depth of nested schemas.
const DEPTH: usize = 3;

/// How many random objects are tried until one is valid.
const TRIES: usize = 30;

/// The number of CRDs. There are 500 schemas if the test may take long.
const DEFINITIONS: usize = if cfg!(feature = "thorough") { 50 } else { 4 };

/// The minimum number of objects that changes have to break, because changes without effect prove little. If there are too few,
/// further rounds of CRDs follow.
const MIN_BROKEN_OBJECTS: usize = 20;
const MAX_ROUNDS: usize = 8;

/// A CRD of a group, whose `spec` has these fields.
fn definition(group: &str, fields: &Map<String, Value>) -> Value {
    let whole = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": fields}}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("things.{group}")},
        "spec": {"group": group, "scope": "Namespaced",
            "names": {"kind": "Thing", "plural": "things"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": whole}}]}})
}

fn thing(group: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("{group}/v1"), "kind": "Thing", "metadata": {"name": "probe"}, "spec": spec})
}

fn target(group: &str) -> StoryObject {
    let name = format!("things.{group}");
    StoryObject::new("apiextensions.k8s.io/v1", "CustomResourceDefinition", &name)
}

/// Creates a CRD, and waits until its objects can be created.
async fn serve(story: &Story, definition: &Value) -> Result<Api<DynamicObject>> {
    let group = definition["spec"]["group"].as_str().unwrap_or_default();
    let made = story.apply_value(definition.clone()).await;
    made.with_context(|| format!("{definition:#}"))?;
    story.await_condition(&target(group), "Established", "True", DEFAULT_WAIT_TIMEOUT * 2).await?;
    let gvk = GroupVersionKind::gvk(group, "v1", "Thing");
    let resource = ApiResource::from_gvk_with_plural(&gvk, "things");
    let api = Api::namespaced_with(story.client.clone(), &story.namespace, &resource);
    let probe = thing(group, json!({}));
    story
        .await_until("the kind to be served", DEFAULT_WAIT_TIMEOUT * 2, async || {
            Ok(created(&api, &probe).await.ok().map(drop))
        })
        .await?;
    Ok(api)
}

/// What the API server would make of an object, without storing it. `None` if the object is invalid.
async fn created(api: &Api<DynamicObject>, object: &Value) -> Result<Option<Value>> {
    let params = PostParams { dry_run: true, ..PostParams::default() };
    match api.create(&params, &serde_json::from_value(object.clone())?).await {
        Ok(made) => Ok(Some(made.data["spec"].clone())),
        Err(kube::Error::Api(status)) if status.code == 422 => Ok(None),
        Err(error) => Err(error).context("the API server answers neither yes nor no"),
    }
}

#[derive(Debug, Default)]
struct CrdGuardJudgementCount {
    judged: usize,
    unjudged: usize,
    /// The number of changes that break an object.
    breaking: usize,
}

impl CrdGuardJudgementCount {
    fn add(&mut self, other: Self) {
        self.judged += other.judged;
        self.unjudged += other.unjudged;
        self.breaking += other.breaking;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guard_makes_of_objects_what_the_api_server_makes_of_them() -> Result<()> {
    let story = Story::begin("schemas").await?;
    let seed = RandomSequence::seed();
    let all = stream::iter(0..DEFINITIONS).map(|at| {
        let story = &story;
        async move {
            let said = judge_schemas(story, at, RandomSequence::new(seed + at as u64)).await;
            said.with_context(|| format!("seed {seed}"))
        }
    });
    let counts: Vec<CrdGuardJudgementCount> = all.buffer_unordered(4).try_collect().await?;
    let mut total = CrdGuardJudgementCount::default();
    counts.into_iter().for_each(|count| total.add(count));
    let CrdGuardJudgementCount { judged, unjudged, .. } = total;
    ensure!(unjudged * 10 < judged, "{unjudged} of {judged} could not be judged");
    story.end().await
}

async fn judge_schemas(
    story: &Story,
    at: usize,
    mut random: RandomSequence,
) -> Result<CrdGuardJudgementCount> {
    let group = format!("d{at}.{}.test", story.namespace);
    let fields: Map<String, Value> =
        (0..FIELDS).map(|it| (format!("f{it}"), schema(&mut random, DEPTH, true))).collect();
    let definition = definition(&group, &fields);
    let api = serve(story, &definition).await?;
    let ours = CrdDefinition::schema(&definition, "v1")?;
    let mut count = CrdGuardJudgementCount::default();
    for (field, schema) in &fields {
        for _ in 0..OBJECTS {
            let object = thing(&group, json!({field.as_str(): value(&mut random, schema, 4)}));
            let theirs = created(&api, &object).await?;
            count.judged += 1;
            let text = format!("schema {schema}\nobject {}", object["spec"]);
            match (ours.create(&object), theirs) {
                (None, _) => count.unjudged += 1,
                (Some(Ok(ours)), Some(theirs)) => {
                    let ours = &ours["spec"];
                    ensure!(*ours == theirs, "{text}\nours {ours}\ntheirs {theirs}");
                }
                (Some(Err(_)), None) => {}
                (Some(Ok(_)), None) => {
                    bail!("the API server refuses what the guard takes: {text}")
                }
                (Some(Err(why)), Some(_)) => {
                    bail!("the API server takes what the guard refuses: {text}\n{why:?}")
                }
            }
        }
    }
    story.delete(&target(&group)).await?;
    Ok(count)
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::print_stderr, reason = "how much was compared is what a long run is for")]
async fn the_guard_judges_changes_of_schemas_as_the_api_server_does() -> Result<()> {
    let story = Story::begin("schema-changes").await?;
    let seed = RandomSequence::seed();
    let mut total = CrdGuardJudgementCount::default();
    for round in 0..MAX_ROUNDS {
        let first = round * DEFINITIONS;
        let all = stream::iter(first..first + DEFINITIONS).map(|at| {
            let story = &story;
            async move {
                let count = judge_changes(story, at, RandomSequence::new(seed + at as u64)).await;
                count.with_context(|| format!("seed {seed}"))
            }
        });
        let counts: Vec<CrdGuardJudgementCount> = all.buffer_unordered(4).try_collect().await?;
        counts.into_iter().for_each(|count| total.add(count));
        if total.breaking >= MIN_BROKEN_OBJECTS {
            break;
        }
    }
    let CrdGuardJudgementCount { judged, unjudged, breaking } = total;
    eprintln!(
        "{judged} objects judged, {breaking} of them broken by a change, {unjudged} not judged"
    );
    ensure!(unjudged * 10 < judged, "{unjudged} of {judged} could not be judged");
    ensure!(breaking >= MIN_BROKEN_OBJECTS, "only {breaking} of {judged} are broken by a change");
    story.end().await
}

/// Changes each schema of a CRD, and compares the results for objects that were valid before.
async fn judge_changes(
    story: &Story,
    at: usize,
    mut random: RandomSequence,
) -> Result<CrdGuardJudgementCount> {
    let old_group = format!("o{at}.{}.test", story.namespace);
    let new_group = format!("n{at}.{}.test", story.namespace);
    let old: Map<String, Value> =
        (0..FIELDS).map(|it| (format!("f{it}"), schema(&mut random, DEPTH, true))).collect();
    let new: Map<String, Value> = old
        .iter()
        .map(|(name, schema)| (name.clone(), changed(&mut random, schema, DEPTH)))
        .collect();
    let before = serve(story, &definition(&old_group, &old)).await?;
    let after = serve(story, &definition(&new_group, &new)).await?;
    let mut count = CrdGuardJudgementCount::default();
    for ((name, was), is) in old.iter().zip(new.values()) {
        // The schema with one field only, so all findings are about this field.
        let alone = |schema: &Value| {
            definition(&old_group, &Map::from_iter([(name.clone(), schema.clone())]))
        };
        let old = alone(was);
        let new = alone(is);
        let fits = CrdDefinition::schema(&old, "v1")?;
        for _ in 0..OBJECTS {
            let object = (0..TRIES)
                .map(|_| thing(&old_group, json!({name.as_str(): value(&mut random, was, 4)})))
                .find(|it| matches!(fits.create(it), Some(Ok(_))));
            let Some(object) = object else { break };
            let stored = created(&before, &object).await?.context("it does not fit")?;
            // The API server drops a null that is not allowed. Other fields have defaults.
            let Some(kept) = stored.get(name) else { continue };
            let stored = json!({name.as_str(): kept});
            let theirs = created(&after, &thing(&new_group, stored.clone())).await?;
            let is_broken = !theirs.is_some_and(|it| contains(&it, &stored));
            let verdict = judged(&old, &new, &thing(&old_group, stored.clone()))?;
            count.judged += 1;
            match verdict {
                None => count.unjudged += 1,
                Some(findings) => {
                    count.breaking += usize::from(is_broken);
                    ensure!(
                        findings.is_empty() != is_broken,
                        "by the API server it is {}: schema {was}\nbecomes {is}\nobject {stored}\n{findings:?}",
                        if is_broken { "broken" } else { "not broken" }
                    );
                }
            }
        }
    }
    story.delete(&target(&old_group)).await?;
    story.delete(&target(&new_group)).await?;
    Ok(count)
}

/// The fields of an object that a change breaks. `None` if `crdguard` cannot judge it.
fn judged(old: &Value, new: &Value, object: &Value) -> Result<Option<Vec<String>>> {
    let mut live = old.clone();
    live["status"] = json!({"storedVersions": ["v1"]});
    let mut judge = CrdChangeJudge::new(&live, new, &StopSignal::default())?;
    judge.versions().iter().for_each(|it| judge.object(it, object));
    let facts =
        CrdGuardFacts { total: 1, service: WebhookServicePresence::Present, is_complete: true };
    // The API server does not judge what a changed default means to people.
    let mut found = judge.finish(facts).findings;
    found.retain(|it| it.problem != CrdChangeProblem::Default);
    let is_certain = found.iter().any(|it| it.problem != CrdChangeProblem::Unjudged);
    let is_judged = is_certain || found.is_empty();
    Ok(is_judged.then(|| found.iter().map(|it| it.text(false)).collect()))
}
