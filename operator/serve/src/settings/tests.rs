//! Tests that every flag of Flux parses with its default, and of other values.

use expect_test::expect;

use super::*;

fn parsed(flags: &[&str]) -> Result<OperatorSettings, clap::Error> {
    OperatorSettings::from_flags(flags)
}

fn settings(flags: &[&str]) -> OperatorSettings {
    parsed(flags).unwrap()
}

/// Flags of Flux 2.9 with Flux's defaults, in the order of its controllers.
///
/// `concurrent` is left out of the defaults, because its default differs from controller to controller.
const FLUX: &[(&str, &str)] = &[
    ("metrics-addr", ":8080"),
    ("health-addr", ":9440"),
    ("events-addr", ""),
    ("watch-all-namespaces", "true"),
    ("watch-label-selector", ""),
    ("watch-configs-label-selector", "reconcile.fluxcd.io/watch=Enabled"),
    ("requeue-dependency", "30s"),
    ("min-retry-delay", "750ms"),
    ("max-retry-delay", "15m"),
    ("interval-jitter-percentage", "5"),
    ("enable-leader-election", "false"),
    ("leader-election-lease-duration", "35s"),
    ("leader-election-renew-deadline", "30s"),
    ("leader-election-retry-period", "5s"),
    ("leader-election-release-on-cancel", "true"),
    ("kube-api-qps", "50"),
    ("kube-api-burst", "300"),
    ("insecure-kubeconfig-exec", "false"),
    ("insecure-kubeconfig-tls", "false"),
    ("log-level", "info"),
    ("log-encoding", "json"),
    ("no-cross-namespace-refs", "false"),
    ("default-service-account", ""),
    ("default-kubeconfig-service-account", ""),
    ("default-decryption-service-account", ""),
    ("token-cache-max-size", "100"),
    ("token-cache-max-duration", "1h"),
    ("insecure-allow-http", "true"),
    ("storage-path", "/data"),
    ("storage-addr", ":9090"),
    ("storage-adv-addr", ""),
    ("artifact-retention-ttl", "1m"),
    ("artifact-retention-records", "2"),
    ("artifact-digest-algo", "sha256"),
    ("helm-index-max-size", "52428800"),
    ("helm-chart-max-size", "10485760"),
    ("helm-chart-file-max-size", "5242880"),
    ("helm-cache-max-size", "0"),
    ("helm-cache-ttl", "15m"),
    ("helm-cache-purge-interval", "1m"),
    ("ssh-kex-algos", ""),
    ("ssh-hostkey-algos", ""),
    // Differs(flux): 4 there, which leaves an API server with nothing to do most of the time.
    ("concurrent-ssa", "16"),
    ("no-remote-bases", "false"),
    ("http-retry", "9"),
    ("sops-age-secret", ""),
    ("sops-vault-configmap", ""),
    ("override-manager", ""),
    ("custom-apply-stage-kinds", ""),
    ("http-timeout", "30s"),
    ("graceful-shutdown-timeout", "600s"),
    ("snapshot-digest-algo", "sha256"),
    ("oom-watch-memory-threshold", "95"),
    ("oom-watch-interval", "500ms"),
    ("oom-watch-max-memory-path", ""),
    ("oom-watch-current-memory-path", ""),
    ("receiverAddr", ":9292"),
    ("rate-limit-interval", "5m"),
    ("export-http-path-metrics", "false"),
    ("storage-value-log-file-size", "268435456"),
    ("storage-compression-threshold", "65536"),
    ("gc-interval", "10"),
    ("reconciliation-timeout", "10m"),
    ("feature-gates", ""),
];

#[test]
fn every_flag_of_flux_is_accepted_with_its_default_in_both_spellings() {
    let plain = format!("{:?}", settings(&[]));
    for (name, default) in FLUX {
        for flags in
            [vec![format!("--{name}={default}")], vec![format!("--{name}"), (*default).to_owned()]]
        {
            let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
            let given = match parsed(&flags) {
                Ok(given) => given,
                Err(error) => panic!("{flags:?}: {error}"),
            };
            assert_eq!(format!("{given:?}"), plain, "{name} has another default than Flux's");
            assert_eq!(given.without_meaning(), Vec::new(), "{name}");
        }
    }
}

#[test]
fn one_flag_sets_how_much_happens_at_once_unless_a_kind_has_its_own() {
    let at_once = |flags: &[&str]| {
        let settings = settings(flags);
        (settings.sources_at_once(), settings.kustomizations_at_once())
    };
    assert_eq!(at_once(&[]), (2, 4));
    assert_eq!(at_once(&["--concurrent=10"]), (10, 10));
    assert_eq!(at_once(&["--concurrent=10", "--concurrent-kustomize", "3"]), (10, 3));
    assert!(parsed(&["--concurrent=0"]).is_err());
}

#[test]
fn booleans_are_given_as_go_takes_them() {
    for (flag, value) in [
        ("--no-cross-namespace-refs", true),
        ("--no-cross-namespace-refs=true", true),
        ("--no-cross-namespace-refs=T", true),
        ("--no-cross-namespace-refs=0", false),
    ] {
        assert_eq!(settings(&[flag, "--concurrent=1"]).no_cross_namespace_refs, value, "{flag}");
    }
    assert!(parsed(&["--no-cross-namespace-refs=yes"]).is_err());
    assert!(!settings(&["--watch-all-namespaces=false"]).watch_all_namespaces);
}

#[test]
fn empty_builds_are_refused_where_that_is_asked_for() {
    assert!(!settings(&[]).no_empty_builds && settings(&["--no-empty-builds"]).no_empty_builds);
    assert!(settings(&[]).deletion_budget);
    assert!(!settings(&["--deletion-budget=false"]).deletion_budget);
    assert!(settings(&["--deletion-budget=false"]).plan_approval, "it turns off the budget only");
    assert!(!settings(&["--plan-approval=false"]).plan_approval);
}

#[test]
fn images_are_verified_in_the_namespaces_that_a_selector_selects_with_the_keys_of_a_secret() {
    let labels =
        |name: &str| BTreeMap::from([("kubernetes.io/metadata.name".to_owned(), name.to_owned())]);
    let list = "--verify-images-namespaces=kubernetes.io/metadata.name in (apps, shop)";
    let some = settings(&[list, "--verify-images-secret=keys"]);
    assert_eq!(some.image_verification_secret(&labels("shop")), Some("keys"));
    assert_eq!(some.image_verification_secret(&labels("other")), None);
    let all = settings(&["--verify-images-namespaces=", "--verify-images-secret=keys"]);
    assert_eq!(all.image_verification_secret(&labels("other")), Some("keys"));
    assert_eq!(settings(&[]).image_verification_secret(&labels("shop")), None);
    for flags in [
        vec![list],
        vec!["--verify-images-secret=keys"],
        vec![list, "--verify-images-secret="],
        vec!["--verify-images-namespaces=a in", "--verify-images-secret=keys"],
    ] {
        assert!(parsed(&flags).is_err(), "{flags:?}");
    }
}

#[test]
fn bases_on_other_servers_are_refused_by_the_flag_of_flux() {
    assert!(!settings(&[]).no_remote_bases && !settings(&[]).insecure_remote_bases);
    assert!(settings(&["--no-remote-bases"]).no_remote_bases);
    assert!(settings(&["--insecure-remote-bases=true"]).insecure_remote_bases);
}

#[test]
fn what_changes_nothing_is_named_with_the_reason() {
    let given = settings(&[
        "--kube-api-qps=100.5",
        "--insecure-allow-http=T",
        "--feature-gates=ExternalArtifact=true,StrictPostBuildSubstitutions=true",
        "--feature-gates",
        "OOMWatch=false",
    ]);
    let named: Vec<String> = given.without_meaning().into_iter().map(|(flag, _)| flag).collect();
    assert_eq!(named, ["--kube-api-qps=100.5", "--feature-gates=ExternalArtifact=true"]);
}

#[test]
fn every_gate_is_honoured_or_so_anyway_or_refused() {
    let mut lines = String::new();
    for (name, default) in feature_gates::known() {
        let flag = |on: bool| format!("--feature-gates={name}={on}");
        assert!(parsed(&[&flag(default)]).is_ok(), "{name} at Flux's default");
        let line = match parsed(&[&flag(!default)]) {
            Err(error) => {
                let text = error.to_string();
                assert!(
                    text.contains(&format!("{name}={} is not supported: ", !default)),
                    "{text}"
                );
                "refused"
            }
            Ok(given) if given.without_meaning().is_empty() => "honoured",
            Ok(_) => "so anyway",
        };
        lines.push_str(&format!("{name}={}: {line}\n", !default));
    }
    expect![[r#"
        AdditiveCELDependencyCheck=true: honoured
        AdoptLegacyReleases=true: so anyway
        AllowDNSLookups=true: honoured
        CacheSecretsAndConfigMaps=true: refused
        CancelHealthCheckOnNewRevision=true: so anyway
        CorrectDrift=true: so anyway
        DefaultToRetryOnFailure=true: honoured
        DetectDrift=true: so anyway
        DirectSourceFetch=true: refused
        DisableChartDigestTracking=true: honoured
        DisableConfigWatchers=true: refused
        DisableFailFastBehavior=true: honoured
        DisableStatusPollerCache=false: so anyway
        ExternalArtifact=true: so anyway
        FluxStorage=true: refused
        GitAllBranchReferences=false: honoured
        GitForcePushBranch=false: honoured
        GitShallowClone=false: so anyway
        GitSparseCheckout=true: so anyway
        GroupChangeLog=true: refused
        MigrateAPIVersion=true: refused
        OOMWatch=true: refused
        ObjectLevelWorkloadIdentity=true: refused
        StrictPostBuildSubstitutions=false: honoured
        UseHelm3Defaults=true: honoured
    "#]]
    .assert_eq(&lines);
}

#[test]
fn a_flag_about_security_or_results_takes_what_is_done_and_nothing_else() {
    for flag in [
        "--artifact-digest-algo=sha512",
        "--snapshot-digest-algo=blake3",
        "--default-decryption-service-account=tenant",
        "--sops-vault-configmap=vault",
        "--ssh-kex-algos=curve25519-sha256",
        "--ssh-hostkey-algos=ssh-ed25519",
        "--insecure-allow-http=false",
        // A size limit is refused if it is below Flux's default or above windlass's own limit.
        "--helm-index-max-size=1048576",
        "--helm-index-max-size=104857600",
        "--helm-chart-max-size=1048576",
        "--helm-chart-max-size=104857600",
        "--helm-chart-file-max-size=1048576",
    ] {
        let error = parsed(&[flag]).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains("; remove the flag"), "{flag}: {error}");
    }
    for flag in ["--helm-chart-max-size=20971520", "--insecure-allow-http=1"] {
        assert!(parsed(&[flag]).is_ok(), "{flag}");
    }
}

#[test]
fn the_gate_of_flux_lets_a_wait_go_on_after_a_failure() {
    assert!(settings(&[]).fails_fast());
    assert!(!settings(&["--feature-gates=DisableFailFastBehavior=true"]).fails_fast());
}

#[test]
fn what_no_controller_of_flux_takes_is_refused() {
    for flag in [
        "--feature-gates=NoSuchGate=true",
        "--feature-gates=OOMWatch",
        "--feature-gates=OOMWatch=maybe",
        "--artifact-digest-algo=md5",
        "--watch-label-selector=a in b",
        "--watch-configs-label-selector=a b",
        "--kube-api-qps=many",
        "--interval-jitter-percentage=100",
        "--no-such-flag",
    ] {
        assert!(parsed(&[flag]).is_err(), "{flag}");
    }
}

#[test]
fn an_account_without_a_name_is_none() {
    assert_eq!(settings(&["--default-service-account="]).default_service_account, None);
    let given = settings(&["--default-service-account", "tenant"]);
    assert_eq!(given.default_service_account.as_deref(), Some("tenant"));
}

#[test]
fn an_address_without_a_host_means_every_address() {
    assert_eq!(parse_address(":9090").unwrap().to_string(), "0.0.0.0:9090");
    assert_eq!(parse_address("127.0.0.1:0").unwrap().to_string(), "127.0.0.1:0");
    assert!(parse_address("nine").unwrap_err().contains("is not an address"));
}

#[test]
fn the_store_may_be_bounded_in_bytes_or_binary_multiples() {
    let limit =
        |text: &str| parsed(&["--storage-size-limit", text]).map(|it| it.storage_size_limit);
    for (text, bytes) in [("0", 0), ("1000", 1000), ("1Ki", 1024), ("10Gi", 10 << 30)] {
        assert_eq!(limit(text).ok(), Some(bytes), "{text}");
    }
    for text in ["", "10G", "1.5Gi", "-1", "Gi", "99999999999Ti"] {
        assert!(limit(text).is_err(), "{text}");
    }
}
