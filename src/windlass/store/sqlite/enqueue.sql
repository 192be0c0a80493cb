-- name: pass_seal [sqlite]
-- While a store is closing for a move, what runs may end, and what is enqueued by its end belongs to that.
update windlass.moves set passing = :passing where state = 'closing';

-- name: enqueue_alone [sqlite]
-- Accept one job of which only this row is written. Outside a transaction the statement is one by itself: it takes the
-- write lock, and has committed when it ends. It gives no row back, which saves a table that SQLite would make for that.
insert into windlass.jobs (
    seq, state, created_at, enqueued_at, updated_at, due, run_at, {new}
) values
    /*row*/(
        1 + max(
            coalesce((select max(seq) from windlass.jobs), 0),
            coalesce((select max(seq) from windlass.archive), 0),
            coalesce((select value from windlass.numbers where name = 'seq'), 0)
        ),
        'pending', :created_at, :enqueued_at, :updated_at, :due, :run_at, {:new}
    )/*row*/
on conflict (id) do nothing;

-- name: enqueue_together [sqlite]
-- Accept many jobs that have no keys: the row between the marks once for each, in their order. Values that come as
-- such take SQLite half as long as those that it has to find in a JSON text. A known id changes nothing; whoever then
-- counts fewer rows than jobs looks at each of them.
insert into windlass.jobs (
    seq, state, created_at, enqueued_at, updated_at, due, run_at, {new}
) values
    /*row*/(
        :seq, 'pending', :created_at, :enqueued_at, :updated_at, :due, :run_at, {:new}
    )/*row*/
on conflict (id) do nothing;

-- name: any_ended [sqlite]
-- Has one of these ended before?
select 1 from windlass.archive where id in (select value from json_each(:ids)) limit 1;

-- name: enqueue [sqlite]
-- Accept one job. A known id changes nothing: the caller then looks for the job that has it.
-- One writer at a time, so the next number is safe to take; a counter of its own would cost a page a commit.
insert into windlass.jobs (
    seq, state, created_at, enqueued_at, updated_at, due, run_at, {new}
) values (
    1 + max(
        coalesce((select max(seq) from windlass.jobs), 0),
        coalesce((select max(seq) from windlass.archive), 0),
        coalesce((select value from windlass.numbers where name = 'seq'), 0)
    ),
    'pending', :now, :now, :now, :due, :run_at, {:new}
)
on conflict (id) do nothing
returning seq;
