-- The newest lines of the audit log before a place; of one target, person or verb if asked for.
select *
  from windlass.audit
 where seq < :before_seq
   and (:target = '' or target = :target)
   and (:who = '' or who = :who)
   and (:verb = '' or verb = :verb)
 order by seq desc
 limit :limit;
