//! `windlass ui` and Chromium, each as a program of its own. The demo and measurements open a page this way.
//!
//! Elsewhere: pages for users who log in (`multi_user_web_pages`), the requests of stories to `windlass ui`
//! (`tests/cli/windlass_ui.rs`).

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::operator_process::OperatorProcess;

/// How long `windlass ui` may take to print its address.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(30);

/// How long Chromium may take for one page.
const BROWSER_TIMEOUT: Duration = Duration::from_secs(90);

/// The pause between two checks of a program.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The program of the Debian package with the same name.
const CHROMIUM: &str = "chromium";

/// How many lines of a failed program an error shows.
const LOG_LINES: usize = 15;

/// Whether Chromium can be started.
pub fn is_chromium_installed() -> bool {
    Command::new(CHROMIUM).arg("--version").stdin(Stdio::null()).output().is_ok()
}

/// A running `windlass ui`. It ends when this is dropped.
pub struct WindlassUiProcess {
    process: OperatorProcess,
    login: String,
}

impl WindlassUiProcess {
    /// Starts the program for the cluster of a kubeconfig, and waits until it prints its address.
    ///
    /// # Errors
    /// The program does not print its address in time.
    pub fn start(program: PathBuf, kubeconfig: &Path) -> Result<Self> {
        // With a variable instead of a flag, the commands on the pages do not contain the path of the kubeconfig.
        let kubeconfig = std::path::absolute(kubeconfig)?.display().to_string();
        let environment = [("KUBECONFIG", kubeconfig.as_str())];
        let mut process =
            OperatorProcess::start_with(program, vec!["ui".to_owned()], &environment)?;
        let deadline = Instant::now() + ADDRESS_TIMEOUT;
        loop {
            if let Some(login) = login_address(&process.log()?).map(str::to_owned) {
                return Ok(Self { process, login });
            }
            let is_running = process.is_running()?;
            if !is_running || Instant::now() > deadline {
                bail!("`windlass ui` prints no address:\n{}", process.tail(LOG_LINES));
            }
            std::thread::sleep(CHECK_INTERVAL);
        }
    }

    /// The address that logs a browser in and opens a page, such as `/me`. It works once, for the browser that opens it first.
    pub fn address(&self, page: &str) -> String {
        format!("{}&return={}", self.login, utf8_percent_encode(page, NON_ALPHANUMERIC))
    }

    /// The address without a path and without the secret.
    pub fn origin(&self) -> &str {
        self.login.split_once("/_/").map_or(self.login.as_str(), |(origin, _)| origin)
    }

    /// Opens an address in a new Chromium without a window, which ends when the page is loaded. `arguments` say what it does
    /// with the page.
    ///
    /// # Errors
    /// There is no Chromium, or it fails, or it does not end in time.
    pub fn browse(&self, address: &str, arguments: &[String]) -> Result<()> {
        let profile =
            tempfile::Builder::new().prefix("chromium-").tempdir_in(self.process.folder())?;
        let log = profile.path().join("chromium.log");
        let mut command = Command::new(CHROMIUM);
        command.args(["--headless", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]);
        command.args(["--hide-scrollbars", "--force-device-scale-factor=1"]);
        command.arg(format!("--user-data-dir={}", profile.path().display()));
        // The sandbox of Chromium does not work for root. This process owns the folder.
        if std::fs::metadata(profile.path())?.uid() == 0 {
            command.arg("--no-sandbox");
        }
        command.args(arguments).arg(address).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(File::create(&log)?);
        let mut child = command.spawn().with_context(|| {
            format!("`{CHROMIUM}` cannot be started: apt-get install chromium fonts-dejavu")
        })?;
        let deadline = Instant::now() + BROWSER_TIMEOUT;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if Instant::now() > deadline {
                child.kill()?;
                child.wait()?;
                bail!("`{CHROMIUM}` did not load the page in time");
            }
            std::thread::sleep(CHECK_INTERVAL);
        };
        let said = std::fs::read_to_string(&log).unwrap_or_default();
        ensure!(status.success(), "`{CHROMIUM}` failed ({status}):\n{said}");
        Ok(())
    }
}

/// The login address that `windlass ui` has printed. `None` if the log has no whole line with the address yet.
fn login_address(log: &str) -> Option<&str> {
    // The last line may be incomplete.
    let (lines, _) = log.rsplit_once('\n')?;
    lines.lines().find(|line| line.starts_with("http://127.0.0.1:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_found_among_other_lines_when_it_is_complete() {
        let log =
            "► the address counts once\nhttp://127.0.0.1:4711/_/login?token=0a\n◎ serving pages\n";
        assert_eq!(login_address(log), Some("http://127.0.0.1:4711/_/login?token=0a"));
        assert_eq!(login_address("http://127.0.0.1:4711/_/login?tok"), None);
        assert_eq!(login_address("serving pages\n"), None);
    }
}
