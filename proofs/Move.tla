---------------------------- MODULE Move ----------------------------
(***************************************************************************)
(* Moving a store: every accepted job is in one store that can be used,    *)
(* whatever is killed, started twice or taken back meanwhile.              *)
(*                                                                         *)
(* Movers are processes that run `move`: they may die anywhere, run again, *)
(* and run at the same time.  Operators run `abort`, which may die as      *)
(* well, and may not reach the target.  Each action is one transaction, or *)
(* one read, on one of the two stores.  A batch is one job here.           *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets

CONSTANTS
    Movers, Aborts,    \* processes that move, and processes that take a move back
    MaxJobs, Runs,     \* jobs that the source accepts; how often each mover is started (bounds)
    \* Switches.  All TRUE is the code.
    Sealed,            \* the source accepts nothing from the moment at which it is closed
    FillFenced,        \* a batch is written only behind the one that this process has seen last
    OpenedLast,        \* the target is opened after the source has said that the jobs have moved
    SourceDecides,     \* a move that is over cannot be taken back
    TargetReadFirst,   \* the target's mark is read before the source's
    ClearFenced        \* a target in which nothing was seen yet is cleared only if that is still so

VARIABLES
    jobs,      \* the source has accepted jobs 1 .. jobs
    source,    \* the source's mark: [id, state]
    target,    \* the target's mark: [id, state], and how far it was copied
    rows,      \* rows[i]: how often job i is in the target
    mover,     \* mover[m]: where the process is, its move, what it has read
    abort      \* abort[a]: the same for an operator's abort

vars == <<jobs, source, target, rows, mover, abort>>

NoMark == [id |-> 0, state |-> "none", copied |-> 0]
Idle == [pc |-> "idle", id |-> 0, mark |-> NoMark, left |-> NoMark, copied |-> 0, runs |-> 0]
Empty == [i \in 1..MaxJobs |-> 0]

Init ==
    /\ jobs = 1 /\ source = NoMark /\ target = NoMark /\ rows = Empty
    /\ mover = [m \in Movers |-> Idle]
    /\ abort = [a \in Aborts |-> Idle]

\* Ids are random in the code: here one more than any that is known.
NewId ==
    1 + (CHOOSE n \in 0..(Cardinality(Movers) * Runs) :
            /\ \A m \in Movers : mover[m].id <= n
            /\ source.id <= n /\ target.id <= n
            /\ n \in {mover[m].id : m \in Movers} \union {source.id, target.id})

Goes(m, pc) == mover' = [mover EXCEPT ![m].pc = pc]
\* A refusal, an error or kill -9: the process ends, the stores stay as they are.
Ends(m) == mover' = [mover EXCEPT ![m] = [Idle EXCEPT !.id = mover[m].id, !.runs = mover[m].runs]]

(***************************************************************************)
(* Producers.  While the source is closing, what runs may end, and may     *)
(* enqueue by its end.                                                     *)
(***************************************************************************)
Accept ==
    /\ jobs < MaxJobs
    /\ source.state \in {"none", "closing"} \union (IF Sealed THEN {} ELSE {"closed"})
    /\ jobs' = jobs + 1
    /\ UNCHANGED <<source, target, rows, mover, abort>>

(***************************************************************************)
(* A mover.                                                                *)
(***************************************************************************)
Start(m) ==
    /\ mover[m].pc = "idle" /\ mover[m].runs < Runs
    /\ mover' = IF TargetReadFirst
                THEN [mover EXCEPT ![m].pc = "look", ![m].left = target, ![m].runs = @ + 1]
                ELSE [mover EXCEPT ![m].pc = "look", ![m].mark = source, ![m].runs = @ + 1]
    /\ UNCHANGED <<jobs, source, target, rows, abort>>

\* Where a run goes on that finds its source in a state.
From(state) == CASE state = "closing" -> "close" [] state = "closed" -> "copy" [] state = "moved" -> "open"

\* Both marks are known.  Is there a move to go on with?  What another one has left in the target is cleared.
Look(m) ==
    LET mark == IF TargetReadFirst THEN source ELSE mover[m].mark
        left == IF TargetReadFirst THEN mover[m].left ELSE target
        seal == IF left.state = "filling" THEN "clear" ELSE "begin target"
        known == [mover[m] EXCEPT !.mark = mark, !.left = left]
    IN
    /\ mover[m].pc = "look"
    /\ IF mark.state = "none" THEN mover' = [mover EXCEPT ![m] = [known EXCEPT !.pc = seal, !.id = NewId]]
       ELSE IF left.id = mark.id THEN mover' = [mover EXCEPT ![m] = [known EXCEPT !.pc = From(mark.state), !.id = mark.id]]
       ELSE IF mark.state = "moved" THEN Ends(m)
       ELSE mover' = [mover EXCEPT ![m] = [known EXCEPT !.pc = seal, !.id = mark.id]]
    /\ UNCHANGED <<jobs, source, target, rows, abort>>

\* A move of which something was copied had begun in the source, and is not there any more: nobody goes on with it.  Of one
\* of which nothing was copied yet that is not known: it is cleared only as long as nothing is.
Cleared(left, takenBack) ==
    /\ target.id = left.id /\ target.state = "filling"
    /\ ClearFenced /\ left.copied = 0 /\ ~takenBack => target.copied = 0
ClearTarget(left, takenBack) ==
    IF Cleared(left, takenBack) THEN target' = NoMark /\ rows' = Empty ELSE UNCHANGED <<target, rows>>

Clear(m) ==
    /\ mover[m].pc = "clear"
    /\ ClearTarget(mover[m].left, FALSE)
    /\ IF Cleared(mover[m].left, FALSE) THEN Goes(m, "begin target") ELSE Ends(m)
    /\ UNCHANGED <<jobs, source, abort>>

\* Refused if it is being filled, or holds anything.
BeginTarget(m) ==
    /\ mover[m].pc = "begin target"
    /\ IF target = NoMark
       THEN /\ target' = [id |-> mover[m].id, state |-> "filling", copied |-> 0]
            /\ Goes(m, IF mover[m].mark.state = "none" THEN "begin source" ELSE From(mover[m].mark.state))
       ELSE Ends(m) /\ UNCHANGED target
    /\ UNCHANGED <<jobs, source, rows, abort>>

\* Refused if a move has begun.
BeginSource(m) ==
    /\ mover[m].pc = "begin source"
    /\ IF source = NoMark
       THEN source' = [id |-> mover[m].id, state |-> "closing", copied |-> 0] /\ Goes(m, "close")
       ELSE Ends(m) /\ UNCHANGED source
    /\ UNCHANGED <<jobs, target, rows, abort>>

\* The source's mark goes on, if it is this move's and where it should be.
Change(m, before, after, then) ==
    IF source.id = mover[m].id /\ source.state = before
    THEN source' = [source EXCEPT !.state = after] /\ Goes(m, then)
    ELSE Ends(m) /\ UNCHANGED source

Close(m) ==
    /\ mover[m].pc = "close"
    /\ Change(m, "closing", "closed", "copy")
    /\ UNCHANGED <<jobs, target, rows, abort>>

Filling(m) == target.id = mover[m].id /\ target.state = "filling"

Copy(m) ==
    /\ mover[m].pc = "copy"
    /\ IF Filling(m) THEN mover' = [mover EXCEPT ![m].pc = "fill", ![m].copied = target.copied] ELSE Ends(m)
    /\ UNCHANGED <<jobs, source, target, rows, abort>>

\* The next batch is read from the source, then written to the target with how far it is by then.
Fill(m) ==
    LET next == mover[m].copied + 1 IN
    /\ mover[m].pc = "fill"
    /\ IF next > jobs THEN Goes(m, "compare") /\ UNCHANGED <<target, rows>>
       ELSE IF Filling(m) /\ (FillFenced => target.copied = mover[m].copied)
       THEN /\ target' = [target EXCEPT !.copied = next]
            /\ rows' = [rows EXCEPT ![next] = @ + 1]
            /\ mover' = [mover EXCEPT ![m].copied = next]
       ELSE Ends(m) /\ UNCHANGED <<target, rows>>
    /\ UNCHANGED <<jobs, source, abort>>

Compare(m) ==
    /\ mover[m].pc = "compare"
    /\ IF \A i \in 1..MaxJobs : rows[i] = (IF i <= jobs THEN 1 ELSE 0)
       THEN Goes(m, IF OpenedLast THEN "moved" ELSE "open") ELSE Ends(m)
    /\ UNCHANGED <<jobs, source, target, rows, abort>>

\* From here on the jobs are the target's.
Moved(m) ==
    /\ mover[m].pc = "moved"
    /\ Change(m, "closed", "moved", IF OpenedLast THEN "open" ELSE "done")
    /\ UNCHANGED <<jobs, target, rows, abort>>

Open(m) ==
    /\ mover[m].pc = "open"
    /\ target' = IF Filling(m) THEN [target EXCEPT !.state = "filled"] ELSE target
    /\ Goes(m, IF OpenedLast THEN "done" ELSE "moved")
    /\ UNCHANGED <<jobs, source, rows, abort>>

Crash(m) ==
    /\ mover[m].pc # "idle"
    /\ Ends(m)
    /\ UNCHANGED <<jobs, source, target, rows, abort>>

(***************************************************************************)
(* An operator takes a move back.                                          *)
(***************************************************************************)
\* The target may be out of reach: then nothing of it is cleared.
Asks(a, reached) ==
    /\ abort[a].pc = "idle"
    /\ abort' = IF TargetReadFirst
                THEN [abort EXCEPT ![a].pc = "look", ![a].left = IF reached THEN target ELSE NoMark]
                ELSE [abort EXCEPT ![a].pc = "look", ![a].mark = source]
    /\ UNCHANGED <<jobs, source, target, rows, mover>>

Looks(a) ==
    LET mark == IF TargetReadFirst THEN source ELSE abort[a].mark
        left == IF TargetReadFirst THEN abort[a].left ELSE target
    IN
    /\ abort[a].pc = "look"
    /\ abort' = [abort EXCEPT ![a].pc = IF mark.state = "moved" THEN "done" ELSE "take back",
                              ![a].mark = mark, ![a].left = left]
    /\ UNCHANGED <<jobs, source, target, rows, mover>>

TakesBack(a) ==
    LET mark == abort[a].mark
        may == source.id = mark.id /\ (SourceDecides => source.state \in {"closing", "closed"}) IN
    /\ abort[a].pc = "take back"
    /\ IF mark = NoMark THEN UNCHANGED source /\ abort' = [abort EXCEPT ![a].pc = "clear"]
       ELSE IF may THEN source' = NoMark /\ abort' = [abort EXCEPT ![a].pc = "clear"]
       ELSE UNCHANGED source /\ abort' = [abort EXCEPT ![a].pc = "done"]
    /\ UNCHANGED <<jobs, target, rows, mover>>

Clears(a) ==
    LET left == abort[a].left IN
    /\ abort[a].pc = "clear"
    /\ IF left.state # "filling" THEN UNCHANGED <<target, rows>> ELSE ClearTarget(left, left.id = abort[a].mark.id)
    /\ abort' = [abort EXCEPT ![a].pc = "done"]
    /\ UNCHANGED <<jobs, source, mover>>

Dies(a) ==
    /\ abort[a].pc \notin {"idle", "done"}
    /\ abort' = [abort EXCEPT ![a].pc = "done"]
    /\ UNCHANGED <<jobs, source, target, rows, mover>>

Next ==
    \/ Accept
    \/ \E m \in Movers : Start(m) \/ Look(m) \/ Clear(m) \/ BeginTarget(m) \/ BeginSource(m)
    \/ \E m \in Movers : Close(m) \/ Copy(m) \/ Fill(m) \/ Compare(m) \/ Moved(m) \/ Open(m) \/ Crash(m)
    \/ \E a \in Aborts : Looks(a) \/ TakesBack(a) \/ Clears(a) \/ Dies(a)
    \/ \E a \in Aborts, reached \in BOOLEAN : Asks(a, reached)
    \/ UNCHANGED vars

Spec == Init /\ [][Next]_vars

(***************************************************************************)
(* Promises.                                                               *)
(***************************************************************************)
\* Never do both stores take jobs.
OneHome == ~(source.state \in {"none", "closing"} /\ target.state = "filled")

\* Once the jobs have moved, the target has all that the source has accepted, each once.
NotLost == source.state = "moved" => \A i \in 1..jobs : rows[i] = 1

\* The target is opened only with everything in it.
OpenIsWhole == target.state = "filled" => \A i \in 1..jobs : rows[i] = 1

\* What has moved stays moved.
MovedStays == [][source.state = "moved" => source' = source]_vars
=======================================================================
