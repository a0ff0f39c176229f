use peat_engine::report::NamespaceList;
use peat_types::Result;

use crate::context::Context;
use crate::exit::Exit;
use crate::page::Page;
use crate::printer::Render;

/// Show the namespaces of the store, and whose they are
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) async fn run(_: Args, cx: &Context) -> Result<Exit> {
    cx.report(&cx.repo()?.namespace_list().await?)?;
    Ok(Exit::Success)
}

impl Render for NamespaceList {
    fn render(&self, page: &mut Page) {
        let rows = self.namespaces.iter().map(|row| {
            let what = match (&row.moved_to, row.is_current, row.is_own) {
                (Some(to), ..) => format!("moved to {to}"),
                (None, true, _) => "in use".to_owned(),
                (None, false, true) => "of this repo".to_owned(),
                (None, false, false) => String::new(),
            };
            vec![row.namespace.to_string(), row.repo_id.clone(), row.registered_at.to_string(), what]
        });
        page.table(&["namespace", "repo", "made", ""], rows.collect(), "The store has no namespace.");
        for namespace in &self.unreadable {
            page.line(format_args!(
                "{namespace}: its ns.json cannot be read; on a machine that has a clone 'peat doctor --repair' writes it again"
            ));
        }
        if self.limited {
            page.line("others are not shown: this client may not list the store");
        }
    }
}
