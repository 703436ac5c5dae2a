//! Tests of whole logins against an issuer on loopback, including logins that are refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Form, State};
use axum::http::HeaderValue;
use axum::http::header::COOKIE;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::samples::{CLIENT, IssuerSigningKey, header};
use super::*;

/// A fake issuer on loopback.
struct Issuer {
    url: String,
    key: IssuerSigningKey,
    /// The codes that the issuer accepts once each, with the PKCE challenge of the login.
    codes: Mutex<BTreeMap<String, String>>,
    /// The claims of the next token.
    claims: Mutex<Value>,
}

async fn configuration(State(issuer): State<Arc<Issuer>>) -> Json<Value> {
    let url = &issuer.url;
    Json(json!({"issuer": url, "authorization_endpoint": format!("{url}/auth"),
        "token_endpoint": format!("{url}/token"), "jwks_uri": format!("{url}/keys"),
        "id_token_signing_alg_values_supported": ["ES256"]}))
}

async fn keys(State(issuer): State<Arc<Issuer>>) -> Json<Value> {
    Json(json!({"keys": [issuer.key.published("1")]}))
}

async fn token(
    State(issuer): State<Arc<Issuer>>,
    Form(form): Form<BTreeMap<String, String>>,
) -> Response {
    let challenge = issuer.codes.lock().remove(&form["code"]);
    let proved = URL_SAFE_NO_PAD.encode(Sha256::digest(form["code_verifier"].as_bytes()));
    if challenge != Some(proved) || form["grant_type"] != "authorization_code" {
        return (StatusCode::BAD_REQUEST, Json(json!({"error": "invalid_grant"}))).into_response();
    }
    let token = issuer.key.token(&header(), &issuer.claims.lock());
    Json(json!({"id_token": token, "access_token": "unused", "token_type": "Bearer"}))
        .into_response()
}

const NOW: i64 = 1_000_000;

struct Login {
    issuer: Arc<Issuer>,
    service: LoginService,
}

/// The query with which the issuer sends the browser back, and the cookie of the login.
struct LoginCallback {
    query: String,
    headers: HeaderMap,
}

fn with_cookies(cookies: &[String]) -> HeaderMap {
    let pairs = cookies.iter().filter_map(|it| it.split_once(';')).map(|(pair, _)| pair);
    let pairs: Vec<&str> = pairs.filter(|it| !it.ends_with('=')).collect();
    let mut headers = HeaderMap::new();
    headers.insert(COOKIE, HeaderValue::from_str(&pairs.join("; ")).unwrap());
    headers
}

fn options(issuer: &str) -> LoginOptions {
    LoginOptions {
        base_url: "https://windlass.example".to_owned(),
        issuer: issuer.to_owned(),
        client_id: CLIENT.to_owned(),
        client_secret: None,
        authorities: None,
        scopes: vec!["groups".to_owned()],
        session_key: Some(RedactedValue::new(vec![7; 32])),
    }
}

impl Login {
    async fn start() -> Self {
        let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", socket.local_addr().unwrap());
        let issuer = Arc::new(Issuer {
            url: url.clone(),
            key: IssuerSigningKey::new(),
            codes: Mutex::default(),
            claims: Mutex::default(),
        });
        let router = Router::new()
            .route("/.well-known/openid-configuration", get(configuration))
            .route("/keys", get(keys))
            .route("/token", post(token))
            .with_state(issuer.clone());
        tokio::spawn(async move { axum::serve(socket, router).await });
        Self { service: LoginService::new(options(&url)).unwrap(), issuer }
    }

    /// Begins a login, lets the user agree at the issuer, and sets one claim of the next token to `value`.
    async fn agreed(&self, claim: &str, value: Value) -> LoginCallback {
        let begun = self.service.begin("/objects?q=web", NOW).await.unwrap();
        let location = Url::parse(&begun.location).unwrap();
        let sent: BTreeMap<String, String> = location.query_pairs().into_owned().collect();
        assert!(begun.location.starts_with(&format!("{}/auth?", self.issuer.url)));
        assert_eq!(sent["redirect_uri"], "https://windlass.example/callback");
        assert_eq!((&*sent["response_type"], &*sent["scope"]), ("code", "openid groups"));
        assert_eq!(sent["code_challenge_method"], "S256");
        let mut claims = json!({"iss": self.issuer.url, "aud": CLIENT, "sub": "alice",
            "nonce": sent["nonce"], "exp": NOW + 300});
        claims[claim] = value;
        *self.issuer.claims.lock() = claims;
        self.issuer.codes.lock().insert("good".to_owned(), sent["code_challenge"].clone());
        let query = format!("code=good&state={}", sent["state"]);
        LoginCallback { query, headers: with_cookies(&begun.cookies) }
    }

    async fn returned(
        &self,
        returned: &LoginCallback,
        now: i64,
    ) -> Result<LoginRedirect, LoginRefusal> {
        let query = PageQuery::parse(&returned.query);
        self.service.finish(&returned.headers, &query, now).await
    }
}

fn refusal(ended: Result<LoginRedirect, LoginRefusal>) -> String {
    let refusal = ended.unwrap_err();
    assert_ne!(refusal.status, StatusCode::OK);
    refusal.text
}

#[tokio::test]
async fn a_login_leads_to_a_session_that_each_replica_knows_until_the_token_ends() {
    let login = Login::start().await;
    let back = login.agreed("groups", json!(["dev"])).await;
    let LoginRedirect { location, cookies } = login.returned(&back, NOW).await.unwrap();
    assert_eq!(location, "/objects?q=web");
    let headers = with_cookies(&cookies);
    let replica = LoginService::new(options(&login.issuer.url)).unwrap();
    for service in [&login.service, &replica] {
        let session = service.session(&headers, NOW + 299).unwrap();
        assert_eq!(session.subject, "alice");
        assert_eq!(session.token.expose().split('.').count(), 3);
        assert!(service.session(&headers, NOW + 300).is_none());
    }
    let session = login.service.session(&headers, NOW).unwrap();
    let gone = login.service.end(Some(&session), NOW);
    assert!(gone.iter().all(|it| it.ends_with("Max-Age=0")));
    assert!(login.service.session(&headers, NOW).is_none());
    let mut other = options(&login.issuer.url);
    other.session_key = None;
    assert!(LoginService::new(other).unwrap().session(&headers, NOW).is_none());
}

#[tokio::test]
async fn a_session_lasts_a_working_day_if_its_token_lasts_longer() {
    let login = Login::start().await;
    let back = login.agreed("exp", json!(NOW + 1_000_000)).await;
    let headers = with_cookies(&login.returned(&back, NOW).await.unwrap().cookies);
    assert!(login.service.session(&headers, NOW + MAX_SESSION_SECONDS - 1).is_some());
    assert!(login.service.session(&headers, NOW + MAX_SESSION_SECONDS).is_none());
}

#[tokio::test]
async fn an_answer_that_belongs_to_no_login_of_this_browser_is_refused() {
    let login = Login::start().await;
    let back = login.agreed("x", json!(1)).await;
    for (query, expected) in [
        ("code=good".to_owned(), "belongs to another login"),
        ("code=good&state=other".to_owned(), "belongs to another login"),
        (format!("{}0", back.query), "belongs to another login"),
        (format!("{}&iss=https://evil.example", back.query), "belongs to another login"),
        (
            format!("{}&error=access_denied%1b", back.query),
            "refused the login: access_denied\\u{1b}",
        ),
        (back.query.replace("code=good&", ""), "sent no code"),
    ] {
        let forged = LoginCallback { query, headers: back.headers.clone() };
        let text = refusal(login.returned(&forged, NOW).await);
        assert!(text.contains(expected), "{text}");
    }
    let elsewhere = LoginCallback { query: back.query.clone(), headers: HeaderMap::new() };
    assert!(refusal(login.returned(&elsewhere, NOW).await).contains("has begun no login"));
    let late = refusal(login.returned(&back, NOW + MAX_LOGIN_SECONDS).await);
    assert!(late.contains("over ten minutes ago"), "{late}");
    // The cookie of another login of the same user is refused, too.
    let second = login.agreed("x", json!(1)).await;
    let mixed = LoginCallback { query: back.query, headers: second.headers.clone() };
    assert!(refusal(login.returned(&mixed, NOW).await).contains("belongs to another login"));
    assert!(login.returned(&second, NOW).await.is_ok());
}

#[tokio::test]
async fn a_code_counts_once_here_and_at_the_issuer() {
    let login = Login::start().await;
    let back = login.agreed("x", json!(1)).await;
    assert!(login.returned(&back, NOW).await.is_ok());
    assert!(refusal(login.returned(&back, NOW).await).contains("was used before"));
    // Another replica does not know that the code was used, but the issuer does.
    let replica = LoginService::new(options(&login.issuer.url)).unwrap();
    let replayed = replica.finish(&back.headers, &PageQuery::parse(&back.query), NOW).await;
    assert_eq!(replayed.unwrap_err().status, StatusCode::BAD_GATEWAY);
    // A stolen code is useless without the PKCE verifier in this browser's cookie.
    let victim = login.agreed("x", json!(1)).await;
    let challenge = login.issuer.codes.lock().remove("good").unwrap();
    login.issuer.codes.lock().insert("stolen".to_owned(), challenge);
    let thief = login.agreed("x", json!(1)).await;
    let query = thief.query.replace("code=good", "code=stolen");
    let stolen = LoginCallback { query, headers: thief.headers };
    assert_eq!(login.returned(&stolen, NOW).await.unwrap_err().status, StatusCode::BAD_GATEWAY);
    drop(victim);
}

#[tokio::test]
async fn a_token_that_does_not_count_gives_no_session() {
    let login = Login::start().await;
    for (claim, value, expected) in [
        ("nonce", json!("other"), "of another login"),
        ("aud", json!("other"), "for another client"),
        ("iss", json!("https://evil.example"), "of another issuer"),
        ("exp", json!(NOW - 1), "is over"),
    ] {
        let back = login.agreed(claim, value).await;
        let text = refusal(login.returned(&back, NOW).await);
        assert!(text.contains(expected), "{claim}: {text}");
    }
}

#[tokio::test]
async fn logins_that_wait_for_the_issuer_are_bounded() {
    let login = Login::start().await;
    let all = u32::try_from(MAX_LOGINS_AT_ONCE).unwrap();
    let _waiting = login.service.permits.acquire_many(all).await.unwrap();
    let refused = login.service.begin("/", NOW).await.unwrap_err();
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
}

#[test]
fn what_is_remembered_is_bounded() {
    let until = |at: usize| (at.to_string(), NOW + 1 + i64::try_from(at).unwrap());
    let mut texts = ExpiringTokenSet((0..MAX_REMEMBERED).map(until).collect());
    assert!(!texts.insert("1", NOW + 2, NOW));
    assert!(texts.insert("new", NOW + 600, NOW));
    assert!(texts.0.len() <= MAX_REMEMBERED && !texts.0.contains_key("0"));
    assert!(texts.insert("later", NOW + 1_000_000, NOW + 500_000));
    assert_eq!(texts.0.len(), 1, "what is over is forgotten");
}

#[test]
fn pages_have_a_host_of_their_own_with_tls() {
    for good in ["https://windlass.example", "https://windlass.example:8443/", "http://127.0.0.1:1"]
    {
        assert!(base_url(good).is_ok(), "{good}");
    }
    for bad in
        ["http://windlass.example", "https://windlass.example/ui", "https://a.example/?b", "a"]
    {
        assert!(base_url(bad).is_err(), "{bad}");
    }
}

#[test]
fn a_namespace_is_a_name_or_all() {
    let chosen = |value: &str| chosen_namespace(&with_cookies(&[namespace_cookie(value)]));
    assert_eq!(chosen("apps-1"), "apps-1");
    for bad in ["", "Apps", "a b", "a;b", "../x", &"a".repeat(64)] {
        assert_eq!(chosen(bad), "", "{bad}");
    }
}
