//! Pages in a browser that runs no scripts: reading, filters and forms.

use anyhow::{Context as _, Result, ensure};
use e2e::harness::StoryObject;
use serde_json::{Value, json};

use super::browser_fixture::{BrowserFixture, HOSTILE_TEXT};
use super::chromium::TIME_LIMIT;

/// A selector of a form on the page of an object. `{action}` is in its hidden field.
fn form_of(action: &str) -> String {
    format!("details.act:has(input[name=action][value={action}])")
}

/// Opens the form of an action by a click.
async fn open_form(site: &BrowserFixture<'_>, action: &str) -> Result<String> {
    let form = form_of(action);
    site.chromium.click(&format!("{form} > summary")).await?;
    Ok(form)
}

/// Sends a form, and waits for the page that answers it.
async fn send_form(site: &BrowserFixture<'_>, form: &str) -> Result<()> {
    site.chromium.read("window.isAsking = true", vec![]).await?;
    site.chromium.click(&format!("{form} button[type=submit]")).await?;
    site.chromium.await_true("!window.isAsking && document.querySelector('main')").await
}

/// Each page has its content without scripts.
pub(super) async fn every_page_reads(site: &BrowserFixture<'_>) -> Result<()> {
    let chromium = &site.chromium;
    for path in site.paths() {
        site.show(&path).await?;
        let text = chromium.text("main").await?;
        ensure!(text.contains("The same on the command line"), "{path}: {text}");
        let live = chromium.text("#live").await?;
        ensure!(live.is_empty(), "{path}: a script has run: {live}");
        let heading =
            chromium.read("return document.querySelectorAll('main h1, main h2').length", vec![]);
        ensure!(heading.await? != 0, "{path} has no heading: {text}");
    }
    Ok(())
}

/// The filters of the list are fields of a form, and the address has them.
pub(super) async fn filters_work(site: &BrowserFixture<'_>) -> Result<()> {
    let chromium = &site.chromium;
    site.show("/objects").await?;
    chromium.select(".filters select[name=kind]", "Kustomization").await?;
    chromium.select(".filters select[name=state]", "failing").await?;
    chromium.click(".filters button[type=submit]").await?;
    chromium.await_text("main .list tbody", "hostile").await?;
    let query = chromium.address().await?.query().unwrap_or_default().to_owned();
    ensure!(query.contains("kind=Kustomization") && query.contains("state=failing"), "{query}");
    let others =
        "return [...document.querySelectorAll('main .list tbody tr')].map((it) => it.innerText)
        .filter((it) => !it.trim().startsWith('failing') || !it.includes('Kustomization'))";
    let others = chromium.read(others, vec![]).await?;
    ensure!(others == json!([]), "{others}");
    let kind = "return document.querySelector('.filters select[name=kind]').value";
    ensure!(chromium.read(kind, vec![]).await? == "Kustomization", "the filter is not shown");
    Ok(())
}

/// A suspension needs a reason, for the browser and for the server. With an end, it is in the calendar.
pub(super) async fn an_object_is_suspended(site: &BrowserFixture<'_>) -> Result<()> {
    let chromium = &site.chromium;
    let page = site.object("app");
    site.show(&page).await?;
    let form = open_form(site, "suspend").await?;
    let submit = format!("{form} button[type=submit]");
    chromium.click(&submit).await?;
    let invalid =
        format!("document.querySelector({:?})", format!("{form} input[name=reason]:invalid"));
    chromium.await_true(&invalid).await?;
    ensure!(chromium.address().await?.path() == page, "a form without a reason was sent");
    // A browser that does not check the field sends the form.
    let unchecked =
        format!("document.querySelector({:?}).noValidate = true", format!("{form} form"));
    chromium.read(&unchecked, vec![]).await?;
    send_form(site, &form).await?;
    chromium.await_text("main", "give a reason for the suspension").await?;
    ensure!(!is_suspended(site, "app").await?, "an object is suspended without a reason");

    site.story
        .await_until("the object is suspended by its form", TIME_LIMIT, async || {
            site.show(&page).await?;
            let form = open_form(site, "suspend").await?;
            chromium.write(&format!("{form} input[name=reason]"), HOSTILE_TEXT).await?;
            send_form(site, &form).await?;
            // The status may change between reading the page and sending the form.
            Ok(is_suspended(site, "app").await?.then_some(()))
        })
        .await?;
    let text = chromium.await_text("main", "is suspended").await?;
    ensure!(text.contains("onerror=alert(1)"), "the reason is not shown: {text}");
    site.story
        .await_until("the end of the suspension in the calendar", TIME_LIMIT, async || {
            site.show("/calendar").await?;
            let text = chromium.text("main").await?;
            let is_shown = text.contains("the suspension ends") && text.contains("app");
            Ok(is_shown.then_some(()))
        })
        .await
}

/// The object is resumed by its form.
pub(super) async fn it_is_resumed(site: &BrowserFixture<'_>) -> Result<()> {
    let chromium = &site.chromium;
    site.story
        .await_until("the object is resumed by its form", TIME_LIMIT, async || {
            site.show(&site.object("app")).await?;
            let form = open_form(site, "resume").await?;
            send_form(site, &form).await?;
            Ok((!is_suspended(site, "app").await?).then_some(()))
        })
        .await?;
    chromium.await_text("main", "/app is resumed").await?;
    site.story.await_ready(&StoryObject::kustomization("app")).await?;
    Ok(())
}

/// Whether a Kustomization of the story is suspended.
pub(super) async fn is_suspended(site: &BrowserFixture<'_>, name: &str) -> Result<bool> {
    let object = site.story.read(&StoryObject::kustomization(name)).await?;
    let object = object.with_context(|| format!("there is no ks/{name}"))?;
    let value: &Value = &object.data["spec"]["suspend"];
    Ok(*value == json!(true))
}
