//! The keys that a Secret or ConfigMap needs for the field that names it, and the command that creates them.
//!
//! Elsewhere: the fields that name one (`object_references.rs`), and missing ones (`cause_walk.rs`).

use objects::{Object, ObjectId};
use serde_json::Value;

use crate::condition::text;

/// The keys that a Secret or ConfigMap needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequiredSecretKeys {
    /// The key without which the object that names the Secret certainly fails. `None` if one of several keys is enough.
    pub(crate) key: Option<String>,
    /// The arguments of `kubectl create` that set the keys. Words in capitals stand for values that only the user
    /// knows.
    arguments: String,
    /// The type of the Secret.
    type_: &'static str,
}

impl RequiredSecretKeys {
    /// The keys that a field of an object needs in the Secret or ConfigMap that it names. A field without a rule needs
    /// any key.
    pub(crate) fn of(namer: &Object, field: &str) -> Self {
        Self::known(namer, field).unwrap_or_else(Self::any)
    }

    /// The keys that a field needs. `None` if no rule is about the field.
    fn known(namer: &Object, field: &str) -> Option<Self> {
        let value = value(namer, field).unwrap_or(&Value::Null);
        let path = field.strip_prefix("spec.").unwrap_or(field);
        let last = path.rsplit('.').next().unwrap_or(path).split('[').next().unwrap_or(path);
        let key_of = |field: &str, otherwise: &str| match text(value, field) {
            "" => otherwise.to_owned(),
            key => key.to_owned(),
        };
        let is_verification = path.ends_with("verify.secretRef");
        Some(match (namer.kind(), path, last) {
            (_, _, "substituteFrom" | "envFrom") => Self::any(),
            (_, _, "valuesFrom") => {
                let key = key_of("valuesKey", "values.yaml");
                let is_value = !text(value, "targetPath").is_empty();
                let flag = if is_value { "literal" } else { "file" };
                let means = if is_value { "VALUE" } else { "PATH" };
                Self::key(&key, flag, means)
            }
            (_, "kubeConfig.secretRef", _) => kubeconfig(text(value, "key")),
            ("Helmfile", _, "secretRef") if path.starts_with("kubeContexts.") => {
                kubeconfig(text(value, "key"))
            }
            (_, "decryption.secretRef", _) => Self::file("age.agekey"),
            (_, _, "certSecretRef") => Self::file("ca.crt"),
            (_, _, "trustedRootSecretRef") => Self::file("trusted_root.json"),
            (_, _, "proxySecretRef") => Self::literals(&["address"]),
            ("GitRepository", "verify.secretRef", _) => Self::file("author.asc"),
            ("PlanPolicy", "pullRequestApproval.secretRef", _) => Self::literals(&["token"]),
            _ if is_verification => Self::file("cosign.pub"),
            ("Receiver", "secretRef", _) => Self::key("token", "literal", "TOKEN"),
            ("Provider", "secretRef", _) => provider(namer),
            ("GitRepository", "secretRef", _) => git(namer),
            ("Bucket", "secretRef", _) => bucket(namer),
            ("Bucket", "sts.secretRef", _) => Self::literals(&["username", "password"]),
            ("ImageUpdateAutomation", "git.commit.signingKey.secretRef", _) => signing_key(namer),
            ("OCIRepository" | "ImageRepository", "secretRef", _) => Self {
                key: None,
                arguments:
                    "--docker-server=SERVER --docker-username=USERNAME --docker-password=PASSWORD"
                        .to_owned(),
                type_: "docker-registry",
            },
            ("HelmRepository" | "HTTPArchive", "secretRef", _) => {
                Self::literals(&["username", "password"])
            }
            _ => return None,
        })
    }

    /// No certain key is required: a Secret with any keys is accepted.
    fn any() -> Self {
        Self::plain("--from-literal=KEY=VALUE".to_owned())
    }

    fn plain(arguments: String) -> Self {
        Self { key: None, arguments, type_: "generic" }
    }

    fn key(key: &str, flag: &str, means: &str) -> Self {
        Self { key: Some(key.to_owned()), ..Self::plain(format!("--from-{flag}={key}={means}")) }
    }

    fn file(key: &str) -> Self {
        Self::plain(format!("--from-file={key}=PATH"))
    }

    fn literals(keys: &[&str]) -> Self {
        let all = keys.iter().map(|key| format!("--from-literal={key}={}", key.to_uppercase()));
        Self::plain(all.collect::<Vec<_>>().join(" "))
    }

    /// The command that creates a Secret or ConfigMap. `None` if a key would need quotes in a shell.
    pub(crate) fn creation(&self, id: &ObjectId) -> Option<String> {
        let is_plain = self.key.as_deref().is_none_or(is_key);
        let kind = match id.kind.as_str() {
            "Secret" => format!("secret {}", self.type_),
            _ => "configmap".to_owned(),
        };
        let Self { arguments, .. } = self;
        is_plain
            .then(|| format!("kubectl -n {} create {kind} {} {arguments}", id.namespace, id.name))
    }

    /// The command that adds the key to an existing object. `None` if the key would need quotes in a shell, or the
    /// object is not known.
    pub(crate) fn addition(&self, id: &ObjectId) -> Option<String> {
        let key = self.key.as_deref().filter(|key| is_key(key))?;
        let field = if id.kind == "Secret" { "stringData" } else { "data" };
        let kind = id.kind.to_lowercase();
        let namespace = &id.namespace;
        let name = &id.name;
        Some(format!(
            "kubectl -n {namespace} patch {kind} {name} --type=merge -p '{{\"{field}\":{{\"{key}\":\"VALUE\"}}}}'"
        ))
    }

    /// The key that the object certainly needs and does not have. `None` if it has the key, or if its data or the key
    /// is not known.
    pub(crate) fn lacks(&self, held: &Object) -> Option<&str> {
        let key = self.key.as_deref()?;
        let data = held.get("data").and_then(Value::as_object)?;
        let more = held.get("binaryData").and_then(Value::as_object);
        let has = data.contains_key(key) || more.is_some_and(|it| it.contains_key(key));
        (!has).then_some(key)
    }
}

/// Whether a key of data can stand in a shell command without quotes.
fn is_key(key: &str) -> bool {
    let is_of_key = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    !key.is_empty() && !key.starts_with('-') && key.bytes().all(is_of_key)
}

/// Whether there is a rule for the keys that the Secret or ConfigMap named by `field` needs. Without a rule, any key is enough.
pub fn are_known(namer: &Object, field: &str) -> bool {
    RequiredSecretKeys::known(namer, field).is_some()
}

/// The keys of a kubeconfig: the one that the field names, or those that windlass tries.
fn kubeconfig(key: &str) -> RequiredSecretKeys {
    match key {
        "" => RequiredSecretKeys { key: None, ..RequiredSecretKeys::key("value", "file", "PATH") },
        key => RequiredSecretKeys::key(key, "file", "PATH"),
    }
}

/// The keys for the credentials of a Git server, which depend on the protocol.
fn git(namer: &Object) -> RequiredSecretKeys {
    let url = namer.get("spec").map(|spec| text(spec, "url")).unwrap_or_default();
    match url.starts_with("ssh://") {
        true => RequiredSecretKeys::plain(
            "--from-file=identity=PATH --from-file=known_hosts=PATH".to_owned(),
        ),
        false => RequiredSecretKeys::literals(&["username", "password"]),
    }
}

/// The keys for the credentials of a bucket, which depend on its provider.
fn bucket(namer: &Object) -> RequiredSecretKeys {
    match namer.get("spec").map(|spec| text(spec, "provider")).unwrap_or_default() {
        "gcp" => RequiredSecretKeys::file("serviceaccount"),
        "azure" => RequiredSecretKeys::literals(&["accountKey"]),
        _ => RequiredSecretKeys::literals(&["accesskey", "secretkey"]),
    }
}

/// The keys for signing commits, which depend on the type of the signing key.
fn signing_key(namer: &Object) -> RequiredSecretKeys {
    let type_ = value(namer, "spec.git.commit.signingKey.type").and_then(Value::as_str);
    RequiredSecretKeys::file(if type_ == Some("ssh") { "identity" } else { "git.asc" })
}

/// The keys for a Provider, which depend on its type: its address or its credentials.
fn provider(namer: &Object) -> RequiredSecretKeys {
    let spec = namer.get("spec").unwrap_or(&Value::Null);
    let is_of_git = matches!(
        text(spec, "type"),
        "github"
            | "githubdispatch"
            | "gitlab"
            | "gitea"
            | "bitbucket"
            | "bitbucketserver"
            | "azuredevops"
    );
    match text(spec, "address").is_empty() && !is_of_git {
        true => RequiredSecretKeys::literals(&["address"]),
        false => RequiredSecretKeys::literals(&["token"]),
    }
}

/// The value in an object at a path of fields, such as `spec.valuesFrom[0]`. `None` if the path leads nowhere.
fn value<'o>(object: &'o Object, path: &str) -> Option<&'o Value> {
    let mut parts = path.split('.');
    let mut found = object.get(parts.next()?)?;
    for part in parts {
        let (name, indices) = part.split_once('[').map_or((part, ""), |(name, rest)| (name, rest));
        found = found.get(name)?;
        for index in indices.split(['[', ']']).filter(|it| !it.is_empty()) {
            found = found.get(index.parse::<usize>().ok()?)?;
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn created(kind: &str, spec: &Value, field: &str, of: &str) -> String {
        let namer = json!({"apiVersion": "x.fluxcd.io/v1", "kind": kind,
            "metadata": {"name": "app", "namespace": "apps"}, "spec": spec});
        let needs = RequiredSecretKeys::of(&Object::new(namer).unwrap(), field);
        let id = ObjectId::new("apps", "it", "", of);
        needs.creation(&id).unwrap_or_default().replace("kubectl -n apps create ", "")
    }

    #[test]
    fn a_field_tells_the_keys_that_it_needs() {
        let values = json!({"valuesFrom": [{"kind": "Secret", "name": "it"},
            {"name": "it", "valuesKey": "prod.yaml"}, {"name": "it", "valuesKey": "tag", "targetPath": "image.tag"},
            {"name": "it", "valuesKey": "a;b"}]});
        let none = json!({});
        for (kind, spec, field, command) in [
            (
                "HelmRelease",
                &values,
                "spec.valuesFrom[0]",
                "secret generic it --from-file=values.yaml=PATH",
            ),
            (
                "HelmRelease",
                &values,
                "spec.valuesFrom[1]",
                "secret generic it --from-file=prod.yaml=PATH",
            ),
            (
                "HelmRelease",
                &values,
                "spec.valuesFrom[2]",
                "secret generic it --from-literal=tag=VALUE",
            ),
            ("HelmRelease", &values, "spec.valuesFrom[3]", ""),
            (
                "GitRepository",
                &json!({"url": "ssh://git@h/r"}),
                "spec.secretRef",
                "secret generic it --from-file=identity=PATH --from-file=known_hosts=PATH",
            ),
            (
                "GitRepository",
                &json!({"url": "https://h/r"}),
                "spec.secretRef",
                "secret generic it --from-literal=username=USERNAME --from-literal=password=PASSWORD",
            ),
            (
                "ImageUpdateAutomation",
                &none,
                "spec.git.commit.signingKey.secretRef",
                "secret generic it --from-file=git.asc=PATH",
            ),
            (
                "ImageUpdateAutomation",
                &json!({"git": {"commit": {"signingKey": {"type": "ssh"}}}}),
                "spec.git.commit.signingKey.secretRef",
                "secret generic it --from-file=identity=PATH",
            ),
            (
                "OCIRepository",
                &none,
                "spec.secretRef",
                "secret docker-registry it --docker-server=SERVER --docker-username=USERNAME --docker-password=PASSWORD",
            ),
            (
                "Kustomization",
                &none,
                "spec.decryption.secretRef",
                "secret generic it --from-file=age.agekey=PATH",
            ),
            (
                "Kustomization",
                &none,
                "spec.kubeConfig.secretRef",
                "secret generic it --from-file=value=PATH",
            ),
            (
                "Provider",
                &none,
                "spec.secretRef",
                "secret generic it --from-literal=address=ADDRESS",
            ),
            (
                "Provider",
                &json!({"type": "github", "address": "https://h"}),
                "spec.secretRef",
                "secret generic it --from-literal=token=TOKEN",
            ),
            ("Receiver", &none, "spec.secretRef", "secret generic it --from-literal=token=TOKEN"),
            (
                "HelmRelease",
                &none,
                "spec.chart.spec.verify.secretRef",
                "secret generic it --from-file=cosign.pub=PATH",
            ),
            (
                "Helmfile",
                &json!({"kubeContexts": {"east": {"secretRef": {"name": "it", "key": "config"}}}}),
                "spec.kubeContexts.east.secretRef",
                "secret generic it --from-file=config=PATH",
            ),
            (
                "Bucket",
                &none,
                "spec.sts.secretRef",
                "secret generic it --from-literal=username=USERNAME --from-literal=password=PASSWORD",
            ),
        ] {
            assert_eq!(created(kind, spec, field, "Secret"), command, "{kind} {field}");
        }
    }

    #[test]
    fn a_key_is_missing_only_from_data_that_is_known() {
        let needs = RequiredSecretKeys::key("token", "literal", "TOKEN");
        let held = |more: Value| {
            let mut object =
                json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "it"}});
            object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            Object::new(object).unwrap()
        };
        assert_eq!(needs.lacks(&held(json!({"data": {}}))), Some("token"));
        assert_eq!(needs.lacks(&held(json!({"data": {"token": ""}}))), None);
        assert_eq!(needs.lacks(&held(json!({}))), None);
        assert_eq!(RequiredSecretKeys::file("age.agekey").lacks(&held(json!({"data": {}}))), None);
    }
}
