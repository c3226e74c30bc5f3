// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"math"
	"sort"
	"strings"

	"themis/core/trace"
)

// Check says what in the options makes no sense, or that a job can never run.
func (o Options) Check(t *trace.Trace, c *trace.Cluster) error {
	bad := func(what string, got any, hint string) error {
		return fmt.Errorf("%s %v\nhint: %s", what, got, hint)
	}
	switch {
	case o.Lease < 0:
		return bad("lease", o.Lease, "a duration above 0, as 5m")
	case math.IsNaN(o.F) || o.F < 0 || o.F >= 1:
		return bad("f", o.F, "the share of apps that stay out of an auction, from 0 to below 1")
	case o.Target != 0 && !(o.Target >= 1 && o.Target <= 10):
		return bad("target", o.Target, "the worst rho that is aimed at, from 1 to 10")
	case o.Aim != "" && o.Aim != "turnaround" && o.Aim != "makespan":
		return bad("aim", o.Aim, "turnaround or makespan")
	case math.IsNaN(o.Error) || o.Error < 0 || o.Error >= 1:
		return bad("error", o.Error, "from 0 to below 1; 0.2 is 20%, both ways")
	case o.Restart < 0 || o.Checkpoint < 0 || o.MTBF < 0 || o.Repair < 0:
		return bad("a duration", "below 0", "restart, checkpoint, mtbf and repair are at least 0")
	case c.GPUs() == 0:
		return bad("cluster", c.Name, "it has no GPUs")
	}
	known := map[string]bool{}
	for i := range t.Jobs {
		known[t.Jobs[i].App] = true
		if j := &t.Jobs[i]; !j.Elastic && j.GPUs > c.GPUs() {
			return fmt.Errorf("job %s asks for %d GPUs, cluster %s has %d\nhint: a larger --cluster, or --jobs elastic", j.ID, j.GPUs, c.Name, c.GPUs())
		}
	}
	for app, by := range o.Lies {
		if !known[app] {
			return bad("no app", app, "apps are named as in the trace")
		} else if !(by > 0) || math.IsInf(by, 1) {
			return bad("lie of app "+app, by, "a factor above 0, as app=3:x0.5")
		}
	}
	return nil
}

// Describe is a result that no policy has run for yet.
func Describe(t *trace.Trace, c *trace.Cluster, o Options) *Result {
	o = o.withDefaults()
	r := &Result{Trace: t.Name, Format: t.Format, Cluster: c.Name, Nodes: len(c.Nodes), GPUs: c.GPUs(), Jobs: len(t.Jobs),
		Seed: o.Seed, Notes: t.Notes, Skipped: len(t.Skipped), Policies: []PolicyResult{},
		Settings: Settings{LeaseS: o.Lease.Seconds(), F: o.F, Target: o.Target, Aim: o.Aim, RestartS: o.Restart.Seconds(), Jobs: "rigid",
			Estimate: o.Estimate, Error: o.Error, Entity: o.Entity, MTBFH: o.MTBF.Hours()}}
	apps := map[string]bool{}
	for i := range t.Jobs {
		j := &t.Jobs[i]
		apps[j.App] = true
		r.Floor += j.Work() / 3600
		if j.Elastic {
			r.Settings.Jobs = "elastic"
		}
	}
	r.Apps = len(apps)
	var lies []string
	for app, by := range o.Lies {
		lies = append(lies, fmt.Sprintf("%s:x%g", app, by))
	}
	sort.Strings(lies)
	r.Settings.Lies = strings.Join(lies, ",")
	return r
}

// Play runs one policy. refs are References of the trace on this cluster.
func Play(t *trace.Trace, c *trace.Cluster, o Options, policy string, refs []float64) (PolicyResult, error) {
	w := NewWorld(t, c, o)
	p, title, err := New(policy, w)
	if err != nil {
		return PolicyResult{}, err
	}
	w.Run(p)
	return w.Result(policy, title, refs), nil
}

// outcomes are the trace's jobs without their ends.
func outcomes(t *trace.Trace) (jobs []Outcome, apps int) {
	index := map[string]int{}
	for i := range t.Jobs {
		j := &t.Jobs[i]
		if _, ok := index[j.App]; !ok {
			index[j.App] = len(index)
		}
		jobs = append(jobs, Outcome{App: index[j.App], Submit: j.Submit.Seconds(), Work: j.Work(), GPUs: float64(j.GPUs), Runtime: j.Runtime.Seconds()})
	}
	return jobs, len(index)
}

// TraceReferences is when each app ends in the fluid fair schedule, in seconds;
// it depends on no policy.
func TraceReferences(t *trace.Trace, gpus int) []float64 {
	jobs, apps := outcomes(t)
	return References(jobs, apps, gpus)
}

// boundRhos are the worst rhos for which the least makespan is proven.
var boundRhos = []float64{1, 1.05, 1.1, 1.2}

// TraceBounds are what no schedule of the trace can beat; nil if it cannot be
// proven, as for apps of several jobs.
func TraceBounds(t *trace.Trace, refs []float64, gpus int) *Bounds {
	jobs, apps := outcomes(t)
	if apps != len(jobs) {
		return nil
	}
	return Bound(jobs, refs, gpus, boundRhos)
}
