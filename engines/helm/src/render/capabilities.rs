//! `.Capabilities`: the object that templates see.

use std::sync::Arc;

use golang::Value;
use golang::value::{Function, Kind, Object, Signature, Str, Type};

use crate::capabilities::{BuildInfo, Capabilities, KubeVersion};

const NAME: &str = "*common.Capabilities";

/// The object for what a cluster can do.
pub(super) fn object(capabilities: &Arc<Capabilities>) -> Value {
    Value::object(Pointer(Arc::clone(capabilities)))
}

/// `*common.Capabilities`.
#[derive(Debug)]
struct Pointer(Arc<Capabilities>);

impl Object for Pointer {
    fn type_name(&self) -> &'static str {
        NAME
    }

    fn kind(&self) -> Kind {
        Kind::Pointer
    }

    fn fields(&self) -> Vec<(&'static str, Value)> {
        ["KubeVersion", "APIVersions", "HelmVersion"]
            .into_iter()
            .filter_map(|name| Some((name, self.field(name)?)))
            .collect()
    }

    fn field(&self, name: &str) -> Option<Value> {
        let shared = || Arc::clone(&self.0);
        Some(match name {
            "KubeVersion" => Value::object(Kube(shared())),
            "APIVersions" => Value::object(VersionSet(shared())),
            "HelmVersion" => Value::object(Build(shared())),
            _ => return None,
        })
    }

    fn method(self: Arc<Self>, name: &str) -> Option<Function> {
        let signature = Signature::new([], Type::Named(NAME.into(), Kind::Pointer));
        (name == "Copy").then(|| {
            Function::new(signature, move |_| Ok(Value::object(Self(Arc::clone(&self.0)))))
        })
    }
}

/// `common.KubeVersion`.
#[derive(Debug)]
struct Kube(Arc<Capabilities>);

impl Kube {
    fn version(&self) -> &KubeVersion {
        &self.0.kube_version
    }
}

impl Object for Kube {
    fn type_name(&self) -> &'static str {
        "common.KubeVersion"
    }

    fn fields(&self) -> Vec<(&'static str, Value)> {
        let KubeVersion { version, normalized, major, minor } = self.version();
        let names = ["Version", "normalizedVersion", "Major", "Minor"];
        let strings = [version, normalized, major, minor];
        names.into_iter().zip(strings.map(|text| Value::from(text.as_str()))).collect()
    }

    fn field(&self, name: &str) -> Option<Value> {
        let text = match name {
            "Version" => &self.version().version,
            "Major" => &self.version().major,
            "Minor" => &self.version().minor,
            _ => return None,
        };
        Some(Value::from(text.as_str()))
    }

    fn method(self: Arc<Self>, name: &str) -> Option<Function> {
        let text = match name {
            "String" => self.version().compared().to_owned(),
            "GitVersion" => self.version().version.clone(),
            _ => return None,
        };
        let signature = Signature::new([], Type::String);
        Some(Function::new(signature, move |_| Ok(Value::from(text.as_str()))))
    }

    /// Parity(helm 4): only the pointer to it has the method, so a copy prints as a struct.
    fn addressed_text(&self) -> Option<Str> {
        Some(self.version().compared().into())
    }
}

/// `common.VersionSet`.
#[derive(Debug)]
struct VersionSet(Arc<Capabilities>);

impl Object for VersionSet {
    fn type_name(&self) -> &'static str {
        "common.VersionSet"
    }

    fn kind(&self) -> Kind {
        Kind::Slice
    }

    fn underlying(&self) -> Option<Value> {
        Some(Value::strings(self.0.api_versions.iter().map(String::as_str)))
    }

    fn method(self: Arc<Self>, name: &str) -> Option<Function> {
        let signature = Signature::new([Type::String], Type::Bool);
        (name == "Has").then(|| {
            Function::new(signature, move |arguments| {
                let Some(Value::String(wanted)) = arguments.first() else {
                    return Ok(Value::Bool(false));
                };
                let has = |known: &String| known.as_bytes() == &**wanted;
                Ok(Value::Bool(self.0.api_versions.iter().any(has)))
            })
        })
    }
}

/// `version.BuildInfo`.
#[derive(Debug)]
struct Build(Arc<Capabilities>);

impl Object for Build {
    fn type_name(&self) -> &'static str {
        "version.BuildInfo"
    }

    fn fields(&self) -> Vec<(&'static str, Value)> {
        let BuildInfo { version, git_commit, git_tree_state, go_version, kube_client_version } =
            &self.0.helm_version;
        let fields = [
            ("Version", version),
            ("GitCommit", git_commit),
            ("GitTreeState", git_tree_state),
            ("GoVersion", go_version),
            ("KubeClientVersion", kube_client_version),
        ];
        fields.map(|(name, text)| (name, Value::from(text.as_str()))).into()
    }

    fn json_fields(&self) -> Vec<(&'static str, Value)> {
        let names =
            ["version", "git_commit", "git_tree_state", "go_version", "kube_client_version"];
        let fields = self.fields().into_iter().map(|(_, text)| text);
        let is_written = |name: &str, text: &Value| name == names[4] || text.is_true();
        names.into_iter().zip(fields).filter(|(name, text)| is_written(name, text)).collect()
    }
}
