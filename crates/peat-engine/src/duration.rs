//! Durations as people write them.

use std::time::Duration;

use peat_types::{Error, Result};

/// A duration as given on the command line: whole seconds, `500ms`, `30s`, `5m`, `1h`, `30d`.
///
/// # Errors
/// `Invalid` for anything else, and for zero.
pub fn parse(text: &str) -> Result<Duration> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let millis = match unit {
        "ms" => Some(1),
        "" | "s" => Some(1000),
        "m" => Some(60 * 1000),
        "h" => Some(3600 * 1000),
        "d" => Some(24 * 3600 * 1000),
        _ => None,
    };
    number
        .parse::<u64>()
        .ok()
        .zip(millis)
        .and_then(|(n, unit)| n.checked_mul(unit))
        .filter(|ms| *ms > 0)
        .map(Duration::from_millis)
        .ok_or_else(|| {
            Error::invalid(format!("'{text}' is not a duration"))
                .with_hint("write seconds such as 30, or 500ms, 30s, 5m, 1h, 30d")
        })
}

/// A duration as people read it.
pub fn human(duration: Duration) -> String {
    let ms = duration.as_millis();
    match ms {
        0..1000 => format!("{ms} ms"),
        1000..60_000 if ms.is_multiple_of(1000) => format!("{} s", ms / 1000),
        1000..60_000 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        60_000..3_600_000 => format!("{} min", ms / 60_000),
        3_600_000..172_800_000 => format!("{} h", ms / 3_600_000),
        _ => format!("{} days", ms / 86_400_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_outs() {
        for (text, ms) in
            [("1", 1000), ("30s", 30_000), ("5m", 300_000), ("1h", 3_600_000), ("30d", 2_592_000_000), ("200ms", 200)]
        {
            assert_eq!(parse(text).unwrap(), Duration::from_millis(ms), "{text}");
        }
        for text in ["", "0", "s", "1w", "-1", "1.5", "99999999999999999999"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(human(Duration::from_millis(200)), "200 ms");
        assert_eq!(human(Duration::from_millis(1500)), "1.5 s");
        assert_eq!(human(Duration::from_secs(90)), "1 min");
    }
}
