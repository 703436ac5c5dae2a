//! `cargo xtask compare crds` upgrades the CustomResourceDefinitions of public projects through their last releases.
//!
//! windlass's guard judges each new definition by objects made from the old schema. A real API server then says
//! whether it accepts the same objects without losing a field. A rejected definition is a false alarm if the API
//! server confirms no reason for it. This module has the command, the comparison and the table. `projects` has the
//! projects, and `samples` makes the objects.

mod projects;
mod sample_objects;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use crdguard::{CrdChangeJudge, CrdChangeProblem, CrdGuardFacts, WebhookServicePresence};
use e2e::harness::stored_object_comparison::contains;
use e2e::harness::{Story, StoryObject};
use golang::work_meter::StopSignal;
use kube::Api;
use kube::api::{DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use projects::{CrdProject, PROJECTS};
use testbed::progress::step;

/// How long a definition may take until its objects can be created.
const ESTABLISH_TIMEOUT: Duration = Duration::from_secs(60);

/// Which projects, and how many of their releases.
#[derive(Debug, Args)]
pub struct CrdComparisonOptions {
    /// Names of projects; all by default
    projects: Vec<String>,
    /// How many minor releases of each
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(2..=20))]
    releases: u8,
    /// Do not ask an API server
    #[arg(long)]
    offline: bool,
    /// A folder of Git clones, each called as its project in this table; what is not in it is fetched as a Go module
    #[arg(long, value_name = "FOLDER")]
    clones: Option<PathBuf>,
}

/// The results of a project.
#[derive(Debug, Default)]
struct CrdProjectRow {
    project: String,
    versions: String,
    /// How many definitions are in two consecutive releases.
    upgrades: usize,
    /// How many of these change the schema of a version in which objects are read.
    changed: usize,
    objects: usize,
    refused: usize,
    /// The reasons for which the guard rejected definitions, and for how many definitions each was given.
    reasons: BTreeMap<String, usize>,
    /// Definitions that the guard rejected although the API server accepts all objects unchanged.
    false_alarms: Vec<String>,
    /// Definitions that the guard accepted although the API server does not accept all objects unchanged.
    missed: Vec<String>,
    /// Objects in versions that the new definition lacks. Only its webhook could convert them, so the API server is
    /// not asked.
    unasked: usize,
    /// Releases that could not be fetched.
    missing: Vec<String>,
}

/// Compares all projects, and prints the table.
///
/// # Errors
/// There are false alarms or missed breaks, or the API server fails.
#[expect(clippy::print_stdout, reason = "the table is what the command is for")]
pub(super) fn run(options: &CrdComparisonOptions) -> anyhow::Result<()> {
    let is_wanted = |it: &&CrdProject| {
        options.projects.is_empty() || options.projects.iter().any(|name| name == it.name)
    };
    let wanted: Vec<&CrdProject> = PROJECTS.iter().filter(is_wanted).collect();
    ensure!(!wanted.is_empty(), "there is no such project");
    let runtime = Runtime::new().context("cannot start the runtime")?;
    let story = match options.offline {
        true => None,
        false => Some(step("API server", || runtime.block_on(Story::begin("compare-crds")))?),
    };
    let mut rows = Vec::new();
    for project in wanted {
        let row = step(project.name, || {
            let clone = options.clones.as_ref().map(|it| it.join(project.name));
            let clone = clone.filter(|it| it.is_dir());
            let fetched = project.fetch(clone.as_deref(), options.releases.into());
            let row = runtime.block_on(compared(project, &fetched.releases, story.as_ref()));
            row.map(|row| CrdProjectRow { missing: fetched.missing, ..row })
        });
        rows.push(row?);
    }
    print!("{}", table(&rows));
    if let Some(story) = story {
        runtime.block_on(story.end())?;
    }
    let wrong: usize = rows.iter().map(|it| it.false_alarms.len() + it.missed.len()).sum();
    if wrong > 0 {
        bail!("{wrong} verdicts are wrong");
    }
    Ok(())
}

async fn compared(
    project: &CrdProject,
    releases: &[projects::CrdProjectRelease],
    story: Option<&Story>,
) -> anyhow::Result<CrdProjectRow> {
    let versions: Vec<&str> = releases.iter().map(|it| it.version.as_str()).collect();
    let mut row = CrdProjectRow {
        project: project.name.to_owned(),
        versions: versions.join(" "),
        ..CrdProjectRow::default()
    };
    for pair in releases.windows(2) {
        let [before, after] = pair else { continue };
        for old in &before.definitions {
            let name = &old["metadata"]["name"];
            let new = after.definitions.iter().find(|it| it["metadata"]["name"] == *name);
            if let Some(new) = new {
                let what = format!("{} {}", after.version, name.as_str().unwrap_or_default());
                upgrade(&mut row, &what, old, new, story).await?;
            }
        }
    }
    Ok(row)
}

/// Judges one upgrade of a definition, and asks the API server whether the verdict is right.
async fn upgrade(
    row: &mut CrdProjectRow,
    what: &str,
    old: &Value,
    new: &Value,
    story: Option<&Story>,
) -> anyhow::Result<()> {
    row.upgrades += 1;
    let mut live = old.clone();
    let versions = old["spec"]["versions"].as_array().into_iter().flatten();
    let storage: Vec<&Value> =
        versions.filter(|it| it["storage"] == true).map(|it| &it["name"]).collect();
    live["status"] = json!({"storedVersions": storage});
    let mut judge = match CrdChangeJudge::new(&live, new, &StopSignal::default()) {
        Ok(judge) => judge,
        Err(fault) => {
            row.missed.push(format!("{what}: {fault}"));
            return Ok(());
        }
    };
    let mut objects = Vec::new();
    for version in judge.versions() {
        let all = sample_objects::of(old, &version);
        all.iter().for_each(|it| judge.object(&version, it));
        objects.extend(all);
    }
    row.changed += usize::from(!judge.versions().is_empty());
    row.objects += objects.len();
    let facts = CrdGuardFacts {
        total: objects.len() as u64,
        service: WebhookServicePresence::Present,
        is_complete: true,
    };
    let verdict = judge.finish(facts);
    row.refused += usize::from(!verdict.is_compatible());
    for finding in &verdict.findings {
        let why = match finding.path.is_empty() {
            true => finding.why.clone(),
            false => format!("{} {}", finding.path, finding.why),
        };
        *row.reasons.entry(format!("{:?}: {what}: {why}", finding.problem)).or_default() += 1;
    }
    let Some(story) = story.filter(|_| !objects.is_empty()) else { return Ok(()) };
    let mut broken = None;
    for (definition, objects) in asked(new, &objects) {
        match definition {
            Some(it) if broken.is_none() => {
                let found = refusal(story, &it, &objects).await;
                broken = found.with_context(|| what.to_owned())?;
            }
            Some(_) => {}
            None => row.unasked += objects.len(),
        }
    }
    // The API server cannot judge a changed default, or which versions clients use. So these findings are not
    // compared.
    let is_about_objects = |it: CrdChangeProblem| {
        matches!(
            it,
            CrdChangeProblem::Invalid | CrdChangeProblem::Lost | CrdChangeProblem::Unjudged
        )
    };
    let alarms = verdict.findings.iter().filter(|it| is_about_objects(it.problem)).count();
    match (alarms > 0, broken) {
        (true, None) => row.false_alarms.push(what.to_owned()),
        (false, Some(why)) => row.missed.push(format!("{what}: {why}")),
        (true, Some(_)) | (false, None) => {}
    }
    Ok(())
}

/// The definitions under which objects are created, each with its objects. The test bed has no conversion webhook. So
/// with one, each version gets a definition of its own, and objects of missing versions are left out.
fn asked<'o>(new: &Value, objects: &'o [Value]) -> Vec<(Option<Value>, Vec<&'o Value>)> {
    if new["spec"]["conversion"]["strategy"] != "Webhook" {
        return vec![(Some(new.clone()), objects.iter().collect())];
    }
    let mut by_version = BTreeMap::<&str, Vec<&Value>>::new();
    for object in objects {
        by_version.entry(version_of(object)).or_default().push(object);
    }
    let alone = |version: &str| {
        let versions = new["spec"]["versions"].as_array().into_iter().flatten();
        let mut only = versions.into_iter().find(|it| it["name"] == version)?.clone();
        (only["served"], only["storage"]) = (true.into(), true.into());
        let mut definition = new.clone();
        definition["spec"]["versions"] = json!([only]);
        Some(definition)
    };
    by_version.into_iter().map(|(version, objects)| (alone(version), objects)).collect()
}

fn version_of(object: &Value) -> &str {
    object["apiVersion"].as_str().and_then(|it| it.rsplit('/').next()).unwrap_or_default()
}

/// The reason why the API server does not accept the objects unchanged under a definition. It is none if it accepts
/// all.
async fn refusal(story: &Story, new: &Value, objects: &[&Value]) -> anyhow::Result<Option<String>> {
    let group = format!("shadow.{}.test", story.namespace);
    let plural = new["spec"]["names"]["plural"].as_str().unwrap_or_default().to_owned();
    let name = format!("{plural}.{group}");
    let mut shadow = new.clone();
    shadow["metadata"] = json!({"name": name});
    shadow["spec"]["group"] = group.clone().into();
    // In another group, the definition does not collide with the one on windlass's own test bed, and it needs no
    // webhook.
    if let Some(fields) = shadow.as_object_mut() {
        fields.remove("status");
    }
    if let Some(spec) = shadow["spec"].as_object_mut() {
        spec.remove("conversion");
    }
    if let Some(names) = shadow["spec"]["names"].as_object_mut() {
        names.retain(|key, _| !["shortNames", "categories"].contains(&key.as_str()));
    }
    story.apply_value(shadow).await?;
    let crd = StoryObject::new("apiextensions.k8s.io/v1", "CustomResourceDefinition", &name);
    story.await_condition(&crd, "Established", "True", ESTABLISH_TIMEOUT).await?;
    let mut why = None;
    for object in objects {
        let mut object = (*object).clone();
        let version = version_of(&object).to_owned();
        let versions = || new["spec"]["versions"].as_array().into_iter().flatten();
        // An object in a version that is no longer served is written in the storage version.
        let is_served = versions().any(|it| it["name"] == version.as_str() && it["served"] == true);
        let storage =
            versions().find(|it| it["storage"] == true).and_then(|it| it["name"].as_str());
        let version = if is_served { version.as_str() } else { storage.unwrap_or_default() };
        object["apiVersion"] = format!("{group}/{version}").into();
        if let Some(text) = refused(story, &plural, &object).await? {
            why = Some(text);
            break;
        }
    }
    story.delete(&crd).await?;
    story.await_gone(&crd, ESTABLISH_TIMEOUT).await?;
    Ok(why)
}

/// The reason why the API server does not accept an object unchanged.
async fn refused(story: &Story, plural: &str, object: &Value) -> anyhow::Result<Option<String>> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, version) =
        object["apiVersion"].as_str().and_then(|it| it.split_once('/')).context("no group")?;
    let gvk = GroupVersionKind::gvk(group, version, &text(&object["kind"]));
    let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
    let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(story.client.clone(), namespace, &resource),
        None => Api::all_with(story.client.clone(), &resource),
    };
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let parsed: DynamicObject = serde_json::from_value(object.clone())?;
    let deadline = std::time::Instant::now() + ESTABLISH_TIMEOUT;
    loop {
        match api.create(&params, &parsed).await {
            Ok(made) => {
                let lost = object.as_object().into_iter().flatten().find(|(key, value)| {
                    !["apiVersion", "kind", "metadata", "status"].contains(&key.as_str())
                        && !contains(&made.data[key.as_str()], value)
                });
                return Ok(lost.map(|(key, _)| format!("fields of `{key}` are lost")));
            }
            Err(kube::Error::Api(status)) if status.code == 422 => return Ok(Some(status.message)),
            Err(_) if std::time::Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            Err(error) => return Err(error).context("the API server answers neither yes nor no"),
        }
    }
}

fn table(rows: &[CrdProjectRow]) -> String {
    let mut text = format!(
        "{:<26}{:>9}{:>9}{:>9}{:>9}{:>7}{:>8}  RELEASES\n",
        "PROJECT", "UPGRADES", "CHANGED", "OBJECTS", "REFUSED", "FALSE", "MISSED"
    );
    for row in rows {
        text.push_str(&format!(
            "{:<26}{:>9}{:>9}{:>9}{:>9}{:>7}{:>8}  {}\n",
            row.project,
            row.upgrades,
            row.changed,
            row.objects,
            row.refused,
            row.false_alarms.len(),
            row.missed.len(),
            row.versions
        ));
    }
    for row in rows {
        let reasons = row.reasons.keys().map(|it| format!("  {it}\n"));
        let wrong = row.false_alarms.iter().map(|it| format!("  FALSE ALARM: {it}\n"));
        let missed = row.missed.iter().map(|it| format!("  MISSED: {it}\n"));
        let missing = row.missing.iter().map(|it| format!("  not fetched: {it}\n"));
        let unasked = (row.unasked > 0).then(|| {
            format!(
                "  not asked about, since only a webhook converts them: {} objects\n",
                row.unasked
            )
        });
        let lines: String =
            reasons.chain(wrong).chain(missed).chain(missing).chain(unasked).collect();
        if !lines.is_empty() {
            text.push_str(&format!("\n{}\n{lines}", row.project));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn where_a_webhook_converts_each_version_is_asked_about_alone() {
        let mut new = json!({"spec": {"versions": [{"name": "v1"}, {"name": "v2"}]}});
        let of = |version: &str| json!({"apiVersion": format!("acme.io/{version}")});
        let objects = [of("v1"), of("v2"), of("v0"), of("v1")];
        let counts = |new: &Value| -> Vec<(Option<usize>, usize)> {
            let all = asked(new, &objects).into_iter();
            let versions = |it: Value| it["spec"]["versions"].as_array().map(Vec::len);
            all.map(|(it, objects)| (it.and_then(versions), objects.len())).collect()
        };
        assert_eq!(counts(&new), [(Some(2), 4)]);
        new["spec"]["conversion"] = json!({"strategy": "Webhook"});
        assert_eq!(counts(&new), [(None, 1), (Some(1), 2), (Some(1), 1)]);
    }

    #[test]
    fn the_table_names_why_a_definition_was_refused_and_what_was_wrong() {
        let row = CrdProjectRow {
            project: "acme".to_owned(),
            versions: "v1.0.0 v1.1.0".to_owned(),
            upgrades: 3,
            changed: 2,
            objects: 4,
            refused: 1,
            reasons: BTreeMap::from([("Invalid: v1.1.0 a.b: spec.size is missing".to_owned(), 1)]),
            false_alarms: vec!["v1.1.0 a.b".to_owned()],
            missed: Vec::new(),
            unasked: 2,
            missing: vec!["v1.2.0: not found".to_owned()],
        };
        expect![[r"
            PROJECT                    UPGRADES  CHANGED  OBJECTS  REFUSED  FALSE  MISSED  RELEASES
            acme                              3        2        4        1      1       0  v1.0.0 v1.1.0

            acme
              Invalid: v1.1.0 a.b: spec.size is missing
              FALSE ALARM: v1.1.0 a.b
              not fetched: v1.2.0: not found
              not asked about, since only a webhook converts them: 2 objects
        "]]
        .assert_eq(&table(&[row]));
    }
}
