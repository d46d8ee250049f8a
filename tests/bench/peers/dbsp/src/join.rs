//! Keys joined with arranged rows: `run PREFIX EPOCHS` changes the rows, `query PREFIX EPOCHS` feeds keys.
use dbsp::Runtime;
use dbsp::utils::Tup2;
use shared::columns::column;

use crate::door::{Door, changes, keys};
use crate::feed::{Served, serve};
use crate::outlet::outlet;

pub fn join() {
    let (circuit, (rows, asked, outlet)) = Runtime::init_circuit(1, |circuit| {
        let (pairs, rows) = circuit.add_input_indexed_zset::<u64, u64>();
        let (wanted, asked) = circuit.add_input_indexed_zset::<u64, ()>();
        let found = wanted.join_index(&pairs, |key, (), value| Some((*key, *value)));
        let rows = Door::new(
            |prefix, now| changes(prefix, now, pairs_of(prefix), |(key, value), diff| Tup2(key, Tup2(value, diff))),
            move |some| rows.append(some),
        );
        let asked = Door::new(
            |prefix, now| changes(prefix, now, keys(prefix), |key, diff| Tup2(key, Tup2((), diff))),
            move |some| asked.append(some),
        );
        Ok((rows, asked, outlet(found.accumulate_output())))
    })
    .expect("a circuit");
    let doors: Vec<crate::feed::Named> = vec![("run", Box::new(rows)), ("query", Box::new(asked))];
    serve(Served { circuit, doors, outlet }, |verb, prefix, name| (verb == name).then(|| prefix.to_string()));
}

fn pairs_of(prefix: &str) -> Vec<(u64, u64)> {
    keys(prefix).into_iter().zip(column(prefix, "value").expect("a value column")).collect()
}
