//! `windlass logs`: prints log lines of windlass about objects, or log lines of an object's Pods.
//!
//! Here: the command. Below: the log lines of windlass (`logs/windlass_log_lines.rs`). Elsewhere: finding containers
//! (`windlass_answers::logged_containers`), merging the lines of several containers (`windlass_answers::container_logs`),
//! reading logs (`windlass_cluster::container_logs`).

mod windlass_log_lines;

use std::time::Duration;

use anyhow::{bail, ensure};
use clap::{Args as ClapArgs, ValueEnum};
use futures::stream::{StreamExt as _, select_all};
use objects::clean_line;

use self::windlass_log_lines::{LogEntry, LogLevel, LogLineSelection};
use super::command_scope::{ClusterScope, CommandScope, say_left_out};
use super::complete;
use super::kind_argument;
use windlass_answers::container_logs::{ContainerLogStream, as_json, in_order, unreadable};
use windlass_answers::logged_containers::{self, LoggedContainers, LoggingContainer};
use windlass_cli_installation::cluster_operators::{self, LeaseHolder};
use windlass_cli_runtime::connection::{ProgressGlyph, print, say};
use windlass_cli_runtime::exit_code::ExitCode;
use windlass_cli_runtime::table::{TerminalScreen, clean};
use windlass_cluster::ClusterConnection;
use windlass_cluster::container_logs::{ContainerLogLine, LogOptions};
use windlass_serve::settings::parse_duration;

/// The flags of `windlass logs`.
#[derive(Debug, Clone, ClapArgs)]
pub(super) struct LogsArgs {
    /// Only lines about objects of a kind, or about one object
    #[arg(num_args = 0..=2, value_name = "KIND[/NAME]", add = complete::objects())]
    what: Vec<String>,
    #[command(flatten)]
    place: ClusterScope,
    /// Lines about objects in all namespaces; the default where neither an object nor -n is given
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    /// Only lines about objects of this kind, as `flux logs` has it
    #[arg(long, value_name = "KIND", conflicts_with = "what")]
    kind: Option<String>,
    /// Only lines about objects of this name, as `flux logs` has it
    #[arg(long, value_name = "NAME", conflicts_with = "what")]
    name: Option<String>,
    /// Only lines of this level and more severe ones
    #[arg(long, value_enum, value_name = "LEVEL")]
    level: Option<LogLevel>,
    /// Instead: lines of the Pods of this object, or of what it applied
    #[arg(
        long,
        value_name = "KIND/NAME",
        add = complete::objects(),
        conflicts_with_all = ["what", "kind", "name", "level", "all_namespaces"]
    )]
    workload: Option<String>,
    /// Also print new lines, until it is interrupted or the Pods end
    #[arg(short, long)]
    follow: bool,
    /// Only lines that are no older than this, such as 10m
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    since: Option<Duration>,
    /// Only so many of the last lines of each container, of which the others are then selected
    #[arg(long, value_name = "LINES")]
    tail: Option<u32>,
    /// Namespace of windlass
    #[arg(
        long,
        env = "FLUX_SYSTEM_NAMESPACE",
        default_value = "flux-system",
        value_name = "NAMESPACE"
    )]
    flux_namespace: String,
    /// Format
    #[arg(short, long, value_enum, default_value_t = LogFormat::Text, value_name = "FORMAT")]
    output: LogFormat,
}

/// The format in which `windlass logs` prints lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    /// For people
    Text,
    /// A JSON object a line
    Json,
}

pub(super) const EXAMPLES: &str = "Examples:
  windlass logs                                 of windlass, about all objects
  windlass logs ks/app -n apps --since 1h       about a Kustomization
  windlass logs hr -A --level error             failures of HelmReleases
  windlass logs -n apps -f                      about the objects of a namespace, as they come
  windlass logs --workload ks/app -n apps       of the Pods of what a Kustomization applied
  windlass logs --workload deployment/web -f --tail 20

Lines of several containers are in the order of their times; with -f, they are printed as they come. Each begins with its
Pod and container where it may be one of several. With -f, Pods that start later are not followed.

Exit status: 0; 2 if some lines could not be read; 3 if the cluster cannot be reached.";

/// Prints log lines.
///
/// # Errors
/// The object or the Pods cannot be read.
pub(super) fn run(args: &LogsArgs) -> anyhow::Result<ExitCode> {
    let work = async |site: CommandScope| match &args.workload {
        Some(word) => {
            let target = kind_argument::one(&site.cluster, std::slice::from_ref(word)).await?;
            let object = kind_argument::read(&site, &target).await?;
            let subject = clean(&object.id().subject());
            let found = logged_containers::of_object(&site, object).await?;
            if found.containers.is_empty() && found.left_out.is_empty() {
                say(
                    ProgressGlyph::Action,
                    &format!("no container of {subject} has printed anything"),
                );
            }
            let show = |container: &LoggingContainer, line: &ContainerLogLine| {
                shown(container, line, args.output)
            };
            tell(&site, args, found, show).await
        }
        None => {
            let selection = selection(&site, args).await?;
            let namespace = &args.flux_namespace;
            let found = logged_containers::of_windlass(&site, namespace).await?;
            let is_absent = found.containers.is_empty() && found.silent.is_empty();
            if is_absent && found.left_out.is_empty() {
                bail!(without_pods(&site.cluster, namespace).await);
            }
            let are_several = found.containers.len() > 1;
            let on = TerminalScreen::of_stdout();
            let show = |container: &LoggingContainer, line: &ContainerLogLine| {
                let entry = selection.entry(&line.text)?;
                let prefix = are_several.then(|| format!("{} ", clean_line(&container.pod)));
                Some(format_line(&entry, &prefix.unwrap_or_default(), args.output, on))
            };
            tell(&site, args, found, show).await
        }
    };
    match args.follow {
        true => args.place.follow(work),
        false => args.place.run(work),
    }
}

/// The message if windlass has no Pods. If a Lease shows a process outside of the cluster, the message says where its log is.
async fn without_pods(cluster: &ClusterConnection, namespace: &str) -> String {
    let text = format!("no Pod of windlass is in namespace {namespace}");
    let held = cluster_operators::outside(cluster, namespace, jiff::Timestamp::now()).await;
    match held.unwrap_or_default().as_slice() {
        [] => format!("{text}: name its namespace with --flux-namespace, or run `windlass check`"),
        held => {
            let holds = |it: &LeaseHolder| {
                format!("'{}' (it holds Lease {}, {})", it.identity, it.lease, it.term())
            };
            let holders: Vec<String> = held.iter().map(holds).collect();
            format!(
                "{text}: windlass runs outside of the cluster as {}, and its log is where it was started",
                holders.join(", ")
            )
        }
    }
}

/// The selection of windlass's log lines.
async fn selection(site: &CommandScope, args: &LogsArgs) -> anyhow::Result<LogLineSelection> {
    let words: Vec<String> = match (&args.kind, &args.name) {
        (None, _) => args.what.clone(),
        (Some(kind), None) => vec![kind.clone()],
        (Some(kind), Some(name)) => vec![kind.clone(), name.clone()],
    };
    let targets = match words.is_empty() {
        true => Vec::new(),
        false => kind_argument::targets(&site.cluster, &words).await?,
    };
    ensure!(
        targets.len() < 2 || targets.iter().all(|it| it.name.is_none()),
        "name one object, such as kustomization/app"
    );
    let one = targets.iter().find(|it| it.name.is_some());
    let namespace = match one {
        Some(_) if args.all_namespaces => None,
        Some(target) => Some(site.namespace_of(target).to_owned()),
        None => args.place.has_namespace().then(|| site.namespace.clone()),
    };
    Ok(LogLineSelection {
        kinds: targets.iter().map(|it| it.resource.gvk.kind.clone()).collect(),
        namespace,
        name: one.and_then(|it| it.name.clone()).or_else(|| args.name.clone()),
        level: args.level,
    })
}

/// Formats a log line of windlass.
fn format_line(entry: &LogEntry, prefix: &str, format: LogFormat, on: TerminalScreen) -> String {
    match format {
        LogFormat::Text => format!("{prefix}{}\n", entry.text(on)),
        LogFormat::Json => format!("{}\n", entry.json()),
    }
}

/// Formats a log line of a container that does not run windlass. The result is never `None`.
fn shown(
    container: &LoggingContainer,
    line: &ContainerLogLine,
    format: LogFormat,
) -> Option<String> {
    let LoggingContainer { pod, name, .. } = container;
    Some(match format {
        LogFormat::Text => {
            format!("{} {}: {}\n", clean(pod), clean(name), clean_line(&line.text))
        }
        LogFormat::Json => {
            format!("{}\n", as_json(container, line))
        }
    })
}

/// Prints the log lines of containers, and messages about logs that were left out. `show` formats a line, or returns `None` if
/// the line is not to be printed.
async fn tell(
    site: &CommandScope,
    args: &LogsArgs,
    found: LoggedContainers,
    show: impl Fn(&LoggingContainer, &ContainerLogLine) -> Option<String>,
) -> anyhow::Result<ExitCode> {
    let LoggedContainers { containers, silent, left_out, .. } = found;
    for text in &silent {
        say(ProgressGlyph::Warning, &clean(text));
    }
    let wanted = LogOptions { follows: args.follow, since: args.since, tail: args.tail };
    let sources: Vec<ContainerLogStream<'_>> = containers
        .iter()
        .map(|container| ContainerLogStream::open(&site.cluster, container, wanted))
        .collect();
    let printed = std::cell::Cell::new(false);
    let each = |container: &LoggingContainer, line: &ContainerLogLine| match show(container, line) {
        Some(text) => {
            printed.set(true);
            print(&text)
        }
        None => Ok(()),
    };
    let failed = match args.follow {
        true => as_they_come(sources, each).await?,
        false => in_order(sources, each).await?,
    };
    let left_out: Vec<String> = left_out.into_iter().chain(failed).collect();
    if !printed.get() && !containers.is_empty() && left_out.is_empty() {
        say(ProgressGlyph::Action, "no such lines, in what the running Pods have printed so far");
    }
    say_left_out(&left_out);
    Ok(if left_out.is_empty() { ExitCode::Success } else { ExitCode::Failed })
}

/// Passes lines on in the order in which they arrive. Returns messages about logs that could not be read.
async fn as_they_come(
    sources: Vec<ContainerLogStream<'_>>,
    mut each: impl FnMut(&LoggingContainer, &ContainerLogLine) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<String>> {
    let mut failed = Vec::new();
    let streams = sources.into_iter().map(|source| {
        let container = source.container;
        source.lines.map(move |line| (container, line))
    });
    let mut lines = select_all(streams);
    while let Some((container, line)) = lines.next().await {
        match line {
            Ok(line) => each(container, &line)?,
            Err(error) => failed.push(unreadable(container, &error)),
        }
    }
    Ok(failed)
}

#[cfg(test)]
mod tests {
    use futures::stream;

    use super::*;
    use fake_cluster::operator_objects;
    use fake_cluster::with_objects;
    use windlass_cluster::ClusterError;

    fn container(pod: &str) -> LoggingContainer {
        LoggingContainer { namespace: "apps".into(), pod: pod.into(), name: "app".into() }
    }

    fn line(second: Option<u32>, text: &str) -> Result<ContainerLogLine, ClusterError> {
        let at = second.map(|it| format!("2026-01-01T00:00:{it:02}Z").parse().unwrap());
        Ok(ContainerLogLine { at, text: text.to_owned() })
    }

    fn source(
        container: &LoggingContainer,
        lines: Vec<Result<ContainerLogLine, ClusterError>>,
    ) -> ContainerLogStream<'_> {
        ContainerLogStream { container, lines: stream::iter(lines).boxed() }
    }

    #[tokio::test]
    async fn lines_of_several_containers_are_in_the_order_of_their_times() {
        let one = container("one");
        let two = container("two");
        let broken = container("broken");
        let lost = || Err(ClusterError::NoAnswer("connection lost".to_owned()));
        let sources = || {
            vec![
                source(
                    &one,
                    vec![line(Some(1), "a"), line(None, "a, continued"), line(Some(5), "d")],
                ),
                source(&two, vec![line(Some(3), "c"), line(Some(4), "c2")]),
                source(&broken, vec![line(Some(2), "b"), lost()]),
            ]
        };
        let mut texts = Vec::new();
        let failed = in_order(sources(), |_, line| {
            texts.push(line.text.clone());
            Ok(())
        });
        let failed = failed.await.unwrap();
        assert_eq!(texts, ["a", "a, continued", "b", "c", "c2", "d"]);
        assert!(failed.len() == 1 && failed[0].contains("Pod/apps/broken"), "{failed:?}");
        let mut count = 0;
        let failed = as_they_come(sources(), |_, _| {
            count += 1;
            Ok(())
        });
        assert_eq!((failed.await.unwrap().len(), count), (1, 6));
    }

    #[tokio::test]
    async fn the_log_of_a_process_outside_of_the_cluster_is_where_it_runs() {
        let lease =
            |renewed: &str| operator_objects::lease("windlass-leader-election", "laptop", renewed);
        let text_of = async |renewed: &str| {
            let (cluster, _) = with_objects(vec![lease(renewed)]).await;
            without_pods(&cluster, "flux-system").await
        };
        let text = text_of(&jiff::Timestamp::now().to_string()).await;
        let begin = "no Pod of windlass is in namespace flux-system: windlass runs outside of the cluster as 'laptop' (it holds \
                     Lease flux-system/windlass-leader-election, renewed at ";
        let end = "), and its log is where it was started";
        assert!(text.starts_with(begin) && text.ends_with(end), "{text}");
        let text = text_of("2026-01-01T00:00:00Z").await;
        assert!(text.ends_with("or run `windlass check`"), "{text}");
    }

    #[test]
    fn what_containers_print_steers_no_terminal() {
        let line = ContainerLogLine { at: None, text: "  at \u{1b}[2Jmain\u{202e}\r".to_owned() };
        let text = shown(&container("web-1"), &line, LogFormat::Text).unwrap();
        assert_eq!(text, "web-1 app:   at \\u{1b}[2Jmain\\u{202e} \n");
        let json = shown(&container("web-1"), &line, LogFormat::Json).unwrap();
        assert!(json.ends_with("}\n") && !json.trim_end().chars().any(char::is_control), "{json}");
    }
}
