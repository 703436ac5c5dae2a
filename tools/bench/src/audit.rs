//! The requests to the API server, from its audit log: the one place where requests are counted for every client alike.
//!
//! Here: reading the log from a moment on, counting by verb and resource, which requests keep watches alive.
//! Elsewhere: a log that is begun anew while it is read (`audit_tail`), turning the log on (`e2e::control_plane`), what may be
//! asked (`super::idle`).

pub(super) mod audit_tail;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

/// An audit log at level Metadata.
#[derive(Debug, Clone)]
pub(super) struct AuditLog(PathBuf);

/// How far the log had come at a moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct AuditLogPosition {
    file: u64,
    length: u64,
}

/// One request that was answered; a watch counts when it was opened.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AuditLogLine {
    verb: String,
    stage: String,
    #[serde(rename = "requestURI")]
    uri: String,
    user: AuditUser,
    object_ref: Option<AuditObjectReference>,
    response_status: Option<AuditResponseStatus>,
    request_received_timestamp: jiff::Timestamp,
    stage_timestamp: jiff::Timestamp,
}

#[derive(Debug, Deserialize)]
struct AuditUser {
    username: String,
}

#[derive(Debug, Deserialize)]
struct AuditObjectReference {
    resource: Option<String>,
    subresource: Option<String>,
}

#[derive(Debug, Deserialize)]
struct AuditResponseStatus {
    code: Option<u16>,
}

/// Requests of one kind.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct RequestTally {
    /// How many there were.
    pub(super) count: u64,
    /// How many of them were refused or failed.
    pub(super) refused: u64,
    /// How long the API server had them, in all; of watches, until they were open.
    pub(super) seconds: f64,
}

/// What keeps watches and leadership alive, and everything else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) enum RequestPurpose {
    /// A watch, or the list with which it was begun again.
    Watching,
    /// The Lease.
    Leading,
    /// Anything that is done about an object.
    Work,
}

/// Requests by purpose, verb and resource.
#[derive(Debug, Clone, Default)]
pub(super) struct RequestCounts(BTreeMap<(RequestPurpose, String, String), RequestTally>);

impl AuditLog {
    /// The log in a file that exists.
    pub(super) fn at(path: PathBuf) -> Option<Self> {
        path.is_file().then_some(Self(path))
    }

    /// Where its end is now.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(super) fn mark(&self) -> anyhow::Result<AuditLogPosition> {
        let data = std::fs::metadata(&self.0).with_context(|| self.0.display().to_string())?;
        Ok(AuditLogPosition { file: data.ino(), length: data.len() })
    }

    /// The requests of a user since a mark.
    ///
    /// # Errors
    /// When the log was begun anew since, as the API server does when it has grown too long.
    pub(super) fn since(
        &self,
        mark: AuditLogPosition,
        user: &str,
    ) -> anyhow::Result<RequestCounts> {
        let mut file =
            std::fs::File::open(&self.0).with_context(|| self.0.display().to_string())?;
        ensure!(
            file.metadata()?.ino() == mark.file,
            "the audit log was begun anew while measuring: measure with fewer objects or rounds"
        );
        file.seek(SeekFrom::Start(mark.length))?;
        let mut lines = Vec::new();
        for line in BufReader::new(file).lines() {
            let line = line?;
            // The last line may be half written; it is about a later moment.
            if line.contains(user) && line.ends_with('}') {
                let line: AuditLogLine =
                    serde_json::from_str(&line).context("a line of the audit log")?;
                lines.push(line);
            }
        }
        lines.retain(|line| line.user.username == user);
        Ok(RequestCounts::count(&lines))
    }
}

impl AuditLogLine {
    fn is_watch(&self) -> bool {
        self.verb == "watch"
    }

    /// The path and what was selected, by which a list and the watch that goes on from it are alike.
    fn selection(&self) -> (&str, Vec<&str>) {
        let (path, query) = self.uri.split_once('?').unwrap_or((&self.uri, ""));
        let selectors = query.split('&').filter(|part| part.contains("Selector="));
        (path, selectors.collect())
    }

    fn verb(&self) -> String {
        if self.uri.contains("dryRun=All") {
            format!("{} (dry-run)", self.verb)
        } else {
            self.verb.clone()
        }
    }

    fn resource(&self) -> String {
        let object = self.object_ref.as_ref();
        match object.and_then(|object| Some((object.resource.as_ref()?, &object.subresource))) {
            Some((resource, Some(subresource))) => format!("{resource}/{subresource}"),
            Some((resource, None)) => resource.clone(),
            // Not about objects: discovery, versions, health.
            None => self.selection().0.to_owned(),
        }
    }
}

impl RequestCounts {
    fn count(lines: &[AuditLogLine]) -> Self {
        let watched: BTreeSet<_> =
            lines.iter().filter(|line| line.is_watch()).map(AuditLogLine::selection).collect();
        let mut counted = Self::default();
        for line in lines {
            // The log has a watch twice, when it is open and when it ends; a refused one only at its end.
            let is_open = line.stage == "ResponseStarted";
            let code = line.response_status.as_ref().and_then(|status| status.code).unwrap_or(0);
            if is_open != (line.is_watch() && code < 400) {
                continue;
            }
            let is_refresh = line.verb == "list" && watched.contains(&line.selection());
            let purpose = if line.is_watch() || is_refresh {
                RequestPurpose::Watching
            } else if line.uri.contains("/leases/") || line.uri.ends_with("/leases") {
                RequestPurpose::Leading
            } else {
                RequestPurpose::Work
            };
            let took = line.stage_timestamp.duration_since(line.request_received_timestamp);
            counted.add(
                purpose,
                line.verb(),
                line.resource(),
                &RequestTally {
                    count: 1,
                    refused: u64::from(code >= 400),
                    seconds: took.as_secs_f64(),
                },
            );
        }
        counted
    }

    fn add(
        &mut self,
        purpose: RequestPurpose,
        verb: String,
        resource: String,
        more: &RequestTally,
    ) {
        let tally = self.0.entry((purpose, verb, resource)).or_default();
        tally.count += more.count;
        tally.refused += more.refused;
        tally.seconds += more.seconds;
    }

    /// Adds those of another time.
    pub(super) fn extend(&mut self, others: &Self) {
        for ((purpose, verb, resource), tally) in &others.0 {
            self.add(*purpose, verb.clone(), resource.clone(), tally);
        }
    }

    /// Purpose, verb, resource and how many, in that order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (RequestPurpose, &str, &str, RequestTally)> {
        self.0
            .iter()
            .map(|((purpose, verb, resource), tally)| (*purpose, &**verb, &**resource, *tally))
    }

    /// How many there were for one purpose.
    pub(super) fn total(&self, purpose: RequestPurpose) -> u64 {
        self.iter().filter(|(of, ..)| *of == purpose).map(|(.., tally)| tally.count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn line(user: &str, verb: &str, stage: &str, uri: &str, resource: &str, code: u16) -> String {
        format!(
            "{{\"verb\":\"{verb}\",\"stage\":\"{stage}\",\"requestURI\":\"{uri}\",\"user\":{{\"username\":\"{user}\"}},\
             \"objectRef\":{{\"resource\":\"{resource}\"}},\"responseStatus\":{{\"code\":{code}}},\
             \"requestReceivedTimestamp\":\"2026-01-01T00:00:00.000000Z\",\
             \"stageTimestamp\":\"2026-01-01T00:00:00.250000Z\"}}\n"
        )
    }

    fn log(text: &str) -> (tempfile::NamedTempFile, AuditLog) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let log = AuditLog::at(file.path().to_owned()).unwrap();
        (file, log)
    }

    fn shown(requests: &RequestCounts) -> Vec<String> {
        let show =
            |(purpose, verb, resource, tally): (RequestPurpose, &str, &str, RequestTally)| {
                format!("{purpose:?} {verb} {resource} {} {}", tally.count, tally.refused)
            };
        requests.iter().map(show).collect()
    }

    #[test]
    fn requests_of_one_user_are_counted_from_a_mark_on() {
        let patch = |user: &str, query: &str| {
            line(user, "patch", "ResponseComplete", &format!("/api/x{query}"), "configmaps", 200)
        };
        let (mut file, log) = log(&patch("op", ""));
        let mark = log.mark().unwrap();
        let more =
            [patch("op", ""), patch("op", "?dryRun=All"), patch("op2", ""), "{\"half".into()];
        file.write_all(more.concat().as_bytes()).unwrap();
        let requests = log.since(mark, "op").unwrap();
        assert_eq!(
            shown(&requests),
            ["Work patch configmaps 1 0", "Work patch (dry-run) configmaps 1 0"]
        );
        let mean = requests.iter().next().unwrap().3.seconds;
        assert!((mean - 0.25).abs() < 1e-9, "{mean}");
    }

    #[test]
    fn a_watch_counts_once_and_a_list_belongs_to_it_only_when_it_selects_the_same() {
        let text = [
            line(
                "op",
                "list",
                "ResponseComplete",
                "/api/cm?labelSelector=a&limit=500",
                "configmaps",
                200,
            ),
            line(
                "op",
                "watch",
                "ResponseStarted",
                "/api/cm?labelSelector=a&watch=true",
                "configmaps",
                200,
            ),
            line(
                "op",
                "watch",
                "ResponseComplete",
                "/api/cm?labelSelector=a&watch=true",
                "configmaps",
                200,
            ),
            line(
                "op",
                "watch",
                "ResponseComplete",
                "/api/cm?labelSelector=a&watch=true",
                "configmaps",
                410,
            ),
            line("op", "list", "ResponseComplete", "/api/cm?limit=500", "configmaps", 200),
            line("op", "update", "ResponseComplete", "/apis/l/leases/windlass", "leases", 200),
        ];
        let (_file, log) = log(&text.concat());
        let all = AuditLogPosition { length: 0, ..log.mark().unwrap() };
        let requests = log.since(all, "op").unwrap();
        assert_eq!(
            shown(&requests),
            [
                "Watching list configmaps 1 0",
                "Watching watch configmaps 2 1",
                "Leading update leases 1 0",
                "Work list configmaps 1 0",
            ]
        );
        assert_eq!(requests.total(RequestPurpose::Work), 1);
    }

    #[test]
    fn a_log_that_was_begun_anew_is_not_taken_for_the_same() {
        let (_file, log) = log("");
        let mark = AuditLogPosition { file: 0, ..log.mark().unwrap() };
        assert!(log.since(mark, "op").is_err());
    }
}
