//! `windlass ui`: which browser gets answers, the content of pages compared with the commands, and updates of open pages.
//!
//! Elsewhere: escaping of texts, and refused requests (unit tests of `web`).

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::harness::flux_objects::DEFAULT_WAIT_TIMEOUT;
use e2e::harness::manifests::{PodBehavior, config_map, deployment};
use e2e::harness::{Story, StoryObject};
use e2e::operator_process;
use reqwest::header::{ACCEPT, CONTENT_TYPE, COOKIE, HOST, LOCATION, ORIGIN, SET_COOKIE};
use reqwest::redirect::Policy;
use reqwest::{Client, Method, Response, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::all_commands::account;
use super::windlass;

/// How long a page and a command may take to agree. The overview is kept for ten seconds.
const AGREEMENT_LIMIT: Duration = Duration::from_secs(10);

/// A running `windlass ui`. It ends when this is dropped.
pub(crate) struct StoryUiProcess {
    _process: Child,
    /// The address without a path.
    pub(crate) base: String,
    /// The address that the command printed. It counts once.
    pub(crate) login: String,
}

/// A running `windlass ui`, and the browser that opened its address.
pub(super) struct UiBrowserClient {
    pub(super) process: StoryUiProcess,
    http: Client,
    /// The cookie of the browser.
    cookie: String,
}

/// The answer of the server.
pub(super) struct PageReply {
    pub(super) status: StatusCode,
    pub(super) text: String,
}

impl StoryUiProcess {
    /// Starts the server with a kubeconfig, and waits for the address that it prints.
    pub(crate) async fn start(story: &Story, kubeconfig: &Path) -> Result<Self> {
        let mut process = Command::new(operator_process::binary()?)
            .args(["ui", "--namespace", &story.namespace])
            .env("KUBECONFIG", kubeconfig)
            .env("FLUX_SYSTEM_NAMESPACE", &story.namespace)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let out = process.stdout.take().context("its output")?;
        let mut lines = BufReader::new(out).lines();
        let login = tokio::time::timeout(DEFAULT_WAIT_TIMEOUT, lines.next_line()).await??;
        let login = login.context("`windlass ui` prints no address")?;
        let (base, _) = login.split_once("/_/login?token=").context(login.clone())?;
        let base = base.to_owned();
        Ok(Self { _process: process, base, login })
    }
}

impl UiBrowserClient {
    /// Starts the server with a kubeconfig, and opens the printed address.
    pub(super) async fn start(story: &Story, kubeconfig: &Path) -> Result<Self> {
        let process = StoryUiProcess::start(story, kubeconfig).await?;
        let http = Client::builder().redirect(Policy::none()).build()?;
        let opened = http.get(&process.login).send().await?;
        ensure!(opened.status() == StatusCode::SEE_OTHER, "{opened:?}");
        ensure!(opened.headers()[LOCATION] == "/", "{opened:?}");
        let cookie = opened.headers()[SET_COOKIE].to_str()?;
        ensure!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"), "{cookie}");
        let (cookie, _) = cookie.split_once(';').context("a cookie")?;
        let cookie = cookie.to_owned();
        Ok(Self { process, http, cookie })
    }

    /// Reads a page as a browser or as a program.
    pub(super) async fn read(&self, path: &str, accept: &str) -> Result<PageReply> {
        let request =
            self.http.get(format!("{}{path}", self.process.base)).header(COOKIE, &self.cookie);
        let reply = request.header(ACCEPT, accept).send().await?;
        forbids_scripts(&reply)?;
        let status = reply.status();
        Ok(PageReply { status, text: reply.text().await? })
    }

    /// Reads a page, and checks that it contains all given texts and no script.
    pub(super) async fn page(&self, path: &str, says: &[&str]) -> Result<String> {
        let PageReply { status, text } = self.read(path, "text/html").await?;
        ensure!(status == StatusCode::OK, "{path}: {status}\n{text}");
        let lacks: Vec<_> = says.iter().filter(|part| !text.contains(**part)).collect();
        ensure!(lacks.is_empty(), "{path} lacks {lacks:?}\n{text}");
        let scripts = text.matches("<script").count();
        let own = text.matches("<script type=\"module\" src=\"/_/assets/").count();
        ensure!(scripts == own && !text.contains("<img"), "{path}\n{text}");
        Ok(text)
    }

    /// Opens a page and keeps it open while `act` runs. Waits for an updated part that contains a text.
    async fn hears(
        &self,
        path: &str,
        text: &str,
        act: impl AsyncFnOnce() -> Result<()>,
    ) -> Result<()> {
        let page = self.page(path, &[]).await?;
        ensure!(!page.contains(text), "{path} has {text} already\n{page}");
        let address = page.split("data-live=\"").nth(1).and_then(|rest| rest.split('"').next());
        let address = address.context("the page is not live")?.replace("&amp;", "&");
        let events =
            self.http.get(format!("{}{address}", self.process.base)).header(COOKIE, &self.cookie);
        let mut events = events.send().await?;
        ensure!(events.headers()[CONTENT_TYPE] == "text/event-stream", "{events:?}");
        forbids_scripts(&events)?;
        act().await?;
        let reading = async {
            let mut heard = String::new();
            while let Some(piece) = events.chunk().await? {
                heard.push_str(&String::from_utf8_lossy(&piece));
                if heard.contains("event: part\ndata: ") && heard.contains(text) {
                    return Ok(());
                }
            }
            anyhow::bail!("{path}: the stream ended\n{heard}")
        };
        tokio::time::timeout(DEFAULT_WAIT_TIMEOUT, reading).await?
    }

    /// The fields of an action's form on a page, as a browser sends them without a script.
    pub(super) async fn form(&self, path: &str, action: &str) -> Result<String> {
        form_fields(&self.page(path, &[]).await?, action)
    }

    /// Sends a form with the origin of a page.
    pub(super) async fn send(&self, fields: &str, origin: &str) -> Result<PageReply> {
        let request =
            self.http.post(format!("{}/_/act", self.process.base)).header(COOKIE, &self.cookie);
        let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        let reply = request.header(ORIGIN, origin).body(fields.to_owned()).send().await?;
        forbids_scripts(&reply)?;
        let status = reply.status();
        let location = reply.headers().get(LOCATION).map(|it| it.to_str().map(str::to_owned));
        let text = match location.transpose()? {
            Some(location) => location,
            None => reply.text().await?,
        };
        Ok(PageReply { status, text })
    }

    /// Reads a page as a program.
    pub(super) async fn json(&self, path: &str) -> Result<Value> {
        let PageReply { status, text } = self.read(path, "application/json").await?;
        ensure!(status == StatusCode::OK, "{path}: {status}\n{text}");
        serde_json::from_str(&text).with_context(|| format!("{path}: {text}"))
    }
}

/// The hidden fields of an action's form on a page, as a browser sends them.
pub(super) fn form_fields(page: &str, action: &str) -> Result<String> {
    let named = format!("name=\"action\" value=\"{action}\"");
    let mut forms = page.split("<form ").skip(1);
    let form = forms.find(|form| form.contains(&named)).with_context(|| page.to_owned())?;
    let form = form.split("</form>").next().unwrap_or_default();
    let hidden = form.split("type=\"hidden\" name=\"").skip(1).map(|rest| {
        let (name, rest) = rest.split_once("\" value=\"").context("a value")?;
        let (value, _) = rest.split_once('"').context("its end")?;
        Ok(format!("{name}={value}"))
    });
    Ok(hidden.collect::<Result<Vec<_>>>()?.join("&"))
}

/// Checks that the answer forbids scripts and frames.
fn forbids_scripts(reply: &Response) -> Result<()> {
    let policy = reply.headers().get("content-security-policy").context("no policy")?.to_str()?;
    ensure!(policy.starts_with("default-src 'none';"), "{policy}");
    ensure!(policy.contains("frame-ancestors 'none'"), "{policy}");
    ensure!(reply.headers()["x-content-type-options"] == "nosniff", "{reply:?}");
    Ok(())
}

/// Creates objects: one that is ready, one that fails with a hostile message, and a Secret.
async fn populate(story: &Story) -> Result<()> {
    story.kustomization("app", "app", json!({"wait": true})).await?;
    let hostile = json!({"path": "./<img src=x onerror=alert(1)>"});
    story.kustomization("hostile", "app", hostile).await?;
    story
        .apply_value(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "pages-db"},
            "stringData": {"password": "hunter2"}}))
        .await?;
    story.await_ready(&StoryObject::kustomization("app")).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_are_for_the_browser_that_was_opened_and_say_what_commands_print() -> Result<()> {
    let story = Story::with_windlass("pages").await?;
    let files =
        [("a.yaml", config_map("a", "1")), ("web.yaml", deployment("web", PodBehavior::Ready))];
    let _upstream = story.follow("app", &files).await?;
    populate(&story).await?;
    let server = UiBrowserClient::start(&story, story.kubeconfig()).await?;
    let namespace = &story.namespace;
    refuses_others(&server).await?;

    server.page("/", &["Overview", "What is not ready, by its cause", "windlass why"]).await?;
    let app = format!("/o/ks/{namespace}/app");
    server.page("/objects", &["app", "pages", &app]).await?;
    server.page("/objects?state=ready&kind=Kustomization", &[&app]).await?;
    server.page("/incidents", &["windlass incidents"]).await?;
    server.page("/approvals", &["windlass get"]).await?;
    server.page("/calendar", &["Freezes"]).await?;
    server.page("/audits", &["windlass audit"]).await?;
    server.page(&app, &["is ready", "windlass why ks/app -n "]).await?;
    server.page(&format!("{app}/tree"), &["Deployment", "web"]).await?;
    server.page(&format!("{app}/history"), &["ReconciliationSucceeded"]).await?;
    server.page(&format!("{app}/events"), &["Events", "windlass events"]).await?;
    server.page(&format!("{app}/diff"), &["Nothing would change."]).await?;
    server.page(&format!("{app}/yaml"), &["kind: Kustomization"]).await?;
    server.page(&format!("{app}/graph"), &["<svg class=\"graph\"", "Deployment", "Pod"]).await?;
    server.page(&format!("{app}/logs"), &["What containers printed", "--workload"]).await?;
    shows_changes(&story, &server).await?;
    server.page("/c/0123456789abcdef", &["is not known: no object that you may list"]).await?;
    server.page("/me", &["kustomizations.kustomize.toolkit.fluxcd.io", "kubectl auth"]).await?;
    let unknown = server.read("/o/kustomisation/a/b", "text/html").await?;
    ensure!(unknown.status == StatusCode::NOT_FOUND, "{}", unknown.text);
    server
        .hears("/objects", "latecomer", async || {
            story.kustomization("latecomer", "app", json!({"suspend": true})).await?;
            Ok(())
        })
        .await?;
    says_what_commands_print(&story, &server, &app).await?;
    lists_say_what_commands_print(&story, &server, &app).await?;

    let hostile = format!("/o/ks/{namespace}/hostile");
    story
        .await_until("the page of the object that fails", DEFAULT_WAIT_TIMEOUT, async || {
            let page = server.page(&hostile, &[]).await?;
            Ok(page.contains("&lt;img src=x onerror=alert(1)&gt;").then_some(()))
        })
        .await?;
    let secret = format!("/o/secret/{namespace}/pages-db");
    let page = server.page(&format!("{secret}/yaml"), &["password", "****"]).await?;
    let json = server.json(&format!("{secret}/yaml")).await?.to_string();
    for text in [page, json] {
        ensure!(!text.contains("hunter2") && !text.contains("aHVudGVyMg"), "{text}");
    }
    let absent = server.read(&format!("/o/ks/{namespace}/none"), "text/html").await?;
    ensure!(absent.status == StatusCode::NOT_FOUND, "{}", absent.text);
    ensure!(absent.text.contains("does not exist"), "{}", absent.text);
    story.end().await
}

/// The pages of changes and of a commit show the same as the command.
async fn shows_changes(story: &Story, server: &UiBrowserClient) -> Result<()> {
    let printed = story
        .await_until("the page of changes", DEFAULT_WAIT_TIMEOUT, async || {
            let page = server.page("/changes", &[]).await?;
            let printed = windlass(story, &["changes", "-o", "json"])?.json(0)?;
            let json = server.json("/changes").await?;
            let is_same = page.contains("windlass changes") && json == printed;
            Ok((is_same && printed["items"][0]["status"].is_object()).then_some(printed))
        })
        .await?;
    let revision = printed["items"][0]["spec"]["revision"].as_str().context("a revision")?;
    let (_, commit) = revision.rsplit_once(':').context("a commit")?;
    let path = format!("/c/{commit}");
    server.page(&path, &[commit, "windlass changes", "ks/app", "Revision"]).await?;
    let items = server.json(&path).await?["items"].as_array().map_or(0, Vec::len);
    ensure!(items == 1, "{items} changes are of {commit}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn forms_of_pages_do_what_commands_do_and_only_for_what_was_seen() -> Result<()> {
    let story = Story::with_windlass("pages-act").await?;
    let _upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    story.kustomization("app", "app", json!({})).await?;
    let app = StoryObject::kustomization("app");
    story.await_ready(&app).await?;
    let server = UiBrowserClient::start(&story, story.kubeconfig()).await?;
    let page = format!("/o/ks/{}/app", story.namespace);
    let fields = format!("{}&reason=incident-1&until=2h", server.form(&page, "suspend").await?);
    let forged = server.send(&fields, "http://127.0.0.1:1").await?;
    ensure!(forged.status == StatusCode::FORBIDDEN, "{}", forged.text);
    let without = fields.replace("&seal=", "&seal=0");
    let without = server.send(&without, &server.process.base).await?;
    ensure!(without.status == StatusCode::FORBIDDEN, "{}", without.text);
    ensure!(without.text.contains("this form is not of a page"), "{}", without.text);
    // A GET request to the address of forms does nothing.
    let read = server.read(&format!("/_/act?{fields}"), "text/html").await?;
    ensure!(read.status == StatusCode::NOT_FOUND, "{}", read.text);
    server.page(&page, &["value=\"suspend\""]).await?;

    let (fields, done) = story
        .await_until("the object is suspended by its form", DEFAULT_WAIT_TIMEOUT, async || {
            let form = server.form(&page, "suspend").await?;
            let fields = format!("{form}&reason=incident-1&until=2h");
            // The status may change between reading the page and sending the form.
            let reply = server.send(&fields, &server.process.base).await?;
            Ok((reply.status == StatusCode::SEE_OTHER).then_some((fields, reply.text)))
        })
        .await?;
    server.page(&done, &["is suspended", "incident-1", "value=\"resume\""]).await?;
    let stale = server.send(&fields, &server.process.base).await?;
    ensure!(stale.status == StatusCode::CONFLICT, "{}", stale.text);
    ensure!(stale.text.contains("it changed since the page was read"), "{}", stale.text);
    story
        .await_until("the object is resumed by its form", DEFAULT_WAIT_TIMEOUT, async || {
            let fields = format!("{}&reason=", server.form(&page, "resume").await?);
            let reply = server.send(&fields, &server.process.base).await?;
            Ok((reply.status == StatusCode::SEE_OTHER).then_some(()))
        })
        .await?;
    story.await_ready(&app).await?;
    story.end().await
}

/// The server refuses other browsers, other names of this machine, and requests that write.
async fn refuses_others(server: &UiBrowserClient) -> Result<()> {
    let UiBrowserClient { process, http, cookie } = server;
    let StoryUiProcess { base, login, .. } = process;
    let page = format!("{base}/");
    for (request, expected) in [
        (http.get(&page), StatusCode::FORBIDDEN),
        (http.get(&page).header(COOKIE, format!("{cookie}0")), StatusCode::FORBIDDEN),
        (http.get(login), StatusCode::FORBIDDEN),
        (
            http.get(&page).header(COOKIE, cookie).header(HOST, "evil.example"),
            StatusCode::MISDIRECTED_REQUEST,
        ),
        (
            http.get(&page).header(COOKIE, cookie).header("sec-fetch-site", "same-site"),
            StatusCode::FORBIDDEN,
        ),
        (http.request(Method::POST, &page).header(COOKIE, cookie), StatusCode::METHOD_NOT_ALLOWED),
        (http.get(format!("{base}/none")).header(COOKIE, cookie), StatusCode::NOT_FOUND),
        (http.head(&page).header(COOKIE, cookie), StatusCode::OK),
    ] {
        let reply = request.send().await?;
        forbids_scripts(&reply)?;
        ensure!(reply.status() == expected, "{expected}: {reply:?}");
    }
    // The browser with the cookie may open the printed address again, which may name a page of this server.
    for (page, expected) in [("%2Fme", "/me"), ("https%3A%2F%2Fevil.example%2F", "/")] {
        let again = http.get(format!("{login}&return={page}")).header(COOKIE, cookie);
        let reply = again.send().await?;
        ensure!(reply.headers()[LOCATION] == expected, "{page}: {reply:?}");
    }
    Ok(())
}

/// Programs get the same JSON that `-o json` prints.
async fn says_what_commands_print(
    story: &Story,
    server: &UiBrowserClient,
    app: &str,
) -> Result<()> {
    for (path, command) in [
        ("", ["why", "ks/app"]),
        ("/tree", ["tree", "ks/app"]),
        ("/history", ["history", "ks/app"]),
        ("/diff", ["diff", "ks/app"]),
        ("/yaml", ["get", "ks/app"]),
    ] {
        let mut printed = windlass(story, &[&command[..], &["-o", "json"]].concat())?.json(0)?;
        let mut page = server.json(&format!("{app}{path}")).await?;
        // The text may contain a number of minutes.
        for value in [&mut printed, &mut page] {
            value.as_object_mut().map(|fields| fields.remove("next"));
        }
        ensure!(page == printed, "{command:?}\n{printed:#}\n{page:#}");
    }
    Ok(())
}

/// Lists are the same, too. Objects may change between the two answers, so both are read until they agree.
async fn lists_say_what_commands_print(
    story: &Story,
    server: &UiBrowserClient,
    app: &str,
) -> Result<()> {
    let events = format!("{app}/events");
    for (path, command) in [
        ("/", &["why"][..]),
        ("/objects", &["get", "all"]),
        ("/incidents", &["incidents"]),
        ("/approvals", &["get", "lifecycleevents,plans"]),
        ("/calendar", &["get", "freezes"]),
        ("/audits", &["audit"]),
        (events.as_str(), &["events", "ks/app"]),
    ] {
        let mut last = String::new();
        let what = format!("{path} to be what {command:?} prints");
        let same = story.await_until(&what, AGREEMENT_LIMIT, async || {
            let printed = windlass(story, &[command, &["-o", "json"]].concat())?;
            let printed: Value = serde_json::from_str(&printed.out)?;
            let page = server.json(path).await?;
            last = format!("{printed:#}\n{page:#}");
            Ok((page == printed).then_some(()))
        });
        let same = same.await;
        same.with_context(|| last)?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_an_incident_says_what_its_commands_print() -> Result<()> {
    let story = Story::with_windlass("pages-incident").await?;
    // An Incident is kept if an Alert asks for it, also if the service of its Provider is away.
    let group = "notification.toolkit.fluxcd.io/v1beta3";
    let sources = json!([{"kind": "Kustomization", "name": "*"}]);
    let annotations = json!({"windlass.dev/incidents": "true"});
    for object in [
        json!({"apiVersion": group, "kind": "Provider", "metadata": {"name": "service"},
            "spec": {"type": "generic", "address": "http://127.0.0.1:1/"}}),
        json!({"apiVersion": group, "kind": "Alert",
            "metadata": {"name": "alert", "annotations": annotations},
            "spec": {"providerRef": {"name": "service"}, "eventSources": sources}}),
    ] {
        story.apply_value(object).await?;
    }
    let _upstream = story.follow("app", &[("a.yaml", "kind: [".to_owned())]).await?;
    story.kustomization("app", "app", json!({})).await?;
    let server = UiBrowserClient::start(&story, story.kubeconfig()).await?;
    let mut last = String::new();
    let same = story.await_until("the page of an incident", DEFAULT_WAIT_TIMEOUT, async || {
        let listed = windlass(&story, &["get", "incidents", "-o", "json"])?.json(0)?;
        let name = listed["items"][0]["metadata"]["name"].as_str().context("an incident")?;
        let path = format!("/incidents/{}/{name}", story.namespace);
        let printed = windlass(&story, &["get", &format!("incident/{name}"), "-o", "json"])?;
        let printed = printed.json(0)?;
        let page = server.json(&path).await?;
        let html = server.page(&path, &["Cause", "What changed before", "Sent to"]).await?;
        let heading = heading_text(&html, "h1").context("a heading")?;
        let table = windlass(&story, &["incidents"])?.out;
        last = format!("{printed:#}\n{page:#}\n{heading}\n{table}");
        // A long line is cut, and ends with an ellipsis.
        let begin = heading.trim_end_matches('…');
        let is_same = !begin.is_empty() && table.contains(begin) && page == printed;
        Ok(is_same.then_some(()))
    });
    let same = same.await;
    same.with_context(|| last)?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_say_what_their_user_may_not_read() -> Result<()> {
    let story = Story::with_windlass("pages-forbidden").await?;
    let kubeconfig = account(&story, "without-rights", json!([])).await?;
    let server = UiBrowserClient::start(&story, &kubeconfig).await?;
    // A user who may read but not write sees no form.
    let rules =
        json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}]);
    let reads =
        UiBrowserClient::start(&story, &account(&story, "reads-only", rules).await?).await?;
    story.kustomization("app", "app", json!({"suspend": true})).await?;
    a_lost_right_stops_a_form(&story).await?;
    let page = reads.page(&format!("/o/ks/{}/app", story.namespace), &["suspended"]).await?;
    ensure!(!page.contains("action=\"/_/act\""), "{page}");
    let forbidden = "cannot list resource &quot;kustomizations&quot;";
    let page = server.page("/objects", &[forbidden, "Nothing is known of the objects"]).await?;
    ensure!(!page.contains("There are no objects"), "{page}");
    let page = server.page("/incidents", &["whether incidents are open is not known"]).await?;
    ensure!(!page.contains("no object is failing"), "{page}");
    server.page("/", &[forbidden, "nothing is known of the objects"]).await?;
    let object = server.read(&format!("/o/ks/{}/app", story.namespace), "text/html").await?;
    ensure!(object.status == StatusCode::FORBIDDEN, "{}", object.text);
    ensure!(
        object.text.contains("cannot get resource &quot;kustomizations&quot;"),
        "{}",
        object.text
    );
    let json = server.read("/objects", "application/json").await?;
    ensure!(json.status.is_server_error(), "{}", json.text);
    ensure!(json.text.contains("cannot list resource"), "{}", json.text);
    story.end().await
}

/// A user opens a form, and loses the right before sending it. The API server refuses the request, and its words are shown.
async fn a_lost_right_stops_a_form(story: &Story) -> Result<()> {
    let rules = |verbs: &[&str]| json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": verbs}]);
    let all = ["get", "list", "watch", "patch"];
    let loses = UiBrowserClient::start(story, &account(story, "loses", rules(&all)).await?).await?;
    let page = format!("/o/ks/{}/app", story.namespace);
    let mut form = loses.form(&page, "resume").await?;
    account(story, "loses", rules(&["get", "list", "watch"])).await?;
    story
        .await_until("the right to be lost", DEFAULT_WAIT_TIMEOUT, async || {
            let rights = loses.json("/me").await?;
            let kinds = rights["kinds"].as_array().context("kinds")?;
            let of_kind = kinds.iter().find(|kind| {
                kind["resource"].as_str().is_some_and(|it| it.starts_with("kustomizations."))
            });
            let rights = of_kind.and_then(|kind| kind["rights"].as_array()).context("rights")?;
            let patch = rights.iter().find(|right| right["verb"] == "patch").context("patch")?;
            Ok((patch["allowed"] == false).then_some(()))
        })
        .await?;
    let reply = story
        .await_until("a form to be refused", DEFAULT_WAIT_TIMEOUT, async || {
            // The status may change between reading the page and sending the form. For half a minute, the answer of the
            // access review is kept, and the page has the form.
            if let Ok(newer) = loses.form(&page, "resume").await {
                form = newer;
            }
            let reply = loses.send(&format!("{form}&reason="), &loses.process.base).await?;
            Ok((reply.status != StatusCode::CONFLICT).then_some(reply))
        })
        .await?;
    ensure!(reply.status == StatusCode::FORBIDDEN, "{}: {}", reply.status, reply.text);
    let refusal = "cannot patch resource &quot;kustomizations&quot;";
    ensure!(reply.text.contains(refusal), "{}", reply.text);
    let object = story.expect(&StoryObject::kustomization("app")).await?;
    ensure!(object.data["spec"]["suspend"] == true, "{:?}", object.data);
    Ok(())
}

/// The first heading of the page of each object is the first line of `windlass why`. Objects are named as `KIND/NAME`.
pub(crate) async fn causes_are_first_headings(story: &Story, objects: &[&str]) -> Result<()> {
    let server = UiBrowserClient::start(story, story.kubeconfig()).await?;
    for object in objects.iter().copied() {
        let (kind, name) = object.split_once('/').context("KIND/NAME")?;
        let path = format!("/o/{kind}/{}/{name}", story.namespace);
        let mut last = String::new();
        let what = format!("the first heading of {path} to be the line of the command");
        // Another attempt may begin between the page and the command.
        let same = story.await_until(&what, DEFAULT_WAIT_TIMEOUT, async || {
            let heading =
                heading_text(&server.page(&path, &[]).await?, "h2").context("a heading")?;
            let why = windlass(story, &["why", object, "-o", "json"])?.json(1)?;
            let line = why["summary"].as_str().context("a summary")?.trim().to_owned();
            last = format!("{heading}\n{line}");
            // A long line is cut, and ends with an ellipsis.
            let is_same = match heading.strip_suffix('…') {
                Some(begin) => line.starts_with(begin),
                None => line == heading,
            };
            Ok(is_same.then_some(()))
        });
        let same = same.await;
        same.with_context(|| last)?;
    }
    Ok(())
}

/// The text of an object in the first heading of this level on a page. `None` if the page has no such heading.
fn heading_text(page: &str, level: &str) -> Option<String> {
    let (_, main) = page.split_once("<main")?;
    let (_, heading) = main.split_once(&format!("<{level}>"))?;
    let (heading, _) = heading.split_once(&format!("</{level}>"))?;
    let (_, text) = heading.split_once("<bdi>")?;
    let (text, _) = text.split_once("</bdi>")?;
    let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"");
    Some(text.replace("&amp;", "&"))
}
