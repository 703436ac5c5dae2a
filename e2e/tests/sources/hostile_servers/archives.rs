//! Hostile archives: paths that lead out of the archive, links, devices, many files, archive bombs, and damaged archives.

use std::collections::BTreeSet;
use std::io::{Cursor, Write as _};

use anyhow::{Context as _, Result, ensure};
use artifacts::archive::{ExtractOptions, extract};
use e2e::harness::flux_objects::condition;
use e2e::harness::{Story, StoryObject, WindlassProcess};
use e2e::servers::registry::{FLUX_LAYER, PushedLayer, RegistryServer};
use e2e::servers::s3::{ACCESS, S3Server, SECRET};
use e2e::servers::web::FileWebServer;
use flate2::{Compression, write::GzEncoder};
use serde_json::json;
use tree::{FileMetadata, FileTree as _};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::{create, create_with, outcome, peak};

/// The maximum memory of windlass, in MiB. This build is not optimised, and two archives are read at once.
const MEMORY: u64 = 400;

/// The expected result of an archive.
enum ArchiveExtractionOutcome {
    /// The archive is refused. Contains a part of the message.
    Refused(&'static str),
    /// The archive becomes an artifact with these files, which contain no data of the machine.
    Harmless(&'static [&'static str]),
}

use ArchiveExtractionOutcome::{Harmless, Refused};

/// A header with its padded body. The size in the header may be wrong.
fn entry(name: &str, flag: u8, link: &str, size: u64, body: &[u8]) -> Vec<u8> {
    let mut header = tar::Header::new_ustar();
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
    header.set_mode(0o644);
    header.set_size(size);
    header.set_entry_type(tar::EntryType::new(flag));
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend_from_slice(body);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn file(name: &str) -> Vec<u8> {
    entry(name, b'0', "", 2, b"1\n")
}

fn link(name: &str, flag: u8, to: &str) -> Vec<u8> {
    entry(name, flag, to, 0, b"")
}

fn packed(parts: &[Vec<u8>]) -> Result<Vec<u8>> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    for part in parts {
        gzip.write_all(part)?;
    }
    gzip.write_all(&[0; 1024])?;
    Ok(gzip.finish()?)
}

fn tightly(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(bytes)?;
    Ok(gzip.finish()?)
}

/// The same part many times.
fn repeated(part: &[u8], times: usize) -> Result<Vec<u8>> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    let many = part.repeat(1000);
    for _ in 0..times / 1000 {
        gzip.write_all(&many)?;
    }
    Ok(gzip.finish()?)
}

/// The tar archives that a hostile server offers: each with its name, its bytes, and what the extraction has to do with it.
fn tars() -> Result<Vec<(&'static str, Vec<u8>, ArchiveExtractionOutcome)>> {
    let zeros = vec![0; 1 << 20];
    let bomb = entry("zeros", b'0', "", 300 << 20, b"");
    let mut comment = b"1048576 comment=".to_vec();
    comment.resize((1 << 20) - 1, b'x');
    comment.push(b'\n');
    let whole = packed(&[file("a.yaml"), entry("b.yaml", b'0', "", 600, &[7; 600])])?;
    let name = "tar contained invalid name error";
    let kind = "contained unsupported file type";
    let climbing = b"13 path=../x\n";
    Ok(vec![
        ("climb", packed(&[file("a.yaml"), file("../x")])?, Refused(name)),
        ("climb-inside", packed(&[file("a/../../x")])?, Refused(name)),
        ("absolute", packed(&[file("/etc/cron.d/x")])?, Refused(name)),
        ("backslash", packed(&[file("..\\x")])?, Refused(name)),
        (
            "climb-extended",
            packed(&[entry("pax", b'x', "", climbing.len() as u64, climbing), file("good")])?,
            Refused(name),
        ),
        (
            "chain",
            packed(&[link("a", b'2', "."), link("b", b'2', "a/.."), file("b/x.yaml")])?,
            Harmless(&["b/x.yaml"]),
        ),
        (
            "through-link",
            packed(&[link("etc", b'2', "/etc"), file("etc/passwd")])?,
            Harmless(&["etc/passwd"]),
        ),
        (
            "hard-link",
            packed(&[link("passwd", b'1', "/etc/passwd"), file("a.yaml")])?,
            Harmless(&["a.yaml", "passwd"]),
        ),
        ("device", packed(&[link("mem", b'3', "")])?, Refused(kind)),
        ("block-device", packed(&[link("disk", b'4', "")])?, Refused(kind)),
        ("pipe", packed(&[link("pipe", b'6', "")])?, Refused(kind)),
        ("folds", packed(&[file("a.yaml"), file("A.yaml")])?, Harmless(&["A.yaml", "a.yaml"])),
        ("crowd", repeated(&entry("x", b'0', "", 0, b""), 1_000_000)?, Refused("")),
        (
            "bomb",
            packed(&[bomb, vec![zeros; 300].concat()])?,
            Refused("more than the 67108864 allowed for one file"),
        ),
        // The archive has the best compression. Otherwise it would be no bomb.
        (
            "bomb-of-headers",
            tightly(&vec![entry("pax", b'x', "", comment.len() as u64, &comment); 40].concat())?,
            Refused("decompression bomb"),
        ),
        ("cut", whole[..whole.len() / 2].to_vec(), Refused("cannot read the archive")),
        ("lying", packed(&[entry("a", b'0', "", 1 << 20, b"short")])?, Refused("should have")),
        ("no-archive", b"\x1f\x8bnothing".to_vec(), Refused("cannot read the archive")),
    ])
}

/// Writes a zip archive into memory.
type ZipArchiveWriter = ZipWriter<Cursor<Vec<u8>>>;

fn zipped(fill: impl Fn(&mut ZipArchiveWriter) -> Result<()>) -> Result<Vec<u8>> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    fill(&mut writer)?;
    Ok(writer.finish()?.into_inner())
}

/// Zip archives, which two kinds read.
fn zips() -> Result<Vec<(&'static str, Vec<u8>, ArchiveExtractionOutcome)>> {
    let options = SimpleFileOptions::default();
    let one = zipped(|writer| {
        writer.start_file("AA/x.yaml", options)?;
        Ok(writer.write_all(b"1\n")?)
    })?;
    // The library would not write such a name.
    let renamed = |to: &[u8; 3]| -> Vec<u8> {
        let mut bytes = one.clone();
        for at in 0..bytes.len() - 3 {
            if bytes[at..].starts_with(b"AA/") {
                bytes[at..at + 3].copy_from_slice(to);
            }
        }
        bytes
    };
    let links = zipped(|writer| {
        writer.add_symlink("etc", "/etc", options)?;
        writer.start_file("a.yaml", options)?;
        Ok(writer.write_all(b"1\n")?)
    })?;
    let bomb = zipped(|writer| {
        writer.start_file("zeros", options)?;
        let zeros = vec![0; 1 << 20];
        for _ in 0..60 {
            writer.write_all(&zeros)?;
        }
        Ok(())
    })?;
    let crowd = zipped(|writer| {
        for number in 0..70_000 {
            writer.start_file(format!("{number}"), options)?;
        }
        Ok(())
    })?;
    Ok(vec![
        ("zip-climb", renamed(b"../"), Refused("name")),
        ("zip-absolute", renamed(b"//x"), Refused("name")),
        ("zip-links", links, Harmless(&["a.yaml"])),
        ("zip-bomb", bomb, Refused("expands to more than 250 times")),
        ("zip-crowd", crowd, Refused("ZIP64")),
    ])
}

/// The expected result of the objects.
struct ExpectedObjectFate {
    target: StoryObject,
    name: String,
    fate: usize,
}

/// The files in the artifact of an object.
async fn files(object: &kube::api::DynamicObject) -> Result<BTreeSet<String>> {
    let url = object.data["status"]["artifact"]["url"].as_str().context("no artifact")?;
    let bytes = reqwest::get(url).await?.error_for_status()?.bytes().await?;
    let tree = extract(&bytes[..], &ExtractOptions::default())?;
    let mut found = BTreeSet::new();
    for (path, entry) in tree.walk() {
        if matches!(entry, FileMetadata::File { .. }) {
            let text = tree.read(path)?;
            ensure!(text.len() <= 2, "`{path}` has more in it than the archive");
            found.insert(path.to_string());
        }
    }
    Ok(found)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_that_means_harm_is_refused_or_harmless_and_others_go_on() -> Result<()> {
    const BUCKET: &str = "bundles";
    let story = Story::begin("hostile-archives").await?;
    let windlass = WindlassProcess::start_for(&story, &[]).await?;
    let web = FileWebServer::start().await?;
    let s3 = S3Server::start().await?;
    let registry = RegistryServer::start().await?;
    s3.bucket(BUCKET).await?;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"},
        "stringData": {"accesskey": ACCESS, "secretkey": SECRET}});
    story.apply_value(secret).await?;
    let good = web.put("good.tar.gz", packed(&[file("a.yaml")])?);
    let good = create(&story, "HTTPArchive", "good", json!({"url": good})).await?;
    story.await_ready(&good).await?;

    let tars = tars()?;
    let count = tars.len();
    let harms: Vec<_> = tars.into_iter().chain(zips()?).collect();
    let mut all = Vec::new();
    for (fate, (name, bytes, _)) in harms.iter().enumerate() {
        let ending = if fate < count { "tar.gz" } else { "zip" };
        let key = format!("{name}.{ending}");
        let url = web.put(&key, bytes.clone());
        let target = create(&story, "HTTPArchive", name, json!({"url": url})).await?;
        all.push(ExpectedObjectFate { target, name: format!("{name} over HTTP"), fate });
        s3.put(BUCKET, &key, bytes).await?;
        let spec = json!({"endpoint": s3.endpoint(), "bucketName": BUCKET, "insecure": true,
            "secretRef": {"name": "keys"}});
        let annotations = json!({"windlass.dev/bundle": key});
        let target = create_with(&story, "Bucket", name, annotations, spec).await?;
        all.push(ExpectedObjectFate { target, name: format!("{name} as a bundle"), fate });
        if fate < count {
            let layer = PushedLayer { media_type: FLUX_LAYER, bytes: bytes.clone() };
            registry.push(name, "latest", &[layer], json!({})).await?;
            let spec = json!({"url": registry.url(name), "insecure": true});
            let target = create(&story, "OCIRepository", name, spec).await?;
            all.push(ExpectedObjectFate { target, name: format!("{name} as a layer"), fate });
        }
    }
    let mut wrong = Vec::new();
    for ExpectedObjectFate { target, name, fate } in &all {
        let object = outcome(&story, target).await?;
        let ready = condition(&object, "Ready");
        let text = ready["message"].as_str().unwrap_or_default();
        match &harms[*fate].2 {
            Refused(says) if ready["status"] == "False" && text.contains(says) => {
                ensure!(object.data["status"]["artifact"].is_null(), "{name} has an artifact");
            }
            Harmless(expected) if ready["status"] == "True" => {
                let found = files(&object).await.with_context(|| name.clone())?;
                if !found.iter().eq(expected.iter()) {
                    wrong.push(format!("{name} has {found:?}"));
                }
            }
            _ => wrong.push(format!("{name}: Ready={}: {text}", ready["status"])),
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));

    web.put("good.tar.gz", packed(&[file("a.yaml"), file("b.yaml")])?);
    story.request(&good).await?;
    // The other objects are retried meanwhile, and a build without optimisation unpacks bombs slowly.
    story
        .await_until("the good one to be fetched", 4 * super::DEFAULT_WAIT_TIMEOUT, async || {
            let found = files(&story.await_ready(&good).await?).await?;
            Ok((found.len() == 2).then_some(()))
        })
        .await?;
    let peak = peak(&windlass)?;
    ensure!(peak < MEMORY, "it took {peak} MiB");
    let left = std::fs::read_dir(windlass.operator.temporary_files())?.count();
    ensure!(left == 0, "{left} temporary files are left");
    story.end().await
}
