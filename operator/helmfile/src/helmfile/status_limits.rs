//! How many bytes the rows of a Helmfile may take in its status. The API server refuses a status that is too large. Pure.

use crds::helmfile::HelmfileReleaseStatus;

/// The most bytes of all rows together before their messages are cut. etcd takes 1.5 MiB of a whole object.
const MAX_ROWS_BYTES: usize = 1 << 20;

/// The least bytes of a message that stay.
const MIN_MESSAGE_BYTES: usize = 64;

/// The rows as they are written to the status. If all rows are too large together, messages are cut to the same length. If
/// that does not suffice, lists of objects are left out. Fields that decisions need stay.
pub(super) fn fitted(mut rows: Vec<HelmfileReleaseStatus>) -> Vec<HelmfileReleaseStatus> {
    let size = size_of(&rows);
    if size <= MAX_ROWS_BYTES {
        return rows;
    }
    let lengths: Vec<usize> = rows.iter_mut().flat_map(messages).map(|it| it.len()).collect();
    let others = size.saturating_sub(lengths.iter().sum());
    let each = MAX_ROWS_BYTES.saturating_sub(others) / lengths.len().max(1);
    for text in rows.iter_mut().flat_map(messages) {
        cut(text, each.max(MIN_MESSAGE_BYTES));
    }
    if size_of(&rows) > MAX_ROWS_BYTES {
        rows.iter_mut().for_each(|row| row.status.inventory = None);
    }
    rows
}

fn size_of(rows: &[HelmfileReleaseStatus]) -> usize {
    serde_json::to_vec(rows).map_or(0, |bytes| bytes.len())
}

/// The messages of a row and of its conditions.
fn messages(row: &mut HelmfileReleaseStatus) -> impl Iterator<Item = &mut String> {
    let conditions = row.status.conditions.iter_mut().map(|it| &mut it.message);
    row.message.iter_mut().chain(conditions)
}

fn cut(text: &mut String, most: usize) {
    if text.len() > most {
        let end = most.saturating_sub('…'.len_utf8());
        let end = (0..=end).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
        text.truncate(end);
        text.push('…');
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(at: usize, message: &str) -> HelmfileReleaseStatus {
        let condition = json!({"type": "Ready", "status": "False", "reason": "InstallFailed",
            "message": message, "lastTransitionTime": "2026-11-01T00:00:00Z"});
        serde_json::from_value(json!({"name": format!("r{at}"), "namespace": "n",
            "state": "Failed", "message": message, "digest": "sha256:0",
            "status": {"conditions": [condition],
                "inventory": {"entries": [{"id": "n_a__ConfigMap", "v": "v1"}]}}}))
        .unwrap()
    }

    #[test]
    fn rows_that_fit_are_written_as_they_are() {
        let rows = vec![row(0, &"x".repeat(100_000)), row(1, "")];
        assert_eq!(fitted(rows.clone()), rows);
    }

    #[test]
    fn texts_of_many_refused_releases_are_cut_so_that_the_status_is_taken() {
        let rows: Vec<HelmfileReleaseStatus> =
            (0..260).map(|at| row(at, &"refused: ü\"".repeat(400))).collect();
        assert!(size_of(&rows) > 2 * MAX_ROWS_BYTES);
        let fitted = fitted(rows.clone());
        assert!(size_of(&fitted) <= MAX_ROWS_BYTES + MAX_ROWS_BYTES / 4, "{}", size_of(&fitted));
        for (before, after) in rows.iter().zip(&fitted) {
            let text = after.message.as_deref().unwrap();
            assert!(text.starts_with("refused: ") && text.ends_with('…'), "{text}");
            let without = |row: &HelmfileReleaseStatus| {
                let mut row = row.clone();
                messages(&mut row).for_each(String::clear);
                row
            };
            assert_eq!(without(before), without(after), "nothing but texts is cut");
        }
        assert_eq!(super::fitted(fitted.clone()), fitted, "what was cut stays as it is");
    }

    #[test]
    fn lists_of_objects_go_where_short_texts_do_not_suffice() {
        let mut rows: Vec<HelmfileReleaseStatus> = (0..2).map(|at| row(at, "failed")).collect();
        let entries = vec![json!({"id": "n_some-object_apps_Deployment", "v": "v1"}); 40_000];
        rows[1].status.inventory = serde_json::from_value(json!({"entries": entries})).unwrap();
        let fitted = fitted(rows);
        assert!(fitted.iter().all(|row| row.status.inventory.is_none()));
        assert_eq!(fitted[0].message.as_deref(), Some("failed"));
    }
}
