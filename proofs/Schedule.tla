---------------------------- MODULE Schedule ----------------------------
(***************************************************************************)
(* Schedules: promise 10 of docs/guarantees.md.  A fire time makes one     *)
(* job, however many schedulers look and whichever is killed; one that     *)
(* makes none is in the schedule's history.                                *)
(*                                                                         *)
(* A scheduler reads the schedules that are due (and on PostgreSQL locks   *)
(* their rows), then moves the schedule on, fenced by where it was, and    *)
(* stores the jobs, all in one transaction.  Fire times are 1, 2, 3 ...    *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets

CONSTANTS
    Schedulers, Last,     \* the last moment of the model
    CatchUp,              \* the policies to check: "all", "last", "none"
    AtOnce,               \* most fire times of one transaction (100 in the code)
    Pauses,               \* how often operators pause and resume (a bound)
    \* Switches.  All TRUE is the code.
    Locked,               \* a scheduler that reads a due schedule locks its row
    Fenced,               \* the schedule moves on only from where it was seen
    OneTransaction        \* moving on and storing the jobs is one transaction

VARIABLES
    now, policy,
    next,       \* the schedule's next fire time
    paused, pauses,
    lock,       \* who has locked the schedule's row
    saw,        \* saw[s]: the fire time that scheduler s has read; 0: none
    owed,       \* owed[s]: fire times that s must yet store jobs for     (only in a twin)
    made,       \* made[t]: how many jobs fire time t has made            (only to check promises)
    keys,       \* fire times whose job's record is there: its key finds the job
    noted       \* fire times of which the schedule's history says what became of them

vars == <<now, policy, next, paused, pauses, lock, saw, owed, made, keys, noted>>
Times == 1..Last
NoOne == "no one"

Init ==
    /\ now = 0 /\ policy \in CatchUp /\ next = 1
    /\ paused = FALSE /\ pauses = 0 /\ lock = NoOne
    /\ saw = [s \in Schedulers |-> 0] /\ owed = [s \in Schedulers |-> {}]
    /\ made = [t \in Times |-> 0] /\ keys = {} /\ noted = {}

Tick == now < Last /\ now' = now + 1
        /\ UNCHANGED <<policy, next, paused, pauses, lock, saw, owed, made, keys, noted>>

(***************************************************************************)
(* A scheduler.                                                            *)
(***************************************************************************)
Read(s) ==
    /\ saw[s] = 0 /\ owed[s] = {} /\ ~paused /\ next <= now
    /\ Locked => lock = NoOne
    /\ lock' = IF Locked THEN s ELSE lock
    /\ saw' = [saw EXCEPT ![s] = next]
    /\ UNCHANGED <<now, policy, next, paused, pauses, owed, made, keys, noted>>

\* plan(): which of the fire times from `first` to `upto` fire; the others are missed.  `late`: the last one is past its
\* grace, too.
Fires(first, upto, late) ==
    CASE policy = "all"  -> {t \in first..upto : t < first + AtOnce}
      [] policy = "last" -> {upto}
      [] policy = "none" -> IF late THEN {} ELSE {upto}
After(first, upto) == IF policy = "all" /\ first + AtOnce <= upto THEN first + AtOnce ELSE upto + 1

\* A fire time whose key is known finds its job.
Stored(times) == made' = [t \in Times |-> IF t \in times \ keys THEN made[t] + 1 ELSE made[t]]

Fire(s, late) ==
    LET first == saw[s]
        after == After(first, now)
        fires == Fires(first, now, late)
        goes == (Fenced => next = first) /\ ~paused
    IN
    /\ first # 0
    /\ IF goes
       THEN /\ next' = after
            /\ IF OneTransaction
               THEN /\ Stored(fires) /\ keys' = keys \union fires /\ noted' = noted \union (first..(after - 1))
                    /\ UNCHANGED owed
               ELSE /\ owed' = [owed EXCEPT ![s] = fires] /\ noted' = noted \union ((first..(after - 1)) \ fires)
                    /\ UNCHANGED <<made, keys>>
       ELSE UNCHANGED <<next, made, keys, noted, owed>>
    /\ saw' = [saw EXCEPT ![s] = 0]
    /\ lock' = IF lock = s THEN NoOne ELSE lock
    /\ UNCHANGED <<now, policy, paused, pauses>>

\* Only in a twin: the jobs are stored in a second transaction.
FireLater(s) ==
    /\ owed[s] # {}
    /\ Stored(owed[s]) /\ keys' = keys \union owed[s] /\ noted' = noted \union owed[s]
    /\ owed' = [owed EXCEPT ![s] = {}]
    /\ UNCHANGED <<now, policy, next, paused, pauses, lock, saw>>

\* kill -9, or a connection that breaks: the transaction is undone.
Crash(s) ==
    /\ saw[s] # 0 \/ owed[s] # {}
    /\ saw' = [saw EXCEPT ![s] = 0] /\ owed' = [owed EXCEPT ![s] = {}]
    /\ lock' = IF lock = s THEN NoOne ELSE lock
    /\ UNCHANGED <<now, policy, next, paused, pauses, made, keys, noted>>

(***************************************************************************)
(* Operators, and the pruner.                                              *)
(***************************************************************************)
Pause ==
    /\ ~paused /\ pauses < Pauses /\ lock = NoOne
    /\ paused' = TRUE /\ pauses' = pauses + 1
    /\ UNCHANGED <<now, policy, next, lock, saw, owed, made, keys, noted>>

\* What passed meanwhile is noted as missed.
Resume ==
    /\ paused /\ lock = NoOne
    /\ paused' = FALSE
    /\ next' = now + 1
    /\ noted' = noted \union (next..now)
    /\ UNCHANGED <<now, policy, pauses, lock, saw, owed, made, keys>>

\* A record past its retention goes, and its key with it.
Prune(t) ==
    /\ t \in keys /\ keys' = keys \ {t}
    /\ UNCHANGED <<now, policy, next, paused, pauses, lock, saw, owed, made, noted>>

Next ==
    \/ Tick \/ Pause \/ Resume
    \/ \E s \in Schedulers : Read(s) \/ FireLater(s) \/ Crash(s) \/ (\E late \in BOOLEAN : Fire(s, late))
    \/ \E t \in Times : Prune(t)
    \/ UNCHANGED vars

Fair == WF_vars(Tick) /\ WF_vars(Resume) /\ \A s \in Schedulers : WF_vars(Read(s)) /\ SF_vars(Fire(s, FALSE))
Spec == Init /\ [][Next]_vars /\ Fair

(***************************************************************************)
(* Promises.                                                               *)
(***************************************************************************)
\* 10. A fire time makes one job.
OneJobAFireTime == \A t \in Times : made[t] <= 1

\* 10. A fire time that has passed is in the history.
EveryFireTimeIsNoted == \A t \in Times : t < next => t \in noted

\* A schedule never moves back.
NeverBack == [][next' >= next]_vars

\* Every fire time is dealt with, though schedulers die.
EveryFireTimeComes == \A t \in Times : <>(t \in noted)
=======================================================================
