//! The helpers with which stories are written.
//!
//! Here: waiting for the cluster and its servers, and the re-exports that stories use.
//! Elsewhere: the control plane of a test run (`test_bed`), the namespace of a story (`story`), the output of a failure
//! (`diagnosis`), running windlass (`windlass`, `installed_windlass`), a test in its own process (`subprocess`).
//! Objects: Flux's objects (`flux`), manifests for repositories (`manifests`), charts and releases (`charts_and_helm_releases`), Lifecycles
//! (`lifecycles`), held changes and deletions (`deletion_budget`), Quarantines (`quarantines`), Freezes (`freezes`).
//! Also: the audit log (`audit`, `audit_log`), the commands of a page (`tutorial`), admission policies (`admission_policies`), Flux's
//! controllers (`flux_controllers`), objects under a CRD (`definitions`), servers (`crate::git_server`,
//! `crate::operator_process`).
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
mod audit_log;
pub mod audited_writes;
pub mod charts_and_helm_releases;
pub mod deletion_budget;
mod diagnosis;
mod flux_controllers;
pub mod flux_objects;
pub mod freezes;
pub mod installed_windlass;
pub mod lifecycles;
pub mod manifests;
pub mod quarantines;
pub mod release_audits;
pub mod requests_with_own_rights;
pub mod stored_object_comparison;
mod story;
mod test_bed;
mod test_in_subprocess;
pub mod tutorial;
pub mod widgets;
mod windlass;

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

pub use story::{Story, StoryObject};
pub use test_bed::TestBed;
pub use test_in_subprocess::run_in_subprocess;
pub use windlass::{WindlassProcess, create_crds};

/// The factor by which waits are longer than a story says. Other stories run beside it, perhaps on a slow machine. A success is
/// not delayed by this.
const TIMEOUT_FACTOR: u32 = 4;

/// Calls `ask` repeatedly until it returns a value.
///
/// `Ok(None)` and errors both mean "not yet". If the time is over, the failure contains the last error.
pub async fn await_until<T>(
    what: &str,
    timeout: Duration,
    mut ask: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let timeout = timeout * TIMEOUT_FACTOR;
    let deadline = Instant::now() + timeout;
    loop {
        let why = match ask().await {
            Ok(Some(answer)) => return Ok(answer),
            Ok(None) => String::new(),
            Err(error) => format!("; the last error was: {error:#}"),
        };
        if Instant::now() >= deadline {
            bail!("waited {timeout:?} in vain: {what}{why}");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
