//! The journey of a commit in an open page: from the push to what it did to each object, and back by the keyboard.
//!
//! Journeys are ChangeSets and audits of the cluster, so a server that is killed loses none.
//! Elsewhere: the verdict about a commit (`stories/change_sets.rs`), commits that are not known (`cli/windlass_ui.rs`).

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use crds::windlass_release::ReleaseAudit;
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, FollowedGitRepository};
use e2e::harness::manifests::{PodBehavior, config_map, deployment};
use e2e::harness::release_audits::audits;
use e2e::harness::{Story, StoryObject, await_until};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::chromium::{BrowserSteps, Chromium, ENTER_KEY};
use super::keyboard::tab_to;
use crate::cli::windlass_ui::StoryUiProcess;

/// How far a row may be from its audit.
const TOLERANCE_MILLISECONDS: i64 = 100;

/// The width of a bar, in SVG units.
const BAR_WIDTH: i64 = 1000;

/// The shortest bar. It begins so early that it fits.
const SHORTEST_BAR: i64 = 4;

/// How long it may take until the page has each row.
const ROWS_LIMIT: Duration = Duration::from_secs(30);

/// The rows of operations, each with its object and its bar.
const JOURNEY_ROWS: &str = r#"
return [...document.querySelectorAll("main .item:has(svg.journey)")].map((item) => {
  const bar = item.querySelector("svg.journey rect");
  const number = (name) => Math.round(Number(bar.getAttribute(name)));
  return { object: item.querySelector("a").getAttribute("href"), begin: number("x"), length: number("width") };
});
"#;

/// The row of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
struct JourneyRow {
    /// The path of the object's page.
    object: String,
    /// Where the bar begins, in SVG units.
    begin: i64,
    length: i64,
}

impl JourneyRow {
    fn read(row: &Value) -> Result<Self> {
        let object = row["object"].as_str().context("an object")?.to_owned();
        let begin = row["begin"].as_i64().context("a begin")?;
        Ok(Self { object, begin, length: row["length"].as_i64().context("a length")? })
    }
}

/// The rows that the audits of a commit call for.
struct ExpectedJourney {
    rows: Vec<JourneyRow>,
    /// How far a bar may be from them, in SVG units.
    tolerance: i64,
}

impl ExpectedJourney {
    fn of(story: &Story, audits: &[ReleaseAudit]) -> Result<Self> {
        let mut begins = Vec::new();
        let mut ends = Vec::new();
        for ReleaseAudit { spec, .. } in audits {
            begins.push(spec.started.as_ref().context("a begin")?.0.as_millisecond());
            ends.push(spec.ended.as_ref().context("an end")?.0.as_millisecond());
        }
        let first = begins.iter().min().copied().context("no audit")?;
        let last = ends.iter().max().copied().context("no audit")?;
        let whole = (last - first).max(1);
        let mut rows = Vec::new();
        for ((audit, begin), end) in audits.iter().zip(&begins).zip(&ends) {
            let begin = ((begin - first) * BAR_WIDTH / whole).min(BAR_WIDTH - SHORTEST_BAR);
            let end = (end - first) * BAR_WIDTH / whole;
            let object = format!("/o/ks/{}/{}", story.namespace, audit.spec.subject.name);
            rows.push(JourneyRow { object, begin, length: (end - begin).max(SHORTEST_BAR) });
        }
        rows.sort_by(|one, other| one.object.cmp(&other.object));
        Ok(Self { rows, tolerance: TOLERANCE_MILLISECONDS * BAR_WIDTH / whole + 1 })
    }

    fn agrees_with(&self, shown: &[JourneyRow]) -> bool {
        let is_near = |one: i64, other: i64| (one - other).abs() <= self.tolerance;
        let mut pairs = self.rows.iter().zip(shown);
        self.rows.len() == shown.len()
            && pairs.all(|(one, other)| {
                one.object == other.object
                    && is_near(one.begin, other.begin)
                    && is_near(one.length, other.length)
            })
    }
}

/// The audits of operations that a commit caused.
async fn audits_of(story: &Story, commit: &str) -> Result<Vec<ReleaseAudit>> {
    let mut all = audits(story).await?;
    let is_of_commit = |revision: Option<&String>| revision.is_some_and(|it| it.ends_with(commit));
    all.retain(|audit| {
        let target = audit.spec.to.as_ref().and_then(|to| to.revision.as_ref());
        is_of_commit(target)
            || audit.spec.causes.iter().any(|cause| is_of_commit(cause.version.as_ref()))
    });
    Ok(all)
}

/// A cluster in which one Kustomization waits for another one, and a browser with pages about it.
struct JourneySite<'s> {
    story: &'s Story,
    upstream: FollowedGitRepository<'s>,
    chromium: Chromium,
    pages: StoryUiProcess,
}

fn files(value: &str) -> [(&'static str, String); 3] {
    [
        ("base/a.yaml", config_map("a", value)),
        ("web/b.yaml", config_map("b", value)),
        ("web/web.yaml", deployment("web", PodBehavior::Ready)),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_page_follows_a_commit_and_takes_it_back() -> Result<()> {
    let story = Story::with_windlass("browser-journey").await?;
    let upstream = story.follow("app", &files("1")).await?;
    story.kustomization("base", "app", json!({"path": "./base"})).await?;
    let depends = json!({"path": "./web", "wait": true, "dependsOn": [{"name": "base"}]});
    story.kustomization("web", "app", depends).await?;
    for name in ["base", "web"] {
        story.await_ready(&StoryObject::kustomization(name)).await?;
    }
    let chromium = Chromium::start().await?;
    let pages = StoryUiProcess::start(&story, story.kubeconfig()).await?;
    chromium.open(&pages.login).await?;
    let mut site = JourneySite { story: &story, upstream, chromium, pages };
    let pushed = site.pushed_commit_arrives().await;
    let commit = match pushed {
        Ok(commit) => commit,
        Err(error) => {
            let picture = site.chromium.picture("journey").await?;
            return Err(error.context(picture.display().to_string()));
        }
    };
    site.restart_pages().await?;
    let mut steps = BrowserSteps::new(&site.chromium);
    steps
        .run("after a kill", async || site.rows_are_those_of_audits(&commit).await.map(drop))
        .await;
    steps.run("rollback", async || site.keyboard_rolls_back(&commit).await).await;
    steps.end()?;
    story.end().await
}

impl JourneySite<'_> {
    async fn show(&self, path: &str) -> Result<()> {
        self.chromium.open(&format!("{}{path}", self.pages.base)).await
    }

    /// The open list gets a pushed commit, and its page ends with a row for each object. Nothing is loaded again.
    async fn pushed_commit_arrives(&self) -> Result<String> {
        let Self { story, upstream, chromium, .. } = self;
        self.show("/changes").await?;
        chromium.await_text("#live", "● Live").await?;
        chromium.read("window.isFirst = true", vec![]).await?;
        let begin = Timestamp::now().as_second();
        let applied = upstream.push(&files("2")).await?;
        let (_, commit) = applied.rsplit_once(':').context("a commit")?;
        let link = format!("main a[href='/c/{commit}']");
        chromium.await_true(&format!("document.querySelector({link:?}) && window.isFirst")).await?;
        // The list may be replaced at any time, and a pointer that rests on the next page would keep its rows from being
        // replaced. So a script follows the link.
        let follow = "document.querySelector(arguments[0]).click()";
        chromium.read(follow, vec![link.into()]).await?;
        chromium.await_true(&format!("location.pathname === '/c/{commit}'")).await?;
        chromium.await_text("#live", "● Live").await?;
        chromium.read("window.isFirst = true", vec![]).await?;
        chromium.await_text("main h1", "has arrived").await?;
        let rows = self.rows_are_those_of_audits(commit).await?;
        let [base, web] = rows.as_slice() else { bail!("{rows:?}") };
        ensure!(base.begin <= web.begin, "base begins after web, which waits for it: {rows:?}");
        let is_first = chromium.read("return window.isFirst", vec![]).await?;
        ensure!(is_first == true, "the page was loaded again");
        for audit in audits_of(story, commit).await? {
            let started = audit.spec.started.map(|at| at.0.as_second());
            ensure!(started.is_some_and(|at| at >= begin), "{started:?} is before the push");
        }
        Ok(commit.to_owned())
    }

    /// The page of the commit has a row for each audit, at the time of the audit.
    async fn rows_are_those_of_audits(&self, commit: &str) -> Result<Vec<JourneyRow>> {
        let Self { story, chromium, .. } = self;
        if chromium.address().await?.path() != format!("/c/{commit}") {
            self.show(&format!("/c/{commit}")).await?;
        }
        let mut last = String::new();
        let agreed = await_until("a row for each audit", ROWS_LIMIT, async || {
            let expected = ExpectedJourney::of(story, &audits_of(story, commit).await?)?;
            let shown = chromium.read(JOURNEY_ROWS, vec![]).await?;
            let shown = shown.as_array().into_iter().flatten().map(JourneyRow::read);
            let mut shown = shown.collect::<Result<Vec<_>>>()?;
            shown.sort_by(|one, other| one.object.cmp(&other.object));
            last = format!("{shown:?} instead of {:?}", expected.rows);
            Ok((shown.len() == 2 && expected.agrees_with(&shown)).then_some(shown))
        });
        let agreed = agreed.await;
        agreed.with_context(|| last)
    }

    /// Kills the server of the pages, and opens the pages of a new one.
    async fn restart_pages(&mut self) -> Result<()> {
        // The process is killed when the old value is dropped.
        self.pages = StoryUiProcess::start(self.story, self.story.kubeconfig()).await?;
        self.chromium.open(&self.pages.login).await
    }

    /// From the overview to a rollback without a pointer.
    async fn keyboard_rolls_back(&self, commit: &str) -> Result<()> {
        let Self { story, chromium, .. } = self;
        self.show("/").await?;
        chromium.await_text("#live", "● Live").await?;
        chromium.press("gc").await?;
        chromium.await_true("location.pathname === '/changes'").await?;
        chromium.await_text("#live", "● Live").await?;
        tab_to(chromium, "main a[href^='/o/change/']").await?;
        chromium.press(ENTER_KEY).await?;
        chromium.await_true("location.pathname.startsWith('/o/change/')").await?;
        chromium.await_text("#live", "● Live").await?;
        let form = "details.act:has(input[name=action][value=rollback])";
        tab_to(chromium, &format!("{form} > summary")).await?;
        chromium.press(ENTER_KEY).await?;
        tab_to(chromium, &format!("{form} input[name=reason]")).await?;
        chromium.press("sales stopped").await?;
        tab_to(chromium, &format!("{form} button")).await?;
        chromium.press(ENTER_KEY).await?;
        chromium.await_text("main", "the rollback of").await?;
        for name in ["a", "b"] {
            story.await_value(name, "1").await?;
        }
        let base = StoryObject::kustomization("base");
        let message = story.await_failure(&base, "Quarantined").await?;
        ensure!(message.contains("sales stopped"), "{message}");
        self.show(&format!("/c/{commit}")).await?;
        // `web` goes back as well, although `base`, on which it depends, is not ready any more once it went back.
        await_until("the commit to be rolled back", DEFAULT_WAIT_TIMEOUT, async || {
            let heading = chromium.text("main h1").await?;
            let is_back = heading.contains("was rolled back") && heading.contains("2 went back");
            Ok(is_back.then_some(()))
        })
        .await
    }
}
