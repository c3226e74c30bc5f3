// SPDX-License-Identifier: Apache-2.0

// Package arbiter is the paper's arbiter: it watches the cluster through
// snapshots, keeps each app's rho, opens auction rounds, hands out leases and
// ends them. It is a deterministic state machine. Time and snapshots come in,
// a Decision goes out; clocks, files, logs and goroutines stay with the caller,
// who writes the decision to the ledger before announcing it.
package arbiter

import (
	"cmp"
	"slices"
	"time"

	"themis/core/auction"
	"themis/core/cluster"
	"themis/core/fairness"
)

// Config holds what an admin may set. Defaults() has the zero-effort values.
type Config struct {
	F           float64       // share of apps, the best off, that stay out of a round; [0,1)
	Lease       time.Duration // a full lease
	Grid        time.Duration // leases end at whole multiples of it; 0: no grid
	LeaseMin    time.Duration // what the hidden payment leaves at least
	Settle      time.Duration // how long a round waits for more events
	TakeUp      time.Duration // a grant the host does not take up is withdrawn after it
	Grace       time.Duration // from the warning to the requeue
	Restart     time.Duration // what losing its GPUs costs a job, requeue delay included
	GatherAfter time.Duration // a gang waits this long before nodes are kept free for it
	GatherLimit time.Duration // for how long nodes are kept free for a gang
	Reclaim     Reclaim       // which jobs a lease can end under
	Entity      Entity        // whose share is split
	Target      float64       // the worst rho that is aimed at, at least 1; 0 reads as 1
	Aim         Aim           // what is done with the time that a target leaves
	Reference   Reference     // what rho is measured against
	Payment     Payment       // how hidden payments are charged
	Mute        bool          // nobody reads Decision.Waits, nor rho but in rounds, and nothing is kept
	DebtHalf    time.Duration // in which what is owed halves
	IdleAfter   time.Duration // a GPU under a lease that does nothing for so long is idle
	Idle        IdlePolicy    // what then follows
}

// Reclaim says which running jobs may lose their GPUs at the end of a lease.
type Reclaim string

// Reclaim policies.
const (
	ReclaimDeclared    Reclaim = "declared"    // those that declare checkpoint=
	ReclaimRequeueable Reclaim = "requeueable" // all that the host may requeue
	ReclaimNever       Reclaim = "never"
)

// Entity says whose share of the cluster an app's fair share is part of.
type Entity string

// Entities.
const (
	ByUser    Entity = "user"
	ByAccount Entity = "account"
	ByApp     Entity = "app" // the paper's setting
)

// Defaults returns the configuration of an empty themis.toml.
func Defaults() Config {
	return Config{
		F: 0.8, Lease: 10 * time.Minute, LeaseMin: 2 * time.Minute, Settle: time.Second,
		TakeUp: 30 * time.Second, Grace: time.Minute, Restart: 3 * time.Minute,
		GatherAfter: 10 * time.Minute, GatherLimit: time.Hour,
		Target: 1, Aim: AimTurnaround,
		Reclaim: ReclaimDeclared, Entity: ByUser, Reference: ReferenceFluid,
		Payment: PayLease, DebtHalf: 24 * time.Hour,
		IdleAfter: 30 * time.Minute, Idle: IdleWarn,
	}
}

// Aim says in which order apps are served that all have time.
type Aim string

// Aims.
const (
	AimTurnaround Aim = "turnaround" // the shortest first: mean completion time; ""
	AimMakespan   Aim = "makespan"   // the longest first: all done soon, GPUs busy to the end
)

// Payment says how an app pays for what its presence costs the others (paper
// section 5.1, step 5): it is left with the share c of what it won.
type Payment string

// Payments. A job that cannot be reclaimed pays neither way, as it keeps its
// GPUs to its end: its user's share is charged what it should have paid.
const (
	PayLease Payment = "lease" // a lease of c times the full length
	PayGPUs  Payment = "gpus"  // c of the GPUs, in whole gangs, at least the first: the paper's form
	PayNone  Payment = "none"
)

// LeaseState is where a lease stands.
type LeaseState string

// Lease states, in the order a lease goes through them.
const (
	Reserved LeaseState = "reserved" // its GPUs are being gathered
	Granted  LeaseState = "granted"  // announced, not yet taken up
	Held     LeaseState = "held"     // its job runs
	Ending   LeaseState = "ending"   // its job was warned, its grace period runs
	Over     LeaseState = "over"
)

// Lease is the right of one job to GPUs until a time.
type Lease struct {
	ID       uint64
	Job, App string
	Round    uint64 // that granted it; 0 if adopted
	State    LeaseState
	On       []cluster.Share
	Length   time.Duration // what the payment left of a full lease
	Granted  time.Time
	Started  time.Time
	Expires  time.Time // of a held lease
	Deadline time.Time // of a reserved or granted lease, and of an ending one's grace
	Ended    time.Time
	Renewals int
	Anywhere bool   // the host may choose other nodes
	Warned   string // why it is ending, or how it failed
	Reason   string // why it is over

	moves bool    // it ends for the sake of its own job
	rho   float64 // of its app when leases were last sorted
	rate  float64 // what its job makes of it, in mean GPUs; 0 if it is to be found anew
}

func (l *Lease) gpus() int {
	var n int
	for _, s := range l.On {
		n += s.GPUs
	}
	return n
}

// App is the unit of fairness: jobs of one user that serve one goal.
type App struct {
	ID        string // "user/name"
	Entity    string
	User      string
	Weight    float64
	Order     int64 // of arrival; breaks ties
	Submit    time.Time
	Reference time.Time // finish in the virtual fair schedule, or the paper's T_id
	Ended     time.Time
	Rho       float64       // projected; final once ended
	Crowd     float64       // IDs.Crowd when it was submitted
	Gone      fairness.Size // its jobs that ended and were forgotten
	work      float64       // GPU-seconds told to the virtual schedule
	said      float64       // rho when it was last recorded
	saved     time.Time     // when it last was in a decision
	slack     time.Duration // how long it could wait and yet end by its reference
	longest   time.Duration // what the longest of its jobs has to go
	earliest  time.Time     // before when it could not end on any cluster
	partly    bool          // some job of it has ended
	jobs      []*Job
}

// Job is a job with what the core learned of it.
type Job struct {
	cluster.Job
	App      *App
	Estimate fairness.Estimate
	First    fairness.Estimate // as it was when the job arrived
	Attained time.Duration     // run time at S = 1 that is not lost
	Lost     time.Duration     // run time at S = 1 that failures of nodes cost it, restarts included
	Lease    *Lease            // live, or nil
	Use      Use               // of its GPUs
	Waited   Waited
	Note     string        // what went wrong with its last grant
	declared time.Duration // the least its user ever declared
	mean     float64       // its speed on the mean GPU; run times are kept as of that
	fastest  float64       // how much faster it can be
	slotted  bool          // it fits a slot
	whole    bool          // it is kept off nodes with MIG instances
	report   *fairness.Report
	past     *record // of like jobs
	said     *record // of its user's
	judged   judged
	as       cluster.Job // as the host showed it
	facts    int         // Arbiter.facts when something last was new of it
	wide     float64     // widest, 0 if it is to be found anew
	gain     float64     // run time that it attains in a second of its lease, likewise
	since    time.Time   // when it began to wait
	counted  time.Time   // up to when Attained counts
	backoff  time.Time
	seen     uint64    // the last step whose snapshot had it
	blocked  time.Time // since when the host has held it back for this reason
	fails    int
	done     bool
	paces    map[where]pace
	pacedBy  int // GPUs
	stretch  stretch
}

// judged is what the job's estimate was made of.
type judged struct {
	past, said     int // runs
	report         *fairness.Report
	runtime, limit time.Duration
	mean           float64
	restarts       int
	state          cluster.JobState
}

// Round is the record of one auction.
type Round struct {
	ID      uint64
	At      time.Time
	Free    int // GPUs on offer
	Apps    int // that wanted GPUs
	Bids    []BidRecord
	Welfare float64
	Bound   float64
	Exact   bool
	Proof   *auction.Proof // of this auction; nil if it was read from the ledger
}

// BidRecord is one app's part in a round.
type BidRecord struct {
	App     string  `json:"app"`
	In      bool    `json:"participant"` // else it was served from what was left
	Rho     float64 `json:"rho"`         // before the round
	After   float64 `json:"rho_after"`
	Wanted  int     `json:"gpus_wanted"`
	Won     int     `json:"gpus_won"`
	Payment float64 `json:"payment"` // share of its winnings that is left
	// PaymentLow is the least that the payment can truly be: it was charged the
	// kinder end of what is known.
	PaymentLow float64 `json:"payment_low"`
	// Gain and Price are log(1/rho) of its next job and what that job's GPUs
	// cost at the prices of the round; zero if all its jobs were served.
	Gain   float64         `json:"gain"`
	Price  float64         `json:"price"`
	Slack  time.Duration   `json:"slack_ns"` // it could wait so long and yet end by its reference
	Source fairness.Source `json:"source"`   // the weakest of its run time estimates
	Places []cluster.Share `json:"places,omitempty"`
}

// Decision is what changed in one Step, for the ledger, and what the host is
// to do, for the bridge.
type Decision struct {
	Apps   []*App
	Jobs   []*Job
	Leases []*Lease
	Round  *Round
	Debts  map[string]Debt    // by entity, those that grew
	Places map[Place]Measured // those that were measured anew
	// Level-triggered: the whole truth each time.
	Grants   []Grant
	Reclaims []ReclaimOrder
	Waits    []Wait
	Notes    []Wait // to be told of running jobs
}

// Grant tells the host to start a job.
type Grant struct {
	Lease    uint64
	Job      string
	Order    int
	Anywhere bool
	Nodes    []string          // or, with Anywhere, the nodes that others have
	GPUs     []int             // on each of Nodes; none with Anywhere
	Slots    []cluster.InSlots // of the same; none if no node has any
}

// ReclaimOrder tells the host to warn a job or to requeue it.
type ReclaimOrder struct {
	Lease   uint64
	Job     string
	Requeue bool
	Why     string
}

// Wait is a waiting job and its reason in one sentence; or a running one and what is
// to be told of it.
type Wait struct {
	Job string
	Why string
}

// Arbiter is the state machine. Not safe for concurrent use.
type Arbiter struct {
	cfg       Config
	now       time.Time
	nodes     []cluster.Node // as last seen
	node      map[string]int // their indices, by name
	total     int            // GPUs of those that are not down; of one that the host drained, those in use
	biggest   int            // GPUs of the largest
	slot      int            // GPUs of the largest slot
	types     []cluster.GPUs // whole GPUs by type
	sliced    bool           // some node has MIG instances
	jobs      map[string]*Job
	queue     []*Job // the same, in the order in which an app starts them; nil: to be made
	apps      map[string]*App
	all       []*App   // the same, by Order
	leases    []*Lease // live, by ID
	step      uint64   // counts calls of Step
	fluid     *fairness.Fluid
	facts     int                  // counts changes of what nodes have, and of what jobs of a model prove to be
	history   map[string]*record   // of like jobs
	said      map[uint32]*record   // of a user's jobs with a declared run time
	debts     map[string]Debt      // by entity
	places    map[Place]Measured   // S and speeds as they proved
	used      map[string]time.Time // by node: up to when its GPUs' use was charged
	ids       IDs
	event     time.Time // of the oldest event no round has seen
	last      *Round
	winners   []*BidRecord // of the round winnersOf, the best-off first
	winnersOf *Round
	told      time.Time // when Waits was made
	waits     []Wait
	held      map[*App]int // GPUs by app when Waits was made
	dirty     map[*App]bool
	moved     map[*App]bool // apps whose work may have changed
	going     int           // apps that have not ended
	silent    map[string]bool
	quiet     bool // no job wanted GPUs at the end of the last step
	changed   Decision
}

// IDs are the numbers last used and the app-seconds counted; they never go back.
type IDs struct {
	Lease, Round uint64
	Order        int64
	Crowd        float64 // sum over all apps of the seconds they were unfinished
}

// New starts with an empty cluster.
func New(cfg Config, now time.Time) *Arbiter {
	return &Arbiter{cfg: cfg, now: now,
		node: map[string]int{}, jobs: map[string]*Job{}, apps: map[string]*App{}, fluid: fairness.NewFluid(now),
		history: map[string]*record{}, said: map[uint32]*record{}, debts: map[string]Debt{}, used: map[string]time.Time{}, places: map[Place]Measured{},
		dirty: map[*App]bool{}, moved: map[*App]bool{}}
}

// Step takes one snapshot and returns the decision. Time never runs backwards:
// a now before the last one is read as the last one.
func (a *Arbiter) Step(now time.Time, snap *cluster.Snapshot) Decision {
	if now.Before(a.now) {
		now = a.now
	}
	a.now = now
	a.step++
	a.changed = Decision{}
	a.renewInSilence()
	a.observe(snap)
	a.refer()
	a.timeouts()
	a.promote()
	due := a.due()
	if due || !a.cfg.Mute {
		a.rate()
	}
	if due {
		a.auction()
		a.promote()
		if !a.cfg.Mute {
			a.rate()
		}
	}
	a.quiet = !slices.ContainsFunc(a.list(), a.seeks)
	return a.decision()
}

// Now is the time of the last Step.
func (a *Arbiter) Now() time.Time { return a.now }

// nodeOf is a node as last seen, nil if it is not known.
func (a *Arbiter) nodeOf(name string) *cluster.Node {
	if i, ok := a.node[name]; ok {
		return &a.nodes[i]
	}
	return nil
}

func (a *Arbiter) gpus() int { return a.total }

// stir notes an event that may call for a round.
func (a *Arbiter) stir() {
	if a.event.IsZero() {
		a.event = a.now
	}
}

// due says whether a round is to be held: something happened, it has settled,
// and somebody waits.
func (a *Arbiter) due() bool {
	return !a.event.IsZero() && a.now.Sub(a.event) >= a.cfg.Settle
}

// Due is when the round that recent events call for will be held, or zero.
func (a *Arbiter) Due() time.Time {
	if a.event.IsZero() {
		return time.Time{}
	}
	return a.event.Add(a.cfg.Settle)
}

// Next is when the arbiter will have something to decide although nothing
// happens: a round is due, a lease runs out, a deadline passes. Zero if never.
func (a *Arbiter) Next() time.Time {
	next := a.Due()
	at := func(t time.Time) {
		if t.After(a.now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	for _, l := range a.leases {
		if l.State == Held {
			if !a.quiet {
				at(l.Expires)
			}
		} else {
			at(l.Deadline)
			at(l.Deadline.Add(1)) // a deadline has passed after it
		}
	}
	for _, j := range a.list() {
		at(j.backoff)
	}
	return next
}

// savedEvery bounds how old an app's virtual run is in the ledger.
const savedEvery = 5 * time.Minute

func (a *Arbiter) decision() Decision {
	d := a.changed
	if !a.cfg.Mute {
		for _, app := range a.all { // so that a restart need not look far back
			if app.Ended.IsZero() && a.now.Sub(app.saved) > savedEvery {
				a.dirty[app] = true
			}
		}
	}
	for app := range a.dirty {
		app.saved = a.now
		d.Apps = append(d.Apps, app)
	}
	clear(a.dirty)
	slices.SortFunc(d.Apps, func(x, y *App) int { return cmp.Compare(x.Order, y.Order) })
	d.Jobs = unique(d.Jobs)
	d.Leases = unique(d.Leases)
	live := a.live(func(l *Lease) bool { return l.State == Granted || l.State == Ending })
	order := 0
	for _, l := range live {
		switch l.State {
		case Granted:
			d.Grants = append(d.Grants, a.grant(l, order))
			order++
		case Ending:
			if a.jobs[l.Job].State == cluster.Completing {
				continue // on its way out
			}
			d.Reclaims = append(d.Reclaims, ReclaimOrder{Lease: l.ID, Job: l.Job,
				Requeue: !a.now.Before(l.Deadline), Why: l.Warned})
		}
	}
	if !a.cfg.Mute {
		d.Waits = a.sentences()
		for _, i := range a.idlers() {
			d.Notes = append(d.Notes, Wait{Job: i.Job.ID, Why: i.note(a.now)})
		}
	}
	return d
}

// live returns the leases that match and are not over, the worst-off app's first.
func (a *Arbiter) live(match func(*Lease) bool) []*Lease {
	var out []*Lease
	for _, l := range a.leases {
		if match(l) {
			out = append(out, l)
		}
	}
	for _, l := range out {
		if l.rho = 0; a.apps[l.App] != nil {
			l.rho = a.apps[l.App].Rho
		}
	}
	slices.SortFunc(out, func(x, y *Lease) int {
		return cmp.Or(cmp.Compare(x.Round, y.Round), cmp.Compare(y.rho, x.rho), cmp.Compare(x.ID, y.ID))
	})
	return out
}

func (a *Arbiter) grant(l *Lease, order int) Grant {
	g := Grant{Lease: l.ID, Job: l.Job, Order: order, Anywhere: l.Anywhere}
	j, told := a.jobs[l.Job], false
	if !l.Anywhere {
		for _, s := range l.On {
			g.Nodes, g.GPUs = append(g.Nodes, s.Node), append(g.GPUs, s.GPUs)
			if g.Slots = append(g.Slots, s.Slots); s.Slots != (cluster.InSlots{}) {
				told = true
			}
		}
		if !told {
			g.Slots = nil
		}
		return g
	}
	taken := map[string]bool{}
	for i := range a.nodes {
		if n := &a.nodes[i]; n.Shared && !slices.ContainsFunc(l.On, func(s cluster.Share) bool { return s.Node == n.Name }) {
			taken[n.Name] = true // it may be another host's next
		} else if !suits(j, n) || j.hinted() && j.speedOn(n)/cmp.Or(j.mean, 1) < a.times(j, l.On) {
			taken[n.Name] = true
		}
	}
	for _, o := range a.leases {
		if o != l && (o.State == Granted || o.State == Reserved) {
			for _, s := range o.On {
				taken[s.Node] = true
			}
		}
	}
	for n := range taken {
		g.Nodes = append(g.Nodes, n)
	}
	slices.Sort(g.Nodes)
	return g
}

func notStarted(l *Lease) bool          { return l.State == Granted || l.State == Reserved }
func notHeld(l *Lease) bool             { return l.State != Held }
func (a *Arbiter) runOut(l *Lease) bool { return l.State == Held && !a.now.Before(l.Expires) }

func unique[T comparable](in []T) []T {
	seen := make(map[T]bool, len(in))
	out := in[:0]
	for _, v := range in {
		if !seen[v] {
			seen[v] = true
			out = append(out, v)
		}
	}
	return out
}
