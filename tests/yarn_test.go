// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package tests

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"themis/bridge"
	"themis/tests/privateyarn"
)

func startYarn(t *testing.T, opt privateyarn.Options) *privateyarn.Cluster {
	t.Helper()
	t.Parallel() // they wait more than they compute
	opt.Themis = true
	if opt.ThemisTOML == "" {
		opt.ThemisTOML = quick
	}
	return privateyarn.StartT(t, opt)
}

// bothModes runs a test under asynchronous scheduling, the release's default, and
// under scheduling at node heartbeats.
func bothModes(t *testing.T, opt privateyarn.Options, test func(*testing.T, *privateyarn.Cluster)) {
	for _, opt.Heartbeats = range []bool{false, true} {
		t.Run(map[bool]string{false: "asynchronous", true: "heartbeats"}[opt.Heartbeats], func(t *testing.T) {
			test(t, startYarn(t, opt))
		})
	}
}

func submit(t *testing.T, c *privateyarn.Cluster, app privateyarn.App) *privateyarn.Submitted {
	t.Helper()
	s, err := c.Submit(app)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func await(t *testing.T, s *privateyarn.Submitted, cond func(privateyarn.Report) bool) privateyarn.Report {
	t.Helper()
	r, err := s.Wait(patient, cond)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func succeeded(r privateyarn.Report) bool { return r.FinalStatus == "SUCCEEDED" }

// awaitEvent waits until the application has said something so often.
func awaitEvent(t *testing.T, s *privateyarn.Submitted, text string, times int) {
	t.Helper()
	eventually(t, func() string {
		if n := s.Count(text); n < times {
			return fmt.Sprintf("%s: %q came %d times, not %d:\n%s%s", s.ID, text, n, times, s.Events(), s.Trouble())
		}
		return ""
	})
}

// yarnLeases asks the core, which may still be on its way up.
func yarnLeases(t *testing.T, c *privateyarn.Cluster) []bridge.Lease {
	t.Helper()
	return yarnView[[]bridge.Lease](t, c, "leases")
}

func yarnView[T any](t *testing.T, c *privateyarn.Cluster, args ...string) T {
	t.Helper()
	var v T
	eventually(t, func() string {
		out, err := c.Themis(append(args, "--json")...)
		if err == nil {
			err = json.Unmarshal([]byte(out), &v)
		}
		if err != nil {
			return err.Error()
		}
		return ""
	})
	return v
}

// leased counts the GPUs under leases, not those that are only promised.
func leased(leases []bridge.Lease) int {
	gpus := 0
	for _, l := range leases {
		if l.State == "reserved" {
			continue
		}
		for _, p := range l.Places {
			gpus += p.GPUs
		}
	}
	return gpus
}

// TestYarnGang: a gang starts whole, on the nodes of its lease; a gang that does
// not fit beside it waits whole, with a reason, and holds up no application
// without GPUs behind it in its queue, though all GPUs are taken.
func TestYarnGang(t *testing.T) {
	bothModes(t, privateyarn.Options{}, func(t *testing.T, c *privateyarn.Cluster) {
		first := submit(t, c, privateyarn.App{Containers: 4, GPUs: 2, Seconds: 20})
		awaitEvent(t, first, "started", 1)
		places := map[string]int{}
		for _, l := range yarnLeases(t, c) {
			for _, p := range l.Places {
				places[p.Node] += p.GPUs
			}
		}
		if places[c.NodeName(0)]+places[c.NodeName(1)] != 8 {
			t.Errorf("leases hold %v, not 8 GPUs", places)
		}
		got := map[string]int{}
		for _, line := range strings.Split(first.Events(), "\n") {
			if _, node, ok := strings.Cut(line, " on "); ok {
				got[node] += 2
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(places) {
			t.Errorf("containers hold %v, leases are for %v", got, places)
		}
		second := submit(t, c, privateyarn.App{User: "bob", Queue: "b", Containers: 2, GPUs: 2, Seconds: 2})
		waiting := await(t, second, func(r privateyarn.Report) bool { return strings.Contains(r.Diagnostics, "rho") })
		t.Log(waiting.Diagnostics)
		behind := submit(t, c, privateyarn.App{User: "bob", Queue: "b", Containers: 2, Seconds: 1})
		await(t, behind, func(r privateyarn.Report) bool { return succeeded(r) || first.Count("finished") > 0 })
		if behind.Count("started") == 0 {
			t.Errorf("an application without GPUs waited behind the gang:\n%s", behind.Events())
		}
		n := second.Count("got container")
		for _, l := range yarnLeases(t, c) {
			if n > 0 && strings.HasPrefix(l.Job, first.ID) {
				t.Errorf("the second gang got %d containers while the first one had its lease", n)
			}
		}
		out, err := c.Themis("explain", second.ID)
		if err != nil || !strings.Contains(out, "rho") {
			t.Errorf("themis explain: %v %s", err, out)
		}
		await(t, first, succeeded)
		await(t, second, succeeded)
	})
}

// halves makes two gangs that ask for six of eight GPUs each while a third one
// holds them all, so that their queues are served in turn when it is killed.
func halves(t *testing.T, c *privateyarn.Cluster) (x, y *privateyarn.Submitted) {
	t.Helper()
	before := submit(t, c, privateyarn.App{User: "carol", Queue: "c", Containers: 8, GPUs: 1, Seconds: 1000})
	awaitEvent(t, before, "started", 1)
	x = submit(t, c, privateyarn.App{User: "alice", Queue: "a", Containers: 6, GPUs: 1, Seconds: 2})
	y = submit(t, c, privateyarn.App{User: "bob", Queue: "b", Containers: 6, GPUs: 1, Seconds: 2})
	awaitEvent(t, x, "asked", 1)
	awaitEvent(t, y, "asked", 1)
	if err := before.Kill(); err != nil {
		t.Fatal(err)
	}
	return x, y
}

var three = []string{"a", "b", "c"}

// TestYarnNoDeadlock: two gangs of which each takes half of the GPUs under stock
// YARN, and waits for the rest for ever, both finish.
func TestYarnNoDeadlock(t *testing.T) {
	t.Run("stock", func(t *testing.T) {
		t.Parallel()
		c := privateyarn.StartT(t, privateyarn.Options{Queues: three})
		x, y := halves(t, c)
		eventually(t, func() string {
			if n := x.Count("got container") + y.Count("got container"); n < 8 {
				return fmt.Sprintf("%d of 8 containers landed", n)
			}
			return ""
		})
		time.Sleep(10 * time.Second)
		if x.Count("started")+y.Count("started") > 0 || x.Count("got container")+y.Count("got container") != 8 {
			t.Errorf("stock YARN does not deadlock here:\n%s\n%s", x.Events(), y.Events())
		}
	})
	bothModes(t, privateyarn.Options{Queues: three}, func(t *testing.T, c *privateyarn.Cluster) {
		x, y := halves(t, c)
		await(t, x, succeeded)
		await(t, y, succeeded)
	})
}

// TestYarnReclaim: a gang that checkpoints gives way when its lease ends, is told
// so before, and goes on later where it was.
func TestYarnReclaim(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		t.Run(map[bool]string{false: "listens", true: "deaf"}[deaf], func(t *testing.T) {
			c := startYarn(t, privateyarn.Options{})
			hints := []string{"themis:checkpoint=1s", "themis:runtime=60s"}
			first := submit(t, c, privateyarn.App{User: "alice", Containers: 4, GPUs: 2, Seconds: 20, Deaf: deaf, Tags: hints})
			awaitEvent(t, first, "started", 1)
			second := submit(t, c, privateyarn.App{User: "bob", Queue: "b", Containers: 4, GPUs: 2, Seconds: 4, Tags: []string{"themis:runtime=5s"}})
			await(t, second, succeeded)
			if deaf {
				awaitEvent(t, first, "with -102", 4)
			} else {
				awaitEvent(t, first, "gives back", 4)
				if !strings.Contains(first.Events(), "yarn.io/gpu: 2") {
					t.Error("the message does not state the GPUs")
				}
			}
			await(t, first, succeeded)
			if n := first.Count("started"); n < 2 {
				t.Errorf("the first gang started %d times", n)
			}
			t.Log(first.Events())
		})
	}
}

// TestYarnMalformedHint: refused at submission, with the right form.
func TestYarnMalformedHint(t *testing.T) {
	c := startYarn(t, privateyarn.Options{})
	for _, tag := range []string{"themis:runtime=soon", "themis:gang=many", "themis:colour=red"} {
		app := submit(t, c, privateyarn.App{Tags: []string{tag}})
		r := await(t, app, func(r privateyarn.Report) bool { return r.State == "FAILED" })
		if !strings.Contains(r.Diagnostics, "the form is: themis:") {
			t.Errorf("%s: %s", tag, r.Diagnostics)
		}
		t.Log(r.Diagnostics)
	}
}

// TestYarnGangTag: with themis:gang= an application's demand is served gang by
// gang, and a lease lets in its gang and no container more.
func TestYarnGangTag(t *testing.T) {
	c := startYarn(t, privateyarn.Options{GPUs: 3})
	// Two nodes of 3 GPUs hold one container of 2 GPUs each: one gang of two.
	app := submit(t, c, privateyarn.App{Containers: 4, GPUs: 2, Seconds: 3, Eager: true, Tags: []string{"themis:gang=2"}})
	awaitEvent(t, app, "started", 1)
	if n := app.Count("got container"); n != 2 {
		t.Errorf("%d containers landed, the gang has 2:\n%s", n, app.Events())
	}
	await(t, app, succeeded)
	if n := app.Count("got container"); n != 4 {
		t.Errorf("%d containers landed, 4 were asked for:\n%s", n, app.Events())
	}
	// An orderly end takes the core along, and nobody thinks that it is missing.
	core, err := c.CorePID()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.StopRM(); err != nil {
		t.Error(err)
	}
	if syscall.Kill(core, 0) == nil || strings.Contains(c.RMLog(), "no answer from the core") {
		t.Errorf("an orderly end:\n%s", c.Said())
	}
}

// TestYarnReplace: a container that fails is replaced on the lease of its gang,
// and a gang whose containers fail again and again gets no GPU beyond its lease.
func TestYarnReplace(t *testing.T) {
	bothModes(t, privateyarn.Options{}, func(t *testing.T, c *privateyarn.Cluster) {
		app := submit(t, c, privateyarn.App{Containers: 2, GPUs: 2, Seconds: 6, Fail: 3})
		second := submit(t, c, privateyarn.App{User: "bob", Queue: "b", Containers: 2, GPUs: 2, Seconds: 6})
		most := 0
		await(t, app, func(r privateyarn.Report) bool {
			for _, l := range yarnLeases(t, c) {
				most = max(most, leased([]bridge.Lease{l}))
			}
			return succeeded(r)
		})
		await(t, second, succeeded)
		if n := app.Count("with 1"); n != 3 {
			t.Errorf("%d containers failed, 3 should have:\n%s", n, app.Events())
		}
		if n := app.Count("got container"); n != 5 || most != 4 {
			t.Errorf("%d containers landed, at most %d GPUs of one lease, not 5 and 4:\n%s", n, most, app.Events())
		}
	})
}

// TestYarnBypass: no way around the gate: a placement class of one's own,
// opportunistic containers, SchedulingRequests. Applications without GPUs may
// have all of these.
func TestYarnBypass(t *testing.T) {
	c := startYarn(t, privateyarn.Options{Site: map[string]string{
		"yarn.resourcemanager.opportunistic-container-allocation.enabled": "true",
		"yarn.resourcemanager.placement-constraints.handler":              "scheduler",
		"yarn.nodemanager.opportunistic-containers-max-queue-length":      "10",
	}})
	own := map[string]string{"APPLICATION_PLACEMENT_TYPE_CLASS": "org.apache.hadoop.yarn.server.resourcemanager.scheduler.placement.LocalityAppPlacementAllocator"}
	for _, app := range []privateyarn.App{
		{Containers: 2, GPUs: 1, Env: own},
		{Containers: 2, GPUs: 1, Ask: "opportunistic"},
		{Containers: 2, GPUs: 1, Ask: "scheduling-request"},
	} {
		s := submit(t, c, app)
		awaitEvent(t, s, "refused", 1)
		if n := s.Count("got container"); n != 0 {
			t.Errorf("%+v got %d containers", app, n)
		}
		await(t, s, func(r privateyarn.Report) bool { return r.FinalStatus == "FAILED" })
		t.Log(s.Events())
	}
	for _, ask := range []string{"", "scheduling-request"} {
		s := submit(t, c, privateyarn.App{Containers: 2, Seconds: 1, Env: own, Ask: ask})
		await(t, s, succeeded)
	}
}

// TestYarnRestart: after kill -9 of the ResourceManager running containers run
// on and are leases again, and what waits goes on waiting.
func TestYarnRestart(t *testing.T) {
	c := startYarn(t, privateyarn.Options{})
	first := submit(t, c, privateyarn.App{Containers: 3, GPUs: 2, Seconds: 45})
	awaitEvent(t, first, "started", 1)
	second := submit(t, c, privateyarn.App{User: "bob", Queue: "b", Containers: 2, GPUs: 2, Seconds: 1})
	awaitEvent(t, second, "asked", 1)
	if err := c.KillRM(); err != nil {
		t.Fatal(err)
	}
	if err := c.StartRM(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string {
		if held := leased(yarnLeases(t, c)); held != 6 {
			return fmt.Sprintf("leases hold %d GPUs after the restart, not 6", held)
		}
		return ""
	})
	await(t, first, succeeded)
	await(t, second, succeeded)
	if n := first.Count("got container"); n != 3 {
		t.Errorf("the first gang got %d containers:\n%s", n, first.Events())
	}
}

// TestYarnUndone: a gang that cannot land whole, for a reason that the core does
// not know of, is undone: what has landed is given back, and others get the GPUs.
func TestYarnUndone(t *testing.T) {
	bothModes(t, privateyarn.Options{}, func(t *testing.T, c *privateyarn.Cluster) {
		app := submit(t, c, privateyarn.App{Containers: 6, GPUs: 1, Seconds: 1, Avoid: c.NodeName(1)})
		awaitEvent(t, app, "with -102", 2)
		second := submit(t, c, privateyarn.App{User: "bob", Queue: "b", Containers: 8, GPUs: 1, Seconds: 1})
		defer func() { t.Log(app.Events()) }()
		await(t, second, succeeded)
		if app.Count("started") != 0 {
			t.Errorf("started without a node that it needs:\n%s", app.Events())
		}
		if err := app.Kill(); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() string {
			if l := yarnLeases(t, c); len(l) > 0 {
				return fmt.Sprintf("leases after all has ended: %+v", l)
			}
			return ""
		})
	})
}
