//! Freezes with an iCalendar file. The events in the file apply, and a file that cannot be read denies changes.
//!
//! Elsewhere: the supported files (engine `reconcile`), a restart without the file (`restarts::freezes`).

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::freezes::calendar_of_days;
use e2e::harness::manifests::config_map;
use e2e::harness::{Story, StoryObject};
use kube::api::DynamicObject;
use serde_json::json;

/// The longest time until windlass reads a ConfigMap again, and the following steps.
const MINUTES: Duration = Duration::from_secs(150);

#[tokio::test(flavor = "multi_thread")]
async fn a_calendar_holds_until_its_event_ends_and_a_damaged_one_does_not_end_it() -> Result<()> {
    let story = Story::with_windlass("freeze-calendar").await?;
    let upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    let app = StoryObject::kustomization("app");
    story.kustomization("app", "app", json!({})).await?;
    story.await_ready(&app).await?;
    // Without the ConfigMap, the Freeze denies changes.
    let freeze = story.freeze_by_calendar().await?;
    let failed = |reason: &'static str| {
        move |object: &DynamicObject| condition(object, "Ready")["reason"] == reason
    };
    story.await_object(&freeze, DEFAULT_WAIT_TIMEOUT, failed("CalendarFailed")).await?;
    let second = upstream.push(&[("a.yaml", config_map("a", "2"))]).await?;
    let message = story.await_failure(&app, "Frozen").await?;
    ensure!(message.contains("the ConfigMap is not found"), "{message}");

    // An event from yesterday to tomorrow has a known end.
    story.write_calendar(&calendar_of_days(-1, 2)?).await?;
    story.await_object(&freeze, MINUTES, failed("Succeeded")).await?;
    story.await_message(&app, "T00:00:00Z: the sales week").await?;

    // If the calendar is damaged or missing, the last one stays in force. A changed Freeze has its calendar read at once.
    let read = async |why: &str| story.merge(&freeze, json!({"spec": {"reason": why}})).await;
    for text in [Some("<html>the server is busy</html>"), None] {
        match text {
            Some(text) => story.write_calendar(text).await?,
            None => story.delete(&StoryObject::config_map("calendar")).await?,
        }
        read(if text.is_some() { "damaged" } else { "gone" }).await?;
        let says = if text.is_some() {
            "no line of an iCalendar file"
        } else {
            "the ConfigMap is not found"
        };
        let is_kept = |object: &DynamicObject| {
            let ready = condition(object, "Ready");
            ready["reason"] == "CalendarFailed"
                && ready["message"].to_string().contains("the last one that could be read counts")
                && ready["message"].to_string().contains(says)
        };
        story.await_object(&freeze, MINUTES, is_kept).await?;
    }
    let message = story.await_failure(&app, "Frozen").await?;
    ensure!(message.contains("T00:00:00Z: gone"), "{message}");
    let shown = story.windlass_says(&["get", "freezes"], true)?;
    ensure!(shown.contains("the last one that could be read counts"), "{shown}");
    story.await_value("a", "1").await?;

    // An event in the past holds nothing.
    story.write_calendar(&calendar_of_days(-9, -8)?).await?;
    read("over").await?;
    story.await_applied_within("app", &second, MINUTES).await?;

    // An unsupported feature in the calendar has an unknown meaning, so it denies changes.
    let rule =
        calendar_of_days(-9, -8)?.replace("END:VEVENT", "RRULE:FREQ=YEARLY;BYMONTH=1\nEND:VEVENT");
    story.write_calendar(&rule).await?;
    read("not supported").await?;
    let object = story.await_object(&freeze, MINUTES, failed("CalendarNotSupported")).await?;
    ensure!(condition(&object, "Stalled")["status"] == "True", "{:?}", object.data["status"]);
    ensure!(object.data["status"]["calendar"].is_null(), "{:?}", object.data["status"]);
    let third = upstream.push(&[("a.yaml", config_map("a", "3"))]).await?;
    let message = story.await_failure(&app, "Frozen").await?;
    ensure!(message.contains("RRULE with BYMONTH"), "{message}");
    story.await_value("a", "2").await?;
    story.delete(&freeze).await?;
    story.await_applied("app", &third).await?;
    story.end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_calendar_with_a_million_events_denies() -> Result<()> {
    let story = Story::with_windlass("freeze-million").await?;
    let upstream = story.follow("app", &[("a.yaml", config_map("a", "1"))]).await?;
    let app = StoryObject::kustomization("app");
    story.kustomization("app", "app", json!({})).await?;
    story.await_ready(&app).await?;
    // A ConfigMap has room for a part of these events, and windlass accepts a part of those.
    let event = "BEGIN:VEVENT\nDTSTART;VALUE=DATE:20200101\nEND:VEVENT\n";
    let events = event.repeat(10_000);
    story.write_calendar(&format!("BEGIN:VCALENDAR\n{events}END:VCALENDAR\n")).await?;
    let freeze = story.freeze_by_calendar().await?;
    let second = upstream.push(&[("a.yaml", config_map("a", "2"))]).await?;
    story.await_message(&app, "the calendar has more than 1000 events").await?;
    story.await_value("a", "1").await?;
    story.delete(&freeze).await?;
    story.await_applied("app", &second).await?;
    story.end().await
}
