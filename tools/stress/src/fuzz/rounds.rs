//! The rounds of a fuzz target. A reader process reads one input after the other, and another process observes it.
//!
//! The reader notes each input before it reads it. So the process that started it knows which input killed the reader
//! or did not end. One reader reads many inputs, because starting a process for each would take most of the time.
//!
//! This module has both processes, and keeps the inputs that broke the rule. `super` has the code that reads, and
//! `super::mutate` changes bytes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use e2e::random_sequence::RandomSequence;
use nix::sys::resource::{Resource, setrlimit};

use super::{FuzzTarget, TARGETS, mutate};
use conformance::corpus;
use e2e::rusage::MYSELF;
use testbed::progress::{green, red};
use testbed::root;

/// How much processor time one input may take. The second limit is for an input that waits and uses no processor.
const CPU_TIME_LIMIT: Duration = Duration::from_secs(20);
const WALL_TIME_LIMIT: Duration = Duration::from_secs(300);

/// The memory limit of the reader in MiB. Memory is only sampled, so the reader also has a hard limit on its address
/// space, in bytes.
const MEMORY_LIMIT_MIB: u64 = 1024;
const ADDRESS_SPACE_LIMIT: u64 = 4 << 30;

/// After how many faults the run ends.
const MAX_FAULTS: usize = 10;

/// How often the reader is observed.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The arguments of the reader.
#[derive(Debug, Args)]
pub(crate) struct FuzzReaderArguments {
    target: String,
    /// Where it says with which input it begins, and what that is
    folder: PathBuf,
    /// The first input: those of the corpus come first
    begin: u64,
    seed: u64,
    /// For how long
    seconds: u64,
}

/// Reads and changes inputs of a target for a time. The kept inputs are all read, even if that takes longer.
///
/// # Errors
/// When an input broke the rule, or the target could not run.
pub(super) fn run(target: &FuzzTarget, time: Duration, seed: Option<u64>) -> anyhow::Result<()> {
    let seed = seed.unwrap_or_else(RandomSequence::seed);
    let deadline = Instant::now() + time;
    let kept = inputs(target)?.len() as u64;
    eprintln!("{}: {kept} inputs to begin with, seeds from {seed}", target.name);
    let scratch = tempfile::tempdir().context("cannot make a folder")?;
    let mut begin = 0;
    let mut found = 0;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() && begin >= kept {
            break;
        }
        let seconds = left.as_secs().max(1);
        let (at, fault) = watch(target, scratch.path(), begin, seed, seconds)?;
        begin = at + 1;
        let Some(fault) = fault else { continue };
        found += 1;
        let input = fs::read(scratch.path().join("input")).context("the input is lost")?;
        let name = match at.checked_sub(kept) {
            Some(number) => format!("seed {}", seed + number),
            None => format!("input {at} of the corpus"),
        };
        let place = keep(target, &input)?;
        eprintln!("{} {} {name}: {fault}", red("✘"), target.name);
        eprintln!(
            "    kept in {}; after the fix, add it to e2e/fuzz/{}",
            place.display(),
            target.name
        );
        ensure!(found < MAX_FAULTS, "{found} faults among {begin} inputs");
    }
    if found > 0 {
        bail!("{found} faults among {begin} inputs");
    }
    let name = target.name;
    eprintln!("{}", green(&format!("✔ no faults in {begin} inputs of {name}")));
    Ok(())
}

/// Starts a reader and waits for its end. It returns the number of the last input, and the fault if there was one.
fn watch(
    target: &FuzzTarget,
    folder: &Path,
    begin: u64,
    seed: u64,
    seconds: u64,
) -> anyhow::Result<(u64, Option<String>)> {
    let said = folder.join("stderr");
    let file = fs::File::create(&said).context("cannot write")?;
    fs::write(folder.join("at"), begin.to_string()).context("cannot write")?;
    let mut child = Command::new(MYSELF)
        .args(["fuzz", "reader", target.name])
        .arg(folder)
        .args([begin, seed, seconds].map(|it| it.to_string()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(file)
        .spawn()
        .context("the reader cannot be started")?;
    let fault = follow(&mut child, folder, CPU_TIME_LIMIT)?;
    let text = fs::read(&said).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    let last =
        text.lines().find(|line| line.contains("panicked at") || line.contains("overflowed"));
    let last = last.or_else(|| text.lines().last()).unwrap_or_default();
    Ok((progress(folder)?, fault.map(|fault| format!("{fault}: {last}"))))
}

/// The number of the input that the reader is reading.
fn progress(folder: &Path) -> anyhow::Result<u64> {
    let text = fs::read_to_string(folder.join("at")).context("the reader says nothing")?;
    Ok(text.trim().parse().unwrap_or_default())
}

/// Waits for the end of a reader, and kills it when it exceeds a limit. It returns the fault if there was one.
fn follow(child: &mut Child, folder: &Path, slowest: Duration) -> anyhow::Result<Option<String>> {
    let mut at = u64::MAX;
    let mut begun = Instant::now();
    let mut used = Duration::ZERO;
    loop {
        if let Some(status) = child.try_wait().context("the reader cannot be waited for")? {
            return Ok((!status.success()).then(|| status.to_string()));
        }
        let now = progress(folder)?;
        let busy = busy(child.id());
        if now != at {
            (at, begun, used) = (now, Instant::now(), busy);
        }
        let memory = resident(child.id());
        let fault = if memory > MEMORY_LIMIT_MIB {
            format!("{memory} MiB")
        } else if busy.saturating_sub(used) > slowest {
            format!("not done within {} s of a processor", slowest.as_secs())
        } else if begun.elapsed() > WALL_TIME_LIMIT {
            format!("not done within {} s", WALL_TIME_LIMIT.as_secs())
        } else {
            std::thread::sleep(POLL_INTERVAL);
            continue;
        };
        child.kill().context("the reader cannot be ended")?;
        child.wait().context("the reader cannot be waited for")?;
        return Ok(Some(fault));
    }
}

/// The processor time of a process. The kernel counts it in hundredths of a second.
fn busy(id: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    // The name of the process comes before these fields. It may have any characters, and ends with the last bracket.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).filter_map(|it| it.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

/// Memory of a process in MiB.
fn resident(id: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or_default() / 1024
}

/// Writes an input to a file with a name of its own.
fn keep(target: &FuzzTarget, input: &[u8]) -> anyhow::Result<PathBuf> {
    let sum = input.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let place = root().join("target/fuzz").join(target.name).join(format!("{sum:016x}"));
    corpus::write(&place, input)?;
    Ok(place)
}

/// The first inputs. They are those of the repository, and strings of recorded cases.
fn inputs(target: &FuzzTarget) -> anyhow::Result<Vec<Vec<u8>>> {
    let home = root().join("e2e/fuzz").join(target.name);
    let mut inputs: Vec<Vec<u8>> = corpus::read_folder(&home)?.into_values().collect();
    ensure!(!inputs.is_empty(), "there are no inputs in {}", home.display());
    for path in target.recorded {
        let path = root().join("e2e/conformance").join(path);
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        for line in text.lines() {
            let case: serde_json::Value = serde_json::from_str(line)
                .with_context(|| format!("{} holds no cases", path.display()))?;
            strings(&case, &mut inputs);
        }
    }
    Ok(inputs)
}

fn strings(value: &serde_json::Value, into: &mut Vec<Vec<u8>>) {
    match value {
        serde_json::Value::String(text) => into.push(text.clone().into_bytes()),
        serde_json::Value::Array(items) => items.iter().for_each(|it| strings(it, into)),
        serde_json::Value::Object(fields) => fields.values().for_each(|it| strings(it, into)),
        _ => {}
    }
}

/// The input of a number. It is a first input, or a changed one.
fn input(target: &FuzzTarget, inputs: &[Vec<u8>], number: u64, seed: u64) -> Vec<u8> {
    let Some(number) = number.checked_sub(inputs.len() as u64) else {
        let kept = usize::try_from(number).ok().and_then(|number| inputs.get(number));
        return kept.cloned().unwrap_or_default();
    };
    let mut random = RandomSequence::new(seed + number);
    let mut any = || inputs.get(random.below(inputs.len())).cloned().unwrap_or_default();
    let mut text = any();
    let other = any();
    mutate::input(&mut text, &other, target.words, &mut random);
    text
}

/// Reads inputs until the time is over.
///
/// # Errors
/// When it cannot note which input it reads. A fault of the tested code ends the process.
pub(super) fn read(reader: &FuzzReaderArguments) -> anyhow::Result<ExitCode> {
    let target =
        TARGETS.into_iter().find(|it| it.name == reader.target).context("no such target")?;
    // With this limit, a huge allocation is a fault that is reported. Without it, the machine could run out of
    // memory.
    setrlimit(Resource::RLIMIT_AS, ADDRESS_SPACE_LIMIT, ADDRESS_SPACE_LIMIT)
        .context("memory cannot be limited")?;
    let inputs = inputs(target)?;
    let deadline = Instant::now() + Duration::from_secs(reader.seconds);
    let work = move |folder: PathBuf, begin: u64, seed: u64| -> anyhow::Result<()> {
        let at = folder.join("at");
        let place = folder.join("input");
        for number in begin.. {
            if number >= inputs.len() as u64 && Instant::now() > deadline {
                break;
            }
            let input = input(target, &inputs, number, seed);
            fs::write(&place, &input).context("cannot write")?;
            fs::write(&at, number.to_string()).context("cannot write")?;
            (target.read)(&input);
        }
        Ok(())
    };
    let folder = reader.folder.clone();
    let begin = reader.begin;
    let seed = reader.seed;
    let thread = std::thread::Builder::new().stack_size(target.stack);
    let thread = thread.spawn(move || work(folder, begin, seed)).context("no thread")?;
    match thread.join() {
        Ok(outcome) => outcome.map(|()| ExitCode::SUCCESS),
        Err(_) => Ok(ExitCode::from(101)),
    }
}

#[cfg(test)]
mod tests;
