//! The behaviours every database shows, each named after what it shows. A backend's test crate calls
//! [`run_all`](run_all) with a function that opens an empty store.
