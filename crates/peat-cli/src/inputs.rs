//! Flags by which a run is given values. How they read is the engine's.

use std::path::Path;
use std::time::Duration;

use peat_engine::duration;
use peat_engine::input::InputFlags;
use peat_types::Result;

use crate::exit::USAGE;

/// Where a run takes its inputs from.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct InputArgs {
    /// A value for this run: key=text, key.sub=text, key:json=[1,2], key=@file (\@ for a literal @), or a JSON object
    #[arg(long = "input", alias = "arg", value_name = "KEY=VALUE")]
    inputs: Vec<String>,
    /// Values from a YAML or JSON file; --input wins over them
    #[arg(long, value_name = "FILE", conflicts_with = "stdin")]
    input_file: Option<String>,
    /// Values from stdin as JSON, NDJSON or YAML; several items are several runs, up to the first failure
    #[arg(long)]
    pub(crate) stdin: bool,
}

impl InputArgs {
    /// The flags with what stdin held.
    pub fn flags(self) -> Result<InputFlags> {
        let stdin = self.stdin.then(read_stdin).transpose()?;
        Ok(InputFlags { inputs: self.inputs, file: self.input_file, stdin })
    }
}

/// All of stdin.
pub(crate) fn read_stdin() -> Result<String> {
    peat_engine::input::read_text(std::io::stdin(), Path::new("stdin"))
}

/// A time given as a flag.
pub(crate) fn time(text: Option<&str>) -> Result<Option<Duration>> {
    text.map(duration::parse).transpose().map_err(|error| error.with_code(USAGE))
}
