//! `windlass rollback`: its suspension, its request and its output, also for one release of a Helmfile.

use anyhow::{Result, ensure};
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository, newest};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, NEVER, condition};
use e2e::harness::{Story, StoryObject};
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::cli::{is_asked_for, windlass};

#[tokio::test(flavor = "multi_thread")]
async fn a_release_goes_back_and_stays_there_until_it_is_resumed() -> Result<()> {
    let story = Story::with_windlass("rollback").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let first = json!({"values": {"value": "1"}});
    let app = charts.release("app", first.clone()).await?;
    story.await_revision(&app, 1).await?;
    charts.release("app", json!({"values": {"value": "2"}})).await?;
    story.await_revision(&app, 2).await?;

    let said = windlass(&story, &["rollback", "hr/app", "--to", "7"])?;
    ensure!(said.code == Some(2) && said.err.contains("not before the newest one, 2"), "{said:?}");
    let object = story.expect(&app).await?;
    ensure!(object.data["spec"]["suspend"] != true, "what is refused suspends nothing");

    let arguments = ["rollback", "hr/app", "--owner", "alice", "--reason", "incident-1"];
    let said = windlass(&story, &arguments)?;
    ensure!(
        said.code == Some(0) && said.err.contains("revision 3 has the contents of revision 1"),
        "{said:?}"
    );
    ensure!(
        said.out.contains("helm get values app") && said.out.contains("--revision 1"),
        "{said:?}"
    );
    story.await_value("app-config", "1").await?;
    let history = story.history("app")?;
    let last = "3 | deployed | app-1.0.0 | Rollback to 1".to_owned();
    ensure!(history.len() == 3 && history.last() == Some(&last), "{history:?}");
    let object = story.expect(&app).await?;
    ensure!(condition(&object, "Ready")["reason"] == "RollbackSucceeded", "{:?}", object.data);
    let hold = "suspended by alice: rollback to revision 1: incident-1";
    ensure!(condition(&object, "windlass.dev/Hold")["message"] == hold, "{:?}", object.data);
    let table = windlass(&story, &["get", "hr"])?.ended(0)?;
    ensure!(table.contains("alice"), "{table}");
    let said = windlass(&story, &["reconcile", "hr/app"])?;
    ensure!(said.code == Some(2) && said.err.contains("`windlass resume`"), "{said:?}");
    ensure!(story.history("app")?.len() == 3);

    // The repository now contains the installed revision, so nothing is upgraded.
    charts.release("app", first).await?;
    windlass(&story, &["resume", "hr/app", "--wait"])?.ended(0)?;
    let object = story.await_ready(&app).await?;
    ensure!(newest(&object)["version"] == 3 && story.history("app")?.len() == 3, "{object:?}");
    ensure!(is_asked_for(&object), "{:?}", object.annotations());
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_that_fails_says_why() -> Result<()> {
    let story = Story::with_windlass("rollback-fails").await?;
    let charts = StoryChartRepository::of(&story).await?;
    let pinned = "
apiVersion: v1
kind: ConfigMap
metadata: {name: pinned}
immutable: true
data: {value: {{ .Values.value | quote }}}
";
    charts.publish("1.0.0", &[("templates/a.yaml", pinned)]).await?;
    let app = charts.release("app", json!({"values": {"value": "1"}})).await?;
    story.await_revision(&app, 1).await?;
    charts.publish("2.0.0", &[("templates/b.yaml", CONFIG)]).await?;
    story.await_revision(&app, 2).await?;
    // This object conflicts with the older revision.
    story.apply(&pinned.replace("{{ .Values.value | quote }}", "other")).await?;
    let said = windlass(&story, &["rollback", "hr/app"])?;
    ensure!(said.code == Some(2) && said.err.contains("the rollback, failed"), "{said:?}");
    ensure!(said.err.contains("pinned"), "{said:?}");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_printed_for_a_chart_of_a_git_repository_keeps_the_release_after_it_is_resumed()
-> Result<()> {
    let story = Story::with_windlass("rollback-git").await?;
    let chart = |version: &str| {
        let config = CONFIG.replace("default \"none\"", &format!("default \"of-{version}\""));
        [
            ("charts/app/Chart.yaml", format!("apiVersion: v2\nname: app\nversion: {version}\n")),
            ("charts/app/templates/config.yaml", config),
        ]
    };
    let upstream = story.follow("shop", &chart("1.0.0")).await?;
    let object = json!({"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
        "metadata": {"name": "app"}, "spec": {"interval": NEVER, "chart": {"spec": {
            "chart": "./charts/app", "sourceRef": {"kind": "GitRepository", "name": "shop"}}}}});
    story.apply_value(object).await?;
    let app = StoryObject::helm_release("app");
    story.await_revision(&app, 1).await?;
    upstream.push(&chart("2.0.0")).await?;
    story.await_revision(&app, 2).await?;
    story.await_value("app-config", "of-2.0.0").await?;

    let said = windlass(&story, &["rollback", "hr/app", "--reason", "incident-1"])?;
    let advice = format!(
        "revert the chart to app 1.0.0 in charts/app of GitRepository/{}/shop",
        story.namespace
    );
    ensure!(said.code == Some(0) && said.out.contains(&advice), "{said:?}");
    ensure!(!said.out.contains("spec.chart.spec.version"), "it has no effect: {said:?}");
    story.await_value("app-config", "of-1.0.0").await?;

    upstream.push(&chart("1.0.0")).await?;
    let is_reverted = |object: &kube::api::DynamicObject| {
        object.data["status"]["artifact"]["revision"] == "1.0.0"
    };
    let chart = StoryObject::helm_chart(&format!("{}-app", story.namespace));
    story.await_object(&chart, DEFAULT_WAIT_TIMEOUT, is_reverted).await?;
    windlass(&story, &["resume", "hr/app", "--wait"])?.ended(0)?;
    let object = story.await_ready(&app).await?;
    ensure!(newest(&object)["chartVersion"] == "1.0.0", "{:?}", object.data["status"]);
    let config = story.expect(&StoryObject::config_map("app-config")).await?;
    ensure!(config.data["data"]["value"] == "of-1.0.0", "{:?}", config.data);
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn one_release_of_a_helmfile_is_suspended_rolled_back_and_resumed() -> Result<()> {
    let story = Story::with_windlass("rollback-helmfile").await?;
    let chart = "apiVersion: v2\nname: app\nversion: 1.0.0\n";
    let file = |value: &str| {
        format!(
            "releases:\n- {{name: db, chart: ./app, values: [{{value: '{value}'}}]}}\n\
                 - {{name: web, chart: ./app, values: [{{value: '{value}'}}]}}\n"
        )
    };
    let files = [
        ("app/Chart.yaml", chart.to_owned()),
        ("app/templates/config.yaml", CONFIG.to_owned()),
        ("helmfile.yaml", file("1")),
    ];
    let upstream = story.follow("shop", &files).await?;
    let shop = StoryObject::new("helmfile.windlass.dev/v1alpha1", "Helmfile", "shop");
    let object = json!({"apiVersion": "helmfile.windlass.dev/v1alpha1", "kind": "Helmfile",
        "metadata": {"name": "shop"}, "spec": {"interval": NEVER,
        "sourceRef": {"kind": "GitRepository", "name": "shop"}}});
    story.apply_value(object).await?;
    story.await_ready(&shop).await?;
    upstream.push(&[("helmfile.yaml", file("2"))]).await?;
    story.await_value("db-config", "2").await?;
    story.await_value("web-config", "2").await?;
    story.await_ready(&shop).await?;

    let said = windlass(&story, &["rollback", "helmfile/shop"])?;
    ensure!(said.code == Some(2) && said.err.contains("--release"), "{said:?}");
    let said = windlass(&story, &["rollback", "helmfile/shop", "--release", "db"])?;
    ensure!(said.code == Some(0) && said.out.contains("the chart stays app 1.0.0"), "{said:?}");
    story.await_value("db-config", "1").await?;
    ensure!(
        story.history("db")?.last() == Some(&"3 | deployed | app-1.0.0 | Rollback to 1".to_owned())
    );
    // The other releases of the Helmfile are upgraded.
    upstream.push(&[("helmfile.yaml", file("3"))]).await?;
    story.await_value("web-config", "3").await?;
    ensure!(story.history("db")?.len() == 3, "{:?}", story.history("db")?);
    let state = |object: &kube::api::DynamicObject, name: &str| {
        let rows = object.data["status"]["releases"].as_array().cloned().unwrap_or_default();
        rows.into_iter().find(|row| row["name"] == name).map(|row| row["state"].clone())
    };
    let object = story.expect(&shop).await?;
    ensure!(state(&object, "db") == Some("Suspended".into()), "{:?}", object.data["status"]);

    let arguments = ["resume", "helmfile/shop", "--release", "db", "--wait"];
    windlass(&story, &arguments)?.ended(0)?;
    story.await_value("db-config", "3").await?;
    let object = story.expect(&shop).await?;
    ensure!(object.data["spec"]["suspendedReleases"] == Value::Null, "{:?}", object.data["spec"]);
    let arguments = [
        "suspend",
        "helmfile/shop",
        "--release",
        "web",
        "--owner",
        "alice",
        "--reason",
        "incident-1",
    ];
    windlass(&story, &arguments)?.ended(0)?;
    let is_held =
        |object: &kube::api::DynamicObject| state(object, "web") == Some("Suspended".into());
    let object = story.await_object(&shop, DEFAULT_WAIT_TIMEOUT, is_held).await?;
    let entry = &object.data["spec"]["suspendedReleases"][0];
    ensure!(
        entry["reason"] == "incident-1 (by alice)" && entry["namespace"] == story.namespace,
        "{entry}"
    );
    windlass(&story, &["resume", "helmfile/shop", "--release", "web"])?.ended(0)?;
    let arguments = ["reconcile", "helmfile/shop", "--release", "web", "--wait"];
    let said = windlass(&story, &arguments)?;
    ensure!(said.code == Some(0) && said.err.contains("web is ready"), "{said:?}");
    story.end().await
}
