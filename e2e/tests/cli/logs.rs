//! `windlass logs`: log lines of windlass by object and level, and log lines of applied objects. kwok stands in for the
//! kubelet, and `e2e/src/control_plane/programs.rs` contains the log lines.

use anyhow::{Result, ensure};
use e2e::harness::flux_objects::DEFAULT_WAIT_TIMEOUT;
use e2e::harness::manifests::{PodBehavior, config_map, deployment};
use e2e::harness::{Story, StoryObject};
use serde_json::json;

use crate::cli::{CommandOutput, anywhere, windlass};

/// A Pod that looks like one of windlass's.
const WINDLASS: &str = "
apiVersion: v1
kind: Pod
metadata: {name: windlass-1, labels: {app.kubernetes.io/name: windlass}}
spec:
  containers: [{name: manager, image: example.com/windlass:1}, {name: proxy, image: example.com/proxy:1}]
";

#[tokio::test(flavor = "multi_thread")]
async fn lines_of_windlass_are_selected_by_object_and_level() -> Result<()> {
    let story = Story::begin("logs").await?;
    let logs = |arguments: &[&str]| -> Result<CommandOutput> {
        anywhere(&story, &[&["logs", "--flux-namespace", &story.namespace], arguments].concat())
    };
    let absent = logs(&[])?;
    ensure!(absent.code == Some(2) && absent.err.contains("--flux-namespace"), "{absent:?}");
    story.apply(WINDLASS).await?;
    let runs =
        |said: CommandOutput| (said.code == Some(0) && !said.out.is_empty()).then_some(said.out);
    let all = story
        .await_until("the first line", DEFAULT_WAIT_TIMEOUT, async || Ok(runs(logs(&[])?)))
        .await?;
    let lines: Vec<&str> = all.lines().collect();
    ensure!(lines.len() == 5 && !all.contains("test bed only"), "{all}");
    ensure!(
        lines.first() == Some(&"2026-01-01T00:00:00.000Z info  started version=1.0.0"),
        "{all}"
    );
    ensure!(!all.contains('\u{1b}') && all.contains("\\u{1b}[2J"), "{all}");
    for (arguments, expected) in [
        (["ks", "-A"].as_slice(), vec!["Kustomization/apps/web:", "Kustomization/apps/shop:"]),
        (&["ks/web", "-n", "apps"], vec!["Kustomization/apps/web:"]),
        (&["--kind", "helmrelease", "--name", "web", "-n", "apps"], vec!["HelmRelease/apps/web:"]),
        (&["--level", "error"], vec!["Kustomization/apps/shop:", "panicked"]),
        (&["--name", "web"], vec!["Kustomization/apps/web:", "HelmRelease/apps/web:"]),
        (&["-n", "elsewhere"], vec![]),
        (&["--tail", "2"], vec!["HelmRelease/apps/web:", "panicked"]),
    ] {
        let said = logs(arguments)?.ended(0)?;
        let lines: Vec<&str> = said.lines().collect();
        let fits = lines.iter().zip(&expected).all(|(line, part)| line.contains(part));
        ensure!(fits && lines.len() == expected.len(), "{arguments:?}: {said}");
    }
    let entry = logs(&["ks/shop", "-n", "apps", "-o", "json"])?.json(0)?;
    ensure!(entry["level"] == "error" && entry["name"] == "shop", "{entry}");
    let wrong = logs(&["ks", "--workload", "ks/web"])?;
    ensure!(wrong.code == Some(2), "{wrong:?}");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_of_what_was_applied_have_pod_and_container() -> Result<()> {
    let story = Story::with_windlass("logs-workload").await?;
    let noisy = deployment("web", PodBehavior::Ready)
        .replace("containers: [", "containers: [{name: noisy, image: example.com/noisy:1}, ");
    let nowhere = deployment("nowhere", PodBehavior::Ready)
        .replace("restartPolicy", "nodeSelector: {none: none}\n      restartPolicy");
    let files = [("a.yaml", config_map("a", "1")), ("web.yaml", noisy), ("nowhere.yaml", nowhere)];
    let _upstream = story.follow("app", &files).await?;
    story.kustomization("app", "app", json!({})).await?;
    story.await_ready(&StoryObject::kustomization("app")).await?;
    let logs =
        |more: &[&str]| windlass(&story, &[&["logs", "--workload", "ks/app"], more].concat());
    let printed = async || {
        let said = logs(&[])?;
        Ok((said.code == Some(0) && said.out.lines().count() == 3).then_some(said))
    };
    let said =
        story.await_until("the lines of both containers", DEFAULT_WAIT_TIMEOUT, printed).await?;
    let parts = |line: &str| {
        let (pod, rest) = line.split_once(' ').unwrap_or_default();
        let (container, text) = rest.split_once(": ").unwrap_or_default();
        (pod.starts_with("web-"), container.to_owned(), text.to_owned())
    };
    let mut lines: Vec<_> = said.out.lines().map(parts).collect();
    lines.sort();
    let line = |container: &str, text: &str| (true, container.to_owned(), text.to_owned());
    let expected = [
        line("main", "this container exists on the test bed only"),
        line("noisy", "    at main \\u{202e}\\u{7}"),
        line("noisy", "\\u{1b}[31mred\\u{1b}[2J"),
    ];
    ensure!(lines == expected, "{said:?}");
    ensure!(
        said.err.contains("container 'main' has printed nothing: it has not started"),
        "{said:?}"
    );
    let one =
        windlass(&story, &["logs", "--workload", "deployment/web", "--tail", "1", "-o", "json"])?;
    let one = one.ended(0)?;
    ensure!(one.lines().count() == 2 && one.contains("\"container\":\"noisy\""), "{one}");
    // A user who may not read Pods gets an error that says so.
    let eve = windlass(&story, &["logs", "--workload", "ks/app", "--as", "eve"])?;
    ensure!(eve.code == Some(2), "{eve:?}");
    story.end().await
}
