//! The target of a release: its names and namespaces, and whether they still match those of the existing release.
//!
//! Semantics: helm-controller 1.6 `api/v2` and `internal/action ReleaseTargetChanged`.

use helm::releasename;

use crate::release_snapshot::{ReleaseSnapshot, latest};

/// Namespace and name of a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseTarget {
    /// The namespace of the release's records.
    pub storage_namespace: String,
    /// The namespace of the release's objects.
    pub namespace: String,
    /// The name of the release, shortened to Helm's limit.
    pub name: String,
    /// The name of the release without that limit, which some of Flux's messages show.
    pub full_name: String,
}

impl ReleaseTarget {
    /// The target of a HelmRelease, from its own name and namespace and the related fields of its spec. Absent fields are
    /// empty.
    pub fn of(
        name: &str,
        namespace: &str,
        release_name: &str,
        target_namespace: &str,
        storage_namespace: &str,
    ) -> Self {
        let given = |text: &str, default: &str| {
            if text.is_empty() { default.to_owned() } else { text.to_owned() }
        };
        let default = match target_namespace {
            "" => name.to_owned(),
            target => format!("{target}-{name}"),
        };
        let full_name = given(release_name, &default);
        Self {
            storage_namespace: given(storage_namespace, namespace),
            namespace: given(target_namespace, namespace),
            name: releasename::shorten(&full_name),
            full_name,
        }
    }
}

/// The part of a release's target that has changed. The release must be removed and installed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseTargetChange {
    /// The records are in another namespace.
    StorageNamespace,
    /// The objects are in another namespace.
    Namespace,
    /// The release has another name.
    Name,
    /// The chart has another name.
    Chart,
}

impl ReleaseTargetChange {
    /// The word for the change in Flux's messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::StorageNamespace => "storage namespace",
            Self::Namespace => "release namespace",
            Self::Name => "release name",
            Self::Chart => "chart name",
        }
    }
}

/// The change of a target, compared with the release that the status knows by `status.storageNamespace` and `status.history`;
/// `None` if nothing has changed.
///
/// Before the first release, the result is always `None`.
pub fn change(
    target: &ReleaseTarget,
    chart_name: &str,
    storage_namespace: &str,
    history: &[ReleaseSnapshot],
) -> Option<ReleaseTargetChange> {
    let known = latest(history)?;
    if storage_namespace.is_empty() {
        None
    } else if target.storage_namespace != storage_namespace {
        Some(ReleaseTargetChange::StorageNamespace)
    } else if target.namespace != known.namespace {
        Some(ReleaseTargetChange::Namespace)
    } else if target.name != known.name {
        Some(ReleaseTargetChange::Name)
    } else if chart_name != known.chart_name {
        Some(ReleaseTargetChange::Chart)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(namespace: &str, name: &str, chart_name: &str) -> Vec<ReleaseSnapshot> {
        let [namespace, name, chart_name] = [namespace, name, chart_name].map(str::to_owned);
        vec![ReleaseSnapshot { namespace, name, chart_name, ..ReleaseSnapshot::default() }]
    }

    #[test]
    fn a_target_has_the_defaults_of_flux() {
        let own = ReleaseTarget::of("web", "apps", "", "", "");
        let all = |it: &ReleaseTarget| {
            [&it.storage_namespace, &it.namespace, &it.name].map(String::clone)
        };
        assert_eq!(all(&own), ["apps", "apps", "web"]);
        assert_eq!(
            all(&ReleaseTarget::of("web", "apps", "", "prod", "")),
            ["apps", "prod", "prod-web"]
        );
        assert_eq!(all(&ReleaseTarget::of("web", "apps", "x", "prod", "s")), ["s", "prod", "x"]);
        let long = ReleaseTarget::of(&"a".repeat(60), "apps", "", "", "");
        assert_eq!((long.name.len(), long.full_name.len()), (53, 60));
    }

    #[test]
    fn a_change_is_reported_only_of_what_was_released() {
        let target = ReleaseTarget::of("web", "apps", "", "", "");
        let seen = |storage: &str, history: &[ReleaseSnapshot]| {
            change(&target, "c", storage, history).map(ReleaseTargetChange::as_str)
        };
        assert_eq!(seen("apps", &known("apps", "web", "c")), None);
        assert_eq!(seen("", &known("x", "y", "z")), None);
        assert_eq!(seen("other", &[]), None);
        assert_eq!(seen("other", &known("x", "y", "z")), Some("storage namespace"));
        assert_eq!(seen("apps", &known("x", "y", "z")), Some("release namespace"));
        assert_eq!(seen("apps", &known("apps", "y", "z")), Some("release name"));
        assert_eq!(seen("apps", &known("apps", "web", "z")), Some("chart name"));
    }
}
