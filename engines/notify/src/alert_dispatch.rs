//! Decides which Alerts select an event, and how the event is delivered to their Providers.
//!
//! Here: the order of the checks, and the warnings on Alerts. Elsewhere: metadata (`event_metadata`), the messages
//! (`providers`), sending them.
//!
//! Source of the semantics: notification-controller 1.9.3, `event_handlers.go`.

use std::collections::BTreeMap;
use std::time::Duration;

use golang::regexp::{GoRegexp, quote_meta};

use crate::api_objects::{Alert, EventSourceSelector, Provider, SecretData};
use crate::commit_status_id::{commit_status, is_commit_status_type};
use crate::event::{EVENT_GROUP, FluxEvent, ObjectReference};
use crate::event_delivery::{DeliveryFailure, DeliveryStage, EventDelivery, ProviderNextAction};
use crate::provider_options::{SecretToMask, assemble};
use crate::providers;

/// The timeout of sending if the Provider sets none.
const DEFAULT_SEND_TIMEOUT: Duration = Duration::from_secs(15);

/// The longest time that sending may take.
///
/// Differs(flux): in Flux the Provider alone decides.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(600);

/// Longest part of a warning that an object, a Secret or a service wrote, in bytes.
const LONGEST_TEXT: usize = 16 << 10;

/// The objects of the cluster that a dispatch reads.
pub trait AlertClusterReader {
    /// The labels of an object. `None` if the object cannot be read.
    fn labels(&self, object: &ObjectReference) -> Option<BTreeMap<String, String>>;
    /// The Provider with this namespace and name. `None` if there is none.
    fn provider(&self, namespace: &str, name: &str) -> Option<Provider>;
    /// The Secret with this namespace and name. `None` if there is none.
    fn secret(&self, namespace: &str, name: &str) -> Option<SecretData>;
}

/// The settings that hold for all Alerts.
#[derive(Debug, Clone, Copy, Default)]
pub struct AlertControllerSettings {
    /// Whether Alerts only get events of their own namespace.
    pub no_cross_namespace: bool,
    /// Whether Providers may name a ServiceAccount.
    pub allows_service_accounts: bool,
    /// Seconds since 1970.
    pub now: i64,
}

/// A Warning event on an Alert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertWarningEvent {
    /// The reason of the event.
    pub reason: &'static str,
    /// The message of the event.
    pub message: String,
    /// The annotations of the event.
    pub annotations: BTreeMap<String, String>,
}

impl AlertWarningEvent {
    fn new(reason: &'static str, mut message: String) -> Self {
        message.truncate(message.floor_char_boundary(LONGEST_TEXT));
        Self { reason, message, annotations: BTreeMap::new() }
    }
}

/// An event with all its metadata, and its Provider.
#[derive(Debug)]
pub struct RoutedEvent {
    /// The event.
    pub event: FluxEvent,
    /// The Provider.
    pub provider: Provider,
}

/// Where an event goes: the result of [`route()`].
#[derive(Debug)]
pub struct RoutingDecision {
    /// Events to put on the Alert.
    pub warnings: Vec<AlertWarningEvent>,
    /// The Provider for the event, if the Alert sends the event.
    pub route: Option<RoutedEvent>,
}

/// The dispatch of an event by an Alert, and the warnings about the Alert.
#[derive(Debug)]
pub struct AlertDispatchResult {
    /// Events to put on the Alert.
    pub warnings: Vec<AlertWarningEvent>,
    /// The dispatch; none if the event is not sent.
    pub dispatch: Option<EventDispatch>,
}

/// An event on its way to a Provider.
#[derive(Debug)]
pub struct EventDispatch {
    /// The conversation.
    pub delivery: EventDelivery,
    /// How long sending may take.
    pub timeout: Duration,
    /// The event with all its metadata.
    pub event: FluxEvent,
    provider: String,
    masked: String,
}

impl EventDispatch {
    /// Creates the dispatch of an event with all its metadata to a Provider. The filters of the Alert are not applied.
    /// `secret` returns a Secret by namespace and name, or `None` if it is missing.
    pub fn new(
        event: FluxEvent,
        provider: &Provider,
        alert: &Alert,
        now: i64,
        secret: &dyn Fn(&str, &str) -> Option<SecretData>,
    ) -> Self {
        let timeout = timeout(provider);
        let (flow, masked) = deliver(&event, provider, alert, now, secret);
        Self {
            delivery: EventDelivery::new(flow, timeout),
            timeout,
            event,
            provider: provider.metadata.name.clone(),
            masked: masked.0,
        }
    }

    /// The warning for a delivery that failed, without the token of the Provider.
    pub fn warning(&self, failure: &DeliveryFailure) -> AlertWarningEvent {
        let object = self.event.object.display();
        let text = &failure.message;
        let text = &text[..text.floor_char_boundary(LONGEST_TEXT)];
        let message = match failure.stage {
            DeliveryStage::Post => {
                let shown = mask(text, &self.masked);
                format!("failed to send notification for {object}: {shown}")
            }
            DeliveryStage::Init => format!(
                "failed to dispatch notification for {object}: failed to initialize notifier for \
                 provider '{}': {text}",
                self.provider
            ),
            DeliveryStage::CommitStatus => format!(
                "failed to dispatch notification for {object}: failed to create commit status: {text}"
            ),
        };
        AlertWarningEvent::new("NotificationDispatchFailed", message)
    }
}

/// Masks a token wherever it occurs in a text.
///
/// Parity(flux): the last character of the token counts any number of times, none included.
fn mask(text: &str, token: &str) -> String {
    // The last character of the token may be missing. It has at most four bytes.
    if token.is_empty() || token.len() > text.len() + 4 {
        return text.to_owned();
    }
    let shown = GoRegexp::new(&format!("{}*", quote_meta(token)))
        .ok()
        .filter(|pattern| pattern.work().saturating_mul(text.len()) <= MOST_WORK)
        .and_then(|pattern| pattern.replace_all_literal(text, "*****").ok());
    shown.unwrap_or_else(|| "the message is too long to be shown".to_owned())
}

/// Decides how an Alert handles an event. The metadata of the event must be clean.
pub fn dispatch(
    event: &FluxEvent,
    alert: &Alert,
    cluster: &dyn AlertClusterReader,
    settings: AlertControllerSettings,
) -> AlertDispatchResult {
    let RoutingDecision { warnings, route } = route(event, alert, cluster, settings);
    let secret = |namespace: &str, name: &str| cluster.secret(namespace, name);
    let dispatch = route.map(|RoutedEvent { event, provider }| {
        EventDispatch::new(event, &provider, alert, settings.now, &secret)
    });
    AlertDispatchResult { warnings, dispatch }
}

/// Decides whether an Alert sends an event, and to which Provider. The metadata of the event must be clean. No Secret is read.
pub fn route(
    event: &FluxEvent,
    alert: &Alert,
    cluster: &dyn AlertClusterReader,
    settings: AlertControllerSettings,
) -> RoutingDecision {
    let mut warnings = Vec::new();
    // Expensive checks are skipped for events that the Alert does not receive anyway.
    let wants = if is_denied(event, alert, settings) {
        alert.spec.event_sources.iter().any(|source| names(event, alert, source))
    } else {
        is_from_source(event, alert, cluster, &mut warnings)
            && is_selected(event, alert, &mut warnings)
    };
    if !wants || alert.spec.suspend {
        return RoutingDecision { warnings, route: None };
    }
    routed(event, alert, cluster, settings, warnings)
}

/// Decides where a follow-up event is sent, such as the end of an incident that the Alert selected before. Severity, message
/// and object of the follow-up event are not checked against the Alert again.
pub fn follow_up(
    event: &FluxEvent,
    alert: &Alert,
    cluster: &dyn AlertClusterReader,
    settings: AlertControllerSettings,
) -> RoutingDecision {
    routed(event, alert, cluster, settings, Vec::new())
}

fn routed(
    event: &FluxEvent,
    alert: &Alert,
    cluster: &dyn AlertClusterReader,
    settings: AlertControllerSettings,
    mut warnings: Vec<AlertWarningEvent>,
) -> RoutingDecision {
    let mut event = event.clone();
    event.exclude_internal();
    match send(event.clone(), alert, cluster, settings, &mut warnings) {
        Ok(route) => RoutingDecision { warnings, route },
        Err(error) => {
            let object = event.object.display();
            let message = format!("failed to dispatch notification for {object}: {error}");
            warnings.push(AlertWarningEvent::new("NotificationDispatchFailed", message));
            RoutingDecision { warnings, route: None }
        }
    }
}

/// Whether an event comes from a namespace whose events the Alert may not receive.
///
/// Differs(flux): that is decided before labels are read and patterns compared, which makes no difference to what is sent.
fn is_denied(event: &FluxEvent, alert: &Alert, settings: AlertControllerSettings) -> bool {
    settings.no_cross_namespace && event.object.namespace != alert.metadata.namespace
}

fn is_from_source(
    event: &FluxEvent,
    alert: &Alert,
    cluster: &dyn AlertClusterReader,
    warnings: &mut Vec<AlertWarningEvent>,
) -> bool {
    alert.spec.event_sources.iter().any(|source| matches(event, alert, source, cluster, warnings))
}

fn matches(
    event: &FluxEvent,
    alert: &Alert,
    source: &EventSourceSelector,
    cluster: &dyn AlertClusterReader,
    warnings: &mut Vec<AlertWarningEvent>,
) -> bool {
    let object = &event.object;
    let is_candidate = names(event, alert, source);
    let Some(wanted) = source.match_labels.as_ref().filter(|_| is_candidate) else {
        return is_candidate;
    };
    let Some(labels) = cluster.labels(object) else {
        let message = format!("error getting source object {}", object.display());
        warnings.push(AlertWarningEvent::new("SourceFetchFailed", message));
        return false;
    };
    if !wanted.iter().all(|(key, value)| is_label(key, value)) {
        let kind = &source.kind;
        let namespace = namespace(alert, source);
        let name = &source.name;
        let message =
            format!("error using matchLabels from event source {kind}/{namespace}/{name}");
        warnings.push(AlertWarningEvent::new("InvalidConfig", message));
        return false;
    }
    wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
}

fn namespace<'a>(alert: &'a Alert, source: &'a EventSourceSelector) -> &'a str {
    if source.namespace.is_empty() { &alert.metadata.namespace } else { &source.namespace }
}

/// Whether a source names the object of an event, but for its labels.
fn names(event: &FluxEvent, alert: &Alert, source: &EventSourceSelector) -> bool {
    let object = &event.object;
    let severity = &alert.spec.event_severity;
    object.namespace == namespace(alert, source)
        && object.kind == source.kind
        && (event.severity == *severity || severity == "info")
        && (source.name == "*" || source.name == object.name)
}

/// Whether this key and value are valid as a label in a selector.
fn is_label(key: &str, value: &str) -> bool {
    let is_name = |name: &str, most: usize| {
        let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        let bytes = name.as_bytes();
        bytes.len() <= most
            && ends(bytes.first())
            && ends(bytes.last())
            && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
    };
    let is_part = |part: &str| {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        part.bytes().next().is_some_and(is_plain)
            && part.bytes().last().is_some_and(is_plain)
            && part.bytes().all(|byte| is_plain(byte) || byte == b'-')
    };
    let is_key = match key.split_once('/') {
        Some((prefix, name)) => {
            prefix.len() <= 253 && prefix.split('.').all(is_part) && is_name(name, 63)
        }
        None => is_name(key, 63),
    };
    is_key && (value.is_empty() || is_name(value, 63))
}

/// The most work for the patterns of an Alert for one event, in steps of a few nanoseconds.
const MOST_WORK: usize = 200_000_000;

/// The steps for compiling a pattern, for each step of comparing it with a byte.
const PATTERN_COMPILATION_STEPS: usize = 1_000;

/// The steps charged for an invalid pattern, because it may have been too large to compile.
const INVALID_PATTERN_STEPS: usize = MOST_WORK / 10;

/// Whether the message matches the inclusion list, if there is one, and does not match the exclusion list.
fn is_selected(event: &FluxEvent, alert: &Alert, warnings: &mut Vec<AlertWarningEvent>) -> bool {
    let included = &alert.spec.inclusion_list;
    let excluded = &alert.spec.exclusion_list;
    let mut left = MOST_WORK;
    let mut matches = |patterns: &[String], list: &str| {
        matches_any(patterns, list, &event.message, &mut left, warnings)
    };
    (included.is_empty() || matches(included, "inclusion")) && !matches(excluded, "exclusion")
}

/// Whether one of the patterns matches.
///
/// Differs(flux): patterns whose matching would cost too much are not compared, and a warning reports that.
fn matches_any(
    patterns: &[String],
    list: &str,
    message: &str,
    left: &mut usize,
    warnings: &mut Vec<AlertWarningEvent>,
) -> bool {
    for text in patterns {
        let compiled = if *left == 0 { None } else { Some(GoRegexp::new(text)) };
        let work = match &compiled {
            Some(Ok(pattern)) => pattern
                .work()
                .saturating_mul(message.len().saturating_add(PATTERN_COMPILATION_STEPS)),
            Some(Err(_)) => INVALID_PATTERN_STEPS.min(*left),
            None => usize::MAX,
        };
        let (Some(compiled), Some(rest)) = (compiled, left.checked_sub(work)) else {
            let message = format!(
                "the patterns of the {list} list are too large for this event: those from `{text}` on are ignored"
            );
            warnings.push(AlertWarningEvent::new("InvalidConfig", message));
            *left = 0;
            return false;
        };
        *left = rest;
        match compiled {
            Ok(pattern) if pattern.is_match(message) => return true,
            Ok(_) => {}
            Err(_) => {
                let message = format!("failed to compile {list} regex: {text}");
                warnings.push(AlertWarningEvent::new("InvalidConfig", message));
            }
        }
    }
    false
}

fn send(
    mut event: FluxEvent,
    alert: &Alert,
    cluster: &dyn AlertClusterReader,
    settings: AlertControllerSettings,
    warnings: &mut Vec<AlertWarningEvent>,
) -> Result<Option<RoutedEvent>, String> {
    let namespace = &alert.metadata.namespace;
    let name = &alert.metadata.name;
    if is_denied(&event, alert, settings) {
        return Err(format!(
            "discarding event, access denied to cross-namespace sources: alert \
             '{namespace}/{name}' can't process event from '{}', cross-namespace references have \
             been blocked",
            event.object.display()
        ));
    }
    let reference = &alert.spec.provider_ref.name;
    let provider = cluster.provider(namespace, reference).ok_or_else(|| {
        format!(
            "failed to read provider: providers.notification.toolkit.fluxcd.io \"{reference}\" \
             not found"
        )
    })?;
    if provider.spec.suspend || is_dropped(&event, &provider.spec.r#type) {
        return Ok(None);
    }
    if !provider.spec.service_account_name.is_empty() && !settings.allows_service_accounts {
        return Err(
            "to use spec.serviceAccountName for provider authentication please enable the \
                    ObjectLevelWorkloadIdentity feature gate in the controller"
                .to_owned(),
        );
    }
    warnings.extend(event.combine_metadata(alert));
    Ok(Some(RoutedEvent { event, provider }))
}

fn timeout(provider: &Provider) -> Duration {
    let written = golang::time::GoDuration::parse(&provider.spec.timeout);
    written
        .ok()
        .and_then(|it| u64::try_from(it.nanoseconds()).ok())
        .map_or(DEFAULT_SEND_TIMEOUT, Duration::from_nanos)
        .min(LONGEST_TIMEOUT)
}

/// Whether incidents are sent to a Provider of this type. Statuses of commits and comments on pull requests are about a
/// revision, and need each event.
pub fn has_incidents(kind: &str) -> bool {
    !is_commit_status_type(kind) && !is_comment_type(kind)
}

fn is_comment_type(kind: &str) -> bool {
    matches!(
        kind,
        "githubpullrequestcomment" | "gitlabmergerequestcomment" | "giteapullrequestcomment"
    )
}

/// Whether a Provider of this type ignores such an event.
fn is_dropped(event: &FluxEvent, kind: &str) -> bool {
    let has =
        |key: &str| event.meta(&format!("{EVENT_GROUP}/{key}")).is_some_and(|it| !it.is_empty());
    let is_update = event.meta(&event.object.key("commit_status")) == Some("update");
    let is_status = is_commit_status_type(kind);
    let is_generic = matches!(kind, "generic" | "generic-hmac");
    let is_comment = is_comment_type(kind);
    !is_status && !is_generic && is_update
        || is_status && !has("commit") && !is_update && !event.is_error()
        || is_comment && !has("change_request")
}

fn deliver(
    event: &FluxEvent,
    provider: &Provider,
    alert: &Alert,
    now: i64,
    secret: &dyn Fn(&str, &str) -> Option<SecretData>,
) -> (ProviderNextAction, SecretToMask) {
    let none = || SecretToMask(String::new());
    let status = match commit_status(provider, alert, event) {
        Ok(status) => status.unwrap_or_default(),
        Err(message) => {
            return (
                ProviderNextAction::Failed(DeliveryFailure {
                    stage: DeliveryStage::CommitStatus,
                    message,
                }),
                none(),
            );
        }
    };
    match assemble(provider, alert, status, now, secret) {
        Ok((options, masked)) => {
            (providers::flow(&provider.spec.r#type, options, event.clone()), masked)
        }
        Err(message) => (ProviderNextAction::Failed(DeliveryFailure::init(message)), none()),
    }
}

/// Creates the delivery of an event whose metadata is already combined. The filters of the Alert are not applied.
/// `secret` returns a Secret by namespace and name, or `None` if it is missing.
pub fn delivery(
    event: &FluxEvent,
    provider: &Provider,
    alert: &Alert,
    now: i64,
    secret: &dyn Fn(&str, &str) -> Option<SecretData>,
) -> EventDelivery {
    EventDispatch::new(event.clone(), provider, alert, now, secret).delivery
}
