//! `--time-limit`: how long a command may work on templates or overlays.
//!
//! Elsewhere: the clock (`windlass_runtime::time_limit`), stopping the work (`golang::work_meter`).

use std::time::Duration;

/// Parses a duration in the format of Go. Zero means no limit.
///
/// # Errors
/// The text is not a duration, or it is negative.
pub fn parse(text: &str) -> Result<Duration, String> {
    duration(text, "no limit")
}

/// Parses a duration for a command that only fetches. Zero stands for the default limit of a fetch.
///
/// # Errors
/// The text is not a duration, or it is negative.
pub fn parse_of_fetch(text: &str) -> Result<Duration, String> {
    duration(text, "ten minutes")
}

fn duration(text: &str, zero: &str) -> Result<Duration, String> {
    let parsed = golang::time::GoDuration::parse(text).map_err(|error| error.to_string())?;
    let nanoseconds = u64::try_from(parsed.nanoseconds()).map_err(|_| {
        format!("time: invalid duration {text:?}: it is negative; use 0 for {zero}")
    })?;
    Ok(Duration::from_nanos(nanoseconds))
}

/// The hint below an error when the time is over.
pub const HINT: &str =
    "The time limit was exceeded; set another with --time-limit, or none with --time-limit=0";

#[cfg(test)]
mod tests {
    use super::{parse, parse_of_fetch};
    use std::time::Duration;

    #[test]
    fn a_limit_is_a_duration_and_zero_is_none() {
        assert_eq!(parse("20s"), Ok(Duration::from_secs(20)));
        assert_eq!(parse("0"), Ok(Duration::ZERO));
        assert_eq!(parse("1m30s"), Ok(Duration::from_secs(90)));
        assert!(parse("-1s").unwrap_err().contains("negative"));
        assert!(parse("soon").is_err());
    }

    #[test]
    fn a_negative_limit_is_answered_with_what_zero_means_there() {
        assert_eq!(parse_of_fetch("2m"), Ok(Duration::from_secs(120)));
        assert!(parse("-1s").unwrap_err().ends_with("use 0 for no limit"));
        assert!(parse_of_fetch("-1s").unwrap_err().ends_with("use 0 for ten minutes"));
    }
}
