---------------------------- MODULE Lease ----------------------------
(***************************************************************************)
(* Lease and fence: promises 1 to 4 of docs/guarantees.md.                 *)
(*                                                                         *)
(* Workers claim jobs, run them, and write down how they ended.  Every     *)
(* write about a running job names the token of its lease.  This model     *)
(* gives the reaper no judgement at all: it may take ANY lease from ANY    *)
(* worker, dead or alive, by a look that is as old as you like.  The       *)
(* fence must hold all the same.  (WhoIsDead.tla is about the judgement.)  *)
(*                                                                         *)
(* Each action is one transaction, or something inside one process.        *)
(* Answers get lost after the commit; processes die between any two        *)
(* actions.  A worker that is frozen is one that does not act for long.    *)
(***************************************************************************)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
    Jobs, Workers,
    MaxAttempts,     \* a job's max_attempts
    Interruptions,   \* free interruptions by our own shutdown (nine in the code)
    GivenBack,       \* how often a job may be given back unstarted, or its claim's answer be lost (a bound)
    Crashes,         \* how many workers may die; fewer than there are
    \* Switches.  All TRUE is the code; each FALSE is a mistake that TLC must find.
    Fenced,          \* a settle compares the token, not only the job's number and state
    OneTransaction,  \* the record enters the archive in the transaction in which the row goes
    ReapedForgets    \* a reaped lease leaves no last token behind

None == 0            \* no token: tokens are numbered by the job's claims, so none comes twice
NoRun == [job |-> "none"]

VARIABLES
    live,      \* live[j]: the row in table jobs, or Gone
    archive,   \* archive[j]: the record in table archive, or Gone
    run,       \* run[w]: what worker w holds in memory: a lease, and how far it is
    up,        \* workers whose process lives
    seen,      \* seen[j]: the lease that a reaper saw in its last look at the job, however long ago
    starts,    \* starts[j]: how often a handler was called           (only to check promises)
    backs,     \* backs[j]: how often it was given back unstarted     (only to bound the model)
    misled     \* workers were told "settled" of a lease that was reaped (only to check promises)

vars == <<live, archive, run, up, seen, starts, backs, misled>>

Row(state, token, last, claims, attempts, broken, history, worker) ==
    [state |-> state, token |-> token, last |-> last, claims |-> claims, attempts |-> attempts,
     broken |-> broken, history |-> history, worker |-> worker]
Gone == Row("gone", None, None, 0, 0, 0, <<>>, "none")

Init ==
    /\ live = [j \in Jobs |-> Row("pending", None, None, 0, 0, 0, <<>>, "none")]
    /\ archive = [j \in Jobs |-> Gone]
    /\ run = [w \in Workers |-> NoRun]
    /\ up = Workers
    /\ seen = [j \in Jobs |-> NoRun]
    /\ starts = [j \in Jobs |-> 0]
    /\ backs = [j \in Jobs |-> 0]
    /\ misled = FALSE

\* A lease as a worker or a reaper holds it: the job as it was when it was read.
LeaseOn(j, row) == [job |-> j, token |-> row.token, attempts |-> row.attempts,
                    broken |-> row.broken, history |-> row.history]
Holding(j, row, phase) == [phase |-> phase, outcome |-> "none"] @@ LeaseOn(j, row)

(***************************************************************************)
(* Claim: one statement takes a due job and makes its token.               *)
(***************************************************************************)
Taken(j, w) ==
    LET r == live[j] IN
    Row("processing", r.claims + 1, r.last, r.claims + 1, r.attempts + 1, r.broken, r.history, w)

Claim(w, j) ==
    /\ w \in up /\ run[w] = NoRun /\ live[j].state = "pending"
    /\ live' = [live EXCEPT ![j] = Taken(j, w)]
    /\ run' = [run EXCEPT ![w] = Holding(j, live'[j], "claimed")]
    /\ UNCHANGED <<archive, up, seen, starts, backs, misled>>

\* The claim is committed and its answer is lost: nobody knows of the lease.
ClaimUnanswered(w, j) ==
    /\ w \in up /\ run[w] = NoRun /\ live[j].state = "pending"
    /\ backs[j] < GivenBack
    /\ backs' = [backs EXCEPT ![j] = @ + 1]
    /\ live' = [live EXCEPT ![j] = Taken(j, w)]
    /\ UNCHANGED <<archive, run, up, seen, starts, misled>>

\* The worker looks for leases in its name that it does not know, to give them back.
FindUnknown(w, j) ==
    /\ w \in up /\ run[w] = NoRun
    /\ live[j].state = "processing" /\ live[j].worker = w
    /\ run' = [run EXCEPT ![w] = [Holding(j, live[j], "ended") EXCEPT !.outcome = "unstarted"]]
    /\ UNCHANGED <<live, archive, up, seen, starts, backs, misled>>

(***************************************************************************)
(* Inside a worker.                                                        *)
(***************************************************************************)
Start(w) ==
    /\ w \in up /\ run[w] # NoRun /\ run[w].phase = "claimed"
    /\ run' = [run EXCEPT ![w].phase = "running"]
    /\ starts' = [starts EXCEPT ![run[w].job] = @ + 1]
    /\ UNCHANGED <<live, archive, up, seen, backs, misled>>

\* decide(): what a result amounts to.  The lease's own copy of the job is all that is asked.
Decided(lease, result) ==
    CASE result = "returned"    -> "completed"
      [] result = "raised"      -> IF lease.attempts >= MaxAttempts THEN "dead" ELSE "retry"
      [] result = "fatal"       -> "dead"
      [] result = "lost"        -> IF lease.attempts >= MaxAttempts THEN "lost dead" ELSE "lost retry"
      [] result = "interrupted" -> IF lease.broken < Interruptions THEN "released"
                                   ELSE IF lease.attempts >= MaxAttempts THEN "dead" ELSE "retry"

Results == {"returned", "raised", "fatal", "interrupted"}
End(w, result) ==
    /\ w \in up /\ run[w] # NoRun /\ run[w].phase = "running"
    /\ run' = [run EXCEPT ![w].phase = "ended", ![w].outcome = Decided(run[w], result)]
    /\ UNCHANGED <<live, archive, up, seen, starts, backs, misled>>

\* A claimed job that cannot start here is given back with its attempt.
GiveBack(w) ==
    /\ w \in up /\ run[w] # NoRun /\ run[w].phase = "claimed"
    /\ backs[run[w].job] < GivenBack
    /\ backs' = [backs EXCEPT ![run[w].job] = @ + 1]
    /\ run' = [run EXCEPT ![w].phase = "ended", ![w].outcome = "unstarted"]
    /\ UNCHANGED <<live, archive, up, seen, starts, misled>>

\* kill -9: memory is gone, rows stay.
Crash(w) ==
    /\ w \in up /\ Cardinality(Workers \ up) < Crashes
    /\ up' = up \ {w}
    /\ run' = [run EXCEPT ![w] = NoRun]
    /\ UNCHANGED <<live, archive, seen, starts, backs, misled>>

(***************************************************************************)
(* Settle: the worker and the reaper write an outcome by the same verb.    *)
(***************************************************************************)
Lost(outcome) == outcome \in {"lost dead", "lost retry"}
Kind(outcome) == CASE outcome = "completed" -> "finish"
                   [] outcome \in {"dead", "lost dead"} -> "bury"
                   [] OTHER -> "put back"

Holds(lease) ==
    LET r == live[lease.job] IN
    /\ r.state = "processing"
    /\ (Fenced => r.token = lease.token)

\* Settled before?  Then a repeat after a lost answer is no loss.
SettledBefore(lease) ==
    lease.token \in {live[lease.job].last, archive[lease.job].last}

Record(lease, outcome) == [claim |-> lease.token, number |-> lease.attempts, outcome |-> outcome]

\* The row after an outcome.  The history is the lease's own copy with this attempt behind it.
After(lease, outcome) ==
    LET r == live[lease.job]
        history == IF outcome = "unstarted" THEN lease.history ELSE Append(lease.history, Record(lease, outcome))
        last == IF Lost(outcome) /\ ReapedForgets THEN None ELSE lease.token
        back == IF outcome \in {"unstarted", "released"} THEN 1 ELSE 0
        broken == r.broken + (IF outcome = "released" THEN 1 ELSE 0)
        state == CASE Kind(outcome) = "finish" -> "completed"
                   [] Kind(outcome) = "bury" -> "dead"
                   [] OTHER -> "pending"
    IN Row(state, None, last, r.claims, r.attempts - back, broken, history, "none")

Write(lease, outcome) ==
    LET row == After(lease, outcome) IN
    IF Kind(outcome) = "finish"
    THEN /\ live' = [live EXCEPT ![lease.job] = Gone]
         /\ IF OneTransaction THEN archive' = [archive EXCEPT ![lease.job] = row] ELSE UNCHANGED archive
    ELSE /\ live' = [live EXCEPT ![lease.job] = row]
         /\ UNCHANGED archive

History(j) == live[j].history \o archive[j].history
\* By the job's records this lease was taken from its holder.
Reaped(lease) ==
    \E i \in DOMAIN History(lease.job) :
        LET record == History(lease.job)[i] IN record.claim = lease.token /\ Lost(record.outcome)

\* The worker's settle.  Its answer arrives, or the worker will ask again.
Settle(w, answered) ==
    /\ w \in up /\ run[w] # NoRun /\ run[w].phase = "ended"
    /\ LET lease == run[w] IN
       /\ IF Holds(lease) THEN Write(lease, lease.outcome) ELSE UNCHANGED <<live, archive>>
       /\ misled' = (misled \/ (answered /\ (Holds(lease) \/ SettledBefore(lease)) /\ Reaped(lease)))
       /\ run' = IF answered THEN [run EXCEPT ![w] = NoRun] ELSE run
    /\ UNCHANGED <<up, seen, starts, backs>>

\* Only in the twin: the record follows in a transaction of its own, if the worker lives to write it.
ArchiveLater(w, j) ==
    /\ ~OneTransaction /\ w \in up
    /\ live[j] = Gone /\ archive[j] = Gone
    /\ archive' = [archive EXCEPT ![j] = Row("completed", None, None, 0, 0, 0, <<>>, "none")]
    /\ UNCHANGED <<live, run, up, seen, starts, backs, misled>>

\* The heartbeat moves a lease's end, fenced by the token.  Who has lost it learns so here and stops.
Extend(w) ==
    /\ w \in up /\ run[w] # NoRun /\ run[w].phase \in {"claimed", "running"}
    /\ live[run[w].job].token # run[w].token
    /\ run' = [run EXCEPT ![w] = NoRun]
    /\ UNCHANGED <<live, archive, up, seen, starts, backs, misled>>

\* A reaper's look, in a transaction of its own.
Look(j) ==
    /\ live[j].state = "processing"
    /\ seen' = [seen EXCEPT ![j] = LeaseOn(j, live[j])]
    /\ UNCHANGED <<live, archive, run, up, starts, backs, misled>>

\* ... and its settle, in another, any time later.
Reap(j) ==
    /\ seen[j] # NoRun /\ Holds(seen[j])
    /\ Write(seen[j], Decided(seen[j], "lost"))
    /\ UNCHANGED <<run, up, seen, starts, backs, misled>>

Done == \A j \in Jobs : live[j].state \in {"gone", "dead"}
Finished == Done /\ (\A w \in up : run[w] = NoRun) /\ UNCHANGED vars

Next ==
    \/ \E w \in Workers, j \in Jobs : Claim(w, j) \/ ClaimUnanswered(w, j) \/ FindUnknown(w, j)
    \/ \E w \in Workers : Start(w) \/ GiveBack(w) \/ Crash(w) \/ Extend(w)
    \/ \E w \in Workers, result \in Results : End(w, result)
    \/ \E w \in Workers, answered \in BOOLEAN : Settle(w, answered)
    \/ \E w \in Workers, j \in Jobs : ArchiveLater(w, j)
    \/ \E j \in Jobs : Look(j) \/ Reap(j)
    \/ Finished

\* What goes on by itself: living workers claim, run and settle; reapers look and take the leases of the dead.
Orphaned(j) == live[j].state = "processing" /\ live[j].worker \notin up
Fair ==
    /\ \A w \in Workers :
        /\ WF_vars(\E j \in Jobs : Claim(w, j))
        /\ WF_vars(\E j \in Jobs : FindUnknown(w, j))
        /\ WF_vars(Start(w)) /\ WF_vars(Extend(w))
        /\ WF_vars(\E result \in Results : End(w, result))
        /\ WF_vars(Settle(w, TRUE))
    /\ \A j \in Jobs :
        /\ WF_vars(Orphaned(j) /\ Look(j))
        /\ WF_vars(Orphaned(j) /\ Reap(j))

Spec == Init /\ [][Next]_vars /\ Fair

(***************************************************************************)
(* Promises.                                                               *)
(***************************************************************************)
\* 1. An accepted job is not lost: it is in one of the two tables, and only in one.
NotLost == \A j \in Jobs : (live[j] = Gone) # (archive[j] = Gone)

Counted(j) == Cardinality({i \in DOMAIN History(j) : History(j)[i].outcome # "released"})

\* 2. Every attempt that counts has left its record, and no record was overwritten.
EveryAttemptRecorded ==
    \A j \in Jobs :
        live[j].attempts + archive[j].attempts = Counted(j) + (IF live[j].state = "processing" THEN 1 ELSE 0)

\* 3. At most max_attempts runs; free interruptions come on top.
BoundedAttempts ==
    \A j \in Jobs :
        /\ live[j].attempts <= MaxAttempts
        /\ starts[j] <= MaxAttempts + Interruptions

\* 4. A stale worker cannot write, and learns that it was too late.
AnswerIsTrue == ~misled

\* 4. No claim is written about twice.
OneRecordAClaim ==
    \A j \in Jobs : \A i, k \in DOMAIN History(j) :
        i < k => History(j)[i].claim < History(j)[k].claim

\* An ended job does not change any more.
EndedStays == [][\A j \in Jobs : archive[j] # Gone => archive'[j] = archive[j] /\ live'[j] = Gone]_vars

\* Every accepted job ends.
EveryJobEnds == \A j \in Jobs : <>[](live[j].state \in {"gone", "dead"})
=======================================================================
