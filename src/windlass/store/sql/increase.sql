-- How often anything happened since a minute, by type and name.
select type, name, cast(sum(value) as bigint) as value
  from windlass.history
 where step = 'minute' and at >= :since
 group by type, name;
