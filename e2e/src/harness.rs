//! What stories are written with.
//!
//! Here: waiting for what the cluster and its servers do, and the re-exports that stories use.
//! Elsewhere: the control plane of a test run (`test_bed`), one story's namespace (`story`), what a
//! failure shows (`diagnosis`), windlass at work (`windlass`), Flux's objects and what becomes of
//! them (`flux`), a test in a process of its own (`subprocess`), who wrote what (`audit`), manifests for
//! repositories (`manifests`), windlass as it was installed (`installed_windlass`), the commands of a page
//! (`tutorial`), charts and their releases (`release`), what holds them (`lifecycles`), changes and deletions that
//! are held (`deletion_budget`), results that are rolled back (`quarantines`), times at which nothing begins (`freezes`),
//! policies of the API server (`admission_policies`), Flux's own controllers (`flux_controllers`), how objects are stored
//! under a CRD (`definitions`), the servers around it (`crate::git_server`, `crate::operator_process`).
//!
//! ```no_run
//! # use e2e::harness::{Story, StoryObject};
//! # use std::time::Duration;
//! # async fn example() -> anyhow::Result<()> {
//! let story = Story::begin("web-becomes-available").await?;
//! story.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}}").await?;
//! let web = StoryObject::new("apps/v1", "Deployment", "web");
//! story.await_condition(&web, "Available", "True", Duration::from_secs(20)).await?;
//! story.end().await
//! # }
//! ```

mod admission_policies;
pub mod audit;
pub mod definitions;
pub mod deletion_budget;
mod diagnosis;
pub mod flux;
mod flux_controllers;
pub mod freezes;
pub mod installed_windlass;
pub mod lifecycles;
pub mod manifests;
pub mod quarantines;
pub mod release;
pub mod release_audits;
pub mod requests;
mod story;
mod subprocess;
mod test_bed;
pub mod tutorial;
pub mod widgets;
mod windlass;

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

pub use story::{Story, StoryObject};
pub use subprocess::run_in_subprocess;
pub use test_bed::TestBed;
pub use windlass::{WindlassProcess, create_crds};

/// How much longer than a story says it waits, since others run beside it on a machine that may be slow: what comes at all
/// comes no later for that.
const TIMEOUT_FACTOR: u32 = 4;
/// The first pause between two questions of [`await_until`]; most of what stories wait for is there at once.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest one: the API servers of the stories are what keeps the processors busy.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// Calls `ask` repeatedly until there is an answer.
///
/// `Ok(None)` and errors both mean "not yet"; the last error is part of the failure when time is up.
pub async fn await_until<T>(
    what: &str,
    timeout: Duration,
    mut ask: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let timeout = timeout * TIMEOUT_FACTOR;
    let deadline = Instant::now() + timeout;
    let mut pause = FIRST_PAUSE;
    loop {
        let why = match ask().await {
            Ok(Some(answer)) => return Ok(answer),
            Ok(None) => String::new(),
            Err(error) => format!("; the last error was: {error:#}"),
        };
        if Instant::now() >= deadline {
            bail!("waited {timeout:?} in vain: {what}{why}");
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 3 / 2).min(LONGEST_PAUSE);
    }
}
