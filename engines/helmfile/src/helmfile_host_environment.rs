//! All inputs of a plan besides its settings: files, variables, the time, random numbers. The plan depends on nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use golang::time::{GoTime, GoTimeZone};
use golang::work_meter::StopSignal;
use gotemplate::{TemplateBudget, TemplateLimits};
use parking_lot::Mutex;
use tree::FileTree;

pub use sprig::RandomFill;

use crate::error::Result;
use crate::remote_address::RemoteFetcher;
use crate::secrets::{SopsDecryptionCache, SopsFileDecryptor};

/// A program that a template wants to run.
#[derive(Debug)]
pub struct ProgramCall<'p> {
    /// The name or path of the program.
    pub command: &'p str,
    /// The arguments of the program.
    pub args: &'p [String],
    /// Environment variables in addition to those of the process.
    pub env: &'p [(String, String)],
    /// The standard input of the program.
    pub input: &'p [u8],
    /// The working directory, as an absolute path.
    pub directory: &'p str,
}

/// Runs programs. It exists only on a command line, and only if the user allows it.
pub trait ProgramRunner: Send + Sync {
    /// Runs a program and returns its output.
    ///
    /// # Errors
    /// The program cannot be run, failed, took too long, or printed too much.
    fn run(&self, program: &ProgramCall<'_>) -> Result<Vec<u8>, String>;
}

/// The environment in which templates of helmfiles run. Each plan has its own.
pub struct HelmfileHostEnvironment {
    pub(crate) files: Arc<dyn FileTree + Send + Sync>,
    pub(crate) variables: BTreeMap<String, String>,
    pub(crate) now: GoTime,
    pub(crate) local: GoTimeZone,
    pub(crate) random: Arc<RandomFill>,
    pub(crate) stdin: Option<Arc<[u8]>>,
    /// Fetches remote files and charts. Without it, nothing is fetched.
    pub(crate) fetch: Option<Arc<dyn RemoteFetcher>>,
    /// Decrypts secrets. Without keys, nothing is decrypted.
    pub(crate) secrets: SopsDecryptionCache,
    /// Runs programs for `exec` and `envExec`. Without it, no program is run.
    pub(crate) programs: Option<Arc<dyn ProgramRunner>>,
    /// Ends builds of kustomizations.
    pub(crate) stop: StopSignal,
    /// The budget that all templates of a plan share.
    budget: Mutex<TemplateBudget>,
    /// Functions that used the time, randomness or programs.
    drew: Mutex<BTreeSet<&'static str>>,
}

impl HelmfileHostEnvironment {
    /// Creates an environment with environment variables, and with files whose root is `/`.
    pub fn new(
        files: Arc<dyn FileTree + Send + Sync>,
        variables: BTreeMap<String, String>,
        now: GoTime,
        local: GoTimeZone,
        random: Arc<RandomFill>,
    ) -> Self {
        let budget = Mutex::new(TemplateBudget::new(TemplateLimits::default()));
        let stop = StopSignal::default();
        let drew = Mutex::default();
        Self {
            files,
            variables,
            now,
            local,
            random,
            stdin: None,
            fetch: None,
            secrets: SopsDecryptionCache::default(),
            programs: None,
            stop,
            budget,
            drew,
        }
    }

    /// Adds the text that `--file -` reads.
    #[must_use]
    pub fn with_stdin(self, text: Arc<[u8]>) -> Self {
        Self { stdin: Some(text), ..self }
    }

    /// Adds a fetcher for remote files and charts.
    #[must_use]
    pub fn with_fetch(self, fetch: Arc<dyn RemoteFetcher>) -> Self {
        Self { fetch: Some(fetch), ..self }
    }

    /// Adds a decryptor for files that SOPS encrypted.
    #[must_use]
    pub fn with_decrypt(mut self, decrypt: Arc<dyn SopsFileDecryptor>) -> Self {
        self.secrets.decrypt = Some(decrypt);
        self
    }

    /// Adds a runner for programs in templates.
    #[must_use]
    pub fn with_programs(self, programs: Arc<dyn ProgramRunner>) -> Self {
        Self { programs: Some(programs), ..self }
    }

    /// Adds a signal with which the caller stops templates.
    #[must_use]
    pub fn with_stop(self, stop: StopSignal) -> Self {
        let budget = Mutex::new(TemplateBudget::with_stop(TemplateLimits::default(), stop.clone()));
        Self { budget, stop, ..self }
    }

    /// The value of an environment variable that is set, even if it is empty. `None` if it is not set.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// Whether a variable is set to a value that Go reads as true.
    pub(crate) fn is_on(&self, name: &str) -> bool {
        self.variable(name)
            .is_some_and(|text| matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True"))
    }

    /// Whether templates are forbidden to read files and run programs.
    pub(crate) fn is_restricted(&self) -> bool {
        self.is_on("HELMFILE_DISABLE_INSECURE_FEATURES")
            || self.is_on("HELMFILE_DISABLE_INSECURE_TEMPLATE_FUNCTIONS")
    }

    /// The functions that used the time, random numbers or programs, in the order of their calls. Because of them, the same
    /// files and settings can give another result next time.
    pub fn drawn(&self) -> Vec<&'static str> {
        self.drew.lock().iter().copied().collect()
    }

    /// Takes note of a function that used the time, randomness or programs.
    pub(crate) fn note(&self, function: &'static str) {
        self.drew.lock().insert(function);
    }

    /// Counts bytes that are created outside of templates.
    pub(crate) fn count(&self, bytes: usize) -> Result<()> {
        let counted = self.spend(|budget| budget.meter().bytes(bytes as u64));
        counted.map_err(|exhausted| exhausted.to_string().into())
    }

    /// Uses the budget. Do not call this from within a template, because the template holds the budget.
    pub(crate) fn spend<T>(&self, run: impl FnOnce(&mut TemplateBudget) -> T) -> T {
        run(&mut self.budget.lock())
    }
}

impl fmt::Debug for HelmfileHostEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("now", &self.now).finish_non_exhaustive()
    }
}
