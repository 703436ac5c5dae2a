//! A policy does not go down: the latest version stays while the tags have only lower ones.
//!
//! Here: whether the policy is still the one that chose the version, and what is said where it would go down. Elsewhere: which
//! of two tags is lower (engine `image`).
//!
//! Differs(flux): there a policy goes down as soon as a registry has lost a tag, and automations commit that. Only the tags
//! decide that here, too: an answer without tags, or an error, is no reason to go anywhere.

use crds::image::{ImagePolicy, ImagePolicyChoice, ImagePolicySpec, ImageRef, TagFilter};
use kube_core::ResourceExt as _;
use reconcile::{ConditionReason, ConditionStatus, RunOutcome, STALLED, StatusCondition};
use windlass_runtime::object_status::conditions_of;

/// The annotation that lets a policy go down, with the value `true`.
pub(super) const ALLOW_DOWNGRADE: &str = "windlass.dev/allow-downgrade";

/// The tags have only versions that are lower than the latest.
const DOWNGRADE_REFUSED: ConditionReason = ConditionReason::new("DowngradeRefused");

/// Whether a policy may go down.
pub(super) fn is_allowed(object: &ImagePolicy) -> bool {
    object.annotations().get(ALLOW_DOWNGRADE).is_some_and(|value| value == "true")
}

/// The part of a spec that chooses a tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TagRule {
    policy: ImagePolicyChoice,
    filter_tags: Option<TagFilter>,
}

impl TagRule {
    pub(super) fn of(spec: &ImagePolicySpec) -> Self {
        Self { policy: spec.policy.clone(), filter_tags: spec.filter_tags.clone() }
    }
}

/// The former latest version of the image `name`, if the policy's rule has not changed since it chose this version. Otherwise
/// `None`.
///
/// `known` is the rule that chose the version, if this process has seen it. Otherwise the status decides: it has to be of the
/// same generation, and not be stalled for another reason. A stalled generation counts as observed although it chose nothing.
pub(super) fn former<'o>(
    object: &'o ImagePolicy,
    name: &str,
    known: Option<&TagRule>,
) -> Option<&'o ImageRef> {
    let status = object.status.as_ref()?;
    let latest = status.latest_ref.as_ref().filter(|it| it.name == name)?;
    let is_same = known.map_or_else(
        || {
            let conditions = conditions_of(&status.conditions);
            let is_stalled = StatusCondition::find(&conditions, STALLED).is_some_and(|it| {
                it.status == ConditionStatus::True && it.reason != DOWNGRADE_REFUSED.as_str()
            });
            let generation = object.metadata.generation;
            generation.is_some() && generation == status.observed_generation && !is_stalled
        },
        |rule| *rule == TagRule::of(&object.spec),
    );
    is_same.then_some(latest)
}

/// The latest of the tags of the image `name` is lower than the tag `floor`, which stays.
///
/// It is not Ready, so that an image whose tag was lost is noticed. It runs again when there are other tags, and when its
/// spec or annotations change.
pub(super) fn refused(name: &str, tag: &str, floor: &str) -> RunOutcome {
    let text = format!(
        "the latest of the tags of {name} is {tag}, which is lower than {floor}; {name}:{floor} stays. \
         To use {tag}, set the annotation {ALLOW_DOWNGRADE}: \"true\"; otherwise push {floor} again"
    );
    RunOutcome::Stalled(DOWNGRADE_REFUSED, text)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn policy(generation: u32, range: &str, status: &Value) -> ImagePolicy {
        serde_json::from_value(json!({
            "metadata": {"name": "app", "generation": generation},
            "spec": {"imageRepositoryRef": {"name": "app"}, "policy": {"semver": {"range": range}}},
            "status": status,
        }))
        .unwrap()
    }

    fn stalled(reason: &str) -> Value {
        json!({"observedGeneration": 2, "latestRef": {"name": "r.io/app", "tag": "v2"},
            "conditions": [{"type": "Stalled", "status": "True", "reason": reason, "message": "",
                "lastTransitionTime": "2026-11-24T10:00:00Z"}]})
    }

    #[test]
    fn a_version_counts_as_long_as_the_rule_and_the_image_are_the_same() {
        let status =
            json!({"observedGeneration": 2, "latestRef": {"name": "r.io/app", "tag": "v2"}});
        let is_known = |object: &ImagePolicy, name: &str, rule: Option<&TagRule>| {
            former(object, name, rule).is_some()
        };
        let same = policy(2, "*", &status);
        assert!(is_known(&same, "r.io/app", None));
        assert!(!is_known(&same, "r.io/other", None));
        assert!(!is_known(&policy(3, "*", &status), "r.io/app", None), "another spec");
        assert!(!is_known(&policy(2, "*", &json!({"observedGeneration": 2})), "r.io/app", None));
        // That a policy was suspended and resumed is another generation, and the same rule.
        let rule = TagRule::of(&same.spec);
        assert!(is_known(&policy(4, "*", &status), "r.io/app", Some(&rule)));
        assert!(!is_known(&policy(4, "1.x", &status), "r.io/app", Some(&rule)));
        // A generation that was stalled from the beginning has chosen nothing.
        assert!(!is_known(&policy(2, "*", &stalled("InvalidDuration")), "r.io/app", None));
        assert!(is_known(&policy(2, "*", &stalled("DowngradeRefused")), "r.io/app", None));
    }

    #[test]
    fn only_the_value_true_lets_a_policy_go_down() {
        for (value, expected) in [(Some("true"), true), (Some("yes"), false), (None, false)] {
            let mut object = policy(1, "*", &json!({}));
            if let Some(value) = value {
                object.annotations_mut().insert(ALLOW_DOWNGRADE.to_owned(), value.to_owned());
            }
            assert_eq!(is_allowed(&object), expected, "{value:?}");
        }
    }

    #[test]
    fn a_refused_downgrade_names_both_tags_and_the_annotation() {
        let outcome = refused("r.io/app", "v1", "v2");
        assert_eq!(outcome.reason(), DOWNGRADE_REFUSED);
        assert_eq!(
            outcome.text(),
            "the latest of the tags of r.io/app is v1, which is lower than v2; r.io/app:v2 stays. To use v1, \
             set the annotation windlass.dev/allow-downgrade: \"true\"; otherwise push v2 again"
        );
    }
}
