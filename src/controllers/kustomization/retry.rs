//! What a Kustomization remembers of an attempt that failed: a wait that stays failed, refusals that are repeated less
//! and less often.
//!
//! Elsewhere: what follows from it (`apply::plan`), how delays grow (`reconcile::Retries`).

use std::time::Duration;

use apply::FailedWait;
use crds::kustomize::Kustomization;
use kube::core::ResourceExt as _;
use reconcile::{Rest, Time, reason};

use super::wish::Timeouts;
use super::world::Verify;
use super::{Ended, Session};

/// What a wish is remembered by: another spec may judge the same objects by other expressions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Judged {
    pub(super) generation: i64,
    /// Digest of the build.
    pub(super) digest: String,
    pub(super) revision: String,
}

impl Judged {
    /// The same spec and objects, at whatever revision.
    pub(super) fn is_same_build(&self, other: &Self) -> bool {
        self.generation == other.generation && self.digest == other.digest
    }
}

impl Session {
    /// A wait that failed is repeated when its time has come or somebody asks: then all is built and read afresh.
    pub(super) fn end_failed_wait(&self, object: &Kustomization) {
        let asked = self.verify(object) == Verify::Everything;
        let mut memory = self.memory();
        let is_over = |until: Time| asked || until <= self.began;
        if memory.failed_wait.as_ref().is_some_and(|(_, wait)| is_over(wait.until)) {
            (memory.failed_wait, memory.waiting, memory.healthy) = (None, None, None);
        }
    }

    /// The wait for this very wish that failed, until it is repeated.
    pub(super) fn failed_wait(&self, judged: &Judged) -> Option<FailedWait> {
        let memory = self.memory();
        let (of, wait) = memory.failed_wait.as_ref()?;
        (of == judged).then(|| wait.clone())
    }

    /// Remembers how an attempt ended, and when a refusal that will not change by itself is tried again.
    pub(super) fn remember_failure(
        &self,
        object: &Kustomization,
        judged: &Judged,
        ended: &mut Ended,
        (timeouts, verify): (Timeouts, Verify),
    ) {
        let seed = reconcile::seed(&object.uid().unwrap_or_default());
        let mut memory = self.memory();
        memory.failed_wait = match &ended.rest {
            Rest::Failed(why, text, wake) if *why == reason::HEALTH_CHECK_FAILED => {
                let until = wake.at.unwrap_or(self.began);
                let wait = FailedWait { text: text.clone(), on: wake.on.clone(), until };
                Some((judged.clone(), wait))
            }
            _ => None,
        };
        match &mut ended.rest {
            Rest::Failed(_, _, wake) if ended.came.is_permanent => {
                if verify == Verify::Everything {
                    memory.retries.end();
                }
                let Judged { generation, digest, revision } = judged;
                let of = format!("{generation} {digest} {revision}");
                let (now, timeouts) = (jiff::Timestamp::now(), (timeouts.retry, timeouts.interval));
                wake.at = Some(memory.retries.refused(&of, now, timeouts, seed));
            }
            _ => memory.retries.end(),
        }
    }
}

/// How long a request that failed through no fault of the spec is paused; not the same for all that failed together.
pub(super) fn soon(object: &Kustomization, soon: Duration) -> Duration {
    reconcile::jittered(soon, 20, reconcile::seed(&object.uid().unwrap_or_default()))
}
