//! Plans: all helmfiles that are reached from a file or directory, each with its releases.
//!
//! Here: loading and selecting. Elsewhere: finding the helmfiles (`helmfile_visit.rs`), printing (`print.rs`).

use std::sync::Arc;

use crate::error::{Error, PartialOutput, Result};
use crate::helmfile_host_environment::HelmfileHostEnvironment;
use crate::helmfile_visit::{HelmfileVisit, HelmfileVisitResult};
use crate::load::Helmfile;
use crate::plan_settings::HelmfilePlanSettings;
use crate::release_selector::{check_duplicates, is_enabled, selected};
use crate::spec::Release;
use crate::working_directory::WorkingDirectory;

/// Helmfiles in the order in which they are processed. Sub-helmfiles come before their parent.
pub struct HelmfileProcessingPlan {
    pub(crate) helmfile_environment: Arc<HelmfileHostEnvironment>,
    pub(crate) helmfiles: Vec<Helmfile>,
    /// Whether selectors left a helmfile unread.
    pub(crate) is_partial: bool,
    pub(crate) without_environment: Option<String>,
}

/// The identity of a release, without its other settings.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReleaseIdentity {
    /// The name of the release.
    pub name: String,
    /// The namespace of the release; empty for the namespace of the context.
    pub namespace: String,
    /// The kubeconfig context of the release; empty for the current context.
    pub kube_context: String,
}

impl HelmfileProcessingPlan {
    /// Loads the helmfiles of the settings. The working directory is given as an absolute path.
    ///
    /// Templates may include each other deeply, so call this on a thread with a stack of
    /// [`helm::render::REQUIRED_STACK_BYTES`].
    ///
    /// # Errors
    /// A helmfile, or a file that it names, is not valid.
    pub fn load(
        helmfile_environment: &Arc<HelmfileHostEnvironment>,
        directory: &str,
        settings: &HelmfilePlanSettings,
    ) -> Result<Self> {
        Self::load_until_error(helmfile_environment, directory, settings).whole()
    }

    /// Like [`HelmfileProcessingPlan::load`], but keeps the helmfiles before one that cannot be loaded. helmfile has processed
    /// these when it reports the error.
    ///
    /// # Assumes
    /// The caller does not remove releases because this incomplete plan lacks them.
    pub fn load_until_error(
        helmfile_environment: &Arc<HelmfileHostEnvironment>,
        directory: &str,
        settings: &HelmfilePlanSettings,
    ) -> PartialOutput<Self> {
        let place = WorkingDirectory::root(helmfile_environment).within(directory);
        let visited =
            place.and_then(|place| HelmfileVisit::all(helmfile_environment, settings, &place));
        let visited = visited.unwrap_or_else(|error| HelmfileVisitResult {
            helmfiles: Vec::new(),
            is_partial: true,
            without_environment: None,
            error: Some(error),
        });
        let HelmfileVisitResult { helmfiles, is_partial, without_environment, error } = visited;
        PartialOutput {
            made: Self {
                helmfile_environment: Arc::clone(helmfile_environment),
                helmfiles,
                is_partial,
                without_environment,
            },
            error,
        }
    }

    /// All releases of the helmfiles that were read, including releases that selectors or conditions leave out.
    #[must_use]
    pub fn identities(&self) -> Vec<ReleaseIdentity> {
        let of = |helmfile: &Helmfile| -> Vec<ReleaseIdentity> {
            let all = helmfile.spec.releases.iter();
            all.map(|release| helmfile.identity(release)).collect()
        };
        self.helmfiles.iter().flat_map(of).collect()
    }

    /// Whether selectors kept helmfiles from being read. Then there are more releases than
    /// [`HelmfileProcessingPlan::identities`] returns.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.is_partial
    }

    /// Whether no helmfile has the environment, so that none was read.
    #[must_use]
    pub fn lacks_environment(&self) -> bool {
        self.helmfiles.is_empty()
    }

    /// The absolute paths of the helmfiles that were read.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.helmfiles.iter().map(|helmfile| helmfile.file.as_str())
    }

    /// The first helmfile that was skipped because it lacks the environment, so that its releases are unknown. `None`
    /// if none was skipped.
    #[must_use]
    pub fn without_environment(&self) -> Option<&str> {
        self.without_environment.as_deref()
    }

    /// The functions that used the time, random numbers or programs for this plan: see [`HelmfileHostEnvironment::drawn`].
    #[must_use]
    pub fn drawn(&self) -> Vec<&'static str> {
        self.helmfile_environment.drawn()
    }

    /// The error of a command that found no release.
    #[must_use]
    pub fn nothing_matched(settings: &HelmfilePlanSettings) -> Error {
        Error::NothingMatched {
            selectors: settings.selectors.join(", "),
            environment: settings.environment.clone(),
        }
    }
}

impl Helmfile {
    /// Keeps only the releases that match the selectors. Without selectors all releases stay, even if their conditions are
    /// false.
    pub(crate) fn select(&mut self, with_needs: bool) -> Result<()> {
        if !self.selectors.is_empty() {
            self.spec.releases =
                selected(&self.spec.releases, &self.selectors, &self.values, with_needs)?;
        }
        check_duplicates(&self.spec.releases)
    }

    /// Whether the condition of a release holds. Its labels are known to match.
    pub(crate) fn is_selected(&self, release: &Release) -> Result<bool> {
        is_enabled(release, &self.values).map_err(|error| {
            Error::from(format!("failed to parse condition in release {}: {error}", release.name))
        })
    }
}
