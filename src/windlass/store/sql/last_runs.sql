-- In which hour each release that is counted apart last ran anything. Only the hours of a day or so are read.
select name, max(at) as at
  from windlass.history
 where step = 'hour' and at >= :since and name like 'release.%.attempts'
 group by name;
