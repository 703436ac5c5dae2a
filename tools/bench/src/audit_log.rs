//! Reads the API server's audit log, which counts the requests of every client in the same way.
//!
//! This module reads the log from a position on, and counts requests by verb and resource. It also finds the requests
//! that keep watches alive. `audit_log_tail` follows a log that the API server rotates during a measurement.
//! `e2e::control_plane` turns the log on, and `super::idle` says which requests are allowed.

pub(super) mod audit_log_tail;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

/// The path of an audit log of level Metadata.
#[derive(Debug, Clone)]
pub(super) struct AuditLog(PathBuf);

/// A position in the log.
#[derive(Debug, Clone, Copy)]
pub(super) struct AuditLogPosition {
    file: u64,
    length: u64,
}

/// One line of the log, about an answered request. A watch is counted when it is opened.
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

/// The requests of one kind.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct RequestTally {
    /// The number of requests.
    pub(super) count: u64,
    /// The number of requests that failed or were rejected.
    pub(super) refused: u64,
    /// The total seconds that the API server took. A watch counts until it is open.
    pub(super) seconds: f64,
}

/// What a request is for: to keep watches alive, to keep the leadership, or to work on objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) enum RequestPurpose {
    /// A watch, or the list with which a client starts a watch again.
    Watching,
    /// A request for the Lease.
    Leading,
    /// Any other request, which is about an object.
    Work,
}

/// Requests by purpose, verb and resource.
#[derive(Debug, Clone, Default)]
pub(super) struct RequestCounts(BTreeMap<(RequestPurpose, String, String), RequestTally>);

impl AuditLog {
    /// The audit log at this path. `None` if the file does not exist.
    pub(super) fn at(path: PathBuf) -> Option<Self> {
        path.is_file().then_some(Self(path))
    }

    /// The present end of the log.
    pub(super) fn mark(&self) -> anyhow::Result<AuditLogPosition> {
        let data = std::fs::metadata(&self.0).with_context(|| self.0.display().to_string())?;
        Ok(AuditLogPosition { file: data.ino(), length: data.len() })
    }

    /// The requests of a user since a position of the log.
    ///
    /// # Errors
    /// When the API server has begun a new log file since then, because the old one was too long.
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
            // The last line may be incomplete. It is about a later request, so it is skipped.
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

    /// The path and the selectors of a request. A list and the watch that continues it have the same ones.
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
            // The request is not about objects. It is for discovery, the version or the health.
            None => self.selection().0.to_owned(),
        }
    }
}

impl RequestCounts {
    /// The counts of requests that were not in a log, each with its purpose and its verb.
    #[cfg(test)]
    pub(super) fn of(requests: &[(RequestPurpose, &str)]) -> Self {
        let mut counted = Self::default();
        for (purpose, verb) in requests {
            let one = RequestTally { count: 1, ..RequestTally::default() };
            counted.add(*purpose, (*verb).to_owned(), "configmaps".to_owned(), &one);
        }
        counted
    }

    fn count(lines: &[AuditLogLine]) -> Self {
        let watched: BTreeSet<_> =
            lines.iter().filter(|line| line.is_watch()).map(AuditLogLine::selection).collect();
        let mut counted = Self::default();
        for line in lines {
            // The log has a watch twice, when it opens and when it ends. It has a rejected watch only when it ends.
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

    /// Adds the requests of another measurement.
    pub(super) fn extend(&mut self, others: &Self) {
        for ((purpose, verb, resource), tally) in &others.0 {
            self.add(*purpose, verb.clone(), resource.clone(), tally);
        }
    }

    /// Each entry: its purpose, verb, resource and number.
    pub(super) fn iter(&self) -> impl Iterator<Item = (RequestPurpose, &str, &str, RequestTally)> {
        self.0
            .iter()
            .map(|((purpose, verb, resource), tally)| (*purpose, &**verb, &**resource, *tally))
    }

    /// The number of requests for one purpose.
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
