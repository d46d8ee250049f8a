//! TPC-H's tables as inputs of a circuit: kept by their primary keys, as the product's tables are, or handed on.
//!
//! Amounts are integers, dates integers yyyymmdd, texts padded with blanks.
use dbsp::operator::Update;
use dbsp::utils::{Tup2, Tup3, Tup4, Tup5, Tup10};
use dbsp::{DBData, OrdIndexedZSet, OrdZSet, RootCircuit, Stream};
use shared::columns::{Cell, column};

use crate::door::{Door, changes};
use crate::feed::Named;

/// orderkey, partkey, suppkey, quantity, extendedprice, discount, tax, returnflag, linestatus, shipdate
pub type Lineitem = Tup10<i64, i64, i64, i64, i64, i64, i64, i64, i64, i64>;
/// orderkey, custkey, totalprice, orderdate, shippriority
pub type Orders = Tup5<i64, i64, i64, i64, i64>;
/// custkey, name, nationkey, mktsegment
pub type Customer = Tup4<i64, String, i64, String>;
/// suppkey, nationkey
pub type Supplier = Tup2<i64, i64>;
/// partkey, name
pub type Part = Tup2<i64, String>;
/// partkey, suppkey, supplycost
pub type Partsupp = Tup3<i64, i64, i64>;
/// nationkey, name, regionkey
pub type Nation = Tup3<i64, String, i64>;
/// regionkey, name
pub type Region = Tup2<i64, String>;

/// Rows with their primary keys.
type Keyed<K, T> = Vec<(K, T)>;

/// A collection with a key: what is indexed from.
pub type Indexed<K, V> = Stream<RootCircuit, OrdIndexedZSet<K, V>>;

/// A table's rows, read from its columns: their types, the primary key and the row of them.
macro_rules! table {
    ($table:ident($($column:ident: $kind:ty),*): $key:ty = $by:expr, $row:ty = $made:expr) => {
        fn $table(prefix: &str) -> Keyed<$key, $row> {
            let count = column(prefix, "epoch").expect("an epoch column").len();
            $(let mut $column = <$kind>::cells(prefix, stringify!($column), count).into_iter();)*
            (0..count)
                .map(|_| {
                    $(let $column = $column.next().expect("columns of one length");)*
                    ($by, $made)
                })
                .collect()
        }
    };
}

table!(lineitem(
    orderkey: i64, linenumber: i64, partkey: i64, suppkey: i64, quantity: i64, extendedprice: i64, discount: i64, tax: i64,
    returnflag: i64, linestatus: i64, shipdate: i64
): Tup2<i64, i64> = Tup2(orderkey, linenumber), Lineitem = Tup10(
    orderkey, partkey, suppkey, quantity, extendedprice, discount, tax, returnflag, linestatus, shipdate
));
table!(orders(orderkey: i64, custkey: i64, totalprice: i64, orderdate: i64, shippriority: i64):
    i64 = orderkey, Orders = Tup5(orderkey, custkey, totalprice, orderdate, shippriority));
table!(customer(custkey: i64, name: String, nationkey: i64, mktsegment: String):
    i64 = custkey, Customer = Tup4(custkey, name, nationkey, mktsegment));
table!(supplier(suppkey: i64, nationkey: i64): i64 = suppkey, Supplier = Tup2(suppkey, nationkey));
table!(part(partkey: i64, name: String): i64 = partkey, Part = Tup2(partkey, name));
table!(partsupp(partkey: i64, suppkey: i64, supplycost: i64):
    Tup2<i64, i64> = Tup2(partkey, suppkey), Partsupp = Tup3(partkey, suppkey, supplycost));
table!(nation(nationkey: i64, name: String, regionkey: i64): i64 = nationkey, Nation = Tup3(nationkey, name, regionkey));
table!(region(regionkey: i64, name: String): i64 = regionkey, Region = Tup2(regionkey, name));

/// The tables of a query. `keeps`: as maps by their primary keys, which know the old row of what is upserted.
pub struct Tables<'a> {
    circuit: &'a RootCircuit,
    keeps: bool,
    pub doors: Vec<Named>,
}

/// A table's changes.
pub enum Rows<K: DBData, T: DBData> {
    Kept(Indexed<K, T>),
    Loose(Stream<RootCircuit, OrdZSet<T>>),
}

impl<K: DBData, T: DBData> Rows<K, T> {
    /// Of each row a key and a value, or nothing.
    pub fn index<K2: DBData, V2: DBData>(&self, part: impl Fn(&T) -> Option<(K2, V2)> + 'static) -> Indexed<K2, V2> {
        match self {
            Rows::Kept(rows) => rows.flat_map_index(move |(_, row)| part(row)),
            Rows::Loose(rows) => rows.flat_map_index(move |row| part(row)),
        }
    }
}

/// A method a table, which opens it.
macro_rules! tables {
    ($($table:ident: $key:ty => $row:ty),*) => {
        $(pub fn $table(&mut self) -> Rows<$key, $row> {
            if self.keeps {
                let (rows, mut handle) = self.circuit.add_input_map::<$key, $row, $row, _>(|_, _| ());
                let read = |prefix: &str, now| {
                    changes(prefix, now, $table(prefix), |(key, row), _| Tup2(key, Update::<$row, $row>::Insert(row)))
                };
                self.doors.push((stringify!($table), Box::new(Door::new(read, move |some| handle.append(some)))));
                return Rows::Kept(rows);
            }
            let (rows, handle) = self.circuit.add_input_zset::<$row>();
            let read = |prefix: &str, now| changes(prefix, now, $table(prefix), |(_, row), diff| Tup2(row, diff));
            self.doors.push((stringify!($table), Box::new(Door::new(read, move |some| handle.append(some)))));
            Rows::Loose(rows)
        })*
    };
}

impl<'a> Tables<'a> {
    pub fn new(circuit: &'a RootCircuit, keeps: bool) -> Self {
        Tables { circuit, keeps, doors: Vec::new() }
    }

    tables!(
        lineitem: Tup2<i64, i64> => Lineitem, orders: i64 => Orders, customer: i64 => Customer, supplier: i64 => Supplier,
        part: i64 => Part, partsupp: Tup2<i64, i64> => Partsupp, nation: i64 => Nation, region: i64 => Region
    );
}
