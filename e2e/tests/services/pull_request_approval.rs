//! Plans that a reviewed pull request approves, with a real Gitea. windlass deletes what the reviewers saw without another
//! question, and everything else waits for a user.
//!
//! Elsewhere: the requests to other forges, and wrong answers (`engines/notify/src/tests/pull_request_reviews.rs`).

use anyhow::{Context as _, Result, ensure};
use crds::release::Plan;
use e2e::harness::flux::{DEFAULT_WAIT_TIMEOUT, condition, revision};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject, WindlassProcess};
use e2e::servers::gitea::{GiteaRepository, GiteaServer, USER};
use reqwest::Method;
use serde_json::json;

/// The account whose reviews count.
const REVIEWER: &str = "alice";

/// An account that the PlanPolicy does not name.
const STRANGER: &str = "mallory";

/// A repository on Gitea whose folder `app` is applied, and a PlanPolicy that requires a review for each deletion.
struct ReviewedFleet {
    story: Story,
    gitea: GiteaServer,
    hosted: GiteaRepository,
    policy: StoryObject,
    _windlass: WindlassProcess,
}

/// The file of a ConfigMap.
fn file(name: &str) -> String {
    format!("app/{name}.yaml")
}

impl ReviewedFleet {
    /// Creates the repository with these ConfigMaps, and waits until they are applied.
    async fn begin(name: &str, maps: &[&str]) -> Result<Self> {
        let story = Story::begin(name).await?;
        let gitea = GiteaServer::start().await?;
        let hosted = gitea.repository("fleet").await?;
        for account in [REVIEWER, STRANGER] {
            let user = json!({"username": account, "email": format!("{account}@testbed.example"),
                "password": "a-passw0rd-0f-the-bed", "must_change_password": false});
            gitea.ask(Method::POST, "admin/users", user).await?;
        }
        let token = gitea.token("reviews").await?;
        let windlass = WindlassProcess::start_for(&story, &[]).await?;
        let secret = json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": story.namespace, "namespace": "flux-system"}, "stringData": {"token": token}});
        story.apply_value(secret).await?;
        let policy = story.plan_policy(json!({"maxObjects": 0})).await?;
        let approval = json!({"provider": "gitea", "address": gitea.url(), "secretRef": {"name": story.namespace},
            "repositories": [format!("{USER}/fleet")], "reviewers": [REVIEWER, USER]});
        let patch = json!({"spec": {"pullRequestApproval": approval}});
        story.merge(&policy, patch).await?;
        let mut files: Vec<(String, String)> =
            maps.iter().map(|map| (file(map), config_map(map, "1"))).collect();
        files.push((file("kept"), config_map("kept", "1")));
        let files: Vec<(&str, String)> =
            files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
        let first = hosted.push(&files)?;
        story.git_repository("app", &format!("{}.git", hosted.url), json!({})).await?;
        story.kustomization("app", "app", json!({"path": "./app"})).await?;
        story.await_applied("app", &revision(&first)).await?;
        Ok(Self { story, gitea, hosted, policy, _windlass: windlass })
    }

    /// Creates a branch at the current `main` of Gitea.
    fn branch(&self, name: &str) -> Result<()> {
        let local = &self.hosted.local;
        local.git(&["fetch", "-q", &format!("{}.git", self.hosted.url), "main"])?;
        local.git(&["checkout", "-q", "-B", name, "FETCH_HEAD"]).map(drop)
    }

    /// Opens a pull request that deletes a ConfigMap. Returns its path in the API.
    async fn propose(&self, map: &str) -> Result<String> {
        let branch = format!("remove-{map}");
        self.branch(&branch)?;
        self.hosted.local.delete(&[&file(map)], "a deletion")?;
        self.hosted.push(&[("CHANGES.md", format!("{map} is removed"))])?;
        let number = self.gitea.open_pull_request(&self.hosted, &branch).await?;
        Ok(format!("{}/pulls/{number}", self.hosted.path))
    }

    /// Approves a pull request. Returns the path of the review in the API.
    async fn approve(&self, pull: &str, account: &str) -> Result<String> {
        let review = json!({"event": "APPROVED", "body": "as it should be"});
        let path = format!("{pull}/reviews?sudo={account}");
        let made = self.gitea.ask(Method::POST, &path, review).await?;
        Ok(format!("{pull}/reviews/{}", made["id"]))
    }

    /// Merges a pull request, and makes windlass fetch the result.
    async fn merge(&self, pull: &str) -> Result<String> {
        // Gitea first finds out whether the pull request can be merged.
        let path = format!("{pull}/merge");
        self.story
            .await_until("the pull request to be merged", DEFAULT_WAIT_TIMEOUT, async || {
                Ok(self.gitea.ask(Method::POST, &path, json!({"Do": "merge"})).await.ok())
            })
            .await?;
        let merged = self.gitea.get(pull).await?;
        let commit = merged["merge_commit_sha"].as_str().context("it became no commit")?;
        self.story.request(&StoryObject::git_repository("app")).await?;
        Ok(revision(commit))
    }

    /// Waits until a merged deletion is carried out, and no Plan is left.
    async fn await_deleted(&self, map: &str, revision: &str) -> Result<()> {
        self.story.await_gone(&StoryObject::config_map(map), DEFAULT_WAIT_TIMEOUT).await?;
        self.story.await_not_held("app").await?;
        self.story.await_applied("app", revision).await.map(drop)
    }

    /// Waits until the only Plan says with this reason that no pull request approves it. Returns the message.
    async fn await_refused(&self, revision: &str, reason: &str) -> Result<String> {
        self.story.await_held("app", revision, 1).await?;
        let what = format!("a Plan with the reason {reason}");
        let found = self.story.await_until(&what, DEFAULT_WAIT_TIMEOUT, async || {
            let plans = self.story.plans().await?;
            let status = |plan: &Plan| plan.status.clone().unwrap_or_default();
            let is_it = |plan: &&Plan| status(plan).conditions.iter().any(|it| it.reason == reason);
            Ok(plans.iter().find(is_it).map(status))
        });
        let status = found.await?;
        ensure!(status.pull_request.is_none(), "{status:?}");
        let [condition] = &status.conditions[..] else { anyhow::bail!("{status:?}") };
        ensure!(
            condition.type_ == "PullRequestApproved" && condition.status == "False",
            "{condition:?}"
        );
        Ok(condition.message.clone())
    }

    /// Checks that a ConfigMap was not deleted, and then deletes it with the approval of a user.
    async fn approve_as_user(&self, map: &str, revision: &str) -> Result<()> {
        self.story.ensure_config_maps(&[map.to_owned()]).await?;
        self.story.windlass_says(&["approve", "ks/app", "-n", &self.story.namespace], true)?;
        self.await_deleted(map, revision).await
    }

    async fn end(self) -> Result<()> {
        self.story.delete(&self.policy).await?;
        self.story.end().await
    }
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(feature = "thorough"), ignore = "builds gitea: cargo xtask test --thorough")]
async fn what_a_reviewed_pull_request_at_gitea_showed_is_deleted_without_a_further_question()
-> Result<()> {
    let fleet = ReviewedFleet::begin("reviewed", &["one", "two"]).await?;
    let pull = fleet.propose("one").await?;
    fleet.approve(&pull, REVIEWER).await?;
    let merged = fleet.merge(&pull).await?;
    fleet.await_deleted("one", &merged).await?;

    // Another merge in between does not matter if the build reads none of its files.
    let pull = fleet.propose("two").await?;
    fleet.approve(&pull, REVIEWER).await?;
    fleet.branch("main")?;
    fleet.hosted.push(&[("README.md", "the fleet".to_owned())])?;
    let merged = fleet.merge(&pull).await?;
    fleet.await_deleted("two", &merged).await?;
    fleet.end().await
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(feature = "thorough"), ignore = "builds gitea: cargo xtask test --thorough")]
async fn a_user_is_asked_about_what_the_reviewers_at_gitea_did_not_see() -> Result<()> {
    let fleet = ReviewedFleet::begin("unreviewed", &["one", "two", "three"]).await?;
    // Another merge in between changes the result.
    let pull = fleet.propose("one").await?;
    fleet.approve(&pull, REVIEWER).await?;
    fleet.branch("main")?;
    fleet.hosted.push(&[("app/other.yaml", config_map("other", "1"))])?;
    let merged = fleet.merge(&pull).await?;
    let message = fleet.await_refused(&merged, "AnotherResult").await?;
    ensure!(message.contains("app/other.yaml"), "{message}");
    fleet.approve_as_user("one", &merged).await?;

    // A deletion is merged without a review, and a later reviewed pull request does not show it.
    fleet.branch("main")?;
    fleet.hosted.local.delete(&[&file("two")], "a deletion without a review")?;
    fleet.hosted.push(&[("CHANGES.md", "two is removed".to_owned())])?;
    fleet.branch("harmless")?;
    fleet.hosted.push(&[("app/kept.yaml", config_map("kept", "2"))])?;
    let number = fleet.gitea.open_pull_request(&fleet.hosted, "harmless").await?;
    let pull = format!("{}/pulls/{number}", fleet.hosted.path);
    fleet.approve(&pull, REVIEWER).await?;
    let merged = fleet.merge(&pull).await?;
    let message = fleet.await_refused(&merged, "NotShown").await?;
    ensure!(message.contains("ConfigMap/") && message.contains("/two"), "{message}");
    fleet.story.await_value("kept", "2").await?;
    fleet.approve_as_user("two", &merged).await?;

    // This commit has no pull request.
    fleet.branch("main")?;
    fleet.hosted.local.delete(&[&file("three")], "a deletion without a pull request")?;
    let pushed = fleet.hosted.push(&[("CHANGES.md", "three is removed".to_owned())])?;
    fleet.story.request(&StoryObject::git_repository("app")).await?;
    let pushed = revision(&pushed);
    fleet.await_refused(&pushed, "NoPullRequest").await?;
    fleet.approve_as_user("three", &pushed).await?;
    fleet.end().await
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(feature = "thorough"), ignore = "builds gitea: cargo xtask test --thorough")]
async fn comments_statuses_and_reviews_at_gitea_that_do_not_count_approve_nothing() -> Result<()> {
    let fleet = ReviewedFleet::begin("forged", &["one"]).await?;
    let pull = fleet.propose("one").await?;
    // The author cannot approve on Gitea. A comment and a commit status say so.
    ensure!(fleet.approve(&pull, USER).await.is_err(), "the author approves");
    let number = pull.rsplit('/').next().context("no number")?;
    let comment = json!({"body": "<!-- windlass plan -->\n### Plan: approved by alice"});
    let path = format!("{}/issues/{number}/comments", fleet.hosted.path);
    fleet.gitea.ask(Method::POST, &path, comment).await?;
    let head = fleet.gitea.get(&pull).await?["head"]["sha"].clone();
    let head = head.as_str().context("no head")?.to_owned();
    let status = json!({"context": "windlass/plan", "state": "success", "description": "approved"});
    let path = format!("{}/statuses/{head}", fleet.hosted.path);
    fleet.gitea.ask(Method::POST, &path, status).await?;
    fleet.approve(&pull, STRANGER).await?;
    let review = fleet.approve(&pull, REVIEWER).await?;
    let dismissal = json!({"message": "not now"});
    fleet.gitea.ask(Method::POST, &format!("{review}/dismissals"), dismissal).await?;
    let merged = fleet.merge(&pull).await?;
    let message = fleet.await_refused(&merged, "ReviewMissing").await?;
    ensure!(message.contains("it has 0 of "), "{message}");
    fleet.story.ensure_config_maps(&["one".to_owned()]).await?;

    // A status that another client writes approves nothing, and windlass corrects it.
    let plans = fleet.story.plans().await?;
    let plan = plans.first().and_then(|it| it.metadata.name.as_deref()).context("no Plan")?;
    let forged = json!({"status": {"pullRequest": {"number": 1, "headCommit": head, "mergeCommit": head,
        "reviewers": [REVIEWER]}}});
    fleet.story.merge_status(&StoryObject::of::<Plan>(plan), forged).await?;
    let what = "the forged approval to be removed";
    fleet
        .story
        .await_until(what, DEFAULT_WAIT_TIMEOUT, async || {
            let plans = fleet.story.plans().await?;
            let is_forged =
                |it: &Plan| it.status.as_ref().is_some_and(|it| it.pull_request.is_some());
            Ok((!plans.iter().any(is_forged)).then_some(()))
        })
        .await?;

    // Users can read why the object waits.
    let app = StoryObject::kustomization("app");
    let says_it = |object: &kube::api::DynamicObject| {
        let message = condition(object, "DeletionHeld")["message"].to_string();
        message.contains("waits for a review")
    };
    fleet.story.await_object(&app, DEFAULT_WAIT_TIMEOUT, says_it).await?;
    let namespace = &fleet.story.namespace;
    for command in [["get", "plans"], ["why", "ks/app"]] {
        let [verb, what] = command;
        let said = fleet.story.windlass_says(&[verb, what, "-n", namespace], true)?;
        ensure!(said.contains("waits for a review"), "{said}");
    }
    fleet.approve_as_user("one", &merged).await?;
    fleet.end().await
}
