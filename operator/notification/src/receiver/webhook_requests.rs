//! Handles webhook requests: finds the Receiver, decides whether the request counts, and wakes objects.
//!
//! Elsewhere: the verdicts (`notify::receivers`), connections (crate `windlass-http-server`).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_LENGTH;
use crds::notification::Receiver;
use kube_core::ResourceExt as _;
use notify::HttpResponse;
use notify::receivers::{
    self, AcceptedHookRequest, MAX_BODY, ReceiverControllerSettings, ReceiverRequestStep,
    ReceiverSelection, ReceiverWebhookRequest, WebhookAuthentication,
};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use super::receiver_resources::ReceiverResources;
use super::reconcile_requests::ReconcileRequestThrottle;
use super::webhook_body_permits::{WebhookBody, WebhookBodyPermits};
use crate::delivery::logged;
use windlass_cluster::ClusterConnection;
use windlass_cluster::run_permits::GrantedPermit;
use windlass_expressions::{ExpressionThreadError, on_thread};
use windlass_runtime::http_request::exchange;
use windlass_runtime::run_context::RunContext;

/// The longest time for judging a request and carrying it out.
const RECEIVE_LIMIT: Duration = Duration::from_secs(60);

/// The minimum age of the list of paths before an unknown path causes a new list.
const LISTED_AGAIN: Duration = Duration::from_millis(200);

/// The most concurrent requests of a Receiver. It is the number of connections that one client may have, so that no request of
/// a burst is lost. Most of these requests wait, without a body, for a permit or for the next annotation.
const AT_ONCE: usize = 128;

/// Longest time for a request to an issuer of tokens, and how many one request of a webhook may cause.
const FETCH_LIMIT: Duration = Duration::from_secs(10);
const MAX_FETCHES_PER_REQUEST: usize = 8;

/// How long an issuer's answer is cached, and how many answers are. A sender of tokens must not cause a request each time.
const KEPT_FOR: Duration = Duration::from_secs(300);
const MOST_KEPT: usize = 64;
const LARGEST_KEPT: usize = 256 << 10;

/// The state that all webhook requests share.
struct WebhookService {
    context: Arc<RunContext>,
    cluster: ClusterConnection,
    wakes: ReconcileRequestThrottle,
    intake: WebhookBodyPermits,
    paths: Mutex<ReceiverPaths>,
    /// Requests under way, by Receiver.
    busy: Mutex<BTreeMap<String, usize>>,
    /// Answers of issuers, by URL.
    kept: Mutex<BTreeMap<String, (Instant, HttpResponse)>>,
}

/// The namespaces and names of Receivers by the digests of their paths, from a moment ago. A lookup compares digests, so its
/// duration reveals nothing about a path.
#[derive(Default)]
struct ReceiverPaths {
    by_digest: HashMap<PathDigest, (String, String)>,
    listed: Option<Instant>,
}

type PathDigest = [u8; 32];

impl ReceiverPaths {
    /// Makes the list again, unless that was done a moment ago.
    fn list(&mut self, receivers: impl FnOnce() -> Vec<Arc<Receiver>>, now: Instant) {
        let is_new = |at: Instant| now.saturating_duration_since(at) < LISTED_AGAIN;
        if self.listed.is_some_and(is_new) {
            return;
        }
        self.listed = Some(now);
        let paths = receivers().into_iter().filter_map(|receiver| {
            let place = (receiver.namespace().unwrap_or_default(), receiver.name_any());
            Some((digest_of_path(&receiver)?, place))
        });
        self.by_digest = paths.collect();
    }
}

fn digest_of_path(receiver: &Receiver) -> Option<PathDigest> {
    let path = receiver.status.as_ref()?.webhook_path.as_ref()?;
    Some(Sha256::digest(path).into())
}

/// Counts a webhook request of a Receiver as under way until this value is dropped.
struct ActiveWebhookRequest<'a>(&'a WebhookService, String);

impl Drop for ActiveWebhookRequest<'_> {
    fn drop(&mut self) {
        let mut busy = self.0.busy.lock();
        if let Some(count) = busy.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                busy.remove(&self.1);
            }
        }
    }
}

/// The router that takes webhook requests and hands them to the Receivers.
pub fn hooks(context: Arc<RunContext>) -> Router {
    let hooks = Arc::new(WebhookService {
        cluster: context.cluster.asking(),
        context,
        wakes: ReconcileRequestThrottle::default(),
        intake: WebhookBodyPermits::default(),
        paths: Mutex::default(),
        busy: Mutex::default(),
        kept: Mutex::default(),
    });
    // Parity(flux): any method, and the path as it was sent.
    Router::new().fallback(take).with_state(hooks)
}

async fn take(State(hooks): State<Arc<WebhookService>>, request: Request) -> StatusCode {
    // The event of a webhook happened before the webhook was sent. An annotation from now on therefore counts for it.
    let came = tokio::time::Instant::now();
    // Parity(flux): the length is checked before anything else. Differs(flux): a body without a length is read only
    // once a Receiver is found for it.
    let length =
        request.headers().get(CONTENT_LENGTH).and_then(|it| it.to_str().ok()?.parse().ok());
    if length.is_some_and(|length: usize| length > MAX_BODY) {
        return StatusCode::PAYLOAD_TOO_LARGE;
    }
    let uri = request.uri().path_and_query().map_or("", |it| it.as_str());
    let Some(receiver) = hooks.find(uri) else { return StatusCode::NOT_FOUND };
    let namespace = receiver.namespace().unwrap_or_default();
    let name = receiver.name_any();
    let answer = match hooks.enter(&format!("{namespace}/{name}")) {
        None => Err((503, "too many requests are under way".to_owned())),
        Some(_under_way) => {
            let headers = request.headers().iter().map(|(name, value)| {
                (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
            });
            let headers = headers.collect();
            let WebhookBody { body, permit } =
                match hooks.intake.read(&namespace, request.into_body()).await {
                    Ok(received) => received,
                    Err(unread) => return unread,
                };
            let hook = ReceiverWebhookRequest { headers, body };
            let received = hooks.receive(&namespace, &receiver, hook, permit, came);
            let received = tokio::time::timeout(RECEIVE_LIMIT, received).await;
            let late = |_| Err((503, format!("it took longer than {RECEIVE_LIMIT:?}")));
            received.unwrap_or_else(late)
        }
    };
    let status = answer.unwrap_or_else(|(status, why)| {
        tracing::info!(
            controller_kind = "Receiver",
            name,
            namespace,
            status,
            why = logged(&why),
            "webhook rejected"
        );
        status
    });
    StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

impl WebhookService {
    /// The Receiver whose webhook path is that of the request. `None` if no Receiver has this path.
    fn find(&self, uri: &str) -> Option<Arc<Receiver>> {
        let wanted = PathDigest::from(Sha256::digest(uri));
        let mut paths = self.paths.lock();
        let known = |paths: &ReceiverPaths| {
            let (namespace, name) = paths.by_digest.get(&wanted)?;
            let receiver = self.context.seen::<Receiver>(namespace, name)?;
            (digest_of_path(&receiver) == Some(wanted)).then_some(receiver)
        };
        known(&paths).or_else(|| {
            paths.list(|| self.context.store::<Receiver>().state(), Instant::now());
            known(&paths)
        })
    }

    fn enter(&self, name: &str) -> Option<ActiveWebhookRequest<'_>> {
        let mut busy = self.busy.lock();
        let count = busy.entry(name.to_owned()).or_default();
        (*count < AT_ONCE).then(|| {
            *count += 1;
            ActiveWebhookRequest(self, name.to_owned())
        })
    }

    fn settings(&self) -> ReceiverControllerSettings {
        ReceiverControllerSettings {
            no_cross_namespace: self.context.settings.no_cross_namespace_refs,
            allows_empty_token: false,
            now: jiff::Timestamp::now().as_second(),
        }
    }

    /// Judges a request, and returns the objects that it wakes.
    async fn judge(
        &self,
        namespace: &str,
        receiver: &Receiver,
        hook: ReceiverWebhookRequest,
    ) -> Result<ReceiverSelection, (u16, String)> {
        let engine = Arc::new(super::read(receiver).map_err(|error| (500, error))?);
        let secret = match &receiver.spec.secret_ref {
            None => None,
            Some(reference) => {
                let read = self.cluster.secret(namespace, &reference.name).await;
                // If the API server does not answer, the response says nothing about the Secret.
                let found = read.map_err(|error| (503, error.to_string()))?;
                let name = format!("{namespace}/{}", reference.name);
                found.map(|(data, _)| notify::SecretData { name, data })
            }
        };
        let accepted = self.admit(namespace, &engine, secret, hook).await?;
        self.select(namespace, &engine, accepted).await
    }

    /// Judges a request and carries it out. Returns the status of the response.
    async fn receive(
        &self,
        namespace: &str,
        receiver: &Receiver,
        hook: ReceiverWebhookRequest,
        permit: Option<GrantedPermit>,
        came: tokio::time::Instant,
    ) -> Result<u16, (u16, String)> {
        let judging = self.judge(namespace, receiver, hook);
        let selection = match &permit {
            None => judging.await,
            Some(_) => self.intake.while_granted(judging).await.unwrap_or_else(|| {
                Err((503, "it took long while other requests waited".to_owned()))
            }),
        };
        // The rest of the request waits for its turn, and holds no body any more.
        drop(permit);
        let selection = selection?;
        let mut status = selection.status;
        let mut errors = selection.errors;
        for target in &selection.targets {
            if let Err(error) = self.wakes.request(&self.cluster, target, came).await {
                status = 500;
                let kind = &target.kind;
                let name = &target.name;
                errors.push(format!(
                    "failed to annotate {kind} '{}/{name}': {error}",
                    target.namespace
                ));
            }
        }
        if !errors.is_empty() {
            return Err((status, errors.join("; ")));
        }
        tracing::info!(
            controller_kind = "Receiver",
            name = receiver.name_any(),
            namespace,
            objects = selection.targets.len(),
            "webhook accepted"
        );
        Ok(status)
    }

    /// Whether a request counts. The keys of issuers are fetched meanwhile.
    async fn admit(
        &self,
        namespace: &str,
        receiver: &Arc<receivers::Receiver>,
        secret: Option<notify::SecretData>,
        hook: ReceiverWebhookRequest,
    ) -> Result<AcceptedHookRequest, (u16, String)> {
        let broken = |error: ExpressionThreadError| (500, error.to_string());
        let settings = self.settings();
        let begin = {
            let receiver = receiver.clone();
            move || WebhookAuthentication::start(hook, &receiver, secret.as_ref(), settings)
        };
        let (mut reception, mut gate) = on_thread(namespace, begin).await.map_err(broken)?;
        for _ in 0..MAX_FETCHES_PER_REQUEST {
            match gate {
                ReceiverRequestStep::Accepted(accepted) => return Ok(accepted),
                ReceiverRequestStep::Refused(status, why) => return Err((status, why)),
                ReceiverRequestStep::Fetch(request) => {
                    let outcome = self.fetch(&request).await;
                    let go_on = move || {
                        let gate = reception.answer(outcome);
                        (reception, gate)
                    };
                    (reception, gate) = on_thread(namespace, go_on).await.map_err(broken)?;
                }
            }
        }
        Err((400, "the issuer of the token asks for too many requests".to_owned()))
    }

    /// Asks an issuer, or returns its answer from a moment ago.
    async fn fetch(&self, request: &notify::ProviderRequest) -> notify::MessageSendResult {
        {
            let mut kept = self.kept.lock();
            kept.retain(|_, (at, _)| at.elapsed() < KEPT_FOR);
            if let Some((_, answer)) = kept.get(&request.url) {
                return Ok(answer.clone());
            }
        }
        let asked = exchange(&self.context.remotes.http, request);
        let outcome = match tokio::time::timeout(FETCH_LIMIT, asked).await {
            Ok(outcome) => outcome,
            Err(_) => Err((format!("the issuer did not respond within {FETCH_LIMIT:?}"), true)),
        };
        if let Ok(answer) = &outcome
            && answer.status == 200
            && answer.body.len() <= LARGEST_KEPT
        {
            let mut kept = self.kept.lock();
            if kept.len() < MOST_KEPT {
                kept.insert(request.url.clone(), (Instant::now(), answer.clone()));
            }
        }
        outcome
    }

    /// The objects to reconcile. It reads the objects that the Receiver names, and applies the filters.
    async fn select(
        &self,
        namespace: &str,
        receiver: &Arc<receivers::Receiver>,
        accepted: AcceptedHookRequest,
    ) -> Result<ReceiverSelection, (u16, String)> {
        let named = Arc::new(ReceiverResources::default());
        let accepted = Arc::new(accepted);
        let settings = self.settings();
        // The first evaluation finds out which objects are named, and the second one has all of them.
        let mut looks = 0;
        loop {
            looks += 1;
            let look = {
                // A request that ended meanwhile leaves nothing in the queue of the thread.
                let named = Arc::downgrade(&named);
                let accepted = Arc::downgrade(&accepted);
                let receiver = receiver.clone();
                move || match named.upgrade().zip(accepted.upgrade()) {
                    Some((named, accepted)) => accepted.select(&receiver, &*named, settings),
                    None => ReceiverSelection::default(),
                }
            };
            let selection =
                on_thread(namespace, look).await.map_err(|error| (500, error.to_string()))?;
            let read = named.read(&self.cluster, namespace).await;
            let is_more = read.map_err(|error| (500, error.to_string()))?;
            if !is_more || looks > 2 {
                return Ok(selection);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn receiver(name: &str, path: Option<&str>) -> Arc<Receiver> {
        let receiver = serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "apps"},
            "spec": {"type": "generic", "resources": []},
            "status": {"webhookPath": path},
        }));
        Arc::new(receiver.unwrap())
    }

    #[test]
    fn paths_are_listed_again_after_a_moment_only() {
        let begin = Instant::now();
        let mut paths = ReceiverPaths::default();
        let mut names = |at: Duration, receivers: Vec<Arc<Receiver>>| {
            paths.list(|| receivers, begin + at);
            let mut names: Vec<_> =
                paths.by_digest.values().map(|(_, name)| name.clone()).collect();
            names.sort();
            names
        };
        let first = vec![receiver("one", Some("/hook/1")), receiver("new", None)];
        assert_eq!(names(Duration::ZERO, first), ["one"]);
        let both = || vec![receiver("one", Some("/hook/1")), receiver("two", Some("/hook/2"))];
        assert_eq!(names(Duration::from_millis(10), both()), ["one"]);
        assert_eq!(names(LISTED_AGAIN, both()), ["one", "two"]);
        let wanted = PathDigest::from(Sha256::digest("/hook/2"));
        assert_eq!(paths.by_digest[&wanted].1, "two");
    }
}
