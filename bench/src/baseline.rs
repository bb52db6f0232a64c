//! The ratios of an earlier run. Absolute figures from another machine or time are not comparable. Ratios to a floor
//! that ran at the same time are, within a generous tolerance.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::report::Report;

/// A ratio that is worse by more than this factor is reported.
const TOLERANCE: f64 = 1.5;

/// The checked-in ratios.
#[derive(Debug, Serialize, Deserialize)]
pub struct Baseline {
    ratios: BTreeMap<String, Entry>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    ratio: f64,
    higher_is_better: bool,
}

impl Baseline {
    /// Reads a baseline file.
    ///
    /// # Errors
    /// The file is missing or cannot be parsed.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(
            serde_json::from_slice(&text)
                .map_err(|error| format!("{}: {error}", path.display()))?,
        )
    }

    /// The ratios of a report.
    pub fn of(report: &Report) -> Self {
        let round = |value: f64| (value * 1000.0).round() / 1000.0;
        let entry = |ratio: crate::report::Ratio| Entry {
            ratio: round(ratio.value),
            higher_is_better: ratio.higher_is_better,
        };
        Self {
            ratios: report
                .ratios()
                .into_iter()
                .map(|(name, ratio)| (name, entry(ratio)))
                .collect(),
        }
    }

    /// Writes a baseline file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        Ok(std::fs::write(
            path,
            serde_json::to_string_pretty(self)? + "\n",
        )?)
    }

    /// Lists the ratios that are worse than in the baseline by more than the tolerance, and the number of ratios
    /// compared.
    pub fn compare(&self, report: &Report) -> String {
        let mut out = String::new();
        let mut compared = 0;
        for (name, now) in report.ratios() {
            let Some(Entry {
                ratio: then,
                higher_is_better,
            }) = self.ratios.get(&name)
            else {
                continue;
            };
            compared += 1;
            let worse = if *higher_is_better {
                then / now.value
            } else {
                now.value / then
            };
            // A ratio that is not a number comes from a series without times.
            if worse > TOLERANCE || worse.is_nan() {
                let _ = writeln!(
                    out,
                    "  WORSE  {name}: ratio {:.2}, was {then:.2}",
                    now.value
                );
            }
        }
        let _ = writeln!(
            out,
            "  {compared} ratios compared; those worse by more than a factor of {TOLERANCE} are marked WORSE"
        );
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Series;
    use crate::report::{Ratio, Section};

    fn report(ratio: Ratio) -> Report {
        let mut section = Section::new("search", "");
        section.add(&Series::default(), Some(ratio));
        let mut report = Report::default();
        report.section(section);
        report
    }

    #[test]
    fn a_ratio_is_marked_when_it_is_worse_by_more_than_the_tolerance() {
        for (then, now, is_worse) in [
            (Ratio::lower(2.0), Ratio::lower(2.9), false),
            (Ratio::lower(2.0), Ratio::lower(3.1), true),
            (Ratio::lower(2.0), Ratio::lower(0.1), false),
            (Ratio::lower(2.0), Ratio::lower(f64::NAN), true),
            (Ratio::higher(0.9), Ratio::higher(0.7), false),
            (Ratio::higher(0.9), Ratio::higher(0.5), true),
            (Ratio::higher(0.9), Ratio::higher(9.0), false),
        ] {
            let compared = Baseline::of(&report(then)).compare(&report(now));
            assert_eq!(
                compared.contains("WORSE  search: "),
                is_worse,
                "{then:?} {now:?} {compared}"
            );
            assert!(compared.contains("  1 ratios compared"), "{compared}");
        }
    }
}
