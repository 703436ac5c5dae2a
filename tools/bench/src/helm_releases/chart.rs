//! The chart of the measured HelmReleases, and its source.

use e2e::git_server::StoryGitRepository;
use e2e::servers::web::FileWebServer;

use crate::test_bed::BenchTestbed;
use crate::workload::{self, NAMESPACE, WorkloadApp};
use e2e::servers::chart_archive::{digest, pack};

/// The name of the chart.
const NAME: &str = "app";

/// The source of the chart.
pub(super) enum BenchChartOrigin {
    /// A folder of a Git repository.
    Git(StoryGitRepository),
    /// A chart repository on a web server.
    Web(FileWebServer),
}

impl BenchChartOrigin {
    /// Starts a web server without charts.
    ///
    /// # Errors
    /// When no port is free.
    pub(super) async fn web() -> anyhow::Result<Self> {
        FileWebServer::start().await.map(Self::Web)
    }

    /// Publishes a version of the chart. It returns the commit, or an empty text for a web server.
    ///
    /// # Errors
    /// When the chart cannot be written.
    pub(super) fn publish(&self, work: &str, number: u32) -> anyhow::Result<String> {
        let files = files(number);
        match self {
            Self::Git(repository) => {
                let files = files.map(|(path, text)| (format!("chart/{path}"), text));
                let files: Vec<(&str, &str)> =
                    files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
                repository.commit(&files, &format!("{work} {number}"))
            }
            Self::Web(server) => {
                let mut entries = String::new();
                for number in (1..=number).rev() {
                    let archive = pack(NAME, &self::files(number))?;
                    let version = version(number);
                    entries.push_str(&format!(
                        "  - {{apiVersion: v2, name: {NAME}, version: {version}, digest: {}, urls: [{NAME}-{version}.tgz]}}\n",
                        digest(&archive)
                    ));
                    server.put(&format!("{NAME}-{version}.tgz"), archive);
                }
                server.put("index.yaml", format!("apiVersion: v1\nentries:\n  {NAME}:\n{entries}"));
                Ok(String::new())
            }
        }
    }

    /// The manifest of the source.
    ///
    /// # Errors
    /// When there is no Git server.
    pub(super) fn source(&self, bed: &BenchTestbed, work: &str) -> anyhow::Result<String> {
        Ok(match self {
            Self::Git(repository) => workload::source(work, &bed.git()?.url(repository), "10m"),
            Self::Web(server) => format!(
                "\
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmRepository
metadata: {{name: {work}, namespace: {NAMESPACE}}}
spec: {{url: \"http://{}\", interval: 10m}}
",
                server.address()
            ),
        })
    }
}

/// The version of the chart by its number.
pub(super) fn version(number: u32) -> String {
    format!("{number}.0.0")
}

/// The files of the chart in a version.
pub(crate) fn files(number: u32) -> [(String, String); 3] {
    let any = WorkloadApp {
        name: "{{ .Release.Name }}".to_owned(),
        namespace: "{{ .Release.Namespace }}".to_owned(),
        work: "{{ .Values.work }}".to_owned(),
        replicas: 1,
    };
    [
        (
            "Chart.yaml".to_owned(),
            format!("apiVersion: v2\nname: {NAME}\nversion: {}\n", version(number)),
        ),
        ("values.yaml".to_owned(), "work: none\n".to_owned()),
        ("templates/app.yaml".to_owned(), manifests(&any, number)),
    ]
}

/// The HelmChart for all releases, if the chart is in Git.
pub(super) fn helm_chart(work: &str) -> String {
    format!(
        "\
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmChart
metadata: {{name: {work}, namespace: {NAMESPACE}}}
spec: {{chart: ./chart, interval: 10m, sourceRef: {{kind: GitRepository, name: {work}}}}}
"
    )
}

/// The part of a HelmRelease that requests a version of the chart.
pub(super) fn template(work: &str, number: u32) -> String {
    let version = version(number);
    format!(
        "chart: {{spec: {{chart: {NAME}, version: {version}, sourceRef: {{kind: HelmRepository, name: {work}}}}}}}"
    )
}

/// The objects of an application, which the raw client applies.
pub(crate) fn manifests(app: &WorkloadApp, number: u32) -> String {
    let WorkloadApp { name, namespace, work, .. } = app;
    let label = workload::LABEL;
    format!(
        "{}---
apiVersion: v1
kind: Service
metadata:
  name: {name}
  namespace: {namespace}
  labels: {{app: {name}, {label}: {work}}}
spec:
  selector: {{app: {name}}}
  ports: [{{name: http, port: 80, targetPort: http}}]
",
        app.manifest(number)
    )
}
