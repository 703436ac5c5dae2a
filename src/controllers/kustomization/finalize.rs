//! A Kustomization that is deleted: what it applied goes with it, by policy.

use std::collections::BTreeMap;
use std::sync::Arc;

use crds::kustomize::Kustomization;
use objects::Masking;
use reconcile::{Rest, reason};

use super::wish::{self, Timeouts};
use super::world::{Verify, Wishes};
use super::{Ended, Session, report};
use crate::cluster::ClusterError;
use crate::controllers::applier::{AFTER_REFUSAL, Leaving};
use crate::controllers::hold;
use crate::controllers::kind::Controlled as _;

impl Session {
    /// The object goes: so does what it applied, by policy.
    pub(super) async fn finalize(
        &self,
        object: &Arc<Kustomization>,
    ) -> Result<Leaving<Kustomization>, ClusterError> {
        self.audit_stopped(object, |_| false, "the Kustomization is being deleted").await;
        let (prune, await_end) = wish::deletion(&object.spec);
        let timeouts = wish::check(&object.spec).unwrap_or(Timeouts {
            interval: AFTER_REFUSAL,
            retry: AFTER_REFUSAL,
            timeout: reconcile::kustomization_timeout(AFTER_REFUSAL, None),
        });
        let inventory = object.status.as_ref().and_then(|s| s.inventory.as_ref());
        let has_nothing = inventory.is_none_or(|inventory| inventory.entries.is_empty());
        // Parity(flux): a suspended Kustomization leaves its objects behind. One that has none needs no cluster to
        // delete them from, so it goes even when that cannot be reached.
        let stays = !prune || hold::is_suspended(&**object, self.began);
        if stays || has_nothing {
            if !stays && inventory.is_some() {
                let gone = Rest::Settled(reason::SUCCEEDED, String::new());
                self.audit_removal(object, &Ended::early(object, gone), Vec::new()).await;
            }
            return Ok(Leaving::Done(object.clone()));
        }
        let wishes = Wishes {
            verify: Verify::Drifted,
            force: false,
            await_end,
            health_versions: BTreeMap::new(),
            expressions: self.expressions.clone(),
            healthy: BTreeMap::new(),
            failed_wait: None,
            is_correction: false,
            contests: Arc::default(),
            secrets: Masking::default(),
            ignore: Arc::default(),
            retry_at: self.in_future(timeouts.retry),
        };
        let target = match self.finalize_target(object).await? {
            Ok(Some(target)) => target,
            Ok(None) => return Ok(Leaving::Done(object.clone())),
            Err(rest) => {
                let ended = Ended::early(object, unreachable(rest));
                return Ok(Leaving::Later(Box::new(ended), Some(timeouts)));
            }
        };
        let nothing = Arc::new(wish::finalize(object, timeouts));
        let (ended, done) = self.drive(object, nothing, wishes, &target).await;
        self.audit_removal(object, &ended, done.audited).await;
        if !ended.rest.is_settled() {
            return Ok(Leaving::Later(Box::new(ended), Some(timeouts)));
        }
        for event in report::finalized(&ended.object, &ended.came.changes) {
            self.context.events.announce(&*ended.object, Kustomization::CONTROLLER, event);
        }
        Ok(Leaving::Done(ended.object))
    }
}

/// Why objects cannot be deleted, and how to go on without.
fn unreachable(rest: Rest) -> Rest {
    let Rest::Failed(reason, text, wake) = rest else { return rest };
    let advice = "its objects cannot be deleted; to leave them in the cluster, set spec.deletionPolicy: Orphan";
    Rest::Failed(reason, format!("{text}; {advice}"), wake)
}
