use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;
use crate::inputs::read_stdin;
use crate::page::Page;
use crate::printer::Render;
use peat_engine::Repo;
use peat_engine::report::ModelEdited;
use peat_types::Error;
use std::path::Path;
use std::process::Command;

/// Edit a definition in $EDITOR, or replace it by YAML from stdin
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name, id, or the unique start of an id
    model: String,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<Exit> {
    let repo = cx.repo()?;
    let report = if cx.settings.terminal_in {
        in_editor(&repo, &args.model, cx)?
    } else {
        repo.model_edit(&args.model, &read_stdin()?)?
    };
    cx.report(&report)?;
    Ok(Exit::Success)
}

/// Lets the person edit a copy, and takes it only when it is a definition: a mistake never reaches the repo.
fn in_editor(repo: &Repo, model: &str, cx: &Context) -> Result<ModelEdited> {
    let editor = cx.env.var("VISUAL").or_else(|| cx.env.var("EDITOR")).ok_or_else(|| {
        Error::invalid("there is no editor: neither VISUAL nor EDITOR is set")
            .with_hint(format!("give the new text on stdin: 'peat model edit {model} < new.yaml'"))
    })?;
    let temporary = &cx.settings.temporary;
    let copy = tempfile::Builder::new().prefix("peat-").suffix(".yaml").tempfile_in(temporary);
    let copy = copy.map_err(|e| Error::io("make a file in", temporary, e))?;
    let path = copy.path();
    std::fs::write(path, repo.model_get(model)?.source).map_err(|e| Error::io("write", path, e))?;
    // Through a shell, because EDITOR may hold arguments.
    let status = Command::new("sh").args(["-c", &format!("{editor} \"$1\""), "sh"]).arg(path).status();
    let status = status.map_err(|e| Error::io("start", Path::new(editor), e))?;
    if !status.success() {
        return Err(Error::invalid(format!("the editor '{editor}' ended with {status}: nothing was changed")));
    }
    let text = std::fs::read_to_string(path).map_err(|e| Error::io("read", path, e))?;
    let edited = repo.model_edit(model, &text).map_err(|error| {
        // The text is worth more than a clean temporary folder.
        match copy.keep() {
            Ok((_, kept)) => error.with_hint(format!("your text is kept in {}", kept.display())),
            Err(_) => error,
        }
    })?;
    Ok(ModelEdited { edit_type: "editor".to_owned(), ..edited })
}

impl Render for ModelEdited {
    fn render(&self, page: &mut Page) {
        page.line(format_args!("{}: {} ({})", self.path, self.status, self.name));
    }
}
