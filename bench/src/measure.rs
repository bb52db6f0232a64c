//! Rounds and medians. Everything that is compared runs alternately and several times, so that a slow minute of the
//! machine affects all contenders equally.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use crate::Result;
use crate::usage::CpuTimes;

/// The figures of one contender in one round.
#[derive(Debug, Clone, Default)]
pub struct Round {
    /// Wall time of the whole round.
    pub elapsed: Duration,
    /// Time of each operation.
    pub latencies: Vec<Duration>,
    /// CPU time of the service or floor.
    pub service: CpuTimes,
    /// CPU time of the gateways.
    pub gateway: CpuTimes,
    /// CPU time of this process, which is the client.
    pub client: CpuTimes,
}

/// A future that is not `Send`.
pub type Local<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + 'a>>;

/// One side of a comparison, such as a transport of the service or a floor. It runs any number of operations.
pub struct Contender<'a> {
    /// Its name in the report.
    pub name: String,
    /// Runs the given number of operations.
    pub run: Box<dyn FnMut(usize) -> Local<'a, Round> + 'a>,
}

impl<'a> Contender<'a> {
    /// A contender with this name.
    pub fn new(name: impl Into<String>, run: impl FnMut(usize) -> Local<'a, Round> + 'a) -> Self {
        Self {
            name: name.into(),
            run: Box::new(run),
        }
    }
}

/// The rounds of one contender.
#[derive(Debug, Clone, Default)]
pub struct Series {
    /// The contender's name.
    pub name: String,
    rounds: Vec<Summary>,
    /// CPU time per operation in microseconds, by thread name of the service, over all rounds.
    pub threads: Vec<(String, f64)>,
}

/// What is computed from the figures of one round.
#[derive(Debug, Clone, Copy)]
struct Summary {
    per_second: f64,
    p50_us: f64,
    p95_us: f64,
    service_us: f64,
    gateway_us: f64,
    client_us: f64,
}

impl Series {
    fn median(&self, figure: impl Fn(&Summary) -> f64) -> f64 {
        median(self.rounds.iter().map(figure).collect())
    }

    /// Operations per second.
    pub fn per_second(&self) -> f64 {
        self.median(|round| round.per_second)
    }

    /// Median time of an operation, in microseconds.
    pub fn p50_us(&self) -> f64 {
        self.median(|round| round.p50_us)
    }

    /// 95th percentile of the time of an operation, in microseconds.
    pub fn p95_us(&self) -> f64 {
        self.median(|round| round.p95_us)
    }

    /// CPU time of the service per operation, in microseconds.
    pub fn service_us(&self) -> f64 {
        self.median(|round| round.service_us)
    }

    /// CPU time of the gateways per operation, in microseconds.
    pub fn gateway_us(&self) -> f64 {
        self.median(|round| round.gateway_us)
    }

    /// CPU time of the client per operation, in microseconds.
    pub fn client_us(&self) -> f64 {
        self.median(|round| round.client_us)
    }

    /// Ratio of this series' throughput to the floor's in the same round: the median over the rounds.
    pub fn throughput_ratio(&self, floor: &Self) -> f64 {
        self.ratio(floor, |round| round.per_second)
    }

    /// Ratio of this series' p50 to the floor's in the same round: the median over the rounds.
    pub fn p50_ratio(&self, floor: &Self) -> f64 {
        self.ratio(floor, |round| round.p50_us)
    }

    /// Ratio of this series' p50 to the sum of the others' in the same round: the median over the rounds.
    pub fn p50_ratio_to_sum(&self, others: &[&Self]) -> f64 {
        let ratio = |(round, summary): (usize, &Summary)| {
            let sum: f64 = others
                .iter()
                .filter_map(|other| other.rounds.get(round))
                .map(|other| other.p50_us)
                .sum();
            summary.p50_us / sum
        };
        median(self.rounds.iter().enumerate().map(ratio).collect())
    }

    /// Difference of this series' p50 and the other's in the same round, in microseconds: the median over the rounds.
    pub fn p50_minus(&self, other: &Self) -> f64 {
        median(
            self.rounds
                .iter()
                .zip(&other.rounds)
                .map(|(a, b)| a.p50_us - b.p50_us)
                .collect(),
        )
    }

    fn ratio(&self, floor: &Self, figure: impl Fn(&Summary) -> f64) -> f64 {
        median(
            self.rounds
                .iter()
                .zip(&floor.rounds)
                .map(|(a, b)| figure(a) / figure(b))
                .collect(),
        )
    }
}

/// Runs all contenders alternately, `rounds` times, after one short warm-up round of each.
///
/// # Errors
/// The first error of any contender.
pub async fn alternate(
    mut contenders: Vec<Contender<'_>>,
    operations: usize,
    rounds: usize,
) -> Result<Vec<Series>> {
    let mut series: Vec<Series> = contenders
        .iter()
        .map(|c| Series {
            name: c.name.clone(),
            ..Series::default()
        })
        .collect();
    let mut threads = vec![CpuTimes::default(); contenders.len()];
    for contender in &mut contenders {
        (contender.run)(operations.div_ceil(5))
            .await
            .map_err(|error| format!("{}: {error}", contender.name))?;
    }
    for round in 0..rounds {
        for turn in 0..contenders.len() {
            let at = (round + turn) % contenders.len();
            let contender = &mut contenders[at];
            let done = (contender.run)(operations)
                .await
                .map_err(|error| format!("{}: {error}", contender.name))?;
            threads[at].add(&done.service);
            series[at].rounds.push(summarise(done));
        }
    }
    for (series, threads) in series.iter_mut().zip(threads) {
        let operations = (operations * rounds) as f64;
        series.threads = threads
            .by_thread()
            .into_iter()
            .map(|(name, us)| (name, us / operations))
            .collect();
    }
    Ok(series)
}

fn summarise(round: Round) -> Summary {
    let Round {
        elapsed,
        mut latencies,
        service,
        gateway,
        client,
    } = round;
    latencies.sort_unstable();
    let operations = latencies.len() as f64;
    Summary {
        per_second: operations / elapsed.as_secs_f64(),
        p50_us: quantile(&latencies, 0.50),
        p95_us: quantile(&latencies, 0.95),
        service_us: service.total_us() / operations,
        gateway_us: gateway.total_us() / operations,
        client_us: client.total_us() / operations,
    }
}

/// The quantile of sorted times in microseconds, by nearest rank: `share` 0.5 is the median. NaN for an empty list.
pub fn quantile(sorted: &[Duration], share: f64) -> f64 {
    let rank = ((sorted.len() as f64 * share).ceil() as usize).clamp(1, sorted.len().max(1));
    sorted
        .get(rank - 1)
        .map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
}

/// The median. NaN for an empty list.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => (values[n / 2 - 1] + values[n / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_nearest_ranks() {
        let times: Vec<_> = (1..=20).map(Duration::from_micros).collect();
        assert_eq!(quantile(&times, 0.5).round(), 10.0);
        assert_eq!(quantile(&times, 0.95).round(), 19.0);
        assert_eq!(quantile(&times[..1], 0.95).round(), 1.0);
        assert!(quantile(&[], 0.5).is_nan());
        assert_eq!(median(vec![3.0, 1.0, 2.0, 10.0]), 2.5);
        assert_eq!(median(vec![3.0, 10.0, 1.0]), 3.0);
        assert!(median(Vec::new()).is_nan());
    }
}
