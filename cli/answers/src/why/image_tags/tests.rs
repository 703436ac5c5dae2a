//! Tests of the verdict texts, their order, and tags that are unknown.

use serde_json::{Value, json};

use super::*;

fn policy(spec: &Value, annotations: &Value) -> ImagePolicy {
    let mut whole = json!({"imageRepositoryRef": {"name": "app"}});
    for (key, value) in spec.as_object().into_iter().flatten() {
        whole[key] = value.clone();
    }
    serde_json::from_value(json!({
        "metadata": {"name": "app", "namespace": "apps", "annotations": annotations},
        "spec": whole, "status": {"latestRef": {"name": "r.io/app", "tag": "1.1.0"}},
    }))
    .unwrap()
}

fn repository(count: i64, tags: &[&str]) -> ImageRepository {
    serde_json::from_value(json!({
        "metadata": {"name": "app"}, "spec": {"image": "r.io/app", "interval": "5m"},
        "status": {"canonicalImageName": "r.io/app",
            "lastScanResult": {"tagCount": count, "latestTags": tags}},
    }))
    .unwrap()
}

fn report(policy: &ImagePolicy, tags: &[&str], given: Option<&[&str]>) -> ImageTagReport {
    let repository = repository(245, tags);
    let judge = ImageTagExplainer { policy, repository: &repository, is_refused: false };
    let given = given.map(|tags| tags.iter().map(|tag| (*tag).to_owned()).collect());
    judge.report("ImageRepository/apps/app", given)
}

fn rows(report: &ImageTagReport) -> Vec<String> {
    let row = |it: &UnchosenTag| format!("{} {}: {}", it.tag, it.reason, it.message);
    report.tags.iter().map(row).collect()
}

fn semver(range: &str) -> Value {
    json!({"policy": {"semver": {"range": range}}})
}

#[test]
fn each_tag_has_its_reason_and_those_that_one_expects_come_first() {
    let policy = policy(&semver("1.x"), &json!({}));
    let tags = ["latest", "2.0.0", "1.2.0-rc.1", "1.1.0", "1.0.0", "0.9.0"];
    let report = report(&policy, &tags, None);
    let expected = [
        "2.0.0 OutsideRange: is outside of the range 1.x",
        "1.2.0-rc.1 OutsideRange: is outside of the range 1.x; pre-releases count only if the range names one",
        "latest NotAVersion: is not a version with three numbers",
        "1.0.0 Lower: is lower than 1.1.0",
        "0.9.0 OutsideRange: is outside of the range 1.x",
    ];
    assert_eq!(rows(&report), expected);
    assert_eq!((report.chosen.as_deref(), report.unlisted), (Some("1.1.0"), 239));
}

#[test]
fn a_filter_is_named_and_what_it_extracts() {
    let spec = json!({"policy": {"numerical": {}},
        "filterTags": {"pattern": "^main-(?P<n>.+)$", "extract": "$n"}});
    let mut policy = policy(&spec, &json!({}));
    policy.status = None;
    let report = report(&policy, &["v1", "main-x", "main-7"], None);
    let expected = [
        "main-7 Pending: counts: the policy has not run with it yet, or has failed",
        "main-x NotANumber: `x` of it is not a number, so that the policy chooses no tag",
        "v1 NotMatched: does not match spec.filterTags.pattern `^main-(?P<n>.+)$`",
    ];
    assert_eq!(rows(&report), expected);
}

#[test]
fn a_tag_that_is_higher_waits_and_a_lower_one_would_be_a_downgrade_once_the_latest_is_gone() {
    let waiting = policy(&semver("*"), &json!({"windlass.dev/min-age": "24h"}));
    let found = rows(&report(&waiting, &["1.2.0", "1.1.0"], None));
    let text = "1.2.0 Pending: is higher than 1.1.0: its digest has to be known for 24h (windlass.dev/min-age)";
    assert!(found[0].starts_with(text), "{found:?}");
    let checked = policy(
        &semver("*"),
        &json!({"windlass.dev/required-platforms": "linux/arm64", "windlass.dev/verify-images": "keys"}),
    );
    let found = rows(&report(&checked, &["1.2.0", "1.1.0"], None));
    let text = "1.2.0 Pending: is higher than 1.1.0: its image has to have linux/arm64 \
                (windlass.dev/required-platforms), its image has to be signed with a key of secret keys \
                (windlass.dev/verify-images); the message of the policy says what is missing";
    assert!(found[0].starts_with(text), "{found:?}");
    let plain = policy(&semver("*"), &json!({}));
    let gone = rows(&report(&plain, &[], Some(&["1.0.0", "app.sig"])));
    assert!(gone[0].starts_with("app.sig Excluded: "), "{gone:?}");
    let text = "1.0.0 Downgrade: would be a downgrade from 1.1.0, which the image has no longer";
    assert!(gone[1].starts_with(text), "{gone:?}");
    let allowed = policy(&semver("*"), &json!({"windlass.dev/allow-downgrade": "true"}));
    let rows = rows(&report(&allowed, &[], Some(&["1.0.0"])));
    assert_eq!(rows, ["1.0.0 Lower: is lower than 1.1.0"]);
    // A status contains only some of the tags, so the latest one may be missing.
    let some = report(&plain, &["1.0.0"], None);
    assert_eq!(some.tags[0].reason, "Lower");
}

#[test]
fn signatures_that_the_platform_asks_for_are_known_by_the_condition() -> serde_json::Result<()> {
    let mut object = policy(&semver("*"), &json!({}));
    object.status = serde_json::from_value(json!({
        "latestRef": {"name": "r.io/app", "tag": "1.1.0"},
        "conditions": [{"type": "ImageVerified", "status": "True", "reason": "Succeeded", "message": "",
            "lastTransitionTime": "2026-11-24T10:00:00Z"}],
    }))?;
    let found = rows(&report(&object, &["1.2.0", "1.1.0"], None));
    let text = "1.2.0 Pending: is higher than 1.1.0: its image has to be signed (condition ImageVerified); ";
    assert!(found[0].starts_with(text), "{found:?}");
    Ok(())
}

#[test]
fn what_is_not_known_is_said() {
    let invalid = policy(&semver("bad"), &json!({}));
    let remarks = report(&invalid, &["1.0.0"], None).remarks;
    assert!(remarks[0].starts_with("invalid policy: "), "{remarks:?}");
    let fine = policy(&semver("*"), &json!({}));
    let mut other = repository(1, &["1.0.0"]);
    other.spec.image = "r.io/other".to_owned();
    let judge = ImageTagExplainer { policy: &fine, repository: &other, is_refused: false };
    let report = judge.report("ImageRepository/apps/app", None);
    assert_eq!((report.tags.len(), report.chosen), (0, None));
    assert_eq!(report.remarks, ["the last scan was of another image"]);
}
