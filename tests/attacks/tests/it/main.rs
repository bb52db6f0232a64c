//! Each attack that was found, and that it no longer works.

mod connections;
mod damage;
mod edge;
mod everything;
mod gateway;
mod keys;
mod memory;
mod shares;
mod work;
