//! The arguments of commands: kinds, names, exit statuses, and objects that a user may not read.

use anyhow::{Result, ensure};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject};
use serde_json::json;

use crate::cli::{CommandOutput, anywhere, windlass};

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_is_named_by_kind_plural_short_name_and_subject() -> Result<()> {
    let story = Story::with_windlass("grammar").await?;
    let _upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    story.kustomization("app", "app", json!({})).await?;
    story.await_ready(&StoryObject::kustomization("app")).await?;
    let subject = format!("Kustomization/{}/app", story.namespace);
    let words: [&[&str]; 6] = [
        &["ks/app"],
        &["ks", "app"],
        &["Kustomization/app"],
        &["kustomizations"],
        &["kustomization.kustomize.toolkit.fluxcd.io/app"],
        &["ks,hr"],
    ];
    for words in words {
        let names = windlass(&story, &[&["get", "-o", "name"], words].concat())?.ended(0)?;
        ensure!(names == "kustomization.kustomize.toolkit.fluxcd.io/app\n", "{words:?}: {names}");
    }
    anywhere(&story, &["get", &subject, "-o", "name"])?.ended(0)?;
    let names = windlass(&story, &["get", "all", "-o", "name"])?.ended(0)?;
    ensure!(names.lines().count() == 2, "{names}");
    let map = windlass(&story, &["get", "cm/a", "-o", "json"])?.json(0)?;
    ensure!(map["data"]["value"] == "1", "{map}");

    let err = |said: CommandOutput, code| {
        ensure!(said.code == Some(code) && said.out.is_empty(), "{said:?}");
        anyhow::Ok(said.err)
    };
    let said = err(windlass(&story, &["get", "kustomisation"])?, 2)?;
    ensure!(said.contains("did you mean `kustomization`?"), "{said}");
    let said = err(windlass(&story, &["get", "ks/ap"])?, 2)?;
    ensure!(
        said.contains(&format!(
            "Kustomization/{}/ap does not exist: did you mean `app`?",
            story.namespace
        )),
        "{said}"
    );
    let said = err(anywhere(&story, &["get", "ks/app", "-n", "default"])?, 2)?;
    ensure!(said.contains("add -n "), "{said}");
    let said = err(windlass(&story, &["get", "ks/app", "-l", "team=web"])?, 2)?;
    ensure!(said.contains("leave out the name or -l"), "{said}");
    ensure!(windlass(&story, &["get", "-o", "name"])?.ended(0)? == names, "without a kind: all");
    err(windlass(&story, &["get", "ks", "--status-selector", "x"])?, 2)?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_cluster_has_a_status_of_its_own() -> Result<()> {
    let story = Story::begin("unreachable").await?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("kubeconfig");
    let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "a",
        "clusters": [{"name": "a", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "a", "user": {"token": "none"}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}]});
    std::fs::write(&path, kubeconfig.to_string())?;
    let output = std::process::Command::new(e2e::operator_process::binary()?)
        .args(["get", "all", "--kubeconfig", &path.display().to_string()])
        .output()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(
        output.status.code() == Some(3) && text.contains("the cluster cannot be reached"),
        "{text}"
    );
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_user_may_not_read_is_left_out_and_named() -> Result<()> {
    let story = Story::with_windlass("left-out").await?;
    let _upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    let rights = format!(
        "
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: reader}}
rules: [{{apiGroups: [kustomize.toolkit.fluxcd.io], resources: [kustomizations], verbs: [get, list]}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: reader}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}}
subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: reader-{0}}}]
",
        story.namespace
    );
    story.apply(&rights).await?;
    story.kustomization("app", "app", json!({})).await?;
    story.await_ready(&StoryObject::kustomization("app")).await?;
    let user = format!("--as=reader-{}", story.namespace);
    let names = windlass(&story, &["get", "ks", "-o", "name", &user])?.ended(0)?;
    ensure!(names.lines().count() == 1, "{names}");
    let said = windlass(&story, &["get", "ks,gitrepo", "-o", "name", &user])?;
    ensure!(said.code == Some(2) && said.out == names, "{said:?}");
    ensure!(said.err.contains("left out: gitrepositories in namespace"), "{said:?}");
    let said = anywhere(&story, &["get", "ks", "-A", &user])?;
    ensure!(said.code == Some(2) && said.err.contains("use -n"), "{said:?}");
    // A source that the user may not read does not count as missing. The health of an unreadable applied object is unknown.
    let why = windlass(&story, &["why", "ks/app", "-o", "json", &user])?.json(2)?;
    let remarks = why["remarks"].as_array().map(Vec::len);
    let unread = json!([format!("ConfigMap/{}/a", story.namespace)]);
    ensure!(why["cause"].is_null() && remarks > Some(0) && why["unread"] == unread, "{why:#}");
    story.end().await
}
