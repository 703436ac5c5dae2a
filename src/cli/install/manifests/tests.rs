//! What the manifests say, compared with the program that they run.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use clap::{CommandFactory as _, Parser};
use serde_json::Value;

use super::*;
use crate::settings::Settings;

/// Every overlay, those without a profile included.
const OVERLAYS: [&str; 4] = ["single", "high-availability", "lockdown", "sharded"];

#[derive(Debug, Parser)]
struct Command {
    #[command(flatten)]
    manifests: Manifests,
}

#[derive(Debug, Parser)]
struct Serve {
    #[command(flatten)]
    settings: Settings,
}

fn manifests(flags: &[&str]) -> Manifests {
    Command::try_parse_from([&["install"], flags].concat()).unwrap().manifests
}

/// The objects of an overlay, as they are in the repository.
fn overlay(name: &str) -> Vec<Object> {
    let built = build(&format!("kustomize/overlays/{name}"), embedded()).unwrap();
    let objects = built.into_objects().unwrap();
    objects.into_iter().map(|object| Object::new(object.value).unwrap()).collect()
}

fn workloads(objects: &[Object]) -> Vec<&Object> {
    let is_it = |object: &&Object| ["Deployment", "StatefulSet"].contains(&object.kind());
    objects.iter().filter(is_it).collect()
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
            let parsed = Serve::try_parse_from(&arguments);
            let settings = parsed.unwrap_or_else(|error| panic!("{name}: {error}")).settings;
            let terms = settings.terms().unwrap();
            assert!(terms.own.is_some(), "{name}: no election");
            let is_lockdown = settings.no_cross_namespace_refs
                && settings.default_service_account.as_deref() == Some("default");
            assert_eq!(is_lockdown, name == "lockdown");
            // Objects that are divided may be divided with Flux, too.
            assert_eq!(terms.flux.is_some(), name != "sharded", "{name}");
        }
    }
}

fn strings_in_order(value: &Value) -> Vec<&str> {
    value.as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect()
}

#[test]
fn the_ports_are_those_of_the_program() {
    let settings = Serve::try_parse_from(["serve"]).unwrap().settings;
    let port = |address: SocketAddr| Value::from(address.port());
    let wanted = [
        ("http", port(settings.storage_addr)),
        ("http-prom", port(settings.metrics_addr)),
        ("healthz", port(settings.health_addr)),
    ];
    let objects = overlay("single");
    let ports = &pod(workloads(&objects)[0])["containers"][0]["ports"];
    for (at, (name, number)) in wanted.iter().enumerate() {
        assert_eq!((&ports[at]["name"], &ports[at]["containerPort"]), (&json!(name), number));
    }
    let is_service = |object: &&Object| object.kind() == "Service";
    for service in objects.iter().filter(is_service) {
        assert_eq!(service.get("spec").unwrap()["ports"][0]["targetPort"], "http");
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
                ("app.kubernetes.io/part-of", "flux"),
                ("app.kubernetes.io/managed-by", "windlass"),
                ("app.kubernetes.io/version", version),
            ] {
                assert_eq!(object.label(label), Some(value), "{name}: {id}: {label}");
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
            // The stock `flux logs` looks for this name.
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
            // A tag: without one `flux version` fails.
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
    for (role, verb) in
        [("windlass-controller", "patch"), ("windlass-view", "get"), ("windlass-edit", "delete")]
    {
        let is_it = |object: &&Object| object.kind() == "ClusterRole" && object.name() == role;
        let role = objects.iter().find(is_it).unwrap();
        let rule = &role.get("rules").unwrap()[0];
        assert_eq!(strings(&rule["apiGroups"]), groups, "{}", role.name());
        assert!(strings(&rule["verbs"]).contains(verb), "{}", role.name());
    }
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
    assert!(!text.contains("flux-system\n") || text.contains("instance: flux-system"), "{text}");
    assert!(text.contains("kind: Namespace\n") && text.contains("name: gitops\n"));
    let binding = objects.iter().find(|object| object.kind() == "ClusterRoleBinding").unwrap();
    assert_eq!(binding.get("subjects").unwrap()[0]["namespace"], "gitops");
}

#[test]
fn the_flags_that_change_manifests_are_few_and_described() {
    let command = Command::command();
    for argument in command.get_arguments().filter(|it| it.get_id() != "help") {
        assert!(argument.get_help().is_some(), "{}", argument.get_id());
    }
}
