//! What a build takes beside the artifact's files: variables and keys.

use crds::kustomize::Kustomization;
use objects::Masking;
use reconcile::Outcome;

use super::substitution::Substitution;
use windlass_runtime::build::decryption::Decryption;
use windlass_runtime::reference::References;
use windlass_serve::settings::Settings;

/// The inputs of a Kustomization's build besides the files of the artifact: substitution variables and
/// decryption keys.
#[derive(Default)]
pub struct Inputs {
    pub(super) substitution: Option<Substitution>,
    pub(super) decryption: Option<Decryption>,
}

impl Inputs {
    /// Reads what a spec names.
    ///
    /// # Errors
    /// The outcome of a run that lacks some of it.
    pub async fn read(
        settings: &Settings,
        object: &Kustomization,
        references: &mut References,
    ) -> Result<Self, Outcome> {
        // All references are watched before a missing one ends the run.
        let substitution = Substitution::read(settings, object, references).await;
        let decryption = Decryption::read(settings, object, references).await;
        Ok(Self { substitution: substitution?, decryption: decryption? })
    }

    /// Names the content of all of it; empty if there is none.
    pub(super) fn digest(&self) -> String {
        let substitution = self.substitution.as_ref().map(|it| it.digest.as_str());
        let decryption = self.decryption.as_ref().map(|it| it.digest.as_str());
        match (substitution, decryption) {
            (None, None) => String::new(),
            (Some(one), None) | (None, Some(one)) => one.to_owned(),
            (Some(one), Some(other)) => format!("{one} {other}"),
        }
    }

    /// The values that no status, event or log may show.
    pub(super) fn secrets(&self) -> Masking {
        self.substitution.as_ref().map(|it| it.secrets.clone()).unwrap_or_default()
    }
}
