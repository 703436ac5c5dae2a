//! Where the programs of the test bed are, and how they get there.
//!
//! Here: looking them up, and building them from the Go modules in `testbed/`.
//! Elsewhere: running them (`control_plane`), the programs whose answers ours are compared with (`oracle`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};

/// Linker flags without any symbols.
pub(crate) const STRIP: &str = "-s -w";
/// Without these the server calls itself v0.0.0-master and charts see the wrong capabilities.
const KUBERNETES: &str = "-s -w \
    -X k8s.io/component-base/version.gitVersion=v1.36.1 \
    -X k8s.io/component-base/version.gitMajor=1 \
    -X k8s.io/component-base/version.gitMinor=36 \
    -X k8s.io/client-go/pkg/version.gitVersion=v1.36.1 \
    -X k8s.io/client-go/pkg/version.gitMajor=1 \
    -X k8s.io/client-go/pkg/version.gitMinor=36";

/// How one program is built: `go build` of `package` in the folder `testbed/<module>`.
pub(crate) struct Recipe {
    pub(crate) name: &'static str,
    pub(crate) module: &'static str,
    pub(crate) package: &'static str,
    pub(crate) link_flags: &'static str,
}

/// Programs that share a folder of the cache: when one would be built otherwise, all are built again.
pub(crate) struct Set {
    pub(crate) recipes: &'static [Recipe],
    /// What identifies the modules, apart from the flags in the recipes.
    pub(crate) module_files: &'static [&'static str],
    /// What to do where there is no Go that is new enough.
    pub(crate) advice: &'static str,
}

const fn kubernetes(name: &'static str, package: &'static str) -> Recipe {
    Recipe { name, module: "kubernetes", package, link_flags: KUBERNETES }
}

const BED: Set = Set {
    recipes: &RECIPES,
    module_files: &[
        "etcd/go.mod",
        "etcd/go.sum",
        "etcd/main.go",
        "kubernetes/go.mod",
        "kubernetes/go.sum",
        "kwok/go.mod",
        "kwok/go.sum",
    ],
    advice: "install Go 1.26 (https://go.dev/dl), or put etcd, kube-apiserver and the others into a folder and name \
             it in KUBEBUILDER_ASSETS",
};

const RECIPES: [Recipe; 6] = [
    Recipe { name: "etcd", module: "etcd", package: ".", link_flags: STRIP },
    kubernetes("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
    kubernetes("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"),
    kubernetes("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
    kubernetes("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
    Recipe {
        name: "kwok",
        module: "kwok",
        package: "sigs.k8s.io/kwok/cmd/kwok",
        link_flags: STRIP,
    },
];

/// The programs of the bed, all of them present.
#[derive(Debug, Clone)]
pub struct Binaries {
    paths: BTreeMap<&'static str, PathBuf>,
}

impl Binaries {
    /// Finds every program, building what is missing. Blocks, up to ten minutes the first time.
    ///
    /// `$KUBEBUILDER_ASSETS` comes first; what it lacks is taken from the cache of this user,
    /// which is keyed by the contents of the Go modules and the build flags.
    /// Progress goes to stderr.
    pub fn ensure() -> Result<Self> {
        let assets = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
        Ok(Self { paths: BED.ensure(assets.as_deref())? })
    }

    /// The program `name`: `etcd`, `kube-apiserver`, `kube-controller-manager`,
    /// `kube-scheduler`, `kubectl` or `kwok`.
    pub fn path(&self, name: &str) -> Result<&Path> {
        let path = self.paths.get(name).map(PathBuf::as_path);
        path.with_context(|| format!("the test bed does not have a program `{name}`"))
    }
}

/// The folder under which everything that outlives a run is kept: `$WINDLASS_CACHE`, else
/// `windlass` in `$XDG_CACHE_HOME` or `~/.cache`.
pub fn cache() -> Result<PathBuf> {
    let folder =
        |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    folder("WINDLASS_CACHE")
        .or_else(|| folder("XDG_CACHE_HOME").map(|cache| cache.join("windlass")))
        .or_else(|| folder("HOME").map(|home| home.join(".cache/windlass")))
        .context("no place for the cache: set WINDLASS_CACHE or HOME")
}

/// The folder `e2e/testbed` of the checkout.
pub(crate) fn testbed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testbed")
}

impl Set {
    /// Finds every program, first in the folder that is given, and builds what is missing.
    pub(crate) fn ensure(&self, given: Option<&Path>) -> Result<BTreeMap<&'static str, PathBuf>> {
        let folder = cache()?.join("testbed").join(self.key()?);
        let mut paths = BTreeMap::new();
        let mut missing = Vec::new();
        for recipe in self.recipes {
            let own = folder.join("bin").join(recipe.name);
            let given = given.map(|given| given.join(recipe.name));
            let path = given.filter(|path| path.is_file()).unwrap_or(own);
            if !path.is_file() {
                missing.push(recipe);
            }
            paths.insert(recipe.name, path);
        }
        if !missing.is_empty() {
            check_go(self.advice)?;
            build_all(&folder, &missing)?;
        }
        Ok(paths)
    }

    /// Twelve hexadecimal digits that change whenever a build would.
    fn key(&self) -> Result<String> {
        let mut hash = Sha256::new();
        for file in self.module_files {
            let path = testbed().join(file);
            let content =
                std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            hash.update(format!("{file} {}\n", content.len()));
            hash.update(content);
        }
        for recipe in self.recipes {
            hash.update(format!("{} {} {}\n", recipe.name, recipe.package, recipe.link_flags));
        }
        Ok(hash.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect())
    }
}

fn build_all(folder: &Path, missing: &[&Recipe]) -> Result<()> {
    let bin = folder.join("bin");
    std::fs::create_dir_all(&bin).with_context(|| format!("cannot create {}", bin.display()))?;
    let lock = std::fs::File::create(folder.join("lock")).context("cannot create the lock file")?;
    if lock.try_lock().is_err() {
        say("waiting for another run that builds the test bed");
        lock.lock().context("cannot lock the cache")?;
    }
    for (done, recipe) in missing.iter().enumerate() {
        // Another run may have built it while this one waited.
        if !bin.join(recipe.name).is_file() {
            build(recipe, &bin, &format!("{}/{}", done + 1, missing.len()))?;
        }
    }
    Ok(())
}

fn build(recipe: &Recipe, bin: &Path, position: &str) -> Result<()> {
    let name = recipe.name;
    let unfinished = bin.join(format!(".{name}.unfinished"));
    let errors = bin.join(format!(".{name}.log"));
    say(&format!("building {name} ({position}); the first time this takes minutes"));
    let start = Instant::now();
    let mut go = Command::new("go")
        .args(["build", "-trimpath", "-buildvcs=false", "-ldflags", recipe.link_flags, "-o"])
        .arg(&unfinished)
        .arg(recipe.package)
        .current_dir(testbed().join(recipe.module))
        .env("GOFLAGS", "")
        .env("GOWORK", "off")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&errors).context("cannot write the build log")?)
        .spawn()
        .context("cannot start `go`")?;
    let mut told = 0;
    let status = loop {
        if let Some(status) = go.try_wait().context("cannot wait for `go`")? {
            break status;
        }
        std::thread::sleep(Duration::from_millis(200));
        let elapsed = start.elapsed().as_secs();
        if elapsed >= told + 20 {
            told = elapsed;
            say(&format!("building {name} ({position}), {elapsed} s"));
        }
    };
    if !status.success() {
        let said = std::fs::read_to_string(&errors).unwrap_or_default();
        bail!("`go build` of {name} failed ({status}):\n{}", said.trim_end());
    }
    std::fs::rename(&unfinished, bin.join(name)).context("cannot put the program in place")?;
    std::fs::remove_file(&errors).ok();
    say(&format!("built {name} in {:.0} s", start.elapsed().as_secs_f64()));
    Ok(())
}

/// From Go 1.21 on, `go` fetches by itself the newer toolchain that a module asks for.
fn check_go(advice: &str) -> Result<()> {
    let output = Command::new("go").arg("version").output();
    let output = output.with_context(|| format!("`go` is not installed: {advice}"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(is_new_enough(&said), "{} is too old: {advice}", said.trim());
    Ok(())
}

/// Judges what `go version` prints, such as `go version go1.26.8 linux/amd64`.
fn is_new_enough(said: &str) -> bool {
    let word = said.split_whitespace().find_map(|word| word.strip_prefix("go1."));
    let minor = word.and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
    // A development build does not name a version; it is newer than any release.
    minor.map_or(said.contains("devel"), |minor| minor.parse().is_ok_and(|n: u32| n >= 21))
}

#[expect(clippy::print_stderr, reason = "a build of minutes must not look like a hang")]
fn say(line: &str) {
    eprintln!("test bed: {line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_go_is_told_from_a_usable_one() {
        assert!(is_new_enough("go version go1.26.8 linux/amd64"));
        assert!(is_new_enough("go version go1.21rc2 linux/amd64"));
        assert!(is_new_enough("go version devel +abcdef linux/amd64"));
        assert!(!is_new_enough("go version go1.19.8 linux/amd64"));
        assert!(!is_new_enough(""));
    }

    #[test]
    fn the_cache_key_is_short_and_stable() {
        let first = BED.key().expect("the modules are there");
        assert_eq!(first.len(), 12);
        assert_eq!(first, BED.key().expect("the modules are there"));
    }
}
