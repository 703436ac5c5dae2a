//! Tests the conversion of controller flags.

use clap::Parser;
use serde_json::json;

use super::*;
use crate::install::manifests::InstallManifestFlags;

#[derive(Debug, Parser)]
struct InstallTestCommand {
    #[command(flatten)]
    manifests: InstallManifestFlags,
}

/// The arguments that Flux's own manifests give to every controller.
const OF_FLUX: [&str; 5] = [
    "--events-addr=http://notification-controller.flux-system.svc.cluster.local./",
    "--watch-all-namespaces=true",
    "--log-level=info",
    "--log-encoding=json",
    "--enable-leader-election",
];

fn controller(name: &str, flags: &[&str]) -> Object {
    let arguments = [&OF_FLUX[..], flags].concat();
    let containers = json!([{"name": "proxy", "args": ["--no-such-flag"]},
        {"name": "manager", "args": arguments}]);
    Object::new(json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": "flux-system", "labels": {"app.kubernetes.io/part-of": "flux"}},
        "spec": {"replicas": 1, "template": {"spec": {"containers": containers}}},
    }))
    .unwrap()
}

/// The converted flags for an installation that has these flags.
fn carried_to(flags: &[&str], controllers: &[Object]) -> MigratedFlags {
    let given = InstallTestCommand::try_parse_from([&["migrate"], flags].concat()).unwrap();
    carried(controllers, &given.manifests.objects("flux-system").unwrap())
}

fn of(controllers: &[Object]) -> MigratedFlags {
    carried_to(&[], controllers)
}

#[test]
fn what_the_manifests_of_flux_say_needs_no_word() {
    let storage =
        ["--storage-path=/data", "--storage-adv-addr=source-controller.$(RUNTIME_NAMESPACE).svc."];
    let found = of(&[
        controller("source-controller", &storage),
        controller("kustomize-controller", &["--no-remote-bases=false"]),
        controller("notification-controller", &[]),
    ]);
    assert_eq!(found, MigratedFlags::default());
}

#[test]
fn a_lockdown_of_flux_is_one_of_windlass() {
    let tenants = ["--no-cross-namespace-refs=true", "--default-service-account=default"];
    let found = of(&[
        controller("source-controller", &[]),
        controller("kustomize-controller", &[&tenants[..], &["--no-remote-bases"]].concat()),
        controller("helm-controller", &["--no-cross-namespace-refs", tenants[1]]),
        controller("notification-controller", &[tenants[0]]),
    ]);
    let flags = [
        "--default-service-account=default",
        "--no-cross-namespace-refs=true",
        "--no-remote-bases=true",
    ];
    assert_eq!(found.flags, flags);
    assert_eq!((found.warnings.len(), found.obstacles.len()), (0, 0), "{found:?}");
    let note = "`--no-remote-bases=true` of kustomize-controller becomes a flag of windlass, for all kinds";
    assert!(found.notes.contains(&note.to_owned()), "{found:?}");
    // The profile already sets the same flag.
    let locked = ["--profile=lockdown"];
    let kustomize = || controller("kustomize-controller", &tenants);
    assert_eq!(carried_to(&locked, &[kustomize()]), MigratedFlags::default());
}

#[test]
fn flags_for_one_controller_keep_their_meaning() {
    let found = of(&[
        controller("source-controller", &["--concurrent", "10"]),
        controller("kustomize-controller", &["--concurrent=20", "--requeue-dependency=5s"]),
        controller("helm-controller", &["--concurrent=30", "--override-manager=a"]),
        controller("notification-controller", &["--concurrent=40"]),
    ]);
    let flags = [
        "--concurrent-kustomize=20",
        "--concurrent-source=10",
        "--override-manager=a",
        "--requeue-dependency=5s",
    ];
    assert_eq!(found.flags, flags);
    let notes = found.notes.join("\n");
    assert!(notes.contains("`--concurrent-helm=30` of helm-controller has no effect"), "{notes}");
    assert!(notes.contains("`--concurrent=40` of notification-controller has no effect"));
    for note in [
        "`--concurrent-source=10` of source-controller becomes a flag of windlass, for the sources and charts of each namespace",
        "`--concurrent-kustomize=20` of kustomize-controller becomes a flag of windlass, for building Kustomizations and \
         rendering releases, all of them together",
        "`--requeue-dependency=5s` of kustomize-controller becomes a flag of windlass, for all kinds",
    ] {
        assert!(found.notes.contains(&note.to_owned()), "{notes}");
    }
}

#[test]
fn a_restriction_of_some_controllers_is_decided_by_a_person() {
    let found = of(&[
        controller("kustomize-controller", &["--no-cross-namespace-refs=true"]),
        controller("helm-controller", &[]),
        controller("notification-controller", &[]),
        controller("source-controller", &[]),
    ]);
    assert_eq!(found.flags, Vec::<String>::new());
    assert_eq!(
        found.obstacles,
        [
            "`--no-cross-namespace-refs=true` of kustomize-controller, and not of helm-controller, notification-controller: \
             windlass has one value for all kinds; give the one that is to count, such as `-- \
             --no-cross-namespace-refs=true`"
        ]
    );
}

#[test]
fn values_that_differ_are_decided_by_a_person() {
    let controllers = [
        controller("kustomize-controller", &["--default-service-account=a", "--http-retry=3"]),
        controller("helm-controller", &["--default-service-account=b", "--requeue-dependency=5s"]),
        controller("source-controller", &["--requeue-dependency=9s", "--no-such-flag=1"]),
    ];
    let found = of(&controllers);
    assert_eq!((found.obstacles.len(), found.flags.len()), (1, 0), "{found:?}");
    let text = "`--default-service-account=a` of kustomize-controller and `--default-service-account=b` of \
                helm-controller: windlass has one value for all kinds";
    assert!(found.obstacles[0].starts_with(text), "{found:?}");
    let warnings = found.warnings.join("\n");
    assert!(warnings.contains("`--no-such-flag=1` of source-controller does not count any more"));
    assert!(warnings.contains("`--requeue-dependency=5s` of helm-controller and"), "{warnings}");
    assert!(found.notes[0].contains("`--http-retry=3` of kustomize-controller has no effect"));
    let decided = ["--", "--default-service-account=b"];
    let found = carried_to(&decided, &controllers);
    assert_eq!(found.obstacles, [""; 0]);
    assert!(found.warnings[0].contains("`--default-service-account=a` of kustomize-controller"));
}

#[test]
fn what_windlass_refuses_is_in_the_way_until_another_value_is_given() {
    let gates = "--feature-gates=OOMWatch=true,AllowDNSLookups=true";
    let controllers = [
        controller("helm-controller", &[gates]),
        controller("source-controller", &["--insecure-allow-http=false"]),
    ];
    let found = of(&controllers);
    assert_eq!(found.flags, ["--feature-gates=AllowDNSLookups=true"]);
    let text = found.obstacles.join("\n");
    assert!(text.contains("`--feature-gates=OOMWatch=true` of helm-controller"), "{text}");
    assert!(text.contains("OOMWatch=true is not supported: "), "{text}");
    assert!(text.contains("plain HTTP cannot be disabled"), "{text}");
    let decided = ["--", "--feature-gates=OOMWatch=false", "--insecure-allow-http=true"];
    let found = carried_to(&decided, &controllers);
    assert_eq!((found.obstacles.len(), found.warnings.len()), (0, 2), "{found:?}");
}

#[test]
fn what_one_controller_permits_is_not_permitted_for_all_kinds() {
    let exec = ["--insecure-kubeconfig-exec=true"];
    let helm = || controller("helm-controller", &exec);
    let found = of(&[helm(), controller("kustomize-controller", &[])]);
    assert_eq!(found.flags, [""; 0]);
    assert!(found.warnings[0].contains("add `-- --insecure-kubeconfig-exec=true`"), "{found:?}");
    let found = of(&[helm(), controller("kustomize-controller", &exec)]);
    assert_eq!(found.flags, exec);
}

#[test]
fn selectors_of_shards_are_not_carried_over_and_those_of_all_controllers_are() {
    let shard = "--watch-label-selector=sharding.fluxcd.io/key=shard1";
    let rest = "--watch-label-selector=!sharding.fluxcd.io/key";
    let found = of(&[
        controller("source-controller", &[]),
        controller("kustomize-controller", &[rest]),
        controller("kustomize-controller-shard1", &[shard]),
    ]);
    assert_eq!((found.flags.len(), found.obstacles.len()), (0, 0), "{found:?}");
    assert!(found.notes[0].contains("the objects of all shards"), "{found:?}");
    let part = "--watch-label-selector=env=prod";
    let own = |name: &str| controller(name, &["--watch-label-selector", "env=prod"]);
    let controllers = [own("source-controller"), own("kustomize-controller")];
    assert_eq!(of(&controllers).flags, [part]);
    let found = of(&[own("kustomize-controller"), controller("source-controller", &[])]);
    assert!(found.obstacles[0].contains("source-controller has no --watch-label-selector"));
}

#[test]
fn events_that_go_elsewhere_are_missed_there() {
    let found =
        of(&[controller("source-controller", &["--events-addr=http://events.example.com/"])]);
    assert!(found.warnings[0].contains("windlass sends notifications itself"), "{found:?}");
}
