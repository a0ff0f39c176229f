//! Where a key lives. Keys whose last segment begins with 16 hex digits, a number, are spread over folders of 4096
//! numbers: `log/fffffffffffffe3b.452` is `log/fffffffffffff/fffffffffffffe3b.452`.

/// Folder of temporary files; no segment of a key begins with a dot.
pub(super) const TEMP_FOLDER: &str = ".tmp";

const NUMBER: usize = 16;
const FAN_OUT: usize = 13;

fn hex(text: &[u8]) -> bool {
    text.iter().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(b))
}

/// The folder that `name` is fanned out into, if it is.
fn fan_out(name: &str) -> Option<&str> {
    let number = name.as_bytes().get(..NUMBER)?;
    hex(number).then(|| &name[..FAN_OUT])
}

/// Relative path of the file of a key.
pub(super) fn path_of(key: &str) -> String {
    let (folder, name) = key.rsplit_once('/').map_or(("", key), |(folder, name)| (&key[..=folder.len()], name));
    match fan_out(name) {
        Some(number) => format!("{folder}{number}/{name}"),
        None => key.to_owned(),
    }
}

/// Whether a folder of this name may be a fan-out.
pub(super) fn is_fan_out(folder: &str) -> bool {
    folder.len() == FAN_OUT && hex(folder.as_bytes())
}

/// Whether the file `name` in the folder `folder` is there because of the fan-out. Then it belongs to the folder above;
/// any other file in it belongs to a folder of keys that happens to be called so.
pub(super) fn is_member(folder: &str, name: &str) -> bool {
    fan_out(name) == Some(folder)
}
