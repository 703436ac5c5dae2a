//! The rules read, and one object of our own for each pattern of them.

use serde_json::{Value, json};

use super::*;

fn object(kind: &str, rest: &Value) -> Object {
    let (api_version, kind) = kind.rsplit_once('/').unwrap();
    let mut value = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "it"}});
    for (field, content) in rest.as_object().unwrap() {
        match field.as_str() {
            "metadata" => {
                let metadata = value["metadata"].as_object_mut().unwrap();
                metadata.extend(content.as_object().unwrap().clone());
            }
            field => value[field] = content.clone(),
        }
    }
    Object::new(value).unwrap()
}

fn judged(kind: &str, rest: &Value) -> Health {
    HealthLibrary::builtin().assess(&object(kind, rest)).unwrap()
}

fn state(kind: &str, status: &Value) -> HealthState {
    judged(kind, &json!({"status": status})).state
}

fn ready(status: &str) -> Value {
    json!({"conditions": [{"type": "Ready", "status": status}]})
}

/// A library of one kind, `example.com/Widget`.
fn library(rules: &'static str) -> Result<HealthLibrary, String> {
    HealthLibrary::read(&[RuleFile { name: "widgets.yaml", text: rules }])
        .map_err(|error| error.to_string())
}

#[test]
fn every_file_is_read_and_more_than_two_hundred_kinds_have_rules() {
    let library = HealthLibrary::read(&RULE_FILES).unwrap_or_else(|error| panic!("{error}"));
    let kinds = library.kinds();
    assert!(kinds.len() >= 200, "{}", kinds.len());
    assert_eq!(HealthLibrary::builtin().kinds(), kinds);
}

#[test]
fn the_page_names_every_kind() {
    let page = include_str!("../../../docs/health.md");
    let missing: Vec<String> = HealthLibrary::builtin()
        .kinds()
        .into_iter()
        .filter(|name| {
            let (group, kind) = name.split_once('/').unwrap();
            let mut rows = page.lines().filter(|line| line.starts_with(&format!("| `{group}` |")));
            !rows.any(|row| row.contains(&format!("`{kind}`")))
        })
        .collect();
    assert!(missing.is_empty(), "docs/health.md lacks {missing:?}");
}

#[test]
fn a_condition_and_the_generation_decide() {
    let certificate = "cert-manager.io/v1/Certificate";
    assert_eq!(judged(certificate, &json!({})).state, HealthState::Progressing);
    assert_eq!(state(certificate, &ready("True")), HealthState::Healthy);
    assert_eq!(state(certificate, &ready("False")), HealthState::Degraded);
    let issuing = json!({"conditions": [{"type": "Ready", "status": "False"},
        {"type": "Issuing", "status": "True", "message": "the key is being made"}]});
    let health = judged(certificate, &json!({"status": issuing}));
    assert_eq!(health.state, HealthState::Progressing);
    assert_eq!(health.reason, "the key is being made");
    let old = json!({"metadata": {"generation": 3}, "status": {"observedGeneration": 2,
        "conditions": [{"type": "Ready", "status": "True"}]}});
    assert_eq!(judged(certificate, &old).state, HealthState::Progressing);
}

#[test]
fn a_phase_decides_whatever_its_case_is() {
    let cluster = "acid.zalan.do/v1/postgresql";
    let phase = |it: &str| state(cluster, &json!({"PostgresClusterStatus": it}));
    assert_eq!(phase("Running"), HealthState::Healthy);
    assert_eq!(phase("running"), HealthState::Healthy);
    assert_eq!(phase("SyncFailed"), HealthState::Degraded);
    assert_eq!(phase("Creating"), HealthState::Progressing);
    let tenant = |it: &str| state("minio.min.io/v2/Tenant", &json!({"currentState": it}));
    assert_eq!(tenant("Waiting for the third Pod"), HealthState::Progressing);
    assert_eq!(tenant("Credentials are not set at all"), HealthState::Degraded);
}

#[test]
fn a_condition_of_trouble_decides() {
    let kafka = "kafka.strimzi.io/v1beta2/Kafka";
    let trouble = json!({"conditions": [
        {"type": "NotReady", "status": "True", "reason": "NoDisk", "message": ""}]});
    let health = judged(kafka, &json!({"status": trouble}));
    assert_eq!(health.state, HealthState::Degraded);
    assert_eq!(health.reason, "NotReady is True (NoDisk)");
    assert_eq!(state(kafka, &ready("True")), HealthState::Healthy);
    assert_eq!(state(kafka, &json!({})), HealthState::Progressing);
}

#[test]
fn numbers_are_compared_item_by_item() {
    let cluster = "cassandra.rook.io/v1alpha1/Cluster";
    let racks = |ready: u8| {
        state(
            cluster,
            &json!({"racks": {"a": {"members": 3, "readyMembers": 3},
                "b": {"members": 2, "readyMembers": ready}}}),
        )
    };
    assert_eq!(racks(1), HealthState::Progressing);
    assert_eq!(racks(2), HealthState::Healthy);
    let collector = |of: &str| {
        state(
            "opentelemetry.io/v1beta1/OpenTelemetryCollector",
            &json!({"scale": {"replicas": 3, "statusReplicas": of}}),
        )
    };
    assert_eq!(collector("2/3"), HealthState::Progressing);
    assert_eq!(collector("3/3"), HealthState::Healthy);
    assert_eq!(collector("0/3"), HealthState::Degraded);
}

#[test]
fn parents_are_judged_by_what_they_say_of_this_generation() {
    let route = |seen: u8| {
        let parent = |accepted: &str, seen: u8| {
            json!({"conditions": [
                {"type": "Accepted", "status": accepted, "observedGeneration": seen}]})
        };
        let rest = json!({"metadata": {"generation": 4},
            "status": {"parents": [parent("False", seen), parent("True", 4)]}});
        judged("gateway.networking.k8s.io/v1/HTTPRoute", &rest).state
    };
    assert_eq!(route(3), HealthState::Healthy);
    assert_eq!(route(4), HealthState::Degraded);
}

#[test]
fn what_was_stopped_on_purpose_is_suspended_and_what_does_not_exist_is_missing() {
    let rest = json!({"spec": {"paused": true}, "status": {"phase": "Provisioned"}});
    assert_eq!(judged("cluster.x-k8s.io/v1beta1/Cluster", &rest).state, HealthState::Suspended);
    let parser = |it: &str| state("core.humio.com/v1alpha1/HumioParser", &json!({"state": it}));
    assert_eq!(parser("NotFound"), HealthState::Missing);
    assert_eq!(parser("Unknown"), HealthState::Unknown);
}

#[test]
fn what_waits_for_a_user_is_suspended() {
    let missing = |sync: Value| {
        let rest =
            json!({"spec": {"syncPolicy": sync}, "status": {"health": {"status": "Missing"}}});
        judged("argoproj.io/v1alpha1/Application", &rest).state
    };
    assert_eq!(missing(json!({})), HealthState::Suspended);
    assert_eq!(missing(json!({"automated": {"prune": true}})), HealthState::Missing);
    let provider = |policy: &str| {
        let condition =
            json!({"type": "Installed", "status": "False", "reason": "InactivePackageRevision"});
        let rest = json!({"spec": {"revisionActivationPolicy": policy},
            "status": {"conditions": [condition]}});
        judged("pkg.crossplane.io/v1/Provider", &rest).state
    };
    assert_eq!(provider("Manual"), HealthState::Suspended);
    assert_eq!(provider("Automatic"), HealthState::Degraded);
}

#[test]
fn a_rollout_that_writes_its_generation_as_a_text_is_judged() {
    let rollout = |seen: &str| {
        let rest = json!({"metadata": {"generation": 7},
            "status": {"observedGeneration": seen, "phase": "Healthy"}});
        judged("argoproj.io/v1alpha1/Rollout", &rest).state
    };
    assert_eq!(rollout("6"), HealthState::Progressing);
    assert_eq!(rollout("7"), HealthState::Healthy);
}

#[test]
fn groups_of_many_providers_share_rules_and_settings_in_them_are_not_waited_for() {
    let bucket = "storage.gcp.upbound.io/v1beta2/Bucket";
    let wanted = json!({"spec": {"forProvider": {"location": "EU"}}});
    assert_eq!(judged(bucket, &wanted).state, HealthState::Progressing);
    assert_eq!(state(bucket, &ready("True")), HealthState::Healthy);
    let failed = json!({"conditions": [{"type": "Ready", "status": "True"},
        {"type": "Synced", "status": "False", "message": "no permission"}]});
    let health = judged(bucket, &json!({"status": failed}));
    assert_eq!((health.state, health.reason.as_str()), (HealthState::Degraded, "no permission"));
    let config = judged("gcp.upbound.io/v1beta1/ProviderConfig", &json!({}));
    assert_eq!(config.state, HealthState::Healthy);
    assert_eq!(judged("gcp.upbound.io/v1beta1/Setting", &json!({})).state, HealthState::Unknown);
}

#[test]
fn a_kind_without_a_rule_has_no_judgement() {
    for kind in ["v1/ConfigMap", "apps/v1/Deployment", "example.com/v1/Certificate"] {
        let known = HealthLibrary::builtin().assess(&object(kind, &json!({})));
        assert_eq!(known, None, "{kind}");
    }
}

#[test]
fn reasons_name_the_value_and_are_bounded() {
    let rest = json!({"status": {"phase": "Failure", "message": "no quorum"}});
    let health = judged("ceph.rook.io/v1/CephObjectStore", &rest);
    assert_eq!(health.reason, "`.status.phase=Failure|DeletionIsBlocked`: Failure: no quorum");
    let long = |message: String| {
        let condition = json!({"type": "Ready", "status": "False", "message": message});
        judged("cert-manager.io/v1/Issuer", &json!({"status": {"conditions": [condition]}})).reason
    };
    assert_eq!(long("ä".repeat(1_024)), "ä".repeat(1_024));
    assert_eq!(long(format!("{}{}", "word ".repeat(204), "ä".repeat(50))).chars().count(), 1_020);
    assert_eq!(long("ä".repeat(5_000)), "…");
}

#[test]
fn only_what_its_controller_gives_up_is_final() {
    let of = |status: &Value| judged("s3.services.k8s.aws/v1/Bucket", &json!({"status": status}));
    let says = |kind: &str| of(&json!({"conditions": [{"type": kind, "status": "True"}]}));
    let again = says("ACK.Recoverable");
    assert_eq!((again.state, again.is_final), (HealthState::Degraded, false));
    let terminal = says("ACK.Terminal");
    assert_eq!((terminal.state, terminal.is_final), (HealthState::Degraded, true));
    let changed = json!({"metadata": {"generation": 2},
        "status": {"conditions": [{"type": "ACK.Terminal", "status": "True"}]}});
    let changed = judged("s3.services.k8s.aws/v1/Bucket", &changed);
    assert_eq!((changed.state, changed.is_final), (HealthState::Degraded, false));
}

#[test]
fn a_condition_of_an_earlier_generation_does_not_count() {
    let prometheus = |status: &str, seen: u8| {
        let available = json!({"type": "Available", "status": status, "observedGeneration": seen});
        let rest = json!({"metadata": {"generation": 3}, "status": {"conditions": [available]}});
        judged("monitoring.coreos.com/v1/Prometheus", &rest).state
    };
    assert_eq!(prometheus("True", 2), HealthState::Progressing);
    assert_eq!(prometheus("False", 2), HealthState::Progressing);
    assert_eq!(prometheus("True", 3), HealthState::Healthy);
    assert_eq!(prometheus("False", 3), HealthState::Degraded);
}

#[test]
fn a_collector_on_each_node_counts_no_replicas() {
    let daemon =
        json!({"spec": {"mode": "daemonset"}, "status": {"scale": {}, "image": "collector:1"}});
    let collector = "opentelemetry.io/v1beta1/OpenTelemetryCollector";
    assert_eq!(judged(collector, &daemon).state, HealthState::Healthy);
}

#[test]
fn a_huge_text_is_searched_from_its_beginning_only() {
    let phase = |it: String| state("postgresql.cnpg.io/v1/Cluster", &json!({"phase": it}));
    assert_eq!(phase(format!("{}fail", "x".repeat(100))), HealthState::Degraded);
    assert_eq!(phase(format!("{}fail", "x".repeat(1_000_000))), HealthState::Progressing);
}

#[test]
fn an_object_with_more_entries_than_are_compared_is_unknown() {
    let racks: Vec<Value> = (0..5_000).map(|_| json!({"members": 1})).collect();
    let health = judged("cassandra.rook.io/v1alpha1/Cluster", &json!({"status": {"racks": racks}}));
    assert_eq!(health.state, HealthState::Unknown);
    assert!(health.reason.contains("4096"), "{}", health.reason);
}

#[test]
fn a_status_of_other_types_than_expected_is_no_evidence() {
    for status in [json!(null), json!("on"), json!([1]), json!({"conditions": {"Ready": 1}})] {
        assert_eq!(state("cert-manager.io/v1/Issuer", &status), HealthState::Progressing);
        assert_eq!(state("cassandra.rook.io/v1/Cluster", &status), HealthState::Progressing);
    }
}

#[test]
fn what_is_no_rule_is_refused_with_its_place() {
    let refused = |rules: &'static str| library(rules).unwrap_err();
    assert!(refused("a: b").starts_with("widgets.yaml: not a list"));
    assert!(refused("- kinds: [example.com/Widget]").contains("without `rules`"));
    let fine = "- kinds: [example.com/Widget]\n  rules: [Healthy]\n";
    assert!(library(fine).is_ok());
    for rule in
        ["Fine", "{Healthy: ''}", "{Healthy: '.a['}", "{Healthy: '.a<b'}", "{Healthy: 'a='}"]
    {
        let text = format!("- kinds: [example.com/Widget]\n  rules: [{rule}, Healthy]\n");
        let error = refused(text.leak());
        assert!(error.contains("no rule"), "{rule}: {error}");
    }
    let twice = "- kinds: [example.com/Widget, example.com/Widget]\n  rules: [Healthy]\n";
    assert!(refused(twice).contains("twice"));
    let endless = "- kinds: [example.com/Widget]\n  rules: [{Healthy: stale}]\n";
    assert!(refused(endless).contains("the last rule"));
}
