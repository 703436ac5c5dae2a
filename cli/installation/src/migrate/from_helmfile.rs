//! `windlass migrate from-helmfile`: prints Helmfiles and a source for a folder with a helmfile. It writes nothing.
//!
//! The Helmfile kind itself adopts the releases that the helmfile has installed, without a new revision.
//! Elsewhere: the meaning of helmfiles (engine `helmfile`), the Helmfile kind (`helmfile_controller::helmfile`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use clap::Args as ClapArgs;
use serde_json::{Value, json};

use super::convert::{HELMFILE, SOURCE, object, put};
use windlass_cli_helm::helmfile::{HelmfileReleaseList, listed};
use windlass_cli_runtime::connection::{ProgressGlyph, print, say};

/// The largest file that is searched for environment variables, in bytes.
const MAX_SEARCHED_FILE_BYTES: u64 = 1 << 20;
/// The maximum depth of searched folders.
const MAX_FOLDER_DEPTH: usize = 32;

/// The prefix of values that SOPS encrypted.
const ENCRYPTED: &str = "ENC[AES256_GCM,";

/// The flags of the command.
#[derive(Debug, Clone, ClapArgs)]
pub(super) struct MigrateFromHelmfileArgs {
    /// Folder with the helmfile
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Environment of the helmfile; may be repeated, and each becomes a Helmfile
    #[arg(short, long, value_name = "NAME")]
    environment: Vec<String>,
    /// Name of the objects [default: that of the folder]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Namespace of the objects, and of releases that name none
    #[arg(short, long, default_value = "default", value_name = "NAME")]
    namespace: String,
    /// URL of the repository [default: that of the remote `origin` of the folder]
    #[arg(long)]
    url: Option<String>,
    /// Branch of the repository [default: the one that is checked out]
    #[arg(long, value_name = "NAME")]
    branch: Option<String>,
    /// Folder in the repository [default: where the folder is in its repository]
    #[arg(long)]
    path: Option<String>,
}

/// Prints the objects.
///
/// # Errors
/// The helmfile cannot be read, or its repository is unknown.
pub(super) fn run(args: &MigrateFromHelmfileArgs) -> anyhow::Result<()> {
    let folder = std::fs::canonicalize(&args.folder)
        .with_context(|| format!("cannot read {}", args.folder.display()))?;
    let place = RepositoryLocation::of(args, &folder)?;
    let name = match &args.name {
        Some(name) => name.clone(),
        None => name_of(&folder)?,
    };
    let environments = match args.environment.as_slice() {
        [] => vec!["default".to_owned()],
        given => given.to_vec(),
    };
    let mut objects = vec![source(&name, args, &place)];
    let needed = needs(&folder)?;
    for environment in &environments {
        let listed = listed(&folder, environment).map_err(anyhow::Error::msg)?;
        let own = match environments.len() {
            1 => name.clone(),
            _ => format!("{name}-{environment}"),
        };
        objects.push(helmfile(&own, environment, args, &name, &place, &needed));
        tell(&own, &listed, args);
    }
    let mut text = String::new();
    for object in &objects {
        text.push_str(&format!("---\n{}", goyaml::emit::emit(object)?));
    }
    print(&text)?;
    if needed.keys {
        say(
            ProgressGlyph::Warning,
            &format!(
                "files are encrypted with SOPS: put the keys into the Secret {name}-sops, which spec.decryption names"
            ),
        );
    }
    if !needed.variables.is_empty() {
        let names: Vec<&str> = needed.variables.iter().map(String::as_str).collect();
        say(
            ProgressGlyph::Warning,
            &format!(
                "the helmfile needs {}: put them into the Secret {name}-env, which spec.envFrom names, or into spec.env",
                names.join(", ")
            ),
        );
    }
    say(
        ProgressGlyph::Action,
        "next: stop what runs `helmfile apply`, create Secrets, and apply these objects: releases that are \
         installed are adopted without a new revision where chart, version and values are the same. `windlass helmfile \
         diff` shows what else would change",
    );
    Ok(())
}

/// The repository of the folder, and the folder's path in it.
struct RepositoryLocation {
    url: String,
    branch: String,
    path: String,
}

impl RepositoryLocation {
    /// Takes the location from the flags, or asks `git`.
    fn of(args: &MigrateFromHelmfileArgs, folder: &Path) -> anyhow::Result<Self> {
        let ask = |given: &Option<String>, flag: &str, arguments: &[&str]| match given {
            Some(given) => Ok(given.clone()),
            None => git(folder, arguments).with_context(|| {
                format!("{} is in no repository with a remote: set {flag}", folder.display())
            }),
        };
        let path = match (&args.path, &args.url) {
            (None, Some(_)) => String::new(),
            (path, _) => ask(path, "--path", &["rev-parse", "--show-prefix"])?,
        };
        let branch = match (&args.branch, &args.url) {
            (None, Some(_)) => "main".to_owned(),
            (branch, _) => ask(branch, "--branch", &["rev-parse", "--abbrev-ref", "HEAD"])?,
        };
        let url = ask(&args.url, "--url", &["remote", "get-url", "origin"])?;
        Ok(Self { url: url_of(&url), branch, path: path.trim_matches('/').to_owned() })
    }
}

/// The output of `git`, on one line.
fn git(folder: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("git").arg("-C").arg(folder).args(arguments).output();
    let output = output.context("cannot run git")?;
    if !output.status.success() {
        bail!("git {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The URL for a GitRepository. The short form of SSH URLs is converted, and credentials are removed.
fn url_of(url: &str) -> String {
    let url = match (url.contains("://"), url.split_once(':')) {
        (false, Some((host, path))) => format!("ssh://{host}/{}", path.trim_start_matches('/')),
        _ => url.to_owned(),
    };
    match url.split_once("://") {
        Some((scheme @ ("http" | "https"), rest)) => {
            let host = rest.split('/').next().unwrap_or_default();
            match host.rfind('@') {
                Some(at) => format!("{scheme}://{}", &rest[at + 1..]),
                None => url,
            }
        }
        _ => url,
    }
}

/// A valid Kubernetes name from the name of a folder.
fn name_of(folder: &Path) -> anyhow::Result<String> {
    let name = folder.file_name().map(|name| name.to_string_lossy().to_lowercase());
    let name: String = name
        .unwrap_or_default()
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' })
        .collect();
    let name = name.trim_matches('-').to_owned();
    if name.is_empty() || name.len() > 53 {
        bail!("the folder has no name that objects can have: set --name");
    }
    Ok(name)
}

fn source(name: &str, args: &MigrateFromHelmfileArgs, place: &RepositoryLocation) -> Value {
    let mut spec = json!({"interval": "5m", "url": place.url, "ref": {"branch": place.branch}});
    if place.url.starts_with("ssh://") {
        spec["secretRef"] = json!({"name": format!("{name}-git")});
        say(
            ProgressGlyph::Warning,
            &format!(
                "GitRepository {name} needs the Secret {name}-git with identity and known_hosts"
            ),
        );
    }
    object(SOURCE, "GitRepository", &args.namespace, name, &spec)
}

fn helmfile(
    name: &str,
    environment: &str,
    args: &MigrateFromHelmfileArgs,
    source: &str,
    place: &RepositoryLocation,
    needed: &SecretsNeededByHelmfile,
) -> Value {
    let mut spec = json!({
        "sourceRef": {"kind": "GitRepository", "name": source}, "interval": "10m", "prune": true,
    });
    put(&mut spec, &["path"], json!(place.path));
    if environment != "default" {
        spec["environment"] = json!(environment);
    }
    if needed.keys {
        let name = format!("{source}-sops");
        spec["decryption"] = json!({"provider": "sops", "secretRef": {"name": name}});
    }
    if !needed.variables.is_empty() {
        spec["envFrom"] = json!([{"kind": "Secret", "name": format!("{source}-env")}]);
    }
    object(HELMFILE, "Helmfile", &args.namespace, name, &spec)
}

/// Prints the releases of the helmfile, and which parts of it behave differently in a cluster.
fn tell(name: &str, listed: &HelmfileReleaseList, args: &MigrateFromHelmfileArgs) {
    let releases: Vec<String> = listed
        .releases
        .iter()
        .map(|(namespace, release)| match namespace.as_str() {
            "" => format!("{}/{release}", args.namespace),
            namespace => format!("{namespace}/{release}"),
        })
        .collect();
    say(
        ProgressGlyph::Success,
        &format!("Helmfile {name} keeps {}: {}", releases.len(), releases.join(", ")),
    );
    for warning in &listed.warnings {
        say(ProgressGlyph::Warning, warning);
    }
}

/// The values that the files of a folder need from Secrets.
#[derive(Default)]
struct SecretsNeededByHelmfile {
    /// The names of environment variables.
    variables: BTreeSet<String>,
    /// Whether the files need SOPS keys.
    keys: bool,
}

/// Finds the values that the files of a folder need from Secrets.
fn needs(folder: &Path) -> anyhow::Result<SecretsNeededByHelmfile> {
    let mut found = SecretsNeededByHelmfile::default();
    let mut left = vec![(folder.to_owned(), MAX_FOLDER_DEPTH)];
    while let Some((at, depth)) = left.pop() {
        for entry in std::fs::read_dir(&at).with_context(|| at.display().to_string())? {
            let entry = entry?;
            let kind = entry.file_type()?;
            let path = entry.path();
            if kind.is_dir() && depth > 0 && entry.file_name() != ".git" {
                left.push((path, depth - 1));
            } else if kind.is_file() && entry.metadata()?.len() <= MAX_SEARCHED_FILE_BYTES {
                let text = std::fs::read(&path).with_context(|| path.display().to_string())?;
                let text = String::from_utf8_lossy(&text);
                found.keys |= text.contains(ENCRYPTED);
                found.variables.extend(needed(&text));
            }
        }
    }
    Ok(found)
}

/// The variable names in calls of `requiredEnv`.
fn needed(text: &str) -> impl Iterator<Item = String> {
    let calls = text.split("requiredEnv").skip(1);
    calls.filter_map(|rest| {
        let (name, _) = rest.trim_start().strip_prefix('"')?.split_once('"')?;
        let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        (is_name && !name.is_empty()).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_that_a_git_repository_can_have() {
        for (given, expected) in [
            ("git@github.com:org/repo.git", "ssh://git@github.com/org/repo.git"),
            ("https://user:pw@host/repo.git", "https://host/repo.git"),
            ("https://host/a@b.git", "https://host/a@b.git"),
            ("ssh://git@host/repo", "ssh://git@host/repo"),
        ] {
            assert_eq!(url_of(given), expected);
        }
        assert_eq!(name_of(Path::new("/a/My_Shop")).unwrap(), "my-shop");
        assert!(name_of(Path::new("/")).is_err());
    }

    #[test]
    fn variables_that_must_be_set_are_found() {
        let text = "{{ requiredEnv \"A\" }} {{ env \"B\" }} {{ requiredEnv \"C_1\" | quote }} requiredEnv x";
        assert_eq!(needed(text).collect::<Vec<_>>(), ["A", "C_1"]);
    }

    #[test]
    fn a_folder_becomes_a_source_and_a_helmfile_for_each_environment() {
        let folder = tempfile::tempdir().unwrap();
        let text = "releases:\n- {name: web, chart: ./web, namespace: shop}\n";
        std::fs::write(folder.path().join("helmfile.yaml"), text).unwrap();
        let args = MigrateFromHelmfileArgs {
            folder: folder.path().to_owned(),
            environment: Vec::new(),
            name: Some("shop".to_owned()),
            namespace: "apps".to_owned(),
            url: Some("https://host/repo".to_owned()),
            branch: None,
            path: Some("deploy/".to_owned()),
        };
        let place = RepositoryLocation::of(&args, folder.path()).unwrap();
        let secret = "a: ENC[AES256_GCM,data:x] # {{ requiredEnv \"A\" }}\n";
        std::fs::write(folder.path().join("secrets.yaml"), secret).unwrap();
        let needed = needs(folder.path()).unwrap();
        assert_eq!(needed.variables, BTreeSet::from(["A".to_owned()]));
        let made = helmfile("shop", "production", &args, "shop", &place, &needed);
        assert_eq!(made["spec"]["decryption"]["secretRef"]["name"], "shop-sops");
        let read: crds::helmfile::Helmfile = serde_json::from_value(made.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap()["spec"], made["spec"]);
        assert_eq!(read.spec.path.as_deref(), Some("deploy"));
        let listed = listed(folder.path(), "default").unwrap();
        assert_eq!(listed.releases, [("shop".to_owned(), "web".to_owned())]);
        assert_eq!(source("shop", &args, &place)["spec"]["ref"]["branch"], "main");
    }
}
