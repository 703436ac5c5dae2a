//! Changes the manifests of a repository, so that a cluster without its charts and keys can apply them.
//!
//! `windlass plan` and the cluster both get the changed manifests. This module changes one file, and notes its kinds.
//! `replayed_history` makes the commits.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use goyaml::YamlLimits;
use objects::Gvk;
use serde_json::{Map, Value, json};

/// The API group of Flux's Kustomization.
pub(super) const KUSTOMIZE_GROUP: &str = "kustomize.toolkit.fluxcd.io";

/// The API group of sources.
pub(super) const SOURCE_GROUP: &str = "source.toolkit.fluxcd.io";

/// How many levels of patches within patches are changed.
const MAX_PATCH_DEPTH: usize = 8;

/// Fields of a Kustomization that wait for health. The test bed cannot fetch charts of other hosts, so their objects
/// never become healthy.
const HEALTH_FIELDS: [&str; 3] = ["wait", "healthChecks", "healthCheckExprs"];

/// The field of a Kustomization that names its decryption keys.
const DECRYPTION: &str = "decryption";

/// The beginning of a value that SOPS encrypted.
const CIPHERTEXT: &str = "ENC[";

/// How many characters of a ciphertext the placeholder has.
const PLACEHOLDER_CHARACTERS: usize = 24;

/// How many documents were changed. Each version of a document counts.
#[derive(Debug, Default)]
pub(super) struct RewriteCounts {
    /// Kustomizations and patches whose health fields were removed.
    pub(super) health: usize,
    /// Kustomizations and patches whose decryption was removed.
    pub(super) decryption: usize,
    /// Documents of SOPS whose values were replaced by parts of the ciphertext.
    pub(super) encrypted: usize,
    /// GitRepositories that now fetch from the Git server of the test bed.
    pub(super) sources: usize,
}

/// The kinds in the manifests of a repository.
#[derive(Debug, Default)]
pub(super) struct ManifestKinds {
    /// The versions of each group and kind.
    versions: BTreeMap<(String, String), BTreeSet<String>>,
    /// Groups and kinds that a CustomResourceDefinition of the repository defines.
    defined: BTreeSet<(String, String)>,
}

impl ManifestKinds {
    /// The versions of a kind in manifests, without kinds that the repository defines itself.
    pub(super) fn undefined_versions(&self, group: &str, kind: &str) -> Vec<&str> {
        let key = (group.to_owned(), kind.to_owned());
        if self.defined.contains(&key) {
            return Vec::new();
        }
        self.versions.get(&key).into_iter().flatten().map(String::as_str).collect()
    }

    fn add(&mut self, document: &Value) {
        let Some(gvk) = gvk(document) else { return };
        if gvk.kind == "CustomResourceDefinition" {
            let spec = &document["spec"];
            let group = spec["group"].as_str().unwrap_or_default();
            let kind = spec["names"]["kind"].as_str().unwrap_or_default();
            self.defined.insert((group.to_owned(), kind.to_owned()));
        }
        self.versions.entry((gvk.group, gvk.kind)).or_default().insert(gvk.version);
    }
}

/// Changes manifests, and counts the changes and kinds.
#[derive(Debug)]
pub(super) struct ManifestRewriting {
    /// The URL of the repository at the Git server of the test bed.
    served_url: String,
    /// The URL from which the original cluster fetches the repository. GitRepositories with this URL are changed,
    /// too.
    origin: Option<String>,
    /// The name of the GitRepository of the entry point.
    source_name: String,
    /// The changed files by their original content. A file that stays as it is has none.
    known: BTreeMap<Vec<u8>, Option<String>>,
    /// The numbers of changes.
    pub(super) counts: RewriteCounts,
    /// The kinds of all manifests so far.
    pub(super) kinds: ManifestKinds,
}

impl ManifestRewriting {
    /// A rewriting that has changed nothing yet.
    pub(super) fn new(served_url: &str, origin: Option<&str>, source_name: &str) -> Self {
        Self {
            served_url: served_url.to_owned(),
            origin: origin.map(repository_place),
            source_name: source_name.to_owned(),
            known: BTreeMap::new(),
            counts: RewriteCounts::default(),
            kinds: ManifestKinds::default(),
        }
    }

    /// Changes a file. It gives none if the file stays as it is. That is so for files that are not YAML, such as
    /// templates.
    ///
    /// # Errors
    /// The changed documents cannot be written as YAML.
    pub(super) fn file(&mut self, text: &[u8]) -> anyhow::Result<Option<String>> {
        if let Some(known) = self.known.get(text) {
            return Ok(known.clone());
        }
        let rewritten = self.rewritten(text)?;
        self.known.insert(text.to_owned(), rewritten.clone());
        Ok(rewritten)
    }

    fn rewritten(&mut self, text: &[u8]) -> anyhow::Result<Option<String>> {
        let Ok(documents) = goyaml::documents(text, &YamlLimits::default()) else {
            return Ok(None);
        };
        let mut values: Vec<Value> = documents.into_iter().map(|it| it.value).collect();
        let mut is_changed = false;
        for value in &mut values {
            self.kinds.add(value);
            is_changed |= self.document(value, 0)?;
        }
        if is_changed { stream(&values).map(Some) } else { Ok(None) }
    }

    /// Changes a document. It returns whether something was changed.
    fn document(&mut self, value: &mut Value, depth: usize) -> anyhow::Result<bool> {
        let mut is_changed = self.encrypted(value);
        let gvk = gvk(value);
        let is = |group: &str, kind: &str| {
            gvk.as_ref().is_some_and(|it| it.group == group && it.kind == kind)
        };
        if is(KUSTOMIZE_GROUP, "Kustomization") {
            is_changed |= self.kustomization(value);
        }
        if is(SOURCE_GROUP, "GitRepository") {
            is_changed |= self.git_repository(value);
        }
        // The first path is that of a Flux Kustomization, the second one that of a kustomization.yaml.
        for pointer in ["/spec/patches", "/patches"] {
            let patches = value.pointer_mut(pointer).and_then(Value::as_array_mut);
            for patch in patches.into_iter().flatten() {
                if let Some(Value::String(text)) = patch.get_mut("patch") {
                    is_changed |= self.patch(text, depth)?;
                }
            }
        }
        Ok(is_changed)
    }

    /// Removes from a patch what would restore a removed field.
    fn patch(&mut self, text: &mut String, depth: usize) -> anyhow::Result<bool> {
        if depth >= MAX_PATCH_DEPTH {
            return Ok(false);
        }
        let Ok(documents) = goyaml::documents(text.as_bytes(), &YamlLimits::default()) else {
            return Ok(false);
        };
        let mut values: Vec<Value> = documents.into_iter().map(|it| it.value).collect();
        let mut is_changed = false;
        for value in &mut values {
            is_changed |= match value {
                Value::Array(operations) => self.operations(operations),
                other => self.document(other, depth + 1)?,
            };
        }
        if is_changed {
            *text = stream(&values)?;
        }
        Ok(is_changed)
    }

    /// Removes operations of a JSON patch. The last one stays, because a patch needs at least one operation.
    fn operations(&mut self, operations: &mut Vec<Value>) -> bool {
        let names_field = |operation: &Value, fields: &[&str]| {
            let path = operation["path"].as_str().unwrap_or_default();
            let field = path.strip_prefix("/spec/").and_then(|rest| rest.split('/').next());
            field.is_some_and(|field| fields.contains(&field))
        };
        let is_kept = |operation: &Value| {
            !names_field(operation, &HEALTH_FIELDS) && !names_field(operation, &[DECRYPTION])
        };
        let left_out = operations.iter().filter(|it| !is_kept(it)).count();
        if left_out == 0 || left_out == operations.len() {
            return false;
        }
        operations.retain(is_kept);
        self.counts.health += 1;
        true
    }

    fn kustomization(&mut self, value: &mut Value) -> bool {
        let Some(spec) = value.get_mut("spec").and_then(Value::as_object_mut) else {
            return false;
        };
        let health = HEALTH_FIELDS.iter().filter(|field| spec.remove(**field).is_some()).count();
        let is_decrypted = spec.remove(DECRYPTION).is_some();
        self.counts.health += usize::from(health > 0);
        self.counts.decryption += usize::from(is_decrypted);
        health > 0 || is_decrypted
    }

    /// Makes a GitRepository of this repository fetch from the Git server of the test bed.
    fn git_repository(&mut self, value: &mut Value) -> bool {
        let is_entry = value["metadata"]["name"] == self.source_name.as_str();
        let Some(spec) = value.get_mut("spec").and_then(Value::as_object_mut) else {
            return false;
        };
        let place = spec.get("url").and_then(Value::as_str).map(repository_place);
        if place.is_none() || !(is_entry || place == self.origin) {
            return false;
        }
        for field in ["secretRef", "proxySecretRef", "verify", "provider"] {
            spec.remove(field);
        }
        spec.insert("url".to_owned(), self.served_url.as_str().into());
        spec.insert("ref".to_owned(), json!({"branch": "main"}));
        self.counts.sources += 1;
        true
    }

    /// Replaces the ciphertexts of a SOPS document by placeholders, which change when the ciphertext does.
    fn encrypted(&mut self, value: &mut Value) -> bool {
        let is_secret = value["kind"] == "Secret";
        let Some(fields) = value.as_object_mut() else { return false };
        if fields.get("sops").is_none_or(|it| it.get("mac").is_none()) {
            return false;
        }
        fields.remove("sops");
        fields.values_mut().for_each(replace_ciphertexts);
        if is_secret && let Some(Value::Object(data)) = fields.remove("data") {
            // The values of `data` would have to be base64, so they are moved to `stringData`.
            let text = fields.entry("stringData").or_insert_with(|| Value::Object(Map::new()));
            if let Some(text) = text.as_object_mut() {
                text.extend(data);
            }
        }
        self.counts.encrypted += 1;
        true
    }
}

/// The group, version and kind of a document. `None` for a document that is not an object.
fn gvk(document: &Value) -> Option<Gvk> {
    let kind = document.get("kind")?.as_str()?;
    Some(Gvk::new(document.get("apiVersion")?.as_str()?, kind))
}

fn replace_ciphertexts(value: &mut Value) {
    match value {
        Value::String(text) if text.starts_with(CIPHERTEXT) => *value = placeholder(text),
        Value::Array(items) => items.iter_mut().for_each(replace_ciphertexts),
        Value::Object(fields) => fields.values_mut().for_each(replace_ciphertexts),
        _ => {}
    }
}

/// A placeholder for a ciphertext such as `ENC[AES256_GCM,data:…,iv:…,tag:…,type:str]`. It has the type of the
/// original value.
fn placeholder(ciphertext: &str) -> Value {
    let data = ciphertext.split_once("data:").and_then(|(_, rest)| rest.split(',').next());
    let data = data.unwrap_or_default();
    let letters = data.chars().filter(char::is_ascii_alphanumeric).take(PLACEHOLDER_CHARACTERS);
    let letters: String = letters.collect();
    match () {
        () if ciphertext.ends_with("type:int]") => {
            letters.bytes().map(u64::from).sum::<u64>().into()
        }
        () if ciphertext.ends_with("type:bool]") => true.into(),
        () => format!("sops-{}", letters.to_lowercase()).into(),
    }
}

/// Writes documents as one YAML stream.
fn stream(values: &[Value]) -> anyhow::Result<String> {
    let texts: Result<Vec<String>, _> = values.iter().map(goyaml::emit).collect();
    Ok(texts.context("a changed manifest cannot be written")?.join("---\n"))
}

/// The host and path of a repository, whichever protocol its URL has.
fn repository_place(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let rest = rest.split_once('@').map_or(rest, |(_, rest)| rest);
    let rest = rest.replacen(':', "/", 1).to_lowercase();
    let rest = rest.trim_end_matches('/');
    rest.strip_suffix(".git").unwrap_or(rest).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVED: &str = "http://127.0.0.1:1/fleet.git";

    fn rewriting() -> ManifestRewriting {
        ManifestRewriting::new(SERVED, Some("https://github.com/org/fleet"), "flux-system")
    }

    fn rewritten(text: &str) -> Vec<Value> {
        let text = rewriting().file(text.as_bytes()).unwrap().expect("a change");
        let documents = goyaml::documents(text.as_bytes(), &YamlLimits::default()).unwrap();
        documents.into_iter().map(|it| it.value).collect()
    }

    #[test]
    fn a_kustomization_waits_for_no_health_and_decrypts_nothing() {
        let text = "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: a}\n\
            spec: {wait: true, path: ./a, decryption: {provider: sops}, healthChecks: []}\n---\na: 1\n";
        let values = rewritten(text);
        assert_eq!(values[0]["spec"], json!({"path": "./a"}));
        assert_eq!(values[1], json!({"a": 1}));
    }

    #[test]
    fn patches_do_not_bring_it_back_whatever_their_depth() {
        let inner = "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: _}\n\
            spec: {wait: true, prune: true}\n";
        let outer = json!({"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": "a"}, "spec": {"patches": [{"patch": inner}, {"patch":
            "[{op: add, path: /spec/wait, value: true}, {op: add, path: /spec/prune, value: true}]"}]}});
        let values = rewritten(&goyaml::emit(&outer).unwrap());
        let patches = values[0]["spec"]["patches"].as_array().unwrap();
        let patch = |at: usize| goyaml::to_json(patches[at]["patch"].as_str().unwrap().as_bytes());
        assert_eq!(patch(0).unwrap()["spec"], json!({"prune": true}));
        assert_eq!(patch(1).unwrap(), json!([{"op": "add", "path": "/spec/prune", "value": true}]));
    }

    #[test]
    fn sources_of_this_repository_are_at_the_test_bed_and_others_stay() {
        let source = |name: &str, url: &str| {
            format!(
                "apiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepository\nmetadata: {{name: {name}}}\n\
                 spec: {{url: '{url}', secretRef: {{name: a}}, ref: {{tag: v1}}}}\n"
            )
        };
        let expected = json!({"url": SERVED, "ref": {"branch": "main"}});
        for (name, url) in [
            ("flux-system", "https://elsewhere.example/a"),
            ("fleet", "ssh://git@github.com/org/fleet.git"),
            ("fleet", "git@GitHub.com:org/fleet"),
        ] {
            assert_eq!(rewritten(&source(name, url))[0]["spec"], expected, "{url}");
        }
        let other = source("other", "https://github.com/org/other");
        assert_eq!(rewriting().file(other.as_bytes()).unwrap(), None);
    }

    #[test]
    fn what_sops_encrypted_gets_values_that_change_with_the_ciphertext() {
        let secret = |data: &str| {
            let text = format!(
                "apiVersion: v1\nkind: Secret\nmetadata: {{name: a}}\ndata: {{b: 'ENC[AES256_GCM,data:{data},iv:x,type:str]'}}\n\
                 sops: {{mac: x}}\n"
            );
            rewritten(&text).remove(0)
        };
        let one = secret("Ab/1=");
        assert_eq!(one["stringData"], json!({"b": "sops-ab1"}));
        assert!(one.get("sops").is_none() && one.get("data").is_none());
        assert_ne!(one, secret("Ab/2="));
    }

    #[test]
    fn kinds_that_the_repository_defines_are_not_defined_again() {
        let mut rewriting = rewriting();
        let text = "apiVersion: acme.io/v1\nkind: Widget\nmetadata: {name: a}\n---\n\
            apiVersion: acme.io/v2\nkind: Widget\nmetadata: {name: a}\n---\n\
            apiVersion: acme.io/v1\nkind: Gadget\nmetadata: {name: a}\n---\n\
            apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: gadgets.acme.io}\n\
            spec: {group: acme.io, names: {kind: Gadget}}\n";
        assert_eq!(rewriting.file(text.as_bytes()).unwrap(), None);
        assert_eq!(rewriting.file(b"{{ a template").unwrap(), None);
        assert_eq!(rewriting.kinds.undefined_versions("acme.io", "Widget"), ["v1", "v2"]);
        assert!(rewriting.kinds.undefined_versions("acme.io", "Gadget").is_empty());
    }
}
