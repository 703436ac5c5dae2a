//! `windlass migrate from-argocd`, `from-helm-operator` and `from-helmfile-operator`: convert objects of other operators to
//! objects that windlass serves.
//!
//! The objects are read from files or from the cluster, and the result is printed. Nothing is written to the cluster.
//! Each field without a counterpart is named. If such a field affects the applied objects, the whole object is left out.
//! Below: the operators, and manifests with markers (`convert/image_policy_markers.rs`).

pub(super) mod argocd;
pub(super) mod helm_operator;
pub(super) mod helmfile_operator;
mod image_policy_markers;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args as ClapArgs;
use objects::{Gvk, Object};
use serde_json::{Map, Value, json};

use self::helm_operator::flux_v1_image_automation::{FluxDaemon, automations};
use self::image_policy_markers::ImagePolicyMarker;
use super::super::install::name;
use windlass_cli_runtime::connection::{
    ProgressGlyph, WindlassConnectionFlags, block_on, print, say,
};
use windlass_cluster::object_pages::ObjectQuery;
use windlass_cluster::{ClusterConnection, ClusterError};

/// The largest file that is read, in bytes.
const MAX_MANIFEST_FILE_BYTES: u64 = 16 << 20;
/// The maximum depth of searched folders.
const MAX_FOLDER_DEPTH: usize = 32;

/// The flags of these commands.
#[derive(Debug, Clone, ClapArgs)]
pub(super) struct MigrateFromOperatorArgs {
    #[command(flatten)]
    connection: WindlassConnectionFlags,
    /// File or folder of YAML to convert instead of what is in the cluster; may be repeated
    #[arg(short, long, value_name = "PATH")]
    filename: Vec<PathBuf>,
}

/// An operator whose objects can be converted.
pub(super) struct ConvertibleOperator {
    /// The group and the kind of the converted objects.
    pub(super) gvk: (&'static str, &'static str),
    /// Kinds that are not converted, with advice for each.
    pub(super) others: &'static [(&'static str, &'static str, &'static str)],
    /// Converts an object. The text is the namespace of windlass.
    pub(super) convert: fn(&Object, &str) -> ConversionResult,
    /// What the user should check in the manifests of sources. windlass does not read these manifests.
    pub(super) remarks: &'static [&'static str],
    /// The next steps of the user.
    pub(super) next: &'static str,
}

/// The result of converting an object.
#[derive(Debug, Default)]
pub(super) struct ConversionResult {
    pub(super) objects: Vec<Value>,
    /// The markers of values in the last object.
    markers: Vec<ImagePolicyMarker>,
    /// Objects of the group `image.toolkit.fluxcd.io`. An object that several converted objects need is printed once.
    images: Vec<Value>,
    /// Remarks about what the user should check.
    pub(super) notes: Vec<String>,
    /// Why the object is left out.
    pub(super) obstacles: Vec<String>,
}

impl ConversionResult {
    /// The manifests of the objects, with the markers in their values.
    fn manifests(&self) -> anyhow::Result<String> {
        let mut text = String::new();
        for (at, object) in self.objects.iter().enumerate() {
            let is_last = at + 1 == self.objects.len();
            let markers: &[ImagePolicyMarker] = if is_last { &self.markers } else { &[] };
            text.push_str(&format!("---\n{}", image_policy_markers::emit(object, markers)?));
        }
        Ok(text)
    }
}

/// The conversion of several objects, with the results so far.
struct ObjectConversion<'o> {
    operator: &'o ConvertibleOperator,
    /// The namespace of windlass.
    namespace: &'o str,
    text: String,
    /// The image objects that were already printed, by kind, namespace and name.
    images: BTreeMap<[String; 3], Value>,
    /// The Flux v1 daemons that committed new images.
    daemons: Vec<FluxDaemon>,
    left_out: usize,
    count: usize,
}

impl<'o> ObjectConversion<'o> {
    fn new(operator: &'o ConvertibleOperator, namespace: &'o str) -> Self {
        let images = BTreeMap::new();
        let daemons = Vec::new();
        Self { operator, namespace, text: String::new(), images, daemons, left_out: 0, count: 0 }
    }

    /// Converts an object if the operator knows its kind, and prints remarks for the user.
    fn take(&mut self, object: &Object) -> anyhow::Result<()> {
        let gvk = object.gvk();
        let operator = self.operator;
        let other = operator.others.iter().find(|(api, kind, _)| gvk == Gvk::new(api, kind));
        if let Some((_, _, advice)) = other {
            say(ProgressGlyph::Failure, &format!("{} is not converted: {advice}", name(object)));
            self.left_out += 1;
        }
        if gvk != Gvk::new(operator.gvk.0, operator.gvk.1) {
            self.daemons.extend(FluxDaemon::of(object));
            return Ok(());
        }
        self.count += 1;
        let result = (operator.convert)(object, self.namespace);
        for note in &result.notes {
            say(ProgressGlyph::Warning, &format!("{}: {note}", name(object)));
        }
        if result.obstacles.is_empty() {
            self.text.push_str(&result.manifests()?);
            return result.images.into_iter().try_for_each(|image| self.take_image(image));
        }
        self.left_out += 1;
        for obstacle in &result.obstacles {
            say(ProgressGlyph::Failure, &format!("{}: {obstacle}", name(object)));
        }
        Ok(())
    }

    /// Prints an image object, unless it was already printed.
    fn take_image(&mut self, image: Value) -> anyhow::Result<()> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &image["metadata"];
        let key = [text(&image["kind"]), text(&metadata["namespace"]), text(&metadata["name"])];
        match self.images.get(&key) {
            Some(known) if *known == image => {}
            Some(_) => {
                let [kind, namespace, name] = &key;
                say(
                    ProgressGlyph::Failure,
                    &format!(
                        "{kind}/{namespace}/{name} is needed twice with different specs, of which the first is printed: add the \
                         second under another name, and change the markers that are to name it"
                    ),
                );
                self.left_out += 1;
            }
            None => {
                self.text.push_str(&format!("---\n{}", goyaml::emit::emit(&image)?));
                self.images.insert(key, image);
            }
        }
        Ok(())
    }

    /// Prints the automations that commit new images, if there are images.
    fn take_automations(&mut self) -> anyhow::Result<()> {
        let namespaces: BTreeSet<&str> =
            self.images.keys().map(|[_, namespace, _]| namespace.as_str()).collect();
        let result = automations(&namespaces, &self.daemons, self.namespace);
        for note in &result.notes {
            say(ProgressGlyph::Warning, note);
        }
        self.text.push_str(&result.manifests()?);
        Ok(())
    }

    /// Reads from the cluster which repositories Flux v1 applied, if new images have to be committed.
    async fn take_daemons(&mut self, cluster: &ClusterConnection) -> anyhow::Result<()> {
        if self.images.is_empty() {
            return Ok(());
        }
        let resource = cluster.resource(&Gvk::new("apps/v1", "Deployment")).await?;
        let mut pages = cluster.object_pages(ObjectQuery::all(&resource));
        while let Some(page) = pages.next().await? {
            self.daemons.extend(page.objects.iter().filter_map(FluxDaemon::of));
        }
        Ok(())
    }

    /// Converts the objects of a cluster, page by page.
    async fn take_all(&mut self, cluster: &ClusterConnection) -> anyhow::Result<()> {
        let others = self.operator.others.iter().map(|(api, kind, _)| (*api, *kind));
        let kinds: Vec<_> = std::iter::once(self.operator.gvk).chain(others).collect();
        for (api_version, kind) in kinds {
            let unlisted = || format!("cannot list objects of kind {kind}");
            let resource = match cluster.resource(&Gvk::new(api_version, kind)).await {
                Err(ClusterError::NoSuchKind { .. }) => continue,
                found => found.with_context(unlisted)?,
            };
            let mut pages = cluster.object_pages(ObjectQuery::all(&resource));
            loop {
                match pages.next().await {
                    Ok(Some(page)) => {
                        page.objects.iter().try_for_each(|object| self.take(object))?;
                    }
                    Ok(None) | Err(ClusterError::NoSuchKind { .. }) => break,
                    Err(error) => return Err(error).with_context(unlisted),
                }
            }
        }
        Ok(())
    }
}

/// Converts the objects and prints the result.
///
/// # Errors
/// Something cannot be read, or objects were left out.
pub(super) fn run(
    args: &MigrateFromOperatorArgs,
    operator: &ConvertibleOperator,
) -> anyhow::Result<()> {
    let mut conversion = ObjectConversion::new(operator, &args.connection.namespace);
    match args.filename.as_slice() {
        [] => block_on(async {
            let (cluster, _) = args.connection.open().await?;
            conversion.take_all(&cluster).await?;
            if let Err(error) = conversion.take_daemons(&cluster).await {
                say(
                    ProgressGlyph::Warning,
                    &format!(
                        "which repository Flux applied is not known, since Deployments cannot be listed: {error:#}"
                    ),
                );
            }
            anyhow::Ok(())
        })?,
        paths => from_files(paths)?.iter().try_for_each(|object| conversion.take(object))?,
    }
    conversion.take_automations()?;
    let ObjectConversion { text, left_out, count, .. } = conversion;
    if count == 0 && left_out == 0 {
        bail!("there is no object of kind {} ({})", operator.gvk.1, operator.gvk.0);
    }
    print(&text)?;
    for remark in operator.remarks {
        say(ProgressGlyph::Warning, remark);
    }
    if left_out > 0 {
        bail!("{left_out} object(s) were left out, {} converted", count - left_out.min(count));
    }
    say(ProgressGlyph::Success, &format!("{count} object(s) converted"));
    say(ProgressGlyph::Action, &format!("next: {}", operator.next));
    Ok(())
}

fn from_files(paths: &[PathBuf]) -> anyhow::Result<Vec<Object>> {
    let mut files = Vec::new();
    for path in paths {
        collect(path, MAX_FOLDER_DEPTH, &mut files)?;
    }
    let mut found = Vec::new();
    for file in files {
        let shown = file.display().to_string();
        let size = std::fs::metadata(&file).with_context(|| shown.clone())?.len();
        if size > MAX_MANIFEST_FILE_BYTES {
            bail!("{shown} is larger than {MAX_MANIFEST_FILE_BYTES} bytes");
        }
        let bytes = std::fs::read(&file).with_context(|| shown.clone())?;
        let read = objects::manifest::read(&shown, &bytes, &goyaml::YamlLimits::default());
        found.extend(read?.into_iter().map(|located| located.object));
    }
    Ok(found)
}

/// Collects a file, or the YAML files of a folder sorted by name. Symbolic links in the folder are not followed.
fn collect(path: &Path, depth: usize, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let shown = || path.display().to_string();
    if !path.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    if depth == 0 {
        bail!("{} is nested too deeply", shown());
    }
    let entries = std::fs::read_dir(path).with_context(shown)?;
    let mut entries: Vec<_> = entries.collect::<Result<_, _>>().with_context(shown)?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let kind = entry.file_type().with_context(shown)?;
        let is_yaml = entry.path().extension().is_some_and(|it| it == "yaml" || it == "yml");
        if kind.is_dir() {
            collect(&entry.path(), depth - 1, files)?;
        } else if kind.is_file() && is_yaml {
            files.push(entry.path());
        }
    }
    Ok(())
}

/// The fields of an object that were not converted yet. Each field is taken out when it is converted, so no field is forgotten.
pub(super) struct UnconvertedFields {
    path: String,
    left: Map<String, Value>,
}

impl UnconvertedFields {
    /// The fields of a map. Empty for another value.
    pub(super) fn of(path: &str, value: Value) -> Self {
        let left = match value {
            Value::Object(left) => left,
            _ => Map::new(),
        };
        Self { path: path.to_owned(), left }
    }

    pub(super) fn take(&mut self, key: &str) -> Value {
        self.left.remove(key).unwrap_or(Value::Null)
    }

    /// Takes a text field. Empty if the field is missing.
    pub(super) fn text(&mut self, key: &str) -> String {
        match self.take(key) {
            Value::String(text) => text,
            Value::Number(number) => number.to_string(),
            _ => String::new(),
        }
    }

    pub(super) fn is_true(&mut self, key: &str) -> bool {
        self.take(key) == true
    }

    pub(super) fn fields(&mut self, key: &str) -> Self {
        let path = format!("{}.{key}", self.path);
        Self::of(&path, self.take(key))
    }

    pub(super) fn list(&mut self, key: &str) -> Vec<Value> {
        match self.take(key) {
            Value::Array(items) => items,
            _ => Vec::new(),
        }
    }

    /// Adds an obstacle for every remaining field, because it has no counterpart.
    pub(super) fn refuse(self, obstacles: &mut Vec<String>) {
        let left = self.left.iter().filter(|(_, value)| !is_empty(value));
        obstacles.extend(left.map(|(key, _)| format!("{}.{key} has no counterpart", self.path)));
    }

    /// Adds an obstacle for every remaining field, with advice.
    pub(super) fn refuse_as(self, advice: &str, obstacles: &mut Vec<String>) {
        let mut left = Vec::new();
        self.refuse(&mut left);
        obstacles.extend(left.into_iter().map(|text| format!("{text}: {advice}")));
    }

    /// Adds a remark for every remaining field. These fields do not affect the applied objects.
    pub(super) fn note(self, notes: &mut Vec<String>) {
        let mut left = Vec::new();
        self.refuse(&mut left);
        notes.extend(left);
    }
}

pub(super) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
        Value::Bool(true) | Value::Number(_) => false,
    }
}

/// Sets a field, unless the value is empty.
pub(super) fn put(to: &mut Value, path: &[&str], value: Value) {
    if is_empty(&value) {
        return;
    }
    let mut at = to;
    for key in path {
        at = &mut at[*key];
    }
    *at = value;
}

/// Makes an object of a kind that windlass serves.
pub(super) fn object(
    api_version: &str,
    kind: &str,
    namespace: &str,
    name: &str,
    spec: &Value,
) -> Value {
    json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": {"name": name, "namespace": namespace}, "spec": spec,
    })
}

/// Makes a source of charts: a chart repository or an OCI registry.
pub(super) fn chart_repository(
    namespace: &str,
    name: &str,
    url: &str,
    pass_credentials: bool,
) -> Value {
    let mut spec = json!({"interval": "10m", "url": url});
    if url.starts_with("oci://") {
        spec["type"] = json!("oci");
    }
    put(&mut spec, &["passCredentials"], json!(pass_credentials));
    object(SOURCE, "HelmRepository", namespace, name, &spec)
}

pub(super) const SOURCE: &str = "source.toolkit.fluxcd.io/v1";
pub(super) const HELMFILE: &str = "helmfile.windlass.dev/v1alpha1";
pub(super) const HELM: &str = "helm.toolkit.fluxcd.io/v2";
pub(super) const KUSTOMIZE: &str = "kustomize.toolkit.fluxcd.io/v1";
const IMAGE: &str = "image.toolkit.fluxcd.io/v1";

#[cfg(test)]
mod tests;
