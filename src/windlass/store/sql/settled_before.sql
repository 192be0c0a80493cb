-- Was this very lease settled already? Then a repeat after a lost answer is no loss.
select 1 from windlass.jobs where seq = :seq and last_token = :token
union all
select 1 from windlass.archive where seq = :seq and last_token = :token;
