//! Lock files: the versions to which version ranges were resolved when the lock file was written.

use golang::semver::{SemverVersion, VersionConstraint};

use crate::chart_reference_resolution::in_repository;
use crate::error::{Error, Result};
use crate::go_struct_field::{HelmfileField, entries, spec};
use crate::load::Helmfile;
use crate::spec::Repository;
use crate::working_directory::base;
use crate::yaml;
use golang::path::join;

spec! {
    /// A chart with its version.
    Locked {
        name: String = "name",
        repository: String = "repository",
        version: String = "version",
    }
}

/// The charts of a lock file.
fn read(text: &[u8]) -> Result<Vec<Locked>> {
    let Some(root) = yaml::documents(text)?.into_iter().next() else { return Ok(Vec::new()) };
    let mut locked = Vec::new();
    for (key, value) in entries(&root, "ChartLockedRequirements")? {
        match key.value.as_str() {
            "dependencies" => locked = HelmfileField::decode(value)?,
            "version" => {
                let version = String::decode(value)?;
                if !version.is_empty() {
                    SemverVersion::parse(&version).map_err(|error| error.to_string())?;
                }
            }
            "digest" | "generated" => {}
            _ => return Err(crate::go_struct_field::unknown(key, "ChartLockedRequirements")),
        }
    }
    Ok(locked)
}

/// The first locked version of a chart that a range allows.
fn resolved(locked: &[Locked], chart: &str, range: &str) -> Result<String> {
    let range = if range.is_empty() { "*" } else { range };
    let constraint = VersionConstraint::parse(range).map_err(|error| error.to_string());
    for known in locked.iter().filter(|known| known.name == chart) {
        let constraint = constraint.as_ref().map_err(|error| Error::from(error.clone()))?;
        let version = SemverVersion::parse(&known.version).map_err(|error| error.to_string())?;
        if constraint.matches(&version) {
            return Ok(known.version.clone());
        }
    }
    Err(format!(
        "no resolved dependency found for \"{chart}\", running \"helmfile deps\" may resolve the issue"
    )
    .into())
}

impl Helmfile {
    pub(crate) fn repository(&self, name: &str) -> Option<&Repository> {
        self.spec.repositories.iter().rev().find(|known| known.name == name)
    }

    /// The path of the lock file.
    pub(crate) fn lock_file(&self) -> String {
        let own = &self.spec.lock_file_path;
        if own.starts_with('/') {
            return own.clone();
        }
        if !own.is_empty() {
            return join(&self.base, own);
        }
        let name = base(&self.path);
        let name = name.strip_suffix(".gotmpl").unwrap_or(name);
        let name = name.strip_suffix(".yaml").unwrap_or(name);
        let name = name.strip_suffix(".yml").unwrap_or(name);
        join(&self.base, &format!("{name}.lock"))
    }

    /// If there is a lock file, replaces version ranges of charts in repositories by the versions in it.
    pub(crate) fn apply_lock(&mut self) -> Result<()> {
        let in_known = |chart: &str| {
            in_repository(chart)
                .and_then(|(name, chart)| Some((self.repository(name)?.oci, chart.to_owned())))
        };
        let charts: Vec<Option<(bool, String)>> =
            self.spec.releases.iter().map(|release| in_known(&release.chart)).collect();
        let lock = self.lock_file();
        if charts.iter().all(Option::is_none) || !self.place.exists(&lock) {
            return Ok(());
        }
        let failed = |error: Error| {
            error.at(&format!("unable to resolve dependencies of {} with {lock}", self.path))
        };
        let locked = self.place.read(&lock).and_then(|text| read(&text)).map_err(failed)?;
        let mut versions = Vec::new();
        for (release, chart) in self.spec.releases.iter().zip(&charts) {
            let Some((is_oci, chart)) = chart else {
                versions.push(None);
                continue;
            };
            // Parity(helmfile 1.8): charts of registries are locked under their last segment, formerly under all.
            let name = if *is_oci { base(chart) } else { chart };
            let version = resolved(&locked, name, &release.version)
                .or_else(|error| match *is_oci && name != chart {
                    true => resolved(&locked, chart, &release.version),
                    false => Err(error),
                })
                .map_err(failed)?;
            versions.push(Some(version));
        }
        for (release, version) in self.spec.releases.iter_mut().zip(versions) {
            if let Some(version) = version {
                release.version = version;
            }
        }
        Ok(())
    }
}
