//! Replays what the notification-controller sends and answers, through `engines/notify`.
//!
//! This module has the topics. Submodules have events and Alerts (`alerts.rs`), webhooks (`receivers.rs`), requests
//! (`provider_requests.rs`) and the service that gets them (`fake_provider.rs`). The README of the cases says which answers
//! count as equal.

mod alerts;
mod fake_provider;
mod provider_requests;
mod receivers;

use super::Topic;

/// Provider types of Flux's main branch. Flux 1.9.3 rejects them, and windlass has them.
const OF_MAIN: [(&str, &str); 2] = [
    ("generic/x-type-zoom_", "1.9.3 has no such type; our definition has it, as the main branch"),
    (
        "generic/x-type-incident.io_",
        "1.9.3 has no such type; our definition has it, as the main branch",
    ),
];

/// The cases in which windlass is stricter.
const STRICTER: [(&str, &str); 1] =
    [("reconcile/empty-token", "an empty token is rejected, since its path could be computed")];

/// The topics about requests, by name and path.
const REQUESTS: [(&str, &str); 37] = [
    ("notify/alertmanager", "notify/notify-alertmanager.jsonl"),
    ("notify/azuredevops", "notify/notify-azuredevops.jsonl"),
    ("notify/azureeventhub", "notify/notify-azureeventhub.jsonl"),
    ("notify/bitbucket", "notify/notify-bitbucket.jsonl"),
    ("notify/bitbucketserver", "notify/notify-bitbucketserver.jsonl"),
    ("notify/datadog", "notify/notify-datadog.jsonl"),
    ("notify/discord", "notify/notify-discord.jsonl"),
    ("notify/generic", "notify/notify-generic.jsonl"),
    ("notify/generic-hmac", "notify/notify-generic-hmac.jsonl"),
    ("notify/gitea", "notify/notify-gitea.jsonl"),
    ("notify/giteapullrequestcomment", "notify/notify-giteapullrequestcomment.jsonl"),
    ("notify/github", "notify/notify-github.jsonl"),
    ("notify/githubdispatch", "notify/notify-githubdispatch.jsonl"),
    ("notify/githubpullrequestcomment", "notify/notify-githubpullrequestcomment.jsonl"),
    ("notify/gitlab", "notify/notify-gitlab.jsonl"),
    ("notify/gitlabmergerequestcomment", "notify/notify-gitlabmergerequestcomment.jsonl"),
    ("notify/googlechat", "notify/notify-googlechat.jsonl"),
    ("notify/googlepubsub", "notify/notify-googlepubsub.jsonl"),
    ("notify/grafana", "notify/notify-grafana.jsonl"),
    ("notify/lark", "notify/notify-lark.jsonl"),
    ("notify/matrix", "notify/notify-matrix.jsonl"),
    ("notify/msteams", "notify/notify-msteams.jsonl"),
    ("notify/nats", "notify/notify-nats.jsonl"),
    ("notify/opsgenie", "notify/notify-opsgenie.jsonl"),
    ("notify/otel", "notify/notify-otel.jsonl"),
    ("notify/pagerduty", "notify/notify-pagerduty.jsonl"),
    ("notify/rocket", "notify/notify-rocket.jsonl"),
    ("notify/sentry", "notify/notify-sentry.jsonl"),
    ("notify/slack", "notify/notify-slack.jsonl"),
    ("notify/telegram", "notify/notify-telegram.jsonl"),
    ("notify/webex", "notify/notify-webex.jsonl"),
    ("notify/zulip", "notify/notify-zulip.jsonl"),
    ("notify/main incident.io", "notify/notify-main-incident.io.jsonl"),
    ("notify/main opsgenie", "notify/notify-main-opsgenie.jsonl"),
    ("notify/main zoom", "notify/notify-main-zoom.jsonl"),
    ("notify/alerts", "notify/alerts.jsonl"),
    ("notify/receivers", "notify/receivers.jsonl"),
];

pub(super) fn topics() -> Vec<Topic> {
    let topic = |(name, path): (&'static str, &'static str)| {
        let judge = match name {
            "notify/alerts" => alerts::judge,
            "notify/receivers" => receivers::judge,
            "notify/opsgenie" => provider_requests::judge_without_alias,
            _ => provider_requests::judge,
        };
        let exceptions = match name {
            "notify/generic" => &OF_MAIN[..],
            "notify/receivers" => &STRICTER,
            _ => &[],
        };
        Topic { name, path, judge, exceptions }
    };
    REQUESTS.map(topic).into()
}
