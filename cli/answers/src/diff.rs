//! Predicts what the next reconciliation of a Kustomization or HelmRelease would change. The files come from its source, or
//! from a local folder or chart.
//!
//! Below: comparing the objects of each kind (`diff/kustomization.rs`, `diff/helm_release.rs`), changes by field
//! (`diff/predicted_changes.rs`), quarantined results (`diff/quarantine_effect.rs`). Elsewhere: building and rendering
//! (`render.rs`).

mod helm_release;
mod kustomization;
mod predicted_changes;
mod quarantine_effect;

use std::path::PathBuf;

use objects::Object;

pub use self::predicted_changes::{DiffAction, DiffChange, DiffObjectReference, DiffReport};
use super::command_scope::CommandScope;
use super::render::{self, BuildFilesOrigin, BuildableKind};
use windlass_serve::settings::OperatorSettings;

/// Predicts what the next reconciliation of an object would change, with the files of its source or with local files. `warn`
/// receives the warnings of the build before the objects are compared.
///
/// # Errors
/// The object cannot be built or compared.
pub async fn predict(
    site: &CommandScope,
    object: Object,
    local: Option<&PathBuf>,
    settings: OperatorSettings,
    warn: &mut dyn FnMut(&str),
) -> anyhow::Result<DiffReport> {
    let given = BuildFilesOrigin::of(local, &object)?;
    let cluster = &site.cluster;
    match BuildableKind::of(&object)? {
        BuildableKind::Kustomization => {
            let applied = settings.clone();
            let built =
                render::kustomization::build(cluster, object.clone(), &given, settings).await?;
            let digest = &built.desired_kustomization.digest;
            if let Some(found) = quarantine_effect::in_force(cluster, &object, digest, warn).await {
                warn(&quarantine_effect::text(&found));
                return quarantine_effect::way_back(cluster, &object, &found, applied).await;
            }
            for warning in &built.desired_kustomization.warnings {
                warn(warning);
            }
            kustomization::diff(cluster, &built).await
        }
        BuildableKind::HelmRelease => {
            let rendered =
                render::helm_release::render_release(cluster, object.clone(), &given, settings)
                    .await?;
            if let Some(inputs) = &rendered.inputs
                && let Some(found) =
                    quarantine_effect::in_force(cluster, &object, inputs, warn).await
            {
                warn(&quarantine_effect::text(&found));
                return Ok(DiffReport::default());
            }
            helm_release::diff(cluster, rendered).await
        }
    }
}
