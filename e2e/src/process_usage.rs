//! The CPU time and the memory of processes, read from `/proc`.

use anyhow::Context as _;

/// Linux reports the CPU time of processes in hundredths of a second on every machine.
const TICKS_A_SECOND: f64 = 100.0;

/// The CPU seconds that processes have used together since their start, in user and kernel mode.
///
/// # Errors
/// A process does not exist. The error names it.
pub fn cpu_seconds(ids: &[u32]) -> anyhow::Result<f64> {
    let mut sum = 0.0;
    for id in ids {
        let text = read(*id, "stat")?;
        sum += ticks(&text).with_context(|| format!("/proc/{id}/stat is not understood"))?;
    }
    Ok(sum / TICKS_A_SECOND)
}

/// The highest resident memory of each process since its start, summed, in MiB.
///
/// # Errors
/// A process does not exist. The error names it.
pub fn peak_mebibytes(ids: &[u32]) -> anyhow::Result<f64> {
    let mut sum = 0.0;
    for id in ids {
        let text = read(*id, "status")?;
        sum += kibibytes(&text, "VmHWM:").with_context(|| format!("process {id} has ended"))?;
    }
    Ok(sum / 1024.0)
}

/// The current resident memory of a process, in MiB.
///
/// # Errors
/// The process does not exist. The error names it.
pub fn resident_mebibytes(id: u32) -> anyhow::Result<f64> {
    let text = read(id, "status")?;
    Ok(kibibytes(&text, "VmRSS:").with_context(|| format!("process {id} has ended"))? / 1024.0)
}

/// The current memory of a process that no file backs, in MiB. It contains the heap and the stacks, but not the program itself.
///
/// # Errors
/// The process does not exist. The error names it.
pub fn anonymous_mebibytes(id: u32) -> anyhow::Result<f64> {
    let text = read(id, "status")?;
    Ok(kibibytes(&text, "RssAnon:").with_context(|| format!("process {id} has ended"))? / 1024.0)
}

fn read(id: u32, file: &str) -> anyhow::Result<String> {
    let path = format!("/proc/{id}/{file}");
    std::fs::read_to_string(&path).with_context(|| format!("process {id} is not there ({path})"))
}

/// The processor time of a process in ticks: the sum of `utime` and `stime`, the 14th and 15th word. The second word is the
/// process name, which may contain spaces and parentheses. `None` if the words cannot be parsed.
fn ticks(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut words = rest.split_whitespace().skip(11).map(str::parse::<f64>);
    Some(words.next()?.ok()? + words.next()?.ok()?)
}

fn kibibytes(status: &str, name: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_shift_the_times() {
        let stat = "42 (a) b) S 1 42 42 0 -1 4194560 1 2 3 4 150 50 7 8 20 0 3 0 9 10";
        assert_eq!(ticks(stat), Some(200.0));
        assert_eq!(ticks("42 (a"), None);
    }

    #[test]
    fn this_process_has_a_peak_and_one_that_is_gone_has_a_name() {
        let own = std::process::id();
        assert!(peak_mebibytes(&[own]).unwrap() > 0.5);
        assert!(anonymous_mebibytes(own).unwrap() <= resident_mebibytes(own).unwrap());
        assert!(cpu_seconds(&[own]).is_ok());
        // Process ids are below 2²².
        let error = cpu_seconds(&[own, 1 << 30]).unwrap_err();
        assert!(format!("{error:#}").contains("process 1073741824 is not there"), "{error:#}");
    }
}
