//! Lists the tags of an image when a scan is due, and stores them.

use std::sync::Arc;
use std::time::Duration;

use crds::image::{ImageRepository, ImageRepositoryStatus, ScanResult};
use crds::{ReconciledObject as _, Time};
use image::{ScanDecision, ScanReason, ScanState, TagList, exclusion_list};
use jiff::Timestamp;
use kube_core::ResourceExt as _;
use reconcile::{
    NextRunTrigger, ObjectKey, READY, RunOutcome, SHORTEST_INTERVAL, condition_reason,
};
use sources::oci::{Error, RemoteOciRepository};
use sources::source_condition_reasons::{AUTHENTICATION_FAILED, READ_OPERATION_FAILED};
use windlass_cluster::error::chain;
use windlass_cluster::referenced_secrets_and_config_maps::RunReferenceReads;
use windlass_runtime::blocking_task::blocking;
use windlass_runtime::controller_kind::REQUESTED_AT;
use windlass_runtime::object_status::LatestWrittenObject;
use windlass_runtime::progress_status;
use windlass_runtime::run_context::RunContext;

use crate::image_kind_run::IMAGE_URL_INVALID;
use crate::registry_access::{RegistrySecrets, ScannedImage, session};
use crate::{tag_meter, tag_store};

/// One run of an ImageRepository.
pub(super) struct ScanRun<'r> {
    pub(super) context: &'r Arc<RunContext>,
    pub(super) node: &'r ObjectKey,
    pub(super) latest: &'r LatestWrittenObject<ImageRepository>,
    pub(super) object: &'r Arc<ImageRepository>,
}

/// The result of a run: it listed the tags of an image, or found that no scan is due.
pub(super) enum ScanRunResult {
    /// The tags were listed.
    Done {
        /// The result of the scan.
        found: ScannedTags,
        /// The delay until the next scan is due.
        interval: Duration,
    },
    /// No scan was due.
    NotDue {
        /// The outcome of the last scan.
        outcome: RunOutcome,
        /// The delay until the next scan is due.
        wait: Duration,
    },
}

/// The result of a scan, as the status shows it.
#[derive(Debug)]
pub(super) struct ScannedTags {
    image: String,
    exclusion_list: Vec<String>,
    result: ScanResult,
}

impl ScannedTags {
    fn new(image: String, exclusions: &[String], tags: &TagList, now: Timestamp) -> Self {
        let result = ScanResult {
            revision: Some(tags.checksum()),
            tag_count: i64::try_from(tags.tags().len()).unwrap_or(i64::MAX),
            scan_time: Some(Time(now)),
            latest_tags: tags.latest().to_vec(),
        };
        Self { image, exclusion_list: exclusion_list(exclusions), result }
    }

    /// The outcome of the run.
    pub(super) fn outcome(&self) -> RunOutcome {
        settled(&self.result)
    }

    /// Writes the result of the scan into the status.
    pub(super) fn show(self, status: &mut ImageRepositoryStatus) {
        status.canonical_image_name = Some(self.image);
        status.observed_exclusion_list = self.exclusion_list;
        status.last_scan_result = Some(self.result);
    }
}

fn settled(result: &ScanResult) -> RunOutcome {
    let ScanResult { revision, tag_count, .. } = result;
    let revision = revision.as_deref().unwrap_or_default();
    let text = format!("successful scan: found {tag_count} tags with checksum {revision}");
    RunOutcome::Settled(condition_reason::SUCCEEDED, text)
}

/// The outcome if the registry cannot be asked.
fn unusable(why: &str) -> RunOutcome {
    let text = format!("failed to configure authentication options: {why}");
    RunOutcome::Failed(AUTHENTICATION_FAILED, text, NextRunTrigger::default())
}

/// The outcome if the registry did not list the tags.
fn failed(error: &Error) -> RunOutcome {
    if let Error::BadSecret(why) = error {
        return unusable(why);
    }
    let wake = error.retry_at(Timestamp::now()).map(NextRunTrigger::at).unwrap_or_default();
    let text = format!("scan failed: {}", chain(error));
    RunOutcome::Failed(READ_OPERATION_FAILED, text, wake)
}

/// Whether a scan is due. After a scan that failed or was interrupted, the next one is always due: `Ready` shows the failure,
/// also after a restart.
///
/// Differs(flux): there a scan that was requested and failed is repeated at the interval only, and counts as done until then.
fn due(
    object: &ImageRepository,
    image: &ScannedImage,
    has_tags: bool,
    now: Timestamp,
) -> Result<ScanDecision, RunOutcome> {
    let spec = &object.spec;
    let status = object.status.clone().unwrap_or_default();
    let last_scan = status.last_scan_result.as_ref().and_then(|it| it.scan_time.as_ref());
    let state = ScanState {
        interval: image.interval,
        image: &spec.image,
        is_insecure: spec.insecure,
        exclusion_list: &spec.exclusion_list,
        requested_at: object.annotations().get(REQUESTED_AT).map(String::as_str),
        last_handled: status.last_handled_reconcile_at.as_deref().unwrap_or_default(),
        last_scan: last_scan.map(|time| time.0),
        canonical_name: status.canonical_image_name.as_deref().unwrap_or_default(),
        observed_exclusion_list: &status.observed_exclusion_list,
        has_tags: Ok(has_tags),
    };
    match state.decide(now) {
        Ok(ScanDecision::Wait(_)) if !is_ready(object) => {
            Ok(ScanDecision::Scan(ScanReason::Interval))
        }
        Ok(decision) => Ok(decision),
        Err(error) => Err(RunOutcome::Stalled(IMAGE_URL_INVALID, error.to_string())),
    }
}

fn is_ready(object: &ImageRepository) -> bool {
    object.condition(READY).is_some_and(|ready| ready.status == "True")
}

/// Whether the status has the tags with the revision `kept`. A process that ends between storing tags and writing the status
/// leaves other tags, and no policy was notified of them.
fn is_recorded(object: &ImageRepository, kept: Option<&str>) -> bool {
    let last = object.status.as_ref().and_then(|it| it.last_scan_result.as_ref());
    kept.is_some() && kept == last.and_then(|it| it.revision.as_deref())
}

/// Filters the tags that a registry lists. This takes CPU time.
fn kept(listed: Vec<String>, exclusions: &[String]) -> Result<TagList, RunOutcome> {
    TagList::of_scan(listed, exclusions, &mut tag_meter()).map_err(|error| {
        let text = format!("scan failed: {}", chain(&error));
        RunOutcome::Failed(READ_OPERATION_FAILED, text, NextRunTrigger::default())
    })
}

impl ScanRun<'_> {
    /// Lists the tags if a scan is due.
    ///
    /// # Errors
    /// The spec is invalid, an object that it names is missing, or the registry does not list the tags.
    pub(super) async fn run(&self) -> Result<ScanRunResult, RunOutcome> {
        // The spec is checked before any request is sent.
        let image = ScannedImage::of(&self.object.spec)?;
        let mut remote = self.remote(&image).await?;
        let name = image.name.to_string();
        let reason = match self.decide(&image, &name).await? {
            ScanDecision::Scan(reason) => reason,
            ScanDecision::Wait(wait) => {
                let status = self.object.status.as_ref();
                let last = status.and_then(|it| it.last_scan_result.clone()).unwrap_or_default();
                return Ok(ScanRunResult::NotDue { outcome: settled(&last), wait });
            }
        };
        let found = self.scan(name, &mut remote, reason).await?;
        Ok(ScanRunResult::Done { found, interval: image.interval.max(SHORTEST_INTERVAL) })
    }

    /// Whether a scan is due. The stored tags are only read if there is no other reason for a scan.
    async fn decide(&self, image: &ScannedImage, name: &str) -> Result<ScanDecision, RunOutcome> {
        let now = Timestamp::now();
        let decision = due(self.object, image, true, now)?;
        if matches!(decision, ScanDecision::Scan(_)) {
            return Ok(decision);
        }
        let has_tags = {
            // There are as many lists in memory as permits.
            let _permit = self.context.building.acquire(&self.node.namespace).await;
            let store = self.context.artifacts.clone();
            let object = self.object.clone();
            let name = name.to_owned();
            // What cannot be read is listed anew. Differs(flux): an image without tags is not scanned by each run.
            let work = move || {
                let kept = tag_store::revision_of(&store, &object, &name);
                Ok(is_recorded(&object, kept.as_deref()))
            };
            blocking(READ_OPERATION_FAILED, "reading tags", work).await?
        };
        due(self.object, image, has_tags, now)
    }

    /// The registry, with the connection settings of the spec. The objects that the spec names are watched from now on.
    async fn remote(&self, image: &ScannedImage) -> Result<RemoteOciRepository, RunOutcome> {
        let spec = &self.object.spec;
        let mut references = RunReferenceReads::new(&self.context.watcher);
        let secrets = RegistrySecrets::read(spec, &self.node.namespace, &mut references).await;
        references.watch(self.node);
        let remote = secrets.and_then(|secrets| secrets.remote(image, spec.insecure));
        remote.map_err(|why| unusable(&why))
    }

    async fn scan(
        &self,
        image: String,
        remote: &mut RemoteOciRepository,
        reason: ScanReason,
    ) -> Result<ScannedTags, RunOutcome> {
        let spec = &self.object.spec;
        // The permit is held until the tags are stored, as for a source. A list that waits for a second permit would take
        // memory, and the first permit.
        let _permit = self.context.fetching.acquire(&self.node.namespace).await;
        let listing = async { session(self.context, spec, remote).await?.tags().await };
        let listed = progress_status::telling(listing, self.tell(reason)).await;
        let listed = listed.map_err(|error| failed(&error))?;
        let store = self.context.artifacts.clone();
        let slot = tag_store::slot(self.object);
        let exclusions = spec.exclusion_list.clone();
        let work = move || {
            let tags = kept(listed, &exclusions)?;
            let stored = slot.and_then(|slot| tag_store::keep(&store, &slot, &image, &tags));
            stored.map_err(|error| {
                let text = format!("scan failed: failed to store the tags: {}", chain(&error));
                RunOutcome::Failed(READ_OPERATION_FAILED, text, NextRunTrigger::default())
            })?;
            Ok(ScannedTags::new(image, &exclusions, &tags, Timestamp::now()))
        };
        blocking(READ_OPERATION_FAILED, "scanning", work).await
    }

    /// Reports a running scan in the status, if the status has no result yet.
    async fn tell(&self, reason: ScanReason) {
        if !progress_status::is_decided(&**self.object) {
            let text = format!("scanning: {reason}");
            progress_status::tell(self.context, self.latest, self.object, &text).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const LISTED_TAGS: [&str; 6] =
        ["v1.0.0", "v1.1.0", "latest", "sha256-aa.sig", "v0.9.0", "main-1"];

    fn listed() -> Vec<String> {
        LISTED_TAGS.map(str::to_owned).to_vec()
    }

    fn object(spec: &Value, status: &Value, annotations: &Value) -> ImageRepository {
        let mut whole = json!({"image": "ghcr.io/acme/app", "interval": "5m"});
        for (key, value) in spec.as_object().into_iter().flatten() {
            whole[key] = value.clone();
        }
        serde_json::from_value(json!({
            "metadata": {"name": "app", "namespace": "apps", "annotations": annotations},
            "spec": whole, "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn the_status_says_what_was_found_in_the_words_of_flux() {
        let now = "2026-11-24T10:00:00Z".parse().unwrap();
        let tags = kept(listed(), &[]).unwrap();
        let found = ScannedTags::new("ghcr.io/acme/app".to_owned(), &[], &tags, now);
        let text = "successful scan: found 5 tags with checksum 4133161855";
        assert_eq!(
            found.outcome(),
            RunOutcome::Settled(condition_reason::SUCCEEDED, text.to_owned())
        );
        let mut status = ImageRepositoryStatus::default();
        found.show(&mut status);
        let expected = json!({
            "canonicalImageName": "ghcr.io/acme/app",
            "observedExclusionList": ["^.*\\.sig$"],
            "lastScanResult": {"revision": "4133161855", "tagCount": 5,
                "scanTime": "2026-11-24T10:00:00Z",
                "latestTags": ["v1.1.0", "v1.0.0", "v0.9.0", "main-1", "latest"]},
        });
        assert_eq!(json!(status), expected);
    }

    #[test]
    fn a_pattern_that_is_none_fails_the_scan() {
        let outcome = kept(listed(), &["[".to_owned()]).unwrap_err();
        assert!(matches!(outcome, RunOutcome::Failed(READ_OPERATION_FAILED, ..)), "{outcome:?}");
        let expected = "scan failed: failed to compile regex [: error parsing regexp: ";
        assert!(outcome.text().starts_with(expected), "{outcome:?}");
    }

    #[test]
    fn a_scan_that_failed_is_due_again_though_its_request_was_answered() {
        let status = |ready: &str| {
            json!({
                "canonicalImageName": "ghcr.io/acme/app", "observedExclusionList": ["^.*\\.sig$"],
                "lastHandledReconcileAt": "t1",
                "lastScanResult":
                    {"revision": "1", "tagCount": 1, "scanTime": "2026-11-24T10:00:00Z"},
                "conditions": [{"type": "Ready", "status": ready, "reason": "Any", "message": "",
                    "lastTransitionTime": "2026-11-24T10:00:00Z"}],
            })
        };
        let asked = |token: &str, ready: &str| {
            let annotations = json!({"reconcile.fluxcd.io/requestedAt": token});
            object(&json!({}), &status(ready), &annotations)
        };
        let now: Timestamp = "2026-11-24T10:01:00Z".parse().unwrap();
        let decide = |object: &ImageRepository, has_tags: bool| {
            let image = ScannedImage::of(&object.spec).unwrap();
            due(object, &image, has_tags, now).unwrap()
        };
        let wait = ScanDecision::Wait(Duration::from_secs(240));
        assert_eq!(decide(&asked("t1", "True"), true), wait);
        let requested = ScanDecision::Scan(ScanReason::Requested);
        assert_eq!(decide(&asked("t2", "True"), true), requested);
        // Only the status says so, so it is the same after a restart.
        for ready in ["False", "Unknown"] {
            let again = ScanDecision::Scan(ScanReason::Interval);
            assert_eq!(decide(&asked("t1", ready), true), again, "{ready}");
        }
        let no_tags = ScanDecision::Scan(ScanReason::NoTags);
        assert_eq!(decide(&asked("t1", "True"), false), no_tags);
        let other = object(&json!({"image": "ghcr.io/acme/b"}), &status("True"), &json!({}));
        assert_eq!(decide(&other, true), ScanDecision::Scan(ScanReason::NewImageName));
    }

    #[test]
    fn tags_of_which_the_status_has_another_revision_are_listed_anew() {
        let recorded = |status: &Value, kept: Option<&str>| {
            is_recorded(&object(&json!({}), status, &json!({})), kept)
        };
        let status = json!({"lastScanResult": {"revision": "1", "tagCount": 1}});
        assert!(recorded(&status, Some("1")));
        assert!(!recorded(&status, Some("2")), "a crash came before the status was written");
        for (status, kept) in [(&status, None), (&json!({}), Some("1")), (&json!({}), None)] {
            assert!(!recorded(status, kept), "{kept:?}");
        }
    }

    #[test]
    fn what_a_registry_says_is_repeated_and_awaited() {
        let request = "GET https://ghcr.io/v2/acme/app/tags/list".to_owned();
        let said = "TOOMANYREQUESTS: slow down".to_owned();
        let retry_after = Some(Duration::from_secs(90));
        let outcome = failed(&Error::Unavailable { request, said, retry_after });
        let expected = "scan failed: GET https://ghcr.io/v2/acme/app/tags/list: TOOMANYREQUESTS: ";
        assert!(outcome.text().starts_with(expected), "{outcome:?}");
        assert!(outcome.wake().and_then(NextRunTrigger::earliest).is_some());
        let outcome = failed(&Error::BadSecret("`ca.crt` is no certificate".to_owned()));
        assert_eq!(outcome.reason(), AUTHENTICATION_FAILED);
        let expected = "failed to configure authentication options: `ca.crt` is no certificate";
        assert_eq!(outcome.text(), expected);
    }
}
