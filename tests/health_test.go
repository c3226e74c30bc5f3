// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"themis/bridge"
	"themis/core/gpu"
	"themis/tests/privateslurm"
)

// checked is a cluster whose slurmds run `themis gpus --check --slurm` every two seconds, each on a
// machine of its own that tests/fakenvml plays.
type checked struct {
	*privateslurm.Cluster
	t   *testing.T
	dir string
}

const fourGPUs = "gpus 4\n0-3 name NVIDIA A100-SXM4-40GB\n0-3 processes 0\n"

func startChecked(t *testing.T, flags string) *checked {
	t.Helper()
	return startCheckedWith(t, flags, "")
}

func startCheckedWith(t *testing.T, flags, toml string) *checked {
	t.Helper()
	k := &checked{t: t}
	var err error
	if k.dir, err = os.MkdirTemp("", "themis-health."); err != nil { // not below a folder of root's
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(k.dir) })
	binary, err := filepath.Abs(themisBinary())
	if err != nil {
		t.Fatal(err)
	}
	// The cluster's environment is known once it has started. Every second would be too often:
	// slurmctld pings no nodes while health checks are under way, and one that resumes waits for that.
	k.write("check", fmt.Sprintf(`#!/bin/sh
cd %s && test -f env || exit 0
set -a; . ./env; PATH=; FAKE_NVML=$PWD/$SLURMD_NODENAME
exec %s gpus --check --slurm --state state --gres-file gres.conf --library %s %s >>$SLURMD_NODENAME.log 2>&1
`, k.dir, binary, filepath.Join(filepath.Dir(binary), "../fakenvml/libnvidia-ml.so.1"), flags))
	k.write("gres.conf", "Name=gpu File=/dev/nvidia[0-3]\n")
	for _, node := range []string{"n1", "n2", "n3"} {
		k.machine(node, "")
	}
	k.Cluster = start(t, privateslurm.Options{Nodes: 3, GPUs: 4, ThemisTOML: toml,
		Conf: "HealthCheckProgram=" + k.dir + "/check\nHealthCheckInterval=2\nHealthCheckNodeState=ANY"})
	var env strings.Builder
	for _, e := range k.Env() {
		key, value, _ := strings.Cut(e, "=")
		fmt.Fprintf(&env, "%s='%s'\n", key, value)
	}
	k.write("env", env.String())
	t.Cleanup(func() {
		for _, node := range []string{"n1", "n2", "n3"} {
			if t.Failed() {
				t.Logf("the checks of %s said\n%s", node, k.said(node))
			}
		}
	})
	return k
}

// write replaces a file of the checks in one step.
func (k *checked) write(name, text string) {
	k.t.Helper()
	path := filepath.Join(k.dir, name)
	if err := os.WriteFile(path+".new", []byte(text), 0o755); err != nil {
		k.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		k.t.Fatal(err)
	}
}

// machine has a node's GPUs be well but for trouble, in the words of fakenvml.
func (k *checked) machine(node, trouble string) { k.write(node, fourGPUs+trouble) }

// said is what the checks of a node have written.
func (k *checked) said(node string) string {
	text, _ := os.ReadFile(filepath.Join(k.dir, node+".log"))
	return string(text)
}

// checks waits until so many more checks of the node have ended.
func (k *checked) checks(node string, n int) {
	k.t.Helper()
	verdict := regexp.MustCompile(`(?m)^(healthy|transient|broken)$`)
	done := func() int { return len(verdict.FindAllString(k.said(node), -1)) }
	until := done() + n + 1 // one may be under way
	eventually(k.t, func() string {
		if now := done(); now < until {
			return fmt.Sprintf("%d checks of %s, want %d", now, node, until)
		}
		return ""
	})
}

func (k *checked) node(name string) gpu.SlurmNode {
	k.t.Helper()
	n, err := gpu.ParseNode(run(k.t, k.Cluster, "scontrol", "show", "node", name))
	if err != nil {
		k.t.Fatal(err)
	}
	return n
}

// awaitNode waits until the node is drained, or is not, for a reason that begins so.
func (k *checked) awaitNode(name string, drained bool, reason string) gpu.SlurmNode {
	k.t.Helper()
	var n gpu.SlurmNode
	eventually(k.t, func() string {
		if n = k.node(name); n.Drained() != drained || !strings.HasPrefix(n.Reason, reason) {
			return fmt.Sprintf("%s is %s, reason %q; want drained %v, reason %q", name, n.State, n.Reason, drained, reason)
		}
		return ""
	})
	return n
}

// devices are the numbers of a job's GPUs on a node.
func (k *checked) devices(job, node string) []int {
	k.t.Helper()
	has, err := gpu.DevicesOf(run(k.t, k.Cluster, "scontrol", "--details", "show", "job", job), node)
	if err != nil || len(has) == 0 {
		k.t.Fatalf("job %s has GPUs %v of %s: %v", job, has, node, err)
	}
	return has
}

// TestGPUHealth: a GPU falls off the bus under a lease. The node is drained once, the lease has
// failed, its job is requeued, wins anew and runs elsewhere, and its rho is not charged; who
// has another GPU runs on, and so does who cannot be requeued. The GPU comes back, and so does the node.
func TestGPUHealth(t *testing.T) {
	k := startChecked(t, "--bad 50")
	for _, node := range []string{"n2", "n3"} {
		if err := k.Drain(node); err != nil {
			t.Fatal(err)
		}
	}
	sleep := "exec sleep 600"
	hit := sbatch(t, k.Cluster, "alice", sleep, "--gres=gpu:2", "--comment=themis: runtime=10m")
	stays := sbatch(t, k.Cluster, "bob", sleep, "--gres=gpu:1", "--comment=themis: runtime=10m")
	fixed := sbatch(t, k.Cluster, "carol", sleep, "--gres=gpu:1", "--no-requeue", "--comment=themis: runtime=10m")
	for _, id := range []string{hit, stays, fixed} {
		wait(t, k.Cluster, id, privateslurm.In("RUNNING"))
	}
	for _, node := range []string{"n2", "n3"} {
		if err := k.Resume(node); err != nil {
			t.Fatal(err)
		}
	}
	k.checks("n1", 2)
	time.Sleep(10 * time.Second) // of work to lose
	before := view[bridge.Explain](t, k.Cluster, "explain", hit)
	lost := k.devices(hit, "n1")[1]
	k.machine("n1", fmt.Sprintf("%d,%d handle lost\n", lost, k.devices(fixed, "n1")[0]))

	reason := regexp.MustCompile(fmt.Sprintf(`^themis: .*GPU %d \(GPU-%d\): lost: it has fallen off the bus`, lost, lost))
	if n := k.awaitNode("n1", true, "themis: GPU "); !reason.MatchString(n.Reason) || !n.Ours() {
		t.Errorf("reason %q", n.Reason)
	}
	drained := time.Now()
	again := wait(t, k.Cluster, hit, func(j map[string]string) bool { return j["JobState"] == "RUNNING" && j["Restarts"] == "1" })
	if again["NodeList"] == "n1" {
		t.Errorf("it runs on %s again", again["NodeList"])
	}
	waited := time.Since(drained).Seconds() // which is not lost by the failure, and counts
	eventually(t, func() string {
		var failed, held int
		leases := view[[]bridge.Lease](t, k.Cluster, "leases", "--last", "20")
		for _, l := range leases {
			switch {
			case l.Job == hit && l.State == "over" && strings.HasPrefix(l.Reason, "failed: n1: themis: GPU "):
				failed++
			case l.Job == hit && l.State == "held" && l.Places[0].Node == again["NodeList"] && l.Round > 0:
				held++
			case l.Job != hit && l.State != "held":
				return fmt.Sprintf("lease %+v", l)
			}
		}
		if failed != 1 || held != 1 {
			return fmt.Sprintf("%d failed leases and %d held ones, want one each: %+v", failed, held, leases)
		}
		return ""
	})
	after := view[bridge.Explain](t, k.Cluster, "explain", hit)
	t.Logf("rho %.3f before, %.3f after; %.0f s lost, %.0f s waited", before.Rho, after.Rho, after.Lost, waited)
	if after.Lost < 20 || after.Rho > before.Rho+(waited+after.Lost/2)/600 {
		t.Errorf("rho was %.3f and is %.3f; %.0f s lost, %.0f s waited", before.Rho, after.Rho, after.Lost, waited)
	}
	k.checks("n1", 3)
	for _, id := range []string{stays, fixed} {
		if j := wait(t, k.Cluster, id, privateslurm.In("RUNNING")); j["NodeList"] != "n1" || j["Restarts"] != "0" {
			t.Errorf("job %s is on %s after %s restarts", id, j["NodeList"], j["Restarts"])
		}
	}
	if said := k.said("n1"); !strings.Contains(said, "job "+fixed+" uses it, and is left alone") || strings.Contains(said, "job "+stays+" ") {
		t.Error("what the checks said of the jobs")
	}
	if n := strings.Count(k.SlurmctldLog(), "update_node: node n1 reason set to"); n != 1 {
		t.Errorf("the reason was set %d times, want once", n)
	}
	k.machine("n1", "")
	k.awaitNode("n1", false, "")
	if said := k.said("n1"); !strings.Contains(said, "healthy check 2 of 3 in a row") {
		t.Error("it was undrained too soon")
	}
}

// TestGPUHealthOwner: what an admin drained, or gave a reason of his own, is left alone; what we
// drained is undrained also if what we remembered is lost.
func TestGPUHealthOwner(t *testing.T) {
	k := startChecked(t, "--bad 50")
	if err := k.Drain("n1"); err != nil {
		t.Fatal(err)
	}
	k.machine("n1", "0 handle lost\n")
	k.machine("n2", "0 handle lost\n")
	k.machine("n3", "0 handle lost\n")
	k.checks("n1", 2)
	k.awaitNode("n1", true, "test")
	changed := k.awaitNode("n2", true, "themis: GPU 0").Reason + " (ticket 17)"
	run(t, k.Cluster, "scontrol", "update", "nodename=n2", "reason="+changed)
	k.awaitNode("n3", true, "themis: GPU 0")
	for _, node := range []string{"n1", "n2", "n3"} {
		k.machine(node, "")
	}
	k.write("state/gpu-health-n3.json", `{"bad":`)
	for _, node := range []string{"n1", "n2"} {
		k.checks(node, 5)
	}
	k.awaitNode("n1", true, "test")
	k.awaitNode("n2", true, changed)
	k.awaitNode("n3", false, "")
	if !strings.Contains(k.said("n3"), "gpu-health-n3.json is begun anew: unexpected end of JSON") {
		t.Error("nothing was said of the broken file")
	}
}

// TestGPUHealthTransient: what passes is counted and does nothing; what stays, or hangs, drains
// in the end; slurmd serves meanwhile.
func TestGPUHealthTransient(t *testing.T) {
	k := startChecked(t, "--bad 6 --limit 2s")
	k.machine("n1", "2 call nvmlDeviceGetUtilizationRates unknown\n")
	k.checks("n1", 1)
	k.machine("n1", "")
	k.checks("n1", 2)
	said := k.said("n1")
	if n := k.node("n1"); n.Drained() || !strings.Contains(said, "check 1 of 6 in a row before the node is drained") || strings.Contains(k.SlurmctldLog(), "node n1 reason set") {
		t.Errorf("n1 is %s, reason %q", n.State, n.Reason)
	}
	k.machine("n1", "2 call nvmlDeviceGetUtilizationRates unknown\n")
	k.machine("n2", "1 call nvmlDeviceGetName hang\n")
	k.machine("n3", "1 call nvmlDeviceGetName stop\n") // the reading process, as if the kernel had it
	k.awaitNode("n1", true, "themis: 6 checks in a row: GPU 2 (GPU-2): nvmlDeviceGetUtilizationRates failed")
	for _, node := range []string{"n2", "n3"} {
		begin := time.Now()
		wait(t, k.Cluster, sbatch(t, k.Cluster, "bob", "true", "--nodelist="+node), privateslurm.In("COMPLETED"))
		if took := time.Since(begin); took > 20*time.Second {
			t.Errorf("a job on %s took %v", node, took)
		}
	}
	k.awaitNode("n2", true, "themis: 6 checks in a row: GPU 1 (GPU-1): nvmlDeviceGetName did not return")
	k.awaitNode("n3", true, "themis: 6 checks in a row: NVML did not return within 2s")
	if _, err := os.Stat(filepath.Join(k.dir, "state/gpu-health-n3.json")); err != nil {
		t.Error(err)
	}
}

// TestGPUIdle: GPUs under leases that do nothing are said to their job and shown; a lease all of
// whose GPUs are idle is not renewed once another needs them. What jobs made of their GPUs, and
// what they waited for, is in the ledger.
func TestGPUIdle(t *testing.T) {
	k := startCheckedWith(t, "--tell 2s", strings.Replace(quick, "[lease]", "[lease]\nidle_after = \"6s\"\nidle = \"reclaim\"", 1))
	for _, node := range []string{"n2", "n3"} {
		if err := k.Drain(node); err != nil {
			t.Fatal(err)
		}
	}
	run(t, k.Cluster, "scontrol", "update", "nodename=n3", "extra=rack 7")
	script := "trap : TERM; while :; do sleep 1; done"
	idle := sbatch(t, k.Cluster, "bob", script, "--gres=gpu:2", "--comment=themis: runtime=10m checkpoint=1m")
	half := sbatch(t, k.Cluster, "alice", script, "--gres=gpu:2", "--comment=themis: runtime=10m checkpoint=1m")
	for _, id := range []string{idle, half} {
		wait(t, k.Cluster, id, privateslurm.In("RUNNING"))
	}
	works, rests := k.devices(half, "n1")[0], k.devices(half, "n1")[1]
	k.machine("n1", fmt.Sprintf("0-3 samples 0,0\n%d samples 60,0,90\n", works))

	note := regexp.MustCompile(`AdminComment=themis: (\d) of its 2 GPUs idle since \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d`)
	eventually(t, func() string {
		for id, want := range map[string]string{idle: "2", half: "1"} {
			shown := run(t, k.Cluster, "scontrol", "show", "job", id)
			if m := note.FindStringSubmatch(shown); m == nil || m[1] != want {
				return fmt.Sprintf("job %s, of which %s GPUs are idle: %s\n%s", id, want, shown, run(t, k.Cluster, "scontrol", "show", "node", "n1"))
			}
		}
		return ""
	})
	if shown := view[bridge.Status](t, k.Cluster, "status").Idle; len(shown) != 2 || shown[0].GPUs+shown[1].GPUs != 3 {
		t.Errorf("status shows %+v", shown)
	}
	if e := view[bridge.Explain](t, k.Cluster, "explain", half); e.Idle == nil || e.Idle.GPUs != 1 || e.Idle.Of != 2 ||
		e.Used == nil || e.Used.Sampled <= 0 || e.Used.Busy < 0.1 || e.Used.Busy > 0.3 {
		t.Errorf("explain shows idle %+v, used %+v", e.Idle, e.Used)
	}
	k.machine("n1", fmt.Sprintf("0-3 samples 0,0\n%d,%d samples 60,0,90\n", works, rests))
	eventually(t, func() string {
		if shown := run(t, k.Cluster, "scontrol", "show", "job", half); strings.Contains(shown, "AdminComment") {
			return "all its GPUs work: " + shown
		}
		return ""
	})

	next := sbatch(t, k.Cluster, "carol", "exit 0", "--gres=gpu:2", "--comment=themis: runtime=1m")
	wait(t, k.Cluster, next, privateslurm.In("COMPLETED"))
	eventually(t, func() string {
		leases := view[[]bridge.Lease](t, k.Cluster, "leases", "--last", "20")
		for _, l := range leases {
			if l.Job == idle && strings.Contains(l.Reason, "its lease ran out with 2 of its 2 GPUs idle since") {
				return ""
			}
		}
		return fmt.Sprintf("no lease of job %s has ended for its idle GPUs: %+v", idle, leases)
	})
	if j := wait(t, k.Cluster, half, privateslurm.In("RUNNING")); j["Restarts"] != "0" {
		t.Errorf("job %s, whose GPUs work, was requeued", half)
	}
	run(t, k.Cluster, "scancel", half)
	eventually(t, func() string {
		past := view[[]bridge.Past](t, k.Cluster, "ledger")
		if len(past) != 2 || past[0].Job != half || past[1].Job != next {
			return fmt.Sprintf("%+v", past)
		}
		p := past[0]
		if p.Outcome != "cancelled" || p.Leases != 1 || p.Renewals < 1 || p.Leased < 10 || p.Used == nil || p.Used.Busy < 0.1 || p.Estimate != 600 || p.Source != "declared" || p.Took < 5 {
			return fmt.Sprintf("%+v, used %+v", p, p.Used)
		}
		if w := past[1].Waited; w.Auction+w.Gather+w.Start <= 0 {
			return fmt.Sprintf("carol's job waited for nothing: %+v", past[1])
		}
		return ""
	})
	for _, say := range [][]string{{"status"}, {"explain", idle}, {"ledger"}} {
		text, err := k.Themis(say...)
		t.Logf("themis %s: %v\n%s", strings.Join(say, " "), err, text)
	}
	k.machine("n3", "0-3 samples 50\n")
	eventually(t, func() string {
		if said := k.said("n3"); !strings.Contains(said, `how busy the GPUs are is not told: the node's Extra is in use: "rack 7"`) {
			return said
		}
		return ""
	})
}
