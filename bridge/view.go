// SPDX-License-Identifier: Apache-2.0

package bridge

import "time"

// The views are what `themis NAME --json` prints, and what the Read service
// sends: one schema for people's scripts and for the command itself. Fields are
// only ever added. Times are RFC 3339, zero times are left out; durations end
// in _s (seconds), work in gpu_s.

// Status is the cluster at a glance.
type Status struct {
	Cluster   string     `json:"cluster"`
	Now       time.Time  `json:"now"`
	Nodes     int        `json:"nodes"`
	GPUs      int        `json:"gpus"`
	GPUsUsed  int        `json:"gpus_used"`
	GPUsWon   int        `json:"gpus_granted"` // leased, their jobs not started yet
	Running   int        `json:"jobs_running"`
	Waiting   int        `json:"jobs_waiting"`
	MaxRho    float64    `json:"max_rho"` // of the apps that go on
	NextRound *time.Time `json:"next_round,omitempty"`
	LastRound *Round     `json:"last_round,omitempty"`
	SeenAgo   float64    `json:"snapshot_age_s"` // of the host that was heard longest ago
	Hosts     []Host     `json:"hosts"`
	Apps      []App      `json:"apps"`
	Types     []GPUs     `json:"types,omitempty"` // the same GPUs; MIG instances count as one each
	Idle      []Idle     `json:"idle,omitempty"`  // the longest idle first
	Internals *Internals `json:"internals,omitempty"`
}

// GPUs counts those of one type.
type GPUs struct {
	Type string `json:"type"` // "": of none
	GPUs int    `json:"gpus"`
	Used int    `json:"gpus_used"`
}

// Idle is a running job of whose GPUs some have done nothing for lease.idle_after or longer.
type Idle struct {
	Job   string    `json:"job"`
	App   string    `json:"app"`
	GPUs  int       `json:"gpus_idle"`
	Of    int       `json:"gpus"`
	Since time.Time `json:"since"` // at least
}

// Utilisation is what a job made of its GPUs, where health checks sample them.
type Utilisation struct {
	Sampled float64 `json:"sampled_gpu_s"`
	Busy    float64 `json:"busy_share"` // of that, [0,1]
}

// Waited is how long a job has waited, by cause.
type Waited struct {
	Host    float64 `json:"host_s"`    // its host held it back, or was silent
	Auction float64 `json:"auction_s"` // it had won no GPUs
	Gather  float64 `json:"gather_s"`  // it had won, and they were not free yet
	Start   float64 `json:"start_s"`   // its host had not started it yet
}

// Past is a job that has ended.
type Past struct {
	Job      string       `json:"job"`
	App      string       `json:"app"`
	User     string       `json:"user"`
	GPUs     int          `json:"gpus"` // that it asked for
	Submit   time.Time    `json:"submit"`
	Ended    time.Time    `json:"ended"`
	Outcome  string       `json:"outcome"` // completed, failed, cancelled, timeout, node_fail, vanished
	Leased   float64      `json:"leased_gpu_s"`
	Used     *Utilisation `json:"utilisation,omitempty"` // missing: nobody looked
	Leases   int          `json:"leases"`                // that it ran under, one after another
	Renewals int          `json:"renewals"`              // of all of them
	Waited   Waited       `json:"waited"`
	Estimate float64      `json:"estimate_s"` // of its run time, when it came
	Source   string       `json:"estimate_source"`
	Took     float64      `json:"took_s"` // the same as it was, at its best place; less what was lost
	Lost     float64      `json:"lost_s,omitempty"`
}

// Host is a slurmctld or a ResourceManager that the core serves.
type Host struct {
	Kind    string  `json:"kind"` // "slurm" or "yarn"
	Cluster string  `json:"cluster"`
	SeenAgo float64 `json:"snapshot_age_s"` // 0 if it was not heard since the core started
	Silent  bool    `json:"silent"`         // its nodes take no new leases: it may be scheduling by itself
}

// Internals shows what we cost the host and ourselves.
type Internals struct {
	Hooks      []HookTime `json:"hooks"`
	StepLast   float64    `json:"decision_last_s"`
	StepMax    float64    `json:"decision_max_s"`
	WriteLast  float64    `json:"ledger_write_last_s"`
	WriteMax   float64    `json:"ledger_write_max_s"`
	Snapshots  uint64     `json:"snapshots"`
	LedgerPath string     `json:"ledger"`
	Since      time.Time  `json:"core_started"`
}

// HookTime is the time the host's threads spent in one of our hooks.
type HookTime struct {
	Name  string  `json:"name"`
	Calls uint64  `json:"calls"`
	Mean  float64 `json:"mean_s"`
	Max   float64 `json:"max_s"`
	Total float64 `json:"total_s"`
}

// App is one unit of fairness.
type App struct {
	ID        string     `json:"app"`
	User      string     `json:"user"`
	Rho       float64    `json:"rho"`
	Submit    time.Time  `json:"submit"`
	Reference *time.Time `json:"reference,omitempty"` // finish in the fluid fair schedule
	Ended     *time.Time `json:"ended,omitempty"`
	Running   int        `json:"jobs_running"`
	Waiting   int        `json:"jobs_waiting"`
	Done      int        `json:"jobs_done"`
	GPUs      int        `json:"gpus"`
	WorkLeft  float64    `json:"work_left_gpu_s"`
}

// Share is a part of a placement.
type Share struct {
	Node  string `json:"node"`
	GPUs  int    `json:"gpus"`
	Slots []int  `json:"slots,omitempty"` // its GPUs by slot of the node, if known; those after the last are 0
}

// Lease is a job's right to GPUs.
type Lease struct {
	ID       uint64     `json:"lease"`
	Job      string     `json:"job"`
	App      string     `json:"app"`
	Round    uint64     `json:"round"` // 0: adopted, it ran before us
	State    string     `json:"state"` // reserved, granted, held, ending, over
	Places   []Share    `json:"places"`
	Length   float64    `json:"length_s"`
	Granted  time.Time  `json:"granted"`
	Started  *time.Time `json:"started,omitempty"`
	Expires  *time.Time `json:"expires,omitempty"`
	Ended    *time.Time `json:"ended,omitempty"`
	Renewals int        `json:"renewals"`
	Reason   string     `json:"reason,omitempty"`
}

// Round is one auction.
type Round struct {
	ID           uint64    `json:"round"`
	At           time.Time `json:"at"`
	Free         int       `json:"gpus_on_offer"`
	Apps         int       `json:"apps"`         // that wanted GPUs
	Participants int       `json:"participants"` // of these, those that bid in the auction
	Welfare      float64   `json:"welfare"`      // sum of weight * log(1/rho) of the participants
	Bound        float64   `json:"bound"`        // no allocation has more
	Exact        bool      `json:"exact"`
	Took         float64   `json:"took_s"`
	Bids         []Bid     `json:"bids"`
}

// Bid is one app's part in a round.
type Bid struct {
	App    string  `json:"app"`
	In     bool    `json:"participant"`
	Rho    float64 `json:"rho"`
	After  float64 `json:"rho_after"`
	Wanted int     `json:"gpus_wanted"`
	Won    int     `json:"gpus_won"`
	// Payment is the share of its winnings that the app was left with; the true
	// one is at least PaymentLow.
	Payment    float64 `json:"payment"`
	PaymentLow float64 `json:"payment_low"`
	// Gain is what its next job would have added to log(1/rho), Price what that
	// job's GPUs were worth to the others; both 0 if all its jobs were served.
	Gain   float64 `json:"gain"`
	Price  float64 `json:"price"`
	Slack  float64 `json:"slack_s"`                   // it could wait so long and yet end by its reference
	Source string  `json:"estimate_source,omitempty"` // the weakest of its jobs'
	Places []Share `json:"places,omitempty"`
}

// Holder is an app with GPUs.
type Holder struct {
	App  string  `json:"app"`
	Rho  float64 `json:"rho"`
	GPUs int     `json:"gpus"`
}

// Explain is why a job waits and when it will run.
type Explain struct {
	Job       string       `json:"job"`
	App       string       `json:"app"`
	User      string       `json:"user"`
	State     string       `json:"state"`
	Why       string       `json:"why"`
	GPUs      int          `json:"gpus"`
	Rho       float64      `json:"rho"`
	Rank      int          `json:"rank,omitempty"`
	Of        int          `json:"rank_of,omitempty"`
	Outbid    []Bid        `json:"outbid_by,omitempty"`
	HeldBy    []Holder     `json:"held_by,omitempty"`
	Bid       *Bid         `json:"bid,omitempty"`        // its app's in the last round
	Round     *Round       `json:"round,omitempty"`      // that round, without the bids
	Debt      float64      `json:"debt_gpu_s,omitempty"` // what its user owes
	NextRound *time.Time   `json:"next_round,omitempty"`
	Earliest  *time.Time   `json:"start_earliest,omitempty"`
	Latest    *time.Time   `json:"start_latest,omitempty"`
	Advice    []string     `json:"advice,omitempty"`
	Note      string       `json:"note,omitempty"`
	Estimate  float64      `json:"estimate_s"`
	Source    string       `json:"estimate_source"`
	Attained  float64      `json:"attained_s"`
	Lost      float64      `json:"lost_s,omitempty"` // to failures of nodes: in its fair share as well
	Lease     *Lease       `json:"lease,omitempty"`
	Types     string       `json:"gpu_types,omitempty"` // of the GPUs of its lease
	Speed     float64      `json:"speed,omitempty"`     // on them, as it says by speed=
	Used      *Utilisation `json:"utilisation,omitempty"`
	Idle      *Idle        `json:"idle,omitempty"`
	Waited    Waited       `json:"waited"`
}

// Measured is how much slower one user's jobs of one model= are in wider places, and how
// fast on GPUs of each type, as their reports of progress showed.
type Measured struct {
	User   string       `json:"user"`
	Model  string       `json:"model"`
	Levels []Factor     `json:"levels"`          // slot, machine, rack, cluster
	Types  []TypeFactor `json:"types,omitempty"` // the first is what the others were compared with
}

// Factor is S at a placement level, relative to the slot.
type Factor struct {
	Level     string  `json:"level"`
	S         float64 `json:"s"`            // reckoned with
	N         int     `json:"measurements"` // that it is made of, besides what model= stands for
	Mean      float64 `json:"mean,omitempty"`
	Deviation float64 `json:"deviation,omitempty"` // of one measurement
}

// TypeFactor is the speed on GPUs of a type.
type TypeFactor struct {
	Type      string  `json:"type"`
	Speed     float64 `json:"speed"`          // reckoned with; 1 on the mean GPU of the cluster
	N         int     `json:"measurements"`   // that it is made of, besides being as fast as the first
	Mean      float64 `json:"mean,omitempty"` // relative to the first
	Deviation float64 `json:"deviation,omitempty"`
}
