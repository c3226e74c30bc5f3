// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package tests

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "github.com/mattn/go-sqlite3" // to read a ledger

	"themis/bridge"
	"themis/tests/privateslurm"
)

// corePID finds the core that the controller launched, 0 if there is none.
func corePID(c *privateslurm.Cluster) int {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		args, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if bytes.Contains(args, []byte("\x00serve\x00")) && bytes.Contains(args, []byte(c.Dir)) {
			return pid
		}
	}
	return 0
}

func ledgerFile(c *privateslurm.Cluster) string {
	return filepath.Join(c.Dir, "state", "themis", "ledger", "ledger.db")
}

// TestLeasesFollow: whatever becomes of a job, a node or the controller, the
// leases follow.
func TestLeasesFollow(t *testing.T) {
	c := start(t, privateslurm.Options{})
	reason := func(job string) string {
		for _, l := range view[[]bridge.Lease](t, c, "leases", "--last", "100") {
			if l.Job == job {
				return l.State + " " + l.Reason
			}
		}
		return "no lease"
	}
	becomes := func(job, want string) {
		t.Helper()
		eventually(t, func() string {
			if got := reason(job); got != want {
				return fmt.Sprintf("the lease of job %s is %q, want %q", job, got, want)
			}
			return ""
		})
	}
	cancelled := sbatch(t, c, "alice", "sleep 100", "--gres=gpu:1", "-t5")
	failed := sbatch(t, c, "alice", "sleep 1; exit 3", "--gres=gpu:1", "-t5")
	ended := sbatch(t, c, "alice", "sleep 1", "--gres=gpu:1", "-t5")
	lost := sbatch(t, c, "alice", "sleep 300", "--gres=gpu:1", "-t9", "-w", "n3", "--no-requeue")
	wait(t, c, cancelled, running)
	wait(t, c, lost, running)
	run(t, c, "scancel", cancelled)
	becomes(cancelled, "over cancelled")
	becomes(failed, "over failed")
	becomes(ended, "over completed")

	if err := c.Drain("n1"); err != nil {
		t.Fatal(err)
	}
	blocked := sbatch(t, c, "bob", "sleep 1", "--gres=gpu:8", "-w", "n1", "-t5")
	time.Sleep(2 * time.Second)
	if got := reason(blocked); got != "no lease" {
		t.Errorf("a job for a drained node has a lease: %s", got)
	}
	if err := c.Resume("n1"); err != nil {
		t.Fatal(err)
	}
	wait(t, c, blocked, completed)

	run(t, c, "scontrol", "update", "nodename=n3", "state=down", "reason=test")
	becomes(lost, "over node_fail")
	c.Resume("n3") // it may have come back by itself

	long := sbatch(t, c, "bob", "sleep 300", "--gres=gpu:8", "-t9")
	wait(t, c, long, running)
	becomes(long, "held ")
	run(t, c, "scontrol", "reconfigure")
	after := sbatch(t, c, "bob", "sleep 1", "--gres=gpu:2", "-t5")
	wait(t, c, after, completed)
	for _, stop := range []func() error{c.StopController, c.KillController} {
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if err := c.StartController(); err != nil {
			t.Fatal(err)
		}
		again := sbatch(t, c, "bob", "sleep 1", "--gres=gpu:2", "-t5")
		wait(t, c, again, completed)
		if j, _ := c.Job(long); j["JobState"] != "RUNNING" {
			t.Errorf("a running job is %s after slurmctld came back", j["JobState"])
		}
		if got := reason(long); got != "held " {
			t.Errorf("its lease is %q", got)
		}
	}
	checkLeases(t, c, 8)
}

// TestCoreKilled kills the core 50 times (THEMIS_KILLS) at random instants while jobs come and
// go: slurmctld lives, all jobs run once, no GPU is ever under two leases, and
// no grant is lost.
func TestCoreKilled(t *testing.T) {
	c := start(t, privateslurm.Options{Conf: "MinJobAge=86400"})
	controller := c.ControllerPID()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	steady := sbatch(t, c, "carol", "sleep 10000", "--gres=gpu:2", "-t300")
	wait(t, c, steady, running)
	var ids []string
	want := 50
	if n, err := strconv.Atoi(os.Getenv("THEMIS_KILLS")); err == nil { // make soak
		want = n
	}
	for kills := 0; kills < want; {
		if len(ids) < want+10 {
			ids = append(ids, sbatch(t, c, []string{"alice", "bob"}[len(ids)%2], "sleep 1", fmt.Sprintf("--gres=gpu:%d", 1+rnd.IntN(8)), "-t1"))
		}
		time.Sleep(time.Duration(rnd.IntN(600)) * time.Millisecond)
		if pid := corePID(c); pid > 0 && syscall.Kill(pid, syscall.SIGKILL) == nil {
			kills++
		}
	}
	for _, id := range ids {
		if j := wait(t, c, id, completed); j["Restarts"] != "0" {
			t.Errorf("job %s was restarted", id)
		}
	}
	if c.ControllerPID() != controller || syscall.Kill(controller, 0) != nil {
		t.Error("slurmctld did not live through it")
	}
	if j, _ := c.Job(steady); j["JobState"] != "RUNNING" || j["Restarts"] != "0" {
		t.Errorf("the running job is %s", j["JobState"])
	}
	eventually(t, func() string { // after the last kill
		if _, err := c.Themis("leases"); err != nil {
			return err.Error()
		}
		return ""
	})
	checkLeases(t, c, 8)
	granted := map[string]int{}
	for _, l := range view[[]bridge.Lease](t, c, "leases", "--last", "10000") {
		granted[l.Job]++
		if l.State == "over" && l.Reason != "completed" {
			t.Errorf("lease %d of job %s ended: %s", l.ID, l.Job, l.Reason)
		}
	}
	for _, id := range ids {
		if granted[id] != 1 {
			t.Errorf("job %s had %d leases", id, granted[id])
		}
	}
	// The ledger itself, as another process sees it: no GPU twice, none beyond
	// what a node has.
	db, err := sql.Open("sqlite3", "file:"+ledgerFile(c)+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var wrong int
	if err := db.QueryRow(`SELECT (SELECT count(*) FROM (SELECT 1 FROM lease_gpu GROUP BY node, gpu HAVING count(*) > 1))
		+ (SELECT count(*) FROM lease_gpu WHERE gpu >= 8)`).Scan(&wrong); err != nil || wrong != 0 {
		t.Errorf("%d GPUs are wrongly leased in the ledger, %v", wrong, err)
	}
}

// breakable is a themis binary that refuses to start while a file exists.
func breakable(t *testing.T) (binary, broken string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "themis-breakable.")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	real, err := filepath.Abs("../build/bin/themis")
	if err != nil {
		t.Fatal(err)
	}
	if b := os.Getenv("THEMIS_BUILD"); b != "" {
		real = filepath.Join(b, "bin", "themis")
	}
	binary, broken = filepath.Join(dir, "themis"), filepath.Join(dir, "broken")
	text := fmt.Sprintf("#!/bin/sh\n[ -e %s ] && exit 1\nexec %s \"$@\"\n", broken, real)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(binary, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return binary, broken
}

// TestFailOpen: with the core dead for longer than fallback_after GPU jobs flow
// as under cons_tres; when it is back it adopts them.
func TestFailOpen(t *testing.T) {
	binary, broken := breakable(t)
	c := start(t, privateslurm.Options{Env: []string{"THEMIS_BIN=" + binary}})
	first := sbatch(t, c, "alice", "sleep 200", "--gres=gpu:8", "-t9")
	wait(t, c, first, running)
	if err := os.WriteFile(broken, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	syscall.Kill(corePID(c), syscall.SIGKILL)
	begin := time.Now()
	second := sbatch(t, c, "bob", "sleep 200", "--gres=gpu:8", "-N2", "-t9")
	wait(t, c, second, running)
	if d := time.Since(begin); d < 4*time.Second {
		t.Errorf("a GPU job started %s after the core was killed, before fallback_after", d)
	}
	if log := c.SlurmctldLog(); strings.Count(log, "scheduled as without Themis") != 1 {
		t.Error("slurmctld's log does not say once that GPU jobs are scheduled as without Themis")
	}
	if err := os.Remove(broken); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string {
		out, err := c.Themis("leases")
		if err != nil || !strings.Contains(out, second) || !strings.Contains(out, first) {
			return fmt.Sprintf("the core has not adopted job %s: %v\n%s", second, err, out)
		}
		return ""
	})
	third := sbatch(t, c, "bob", "sleep 1", "--gres=gpu:8", "-t9")
	wait(t, c, third, completed)
	checkLeases(t, c, 8)
}

// TestNothingOfOurs: without libthemis.so, with one of another ABI, or with a
// configuration that the core refuses, slurmctld starts, says so once, and GPU
// jobs flow.
func TestNothingOfOurs(t *testing.T) {
	for _, k := range []struct {
		name, says string
		change     func(lib string) error
		toml       string
	}{
		{"no library", "libthemis.so", func(lib string) error { return os.Remove(filepath.Join(lib, "libthemis.so")) }, quick},
		{"not a library", "libthemis.so", func(lib string) error {
			os.Remove(filepath.Join(lib, "libthemis.so"))
			return os.WriteFile(filepath.Join(lib, "libthemis.so"), []byte("junk"), 0o755)
		}, quick},
		{"bad configuration", "line 2: auction.f is 7", func(string) error { return nil }, "[auction]\nf = 7\n[host]\ntick = \"300ms\"\nfallback_after = \"3s\"\n"},
	} {
		t.Run(k.name, func(t *testing.T) {
			build := copyBuild(t)
			t.Setenv("THEMIS_BUILD", build)
			if err := k.change(filepath.Join(build, "lib")); err != nil {
				t.Fatal(err)
			}
			c := start(t, privateslurm.Options{Nodes: 1, ThemisTOML: k.toml})
			wait(t, c, sbatch(t, c, "alice", "sleep 1", "--gres=gpu:4", "-t5"), completed)
			if log := c.SlurmctldLog(); !strings.Contains(log, k.says) {
				t.Errorf("slurmctld's log does not name %q", k.says)
			}
		})
	}
}

// copyBuild copies build/ so that a test may break it.
func copyBuild(t *testing.T) string {
	t.Helper()
	from := os.Getenv("THEMIS_BUILD")
	if from == "" {
		from = "../build"
	}
	dir, err := os.MkdirTemp("", "themis-build.")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	os.Chmod(dir, 0o755)
	for _, sub := range []string{"bin", "lib"} {
		if err := os.CopyFS(filepath.Join(dir, sub), os.DirFS(filepath.Join(from, sub))); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestHostileInput: what users and broken disks send is refused or endured.
func TestHostileInput(t *testing.T) {
	c := start(t, privateslurm.Options{Conf: "MaxArraySize=10001"})
	controller := c.ControllerPID()
	for _, comment := range []string{
		strings.Repeat("x", 1<<16), "themis: " + strings.Repeat("runtime=3h ", 5000), "themis: app=\xff\xfe\x80",
		"themis: \x1b[31mred", "%n%n%s <script>alert(1)</script>", "themis: app=" + strings.Repeat("A", 900),
	} {
		c.Sbatch("alice", "true", "--gres=gpu:1", "-t1", "--comment="+comment) // refused or not, nobody dies
	}
	odd := sbatch(t, c, "alice", "sleep 1", "--gres=gpu:1", "-t1", "-J", "\x1b[31m<b>%n\xff")
	many := sbatch(t, c, "bob", "sleep 600", "--array=1-10000", "--gres=gpu:8", "-t20")
	wait(t, c, odd, completed)
	begin := time.Now()
	after := sbatch(t, c, "carol", "sleep 1", "--gres=gpu:1", "-t1")
	cpu := sbatch(t, c, "carol", "true", "-n1", "-t1")
	wait(t, c, cpu, completed)
	if d := time.Since(begin); d > 20*time.Second {
		t.Errorf("a CPU job took %s behind 10,000 pending tasks", d)
	}
	out, err := c.Themis("status")
	if err != nil || strings.ContainsAny(out, "\x1b\x00") {
		t.Errorf("status: %v %q", err, out)
	}
	run(t, c, "scancel", many)
	wait(t, c, after, completed)
	if c.ControllerPID() != controller || syscall.Kill(controller, 0) != nil {
		t.Error("slurmctld died")
	}
	if _, err := c.Themis("explain", "'; DROP TABLE lease; --"); err == nil || !strings.Contains(err.Error(), "no GPU job") {
		t.Errorf("explain of nonsense: %v", err)
	}
}

// TestBrokenLedger: a ledger that is damaged or full is never overwritten, the
// log says so, and GPU jobs flow.
func TestBrokenLedger(t *testing.T) {
	c := start(t, privateslurm.Options{Nodes: 1})
	wait(t, c, sbatch(t, c, "alice", "sleep 1", "--gres=gpu:4", "-t5"), completed)
	if err := c.StopController(); err != nil {
		t.Fatal(err)
	}
	junk := bytes.Repeat([]byte("junk"), 10000)
	for _, suffix := range []string{"-wal", "-shm"} {
		os.Remove(ledgerFile(c) + suffix)
	}
	if err := os.WriteFile(ledgerFile(c), junk, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.StartController(); err != nil {
		t.Fatal(err)
	}
	wait(t, c, sbatch(t, c, "alice", "sleep 1", "--gres=gpu:4", "-t5"), completed)
	if now, _ := os.ReadFile(ledgerFile(c)); !bytes.Equal(now, junk) {
		t.Error("the damaged ledger was changed")
	}
	if !strings.Contains(c.SlurmctldLog(), "move it away") {
		t.Error("the log does not say what to do")
	}
}

// TestFrozenCore: no thread of slurmctld waits for a core that is stopped.
func TestFrozenCore(t *testing.T) {
	c := start(t, privateslurm.Options{})
	wait(t, c, sbatch(t, c, "alice", "sleep 1", "--gres=gpu:4", "-t5"), completed)
	pid := corePID(c)
	checkInherited(t, pid)
	syscall.Kill(pid, syscall.SIGSTOP)
	begin := time.Now()
	for range 10 {
		wait(t, c, sbatch(t, c, "bob", "true", "-n1", "-t1"), completed)
	}
	d := time.Since(begin)
	syscall.Kill(pid, syscall.SIGCONT)
	if d > 40*time.Second {
		t.Errorf("10 CPU jobs took %s with a frozen core", d)
	}
	wait(t, c, sbatch(t, c, "alice", "sleep 1", "--gres=gpu:4", "-t5"), completed)
	eventually(t, func() string {
		s := view[bridge.Status](t, c, "status", "--internals")
		if s.Internals == nil || len(s.Internals.Hooks) == 0 {
			return "no hook times"
		}
		for _, h := range s.Internals.Hooks {
			t.Logf("%s: %d calls, mean %.1f us, max %.1f us", h.Name, h.Calls, h.Mean*1e6, h.Max*1e6)
		}
		return ""
	})
}

// TestAttached: a core that runs on its own is attached to and re-attached to;
// users may read from it, only root and SlurmUser may observe.
func TestAttached(t *testing.T) {
	core := newCore(t)
	core.serve(quick)
	socket := core.socket
	c := start(t, privateslurm.Options{Nodes: 1, Env: []string{"THEMIS_SOCKET=" + socket}})
	wait(t, c, sbatch(t, c, "alice", "sleep 1", "--gres=gpu:4", "-t5"), completed)
	if !strings.Contains(c.SlurmctldLog(), "attached") {
		t.Error("slurmctld launched a core of its own")
	}
	core.kill()
	core.serve(quick)
	wait(t, c, sbatch(t, c, "alice", "sleep 1", "--gres=gpu:4", "-t5"), completed)
	if !c.RealUsers {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	if out, err := c.As("alice").Run(ctx, "themis", "--socket", socket, "apps"); err != nil || !strings.Contains(out, "alice/") {
		t.Errorf("a user cannot read: %v %s", err, out)
	}
}
