//! Makes a plan from the files of a source: the releases of the helmfile, with their charts, values and needs.
//!
//! This blocks, on threads with a large stack. Elsewhere: the meaning of helmfiles (engine `helmfile`), files on other servers
//! (`remote_fetch.rs`), values (`values.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use crds::helmfile::{Dialect, HelmfileReleaseStatus};
use golang::time::{GoTime, GoTimeZone};
use golang::value::GoMap;
use golang::work_meter::StopSignal;
use helm::capabilities::Capabilities;
use helm::chart::{Chart, ChartMetadata, load};
use helm::render::{ReleaseToRender, RenderMode};
use helm::render_environment::{RandomFill, RenderEnvironment};
use helm::template::{RenderRequest, render, text};
use helmfile::helmfile_files::HelmfileFiles;
use helmfile::release_values;
use helmfile::{
    ChartRenderRequest, HelmChartRenderer, HelmfileHostEnvironment, HelmfilePlanSettings,
    HelmfileProcessingPlan, HelmfileReleaseToRender, HelmfileReleaseToUninstall,
    ReleaseChartLocation, ReleaseIdentity, ReleaseOperationSettings, RenderCommandFlags,
    RenderPurpose, SopsFileDecryptor,
};
use objects::SecretMasking;
use sha2::{Digest as _, Sha256};
use tree::{FileMetadata, FileTree as _, MemoryTree, RelPath};

use super::chart_folder::{ChartFilesOrArchive, ChartFolder, StoredChart};
use super::decryption::{self, PlanDecryption};
use super::hooks::ReleaseHooks;
use super::release_clusters::undeclared;
use super::remote_fetch::{HelmfileFetchContext, HelmfileFetcher};
use helm_controller::release_runner::chart_cache::{self, LoadedChart};
use helm_controller::release_runner::manifest_rendering;
use windlass_runtime::run_context::RunContext;
use windlass_runtime::time_limit::TimeLimit;

/// The key of a release: its cluster, namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReleaseKey {
    /// The `kubeContext` that names its cluster. Empty for the cluster of the spec.
    pub context: String,
    /// The namespace of the release.
    pub namespace: String,
    /// The name of the release.
    pub name: String,
}

impl fmt::Display for ReleaseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { context, namespace, name } = self;
        match context.is_empty() {
            true => write!(f, "{namespace}/{name}"),
            // This is helmfile's notation in `needs`.
            false => write!(f, "{context}/{namespace}/{name}"),
        }
    }
}

impl ReleaseKey {
    /// The release of a row.
    pub(super) fn of(row: &HelmfileReleaseStatus) -> Self {
        Self {
            context: row.kube_context.clone(),
            namespace: row.namespace.clone(),
            name: row.name.clone(),
        }
    }

    /// Whether another release has the same namespace and name.
    pub(super) fn is_namesake(&self, of: &Self) -> bool {
        (&self.namespace, &self.name) == (&of.namespace, &of.name) && self.context != of.context
    }

    /// Whether a row is of this release.
    pub(super) fn is_of(&self, row: &HelmfileReleaseStatus) -> bool {
        (&self.context, &self.namespace, &self.name)
            == (&row.kube_context, &row.namespace, &row.name)
    }
}

/// The inputs from which a plan is made.
pub struct HelmfilePlanInputs {
    /// The files of the source.
    pub source: Arc<MemoryTree>,
    /// The helmfile in the source, or its directory.
    pub path: String,
    /// The version of helmfile for which the helmfile was written.
    pub dialect: Dialect,
    /// Files of state values, relative to the helmfile.
    pub values_files: Vec<String>,
    /// The environment of the helmfile.
    pub environment: String,
    /// The selectors of the wanted releases. All releases are wanted if there are none.
    pub selectors: Vec<String>,
    /// State values as YAML.
    pub values: Vec<u8>,
    /// The environment variables that templates see.
    pub variables: BTreeMap<String, String>,
    /// The namespace of releases that name none.
    pub namespace: String,
    /// The contexts that the spec names.
    pub contexts: BTreeSet<String>,
    /// Existing releases. If such a release is not in the plan, it is looked up in the helmfile, which may only have
    /// deselected it.
    pub known: BTreeSet<ReleaseKey>,
    /// The capabilities of the cluster, for charts that are made of other charts.
    pub capabilities: Arc<Capabilities>,
    /// The time that templates see.
    pub now: jiff::Timestamp,
    /// Fills buffers with the randomness that templates draw.
    pub random: Arc<RandomFill>,
    /// The store in which the plan keeps its charts.
    pub charts: PlannedChartStore,
}

/// The store in which a plan keeps its charts.
#[derive(Clone, Default)]
pub struct PlannedChartStore(Option<Arc<ChartFolder>>);

impl PlannedChartStore {
    /// Keeps charts in memory, for a plan that is used once.
    pub fn memory() -> Self {
        Self(None)
    }

    /// Keeps charts in files, for a plan that waits for its next run.
    pub(super) fn folder(folder: Arc<ChartFolder>) -> Self {
        Self(Some(folder))
    }
}

/// The releases of a helmfile, and the findings while it was read.
#[derive(Default)]
pub struct HelmfilePlan {
    /// The releases, in the order of their needs.
    pub releases: Vec<PlannedRelease>,
    /// Releases that must not be there, whether or not others that left are pruned.
    pub unwanted: BTreeSet<ReleaseKey>,
    /// Existing releases that it does not have.
    pub others: UnplannedReleases,
    /// Functions that drew randomness or the time.
    pub drawn: Vec<&'static str>,
    /// Warnings for the user about the helmfile.
    pub warnings: Vec<String>,
    /// The decrypted values of the source's files, which no status, event or log may show.
    pub(super) hidden: Vec<Vec<u8>>,
}

/// The chart of a release.
#[derive(Clone)]
pub struct PlannedChart {
    content: PlannedChartContent,
    /// The digest of its files.
    pub digest: String,
    /// The name of the chart.
    pub name: String,
    /// The version of the chart.
    pub version: String,
    /// The version of the application that the chart installs.
    pub app_version: String,
}

#[derive(Clone)]
enum PlannedChartContent {
    Loaded(Arc<LoadedChart>),
    Stored(Arc<StoredChart>),
}

impl PlannedChart {
    fn new(content: PlannedChartContent, digest: String, chart: &Chart) -> Self {
        let ChartMetadata { name, version, app_version, .. } = chart.metadata.clone();
        Self { content, digest, name, version, app_version }
    }

    /// A chart that the plan has in memory.
    #[cfg(test)]
    pub(super) fn in_memory(chart: Chart, digest: &str) -> Self {
        let loaded = Arc::new(LoadedChart::of(chart.clone()));
        Self::new(PlannedChartContent::Loaded(loaded), digest.to_owned(), &chart)
    }

    /// The chart, which is read from its file unless it is in memory. It blocks.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn load(&self) -> Result<Arc<LoadedChart>, String> {
        match &self.content {
            PlannedChartContent::Loaded(loaded) => Ok(loaded.clone()),
            PlannedChartContent::Stored(stored) => Ok(Arc::new(LoadedChart::of(stored.load()?))),
        }
    }

    /// The chart, from the charts that are in use or from its file. A plan whose chart cannot be read has to be made again.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) async fn in_use(&self, context: &RunContext) -> Result<Arc<LoadedChart>, String> {
        if let Some(known) = chart_cache::known(context, &self.digest) {
            return Ok(known);
        }
        let this = self.clone();
        let loaded = tokio::task::spawn_blocking(move || this.load()).await;
        let loaded = loaded.map_err(|_| "reading the chart was interrupted".to_owned())??;
        chart_cache::keep(context, &self.digest, &loaded);
        Ok(loaded)
    }
}

/// A release as a helmfile asks for it.
pub struct PlannedRelease {
    /// The key of the release.
    pub key: ReleaseKey,
    pub(super) needs: Vec<ReleaseKey>,
    /// The chart, or the reason why the helmfile may not name the chart's repository. In that case only this release fails.
    pub chart: Result<PlannedChart, String>,
    /// As [`HelmfileReleaseToRender::chart_changes`].
    pub chart_changes: String,
    /// The values that override the values of the chart.
    pub values: GoMap,
    /// The digest of these values.
    pub values_digest: String,
    /// The settings of Helm's operations on the release.
    pub operation: ReleaseOperationSettings,
    /// The manifests that its hooks apply.
    pub(super) hooks: Arc<ReleaseHooks>,
    /// Whether its values are not checked against the schema of the chart.
    pub skips_schema: bool,
    /// The number of its helmfile. Releases of helmfiles with lower numbers come first, as in the program helmfile.
    pub(super) helmfile: usize,
    /// The path of its helmfile in the source, or a digest of a long path.
    pub file: String,
}

impl HelmfilePlan {
    /// Whether the chart repository of a release is refused. Creating a HelmRepository with its URL allows it.
    pub(super) fn has_refused_chart(&self) -> bool {
        self.releases.iter().any(|it| it.chart.is_err())
    }

    /// Finds other releases with the namespace and name of a release, each in another `kubeContext`.
    pub(super) fn namesakes<'p>(
        &'p self,
        key: &'p ReleaseKey,
    ) -> impl Iterator<Item = &'p ReleaseKey> {
        let keys = self.releases.iter().map(|it| &it.key);
        keys.filter(move |it| it.is_namesake(key))
    }
}

/// The most releases of a plan, which limits the cost of its charts. Releases share a chart if it has the same files.
const MOST_RELEASES: usize = 2_000;

/// Makes a plan.
///
/// # Errors
/// The helmfile, a chart or values are invalid. The text is for people.
pub(super) fn plan(
    inputs: HelmfilePlanInputs,
    reaching: HelmfileFetchContext,
    decrypting: Option<PlanDecryption>,
    stop: &StopSignal,
    limit: Arc<TimeLimit>,
) -> Result<HelmfilePlan, String> {
    let time = limit.clone();
    let (planned, hidden) = decryption::during(decrypting, stop, &time, |decrypt| {
        plan_with(inputs, reaching, decrypt, stop, limit)
    })?;
    let secrets = SecretMasking::new(hidden.iter().cloned());
    let planned = planned.map_err(|text| secrets.mask(&text))?;
    let warnings = planned.warnings.iter().map(|text| secrets.mask(text)).collect();
    let unread = planned.others.unread.as_ref().map(|text| secrets.mask(text));
    let others = UnplannedReleases { unread, ..planned.others };
    Ok(HelmfilePlan { warnings, others, hidden, ..planned })
}

/// Makes a plan with the decryption for it. This blocks, and needs a thread with a stack of
/// [`helm::render::REQUIRED_STACK_BYTES`]. The plan and errors may contain decrypted values.
///
/// # Errors
/// The helmfile, a chart or values are invalid. The text is for people.
pub fn plan_with(
    inputs: HelmfilePlanInputs,
    reaching: HelmfileFetchContext,
    decrypt: Arc<dyn SopsFileDecryptor>,
    stop: &StopSignal,
    limit: Arc<TimeLimit>,
) -> Result<HelmfilePlan, String> {
    let files = Arc::new(HelmfileFiles::new(inputs.source.clone()));
    let state = files.put("state", [("values.yaml", inputs.values.as_slice())])?;
    let (directory, file) = place(&files, &inputs.path)?;
    let utc = GoTimeZone::fixed("UTC", 0);
    let now = manifest_rendering::utc(inputs.now);
    let random = inputs.random;
    let fetching = HelmfileFetcher::new(files.clone(), &directory, reaching, limit)?;
    let helmfile_environment = HelmfileHostEnvironment::new(
        files.clone(),
        inputs.variables,
        now.clone(),
        utc,
        random.clone(),
    )
    .with_stop(stop.clone())
    .with_fetch(Arc::new(fetching))
    .with_decrypt(decrypt);
    let dialect = match inputs.dialect {
        Dialect::V0 => helmfile::HelmfileDialect::V0,
        Dialect::V1 => helmfile::HelmfileDialect::V1,
    };
    let mut state_values_files = inputs.values_files;
    state_values_files.push(format!("{state}/values.yaml"));
    let environment = inputs.environment;
    let selectors = inputs.selectors;
    let settings = HelmfilePlanSettings {
        file,
        environment,
        selectors,
        dialect,
        state_values_files,
        ..HelmfilePlanSettings::default()
    };
    let helmfile_environment = Arc::new(helmfile_environment);
    let plan = HelmfileProcessingPlan::load(&helmfile_environment, &directory, &settings)
        .map_err(|error| error.to_string())?;
    if plan.lacks_environment() {
        let environment = &settings.environment;
        return Err(format!(
            "no helmfile has the environment `{environment}`: correct spec.environment"
        ));
    }
    let read = plan.identities();
    let is_partial = plan.is_partial();
    let mut skipped = SkippedHelmfiles::of(&plan, &settings);
    let options = RenderCommandFlags {
        purpose: RenderPurpose::Apply,
        skip_needs: !settings.selectors.is_empty(),
        ..RenderCommandFlags::default()
    };
    let capabilities = inputs.capabilities;
    let helm = HelmTemplateRenderer { capabilities, now, random, stop: stop.clone() };
    let all = plan.renderings(&options, &helm).map_err(|error| error.to_string())?;
    if all.releases.len() > MOST_RELEASES {
        let number = all.releases.len();
        return Err(format!(
            "the helmfile has {number} releases, and a Helmfile may have {MOST_RELEASES}: divide it with \
             spec.selectors"
        ));
    }
    let within = ReleasePlacement { namespace: &inputs.namespace, contexts: &inputs.contexts };
    let releases = releases(&all.releases, &within, &files, &inputs.charts)?;
    let unwanted = all.unwanted.iter().map(|release| {
        let HelmfileReleaseToUninstall { name, namespace, kube_context, .. } = release;
        within.key(kube_context, namespace, name)
    });
    let unwanted = unwanted.collect::<Result<BTreeSet<ReleaseKey>, String>>()?;
    let drawn = helmfile_environment.drawn();
    let warnings = all.warnings;
    let planned = releases.iter().map(|it| &it.key).chain(&unwanted).collect();
    let read = read.into_iter().map(|it| within.identified(&it)).collect();
    let mut others = UnplannedReleases::of(&inputs.known, &planned, &read, is_partial, || {
        // Without selectors, all helmfiles are read.
        let settings = HelmfilePlanSettings { selectors: Vec::new(), ..settings };
        let whole = HelmfileProcessingPlan::load(&helmfile_environment, &directory, &settings)
            .map_err(|error| error.to_string())?;
        skipped = SkippedHelmfiles::of(&whole, &settings);
        Ok(whole.identities().iter().map(|it| within.identified(it)).collect())
    });
    others.skipped = skipped;
    Ok(HelmfilePlan { releases, unwanted, others, drawn, warnings, hidden: Vec::new() })
}

/// Existing releases that are not in a plan.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct UnplannedReleases {
    /// Releases of the helmfile that selectors or a condition leave out. Windlass neither reconciles nor uninstalls them.
    pub left_out: BTreeSet<ReleaseKey>,
    /// The reason why some helmfiles were not read. Other releases may be in them, and are therefore not uninstalled.
    pub unread: Option<String>,
    /// Helmfiles that were skipped, so that their releases are not known.
    pub skipped: Option<SkippedHelmfiles>,
}

/// Helmfiles that were skipped because they have no such environment.
#[derive(Debug, PartialEq, Eq)]
pub struct SkippedHelmfiles {
    /// The name of the skipped helmfile, and what to do.
    pub why: String,
    /// The helmfiles that were read, as [`PlannedRelease::file`] names them. All releases of these helmfiles are known.
    pub read: BTreeSet<String>,
}

impl SkippedHelmfiles {
    fn of(plan: &HelmfileProcessingPlan, settings: &HelmfilePlanSettings) -> Option<Self> {
        let file = plan.without_environment()?.trim_start_matches('/');
        let why = format!(
            "`{file}` has no environment `{}`, so it is skipped with all below it: define the environment there if its \
             releases are to stay, else move them out of it and then delete them",
            settings.environment
        );
        Some(Self { why, read: plan.files().map(file_id).collect() })
    }

    /// The reason why helmfiles were skipped, for a release whose status row has the helmfile `file`. `None` if that helmfile
    /// was read, so that it is known whether the release is in it.
    pub fn hides(&self, file: Option<&str>) -> Option<&str> {
        (!file.is_some_and(|file| self.read.contains(file))).then_some(&self.why)
    }
}

/// The form in which rows name the helmfile of a release. It is short, because many rows have to fit into a status.
fn file_id(file: &str) -> String {
    const MAX_PATH_BYTES: usize = 128;
    let file = file.trim_start_matches('/');
    match file.len() <= MAX_PATH_BYTES {
        true => file.to_owned(),
        false => format!("sha256:{}", hex::encode(Sha256::digest(file))),
    }
}

impl UnplannedReleases {
    /// Sorts the `known` releases by the helmfiles that were read. If these are only a part, `whole` reads all of them.
    fn of(
        known: &BTreeSet<ReleaseKey>,
        planned: &BTreeSet<&ReleaseKey>,
        read: &BTreeSet<ReleaseKey>,
        is_partial: bool,
        whole: impl FnOnce() -> Result<BTreeSet<ReleaseKey>, String>,
    ) -> Self {
        let others = || known.iter().filter(move |key| !planned.contains(key));
        let within = |read: &BTreeSet<ReleaseKey>| {
            others().filter(|key| read.contains(*key)).cloned().collect()
        };
        let (left_out, unread) = match is_partial && others().any(|key| !read.contains(key)) {
            false => (within(read), None),
            true => match whole() {
                Ok(all) => (within(&all), None),
                Err(error) => (within(read), Some(error)),
            },
        };
        Self { left_out, unread, skipped: None }
    }
}

/// The working directory, and the name of the helmfile in it. An empty name stands for the default names.
fn place(files: &HelmfileFiles, path: &str) -> Result<(String, String), String> {
    let at = RelPath::parse(path.trim_start_matches('/')).map_err(|error| error.to_string())?;
    match files.entry(&at) {
        Some(FileMetadata::Dir) => Ok((format!("/{}", at.as_str()), String::new())),
        Some(FileMetadata::File { .. }) => {
            let (directory, file) = at.as_str().rsplit_once('/').unwrap_or(("", at.as_str()));
            Ok((format!("/{directory}"), file.to_owned()))
        }
        None => Err(format!("`{path}` is not in the source: correct spec.path")),
    }
}

/// The cluster and namespace settings of a spec for releases.
struct ReleasePlacement<'s> {
    namespace: &'s str,
    contexts: &'s BTreeSet<String>,
}

impl ReleasePlacement<'_> {
    /// The key of a release.
    ///
    /// # Errors
    /// The spec does not name its context.
    fn key(&self, context: &str, namespace: &str, name: &str) -> Result<ReleaseKey, String> {
        if !context.is_empty() && !self.contexts.contains(context) {
            return Err(format!("release \"{name}\": {}", undeclared(context)));
        }
        Ok(self.named(context, namespace, name))
    }

    fn named(&self, context: &str, namespace: &str, name: &str) -> ReleaseKey {
        let namespace = if namespace.is_empty() { self.namespace } else { namespace };
        ReleaseKey {
            context: context.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// The key of a release, whether or not the spec names its context.
    fn identified(&self, release: &ReleaseIdentity) -> ReleaseKey {
        self.named(&release.kube_context, &release.namespace, &release.name)
    }
}

fn releases(
    all: &[HelmfileReleaseToRender],
    within: &ReleasePlacement<'_>,
    files: &HelmfileFiles,
    store: &PlannedChartStore,
) -> Result<Vec<PlannedRelease>, String> {
    let key = |release: &HelmfileReleaseToRender| {
        within.key(&release.kube_context, &release.namespace, &release.name)
    };
    let ids = all.iter().map(|release| Ok((release.id.as_str(), key(release)?)));
    let ids = ids.collect::<Result<BTreeMap<&str, ReleaseKey>, String>>()?;
    let mut charts = PlannedCharts { store, known: BTreeMap::new() };
    let mut known: BTreeSet<ReleaseKey> = BTreeSet::new();
    let mut releases = Vec::with_capacity(all.len());
    for release in all {
        let failed = |error: String| format!("release \"{}\": {error}", release.name);
        let key = key(release)?;
        if !known.insert(key.clone()) {
            return Err(failed(format!("there are two releases {key}: give one another name")));
        }
        let chart = match &release.chart {
            ReleaseChartLocation::Refused { why } => Err(why.clone()),
            ReleaseChartLocation::Path(path) => Ok(charts.at(path, files).map_err(failed)?),
            ReleaseChartLocation::Files { place, files } => {
                Ok(charts.of(place, ChartFilesOrArchive::Files(files.clone())).map_err(failed)?)
            }
        };
        let merged = release_values::merged(&release.values, &release.flags, files);
        let (values, more) = merged.map_err(failed)?;
        let values_digest =
            helm::values::digest(&values).map_err(|error| failed(error.to_string()))?;
        // Another Helmfile may keep the releases that selectors leave out.
        let needs = release.needs.iter().filter_map(|id| ids.get(id.as_str()).cloned()).collect();
        releases.push(PlannedRelease {
            key,
            needs,
            chart,
            chart_changes: release.chart_changes.clone(),
            values,
            values_digest,
            operation: release.operation.clone(),
            hooks: Arc::new(ReleaseHooks::new(release.hooks.clone())),
            skips_schema: more.skips_schema,
            helmfile: release.helmfile,
            file: file_id(&release.file),
        });
    }
    Ok(releases)
}

/// The charts of a plan that is being made. Releases share a chart if it has the same files.
struct PlannedCharts<'s> {
    store: &'s PlannedChartStore,
    known: BTreeMap<String, PlannedChart>,
}

impl PlannedCharts<'_> {
    /// The chart in a directory or an archive.
    fn at(&mut self, path: &str, files: &HelmfileFiles) -> Result<PlannedChart, String> {
        let at = RelPath::parse(path.trim_start_matches('/')).map_err(|error| error.to_string())?;
        let read = |error: tree::TreeError| format!("{path}: {error}");
        let input = match files.entry(&at) {
            Some(FileMetadata::File { .. }) => {
                ChartFilesOrArchive::Archive(files.read(&at).map_err(read)?)
            }
            _ => ChartFilesOrArchive::Files(files.chart(&at).map_err(read)?),
        };
        self.of(path, input)
    }

    /// The chart of these files or of an archive.
    fn of(&mut self, place: &str, input: ChartFilesOrArchive) -> Result<PlannedChart, String> {
        let digest = input.digest();
        if let Some(known) = self.known.get(&digest) {
            return Ok(known.clone());
        }
        let stored = match &self.store.0 {
            Some(folder) => Some(folder.store(&digest, place, &input)?),
            None => None,
        };
        let chart = input.chart(place)?;
        helm::chart::validate::installable(&chart).map_err(|error| error.to_string())?;
        let planned = match stored {
            Some(stored) => {
                PlannedChart::new(PlannedChartContent::Stored(stored), digest.clone(), &chart)
            }
            None => {
                let loaded = PlannedChartContent::Loaded(Arc::new(LoadedChart::of(chart.clone())));
                PlannedChart::new(loaded, digest.clone(), &chart)
            }
        };
        self.known.insert(digest, planned.clone());
        Ok(planned)
    }
}

/// Renders charts from which other charts are made.
struct HelmTemplateRenderer {
    capabilities: Arc<Capabilities>,
    now: GoTime,
    random: Arc<RandomFill>,
    stop: StopSignal,
}

impl HelmChartRenderer for HelmTemplateRenderer {
    fn template(&self, request: &ChartRenderRequest<'_>) -> Result<Vec<(String, Vec<u8>)>, String> {
        let nothing = HelmfileFiles::new(Arc::default());
        let includes = request.flags.iter().any(|flag| flag == "--include-crds");
        let flags: Vec<String> =
            request.flags.iter().filter(|flag| *flag != "--include-crds").cloned().collect();
        let (values, more) = release_values::merged(request.values, &flags, &nothing)?;
        let loaded = load::folder(request.place, request.files.to_vec());
        let namespace = flags.iter().position(|flag| flag == "--namespace");
        let namespace = namespace.and_then(|at| flags.get(at + 1)).cloned().unwrap_or_default();
        let local = GoTimeZone::fixed("UTC", 0);
        let env = RenderEnvironment {
            now: self.now.clone(),
            local,
            random: self.random.clone(),
            capabilities: self.capabilities.clone(),
            cluster: None,
            stop: self.stop.clone(),
            names: None,
        };
        let request = RenderRequest {
            chart: loaded.map_err(|error| error.to_string())?.chart,
            values: &values,
            release: ReleaseToRender {
                name: request.name.to_owned(),
                namespace,
                revision: 1,
                is_upgrade: false,
            },
            mode: RenderMode::default(),
            skip_schema: more.skips_schema,
            sub_notes: false,
            templates: None,
            post_render: None,
        };
        let rendered = render(request, &env, &mut Vec::new()).map_err(|error| error.to_string())?;
        let mut written: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        let mut write = |path: &str, content: &[u8]| {
            written.entry(path.to_owned()).or_default().extend(text([(path, content)]));
        };
        if includes {
            for crd in helm::chart::crds(&rendered.chart) {
                write(&crd.path, &crd.file.data);
            }
        }
        rendered.manifests.iter().for_each(|it| write(&it.path, it.content.as_bytes()));
        rendered.hooks.iter().for_each(|it| write(&it.path, it.manifest.as_bytes()));
        Ok(written.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use helm::chart::ChartFile;

    use super::super::testing::key;
    use super::*;

    #[test]
    fn a_plan_that_waits_has_its_charts_in_files_and_one_that_is_used_once_in_memory() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = Arc::new(ChartFolder::default()).below(scratch.path().to_owned());
        let yaml = "apiVersion: v2\nname: web\nversion: 1.2.3\nappVersion: \"4\"\n";
        let file = ChartFile { name: "Chart.yaml".to_owned(), data: yaml.as_bytes().into() };
        for (store, is_in_memory) in
            [(PlannedChartStore::memory(), true), (PlannedChartStore::folder(folder), false)]
        {
            let mut charts = PlannedCharts { store: &store, known: BTreeMap::new() };
            let one = charts.of("/a", ChartFilesOrArchive::Files(vec![file.clone()])).unwrap();
            let two = charts.of("/b", ChartFilesOrArchive::Files(vec![file.clone()])).unwrap();
            assert_eq!((&*two.name, &*two.version, &*two.app_version), ("web", "1.2.3", "4"));
            assert_eq!((charts.known.len(), one.digest.len()), (1, 71));
            let loaded = one.load().unwrap();
            assert_eq!(loaded.chart.metadata.version, "1.2.3");
            assert_eq!(Arc::ptr_eq(&loaded, &two.load().unwrap()), is_in_memory);
        }
        let unusable = vec![ChartFile { name: "a".to_owned(), data: "b".as_bytes().into() }];
        let store = PlannedChartStore::memory();
        let mut charts = PlannedCharts { store: &store, known: BTreeMap::new() };
        assert!(charts.of("/a", ChartFilesOrArchive::Files(unusable)).is_err());
    }

    #[test]
    fn a_release_counts_as_removed_only_if_all_of_the_helmfile_was_read() {
        let keys =
            |names: &[&str]| names.iter().map(|name| key(name)).collect::<BTreeSet<ReleaseKey>>();
        let known = keys(&["a", "b", "c"]);
        let a = key("a");
        let others = |is_partial: bool, whole: Result<BTreeSet<ReleaseKey>, String>| {
            UnplannedReleases::of(
                &known,
                &BTreeSet::from([&a]),
                &keys(&["a", "b"]),
                is_partial,
                || whole,
            )
        };
        let left_out = |names: &[&str]| UnplannedReleases {
            left_out: keys(names),
            ..UnplannedReleases::default()
        };
        assert_eq!(others(false, Err("unasked".to_owned())), left_out(&["b"]));
        assert_eq!(others(true, Ok(keys(&["a", "b", "c"]))), left_out(&["b", "c"]));
        assert_eq!(others(true, Ok(keys(&["a", "b"]))), left_out(&["b"]));
        let unread = Some("no values".to_owned());
        let unknown =
            UnplannedReleases { left_out: keys(&["b"]), unread, ..UnplannedReleases::default() };
        assert_eq!(others(true, Err("no values".to_owned())), unknown);
    }
}
