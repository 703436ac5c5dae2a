//! The messages for each type of Provider, with one file for each type. Forges also have pull requests (`pull_request`).
//!
//! Here: the list of types, and functions that several types share. Elsewhere: retrying requests (`event_delivery`).
//!
//! Source of the semantics: notification-controller 1.9.3, `internal/notifier`.

mod alertmanager;
mod azuredevops;
mod azureeventhub;
mod bitbucket;
mod bitbucketserver;
mod datadog;
mod discord;
mod generic;
mod git_provider_common;
mod gitea;
mod giteapullrequestcomment;
mod github;
mod githubdispatch;
mod githubpullrequestcomment;
mod gitlab;
mod gitlabmergerequestcomment;
mod googlechat;
mod googlepubsub;
mod grafana;
mod incidentio;
mod lark;
mod markdown_message;
mod matrix;
mod msteams;
mod nats;
mod opsgenie;
mod otel;
mod pagerduty;
mod pull_request;
mod pull_request_comment;
mod rocket;
mod sentry;
mod slack;
mod telegram;
mod webex;
mod zoom;
mod zulip;

use golang::url::GoUrl;
use serde_json::{Value, json};

use crate::event::FluxEvent;
use crate::event_delivery::{HttpResponse, HttpRetryPolicy, ProviderNextAction, ProviderRequest};
use crate::provider_options::ProviderOptions;
pub use nats::NatsKey;
pub use pull_request::{
    CheckCommentOutcome, ForgeCallSequence, ForgeCallStep, PullRequest, PullRequestCheck,
    PullRequestCheckPosting, PullRequestCheckResult, PullRequestError, PullRequestOutcome,
    PullRequestProposal, PullRequestReviewLookup, PullRequestReviewQuery, PullRequestReviewResult,
    PullRequestUpsert, PullRequestUpsertStep, ReviewedPullRequest,
};

type ProviderFactory = fn(ProviderOptions, FluxEvent) -> ProviderNextAction;

const MAKERS: [(&str, ProviderFactory); 34] = [
    ("alertmanager", alertmanager::flow),
    ("azuredevops", azuredevops::flow),
    ("azureeventhub", azureeventhub::flow),
    ("bitbucket", bitbucket::flow),
    ("bitbucketserver", bitbucketserver::flow),
    ("datadog", datadog::flow),
    ("discord", discord::flow),
    ("generic", generic::flow),
    ("generic-hmac", generic::signed),
    ("gitea", gitea::flow),
    ("giteapullrequestcomment", giteapullrequestcomment::flow),
    ("github", github::flow),
    ("githubdispatch", githubdispatch::flow),
    ("githubpullrequestcomment", githubpullrequestcomment::flow),
    ("gitlab", gitlab::flow),
    ("gitlabmergerequestcomment", gitlabmergerequestcomment::flow),
    ("googlechat", googlechat::flow),
    ("googlepubsub", googlepubsub::flow),
    ("grafana", grafana::flow),
    ("incident.io", incidentio::flow),
    ("lark", lark::flow),
    ("matrix", matrix::flow),
    ("msteams", msteams::flow),
    ("nats", nats::flow),
    ("opsgenie", opsgenie::flow),
    ("otel", otel::flow),
    ("pagerduty", pagerduty::flow),
    ("rocket", rocket::flow),
    ("sentry", sentry::flow),
    ("slack", slack::flow),
    ("telegram", telegram::flow),
    ("webex", webex::flow),
    ("zoom", zoom::flow),
    ("zulip", zulip::flow),
];

/// All types of Providers.
pub const TYPES: [&str; 34] = {
    let mut types = [""; 34];
    let mut at = 0;
    while at < types.len() {
        types[at] = MAKERS[at].0;
        at += 1;
    }
    types
};

/// The conversation with a Provider of a type.
pub(crate) fn flow(kind: &str, options: ProviderOptions, event: FluxEvent) -> ProviderNextAction {
    match MAKERS.iter().find(|(known, _)| *known == kind) {
        Some((_, make)) => make(options, event),
        None => ProviderNextAction::refused(format!("provider {kind} not supported")),
    }
}

/// Accepts the address of a webhook, which has to be absolute.
///
/// # Errors
/// Go's message of `url.ParseRequestURI`.
fn request_uri(address: &str) -> Result<GoUrl, String> {
    let quoted = crate::go_string_functions::quoted(address);
    if address.is_empty() {
        return Err(format!("parse {quoted}: empty url"));
    }
    // A `#` does not begin a fragment here, but is part of the path.
    let url = GoUrl::parse(address.replace('#', "%23").as_bytes())
        .map_err(|error| error.to_string().replace("%23", "#"))?;
    let is_rooted = url.path.starts_with(b"/") || address == "*" || url.path.is_empty();
    if url.scheme.is_empty() && !url.path.starts_with(b"/") {
        return Err(format!("parse {quoted}: invalid URI for request"));
    }
    if url.opaque.is_empty() && is_rooted || !url.opaque.is_empty() {
        return Ok(url);
    }
    Err(format!("parse {quoted}: invalid URI for request"))
}

/// A message to a webhook, with the retries that most types share.
fn message(options: &ProviderOptions, url: &str, payload: &Value) -> ProviderRequest {
    ProviderRequest::new("POST", url)
        .json(payload)
        .retry(HttpRetryPolicy::Doubling)
        .proxy(&options.proxy)
        .tls(options.tls.clone())
}

/// Posts a message. Every 2xx status is a success.
fn post(
    request: ProviderRequest,
    then: impl FnOnce(Result<(), String>) -> ProviderNextAction + Send + 'static,
) -> ProviderNextAction {
    post_judged(request, judge, |result| then(result.map(drop)))
}

/// Posts a message. A function of the provider judges the response.
fn post_judged(
    request: ProviderRequest,
    judge: fn(&HttpResponse) -> Result<(), String>,
    then: impl FnOnce(Result<HttpResponse, String>) -> ProviderNextAction + Send + 'static,
) -> ProviderNextAction {
    if let Some(proxy) = &request.proxy
        && let Err(error) = GoUrl::parse(proxy.as_bytes())
    {
        return then(Err(format!("unable to parse proxy URL: {error}")));
    }
    if let Err(error) = GoUrl::parse(request.url.as_bytes()) {
        return then(Err(format!("failed to create a new request: {error}")));
    }
    request.send(move |answer| {
        then(match answer {
            Err(error) => Err(format!("failed to execute request: {error}")),
            Ok(answer) => match judge(&answer) {
                Ok(()) => Ok(answer),
                Err(error) => Err(format!("request failed: {error}")),
            },
        })
    })
}

/// A text in the body of a response, under this member. `None` if the body is not JSON or has no such text.
fn said(answer: &HttpResponse, member: &str) -> Option<String> {
    let body: Value = serde_json::from_slice(&answer.body).ok()?;
    body.get(member)?.as_str().map(str::to_owned)
}

fn judge(answer: &HttpResponse) -> Result<(), String> {
    if answer.is_success() {
        return Ok(());
    }
    Err(format!("request failed with status code {}: {}", answer.status, answer.text()))
}

/// Posts a message, with the words that most types put before an error.
fn post_message(request: ProviderRequest) -> ProviderNextAction {
    post(request, |result| {
        ProviderNextAction::end(result.map_err(|error| format!("postMessage failed: {error}")))
    })
}

/// The attachment of Slack, which others understand as well.
fn attachment(event: &FluxEvent, [info, error]: [&str; 2], fallback: &str) -> Value {
    let fields: Vec<_> = event
        .metadata
        .iter()
        .map(|(key, value)| json!({"title": key, "value": value, "short": false}))
        .collect();
    json!([{
        "fallback": fallback,
        "color": if event.is_error() { error } else { info },
        "author_name": event.object.heading(),
        "text": event.message,
        "mrkdwn_in": ["text"],
        "fields": fields,
    }])
}

/// `kind/name`, and the reason in words.
fn name_and_description(event: &FluxEvent) -> (String, String) {
    let name = format!("{}/{}", event.object.kind, event.object.name).to_lowercase();
    (name, crate::go_string_functions::words(&event.reason))
}
