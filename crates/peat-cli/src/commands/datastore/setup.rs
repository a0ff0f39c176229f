use std::path::PathBuf;

use clap::ValueEnum;
use peat_engine::report::{DatastoreCleanup, DatastoreSetup, SetupAction};
use peat_engine::{Datastore, SetupRequest};
use peat_objects::StoreUrl;
use peat_types::{Error, Result};

use crate::context::Context;
use crate::error::usage_error;
use crate::exit::{self, Exit, INCOMPLETE};
use crate::inputs::time;
use crate::page::Page;
use crate::page::{bytes, count};
use crate::printer::Render;

/// Set the datastore up in a store, or move it there, after probing that the store is safe
///
/// What the present datastore holds goes along, history included. Where the namespace exists already, this repo joins it.
/// Interrupted, the same command goes on where it stopped.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or file:///folder; or the word filesystem or extension
    #[arg(value_name = "URL|filesystem|extension", required_unless_present = "cleanup")]
    target: Option<String>,
    /// With extension: @swamp/s3-datastore or @swamp/gcs-datastore
    #[arg(value_name = "TYPE")]
    extension: Option<String>,
    /// Folder of a filesystem store
    #[arg(long, value_name = "DIR")]
    path: Option<PathBuf>,
    /// With extension: its settings; they are mapped to Peat's
    #[arg(long, value_name = "JSON")]
    config: Option<String>,
    /// Address of the service, where it is not the cloud's own; https://ACCOUNT.blob.core.windows.net names an account of Azure
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// S3: region of the bucket
    #[arg(long)]
    region: Option<String>,
    /// S3: put the bucket in the path instead of the host name, as most services other than AWS need it; so it is with --endpoint unless false
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    path_style: Option<bool>,
    /// Name of this repo's part of the store
    #[arg(long, value_name = "SLUG")]
    namespace: Option<String>,
    /// S3: named set of credentials in the AWS configuration
    #[arg(long)]
    profile: Option<String>,
    /// Leave what the present datastore holds where it is
    #[arg(long)]
    skip_migration: bool,
    /// Fetch contents at once, or when they are needed; where nothing is said, as before, or at once
    #[arg(long, alias = "hydration-strategy", value_enum, value_name = "HOW")]
    hydration: Option<Hydration>,
    /// Say what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Stop after this time: seconds, or 30s, 5m, 1h; the same command goes on where it stopped
    #[arg(long, value_name = "TIME")]
    timeout: Option<String>,
    /// Remove what the last move left in the store used before
    #[arg(long, conflicts_with_all = ["target", "skip_migration"])]
    cleanup: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Hydration {
    /// At once
    Full,
    /// When they are needed
    Lazy,
}

impl Hydration {
    const fn word(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Lazy => "lazy",
        }
    }
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    let limit = time(args.timeout.as_deref())?;
    if args.cleanup {
        let report = cx.within(limit, Box::pin(cx.repo()?.datastore_cleanup(args.dry_run))).await?;
        cx.report(&report)?;
        let left = count(report.left, "object");
        return exit::end(report.left == 0, INCOMPLETE, format!("{left} could not be removed"));
    }
    let datastore = args.datastore(cx)?;
    let request = SetupRequest { datastore, skip_migration: args.skip_migration, dry_run: args.dry_run };
    cx.report(&cx.within(limit, Box::pin(cx.repo()?.datastore_setup(&request))).await?)?;
    Ok(Exit::Success)
}

impl Args {
    fn datastore(&self, cx: &Context) -> Result<Datastore> {
        let base = self.base(cx)?;
        Ok(Datastore {
            namespace: self.namespace.clone(),
            endpoint: self.endpoint.clone().or(base.endpoint),
            region: self.region.clone().or(base.region),
            path_style: self.path_style.or(base.path_style),
            profile: self.profile.clone(),
            hydration: self.hydration.map(|hydration| hydration.word().to_owned()),
            ..base
        })
    }

    /// The URL and what comes with it, in one of three spellings.
    fn base(&self, cx: &Context) -> Result<Datastore> {
        let target = self.target.as_deref().unwrap_or_default();
        let at = |url: String| Datastore { url, ..Datastore::default() };
        let mut words = [&self.target, &self.extension].into_iter().flatten();
        let stray = words.find(|word| ["true", "false"].contains(&word.as_str()));
        if let (Some(word), Some(true)) = (stray, self.path_style) {
            return Err(usage_error(format!("the value of --path-style follows an equals sign: --path-style={word}")));
        }
        if target != "extension" && (self.extension.is_some() || self.config.is_some()) {
            return Err(usage_error("a type and --config belong to 'extension'"));
        }
        if target != "filesystem" && self.path.is_some() {
            return Err(usage_error("--path belongs to 'filesystem'; a URL names its folder itself"));
        }
        match target {
            "filesystem" => {
                let path = self.path.as_ref().ok_or_else(|| usage_error("a filesystem store needs --path"))?;
                let path = std::path::absolute(path).map_err(|e| Error::io("find", path, e))?;
                Ok(at(StoreUrl::File { root: path }.to_string()))
            }
            "extension" => {
                let (Some(kind), Some(config)) = (&self.extension, &self.config) else {
                    return Err(usage_error("'extension' needs a type and --config")
                        .with_hint("the same by URL: 'peat datastore setup s3://bucket/prefix'"));
                };
                let (datastore, unneeded) = Datastore::of_extension(kind, config)?;
                if !unneeded.is_empty() {
                    cx.printer.warning(&format!("not needed, and left out: {}", unneeded.join(", ")));
                }
                Ok(datastore)
            }
            url if url.contains("://") => Ok(at(url.to_owned())),
            other => Err(usage_error(format!("'{other}' is not a store")).with_hint(
                "give a URL: 'peat datastore setup s3://bucket/prefix', or gs://…, az://… or file:///folder",
            )),
        }
    }
}

impl Render for DatastoreSetup {
    fn render(&self, page: &mut Page) {
        let verb = match (self.action, self.dry_run) {
            (SetupAction::Create, false) => "Made",
            (SetupAction::Create, true) => "Would make",
            (SetupAction::Join, _) if self.already => "Already uses",
            (SetupAction::Join, false) => "Joined",
            (SetupAction::Join, true) => "Would join",
            (SetupAction::Follow, false) => "Followed the datastore to",
            (SetupAction::Follow, true) => "Would follow the datastore to",
            (SetupAction::Move, false) => "Moved the datastore to",
            (SetupAction::Move, true) => "Would move the datastore to",
        };
        page.line(format_args!("{verb} namespace {} in {}", self.namespace, self.url));
        let before = |url: &String| match &self.previous_namespace {
            Some(namespace) => format!("namespace {namespace} in {url}"),
            None => url.clone(),
        };
        page.optional("from", self.from.as_ref().map(before));
        page.optional("ledger", self.ledger);
        page.field("clone", self.clone_path.display());
        if self.action == SetupAction::Move {
            let (units, items) = (count(self.units_copied, "unit"), count(self.items_copied, "item"));
            page.field("takes along", format_args!("{units}, {items}, and their history"));
            let what = if self.dry_run { "to copy" } else { "copied" };
            page.field(what, format_args!("{}, {}", count(self.objects_copied, "object"), bytes(self.bytes_copied)));
            if self.objects_there > 0 {
                page.field("there already", count(self.objects_there, "object"));
            }
        }
        if self.pending_taken > 0 {
            let changes = count(self.pending_taken, "pending change");
            page.field("took over", format_args!("{changes}: 'peat datastore sync --push' settles them"));
        }
        if let Some(pulled) = self.files_pulled {
            page.field("pulled", format_args!("{}, {}", count(pulled, "item"), bytes(self.bytes_pulled.unwrap_or(0))));
        }
        page.optional("kept", self.kept.as_ref().map(before));
        if self.kept.is_some() && self.action == SetupAction::Move && !self.dry_run {
            page.line("remove it some hours from now with 'peat datastore setup --cleanup'");
        }
        for warning in &self.warnings {
            page.line(format_args!("warning: {warning}"));
        }
    }
}

impl Render for DatastoreCleanup {
    fn render(&self, page: &mut Page) {
        let verb = if self.dry_run { "would remove" } else { "removed" };
        page.field(verb, format_args!("{}, {}", count(self.objects, "object"), bytes(self.bytes)));
        page.field("from", format_args!("namespace {} in {}", self.namespace, self.store));
        if self.left > 0 {
            page.field("left", count(self.left, "object"));
        }
        if let Some(why) = &self.denied {
            page.line(format_args!("{} the store does not let this client delete: {why}", page.word("warning")));
        }
    }
}
