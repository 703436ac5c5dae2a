//! Whether a revision changed the build of an applier. It compares the newest builds in the applier's history over
//! time.
//!
//! The history in a status has one entry for each digest. An entry moves to the front when its digest is built again.
//! The second entry is therefore not always the previous build, and only a client that follows the status knows the
//! previous one.

/// The newest entry of a history: one build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedBuild {
    /// The revision of the source.
    pub revision: String,
    /// The digest of the built objects.
    pub digest: String,
}

/// The newest build of an applier, and the build of the revision before.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NewestAndPreviousBuild {
    newest: Option<ObservedBuild>,
    before: Option<ObservedBuild>,
}

/// Whether a revision changed what an applier builds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuildChange {
    /// The applier builds other objects, or its build is not known.
    Changed,
    /// The applier builds the same objects.
    Unchanged,
    /// The previous build was not observed.
    Unknown,
}

impl NewestAndPreviousBuild {
    /// Adds the newest build. If only the digest changed, such as after a change of a variable, the build replaces that
    /// of the same revision.
    pub fn observe(&mut self, revision: &str, digest: &str) {
        let build = ObservedBuild { revision: revision.to_owned(), digest: digest.to_owned() };
        match &mut self.newest {
            Some(newest) if *newest == build => {}
            Some(newest) if newest.revision == build.revision => *newest = build,
            newest => self.before = newest.replace(build),
        }
    }

    /// Whether a revision changed the build of an applier whose run has ended.
    #[must_use]
    pub fn change(&self, revision: &str) -> BuildChange {
        let Some(newest) = self.newest.as_ref().filter(|it| it.revision == revision) else {
            return BuildChange::Changed;
        };
        match &self.before {
            Some(before) if before.digest == newest.digest => BuildChange::Unchanged,
            Some(_) => BuildChange::Changed,
            None => BuildChange::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_that_builds_the_same_changes_nothing() {
        let mut builds = NewestAndPreviousBuild::default();
        builds.observe("1", "a");
        assert_eq!(builds.change("1"), BuildChange::Unknown, "it was applied before that was seen");
        builds.observe("2", "a");
        assert_eq!(builds.change("2"), BuildChange::Unchanged);
        builds.observe("3", "b");
        assert_eq!(builds.change("3"), BuildChange::Changed);
        assert_eq!(builds.change("4"), BuildChange::Changed, "it could not be built");
    }

    #[test]
    fn a_revision_that_comes_back_is_compared_with_the_one_in_between() {
        let mut builds = NewestAndPreviousBuild::default();
        builds.observe("1", "a");
        builds.observe("2", "b");
        builds.observe("1", "a");
        assert_eq!(builds.change("1"), BuildChange::Changed);
    }

    #[test]
    fn a_variable_that_changes_meanwhile_is_part_of_what_was_before() {
        let mut builds = NewestAndPreviousBuild::default();
        builds.observe("1", "a");
        builds.observe("1", "a");
        builds.observe("1", "b");
        assert_eq!(builds.change("1"), BuildChange::Unknown);
        builds.observe("2", "b");
        assert_eq!(builds.change("2"), BuildChange::Unchanged);
    }
}
