// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cockroachdb/datadriven"

	"themis/core/auction"
	"themis/core/cluster"
	"themis/core/fairness"
)

// world is a host in miniature: it starts what is granted, ends what is done,
// obeys reclaims, and shows the arbiter a snapshot every tick. It checks the
// promises that hold at every step.
type world struct {
	cfg      Config
	begin    time.Time
	now      time.Time
	tick     time.Duration
	arb      *Arbiter
	nodes    []*cluster.Node
	jobs     []*simJob
	log      []string
	fail     func(format string, args ...any)
	deaf     bool            // the host starts nothing
	renewals map[uint64]int  // said so far, by lease
	silent   string          // a host that is not heard
	loose    map[string]bool // nodes on which jobs were started whose grant said no slots
	slow     bool            // a job's GPUs are free a tick before it has ended for good
	decided  func(*Decision)
	checks   map[string]time.Duration // by node: how often its GPUs are looked at
}

type simJob struct {
	cluster.Job
	takes time.Duration // run time at S = 1
	ran   time.Duration
	gone  bool
	idle  map[int]bool // devices it does nothing with, on any node
}

func newWorld(fail func(string, ...any)) *world {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	w := &world{cfg: Defaults(), begin: begin, now: begin, tick: 5 * time.Second, fail: fail, renewals: map[uint64]int{}, loose: map[string]bool{}, checks: map[string]time.Duration{}}
	w.cfg.Settle, w.cfg.Restart = 0, time.Minute
	return w
}

func (w *world) say(format string, args ...any) {
	d := w.now.Sub(w.begin)
	w.log = append(w.log, fmt.Sprintf("%02d:%02d:%02d  ", int(d.Hours()), int(d.Minutes())%60, int(d.Seconds())%60)+fmt.Sprintf(format, args...))
}

func (w *world) node(name string) *cluster.Node {
	for _, n := range w.nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

func (w *world) job(id string) *simJob {
	for _, j := range w.jobs {
		if j.ID == id {
			return j
		}
	}
	return nil
}

func (w *world) addNode(name, rack string, gpus int) {
	w.nodes = append(w.nodes, &cluster.Node{Name: name, Rack: rack, CPUs: 4 * gpus, GPUs: []cluster.GPUs{{Total: gpus}}})
}

func (w *world) submit(j simJob) {
	j.Submit, j.Eligible, j.AnyNode = w.now, w.now, len(j.Nodes) == 0
	j.Shape.NodesMin = max(j.Shape.NodesMin, 1)
	j.Shape.NodesMax = max(j.Shape.NodesMax, j.Shape.NodesMin)
	w.jobs = append(w.jobs, &j)
}

// run lets time pass.
func (w *world) run(d time.Duration) {
	for end := w.now.Add(d); w.now.Before(end); {
		w.now = w.now.Add(w.tick)
		w.step()
	}
}

func (w *world) step() {
	for _, j := range w.jobs {
		switch j.State {
		case cluster.Completing:
			j.State = cluster.Ended
		case cluster.Running:
			if j.ran += time.Duration(float64(w.tick) * w.speed(j)); j.ran >= j.takes {
				w.leave(j)
				j.State, j.Outcome, j.End = cluster.Ended, cluster.Completed, w.now
				if w.slow {
					j.State = cluster.Completing
				}
				w.say("job %s ends", j.ID)
			}
		}
	}
	d := w.observe()
	for _, r := range d.Reclaims {
		if j := w.job(r.Job); r.Requeue && j.State == cluster.Running {
			w.leave(j)
			j.State, j.On, j.Restarts = cluster.Pending, nil, j.Restarts+1
			w.say("job %s is requeued", j.ID)
		}
	}
	for _, g := range d.Grants {
		if !w.deaf {
			w.start(g)
		}
	}
}

// speed is how fast a job really is where it runs.
func (w *world) speed(j *simJob) float64 {
	slowest := 1.0
	for i, s := range j.On {
		v := 1.0
		for k, h := range j.Hint.Speed {
			if h.Type == w.node(s.Node).GPUs[0].Type {
				v = h.Speed
				break
			}
			if k == 0 || h.Speed < v {
				v = h.Speed
			}
		}
		if i == 0 || v < slowest {
			slowest = v
		}
	}
	if len(j.On) == 1 && len(w.node(j.On[0].Node).Slots) > 0 {
		slowest *= fairness.Speed(j.Hint, j.On[0].Slots.Level()) / fairness.Speed(j.Hint, cluster.Slot)
	}
	return slowest
}

func (w *world) observe() Decision {
	if w.arb == nil {
		w.arb = New(w.cfg, w.begin)
	}
	snap := &cluster.Snapshot{Host: "test"}
	for _, n := range w.nodes {
		if every := w.checks[n.Name]; every > 0 && w.now.Sub(n.Use.Until) >= every {
			w.look(n)
		}
		c := *n
		c.GPUs, c.Slots = slices.Clone(n.GPUs), slices.Clone(n.Slots)
		for _, j := range w.jobs {
			if n.Shared && slices.ContainsFunc(j.On, func(s cluster.Share) bool { return s.Node == n.Name }) && (j.State == cluster.Running || j.State == cluster.Completing) {
				c.Holder = j.Host
			}
		}
		snap.Nodes = append(snap.Nodes, c)
	}
	if w.silent != "" {
		snap.Silent = []string{w.silent}
	}
	for _, j := range w.jobs {
		if !j.gone && (w.silent == "" || j.Host != w.silent) {
			snap.Jobs = append(snap.Jobs, j.Job)
		}
	}
	d := w.arb.Step(w.now, snap)
	if w.decided != nil {
		w.decided(&d)
	}
	w.tell(&d)
	w.check(&d)
	if d.Round != nil && len(w.jobs) < 100 {
		w.idle()
	}
	return d
}

// look is a node's health check, as far as its GPUs are busy.
func (w *world) look(n *cluster.Node) {
	of := w.checks[n.Name]
	use := cluster.Use{Until: w.now, Of: of}
	for d := range n.GPUs[0].Total {
		g := cluster.GPUUse{Device: d, Idle: w.now.Add(-of)}
		for _, j := range w.jobs {
			if j.State == cluster.Running && !j.idle[d] && slices.ContainsFunc(j.On, func(s cluster.Share) bool {
				return s.Node == n.Name && j.Devices[slices.Index(j.On, s)]>>d&1 == 1
			}) {
				g.Busy, g.Idle = 1, time.Time{}
			}
		}
		for _, was := range n.Use.GPUs {
			if was.Device == d && !was.Idle.IsZero() && !g.Idle.IsZero() {
				g.Idle = was.Idle
			}
		}
		use.GPUs = append(use.GPUs, g)
	}
	n.Use = use
}

// devices are the lowest that nobody has.
func (w *world) devices(node string, gpus int) (out uint64) {
	var taken uint64
	for _, j := range w.jobs {
		for i, s := range j.On {
			if s.Node == node && j.State == cluster.Running && i < len(j.Devices) {
				taken |= j.Devices[i]
			}
		}
	}
	for d := 0; gpus > 0; d++ {
		if taken>>d&1 == 0 {
			out, gpus = out|1<<d, gpus-1
		}
	}
	return out
}

func (w *world) tell(d *Decision) {
	for _, l := range d.Leases {
		where := make([]string, len(l.On))
		for i, s := range l.On {
			where[i] = fmt.Sprintf("%s:%d", s.Node, s.GPUs)
			if s.Slots != (cluster.InSlots{}) { // n1:3(2+1)
				n := w.node(s.Node)
				where[i] += "(" + strings.Trim(strings.ReplaceAll(fmt.Sprint(s.Slots[:len(n.Slots)]), " ", "+"), "[]") + ")"
			}
		}
		on := strings.Join(where, ",")
		switch l.State {
		case Reserved:
			w.say("%s: job %s gathers %s", l.App, l.Job, on)
		case Granted:
			w.say("%s: job %s wins %s for %s", l.App, l.Job, on, l.Length.Round(time.Second))
		case Held:
			if l.Renewals > w.renewals[l.ID] {
				w.renewals[l.ID] = l.Renewals
				w.say("%s: job %s keeps %s for %s", l.App, l.Job, on, l.Length.Round(time.Second))
			} else if l.Round == 0 {
				w.say("%s: job %s is adopted on %s", l.App, l.Job, on)
			}
		case Ending:
			w.say("%s: job %s must leave %s: %s", l.App, l.Job, on, l.Warned)
		case Over:
			if l.Reason != "completed" {
				w.say("%s: job %s loses its lease: %s", l.App, l.Job, l.Reason)
			}
		}
	}
}

// check states what must hold at every step.
func (w *world) check(d *Decision) {
	held := map[string]int{}
	jobs := map[string]bool{}
	for _, l := range w.arb.State().Leases {
		if jobs[l.Job] {
			w.fail("%s: job %s has two leases", w.now, l.Job)
		}
		jobs[l.Job] = true
		j := w.job(l.Job)
		if l.State != Over && !l.Anywhere && l.GPUs() != j.Shape.Count() && j.Shape.NodesMax == j.Shape.NodesMin {
			w.fail("%s: job %s of %d GPUs has a lease of %d: gangs are whole", w.now, l.Job, j.Shape.Count(), l.GPUs())
		}
		if l.State == Reserved {
			continue
		}
		for _, s := range l.On {
			held[s.Node] += s.GPUs
			typ := ""
			if n := w.node(s.Node); n != nil {
				typ = n.GPUs[0].Type
			}
			switch want := j.Shape.Type; {
			case l.State == Over:
			case want != "" && typ != want:
				w.fail("%s: job %s asks for %s and has a lease on %s of %s", w.now, l.Job, want, typ, s.Node)
			case want == "" && strings.Contains(typ, "1g.") && !slices.Equal(j.Nodes, []string{s.Node}):
				w.fail("%s: job %s asks for whole GPUs and has a lease on the MIG slices of %s", w.now, l.Job, s.Node)
			}
		}
	}
	for _, n := range w.nodes {
		if total, _ := n.TotalGPUs(); held[n.Name] > total {
			w.fail("%s: %d GPUs of %s are leased, it has %d", w.now, held[n.Name], n.Name, total)
		}
	}
	for _, g := range d.Grants {
		if j := w.job(g.Job); j.State == cluster.Pending && j.Blocked != "" {
			w.fail("%s: job %s is granted GPUs while the host holds it back", w.now, g.Job)
		}
	}
}

// idle states work conservation: after a round no job could start on what is
// free, unless a gang is gathering GPUs or the job, slow across machines, has time
// to wait for one.
func (w *world) idle() {
	a := w.arb
	for _, l := range a.leases {
		if l.State == Reserved {
			return
		}
	}
	m := &market{scopes: map[string]*auction.Scope{}, speeds: map[string]*speeds{}, biggest: a.biggest, sides: a.sides(nil)}
	for _, j := range a.list() {
		if a.wants(j) && j.Gang == "" {
			space := auction.NewSpace(a.offer(nil))
			if p := space.PlaceAll([]auction.Gang{m.gang(a, j)}); p != nil {
				w.fail("%s: job %s of %d GPUs waits although %v is free", w.now, j.ID, j.Shape.Count(), p[0].On)
			}
		}
	}
}

func (w *world) start(g Grant) {
	j := w.job(g.Job)
	if j.State != cluster.Pending {
		return
	}
	l := w.arb.jobs[g.Job].Lease
	on := slices.Clone(l.On)
	for i, s := range on {
		n := w.node(s.Node)
		said := cluster.InSlots{}
		if len(g.Slots) > 0 {
			said = g.Slots[i]
		}
		for k := range n.Slots {
			if n.Slots[k].Used+int(said[k]) > n.Slots[k].Total {
				if !w.loose[s.Node] {
					w.fail("%s: job %s starts on slot %d of %s, which is full: %v\n%s", w.now, g.Job, k, s.Node, n.Slots, strings.Join(w.log[max(0, len(w.log)-25):], "\n"))
				}
				said = cluster.InSlots{}
				break
			}
		}
		if said == (cluster.InSlots{}) { // the host chooses, and others may find their slots taken
			w.loose[s.Node] = true
		}
		on[i].Slots = said
		left := s.GPUs
		for k := range n.Slots {
			in := &on[i].Slots[k]
			if said == (cluster.InSlots{}) {
				*in = uint8(min(left, n.Slots[k].Total-n.Slots[k].Used))
			}
			left -= int(*in)
			n.Slots[k].Used += int(*in)
		}
		if len(n.Slots) > 0 && left != 0 {
			w.fail("%s: %d GPUs of job %s are in no slot of %s: %v", w.now, left, g.Job, s.Node, on[i].Slots)
		}
		if n.GPUs[0].Used += s.GPUs; n.GPUs[0].Used > n.GPUs[0].Total {
			w.fail("%s: job %s starts on %s, which is full", w.now, g.Job, s.Node)
		}
		n.CPUsUsed += s.GPUs
		for _, o := range w.jobs {
			if n.Shared && o.State == cluster.Running && o.Host != j.Host && slices.ContainsFunc(o.On, func(t cluster.Share) bool { return t.Node == s.Node }) {
				w.fail("%s: job %s of %s starts on %s, where job %s of %s runs", w.now, j.ID, j.Host, s.Node, o.ID, o.Host)
			}
		}
	}
	j.Devices = nil
	for _, s := range on {
		j.Devices = append(j.Devices, w.devices(s.Node, s.GPUs))
	}
	j.State, j.Start, j.On = cluster.Running, w.now, on
}

func (w *world) leave(j *simJob) {
	for _, s := range j.On {
		n := w.node(s.Node)
		n.GPUs[0].Used -= s.GPUs
		n.CPUsUsed -= s.GPUs
		for k := range n.Slots {
			n.Slots[k].Used -= int(s.Slots[k])
		}
	}
}

// command runs one directive of a scenario file.
func (w *world) command(d *datadriven.TestData) string {
	arg := func(key, none string) string {
		for _, a := range d.CmdArgs {
			if a.Key == key {
				return strings.Join(a.Vals, ",")
			}
		}
		return none
	}
	num := func(key string, none int) int {
		n, err := strconv.Atoi(arg(key, strconv.Itoa(none)))
		if err != nil {
			w.fail("%s: %v", d.Pos, err)
		}
		return n
	}
	span := func(key, none string) time.Duration {
		t, err := time.ParseDuration(arg(key, none))
		if err != nil {
			w.fail("%s: %v", d.Pos, err)
		}
		return t
	}
	w.log = nil
	switch d.Cmd {
	case "config":
		w.cfg.Lease, w.cfg.Grace = span("lease", w.cfg.Lease.String()), span("grace", w.cfg.Grace.String())
		w.cfg.LeaseMin = span("least", w.cfg.LeaseMin.String())
		w.cfg.GatherAfter = span("gather", w.cfg.GatherAfter.String())
		w.cfg.TakeUp = span("take_up", w.cfg.TakeUp.String())
		w.cfg.Reclaim = Reclaim(arg("reclaim", string(w.cfg.Reclaim)))
		w.cfg.Entity = Entity(arg("entity", string(w.cfg.Entity)))
		w.cfg.Payment, w.cfg.Reference = Payment(arg("payment", string(w.cfg.Payment))), Reference(arg("reference", string(w.cfg.Reference)))
		w.cfg.F, _ = strconv.ParseFloat(arg("f", "0.8"), 64)
		w.cfg.Idle, w.cfg.IdleAfter = IdlePolicy(arg("idle", string(w.cfg.Idle))), span("idle_after", w.cfg.IdleAfter.String())
	case "nodes":
		for range num("n", 1) {
			w.addNode(fmt.Sprintf("n%d", len(w.nodes)+1), arg("rack", ""), num("gpus", 8))
			w.nodes[len(w.nodes)-1].Shared = arg("of", "") == "both"
			n := w.nodes[len(w.nodes)-1]
			n.GPUs[0].Type = arg("type", "")
			w.checks[n.Name] = span("check", "0s")
			for k := num("slots", 0); k > 0; k-- {
				n.Slots = append(n.Slots, cluster.GPUs{Total: n.GPUs[0].Total / num("slots", 1)})
			}
		}
	case "submit":
		for i := range num("times", 1) {
			id := num("id", 1) + i
			j := simJob{takes: span("takes", "1h") + time.Duration(i)*span("more", "0s")}
			j.ID, j.User, j.Limit, j.Requeueable = strconv.Itoa(id), arg("user", "alice"), span("limit", "24h"), true
			j.Host = arg("host", "")
			j.Array, j.Account, j.Gang = arg("array", ""), arg("account", ""), arg("gang", "")
			j.Shape = cluster.Shape{NodesMin: num("nodes", 1), NodesMax: num("most", 0), GPUsPerNode: num("per_node", 0), GPUs: num("gpus", 0), Type: arg("type", "")}
			j.Hint = cluster.Hint{App: arg("app", ""), Runtime: span("says", j.takes.String()), Checkpoint: span("checkpoint", "0s"), Model: arg("model", ""), Order: arg("order", "")}
			if on := arg("on", ""); on != "" {
				j.Nodes = []string{on}
			}
			for _, p := range strings.Split(arg("speedup", ""), ",") { // speedup=(1:1,8:6)
				var at cluster.SpeedPoint
				if n, _ := fmt.Sscanf(p, "%d:%g", &at.GPUs, &at.Speed); n == 2 {
					j.Hint.Speedup = append(j.Hint.Speedup, at)
				}
			}
			for _, p := range strings.Split(arg("speed", ""), ",") { // speed=(a100:1,v100:.45)
				if typ, v, ok := strings.Cut(p, ":"); ok {
					f, _ := strconv.ParseFloat(v, 64)
					j.Hint.Speed = append(j.Hint.Speed, cluster.TypeSpeed{Type: typ, Speed: f})
				}
			}
			w.submit(j)
		}
	case "run":
		w.run(span("for", "1m"))
	case "set":
		if n := w.node(arg("node", "")); n != nil {
			n.Why = strings.ReplaceAll(arg("why", ""), "_", " ")
			n.State = map[string]cluster.NodeState{"up": cluster.NodeUp, "drain": cluster.NodeDrain, "down": cluster.NodeDown}[arg("state", "up")]
		}
		if j := w.job(arg("job", "")); j != nil {
			j.Blocked = arg("blocked", "")
			j.idle = map[int]bool{}
			for _, d := range strings.Split(arg("idle", ""), ",") { // idle=(0,3)
				if n, err := strconv.Atoi(d); err == nil {
					j.idle[n] = true
				}
			}
		}
		w.deaf = arg("host", "") == "deaf"
		w.silent = strings.TrimPrefix(arg("silent", w.silent), "nobody")
	case "force": // the host starts a job without asking
		j := w.job(arg("job", ""))
		j.State, j.Start, j.On = cluster.Running, w.now, []cluster.Share{{Node: arg("node", ""), GPUs: j.Shape.Count()}}
		n := w.node(arg("node", ""))
		n.GPUs[0].Used += j.Shape.Count()
	case "requeue": // by an admin, or as a node of its failed
		j := w.job(arg("job", ""))
		w.leave(j)
		j.State, j.On, j.Restarts = cluster.Pending, nil, j.Restarts+1
		if j.ran -= j.Hint.Checkpoint / 2; j.Hint.Checkpoint == 0 {
			j.ran = 0
		}
	case "cancel", "fail":
		j := w.job(arg("job", ""))
		w.leave(j)
		j.State, j.Outcome, j.End = cluster.Ended, map[string]cluster.Outcome{"cancel": cluster.Cancelled, "fail": cluster.Failed}[d.Cmd], w.now
	case "explain":
		e, ok := w.arb.Explain(arg("job", ""))
		if !ok {
			return "unknown job\n"
		}
		w.say("%s", e.Why)
		if u := e.Job.Use; u.Seen > 0 {
			w.log = append(w.log, fmt.Sprintf("busy for %.0f%% of %.1f GPU-hours; waited %s for the auction, %s for GPUs to come free, %s to start", 100*u.Busy/u.Seen, u.Seen/3600,
				e.Job.Waited.Auction, e.Job.Waited.Gather, e.Job.Waited.Start))
		}
		for _, i := range w.arb.idlers() {
			if i.Job == e.Job {
				w.log = append(w.log, i.note(w.now))
			}
		}
		w.log = append(w.log, e.Advice...)
	case "round":
		r := w.arb.last
		v, err := auction.Verify(r.Proof)
		if err != nil {
			w.fail("%s: %v", d.Pos, err)
		}
		w.log = append(w.log, fmt.Sprintf("round %d: %d GPUs on offer, %d apps; exact %v, proven within %.4f", r.ID, r.Free, r.Apps, r.Exact, v.Gap()))
		for _, b := range r.Bids {
			w.log = append(w.log, fmt.Sprintf("%-8s in %-5v rho %.2f -> %.2f  won %d of %d  keeps %.2f  next gains %.3f at %.3f  slack %s  by %s",
				b.App, b.In, b.Rho, b.After, b.Won, b.Wanted, b.Payment, b.Gain, b.Price, b.Slack.Round(time.Minute), b.Source))
		}
	case "owes":
		w.log = append(w.log, fmt.Sprintf("%s owes %.1f GPU-hours", arg("user", ""), w.arb.Owes(arg("user", ""))/3600))
	case "apps":
		for _, a := range w.arb.State().Apps {
			end := "goes on"
			if !a.Ended.IsZero() {
				end = "took " + a.Ended.Sub(a.Submit).String()
			}
			w.log = append(w.log, fmt.Sprintf("%-12s rho %.2f, %s, on its fair share %s", a.ID, a.Rho, end, a.Reference.Sub(a.Submit).Round(time.Second)))
		}
	default:
		w.fail("%s: unknown command %s", d.Pos, d.Cmd)
	}
	if len(w.log) == 0 {
		return ""
	}
	return strings.Join(w.log, "\n") + "\n"
}
