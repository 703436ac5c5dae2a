//! Every field of the spec is either used, or rejected with an error that names it; what the spec leaves out is as in Flux.

mod options;

use std::collections::BTreeSet;

use fake_cluster::spec_field_check;
use release::ReleaseDesiredState;
use serde_json::{Value, json};

use super::*;
use crate::release_runner::validated_spec::ReleaseInputs;

const MINUTE: Duration = Duration::from_secs(60);

fn spec(more: &Value) -> HelmReleaseSpec {
    let mut spec = json!({"interval": "10m", "chartRef": {"kind": "HelmChart", "name": "c"}});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    serde_json::from_value(spec).unwrap()
}

fn object(more: &Value) -> HelmRelease {
    let mut object = HelmRelease::new("web", spec(more));
    object.metadata.namespace = Some("apps".to_owned());
    object.metadata.uid = Some("uid".to_owned());
    object.metadata.generation = Some(3);
    object
}

fn parts() -> ReleaseInputs {
    ReleaseInputs {
        chart_name: "c".to_owned(),
        chart_version: "1.2.3".to_owned(),
        app_version: "9".to_owned(),
        oci_digest: "sha256:0".to_owned(),
        config_digest: "sha256:1".to_owned(),
        artifact_digest: "sha256:2".to_owned(),
    }
}

fn validated(
    object: &HelmRelease,
    settings: &OperatorSettings,
) -> Result<ValidatedSpec, RunOutcome> {
    validate(&object.spec, target_of(object), origin(object), settings)
}

fn desired(object: &HelmRelease, inputs: ReleaseInputs, flags: &[&str]) -> ReleaseDesiredState {
    let settings = OperatorSettings::from_flags(flags).unwrap();
    let failures = object.status.as_ref().map_or(0, |status| status.failures);
    validated(object, &settings).unwrap().desired(object, inputs, failures, &settings)
}

fn desired_with_flags(object: &HelmRelease, flags: &[&str]) -> ReleaseDesiredState {
    desired(object, parts(), flags)
}

fn desired_of(more: &Value) -> ReleaseDesiredState {
    desired_with_flags(&object(more), &[])
}

/// Fields of the schema that are refused where they are used: by `windlass_runtime::cluster_target`.
const REFUSED_ELSEWHERE: [&str; 1] = ["kubeConfig.configMapRef"];

/// Fields without an effect in Flux.
const DEAD: [&str; 2] = ["install.skipCRDs", "rollback.recreate"];

/// Fields that are used. What is below one that stands here belongs to it.
const USED: &[&str] = &[
    "chart.metadata",
    "chart.spec.chart",
    "chart.spec.ignoreMissingValuesFiles",
    "chart.spec.interval",
    "chart.spec.reconcileStrategy",
    "chart.spec.sourceRef",
    "chart.spec.valuesFiles",
    "chart.spec.verify",
    "chart.spec.version",
    "chartRef",
    "commonMetadata",
    "dependsOn",
    "driftDetection",
    "healthCheckExprs",
    "install.crds",
    "install.createNamespace",
    "install.disableHooks",
    "install.disableOpenAPIValidation",
    "install.disableSchemaValidation",
    "install.disableTakeOwnership",
    "install.disableWait",
    "install.disableWaitForJobs",
    "install.remediation.ignoreTestFailures",
    "install.remediation.remediateLastFailure",
    "install.remediation.retries",
    "install.replace",
    "install.serverSideApply",
    "install.strategy.name",
    "install.strategy.retryInterval",
    "install.timeout",
    "interval",
    "kubeConfig.secretRef",
    "maxHistory",
    "persistentClient",
    "postRenderStrategy",
    "postRenderers",
    "releaseName",
    "rollback.cleanupOnFail",
    "rollback.disableHooks",
    "rollback.disableWait",
    "rollback.disableWaitForJobs",
    "rollback.force",
    "rollback.serverSideApply",
    "rollback.timeout",
    "serviceAccountName",
    "storageNamespace",
    "suspend",
    "targetNamespace",
    "test.enable",
    "test.filters",
    "test.ignoreFailures",
    "test.timeout",
    "timeout",
    "uninstall.deletionPropagation",
    "uninstall.disableHooks",
    "uninstall.disableWait",
    "uninstall.keepHistory",
    "uninstall.timeout",
    "upgrade.chartNameChangeStrategy",
    "upgrade.cleanupOnFail",
    "upgrade.crds",
    "upgrade.disableHooks",
    "upgrade.disableOpenAPIValidation",
    "upgrade.disableSchemaValidation",
    "upgrade.disableTakeOwnership",
    "upgrade.disableWait",
    "upgrade.disableWaitForJobs",
    "upgrade.force",
    "upgrade.preserveValues",
    "upgrade.remediation.ignoreTestFailures",
    "upgrade.remediation.remediateLastFailure",
    "upgrade.remediation.retries",
    "upgrade.remediation.strategy",
    "upgrade.serverSideApply",
    "upgrade.strategy.name",
    "upgrade.strategy.retryInterval",
    "upgrade.timeout",
    "values",
    "valuesFrom",
    "waitStrategy.name",
];

/// The paths of all fields below a schema.
fn fields(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    match schema.get("properties").and_then(Value::as_object) {
        Some(below) => {
            for (name, schema) in below {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                fields(schema, &path, found);
            }
        }
        None => {
            found.insert(path.to_owned());
        }
    }
}

#[test]
fn every_field_of_the_schema_is_either_used_or_refused() {
    let crds = crds::all();
    let (_, crd) = crds.iter().find(|(_, d)| d.spec.names.kind == "HelmRelease").unwrap();
    let crd = serde_json::to_value(crd).unwrap();
    let schema = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
    let mut found = BTreeSet::new();
    fields(crd.pointer(schema).unwrap(), "", &mut found);
    assert!(found.len() > 90, "{}", found.len());
    let known: Vec<&str> = USED.iter().copied().chain(REFUSED_ELSEWHERE).chain(DEAD).collect();
    spec_field_check::knows_every_field(
        "HelmRelease",
        known.iter().filter_map(|it| it.split('.').next()),
    );
    let is_below = |field: &str, known: &str| {
        field.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let forgotten: Vec<&String> =
        found.iter().filter(|field| !known.iter().any(|known| is_below(field, known))).collect();
    assert_eq!(forgotten, Vec::<&String>::new());
    let invented: Vec<&&str> =
        known.iter().filter(|known| !found.iter().any(|field| is_below(field, known))).collect();
    assert_eq!(invented, Vec::<&&str>::new());
}

#[test]
fn what_cannot_be_read_stalls_and_is_named() {
    let refusal = |more: &Value| {
        let settings = OperatorSettings::from_flags::<&str>(&[]).unwrap();
        let outcome = validated(&object(more), &settings).err().unwrap();
        assert!(matches!(outcome, RunOutcome::Stalled(..)), "{outcome:?}");
        (outcome.reason().as_str(), outcome.text().to_owned())
    };
    let (_, text) = refusal(&json!({"driftDetection": {"ignore": [{"paths": ["no/pointer"]}]}}));
    assert!(text.starts_with("spec.driftDetection.ignore: "), "{text}");
    for (field, more) in [
        ("spec.interval", json!({"interval": "5"})),
        ("spec.timeout", json!({"timeout": "x"})),
        ("spec.install.timeout", json!({"install": {"timeout": "1d"}})),
        ("spec.upgrade.timeout", json!({"upgrade": {"timeout": "1d"}})),
        ("spec.rollback.timeout", json!({"rollback": {"timeout": "1d"}})),
        ("spec.test.timeout", json!({"test": {"timeout": "1d"}})),
        ("spec.uninstall.timeout", json!({"uninstall": {"timeout": "1d"}})),
        (
            "spec.install.strategy.retryInterval",
            json!({"install": {"strategy": {"name": "RetryOnFailure", "retryInterval": "-1s"}}}),
        ),
        (
            "spec.upgrade.strategy.retryInterval",
            json!({"upgrade": {"strategy": {"name": "RetryOnFailure", "retryInterval": "-1s"}}}),
        ),
    ] {
        let (reason, text) = refusal(&more);
        assert_eq!(reason, "InvalidDuration", "{field}");
        assert!(
            text.starts_with(&format!("{field}: duration "))
                || text.starts_with(&format!("{field}: `")),
            "{text}"
        );
    }
}

#[test]
fn timeouts_fall_back_to_that_of_the_release_and_that_to_five_minutes() {
    let settings = OperatorSettings::from_flags::<&str>(&[]).unwrap();
    let timeouts = |more: &Value| timeouts(&spec(more)).unwrap();
    let retry = |more: &Value| validated(&object(more), &settings).unwrap().pace.retry;
    let actions = |timeouts: &HelmReleaseDurations| {
        [timeouts.install, timeouts.upgrade, timeouts.rollback, timeouts.test, timeouts.uninstall]
    };
    let default = timeouts(&json!({}));
    assert_eq!((default.interval, retry(&json!({}))), (10 * MINUTE, MINUTE));
    assert_eq!((default.timeout, actions(&default)), (5 * MINUTE, [5 * MINUTE; 5]));
    assert_eq!((default.install_retry, default.upgrade_retry), (5 * MINUTE, 5 * MINUTE));
    let more = json!({
        "interval": "20s",
        "timeout": "1h",
        "install": {"timeout": "1m"},
        "upgrade": {"strategy": {"name": "RetryOnFailure", "retryInterval": "2m"}},
        "uninstall": {"timeout": "3m"},
    });
    let given = timeouts(&more);
    assert_eq!((retry(&more), given.timeout), (Duration::from_secs(20), 60 * MINUTE));
    assert_eq!(actions(&given), [MINUTE, 60 * MINUTE, 60 * MINUTE, 60 * MINUTE, 3 * MINUTE]);
    assert_eq!((given.install_retry, given.upgrade_retry), (5 * MINUTE, 2 * MINUTE));
}

#[test]
fn a_spec_without_a_word_has_flux_defaults() {
    let desired = desired_of(&json!({}));
    assert_eq!((desired.owner.as_str(), desired.generation), ("uid", 3));
    assert_eq!(desired.spec.target, ReleaseTarget::of("web", "apps", "", "", ""));
    assert!(!desired.deleted && !desired.suspended);
    assert_eq!([&desired.chart_name, &desired.chart_version], ["c", "1.2.3"]);
    assert_eq!([&desired.app_version, &desired.oci_digest], ["9", "sha256:0"]);
    assert_eq!(desired.config_digest, "sha256:1");
    assert_eq!(
        [&desired.spec.post_renderers_digest, &desired.spec.common_metadata_digest],
        ["", ""]
    );
    assert_eq!((desired.spec.timeout, desired.spec.max_history), (5 * MINUTE, 5));
    let InstallSettings { strategy, remediation, replace, disable_hooks, wait, timeout } =
        desired.spec.install;
    assert_eq!((strategy, timeout), (FailureStrategy::RemediateOnFailure, 5 * MINUTE));
    assert_eq!((remediation.retries, remediation.remediate_last_failure), (0, None));
    assert_eq!((replace, disable_hooks, wait), (false, false, ReleaseWaitPolicy::ObjectsAndJobs));
    let upgrade = desired.spec.upgrade;
    assert_eq!(upgrade.strategy, FailureStrategy::RemediateOnFailure);
    assert_eq!(upgrade.remediation, RemediationSettings::default());
    assert_eq!(upgrade.wait, ReleaseWaitPolicy::ObjectsAndJobs);
    assert!(!upgrade.cleanup_on_fail && !upgrade.in_place_chart_name_change);
    assert!(!desired.spec.rollback.cleanup_on_fail && !desired.spec.rollback.disable_hooks);
    assert!(!desired.spec.test.enable && desired.spec.test.filters.is_empty());
    assert!(!desired.spec.uninstall.keep_history && !desired.spec.uninstall.disable_wait);
    assert_eq!(desired.spec.uninstall.propagation, UninstallPropagation::Background);
    assert_eq!(desired.spec.drift, DriftMode::Disabled);
    assert_eq!(requests(&object(&json!({}))), AnnotationRequests::default());
}

#[test]
fn an_installation_is_as_its_fields_say() {
    let desired = desired_of(&json!({"install": {
        "replace": true, "disableHooks": true, "disableWaitForJobs": true,
        "strategy": {"name": "RetryOnFailure", "retryInterval": "7m"},
        "remediation": {"retries": -1, "ignoreTestFailures": true, "remediateLastFailure": true},
    }}));
    let install = desired.spec.install;
    assert_eq!(install.strategy, FailureStrategy::RetryOnFailure(7 * MINUTE));
    assert!(install.replace && install.disable_hooks);
    assert_eq!(install.wait, ReleaseWaitPolicy::Objects);
    let wanted = RemediationSettings {
        retries: -1,
        ignore_test_failures: Some(true),
        remediate_last_failure: Some(true),
        strategy: Remedy::Uninstall,
    };
    assert_eq!(install.remediation, wanted);
    assert_eq!(desired.spec.upgrade.strategy, FailureStrategy::RemediateOnFailure);
}

#[test]
fn an_upgrade_and_a_rollback_are_as_their_fields_say() {
    let desired = desired_of(&json!({
        "upgrade": {
            "disableHooks": true, "disableWait": true, "disableWaitForJobs": true, "cleanupOnFail": true,
            "chartNameChangeStrategy": "InPlaceUpdate",
            "strategy": {"name": "RetryOnFailure"},
            "remediation": {"retries": 2, "remediateLastFailure": false, "strategy": "uninstall"},
        },
        "rollback": {"disableHooks": true, "disableWait": true, "cleanupOnFail": true},
    }));
    let upgrade = desired.spec.upgrade;
    assert_eq!(upgrade.strategy, FailureStrategy::RetryOnFailure(5 * MINUTE));
    assert!(upgrade.disable_hooks && upgrade.cleanup_on_fail && upgrade.in_place_chart_name_change);
    assert_eq!(upgrade.wait, ReleaseWaitPolicy::Nothing);
    let wanted = RemediationSettings {
        retries: 2,
        ignore_test_failures: None,
        remediate_last_failure: Some(false),
        strategy: Remedy::Uninstall,
    };
    assert_eq!(upgrade.remediation, wanted);
    let rollback = desired.spec.rollback;
    assert!(rollback.disable_hooks && rollback.cleanup_on_fail);
    assert_eq!(rollback.wait, ReleaseWaitPolicy::Nothing);
}

#[test]
fn tests_removal_drift_and_history_are_as_their_fields_say() {
    let desired = desired_of(&json!({
        "test": {"enable": true, "ignoreFailures": true,
            "filters": [{"name": "a"}, {"name": "b", "exclude": true}]},
        "uninstall": {"disableHooks": true, "keepHistory": true, "disableWait": true,
            "deletionPropagation": "orphan"},
        "driftDetection": {"mode": "warn"},
        "maxHistory": 0,
        "releaseName": "r", "targetNamespace": "prod", "storageNamespace": "s",
    }));
    assert!(desired.spec.test.enable && desired.spec.test.ignore_failures);
    let filter = |name: &str, exclude| TestFilter { name: name.to_owned(), exclude };
    assert_eq!(desired.spec.test.filters, [filter("a", false), filter("b", true)]);
    let uninstall = desired.spec.uninstall;
    assert!(uninstall.disable_hooks && uninstall.keep_history && uninstall.disable_wait);
    assert_eq!(uninstall.propagation, UninstallPropagation::Orphan);
    assert_eq!((desired.spec.drift, desired.spec.max_history), (DriftMode::Warn, 0));
    assert_eq!(desired.spec.target, ReleaseTarget::of("web", "apps", "r", "prod", "s"));
    assert_eq!(desired_of(&json!({"maxHistory": -1})).spec.max_history, 0);
    let foreground = json!({"uninstall": {"deletionPropagation": "foreground"}});
    assert_eq!(
        desired_of(&foreground).spec.uninstall.propagation,
        UninstallPropagation::Foreground
    );
    let enabled = json!({"driftDetection": {"mode": "enabled"}});
    assert_eq!(desired_of(&enabled).spec.drift, DriftMode::Enabled);
}

#[test]
fn a_gate_makes_retries_the_default_of_actions_without_a_strategy() {
    let flags = ["--feature-gates=DefaultToRetryOnFailure=true"];
    let more = json!({"install": {"remediation": {"retries": 3}},
        "upgrade": {"strategy": {"name": "RemediateOnFailure"}}});
    let desired = desired_with_flags(&object(&more), &flags);
    assert_eq!(desired.spec.install.strategy, FailureStrategy::RetryOnFailure(5 * MINUTE));
    assert_eq!(desired.spec.upgrade.strategy, FailureStrategy::RemediateOnFailure);
}

#[test]
fn annotations_ask_and_deletion_is_seen() {
    let mut object = object(&json!({}));
    object.metadata.annotations = Some(
        [(REQUESTED_AT, "1"), (FORCE_AT, "2"), (RESET_AT, ""), (ROLLBACK, "5->3")]
            .map(|(key, at)| (key.to_owned(), at.to_owned()))
            .into(),
    );
    object.metadata.deletion_timestamp = Some(crds::Time(jiff::Timestamp::UNIX_EPOCH));
    let at = |text: &str| Some(text.to_owned());
    let rollback = Some(reconcile::ReleaseRollback { from: 5, to: 3 });
    let asked = AnnotationRequests {
        reconcile: at("1"),
        force: at("2"),
        rollback,
        ..AnnotationRequests::default()
    };
    assert_eq!(requests(&object), asked);
    assert!(desired_with_flags(&object, &[]).deleted);
}

#[test]
fn the_next_failure_waits_twice_as_long_up_to_a_limit() {
    let after = |failures: i64| {
        let mut object = object(&json!({}));
        object.status = Some(serde_json::from_value(json!({ "failures": failures })).unwrap());
        desired_with_flags(&object, &[]).retry.as_millis()
    };
    assert_eq!([0, 1, 2, 3].map(after), [1000, 1500, 3000, 6000]);
    assert_eq!([100, i64::MAX].map(after), [900_000; 2]);
}

#[test]
fn the_interval_is_spread_and_never_zero() {
    let interval = |uid: &str, given: &str| {
        let mut object = object(&json!({ "interval": given }));
        object.metadata.uid = Some(uid.to_owned());
        desired_with_flags(&object, &[]).interval
    };
    let spread: BTreeSet<Duration> = ["a", "b", "c"].map(|uid| interval(uid, "100m")).into();
    assert_eq!(spread.len(), 3);
    assert!(spread.iter().all(|it| (95 * MINUTE..=105 * MINUTE).contains(it)), "{spread:?}");
    assert!(interval("a", "0s") > Duration::from_millis(900));
}

/// The digests are those of Go's `encoding/json` over structs with the fields of `api/v2` in their order.
#[test]
fn the_digests_of_the_status_are_those_of_go() {
    let renderers = r#"[{"kustomize":{"images":[{"name":"web","newTag":"v2","newName":"reg/web","digest":""},{"digest":"sha256:1","name":"db"}],"patches":[{"target":{"namespace":"shop","name":"web","version":"v1","kind":"Deployment","group":"apps","labelSelector":"a=b","annotationSelector":"c"},"patch":"- op: add\n  path: /a\n  value: <b> & \u2028\"\\ \t\u0001\b\f é\n"},{"patch":"a","target":{}}]}},{"kustomize":{}},{}]"#;
    let renderers: Value = serde_json::from_str(renderers).unwrap();
    let of = |more: &Value| {
        let desired = desired_of(more);
        (desired.spec.post_renderers_digest, desired.spec.common_metadata_digest)
    };
    assert_eq!(
        of(&json!({ "postRenderers": renderers })).0,
        "sha256:fc3c4ea437d62de175530997d2b23c513b170f1d013c73b114b56676eaad0d79"
    );
    for (metadata, digest) in [
        (
            json!({"labels": {"b": "<1>", "a": "2", "B": "3"}, "annotations": {"x/y": "a & b"}}),
            "sha256:1048d9b7751b40db35ff994da7b927c228b262c3493803b1ba1340301d7e1bb0",
        ),
        (json!({}), "sha256:ca3d163bab055381827226140568f3bef7eaac187cebd76878e0b63e9e442356"),
        (
            json!({"labels": {"a": "b"}}),
            "sha256:c7743adac9e28d2fb8f3013c0daf58ec5b66d7fd9015933d55334ba4f5e4dce5",
        ),
    ] {
        assert_eq!(of(&json!({ "commonMetadata": metadata })).1, digest);
    }
    assert_eq!(of(&json!({"postRenderers": []})).0, "");
}

#[test]
fn inputs_follow_all_from_which_a_release_is_rendered_and_nothing_else() {
    let of = |more: &Value, change: fn(&mut ReleaseInputs)| {
        let mut parts = parts();
        change(&mut parts);
        desired(&object(more), parts, &[]).inputs
    };
    let same = of(&json!({}), |_| ());
    // Journals have it, so another one would interrupt what is under way.
    assert_eq!(same, "sha256:9c6749d3f0363e3e10b6cba15002eb721ae724a9ad511c8f94d38948b1a2bbb8");
    let mut all = BTreeSet::from([same.clone()]);
    let changes: [fn(&mut ReleaseInputs); 4] = [
        |parts| parts.chart_name.push('x'),
        |parts| parts.chart_version.push('x'),
        |parts| parts.artifact_digest.push('x'),
        |parts| parts.config_digest.push('x'),
    ];
    all.extend(changes.map(|change| of(&json!({}), change)));
    let specs = [
        json!({"postRenderers": [{"kustomize": {}}]}),
        json!({"commonMetadata": {"labels": {"a": "b"}}}),
        json!({"postRenderStrategy": "nohooks"}),
        json!({"upgrade": {"preserveValues": true}}),
        json!({"targetNamespace": "prod"}),
        json!({"releaseName": "other"}),
    ];
    all.extend(specs.iter().map(|more| of(more, |_| ())));
    assert_eq!(all.len(), 1 + changes.len() + specs.len());
    let others =
        json!({"interval": "1m", "timeout": "1m", "test": {"enable": true}, "suspend": true});
    assert_eq!(of(&others, |_| ()), same);
    let mut later = object(&json!({}));
    later.metadata.generation = Some(99);
    assert_eq!(desired_with_flags(&later, &[]).inputs, same);
}
