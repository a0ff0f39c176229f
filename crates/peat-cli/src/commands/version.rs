use peat_engine::report::Report;
use peat_types::Result;
use serde::Serialize;

use crate::context::Context;
use crate::exit::Exit;
use crate::page::Page;
use crate::printer::Render;

/// Show the version
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

#[derive(Debug, Serialize)]
struct Version {
    version: &'static str,
}

impl Report for Version {
    const SCHEMA: &'static str = "peat.version/1";
}

impl Render for Version {
    fn render(&self, page: &mut Page) {
        page.line(format_args!("peat {}", self.version));
    }
}

pub(crate) fn run(_: &Args, cx: &Context) -> Result<Exit> {
    cx.report(&Version { version: env!("CARGO_PKG_VERSION") })?;
    Ok(Exit::Success)
}
