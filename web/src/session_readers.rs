//! The page readers of logged-in users. Each session has its own readers, which use the token of its user. So no user sees data
//! that only another user may read.
//!
//! A reader watches the cluster while its pages are used, and carries out the actions of forms. It ends at the latest with the
//! session.
//! Elsewhere: sessions (`login.rs`), making pages (`local_server.rs`).

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use jiff::Timestamp;
use objects::clean_line;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use windlass_answers::command_scope::CommandScope;
use windlass_cluster::ClusterConnection;
use windlass_cluster::metrics::MetricsRegistry;

use super::action_limits::ActionLimits;
use super::actions::{ActionReply, FormSeal};
use super::branch_plans::BranchPlanService;
use super::frame;
use super::live_updates;
use super::local_server::{MAX_WAITING_PAGES, PageRenderer, QueuedPageRequest, refused};
use super::login::UserSession;
use super::page_data_reader::{PageDataReader, UnknownUser};
use super::response::{HTML, PageAnswer};
use super::session_refusals::SessionRefusals;

/// How many readers one user may have at once, for several browsers and namespaces. A further one ends the reader that was
/// unused for the longest time.
const MAX_READERS_PER_USER: usize = 4;

/// How long a reader keeps running after its last page was closed.
const IDLE_TIME: Duration = Duration::from_secs(120);

/// A message to the readers.
pub(crate) enum SessionReaderMessage {
    Page(Box<SessionPageRequest>),
    /// The session has ended. Its readers end, too, and its open pages receive no more events.
    End {
        session: String,
    },
}

/// The request for a page by the user of a session.
pub(crate) struct SessionPageRequest {
    pub(crate) session: UserSession,
    /// The namespace that the page reads. Empty for all namespaces.
    pub(crate) namespace: String,
    pub(crate) order: QueuedPageRequest,
}

/// Identifies the reader of a request.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct SessionReaderKey {
    session: String,
    namespace: String,
}

struct RunningSessionReader {
    subject: String,
    orders: mpsc::Sender<QueuedPageRequest>,
    used_at: Instant,
    stop: CancellationToken,
}

/// All readers of a process.
pub(crate) struct SessionReaders {
    /// The readers use only the address of the API server and its authorities from this connection.
    cluster: ClusterConnection,
    metrics: Arc<MetricsRegistry>,
    max_readers: usize,
    stop: CancellationToken,
    running: BTreeMap<SessionReaderKey, RunningSessionReader>,
    limits: ActionLimits,
    /// What readers need to plan branches.
    plans: BranchPlanService,
    /// The sessions whose users are unknown. Readers add them.
    refusals: Arc<Mutex<SessionRefusals>>,
}

impl SessionReaders {
    /// Starts without readers. `max_readers` limits how many there may be at once.
    pub(crate) fn new(
        cluster: ClusterConnection,
        plans: BranchPlanService,
        metrics: Arc<MetricsRegistry>,
        max_readers: usize,
        stop: CancellationToken,
    ) -> Self {
        let limits = ActionLimits::default();
        let refusals = Arc::default();
        let running = BTreeMap::new();
        Self { cluster, metrics, max_readers, stop, running, limits, plans, refusals }
    }

    /// Handles messages until the channel is closed. It has to run in a `LocalSet`.
    pub(crate) async fn serve(mut self, mut orders: mpsc::Receiver<SessionReaderMessage>) {
        while let Some(order) = orders.recv().await {
            self.running.retain(|_, reader| !reader.orders.is_closed());
            match order {
                SessionReaderMessage::End { session } => self.end(&session),
                SessionReaderMessage::Page(page) => self.hand(*page),
            }
        }
    }

    /// Hands a request to the reader of its session.
    fn hand(&mut self, page: SessionPageRequest) {
        let SessionPageRequest { session, namespace, mut order } = page;
        let key = SessionReaderKey { session: session.id.clone(), namespace };
        // A reader that runs knows its user. Only a new one would have to ask who the user is.
        let is_running = self.running.contains_key(&key);
        let refusal = (!is_running).then(|| self.refusals.lock().find(&session.id, Instant::now()));
        if let Some(why) = refusal.flatten() {
            refuse(order, why.status(), &why.to_string());
            return;
        }
        if let QueuedPageRequest::Act { permit, .. } = &mut order {
            match self.limits.begin(&session.subject, Instant::now()) {
                Ok(granted) => *permit = Some(granted),
                Err(why) => {
                    refuse(order, StatusCode::TOO_MANY_REQUESTS, why);
                    return;
                }
            }
        }
        match self.reader(&key, &session) {
            Ok(reader) => {
                if let Err(error) = reader.try_send(order) {
                    let why = "you ask for too much at once; try again in a moment";
                    refuse(error.into_inner(), StatusCode::SERVICE_UNAVAILABLE, why);
                }
            }
            Err(why) => refuse(order, StatusCode::SERVICE_UNAVAILABLE, why),
        }
    }

    fn end(&mut self, session: &str) {
        self.refusals.lock().remove(session);
        self.running.retain(|key, reader| {
            let is_over = key.session == session;
            if is_over {
                reader.stop.cancel();
            }
            !is_over
        });
    }

    /// Returns the reader of a session, and starts it if it does not run.
    fn reader(
        &mut self,
        key: &SessionReaderKey,
        session: &UserSession,
    ) -> Result<mpsc::Sender<QueuedPageRequest>, &'static str> {
        if let Some(running) = self.running.get_mut(key) {
            running.used_at = Instant::now();
            return Ok(running.orders.clone());
        }
        self.make_room(&session.subject);
        if self.running.len() >= self.max_readers {
            return Err(
                "as many users read pages as may at once (--web-max-users); try again in some minutes",
            );
        }
        let cluster = self.cluster.with_bearer(&session.token, &self.metrics);
        let cluster = cluster.map_err(|_error| "the token of this session cannot be used")?;
        let (orders, received) = mpsc::channel(MAX_WAITING_PAGES);
        let stop = self.stop.child_token();
        let site = CommandScope { cluster, namespace: key.namespace.clone() };
        let left = session.expires_at.saturating_sub(Timestamp::now().as_second());
        let left = Duration::from_secs(u64::try_from(left).unwrap_or_default());
        let seal = FormSeal::of_session(session);
        let refusals = UserRefusals { session: key.session.clone(), all: self.refusals.clone() };
        let inputs = SessionReaderInputs { site, seal, plans: self.plans.clone() };
        drop(spawn_local(read(inputs, received, left, stop.clone(), refusals)));
        let subject = session.subject.clone();
        let running =
            RunningSessionReader { subject, orders: orders.clone(), used_at: Instant::now(), stop };
        self.running.insert(key.clone(), running);
        Ok(orders)
    }

    /// Ends one reader of a user who already has the maximum number. So one user cannot take the places of others.
    fn make_room(&mut self, subject: &str) {
        let of_user = self.running.iter().filter(|(_, reader)| reader.subject == subject);
        if of_user.clone().count() < MAX_READERS_PER_USER {
            return;
        }
        let oldest = of_user.min_by_key(|(_, reader)| reader.used_at).map(|(key, _)| key.clone());
        if let Some(ended) = oldest.and_then(|key| self.running.remove(&key)) {
            ended.stop.cancel();
        }
    }
}

/// Where a reader says that its user is unknown.
struct UserRefusals {
    session: String,
    all: Arc<Mutex<SessionRefusals>>,
}

/// What a reader of a session begins with.
struct SessionReaderInputs {
    site: CommandScope,
    seal: FormSeal,
    plans: BranchPlanService,
}

/// Runs the reader of one session until the session ends, or until its pages were unused for some time.
async fn read(
    inputs: SessionReaderInputs,
    orders: mpsc::Receiver<QueuedPageRequest>,
    left: Duration,
    stop: CancellationToken,
    refusals: UserRefusals,
) {
    // The event streams of open pages end with the reader.
    let _ends = stop.clone().drop_guard();
    tokio::select! {
        () = make_while_used(inputs, orders, stop.clone(), refusals) => {}
        () = sleep(left) => {}
        () = stop.cancelled() => {}
    }
}

async fn make_while_used(
    inputs: SessionReaderInputs,
    mut orders: mpsc::Receiver<QueuedPageRequest>,
    stop: CancellationToken,
    refusals: UserRefusals,
) {
    let SessionReaderInputs { site, seal, plans } = inputs;
    let reader = match PageDataReader::for_login(site, seal, plans).await {
        Ok(reader) => Rc::new(reader),
        Err(why) => {
            let why = Arc::new(why);
            let UserRefusals { session, all } = refusals;
            all.lock().add(session, why.clone(), Instant::now());
            refuse_waiting(orders, &why);
            return;
        }
    };
    let renderer = PageRenderer::new(reader.clone(), stop);
    let making = async {
        loop {
            match timeout(IDLE_TIME, orders.recv()).await {
                Ok(Some(order)) => renderer.take(order).await,
                Ok(None) => return,
                Err(_elapsed) if renderer.is_idle() => return,
                Err(_elapsed) => {}
            }
        }
    };
    tokio::select! {
        () = making => {}
        () = reader.watcher.follow(&reader.site) => {}
    }
}

/// Answers the waiting orders of a reader that cannot begin. Its channel is closed, so a later request starts another reader.
fn refuse_waiting(mut orders: mpsc::Receiver<QueuedPageRequest>, why: &UnknownUser) {
    let text = why.to_string();
    tracing::warn!(error = clean_line(&text), "a user who has logged in gets no page");
    orders.close();
    while let Ok(order) = orders.try_recv() {
        refuse(order, why.status(), &text);
    }
}

/// Answers an order with an error, because no reader takes it.
fn refuse(order: QueuedPageRequest, status: StatusCode, why: &str) {
    match order {
        QueuedPageRequest::Once { page, reply } => {
            drop(reply.send(answer(status, "Not shown", why, page.wants_json)));
        }
        QueuedPageRequest::Act { wants_json, reply, .. } => {
            let why = format!("nothing was done: {why}");
            let answer = answer(status, "Not done", &why, wants_json);
            drop(reply.send(ActionReply::Refused(answer)));
        }
        QueuedPageRequest::Open(open) => live_updates::refuse(&open, why),
    }
}

fn answer(status: StatusCode, title: &str, why: &str, wants_json: bool) -> PageAnswer {
    if wants_json {
        return refused(status, why, true);
    }
    PageAnswer { status, content_type: HTML, text: frame::session_refusal(title, why) }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use http_client::EgressRules;
    use objects::RedactedValue;
    use serde_json::{Value, json};
    use tokio::sync::oneshot;
    use tokio::task::LocalSet;

    use super::*;
    use crate::page_query::PageQuery;
    use crate::pages::PageRequest;
    use crate::route::Route;

    fn session(id: &str, subject: &str) -> UserSession {
        UserSession {
            id: id.to_owned(),
            subject: subject.to_owned(),
            token: RedactedValue::new(format!("token-of-{subject}")),
            form_key: RedactedValue::default(),
            expires_at: Timestamp::now().as_second() + 600,
        }
    }

    fn ordered(
        session: UserSession,
        wants_json: bool,
    ) -> (SessionReaderMessage, oneshot::Receiver<PageAnswer>) {
        let (reply, answer) = oneshot::channel();
        let page = PageRequest { route: Route::Me, query: PageQuery::default(), wants_json };
        let order = QueuedPageRequest::Once { page, reply };
        let page = SessionPageRequest { session, namespace: "apps".to_owned(), order };
        (SessionReaderMessage::Page(Box::new(page)), answer)
    }

    fn plans() -> BranchPlanService {
        BranchPlanService::new(EgressRules::with_loopback(), None)
    }

    async fn readers(max_readers: usize) -> SessionReaders {
        let (cluster, _) = fake_cluster::with_objects(Vec::new()).await;
        let stop = CancellationToken::new();
        SessionReaders::new(cluster, plans(), MetricsRegistry::new(), max_readers, stop)
    }

    #[tokio::test]
    async fn sessions_have_readers_of_their_own_which_end_with_them() {
        LocalSet::new()
            .run_until(async {
                let mut readers = readers(8).await;
                let key = |id: &str| SessionReaderKey {
                    session: id.to_owned(),
                    namespace: String::new(),
                };
                let alice = readers.reader(&key("1"), &session("1", "alice")).unwrap();
                let bob = readers.reader(&key("2"), &session("2", "bob")).unwrap();
                let again = readers.reader(&key("1"), &session("1", "alice")).unwrap();
                assert!(alice.same_channel(&again) && !alice.same_channel(&bob));
                readers.end("1");
                alice.closed().await;
                assert!(!bob.is_closed() && readers.running.len() == 1);
                let mut over = session("3", "carol");
                over.expires_at = 0;
                readers.reader(&key("3"), &over).unwrap().closed().await;
            })
            .await;
    }

    #[tokio::test]
    async fn a_user_does_not_take_the_places_of_others_and_all_together_are_bounded() {
        LocalSet::new()
            .run_until(async {
                let mut readers = readers(MAX_READERS_PER_USER + 1).await;
                let key = |id: &str| SessionReaderKey {
                    session: id.to_owned(),
                    namespace: String::new(),
                };
                let first = readers.reader(&key("0"), &session("0", "alice")).unwrap();
                for at in 1..=MAX_READERS_PER_USER {
                    let id = at.to_string();
                    readers.reader(&key(&id), &session(&id, "alice")).unwrap();
                }
                assert_eq!(readers.running.len(), MAX_READERS_PER_USER);
                first.closed().await;
                readers.reader(&key("b"), &session("b", "bob")).unwrap();
                let (orders, received) = mpsc::channel(4);
                let (order, answer) = ordered(session("c", "carol"), true);
                assert!(orders.send(order).await.is_ok());
                drop(orders);
                readers.serve(received).await;
                let answer = answer.await.unwrap();
                assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
                assert!(answer.text.contains("--web-max-users"), "{}", answer.text);
            })
            .await;
    }

    /// The readers of a cluster whose API server allows everything.
    struct SampleReaders {
        messages: mpsc::Sender<SessionReaderMessage>,
        /// The answer of the API server to a SelfSubjectReview.
        review: Arc<Mutex<(u16, Value)>>,
    }

    impl SampleReaders {
        async fn start() -> Self {
            let review = Arc::new(Mutex::new((200, Value::Null)));
            let given = review.clone();
            let cluster = fake_cluster::answering(move |(request, _)| {
                if request.contains("selfsubjectreviews") {
                    let (code, answer) = given.lock().clone();
                    return (code, Body::from(answer.to_string()));
                }
                (200, Body::from(json!({"status": {"allowed": true}}).to_string()))
            });
            let stop = CancellationToken::new();
            let sessions =
                SessionReaders::new(cluster.await, plans(), MetricsRegistry::new(), 8, stop);
            let (messages, received) = mpsc::channel(4);
            drop(spawn_local(sessions.serve(received)));
            Self { messages, review }
        }

        async fn page(&self, id: &str, review: (u16, Value), wants_json: bool) -> PageAnswer {
            self.page_of_namespace("apps", id, review, wants_json).await
        }

        async fn page_of_namespace(
            &self,
            namespace: &str,
            id: &str,
            review: (u16, Value),
            wants_json: bool,
        ) -> PageAnswer {
            *self.review.lock() = review;
            let (mut order, answer) = ordered(session(id, "alice"), wants_json);
            if let SessionReaderMessage::Page(page) = &mut order {
                namespace.clone_into(&mut page.namespace);
            }
            assert!(self.messages.send(order).await.is_ok());
            answer.await.unwrap()
        }
    }

    fn failure(code: u16, message: &str) -> (u16, Value) {
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
            "reason": "Failed", "message": message});
        (code, status)
    }

    fn named(user: &str) -> (u16, Value) {
        (201, json!({"status": {"userInfo": {"username": user}}}))
    }

    #[tokio::test]
    async fn a_user_whom_the_api_server_does_not_name_gets_no_page() {
        LocalSet::new()
            .run_until(async {
                let readers = SampleReaders::start().await;
                let page = readers.page("1", failure(500, "etcd <b>is away"), false).await;
                assert_eq!(page.status, StatusCode::SERVICE_UNAVAILABLE);
                let said = "does not say who you are: etcd &lt;b&gt;is away; reload this page in some seconds</bdi>";
                assert!(page.text.contains(said), "{}", page.text);
                assert!(page.text.contains("<form action=\"/logout\" method=\"post\">"));
                // A further request of the session gets the same answer.
                let page = readers.page("1", named("oidc:alice"), true).await;
                assert_eq!(page.status, StatusCode::SERVICE_UNAVAILABLE, "{}", page.text);
                let page = readers.page("2", named(""), true).await;
                assert_eq!(page.status, StatusCode::SERVICE_UNAVAILABLE);
                let said = "{\"error\":\"the API server does not say who you are: its answer has no user name";
                assert!(page.text.starts_with(said), "{}", page.text);
                let page = readers.page("3", failure(403, "no reviews"), true).await;
                assert_eq!(page.status, StatusCode::FORBIDDEN);
                let said = "(no reviews): ask an administrator to bind the ClusterRole system:basic-user";
                assert!(page.text.contains(said), "{}", page.text);
                let page = readers.page("4", failure(401, "Unauthorized"), true).await;
                assert_eq!(page.status, StatusCode::UNAUTHORIZED);
                assert!(page.text.contains("(Unauthorized): log out and in again"), "{}", page.text);
                assert!(page.text.contains("--oidc-issuer-url"), "{}", page.text);
                let page = readers.page("5", named("oidc:alice"), true).await;
                assert_eq!(page.status, StatusCode::OK, "{}", page.text);
                let page = readers.page("5", named("oidc:alice"), false).await;
                assert!(page.text.contains("<footer><bdi>oidc:alice</bdi>"), "{}", page.text);
            })
            .await;
    }

    #[tokio::test]
    async fn a_reader_that_runs_goes_on_while_another_one_is_refused() {
        LocalSet::new()
            .run_until(async {
                let readers = SampleReaders::start().await;
                let page = readers.page("1", named("oidc:alice"), true).await;
                assert_eq!(page.status, StatusCode::OK, "{}", page.text);
                let away = failure(500, "etcd is away");
                let page = readers.page_of_namespace("shop", "1", away, true).await;
                assert_eq!(page.status, StatusCode::SERVICE_UNAVAILABLE, "{}", page.text);
                let page = readers.page("1", named("oidc:alice"), true).await;
                assert_eq!(page.status, StatusCode::OK, "{}", page.text);
            })
            .await;
    }
}
