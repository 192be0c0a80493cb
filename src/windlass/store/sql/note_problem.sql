-- Why a schedule could not be fired.
update windlass.schedules set problem = :problem where name = :name;
