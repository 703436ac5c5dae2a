//! The release notes, which are a part of the changelog.

use anyhow::Context as _;

/// The text below the heading of a version. Without that heading, it is the text below `Unreleased`.
///
/// # Errors
/// When the changelog has neither.
pub(super) fn of(changelog: &str, version: &str) -> anyhow::Result<String> {
    let section = |name: &str| {
        changelog.split("\n## ").skip(1).find_map(|section| {
            let (heading, text) = section.split_once('\n')?;
            let heading = heading.split_whitespace().next()?;
            (heading.trim_matches(['[', ']']).trim_start_matches('v') == name)
                .then(|| format!("{}\n", text.trim()))
        })
    };
    section(version)
        .or_else(|| section("Unreleased"))
        .with_context(|| format!("CHANGELOG.md has no section for {version}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGELOG: &str =
        "# Changelog\n\n## Unreleased\n\n* new\n\n## 0.2.0 (2026-11-01)\n\n* old\n* older\n";

    #[test]
    fn notes_are_those_of_the_version_or_what_is_not_released() {
        assert_eq!(of(CHANGELOG, "0.2.0").unwrap(), "* old\n* older\n");
        assert_eq!(of(CHANGELOG, "0.3.0").unwrap(), "* new\n");
        let error = of("# Changelog\n", "0.1.0").unwrap_err();
        assert_eq!(error.to_string(), "CHANGELOG.md has no section for 0.1.0");
    }
}
