//! Loads one helmfile: turns its text into settings, with its parts, bases and environments.
//!
//! Elsewhere: merging (`go_struct_field.rs`, `state_values_merge.rs`), values of environments (`environment_values.rs`), releases
//! (`release.rs`), sub-helmfiles (`helmfile_visit.rs`).

use std::sync::Arc;

use serde_json::Value;

use crate::environment_values::ValuesLoader;
use crate::error::{Error, Result};
use crate::error_trace::HelmfileErrorTrace;
use crate::go_struct_field::{HelmfileField, StructMergeMode};
use crate::hcl;
use crate::helmfile_host_environment::HelmfileHostEnvironment;
use crate::helmfile_paths::{HelmfilePaths, is_remote};
use crate::inheritance::InheritedHelmfileSettings;
use crate::key_order;
use crate::named_environment::{NamedEnvironment, joined};
use crate::plan_settings::HelmfilePlanSettings;
use crate::pre_v1_helmfile::{self, HelmfileDialect};
use crate::secrets::{self, EnvironmentSecrets};
use crate::spec::{EnvironmentSpec, State};
use crate::state_values_merge::{ValuesMap, overlay};
use crate::template::{TemplateStringRenderer, environment_data};
use crate::working_directory::{WorkingDirectory, base, parent};
use crate::yaml;
use golang::path::join;

/// The most bases that a helmfile may read, including the bases of all its parts.
const MAX_BASES_PER_HELMFILE: usize = 1_000;

/// A helmfile with its environment.
#[derive(Clone)]
pub(crate) struct Helmfile {
    pub(crate) spec: State,
    /// The path of the helmfile as it is printed.
    pub(crate) path: String,
    /// To which its paths are relative.
    pub(crate) base: String,
    /// The working directory.
    pub(crate) place: WorkingDirectory,
    pub(crate) environment: NamedEnvironment,
    /// The values that templates read as `.Values`.
    pub(crate) values: ValuesMap,
    pub(crate) selectors: Vec<String>,
    /// The files that led to the helmfile, and its own path.
    pub(crate) trail: HelmfileErrorTrace,
    /// The absolute path of the helmfile.
    pub(crate) file: String,
}

impl Helmfile {
    pub(crate) fn storage(&self) -> HelmfilePaths<'_> {
        HelmfilePaths::of(&self.place, &self.base, &self.path)
    }

    /// The absolute path as helmfile prints it. Parity(helmfile 1.8): of files of a directory it is printed twice.
    pub(crate) fn full_path(&self) -> String {
        let is_below = !self.base.is_empty()
            && self.path.strip_prefix(&self.base).is_some_and(|rest| rest.starts_with('/'));
        let path = if is_below { self.path.clone() } else { join(&self.base, &self.path) };
        join(&self.place.absolute(), &path)
    }
}

/// The inputs for loading a helmfile.
#[derive(Debug, Clone, Default)]
pub(crate) struct HelmfileLoadInputs {
    /// The file to which paths among `values` are relative.
    pub(crate) callee: String,
    /// The values from the parent's entry, or from `--state-values-file`.
    pub(crate) values: Vec<Value>,
    /// The values from `--state-values-set`.
    pub(crate) overrides: ValuesMap,
    pub(crate) inherited: Option<InheritedHelmfileSettings>,
}

/// Loads helmfiles with their bases and environments.
pub(crate) struct HelmfileLoader<'l> {
    pub(crate) helmfile_environment: &'l Arc<HelmfileHostEnvironment>,
    pub(crate) settings: &'l HelmfilePlanSettings,
    pub(crate) place: &'l WorkingDirectory,
}

/// The environment before a text is read.
#[derive(Debug, Clone, Copy, Default)]
struct EnvironmentInputs<'e> {
    inherited: Option<&'e NamedEnvironment>,
    given: Option<&'e NamedEnvironment>,
}

impl HelmfileLoader<'_> {
    /// Loads a helmfile. `directory` is set if the helmfile has another working directory.
    pub(crate) fn load(
        &self,
        file: &str,
        directory: Option<&str>,
        given: &HelmfileLoadInputs,
    ) -> Result<Helmfile> {
        let environment = self.given_environment(given)?;
        let path = match directory {
            Some(directory) if !file.starts_with('/') => join(directory, file),
            _ => file.to_owned(),
        };
        let known = EnvironmentInputs {
            inherited: given
                .inherited
                .as_ref()
                .and_then(|inherited| inherited.environment.as_ref()),
            given: environment.as_ref(),
        };
        let mut bases = MAX_BASES_PER_HELMFILE;
        let mut helmfile = self.file(known, &parent(&path), base(&path), true, &mut bases)?;
        if let Some(inherited) = &given.inherited {
            inherited.fill(&mut helmfile.spec);
        }
        self.override_all(&mut helmfile.spec)?;
        Ok(helmfile)
    }

    fn given_environment(&self, given: &HelmfileLoadInputs) -> Result<Option<NamedEnvironment>> {
        if given.values.is_empty() && given.overrides.is_empty() {
            return Ok(None);
        }
        let name = &self.settings.environment;
        let loader = ValuesLoader {
            helmfile_environment: self.helmfile_environment,
            place: self.place,
            storage: HelmfilePaths::of_file(self.place, &given.callee),
        };
        let none = NamedEnvironment::new(name);
        let hcl = hcl::HclFiles::default();
        let values = loader.load(Some("Error"), &given.values, &none, "", hcl)?;
        let overrides = given.overrides.clone();
        Ok(Some(NamedEnvironment { values, overrides, ..NamedEnvironment::new(name) }))
    }

    /// Applies the settings that the command line sets for all releases.
    fn override_all(&self, spec: &mut State) -> Result<()> {
        let set = |given: &str, own: &mut String, flag: &str, key: &str| {
            if given.is_empty() {
                return Ok(());
            }
            if !own.is_empty() {
                return Err(Error::from(format!(
                    "err: Cannot use option --{flag} and set attribute {key}."
                )));
            }
            given.clone_into(own);
            Ok(())
        };
        set(&self.settings.kube_context, &mut spec.kube_context, "kube-context", "kubeContext")?;
        set(&self.settings.namespace, &mut spec.namespace, "namespace", "namespace")?;
        set(&self.settings.chart, &mut spec.chart, "chart", "chart")?;
        if !self.settings.kube_context.is_empty() {
            spec.helm_defaults.kube_context.clone_from(&self.settings.kube_context);
        }
        Ok(())
    }

    fn file(
        &self,
        known: EnvironmentInputs<'_>,
        directory: &str,
        file: &str,
        is_main: bool,
        bases: &mut usize,
    ) -> Result<Helmfile> {
        *bases = bases.checked_sub(1).ok_or_else(|| {
            Error::from(format!("more than {MAX_BASES_PER_HELMFILE} bases are read"))
        })?;
        let path = match self.place.fetched(file)? {
            Some(fetched) => fetched,
            None if file.starts_with('/') => file.to_owned(),
            None => join(directory, file),
        };
        let text = match (&self.helmfile_environment.stdin, path.as_str()) {
            (Some(text), "-") => Arc::clone(text),
            _ => self.place.read(&path)?,
        };
        let helmfile = self.text(known, directory, &path, &text, is_main, bases)?;
        for (index, below) in helmfile.spec.helmfiles.iter().enumerate() {
            if below.path == path {
                return Err(format!(
                    "{path} contains a recursion into the same sub-helmfile at helmfiles[{index}]"
                )
                .into());
            }
            if below.path == "." {
                return Err(format!(
                    "{path} contains a recursion into the the directory containing this helmfile at helmfiles[{index}]"
                )
                .into());
            }
        }
        Ok(helmfile)
    }

    /// Reads a text part by part. Each part can use the values of the earlier parts.
    fn text(
        &self,
        known: EnvironmentInputs<'_>,
        directory: &str,
        path: &str,
        text: &[u8],
        is_main: bool,
        bases: &mut usize,
    ) -> Result<Helmfile> {
        let text = String::from_utf8_lossy(text).replace("\r\n", "\n");
        let dialect = self.settings.dialect;
        key_order::check(path, &text, dialect)?;
        let is_template = dialect == HelmfileDialect::V0
            || path.ends_with(".gotmpl")
            || self.helmfile_environment.variable("HELMFILE_RENDER_YAML") == Some("true");
        let mut whole: Option<Helmfile> = None;
        for (index, part) in text.split("\n---\n").enumerate() {
            let inherited = whole.as_ref().map(|whole| whole.environment.clone());
            let known =
                EnvironmentInputs { inherited: inherited.as_ref().or(known.inherited), ..known };
            let rendered = match is_template {
                true => {
                    let foreseen = (dialect == HelmfileDialect::V0)
                        .then(|| self.foreseen(known, directory, path, part, bases))
                        .flatten();
                    let seen = EnvironmentInputs {
                        inherited: foreseen.as_ref().or(known.inherited),
                        ..known
                    };
                    self.rendered(seen, directory, part, false).map_err(|error| {
                        Error::from(format!("error during {path}.part.{index} parsing: {error}"))
                    })?
                }
                false => part.as_bytes().to_vec(),
            };
            let read = self.part(known, directory, path, &rendered, is_main, bases)?;
            let whole = match &mut whole {
                None => whole.insert(read),
                Some(whole) => {
                    whole.take_part(read);
                    whole
                }
            };
            let name = &whole.environment.name;
            let environments = &whole.spec.environments;
            if is_main
                && !environments.is_empty()
                && name != "default"
                && !environments.contains_key(name)
            {
                return Err(Error::UndefinedEnvironment(name.clone()));
            }
        }
        let mut whole = whole.ok_or_else(|| Error::from(format!("{path} is empty")))?;
        if is_main {
            self.name_binaries(&mut whole.spec);
            let is_known = known.inherited.is_some() || known.given.is_some();
            let name = &whole.environment.name;
            if whole.spec.environments.is_empty() && !is_known && name != "default" {
                return Err(Error::UndefinedEnvironment(name.clone()));
            }
        }
        for release in &whole.spec.releases {
            if !matches!(
                release.update_strategy.as_str(),
                "" | "reinstall" | "reinstallIfForbidden"
            ) {
                return Err(format!(
                    "failed to read {path}: updateStrategy {:?} is invalid, valid values are: reinstall, \
                     reinstallIfForbidden or not set",
                    release.update_strategy
                )
                .into());
            }
        }
        Ok(whole)
    }

    fn name_binaries(&self, spec: &mut State) {
        for (own, flag, default) in [
            (&mut spec.helm_binary, &self.settings.helm_binary, "helm"),
            (&mut spec.kustomize_binary, &self.settings.kustomize_binary, "kustomize"),
        ] {
            if !flag.is_empty() && flag != default {
                own.clone_from(flag);
            } else if own.is_empty() {
                default.clone_into(own);
            }
        }
    }

    /// Guesses the environment of a part of an old helmfile. The part is then rendered again with this environment.
    /// `None` if the part cannot be rendered or read.
    ///
    /// Parity(helmfile 0.79): errors of the part are ignored here; they are found when it is rendered once more.
    fn foreseen(
        &self,
        known: EnvironmentInputs<'_>,
        directory: &str,
        path: &str,
        part: &str,
        bases: &mut usize,
    ) -> Option<NamedEnvironment> {
        let rendered = self.rendered(known, directory, part, true).ok()?;
        let read = self.part(known, directory, path, &rendered, true, bases).ok()?;
        Some(read.environment)
    }

    fn rendered(
        &self,
        known: EnvironmentInputs<'_>,
        directory: &str,
        part: &str,
        is_lenient: bool,
    ) -> Result<Vec<u8>> {
        let environment = joined(known.inherited, known.given)
            .unwrap_or_else(|| NamedEnvironment::new(&self.settings.environment));
        let data = environment_data(&environment, &self.settings.namespace, &environment.merged());
        let renderer =
            TemplateStringRenderer::new(self.helmfile_environment, self.place, directory, data);
        let renderer = if is_lenient { renderer.lenient() } else { renderer };
        renderer.render(part.as_bytes())
    }

    /// Reads one part: its documents, bases and environment.
    fn part(
        &self,
        known: EnvironmentInputs<'_>,
        directory: &str,
        path: &str,
        text: &[u8],
        is_main: bool,
        bases: &mut usize,
    ) -> Result<Helmfile> {
        let context = joined(known.inherited, known.given);
        let mut spec = decode(path, text, self.settings.dialect)?;
        if !is_main && !spec.bases.is_empty() {
            return Err("nested `base` helmfile is unsupported. please submit a feature request if you need this!".into());
        }
        if !spec.bases.is_empty() {
            spec = self.with_bases(context.as_ref(), directory, spec, bases)?;
        }
        let mut helmfile = Helmfile {
            spec,
            path: path.to_owned(),
            base: directory.to_owned(),
            place: self.place.clone(),
            environment: NamedEnvironment::default(),
            values: ValuesMap::new(),
            selectors: Vec::new(),
            trail: HelmfileErrorTrace::default(),
            file: String::new(),
        };
        helmfile.environment = self.environment(&helmfile, context.as_ref())?;
        helmfile.values = helmfile.environment.merged();
        expand_helmfiles(&mut helmfile)?;
        Ok(helmfile)
    }

    /// Merges a part over its bases.
    fn with_bases(
        &self,
        context: Option<&NamedEnvironment>,
        directory: &str,
        spec: State,
        left: &mut usize,
    ) -> Result<State> {
        let known = EnvironmentInputs { inherited: context, given: None };
        let mut layers = Vec::new();
        for base in &spec.bases {
            layers.push(self.file(known, directory, base, false, left)?.spec);
        }
        layers.push(spec);
        let mut layers = layers.into_iter();
        let mut merged = layers.next().unwrap_or_default();
        for mut layer in layers {
            merge_environments(&mut merged, std::mem::take(&mut layer.environments));
            merged.merge(&layer, StructMergeMode::Append);
        }
        Ok(merged)
    }

    /// The environment of a part, based on the environment of the earlier parts.
    fn environment(
        &self,
        helmfile: &Helmfile,
        context: Option<&NamedEnvironment>,
    ) -> Result<NamedEnvironment> {
        let name = &self.settings.environment;
        let seen = context.cloned().unwrap_or_else(|| NamedEnvironment::new(name));
        let loader = ValuesLoader {
            helmfile_environment: self.helmfile_environment,
            place: self.place,
            storage: helmfile.storage(),
        };
        let failed = |error: Error| error.at(&format!("failed to read {}", helmfile.path));
        let mut own = NamedEnvironment::new(name);
        if let Some(declared) = helmfile.spec.environments.get(name) {
            let handler = declared.missing_file_handler.as_deref();
            // Parity(helmfile 1.8): for values, the handler of the helmfile has no effect.
            let of_secrets = handler.or(helmfile.spec.missing_file_handler.as_deref());
            let EnvironmentSecrets { modules, map } = secrets::of_environment(
                self.helmfile_environment,
                self.place,
                &loader.storage,
                of_secrets,
                &declared.secrets,
            )
            .map_err(failed)?;
            own.values = loader
                .load(handler, &declared.values, &seen, &declared.merge_strategy, modules)
                .map_err(failed)?;
            overlay(&mut own.values, &map);
            own.kube_context.clone_from(&declared.kube_context);
        }
        let mut environment = match context {
            None => own,
            Some(context) => {
                let kube_context = own.kube_context.clone();
                let mut merged = context.clone();
                merged.name.clone_from(name);
                merged.kube_context = kube_context;
                crate::state_values_merge::merge(
                    &mut merged.values,
                    &own.values,
                    crate::state_values_merge::ListMergeMode::Sparse,
                );
                if !context.name.is_empty() {
                    merged.name.clone_from(&context.name);
                }
                if !context.kube_context.is_empty() {
                    merged.kube_context.clone_from(&context.kube_context);
                }
                merged
            }
        };
        let hcl = hcl::HclFiles::default();
        let defaults = loader.load(None, &helmfile.spec.values, &seen, "", hcl)?;
        overlay(&mut environment.defaults, &defaults);
        Ok(environment)
    }
}

impl Helmfile {
    /// Merges a later part of the same text into this one.
    fn take_part(&mut self, later: Self) {
        self.spec.merge(&later.spec, StructMergeMode::Override);
        let own = &mut self.environment;
        let later_environment = later.environment;
        HelmfileField::merge(&mut own.name, &later_environment.name, StructMergeMode::Override);
        HelmfileField::merge(
            &mut own.kube_context,
            &later_environment.kube_context,
            StructMergeMode::Override,
        );
        overlay(&mut own.values, &later_environment.values);
        overlay(&mut own.defaults, &later_environment.defaults);
        overlay(&mut own.overrides, &later_environment.overrides);
        self.values = later.values;
    }
}

/// The documents of a part, merged.
fn decode(path: &str, text: &[u8], dialect: HelmfileDialect) -> Result<State> {
    let hint = if path.ends_with(".gotmpl") {
        ""
    } else {
        ". Started seeing this since Helmfile v1? Add the .gotmpl file extension"
    };
    let failed = |index: usize, error: Error| {
        Error::from(format!(
            "failed to read {path}: reading document at index {index}{hint}: {error}"
        ))
    };
    let documents = yaml::documents(text).map_err(|error| failed(1, error))?;
    let mut spec = State::default();
    for (index, document) in documents.iter().enumerate() {
        let modern = (dialect == HelmfileDialect::V0).then(|| pre_v1_helmfile::modern(document));
        let read = State::decode(modern.as_ref().unwrap_or(document))
            .map_err(|error| failed(index + 1, error))?;
        spec.merge(&read, StructMergeMode::Append);
    }
    Ok(spec)
}

/// Merges the environments of a later layer into the earlier ones. Lists of values are concatenated.
fn merge_environments(into: &mut State, from: std::collections::BTreeMap<String, EnvironmentSpec>) {
    for (name, later) in from {
        let Some(known) = into.environments.get_mut(&name) else {
            into.environments.insert(name, later);
            continue;
        };
        known.secrets.extend(later.secrets);
        HelmfileField::merge(
            &mut known.kube_context,
            &later.kube_context,
            StructMergeMode::Override,
        );
        HelmfileField::merge(
            &mut known.merge_strategy,
            &later.merge_strategy,
            StructMergeMode::Override,
        );
        if later.missing_file_handler.is_some() {
            known.missing_file_handler = later.missing_file_handler;
        }
        if later.missing_file_handler_config.is_some() {
            known.missing_file_handler_config = later.missing_file_handler_config;
        }
        // The values of the later layer must win. They come last, or first with the strategy in which the first value wins.
        match known.merge_strategy.as_str() {
            "fallback" => drop(known.values.splice(0..0, later.values)),
            _ => known.values.extend(later.values),
        }
    }
}

/// Replaces each pattern among the sub-helmfiles by the files that match.
fn expand_helmfiles(helmfile: &mut Helmfile) -> Result<()> {
    let mut expanded = Vec::new();
    for below in std::mem::take(&mut helmfile.spec.helmfiles) {
        if is_remote(&below.path) {
            expanded.push(below);
            continue;
        }
        let matches = helmfile.storage().expand(&below.path)?;
        let handler = helmfile.spec.missing_file_handler.as_deref().unwrap_or("Error");
        if matches.is_empty() && handler == "Error" {
            return Err(format!("no matches for path: {}", below.path).into());
        }
        expanded.extend(matches.into_iter().map(|path| {
            let mut below = below.clone();
            below.path = path;
            below
        }));
    }
    helmfile.spec.helmfiles = expanded;
    Ok(())
}
