use peat_types::Result;

use super::{DataArgs, Target};
use crate::context::Context;
use crate::exit::Exit;
use crate::page::Page;
use crate::page::{bytes, or_dash, value};
use crate::printer::Render;
use peat_engine::report::DataView;
use peat_engine::{DataGet, When};

/// Show the newest version of data, or a given one
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    data: DataArgs,
    /// This version
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    version: Option<u64>,
    /// Facts only, not the content
    #[arg(long)]
    no_content: bool,
    /// Pull what this reads from the store first
    #[arg(long)]
    fresh: bool,
    /// As it was after this entry or at this time: 57, 2d, 2026-11-30T10:00:00Z
    #[arg(long, value_name = "WHEN", conflicts_with = "fresh")]
    at: Option<When>,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    let Target { model, name } = args.data.target();
    let request =
        DataGet { model, name, version: args.version, no_content: args.no_content, fresh: args.fresh, at: args.at };
    let view = cx.repo()?.data_get(&request).await?;
    // A program that reads the pipe wants the content and nothing else.
    let (printer, piped) = (&cx.printer, !cx.printer.is_json() && !cx.settings.terminal_out);
    match (&view.bytes, &view.large) {
        (Some(bytes), _) if piped => {
            cx.printer.bytes(bytes)?;
            cx.printer.stats(cx.stats().as_ref());
        }
        (_, Some(large)) if piped => {
            large.stream(&mut |bytes| printer.bytes(bytes)).await?;
            cx.printer.stats(cx.stats().as_ref());
        }
        (_, large) => {
            // The report names its file.
            if let Some(large) = large.as_ref().filter(|_| view.content_path.is_some()) {
                large.make_local().await?;
            }
            cx.report(&view)?;
        }
    }
    Ok(Exit::Success)
}

/// Lines of a content that a terminal shows.
const SHORT: usize = 40;

impl Render for DataView {
    fn render(&self, page: &mut Page) {
        page.field("data", format_args!("{} version {}", self.name, self.version));
        page.field("model", format_args!("{} ({})", self.model_name, self.model_type));
        page.field("written", self.created_at);
        page.field("content", format_args!("{}, {}", self.content_type, or_dash(self.size.map(bytes))));
        let tags: Vec<String> = self.tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
        page.field("tags", tags.join(" "));
        page.optional("of entry", self.entry);
        page.optional("file", self.content_path.as_ref().map(|path| path.display()));
        if let Some(content) = &self.content {
            let text = value(content);
            let lines = text.lines().count();
            page.line("");
            page.block(&text.lines().take(SHORT).collect::<Vec<_>>().join("\n"));
            if lines > SHORT {
                page.line(format_args!("… {} more lines", lines - SHORT));
            }
        } else if self.bytes.is_some() {
            page.line("");
            page.line("(it is no text: a pipe or file gets its bytes as they are)");
        }
    }
}
