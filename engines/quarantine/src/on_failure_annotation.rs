//! The annotation `windlass.dev/on-failure`, with which a user chooses how windlass reacts to a failed result.

/// Annotation of an applier: how windlass reacts if a result fails its health checks, tests or lifecycles.
pub const ON_FAILURE: &str = "windlass.dev/on-failure";

/// The reaction to a failed result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnFailurePolicy {
    /// The result is quarantined, and the last good result is applied again.
    RollBack,
    /// The result is quarantined. Its changes stay in the cluster, and it is not applied again.
    Hold,
    /// The result is not quarantined. It is tried again, as in Flux.
    #[default]
    Never,
}

/// The annotation has a value without a meaning.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("annotation windlass.dev/on-failure: `{0}` is none of RollBack, Hold and Never")]
pub struct InvalidOnFailure(String);

impl OnFailurePolicy {
    /// Reads the annotation. Without an annotation, failed results are not quarantined.
    ///
    /// # Errors
    /// The value is not valid. No default replaces it, because the user clearly wanted a special behavior.
    pub fn parse(annotation: Option<&str>) -> Result<Self, InvalidOnFailure> {
        match annotation {
            None | Some("Never") => Ok(Self::Never),
            Some("RollBack") => Ok(Self::RollBack),
            Some("Hold") => Ok(Self::Hold),
            Some(other) => Err(InvalidOnFailure(other.chars().take(64).collect())),
        }
    }

    /// Whether a result that fails is quarantined.
    #[must_use]
    pub const fn quarantines(self) -> bool {
        !matches!(self, Self::Never)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_annotation_has_three_values() {
        assert_eq!(OnFailurePolicy::parse(None), Ok(OnFailurePolicy::Never));
        assert_eq!(OnFailurePolicy::parse(Some("Never")), Ok(OnFailurePolicy::Never));
        assert_eq!(OnFailurePolicy::parse(Some("RollBack")), Ok(OnFailurePolicy::RollBack));
        assert_eq!(OnFailurePolicy::parse(Some("Hold")), Ok(OnFailurePolicy::Hold));
        assert!(OnFailurePolicy::RollBack.quarantines() && OnFailurePolicy::Hold.quarantines());
        assert!(!OnFailurePolicy::Never.quarantines());
    }

    #[test]
    fn another_value_is_refused_and_quoted_in_short() {
        for value in ["", "rollback", "true"] {
            let error = OnFailurePolicy::parse(Some(value)).unwrap_err().to_string();
            assert!(error.contains(&format!("`{value}`")), "{error}");
        }
        let error = OnFailurePolicy::parse(Some(&"x".repeat(5000))).unwrap_err().to_string();
        assert!(error.len() < 200, "{error}");
    }
}
