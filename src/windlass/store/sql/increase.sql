-- How often anything happened since a minute, by type and name: by the minute up to the next whole hour, from there by the
-- hour, so that six hours cost no more than one.
select type, name, cast(sum(value) as bigint) as value
  from (select type, name, value from windlass.history where step = 'minute' and at >= :since and at < :hour
        union all
        select type, name, value from windlass.history where step = 'hour' and at >= :hour) as lately
 group by type, name;
