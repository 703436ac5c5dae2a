//! A login in a real browser: the way to the issuer and back, cookies of a host without TLS, the field of the namespace, the form
//! of an action, and the form that ends the session.
//!
//! Elsewhere: what users may see and do, and refused requests (`cli/multi_user_web_pages.rs`).

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::harness::{Story, StoryObject, await_until};
use serde_json::json;

use super::chromium::{BrowserSteps, Chromium, ENTER_KEY, TIME_LIMIT};
use super::tenants;
use crate::cli::multi_user_web_pages::{MultiUserWebPages, allow_all};

/// The path of the first page.
const LIST_PATH: &str = "/objects?kind=Kustomization";

/// How long one attempt to log in may take. The step attempts it until [`TIME_LIMIT`].
const LOGIN_LIMIT: Duration = Duration::from_secs(5);

/// A login, and the pages of a user who has logged in.
pub(super) struct BrowserLogin<'s> {
    pub(super) story: &'s Story,
    pub(super) pages: MultiUserWebPages,
    pub(super) chromium: Chromium,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_logs_in_sees_nothing_of_others_and_logs_out_in_chromium() -> Result<()> {
    let story = Story::with_windlass("browser-team").await?;
    story.kustomization("payments", "absent", json!({"suspend": true})).await?;
    allow_all(&story, "alice").await?;
    let pages = MultiUserWebPages::start(&story).await?;
    let chromium = Chromium::start().await?;
    let login = BrowserLogin { story: &story, pages, chromium };
    let mut steps = BrowserSteps::new(&login.chromium);
    steps.run("log in", async || login.logs_in().await).await;
    steps.run("resume", async || login.resumes().await).await;
    steps.run("other tenants", async || tenants::others_leave_no_trace(&login).await).await;
    let lost = async || tenants::a_lost_right_empties_the_open_page(&login).await;
    steps.run("a lost right", lost).await;
    steps.run("log out", async || login.logs_out().await).await;
    steps.end()?;
    story.end().await
}

impl BrowserLogin<'_> {
    /// The address of a page.
    pub(super) fn at(&self, path: &str) -> String {
        format!("http://{}{path}", self.pages.host)
    }

    /// Opens the list. The browser goes over the issuer if it has no session, and each page on that way counts as loaded. A
    /// login that failed stays at its page, so the next attempt must not wait for long.
    async fn open_list_after_login(&self) -> Result<()> {
        let chromium = &self.chromium;
        chromium.open(&self.at(LIST_PATH)).await?;
        await_until("the browser at the list", LOGIN_LIMIT, async || {
            let path = chromium.address().await?.path().to_owned();
            Ok((path == "/objects").then_some(()))
        })
        .await
    }

    /// The browser goes to the issuer, comes back, and keeps nothing that a script can read.
    async fn logs_in(&self) -> Result<()> {
        let Self { story, pages, chromium } = self;
        pages.issuer.answer_as(Some("alice"));
        // The API server looks for the issuer every ten seconds until it finds it. A session that began before that is refused.
        story
            .await_until("what alice may read", TIME_LIMIT, async || {
                self.open_list_after_login().await?;
                chromium.forget_cookies().await?;
                self.open_list_after_login().await?;
                let field = "form[action='/namespace'] input[name=name]";
                chromium.write(field, &story.namespace).await?;
                chromium.press(ENTER_KEY).await?;
                chromium.await_text(".where", &story.namespace).await?;
                chromium.open(&self.at(LIST_PATH)).await?;
                // Until the API server trusts the issuer, it does not say who the user is.
                let is_known = chromium.text(".rail footer").await?.contains("oidc:alice");
                let is_shown = chromium.text("main").await?.contains("payments");
                Ok((is_known && is_shown).then_some(()))
            })
            .await?;
        let footer = chromium.text(".rail footer").await?;
        ensure!(footer.contains("oidc:alice") && footer.contains("Log out"), "{footer}");
        let kept = "return [document.cookie, localStorage.length, sessionStorage.length, window.seenViolations]";
        let kept = chromium.read(kept, vec![]).await?;
        ensure!(kept == json!(["", 0, 0, []]), "a script can read {kept}");
        let address = chromium.address().await?;
        ensure!(
            !address.as_str().contains("code=") && !address.as_str().contains("eyJ"),
            "{address}"
        );
        Ok(())
    }

    /// The browser sends the form of an action with its origin, and shows the message about it.
    async fn resumes(&self) -> Result<()> {
        let Self { story, chromium, .. } = self;
        chromium.open(&self.at(&format!("/o/ks/{}/payments", story.namespace))).await?;
        let form = "details.act:has(input[name=action][value=resume])";
        chromium.click(&format!("{form} > summary")).await?;
        chromium.click(&format!("{form} button[type=submit]")).await?;
        chromium.await_text("main", "/payments is resumed").await?;
        let object = story.expect(&StoryObject::kustomization("payments")).await?;
        ensure!(object.data["spec"]["suspend"] != true, "{object:?}");
        let annotations = object.metadata.annotations.unwrap_or_default();
        let user = annotations.get("windlass.dev/requested-by").map(String::as_str);
        ensure!(user == Some("oidc:alice"), "{annotations:?}");
        Ok(())
    }

    /// The browser sends the form of the page with its origin, and loses the session.
    async fn logs_out(&self) -> Result<()> {
        let Self { pages, chromium, .. } = self;
        pages.issuer.answer_as(None);
        chromium.open(&self.at(LIST_PATH)).await?;
        chromium.click("form[action='/logout'] button").await?;
        chromium.await_text("main", "Logged out").await?;
        chromium.open(&self.at(LIST_PATH)).await?;
        // The issuer does not answer for this browser now, so the browser stays there.
        chromium.await_true("location.pathname === '/auth'").await?;
        let text = chromium.text("body").await.context("the page of the issuer")?;
        ensure!(!text.contains("payments"), "{text}");
        Ok(())
    }
}
