// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"themis/bridge"
	"themis/tests/privateyarn"
)

// nodesOf are the nodes under an application's leases, with GPUs.
func nodesOf(leases []bridge.Lease, app *privateyarn.Submitted) map[string]int {
	on := map[string]int{}
	for _, l := range leases {
		if strings.HasPrefix(l.Job, app.ID+"_") && l.State != "reserved" {
			for _, p := range l.Places {
				on[p.Node] += p.GPUs
			}
		}
	}
	return on
}

// noLeases waits until all is given back.
func noLeases(t *testing.T, c *privateyarn.Cluster) {
	t.Helper()
	eventually(t, func() string {
		if l := yarnLeases(t, c); len(l) > 0 {
			return fmt.Sprintf("leases are left: %+v", l)
		}
		return ""
	})
}

// TestYarnTrouble: leases follow what happens to nodes, masters and queues.
func TestYarnTrouble(t *testing.T) {
	c := startYarn(t, privateyarn.Options{Nodes: 3})
	// Of the nodes under its leases, one without its master.
	nodeOf := func(app *privateyarn.Submitted) int {
		on := nodesOf(yarnLeases(t, c), app)
		for i := range 3 {
			if on[c.NodeName(i)] > 0 && i != app.MasterNode() {
				return i
			}
		}
		t.Fatalf("no node beside the master's in %v", on)
		return 0
	}

	// A NodeManager that comes back in time brings its containers along.
	t.Run("node back", func(t *testing.T) {
		app := submit(t, c, privateyarn.App{Containers: 8, GPUs: 1, Seconds: 15})
		awaitEvent(t, app, "started", 1)
		eventually(t, func() string { // a container that is being launched does not outlive its NodeManager
			if ranks, _ := filepath.Glob(filepath.Join(app.Dir, "rank?")); len(ranks) < 8 {
				return fmt.Sprintf("%d of 8 ranks count", len(ranks))
			}
			return ""
		})
		node := nodeOf(app)
		if err := c.KillNode(node); err != nil {
			t.Fatal(err)
		}
		if err := c.StartNode(node); err != nil {
			t.Fatal(err)
		}
		await(t, app, succeeded)
		if n := app.Count("got container"); n != 8 {
			t.Errorf("%d containers landed:\n%s", n, app.Events())
		}
		noLeases(t, c)
	})

	// The containers of a node that is lost are asked for again, and found a place elsewhere.
	t.Run("node lost", func(t *testing.T) {
		app := submit(t, c, privateyarn.App{Containers: 8, GPUs: 1, Seconds: 25})
		awaitEvent(t, app, "started", 1)
		node := nodeOf(app)
		if err := c.KillNode(node); err != nil {
			t.Fatal(err)
		}
		awaitEvent(t, app, "with -100", 1)
		await(t, app, succeeded)
		noLeases(t, c)
		var st bridge.Status
		eventually(t, func() string {
			if st = yarnView[bridge.Status](t, c, "status"); st.GPUs != 8 {
				return fmt.Sprintf("%d GPUs, two nodes have 8", st.GPUs)
			}
			return ""
		})
		if err := c.StartNode(node); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() string {
			if st = yarnView[bridge.Status](t, c, "status"); st.GPUs != 12 {
				return fmt.Sprintf("%d GPUs once the node is back", st.GPUs)
			}
			return ""
		})
	})

	// A node that is to leave keeps what runs, and takes nothing new.
	t.Run("decommissioned", func(t *testing.T) {
		app := submit(t, c, privateyarn.App{Containers: 8, GPUs: 1, Seconds: 15})
		awaitEvent(t, app, "started", 1)
		node := nodeOf(app)
		if err := c.Exclude(5*time.Minute, node); err != nil {
			t.Fatal(err)
		}
		next := submit(t, c, privateyarn.App{User: "bob", Queue: "b", Containers: 4, GPUs: 1, Seconds: 2})
		awaitEvent(t, next, "started", 1)
		if on := nodesOf(yarnLeases(t, c), next); on[c.NodeName(node)] > 0 {
			t.Errorf("a node that is to leave got a new lease: %v", on)
		}
		await(t, next, succeeded)
		await(t, app, succeeded)
		if err := c.Exclude(0); err != nil {
			t.Fatal(err)
		}
		c.KillNode(node) // it ends by itself once it is decommissioned
		if err := c.StartNode(node); err != nil {
			t.Fatal(err)
		}
		noLeases(t, c)
	})

	// A master that fails loses its containers; its next attempt bids again.
	t.Run("attempt", func(t *testing.T) {
		app := submit(t, c, privateyarn.App{Containers: 2, GPUs: 2, Seconds: 10, Attempts: 2})
		awaitEvent(t, app, "started", 1)
		if err := app.KillMaster(); err != nil {
			t.Fatal(err)
		}
		awaitEvent(t, app, "registered", 2)
		await(t, app, succeeded)
		if n := app.Count("got container"); n != 4 {
			t.Errorf("%d containers landed for two attempts of 2:\n%s", n, app.Events())
		}
		noLeases(t, c)
	})

	// What a queue may not use is not granted to it: others get it meanwhile.
	t.Run("queue full", func(t *testing.T) {
		if err := c.RefreshQueues(map[string]string{"root.b.maximum-capacity": "50"}); err != nil {
			t.Fatal(err)
		}
		first := submit(t, c, privateyarn.App{User: "bob", Queue: "b", Containers: 4, GPUs: 1, Seconds: 15})
		awaitEvent(t, first, "started", 1)
		second := submit(t, c, privateyarn.App{User: "bob", Queue: "b", Containers: 4, GPUs: 1, Seconds: 2})
		r := await(t, second, func(r privateyarn.Report) bool { return strings.Contains(r.Diagnostics, "maximum") })
		t.Log(r.Diagnostics)
		if e := yarnView[bridge.Explain](t, c, "explain", second.ID+"_1"); !strings.Contains(e.Why, "queue root.b") {
			t.Errorf("explain: %+v", e)
		}
		other := submit(t, c, privateyarn.App{Containers: 8, GPUs: 1, Seconds: 1})
		await(t, other, succeeded)
		await(t, first, succeeded)
		await(t, second, succeeded)
		noLeases(t, c)
	})
}

// TestYarnFailover: the ResourceManager that takes over finds what runs, and its core
// makes leases of it; the one that steps back ends its core.
func TestYarnFailover(t *testing.T) {
	c := startYarn(t, privateyarn.Options{HA: true})
	first := submit(t, c, privateyarn.App{Containers: 3, GPUs: 2, Seconds: 1000})
	awaitEvent(t, first, "started", 1)
	second := submit(t, c, privateyarn.App{User: "bob", Queue: "b", Containers: 2, GPUs: 2, Seconds: 1})
	awaitEvent(t, second, "asked", 1)
	for _, kill := range []bool{false, true} {
		old, err := c.CorePID()
		if err != nil {
			t.Fatal(err)
		}
		checkInherited(t, old)
		if err := c.Failover(kill); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() string {
			if leases := yarnLeases(t, c); leased(leases) != 6 {
				return fmt.Sprintf("leases after the failover (kill: %v) are not one of 6 GPUs: %+v", kill, leases)
			}
			if syscall.Kill(old, 0) == nil {
				return "the old core runs on"
			}
			return ""
		})
	}
	if n := first.Count("got container"); n != 3 || first.Count("ended") > 0 {
		t.Errorf("the first gang did not run on:\n%s", first.Events())
	}
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	await(t, second, succeeded)
}

// checkInherited states that a core keeps nothing open that its host had: jars,
// ports, and the pipes to other children, whose end of file the host waits for.
func checkInherited(t *testing.T, core int) {
	t.Helper()
	eventually(t, func() string {
		var kept []string
		infos, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", core))
		for _, info := range infos {
			fd, _ := strconv.Atoi(filepath.Base(info))
			text, err := os.ReadFile(info)
			_, flags, ok := strings.Cut(string(text), "flags:\t")
			if err != nil || !ok || fd <= 2 {
				continue
			}
			octal, _, _ := strings.Cut(flags, "\n")
			if n, err := strconv.ParseInt(octal, 8, 64); err != nil || n&syscall.O_CLOEXEC == 0 {
				to, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", core, fd))
				kept = append(kept, to)
			}
		}
		if len(infos) < 4 || len(kept) > 0 {
			return fmt.Sprintf("the core has %d files, and of its host's: %v", len(infos), kept)
		}
		return ""
	})
}

// TestYarnLabels: a gang is served from the nodes of the label that it asks for.
func TestYarnLabels(t *testing.T) {
	c := startYarn(t, privateyarn.Options{Site: map[string]string{"yarn.node-labels.enabled": "true"}})
	if err := c.Label("fast", 1); err != nil {
		t.Fatal(err)
	}
	wide := submit(t, c, privateyarn.App{User: "bob", Queue: "b", Containers: 6, GPUs: 1, Seconds: 1})
	fast := submit(t, c, privateyarn.App{Containers: 4, GPUs: 1, Seconds: 10, Label: "fast"})
	plain := submit(t, c, privateyarn.App{Containers: 4, GPUs: 1, Seconds: 10})
	awaitEvent(t, fast, "started", 1)
	awaitEvent(t, plain, "started", 1)
	leases := yarnLeases(t, c)
	for i, app := range []*privateyarn.Submitted{plain, fast} {
		if on := nodesOf(leases, app); len(on) != 1 || on[c.NodeName(i)] != 4 {
			t.Errorf("a gang for node %d has %v", i, on)
		}
	}
	await(t, fast, succeeded)
	await(t, plain, succeeded)
	if wide.Count("asked") == 0 || wide.Count("got container") > 0 {
		t.Errorf("a gang that its nodes do not hold:\n%s", wide.Events())
	}
}
