//! `windlass plan facts`: writes facts that only the cluster knows into a file of the repository, or compares the file with the
//! cluster.
//!
//! Elsewhere: the format of the file (`cluster_facts_file.rs`), reading a cluster (`cluster_facts_reading.rs`).

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use clap::Args as ClapArgs;
use tree::RelPath;

use super::applier_search_root::ApplierManifests;
use super::cluster_facts_file::{ClusterFacts, FACTS_PATH, MAX_FACTS_BYTES};
use super::cluster_facts_reading::{self, ClusterFactsQuery, ClusterFactsReadResult};
use super::named_repository;
use windlass_cli_runtime::connection::{ClusterAccessFlags, ProgressGlyph, block_on, print, say};
use windlass_cli_runtime::exit_code::ExitCode;
use windlass_serve::settings::parse_duration;

/// The flags of `windlass plan facts`.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct FactsArgs {
    /// The folder that the cluster applies first [default: that of a Kustomization that applies itself or of a FluxInstance, or the root]
    #[arg(long, value_name = "DIR")]
    path: Option<PathBuf>,
    /// The file, or `-` for stdout [default: .windlass/facts.yaml in that folder]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Also write values of ConfigMaps; those of Secrets never are
    #[arg(long)]
    with_values: bool,
    /// Compare the file with the cluster, and write nothing; the status is 1 if they differ
    #[arg(long, conflicts_with = "with_values")]
    check: bool,
    /// Only what objects of this namespace name; by default of all
    #[arg(short, long, value_name = "NAMESPACE", help_heading = "Cluster")]
    namespace: Option<String>,
    #[command(flatten)]
    access: ClusterAccessFlags,
    /// How long the command may take
    #[arg(
        long,
        default_value = "5m",
        value_name = "DURATION",
        value_parser = parse_duration,
        help_heading = "Cluster"
    )]
    timeout: Duration,
}

/// Examples at the end of the command's help.
pub(crate) const EXAMPLES: &str = "Examples:
  windlass plan facts                           write .windlass/facts.yaml of the only cluster of the repository
  windlass plan facts --path clusters/prod      of one of several clusters
  windlass plan facts --with-values             with values of ConfigMaps, which then are known to `windlass plan`
  windlass plan facts --check                   what differs in the cluster since the file was written

The file has the version of Kubernetes, the API versions that are served, the scopes of kinds that are not built in, and the
ConfigMaps and Secrets that Kustomizations and HelmReleases of the cluster name: whether they exist, and their keys. What this
user may not read is named in it, and counts as unknown.

Exit status: 0; 1 with --check if something differs; 2 if something could not be read; 3 if the cluster cannot be reached.";

/// The place of the facts.
enum ClusterFactsDestination {
    /// Standard output.
    Stdout,
    /// A file that the user named.
    Named(PathBuf),
    /// The facts file in a folder of the repository.
    InRepository {
        /// The folder, relative to the root of the work tree.
        folder: RelPath,
        /// The path of the file on this disk.
        file: PathBuf,
    },
}

/// Writes the facts of the cluster, or compares them with the file.
///
/// # Errors
/// The cluster cannot be read, or the file cannot be read or written.
pub(crate) fn run(args: &FactsArgs) -> anyhow::Result<ExitCode> {
    let place = args.place()?;
    match args.check {
        true => args.compare(&place),
        false => args.write(&place),
    }
}

/// Reads a file of facts.
///
/// # Errors
/// The file cannot be read, or it does not contain facts.
pub(crate) fn read_file(path: &Path) -> anyhow::Result<ClusterFacts> {
    let shown = path.display();
    let file = File::open(path).with_context(|| format!("cannot read {shown}"))?;
    let most = u64::try_from(MAX_FACTS_BYTES)?.saturating_add(1);
    let mut text = Vec::new();
    file.take(most).read_to_end(&mut text).with_context(|| format!("cannot read {shown}"))?;
    ClusterFacts::parse(&text).with_context(|| shown.to_string())
}

impl FactsArgs {
    fn place(&self) -> anyhow::Result<ClusterFactsDestination> {
        match &self.output {
            Some(path) if path.as_os_str() == "-" => return Ok(ClusterFactsDestination::Stdout),
            Some(path) => return Ok(ClusterFactsDestination::Named(path.clone())),
            None => {}
        }
        let repository = named_repository(self.path.as_deref())?;
        ensure!(
            !repository.is_bare(),
            "a bare repository has no folder for the file: run the command in a checked out repository, or use --output"
        );
        let folder = match &self.path {
            Some(path) => repository.path_of(path)?,
            None => {
                let files = repository.work_tree()?.artifact(None)?;
                ApplierManifests::of(&files.files).entry()?.folder
            }
        };
        let file = repository.place_of(&folder.join(FACTS_PATH)?);
        Ok(ClusterFactsDestination::InRepository { folder, file })
    }

    fn read(&self, with_values: bool) -> anyhow::Result<ClusterFactsReadResult> {
        let namespace = self.namespace.as_deref().unwrap_or_default();
        block_on(async {
            let reading = async {
                let (cluster, _) = self.access.open().await?;
                cluster_facts_reading::read(&cluster, ClusterFactsQuery { namespace, with_values })
                    .await
            };
            let seconds = self.timeout.as_secs();
            let within = tokio::time::timeout(self.timeout, reading).await;
            within.unwrap_or_else(|_elapsed| {
                Err(anyhow!("the command took longer than {seconds} s (--timeout)"))
            })
        })
    }

    fn write(&self, place: &ClusterFactsDestination) -> anyhow::Result<ExitCode> {
        let ClusterFactsReadResult { facts, left_out } = self.read(self.with_values)?;
        match place {
            ClusterFactsDestination::Stdout => print(&facts.text(&RelPath::root())?)?,
            ClusterFactsDestination::Named(file) => {
                let text = facts.text(&RelPath::root())?;
                fs::write(file, text)
                    .with_context(|| format!("cannot write {}", file.display()))?;
            }
            ClusterFactsDestination::InRepository { folder, file } => {
                write_in_repository(file, &facts.text(folder)?)?;
                let text = format!("wrote {}: commit it", file.display());
                say(ProgressGlyph::Success, &plan::clean_line(&text));
            }
        }
        Ok(end(&left_out, ExitCode::Success))
    }

    fn compare(&self, place: &ClusterFactsDestination) -> anyhow::Result<ExitCode> {
        let file = match place {
            ClusterFactsDestination::Stdout => {
                bail!("--check compares a file: name it with --output")
            }
            ClusterFactsDestination::Named(file)
            | ClusterFactsDestination::InRepository { file, .. } => file,
        };
        let mut facts = read_file(file)?;
        if let Some(namespace) = &self.namespace {
            facts.keep_namespace(namespace);
        }
        let ClusterFactsReadResult { facts: live, left_out } = self.read(facts.has_values())?;
        let differences = facts.differences(&live);
        let lines = differences.iter().map(|line| format!("{}\n", plan::clean_line(line)));
        print(&lines.collect::<String>())?;
        let shown = file.display();
        let found = match differences.is_empty() {
            true => ExitCode::Success,
            false => ExitCode::ProblemsFound,
        };
        if differences.is_empty() && left_out.is_empty() {
            let text = format!("{shown} has the facts of the cluster");
            say(ProgressGlyph::Success, &plan::clean_line(&text));
        }
        Ok(end(&left_out, found))
    }
}

/// Prints what was left out. If something was left out, the exit code says so.
fn end(left_out: &[String], otherwise: ExitCode) -> ExitCode {
    for line in left_out {
        say(ProgressGlyph::Warning, &plan::clean_line(&format!("left out: {line}")));
    }
    if left_out.is_empty() { otherwise } else { ExitCode::Failed }
}

/// Writes the file in a repository. The author of the repository must not be able to redirect the write to another file, for
/// example with a link.
fn write_in_repository(file: &Path, text: &str) -> anyhow::Result<()> {
    let folder = file.parent().context("the file is in no folder")?;
    for place in [folder, file] {
        let is_link = fs::symlink_metadata(place).is_ok_and(|it| it.is_symlink());
        let shown = place.display();
        ensure!(
            !is_link,
            "{shown} is a symbolic link, which is not followed: remove it, or use --output"
        );
    }
    let unwritten = || format!("cannot write {}", file.display());
    fs::create_dir_all(folder).with_context(unwritten)?;
    fs::write(file, text).with_context(unwritten)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_of_the_repository_is_not_written_through() {
        let outside = tempfile::tempdir().unwrap();
        let repository = tempfile::tempdir().unwrap();
        symlink(outside.path(), repository.path().join(".windlass")).unwrap();
        let file = repository.path().join(FACTS_PATH);
        let error = write_in_repository(&file, "text").unwrap_err().to_string();
        assert!(error.contains("is a symbolic link"), "{error}");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
        fs::remove_file(repository.path().join(".windlass")).unwrap();
        write_in_repository(&file, "text").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "text");
    }

    #[test]
    fn what_was_left_out_is_a_failure_whatever_else_was_found() {
        assert_eq!(end(&[], ExitCode::ProblemsFound), ExitCode::ProblemsFound);
        let left_out = ["Secret/shop/db: forbidden".to_owned()];
        assert_eq!(end(&left_out, ExitCode::ProblemsFound), ExitCode::Failed);
    }
}
