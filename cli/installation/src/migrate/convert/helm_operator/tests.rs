//! Tests that images that Flux v1 updated are still updated after the conversion, and that other images are named.

use std::collections::BTreeSet;

use expect_test::expect;
use image::{
    ImageRef, ImageSetterValues, MarkerRewriter, PolicyResult, RewriteLimits, RewriteMode,
};
use objects::Object;
use serde_json::{Value, json};

use super::super::tests::{check, convert, is_read};
use super::super::{ConversionResult, ObjectConversion};
use super::OPERATOR;
use super::flux_v1_image_automation::{FluxDaemon, automations};
use super::image_annotations::{object_name, unique};
use super::tag_pattern::ConvertedTagPolicy;

/// A HelmRelease with these annotations and values, both in flow style.
fn release(name: &str, annotations: &str, values: &str) -> String {
    format!(
        "apiVersion: helm.fluxcd.io/v1
kind: HelmRelease
metadata: {{name: {name}, namespace: apps, annotations: {annotations}}}
spec:
  resetValues: true
  chart: {{repository: 'https://charts.example.com', name: web, version: 1.0.0}}
  values: {values}
"
    )
}

fn object_of(yaml: &str) -> Object {
    Object::new(goyaml::to_json(yaml.as_bytes()).unwrap()).unwrap()
}

/// The values of a release after each of its policies has chosen the tag 9.9.9.
fn updated_values(result: &ConversionResult) -> Value {
    let of_kind = |kind: &'static str| result.images.iter().filter(move |it| it["kind"] == kind);
    let image_of = |policy: &Value| {
        let name = &policy["spec"]["imageRepositoryRef"]["name"];
        let mut repositories = of_kind("ImageRepository");
        let repository = repositories.find(|it| it["metadata"]["name"] == *name).unwrap();
        repository["spec"]["image"].as_str().unwrap().to_owned()
    };
    let policies: Vec<PolicyResult> = of_kind("ImagePolicy")
        .map(|policy| PolicyResult {
            namespace: "apps".to_owned(),
            name: policy["metadata"]["name"].as_str().unwrap().to_owned(),
            latest: Some(ImageRef {
                name: image_of(policy),
                tag: "9.9.9".to_owned(),
                digest: String::new(),
            }),
        })
        .collect();
    let setters = ImageSetterValues::new(&policies).unwrap();
    let mut rewriter =
        MarkerRewriter::new(&setters, RewriteMode::KeepBytes, RewriteLimits::default());
    rewriter.file("releases.yaml", result.manifests().unwrap().as_bytes());
    let rewrite = rewriter.finish(".").unwrap();
    assert_eq!((rewrite.problems, rewrite.unread), (Vec::new(), Vec::new()));
    let text = &rewrite.files["releases.yaml"];
    let (_, manifest) = text.rsplit_once("---\n").unwrap();
    goyaml::to_json(manifest.as_bytes()).unwrap()["spec"]["values"].clone()
}

/// A HelmRelease with two images that Flux v1 updates.
const UPDATED_RELEASE: &str = "apiVersion: helm.fluxcd.io/v1
kind: HelmRelease
metadata:
  name: web
  namespace: apps
  annotations:
    fluxcd.io/automated: 'true'
    filter.fluxcd.io/chart-image: semver:1.x
    fluxcd.io/tag.sidecar: 'regexp:^main-[a-f0-9]+-(?P<build>[0-9]+)$'
spec:
  resetValues: true
  wait: true
  chart: {repository: 'https://charts.example.com', name: web, version: 1.0.0}
  values:
    image: {repository: ghcr.io/acme/web, tag: 1.4.2}
    sidecar: {image: 'acme/sidecar:main-0a1b2c3-17'}
";

#[test]
fn a_release_whose_images_were_updated_gets_policies_and_markers() {
    check(
        &OPERATOR,
        UPDATED_RELEASE,
        &expect![[r#"
            ---
            apiVersion: source.toolkit.fluxcd.io/v1
            kind: HelmRepository
            metadata:
              name: web
              namespace: apps
            spec:
              interval: 10m
              url: https://charts.example.com
            ---
            apiVersion: helm.toolkit.fluxcd.io/v2
            kind: HelmRelease
            metadata:
              name: web
              namespace: apps
            spec:
              chart:
                spec:
                  chart: web
                  sourceRef:
                    kind: HelmRepository
                    name: web
                  version: 1.0.0
              interval: 5m
              releaseName: apps-web
              values:
                image:
                  repository: ghcr.io/acme/web # {"$imagepolicy": "apps:web-chart-image:name"}
                  tag: 1.4.2 # {"$imagepolicy": "apps:web-chart-image:tag"}
                sidecar:
                  image: acme/sidecar:main-0a1b2c3-17 # {"$imagepolicy": "apps:web-sidecar"}
            ---
            apiVersion: image.toolkit.fluxcd.io/v1
            kind: ImageRepository
            metadata:
              name: ghcr-io-acme-web
              namespace: apps
            spec:
              image: ghcr.io/acme/web
              interval: 5m
            ---
            apiVersion: image.toolkit.fluxcd.io/v1
            kind: ImagePolicy
            metadata:
              name: web-chart-image
              namespace: apps
            spec:
              imageRepositoryRef:
                name: ghcr-io-acme-web
              policy:
                semver:
                  range: 1.x
            ---
            apiVersion: image.toolkit.fluxcd.io/v1
            kind: ImageRepository
            metadata:
              name: acme-sidecar
              namespace: apps
            spec:
              image: acme/sidecar
              interval: 5m
            ---
            apiVersion: image.toolkit.fluxcd.io/v1
            kind: ImagePolicy
            metadata:
              name: web-sidecar
              namespace: apps
            spec:
              filterTags:
                extract: $build
                pattern: ^main-[a-f0-9]+-(?P<build>[0-9]+)$
              imageRepositoryRef:
                name: acme-sidecar
              policy:
                numerical:
                  order: asc
            ! ImageRepository ghcr-io-acme-web: name a Secret in spec.secretRef if ghcr.io/acme/web needs credentials; Flux had those of the ServiceAccount default
            ! image sidecar (acme/sidecar): fluxcd.io/tag.sidecar: regexp:^main-[a-f0-9]+-(?P<build>[0-9]+)$: Flux took the image that was built last, the ImagePolicy takes the one with the largest number in the group
            ! ImageRepository acme-sidecar: name a Secret in spec.secretRef if acme/sidecar needs credentials; Flux had those of the ServiceAccount default
        "#]],
    );
}

#[test]
fn the_values_that_flux_set_are_set() {
    for (annotations, values, expected) in [
        // The forms in the documentation of Flux 1.25.
        ("", "{image: 'repo/image:1.2.3'}", json!({"image": "repo/image:9.9.9"})),
        (
            "",
            "{image: repo/image, tag: 1.2.3, replicas: 2}",
            json!({"image": "repo/image", "tag": "9.9.9", "replicas": 2}),
        ),
        (
            "",
            "{registry: docker.io, image: repo/image, tag: 1.2.3}",
            json!({"registry": "docker.io", "image": "repo/image", "tag": "9.9.9"}),
        ),
        (
            "",
            "{image: {repository: repo/image, tag: 1.2.3}}",
            json!({"image": {"repository": "repo/image", "tag": "9.9.9"}}),
        ),
        (
            "",
            "{image: {registry: quay.io, repository: repo/image, tag: 1.2.3}}",
            json!({"image": {"registry": "quay.io", "repository": "repo/image", "tag": "9.9.9"}}),
        ),
        (
            "filter.fluxcd.io/subsystem: 'semver:*'",
            "{subsystem: {image: {repository: repo/image2, tag: 1.2.3, imagePullPolicy: Always}}}",
            json!({"subsystem": {"image": {"repository": "repo/image2", "tag": "9.9.9", "imagePullPolicy": "Always"}}}),
        ),
        (
            "repository.fluxcd.io/app: appImage, tag.fluxcd.io/app: appTag, filter.fluxcd.io/app: 'semver:*'",
            "{appImage: repo/image1, appTag: 1.2.3}",
            json!({"appImage": "repo/image1", "appTag": "9.9.9"}),
        ),
        (
            "registry.fluxcd.io/submarine: sub.marine.reg, repository.fluxcd.io/submarine: sub.marine.img, \
             tag.fluxcd.io/submarine: sub.marine.tag, fluxcd.io/tag.submarine: 'semver:*'",
            "{sub: {marine: {reg: domain.com, img: repo/image2, tag: 1.2.3}}}",
            json!({"sub": {"marine": {"reg": "domain.com", "img": "repo/image2", "tag": "9.9.9"}}}),
        ),
        (
            "repository.fluxcd.io/mariadb: customRepository, flux.weave.works/tag.mariadb: 'semver:*'",
            "{customRepository: 'bitnami/mariadb:10.1.30'}",
            json!({"customRepository": "bitnami/mariadb:9.9.9"}),
        ),
        // A port, a text that looks like a number, an optional registry, and a key with a dot.
        (
            "",
            "{image: 'registry.example.com:5000/team/web:1.2.3'}",
            json!({"image": "registry.example.com:5000/team/web:9.9.9"}),
        ),
        (
            "",
            "{image: {repository: repo/image, tag: '1.10'}}",
            json!({"image": {"repository": "repo/image", "tag": "9.9.9"}}),
        ),
        (
            "",
            "{registry: docker.io, image: 'repo/image:1.2.3'}",
            json!({"registry": "docker.io", "image": "repo/image:9.9.9"}),
        ),
        (
            "filter.fluxcd.io/web.v2: 'semver:*'",
            "{web.v2: {image: 'nats-streaming:0.6.0'}}",
            json!({"web.v2": {"image": "nats-streaming:9.9.9"}}),
        ),
    ] {
        let annotations = format!(
            "{{fluxcd.io/automated: 'true', filter.fluxcd.io/chart-image: 'semver:*', {annotations}}}"
        );
        let result = convert(&OPERATOR, &release("web", &annotations, values));
        result.images.iter().for_each(is_read);
        assert_eq!(result.images.len(), 2, "{values}: {:?}", result.notes);
        assert_eq!(updated_values(&result), expected, "{values}");
    }
}

#[test]
fn what_is_not_converted_is_named_and_has_no_marker() {
    for (annotations, values, expected) in [
        ("fluxcd.io/automated: 'false'", "{image: 'a/b:1.0.0'}", "fluxcd.io/automated is \"true\""),
        ("fluxcd.io/automated: true", "{image: 'a/b:1.0.0'}", "true is not a string"),
        ("filter.fluxcd.io/a: 'semver:*'", "{}", "filter.fluxcd.io/a is not converted"),
        ("fluxcd.io/automated: 'true'", "{replicas: 1}", "found no image"),
        ("fluxcd.io/automated: 'true'", "{image: 'a/b:1.0.0'}", "which means glob:*: Flux ordered"),
        (
            "fluxcd.io/automated: 'true', filter.fluxcd.io/chart-image: 'glob:master-*'",
            "{image: 'a/b:master-1'}",
            "filter.fluxcd.io/chart-image: glob:master-*: Flux ordered the tags by the time of their build",
        ),
        (
            "fluxcd.io/automated: 'true', filter.fluxcd.io/chart-image: 'semver:a b'",
            "{image: 'a/b:1.0.0'}",
            "correct the range",
        ),
        (
            "fluxcd.io/automated: 'true', filter.fluxcd.io/chart-image: 'regexp:^(['",
            "{image: 'a/b:1.0.0'}",
            "correct the expression",
        ),
        (
            "fluxcd.io/automated: 'true'",
            "{image: a/b}",
            "image chart-image is not updated: it has no tag",
        ),
        ("fluxcd.io/automated: 'true'", "{image: 'a/b:1', tag: '1'}", "it has a tag twice"),
        ("fluxcd.io/automated: 'true'", "{image: 'a/b:1@sha256:0a'}", "it names a digest"),
        (
            "fluxcd.io/automated: 'true'",
            "{registry: quay.io, image: 'a/b:1.0.0'}",
            "divide the tag from the image",
        ),
        (
            "fluxcd.io/automated: 'true'",
            "{image: {repository: a/b, tag: 'a b'}}",
            "`a b` is not a tag",
        ),
        (
            "fluxcd.io/automated: 'true'",
            "{image: {repository: A/b, tag: '1'}}",
            "could not parse reference",
        ),
        (
            "fluxcd.io/automated: 'true', repository.fluxcd.io/app: a.b, filter.fluxcd.io/app: 'semver:*'",
            "{a: 1}",
            "image app is not updated: spec.values.a.b is not a string",
        ),
        (
            "fluxcd.io/automated: 'true', tag.fluxcd.io/app: a",
            "{a: '1.0.0'}",
            "image app is not updated: the annotation repository.fluxcd.io is missing",
        ),
        (
            "fluxcd.io/automated: 'true', filter.fluxcd.io/chart-image: 'semver:*', filter.fluxcd.io/other: 'semver:*'",
            "{image: a/b}",
            "filter.fluxcd.io/other is not converted: spec.values has no image other",
        ),
        (
            "helm.fluxcd.io/antecedent: a",
            "{}",
            "annotation helm.fluxcd.io/antecedent has no effect any more",
        ),
    ] {
        let result = convert(&OPERATOR, &release("web", &format!("{{{annotations}}}"), values));
        assert!(
            result.notes.iter().any(|it| it.contains(expected)),
            "{annotations} {values}: {:?}",
            result.notes
        );
        assert_eq!((result.images.len(), result.markers.len()), (0, 0), "{annotations} {values}");
        assert_eq!(result.objects.len(), 2, "the release is converted: {:?}", result.obstacles);
    }
}

#[test]
fn an_image_that_annotations_name_again_is_updated_once() {
    let annotations = "{fluxcd.io/automated: 'true', repository.fluxcd.io/app: image.repository, \
                       tag.fluxcd.io/app: image.tag, filter.fluxcd.io/app: 'semver:1.x'}";
    let values = "{image: {repository: a/b, tag: 1.0.0}}";
    let result = convert(&OPERATOR, &release("web", annotations, values));
    assert_eq!(result.images[1]["metadata"]["name"], "web-app", "{:?}", result.images);
    assert_eq!(result.images.len(), 2);
    let text = "image chart-image is not converted: its values are those of image app, whose pattern counts";
    assert!(result.notes.iter().any(|it| it == text), "{:?}", result.notes);
}

#[test]
fn a_tag_that_an_image_policy_leaves_out_is_named() {
    let annotations = "{fluxcd.io/automated: 'true', filter.fluxcd.io/chart-image: 'semver:*'}";
    for (values, expected) in [
        ("{image: 'a/b:1.2'}", "its tag 1.2 does not count for ImagePolicy web-chart-image"),
        ("{image: {repository: a/b, tag: 1.10}}", "its tag 1.1 is a number: write it in quotes"),
    ] {
        let result = convert(&OPERATOR, &release("web", annotations, values));
        assert!(result.notes.iter().any(|it| it.contains(expected)), "{:?}", result.notes);
        assert_eq!(result.images.len(), 2, "{values}");
    }
}

#[test]
fn locked_and_ignored_releases_stay_so() {
    let image = "{image: 'a/b:1.0.0'}";
    let annotations = "{fluxcd.io/automated: 'true', fluxcd.io/locked: 'true', fluxcd.io/locked_msg: freeze, \
                       filter.fluxcd.io/chart-image: 'semver:*'}";
    let result = convert(&OPERATOR, &release("web", annotations, image));
    assert_eq!(result.images[1]["spec"]["suspend"], true);
    let text = "images were locked because of `freeze`: ImagePolicy web-chart-image is suspended";
    assert!(result.notes.iter().any(|it| it.starts_with(text)), "{:?}", result.notes);

    for (ignore, images) in [("'true'", 0), ("sync_only", 2)] {
        let annotations = format!(
            "{{fluxcd.io/automated: 'true', fluxcd.io/ignore: {ignore}, filter.fluxcd.io/chart-image: 'semver:*'}}"
        );
        let result = convert(&OPERATOR, &release("web", &annotations, image));
        let metadata = &result.objects[1]["metadata"];
        let disabled = json!({"kustomize.toolkit.fluxcd.io/reconcile": "disabled"});
        assert_eq!(
            (&metadata["annotations"], result.images.len()),
            (&disabled, images),
            "{ignore}"
        );
    }
}

#[test]
fn a_pattern_is_converted_where_the_tag_says_which_is_newer() {
    let asc = json!({"order": "asc"});
    let any = json!({"range": "*"});
    let numerical = |pattern: &str, extract: &str| json!({"policy": {"numerical": asc}, "filterTags": {"pattern": pattern, "extract": extract}});
    for (pattern, tag, expected) in [
        ("semver:~1.0", "1.0.1", json!({"policy": {"semver": {"range": "~1.0"}}})),
        (
            "semver: >= 1.0.0-rc.0, <1.0.1",
            "1.0.0",
            json!({"policy": {"semver": {"range": ">= 1.0.0-rc.0, <1.0.1"}}}),
        ),
        (
            "regex:^main-[0-9a-f]{7}-([0-9]{10,})$",
            "main-0a1b2c3-1600000000",
            numerical("^main-[0-9a-f]{7}-([0-9]{10,})$", "$1"),
        ),
        (
            r"regexp:^(?:main|master)-(?P<build>\d+)-[[:xdigit:]()]+",
            "master-12-0a",
            numerical(r"^(?:main|master)-(?P<build>\d+)-[[:xdigit:]()]+", "$build"),
        ),
        (r"regex:^v(\d+)$", "v12", numerical(r"^v(\d+)$", "$1")),
        (
            "regexp:^[1-9][0-9]*$",
            "120",
            json!({"policy": {"numerical": asc}, "filterTags": {"pattern": "^[1-9][0-9]*$"}}),
        ),
        (
            r"regexp:^v?(\d+)\.(\d+)\.(\d+)$",
            "v1.2.3",
            json!({"policy": {"semver": any}, "filterTags": {"pattern": r"^v?(\d+)\.(\d+)\.(\d+)$"}}),
        ),
        (
            r"regexp:^prod-(v?[0-9]+\.[0-9]+\.[0-9]+)$",
            "prod-1.2.3",
            json!({"policy": {"semver": any}, "filterTags": {"pattern": r"^prod-(v?[0-9]+\.[0-9]+\.[0-9]+)$", "extract": "$1"}}),
        ),
        (
            "glob:1.4.2",
            "1.4.2",
            json!({"policy": {"alphabetical": asc}, "filterTags": {"pattern": r"^1\.4\.2$"}}),
        ),
        (
            "stable",
            "stable",
            json!({"policy": {"alphabetical": asc}, "filterTags": {"pattern": "^stable$"}}),
        ),
    ] {
        let policy = ConvertedTagPolicy::of(pattern).unwrap();
        let mut spec = json!({});
        policy.put_into(&mut spec);
        assert_eq!(spec, expected, "{pattern}");
        assert!(policy.takes(tag), "{pattern}: {tag}");
        assert!(!policy.takes("no-such-tag"), "{pattern}");
        let is_by_build_time = pattern.starts_with("regex");
        assert_eq!(policy.remark.is_some(), is_by_build_time, "{pattern}");
    }
    // The order depends on the build time, on several groups, or on a group that a tag may lack.
    for pattern in [
        "glob:*",
        "glob:master-*",
        "1.2.*",
        "regex:^stg.*",
        "regex:^0.6.*",
        r"regexp:^(\d+)-(\d+)$",
        r"regexp:^main(-(\d+))?$",
        r"regexp:^main-(\d+)?",
        r"regexp:^a-(\d+)|latest$",
        r"regexp:^main-(.+)$",
        r"regexp:^\Q(\E(\d+)",
        r"regexp:^main-\(\d+\)$",
    ] {
        let reason = ConvertedTagPolicy::of(pattern).unwrap_err();
        assert!(reason.contains("the time of their build"), "{pattern}: {reason}");
    }
    assert!(ConvertedTagPolicy::of("glob:").unwrap_err().contains("no tag matches it"));
}

const FLUX: &str = "apiVersion: apps/v1
kind: Deployment
metadata: {name: flux, namespace: flux}
spec:
  template:
    spec:
      containers:
      - name: memcached
        args: [-m 512]
      - name: flux
        args:
        - --git-url=https://$(GIT_USER):$(GIT_KEY)@git.example.com/acme/cluster.git
        - --git-branch=production
        - --git-path=releases/
        - --git-ci-skip
        - --automation-interval
        - 10m
        - --registry-exclude-image=k8s.gcr.io/*
";

#[test]
fn an_automation_commits_where_flux_did() {
    let daemon = FluxDaemon::of(&object_of(FLUX)).unwrap();
    let namespaces = BTreeSet::from(["apps", "flux-system"]);
    let result = automations(&namespaces, &[daemon.clone(), daemon], "flux-system");
    result.objects.iter().for_each(is_read);
    let [apps, own] = result.objects.as_slice() else { panic!("{:?}", result.objects) };
    assert_eq!(apps["metadata"], json!({"name": "cluster", "namespace": "apps"}));
    assert_eq!(
        apps["spec"],
        json!({
            "interval": "10m",
            "sourceRef": {"kind": "GitRepository", "name": "flux-system", "namespace": "flux-system"},
            "git": {
                "checkout": {"ref": {"branch": "production"}},
                "commit": {
                    "author": {"name": "image-updates", "email": "image-updates@example.com"},
                    "messageTemplate": "Update images of {{ .AutomationObject }}\n\n{{ .Values.ciSkip }}\n",
                    "messageTemplateValues": {"ciSkip": "[ci skip]"},
                },
                "push": {"branch": "production"},
            },
            "update": {"strategy": "Setters", "path": "./releases"},
        })
    );
    assert!(own["spec"]["sourceRef"]["namespace"].is_null(), "{own}");
    let notes = result.notes.join("\n");
    assert!(
        notes.contains(
            "Flux committed to https://git.example.com/acme/cluster.git (branch production)"
        ),
        "{notes}"
    );
    assert!(notes.contains("--registry-exclude-image=k8s.gcr.io/*"), "{notes}");
}

#[test]
fn a_branch_is_the_default_of_flux_only_where_flux_is_known() {
    let namespaces = BTreeSet::from(["apps"]);
    let unknown = automations(&namespaces, &[], "flux-system");
    assert!(unknown.objects[0]["spec"]["git"]["checkout"].is_null(), "{:?}", unknown.objects);
    assert!(unknown.notes[0].starts_with("no Deployment of Flux v1"), "{:?}", unknown.notes);
    unknown.objects.iter().for_each(is_read);

    for (from, to, branch) in [
        ("--git-branch=production", "--git-pollinterval=1m", json!("master")),
        ("--git-branch=production", "--git-branch=$(BRANCH)", Value::Null),
    ] {
        let daemon = FluxDaemon::of(&object_of(&FLUX.replace(from, to))).unwrap();
        let result = automations(&namespaces, &[daemon], "flux-system");
        assert_eq!(result.objects[0]["spec"]["git"]["push"]["branch"], branch, "{to}");
    }
    let other = FLUX.replace(
        "--git-url=https://$(GIT_USER):$(GIT_KEY)@git.example.com/acme/cluster.git",
        "--listen=:80",
    );
    assert_eq!(FluxDaemon::of(&object_of(&other)), None);
}

#[test]
fn an_image_of_several_releases_is_scanned_once() {
    let annotations = "{fluxcd.io/automated: 'true', filter.fluxcd.io/chart-image: 'semver:*'}";
    let mut conversion = ObjectConversion::new(&OPERATOR, "flux-system");
    for name in ["web", "shop"] {
        let yaml = release(name, annotations, "{image: 'a/b:1.0.0'}");
        conversion.take(&object_of(&yaml)).unwrap();
    }
    conversion.take(&object_of(FLUX)).unwrap();
    conversion.take_automations().unwrap();
    let count = |text: &str| conversion.text.matches(text).count();
    assert_eq!(count("kind: ImageRepository\nmetadata"), 1, "{}", conversion.text);
    assert_eq!(count("kind: ImagePolicy\n"), 2);
    assert_eq!(count("kind: ImageUpdateAutomation\n"), 1);
    assert_eq!(count("branch: production\n"), 2);
    assert_eq!((conversion.count, conversion.left_out), (2, 0));
}

#[test]
fn two_policies_of_one_name_are_an_error() {
    let mut conversion = ObjectConversion::new(&OPERATOR, "flux-system");
    for (name, container) in [("a", "b-c"), ("a-b", "c")] {
        let annotations =
            format!("{{fluxcd.io/automated: 'true', filter.fluxcd.io/{container}: 'semver:*'}}");
        let values = format!("{{{container}: {{image: 'a/{name}:1.0.0'}}}}");
        conversion.take(&object_of(&release(name, &annotations, &values))).unwrap();
    }
    assert_eq!((conversion.count, conversion.left_out), (2, 1));
}

#[test]
fn names_are_those_that_objects_can_have() {
    for (text, expected) in [
        ("ghcr.io:443/Acme/_web__v2", "ghcr-io-443-acme-web-v2"),
        ("web-appImage", "web-appimage"),
        ("_", "image"),
    ] {
        assert_eq!(object_name(text), expected);
    }
    assert_eq!(object_name(&"a".repeat(300)).len(), 253);
    let mut known = BTreeSet::new();
    let names: Vec<String> = (0..3).map(|_| unique(&mut known, "a")).collect();
    assert_eq!(names, ["a", "a-2", "a-3"]);
}
