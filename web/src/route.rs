//! The addresses of pages.

use objects::ObjectId;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use windlass_answers::branch_plan::SOURCE_KIND;

use super::shell_line::shell_line;

/// The path segment that stands for an empty namespace. No namespace can have this name.
const NO_NAMESPACE: &str = "-";

/// The characters that are escaped in a path segment.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The longest path segment, in bytes. A Kubernetes name has at most 253.
const MAX_PART_BYTES: usize = 512;

/// Kinds that have Pods, or that apply objects with Pods.
const HAVE_PODS: [&str; 12] = [
    "Kustomization",
    "HelmRelease",
    "Helmfile",
    "Deployment",
    "StatefulSet",
    "DaemonSet",
    "ReplicaSet",
    "ReplicationController",
    "Rollout",
    "Job",
    "CronJob",
    "Pod",
];

/// The minimum and maximum number of digits of a commit in a path.
const COMMIT_DIGITS: std::ops::RangeInclusive<usize> = 7..=64;

/// The page that an address names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route {
    Overview,
    Objects,
    Object {
        place: ObjectAddress,
        tab: ObjectTab,
    },
    Incidents,
    Incident {
        namespace: String,
        name: String,
    },
    Changes,
    /// A commit, given by its first digits.
    Commit(String),
    Approvals,
    Calendar,
    Audits,
    Me,
    /// What the cluster would become if a branch of a GitRepository were merged.
    BranchPlan {
        namespace: String,
        name: String,
    },
}

/// An object as a path names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ObjectAddress {
    /// The word for the kind on the command line, such as `ks`.
    pub(crate) kind: String,
    /// Empty for an object without a namespace.
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// A tab of an object's page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ObjectTab {
    Why,
    Graph,
    Tree,
    Diff,
    History,
    Events,
    Logs,
    Values,
    Yaml,
}

impl ObjectTab {
    pub(crate) const ALL: [Self; 9] = [
        Self::Why,
        Self::Graph,
        Self::Tree,
        Self::Diff,
        Self::History,
        Self::Events,
        Self::Logs,
        Self::Values,
        Self::Yaml,
    ];

    /// The last path segment of the tab. Empty for the first tab.
    fn word(self) -> &'static str {
        match self {
            Self::Why => "",
            Self::Graph => "graph",
            Self::Tree => "tree",
            Self::Diff => "diff",
            Self::History => "history",
            Self::Events => "events",
            Self::Logs => "logs",
            Self::Values => "values",
            Self::Yaml => "yaml",
        }
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Why => "Why",
            Self::Graph => "Graph",
            Self::Tree => "Tree",
            Self::Diff => "Diff",
            Self::History => "History",
            Self::Events => "Events",
            Self::Logs => "Logs",
            Self::Values => "Values",
            Self::Yaml => "YAML",
        }
    }

    /// Whether objects of a kind have this tab.
    pub(crate) fn is_of(self, kind: &str) -> bool {
        match self {
            Self::Why | Self::Graph | Self::Tree | Self::Events | Self::Yaml => true,
            Self::Logs => HAVE_PODS.contains(&kind),
            Self::Diff => matches!(kind, "Kustomization" | "HelmRelease"),
            Self::History => matches!(kind, "Kustomization" | "HelmRelease" | "Helmfile"),
            Self::Values => kind == "HelmRelease",
        }
    }
}

impl ObjectAddress {
    /// The place of an object of any kind.
    pub(crate) fn of(id: &ObjectId) -> Self {
        let names = crds::names().find(|it| it.group == id.group && it.kind == id.kind);
        let kind = match names.and_then(|it| it.short.first()) {
            Some(short) => (*short).to_owned(),
            None if id.group.is_empty() => id.kind.to_lowercase(),
            None => format!("{}.{}", id.kind.to_lowercase(), id.group),
        };
        Self { kind, namespace: id.namespace.clone(), name: id.name.clone() }
    }

    /// Parses a text such as `Kind/namespace/name` or `Kind/name`. Returns `None` for any other text.
    pub(crate) fn of_subject(subject: &str) -> Option<Self> {
        let parts: Vec<&str> = subject.split('/').collect();
        let (kind, namespace, name) = match *parts.as_slice() {
            [kind, namespace, name] => (kind, namespace, name),
            [kind, name] => (kind, "", name),
            _ => return None,
        };
        let is_word = |text: &str| !text.is_empty() && !text.contains([' ', ':']);
        let is_kind = is_word(kind) && kind.starts_with(|it: char| it.is_ascii_uppercase());
        (is_kind && is_word(name)).then(|| Self {
            kind: kind.to_lowercase(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }

    /// The single argument by which a command identifies the object.
    pub(crate) fn word(&self) -> String {
        let Self { kind, namespace, name } = self;
        match namespace.as_str() {
            "" => format!("{kind}/{name}"),
            namespace => format!("{kind}/{namespace}/{name}"),
        }
    }

    /// The arguments by which a user names the object on the command line, quoted if a shell requires it.
    pub(crate) fn command_words(&self) -> String {
        let Self { kind, namespace, name } = self;
        let named = format!("{kind}/{name}");
        match namespace.as_str() {
            "" => shell_line(&[&named]),
            namespace => shell_line(&[&named, "-n", namespace]),
        }
    }
}

impl Route {
    /// The page at a path.
    pub(crate) fn parse(path: &str) -> Option<Self> {
        let parts: Option<Vec<String>> = path.strip_prefix('/')?.split('/').map(decoded).collect();
        let parts = parts?;
        let words: Vec<&str> = parts.iter().map(String::as_str).collect();
        Some(match *words.as_slice() {
            [""] => Self::Overview,
            ["objects"] => Self::Objects,
            ["incidents"] => Self::Incidents,
            ["incidents", namespace, name] if !namespace.is_empty() && !name.is_empty() => {
                Self::Incident { namespace: namespace.to_owned(), name: name.to_owned() }
            }
            ["changes"] => Self::Changes,
            ["c", commit] => Self::of_commit(commit)?,
            ["me"] => Self::Me,
            ["approvals"] => Self::Approvals,
            ["calendar"] => Self::Calendar,
            ["audits"] => Self::Audits,
            ["plan", SOURCE_KIND, namespace, name] if !namespace.is_empty() && !name.is_empty() => {
                Self::BranchPlan { namespace: namespace.to_owned(), name: name.to_owned() }
            }
            ["o", kind, namespace, name] => Self::of_object(kind, namespace, name, "")?,
            ["o", kind, namespace, name, tab] if !tab.is_empty() => {
                Self::of_object(kind, namespace, name, tab)?
            }
            _ => return None,
        })
    }

    fn of_commit(commit: &str) -> Option<Self> {
        let is_hex = commit.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_commit = is_hex && COMMIT_DIGITS.contains(&commit.len());
        is_commit.then(|| Self::Commit(commit.to_ascii_lowercase()))
    }

    fn of_object(kind: &str, namespace: &str, name: &str, tab: &str) -> Option<Self> {
        let tab = ObjectTab::ALL.into_iter().find(|it| it.word() == tab)?;
        let is_named = !kind.is_empty() && !namespace.is_empty() && !name.is_empty();
        let namespace = if namespace == NO_NAMESPACE { "" } else { namespace };
        let place = ObjectAddress {
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        is_named.then_some(Self::Object { place, tab })
    }

    /// The path of the page.
    pub(crate) fn path(&self) -> String {
        match self {
            Self::Overview => "/".to_owned(),
            Self::Objects => "/objects".to_owned(),
            Self::Incidents => "/incidents".to_owned(),
            Self::Incident { namespace, name } => {
                format!("/incidents/{}/{}", escaped(namespace), escaped(name))
            }
            Self::Changes => "/changes".to_owned(),
            Self::Commit(commit) => format!("/c/{commit}"),
            Self::Me => "/me".to_owned(),
            Self::Approvals => "/approvals".to_owned(),
            Self::Calendar => "/calendar".to_owned(),
            Self::Audits => "/audits".to_owned(),
            Self::BranchPlan { namespace, name } => {
                format!("/plan/{SOURCE_KIND}/{}/{}", escaped(namespace), escaped(name))
            }
            Self::Object { place: ObjectAddress { kind, namespace, name }, tab } => {
                let namespace = if namespace.is_empty() { NO_NAMESPACE } else { namespace };
                let [kind, namespace, name] =
                    [kind.as_str(), namespace, name.as_str()].map(escaped);
                match tab.word() {
                    "" => format!("/o/{kind}/{namespace}/{name}"),
                    tab => format!("/o/{kind}/{namespace}/{name}/{tab}"),
                }
            }
        }
    }
}

/// Escapes a path segment.
fn escaped(part: &str) -> String {
    utf8_percent_encode(part, ESCAPED).to_string()
}

/// Decodes a path segment. Returns `None` if it is too long or contains characters that no name can have.
fn decoded(part: &str) -> Option<String> {
    let text = percent_decode_str(part).decode_utf8().ok()?;
    let is_harmless = |letter: char| letter != '/' && !letter.is_control();
    (text.len() <= MAX_PART_BYTES && text.chars().all(is_harmless)).then(|| text.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(kind: &str, namespace: &str, name: &str, tab: ObjectTab) -> Route {
        let [kind, namespace, name] = [kind, namespace, name].map(str::to_owned);
        Route::Object { place: ObjectAddress { kind, namespace, name }, tab }
    }

    #[test]
    fn every_page_has_a_path_that_leads_back_to_it() {
        let mut all = vec![
            Route::Overview,
            Route::Objects,
            Route::Incidents,
            Route::Approvals,
            Route::Calendar,
            Route::Audits,
            Route::Changes,
            Route::Me,
            Route::Commit("0123abc".to_owned()),
            Route::Incident { namespace: "apps".to_owned(), name: "a\"<b".to_owned() },
            Route::BranchPlan { namespace: "apps".to_owned(), name: "a\"<b".to_owned() },
            object("clusterrole", "", "system:node-\"<b>?#", ObjectTab::Yaml),
        ];
        all.extend(ObjectTab::ALL.map(|tab| object("ks", "apps", "web", tab)));
        for route in all {
            assert_eq!(Route::parse(&route.path()), Some(route.clone()), "{}", route.path());
        }
        let hostile = object("ks", "apps", "\"><script>", ObjectTab::Tree);
        assert_eq!(hostile.path(), "/o/ks/apps/%22%3E%3Cscript%3E/tree");
    }

    #[test]
    fn other_paths_have_no_page() {
        let long = format!("/o/ks/apps/{}", "a".repeat(MAX_PART_BYTES + 1));
        for path in [
            "",
            "objects",
            "/objects/",
            "/o/ks/apps",
            "/o/ks//web",
            "/o/ks/apps/web/",
            "/o/ks/apps/web/exec",
            "/c/0123ab",
            "/c/0123abz",
            "/incidents/apps",
            "/incidents/apps/",
            "/plan/Bucket/apps/web",
            "/plan/GitRepository/apps/",
            "/plan/GitRepository/apps/web/x",
            "/o/ks/apps/..%2f..%2fsecrets",
            "/o/ks/apps/a%00b",
            "/o/ks/apps/%ff",
            "//evil.example",
            long.as_str(),
        ] {
            assert_eq!(Route::parse(path), None, "{path}");
        }
    }

    #[test]
    fn an_object_is_named_as_commands_name_it() {
        let id = ObjectId::new("apps", "web", "kustomize.toolkit.fluxcd.io", "Kustomization");
        let place = ObjectAddress::of(&id);
        assert_eq!(place.word(), "ks/apps/web");
        assert_eq!(place.command_words(), "ks/web -n apps");
        let deployment = ObjectAddress::of(&ObjectId::new("apps", "web", "apps", "Deployment"));
        assert_eq!(deployment.word(), "deployment.apps/apps/web");
        let node = ObjectAddress::of(&ObjectId::new("", "n1", "", "Node"));
        assert_eq!((node.word(), node.command_words()), ("node/n1".into(), "node/n1".into()));
        let hostile = ObjectAddress::of(&ObjectId::new("", "$(id);", "", "Node"));
        assert_eq!(hostile.command_words(), "'node/$(id);'");
        let subject = ObjectAddress::of_subject("Kustomization/apps/web").unwrap();
        assert_eq!(subject.word(), "kustomization/apps/web");
        for text in ["5 more objects", "deployments", "unknown", "a/b/c/d", "ks/web", "Kind/a: b"] {
            assert_eq!(ObjectAddress::of_subject(text), None, "{text}");
        }
    }
}
