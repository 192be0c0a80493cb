---------------------------- MODULE Unique ----------------------------
(***************************************************************************)
(* Unique names: never two jobs of a name, no work lost.                   *)
(*                                                                         *)
(* A name is held by its job's own row: while the job is pending or        *)
(* processing, or (unique until its start) until it is claimed.  Workers   *)
(* start and end jobs without asking for the name.  So between two         *)
(* statements of a producer the holder may start, end or die.  This is     *)
(* PostgreSQL, statement by statement; on SQLite a producer's transaction  *)
(* is one step, which is a special case.  Each producer sends one request  *)
(* for the same name; its job, if it makes one, has the producer's name.   *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets

CONSTANTS
    Producers,
    MaxAttempts, Replays,   \* attempts of a job; how often operators replay dead jobs (a bound)
    \* Switches.  All TRUE is the code.
    NameLocked,             \* a producer locks the name before it looks who holds it
    OnlyWaiting,            \* new work replaces only the work of a job that waits
    ReplayAsks              \* a replayed job takes its name again, or is refused

VARIABLES
    job,       \* job[p]: the row of the job that producer p has made
    pc,        \* pc[p]: where p's transaction is
    mode,      \* mode[p]: what p asks for if the name is held: "skip" or "replace"
    found,     \* found[p]: the holder that p's look has shown
    lock,      \* the producer or operator that has the name's lock
    replay,    \* the dead job whose row an operator has locked to replay it
    replays,
    answer     \* answer[p]: what p was answered

vars == <<job, pc, mode, found, lock, replay, replays, answer>>

NoOne == "no one"
Operator == "operator"
NoJob == [state |-> "none", until |-> "done", claims |-> 0, at |-> 0, attempts |-> 0, work |-> NoOne, ran |-> NoOne]

Live(p) == job[p].state \in {"pending", "processing"}
\* unique_holder: `at` is the number of claims at which the name was taken (unique_claims).
Holds(p) == Live(p) /\ (job[p].until = "done" \/ job[p].claims = job[p].at)

Init ==
    /\ job = [p \in Producers |-> NoJob]
    /\ pc = [p \in Producers |-> "new"]
    /\ mode \in [Producers -> {"skip", "replace"}]
    /\ found = [p \in Producers |-> NoOne]
    /\ lock = NoOne /\ replay = NoOne /\ replays = 0
    /\ answer = [p \in Producers |-> "none"]

(***************************************************************************)
(* A producer's transaction.                                               *)
(***************************************************************************)
Lock(p) ==
    /\ pc[p] = "new"
    /\ NameLocked => lock = NoOne
    /\ lock' = IF NameLocked THEN p ELSE lock
    /\ pc' = [pc EXCEPT ![p] = "look"]
    /\ UNCHANGED <<job, mode, found, replay, replays, answer>>

Look(p) ==
    /\ pc[p] = "look"
    /\ LET holders == {h \in Producers : Holds(h)} IN
       /\ found' = [found EXCEPT ![p] = IF holders = {} THEN NoOne ELSE CHOOSE h \in holders : TRUE]
       /\ pc' = [pc EXCEPT ![p] = IF holders = {} THEN "store" ELSE mode[p]]
    /\ UNCHANGED <<job, mode, lock, replay, replays, answer>>

Unlocked(p) == IF lock = p THEN NoOne ELSE lock

\* The job, its name, and the commit.
Store(p, until) ==
    /\ pc[p] = "store"
    /\ job' = [job EXCEPT ![p] = [NoJob EXCEPT !.state = "pending", !.until = until, !.work = p]]
    /\ answer' = [answer EXCEPT ![p] = "created"]
    /\ pc' = [pc EXCEPT ![p] = "done"] /\ lock' = Unlocked(p)
    /\ UNCHANGED <<mode, found, replay, replays>>

Skip(p) ==
    /\ pc[p] = "skip"
    /\ answer' = [answer EXCEPT ![p] = "exists"]
    /\ pc' = [pc EXCEPT ![p] = "done"] /\ lock' = Unlocked(p)
    /\ UNCHANGED <<job, mode, found, replay, replays>>

\* The holder's row is locked, then its work is replaced if it still waits.  It may have started or ended by now: then
\* another look, or a refusal if it keeps its name until its end.
Replace(p) ==
    LET h == found[p] IN
    /\ pc[p] = "replace" /\ replay # h
    /\ IF Holds(h) /\ (OnlyWaiting => job[h].state = "pending")
       THEN /\ job' = [job EXCEPT ![h].work = p, ![h].attempts = IF job[h].state = "pending" THEN 0 ELSE @]
            /\ answer' = [answer EXCEPT ![p] = "replaced"]
            /\ pc' = [pc EXCEPT ![p] = "done"] /\ lock' = Unlocked(p)
       ELSE IF job[h].state = "processing" /\ job[h].until = "done"
       THEN /\ answer' = [answer EXCEPT ![p] = "refused"]
            /\ pc' = [pc EXCEPT ![p] = "done"] /\ lock' = Unlocked(p)
            /\ UNCHANGED job
       ELSE /\ pc' = [pc EXCEPT ![p] = "look"]
            /\ UNCHANGED <<job, answer, lock>>
    /\ UNCHANGED <<mode, found, replay, replays>>

\* The producer dies, its connection breaks, or the server ends a deadlock: nothing is written.
Abort(p) ==
    /\ pc[p] \in {"look", "store", "skip", "replace"}
    /\ pc' = [pc EXCEPT ![p] = "new"] /\ lock' = Unlocked(p)
    /\ UNCHANGED <<job, mode, found, replay, replays, answer>>

(***************************************************************************)
(* Workers.  They take the payload with the claim.                         *)
(***************************************************************************)
Claim(p) ==
    /\ job[p].state = "pending" /\ replay # p
    /\ job' = [job EXCEPT ![p].state = "processing", ![p].claims = @ + 1, ![p].attempts = @ + 1,
                          ![p].ran = job[p].work]
    /\ UNCHANGED <<pc, mode, found, lock, replay, replays, answer>>

Settle(p, state) ==
    /\ job[p].state = "processing"
    /\ state = "pending" => job[p].attempts < MaxAttempts
    /\ job' = [job EXCEPT ![p].state = state]
    /\ UNCHANGED <<pc, mode, found, lock, replay, replays, answer>>

(***************************************************************************)
(* An operator buries a job, and replays a dead one: first its row is      *)
(* locked, then its name.                                                  *)
(***************************************************************************)
Bury(p) ==
    /\ job[p].state = "pending" /\ replays < Replays
    /\ job' = [job EXCEPT ![p].state = "dead"]
    /\ UNCHANGED <<pc, mode, found, lock, replay, replays, answer>>

LockDead(p) ==
    /\ job[p].state = "dead" /\ replay = NoOne /\ replays < Replays
    /\ replay' = p /\ replays' = replays + 1
    /\ UNCHANGED <<job, pc, mode, found, lock, answer>>

Replay(p) ==
    /\ replay = p /\ (lock = NoOne \/ ~ReplayAsks)
    /\ job' = IF ReplayAsks /\ \E h \in Producers : Holds(h) THEN job
              ELSE [job EXCEPT ![p].state = "pending", ![p].attempts = 0, ![p].at = job[p].claims]
    /\ replay' = NoOne
    /\ UNCHANGED <<pc, mode, found, lock, replays, answer>>

GiveUpReplay ==
    /\ replay # NoOne /\ replay' = NoOne
    /\ UNCHANGED <<job, pc, mode, found, lock, replays, answer>>

Finished == (\A p \in Producers : pc[p] = "done" /\ ~Live(p)) /\ replay = NoOne /\ UNCHANGED vars

Next ==
    \/ \E p \in Producers : Lock(p) \/ Look(p) \/ Skip(p) \/ Replace(p) \/ Abort(p) \/ Claim(p)
    \/ \E p \in Producers, until \in {"done", "start"} : Store(p, until)
    \/ \E p \in Producers, state \in {"ended", "pending", "dead"} : Settle(p, state)
    \/ \E p \in Producers : Bury(p) \/ LockDead(p) \/ Replay(p)
    \/ GiveUpReplay
    \/ Finished

Spec == Init /\ [][Next]_vars

(***************************************************************************)
(* Promises.                                                               *)
(***************************************************************************)
\* Never two jobs of a name.
OneOfAName == Cardinality({p \in Producers : Holds(p)}) <= 1

\* A job that ends has run the newest work that was put into it.
NoWorkLost == \A p \in Producers : job[p].state = "ended" => job[p].ran = job[p].work

\* What a producer was answered is so: its work is in a job, or was replaced by a later request.
AnswerIsTrue ==
    \A p \in Producers :
        /\ answer[p] = "created" => job[p].state # "none"
        /\ answer[p] = "replaced" => \E q \in Producers : job[q].work = p \/ (q # p /\ answer[q] = "replaced")
=======================================================================
