//! The time until Chromium has painted the list of objects.
//!
//! Chromium writes a trace of its own start, so no driver is needed. `e2e::windlass_ui_and_chromium` runs `windlass ui` and Chromium.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use e2e::cluster_with_operator::{BuildProfile, program};
use e2e::windlass_ui_and_chromium::{WindlassUiProcess, is_chromium_installed};
use serde_json::Value;

use super::figures::WebFigure;
use super::page_times::milliseconds;
use crate::time_samples::TimeSamples;

/// The goal in milliseconds.
const MAX_PAINT_MILLISECONDS: f64 = 300.0;

/// How often the page is opened, each time with a new profile and so without a cache.
const PAINT_ROUNDS: usize = 3;

/// How long `windlass ui` reads the objects before the page is opened.
const READING_PERIOD: Duration = Duration::from_secs(20);

/// How long Chromium records, in seconds.
const TRACE_SECONDS: u16 = 5;

/// The figure for the list. It has no goal without Chromium. If Chromium does not paint the list, the goal is missed.
///
/// # Errors
/// `windlass ui` does not start.
pub(super) fn figure(kubeconfig: &Path) -> anyhow::Result<WebFigure> {
    let what = "first paint of the list in Chromium, slowest";
    if !is_chromium_installed() {
        let note = "needs Debian's `chromium`";
        return Ok(WebFigure::new(what, "ms", f64::NAN).with_note(note));
    }
    let mut times = TimeSamples::new("paint", Duration::MAX);
    for _ in 0..PAINT_ROUNDS {
        // The address works for one browser only, so each round has a server of its own.
        let pages = WindlassUiProcess::start(program(BuildProfile::Release)?, kubeconfig)?;
        std::thread::sleep(READING_PERIOD);
        match paint(&pages) {
            Ok(time) => times.add(time),
            Err(error) => {
                let figure = WebFigure::new(what, "ms", f64::NAN).with_note(format!("{error:#}"));
                return Ok(figure.with_goal(MAX_PAINT_MILLISECONDS));
            }
        }
    }
    let median = milliseconds(times.percentile(50));
    let slowest = milliseconds(times.percentile(100));
    let note = format!("p50 {median:.0} ms; {PAINT_ROUNDS} rounds; CPU not slowed down");
    Ok(WebFigure::new(what, "ms", slowest).with_goal(MAX_PAINT_MILLISECONDS).with_note(note))
}

/// Opens the list in Chromium. It returns the time from the begin of the navigation to the first content on the screen.
fn paint(pages: &WindlassUiProcess) -> anyhow::Result<Duration> {
    let folder = tempfile::tempdir()?;
    let trace = folder.path().join("trace.json");
    let arguments = [
        "--trace-startup=loading,blink.user_timing".to_owned(),
        format!("--trace-startup-file={}", trace.display()),
        "--trace-startup-format=json".to_owned(),
        format!("--trace-startup-duration={TRACE_SECONDS}"),
        // Chromium paints only a page of which something is requested.
        format!("--screenshot={}", folder.path().join("page.png").display()),
    ];
    pages.browse(&pages.address("/objects"), &arguments)?;
    let text = std::fs::read(&trace).context("Chromium wrote no trace")?;
    let trace: Value = serde_json::from_slice(&text).context("the trace of Chromium")?;
    first_paint(&trace, pages.origin()).context("the trace of Chromium has no paint of the page")
}

/// The time from the begin of a navigation to the origin until its first content was painted. `None` if the trace has no such
/// navigation.
fn first_paint(trace: &Value, origin: &str) -> Option<Duration> {
    let events = trace["traceEvents"].as_array()?;
    let data = |event: &Value, key: &str| event["args"]["data"][key].as_str().map(str::to_owned);
    let of = |name: &'static str| events.iter().filter(move |event| event["name"] == name);
    of("firstContentfulPaint").find_map(|paint| {
        let id = data(paint, "navigationId")?;
        let begin = of("navigationStart").find(|start| {
            let url = data(start, "documentLoaderURL").unwrap_or_default();
            url.starts_with(origin) && data(start, "navigationId").is_some_and(|it| it == id)
        })?;
        // Times are in microseconds.
        let took = paint["ts"].as_u64()?.checked_sub(begin["ts"].as_u64()?)?;
        Some(Duration::from_micros(took))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_paint_of_the_page_counts_and_not_that_of_another_one() {
        let start = |url: &str, id: &str, at: u64| {
            json!({"name": "navigationStart", "ts": at,
                "args": {"data": {"documentLoaderURL": url, "navigationId": id}}})
        };
        let paint = |id: &str, at: u64| json!({"name": "firstContentfulPaint", "ts": at, "args": {"data": {"navigationId": id}}});
        let origin = "http://127.0.0.1:4711";
        let events = json!([
            start("about:blank", "a", 10),
            paint("a", 20),
            start("http://127.0.0.1:4711/objects", "b", 1_000),
            paint("b", 61_000)
        ]);
        let trace = json!({"traceEvents": events});
        assert_eq!(first_paint(&trace, origin), Some(Duration::from_millis(60)));
        assert_eq!(first_paint(&json!({"traceEvents": []}), origin), None);
    }
}
