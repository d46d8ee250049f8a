//! Counts and distinct rows of a collection of keys: `run PREFIX EPOCHS`.
use dbsp::utils::Tup2;
use dbsp::{OrdZSet, RootCircuit, Runtime, Stream};

use crate::door::{Door, changes, keys};
use crate::feed::{Served, serve};
use crate::outlet::{Outlet, outlet};

type Keys = Stream<RootCircuit, OrdZSet<u64>>;

pub fn count() {
    session(|keys| outlet(keys.weighted_count().accumulate_output()));
}

pub fn distinct() {
    session(|keys| outlet(keys.distinct().accumulate_output()));
}

fn session(operator: fn(Keys) -> Outlet) {
    let (circuit, (door, outlet)) = Runtime::init_circuit(1, move |circuit| {
        let (rows, handle) = circuit.add_input_zset::<u64>();
        let door = Door::new(|prefix, now| changes(prefix, now, keys(prefix), Tup2), move |rows| handle.append(rows));
        Ok((door, operator(rows)))
    })
    .expect("a circuit");
    serve(Served { circuit, doors: vec![("keys", Box::new(door))], outlet }, |verb, prefix, _| {
        (verb == "run").then(|| prefix.to_string())
    });
}
