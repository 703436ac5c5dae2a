//! Creates objects with nonsense in all fields, beside healthy objects that must not be affected.
//!
//! The nonsense is made from the schemas of the CRDs, so new fields are covered automatically. The seed is fixed, and
//! `WINDLASS_POISON_SEED` sets another one.
//! Elsewhere: nonsense in the files of repositories (`stories/bad_input.rs`), references across tenants (`tenancy.rs`).
#![expect(clippy::print_stderr, reason = "the seed that repeats a failure is printed")]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::harness::flux_objects::DEFAULT_WAIT_TIMEOUT;
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject, WindlassProcess};
use e2e::process_usage::resident_mebibytes;
use serde_json::{Map, Value, json};

/// The number of nonsense objects, unless the API server refuses too many of a kind.
const COUNT: usize = 559;

/// The maximum number of attempts. A kind with a strict schema, such as ArtifactGenerator, needs many.
const MOST_ATTEMPTS: usize = 3 * COUNT;

/// How many objects of a kind the API server has to accept. With fewer, the test would show nothing.
const FEWEST: usize = 10;

/// Pseudo-random numbers (splitmix64). The same seed gives the same numbers on every machine.
struct PseudoRandomNumbers(u64);

impl PseudoRandomNumbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(bound.max(1)).unwrap_or(1)).unwrap_or_default()
    }

    fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }
}

/// Strings that have caused failures somewhere.
const STRINGS: [&str; 44] = [
    "",
    " ",
    "a",
    "A",
    "-",
    ".",
    "..",
    "/",
    "~",
    "*",
    "null",
    "true",
    "0",
    "-1",
    "1e400",
    "0x10",
    "../../../etc/passwd",
    "/etc/passwd",
    "a/../../b",
    "./a//b/",
    "a\\b",
    "file:///etc/passwd",
    "http://127.0.0.1:1/x",
    "https://127.0.0.1:1/x",
    "ssh://git@127.0.0.1:1/x",
    "https://[::1",
    "http://a:b@127.0.0.1:1/x",
    "9999999999999999999999h",
    "0s",
    "0.000000001ms",
    "876000h",
    "1h1h1h1h",
    "1ms",
    "refs/heads/../x",
    "refs/heads/.lock",
    "@{-1}",
    "0000000000000000000000000000000000000000",
    ">=0.0.0-0 <99999999999999999999",
    "((((((((((a+)+)+)+)+)+)+)+)+)+$",
    "${a:-${b}}",
    "{{ .Values.x }}",
    "\u{0}\u{1b}[31m",
    "🦀🦀🦀",
    "ns/name",
];

fn text(chance: &mut PseudoRandomNumbers) -> Value {
    if chance.one_in(12) {
        return "x".repeat(1 << chance.below(14)).into();
    }
    STRINGS[chance.below(STRINGS.len())].into()
}

/// Nonsense that a schema might allow. The API server decides whether it does.
fn nonsense(schema: &Value, chance: &mut PseudoRandomNumbers, depth: usize) -> Value {
    if let Some(allowed) = schema["enum"].as_array() {
        return allowed[chance.below(allowed.len())].clone();
    }
    match schema["type"].as_str() {
        Some("boolean") => chance.one_in(2).into(),
        Some("integer" | "number") => [0, 1, -1, i64::MAX, i64::MIN, 255][chance.below(6)].into(),
        Some("string") => text(chance),
        Some("array") if depth < 5 => {
            let count = if chance.one_in(6) { 150 } else { chance.below(4) };
            (0..count).map(|_| nonsense(&schema["items"], chance, depth + 1)).collect()
        }
        Some("object") if depth < 5 => {
            let mut object = Map::new();
            let required: Vec<&str> = schema["required"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect();
            for (key, field) in schema["properties"].as_object().into_iter().flatten() {
                if required.contains(&key.as_str()) || chance.one_in(3) {
                    object.insert(key.clone(), nonsense(field, chance, depth + 1));
                }
            }
            if schema["additionalProperties"].is_object() {
                for _ in 0..chance.below(4) {
                    let key = text(chance).as_str().unwrap_or_default().to_owned();
                    object
                        .insert(key, nonsense(&schema["additionalProperties"], chance, depth + 1));
                }
            }
            object.into()
        }
        _ => Value::Null,
    }
}

/// Annotations and labels that windlass reads on its own objects.
const ANNOTATIONS: [&str; 21] = [
    "reconcile.fluxcd.io/requestedAt",
    "reconcile.fluxcd.io/forceAt",
    "reconcile.fluxcd.io/resetAt",
    "windlass.dev/window",
    "windlass.dev/schedule",
    "windlass.dev/break-glass",
    "windlass.dev/suspended-by",
    "windlass.dev/suspended-reason",
    "windlass.dev/suspended-until",
    "windlass.dev/rollback",
    "kustomize.toolkit.fluxcd.io/reconcile",
    "helmfile.windlass.dev/dialect",
    "windlass.dev/change-sets",
    "windlass.dev/incidents",
    "windlass.dev/incident-after",
    "windlass.dev/incident-reminder",
    "windlass.dev/pull-request",
    "windlass.dev/allow-downgrade",
    "windlass.dev/min-age",
    "windlass.dev/required-platforms",
    "windlass.dev/verify-images",
];

/// A kind, and a spec of it that works, or would work if its server answered.
struct TestedKind {
    api_version: String,
    kind: String,
    schema: Value,
    base: Value,
}

impl TestedKind {
    fn target(&self, at: usize) -> StoryObject {
        StoryObject::new(&self.api_version, &self.kind, &format!("poison-{at}"))
    }
}

/// All kinds. A kind without a base spec is an error, so new kinds are not forgotten.
fn kinds(url: &str) -> Result<Vec<TestedKind>> {
    let crds = crds::all();
    // windlass never reads its own records. Lifecycles are left out, because they are made to hold healthy objects.
    let is_record = |plural: &str| {
        crds::names().any(|it| (it.is_record() || it.is_gate()) && it.plural == plural)
    };
    let read = crds.iter().filter(|(_, crd)| !is_record(&crd.spec.names.plural));
    let kinds = read.map(|(_, crd)| {
        let value = serde_json::to_value(crd)?;
        let version = value["spec"]["versions"][0]["name"].as_str().context("no version")?;
        let schema = value.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/spec");
        let kind = crd.spec.names.kind.clone();
        Ok(TestedKind {
            api_version: format!("{}/{version}", crd.spec.group),
            schema: schema.cloned().context("no schema")?,
            base: match crd.spec.group.as_str() {
                "apps.mumoshu.github.io" => {
                    json!({"interval": "1m", "source": format!("git::{url}@helmfile.yaml")})
                }
                _ => base(&kind, url)?,
            },
            kind,
        })
    });
    kinds.collect()
}

fn base(kind: &str, url: &str) -> Result<Value> {
    Ok(match kind {
        "Alert" => json!({"providerRef": {"name": "a"},
            "eventSources": [{"kind": "Kustomization", "name": "*"}]}),
        "ArtifactGenerator" => {
            json!({"sources": [{"alias": "src", "kind": "GitRepository", "name": "app"}],
                "artifacts": [{"name": "made", "copy": [{"from": "@src/**", "to": "@artifact/"}]}]})
        }
        "Bucket" => {
            json!({"interval": "1m", "endpoint": "127.0.0.1:1", "bucketName": "a", "insecure": true})
        }
        "ExternalArtifact" => json!({"sourceRef": {"kind": "A", "name": "a"}}),
        "GitRepository" => json!({"interval": "1m", "url": url, "ref": {"branch": "main"}}),
        "HTTPArchive" => json!({"interval": "1m", "url": "http://127.0.0.1:1/a.tar.gz"}),
        "HelmChart" => json!({"interval": "1m", "chart": "chart",
            "sourceRef": {"kind": "GitRepository", "name": "app"}}),
        // The release targets a namespace that does not exist, so no healthy object is affected.
        "HelmRelease" => json!({"interval": "1m", "targetNamespace": "nowhere",
            "chart": {"spec": {"chart": "chart", "sourceRef": {"kind": "GitRepository", "name": "app"}}}}),
        "HelmRepository" => json!({"interval": "1m", "url": "http://127.0.0.1:1/a"}),
        "Helmfile" => json!({"interval": "1m", "targetNamespace": "nowhere",
            "sourceRef": {"kind": "GitRepository", "name": "app"}}),
        "ImageRepository" => {
            json!({"interval": "1m", "image": "127.0.0.1:1/app", "insecure": true})
        }
        "ImageUpdateAutomation" => json!({"interval": "1m", "update": {"strategy": "Setters"},
            "git": {"commit": {"author": {"email": "a@example.com"}}},
            "sourceRef": {"kind": "GitRepository", "name": "app"}}),
        "Kustomization" => json!({"interval": "1m", "prune": true, "targetNamespace": "nowhere",
            "sourceRef": {"kind": "GitRepository", "name": "app"}}),
        "OCIRepository" => {
            json!({"interval": "1m", "url": "oci://127.0.0.1:1/a", "insecure": true})
        }
        "Receiver" => json!({"type": "generic", "secretRef": {"name": "a"},
            "resources": [{"kind": "GitRepository", "name": "app"}]}),
        other => sample(other)?,
    })
}

/// The spec of a kind's sample, for a kind whose objects need not work here.
fn sample(kind: &str) -> Result<Value> {
    let name = format!("{}.yaml", kind.to_lowercase());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/samples").join(&name);
    let text = std::fs::read_to_string(path).with_context(|| format!("config/samples/{name}"))?;
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text)?;
    let first = documents.into_iter().next().context("an empty sample")?;
    Ok(first["spec"].clone())
}

/// A working spec, with one to three fields replaced by nonsense.
fn poisoned(
    base: &Value,
    schema: &Value,
    chance: &mut PseudoRandomNumbers,
) -> Result<(Value, String)> {
    let fields = schema["properties"].as_object().context("no fields")?;
    let mut spec = base.clone();
    let mut changed_fields = Vec::new();
    for _ in 0..=chance.below(3) {
        let (key, field) = fields.iter().nth(chance.below(fields.len())).context("no field")?;
        spec[key] = nonsense(field, chance, 0);
        changed_fields.push(key.clone());
    }
    Ok((spec, changed_fields.join(", ")))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poison_object_stalls_only_itself() -> Result<()> {
    let seed =
        std::env::var("WINDLASS_POISON_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(20_261);
    eprintln!("seed {seed}");
    let mut chance = PseudoRandomNumbers(seed);
    let story = Story::begin("poison").await?;
    let mut windlass = WindlassProcess::start_for(&story, &["--concurrent-kustomize=2"]).await?;
    let upstream = story.follow("app", &[("map.yaml", config_map("map", "1"))]).await?;
    story.kustomization("app", "app", json!({"targetNamespace": story.namespace})).await?;
    story.await_ready(&StoryObject::kustomization("app")).await?;
    let before = windlass.operator.id();

    let url = upstream.server.url(&upstream.repository);
    let kinds = kinds(&url)?;
    let mut accepted: BTreeMap<&str, usize> = BTreeMap::new();
    let mut created = Vec::new();
    for at in 0..MOST_ATTEMPTS {
        let is_rare = |it: &&TestedKind| accepted.get(&*it.kind).is_none_or(|n| *n < FEWEST);
        let next =
            if at < COUNT { kinds.get(at % kinds.len()) } else { kinds.iter().find(is_rare) };
        let Some(tested) = next else { break };
        let TestedKind { api_version, kind, schema, base } = tested;
        let (mut spec, _) = poisoned(base, schema, &mut chance)?;
        // The healthy objects are in the story's own namespace. So this object applies to another namespace, and uses its own
        // Secrets.
        if base["targetNamespace"].is_string() {
            spec["targetNamespace"] = "nowhere".into();
        }
        let mut annotations = Map::new();
        for _ in 0..chance.below(3) {
            annotations
                .insert(ANNOTATIONS[chance.below(ANNOTATIONS.len())].to_owned(), text(&mut chance));
        }
        let object = json!({"apiVersion": api_version, "kind": kind,
            "metadata": {"name": format!("poison-{at}"), "annotations": annotations}, "spec": spec});
        if story.apply_value(object).await.is_ok() {
            created.push(tested.target(at));
            *accepted.entry(kind).or_default() += 1;
        }
    }
    eprintln!("the API server took {accepted:?}");
    for TestedKind { kind, .. } in &kinds {
        let enough = accepted.get(&**kind).is_some_and(|n| *n >= FEWEST);
        ensure!(enough, "too few of {kind} were taken: {accepted:?}");
    }

    // The healthy objects keep working, during the test and afterwards.
    for round in 2..5 {
        let revision =
            upstream.push(&[("map.yaml", config_map("map", &round.to_string()))]).await?;
        story.await_applied_within("app", &revision, DEFAULT_WAIT_TIMEOUT).await?;
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    story.merge(&StoryObject::config_map("map"), json!({"data": {"value": "edited"}})).await?;
    story.await_value("map", "4").await?;

    ensure!(windlass.operator.is_running()?, "windlass ended");
    ensure!(windlass.operator.id() == before, "windlass was started again");
    let log = windlass.operator.log()?;
    let fault =
        log.lines().find(|line| line.contains("a bug in windlass") || line.contains("panicked"));
    ensure!(fault.is_none(), "{fault:?}");
    let id = windlass.operator.id().context("windlass has ended")?;
    let resident = resident_mebibytes(id)?;
    ensure!(resident < 200.0, "it uses {resident} MiB");

    // All objects can be deleted.
    for target in &created {
        story.delete(target).await.ok();
    }
    for target in &created {
        story.await_gone(target, DEFAULT_WAIT_TIMEOUT).await?;
    }
    story.expect(&StoryObject::config_map("map")).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn remotes_that_never_answer_delay_no_other_object() -> Result<()> {
    let story = Story::begin("silence").await?;
    let _windlass = WindlassProcess::start_for(&story, &["--concurrent-source=1"]).await?;
    let silence = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/app", silence.local_addr()?);
    let held = tokio::spawn(async move {
        let mut connections = Vec::new();
        while let Ok((connection, _)) = silence.accept().await {
            connections.push(connection);
        }
    });
    for at in 0..8 {
        story.git_repository(&format!("silent-{at}"), &url, json!({})).await?;
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let _upstream = story.follow("app", &[("map.yaml", config_map("map", "1"))]).await?;
    let app = StoryObject::git_repository("app");
    story.await_condition(&app, "Ready", "True", Duration::from_secs(60)).await?;
    held.abort();
    story.end().await
}
