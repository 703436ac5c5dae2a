//! The version and the APIs of a cluster, which templates see in `.Capabilities`.
//!
//! Here: the data, and reading a version of Kubernetes. Elsewhere: the object for templates (`render/capabilities.rs`).

/// The API versions that Helm 4.2 assumes when it has no cluster. They are those of client-go 0.36, in its order.
const API_VERSIONS: &str = include_str!("capabilities/api-versions.txt");

/// The version and the APIs of a cluster, and the version of Helm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// The version of Kubernetes.
    pub kube_version: KubeVersion,
    /// The served API versions, such as `apps/v1`. For a real cluster, they include kinds such as `apps/v1/Deployment`.
    pub api_versions: Vec<String>,
    /// The version of Helm that templates see.
    pub helm_version: BuildInfo,
}

/// A version of Kubernetes, for which a chart is rendered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubeVersion {
    /// The full version, such as `v1.33.4-gke.1245000`.
    pub version: String,
    /// The version without a vendor's suffix. It is empty for the version that a cluster reports.
    pub normalized: String,
    /// The first number.
    pub major: String,
    /// The second number.
    pub minor: String,
}

/// The version of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildInfo {
    /// The version of Helm, such as `v4.2.4`.
    pub version: String,
    /// The commit of the build. It is empty if the build does not know it.
    pub git_commit: String,
    /// Whether the program was built of exactly that commit.
    pub git_tree_state: String,
    /// The version of Go.
    pub go_version: String,
    /// The version of Kubernetes' client.
    pub kube_client_version: String,
}

impl Default for Capabilities {
    /// The capabilities that Helm 4.2 assumes when it is used as a library and has no cluster.
    fn default() -> Self {
        Self {
            kube_version: KubeVersion {
                version: "v1.36.0".to_owned(),
                normalized: "v1.36.0".to_owned(),
                major: "1".to_owned(),
                minor: "36".to_owned(),
            },
            api_versions: API_VERSIONS.lines().map(str::to_owned).collect(),
            helm_version: BuildInfo::default(),
        }
    }
}

impl Default for BuildInfo {
    /// The released Helm 4.2.4, without its commit. Differs(flux): programs built with Helm report `v4.2`.
    fn default() -> Self {
        Self {
            version: "v4.2.4".to_owned(),
            git_commit: String::new(),
            git_tree_state: String::new(),
            go_version: "go1.26.8".to_owned(),
            kube_client_version: "v1.36".to_owned(),
        }
    }
}

impl KubeVersion {
    /// Reads a version as the flag `--kube-version` has it: at least two numbers, with or without `v` before them. Only
    /// the full version keeps the text after the numbers.
    ///
    /// # Errors
    /// The text is not a version. The message is Go's.
    pub fn parse(text: &str) -> Result<Self, KubeVersionError> {
        let trimmed = text.trim_start_matches(['\t', '\n', '\x0c', '\r', ' ']);
        let rest = trimmed.strip_prefix('v').unwrap_or(trimmed);
        let mut numbers = Vec::new();
        let mut behind = rest;
        loop {
            let end = behind.find(|c: char| !c.is_ascii_digit()).unwrap_or(behind.len());
            if end == 0 {
                break;
            }
            numbers.push(&behind[..end]);
            behind = &behind[end..];
            match behind.strip_prefix('.') {
                Some(next) if next.starts_with(|c: char| c.is_ascii_digit()) => behind = next,
                _ => break,
            }
        }
        if numbers.is_empty() || behind.contains('\n') {
            return Err(KubeVersionError::NoVersion(quoted(text)));
        }
        if numbers.len() < 2 {
            return Err(KubeVersionError::TooShort(quoted(text)));
        }
        if numbers[0].starts_with('0') && numbers[0] != "0" {
            return Err(KubeVersionError::Zero(quoted(numbers[0]), quoted(text)));
        }
        let read = |number: &&str| {
            let in_range = || KubeVersionError::Range(quoted(number), quoted(text));
            number.parse::<u64>().map(|number| number.to_string()).map_err(|_| in_range())
        };
        let numbers = numbers.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        let version = if text.starts_with('v') { text.to_owned() } else { format!("v{text}") };
        Ok(Self {
            version,
            normalized: format!("v{}", numbers.join(".")),
            major: numbers[0].clone(),
            minor: numbers[1].clone(),
        })
    }

    /// The version that is compared with version ranges, and that the object for templates prints.
    pub fn compared(&self) -> &str {
        if self.normalized.is_empty() { &self.version } else { &self.normalized }
    }
}

/// A text is not a version of Kubernetes. The messages are Go's; callers quote them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum KubeVersionError {
    #[error("could not parse {0} as version")]
    NoVersion(String),
    #[error("illegal version string {0}")]
    TooShort(String),
    #[error("illegal zero-prefixed version component {0} in {1}")]
    Zero(String, String),
    #[error(
        "illegal non-numeric version component {0} in {1}: strconv.ParseUint: parsing {0}: value out of range"
    )]
    Range(String, String),
}

fn quoted(text: &str) -> String {
    let quoted = golang::strconv::quote(text.as_bytes(), golang::strconv::QuotingStyle::Printable);
    String::from_utf8_lossy(&quoted).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_keeps_what_a_vendor_added_and_is_compared_without_it() {
        let parsed = KubeVersion::parse("1.029.4-gke.1245").unwrap();
        assert_eq!(parsed.version, "v1.029.4-gke.1245");
        assert_eq!(parsed.compared(), "v1.29.4");
        assert_eq!((parsed.major.as_str(), parsed.minor.as_str()), ("1", "29"));
        assert_eq!(KubeVersion::parse(" v1.30.x").unwrap().version, "v v1.30.x");
    }

    #[test]
    fn what_is_no_version_is_said_as_go_says_it() {
        let error = |text: &str| KubeVersion::parse(text).unwrap_err().to_string();
        assert_eq!(error("banana"), "could not parse \"banana\" as version");
        assert_eq!(error("1."), "illegal version string \"1.\"");
        assert_eq!(error("01.2"), "illegal zero-prefixed version component \"01\" in \"01.2\"");
    }
}
