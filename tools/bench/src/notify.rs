//! Measures many events to three services, one of which is dead.
//!
//! It measures speed, costs and lost events. windlass and Flux's notification-controller run one after the other on
//! one control plane. This module has the rounds, the table and the verdict. `service` has the services,
//! `event_posts` posts events, and `objects` has the objects. `super::test_bed` reads the costs, and
//! `testbed::upstream_programs` has the version of Flux.
//!
//! Both programs get the same events, as other controllers post them. When the live services have all events, the
//! dead one begins to work. An event that it gets after that was not lost.

mod event_posts;
mod objects;
mod service;

use std::net::TcpListener;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use kube::api::{Patch, PatchParams};
use serde_json::json;
use testbed::upstream_programs::UpstreamProgram;
use tokio::runtime::Runtime;

use self::event_posts::EventPostingClient;
use self::service::CountingNotificationService;
use super::raw_client_comparison::{
    self, BenchComparison, BenchLimits, FigureOutputFormat, PhaseCost,
};
use super::test_bed::{BenchTestbed, MeasuredProcess};
use super::time_samples;
use e2e::cluster_with_operator::{BuildProfile, OperatorsToStart, WatchSelection, make};
use testbed::progress::{bold, green, red, step};

/// The promised limit for the memory of windlass, in MiB.
const MAX_MEMORY_MIB: f64 = 80.0;

/// How many times the memory of windlass the controller of Flux takes at least.
const MIN_MEMORY_RATIO: f64 = 10.0;

/// The titles of the columns.
const COLUMNS: [&str; 2] = ["Flux", "windlass"];

/// How long it may take after the start until a first event is delivered.
const START_LIMIT: Duration = Duration::from_secs(60);

/// After this time without a delivery, the missing events count as lost. It is longer than the timeout of the
/// Providers.
const DELIVERY_IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// How long the dead service stays dead after the live ones have all events. It is longer than its Provider's
/// timeout, within which Flux retries.
const DEAD_SERVICE_DOWN_PERIOD: Duration = Duration::from_secs(20);

/// What the service does that is dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DeadServiceBehavior {
    /// It refuses connections
    Refuses,
    /// It takes connections and answers nothing
    Silent,
}

/// How many events the notification benchmark measures, and how the dead service behaves.
#[derive(Debug, Args)]
pub(crate) struct NotifyBenchOptions {
    /// How many events; more than windlass keeps for one service are not measured
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u16).range(1..=9_000))]
    events: u16,
    /// What the dead service does until it works
    #[arg(long, value_enum, default_value_t = DeadServiceBehavior::Refuses)]
    dead: DeadServiceBehavior,
}

/// The program that delivers the events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DeliveringProgram {
    Flux,
    Windlass,
}

/// How one program delivered the events.
struct DeliveryFigures {
    /// The costs of the deliveries to the live services.
    phase: PhaseCost,
    /// The seconds until the program had accepted all events.
    accepted: f64,
    /// Events that one of the two live services never got.
    lost: usize,
    /// Events that one of the two live services got more than once.
    repeated: usize,
    /// Events that the dead service never got, not even after its revival.
    lost_by_dead: usize,
    /// Events that the dead service got more than once.
    repeated_by_dead: usize,
    /// The seconds from the revival of the dead service to its last event.
    caught_up: Option<f64>,
    /// The events that waited for the dead service, by windlass's metrics.
    waiting: Option<usize>,
}

/// Measures and prints the tables.
///
/// # Errors
/// When a program delivered nothing. Also when windlass lost an event, was slower than Flux, or took more memory than
/// promised.
pub(super) fn run(options: &NotifyBenchOptions) -> anyhow::Result<()> {
    let runtime = Runtime::new().context("cannot start the runtime")?;
    let flux = UpstreamProgram::NotificationController;
    let flux = step(flux.version(), || flux.ensure())?;
    // Only windlass is optimised. The work of this program itself is not measured.
    step("windlass itself", || make(BuildProfile::Release))?;
    let mut bed = BenchTestbed::with(&runtime, OperatorsToStart::Programs(&[], &[]))?;
    let load = time_samples::load();
    let mut sides = Vec::new();
    for side in [DeliveringProgram::Windlass, DeliveringProgram::Flux] {
        let events_at = start(&mut bed, side, &flux.display().to_string())?;
        let what = format!("{} events by {side:?}", options.events);
        let measured = step(&what, || runtime.block_on(measure(&bed, options, side, &events_at)));
        sides.push(measured.map_err(|error| bed.explain(error))?);
    }
    let [windlass, flux] = sides.try_into().ok().context("a side was not measured")?;
    let comparison = compared(options, &flux, &windlass);
    let rows = rows(options, &flux, &windlass);
    raw_client_comparison::print(
        FigureOutputFormat::Table,
        std::slice::from_ref(&comparison),
        &load,
    );
    print(&rows);
    if !comparison.passes() || rows.iter().any(|row| row.passes == Some(false)) {
        bail!("a promise was not kept");
    }
    Ok(())
}

/// Starts a program, and returns the address to which events are posted.
fn start(bed: &mut BenchTestbed, side: DeliveringProgram, flux: &str) -> anyhow::Result<String> {
    match side {
        DeliveringProgram::Windlass => {
            bed.serve("windlass", OperatorsToStart::Windlass(BuildProfile::Release, &[]))?;
            bed.installation()?.address("artifacts and events")
        }
        DeliveringProgram::Flux => {
            // Flux's controller does not report its ports, so they are chosen here.
            let free = || anyhow::Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?);
            let events = free()?;
            let webhooks = free()?;
            let line = format!(
                "env RUNTIME_NAMESPACE=flux-system {flux} --events-addr={events} --receiverAddr={webhooks} \
                 --metrics-addr=127.0.0.1:0 --health-addr=127.0.0.1:0 --enable-leader-election=false"
            );
            bed.serve("flux", OperatorsToStart::Programs(&[line], &[]))?;
            Ok(events.to_string())
        }
    }
}

async fn measure(
    bed: &BenchTestbed,
    options: &NotifyBenchOptions,
    side: DeliveringProgram,
    events_at: &str,
) -> anyhow::Result<DeliveryFigures> {
    let namespace = match side {
        DeliveringProgram::Windlass => "notify-windlass",
        DeliveringProgram::Flux => "notify-flux",
    };
    let count = usize::from(options.events);
    let live =
        [CountingNotificationService::start().await?, CountingNotificationService::start().await?];
    let mut dead = CountingNotificationService::dead(options.dead)?;
    bed.create_namespaces(&[namespace.to_owned()]).await?;
    let services = [("live-1", &live[0]), ("live-2", &live[1]), ("dead", &dead)];
    let services = services.map(|(name, service)| (name, service.url()));
    bed.apply(&objects::all(namespace, &services)).await?;
    let posting = EventPostingClient::new(events_at, namespace);
    probe(&posting, &live).await?;
    live.iter().for_each(CountingNotificationService::forget);

    let before = bed.read(MeasuredProcess::Operator)?;
    let begun = Instant::now();
    posting.post_all(count).await.context("posting events")?;
    let accepted = begun.elapsed().as_secs_f64();
    let is_there = || live.iter().all(|service| service.count() == count);
    let progress = || live.iter().map(CountingNotificationService::received).sum::<usize>();
    quiet_or(is_there, progress).await;
    let times: Vec<Duration> = live.iter().flat_map(|service| service.times(begun)).collect();
    let phase = bed.spent(&before, times)?;
    tokio::time::sleep(DEAD_SERVICE_DOWN_PERIOD).await;
    let waiting = match side {
        DeliveringProgram::Windlass => Some(waiting(&bed.installation()?.metrics()?)?),
        DeliveringProgram::Flux => None,
    };
    let lost = live.iter().map(|service| count - service.count()).sum();
    let repeated = live.iter().map(CountingNotificationService::repeated).sum();

    let revived = Instant::now();
    dead.revive()?;
    // windlass retries after a pause, which has grown to minutes. A change of the Provider makes it retry at once.
    touch(bed, namespace).await?;
    quiet_or(|| dead.count() == count, || dead.received()).await;
    let caught_up = dead.times(revived).into_iter().max();
    Ok(DeliveryFigures {
        phase,
        accepted,
        lost,
        repeated,
        lost_by_dead: count - dead.count(),
        repeated_by_dead: dead.repeated(),
        caught_up: caught_up.map(|time| time.as_secs_f64()),
        // The probes also wait for the dead service, so they are not counted.
        waiting: waiting.map(|waiting| waiting.saturating_sub(dead.probes())),
    })
}

/// Posts probes until each live service got one. The programs see Alerts and Providers only a moment after they are
/// applied.
async fn probe(
    posting: &EventPostingClient,
    live: &[CountingNotificationService],
) -> anyhow::Result<()> {
    let deadline = Instant::now() + START_LIMIT;
    for number in 0.. {
        if live.iter().all(|service| service.received() > 0) {
            return Ok(());
        }
        if Instant::now() > deadline {
            break;
        }
        // The program may reject connections while it starts.
        drop(posting.post_probe(number).await);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    bail!("no event reached the live services within {} s", START_LIMIT.as_secs())
}

/// Waits until `is_done`, or until there was no progress for a while.
async fn quiet_or(is_done: impl Fn() -> bool, progress: impl Fn() -> usize) {
    let mut last = progress();
    let mut since = Instant::now();
    while !is_done() && since.elapsed() < DELIVERY_IDLE_TIMEOUT {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let now = progress();
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
}

/// Changes the Provider of the dead service.
async fn touch(bed: &BenchTestbed, namespace: &str) -> anyhow::Result<()> {
    let providers = WatchSelection::of(objects::VERSION, "Provider").within(namespace);
    let patch = Patch::Merge(json!({"spec": {"timeout": "5s"}}));
    providers.api(bed.client()).patch("dead", &PatchParams::default(), &patch).await?;
    Ok(())
}

/// How many notifications wait, by windlass's metrics.
fn waiting(metrics: &str) -> anyhow::Result<usize> {
    let value =
        metrics.lines().find_map(|line| line.strip_prefix("windlass_notifications_waiting "));
    let value = value.context("windlass does not say how many notifications wait")?;
    value.trim().parse().context("the metric is no number")
}

fn compared(
    options: &NotifyBenchOptions,
    flux: &DeliveryFigures,
    windlass: &DeliveryFigures,
) -> BenchComparison {
    let count = options.events;
    let title =
        format!("{count} events to 3 services of which one is dead, to the last live delivery");
    let of = |delivered: &DeliveryFigures| {
        let mut all =
            BenchComparison::new(title.clone(), usize::from(count), BenchLimits::default());
        all.add(MeasuredProcess::Operator, delivered.phase.clone());
        all
    };
    let limits = BenchLimits { peak: Some(MAX_MEMORY_MIB), ..BenchLimits::default() };
    of(flux).against(of(windlass), COLUMNS, limits)
}

/// A row of the second table.
struct DeliveryRow {
    what: &'static str,
    flux: Option<f64>,
    windlass: Option<f64>,
    /// Whether windlass kept the promised limit, if there is one.
    passes: Option<bool>,
}

fn rows(
    options: &NotifyBenchOptions,
    flux: &DeliveryFigures,
    windlass: &DeliveryFigures,
) -> Vec<DeliveryRow> {
    let count = usize::from(options.events);
    let both = |what, of: &dyn Fn(&DeliveryFigures) -> Option<f64>| DeliveryRow {
        what,
        flux: of(flux),
        windlass: of(windlass),
        passes: None,
    };
    let number =
        |what, of: &dyn Fn(&DeliveryFigures) -> usize| both(what, &|it| Some(of(it) as f64));
    let judged = |row: DeliveryRow, passes| DeliveryRow { passes: Some(passes), ..row };
    vec![
        judged(
            both("events a second, to the last live delivery", &|it| {
                Some(count as f64 / it.phase.total)
            }),
            windlass.phase.total <= flux.phase.total,
        ),
        judged(
            both("memory at the peak, MiB", &|it| Some(it.phase.peak)),
            windlass.phase.peak * MIN_MEMORY_RATIO <= flux.phase.peak,
        ),
        both("all events accepted after, s", &|it| Some(it.accepted)),
        judged(number("lost by live services", &|it| it.lost), windlass.lost == 0),
        number("delivered again to live services", &|it| it.repeated),
        judged(
            both("waiting for the dead service", &|it| it.waiting.map(|waiting| waiting as f64)),
            windlass.waiting == Some(count),
        ),
        judged(
            number("lost by the dead service once it works", &|it| it.lost_by_dead),
            windlass.lost_by_dead == 0,
        ),
        number("delivered again to it", &|it| it.repeated_by_dead),
        both("the last of them after, s", &|it| it.caught_up),
    ]
}

#[expect(clippy::print_stdout, reason = "the table is what the command is for")]
fn print(rows: &[DeliveryRow]) {
    let [first, second] = COLUMNS;
    println!("\n{}", bold(&format!("{:<44} {first:>10} {second:>10}", "what became of them")));
    for DeliveryRow { what, flux, windlass, passes } in rows {
        let figure = |it: Option<f64>| it.map_or("–".to_owned(), |it| format!("{it:.1}"));
        let verdict = match passes {
            Some(true) => green("PASS"),
            Some(false) => red("FAIL"),
            None => String::new(),
        };
        println!("{what:<44} {:>10} {:>10}  {verdict}", figure(*flux), figure(*windlass));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivered(lost: usize, waiting: usize, lost_by_dead: usize) -> DeliveryFigures {
        DeliveryFigures {
            phase: PhaseCost { total: 2.0, peak: 70.0, ..PhaseCost::default() },
            accepted: 1.0,
            lost,
            repeated: 0,
            lost_by_dead,
            repeated_by_dead: 0,
            caught_up: None,
            waiting: Some(waiting),
        }
    }

    /// Flux with ten times the memory, which loses events.
    fn flux() -> DeliveryFigures {
        let phase = PhaseCost { total: 2.0, peak: 700.0, ..PhaseCost::default() };
        DeliveryFigures { phase, ..delivered(5, 0, 10) }
    }

    #[test]
    fn windlass_is_not_slower_than_flux_and_takes_a_tenth_of_its_memory() {
        let options = NotifyBenchOptions { events: 10, dead: DeadServiceBehavior::Refuses };
        let judge = |total, peak| {
            let phase = PhaseCost { total, peak, ..PhaseCost::default() };
            let windlass = DeliveryFigures { phase, ..delivered(0, 10, 0) };
            let rows = rows(&options, &flux(), &windlass);
            rows.iter().all(|row| row.passes != Some(false))
        };
        assert!(judge(2.0, 70.0));
        assert!(!judge(2.1, 70.0), "it is slower");
        assert!(!judge(2.0, 70.1), "it takes more memory");
    }

    #[test]
    fn windlass_may_lose_nothing_and_flux_may() {
        let options = NotifyBenchOptions { events: 10, dead: DeadServiceBehavior::Refuses };
        let judge = |windlass: DeliveryFigures| {
            let rows = rows(&options, &flux(), &windlass);
            rows.iter().all(|row| row.passes != Some(false))
        };
        assert!(judge(delivered(0, 10, 0)));
        assert!(!judge(delivered(1, 10, 0)), "a live service lost one");
        assert!(!judge(delivered(0, 9, 0)), "one does not wait");
        assert!(!judge(delivered(0, 10, 1)), "one never came");
    }

    #[test]
    fn more_memory_than_promised_fails_beside_flux_too() {
        let options = NotifyBenchOptions { events: 10, dead: DeadServiceBehavior::Refuses };
        let judge = |peak| {
            let windlass = delivered(0, 10, 0);
            let phase = PhaseCost { peak, ..windlass.phase.clone() };
            compared(&options, &delivered(0, 0, 0), &DeliveryFigures { phase, ..windlass }).passes()
        };
        assert!(judge(MAX_MEMORY_MIB));
        assert!(!judge(MAX_MEMORY_MIB + 0.1));
    }

    #[test]
    fn what_waits_is_read_from_the_metrics() {
        let text = "# HELP windlass_notifications_waiting x\nwindlass_notifications_waiting 7\n";
        assert_eq!(waiting(text).unwrap(), 7);
        assert!(waiting("").is_err());
    }
}
