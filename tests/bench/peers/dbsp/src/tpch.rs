//! Queries of TPC-H, with the plans of the other sides: `run FOLDER EPOCHS` feeds the tables whose columns are in a folder.
//!
//! Sums are linear aggregates, order and limit are left to the reader.
use dbsp::Runtime;
use dbsp::utils::{Tup2, Tup3, Tup4, Tup5, Tup6, Tup10};

use crate::feed::{Served, serve};
use crate::outlet::{Outlet, outlet};
use crate::tables::{Lineitem, Tables};

/// The discounted price, in hundredths of cents.
fn revenue(line: &Lineitem) -> i64 {
    line.4 * (100 - line.5)
}

/// Sums of the lines shipped up to a day, by flag and status.
pub fn q1(tables: &mut Tables) -> Outlet {
    let lines = tables.lineitem().index(|line| {
        let Tup10(_, _, _, quantity, price, discount, tax, flag, status, shipped) = line;
        let row = || (Tup2(*flag, *status), Tup5(*quantity, *price, revenue(line), *tax, *discount));
        (*shipped <= 19980902).then(row)
    });
    let sums = lines.aggregate_linear(|Tup5(quantity, price, revenue, tax, discount)| {
        Tup6(*quantity, *price, *revenue, revenue * (100 + tax), *discount, 1_i64)
    });
    outlet(sums.accumulate_output())
}

/// Revenue of the orders of a market segment that were placed before a day and shipped after it.
pub fn q3(tables: &mut Tables) -> Outlet {
    let customers = tables
        .customer()
        .index(|Tup4(customer, _, _, segment)| (segment.trim_end() == "BUILDING").then_some((*customer, ())));
    let early = tables.orders().index(|Tup5(order, customer, _, date, priority)| {
        (*date < 19950315).then_some((*customer, Tup3(*order, *date, *priority)))
    });
    let late = tables.lineitem().index(|line| (line.9 > 19950315).then(|| (line.0, revenue(line))));
    let wanted = early.join_index(&customers, |_, Tup3(order, date, priority), ()| Some((*order, Tup2(*date, *priority))));
    let found = wanted.join_index(&late, |order, Tup2(date, priority), revenue| {
        Some((Tup3(*order, *date, *priority), *revenue))
    });
    outlet(found.aggregate_linear(|revenue| *revenue).accumulate_output())
}

/// Revenue of a year's orders within the nations of a region, by nation.
pub fn q5(tables: &mut Tables) -> Outlet {
    let asia = tables.region().index(|Tup2(region, name)| (name.trim_end() == "ASIA").then_some((*region, ())));
    let nations = tables
        .nation()
        .index(|Tup3(nation, name, region)| Some((*region, Tup2(*nation, name.clone()))))
        .join_index(&asia, |_, Tup2(nation, name), ()| Some((*nation, name.clone())));
    let suppliers = tables
        .supplier()
        .index(|Tup2(supplier, nation)| Some((*nation, *supplier)))
        .join_index(&nations, |nation, supplier, name| Some((Tup2(*supplier, *nation), name.clone())));
    let customers = tables.customer().index(|Tup4(customer, _, nation, _)| Some((*customer, *nation)));
    let orders = tables
        .orders()
        .index(|Tup5(order, customer, _, date, _)| {
            (19940101..19950101).contains(date).then_some((*customer, *order))
        })
        .join_index(&customers, |_, order, nation| Some((*order, *nation)));
    let sold = tables
        .lineitem()
        .index(|line| Some((line.0, Tup2(line.2, revenue(line)))))
        .join_index(&orders, |_, Tup2(supplier, revenue), nation| Some((Tup2(*supplier, *nation), *revenue)))
        .join_index(&suppliers, |_, revenue, name| Some((name.clone(), *revenue)));
    outlet(sold.aggregate_linear(|revenue| *revenue).accumulate_output())
}

/// Revenue of a year's small lines with a middling discount.
pub fn q6(tables: &mut Tables) -> Outlet {
    let lines = tables.lineitem().index(|Tup10(_, _, _, quantity, price, discount, _, _, _, shipped)| {
        let wanted = (19940101..19950101).contains(shipped) && (5..=7).contains(discount) && *quantity < 24;
        wanted.then(|| (0_i64, price * discount))
    });
    outlet(lines.aggregate_linear(|saved| *saved).accumulate_output())
}

/// Profit on the parts of a colour, by nation and year.
pub fn q9(tables: &mut Tables) -> Outlet {
    let parts = tables.part().index(|Tup2(part, name)| name.contains("green").then_some((*part, ())));
    let costs = tables.partsupp().index(|Tup3(part, supplier, cost)| Some((Tup2(*part, *supplier), *cost)));
    let orders = tables.orders().index(|Tup5(order, _, _, date, _)| Some((*order, date / 10_000)));
    let nations = tables.nation().index(|Tup3(nation, name, _)| Some((*nation, name.clone())));
    let suppliers = tables
        .supplier()
        .index(|Tup2(supplier, nation)| Some((*nation, *supplier)))
        .join_index(&nations, |_, supplier, name| Some((*supplier, name.clone())));
    let earned = tables
        .lineitem()
        .index(|line| Some((line.1, Tup4(line.2, line.0, revenue(line), line.3))))
        .join_index(&parts, |part, Tup4(supplier, order, revenue, quantity), ()| {
            Some((Tup2(*part, *supplier), Tup3(*order, *revenue, *quantity)))
        })
        .join_index(&costs, |Tup2(_, supplier), Tup3(order, revenue, quantity), cost| {
            Some((*order, Tup2(*supplier, revenue - 100 * cost * quantity)))
        })
        .join_index(&orders, |_, Tup2(supplier, profit), year| Some((*supplier, Tup2(*year, *profit))))
        .join_index(&suppliers, |_, Tup2(year, profit), name| Some((Tup2(name.clone(), *year), *profit)));
    outlet(earned.aggregate_linear(|profit| *profit).accumulate_output())
}

/// Customers of large orders.
pub fn q18(tables: &mut Tables) -> Outlet {
    let orders = tables
        .orders()
        .index(|Tup5(order, customer, price, date, _)| Some((*order, Tup3(*customer, *date, *price))));
    let customers = tables.customer().index(|Tup4(customer, name, _, _)| Some((*customer, name.clone())));
    let found = tables
        .lineitem()
        .index(|line| Some((line.0, line.3)))
        .aggregate_linear(|quantity| *quantity)
        .filter(|(_, quantity)| *quantity > 300)
        .join_index(&orders, |order, quantity, Tup3(customer, date, price)| {
            Some((*customer, Tup4(*order, *date, *price, *quantity)))
        })
        .join_index(&customers, |customer, Tup4(order, date, price, quantity), name| {
            Some((Tup2(name.clone(), *customer), Tup4(*order, *date, *price, *quantity)))
        });
    outlet(found.accumulate_output())
}

/// Serve one query.
pub fn session(query: fn(&mut Tables) -> Outlet, keeps: bool) {
    let (circuit, (doors, outlet)) = Runtime::init_circuit(1, move |circuit| {
        let mut tables = Tables::new(circuit, keeps);
        let outlet = query(&mut tables);
        Ok((tables.doors, outlet))
    })
    .expect("a circuit");
    serve(Served { circuit, doors, outlet }, |verb, prefix, name| (verb == "run").then(|| format!("{prefix}/{name}")));
}
