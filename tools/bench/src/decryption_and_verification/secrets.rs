//! Decrypts the same Secrets with Flux's decryptor and with windlass's. Both read the keys of the Secret anew each
//! time, as in a reconciliation.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;
use serde_json::{Map, Value};
use sops::{DecryptionKeys, DecryptionOutcome, SopsDecryptor};

use super::super::process_comparison::{ComparisonRow, median};
use super::MIN_DECRYPTION_SPEEDUP;

/// The name of the private key's file, as the key of a Secret.
const IDENTITY: &str = "keys.agekey";

/// The output of Flux's decryptor.
#[derive(Deserialize)]
struct DecryptionFigures {
    seconds: Vec<f64>,
    objects: Vec<Value>,
}

/// Has Secrets made and decrypted by both programs, and returns the row of the table.
///
/// # Errors
/// When a program does not decrypt a Secret, or the results differ.
pub(super) fn rows(decrypts: &Path, count: u16, rounds: u16) -> anyhow::Result<Vec<ComparisonRow>> {
    let folder = tempfile::tempdir().context("cannot make a folder")?;
    run(decrypts, "make", folder.path(), count)?;
    let flux = run(decrypts, "measure", folder.path(), rounds)?;
    let flux: DecryptionFigures = serde_json::from_slice(&flux).context("Flux's decryptor")?;
    let own = measure(folder.path(), rounds)?;
    ensure!(own.objects.len() == usize::from(count), "not every Secret was decrypted");
    for (own, flux) in own.objects.iter().zip(&flux.objects) {
        // The plain values are only made for this benchmark. They are still not printed.
        ensure!(own == flux, "both decrypt {} differently", own["metadata"]["name"]);
    }
    ensure!(own.objects.len() == flux.objects.len(), "Flux decrypted {}", flux.objects.len());
    let milliseconds = |seconds: &[f64]| median(seconds).map(|median| median * 1000.0);
    let flux = milliseconds(&flux.seconds).context("no rounds")?;
    let what = format!("{count} Secrets (age)");
    Ok(vec![ComparisonRow::new(
        &what,
        "decrypted, ms",
        flux,
        milliseconds(&own.seconds),
        MIN_DECRYPTION_SPEEDUP,
    )])
}

fn run(decrypts: &Path, command: &str, folder: &Path, number: u16) -> anyhow::Result<Vec<u8>> {
    let output = Command::new(decrypts).arg(command).arg(folder).arg(number.to_string()).output();
    let output = output.context("Flux's decryptor cannot be started")?;
    if !output.status.success() {
        bail!("Flux's decryptor fails: {}", String::from_utf8_lossy(&output.stderr).trim_end());
    }
    Ok(output.stdout)
}

fn measure(folder: &Path, rounds: u16) -> anyhow::Result<DecryptionFigures> {
    let key = std::fs::read(folder.join(IDENTITY)).context(IDENTITY)?;
    let encrypted = load(folder)?;
    let mut measured = DecryptionFigures { seconds: Vec::new(), objects: Vec::new() };
    for _ in 0..rounds {
        let mut objects = encrypted.clone();
        let begun = Instant::now();
        let keys = DecryptionKeys::import("apps/keys", [(IDENTITY, key.as_slice())])?;
        let decryptor = SopsDecryptor::new(&keys);
        for object in &mut objects {
            let change = decryptor.decrypt_resource(object)?;
            ensure!(change == DecryptionOutcome::Decrypted, "a Secret was not decrypted");
        }
        measured.seconds.push(begun.elapsed().as_secs_f64());
        measured.objects = objects.into_iter().map(Value::Object).collect();
    }
    Ok(measured)
}

/// The encrypted Secrets in the order of their files.
fn load(folder: &Path) -> anyhow::Result<Vec<Map<String, Value>>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).context("the folder of the Secrets")? {
        let path = entry?.path();
        if path.extension().is_some_and(|it| it == "yaml") {
            paths.push(path);
        }
    }
    paths.sort();
    let object = |path: std::path::PathBuf| {
        let text = std::fs::read(&path).with_context(|| path.display().to_string())?;
        match goyaml::to_json(&text) {
            Ok(Value::Object(object)) => Ok(object),
            _ => bail!("{} is no object", path.display()),
        }
    };
    paths.into_iter().map(object).collect()
}
