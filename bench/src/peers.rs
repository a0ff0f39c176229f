//! The same files, the same server, the same day: what people use today against Peat.

mod chart;
mod tool;
mod tree;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use peat_testkit::distance::Distance;
use peat_types::Env;

use crate::measure::Took;
use crate::writers::{machine, today};
use crate::{Failure, writers};
use chart::{Group, Panel};
use tool::{Kind, Site, Step, Tool};
use tree::Shape;

/// Files that are removed for the row of deletes.
const DELETES: u64 = 1000;

/// What to compare.
#[derive(Clone, Debug, Args)]
pub(crate) struct Peers {
    /// Store to work in: s3://bucket/prefix
    #[arg(long, env = "PEAT_TEST_STORE")]
    store: String,
    /// Where its server is: http://127.0.0.1:port
    #[arg(long, env = "AWS_ENDPOINT_URL_S3")]
    endpoint: String,
    #[arg(long, env = "AWS_ACCESS_KEY_ID", hide_env_values = true)]
    key: String,
    #[arg(long, env = "AWS_SECRET_ACCESS_KEY", hide_env_values = true)]
    secret: String,
    /// What the server is, for the results
    #[arg(long)]
    server: String,
    /// Folders with the tools, looked into before the path
    #[arg(long, value_delimiter = ',')]
    tools: Vec<PathBuf>,
    /// Tools to compare
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Kind::Peat, Kind::Rclone, Kind::RcloneChecksum, Kind::Aws, Kind::S5cmd, Kind::Restic])]
    only: Vec<Kind>,
    /// Files, half of them contents and half their metadata
    #[arg(long, default_value_t = 5_000)]
    files: u64,
    /// Models that they are spread over
    #[arg(long, default_value_t = 300)]
    models: u64,
    /// Bytes of all contents
    #[arg(long, default_value_t = 30_000_000)]
    bytes: u64,
    /// What everything is derived from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Milliseconds added to each request
    #[arg(long, value_delimiter = ',', default_values_t = [0, 30])]
    delays: Vec<u64>,
    /// Times that nothing or one file is synchronised
    #[arg(long, default_value_t = 3)]
    rounds: u64,
    /// File whose section on peers is replaced
    #[arg(long)]
    pub(crate) out: Option<PathBuf>,
    /// File the chart goes to
    #[arg(long)]
    chart: Option<PathBuf>,
}

/// What a step took.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    ms: f64,
    requests: u64,
    sent: u64,
    received: u64,
    rss_kib: i64,
}

/// One tool at one distance, by step.
struct Column {
    kind: Kind,
    cells: Vec<(Step, Result<Cost, &'static str>)>,
}

impl Column {
    fn of(&self, step: Step) -> Result<Cost, &'static str> {
        self.cells.iter().find(|(of, _)| *of == step).map_or(Err("–"), |(_, cell)| *cell)
    }
}

impl Peers {
    /// Compares, and gives the section of the results.
    pub(crate) fn run(&self, tell: &dyn Fn(&str)) -> Result<String, Failure> {
        let address = self.endpoint.strip_prefix("http://").ok_or("the endpoint is not one of plain HTTP")?;
        let way = Distance::start(address.trim_end_matches('/').parse()?)?;
        let beside = std::env::current_exe()?.parent().map(PathBuf::from).unwrap_or_default();
        let folders: Vec<PathBuf> = self.tools.iter().cloned().chain([beside]).collect();
        let (mut tools, mut missing) = (Vec::new(), Vec::new());
        for kind in &self.only {
            match Tool::find(*kind, &folders) {
                Some(tool) => tools.push(tool),
                None => missing.push(*kind),
            }
        }
        for kind in &missing {
            tell(&format!("{} is missing, and left out: {}", kind.name(), kind.package()));
        }
        let mut all = Vec::new();
        for delay in &self.delays {
            way.delay(Duration::from_millis(*delay));
            let mut columns = Vec::new();
            for tool in &tools {
                columns.push(self.measure(tool, *delay, &way, tell)?);
            }
            all.push((*delay, columns));
        }
        if let Some(chart) = &self.chart {
            std::fs::write(chart, picture(&all))?;
        }
        self.section(&tools, &missing, &all)
    }

    fn shape(&self) -> Shape {
        Shape { files: self.files, models: self.models, bytes: self.bytes, seed: self.seed }
    }

    fn measure(&self, tool: &Tool, delay: u64, way: &Distance, tell: &dyn Fn(&str)) -> Result<Column, Failure> {
        let temp = tempfile::tempdir()?;
        let (shape, rest) =
            (self.shape(), self.store.strip_prefix("s3://").ok_or("the store is not s3://bucket/prefix")?);
        let (bucket, prefix) = rest.trim_end_matches('/').split_once('/').unwrap_or((rest, "peers"));
        let tag: String = Env::system([]).random_bytes::<6>().iter().map(|byte| format!("{byte:02x}")).collect();
        let site = Site {
            dir: temp.path().to_owned(),
            endpoint: format!("http://{}", way.address()),
            bucket: bucket.to_owned(),
            prefix: format!("{prefix}/peers-{tag}"),
            keys: (self.key.clone(), self.secret.clone()),
        };
        tool.prepare(&site)?;
        let mut column = Column { kind: tool.kind, cells: Vec::new() };
        for step in Step::ALL {
            let rounds = if matches!(step, Step::Nothing | Step::OneFile) { self.rounds.max(1) } else { 1 };
            let mut costs = Vec::new();
            for round in 0..rounds {
                match step {
                    Step::Upload => shape.lay(&site.source())?,
                    Step::OneFile => shape.change(&site.source(), round)?,
                    Step::Deletes => shape.remove(&site.source(), DELETES)?,
                    _ => {}
                }
                costs.push(match tool.typed(step, &site) {
                    Ok(commands) => Ok(self.cost(tool, step, &commands, &site, way)?),
                    Err(why) => Err(why),
                });
            }
            match step {
                Step::SetUp => tool.prepared(&site)?,
                Step::Download => tree::same(&site.source(), &site.target())?,
                _ => {}
            }
            costs.sort_by(|a, b| a.map_or(0.0, |a| a.ms).total_cmp(&b.map_or(0.0, |b| b.ms)));
            let cell = costs.get(costs.len() / 2).copied().unwrap_or(Err("–"));
            if let Ok(cost) = cell {
                let Cost { ms, requests, .. } = cost;
                tell(&format!("{}, {delay} ms: {}: {ms:.0} ms, {requests} requests", tool.kind.name(), step.name()));
            }
            column.cells.push((step, cell));
        }
        Ok(column)
    }

    fn cost(
        &self,
        tool: &Tool,
        step: Step,
        commands: &[Vec<String>],
        site: &Site,
        way: &Distance,
    ) -> Result<Cost, Failure> {
        let mut cost = Cost::default();
        way.take();
        for args in commands {
            let Took { ms, rss_kib, .. } = tool.run(step, args, site)?;
            cost.ms += ms;
            cost.rss_kib = cost.rss_kib.max(rss_kib);
        }
        let traffic = way.take();
        Ok(Cost { requests: traffic.all(), sent: traffic.sent, received: traffic.received, ..cost })
    }

    fn section(&self, tools: &[Tool], missing: &[Kind], all: &[(u64, Vec<Column>)]) -> Result<String, Failure> {
        let mut text = format!(
            "\n## What people use today\n\nMade by `cargo run --release -p peat-bench -- peers --server \"{}\" --out bench/RESULTS.md \
             --chart bench/peers.svg` on {}, {}, which the server shares; see `bench/README.md`. {} files of {:.0} MB in {} models. \
             In brackets: how many times as long as Peat. One run; *nothing changed* and *one file changed*: median of {}.\n\n\
             ![Times as bars](peers.svg)\n\n| tool | version | flags |\n| --- | --- | --- |\n",
            self.server,
            today()?,
            machine()?,
            self.files,
            self.bytes as f64 / 1e6,
            self.models,
            self.rounds,
        );
        for tool in tools {
            let _ = writeln!(text, "| {} | {} | {} |", tool.kind.name(), tool.version, tool.kind.flags());
        }
        for kind in missing {
            let _ = writeln!(text, "| {} | missing: `{}` | |", kind.name(), kind.package());
        }
        for (delay, columns) in all {
            text.push_str(&tables(*delay, columns));
        }
        Ok(text)
    }
}

/// Times, and below them requests and bytes.
fn tables(delay: u64, columns: &[Column]) -> String {
    let head = columns.iter().fold("| |".to_owned(), |line, column| format!("{line} {} |", column.kind.name()));
    let rule = format!("| --- |{}\n", " ---: |".repeat(columns.len()));
    let row = |step: Step, cell: &dyn Fn(&Column) -> String| {
        columns.iter().fold(format!("| {} |", step.name()), |line, column| format!("{line} {} |", cell(column))) + "\n"
    };
    let peat = |step| columns.iter().find(|column| column.kind == Kind::Peat).and_then(|column| column.of(step).ok());
    let mut text = format!("\n### {delay} ms added to each request\n\n{head}\n{rule}");
    let mut behind = Vec::new();
    for step in Step::ALL {
        text.push_str(&row(step, &|column| match (column.of(step), peat(step)) {
            (Err(why), _) => why.to_owned(),
            (Ok(cost), Some(peat)) if column.kind != Kind::Peat => {
                format!("{} ({:.1}×)", time(cost.ms), cost.ms / peat.ms.max(0.1))
            }
            (Ok(cost), _) => time(cost.ms),
        }));
        for column in columns.iter().filter(|column| column.kind != Kind::Peat && step != Step::SetUp) {
            if let (Some(peat), Ok(cost)) = (peat(step), column.of(step))
                && cost.ms < peat.ms
            {
                behind.push(format!("{} ({})", step.name(), column.kind.name()));
            }
        }
    }
    let _ = writeln!(text, "\nRequests, MB sent and received, peak memory:\n\n{head}\n{}", rule.trim_end());
    for step in Step::ALL {
        text.push_str(&row(step, &|column| match column.of(step) {
            Err(_) => "–".to_owned(),
            Ok(Cost { requests, sent, received, rss_kib, .. }) => {
                format!("{requests}, {}, {}, {} MiB", mega(sent), mega(received), rss_kib >> 10)
            }
        }));
    }
    if !behind.is_empty() {
        let _ = writeln!(text, "\nPeat is behind here: {}.", behind.join(", "));
    }
    text
}

fn time(ms: f64) -> String {
    if ms < 1000.0 { format!("{ms:.0} ms") } else { format!("{:.1} s", ms / 1000.0) }
}

fn mega(bytes: u64) -> String {
    let mega = bytes as f64 / 1e6;
    if mega < 0.1 { format!("{mega:.3}") } else { format!("{mega:.1}") }
}

fn picture(all: &[(u64, Vec<Column>)]) -> String {
    let names: Vec<&str> =
        all.first().map(|(_, columns)| columns.iter().map(|column| column.kind.name()).collect()).unwrap_or_default();
    let steps = [Step::Upload, Step::Download, Step::Nothing, Step::OneFile, Step::Deletes];
    let panel = |(delay, columns): &(u64, Vec<Column>)| Panel {
        title: format!("{delay} ms added to each request"),
        groups: steps
            .iter()
            .map(|step| Group {
                name: step.name().to_owned(),
                seconds: columns.iter().map(|column| column.of(*step).ok().map(|cost| cost.ms / 1000.0)).collect(),
            })
            .collect(),
    };
    chart::svg(&names, &all.iter().map(panel).collect::<Vec<_>>())
}

/// Compares, prints, and writes what was asked for.
#[allow(clippy::print_stdout, clippy::print_stderr)] // the table is this program's output
pub(crate) fn peers(peers: &Peers) -> Result<(), Failure> {
    let text = peers.run(&|line| eprintln!("{line}"))?;
    print!("{text}");
    peers.out.as_deref().map_or(Ok(()), |out| writers::replace(out, "peers", &text))
}
