//! Decides whether the tags of an ImageRepository must be listed now, and when the next time is.
//! Elsewhere: storing the tags (`tag_list.rs`).

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;

use crate::image_reference::{ImageName, ImageNameError};
use crate::tag_list::exclusion_list;

/// The state of an ImageRepository that decides whether a scan is due.
#[derive(Debug, Clone, Copy)]
pub struct ScanState<'s> {
    /// `spec.interval`.
    pub interval: Duration,
    /// `spec.image`.
    pub image: &'s str,
    /// `spec.insecure`.
    pub is_insecure: bool,
    /// `spec.exclusionList`.
    pub exclusion_list: &'s [String],
    /// The annotation `reconcile.fluxcd.io/requestedAt`. An empty value counts, too.
    pub requested_at: Option<&'s str>,
    /// `status.lastHandledReconcileAt`; empty if it is absent.
    pub last_handled: &'s str,
    /// `status.lastScanResult.scanTime`.
    pub last_scan: Option<Timestamp>,
    /// `status.canonicalImageName`.
    pub canonical_name: &'s str,
    /// `status.observedExclusionList`.
    pub observed_exclusion_list: &'s [String],
    /// Whether tags are stored, or why that is not known.
    pub has_tags: Result<bool, &'s str>,
}

/// Why a scan is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanReason {
    /// There was no scan yet.
    NeverScanned,
    /// A user requested a scan.
    Requested,
    /// The name of the image changed.
    NewImageName,
    /// Other tags are excluded.
    NewExclusionList,
    /// The stored tags are missing.
    NoTags,
    /// The interval is over.
    Interval,
}

impl fmt::Display for ScanReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NeverScanned => "first scan",
            Self::Requested => "reconcile requested",
            Self::NewImageName => "new image name",
            Self::NewExclusionList => "updated exclusion list",
            Self::NoTags => "no tags in database",
            Self::Interval => "triggered by interval",
        })
    }
}

/// The decision about a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanDecision {
    /// Scan now, and again after the interval.
    Scan(ScanReason),
    /// No scan is due for this duration.
    Wait(Duration),
}

/// Why no decision about the next scan of an image can be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScanDecisionError {
    /// `spec.image` names no image.
    #[error(transparent)]
    Image(#[from] ImageNameError),
    /// The stored tags cannot be read.
    #[error("{0}")]
    Storage(String),
}

impl ScanState<'_> {
    /// Decides at the time `now`. If several reasons apply, the first one is reported.
    ///
    /// # Errors
    /// The image has no name, or the stored tags cannot be read. Neither is an error if an earlier reason makes a scan due.
    pub fn decide(&self, now: Timestamp) -> Result<ScanDecision, ScanDecisionError> {
        let Some(last_scan) = self.last_scan else {
            return Ok(ScanDecision::Scan(ScanReason::NeverScanned));
        };
        if self.requested_at.is_some_and(|token| token != self.last_handled) {
            return Ok(ScanDecision::Scan(ScanReason::Requested));
        }
        let name = ImageName::parse(self.image, self.is_insecure)?;
        if name.to_string() != self.canonical_name {
            return Ok(ScanDecision::Scan(ScanReason::NewImageName));
        }
        if !self.excludes_the_same() {
            return Ok(ScanDecision::Scan(ScanReason::NewExclusionList));
        }
        match self.has_tags {
            Ok(true) => {}
            Ok(false) => return Ok(ScanDecision::Scan(ScanReason::NoTags)),
            Err(error) => return Err(ScanDecisionError::Storage(error.to_owned())),
        }
        // Parity(flux): a scan in the future makes the wait longer.
        let past = now.as_nanosecond().saturating_sub(last_scan.as_nanosecond());
        let left = i128::try_from(self.interval.as_nanos()).unwrap_or(i128::MAX);
        let left = u64::try_from(left.saturating_sub(past)).map(Duration::from_nanos);
        Ok(match left {
            Ok(left) if left >= Duration::from_secs(1) => ScanDecision::Wait(left),
            _ => ScanDecision::Scan(ScanReason::Interval),
        })
    }

    /// Parity(flux): as many patterns, each of which was there; how often does not matter.
    fn excludes_the_same(&self) -> bool {
        let list = exclusion_list(self.exclusion_list);
        list.len() == self.observed_exclusion_list.len()
            && list.iter().all(|it| self.observed_exclusion_list.contains(it))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled() -> ScanState<'static> {
        ScanState {
            interval: Duration::from_secs(60),
            image: "ghcr.io/acme/app",
            is_insecure: false,
            exclusion_list: &[],
            requested_at: None,
            last_handled: "",
            last_scan: Timestamp::from_second(100).ok(),
            canonical_name: "ghcr.io/acme/app",
            observed_exclusion_list: &[],
            has_tags: Ok(true),
        }
    }

    fn decided(state: &ScanState<'_>) -> Result<ScanDecision, ScanDecisionError> {
        state.decide(Timestamp::from_second(130).unwrap())
    }

    #[test]
    fn the_first_reason_that_holds_is_the_one() {
        let observed = ["x".to_owned()];
        let quiet = ScanState {
            exclusion_list: &observed,
            observed_exclusion_list: &observed,
            ..settled()
        };
        assert_eq!(decided(&quiet), Ok(ScanDecision::Wait(Duration::from_secs(30))));
        let broken = ScanState { has_tags: Err("disk"), ..quiet };
        assert_eq!(decided(&broken), Err(ScanDecisionError::Storage("disk".to_owned())));
        let other = ScanState { image: "ghcr.io/acme/other", ..broken };
        assert_eq!(decided(&other), Ok(ScanDecision::Scan(ScanReason::NewImageName)));
        let nothing = ScanState { image: "://", ..other };
        assert!(matches!(decided(&nothing), Err(ScanDecisionError::Image(_))));
        let asked = ScanState { requested_at: Some("now"), ..nothing };
        assert_eq!(decided(&asked), Ok(ScanDecision::Scan(ScanReason::Requested)));
        let first = ScanState { last_scan: None, ..asked };
        assert_eq!(decided(&first), Ok(ScanDecision::Scan(ScanReason::NeverScanned)));
        assert_eq!(decided(&settled()), Ok(ScanDecision::Scan(ScanReason::NewExclusionList)));
    }
}
