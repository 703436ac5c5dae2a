//! The scenes without Git. A chart is installed as a release, a bundle in S3 is applied, and an engineer suspends the
//! release during an incident.
//!
//! `super` has the order of scenes, `demo_scenes` the scenes with the repository, and `terminal_output` prints them.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use e2e::servers::s3::{ACCESS, REGION, S3Server, SECRET};
use e2e::servers::web::FileWebServer;
use flate2::Compression;
use flate2::write::GzEncoder;

use super::DemoSetup;
use super::terminal_output::{command, fact, milliseconds, moment};
use e2e::cluster_with_operator::{ObjectWatch, WatchSelection, WatchedObject};
use e2e::servers::chart_archive::{digest, pack};

/// How long windlass may take to do what a scene requests.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// For how long the demo shows that a suspended release stays unchanged.
const SUSPENDED_DURATION: Duration = Duration::from_secs(2);

/// The files of the chart. `VERSION` is replaced by the version of the chart.
const CHART: [(&str, &str); 3] = [
    ("Chart.yaml", include_str!("chart/Chart.yaml")),
    ("values.yaml", include_str!("chart/values.yaml")),
    ("templates/deployment.yaml", include_str!("chart/templates/deployment.yaml")),
];

/// The servers of these scenes: a chart repository and an S3 bucket.
pub(super) struct IncidentDemoServers {
    charts: FileWebServer,
    s3: S3Server,
}

impl IncidentDemoServers {
    /// Starts both servers, with the first version of the chart and of the bundle.
    pub(super) async fn start() -> anyhow::Result<Self> {
        let servers = Self { charts: FileWebServer::start().await?, s3: S3Server::start().await? };
        servers.publish(&["1.0.0"])?;
        servers.s3.bucket("bundles").await?;
        servers.push("Welcome").await?;
        Ok(servers)
    }

    fn url(&self) -> String {
        format!("http://{}", self.charts.address())
    }

    /// Makes the chart repository have exactly these versions of the chart.
    fn publish(&self, versions: &[&str]) -> anyhow::Result<()> {
        let mut index = "apiVersion: v1\nentries:\n  web:\n".to_owned();
        for version in versions {
            let files =
                CHART.map(|(path, text)| (path.to_owned(), text.replace("VERSION", version)));
            let archive = pack("web", &files)?;
            index.push_str(&format!(
                "    - apiVersion: v2\n      name: web\n      version: {version}\n      digest: {}\n      urls: [web-{version}.tgz]\n",
                digest(&archive)
            ));
            self.charts.put(&format!("web-{version}.tgz"), archive);
        }
        self.charts.put("index.yaml", index);
        Ok(())
    }

    /// Puts a bundle into the bucket. The bundle is an archive with one ConfigMap.
    async fn push(&self, text: &str) -> anyhow::Result<()> {
        let manifest = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: banner\n  namespace: shop\ndata:\n  text: {text}\n"
        );
        let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(manifest.len() as u64);
        archive.append_data(&mut header, "banner.yaml", manifest.as_bytes())?;
        let packed = archive.into_inner()?.finish()?;
        self.s3.put("bundles", "banner.tar.gz", packed).await
    }
}

fn runs(seen: &WatchedObject, version: &str) -> bool {
    let image = seen.value("/spec/template/spec/containers/0/image");
    seen.is("Deployment", "web") && image == format!("registry.example/web:{version}").as_str()
}

fn says(seen: &WatchedObject, text: &str) -> bool {
    seen.is("ConfigMap", "banner") && seen.value("/data/text") == text
}

impl DemoSetup {
    async fn watch_delivery(&self) -> anyhow::Result<ObjectWatch> {
        let all = [
            WatchSelection::of("apps/v1", "Deployment").within("shop").named("web"),
            WatchSelection::of("v1", "ConfigMap").within("shop").named("banner"),
            WatchSelection::of("helm.toolkit.fluxcd.io/v2", "HelmRelease").within("shop"),
        ];
        ObjectWatch::begin(self.installation.client(), &all).await
    }

    /// Requests a reconciliation of a source now.
    fn refresh(&self, source: &str, when: &str) -> anyhow::Result<()> {
        let request = format!("reconcile.fluxcd.io/requestedAt={when}");
        self.kubectl(&["-n", "flux-system", "annotate", "--overwrite", source, &request]).map(drop)
    }

    /// Installs a chart and a bundle. Then a new version of each replaces the first one.
    pub(super) async fn a_chart_and_a_bundle(
        &self,
        servers: &IncidentDemoServers,
    ) -> anyhow::Result<()> {
        let text = include_str!("releases.yaml")
            .replace("CHARTS", &servers.url())
            .replace("S3", &servers.s3.endpoint())
            .replace("ACCESS", ACCESS)
            .replace("SECRET", SECRET)
            .replace("REGION", REGION);
        let file = self.installation.git().folder().join("releases.yaml");
        std::fs::write(&file, text).with_context(|| file.display().to_string())?;
        let mut watch = self.watch_delivery().await?;
        let begun = Instant::now();
        self.show(&["apply", "-f", &file.display().to_string()])?;
        let mut missing = vec!["Deployment web from the chart", "ConfigMap banner from the bundle"];
        while !missing.is_empty() {
            let seen = watch.next(&missing.join(" and "), begun + REQUEST_TIMEOUT).await?;
            let found = match () {
                () if runs(&seen, "1.0.0") => "Deployment web",
                () if says(&seen, "Welcome") => "ConfigMap banner",
                () => continue,
            };
            if let Some(place) = missing.iter().position(|it| it.starts_with(found)) {
                moment(begun, seen.at, &format!("{} appears", missing.remove(place)));
            }
        }
        command("helm push web-1.1.0.tgz …");
        servers.publish(&["1.0.0", "1.1.0"])?;
        let begun = Instant::now();
        self.refresh("helmrepository/charts", "upgrade")?;
        let upgraded = |seen: &WatchedObject| runs(seen, "1.1.0") && seen.is_rolled_out();
        let seen = watch.until("web 1.1.0 to run", REQUEST_TIMEOUT, upgraded).await?;
        moment(begun, seen.at, "web 1.1.0 runs, all its Pods are available");
        let ready = |seen: &WatchedObject| seen.is("HelmRelease", "web") && seen.is_ready();
        watch.until("HelmRelease web to be Ready", REQUEST_TIMEOUT, ready).await?;
        self.show(&["-n", "shop", "get", "helmreleases"])
    }

    /// An engineer on call suspends the release and scales its Deployment. All other objects are reconciled
    /// meanwhile. One edit resumes the release.
    pub(super) async fn an_incident(&self, servers: &IncidentDemoServers) -> anyhow::Result<()> {
        let mut watch = self.watch_delivery().await?;
        self.kubectl(&[
            "-n",
            "shop",
            "annotate",
            "helmrelease/web",
            "windlass.dev/suspended-by=alice",
            "windlass.dev/suspended-reason=web is overloaded",
        ])?;
        self.suspend_release(true)?;
        self.kubectl(&["-n", "shop", "scale", "deployment/web", "--replicas=6"])?;
        let scaled = |seen: &WatchedObject| {
            seen.is("Deployment", "web") && seen.value("/spec/replicas") == 6
        };
        watch.until("Deployment web to have 6 replicas", REQUEST_TIMEOUT, scaled).await?;

        servers.publish(&["1.0.0", "1.1.0", "1.2.0"])?;
        self.refresh("helmrepository/charts", "incident")?;
        command("aws s3 cp banner.tar.gz s3://bundles/");
        servers.push("We are on it").await?;
        let begun = Instant::now();
        self.refresh("bucket/bundles", "incident")?;
        let is_updated = |seen: &WatchedObject| says(seen, "We are on it");
        let seen =
            watch.until("the new text in ConfigMap banner", REQUEST_TIMEOUT, is_updated).await?;
        moment(begun, seen.at, "the bundle is applied: the incident holds nothing else");
        let is_moved = |seen: &WatchedObject| {
            seen.is("Deployment", "web")
                && (!runs(seen, "1.1.0") || seen.value("/spec/replicas") != 6)
        };
        watch.stays("web is suspended but changed", SUSPENDED_DURATION, is_moved).await?;
        fact("web still has 6 replicas of 1.1.0, though 1.2.0 is there");
        self.show(&["-n", "shop", "get", "helmreleases"])?;

        watch.forget();
        let begun = Instant::now();
        self.suspend_release(false)?;
        let upgraded =
            |seen: &WatchedObject| runs(seen, "1.2.0") && seen.value("/spec/replicas") == 2;
        let seen = watch.until("web 1.2.0 with 2 replicas", REQUEST_TIMEOUT, upgraded).await?;
        let took = milliseconds(seen.at.saturating_duration_since(begun));
        fact(&format!("resumed: 1.2.0 with 2 replicas {took} later"));
        let ready = |seen: &WatchedObject| {
            seen.is("HelmRelease", "web")
                && seen.is_ready()
                && seen.value("/status/history/0/chartVersion") == "1.2.0"
        };
        watch.until("HelmRelease web to be Ready", REQUEST_TIMEOUT, ready).await?;
        self.show(&["-n", "shop", "get", "helmreleases"])
    }

    fn suspend_release(&self, suspended: bool) -> anyhow::Result<()> {
        let patch = format!(r#"{{"spec":{{"suspend":{suspended}}}}}"#);
        self.kubectl(&["-n", "shop", "patch", "helmrelease/web", "--type=merge", "-p", &patch])
            .map(drop)
    }
}
