//! Chooses the best tag that also meets the further requirements of a policy: an age, platforms, signatures.
//!
//! Here: the order in which tags are examined, and which version stays if no tag meets all requirements. Elsewhere: the order
//! of tags (`tag_choice`), ages (`min_age`), platforms and signatures (`candidate_image_check`).

use std::time::{Duration, Instant};

use crds::image::{DigestReflectionPolicy, ImagePolicy, ImageRef};
use image::counts_from;
use jiff::{SignedDuration, Timestamp};
use reconcile::{NextRunTrigger, RunOutcome};
use sources::oci::RemoteOciRepository;

use super::LatestVersion;
use super::candidate_image_check::{CandidateImageCheck, ImageCheckOutcome};
use super::min_age::{self, TagMinimumAge};
use super::tag_choice::DigestLookup;

/// The shortest time after which images that were passed over are examined again.
const SHORTEST_RECHECK: Duration = Duration::from_secs(60);

/// The tags of an image that may be the latest.
#[derive(Debug, PartialEq)]
pub(super) struct CandidateTags {
    /// The canonical name of the image.
    pub(super) image: String,
    /// The best tags, best first.
    pub(super) best: Vec<String>,
    /// The tags that may count, best first. The registry tells their digests.
    pub(super) candidates: Vec<String>,
    /// The time for which the tags have to be known. `None` if the policy has no minimum age.
    pub(super) age: Option<TagMinimumAge>,
}

/// The result for a tag.
enum TagResult {
    /// The tag is the latest.
    Counts(ImageRef),
    /// The tag is not the latest, at least not yet.
    PassedOver,
    /// No further tag is examined in this run.
    Ended,
}

/// Goes over the candidates of one run.
pub(super) struct CandidateWalk<'w> {
    pub(super) lookup: &'w DigestLookup<'w>,
    pub(super) object: &'w ImagePolicy,
    /// The latest version so far.
    pub(super) former: Option<&'w ImageRef>,
    /// The requirements for images.
    pub(super) check: &'w mut CandidateImageCheck,
    /// The registry, after its connection settings were read.
    pub(super) remote: Option<RemoteOciRepository>,
}

impl CandidateWalk<'_> {
    /// Chooses the first candidate that meets all requirements. If there is none, the former latest version stays.
    ///
    /// # Errors
    /// The registry or the disk fails. Or neither a candidate nor the former latest version meets the requirements.
    pub(super) async fn choose(
        mut self,
        mut tags: CandidateTags,
    ) -> Result<LatestVersion, RunOutcome> {
        let examined = self.check.examined_tags(&tags.image, &tags.candidates);
        let candidates = std::mem::replace(&mut tags.candidates, examined);
        let chosen = self.first(&mut tags).await;
        let now = Timestamp::now();
        if let Some(age) = &mut tags.age {
            age.history.trim(age.min_age, now);
            // The digests were seen before the failure, so their times are stored.
            min_age::keep(self.lookup, self.object, &tags.image, &age.history).await?;
        }
        let version = match chosen? {
            Some(version) => Some(version),
            None => self.former().await?,
        };
        let tag = version.as_ref().map(|it| it.tag.as_str());
        self.check.conclude(&candidates, tag);
        let age = tags.age.as_ref();
        let waiting = age.map(|age| age.passed_over(&tags.best, tag, now)).unwrap_or_default();
        let is_waiting = !waiting.is_empty();
        let passed_over = waiting + &self.check.passed_over();
        let of_age = age.and_then(|age| age.next_change(now));
        let next = of_age.into_iter().chain(self.recheck(now)).min();
        if let Some(version) = version {
            let acceptance = self.check.acceptance(&version);
            return Ok(LatestVersion { version, passed_over, next, acceptance });
        }
        let text = format!("no tag of {} counts yet{passed_over}", self.lookup.image_name());
        let wake = next.map(NextRunTrigger::at).unwrap_or_default();
        self.check.note_unverified(&text);
        let is_young = self.check.is_empty() || (is_waiting && !self.check.is_incomplete());
        Err(if is_young {
            min_age::not_reached(text, wake)
        } else {
            self.check.failure(text, wake)
        })
    }

    /// The time at which images that were passed over are examined again. A signature may be added, or a tag may be moved,
    /// without a change of the list of tags. `None` if no image was passed over.
    fn recheck(&self, now: Timestamp) -> Option<Timestamp> {
        let interval = self.lookup.image.interval.max(SHORTEST_RECHECK);
        let interval = SignedDuration::try_from(interval).unwrap_or(SignedDuration::MAX);
        let at = now.checked_add(interval).unwrap_or(Timestamp::MAX);
        self.check.is_incomplete().then_some(at)
    }

    async fn first(&mut self, tags: &mut CandidateTags) -> Result<Option<ImageRef>, RunOutcome> {
        if tags.candidates.is_empty() && self.remote.is_none() {
            self.lookup.read_nothing();
        }
        let begin = Instant::now();
        let CandidateTags { candidates, age, .. } = tags;
        for (at, tag) in candidates.iter().enumerate() {
            match self.examine_tag(tag, age.as_mut()).await? {
                TagResult::Counts(version) => return Ok(Some(version)),
                TagResult::PassedOver => {}
                TagResult::Ended => break,
            }
            // Each request may take as long.
            let is_over = |remote: &RemoteOciRepository| begin.elapsed() >= remote.timeout;
            if self.remote.as_ref().is_some_and(is_over) {
                if let Some(next) = candidates.get(at + 1).filter(|_| !self.check.is_empty()) {
                    self.check.postpone(next);
                }
                break;
            }
        }
        Ok(None)
    }

    /// Whether a tag is the latest. The present latest version needs no age.
    async fn examine_tag(
        &mut self,
        tag: &str,
        age: Option<&mut TagMinimumAge>,
    ) -> Result<TagResult, RunOutcome> {
        let lookup = self.lookup;
        let reflection = self.object.spec.digest_reflection_policy.unwrap_or_default();
        let version = lookup.version(tag);
        let known = self.former.filter(|it| it.tag == tag);
        if let Some(known) = known.filter(|it| !is_looked_up_again(it, reflection)) {
            if self.check.is_empty() {
                let digest = lookup.digest(self.object, &version).await?;
                return Ok(TagResult::Counts(ImageRef { digest, ..version }));
            }
            // With `IfNotPresent` the policy keeps the digest in its status, even if the tag was moved to another image.
            let digest = known.digest.as_ref();
            let digest = digest.filter(|_| reflection == DigestReflectionPolicy::IfNotPresent);
            if let Some(digest) = digest {
                match self.examine(tag, digest).await? {
                    ImageCheckOutcome::Passed => return Ok(TagResult::Counts(known.clone())),
                    ImageCheckOutcome::Refused => {}
                    ImageCheckOutcome::Postponed => return Ok(TagResult::Ended),
                }
            }
        }
        let mut remote = self.take_remote(&version).await?;
        let digest = lookup.resolve(&mut remote, &version).await;
        self.remote = Some(remote);
        let digest = digest?;
        if let Some(age) = age {
            let now = Timestamp::now();
            let first_seen = age.history.see(tag, &digest, now);
            let is_known = known.is_some_and(|it| is_same_image(it, &digest, reflection));
            if !is_known && counts_from(first_seen, age.min_age) > now {
                return Ok(TagResult::PassedOver);
            }
        }
        Ok(match self.examine(tag, &digest).await? {
            ImageCheckOutcome::Passed => {
                let digest = Some(digest).filter(|_| reflection != DigestReflectionPolicy::Never);
                TagResult::Counts(ImageRef { digest, ..version })
            }
            ImageCheckOutcome::Refused => TagResult::PassedOver,
            ImageCheckOutcome::Postponed => TagResult::Ended,
        })
    }

    /// The former latest version, if its image meets all requirements. A chosen version needs no age.
    async fn former(&mut self) -> Result<Option<ImageRef>, RunOutcome> {
        let Some(former) = self.former else { return Ok(None) };
        let Some(digest) = former.digest.as_ref().filter(|_| !self.check.is_empty()) else {
            let is_unknown =
                self.check.requires_signatures() || self.check.is_passed_over(&former.tag);
            return Ok((!is_unknown).then(|| former.clone()));
        };
        self.check.admit_one();
        let examination = self.examine(&former.tag, digest).await?;
        Ok((examination == ImageCheckOutcome::Passed).then(|| former.clone()))
    }

    async fn examine(&mut self, tag: &str, digest: &str) -> Result<ImageCheckOutcome, RunOutcome> {
        if self.check.is_empty() {
            return Ok(ImageCheckOutcome::Passed);
        }
        let lookup = self.lookup;
        let mut remote = self.take_remote(&lookup.version(tag)).await?;
        let examination = self.check.examine(lookup, &mut remote, tag, digest).await;
        self.remote = Some(remote);
        examination
    }

    /// The registry, which is put back after its use.
    async fn take_remote(&mut self, version: &ImageRef) -> Result<RemoteOciRepository, RunOutcome> {
        match self.remote.take() {
            Some(remote) => Ok(remote),
            None => self.lookup.remote(version).await,
        }
    }
}

/// Whether the digest of the present latest version is looked up again.
fn is_looked_up_again(latest: &ImageRef, reflection: DigestReflectionPolicy) -> bool {
    reflection == DigestReflectionPolicy::Always && latest.digest.is_some()
}

/// Whether a digest is that of a version, as far as its policy tells digests apart.
fn is_same_image(version: &ImageRef, digest: &str, reflection: DigestReflectionPolicy) -> bool {
    reflection == DigestReflectionPolicy::Never
        || version.digest.as_deref().is_none_or(|known| known == digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_version_is_the_same_image_until_its_digest_is_another() {
        let version = |digest: Option<&str>| ImageRef {
            name: "r.io/app".to_owned(),
            tag: "1".to_owned(),
            digest: digest.map(str::to_owned),
        };
        let is_same = |known: Option<&str>, reflection: DigestReflectionPolicy| {
            is_same_image(&version(known), "sha256:a", reflection)
        };
        for reflection in [DigestReflectionPolicy::Always, DigestReflectionPolicy::IfNotPresent] {
            assert!(is_same(Some("sha256:a"), reflection) && is_same(None, reflection));
            assert!(!is_same(Some("sha256:b"), reflection));
        }
        assert!(is_same(Some("sha256:b"), DigestReflectionPolicy::Never));
        let always = DigestReflectionPolicy::Always;
        assert!(is_looked_up_again(&version(Some("sha256:a")), always));
        assert!(!is_looked_up_again(&version(None), always));
        let once = DigestReflectionPolicy::IfNotPresent;
        assert!(!is_looked_up_again(&version(Some("sha256:a")), once));
    }
}
