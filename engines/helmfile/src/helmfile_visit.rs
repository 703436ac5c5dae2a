//! Visits all helmfiles of a plan: the helmfiles of a directory, and the sub-helmfiles of each helmfile, which come before it.

use std::sync::Arc;

use serde_json::Value;

use crate::error::{Error, Result};
use crate::error_trace::HelmfileErrorTrace;
use crate::helmfile_host_environment::HelmfileHostEnvironment;
use crate::inheritance::InheritedHelmfileSettings;
use crate::load::{Helmfile, HelmfileLoadInputs, HelmfileLoader};
use crate::plan_settings::HelmfilePlanSettings;
use crate::release_selector::are_compatible;
use crate::spec::SubHelmfile;
use crate::state_values_merge;
use crate::working_directory::{WorkingDirectory, base, parent};
use golang::path::join;

/// The deepest nesting of sub-helmfiles.
const MAX_HELMFILE_DEPTH: usize = 50;

/// The most helmfiles of a plan.
const MAX_HELMFILES_PER_PLAN: usize = 5_000;

/// Collects helmfiles in the order in which they are processed.
pub(crate) struct HelmfileVisit<'v> {
    pub(crate) helmfile_environment: &'v Arc<HelmfileHostEnvironment>,
    pub(crate) settings: &'v HelmfilePlanSettings,
    pub(crate) found: Vec<Helmfile>,
    pub(crate) left: usize,
    /// Whether selectors left a helmfile unread.
    pub(crate) is_partial: bool,
    /// The first helmfile that lacks the environment. helmfile skips it together with its sub-helmfiles.
    pub(crate) without_environment: Option<String>,
}

/// All helmfiles of a plan. If a helmfile cannot be loaded, the helmfiles before it.
pub(crate) struct HelmfileVisitResult {
    pub(crate) helmfiles: Vec<Helmfile>,
    /// Whether selectors left a helmfile unread.
    pub(crate) is_partial: bool,
    /// The first helmfile that lacks the environment and was skipped.
    pub(crate) without_environment: Option<String>,
    /// Why the visit ended early.
    pub(crate) error: Option<Error>,
}

/// The settings for the helmfiles that a visit finds.
#[derive(Debug, Clone, Default)]
struct HelmfileVisitOptions {
    given: HelmfileLoadInputs,
    selectors: Vec<String>,
    /// The files that led to the helmfile.
    trail: HelmfileErrorTrace,
}

impl<'v> HelmfileVisit<'v> {
    /// Visits the helmfiles of the settings from a working directory.
    pub(crate) fn all(
        helmfile_environment: &'v Arc<HelmfileHostEnvironment>,
        settings: &'v HelmfilePlanSettings,
        place: &WorkingDirectory,
    ) -> Result<HelmfileVisitResult> {
        let values = settings.state_values_files.iter().cloned().map(Value::String).collect();
        let overrides = state_values_merge::of_flags(
            &settings.state_values_set,
            &settings.state_values_set_string,
        )?;
        let given = HelmfileLoadInputs { values, overrides, ..HelmfileLoadInputs::default() };
        let selectors = settings.selectors.clone();
        let options =
            HelmfileVisitOptions { given, selectors, trail: HelmfileErrorTrace::default() };
        let mut visit = Self {
            helmfile_environment,
            settings,
            found: Vec::new(),
            left: MAX_HELMFILES_PER_PLAN,
            is_partial: false,
            without_environment: None,
        };
        let error = visit.path(place, &settings.file, &options, 0).err();
        Ok(HelmfileVisitResult {
            helmfiles: visit.found,
            is_partial: visit.is_partial,
            without_environment: visit.without_environment,
            error,
        })
    }

    fn path(
        &mut self,
        place: &WorkingDirectory,
        path: &str,
        options: &HelmfileVisitOptions,
        depth: usize,
    ) -> Result<()> {
        if depth > MAX_HELMFILE_DEPTH {
            return Err(format!(
                "helmfiles are nested more than {MAX_HELMFILE_DEPTH} deep, or contain each other: {path}"
            )
            .into());
        }
        let files = self.files(place, path)?;
        let is_alone = files.len() == 1;
        for file in &files {
            let (directory, name) = if place.is_directory(file) {
                (file.clone(), file.as_str())
            } else {
                (parent(file), base(file))
            };
            let absolute = place.absolute_of(&directory)?;
            let own_place = format!("in {directory}/{name}");
            let mut options = options.clone();
            options.trail = options.trail.with(own_place.clone());
            if options.given.callee.is_empty() {
                name.clone_into(&mut options.given.callee);
            }
            let done = match is_alone {
                true => {
                    self.one(&place.within(&directory)?, name, None, &absolute, &options, depth)
                }
                false => self.one(place, name, Some(&absolute), &absolute, &options, depth),
            };
            done.map_err(|error| error.at(&own_place))?;
        }
        Ok(())
    }

    /// Visits one helmfile. Its sub-helmfiles are visited first.
    fn one(
        &mut self,
        place: &WorkingDirectory,
        name: &str,
        directory: Option<&str>,
        absolute: &str,
        options: &HelmfileVisitOptions,
        depth: usize,
    ) -> Result<()> {
        self.left = self.left.checked_sub(1).ok_or_else(|| {
            Error::from(format!("there are more than {MAX_HELMFILES_PER_PLAN} helmfiles"))
        })?;
        let loader = HelmfileLoader {
            helmfile_environment: self.helmfile_environment,
            settings: self.settings,
            place,
        };
        let mut helmfile = match loader.load(name, directory, &options.given) {
            Err(Error::UndefinedEnvironment(_)) => {
                self.without_environment.get_or_insert_with(|| join(absolute, name));
                return Ok(());
            }
            loaded => loaded?,
        };
        helmfile.selectors.clone_from(&options.selectors);
        helmfile.trail.clone_from(&options.trail);
        helmfile.file = join(absolute, name);
        for (index, below) in helmfile.spec.helmfiles.iter().enumerate() {
            let selectors = below.selectors.as_deref().unwrap_or_default();
            let is_excluded = !self.settings.selectors.is_empty()
                && !selectors.is_empty()
                && !below.selectors_inherited
                && !are_compatible(&self.settings.selectors, selectors);
            if is_excluded {
                self.is_partial = true;
                continue;
            }
            let entry = format!("in .helmfiles[{index}]");
            let mut options = self.options_below(&helmfile, below, &join(absolute, name), options);
            options.trail = helmfile.trail.with(entry.clone());
            self.path(place, &below.path, &options, depth + 1).map_err(|error| error.at(&entry))?;
        }
        helmfile.execute_templates(self.helmfile_environment).map_err(|error| {
            error.at(&format!("failed executing release templates in \"{name}\""))
        })?;
        helmfile.override_releases();
        self.found.push(helmfile);
        Ok(())
    }

    fn options_below(
        &self,
        helmfile: &Helmfile,
        below: &SubHelmfile,
        callee: &str,
        options: &HelmfileVisitOptions,
    ) -> HelmfileVisitOptions {
        let is_explicit = self.helmfile_environment.variable("HELMFILE_EXPERIMENTAL")
            == Some("true")
            || self.helmfile_environment.variable("HELMFILE_EXPERIMENTAL").is_some_and(|names| {
                names.split(',').any(|name| name == "explicit-selector-inheritance")
            });
        let selectors = match &below.selectors {
            None if !is_explicit || below.selectors_inherited => options.selectors.clone(),
            _ if below.selectors_inherited => options.selectors.clone(),
            selectors => selectors.clone().unwrap_or_default(),
        };
        let inherited = (!below.inherits.is_empty()).then(|| {
            InheritedHelmfileSettings::of(&helmfile.spec, &helmfile.environment, &below.inherits)
        });
        let given = HelmfileLoadInputs {
            callee: callee.to_owned(),
            values: below.values.clone(),
            overrides: state_values_merge::ValuesMap::new(),
            inherited,
        };
        HelmfileVisitOptions { given, selectors, trail: HelmfileErrorTrace::default() }
    }

    /// The helmfiles that a path means.
    fn files(&self, place: &WorkingDirectory, path: &str) -> Result<Vec<String>> {
        const FILE: &str = "helmfile.yaml";
        const TEMPLATE: &str = "helmfile.yaml.gotmpl";
        const DIRECTORY: &str = "helmfile.d";
        if path == "-" && self.helmfile_environment.stdin.is_some()
            || place.is_file(path) && !path.is_empty()
        {
            return Ok(vec![path.to_owned()]);
        }
        if !path.is_empty() {
            if place.is_directory(path) {
                return in_directory(place, path);
            }
            if let Some(fetched) = place.fetched(path)? {
                return match place.is_directory(&fetched) {
                    true => in_directory(place, &fetched),
                    false if place.is_file(&fetched) => Ok(vec![fetched]),
                    false => Err(format!("{path}: there is no {fetched}").into()),
                };
            }
            return Err(format!("specified state file {path} is not found").into());
        }
        let default = match (place.is_file(FILE), place.is_file(TEMPLATE)) {
            (true, true) => {
                return Err(format!(
                    "both {FILE} and {FILE}.gotmpl exist. Please remove one of them"
                )
                .into());
            }
            (true, false) => Some(FILE),
            (false, true) => Some(TEMPLATE),
            (false, false) => None,
        };
        match (place.is_directory(DIRECTORY), default) {
            (true, Some(file)) => Err(format!(
                "configuration conlict error: you can have either {file} or {DIRECTORY}, but not both"
            )
            .into()),
            (true, None) => in_directory(place, DIRECTORY),
            (false, Some(file)) => Ok(vec![file.to_owned()]),
            (false, None) => Err(format!(
                "no state file found. It must be named {DIRECTORY}/*.{{yaml,yml,yaml.gotmpl,yml.gotmpl}}, {FILE}, \
                 or {TEMPLATE}, otherwise specified with the --file flag or HELMFILE_FILE_PATH environment variable"
            )
            .into()),
        }
    }
}

/// The helmfiles in a directory, in order.
fn in_directory(place: &WorkingDirectory, directory: &str) -> Result<Vec<String>> {
    let mut files = place.glob(&join(directory, "*.y*ml"))?;
    files.extend(place.glob(&join(directory, "*.y*ml.gotmpl"))?);
    files.sort();
    Ok(files)
}
