// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"themis/core/auction"
	"themis/core/cluster"
)

// The level that a span's room brings jobs to is the lowest there is room for.
func TestLevelIsLowest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var jobs []lateJob
		for range rapid.IntRange(1, 8).Draw(t, "jobs") {
			jobs = append(jobs, lateJob{width: float64(rapid.IntRange(1, 8).Draw(t, "width")), left: rapid.Float64Range(0, 1e5).Draw(t, "left")})
		}
		span := rapid.Float64Range(1, 1e4).Draw(t, "span")
		room := rapid.Float64Range(1, 32).Draw(t, "gpus") * span
		level := levelOf(jobs, room, span)
		used := func(level float64) (sum float64) {
			for i := range jobs {
				sum += jobs[i].width * jobs[i].above(level, span)
			}
			return sum
		}
		if used(level) > room*(1+1e-9) {
			t.Fatalf("level %.1f takes %.1f GPU-s of %.1f", level, used(level), room)
		}
		if lower := level - 2*levelStep*span; lower > 0 && used(lower) <= room {
			t.Fatalf("level %.1f, yet there is room for %.1f", level, lower)
		}
	})
}

// With one job an app and GPUs for all of them, those jobs must
// not wait that could not end by their references if they did.
func TestMustsAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t.Fatalf)
		w.cfg.Entity = ByApp
		n := rapid.IntRange(1, 5).Draw(t, "apps")
		w.addNode("n1", "", n) // nobody shares in the virtual schedule: no slack
		for i := range n {
			j := simJob{takes: time.Duration(rapid.IntRange(30, 200).Draw(t, "minutes")) * time.Minute}
			j.ID, j.User, j.Shape = fmt.Sprint(i), fmt.Sprint("u", i), cluster.Shape{GPUs: 1}
			j.Hint.Runtime = j.takes
			w.submit(j)
		}
		w.deaf = true
		w.run(w.tick)
		w.arb.cfg.Target = rapid.Float64Range(1, 2).Draw(t, "target")
		must := w.arb.musts(2 * w.cfg.Lease)
		for i, j := range w.jobs {
			slack := w.arb.deadline(w.arb.jobs[j.ID].App).Sub(w.now) - j.takes
			least := w.cfg.Lease.Seconds() * owedBy
			most := least + latestStep*2*w.cfg.Lease.Seconds() // references that count as one
			if _, ok := must[w.arb.jobs[fmt.Sprint(i)]]; ok && slack.Seconds() > most || !ok && slack.Seconds() < least {
				t.Fatalf("job %d has %s of slack, must not wait: %v", i, slack, ok)
			}
		}
	})
}

// Jobs that start together stay together, whatever rule their app has.
func TestUrgentGroupsStayTogether(t *testing.T) {
	m := &market{byJob: map[string]*Job{}, must: map[*Job]float64{}, mustGroup: map[string]bool{}}
	var gangs []auction.Gang
	for _, id := range []string{"a1", "a2", "b"} {
		j := &Job{}
		j.ID, j.Hint.Order = id, "long"
		if id != "b" {
			j.Gang = "a"
		}
		m.byJob[id] = j
		gangs = append(gangs, auction.Gang{ID: id, Group: j.Gang})
	}
	m.must[m.byJob["b"]] = 5
	m.urgentFirst(gangs)
	if got := gangs[0].ID + gangs[1].ID + gangs[2].ID; got != "ba1a2" {
		t.Errorf("in the order %s", got)
	}
}
