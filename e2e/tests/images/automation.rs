//! Automations with a real Git server. windlass commits and pushes the tags that policies choose, for all automations of a
//! repository together.
//!
//! If the spec names a branch, windlass pushes to that branch and opens one pull request. If another writer was faster, the
//! commit is made again.
//! Elsewhere: setting values (`engines/image`), the answers of servers to a push (`sources/git/tests/git_loopback`),
//! repositories in other namespaces (`object_references.rs`).

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::git_server::StoryGitRepository;
use e2e::harness::flux_objects::{
    DEFAULT_WAIT_TIMEOUT, FollowedGitRepository, condition, revision,
};
use e2e::harness::{Story, StoryObject};
use e2e::servers::gitea::{GiteaServer, USER};
use e2e::servers::registry::RegistryServer;
use kube::api::DynamicObject;
use reqwest::Method;
use serde_json::{Value, json};

use super::fake_gitea::{FakeGitea, TOKEN};
use super::{GROUP_VERSION, await_latest, policy, push, repository, repository_target};
use crate::cli::windlass;

const FILE: &str = "deploy/web.yaml";

const PULL_REQUEST: &str = "windlass.dev/pull-request";

fn target() -> StoryObject {
    StoryObject::new(GROUP_VERSION, "ImageUpdateAutomation", "app")
}

/// An image with a policy for its tags, and a repository with a file that contains the policy's marker.
struct Images<'s> {
    story: &'s Story,
    registry: RegistryServer,
    image: String,
    upstream: FollowedGitRepository<'s>,
}

impl<'s> Images<'s> {
    async fn begin(story: &'s Story) -> Result<Self> {
        let registry = RegistryServer::start().await?;
        let image = published(story, &registry).await?;
        let files = [(FILE, Self::file(story, &image, "0.9.0"))];
        let upstream = story.follow("app", &files).await?;
        Ok(Self { story, registry, image, upstream })
    }

    fn file(story: &Story, image: &str, tag: &str) -> String {
        let policy = json!({"$imagepolicy": format!("{}:app", story.namespace)});
        // The blank line and the indentation stay.
        format!("kind: Deployment\n\nspec:\n    image:   {image}:{tag} # {policy}\n")
    }

    /// Publishes a new tag, and waits until a scan finds it.
    async fn release(&self, tag: &str) -> Result<()> {
        push(&self.registry, tag).await?;
        self.story.request(&repository_target()).await?;
        await_latest(self.story, "app", &json!({"name": self.image, "tag": tag})).await.map(drop)
    }

    fn git(&self, arguments: &[&str]) -> Result<String> {
        self.upstream.repository.git(arguments)
    }

    /// Checks that the file on a branch has the image with a tag, and is otherwise unchanged.
    fn has_tag(&self, branch: &str, tag: &str) -> Result<()> {
        let found = self.git(&["show", &format!("{branch}:{FILE}")])?;
        let expected = Self::file(self.story, &self.image, tag);
        ensure!(found == expected.trim(), "{found}");
        Ok(())
    }
}

/// Publishes the first version of an image, which a policy chooses.
async fn published(story: &Story, registry: &RegistryServer) -> Result<String> {
    let image = format!("{}/team/app", registry.host());
    push(registry, "1.0.0").await?;
    repository(story, &image, json!({})).await?;
    policy(story, "app", json!({})).await?;
    await_latest(story, "app", &json!({"name": image, "tag": "1.0.0"})).await?;
    Ok(image)
}

async fn automation(story: &Story, pushes: Value) -> Result<()> {
    annotated_automation(story, pushes, json!({})).await
}

async fn annotated_automation(story: &Story, pushes: Value, annotations: Value) -> Result<()> {
    let message =
        "{{ range .Changed.Changes }}{{ .OldValue }} -> {{ .NewValue }} by {{ .Setter }}{{ end }}";
    let author = json!({"name": "Bot", "email": "bot@example.com"});
    let object = json!({"apiVersion": GROUP_VERSION, "kind": "ImageUpdateAutomation",
        "metadata": {"name": "app", "annotations": annotations},
        "spec": {"interval": "1h", "sourceRef": {"kind": "GitRepository", "name": "app"},
            "update": {"path": "./deploy", "strategy": "Setters"},
            "git": {"commit": {"author": author, "messageTemplate": message}, "push": pushes}}});
    story.apply_value(object).await.map(drop)
}

/// Waits for a commit after another one.
async fn await_pushed(story: &Story, before: Option<&str>) -> Result<String> {
    await_pushed_by(story, &target(), before).await
}

/// Waits for a commit of an automation after another one.
async fn await_pushed_by(
    story: &Story,
    automation: &StoryObject,
    before: Option<&str>,
) -> Result<String> {
    let commit = |object: &DynamicObject| {
        let commit = object.data["status"]["lastPushCommit"].as_str().map(str::to_owned);
        commit.filter(|commit| Some(commit.as_str()) != before)
    };
    let is_pushed = |object: &DynamicObject| commit(object).is_some();
    let object = story.await_object(automation, DEFAULT_WAIT_TIMEOUT, is_pushed).await?;
    commit(&object).context("a commit")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_tag_is_committed_and_pushed_and_nothing_is_where_nothing_changed() -> Result<()> {
    let story = Story::with_windlass("images-commit").await?;
    let images = Images::begin(&story).await?;
    automation(&story, json!({})).await?;
    let first = await_pushed(&story, None).await?;
    ensure!(images.upstream.repository.hash("main")? == first);
    images.has_tag("main", "1.0.0")?;
    let image = &images.image;
    let said = images.git(&["log", "-1", "--format=%an <%ae> %B", "main"])?;
    let message = format!("{image}:0.9.0 -> {image}:1.0.0 by {}:app", story.namespace);
    ensure!(said == format!("Bot <bot@example.com> {message}"), "{said}");
    let object = story.await_ready(&target()).await?;
    let status = &object.data["status"];
    ensure!(status["observedSourceRevision"] == revision(&first).as_str(), "{status}");
    ensure!(
        status["observedPolicies"] == json!({"app": {"name": image, "tag": "1.0.0"}}),
        "{status}"
    );
    let text = format!("pushed commit '{}' to branch 'main'", &first[..7]);
    story.await_event("ImageUpdateAutomation", "app", &text).await?;

    // The policy triggers the automation.
    images.release("1.1.0").await?;
    let second = await_pushed(&story, Some(&first)).await?;
    images.has_tag("main", "1.1.0")?;
    ensure!(images.upstream.repository.hash("main~1")? == first);

    let object = story.rerun(&target()).await?;
    ensure!(object.data["status"]["lastPushCommit"] == second.as_str(), "{:?}", object.data);
    ensure!(images.upstream.repository.hash("main")? == second, "nothing is to be committed");
    planned(&story, &images)?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_freeze_holds_commits_until_a_user_lets_one_begin_or_it_ends() -> Result<()> {
    let story = Story::with_windlass("images-freeze").await?;
    let images = Images::begin(&story).await?;
    automation(&story, json!({})).await?;
    let first = await_pushed(&story, None).await?;
    let freeze = story.freeze(json!({"kinds": ["ImageUpdateAutomation"]})).await?;
    let mut made = story.enforce_freezes().await?;
    made.extend(story.bypass_users().await?);
    let (robot, binding) = story.robot().await?;
    made.push(binding);
    images.release("1.1.0").await?;
    let message = story.await_failure(&target(), "Frozen").await?;
    ensure!(message.starts_with("a commit of the latest images waits: Freeze"), "{message}");
    ensure!(images.upstream.repository.hash("main")? == first, "something was pushed");

    // The bypass is for the revision on which the automation commits.
    let source = StoryObject::git_repository("app");
    story.request(&source).await?;
    let at_first = |object: &DynamicObject| {
        object.data["status"]["artifact"]["revision"] == revision(&first).as_str()
    };
    story.await_object(&source, DEFAULT_WAIT_TIMEOUT, at_first).await?;
    story.refuse_bypasses(&robot, &target()).await?;
    ensure!(images.upstream.repository.hash("main")? == first, "something was pushed");
    story.bypass("imageupdateautomation/app")?;
    let second = await_pushed(&story, Some(&first)).await?;
    images.has_tag("main", "1.1.0")?;
    images.release("1.2.0").await?;
    story.await_failure(&target(), "Frozen").await?;
    ensure!(images.upstream.repository.hash("main")? == second, "it was for one revision");
    story.delete(&freeze).await?;
    await_pushed(&story, Some(&second)).await?;
    images.has_tag("main", "1.2.0")?;
    for target in &made {
        story.delete(target).await?;
    }
    story.end().await
}

/// The command predicts the commit for a work tree with an older tag, and writes nothing.
fn planned(story: &Story, images: &Images<'_>) -> Result<()> {
    let work_tree = tempfile::tempdir()?;
    let place = work_tree.path().join(FILE);
    let folder = work_tree.path().display().to_string();
    std::fs::create_dir(work_tree.path().join(".git"))?;
    std::fs::create_dir(work_tree.path().join("deploy"))?;
    let old = Images::file(story, &images.image, "0.9.0");
    std::fs::write(&place, &old)?;
    let line = ["image", "plan", "app", "--path", folder.as_str(), "--diff", "-o", "json"];
    let plan = windlass(story, &line)?.json(1)?;
    let image = &images.image;
    let setter = format!("{}:app", story.namespace);
    let change = json!({"file": FILE, "object": "Deployment", "setter": setter,
        "from": format!("{image}:0.9.0"), "to": format!("{image}:1.1.0")});
    ensure!(plan["changes"] == json!([change]), "{plan}");
    let message = format!("{image}:0.9.0 -> {image}:1.1.0 by {setter}");
    ensure!(plan["message"] == message.as_str(), "{plan}");
    let diff = plan["diff"].as_str().unwrap_or_default();
    ensure!(diff.starts_with(&format!("--- a/{FILE}\n+++ b/{FILE}\n")), "{plan}");
    ensure!(std::fs::read_to_string(&place)? == old, "it was written");
    std::fs::write(&place, Images::file(story, image, "1.1.0"))?;
    let text = windlass(story, &["image", "plan", "--path", folder.as_str()])?.ended(0)?;
    ensure!(text.contains("nothing would be committed"), "{text}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_branch_is_made_continued_and_begun_anew_after_it_was_merged() -> Result<()> {
    let story = Story::with_windlass("images-branch").await?;
    let images = Images::begin(&story).await?;
    let repository = &images.upstream.repository;
    let base = repository.hash("main")?;
    automation(&story, json!({"branch": "auto"})).await?;
    let first = await_pushed(&story, None).await?;
    ensure!(repository.hash("auto")? == first && repository.hash("auto~1")? == base);
    ensure!(repository.hash("main")? == base, "only people change it");

    images.release("1.1.0").await?;
    let second = await_pushed(&story, Some(&first)).await?;
    ensure!(repository.hash("auto")? == second && repository.hash("auto~1")? == first);

    // The branch is merged but not deleted, and people continue to commit.
    images.git(&["update-ref", "refs/heads/main", &second])?;
    images.git(&["reset", "-q", "--hard"])?;
    let merged = repository.commit(&[("README.md", "read me")], "more")?;
    images.release("1.2.0").await?;
    let third = await_pushed(&story, Some(&second)).await?;
    images.has_tag("auto", "1.2.0")?;
    ensure!(repository.hash("auto")? == third && repository.hash("auto~1")? == merged);
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_that_loses_against_another_writer_is_repeated_on_top_of_it() -> Result<()> {
    let story = Story::with_windlass("images-race").await?;
    let images = Images::begin(&story).await?;
    let repository = &images.upstream.repository;
    repository.branch("theirs")?;
    let theirs = repository.commit(&[("README.md", "read me")], "theirs")?;
    repository.switch("main")?;
    // Another writer pushes between the check of the first push and its end.
    hook(
        repository,
        "test -e raced && exit 0\ntouch raced\n\
         env -u GIT_QUARANTINE_PATH git update-ref refs/heads/main refs/heads/theirs\n",
    )?;
    automation(&story, json!({})).await?;
    let pushed = await_pushed(&story, None).await?;
    ensure!(repository.path().join("raced").exists(), "the first push was not the other's");
    ensure!(repository.hash("main")? == pushed && repository.hash("main~1")? == theirs);
    images.has_tag("main", "1.0.0")?;
    let events = story.events("ImageUpdateAutomation", "app").await?;
    ensure!(!events.iter().any(|event| event.contains("Warning")), "{events:#?}");
    story.end().await
}

/// Makes the server run a script before it accepts a push.
fn hook(repository: &StoryGitRepository, script: &str) -> Result<()> {
    let hooks = repository.path().join("hooks");
    std::fs::create_dir_all(&hooks)?;
    let hook = hooks.join("pre-receive");
    std::fs::write(&hook, format!("#!/bin/sh\n{script}"))?;
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// Creates an automation for its own folder.
async fn folder_automation(story: &Story, name: &str, message: &str) -> Result<StoryObject> {
    automation_of(story, name, &format!("./{name}"), message).await
}

async fn automation_of(
    story: &Story,
    name: &str,
    folder: &str,
    message: &str,
) -> Result<StoryObject> {
    let author = json!({"name": "Bot", "email": "bot@example.com"});
    let object = json!({"apiVersion": GROUP_VERSION, "kind": "ImageUpdateAutomation",
        "metadata": {"name": name},
        "spec": {"interval": "1h", "sourceRef": {"kind": "GitRepository", "name": "app"},
            "update": {"path": folder, "strategy": "Setters"},
            "git": {"commit": {"author": author, "messageTemplate": message}}}});
    story.apply_value(object).await?;
    Ok(StoryObject::new(GROUP_VERSION, "ImageUpdateAutomation", name))
}

/// Three automations of one repository that is up to date. Each has its own folder, and two have the same commit message.
struct SharedRepository<'s> {
    images: Images<'s>,
    automations: [StoryObject; 3],
    base: String,
}

impl<'s> SharedRepository<'s> {
    const NAMES: [&'static str; 3] = ["one", "three", "two"];

    async fn begin(story: &'s Story) -> Result<Self> {
        let registry = RegistryServer::start().await?;
        let image = published(story, &registry).await?;
        let text = Images::file(story, &image, "1.0.0");
        let files = ["one/a.yaml", "three/a.yaml", "two/a.yaml"].map(|path| (path, text.clone()));
        let upstream = story.follow("app", &files).await?;
        let base = upstream.repository.hash("main")?;
        let automations = [
            folder_automation(story, "one", "same").await?,
            folder_automation(story, "three", "other").await?,
            folder_automation(story, "two", "same").await?,
        ];
        for automation in &automations {
            story.await_ready(automation).await?;
        }
        ensure!(upstream.repository.hash("main")? == base, "the files are up to date");
        Ok(Self { images: Images { story, registry, image, upstream }, automations, base })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn automations_of_one_repository_are_one_push_and_those_with_one_message_one_commit()
-> Result<()> {
    let story = Story::with_windlass("images-together").await?;
    let SharedRepository { images, automations, base } = SharedRepository::begin(&story).await?;
    let repository = &images.upstream.repository;
    images.upstream.server.forget_requests();
    images.release("1.1.0").await?;
    let mut commits = Vec::new();
    for automation in &automations {
        commits.push(await_pushed_by(&story, automation, None).await?);
    }
    let requests = images.upstream.server.requests();
    let is_push = |path: &str| path.ends_with("/git-receive-pack");
    let pushes = requests.iter().filter(|it| it.method == "POST" && is_push(&it.path)).count();
    ensure!(pushes == 1, "{requests:#?}");
    let head = repository.hash("main")?;
    let shared = repository.hash("main~1")?;
    ensure!(repository.hash("main~2")? == base, "two commits");
    ensure!(commits == [shared.as_str(), head.as_str(), shared.as_str()], "{commits:?}");
    for (range, message, paths) in [
        ([base.as_str(), shared.as_str()], "same", "one/a.yaml\ntwo/a.yaml"),
        ([shared.as_str(), head.as_str()], "other", "three/a.yaml"),
    ] {
        let [_, commit] = range;
        ensure!(images.git(&["log", "-1", "--format=%B", commit])? == message);
        let changed = images.git(&["diff", "--name-only", &range.join("..")])?;
        ensure!(changed == paths, "{changed}");
    }
    for ((automation, name), commit) in
        automations.iter().zip(SharedRepository::NAMES).zip(&commits)
    {
        let object = story.await_ready(automation).await?;
        let status = &object.data["status"];
        ensure!(status["lastPushCommit"] == commit.as_str(), "{status}");
        ensure!(status["observedSourceRevision"] == revision(&head).as_str(), "{status}");
        let latest = json!({"app": {"name": images.image, "tag": "1.1.0"}});
        ensure!(status["observedPolicies"] == latest, "{status}");
        let text = format!("pushed commit '{}' to branch 'main'", &commit[..7]);
        story.await_event("ImageUpdateAutomation", name, &text).await?;
    }
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_the_server_declines_fails_its_automation_and_no_other_one() -> Result<()> {
    let story = Story::with_windlass("images-declined").await?;
    let SharedRepository { images, automations, base } = SharedRepository::begin(&story).await?;
    let repository = &images.upstream.repository;
    hook(
        repository,
        "while read -r old new name; do\n\
         git diff --name-only \"$old\" \"$new\" | grep -q ^three/ && echo frozen >&2 && exit 1\n\
         done\nexit 0\n",
    )?;
    images.release("1.1.0").await?;
    let [one, three, two] = &automations;
    let commits =
        [await_pushed_by(&story, one, None).await?, await_pushed_by(&story, two, None).await?];
    let message = story.await_failure(three, "GitOperationFailed").await?;
    ensure!(message.contains("failed to push to remote"), "{message}");
    ensure!(message.contains("frozen"), "{message}");
    ensure!(repository.hash("main~2")? == base, "two commits");
    ensure!(commits == [repository.hash("main~1")?, repository.hash("main")?], "{commits:?}");
    for name in ["one", "two"] {
        let events = story.events("ImageUpdateAutomation", name).await?;
        ensure!(!events.iter().any(|event| event.contains("Warning")), "{events:#?}");
    }
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_automation_had_set_for_another_is_pushed_where_the_server_declines_its_commit()
-> Result<()> {
    let story = Story::with_windlass("images-declined-file").await?;
    let registry = RegistryServer::start().await?;
    let image = published(&story, &registry).await?;
    let files = [(FILE, Images::file(&story, &image, "1.0.0"))];
    let upstream = story.follow("app", &files).await?;
    let images = Images { story: &story, registry, image, upstream };
    let repository = &images.upstream.repository;
    let base = repository.hash("main")?;
    // The first automation changes the file, so nothing is left to change for the second.
    let first = automation_of(&story, "first", "./deploy", "frozen").await?;
    let second = automation_of(&story, "second", "./deploy", "welcome").await?;
    for automation in [&first, &second] {
        story.await_ready(automation).await?;
    }
    hook(
        repository,
        "while read -r old new name; do\n\
         git log --format=%B \"$old..$new\" | grep -q frozen && echo declined >&2 && exit 1\n\
         done\nexit 0\n",
    )?;
    images.release("1.1.0").await?;
    let pushed = await_pushed_by(&story, &second, None).await?;
    ensure!(repository.hash("main")? == pushed && repository.hash("main~1")? == base);
    images.has_tag("main", "1.1.0")?;
    story.end().await
}

/// Creates a Provider for a repository on a forge.
async fn provider(story: &Story, address: &str, token: &str) -> Result<()> {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "forge"},
        "stringData": {"token": token}});
    story.apply_value(secret).await?;
    let object = json!({"apiVersion": "notification.toolkit.fluxcd.io/v1beta3", "kind": "Provider",
        "metadata": {"name": "forge"},
        "spec": {"type": "gitea", "address": address, "secretRef": {"name": "forge"}}});
    story.apply_value(object).await.map(drop)
}

/// Waits until the title of the newest pull request contains a text, and returns it.
async fn await_proposed(story: &Story, forge: &FakeGitea, text: &str) -> Result<Value> {
    let what = format!("a pull request with `{text}` in its title");
    let newest = || forge.pulls().pop();
    let has = |pull: &Value| pull["title"].as_str().is_some_and(|title| title.contains(text));
    story.await_until(&what, DEFAULT_WAIT_TIMEOUT, async || Ok(newest().filter(has))).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_branch_has_one_pull_request_and_a_failure_of_the_forge_repeats_no_push()
-> Result<()> {
    let story = Story::with_windlass("images-pull-request").await?;
    let images = Images::begin(&story).await?;
    let repository = &images.upstream.repository;
    let named = json!({PULL_REQUEST: "forge"});
    annotated_automation(&story, json!({"branch": "auto"}), named).await?;
    let message = story.await_failure(&target(), "InvalidPullRequest").await?;
    let text = format!("Provider {}/forge not found; create it", story.namespace);
    ensure!(message.contains(&text), "{message}");
    ensure!(images.git(&["branch", "--list", "auto"])?.is_empty(), "nothing is pushed before");

    let forge = FakeGitea::start().await?;
    forge.fail(true);
    provider(&story, &forge.url(), TOKEN).await?;
    let message = story.await_failure(&target(), "PullRequestFailed").await?;
    ensure!(message.contains("pull request of branch `auto` into `main`"), "{message}");
    let first = await_pushed(&story, None).await?;
    ensure!(repository.hash("auto")? == first && forge.writes() == 0);
    forge.fail(false);
    let pull = await_proposed(&story, &forge, "1.0.0").await?;
    let branches = (&pull["head"]["ref"], &pull["base"]["ref"]);
    ensure!(branches == (&json!("auto"), &json!("main")), "{pull}");
    let open = "pull request 1 is open: https://git.example.com/team/app/pulls/1";
    story.await_event("ImageUpdateAutomation", "app", open).await?;
    let object = story.await_ready(&target()).await?;
    let message = &condition(&object, "Ready")["message"];
    ensure!(*message == format!("repository up-to-date; {open}").as_str(), "{message}");
    ensure!(repository.hash("auto")? == first, "it was pushed already");

    images.release("1.1.0").await?;
    let second = await_pushed(&story, Some(&first)).await?;
    let pull = await_proposed(&story, &forge, "1.1.0").await?;
    ensure!(pull["number"] == 1 && forge.writes() == 2, "{pull}");
    story.rerun(&target()).await?;
    ensure!(repository.hash("auto")? == second && forge.writes() == 2, "nothing differs");

    // A user closes the pull request. This applies to the commits that it contains.
    forge.close_all(&images.git(&["log", "-1", "--format=%cI", "auto"])?);
    let object = story.rerun(&target()).await?;
    let message = condition(&object, "Ready")["message"].to_string();
    ensure!(message.contains("pull request 1 was closed or merged"), "{message}");
    ensure!(forge.writes() == 2, "it stays closed");
    tokio::time::sleep(Duration::from_millis(1100)).await;
    images.release("1.2.0").await?;
    let pull = await_proposed(&story, &forge, "1.2.0").await?;
    ensure!(pull["number"] == 2, "{pull}");
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(feature = "thorough"), ignore = "builds gitea: cargo xtask test --thorough")]
async fn a_protected_branch_of_gitea_gets_a_pull_request_and_none_once_it_is_merged() -> Result<()>
{
    let story = Story::with_windlass("images-gitea").await?;
    let registry = RegistryServer::start().await?;
    let image = published(&story, &registry).await?;
    let gitea = GiteaServer::start().await?;
    let hosted = gitea.repository("app").await?;
    let base = hosted.push(&[(FILE, Images::file(&story, &image, "0.9.0"))])?;
    let rule = json!({"branch_name": "main", "enable_push": false});
    gitea.ask(Method::POST, &format!("{}/branch_protections", hosted.path), rule).await?;
    let token = gitea.token("images").await?;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "git"},
        "stringData": {"username": USER, "password": token}});
    story.apply_value(secret).await?;
    let login = json!({"secretRef": {"name": "git"}});
    story.git_repository("app", &format!("{}.git", hosted.url), login).await?;
    provider(&story, &hosted.url, &token).await?;
    automation(&story, json!({})).await?;
    let message = story.await_failure(&target(), "GitOperationFailed").await?;
    ensure!(message.contains("failed to push to remote") && !message.contains(&token), "{message}");

    let change = json!({"metadata": {"annotations": {PULL_REQUEST: "forge"}},
        "spec": {"git": {"push": {"branch": "auto"}}}});
    story.merge(&target(), change).await?;
    let first = await_pushed(&story, None).await?;
    let object = story.await_ready(&target()).await?;
    let pulls = format!("{}/pulls", hosted.path);
    let listed = gitea.get(&format!("{pulls}?state=all")).await?;
    let [pull] = listed.as_array().map(Vec::as_slice).unwrap_or_default() else {
        anyhow::bail!("{listed}");
    };
    ensure!(pull["head"]["sha"] == first.as_str() && pull["base"]["ref"] == "main", "{pull}");
    let title = format!("{image}:0.9.0 -> {image}:1.0.0 by {}:app", story.namespace);
    ensure!(pull["title"] == title.as_str(), "{pull}");
    let message = condition(&object, "Ready")["message"].to_string();
    let url = pull["html_url"].as_str().context("no address")?;
    ensure!(message.contains(url), "{message}");
    let main = gitea.get(&format!("{}/branches/main", hosted.path)).await?;
    ensure!(main["commit"]["id"] == base.as_str(), "only people change it");

    // Gitea first finds out whether the pull request can be merged.
    let merge = format!("{pulls}/1/merge");
    let what = "the pull request to be merged";
    story
        .await_until(what, DEFAULT_WAIT_TIMEOUT, async || {
            Ok(gitea.ask(Method::POST, &merge, json!({"Do": "merge"})).await.ok())
        })
        .await?;
    let object = story.rerun(&target()).await?;
    let message = &condition(&object, "Ready")["message"];
    ensure!(*message == "repository up-to-date", "{message}");
    let listed = gitea.get(&format!("{pulls}?state=all")).await?;
    ensure!(listed.as_array().is_some_and(|all| all.len() == 1), "{listed}");
    story.end().await
}
