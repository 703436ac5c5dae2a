//! Pages in a real Chromium: everything that depends on what a browser does.
//!
//! One browser, one `windlass ui` and the same objects for all steps of a story, because starting them takes most of the
//! time. Elsewhere: the content of pages, and refused requests (`cli/windlass_ui.rs`, `cli/multi_user_web_pages.rs`, the
//! unit tests of `web`).

mod browser_fixture;
mod chromium;
mod commit_journey;
mod hostile_content;
mod keyboard;
mod layout;
mod live_pages;
mod logins;
mod pictures;
mod tenants;
mod without_scripts;

use anyhow::Result;
use e2e::harness::Story;

use browser_fixture::BrowserFixture;
use chromium::BrowserSteps;

#[tokio::test(flavor = "multi_thread")]
async fn pages_work_in_chromium_with_and_without_scripts_and_stop_what_others_send() -> Result<()> {
    let story = Story::with_windlass("browser").await?;
    let site = BrowserFixture::open(&story).await?;
    let site = &site;
    let mut steps = BrowserSteps::new(&site.chromium);
    site.chromium.allow_scripts(false).await?;
    steps.run("pages read", async || without_scripts::every_page_reads(site).await).await;
    steps.run("filters", async || without_scripts::filters_work(site).await).await;
    steps.run("suspend", async || without_scripts::an_object_is_suspended(site).await).await;
    site.chromium.allow_scripts(true).await?;
    // The reason of the suspension is one of the hostile texts.
    steps.run("hostile texts", async || hostile_content::texts_are_inert(site).await).await;
    site.chromium.allow_scripts(false).await?;
    steps.run("resume", async || without_scripts::it_is_resumed(site).await).await;
    site.chromium.allow_scripts(true).await?;

    steps.run("causes", async || hostile_content::causes_come_first(site).await).await;
    let injected = async || hostile_content::injected_scripts_are_stopped(site).await;
    steps.run("injected scripts", injected).await;
    let servers = async || hostile_content::other_servers_are_refused(site).await;
    steps.run("other servers", servers).await;
    steps.run("other hosts", async || hostile_content::other_hosts_are_refused(site).await).await;

    steps.run("boxes", async || layout::boxes_are_the_recorded_ones(site).await).await;
    steps.run("pictures", async || pictures::pages_look_as_recorded(site).await).await;
    steps.run("accessibility", async || layout::accessible_to_all(site).await).await;
    steps.run("keyboard", async || keyboard::an_action_needs_no_pointer(site).await).await;
    steps.run("typing", async || live_pages::typing_is_not_disturbed(site).await).await;
    let reviews = async || live_pages::failing_reviews_are_admitted(site).await;
    steps.run("failing reviews", reviews).await;
    steps.run("many tabs", async || live_pages::many_tabs_are_live(site).await).await;
    let absent = async || live_pages::an_absent_api_server_is_admitted(site).await;
    steps.run("absent API server", absent).await;
    steps.end()?;
    story.end().await
}
