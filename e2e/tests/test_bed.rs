//! Stories about the test bed itself: it is real, and it leaves nothing behind.
//!
//! Here: control planes, Pods that misbehave on request, the Git server, the proxy in front of the API server. Elsewhere:
//! stories about windlass (the other files in this folder).

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::api_server_fault_proxy::{ApiFault, ApiServerFaultProxy, ConnectionCutMoment};
use e2e::control_plane::{self, ControlPlane};
use e2e::git_server::{GitReadAccess, GitServer};
use e2e::harness::{Story, StoryObject, await_until};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::api::{Api, DynamicObject, ListParams, WatchEvent, WatchParams};
use serde_json::json;

const SOON: Duration = Duration::from_secs(120);

/// A bare Pod, with or without an annotation for its state.
fn pod(name: &str, desired: Option<&str>) -> serde_json::Value {
    let annotations = desired.map(|desired| json!({"windlass.dev/testbed": desired}));
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"containers": [{"name": "main", "image": "none"}]},
    })
}

fn is_ready(object: &DynamicObject) -> bool {
    let conditions = object.data["status"]["conditions"].as_array();
    conditions
        .is_some_and(|all| all.iter().any(|it| it["type"] == "Ready" && it["status"] == "True"))
}

#[tokio::test]
async fn a_deployment_becomes_available_and_its_pods_leave_when_it_goes() -> Result<()> {
    let story = Story::begin("deployment").await?;
    story
        .apply(
            "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: none}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {colour: blue}
",
        )
        .await?;
    let web = StoryObject::new("apps/v1", "Deployment", "web");
    story.await_condition(&web, "Available", "True", SOON).await?;
    let settings: ConfigMap = story.get("settings").await?;
    ensure!(settings.data.context("data")?["colour"] == "blue");
    story.delete(&web).await?;
    story.await_gone(&web, SOON).await?;
    let pods = Api::<Pod>::namespaced(story.client.clone(), &story.namespace);
    story
        .await_until("the pods to go", SOON, async || {
            Ok(pods.list(&ListParams::default()).await?.items.is_empty().then_some(()))
        })
        .await?;
    story.end().await
}

#[tokio::test]
async fn an_unready_pod_runs_but_is_never_ready() -> Result<()> {
    let story = Story::begin("unready").await?;
    story.apply_value(pod("slow", Some("unready"))).await?;
    story.apply_value(pod("quick", None)).await?;
    let slow = StoryObject::of::<Pod>("slow");
    story.await_condition(&slow, "Ready", "False", SOON).await?;
    // The other Pod was created later, so the bed had enough time to make this one ready.
    story.await_condition(&StoryObject::of::<Pod>("quick"), "Ready", "True", SOON).await?;
    let object = story.read(&slow).await?.context("the pod is gone")?;
    ensure!(object.data["status"]["phase"] == "Running" && !is_ready(&object), "{object:?}");
    story.end().await
}

#[tokio::test]
async fn a_crash_looping_pod_says_so_and_counts_restarts() -> Result<()> {
    let story = Story::begin("crash").await?;
    story.apply_value(pod("bad", Some("crash-loop"))).await?;
    let bad = StoryObject::of::<Pod>("bad");
    let object = story
        .await_object(&bad, SOON, |pod| {
            let container = &pod.data["status"]["containerStatuses"][0];
            container["state"]["waiting"]["reason"] == "CrashLoopBackOff"
                && container["restartCount"].as_i64() >= Some(2)
        })
        .await?;
    ensure!(!is_ready(&object), "{object:?}");
    story.end().await
}

#[tokio::test]
async fn a_failing_pod_fails_and_its_job_gives_up() -> Result<()> {
    let story = Story::begin("fail").await?;
    story.apply_value(pod("bad", Some("fail"))).await?;
    let is_failed = |pod: &DynamicObject| pod.data["status"]["phase"] == "Failed";
    story.await_object(&StoryObject::of::<Pod>("bad"), SOON, is_failed).await?;
    story
        .apply(
            "
apiVersion: batch/v1
kind: Job
metadata: {name: bad}
spec:
  backoffLimit: 0
  template:
    metadata: {annotations: {windlass.dev/testbed: fail}}
    spec: {restartPolicy: Never, containers: [{name: main, image: none}]}
",
        )
        .await?;
    let job = StoryObject::new("batch/v1", "Job", "bad");
    story.await_condition(&job, "Failed", "True", SOON).await?;
    story.end().await
}

#[tokio::test]
async fn a_job_completes_and_what_it_printed_can_be_read() -> Result<()> {
    let story = Story::begin("job").await?;
    story
        .apply(
            "
apiVersion: batch/v1
kind: Job
metadata: {name: work}
spec:
  template:
    metadata: {annotations: {windlass.dev/testbed-delay: 300ms}}
    spec: {restartPolicy: Never, containers: [{name: main, image: none}]}
",
        )
        .await?;
    story
        .await_condition(&StoryObject::new("batch/v1", "Job", "work"), "Complete", "True", SOON)
        .await?;
    let pods = Api::<Pod>::namespaced(story.client.clone(), &story.namespace);
    let pod = pods.list(&ListParams::default()).await?.items.pop().context("no pod")?;
    let log = pods.logs(&pod.metadata.name.context("a name")?, &Default::default()).await?;
    ensure!(log.contains("test bed"), "{log}");
    story.end().await
}

#[tokio::test]
async fn a_story_that_waits_in_vain_tells_the_status_and_the_events() -> Result<()> {
    let story = Story::begin("vain").await?;
    story.apply_value(pod("bad", Some("crash-loop"))).await?;
    let bad = StoryObject::of::<Pod>("bad");
    story.await_condition(&bad, "Ready", "False", SOON).await?;
    story
        .await_until("an event", SOON, async || {
            let api = Api::<k8s_openapi::api::core::v1::Event>::namespaced(
                story.client.clone(),
                &story.namespace,
            );
            let all = api.list(&ListParams::default()).await?.items;
            Ok(all.iter().any(|it| it.reason.as_deref() == Some("BackOff")).then_some(()))
        })
        .await?;
    let outcome = story.await_condition(&bad, "Ready", "True", Duration::from_millis(100)).await;
    let text = format!("{:#}", outcome.err().context("it must fail")?);
    ensure!(text.contains("did not come to Ready=True"), "{text}");
    ensure!(text.contains("CrashLoopBackOff"), "no status in: {text}");
    ensure!(text.contains("Warning BackOff Pod/bad"), "no events in: {text}");
    story.end().await
}

#[tokio::test]
async fn a_second_control_plane_knows_nothing_of_the_first() -> Result<()> {
    let story = Story::begin("two").await?;
    let second = ControlPlane::start().await?;
    let client = control_plane::client(&second.kubeconfig()).await?;
    let namespaces = Api::<Namespace>::all(client);
    ensure!(namespaces.get_opt(&story.namespace).await?.is_none());
    ensure!(namespaces.get_opt("flux-system").await?.is_some());
    let folder = second.state().folder().to_owned();
    drop(second);
    ensure!(!folder.exists(), "{} is still there", folder.display());
    ensure!(processes_of(&folder).is_empty(), "{:?}", processes_of(&folder));
    story.end().await
}

#[tokio::test]
async fn users_are_held_to_their_rights() -> Result<()> {
    let plane = ControlPlane::start().await?;
    // The operator has all rights, but only through RBAC, because it is a ServiceAccount.
    let operator = control_plane::client(&plane.operator_kubeconfig()).await?;
    Api::<Namespace>::all(operator).list(&ListParams::default()).await?;
    let stranger = control_plane::client(&plane.user_kubeconfig("jane", None)?).await?;
    let answer = Api::<Namespace>::all(stranger).list(&ListParams::default()).await;
    ensure!(matches!(&answer, Err(kube::Error::Api(status)) if status.code == 403), "{answer:?}");
    let account = plane.service_account_kubeconfig("default", "default").await?;
    let account = control_plane::client(&account).await?;
    let answer = Api::<Namespace>::all(account).list(&ListParams::default()).await;
    ensure!(matches!(&answer, Err(kube::Error::Api(status)) if status.code == 403), "{answer:?}");
    let audit = std::fs::read_to_string(plane.state().audit_log())?;
    let by_operator = "\"username\":\"system:serviceaccount:flux-system:windlass-controller\"";
    ensure!(audit.contains(by_operator), "the operator's request is not in the audit log");
    Ok(())
}

/// This is no story. The next story starts it in a separate process and kills that process.
#[tokio::test]
#[ignore = "started by another story, which kills it"]
async fn a_bed_for_another_story() -> Result<()> {
    let Some(note) = std::env::var_os("BED_NOTE") else { return Ok(()) };
    let plane = ControlPlane::start().await?;
    let server = GitServer::start(GitReadAccess::Open)?;
    let ssh = server.ssh()?;
    let folders = format!("{}\n{}\n", plane.state().folder().display(), server.folder().display());
    std::fs::write(Path::new(&note).with_extension("part"), folders)?;
    std::fs::rename(Path::new(&note).with_extension("part"), note)?;
    tokio::time::sleep(Duration::from_secs(600)).await;
    drop((plane, server, ssh));
    Ok(())
}

#[tokio::test]
async fn nothing_is_left_after_a_test_run_is_killed() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let note = folder.path().join("note");
    let mut run = Command::new(std::env::current_exe()?)
        .args(["--ignored", "--exact", "test_bed::a_bed_for_another_story"])
        .env("BED_NOTE", &note)
        .stdout(Stdio::null())
        .spawn()?;
    let folder_list =
        await_until("the other run to have a bed", Duration::from_secs(60), async || {
            Ok(std::fs::read_to_string(&note).ok())
        })
        .await;
    let before = match &folder_list {
        Ok(folder_list) => {
            folder_list.lines().map(|it| processes_of(Path::new(it)).len()).collect()
        }
        Err(_) => Vec::new(),
    };
    run.kill()?;
    run.wait()?;
    let folder_list = folder_list?;
    // The programs of the control plane and its reaper, and `sshd` and the reaper of the Git server.
    ensure!(before[0] == 6 && before[1] >= 2, "the bed was not there: {before:?}");
    await_until("the bed to go", Duration::from_secs(10), async || {
        let mut folders = folder_list.lines().map(Path::new);
        Ok(folders.all(|it| !it.exists() && processes_of(it).is_empty()).then_some(()))
    })
    .await
}

#[tokio::test]
async fn a_repository_is_cloned_over_http_with_a_password() -> Result<()> {
    let access = GitReadAccess::Basic { user: "jane".into(), password: "s3cret".into() };
    let server = GitServer::start(access)?;
    let repository = server.repository("team/app")?;
    let hash = repository.commit(&[("deploy/app.yaml", "kind: App\n")], "first")?;
    let folder = tempfile::tempdir()?;
    let url = server.url(&repository);
    ensure!(!clone(&url, &folder.path().join("a"), &[])?.status.success(), "let in without name");
    ensure!(server.requests().iter().all(|it| it.status == 401), "{:?}", server.requests());
    server.forget_requests();

    let url = url.replace("http://", "http://jane:s3cret@");
    let target = folder.path().join("b");
    let output = clone(&url, &target, &[])?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    ensure!(std::fs::read_to_string(target.join("deploy/app.yaml"))? == "kind: App\n");
    let head = Command::new("git").args(["rev-parse", "HEAD"]).current_dir(&target).output()?;
    ensure!(String::from_utf8(head.stdout)?.trim() == hash);
    let requests = server.requests();
    let fetches = requests.iter().filter(|it| it.path == "/team/app.git/git-upload-pack");
    ensure!(fetches.map(|it| it.sent).sum::<u64>() > 100, "{requests:?}");
    Ok(())
}

#[tokio::test]
async fn a_repository_is_cloned_over_https_with_a_token() -> Result<()> {
    let server = GitServer::start_tls(GitReadAccess::Bearer("t0ken".into()))?;
    let repository = server.repository("app")?;
    repository.commit(&[("a", "1")], "first")?;
    let folder = tempfile::tempdir()?;
    let authority = folder.path().join("ca.crt");
    std::fs::write(&authority, server.authority().context("no authority")?.certificate())?;
    let url = server.url(&repository);
    let target = folder.path().join("a");
    let header = ["-c", "http.extraHeader=Authorization: Bearer t0ken"];
    ensure!(!clone(&url, &target, &header)?.status.success(), "a strange certificate is trusted");
    let trust = format!("http.sslCAInfo={}", authority.display());
    let output = clone(&url, &target, &[&header[..], &["-c", &trust]].concat())?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

#[tokio::test]
async fn a_stalled_server_answers_when_it_is_released() -> Result<()> {
    let server = GitServer::start(GitReadAccess::Open)?;
    let repository = server.repository("app")?;
    repository.commit(&[("a", "1")], "first")?;
    let mut list = git().args(["ls-remote", &server.slow_url(&repository)]).spawn()?;
    std::thread::sleep(Duration::from_millis(500));
    let early = list.try_wait()?;
    server.release();
    let status = list.wait()?;
    ensure!(early.is_none(), "it was answered before the release");
    ensure!(status.success());
    Ok(())
}

#[tokio::test]
async fn a_repository_is_cloned_over_ssh() -> Result<()> {
    let server = GitServer::start(GitReadAccess::Open)?;
    let ssh = server.ssh()?;
    let repository = server.repository("team/app")?;
    repository.commit(&[("a", "1")], "first")?;
    let folder = tempfile::tempdir()?;
    let target = folder.path().join("a");
    let output = git()
        .args(["clone", "-q", &ssh.url(&repository)])
        .arg(&target)
        .env("GIT_SSH_COMMAND", ssh.git_ssh_command())
        .output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    ensure!(std::fs::read_to_string(target.join("a"))? == "1");
    ensure!(ssh.identity()?.contains("OPENSSH PRIVATE KEY"));
    ensure!(ssh.known_hosts()?.starts_with("[127.0.0.1]:"));
    Ok(())
}

fn git() -> Command {
    let mut git = Command::new("git");
    git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_TERMINAL_PROMPT", "0");
    // This variable would override the settings of a single command.
    git.env_remove("GIT_SSL_CAINFO");
    git.stdout(Stdio::null());
    git
}

fn clone(url: &str, target: &Path, settings: &[&str]) -> Result<Output> {
    Ok(git().args(settings).args(["clone", "-q", url]).arg(target).output()?)
}

/// The ids of all processes whose command line names a path in `folder`.
fn processes_of(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let folder = folder.display().to_string();
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names
        .filter(|id| id.bytes().all(|byte| byte.is_ascii_digit()))
        .filter(|id| {
            let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(&folder)
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_loses_the_request_or_only_its_answer() -> Result<()> {
    let story = Story::begin("cut").await?;
    let proxy = ApiServerFaultProxy::start(story.bed.operator_kubeconfig())?;
    for (moment, name, is_there) in
        [(ConnectionCutMoment::Before, "lost", false), (ConnectionCutMoment::After, "kept", true)]
    {
        let client = control_plane::client(proxy.kubeconfig()).await?;
        let api = Api::<ConfigMap>::namespaced(client, &story.namespace);
        let mut cut = proxy.cut_at(2, moment);
        let map = |name: &str| -> Result<ConfigMap> {
            Ok(serde_json::from_value(json!({"metadata": {"name": name}}))?)
        };
        api.create(&Default::default(), &map(&format!("before-{name}"))?).await?;
        let second = map(name)?;
        let api = &api;
        let request = async move { api.create(&Default::default(), &second).await };
        // The lost connection and the message about the cut come in any order.
        let at = tokio::select! {
            at = cut.wait() => at,
            answer = request => {
                ensure!(answer.is_err(), "an answer came through: {answer:?}");
                cut.wait().await
            }
        };
        let at = at.context("the cut did not happen")?;
        ensure!(at.ends_with("/configmaps") && proxy.writes().len() == 2, "{:?}", proxy.writes());
        let found = story.read(&StoryObject::config_map(name)).await?;
        ensure!(found.is_some() == is_there, "cut {moment}: {found:?}");
        proxy.heal();
    }
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_pass_the_proxy_as_they_come_and_end_on_request() -> Result<()> {
    let story = Story::begin("proxied").await?;
    let proxy = ApiServerFaultProxy::start(story.bed.operator_kubeconfig())?;
    let client = control_plane::client(proxy.kubeconfig()).await?;
    let api = Api::<ConfigMap>::namespaced(client, &story.namespace);
    let version = api.list(&ListParams::default()).await?.metadata.resource_version;
    let version = version.context("a list has a version")?;
    // The controller manager adds this ConfigMap to every namespace at any time.
    let watched = WatchParams::default().fields("metadata.name!=kube-root-ca.crt");
    let mut events = Box::pin(api.watch(&watched, &version).await?);
    for round in 0..3 {
        let name = format!("round-{round}");
        story
            .apply_value(
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}),
            )
            .await?;
        let event = tokio::time::timeout(SOON, events.next()).await?.context("an event")??;
        let is_it =
            matches!(&event, WatchEvent::Added(it) if it.metadata.name.as_ref() == Some(&name));
        ensure!(is_it, "{event:?}");
    }
    proxy.end_watches();
    let end = tokio::time::timeout(SOON, events.next()).await?;
    ensure!(end.is_none(), "{end:?}");
    // The history before this version no longer exists.
    proxy.begin(ApiFault::Compacted(version.parse::<u64>()? + 1));
    let mut events = Box::pin(api.watch(&WatchParams::default(), &version).await?);
    let event = tokio::time::timeout(SOON, events.next()).await?.context("an event")??;
    ensure!(matches!(&event, WatchEvent::Error(status) if status.code == 410), "{event:?}");
    story.end().await
}
