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
            if worse > TOLERANCE {
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
