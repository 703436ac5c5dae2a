//! The comment and the commit status of a check, at a double of each forge.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{NOW, answer};
use crate::{
    CheckCommentOutcome, ForgeCallStep, MessageSendResult, Provider, ProviderRequest,
    PullRequestCheck, PullRequestCheckPosting, PullRequestCheckResult, PullRequestError,
    SecretData,
};

const COMMIT: &str = "b1a2c3d4e5f60718293a4b5c6d7e8f9001122334";
const MARKER: &str = "<!-- windlass plan: prod -->";

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

fn check(text: &str) -> PullRequestCheck {
    PullRequestCheck {
        number: 7,
        commit: COMMIT.to_owned(),
        marker: MARKER.to_owned(),
        comment: format!("{MARKER}\n{text}\n"),
        status: "windlass/plan/prod".to_owned(),
        is_success: true,
        description: "1 added".to_owned(),
    }
}

fn begin(kind: &str, address: &str, check: PullRequestCheck) -> PullRequestCheckPosting {
    let spec = json!({"type": kind, "address": address, "secretRef": {"name": "s"}});
    let provider = Provider::new(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap();
    let data = BTreeMap::from([("token".to_owned(), b"t0ken".to_vec())]);
    let secret =
        |_: &str, name: &str| Some(SecretData { name: name.to_owned(), data: data.clone() });
    PullRequestCheckPosting::new(check, &provider, NOW, &secret)
}

/// A forge with one pull request.
struct FakeForge {
    kind: &'static str,
    address: &'static str,
    api: &'static str,
    head: String,
    /// Whether its token is that of a workflow, which may not ask for its user.
    is_workflow: bool,
    /// Author and body by id.
    comments: BTreeMap<u64, (String, String)>,
    next_id: u64,
    statuses: Vec<Value>,
    /// Method and path of each request.
    lines: Vec<String>,
    /// Answers a request that has this method and whose path contains this, with this status.
    failing: Option<(&'static str, &'static str, u16)>,
}

impl FakeForge {
    fn all() -> Vec<Self> {
        FORGES
            .map(|(kind, address, api)| Self {
                kind,
                address,
                api,
                head: COMMIT.to_owned(),
                is_workflow: false,
                comments: BTreeMap::new(),
                next_id: 100,
                statuses: Vec::new(),
                lines: Vec::new(),
                failing: None,
            })
            .into()
    }

    fn user(&self) -> &'static str {
        if self.is_workflow { "github-actions[bot]" } else { "plan-bot" }
    }

    fn add(&mut self, author: &str, body: &str) -> u64 {
        self.next_id += 1;
        self.comments.insert(self.next_id, (author.to_owned(), body.to_owned()));
        self.next_id
    }

    fn item(&self, id: u64) -> Value {
        let (author, body) = &self.comments[&id];
        match self.kind {
            "gitlab" => json!({"id": id, "body": body, "author": {"username": author}}),
            _ => json!({"id": id, "body": body, "user": {"login": author}}),
        }
    }

    /// The bodies of the comments of an author.
    fn bodies(&self, author: &str) -> Vec<&str> {
        let of = self.comments.values().filter(|(it, _)| it == author);
        of.map(|(_, body)| body.as_str()).collect()
    }

    fn respond(&mut self, request: &ProviderRequest) -> MessageSendResult {
        let url = &request.url;
        let path = url.strip_prefix(self.api).unwrap_or(url);
        self.lines.push(format!("{} {path}", request.method));
        if let Some((method, part, status)) = self.failing
            && request.method == method
            && path.contains(part)
        {
            return answer(status, &[], r#"{"message": "on purpose"}"#);
        }
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let text = body["body"].as_str().unwrap_or_default().to_owned();
        let id: Option<u64> = path.rsplit('/').next().and_then(|it| it.parse().ok());
        let (method, path) = (request.method, path.split('?').next().unwrap_or_default());
        let comments = if self.kind == "gitlab" { "/notes" } else { "/comments" };
        let user = self.user();
        match (method, path) {
            ("GET", path) if path.ends_with("/user") && self.is_workflow => {
                answer(403, &[], r#"{"message": "Resource not accessible by integration"}"#)
            }
            ("GET", path) if path.ends_with("/user") => {
                answer(200, &[], &json!({"login": user, "username": user}).to_string())
            }
            ("POST", "https://api.github.com/graphql") => {
                answer(200, &[], &json!({"data": {"viewer": {"login": user}}}).to_string())
            }
            ("POST", path) if path.starts_with("/statuses/") => {
                self.statuses.push(body);
                answer(201, &[], "{}")
            }
            ("GET", "/pulls/7" | "/merge_requests/7") => {
                let head = json!({"sha": self.head, "head": {"sha": self.head}});
                answer(200, &[], &head.to_string())
            }
            ("GET", path) if path.ends_with(comments) => self.page(url),
            ("POST", path) if path.ends_with(comments) => {
                let id = self.add(user, &text);
                answer(201, &[], &self.item(id).to_string())
            }
            ("PATCH" | "PUT", _) => {
                let id = id.unwrap();
                self.comments.get_mut(&id).unwrap().1 = text;
                answer(200, &[], &self.item(id).to_string())
            }
            ("DELETE", _) => match self.comments.remove(&id.unwrap()) {
                Some(_) => answer(204, &[], ""),
                None => answer(404, &[], "{}"),
            },
            other => panic!("{other:?}"),
        }
    }

    /// Gitea has one page, whatever is asked for.
    fn page(&self, url: &str) -> MessageSendResult {
        let page: usize = url.rsplit("page=").next().unwrap().parse().unwrap();
        let items = self.comments.keys().map(|id| self.item(*id));
        let items: Vec<Value> = match self.kind {
            "gitea" => items.collect(),
            _ => items.skip((page - 1) * 10).take(10).collect(),
        };
        answer(200, &[], &json!(items).to_string())
    }

    fn begin(&self, check: PullRequestCheck) -> PullRequestCheckPosting {
        begin(self.kind, self.address, check)
    }

    fn run(&mut self, check: PullRequestCheck) -> Result<CheckCommentOutcome, PullRequestError> {
        let mut conversation = self.begin(check);
        let mut step = conversation.start();
        loop {
            match step {
                ForgeCallStep::Send(request) => step = conversation.answer(self.respond(&request)),
                ForgeCallStep::Done(PullRequestCheckResult { comment }) => return Ok(comment),
                ForgeCallStep::Failed(error) => return Err(error),
            }
        }
    }
}

#[test]
fn a_check_writes_one_comment_which_later_ones_edit_and_sets_a_status() {
    for mut forge in FakeForge::all() {
        assert_eq!(forge.run(check("one")).unwrap(), CheckCommentOutcome::Created);
        assert_eq!(forge.run(check("one")).unwrap(), CheckCommentOutcome::Unchanged);
        let failing = PullRequestCheck { is_success: false, ..check("two") };
        assert_eq!(forge.run(failing).unwrap(), CheckCommentOutcome::Updated);
        assert_eq!(forge.bodies("plan-bot"), [format!("{MARKER}\ntwo\n")]);
        let [first, .., last] = &forge.statuses[..] else { panic!("{:?}", forge.statuses) };
        let failed = if forge.kind == "gitlab" { "failed" } else { "failure" };
        let name = if forge.kind == "gitlab" { "name" } else { "context" };
        let status = |state: &str| json!({"state": state, "description": "1 added", name: "windlass/plan/prod"});
        assert_eq!((first, last), (&status("success"), &status(failed)), "{}", forge.kind);
        assert_eq!(forge.lines[0], format!("POST /statuses/{COMMIT}"));
        // Another name is another comment.
        let other = "<!-- windlass plan -->";
        let other = PullRequestCheck {
            marker: other.to_owned(),
            comment: format!("{other}\nx"),
            ..check("")
        };
        assert_eq!(forge.run(other).unwrap(), CheckCommentOutcome::Created);
        assert_eq!(forge.comments.len(), 2);
    }
}

#[test]
fn a_comment_of_another_author_is_neither_edited_nor_believed() {
    for mut forge in FakeForge::all() {
        let foreign = format!("{MARKER}\none\n");
        forge.add("mallory", &foreign);
        forge.add("", &foreign);
        // What quotes the comment does not begin with its marker.
        let quote = format!("> {foreign}");
        forge.add("plan-bot", &quote);
        assert_eq!(forge.run(check("one")).unwrap(), CheckCommentOutcome::Created);
        assert_eq!(forge.run(check("two")).unwrap(), CheckCommentOutcome::Updated);
        assert_eq!(forge.bodies("mallory"), [foreign.as_str()]);
        assert_eq!(forge.bodies(""), [foreign.as_str()]);
        assert_eq!(forge.bodies("plan-bot"), [quote, format!("{MARKER}\ntwo\n")]);
    }
}

#[test]
fn the_comment_is_found_on_a_later_page() {
    for mut forge in FakeForge::all() {
        for at in 0..60 {
            forge.add("jane", &format!("comment {at}"));
        }
        let id = forge.add("plan-bot", &format!("{MARKER}\r\none"));
        assert_eq!(forge.run(check("one")).unwrap(), CheckCommentOutcome::Unchanged);
        assert_eq!(forge.run(check("two")).unwrap(), CheckCommentOutcome::Updated);
        assert_eq!(forge.comments[&id].1, format!("{MARKER}\ntwo\n"));
    }
}

#[test]
fn the_token_of_a_workflow_comments_as_its_bot() {
    let mut forges = FakeForge::all();
    let github = &mut forges[0];
    github.is_workflow = true;
    github.add("github-actions", &format!("{MARKER}\none"));
    assert_eq!(github.run(check("one")).unwrap(), CheckCommentOutcome::Created);
    assert_eq!(github.run(check("two")).unwrap(), CheckCommentOutcome::Updated);
    assert_eq!(github.bodies("github-actions[bot]"), [format!("{MARKER}\ntwo\n")]);
    assert_eq!(github.bodies("github-actions"), [format!("{MARKER}\none")]);
    assert!(github.lines.contains(&"POST https://api.github.com/graphql".to_owned()));
}

#[test]
fn a_rate_limit_is_not_taken_for_the_token_of_a_workflow() {
    let (kind, address, _) = FORGES[0];
    let mut conversation = begin(kind, address, check("one"));
    let ForgeCallStep::Send(_) = conversation.start() else { panic!("a status is set first") };
    let step = conversation.answer(answer(201, &[], "{}"));
    assert!(matches!(step, ForgeCallStep::Send(request) if request.url.ends_with("/user")));
    let step = conversation.answer(answer(403, &[("retry-after", "7")], "{}"));
    let ForgeCallStep::Failed(error) = step else { panic!("{step:?}") };
    assert!(error.may_help, "{error}");
    assert_eq!(error.retry_after, Some(Duration::from_secs(7)));
}

#[test]
fn a_check_of_another_commit_sets_its_status_and_no_comment() {
    for mut forge in FakeForge::all() {
        forge.run(check("one")).unwrap();
        forge.head = "0".repeat(40);
        assert_eq!(forge.run(check("late")).unwrap(), CheckCommentOutcome::OtherCommit);
        assert_eq!(forge.bodies("plan-bot"), [format!("{MARKER}\none\n")]);
        assert_eq!(forge.statuses.len(), 2);
    }
}

#[test]
fn comments_that_were_written_at_the_same_time_become_one() {
    for mut forge in FakeForge::all() {
        forge.add("plan-bot", &format!("{MARKER}\none\n"));
        forge.add("plan-bot", &format!("{MARKER}\ntwo\n"));
        forge.add("mallory", MARKER);
        forge.add("plan-bot", &format!("{MARKER}\nthree\n"));
        assert_eq!(forge.run(check("two")).unwrap(), CheckCommentOutcome::Updated);
        assert_eq!(forge.bodies("plan-bot"), [format!("{MARKER}\ntwo\n")]);
        assert_eq!(forge.bodies("mallory"), [MARKER]);
    }
}

#[test]
fn nothing_is_concluded_from_a_list_that_was_not_read() {
    for mut forge in FakeForge::all() {
        let list = if forge.kind == "gitlab" { "/notes" } else { "/comments" };
        for (status, said, may_help) in [
            (500, "the forge answered with status 500 (on purpose)", true),
            (403, "not allowed (on purpose); the token needs the rights to", false),
        ] {
            forge.failing = Some(("GET", list, status));
            let error = forge.run(check("one")).unwrap_err();
            assert!(error.message.starts_with("could not list the comments of "), "{error}");
            assert!(error.message.contains(said), "{error}");
            assert_eq!(error.may_help, may_help);
        }
        assert!(forge.comments.is_empty());
        assert_eq!(forge.statuses.len(), 2, "a status does not depend on comments");
    }
}

#[test]
fn a_status_that_is_not_set_fails_the_check_and_the_comment_is_written() {
    for mut forge in FakeForge::all() {
        let expected = format!("could not set the status `windlass/plan/prod` of commit {COMMIT}");
        for (status, may_help) in [(404, false), (503, true)] {
            forge.failing = Some(("POST", "/statuses/", status));
            let error = forge.run(check("one")).unwrap_err();
            assert!(error.message.starts_with(&expected), "{error}");
            assert_eq!(error.may_help, may_help, "{error}");
        }
        assert_eq!(forge.comments.len(), 1);
    }
}

#[test]
fn a_check_that_cannot_be_sent_is_refused_before_anything_is_sent() {
    let refused = |check: PullRequestCheck| {
        let (kind, address, _) = FORGES[0];
        match begin(kind, address, check).start() {
            ForgeCallStep::Failed(error) => error.message,
            other => panic!("{other:?}"),
        }
    };
    for commit in ["", "main", "../../user", &COMMIT[1..], &format!("{COMMIT}?")] {
        let message = refused(PullRequestCheck { commit: commit.to_owned(), ..check("") });
        assert!(message.contains("is not the name of a commit"), "{message}");
    }
    let message = refused(PullRequestCheck { comment: "x".to_owned(), ..check("") });
    assert_eq!(message, "the comment does not begin with its marker");
}

#[test]
fn lines_that_a_forge_executes_are_shown() {
    for mut forge in FakeForge::all() {
        forge.run(check("/approve\n /merge")).unwrap();
        assert_eq!(forge.bodies("plan-bot"), [format!("{MARKER}\n\\/approve\n \\/merge\n")]);
        let again = forge.run(check("/approve\n /merge")).unwrap();
        assert_eq!(again, CheckCommentOutcome::Unchanged);
    }
}

proptest! {
    #[test]
    fn checks_that_run_at_the_same_time_leave_one_comment(
        turns in prop::collection::vec(0..3_usize, 60), forge in 0..3_usize,
    ) {
        let mut forge = FakeForge::all().remove(forge);
        let mut checks: Vec<_> = ["one", "two", "three"].map(|text| forge.begin(check(text))).into();
        let mut steps: Vec<_> = checks.iter_mut().map(|it| Some(it.start())).collect();
        // In the order of the turns, and then one after the other.
        let rest = (0..3).flat_map(|at| [at; 60]);
        for at in turns.into_iter().chain(rest) {
            match steps[at].take() {
                Some(ForgeCallStep::Send(request)) => {
                    let outcome = forge.respond(&request);
                    steps[at] = Some(checks[at].answer(outcome));
                }
                Some(ForgeCallStep::Failed(error)) => prop_assert!(false, "{error}"),
                Some(ForgeCallStep::Done(_)) | None => {}
            }
        }
        prop_assert!(steps.iter().all(Option::is_none));
        prop_assert_eq!(forge.bodies("plan-bot").len(), 1);
    }
}
