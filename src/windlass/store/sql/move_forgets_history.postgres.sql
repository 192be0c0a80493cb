-- Workers that were started here before have looked around already; the source's history takes the place of theirs.
with history as (delete from windlass.history), uncommitted as (delete from windlass.uncommitted),
     releases as (delete from windlass.releases)
delete from windlass.samplings;
