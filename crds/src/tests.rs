//! Objects survive reading and writing, whichever client wrote them and when.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube_core::{CustomResourceExt, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::helm::{CrdsPolicy, HelmRelease, ReleaseAction};
use crate::helmfile::{Helmfile, mumoshu_helmfile};
use crate::image::{ImagePolicy, ImageRef, ImageRepository, ImageUpdateAutomation};
use crate::kustomize::{DeletionPolicy, Kustomization, KustomizationSourceKind};
use crate::notification::{Alert, Provider, Receiver};
use crate::source::{
    Bucket, ExternalArtifact, GitRepository, GitVerificationMode, HelmChart, HelmRepository,
    OCIRepository,
};
use crate::source_extensions::{ArtifactGenerator, RECONCILE_ANNOTATION};
use crate::windlass_release::{
    AuditCauseKind, ChangeSet, ClusterStagedRollout, Freeze, FreezeBypass, Plan, PlanPolicy,
    Quarantine, ReleaseAudit, StagedRollout,
};
use crate::windlass_source::HTTPArchive;
use crate::{ArtifactSource, GoDuration, ReconciledObject};

fn parse<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("the object parses")
}

/// Reads an object and writes it again.
fn round_trip<K: DeserializeOwned + Serialize>(value: &Value) -> Value {
    serde_json::to_value(parse::<K>(value.clone())).expect("the object can be written")
}

#[test]
fn every_kind_parses_without_spec_and_with_fields_of_the_future() {
    for (file, crd) in crate::all() {
        let group = &crd.spec.group;
        let kind = &crd.spec.names.kind;
        for version in &crd.spec.versions {
            let written = |more: Value| {
                let mut object = json!({
                    "apiVersion": format!("{group}/{}", version.name),
                    "kind": kind,
                    "metadata": { "name": "a", "namespace": "b" },
                });
                let fields = more.as_object().cloned().unwrap_or_default();
                object.as_object_mut().expect("an object").extend(fields);
                let read = crate::rewritten(&object).expect("a kind of ours");
                let read = read.unwrap_or_else(|error| panic!("{file}: {error}"));
                for key in ["apiVersion", "kind", "metadata"] {
                    assert_eq!(read[key], object[key], "{file}");
                }
                read
            };
            assert_eq!(written(json!({})).get("status"), None, "{file}");
            let read = written(json!({
                "spec": { "fieldOfTheFuture": 1 },
                "status": {
                    "fieldOfTheFuture": { "deep": [1, 2] },
                    "conditions": [{
                        "type": "Ready",
                        "status": "True",
                        "reason": "Succeeded",
                        "message": "",
                        "lastTransitionTime": "2026-01-02T03:04:05Z",
                        "observedGeneration": 3,
                    }],
                },
            }));
            assert_eq!(read["spec"].get("fieldOfTheFuture"), None, "{file}");
            assert_eq!(read["status"].get("fieldOfTheFuture"), None, "{file}");
            let schema = serde_json::to_value(&version.schema).expect("it is JSON");
            let status = &schema["openAPIV3Schema"]["properties"]["status"];
            if status["properties"]["conditions"].is_object() {
                assert_eq!(read["status"]["conditions"][0]["observedGeneration"], 3, "{file}");
            }
        }
    }
}

#[test]
fn an_audit_parses_without_spec_and_keeps_what_it_says() {
    let bare = parse::<ReleaseAudit>(json!({ "metadata": { "name": "a", "namespace": "b" } }));
    assert_eq!(bare.name_any(), "a");
    let full = json!({
        "apiVersion": "release.windlass.dev/v1alpha1",
        "kind": "ReleaseAudit",
        "metadata": { "name": "a" },
        "spec": {
            "subject": { "group": "g", "kind": "HelmRelease", "name": "web", "uid": "u", "generation": 2,
                "release": { "name": "web", "namespace": "apps" } },
            "operation": "Upgrade",
            "id": "web.v2.0123456789ab",
            "causes": [{ "type": "Values", "object": "Secret/apps/values", "version": "7" }],
            "from": { "revision": "1", "chart": "web", "chartVersion": "1.0.0" },
            "to": { "revision": "2", "chart": "web", "chartVersion": "1.1.0", "valuesDigest": "sha256:0" },
            "changes": { "added": 0, "changed": 1, "removed": 0, "partial": true, "omitted": 1,
                "objects": [{ "change": "Changed", "kind": "ConfigMap", "name": "a", "fields": ["/data/a"] }] },
            "steps": [{ "name": "Apply", "started": "2026-01-02T03:04:05Z", "failed": true }],
            "outcome": "Failed",
            "message": "rejected",
            "started": "2026-01-02T03:04:05Z",
            "ended": "2026-01-02T03:04:06Z",
            "duration": "1s",
        },
    });
    assert_eq!(round_trip::<ReleaseAudit>(&full), full);
    let audit: ReleaseAudit = parse(full);
    assert_eq!(audit.spec.causes[0].type_, AuditCauseKind::Values);
    let crd = ReleaseAudit::crd();
    let subresources = crd.spec.versions[0].subresources.as_ref();
    assert!(subresources.is_some_and(|it| it.status.is_none()), "an audit has no status");
    assert_eq!(crd.spec.names.categories, Some(vec!["fluxcd-audits".to_owned()]));
}

#[test]
fn a_plan_and_its_policy_keep_what_they_say() {
    let plan = json!({
        "apiVersion": "release.windlass.dev/v1alpha1",
        "kind": "Plan",
        "metadata": { "name": "a" },
        "spec": {
            "subject": { "group": "g", "kind": "Kustomization", "name": "apps", "uid": "u" },
            "revision": "main@sha1:0",
            "digest": "sha256:0",
            "count": 1,
            "following": 30,
            "objects": ["apps_web_helm.toolkit.fluxcd.io_HelmRelease"],
            "rules": ["more than 10 objects"],
            "budget": { "maxObjects": 10, "maxPercent": 30, "protectedKinds": [{ "kind": "Namespace" }] },
            "policies": ["production"],
            "approvals": 2,
            "changes": {
                "digest": "hmac-sha256:0", "added": 1, "changed": 1, "removed": 1, "recreated": 0,
                "unverified": 1, "omitted": 1, "hooks": ["pre-upgrade: Job/migrate"], "tests": ["Pod/test"],
                "objects": [
                    { "id": "apps_web_apps_Deployment", "action": "Changed", "fields": ["/spec/replicas"] },
                    { "id": "apps_new__ConfigMap", "action": "Added", "unverified": true },
                ],
            },
            "expires": "2026-01-02T03:04:05Z",
        },
        "status": {
            "approvals": [{ "user": "alice", "groups": ["ops"], "at": "2026-01-02T03:04:05Z", "comment": "planned" }],
            "rejection": { "user": "carol", "at": "2026-01-02T03:04:05Z", "comment": "still in use" },
            "pullRequest": { "number": 7, "url": "https://a/pulls/7", "headCommit": "1", "mergeCommit": "2",
                "reviewers": ["bob"], "at": "2026-01-02T03:04:05Z" },
            "conditions": [{ "type": "PullRequestApproved", "status": "True", "reason": "Reviewed", "message": "",
                "lastTransitionTime": "2026-01-02T03:04:05Z" }],
        },
    });
    assert_eq!(round_trip::<Plan>(&plan), plan);
    let policy = json!({
        "apiVersion": "release.windlass.dev/v1alpha1",
        "kind": "PlanPolicy",
        "metadata": { "name": "a" },
        "spec": {
            "namespaceSelector": { "matchLabels": { "environment": "test" } },
            "mode": "ApproveDestructive",
            "approvals": 2,
            "deletionBudget": { "enabled": false, "maxObjects": 0, "maxPercent": 100,
                "protectedKinds": [{ "group": "apps", "kind": "StatefulSet" }] },
            "pullRequestApproval": { "provider": "gitea", "address": "https://git.example.com",
                "secretRef": { "name": "forge" }, "repositories": ["acme/fleet"], "reviewers": ["bob"], "minimumReviews": 2 },
        },
    });
    assert_eq!(round_trip::<PlanPolicy>(&policy), policy);
    let subresources = PlanPolicy::crd().spec.versions[0].subresources.clone();
    assert!(subresources.is_some_and(|it| it.status.is_none()), "a policy has no status");
    assert_eq!(Plan::crd().spec.names.categories, Some(vec!["fluxcd-gates".to_owned()]));
}

#[test]
fn a_freeze_and_its_bypass_keep_what_they_say() {
    let freeze = json!({
        "apiVersion": "release.windlass.dev/v1alpha1",
        "kind": "Freeze",
        "metadata": { "name": "a" },
        "spec": {
            "reason": "the sales week",
            "namespaceSelector": { "matchLabels": { "environment": "production" } },
            "kinds": ["Kustomization", "ImageUpdateAutomation"],
            "schedules": [{ "cron": "0 18 * * 5", "duration": "62h", "timeZone": "Europe/Berlin" }],
            "periods": [{ "from": "2026-12-24", "to": "2026-12-26T12:00:00Z" }],
            "calendar": { "configMapRef": { "name": "freezes", "namespace": "platform", "key": "sales.ics" },
                "timeZone": "Europe/Berlin" },
            "driftCorrection": "Deny",
        },
        "status": {
            "observedGeneration": 1,
            "conditions": [{ "type": "Ready", "status": "True", "reason": "Succeeded", "message": "",
                "lastTransitionTime": "2026-11-30T09:00:00Z" }],
            "calendar": {
                "source": { "configMapRef": { "name": "freezes", "namespace": "platform", "key": "sales.ics" } },
                "text": "BEGIN:VCALENDAR\nEND:VCALENDAR\n",
            },
        },
    });
    assert_eq!(round_trip::<Freeze>(&freeze), freeze);
    let bypass = json!({
        "apiVersion": "release.windlass.dev/v1alpha1",
        "kind": "FreezeBypass",
        "metadata": { "name": "a", "namespace": "b" },
        "spec": {
            "freeze": { "name": "a", "uid": "u" },
            "subject": { "group": "kustomize.toolkit.fluxcd.io", "kind": "Kustomization", "name": "app",
                "uid": "v", "generation": 3 },
            "revision": "main@sha1:1",
            "reason": "a security fix",
            "user": "alice",
            "expires": "2026-11-30T10:00:00Z",
        },
        "status": { "usedAt": "2026-11-30T09:00:00Z", "endedAt": "2026-11-30T09:01:00Z" },
    });
    assert_eq!(round_trip::<FreezeBypass>(&bypass), bypass);
}

#[test]
fn a_quarantine_keeps_what_it_says() {
    let quarantine = json!({
        "apiVersion": "release.windlass.dev/v1alpha1",
        "kind": "Quarantine",
        "metadata": { "name": "a", "namespace": "b" },
        "spec": {
            "subject": { "group": "kustomize.toolkit.fluxcd.io", "kind": "Kustomization", "name": "app",
                "uid": "v" },
            "result": { "digest": "sha256:2", "revision": "main@sha1:2" },
            "reason": "HealthCheckFailed",
            "message": "health check failed",
            "action": "RollBack",
            "causes": ["spec"],
            "lastGood": { "digest": "sha256:1", "revision": "main@sha1:1", "artifactDigest": "sha256:3",
                "artifactPath": "gitrepository/b/app/1.tar.gz" },
        },
        "status": { "repeated": 1, "lift": { "user": "alice", "at": "2026-11-30T09:00:00Z", "reason": "fixed" } },
    });
    assert_eq!(round_trip::<Quarantine>(&quarantine), quarantine);
}

#[test]
fn a_change_set_keeps_what_it_says() {
    let change = json!({
        "apiVersion": "release.windlass.dev/v1alpha1",
        "kind": "ChangeSet",
        "metadata": { "name": "a", "namespace": "b" },
        "spec": {
            "source": { "kind": "GitRepository", "name": "fleet", "uid": "u" },
            "revision": "main@sha1:2",
            "digest": "sha256:2",
            "path": "gitrepository/b/fleet/2.tar.gz",
            "sequence": 17,
            "commit": { "subject": "Scale the shop", "author": "Alice", "time": "2026-11-30T09:00:00Z" },
        },
        "status": {
            "verdict": "Failed",
            "message": "1 of 2 members failed: ks/shop",
            "members": ["Failed ks/shop", "Succeeded > hr/web"],
            "omitted": 1,
            "counts": { "members": 2, "succeeded": 1, "failed": 1 },
            "otherNamespaces": { "members": 1, "waiting": 1 },
            "unchanged": 38,
            "closedAt": "2026-11-30T09:01:00Z",
            "progressedAt": "2026-11-30T09:02:00Z",
            "rollback": { "user": "alice", "at": "2026-11-30T09:03:00Z", "reason": "sales stopped" },
            "rolledBackAt": "2026-11-30T09:04:00Z",
            "notRolledBack": ["hf/db: a Helmfile is not rolled back"],
        },
    });
    assert_eq!(round_trip::<ChangeSet>(&change), change);
}

#[test]
fn a_staged_rollout_keeps_what_it_says() {
    let waves = json!([
        { "name": "canary", "values": ["canary"], "maxUnavailable": "1", "soak": "10m" },
        { "name": "rest" },
    ]);
    let wave = json!({ "name": "canary", "members": 2, "updated": 1, "skipped": 1, "updatedSince": "2026-11-30T09:00:00Z" });
    let rollout = json!({
        "apiVersion": "release.windlass.dev/v1alpha1",
        "kind": "StagedRollout",
        "metadata": { "name": "a", "namespace": "b" },
        "spec": {
            "selector": { "matchLabels": { "team": "shop" } },
            "waveLabel": "stage",
            "waves": waves,
            "offlineClusters": { "policy": "Skip", "maxSkipped": 2, "after": "10m" },
        },
        "status": {
            "observedGeneration": 1,
            "members": 2,
            "sources": [{
                "kind": "GitRepository", "namespace": "b", "name": "fleet", "revision": "main@sha1:2",
                "digest": "sha256:2", "wave": "rest", "waves": [wave],
            }],
        },
    });
    assert_eq!(round_trip::<StagedRollout>(&rollout), rollout);
    let rollout = json!({
        "apiVersion": "release.windlass.dev/v1alpha1",
        "kind": "ClusterStagedRollout",
        "metadata": { "name": "a" },
        "spec": {
            "namespaceSelector": {},
            "selector": {},
            "waves": [{ "name": "first", "percent": 10 }, { "name": "rest" }],
        },
    });
    assert_eq!(round_trip::<ClusterStagedRollout>(&rollout), rollout);
}

#[test]
fn a_minimal_object_of_each_kind_keeps_what_it_says() {
    let interval = "5m";
    for (written, spec) in [
        minimal::<GitRepository>(json!({ "url": "https://a/b", "interval": interval })),
        minimal::<OCIRepository>(json!({ "url": "oci://a/b", "interval": interval })),
        minimal::<HelmRepository>(json!({ "url": "https://a" })),
        minimal::<HelmChart>(json!({
            "chart": "a",
            "interval": interval,
            "sourceRef": { "kind": "HelmRepository", "name": "b" },
        })),
        minimal::<Bucket>(json!({ "bucketName": "a", "endpoint": "b", "interval": interval })),
        minimal::<ImageRepository>(json!({ "image": "a/b", "interval": interval })),
        minimal::<ImagePolicy>(json!({
            "imageRepositoryRef": { "name": "a" },
            "policy": { "semver": { "range": "*" } },
        })),
        minimal::<ImageUpdateAutomation>(json!({
            "interval": interval,
            "sourceRef": { "kind": "GitRepository", "name": "a" },
            "git": { "commit": { "author": { "email": "a@example.com" } } },
        })),
        minimal::<HTTPArchive>(json!({ "url": "https://a/b.tgz", "interval": interval })),
        minimal::<Helmfile>(json!({
            "interval": interval,
            "sourceRef": { "kind": "GitRepository", "name": "a" },
        })),
        minimal::<Alert>(json!({
            "providerRef": { "name": "a" },
            "eventSources": [{ "kind": "GitRepository", "name": "*" }],
        })),
        minimal::<Provider>(json!({ "type": "slack" })),
        minimal::<Receiver>(json!({
            "type": "generic",
            "resources": [{ "kind": "GitRepository", "name": "a" }],
        })),
        minimal::<mumoshu_helmfile::Helmfile>(json!({ "source": "git::https://a/b@c" })),
        minimal::<ExternalArtifact>(json!({ "sourceRef": { "kind": "Any", "name": "a" } })),
        minimal::<ArtifactGenerator>(json!({
            "sources": [{ "alias": "a", "kind": "GitRepository", "name": "b" }],
            "artifacts": [{ "name": "c", "copy": [{ "from": "@a/**", "to": "@artifact/" }] }],
        })),
        minimal::<HelmRelease>(json!({
            "chartRef": { "kind": "OCIRepository", "name": "a" },
            "interval": interval,
        })),
        // `force` has a default in the schema, so it is always written.
        minimal::<Kustomization>(json!({
            "interval": interval,
            "prune": false,
            "force": false,
            "sourceRef": { "kind": "Bucket", "name": "a" },
        })),
    ] {
        assert_eq!(written, spec);
    }
}

fn minimal<K: DeserializeOwned + Serialize>(spec: Value) -> (Value, Value) {
    let mut written = round_trip::<K>(&json!({ "metadata": { "name": "a" }, "spec": spec }));
    (written["spec"].take(), spec)
}

/// A Kustomization that sets every field.
fn full_kustomization() -> Value {
    serde_json::from_str(include_str!("tests/kustomization.json")).expect("the file is JSON")
}

#[test]
fn a_full_kustomization_keeps_every_value() {
    let full = full_kustomization();
    assert_eq!(round_trip::<Kustomization>(&full), full);
}

#[test]
fn the_full_kustomization_sets_every_field_of_the_schema() {
    let schema =
        serde_json::to_value(&Kustomization::crd().spec.versions[0].schema).expect("it is JSON");
    let full = full_kustomization();
    for part in ["spec", "status"] {
        let properties = &schema["openAPIV3Schema"]["properties"][part]["properties"];
        for name in properties.as_object().expect("there are properties").keys() {
            assert!(full[part].get(name).is_some(), "the sample does not set {part}.{name}");
        }
    }
}

#[test]
fn a_full_helm_release_keeps_every_value() {
    let full = json!({
        "apiVersion": "helm.toolkit.fluxcd.io/v2",
        "kind": "HelmRelease",
        "metadata": { "name": "app" },
        "spec": {
            "chart": {
                "metadata": { "labels": { "a": "b" } },
                "spec": {
                    "chart": "app",
                    "version": "1.x",
                    "sourceRef": { "kind": "HelmRepository", "name": "r", "namespace": "n" },
                    "interval": "1m",
                    "reconcileStrategy": "Revision",
                    "valuesFiles": ["values.yaml"],
                    "ignoreMissingValuesFiles": true,
                    "verify": { "provider": "notation", "secretRef": { "name": "keys" } },
                },
            },
            "interval": "10m",
            "maxHistory": 0,
            "persistentClient": false,
            "driftDetection": { "mode": "warn", "ignore": [{ "paths": ["/data"] }] },
            "install": {
                "crds": "CreateReplace",
                "disableOpenAPIValidation": true,
                "skipCRDs": true,
                "serverSideApply": false,
                "remediation": { "retries": -1, "ignoreTestFailures": false },
                "strategy": { "name": "RetryOnFailure", "retryInterval": "30s" },
            },
            "upgrade": { "remediation": { "strategy": "uninstall" }, "serverSideApply": "auto" },
            "test": { "enable": true, "filters": [{ "name": "smoke", "exclude": true }] },
            "uninstall": { "deletionPropagation": "orphan" },
            "values": { "n": 1.5, "big": 9_007_199_254_740_993_i64, "nothing": null, "l": [] },
            "valuesFrom": [{ "kind": "ConfigMap", "name": "c", "targetPath": "a.b[0]" }],
            "waitStrategy": { "name": "legacy" },
            "postRenderStrategy": "nohooks",
        },
        "status": {
            "observedGeneration": -1,
            "failures": 2,
            "lastAttemptedReleaseAction": "upgrade",
            "lastAttemptedReleaseActionDuration": "5.1s",
            "history": [{
                "apiVersion": "v2",
                "digest": "sha256:00",
                "name": "app",
                "namespace": "n",
                "version": 3,
                "status": "deployed",
                "action": "rollback",
                "chartName": "app",
                "chartVersion": "1.2.3",
                "configDigest": "sha256:11",
                "firstDeployed": "2026-01-02T03:04:05Z",
                "lastDeployed": "2026-01-02T03:05:05Z",
                "testHooks": { "smoke": { "lastStarted": "2026-01-02T03:06:05Z", "phase": "Succeeded" } },
            }],
        },
    });
    assert_eq!(round_trip::<HelmRelease>(&full), full);

    let release: HelmRelease = parse(full);
    let install = release.spec.install.expect("it is set");
    assert_eq!(install.crds, Some(CrdsPolicy::CreateReplace));
    assert_eq!(install.remediation.expect("it is set").retries, -1);
    let status = release.status.expect("it is set");
    assert_eq!(status.last_attempted_release_action, Some(ReleaseAction::Upgrade));
    assert_eq!(status.failures, 2);
}

#[test]
fn no_tests_run_yet_differs_from_no_tests_to_run() {
    let snapshot = |hooks: Value| {
        let mut snapshot = json!({
            "digest": "", "name": "", "namespace": "", "version": 1, "status": "",
            "chartName": "", "chartVersion": "", "configDigest": "",
            "firstDeployed": "2026-01-02T03:04:05Z", "lastDeployed": "2026-01-02T03:04:05Z",
        });
        if !hooks.is_null() {
            snapshot["testHooks"] = hooks;
        }
        parse::<crate::helm::Snapshot>(snapshot).test_hooks
    };
    assert_eq!(snapshot(Value::Null), None);
    assert_eq!(snapshot(json!({})), Some([].into()));
}

#[test]
fn an_empty_text_means_that_there_is_none() {
    let written = round_trip::<Kustomization>(&json!({
        "metadata": {},
        "spec": {
            "path": "",
            "interval": "1m",
            "prune": true,
            "sourceRef": { "kind": "GitRepository", "name": "a", "namespace": "" },
        },
    }));
    assert_eq!(written["spec"].get("path"), None);
    assert_eq!(written["spec"]["sourceRef"].get("namespace"), None);
}

#[test]
fn an_annotation_suspends_an_artifact_generator() {
    let is_suspended = |value: &str| {
        let annotations = json!({ RECONCILE_ANNOTATION: value });
        let metadata = json!({ "name": "a", "annotations": annotations });
        parse::<ArtifactGenerator>(json!({ "metadata": metadata })).is_suspended()
    };
    assert!(is_suspended("disabled") && is_suspended("Disabled"));
    assert!(!is_suspended("enabled") && !is_suspended(""));
    assert_eq!(ArtifactGenerator::FINALIZER, "source.extensions.fluxcd.io/finalizer");
    assert_eq!(Bucket::FINALIZER, "finalizers.fluxcd.io");
}

#[test]
fn an_empty_ignore_differs_from_none() {
    let git: GitRepository = parse(json!({ "spec": { "ignore": "" } }));
    assert_eq!(git.spec.ignore.as_deref(), Some(""));
    let git: GitRepository = parse(json!({ "spec": {} }));
    assert_eq!(git.spec.ignore, None);
}

#[test]
fn an_artifact_from_before_digests_parses() {
    let git: GitRepository = parse(json!({
        "status": { "artifact": {
            "checksum": "00",
            "lastUpdateTime": "2022-01-02T03:04:05Z",
            "path": "gitrepository/a/b/c.tar.gz",
            "revision": "main/00",
            "url": "http://source-controller/c.tar.gz",
        } },
    }));
    let artifact = git.artifact().expect("there is one");
    assert_eq!(artifact.digest, "");
    assert_eq!(artifact.revision, "main/00");
}

#[test]
fn a_word_outside_of_an_enumeration_is_named_in_the_error() {
    let error = serde_json::from_value::<Kustomization>(json!({
        "spec": { "sourceRef": { "kind": "SvnRepository", "name": "a" } },
    }))
    .expect_err("the kind does not exist");
    assert!(error.to_string().contains("unknown variant `SvnRepository`"), "{error}");
}

#[test]
fn times_are_written_with_whole_seconds() {
    let mut kustomization = Kustomization::default();
    let now = "2026-01-02T03:04:05.987654Z".parse().expect("it is a time");
    kustomization.metadata =
        ObjectMeta { creation_timestamp: Some(Time(now)), ..ObjectMeta::default() };
    let written = serde_json::to_value(&kustomization).expect("the object can be written");
    assert_eq!(written["metadata"]["creationTimestamp"], "2026-01-02T03:04:05Z");
}

#[test]
fn the_parts_that_kinds_share_are_read_from_any_of_them() {
    let object: Kustomization = parse(full_kustomization());
    assert!(object.is_suspended());
    assert_eq!(object.observed_generation(), Some(7));
    assert_eq!(object.last_handled_reconcile_at(), Some("2026-01-02T03:04:05.123456789Z"));
    assert_eq!(object.condition("Ready").map(|ready| ready.reason.as_str()), Some("BuildFailed"));
    assert_eq!(object.condition("Stalled"), None);

    let fresh = Kustomization::new("a", Default::default());
    assert!(!fresh.is_suspended());
    assert_eq!(fresh.name_any(), "a");
    assert_eq!(fresh.conditions(), []);
    assert_eq!(fresh.observed_generation(), None);
}

#[test]
fn defaults_of_words_are_those_of_flux() {
    assert_eq!(GitVerificationMode::default().as_str(), "HEAD");
    assert_eq!(DeletionPolicy::default().to_string(), "MirrorPrune");
    assert_eq!(CrdsPolicy::default().as_str(), "Create");
    assert_eq!(KustomizationSourceKind::OCIRepository.as_str(), "OCIRepository");
}

#[test]
fn a_version_of_an_image_is_shown_as_it_is_pulled() {
    let version = parse::<ImageRef>(json!({ "name": "r.io/a", "tag": "v1", "digest": "" }));
    assert_eq!(version.to_string(), "r.io/a:v1");
    let version = ImageRef { digest: Some("sha256:00".to_owned()), ..version };
    assert_eq!(version.to_string(), "r.io/a:v1@sha256:00");
}

#[test]
fn a_duration_is_kept_as_it_was_written() {
    for text in ["90m", "1h30m0s", "", "-5s", "soon"] {
        let duration: GoDuration = parse(json!(text));
        assert_eq!(duration.as_str(), text);
        assert_eq!(serde_json::to_value(&duration).expect("it is text"), json!(text));
    }
}
