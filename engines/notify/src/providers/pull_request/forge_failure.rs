//! Failed responses of forges: their meaning, and when a retry is useful.

use std::time::Duration;

use golang::time::{GoTime, GoTimeZone};
use serde_json::Value;

use super::forge_call_sequence::PullRequestError;
use crate::event_delivery::HttpResponse;

/// Longest part of a message that the forge wrote, in bytes.
const MAX_SHOWN_BYTES: usize = 300;

/// The delay after a rate limit if the forge names no end. GitHub requires at least this.
const DEFAULT_RATE_LIMIT_DELAY: Duration = Duration::from_secs(60);

const SHORTEST_DELAY: Duration = Duration::from_secs(1);

/// Longest delay that a forge may ask for.
const LONGEST_DELAY: Duration = Duration::from_secs(3600);

/// The form of dates in headers.
const HTTP_DATE: &str = "Mon, 02 Jan 2006 15:04:05 GMT";

/// A number from this one on is a time since 1970. A smaller number is a delay.
const LEAST_UNIX_SECONDS: i64 = 1_000_000_000;

/// The advice in messages, which depends on where address and token come from.
pub(super) struct ForgeRefusalAdvice {
    /// Where the address of the forge is configured.
    address: &'static str,
    /// The advice about a token that the forge rejects.
    token: &'static str,
    /// Which rights the token needs.
    rights: &'static str,
    /// The advice about something that the forge does not find.
    absent: &'static str,
}

/// The advice if address and token come from a Provider.
pub(super) const PROVIDER_ADVICE: ForgeRefusalAdvice = ForgeRefusalAdvice {
    address: "`spec.address` of the Provider",
    token: "replace the token in the Secret of the Provider",
    rights: "the token of the Provider needs the right to read and write pull requests",
    absent: "check `spec.address` of the Provider, that both branches exist, and that the token may read the repository",
};

/// The advice if address and token come from a command line.
pub(super) const COMMAND_ADVICE: ForgeRefusalAdvice = ForgeRefusalAdvice {
    address: "the address of the forge",
    token: "use another token",
    rights: "the token needs the rights to read and write pull requests, their comments and commit statuses",
    absent: "check the address of the forge, repository, pull request and commit, and that the token may read the repository",
};

/// The advice if address and token come from a PlanPolicy.
pub(super) const POLICY_ADVICE: ForgeRefusalAdvice = ForgeRefusalAdvice {
    address: "`spec.pullRequestApproval.address` of the PlanPolicy",
    token: "replace the token in the Secret of the PlanPolicy",
    rights: "the token needs the right to read the repository and its pull requests",
    absent: "check `spec.pullRequestApproval.address` of the PlanPolicy, and that the token may read the repository",
};

/// Accepts a response with one of these statuses.
///
/// # Errors
/// The response has another status, or there is none. `what` names the action that failed.
pub(super) fn accepted(
    what: &str,
    answer: Result<HttpResponse, String>,
    statuses: &[u16],
    now: i64,
    advice: &ForgeRefusalAdvice,
) -> Result<HttpResponse, PullRequestError> {
    match answer {
        Ok(answer) if statuses.contains(&answer.status) => Ok(answer),
        Ok(answer) => Err(refusal(what, &answer, now, advice)),
        Err(why) => Err(PullRequestError::lasting(format!("{what}: {why}"))),
    }
}

/// Whether a forge rejected a request because of its rate limit.
pub(super) fn is_rate_limit(answer: &HttpResponse) -> bool {
    let is_exhausted = answer.get("x-ratelimit-remaining") == Some("0")
        || answer.get("retry-after").is_some()
        || words(answer).to_ascii_lowercase().contains("rate limit");
    answer.status == 429 || answer.status == 403 && is_exhausted
}

fn refusal(
    what: &str,
    answer: &HttpResponse,
    now: i64,
    advice: &ForgeRefusalAdvice,
) -> PullRequestError {
    let ForgeRefusalAdvice { address, token, rights, absent } = advice;
    let status = answer.status;
    let words = words(answer);
    let said = if words.is_empty() { String::new() } else { format!(" ({words})") };
    let has = |part: &str| words.to_ascii_lowercase().contains(part);
    if is_rate_limit(answer) {
        let delay = requested_delay(answer, now).or_else(|| reset_delay(answer, now));
        let delay = delay.unwrap_or(DEFAULT_RATE_LIMIT_DELAY);
        let seconds = delay.as_secs();
        let message = format!(
            "{what}: the rate limit of the forge is exceeded{said}; the next attempt is in {seconds} s at the earliest"
        );
        return PullRequestError { message, may_help: true, retry_after: Some(delay) };
    }
    // Another program opened the pull request between the list and this request.
    let is_there = matches!(status, 409 | 422) && has("already exists");
    let why = match status {
        200..=399 => format!(
            "the forge answered with status {status}, as behind a redirect; check scheme and host in {address}"
        ),
        401 => format!("authentication failed{said}; {token}"),
        403 => format!("not allowed{said}; {rights}"),
        404 => format!("not found{said}; {absent}"),
        409 | 422 if is_there => {
            format!("it was opened meanwhile{said}; the next attempt updates it")
        }
        400 | 409 | 422 => format!("rejected{said}"),
        _ => format!("the forge answered with status {status}{said}"),
    };
    PullRequestError {
        message: format!("{what}: {why}"),
        may_help: is_there,
        retry_after: requested_delay(answer, now),
    }
}

/// The messages in a response, on one line; empty if the response is not JSON.
fn words(answer: &HttpResponse) -> String {
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or(Value::Null);
    let mut parts = Vec::new();
    for member in ["message", "error", "error_description"] {
        match body.get(member) {
            Some(Value::String(text)) => parts.push(text.clone()),
            None | Some(Value::Null) => {}
            // GitLab has lists, and lists by field.
            Some(other) => parts.push(other.to_string()),
        }
    }
    let errors = body.get("errors").and_then(Value::as_array);
    for error in errors.into_iter().flatten() {
        let text = |member: &str| error.get(member).and_then(Value::as_str);
        match (error.as_str().or_else(|| text("message")), text("field"), text("code")) {
            (Some(text), ..) => parts.push(text.to_owned()),
            (None, Some(field), Some(code)) => parts.push(format!("{field}: {code}")),
            _ => {}
        }
    }
    let all = parts.join("; ");
    let shown = &all[..all.floor_char_boundary(MAX_SHOWN_BYTES)];
    shown.split(|it: char| it.is_whitespace() || it.is_control()).collect::<Vec<_>>().join(" ")
}

/// The delay that the header `Retry-After` asks for, as a number of seconds or a date. `None` if it is missing or not
/// valid.
fn requested_delay(answer: &HttpResponse, now: i64) -> Option<Duration> {
    let value = answer.get("retry-after")?.trim();
    let seconds = match value.parse::<i64>() {
        Ok(seconds) => seconds,
        Err(_) => {
            GoTime::parse(HTTP_DATE, value, &GoTimeZone::Utc).ok()?.unix().saturating_sub(now)
        }
    };
    Some(delay(seconds))
}

/// The delay until a rate limit ends. GitHub and GitLab return the time of the end, other forges the remaining seconds.
/// `None` if the response does not say it.
fn reset_delay(answer: &HttpResponse, now: i64) -> Option<Duration> {
    let value = answer.get("x-ratelimit-reset").or_else(|| answer.get("ratelimit-reset"))?;
    let reset: i64 = value.trim().parse().ok()?;
    Some(delay(if reset >= LEAST_UNIX_SECONDS { reset.saturating_sub(now) } else { reset }))
}

fn delay(seconds: i64) -> Duration {
    let seconds = u64::try_from(seconds).unwrap_or_default();
    Duration::from_secs(seconds).clamp(SHORTEST_DELAY, LONGEST_DELAY)
}
