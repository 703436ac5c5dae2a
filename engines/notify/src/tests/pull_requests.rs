//! One pull request for a pushed branch, at each forge.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::{NOW, answer, app_key};
use crate::{
    Provider, ProviderRequest, PullRequest, PullRequestError, PullRequestOutcome,
    PullRequestProposal, PullRequestUpsert, PullRequestUpsertStep, SecretData,
};

const GITHUB: &str = "https://github.com/acme/fleet";
const GITLAB: &str = "https://gitlab.example.com/acme/web/fleet";
const GITEA: &str = "https://example.com/git/acme/fleet";

/// When the branch got its last commit, and a second before.
const COMMITTED: &str = "2027-01-15T08:00:00Z";
const BEFORE_COMMITTED: &str = "2027-01-15T07:59:59Z";

fn proposal() -> PullRequestProposal {
    PullRequestProposal {
        repository: "ssh://git@example.com:2222/acme/fleet.git".to_owned(),
        base: "main".to_owned(),
        head: "updates/web".to_owned(),
        committed: NOW,
        title: "Update images".to_owned(),
        body: "| image | tag |\n|---|---|\n".to_owned(),
    }
}

fn begin(spec: Value, data: &[(&str, &str)], proposal: PullRequestProposal) -> PullRequestUpsert {
    let metadata = json!({"name": "p", "namespace": "apps"});
    let provider = Provider::new(json!({"metadata": metadata, "spec": spec})).unwrap();
    let data: BTreeMap<_, _> =
        data.iter().map(|(key, text)| ((*key).to_owned(), text.as_bytes().to_vec())).collect();
    let secret = |namespace: &str, name: &str| {
        Some(SecretData { name: format!("{namespace}/{name}"), data: data.clone() })
    };
    PullRequestUpsert::new(proposal, &provider, NOW, &secret)
}

/// A conversation of a type of Provider with a token.
fn converse(kind: &str, address: &str, proposal: PullRequestProposal) -> PullRequestUpsert {
    let spec = json!({"type": kind, "address": address, "secretRef": {"name": "s"}});
    let repository = match kind {
        "gitlab" => GITLAB.to_owned(),
        _ => proposal.repository.clone(),
    };
    begin(spec, &[("token", "t0ken")], PullRequestProposal { repository, ..proposal })
}

#[track_caller]
fn sent(step: PullRequestUpsertStep) -> ProviderRequest {
    match step {
        PullRequestUpsertStep::Send(request) => *request,
        other => unreachable!("no request but {other:?}"),
    }
}

#[track_caller]
fn done(step: PullRequestUpsertStep) -> PullRequest {
    match step {
        PullRequestUpsertStep::Done(pull_request) => pull_request,
        other => unreachable!("no pull request but {other:?}"),
    }
}

#[track_caller]
fn failed(step: PullRequestUpsertStep) -> PullRequestError {
    match step {
        PullRequestUpsertStep::Failed(error) => error,
        other => unreachable!("no error but {other:?}"),
    }
}

/// Method and URL of a request.
fn line(request: &ProviderRequest) -> String {
    format!("{} {}", request.method, request.url)
}

fn body(request: &ProviderRequest) -> Value {
    serde_json::from_slice(&request.body).unwrap_or_default()
}

/// A pull request of the branch as a forge lists it, with other members.
fn item(kind: &str, number: u64, members: Value) -> Value {
    let page = format!("https://example.com/{number}");
    let mut item = match kind {
        "gitlab" => json!({
            "id": 900, "iid": number, "web_url": page, "title": "Update images",
            "description": "| image | tag |\n|---|---|", "state": "opened",
            "source_branch": "updates/web", "target_branch": "main",
            "source_project_id": 7, "target_project_id": 7,
        }),
        _ => json!({
            "id": 900, "number": number, "html_url": page, "title": "Update images",
            "body": "| image | tag |\r\n|---|---|\r\n", "state": "open",
            "head": {"ref": "updates/web", "repo_id": 7, "repo": {"id": 7}},
            "base": {"ref": "main", "repo_id": 7, "repo": {"id": 7}},
        }),
    };
    let members = members.as_object().cloned().unwrap_or_default();
    item.as_object_mut().unwrap().extend(members);
    item
}

fn list(items: &[Value]) -> crate::MessageSendResult {
    answer(200, &[], &json!(items).to_string())
}

/// The queries by which a forge lists the open pull requests of the branch and those that ended, and the members of a new
/// one that name the branches.
fn queries(kind: &str) -> (String, String, Value) {
    let [open, ended, filter] = match kind {
        "gitlab" => [
            "state=opened",
            "state=all&order_by=updated_at&sort=desc",
            "source_branch=updates%2Fweb&target_branch=main&per_page=25&page=1",
        ],
        "gitea" => {
            ["state=open", "state=closed&sort=recentupdate", "base_branch=main&limit=25&page=1"]
        }
        _ => [
            "state=open",
            "state=closed&sort=updated&direction=desc",
            "head=acme%3Aupdates%2Fweb&base=main&per_page=25&page=1",
        ],
    };
    let branches = match kind {
        "gitlab" => json!({"source_branch": "updates/web", "target_branch": "main"}),
        _ => json!({"head": "updates/web", "base": "main"}),
    };
    (format!("{open}&{filter}"), format!("{ended}&{filter}"), branches)
}

#[test]
fn a_branch_without_a_pull_request_gets_one() {
    let bearer = ("Authorization", "Bearer t0ken");
    let token = ("Authorization", "token t0ken");
    for (kind, address, api, (header, login)) in [
        ("github", GITHUB, "https://api.github.com/repos/acme/fleet/pulls", bearer),
        (
            "githubpullrequestcomment",
            "https://ghe.example.com:8443/acme/fleet.git",
            "https://ghe.example.com:8443/api/v3/repos/acme/fleet/pulls",
            bearer,
        ),
        (
            "gitlab",
            GITLAB,
            "https://gitlab.example.com/api/v4/projects/acme%2Fweb%2Ffleet/merge_requests",
            ("PRIVATE-TOKEN", "t0ken"),
        ),
        ("gitea", GITEA, "https://example.com/git/api/v1/repos/acme/fleet/pulls", token),
        (
            "gitea",
            "http://git.example.com:3000/acme/fleet",
            "http://git.example.com:3000/api/v1/repos/acme/fleet/pulls",
            token,
        ),
    ] {
        let (open, ended, mut expected) = queries(kind);
        let mut conversation = converse(kind, address, proposal());
        let request = sent(conversation.start());
        assert_eq!(line(&request), format!("GET {api}?{open}"));
        assert_eq!(request.get(header), Some(login), "{address}");
        let request = sent(conversation.answer(list(&[])));
        assert_eq!(line(&request), format!("GET {api}?{ended}"));
        let request = sent(conversation.answer(list(&[])));
        assert_eq!(line(&request), format!("POST {api}"));
        assert_eq!(request.get(header), Some(login), "{address}");
        assert_eq!(request.get("content-type"), Some("application/json"), "{address}");
        expected["title"] = json!("Update images");
        let member = if kind == "gitlab" { "description" } else { "body" };
        expected[member] = json!("| image | tag |\n|---|---|");
        assert_eq!(body(&request), expected, "{address}");
        let created = answer(201, &[], &item(kind, 12, json!({})).to_string());
        let url = "https://example.com/12".to_owned();
        let change = PullRequestOutcome::Created;
        let made = done(conversation.answer(created));
        assert_eq!(made, PullRequest { number: 12, url, change }, "{address}");
    }
}

#[test]
fn an_open_pull_request_is_updated_if_it_differs() {
    for (kind, address, expected) in [
        ("github", GITHUB, "PATCH https://api.github.com/repos/acme/fleet/pulls/5"),
        (
            "gitlab",
            GITLAB,
            "PUT https://gitlab.example.com/api/v4/projects/acme%2Fweb%2Ffleet/merge_requests/5",
        ),
        ("gitea", GITEA, "PATCH https://example.com/git/api/v1/repos/acme/fleet/pulls/5"),
    ] {
        let member = if kind == "gitlab" { "description" } else { "body" };
        for (members, title) in [
            (json!({"title": "Update image"}), "Update images"),
            (json!({member: null}), "Update images"),
            // A person made it a draft.
            (json!({"title": "draft: Update image"}), "draft: Update images"),
            (json!({"title": "WIP: Update images", member: "old"}), "WIP: Update images"),
            (json!({"title": "[Draft] Update image"}), "[Draft] Update images"),
            (json!({"title": "wip:Update image"}), "wip:Update images"),
        ] {
            let mut conversation = converse(kind, address, proposal());
            sent(conversation.start());
            let request = sent(conversation.answer(list(&[item(kind, 5, members.clone())])));
            assert_eq!(line(&request), expected);
            let wanted = json!({"title": title, member: "| image | tag |\n|---|---|"});
            assert_eq!(body(&request), wanted, "{members}");
            let status = if kind == "gitea" { 201 } else { 200 };
            let updated = done(conversation.answer(answer(status, &[], "{}")));
            assert_eq!((updated.number, updated.change), (5, PullRequestOutcome::Updated));
        }
        for members in [json!({}), json!({"title": "Draft: Update images"})] {
            let mut conversation = converse(kind, address, proposal());
            sent(conversation.start());
            let same = done(conversation.answer(list(&[item(kind, 5, members)])));
            assert_eq!((same.number, same.change), (5, PullRequestOutcome::Unchanged));
        }
    }
}

#[test]
fn a_pull_request_that_ended_after_the_last_commit_is_not_opened_again() {
    let fleet = [("github", GITHUB), ("gitlab", GITLAB), ("gitea", GITEA)];
    let later = "2027-02-01T00:00:00Z";
    for (kind, address) in fleet {
        for (members, is_ended) in [
            (json!({"state": "closed", "closed_at": COMMITTED}), true),
            (json!({"state": "closed", "closed_at": "2027-01-15T09:00:00.000+01:00"}), true),
            (json!({"state": "merged", "closed_at": null, "merged_at": later}), true),
            // What does not say when it ended may have ended since.
            (json!({"state": "closed", "closed_at": null, "updated_at": later}), true),
            (json!({"state": "closed"}), true),
            (json!({"state": "closed", "closed_at": BEFORE_COMMITTED, "updated_at": later}), false),
            (
                json!({"state": "closed", "closed_at": later, "head": {"ref": "updates/api"},
                    "source_branch": "updates/api"}),
                false,
            ),
        ] {
            let mut conversation = converse(kind, address, proposal());
            sent(conversation.start());
            sent(conversation.answer(list(&[])));
            let step = conversation.answer(list(&[item(kind, 3, members.clone())]));
            if is_ended {
                let ended = done(step);
                let expected = (3, PullRequestOutcome::Ended);
                assert_eq!((ended.number, ended.change), expected, "{kind} {members}");
            } else {
                assert_eq!(sent(step).method, "POST", "{kind} {members}");
            }
        }
    }
}

#[test]
fn pull_requests_of_forks_and_of_other_branches_do_not_count() {
    for (kind, address, members) in [
        ("github", GITHUB, json!({"head": {"ref": "updates/web", "repo": {"id": 8}}})),
        ("github", GITHUB, json!({"head": {"ref": "updates/web", "repo": null}})),
        ("github", GITHUB, json!({"base": {"ref": "next", "repo": {"id": 7}}})),
        ("github", GITHUB, json!({"state": "closed"})),
        ("gitlab", GITLAB, json!({"source_project_id": 8})),
        ("gitlab", GITLAB, json!({"target_branch": "next"})),
        ("gitea", GITEA, json!({"head": {"ref": "updates/web", "repo_id": 8}})),
        ("gitea", GITEA, json!({"head": {"ref": "updates", "repo_id": 7}})),
    ] {
        let mut conversation = converse(kind, address, proposal());
        sent(conversation.start());
        let request = sent(conversation.answer(list(&[item(kind, 3, members.clone())])));
        assert!(request.method == "GET" && request.url.contains("sort="), "{kind} {members}");
    }
}

#[test]
fn lists_are_read_to_their_end_and_no_further() {
    let other = item("gitea", 1, json!({"head": {"ref": "x", "repo_id": 7}}));
    let link = "<https://elsewhere.example.com/?page=2>; rel=\"next\"";
    let page = |items: &[Value]| answer(200, &[("Link", link)], &json!(items).to_string());
    let mut conversation = converse("gitea", GITEA, proposal());
    let mut request = sent(conversation.start());
    for number in 1..40 {
        let expected = format!("?state=open&base_branch=main&limit=25&page={number}");
        assert!(request.url.ends_with(&expected), "{}", request.url);
        request = sent(conversation.answer(page(std::slice::from_ref(&other))));
    }
    let error = failed(conversation.answer(page(std::slice::from_ref(&other))));
    assert!(error.message.contains("more open pull requests than windlass reads"), "{error}");
    // A full page without links, and one whose links name no further one.
    let full = vec![other.clone(); 25];
    for (first, has_more) in [
        (list(&full), true),
        (list(&full[1..]), false),
        (answer(200, &[("Link", "<x>; rel=\"last\"")], &json!(full).to_string()), false),
        (page(&[]), false),
    ] {
        let mut conversation = converse("gitea", GITEA, proposal());
        sent(conversation.start());
        let request = sent(conversation.answer(first));
        assert_eq!(request.url.contains("state=open"), has_more, "{}", request.url);
    }
    // What was changed last before the commit did not end after it.
    let mut conversation = converse("gitea", GITEA, proposal());
    sent(conversation.start());
    sent(conversation.answer(list(&[])));
    let older = item("gitea", 2, json!({"head": {"ref": "x"}, "updated_at": BEFORE_COMMITTED}));
    assert_eq!(sent(conversation.answer(page(&[older]))).method, "POST");
}

#[test]
fn an_answer_that_is_no_success_says_what_to_do_and_when_to_come_back() {
    let soon = (NOW + 90).to_string();
    let late = (NOW + 99_999).to_string();
    let reset = |at| [("X-RateLimit-Remaining", "0"), ("X-RateLimit-Reset", at)];
    for (outcome, message, may_help, delay) in [
        (
            answer(401, &[], r#"{"message": "Bad credentials"}"#),
            "authentication failed (Bad credentials); replace the token",
            false,
            None,
        ),
        (
            answer(403, &reset(soon.as_str()), "{}"),
            "rate limit of the forge is exceeded",
            true,
            Some(90),
        ),
        (answer(429, &reset(late.as_str()), ""), "rate limit", true, Some(3600)),
        (answer(429, &[("RateLimit-Reset", "20")], "Retry later"), "rate limit", true, Some(20)),
        (
            answer(403, &[], r#"{"message": "You have exceeded a secondary rate limit."}"#),
            "a secondary rate limit.)",
            true,
            Some(60),
        ),
        (answer(429, &[("Retry-After", "7")], "{}"), "in 7 s at the earliest", true, Some(7)),
        (
            answer(429, &[("Retry-After", "Fri, 15 Jan 2027 08:00:30 GMT")], "{}"),
            "rate limit",
            true,
            Some(30),
        ),
        (
            answer(403, &[("X-RateLimit-Remaining", "9")], r#"{"message": "no scope"}"#),
            "not allowed (no scope); the token of the Provider needs the right",
            false,
            None,
        ),
        (answer(404, &[], "<html>"), "not found; check `spec.address`", false, None),
        (answer(422, &[], r#"{"message": {"base": ["is bad"]}}"#), "is bad", false, None),
        (answer(503, &[("Retry-After", "5")], "<html>"), "status 503", true, Some(5)),
        (answer(301, &[], ""), "as behind a redirect", false, None),
        (answer(200, &[], "<html>"), "the answer is not a list in JSON", false, None),
        (answer(200, &[], ""), "the answer is not a list in JSON", false, None),
        (Err(("connection refused".to_owned(), true)), "fleet: connection refused", true, None),
        (Err(("`x` is not allowed".to_owned(), false)), "`x` is not allowed", false, None),
    ] {
        let mut conversation = converse("github", GITHUB, proposal());
        sent(conversation.start());
        let error = failed(conversation.answer(outcome));
        let text = error.to_string();
        assert!(text.starts_with("could not list the pull requests of acme/fleet: "), "{text}");
        assert!(text.contains(message) && text.len() < 1000, "{text}");
        let expected = (may_help, delay.map(Duration::from_secs));
        assert_eq!((error.may_help, error.retry_after), expected, "{text}");
    }
}

#[test]
fn a_pull_request_that_is_not_opened_says_why() {
    for (kind, address, outcome, message, may_help) in [
        (
            "github",
            GITHUB,
            answer(
                422,
                &[],
                r#"{"message": "Validation Failed", "errors": [{"field": "head", "code": "invalid"}]}"#,
            ),
            "rejected (Validation Failed; head: invalid)",
            false,
        ),
        (
            "github",
            GITHUB,
            answer(422, &[], r#"{"errors": [{"message": "A pull request already exists."}]}"#),
            "it was opened meanwhile (A pull request already exists.)",
            true,
        ),
        (
            "gitlab",
            GITLAB,
            answer(409, &[], r#"{"message": ["Another open merge request already exists: !5"]}"#),
            "could not open a merge request of branch `updates/web` into `main` of acme/web/fleet",
            true,
        ),
        ("gitea", GITEA, answer(200, &[], "[]"), "status 200, as behind a redirect", false),
        ("gitea", GITEA, answer(201, &[], "{}"), "the answer lacks the number", true),
    ] {
        let mut conversation = converse(kind, address, proposal());
        sent(conversation.start());
        sent(conversation.answer(list(&[])));
        sent(conversation.answer(list(&[])));
        let error = failed(conversation.answer(outcome));
        assert!(error.message.contains(message), "{error}");
        assert_eq!(error.may_help, may_help, "{error}");
    }
}

#[test]
fn a_provider_of_something_else_is_rejected_before_anything_is_sent() {
    let own_branch = PullRequestProposal { head: "main".to_owned(), ..proposal() };
    for (kind, address, proposal, message) in [
        ("slack", GITHUB, proposal(), "a Provider of type `slack` is not for a forge"),
        ("github", "", proposal(), "the Provider has no address"),
        (
            "github",
            "https://github.com/acme/other",
            proposal(),
            "is for `acme/other`, and the branch was pushed to `acme/fleet`",
        ),
        ("gitea", "https://example.com/notacme/fleet", proposal(), "is for `notacme/fleet`"),
        ("github", GITHUB, own_branch, "needs two branches"),
    ] {
        let error = failed(converse(kind, address, proposal).start());
        assert!(error.message.contains(message) && !error.may_help, "{error}");
    }
    let spec = json!({"type": "gitea", "address": GITEA, "secretRef": {"name": "s"}});
    let error = failed(begin(spec, &[("other", "x")], proposal()).start());
    assert_eq!(error.message, "gitea token cannot be empty");
}

#[test]
fn titles_and_bodies_have_a_length_and_a_title_one_line() {
    for (title, expected) in [
        (" \n\tfix: images\u{7} \nmore", "fix: images".to_owned()),
        ("", "Merge updates/web into main".to_owned()),
        ("ä".repeat(300).as_str(), "ä".repeat(127)),
    ] {
        let body_text = "ä".repeat(40_000);
        let long = PullRequestProposal { title: title.to_owned(), body: body_text, ..proposal() };
        let mut conversation = converse("github", GITHUB, long);
        sent(conversation.start());
        sent(conversation.answer(list(&[])));
        let sent_body = body(&sent(conversation.answer(list(&[]))));
        assert_eq!(sent_body["title"], json!(expected));
        let text = sent_body["body"].as_str().unwrap_or_default();
        assert!(text.ends_with("ä\n\n(shortened)") && text.len() <= 60 << 10, "{}", text.len());
    }
}

#[test]
fn what_a_forge_would_execute_is_shown_instead() {
    let text = "one\n/merge\r\n \t/approve /x\na/b\u{0}\u{1b}\n\u{7}/close\n";
    let escaped = "one\n\\/merge\n \t\\/approve /x\na/b\n\\/close";
    for (kind, address) in [("gitlab", GITLAB), ("github", GITHUB), ("gitea", GITEA)] {
        let proposed = PullRequestProposal { body: text.to_owned(), ..proposal() };
        let mut conversation = converse(kind, address, proposed.clone());
        sent(conversation.start());
        sent(conversation.answer(list(&[])));
        let opened = body(&sent(conversation.answer(list(&[]))));
        let member = if kind == "gitlab" { "description" } else { "body" };
        assert_eq!(opened[member], json!(escaped), "{kind}");
        // It is not updated each time.
        let mut conversation = converse(kind, address, proposed);
        sent(conversation.start());
        let open = item(kind, 5, json!({member: escaped}));
        let same = done(conversation.answer(list(&[open])));
        assert_eq!(same.change, PullRequestOutcome::Unchanged, "{kind}");
    }
}

#[test]
fn the_mark_of_a_draft_makes_a_title_no_longer_than_a_forge_takes() {
    let long = PullRequestProposal { title: "ä".repeat(127), ..proposal() };
    let mut conversation = converse("gitlab", GITLAB, long.clone());
    sent(conversation.start());
    let draft = |title: &str| list(&[item("gitlab", 5, json!({"title": title}))]);
    let updated = body(&sent(conversation.answer(draft("Draft: Update images"))));
    let title = format!("Draft: {}", "ä".repeat(124));
    assert_eq!(updated["title"], json!(title));
    let mut conversation = converse("gitlab", GITLAB, long);
    sent(conversation.start());
    assert_eq!(done(conversation.answer(draft(&title))).change, PullRequestOutcome::Unchanged);
}

#[test]
fn a_token_stays_at_its_host_and_a_proxy_is_used() {
    for (kind, address, header) in
        [("github", GITHUB, "authorization"), ("gitlab", GITLAB, "private-token")]
    {
        for (to, keeps) in [("https://b.example.org/x", false), ("/y", true)] {
            let mut conversation = converse(kind, address, proposal());
            sent(conversation.start());
            let next = sent(conversation.answer(answer(302, &[("Location", to)], "")));
            assert_eq!(next.get(header).is_some(), keeps, "{kind} {to}");
        }
        let spec = json!({"type": kind, "address": address, "proxy": "http://proxy.example.com",
            "secretRef": {"name": "s"}});
        let pushed = PullRequestProposal { repository: address.to_owned(), ..proposal() };
        let request = sent(begin(spec, &[("token", "t0ken")], pushed).start());
        assert_eq!(request.proxy.as_deref(), Some("http://proxy.example.com"), "{kind}");
    }
}

#[test]
fn a_github_app_logs_in_before_it_asks() -> Result<(), aws_lc_rs::error::Unspecified> {
    let key = app_key()?;
    let spec = json!({"type": "github", "address": GITHUB, "secretRef": {"name": "s"}});
    let data =
        [("githubAppID", "7"), ("githubAppInstallationID", "42"), ("githubAppPrivateKey", &key)];
    let mut conversation = begin(spec.clone(), &data, proposal());
    let login = line(&sent(conversation.start()));
    assert_eq!(login, "POST https://api.github.com/app/installations/42/access_tokens");
    let request = sent(conversation.answer(answer(201, &[], r#"{"token": "ghs_1"}"#)));
    assert_eq!(request.get("authorization"), Some("Bearer ghs_1"));
    let mut conversation = begin(spec, &data, proposal());
    sent(conversation.start());
    let error = failed(conversation.answer(answer(502, &[], "")));
    assert!(error.message.starts_with("could not get installation token: "), "{error}");
    assert!(error.may_help);
    Ok(())
}
