//! `cargo xtask demo` shows windlass at work on a real control plane, step by step.
//!
//! This module has the order of scenes, and the hints for the user after them.
//! * `demo_scenes` and `incident` have the scenes; `terminal_output` and `terminal_svg` print them.
//! * `commit_page` serves the page of the last commit, and draws it for the README.
//! * The manifests are in `repository/`, `chart/`, `fleet.yaml` and `releases.yaml`.
//! * `e2e::cluster_with_operator` starts the control plane and windlass.
#![expect(clippy::print_stderr, reason = "a command for people")]

mod commit_page;
mod demo_scenes;
mod incident;
mod terminal_output;
mod terminal_svg;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use clap::Parser;
use e2e::git_server::StoryGitRepository;
use tokio::runtime::Runtime;

use e2e::cluster_with_operator::{BuildProfile, ClusterWithOperator};
use e2e::windlass_ui_and_chromium::is_chromium_installed;
use testbed::progress::{self, bold, dim, green, spell};

use terminal_output::{output, title, typed};

/// How the demo ends.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask demo", bin_name = "cargo xtask demo")]
struct DemoOptions {
    /// End after the last scene instead of waiting for Ctrl-C
    #[arg(long)]
    once: bool,
    /// A cluster that is there, on which the demo applies CRDs and objects in its own namespaces; needs `kubectl`
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Write what was shown as an SVG to a file
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
    /// Write the page of the last commit as a PNG to a file; needs Debian's `chromium`
    #[arg(long, value_name = "FILE")]
    journey: Option<PathBuf>,
}

/// The files of the repository's first commit.
const FILES: [(&str, &str); 6] = [
    ("infrastructure/namespace.yaml", include_str!("repository/infrastructure/namespace.yaml")),
    ("infrastructure/settings.yaml", include_str!("repository/infrastructure/settings.yaml")),
    ("database/statefulset.yaml", include_str!("repository/database/statefulset.yaml")),
    ("database/service.yaml", include_str!("repository/database/service.yaml")),
    ("shop/deployment.yaml", include_str!("repository/shop/deployment.yaml")),
    ("shop/service.yaml", include_str!("repository/shop/service.yaml")),
];

/// The installation and the repository that the scenes use.
struct DemoSetup {
    installation: ClusterWithOperator,
    repository: StoryGitRepository,
}

/// Starts the cluster, the Git server and windlass, and plays the scenes. Without `--once` all of them then run until
/// Ctrl-C.
///
/// # Errors
/// The scene that did not reach its result in time, with the state of its objects and the end of windlass's log.
fn run(options: &DemoOptions) -> anyhow::Result<()> {
    ensure!(
        options.journey.is_none() || is_chromium_installed(),
        "--journey needs Chromium: apt-get install chromium fonts-dejavu"
    );
    let begun = Instant::now();
    let runtime = Runtime::new().context("cannot start the runtime")?;
    // The servers are built in the background if they are missing, because the first scenes do not need them.
    let servers = has_go().then(|| runtime.spawn(incident::IncidentDemoServers::start()));
    let installation = match &options.kubeconfig {
        Some(kubeconfig) => {
            ClusterWithOperator::start_on(&runtime, kubeconfig, BuildProfile::Debug, &[])?
        }
        None => ClusterWithOperator::start(&runtime, BuildProfile::Debug, &[])?,
    };
    let repository = installation.git().repository("fleet")?;
    let mut demo = DemoSetup { installation, repository };
    runtime.block_on(async {
        let commit = match demo.play_repository().await {
            Ok(commit) => commit,
            Err(error) => return Err(demo.installation.explain(&error)),
        };
        // The servers are kept until the demo ends.
        let servers = match servers {
            Some(servers) => Some(servers.await.context("a server panicked")??),
            None => None,
        };
        match &servers {
            Some(servers) => {
                if let Err(error) = demo.play_releases(servers).await {
                    return Err(demo.installation.explain(&error));
                }
            }
            None => eprintln!(
                "\nthe acts with a bundle in S3 are left out: their server is built by Go"
            ),
        }
        if let Some(file) = &options.picture {
            // The picture does not show the temporary folder of the repository, which means nothing to its readers.
            let folder = format!("{}/", demo.installation.git().folder().display());
            let said =
                terminal_output::said().iter().map(|line| line.replace(&folder, "")).collect();
            std::fs::write(file, terminal_svg::svg(said))
                .with_context(|| file.display().to_string())?;
        }
        if let Some(file) = &options.journey {
            demo.draw_page(&commit, file).await?;
        }
        eprintln!("\n{} after {}", green("✔ every scene succeeded"), spell(begun.elapsed()));
        if !options.once {
            let pages = demo.serve_pages()?;
            demo.invite(&pages.address(&commit_page::path(&commit)))?;
            tokio::signal::ctrl_c().await.context("cannot wait for Ctrl-C")?;
            eprintln!("\nstopping everything");
        }
        Ok(())
    })
}

fn has_go() -> bool {
    std::process::Command::new("go").arg("version").output().is_ok_and(|it| it.status.success())
}

impl DemoSetup {
    /// Plays the scenes with the repository, and returns the last commit.
    async fn play_repository(&mut self) -> anyhow::Result<String> {
        title("a commit becomes objects, in the order of dependsOn");
        let commit = self.repository.commit(&FILES, "The shop")?;
        self.objects_appear_in_order(&commit).await?;
        self.installation.check()?;
        title("changes made by hand do not last");
        self.edits_are_put_back().await?;
        self.installation.check()?;
        title("a suspended object waits; a resumed one catches up");
        let commit = self.a_suspended_object_waits(&commit).await?;
        self.installation.check()?;
        Ok(commit)
    }

    async fn play_releases(
        &mut self,
        servers: &incident::IncidentDemoServers,
    ) -> anyhow::Result<()> {
        title("a chart becomes a release, a bundle in S3 becomes objects");
        self.a_chart_and_a_bundle(servers).await?;
        self.installation.check()?;
        title("an incident: the release is suspended, everything else goes on");
        self.an_incident(servers).await?;
        self.installation.check()
    }

    /// Prints how the user can continue alone. `page` is the address of the page of the last commit.
    fn invite(&self, page: &str) -> anyhow::Result<()> {
        let installation = &self.installation;
        let url = installation.git().url(&self.repository);
        eprintln!("\n{}", bold("everything keeps running; look around in another terminal"));
        output(&format!(
            "export KUBECONFIG={}\nexport PATH={}:\"$PATH\"",
            installation.kubeconfig().display(),
            installation.programs().display(),
        ));
        output(
            "kubectl get gitrepositories,kustomizations -A\nkubectl -n shop get all\nkubectl get events -A",
        );
        eprintln!(
            "{}",
            dim("change something: clone, commit, push, and say that there is something new")
        );
        output(&format!(
            "git clone {url} && cd {}\ngit commit -a -m \"…\" && git push\n{}",
            self.repository.name(),
            typed(&demo_scenes::reconcile_now("\"$(date +%s)\"")),
        ));
        eprintln!("{}", dim("the log of windlass"));
        output(&format!("tail -f {}", installation.log().display()));
        eprintln!(
            "{}",
            dim("the pages, from what became of the last commit; the address works once")
        );
        output(page);
        eprintln!("{}", dim("the same from another terminal, after the lines with `export`"));
        output(&format!("{} ui --open", commit_page::ui_program()?.display()));
        eprintln!("{}", bold("Ctrl-C ends it; nothing is left behind"));
        Ok(())
    }
}

fn main() -> ExitCode {
    progress::exit_code(run(&DemoOptions::parse()).map(|()| ExitCode::SUCCESS))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn every_file_of_the_repository_is_in_the_first_commit() {
        let folder = testbed::root().join("tools/demo/src/repository");
        let mut found = Vec::new();
        for part in std::fs::read_dir(&folder).unwrap() {
            let part = part.unwrap().path();
            for file in std::fs::read_dir(&part).unwrap() {
                let path = file.unwrap().path();
                found.push(path.strip_prefix(&folder).unwrap().to_string_lossy().into_owned());
            }
        }
        let mut known: Vec<String> = FILES.iter().map(|(path, _)| (*path).to_owned()).collect();
        found.sort();
        known.sort();
        assert_eq!(found, known);
    }

    /// clap reports a faulty definition of a command only when that command is used. This test uses every command.
    #[test]
    fn every_command_is_put_together_right() {
        DemoOptions::command().debug_assert();
    }
}
