//! Plans that a reviewed pull request approves, with a real Gitea. windlass deletes and changes what the reviewers saw without
//! another question, and everything else waits for a user.
//!
//! Elsewhere: the requests to other forges, and wrong answers (`engines/notify/src/tests/pull_request_reviews.rs`).

use anyhow::{Context as _, Result, ensure};
use crds::windlass_release::Plan;
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition, revision};
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
struct ReviewedGiteaRepository {
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

impl ReviewedGiteaRepository {
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
        // The namespace of the story is the one of its windlass.
        let secret = json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": story.namespace}, "stringData": {"token": token}});
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

    /// Waits until the only Plan says with this reason that no pull request approves the deletion. Returns the message.
    async fn await_refused(&self, revision: &str, reason: &str) -> Result<String> {
        self.story.await_held("app", revision, 1).await?;
        self.refusal(reason).await
    }

    /// Waits until the only Plan says with this reason that no pull request approves all changes, and `Ready` repeats it.
    /// Returns the message.
    async fn await_pending(&self, revision: &str, reason: &str) -> Result<String> {
        let app = StoryObject::kustomization("app");
        self.story.await_pending(&app, revision).await?;
        let message = self.refusal(reason).await?;
        let note = format!("by pull request: {message}");
        let says_it = |object: &kube::api::DynamicObject| {
            let said = condition(object, "Ready")["message"].as_str().unwrap_or_default();
            said.contains(&note)
        };
        self.story.await_object(&app, DEFAULT_WAIT_TIMEOUT, says_it).await?;
        Ok(message)
    }

    /// Waits until a Plan says with this reason that no pull request approves it. Returns the message.
    async fn refusal(&self, reason: &str) -> Result<String> {
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

    /// Has all changes wait from now on, and not only deletions.
    async fn guard_changes(&self) -> Result<()> {
        self.story.merge(&self.policy, json!({"spec": {"mode": "Approve"}})).await.map(drop)
    }

    /// Opens a pull request that writes ConfigMaps with these values. Returns its path in the API.
    async fn propose_values(&self, branch: &str, values: &[(&str, &str)]) -> Result<String> {
        self.branch(branch)?;
        self.push_values(values)?;
        let number = self.gitea.open_pull_request(&self.hosted, branch).await?;
        Ok(format!("{}/pulls/{number}", self.hosted.path))
    }

    /// Commits ConfigMaps with these values to the current branch, and pushes it.
    fn push_values(&self, values: &[(&str, &str)]) -> Result<String> {
        let files: Vec<(String, String)> =
            values.iter().map(|(map, value)| (file(map), config_map(map, value))).collect();
        let files: Vec<(&str, String)> =
            files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
        self.hosted.push(&files)
    }

    /// Waits until a result is applied, and no Plan is left.
    async fn await_carried_out(&self, revision: &str) -> Result<()> {
        self.story.await_applied("app", revision).await?;
        self.story.await_no_plans().await
    }

    /// Approves what waits as a user, and waits until it is applied.
    async fn approve_changes_as_user(&self, revision: &str) -> Result<()> {
        self.story.approve("ks/app")?;
        self.await_carried_out(revision).await
    }

    /// Checks that ConfigMaps in the cluster have these values.
    async fn ensure_values(&self, values: &[(&str, &str)]) -> Result<()> {
        for (map, value) in values {
            let object = self.story.expect(&StoryObject::config_map(map)).await?;
            let found = &object.data["data"]["value"];
            ensure!(found == value, "{map} has {found} in place of {value}");
        }
        Ok(())
    }

    /// Says in all ways that do not count that a pull request is approved: by its author, in a comment, in a commit status, by
    /// an account that the PlanPolicy does not name, and by a review that is dismissed. Returns the last commit.
    async fn approve_without_right(&self, pull: &str) -> Result<String> {
        // The author cannot approve on Gitea. A comment and a commit status say so.
        ensure!(self.approve(pull, USER).await.is_err(), "the author approves");
        let number = pull.rsplit('/').next().context("no number")?;
        let comment = json!({"body": "<!-- windlass plan -->\n### Plan: approved by alice"});
        let path = format!("{}/issues/{number}/comments", self.hosted.path);
        self.gitea.ask(Method::POST, &path, comment).await?;
        let head = self.gitea.get(pull).await?["head"]["sha"].clone();
        let head = head.as_str().context("no head")?.to_owned();
        let status =
            json!({"context": "windlass/plan", "state": "success", "description": "approved"});
        let path = format!("{}/statuses/{head}", self.hosted.path);
        self.gitea.ask(Method::POST, &path, status).await?;
        self.approve(pull, STRANGER).await?;
        let review = self.approve(pull, REVIEWER).await?;
        let dismissal = json!({"message": "not now"});
        self.gitea.ask(Method::POST, &format!("{review}/dismissals"), dismissal).await?;
        Ok(head)
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
    let fleet = ReviewedGiteaRepository::begin("reviewed", &["one", "two"]).await?;
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
    let fleet = ReviewedGiteaRepository::begin("unreviewed", &["one", "two", "three"]).await?;
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
    let fleet = ReviewedGiteaRepository::begin("forged", &["one"]).await?;
    let pull = fleet.propose("one").await?;
    let head = fleet.approve_without_right(&pull).await?;
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

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(feature = "thorough"), ignore = "builds gitea: cargo xtask test --thorough")]
async fn what_a_reviewed_pull_request_at_gitea_changes_is_applied_without_a_further_question()
-> Result<()> {
    let fleet = ReviewedGiteaRepository::begin("changed", &["one", "two"]).await?;
    fleet.guard_changes().await?;
    fleet.branch("change")?;
    fleet.hosted.local.delete(&[&file("two")], "a deletion")?;
    fleet.push_values(&[("one", "2"), ("three", "1")])?;
    let number = fleet.gitea.open_pull_request(&fleet.hosted, "change").await?;
    let pull = format!("{}/pulls/{number}", fleet.hosted.path);
    fleet.approve(&pull, REVIEWER).await?;
    let shown = fleet.merge(&pull).await?;
    fleet.await_carried_out(&shown).await?;
    fleet.ensure_values(&[("one", "2"), ("three", "1")]).await?;
    ensure!(fleet.story.read(&StoryObject::config_map("two")).await?.is_none(), "two is there");

    // Another merge in between does not matter if the result is the same.
    let pull = fleet.propose_values("again", &[("one", "3")]).await?;
    fleet.approve(&pull, REVIEWER).await?;
    fleet.branch("main")?;
    let comment = format!("# a comment\n{}", config_map("kept", "1"));
    fleet.hosted.push(&[("app/kept.yaml", comment)])?;
    let merged = fleet.merge(&pull).await?;
    fleet.await_carried_out(&merged).await?;
    fleet.ensure_values(&[("one", "3")]).await?;

    // The first result is undone by a user, and the branch is reset to the merge that was carried out before.
    fleet.branch("main")?;
    fleet.hosted.local.delete(&[&file("three")], "back to the beginning")?;
    let undone = fleet.push_values(&[("one", "1"), ("two", "1")])?;
    fleet.story.request(&StoryObject::git_repository("app")).await?;
    let undone = revision(&undone);
    fleet.await_pending(&undone, "NoPullRequest").await?;
    fleet.approve_changes_as_user(&undone).await?;
    let commit = shown.rsplit(':').next().context("no commit")?;
    fleet.hosted.reset("main", commit)?;
    fleet.story.request(&StoryObject::git_repository("app")).await?;
    let message = fleet.await_pending(&shown, "NotShown").await?;
    ensure!(message.contains("the branch was reset to a former commit"), "{message}");
    fleet.ensure_values(&[("one", "1")]).await?;
    fleet.end().await
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(feature = "thorough"), ignore = "builds gitea: cargo xtask test --thorough")]
async fn a_user_is_asked_about_changes_that_the_reviewers_at_gitea_did_not_see() -> Result<()> {
    let fleet = ReviewedGiteaRepository::begin("unshown", &["one"]).await?;
    fleet.guard_changes().await?;
    // Another merge in between changes the result.
    let pull = fleet.propose_values("change", &[("one", "2")]).await?;
    fleet.approve(&pull, REVIEWER).await?;
    fleet.branch("main")?;
    fleet.push_values(&[("other", "1")])?;
    let merged = fleet.merge(&pull).await?;
    let message = fleet.await_pending(&merged, "AnotherResult").await?;
    ensure!(message.contains("/other (added)"), "{message}");
    fleet.ensure_values(&[("one", "1")]).await?;
    fleet.approve_changes_as_user(&merged).await?;

    // A change without a review comes first, and the pull request does not show it.
    fleet.branch("main")?;
    fleet.push_values(&[("kept", "9")])?;
    let pull = fleet.propose_values("later", &[("one", "3")]).await?;
    fleet.approve(&pull, REVIEWER).await?;
    let merged = fleet.merge(&pull).await?;
    let message = fleet.await_pending(&merged, "NotShown").await?;
    ensure!(message.contains("an earlier commit"), "{message}");
    fleet.ensure_values(&[("kept", "1"), ("one", "2")]).await?;
    fleet.approve_changes_as_user(&merged).await?;

    // Comments, commit statuses and reviews that do not count approve nothing.
    let pull = fleet.propose_values("forged", &[("one", "4")]).await?;
    fleet.approve_without_right(&pull).await?;
    let merged = fleet.merge(&pull).await?;
    let message = fleet.await_pending(&merged, "ReviewMissing").await?;
    ensure!(message.contains("it has 0 of "), "{message}");
    fleet.ensure_values(&[("one", "3")]).await?;
    fleet.approve_changes_as_user(&merged).await?;
    fleet.end().await
}
