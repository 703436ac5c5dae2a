//! `windlass serve --web-only`: users log in at an issuer that the API server trusts, and each sees and does what RBAC permits.
//!
//! Elsewhere: forged logins, cookies, requests and forms (unit tests of `web`), the content of pages and forms (`windlass_ui.rs`).

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use crds::windlass_release::AuditOperation;
use e2e::control_plane::{ApiServerOidcIssuer, free_ports};
use e2e::harness::flux_objects::DEFAULT_WAIT_TIMEOUT;
use e2e::harness::manifests::config_map;
use e2e::harness::release_audits::audits;
use e2e::harness::{Story, StoryObject};
use e2e::multi_user_web_pages::{BrowserCookies, MultiUserWebPagesSettings, OidcLoginIssuer};
use e2e::operator_process::OperatorProcess;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::{Api, DynamicObject, PostParams};
use reqwest::header::{ACCEPT, CONTENT_TYPE, COOKIE, HOST, LOCATION, ORIGIN};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};

use super::windlass_ui::form_fields;

/// How long the token of a login is valid, in seconds.
const TOKEN_SECONDS: i64 = 600;

/// Two replicas of the web pages with the same key, and their users.
pub(crate) struct MultiUserWebPages {
    pub(crate) issuer: Arc<OidcLoginIssuer>,
    _trusted: ApiServerOidcIssuer,
    _replicas: Vec<OperatorProcess>,
    /// The addresses on which the replicas listen.
    addresses: Vec<String>,
    /// The host and port that browsers use.
    pub(crate) host: String,
    http: Client,
}

impl MultiUserWebPages {
    pub(crate) async fn start(story: &Story) -> Result<Self> {
        let (issuer, address) = OidcLoginIssuer::start().await?;
        let trusted = story.bed.trusted_issuer(address).await?;
        issuer.set_url(&trusted.url);
        let folder = tempfile::tempdir()?.keep();
        let key = folder.join("session-key");
        std::fs::write(&key, "a key of thirty-two bytes or more")?;
        let [first, second] = free_ports()?;
        let host = format!("127.0.0.1:{first}");
        let mut replicas = Vec::new();
        for port in [first, second] {
            let settings = MultiUserWebPagesSettings {
                port,
                host: &host,
                issuer: &trusted,
                session_key: &key,
                kubeconfig: story.bed.operator_kubeconfig(),
            };
            replicas.push(OperatorProcess::start(settings.arguments())?);
        }
        let addresses = [first, second].map(|port| format!("http://127.0.0.1:{port}")).to_vec();
        let http = Client::builder().redirect(Policy::none()).no_proxy().build()?;
        let pages = Self { issuer, _trusted: trusted, _replicas: replicas, addresses, host, http };
        for replica in [0, 1] {
            story
                .await_until("pages are served", DEFAULT_WAIT_TIMEOUT, async || {
                    Ok(pages.get(replica, "/", &BrowserCookies::default()).await.ok())
                })
                .await?;
        }
        Ok(pages)
    }

    async fn get(&self, replica: usize, path: &str, browser: &BrowserCookies) -> Result<Response> {
        self.get_as(replica, path, browser, "text/html").await
    }

    async fn get_as(
        &self,
        replica: usize,
        path: &str,
        browser: &BrowserCookies,
        accept: &str,
    ) -> Result<Response> {
        let address = self.addresses.get(replica).context("a replica")?;
        let request = self.http.get(format!("{address}{path}")).header(HOST, &self.host);
        Ok(request.header(COOKIE, browser.line()).header(ACCEPT, accept).send().await?)
    }

    /// Reads a page, and returns it with its status.
    async fn page(&self, replica: usize, path: &str, browser: &BrowserCookies) -> Result<String> {
        self.page_as(replica, path, browser, "text/html").await
    }

    /// Reads a page as a browser or as a program, and returns it with its status.
    pub(crate) async fn page_as(
        &self,
        replica: usize,
        path: &str,
        browser: &BrowserCookies,
        accept: &str,
    ) -> Result<String> {
        let reply = self.get_as(replica, path, browser, accept).await?;
        let status = reply.status();
        Ok(format!("{status}\n{}", reply.text().await?))
    }

    /// Logs a user in. The issuer sends the browser back to another replica than the one where the login began.
    pub(crate) async fn log_in(&self, user: &str, namespace: &str) -> Result<BrowserCookies> {
        let mut browser = BrowserCookies::default();
        let first = self.get(0, "/objects?kind=Kustomization", &browser).await?;
        ensure!(first.status() == StatusCode::SEE_OTHER, "{first:?}");
        let login = first.headers()[LOCATION].to_str()?.to_owned();
        ensure!(login == "/login?return=%2Fobjects%3Fkind%3DKustomization", "{login}");
        let begun = self.get(0, &login, &browser).await?;
        browser.keep(&begun)?;
        let callback = self.issuer.agree(&begun.text().await?, user, TOKEN_SECONDS)?;
        let ended = self.get(1, &callback, &browser).await?;
        ensure!(ended.status() == StatusCode::SEE_OTHER, "{}", ended.text().await?);
        ensure!(ended.headers()[LOCATION] == "/objects?kind=Kustomization", "{ended:?}");
        browser.keep(&ended)?;
        ensure!(!browser.line().contains("eyJhbGciOi"), "a token is readable in a cookie");
        self.choose(&mut browser, namespace).await?;
        Ok(browser)
    }

    /// Chooses the namespace that the pages of a browser read. Empty for all namespaces.
    pub(crate) async fn choose(&self, browser: &mut BrowserCookies, namespace: &str) -> Result<()> {
        let chosen = self.get(0, &format!("/namespace?name={namespace}"), browser).await?;
        browser.keep(&chosen)
    }

    /// Sends the form that ends a session to the first replica, as a page of this origin does.
    async fn log_out(&self, browser: &BrowserCookies, origin: &str) -> Result<Response> {
        let address = self.addresses.first().context("a replica")?;
        let request = self.http.post(format!("{address}/logout")).header(HOST, &self.host);
        Ok(request.header(COOKIE, browser.line()).header(ORIGIN, origin).send().await?)
    }

    /// Sends a form as a browser does for a page of the replicas.
    async fn send(&self, replica: usize, browser: &BrowserCookies, form: &str) -> Result<Response> {
        let address = self.addresses.get(replica).context("a replica")?;
        let request = self.http.post(format!("{address}/_/act")).header(HOST, &self.host);
        let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        let request = request.header(ORIGIN, format!("http://{}", self.host));
        Ok(request.header(COOKIE, browser.line()).body(form.to_owned()).send().await?)
    }

    /// Reads the form of an action from one replica, and sends it to the other one. Returns the page that says what was done.
    async fn act(
        &self,
        story: &Story,
        browser: &BrowserCookies,
        action: &UserAction<'_>,
    ) -> Result<String> {
        let UserAction { page, word, reason } = *action;
        // The status may change between reading the page and sending the form.
        story
            .await_until(&format!("{word} by its form"), DEFAULT_WAIT_TIMEOUT, async || {
                let read = self.page(0, page, browser).await?;
                let form = format!("{}&reason={reason}&until=2h", form_fields(&read, word)?);
                let reply = self.send(1, browser, &form).await?;
                let status = reply.status();
                let is_stale = status == StatusCode::CONFLICT;
                ensure!(is_stale || status == StatusCode::SEE_OTHER, "{}", reply.text().await?);
                let location = reply.headers().get(LOCATION).map(|it| it.to_str());
                Ok(location.transpose()?.map(str::to_owned))
            })
            .await
    }
}

/// An action that a user requests on the page of an object.
#[derive(Debug, Clone, Copy)]
struct UserAction<'a> {
    page: &'a str,
    /// The word for the action in its form.
    word: &'a str,
    reason: &'a str,
}

/// Allows a user who has logged in to view the Kustomizations of a namespace.
async fn allow(story: &Story, user: &str) -> Result<()> {
    allow_verbs(story, user, &["get", "list", "watch"]).await
}

/// Allows a user who has logged in to use these verbs on Kustomizations, and no other ones.
async fn allow_verbs(story: &Story, user: &str, verbs: &[&str]) -> Result<()> {
    let rules = json!([{"apiGroups": ["kustomize.toolkit.fluxcd.io"],
        "resources": ["kustomizations"], "verbs": verbs}]);
    allow_by(story, user, rules).await
}

/// Allows a user who has logged in to read all objects of a namespace, and to change its Kustomizations.
pub(crate) async fn allow_all(story: &Story, user: &str) -> Result<()> {
    let rules = json!([
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["kustomize.toolkit.fluxcd.io"],
            "resources": ["kustomizations"], "verbs": ["patch"]},
    ]);
    allow_by(story, user, rules).await
}

/// Gives a user a Role with these rules. The Role and its RoleBinding have the name of the user.
async fn allow_by(story: &Story, user: &str, rules: Value) -> Result<()> {
    let version = "rbac.authorization.k8s.io/v1";
    let subject = json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io",
        "name": format!("oidc:{user}")});
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

// One story: an API server trusts one issuer, and the issuer listens on one port.
#[tokio::test(flavor = "multi_thread")]
async fn users_who_log_in_see_and_change_what_their_own_rights_allow() -> Result<()> {
    let story = Story::with_windlass("team-pages").await?;
    story.kustomization("payments", "absent", json!({"suspend": true})).await?;
    allow(&story, "alice").await?;
    let pages = MultiUserWebPages::start(&story).await?;
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
    users_act_with_their_own_rights(&story, &pages).await?;
    users_plan_with_their_own_rights(&story, &pages).await?;
    story.end().await
}

/// The replicas refuse other hosts and forms of other sites. A logout ends the session.
async fn refuses_and_logs_out(pages: &MultiUserWebPages, mut bob: BrowserCookies) -> Result<()> {
    let address = pages.addresses.first().context("a replica")?;
    let foreign = pages.http.get(format!("{address}/")).header(HOST, "evil.example");
    let foreign = foreign.header(COOKIE, bob.line()).send().await?;
    ensure!(foreign.status() == StatusCode::MISDIRECTED_REQUEST, "{foreign:?}");
    let forged = pages.log_out(&bob, "https://evil.example").await?;
    ensure!(forged.status() == StatusCode::FORBIDDEN, "{forged:?}");
    let own = pages.log_out(&bob, &format!("http://{}", pages.host)).await?;
    ensure!(own.status() == StatusCode::OK, "{own:?}");
    // The session has also ended for someone who kept the cookies.
    let kept = pages.get(0, "/me", &bob).await?;
    ensure!(kept.status() == StatusCode::SEE_OTHER, "{kept:?}");
    bob.keep(&own)?;
    ensure!(!bob.line().contains("session"), "{}", bob.line());
    Ok(())
}

/// A user with the verb `plan` plans a branch by a form, and another one without it may not.
async fn users_plan_with_their_own_rights(story: &Story, pages: &MultiUserWebPages) -> Result<()> {
    let files = [("a.yaml", config_map("planned", "1"))];
    let upstream = story.follow("planned", &files).await?;
    story.kustomization("planned", "planned", json!({})).await?;
    story.await_ready(&StoryObject::kustomization("planned")).await?;
    upstream.repository.branch("new")?;
    upstream.repository.commit(&[("a.yaml", &*config_map("planned", "2"))], "a change")?;
    upstream.repository.switch("main")?;
    let rules = |verb: &str| {
        json!([
            {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]},
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch"]},
            {"apiGroups": ["source.toolkit.fluxcd.io"], "resources": ["gitrepositories"],
                "verbs": [verb]},
        ])
    };
    allow_by(story, "alice", rules("plan")).await?;
    allow_by(story, "bob", rules("get")).await?;
    let page = format!("/plan/GitRepository/{}/planned?branch=new", story.namespace);
    let alice = pages.log_in("alice", &story.namespace).await?;
    let form = story
        .await_until("the form of the plan", DEFAULT_WAIT_TIMEOUT, async || {
            Ok(form_fields(&pages.page(1, &page, &alice).await?, "plan").ok())
        })
        .await?;
    let form = format!("{form}&branch=new");
    let sent = pages.send(1, &alice, &form).await?;
    ensure!(sent.status() == StatusCode::SEE_OTHER, "{}", sent.text().await?);
    ensure!(sent.headers()[LOCATION] == *page, "{sent:?}");
    // The plan belongs to the replica that makes it.
    story
        .await_until("the plan on the page", DEFAULT_WAIT_TIMEOUT, async || {
            let read = pages.page(1, &page, &alice).await?;
            ensure!(!read.contains("could not be made"), "{read}");
            Ok(read.contains("~ changed <a href=").then_some(()))
        })
        .await?;

    let bob = pages.log_in("bob", &story.namespace).await?;
    story
        .await_until("the refusal of another user", DEFAULT_WAIT_TIMEOUT, async || {
            let read = pages.page(1, &page, &bob).await?;
            let is_refused = read.starts_with("403") && read.contains("you lack the verb `plan`");
            Ok(is_refused.then_some(()))
        })
        .await?;
    let forged = pages.send(1, &bob, &form).await?;
    ensure!(forged.status() == StatusCode::FORBIDDEN, "{}", forged.text().await?);
    Ok(())
}

/// A user suspends, resumes and reconciles an object by forms, and another one loses the right.
async fn users_act_with_their_own_rights(story: &Story, pages: &MultiUserWebPages) -> Result<()> {
    let _upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    story.kustomization("app", "app", json!({})).await?;
    let app = StoryObject::kustomization("app");
    story.await_ready(&app).await?;
    allow_verbs(story, "alice", &["get", "list", "watch", "patch"]).await?;
    allow_verbs(story, "bob", &["get", "list", "watch", "patch"]).await?;
    let page = format!("/o/ks/{}/app", story.namespace);
    // The API server looks for the issuer every ten seconds until it finds it.
    let alice = story
        .await_until("what alice may do", DEFAULT_WAIT_TIMEOUT, async || {
            let alice = pages.log_in("alice", &story.namespace).await?;
            let read = pages.page(0, &page, &alice).await?;
            Ok(read.contains("value=\"suspend\"").then_some(alice))
        })
        .await?;

    let suspend = UserAction { page: &page, word: "suspend", reason: "incident-1" };
    let done = pages.act(story, &alice, &suspend).await?;
    // Each replica shows the message, also the one that has not carried out the action.
    for replica in [0, 1] {
        let read = pages.page(replica, &done, &alice).await?;
        ensure!(read.contains("is suspended by oidc:alice"), "{read}");
        ensure!(read.contains("incident-1") && read.contains("value=\"resume\""), "{read}");
    }
    let suspended = story.expect(&app).await?;
    let annotations = suspended.metadata.annotations.clone().unwrap_or_default();
    ensure!(annotations["windlass.dev/suspended-by"] == "oidc:alice", "{annotations:?}");
    await_audit_of_alice(story, AuditOperation::Suspend, "incident-1").await?;

    let resume = UserAction { page: &page, word: "resume", reason: "mended" };
    pages.act(story, &alice, &resume).await?;
    await_audit_of_alice(story, AuditOperation::Resume, "mended").await?;
    story.await_ready(&app).await?;
    let before = story.expect(&app).await?.data["status"]["lastHandledReconcileAt"].clone();
    let reconcile = UserAction { page: &page, word: "reconcile", reason: "" };
    pages.act(story, &alice, &reconcile).await?;
    let is_handled = |it: &DynamicObject| {
        let handled = &it.data["status"]["lastHandledReconcileAt"];
        handled.is_string() && *handled != before
    };
    story.await_object(&app, DEFAULT_WAIT_TIMEOUT, is_handled).await?;
    refuses_forms_without_the_right(story, pages, &page).await
}

/// Waits until an audit has the name of alice as the API server knows it, and her reason.
async fn await_audit_of_alice(
    story: &Story,
    operation: AuditOperation,
    reason: &str,
) -> Result<()> {
    story
        .await_until(&format!("{operation} in the audits"), DEFAULT_WAIT_TIMEOUT, async || {
            let all = audits(story).await?;
            let of_operation = all.iter().filter(|it| it.spec.operation == operation);
            let mut causes = of_operation.flat_map(|it| &it.spec.causes);
            let is_of_alice = causes.any(|cause| {
                cause.claimed_user.as_deref() == Some("oidc:alice")
                    && cause.reason.as_deref() == Some(reason)
            });
            Ok(is_of_alice.then_some(()))
        })
        .await
}

/// Waits until the API server says that a user may not change Kustomizations.
async fn await_no_right(story: &Story, user: &str) -> Result<()> {
    let access = ResourceAttributes {
        group: Some("kustomize.toolkit.fluxcd.io".to_owned()),
        resource: Some("kustomizations".to_owned()),
        namespace: Some(story.namespace.clone()),
        verb: Some("patch".to_owned()),
        ..ResourceAttributes::default()
    };
    let spec = SubjectAccessReviewSpec {
        user: Some(user.to_owned()),
        resource_attributes: Some(access),
        ..SubjectAccessReviewSpec::default()
    };
    let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
    let api = Api::<SubjectAccessReview>::all(story.client.clone());
    story
        .await_until("the right to be gone", DEFAULT_WAIT_TIMEOUT, async || {
            let answer = api.create(&PostParams::default(), &review).await?;
            Ok(answer.status.is_some_and(|status| !status.allowed).then_some(()))
        })
        .await
}

/// A user who loses the right sees what the API server says, and then no form. A form of another user, or of a session that has
/// ended, does nothing.
async fn refuses_forms_without_the_right(
    story: &Story,
    pages: &MultiUserWebPages,
    page: &str,
) -> Result<()> {
    let app = StoryObject::kustomization("app");
    let mut bob = pages.log_in("bob", &story.namespace).await?;
    let alice = pages.log_in("alice", &story.namespace).await?;
    let read = pages.page(0, page, &alice).await?;
    let of_alice = format!("{}&reason=a&until=2h", form_fields(&read, "suspend")?);
    let of_another = pages.send(0, &bob, &of_alice).await?;
    ensure!(of_another.status() == StatusCode::FORBIDDEN, "{of_another:?}");
    let text = of_another.text().await?;
    ensure!(text.contains("this form is not of a page of this session"), "{text}");

    // windlass remembers the answers of access reviews for half a minute, so it still shows a form after the right is gone.
    let read = pages.page(0, page, &bob).await?;
    let form = format!("{}&reason=b&until=2h", form_fields(&read, "suspend")?);
    allow(story, "bob").await?;
    await_no_right(story, "oidc:bob").await?;
    let text = story
        .await_until("bob to be refused", DEFAULT_WAIT_TIMEOUT, async || {
            let read = pages.page(0, page, &bob).await?;
            let form = format!("{}&reason=b&until=2h", form_fields(&read, "suspend")?);
            // The status may change between reading the page and sending the form.
            let reply = pages.send(0, &bob, &form).await?;
            let status = reply.status();
            let text = reply.text().await?;
            ensure!(matches!(status.as_u16(), 403 | 409), "{status}: {text}");
            Ok((status == StatusCode::FORBIDDEN).then_some(text))
        })
        .await?;
    let said = "User &quot;oidc:bob&quot; cannot patch resource &quot;kustomizations&quot;";
    ensure!(text.contains(said) && text.contains("you may not do this"), "{text}");
    story
        .await_until("no form for bob", DEFAULT_WAIT_TIMEOUT, async || {
            let read = pages.page(0, page, &bob).await?;
            let is_shown = read.starts_with("200") && read.contains("Log out");
            Ok((is_shown && !read.contains("action=\"/_/act\"")).then_some(()))
        })
        .await?;

    let logout = pages.log_out(&bob, &format!("http://{}", pages.host)).await?;
    ensure!(logout.status() == StatusCode::OK, "{logout:?}");
    let over = pages.send(0, &bob, &form).await?;
    ensure!(over.status() == StatusCode::UNAUTHORIZED, "{over:?}");
    ensure!(over.text().await?.contains("Nothing was done"), "no session");
    bob.keep(&logout)?;
    let without = pages.send(0, &bob, &form).await?;
    ensure!(without.status() == StatusCode::UNAUTHORIZED, "{without:?}");
    let object = story.expect(&app).await?;
    ensure!(object.data["spec"]["suspend"] != true, "{object:?}");
    Ok(())
}
