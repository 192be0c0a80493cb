-- Rows of workers that are gone, once nothing runs in their name and a person had a day to look.
delete from windlass.workers
 where state in ('stopped', 'dead')
   and beat_at < :lately
   and not exists (select 1 from windlass.jobs where state = 'processing' and worker = windlass.workers.id);
