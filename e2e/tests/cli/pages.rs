//! `windlass ui`: which browser gets answers, the content of pages compared with the commands, and updates of open pages.
//!
//! Elsewhere: escaping of texts, and refused requests (unit tests of `web`).

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use e2e::harness::flux::DEFAULT_WAIT_TIMEOUT;
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

/// A running `windlass ui`. It ends when this is dropped.
struct PageServer {
    _process: Child,
    http: Client,
    /// The address without a path.
    base: String,
    /// The address that the command printed.
    login: String,
    /// The cookie of the browser that opened the address.
    cookie: String,
}

/// The answer of the server.
struct PageReply {
    status: StatusCode,
    text: String,
}

impl PageServer {
    /// Starts the server with a kubeconfig, and opens the printed address.
    async fn start(story: &Story, kubeconfig: &Path) -> Result<Self> {
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
        let http = Client::builder().redirect(Policy::none()).build()?;
        let opened = http.get(&login).send().await?;
        ensure!(opened.status() == StatusCode::SEE_OTHER, "{opened:?}");
        ensure!(opened.headers()[LOCATION] == "/", "{opened:?}");
        let cookie = opened.headers()[SET_COOKIE].to_str()?;
        ensure!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"), "{cookie}");
        let (cookie, _) = cookie.split_once(';').context("a cookie")?;
        let cookie = cookie.to_owned();
        Ok(Self { _process: process, http, base, login, cookie })
    }

    /// Reads a page as a browser or as a program.
    async fn read(&self, path: &str, accept: &str) -> Result<PageReply> {
        let request = self.http.get(format!("{}{path}", self.base)).header(COOKIE, &self.cookie);
        let reply = request.header(ACCEPT, accept).send().await?;
        forbids_scripts(&reply)?;
        let status = reply.status();
        Ok(PageReply { status, text: reply.text().await? })
    }

    /// Reads a page, and checks that it contains all given texts and no script.
    async fn page(&self, path: &str, says: &[&str]) -> Result<String> {
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
        let events = self.http.get(format!("{}{address}", self.base)).header(COOKIE, &self.cookie);
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
    async fn form(&self, path: &str, action: &str) -> Result<String> {
        let page = self.page(path, &[]).await?;
        let named = format!("name=\"action\" value=\"{action}\"");
        let mut forms = page.split("<form ").skip(1);
        let form = forms.find(|form| form.contains(&named)).with_context(|| page.clone())?;
        let form = form.split("</form>").next().unwrap_or_default();
        let hidden = form.split("type=\"hidden\" name=\"").skip(1).map(|rest| {
            let (name, rest) = rest.split_once("\" value=\"").context("a value")?;
            let (value, _) = rest.split_once('"').context("its end")?;
            Ok(format!("{name}={value}"))
        });
        Ok(hidden.collect::<Result<Vec<_>>>()?.join("&"))
    }

    /// Sends a form with the origin of a page.
    async fn send(&self, fields: &str, origin: &str) -> Result<PageReply> {
        let request = self.http.post(format!("{}/_/act", self.base)).header(COOKIE, &self.cookie);
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

    async fn json(&self, path: &str) -> Result<Value> {
        let PageReply { status, text } = self.read(path, "application/json").await?;
        ensure!(status == StatusCode::OK, "{path}: {status}\n{text}");
        serde_json::from_str(&text).with_context(|| format!("{path}: {text}"))
    }
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
    let server = PageServer::start(&story, story.kubeconfig()).await?;
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
async fn shows_changes(story: &Story, server: &PageServer) -> Result<()> {
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
    let server = PageServer::start(&story, story.kubeconfig()).await?;
    let page = format!("/o/ks/{}/app", story.namespace);
    let fields = format!("{}&reason=incident-1&until=2h", server.form(&page, "suspend").await?);
    let forged = server.send(&fields, "http://127.0.0.1:1").await?;
    ensure!(forged.status == StatusCode::FORBIDDEN, "{}", forged.text);
    let without = fields.replace("&seal=", "&seal=0");
    let without = server.send(&without, &server.base).await?;
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
            let reply = server.send(&fields, &server.base).await?;
            Ok((reply.status == StatusCode::SEE_OTHER).then_some((fields, reply.text)))
        })
        .await?;
    server.page(&done, &["is suspended", "incident-1", "value=\"resume\""]).await?;
    let stale = server.send(&fields, &server.base).await?;
    ensure!(stale.status == StatusCode::CONFLICT, "{}", stale.text);
    ensure!(stale.text.contains("it changed since the page was read"), "{}", stale.text);
    story
        .await_until("the object is resumed by its form", DEFAULT_WAIT_TIMEOUT, async || {
            let fields = format!("{}&reason=", server.form(&page, "resume").await?);
            let reply = server.send(&fields, &server.base).await?;
            Ok((reply.status == StatusCode::SEE_OTHER).then_some(()))
        })
        .await?;
    story.await_ready(&app).await?;
    story.end().await
}

/// The server refuses other browsers, other names of this machine, and requests that write.
async fn refuses_others(server: &PageServer) -> Result<()> {
    let PageServer { http, base, login, cookie, .. } = server;
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
    Ok(())
}

/// Programs get the same JSON that `-o json` prints.
async fn says_what_commands_print(story: &Story, server: &PageServer, app: &str) -> Result<()> {
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

#[tokio::test(flavor = "multi_thread")]
async fn pages_say_what_their_user_may_not_read() -> Result<()> {
    let story = Story::with_windlass("pages-forbidden").await?;
    let kubeconfig = account(&story, "without-rights", json!([])).await?;
    let server = PageServer::start(&story, &kubeconfig).await?;
    // A user who may read but not write sees no form.
    let rules =
        json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}]);
    let reads = PageServer::start(&story, &account(&story, "reads-only", rules).await?).await?;
    story.kustomization("app", "app", json!({"suspend": true})).await?;
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
