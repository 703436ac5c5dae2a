//! Two tenants of one cluster, in the pages for a team: what one of them has leaves no trace in what the other one gets, and a
//! lost right empties a page that is open.
//!
//! Elsewhere: the login (`logins.rs`), which pages a user without rights gets (`cli/multi_user_web_pages.rs`).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use e2e::git_server::{GitReadAccess, GitServer};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, revision};
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject, await_until};
use e2e::multi_user_web_pages::BrowserCookies;
use serde_json::json;

use super::logins::BrowserLogin;
use crate::cli::multi_user_web_pages::allow_all;

/// The name of the objects of the other tenant.
const NEIGHBOR_NAME: &str = "harbor";

/// An object of the other tenant that fails. No page of the first tenant may contain its name.
const NEIGHBOR_FAILURE: &str = "harbor-broken";

/// How long pages may show what was read before: ten seconds, or more if reading took long.
const SHARED_READ_TIME: Duration = Duration::from_secs(15);

/// How long readings may take until they are the same.
const SETTLE_LIMIT: Duration = Duration::from_secs(60);

/// How long an open page may take to follow a change of rights. A right is checked each half minute, and a list that is not
/// watched is read each half minute.
const RIGHTS_LIMIT: Duration = Duration::from_secs(60);

/// Collects the events of the page's stream.
const COLLECT_EVENTS: &str = r#"
window.heard = [];
for (const name of ["part", "read", "failed", "live"])
  window.streams[0].addEventListener(name, (event) => window.heard.push(name + " " + event.data));
window.isFirst = true;
"#;

/// What a user gets for each address, without times.
type PageReadings = BTreeMap<String, String>;

/// The other tenant, whose objects do not exist yet.
struct NeighborTenant {
    story: Story,
    server: GitServer,
    url: String,
    commit: String,
}

impl NeighborTenant {
    async fn prepare() -> Result<Self> {
        let story = Story::begin("browser-neighbor").await?;
        let server = GitServer::start(GitReadAccess::Open)?;
        let repository = server.repository(NEIGHBOR_NAME)?;
        let map = config_map("a", "1");
        let commit = repository.commit(&[("a.yaml", map.as_str())], "of the neighbor")?;
        let url = server.url(&repository);
        Ok(Self { story, server, url, commit })
    }

    /// Creates the objects, and waits until one of them is applied and another one has failed.
    async fn move_in(&self) -> Result<()> {
        let Self { story, url, commit, .. } = self;
        story.git_repository(NEIGHBOR_NAME, url, json!({})).await?;
        story.kustomization(NEIGHBOR_NAME, NEIGHBOR_NAME, json!({})).await?;
        story.kustomization(NEIGHBOR_FAILURE, "absent", json!({})).await?;
        story.await_applied(NEIGHBOR_NAME, &revision(commit)).await?;
        let failure = StoryObject::kustomization(NEIGHBOR_FAILURE);
        story.await_condition(&failure, "Ready", "False", DEFAULT_WAIT_TIMEOUT).await?;
        Ok(())
    }
}

/// The bytes of all pages that a tenant gets are the same with and without the objects of another tenant: lists, counts,
/// searches, pages of single objects, JSON, and the stream of an open page.
pub(super) async fn others_leave_no_trace(login: &BrowserLogin<'_>) -> Result<()> {
    let BrowserLogin { story, pages, chromium } = login;
    let other = NeighborTenant::prepare().await?;
    // The first tenant has an object that names one of the other tenant.
    let depends = json!([{"name": NEIGHBOR_NAME, "namespace": other.story.namespace}]);
    story.kustomization("ferry", "absent", json!({"suspend": true, "dependsOn": depends})).await?;
    let mut alice = pages.log_in("alice", &story.namespace).await?;
    let before = settled_readings(login, &mut alice, &other).await?;
    let read_at = Instant::now();
    chromium.open(&login.at("/objects")).await?;
    chromium.await_text("main .list tbody", "ferry").await?;
    chromium.await_text("#live", "● Live").await?;
    chromium.read(COLLECT_EVENTS, vec![]).await?;

    other.move_in().await?;
    a_user_with_rights_sees_it(login, &other).await?;
    await_until("what was read before to be read again", SETTLE_LIMIT, async || {
        Ok((read_at.elapsed() > SHARED_READ_TIME).then_some(()))
    })
    .await?;
    let mut last = String::new();
    let same = await_until("pages without a trace of the other tenant", SETTLE_LIMIT, async || {
        last = difference(&before, &readings(login, &mut alice, &other).await?);
        Ok(last.is_empty().then_some(()))
    });
    let same = same.await;
    same.with_context(|| last)?;

    // The stream has sent everything before this change.
    story.kustomization("quay", "absent", json!({"suspend": true})).await?;
    chromium.await_text("main .list tbody", "quay").await?;
    ensure!(chromium.read("return window.isFirst", vec![]).await? == true, "it was loaded again");
    let heard = chromium.read("return window.heard", vec![]).await?.to_string();
    ensure!(heard.contains("quay"), "{heard}");
    for foreign in [NEIGHBOR_FAILURE, other.commit.as_str()] {
        ensure!(!heard.contains(foreign), "the stream contains {foreign}: {heard}");
    }
    let NeighborTenant { story: neighbor, server, .. } = other;
    neighbor.end().await?;
    drop(server);
    Ok(())
}

/// The other tenant gets all its objects by the same addresses, so they could be in the pages of the first one.
async fn a_user_with_rights_sees_it(
    login: &BrowserLogin<'_>,
    other: &NeighborTenant,
) -> Result<()> {
    allow_all(&other.story, "bob").await?;
    let bob = login.pages.log_in("bob", &other.story.namespace).await?;
    let commit = format!("/c/{}", other.commit);
    for (path, part) in [
        ("/", NEIGHBOR_FAILURE),
        ("/objects", NEIGHBOR_FAILURE),
        ("/objects?q=harbor", NEIGHBOR_FAILURE),
        ("/changes", other.commit.as_str()),
        ("/audits", NEIGHBOR_NAME),
        (commit.as_str(), "has arrived"),
    ] {
        await_until(&format!("{part} on {path} of its owner"), SETTLE_LIMIT, async || {
            let page = login.pages.page_as(0, path, &bob, "text/html").await?;
            Ok(page.contains(part).then_some(()))
        })
        .await?;
    }
    Ok(())
}

/// Reads all pages until they are the same twice.
async fn settled_readings(
    login: &BrowserLogin<'_>,
    alice: &mut BrowserCookies,
    other: &NeighborTenant,
) -> Result<PageReadings> {
    let mut last = readings(login, alice, other).await?;
    let mut changed = String::new();
    let settled = await_until("pages to be the same twice", SETTLE_LIMIT, async || {
        let next = readings(login, alice, other).await?;
        changed = difference(&last, &next);
        last = next;
        Ok(changed.is_empty().then_some(()))
    });
    let settled = settled.await;
    settled.with_context(|| changed)?;
    Ok(last)
}

/// The addresses that a tenant can try, the own ones and those of another tenant. `/me` is not among them: it reads no objects,
/// and asks the API server two hundred questions.
fn probed_paths(own: &str, other: &NeighborTenant) -> Vec<String> {
    let neighbor = &other.story.namespace;
    let fixed = [
        "/",
        "/objects",
        "/objects?kind=Kustomization",
        "/objects?state=failing",
        "/objects?q=harbor",
        "/incidents",
        "/changes",
        "/approvals",
        "/calendar",
        "/audits",
    ];
    let mut paths = fixed.map(str::to_owned).to_vec();
    paths.push(format!("/objects?ns={neighbor}"));
    paths.push(format!("/c/{}", other.commit));
    for tab in ["", "/graph", "/tree", "/history", "/events", "/yaml"] {
        paths.push(format!("/o/ks/{own}/ferry{tab}"));
    }
    for name in [NEIGHBOR_NAME, NEIGHBOR_FAILURE] {
        paths.push(format!("/o/ks/{neighbor}/{name}"));
        paths.push(format!("/o/ks/{neighbor}/{name}/events"));
    }
    paths.push(format!("/o/gitrepository/{neighbor}/{NEIGHBOR_NAME}"));
    paths
}

/// Reads all pages of the own namespace and of all namespaces, as a browser and as a program.
async fn readings(
    login: &BrowserLogin<'_>,
    alice: &mut BrowserCookies,
    other: &NeighborTenant,
) -> Result<PageReadings> {
    let own = &login.story.namespace;
    let paths = probed_paths(own, other);
    let mut all = PageReadings::new();
    for scope in [own.as_str(), ""] {
        login.pages.choose(alice, scope).await?;
        for path in &paths {
            for accept in ["text/html", "application/json"] {
                let page = login.pages.page_as(0, path, alice, accept).await?;
                all.insert(format!("{path} as {accept} of {scope:?}"), without_times(&page));
            }
        }
    }
    Ok(all)
}

/// The first page that differs, in both forms. Empty if none does.
fn difference(before: &PageReadings, after: &PageReadings) -> String {
    let mut pairs = before.iter().map(|(path, text)| (path, text, after.get(path)));
    let differs = pairs.find(|(_, before, after)| after.is_none_or(|after| after != *before));
    differs
        .map(|(path, before, after)| format!("{path}\n{before}\nthen\n{after:?}"))
        .unwrap_or_default()
}

/// A page without the ages of what it shows, the time at which it was read, and the digests and versions that follow from them.
fn without_times(page: &str) -> String {
    let parts = [
        ("<time", "</time>"),
        ("id=\"read-at\">", "<"),
        ("data-digest=\"", "\""),
        ("data-live=\"", "\""),
    ];
    parts.into_iter().fold(page.to_owned(), |page, (begin, end)| without(&page, begin, end))
}

/// A text without all that is between two other texts.
fn without(text: &str, begin: &str, end: &str) -> String {
    let mut kept = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(begin) {
        kept.push_str(before);
        rest = after.split_once(end).map_or("", |(_, rest)| rest);
    }
    kept.push_str(rest);
    kept
}

/// When a user loses a right, the rows vanish from the page that is open, which names the missing right. The page stays
/// connected. With the right, a page that is opened has the rows again; with `--thorough`, so has the open one.
pub(super) async fn a_lost_right_empties_the_open_page(login: &BrowserLogin<'_>) -> Result<()> {
    let BrowserLogin { story, chromium, .. } = login;
    let path = "/objects?kind=Kustomization";
    chromium.open(&login.at(path)).await?;
    chromium.await_text("main .list tbody", "payments").await?;
    chromium.await_text("#live", "● Live").await?;
    chromium.read("window.isFirst = true", vec![]).await?;
    story.delete(&StoryObject::new("rbac.authorization.k8s.io/v1", "RoleBinding", "alice")).await?;
    await_until("rows to vanish with the right", RIGHTS_LIMIT, async || {
        let text = chromium.text("main").await?;
        let is_empty = !text.contains("payments") && text.contains("cannot list resource");
        Ok(is_empty.then_some(()))
    })
    .await?;
    chromium.await_true("window.openStreams() === 1 && window.isFirst").await?;
    allow_all(story, "alice").await?;
    await_until("rows to return with the right", RIGHTS_LIMIT, async || {
        if cfg!(not(feature = "thorough")) {
            chromium.open(&login.at(path)).await?;
        }
        Ok(chromium.text("main").await?.contains("payments").then_some(()))
    })
    .await?;
    let is_first = chromium.read("return window.isFirst === true", vec![]).await?;
    ensure!(is_first == cfg!(feature = "thorough"), "the page was loaded again, or not at all");
    Ok(())
}
