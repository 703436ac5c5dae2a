//! `windlass serve --web-only`: users log in at an issuer that the API server trusts, and each sees what RBAC permits.
//!
//! Elsewhere: forged logins, cookies and requests (unit tests of `web`), the content of pages (`pages.rs`).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use axum::extract::{Form, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use e2e::control_plane::{LOGIN_CLIENT, TrustedIssuer, free_ports};
use e2e::harness::flux::DEFAULT_WAIT_TIMEOUT;
use e2e::harness::{Story, StoryObject};
use e2e::operator_process::OperatorProcess;
use parking_lot::Mutex;
use rcgen::{KeyPair, PKCS_RSA_SHA256, PublicKeyData as _, RsaKeySize, SigningKey as _};
use reqwest::header::{COOKIE, HOST, LOCATION, ORIGIN, SET_COOKIE};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use url::Url;

/// An issuer whose users agree to each login.
struct LoginIssuer {
    url: Mutex<String>,
    key: KeyPair,
    /// The claims of the token for each code, which can be used once.
    codes: Mutex<BTreeMap<String, Value>>,
}

impl LoginIssuer {
    /// Starts an issuer over HTTP. Its address is set after it is known.
    async fn start() -> Result<(Arc<Self>, SocketAddr)> {
        let key = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048)?;
        let issuer = Arc::new(Self { url: Mutex::default(), key, codes: Mutex::default() });
        let router = Router::new()
            .route("/.well-known/openid-configuration", get(configuration))
            .route("/keys", get(keys))
            .route("/token", post(token))
            .with_state(issuer.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok((issuer, address))
    }

    fn signed(&self, claims: &Value) -> Result<String> {
        let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&json!({"alg": "RS256", "kid": "1"})), part(claims));
        let signature = BASE64_URL_SAFE_NO_PAD.encode(self.key.sign(signed.as_bytes())?);
        Ok(format!("{signed}.{signature}"))
    }
}

async fn configuration(State(issuer): State<Arc<LoginIssuer>>) -> Json<Value> {
    let url = issuer.url.lock().clone();
    Json(json!({"issuer": url, "authorization_endpoint": format!("{url}/auth"),
        "token_endpoint": format!("{url}/token"), "jwks_uri": format!("{url}/keys"),
        "response_types_supported": ["code"], "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["RS256"]}))
}

async fn keys(State(issuer): State<Arc<LoginIssuer>>) -> Json<Value> {
    // The key is a sequence of two integers: 256 bytes after a zero byte, and 65537.
    let modulus = issuer.key.der_bytes().get(9..265).unwrap_or_default();
    let n = BASE64_URL_SAFE_NO_PAD.encode(modulus);
    Json(
        json!({"keys": [{"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "1", "n": n, "e": "AQAB"}]}),
    )
}

async fn token(
    State(issuer): State<Arc<LoginIssuer>>,
    Form(form): Form<BTreeMap<String, String>>,
) -> Json<Value> {
    let claims = form.get("code").and_then(|code| issuer.codes.lock().remove(code));
    let token = claims.and_then(|claims| issuer.signed(&claims).ok());
    Json(json!({"id_token": token, "token_type": "Bearer"}))
}

/// Two replicas of the web pages with the same key, and their users.
struct TeamPages {
    issuer: Arc<LoginIssuer>,
    _trusted: TrustedIssuer,
    _replicas: Vec<OperatorProcess>,
    /// The addresses on which the replicas listen.
    addresses: Vec<String>,
    /// The host and port that browsers use.
    host: String,
    http: Client,
}

/// A browser with the cookies that it has received.
#[derive(Default)]
struct TestBrowser(BTreeMap<String, String>);

impl TestBrowser {
    fn keep(&mut self, reply: &Response) -> Result<()> {
        for header in reply.headers().get_all(SET_COOKIE) {
            let header = header.to_str()?;
            let safe = "; Path=/; Secure; HttpOnly; SameSite=Lax";
            ensure!(header.starts_with("__Host-") && header.contains(safe), "{header}");
            let (pair, _) = header.split_once(';').context("attributes")?;
            let (name, value) = pair.split_once('=').context("a value")?;
            match value {
                "" => self.0.remove(name),
                value => self.0.insert(name.to_owned(), value.to_owned()),
            };
        }
        Ok(())
    }

    fn line(&self) -> String {
        let pairs = self.0.iter().map(|(name, value)| format!("{name}={value}"));
        pairs.collect::<Vec<_>>().join("; ")
    }
}

impl TeamPages {
    async fn start(story: &Story) -> Result<Self> {
        let (issuer, address) = LoginIssuer::start().await?;
        let trusted = story.bed.trusted_issuer(address).await?;
        trusted.url.clone_into(&mut issuer.url.lock());
        let folder = tempfile::tempdir()?.keep();
        let key = folder.join("session-key");
        std::fs::write(&key, "a key of thirty-two bytes or more")?;
        let [first, second] = free_ports()?;
        let host = format!("127.0.0.1:{first}");
        let mut replicas = Vec::new();
        for port in [first, second] {
            replicas.push(OperatorProcess::start(vec![
                "serve".to_owned(),
                "--web-only".to_owned(),
                format!("--web-addr=127.0.0.1:{port}"),
                format!("--web-url=http://{host}"),
                format!("--web-oidc-issuer-url={}", trusted.url),
                format!("--web-oidc-client-id={LOGIN_CLIENT}"),
                format!("--web-oidc-ca-file={}", trusted.authority.display()),
                format!("--web-session-key-file={}", key.display()),
                format!("--kubeconfig={}", story.bed.operator_kubeconfig().display()),
                "--health-addr=127.0.0.1:0".to_owned(),
                "--metrics-addr=127.0.0.1:0".to_owned(),
            ])?);
        }
        let addresses = [first, second].map(|port| format!("http://127.0.0.1:{port}")).to_vec();
        let http = Client::builder().redirect(Policy::none()).no_proxy().build()?;
        let pages = Self { issuer, _trusted: trusted, _replicas: replicas, addresses, host, http };
        for replica in [0, 1] {
            story
                .await_until("pages are served", DEFAULT_WAIT_TIMEOUT, async || {
                    Ok(pages.get(replica, "/", &TestBrowser::default()).await.ok())
                })
                .await?;
        }
        Ok(pages)
    }

    async fn get(&self, replica: usize, path: &str, browser: &TestBrowser) -> Result<Response> {
        let address = self.addresses.get(replica).context("a replica")?;
        let request = self.http.get(format!("{address}{path}")).header(HOST, &self.host);
        Ok(request.header(COOKIE, browser.line()).send().await?)
    }

    /// Reads a page, and returns it with its status.
    async fn page(&self, replica: usize, path: &str, browser: &TestBrowser) -> Result<String> {
        let reply = self.get(replica, path, browser).await?;
        let status = reply.status();
        Ok(format!("{status}\n{}", reply.text().await?))
    }

    /// Logs a user in. The issuer sends the browser back to another replica than the one where the login began.
    async fn log_in(&self, user: &str, namespace: &str) -> Result<TestBrowser> {
        let mut browser = TestBrowser::default();
        let first = self.get(0, "/objects?kind=Kustomization", &browser).await?;
        ensure!(first.status() == StatusCode::SEE_OTHER, "{first:?}");
        let login = first.headers()[LOCATION].to_str()?.to_owned();
        ensure!(login == "/login?return=%2Fobjects%3Fkind%3DKustomization", "{login}");
        let begun = self.get(0, &login, &browser).await?;
        browser.keep(&begun)?;
        let page = begun.text().await?;
        let address = page.split("content=\"0; url=").nth(1).and_then(|it| it.split('"').next());
        let location = Url::parse(&address.context(page.clone())?.replace("&amp;", "&"))?;
        let sent: BTreeMap<String, String> = location.query_pairs().into_owned().collect();
        let of = |name: &str| sent.get(name).with_context(|| format!("{location} lacks {name}"));
        let now = jiff::Timestamp::now().as_second();
        let url = self.issuer.url.lock().clone();
        let claims = json!({"iss": url, "aud": LOGIN_CLIENT, "sub": user, "nonce": of("nonce")?,
            "iat": now, "exp": now + 600, "groups": ["developers"]});
        self.issuer.codes.lock().insert(format!("code-of-{user}"), claims);
        let callback = format!("/callback?code=code-of-{user}&state={}", of("state")?);
        let ended = self.get(1, &callback, &browser).await?;
        ensure!(ended.status() == StatusCode::SEE_OTHER, "{}", ended.text().await?);
        ensure!(ended.headers()[LOCATION] == "/objects?kind=Kustomization", "{ended:?}");
        browser.keep(&ended)?;
        ensure!(!browser.line().contains("eyJhbGciOi"), "a token is readable in a cookie");
        let chosen = self.get(0, &format!("/namespace?name={namespace}"), &browser).await?;
        browser.keep(&chosen)?;
        Ok(browser)
    }
}

/// Allows a user who has logged in to view a namespace.
async fn allow(story: &Story, user: &str) -> Result<()> {
    let version = "rbac.authorization.k8s.io/v1";
    let subject = json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io",
        "name": format!("oidc:{user}")});
    let rules = json!([{"apiGroups": ["kustomize.toolkit.fluxcd.io"],
        "resources": ["kustomizations"], "verbs": ["get", "list", "watch"]}]);
    for object in [
        json!({"apiVersion": version, "kind": "Role", "metadata": {"name": user}, "rules": rules}),
        json!({"apiVersion": version, "kind": "RoleBinding", "metadata": {"name": user},
            "subjects": [subject], "roleRef": {"apiGroup": "rbac.authorization.k8s.io",
            "kind": "Role", "name": user}}),
    ] {
        story.apply_value(object).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn users_who_log_in_see_what_their_own_rights_show_and_nothing_of_others() -> Result<()> {
    let story = Story::with_windlass("team-pages").await?;
    story.kustomization("payments", "absent", json!({"suspend": true})).await?;
    allow(&story, "alice").await?;
    let pages = TeamPages::start(&story).await?;
    let namespace = &story.namespace;
    let list = "/objects?kind=Kustomization";
    let place = format!("/o/ks/{namespace}/payments");
    let object = format!("{place}/yaml");
    // The API server looks for the issuer every ten seconds until it finds it.
    let alice = story
        .await_until("what alice may read", DEFAULT_WAIT_TIMEOUT, async || {
            let alice = pages.log_in("alice", namespace).await?;
            let page = pages.page(0, &object, &alice).await?;
            Ok(page.starts_with("200").then_some(alice))
        })
        .await?;
    for replica in [0, 1] {
        let page = pages.page(replica, list, &alice).await?;
        ensure!(page.contains(&place), "{page}");
        ensure!(page.contains("oidc:alice") && page.contains("Log out"), "{page}");
    }

    // The same replicas have read the page for alice, but bob must not see it.
    let bob = pages.log_in("bob", namespace).await?;
    for path in
        ["/", list, "/objects?q=payments", "/incidents", "/audits", "/approvals", "/calendar"]
    {
        let page = pages.page(0, path, &bob).await?;
        ensure!(!page.contains(&place), "{path}\n{page}");
    }
    let page = pages.page(0, list, &bob).await?;
    ensure!(page.contains("cannot list resource &quot;kustomizations&quot;"), "{page}");
    let page = pages.page(0, &object, &bob).await?;
    ensure!(page.starts_with("403") && !page.contains("suspend: true"), "{page}");

    // When the user loses the right, the rows disappear, even while they are watched.
    story.delete(&StoryObject::new("rbac.authorization.k8s.io/v1", "RoleBinding", "alice")).await?;
    story
        .await_until("what alice may not read any more", DEFAULT_WAIT_TIMEOUT, async || {
            let page = pages.page(0, list, &alice).await?;
            let is_gone = !page.contains(&place);
            Ok((is_gone && page.contains("cannot list resource")).then_some(()))
        })
        .await?;
    refuses_and_logs_out(&pages, bob).await?;
    story.end().await
}

/// The replicas refuse other hosts and forms of other sites. A logout ends the session.
async fn refuses_and_logs_out(pages: &TeamPages, mut bob: TestBrowser) -> Result<()> {
    let address = pages.addresses.first().context("a replica")?;
    let foreign = pages.http.get(format!("{address}/")).header(HOST, "evil.example");
    let foreign = foreign.header(COOKIE, bob.line()).send().await?;
    ensure!(foreign.status() == StatusCode::MISDIRECTED_REQUEST, "{foreign:?}");
    let logout = |origin: String| {
        let request = pages.http.post(format!("{address}/logout")).header(HOST, &pages.host);
        request.header(COOKIE, bob.line()).header(ORIGIN, origin).send()
    };
    let forged = logout("https://evil.example".to_owned()).await?;
    ensure!(forged.status() == StatusCode::FORBIDDEN, "{forged:?}");
    let own = logout(format!("http://{}", pages.host)).await?;
    ensure!(own.status() == StatusCode::OK, "{own:?}");
    // The session has also ended for someone who kept the cookies.
    let kept = pages.get(0, "/me", &bob).await?;
    ensure!(kept.status() == StatusCode::SEE_OTHER, "{kept:?}");
    bob.keep(&own)?;
    ensure!(!bob.line().contains("session"), "{}", bob.line());
    Ok(())
}
