//! The kind ImagePolicy: it chooses the latest tag of an image.
//!
//! Here: its run. In the folder: the ImageRepository that the policy names, and whether it may use it
//! (`referenced_repository`), the order of tags and their digests (`tag_choice`), no change to a lower version
//! (`downgrade_prevention`), tags that failed (`quarantined_tags`), the first tag that meets all further requirements
//! (`candidates`). These requirements are a minimum age (`min_age`, `tag_history_store`), and platforms (`required_platforms`)
//! and signatures (`verification_keys`) of the image (`candidate_image_check`). Elsewhere: the decision (engine `image`),
//! listing tags (`image_repository`), whether signatures are required (`image_verification`), verified versions
//! (`verified_image_versions`).

mod candidate_image_check;
mod candidate_tags;
mod downgrade_prevention;
mod min_age;
mod quarantined_tags;
mod referenced_repository;
mod required_platforms;
mod tag_choice;
mod tag_history_store;
mod verification_keys;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crds::image::{
    DigestReflectionPolicy, ImagePolicy, ImagePolicySpec, ImagePolicyStatus, ImageRef,
    ImageRepository,
};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube_core::{Resource as _, ResourceExt as _};
use parking_lot::Mutex;
use reconcile::{
    ConditionReason, ConditionStatus, DependencyEdge, NextRunTrigger, ObjectKey, RunOutcome,
    SHORTEST_INTERVAL, StatusConditions, condition_reason, format_duration, parse_duration,
};
use sources::oci::OciPlatform;
use sources::source_condition_reasons::{INVALID_DURATION, VERIFICATION_ERROR};
use windlass_cluster::ClusterError;
use windlass_cluster::namespace_policies::{self, NamespacePolicies};
use windlass_cluster::object_store::StateCache;
use windlass_cluster::referenced_secrets_and_config_maps::RunReferenceReads;
use windlass_cluster::throttled_requests::{ThrottledRequests, ThrottledRunBackoff};
use windlass_runtime::controller_kind::{ControllerKind, log_failed_request, node_of};
use windlass_runtime::lifecycle::known_quarantines;
use windlass_runtime::object_status::{LatestWrittenObject, status_of};
use windlass_runtime::run_context::RunContext;
use windlass_runtime::run_error::RunError;

use self::candidate_image_check::{CandidateImageCheck, ImageCheckResultCache};
use self::candidate_tags::{CandidateTags, CandidateWalk};
use self::downgrade_prevention::{ALLOW_DOWNGRADE, TagRule};
use self::min_age::MIN_AGE;
use self::quarantined_tags::QuarantinedTags;
use self::required_platforms::REQUIRED_PLATFORMS;
use self::tag_choice::{DigestLookup, TagQuery, TagRanking};
use self::verification_keys::{VerificationKeyError, VerificationKeys};
use crate::image_kind_run::{
    IMAGE_URL_INVALID, KindSpecificConditions, SuspendedReconcileRequest, begin, next_run, publish,
    report_with, retry_after_refusal,
};
use crate::image_verification::{
    IMAGE_VERIFIED, ImageVerificationKeySecretReference, VERIFY_IMAGES, key_secrets,
    platform_secret,
};
use crate::registry_access::ScannedImage;
use crate::verified_image_versions::{
    KeyFingerprints, VerifiedImageVersion, VerifiedImageVersions,
};

/// The interval is missing that the digest policy needs. Parity(flux).
const INTERVAL_NOT_CONFIGURED: ConditionReason = ConditionReason::new("IntervalNotConfigured");

/// How often a digest is looked up where the interval is zero. Parity(flux).
const DEFAULT_DIGEST_INTERVAL: Duration = Duration::from_secs(600);

/// The least time until a tag that waits is old enough.
const SHORTEST_SLEEP: Duration = Duration::from_secs(1);

/// How long a policy without tags waits before its status says so: an ImageRepository that is created together with it
/// is scanned meanwhile, and wakes it. Parity(flux).
const WAITS_FOR_TAGS: [Duration; 3] =
    [Duration::from_millis(1000), Duration::from_millis(1500), Duration::from_millis(2250)];

/// The state of an ImagePolicy that this process keeps between runs.
#[derive(Default)]
pub struct ImagePolicyState {
    latest: Arc<LatestWrittenObject<ImagePolicy>>,
    /// Runs in a row that failed, for the growing delay.
    failures: u32,
    /// Runs in a row that the API server throttled.
    throttled_run_backoff: ThrottledRunBackoff,
    /// Runs in a row that found no tags.
    waits: usize,
    /// The rule that chose the latest version, if this process did.
    rule: Option<TagRule>,
    /// The known results of images.
    known: ImageCheckResultCache,
    /// Whether automations do not know the newest verification result yet.
    is_unannounced: bool,
}

/// Runs ImagePolicies.
pub struct ImagePolicyController;

impl ControllerKind for ImagePolicyController {
    type Object = ImagePolicy;

    const ANNOTATIONS: &'static [&'static str] =
        &[ALLOW_DOWNGRADE, MIN_AGE, REQUIRED_PLATFORMS, VERIFY_IMAGES];

    type ControllerState = ImagePolicyState;

    /// A text that wakes automations when it changes. Automations write the latest version into files, unless a required
    /// verification is missing, and choose policies by labels. The run itself reports a verification.
    fn announcement(object: &ImagePolicy) -> String {
        let latest = object.status.as_ref().and_then(|it| it.latest_ref.as_ref());
        let latest = latest.map(ToString::to_string).unwrap_or_default();
        let secret = object.annotations().get(VERIFY_IMAGES);
        let reflection = object.spec.digest_reflection_policy;
        format!("{latest} {secret:?} {reflection:?} {:?}", object.labels())
    }

    fn run(
        object: Arc<ImagePolicy>,
        context: Arc<RunContext>,
    ) -> BoxFuture<'static, Option<Duration>> {
        async move { run(object, &context).await }.boxed()
    }
}

/// One run. Returns the time until the next run.
async fn run(seen: Arc<ImagePolicy>, context: &Arc<RunContext>) -> Option<Duration> {
    let node = node_of(&*seen);
    let memory = context.shared::<StateCache<ImagePolicyState>>().of(&node);
    let latest = memory.lock().latest.clone();
    let object = latest.or_seen(seen);
    let is_deleted = object.meta().deletion_timestamp.is_some();
    let outcome = if is_deleted {
        delete(context, &latest, &object).await
    } else {
        let attempt = attempt(context, &node, &memory, &latest, &object);
        let requests = ThrottledRequests::of_namespace(&node.namespace);
        let ended = requests.watch(Box::pin(attempt)).await;
        if std::mem::take(&mut memory.lock().is_unannounced) {
            context.work_queue.changed(&node);
        }
        ended
    };
    outcome.unwrap_or_else(|error| {
        log_failed_request(&node, &error);
        Some(retry_after_refusal(&context.settings, is_deleted, &mut memory.lock().failures))
    })
}

/// Handles the deletion of the object: deletes the tag history, then removes windlass's finalizer.
async fn delete(
    context: &RunContext,
    latest: &LatestWrittenObject<ImagePolicy>,
    object: &Arc<ImagePolicy>,
) -> Result<Option<Duration>, ClusterError> {
    let store = context.artifacts.clone();
    let slot = tag_history_store::slot(object);
    let remove = move || slot.and_then(|slot| store.remove(&slot));
    if let Ok(Err(error)) = tokio::task::spawn_blocking(remove).await {
        let node = node_of(&**object);
        tracing::error!(
            name = node.name,
            namespace = node.namespace,
            error = %error,
            "failed to remove what is known of the age of tags"
        );
    }
    context.shared::<VerifiedImageVersions>().forget(object);
    latest.set_finalizer(context, object, false).await?;
    Ok(None)
}

async fn attempt(
    context: &Arc<RunContext>,
    node: &ObjectKey,
    memory: &Mutex<ImagePolicyState>,
    latest: &LatestWrittenObject<ImagePolicy>,
    object: &Arc<ImagePolicy>,
) -> Result<Option<Duration>, ClusterError> {
    let begun = begin(context, latest, object, SuspendedReconcileRequest::Answered).await?;
    let Some(object) = begun else {
        // Earlier retries do not count after the object is resumed.
        memory.lock().throttled_run_backoff = ThrottledRunBackoff::default();
        return Ok(None);
    };
    let source = referenced_repository::node_of_reference(&object);
    context.work_queue.set_edges(node, DependencyEdge::Source, BTreeSet::from([source.clone()]));
    let mut read = BTreeSet::from([known_quarantines::images_node(&node.namespace)]);
    if context.settings.verify_images_namespaces.is_some() {
        read.insert(namespace_policies::labels_node_of(&node.namespace));
    }
    context.work_queue.set_edges(node, DependencyEdge::Reference, read);
    // The policy waits for Quarantines only while these are not known.
    context.work_queue.set_edges(node, DependencyEdge::Waits, BTreeSet::new());
    let choice = PolicyRun { context, node, object: &object, source: &source };
    let rule = memory.lock().rule.clone();
    let mut findings = ImageFindings::default();
    findings.known.clone_from(&memory.lock().known);
    let ended = choice.choose(rule.as_ref(), &mut findings).await;
    memory.lock().known = std::mem::take(&mut findings.known);
    let notes = context.shared::<VerifiedImageVersions>();
    // Before the status, which has automations run, too.
    if findings.verification.keep(&notes, &object) {
        memory.lock().is_unannounced = true;
    }
    let (chosen, outcome) = match ended {
        Ok(Some(chosen)) => {
            memory.lock().waits = 0;
            let text = message(&status_of(&*object), &chosen.version) + &chosen.passed_over;
            (Some(chosen), RunOutcome::Settled(condition_reason::SUCCEEDED, text))
        }
        Ok(None) => match next_wait(&mut memory.lock().waits) {
            Some(delay) => return Ok(Some(delay)),
            None => (None, without_tags(context.settings.requeue_dependency)),
        },
        Err(error) => (None, error.outcome()?),
    };
    let postponed = memory.lock().throttled_run_backoff.postpone(&*object, &outcome);
    if let (None, Some(delay)) = (&chosen, postponed) {
        return Ok(Some(delay));
    }
    let next = chosen.as_ref().and_then(|it| it.next).map(sleep_until);
    let settled = digest_interval(&object.spec).ok().flatten().into_iter().chain(next).min();
    let again = next_run(&context.settings, &outcome, settled, &mut memory.lock().failures);
    let rule = chosen.as_ref().map(|_| TagRule::of(&object.spec));
    let verification = findings.shown_verification(&notes, &object);
    let report = report_with(
        &*object,
        &outcome,
        context.failure_announcement(node),
        jiff::Timestamp::now(),
        KindSpecificConditions { types: &[IMAGE_VERIFIED], set: &|it| verification.show(it) },
        |status| {
            if let Some(chosen) = chosen {
                advance(status, chosen.version);
            }
        },
    );
    publish(context, latest, &object, report).await?;
    if rule.is_some() {
        memory.lock().rule = rule;
    }
    Ok(again)
}

/// The latest version of an image.
struct LatestVersion {
    version: ImageRef,
    /// The message about better tags that wait. Empty if there are none.
    passed_over: String,
    /// The time when one of the waiting tags may count.
    next: Option<jiff::Timestamp>,
    /// The signer of the version, if a signature is required.
    acceptance: Option<String>,
}

/// The findings of a run about the images that it examines.
#[derive(Default)]
struct ImageFindings {
    known: ImageCheckResultCache,
    /// The Secrets with the keys for signatures, as far as the run found them. An image has to be signed with a key of each.
    secrets: Vec<ImageVerificationKeySecretReference>,
    verification: LatestVerification,
}

impl ImageFindings {
    /// The result that the conditions show. If the run did not find it out, the record that automations use decides.
    fn shown_verification(
        self,
        notes: &VerifiedImageVersions,
        object: &ImagePolicy,
    ) -> LatestVerification {
        let Self { secrets, verification, .. } = self;
        let latest = object.status.as_ref().and_then(|status| status.latest_ref.as_ref());
        let is_doubted = verification == LatestVerification::Unknown && !secrets.is_empty();
        let doubt = latest.filter(|_| is_doubted).and_then(|_| notes.doubt(object, &secrets));
        doubt.map_or(verification, LatestVerification::Unverified)
    }
}

/// Whether the latest version has the required signatures.
#[derive(Debug, PartialEq, Eq, Default)]
enum LatestVerification {
    /// The run did not find it out, so the former record stays.
    #[default]
    Unknown,
    /// The latest version need not be signed.
    NotRequired,
    /// The latest version is signed. The text names the signer.
    Verified { note: VerifiedImageVersion, text: String },
    /// The version is not verified, or there is none. The text gives the reason.
    Unverified(String),
}

impl LatestVerification {
    /// Stores the result for the automations. Returns whether they have to be notified.
    fn keep(&self, notes: &VerifiedImageVersions, object: &ImagePolicy) -> bool {
        match self {
            Self::Unknown => false,
            Self::NotRequired | Self::Unverified(_) => notes.forget(object),
            Self::Verified { note, .. } => notes.keep(object, note),
        }
    }

    /// Shows the result in the conditions.
    fn show<'c>(&self, conditions: StatusConditions<'c>) -> StatusConditions<'c> {
        match self {
            Self::Unknown => conditions.keep(IMAGE_VERIFIED),
            Self::NotRequired => conditions,
            Self::Verified { text, .. } => conditions.set(
                IMAGE_VERIFIED,
                ConditionStatus::True,
                condition_reason::SUCCEEDED,
                text,
            ),
            Self::Unverified(text) => {
                conditions.set(IMAGE_VERIFIED, ConditionStatus::False, VERIFICATION_ERROR, text)
            }
        }
    }
}

/// The duration until a time.
fn sleep_until(time: jiff::Timestamp) -> Duration {
    let delay = time.duration_since(jiff::Timestamp::now());
    Duration::try_from(delay).unwrap_or_default().max(SHORTEST_SLEEP)
}

/// One choice of the latest version.
struct PolicyRun<'r> {
    context: &'r Arc<RunContext>,
    node: &'r ObjectKey,
    object: &'r Arc<ImagePolicy>,
    /// The node of its ImageRepository.
    source: &'r ObjectKey,
}

impl PolicyRun<'_> {
    /// Chooses the latest version of the image. `None` if no tags of the image are known. `rule` is the rule that chose the
    /// former version.
    async fn choose(
        &self,
        rule: Option<&TagRule>,
        findings: &mut ImageFindings,
    ) -> Result<Option<LatestVersion>, RunError> {
        let Self { context, node, object, source } = self;
        // This comes before other errors of the spec, which must not hide that signatures are missing.
        let secrets = self.key_secrets(findings).await;
        digest_interval(&object.spec)?;
        let min_age = min_age::of(object)?;
        let platforms = required_platforms::of(object)?;
        let secrets = secrets?;
        let repository = referenced_repository::referred(context, node, source).await?;
        let image =
            ScannedImage::of(&repository.spec).map_err(|outcome| blamed(source, outcome))?;
        let Some(scanned) = scanned_name(&repository, &image) else { return Ok(None) };
        let now = jiff::Timestamp::now();
        let retry_at = now.saturating_add(context.settings.requeue_dependency);
        let retry_at = retry_at.unwrap_or(jiff::Timestamp::MAX);
        let quarantined = QuarantinedTags::of(context, node, &scanned, retry_at).await?;
        let former = downgrade_prevention::former(object, &repository.spec.image, rule);
        // A failed version does not stay, so another tag is no downgrade.
        let former = former.filter(|it| !quarantined.has(&it.tag));
        let floor =
            former.filter(|_| !downgrade_prevention::is_allowed(object)).map(|it| it.tag.clone());
        let is_checked = !platforms.is_empty() || !secrets.is_empty();
        let query = TagQuery { image: scanned, floor, min_age, is_checked, quarantined };
        let Some(ranked) = tag_choice::rank(context, node, object, &repository, query).await?
        else {
            return Ok(None);
        };
        let lookup = DigestLookup { context, node, repository: &repository, image: &image };
        let chosen = match ranked.ranking {
            TagRanking::Lower { tag, floor } => {
                return Err(downgrade_prevention::refused(lookup.image_name(), &tag, &floor).into());
            }
            TagRanking::Candidates(tags) => {
                let request = ImageRequirements { platforms, secrets };
                self.first_that_passes(&lookup, former, tags, request, findings).await?
            }
            TagRanking::Latest(tag) => {
                let chosen = lookup.version(&tag);
                let digest = lookup.digest(object, &chosen).await?;
                let version = ImageRef { digest, ..chosen };
                LatestVersion { version, passed_over: String::new(), next: None, acceptance: None }
            }
        };
        let passed_over = chosen.passed_over + &ranked.skipped;
        Ok(Some(LatestVersion { passed_over, ..chosen }))
    }

    /// The Secrets with a key of each of which images have to be signed.
    ///
    /// # Errors
    /// It is not known whether the flags require signatures, or the annotation is invalid.
    async fn key_secrets(
        &self,
        findings: &mut ImageFindings,
    ) -> Result<Vec<ImageVerificationKeySecretReference>, RunOutcome> {
        if self.context.settings.verify_images_namespaces.is_some() {
            self.context.shared::<NamespacePolicies>().known().await;
        }
        let of_platform = platform_secret(self.context, &self.node.namespace)?;
        let secrets = key_secrets(self.object, of_platform);
        match &secrets {
            Ok(secrets) if secrets.is_empty() => {
                findings.verification = LatestVerification::NotRequired;
            }
            Ok(secrets) => findings.secrets.clone_from(secrets),
            Err(outcome) => {
                let text = outcome.text().to_owned();
                findings.verification = LatestVerification::Unverified(text);
            }
        }
        secrets
    }

    /// Chooses the first candidate that meets all requirements, or the former latest version.
    async fn first_that_passes(
        &self,
        lookup: &DigestLookup<'_>,
        former: Option<&ImageRef>,
        tags: CandidateTags,
        request: ImageRequirements,
        findings: &mut ImageFindings,
    ) -> Result<LatestVersion, RunOutcome> {
        let ImageRequirements { platforms, secrets } = request;
        let mut keys = Vec::new();
        let mut remote = None;
        if !secrets.is_empty() {
            // The keys are read in each run, since versions that were verified with other keys do not count.
            let mut references = RunReferenceReads::new(&self.context.watcher);
            let read = verification_keys::read(&secrets, &mut references).await;
            match read {
                Ok(read) => keys = read,
                Err(failure) => {
                    references.watch(self.node);
                    let outcome = failure.outcome();
                    if matches!(failure, VerificationKeyError::Missing(_)) {
                        let text = outcome.text().to_owned();
                        findings.verification = LatestVerification::Unverified(text);
                    }
                    return Err(outcome);
                }
            }
            let best = tags.best.first().map(String::as_str).unwrap_or_default();
            remote = Some(lookup.remote_with(&lookup.version(best), references).await?);
        }
        let fingerprint = |it: &VerificationKeys| (it.place.clone(), it.fingerprint.clone());
        let fingerprints: KeyFingerprints = keys.iter().map(fingerprint).collect();
        let mut check =
            CandidateImageCheck::new(platforms, keys, std::mem::take(&mut findings.known));
        let walk = CandidateWalk { lookup, object: self.object, former, check: &mut check, remote };
        let chosen = walk.choose(tags).await;
        let unverified = check.unverified().map(str::to_owned);
        findings.known = check.known;
        if let Ok(LatestVersion { version, acceptance: Some(text), .. }) = &chosen {
            let note = VerifiedImageVersion { version: version.clone(), keys: fingerprints };
            findings.verification = LatestVerification::Verified { note, text: text.clone() };
        } else if let Some(text) = unverified {
            findings.verification = LatestVerification::Unverified(text);
        }
        chosen
    }
}

/// The requirements for the image of a tag.
struct ImageRequirements {
    platforms: Vec<OciPlatform>,
    secrets: Vec<ImageVerificationKeySecretReference>,
}

/// The canonical name of an image; `None` if the last scan was of another one.
///
/// Differs(flux): there a policy that runs between a change of the image and its scan has the tags of the former image.
fn scanned_name(repository: &ImageRepository, image: &ScannedImage) -> Option<String> {
    let name = image.name.to_string();
    let scanned = repository.status.as_ref()?.canonical_image_name.as_deref();
    (scanned == Some(name.as_str())).then_some(name)
}

/// The outcome of an ImagePolicy whose ImageRepository has this outcome.
fn blamed(source: &ObjectKey, outcome: RunOutcome) -> RunOutcome {
    match outcome {
        RunOutcome::Stalled(why, text) if why != IMAGE_URL_INVALID => {
            RunOutcome::Stalled(why, format!("{source}: {text}"))
        }
        outcome => outcome,
    }
}

/// The time to wait before the status reports that there are no tags. `None` if it is to report that now.
fn next_wait(waits: &mut usize) -> Option<Duration> {
    let delay = WAITS_FOR_TAGS.get(*waits).copied();
    *waits = waits.saturating_add(1);
    delay
}

/// No tags of the image are known. Parity(flux): these are its words.
fn without_tags(delay: Duration) -> RunOutcome {
    let text = format!("retrying in {} error: no tags in database", format_duration(delay));
    let delay = jiff::SignedDuration::try_from(delay).unwrap_or_default();
    let at = jiff::Timestamp::now().checked_add(delay).unwrap_or(jiff::Timestamp::MAX);
    RunOutcome::Blocked(condition_reason::DEPENDENCY_NOT_READY, text, NextRunTrigger::at(at))
}

/// How often the digest is looked up. `None` if it is not looked up, or once for each tag.
///
/// # Errors
/// The interval is missing or invalid.
fn digest_interval(spec: &ImagePolicySpec) -> Result<Option<Duration>, RunOutcome> {
    if spec.digest_reflection_policy != Some(DigestReflectionPolicy::Always) {
        return Ok(None);
    }
    let Some(interval) = &spec.interval else {
        let text = "spec.interval must be set when spec.digestReflectionPolicy is set to 'Always'";
        return Err(RunOutcome::Stalled(INTERVAL_NOT_CONFIGURED, text.to_owned()));
    };
    let interval = parse_duration(interval.as_str()).map_err(|error| {
        RunOutcome::Stalled(INVALID_DURATION, format!("spec.interval: {error}"))
    })?;
    let interval = if interval.is_zero() { DEFAULT_DIGEST_INTERVAL } else { interval };
    Ok(Some(interval.max(SHORTEST_INTERVAL)))
}

/// The version that was the latest before a chosen one.
fn previous<'s>(status: &'s ImagePolicyStatus, chosen: &ImageRef) -> Option<&'s ImageRef> {
    let is_same = status.latest_ref.as_ref() == Some(chosen);
    if is_same { status.observed_previous_ref.as_ref() } else { status.latest_ref.as_ref() }
}

/// What is said of a chosen version. Parity(flux): these are its words.
fn message(status: &ImagePolicyStatus, chosen: &ImageRef) -> String {
    let ImageRef { name, tag, digest } = chosen;
    let digest = digest.as_ref().map(|digest| format!(" with digest {digest}"));
    let before = previous(status, chosen).filter(|before| *before != chosen);
    let before = before.map(|before| format!(" (previously {before})"));
    let digest = digest.unwrap_or_default();
    let before = before.unwrap_or_default();
    format!("Latest image tag for {name} resolved to {tag}{digest}{before}")
}

/// Sets the latest version in the status.
fn advance(status: &mut ImagePolicyStatus, chosen: ImageRef) {
    status.observed_previous_ref = previous(status, &chosen).cloned();
    status.latest_ref = Some(chosen);
}

#[cfg(test)]
mod tests {
    use fake_cluster::spec_field_check;
    use serde_json::{Value, json};
    use windlass_cluster::announced_failures::FailureAnnouncement;

    use super::*;

    fn spec(more: &Value) -> ImagePolicySpec {
        let mut spec = json!({"imageRepositoryRef": {"name": "app"}, "policy": {}});
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        serde_json::from_value(spec).unwrap()
    }

    fn version(tag: &str, digest: Option<&str>) -> ImageRef {
        let digest = digest.map(str::to_owned);
        ImageRef { name: "r.io/app".to_owned(), tag: tag.to_owned(), digest }
    }

    #[test]
    fn every_field_of_the_schema_is_used() {
        let used = [
            "imageRepositoryRef",
            "policy",
            "filterTags",
            "digestReflectionPolicy",
            "interval",
            "suspend",
        ];
        spec_field_check::knows_every_field("ImagePolicy", used);
    }

    #[test]
    fn a_version_is_reported_with_the_one_before_it() {
        let mut status = ImagePolicyStatus::default();
        let resolved = "Latest image tag for r.io/app resolved to ";
        for (chosen, text) in [
            (version("v1", None), "v1"),
            (version("v1", None), "v1"),
            (version("v2", None), "v2 (previously r.io/app:v1)"),
            // It is said as long as the version stays.
            (version("v2", None), "v2 (previously r.io/app:v1)"),
            (version("v2", Some("sha256:2")), "v2 with digest sha256:2 (previously r.io/app:v2)"),
            (version("v3", None), "v3 (previously r.io/app:v2@sha256:2)"),
        ] {
            assert_eq!(message(&status, &chosen), format!("{resolved}{text}"));
            advance(&mut status, chosen);
        }
        assert_eq!(status.latest_ref, Some(version("v3", None)));
        assert_eq!(status.observed_previous_ref, Some(version("v2", Some("sha256:2"))));
    }

    #[test]
    fn what_was_verified_stays_so_until_a_run_finds_out_otherwise() {
        let object: ImagePolicy = serde_json::from_value(json!({
            "metadata": {"name": "app"},
            "spec": {"imageRepositoryRef": {"name": "app"}, "policy": {}},
            "status": {"conditions": [{"type": "ImageVerified", "status": "True",
                "reason": "Succeeded", "message": "signed by a",
                "lastTransitionTime": "2026-11-24T10:00:00Z"}]},
        }))
        .unwrap();
        let shown = |verification: LatestVerification| {
            let outcome = RunOutcome::Settled(condition_reason::SUCCEEDED, "ok".to_owned());
            let report = report_with(
                &object,
                &outcome,
                FailureAnnouncement::Made,
                jiff::Timestamp::now(),
                KindSpecificConditions {
                    types: &[IMAGE_VERIFIED],
                    set: &|it| verification.show(it),
                },
                |_| {},
            );
            let conditions = report.after.conditions;
            let found = conditions.into_iter().find(|it| it.type_ == IMAGE_VERIFIED);
            found.map(|it| format!("{} {}", it.status, it.message))
        };
        assert_eq!(shown(LatestVerification::Unknown).as_deref(), Some("True signed by a"));
        assert_eq!(shown(LatestVerification::NotRequired), None);
        let note = VerifiedImageVersion {
            version: version("v1", Some("sha256:1")),
            keys: KeyFingerprints::new(),
        };
        let verified = LatestVerification::Verified { note, text: "signed by b".to_owned() };
        assert_eq!(shown(verified).as_deref(), Some("True signed by b"));
        let unverified = LatestVerification::Unverified("not signed".to_owned());
        assert_eq!(shown(unverified).as_deref(), Some("False not signed"));
    }

    #[test]
    fn a_policy_that_does_not_come_to_verifying_is_shown_as_automations_take_it() {
        let object: ImagePolicy = serde_json::from_value(json!({
            "metadata": {"name": "app", "uid": "1"},
            "spec": {"imageRepositoryRef": {"name": "app"}, "policy": {}},
            "status": {"latestRef": {"name": "r.io/app", "tag": "v1", "digest": "sha256:1"}},
        }))
        .unwrap();
        let notes = VerifiedImageVersions::default();
        let secret = |name: &str| ImageVerificationKeySecretReference {
            namespace: "apps".to_owned(),
            name: name.to_owned(),
            advice: "create it",
        };
        let shown = |names: &[&str]| {
            let secrets = names.iter().map(|name| secret(name)).collect();
            let findings = ImageFindings { secrets, ..ImageFindings::default() };
            findings.shown_verification(&notes, &object)
        };
        assert_eq!(shown(&[]), LatestVerification::Unknown, "nothing is known of what is asked");
        assert!(matches!(shown(&["own"]), LatestVerification::Unverified(_)));
        let keys = KeyFingerprints::from([("apps/own".to_owned(), "a".to_owned())]);
        let note = VerifiedImageVersion { version: version("v1", Some("sha256:1")), keys };
        let verified = LatestVerification::Verified { note, text: "by a".to_owned() };
        assert!(verified.keep(&notes, &object));
        assert!(!LatestVerification::Unknown.keep(&notes, &object));
        assert_eq!(shown(&["own"]), LatestVerification::Unknown, "what is known of it stays");
        // The platform asks for its own key meanwhile.
        match shown(&["platform", "own"]) {
            LatestVerification::Unverified(text) => {
                assert!(text.contains("with the keys of secret 'apps/platform'"), "{text}");
            }
            other => panic!("{other:?}"),
        }
        assert!(LatestVerification::Unverified("x".to_owned()).keep(&notes, &object));
        assert!(matches!(shown(&["own"]), LatestVerification::Unverified(_)));
    }

    #[test]
    fn a_digest_is_looked_up_at_an_interval_only_where_the_policy_says_so() {
        let interval = |more: Value| digest_interval(&spec(&more));
        assert_eq!(interval(json!({})), Ok(None));
        assert_eq!(interval(json!({"digestReflectionPolicy": "IfNotPresent"})), Ok(None));
        let always =
            |text: &str| interval(json!({"digestReflectionPolicy": "Always", "interval": text}));
        assert_eq!(always("90s"), Ok(Some(Duration::from_secs(90))));
        assert_eq!(always("0s"), Ok(Some(DEFAULT_DIGEST_INTERVAL)));
        let missing = interval(json!({"digestReflectionPolicy": "Always"})).unwrap_err();
        assert_eq!(missing.reason(), INTERVAL_NOT_CONFIGURED);
        assert!(matches!(missing, RunOutcome::Stalled(..)), "{missing:?}");
    }

    #[test]
    fn that_there_are_no_tags_is_said_after_a_few_waits() {
        let mut waits = 0;
        let delays: Vec<_> = (0..5).map(|_| next_wait(&mut waits)).collect();
        let [first, second, third] = WAITS_FOR_TAGS.map(Some);
        assert_eq!(delays, [first, second, third, None, None]);
        let outcome = without_tags(Duration::from_secs(30));
        assert_eq!(outcome.text(), "retrying in 30s error: no tags in database");
        assert_eq!(outcome.reason(), condition_reason::DEPENDENCY_NOT_READY);
    }

    #[test]
    fn an_image_has_no_tags_of_the_one_before() {
        let scanned = |image: &str| {
            let repository: ImageRepository = serde_json::from_value(json!({
                "metadata": {"name": "app"}, "spec": {"image": image, "interval": "5m"},
                "status": {"canonicalImageName": "index.docker.io/library/app"},
            }))
            .unwrap();
            scanned_name(&repository, &ScannedImage::of(&repository.spec).unwrap())
        };
        let canonical = Some("index.docker.io/library/app");
        assert_eq!(scanned("app").as_deref(), canonical);
        assert_eq!(scanned("docker.io/library/app").as_deref(), canonical);
        assert_eq!(scanned("ghcr.io/acme/app"), None);
    }

    #[test]
    fn what_is_wrong_with_the_repository_is_said_of_the_repository() {
        let source = ObjectKey::new("image.toolkit.fluxcd.io", "ImageRepository", "apps", "app");
        let text = "spec.provider `gcp` is not supported".to_owned();
        let outcome = RunOutcome::Stalled(condition_reason::UNSUPPORTED_FIELD, text.clone());
        let expected = format!("ImageRepository/apps/app: {text}");
        assert_eq!(blamed(&source, outcome).text(), expected);
        // Parity(flux): what is wrong with the image is said as the repository says it.
        let outcome = RunOutcome::Stalled(IMAGE_URL_INVALID, text.clone());
        assert_eq!(blamed(&source, outcome).text(), text);
    }
}
