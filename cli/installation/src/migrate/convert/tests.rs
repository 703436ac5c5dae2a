//! Tests that windlass can read the converted objects, and that no field is dropped without a message.

use axum::body::Body;
use crds::helm::HelmRelease;
use crds::helmfile::Helmfile;
use crds::image::{ImagePolicy, ImageRepository, ImageUpdateAutomation};
use crds::kustomize::Kustomization;
use crds::source::{GitRepository, HelmRepository, OCIRepository};
use expect_test::{Expect, expect};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::*;
use fake_cluster::answering;

#[tokio::test]
async fn objects_of_any_size_in_sum_are_read_from_a_cluster() {
    const PAGES: usize = 9;
    let kinds = json!({"kind": "APIResourceList", "groupVersion": "argoproj.io/v1alpha1", "resources": [
        {"name": "applications", "kind": "Application", "singularName": "", "namespaced": true,
            "verbs": ["list"]}]});
    let large = "x".repeat(8 << 20);
    let cluster = answering(move |(request, _)| {
        let Some((_, query)) = request.split_once('?') else {
            return (200, Body::from(kinds.to_string()));
        };
        let page: usize = query.rsplit_once("continue=").map_or(0, |it| it.1.parse().unwrap());
        let next = if page + 1 < PAGES { (page + 1).to_string() } else { String::new() };
        let source = json!({"repoURL": "https://example.com/apps.git", "path": "a", "targetRevision": "main"});
        let destination = json!({"server": "https://kubernetes.default.svc", "namespace": "a"});
        let one = json!({"metadata": {"name": format!("app-{page}"), "namespace": "argocd"},
            "spec": {"source": source, "destination": destination}, "status": {"text": large}});
        (200, Body::from(json!({"metadata": {"continue": next}, "items": [one]}).to_string()))
    })
    .await;
    let mut conversion = ObjectConversion::new(&argocd::OPERATOR, "flux-system");
    conversion.take_all(&cluster).await.unwrap();
    assert_eq!((conversion.count, conversion.left_out), (PAGES, 0));
    assert!(conversion.text.contains("name: app-8\n"), "{}", conversion.text);
}

pub(super) fn convert(operator: &ConvertibleOperator, yaml: &str) -> ConversionResult {
    let value = goyaml::to_json(yaml.as_bytes()).unwrap();
    (operator.convert)(&Object::new(value).unwrap(), "flux-system")
}

/// Checks that windlass supports all fields of an object.
pub(super) fn is_read(object: &Value) {
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
        "ImagePolicy" => again::<ImagePolicy>(object),
        "ImageRepository" => again::<ImageRepository>(object),
        "ImageUpdateAutomation" => again::<ImageUpdateAutomation>(object),
        other => panic!("{other}"),
    };
    // The conversion also writes the defaults of the schema.
    for (key, value) in object["spec"].as_object().unwrap() {
        assert_eq!(&read["spec"][key], value, "{key} of {object}");
    }
    let unsupported = windlass_kinds::unsupported(object).unwrap().unwrap();
    assert_eq!(unsupported, Vec::<&str>::new());
}

pub(super) fn check(operator: &ConvertibleOperator, yaml: &str, expected: &Expect) {
    let result = convert(operator, yaml);
    let mut shown = result.manifests().unwrap();
    let ConversionResult { objects, images, notes, obstacles, .. } = result;
    objects.iter().chain(&images).for_each(is_read);
    for image in &images {
        shown.push_str(&format!("---\n{}", goyaml::emit::emit(image).unwrap()));
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
      labelWithoutSelector: true
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
              annotations:
                windlass.dev/allow-empty: "false"
              name: guestbook
              namespace: flux-system
            spec:
              commonMetadata:
                labels:
                  team: a
              force: true
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
            ! spec.syncPolicy.syncOptions: CreateNamespace=true: add the Namespace to the source; a HelmRelease makes it by itself
            ! spec.syncPolicy.syncOptions: Replace=true: with spec.force objects are recreated only where a field cannot be changed (of a HelmRelease: spec.upgrade.force)
            ! targetRevision is the default branch of the repository: `main` was assumed
            ! GitRepository guestbook: name a Secret in spec.secretRef if https://github.com/argoproj/argocd-example-apps.git needs credentials
            ! directories below are applied, too, unless there is a kustomization.yaml: Argo CD reads them with recurse only
            ! spec.destination.namespace guestbook: Argo CD gives it to objects that have no namespace. Write it into these, or set spec.targetNamespace, which moves all objects to it, also those of other namespaces
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
              suspend: true
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
            ! it was not synced automatically, so it is suspended: `windlass resume --plan` shows what it would change
            ! HelmRepository redis: name a Secret in spec.secretRef if registry-1.docker.io/bitnamicharts needs credentials
            ! Helm makes a release of what Argo CD had applied from the chart: its first revision takes the objects over, and runs the hooks of an install
            ! its deletion did not delete what runs, and that of a HelmRelease uninstalls the release: suspend it before
        "#]],
    );
}

#[test]
fn other_fields_of_an_application_are_reported() {
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
              deletionPolicy: Orphan
              ignore:
              - paths:
                - /spec/replicas
                target:
                  kind: Deployment
              interval: 10m
              path: ./
              prune: false
              sourceRef:
                kind: GitRepository
                name: app
            ! spec.ignoreDifferences: these fields are not written either, as with RespectIgnoreDifferences=true
            ! GitRepository app: name a Secret in spec.secretRef if git@github.com:org/repo.git needs credentials
            ! spec.destination.namespace a: Argo CD gives it to objects that have no namespace. Write it into these, or set spec.targetNamespace, which moves all objects to it, also those of other namespaces
            ! selfHeal is not set, and a Kustomization corrects what others change: list such fields in spec.ignore
            x spec.destination.server is https://other:6443: put its kubeconfig into a Secret and name it in spec.kubeConfig
            x spec.source.directory.jsonnet has no counterpart: list the files in a kustomization.yaml of the repository
            x spec.source.plugin: commit what the plugin renders, or push it as an artifact that an OCIRepository names
        "#]],
    );
    let many = yaml.replace("  source:\n", "  sources: [{repoURL: a}, {repoURL: b}]\n  source:\n");
    let done = convert(&argocd::OPERATOR, &many);
    assert!(done.obstacles.iter().any(|it| it.contains("has several")), "{:?}", done.obstacles);
}

/// An Application of a directory, with these fields in its spec and metadata.
fn application(spec: &str, metadata: &str) -> String {
    format!(
        "apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {{name: app, finalizers: [resources-finalizer.argocd.argoproj.io], {metadata}}}
spec:
  source: {{repoURL: https://example.com/apps, targetRevision: main, path: app, directory: {{recurse: true}}}}
  destination: {{server: 'https://kubernetes.default.svc'}}
{spec}"
    )
}

/// Checks the converted applier of such an Application, without its source.
fn check_application(spec: &str, metadata: &str, expected: &Expect) {
    let ConversionResult { objects, notes, obstacles, .. } =
        convert(&argocd::OPERATOR, &application(spec, metadata));
    let applier = objects.last().unwrap();
    is_read(applier);
    let mut shown = goyaml::emit::emit(&json!({
        "annotations": applier["metadata"]["annotations"], "spec": applier["spec"],
    }))
    .unwrap();
    for (glyph, strings) in [('!', notes), ('x', obstacles)] {
        for text in strings.iter().filter(|text| !text.contains("spec.secretRef")) {
            shown.push_str(&format!("{glyph} {text}\n"));
        }
    }
    expected.assert_eq(&shown);
}

#[test]
fn an_application_that_is_not_synced_automatically_is_suspended() {
    for spec in ["", "  syncPolicy: {automated: {enabled: false, prune: true}}\n"] {
        let done = convert(&argocd::OPERATOR, &application(spec, ""));
        assert_eq!(done.objects[1]["spec"]["suspend"], true, "{spec}");
        assert!(done.notes.iter().any(|it| it.contains("so it is suspended")), "{:?}", done.notes);
    }
    check_application(
        "  syncPolicy: {automated: {enabled: true, prune: true, selfHeal: true}}\n",
        "",
        &expect![[r#"
            annotations:
              windlass.dev/allow-empty: "false"
            spec:
              interval: 10m
              path: ./app
              prune: true
              sourceRef:
                kind: GitRepository
                name: app
        "#]],
    );
    check_application(
        "  syncPolicy: {automated: {prune: true, allowEmpty: true}}\n",
        "",
        &expect![[r#"
            annotations: null
            spec:
              interval: 10m
              path: ./app
              prune: true
              sourceRef:
                kind: GitRepository
                name: app
            ! selfHeal is not set, and a Kustomization corrects what others change: list such fields in spec.ignore
        "#]],
    );
}

#[test]
fn the_namespace_of_a_destination_moves_no_object_of_another_one() {
    let spec = "  syncPolicy: {automated: {selfHeal: true}}\n";
    let yaml = application(spec, "").replace("default.svc'}", "default.svc', namespace: shop}");
    let done = convert(&argocd::OPERATOR, &yaml);
    assert!(done.objects[1]["spec"]["targetNamespace"].is_null(), "{}", done.objects[1]);
    let text =
        "spec.destination.namespace shop: Argo CD gives it to objects that have no namespace";
    assert!(done.notes.iter().any(|it| it.starts_with(text)), "{:?}", done.notes);
}

#[test]
fn options_of_synchronization_are_converted_or_named() {
    let options = [
        "CreateNamespace=true",
        "Prune=false",
        "Delete=false",
        "Replace=true",
        "PrunePropagationPolicy=foreground",
        "SkipDryRunOnMissingResource=true",
        "Validate=false",
        "ServerSideApply=true",
        "PruneLast=true",
        "Unheard=true",
    ];
    let spec = format!(
        "  project: shop
  revisionHistoryLimit: 5
  info: [{{name: a, value: b}}]
  syncPolicy:
    automated: {{prune: true, selfHeal: true}}
    retry: {{limit: 5}}
    managedNamespaceMetadata: {{labels: {{a: b}}}}
    syncOptions: [{}]
",
        options.join(", ")
    );
    check_application(
        &spec,
        "",
        &expect![[r#"
        annotations: null
        spec:
          deletionPolicy: Orphan
          force: true
          interval: 10m
          path: ./app
          prune: false
          sourceRef:
            kind: GitRepository
            name: app
        ! spec.project shop: what it permits are the rights of the ServiceAccount that spec.serviceAccountName names
        ! spec.info has no counterpart
        ! spec.syncPolicy.syncOptions: CreateNamespace=true: add the Namespace to the source; a HelmRelease makes it by itself
        ! spec.syncPolicy.syncOptions: Replace=true: with spec.force objects are recreated only where a field cannot be changed (of a HelmRelease: spec.upgrade.force)
        ! spec.syncPolicy.syncOptions: SkipDryRunOnMissingResource=true: name in spec.dependsOn what installs the CRDs of these objects
        ! spec.syncPolicy.syncOptions: Validate=false: objects are always validated: correct those that the API server rejects
        ! spec.syncPolicy.retry: failures are retried after spec.retryInterval, without a limit
        ! spec.syncPolicy.managedNamespaceMetadata: put labels and annotations into the Namespace in the source
        ! spec.revisionHistoryLimit: a Kustomization keeps no revisions
        ! spec.syncPolicy.syncOptions: PrunePropagationPolicy=foreground: dependents are deleted in the background
        x spec.syncPolicy.syncOptions: Unheard=true has no counterpart
    "#]],
    );
}

#[test]
fn differences_that_are_ignored_are_rules() {
    let spec =
        "  syncPolicy: {automated: {selfHeal: true}, syncOptions: [RespectIgnoreDifferences=true]}
  ignoreDifferences:
  - {group: apps, kind: Deployment, name: web.a, namespace: shop, jsonPointers: [/spec/replicas]}
  - {group: '*', kind: '*Webhook*', jqPathExpressions: [.metadata.labels]}
  - {kind: Secret, jqPathExpressions: ['.data | keys'], managedFieldsManagers: [kube]}
";
    check_application(
        spec,
        "",
        &expect![[r#"
        annotations: null
        spec:
          ignore:
          - paths:
            - /spec/replicas
            target:
              group: apps
              kind: Deployment
              name: web\.a
              namespace: shop
          - paths:
            - /metadata/labels
            target:
              kind: .*Webhook.*
          interval: 10m
          path: ./app
          prune: false
          sourceRef:
            kind: GitRepository
            name: app
        x spec.ignoreDifferences[2].jqPathExpressions: .data | keys is no path of fields: write it as jsonPointers
        x spec.ignoreDifferences[2].managedFieldsManagers has no counterpart: write the fields as jsonPointers
    "#]],
    );
}

#[test]
fn annotations_of_an_application_are_named_with_what_to_do() {
    let metadata = "labels: {team: a}, annotations: {
  argocd.argoproj.io/sync-wave: '5', argocd.argoproj.io/hook: PreSync, argocd.argoproj.io/sync-options: Prune=false,
  argocd.argoproj.io/compare-options: IgnoreExtraneous, argocd.argoproj.io/manifest-generate-paths: .,
  argocd.argoproj.io/refresh: hard, notifications.argoproj.io/subscribe.on-sync-failed.slack: ops,
  argocd-image-updater.argoproj.io/image-list: a, example.com/a: b}";
    check_application(
        "  syncPolicy: {automated: {selfHeal: true}}\n",
        metadata,
        &expect![[r#"
        annotations: null
        spec:
          interval: 10m
          path: ./app
          prune: false
          sourceRef:
            kind: GitRepository
            name: app
        ! annotation argocd-image-updater.argoproj.io/image-list: a: create an ImageRepository, ImagePolicy and ImageUpdateAutomation of Flux
        ! annotation argocd.argoproj.io/compare-options: IgnoreExtraneous: objects are always compared by a dry-run of the API server, and what is in no inventory is not deleted
        ! annotation argocd.argoproj.io/hook: PreSync: it was a hook of another Application: name in spec.dependsOn what comes before it, and in that of others what comes after
        ! annotation argocd.argoproj.io/manifest-generate-paths: .: nothing to do: a revision without changes of the files of a build needs none
        ! annotation argocd.argoproj.io/sync-options: Prune=false: it was for the Application as an object of another one: write Prune=false as kustomize.toolkit.fluxcd.io/prune: disabled on the objects above
        ! annotation argocd.argoproj.io/sync-wave: 5: name in spec.dependsOn what has a lower wave
        ! annotation example.com/a: b: it is not kept
        ! annotation notifications.argoproj.io/subscribe.on-sync-failed.slack: ops: create a Provider and an Alert
        ! label team: it is not kept
    "#]],
    );
    let skipped = "annotations: {argocd.argoproj.io/skip-reconcile: 'true'}";
    let spec = "  syncPolicy: {automated: {selfHeal: true}}\n";
    let done = convert(&argocd::OPERATOR, &application(spec, skipped));
    assert_eq!(done.objects[1]["spec"]["suspend"], true);
}

#[test]
fn fields_of_kustomize_are_converted_or_named() {
    let yaml = application("  syncPolicy: {automated: {selfHeal: true}}\n", "").replace(
        "directory: {recurse: true}",
        "directory: {recurse: true, include: '*.yaml'}, kustomize: {
    namespace: shop, version: v5.0.0, replicas: [{name: web, count: 3}], commonAnnotationsEnvsubst: true,
    commonLabels: {team: a}, ignoreMissingComponents: true, components: [../a],
    patches: [{patch: '{}', target: {kind: Deployment}}, {path: a.yaml, options: {allowNameChange: true}}]}",
    );
    check(
        &argocd::OPERATOR,
        &yaml,
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
            branch: main
          url: https://example.com/apps
        ---
        apiVersion: kustomize.toolkit.fluxcd.io/v1
        kind: Kustomization
        metadata:
          name: app
          namespace: flux-system
        spec:
          commonMetadata:
            labels:
              team: a
          components:
          - ../a
          ignoreMissingComponents: true
          interval: 10m
          patches:
          - patch: '{}'
            target:
              kind: Deployment
          - patch: ""
          path: ./app
          prune: false
          sourceRef:
            kind: GitRepository
            name: app
          targetNamespace: shop
        ! GitRepository app: name a Secret in spec.secretRef if https://example.com/apps needs credentials
        ! spec.source.kustomize.version: windlass builds by itself
        x spec.source.directory.include has no counterpart: list the files in a kustomization.yaml of the repository
        x spec.source.kustomize.patches[1].options has no counterpart: put it into the kustomization.yaml of the repository
        x spec.source.kustomize.patches[1].path has no counterpart: put it into the kustomization.yaml of the repository
        x spec.source.kustomize.commonLabels are in selectors and templates, too, which spec.commonMetadata does not change: put it into the kustomization.yaml of the repository
        x spec.source.kustomize.commonAnnotationsEnvsubst has no counterpart: put it into the kustomization.yaml of the repository
        x spec.source.kustomize.replicas has no counterpart: put it into the kustomization.yaml of the repository
    "#]],
    );
}

#[test]
fn fields_of_charts_are_converted_or_named() {
    let yaml = application("  revisionHistoryLimit: 5\n  syncPolicy: {automated: {selfHeal: true}, syncOptions: [Replace=true, PrunePropagationPolicy=orphan]}\n  ignoreDifferences: [{kind: Secret, jsonPointers: [/data]}]\n", "")
        .replace(
            "path: app, directory: {recurse: true}",
            "path: chart, helm: {version: v2, skipSchemaValidation: true, skipTests: true, kubeVersion: '1.30', \
             apiVersions: [a/v1], fileParameters: [{name: a, path: b}]}",
        );
    check(
        &argocd::OPERATOR,
        &yaml,
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
            branch: main
          url: https://example.com/apps
        ---
        apiVersion: helm.toolkit.fluxcd.io/v2
        kind: HelmRelease
        metadata:
          name: app
          namespace: flux-system
        spec:
          chart:
            spec:
              chart: ./chart
              sourceRef:
                kind: GitRepository
                name: app
          driftDetection:
            ignore:
            - paths:
              - /data
              target:
                kind: Secret
            mode: enabled
          install:
            crds: CreateReplace
            createNamespace: true
            disableSchemaValidation: true
          interval: 10m
          maxHistory: 5
          releaseName: app
          uninstall:
            deletionPropagation: orphan
          upgrade:
            crds: CreateReplace
            disableSchemaValidation: true
            force: true
        ! spec.syncPolicy.syncOptions: Replace=true: with spec.force objects are recreated only where a field cannot be changed (of a HelmRelease: spec.upgrade.force)
        ! spec.ignoreDifferences: these fields are not written either, as with RespectIgnoreDifferences=true
        ! GitRepository app: name a Secret in spec.secretRef if https://example.com/apps needs credentials
        ! spec.source.helm.version v2: charts are rendered as by Helm 3
        ! spec.source.helm.kubeVersion: charts are rendered with what the cluster of the release serves
        ! spec.source.helm.apiVersions: charts are rendered with what the cluster of the release serves
        ! Helm makes a release of what Argo CD had applied from the chart: its first revision takes the objects over, and runs the hooks of an install
        x spec.source.helm.fileParameters: put the contents into a ConfigMap or Secret that spec.valuesFrom names, with targetPath
    "#]],
    );
}

#[test]
fn remarks_about_manifests_are_made_once() {
    let remark_text = argocd::OPERATOR.remarks.join("\n");
    for annotation in ["hook", "sync-wave", "sync-options", "compare-options", "ignore-healthcheck"]
    {
        assert!(remark_text.contains(&format!("argocd.argoproj.io/{annotation}")), "{annotation}");
    }
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
        ! annotation fluxcd.io/automated is not converted: Flux found no image in spec.values
    "#]],
    );
}

#[test]
fn fields_that_only_the_helm_operator_has_are_reported() {
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
    let ConversionResult { obstacles, .. } = convert(&helmfile_operator::OPERATOR, &built_in);
    assert!(obstacles[0].contains("a path in the image"), "{obstacles:?}");
}
