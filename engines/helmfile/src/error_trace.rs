//! The chain of files that led to a helmfile. Errors begin with this chain.

use std::fmt;
use std::sync::Arc;

/// The chain of files and entries that led to a helmfile, from the first one: `in ./helmfile.yaml: in .helmfiles[0]: in
/// a.yaml`.
///
/// Helmfiles share the common beginning of their chains.
#[derive(Debug, Clone, Default)]
pub struct HelmfileErrorTrace(Option<Arc<HelmfileErrorTraceEntry>>);

/// A file or an entry, together with the chain before it.
#[derive(Debug)]
struct HelmfileErrorTraceEntry {
    before: HelmfileErrorTrace,
    place: String,
}

impl HelmfileErrorTrace {
    /// Whether the chain is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// This chain with one more file or entry.
    #[must_use]
    pub(crate) fn with(&self, place: String) -> Self {
        Self(Some(Arc::new(HelmfileErrorTraceEntry { before: self.clone(), place })))
    }
}

impl fmt::Display for HelmfileErrorTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut places = Vec::new();
        let mut last = &self.0;
        while let Some(step) = last {
            places.push(step.place.as_str());
            last = &step.before.0;
        }
        places.reverse();
        f.write_str(&places.join(": "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_file_comes_first() {
        let file = HelmfileErrorTrace::default().with("in ./helmfile.yaml".to_owned());
        let below = file.with("in .helmfiles[1]".to_owned()).with("in sub/a.yaml".to_owned());
        assert_eq!(below.to_string(), "in ./helmfile.yaml: in .helmfiles[1]: in sub/a.yaml");
        assert_eq!(file.to_string(), "in ./helmfile.yaml");
        assert!(HelmfileErrorTrace::default().is_empty() && !file.is_empty());
    }
}
