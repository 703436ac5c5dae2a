//! The annotations of a CRD that control the guard.

use objects::Object;

/// The annotation of a manifest with the guard policy: `Guard`, `Skip`, or `Force=<uid>@<generation>` of the live CRD.
pub(super) const POLICY: &str = "windlass.dev/crd-policy";

/// The annotation of a live CRD that confirms its deletion with all custom resources. Its value is the uid of the CRD.
pub(super) const REMOVAL: &str = "windlass.dev/crd-removal";

/// What the parsed policy annotation of a CRD says to the guard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CrdGuardAnnotation {
    /// The guard judges the CRD.
    Guard,
    /// The CRD is not written.
    Skip,
    /// The CRD is written once, over the live one with this uid and generation.
    Force { uid: String, generation: i64 },
}

impl CrdGuardAnnotation {
    /// The policy in the annotation of a manifest.
    ///
    /// # Errors
    /// The annotation has an unknown value.
    pub(super) fn of(manifest: &Object) -> Result<Self, String> {
        let text = manifest.annotation(POLICY).unwrap_or("Guard");
        let forced = text.strip_prefix("Force=").and_then(|it| it.split_once('@'));
        match (text, forced) {
            ("Guard", _) => Ok(Self::Guard),
            ("Skip", _) => Ok(Self::Skip),
            (_, Some((uid, generation)))
                if !uid.is_empty() && generation.parse::<i64>().is_ok() =>
            {
                let generation = generation.parse().unwrap_or_default();
                Ok(Self::Force { uid: uid.to_owned(), generation })
            }
            _ => Err(format!(
                "the annotation {POLICY} has an invalid value; use Guard, Skip or Force=<uid>@<generation>"
            )),
        }
    }

    /// Whether the annotation forces the write over this live CRD. The write changes the generation, so the annotation counts
    /// once.
    pub(super) fn forces(&self, live: &Object) -> bool {
        match self {
            Self::Force { uid, generation } => {
                live.uid() == uid && live.generation() == *generation
            }
            Self::Guard | Self::Skip => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn definition(policy: &str) -> Object {
        Object::new(json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "a.b", "uid": "u", "generation": 3, "annotations": {POLICY: policy}}}))
        .unwrap()
    }

    #[test]
    fn a_definition_is_forced_over_the_very_one_that_was_named() {
        let live = definition("Guard");
        let forces = |text: &str| CrdGuardAnnotation::of(&definition(text)).unwrap().forces(&live);
        assert!(forces("Force=u@3"));
        assert!(
            !forces("Force=u@2") && !forces("Force=v@3") && !forces("Guard") && !forces("Skip")
        );
        for text in ["force", "Force", "Force=u", "Force=@3", "Force=u@x", ""] {
            assert!(CrdGuardAnnotation::of(&definition(text)).is_err(), "{text:?}");
        }
    }
}
