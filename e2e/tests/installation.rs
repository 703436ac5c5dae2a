//! windlass is installed, checked, upgraded and removed by its own commands. A process with the token of the installation
//! works.
//!
//! The stories have their own process, because CRDs and ClusterRoles are cluster-scoped. Elsewhere: the manifests
//! (`cli/installation/src/install/manifests/tests.rs`). All other stories also use the rights of the installation.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use e2e::git_server::{GitReadAccess, GitServer};
use e2e::harness::charts_and_helm_releases::{StoryChartRepository, newest};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::installed_windlass::deployment;
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject, WindlassProcess, tutorial};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::api::{Api, DynamicObject, PostParams};
use serde_json::json;

fn crd() -> StoryObject {
    let name = "kustomizations.kustomize.toolkit.fluxcd.io";
    StoryObject::new("apiextensions.k8s.io/v1", "CustomResourceDefinition", name)
}

/// Creates volumes for the replicas, because the bed creates none.
async fn volumes(story: &Story, names: [&str; 2]) -> Result<()> {
    let api = Api::<PersistentVolume>::all(story.client.clone());
    for name in names {
        let volume: PersistentVolume = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {
                "capacity": {"storage": "10Gi"},
                "accessModes": ["ReadWriteOnce"],
                "hostPath": {"path": format!("/tmp/{name}")},
            },
        }))?;
        api.create(&PostParams::default(), &volume).await?;
    }
    Ok(())
}

/// Checks that every line about an object ends with a text.
fn ensure_each(text: &str, ending: &str) -> Result<()> {
    let is_of_object = |line: &&str| {
        line.starts_with('✔') && line.contains('/') && !line.contains("windlass acts: ")
    };
    let lines = text.lines().filter(is_of_object);
    let others: Vec<&str> = lines.filter(|line| !line.ends_with(ending)).collect();
    ensure!(others.is_empty(), "not {ending}: {others:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn windlass_is_installed_checked_upgraded_and_taken_away() -> Result<()> {
    let story = Story::begin("installation").await?;
    charted(&story).await?;
    profiles(&story).await?;
    let here = ["-n", "gitops"];
    let with = |more: &[&'static str]| [more, &here].concat();

    story.windlass_says(&with(&["check", "--pre"]), true)?;
    let text = story.windlass_says(&with(&["check"]), false)?;
    ensure!(text.contains("windlass is not in namespace gitops: run `windlass install`"), "{text}");

    let text = story.windlass_says(&with(&["install", "--dry-run"]), true)?;
    ensure!(text.contains("+kind: Deployment\n"), "{text}");
    ensure!(story.read(&deployment("gitops")).await?.is_none(), "a dry run created it");

    let (text, windlass) =
        story.windlass_installs(&with(&["install"]), &deployment("gitops")).await?;
    ensure!(text.contains("Deployment/gitops/windlass-controller created"), "{text}");
    ensure!(text.contains("windlass acts: 'windlass-controller-"), "{text}");
    let text = story.windlass_says(&with(&["install"]), true)?;
    ensure_each(&text, "unchanged")?;
    let text = story.windlass_says(&with(&["check"]), true)?;
    ensure!(text.contains("Deployment/gitops/windlass-controller ready: ghcr.io/"), "{text}");
    ensure!(text.contains("'windlass-controller-") && text.contains(", counts until "), "{text}");

    works(&story, windlass).await?;
    led_outside(&story).await?;

    let text = story.windlass_says(&["uninstall", "--silent", "-n", "wrong"], false)?;
    ensure!(text.contains("`windlass uninstall -n gitops`"), "{text}");
    let target = StoryObject::kustomization("app");
    let text = story.windlass_says(&with(&["uninstall", "--dry-run"]), true)?;
    ensure_each(&text, "would be deleted")?;
    story.windlass_says(&with(&["uninstall", "--silent"]), true)?;
    story.await_gone(&deployment("gitops"), DEFAULT_WAIT_TIMEOUT).await?;
    story.expect(&crd()).await?;
    story.expect(&target).await?;
    let text = story.windlass_says(&with(&["check"]), false)?;
    ensure!(text.contains("windlass is not in namespace gitops"), "{text}");

    story.windlass_says(&with(&["uninstall", "--silent", "--delete-crds"]), true)?;
    story.await_gone(&crd(), DEFAULT_WAIT_TIMEOUT).await?;
    // The applied objects still exist.
    story.await_value("map", "1").await?;
    definitions_go(&story).await?;
    kinds_removed(&story).await?;
    uninstalled_by_flux(&story, "single").await?;
    uninstalled_by_flux(&story, "lockdown").await?;
    volumes(&story, ["volume-c", "volume-d"]).await?;
    uninstalled_by_flux(&story, "high-availability").await?;
    getting_started(&story).await
}

/// A process outside of the cluster holds the Lease. An installation refuses before it writes anything, and its dry-run says
/// so.
async fn led_outside(story: &Story) -> Result<()> {
    let lease = StoryObject::new("coordination.k8s.io/v1", "Lease", "windlass-leader-election");
    let lease = lease.in_namespace("gitops");
    let held = |identity: &str| {
        let now = jiff::Timestamp::now();
        json!({"spec": {"holderIdentity": identity, "leaseDurationSeconds": 60, "renewTime": format!("{now:.6}")}})
    };
    for arguments in [&["install", "-n", "gitops", "--dry-run"][..], &["install", "-n", "gitops"]] {
        story.merge(&lease, held("laptop")).await?;
        let text = story.windlass_says(arguments, false)?;
        let holds = "'laptop' holds Lease gitops/windlass-leader-election";
        ensure!(text.contains(holds) && text.contains("nothing was changed"), "{text}");
        ensure!(!text.contains("unchanged"), "{text}");
    }
    story.merge(&lease, held("")).await.map(drop)
}

/// Deletes CRDs together with their objects.
async fn definitions_go(story: &Story) -> Result<()> {
    story
        .await_until("all definitions to be gone", DEFAULT_WAIT_TIMEOUT, async || {
            let uninstall = ["uninstall", "--silent", "--delete-crds", "-n", "gitops"];
            let text = story.windlass_says(&uninstall, true)?;
            Ok(text.contains("nothing to delete").then_some(()))
        })
        .await
}

/// The kinds are removed while windlass is running, and finalizers are added again. `flux uninstall` meets this situation. The
/// applied objects stay.
async fn kinds_removed(story: &Story) -> Result<()> {
    let install = ["install", "-n", "gitops"];
    let (_, mut windlass) = story.windlass_installs(&install, &deployment("gitops")).await?;
    let _upstream = story.follow("kept", &[("map.yaml", config_map("kept", "1"))]).await?;
    story.kustomization("kept", "kept", json!({})).await?;
    let found = story.await_ready(&StoryObject::kustomization("kept")).await?;
    ensure!(found.metadata.finalizers.is_some(), "nothing would be deleted in any case");
    story.delete(&crd()).await?;
    story.await_gone(&crd(), DEFAULT_WAIT_TIMEOUT).await?;
    story.await_value("kept", "1").await?;
    windlass.operator.stop(DEFAULT_WAIT_TIMEOUT)?;
    definitions_go(story).await
}

/// Runs the standard `flux uninstall` while windlass keeps running with an administrator's rights. Workloads of Kustomizations
/// and releases stay, as with Flux. `flux` ignores StatefulSets, so the StatefulSet of a profile stays until windlass is
/// uninstalled.
async fn uninstalled_by_flux(story: &Story, profile: &str) -> Result<()> {
    let flag = format!("--profile={profile}");
    let install = ["install", &flag, "-n", "gitops"];
    let workload = match profile {
        "high-availability" => {
            StoryObject::new("apps/v1", "StatefulSet", "windlass-controller").in_namespace("gitops")
        }
        _ => deployment("gitops"),
    };
    let (_, mut installed) = story.windlass_installs(&install, &workload).await?;
    installed.operator.stop(DEFAULT_WAIT_TIMEOUT)?;
    let replicas = StoryObject::new("apps/v1", "StatefulSet", "windlass-controller");
    let replicas = replicas.in_namespace("gitops");
    ensure!(story.read(&replicas).await?.is_some() == (profile == "high-availability"), "{flag}");
    let administrator = format!("--kubeconfig={}", story.kubeconfig().display());
    let flags = ["--runtime-namespace=gitops", &administrator];
    let mut windlass = WindlassProcess::start(story.bed, &flags).await?;
    let left = format!("left-by-{profile}");
    let released = format!("released-by-{profile}");
    let _upstream = story.follow(&left, &[("map.yaml", config_map(&left, "1"))]).await?;
    story.kustomization(&left, &left, json!({})).await?;
    let charts = StoryChartRepository::of(story).await?;
    charts.publish("1.0.0", &[("templates/map.yaml", &config_map(&released, "1"))]).await?;
    let release = charts.release(&released, json!({})).await?;
    for target in [&StoryObject::kustomization(&left), &release] {
        let object = story.await_ready(target).await?;
        ensure!(object.metadata.finalizers.is_some(), "nothing would be deleted in any case");
    }
    story.flux_in("gitops", &["uninstall", "--silent", "--keep-namespace"])?;
    story.await_gone(&crd(), DEFAULT_WAIT_TIMEOUT).await?;
    let releases = "helmreleases.helm.toolkit.fluxcd.io";
    let releases =
        StoryObject::new("apiextensions.k8s.io/v1", "CustomResourceDefinition", releases);
    story.await_gone(&releases, DEFAULT_WAIT_TIMEOUT).await?;
    story.await_value(&left, "1").await?;
    story.await_value(&released, "1").await?;
    let history = story.history(&released)?;
    ensure!(history.len() == 1 && history[0].contains("deployed"), "{history:?}");
    story.await_gone(&deployment("gitops"), DEFAULT_WAIT_TIMEOUT).await?;
    ensure!(story.read(&replicas).await?.is_some() == (profile == "high-availability"), "{flag}");
    windlass.operator.stop(DEFAULT_WAIT_TIMEOUT)?;
    definitions_go(story).await?;
    story.await_gone(&replicas, DEFAULT_WAIT_TIMEOUT).await
}

/// The commands of the documentation page work exactly as written.
async fn getting_started(story: &Story) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = std::fs::read_to_string(root.join("docs/getting-started.md"))?;
    let manifest = std::fs::read_to_string(root.join("docs/getting-started/app.yaml"))?;
    // The repository of the page is on the Internet. A local one with the same directories takes its place.
    let server = GitServer::start(GitReadAccess::Open)?;
    let repository = server.repository("podinfo")?;
    repository.branch("master")?;
    let chart = "apiVersion: v2\nname: podinfo\nversion: 1.0.0\n";
    let files = [
        ("kustomize/map.yaml", config_map("applied", "1")),
        ("charts/podinfo/Chart.yaml", chart.to_owned()),
        ("charts/podinfo/templates/map.yaml", config_map("released", "{{ .Values.replicaCount }}")),
    ];
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (*path, &**text)).collect();
    repository.commit(&files, "first")?;
    let url = "https://github.com/stefanprodan/podinfo";
    ensure!(manifest.contains(url), "another repository");
    let folder = tempfile::tempdir()?;
    std::fs::create_dir_all(folder.path().join("docs/getting-started"))?;
    let path = folder.path().join("docs/getting-started/app.yaml");
    std::fs::write(path, manifest.replace(url, &server.url(&repository)))?;

    let commands = tutorial::commands(&page);
    ensure!(commands.len() <= 10, "{} commands", commands.len());
    let mut windlass = None;
    let mut output = String::new();
    for command in &commands {
        if command == "windlass install" {
            let target = deployment("flux-system");
            let (_, started) = story.windlass_installs(&["install"], &target).await?;
            windlass = Some(started);
            continue;
        }
        output = story.typed(command, folder.path())?;
        match command.as_str() {
            "windlass get all -n hello" => {
                ensure!(output.contains("stored artifact for revision 'master@sha1:"), "{output}");
                ensure!(output.contains("Applied revision: master@sha1:"), "{output}");
                ensure!(output.contains("Helm install succeeded"), "{output}");
            }
            "windlass why kustomization/app -n hello" => {
                ensure!(
                    output.contains("`missing` does not exist in the artifact; correct spec.path"),
                    "{output}"
                );
                let of = StoryObject::helm_release("web").in_namespace("hello");
                let hold = story.expect(&of).await?;
                let hold = condition(&hold, "windlass.dev/Hold")["message"].clone();
                let hold = hold.as_str().unwrap_or_default();
                ensure!(hold.contains("alice") && hold.contains("incident"), "{hold}");
            }
            _ => {}
        }
    }
    ensure!(output.contains("HelmRelease/hello/web is resumed"), "{output}");
    for (target, value) in [("applied", "1"), ("released", "2")] {
        let map = story.expect(&StoryObject::config_map(target).in_namespace("hello")).await?;
        ensure!(map.data["data"]["value"] == value, "{:?}", map.data);
    }
    for target in [StoryObject::kustomization("app"), StoryObject::helm_release("web")] {
        story.await_ready(&target.in_namespace("hello")).await?;
    }
    let mut windlass = windlass.context("the page does not install windlass")?;
    story.typed("kubectl delete namespace hello --timeout=60s", folder.path())?;
    windlass.operator.stop(DEFAULT_WAIT_TIMEOUT)?;
    story.typed("windlass uninstall --silent", folder.path()).map(drop)
}

/// Installs each of the other profiles in its own namespace, waits until it is ready, and removes it.
async fn profiles(story: &Story) -> Result<()> {
    volumes(story, ["volume-a", "volume-b"]).await?;
    for (profile, kind) in [("high-availability", "StatefulSet"), ("lockdown", "Deployment")] {
        let flag = format!("--profile={profile}");
        let target = StoryObject::new("apps/v1", kind, "windlass-controller");
        let target = target.in_namespace(profile);
        let install = ["install", &flag, "-n", profile];
        let (text, mut windlass) = story.windlass_installs(&install, &target).await?;
        let workload = format!("{kind}/{profile}/windlass-controller");
        ensure!(text.contains(&format!("{workload} created")), "{text}");
        let text = story.windlass_says(&["check", "-n", profile], true)?;
        ensure!(text.contains(&format!("{workload} ready")), "{text}");
        windlass.operator.stop(DEFAULT_WAIT_TIMEOUT)?;
        story.windlass_says(&["uninstall", "--silent", "-n", profile], true)?;
    }
    Ok(())
}

/// The files of the chart, as in a repository.
fn chart_files(version: &str) -> Result<Vec<(String, String)>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/chart");
    let mut files = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(&root)?.to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&path)?;
            let text = match name == "Chart.yaml" {
                true => text.replace("\nversion: 0.1.0\n", &format!("\nversion: {version}\n")),
                false => text,
            };
            files.push((format!("chart/{name}"), text));
        }
    }
    Ok(files)
}

fn borrowed(files: &[(String, String)]) -> Vec<(&str, String)> {
    files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect()
}

/// The standard Helm installs the chart. Then the installed windlass manages and upgrades the chart. The CRDs stay when the
/// chart is removed.
async fn charted(story: &Story) -> Result<()> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/chart");
    // The bed already has the roles, because every story needs them.
    let flags = ["--take-ownership", "--force-conflicts", "--wait"];
    story.helm_says(&[&["install", "windlass", folder][..], &flags].concat())?;
    let namespace = story.namespace.as_str();
    let mut windlass = story.installed(namespace).await?;
    let upstream = story.follow("windlass", &borrowed(&chart_files("0.1.0")?)).await?;
    let source = json!({"kind": "GitRepository", "name": "windlass"});
    let chart = json!({"spec": {"chart": "chart", "sourceRef": source, "interval": "10m"}});
    let object = json!({
        "apiVersion": "helm.toolkit.fluxcd.io/v2",
        "kind": "HelmRelease",
        "metadata": {"name": "windlass"},
        "spec": {"interval": "10m", "chart": chart},
    });
    story.apply_value(object).await?;
    let target = StoryObject::helm_release("windlass");
    story.await_ready(&target).await?;
    upstream.push(&borrowed(&chart_files("0.1.1")?)).await?;
    let is_new = |object: &DynamicObject| {
        newest(object)["chartVersion"] == "0.1.1" && condition(object, "Ready")["status"] == "True"
    };
    story.await_object(&target, 3 * DEFAULT_WAIT_TIMEOUT, is_new).await?;
    let status = windlass.operator.stop(DEFAULT_WAIT_TIMEOUT)?;
    ensure!(status.success(), "it ended with {status}");
    story.helm_says(&["uninstall", "windlass"])?;
    story.await_gone(&deployment(namespace), DEFAULT_WAIT_TIMEOUT).await?;
    // Without the CRDs, all their objects would be deleted, including those of other owners.
    story.expect(&crd()).await?;
    story.expect(&target).await?;
    Ok(())
}

/// Checks that windlass applies the content of a source.
async fn works(story: &Story, mut windlass: WindlassProcess) -> Result<()> {
    let upstream = story.follow("app", &[("map.yaml", config_map("map", "0"))]).await?;
    story.kustomization("app", "app", json!({})).await?;
    story.await_ready(&StoryObject::kustomization("app")).await?;
    let revision = upstream.push(&[("map.yaml", config_map("map", "1"))]).await?;
    story.await_applied("app", &revision).await?;
    story.await_value("map", "1").await?;
    let status = windlass.operator.stop(DEFAULT_WAIT_TIMEOUT)?;
    ensure!(status.success(), "it ended with {status}");
    Ok(())
}
