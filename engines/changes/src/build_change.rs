//! Whether a revision changed what an applier builds, by the builds that its history had before and has now.
//!
//! The history of a status has one entry for a digest, which moves to the front when that digest is built again. So the entry
//! before the newest one does not say what was built before; who follows the statuses has seen it.

/// A build, as the newest entry of a history has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedBuild {
    /// The revision of the source.
    pub revision: String,
    /// Names the built objects.
    pub digest: String,
}

/// The newest build of an applier, and the one of the revision before it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FollowedBuilds {
    newest: Option<ObservedBuild>,
    before: Option<ObservedBuild>,
}

/// Whether a revision changed what an applier builds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuildChange {
    /// It builds something else, or nothing that is known.
    Changed,
    /// It builds the same.
    Unchanged,
    /// What was built before was not seen.
    Unknown,
}

impl FollowedBuilds {
    /// Takes in the newest build. Another digest of the same revision, as after a change of a variable, is no other revision.
    pub fn observe(&mut self, revision: &str, digest: &str) {
        let build = ObservedBuild { revision: revision.to_owned(), digest: digest.to_owned() };
        match &mut self.newest {
            Some(newest) if *newest == build => {}
            Some(newest) if newest.revision == build.revision => *newest = build,
            newest => self.before = newest.replace(build),
        }
    }

    /// What a revision did to the build of an applier that came to its end.
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
        let mut builds = FollowedBuilds::default();
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
        let mut builds = FollowedBuilds::default();
        builds.observe("1", "a");
        builds.observe("2", "b");
        builds.observe("1", "a");
        assert_eq!(builds.change("1"), BuildChange::Changed);
    }

    #[test]
    fn a_variable_that_changes_meanwhile_is_part_of_what_was_before() {
        let mut builds = FollowedBuilds::default();
        builds.observe("1", "a");
        builds.observe("1", "a");
        builds.observe("1", "b");
        assert_eq!(builds.change("1"), BuildChange::Unknown);
        builds.observe("2", "b");
        assert_eq!(builds.change("2"), BuildChange::Unchanged);
    }
}
