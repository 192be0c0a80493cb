---------------------------- MODULE Cancel ----------------------------
(***************************************************************************)
(* Settle against cancel: what operators do to a job while a worker runs   *)
(* it, a reaper takes it, and answers get lost.                            *)
(*                                                                         *)
(* An operator's verb is one transaction that locks the row.  A pending    *)
(* job ends at once.  A running one only gets a request: whoever holds its *)
(* lease settles.  On PostgreSQL a settle that would put the job back is   *)
(* refused by a request and comes again with what was asked for: two       *)
(* transactions, and anything may happen between them.  (SQLite does both  *)
(* in one, which is a special case.)                                       *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
    Workers, Reapers,  \* worker processes; those of them that reap at this moment
    Asks,              \* requests of operators, each with its request_id
    MaxAttempts,
    \* Switches.  All TRUE is the code.
    RowLocked,         \* an operator's verb locks the row before it looks at the job's state
    RequestStands,     \* a settle does not put back a job that somebody asked to stop
    RequestsKnown      \* a request that comes again is known by its request_id

VARIABLES
    job,      \* the job's row, live or archived
    run,      \* run[w]: the lease that worker w holds in memory, its outcome if it has ended
    reaper,   \* reaper[r]: the lease that a reaper saw, and what it is about to write
    ask,      \* ask[r]: the verb of request r, and the state that an unlocked look saw
    acted     \* acted[r]: how often request r took effect      (only to check promises)

vars == <<job, run, reaper, ask, acted>>

Nothing == [token |-> 0, attempts |-> 0, outcome |-> "none"]
Verbs == {"cancel", "bury", "replay", "discard"}
Archived == {"completed", "cancelled", "discarded"}
Ended == Archived \union {"dead"}

Init ==
    /\ job = [state |-> "pending", token |-> 0, claims |-> 0, attempts |-> 0, request |-> "none", changes |-> {}]
    /\ run = [w \in Workers |-> Nothing]
    /\ reaper = [r \in Reapers |-> Nothing]
    /\ ask = [r \in Asks |-> [verb |-> "none", saw |-> "nothing"]]
    /\ acted = [r \in Asks |-> 0]

(***************************************************************************)
(* Workers.                                                                *)
(***************************************************************************)
Claim(w) ==
    /\ run[w] = Nothing /\ job.state = "pending"
    /\ job' = [job EXCEPT !.state = "processing", !.token = job.claims + 1, !.claims = @ + 1, !.attempts = @ + 1]
    /\ run' = [run EXCEPT ![w] = [token |-> job'.token, attempts |-> job'.attempts, outcome |-> "none"]]
    /\ UNCHANGED <<reaper, ask, acted>>

Again(lease) == IF lease.attempts >= MaxAttempts THEN "dead" ELSE "retry"

\* The handler returns, raises, or says that no attempt can help.
End(w, outcome) ==
    /\ run[w] # Nothing /\ run[w].outcome = "none"
    /\ run' = [run EXCEPT ![w].outcome = outcome]
    /\ UNCHANGED <<job, reaper, ask, acted>>

Stopped(request) == IF request = "cancel" THEN "cancelled" ELSE "dead"

\* A look tells the worker what was asked of its lease, and it stops the handler.
Stop(w) ==
    /\ run[w] # Nothing /\ run[w].outcome = "none"
    /\ job.token = run[w].token /\ job.request # "none"
    /\ run' = [run EXCEPT ![w].outcome = Stopped(job.request)]
    /\ UNCHANGED <<job, reaper, ask, acted>>

Crash(w) ==
    /\ run[w] # Nothing
    /\ run' = [run EXCEPT ![w] = Nothing]
    /\ UNCHANGED <<job, reaper, ask, acted>>

(***************************************************************************)
(* Settle, by a worker or a reaper: fenced by the token.                   *)
(***************************************************************************)
Holds(lease) == job.state = "processing" /\ job.token = lease.token
PutsBack(lease) == lease.outcome = "retry"
Refused(lease) == RequestStands /\ PutsBack(lease) /\ job.request # "none"

Written(lease) ==
    [job EXCEPT !.state = IF PutsBack(lease) THEN "pending" ELSE lease.outcome, !.token = 0, !.request = "none"]

\* The first of the two transactions finds a request, writes nothing, and the outcome becomes what was asked for.
\* Else the outcome is written, or the lease was lost.  Without an answer the worker settles again.
Settle(w, answered) ==
    /\ run[w].outcome # "none"
    /\ IF Holds(run[w]) /\ Refused(run[w])
       THEN /\ run' = IF answered THEN [run EXCEPT ![w].outcome = Stopped(job.request)] ELSE run
            /\ UNCHANGED job
       ELSE /\ job' = IF Holds(run[w]) THEN Written(run[w]) ELSE job
            /\ run' = IF answered THEN [run EXCEPT ![w] = Nothing] ELSE run
    /\ UNCHANGED <<reaper, ask, acted>>

Look(r) ==
    /\ job.state = "processing" /\ reaper[r] = Nothing
    /\ LET lease == [token |-> job.token, attempts |-> job.attempts] IN
       reaper' = [reaper EXCEPT ![r] = [outcome |-> Again(lease)] @@ lease]
    /\ UNCHANGED <<job, run, ask, acted>>

Reap(r) ==
    /\ reaper[r] # Nothing
    /\ IF Holds(reaper[r]) /\ Refused(reaper[r])
       THEN /\ reaper' = [reaper EXCEPT ![r].outcome = Stopped(job.request)]
            /\ UNCHANGED job
       ELSE /\ job' = IF Holds(reaper[r]) THEN Written(reaper[r]) ELSE job
            /\ reaper' = [reaper EXCEPT ![r] = Nothing]
    /\ UNCHANGED <<run, ask, acted>>

(***************************************************************************)
(* Operators.  A verb that is not for the job's state is refused.          *)
(***************************************************************************)
\* What a verb makes of a job that is seen in a state.
Effect(verb, state) ==
    CASE verb = "cancel" /\ state = "pending"    -> [job EXCEPT !.state = "cancelled"]
      [] verb = "bury" /\ state = "pending"      -> [job EXCEPT !.state = "dead"]
      [] verb \in {"cancel", "bury"} /\ state = "processing" -> [job EXCEPT !.request = verb]
      [] verb = "replay" /\ state = "dead"       -> [job EXCEPT !.state = "pending", !.attempts = 0]
      [] verb = "discard" /\ state = "dead"      -> [job EXCEPT !.state = "discarded"]
      [] OTHER                                   -> job

Do(r, verb, state) ==
    LET known == RequestsKnown /\ r \in job.changes
        after == IF known THEN job ELSE Effect(verb, state) IN
    /\ job' = IF after = job THEN job ELSE [after EXCEPT !.changes = @ \union {r}]
    /\ acted' = IF after = job THEN acted ELSE [acted EXCEPT ![r] = @ + 1]

\* The verb, in one transaction.  A request whose answer was lost is sent again: the same verb, the same id.
Act(r, verb) ==
    /\ RowLocked
    /\ ask[r].verb \in {"none", verb}
    /\ ask' = [ask EXCEPT ![r].verb = verb]
    /\ Do(r, verb, job.state)
    /\ UNCHANGED <<run, reaper>>

\* Only in the twin: a look without a lock, and a write that believes it.
Peek(r, verb) ==
    /\ ~RowLocked /\ ask[r].verb = "none"
    /\ ask' = [ask EXCEPT ![r] = [verb |-> verb, saw |-> job.state]]
    /\ UNCHANGED <<job, run, reaper, acted>>

Poke(r) ==
    /\ ~RowLocked /\ ask[r].saw # "nothing"
    /\ Do(r, ask[r].verb, ask[r].saw)
    /\ ask' = [ask EXCEPT ![r].saw = "nothing"]
    /\ UNCHANGED <<run, reaper>>

\* Nothing is left to do but what operators may ask.
Finished ==
    /\ job.state \in Ended /\ (\A r \in Reapers : reaper[r] = Nothing) /\ (\A w \in Workers : run[w] = Nothing)
    /\ UNCHANGED vars

Next ==
    \/ \E w \in Workers : Claim(w) \/ Stop(w) \/ Crash(w)
    \/ \E w \in Workers : \E outcome \in {"completed", "dead", Again(run[w])} : End(w, outcome)
    \/ \E w \in Workers, answered \in BOOLEAN : Settle(w, answered)
    \/ \E r \in Reapers : Look(r) \/ Reap(r)
    \/ \E r \in Asks, verb \in Verbs : Act(r, verb) \/ Peek(r, verb)
    \/ \E r \in Asks : Poke(r)
    \/ Finished

Fair ==
    /\ \A w \in Workers : WF_vars(Claim(w)) /\ WF_vars(Settle(w, TRUE))
    /\ \A w \in Workers : WF_vars(\E outcome \in {"completed", "dead", Again(run[w])} : End(w, outcome))
    /\ \A r \in Reapers : WF_vars((\A w \in Workers : run[w].token # job.token) /\ Look(r)) /\ WF_vars(Reap(r))

Spec == Init /\ [][Next]_vars /\ Fair

(***************************************************************************)
(* Promises.                                                               *)
(***************************************************************************)
TypeOK == /\ job.state \in {"pending", "processing"} \union Ended
          /\ job.request \in {"none", "cancel", "bury"}

\* A request acts once, however often it is sent.
OnceARequest == \A r \in Asks : acted[r] <= 1

\* A request stands only beside a lease: it is never left on a job that waits, to stop a later run.
RequestNeedsLease == job.request # "none" => job.state = "processing"

\* What ended stays as it ended.
EndedStays == [][job.state \in Archived => job' = job]_vars

\* A job that somebody asked to stop is not put back: no settle makes it pending.
StoppedIsNotPutBack ==
    [][job.request # "none" /\ job'.request = "none" => job'.state \in Ended]_vars

\* Every job ends, and so does every one that was asked to stop.
EveryJobEnds == []<>(job.state \in Ended)
=======================================================================
