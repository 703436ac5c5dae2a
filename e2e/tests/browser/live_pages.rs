//! Pages that stay open: many tabs, an API server that goes away or answers no access review, and typing while the object
//! changes.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::api_server_fault_proxy::ApiFault;
use e2e::harness::{StoryObject, await_until};
use serde_json::json;

use super::browser_fixture::BrowserFixture;
use super::chromium::PHONE_SIZE;

/// How many tabs are open at once. Browsers have six connections to one server over HTTP/1.1.
const OPEN_TABS: usize = 7;

/// How often an object changes while a person types.
const OBJECT_CHANGES: usize = 50;

/// How long a page may take to show the cluster again after the API server was away.
const RETURN_LIMIT: Duration = Duration::from_secs(60);

/// The texts of a page without ages, which change by themselves.
const PAGE_TEXT: &str = r#"
const copy = document.querySelector("main").cloneNode(true);
copy.querySelectorAll("time").forEach((it) => it.remove());
return copy.textContent;
"#;

/// What a person notices of a form that is open.
const FORM_STATE: &str = r#"
const field = document.querySelector("form:has(input[value=suspend]) input[name=reason]");
return { text: field?.value, hasFocus: document.activeElement === field, scroll: Math.round(scrollY), at: field?.selectionStart };
"#;

/// All tabs load, and a hidden one holds no connection.
pub(super) async fn many_tabs_are_live(site: &BrowserFixture<'_>) -> Result<()> {
    let chromium = &site.chromium;
    let first = chromium.tab().await?;
    let mut tabs = vec![first.clone()];
    for at in 0..OPEN_TABS {
        if at > 0 {
            tabs.push(chromium.open_tab().await?);
        }
        site.show("/objects").await?;
        chromium.await_text("#live", "● Live").await?;
        chromium.await_true("window.openStreams() === 1").await?;
    }
    let (last, hidden) = tabs.split_last().unwrap_or((&first, &[]));
    for tab in hidden {
        chromium.show_tab(tab).await?;
        let open = chromium.read("return window.openWhenHidden", vec![]).await?;
        ensure!(open == 0, "a hidden tab holds {open} streams");
        chromium.await_true("window.openStreams() === 1").await?;
    }
    for tab in hidden.iter().skip(1).chain([last]) {
        chromium.show_tab(tab).await?;
        chromium.close_tab().await?;
    }
    chromium.show_tab(&first).await
}

/// A page says that it is not live while the API server is away. Then it shows what has changed meanwhile, without being loaded
/// again, and the same as a page that is loaded anew.
pub(super) async fn an_absent_api_server_is_admitted(site: &BrowserFixture<'_>) -> Result<()> {
    let chromium = &site.chromium;
    let page = site.object("broken");
    site.show(&page).await?;
    chromium.await_text("#live", "● Live").await?;
    chromium.read("window.isFirst = true", vec![]).await?;
    site.proxy.begin(ApiFault::Gone);
    let noticed = chromium.await_text("#live", "Not live").await;
    let suspend = json!({"spec": {"suspend": true}});
    let changed = site.story.merge(&StoryObject::kustomization("broken"), suspend).await;
    site.proxy.heal();
    noticed?;
    changed?;
    await_until("the page to be live again", RETURN_LIMIT, async || {
        let live = chromium.text("#live").await?;
        let text = chromium.text("main .cause").await?;
        let is_back = live.contains("● Live") && text.contains("is suspended");
        Ok(is_back.then_some(()))
    })
    .await?;
    ensure!(chromium.read("return window.isFirst", vec![]).await? == true, "it was loaded again");
    let kept = chromium.read(PAGE_TEXT, vec![]).await?;
    site.show(&page).await?;
    let fresh = chromium.read(PAGE_TEXT, vec![]).await?;
    ensure!(kept == fresh, "{kept}\nanew: {fresh}");
    Ok(())
}

/// While access reviews fail, a page offers no action and says why, and no right counts as denied or granted. When they work
/// again, the open page gets its forms with the next change.
pub(super) async fn failing_reviews_are_admitted(site: &BrowserFixture<'_>) -> Result<()> {
    site.proxy.begin(ApiFault::FailingReviews { status: 500 });
    let admitted = no_right_is_known(site).await;
    site.proxy.heal();
    admitted?;
    site.story.request(&StoryObject::git_repository("app")).await?;
    site.chromium.await_true("document.querySelector('details.act') && window.isFirst").await?;
    let text = site.chromium.text("main").await?;
    ensure!(!text.contains("Which actions you may ask for is not known"), "{text}");
    Ok(())
}

/// Opens two pages while access reviews fail. The page of an object stays open.
async fn no_right_is_known(site: &BrowserFixture<'_>) -> Result<()> {
    let chromium = &site.chromium;
    site.show("/me").await?;
    let answers =
        "return [...document.querySelectorAll('main tbody td')].map((it) => it.innerText.trim())
        .filter((it) => ['yes', 'no', 'not known'].includes(it))";
    let answers = chromium.read(answers, vec![]).await?;
    let answers = answers.as_array().context("a list")?;
    let are_unknown = !answers.is_empty() && answers.iter().all(|it| it == "not known");
    ensure!(are_unknown, "{answers:?}");

    // The answers of reviews are kept for half a minute. No step before this one asked about this object.
    site.show(&format!("/o/gitrepository/{}/app", site.story.namespace)).await?;
    chromium.await_text("#live", "● Live").await?;
    chromium.read("window.isFirst = true", vec![]).await?;
    let text = chromium.await_text("main", "Which actions you may ask for is not known").await?;
    ensure!(text.contains("the test bed answers 500"), "{text}");
    let forms = chromium.read("return document.querySelectorAll('details.act').length", vec![]);
    ensure!(forms.await? == 0, "{text}");
    Ok(())
}

/// Text, focus and position stay while the object of the page changes. What has changed waits.
pub(super) async fn typing_is_not_disturbed(site: &BrowserFixture<'_>) -> Result<()> {
    let chromium = &site.chromium;
    chromium.resize(PHONE_SIZE).await?;
    site.show(&site.object("broken")).await?;
    chromium.await_text("#live", "● Live").await?;
    chromium.click("details.act:has(input[value=suspend]) > summary").await?;
    chromium.write("form:has(input[value=suspend]) input[name=reason]", "because ").await?;
    chromium.read("scrollBy(0, 40)", vec![]).await?;
    let before = chromium.read(FORM_STATE, vec![]).await?;
    ensure!(before["text"] == "because " && before["hasFocus"] == true, "{before}");
    ensure!(before["scroll"] != 0, "the page does not scroll: {before}");
    let broken = StoryObject::kustomization("broken");
    for number in 0..OBJECT_CHANGES {
        let note = json!({"metadata": {"annotations": {"example.com/note": number.to_string()}}});
        site.story.merge(&broken, note).await?;
    }
    chromium.await_text("#live", "changed: show with .").await?;
    let after = chromium.read(FORM_STATE, vec![]).await?;
    ensure!(before == after, "{before}\nthen {after}");
    chromium.press("of this").await?;
    let after = chromium.read(FORM_STATE, vec![]).await?;
    ensure!(after["text"] == "because of this", "{after}");
    Ok(())
}
