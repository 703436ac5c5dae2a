//! The reviews of the pull request that became a commit, at a double of each forge.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::{NOW, answer};
use crate::{
    ForgeCallStep, MessageSendResult, Provider, ProviderRequest, PullRequestError,
    PullRequestReviewLookup, PullRequestReviewQuery, PullRequestReviewResult, ReviewedPullRequest,
    SecretData,
};

const MERGE: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const HEAD: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
const EARLIER: &str = "cccccccccccccccccccccccccccccccccccccccc";
const BASE: &str = "dddddddddddddddddddddddddddddddddddddddd";

/// When the last commit of the pull request became the last one.
const HEAD_SINCE: &str = "2026-11-01T10:00:00.000Z";

/// The types of Providers, with the address of the repository and how its API begins.
const FORGES: [(&str, &str, &str); 3] = [
    ("github", "https://github.com/acme/fleet", "https://api.github.com/repos/acme/fleet"),
    (
        "gitlab",
        "https://gitlab.example.com/acme/web/fleet",
        "https://gitlab.example.com/api/v4/projects/acme%2Fweb%2Ffleet",
    ),
    (
        "gitea",
        "https://example.com/git/acme/fleet",
        "https://example.com/git/api/v1/repos/acme/fleet",
    ),
];

/// A review at a double.
#[derive(Clone)]
struct FakeReview {
    account: &'static str,
    state: &'static str,
    commit: &'static str,
}

const fn approval(account: &'static str) -> FakeReview {
    FakeReview { account, state: "APPROVED", commit: HEAD }
}

/// A forge with one merged pull request.
struct FakeForge {
    kind: &'static str,
    address: &'static str,
    api: &'static str,
    is_merged: bool,
    branch: &'static str,
    merge: &'static str,
    pusher: Option<&'static str>,
    reviews: Vec<FakeReview>,
    /// The paths of all requests.
    paths: Vec<String>,
    /// Answers a request whose path contains this with this status and body.
    wrong: Option<(&'static str, u16, String)>,
    /// Where each request is redirected to.
    location: Option<String>,
}

impl FakeForge {
    fn all() -> Vec<Self> {
        let forge = |(kind, address, api)| Self {
            kind,
            address,
            api,
            is_merged: true,
            branch: "main",
            merge: MERGE,
            pusher: Some("jane"),
            reviews: vec![approval("alice")],
            paths: Vec::new(),
            wrong: None,
            location: None,
        };
        FORGES.map(forge).into()
    }

    fn pull(&self) -> Value {
        let merged_at = self.is_merged.then_some("2026-11-01T11:00:00Z");
        match self.kind {
            "gitlab" => json!({"iid": 7, "web_url": "https://gitlab.example.com/7",
                "state": if self.is_merged { "merged" } else { "opened" }, "merged_at": merged_at,
                "merge_commit_sha": self.merge, "squash_commit_sha": null, "sha": HEAD,
                "source_branch": "change", "source_project_id": 12, "target_branch": self.branch,
                "author": {"username": "jane"}, "diff_refs": {"base_sha": BASE, "head_sha": HEAD}}),
            _ => json!({"number": 7, "html_url": "https://example.com/7", "state": "closed",
                "merged_at": merged_at, "merge_commit_sha": self.merge, "user": {"login": "jane"},
                // Gitea has what was pushed to the branch after the merge.
                "head": {"ref": "change", "sha": if self.kind == "gitea" { EARLIER } else { HEAD },
                    "repo": {"full_name": "jane/fleet"}},
                "base": {"ref": self.branch, "sha": EARLIER}, "merge_base": BASE}),
        }
    }

    fn pushes(&self) -> Value {
        let item = |account: &str, commit: &str| match self.kind {
            "github" => {
                json!({"after": commit, "ref": "refs/heads/change", "actor": {"login": account}})
            }
            "gitlab" => json!({"author_username": account, "push_data": {"commit_to": commit}}),
            _ => json!({"op_type": "commit_repo", "act_user": {"login": account},
                "content": json!({"HeadCommit": {"Sha1": commit}}).to_string()}),
        };
        let mut items = vec![item("bob", EARLIER)];
        items.extend(self.pusher.map(|account| item(account, HEAD)));
        items.into()
    }

    fn page(&self, url: &str) -> MessageSendResult {
        if self.kind == "gitlab" {
            let approvals = self.reviews.iter().filter(|it| it.state == "APPROVED").map(|it| {
                let hour = if it.commit == HEAD { "10:30:00" } else { "09:30:00" };
                json!({"user": {"username": it.account}, "approved_at": format!("2026-11-01T{hour}Z")})
            });
            let approvals: Vec<Value> = approvals.collect();
            return answer(200, &[], &json!({"approved_by": approvals}).to_string());
        }
        let page: usize = url.rsplit("page=").next().unwrap().parse().unwrap();
        let items = self.reviews.iter().enumerate().skip((page - 1) * 10).take(10);
        let item = |(at, it): (usize, &FakeReview)| {
            let is_dismissed = self.kind == "gitea" && it.state == "DISMISSED";
            let state = if is_dismissed { "APPROVED" } else { it.state };
            json!({"id": at + 1, "user": {"login": it.account}, "state": state, "commit_id": it.commit,
                "dismissed": is_dismissed, "stale": false, "body": "approved! LGTM"})
        };
        let items: Vec<Value> = items.map(item).collect();
        let is_last = self.reviews.len() <= page * 10;
        let link = format!("<{}?page={}>; rel=\"next\"", self.api, page + 1);
        let headers = [("link", link.as_str())];
        answer(200, if is_last { &[] } else { &headers }, &json!(items).to_string())
    }

    fn respond(&mut self, request: &ProviderRequest) -> MessageSendResult {
        assert_eq!(request.method, "GET", "nothing is changed");
        let url = &request.url;
        self.paths.push(url.clone());
        if let Some(location) = &self.location {
            return answer(302, &[("location", location.as_str())], "");
        }
        if let Some((part, status, body)) = &self.wrong
            && url.contains(part)
        {
            return answer(*status, &[], body);
        }
        let path = url.strip_prefix(self.api).unwrap_or(url);
        let path = path.split('?').next().unwrap_or_default();
        let of_commit = format!("/commits/{MERGE}/");
        match path {
            path if path.contains(&of_commit) => {
                let one = self.pull();
                let body = if self.kind == "gitea" { one } else { json!([one]) };
                answer(200, &[], &body.to_string())
            }
            "/pulls/7" | "/merge_requests/7" => answer(200, &[], &self.pull().to_string()),
            "/git/refs/pull/7/head" => {
                let reference =
                    |name: &str, commit: &str| json!({"ref": name, "object": {"sha": commit}});
                let all = json!([
                    reference("refs/pull/7/head2", EARLIER),
                    reference("refs/pull/7/head", HEAD)
                ]);
                answer(200, &[], &all.to_string())
            }
            path if path.starts_with("/compare/") => {
                answer(200, &[], &json!({"merge_base_commit": {"sha": BASE}}).to_string())
            }
            path if ["/activity", "/events", "/feeds"].iter().any(|end| path.ends_with(end)) => {
                answer(200, &[], &self.pushes().to_string())
            }
            path if path.ends_with("/versions") => {
                let versions = json!([{"id": 2, "head_commit_sha": HEAD, "created_at": HEAD_SINCE},
                    {"id": 1, "head_commit_sha": EARLIER, "created_at": "2026-11-01T09:00:00.000Z"}]);
                answer(200, &[], &versions.to_string())
            }
            path if path.ends_with("/reviews") || path.ends_with("/approvals") => self.page(url),
            _ => panic!("{url} is asked for"),
        }
    }

    fn run(&mut self) -> Result<PullRequestReviewResult, PullRequestError> {
        let spec = json!({"type": self.kind, "address": self.address, "secretRef": {"name": "s"}});
        let provider = Provider::new(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap();
        let data = BTreeMap::from([("token".to_owned(), b"t0ken".to_vec())]);
        let secret =
            |_: &str, name: &str| Some(SecretData { name: name.to_owned(), data: data.clone() });
        let query =
            PullRequestReviewQuery { merge_commit: MERGE.to_owned(), branch: "main".to_owned() };
        let mut conversation = PullRequestReviewLookup::new(query, &provider, NOW, &secret);
        let mut step = conversation.start();
        loop {
            match step {
                ForgeCallStep::Send(request) => step = conversation.answer(self.respond(&request)),
                ForgeCallStep::Done(result) => return Ok(result),
                ForgeCallStep::Failed(error) => return Err(error),
            }
        }
    }

    fn reviewed(&mut self) -> ReviewedPullRequest {
        match self.run().unwrap() {
            PullRequestReviewResult::Reviewed(found) => *found,
            PullRequestReviewResult::NoPullRequest(why) => panic!("{}: {why}", self.kind),
        }
    }

    /// The accounts that count, or why there are too few.
    fn counted(&mut self) -> Result<Vec<String>, String> {
        let reviewers = ["alice", "bob", "jane"].map(str::to_owned);
        self.reviewed().counted_reviews(&reviewers, 1)
    }
}

#[test]
fn a_review_of_the_last_commit_by_a_named_account_counts() {
    for mut forge in FakeForge::all() {
        let found = forge.reviewed();
        assert_eq!((found.number, found.author.as_str()), (7, "jane"), "{}", forge.kind);
        assert_eq!((found.head_commit.as_str(), found.base_commit.as_str()), (HEAD, BASE));
        assert!(found.pushers.iter().eq(["jane"]), "{:?}", found.pushers);
        assert_eq!(forge.counted(), Ok(vec!["alice".to_owned()]));
        let is_comment = |path: &String| path.contains("/comments") || path.contains("/notes");
        let is_status = |path: &String| path.contains("/status");
        assert!(!forge.paths.iter().any(|it| is_comment(it) || is_status(it)), "{:?}", forge.paths);
    }
}

#[test]
fn reviews_of_others_of_the_author_of_the_pusher_and_of_earlier_commits_do_not_count() {
    for (pusher, review, why) in [
        (Some("jane"), approval("mallory"), "it has 0 of 1"),
        (Some("bob"), approval("jane"), "who is its author"),
        (Some("alice"), approval("alice"), "who pushed its last commit"),
        (None, approval("alice"), "one review more is necessary"),
        (Some("jane"), FakeReview { commit: EARLIER, ..approval("alice") }, "earlier commit"),
        (Some("jane"), FakeReview { state: "COMMENTED", ..approval("alice") }, "it has 0 of 1"),
        (Some("jane"), FakeReview { state: "DISMISSED", ..approval("alice") }, "it has 0 of 1"),
        (Some("jane"), FakeReview { state: "PENDING", ..approval("alice") }, "it has 0 of 1"),
    ] {
        for mut forge in FakeForge::all() {
            forge.pusher = pusher;
            forge.reviews = vec![review.clone()];
            let said = forge.counted().unwrap_err();
            assert!(said.contains(why), "{}: {said}", forge.kind);
        }
    }
}

#[test]
fn the_last_review_of_an_account_counts_and_is_found_on_a_later_page() {
    // GitLab has no reviews that take another one back: an approval that is revoked is not in its list.
    for mut forge in FakeForge::all().into_iter().filter(|it| it.kind != "gitlab") {
        let comment = FakeReview { state: "COMMENTED", ..approval("bob") };
        forge.reviews.extend(std::iter::repeat_n(comment, 24));
        assert!(forge.counted().is_ok(), "a comment takes nothing back");
        forge.reviews.push(FakeReview { state: "DISMISSED", ..approval("alice") });
        assert!(forge.counted().is_err(), "{}", forge.kind);
        let state = if forge.kind == "gitea" { "REQUEST_CHANGES" } else { "CHANGES_REQUESTED" };
        forge.reviews.push(FakeReview { state, ..approval("alice") });
        forge.reviews.push(approval("bob"));
        assert_eq!(forge.counted().unwrap_err(), "alice requested changes");
        forge.reviews.push(approval("alice"));
        assert_eq!(forge.counted().unwrap().len(), 2);
    }
}

#[test]
fn only_a_pull_request_that_was_merged_into_the_branch_and_became_the_commit_counts() {
    type Change = fn(&mut FakeForge);
    let changes: [(Change, &str); 3] = [
        (|forge| forge.is_merged = false, "is not merged"),
        (|forge| forge.branch = "other", "was merged into another branch than main"),
        (|forge| forge.merge = EARLIER, "became another commit than"),
    ];
    for (change, said) in changes {
        for mut forge in FakeForge::all() {
            change(&mut forge);
            let found = forge.run().unwrap();
            let PullRequestReviewResult::NoPullRequest(why) = found else { panic!("{found:?}") };
            assert!(why.contains(said), "{}: {why}", forge.kind);
        }
    }
    for mut forge in FakeForge::all() {
        let (status, body) = if forge.kind == "gitea" { (404, "{}") } else { (200, "[]") };
        forge.wrong = Some(("/commits/", status, body.to_owned()));
        let found = forge.run().unwrap();
        assert!(
            matches!(&found, PullRequestReviewResult::NoPullRequest(why) if why.contains(" became commit ")),
            "{found:?}"
        );
    }
}

#[test]
fn a_wrong_answer_to_any_request_approves_nothing() {
    for kind in 0..FORGES.len() {
        let requests = {
            let mut forge = FakeForge::all().remove(kind);
            forge.reviewed();
            forge.paths
        };
        for request in requests {
            let path: &'static str = Box::leak(request.into_boxed_str());
            for (status, body) in [
                (500, "{}"),
                (429, "{}"),
                (200, "<html><body>log in</body></html>"),
                (200, ""),
                (200, "[{\"number\": 7, \"iid\": 7"),
                (302, ""),
            ] {
                let mut forge = FakeForge::all().remove(kind);
                forge.wrong = Some((path, status, body.to_owned()));
                let result = forge.run();
                assert!(result.is_err(), "{path}: {status} {body}: {result:?}");
            }
        }
    }
}

#[test]
fn where_pushes_may_not_be_read_the_pusher_is_unknown_and_a_rate_limit_is_an_error() {
    for mut forge in FakeForge::all() {
        let path = match forge.kind {
            "github" => "/activity",
            "gitlab" => "/events",
            _ => "/feeds",
        };
        forge.wrong = Some((path, 404, "{}".to_owned()));
        assert!(forge.reviewed().pushers.is_empty(), "{}", forge.kind);
        forge.wrong = Some((path, 429, "{}".to_owned()));
        let error = forge.run().unwrap_err();
        assert_eq!(error.retry_after, Some(Duration::from_secs(60)), "{error}");
    }
}

#[test]
fn a_redirect_to_another_server_is_not_followed_and_its_answer_not_believed() {
    for mut forge in FakeForge::all() {
        for location in
            ["https://evil.example.org/", "http://example.com/", "https://example.com:1/"]
        {
            forge.location = Some(location.to_owned());
            forge.paths.clear();
            let error = forge.run().unwrap_err();
            assert!(error.message.contains("as behind a redirect"), "{error}");
            let [asked] = &forge.paths[..] else { panic!("{:?}", forge.paths) };
            assert!(asked.starts_with(forge.api), "{asked}");
        }
        // A repository that was renamed is found where the same server says.
        forge.location = Some(format!("{}/elsewhere", forge.api));
        forge.paths.clear();
        assert!(forge.run().unwrap_err().message.contains("stopped after 10 redirects"));
        assert!(forge.paths.iter().all(|it| it.starts_with(forge.api)), "{:?}", forge.paths);
    }
}

#[test]
fn the_time_of_the_merge_is_known_or_nothing_is_approved() {
    for mut forge in FakeForge::all() {
        assert_eq!(forge.reviewed().merged_at, 1_793_530_800, "{}", forge.kind);
    }
    let mut gitlab = FakeForge::all().remove(1);
    let mut pull = gitlab.pull();
    pull["merged_at"] = Value::Null;
    gitlab.wrong = Some(("/merge_requests/7", 200, pull.to_string()));
    let error = gitlab.run().unwrap_err();
    assert!(error.message.contains("lacks the time at which it was merged"), "{error}");
}
