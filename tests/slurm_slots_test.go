// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package tests

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"themis/bridge"
	"themis/core/gpu"
	"themis/tests/privateslurm"
)

// slotsOf are the sockets of the GPUs that a job sees, on nodes of two with four each,
// and those of its cores.
func slotsOf(t *testing.T, c *privateslurm.Cluster, id string) (gpus, cores []int) {
	t.Helper()
	var devices []int
	eventually(t, func() string {
		for _, line := range strings.Split(c.Output(id), "\n") {
			if seen, ok := strings.CutPrefix(line, "gpus "); ok {
				var err error
				if devices, err = gpu.ParseRanges(seen); err != nil {
					t.Fatal(err)
				}
				return ""
			}
		}
		return "job " + id + " has not said which GPUs it sees"
	})
	for _, d := range devices {
		if s := d / 4; !slices.Contains(gpus, s) {
			gpus = append(gpus, s)
		}
	}
	detail := run(t, c, "scontrol", "--details", "show", "job", id)
	_, ids, _ := strings.Cut(detail, "CPU_IDs=")
	cpus, err := gpu.ParseRanges(strings.Fields(ids)[0])
	if err != nil {
		t.Fatalf("%v in %s", err, detail)
	}
	for _, cpu := range cpus {
		if s := cpu / (16 / 2); !slices.Contains(cores, s) {
			cores = append(cores, s)
		}
	}
	return gpus, cores
}

// TestSlots: on a node of two sockets a network-bound job gets its GPUs, and its cores,
// from one; compute-bound ones may straddle. Which GPUs these are the jobs say themselves.
func TestSlots(t *testing.T) {
	c := start(t, privateslurm.Options{Nodes: 1, GPUs: 8, CPUs: 16, ThemisTOML: everybodyBids})
	const script = "echo gpus $SLURM_JOB_GPUS; sleep 300"
	blocker := sbatch(t, c, "alice", "sleep 300", "--gres=gpu:8", "-t9")
	wait(t, c, blocker, running)
	first := sbatch(t, c, "alice", script, "--gres=gpu:3", "-t9", "--comment=themis: model=compute")
	second := sbatch(t, c, "bob", script, "--gres=gpu:3", "-t9", "--comment=themis: model=compute")
	bound := sbatch(t, c, "carol", script, "--gres=gpu:2", "-t9", "--comment=themis: model=vgg16")
	eventually(t, func() string {
		if s := view[bridge.Status](t, c, "status"); s.Waiting != 3 {
			return fmt.Sprintf("%d jobs wait", s.Waiting)
		}
		return ""
	})
	run(t, c, "scancel", blocker)
	straddle := 0
	for _, id := range []string{first, second, bound} {
		wait(t, c, id, running)
		gpus, cores := slotsOf(t, c, id)
		lease := view[bridge.Explain](t, c, "explain", id).Lease
		var leased []int
		for slot, n := range lease.Places[0].Slots {
			if n > 0 {
				leased = append(leased, slot)
			}
		}
		slices.Sort(gpus)
		if !slices.Equal(gpus, leased) {
			t.Errorf("job %s has GPUs of sockets %v, its lease is for %v", id, gpus, leased)
		}
		if len(gpus) > 1 {
			straddle++
		} else if !slices.Equal(cores, gpus) {
			t.Errorf("job %s has GPUs of socket %v and cores of %v", id, gpus, cores)
		}
		if id == bound && len(gpus) > 1 {
			t.Errorf("the network-bound job has GPUs of sockets %v", gpus)
		}
	}
	if straddle != 1 {
		t.Errorf("%d jobs straddle, want one of three: 3+3+2 GPUs do not fit 4+4", straddle)
	}
}
