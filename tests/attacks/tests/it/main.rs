//! Attacks on the service and the gateway, damaged database files, and what the logs record about them.

mod connections;
mod damage;
mod edge;
mod everything;
mod gateway;
mod keys;
mod memory;
mod work;
