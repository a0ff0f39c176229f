//! How much goes into one change. One entry takes some 150,000 operations, and its head some 100,000 units; what is changed by
//! hand is one change below that.

use super::HandFile;

/// Files of one change, at most; a folder may make it a few more.
const FILES: usize = 100_000;
/// Units of one change, at most.
const UNITS: usize = 20_000;

/// Cuts files into batches: by unit, and never between the files of one folder, which are one version of data.
pub(super) fn batches(mut files: Vec<HandFile>) -> Vec<Vec<HandFile>> {
    files.sort_by(|a, b| (&a.unit, &a.path).cmp(&(&b.unit, &b.path)));
    let mut out: Vec<Vec<HandFile>> = Vec::new();
    let mut batch: Vec<HandFile> = Vec::new();
    let mut units = 0;
    for file in files {
        if let Some(last) = batch.last() {
            let new_unit = last.unit != file.unit;
            if batch.len() >= FILES && (new_unit || folder(last) != folder(&file)) || units >= UNITS && new_unit {
                out.push(std::mem::take(&mut batch));
                units = 0;
            }
        }
        units += usize::from(batch.last().is_none_or(|last| last.unit != file.unit));
        batch.push(file);
    }
    out.extend(Some(batch).filter(|batch| !batch.is_empty()));
    out
}

fn folder(file: &HandFile) -> &str {
    file.path.as_str().rsplit_once('/').map_or("", |(folder, _)| folder)
}

#[cfg(test)]
mod tests {
    use peat_types::Unit;

    use super::*;

    fn file(unit: usize, version: usize, name: &str) -> HandFile {
        let unit = Unit::model(&format!("m{unit:06}")).unwrap();
        let path = format!("data/t/id/result/{version:06}/{name}").parse().unwrap();
        HandFile { path, unit, item: None, size: 1, missing: false }
    }

    #[test]
    fn a_version_of_data_is_never_cut_and_no_batch_is_too_large() {
        assert!(batches(Vec::new()).is_empty());
        let mut files: Vec<HandFile> =
            (0..=FILES / 2).flat_map(|n| [file(1, n, "raw"), file(1, n, "metadata.yaml")]).collect();
        // An odd one shifts all that follow.
        files.push(file(0, 0, "raw"));
        let cut = batches(files);
        assert_eq!(cut.iter().map(Vec::len).collect::<Vec<_>>(), [FILES + 1, 2]);
        let cut = batches((0..=UNITS).map(|n| file(n, 0, "raw")).collect());
        assert_eq!(cut.iter().map(Vec::len).collect::<Vec<_>>(), [UNITS, 1]);
        assert_eq!(batches((0..UNITS).map(|n| file(n, 0, "raw")).collect()).len(), 1);
    }
}
