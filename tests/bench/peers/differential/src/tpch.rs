//! Queries of TPC-H, one row of a table an epoch: `run FOLDER EPOCHS` feeds the tables whose columns are in a folder.
//!
//! Amounts are integers, dates integers yyyymmdd; sums ride on the diffs, order and limit are left to the reader.

use differential_dataflow::input::Input;
use differential_dataflow::operators::CountTotal;
use differential_dataflow::{ExchangeData, VecCollection};
use timely::dataflow::{ProbeHandle, Scope};

use crate::checksum::{Sum, Words};
use crate::columns::Row;
use crate::feed::{Caught, Door, Feed, catch, feed};
use crate::{Command, commands, table};

table!(Lineitem {
    orderkey: i64, partkey: i64, suppkey: i64, quantity: i64, extendedprice: i64, discount: i64, tax: i64,
    returnflag: i64, linestatus: i64, shipdate: i64,
});
table!(Orders { orderkey: i64, custkey: i64, totalprice: i64, orderdate: i64, shippriority: i64 });
table!(Customer { custkey: i64, name: String, nationkey: i64, mktsegment: String });
table!(Supplier { suppkey: i64, nationkey: i64 });
table!(Part { partkey: i64, name: String });
table!(Partsupp { partkey: i64, suppkey: i64, supplycost: i64 });
table!(Nation { nationkey: i64, name: String, regionkey: i64 });
table!(Region { regionkey: i64, name: String });

type Rows<'scope, D> = VecCollection<'scope, u64, D, isize>;

/// The tables of a query, by name.
#[derive(Default)]
pub struct Tables {
    doors: Vec<(&'static str, Box<dyn Feed>)>,
}

impl Tables {
    fn rows<'scope, D: Row>(&mut self, scope: Scope<'scope, u64>, name: &'static str) -> Rows<'scope, D> {
        let (input, rows) = scope.new_collection();
        self.doors.push((name, Box::new(Door::new(input))));
        rows
    }
}

impl Lineitem {
    /// The discounted price, in hundredths of cents.
    fn revenue(&self) -> isize {
        (self.extendedprice * (100 - self.discount)) as isize
    }
}

pub type Priced = ((i64, i64), (isize, isize, isize, (isize, isize, isize)));

/// Sums of the lines shipped up to a day, by flag and status.
pub fn q1<'scope>(tables: &mut Tables, scope: Scope<'scope, u64>) -> Rows<'scope, Priced> {
    tables
        .rows(scope, "lineitem")
        .explode(|l: Lineitem| {
            (l.shipdate <= 19980902).then(|| {
                let charge = l.revenue() * (100 + l.tax as isize);
                let sums = (charge, l.discount as isize, 1);
                ((l.returnflag, l.linestatus), (l.quantity as isize, l.extendedprice as isize, l.revenue(), sums))
            })
        })
        .count_total()
}

/// Revenue of the orders of a market segment that were placed before a day and shipped after it.
pub fn q3<'scope>(tables: &mut Tables, scope: Scope<'scope, u64>) -> Rows<'scope, ((i64, (i64, i64)), isize)> {
    let customers = tables
        .rows(scope, "customer")
        .flat_map(|c: Customer| (c.mktsegment.trim_end() == "BUILDING").then_some(c.custkey));
    let lines = tables
        .rows(scope, "lineitem")
        .explode(|l: Lineitem| (l.shipdate > 19950315).then(|| (l.orderkey, l.revenue())));
    tables
        .rows(scope, "orders")
        .flat_map(|o: Orders| (o.orderdate < 19950315).then_some((o.custkey, (o.orderkey, (o.orderdate, o.shippriority)))))
        .semijoin(customers)
        .map(|(_, order)| order)
        .semijoin(lines)
        .count_total()
}

/// Revenue of a year's orders within the nations of a region, by nation.
pub fn q5<'scope>(tables: &mut Tables, scope: Scope<'scope, u64>) -> Rows<'scope, (String, isize)> {
    let regions =
        tables.rows(scope, "region").flat_map(|r: Region| (r.name.trim_end() == "ASIA").then_some(r.regionkey));
    let nations = tables
        .rows(scope, "nation")
        .map(|n: Nation| (n.regionkey, (n.nationkey, n.name)))
        .semijoin(regions)
        .map(|(_, nation)| nation);
    let suppliers = tables
        .rows(scope, "supplier")
        .map(|s: Supplier| (s.nationkey, s.suppkey))
        .join_map(nations, |nation, supplier, name| ((*supplier, *nation), name.clone()));
    let customers = tables.rows(scope, "customer").map(|c: Customer| (c.custkey, c.nationkey));
    let orders = tables
        .rows(scope, "orders")
        .flat_map(|o: Orders| (19940101..19950101).contains(&o.orderdate).then_some((o.custkey, o.orderkey)))
        .join_map(customers, |_, order, nation| (*order, *nation));
    tables
        .rows(scope, "lineitem")
        .explode(|l: Lineitem| Some(((l.orderkey, l.suppkey), l.revenue())))
        .join_map(orders, |_, supplier, nation| ((*supplier, *nation), ()))
        .join_map(suppliers, |_, (), name| name.clone())
        .count_total()
}

/// Revenue of a year's small lines with a middling discount.
pub fn q6<'scope>(tables: &mut Tables, scope: Scope<'scope, u64>) -> Rows<'scope, (i64, isize)> {
    tables
        .rows(scope, "lineitem")
        .explode(|l: Lineitem| {
            let wanted = (19940101..19950101).contains(&l.shipdate) && (5..=7).contains(&l.discount) && l.quantity < 24;
            wanted.then_some((0, (l.extendedprice * l.discount) as isize))
        })
        .count_total()
}

/// Profit on the parts of a colour, by nation and year.
pub fn q9<'scope>(tables: &mut Tables, scope: Scope<'scope, u64>) -> Rows<'scope, ((String, i64), isize)> {
    let parts = tables.rows(scope, "part").flat_map(|p: Part| p.name.contains("green").then_some(p.partkey));
    let costs = tables.rows(scope, "partsupp").map(|p: Partsupp| ((p.partkey, p.suppkey), p.supplycost as isize));
    let orders = tables.rows(scope, "orders").map(|o: Orders| (o.orderkey, o.orderdate / 10000));
    let nations = tables.rows(scope, "nation").map(|n: Nation| (n.nationkey, n.name));
    let suppliers = tables
        .rows(scope, "supplier")
        .map(|s: Supplier| (s.nationkey, s.suppkey))
        .join_map(nations, |_, supplier, name| (*supplier, name.clone()));
    tables
        .rows(scope, "lineitem")
        .map(|l: Lineitem| (l.partkey, (l.suppkey, l.orderkey, l.revenue(), l.quantity as isize)))
        .semijoin(parts)
        .map(|(part, (supplier, order, revenue, quantity))| ((part, supplier), (order, revenue, quantity)))
        .join(costs)
        .explode(|((_, supplier), ((order, revenue, quantity), cost))| {
            Some(((order, supplier), revenue - 100 * cost * quantity))
        })
        .join_map(orders, |_, supplier, year| (*supplier, *year))
        .join_map(suppliers, |_, year, name| (name.clone(), *year))
        .count_total()
}

pub type Large = ((String, i64), ((i64, i64), (i64, isize)));

/// Customers of large orders.
pub fn q18<'scope>(tables: &mut Tables, scope: Scope<'scope, u64>) -> Rows<'scope, Large> {
    let orders = tables
        .rows(scope, "orders")
        .map(|o: Orders| (o.orderkey, (o.custkey, o.orderdate, o.totalprice)));
    let customers = tables.rows(scope, "customer").map(|c: Customer| (c.custkey, c.name));
    tables
        .rows(scope, "lineitem")
        .explode(|l: Lineitem| Some((l.orderkey, l.quantity as isize)))
        .count_total()
        .filter(|(_, quantity)| *quantity > 300)
        .join_map(orders, |order, quantity, (customer, date, price)| (*customer, ((*order, *date), (*price, *quantity))))
        .join_map(customers, |customer, order, name| ((name.clone(), *customer), *order))
}

/// Serve one query.
pub fn session<D: ExchangeData + Words>(
    query: impl for<'scope> Fn(&mut Tables, Scope<'scope, u64>) -> Rows<'scope, D> + Send + Sync + 'static,
) {
    timely::execute_directly(move |worker| {
        let probe = ProbeHandle::new();
        let out = Caught::<D>::default();
        let mut tables = Tables::default();
        worker.dataflow::<u64, _, _>(|scope| {
            let into = out.clone();
            query(&mut tables, scope).inspect_batch(move |_, sent| into.borrow_mut().extend_from_slice(sent)).probe_with(&probe);
        });
        for Command { verb, prefix, number } in commands() {
            assert_eq!(verb, "run");
            let fed = tables.doors.iter_mut().map(|(name, door)| door.read(&format!("{prefix}/{name}"))).sum();
            let mut doors: Vec<&mut dyn Feed> = tables.doors.iter_mut().map(|(_, door)| door.as_mut() as _).collect();
            let mut sum = Sum::default();
            feed(worker, &mut doors, number, &probe, |_| (), || catch(&mut sum, &out, true)).answer(fed, &sum);
        }
    });
}
