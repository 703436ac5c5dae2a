//! The waves in which the members of a change take it: the state of each wave, and what it waits for.
//!
//! Elsewhere: reading rollouts (`windlass_answers::rollout_waves`).

use crds::windlass_release::ChangeSet;
use maud::{Markup, html};
use windlass_answers::rollout_waves::{ListedRollout, WaveState};

use crate::page_elements::{ObjectState, message, object_link, shape, text};

/// How many rollouts of a change the page lists.
const MAX_LISTED_ROLLOUTS: usize = 20;

/// The waves of a change, for each rollout. Empty if no rollout is about the change.
pub(super) fn items(rollouts: &[ListedRollout], change: &ChangeSet) -> Markup {
    let about: Vec<&ListedRollout> =
        rollouts.iter().filter(|it| !it.waves(change).is_empty()).collect();
    let more = about.len().saturating_sub(MAX_LISTED_ROLLOUTS);
    html! {
        @for rollout in about.iter().take(MAX_LISTED_ROLLOUTS) { (item(rollout, change)) }
        @if more > 0 { p { (more) " more rollouts are about it; the command prints them." } }
    }
}

fn item(rollout: &ListedRollout, change: &ChangeSet) -> Markup {
    let waves = rollout.waves(change);
    let is_under_way = rollout.is_under_way(change);
    let present = waves.iter().map(|wave| wave.state).find(|state| *state != WaveState::Over);
    html! {
        div class="item" {
            (shape(shown(present.unwrap_or(WaveState::Over))))
            strong { (object_link(&rollout.object)) @if !is_under_way { " all waves are over" } }
            @for wave in &waves {
                p { (shape(shown(wave.state))) " " (text(&wave.name)) " " (in_words(wave.state)) ": " (text(&wave.text)) }
            }
            @if is_under_way && !rollout.message.is_empty() { div class="note" { (message(&rollout.message)) } }
        }
    }
}

fn shown(state: WaveState) -> ObjectState {
    match state {
        WaveState::Over => ObjectState::Ready,
        WaveState::Failed => ObjectState::Failing,
        WaveState::Soaking | WaveState::UnderWay => ObjectState::Progressing,
        WaveState::Waiting => ObjectState::Waiting,
    }
}

fn in_words(state: WaveState) -> &'static str {
    match state {
        WaveState::Over => "is over",
        WaveState::Failed => "has failed",
        WaveState::Soaking => "soaks",
        WaveState::UnderWay => "takes the revision",
        WaveState::Waiting => "waits",
    }
}

#[cfg(test)]
mod tests {
    use objects::ObjectId;
    use serde_json::{Value, json};

    use super::*;

    fn change() -> ChangeSet {
        serde_json::from_value(json!({
            "metadata": {"name": "fleet-17-1a2b3c4d", "namespace": "apps"},
            "spec": {"source": {"kind": "GitRepository", "name": "fleet", "uid": "u"},
                "revision": "main@sha1:5f0c9d0", "digest": "sha256:1", "sequence": 17},
        }))
        .unwrap()
    }

    fn rollout(revision: &str, wave: Value) -> ListedRollout {
        let waves = json!([
            {"name": "canary", "members": 2, "updated": 2, "updatedSince": "2026-11-30T09:00:00Z"},
            {"name": "<b>staging", "members": 2, "updated": 1, "failed": 1},
            {"name": "production\u{202e}", "members": 3},
        ]);
        let source = json!({"kind": "GitRepository", "namespace": "apps", "name": "fleet",
            "revision": revision, "digest": "sha256:1", "wave": wave, "waves": waves});
        ListedRollout {
            object: ObjectId::new("apps", "fl<i>", "release.windlass.dev", "StagedRollout"),
            message: "1 failed (<u>)".to_owned(),
            sources: vec![serde_json::from_value(source).unwrap()],
        }
    }

    #[test]
    fn each_wave_has_its_state_and_what_it_waits_for() {
        let rollouts = [rollout("main@sha1:5f0c9d0", "<b>staging".into())];
        let html = items(&rollouts, &change()).into_string();
        for part in [
            "<bdi>canary</bdi> is over: <bdi>2 of 2 updated</bdi></p>",
            "<bdi>&lt;b&gt;staging</bdi> has failed: <bdi>1 of 2 updated, 1 failed</bdi></p>",
            "<bdi>production\\u{202e}</bdi> waits: <bdi>0 of 3 updated; begins after wave &lt;b&gt;staging</bdi></p>",
            "<div class=\"note\"><bdi>1 failed (&lt;u&gt;)</bdi></div>",
            "<bdi>StagedRollout/apps/fl&lt;i&gt;</bdi></a></strong>",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
        assert!(html.starts_with("<div class=\"item\"><svg class=\"i bad\""), "{html}");
        assert!(!html.contains("<b>") && !html.contains("<i>") && !html.contains("<u>"), "{html}");
    }

    #[test]
    fn a_rollout_that_is_over_needs_no_message_and_one_of_another_revision_is_left_out() {
        let over = items(&[rollout("main@sha1:5f0c9d0", Value::Null)], &change()).into_string();
        assert!(over.contains("</a> all waves are over</strong>"), "{over}");
        assert!(over.starts_with("<div class=\"item\"><svg class=\"i ok\""), "{over}");
        assert!(!over.contains("1 failed ("), "{over}");
        let many = vec![rollout("main@sha1:5f0c9d0", Value::Null); MAX_LISTED_ROLLOUTS + 3];
        let many = items(&many, &change()).into_string();
        assert_eq!(many.matches("class=\"item\"").count(), MAX_LISTED_ROLLOUTS);
        assert!(many.ends_with("<p>3 more rollouts are about it; the command prints them.</p>"));
        let other = [rollout("main@sha1:6f0c9d0", Value::Null)];
        assert_eq!(items(&other, &change()).into_string(), "");
    }
}
