//! `windlass alerts test`: sends a sample event to the service of a Provider, and shows the requests and answers.
//!
//! The requests go out from this machine and not from the operator, whose network may allow less.
//! Elsewhere: the content of requests (engine `notify`), the Secrets of a Provider (`notification_controller::delivery`).

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context as _, anyhow};
use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use crds::notification::{Alert, Provider};
use http_client::{EgressRules, HttpClientCache};
use notify::{
    DeliveryStep, FluxEvent, HttpResponse, MessageSendResult, NatsMessage, ObjectReference,
    ProviderRequest,
};
use objects::{SecretMasking, clean_line};
use serde::Serialize;
use serde_json::json;

use super::command_scope::{ClusterScope, CommandScope};
use super::kind_argument;
use super::output::{ReportFormat, report};
use notification_controller::delivery::delivery_attempt::{begin, secrets};
use notification_controller::delivery::transport::{NotificationSender, TransportMessage};
use windlass_cli_runtime::connection::{ProgressGlyph, print, say};
use windlass_cli_runtime::exit_code::ExitCode;
use windlass_runtime::provider_secret_masking::masking;

/// The flags of `windlass alerts`.
#[derive(Debug, Clone, ClapArgs)]
pub(super) struct AlertsArgs {
    #[command(subcommand)]
    command: AlertCommand,
}

#[derive(Debug, Clone, Subcommand)]
enum AlertCommand {
    /// Send a sample event to the service of a Provider, and show request and answer
    ///
    /// The request goes out from this machine. Values of the Provider's Secrets are shown as ****.
    #[command(after_help = EXAMPLES)]
    Test(AlertTestArgs),
}

#[derive(Debug, Clone, ClapArgs)]
struct AlertTestArgs {
    /// Name of the Provider
    #[arg(value_name = "PROVIDER")]
    provider: String,
    #[command(flatten)]
    place: ClusterScope,
    /// Severity of the event
    #[arg(long, value_enum, default_value_t = EventSeverity::Info)]
    severity: EventSeverity,
    /// Metadata of the event, such as commit=0123abc; may be repeated
    #[arg(long = "metadata", value_name = "KEY=VALUE", value_parser = pair)]
    metadata: Vec<(String, String)>,
    /// Show the first request, and send nothing
    #[arg(long)]
    dry_run: bool,
    /// Format
    #[arg(short, long, value_enum, default_value_t = ReportFormat::Text, value_name = "FORMAT")]
    output: ReportFormat,
}

const EXAMPLES: &str = "Examples:
  windlass alerts test slack -n flux-system
  windlass alerts test pagerduty -n flux-system --severity error
  windlass alerts test github -n apps --metadata revision=main@sha1:0123456789abcdef0123456789abcdef01234567 --dry-run

Exit status: 0; 2 if the Provider cannot be read, or the service did not accept the event; 3 if the cluster cannot be reached.";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum EventSeverity {
    Info,
    Error,
}

/// A request and its answer, without credentials.
#[derive(Debug, Serialize)]
struct ProviderRequestAndResponse {
    method: String,
    url: String,
    headers: BTreeMap<String, String>,
    body: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<ProviderServiceResponse>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum ProviderServiceResponse {
    Response { status: u16, body: String, milliseconds: u128 },
    Error { error: String },
}

/// Headers whose values are never secret.
const PLAIN: [&str; 6] = [
    "accept",
    "content-type",
    "user-agent",
    "content-encoding",
    "x-gitlab-event",
    "gotk-component",
];

/// The longest body that is shown, in bytes.
const MAX_SHOWN_BODY_BYTES: usize = 4 << 10;

fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Runs the command.
///
/// # Errors
/// The Provider or its Secrets cannot be read.
pub(super) fn run(args: &AlertsArgs) -> anyhow::Result<ExitCode> {
    let AlertCommand::Test(args) = &args.command;
    args.place.run(async |site| test(&site, args).await)
}

async fn test(site: &CommandScope, args: &AlertTestArgs) -> anyhow::Result<ExitCode> {
    let name = args.provider.rsplit('/').next().unwrap_or_default();
    let target =
        kind_argument::one(&site.cluster, &["provider".to_owned(), name.to_owned()]).await?;
    let provider = kind_argument::read(site, &target).await?;
    let namespace = provider.namespace().to_owned();
    let provider: Provider =
        serde_json::from_value(provider.into_value()).context("the Provider cannot be read")?;
    let secrets = secrets(&site.cluster, &namespace, &provider).await?.found;
    let masks = masking(&secrets);
    let event = sample(&namespace, args);
    let dispatch = begin(event, &provider, &alert(&namespace, name)?, &secrets);
    let mut dispatch = dispatch.map_err(|error| anyhow!(error))?;
    let clients = HttpClientCache::within(EgressRules::with_loopback());
    let sender = NotificationSender { clients: &clients, lends_identity: true };
    let mut said = Vec::new();
    let mut step = dispatch.delivery.start();
    let failure = loop {
        let (wait, delivery_message) = match step {
            DeliveryStep::Done => break None,
            DeliveryStep::Failed(failure) => break Some(dispatch.warning(&failure).message),
            DeliveryStep::Send(wait, delivery_message) => (wait, delivery_message),
        };
        let transport_message = match sender.transport_message(delivery_message).await {
            Ok(transport_message) => transport_message,
            Err((why, _)) => break Some(why),
        };
        let mut one = match &transport_message {
            TransportMessage::Request(request) | TransportMessage::Message(request) => {
                shown(request, &masks)
            }
            TransportMessage::Nats(message) => published(message, &masks),
        };
        if args.dry_run {
            said.push(one);
            break None;
        }
        tokio::time::sleep(wait).await;
        let begun = Instant::now();
        let outcome = sender.send(&transport_message).await;
        one.answer = Some(answered(&outcome, &masks, begun.elapsed().as_millis()));
        said.push(one);
        step = dispatch.delivery.answer(transport_message.judged(outcome));
    };
    let failure = failure.or_else(|| said.last().and_then(fault));
    if report(&said, args.output)?.is_none() {
        for one in &said {
            print(&text(one))?;
        }
    }
    let subject = format!("Provider/{namespace}/{name}");
    match failure {
        Some(why) => {
            let why = clean_line(&masks.mask(&why));
            say(ProgressGlyph::Failure, &format!("{subject}: {why}"));
            Ok(ExitCode::Failed)
        }
        None if args.dry_run => {
            say(ProgressGlyph::Action, &format!("{subject}: nothing was sent"));
            Ok(ExitCode::Success)
        }
        None if said.is_empty() => {
            let why =
                "this event needs no request; services for commits need --metadata revision=…";
            say(ProgressGlyph::Warning, &format!("{subject}: {why}"));
            Ok(ExitCode::Failed)
        }
        None => {
            say(ProgressGlyph::Success, &format!("{subject}: the service accepted the event"));
            Ok(ExitCode::Success)
        }
    }
}

/// An Alert that sends to a Provider.
fn alert(namespace: &str, provider: &str) -> anyhow::Result<Alert> {
    let alert = json!({
        "apiVersion": "notification.toolkit.fluxcd.io/v1beta3",
        "kind": "Alert",
        "metadata": {"name": "windlass-test", "namespace": namespace},
        "spec": {"providerRef": {"name": provider}, "eventSources": []},
    });
    serde_json::from_value(alert).context("the sample Alert cannot be read")
}

/// A sample event, whose message says that nothing has happened.
fn sample(namespace: &str, args: &AlertTestArgs) -> FluxEvent {
    let (severity, reason) = match args.severity {
        EventSeverity::Info => ("info", "ReconciliationSucceeded"),
        EventSeverity::Error => ("error", "ReconciliationFailed"),
    };
    let object = ObjectReference {
        kind: "Kustomization".to_owned(),
        namespace: namespace.to_owned(),
        name: "windlass-test".to_owned(),
        uid: "00000000-0000-0000-0000-000000000000".to_owned(),
        api_version: "kustomize.toolkit.fluxcd.io/v1".to_owned(),
        ..ObjectReference::default()
    };
    let metadata = args.metadata.iter().map(|(key, value)| {
        let key = if key.contains('/') { key.clone() } else { format!("{}/{key}", object.group()) };
        (key, value.clone())
    });
    let metadata = metadata.collect();
    FluxEvent {
        severity: severity.to_owned(),
        reason: reason.to_owned(),
        timestamp: Some(jiff::Timestamp::now().as_second()),
        message: "This is a sample event of `windlass alerts test`: nothing has happened."
            .to_owned(),
        metadata,
        reporting_controller: "windlass".to_owned(),
        reporting_instance: "windlass-cli".to_owned(),
        object,
        ..FluxEvent::default()
    }
}

/// A request with its Secret values masked.
fn shown(request: &ProviderRequest, masks: &SecretMasking) -> ProviderRequestAndResponse {
    let headers = request.headers.iter().map(|(name, value)| {
        let is_plain = PLAIN.contains(&name.to_lowercase().as_str());
        (name.clone(), if is_plain { masks.mask(value) } else { "****".to_owned() })
    });
    ProviderRequestAndResponse {
        method: request.method.to_owned(),
        url: masks.mask(&request.url),
        headers: headers.collect(),
        body: body(&request.body, masks),
        answer: None,
    }
}

/// A NATS message in the same form as a request. Its subject takes the place of the URL.
fn published(message: &NatsMessage, masks: &SecretMasking) -> ProviderRequestAndResponse {
    ProviderRequestAndResponse {
        method: "PUB".to_owned(),
        url: masks.mask(&message.subject),
        headers: BTreeMap::new(),
        body: body(&message.data, masks),
        answer: None,
    }
}

fn answered(
    outcome: &MessageSendResult,
    masks: &SecretMasking,
    milliseconds: u128,
) -> ProviderServiceResponse {
    match outcome {
        Ok(HttpResponse { status, body: text, .. }) => ProviderServiceResponse::Response {
            status: *status,
            body: body(text, masks),
            milliseconds,
        },
        Err((error, _)) => ProviderServiceResponse::Error { error: masks.mask(error) },
    }
}

/// The beginning of a body.
fn body(bytes: &[u8], masks: &SecretMasking) -> String {
    let text = masks.mask(&String::from_utf8_lossy(bytes));
    match text.len() > MAX_SHOWN_BODY_BYTES {
        true => format!("{}…", &text[..text.floor_char_boundary(MAX_SHOWN_BODY_BYTES)]),
        false => text,
    }
}

/// Why the service of a provider rejected an event, if the engine did not treat its answer as an error. `None` if the service
/// accepted the event.
fn fault(last: &ProviderRequestAndResponse) -> Option<String> {
    match last.answer.as_ref()? {
        ProviderServiceResponse::Error { error } => Some(error.clone()),
        ProviderServiceResponse::Response { status, .. } if *status >= 400 => {
            Some(format!("the service answered with status {status}"))
        }
        ProviderServiceResponse::Response { .. } => None,
    }
}

/// The conversation as a text for people. `>` marks the request, and `<` marks the answer.
fn text(one: &ProviderRequestAndResponse) -> String {
    let mut lines = vec![format!("> {} {}", one.method, one.url)];
    lines.extend(one.headers.iter().map(|(name, value)| format!("> {name}: {value}")));
    lines.extend(one.body.lines().map(|line| format!("> {line}")));
    match &one.answer {
        None => {}
        Some(ProviderServiceResponse::Error { error }) => lines.push(format!("< {error}")),
        Some(ProviderServiceResponse::Response { status, body, milliseconds }) => {
            lines.push(format!("< {status} after {milliseconds} ms"));
            lines.extend(body.lines().map(|line| format!("< {line}")));
        }
    }
    lines.iter().map(|line| format!("{}\n", clean_line(line))).collect()
}

#[cfg(test)]
mod tests {
    use notify::DeliveryMessage;

    use super::*;

    #[test]
    fn what_is_shown_has_no_credentials() {
        let secret = notify::SecretData {
            name: "apps/s".to_owned(),
            data: [("token", "hunter2-token"), ("address", "https://hooks.example.com/T0/hunter3")]
                .map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec()))
                .into(),
        };
        let secrets = BTreeMap::from([("s".to_owned(), secret)]);
        let masks = masking(&secrets);
        let provider: Provider = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "apps"},
            "spec": {"type": "slack", "channel": "ops", "secretRef": {"name": "s"}}}))
        .unwrap();
        let args = AlertTestArgs {
            severity: EventSeverity::Error,
            metadata: vec![("revision".to_owned(), "main@sha1:abc hunter2-token".to_owned())],
            ..parsed()
        };
        let event = sample("apps", &args);
        let mut dispatch = begin(event, &provider, &alert("apps", "p").unwrap(), &secrets).unwrap();
        let DeliveryStep::Send(_, DeliveryMessage::Http(request)) = dispatch.delivery.start()
        else {
            panic!()
        };
        assert!(request.url.contains("hunter3"), "{}", request.url);
        let mut one = shown(&request, &masks);
        one.answer = Some(answered(
            &Ok(HttpResponse {
                status: 403,
                body: b"invalid hunter2-token".to_vec(),
                ..HttpResponse::default()
            }),
            &masks,
            12,
        ));
        let text = text(&one);
        assert!(text.contains("sample event") && text.contains("< 403 after 12 ms"), "{text}");
        assert!(!text.contains("hunter"), "{text}");
        assert_eq!(fault(&one).as_deref(), Some("the service answered with status 403"));
    }

    fn parsed() -> AlertTestArgs {
        use clap::{CommandFactory as _, FromArgMatches as _, Parser};
        #[derive(Parser)]
        struct AlertTestCommand {
            #[command(flatten)]
            args: AlertTestArgs,
        }
        let matches = AlertTestCommand::command().try_get_matches_from(["test", "p"]).unwrap();
        AlertTestCommand::from_arg_matches(&matches).unwrap().args
    }
}
