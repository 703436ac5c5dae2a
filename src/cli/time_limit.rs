//! `--time-limit`: how long a command may work on somebody's templates or overlays.
//!
//! Elsewhere: the clock (`crate::time_limit`), what ends when the time is over (`golang::meter`).

use std::time::Duration;

/// A duration as Go writes it; zero is no limit.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let parsed = golang::time::Duration::parse(text).map_err(|error| error.to_string())?;
    let nanoseconds = u64::try_from(parsed.nanoseconds()).map_err(|_| {
        format!("time: invalid duration {text:?}: it is negative; use 0 for no limit")
    })?;
    Ok(Duration::from_nanos(nanoseconds))
}

/// What is said below an error once the time is over.
pub(crate) const HINT: &str =
    "The time limit was exceeded; set another with --time-limit, or none with --time-limit=0";

#[cfg(test)]
mod tests {
    use super::parse;
    use std::time::Duration;

    #[test]
    fn a_limit_is_a_duration_and_zero_is_none() {
        assert_eq!(parse("20s"), Ok(Duration::from_secs(20)));
        assert_eq!(parse("0"), Ok(Duration::ZERO));
        assert_eq!(parse("1m30s"), Ok(Duration::from_secs(90)));
        assert!(parse("-1s").unwrap_err().contains("negative"));
        assert!(parse("soon").is_err());
    }
}
