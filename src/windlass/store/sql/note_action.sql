-- One line of the audit log; there is no statement that changes or removes one.
insert into windlass.audit (at, who, verb, kind, target, before, after, why)
values (:now, :who, :verb, :kind, :target, :before, :after, :why);
