//! How much goes into one change. One entry takes some 150,000 operations, and its head some 100,000 units; what is changed by
//! hand is one change below that.

use super::HandFile;

/// Files of one change, at most. Each part of a large content takes the room of a file.
const FILES: u64 = 100_000;
/// Units of one change, at most.
const UNITS: usize = 20_000;

/// Cuts files into batches: by unit, and never between the files of one folder, which are one version of data.
pub(super) fn batches(mut files: Vec<HandFile>, part: u64) -> Vec<Vec<HandFile>> {
    files.sort_by(|a, b| (&a.unit, &a.path).cmp(&(&b.unit, &b.path)));
    let room = |file: &HandFile| if file.missing { 1 } else { file.size.div_ceil(part.max(1)).max(1) };
    let together = files.chunk_by(|a, b| a.unit == b.unit && folder(a) == folder(b));
    let versions: Vec<(usize, u64)> = together.map(|some| (some.len(), some.iter().map(room).sum())).collect();
    let mut files = files.into_iter();
    let mut out: Vec<Vec<HandFile>> = Vec::new();
    let mut batch: Vec<HandFile> = Vec::new();
    let (mut units, mut full) = (0, 0);
    for (count, more) in versions {
        let version: Vec<HandFile> = files.by_ref().take(count).collect();
        let new_unit = batch.last().map(|file| &file.unit) != version.first().map(|file| &file.unit);
        if full + more > FILES || units >= UNITS && new_unit {
            out.extend(Some(std::mem::take(&mut batch)).filter(|batch| !batch.is_empty()));
            (units, full) = (0, 0);
        }
        units += usize::from(new_unit || batch.is_empty());
        full += more;
        batch.extend(version);
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
        let batches = |files| batches(files, 1000);
        assert!(batches(Vec::new()).is_empty());
        let all = usize::try_from(FILES).unwrap();
        let mut files: Vec<HandFile> =
            (0..=all / 2).flat_map(|n| [file(1, n, "raw"), file(1, n, "metadata.yaml")]).collect();
        // An odd one shifts all that follow.
        files.push(file(0, 0, "raw"));
        let cut = batches(files);
        assert_eq!(cut.iter().map(Vec::len).collect::<Vec<_>>(), [all - 1, 4]);
        let cut = batches((0..=UNITS).map(|n| file(n, 0, "raw")).collect());
        assert_eq!(cut.iter().map(Vec::len).collect::<Vec<_>>(), [UNITS, 1]);
        assert_eq!(batches((0..UNITS).map(|n| file(n, 0, "raw")).collect()).len(), 1);
        // Parts count: 60,000 of them in each.
        let large = |n| [HandFile { size: 60_000_000, ..file(n, 1, "raw") }, file(n, 1, "metadata.yaml")];
        let cut = batches((0..3).flat_map(large).collect());
        assert_eq!(cut.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 2]);
    }
}
