//! All known attacks. Each test shows that an attack no longer works.

mod connections;
mod damage;
mod edge;
mod everything;
mod gateway;
mod keys;
mod memory;
mod work;
