//! The input of a plan besides its settings: files, variables, the time, randomness. The plan depends on nothing else.

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
use crate::remote::RemoteFetcher;
use crate::secrets::{HelmfileSecrets, SopsFileDecryptor};

/// A program that a template asks for.
#[derive(Debug)]
pub struct ProgramCall<'p> {
    /// Its name or path.
    pub command: &'p str,
    /// Its arguments.
    pub args: &'p [String],
    /// Variables beside those of the process.
    pub env: &'p [(String, String)],
    /// What it reads.
    pub input: &'p [u8],
    /// Where it runs, as an absolute path.
    pub directory: &'p str,
}

/// Runs programs: only on a command line, and only if a person allows it.
pub trait ProgramRunner: Send + Sync {
    /// What a program prints.
    ///
    /// # Errors
    /// It cannot be run, failed, took too long or printed too much.
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
    /// What fetches what is elsewhere; nothing is fetched without it.
    pub(crate) fetch: Option<Arc<dyn RemoteFetcher>>,
    /// What is encrypted; nothing is decrypted without keys.
    pub(crate) secrets: HelmfileSecrets,
    /// What `exec` and `envExec` may run; nothing unless they are allowed.
    pub(crate) programs: Option<Arc<dyn ProgramRunner>>,
    /// Ends builds of kustomizations.
    pub(crate) stop: StopSignal,
    /// All templates of a plan draw from one budget.
    budget: Mutex<TemplateBudget>,
    /// Functions that used the time, randomness or programs.
    drew: Mutex<BTreeSet<&'static str>>,
}

impl HelmfileHostEnvironment {
    /// An environment with files whose root is `/`, and with environment variables.
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
            secrets: HelmfileSecrets::default(),
            programs: None,
            stop,
            budget,
            drew,
        }
    }

    /// With what `--file -` reads.
    #[must_use]
    pub fn with_stdin(self, text: Arc<[u8]>) -> Self {
        Self { stdin: Some(text), ..self }
    }

    /// With what fetches what helmfiles name that is elsewhere.
    #[must_use]
    pub fn with_fetch(self, fetch: Arc<dyn RemoteFetcher>) -> Self {
        Self { fetch: Some(fetch), ..self }
    }

    /// With what decrypts files that SOPS encrypted.
    #[must_use]
    pub fn with_decrypt(mut self, decrypt: Arc<dyn SopsFileDecryptor>) -> Self {
        self.secrets.decrypt = Some(decrypt);
        self
    }

    /// With programs that templates may run.
    #[must_use]
    pub fn with_programs(self, programs: Arc<dyn ProgramRunner>) -> Self {
        Self { programs: Some(programs), ..self }
    }

    /// With a signal by which the caller ends templates.
    #[must_use]
    pub fn with_stop(self, stop: StopSignal) -> Self {
        let budget = Mutex::new(TemplateBudget::with_stop(TemplateLimits::default(), stop.clone()));
        Self { budget, stop, ..self }
    }

    /// A variable that is set, even if it is empty.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// Whether a variable is set to what Go reads as true.
    pub(crate) fn is_on(&self, name: &str) -> bool {
        self.variable(name)
            .is_some_and(|text| matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True"))
    }

    /// Whether templates may neither read files nor run programs.
    pub(crate) fn is_restricted(&self) -> bool {
        self.is_on("HELMFILE_DISABLE_INSECURE_FEATURES")
            || self.is_on("HELMFILE_DISABLE_INSECURE_TEMPLATE_FUNCTIONS")
    }

    /// The functions that templates have called so far and that used the time, randomness or programs, in order: because
    /// of them, the same files and settings can give something else next time.
    pub fn drawn(&self) -> Vec<&'static str> {
        self.drew.lock().iter().copied().collect()
    }

    /// Takes note of a function that used the time, randomness or programs.
    pub(crate) fn note(&self, function: &'static str) {
        self.drew.lock().insert(function);
    }

    /// Counts bytes that are made outside of templates.
    pub(crate) fn count(&self, bytes: usize) -> Result<()> {
        let counted = self.spend(|budget| budget.meter().bytes(bytes as u64));
        counted.map_err(|exhausted| exhausted.to_string().into())
    }

    /// Does something with the budget. Not from within a template, which has it.
    pub(crate) fn spend<T>(&self, run: impl FnOnce(&mut TemplateBudget) -> T) -> T {
        run(&mut self.budget.lock())
    }
}

impl fmt::Debug for HelmfileHostEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("now", &self.now).finish_non_exhaustive()
    }
}
