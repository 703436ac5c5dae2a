//! The requirements that an image has to meet before its tag counts: platforms first, then signatures, which cost more
//! requests.
//!
//! Here: how many images a run examines, which results it remembers, and the message about images that do not meet the
//! requirements.
//! Elsewhere: in which order tags are examined (`candidates`), the annotations (`required_platforms`,
//! `crate::image_verification`), the requests (`sources::oci`), the keys (`verification_keys`).

use std::collections::{BTreeMap, BTreeSet};

use crds::image::ImageRef;
use jiff::Timestamp;
use reconcile::{ConditionReason, NextRunTrigger, RunOutcome, condition_reason};
use signatures::image_verification::acceptance;
use signatures::referrers::SignatureSearch;
use sources::oci::{Error, OciDigest, OciPlatform, PlatformSupport, RemoteOciRepository};
use sources::source_condition_reasons::VERIFICATION_ERROR;
use windlass_cluster::error::chain;
use windlass_runtime::audit::cut;
use windlass_runtime::blocking_task::blocking;

use super::min_age::MAX_NAMED_TAGS;
use super::tag_choice::DigestLookup;
use super::verification_keys::VerificationKeys;
use crate::registry_access::session;

/// No image has all platforms that are required.
const PLATFORMS_MISSING: ConditionReason = ConditionReason::new("PlatformsMissing");

/// The most images that a run examines, besides images with a known result.
pub(super) const MAX_EXAMINED_IMAGES: usize = 10;

/// The most results of each kind that are remembered for a policy.
const MAX_KNOWN_RESULTS: usize = 256;

/// The most bytes of the reason why an image is passed over.
const MAX_REASON_BYTES: usize = 300;

/// Known results of images by their digests, so that the registry is not asked again. A missing signature is not remembered,
/// since it may be added later.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ImageCheckResultCache {
    /// The required platforms that an image lacks. Empty if it has all of them.
    platforms: BTreeMap<String, String>,
    /// The signer of an image.
    signers: BTreeMap<String, String>,
    /// Tags that were passed over by runs which did not reach the last tag. The next run begins with the other tags.
    passed_over: PassedOverTags,
}

/// Tags that the last runs passed over.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct PassedOverTags {
    /// The requirements for their images.
    request: String,
    /// The reasons why tags were passed over.
    reasons: BTreeMap<String, String>,
}

/// Remembers a result. If there are too many results, old ones are found out again.
fn remember(results: &mut BTreeMap<String, String>, key: String, result: &str) {
    if results.len() >= MAX_KNOWN_RESULTS {
        results.clear();
    }
    results.insert(key, result.to_owned());
}

/// The result of examining an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ImageCheckOutcome {
    /// The image meets all requirements.
    Passed,
    /// The image does not meet a requirement.
    Refused,
    /// The image was not examined, because the limit of the run is reached.
    Postponed,
}

/// The reason why a tag is passed over.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ImageRefusal {
    tag: String,
    why: String,
}

/// The requirements for the images of a policy in one run.
pub(super) struct CandidateImageCheck {
    platforms: Vec<OciPlatform>,
    keys: Vec<VerificationKeys>,
    /// The known results of images.
    pub(super) known: ImageCheckResultCache,
    /// How many images may still be examined.
    left: usize,
    refusals: Vec<ImageRefusal>,
    /// The digests that were refused in this run.
    refused: BTreeSet<OciDigest>,
    /// Whether an image lacks a required signature.
    is_unsigned: bool,
    /// The tag from which on images were not examined.
    postponed: Option<String>,
    /// The signer of the last accepted image.
    signers: String,
    /// The reason why no version is known to be signed, if signatures are required.
    unverified: Option<String>,
}

impl CandidateImageCheck {
    pub(super) fn new(
        platforms: Vec<OciPlatform>,
        keys: Vec<VerificationKeys>,
        known: ImageCheckResultCache,
    ) -> Self {
        Self {
            platforms,
            keys,
            known,
            left: MAX_EXAMINED_IMAGES,
            refusals: Vec::new(),
            refused: BTreeSet::new(),
            is_unsigned: false,
            postponed: None,
            signers: String::new(),
            unverified: None,
        }
    }

    /// Chooses the tags of an image that this run examines, in the order of the candidates. If the last runs did not reach all
    /// tags, only the unreached tags are examined. Otherwise a few bad tags would use up the limit in each run.
    pub(super) fn examined_tags(&mut self, image: &str, candidates: &[String]) -> Vec<String> {
        let fingerprints: Vec<&str> = self.keys.iter().map(|it| it.fingerprint.as_str()).collect();
        let platforms = list_of(&self.platforms);
        let request = format!("{image} {platforms} {}", fingerprints.join(" "));
        let known = &mut self.known.passed_over;
        if known.request != request {
            *known = PassedOverTags { request, reasons: BTreeMap::new() };
        }
        let is_left = |tag: &&String| !known.reasons.contains_key(*tag);
        let left: Vec<String> = candidates.iter().filter(is_left).cloned().collect();
        if !left.is_empty() {
            return left;
        }
        known.reasons.clear();
        candidates.to_vec()
    }

    /// Adds the tags that earlier runs passed over to the tags of this run, up to the chosen tag. If this run did not reach
    /// the last tag, the result is kept for the next run.
    pub(super) fn conclude(&mut self, candidates: &[String], chosen: Option<&str>) {
        let better = candidates.iter().take_while(|tag| Some(tag.as_str()) != chosen);
        let earlier = &self.known.passed_over.reasons;
        let mut refusals = Vec::new();
        for tag in better {
            let now = self.refusals.iter().find(|refusal| refusal.tag == *tag);
            let why = now.map(|refusal| &refusal.why).or_else(|| earlier.get(tag));
            refusals.extend(why.map(|why| ImageRefusal { tag: tag.clone(), why: why.clone() }));
        }
        let is_added = |refusal: &ImageRefusal| !refusals.iter().any(|it| it.tag == refusal.tag);
        let others: Vec<ImageRefusal> =
            std::mem::take(&mut self.refusals).into_iter().filter(is_added).collect();
        refusals.extend(others);
        self.refusals = refusals;
        let is_kept = self.postponed.is_some();
        let kept = self.refusals.iter().filter(|_| is_kept);
        self.known.passed_over.reasons =
            kept.map(|refusal| (refusal.tag.clone(), refusal.why.clone())).collect();
    }

    /// Whether the policy has no requirement for images.
    pub(super) fn is_empty(&self) -> bool {
        self.platforms.is_empty() && self.keys.is_empty()
    }

    /// Whether images have to be signed.
    pub(super) fn requires_signatures(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Whether the image of a tag was refused, in this run or in an earlier run that this run continues.
    pub(super) fn is_passed_over(&self, tag: &str) -> bool {
        self.has_refused(tag) || self.known.passed_over.reasons.contains_key(tag)
    }

    /// Whether the image of a tag was refused in this run.
    fn has_refused(&self, tag: &str) -> bool {
        self.refusals.iter().any(|refusal| refusal.tag == tag)
    }

    /// Whether an image was passed over that may count later.
    pub(super) fn is_incomplete(&self) -> bool {
        !self.refusals.is_empty() || self.postponed.is_some()
    }

    /// Permits the examination of one more image, even if the limit is reached.
    pub(super) fn admit_one(&mut self) {
        self.left = self.left.max(1);
    }

    /// Ends the examination at this tag: this run examines neither this tag nor the following ones.
    pub(super) fn postpone(&mut self, tag: &str) {
        if self.postponed.is_none() {
            self.postponed = Some(tag.to_owned());
        }
    }

    /// Examines the image of a tag, by its digest.
    ///
    /// # Errors
    /// The registry does not answer. The image is then neither accepted nor rejected.
    pub(super) async fn examine(
        &mut self,
        lookup: &DigestLookup<'_>,
        remote: &mut RemoteOciRepository,
        tag: &str,
        digest: &str,
    ) -> Result<ImageCheckOutcome, RunOutcome> {
        let digest = match OciDigest::parse(digest) {
            Ok(digest) => digest,
            Err(error) => return Ok(self.refuse(tag, &error.to_string())),
        };
        if self.refused.contains(&digest) {
            return Ok(self.refuse(tag, "its image is that of another tag that is passed over"));
        }
        if !self.is_known(lookup, &digest) {
            let Some(left) = self.left.checked_sub(1) else {
                self.postpone(tag);
                return Ok(ImageCheckOutcome::Postponed);
            };
            self.left = left;
        }
        let mut why = self.missing_platforms(lookup, remote, &digest).await?;
        if why.is_none() {
            why = self.missing_signature(lookup, remote, &digest).await?;
            self.is_unsigned |= why.is_some();
        }
        let Some(why) = why else { return Ok(ImageCheckOutcome::Passed) };
        self.refused.insert(digest);
        Ok(self.refuse(tag, &why))
    }

    /// Notes why a tag is passed over, once for each tag.
    fn refuse(&mut self, tag: &str, why: &str) -> ImageCheckOutcome {
        if !self.has_refused(tag) {
            let why = cut(&why.replace(char::is_control, " "), MAX_REASON_BYTES);
            self.refusals.push(ImageRefusal { tag: tag.to_owned(), why });
        }
        ImageCheckOutcome::Refused
    }

    /// The key under which the result for an image's platforms is remembered.
    fn platforms_key(&self, lookup: &DigestLookup<'_>, digest: &OciDigest) -> String {
        format!("{} {} {digest}", lookup.image.name, list_of(&self.platforms))
    }

    /// Whether the result for an image is known, so that no request is needed.
    fn is_known(&self, lookup: &DigestLookup<'_>, digest: &OciDigest) -> bool {
        let platforms = self.known.platforms.get(&self.platforms_key(lookup, digest));
        if platforms.is_some_and(|missing| !missing.is_empty()) {
            return true;
        }
        let has_platforms = self.platforms.is_empty() || platforms.is_some();
        let is_signed = |keys: &VerificationKeys| {
            self.known.signers.contains_key(&signer_key(lookup, keys, digest))
        };
        has_platforms && self.keys.iter().all(is_signed)
    }

    /// The reason why an image lacks platforms. `None` if it has all of them.
    async fn missing_platforms(
        &mut self,
        lookup: &DigestLookup<'_>,
        remote: &mut RemoteOciRepository,
        digest: &OciDigest,
    ) -> Result<Option<String>, RunOutcome> {
        if self.platforms.is_empty() {
            return Ok(None);
        }
        let key = self.platforms_key(lookup, digest);
        let known = self.known.platforms.get(&key).cloned();
        let why = match known {
            Some(why) => why,
            None => {
                let found = platform_support(lookup, remote, digest, &self.platforms).await;
                let found = found.map_err(|error| not_examined(lookup, digest, &error))?;
                let why = match found {
                    Some(PlatformSupport::Lacks(missing)) if missing.is_empty() => String::new(),
                    Some(PlatformSupport::Lacks(missing)) => {
                        format!("it lacks {}", list_of(&missing))
                    }
                    Some(PlatformSupport::Unreadable(why)) => {
                        format!("its platforms are not known: {why}")
                    }
                    // This is not remembered, since a registry that lost an image may get it back.
                    None => return Ok(Some(format!("the registry does not have {digest}"))),
                };
                remember(&mut self.known.platforms, key, &why);
                why
            }
        };
        Ok(Some(why).filter(|why| !why.is_empty()))
    }

    /// The reason why an image has no required signature. `None` if it has one.
    async fn missing_signature(
        &mut self,
        lookup: &DigestLookup<'_>,
        remote: &mut RemoteOciRepository,
        digest: &OciDigest,
    ) -> Result<Option<String>, RunOutcome> {
        let is_unknown = |keys: &&VerificationKeys| {
            !self.known.signers.contains_key(&signer_key(lookup, keys, digest))
        };
        let unknown: Vec<VerificationKeys> = self.keys.iter().filter(is_unknown).cloned().collect();
        if !unknown.is_empty() {
            let search = signatures_of(lookup, remote, digest).await;
            let search = search.map_err(|error| not_examined(lookup, digest, &error))?;
            let repository = remote.repository.to_string();
            let now = Timestamp::now().as_second();
            let work = move || {
                let verify = |keys: VerificationKeys| {
                    let signer = keys.signer(&search, &repository, now);
                    SignatureResult { keys, signer }
                };
                Ok(unknown.into_iter().map(verify).collect::<Vec<_>>())
            };
            let verified = blocking(VERIFICATION_ERROR, "verifying an image", work).await?;
            for SignatureResult { keys, signer } in verified {
                match signer {
                    Ok(signer) => {
                        let key = signer_key(lookup, &keys, digest);
                        remember(&mut self.known.signers, key, &signer);
                    }
                    Err(why) => {
                        let place = &keys.place;
                        let why = format!("it is not signed with a key of secret '{place}': {why}");
                        return Ok(Some(why));
                    }
                }
            }
        }
        let signer = |keys: &VerificationKeys| {
            self.known.signers.get(&signer_key(lookup, keys, digest)).cloned()
        };
        let signers: Vec<String> = self.keys.iter().filter_map(signer).collect();
        self.signers = signers.join(", ");
        Ok(None)
    }

    /// The signer of an accepted version, as a condition shows it. `None` if the version need not be signed.
    pub(super) fn acceptance(&self, version: &ImageRef) -> Option<String> {
        let signers = cut(&self.signers.replace(char::is_control, " "), MAX_REASON_BYTES);
        let text = format!("{}: signed by {signers}", acceptance(&version.to_string()));
        self.requires_signatures().then_some(text)
    }

    /// Notes that no version passed, not even the former latest one.
    pub(super) fn note_unverified(&mut self, why: &str) {
        self.unverified = self.requires_signatures().then(|| why.to_owned());
    }

    /// The reason why no version is known to be signed. `None` if one is signed, if none has to be, or if that could not be
    /// found out.
    pub(super) fn unverified(&self) -> Option<&str> {
        self.unverified.as_deref()
    }

    /// The message with the tags that were passed over, and the first tag that was not examined. Empty if there are none.
    pub(super) fn passed_over(&self) -> String {
        let mut text = String::new();
        let named = self.refusals.iter().take(MAX_NAMED_TAGS);
        let named: Vec<String> =
            named.map(|ImageRefusal { tag, why }| format!("{tag}, because {why}")).collect();
        if !named.is_empty() {
            text.push_str("; passed over: ");
            text.push_str(&named.join("; "));
        }
        if self.refusals.len() > MAX_NAMED_TAGS {
            text.push_str("; and more");
        }
        if let Some(tag) = &self.postponed {
            text.push_str(&format!(
                "; {tag} and what comes after it was not examined, since a run examines at most \
                 {MAX_EXAMINED_IMAGES} images"
            ));
        }
        text
    }

    /// The outcome of a run in which no image passed.
    pub(super) fn failure(&self, text: String, wake: NextRunTrigger) -> RunOutcome {
        let why = if self.requires_signatures() && (self.is_unsigned || self.refusals.is_empty()) {
            VERIFICATION_ERROR
        } else {
            PLATFORMS_MISSING
        };
        RunOutcome::Failed(why, text, wake)
    }
}

/// The result of one Secret with keys.
struct SignatureResult {
    keys: VerificationKeys,
    signer: Result<String, String>,
}

fn list_of(platforms: &[OciPlatform]) -> String {
    let names: Vec<String> = platforms.iter().map(ToString::to_string).collect();
    names.join(",")
}

/// The key under which the signer of an image is remembered: keys, repository and content.
fn signer_key(lookup: &DigestLookup<'_>, keys: &VerificationKeys, digest: &OciDigest) -> String {
    format!("{} {} {digest}", lookup.image.name, keys.fingerprint)
}

/// The outcome for an image that could not be examined. It counts neither as accepted nor as rejected.
fn not_examined(lookup: &DigestLookup<'_>, digest: &OciDigest, error: &Error) -> RunOutcome {
    let text = format!("failed to examine {}@{digest}: {}", lookup.image_name(), chain(error));
    let wake = error.retry_at(Timestamp::now()).map(NextRunTrigger::at).unwrap_or_default();
    RunOutcome::Failed(condition_reason::FAILED, text, wake)
}

/// The platform support of an image. `None` if the registry does not have the image.
async fn platform_support(
    lookup: &DigestLookup<'_>,
    remote: &mut RemoteOciRepository,
    digest: &OciDigest,
    required: &[OciPlatform],
) -> Result<Option<PlatformSupport>, Error> {
    let _permit = lookup.context.asking.acquire(&lookup.node.namespace).await;
    let session = session(lookup.context, &lookup.repository.spec, remote).await?;
    match session.platform_support(digest, required).await {
        Err(Error::NotFound { .. }) => Ok(None),
        support => support.map(Some),
    }
}

/// The signatures that the registry has of an image.
async fn signatures_of(
    lookup: &DigestLookup<'_>,
    remote: &mut RemoteOciRepository,
    digest: &OciDigest,
) -> Result<SignatureSearch, Error> {
    let _permit = lookup.context.asking.acquire(&lookup.node.namespace).await;
    let session = session(lookup.context, &lookup.repository.spec, remote).await?;
    session.gather(SignatureSearch::for_cosign(&digest.to_string())).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(platforms: &[&str]) -> CandidateImageCheck {
        let platforms = platforms.iter().filter_map(|text| OciPlatform::parse(text)).collect();
        CandidateImageCheck::new(platforms, Vec::new(), ImageCheckResultCache::default())
    }

    #[test]
    fn what_is_passed_over_is_named_once_and_not_more_than_a_few() {
        let mut check = check(&["linux/arm64"]);
        assert_eq!((check.passed_over().as_str(), check.is_incomplete()), ("", false));
        check.refuse("2.0.0", "it lacks linux/arm64");
        check.refuse("2.0.0", "of another digest");
        check.refuse("1.9.0", "a\nb");
        let text = "; passed over: 2.0.0, because it lacks linux/arm64; 1.9.0, because a b";
        assert_eq!(check.passed_over(), text);
        assert!(check.is_incomplete() && check.has_refused("2.0.0") && !check.has_refused("1.0.0"));
        for at in 0..MAX_NAMED_TAGS {
            check.refuse(&format!("1.{at}.0"), "x");
        }
        check.postpone("0.9.0");
        check.postpone("0.8.0");
        let text = check.passed_over();
        assert!(!text.contains("1.4.0, because"), "{text}");
        let end = "; and more; 0.9.0 and what comes after it was not examined, since a run examines \
                   at most 10 images";
        assert!(text.ends_with(end), "{text}");
    }

    #[test]
    fn a_run_begins_with_the_tags_that_the_one_before_did_not_come_to() {
        let names = |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        let all = names(&["5", "4", "3", "2", "1"]);
        let next = |known: ImageCheckResultCache| {
            let platforms = OciPlatform::parse("linux/arm64").into_iter().collect();
            CandidateImageCheck::new(platforms, Vec::new(), known)
        };
        let mut first = next(ImageCheckResultCache::default());
        assert_eq!(first.examined_tags("r.io/app", &all), all);
        first.refuse("5", "x");
        first.refuse("4", "x");
        first.postpone("3");
        first.conclude(&all, None);
        // One that was pushed meanwhile was not examined either.
        let pushed = names(&["6", "5", "4", "3", "2", "1"]);
        let mut second = next(first.known.clone());
        assert_eq!(second.examined_tags("r.io/app", &pushed), names(&["6", "3", "2", "1"]));
        assert!(second.is_passed_over("4") && !second.is_passed_over("3"));
        second.refuse("6", "y");
        second.refuse("3", "y");
        second.postpone("2");
        second.conclude(&pushed, None);
        assert_eq!(
            second.passed_over(),
            "; passed over: 6, because y; 5, because x; 4, because x; 3, because y; 2 and what comes \
             after it was not examined, since a run examines at most 10 images"
        );
        let mut third = next(second.known);
        assert_eq!(third.examined_tags("r.io/app", &pushed), names(&["2", "1"]));
        third.conclude(&pushed, Some("2"));
        // Those above it may get a signature, so that they are examined anew.
        assert!(third.is_incomplete() && third.has_refused("4"));
        assert_eq!(next(third.known).examined_tags("r.io/app", &pushed), pushed);
        // Nor does it count for another image, nor once all were passed over.
        assert_eq!(next(first.known.clone()).examined_tags("r.io/other", &all), all);
        let examined = names(&["5", "4"]);
        assert_eq!(next(first.known).examined_tags("r.io/app", &examined), examined);
    }

    #[test]
    fn the_reason_says_whether_platforms_or_signatures_are_missing() {
        let mut check = check(&["linux/arm64"]);
        check.refuse("2.0.0", "it lacks linux/arm64");
        let outcome = check.failure("no".to_owned(), NextRunTrigger::default());
        assert_eq!(outcome.reason(), PLATFORMS_MISSING);
        assert!(matches!(outcome, RunOutcome::Failed(..)), "{outcome:?}");
        let entry = ("cosign.pub".to_owned(), b"x".to_vec());
        let keys = VerificationKeys::of("apps/keys".to_owned(), [entry].into()).unwrap();
        let mut signed =
            CandidateImageCheck::new(Vec::new(), vec![keys], ImageCheckResultCache::default());
        signed.is_unsigned = true;
        signed.refuse("2.0.0", "it is not signed");
        let outcome = signed.failure("no".to_owned(), NextRunTrigger::default());
        assert_eq!(outcome.reason(), VERIFICATION_ERROR);
    }

    #[test]
    fn who_signed_is_said_where_a_signature_is_required_only() {
        let version = ImageRef {
            name: "r.io/app".to_owned(),
            tag: "1".to_owned(),
            digest: Some("sha256:1".to_owned()),
        };
        assert_eq!(check(&["linux/arm64"]).acceptance(&version), None);
        let entry = ("cosign.pub".to_owned(), b"x".to_vec());
        let keys = VerificationKeys::of("apps/keys".to_owned(), [entry].into()).unwrap();
        let mut signed =
            CandidateImageCheck::new(Vec::new(), vec![keys], ImageCheckResultCache::default());
        signed.signers.push_str("cosign.pub");
        let text = "verified signature of revision r.io/app:1@sha256:1: signed by cosign.pub";
        assert_eq!(signed.acceptance(&version).as_deref(), Some(text));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut results = BTreeMap::new();
        for at in 0..MAX_KNOWN_RESULTS + 1 {
            remember(&mut results, at.to_string(), "x");
        }
        assert_eq!(results.len(), 1);
        let mut check = check(&[]);
        assert!(check.is_empty());
        check.left = 0;
        check.admit_one();
        assert_eq!(check.left, 1);
    }
}
