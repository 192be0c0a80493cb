-- Is there anything to check of this type?
select 1 from windlass.checks where type = :type and due_at <= :now limit 1;
