//! What is converted is what windlass reads, and nothing is forgotten in silence.

use crds::helm::HelmRelease;
use crds::helmfile::Helmfile;
use crds::kustomize::Kustomization;
use crds::source::{GitRepository, HelmRepository, OCIRepository};
use expect_test::{Expect, expect};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::*;

fn convert(operator: &Operator, yaml: &str) -> Converted {
    let value = goyaml::to_json(yaml.as_bytes()).unwrap();
    (operator.convert)(&Object::new(value).unwrap(), "flux-system")
}

/// An object is one that windlass reads whole, without a field that it does not support.
fn is_read(object: &Value) {
    fn again<K: DeserializeOwned + Serialize>(object: &Value) -> Value {
        serde_json::to_value(serde_json::from_value::<K>(object.clone()).unwrap()).unwrap()
    }
    let read = match object["kind"].as_str().unwrap() {
        "GitRepository" => again::<GitRepository>(object),
        "HelmRepository" => again::<HelmRepository>(object),
        "OCIRepository" => again::<OCIRepository>(object),
        "Kustomization" => again::<Kustomization>(object),
        "HelmRelease" => again::<HelmRelease>(object),
        "Helmfile" => again::<Helmfile>(object),
        other => panic!("{other}"),
    };
    // Defaults of the schema are written, too.
    for (key, value) in object["spec"].as_object().unwrap() {
        assert_eq!(&read["spec"][key], value, "{key} of {object}");
    }
    let unsupported = crate::controllers::kinds::unsupported(object).unwrap().unwrap();
    assert_eq!(unsupported, Vec::<&str>::new());
}

fn check(operator: &Operator, yaml: &str, expected: &Expect) {
    let Converted { objects, notes, obstacles } = convert(operator, yaml);
    let mut shown = String::new();
    for object in &objects {
        is_read(object);
        shown.push_str(&format!("---\n{}", goyaml::emit::emit(object).unwrap()));
    }
    for (glyph, strings) in [('!', notes), ('x', obstacles)] {
        for text in strings {
            shown.push_str(&format!("{glyph} {text}\n"));
        }
    }
    expected.assert_eq(&shown);
}

#[test]
fn an_application_of_a_directory_is_a_kustomization() {
    let yaml = "apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: guestbook, namespace: argocd, finalizers: [resources-finalizer.argocd.argoproj.io]}
spec:
  project: default
  source:
    repoURL: https://github.com/argoproj/argocd-example-apps.git
    targetRevision: HEAD
    path: guestbook
    kustomize:
      namePrefix: prod-
      images: [gcr.io/app:v2, 'old=host:5000/new@sha256:abc']
      commonLabels: {team: a}
  destination: {server: 'https://kubernetes.default.svc', namespace: guestbook}
  syncPolicy:
    automated: {prune: true, selfHeal: true}
    syncOptions: [CreateNamespace=true, Replace=true]
";
    check(
        &argocd::OPERATOR,
        yaml,
        &expect![[r#"
        ---
        apiVersion: source.toolkit.fluxcd.io/v1
        kind: GitRepository
        metadata:
          name: guestbook
          namespace: flux-system
        spec:
          interval: 5m
          ref:
            branch: main
          url: https://github.com/argoproj/argocd-example-apps.git
        ---
        apiVersion: kustomize.toolkit.fluxcd.io/v1
        kind: Kustomization
        metadata:
          name: guestbook
          namespace: flux-system
        spec:
          commonMetadata:
            labels:
              team: a
          images:
          - name: gcr.io/app
            newTag: v2
          - digest: sha256:abc
            name: old
            newName: host:5000/new
          interval: 10m
          namePrefix: prod-
          path: ./guestbook
          prune: true
          sourceRef:
            kind: GitRepository
            name: guestbook
          targetNamespace: guestbook
        ! CreateNamespace=true: add the Namespace to the source; a HelmRelease makes it by itself
        ! spec.syncPolicy.syncOptions: Replace=true has no counterpart
        ! targetRevision is the default branch of the repository: `main` was assumed
        ! GitRepository guestbook: name a Secret in spec.secretRef if https://github.com/argoproj/argocd-example-apps.git needs credentials
        ! directories below are applied, too, unless there is a kustomization.yaml: Argo CD reads them with recurse only
    "#]],
    );
}

#[test]
fn an_application_of_a_chart_is_a_release() {
    let yaml = "apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: redis, namespace: argocd}
spec:
  source:
    repoURL: registry-1.docker.io/bitnamicharts
    chart: redis
    targetRevision: 18.1.*
    helm:
      releaseName: cache
      valueFiles: [values-prod.yaml]
      values: |
        auth: {enabled: true}
      parameters:
      - {name: auth.enabled, value: 'false'}
      - {name: image.tag, value: '1.10', forceString: true}
      - {name: 'list[0]', value: 'a,b'}
  destination: {name: in-cluster, namespace: cache}
";
    check(
        &argocd::OPERATOR,
        yaml,
        &expect![[r#"
            ---
            apiVersion: source.toolkit.fluxcd.io/v1
            kind: HelmRepository
            metadata:
              name: redis
              namespace: flux-system
            spec:
              interval: 10m
              type: oci
              url: oci://registry-1.docker.io/bitnamicharts
            ---
            apiVersion: helm.toolkit.fluxcd.io/v2
            kind: HelmRelease
            metadata:
              name: redis
              namespace: flux-system
            spec:
              chart:
                spec:
                  chart: redis
                  sourceRef:
                    kind: HelmRepository
                    name: redis
                  valuesFiles:
                  - values.yaml
                  - values-prod.yaml
                  version: 18.1.*
              install:
                crds: CreateReplace
                createNamespace: true
              interval: 10m
              releaseName: cache
              storageNamespace: cache
              targetNamespace: cache
              upgrade:
                crds: CreateReplace
              values:
                auth:
                  enabled: false
                image:
                  tag: "1.10"
                list:
                - a,b
            ! it was not synced automatically, and will be: set spec.suspend to prevent that
            ! HelmRepository redis: name a Secret in spec.secretRef if registry-1.docker.io/bitnamicharts needs credentials
            ! Helm makes a release of what Argo CD had applied from the chart: its first revision takes the objects over, and runs the hooks of an install
        "#]],
    );
}

#[test]
fn what_an_application_says_beyond_that_is_told() {
    let yaml = "apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: app}
spec:
  source:
    repoURL: git@github.com:org/repo.git
    targetRevision: v1.2.3
    path: ./
    plugin: {name: cue}
    directory: {recurse: true, jsonnet: {libs: [a]}}
  destination: {server: 'https://other:6443', namespace: a}
  ignoreDifferences: [{kind: Deployment, jsonPointers: [/spec/replicas]}]
  syncPolicy: {automated: {}}
";
    check(
        &argocd::OPERATOR,
        yaml,
        &expect![[r#"
        ---
        apiVersion: source.toolkit.fluxcd.io/v1
        kind: GitRepository
        metadata:
          name: app
          namespace: flux-system
        spec:
          interval: 5m
          ref:
            tag: v1.2.3
          url: ssh://git@github.com/org/repo.git
        ---
        apiVersion: kustomize.toolkit.fluxcd.io/v1
        kind: Kustomization
        metadata:
          name: app
          namespace: flux-system
        spec:
          interval: 10m
          path: ./
          prune: false
          sourceRef:
            kind: GitRepository
            name: app
          targetNamespace: a
        ! spec.ignoreDifferences: list these fields in spec.ignore of the Kustomization
        ! GitRepository app: name a Secret in spec.secretRef if git@github.com:org/repo.git needs credentials
        x spec.destination.server is https://other:6443: put its kubeconfig into a Secret and name it in spec.kubeConfig
        x spec.source.directory.jsonnet has no counterpart
        x spec.source.plugin has no counterpart
    "#]],
    );
    let many = yaml.replace("  source:\n", "  sources: [{repoURL: a}, {repoURL: b}]\n  source:\n");
    let done = convert(&argocd::OPERATOR, &many);
    assert!(done.obstacles.iter().any(|it| it.contains("has several")), "{:?}", done.obstacles);
}

const RABBIT: &str = "apiVersion: helm.fluxcd.io/v1
kind: HelmRelease
metadata:
  name: rabbit
  namespace: apps
  annotations: {fluxcd.io/automated: 'true'}
spec:
  targetNamespace: mq
  timeout: 600
  maxHistory: 5
  resetValues: true
  skipCRDs: true
  forceUpgrade: true
  chart:
    repository: https://charts.example.com/
    name: rabbitmq
    version: 3.3.6
    chartPullSecret: {name: pull}
  valuesFrom:
  - configMapKeyRef: {name: defaults, key: a.yaml, optional: true}
  - secretKeyRef: {name: secret}
  - chartFileRef: {path: overrides/prod.yaml, optional: true}
  rollback: {enable: true, retry: true, maxRetries: 3, timeout: 60}
  test: {enable: true, ignoreFailures: true, cleanup: true}
  values: {replicas: 1}
";

#[test]
fn a_release_of_the_helm_operator_keeps_its_name_and_its_records() {
    check(
        &helm_operator::OPERATOR,
        RABBIT,
        &expect![[r#"
        ---
        apiVersion: source.toolkit.fluxcd.io/v1
        kind: HelmRepository
        metadata:
          name: rabbit
          namespace: apps
        spec:
          interval: 10m
          secretRef:
            name: pull
          url: https://charts.example.com/
        ---
        apiVersion: helm.toolkit.fluxcd.io/v2
        kind: HelmRelease
        metadata:
          name: rabbit
          namespace: apps
        spec:
          chart:
            spec:
              chart: rabbitmq
              ignoreMissingValuesFiles: true
              sourceRef:
                kind: HelmRepository
                name: rabbit
              valuesFiles:
              - values.yaml
              - overrides/prod.yaml
              version: 3.3.6
          install:
            crds: Skip
          interval: 5m
          maxHistory: 5
          releaseName: apps-mq-rabbit
          rollback:
            timeout: 60s
          storageNamespace: mq
          targetNamespace: mq
          test:
            enable: true
            ignoreFailures: true
          timeout: 600s
          upgrade:
            force: true
            remediation:
              remediateLastFailure: true
              retries: 3
              strategy: rollback
          values:
            replicas: 1
          valuesFrom:
          - kind: ConfigMap
            name: defaults
            optional: true
            valuesKey: a.yaml
          - kind: Secret
            name: secret
        ! spec.valuesFrom[2]: files of the chart come before ConfigMaps and Secrets now
        ! spec.test.cleanup has no counterpart
        ! annotation fluxcd.io/automated has no effect any more
    "#]],
    );
}

#[test]
fn what_the_helm_operator_alone_can_is_told() {
    let yaml = "apiVersion: helm.fluxcd.io/v1
kind: HelmRelease
metadata: {name: app, namespace: apps}
spec:
  helmVersion: v2
  chart: {git: 'git@github.com:org/charts', ref: main, path: charts/app, secretRef: {name: key}}
  valuesFrom:
  - externalSourceRef: {url: 'https://example.com/values.yaml'}
  - configMapKeyRef: {name: a, namespace: other}
";
    check(
        &helm_operator::OPERATOR,
        yaml,
        &expect![[r#"
        ---
        apiVersion: source.toolkit.fluxcd.io/v1
        kind: GitRepository
        metadata:
          name: app
          namespace: apps
        spec:
          interval: 5m
          ref:
            branch: main
          secretRef:
            name: key
          url: ssh://git@github.com/org/charts
        ---
        apiVersion: helm.toolkit.fluxcd.io/v2
        kind: HelmRelease
        metadata:
          name: app
          namespace: apps
        spec:
          chart:
            spec:
              chart: ./charts/app
              sourceRef:
                kind: GitRepository
                name: app
          install:
            disableWait: true
          interval: 5m
          releaseName: apps-app
          upgrade:
            disableWait: true
          valuesFrom:
          - kind: ConfigMap
            name: a
        ! ssh://git@github.com/org/charts: GitRepository app needs a Secret with identity and known_hosts (spec.secretRef)
        ! resetValues is not set: values that were changed by `helm upgrade --set` do not survive any more
        x spec.valuesFrom[0].externalSourceRef has no counterpart
        x spec.valuesFrom[1] is of namespace other: copy ConfigMap a
        x spec.helmVersion is v2: migrate the release to Helm 3 first
    "#]],
    );
    let bare =
        "apiVersion: helm.fluxcd.io/v1\nkind: HelmRelease\nmetadata: {name: a, namespace: b}\n";
    let done = convert(&helm_operator::OPERATOR, bare);
    assert!(done.obstacles[0].contains("neither git nor repository"), "{:?}", done.obstacles);
}

#[test]
fn files_of_a_folder_are_converted_in_the_order_of_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::create_dir(at("b")).unwrap();
    for (name, kind) in [("c.yaml", "C"), ("b/a.yml", "B"), ("a.yaml", "A"), ("d.txt", "D")] {
        std::fs::write(at(name), format!("apiVersion: v1\nkind: {kind}\nmetadata: {{name: a}}\n"))
            .unwrap();
    }
    let found = from_files(&[folder.path().to_owned()]).unwrap();
    assert_eq!(found.iter().map(Object::kind).collect::<Vec<_>>(), ["A", "B", "C"]);
    assert!(from_files(&[at("none")]).is_err());
}

#[test]
fn a_helmfile_of_helmfile_operator_keeps_its_address_values_and_variables() {
    let yaml = "apiVersion: apps.mumoshu.github.io/v1alpha1
kind: Helmfile
metadata: {name: myapp, namespace: shop, finalizers: [helmfile-operator]}
spec:
  source: git::https://github.com/mumoshu/helmfile-operator//pkg/examplecontroller@assets
  version: master
  image: {repository: quay.io/examplecom/example, tag: v1.2.3}
  values: {foo: FOO}
  envvars: {bar: BAR, number: 1}
";
    let expected = expect![[r#"
        ---
        apiVersion: helmfile.windlass.dev/v1alpha1
        kind: Helmfile
        metadata:
          name: myapp
          namespace: shop
        spec:
          deletionPolicy: Orphan
          dialect: v0
          env:
          - name: bar
            value: BAR
          - name: number
            value: "1"
          interval: 1m
          source: git::https://github.com/mumoshu/helmfile-operator//pkg/examplecontroller@assets?ref=master
          values:
            foo: FOO
        ! spec.version master had no effect in helmfile-operator: now it is the reference
        ! spec.image has no effect any more: no Pod is run
        ! releases without a namespace are in shop now, where helmfile-operator had them in default: set spec.targetNamespace to adopt those
        ! once it is Ready, delete its applier: kubectl --namespace default delete deployment --selector app=helmfile-operator-myapp
        ! remove the finalizers of helmfile-operator from the old object before it is deleted
    "#]];
    check(&helmfile_operator::OPERATOR, yaml, &expected);
    let built_in = yaml.replace(
        "git::https://github.com/mumoshu/helmfile-operator//pkg/examplecontroller@assets",
        "assets",
    );
    let Converted { obstacles, .. } = convert(&helmfile_operator::OPERATOR, &built_in);
    assert!(obstacles[0].contains("a path in the image"), "{obstacles:?}");
}
