//! `windlass check`: whether a cluster can have windlass, whether it is there and works, and what to do where not.

use std::process::ExitCode;

use apply::health;
use clap::Args as ClapArgs;
use golang::semver::Version;
use objects::{Gvk, Object};
use serde_json::Value;

use super::connection::{Connection, Mark, block_on, say};
use super::install::name;
use crate::cluster::Cluster;
use crate::cluster::candidate::REPLACED;

/// The oldest Kubernetes that is supported, with its pre-releases. Parity(flux 2.9): the same.
const OLDEST: &str = "1.33.0-0";
/// Selects what belongs to windlass.
pub(super) const OURS: &str = "app.kubernetes.io/name=windlass";

/// The flags of `windlass check`.
#[derive(Debug, Clone, ClapArgs)]
pub(super) struct Args {
    #[command(flatten)]
    connection: Connection,
    /// Check only what an installation requires
    #[arg(long)]
    pre: bool,
}

/// Counts what is not as it should be, and says each.
#[derive(Debug, Default)]
struct Findings(usize);

impl Findings {
    fn fail(&mut self, text: &str) {
        self.0 += 1;
        say(Mark::Failure, text);
    }
}

/// Checks a cluster; the status says whether all is well.
///
/// # Errors
/// The cluster cannot be reached.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let found = block_on(async {
        let mut findings = Findings::default();
        say(Mark::Action, "checking prerequisites");
        let (cluster, version) = args.connection.open().await?;
        match is_supported(&version) {
            Ok(()) => say(Mark::Success, &format!("Kubernetes {version} >={OLDEST}")),
            Err(error) => findings.fail(&error.to_string()),
        }
        rights(&cluster, &mut findings).await;
        if !args.pre {
            let namespace = &args.connection.namespace;
            workloads(&cluster, namespace, &mut findings).await;
            definitions(&cluster, &mut findings).await;
            others(&cluster, namespace).await;
        }
        Ok(findings)
    })?;
    if found.0 == 0 {
        say(Mark::Success, "all checks passed");
        return Ok(ExitCode::SUCCESS);
    }
    say(Mark::Failure, &format!("{} check(s) failed", found.0));
    Ok(ExitCode::FAILURE)
}

/// Whether a version of Kubernetes is supported.
///
/// # Errors
/// It is too old; names the oldest.
pub(super) fn is_supported(version: &str) -> anyhow::Result<()> {
    let oldest = Version::parse(OLDEST);
    match (Version::parse(version), oldest) {
        (Ok(found), Ok(oldest)) if found < oldest => {
            anyhow::bail!(
                "Kubernetes {version} is too old: {OLDEST} or newer is required; upgrade the cluster"
            )
        }
        (Ok(_), _) => Ok(()),
        (Err(error), _) => {
            anyhow::bail!("the version of Kubernetes, {version}, cannot be read: {error}")
        }
    }
}

/// Whether this user may install: CRDs and ClusterRoleBindings are the rights that are missing most often.
async fn rights(cluster: &Cluster, findings: &mut Findings) {
    let wanted = [
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        ("rbac.authorization.k8s.io", "clusterrolebindings"),
        ("apps", "deployments"),
    ];
    for (group, resource) in wanted {
        match cluster.may("create", group, resource).await {
            Ok(true) => say(Mark::Success, &format!("this user can create {resource}")),
            Ok(false) => findings.fail(&format!(
                "this user cannot create {resource}.{group}: use a kubeconfig of a cluster administrator"
            )),
            Err(error) => findings.fail(&format!("cannot tell whether {resource} can be created: {error}")),
        }
    }
}

/// Whether the program runs.
async fn workloads(cluster: &Cluster, namespace: &str, findings: &mut Findings) {
    say(Mark::Action, "checking windlass");
    let mut is_there = false;
    for kind in ["Deployment", "StatefulSet"] {
        for object in list(cluster, &Gvk::new("apps/v1", kind), namespace, OURS, findings).await {
            is_there = true;
            let (id, images) = (name(&object), images(&object));
            match health::compute(&object, jiff::Timestamp::now()) {
                Ok(report) if report.is_current() => say(Mark::Success, &format!("{id} ready: {images}")),
                Ok(report) => findings.fail(&format!(
                    "{id} not ready: {}; `kubectl -n {namespace} describe pods -l {OURS}` shows why", report.message
                )),
                Err(error) => findings.fail(&format!("{id}: {error}")),
            }
        }
    }
    if !is_there {
        findings.fail(&format!("windlass is not in namespace {namespace}: run `windlass install`, or name its namespace with -n"));
    }
}

fn images(object: &Object) -> String {
    let containers = object.get("spec").map(|spec| &spec["template"]["spec"]["containers"]);
    let containers = containers.and_then(Value::as_array).into_iter().flatten();
    let images: Vec<&str> = containers.filter_map(|it| it["image"].as_str()).collect();
    images.join(", ")
}

/// Whether every CRD is there, served in the version that this program uses.
async fn definitions(cluster: &Cluster, findings: &mut Findings) {
    say(Mark::Action, "checking CRDs");
    let gvk = Gvk::new("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    for (_, wanted) in crds::all() {
        let id = wanted.metadata.name.clone().unwrap_or_default();
        let wants: Vec<&str> = wanted.spec.versions.iter().map(|it| it.name.as_str()).collect();
        let found = match cluster.resource(&gvk).await {
            Ok(resource) => cluster.get(&resource, "", &id).await,
            Err(error) => Err(error),
        };
        let served = |crd: &Object, version: &str| {
            let versions = crd.get("spec").and_then(|spec| spec["versions"].as_array());
            let mut versions = versions.into_iter().flatten();
            versions.any(|it| it["name"] == version && it["served"] == true)
        };
        match found {
            Ok(Some(crd)) if wants.iter().all(|version| served(&crd, version)) => {
                say(Mark::Success, &format!("{id}/{}", wants.join(",")));
            }
            Ok(Some(_)) => findings
                .fail(&format!("{id} does not serve {}: run `windlass install`", wants.join(","))),
            Ok(None) => findings.fail(&format!("{id} is missing: run `windlass install`")),
            Err(error) => findings.fail(&format!("{id}: {error}")),
        }
    }
}

/// Controllers beside which windlass does not act.
async fn others(cluster: &Cluster, namespace: &str) {
    say(Mark::Action, "checking other operators");
    let mut ignored = Findings::default();
    let gvk = Gvk::new("apps/v1", "Deployment");
    let flux = "app.kubernetes.io/part-of=flux";
    let found = list(cluster, &gvk, namespace, flux, &mut ignored).await;
    let is_active = |it: &&Object| {
        let replicas = it.get("spec").and_then(|spec| spec["replicas"].as_i64()).unwrap_or(1);
        REPLACED.contains(&it.name()) && replicas > 0
    };
    let active: Vec<String> = found.iter().filter(is_active).map(name).collect();
    if active.is_empty() && ignored.0 == 0 {
        say(Mark::Success, "no controller of Flux works on the same objects");
    }
    for id in active {
        say(
            Mark::Warning,
            &format!(
                "{id} is active, so windlass waits: scale it to zero to let windlass take over"
            ),
        );
    }
}

/// Objects of a kind that a selector matches; a failure is said.
async fn list(
    cluster: &Cluster,
    gvk: &Gvk,
    namespace: &str,
    selector: &str,
    findings: &mut Findings,
) -> Vec<Object> {
    let listed = match cluster.resource(gvk).await {
        Ok(resource) => cluster.list(&resource, namespace, selector).await,
        Err(error) => Err(error),
    };
    listed.unwrap_or_else(|error| {
        findings.fail(&format!("cannot list {}s: {error}", gvk.kind));
        Vec::new()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubernetes_is_supported_from_the_oldest_version_on() {
        for version in ["v1.33.0", "v1.33.0-rc.1", "v1.36.2+k3s1", "v1.34.1-gke.100"] {
            assert!(is_supported(version).is_ok(), "{version}");
        }
        let error = is_supported("v1.32.9").unwrap_err().to_string();
        assert!(error.contains("v1.32.9 is too old: 1.33.0-0 or newer"), "{error}");
        assert!(is_supported("latest").is_err());
    }
}
