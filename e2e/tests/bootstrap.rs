//! Bootstraps windlass from a Git repository that windlass follows from then on. The stories use SSH and HTTPS, run the command
//! twice, and use a repository that `flux bootstrap` made.
//!
//! The stories have their own process, because CRDs and ClusterRoles are cluster-scoped.
//! Elsewhere: the files (`cli/installation/src/bootstrap/layout/tests.rs`), installing without a repository
//! (`installation.rs`).

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::git_server::{GitReadAccess, GitServer, StoryGitRepository};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition, revision};
use e2e::harness::installed_windlass::deployment;
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject, WindlassProcess};
use e2e::operator_process;
use serde_json::json;

const PATH: &str = "--path=clusters/one";

/// Runs `windlass bootstrap git` in the namespace of the story.
async fn bootstrap(story: &Story, url: &str, more: &[&str], is_success: bool) -> Result<String> {
    let url = format!("--url={url}");
    let fixed = ["bootstrap", "git", "-n", &story.namespace, &url];
    let has_path = more.iter().any(|it| it.starts_with("--path="));
    let path: &[&str] = if has_path { &[] } else { &[PATH] };
    let arguments = [&fixed, path, more].concat();
    // While the command runs, this process starts windlass in place of a Pod, and needs a thread for that.
    tokio::task::block_in_place(|| story.windlass_says(&arguments, is_success))
}

fn file(story: &Story, name: &str) -> String {
    format!("clusters/one/{}/{name}", story.namespace)
}

fn system() -> StoryObject {
    StoryObject::kustomization("flux-system")
}

fn secret() -> StoryObject {
    StoryObject::new("v1", "Secret", "flux-system")
}

fn key_files(folder: &Path, server: &GitServer) -> Result<(String, String)> {
    let ssh = server.ssh()?;
    let path = folder.join("key");
    std::fs::write(&path, ssh.identity()?)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    Ok((format!("--private-key-file={}", path.display()), ssh.known_hosts()?))
}

/// Bootstraps a cluster without windlass and without its CRDs. Everything comes from the repository.
async fn on_a_bare_cluster(story: &Story, server: &GitServer) -> Result<WindlassProcess> {
    let folder = tempfile::tempdir()?;
    let (key, _) = key_files(folder.path(), server)?;
    let ssh = server.ssh()?;
    let url = ssh.url(&server.repository("bare")?);
    let mut command = tokio::process::Command::new(operator_process::binary()?);
    command
        .args(["bootstrap", "git", "-n", &story.namespace, PATH, &key])
        .arg(format!("--url={url}"));
    command.arg(format!("--kubeconfig={}", story.kubeconfig().display()));
    let ended = async {
        let output = command.output().await.context("windlass cannot be started")?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        ensure!(output.status.success() && text.contains("windlass follows"), "{text}");
        Ok(())
    };
    // Pods run no processes here, so a process with the token of the installation takes their place.
    let started = async {
        story.await_object(&deployment(&story.namespace), DEFAULT_WAIT_TIMEOUT, |_| true).await?;
        story.installed(&story.namespace).await
    };
    let ((), windlass) = tokio::try_join!(ended, started)?;
    Ok(windlass)
}

/// Bootstraps from an empty repository over SSH. All files are created, and a second run creates nothing.
async fn over_ssh(
    story: &Story,
    server: &GitServer,
    repository: &StoryGitRepository,
) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (key, known_hosts) = key_files(folder.path(), server)?;
    let ssh = server.ssh()?;
    let url = ssh.url(repository);
    let text = bootstrap(story, &url, &[&key], true).await?;
    ensure!(text.contains("host key of 127.0.0.1: "), "{text}");
    ensure!(text.contains(&format!("pushed {}", file(story, "gotk-components.yaml"))), "{text}");
    let first = repository.hash("main")?;
    story.await_applied("flux-system", &revision(&first)).await?;
    let data = story.expect(&secret()).await?.data["data"].clone();
    ensure!(data["identity.pub"].is_string() && data["known_hosts"].is_string(), "{data}");
    ensure!(!known_hosts.is_empty(), "the server has no host key");

    // windlass follows the repository. It applies files beside its manifests, and adopts its own objects.
    let map = config_map("beside", "1")
        .replace("metadata: {", &format!("metadata: {{namespace: {}, ", story.namespace));
    repository.git(&["checkout", "-q", "-f", "main"])?;
    let second = repository.commit(&[("clusters/one/map.yaml", &map)], "a map")?;
    story.request(&StoryObject::git_repository("flux-system")).await?;
    story.await_applied("flux-system", &revision(&second)).await?;
    story.await_value("beside", "1").await?;

    // A second run uses the key in the cluster, and writes nothing.
    let before = story.expect(&deployment(&story.namespace)).await?;
    let text = bootstrap(story, &url, &[&key], true).await?;
    ensure!(text.contains("the repository is up to date"), "{text}");
    ensure!(!text.contains("Secret/"), "{text}");
    let changed: Vec<&str> = text.lines().filter(|it| it.ends_with("configured")).collect();
    ensure!(changed.is_empty(), "{changed:?}");
    ensure!(repository.hash("main")? == second, "it was committed to");
    let after = story.expect(&deployment(&story.namespace)).await?;
    ensure!(before.metadata.generation == after.metadata.generation, "it was changed");
    Ok(())
}

/// Bootstraps from a repository of `flux bootstrap`, over HTTPS with a password. The layout stays, and the components are
/// replaced.
async fn of_flux(story: &Story, server: &GitServer) -> Result<()> {
    let namespace = story.namespace.as_str();
    let repository = server.repository("fleet")?;
    let url = server.url(&repository);
    let sync = format!(
        "# This manifest was generated by flux. DO NOT EDIT.\n---\napiVersion: source.toolkit.fluxcd.io/v1\n\
         kind: GitRepository\nmetadata:\n  name: flux-system\n  namespace: {namespace}\nspec:\n  interval: 1m0s\n  ref:\n    \
         branch: main\n  secretRef:\n    name: flux-system\n  url: {url}\n---\n\
         apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata:\n  name: flux-system\n  namespace: \
         {namespace}\nspec:\n  interval: 10m0s\n  path: ./clusters/one\n  prune: true\n  sourceRef:\n    kind: \
         GitRepository\n    name: flux-system\n"
    );
    let own = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n- gotk-components.yaml\n\
               - gotk-sync.yaml\npatches:\n- patch: |-\n    - op: add\n      path: /metadata/annotations\n      \
               value: {team: a}\n  target: {kind: Deployment}\n";
    let components = config_map("source-controller", "of Flux");
    let [components_path, sync_path, own_path] =
        ["gotk-components.yaml", "gotk-sync.yaml", "kustomization.yaml"].map(|it| file(story, it));
    let files = [(&*components_path, &*components), (&*sync_path, &*sync), (&*own_path, own)];
    let flux = repository.commit(&files, "Add Flux")?;

    let folder = tempfile::tempdir()?;
    let ca = folder.path().join("ca.crt");
    std::fs::write(&ca, server.authority().context("no authority")?.certificate())?;
    let ca = format!("--ca-file={}", ca.display());
    let wrong = bootstrap(story, &url, &[&ca, "--username=me", "--password=wr0ng"], false).await?;
    ensure!(wrong.contains("git ls-remote") && !wrong.contains("wr0ng"), "{wrong}");

    // The server refuses pushes to the branch, so nothing reaches the cluster.
    let hook = repository.path().join("hooks/pre-receive");
    std::fs::write(&hook, "#!/bin/sh\necho 'main is protected'\nexit 1\n")?;
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755))?;
    let access = [&*ca, "--username=me", "--password=hunter2"];
    let text = bootstrap(story, &url, &access, false).await?;
    ensure!(text.contains("main is protected") && text.contains("nothing was installed"), "{text}");
    let source = story.expect(&StoryObject::git_repository("flux-system")).await?;
    ensure!(source.data["spec"]["url"] != url.as_str(), "the source was changed");
    std::fs::remove_file(hook)?;

    let text = bootstrap(story, &url, &access, true).await?;
    ensure!(text.contains(&format!("pushed {components_path} to branch main")), "{text}");
    ensure!(!text.contains("hunter2"), "{text}");
    ensure!(repository.hash("main~1")? == flux, "more than one commit was added");
    ensure!(
        repository.git(&["show", &format!("main:{sync_path}")])? == sync.trim(),
        "the sync changed"
    );
    let found = story.expect(&deployment(namespace)).await?;
    ensure!(found.metadata.annotations.is_some_and(|it| it["team"] == "a"), "the patch was lost");
    // The objects from the other repository are deleted.
    story.await_gone(&StoryObject::config_map("beside"), DEFAULT_WAIT_TIMEOUT).await?;
    let source = story.expect(&StoryObject::git_repository("flux-system")).await?;
    ensure!(source.data["spec"]["url"] == url.as_str(), "{}", source.data["spec"]);
    Ok(())
}

/// The command names the obstacle, and writes nothing.
async fn refused(story: &Story, server: &GitServer) -> Result<()> {
    let repository = server.repository("refused")?;
    let url = server.url(&repository);
    let folder = tempfile::tempdir()?;
    let ca = folder.path().join("ca.crt");
    std::fs::write(&ca, server.authority().context("no authority")?.certificate())?;
    let ca = format!("--ca-file={}", ca.display());
    let access = [&*ca, "--username=me", "--password=hunter2"];
    let ensure_refused = async |url: &str, more: &[&str], part: &str| {
        let text = bootstrap(story, url, &[&access, more].concat(), false).await?;
        ensure!(text.contains(part), "{part}: {text}");
        anyhow::Ok(())
    };
    ensure_refused("http://127.0.0.1:1/a.git", &[], "not encrypted").await?;
    ensure_refused("git@github.com:a/b.git", &[], "--url").await?;
    ensure_refused("https://me:hunter3@127.0.0.1:1/a.git", &[], "pass --password").await?;
    ensure_refused(&url, &["--path=../up"], "not a folder of the repository").await?;
    ensure_refused(&url, &["--profile=lockdown"], "windlass install --profile lockdown").await?;
    repository.commit(&[("README.md", "of the team")], "first")?;
    ensure_refused(&url, &["--branch=prod"], "has no branch `prod`, but has main").await?;
    ensure!(story.read(&deployment(&story.namespace)).await?.is_none(), "something was written");
    let options = ["--branch=main", "--timeout=1s"];
    let key = bootstrap(story, "ssh://git@127.0.0.1:1/a.git", &options, false).await?;
    ensure!(key.contains("ssh-keyscan") || key.contains("no host key"), "{key}");

    let controller = StoryObject::new("apps/v1", "Deployment", "kustomize-controller");
    let labels = json!({"app.kubernetes.io/part-of": "flux"});
    let template = json!({"metadata": {"labels": {"app": "kc"}},
        "spec": {"containers": [{"name": "manager", "image": "kc:v1"}]}});
    story
        .apply_value(json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "kustomize-controller", "labels": labels},
            "spec": {"selector": {"matchLabels": {"app": "kc"}}, "template": template},
        }))
        .await?;
    ensure_refused(&url, &[], "windlass migrate from-flux").await?;
    story.delete(&controller).await?;

    // The Pods of windlass would wait for this process, because it is none of them.
    let lease = "windlass-leader-election";
    let now = jiff::Timestamp::now();
    story
        .apply_value(json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": lease},
            "spec": {
                "holderIdentity": "laptop", "leaseDurationSeconds": 60, "renewTime": format!("{now:.6}"),
            },
        }))
        .await?;
    let before = repository.hash("main")?;
    ensure_refused(&url, &["--branch=main"], "'laptop' holds Lease").await?;
    ensure!(repository.hash("main")? == before, "something was pushed");
    ensure!(story.read(&deployment(&story.namespace)).await?.is_none(), "something was installed");
    story.delete(&StoryObject::new("coordination.k8s.io/v1", "Lease", lease)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_bootstrapped_from_a_repository_and_follows_it() -> Result<()> {
    let story = Story::begin("bootstrap").await?;
    let user = "me".to_owned();
    let password = "hunter2".to_owned();
    let server = GitServer::start_tls(GitReadAccess::Basic { user, password })?;
    refused(&story, &server).await?;
    let repository = server.repository("cluster")?;
    let mut windlass = on_a_bare_cluster(&story, &server).await?;
    over_ssh(&story, &server, &repository).await?;
    of_flux(&story, &server).await?;
    let object = story.expect(&system()).await?;
    ensure!(condition(&object, "Ready")["status"] == "True", "{:?}", object.data["status"]);
    windlass.operator.stop(Duration::from_secs(10))?;
    Ok(())
}
