//! Helmfiles in Git become releases. They are installed in the order of their needs, kept, corrected after drift, and pruned.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::harness::charts_and_helm_releases::{CONFIG, StoryChartRepository, by_value};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, FollowedGitRepository, NEVER, condition};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject};
use e2e::servers::charts::ChartServer;
use kube::api::DynamicObject;
use serde_json::{Value, json};

pub(super) const CHART: &str = "apiVersion: v2\nname: app\nversion: 1.0.0\nappVersion: a1.0.0\n";

fn helmfile(name: &str) -> StoryObject {
    StoryObject::new("helmfile.windlass.dev/v1alpha1", "Helmfile", name)
}

/// A release of the chart in the repository with a value. `needs` are the releases that it needs.
pub(super) fn release(name: &str, value: &str, needs: &[&str]) -> String {
    format!(
        "- name: {name}\n  chart: ./app\n  values: [{{value: {value:?}}}]\n  needs: {needs:?}\n"
    )
}

pub(super) fn releases(all: &[String]) -> String {
    format!("releases:\n{}", all.concat())
}

/// The status row of a release.
pub(super) fn row<'o>(object: &'o DynamicObject, name: &str) -> Result<&'o Value> {
    let rows = object.data["status"]["releases"].as_array();
    let mut rows = rows.into_iter().flatten();
    rows.find(|row| row["name"] == name).with_context(|| format!("no row of {name}"))
}

/// The names of the status rows with their states, in order.
pub(super) fn states(object: &DynamicObject) -> Vec<String> {
    let rows = object.data["status"]["releases"].as_array();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    rows.into_iter()
        .flatten()
        .map(|row| format!("{} {}", text(&row["name"]), text(&row["state"])))
        .collect()
}

/// Makes a repository with the chart, and with further files.
pub(super) async fn follow_chart<'s>(
    story: &'s Story,
    files: &[(&str, String)],
) -> Result<FollowedGitRepository<'s>> {
    let chart =
        [("app/Chart.yaml", CHART.to_owned()), ("app/templates/config.yaml", CONFIG.to_owned())];
    story.follow("shop", &[&chart[..], files].concat()).await
}

/// Creates or replaces a Helmfile for a GitRepository. `more` is merged into its spec.
pub(super) async fn keep(story: &Story, name: &str, more: Value) -> Result<StoryObject> {
    let mut spec = json!({"interval": NEVER, "prune": true,
        "sourceRef": {"kind": "GitRepository", "name": "shop"}});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    let object = json!({"apiVersion": "helmfile.windlass.dev/v1alpha1", "kind": "Helmfile",
        "metadata": {"name": name}, "spec": spec});
    story.apply_value(object).await?;
    Ok(helmfile(name))
}

/// Waits until a Helmfile has applied a revision.
pub(super) async fn applied(
    story: &Story,
    target: &StoryObject,
    revision: &str,
) -> Result<DynamicObject> {
    let is_there = |object: &DynamicObject| {
        condition(object, "Ready")["status"] == "True"
            && object.data["status"]["lastAppliedRevision"] == revision
            && object.data["status"]["observedGeneration"].as_i64() == object.metadata.generation
    };
    story.await_object(target, DEFAULT_WAIT_TIMEOUT, is_there).await
}

async fn value_of(story: &Story, name: &str) -> Result<Value> {
    let config = story.expect(&StoryObject::config_map(&format!("{name}-config"))).await?;
    Ok(config.data["data"]["value"].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn releases_of_a_helmfile_follow_git_in_the_order_of_their_needs() -> Result<()> {
    let story = Story::with_windlass("helmfile-follows").await?;
    let policy = story.without_deletion_budget().await?;
    let first =
        [release("web", "w1", &["db"]), release("db", "d1", &[]), release("cache", "c1", &["web"])];
    let upstream = follow_chart(&story, &[("helmfile.yaml", releases(&first))]).await?;
    let shop = keep(&story, "shop", json!({})).await?;
    let object = story.await_ready(&shop).await?;
    ensure!(states(&object) == ["db Ready", "web Ready", "cache Ready"], "{:?}", states(&object));
    ensure!(row(&object, "web")?["revision"] == 1 && row(&object, "web")?["chart"] == "app-1.0.0");
    let live = story.expect(&StoryObject::config_map("db-config")).await?;
    let labels = live.metadata.labels.clone().unwrap_or_default();
    ensure!(labels.get("helmfile.windlass.dev/name").is_some_and(|it| it == "shop"), "{labels:?}");
    // The needed release was installed first.
    let mut begun = Vec::new();
    for name in ["db", "web", "cache"] {
        let config = story.expect(&StoryObject::config_map(&format!("{name}-config"))).await?;
        begun.push(config.metadata.resource_version.context("it has a version")?.parse::<u64>()?);
    }
    ensure!(begun.is_sorted(), "{begun:?}");
    // The standard `helm` sees the releases, and the manifests are those of the chart.
    let listed = story.helm_says(&["list", "--short"])?;
    ensure!(listed.split_whitespace().collect::<Vec<_>>() == ["cache", "db", "web"], "{listed}");
    let manifest = story.helm_says(&["get", "manifest", "db"])?;
    ensure!(!manifest.contains("helmfile.windlass.dev"), "{manifest}");
    // A change of one release makes one revision.
    let second =
        [release("web", "w2", &["db"]), release("db", "d1", &[]), release("cache", "c1", &["web"])];
    let revision = upstream.push(&[("helmfile.yaml", releases(&second))]).await?;
    let object = applied(&story, &shop, &revision).await?;
    ensure!(value_of(&story, "web").await? == "w2");
    let revisions: Vec<&Value> = ["db", "web", "cache"]
        .into_iter()
        .map(|name| row(&object, name).map(|row| &row["revision"]))
        .collect::<Result<_>>()?;
    ensure!(revisions == [1, 2, 1], "{revisions:?}");
    for name in ["db", "cache"] {
        ensure!(story.history(name)?.len() == 1, "{name} was upgraded");
    }
    // Drift is corrected.
    story
        .merge(&StoryObject::config_map("db-config"), json!({"data": {"value": "edited"}}))
        .await?;
    story.await_value("db-config", "d1").await?;
    story.delete(&StoryObject::config_map("web-config")).await?;
    story.await_value("web-config", "w2").await?;
    // A release that was removed from the file is uninstalled.
    let revision = upstream.push(&[("helmfile.yaml", releases(&second[..2]))]).await?;
    let object = applied(&story, &shop, &revision).await?;
    ensure!(states(&object) == ["db Ready", "web Ready"], "{:?}", states(&object));
    story.await_gone(&StoryObject::config_map("cache-config"), DEFAULT_WAIT_TIMEOUT).await?;
    ensure!(!story.helm_says(&["list", "--short"])?.contains("cache"));
    // All other releases are uninstalled with the Helmfile.
    story.delete(&shop).await?;
    story.await_gone(&shop, DEFAULT_WAIT_TIMEOUT).await?;
    story.await_gone(&StoryObject::config_map("db-config"), Duration::ZERO).await?;
    ensure!(story.helm_says(&["list", "--short"])?.trim().is_empty());
    story.delete(&policy).await?;
    story.end().await
}

/// Waits until the status row of a release has a state. Returns its message.
async fn await_state(
    story: &Story,
    target: &StoryObject,
    name: &str,
    state: &str,
) -> Result<String> {
    let is_so = |object: &DynamicObject| row(object, name).is_ok_and(|row| row["state"] == state);
    let object = story.await_object(target, DEFAULT_WAIT_TIMEOUT, is_so).await?;
    Ok(row(&object, name)?["message"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_fails_holds_up_those_that_need_it_and_no_other() -> Result<()> {
    let story = Story::with_windlass("helmfile-fails").await?;
    let all = [release("db", "d", &[]), release("web", "w", &["db"]), release("other", "o", &[])];
    let broken = CONFIG.replace("{{ .Chart.Version }}", "{{ required \"no size\" .Values.size }}");
    let upstream = follow_chart(
        &story,
        &[
            ("broken/Chart.yaml", CHART.to_owned()),
            ("broken/templates/config.yaml", broken),
            ("helmfile.yaml", releases(&all).replacen("./app", "./broken", 1)),
        ],
    )
    .await?;
    let shop = keep(&story, "shop", json!({})).await?;
    let text = story.await_failure(&shop, "ReleaseFailed").await?;
    let place = &story.namespace;
    ensure!(text.contains(&format!("release {place}/db: ")) && text.contains("no size"), "{text}");
    ensure!(text.contains(&format!("{place}/web waits")), "{text}");
    let waits = await_state(&story, &shop, "web", "Waiting").await?;
    ensure!(waits == format!("waiting for {place}/db"), "{waits}");
    story.await_value("other-config", "o").await?;
    ensure!(
        story.read(&StoryObject::config_map("web-config")).await?.is_none(),
        "web was installed"
    );
    // Nothing is uninstalled while a release fails.
    let fewer = releases(&all[..2]).replacen("./app", "./broken", 1);
    upstream.push(&[("helmfile.yaml", fewer)]).await?;
    story.await_failure(&shop, "ReleaseFailed").await?;
    story.expect(&StoryObject::config_map("other-config")).await?;
    let revision = upstream.push(&[("helmfile.yaml", releases(&all[..2]))]).await?;
    // A release that was removed from its helmfile waits for approval.
    story.await_condition(&shop, "DeletionHeld", "True", DEFAULT_WAIT_TIMEOUT).await?;
    story.windlass_says(&["approve", "helmfile/shop", "-n", place], true)?;
    let object = applied(&story, &shop, &revision).await?;
    ensure!(states(&object) == ["db Ready", "web Ready"], "{:?}", states(&object));
    story.await_gone(&StoryObject::config_map("other-config"), DEFAULT_WAIT_TIMEOUT).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_waits_for_health_holds_up_those_that_need_it() -> Result<()> {
    let story = Story::with_windlass("helmfile-waits").await?;
    let web = by_value();
    let file = "releases:\n- {name: back, chart: ./back, wait: true, values: [{pods: unready}]}\n\
        - {name: front, chart: ./app, needs: [back]}\n";
    let _upstream = follow_chart(
        &story,
        &[
            ("back/Chart.yaml", CHART.replace("app", "back")),
            ("back/templates/web.yaml", web),
            ("helmfile.yaml", file.to_owned()),
        ],
    )
    .await?;
    let shop = keep(&story, "shop", json!({})).await?;
    story.await_condition(&shop, "Ready", "Unknown", DEFAULT_WAIT_TIMEOUT).await?;
    await_state(&story, &shop, "back", "Progressing").await?;
    await_state(&story, &shop, "front", "Waiting").await?;
    // After a suspension during the work, no further release begins. After the Helmfile is resumed, the work is repeated.
    story.merge(&shop, json!({"spec": {"suspend": true}})).await?;
    story
        .await_until("the install to stop", DEFAULT_WAIT_TIMEOUT, async || {
            let history = story.history("back")?;
            let is_stopped = |line: &String| line.contains("suspended during the install");
            Ok(history.last().is_some_and(is_stopped).then_some(()))
        })
        .await?;
    ensure!(story.read(&StoryObject::config_map("front-config")).await?.is_none(), "it went on");
    story.merge(&shop, json!({"spec": {"suspend": false}})).await?;
    story
        .await_until("the second revision", DEFAULT_WAIT_TIMEOUT, async || {
            Ok((story.history("back")?.len() == 2).then_some(()))
        })
        .await?;
    let web = StoryObject::new("apps/v1", "Deployment", "web");
    story
        .await_until("the releases to be there", DEFAULT_WAIT_TIMEOUT, async || {
            let ready = json!({"spec": {"template": {"metadata": {"annotations":
                {"windlass.dev/testbed": "ready"}}}}});
            story.merge(&web, ready).await?;
            Ok((condition(&story.expect(&shop).await?, "Ready")["status"] == "True").then_some(()))
        })
        .await?;
    ensure!(story.history("back")?.len() == 2, "{:?}", story.history("back")?);
    story.expect(&StoryObject::config_map("front-config")).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn one_release_is_suspended_while_the_others_go_on() -> Result<()> {
    let story = Story::with_windlass("helmfile-suspends").await?;
    let all = |value: &str| releases(&[release("db", value, &[]), release("web", value, &["db"])]);
    let upstream = follow_chart(&story, &[("helmfile.yaml", all("1"))]).await?;
    let shop = keep(&story, "shop", json!({})).await?;
    story.await_ready(&shop).await?;
    let held = json!({"suspendedReleases": [{"name": "db", "reason": "an incident"}]});
    keep(&story, "shop", held).await?;
    let why = await_state(&story, &shop, "db", "Suspended").await?;
    ensure!(why.contains("an incident"), "{why}");
    let revision = upstream.push(&[("helmfile.yaml", all("2"))]).await?;
    applied(&story, &shop, &revision).await?;
    ensure!(value_of(&story, "web").await? == "2");
    ensure!(value_of(&story, "db").await? == "1", "a suspended release was changed");
    // The whole Helmfile is suspended, so nothing happens until it is resumed.
    story.merge(&shop, json!({"spec": {"suspend": true, "suspendedReleases": null}})).await?;
    let revision = upstream.push(&[("helmfile.yaml", all("3"))]).await?;
    story.merge(&shop, json!({"spec": {"suspend": false}})).await?;
    applied(&story, &shop, &revision).await?;
    ensure!(value_of(&story, "db").await? == "3");
    // A release that is suspended until a time continues by itself.
    let until = jiff::Timestamp::now().saturating_add(std::time::Duration::from_secs(3))?;
    let held = json!({"suspendedReleases": [{"name": "web", "until": until.to_string()}]});
    story.merge(&shop, json!({"spec": held})).await?;
    let revision = upstream.push(&[("helmfile.yaml", all("4"))]).await?;
    applied(&story, &shop, &revision).await?;
    story.await_value("web-config", "4").await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_stock_helm_installed_is_adopted_and_releases_of_others_stay_theirs() -> Result<()>
{
    let story = Story::with_windlass("helmfile-adopts").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &[("templates/a.yaml", CONFIG)]).await?;
    let chart = format!("{}/app-1.0.0.tgz", charts.server.url());
    story.helm_says(&["install", "db", &chart, "--set", "value=d"])?;
    let theirs = charts.release("theirs", json!({"values": {"value": "theirs"}})).await?;
    story.await_revision(&theirs, 1).await?;
    let file = format!(
        "repositories: [{{name: charts, url: {}}}]\n{}",
        charts.server.url(),
        releases(&[release("db", "d", &[]), release("theirs", "mine", &[])])
            .replace("./app", "charts/app")
    );
    let _upstream = story.follow("shop", &[("helmfile.yaml", file)]).await?;
    let shop = keep(&story, "shop", json!({})).await?;
    await_state(&story, &shop, "db", "Ready").await?;
    ensure!(story.history("db")? == ["1 | deployed | app-1.0.0 | Install complete"]);
    let text = await_state(&story, &shop, "theirs", "Waiting").await?;
    let whose = format!("belongs to HelmRelease {}/theirs", story.namespace);
    ensure!(text.contains(&whose), "{text}");
    ensure!(value_of(&story, "theirs").await? == "theirs");
    // Drift of an adopted release is also corrected.
    story
        .merge(&StoryObject::config_map("db-config"), json!({"data": {"value": "edited"}}))
        .await?;
    story.await_value("db-config", "d").await?;
    ensure!(story.history("db")?.len() == 1);
    // Now the other direction.
    let second = charts.release("second", json!({"releaseName": "db"})).await?;
    let text = story.await_failure(&second, "StateError").await?;
    ensure!(text.contains(&format!("belongs to Helmfile {}/shop", story.namespace)), "{text}");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn charts_are_made_of_manifests_and_come_from_repositories_with_a_password() -> Result<()> {
    let story = Story::with_windlass("helmfile-charts").await?;
    let server = ChartServer::start(Some(("reader", "s3cret-pass")))?;
    server.publish(&[("Chart.yaml", CHART), ("templates/a.yaml", CONFIG)])?;
    let file = format!(
        "repositories:\n- name: charts\n  url: {}\n  username: reader\n  password: {{{{ requiredEnv \"PASSWORD\" }}}}\n\
         releases:\n- {{name: far, chart: charts/app, version: ^1.0.0, values: [{{value: {{{{ .Values.size | quote }}}}}}]}}\n\
         - name: plain\n  chart: ./manifests\n  strategicMergePatches:\n  - apiVersion: v1\n    kind: ConfigMap\n    \
         metadata: {{name: plain-config}}\n    data: {{value: patched}}\n",
        server.url()
    );
    let _upstream = story
        .follow(
            "shop",
            &[
                ("manifests/config.yaml", config_map("plain-config", "as it was")),
                ("helmfile.yaml.gotmpl", file),
            ],
        )
        .await?;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "charts"},
        "stringData": {"PASSWORD": "wrong-password"}});
    story.apply_value(secret.clone()).await?;
    let shop = keep(
        &story,
        "shop",
        json!({"values": {"size": "small"}, "envFrom": [{"kind": "Secret", "name": "charts"}]}),
    )
    .await?;
    let text = story.await_failure(&shop, "HelmfileError").await?;
    ensure!(text.contains("authentication failed") && !text.contains("wrong-password"), "{text}");
    let mut right = secret;
    right["stringData"]["PASSWORD"] = json!("s3cret-pass");
    story.apply_value(right).await?;
    let object = story.await_ready(&shop).await?;
    ensure!(!object.data.to_string().contains("s3cret-pass"), "the password is in the status");
    ensure!(
        value_of(&story, "far").await? == "small" && value_of(&story, "plain").await? == "patched"
    );
    story.end().await
}
