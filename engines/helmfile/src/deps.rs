//! The command `deps`: resolves the versions of charts in repositories, and writes them to a lock file.
//!
//! Elsewhere: reading lock files (`lock.rs`), requests to repositories (the caller).

use std::borrow::Cow;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::chart_reference_resolution::{in_repository, is_local, normal};
use crate::error::{Error, Result};
use crate::helmfile_host_environment::HelmfileHostEnvironment;
use crate::load::Helmfile;
use crate::plan::HelmfileProcessingPlan;
use crate::release_selector::selected;
use crate::remote_address::ChartFetchError;
use crate::spec::{Release, Repository};
use crate::working_directory::base;
use crate::yaml::{self, YamlOutputValue};
use golang::path::join;

/// The version of helmfile that is named in lock files.
const VERSION: &str = "v1.8.0";

/// A helmfile with charts in repositories.
#[derive(Debug, Clone)]
pub struct HelmfileChartsToLock {
    /// The absolute path of its lock file.
    pub path: String,
    /// The charts of its releases, by name, then in the order of releases.
    pub charts: Vec<ChartVersionRequest>,
}

/// A chart whose version is to be resolved.
#[derive(Clone)]
pub struct ChartVersionRequest {
    /// The name of the chart in the repository.
    pub name: String,
    /// A range of versions.
    pub range: String,
    /// The address of the repository.
    pub url: String,
    /// User and password of the repository.
    pub login: Option<(String, String)>,
    /// Whether these are also for other hosts that the repository names.
    pub pass_credentials: bool,
    /// Whether requests to a registry use no TLS.
    pub plain_http: bool,
    /// Fields of the repository that are not supported.
    pub unsupported: Vec<&'static str>,
    alias: String,
}

impl ChartVersionRequest {
    /// A chart of a repository or a registry (`oci://…`) that needs no login.
    pub fn anonymous(url: &str, name: &str, range: &str) -> Self {
        Self {
            name: name.to_owned(),
            range: if range.is_empty() { "*" } else { range }.to_owned(),
            url: url.to_owned(),
            login: None,
            pass_credentials: false,
            plain_http: false,
            unsupported: Vec::new(),
            alias: String::new(),
        }
    }
}

impl std::fmt::Debug for ChartVersionRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Wanted({} {})", self.name, self.range)
    }
}

/// What `helmfile deps` has to do: which helmfiles get a lock file, and the warnings.
#[derive(Debug, Clone, Default)]
pub struct HelmfileDepsPlan {
    /// Helmfiles that get a lock file.
    pub unlocked: Vec<HelmfileChartsToLock>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
    /// Whether any release was found.
    pub has_releases: bool,
}

impl HelmfileProcessingPlan {
    /// Determines the work of `deps`.
    ///
    /// Differs(helmfile 1.8): charts in local directories are not written to. Their dependencies in directories are added when
    /// they are rendered, and missing dependencies from repositories are reported.
    ///
    /// # Errors
    /// A malformed selector or condition, and a chart that cannot be read.
    pub fn dependencies(&self) -> Result<HelmfileDepsPlan> {
        let mut all = HelmfileDepsPlan::default();
        for helmfile in &self.helmfiles {
            let chosen =
                selected(&helmfile.spec.releases, &helmfile.selectors, &helmfile.values, false)?;
            all.has_releases |= !chosen.is_empty();
            for release in chosen.iter().filter(|release| release.is_desired()) {
                all.warnings.extend(helmfile.missing_charts(release)?);
            }
            // Parity(helmfile 1.8): selectors do not count here.
            let mut charts: Vec<ChartVersionRequest> = helmfile
                .spec
                .releases
                .iter()
                .filter_map(|release| helmfile.wanted(&self.helmfile_environment, release))
                .collect();
            charts.sort_by(|one, other| one.name.cmp(&other.name));
            if !charts.is_empty() {
                let path = helmfile.place.absolute_of(&helmfile.lock_file())?;
                all.unlocked.push(HelmfileChartsToLock { path, charts });
            }
        }
        Ok(all)
    }
}

/// A release whose chart may come from a repository or a registry.
pub(crate) enum ReleaseWithRepositoryChart<'r> {
    /// The release with its chart on the disk.
    Available(Box<Cow<'r, Release>>),
    /// A helmfile may not name where the chart is.
    Refused(Error),
}

impl Helmfile {
    /// The chart of a release and the version that it asks for. `None` if the chart is not in a repository that the
    /// helmfile names.
    fn wanted(
        &self,
        helmfile_environment: &HelmfileHostEnvironment,
        release: &Release,
    ) -> Option<ChartVersionRequest> {
        let (name, chart) = in_repository(&release.chart)?;
        let repository = self.repository(name)?;
        let (name, url) = match (repository.oci, chart.rsplit_once('/')) {
            (false, _) => (chart, repository.url.clone()),
            (true, None) => (chart, format!("oci://{}", repository.url)),
            (true, Some((folder, name))) => {
                (name, format!("oci://{}/{folder}", repository.url.trim_end_matches('/')))
            }
        };
        Some(ChartVersionRequest {
            name: name.to_owned(),
            range: if release.version.is_empty() { "*" } else { &release.version }.to_owned(),
            url,
            login: login(helmfile_environment, repository),
            pass_credentials: repository.pass_credentials,
            plain_http: repository.plain_http || release.plain_http,
            unsupported: unsupported(repository),
            alias: format!("{}-{}", release.namespace, release.name),
        })
    }

    /// The release with its chart on the disk, if the chart comes from a repository or a registry.
    ///
    /// # Errors
    /// The repository or the release is not valid, or the chart cannot be fetched.
    pub(crate) fn with_chart_of_repository<'r>(
        &self,
        helmfile_environment: &HelmfileHostEnvironment,
        release: &'r Release,
    ) -> Result<ReleaseWithRepositoryChart<'r>> {
        let chart = &release.chart;
        // A local directory of this name takes precedence, and `--chart` takes precedence over everything.
        let is_here = is_local(chart) || self.place.exists(&normal(&self.base, chart));
        let Some(fetch) =
            helmfile_environment.fetch.as_ref().filter(|_| !is_here && self.spec.chart.is_empty())
        else {
            return Ok(ReleaseWithRepositoryChart::Available(Box::new(Cow::Borrowed(release))));
        };
        let wanted = match chart.strip_prefix("oci://").and_then(|rest| rest.rsplit_once('/')) {
            Some((folder, name)) => Some(of_registry(release, folder, name)),
            None => self.wanted(helmfile_environment, release),
        };
        let Some(wanted) = wanted else {
            return match in_repository(chart) {
                Some((name, _)) => {
                    Err(format!("no repository `{name}`, of which the chart `{chart}` is: add it to `repositories`").into())
                }
                None => Ok(ReleaseWithRepositoryChart::Available(Box::new(Cow::Borrowed(release)))),
            };
        };
        if !wanted.unsupported.is_empty() {
            return Err(format!(
                "the repository of the chart `{chart}` has {}, which is not supported",
                wanted.unsupported.join(", ")
            )
            .into());
        }
        let failed = |error: ChartFetchError| {
            Error::from(format!("cannot fetch the chart `{chart}`: {error}"))
        };
        match fetch.chart(&wanted) {
            Ok(chart) => {
                let release = Cow::Owned(Release { chart, ..release.clone() });
                Ok(ReleaseWithRepositoryChart::Available(Box::new(release)))
            }
            Err(error @ ChartFetchError::Refused(_)) => {
                Ok(ReleaseWithRepositoryChart::Refused(failed(error)))
            }
            Err(error @ ChartFetchError::Failed(_)) => Err(failed(error)),
        }
    }

    /// Dependencies of a local chart that are neither in the chart nor in a local directory.
    fn missing_charts(&self, release: &Release) -> Result<Vec<String>> {
        let Some(directory) = self.chart_directory(release) else { return Ok(Vec::new()) };
        let metadata = join(&directory, "Chart.yaml");
        if !self.place.is_file(&metadata) {
            return Ok(Vec::new());
        }
        let metadata = yaml::read_map(&self.place.read(&metadata)?)?;
        let named = metadata.get("dependencies").and_then(Value::as_array).into_iter().flatten();
        let charts = join(&directory, "charts");
        let present = self.place.list(&charts).unwrap_or_default();
        let mut missing = Vec::new();
        for dependency in named {
            let field = |key: &str| dependency.get(key).and_then(Value::as_str).unwrap_or_default();
            let name = field("name");
            let repository = field("repository");
            let is_present = present.iter().any(|(file, _)| {
                file.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
            });
            if !repository.starts_with("file://") && !is_present {
                missing.push(format!(
                    "release \"{}\": the chart `{}` names {name} of {repository:?}, which is not fetched: put it into \
                     `charts` first, for example with `helm dependency update`",
                    release.name, release.chart
                ));
            }
        }
        Ok(missing)
    }
}

/// A chart that a release names by the address of its registry.
fn of_registry(release: &Release, folder: &str, name: &str) -> ChartVersionRequest {
    let request =
        ChartVersionRequest::anonymous(&format!("oci://{folder}"), name, &release.version);
    ChartVersionRequest { plain_http: release.plain_http, ..request }
}

/// The user and password of a repository. Where one is not set, an environment variable with the repository's name
/// gives it. `None` if the user or the password is empty.
fn login(
    helmfile_environment: &HelmfileHostEnvironment,
    repository: &Repository,
) -> Option<(String, String)> {
    let prefix = golang::unicode::upper(&repository.name).replace('-', "_");
    let of = |own: &str, what: &str| match own {
        "" => helmfile_environment
            .variable(&format!("{prefix}_{what}"))
            .unwrap_or_default()
            .to_owned(),
        own => own.to_owned(),
    };
    let user = of(&repository.username, "USERNAME");
    let password = of(&repository.password, "PASSWORD");
    (!user.is_empty() && !password.is_empty()).then_some((user, password))
}

fn unsupported(repository: &Repository) -> Vec<&'static str> {
    let fields = [
        ("caFile", !repository.ca_file.is_empty()),
        ("certFile", !repository.cert_file.is_empty()),
        ("keyFile", !repository.key_file.is_empty()),
        ("managed", !repository.managed.is_empty()),
        ("skipTLSVerify", repository.skip_tls_verify),
        ("verify", repository.verify),
    ];
    fields.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name).collect()
}

impl HelmfileChartsToLock {
    /// The text of the lock file, with a version for each chart. `generated` is the time in RFC 3339.
    ///
    /// The digest is that of `Chart.lock` for a chart with these dependencies, as helmfile lets Helm compute it.
    ///
    /// # Errors
    /// The lock file cannot be written.
    pub fn text(&self, versions: &[String], generated: &str) -> Result<String> {
        let field = |key: &str, text: &str| format!("{key:?}:{}", quoted(text));
        let mut wanted = Vec::new();
        let mut locked = Vec::new();
        let mut listed = Vec::new();
        for (chart, version) in self.charts.iter().zip(versions) {
            let name = field("name", &chart.name);
            let repository = field("repository", &chart.url);
            let range = field("version", &chart.range);
            let alias = field("alias", &chart.alias);
            wanted.push(format!("{{{name},{range},{repository},{alias}}}"));
            locked.push(format!("{{{name},{},{repository}}}", field("version", version)));
            let entry = [("name", &chart.name), ("repository", &chart.url), ("version", version)];
            if !listed.contains(&entry) {
                listed.push(entry);
            }
        }
        let hashed = format!("[[{}],[{}]]", wanted.join(","), locked.join(","));
        let digest = format!("sha256:{}", hex::encode(Sha256::digest(hashed)));
        let plain = |text: &str| YamlOutputValue::Plain(json!(text));
        let entries = listed
            .into_iter()
            .map(|entry| {
                YamlOutputValue::Fields(entry.map(|(key, text)| (key, plain(text))).to_vec())
            })
            .collect();
        yaml::write(&YamlOutputValue::Fields(vec![
            ("version", plain(VERSION)),
            ("dependencies", YamlOutputValue::List(entries)),
            ("digest", plain(&digest)),
            ("generated", plain(generated)),
        ]))
    }

    /// The name of the lock file in messages.
    pub fn name(&self) -> &str {
        base(&self.path)
    }
}

/// A text of JSON, as Go writes it.
fn quoted(text: &str) -> String {
    let text = Value::String(text.to_owned()).to_string();
    text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}
