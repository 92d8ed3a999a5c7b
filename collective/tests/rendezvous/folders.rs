//! `FileStore` in a folder that already exists, or that other users could write to.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use warpsmith_collective::CollectiveError;
use warpsmith_collective::store::{FileStore, Store};

use crate::{Folder, soon};

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[track_caller]
fn refused(folder: &Path) -> String {
    let error = FileStore::open(folder).unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(CollectiveError::StoreFile { .. })), "{error}");
    let text = error.to_string();
    assert!(
        text.starts_with(&folder.display().to_string()) && text.contains("give another folder"),
        "{text}"
    );
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), 0, "nothing is written there");
    text
}

#[test]
fn a_folder_that_others_may_enter_is_refused() {
    let folder = Folder::new();
    for mode in [0o777, 0o755, 0o1777, 0o750, 0o710, 0o701, 0o704, 0o720, 0o702, 0o2770] {
        set_mode(&folder.0, mode);
        let text = refused(&folder.0);
        let expected = format!("the folder's mode {:o}", mode & 0o777);
        assert!(text.contains(&expected) && text.contains("`chmod 700 "), "{text}");
    }
    // The remedy in the error must work.
    set_mode(&folder.0, 0o700);
    FileStore::open(&folder.0).unwrap().set("key", b"value", soon()).unwrap();
}

#[test]
fn a_link_is_refused() {
    let (folder, of_user) = (Folder::new(), Folder::new());
    let link = folder.0.join("link");
    symlink(&of_user.0, &link).unwrap();
    for path in [link.clone(), link.join(""), link.join(".")] {
        assert!(refused(&path).contains("a link"));
    }
    let file = folder.0.join("file");
    std::fs::write(&file, "").unwrap();
    FileStore::open(&file).unwrap_err();
}

/// Only root can change the owner of a folder.
#[test]
fn a_folder_of_another_user_is_refused() {
    let root = Path::new("/root");
    let (folder, of_root) =
        (Folder::new(), std::fs::metadata(root).is_ok_and(|about| about.mode() & 0o77 == 0));
    // SAFETY: the call has no preconditions.
    if unsafe { libc::geteuid() } == 0 {
        std::os::unix::fs::chown(&folder.0, Some(1000), None).unwrap();
        assert!(refused(&folder.0).contains("the folder belongs to user 1000, but this process to user 0"));
    } else {
        assert!(of_root, "{} is of root alone", root.display());
        let text = FileStore::open(root).unwrap_err().to_string();
        assert!(text.contains("the folder belongs to user 0"), "{text}");
    }
}

#[test]
fn all_files_are_of_this_user_alone() {
    let folder = Folder::new();
    let path = folder.0.join("of/a run");
    let store = FileStore::open(&path).unwrap();
    store.set("card/0", b"a secret", soon()).unwrap();
    store.add("n", 1, soon()).unwrap();
    store.compare_set("card/1", b"", b"a secret", soon()).unwrap();
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    let files: Vec<_> = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 4, "three keys and the lock: {files:?}");
    files.iter().for_each(|file| assert_eq!(mode(file), 0o600, "{}", file.display()));
}

/// Returns this host's identity, which every process on the host can determine.
fn host() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = |name: &str| {
        let link = std::fs::read_link(format!("/proc/self/ns/{name}")).unwrap_or_default();
        link.to_string_lossy().chars().filter(char::is_ascii_digit).collect()
    };
    [boot.trim().to_owned(), namespace("ipc"), namespace("mnt"), namespace("net")].join("-")
}

#[test]
fn no_write_follows_a_link() {
    let (folder, of_user) = (Folder::new(), Folder::new());
    let store = FileStore::open(&folder.0).unwrap();
    store.set("key", b"value", soon()).unwrap();
    let is_value = |path: &Path| path.file_name().unwrap().len() == 64;
    let files = std::fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().path());
    let file = files.into_iter().find(|path| is_value(path)).unwrap();
    let victim = of_user.0.join("victim");
    std::fs::copy(&file, &victim).unwrap();
    let before = std::fs::read(&victim).unwrap();
    for replaced in [file, folder.0.join("lock")] {
        std::fs::remove_file(&replaced).unwrap();
        symlink(&victim, &replaced).unwrap();
        let error = store.add("n", 1, soon()).and_then(|_| store.get("key", soon())).unwrap_err();
        assert!(error.to_string().starts_with(&replaced.display().to_string()), "{error}");
        assert_eq!(std::fs::read(&victim).unwrap(), before);
        std::fs::remove_file(&replaced).unwrap();
        store.set("key", b"value", soon()).unwrap();
    }
    // The names of new files must be unpredictable. This creates a thousand names that another process could guess.
    let host = host();
    let guess = |number: u32| folder.0.join(format!("new-{host}-{}-{number}", std::process::id()));
    (0..1000).for_each(|number| symlink(&victim, guess(number)).unwrap());
    store.set("key", b"another", soon()).unwrap();
    assert_eq!(std::fs::read(&victim).unwrap(), before);
}
