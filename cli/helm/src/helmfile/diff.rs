//! `windlass helmfile diff`: shows what an upgrade of each release would change in its cluster.
//!
//! Here: connecting to clusters, rendering for them, the steps. Below: the output (`diff/format.rs`), the prediction
//! (`diff/preview.rs`).

mod format;
mod preview;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use golang::work_meter::StopSignal;
use helmfile::{
    HelmfileProcessingPlan, HelmfileReleaseToRender, HelmfileReleasesToRender, PrintOutput,
};
use objects::{Object, SecretMasking};
use release::ReleaseRecord;

use super::flags::{HelmfileDiffFlags, HelmfileFlags};
use super::{FolderChartRenderer, HelmfileCommandEnd, HelmfileCommandOutcome, rendered};
use crate::template;
use format::DiffDisplayOptions;
use preview::{ObjectPreview, preview, stored};
use windlass_cli_runtime::connection::{block_on, connected};
use windlass_cluster::ClusterConnection;
use windlass_cluster::capabilities::ServerCapabilities;
use windlass_cluster::client::ClusterAccessOptions;

/// Compares the releases of a plan with their clusters.
///
/// Differs(helmfile 1.8): objects are compared with those in the cluster rather than with the stored revision alone, and
/// hooks are left out, because most of them are deleted once they have run.
pub(super) fn run(
    plan: HelmfileProcessingPlan,
    given: &HelmfileDiffFlags,
    flags: &HelmfileFlags,
    stop: &StopSignal,
) -> Result<HelmfileCommandOutcome, String> {
    let all = plan.renderings(&given.options(flags), &FolderChartRenderer(stop));
    let all = all.map_err(|error| error.to_string())?;
    let mut printed = PrintOutput {
        warnings: all.warnings.clone(),
        has_releases: all.has_releases,
        ..PrintOutput::default()
    };
    let mut affected = Vec::new();
    let mut clusters =
        ClustersByContext { kubeconfig: flags.kubeconfig.as_deref(), known: BTreeMap::new() };
    let work = compare_all(&all, given, stop, &mut clusters, &mut printed, &mut affected);
    block_on(work).map_err(|error| format!("{error:#}"))?;
    affected.sort();
    let summary = match affected.is_empty() {
        true => "No affected releases\n".to_owned(),
        false => format!("Affected releases are:\n{}\n", affected.join("\n")),
    };
    let has_changed = given.detailed_exitcode && !affected.is_empty();
    let ending = if has_changed { HelmfileCommandEnd::Changed } else { HelmfileCommandEnd::Done };
    Ok(HelmfileCommandOutcome { printed, summary, ending })
}

async fn compare_all(
    all: &HelmfileReleasesToRender,
    given: &HelmfileDiffFlags,
    stop: &StopSignal,
    clusters: &mut ClustersByContext<'_>,
    printed: &mut PrintOutput,
    affected: &mut Vec<String>,
) -> anyhow::Result<()> {
    for release in &all.releases {
        let HelmfileReleaseToRender { name, shown, .. } = release;
        let place = clusters.of(&release.kube_context, &release.namespace).await?;
        let text = place.changed(release, given, stop).await;
        if let Some(text) = text.with_context(|| format!("release \"{name}\""))? {
            printed.text.push_str(&text);
            affected.push(format!("  {name} ({shown}) UPDATED"));
        }
    }
    for release in &all.unwanted {
        let place = clusters.of(&release.kube_context, &release.namespace).await?;
        let name = &release.name;
        let text = place.removed(name, given).await;
        if let Some(text) = text.with_context(|| format!("release \"{name}\""))? {
            printed.text.push_str(&text);
            affected.push(format!("  {name} ({}) DELETED", release.shown));
        }
    }
    Ok(())
}

/// The connections to clusters, by the contexts that releases name.
struct ClustersByContext<'f> {
    kubeconfig: Option<&'f str>,
    known: BTreeMap<String, (ClusterConnection, Arc<ServerCapabilities>)>,
}

/// The cluster and the namespace of a release.
struct ReleaseClusterLocation {
    cluster: ClusterConnection,
    served: Arc<ServerCapabilities>,
    namespace: String,
}

impl ClustersByContext<'_> {
    async fn of(
        &mut self,
        context: &str,
        namespace: &str,
    ) -> anyhow::Result<ReleaseClusterLocation> {
        let namespace = template::namespace(namespace, self.kubeconfig, context);
        if let Some((cluster, served)) = self.known.get(context) {
            let cluster = cluster.clone();
            let served = Arc::clone(served);
            return Ok(ReleaseClusterLocation { cluster, served, namespace });
        }
        let access = ClusterAccessOptions {
            kubeconfig: self.kubeconfig.map(Path::new),
            context: Some(context).filter(|name| !name.is_empty()),
            ..ClusterAccessOptions::default()
        };
        let (cluster, _) = connected(access).await?;
        let served = cluster.served().await?;
        self.known.insert(context.to_owned(), (cluster.clone(), Arc::clone(&served)));
        Ok(ReleaseClusterLocation { cluster, served, namespace })
    }
}

impl ReleaseClusterLocation {
    /// The changes of a release's upgrade, as text. `None` if it changes nothing.
    async fn changed(
        &self,
        release: &HelmfileReleaseToRender,
        given: &HelmfileDiffFlags,
        stop: &StopSignal,
    ) -> anyhow::Result<Option<String>> {
        let record = stored(&self.cluster, &release.name, &self.namespace).await?;
        if record.is_none() && given.skip_diff_on_install {
            return Ok(Some(format!("release \"{}\" would be installed\n", release.name)));
        }
        let mut release = release.clone();
        self.adapt(&mut release.flags, record.is_some());
        let manifest = rendered(&release, stop).map_err(|error| anyhow!(error))?;
        let manifest = String::from_utf8_lossy(&manifest);
        self.change_text(&release.name, record.as_deref(), &manifest, given).await
    }

    /// The objects that the removal of a release would delete, as text. `None` if the release has no record.
    async fn removed(
        &self,
        name: &str,
        given: &HelmfileDiffFlags,
    ) -> anyhow::Result<Option<String>> {
        match stored(&self.cluster, name, &self.namespace).await? {
            Some(record) => {
                let text = self.change_text(name, Some(&record), "", given).await?;
                Ok(Some(text.unwrap_or_default()))
            }
            None => Ok(None),
        }
    }

    /// Adds flags with properties of the cluster, unless the helmfile sets them.
    fn adapt(&self, flags: &mut Vec<String>, is_upgrade: bool) {
        let has = |flags: &[String], name: &str| flags.iter().any(|flag| flag == name);
        if !has(flags, "--kube-version") {
            flags.extend(["--kube-version".to_owned(), self.served.version.clone()]);
        }
        for version in &self.served.api_versions {
            flags.extend(["--api-versions".to_owned(), version.clone()]);
        }
        if !has(flags, "--namespace") {
            flags.extend(["--namespace".to_owned(), self.namespace.clone()]);
        }
        if is_upgrade {
            flags.push("--is-upgrade".to_owned());
        }
    }

    async fn change_text(
        &self,
        name: &str,
        record: Option<&ReleaseRecord>,
        manifest: &str,
        given: &HelmfileDiffFlags,
    ) -> anyhow::Result<Option<String>> {
        let changes = preview(&self.cluster, record, name, &self.namespace, manifest).await;
        // The API server quotes values in its errors, so they have to be masked.
        let changes =
            changes.map_err(|error| anyhow!(secrets(manifest).mask(&error.to_string())))?;
        let look = DiffDisplayOptions {
            namespace: &self.namespace,
            context: given.context,
            reveals: given.show_secrets,
            suppressed: &given.suppress,
            suppresses_secrets: given.suppress_secrets,
        };
        let shown: Vec<String> = changes
            .into_iter()
            .filter_map(|ObjectPreview { id, before, after }| {
                look.text(&id, before, after).transpose()
            })
            .collect::<anyhow::Result<_>>()?;
        Ok((!shown.is_empty()).then(|| shown.concat()))
    }
}

/// The secret values in a text of manifests.
fn secrets(manifest: &str) -> SecretMasking {
    let read =
        objects::manifest::read("manifest", manifest.as_bytes(), &goyaml::YamlLimits::default());
    let read = read.unwrap_or_default();
    let objects: Vec<Object> = read.into_iter().map(|located| located.object).collect();
    SecretMasking::default().with_manifests(&objects)
}
