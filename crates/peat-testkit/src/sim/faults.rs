use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::Dice;

/// What goes wrong at one place of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The process is killed.
    Kill,
    /// The process does nothing for so long, while its clocks and timers go on (SIGSTOP).
    Stall(Duration),
    /// The same with all processes of the machine (suspend).
    Suspend(Duration),
    /// All processes of the machine are killed, and its monotonic clock begins anew.
    Reboot,
    /// What the machine sends in the next so long is lost.
    Cut(Duration),
    /// The wall clock of the machine is set forward or back, by milliseconds.
    Jump(i64),
    /// The request never arrives.
    LostRequest,
    /// The request is carried out; the reply never arrives.
    LostReply,
    /// The client hears nothing, and the write is carried out so much later.
    Late(Duration),
    /// The same, and the process is killed while it waits.
    Orphan(Duration),
    /// The request arrives so much later.
    SlowRequest(Duration),
    /// The reply arrives so much later: it may be overtaken by newer ones.
    SlowReply(Duration),
    /// The request arrives twice; the client gets the reply to the second.
    Doubled,
    /// The server answers with this status and does nothing.
    Status(u16),
    /// A create is answered with "exists" although nothing is there and nothing was done.
    FalseExists,
    /// A listing that does not know what was written in the last so long.
    Lag(Duration),
}

impl Fault {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Stall(_) => "stall",
            Self::Suspend(_) => "suspend",
            Self::Reboot => "reboot",
            Self::Cut(_) => "cut",
            Self::Jump(_) => "jump",
            Self::LostRequest => "lost-request",
            Self::LostReply => "lost-reply",
            Self::Late(_) => "late",
            Self::Orphan(_) => "orphan",
            Self::SlowRequest(_) => "slow-request",
            Self::SlowReply(_) => "slow-reply",
            Self::Doubled => "doubled",
            Self::Status(_) => "status",
            Self::FalseExists => "false-exists",
            Self::Lag(_) => "lag",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::Stall(by)
            | Self::Suspend(by)
            | Self::Cut(by)
            | Self::Late(by)
            | Self::Orphan(by)
            | Self::SlowRequest(by)
            | Self::SlowReply(by)
            | Self::Lag(by) => write!(f, ":{}", by.as_millis()),
            Self::Jump(by) => write!(f, ":{by}"),
            Self::Status(status) => write!(f, ":{status}"),
            _ => Ok(()),
        }
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, number) = text.split_once(':').unwrap_or((text, "0"));
        let number: i64 = number.parse().map_err(|e| format!("{text}: {e}"))?;
        let by = Duration::from_millis(number.unsigned_abs());
        Ok(match name {
            "kill" => Self::Kill,
            "stall" => Self::Stall(by),
            "suspend" => Self::Suspend(by),
            "reboot" => Self::Reboot,
            "cut" => Self::Cut(by),
            "jump" => Self::Jump(number),
            "lost-request" => Self::LostRequest,
            "lost-reply" => Self::LostReply,
            "late" => Self::Late(by),
            "orphan" => Self::Orphan(by),
            "slow-request" => Self::SlowRequest(by),
            "slow-reply" => Self::SlowReply(by),
            "doubled" => Self::Doubled,
            "status" => Self::Status(u16::try_from(number).map_err(|e| format!("{text}: {e}"))?),
            "false-exists" => Self::FalseExists,
            "lag" => Self::Lag(by),
            _ => return Err(format!("there is no fault '{text}'")),
        })
    }
}

/// What a process is about to do where something may go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passing {
    /// A named step, or a reply that has arrived.
    Step,
    /// A request of this kind.
    Request(Verb),
}

/// Kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Get,
    List,
    Create,
    Put,
    Delete,
}

/// How often things go wrong, each between 0 and 1 per place: before each request, after its reply, and at each named
/// step for what befalls processes and machines; per request for what befalls requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Faults {
    /// Mean time of one way in milliseconds.
    pub latency_ms: u64,
    /// A request, or a reply, takes longer.
    pub slow: f64,
    /// Longest such delay.
    pub slow_by: Duration,
    /// Lost requests.
    pub lost_request: f64,
    /// Lost replies.
    pub lost_reply: f64,
    /// Lost replies to creates, besides.
    pub lost_created: f64,
    /// Writes carried out long after their client gave up.
    pub late: f64,
    /// Longest delay of a late landing.
    pub late_by: Duration,
    /// Of these, the ones whose process is killed while it waits.
    pub orphaned: f64,
    /// Requests that arrive twice.
    pub doubled: f64,
    /// 409, 429 and 503.
    pub status: f64,
    /// Creates answered falsely with "exists".
    pub false_exists: f64,
    /// Listings that lag behind.
    pub lag: f64,
    /// Longest such lag.
    pub lag_by: Duration,
    /// Processes killed.
    pub kill: f64,
    /// Processes stalled.
    pub stall: f64,
    /// Longest stall.
    pub stall_by: Duration,
    /// Machines suspended, for as long as stalls.
    pub suspend: f64,
    /// Machines rebooted.
    pub reboot: f64,
    /// Machines cut off from the store.
    pub cut: f64,
    /// Longest time they are.
    pub cut_by: Duration,
    /// Wall clocks set forward or back, by a second to a month.
    pub jump: f64,
}

const SECOND: u64 = 1000;
const DAY: u64 = 24 * 3600 * SECOND;

impl Faults {
    /// A network that works.
    pub fn none() -> Self {
        Self {
            latency_ms: 15,
            slow: 0.0,
            slow_by: Duration::from_secs(2),
            lost_request: 0.0,
            lost_reply: 0.0,
            lost_created: 0.0,
            late: 0.0,
            late_by: Duration::ZERO,
            orphaned: 0.0,
            doubled: 0.0,
            status: 0.0,
            false_exists: 0.0,
            lag: 0.0,
            lag_by: Duration::from_secs(10),
            kill: 0.0,
            stall: 0.0,
            stall_by: Duration::from_secs(12 * 3600),
            suspend: 0.0,
            reboot: 0.0,
            cut: 0.0,
            cut_by: Duration::from_secs(600),
            jump: 0.0,
        }
    }

    /// A network and machines on a bad day.
    pub fn bad_day() -> Self {
        Self {
            slow: 0.03,
            lost_request: 0.03,
            lost_reply: 0.06,
            late: 0.04,
            late_by: Duration::from_secs(60),
            orphaned: 0.2,
            doubled: 0.05,
            status: 0.04,
            false_exists: 0.02,
            lag: 0.05,
            kill: 0.008,
            stall: 0.002,
            suspend: 0.001,
            reboot: 0.0005,
            cut: 0.001,
            jump: 0.003,
            ..Self::none()
        }
    }

    /// Days of all sorts: each kind of trouble is left out or comes more or less often. What always comes together
    /// hides what only comes alone.
    pub fn some_day(dice: &mut Dice) -> Self {
        let mut rate = |usual: f64| {
            let (come, much) = (dice.chance(0.6), dice.unit());
            if come { usual * 4.0 * much * much } else { 0.0 }
        };
        let bad = Self::bad_day();
        let faults = Self {
            slow: rate(bad.slow),
            lost_request: rate(bad.lost_request),
            lost_reply: rate(bad.lost_reply),
            late: rate(bad.late),
            orphaned: rate(bad.orphaned),
            doubled: rate(bad.doubled),
            status: rate(bad.status),
            false_exists: rate(bad.false_exists),
            lag: rate(bad.lag),
            kill: rate(bad.kill),
            stall: rate(bad.stall),
            suspend: rate(bad.suspend),
            reboot: rate(bad.reboot),
            cut: rate(bad.cut),
            jump: rate(bad.jump),
            ..bad
        };
        Self {
            latency_ms: dice.pick(&[1, 5, 15, 15, 40, 150]),
            slow_by: dice.pick(&[2, 2, 60, 600].map(Duration::from_secs)),
            late_by: dice.pick(&[1, 10, 60, 7200].map(Duration::from_secs)),
            ..faults
        }
    }

    /// What goes wrong here, if anything does.
    pub(super) fn draw(&self, passing: Passing, dice: &mut Dice) -> Option<Fault> {
        let mut at = dice.unit();
        // Whether the one number that was drawn falls into the share of this fault.
        let mut falls = |share: f64| {
            let hit = (0.0..share).contains(&at);
            at -= share;
            hit
        };
        let millis = |longest: Duration| u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
        let longest = |by: Duration, least: u64, dice: &mut Dice| dice.long(least, millis(by).max(least));
        if falls(self.kill) {
            return Some(Fault::Kill);
        } else if falls(self.stall) {
            return Some(Fault::Stall(longest(self.stall_by, SECOND, dice)));
        } else if falls(self.suspend) {
            return Some(Fault::Suspend(longest(self.stall_by, SECOND, dice)));
        } else if falls(self.reboot) {
            return Some(Fault::Reboot);
        } else if falls(self.cut) {
            return Some(Fault::Cut(longest(self.cut_by, 100, dice)));
        } else if falls(self.jump) {
            let by = i64::try_from(dice.long(SECOND, 30 * DAY).as_millis()).unwrap_or(0);
            return Some(Fault::Jump(if dice.chance(0.5) { by } else { -by }));
        }
        let Passing::Request(verb) = passing else { return None };
        if falls(self.lost_request) {
            Some(Fault::LostRequest)
        } else if falls(self.lost_reply) {
            Some(Fault::LostReply)
        } else if falls(self.doubled) {
            Some(Fault::Doubled)
        } else if falls(self.status) {
            Some(Fault::Status(dice.pick(&[409, 429, 503])))
        } else if falls(self.slow) {
            let by = longest(self.slow_by, 10, dice);
            Some(if dice.chance(0.5) { Fault::SlowRequest(by) } else { Fault::SlowReply(by) })
        } else if verb == Verb::List {
            falls(self.lag).then(|| Fault::Lag(longest(self.lag_by, 10, dice)))
        } else if verb == Verb::Get {
            None
        } else if falls(self.late) {
            let by = Duration::from_millis(dice.below(millis(self.late_by).max(1)));
            Some(if dice.chance(self.orphaned) { Fault::Orphan(by) } else { Fault::Late(by) })
        } else if verb != Verb::Create {
            None
        } else if falls(self.lost_created) {
            Some(Fault::LostReply)
        } else {
            falls(self.false_exists).then_some(Fault::FalseExists)
        }
    }
}
