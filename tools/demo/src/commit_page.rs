//! The page of a commit after the last scene: its address, and a picture of it for the README.
//!
//! `demo_scenes` makes the commit. `e2e::windlass_ui_and_chromium` runs `windlass ui`, and Chromium for the picture.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use e2e::cluster_with_operator::{
    BuildProfile, ObjectWatch, WatchSelection, WatchedObject, program,
};
use e2e::windlass_ui_and_chromium::WindlassUiProcess;

use super::DemoSetup;

/// How long windlass may take until it has decided what became of the commit. A ChangeSet is written every two seconds at most.
const VERDICT_TIMEOUT: Duration = Duration::from_secs(60);

/// The size of the picture in pixels.
const PICTURE_SIZE: &str = "1200,800";

/// The program with the pages, as the demo built it.
///
/// # Errors
/// It does not exist.
pub(super) fn ui_program() -> anyhow::Result<PathBuf> {
    program(BuildProfile::Debug)
}

/// The path of the page of a commit.
pub(super) fn path(commit: &str) -> String {
    format!("/c/{commit}")
}

impl DemoSetup {
    /// Starts `windlass ui` for the cluster of the demo.
    pub(super) fn serve_pages(&self) -> anyhow::Result<WindlassUiProcess> {
        WindlassUiProcess::start(ui_program()?, &self.installation.kubeconfig())
    }

    /// Draws the page of a commit as a PNG, as soon as the page has the verdict.
    pub(super) async fn draw_page(&self, commit: &str, picture: &Path) -> anyhow::Result<()> {
        self.await_verdict(commit).await?;
        let picture = std::path::absolute(picture)?;
        if let Some(folder) = picture.parent() {
            std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        }
        let pages = self.serve_pages()?;
        let arguments = [
            format!("--window-size={PICTURE_SIZE}"),
            format!("--screenshot={}", picture.display()),
        ];
        pages.browse(&pages.address(&path(commit)), &arguments)?;
        ensure!(picture.is_file(), "Chromium wrote no {}", picture.display());
        Ok(())
    }

    /// Waits until the ChangeSet of a commit says that it succeeded.
    async fn await_verdict(&self, commit: &str) -> anyhow::Result<()> {
        let changes = WatchSelection::of("release.windlass.dev/v1alpha1", "ChangeSet");
        let changes = changes.within("flux-system");
        let mut watch = ObjectWatch::begin(self.installation.client(), &[changes]).await?;
        let has_succeeded = |seen: &WatchedObject| {
            let revision = seen.value("/spec/revision").as_str().unwrap_or_default();
            revision.ends_with(commit) && seen.value("/status/verdict") == "Succeeded"
        };
        let what = format!("the verdict about commit {commit}");
        watch.until(&what, VERDICT_TIMEOUT, has_succeeded).await.map(drop)
    }
}
