---------------------------- MODULE Chains ----------------------------
(***************************************************************************)
(* Batches and dependents: what follows when jobs end at the same time.    *)
(*                                                                         *)
(* All jobs belong to one batch.  One more job, the child, depends on the  *)
(* parents; it is cancelled if one of them dies.  Each job ends in a       *)
(* transaction of several statements, as on PostgreSQL: until the commit   *)
(* nobody else sees what it wrote, and rows that it wrote are locked.      *)
(* (SQLite has one writer at a time: a special case.)  The sweep that      *)
(* repairs what an older release has left is not part of this model: the   *)
(* promises must hold without it.                                          *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets

CONSTANTS
    Parents,        \* jobs that the child depends on, members of the batch
    Late,           \* jobs that are added to the batch while it runs
    \* Switches.  All TRUE is the code.
    ParentLocked,   \* who enqueues a child locks each parent before it looks at its state
    InPlace,        \* the child's counter is decreased by the update itself, not from a value read before
    BatchLocked,    \* the batch is locked before anybody looks whether it goes on
    Rechecked       \* a batch that is closed is not closed again

Jobs == Parents \union Late
Free == "free"

VARIABLES
    \* committed, and seen by all
    state,      \* state[j]: "none", "running" (or still to run), "completed", "dead"
    child,      \* "none", "waiting", "due", "cancelled"
    waits,      \* the child's waits_for
    deps,       \* table dependencies: the parents that the child waits for
    closed,     \* the batch is finished
    thens,      \* how many follow-up jobs were stored
    replayed,   \* jobs that operators have replayed after they had died
    \* transactions under way
    pc, fate,   \* pc[j], fate[j]: where the transaction is that ends job j, and how the job ends
    seen,       \* seen[j]: the child's counter as j's transaction has read it
    does,       \* does[j]: what j's transaction has written: "release", "cancel", "close"
    attach,     \* the transaction that enqueues the child: where it is, parents to look at, parents not ended
    extend,     \* the job that a transaction is adding to the batch, or Free
    rows, childRow, batchRow   \* who has locked each job's row, the child's, and the batch's

committed == <<state, child, waits, deps, closed, thens, replayed>>
vars == <<committed, pc, fate, seen, does, attach, extend, rows, childRow, batchRow>>

Init ==
    /\ state = [j \in Jobs |-> IF j \in Parents THEN "running" ELSE "none"]
    /\ child = "none" /\ waits = 0 /\ deps = {} /\ closed = FALSE /\ thens = 0 /\ replayed = {}
    /\ pc = [j \in Jobs |-> "none"] /\ fate = [j \in Jobs |-> "none"]
    /\ seen = [j \in Jobs |-> 0] /\ does = [j \in Jobs |-> {}]
    /\ attach = [pc |-> "none", todo |-> Parents, unmet |-> {}, dead |-> FALSE]
    /\ extend = Free
    /\ rows = [j \in Jobs |-> Free] /\ childRow = Free /\ batchRow = Free

(***************************************************************************)
(* A job ends.                                                             *)
(***************************************************************************)
\* Its row is locked by the update that ends it, fenced by the token (Lease.tla).
Finish(j, how) ==
    /\ state[j] = "running" /\ pc[j] = "none" /\ rows[j] = Free
    /\ rows' = [rows EXCEPT ![j] = j]
    /\ pc' = [pc EXCEPT ![j] = "dependents"] /\ fate' = [fate EXCEPT ![j] = how]
    /\ UNCHANGED <<committed, seen, does, attach, extend, childRow, batchRow>>

\* Who waits for it?
Dependents(j) ==
    /\ pc[j] = "dependents"
    /\ pc' = [pc EXCEPT ![j] = IF j \notin deps THEN "batch" ELSE IF fate[j] = "completed" THEN "release" ELSE "cancel"]
    /\ seen' = [seen EXCEPT ![j] = waits]
    /\ UNCHANGED <<committed, fate, does, attach, extend, rows, childRow, batchRow>>

\* remove_dependency and release_dependent.  The update waits for who has locked the child, and then sees what they wrote.
Release(j) ==
    /\ pc[j] = "release" /\ (InPlace => childRow = Free)
    /\ IF j \in deps
       THEN /\ does' = [does EXCEPT ![j] = @ \union {"release"}]
            /\ childRow' = IF InPlace THEN j ELSE childRow
       ELSE UNCHANGED <<does, childRow>>
    /\ pc' = [pc EXCEPT ![j] = "batch"]
    /\ UNCHANGED <<committed, fate, seen, attach, extend, rows, batchRow>>

\* forget_parents, and the child's end.
CancelChild(j) ==
    /\ pc[j] = "cancel" /\ childRow = Free
    /\ IF deps # {}
       THEN /\ does' = [does EXCEPT ![j] = @ \union {"cancel"}]
            /\ childRow' = j
       ELSE UNCHANGED <<does, childRow>>
    /\ pc' = [pc EXCEPT ![j] = "batch"]
    /\ UNCHANGED <<committed, fate, seen, attach, extend, rows, batchRow>>

LockBatch(j) ==
    /\ pc[j] = "batch" /\ (BatchLocked => batchRow = Free)
    /\ batchRow' = IF BatchLocked THEN j ELSE batchRow
    /\ pc' = [pc EXCEPT ![j] = IF closed /\ Rechecked THEN "commit" ELSE "goes on?"]
    /\ UNCHANGED <<committed, fate, seen, does, attach, extend, rows, childRow>>

\* A statement of its own, so it sees what was committed while the lock was waited for.
GoesOn(j) ==
    /\ pc[j] = "goes on?"
    /\ does' = IF \E k \in Jobs \ {j} : state[k] = "running" THEN does ELSE [does EXCEPT ![j] = @ \union {"close"}]
    /\ pc' = [pc EXCEPT ![j] = "commit"]
    /\ UNCHANGED <<committed, fate, seen, attach, extend, rows, childRow, batchRow>>

Unlock(j) ==
    /\ rows' = [k \in Jobs |-> IF rows[k] = j THEN Free ELSE rows[k]]
    /\ childRow' = IF childRow = j THEN Free ELSE childRow
    /\ batchRow' = IF batchRow = j THEN Free ELSE batchRow

Commit(j) ==
    LET left == IF InPlace THEN waits - 1 ELSE seen[j] - 1 IN
    /\ pc[j] = "commit"
    /\ state' = [state EXCEPT ![j] = fate[j]]
    /\ waits' = IF "release" \in does[j] THEN left ELSE IF "cancel" \in does[j] THEN 0 ELSE waits
    /\ deps' = IF "cancel" \in does[j] THEN {} ELSE IF "release" \in does[j] THEN deps \ {j} ELSE deps
    /\ child' = IF "cancel" \in does[j] /\ child = "waiting" THEN "cancelled"
                ELSE IF "release" \in does[j] /\ left = 0 /\ child = "waiting" THEN "due" ELSE child
    /\ closed' = (closed \/ "close" \in does[j])
    /\ thens' = thens + (IF "close" \in does[j] THEN 1 ELSE 0)
    /\ Unlock(j)
    /\ pc' = [pc EXCEPT ![j] = "none"] /\ does' = [does EXCEPT ![j] = {}]
    /\ UNCHANGED <<replayed, fate, seen, attach, extend>>

\* The worker dies, or the server ends a deadlock: nothing is written, and the job will be settled again.
Abort(j) ==
    /\ pc[j] # "none"
    /\ Unlock(j)
    /\ pc' = [pc EXCEPT ![j] = "none"] /\ does' = [does EXCEPT ![j] = {}]
    /\ UNCHANGED <<committed, fate, seen, attach, extend>>

\* An operator replays a dead job, once: it runs again, and ends again.
Replay(j) ==
    /\ state[j] = "dead" /\ pc[j] = "none" /\ rows[j] = Free /\ j \notin replayed
    /\ state' = [state EXCEPT ![j] = "running"]
    /\ replayed' = replayed \union {j}
    /\ UNCHANGED <<child, waits, deps, closed, thens, pc, fate, seen, does, attach, extend, rows, childRow, batchRow>>

(***************************************************************************)
(* The child is enqueued, while its parents end.                           *)
(***************************************************************************)
Attach ==
    /\ child = "none" /\ attach.pc = "none"
    /\ attach' = [attach EXCEPT !.pc = "parents"]
    /\ UNCHANGED <<committed, pc, fate, seen, does, extend, rows, childRow, batchRow>>

\* lock_job waits for who ends the parent, and then sees that it has ended.
LookAt(p) ==
    /\ attach.pc = "parents" /\ p \in attach.todo /\ (ParentLocked => rows[p] = Free)
    /\ rows' = IF ParentLocked THEN [rows EXCEPT ![p] = "child"] ELSE rows
    /\ attach' = [attach EXCEPT !.todo = @ \ {p}, !.dead = @ \/ state[p] = "dead",
                                !.unmet = IF state[p] = "running" THEN @ \union {p} ELSE @]
    /\ UNCHANGED <<committed, pc, fate, seen, does, extend, childRow, batchRow>>

Attached ==
    /\ attach.pc = "parents" /\ attach.todo = {}
    /\ child' = IF attach.dead THEN "cancelled" ELSE IF attach.unmet = {} THEN "due" ELSE "waiting"
    /\ deps' = IF attach.dead THEN {} ELSE attach.unmet
    /\ waits' = Cardinality(deps')
    /\ rows' = [k \in Jobs |-> IF rows[k] = "child" THEN Free ELSE rows[k]]
    /\ attach' = [attach EXCEPT !.pc = "done"]
    /\ UNCHANGED <<state, closed, thens, replayed, pc, fate, seen, does, extend, childRow, batchRow>>

(***************************************************************************)
(* A job is added to the batch, as long as that has not ended.             *)
(***************************************************************************)
Extend(j) ==
    /\ j \in Late /\ state[j] = "none" /\ extend = Free /\ ~closed
    /\ (BatchLocked => batchRow = Free)
    /\ batchRow' = IF BatchLocked THEN "extend" ELSE batchRow
    /\ extend' = j
    /\ UNCHANGED <<committed, pc, fate, seen, does, attach, rows, childRow>>

Extended ==
    /\ extend # Free
    /\ state' = [state EXCEPT ![extend] = "running"]
    /\ extend' = Free
    /\ batchRow' = IF batchRow = "extend" THEN Free ELSE batchRow
    /\ UNCHANGED <<child, waits, deps, closed, thens, replayed, pc, fate, seen, does, attach, rows, childRow>>

Next ==
    \/ \E j \in Jobs, how \in {"completed", "dead"} : Finish(j, how)
    \/ \E j \in Jobs : Dependents(j) \/ Release(j) \/ CancelChild(j) \/ LockBatch(j) \/ GoesOn(j) \/ Commit(j)
    \/ \E j \in Jobs : Abort(j) \/ Replay(j)
    \/ Attach \/ Attached \/ (\E p \in Parents : LookAt(p))
    \/ Extended \/ (\E j \in Jobs : Extend(j))
    \/ UNCHANGED vars

Spec == Init /\ [][Next]_vars

(***************************************************************************)
(* Promises.                                                               *)
(***************************************************************************)
Quiet == (\A j \in Jobs : pc[j] = "none") /\ extend = Free
AllEnded == \A j \in Jobs : state[j] # "running"

\* Nothing waits for a job that has ended.
NoOneWaitsForTheEnded == \A p \in deps : state[p] = "running"

\* The child waits for as many parents as have not ended, and for no more.
CounterIsRight == child = "waiting" => waits = Cardinality(deps) /\ waits > 0

\* It runs only after all its parents have completed, and is cancelled only for a dead one.
RunsAfterItsParents ==
    /\ child = "due" => \A p \in Parents : state[p] = "completed"
    /\ child = "cancelled" => \E p \in Parents : state[p] = "dead" \/ p \in replayed

\* A batch that is closed has ended (only replayed jobs may run again), one that has ended is closed, and what
\* follows it follows once.
ClosedHasEnded == closed => \A j \in Jobs \ replayed : state[j] # "running"
EndedIsClosed == Quiet /\ AllEnded => closed
OneFollowUp == thens <= 1
=======================================================================
