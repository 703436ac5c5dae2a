//! Reads the inputs of a build that are not in the artifact: variables and decryption keys.

use std::collections::BTreeSet;

use crds::kustomize::Kustomization;
use objects::SecretMasking;
use reconcile::RunOutcome;

use super::substitution::PostBuildSubstitution;
use windlass_cluster::referenced_secrets_and_config_maps::RunReferenceReads;
use windlass_runtime::shared_build_parts::decryption::BuildDecryptionKeys;
use windlass_serve::settings::OperatorSettings;

/// The inputs of a Kustomization's build besides the files of the artifact: substitution variables and
/// decryption keys.
#[derive(Default)]
pub struct KustomizationInputs {
    pub(super) substitution: Option<PostBuildSubstitution>,
    pub(super) decryption: Option<BuildDecryptionKeys>,
    /// Whether encrypted objects stay encrypted, because no key is known. Otherwise they end the build.
    pub(super) keeps_encrypted: bool,
}

impl KustomizationInputs {
    /// Reads the substitution variables and decryption keys that a spec names.
    ///
    /// # Errors
    /// The outcome of a run without one of the inputs.
    pub async fn read(
        settings: &OperatorSettings,
        object: &Kustomization,
        references: &mut RunReferenceReads,
    ) -> Result<Self, RunOutcome> {
        // All references are watched before a missing one ends the run.
        let substitution = PostBuildSubstitution::read(settings, object, references).await;
        let decryption = BuildDecryptionKeys::read(settings, object, references).await;
        Ok(Self { substitution: substitution?, decryption: decryption?, keeps_encrypted: false })
    }

    /// Reads the inputs of a spec from manifests instead of a cluster. Variables without a known value stay as they are
    /// written ([`Self::unknown_variables`]), and nothing is decrypted.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub async fn of_manifests(
        settings: &OperatorSettings,
        object: &Kustomization,
        references: &mut RunReferenceReads,
    ) -> Result<Self, RunOutcome> {
        let substitution = PostBuildSubstitution::read(settings, object, references).await?;
        Ok(Self { substitution, decryption: None, keeps_encrypted: true })
    }

    /// The variables that builds with these inputs asked for, and whose values are not known.
    pub fn unknown_variables(&self) -> BTreeSet<String> {
        self.substitution.as_ref().map(PostBuildSubstitution::unknown).unwrap_or_default()
    }

    /// A string that names the content of all inputs; empty if there are none.
    pub fn digest(&self) -> String {
        let substitution = self.substitution.as_ref().map(|it| it.digest.as_str());
        let decryption = self.decryption.as_ref().map(|it| it.digest.as_str());
        match (substitution, decryption) {
            (None, None) => String::new(),
            (Some(one), None) | (None, Some(one)) => one.to_owned(),
            (Some(one), Some(other)) => format!("{one} {other}"),
        }
    }

    /// The same inputs with a placeholder as the value of each variable.
    pub(super) fn without_values(self) -> Self {
        let substitution = self.substitution.map(PostBuildSubstitution::without_values);
        Self { substitution, ..self }
    }

    /// The values that no status, event or log may show.
    pub(super) fn secrets(&self) -> SecretMasking {
        self.substitution.as_ref().map(|it| it.secrets.clone()).unwrap_or_default()
    }
}
