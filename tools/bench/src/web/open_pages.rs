//! The steps with open pages: what they cost while nothing happens, and how soon they receive a change.
//!
//! `super::event_streams` keeps the pages open, and `super::measurement` has the other steps.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use e2e::multi_user_web_pages::BrowserCookies;
use e2e::process_usage;
use serde_json::json;

use super::event_streams::{EventStreams, change_message};
use super::figures::WebFigure;
use super::measured_pages::{MeasuredPages, user_name};
use super::measurement::{CHANGED_OBJECT, PagesInUse, WebMeasurement};
use super::page_times::milliseconds;
use crate::audit_log::{AuditLog, RequestPurpose};
use crate::time_samples::TimeSamples;
use crate::unreconciled_objects::{namespace_of, ready_condition, status_path};

/// The goal for the memory of one open page, in KiB.
const MAX_STREAM_KIB: f64 = 48.0;

/// The goal for the time from a change of an object to its event at every stream, in milliseconds.
const MAX_EVENT_DELAY_MILLISECONDS: f64 = 500.0;

/// The goal for the CPU cores that five hundred streams take with fifty changes a second.
const MAX_LOAD_CORES: f64 = 0.25;

/// What the API server puts before the names of users.
const USER_PREFIX: &str = "oidc:";

/// How long open overviews may take to be made again after the pages before.
const SETTLE_PERIOD: Duration = Duration::from_secs(20);

/// The pause between two changes whose events are measured. It is longer than pages wait for further changes.
const CHANGE_PAUSE: Duration = Duration::from_secs(2);

/// For how long objects change all the time, how often, and how many at once.
const LOAD_PERIOD: Duration = Duration::from_secs(20);
const LOAD_INTERVAL: Duration = Duration::from_millis(200);
const LOAD_CHANGES_AT_ONCE: usize = 10;

/// How many changes a second there are at least. With fewer, the CPU time says nothing about the goal.
const MIN_LOAD_RATE: f64 = 45.0;

impl WebMeasurement<'_> {
    /// Counts the requests to the API server while each user has the overview open and nothing happens.
    ///
    /// # Errors
    /// windlass has ended, or the audit log cannot be read.
    pub(super) async fn idle(
        &mut self,
        used: &PagesInUse<'_>,
        browsers: &[BrowserCookies],
    ) -> anyhow::Result<()> {
        let mut open = EventStreams::new()?;
        let url = format!("{}/_/live?page=%2F", used.pages.address);
        for browser in browsers {
            open.open(&url, browser).await?;
        }
        tokio::time::sleep(SETTLE_PERIOD).await;
        let log = self.installation.plane()?.state().audit_log();
        let log = AuditLog::at(log).context("the control plane has no audit log")?;
        let process = [used.pages.id()?];
        let cpu = process_usage::cpu_seconds(&process)?;
        let mark = log.mark()?;
        let idle = Duration::from_secs(self.options.idle.into());
        tokio::time::sleep(idle).await;
        let cpu = process_usage::cpu_seconds(&process)? - cpu;
        for at in 0..self.workload.users {
            let user = format!("{USER_PREFIX}{}", user_name(at));
            self.report.idle.extend(&log.since(mark, &user)?);
        }
        drop(open);
        let minutes = idle.as_secs_f64() / 60.0;
        let requests = self.report.idle.total(RequestPurpose::Work);
        let of_a_user = requests as f64 / f64::from(self.workload.users) / minutes;
        self.report.add(
            WebFigure::new(
                "requests to the API server, of an idle user in a minute",
                "",
                of_a_user,
            )
            .with_goal(0.0)
            .with_note(format!("{requests} in all; watches are not counted")),
        );
        let cores = cpu / idle.as_secs_f64();
        self.report.add(WebFigure::new("CPU with an idle overview of each user", "cores", cores));
        Ok(())
    }

    /// Opens pages with the list of one namespace until there are as many as wanted. The users share them evenly.
    ///
    /// # Errors
    /// A page does not open.
    pub(super) async fn open_all(
        &mut self,
        used: &PagesInUse<'_>,
        browsers: &[BrowserCookies],
        streams: &mut EventStreams,
    ) -> anyhow::Result<()> {
        let before = used.pages.settled_mebibytes().await?;
        let url = list_events(used.pages);
        let more = self.workload.streams.saturating_sub(streams.count());
        for (browser, _) in browsers.iter().cycle().zip(0..more) {
            streams.open(&url, browser).await?;
        }
        let added = used.pages.settled_mebibytes().await? - before;
        self.report.add(
            WebFigure::new("memory of an open page", "KiB", added * 1024.0 / f64::from(more))
                .with_goal(MAX_STREAM_KIB)
                .with_note(format!("{added:.1} MiB for {more}")),
        );
        Ok(())
    }

    /// Changes an object that all open pages show, and measures when each page has received the change.
    ///
    /// # Errors
    /// An open page does not receive a change.
    pub(super) async fn changes(
        &mut self,
        used: &PagesInUse<'_>,
        streams: &mut EventStreams,
    ) -> anyhow::Result<()> {
        let mut each = TimeSamples::new("event", Duration::MAX);
        let mut last = TimeSamples::new("last event", Duration::MAX);
        let process = [used.pages.id()?];
        let cpu = process_usage::cpu_seconds(&process)?;
        for number in 1..=u32::from(self.options.changes) {
            streams.forget()?;
            let patch =
                json!({"status": {"conditions": [ready_condition(&change_message(number))]}});
            let begun = Instant::now();
            used.raw.merge(&[status_path(CHANGED_OBJECT)], &patch, 1).await?;
            let delays = streams.delays(number, begun).await?;
            last.add(delays.iter().copied().max().unwrap_or_default());
            delays.into_iter().for_each(|delay| each.add(delay));
            tokio::time::sleep(CHANGE_PAUSE).await;
        }
        let cpu = process_usage::cpu_seconds(&process)? - cpu;
        let of_one = cpu / f64::from(self.options.changes);
        for (what, times) in [
            ("change of an object until its event at an open page, p99", each),
            ("change of an object until its event at the last page, p99", last),
        ] {
            let median = milliseconds(times.percentile(50));
            self.report.add(
                WebFigure::new(what, "ms", milliseconds(times.percentile(99)))
                    .with_goal(MAX_EVENT_DELAY_MILLISECONDS)
                    .with_note(format!("p50 {median:.0} ms; {of_one:.2} CPU s for each change")),
            );
        }
        Ok(())
    }

    /// Changes objects all the time while all pages are open.
    ///
    /// # Errors
    /// A change fails, windlass has ended, or an open page receives no more events.
    pub(super) async fn load(
        &mut self,
        used: &PagesInUse<'_>,
        streams: &mut EventStreams,
    ) -> anyhow::Result<()> {
        let process = [used.pages.id()?];
        let cpu = process_usage::cpu_seconds(&process)?;
        let begun = Instant::now();
        let mut ticks = tokio::time::interval(LOAD_INTERVAL);
        let mut changed = 0_u32;
        while begun.elapsed() < LOAD_PERIOD {
            ticks.tick().await;
            let paths: Vec<String> = (0..LOAD_CHANGES_AT_ONCE)
                .map(|_| {
                    changed += 1;
                    // The changes are spread over all namespaces.
                    status_path(changed.wrapping_mul(7919) % self.workload.objects)
                })
                .collect();
            let condition = ready_condition(&format!("Applied after change {changed}"));
            let patch = json!({"status": {"conditions": [condition]}});
            used.raw.merge(&paths, &patch, LOAD_CHANGES_AT_ONCE).await?;
        }
        let seconds = begun.elapsed().as_secs_f64();
        let cores = (process_usage::cpu_seconds(&process)? - cpu) / seconds;
        streams.forget()?;
        let rate = f64::from(changed) / seconds;
        let measured = if rate < MIN_LOAD_RATE { f64::NAN } else { cores };
        self.report.add(
            WebFigure::new("CPU with all pages open, objects changing", "cores", measured)
                .with_goal(MAX_LOAD_CORES)
                .with_note(format!("{cores:.2} cores with {rate:.0} changes a second")),
        );
        Ok(())
    }
}

/// The address of the events of the list with the object that changes.
pub(super) fn list_events(pages: &MeasuredPages) -> String {
    let namespace = namespace_of(CHANGED_OBJECT);
    format!("{}/_/live?page=%2Fobjects%3Fns%3D{namespace}", pages.address)
}
