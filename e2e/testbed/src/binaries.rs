//! Where the programs of the test bed are, and how they get there.
//!
//! Here: looking them up, building them from the Go modules in `testbed/`, and installing what is a package of npm.
//! Elsewhere: running them (`e2e::control_plane`), the programs whose answers ours are compared with (`upstream_programs`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};

/// Linker flags without any symbols.
pub const STRIP: &str = "-s -w";
/// What to do where there is no Go that is new enough.
pub const GO: &str = "install Go 1.26 (https://go.dev/dl)";
/// Without these the server calls itself v0.0.0-master and charts see the wrong capabilities.
const KUBERNETES: &str = "-s -w \
    -X k8s.io/component-base/version.gitVersion=v1.36.1 \
    -X k8s.io/component-base/version.gitMajor=1 \
    -X k8s.io/component-base/version.gitMinor=36 \
    -X k8s.io/client-go/pkg/version.gitVersion=v1.36.1 \
    -X k8s.io/client-go/pkg/version.gitMajor=1 \
    -X k8s.io/client-go/pkg/version.gitMinor=36";

/// How one program is built: `go build` of `package` in the folder `testbed/<module>`.
pub struct GoBuildRecipe {
    /// What the program is called.
    pub name: &'static str,
    /// The folder of its Go module.
    pub module: &'static str,
    /// The Go package.
    pub package: &'static str,
    /// Flags of the linker.
    pub link_flags: &'static str,
    /// Build tags, with spaces between them.
    pub tags: &'static str,
    /// What has to be added to its sources.
    pub lacks: MissingSourcePart,
}

/// The part of a program's sources that its Go modules lack.
pub enum MissingSourcePart {
    /// They lack nothing.
    Nothing,
    /// A file that the package embeds: an empty one is put there. What the program does with it does not work.
    File(&'static str),
    /// The program itself: it is `testbed/<module>/<name>`, and uses what is internal to a module that is named here.
    Program(&'static str),
}

/// Programs that share a folder of the cache: when one would be built otherwise, all are built again.
pub struct ProgramSet {
    /// The programs.
    pub recipes: &'static [GoBuildRecipe],
    /// What identifies the modules, apart from the flags in the recipes.
    pub module_files: &'static [&'static str],
    /// What to do where there is no Go that is new enough.
    pub advice: &'static str,
}

impl GoBuildRecipe {
    /// A program that is called as its module and wants nothing else.
    pub const fn plain(name: &'static str, package: &'static str) -> Self {
        Self {
            name,
            module: name,
            package,
            link_flags: STRIP,
            tags: "",
            lacks: MissingSourcePart::Nothing,
        }
    }
}

const fn kubernetes(name: &'static str, package: &'static str) -> GoBuildRecipe {
    GoBuildRecipe {
        link_flags: KUBERNETES,
        module: "kubernetes",
        ..GoBuildRecipe::plain(name, package)
    }
}

const BED: ProgramSet = ProgramSet {
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

const RECIPES: [GoBuildRecipe; 6] = [
    GoBuildRecipe::plain("etcd", "."),
    kubernetes("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
    kubernetes("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"),
    kubernetes("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
    kubernetes("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
    GoBuildRecipe::plain("kwok", "sigs.k8s.io/kwok/cmd/kwok"),
];

/// The programs of the bed, all of them present.
#[derive(Debug, Clone)]
pub struct TestbedBinaries {
    paths: BTreeMap<&'static str, PathBuf>,
}

impl TestbedBinaries {
    /// Finds every program, building what is missing. Blocks, up to ten minutes the first time.
    ///
    /// `$KUBEBUILDER_ASSETS` comes first; what it lacks is taken from the cache of this user,
    /// which is keyed by the contents of the Go modules and the build flags.
    /// Progress goes to stderr.
    pub fn ensure() -> Result<Self> {
        let assets = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
        Ok(Self { paths: BED.ensure(assets.as_deref())? })
    }

    /// The folder that `$KUBEBUILDER_ASSETS` names; else a new one with links to what is on the `PATH`, if `etcd` and
    /// `kube-apiserver` are among it: then they are used instead of building others. `None` if neither exists.
    ///
    /// # Errors
    /// The links cannot be made.
    pub fn present() -> Result<Option<PathBuf>> {
        if let Some(assets) = std::env::var_os("KUBEBUILDER_ASSETS") {
            return Ok(Some(PathBuf::from(assets)));
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = |name: &str| {
            std::env::split_paths(&path).map(|it| it.join(name)).find(|it| it.is_file())
        };
        if found("etcd").is_none() || found("kube-apiserver").is_none() {
            return Ok(None);
        }
        let folder = cache()?.join("on-the-path");
        std::fs::create_dir_all(&folder)?;
        for recipe in &RECIPES {
            let link = folder.join(recipe.name);
            std::fs::remove_file(&link).ok();
            if let Some(program) = found(recipe.name) {
                std::os::unix::fs::symlink(&program, &link)
                    .with_context(|| format!("cannot link {}", program.display()))?;
            }
        }
        Ok(Some(folder))
    }

    /// Like [`TestbedBinaries::ensure`], with the folder that [`TestbedBinaries::present`] found.
    pub fn ensure_with(assets: Option<&Path>) -> Result<Self> {
        Ok(Self { paths: BED.ensure(assets)? })
    }

    /// Those that are in a folder, as people read them.
    pub fn names_in(folder: &Path) -> Vec<&'static str> {
        let names = RECIPES.iter().map(|recipe| recipe.name);
        names.filter(|name| folder.join(name).is_file()).collect()
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
pub fn testbed() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

impl ProgramSet {
    /// Finds every program, first in the folder that is given, and builds what is missing.
    pub fn ensure(&self, given: Option<&Path>) -> Result<BTreeMap<&'static str, PathBuf>> {
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
        let mut hash = hash_of(self.module_files)?;
        for recipe in self.recipes {
            hash.update(format!("{} {} {}\n", recipe.name, recipe.package, recipe.link_flags));
            // The keys of all programs without tags stay as they are.
            if !recipe.tags.is_empty() {
                hash.update(format!("{}\n", recipe.tags));
            }
        }
        Ok(key_of(hash))
    }
}

/// What files of `testbed` are made of.
fn hash_of(files: &[impl AsRef<str>]) -> Result<Sha256> {
    let mut hash = Sha256::new();
    for file in files {
        let path = testbed().join(file.as_ref());
        let content =
            std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        hash.update(format!("{} {}\n", file.as_ref(), content.len()));
        hash.update(content);
    }
    Ok(hash)
}

fn key_of(hash: Sha256) -> String {
    hash.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

/// Keeps other processes from a folder of the cache until it is dropped; waits for the process that has the folder.
fn lock(folder: &Path) -> Result<std::fs::File> {
    let lock = std::fs::File::create(folder.join("lock")).context("cannot create the lock file")?;
    if lock.try_lock().is_err() {
        say("waiting for another run that builds the test bed");
        lock.lock().context("cannot lock the cache")?;
    }
    Ok(lock)
}

/// Installs the packages of npm that a folder of `testbed` locks; the folder that they are in. Blocks, half a minute the
/// first time. No script of a package is run by that.
pub fn packages(module: &str) -> Result<PathBuf> {
    let files = ["package.json", "package-lock.json"];
    let key = key_of(hash_of(&files.map(|file| format!("{module}/{file}")))?);
    let folder = cache()?.join("testbed").join(key);
    let packages = folder.join("node_modules");
    if packages.is_dir() {
        return Ok(packages);
    }
    let unfinished = folder.join("unfinished");
    std::fs::create_dir_all(&unfinished)
        .with_context(|| format!("cannot create {}", unfinished.display()))?;
    let _lock = lock(&folder)?;
    if packages.is_dir() {
        return Ok(packages);
    }
    say(&format!("installing {module} by npm"));
    for file in files {
        let from = testbed().join(module).join(file);
        let to = unfinished.join(file);
        std::fs::copy(&from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    }
    let output = Command::new("npm")
        .args(["ci", "--ignore-scripts", "--omit=dev", "--no-audit", "--no-fund"])
        .current_dir(&unfinished)
        .stdin(Stdio::null())
        .output()
        .context("`npm` is not installed: install Node.js 18 or newer with npm")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`npm ci` of {module} failed:\n{}", said.trim_end());
    std::fs::rename(unfinished.join("node_modules"), &packages)
        .context("cannot put the packages in place")?;
    Ok(packages)
}

fn build_all(folder: &Path, missing: &[&GoBuildRecipe]) -> Result<()> {
    let bin = folder.join("bin");
    std::fs::create_dir_all(&bin).with_context(|| format!("cannot create {}", bin.display()))?;
    let _lock = lock(folder)?;
    for (done, recipe) in missing.iter().enumerate() {
        // Another run may have built it while this one waited.
        if !bin.join(recipe.name).is_file() {
            build(recipe, &bin, &format!("{}/{}", done + 1, missing.len()))?;
        }
    }
    Ok(())
}

fn build(recipe: &GoBuildRecipe, bin: &Path, position: &str) -> Result<()> {
    let name = recipe.name;
    let unfinished = bin.join(format!(".{name}.unfinished"));
    let errors = bin.join(format!(".{name}.log"));
    say(&format!("building {name} ({position}); the first time this takes minutes"));
    let start = Instant::now();
    let completed = match recipe.lacks {
        MissingSourcePart::Nothing => None,
        MissingSourcePart::File(path) => Some(with_file(recipe, bin, path)?),
        MissingSourcePart::Program(module) => Some(with_program(recipe, bin, module)?),
    };
    let sources = completed.as_ref().map(|it| it.path().to_owned());
    let mut go = go(&sources.unwrap_or_else(|| testbed().join(recipe.module)))
        .args(["build", "-trimpath", "-buildvcs=false", "-ldflags", recipe.link_flags])
        .args(["-tags", recipe.tags, "-o"])
        .arg(&unfinished)
        .arg(recipe.package)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&errors).context("cannot write the build log")?)
        .spawn()
        .context("cannot start `go`")?;
    let mut reported_at = 0;
    let status = loop {
        if let Some(status) = go.try_wait().context("cannot wait for `go`")? {
            break status;
        }
        std::thread::sleep(Duration::from_millis(200));
        let elapsed = start.elapsed().as_secs();
        if elapsed >= reported_at + 20 {
            reported_at = elapsed;
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

fn go(folder: &Path) -> Command {
    let mut command = Command::new("go");
    command.current_dir(folder).env("GOFLAGS", "").env("GOWORK", "off");
    command
}

/// The folder with the sources of a module, such as `example.com/module@v1.2.3`; it is fetched if it is not there.
///
/// # Errors
/// It cannot be fetched.
pub fn module(name: &str) -> Result<PathBuf> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct GoModuleDownload {
        dir: Option<PathBuf>,
    }
    check_go(GO)?;
    let folder = tempfile::tempdir()?;
    let said = run_go(folder.path(), &["mod", "download", "-json", name])?;
    let fetched: GoModuleDownload = serde_json::from_str(&said)?;
    fetched.dir.with_context(|| format!("{name} has no folder"))
}

/// Runs `go` in a folder; what it prints.
fn run_go(folder: &Path, arguments: &[&str]) -> Result<String> {
    let output = go(folder).args(arguments).output().context("cannot start `go`")?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`go {}` failed:\n{text}", arguments.join(" "));
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A folder with the module of a recipe, without sources.
fn copy_of_module(recipe: &GoBuildRecipe, bin: &Path) -> Result<tempfile::TempDir> {
    let copy = tempfile::Builder::new().prefix(".sources-").tempdir_in(bin)?;
    for file in ["go.mod", "go.sum"] {
        std::fs::copy(testbed().join(recipe.module).join(file), copy.path().join(file))
            .with_context(|| format!("cannot copy {file} of {}", recipe.module))?;
    }
    Ok(copy)
}

/// A copy of a module with all that it needs, and an empty file where one is missing.
fn with_file(recipe: &GoBuildRecipe, bin: &Path, missing: &str) -> Result<tempfile::TempDir> {
    let copy = copy_of_module(recipe, bin)?;
    // With `-e` the missing file does not end the command.
    run_go(copy.path(), &["mod", "vendor", "-e"])?;
    let file = copy.path().join("vendor").join(missing);
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(&file, "").with_context(|| format!("cannot write {}", file.display()))?;
    Ok(copy)
}

/// A copy of a module that takes another one from a copy in it, to which a program of ours was added.
fn with_program(recipe: &GoBuildRecipe, bin: &Path, module: &str) -> Result<tempfile::TempDir> {
    let copy = copy_of_module(recipe, bin)?;
    run_go(copy.path(), &["mod", "download", module])?;
    let sources = run_go(copy.path(), &["list", "-m", "-f", "{{.Dir}}", module])?;
    let changed = copy.path().join("changed");
    copy_folder(Path::new(&sources), &changed)?;
    copy_folder(&testbed().join(recipe.module).join(recipe.name), &changed.join(recipe.name))?;
    run_go(copy.path(), &["mod", "edit", &format!("-replace={module}=./changed")])?;
    Ok(copy)
}

/// Copies the files of a folder and of those below it; they may be written to.
fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    let failed = || format!("cannot copy {}", from.display());
    std::fs::create_dir_all(to).with_context(failed)?;
    for entry in std::fs::read_dir(from).with_context(failed)? {
        let entry = entry.with_context(failed)?;
        let path = entry.path();
        let copy = to.join(entry.file_name());
        if path.is_dir() {
            copy_folder(&path, &copy)?;
        } else {
            let content = std::fs::read(&path).with_context(failed)?;
            std::fs::write(copy, content).with_context(failed)?;
        }
    }
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
    fn an_old_go_is_distinguished_from_a_usable_one() {
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
