// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package tests

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
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

// TestYarnCoreGone: without a core GPU applications wait for fallback_after, then
// flow as under stock YARN; running containers run on.
func TestYarnCoreGone(t *testing.T) {
	c := startYarn(t, privateyarn.Options{})
	first := submit(t, c, privateyarn.App{Containers: 2, GPUs: 1, Seconds: 20})
	awaitEvent(t, first, "started", 1)
	// A core that cannot come back: its binary's ledger folder is no folder.
	state := filepath.Join(c.Dir, "rm1/themis")
	pid, err := c.CorePID()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(state, state+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(state, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	second := submit(t, c, privateyarn.App{User: "bob", Queue: "b", Containers: 2, GPUs: 2, Seconds: 2})
	await(t, second, succeeded)
	took := time.Since(killed)
	if !strings.Contains(c.RMLog(), "no answer from the core") {
		t.Error("the ResourceManager did not say that the core is gone")
	}
	t.Logf("the second application ended %v after the kill", took)
	// It comes back, and takes what runs as leases.
	if err := os.Remove(state); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(state+".away", state); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string {
		if !strings.Contains(c.RMLog(), "the core is back") {
			return "the core did not come back"
		}
		return ""
	})
	await(t, first, succeeded)
	third := submit(t, c, privateyarn.App{Containers: 4, GPUs: 2, Seconds: 1})
	await(t, third, succeeded)
}

// TestYarnWithoutLibrary: the ResourceManager starts, says so in one line, and
// runs as stock.
func TestYarnWithoutLibrary(t *testing.T) {
	c := startYarn(t, privateyarn.Options{Library: "/nonexistent/libthemis.so"})
	app := submit(t, c, privateyarn.App{Containers: 4, GPUs: 2, Seconds: 1})
	await(t, app, succeeded)
	if n := strings.Count(c.Said(), "GPUs are scheduled as without Themis"); n != 1 {
		t.Errorf("said so %d times:\n%s", n, c.Said())
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

// TestYarnWrongABI: a library of another release is not used.
func TestYarnWrongABI(t *testing.T) {
	dir := t.TempDir()
	lib := filepath.Join(dir, "libthemis.so")
	source := filepath.Join(dir, "abi.c")
	if err := os.WriteFile(source, []byte("int Java_org_themis_yarn_Shim_abi(void *e, void *c) { (void) e; (void) c; return 99; }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-o", lib, source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c := startYarn(t, privateyarn.Options{Library: lib})
	app := submit(t, c, privateyarn.App{Containers: 4, GPUs: 2, Seconds: 1})
	await(t, app, succeeded)
	if said := c.Said(); strings.Count(said, "GPUs are scheduled as without Themis") != 1 || !strings.Contains(said, "has ABI 99") {
		t.Error(said)
	}
}

// badLibrary is a libthemis.so whose functions throw, or answer with noise.
const badLibrary = `#include <jni.h>
#include <stdlib.h>

static void throw(JNIEnv *env, const char *what)
{
	(*env)->ThrowNew(env, (*env)->FindClass(env, "java/lang/IllegalStateException"), what);
}

JNIEXPORT jint JNICALL Java_org_themis_yarn_Shim_abi(JNIEnv *env, jclass c) { return %d; }
JNIEXPORT jbyteArray JNICALL Java_org_themis_yarn_Shim_open(JNIEnv *env, jclass c, jbyteArray a, jbyteArray b, jbyteArray d, jbyteArray e, jbyteArray f, jint uid) { return NULL; }
JNIEXPORT jboolean JNICALL Java_org_themis_yarn_Shim_observe(JNIEnv *env, jclass c, jbyteArray s) { throw(env, "observe"); return JNI_FALSE; }
JNIEXPORT jlong JNICALL Java_org_themis_yarn_Shim_silence(JNIEnv *env, jclass c) { return -1; }
JNIEXPORT jbyteArray JNICALL Java_org_themis_yarn_Shim_check(JNIEnv *env, jclass c, jbyteArray h) { throw(env, "check"); return NULL; }
JNIEXPORT jbyteArray JNICALL Java_org_themis_yarn_Shim_line(JNIEnv *env, jclass c) { return NULL; }
JNIEXPORT void JNICALL Java_org_themis_yarn_Shim_close(JNIEnv *env, jclass c) { throw(env, "close"); }
JNIEXPORT jbyteArray JNICALL Java_org_themis_yarn_Shim_latest(JNIEnv *env, jclass c, jlong seen)
{
	jbyte noise[200];
	int n = rand() %% 200;
	jbyteArray out = (*env)->NewByteArray(env, n);

	for (int i = 0; i < n; i++)
		noise[i] = rand();
	(*env)->SetByteArrayRegion(env, out, 0, n, noise);
	return out;
}
`

// TestYarnFaults: the library throws, or answers with noise, at every call. The ResourceManager lives,
// who asks for no GPU is served at once, and as no step succeeds for a minute the others are, too,
// as without Themis.
func TestYarnFaults(t *testing.T) {
	abi := regexp.MustCompile(`THEMIS_ABI (\d+)`)
	header, err := os.ReadFile("../cgo/themis.h")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	lib, source := filepath.Join(dir, "libthemis.so"), filepath.Join(dir, "bad.c")
	var n int
	fmt.Sscan(string(abi.FindSubmatch(header)[1]), &n)
	if err := os.WriteFile(source, fmt.Appendf(nil, badLibrary, n), 0o644); err != nil {
		t.Fatal(err)
	}
	jdk, err := exec.Command("../etc/find-jdk").Output()
	if err != nil {
		t.Fatal(err)
	}
	include := filepath.Join(strings.TrimSpace(string(jdk)), "include")
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-I"+include, "-I"+include+"/linux", "-o", lib, source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c := startYarn(t, privateyarn.Options{Library: lib})
	gpus := submit(t, c, privateyarn.App{Containers: 4, GPUs: 2, Seconds: 1, Tags: []string{"themis:runtime=1m"}})
	for range 2 {
		cpu := submit(t, c, privateyarn.App{Containers: 4, Seconds: 1, Tags: []string{"themis:runtime=1m"}})
		await(t, cpu, succeeded)
	}
	await(t, gpus, succeeded)
	log := c.RMLog()
	for _, line := range []string{"themis: a step was skipped", "themis: a submission was not checked", "themis: no step has succeeded for 60 s, GPUs are scheduled as without Themis"} {
		if !strings.Contains(log, line) {
			t.Errorf("the ResourceManager has not said %q", line)
		}
	}
	if n := strings.Count(log, "themis: a step was skipped"); n > 5 {
		t.Errorf("it said %d times that a step was skipped", n)
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

// TestYarnCoreKilled kills the core 50 times (THEMIS_KILLS) at random instants
// while gangs come and go: the ResourceManager lives, running containers run on,
// no node has more GPUs under leases than it has.
func TestYarnCoreKilled(t *testing.T) {
	c := startYarn(t, privateyarn.Options{})
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	steady := submit(t, c, privateyarn.App{User: "carol", Containers: 2, GPUs: 1, Seconds: 1000})
	awaitEvent(t, steady, "started", 1)
	pid := c.RMPID()
	var apps []*privateyarn.Submitted
	for i, user := range []string{"alice", "bob"} {
		apps = append(apps, submit(t, c, privateyarn.App{User: user, Queue: []string{"a", "b"}[i], Containers: 24, GPUs: 1, Seconds: 2, Eager: true, Tags: []string{"themis:gang=2"}}))
	}
	want := 50
	if n, err := strconv.Atoi(os.Getenv("THEMIS_KILLS")); err == nil { // make soak
		want = n
	}
	for kills, end := 0, time.Now().Add(10*time.Minute); kills < want; {
		time.Sleep(time.Duration(rnd.IntN(1500)) * time.Millisecond)
		if core, err := c.CorePID(); err == nil && syscall.Kill(core, syscall.SIGKILL) == nil {
			kills++
		}
		if time.Now().After(end) {
			t.Fatalf("%d kills in 10 minutes", kills)
		}
	}
	for _, app := range apps {
		await(t, app, succeeded)
		if n := app.Count("got container"); n != 24 {
			t.Errorf("%s got %d containers for 24 ranks:\n%s", app.ID, n, app.Events())
		}
	}
	if c.RMPID() != pid {
		t.Error("the ResourceManager did not live through it")
	}
	if steady.Count("ended") != 0 {
		t.Errorf("a running container ended:\n%s", steady.Events())
	}
	held := map[string]int{}
	for _, l := range yarnLeases(t, c) {
		for _, p := range l.Places {
			if held[p.Node] += p.GPUs; held[p.Node] > 4 {
				t.Errorf("%d GPUs of %s are under leases", held[p.Node], p.Node)
			}
		}
	}
}

// machines are what the NodeManagers' scripts see, played by tests/fakenvml.
type machines struct {
	*testing.T
	dir, binary, library string
}

func playMachines(t *testing.T, inventories ...string) *machines {
	t.Helper()
	dir, err := os.MkdirTemp("", "themis-machines.") // not below a folder of root's
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	binary, bad := filepath.Abs(themisBinary())
	if err := errors.Join(bad, os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	m := &machines{t, dir, binary, filepath.Join(filepath.Dir(binary), "../fakenvml/libnvidia-ml.so.1")}
	for i, inventory := range inventories {
		m.play(i, inventory)
		m.write(m.script(i), fmt.Sprintf("#!/bin/sh\nFAKE_NVML=%s/machine%d exec %s \"$@\"\n", dir, i, binary))
	}
	return m
}

// script is one that runs themis on the machine.
func (m *machines) script(i int) string { return filepath.Join(m.dir, fmt.Sprint("themis", i)) }

// play replaces what a machine is like.
func (m *machines) play(i int, inventory string) {
	m.write(filepath.Join(m.dir, fmt.Sprint("machine", i)), inventory)
}

func (m *machines) write(path, text string) {
	if err := errors.Join(os.WriteFile(path+".new", []byte(text), 0o755), os.Rename(path+".new", path)); err != nil {
		m.Fatal(err)
	}
}

// TestYarnTypes: the real node-attribute script tells the ResourceManager the type of a node's GPUs,
// and applications that say speed= get the nodes on which they gain most.
func TestYarnTypes(t *testing.T) {
	machines := playMachines(t, "gpus 2\n0-1 name Tesla V100-SXM2-32GB\n", "gpus 2\n0-1 name NVIDIA A100-SXM4-40GB\n")
	opt := privateyarn.Options{GPUs: 2}
	for i := range 2 {
		opt.NodeSite = append(opt.NodeSite, map[string]string{
			"yarn.nodemanager.node-attributes.provider":             "script",
			"yarn.nodemanager.node-attributes.provider.script.path": machines.script(i),
			"yarn.nodemanager.node-attributes.provider.script.opts": "gpus,--node-attributes,--library," + machines.library,
		})
	}
	opt.Site = map[string]string{"yarn.node-attribute.fs-store.root-dir": "file://" + filepath.Join(machines.dir, "store")}
	c := startYarn(t, opt)
	likesA := submit(t, c, privateyarn.App{Containers: 2, GPUs: 1, Seconds: 15, User: "bob", Tags: []string{"themis:speed=a100:1,v100:.2"}})
	awaitEvent(t, likesA, "started", 1) // alone, it could have either
	likesV := submit(t, c, privateyarn.App{Containers: 2, GPUs: 1, Seconds: 5, Tags: []string{"themis:speed=v100:1,a100:.5"}})
	awaitEvent(t, likesV, "started", 1)
	leases := yarnLeases(t, c)
	for i, app := range []*privateyarn.Submitted{likesV, likesA} {
		if on := nodesOf(leases, app); len(on) != 1 || on[c.NodeName(i)] != 2 {
			t.Errorf("application %d has %v, want two GPUs of %s", i, on, c.NodeName(i))
		}
		if e := yarnView[bridge.Explain](t, c, "explain", app.ID); e.Types != []string{"v100", "a100"}[i] || e.Speed != 1 {
			t.Errorf("application %d is on %q at speed %g", i, e.Types, e.Speed)
		}
	}
	await(t, likesV, succeeded)
	await(t, likesA, succeeded)
}
