//! What a command took: wall and processor seconds of each physical batch, and the process's resident memory.
use std::time::Instant;

#[derive(Default)]
pub struct Laps {
    wall: Vec<f64>,
    cpu: Vec<f64>,
}

impl Laps {
    /// Run `work` as one lap.
    pub fn lap<R>(&mut self, work: impl FnOnce() -> R) -> R {
        let (start, used) = (Instant::now(), processor());
        let found = work();
        self.cpu.push(processor() - used);
        self.wall.push(start.elapsed().as_secs_f64());
        found
    }

    /// Processor seconds that the last lap left to other threads, which spent them after it.
    pub fn add(&mut self, cpu: f64) {
        if let Some(last) = self.cpu.last_mut() {
            *last += cpu;
        }
    }

    /// The answer's line: `rows` were fed, the output's checksum and number of updates are those of `sum`.
    pub fn answer(&self, rows: usize, sum: &crate::checksum::Sum) {
        println!(
            "{{\"rows\":{rows},\"wall\":{:?},\"cpu\":{:?},\"checksum\":\"{:016x}\",\"out\":{},\"bytes\":{}}}",
            self.wall, self.cpu, sum.value, sum.updates, resident()
        );
    }
}

/// Processor seconds of the whole process.
fn processor() -> f64 {
    spent(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Processor seconds of all threads but this one.
pub fn others() -> f64 {
    processor() - spent(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn spent(clock: libc::clockid_t) -> f64 {
    let mut found = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    unsafe { libc::clock_gettime(clock, &mut found) };
    found.tv_sec as f64 + found.tv_nsec as f64 * 1e-9
}

/// Resident bytes, what the allocator only keeps for later given back first.
pub fn resident() -> u64 {
    unsafe { libc::malloc_trim(0) };
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    status.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}
