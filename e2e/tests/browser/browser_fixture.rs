//! The objects of the story, the pages of `windlass ui` about them, and the browser that has opened them.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use axum::Router;
use axum::extract::State;
use axum::response::Html;
use axum::routing::get;
use e2e::api_server_fault_proxy::ApiServerFaultProxy;
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, FollowedGitRepository, revision};
use e2e::harness::manifests::{PodBehavior, config_map, deployment};
use e2e::harness::{Story, StoryObject};
use serde_json::json;
use tokio::net::TcpListener;

use super::chromium::Chromium;
use crate::cli::why_causes::await_cause;
use crate::cli::windlass_ui::StoryUiProcess;

/// A text that would run a script, load an image or become a link if a page did not escape it.
pub(super) const HOSTILE_TEXT: &str =
    "</bdi><img src=x onerror=alert(1)><script>alert(2)</script> javascript:alert(3) \u{202e}";

/// The path of a Kustomization that does not exist. Messages about it contain markup.
const HOSTILE_PATH: &str = "./<img src=x onerror=alert(4)>";

/// The pages of a story, open in a browser.
pub(super) struct BrowserFixture<'s> {
    pub(super) story: &'s Story,
    pub(super) chromium: Chromium,
    /// The connection of the pages to the API server.
    pub(super) proxy: ApiServerFaultProxy,
    /// The newest commit. Its subject is hostile.
    pub(super) commit: String,
    pages: StoryUiProcess,
    _upstream: FollowedGitRepository<'s>,
}

impl<'s> BrowserFixture<'s> {
    /// Creates the objects, and opens the address that `windlass ui` prints.
    pub(super) async fn open(story: &'s Story) -> Result<Self> {
        let files =
            [("a.yaml", config_map("a", "1")), ("web.yaml", deployment("web", PodBehavior::Ready))];
        let upstream = story.follow("app", &files).await?;
        let commit =
            upstream.repository.commit(&[("a.yaml", &config_map("a", "2"))], HOSTILE_TEXT)?;
        story.request(&StoryObject::git_repository("app")).await?;
        story.kustomization("app", "app", json!({"wait": true})).await?;
        story.kustomization("hostile", "app", json!({"path": HOSTILE_PATH})).await?;
        story.kustomization("broken", "absent", json!({})).await?;
        story.kustomization("keys", "app", json!({"path": "./nowhere", "suspend": true})).await?;
        let proxy = ApiServerFaultProxy::start(story.kubeconfig())?;
        let chromium = Chromium::start().await?;
        let pages = StoryUiProcess::start(story, proxy.kubeconfig()).await?;
        story.await_applied("app", &revision(&commit)).await?;
        let parts = ["GitRepository/{ns}/absent", "does not exist"];
        await_cause(story, "ks/broken", "Missing", &parts).await?;
        let hostile = StoryObject::kustomization("hostile");
        story.await_condition(&hostile, "Ready", "False", DEFAULT_WAIT_TIMEOUT).await?;
        chromium.open(&pages.login).await?;
        Ok(Self { story, chromium, proxy, commit, pages, _upstream: upstream })
    }

    /// The address of a page.
    pub(super) fn at(&self, path: &str) -> String {
        format!("{}{path}", self.pages.base)
    }

    /// The port of the pages.
    pub(super) fn port(&self) -> Result<&str> {
        Ok(self.pages.base.rsplit_once(':').context("a port")?.1)
    }

    /// The path of the page of a Kustomization.
    pub(super) fn object(&self, name: &str) -> String {
        format!("/o/ks/{}/{name}", self.story.namespace)
    }

    /// Opens the page at this path of windlass in the browser.
    pub(super) async fn show(&self, path: &str) -> Result<()> {
        self.chromium.open(&self.at(path)).await
    }

    /// The paths of all pages that the story has objects for.
    pub(super) fn paths(&self) -> Vec<String> {
        let fixed = [
            "/",
            "/objects",
            "/incidents",
            "/changes",
            "/approvals",
            "/calendar",
            "/audits",
            "/me",
            "/c/0123456789abcdef",
        ];
        let mut paths = fixed.map(str::to_owned).to_vec();
        paths.push(format!("/c/{}", self.commit));
        for (name, tabs) in [
            ("app", &["", "/graph", "/tree", "/diff", "/history", "/events", "/logs", "/yaml"][..]),
            ("hostile", &["", "/graph", "/events", "/yaml"]),
            ("broken", &[""]),
        ] {
            paths.extend(tabs.iter().map(|tab| format!("{}{tab}", self.object(name))));
        }
        paths
    }
}

/// A server of an attacker on another port of this machine. Each of its pages has this content.
pub(super) async fn foreign_server(content: String) -> Result<SocketAddr> {
    let router = Router::new().fallback(get(foreign_page)).with_state(content);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(address)
}

async fn foreign_page(State(content): State<String>) -> Html<String> {
    Html(content)
}
