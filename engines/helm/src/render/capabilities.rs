//! `.Capabilities`: the version and the APIs of the cluster, as an object for templates.

use std::sync::Arc;

use golang::GoRuntimeValue;
use golang::value::{FunctionSignature, GoFunction, GoObject, GoString, GoType, ReflectKind};

use crate::capabilities::{BuildInfo, Capabilities, KubeVersion};

const NAME: &str = "*common.Capabilities";

/// The object for these capabilities.
pub(super) fn object(capabilities: &Arc<Capabilities>) -> GoRuntimeValue {
    GoRuntimeValue::object(CapabilitiesObject(Arc::clone(capabilities)))
}

/// The object of Go's type `*common.Capabilities`.
#[derive(Debug)]
struct CapabilitiesObject(Arc<Capabilities>);

impl GoObject for CapabilitiesObject {
    fn type_name(&self) -> &'static str {
        NAME
    }

    fn kind(&self) -> ReflectKind {
        ReflectKind::Pointer
    }

    fn fields(&self) -> Vec<(&'static str, GoRuntimeValue)> {
        ["KubeVersion", "APIVersions", "HelmVersion"]
            .into_iter()
            .filter_map(|name| Some((name, self.field(name)?)))
            .collect()
    }

    fn field(&self, name: &str) -> Option<GoRuntimeValue> {
        let shared = || Arc::clone(&self.0);
        Some(match name {
            "KubeVersion" => GoRuntimeValue::object(KubeVersionObject(shared())),
            "APIVersions" => GoRuntimeValue::object(VersionSetObject(shared())),
            "HelmVersion" => GoRuntimeValue::object(BuildInfoObject(shared())),
            _ => return None,
        })
    }

    fn method(self: Arc<Self>, name: &str) -> Option<GoFunction> {
        let signature =
            FunctionSignature::new([], GoType::Named(NAME.into(), ReflectKind::Pointer));
        (name == "Copy").then(|| {
            GoFunction::new(signature, move |_| {
                Ok(GoRuntimeValue::object(Self(Arc::clone(&self.0))))
            })
        })
    }
}

/// The object of Go's type `common.KubeVersion`.
#[derive(Debug)]
struct KubeVersionObject(Arc<Capabilities>);

impl KubeVersionObject {
    fn version(&self) -> &KubeVersion {
        &self.0.kube_version
    }
}

impl GoObject for KubeVersionObject {
    fn type_name(&self) -> &'static str {
        "common.KubeVersion"
    }

    fn fields(&self) -> Vec<(&'static str, GoRuntimeValue)> {
        let KubeVersion { version, normalized, major, minor } = self.version();
        let names = ["Version", "normalizedVersion", "Major", "Minor"];
        let strings = [version, normalized, major, minor];
        names.into_iter().zip(strings.map(|text| GoRuntimeValue::from(text.as_str()))).collect()
    }

    fn field(&self, name: &str) -> Option<GoRuntimeValue> {
        let text = match name {
            "Version" => &self.version().version,
            "Major" => &self.version().major,
            "Minor" => &self.version().minor,
            _ => return None,
        };
        Some(GoRuntimeValue::from(text.as_str()))
    }

    fn method(self: Arc<Self>, name: &str) -> Option<GoFunction> {
        let text = match name {
            "String" => self.version().compared().to_owned(),
            "GitVersion" => self.version().version.clone(),
            _ => return None,
        };
        let signature = FunctionSignature::new([], GoType::String);
        Some(GoFunction::new(signature, move |_| Ok(GoRuntimeValue::from(text.as_str()))))
    }

    /// The version as text, which is never `None`. Parity(helm 4): only the pointer to it has the method, so a copy
    /// prints as a struct.
    fn addressed_text(&self) -> Option<GoString> {
        Some(self.version().compared().into())
    }
}

/// The object of Go's type `common.VersionSet`.
#[derive(Debug)]
struct VersionSetObject(Arc<Capabilities>);

impl GoObject for VersionSetObject {
    fn type_name(&self) -> &'static str {
        "common.VersionSet"
    }

    fn kind(&self) -> ReflectKind {
        ReflectKind::Slice
    }

    fn underlying(&self) -> Option<GoRuntimeValue> {
        Some(GoRuntimeValue::strings(self.0.api_versions.iter().map(String::as_str)))
    }

    fn method(self: Arc<Self>, name: &str) -> Option<GoFunction> {
        let signature = FunctionSignature::new([GoType::String], GoType::Bool);
        (name == "Has").then(|| {
            GoFunction::new(signature, move |arguments| {
                let Some(GoRuntimeValue::String(wanted)) = arguments.first() else {
                    return Ok(GoRuntimeValue::Bool(false));
                };
                let has = |known: &String| known.as_bytes() == &**wanted;
                Ok(GoRuntimeValue::Bool(self.0.api_versions.iter().any(has)))
            })
        })
    }
}

/// The object of Go's type `version.BuildInfo`.
#[derive(Debug)]
struct BuildInfoObject(Arc<Capabilities>);

impl GoObject for BuildInfoObject {
    fn type_name(&self) -> &'static str {
        "version.BuildInfo"
    }

    fn fields(&self) -> Vec<(&'static str, GoRuntimeValue)> {
        let BuildInfo { version, git_commit, git_tree_state, go_version, kube_client_version } =
            &self.0.helm_version;
        let fields = [
            ("Version", version),
            ("GitCommit", git_commit),
            ("GitTreeState", git_tree_state),
            ("GoVersion", go_version),
            ("KubeClientVersion", kube_client_version),
        ];
        fields.map(|(name, text)| (name, GoRuntimeValue::from(text.as_str()))).into()
    }

    fn json_fields(&self) -> Vec<(&'static str, GoRuntimeValue)> {
        let names =
            ["version", "git_commit", "git_tree_state", "go_version", "kube_client_version"];
        let fields = self.fields().into_iter().map(|(_, text)| text);
        let is_written = |name: &str, text: &GoRuntimeValue| name == names[4] || text.is_true();
        names.into_iter().zip(fields).filter(|(name, text)| is_written(name, text)).collect()
    }
}
