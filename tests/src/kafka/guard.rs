//! Ends a broker and removes its folder when the test program has ended without doing so itself.
//!
//! Invariant: it outlives the test program, however that ends, and never kills a process number that may be another's by then.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Reads process numbers, the last of which counts; an empty line is none. The end of its input is the end of the test program.
const SCRIPT: &str = r#"
trap '' HUP INT TERM
pid=
while read -r line; do pid=$line; done
if [ -n "$pid" ]; then
    kill -9 "$pid"
    for _ in {1..200}; do
        kill -0 "$pid" || break
        sleep 0.05
    done
fi
rm -rf "$1"
"#;

pub(super) struct Guard {
    process: Child,
}

impl Guard {
    /// Guards `folder`, in which nothing runs yet.
    pub fn over(folder: &Path) -> Guard {
        let mut command = Command::new("bash");
        command.args(["-c", SCRIPT, "guard"]).arg(folder);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // Ctrl-C is for the test program, and reaches this one as its end.
        command.process_group(0);
        Guard { process: command.spawn().expect("bash starts") }
    }

    /// The broker of the folder is this process now.
    pub fn started(&mut self, pid: u32) {
        self.tell(&pid.to_string());
    }

    /// No broker is running, and the last one was waited for.
    pub fn ended(&mut self) {
        self.tell("");
    }

    fn tell(&mut self, line: &str) {
        let input = self.process.stdin.as_mut().expect("it is piped until this is dropped");
        // A guard that someone has killed guards nothing; the test is no worse for it.
        let _ = writeln!(input, "{line}");
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        // It fails only if it was waited for already.
        let _ = self.process.wait();
    }
}
