-- Who may still be writing what nobody sees yet? Here one at a time writes, in the order of the numbers.
select 0 as oldest, 0 as following;
