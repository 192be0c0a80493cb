-- Lines of the audit log before a place, to be ordered and limited.
-- What is asked for stands where the mark is: each by an index of its own.
select *
  from windlass.audit
 where seq < :before /*where*/
