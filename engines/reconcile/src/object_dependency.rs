//! Dependencies on objects of other kinds. The annotation [`ANNOTATION`] lists them, and entries of `spec.dependsOn` may name
//! them.
//!
//! Here: [`ObjectDependency`], read from the annotation; which release of a Helmfile a text names ([`releases`]); whether an
//! entry of `spec.dependsOn` names another kind ([`is_of_other_kind`]).
//! Elsewhere: whether the needed object is ready (the program), and what follows from that (`run_gate.rs`).

use std::fmt;

/// The annotation that lists the objects that must be ready before this object is applied.
pub const ANNOTATION: &str = "windlass.dev/depends-on";

/// The most dependencies that an object may have, by the annotation and by `dependsOn` each.
pub const MOST_DEPENDENCIES: usize = 64;

/// Longest text that is repeated, in characters.
const MAX_ENTRY_CHARACTERS: usize = 200;

/// The longest names that Kubernetes allows for objects and groups, and for kinds.
const MAX_NAME_LENGTH: usize = 253;
const MAX_KIND_LENGTH: usize = 63;

/// Whether an entry of `spec.dependsOn` names an object of another kind. `own` is the group and kind of the object with the
/// entry. An entry without `apiVersion` and `kind` means the object's own kind.
///
/// # Errors
/// Why the entry names no kind, and how to correct it.
pub fn is_of_other_kind(
    own: [&str; 2],
    api_version: Option<&str>,
    kind: Option<&str>,
) -> Result<bool, String> {
    let [own_group, own_kind] = own;
    let shown = |text: &str| text.chars().take(MAX_ENTRY_CHARACTERS).collect::<String>();
    let group = api_version.map(|it| it.split_once('/').map_or("", |(group, _)| group));
    match (group, kind) {
        (None, None) => Ok(false),
        (None, Some(kind)) if kind == own_kind => Ok(false),
        (Some(group), None) if group == own_group => Ok(false),
        (None, Some(kind)) => Err(format!("kind `{}` needs apiVersion, too", shown(kind))),
        (Some(_), None) => {
            Err("apiVersion is that of another group, and needs kind, too".to_owned())
        }
        (Some(group), Some(kind)) => {
            let api_version = api_version.unwrap_or_default();
            let version = api_version.rsplit_once('/').map_or(api_version, |(_, version)| version);
            if group.len() > MAX_NAME_LENGTH || !is_short_word(kind) || !is_short_word(version) {
                let text = format!("{} {}", shown(api_version), shown(kind));
                return Err(format!("`{text}` is not an apiVersion and a kind"));
            }
            Ok([group, kind] != own)
        }
    }
}

fn is_short_word(text: &str) -> bool {
    let is_of_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    !text.is_empty() && text.len() <= MAX_KIND_LENGTH && text.bytes().all(is_of_word)
}

/// An object that another object depends on, or a part of it such as one release.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectDependency {
    /// The kind, such as `Helmfile`. If several groups have the kind, the group follows, as in
    /// `Helmfile.apps.mumoshu.github.io`.
    pub kind: String,
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The name of a release of a Helmfile, in a form that [`releases`] reads.
    pub part: Option<String>,
}

impl ObjectDependency {
    /// Whether an object of this kind may be meant.
    pub fn may_be(&self, group: &str, kind: &str) -> bool {
        self.kind == kind || self.kind.split_once('.') == Some((kind, group))
    }
}

/// Writes the dependency in the form of the annotation.
impl fmt::Display for ObjectDependency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, namespace, name, part } = self;
        write!(f, "{kind}/{namespace}/{name}")?;
        part.as_ref().map_or(Ok(()), |part| write!(f, "#{part}"))
    }
}

/// Reads dependencies of the form `KIND/NAMESPACE/NAME#RELEASE`, separated by commas. If the namespace is missing, `own` is
/// used.
///
/// # Errors
/// The entry that cannot be read, and the expected form.
pub fn parse(text: &str, own: &str) -> Result<Vec<ObjectDependency>, String> {
    let mut all: Vec<ObjectDependency> = Vec::new();
    for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let needed = one(entry, own).ok_or_else(|| {
            let shown: String = entry.chars().take(MAX_ENTRY_CHARACTERS).collect();
            format!("`{shown}` is not KIND/NAMESPACE/NAME or Helmfile/NAMESPACE/NAME#RELEASE")
        })?;
        if !all.contains(&needed) {
            all.push(needed);
        }
        if all.len() > MOST_DEPENDENCIES {
            return Err(format!("it names more than {MOST_DEPENDENCIES} objects"));
        }
    }
    Ok(all)
}

fn one(entry: &str, own: &str) -> Option<ObjectDependency> {
    let (object, part) = match entry.split_once('#') {
        Some((object, part)) => (object, Some(part)),
        None => (entry, None),
    };
    let (kind, namespace, name) = match object.split('/').collect::<Vec<_>>().as_slice() {
        [kind, name] => (*kind, own, *name),
        [kind, namespace, name] => (*kind, *namespace, *name),
        _ => return None,
    };
    let is_name = |text: &str| {
        let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
        !text.is_empty() && text.len() <= 253 && text.bytes().all(is_of_name)
    };
    let is_part = |part: &str| {
        let [name, namespace, context] = parts(part);
        let is_context = |text: &str| !text.is_empty() && text.len() <= 253 && !text.contains('#');
        name.is_some_and(is_name) && namespace.is_none_or(is_name) && context.is_none_or(is_context)
    };
    let is_read = [kind, namespace, name].into_iter().all(is_name) && part.is_none_or(is_part);
    is_read.then(|| ObjectDependency {
        kind: kind.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        part: part.map(str::to_owned),
    })
}

/// Splits `NAME`, `NAMESPACE/NAME` or `KUBECONTEXT/NAMESPACE/NAME` into name, namespace and context. Only the name of a context
/// may contain slashes.
fn parts(release: &str) -> [Option<&str>; 3] {
    let mut parts = release.rsplitn(3, '/');
    [parts.next(), parts.next(), parts.next()]
}

/// The releases of a Helmfile that match `NAME`, `NAMESPACE/NAME` or `KUBECONTEXT/NAMESPACE/NAME`. Each result has a context
/// (empty for the cluster of the spec), namespace and name. More than one result means that the text is ambiguous.
///
/// # Guarantees
/// The full name of a release matches only that release. A full name without a context means the cluster of the spec.
pub fn releases<'r, T>(
    text: &str,
    all: impl IntoIterator<Item = (T, [&'r str; 3])>,
) -> Vec<(T, String)> {
    let [name, namespace, context] = parts(text);
    let mut found = Vec::new();
    for (release, [its_context, its_namespace, its_name]) in all {
        let is = |part: Option<&str>, its: &str| part.is_none_or(|part| part == its);
        if !is(name, its_name) || !is(namespace, its_namespace) || !is(context, its_context) {
            continue;
        }
        let full = match its_context {
            "" => format!("{its_namespace}/{its_name}"),
            context => format!("{context}/{its_namespace}/{its_name}"),
        };
        if full == text {
            return vec![(release, full)];
        }
        found.push((release, full));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{is_of_other_kind, parse, releases};

    #[test]
    fn an_entry_without_a_kind_names_the_same_kind_and_another_kind_needs_its_version() {
        let own = ["kustomize.toolkit.fluxcd.io", "Kustomization"];
        let is_other = |api_version: Option<&str>, kind: Option<&str>| {
            is_of_other_kind(own, api_version, kind)
        };
        let group = Some("kustomize.toolkit.fluxcd.io/v1");
        for kind in [None, Some("Kustomization")] {
            assert_eq!(is_other(None, kind), Ok(false));
            assert_eq!(is_other(group, kind), Ok(false));
        }
        assert_eq!(is_other(Some("v1"), Some("Secret")), Ok(true));
        assert_eq!(is_other(Some("kustomize.config.k8s.io/v1"), Some("Kustomization")), Ok(true));
        assert!(is_other(None, Some("Secret")).is_err_and(|it| it.contains("needs apiVersion")));
        assert!(is_other(Some("v1"), None).is_err_and(|it| it.contains("needs kind")));
        let long = "x".repeat(100_000);
        for (api_version, kind) in
            [("v1", ""), ("a/", "B"), ("v1", &*long), (&*long, "B"), ("v1", "a b")]
        {
            let error = is_other(Some(api_version), Some(kind)).unwrap_err();
            assert!(error.len() < 1_000, "{api_version} {kind}");
        }
    }

    #[test]
    fn the_full_name_of_a_release_names_that_one_only() {
        let all =
            [["", "a", "db"], ["east", "a", "db"], ["arn:x/y", "b", "db"], ["east", "a", "web"]];
        let named = |text: &str| -> Vec<String> {
            releases(text, all.into_iter().map(|it| ((), it))).into_iter().map(|it| it.1).collect()
        };
        assert_eq!(named("a/db"), ["a/db"], "that of the spec's cluster");
        assert_eq!(named("east/a/db"), ["east/a/db"]);
        assert_eq!(named("arn:x/y/b/db"), ["arn:x/y/b/db"]);
        assert_eq!(named("b/db"), ["arn:x/y/b/db"]);
        assert_eq!(named("web"), ["east/a/web"]);
        assert_eq!(named("db"), ["a/db", "east/a/db", "arn:x/y/b/db"]);
        assert!(named("west/a/db").is_empty() && named("cache").is_empty());
    }

    #[test]
    fn a_kind_may_be_named_with_its_group() {
        let may_be = |text: &str, group| parse(text, "own").unwrap()[0].may_be(group, "Helmfile");
        for group in ["helmfile.windlass.dev", "apps.mumoshu.github.io"] {
            assert!(may_be("Helmfile/a", group));
        }
        let qualified = "Helmfile.apps.mumoshu.github.io/a";
        assert!(may_be(qualified, "apps.mumoshu.github.io"));
        assert!(!may_be(qualified, "helmfile.windlass.dev") && !may_be("HelmRelease/a", "x"));
    }

    #[test]
    fn entries_are_read_with_and_without_a_namespace_and_a_release() {
        let read = |text: &str| {
            let all = parse(text, "own")?;
            Ok::<_, String>(all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(
            read(
                "Helmfile/a/b#c, HelmRelease/d,,Kustomization/e/f, Helmfile/a/b#c,Helmfile/a/b#n/c, \
                 Helmfile/b#arn:aws:eks:1:cluster/x_y/n/c"
            ),
            Ok("Helmfile/a/b#c HelmRelease/own/d Kustomization/e/f Helmfile/a/b#n/c \
                Helmfile/own/b#arn:aws:eks:1:cluster/x_y/n/c"
                .to_owned())
        );
        assert_eq!(read(" "), Ok(String::new()));
        for wrong in
            ["a", "Helmfile/a/b/c", "Helmfile//b", "Helmfile/a/b#", "Helmfile/a/b#/d/e", "a/b c"]
        {
            assert!(
                read(wrong).is_err_and(|error| error.contains(&format!("`{wrong}`"))),
                "{wrong}"
            );
        }
        let many: Vec<String> = (0..65).map(|number| format!("HelmRelease/r{number}")).collect();
        assert!(read(&many.join(",")).is_err_and(|error| error.contains("more than 64")));
    }
}
