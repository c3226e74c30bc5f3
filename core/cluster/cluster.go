// SPDX-License-Identifier: Apache-2.0

// Package cluster holds the values that every other core package speaks of:
// nodes, jobs, what a job asks for and where GPUs sit. It has no behaviour
// beyond arithmetic on them, and knows neither Slurm nor YARN.
package cluster

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Level is how far apart the GPUs of a placement sit (paper section 2.2). A
// lower level is tighter.
type Level int

// Placement levels, tightest first.
const (
	Slot    Level = iota // one socket or NVLink island
	Machine              // one node
	Rack                 // nodes under one leaf switch
	Cluster              // anything wider
)

func (l Level) String() string {
	return [...]string{"slot", "machine", "rack", "cluster"}[l]
}

// NodeState says what a node may do.
type NodeState int

// Node states.
const (
	NodeUp    NodeState = iota
	NodeDrain           // runs on but takes nothing new
	NodeDown
)

// Node is one machine as the host sees it now.
type Node struct {
	Name      string
	Rack      string // "" if unknown
	State     NodeState
	Why       string // it is not up, "" if the host does not say
	CPUs      int    // 0: CPUs are not a resource here
	CPUsUsed  int
	MemMiB    int64 // 0: memory is not a resource here
	MemUsed   int64 // MiB
	GPUs      []GPUs
	Slots     []GPUs // the same GPUs by slot, if the host tells them apart; no types
	Exclusive bool   // one job holds the whole node
	Shared    bool   // two hosts have it: all of its GPUs are for one of them at a time
	Holder    string // of a shared node, the host that has GPUs of it in use; "" if none
	Use       Use    // of its GPUs, as it last said
}

// Use is how busy a node's GPUs were for some time; zero: nobody says. Immutable.
type Use struct {
	Until time.Time
	Of    time.Duration
	GPUs  []GPUUse // those that are looked at
}

// GPUUse is of one GPU.
type GPUUse struct {
	Device int       // the host's number, below 64
	Busy   float64   // share of the time in which some kernel ran, [0,1]
	Idle   time.Time // none has since; zero: one did when it was last looked at
}

// GPUs counts a node's GPUs of one type.
type GPUs struct {
	Type        string // "" if untyped
	Total, Used int
}

// TotalGPUs counts a node's GPUs of every type.
func (n *Node) TotalGPUs() (total, used int) {
	for _, g := range n.GPUs {
		total += g.Total
		used += g.Used
	}
	return total, used
}

// slice is the form of the type of a MIG instance: a100_1g.5gb, of 7 compute slices
// of an A100; an A30 has 4.
var slice = regexp.MustCompile(`(^|[_.-])([1-7])(c\.[1-7])?g\.[0-9]+gb`)

// Part is which part of a whole GPU one of the type is: 1 but for MIG instances.
func Part(typ string) float64 {
	if !strings.ContainsRune(typ, '.') {
		return 1
	}
	m := slice.FindStringSubmatch(strings.ToLower(typ))
	if m == nil {
		return 1
	}
	of := 7.0
	if strings.Contains(strings.ToLower(typ), "a30") {
		of = 4
	}
	return float64(m[2][0]-'0') / of
}

// Sliced says whether the node has MIG instances.
func (n *Node) Sliced() bool {
	return slices.ContainsFunc(n.GPUs, func(g GPUs) bool { return g.Total > 0 && g.Type != "" && Part(g.Type) < 1 })
}

// JobState is where a job stands with its host.
type JobState int

// Job states.
const (
	Pending JobState = iota
	Running
	Suspended
	Completing // over, its GPUs not yet confirmed free
	Ended
)

// Outcome is how an ended job ended.
type Outcome string

// Outcomes.
const (
	Completed Outcome = "completed"
	Failed    Outcome = "failed"
	Cancelled Outcome = "cancelled"
	TimedOut  Outcome = "timeout"
	NodeFail  Outcome = "node_fail"
	Vanished  Outcome = "vanished" // the host no longer knows it
)

// Shape is what a job needs to start: a gang of nodes with GPUs. Zero values
// mean "not stated". A gang starts whole or not at all.
type Shape struct {
	NodesMin          int    // at least 1
	NodesMax          int    // takes up to so many; 0: no more than it needs
	GPUsPerNode       int    // on each node
	GPUs              int    // in all, split as the host likes; if GPUsPerNode is 0
	Unit              int    // GPUs is split in whole multiples of it, of which GPUs is one; 0 reads as 1
	Type              string // GPU type, "" any
	CPUsPerNode, CPUs int
	CPUsPerGPU        int
	MemPerNode        int64 // MiB
	MemPerCPU         int64 // MiB
	MemPerGPU         int64 // MiB
	Exclusive         bool  // whole nodes
}

// Split is the least part into which GPUs may be split.
func (s Shape) Split() int { return max(s.Unit, 1) }

// Count is the number of GPUs that the smallest form of the shape takes.
func (s Shape) Count() int {
	if s.GPUsPerNode > 0 {
		return s.GPUsPerNode * max(s.NodesMin, 1)
	}
	return s.GPUs
}

// Share is a part of a placement: GPUs on one node.
type Share struct {
	Node  string  `json:"node"`
	GPUs  int     `json:"gpus"`
	Slots InSlots `json:"slots,omitzero"`
}

// SlotsMost is how many slots of a node are told apart; of a node with more, none.
const SlotsMost = 8

// InSlots counts a share's GPUs by slot, in the order of Node.Slots; zero: not known.
type InSlots [SlotsMost]uint8

// Has says whether so many are free in each slot, of those that are.
func (free InSlots) Has(in InSlots) bool {
	for k, n := range in {
		if n > free[k] {
			return false
		}
	}
	return true
}

// Pick chooses from the free GPUs of each slot: from the one with the fewest that has
// enough, else from the fullest ones first. Zero if there are not so many.
func (free InSlots) Pick(gpus int) (in InSlots) {
	best := -1
	for k, n := range free {
		if int(n) >= gpus && (best < 0 || n < free[best]) {
			best = k
		}
	}
	for gpus > 0 {
		if best < 0 {
			best = slices.Index(free[:], slices.Max(free[:]))
		}
		n := min(gpus, int(free[best]))
		if n == 0 {
			return InSlots{}
		}
		in[best], free[best] = in[best]+uint8(n), free[best]-uint8(n)
		gpus, best = gpus-n, -1
	}
	return in
}

// Level is Machine if they are in several; a node whose slots nobody tells apart
// is one.
func (in InSlots) Level() Level {
	slots := 0
	for _, n := range in {
		if n > 0 {
			slots++
		}
	}
	if slots > 1 {
		return Machine
	}
	return Slot
}

// Natural orders n2 before n10.
func Natural(a, b string) int {
	digits := func(s string) int { return len(s) - len(strings.TrimLeft(s, "0123456789")) }
	x, y := a, b
	for x != "" && y != "" {
		i, j := digits(x), digits(y)
		if i > 0 && j > 0 {
			p, q := strings.TrimLeft(x[:i], "0"), strings.TrimLeft(y[:j], "0")
			if c := cmp.Or(len(p)-len(q), strings.Compare(p, q)); c != 0 {
				return c
			}
			x, y = x[i:], y[j:]
			continue
		}
		if x[0] != y[0] {
			return int(x[0]) - int(y[0])
		}
		x, y = x[1:], y[1:]
	}
	return cmp.Or(len(x)-len(y), strings.Compare(a, b))
}

// Hint is what a job's user declared. Zero values mean "not declared".
type Hint struct {
	App        string
	Runtime    time.Duration // of the whole job, at its smallest form (-N's least)
	Remaining  time.Duration // from when it was said
	Progress   float64       // share of the work done when it was said, (0,1]
	Checkpoint time.Duration // how often it saves its state
	Model      string
	Place      []float64 // S by Level: speed as a fraction of that within a slot
	Speedup    []SpeedPoint
	Speed      []TypeSpeed
	Order      string // how an app divides what it wins: "submit", "short", "long", "small", "large"
}

// Of counts the node's GPUs of a type, "" all.
func (n *Node) Of(typ string) int {
	var total int
	for _, g := range n.GPUs {
		if typ == "" || g.Type == typ {
			total += g.Total
		}
	}
	return total
}

// TypeSpeed is how fast a job is on GPUs of a type, above 0 and finite; 1 is the
// speed that its run time is stated for.
type TypeSpeed struct {
	Type  string
	Speed float64
}

// SpeedPoint is a point of a job's speed curve: how fast it is with so many
// GPUs. In a curve GPUs rise, speeds do not fall, and none is faster than
// linear from the first point. Between two points the curve is linear, beyond
// the last it is flat.
type SpeedPoint struct {
	GPUs  int     // at least 1
	Speed float64 // above 0, finite
}

// Job is one gang as the host sees it now.
type Job struct {
	Host        string // whose job it is: "slurm" or "yarn"
	ID          string // stable over requeue: "123", or "123_4" for an array task
	Gang        string // jobs of one non-empty Gang start together
	Array       string // the array it belongs to, or ""
	UID         uint32
	User        string
	Account     string
	Partition   string
	Name        string
	Weight      float64 // of its user's or account's share; 0 reads as 1
	State       JobState
	Outcome     Outcome
	Blocked     string // why the host itself holds it, or ""
	BlockedOld  bool   // Blocked is from when the host last looked at the job
	Submit      time.Time
	Eligible    time.Time
	Start       time.Time
	End         time.Time
	Limit       time.Duration // 0: unlimited
	Restarts    int
	Requeueable bool
	Shape       Shape
	MoreTasks   int      // waiting tasks of the same array that are not listed
	AnyNode     bool     // Nodes is not restricted
	Nodes       []string // nodes it may run on
	Required    []string // nodes it must have; more may join them
	On          []Share  // where it runs
	Devices     []uint64 // which GPUs of each of On, by the host's numbers, the first in bit 0; none: not known
	Hint        Hint
}

// Same says whether two views of a job are one.
func (j *Job) Same(o *Job) bool {
	return j.State == o.State && j.ID == o.ID && j.Host == o.Host && j.Gang == o.Gang && j.Array == o.Array && j.UID == o.UID &&
		j.User == o.User && j.Account == o.Account && j.Partition == o.Partition && j.Name == o.Name && j.Weight == o.Weight &&
		j.Outcome == o.Outcome && j.Blocked == o.Blocked && j.BlockedOld == o.BlockedOld && j.Submit.Equal(o.Submit) &&
		j.Eligible.Equal(o.Eligible) && j.Start.Equal(o.Start) && j.End.Equal(o.End) && j.Limit == o.Limit && j.Restarts == o.Restarts &&
		j.Requeueable == o.Requeueable && j.Shape == o.Shape && j.MoreTasks == o.MoreTasks && j.AnyNode == o.AnyNode &&
		slices.Equal(j.Nodes, o.Nodes) && slices.Equal(j.Required, o.Required) && slices.Equal(j.On, o.On) &&
		slices.Equal(j.Devices, o.Devices) && j.Hint.same(&o.Hint)
}

func (h *Hint) same(o *Hint) bool {
	return h.App == o.App && h.Runtime == o.Runtime && h.Remaining == o.Remaining && h.Progress == o.Progress && h.Checkpoint == o.Checkpoint &&
		h.Model == o.Model && h.Order == o.Order && slices.Equal(h.Place, o.Place) && slices.Equal(h.Speedup, o.Speedup) && slices.Equal(h.Speed, o.Speed)
}

// Snapshot is the whole view of one host, or of several, at a moment. Two snapshots need nothing of
// each other: the core compares each with what it knew.
type Snapshot struct {
	Host    string // "slurm" or "yarn"
	Cluster string
	Nodes   []Node
	Jobs    []Job
	Silent  []string // hosts whose jobs are not listed, and are as they were
}

// SpanOf is the level of a placement on the given nodes; rack tells a node's
// leaf switch.
func SpanOf(on []Share, rack func(node string) string) Level {
	switch len(on) {
	case 0:
		return Machine
	case 1:
		return on[0].Slots.Level()
	}
	first := rack(on[0].Node)
	for _, s := range on[1:] {
		if first == "" || rack(s.Node) != first {
			return Cluster
		}
	}
	return Rack
}
