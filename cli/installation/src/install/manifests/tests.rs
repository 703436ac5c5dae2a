//! Compares the manifests with the program that they run.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use clap::{CommandFactory as _, Parser};
use serde_json::Value;

use super::*;
use windlass_cli_helm::template::render_chart;
use windlass_serve::settings::OperatorSettings;

/// All overlays, including one without a profile.
const OVERLAYS: [&str; 4] = ["single", "high-availability", "lockdown", "sharded"];

#[derive(Debug, Parser)]
struct InstallTestCommand {
    #[command(flatten)]
    manifests: InstallManifestFlags,
}

#[derive(Debug, Parser)]
struct ServeTestCommand {
    #[command(flatten)]
    settings: OperatorSettings,
}

fn manifests(flags: &[&str]) -> InstallManifestFlags {
    InstallTestCommand::try_parse_from([&["install"], flags].concat()).unwrap().manifests
}

/// The objects of an overlay in the repository.
fn overlay(name: &str) -> Vec<Object> {
    let built = build(&format!("kustomize/overlays/{name}"), embedded()).unwrap();
    let objects = built.into_objects().unwrap();
    objects.into_iter().map(|object| Object::new(object.value).unwrap()).collect()
}

fn workloads(objects: &[Object]) -> Vec<&Object> {
    super::workloads(objects).collect()
}

fn pod(object: &Object) -> &Value {
    &object.get("spec").unwrap()["template"]["spec"]
}

fn strings(value: &Value) -> BTreeSet<&str> {
    value.as_array().into_iter().flatten().map(|it| it.as_str().unwrap()).collect()
}

#[test]
fn the_arguments_of_every_overlay_are_flags_of_the_program() {
    for name in OVERLAYS {
        let objects = overlay(name);
        let found = workloads(&objects);
        assert!(!found.is_empty(), "{name}");
        for object in found {
            let arguments = strings_in_order(&pod(object)["containers"][0]["args"]);
            assert_eq!(arguments[0], "serve");
            let parsed = ServeTestCommand::try_parse_from(&arguments);
            let settings = parsed.unwrap_or_else(|error| panic!("{name}: {error}")).settings;
            let terms = required_lease_elections(&settings).unwrap();
            assert!(terms.own.is_some(), "{name}: no election");
            let is_lockdown = settings.no_cross_namespace_refs
                && settings.default_service_account.as_deref() == Some("default");
            assert_eq!(is_lockdown, name == "lockdown");
            // If a selector divides the objects, Flux may reconcile a part of them.
            assert_eq!(terms.flux.is_some(), name != "sharded", "{name}");
        }
    }
}

fn strings_in_order(value: &Value) -> Vec<&str> {
    value.as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect()
}

#[test]
fn the_ports_are_those_of_the_program() {
    let settings = ServeTestCommand::try_parse_from(["serve"]).unwrap().settings;
    let port = |address: SocketAddr| Value::from(address.port());
    let wanted = [
        ("http", port(settings.storage_addr)),
        ("http-prom", port(settings.metrics_addr)),
        ("healthz", port(settings.health_addr)),
        ("http-webhook", port(settings.receiver_addr)),
    ];
    let objects = overlay("single");
    let ports = &pod(workloads(&objects)[0])["containers"][0]["ports"];
    for (at, (name, number)) in wanted.iter().enumerate() {
        assert_eq!((&ports[at]["name"], &ports[at]["containerPort"]), (&json!(name), number));
    }
    let is_service = |object: &&Object| object.kind() == "Service";
    for service in objects.iter().filter(is_service) {
        let wanted = if service.name() == "webhook-receiver" { "http-webhook" } else { "http" };
        assert_eq!(service.get("spec").unwrap()["ports"][0]["targetPort"], wanted);
    }
}

#[test]
fn every_object_says_whose_it_is_and_of_which_version() {
    let version = concat!("v", env!("CARGO_PKG_VERSION"));
    for name in OVERLAYS {
        for object in overlay(name) {
            let id = object.id();
            for (label, value) in [
                ("app.kubernetes.io/name", "windlass"),
                ("app.kubernetes.io/managed-by", "windlass"),
                ("app.kubernetes.io/version", version),
            ] {
                assert_eq!(object.label(label), Some(value), "{name}: {id}: {label}");
            }
            let is_shared = object.kind().starts_with("ClusterRole");
            assert_eq!(object.label(INSTALLATION), is_shared.then_some("flux-system"), "{id}");
            // Flux's commands find Deployments by this label. With it, `flux uninstall` also finds the rights that it removes
            // before the CRDs of Flux.
            let is_found = ["Deployment", "ServiceAccount", "ClusterRole", "ClusterRoleBinding"];
            if is_found.contains(&object.kind()) {
                assert_eq!(object.label("app.kubernetes.io/part-of"), Some("flux"), "{id}");
            }
        }
    }
}

#[test]
fn pods_are_restricted_and_say_what_they_need() {
    for name in OVERLAYS {
        let objects = overlay(name);
        for object in workloads(&objects) {
            let pod = pod(object);
            assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{name}");
            assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
            let container = &pod["containers"][0];
            // The standard `flux logs` looks for this name.
            assert_eq!(container["name"], "manager");
            let context = &container["securityContext"];
            assert_eq!(context["allowPrivilegeEscalation"], false);
            assert_eq!(context["readOnlyRootFilesystem"], true);
            assert_eq!(strings(&context["capabilities"]["drop"]), BTreeSet::from(["ALL"]));
            for resource in ["cpu", "memory"] {
                assert!(container["resources"]["requests"][resource].is_string(), "{resource}");
            }
            for probe in ["livenessProbe", "readinessProbe"] {
                assert_eq!(container[probe]["httpGet"]["port"], "healthz");
            }
            let image = container["image"].as_str().unwrap();
            // The image needs a tag, because `flux version` fails without one.
            assert_eq!(image, format!("{IMAGE}:v{}", env!("CARGO_PKG_VERSION")));
        }
    }
}

#[test]
fn every_kind_has_its_definition_and_its_rules() {
    let objects = overlay("single");
    let named = |kind: &str| -> BTreeSet<&str> {
        objects.iter().filter(|object| object.kind() == kind).map(Object::name).collect()
    };
    let all = crds::all();
    let wanted: BTreeSet<String> =
        all.iter().map(|(_, crd)| crd.metadata.name.clone().unwrap()).collect();
    let found: BTreeSet<String> =
        named("CustomResourceDefinition").into_iter().map(str::to_owned).collect();
    assert_eq!(found, wanted);
    let groups: BTreeSet<&str> = all.iter().map(|(_, crd)| crd.spec.group.as_str()).collect();
    // Users may read windlass's records but not edit them. Gates have their own rules.
    let reconciled: BTreeSet<&str> =
        crds::names().filter(|it| !it.is_record() && !it.is_gate()).map(|it| it.group).collect();
    for (role, verb, groups) in [
        ("windlass-controller", "patch", &reconciled),
        ("windlass-view", "get", &groups),
        ("windlass-edit", "delete", &reconciled),
    ] {
        let is_it = |object: &&Object| object.kind() == "ClusterRole" && object.name() == role;
        let role = objects.iter().find(is_it).unwrap();
        let rule = &role.get("rules").unwrap()[0];
        assert_eq!(strings(&rule["apiGroups"]), *groups, "{}", role.name());
        assert!(strings(&rule["verbs"]).contains(verb), "{}", role.name());
    }
    // Users who edit objects may not write statuses. A status says for example that a source is verified.
    let is_editor = |object: &&Object| object.name() == "windlass-edit";
    let editor = objects.iter().find(is_editor).unwrap();
    let plurals: BTreeSet<&str> =
        crds::names().filter(|it| !it.is_record() && !it.is_gate()).map(|it| it.plural).collect();
    assert_eq!(strings(&editor.get("rules").unwrap()[0]["resources"]), plurals);
}

#[test]
fn only_those_overlays_that_say_so_have_all_rights() {
    for name in OVERLAYS {
        let objects = overlay(name);
        let is_admin = objects.iter().any(|object| {
            object.get("roleRef").is_some_and(|role| role["name"] == "cluster-admin")
        });
        assert_eq!(is_admin, name != "lockdown", "{name}");
    }
}

#[test]
fn flags_change_namespace_image_and_pod() {
    let flags = [
        "--image=registry.example.com/w",
        "--tag=v9.9.9",
        "--image-pull-secret=pull",
        "--log-level=debug",
        "--toleration-keys=a,b",
        "--profile=high-availability",
    ];
    let objects = manifests(&flags).objects("gitops").unwrap();
    let found = workloads(&objects);
    assert_eq!((found.len(), found[0].kind(), found[0].namespace()), (1, "StatefulSet", "gitops"));
    let pod = pod(found[0]);
    assert_eq!(pod["containers"][0]["image"], "registry.example.com/w:v9.9.9");
    assert_eq!(pod["imagePullSecrets"][0]["name"], "pull");
    assert_eq!(pod["tolerations"][1]["key"], "b");
    let arguments = strings_in_order(&pod["containers"][0]["args"]);
    assert_eq!(arguments.last(), Some(&"--log-level=debug"));
    let is_elsewhere = |object: &&Object| !["", "gitops"].contains(&object.namespace());
    assert_eq!(objects.iter().find(is_elsewhere).map(Object::id), None);
    let text = manifests(&flags).yaml("gitops").unwrap();
    assert!(!text.contains("flux-system"), "{text}");
    assert!(text.contains("kind: Namespace\n") && text.contains("name: gitops\n"));
    let binding = objects.iter().find(|object| object.kind() == "ClusterRoleBinding").unwrap();
    assert_eq!(binding.get("subjects").unwrap()[0]["namespace"], "gitops");
}

#[test]
fn objects_name_the_installation_that_they_belong_to() {
    for profile in ["single", "high-availability", "lockdown"] {
        let objects = manifests(&["--profile", profile]).objects("gitops").unwrap();
        for object in &objects {
            assert_eq!(object.label(INSTANCE), Some("gitops"), "{}", object.id());
            let is_shared = object.kind().starts_with("ClusterRole");
            assert_eq!(object.label(INSTALLATION), is_shared.then_some("gitops"));
        }
        let template = &workloads(&objects)[0].get("spec").unwrap()["template"];
        assert_eq!(template["metadata"]["labels"][INSTANCE], "gitops");
        // A cluster does not allow changes of volume claim templates or selectors.
        let spec = workloads(&objects)[0].get("spec").unwrap();
        assert!(!spec["volumeClaimTemplates"].to_string().contains("gitops"), "{spec}");
        assert_eq!(spec["selector"]["matchLabels"], json!({"app": "windlass-controller"}));
    }
}

#[test]
fn a_namespace_that_may_exist_gets_no_rule_that_rejects_pods_of_others() {
    let objects = manifests(&[]).objects("shared").unwrap();
    let namespace = objects.iter().find(|object| object.kind() == "Namespace").unwrap();
    assert_eq!(namespace.label("pod-security.kubernetes.io/enforce"), None);
    assert_eq!(namespace.label("pod-security.kubernetes.io/warn"), Some("restricted"));
}

#[test]
fn flags_are_printed_as_they_were_given() {
    assert_eq!(manifests(&[]).flags(), "");
    let flags = " --profile=lockdown --image=registry.example.com/w --tag=v9.9.9 --image-pull-secret=pull \
                 --log-level=debug --toleration-keys=a,b";
    let given: Vec<&str> = flags.split_whitespace().collect();
    assert_eq!(manifests(&given).flags(), flags);
}

#[test]
fn flags_of_the_program_are_among_its_arguments_and_are_checked() {
    let selector = "--watch-label-selector=!sharding.fluxcd.io/key";
    let given = manifests(&["--tag=v9.9.9", "--", "--no-cross-namespace-refs", selector]);
    let objects = given.objects("gitops").unwrap();
    let arguments = strings_in_order(&pod(workloads(&objects)[0])["containers"][0]["args"]);
    assert_eq!(arguments[arguments.len() - 2..], ["--no-cross-namespace-refs", selector]);
    assert_eq!(given.flags(), " --tag=v9.9.9");
    let flags = " -- --no-cross-namespace-refs '--watch-label-selector=!sharding.fluxcd.io/key'";
    assert_eq!(given.serve_flags(), flags);
    assert_eq!(manifests(&[]).serve_flags(), "");
    for flags in [
        &["--", "--no-such-flag"][..],
        &["--", "--concurrent=many"],
        &["--profile=lockdown", "--", "--default-service-account=other"],
        &["--", "--leader-election-lease-duration=5s"],
    ] {
        assert!(manifests(flags).objects("gitops").is_err(), "{flags:?}");
    }
}

#[test]
fn the_flags_that_change_manifests_are_few_and_described() {
    let command = InstallTestCommand::command();
    for argument in command.get_arguments().filter(|it| it.get_id() != "help") {
        assert!(argument.get_help().is_some(), "{}", argument.get_id());
    }
}

/// The objects that the chart renders, without Helm's additions.
fn chart(values: &[&str]) -> Result<Vec<Object>, String> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/chart");
    let mut arguments = vec!["flux-system", folder, "--namespace=flux-system"];
    for value in values {
        arguments.extend(["--set", value]);
    }
    let arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
    let text = render_chart(&arguments, &[], None, &StopSignal::default())?;
    let documents = goyaml::documents(&text, &goyaml::YamlLimits::default()).unwrap();
    Ok(documents.into_iter().map(|it| Object::new(it.value).unwrap()).map(plain).collect())
}

/// An object without the fields that differ between the forms of an installation.
fn plain(mut object: Object) -> Object {
    for (field, keys) in [
        ("labels", ["app.kubernetes.io/managed-by", "helm.sh/chart"]),
        ("annotations", ["helm.sh/resource-policy", ""]),
    ] {
        let metadata = object.metadata_mut();
        let Some(map) = metadata.get_mut(field).and_then(Value::as_object_mut) else { continue };
        map.retain(|key, _| !keys.contains(&key.as_str()));
        if map.is_empty() {
            metadata.remove(field);
        }
    }
    object
}

#[test]
fn the_chart_gives_the_objects_of_the_overlays() {
    for (name, values) in [
        ("single", &[][..]),
        ("high-availability", &["highAvailability.enabled=true"]),
        ("lockdown", &["lockdown.enabled=true", "rbac.clusterAdmin=false"]),
    ] {
        let sorted = |objects: Vec<Object>| {
            let mut texts: Vec<(String, String)> = objects
                .into_iter()
                .map(|it| (it.id().to_string(), goyaml::emit(&it.into_value()).unwrap()))
                .collect();
            texts.sort();
            texts
        };
        let mut wanted = overlay(name);
        // Helm creates the namespace of a release only on request.
        wanted.retain(|object| object.kind() != "Namespace");
        let wanted = sorted(wanted.into_iter().map(plain).collect());
        let found = sorted(chart(values).unwrap());
        let ids = |all: &[(String, String)]| all.iter().map(|it| it.0.clone()).collect::<Vec<_>>();
        assert_eq!(ids(&found), ids(&wanted), "{name}");
        for ((id, found), (_, wanted)) in found.iter().zip(&wanted) {
            assert_eq!(found, wanted, "{name}: {id}");
        }
    }
}

#[test]
fn the_values_of_the_chart_are_checked_and_have_their_effect() {
    for (value, part) in [
        ("replicas=3", "replicas"),
        ("highAvailability.replicas=1", "replicas"),
        ("logLevel=loud", "logLevel"),
        ("extraArgs[0]=serve", "extraArgs"),
    ] {
        let error = chart(&[value]).unwrap_err();
        assert!(error.contains(part) && error.contains("schema"), "{value}: {error}");
    }
    let values = [
        "watchAllNamespaces=false",
        "sourceControllerService=false",
        "notificationServices=false",
        "networkPolicies=false",
        "crds.install=false",
        "rbac.aggregate=false",
        "priorityClassName=",
        "extraArgs[0]=--concurrent=9",
        "image.tag=v1.2.3@sha256:0000000000000000000000000000000000000000000000000000000000000000",
        "serviceAccount.annotations.role=reader",
        "podMonitor=true",
    ];
    let objects = chart(&values).unwrap();
    let names = |kind: &str| -> Vec<&str> {
        objects.iter().filter(|object| object.kind() == kind).map(Object::name).collect()
    };
    assert_eq!(names("CustomResourceDefinition"), [""; 0]);
    assert_eq!(names("NetworkPolicy"), [""; 0]);
    assert_eq!(names("ResourceQuota"), [""; 0]);
    assert_eq!(names("Service"), ["windlass-controller"]);
    assert_eq!(names("PodMonitor"), ["windlass-controller"]);
    // The rights of the installation are limited to its namespace, except for cluster-scoped objects.
    assert_eq!(names("ClusterRoleBinding"), ["windlass-controller-cluster"]);
    let mut bound = names("RoleBinding");
    bound.sort_unstable();
    let wanted = [
        "windlass-controller",
        "windlass-controller-cluster-admin",
        "windlass-controller-crd-exports",
        "windlass-controller-leader-election",
        "windlass-controller-watch",
    ];
    assert_eq!(bound, wanted);
    let found = workloads(&objects);
    let container = &pod(found[0])["containers"][0];
    assert!(container["image"].as_str().unwrap().starts_with(&format!("{IMAGE}:v1.2.3@sha256:")));
    let arguments = strings_in_order(&container["args"]);
    let settings = ServeTestCommand::try_parse_from(&arguments).unwrap().settings;
    assert!(!settings.watch_all_namespaces && arguments.contains(&"--concurrent=9"));
    let account = objects.iter().find(|object| object.kind() == "ServiceAccount").unwrap();
    assert_eq!(account.annotation("role"), Some("reader"));
}

#[test]
fn pages_of_a_team_are_a_deployment_without_rights() {
    assert!(chart(&["web.enabled=true"]).unwrap_err().contains("web.url is needed"));
    assert!(chart(&["web.url=http://windlass.example"]).unwrap_err().contains("schema"));
    let values = [
        "web.enabled=true",
        "web.url=https://windlass.example:8443",
        "web.oidc.issuerUrl=https://issuer.example",
        "web.oidc.clientId=windlass",
        "web.oidc.privateCa=true",
        "web.ingress.enabled=true",
        "web.gateway.parentRefs[0].name=public",
    ];
    let objects = chart(&values).unwrap();
    let of = |kind: &str| {
        let mut found =
            objects.iter().filter(|it| it.kind() == kind && it.name() == "windlass-web");
        found.next().unwrap_or_else(|| panic!("no {kind}"))
    };
    let container = &pod(of("Deployment"))["containers"][0];
    let arguments = strings_in_order(&container["args"]);
    let settings = ServeTestCommand::try_parse_from(&arguments).unwrap().settings;
    assert!(settings.web_pages.web_only && settings.web_pages.web_session_key_file.is_some());
    assert_eq!(settings.web_pages.web_oidc_scopes, ["email", "groups"]);
    let ports = [settings.web_pages.web_addr, Some(settings.health_addr)];
    let ports: Vec<u16> = ports.iter().flatten().map(|address| address.port()).collect();
    assert_eq!(ports, [8088, 9440]);
    assert_eq!(of("Ingress").fields()["spec"]["rules"][0]["host"], "windlass.example");
    assert_eq!(of("HTTPRoute").fields()["spec"]["hostnames"][0], "windlass.example");
    of("NetworkPolicy");
    of("Service");
    // No binding names the ServiceAccount.
    let bindings = objects.iter().filter(|it| it.kind().ends_with("RoleBinding"));
    for binding in bindings {
        let subjects = binding.fields()["subjects"].as_array().unwrap();
        assert!(subjects.iter().all(|it| it["name"] != "windlass-web"), "{}", binding.name());
    }
}
