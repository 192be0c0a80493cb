---------------------------- MODULE WhoIsDead ----------------------------
(***************************************************************************)
(* Who is dead: promises 5 and 6 of docs/guarantees.md.                    *)
(*                                                                         *)
(* Time passes in seconds, with the numbers of the code.  In each second   *)
(* every worker may run or not (frozen, without CPU, cut off), the store   *)
(* may be there or not, and the store's clock may jump so that every lease *)
(* seems to have run out.  A worker that runs beats, looks and keeps its   *)
(* lease (heartbeat.py); then its reaper judges the look, on a thread of   *)
(* its own and perhaps seconds later (membership.py, reaper.py), and then  *)
(* it declares workers dead, in one more transaction.                      *)
(*                                                                         *)
(* A second counts as missed by a worker if it did not run although the    *)
(* store was there and somebody else ran.  Outages and freezes of all at   *)
(* once are missed by nobody.                                              *)
(***************************************************************************)
EXTENDS Integers, FiniteSets

CONSTANTS
    Workers, Watchers,   \* those of the workers whose reaper is modelled
    Patience,            \* whole seconds that a worker must have missed before it may be declared dead, where
                         \* the store comes and goes ...
    SteadyPatience,      \* ... and where it was there all the time
    Recovery,            \* seconds within which a killed worker must be declared dead
    Outages, Jumps, Deaths,   \* whether the store goes away, clocks jump, workers are killed (bounds of the model)
    \* Switches.  All TRUE is the code.
    OwnPulse,            \* silence counts only while the watcher's own beats are committed
    StepCapped,          \* one check adds two seconds of silence at most (else five)
    BeatFenced,          \* a worker is declared dead by the beat that was seen
    RenewalWatched       \* an expired lease is reaped only after it was seen unrenewed for ten seconds

\* The numbers of the code.
BeatEvery == 2           \* _BEAT_SECONDS, in whole seconds
SureWithin == 6          \* SURE_WITHIN
WellWithin == 3          \* WELL_WITHIN
MostPerCheck == 2        \* MOST_PER_CHECK
DeadAfter == 10          \* DEAD_AFTER, UNRENEWED_AFTER

VARIABLES
    there,      \* the store can be reached in this second
    ran,        \* workers that have run in this second
    gone,       \* workers that were killed
    row,        \* row[w]: "alive" or "dead", as the fleet's table says of the worker's present id
    sent,       \* sent[w]: seconds since its last committed beat was sent
    gap,        \* gap[w]: its beats had a gap, of which its reaper does not know yet
    expired,    \* expired[w]: its lease is past its end, by the store's clock
    reaped,     \* reaped[w]: its lease was taken from it as unrenewed
    look,       \* look[v]: the look that waits for v's reaper
    checked,    \* checked[v]: seconds since v's reaper last judged
    silent,     \* silent[v][w]: seconds for which v's reaper has counted the beat of w as unmoved
    moved,      \* moved[v][w]: w has beaten since the look that was judged last
    since,      \* since[v][w]: w has beaten since v's last look
    unrenewed,  \* unrenewed[v][w]: the same as silent for the lease of w; -1: not seen expired
    accused,    \* accused[v][w]: v's reaper is about to declare w dead ("moved": w has beaten since the look)
    missed,     \* missed[w]: seconds that w has missed since it ran last     (only to check promises)
    steady,     \* steady[w]: since then the store was there and somebody ran in every second         (ditto)
    torn,       \* torn[v][w]: v's own beats had a gap while it counted the silence of w               (ditto)
    waited      \* waited[w]: seconds since w was killed in which all watchers ran and judged  (ditto)

beats == <<row, sent, gap>>
leases == <<expired, reaped>>
watch == <<look, checked, silent, moved, since, unrenewed, accused>>
vars == <<there, ran, gone, beats, leases, watch, missed, steady, torn, waited>>

Others(w) == Workers \ {w}
Least(a, b) == IF a < b THEN a ELSE b
NoLook == [new |-> FALSE, sent |-> 0, gap |-> FALSE, expired |-> FALSE]
Each(value) == [w \in Workers |-> value]
EachPair(value) == [v \in Watchers |-> Each(value)]

Init ==
    /\ there = TRUE /\ ran = {} /\ gone = {}
    /\ row = Each("alive") /\ sent = Each(0) /\ gap = Each(FALSE)
    /\ expired = Each(FALSE) /\ reaped = Each(FALSE)
    /\ look = [v \in Watchers |-> NoLook] /\ checked = [v \in Watchers |-> 0]
    /\ silent = EachPair(0) /\ moved = EachPair(TRUE) /\ since = EachPair(FALSE)
    /\ unrenewed = EachPair(-1) /\ accused = EachPair("no")
    /\ missed = Each(0) /\ steady = Each(TRUE) /\ torn = EachPair(FALSE) /\ waited = Each(0)

(***************************************************************************)
(* One tick of a worker's heartbeat: beat if it is time, look, keep the    *)
(* lease.  One that was declared dead learns it from its beat and joins    *)
(* again under a new id.                                                   *)
(***************************************************************************)
Run(w) ==
    LET beat == sent[w] >= BeatEvery
        broke == beat /\ (sent[w] > WellWithin \/ row[w] = "dead")
        renew == expired[w] \/ reaped[w] \/ broke
    IN
    /\ there /\ w \notin ran /\ w \notin gone
    /\ ran' = ran \union {w}
    /\ row' = IF beat THEN [row EXCEPT ![w] = "alive"] ELSE row
    /\ sent' = IF beat THEN [sent EXCEPT ![w] = 0] ELSE sent
    /\ gap' = [gap EXCEPT ![w] = @ \/ broke]
    /\ expired' = IF renew THEN [expired EXCEPT ![w] = FALSE] ELSE expired
    /\ reaped' = [reaped EXCEPT ![w] = FALSE]
    /\ unrenewed' = [v \in Watchers |-> IF renew THEN [unrenewed[v] EXCEPT ![w] = -1] ELSE unrenewed[v]]
    /\ accused' = [v \in Watchers |->
                    [accused[v] EXCEPT ![w] = IF beat /\ @ = "yes" THEN "moved" ELSE @]]
    /\ since' = [v \in Watchers |-> IF v = w THEN Each(FALSE)
                                    ELSE [since[v] EXCEPT ![w] = @ \/ beat]]
    /\ moved' = [v \in Watchers |-> IF v = w THEN [x \in Workers |-> moved[v][x] \/ since[v][x]] ELSE moved[v]]
    /\ look' = [v \in Watchers |->
                 IF v = w THEN [new |-> TRUE, sent |-> sent'[w], gap |-> gap'[w],
                                expired |-> \E x \in Workers : expired'[x]]
                 ELSE look[v]]
    /\ missed' = [missed EXCEPT ![w] = 0]
    /\ steady' = [steady EXCEPT ![w] = TRUE]
    /\ UNCHANGED <<there, gone, checked, silent, torn, waited>>

(***************************************************************************)
(* The reaper judges the newest look.                                      *)
(***************************************************************************)
\* How much silence this check may add to whoever stands still.
Broken(v) == OwnPulse /\ (look[v].sent > WellWithin \/ look[v].gap)
Step(v) == IF Broken(v) THEN 0 ELSE IF StepCapped THEN Least(checked[v], MostPerCheck) ELSE checked[v]

Counted(v, known, still) ==
    IF ~still THEN 0 ELSE IF Broken(v) THEN 0 ELSE Least(known + Step(v), DeadAfter)

Judge(v) ==
    /\ look[v].new /\ v \notin gone
    /\ \A w \in Workers : accused[v][w] = "no"
    /\ silent' = [silent EXCEPT ![v] = [w \in Workers |->
                    IF w = v THEN 0 ELSE Counted(v, silent[v][w], ~moved[v][w])]]
    /\ unrenewed' = [unrenewed EXCEPT ![v] = [w \in Workers |->
                    IF ~look[v].expired \/ ~expired[w] THEN -1
                    ELSE Counted(v, unrenewed[v][w], unrenewed[v][w] # -1)]]
    /\ accused' = [accused EXCEPT ![v] = [w \in Workers |->
                    IF w # v /\ row[w] = "alive" /\ silent'[v][w] >= DeadAfter
                    THEN IF since[v][w] THEN "moved" ELSE "yes"
                    ELSE "no"]]
    \* The expired leases are read by the judge itself, and settled at once.
    /\ LET given == {w \in Workers : ~reaped[w] /\ unrenewed'[v][w] >= (IF RenewalWatched THEN DeadAfter ELSE 0)} IN
       /\ reaped' = [w \in Workers |-> reaped[w] \/ w \in given]
       /\ expired' = [w \in Workers |-> expired[w] /\ w \notin given]
    /\ gap' = IF look[v].gap THEN [gap EXCEPT ![v] = FALSE] ELSE gap
    /\ moved' = [moved EXCEPT ![v] = Each(FALSE)]
    /\ look' = [look EXCEPT ![v] = NoLook]
    /\ checked' = [checked EXCEPT ![v] = 0]
    /\ torn' = [torn EXCEPT ![v] = [w \in Workers |-> torn[v][w] /\ silent'[v][w] > 0]]
    /\ UNCHANGED <<there, ran, gone, row, sent, since, missed, steady, waited>>

\* declare_dead, a transaction of its own: it names the beat that was seen.
Declare(v, w) ==
    /\ there /\ v \notin gone /\ accused[v][w] # "no"
    /\ row' = IF accused[v][w] = "yes" \/ ~BeatFenced THEN [row EXCEPT ![w] = "dead"] ELSE row
    /\ accused' = [accused EXCEPT ![v][w] = "no"]
    /\ silent' = [silent EXCEPT ![v][w] = 0]
    /\ UNCHANGED <<there, ran, gone, sent, gap, leases, look, checked, moved, since, unrenewed, missed, steady, torn, waited>>

(***************************************************************************)
(* The world.                                                              *)
(***************************************************************************)
Kill(w) ==
    /\ Deaths /\ gone = {} /\ w \notin Watchers
    /\ gone' = gone \union {w}
    /\ UNCHANGED <<there, ran, beats, leases, watch, missed, steady, torn, waited>>

Jump ==
    /\ Jumps /\ \E w \in Workers : ~expired[w] /\ ~reaped[w]
    /\ expired' = [w \in Workers |-> ~reaped[w]]
    /\ UNCHANGED <<there, ran, gone, beats, reaped, watch, missed, steady, torn, waited>>

Idle(v) == ~look[v].new /\ \A w \in Workers : accused[v][w] = "no"

\* A second passes for everybody, also for who is frozen.
Tick ==
    /\ there' \in IF Outages THEN BOOLEAN ELSE {TRUE}
    /\ ran' = {}
    /\ sent' = [w \in Workers |-> Least(sent[w] + 1, SureWithin + 1)]
    /\ checked' = [v \in Watchers |-> Least(checked[v] + 1, IF StepCapped THEN MostPerCheck ELSE 5)]
    /\ look' = [v \in Watchers |-> [look[v] EXCEPT !.sent = IF look[v].new THEN Least(@ + 1, WellWithin + 1) ELSE 0]]
    /\ missed' = [w \in Workers |->
                    IF there /\ w \notin ran /\ ran # {} THEN Least(missed[w] + 1, SteadyPatience) ELSE missed[w]]
    /\ steady' = [w \in Workers |-> steady[w] /\ there /\ ran # {}]
    /\ torn' = [v \in Watchers |-> [w \in Workers |->
                    torn[v][w] \/ (sent'[v] > WellWithin /\ 0 < silent[v][w] /\ silent[v][w] < DeadAfter)]]
    /\ waited' = [w \in Workers |->
                    IF w \in gone /\ Watchers \subseteq ran /\ \A v \in Watchers : Idle(v)
                    THEN Least(waited[w] + 1, Recovery) ELSE 0]
    /\ UNCHANGED <<gone, row, gap, leases, silent, moved, since, unrenewed, accused>>

Next ==
    \/ \E w \in Workers : Run(w) \/ Kill(w)
    \/ \E v \in Watchers : Judge(v)
    \/ \E v \in Watchers, w \in Workers : Declare(v, w)
    \/ Jump
    \/ Tick

Spec == Init /\ [][Next]_vars

(***************************************************************************)
(* Promises.                                                               *)
(***************************************************************************)
Absent(w) == w \in gone \/ missed[w] >= (IF steady[w] THEN SteadyPatience ELSE Patience)

\* 6. The living are not buried: who is declared dead was killed, or has missed so many seconds by itself.
LivingAreNotBuried == \A w \in Workers : row[w] = "dead" => Absent(w)

\* 6. Who is declared dead was seen silent for ten seconds by one whose own beats were committed all the while.
SilenceIsWitnessed ==
    \A v \in Watchers, w \in Workers : silent[v][w] >= DeadAfter => ~torn[v][w]

\* 6. A jump of the clock costs no living worker its lease.
LeasesAreNotTaken == \A w \in Workers : reaped[w] => Absent(w)

\* What a worker starts is its own: while it may start jobs, nobody has declared it dead.
SureIsAlive == \A w \in Workers : w \notin gone /\ sent[w] <= SureWithin => row[w] = "alive"

\* 5. A killed worker is declared dead in time, by silence alone, while a watcher runs and the store is there.
FoundInTime == \A w \in gone : waited[w] >= Recovery => row[w] = "dead"
=======================================================================
