//! A real Chromium without a window, driven over WebDriver. It and its driver are Debian packages.
//!
//! Here: starting both, opening pages, reading, typing and clicking, and the picture of a page on which a step failed.
//! Elsewhere: the pages (`browser_fixture.rs`), what the steps check (the other files).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use e2e::control_plane::free_ports;
use e2e::harness::await_until;
use e2e::process_reaper::ProcessReaper;
use fantoccini::actions::{InputSource as _, KeyAction, KeyActions};
use fantoccini::wd::{WebDriverCompatibleCommand, WindowHandle};
use fantoccini::{Client, ClientBuilder, Locator};
use http::Method;
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use url::{ParseError, Url};

/// The path of Debian's Chromium.
const CHROMIUM_PROGRAM: &str = "/usr/bin/chromium";

/// The host name of an attacker. In this browser, it resolves to this machine.
pub(super) const FOREIGN_HOST: &str = "evil.example";

/// How long the driver may take to start, and a page to show what a step expects.
pub(super) const TIME_LIMIT: Duration = Duration::from_secs(30);

/// How long a step may take.
const STEP_LIMIT: Duration = Duration::from_secs(300);

/// The size of a window on a desk.
pub(super) const DESK_SIZE: WindowSize = WindowSize { width: 1280, height: 900 };

/// The size of a phone. It is also the size of a window of 1280 pixels at a zoom of 400 %.
pub(super) const PHONE_SIZE: WindowSize = WindowSize { width: 320, height: 640 };

/// The character with which WebDriver presses the key Enter.
pub(super) const ENTER_KEY: &str = "\u{e007}";

/// The environment variable with the folder for pictures. By default, they are in a folder of the system for temporary files.
const PICTURE_FOLDER: &str = "WINDLASS_SCREENSHOTS";

/// Runs before the scripts of each page. It counts what a page may not do, and the streams that a page holds.
const PAGE_OBSERVER: &str = r#"
window.seenViolations = [];
window.seenDialogs = [];
window.streams = [];
window.openWhenHidden = null;
document.addEventListener("securitypolicyviolation", (event) =>
  window.seenViolations.push(event.violatedDirective + " " + event.blockedURI + " " + event.sample));
for (const name of ["alert", "confirm", "prompt", "print"]) window[name] = () => { window.seenDialogs.push(name); };
const OwnEventSource = window.EventSource;
window.EventSource = class extends OwnEventSource {
  constructor(...given) {
    super(...given);
    window.streams.push(this);
  }
};
window.openStreams = () => window.streams.filter((it) => it.readyState !== 2).length;
document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "hidden") setTimeout(() => (window.openWhenHidden = window.openStreams()), 0);
});
"#;

/// The size of a page, in CSS pixels.
#[derive(Debug, Clone, Copy)]
pub(super) struct WindowSize {
    pub(super) width: u32,
    pub(super) height: u32,
}

/// A command of the DevTools protocol, which the driver passes on.
#[derive(Debug)]
struct DevToolsCommand {
    name: &'static str,
    parameters: Value,
}

impl WebDriverCompatibleCommand for DevToolsCommand {
    fn endpoint(&self, base: &Url, session: Option<&str>) -> Result<Url, ParseError> {
        base.join(&format!("session/{}/goog/cdp/execute", session.unwrap_or_default()))
    }

    fn method_and_body(&self, _url: &Url) -> (Method, Option<String>) {
        let body = json!({"cmd": self.name, "params": self.parameters});
        (Method::POST, Some(body.to_string()))
    }
}

/// A running Chromium with a new profile. It ends when this is dropped or when this process ends.
pub(super) struct Chromium {
    client: Client,
    /// The folder for pictures, which outlives the browser.
    pictures: PathBuf,
    _reaper: ProcessReaper,
}

impl Chromium {
    /// Starts the browser with one empty page of the size [`DESK_SIZE`].
    pub(super) async fn start() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("windlass-chromium-").tempdir()?.keep();
        let reaper = ProcessReaper::start(Some(&folder))?;
        let [port] = free_ports()?;
        let log = folder.join("chromedriver.log");
        let mut command = Command::new("chromedriver");
        command.arg(format!("--port={port}")).env("HOME", &folder).env("TMPDIR", &folder);
        let driver = reaper.spawn(&mut command, &log);
        let mut driver = driver.context("apt-get install chromium chromium-driver")?;
        let address = format!("http://127.0.0.1:{port}");
        let http = reqwest::Client::builder().no_proxy().build()?;
        let began = await_until("chromedriver to begin", TIME_LIMIT, async || {
            if driver.try_wait()?.is_some() {
                return Ok(Some(false));
            }
            let status = http.get(format!("{address}/status")).send().await?;
            Ok(status.status().is_success().then_some(true))
        });
        let said = || std::fs::read_to_string(&log).unwrap_or_default();
        ensure!(began.await.with_context(said)?, "chromedriver has ended: {}", said());
        let Value::Object(capabilities) = capabilities(&folder) else { bail!("not an object") };
        let mut builder = ClientBuilder::new(HttpConnector::new());
        let client = builder.capabilities(capabilities).connect(&address).await;
        let client =
            client.with_context(|| format!("{CHROMIUM_PROGRAM} does not start: {}", said()))?;
        let pictures = match std::env::var_os(PICTURE_FOLDER) {
            Some(folder) => PathBuf::from(folder),
            None => std::env::temp_dir().join("windlass-screenshots"),
        };
        std::fs::create_dir_all(&pictures)?;
        let chromium = Self { client, pictures, _reaper: reaper };
        chromium.observe().await?;
        chromium.resize(DESK_SIZE).await?;
        Ok(chromium)
    }

    /// Observes the pages of the current tab from their beginning.
    async fn observe(&self) -> Result<()> {
        let script = json!({"source": PAGE_OBSERVER});
        self.dev_tools("Page.addScriptToEvaluateOnNewDocument", script).await
    }

    async fn dev_tools(&self, name: &'static str, parameters: Value) -> Result<()> {
        let command = DevToolsCommand { name, parameters };
        self.client.issue_cmd(command).await.context(name)?;
        Ok(())
    }

    /// Gives the current tab another size.
    pub(super) async fn resize(&self, WindowSize { width, height }: WindowSize) -> Result<()> {
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.dev_tools("Emulation.setDeviceMetricsOverride", size).await
    }

    /// Lets pages of the current tab run their scripts, or not. It counts from the next page on.
    pub(super) async fn allow_scripts(&self, allowed: bool) -> Result<()> {
        self.dev_tools("Emulation.setScriptExecutionDisabled", json!({"value": !allowed})).await
    }

    /// Shows pages in dark or in light colours.
    pub(super) async fn darken(&self, is_dark: bool) -> Result<()> {
        let value = if is_dark { "dark" } else { "light" };
        let features = json!([{"name": "prefers-color-scheme", "value": value}]);
        self.dev_tools("Emulation.setEmulatedMedia", json!({"features": features})).await
    }

    /// Opens an address, and waits until the page and its scripts are loaded.
    pub(super) async fn open(&self, address: &str) -> Result<()> {
        self.client.goto(address).await.with_context(|| format!("cannot open {address}"))
    }

    /// Runs a function body in the page, and returns its value. It also runs while pages may run no scripts.
    pub(super) async fn read(&self, script: &str, arguments: Vec<Value>) -> Result<Value> {
        self.client.execute(script, arguments).await.with_context(|| script.to_owned())
    }

    /// Runs a function body whose last argument is a function that takes the value.
    pub(super) async fn read_later(&self, script: &str, arguments: Vec<Value>) -> Result<Value> {
        Ok(self.client.execute_async(script, arguments).await?)
    }

    /// The visible text of the first element that a selector finds.
    pub(super) async fn text(&self, selector: &str) -> Result<String> {
        let script = "return document.querySelector(arguments[0])?.innerText ?? null";
        let text = self.read(script, vec![selector.into()]).await?;
        Ok(text.as_str().with_context(|| format!("there is no {selector}"))?.to_owned())
    }

    /// Waits until the visible text of an element contains a text. Returns the whole text.
    pub(super) async fn await_text(&self, selector: &str, part: &str) -> Result<String> {
        let mut last = String::new();
        let what = format!("{selector} to say {part}");
        let found = await_until(&what, TIME_LIMIT, async || {
            last = self.text(selector).await?;
            Ok(last.contains(part).then(|| last.clone()))
        });
        let found = found.await;
        found.with_context(|| format!("{selector} says: {last}"))
    }

    /// Waits until an expression is true in the page.
    pub(super) async fn await_true(&self, expression: &str) -> Result<()> {
        let script = format!("return Boolean({expression})");
        await_until(expression, TIME_LIMIT, async || {
            Ok(self.read(&script, Vec::new()).await?.as_bool().filter(|&is_true| is_true))
        })
        .await
        .map(drop)
    }

    /// The HTTP status of the page.
    pub(super) async fn status(&self) -> Result<u64> {
        let script = "return performance.getEntriesByType('navigation')[0].responseStatus";
        self.read(script, Vec::new()).await?.as_u64().context("a status")
    }

    /// The address of the page.
    pub(super) async fn address(&self) -> Result<Url> {
        Ok(self.client.current_url().await?)
    }

    /// Clicks on the first element that a selector finds.
    pub(super) async fn click(&self, selector: &str) -> Result<()> {
        let element = self.client.find(Locator::Css(selector)).await;
        let element = element.with_context(|| format!("there is no {selector}"))?;
        element.click().await.with_context(|| format!("cannot click on {selector}"))
    }

    /// Types a text into a field.
    pub(super) async fn write(&self, selector: &str, text: &str) -> Result<()> {
        let element = self.client.find(Locator::Css(selector)).await;
        let element = element.with_context(|| format!("there is no {selector}"))?;
        Ok(element.send_keys(text).await?)
    }

    /// Selects a value in a list.
    pub(super) async fn select(&self, selector: &str, value: &str) -> Result<()> {
        let list = self.client.find(Locator::Css(selector)).await?;
        Ok(list.select_by_value(value).await?)
    }

    /// Presses keys one after another. They go to the element that has the focus.
    pub(super) async fn press(&self, keys: &str) -> Result<()> {
        let mut actions = KeyActions::new("keyboard".to_owned());
        for value in keys.chars() {
            actions = actions.then(KeyAction::Down { value }).then(KeyAction::Up { value });
        }
        Ok(self.client.perform_actions(actions).await?)
    }

    /// Continues in the first frame of the page.
    pub(super) async fn enter_frame(&self) -> Result<()> {
        Ok(self.client.enter_frame(Some(0)).await?)
    }

    /// The handle of the browser's current tab.
    pub(super) async fn tab(&self) -> Result<WindowHandle> {
        Ok(self.client.window().await?)
    }

    /// Opens another tab, which hides the current one.
    pub(super) async fn open_tab(&self) -> Result<WindowHandle> {
        let tab = self.client.new_window(true).await?.handle;
        self.show_tab(&tab).await?;
        self.observe().await?;
        self.resize(DESK_SIZE).await?;
        Ok(tab)
    }

    /// Shows a tab, which hides the others.
    pub(super) async fn show_tab(&self, tab: &WindowHandle) -> Result<()> {
        Ok(self.client.switch_to_window(tab.clone()).await?)
    }

    /// Forgets the cookies of the page's host, also those that no script reads.
    pub(super) async fn forget_cookies(&self) -> Result<()> {
        Ok(self.client.delete_all_cookies().await?)
    }

    /// Closes the browser's current tab.
    pub(super) async fn close_tab(&self) -> Result<()> {
        Ok(self.client.close_window().await?)
    }

    /// A picture of what is visible of the page, as PNG.
    pub(super) async fn screenshot(&self) -> Result<Vec<u8>> {
        Ok(self.client.screenshot().await?)
    }

    /// Writes a picture of what is visible of the page. Returns its path.
    pub(super) async fn picture(&self, name: &str) -> Result<PathBuf> {
        self.keep_picture(name, &self.screenshot().await?)
    }

    /// Writes a picture to the folder for pictures. Returns its path.
    pub(super) fn keep_picture(&self, name: &str, png: &[u8]) -> Result<PathBuf> {
        let name = name.replace(|letter: char| !letter.is_ascii_alphanumeric(), "-");
        let path = self.pictures.join(format!("{}-{name}.png", std::process::id()));
        std::fs::write(&path, png)?;
        Ok(path)
    }
}

/// What the session needs. All other addresses than those of this machine do not resolve.
fn capabilities(folder: &Path) -> Value {
    let mut arguments = [
        "--headless=new",
        // The browser ends with its driver, even if the driver is killed.
        "--remote-debugging-pipe",
        // CI runs as root, for which the sandbox does not start.
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--disable-gpu",
        "--disable-background-networking",
        "--no-proxy-server",
        "--no-first-run",
        "--force-device-scale-factor=1",
        "--hide-scrollbars",
        "--lang=en-US",
    ]
    .map(str::to_owned)
    .to_vec();
    arguments.push(format!("--user-data-dir={}", folder.join("profile").display()));
    arguments.push(format!(
        "--host-resolver-rules=MAP {FOREIGN_HOST} 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
    ));
    let options = json!({"binary": CHROMIUM_PROGRAM, "args": arguments});
    // The issuer of logins has a certificate of the test bed.
    json!({"acceptInsecureCerts": true, "goog:chromeOptions": options})
}

/// The steps of a story in one browser. A step that fails does not keep the others from running.
pub(super) struct BrowserSteps<'c> {
    chromium: &'c Chromium,
    failures: Vec<String>,
}

impl<'c> BrowserSteps<'c> {
    pub(super) fn new(chromium: &'c Chromium) -> Self {
        Self { chromium, failures: Vec::new() }
    }

    /// Runs a step. A failure is kept with the address of the page and the path of a picture.
    pub(super) async fn run(&mut self, name: &str, act: impl AsyncFnOnce() -> Result<()>) {
        let step = async {
            self.chromium.resize(DESK_SIZE).await?;
            act().await
        };
        let outcome = tokio::time::timeout(STEP_LIMIT, step).await;
        let outcome = outcome.context("it takes too long").and_then(|ended| ended);
        let Err(error) = outcome else { return };
        let address = self.chromium.address().await.map(|it| it.to_string());
        let address = address.unwrap_or_else(|error| format!("an unknown page ({error:#})"));
        let picture = self.chromium.picture(name).await.map(|path| path.display().to_string());
        let picture = picture.unwrap_or_else(|error| format!("no picture ({error:#})"));
        self.failures.push(format!("step `{name}`, at {address}, {picture}:\n{error:#}"));
    }

    /// Ends the steps.
    ///
    /// # Errors
    /// A step failed. The error describes each of them.
    pub(super) fn end(self) -> Result<()> {
        let Self { failures, .. } = self;
        ensure!(failures.is_empty(), "{} steps failed:\n{}", failures.len(), failures.join("\n\n"));
        Ok(())
    }
}
