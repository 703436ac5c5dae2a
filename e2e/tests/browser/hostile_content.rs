//! Threats that only a real browser can judge: markup in texts of objects and commits, injected scripts, frames, forms of other
//! servers, and host names that resolve to this machine.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::browser_fixture::{BrowserFixture, foreign_server};
use super::chromium::{FOREIGN_HOST, PHONE_SIZE};
use super::layout;
use super::without_scripts::is_suspended;

/// What a text of an object has put into a page. Empty lists if nothing.
const INSERTED_ELEMENTS: &str = r#"
const shown = "main img, main script, main iframe, main object, main embed, [style], [onerror], [onload], [onclick]";
const elements = [...document.querySelectorAll(shown)].map((it) => it.outerHTML.slice(0, 200));
const targets = [...document.querySelectorAll("[href], [src], [action]")]
  .map((it) => it.getAttribute("href") ?? it.getAttribute("src") ?? it.getAttribute("action"));
const links = targets.filter((it) => !/^(\/(?!\/)|#|https?:\/\/)/.test(it));
return { elements, links, dialogs: window.seenDialogs, violations: window.seenViolations };
"#;

/// Attempts of a script that was injected into a page. Each has to fail.
const INJECTION_ATTEMPTS: &str = r#"
const attempts = {
  html: () => { document.createElement("div").innerHTML = "<img>"; },
  script: () => { document.createElement("script").textContent = "window.hasRun = true"; },
  source: () => { document.createElement("script").src = "data:text/javascript,window.hasRun=true"; },
  timer: () => { setTimeout("window.hasRun = true", 0); },
  handler: () => { document.body.setAttribute("onclick", "window.hasRun = true"); document.body.click(); },
  parser: () => { new DOMParser().parseFromString("<p>", "text/html"); },
  otherPolicy: () => { trustedTypes.createPolicy("other", { createHTML: (it) => it }); },
  samePolicy: () => { trustedTypes.createPolicy("windlass", { createHTML: (it) => it }); },
};
const done = [];
for (const [name, attempt] of Object.entries(attempts)) {
  try {
    attempt();
    done.push(name);
  } catch {}
}
return { done: done.filter((name) => name !== "handler"), hasRun: Boolean(window.hasRun) };
"#;

/// Nothing in texts of objects, messages, reasons and commits becomes an element, a script or a link. No page breaks its own
/// Content-Security-Policy, and on a phone no page is wider than the window.
pub(super) async fn texts_are_inert(site: &BrowserFixture<'_>) -> Result<()> {
    let mut faults = Vec::new();
    let mut hostile_pages = 0;
    site.chromium.resize(PHONE_SIZE).await?;
    for path in site.paths() {
        site.show(&path).await?;
        // The parts are replaced by the script, too.
        site.chromium.await_true("!document.body.dataset.live || window.openStreams() > 0").await?;
        let found = site.chromium.read(INSERTED_ELEMENTS, vec![]).await?;
        let nothing = json!({"elements": [], "links": [], "dialogs": [], "violations": []});
        if found != nothing {
            faults.push(format!("{path}: {found}"));
        }
        faults.extend(layout::too_wide(&site.chromium).await?.map(|it| format!("{path}: {it}")));
        let text = site.chromium.text("main").await?;
        hostile_pages += u32::from(text.contains("onerror=alert("));
    }
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    // Overview, list, changes, commit, and pages of two objects.
    ensure!(hostile_pages >= 6, "only {hostile_pages} pages contain a hostile text");
    Ok(())
}

/// The policies of the page keep a script that was injected from doing anything.
pub(super) async fn injected_scripts_are_stopped(site: &BrowserFixture<'_>) -> Result<()> {
    site.show("/").await?;
    let found = site.chromium.read(INJECTION_ATTEMPTS, vec![]).await?;
    ensure!(found == json!({"done": [], "hasRun": false}), "{found}");
    // A violation is reported, so the other steps would notice one.
    site.chromium.await_true("window.seenViolations.length > 0").await
}

/// A page of another server cannot frame a page, or send a form although it knows all its fields.
pub(super) async fn other_servers_are_refused(site: &BrowserFixture<'_>) -> Result<()> {
    let chromium = &site.chromium;
    let framing = foreign_server(format!("<iframe src=\"{}\"></iframe>", site.at("/"))).await?;
    chromium.open(&format!("http://{framing}/")).await?;
    chromium.enter_frame().await?;
    let framed = chromium.read("return location.href", vec![]).await?;
    ensure!(framed.as_str().unwrap_or_default().starts_with("chrome-error:"), "{framed}");

    site.show(&site.object("app")).await?;
    let fields =
        "const form = document.querySelector('form:has(input[name=action][value=suspend])');
        return [...form.querySelectorAll('input[type=hidden]')].map((it) => it.outerHTML).join('')";
    let fields = chromium.read(fields, vec![]).await?;
    let fields = fields.as_str().unwrap_or_default();
    ensure!(fields.contains("name=\"seal\""), "{fields}");
    let form = format!(
        "<form method=\"post\" action=\"{}\">{fields}<input name=\"reason\" value=\"forged\"><button>Send</button></form>",
        site.at("/_/act")
    );
    let forging = foreign_server(form).await?;
    chromium.open(&format!("http://{forging}/")).await?;
    chromium.click("button").await?;
    chromium.await_text("body", "asks for a change").await?;
    ensure!(chromium.status().await? == 403, "{}", chromium.text("body").await?);
    ensure!(!is_suspended(site, "app").await?, "a forged form was carried out");
    Ok(())
}

/// Another host name that resolves to this machine is not answered.
pub(super) async fn other_hosts_are_refused(site: &BrowserFixture<'_>) -> Result<()> {
    let chromium = &site.chromium;
    chromium.open(&format!("http://{FOREIGN_HOST}:{}/", site.port()?)).await?;
    let text = chromium.text("body").await?;
    ensure!(text.contains("this address is not the one"), "{text}");
    ensure!(chromium.status().await? == 421, "{text}");
    Ok(())
}

/// The cause of a failure is the first heading of the object's page, in the words of the command.
pub(super) async fn causes_come_first(site: &BrowserFixture<'_>) -> Result<()> {
    for name in ["broken", "hostile"] {
        site.show(&site.object(name)).await?;
        let heading = site.chromium.text("main h2").await?;
        let why = crate::cli::windlass(site.story, &["why", &format!("ks/{name}"), "-o", "json"])?;
        let why = why.json(1)?;
        let summary: &Value = &why["summary"];
        // A long message is cut, and ends with an ellipsis.
        let shown = heading.lines().next().unwrap_or_default().trim().trim_end_matches('…').trim();
        let is_same = summary.as_str().is_some_and(|summary| summary.starts_with(shown));
        ensure!(is_same && shown.contains(" is not ready"), "ks/{name}: {heading}\n{summary}");
    }
    Ok(())
}
