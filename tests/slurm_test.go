// SPDX-License-Identifier: Apache-2.0

//go:build e2e

// Package tests holds what must be seen on the real daemons: every test here
// runs a private slurmctld with our plugins, submits with sbatch, and looks
// with squeue, scontrol and the themis command as a user would.
package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"themis/bridge"
	"themis/tests/privateslurm"
)

// quick has leases of seconds.
const quick = `
[auction]
settle = "100ms"
[lease]
length = "10s"
least = "5s"
grace = "3s"
take_up = "10s"
restart_cost = "5s"
[gather]
after = "5s"
[host]
tick = "300ms"
fallback_after = "5s"
`

// patient waits for what should take seconds on an idle machine.
const patient = 90 * time.Second

func start(t *testing.T, opt privateslurm.Options) *privateslurm.Cluster {
	t.Helper()
	opt.Themis = true
	if opt.ThemisTOML == "" {
		opt.ThemisTOML = quick
	}
	return privateslurm.StartT(t, opt)
}

func sbatch(t *testing.T, c *privateslurm.Cluster, user, script string, args ...string) string {
	t.Helper()
	id, err := c.Sbatch(user, script, args...)
	if err != nil {
		t.Fatalf("sbatch %v: %v", args, err)
	}
	return id
}

func run(t *testing.T, c *privateslurm.Cluster, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	out, err := c.Run(ctx, name, args...)
	if err != nil {
		t.Fatalf("%s %v: %v", name, args, err)
	}
	return out
}

func wait(t *testing.T, c *privateslurm.Cluster, id string, cond func(map[string]string) bool) map[string]string {
	t.Helper()
	j, err := c.Wait(id, cond, patient)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

var running = privateslurm.In("RUNNING")
var completed = privateslurm.In("COMPLETED")

// view asks the themis command for JSON.
func view[T any](t *testing.T, c *privateslurm.Cluster, args ...string) T {
	t.Helper()
	var v T
	out, err := c.Themis(append(args, "--json")...)
	if err != nil {
		t.Fatalf("themis %v: %v", args, err)
	}
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatalf("themis %v: %v in %s", args, err, out)
	}
	return v
}

// eventually polls until ok returns "", else fails with what it last said.
func eventually(t *testing.T, ok func() string) {
	t.Helper()
	for end := time.Now().Add(patient); ; time.Sleep(200 * time.Millisecond) {
		said := ok()
		if said == "" {
			return
		}
		if time.Now().After(end) {
			t.Fatal(said)
		}
	}
}

// checkLeases states what must hold whenever one looks: no node has more GPUs
// under leases than it has, no job has two.
func checkLeases(t *testing.T, c *privateslurm.Cluster, perNode int) []bridge.Lease {
	t.Helper()
	leases := view[[]bridge.Lease](t, c, "leases")
	held, jobs := map[string]int{}, map[string]bool{}
	for _, l := range leases {
		if jobs[l.Job] {
			t.Errorf("job %s has two leases", l.Job)
		}
		jobs[l.Job] = true
		if l.State == "reserved" {
			continue
		}
		for _, p := range l.Places {
			if held[p.Node] += p.GPUs; held[p.Node] > perNode {
				t.Errorf("%d GPUs of %s are under leases, it has %d: %+v", held[p.Node], p.Node, perNode, leases)
			}
		}
	}
	return leases
}

// TestNoGrantNoStart: a job that has not won waits with a readable reason.
func TestNoGrantNoStart(t *testing.T) {
	c := start(t, privateslurm.Options{ThemisTOML: unhurried})
	big := sbatch(t, c, "alice", "sleep 300", "-N4", "--gres=gpu:8", "-t10")
	wait(t, c, big, running)
	late := sbatch(t, c, "bob", "sleep 5", "--gres=gpu:4", "-t5")
	reason := regexp.MustCompile(`^Themis: rho [0-9.]+, rank 1 of 1; .+ \(rho [0-9.]+\) holds 32 of 32 GPUs; next auction by [0-9:]+`)
	eventually(t, func() string {
		out := strings.TrimSpace(run(t, c, "squeue", "-h", "-j", late, "-o", "%200R"))
		if !reason.MatchString(strings.Trim(out, "()")) {
			return "squeue says " + out
		}
		return ""
	})
	// The reason does not flicker while the scheduler passes over the job.
	for range 20 {
		if out := run(t, c, "squeue", "-h", "-j", late, "-o", "%200R"); !strings.Contains(out, "Themis: rho") {
			t.Errorf("squeue says %s", out)
		}
		time.Sleep(100 * time.Millisecond)
	}
	e := view[bridge.Explain](t, c, "explain", late)
	if e.State != "pending" || e.Rank != 1 || e.Rho <= 0 || len(e.HeldBy) == 0 || e.NextRound == nil || len(e.Advice) == 0 || e.Earliest == nil {
		t.Errorf("explain says %+v", e)
	}
	text, err := c.Themis("explain", late)
	if err != nil || !strings.Contains(text, "GPUs held by") || !strings.Contains(text, "would help") {
		t.Errorf("explain: %v\n%s", err, text)
	}
	for _, args := range [][]string{{"status"}, {"status", "--internals"}, {"apps"}, {"leases"}, {"leases", "--last", "5"}, {"rounds"}} {
		if out, err := c.Themis(args...); err != nil || !strings.Contains(out, "APP") {
			t.Errorf("themis %v: %v\n%s", args, err, out)
		}
	}
	if out := run(t, c, "sprio", "-h", "-j", late, "-o", "%i %Y %S"); !strings.Contains(out, late) {
		t.Errorf("sprio says %q", out)
	}
	cpu := sbatch(t, c, "bob", "sleep 1", "-n1")
	wait(t, c, cpu, completed)
	// Another round is held; who lost in it learns to whom.
	rival := sbatch(t, c, "carol", "sleep 5", "-N4", "--gres=gpu:8", "-t9", "--comment=themis: runtime=9m")
	eventually(t, func() string {
		if out, err := c.Themis("explain", rival); err != nil || !strings.Contains(out, "rank  ") {
			return fmt.Sprintf("not ranked yet: %v %s", err, out)
		}
		return ""
	})
	run(t, c, "scancel", big)
	eventually(t, func() string {
		said := ""
		for _, id := range []string{late, rival} {
			if e := view[bridge.Explain](t, c, "explain", id); len(e.Outbid) == 1 && strings.Contains(e.Why, "outbid by") {
				return ""
			} else {
				said += fmt.Sprintf("explain says %+v\n", e)
			}
		}
		return said
	})
	wait(t, c, late, completed)
	checkLeases(t, c, 8)
}

// TestLateArrival: the later app is served at the next auction, and the worst
// rho is below stock Slurm's on the same submissions.
func TestLateArrival(t *testing.T) {
	script := `step=$(cat step.$SLURM_JOB_ID 2>/dev/null || echo 0)
trap 'echo $step >step.$SLURM_JOB_ID' TERM
while ((step < 40)); do sleep 1 & wait $!; step=$((step + 1)); done`
	play := func(c *privateslurm.Cluster) (early, late time.Duration) {
		begin := time.Now()
		first := sbatch(t, c, "alice", script, "--array=1-4", "--gres=gpu:7", "--requeue", "-t5", "--comment=themis: runtime=40s checkpoint=1s")
		wait(t, c, first+"_4", running)
		arrival := time.Now()
		second := sbatch(t, c, "bob", "sleep 8", "-N2", "--gres=gpu:4", "-t5", "--comment=themis: runtime=8s")
		late = ended(t, wait(t, c, second, completed)).Sub(arrival)
		for i := 1; i <= 4; i++ {
			early = max(early, ended(t, wait(t, c, fmt.Sprintf("%s_%d", first, i), completed)).Sub(begin))
		}
		return early, late
	}
	ours := start(t, privateslurm.Options{})
	early, late := play(ours)
	refs := map[string]float64{}
	for _, a := range view[[]bridge.App](t, ours, "apps") {
		refs[a.User] = a.Reference.Sub(a.Submit).Seconds()
	}
	ours.Close()
	stock := privateslurm.StartT(t, privateslurm.Options{})
	stockEarly, stockLate := play(stock)
	alice, bob := "alice", "bob"
	if len(refs) == 1 { // not root: one user
		t.Skip("two users need root")
	}
	themis := max(early.Seconds()/refs[alice], late.Seconds()/refs[bob])
	without := max(stockEarly.Seconds()/refs[alice], stockLate.Seconds()/refs[bob])
	t.Logf("worst rho: Themis %.2f (alice %s, bob %s), stock %.2f (alice %s, bob %s)", themis, early, late, without, stockEarly, stockLate)
	if themis >= without {
		t.Errorf("worst rho is %.2f with Themis, %.2f without", themis, without)
	}
}

// ended is when a job ended, to the second.
func ended(t *testing.T, j map[string]string) time.Time {
	t.Helper()
	at, err := time.ParseInLocation("2006-01-02T15:04:05", j["EndTime"], time.Local)
	if err != nil {
		t.Fatalf("EndTime of job %s: %v", j["JobId"], err)
	}
	return at
}

// TestGangBehindStream: two whole nodes for one gang, though 1-GPU jobs never
// stop coming. While it waits it holds nothing.
func TestGangBehindStream(t *testing.T) {
	c := start(t, privateslurm.Options{Nodes: 3, GPUs: 4})
	stop := make(chan struct{})
	streamed := make(chan struct{})
	go func() {
		defer close(streamed)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			c.Sbatch("alice", fmt.Sprintf("sleep %d", 4+i%5), "--gres=gpu:1", "-t1")
			time.Sleep(350 * time.Millisecond)
		}
	}()
	defer func() { <-streamed }()
	defer close(stop)
	eventually(t, func() string {
		if s := view[bridge.Status](t, c, "status"); s.GPUsUsed < 10 {
			return fmt.Sprintf("only %d GPUs in use", s.GPUsUsed)
		}
		return ""
	})
	gang := sbatch(t, c, "bob", "sleep 3", "-N2", "--gres=gpu:4", "-t2")
	for end := time.Now().Add(patient); ; time.Sleep(300 * time.Millisecond) {
		j, err := c.Job(gang)
		if err != nil {
			t.Fatal(err)
		}
		if j["JobState"] == "RUNNING" || j["JobState"] == "COMPLETED" {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the gang waits: %s", j["Reason"])
		}
		checkLeases(t, c, 4)
	}
	wait(t, c, gang, completed)
}

// TestPlacement: 4 GPUs come from one node if any holds them; the job that
// loses most by spreading gets the whole node.
func TestPlacement(t *testing.T) {
	c := start(t, privateslurm.Options{Nodes: 3, ThemisTOML: strings.Replace(quick, `"100ms"`, `"2s"`, 1)})
	fill := func(node string, gpus int) string {
		id := sbatch(t, c, "alice", "sleep 300", "-w", node, fmt.Sprintf("--gres=gpu:%d", gpus), "-t9")
		wait(t, c, id, running)
		return id
	}
	fill("n1", 5)
	fill("n2", 2)
	fill("n3", 6)
	four := sbatch(t, c, "bob", "sleep 300", "--gpus=4", "-t9")
	if j := wait(t, c, four, running); j["NodeList"] != "n2" {
		t.Errorf("4 GPUs came from %s, only n2 held them", j["NodeList"])
	}
	run(t, c, "bash", "-c", "squeue -h -o %A | xargs -r scancel")
	eventually(t, func() string {
		if s := view[bridge.Status](t, c, "status"); s.GPUsUsed > 0 {
			return fmt.Sprintf("%d GPUs in use", s.GPUsUsed)
		}
		return ""
	})
	fill("n1", 4)
	fill("n2", 4)
	spread := sbatch(t, c, "alice", "sleep 300", "--gpus=8", "-N1-3", "-t9", "--comment=themis: model=resnet50")
	tight := sbatch(t, c, "bob", "sleep 300", "--gpus=8", "-N1-3", "-t9", "--comment=themis: model=vgg16")
	if j := wait(t, c, tight, running); j["NodeList"] != "n3" {
		t.Errorf("the network-bound job is on %s, not on the whole n3", j["NodeList"])
	}
	if j := wait(t, c, spread, running); j["NodeList"] != "n[1-2]" {
		t.Errorf("the other is on %s", j["NodeList"])
	}
}

// TestLeaseEnd: a job that checkpoints is warned by its own signal, gets its
// grace, is requeued and goes on; one that does not say so is never reclaimed.
func TestLeaseEnd(t *testing.T) {
	c := start(t, privateslurm.Options{Nodes: 3})
	script := `step=$(cat step.$SLURM_JOB_ID 2>/dev/null || echo 0); echo "starts at $step"
for s in TERM USR1; do trap "echo \$step >step.\$SLURM_JOB_ID; echo got $s" $s; done
while ((step < 30)); do sleep 1 & wait $!; step=$((step + 1)); done; echo "done at $step"`
	own := sbatch(t, c, "alice", script, "--gres=gpu:8", "-w", "n1", "--requeue", "-t5", "--signal=B:USR1", "--comment=themis: runtime=30s checkpoint=1s", "-o", "own.out", "--open-mode=append")
	term := sbatch(t, c, "alice", script, "--gres=gpu:8", "-w", "n2", "--requeue", "-t5", "--comment=themis: runtime=30s checkpoint=1s", "-o", "term.out", "--open-mode=append")
	silent := sbatch(t, c, "alice", "sleep 60", "--gres=gpu:8", "-w", "n3", "--requeue", "-t5")
	for _, id := range []string{own, term, silent} {
		wait(t, c, id, running)
	}
	var small []string
	for _, n := range []string{"n1", "n2", "n3"} {
		small = append(small, sbatch(t, c, "bob", "sleep 4", "--gres=gpu:8", "-w", n, "-t1", "--comment=themis: runtime=4s"))
	}
	wait(t, c, small[0], completed)
	wait(t, c, small[1], completed)
	for id, want := range map[string]string{own: "USR1", term: "TERM"} {
		j := wait(t, c, id, completed)
		name := map[string]string{own: "own.out", term: "term.out"}[id]
		out, err := os.ReadFile(filepath.Join(c.Dir, "jobs", name))
		if err != nil {
			t.Fatal(err)
		}
		if j["Restarts"] == "0" || !strings.Contains(string(out), "got "+want) || strings.Count(string(out), "starts at 0") != 1 || !strings.Contains(string(out), "done at 30") {
			t.Errorf("job with %s, restarted %s times, wrote:\n%s", want, j["Restarts"], out)
		}
	}
	if j := wait(t, c, silent, completed); j["Restarts"] != "0" {
		t.Errorf("a job that declared no checkpoints was requeued")
	}
	reasons := ""
	for _, l := range view[[]bridge.Lease](t, c, "leases", "--last", "50") {
		reasons += l.Reason + "\n"
	}
	if !strings.Contains(reasons, "reclaimed: its lease ran out and bob/") {
		t.Errorf("the ledger's reasons:\n%s", reasons)
	}
}

// TestApps: arrays and app= make one app; another user's jobs never join it; a
// malformed hint is refused with the right form.
func TestApps(t *testing.T) {
	c := start(t, privateslurm.Options{})
	array := sbatch(t, c, "alice", "sleep 20", "--array=1-3", "--gres=gpu:1", "-t5")
	a := sbatch(t, c, "alice", "sleep 20", "--gres=gpu:1", "-t5", "--comment=themis: app=sweep")
	sbatch(t, c, "alice", "sleep 20", "--gres=gpu:1", "-t5", `--comment={"site":"x","note":"themis: app=sweep"}`)
	b := sbatch(t, c, "bob", "sleep 20", "--gres=gpu:1", "-t5", "--comment=themis: app=sweep")
	wait(t, c, a, running)
	wait(t, c, b, running)
	wait(t, c, array+"_3", running)
	if c.RealUsers {
		want := map[string]int{"alice/" + array: 3, "alice/sweep": 2, "bob/sweep": 1}
		eventually(t, func() string {
			got := map[string]int{}
			for _, app := range view[[]bridge.App](t, c, "apps") {
				got[app.ID] = app.Running
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				return fmt.Sprintf("apps with running jobs: %v, want %v", got, want)
			}
			return ""
		})
	}
	for hint, what := range map[string]string{"themis: runtime=3": "is not a time", "themis: colour=red": "is none of", "themis: progress=2": "at most 1"} {
		_, err := c.Sbatch("alice", "true", "--gres=gpu:1", "--comment="+hint)
		if err == nil || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), "the form is: themis: app=NAME") {
			t.Errorf("sbatch --comment=%q: %v", hint, err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	if _, err := c.Run(ctx, "scontrol", "update", "jobid="+a, "comment=themis: runtime=x"); err == nil {
		t.Error("scontrol update took a malformed hint")
	}
	if _, err := c.Sbatch("alice", "true", "--comment=http://themis:8080/ is not ours"); err != nil {
		t.Errorf("a comment that is not ours was refused: %v", err)
	}
}

// TestReport: a running job says how far it is, and the estimate follows.
func TestReport(t *testing.T) {
	c := start(t, privateslurm.Options{})
	id := sbatch(t, c, "alice", "sleep 3; themis report --progress 0.1; sleep 30", "--gres=gpu:1", "-t60", "--comment=ours: keep; themis: app=x runtime=40m")
	wait(t, c, id, running)
	eventually(t, func() string {
		if e := view[bridge.Explain](t, c, "explain", id); e.Source != "reported" || e.Estimate > 600 {
			return fmt.Sprintf("estimate %gs from %s", e.Estimate, e.Source)
		}
		return ""
	})
	if j, _ := c.Job(id); !strings.Contains(j["Comment"], "ours: keep") || !strings.Contains(j["Comment"], "app=x") || !strings.Contains(j["Comment"], "progress=0.1") {
		t.Errorf("the comment is now %q", j["Comment"])
	}
	if out, err := c.Themis("report", "--job", id, "--remaining", "2h10m", "--dry-run"); err != nil || !strings.Contains(out, "remaining=2h10m") || strings.Contains(out, "progress") {
		t.Errorf("report --dry-run: %v %s", err, out)
	}
}
