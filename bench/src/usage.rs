//! Resources used by a process, from `/proc` (Linux): CPU time by thread, and resident memory.

use std::collections::BTreeMap;

/// CPU time by thread id, with the threads' names. The difference between two values is the time used in between.
#[derive(Debug, Clone, Default)]
pub struct CpuTimes(BTreeMap<u32, (String, f64)>);

impl CpuTimes {
    /// The CPU times of a process so far. Empty when the process has ended. Threads that have ended are not included.
    pub fn of(pid: u32) -> Self {
        let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
            return Self::default();
        };
        let mut times = BTreeMap::new();
        for task in tasks.flatten() {
            let Some(id) = task.file_name().to_str().and_then(|id| id.parse().ok()) else {
                continue;
            };
            let read =
                |file: &str| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
            // The first number is the CPU time in nanoseconds.
            let Some(nanos) = read("schedstat")
                .split(' ')
                .next()
                .and_then(|n| n.parse::<f64>().ok())
            else {
                continue;
            };
            times.insert(id, (read("comm").trim().to_owned(), nanos / 1000.0));
        }
        Self(times)
    }

    /// The CPU time used since `earlier`.
    pub fn since(mut self, earlier: &Self) -> Self {
        for (id, (_, us)) in &mut self.0 {
            *us -= earlier.0.get(id).map_or(0.0, |(_, us)| *us);
        }
        self
    }

    /// Adds the times of another process or interval.
    pub fn add(&mut self, other: &Self) {
        for (id, (name, us)) in &other.0 {
            self.0.entry(*id).or_insert_with(|| (name.clone(), 0.0)).1 += us;
        }
    }

    /// Microseconds of all threads.
    pub fn total_us(&self) -> f64 {
        self.0.values().fold(0.0, |sum, (_, us)| sum + us)
    }

    /// Microseconds by thread name, highest first. Numbers at the end of names are cut. Threads that used no time are
    /// left out.
    pub fn by_thread(&self) -> Vec<(String, f64)> {
        let mut names = BTreeMap::new();
        for (name, us) in self.0.values() {
            *names
                .entry(
                    name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '-')
                        .to_owned(),
                )
                .or_insert(0.0) += us;
        }
        let mut names: Vec<(String, f64)> = names.into_iter().filter(|(_, us)| *us > 0.0).collect();
        names.sort_by(|a, b| b.1.total_cmp(&a.1));
        names
    }
}

/// Resident memory in MiB.
#[derive(Debug, Clone, Copy, Default)]
pub struct Memory {
    /// All resident memory.
    pub resident: f64,
    /// Without pages of files (the program itself, the mapped database), which the system can reclaim at any time.
    pub anonymous: f64,
}

impl Memory {
    /// The current memory of a process. Zero when the process has ended.
    pub fn of(pid: u32) -> Self {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|rest| {
                rest.trim_start_matches(':')
                    .trim()
                    .trim_end_matches(" kB")
                    .parse::<f64>()
                    .ok()
            })
            .unwrap_or(0.0)
                / 1024.0
        };
        Self {
            resident: field("VmRSS"),
            anonymous: field("RssAnon"),
        }
    }
}
