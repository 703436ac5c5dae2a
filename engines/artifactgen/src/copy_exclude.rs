//! Which paths of a source a copy excludes.
//!
//! Elsewhere: matching one path (`doublestar.rs`), and what the exclusion of a folder means for its files (`copy.rs`).

use golang::work_meter::{WorkLimitExceeded, WorkMeter};
use tree::RelPath;

use crate::doublestar::{PatternMatchError, PatternSyntaxCheck, is_match};

/// The exclude patterns of a copy.
#[derive(Debug)]
pub(crate) struct CopyExclusion<'a> {
    patterns: &'a [String],
    /// The folder of `from`. Patterns are also matched with paths relative to it.
    folder: Option<RelPath>,
}

impl<'a> CopyExclusion<'a> {
    pub(crate) fn new(patterns: &'a [String], folder: Option<RelPath>) -> Self {
        Self { patterns, folder }
    }

    /// Whether the copy excludes a path of the source.
    ///
    /// # Errors
    /// The matching costs more than the meter allows.
    pub(crate) fn excludes(
        &self,
        path: &RelPath,
        meter: &mut WorkMeter,
    ) -> Result<bool, WorkLimitExceeded> {
        if self.patterns.is_empty() {
            return Ok(false);
        }
        if self.matches(path.as_str(), meter)? {
            return Ok(true);
        }
        let folder = self.folder.as_ref().filter(|folder| !folder.is_root());
        match folder.and_then(|folder| path.strip_prefix(folder)) {
            Some(relative) if !relative.is_root() => self.matches(relative.as_str(), meter),
            Some(_) | None => Ok(false),
        }
    }

    fn matches(&self, path: &str, meter: &mut WorkMeter) -> Result<bool, WorkLimitExceeded> {
        let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
        for pattern in self.patterns {
            if matches(pattern, path, meter)? {
                return Ok(true);
            }
            if name != path && !pattern.contains('/') && matches(pattern, name, meter)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Whether a pattern matches a path. A malformed pattern matches no path.
fn matches(pattern: &str, path: &str, meter: &mut WorkMeter) -> Result<bool, WorkLimitExceeded> {
    match is_match(pattern, path, PatternSyntaxCheck::PartThatWasRead, meter) {
        Ok(is_match) => Ok(is_match),
        Err(PatternMatchError::Malformed) => Ok(false),
        Err(PatternMatchError::Work(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use golang::work_meter::{StopSignal, WorkAllowance};

    use super::*;

    #[test]
    fn patterns_are_tried_from_the_root_from_the_folder_and_with_the_name() {
        let excludes = |pattern: &str, folder: &str, path: &str| {
            let patterns = [pattern.to_owned()];
            let exclusion = CopyExclusion::new(&patterns, RelPath::parse(folder).ok());
            let mut meter = WorkMeter::new(WorkAllowance::UNLIMITED, StopSignal::default());
            exclusion.excludes(&RelPath::parse(path).unwrap(), &mut meter).unwrap()
        };
        assert!(excludes("deploy/*.yaml", "deploy", "deploy/web.yaml"));
        assert!(excludes("sub/**", "deploy", "deploy/sub/job.yaml"));
        assert!(excludes("*.yaml", ".", "deploy/sub/job.yaml"));
        assert!(!excludes("sub/*.yaml", ".", "deploy/sub/job.yaml"));
        assert!(!excludes("**/x/*.yaml", "deploy", "deploy/sub/job.yaml"));
        assert!(!excludes("deploy", "deploy", "deploy/web.yaml"));
    }
}
