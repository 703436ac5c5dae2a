//! Hostile indexes and chart archives: too long, too many entries, too deep, of a wrong shape, or with names that lead out of
//! the folder.

use std::fmt::Write as _;

use anyhow::{Result, ensure};
use e2e::harness::{Story, WindlassProcess};
use e2e::servers::web::FileWebServer;
use serde_json::json;

use super::{create, peak, refusal};

/// The maximum memory of windlass, in MiB. This build is not optimised, and two indexes are read at once.
const MEMORY: u64 = 400;

/// An index of one chart with many versions and long descriptions.
fn index(versions: usize, description: usize) -> String {
    let description = "x".repeat(description);
    let mut text = "apiVersion: v1\nentries:\n  app:\n".to_owned();
    for version in 0..versions {
        writeln!(
            text,
            "  - {{name: app, version: 0.{version}.0, urls: [app.tgz], description: {description}}}"
        )
        .ok();
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_means_harm_is_refused_or_read_in_little_memory() -> Result<()> {
    let story = Story::begin("hostile-indexes").await?;
    let windlass = WindlassProcess::start_for(&story, &[]).await?;
    let server = FileWebServer::start().await?;
    let serve = |name: &str, text: String| {
        let url = server.put(&format!("{name}/index.yaml"), text);
        json!({"url": url.trim_end_matches("index.yaml")})
    };
    let spec = serve("good", index(2, 10));
    let good = create(&story, "HelmRepository", "good", spec).await?;
    story.await_ready(&good).await?;

    let harmless =
        [("long", index(1000, 44_000)), ("many", index(100_000, 10)), ("empty", index(0, 0))];
    let nested = |open: &str, close: &str| {
        format!(
            "apiVersion: v1\nentries: {{a: [{{x: {}{}}}]}}",
            open.repeat(300_000),
            close.repeat(300_000)
        )
    };
    let alias = (1..12).fold("a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned(), |text, level| {
        let references = vec![format!("*a{}", level - 1); 9].join(", ");
        text + &format!("a{level}: &a{level} [{references}]\n")
    });
    let refused = [
        ("too-long", index(1200, 45_000), "bytes"),
        ("deep", nested("[", "]"), ""),
        ("deep-maps", nested("{a: ", "}"), ""),
        ("aliases", format!("apiVersion: v1\n{alias}entries: *a11\n"), ""),
        ("page", "<html>not found</html>".to_owned(), ""),
        ("number", "apiVersion: 1\nentries: 7\n".to_owned(), ""),
        ("list", "apiVersion: v1\nentries: [a, b]\n".to_owned(), ""),
        ("wrong-types", "apiVersion: v1\nentries: {a: [{version: [1], urls: 7}]}\n".to_owned(), ""),
        ("twice", "apiVersion: v1\nentries: {a: [], a: []}\n".to_owned(), "twice"),
    ];
    let mut targets = Vec::new();
    for (name, text) in harmless {
        let spec = serve(name, text);
        targets.push((create(&story, "HelmRepository", name, spec).await?, None));
    }
    for (name, text, says) in refused {
        let spec = serve(name, text);
        targets.push((create(&story, "HelmRepository", name, spec).await?, Some(says)));
    }
    for (target, refused) in &targets {
        match refused {
            None if target.to_string().ends_with("empty") => {
                // An empty file does no harm. Helm decides whether it is a valid index.
                super::outcome(&story, target).await?;
            }
            // A build without optimisation reads tens of megabytes slowly on a busy machine.
            None => drop(
                story
                    .await_condition(target, "Ready", "True", 6 * super::DEFAULT_WAIT_TIMEOUT)
                    .await?,
            ),
            Some(says) => {
                let text = refusal(&story, target).await?;
                ensure!(text.contains(says), "{target}: {text}");
                ensure!(text.len() < 2000, "{target}: {} bytes are shown", text.len());
            }
        }
    }
    story.request(&good).await?;
    story.await_ready(&good).await?;
    let peak = peak(&windlass)?;
    ensure!(peak < MEMORY, "it took {peak} MiB");
    story.end().await
}

/// A chart archive with a given chart name.
fn chart(folder: &str, name: &str, more: &[(&str, &str)]) -> Result<Vec<u8>> {
    let gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let mut builder = tar::Builder::new(gzip);
    let yaml = format!("apiVersion: v2\nname: {name}\nversion: 1.0.0\n");
    for (path, text) in [("Chart.yaml", &*yaml)].iter().chain(more) {
        let path = format!("{folder}{path}");
        let mut header = tar::Header::new_ustar();
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_mode(0o644);
        header.set_size(text.len() as u64);
        header.set_cksum();
        builder.append(&header, text.as_bytes())?;
    }
    Ok(builder.into_inner()?.finish()?)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chart_that_means_harm_is_refused_and_others_go_on() -> Result<()> {
    let story = Story::begin("hostile-charts").await?;
    let windlass = WindlassProcess::start_for(&story, &[]).await?;
    let server = FileWebServer::start().await?;
    let mut index = "apiVersion: v1\nentries:\n".to_owned();
    let zeros = "0".repeat(60 << 20);
    let deep = "d/".repeat(45) + "x";
    let harms = [
        ("good", chart("good/", "good", &[("templates/a.yaml", "a: 1\n")])?),
        ("climbs", chart("climbs/", "climbs", &[("../../x", "x")])?),
        ("absolute", chart("/etc/", "absolute", &[])?),
        ("called-up", chart("called-up/", "..", &[])?),
        ("called-elsewhere", chart("called-elsewhere/", "../../elsewhere", &[])?),
        ("bomb", chart("bomb/", "bomb", &[("zeros", &zeros)])?),
        ("flat", chart("", "flat", &[])?),
        ("deep", chart("deep/", "deep", &[(&deep, "x")])?),
        ("none", b"no archive at all".to_vec()),
    ];
    for (name, bytes) in harms {
        server.put(&format!("{name}-1.0.0.tgz"), bytes);
        writeln!(index, "  {name}: [{{name: {name}, version: 1.0.0, urls: [{name}-1.0.0.tgz]}}]")
            .ok();
    }
    writeln!(
        index,
        "  elsewhere: [{{name: elsewhere, version: 1.0.0, urls: ['file:///etc/passwd']}}]"
    )
    .ok();
    writeln!(index, "  \"../up\": [{{name: '../up', version: 1.0.0, urls: [good-1.0.0.tgz]}}]")
        .ok();
    let url = server.put("index.yaml", index);
    let spec = json!({"url": url.trim_end_matches("index.yaml")});
    let repository = create(&story, "HelmRepository", "charts", spec).await?;
    story.await_ready(&repository).await?;
    let mut targets = Vec::new();
    for (object, chart) in [
        ("good", "good"),
        ("climbs", "climbs"),
        ("absolute", "absolute"),
        ("called-up", "called-up"),
        ("called-elsewhere", "called-elsewhere"),
        ("bomb", "bomb"),
        ("flat", "flat"),
        ("none", "none"),
        ("elsewhere", "elsewhere"),
        ("up", "../up"),
    ] {
        let source = json!({"kind": "HelmRepository", "name": "charts"});
        let spec = json!({"chart": chart, "sourceRef": source});
        targets.push((object, create(&story, "HelmChart", object, spec).await?));
    }
    let mut taken = Vec::new();
    for (name, target) in &targets {
        if *name == "good" {
            story.await_ready(target).await?;
        } else if let Err(error) = refusal(&story, target).await {
            taken.push(format!("{error:#}"));
        }
    }
    ensure!(taken.is_empty(), "{}", taken.join("\n"));
    let slot = windlass.storage().join("helmchart").join(&story.namespace);
    let kept: Vec<_> = std::fs::read_dir(&slot)?.collect::<Result<Vec<_>, _>>()?;
    let kept: Vec<_> = kept.iter().map(|it| it.file_name()).collect();
    ensure!(kept == ["good"], "{kept:?} are kept");
    let peak = peak(&windlass)?;
    ensure!(peak < MEMORY, "it took {peak} MiB");
    story.end().await
}
