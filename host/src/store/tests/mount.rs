//! Small disks for tests, where this process may mount them.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A small file system of its own in memory.
pub struct Mount {
    pub folder: PathBuf,
    _parent: tempfile::TempDir,
}

impl Mount {
    /// `None` if this process may not mount, which it says loudly.
    pub fn new(options: &str) -> Option<Mount> {
        let parent = tempfile::tempdir().expect("a folder");
        let folder = parent.path().join("mount");
        std::fs::create_dir(&folder).expect("a folder");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&folder).output();
        if mount.as_ref().is_ok_and(|done| done.status.success()) {
            return Some(Mount { folder, _parent: parent });
        }
        eprintln!("SKIPPED: a tmpfs can't be mounted here (needs root): {mount:?}");
        None
    }

    pub fn remount(&self, options: &str) {
        let done = Command::new("mount").args(["-o", &format!("remount,{options}")]).arg(&self.folder).status();
        assert!(done.expect("mount runs").success());
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.folder).status();
    }
}

/// Leaves no space on it. Gives the file that has it all.
pub fn fill(folder: &Path) -> PathBuf {
    let path = folder.join("filling");
    let error = std::fs::write(&path, vec![1; 8 << 20]).expect_err("no more space");
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    path
}
