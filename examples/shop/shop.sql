-- The compose file's source: two tables, a role that may only read and replicate, and a role that owns its own schema.
\set ON_ERROR_STOP on
\getenv cdc_password CDC_PASSWORD
\getenv sink_password SINK_PASSWORD

create table public.customers (id bigint primary key, name text not null, city text);
create table public.orders (
  id bigint primary key,
  customer_id bigint not null references public.customers,
  amount numeric(12,2) not null,
  placed_at timestamptz not null default now()
);
insert into public.customers values (1, 'Ada', 'Zürich'), (2, 'Blaise', null);
insert into public.orders (id, customer_id, amount) values (1, 1, 12.50), (2, 1, 7.25), (3, 2, 99.00);

-- the views' schema belongs to the sink's role; the heartbeat's table is the one other thing in it
create role headrace login password :'sink_password';
create schema headrace authorization headrace;
create table headrace.heartbeat (source text primary key, beat bigint not null, at timestamptz not null);

create role cdc login replication password :'cdc_password';
grant usage on schema public, headrace to cdc;
grant select on public.customers, public.orders to cdc;
grant select, insert, update on headrace.heartbeat to cdc;
create publication headrace_shop for table public.customers, public.orders, headrace.heartbeat;
