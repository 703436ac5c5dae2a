//! One check of the condition that a handler of a Lifecycle waits for.
//!
//! Elsewhere: the meaning of results (engine `lifecycle`), the next check (`super`), Jobs (`job.rs`), and checks that wait for
//! the end of a suspension (`subject_suspension.rs`).

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Duration;

use crds::Applier;
use crds::helm::HelmRelease;
use crds::helmfile::{Helmfile, SuspendedRelease, mumoshu_helmfile};
use crds::kustomize::Kustomization;
use crds::operation_lifecycle::{
    HttpMethod, LifecycleEvent, LifecycleHttpCheckHandler, LifecycleJobHandler,
    LifecycleReleaseRevision, LifecycleWaitForHandler,
};
use gocel::CelExpression;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method};
use http_client::{HttpClientCache, TlsConfig};
use kube_core::{Resource as _, ResourceExt as _};
use lifecycle::{
    HandlerOutcome, LifecycleHandlerVariables, VariableEscapingContext, measurement, pause,
    promoted,
};
use objects::{Gvk, Object};
use reconcile::{RunOutcome, Time};
use serde_json::{Value, json};
use url::Url;

use super::subject_suspension::suspension;
use super::{DEFAULT_CHECK_INTERVAL, LifecycleEventHandler, job};
use crate::cluster_target::TargetSpec;
use crate::http_request::{HttpMessage, send};
use crate::lifecycle::watched_object_cache::WatchedObjectCache;
use crate::run_context::RunContext;
use windlass_cluster::referenced_secrets_and_config_maps::RunReferenceReads;
use windlass_cluster::windlass_kind::WindlassKind;
use windlass_expressions::on_thread;

/// The time limit of a request to a web server.
const HTTP_CHECK_TIMEOUT: Duration = Duration::from_secs(20);

/// The most bytes of an answer that are read.
const MAX_BODY: usize = 1 << 20;

/// The longest message, in bytes.
const MAX_MESSAGE: usize = 1000;

/// How often a Job is checked.
const JOB_INTERVAL: Duration = Duration::from_secs(3);

/// The clients for servers that Lifecycles name. Only administrators of the cluster write Lifecycles, so these may name
/// Services.
#[derive(Default)]
struct LifecycleCheckHttpClients(OnceLock<HttpClientCache>);

/// The object that waits for the check.
pub(super) struct LifecycleCheckSubject {
    service_account: Option<String>,
    /// The reason why nothing new is started for the object now.
    suspension: Option<String>,
}

impl LifecycleCheckSubject {
    /// The object of an event. `None` if this process does not reconcile it.
    pub(super) fn of(context: &RunContext, event: &LifecycleEvent) -> Option<Self> {
        let subject = &event.spec.subject;
        let is = |group: &str, kind: &str| {
            (subject.group.as_str(), subject.kind.as_str()) == (group, kind)
        };
        fn seen<K: WindlassKind + Applier>(
            context: &RunContext,
            event: &LifecycleEvent,
            suspended_releases: fn(&K) -> &[SuspendedRelease],
        ) -> Option<LifecycleCheckSubject> {
            let subject = &event.spec.subject;
            let namespace = event.namespace().unwrap_or_default();
            let object = context.seen::<K>(&namespace, &subject.name)?;
            let service_account = object.service_account_name().map(str::to_owned);
            let suspension =
                suspension(&*object, suspended_releases(&object), event, jiff::Timestamp::now());
            (object.meta().uid.as_ref() == Some(&subject.uid))
                .then_some(LifecycleCheckSubject { service_account, suspension })
        }
        macro_rules! first {
            ($($kind:ty),*) => {
                $(if is(&<$kind>::group(&()), &<$kind>::kind(&())) {
                    return seen::<$kind>(context, event, |_| &[]);
                })*
            };
        }
        if is(&Helmfile::group(&()), &Helmfile::kind(&())) {
            return seen::<Helmfile>(context, event, |it| &it.spec.suspended_releases);
        }
        first!(HelmRelease, Kustomization, mumoshu_helmfile::Helmfile);
        None
    }
}

/// Performs one check. Returns its result and when to check again.
pub(super) async fn check(
    context: &RunContext,
    event: &LifecycleEvent,
    subject: &LifecycleCheckSubject,
    handler: &LifecycleEventHandler,
) -> (HandlerOutcome, Duration) {
    let now = jiff::Timestamp::now();
    let created = event.creation_timestamp().map_or(now, |at| at.0);
    let check = LifecycleHandlerCheck { context, event, variables: variables(event) };
    match handler {
        LifecycleEventHandler::Pause(duration) => {
            let until = created.saturating_add(*duration).unwrap_or(Time::MAX);
            let left = Duration::try_from(until.duration_since(now)).unwrap_or_default();
            (pause(created, *duration, now), left.max(super::LEAST_INTERVAL))
        }
        LifecycleEventHandler::WaitFor(wait, interval) => (check.object(wait).await, *interval),
        LifecycleEventHandler::Http(http, interval) => match &subject.suspension {
            // A `POST` may start something at the server.
            Some(why) if http.method == Some(HttpMethod::Post) => {
                (HandlerOutcome::Wait(format!("{why}; the request is sent on resume")), *interval)
            }
            _ => (check.server(http).await, *interval),
        },
        LifecycleEventHandler::Metrics { address, query, bounds, duration, interval } => {
            let found = match check.query(address, query).await {
                Ok(body) => measurement(&body, *bounds),
                Err(why) => HandlerOutcome::Wait(why),
            };
            let left = created.saturating_add(*duration).unwrap_or(Time::MAX).duration_since(now);
            let left = Duration::try_from(left).unwrap_or_default();
            let again = if left.is_zero() { *interval } else { (*interval).min(left) };
            (promoted(found, created, *duration, now), again.max(super::LEAST_INTERVAL))
        }
        LifecycleEventHandler::Job(job) => match check.job(job, subject).await {
            Ok(found) => (found, JOB_INTERVAL),
            Err(why) => (HandlerOutcome::Wait(why), DEFAULT_CHECK_INTERVAL),
        },
    }
}

/// The variables that texts of a handler may use.
fn variables(event: &LifecycleEvent) -> LifecycleHandlerVariables {
    let spec = &event.spec;
    let subject = &event.spec.subject;
    let mut own = BTreeMap::from([
        ("lifecycle", spec.lifecycle.clone()),
        ("phase", spec.phase.as_str().to_owned()),
        ("operation", spec.operation.clone()),
        ("subject", subject.name.clone()),
        ("subjectKind", subject.kind.clone()),
        ("subjectNamespace", subject.namespace.clone()),
    ]);
    let release = subject.release.as_ref();
    own.insert("release", release.map_or_else(|| subject.name.clone(), |it| it.name.clone()));
    own.insert(
        "releaseNamespace",
        release.map_or_else(|| subject.namespace.clone(), |it| it.namespace.clone()),
    );
    let of = |revision: &Option<LifecycleReleaseRevision>| revision.clone().unwrap_or_default();
    let from = of(&spec.from);
    let to = of(&spec.to);
    own.insert("fromRevision", from.revision);
    own.insert("fromChartVersion", from.chart_version.unwrap_or_default());
    own.insert("toRevision", to.revision);
    own.insert("toChart", to.chart.unwrap_or_default());
    own.insert("toChartVersion", to.chart_version.unwrap_or_default());
    LifecycleHandlerVariables::new(own, spec.parameters.clone())
}

/// Shortens a message for a status.
pub(super) fn shortened(text: &str) -> String {
    if text.len() <= MAX_MESSAGE {
        return text.to_owned();
    }
    let end = (0..=MAX_MESSAGE).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    format!("{}…", &text[..end])
}

struct LifecycleHandlerCheck<'l> {
    context: &'l RunContext,
    event: &'l LifecycleEvent,
    variables: LifecycleHandlerVariables,
}

impl LifecycleHandlerCheck<'_> {
    fn fill(
        &self,
        field: &str,
        text: &str,
        place: VariableEscapingContext,
    ) -> Result<String, String> {
        self.variables.fill(text, place).map_err(|error| format!("spec.handler.{field}: {error}"))
    }

    fn event_value(&self) -> Value {
        serde_json::to_value(&self.event.spec).unwrap_or_default()
    }

    /// Evaluates the expressions of a handler over a value and the event. The one for failures comes first.
    async fn judge(
        &self,
        field: &'static str,
        name: &'static str,
        value: Value,
        good: Option<&String>,
        bad: Option<&String>,
    ) -> HandlerOutcome {
        let good = good.cloned();
        let bad = bad.cloned();
        let event = self.event_value();
        let judge = move || {
            let holds = |of: &str, text: &Option<String>| {
                let Some(text) = text else { return Ok(None) };
                let said = CelExpression::compile(text, &[name, "event"])
                    .and_then(|it| it.evaluate_bool(&[(name, &value), ("event", &event)]));
                said.map(Some).map_err(|error| format!("spec.handler.{field}.{of}: {error}"))
            };
            match holds("failureExpression", &bad) {
                Ok(Some(true)) => {
                    return HandlerOutcome::Bad("the failureExpression is true".to_owned());
                }
                Ok(_) => {}
                Err(why) => return HandlerOutcome::Wait(why),
            }
            match holds("expression", &good) {
                Ok(Some(true)) => HandlerOutcome::Good("the expression is true".to_owned()),
                Ok(Some(false)) => {
                    HandlerOutcome::Wait("the expression is not true yet".to_owned())
                }
                Ok(None) => HandlerOutcome::Wait(String::new()),
                Err(why) => HandlerOutcome::Wait(why),
            }
        };
        let namespace = self.event.namespace().unwrap_or_default();
        on_thread(&namespace, judge)
            .await
            .unwrap_or_else(|broken| HandlerOutcome::Wait(broken.to_string()))
    }

    async fn object(&self, wait: &LifecycleWaitForHandler) -> HandlerOutcome {
        let (object, shown) = match self.read(wait).await {
            Ok(read) => read,
            Err(why) => return HandlerOutcome::Wait(why),
        };
        let Some(object) = object else {
            return HandlerOutcome::Wait(format!("{shown} does not exist"));
        };
        let object = object.into_value();
        let good = Some(&wait.expression);
        let bad = wait.failure_expression.as_ref();
        let found = self.judge("waitFor", "object", object, good, bad).await;
        about(&shown, found)
    }

    async fn read(
        &self,
        wait: &LifecycleWaitForHandler,
    ) -> Result<(Option<Object>, String), String> {
        let name = self.fill("waitFor.name", &wait.name, VariableEscapingContext::Name)?;
        let own = self.event.namespace().unwrap_or_default();
        let namespace = match &wait.namespace {
            Some(namespace) => {
                self.fill("waitFor.namespace", namespace, VariableEscapingContext::Name)?
            }
            None => own,
        };
        let gvk = Gvk::new(&wait.api_version, &wait.kind);
        let cluster = &self.context.cluster;
        let resource = cluster.resource(&gvk).await.map_err(|error| error.to_string())?;
        let namespace = if resource.namespaced { namespace } else { String::new() };
        let shown = match namespace.as_str() {
            "" => format!("{} {name}", wait.kind),
            namespace => format!("{} {namespace}/{name}", wait.kind),
        };
        let object = cluster.get(&resource, &namespace, &name).await;
        object.map(|object| (object, shown)).map_err(|error| error.to_string())
    }

    async fn server(&self, check: &LifecycleHttpCheckHandler) -> HandlerOutcome {
        let method = check.method.unwrap_or_default();
        let answer = match self.fill("httpCheck.url", &check.url, VariableEscapingContext::Url) {
            Ok(url) => self.ask(&url, method).await,
            Err(why) => Err(why),
        };
        let (status, body) = match answer {
            Ok(answer) => answer,
            Err(why) => return HandlerOutcome::Wait(why),
        };
        let shown = format!("the server answered with status {status}");
        if check.expression.is_none() && check.failure_expression.is_none() {
            return match (200..300).contains(&status) {
                true => HandlerOutcome::Good(shown),
                false => HandlerOutcome::Wait(shown),
            };
        }
        let json = serde_json::from_slice::<Value>(&body).unwrap_or_default();
        let text = String::from_utf8_lossy(&body);
        let response = json!({"status": status, "body": text, "json": json});
        let is_default = check.expression.is_none() && (200..300).contains(&status);
        let good = check.expression.as_ref();
        let bad = check.failure_expression.as_ref();
        match self.judge("httpCheck", "response", response, good, bad).await {
            HandlerOutcome::Wait(text) if text.is_empty() && is_default => {
                HandlerOutcome::Good(shown)
            }
            HandlerOutcome::Wait(text) if text.is_empty() => HandlerOutcome::Wait(shown),
            found => about(&shown, found),
        }
    }

    /// Sends a request, and returns the status code and the body of the answer.
    async fn ask(&self, url: &str, method: HttpMethod) -> Result<(u16, Vec<u8>), String> {
        let url = Url::parse(url).map_err(|error| format!("invalid URL: {error}"))?;
        let servers = self.context.shared::<LifecycleCheckHttpClients>();
        let egress = &self.context.remotes.artifacts;
        let clients = servers.0.get_or_init(|| HttpClientCache::within(egress.clone()));
        let mut headers = HeaderMap::new();
        let (method, body) = match method {
            HttpMethod::Get => (Method::GET, Vec::new()),
            HttpMethod::Head => (Method::HEAD, Vec::new()),
            HttpMethod::Post => {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                (Method::POST, self.event_value().to_string().into_bytes())
            }
        };
        let http_message = HttpMessage { method, url, headers, body };
        let tls = TlsConfig::default();
        let sent = send(clients, &tls, None, http_message, MAX_BODY);
        match tokio::time::timeout(HTTP_CHECK_TIMEOUT, sent).await {
            Ok(Ok(answer)) => Ok((answer.status, answer.body)),
            Ok(Err((why, _))) => Err(why),
            Err(_) => Err(format!("the server did not answer within {HTTP_CHECK_TIMEOUT:?}")),
        }
    }

    async fn query(&self, address: &str, query: &str) -> Result<Vec<u8>, String> {
        let query = self.fill("metrics.query", query, VariableEscapingContext::Query)?;
        let address = format!("{}/api/v1/query", address.trim_end_matches('/'));
        let mut url = Url::parse(&address).map_err(|error| format!("invalid URL: {error}"))?;
        url.query_pairs_mut().append_pair("query", &query);
        // Prometheus answers a wrong query with 400 and gives the reason in the body.
        let (status, body) = self.ask(url.as_str(), HttpMethod::Get).await?;
        match (200..300).contains(&status) || status == 400 || status == 422 {
            true => Ok(body),
            false => Err(format!("the server answered the query with status {status}")),
        }
    }

    /// Creates the Job of the event, in the name of the user that applies its object. If the Job exists, returns its progress.
    async fn job(
        &self,
        job: &LifecycleJobHandler,
        subject: &LifecycleCheckSubject,
    ) -> Result<HandlerOutcome, String> {
        let context = self.context;
        let namespace = self.event.namespace().unwrap_or_default();
        let account = subject.service_account.as_deref();
        let wanted = TargetSpec::new(&context.settings, &namespace, None, account);
        let mut references = RunReferenceReads::new(&context.watcher);
        let target = context.targets.of(&wanted, &mut references).await;
        let target = target.map_err(|outcome| outcome_text(&outcome))?;
        let variables = self.variables.environment();
        let wanted = job::manifest(job, self.event, &namespace, &variables)?;
        // The watch may have seen newer progress since this task began. An earlier task may have created the Job.
        let name = self.event.name_any();
        let seen = context.shared::<WatchedObjectCache<LifecycleEvent>>().get(&namespace, &name);
        let seen = seen.filter(|it| it.uid() == self.event.uid());
        let event = seen.as_deref().unwrap_or(self.event);
        let suspension = subject.suspension.as_deref();
        job::check(&context.cluster, &target.cluster, event, &wanted, suspension).await
    }
}

fn outcome_text(outcome: &RunOutcome) -> String {
    match outcome {
        RunOutcome::Failed(_, text, _) | RunOutcome::Stalled(_, text) => text.clone(),
        other => format!("{other:?}"),
    }
}

fn about(what: &str, found: HandlerOutcome) -> HandlerOutcome {
    match found {
        HandlerOutcome::Wait(text) => HandlerOutcome::Wait(format!("{what}: {text}")),
        HandlerOutcome::Good(text) => HandlerOutcome::Good(format!("{what}: {text}")),
        HandlerOutcome::Bad(text) => HandlerOutcome::Bad(format!("{what}: {text}")),
    }
}
