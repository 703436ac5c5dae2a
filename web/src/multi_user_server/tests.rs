//! Tests of requests without a session, and of forged forms.

use axum::http::header::{COOKIE, HOST, LOCATION, ORIGIN};
use fake_cluster::RecordedWrites;
use futures::stream;
use objects::RedactedValue;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::spawn_local;

use super::*;

fn state(readers: mpsc::Sender<SessionReaderMessage>) -> MultiUserServerState {
    let login = LoginOptions {
        base_url: "https://windlass.example".to_owned(),
        issuer: "https://127.0.0.1:1".to_owned(),
        client_id: "windlass".to_owned(),
        client_secret: None,
        authorities: None,
        scopes: Vec::new(),
        session_key: Some(RedactedValue::new(vec![7; 32])),
    };
    let guard = MultiUserRequestGuard::new(&login::base_url(&login.base_url).unwrap());
    MultiUserServerState { guard, login: LoginService::new(login).unwrap(), readers }
}

/// The answer to a GET request without a reader of any session.
async fn answer(target: &str, lines: &[(&str, &str)]) -> Response {
    // This channel has no receiver, so requests for pages are dropped.
    let (readers, _) = mpsc::channel(1);
    read(&state(readers), target, lines).await
}

async fn read(state: &MultiUserServerState, target: &str, lines: &[(&str, &str)]) -> Response {
    let mut request = Request::get(target).header(HOST, "windlass.example");
    for (name, value) in lines {
        request = request.header(*name, *value);
    }
    respond(state, request.body(Body::empty()).unwrap()).await
}

async fn text(response: Response) -> String {
    let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test]
async fn without_a_session_there_is_no_page_and_a_browser_is_sent_to_log_in() {
    let page = answer("/objects?q=a&ns=b", &[]).await;
    assert_eq!(page.status(), StatusCode::SEE_OTHER);
    assert_eq!(page.headers()[LOCATION], "/login?return=%2Fobjects%3Fq%3Da%26ns%3Db");
    let json = answer("/objects", &[("accept", "application/json")]).await;
    assert_eq!(json.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(answer("/_/live?page=/", &[]).await.status(), StatusCode::UNAUTHORIZED);
    let forged = [("cookie", "__Host-windlass-session-0=AAAA")];
    assert_eq!(answer("/me", &forged).await.status(), StatusCode::SEE_OTHER);
    let style = answer(assets::style_path(), &[]).await;
    assert_eq!(style.status(), StatusCode::OK);
}

#[tokio::test]
async fn an_issuer_that_is_away_and_a_callback_without_login_are_refused() {
    assert_eq!(answer("/login", &[]).await.status(), StatusCode::BAD_GATEWAY);
    let forged = answer("/callback?code=a&state=b", &[]).await;
    assert_eq!(forged.status(), StatusCode::FORBIDDEN);
    assert!(forged.headers()["content-security-policy"].to_str().unwrap().contains("'none'"));
}

/// A replica of the pages, the requests that it sent to the API server, and the browsers of its users.
struct Replica {
    state: MultiUserServerState,
    writes: RecordedWrites,
    /// The headers `Cookie` of two users.
    alice: String,
    bob: String,
}

impl Replica {
    /// Starts the readers of sessions in the `LocalSet` of the test.
    async fn start() -> Self {
        let object = |name: &str| {
            json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
                "metadata": {"name": name, "namespace": "apps", "uid": "u", "resourceVersion": "7",
                    "generation": 2}})
        };
        let objects: Vec<Value> = ["web", "db"].map(object).into();
        let (cluster, writes) = fake_cluster::with_objects(objects).await;
        let (readers, orders) = mpsc::channel(8);
        let stop = CancellationToken::new();
        let plans = BranchPlanService::new(EgressRules::with_loopback(), None);
        let sessions = SessionReaders::new(cluster, plans, MetricsRegistry::new(), 8, stop);
        drop(spawn_local(sessions.serve(orders)));
        let state = state(readers);
        let now = Timestamp::now().as_second();
        let cookies = |user: &str| {
            state.login.sample_cookies(&state.login.sample_session(user, now + 600), now)
        };
        let [alice, bob] = ["alice", "bob"].map(cookies);
        Self { state, writes, alice, bob }
    }

    /// The fields of a form of the page of an object, as a browser sends them.
    async fn form(&self, cookies: &str, action: &str) -> String {
        let page = read(&self.state, "/o/ks/apps/web/yaml", &[("cookie", cookies)]).await;
        let page = text(page).await;
        let named = format!("name=\"action\" value=\"{action}\"");
        let form = page.split("<form ").find(|form| form.contains(&named));
        let form = form.unwrap_or_else(|| panic!("no form to {action}: {page}"));
        let hidden = form.split("type=\"hidden\" name=\"").skip(1).map(|rest| {
            let (name, rest) = rest.split_once("\" value=\"").unwrap();
            format!("{name}={}", rest.split_once('"').unwrap().0)
        });
        let fields = hidden.collect::<Vec<_>>().join("&");
        format!("{fields}&reason=incident-1&until=2h")
    }

    async fn sent(&self, lines: &[(&str, &str)], fields: &str) -> Response {
        self.received(lines, Body::from(fields.to_owned())).await
    }

    async fn received(&self, lines: &[(&str, &str)], body: Body) -> Response {
        let mut request = Request::post(ACTION_PATH).header(HOST, "windlass.example");
        for (name, value) in lines.iter().filter(|(_, value)| !value.is_empty()) {
            request = request.header(*name, *value);
        }
        respond(&self.state, request.body(body).unwrap()).await
    }

    /// Ends the session of a browser as a page of this server does.
    async fn log_out(&self, cookies: &str) {
        let logout = Request::post(LOGOUT_PATH).header(HOST, "windlass.example");
        let logout = logout.header(COOKIE, cookies).header(ORIGIN, "https://windlass.example");
        let reply = respond(&self.state, logout.body(Body::empty()).unwrap()).await;
        assert_eq!(reply.status(), StatusCode::OK);
    }

    /// Sends a form as a browser does for a page of this server.
    async fn sent_by(&self, cookies: &str, fields: &str) -> Response {
        self.sent(&own_lines(cookies), fields).await
    }

    fn patches(&self) -> Vec<String> {
        self.writes.lock().iter().filter(|it| it.starts_with("PATCH ")).cloned().collect()
    }
}

fn own_lines(cookies: &str) -> [(&str, &str); 4] {
    [
        ("cookie", cookies),
        ("origin", "https://windlass.example"),
        ("content-type", "application/x-www-form-urlencoded"),
        ("sec-fetch-site", "same-origin"),
    ]
}

#[tokio::test]
async fn forged_forms_are_refused_and_nothing_is_written() {
    LocalSet::new()
        .run_until(async {
            let replica = Replica::start().await;
            let form = replica.form(&replica.alice, "suspend").await;
            let own = own_lines(&replica.alice);
            for (name, value) in [
                ("origin", ""),
                ("origin", "null"),
                ("origin", "https://evil.example"),
                ("origin", "https://other.windlass.example"),
                ("origin", "http://windlass.example"),
                ("sec-fetch-site", "same-site"),
                ("sec-fetch-site", "cross-site"),
                ("content-type", "text/plain"),
            ] {
                let forged = own.map(|line| if line.0 == name { (name, value) } else { line });
                let reply = replica.sent(&forged, &form).await;
                assert_eq!(reply.status(), StatusCode::FORBIDDEN, "{name}: {value}");
            }
            let twice = [own.as_slice(), &[("origin", "https://evil.example")]].concat();
            assert_eq!(replica.sent(&twice, &form).await.status(), StatusCode::FORBIDDEN);
            // The last value of a field counts.
            for field in [
                "seal=",
                &format!("seal={}", "00".repeat(32)),
                "action=resume",
                "name=db",
                "namespace=other",
                "version=8",
                "uid=v",
            ] {
                let reply = replica.sent_by(&replica.alice, &format!("{form}&{field}")).await;
                assert_eq!(reply.status(), StatusCode::FORBIDDEN, "{field}");
            }
            // A form is of one session. So bob cannot make the browser of alice send his form, and cannot send that of alice.
            let of_bob = replica.form(&replica.bob, "suspend").await;
            let login = &replica.state.login;
            let now = Timestamp::now().as_second();
            let another = login.sample_session("alice", now + 600);
            let another = UserSession { id: "another".to_owned(), ..another };
            let another = login.sample_cookies(&another, now);
            for (cookies, form) in
                [(&replica.alice, &of_bob), (&replica.bob, &form), (&another, &form)]
            {
                let reply = replica.sent_by(cookies, form).await;
                assert_eq!(reply.status(), StatusCode::FORBIDDEN);
                assert!(text(reply).await.contains("this form is not of a page of this session"));
            }
            let target = format!("{ACTION_PATH}?{form}");
            let opened = read(&replica.state, &target, &own).await;
            assert_eq!(opened.status(), StatusCode::NOT_FOUND, "an address does nothing");
            assert_eq!(replica.patches(), Vec::<String>::new());
            let reply = replica.sent_by(&replica.alice, &form).await;
            assert_eq!(reply.status(), StatusCode::SEE_OTHER, "the form itself counts");
            assert_eq!(replica.patches().len(), 1);
        })
        .await;
}

#[tokio::test]
async fn a_form_without_a_session_does_nothing_and_leads_to_a_login() {
    LocalSet::new()
        .run_until(async {
            let replica = Replica::start().await;
            let form = replica.form(&replica.alice, "suspend").await;
            let now = Timestamp::now().as_second();
            let over = replica.state.login.sample_session("alice", now);
            let over = replica.state.login.sample_cookies(&over, now - 60);
            let referer = ("referer", "https://windlass.example/o/ks/apps/web?done=a");
            for cookies in ["", "__Host-windlass-session-0=AAAA", &over] {
                let lines = [own_lines(cookies).as_slice(), &[referer]].concat();
                let reply = replica.sent(&lines, &form).await;
                assert_eq!(reply.status(), StatusCode::UNAUTHORIZED, "{cookies}");
                let page = text(reply).await;
                let login = "href=\"/login?return=%2Fo%2Fks%2Fapps%2Fweb%3Fdone%3Da\"";
                assert!(page.contains("Nothing was done") && page.contains(login), "{page}");
            }
            let json = [own_lines("").as_slice(), &[("accept", "application/json")]].concat();
            let reply = text(replica.sent(&json, &form).await).await;
            assert!(reply.contains("nothing was done: log in again"), "{reply}");
            // A logout ends the session, and so its forms.
            replica.log_out(&replica.alice).await;
            let reply = replica.sent_by(&replica.alice, &form).await;
            assert_eq!(reply.status(), StatusCode::UNAUTHORIZED);
            assert_eq!(replica.patches(), Vec::<String>::new());
        })
        .await;
}

#[tokio::test]
async fn a_form_that_is_complete_only_after_the_logout_does_nothing() {
    LocalSet::new()
        .run_until(async {
            let replica = Replica::start().await;
            let form = replica.form(&replica.alice, "suspend").await;
            let (complete, content) = oneshot::channel::<String>();
            let own = own_lines(&replica.alice);
            let body = Body::from_stream(stream::once(content));
            let logging_out = async {
                replica.log_out(&replica.alice).await;
                complete.send(form).unwrap();
            };
            // The request begins first, so it begins with a session.
            let (reply, ()) = tokio::join!(replica.received(&own, body), logging_out);
            assert_eq!(reply.status(), StatusCode::UNAUTHORIZED);
            assert!(text(reply).await.contains("Nothing was done"));
            assert_eq!(replica.patches(), Vec::<String>::new());
        })
        .await;
}

#[tokio::test]
async fn each_replica_carries_out_a_form_of_another_one_and_shows_its_message() {
    LocalSet::new()
        .run_until(async {
            let [first, second] = [Replica::start().await, Replica::start().await];
            let form = first.form(&first.alice, "reconcile").await;
            let reply = second.sent_by(&first.alice, &form).await;
            assert_eq!(reply.status(), StatusCode::SEE_OTHER);
            assert_eq!((first.patches().len(), second.patches().len()), (0, 1));
            let page = reply.headers()[LOCATION].to_str().unwrap().to_owned();
            let page = page.replace("/web?", "/web/yaml?");
            let said = "a reconciliation of Kustomization/apps/web is asked for";
            let cookies = [("cookie", first.alice.as_str())];
            assert!(text(read(&first.state, &page, &cookies).await).await.contains(said));
            // Another user who follows the link is not shown the message.
            let cookies = [("cookie", first.bob.as_str())];
            assert!(!text(read(&first.state, &page, &cookies).await).await.contains(said));
        })
        .await;
}

#[tokio::test]
async fn a_user_who_sends_too_many_forms_is_refused_and_others_are_not() {
    LocalSet::new()
        .run_until(async {
            let replica = Replica::start().await;
            let form = "action=suspend&kind=ks&namespace=apps&name=web&seal=00";
            for at in 0..30 {
                let reply = replica.sent_by(&replica.alice, form).await;
                assert_eq!(reply.status(), StatusCode::FORBIDDEN, "{at}");
            }
            let reply = replica.sent_by(&replica.alice, form).await;
            assert_eq!(reply.status(), StatusCode::TOO_MANY_REQUESTS);
            assert!(text(reply).await.contains("nothing was done: you sent 30 forms"));
            let reply = replica.sent_by(&replica.bob, form).await;
            assert_eq!(reply.status(), StatusCode::FORBIDDEN);
        })
        .await;
}
