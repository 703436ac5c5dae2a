//! Counts requests while the cluster runs. The API server of a large cluster rotates its log before a measurement
//! ends.
//!
//! This module follows the log over rotations, and counts reads of one object. `super` reads the lines.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use parking_lot::Mutex;

use super::{AuditLog, AuditLogLine, RequestCounts};

/// How often the log is read. The API server must not fill a whole file in between.
const READ_INTERVAL: Duration = Duration::from_millis(250);

/// How many bytes are read at once.
const MAX_CHUNK_BYTES: usize = 1 << 20;

/// An object whose reads are counted.
#[derive(Debug, Clone)]
pub(crate) struct CountedObject {
    /// The path of a read of the object, without the query.
    path: String,
    /// The field selector of a list or a watch that selects only this object.
    selector: String,
}

impl CountedObject {
    /// The object with this API path, such as `/api/v1/namespaces/flux-system/configmaps/shared`.
    pub(crate) fn at(path: &str) -> Self {
        let name = path.rsplit('/').next().unwrap_or_default();
        Self { path: path.to_owned(), selector: format!("metadata.name%3D{name}") }
    }

    fn is_read_by(&self, line: &AuditLogLine) -> bool {
        let (path, selectors) = line.selection();
        match line.verb.as_str() {
            "get" => path == self.path,
            // The log has a watch twice. It is counted when it opens.
            "list" | "watch" if line.stage == "ResponseStarted" || line.verb == "list" => {
                self.path.rsplit_once('/').is_some_and(|(all, _)| all == path)
                    && selectors.iter().any(|selector| selector.ends_with(&self.selector))
            }
            _ => false,
        }
    }
}

/// The requests of a user since the last call of [`AuditLogTail::take`].
#[derive(Debug, Clone, Default)]
pub(crate) struct TailedRequests {
    pub(crate) counts: RequestCounts,
    /// How many of these requests read the counted object.
    pub(crate) reads: u64,
}

/// Follows an audit log until it is dropped.
pub(crate) struct AuditLogTail {
    reader: Arc<Mutex<AuditLogReader>>,
    is_ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

struct AuditLogReader {
    path: PathBuf,
    user: String,
    counted: Option<CountedObject>,
    file: File,
    /// The beginning of a line that the API server has not finished yet.
    rest: Vec<u8>,
    /// The lists and watches so far. All of them together show which list belongs to a watch.
    watching: Vec<AuditLogLine>,
    found: TailedRequests,
    error: Option<String>,
}

impl AuditLogTail {
    /// Counts the requests of `user` from now on, and how often they read an object.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub(crate) fn begin(
        log: &AuditLog,
        user: &str,
        counted: Option<CountedObject>,
    ) -> anyhow::Result<Self> {
        let reader = Arc::new(Mutex::new(AuditLogReader::open(&log.0, user, counted)?));
        let is_ended = Arc::new(AtomicBool::new(false));
        let shared = Arc::clone(&reader);
        let end = Arc::clone(&is_ended);
        let thread = std::thread::Builder::new().name("audit-tail".into()).spawn(move || {
            while !end.load(Ordering::Relaxed) {
                shared.lock().read();
                std::thread::sleep(READ_INTERVAL);
            }
        })?;
        Ok(Self { reader, is_ended, thread: Some(thread) })
    }

    /// The requests since the last call, or since the beginning.
    ///
    /// # Errors
    /// When the thread could not read the log since then.
    pub(crate) fn take(&self) -> anyhow::Result<TailedRequests> {
        let mut reader = self.reader.lock();
        reader.read();
        reader.take()
    }
}

impl Drop for AuditLogTail {
    fn drop(&mut self) {
        self.is_ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was already printed.
            thread.join().ok();
        }
    }
}

impl AuditLogReader {
    fn open(path: &Path, user: &str, counted: Option<CountedObject>) -> anyhow::Result<Self> {
        let mut file = File::open(path).with_context(|| path.display().to_string())?;
        std::io::Seek::seek(&mut file, std::io::SeekFrom::End(0))?;
        Ok(Self {
            path: path.to_owned(),
            user: user.to_owned(),
            counted,
            file,
            rest: Vec::new(),
            watching: Vec::new(),
            found: TailedRequests::default(),
            error: None,
        })
    }

    /// Reads to the end of the log. If the API server has begun a new file, it reads that one as well.
    fn read(&mut self) {
        if self.error.is_none()
            && let Err(error) = self.try_read()
        {
            self.error = Some(format!("{error:#}"));
        }
    }

    fn try_read(&mut self) -> anyhow::Result<()> {
        self.read_file()?;
        // The API server renames the file and then creates a new one. In between there is no file with this name.
        let Ok(data) = std::fs::metadata(&self.path) else { return Ok(()) };
        if data.ino() != self.file.metadata()?.ino() {
            // Reads the lines that were written between the last read and the renaming.
            self.read_file()?;
            self.file = File::open(&self.path)?;
            self.rest.clear();
            self.read_file()?;
        }
        Ok(())
    }

    fn read_file(&mut self) -> anyhow::Result<()> {
        let mut chunk = vec![0; MAX_CHUNK_BYTES];
        loop {
            let length = self.file.read(&mut chunk)?;
            if length == 0 {
                return Ok(());
            }
            self.rest.extend_from_slice(chunk.get(..length).unwrap_or_default());
            let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else { continue };
            let rest = self.rest.split_off(end + 1);
            let whole = std::mem::replace(&mut self.rest, rest);
            self.count(&String::from_utf8_lossy(&whole))?;
        }
    }

    fn count(&mut self, text: &str) -> anyhow::Result<()> {
        let mut others = Vec::new();
        for line in text.lines().filter(|line| line.contains(&self.user)) {
            let line: AuditLogLine =
                serde_json::from_str(line).context("a line of the audit log")?;
            if line.user.username != self.user {
                continue;
            }
            let is_read = self.counted.as_ref().is_some_and(|it| it.is_read_by(&line));
            self.found.reads += u64::from(is_read);
            match line.verb.as_str() {
                "list" | "watch" => self.watching.push(line),
                _ => others.push(line),
            }
        }
        self.found.counts.extend(&RequestCounts::count(&others));
        Ok(())
    }

    fn take(&mut self) -> anyhow::Result<TailedRequests> {
        if let Some(error) = &self.error {
            return Err(anyhow!("the audit log cannot be read: {error}"));
        }
        let watching = std::mem::take(&mut self.watching);
        let mut found = std::mem::take(&mut self.found);
        found.counts.extend(&RequestCounts::count(&watching));
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::super::RequestPurpose;
    use super::*;
    use std::io::Write as _;

    fn line(verb: &str, uri: &str) -> String {
        let stage = if verb == "watch" { "ResponseStarted" } else { "ResponseComplete" };
        format!(
            "{{\"verb\":\"{verb}\",\"stage\":\"{stage}\",\"requestURI\":\"{uri}\",\"user\":{{\"username\":\"op\"}},\
             \"objectRef\":{{\"resource\":\"configmaps\"}},\"responseStatus\":{{\"code\":200}},\
             \"requestReceivedTimestamp\":\"2026-01-01T00:00:00.000000Z\",\
             \"stageTimestamp\":\"2026-01-01T00:00:00.250000Z\"}}\n"
        )
    }

    fn append(path: &Path, text: &str) {
        let file = File::options().create(true).append(true).open(path);
        file.unwrap().write_all(text.as_bytes()).unwrap();
    }

    fn reader(path: &Path) -> AuditLogReader {
        let counted = CountedObject::at("/api/v1/namespaces/x/configmaps/shared");
        AuditLogReader::open(path, "op", Some(counted)).unwrap()
    }

    #[test]
    fn requests_are_counted_over_a_rotation_and_a_half_written_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        append(&path, &line("patch", "/before"));
        let mut reader = reader(&path);
        let whole = line("patch", "/a");
        let (first, second) = whole.split_at(40);
        append(&path, first);
        reader.read();
        assert_eq!(reader.found.counts.total(RequestPurpose::Work), 0, "half a line is none");
        append(&path, second);
        std::fs::rename(&path, folder.path().join("audit-1.log")).unwrap();
        reader.read();
        append(&path, &line("patch", "/b"));
        reader.read();
        assert_eq!(reader.take().unwrap().counts.total(RequestPurpose::Work), 2);
        assert_eq!(reader.take().unwrap().counts.total(RequestPurpose::Work), 0, "they were taken");
    }

    #[test]
    fn reads_of_one_object_are_gets_and_selections_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        append(&path, "");
        let mut reader = reader(&path);
        let all = "/api/v1/namespaces/x/configmaps";
        for text in [
            line("get", &format!("{all}/shared")),
            line("get", &format!("{all}/shared-2")),
            line("patch", &format!("{all}/shared")),
            line("list", &format!("{all}?fieldSelector=metadata.name%3Dshared&limit=500")),
            line("list", &format!("{all}?limit=500")),
            line("watch", &format!("{all}?fieldSelector=metadata.name%3Dshared&watch=true")),
        ] {
            append(&path, &text);
        }
        reader.read();
        assert_eq!(reader.take().unwrap().reads, 3);
    }
}
