//! Upgrades in which the client merges the objects. windlass merges changes of others in the same way as both versions of the
//! standard `helm`.
//!
//! Elsewhere: results of Kubernetes' merge library, kind by kind (`engines/apply/src/three_way_merge.rs`).

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use e2e::certificate_authority::TestCertificateAuthority;
use e2e::harness::charts_and_helm_releases::StoryChartRepository;
use e2e::harness::flux_objects::DEFAULT_WAIT_TIMEOUT;
use e2e::harness::{Story, StoryObject};
use serde_json::{Value, json};

/// The API server never calls these webhooks, because they match no existing object.
const WEBHOOKS_TEMPLATE: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata:
  name: {{ .Release.Namespace }}-{{ .Release.Name }}
webhooks:
- name: first.windlass.dev
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Ignore
  timeoutSeconds: {{ if eq .Chart.Version \"1.0.0\" }}1{{ else }}2{{ end }}
  clientConfig: {url: \"https://127.0.0.1:1/first\"}
  rules:
  - {apiGroups: [none.windlass.dev], apiVersions: [v1], operations: [CREATE], resources: [nothings]}
{{- if eq .Chart.Version \"1.0.0\" }}
- name: second.windlass.dev
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Ignore
  clientConfig: {url: \"https://127.0.0.1:1/second\"}
  rules:
  - {apiGroups: [none.windlass.dev], apiVersions: [v1], operations: [CREATE], resources: [nothings]}
{{- end }}
";

const ACCOUNT_TEMPLATE: &str = "
apiVersion: v1
kind: ServiceAccount
metadata: {name: {{ .Release.Name }}}
secrets: [{name: own}]
imagePullSecrets:
- name: own
- name: {{ if eq .Chart.Version \"1.0.0\" }}former{{ else }}later{{ end }}
";

/// The Deployment has no Pods.
const DEPLOYMENT_TEMPLATE: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}}
spec:
  replicas: 0
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: {{ .Release.Name }}}}
    spec:
      containers: [{name: main, image: \"example.com/app:{{ .Chart.Version }}\"}]
      topologySpreadConstraints:
      - topologyKey: kubernetes.io/hostname
        maxSkew: {{ if eq .Chart.Version \"1.0.0\" }}1{{ else }}2{{ end }}
        whenUnsatisfiable: ScheduleAnyway
        labelSelector: {matchLabels: {app: {{ .Release.Name }}}}
";

const RBAC: &str = "rbac.authorization.k8s.io/v1";

const CHART_FILES: [(&str, &str); 3] = [
    ("templates/account.yaml", ACCOUNT_TEMPLATE),
    ("templates/deployment.yaml", DEPLOYMENT_TEMPLATE),
    ("templates/webhooks.yaml", WEBHOOKS_TEMPLATE),
];

/// The objects of a release.
fn objects(story: &Story, release: &str) -> [StoryObject; 3] {
    let webhooks = format!("{}-{release}", story.namespace);
    [
        StoryObject::new(
            "admissionregistration.k8s.io/v1",
            "ValidatingWebhookConfiguration",
            &webhooks,
        ),
        StoryObject::new("v1", "ServiceAccount", release),
        StoryObject::new("apps/v1", "Deployment", release),
    ]
}

/// Changes the objects of a release in the same way as other clients.
async fn inject(story: &Story, release: &str, bundle: &str) -> Result<()> {
    let [webhooks, account, deployment] = objects(story, release);
    let mut all = story.expect(&webhooks).await?.data["webhooks"].clone();
    all[0]["clientConfig"]["caBundle"] = json!(bundle);
    story.merge(&webhooks, json!({"webhooks": all})).await?;

    let named = |name: &str| json!({"name": name});
    let secrets = ["own", "token"].map(named);
    let pull_secrets = ["registry", "own", "former"].map(named);
    let patch = json!({"secrets": secrets, "imagePullSecrets": pull_secrets});
    story.merge(&account, patch).await?;

    let live = story.expect(&deployment).await?;
    let template = &live.data["spec"]["template"]["spec"];
    let mut constraints = template["topologySpreadConstraints"].clone();
    let zones = json!({"topologyKey": "topology.kubernetes.io/zone", "maxSkew": 1,
        "whenUnsatisfiable": "ScheduleAnyway"});
    constraints.as_array_mut().context("the chart has constraints")?.push(zones);
    let patch = json!({"spec": {"template": {"spec": {"topologySpreadConstraints": constraints}}}});
    story.merge(&deployment, patch).await?;
    Ok(())
}

/// Creates a ServiceAccount with all rights, because windlass itself may not write webhooks.
async fn administrator(story: &Story) -> Result<&'static str> {
    const NAME: &str = "administrator";
    let metadata = json!({"name": NAME});
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata});
    story.apply_value(account).await?;
    let namespace = &story.namespace;
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"});
    let binding = json!({"apiVersion": RBAC, "kind": "ClusterRoleBinding",
        "metadata": {"name": namespace}, "roleRef": role,
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": namespace}]});
    story.apply_value(binding).await?;
    Ok(NAME)
}

/// The live objects of a release, without metadata and status, and with the release name replaced.
async fn live(story: &Story, release: &str) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for target in objects(story, release) {
        let mut data = story.expect(&target).await?.data;
        if let Some(fields) = data.as_object_mut() {
            fields.remove("status");
        }
        all.push(serde_json::from_str(&data.to_string().replace(release, "RELEASE"))?);
    }
    Ok(all)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_changed_is_merged_as_both_helms_merge_it() -> Result<()> {
    let story = Story::with_windlass("release-merges").await?;
    let charts = StoryChartRepository::of(&story).await?;
    charts.publish("1.0.0", &CHART_FILES).await?;
    let url = charts.server.url();
    let first = ["app", "--repo", &url, "--version", "1.0.0"];
    story.helm_says(
        &[&["install", "by-helm-four"][..], &first, &["--server-side=false"]].concat(),
    )?;
    story.helm3(&[&["install", "by-helm-three"][..], &first].concat())?;
    let account = administrator(&story).await?;
    let spec = json!({"install": {"serverSideApply": false}, "serviceAccountName": account});
    let ours = charts.release("by-windlass", spec).await?;
    story.await_revision(&ours, 1).await?;

    let bundle = STANDARD.encode(TestCertificateAuthority::generate()?.certificate());
    let releases = ["by-helm-four", "by-helm-three", "by-windlass"];
    for release in releases {
        inject(&story, release, &bundle).await?;
    }
    charts.publish("2.0.0", &CHART_FILES).await?;
    let second = ["app", "--repo", &url, "--version", "2.0.0"];
    story.helm_says(&[&["upgrade", "by-helm-four"][..], &second].concat())?;
    story.helm3(&[&["upgrade", "by-helm-three"][..], &second].concat())?;
    story.await_revision(&ours, 2).await?;
    let metadata = story.helm_says(&["get", "metadata", "by-helm-four"])?;
    ensure!(metadata.contains("client-side apply"), "{metadata}");

    let merged = live(&story, "by-windlass").await?;
    for release in ["by-helm-four", "by-helm-three"] {
        let wanted = live(&story, release).await?;
        ensure!(merged == wanted, "{release} has {wanted:#?}, and by-windlass {merged:#?}");
    }
    // The objects are merged, and neither replaced nor left unchanged.
    let [webhooks, account, deployment] = merged.as_slice() else { bail!("{merged:?}") };
    let webhook = &webhooks["webhooks"][0];
    ensure!(webhook["clientConfig"]["caBundle"] == bundle && webhook["timeoutSeconds"] == 2);
    ensure!(webhooks["webhooks"].as_array().is_some_and(|all| all.len() == 1), "{webhooks}");
    // Kubernetes declares `secrets` as a list that is merged, and `imagePullSecrets` as one that is replaced.
    ensure!(account["secrets"].to_string().contains("token"), "{account}");
    ensure!(
        account["imagePullSecrets"] == json!([{"name": "own"}, {"name": "later"}]),
        "{account}"
    );
    let constraints = &deployment["spec"]["template"]["spec"]["topologySpreadConstraints"];
    ensure!(constraints.as_array().is_some_and(|all| all.len() == 2), "{constraints}");
    for release in releases {
        let [webhooks, ..] = objects(&story, release);
        story.delete(&webhooks).await?;
    }
    story.delete(&ours).await?;
    story.await_gone(&ours, DEFAULT_WAIT_TIMEOUT).await?;
    story.delete(&StoryObject::new(RBAC, "ClusterRoleBinding", &story.namespace)).await?;
    story.end().await
}
