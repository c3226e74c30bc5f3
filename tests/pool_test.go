// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package tests

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"themis/bridge"
	"themis/tests/privateslurm"
	"themis/tests/privateyarn"
)

// ask is what the core answers.
func ask[T any](t *testing.T, c *core, args ...string) T {
	t.Helper()
	var v T
	out, err := exec.Command(themisBinary(), append(args, "--json", "--socket", c.socket)...).Output()
	if err == nil {
		err = json.Unmarshal(out, &v)
	}
	if err != nil {
		t.Fatalf("themis %v: %v %s", args, err, out)
	}
	return v
}

// apart states that no node is under leases of Slurm and of YARN at once.
func apart(t *testing.T, c *core) (gpus map[string]int) {
	t.Helper()
	gpus = map[string]int{}
	of := map[string]string{}
	for _, l := range ask[[]bridge.Lease](t, c, "leases") {
		host := "slurm"
		if strings.HasPrefix(l.Job, "application_") {
			host = "yarn"
		}
		for _, p := range l.Places {
			gpus[host] += p.GPUs
			if l.State == "reserved" {
				continue
			}
			if was := of[p.Node]; was != "" && was != host {
				t.Errorf("node %s is under leases of %s and %s", p.Node, was, host)
			}
			of[p.Node] = host
		}
	}
	return gpus
}

// TestOnePool: both daemons on one machine, two nodes of four GPUs that are slurmds
// and NodeManagers. One auction gives each node to one of the two at a time.
func TestOnePool(t *testing.T) {
	core := newCore(t)
	y := startYarn(t, privateyarn.Options{
		Site: map[string]string{"themis.socket": core.socket},
		Before: func(c *privateyarn.Cluster) error {
			core.serve(quick + fmt.Sprintf("\n[pool]\nnodes = {%q = \"n1\", %q = \"n2\"}\n", c.NodeName(0), c.NodeName(1)))
			return nil
		},
	})
	s := start(t, privateslurm.Options{Nodes: 2, GPUs: 4, Env: []string{"THEMIS_SOCKET=" + core.socket}})
	eventually(t, func() string {
		if st := ask[bridge.Status](t, core, "status"); st.Nodes != 2 || st.GPUs != 8 || len(st.Hosts) != 2 {
			return fmt.Sprintf("the pool is %+v", st)
		}
		return ""
	})

	first := sbatch(t, s, "alice", "sleep 25", "--gres=gpu:2", "-t5", "--comment=themis: runtime=25s")
	place := wait(t, s, first, running)["NodeList"]
	small := submit(t, y, privateyarn.App{User: "bob", Queue: "b", Containers: 2, GPUs: 2, Seconds: 5})
	awaitEvent(t, small, "started", 1)
	if got := y.NodeName(map[string]int{"n1": 0, "n2": 1}[place]); strings.Contains(small.Events(), " on "+got) {
		t.Errorf("Slurm has %s, and YARN started on it:\n%s", place, small.Events())
	}
	if gpus := apart(t, core); gpus["slurm"] != 2 || gpus["yarn"] != 4 {
		t.Errorf("under leases are %v", gpus)
	}

	// A gang for the whole pool waits until Slurm has left; Slurm's next job waits for the gang.
	whole := submit(t, y, privateyarn.App{User: "bob", Queue: "b", Containers: 4, GPUs: 2, Seconds: 8, Tags: []string{"themis:runtime=8s"}})
	why := await(t, whole, func(r privateyarn.Report) bool { return strings.Contains(r.Diagnostics, "rho") })
	t.Log(why.Diagnostics)
	for whole.Count("started") == 0 {
		apart(t, core)
		if j, err := s.Job(first); err == nil && j["JobState"] == "RUNNING" && whole.Count("got container") > 0 {
			t.Errorf("the gang started beside Slurm's job:\n%s", whole.Events())
		}
		if t.Failed() {
			return
		}
		time.Sleep(300 * time.Millisecond)
	}
	second := sbatch(t, s, "alice", "sleep 1", "--gres=gpu:1", "-t5", "--comment=themis: runtime=1s")
	e := ask[bridge.Explain](t, core, "explain", whole.ID+"_1")
	if e.State != "running" || e.Lease == nil {
		t.Errorf("explain of the gang: %+v", e)
	}
	eventually(t, func() string { // the core hears of the job within a tick
		out, err := exec.Command(themisBinary(), "explain", second, "--socket", core.socket).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "bob/application_") && whole.Count("finished") == 0 {
			return fmt.Sprintf("explain of Slurm's job: %v\n%s", err, out)
		}
		return ""
	})
	apart(t, core)
	await(t, whole, succeeded)
	wait(t, s, second, completed)
	apart(t, core)
}
