//! Computes the digest of a plan, for callers that act only when a plan changes. Also computes the digest of the changes that a
//! release makes to its chart.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::chart_reference_resolution::normal;
use crate::chartify::ChartFileTree;
use crate::error::Result;
use crate::helmfile_host_environment::HelmfileHostEnvironment;
use crate::load::Helmfile;
use crate::plan::HelmfileProcessingPlan;
use crate::release_selector::selected;
use crate::spec::Release;
use crate::yaml;

impl HelmfileProcessingPlan {
    /// A digest of the plan's content: its helmfiles as `build` writes them, lock files, values files, patches and files of
    /// `set`. Charts count by name only.
    ///
    /// Equal files, variables and settings always give an equal digest, unless [`HelmfileProcessingPlan::drawn`] names a
    /// function.
    ///
    /// # Errors
    /// A file that a release names is not valid.
    pub fn digest(&self) -> Result<String> {
        let mut hash = Sha256::new();
        for helmfile in &self.helmfiles {
            let mut helmfile = helmfile.clone();
            helmfile.apply_lock()?;
            helmfile.digest(&self.helmfile_environment, &mut hash)?;
        }
        Ok(format!("sha256:{}", hex::encode(hash.finalize())))
    }
}

/// Adds a text with its length, so that two texts cannot be confused with one.
fn add(hash: &mut Sha256, text: &[u8]) {
    hash.update((text.len() as u64).to_be_bytes());
    hash.update(text);
}

/// Adds the files of a directory.
fn add_tree(hash: &mut Sha256, tree: &ChartFileTree) {
    hash.update((tree.len() as u64).to_be_bytes());
    for (path, content) in tree {
        add(hash, path.as_bytes());
        add(hash, content);
    }
}

impl Helmfile {
    /// A digest of the changes that a release makes to its chart: dependencies, patches, a namespace. It does not depend on the
    /// chart, and is empty without changes.
    ///
    /// # Errors
    /// A file that the release names is not valid.
    pub(crate) fn chart_changes_digest(
        &self,
        helmfile_environment: &Arc<HelmfileHostEnvironment>,
        release: &Release,
    ) -> Result<String> {
        if !self.is_chartified(release) {
            return Ok(String::new());
        }
        let mut hash = Sha256::new();
        add(&mut hash, release.force_namespace.as_bytes());
        for added in &release.dependencies {
            for text in [&added.chart, &added.version, &added.alias] {
                add(&mut hash, text.as_bytes());
            }
            let path = normal(&self.base, &added.chart);
            if self.place.is_directory(&path) {
                add_tree(&mut hash, &self.place.walk(&path)?);
            }
        }
        // The files that transformers name.
        let mut named = ChartFileTree::new();
        let lists =
            [&release.json_patches, &release.strategic_merge_patches, &release.transformers];
        for entries in lists {
            hash.update((entries.len() as u64).to_be_bytes());
            for entry in entries {
                let text = self.patch_text(helmfile_environment, release, entry)?;
                let text = text.unwrap_or_default();
                add(&mut hash, &text);
                if let Err(error) = self.with_files(text, &mut named) {
                    add(&mut hash, error.to_string().as_bytes());
                }
            }
        }
        add_tree(&mut hash, &named);
        Ok(format!("sha256:{}", hex::encode(hash.finalize())))
    }

    fn digest(
        &self,
        helmfile_environment: &Arc<HelmfileHostEnvironment>,
        hash: &mut Sha256,
    ) -> Result<()> {
        add(hash, yaml::write(&self.emit())?.as_bytes());
        for selector in &self.selectors {
            add(hash, selector.as_bytes());
        }
        let releases = selected(&self.spec.releases, &self.selectors, &self.values, true)?;
        for release in releases.into_iter().filter(Release::is_desired) {
            add(hash, release.id().as_bytes());
            let owner = format!("release \"{}\"", release.name);
            self.digest_release(helmfile_environment, &release, hash)
                .map_err(|error| error.at(&owner))?;
        }
        Ok(())
    }

    fn digest_release(
        &self,
        helmfile_environment: &Arc<HelmfileHostEnvironment>,
        release: &Release,
        hash: &mut Sha256,
    ) -> Result<()> {
        for text in self.all_values(helmfile_environment, release)? {
            add(hash, &text);
        }
        let mut flags = Vec::new();
        self.set_flags(helmfile_environment, release, &mut flags)?;
        for flag in &flags {
            add(hash, flag.as_bytes());
        }
        for set in release.set.iter().filter(|set| set.value.is_empty() && !set.file.is_empty()) {
            add(hash, &self.place.read(&self.storage().normal(&set.file))?);
        }
        let patches = release.json_patches.iter().chain(&release.strategic_merge_patches);
        for entry in patches.chain(&release.transformers) {
            add(hash, &self.patch_text(helmfile_environment, release, entry)?.unwrap_or_default());
        }
        Ok(())
    }
}
