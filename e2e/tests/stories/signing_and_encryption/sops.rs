//! Files that `sops` encrypts for keys of `age-keygen` and GnuPG: every format, key groups, and edits without sops.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use e2e::gnupg::GnuPgHome;
use e2e::harness::flux_objects::{DEFAULT_WAIT_TIMEOUT, condition};
use e2e::harness::{Story, StoryObject};
use serde_json::{Value, json};
use testbed::upstream_programs::UpstreamProgram;

use super::run;
use crate::stories::decryption::{await_message, borrowed, bytes, decryption, entry, put_keys};

/// A text that every plain value contains, and nothing else.
const MARK: &str = "pl4in";

/// The keys that decrypt the files of a folder: an age key, a post-quantum key, an OpenPGP key, or both an age key and an
/// OpenPGP key.
const FOLDERS: [&str; 4] = ["age", "hybrid", "pgp", "shamir"];

/// The encrypted files of a folder: manifests, and the inputs of a generated Secret.
const MANIFESTS: [&str; 2] = ["secret.yaml", "secret.json"];
const GENERATED: [&str; 4] = ["config.yaml", "config.json", "config.ini", "token.bin"];
const ENVIRONMENT: &str = "app.env";

const SECRET_YAML: &str = "apiVersion: v1
kind: Secret
metadata:
  name: manifest
type: Opaque
stringData:
  user: pl4in user
  lines: |
    pl4in first
    second
data:
  token: cGw0aW4gdG9rZW4=
";
const SECRET_JSON: &str = r#"{
  "apiVersion": "v1",
  "kind": "Secret",
  "metadata": {"name": "json"},
  "stringData": {"password": "pl4in & <secret>", "port": "5432"}
}
"#;
const CONFIG_YAML: &str = "# pl4in comment
server:
  host: pl4in.example.com
  port: 8080
  ratio: 0.25
  tls: true
  users: [pl4in one, two]
empty: \"\"
";
const CONFIG_JSON: &str = r#"{
  "password": "pl4in & <secret>",
  "list": [1, 2.5, true, "pl4in"]
}
"#;
const CONFIG_INI: &str = "; pl4in comment
[database]
user = pl4in user
password = pl4in secret
";
const TOKEN: &[u8] = b"pl4in\0\x9f\x92\x96\n";
const APP_ENV: &str = "# pl4in comment
USER=pl4in user
URL=https://pl4in.example.com/?a=b
";

/// An age key in a file.
struct AgeKeyFile {
    file: PathBuf,
    text: String,
    recipient: String,
}

impl AgeKeyFile {
    fn generate(home: &Path, name: &str, more: &[&str]) -> Result<Self> {
        let keygen = UpstreamProgram::AgeKeygen.ensure()?;
        run(&keygen, home, &[], &[more, &["-o", name]].concat())?;
        let recipient = String::from_utf8(run(&keygen, home, &[], &["-y", name])?)?;
        let file = home.join(name);
        let text = std::fs::read_to_string(&file)?;
        Ok(Self { file, text, recipient: recipient.trim().to_owned() })
    }

    fn entry(&self) -> (String, String) {
        ("id.agekey".to_owned(), self.text.clone())
    }
}

/// The files that `sops` encrypted, and all keys.
struct SopsEncryptedTree {
    tree: tempfile::TempDir,
    keys: tempfile::TempDir,
    sops: PathBuf,
    age: AgeKeyFile,
    hybrid: AgeKeyFile,
    stranger: AgeKeyFile,
    pgp: GnuPgHome,
}

impl SopsEncryptedTree {
    fn new() -> Result<Self> {
        let tree = tempfile::tempdir()?;
        let keys = tempfile::tempdir()?;
        let age = AgeKeyFile::generate(keys.path(), "age.txt", &[])?;
        let hybrid = AgeKeyFile::generate(keys.path(), "hybrid.txt", &["-pq"])?;
        let stranger = AgeKeyFile::generate(keys.path(), "stranger.txt", &[])?;
        let pgp = GnuPgHome::with_key("future-default", "default")?;
        let all = [&age, &hybrid, &stranger].map(|it| it.text.clone()).concat();
        std::fs::write(keys.path().join("all.txt"), all)?;
        let sops = UpstreamProgram::Sops.ensure()?;
        let made = Self { tree, keys, sops, age, hybrid, stranger, pgp };
        made.rules()?;
        for folder in FOLDERS {
            made.encrypt(folder)?;
        }
        Ok(made)
    }

    /// Writes the rules for `sops`: which files are encrypted for which keys. In manifests only the data is encrypted, and
    /// other files completely.
    fn rules(&self) -> Result<()> {
        let age = &self.age.recipient;
        let pgp = self.pgp.fingerprint()?;
        let keys = [
            ("age", json!({"age": age})),
            ("hybrid", json!({"age": self.hybrid.recipient})),
            ("pgp", json!({"pgp": pgp})),
            (
                "shamir",
                json!({"shamir_threshold": 2, "key_groups": [{"age": [age]}, {"pgp": [pgp]}]}),
            ),
        ];
        let mut rules = Vec::new();
        for (folder, mut rule) in keys {
            let mut manifests = rule.clone();
            manifests["path_regex"] = json!(format!(r"^{folder}/secret\."));
            manifests["encrypted_regex"] = json!("^(data|stringData)$");
            rule["path_regex"] = json!(format!("^{folder}/"));
            rules.extend([manifests, rule]);
        }
        // JSON is valid YAML.
        let text = json!({"creation_rules": rules}).to_string();
        Ok(std::fs::write(self.tree.path().join(".sops.yaml"), text)?)
    }

    fn encrypt(&self, folder: &str) -> Result<()> {
        let place = self.tree.path().join(folder);
        std::fs::create_dir(&place)?;
        std::fs::write(place.join("kustomization.yaml"), kustomization(folder))?;
        let files: [(&str, &[u8]); 7] = [
            ("secret.yaml", SECRET_YAML.as_bytes()),
            ("secret.json", SECRET_JSON.as_bytes()),
            ("config.yaml", CONFIG_YAML.as_bytes()),
            ("config.json", CONFIG_JSON.as_bytes()),
            ("config.ini", CONFIG_INI.as_bytes()),
            ("token.bin", TOKEN),
            (ENVIRONMENT, APP_ENV.as_bytes()),
        ];
        for (name, content) in files {
            std::fs::write(place.join(name), content)?;
            self.sops(&["encrypt", "--in-place", &format!("{folder}/{name}")])?;
        }
        Ok(())
    }

    /// Runs `sops` with all keys and returns its output.
    fn sops(&self, arguments: &[&str]) -> Result<Vec<u8>> {
        let identities = self.keys.path().join("all.txt");
        let environment = [("SOPS_AGE_KEY_FILE", &*identities), ("GNUPGHOME", self.pgp.home())];
        run(&self.sops, self.tree.path(), &environment, arguments)
    }

    fn read(&self, path: &str) -> Result<String> {
        let read = std::fs::read_to_string(self.tree.path().join(path));
        let text = read.with_context(|| path.to_owned())?;
        // Comments in dotenv files are encrypted like all other content.
        ensure!(path.ends_with("kustomization.yaml") || !text.contains(MARK), "{path} is plain");
        Ok(text)
    }

    /// The files of some folders, for a push.
    fn files(&self, folders: &[&str]) -> Result<Vec<(String, String)>> {
        let mut files = Vec::new();
        for folder in folders {
            for file in std::fs::read_dir(self.tree.path().join(folder))? {
                let path = format!("{folder}/{}", file?.file_name().display());
                let text = self.read(&path)?;
                files.push((path, text));
            }
        }
        Ok(files)
    }

    /// The entries of the Secret that decrypts a folder.
    fn keys_of(&self, folder: &str) -> Result<Vec<(String, String)>> {
        let pgp = || anyhow::Ok(("key.asc".to_owned(), self.pgp.private()?));
        Ok(match folder {
            "age" => vec![self.age.entry()],
            "hybrid" => vec![self.hybrid.entry()],
            "pgp" => vec![pgp()?],
            _ => vec![self.age.entry(), pgp()?],
        })
    }

    /// Encrypts the data key of a SOPS file again with `age`, for another key than `sops` used.
    fn rewrap(&self, text: &str) -> Result<String> {
        let age = UpstreamProgram::Age.ensure()?;
        let home = self.keys.path();
        let parsed: Value = serde_json::from_str(text)?;
        let key = &parsed["sops"]["age"][0]["enc"];
        std::fs::write(home.join("wrapped"), key.as_str().context("no key")?)?;
        let file = self.age.file.to_str().context("a path that is no text")?;
        let plain = run(&age, home, &[], &["--decrypt", "-i", file, "wrapped"])?;
        std::fs::write(home.join("plain"), plain)?;
        let arguments = ["--encrypt", "--armor", "-r", &self.stranger.recipient, "plain"];
        let wrapped = Value::from(String::from_utf8(run(&age, home, &[], &arguments)?)?);
        ensure!(text.contains(&key.to_string()), "the file spells its key otherwise");
        let text = text.replace(&key.to_string(), &wrapped.to_string());
        Ok(text.replace(&self.age.recipient, &self.stranger.recipient))
    }
}

/// The names begin with that of the folder, so the build changes objects before they are decrypted.
fn kustomization(folder: &str) -> String {
    let generated = GENERATED.join(", ");
    format!(
        "namePrefix: {folder}-\n\
         resources: [{}]\n\
         generatorOptions: {{disableNameSuffixHash: true}}\n\
         secretGenerator:\n\
         - {{name: files, files: [{generated}]}}\n\
         - {{name: envs, envs: [{ENVIRONMENT}]}}\n",
        MANIFESTS.join(", ")
    )
}

/// The words of a message with single blanks, because `sops` breaks lines.
fn joined(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

async fn ensure_plain(story: &Story, encrypted: &SopsEncryptedTree, folder: &str) -> Result<()> {
    let of = |name: &str| format!("{folder}-{name}");
    for (secret, key, value) in [
        ("manifest", "user", "pl4in user"),
        ("manifest", "lines", "pl4in first\nsecond\n"),
        ("manifest", "token", "pl4in token"),
        ("json", "password", "pl4in & <secret>"),
        ("json", "port", "5432"),
        ("envs", "USER", "pl4in user"),
        ("envs", "URL", "https://pl4in.example.com/?a=b"),
    ] {
        let found = entry(story, &of(secret), key).await?;
        ensure!(found == value, "{folder}: {secret} has {key}={found:?}");
    }
    for name in GENERATED {
        let found = bytes(story, &of("files"), name).await?;
        let right = encrypted.sops(&["decrypt", &format!("{folder}/{name}")])?;
        ensure!(found == right, "{folder}/{name}: {}", String::from_utf8_lossy(&found));
        ensure!(String::from_utf8_lossy(&found).contains(MARK), "{folder}/{name} is not plain");
    }
    ensure!(bytes(story, &of("files"), "token.bin").await? == TOKEN, "{folder}: bytes");
    Ok(())
}

/// Checks that no status, event or log shows a decrypted value or a key.
async fn ensure_hidden(story: &Story, names: &[&str]) -> Result<()> {
    let mut shown = story.windlass().await?.operator.log()?;
    for name in names {
        shown += &story.expect(&StoryObject::kustomization(name)).await?.data["status"].to_string();
        shown += &story.events("Kustomization", name).await?.join("\n");
    }
    for hidden in [MARK, "AGE-SECRET-KEY", "PRIVATE KEY BLOCK"] {
        ensure!(!shown.contains(hidden), "`{hidden}` is shown");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(feature = "thorough"), ignore = "builds sops: cargo xtask test --thorough")]
async fn what_sops_encrypts_for_new_keys_is_plain_in_the_cluster_and_nowhere_else() -> Result<()> {
    let encrypted = SopsEncryptedTree::new()?;
    let story = Story::with_windlass("sops").await?;
    let mut files = encrypted.files(&FOLDERS)?;
    // The same manifest, with a data key that `age` encrypted for another key.
    let rewrapped = encrypted.rewrap(&encrypted.read("age/secret.json")?)?;
    files.push(("again/secret.json".to_owned(), rewrapped));
    let kustomization = "namePrefix: again-\nresources: [secret.json]\n";
    files.push(("again/kustomization.yaml".to_owned(), kustomization.to_owned()));
    let _upstream = story.follow("app", &borrowed(&files)).await?;

    // Keys of others, and one of two required keys.
    let other = GnuPgHome::with_key("future-default", "default")?;
    let pgp = [("key.asc".to_owned(), other.private()?)];
    let stranger = [encrypted.stranger.entry()];
    let one = [encrypted.age.entry()];
    let age = &encrypted.age.recipient;
    let fingerprint = encrypted.pgp.fingerprint()?;
    for (folder, keys, parts) in [
        ("age", &stranger, vec![format!("{age}: FAILED"), "at least one key has to be".into()]),
        ("hybrid", &stranger, vec![format!("{}: FAILED", encrypted.hybrid.recipient)]),
        ("pgp", &pgp, vec![format!("{fingerprint}: FAILED")]),
        (
            "shamir",
            &one,
            vec![
                format!("Group 0: SUCCESS Group 1: FAILED {fingerprint}: FAILED"),
                "a Shamir threshold of 2, but only 1 part(s)".into(),
            ],
        ),
    ] {
        put_keys(&story, folder, keys).await?;
        story.kustomization(folder, "app", decryption(folder, folder)).await?;
        let target = StoryObject::kustomization(folder);
        let message = await_message(&story, &target, "cannot get sops data key").await?;
        for part in parts {
            ensure!(joined(&message).contains(&part), "{folder}: `{part}` is not in {message}");
        }
        let manifest = StoryObject::new("v1", "Secret", &format!("{folder}-manifest"));
        ensure!(story.read(&manifest).await?.is_none(), "{folder} was applied");
    }

    for folder in FOLDERS {
        put_keys(&story, folder, &encrypted.keys_of(folder)?).await?;
        story.await_ready(&StoryObject::kustomization(folder)).await?;
        ensure_plain(&story, &encrypted, folder).await?;
    }
    put_keys(&story, "again", &stranger).await?;
    story.kustomization("again", "app", decryption("again", "again")).await?;
    story.await_ready(&StoryObject::kustomization("again")).await?;
    ensure!(entry(&story, "again-json", "password").await? == "pl4in & <secret>", "age");
    ensure_hidden(&story, &[&FOLDERS[..], &["again"]].concat()).await?;
    story.end().await
}

/// The file without the first line that begins with a text.
fn without(text: &str, start: &str) -> String {
    let mut lines = text.lines();
    let before: Vec<&str> =
        lines.by_ref().take_while(|line| !line.trim_start().starts_with(start)).collect();
    [before, lines.collect()].concat().join("\n") + "\n"
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(feature = "thorough"), ignore = "builds sops: cargo xtask test --thorough")]
async fn where_the_mac_is_required_a_file_of_any_format_is_edited_by_sops_only() -> Result<()> {
    let encrypted = SopsEncryptedTree::new()?;
    let story = Story::with_windlass("sops-mac").await?;
    let files = encrypted.files(&["shamir"])?;
    let upstream = story.follow("app", &borrowed(&files)).await?;
    put_keys(&story, "keys", &encrypted.keys_of("shamir")?).await?;
    story.kustomization("app", "app", decryption("shamir", "keys")).await?;
    let target = StoryObject::kustomization("app");
    let require = json!({"metadata": {"annotations": {"windlass.dev/sops-mac": "Require"}}});
    story.merge(&target, require).await?;
    story.await_ready(&target).await?;
    ensure_plain(&story, &encrypted, "shamir").await?;

    let forged = |text: &str, from: &str, to: &str| text.replacen(from, to, 1);
    for name in [&MANIFESTS[..], &GENERATED[..], &[ENVIRONMENT][..]].concat() {
        let path = format!("shamir/{name}");
        let right = encrypted.read(&path)?;
        let wrong = match name {
            "secret.yaml" => forged(&right, "type: Opaque", "type: example.com/forged"),
            "secret.json" => forged(&right, "\"json\"", "\"forged\""),
            "config.yaml" => without(&right, "port:"),
            "config.json" => without(&right, "\"password\":"),
            "config.ini" => without(&right, "password"),
            "app.env" => without(&right, "URL="),
            // There is only one value, and its MAC depends on the time of the last change.
            _ => forged(&right, "\"lastmodified\": \"20", "\"lastmodified\": \"19"),
        };
        ensure!(wrong != right, "{name} is not changed");
        let revision = upstream.push(&[(&path, wrong)]).await?;
        let refused = story.await_object(&target, DEFAULT_WAIT_TIMEOUT, |object| {
            object.data["status"]["lastAttemptedRevision"] == revision
                && condition(object, "Ready")["status"] == "False"
        });
        let ready = condition(&refused.await.context(path.clone())?, "Ready").clone();
        let text = ready["message"].as_str().unwrap_or_default();
        ensure!(text.contains("failed to verify sops data integrity"), "{path}: {text}");
        upstream.push(&[(&path, right)]).await?;
    }
    ensure_plain(&story, &encrypted, "shamir").await?;

    // `sops` may edit a file and give it another data key.
    encrypted.sops(&[
        "set",
        "shamir/secret.yaml",
        r#"["stringData"]["user"]"#,
        "\"pl4in other\"",
    ])?;
    encrypted.sops(&["rotate", "--in-place", "shamir/config.ini"])?;
    let revision = upstream.push(&borrowed(&encrypted.files(&["shamir"])?)).await?;
    story.await_applied("app", &revision).await?;
    ensure!(entry(&story, "shamir-manifest", "user").await? == "pl4in other", "the edit");
    ensure_hidden(&story, &["app"]).await?;
    story.end().await
}
