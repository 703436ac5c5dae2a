//! Plans: all helmfiles that a file or directory leads to, each with its releases.
//!
//! Here: loading and selecting. Elsewhere: visiting (`helmfile_visit.rs`), what commands print (`print.rs`).

use std::sync::Arc;

use crate::error::{Error, PartialOutput, Result};
use crate::helmfile_host_environment::HelmfileHostEnvironment;
use crate::helmfile_visit::{HelmfileVisit, HelmfileVisitResult};
use crate::load::Helmfile;
use crate::plan_settings::HelmfilePlanSettings;
use crate::release_selector::{check_duplicates, is_enabled, selected};
use crate::spec::Release;
use crate::working_directory::WorkingDirectory;

/// Helmfiles in the order in which they are processed: those below a helmfile come before it.
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
    /// Its name.
    pub name: String,
    /// Its namespace; empty for that of the context.
    pub namespace: String,
    /// Its context; empty for the current one.
    pub kube_context: String,
}

impl HelmfileProcessingPlan {
    /// Loads what the settings name, seen from a working directory, which is an absolute path.
    ///
    /// Templates may include each other deeply: call this on a thread with a stack of [`helm::render::REQUIRED_STACK_BYTES`].
    ///
    /// # Errors
    /// What is wrong with a helmfile, or with a file that it names.
    pub fn load(
        helmfile_environment: &Arc<HelmfileHostEnvironment>,
        directory: &str,
        settings: &HelmfilePlanSettings,
    ) -> Result<Self> {
        Self::load_until_error(helmfile_environment, directory, settings).whole()
    }

    /// [`HelmfileProcessingPlan::load`], with the helmfiles before one that cannot be loaded: helmfile has done these
    /// by then.
    ///
    /// # Assumes
    /// Nothing is removed because this plan lacks it.
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

    /// All releases of the helmfiles that were read, also those that selectors or conditions leave out.
    #[must_use]
    pub fn identities(&self) -> Vec<ReleaseIdentity> {
        let of = |helmfile: &Helmfile| -> Vec<ReleaseIdentity> {
            let all = helmfile.spec.releases.iter();
            all.map(|release| helmfile.identity(release)).collect()
        };
        self.helmfiles.iter().flat_map(of).collect()
    }

    /// Whether selectors left helmfiles unread, so that there are more releases than
    /// [`HelmfileProcessingPlan::identities`].
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

    /// The first helmfile that was skipped because it lacks the environment that others have: what it has is not known.
    #[must_use]
    pub fn without_environment(&self) -> Option<&str> {
        self.without_environment.as_deref()
    }

    /// The functions that used the time, randomness or programs while the plan was made, in order: see [`HelmfileHostEnvironment::drawn`].
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
    /// Keeps the releases that match the selectors; without selectors all of them, even if their conditions are false.
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
