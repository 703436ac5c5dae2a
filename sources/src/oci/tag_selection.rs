//! Chooses the tag with the highest version.

use golang::highest_version_selection::VersionRange;
use golang::regexp::GoRegexp;

use super::chart;
use super::{Error, ManifestReference};

/// The condition for tags, and the range of versions.
#[derive(Debug)]
pub struct TagSelection {
    range: VersionRange,
    filter: Option<GoRegexp>,
    is_chart: bool,
}

impl TagSelection {
    /// Parses a range of versions and the regular expression that tags have to match.
    ///
    /// If `is_chart`, tags are read as Helm writes them, with `_` for the `+` of a version.
    ///
    /// # Errors
    /// [`Error::InvalidReference`]: the range or the expression is not valid.
    pub fn parse(range: &str, filter: Option<&str>, is_chart: bool) -> Result<Self, Error> {
        let bad = |kind, name: &str, reason: String| Error::InvalidReference {
            kind,
            name: name.chars().take(200).collect(),
            reason,
        };
        let range = VersionRange::parse(range)
            .map_err(|error| bad("version range", range, error.to_string()))?;
        let filter = filter.filter(|filter| !filter.is_empty());
        let read = |it: &str| {
            GoRegexp::new(it).map_err(|error| bad("regular expression", it, error.to_string()))
        };
        Ok(Self { range, filter: filter.map(read).transpose()?, is_chart })
    }

    /// The tag of the highest version in the range.
    ///
    /// # Errors
    /// [`Error::NoMatch`].
    pub fn choose(&self, tags: &[String]) -> Result<ManifestReference, Error> {
        let passes = |tag: &&String| self.filter.as_ref().is_none_or(|it| it.is_match(tag));
        let version = |tag: &String| {
            if self.is_chart { chart::version_of(tag) } else { tag.clone() }
        };
        let versions: Vec<String> = tags.iter().filter(passes).map(version).collect();
        let found = self.range.highest(versions.iter().map(String::as_str));
        let found =
            found.first().ok_or_else(|| Error::NoMatch { range: self.range.to_string() })?;
        let tag = if self.is_chart { chart::tag_of(found) } else { (*found).to_owned() };
        ManifestReference::tag(&tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(range: &str, filter: Option<&str>, is_chart: bool) -> Result<String, Error> {
        let tags = [
            "1.0.0",
            "v1.2.0",
            "latest",
            "2.0.0-rc.1",
            "1.3.0-dev",
            "1.9.0_build.1",
            "sha256-00.sig",
        ];
        let tags: Vec<String> = tags.iter().map(|tag| (*tag).to_owned()).collect();
        TagSelection::parse(range, filter, is_chart)?.choose(&tags).map(|it| it.text())
    }

    #[test]
    fn the_highest_version_in_the_range_is_taken() {
        assert_eq!(choose("1.x", None, false).unwrap(), "v1.2.0");
        assert_eq!(choose("1.x", None, true).unwrap(), "1.9.0_build.1");
        assert_eq!(choose(">=1.0.0-0", None, false).unwrap(), "2.0.0-rc.1");
        assert_eq!(choose(">=1.0.0-0", Some(".*-dev.*"), false).unwrap(), "1.3.0-dev");
        let none = choose("3.x", None, false).unwrap_err().to_string();
        assert_eq!(none, "no match found for semver: 3.x");
        assert!(matches!(choose("nonsense", None, false), Err(Error::InvalidReference { .. })));
        assert!(matches!(choose("1.x", Some("("), false), Err(Error::InvalidReference { .. })));
    }
}
