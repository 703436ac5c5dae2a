//! What the manifest of a definition says about the guard.

use objects::Object;

/// Annotation of a manifest: `CrdGuardian`, `Skip`, or `Force=<uid>@<generation>` of the live definition.
pub(super) const POLICY: &str = "windlass.dev/crd-policy";

/// Annotation of a live definition: its uid, which confirms that it may be deleted with its objects.
pub(super) const REMOVAL: &str = "windlass.dev/crd-removal";

/// What the annotation says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CrdGuardAnnotation {
    /// The definition is judged.
    Guard,
    /// The definition is not written.
    Skip,
    /// The definition is written once, over the live one with this uid and generation.
    Force { uid: String, generation: i64 },
}

impl CrdGuardAnnotation {
    /// That of a manifest.
    ///
    /// # Errors
    /// Another value of the annotation.
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

    /// Whether it lets a manifest be written over this definition. After the write the generation is another, so it
    /// counts once.
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
