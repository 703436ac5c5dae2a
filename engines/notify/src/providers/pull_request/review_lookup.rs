//! Finds the pull request that became a commit, and the accounts that approved its last commit.
//!
//! Comments and commit statuses are not read, because an account that can push can write them. If a response lacks a fact, it
//! counts as not approved.
//! Here: the order of requests, and which reviews count. Elsewhere: differences between forges (`forge`), the driver
//! (`conversation`), whether the commit equals the reviewed one (the program).

use std::collections::{BTreeMap, BTreeSet};

use super::forge::{
    self, Forge, ForgeKind, ForgeReview, MergedPullRequest, PAGE_PUSHES, PAGE_REVIEWS,
    ReviewVerdict, is_commit,
};
use super::forge_call_sequence::{ForgeCallResultSlot, ForgeCallSequence, PullRequestError};
use super::forge_failure::{POLICY_ADVICE, accepted, is_rate_limit};
use crate::api_objects::{Alert, Provider, SecretData};
use crate::event_delivery::{HttpResponse, ProviderNextAction};
use crate::provider_options::assemble;

/// How many pull requests are on a page of the pull requests that contain a commit.
const PAGE_OF_COMMIT: usize = 25;

/// Most pages of pull requests that have a commit.
const MAX_COMMIT_PAGES: u32 = 8;

/// Most pages of reviews that are read.
const MAX_REVIEW_PAGES: u32 = 100;

/// The most pages of pushes that are read to find the push of the last commit.
const MAX_PUSH_PAGES: u32 = 5;

/// The commit whose pull request and reviews are to be found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PullRequestReviewQuery {
    /// The commit that a pull request became, as 40 or 64 hexadecimal digits.
    pub merge_commit: String,
    /// The branch that the pull request was merged into.
    pub branch: String,
}

/// A merged pull request with its reviews.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReviewedPullRequest {
    /// The number of the pull request in the repository.
    pub number: u64,
    /// The URL of its page; empty if the forge returns none that can be shown.
    pub url: String,
    /// The account that opened the pull request.
    pub author: String,
    /// The accounts that pushed its last commit; empty if the forge does not report them.
    pub pushers: BTreeSet<String>,
    /// The last commit of the pull request, as hexadecimal digits.
    pub head_commit: String,
    /// The commit with which the forge compares the last commit, as hexadecimal digits.
    pub base_commit: String,
    /// When the pull request was merged, in seconds since 1970.
    pub merged_at: i64,
    /// The accounts whose last review approves the last commit and was not dismissed.
    pub approved_by: BTreeSet<String>,
    /// The accounts whose last review approves an earlier commit.
    pub approved_earlier_commit: BTreeSet<String>,
    /// The accounts whose last review requests changes, and was not dismissed.
    pub changes_requested_by: BTreeSet<String>,
}

/// The result of the search at a forge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PullRequestReviewResult {
    /// A pull request became the commit.
    Reviewed(Box<ReviewedPullRequest>),
    /// No pull request became the commit, for this reason.
    NoPullRequest(String),
}

/// The conversation with a forge that leads to the reviews of the pull request that became a commit.
///
/// # Guarantees
/// Nothing is changed at the forge. That a review does not exist, or was not dismissed, is concluded from whole lists only.
pub type PullRequestReviewLookup = ForgeCallSequence<PullRequestReviewResult>;

impl PullRequestReviewLookup {
    /// Creates a conversation with the forge of a Provider. The Provider's type must be `github`, `gitlab` or `gitea`, and its
    /// address the URL of the repository.
    ///
    /// `now` is in seconds since 1970. `secret` returns a Secret by namespace and name, or `None` if it is missing.
    pub fn new(
        query: PullRequestReviewQuery,
        provider: &Provider,
        now: i64,
        secret: &dyn Fn(&str, &str) -> Option<SecretData>,
    ) -> Self {
        let result = ForgeCallResultSlot::default();
        let flow = begin(query, provider, now, secret, result.clone());
        Self::of(flow, result)
    }
}

fn begin(
    query: PullRequestReviewQuery,
    provider: &Provider,
    now: i64,
    secret: &dyn Fn(&str, &str) -> Option<SecretData>,
    result: ForgeCallResultSlot<PullRequestReviewResult>,
) -> ProviderNextAction {
    let kind = &provider.spec.r#type;
    let Some(forge_kind) = ForgeKind::of(kind) else {
        return ProviderNextAction::failed(format!("`{kind}` is not a forge"));
    };
    if !is_commit(&query.merge_commit) {
        let commit = &query.merge_commit;
        return ProviderNextAction::failed(format!("`{commit}` is not the name of a commit"));
    }
    let options = match assemble(provider, &Alert::default(), String::new(), now, secret) {
        Ok((options, _)) => options,
        Err(message) => return ProviderNextAction::failed(message),
    };
    forge::connect(forge_kind, &options, move |forge| {
        let steps = PullRequestReviewSteps {
            forge,
            query,
            result,
            now,
            numbers: BTreeSet::new(),
            others: None,
            pull: MergedPullRequest::default(),
            pushers: BTreeSet::new(),
            head_since: None,
            reviews: BTreeMap::new(),
        };
        steps.find(1)
    })
}

/// The steps of a conversation, once the login is known.
struct PullRequestReviewSteps {
    forge: Forge,
    query: PullRequestReviewQuery,
    result: ForgeCallResultSlot<PullRequestReviewResult>,
    now: i64,
    /// The pull requests that became the commit.
    numbers: BTreeSet<u64>,
    /// Why another pull request that contains the commit does not count.
    others: Option<String>,
    pull: MergedPullRequest,
    pushers: BTreeSet<String>,
    /// The time since which the last commit is the last one, if reviews do not name their commit.
    head_since: Option<i64>,
    /// The reviews by id. Later reviews have larger ids.
    reviews: BTreeMap<u64, ForgeReview>,
}

impl PullRequestReviewSteps {
    fn end(self, result: Result<PullRequestReviewResult, PullRequestError>) -> ProviderNextAction {
        drop(self.result.set(result));
        ProviderNextAction::Done
    }

    fn end_without(self, why: String) -> ProviderNextAction {
        self.end(Ok(PullRequestReviewResult::NoPullRequest(why)))
    }

    fn accepted(
        &self,
        what: &str,
        answer: Result<HttpResponse, String>,
    ) -> Result<HttpResponse, PullRequestError> {
        accepted(what, answer, &[200], self.now, &POLICY_ADVICE)
    }

    /// The name of the pull request in messages: `pull request 7 of acme/fleet`.
    fn subject(&self) -> String {
        format!("{} {} of {}", self.forge.noun(), self.pull.number, self.forge.repository)
    }

    /// Why a pull request that contains the commit did not become that commit; `None` if it did.
    fn difference(&self, pull: &MergedPullRequest) -> Option<String> {
        let PullRequestReviewQuery { merge_commit, branch } = &self.query;
        let named = format!("{} {} of {}", self.forge.noun(), pull.number, self.forge.repository);
        if !pull.is_merged {
            return Some(format!("{named} is not merged"));
        }
        if pull.branch != *branch {
            return Some(format!("{named} was merged into another branch than {branch}"));
        }
        let is_it = |commit: &String| commit.eq_ignore_ascii_case(merge_commit);
        match pull.merge_commits.iter().any(is_it) {
            true => None,
            false => Some(format!("{named} became another commit than {merge_commit}")),
        }
    }

    /// Reads a page of the pull requests that contain the commit, and continues from there.
    fn find(mut self, page: u32) -> ProviderNextAction {
        let request = self.forge.pull_requests_of_commit(&self.query.merge_commit, page);
        request.send(move |answer| {
            let is_absent = answer.as_ref().is_ok_and(|answer| answer.status == 404);
            if is_absent && self.forge.has_one_for_commit() {
                return self.choose();
            }
            match self.read_found(page, answer) {
                Ok(true) => self.find(page + 1),
                Ok(false) => self.choose(),
                Err(error) => self.end(Err(error)),
            }
        })
    }

    /// Keeps the pull requests of a page that became the commit. Returns whether there is another page.
    fn read_found(
        &mut self,
        page: u32,
        answer: Result<HttpResponse, String>,
    ) -> Result<bool, PullRequestError> {
        let Self { forge, query, .. } = &*self;
        let noun = forge.noun();
        let commit = &query.merge_commit;
        let what = format!("could not list the {noun}s of commit {commit} of {}", forge.repository);
        let answer = self.accepted(&what, answer)?;
        let lasting = |why: &str| PullRequestError::lasting(format!("{what}: {why}"));
        let items = self.forge.listed_of_commit(&answer).map_err(lasting)?;
        for item in &items {
            let pull = self.forge.merged(item).map_err(lasting)?;
            match self.difference(&pull) {
                None => {
                    self.numbers.insert(pull.number);
                }
                Some(why) => self.others = Some(why),
            }
        }
        let is_last = self.forge.has_one_for_commit()
            || !self.forge.has_next_page(&answer, items.len(), PAGE_OF_COMMIT);
        if is_last {
            return Ok(false);
        }
        match page < MAX_COMMIT_PAGES {
            true => Ok(true),
            false => Err(lasting("more of them have it than windlass reads")),
        }
    }

    /// Goes on with the only pull request that became the commit.
    fn choose(self) -> ProviderNextAction {
        let mut numbers = self.numbers.iter().copied();
        let Some(number) = numbers.next() else {
            let noun = self.forge.noun();
            let PullRequestReviewQuery { merge_commit, branch } = &self.query;
            let repository = &self.forge.repository;
            let why = self.others.clone().unwrap_or_else(|| {
                let also = match self.forge.has_one_for_commit() {
                    true => ", or the token may not read the repository",
                    false => "",
                };
                format!("no {noun} of {repository} that was merged into {branch} became commit {merge_commit}{also}")
            });
            return self.end_without(why);
        };
        if numbers.next().is_some() {
            let noun = self.forge.noun();
            let why = format!("several {noun}s became commit {}", self.query.merge_commit);
            return self.end_without(why);
        }
        self.read_pull_request(number)
    }

    fn read_pull_request(mut self, number: u64) -> ProviderNextAction {
        let request = self.forge.pull_request(number).stay_at_server();
        request.send(move |answer| {
            self.pull.number = number;
            let what = format!("could not read {}", self.subject());
            let read = self.accepted(&what, answer).and_then(|answer| {
                let pull = self.forge.merged_pull_request(&answer);
                pull.map_err(|why| PullRequestError::lasting(format!("{what}: {why}")))
            });
            match read {
                Ok(pull) => match self.difference(&pull) {
                    Some(why) => self.end_without(why),
                    None => {
                        self.pull = MergedPullRequest { number, ..pull };
                        self.find_head()
                    }
                },
                Err(error) => self.end(Err(error)),
            }
        })
    }

    /// Finds the last commit of the pull request at the time of the merge.
    fn find_head(mut self) -> ProviderNextAction {
        let number = self.pull.number;
        let Some(request) = self.forge.merged_head(number) else { return self.find_base() };
        request.send(move |answer| {
            let what = format!("could not read the last commit of {}", self.subject());
            let head = self.accepted(&what, answer).and_then(|answer| {
                let head = self.forge.read_merged_head(&answer, number);
                head.map_err(|why| PullRequestError::lasting(format!("{what}: {why}")))
            });
            match head {
                Ok(head) => {
                    self.pull.head_commit = head;
                    self.find_base()
                }
                Err(error) => self.end(Err(error)),
            }
        })
    }

    /// The first fact for the decision that the response about the pull request lacks. `None` if it lacks none.
    fn lacks(&self) -> Option<&'static str> {
        if !is_commit(&self.pull.base_commit) {
            return Some("the commit with which it is compared");
        }
        self.pull.merged_at.is_none().then_some("the time at which it was merged")
    }

    /// Finds the commit with which the forge compares the pull request.
    fn find_base(mut self) -> ProviderNextAction {
        if let Some(lacking) = self.lacks() {
            let why = format!("could not read {}: the answer lacks {lacking}", self.subject());
            return self.end(Err(PullRequestError::lasting(why)));
        }
        let Some(request) = self.forge.comparison(&self.pull) else { return self.find_pusher(1) };
        request.send(move |answer| {
            let what = format!("could not compare {}", self.subject());
            let base = self.accepted(&what, answer).and_then(|answer| {
                let base = self.forge.compared_base(&answer);
                base.map_err(|why| PullRequestError::lasting(format!("{what}: {why}")))
            });
            match base {
                Ok(base) => {
                    self.pull.base_commit = base;
                    self.find_pusher(1)
                }
                Err(error) => self.end(Err(error)),
            }
        })
    }

    /// Reads a page of the pushes, and continues from there. If the token may not read pushes, the pushing account stays
    /// unknown.
    fn find_pusher(mut self, page: u32) -> ProviderNextAction {
        let Some(request) = self.forge.list_pushes(&self.pull, page) else {
            return self.find_head_time();
        };
        request.send(move |answer| {
            let is_hidden = answer.as_ref().is_ok_and(|answer| {
                // GitHub responds with 422 if it does not list the pushes of a branch.
                matches!(answer.status, 401 | 403 | 404 | 410 | 422) && !is_rate_limit(answer)
            });
            if is_hidden {
                self.pushers.clear();
                return self.find_head_time();
            }
            match self.read_pushes(page, answer) {
                Ok(true) => self.find_pusher(page + 1),
                Ok(false) => self.find_head_time(),
                Err(error) => self.end(Err(error)),
            }
        })
    }

    /// Records which accounts pushed the last commit. Returns whether another page is needed.
    fn read_pushes(
        &mut self,
        page: u32,
        answer: Result<HttpResponse, String>,
    ) -> Result<bool, PullRequestError> {
        let what = format!("could not list the pushes to the branch of {}", self.subject());
        let answer = self.accepted(&what, answer)?;
        let lasting = |why: &str| PullRequestError::lasting(format!("{what}: {why}"));
        let items = self.forge.items(&answer).map_err(lasting)?;
        let head = &self.pull.head_commit;
        let found: Vec<String> =
            items.iter().filter_map(|item| self.forge.pusher_of(item, head)).collect();
        self.pushers.extend(found);
        let has_more = self.forge.has_pages_of_pushes()
            && self.forge.has_next_page(&answer, items.len(), PAGE_PUSHES);
        Ok(has_more && page < MAX_PUSH_PAGES)
    }

    fn find_head_time(mut self) -> ProviderNextAction {
        let Some(request) = self.forge.versions(self.pull.number) else { return self.list(1) };
        request.send(move |answer| {
            let what = format!("could not list the versions of {}", self.subject());
            let since = self.accepted(&what, answer).and_then(|answer| {
                let since = self.forge.head_since(&answer, &self.pull.head_commit);
                since.map_err(|why| PullRequestError::lasting(format!("{what}: {why}")))
            });
            match since {
                Ok(since) => {
                    self.head_since = Some(since);
                    self.list(1)
                }
                Err(error) => self.end(Err(error)),
            }
        })
    }

    /// Reads a page of the reviews, and continues from there.
    fn list(mut self, page: u32) -> ProviderNextAction {
        let request = self.forge.list_reviews(self.pull.number, page);
        request.send(move |answer| match self.read_reviews(page, answer) {
            Ok(true) => self.list(page + 1),
            Ok(false) => {
                let reviewed = self.reviewed();
                self.end(Ok(PullRequestReviewResult::Reviewed(Box::new(reviewed))))
            }
            Err(error) => self.end(Err(error)),
        })
    }

    /// Keeps the reviews of a page. Returns whether there is another page.
    fn read_reviews(
        &mut self,
        page: u32,
        answer: Result<HttpResponse, String>,
    ) -> Result<bool, PullRequestError> {
        let what = format!("could not list the reviews of {}", self.subject());
        let answer = self.accepted(&what, answer)?;
        let lasting = |why: &str| PullRequestError::lasting(format!("{what}: {why}"));
        let head = &self.pull.head_commit;
        let reviews = self.forge.reviews(&answer, head, self.head_since).map_err(lasting)?;
        let count = reviews.len();
        let known = self.reviews.len();
        self.reviews.extend(reviews.into_iter().map(|review| (review.id, review)));
        // A server without pages returns the same list for every page.
        let is_new = self.reviews.len() > known;
        let has_pages = self.head_since.is_none();
        if !has_pages || !is_new || !self.forge.has_next_page(&answer, count, PAGE_REVIEWS) {
            return Ok(false);
        }
        match page < MAX_REVIEW_PAGES {
            true => Ok(true),
            false => Err(lasting("it has more reviews than windlass reads")),
        }
    }

    fn reviewed(&self) -> ReviewedPullRequest {
        let mut last: BTreeMap<String, &ForgeReview> = BTreeMap::new();
        for review in self.reviews.values() {
            // A later comment does not withdraw an approval.
            if review.verdict != ReviewVerdict::None && !review.account.is_empty() {
                last.insert(review.account.to_ascii_lowercase(), review);
            }
        }
        let of = |counts: &dyn Fn(&ForgeReview) -> bool| -> BTreeSet<String> {
            let reviews = last.values().copied().filter(|review| counts(review));
            reviews.map(|review| review.account.clone()).collect()
        };
        let MergedPullRequest { number, url, author, head_commit, base_commit, merged_at, .. } =
            self.pull.clone();
        let approves = |it: &ForgeReview| it.verdict == ReviewVerdict::Approves;
        ReviewedPullRequest {
            number,
            url,
            author,
            pushers: self.pushers.clone(),
            head_commit: head_commit.to_ascii_lowercase(),
            base_commit: base_commit.to_ascii_lowercase(),
            // Without a time of the merge, every review counts as later than the merge.
            merged_at: merged_at.unwrap_or(i64::MIN),
            approved_by: of(&|it| approves(it) && it.is_of_head),
            approved_earlier_commit: of(&|it| approves(it) && !it.is_of_head),
            changes_requested_by: of(&|it| it.verdict == ReviewVerdict::Objects),
        }
    }
}

/// Whether an account belongs to a program: a workflow of GitHub, Gitea or Forgejo, an app of GitHub, a token of a project or
/// group of GitLab. Such a program may push for any other account.
fn is_of_program(account: &str) -> bool {
    let name = account.to_ascii_lowercase();
    let is_token = ["project_", "group_"].iter().any(|it| name.starts_with(it));
    name.ends_with("[bot]")
        || ["gitea-actions", "forgejo-actions"].contains(&name.as_str())
        || is_token && name.contains("_bot")
}

/// Whether a list names an account. Forges do not distinguish upper and lower case.
fn names<'n>(mut list: impl Iterator<Item = &'n String>, account: &str) -> bool {
    list.any(|it| it.eq_ignore_ascii_case(account))
}

impl ReviewedPullRequest {
    /// The accounts among `reviewers` that approve, if they are enough: at least `minimum`. One more is needed if the account
    /// that pushed the last commit is unknown or a program, because one of the reviewers may have pushed it.
    ///
    /// # Errors
    /// Why they are not enough, as a sentence about the pull request.
    pub fn counted_reviews(
        &self,
        reviewers: &[String],
        minimum: usize,
    ) -> Result<Vec<String>, String> {
        let is_named = |account: &&String| names(reviewers.iter(), account);
        let objecting: Vec<&str> =
            self.changes_requested_by.iter().filter(is_named).map(String::as_str).collect();
        if !objecting.is_empty() {
            return Err(format!("{} requested changes", objecting.join(", ")));
        }
        let mut notes = Vec::new();
        let mut counted = Vec::new();
        for account in self.approved_by.iter().filter(is_named) {
            if account.eq_ignore_ascii_case(&self.author) {
                notes.push(format!("the review of {account} does not count, who is its author"));
            } else if names(self.pushers.iter(), account) {
                notes.push(format!(
                    "the review of {account} does not count, who pushed its last commit"
                ));
            } else {
                counted.push(account.clone());
            }
        }
        for account in self.approved_earlier_commit.iter().filter(is_named) {
            notes.push(format!("{account} approved an earlier commit than the last one"));
        }
        let is_pusher_known =
            !self.pushers.is_empty() && !self.pushers.iter().any(|it| is_of_program(it));
        let needed = minimum.max(1).saturating_add(usize::from(!is_pusher_known));
        // If the author's name is unknown, the author may be one of the approving accounts.
        if counted.len() >= needed && !self.author.is_empty() {
            return Ok(counted);
        }
        if self.author.is_empty() {
            notes.push("the forge does not name its author".to_owned());
        }
        if !is_pusher_known {
            notes.push(
                "the forge does not say which user pushed its last commit, so one review more is necessary"
                    .to_owned(),
            );
        }
        let have = counted.len();
        let count =
            format!("it has {have} of {needed} approving reviews by accounts of the policy");
        notes.insert(0, count);
        Err(notes.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accounts(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|&it| it.to_owned()).collect()
    }

    fn reviewed() -> ReviewedPullRequest {
        ReviewedPullRequest {
            author: "jane".to_owned(),
            pushers: accounts(&["jane"]),
            approved_by: accounts(&["Alice", "jane", "mallory"]),
            ..ReviewedPullRequest::default()
        }
    }

    fn counted(pull: &ReviewedPullRequest, minimum: usize) -> Result<Vec<String>, String> {
        let reviewers = ["alice", "bob", "jane"].map(str::to_owned);
        pull.counted_reviews(&reviewers, minimum)
    }

    #[test]
    fn reviews_of_named_accounts_count_but_those_of_author_and_pusher() {
        assert_eq!(counted(&reviewed(), 1), Ok(vec!["Alice".to_owned()]));
        let few = counted(&reviewed(), 2).unwrap_err();
        assert!(few.starts_with("it has 1 of 2 approving reviews"), "{few}");
        assert!(few.contains("the review of jane does not count, who is its author"), "{few}");
        let pushed = ReviewedPullRequest { pushers: accounts(&["ALICE"]), ..reviewed() };
        assert!(counted(&pushed, 1).unwrap_err().contains("Alice does not count, who pushed"));
        let unnamed = ReviewedPullRequest { author: String::new(), ..reviewed() };
        assert!(counted(&unnamed, 1).is_err());
    }

    #[test]
    fn one_review_more_is_necessary_where_the_pusher_is_not_known() {
        let unknown = ReviewedPullRequest { pushers: BTreeSet::new(), ..reviewed() };
        let few = counted(&unknown, 1).unwrap_err();
        assert!(few.contains("1 of 2") && few.contains("one review more is necessary"), "{few}");
        let both =
            ReviewedPullRequest { approved_by: accounts(&["alice", "bob"]), ..unknown.clone() };
        assert_eq!(counted(&both, 1).unwrap().len(), 2);
        // A workflow of the branch pushes for any account.
        for program in ["github-actions[bot]", "gitea-actions", "project_12_bot_8a"] {
            let pushers = accounts(&["jane", program]);
            let pushed = ReviewedPullRequest { pushers, ..reviewed() };
            assert!(counted(&pushed, 1).unwrap_err().contains("1 of 2"), "{program}");
        }
        // A minimum of none is one of one.
        assert!(
            counted(&ReviewedPullRequest { approved_by: BTreeSet::new(), ..reviewed() }, 0)
                .is_err()
        );
    }

    #[test]
    fn requested_changes_and_approvals_of_an_earlier_commit_are_named() {
        let objected =
            ReviewedPullRequest { changes_requested_by: accounts(&["bob"]), ..reviewed() };
        assert_eq!(counted(&objected, 1).unwrap_err(), "bob requested changes");
        let stranger =
            ReviewedPullRequest { changes_requested_by: accounts(&["eve"]), ..reviewed() };
        assert!(counted(&stranger, 1).is_ok());
        let early = ReviewedPullRequest {
            approved_by: BTreeSet::new(),
            approved_earlier_commit: accounts(&["alice"]),
            ..reviewed()
        };
        let few = counted(&early, 1).unwrap_err();
        assert!(few.contains("alice approved an earlier commit than the last one"), "{few}");
    }
}
