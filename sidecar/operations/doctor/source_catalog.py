"""The questions that the doctor asks the catalog of a source's Postgres; names are "schema.table".

Always: each query reads catalogs and statistics alone. Called by `source`.
"""

SERVER = """
SELECT current_setting('wal_level') AS wal_level, current_setting('max_slot_wal_keep_size', true) AS slot_wal_limit,
       current_setting('server_encoding') AS encoding"""

SLOT = """
SELECT active, wal_status, coalesce(pg_current_wal_lsn() - confirmed_flush_lsn, 0)::bigint AS lag
FROM pg_replication_slots WHERE slot_name = %(name)s"""

FREE_SLOTS = """
SELECT current_setting('max_replication_slots')::int - (SELECT count(*) FROM pg_replication_slots) AS free"""

PUBLICATION = "SELECT pubinsert, pubupdate, pubdelete, pubtruncate FROM pg_publication WHERE pubname = %(name)s"

PUBLISHED = "SELECT schemaname || '.' || tablename AS name FROM pg_publication_tables WHERE pubname = %(name)s"

TABLES = """
SELECT n.nspname || '.' || c.relname AS name, c.relkind = 'p' AS root, c.relpersistence = 'p' AS logged,
       c.relreplident::text AS identity,
       (SELECT array_agg(a.attname::text ORDER BY k.at) FROM pg_index i, unnest(i.indkey::smallint[]) WITH ORDINALITY k(num, at),
               pg_attribute a
        WHERE i.indrelid = c.oid AND i.indisprimary AND a.attrelid = c.oid AND a.attnum = k.num AND k.at <= i.indnkeyatts) AS key
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND n.nspname || '.' || c.relname = ANY(%(names)s)"""

COLUMNS = """
WITH RECURSIVE based(relation, attrelid, attnum, type, modifier) AS (
  SELECT n.nspname || '.' || c.relname, a.attrelid, a.attnum, a.atttypid, a.atttypmod
  FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE a.attnum > 0 AND NOT a.attisdropped AND n.nspname || '.' || c.relname = ANY(%(names)s) AND c.relkind IN ('r', 'p')
  UNION ALL
  SELECT b.relation, b.attrelid, b.attnum, t.typbasetype, t.typtypmod FROM based b JOIN pg_type t ON t.oid = b.type
  WHERE t.typtype = 'd')
SELECT b.relation AS "table", a.attname AS name, format_type(b.type, b.modifier) AS data_type, a.attnotnull AS filled,
       a.attgenerated <> '' AS generated, t.typtype = 'c' AS composite, a.attndims AS dimensions
FROM based b JOIN pg_attribute a USING (attrelid, attnum) JOIN pg_type t ON t.oid = b.type
WHERE t.typtype <> 'd' ORDER BY 1, attnum"""

LEAVES = """
SELECT rn.nspname || '.' || r.relname AS root, array_agg(n.nspname || '.' || c.relname ORDER BY 1) AS leaves
FROM pg_class r JOIN pg_namespace rn ON rn.oid = r.relnamespace, pg_partition_tree(r.oid) t
JOIN pg_class c ON c.oid = t.relid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE r.relkind = 'p' AND t.isleaf AND c.oid <> r.oid AND rn.nspname || '.' || r.relname = ANY(%(names)s) GROUP BY 1"""

ROLE = """
SELECT r.rolsuper OR r.rolreplication OR EXISTS (SELECT FROM pg_roles g WHERE g.rolname = 'rds_replication'
         AND pg_has_role(r.oid, g.oid, 'MEMBER')) AS replication FROM pg_roles r WHERE r.rolname = %(role)s"""

RIGHTS = """
SELECT n.nspname || '.' || c.relname AS name, has_schema_privilege(%(role)s, n.oid, 'USAGE') AS usage,
       has_table_privilege(%(role)s, c.oid, 'SELECT') AS read
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND n.nspname || '.' || c.relname = ANY(%(names)s) ORDER BY 1"""

HEARTBEAT = """
SELECT to_regclass('headrace.heartbeat') IS NOT NULL AS there,
       (SELECT has_schema_privilege(r.oid, n.oid, 'USAGE') AND has_table_privilege(r.oid, c.oid, 'INSERT')
               AND has_table_privilege(r.oid, c.oid, 'UPDATE')
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace, pg_roles r
        WHERE c.oid = to_regclass('headrace.heartbeat') AND r.rolname = %(role)s) AS may"""

LONG = """
SELECT pid, NULL AS gid, usename || ' (' || application_name || ')' AS who,
       extract(epoch FROM clock_timestamp() - xact_start)::float8 AS seconds
FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
  AND xact_start < clock_timestamp() - make_interval(secs => %(seconds)s)
UNION ALL
SELECT NULL, gid, owner, extract(epoch FROM clock_timestamp() - prepared)::float8 FROM pg_prepared_xacts
WHERE database = current_database() AND prepared < clock_timestamp() - make_interval(secs => %(seconds)s)"""
