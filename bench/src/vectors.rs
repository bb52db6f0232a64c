//! The vectors of entries and queries: real ones from a file, or random directions.

use std::path::Path;

use context_vector::{decode, normalise};

use crate::Result;
use crate::corpus::Random;

/// Number of dimensions of each vector, the same as for all-MiniLM-L6-v2.
pub const DIMENSIONS: usize = 384;
/// Number of vectors of a file that are queries. They are spread over the file.
const QUERIES: usize = 200;
/// Length of the vector that is added to a copy, which then has length 1 again.
const PERTURBATION: f32 = 0.5;

/// A source of vectors of length 1.
#[derive(Debug)]
pub enum Vectors {
    /// A random direction for each number. No text has such vectors; they are the worst case.
    Random,
    /// Vectors of a model.
    Real {
        /// Those of entries.
        stored: Vec<Vec<f32>>,
        /// Those of queries.
        queries: Vec<Vec<f32>>,
    },
}

impl Vectors {
    /// Reads vectors of [`DIMENSIONS`] 32-bit floats, little-endian, one after the other.
    ///
    /// # Errors
    /// The file cannot be read, or has too few vectors.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let vector = |bytes: &[u8]| {
            let mut vector = vec![0.0; DIMENSIONS];
            (decode(bytes, &mut vector) && normalise(&mut vector)).then_some(vector)
        };
        let all: Vec<Vec<f32>> = bytes
            .chunks_exact(DIMENSIONS * 4)
            .filter_map(vector)
            .collect();
        let step = all.len() / QUERIES;
        if step < 2 {
            return Err(format!(
                "{} has {} vectors of {DIMENSIONS} 32-bit floats; at least {} are needed",
                path.display(),
                all.len(),
                2 * QUERIES
            )
            .into());
        }
        let (mut stored, mut queries) = (Vec::new(), Vec::new());
        for (index, vector) in all.into_iter().enumerate() {
            if index % step == 0 && queries.len() < QUERIES {
                queries.push(vector);
            } else {
                stored.push(vector);
            }
        }
        Ok(Self::Real { stored, queries })
    }

    /// The name in reports.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Random => "random vectors",
            Self::Real { .. } => "real vectors",
        }
    }

    /// The vector of entry `n`. Beyond the vectors of a file these are perturbed copies.
    pub fn of_entry(&self, n: u64) -> Vec<f32> {
        match self {
            Self::Random => direction(n),
            Self::Real { stored, .. } => {
                let (copy, index) = (n / stored.len() as u64, n % stored.len() as u64);
                let mut vector = stored[index as usize].clone();
                if copy > 0 {
                    for (value, noise) in vector.iter_mut().zip(direction(n)) {
                        *value += PERTURBATION * noise;
                    }
                    // The sum of a vector of length 1 and one of length 0.5 is never zero.
                    let _ = normalise(&mut vector);
                }
                vector
            }
        }
    }

    /// The vector of query `n`. No entry has it.
    pub fn of_query(&self, n: u64) -> Vec<f32> {
        match self {
            Self::Random => direction(u64::MAX - n),
            Self::Real { queries, .. } => queries[(n % queries.len() as u64) as usize].clone(),
        }
    }
}

/// A direction that depends on the number alone. Sums of uniform numbers are close enough to normally distributed ones.
fn direction(n: u64) -> Vec<f32> {
    let mut random = Random::new(n ^ 0x7665_6374_6F72);
    let mut value = || (0..4).fold(-2.0, |sum, _| sum + random.unit()) as f32;
    let mut vector: Vec<f32> = (0..DIMENSIONS).map(|_| value()).collect();
    // Not all of the values are zero.
    let _ = normalise(&mut vector);
    vector
}

#[cfg(test)]
mod tests {
    use context_vector::{distance, encode};

    use super::*;

    #[test]
    fn queries_are_not_stored_and_copies_differ_from_their_originals() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let bytes: Vec<u8> = (0..1000).flat_map(|n| encode(&direction(n))).collect();
        std::fs::write(file.path(), bytes).unwrap();
        let vectors = Vectors::read(file.path()).unwrap();
        let entries: Vec<Vec<f32>> = (0..1600).map(|n| vectors.of_entry(n)).collect();
        let nearest = |query: &[f32]| {
            let of_entries = entries.iter().map(|entry| distance(query, entry));
            of_entries.fold(f32::INFINITY, f32::min)
        };
        assert!((0..20).all(|n| nearest(&vectors.of_query(n)) > 0.5));
        let copy = distance(&vectors.of_entry(5), &vectors.of_entry(805));
        assert!((0.3..0.6).contains(&copy), "{copy}");
    }

    #[test]
    fn a_file_has_two_vectors_for_each_query_at_least() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let bytes: Vec<u8> = (0..400).flat_map(|n| encode(&direction(n))).collect();
        std::fs::write(file.path(), &bytes).unwrap();
        assert!(Vectors::read(file.path()).is_ok());
        // A vector of zeros has no direction, so it does not count.
        let too_few = &bytes[4 * DIMENSIONS..];
        for bytes in [
            too_few.to_vec(),
            [too_few, &[0_u8; 4 * DIMENSIONS][..]].concat(),
        ] {
            std::fs::write(file.path(), bytes).unwrap();
            let error = Vectors::read(file.path()).unwrap_err().to_string();
            assert!(error.contains("has 399 vectors"), "{error}");
        }
    }
}
