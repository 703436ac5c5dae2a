//! Requests, responses, and the conversation that delivers an event. No network is used here.
//!
//! Here: the order of requests, retries and redirects. Elsewhere: the requests of each provider (`providers`), messages that
//! are not sent over HTTP (`delivery_message`), connections. [`EventDelivery::start`] and [`EventDelivery::answer`] return a
//! [`DeliveryStep`]. The caller sends the request of that step.
//!
//! Source of the semantics: hashicorp/go-retryablehttp 0.7.8, Go's `net/http`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use golang::url::GoUrl;

use crate::delivery_message::DeliveryMessage;
use crate::secret_credentials::TlsSettings;

/// Most redirects that are followed.
const MAX_REDIRECTS: u32 = 10;
/// The most bytes of a response that are used. A driver should not read more.
pub const MAX_ANSWER: usize = 4 << 20;
/// Longest id of a message that counts.
const LONGEST_ID: usize = 255;
/// Most bytes of an answer that a message repeats.
const MAX_SHOWN: usize = 16 << 10;

/// How many times a request is retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HttpRetryPolicy {
    Never,
    /// Five tries, with delays of 2, 4, 8 and 16 s. A server may set the delay.
    Doubling,
    /// Six tries within seconds, like GitLab's client. The last response counts.
    Soon,
}

/// A request over HTTP. Its `Debug` shows no credentials.
#[derive(Clone)]
pub struct ProviderRequest {
    /// The method.
    pub method: &'static str,
    /// The URL.
    pub url: String,
    /// The headers, with the names as they were set. Each name occurs once.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// The proxy, with credentials.
    pub proxy: Option<String>,
    /// Certificates.
    pub tls: Option<Arc<TlsSettings>>,
    pub(crate) retry: HttpRetryPolicy,
    /// Whether an answer that redirects to another server is not followed, because another server is not believed.
    stays_at_server: bool,
}

impl fmt::Debug for ProviderRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("Request")
            .field("method", &self.method)
            .field("headers", &names)
            .field("bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

impl ProviderRequest {
    pub(crate) fn new(method: &'static str, url: impl Into<String>) -> Self {
        Self {
            method,
            url: url.into(),
            headers: Vec::new(),
            body: Vec::new(),
            proxy: None,
            tls: None,
            retry: HttpRetryPolicy::Never,
            stays_at_server: false,
        }
    }

    /// Sets a header and replaces its old value.
    pub(crate) fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.set(name, value.into());
        self
    }

    pub(crate) fn set(&mut self, name: &str, value: String) {
        self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self.headers.push((name.to_owned(), value));
    }

    /// The value of a header; `None` if it is absent.
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| &**value)
    }

    pub(crate) fn json(self, body: &impl serde::Serialize) -> Self {
        let body = crate::go_json_encoder::bytes(body);
        self.header("Content-Type", "application/json").body(body)
    }

    pub(crate) fn body(mut self, body: Vec<u8>) -> Self {
        self.body = body;
        self
    }

    pub(crate) fn basic(self, username: &str, password: &str) -> Self {
        self.header("Authorization", basic(username, password))
    }

    pub(crate) fn bearer(self, token: &str) -> Self {
        self.header("Authorization", format!("Bearer {token}"))
    }

    pub(crate) fn tls(mut self, tls: Option<Arc<TlsSettings>>) -> Self {
        self.tls = tls;
        self
    }

    pub(crate) fn proxy(mut self, proxy: &str) -> Self {
        self.proxy = (!proxy.is_empty()).then(|| proxy.to_owned());
        self
    }

    pub(crate) fn retry(mut self, retry: HttpRetryPolicy) -> Self {
        self.retry = retry;
        self
    }

    /// Does not follow redirects to another scheme, host or port. The caller gets the redirecting response instead.
    pub(crate) fn stay_at_server(mut self) -> Self {
        self.stays_at_server = true;
        self
    }

    /// Sends the request, and calls `then` with the response.
    pub(crate) fn send(
        self,
        then: impl FnOnce(Result<HttpResponse, String>) -> ProviderNextAction + Send + 'static,
    ) -> ProviderNextAction {
        ProviderNextAction::Send(Box::new(self), Box::new(then))
    }

    /// Why Go's client would not send the request, and whether it would retry. `None` if it would send the request.
    fn fault(&self) -> Option<(String, bool)> {
        let url = match GoUrl::parse(self.url.as_bytes()) {
            Ok(url) => url,
            Err(error) => return Some((error.to_string(), false)),
        };
        let operation = format!("{}{}", &self.method[..1], self.method[1..].to_lowercase());
        let shown = crate::go_string_functions::quoted(&self.url);
        let fault = |reason: String| Some(format!("{operation} {shown}: {reason}"));
        for (name, value) in &self.headers {
            let is_token =
                |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
            if name.is_empty() || !name.bytes().all(is_token) {
                let name = crate::go_string_functions::quoted(name);
                return fault(format!("net/http: invalid header field name {name}"))
                    .map(|it| (it, false));
            }
            if value.bytes().any(|byte| byte.is_ascii_control() && byte != b'\t') {
                let name = crate::go_string_functions::quoted(
                    &crate::go_string_functions::canonical_header(name),
                );
                return fault(format!("net/http: invalid header field value for {name}"))
                    .map(|it| (it, false));
            }
        }
        if !matches!(&*url.scheme, b"http" | b"https") {
            let scheme = crate::go_string_functions::quoted(&String::from_utf8_lossy(&url.scheme));
            return fault(format!("unsupported protocol scheme {scheme}")).map(|it| (it, false));
        }
        if url.host.is_empty() {
            return fault("http: no Host in request URL".to_owned()).map(|it| (it, true));
        }
        None
    }

    /// The request as Go's client sends it: without a fragment, with an escaped path, and with the user of the URL as basic
    /// authentication.
    fn on_the_wire(&self) -> Self {
        let mut request = self.clone();
        let (url, _) = self.url.split_once('#').unwrap_or((&self.url, ""));
        let Some((scheme, rest)) = url.split_once("://") else { return request };
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
        if let Ok(parsed) = GoUrl::parse(self.url.as_bytes())
            && let Some(login) = parsed.user.filter(|_| !user.is_empty())
            && self.get("authorization").is_none()
        {
            let name = String::from_utf8_lossy(&login.name);
            let password = login.password.as_deref().map(String::from_utf8_lossy);
            request.set("Authorization", basic(&name, &password.unwrap_or_default()));
        }
        let (path, query) =
            rest.split_once('?').map_or((rest, None), |(path, it)| (path, Some(it)));
        let path = if path.is_empty() { "/".to_owned() } else { escaped(path) };
        let query = query.map(|query| format!("?{query}")).unwrap_or_default();
        request.url = format!("{scheme}://{host}{path}{query}");
        request
    }

    /// The request to which a response redirects. `None` if it does not redirect or if the redirect is not followed.
    fn redirected(&self, answer: &HttpResponse) -> Option<Self> {
        let keeps = match answer.status {
            301..=303 => matches!(self.method, "GET" | "HEAD"),
            307 | 308 => true,
            _ => return None,
        };
        let location = answer.get("location").filter(|location| !location.is_empty())?;
        let mut next = self.clone();
        next.url = resolve(&self.url, location)?;
        if self.stays_at_server && !is_same_server(&self.url, &next.url) {
            return None;
        }
        if !keeps {
            next.method = "GET";
            next.body.clear();
            next.headers.retain(|(name, _)| !name.to_ascii_lowercase().starts_with("content-"));
        }
        let host =
            |text: &str| GoUrl::parse(text.as_bytes()).map(|url| url.hostname().to_vec()).ok();
        let from = host(&self.url)?;
        let to = host(&next.url)?;
        let is_below =
            to.strip_suffix(&*from).is_some_and(|rest| rest.is_empty() || rest.ends_with(b"."));
        if !is_below {
            next.headers.retain(|(name, _)| {
                // Differs(flux): Go's client takes the token of GitLab along.
                !["authorization", "private-token", "www-authenticate", "cookie", "cookie2"]
                    .contains(&&*name.to_ascii_lowercase())
            });
        }
        Some(next)
    }
}

/// Whether the texts of two URLs have the same scheme, host and port.
fn is_same_server(one: &str, other: &str) -> bool {
    let parse = |text: &str| GoUrl::parse(text.as_bytes()).ok();
    parse(one).zip(parse(other)).is_some_and(|(one, other)| {
        one.scheme.eq_ignore_ascii_case(&other.scheme) && one.host.eq_ignore_ascii_case(&other.host)
    })
}

/// Escapes the bytes that are not allowed in a path.
fn escaped(path: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"\"<>[\\]^`{|}".contains(&byte);
    let write = |byte: u8| match is_plain(byte) {
        true => char::from(byte).to_string(),
        false => percent_encoding::percent_encode_byte(byte).to_owned(),
    };
    path.bytes().map(write).collect()
}

/// The absolute URL of a redirect's location, relative to the URL of the request. `None` if one of them is not valid.
fn resolve(base: &str, location: &str) -> Option<String> {
    let to = GoUrl::parse(location.as_bytes()).ok()?;
    let mut url = GoUrl::parse(base.as_bytes()).ok()?;
    if !to.scheme.is_empty() {
        return Some(location.to_owned());
    }
    if !to.host.is_empty() {
        url.host = to.host;
        url.user = to.user;
    }
    if to.path.starts_with(b"/") {
        url.path = to.path;
    } else if !to.path.is_empty() {
        let folder = url.path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
        url.path.truncate(folder);
        url.path.extend(to.path);
    }
    url.query = to.query;
    url.fragment.clear();
    Some(String::from_utf8_lossy(&url.to_bytes()).into_owned())
}

/// The value of the header `Authorization` for a user name and password.
pub(crate) fn basic(username: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{username}:{password}")))
}

/// The answer to a request.
#[derive(Debug, Clone, Default)]
pub struct HttpResponse {
    /// The status.
    pub status: u16,
    /// The headers. Names are in any case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl HttpResponse {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| &**value)
    }

    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The part of the body that a message repeats.
    pub(crate) fn text(&self) -> String {
        let shown = self.body.get(..MAX_SHOWN).unwrap_or(&self.body);
        String::from_utf8_lossy(shown).into_owned()
    }

    /// The status in Go's form: `404 Not Found`.
    pub(crate) fn status_line(&self) -> String {
        format!("{} {}", self.status, crate::go_string_functions::status_text(self.status))
    }

    /// The delay that the server asks for. `None` if it asks for none, or if the status does not allow one.
    fn retry_after(&self) -> Option<Duration> {
        if !matches!(self.status, 429 | 503) {
            return None;
        }
        let seconds = self.get("retry-after")?.trim().parse().ok()?;
        Some(Duration::from_secs(seconds))
    }
}

/// The stage of a delivery that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryStage {
    /// While computing the id of a commit status.
    CommitStatus,
    /// Before the event was read.
    Init,
    /// While sending the message.
    Post,
}

/// Why an event was not delivered. The text is not masked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryFailure {
    /// The stage at which the delivery failed.
    pub stage: DeliveryStage,
    /// Flux's message.
    pub message: String,
}

impl DeliveryFailure {
    pub(crate) fn init(message: impl Into<String>) -> Self {
        Self { stage: DeliveryStage::Init, message: message.into() }
    }

    pub(crate) fn notifier(message: impl fmt::Display) -> Self {
        Self::init(format!("failed to initialize notifier: {message}"))
    }
}

type ResponseHandler = Box<dyn FnOnce(Result<HttpResponse, String>) -> ProviderNextAction + Send>;
type PublishResultHandler = Box<dyn FnOnce(Result<(), String>) -> ProviderNextAction + Send>;

/// The next action of a provider.
pub(crate) enum ProviderNextAction {
    Send(Box<ProviderRequest>, ResponseHandler),
    /// Something other than HTTP.
    Publish(DeliveryMessage, PublishResultHandler),
    Done,
    /// The message was delivered and has this id.
    Posted(String),
    Failed(DeliveryFailure),
}

impl ProviderNextAction {
    /// Ends with a result of sending.
    pub(crate) fn end(result: Result<(), String>) -> Self {
        match result {
            Ok(()) => Self::Done,
            Err(message) => Self::failed(message),
        }
    }

    /// Ends with the id of the posted message, if the service returned a usable one.
    pub(crate) fn posted(id: Option<&str>) -> Self {
        let is_id = |id: &&str| {
            (1..=LONGEST_ID).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
        };
        id.filter(is_id).map_or(Self::Done, |id| Self::Posted(id.to_owned()))
    }

    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::Failed(DeliveryFailure { stage: DeliveryStage::Post, message: message.into() })
    }

    pub(crate) fn refused(message: impl fmt::Display) -> Self {
        Self::Failed(DeliveryFailure::notifier(message))
    }
}

/// The next step of the driver of a delivery.
#[derive(Debug)]
pub enum DeliveryStep {
    /// Wait for this time, send this message, and call [`EventDelivery::answer`] with the result.
    Send(Duration, DeliveryMessage),
    /// No action: the event is delivered, or needs no delivery.
    Done,
    /// No action: the delivery failed.
    Failed(DeliveryFailure),
}

/// The result of sending a message: the response, or the text of the error and whether a retry may help.
pub type MessageSendResult = Result<HttpResponse, (String, bool)>;

/// The delivery of one event to one provider.
pub struct EventDelivery {
    flow: Option<ProviderNextAction>,
    tries: u32,
    redirects: u32,
    waited: Duration,
    timeout: Duration,
    /// The request before redirects, which another try sends again.
    first: Option<Box<ProviderRequest>>,
    message: Option<String>,
}

impl fmt::Debug for EventDelivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventDelivery").field("tries", &self.tries).finish_non_exhaustive()
    }
}

impl EventDelivery {
    pub(crate) fn new(flow: ProviderNextAction, timeout: Duration) -> Self {
        Self {
            flow: Some(flow),
            tries: 0,
            redirects: 0,
            waited: Duration::ZERO,
            timeout,
            first: None,
            message: None,
        }
    }

    /// The service's id for the message, if the service has threads; `None` before the event is delivered.
    pub fn message(&self) -> Option<&str> {
        self.message.as_deref()
    }

    /// The first step of the delivery.
    pub fn start(&mut self) -> DeliveryStep {
        self.advance(Duration::ZERO)
    }

    /// The next step after the outcome of the last message.
    pub fn answer(&mut self, outcome: MessageSendResult) -> DeliveryStep {
        match self.flow.take() {
            Some(ProviderNextAction::Send(request, then)) => self.answered(request, then, outcome),
            Some(ProviderNextAction::Publish(_, then)) => {
                self.flow = Some(then(outcome.map(drop).map_err(|(text, _)| text)));
                self.advance(Duration::ZERO)
            }
            ended => {
                self.flow = ended;
                self.advance(Duration::ZERO)
            }
        }
    }

    /// Continues to the next request. A request that Go would not send fails here.
    fn advance(&mut self, mut wait: Duration) -> DeliveryStep {
        loop {
            match self.flow.take() {
                Some(ProviderNextAction::Send(request, then)) => {
                    if let Some(fault) = request.fault() {
                        match self.settle(request, then, Err(fault)) {
                            Some(longer) => wait = wait.saturating_add(longer),
                            None => wait = Duration::ZERO,
                        }
                        continue;
                    }
                    let delivery_message = DeliveryMessage::Http(Box::new(request.on_the_wire()));
                    self.flow = Some(ProviderNextAction::Send(request, then));
                    return DeliveryStep::Send(wait, delivery_message);
                }
                Some(ProviderNextAction::Publish(delivery_message, then)) => {
                    self.flow = Some(ProviderNextAction::Publish(delivery_message.clone(), then));
                    return DeliveryStep::Send(wait, delivery_message);
                }
                Some(ProviderNextAction::Failed(failure)) => {
                    self.flow = Some(ProviderNextAction::Failed(failure.clone()));
                    return DeliveryStep::Failed(failure);
                }
                Some(ProviderNextAction::Posted(id)) => {
                    self.message = Some(id);
                    self.flow = Some(ProviderNextAction::Done);
                    return DeliveryStep::Done;
                }
                Some(ProviderNextAction::Done) | None => {
                    self.flow = Some(ProviderNextAction::Done);
                    return DeliveryStep::Done;
                }
            }
        }
    }

    fn answered(
        &mut self,
        request: Box<ProviderRequest>,
        then: ResponseHandler,
        outcome: MessageSendResult,
    ) -> DeliveryStep {
        if let Ok(answer) = &outcome
            && let Some(next) = request.redirected(answer)
        {
            self.redirects += 1;
            self.first.get_or_insert_with(|| request.clone());
            if self.redirects < MAX_REDIRECTS {
                self.flow = Some(ProviderNextAction::Send(Box::new(next), then));
                return self.advance(Duration::ZERO);
            }
            let operation = format!("{}{}", &next.method[..1], next.method[1..].to_lowercase());
            let location = crate::go_string_functions::quoted(&next.url);
            let text = format!("{operation} {location}: stopped after {MAX_REDIRECTS} redirects");
            let first = self.first.take().unwrap_or(request);
            let wait = self.settle(first, then, Err((text, false)));
            return self.advance(wait.unwrap_or_default());
        }
        let first = self.first.take().unwrap_or(request);
        let wait = self.settle(first, then, outcome);
        self.advance(wait.unwrap_or_default())
    }

    /// Decides whether a request is retried, and returns the delay before that. `None` if it is not retried and its
    /// result is passed on.
    fn settle(
        &mut self,
        request: Box<ProviderRequest>,
        then: ResponseHandler,
        outcome: MessageSendResult,
    ) -> Option<Duration> {
        self.redirects = 0;
        self.tries += 1;
        let may_help = match &outcome {
            Ok(answer) => {
                answer.status == 429
                    || answer.status == 0
                    || answer.status >= 500 && answer.status != 501
            }
            Err((_, may_help)) => *may_help,
        };
        let (most, wait) = match request.retry {
            HttpRetryPolicy::Never => (1, Duration::ZERO),
            HttpRetryPolicy::Doubling => {
                let asked = outcome.as_ref().ok().and_then(HttpResponse::retry_after);
                let doubled = Duration::from_secs(1 << self.tries.min(4));
                (5, asked.unwrap_or(doubled))
            }
            HttpRetryPolicy::Soon => (6, Duration::from_millis(250)),
        };
        if may_help && self.tries < most {
            self.waited = self.waited.saturating_add(wait);
            if self.waited < self.timeout {
                self.flow = Some(ProviderNextAction::Send(request, then));
                return Some(wait);
            }
            self.tries = 0;
            // Differs(flux): Flux says only that its time is over, also where the last attempt was sent and did not reach the
            // service.
            let why = match outcome {
                Err((text, _)) if request.fault().is_none() => text,
                Err(_) | Ok(_) => "context deadline exceeded".to_owned(),
            };
            self.flow = Some(then(Err(why)));
            return None;
        }
        let tries = std::mem::take(&mut self.tries);
        let shown = format!("{} {}", request.method, request.url);
        let outcome = match outcome {
            Ok(_) if may_help && request.retry == HttpRetryPolicy::Doubling => {
                Err(format!("{shown} giving up after {tries} attempt(s)"))
            }
            Err((text, _)) if request.retry == HttpRetryPolicy::Doubling => {
                Err(format!("{shown} giving up after {tries} attempt(s): {text}"))
            }
            Ok(answer) => Ok(answer),
            Err((text, _)) => Err(text),
        };
        self.flow = Some(then(outcome));
        None
    }
}
