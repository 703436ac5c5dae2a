//! A person who uses the keyboard only: from the overview to an action.

use anyhow::{Result, bail, ensure};

use super::browser_fixture::BrowserFixture;
use super::chromium::{Chromium, ENTER_KEY};
use super::without_scripts::is_suspended;

/// The character with which WebDriver presses the key Tab.
const TAB_KEY: &str = "\u{e004}";

/// How many elements may be before the one that a person looks for.
const MAX_TABS: usize = 60;

/// The search finds an object, its form opens, and its action is done. The focus is visible on the way.
pub(super) async fn an_action_needs_no_pointer(site: &BrowserFixture<'_>) -> Result<()> {
    let chromium = &site.chromium;
    ensure!(is_suspended(site, "keys").await?, "ks/keys is not suspended");
    site.show("/").await?;
    chromium.await_text("#live", "● Live").await?;
    chromium.press("/").await?;
    chromium.await_true("document.activeElement.matches('.find input')").await?;
    chromium.press(&format!("keys{ENTER_KEY}")).await?;
    chromium.await_text("main .list tbody", "keys").await?;
    chromium.await_true("window.openStreams() === 1").await?;
    chromium.press("j").await?;
    chromium.await_true("document.activeElement.matches('main tbody a')").await?;
    chromium.press(ENTER_KEY).await?;
    let page = site.object("keys");
    chromium.await_true(&format!("location.pathname === {page:?}")).await?;
    chromium.await_text("#live", "● Live").await?;

    let form = "details.act:has(input[name=action][value=resume])";
    tab_to(chromium, &format!("{form} > summary")).await?;
    chromium.press(ENTER_KEY).await?;
    tab_to(chromium, &format!("{form} input[name=reason]")).await?;
    chromium.press("by keyboard").await?;
    tab_to(chromium, &format!("{form} button")).await?;
    chromium.press(ENTER_KEY).await?;
    chromium.await_text("main", "/keys is resumed").await?;
    ensure!(!is_suspended(site, "keys").await?, "ks/keys is still suspended");
    Ok(())
}

/// Presses Tab until an element has the focus. Each element on the way shows that it has the focus.
pub(super) async fn tab_to(chromium: &Chromium, selector: &str) -> Result<()> {
    let script = "const at = document.activeElement; const style = getComputedStyle(at);
        const isShown = style.outlineStyle !== 'none' || at.closest('.graph') !== null;
        return [at.matches(arguments[0]), at === document.body || isShown, at.outerHTML.slice(0, 200)]";
    for _ in 0..MAX_TABS {
        chromium.press(TAB_KEY).await?;
        let found = chromium.read(script, vec![selector.into()]).await?;
        ensure!(found[1] == true, "the focus is not visible: {}", found[2]);
        if found[0] == true {
            return Ok(());
        }
    }
    bail!("{MAX_TABS} times Tab does not lead to {selector}")
}
