//! Chart repositories that the real `helm` made and `sources` reads, and charts that the real `helm` reads afterwards.
//!
//! Elsewhere: hostile indexes and servers (`sources`), the objects in a cluster (`stories/helm_chart.rs`).

use std::io::Read as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use e2e::git_server::{GitReadAccess, GitServer};
use e2e::servers::charts::ChartServer;
use e2e::servers::registry::RegistryServer;
use e2e::servers::s3::{ACCESS, S3Server, SECRET};
use sources::charts::repository::ChartRepositoryClients;
use sources::charts::{
    ChartIndex, ChartIndexFetchResult, ChartRepository, ChartRepositoryCredentials,
    HttpEtagAndLastModified, LoadedChartFiles, dependency, values_merge, with_metadata,
};
use tokio_util::sync::CancellationToken;
use tree::{MemoryTree, RelPath};

/// How long a server may take for one answer.
const TIMEOUT: Duration = Duration::from_secs(30);

const TEMPLATE: &str =
    "a: {{ .Values.a }}\nversion: {{ .Chart.Version }}\nfile: {{ .Files.Get \"notes.txt\" }}\n";

const APP: [(&str, &str); 5] = [
    ("Chart.yaml", "# ours\napiVersion: v2\nname: app\nversion: 1.0.0\nappVersion: \"1.10\"\n"),
    ("values.yaml", "a: own\nb: {c: 1}\n"),
    ("more.yaml", "a: more\n"),
    ("notes.txt", "text"),
    ("templates/a.yaml", TEMPLATE),
];

fn repository(
    server: &ChartServer,
    credentials: ChartRepositoryCredentials,
) -> Result<ChartRepository> {
    Ok(ChartRepository::new(
        &server.url(),
        credentials,
        false,
        TIMEOUT,
        &ChartRepositoryClients::default(),
    )?)
}

async fn index(repository: &ChartRepository) -> Result<(ChartIndex, HttpEtagAndLastModified)> {
    let ChartIndexFetchResult::Index { mut file, validators, .. } = repository.index(None).await?
    else {
        bail!("nothing was asked that could be unchanged")
    };
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    Ok((ChartIndex::parse(&text)?, validators))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_of_helm_is_read_and_its_charts_are_what_it_says() -> Result<()> {
    let server = ChartServer::start(Some(("bob", "s3cret")))?;
    for version in ["1.0.0", "1.2.0", "1.10.0", "2.0.0-rc.1"] {
        let yaml = format!("apiVersion: v2\nname: app\nversion: {version}\n");
        server.publish(&[("Chart.yaml", &yaml), ("templates/a.yaml", "a: 1\n")])?;
    }
    let stranger = repository(&server, ChartRepositoryCredentials::default())?;
    let refused = stranger.index(None).await.err().context("a stranger may read")?;
    ensure!(refused.to_string().contains("status 401"), "{refused}");

    let secret = [("username", "bob"), ("password", "s3cret")];
    let secret = secret.map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec())).into();
    let repository =
        repository(&server, ChartRepositoryCredentials::from_secrets(Some(&secret), None)?)?;
    let (index, validators) = index(&repository).await?;
    ensure!(matches!(repository.index(Some(&validators)).await?, ChartIndexFetchResult::Unchanged));
    for (range, expected) in [("", "1.10.0"), ("~1.2", "1.2.0"), (">1-0", "2.0.0-rc.1")] {
        let found = index.choose("app", range)?;
        ensure!(found.version == expected, "{range}: {found:?}");
        let digest = found.digest.context("helm writes digests")?;
        let archive = repository.chart(found.url.context("no URL")?, Some(digest)).await?;
        let files = LoadedChartFiles::in_archive(&archive)?;
        ensure!(files.chart().metadata.version == expected);
        let wrong = "0".repeat(64);
        ensure!(repository.chart(found.url.context("no URL")?, Some(&wrong)).await.is_err());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_in_a_bucket_is_asked_whether_it_changed_and_keeps_its_keys_to_itself()
-> Result<()> {
    let server = ChartServer::start(None)?;
    let s3 = S3Server::start().await?;
    server.publish(&APP)?;
    s3.bucket("charts").await?;
    s3.bucket("other").await?;
    for file in ["index.yaml", "app-1.0.0.tgz"] {
        let url = format!("{}/{file}", server.url());
        let bytes = reqwest::get(url).await?.error_for_status()?.bytes().await?;
        s3.put("charts", &format!("a/b/{file}"), &bytes).await?;
        s3.put("other", file, &bytes).await?;
    }
    let with = |secret: &str, pass| -> Result<ChartRepository> {
        let endpoint = s3.endpoint();
        let secret = [("accesskey", ACCESS), ("secretkey", secret), ("endpoint", &endpoint)];
        let secret = secret.map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec())).into();
        let credentials = ChartRepositoryCredentials::for_bucket(Some(&secret), None, true)?;
        Ok(ChartRepository::new(
            "s3://charts/a/b",
            credentials,
            pass,
            TIMEOUT,
            &ChartRepositoryClients::default(),
        )?)
    };
    let repository = with(SECRET, false)?;
    let (index, validators) = index(&repository).await?;
    ensure!(matches!(repository.index(Some(&validators)).await?, ChartIndexFetchResult::Unchanged));
    let found = index.choose("app", "1.x")?;
    let place = found.url.context("no URL")?;
    let archive = repository.chart(place, found.digest).await?;
    ensure!(LoadedChartFiles::in_archive(&archive)?.chart().metadata.version == "1.0.0");
    ensure!(repository.chart(place, Some(&"0".repeat(64))).await.is_err());
    ensure!(repository.chart("s3://charts/a/b/app-1.0.0.tgz", None).await? == archive);

    for (repository, reference, expected) in [
        (&repository, "s3://other/app-1.0.0.tgz", "spec.passCredentials is not set"),
        (&repository, "gone.tgz", "object 'a/b/gone.tgz' not found in bucket 'charts'"),
        (&with("hunter2", false)?, place, "authentication failed at"),
    ] {
        let error = repository.chart(reference, None).await.err().context("it is fetched")?;
        let error = error.to_string();
        ensure!(error.contains(expected) && !error.contains("hunter2"), "{error}");
    }
    ensure!(with(SECRET, true)?.chart("s3://other/app-1.0.0.tgz", None).await? == archive);
    // A web server that the index names receives a request without credentials.
    let url = format!("{}/app-1.0.0.tgz", server.url());
    ensure!(repository.chart(&url, None).await? == archive);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chart_that_is_packed_renders_as_the_folder_does() -> Result<()> {
    let server = ChartServer::start(None)?;
    let tree = MemoryTree::from_files(APP.map(|(path, text)| (format!("app/{path}"), text)))?;
    let mut files = LoadedChartFiles::in_tree(&tree, &RelPath::parse("app")?)?;
    let folder = tempfile::tempdir()?;
    for (path, text) in APP {
        let path = folder.path().join("app").join(path);
        std::fs::create_dir_all(path.parent().context("in a folder")?)?;
        std::fs::write(path, text)?;
    }
    let packed = folder.path().join("packed.tgz");
    files.write(std::fs::File::create(&packed)?)?;
    let expected = server.render(&folder.path().join("app"))?;
    ensure!(server.render(&packed)? == expected, "{expected}");

    let paths = ["values.yaml".to_owned(), "more.yaml".to_owned()];
    let merged = values_merge::merge(&paths, false, |path| files.read(path).map(<[u8]>::to_vec))?;
    files.set_version(&with_metadata("1.0.0", "0123456789ab.3")?)?;
    files.set_values(merged.text)?;
    files.write(std::fs::File::create(&packed)?)?;
    let expected = expected.replace("a: own", "a: more");
    let expected = expected.replace("version: 1.0.0", "version: 1.0.0+0123456789ab.3");
    let found = server.render(&packed)?;
    ensure!(found == expected, "{found}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dependency_in_git_is_a_folder_at_a_tag() -> Result<()> {
    let git = GitServer::start(GitReadAccess::Open)?;
    let repository = git.repository("org/lib")?;
    let yaml = |version: &str| format!("apiVersion: v2\nname: lib\nversion: {version}\n");
    repository.commit(
        &[("charts/lib/Chart.yaml", &yaml("1.0.0")), ("charts/lib/templates/a.yaml", "lib: 1\n")],
        "first",
    )?;
    repository.tag("v1")?;
    repository.commit(&[("charts/lib/Chart.yaml", &yaml("2.0.0"))], "second")?;
    let url = git.url(&repository);
    let app = |path: &str, reference: &str, version: &str| {
        format!(
            "apiVersion: v2\nname: app\nversion: 1.0.0\ndependencies:\n\
             - {{name: lib, version: '{version}', repository: 'git+{url}@{path}?ref={reference}'}}\n"
        )
    };
    let fetched = |chart: String| async move {
        let tree = MemoryTree::from_files([("app/Chart.yaml", chart)])?;
        let path = RelPath::parse("app")?;
        let mut files = LoadedChartFiles::in_tree(&tree, &path)?;
        let missing = files.missing();
        let wanted = missing.first().context("nothing is missing")?.clone();
        let dependency::ChartDependencyLocation::Git(folder) = dependency::place(&wanted, &path)?
        else {
            bail!("it is in Git")
        };
        let context = git::GitOperationContext {
            runtime: tokio::runtime::Handle::current(),
            cancel: CancellationToken::new(),
            scratch: std::env::temp_dir(),
            known: std::sync::Arc::default(),
        };
        let fetch =
            move || dependency::from_git(&folder, &wanted, Duration::from_secs(30), &context);
        files.add(tokio::task::spawn_blocking(fetch).await??)?;
        Ok(files)
    };
    for (path, reference, version) in
        [("charts/lib", "v1", "1.x"), ("charts", "v1", "1.0.0"), ("charts", "main", "2.x")]
    {
        let files = fetched(app(path, reference, version)).await?;
        ensure!(files.missing().is_empty() && files.chart().charts.len() == 1, "{path}");
    }
    for (path, reference, version, expected) in [
        ("charts", "main", "1.x", "has version '2.0.0'"),
        ("nowhere", "main", "2.x", "no chart found"),
        ("charts", "v9", "2.x", "v9"),
    ] {
        let error = fetched(app(path, reference, version)).await.err().context("it is found")?;
        let text = format!("{error:#}");
        ensure!(text.contains(expected), "{text}");
    }
    Ok(())
}

/// Runs `windlass helmfile` in a folder, with its own home folder. Returns its standard output or its error.
fn helmfile(folder: &Path, arguments: &[&str]) -> Result<std::result::Result<String, String>> {
    let output = Command::new(e2e::operator_process::binary()?)
        .arg("helmfile")
        .args(arguments)
        .current_dir(folder)
        .env("HOME", folder)
        .output()
        .context("windlass cannot be started")?;
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    Ok(match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(text(&output.stderr)),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_helmfile_renders_charts_of_repositories_and_registries() -> Result<()> {
    let server = ChartServer::start(Some(("bob", "s3cret")))?;
    for version in ["1.0.0", "1.2.0", "2.0.0"] {
        let yaml = format!("apiVersion: v2\nname: app\nversion: {version}\n");
        let template = "kind: A\nchart: {{ .Chart.Version }}\nvalue: {{ .Values.v }}\n";
        server.publish(&[("Chart.yaml", &yaml), ("templates/a.yaml", template)])?;
    }
    let folder = tempfile::tempdir()?;
    let archive = folder.path().join("app-1.2.0.tgz");
    let url = format!("{}/app-1.2.0.tgz", server.url());
    let request = reqwest::Client::new().get(url).basic_auth("bob", Some("s3cret"));
    std::fs::write(&archive, request.send().await?.error_for_status()?.bytes().await?)?;
    let registry = RegistryServer::start().await?;
    let place = registry.url("charts");
    server.helm(&[Path::new("push"), &archive, Path::new(&place), Path::new("--plain-http")])?;

    let text = |password: &str| {
        format!(
            "repositories:\n- {{name: web, url: {}, username: bob, password: {password}}}\n\
             - {{name: images, url: {}/charts, oci: true, plainHttp: true}}\n\
             releases:\n- {{name: a, chart: web/app, version: ~1.0, values: [{{v: 1}}]}}\n\
             - {{name: b, chart: images/app, version: '>=1', values: [{{v: 2}}]}}\n\
             - {{name: c, chart: {place}/app, version: 1.2.0, plainHttp: true, values: [{{v: 3}}]}}\n\
             - {{name: d, chart: web/app, installed: false}}\n",
            server.url(),
            registry.host(),
        )
    };
    let write = |text: String| std::fs::write(folder.path().join("helmfile.yaml"), text);
    write(text("s3cret"))?;
    let rendered = helmfile(folder.path(), &["template"])?.map_err(anyhow::Error::msg)?;
    for expected in
        ["chart: 1.0.0\nvalue: 1\n", "chart: 1.2.0\nvalue: 2\n", "chart: 1.2.0\nvalue: 3\n"]
    {
        ensure!(rendered.contains(expected), "{expected}: {rendered}");
    }
    // The index and each archive are fetched once.
    server.forget();
    helmfile(folder.path(), &["template"])?.map_err(anyhow::Error::msg)?;
    ensure!(server.asked().len() == 2, "{:?}", server.asked());

    // The lock file chooses the version, also for charts of a registry.
    helmfile(folder.path(), &["deps"])?.map_err(anyhow::Error::msg)?;
    let lock = std::fs::read_to_string(folder.path().join("helmfile.lock"))?;
    ensure!(lock.contains("version: 1.0.0") && lock.contains("version: 1.2.0"), "{lock}");

    write(text("wr0ng"))?;
    let error = helmfile(folder.path(), &["template"])?.err().context("a stranger may read")?;
    ensure!(error.contains("cannot fetch the chart `web/app`") && error.contains("401"), "{error}");
    write("releases: [{name: a, chart: nowhere/app}]\n".to_owned())?;
    let error = helmfile(folder.path(), &["template"])?.err().context("it is somewhere")?;
    ensure!(error.contains("no repository `nowhere`"), "{error}");
    Ok(())
}
