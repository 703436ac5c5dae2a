//! Writes an OCI image layout with one layer.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use testbed::ENVIRONMENT;

use super::root_filesystem::{NONROOT_USER_ID, PROGRAM, WRITABLE_FOLDER_MODES};

/// The values of the image's labels.
#[derive(Debug, Clone, Copy)]
pub(super) struct ImageLabels<'c> {
    pub(super) version: &'c str,
    pub(super) commit: &'c str,
    /// The architecture in the notation of container images, such as `amd64`.
    pub(super) architecture: &'c str,
}

/// Packs a root file system, and returns how large the image is.
///
/// # Errors
/// When a file cannot be read or written.
pub(super) fn make(top: &Path, layout: &Path, config: ImageLabels<'_>) -> anyhow::Result<usize> {
    if layout.exists() {
        fs::remove_dir_all(layout)?;
    }
    fs::create_dir_all(layout.join("blobs/sha256"))?;
    let unpacked = pack(top)?;
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(&unpacked)?;
    let packed = packed.finish()?;
    let size = packed.len();
    let layer = blob(layout, "application/vnd.oci.image.layer.v1.tar+gzip", &packed)?;
    let image = image(&digest(&unpacked), config);
    let image =
        blob(layout, "application/vnd.oci.image.config.v1+json", &serde_json::to_vec(&image)?)?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": image,
        "layers": [layer],
        "annotations": labels(config),
    });
    let mut manifest = blob(
        layout,
        "application/vnd.oci.image.manifest.v1+json",
        &serde_json::to_vec(&manifest)?,
    )?;
    manifest["annotations"] = json!({"org.opencontainers.image.ref.name": config.version});
    manifest["platform"] = json!({"os": "linux", "architecture": config.architecture});
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [manifest],
    });
    fs::write(layout.join("index.json"), serde_json::to_vec(&index)?)?;
    fs::write(layout.join("oci-layout"), "{\"imageLayoutVersion\":\"1.0.0\"}")?;
    Ok(size)
}

/// Unpacks the layer of a layout into a folder, and compares each blob with its digest.
///
/// # Errors
/// When a blob is missing or has another digest.
pub(super) fn unpack(layout: &Path, top: &Path) -> anyhow::Result<()> {
    let index: Value = serde_json::from_slice(&fs::read(layout.join("index.json"))?)?;
    let manifest: Value = serde_json::from_slice(&read(layout, &index["manifests"][0])?)?;
    let image: Value = serde_json::from_slice(&read(layout, &manifest["config"])?)?;
    let packed = read(layout, &manifest["layers"][0])?;
    let mut unpacked = Vec::new();
    std::io::copy(&mut GzDecoder::new(packed.as_slice()), &mut unpacked)?;
    let known = image["rootfs"]["diff_ids"][0].as_str().unwrap_or_default();
    ensure!(known == digest(&unpacked), "the layer is not the one that the image names");
    let mut archive = tar::Archive::new(unpacked.as_slice());
    archive.set_preserve_ownerships(true);
    archive.set_preserve_permissions(true);
    archive.unpack(top).with_context(|| top.display().to_string())
}

/// Reads the blob that a descriptor names.
fn read(layout: &Path, descriptor: &Value) -> anyhow::Result<Vec<u8>> {
    let known = descriptor["digest"].as_str().context("a descriptor has no digest")?;
    let content = fs::read(layout.join("blobs").join(known.replace(':', "/")))?;
    ensure!(digest(&content) == known, "{known} has other bytes");
    ensure!(descriptor["size"] == json!(content.len()), "{known} has another size");
    Ok(content)
}

/// Writes a blob, and returns its descriptor.
fn blob(layout: &Path, media_type: &str, content: &[u8]) -> anyhow::Result<Value> {
    let digest = digest(content);
    fs::write(layout.join("blobs").join(digest.replace(':', "/")), content)?;
    Ok(json!({"mediaType": media_type, "digest": digest, "size": content.len()}))
}

fn digest(content: &[u8]) -> String {
    let digest = Sha256::digest(content);
    digest.iter().fold("sha256:".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}

/// The labels of the image. The same values are annotations of the manifest.
fn labels(config: ImageLabels<'_>) -> BTreeMap<&'static str, String> {
    BTreeMap::from([
        ("org.opencontainers.image.title", "windlass".to_owned()),
        (
            "org.opencontainers.image.description",
            "A GitOps operator for Kubernetes that serves the Flux v2 APIs".to_owned(),
        ),
        ("org.opencontainers.image.version", config.version.to_owned()),
        ("org.opencontainers.image.revision", config.commit.to_owned()),
        ("org.opencontainers.image.licenses", "Apache-2.0".to_owned()),
    ])
}

/// The image configuration: the user, the entry point, the environment and the labels of a container.
fn image(layer: &str, config: ImageLabels<'_>) -> Value {
    let paths =
        [("PATH", "/usr/local/bin"), ("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt")];
    let environment = paths.into_iter().chain(ENVIRONMENT);
    let environment: Vec<String> =
        environment.map(|(name, value)| format!("{name}={value}")).collect();
    json!({
        "architecture": config.architecture,
        "os": "linux",
        "config": {
            "User": format!("{NONROOT_USER_ID}:{NONROOT_USER_ID}"),
            "Env": environment,
            "Entrypoint": [PROGRAM],
            "Labels": labels(config),
        },
        "rootfs": {"type": "layers", "diff_ids": [layer]},
        "history": [{"created_by": "cargo xtask image"}],
    })
}

/// Packs all files into a tar, in the order of their paths. It has no times and no names of this machine, so that the
/// same files give the same bytes.
fn pack(top: &Path) -> anyhow::Result<Vec<u8>> {
    let mut paths = Vec::new();
    let mut left = vec![top.to_owned()];
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                left.push(path.clone());
            }
            paths.push(path);
        }
    }
    paths.sort();
    let mut archive = tar::Builder::new(Vec::new());
    for path in paths {
        add(&mut archive, top, &path)?;
    }
    archive.into_inner().context("the layer cannot be packed")
}

fn add(archive: &mut tar::Builder<Vec<u8>>, top: &Path, path: &PathBuf) -> anyhow::Result<()> {
    let name = path.strip_prefix(top)?;
    let writable = WRITABLE_FOLDER_MODES.iter().find(|(folder, _)| Path::new(folder) == name);
    let mut header = tar::Header::new_gnu();
    header.set_mtime(0);
    let owner = u64::from(if writable.is_some() { NONROOT_USER_ID } else { 0 });
    header.set_uid(owner);
    header.set_gid(owner);
    if path.is_dir() {
        header.set_entry_type(tar::EntryType::Directory);
        header.set_mode(writable.map_or(0o755, |(_, mode)| *mode));
        header.set_size(0);
        archive.append_data(&mut header, name, std::io::empty())?;
        return Ok(());
    }
    let file = File::open(path)?;
    let known = file.metadata()?;
    header.set_mode(std::os::unix::fs::PermissionsExt::mode(&known.permissions()) & 0o777);
    header.set_size(known.len());
    archive.append_data(&mut header, name, file)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packs a folder with a program and with the folders that the user may write to.
    fn made(out: &Path) -> usize {
        let top = out.join("root");
        fs::create_dir_all(top.join("usr/local/bin")).unwrap();
        fs::write(top.join("usr/local/bin/windlass"), "program").unwrap();
        for (folder, _) in WRITABLE_FOLDER_MODES {
            fs::create_dir_all(top.join(folder)).unwrap();
        }
        make(
            &top,
            &out.join("oci"),
            ImageLabels { version: "v1", commit: "abc", architecture: "amd64" },
        )
        .unwrap()
    }

    fn index(out: &Path) -> Value {
        serde_json::from_slice(&fs::read(out.join("oci/index.json")).unwrap()).unwrap()
    }

    #[test]
    fn the_same_files_make_the_same_image_and_come_out_again() {
        let first = tempfile::tempdir().unwrap();
        let second = tempfile::tempdir().unwrap();
        assert_eq!(made(first.path()), made(second.path()));
        assert_eq!(index(first.path()), index(second.path()));
        let layer = GzDecoder::new(File::open(layer_of(first.path())).unwrap());
        let mut archive = tar::Archive::new(layer);
        let entries: Vec<_> = archive
            .entries()
            .unwrap()
            .map(|entry| {
                let header = entry.as_ref().unwrap().header();
                let name = entry.as_ref().unwrap().path().unwrap().into_owned();
                (name, header.uid().unwrap(), header.mode().unwrap(), header.mtime().unwrap())
            })
            .collect();
        let of = |name: &str| entries.iter().find(|entry| entry.0 == Path::new(name)).unwrap();
        assert_eq!(*of("data"), (PathBuf::from("data"), u64::from(NONROOT_USER_ID), 0o755, 0));
        assert_eq!(*of("tmp"), (PathBuf::from("tmp"), u64::from(NONROOT_USER_ID), 0o1777, 0));
        assert_eq!(of("usr/local/bin/windlass").1, 0, "the program is not its user's");
    }

    fn layer_of(out: &Path) -> PathBuf {
        let layout = out.join("oci");
        let manifest: Value =
            serde_json::from_slice(&read(&layout, &index(out)["manifests"][0]).unwrap()).unwrap();
        let name = manifest["layers"][0]["digest"].as_str().unwrap().replace(':', "/");
        layout.join("blobs").join(name)
    }

    #[test]
    fn a_damaged_layer_is_not_unpacked() {
        let out = tempfile::tempdir().unwrap();
        made(out.path());
        let layer = layer_of(out.path());
        let mut content = fs::read(&layer).unwrap();
        *content.last_mut().unwrap() ^= 1;
        fs::write(&layer, content).unwrap();
        let error = unpack(&out.path().join("oci"), &out.path().join("again")).unwrap_err();
        assert!(error.to_string().ends_with("has other bytes"), "{error}");
    }
}
