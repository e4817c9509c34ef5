"""Statements of SQL that DuckDB and Spark answer with equal rows, and statements that both refuse.

The tables are `orders` with the bodies `ORDERS`, "my-orders" with bodies of another form, `raw` with bodies that are no
JSON, and `messages`. A name in double quotes stands in backquotes for Spark.
"""

from __future__ import annotations

import json
from typing import Any

#: Bodies of `orders`: numbers, texts, nulls, objects and lists.
ORDERS: list[dict[str, Any]] = [
    {
        "id": n,
        "total": n / 4,
        "name": None if n % 5 == 4 else f"Name {n % 3}",
        "paid": n % 2 == 0,
        "who": {"city": ("Bonn", "Köln")[n % 2], "zip": 50_000 + n % 7},
        "items": [f"i{n % 4}", f"j{n % 6}"],
        "placed": f"2026-05-{1 + n % 28:02d} 10:{n % 60:02d}:00",
    }
    for n in range(120)
]
#: Bodies of "my-orders": one is no JSON.
MY_ORDERS = [*(json.dumps({"id": n * 2, "Topic": f"t{n % 4}"}).encode() for n in range(40)), b"no JSON"]
RAW = [b"\xff", b"text", b""]

ANSWERED = [
    "select count(*) from orders",
    "select count(*), count(name), count(distinct name) from orders",
    "select sum(id), min(id), max(id) from orders",
    "select avg(total), sum(total) from orders",
    "select min(name), max(name) from orders",
    "select id from orders where id < 5",
    "select id, total, name, paid from orders where id between 10 and 20",
    "select id from orders where name is null",
    "select id from orders where name is not null and paid",
    "select id from orders where not paid and id > 100",
    "select id from orders where id in (1, 2, 3, 500)",
    "select id from orders where name like 'Name 1%'",
    "select id from orders where id % 10 = 3",
    "select id + 1, id - 1, id * 2 from orders where id < 10",
    "select total * 1.5e0 from orders where id < 10",
    "select id / 4 from orders where id < 9",
    "select -id, abs(id - 50) from orders where id < 60",
    "select round(total), floor(total), ceil(total) from orders where id in (1, 2, 3, 5)",
    "select sqrt(total), power(total, 2) from orders where id < 9",
    "select upper(name), lower(name), length(name) from orders where id < 9",
    "select concat(name, '-', who.city) from orders where id < 9 and name is not null",
    "select name || '!' from orders where id < 9",
    "select substring(name, 1, 4), trim('  x '), replace(name, 'Name', 'N') from orders where id < 9",
    "select coalesce(name, 'nobody') from orders where id < 9",
    "select nullif(id, 3), ifnull(name, '-') from orders where id < 9",
    "select case when paid then 'yes' when id > 5 then 'late' else 'no' end from orders where id < 9",
    "select cast(id as string), cast(total as int), cast('12' as bigint) from orders where id in (4, 8)",
    "select cast(id as double), cast(id as decimal(10, 2)) from orders where id < 4",
    "select who.city, who.zip from orders where id < 9",
    "select who.city, count(*) from orders group by who.city",
    "select who.city, sum(total), avg(who.zip) from orders group by 1",
    "select name, paid, count(*) from orders group by name, paid",
    "select name, count(*) n from orders group by name having count(*) > 20",
    "select count(*) from orders group by id % 4",
    "select distinct name from orders",
    "select distinct name, paid from orders where id < 20",
    "select id from orders order by id desc limit 7",
    "select id, total from orders order by total desc, id limit 3",
    "select id from orders order by id limit 5 offset 10",
    "select name, id from orders where id < 12 order by name nulls last, id",
    "select id, row_number() over (partition by who.city order by id) from orders where id < 20",
    "select id, sum(id) over (order by id) from orders where id < 20",
    "select id, lag(id) over (order by id), lead(id, 2) over (order by id) from orders where id < 20",
    "select id, rank() over (order by name nulls last), dense_rank() over (order by paid) from orders where id < 20",
    "select a.id, b.id from orders a join orders b on a.id = b.id + 1 where a.id < 10",
    'select o.id, m."body_Topic" from orders o join "my-orders" m on o.id = m.id',
    'select o.id, m.id from orders o left join "my-orders" m on o.id = m.id and m.id < 10 where o.id < 12',
    'select count(*) from orders cross join "my-orders"',
    'select id from orders where id in (select id from "my-orders")',
    'select id from orders o where exists (select 1 from "my-orders" m where m.id = o.id + 1)',
    'select id from orders where id < 6 union all select id from "my-orders" where id < 6',
    'select id from orders where id < 6 union select id from "my-orders" where id < 6',
    'select id from orders where id < 20 intersect select id from "my-orders"',
    'select id from orders where id < 20 except select id from "my-orders"',
    "with picked as (select id, paid from orders where id < 30) select paid, count(*) from picked group by paid",
    "select max(n) from (select name, count(*) n from orders group by name) counted",
    "select (select max(id) from orders) - id from orders where id > 110",
    "select topic, count(*) from messages group by topic",
    "select topic, min(queue_offset), max(queue_offset) from messages group by topic order by topic",
    "select topic, queue_id, tags from messages where topic = 'raw'",
    "select octet_length(body) from raw",
    "select body from raw where body is not null",
    "select keys from orders where id < 3",
    "select items from orders where id < 4",
    "select who from orders where id < 3",
    "select count(body_error) from orders",
    'select count(*), count(id), count(body_error) from "my-orders"',
    'select "body_Topic", sum(id) from "my-orders" group by 1',
    "select year(born_timestamp), month(born_timestamp), day(born_timestamp), hour(born_timestamp) from orders limit 1",
    "select count(*) from orders where store_timestamp >= timestamp '2020-01-01 00:00:00'",
    "select cast(date '2026-05-04' as string), date '2026-05-04' from orders limit 1",
    "select cast(placed as timestamp) from orders where id < 3",
    "select cast(cast(placed as timestamp) as date), count(*) from orders group by 1",
    "select 1, 'x', true, null, 2.5 from orders limit 2",
    "select ID from ORDERS where Id = 7",
    "select * from orders where 1 = 0",
    "-- a remark\nselect count(*) from orders -- the end\n;",
]

REFUSED = [
    "",
    "selec",
    "select",
    "select x from orders",
    "select id from nothing",
    "select nothing(id) from orders",
    "select id, count(*) from orders",
    "select sum(name) from (select 'x' name, id from orders) a join (select 1) b using (c)",
    "select id from orders union select id, name from orders",
    "select 1; select 2",
    "insert into orders select * from orders",
    "delete from orders",
    "update orders set id = 1",
    "create table made as select * from orders",
    "create view made as select * from orders",
    "drop view orders",
    "set a = 1",
    "use x",
    "select cast('x' as int) from orders",
]
