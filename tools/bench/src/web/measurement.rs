//! The steps of the measurement: windlass with and without objects, users who log in, and the pages that they request.
//!
//! Each step adds figures to the report. `super::open_pages` has the steps with open pages.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use e2e::cluster_with_operator::ClusterWithOperator;
use e2e::multi_user_web_pages::BrowserCookies;
use e2e::process_usage;
use graph_layout::{GraphEdge, GraphSpacing};
use serde_json::json;
use tokio::runtime::Runtime;

use super::event_streams::EventStreams;
use super::figures::{WebFigure, WebReport};
use super::first_paint;
use super::measured_pages::{GROUP, LoginSetup, MeasuredPages, user_name};
use super::open_pages::list_events;
use super::page_times::{MeasuredPage, milliseconds, one_after_another, spread};
use super::{WebBenchOptions, WebWorkload};
use crate::raw_client::RawApiClient;
use crate::test_bed;
use crate::time_samples::TimeSamples;
use crate::unreconciled_objects::{self, UnreconciledObjects};
use testbed::progress::{note, spell, step};

/// The goal for the first byte of a page that is made from memory, in milliseconds.
const MAX_FIRST_BYTE_MILLISECONDS: f64 = 20.0;

/// The goal for a page of one object, which the API server has to answer, in milliseconds.
const MAX_OBJECT_PAGE_MILLISECONDS: f64 = 600.0;

/// The goal for the first list of a user who logs in, in seconds.
const MAX_FIRST_LIST_SECONDS: f64 = 1.0;

/// The goal for the memory of one user's rows with ten thousand objects, in MiB.
const MAX_BOARD_MIB: f64 = 16.0;

/// The goal for the size of all files that pages need, in kB.
const MAX_ASSET_KILOBYTES: f64 = 70.0;

/// The goal for the layout of a graph, in milliseconds, and the number of its nodes. A larger graph is not drawn.
const MAX_LAYOUT_MILLISECONDS: f64 = 5.0;
const LAYOUT_NODES: usize = 900;

/// How often the layout is computed.
const LAYOUT_ROUNDS: usize = 100;

/// How many objects are not ready.
const FAILING_OBJECTS: u32 = 20;

/// How many objects the inventory of each lists.
const INVENTORY_ENTRIES: u16 = 20;

/// The object whose changes are measured.
pub(super) const CHANGED_OBJECT: u32 = 0;

/// After how many users the progress is printed.
const REPORTED_USERS: u16 = 10;

/// The state of a measurement.
pub(super) struct WebMeasurement<'a> {
    pub(super) runtime: &'a Runtime,
    pub(super) installation: &'a ClusterWithOperator,
    pub(super) options: &'a WebBenchOptions,
    pub(super) workload: WebWorkload,
    pub(super) report: WebReport,
}

/// The running pages, and what the steps need to use them.
pub(super) struct PagesInUse<'a> {
    pub(super) pages: &'a MeasuredPages,
    setup: &'a LoginSetup,
    pub(super) raw: &'a RawApiClient,
    /// The memory of a process with one user and no objects, in MiB.
    empty_mebibytes: f64,
}

impl WebMeasurement<'_> {
    /// Starts everything, and performs all steps.
    ///
    /// # Errors
    /// The step that failed.
    pub(super) fn measure(&mut self) -> anyhow::Result<()> {
        let runtime = self.runtime;
        let kubeconfig = self.installation.plane()?.operator_kubeconfig();
        let raw = runtime.block_on(RawApiClient::connect(&self.installation.kubeconfig()))?;
        let setup = step("issuer of logins", || {
            runtime.block_on(async {
                raw.apply(&test_bed::prepare(&viewer_rights())?).await?;
                let setup = LoginSetup::start(self.installation.plane()?).await?;
                setup.await_trust(&kubeconfig).await?;
                anyhow::Ok(setup)
            })
        })?;
        let empty_mebibytes = step("memory without objects", || {
            runtime.block_on(async {
                let pages = MeasuredPages::start(&setup, &kubeconfig, 1).await?;
                let browser = pages.log_in(&setup, &user_name(0)).await?;
                pages.get("/objects", &browser).await?;
                pages.settled_mebibytes().await
            })
        })?;
        let objects = UnreconciledObjects {
            count: self.workload.objects,
            inventory: INVENTORY_ENTRIES,
            failing: FAILING_OBJECTS,
            are_suspended: false,
        };
        step(&format!("{} objects", objects.count), || {
            runtime.block_on(async {
                objects.create_inventory(&raw).await?;
                objects.create(&raw).await
            })
        })?;
        let users = self.workload.users;
        let pages = step("windlass serve --web-only", || {
            runtime.block_on(MeasuredPages::start(&setup, &kubeconfig, users))
        })?;
        let used = PagesInUse { pages: &pages, setup: &setup, raw: &raw, empty_mebibytes };
        self.steps(&used).map_err(|error| pages.explain(&error))
    }

    fn steps(&mut self, used: &PagesInUse<'_>) -> anyhow::Result<()> {
        let runtime = self.runtime;
        let WebWorkload { users, streams: count, .. } = self.workload;
        let mut streams = EventStreams::new()?;
        let browsers = step(&format!("{users} users log in"), || {
            runtime.block_on(self.log_in_all(used, &mut streams))
        })?;
        step("pages from memory", || {
            runtime.block_on(async {
                for page in pages_from_memory(self.workload.objects) {
                    let times = spread(used.pages, &page, &browsers).await;
                    self.report.add(times.figure(page.goal));
                }
                Ok(())
            })
        })?;
        step("pages that need the API server", || {
            let wanted = pages_of_the_api_server();
            let all = runtime.block_on(one_after_another(used.pages, &wanted, &browsers));
            for (page, times) in wanted.iter().zip(all) {
                self.report.add(times.figure(page.goal));
            }
            Ok(())
        })?;
        let idle = self.options.idle;
        step(&format!("{users} open overviews, {idle} s without changes"), || {
            runtime.block_on(self.idle(used, &browsers))
        })?;
        step(&format!("{count} open pages"), || {
            runtime.block_on(self.open_all(used, &browsers, &mut streams))
        })?;
        step(&format!("{} changes", self.options.changes), || {
            runtime.block_on(self.changes(used, &mut streams))
        })?;
        step("changes all the time", || runtime.block_on(self.load(used, &mut streams)))?;
        drop(streams);
        step("files and layout", || {
            runtime.block_on(self.assets(used, &browsers))?;
            self.layout()
        })?;
        step("the list in Chromium", || {
            self.report.add(first_paint::figure(&self.installation.kubeconfig())?);
            Ok(())
        })
    }

    /// Logs all users in, one after another. Each reads the list of all objects, and keeps a page open. Otherwise windlass
    /// would forget the rows of a user after two minutes.
    async fn log_in_all(
        &mut self,
        used: &PagesInUse<'_>,
        streams: &mut EventStreams,
    ) -> anyhow::Result<Vec<BrowserCookies>> {
        let PagesInUse { pages, setup, empty_mebibytes, .. } = used;
        let WebWorkload { users, objects, .. } = self.workload;
        let whole = whole_list(objects);
        let mut times = TimeSamples::new("first list", Duration::MAX);
        let mut browsers = Vec::new();
        let mut of_one = f64::NAN;
        let cpu = process_usage::cpu_seconds(&[pages.id()?])?;
        for at in 0..users {
            let begun = Instant::now();
            let browser = pages.log_in(setup, &user_name(at)).await?;
            let list = pages.get("/objects", &browser).await?;
            times.add(begun.elapsed());
            ensure!(list.text.contains(&whole), "the first list of a user lacks `{whole}`");
            streams.open(&list_events(pages), &browser).await?;
            browsers.push(browser);
            if at == 0 {
                of_one = pages.settled_mebibytes().await?;
            }
            if at.is_multiple_of(REPORTED_USERS) {
                note(&format!("{} of {users}: {}", at + 1, spell(begun.elapsed())));
            }
        }
        let cpu = process_usage::cpu_seconds(&[pages.id()?])? - cpu;
        let of_all = pages.settled_mebibytes().await?;
        let median = times.percentile(50).as_secs_f64();
        let slowest = times.percentile(99).as_secs_f64();
        let users = f64::from(users);
        self.report.add(
            WebFigure::new("first list of a user who logs in, p99", "s", slowest)
                .with_goal(MAX_FIRST_LIST_SECONDS)
                .with_note(format!("p50 {median:.2} s; {:.2} CPU s for each", cpu / users)),
        );
        self.report.add(
            WebFigure::new("memory of one user's rows", "MiB", of_one - empty_mebibytes)
                .with_goal(MAX_BOARD_MIB)
                .with_note(format!("RssAnon {of_one:.1}; {empty_mebibytes:.1} without objects")),
        );
        self.report.add(
            WebFigure::new("memory of all users' rows", "MiB", of_all - empty_mebibytes)
                .with_goal(MAX_BOARD_MIB * users)
                .with_note(format!("RssAnon {of_all:.1}; with one open page of each user")),
        );
        Ok(browsers)
    }

    /// Adds the size of all files that a page loads.
    async fn assets(
        &mut self,
        used: &PagesInUse<'_>,
        browsers: &[BrowserCookies],
    ) -> anyhow::Result<()> {
        let browser = browsers.first().context("there is no user")?;
        let page = used.pages.get("/objects", browser).await?;
        let mut bytes = 0;
        let paths = asset_paths(&page.text);
        for path in &paths {
            bytes += used.pages.get(path, browser).await?.text.len();
        }
        self.report.add(
            WebFigure::new("files of the pages, as they are sent", "kB", bytes as f64 / 1000.0)
                .with_goal(MAX_ASSET_KILOBYTES)
                .with_note(format!("{} files", paths.len())),
        );
        Ok(())
    }

    /// Adds the time for the layout of the largest graph that is drawn: a tree in which each node has thirty children.
    fn layout(&mut self) -> anyhow::Result<()> {
        let edges: Vec<GraphEdge> =
            (1..LAYOUT_NODES).map(|to| GraphEdge { from: (to - 1) / 30, to }).collect();
        let spacing =
            GraphSpacing { node_width: 200, node_height: 40, column_gap: 60, row_gap: 10 };
        let mut times = TimeSamples::new("layout", Duration::MAX);
        for _ in 0..LAYOUT_ROUNDS {
            let begun = Instant::now();
            std::hint::black_box(graph_layout::layout(LAYOUT_NODES, &edges, spacing)?);
            times.add(begun.elapsed());
        }
        self.report.add(
            WebFigure::new(
                "layout of a graph of 900 nodes, p99",
                "ms",
                milliseconds(times.percentile(99)),
            )
            .with_goal(MAX_LAYOUT_MILLISECONDS)
            .with_note(format!("p50 {:.1} ms", milliseconds(times.percentile(50)))),
        );
        Ok(())
    }
}

/// The rights of all users: to read everything.
fn viewer_rights() -> [String; 2] {
    let version = "rbac.authorization.k8s.io/v1";
    let name = "windlass-bench-viewers";
    let rules =
        json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}]);
    let group = "rbac.authorization.k8s.io";
    let role = json!({"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules});
    let binding = json!({"apiVersion": version, "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": group, "kind": "Group", "name": GROUP}]});
    [role, binding].map(|object| object.to_string())
}

/// The text of a list that is complete.
fn whole_list(objects: u32) -> String {
    format!("{objects} of {objects} objects")
}

/// The pages that are made from the rows in memory.
fn pages_from_memory(objects: u32) -> [MeasuredPage; 3] {
    let goal = Some(MAX_FIRST_BYTE_MILLISECONDS);
    let page =
        |what, path: &str, contains| MeasuredPage { what, path: path.to_owned(), contains, goal };
    let name = unreconciled_objects::name;
    [
        page("the list", "/objects", whole_list(objects)),
        page("a search", "/objects?q=app-0004", name(40)),
        // The first HelmRelease is ready.
        page("a filtered list", "/objects?kind=HelmRelease&state=ready", name(1)),
    ]
}

/// The pages for which windlass reads objects from the API server. The overview comes twice, because windlass keeps what it
/// has read for ten seconds.
fn pages_of_the_api_server() -> Vec<MeasuredPage> {
    let place = unreconciled_objects::namespace_of(CHANGED_OBJECT);
    let object = format!("/o/ks/{place}/{}", unreconciled_objects::name(CHANGED_OBJECT));
    let of = |what, path: &str, contains: &str, goal| MeasuredPage {
        what,
        path: path.to_owned(),
        contains: contains.to_owned(),
        goal,
    };
    let page = |what, path: &str, goal| of(what, path, "", goal);
    let below = unreconciled_objects::deployment_name(0);
    // A graph has only some of the healthy objects.
    let drawn = below.trim_end_matches('0');
    let of_object = Some(MAX_OBJECT_PAGE_MILLISECONDS);
    vec![
        page("the overview", "/", Some(MAX_FIRST_BYTE_MILLISECONDS)),
        page("the overview again, within ten seconds", "/", Some(MAX_FIRST_BYTE_MILLISECONDS)),
        page("an object", &object, of_object),
        of("the tree of an object", &format!("{object}/tree"), &below, of_object),
        of("the graph of an object", &format!("{object}/graph"), drawn, of_object),
        page("incidents", "/incidents", None),
        page("changes", "/changes", None),
        page("approvals", "/approvals", None),
        page("the calendar", "/calendar", None),
        page("audits", "/audits", None),
        page("the rights of a user", "/me", None),
    ]
}

/// The paths of the files that a page names.
fn asset_paths(page: &str) -> BTreeSet<&str> {
    page.split('"').filter(|text| text.starts_with("/_/assets/")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_a_page_are_found_once_each() {
        let page = r#"<link href="/_/assets/a.css"><script src="/_/assets/b.js"></script>
            <a href="/objects">"/_/assets/a.css"</a>"#;
        assert_eq!(
            asset_paths(page).into_iter().collect::<Vec<_>>(),
            ["/_/assets/a.css", "/_/assets/b.js"]
        );
    }

    #[test]
    fn the_rights_are_manifests() {
        assert!(test_bed::prepare(&viewer_rights()).is_ok_and(|it| it.len() == 2));
    }
}
