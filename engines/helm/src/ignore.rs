//! `.helmignore`: which files of a folder are not part of a chart.
//!
//! It resembles `.gitignore`, but a rule with `!` makes Helm ignore every file that the rule does *not* match. Here:
//! rules. Elsewhere: patterns (`ignore/glob.rs`), and walking the folder (the caller).

mod glob;

use glob::HelmIgnoreGlob;

/// The longest line that Helm reads, in bytes.
const MAX_LINE: usize = 65_535;

/// Why a `.helmignore` cannot be used. The messages are Helm's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A rule has `**`.
    #[error("double-star (**) syntax is not supported")]
    DoubleStar,
    /// A pattern is not valid.
    #[error("syntax error in pattern")]
    Syntax,
    /// A line is too long.
    #[error("bufio.Scanner: token too long")]
    LongLine,
}

/// The rules of a `.helmignore` file, which say what is not part of the chart.
#[derive(Debug, Clone, Default)]
pub struct HelmIgnoreRules(Vec<HelmIgnoreRule>);

#[derive(Debug, Clone)]
struct HelmIgnoreRule {
    is_negated: bool,
    folders_only: bool,
    /// Whether only the last part of a path is compared.
    name_only: bool,
    /// Parity(helm): a pattern that is valid only with its final slash matches nothing.
    glob: Option<HelmIgnoreGlob>,
}

impl HelmIgnoreRules {
    /// Reads the text of a `.helmignore`. It also adds Helm's own rule, which ignores names that begin with a dot in
    /// `templates`.
    ///
    /// # Errors
    /// The first rule that cannot be used.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut rules = Vec::new();
        for line in text.strip_prefix('\u{feff}').unwrap_or(text).split('\n') {
            if line.len() > MAX_LINE {
                return Err(Error::LongLine);
            }
            rules.extend(HelmIgnoreRule::parse(line.trim())?);
        }
        rules.extend(HelmIgnoreRule::parse("templates/.?*")?);
        Ok(Self(rules))
    }

    /// Whether a file or folder is ignored. The caller skips the content of an ignored folder.
    ///
    /// `path` is relative to the chart. Slashes separate its parts, and it does not end with one.
    pub fn is_ignored(&self, path: &str, is_folder: bool) -> bool {
        if matches!(path, "" | "." | "./") {
            return false;
        }
        for rule in &self.0 {
            let matches = (is_folder || !rule.folders_only) && rule.matches(path);
            if matches != rule.is_negated {
                return true;
            }
        }
        false
    }
}

impl HelmIgnoreRule {
    fn parse(text: &str) -> Result<Option<Self>, Error> {
        if text.is_empty() || text.starts_with('#') {
            return Ok(None);
        }
        if text.contains("**") {
            return Err(Error::DoubleStar);
        }
        HelmIgnoreGlob::parse(text).ok_or(Error::Syntax)?;
        let (pattern, is_negated) = stripped(text.strip_prefix('!'), text);
        let (pattern, folders_only) = stripped(pattern.strip_suffix('/'), pattern);
        let (pattern, is_anchored) = stripped(pattern.strip_prefix('/'), pattern);
        let name_only = !is_anchored && !pattern.contains('/');
        Ok(Some(Self { is_negated, folders_only, name_only, glob: HelmIgnoreGlob::parse(pattern) }))
    }

    fn matches(&self, path: &str) -> bool {
        let compared = match path.trim_end_matches('/').rsplit('/').next() {
            Some("") if self.name_only => "/",
            Some(name) if self.name_only => name,
            _ => path,
        };
        self.glob.as_ref().is_some_and(|glob| glob.matches(compared))
    }
}

fn stripped<'t>(without: Option<&'t str>, text: &'t str) -> (&'t str, bool) {
    (without.unwrap_or(text), without.is_some())
}

#[cfg(test)]
mod tests {
    use super::{Error, HelmIgnoreRules};

    #[test]
    fn a_rule_with_a_bang_ignores_what_it_does_not_match() {
        let rules = HelmIgnoreRules::parse("!*.yaml\n").unwrap();
        assert!(!rules.is_ignored("Chart.yaml", false));
        assert!(rules.is_ignored("README.md", false));
    }

    #[test]
    fn dotfiles_of_templates_are_always_ignored() {
        let rules = HelmIgnoreRules::parse("").unwrap();
        assert!(rules.is_ignored("templates/.swp", false));
        assert!(!rules.is_ignored("templates/.", false));
        assert!(!rules.is_ignored(".swp", false));
    }

    #[test]
    fn a_line_that_is_too_long_is_refused() {
        assert!(HelmIgnoreRules::parse(&"a".repeat(65_535)).is_ok());
        assert_eq!(HelmIgnoreRules::parse(&"a".repeat(65_536)).unwrap_err(), Error::LongLine);
    }
}
