//! The meaning of a filter, evaluated in memory: what every database's compiled filter must agree with.
