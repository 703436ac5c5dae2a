//! Records every file, folder and path that a build examined, to detect later whether the build would give another result.
//!
//! Here: making the record, its digest, and repeating the requests on another tree.
//! Elsewhere: deciding from the record whether to build again (the program's controllers).

use std::{collections::BTreeMap, fmt, sync::Arc};

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use crate::{FileKind, FileMetadata, FileTree, RelPath, TreeError};

/// A SHA-256 digest. Its text form is `sha256:<64 hexadecimal digits>`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sha256Digest([u8; 32]);

impl Sha256Digest {
    /// The bytes of the digest.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    fn of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            // Lengths are hashed too, so that two parts cannot be read as one.
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }
}

impl fmt::Display for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", hex::encode(self.0))
    }
}

impl fmt::Debug for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A way to examine a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TreeAccessKind {
    /// [`FileTree::read`].
    Read,
    /// [`FileTree::list`].
    List,
    /// [`FileTree::entry`].
    Probe,
}

impl TreeAccessKind {
    /// Makes the request and returns a digest of the answer. A missing file is an answer, too.
    fn answer(self, files: &(impl FileTree + ?Sized), path: &RelPath) -> Sha256Digest {
        match self {
            Self::Read => read(&files.read(path)),
            Self::List => list(&files.list(path)),
            Self::Probe => probe(files.entry(path)),
        }
    }
}

/// The record of a build: each request to the tree, with the digest of its answer.
///
/// It holds digests and never the content of a file. Clones share the data, because it is kept from one build to the next.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TreeAccessTrace {
    /// In walk order.
    seen: Arc<[ExaminedPath]>,
}

/// A question and the digest of its answer.
type ExaminedPath = ((RelPath, TreeAccessKind), Sha256Digest);

impl TreeAccessTrace {
    /// Everything that was examined, in walk order.
    pub fn iter(&self) -> impl Iterator<Item = (&RelPath, TreeAccessKind, Sha256Digest)> {
        self.seen.iter().map(|((path, look), answer)| (path, *look, *answer))
    }

    /// One digest over all recorded requests and their answers.
    ///
    /// # Guarantees
    /// The digest does not depend on the order of the requests or on repetitions.
    #[must_use]
    pub fn digest(&self) -> Sha256Digest {
        self.digest_of(|(_, answer)| *answer)
    }

    /// The digest of the record if the same requests were made to `files`.
    ///
    /// If it equals [`TreeAccessTrace::digest`], a build that depends on nothing else would give the same result for `files`.
    #[cfg(test)]
    fn digest_in(&self, files: &(impl FileTree + ?Sized)) -> Sha256Digest {
        self.digest_of(|((path, look), _)| look.answer(files, path))
    }

    /// Whether `files` gives the recorded answer to every request. The check stops at the first difference.
    #[must_use]
    pub fn is_same_in(&self, files: &(impl FileTree + ?Sized)) -> bool {
        self.seen.iter().all(|((path, look), answer)| look.answer(files, path) == *answer)
    }

    /// The paths for which `files` gives another answer than the recorded one, each once, in walk order. Empty if
    /// [`TreeAccessTrace::is_same_in`] is true.
    pub fn changed_in(&self, files: &(impl FileTree + ?Sized)) -> Vec<&RelPath> {
        let changed =
            self.seen.iter().filter(|((path, look), seen)| look.answer(files, path) != *seen);
        let mut paths: Vec<&RelPath> = changed.map(|((path, _), _)| path).collect();
        paths.dedup();
        paths
    }

    fn digest_of<'a>(
        &'a self,
        answer: impl Fn((&'a (RelPath, TreeAccessKind), &'a Sha256Digest)) -> Sha256Digest,
    ) -> Sha256Digest {
        let lines = self.seen.iter().map(|(question, seen)| {
            let (path, look) = question;
            let answer = answer((question, seen));
            Sha256Digest::of([path.as_str().as_bytes(), &[*look as u8], answer.as_bytes()])
        });
        let lines: Vec<Sha256Digest> = lines.collect();
        Sha256Digest::of(lines.iter().map(|line| line.as_bytes().as_slice()))
    }
}

/// A tree that passes every request on to another tree and records it.
#[derive(Debug)]
pub struct TreeRecorder<'a, F: ?Sized> {
    files: &'a F,
    seen: Mutex<BTreeMap<(RelPath, TreeAccessKind), Sha256Digest>>,
}

impl<'a, F: FileTree + ?Sized> TreeRecorder<'a, F> {
    /// Begins with an empty note.
    #[must_use]
    pub fn new(files: &'a F) -> Self {
        Self { files, seen: Mutex::default() }
    }

    /// Everything that was examined.
    #[must_use]
    pub fn seen(self) -> TreeAccessTrace {
        TreeAccessTrace { seen: self.seen.into_inner().into_iter().collect() }
    }

    fn note(&self, path: &RelPath, look: TreeAccessKind, answer: Sha256Digest) {
        self.seen.lock().insert((path.clone(), look), answer);
    }
}

impl<F: FileTree + ?Sized> FileTree for TreeRecorder<'_, F> {
    fn read(&self, path: &RelPath) -> Result<Arc<[u8]>, TreeError> {
        let answer = self.files.read(path);
        self.note(path, TreeAccessKind::Read, read(&answer));
        answer
    }

    fn list(&self, dir: &RelPath) -> Result<Vec<(String, FileKind)>, TreeError> {
        let answer = self.files.list(dir);
        self.note(dir, TreeAccessKind::List, list(&answer));
        answer
    }

    fn entry(&self, path: &RelPath) -> Option<FileMetadata> {
        let answer = self.files.entry(path);
        self.note(path, TreeAccessKind::Probe, probe(answer));
        answer
    }
}

fn read(answer: &Result<Arc<[u8]>, TreeError>) -> Sha256Digest {
    match answer {
        Ok(body) => Sha256Digest::of([b"body", body.as_ref()]),
        Err(error) => refused(error),
    }
}

fn list(answer: &Result<Vec<(String, FileKind)>, TreeError>) -> Sha256Digest {
    match answer {
        Ok(found) => {
            let parts = found.iter().flat_map(|(name, kind)| [name.as_bytes(), word(*kind)]);
            Sha256Digest::of([b"list".as_slice()].into_iter().chain(parts))
        }
        Err(error) => refused(error),
    }
}

fn probe(answer: Option<FileMetadata>) -> Sha256Digest {
    match answer {
        Some(FileMetadata::File { len, executable }) => {
            Sha256Digest::of([word(FileKind::File), &len.to_le_bytes(), &[u8::from(executable)]])
        }
        Some(FileMetadata::Dir) => Sha256Digest::of([word(FileKind::Dir)]),
        None => Sha256Digest::of([b"nothing".as_slice()]),
    }
}

fn word(kind: FileKind) -> &'static [u8] {
    match kind {
        FileKind::File => b"file",
        FileKind::Dir => b"dir",
    }
}

fn refused(error: &TreeError) -> Sha256Digest {
    Sha256Digest::of(match error {
        TreeError::NotFound(_) => [b"nothing".as_slice()],
        TreeError::IsDirectory(_) => [b"is a directory".as_slice()],
        TreeError::NotDirectory(_) => [b"is not a directory".as_slice()],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryTree;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text).expect("a path inside the tree")
    }

    fn tree(files: &[(&str, &str)]) -> MemoryTree {
        MemoryTree::from_files(files.iter().copied()).expect("a small tree")
    }

    /// A build that reads one file, lists one folder and probes for two files.
    fn build(files: &MemoryTree) -> TreeAccessTrace {
        let recorder = TreeRecorder::new(files);
        drop(recorder.read(&path("app/a.yaml")));
        drop(recorder.list(&path("base")));
        recorder.entry(&path("app/kustomization.yml"));
        recorder.entry(&path("app/a.yaml"));
        recorder.seen()
    }

    const BEFORE: [(&str, &str); 3] =
        [("app/a.yaml", "1"), ("base/b.yaml", "2"), ("other/c.yaml", "3")];

    #[test]
    fn what_was_not_looked_at_does_not_count() {
        let trace = build(&tree(&BEFORE));
        let after = tree(&[
            ("app/a.yaml", "1"),
            ("app/new.yaml", "x"),
            ("base/b.yaml", "other content, which was not read"),
            ("other/c.yaml", "4"),
        ]);
        assert!(trace.is_same_in(&after) && trace.changed_in(&after).is_empty());
        assert_eq!(trace.digest(), trace.digest_in(&after));
        assert_eq!(trace, build(&after));
    }

    #[test]
    fn every_change_of_an_answer_changes_the_digest() {
        let trace = build(&tree(&BEFORE));
        let changed: [&[(&str, &str)]; 6] = [
            &[("app/a.yaml", "2"), BEFORE[1]],
            &[BEFORE[1]],
            &[("app/a.yaml/inner", "1"), BEFORE[1]],
            &[BEFORE[0], BEFORE[1], ("base/new.yaml", "")],
            &[BEFORE[0], ("base/b.yaml/inner", "2")],
            &[BEFORE[0], BEFORE[1], ("app/kustomization.yml", "")],
        ];
        for files in changed {
            let after = tree(files);
            assert!(!trace.is_same_in(&after), "{files:?}");
            assert_ne!(trace.digest(), trace.digest_in(&after), "{files:?}");
            assert_eq!(trace.digest_in(&after), build(&after).digest(), "{files:?}");
        }
    }

    #[test]
    fn paths_whose_answers_changed_are_named_once() {
        let trace = build(&tree(&BEFORE));
        let after = tree(&[("app/a.yaml", "22"), BEFORE[1], ("base/new.yaml", "")]);
        let changed: Vec<&str> =
            trace.changed_in(&after).into_iter().map(RelPath::as_str).collect();
        assert_eq!(changed, ["app/a.yaml", "base"]);
    }

    #[test]
    fn the_note_lists_every_question_once() {
        let files = tree(&BEFORE);
        let recorder = TreeRecorder::new(&files);
        for _ in 0..3 {
            drop(recorder.read(&path("missing")));
            recorder.entry(&path("app"));
        }
        let trace = recorder.seen();
        let seen: Vec<_> = trace.iter().map(|(path, look, _)| (path.as_str(), look)).collect();
        assert_eq!(seen, [("app", TreeAccessKind::Probe), ("missing", TreeAccessKind::Read)]);
    }

    #[test]
    fn the_digest_is_the_same_on_every_machine() {
        let digest = build(&tree(&BEFORE)).digest();
        expect_test::expect![
            "sha256:d152fa3aadc46c6d31a45217ac00ddb5a3cf14603a7ebb7534802a18ae1e9e04"
        ]
        .assert_eq(&digest.to_string());
    }
}
