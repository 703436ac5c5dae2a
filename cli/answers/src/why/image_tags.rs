//! Explains for each tag of an image why its ImagePolicy did not choose it.
//!
//! Only the operator knows all tags. The status of an ImageRepository lists at most ten of them, and the user can give the
//! others in a file.
//! Elsewhere: the verdicts (engine `image`), the age of digests, which the message of the policy reports for the best tags
//! (`operator/image`).

#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Context as _;
use crds::image::{ImagePolicy, ImageRepository};
use golang::work_meter::{StopSignal, WorkAllowance, WorkMeter};
use image::{FilterTags, ImageName, PolicyChoice, TagEligibility, TagList, TagPolicy, TagVerdict};
use objects::{Object, ObjectId};
use reconcile::parse_duration;
use serde::Serialize;

use crate::cause_facts;
use crate::command_scope::CommandScope;
use crate::render::typed;

/// The annotation with the minimum time for which a digest has to be known.
const MIN_AGE: &str = "windlass.dev/min-age";

/// The annotation with the platforms that an image has to support.
const REQUIRED_PLATFORMS: &str = "windlass.dev/required-platforms";

/// The annotation that names the Secret with the keys for image signatures.
const VERIFY_IMAGES: &str = "windlass.dev/verify-images";

/// The condition of a policy that requires signed images. The annotation or a flag of the operator requires them.
const IMAGE_VERIFIED: &str = "ImageVerified";

/// The annotation that allows a policy to choose a lower version.
const ALLOW_DOWNGRADE: &str = "windlass.dev/allow-downgrade";

/// The condition reason if all tags of a policy are lower than its latest tag.
const DOWNGRADE_REFUSED: &str = "DowngradeRefused";

/// The limits for the work of comparing tags.
const TAG_ALLOWANCE: WorkAllowance = WorkAllowance { steps: 2_000_000_000, bytes: 256 << 20 };

/// How an ImagePolicy judges the tags of its image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageTagReport {
    /// The ImageRepository that lists the tags.
    pub image_repository: String,
    /// The tag that the policy chose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chosen: Option<String>,
    /// The tags that the policy did not choose, the most likely first.
    pub tags: Vec<UnchosenTag>,
    /// How many further tags the last scan found.
    pub unlisted: u64,
    /// Remarks about the limits of the verdicts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

/// A tag that the policy did not choose, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnchosenTag {
    /// The tag.
    pub tag: String,
    /// The reason for programs.
    pub reason: &'static str,
    /// The reason for people.
    pub message: String,
}

/// Whether an object is an ImagePolicy.
pub(super) fn is_policy(id: &ObjectId) -> bool {
    id.group == "image.toolkit.fluxcd.io" && id.kind == "ImagePolicy"
}

/// Judges the tags in a file, or the tags in the status of the ImageRepository.
///
/// # Errors
/// The file or the policy cannot be read.
pub(super) async fn of(
    site: &CommandScope,
    object: Object,
    file: Option<&Path>,
) -> anyhow::Result<ImageTagReport> {
    let named = cause::object_references::sources(&object).into_iter().next();
    let id = named.with_context(|| format!("{} names no image", object.id().subject()))?;
    let ready = cause::condition(&object, "Ready");
    let is_refused = ready.is_some_and(|it| it.reason == DOWNGRADE_REFUSED);
    let listed = file.map(read_tags).transpose()?;
    let subject = id.subject();
    let repository = match cause_facts::read(&site.cluster, &id).await {
        Ok(Some(found)) => typed::<ImageRepository>(found)?,
        Ok(None) => {
            return Ok(ImageTagReport::unknown(&subject, format!("{subject} does not exist")));
        }
        Err(error) => {
            return Ok(ImageTagReport::unknown(
                &subject,
                format!("{subject} cannot be read: {error}"),
            ));
        }
    };
    let policy: ImagePolicy = typed(object)?;
    let judge = ImageTagExplainer { policy: &policy, repository: &repository, is_refused };
    Ok(judge.report(&subject, listed))
}

/// Reads tags from a file with one tag per line. `-` is stdin.
fn read_tags(path: &Path) -> anyhow::Result<Vec<String>> {
    let shown = path.display().to_string();
    let text = match shown.as_str() {
        "-" => std::io::read_to_string(std::io::stdin()).context("reading tags from stdin")?,
        _ => std::fs::read_to_string(path).with_context(|| format!("reading {shown}"))?,
    };
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    Ok(lines.map(str::to_owned).collect())
}

/// A policy, and the data that its verdicts depend on.
struct ImageTagExplainer<'j> {
    policy: &'j ImagePolicy,
    repository: &'j ImageRepository,
    /// Whether all tags of the last reconciliation were lower than the chosen one.
    is_refused: bool,
}

impl ImageTagExplainer<'_> {
    /// Judges the given tags, or the tags in the status.
    fn report(&self, subject: &str, given: Option<Vec<String>>) -> ImageTagReport {
        let mut report = ImageTagReport::empty(subject);
        report.chosen = self.chosen().map(str::to_owned);
        report.remarks.extend(self.stale_spec());
        let is_whole = given.is_some();
        let tags = match given {
            Some(tags) => tags,
            None => match self.scanned() {
                Ok(scanned) => {
                    report.unlisted = scanned.unlisted;
                    scanned.tags
                }
                Err(why) => {
                    report.remarks.push(why);
                    return report;
                }
            },
        };
        let chosen = report.chosen.as_deref();
        let is_gone = self.is_refused
            || is_whole && chosen.is_some_and(|chosen| !tags.iter().any(|tag| tag == chosen));
        match self.rows(tags, chosen, is_gone) {
            Ok(rows) => report.tags = rows,
            Err(why) => report.remarks.push(why),
        }
        report
    }

    /// The tag of this image that the policy chose.
    fn chosen(&self) -> Option<&str> {
        let latest = self.policy.status.as_ref()?.latest_ref.as_ref()?;
        (latest.name == self.repository.spec.image).then_some(latest.tag.as_str())
    }

    fn stale_spec(&self) -> Option<String> {
        let generation = self.policy.metadata.generation?;
        let observed = self.policy.status.as_ref()?.observed_generation?;
        (generation != observed)
            .then(|| "the policy has not chosen since its spec changed".to_owned())
    }

    /// The tags in the status of the ImageRepository.
    ///
    /// # Errors
    /// The status has no tags of this image. The error says why.
    fn scanned(&self) -> Result<ScannedTags, String> {
        let status = self.repository.status.as_ref();
        let scan = status.and_then(|it| it.last_scan_result.as_ref());
        let scan = scan.ok_or("the image was not scanned yet, so no tags are known")?;
        let spec = &self.repository.spec;
        let name = ImageName::parse(&spec.image, spec.insecure).map_err(|it| it.to_string())?;
        let canonical = status.and_then(|it| it.canonical_image_name.as_deref());
        if canonical != Some(name.to_string().as_str()) {
            return Err("the last scan was of another image".to_owned());
        }
        let count = u64::try_from(scan.tag_count).unwrap_or_default();
        let unlisted = count.saturating_sub(scan.latest_tags.len() as u64);
        Ok(ScannedTags { tags: scan.latest_tags.clone(), unlisted })
    }

    /// A row for each tag that is not chosen, the most likely first.
    ///
    /// # Errors
    /// The policy is not valid, or comparing the tags costs too much.
    fn rows(
        &self,
        tags: Vec<String>,
        chosen: Option<&str>,
        is_gone: bool,
    ) -> Result<Vec<UnchosenTag>, String> {
        let mut meter = WorkMeter::new(TAG_ALLOWANCE, StopSignal::default());
        let exclusions = &self.repository.spec.exclusion_list;
        let listed: BTreeSet<String> = tags.iter().cloned().collect();
        // The status contains no excluded tags, unless the exclusion list has changed since the scan.
        let left = TagList::of_scan(tags, exclusions, &mut meter).map_err(|it| it.to_string())?;
        let policy = TagPolicy::new(&self.choice()).map_err(|error| error.to_string())?;
        let filter = self.filter();
        let verdicts = policy
            .verdicts(filter.as_ref(), left.tags(), chosen, &mut meter)
            .map_err(|error| error.to_string())?;
        let kept: BTreeSet<&str> = left.tags().iter().map(String::as_str).collect();
        let excluded = listed.iter().filter(|tag| !kept.contains(tag.as_str()));
        let mut ranked: Vec<RankedUnchosenTag> = verdicts
            .iter()
            .filter(|verdict| Some(verdict.tag.as_str()) != chosen)
            .map(|verdict| self.ranked(verdict, chosen, is_gone))
            .chain(excluded.map(|tag| RankedUnchosenTag {
                rank: 6,
                row: UnchosenTag {
                    tag: tag.clone(),
                    reason: "Excluded",
                    message: "is excluded by spec.exclusionList of the ImageRepository".to_owned(),
                },
            }))
            .collect();
        ranked.sort_by_key(|it| it.rank);
        Ok(ranked.into_iter().map(|it| it.row).collect())
    }

    /// The row of a verdict. Tags that a user would most likely expect to be chosen have a low rank.
    fn ranked(
        &self,
        verdict: &TagVerdict,
        chosen: Option<&str>,
        is_gone: bool,
    ) -> RankedUnchosenTag {
        let TagVerdict { tag, compared, standing, order } = verdict;
        let compared = compared.as_deref().filter(|text| *text != tag);
        let what = compared.map(|text| format!("`{text}` of it ")).unwrap_or_default();
        let is_lower = *order == Some(Ordering::Less);
        let (rank, reason, message) = match standing {
            TagEligibility::Counts => return self.counting(verdict, chosen, is_gone),
            TagEligibility::OutsideRange => {
                let range = self.policy.spec.policy.semver.as_ref().map(|it| it.range.as_str());
                let range = range.unwrap_or_default();
                let hint = match compared.unwrap_or(tag).contains('-') {
                    true => "; pre-releases count only if the range names one",
                    false => "",
                };
                let text = format!("{what}is outside of the range {range}{hint}");
                (if is_lower { 8 } else { 1 }, "OutsideRange", text)
            }
            TagEligibility::NotANumber => {
                let text = format!("{what}is not a number, so that the policy chooses no tag");
                (3, "NotANumber", text)
            }
            TagEligibility::NotAVersion => {
                (4, "NotAVersion", format!("{what}is not a version with three numbers"))
            }
            TagEligibility::NotMatched => {
                let filter = self.policy.spec.filter_tags.as_ref();
                let pattern = filter.and_then(|it| it.pattern.as_deref()).unwrap_or_default();
                (5, "NotMatched", format!("does not match spec.filterTags.pattern `{pattern}`"))
            }
        };
        RankedUnchosenTag { rank, row: UnchosenTag { tag: tag.clone(), reason, message } }
    }

    /// The row of a tag that is eligible.
    fn counting(
        &self,
        verdict: &TagVerdict,
        chosen: Option<&str>,
        is_gone: bool,
    ) -> RankedUnchosenTag {
        let chosen = chosen.unwrap_or_default();
        let (rank, reason, message) = match verdict.order {
            Some(Ordering::Less) if is_gone && !self.may_go_down() => (
                7,
                "Downgrade",
                format!(
                    "would be a downgrade from {chosen}, which the image has no longer; {ALLOW_DOWNGRADE} would allow it"
                ),
            ),
            Some(Ordering::Less) => (7, "Lower", format!("is lower than {chosen}")),
            Some(Ordering::Equal) => (2, "Equal", format!("compares equal with {chosen}")),
            Some(Ordering::Greater) => {
                (0, "Pending", format!("is higher than {chosen}: {}", self.pending()))
            }
            None => (0, "Pending", format!("counts: {}", self.pending())),
        };
        RankedUnchosenTag { rank, row: UnchosenTag { tag: verdict.tag.clone(), reason, message } }
    }

    /// What an eligible tag waits for that is not lower than the chosen one.
    fn pending(&self) -> String {
        if self.policy.spec.suspend {
            return "the policy is suspended".to_owned();
        }
        let annotation = |name: &str| {
            let annotations = self.policy.metadata.annotations.as_ref();
            annotations.and_then(|it| it.get(name)).map(String::as_str)
        };
        let mut required = Vec::new();
        let min_age = annotation(MIN_AGE);
        if let Some(min_age) =
            min_age.filter(|text| parse_duration(text).is_ok_and(|it| !it.is_zero()))
        {
            required.push(format!("its digest has to be known for {min_age} ({MIN_AGE})"));
        }
        if let Some(platforms) = annotation(REQUIRED_PLATFORMS) {
            required.push(format!("its image has to have {platforms} ({REQUIRED_PLATFORMS})"));
        }
        let status = self.policy.status.as_ref();
        let mut conditions = status.into_iter().flat_map(|status| &status.conditions);
        if let Some(secret) = annotation(VERIFY_IMAGES) {
            required.push(format!(
                "its image has to be signed with a key of secret {secret} ({VERIFY_IMAGES})"
            ));
        } else if conditions.any(|condition| condition.type_ == IMAGE_VERIFIED) {
            required.push(format!("its image has to be signed (condition {IMAGE_VERIFIED})"));
        }
        if required.is_empty() {
            return "the policy has not run with it yet, or has failed".to_owned();
        }
        let required = required.join(", ");
        format!(
            "{required}; the message of the policy says what is missing, and how long tags wait"
        )
    }

    fn may_go_down(&self) -> bool {
        let annotations = self.policy.metadata.annotations.as_ref();
        annotations.and_then(|it| it.get(ALLOW_DOWNGRADE)).is_some_and(|value| value == "true")
    }

    fn choice(&self) -> PolicyChoice {
        let policy = &self.policy.spec.policy;
        let order = |order: Option<&String>| order.cloned().unwrap_or_default();
        PolicyChoice {
            semver: policy.semver.as_ref().map(|it| it.range.clone()),
            alphabetical: policy.alphabetical.as_ref().map(|it| order(it.order.as_ref())),
            numerical: policy.numerical.as_ref().map(|it| order(it.order.as_ref())),
        }
    }

    fn filter(&self) -> Option<FilterTags> {
        let filter = self.policy.spec.filter_tags.as_ref()?;
        let pattern = filter.pattern.clone().unwrap_or_default();
        Some(FilterTags { pattern, extract: filter.extract.clone().unwrap_or_default() })
    }
}

/// The tags in a status, and how many tags the status leaves out.
struct ScannedTags {
    tags: Vec<String>,
    unlisted: u64,
}

/// A row and its rank. Rows with a low rank come first.
struct RankedUnchosenTag {
    rank: u8,
    row: UnchosenTag,
}

impl ImageTagReport {
    fn empty(subject: &str) -> Self {
        Self {
            image_repository: subject.to_owned(),
            chosen: None,
            tags: Vec::new(),
            unlisted: 0,
            remarks: Vec::new(),
        }
    }

    /// A report without tags, with the reason.
    fn unknown(subject: &str, remark: String) -> Self {
        Self { remarks: vec![remark], ..Self::empty(subject) }
    }
}
