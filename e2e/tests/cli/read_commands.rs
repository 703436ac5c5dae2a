//! `get`, `tree`, `trace`, `events`, `export`, `describe`, `history` and `stats` for healthy objects.

use anyhow::{Result, ensure};
use e2e::harness::manifests::{PodBehavior, config_map, deployment};
use e2e::harness::{Story, StoryObject};
use serde_json::json;

use crate::cli::windlass;

#[tokio::test(flavor = "multi_thread")]
async fn what_was_applied_is_read_from_both_ends() -> Result<()> {
    let story = Story::with_windlass("reading").await?;
    let files =
        [("a.yaml", config_map("a", "1")), ("web.yaml", deployment("web", PodBehavior::Ready))];
    let _upstream = story.follow("app", &files).await?;
    story.kustomization("app", "app", json!({"wait": true})).await?;
    story.await_ready(&StoryObject::kustomization("app")).await?;
    let ns = story.namespace.clone();
    let said = |arguments: &[&str]| windlass(&story, arguments)?.ended(0);

    let table = said(&["get", "all"])?;
    let line = |start: &str| table.lines().find(|it| it.starts_with(start)).unwrap_or_default();
    ensure!(table.starts_with("NAME "), "{table}");
    for name in ["gitrepository/app ", "kustomization/app "] {
        ensure!(line(name).contains(" True ") && line(name).contains("main@sha1:"), "{table}");
    }
    ensure!(said(&["get", "ks", "--status-selector", "ready=false"])?.is_empty());

    let tree = said(&["tree", "ks/app"])?;
    for part in [
        format!("GitRepository/{ns}/app Ready"),
        format!("└─ Kustomization/{ns}/app Ready"),
        format!("ConfigMap/{ns}/a Current"),
        format!("Deployment/{ns}/web Current"),
        format!("└─ Pod/{ns}/web-"),
    ] {
        ensure!(tree.contains(&part), "{part}: {tree}");
    }
    let pod = tree.split(&format!("Pod/{ns}/")).nth(1).and_then(|it| it.split(' ').next());
    let trace = said(&["trace", &format!("pod/{}", pod.unwrap_or_default())])?;
    let order = [
        "the object: Pod/",
        "controlled by: ReplicaSet/",
        "controlled by: Deployment/",
        "applied by: Kustomization/",
        "from: GitRepository/",
    ];
    let places: Vec<_> = order.iter().map(|it| trace.find(it)).collect();
    ensure!(places.iter().all(Option::is_some) && places.is_sorted(), "{trace}");
    ensure!(trace.contains("main@sha1:"), "{trace}");
    let users = said(&["tree", "gitrepo/app", "--compact"])?;
    ensure!(users.contains(&format!("└─ Kustomization/{ns}/app Ready")), "{users}");

    let events = said(&["events", "ks/app"])?;
    ensure!(
        events.contains(&format!("Kustomization/{ns}/app"))
            && events.contains(&format!("GitRepository/{ns}/app")),
        "{events}"
    );
    let labels = json!({"metadata": {"labels": {"team": "web"}}});
    story.merge(&StoryObject::kustomization("app"), labels).await?;
    let events = said(&["events", "-l", "team=web"])?;
    ensure!(
        events.contains(&format!("Kustomization/{ns}/app")) && !events.contains("NewArtifact"),
        "{events}"
    );
    let manifest = said(&["export", "ks/app"])?;
    ensure!(
        manifest.contains("kind: Kustomization") && !manifest.contains("status:"),
        "{manifest}"
    );
    let described = said(&["describe", "ks", "app"])?;
    ensure!(
        described.contains("is ready") && described.contains("applied 2 objects"),
        "{described}"
    );
    let history = said(&["history", "ks/app"])?;
    ensure!(history.contains("ReconciliationSucceeded"), "{history}");
    let stats = windlass(&story, &["stats", "-o", "json"])?.json(0)?;
    let of = |kind: &str| {
        stats.as_array().and_then(|all| all.iter().find(|it| it["kind"] == kind)).cloned()
    };
    ensure!(of("Kustomization").is_some_and(|it| it["total"] == 1 && it["ready"] == 1), "{stats}");
    let why = said(&["why", "ks/app"])?;
    ensure!(why.contains(&format!("✔ Kustomization/{ns}/app is ready")), "{why}");
    story.end().await
}
