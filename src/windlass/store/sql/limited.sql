-- Which jobs run under any limit? A few of them, to be named.
select id from windlass.jobs where state = 'processing' and limit_key is not null limit :limit;
