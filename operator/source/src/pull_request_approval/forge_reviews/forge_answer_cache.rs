//! Caches the answers of forges for some seconds, since several hundred Plans of one merge ask the same question.
//!
//! Here also: the delay that a forge requests, which holds for every Plan of the policy, since all use its token.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use notify::PullRequestReviewResult;
use parking_lot::Mutex;

use crate::pull_request_approval::ApprovalRefusal;

/// The longest age of a cached answer. An approval counts for a minute after the forge was asked, and builds take a part of
/// that minute.
pub(in crate::pull_request_approval) const MAX_ANSWER_AGE: Duration = Duration::from_secs(15);

/// An answer of a forge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::pull_request_approval) struct ForgeAnswer {
    pub(in crate::pull_request_approval) result: PullRequestReviewResult,
    /// The time when the forge was asked.
    pub(in crate::pull_request_approval) asked: Instant,
}

/// The slot for the answer to a question. Callers with the same question wait for it.
type SharedForgeAnswer = Arc<tokio::sync::Mutex<Option<ForgeAnswer>>>;

/// The answers, by their questions.
#[derive(Default)]
pub(super) struct ForgeAnswerCache {
    answers: Mutex<BTreeMap<String, SharedForgeAnswer>>,
    /// The times until which no forge is asked, by the uids of PlanPolicies.
    pauses: Mutex<BTreeMap<String, Instant>>,
}

impl ForgeAnswerCache {
    /// The answer to a question of a policy. The forge is asked if the answer is not cached.
    ///
    /// # Errors
    /// The question failed, which is not cached, or the forge requested a delay.
    pub(super) async fn get(
        &self,
        policy: &str,
        question: String,
        ask: impl Future<Output = Result<ForgeAnswer, ApprovalRefusal>>,
    ) -> Result<ForgeAnswer, ApprovalRefusal> {
        let shared = self.shared(question);
        let mut known = shared.lock().await;
        if let Some(answer) = known.as_ref().filter(|it| is_recent(it)) {
            return Ok(answer.clone());
        }
        self.check_pause(policy)?;
        let answer = ask.await;
        if let Err(ApprovalRefusal { retry_after: Some(delay), .. }) = &answer {
            self.pauses.lock().insert(policy.to_owned(), Instant::now() + *delay);
        }
        *known = answer.as_ref().ok().cloned();
        answer
    }

    /// The place of an answer. Those that are too old are forgotten, except while their question is asked.
    fn shared(&self, question: String) -> SharedForgeAnswer {
        let mut answers = self.answers.lock();
        answers.retain(|_, it| match it.try_lock() {
            Ok(known) => known.as_ref().is_some_and(is_recent),
            Err(_) => true,
        });
        answers.entry(question).or_default().clone()
    }

    /// Checks that the forge did not request a delay that lasts.
    fn check_pause(&self, policy: &str) -> Result<(), ApprovalRefusal> {
        let now = Instant::now();
        let mut pauses = self.pauses.lock();
        pauses.retain(|_, until| *until > now);
        let Some(until) = pauses.get(policy) else { return Ok(()) };
        let left = until.saturating_duration_since(now);
        let seconds = left.as_secs().saturating_add(1);
        let text = format!(
            "the forge receives the next request in {seconds} s at the earliest, as it requested"
        );
        Err(ApprovalRefusal { retry_after: Some(left), ..ApprovalRefusal::unknown(text) })
    }
}

fn is_recent(answer: &ForgeAnswer) -> bool {
    answer.asked.elapsed() <= MAX_ANSWER_AGE
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn answer(asked: Instant) -> ForgeAnswer {
        ForgeAnswer { result: PullRequestReviewResult::NoPullRequest("none".to_owned()), asked }
    }

    #[tokio::test]
    async fn plans_of_one_merge_ask_once() {
        let answers = ForgeAnswerCache::default();
        let count = AtomicUsize::new(0);
        let asked = &count;
        let get = |question: &str| {
            answers.get("policy", question.to_owned(), async move {
                asked.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
                Ok(answer(Instant::now()))
            })
        };
        let same = tokio::join!(get("one"), get("one"), get("one"));
        assert!(same.0.is_ok() && same.0 == same.1 && same.1 == same.2);
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        assert!(get("two").await.is_ok());
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn an_old_answer_and_an_error_are_not_kept() {
        let answers = ForgeAnswerCache::default();
        let old = Instant::now().checked_sub(MAX_ANSWER_AGE * 2).unwrap();
        let get = |result: Result<ForgeAnswer, ApprovalRefusal>| {
            answers.get("policy", "one".to_owned(), async move { result })
        };
        assert_eq!(get(Ok(answer(old))).await, Ok(answer(old)));
        let failed = Err(ApprovalRefusal::unknown("no answer"));
        assert_eq!(get(failed.clone()).await, failed);
        let now = answer(Instant::now());
        assert_eq!(get(Ok(now.clone())).await, Ok(now.clone()));
        assert_eq!(get(failed).await, Ok(now));
    }

    #[tokio::test]
    async fn a_delay_that_the_forge_requests_holds_for_each_plan_of_the_policy() {
        let answers = ForgeAnswerCache::default();
        let delay = Some(Duration::from_secs(900));
        let limited =
            ApprovalRefusal { retry_after: delay, ..ApprovalRefusal::unknown("rate limit") };
        let get = |policy: &'static str,
                   question: &'static str,
                   result: Result<ForgeAnswer, ApprovalRefusal>| {
            answers.get(policy, question.to_owned(), async move { result })
        };
        assert!(get("policy", "one", Err(limited)).await.is_err());
        let other = get("policy", "two", Ok(answer(Instant::now()))).await.unwrap_err();
        assert!(other.message.contains("receives the next request in"), "{}", other.message);
        assert!(other.retry_after.is_some_and(|it| it > Duration::from_secs(890)));
        assert!(get("another", "two", Ok(answer(Instant::now()))).await.is_ok());
    }
}
